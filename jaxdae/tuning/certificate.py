"""The certificate of a gradient: three ways to the same number, and where they part.

For every trained leaf the derivative of the loss along one direction d (every entry plus or minus its scale, signs seeded) is computed by

* forward mode, one `jax.jvp`;
* reverse mode, d . grad;
* central differences D(h) = (L(x + h d) - L(x - h d)) / 2h, for steps h = 10^-1, 10^-1.5, ..., 10^-7 of the scale, extrapolated over
  neighbors, R = (10 D(h / sqrt 10) - D(h)) / 9, which removes the error of order h^2.

A difference has two errors: what the extrapolation leaves, estimated by how far neighboring R lie apart, and round-off, eps |L| / h times
a factor for the digits that a rollout loses, estimated from the scatter of the smallest steps. The best step is where their sum is
least. A leaf passes where forward and reverse agree, and both agree with the difference, to the tolerance relative to the derivative,
plus what the difference itself is known to be off; that part is reported, so that nothing passes unseen.

*Not finite.* Where a derivative is NaN or infinite, the leaf is named. Of a `RolloutLoss` every step is differentiated for itself, at
the states of the rollout: the first one (in time) whose forward or reverse derivative is not finite is named too.

*Chaos.* The growth |dx(t)| / |dx(0)| of a random perturbation of the start state of a `RolloutLoss` is followed by forward mode. Regular
motions let it grow as a power of time, chaotic ones exponentially. So ln |dx(t)| = c + p ln t + lambda t is fitted over the last nine
tenths of the horizon T. The horizon is called chaotic where lambda T > 7, which is a thousandfold growth beyond any power. A gradient is
exact then, and useless, because the loss has as many wiggles. Shorten the horizon, or steer the motion.

References:
    A. Griewank, A. Walther, "Evaluating Derivatives", 2nd edition, SIAM (2008).
    L. Metz, C. D. Freeman, S. S. Schoenholz, T. Kachman, "Gradients are not all you need", arXiv:2111.05803 (2021).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxdae._pytree import get_leaf
from jaxdae.status import Status
from jaxdae.system import State
from jaxdae.trajectory import rollout
from jaxdae.tuning.parameters import Trainable, reparametrize
from jaxdae.tuning.rollout_loss import RolloutLoss

CHAOTIC = 7.0
"""The exponent times the horizon beyond which a horizon is called chaotic: growth by exp(7), about a thousand, beyond any power of time."""

_STEPS = 10.0 ** -np.arange(1.0, 7.25, 0.5)
_FRESH = 64  # of round-off in a loss, in units of eps |L|: at least so much is assumed


@dataclasses.dataclass(frozen=True)
class LeafCheck:
    """The derivative along one direction in one leaf.

    Attributes:
        path: the leaf.
        forward: by forward mode, in units of the loss.
        reverse: by reverse mode.
        difference: by central differences, at the best step.
        step: that step, relative to the scale of the leaf.
        uncertainty: what the difference may be off, by the spread of its neighbors and round-off.
        modes_error: |forward - reverse| relative to the larger.
        error: the larger distance of the two from the difference, relative to it.
        allowed: the tolerance plus the uncertainty, relative.
        passed: whether both errors are within what is allowed.
    """

    path: str
    forward: float
    reverse: float
    difference: float
    step: float
    uncertainty: float
    modes_error: float
    error: float
    allowed: float
    passed: bool


@dataclasses.dataclass(frozen=True)
class GradientReport:
    """What `check_gradients` found; prints as a table.

    Attributes:
        loss: its value.
        leaves: one check for each leaf.
        tolerance: the relative one that was asked for.
        not_finite: the leaves whose derivative is not finite.
        first_bad_step: the first step, from 0, that has no finite derivative; None where all have one, or of no `RolloutLoss`.
        failed: the status in words and the step of a rollout that failed, empty without.
        growth: |dx(T)| / |dx(0)| of a perturbed start; None of no `RolloutLoss`, as the next two.
        exponent: lambda in 1/s.
        horizon: T in s.
    """

    loss: float
    leaves: tuple[LeafCheck, ...]
    tolerance: float
    not_finite: tuple[str, ...]
    first_bad_step: int | None = None
    failed: str = ""
    growth: float | None = None
    exponent: float | None = None
    horizon: float | None = None

    @property
    def chaotic(self) -> bool | None:
        """Whether perturbations grow exponentially over the horizon; None where that is not known."""
        if self.exponent is None or self.horizon is None:
            return None
        return bool(self.exponent * self.horizon > CHAOTIC)

    @property
    def passed(self) -> bool:
        """Whether the loss and all derivatives are finite and agree."""
        return bool(np.isfinite(self.loss)) and not self.failed and all(leaf.passed for leaf in self.leaves)

    def __str__(self) -> str:
        """Returns the report as text."""
        width = max(len(leaf.path) for leaf in self.leaves)
        lines = [f"loss {self.loss:.10g}; relative tolerance {self.tolerance:g}"]
        lines.append(f"{'leaf':<{width}}  {'forward':>14} {'reverse':>14} {'difference':>14}  best step  modes   error   allowed")
        for x in self.leaves:
            verdict = "" if x.passed else "  FAILS"
            lines.append(
                f"{x.path:<{width}}  {x.forward:>14.7g} {x.reverse:>14.7g} {x.difference:>14.7g}  {x.step:<9.1e}  {x.modes_error:<7.1e}"
                f" {x.error:<7.1e} {x.allowed:<7.1e}{verdict}"
            )
        if self.not_finite:
            lines.append(f"not finite: the derivative with respect to {', '.join(self.not_finite)}")
        if self.first_bad_step is not None:
            lines.append(f"the first step without a finite derivative is step {self.first_bad_step} (from 0)")
        if self.failed:
            lines.append(f"the rollout failed: {self.failed}")
        if self.exponent is not None and self.horizon is not None and self.growth is not None:
            what = f"perturbations of the start grow {self.growth:.3g} times over {self.horizon:g} s, exponent {self.exponent:.3g}/s"
            chaos = "chaotic: gradients are exact and useless, shorten the horizon" if self.chaotic else "not chaotic"
            lines.append(f"{what}: exponent times horizon {self.exponent * self.horizon:.2g} (limit {CHAOTIC:g}), {chaos}")
        lines.append("passed" if self.passed else "FAILED")
        return "\n".join(lines)


def check_gradients(
    loss: Callable[[Any], Any], parameters: Any, *, trainable: Trainable = None, tolerance: float = 1e-6, seed: int = 0
) -> GradientReport:
    """Returns how well forward mode, reverse mode and central differences agree on the gradient of a loss.

    Args:
        loss: parameters -> scalar; a `RolloutLoss` also tells the step of a NaN and whether the horizon is chaotic.
        parameters: any pytree.
        trainable: which leaves, as in `fit`; all floating-point leaves by default. Bounds play no role.
        tolerance: relative, of the derivative along the direction in each leaf.
        seed: of the directions.

    Raises:
        ValueError: as `reparametrize`; a tolerance that is not positive.
    """
    if not tolerance > 0:
        raise ValueError(f"check_gradients: tolerance must be positive, got {tolerance}")
    paths = reparametrize(parameters, trainable).paths
    parameters = jax.tree.map(jnp.asarray, parameters)
    start = {path: get_leaf(parameters, path) for path in paths}
    generator = np.random.default_rng(seed)
    scaled = {path: _direction(x, generator) for path, x in start.items()}
    place = reparametrize(parameters, list(paths))

    def of_leaves(leaves: Any, fixed: Any) -> Any:
        return loss(place.join(fixed, leaves))

    along = jax.jit(lambda leaves, d, h, fixed: of_leaves({path: x + h * d[path] for path, x in leaves.items()}, fixed))
    push = jax.jit(lambda leaves, d, fixed: jax.jvp(lambda x: of_leaves(x, fixed), (leaves,), (d,))[1])
    value, gradient = jax.jit(jax.value_and_grad(of_leaves))(start, parameters)
    zeros = jax.tree.map(jnp.zeros_like, start)
    checks = []
    for path in paths:
        d = {**zeros, path: scaled[path]}
        forward = float(push(start, d, parameters))
        if not np.isfinite(forward):
            # Zero times infinity is NaN: this leaf alone, the others constant, says whether it is its own.
            forward = float(jax.jvp(lambda x, path=path: of_leaves({**start, path: x}, parameters), (start[path],), (d[path],))[1])
        reverse = float(jnp.sum(gradient[path] * d[path]))
        sides = [[float(along(start, d, jnp.asarray(sign * h, value.dtype), parameters)) for sign in (1, -1)] for h in _STEPS]
        checks.append(_check(path, forward, reverse, np.asarray(sides), float(value), float(jnp.finfo(value.dtype).eps), tolerance))
    bad = tuple(
        path for path, c in zip(paths, checks, strict=True) if not (np.isfinite(c.forward) and jnp.all(jnp.isfinite(gradient[path])))
    )
    report = GradientReport(float(value), tuple(checks), tolerance, bad)
    return dataclasses.replace(report, **_of_rollout(loss, parameters, seed)) if isinstance(loss, RolloutLoss) else report


def _direction(x: Any, generator: np.random.Generator) -> Any:
    """Returns plus or minus the scale of each entry: its size, or that of the largest entry where it is small, or 1 where all vanish."""
    sizes = np.abs(np.asarray(x, float))
    largest = sizes.max(initial=0.0)
    scale = np.maximum(sizes, 0.1 * largest) if largest > 0 else np.ones_like(sizes)
    return jnp.asarray(scale * generator.choice([-1.0, 1.0], np.shape(x)), x.dtype)


def _check(path: str, forward: float, reverse: float, sides: Any, value: float, eps: float, tolerance: float) -> LeafCheck:
    """Returns the comparison in one leaf; `sides` (steps, 2) are the losses on both sides."""
    differences = (sides[:, 0] - sides[:, 1]) / (2.0 * _STEPS)
    richer = (10.0 * differences[1:] - differences[:-1]) / 9.0
    # Scatter of the three smallest steps, where round-off rules, seen as an error of the loss; never less than some eps |L|.
    scatter = np.ptp(differences[-3:]) * _STEPS[-3]
    fresh = max(scatter, _FRESH * eps * max(abs(value), np.nanmax(np.abs(sides), initial=0.0)) if np.isfinite(sides).any() else 0.0)
    spread = np.abs(np.diff(richer))
    # Of each entry of `richer`: how far it is from the one before, whose error is larger, and the round-off of its smaller step.
    uncertain = np.append(np.inf, spread) + fresh / _STEPS[1:]
    usable = np.isfinite(uncertain)
    if not usable.any():
        return LeafCheck(path, forward, reverse, np.nan, np.nan, np.nan, np.nan, np.nan, tolerance, False)
    best = int(np.argmin(np.where(usable, uncertain, np.inf)))
    difference, off = float(richer[best]), float(uncertain[best])
    size = max(abs(forward), abs(reverse), abs(difference))
    # Below what round-off of the loss lets a derivative be, all three count as zero.
    size = max(size, fresh) or 1.0
    modes, error = abs(forward - reverse) / size, max(abs(forward - difference), abs(reverse - difference)) / size
    allowed = tolerance + off / size
    passed = bool(modes <= tolerance and error <= allowed)
    return LeafCheck(path, forward, reverse, difference, float(_STEPS[best + 1]), off, modes, error, allowed, passed)


# Of rollouts.


def _of_rollout(loss: RolloutLoss, parameters: Any, seed: int) -> dict[str, Any]:
    """Returns the fields of the report that only a `RolloutLoss` has."""
    system, integrator, state, controls = loss.setup(parameters)
    state = State(jnp.asarray(state.t, state.q.dtype), state.q, state.v)
    plan = {"dt": loss.dt, "steps": loss.steps}
    key = jax.random.key(seed)

    def run(q: Any, v: Any) -> Any:
        return rollout(system, integrator, State(state.t, q, v), controls, **plan)

    nudge = [jax.random.normal(jax.random.fold_in(key, k), x.shape, x.dtype) for k, x in enumerate((state.q, state.v))]
    trajectory, moved = jax.jit(lambda q, v, dq, dv: jax.jvp(run, (q, v), (dq, dv)))(state.q, state.v, *nudge)
    status = np.asarray(trajectory.info.status)
    found: dict[str, Any] = {"horizon": float(loss.dt) * loss.steps}
    if np.any(status != Status.OK):
        first = int(np.argmax(status != Status.OK))
        found["failed"] = f"{Status(int(status[first])).name} at step {first}: {Status(int(status[first])).meaning}"
    size = np.sqrt(np.sum(np.asarray(moved.state.q) ** 2, axis=1) + np.sum(np.asarray(moved.state.v) ** 2, axis=1))
    before = float(jnp.sqrt(sum(jnp.sum(x**2) for x in nudge)))
    found["growth"] = float(size[-1]) / before
    found["exponent"] = _exponent(np.arange(1, loss.steps + 1) * float(loss.dt), size)
    found["first_bad_step"] = _first_bad_step(loss, system, integrator, state, controls, trajectory, key)
    return found


def _exponent(t: Any, size: Any) -> float:
    """Returns lambda of ln size = c + p ln t + lambda t, fitted over the last nine tenths."""
    kept = (t > 0.1 * t[-1]) & np.isfinite(size) & (size > 0)
    if kept.sum() < 8:
        return 0.0
    design = np.stack([np.ones(kept.sum()), np.log(t[kept]), t[kept]], axis=1)
    return float(np.linalg.lstsq(design, np.log(size[kept]), rcond=None)[0][2])


def _first_bad_step(loss: RolloutLoss, system: Any, integrator: Any, state: State, controls: Any, trajectory: Any, key: Any) -> int | None:
    """Returns the first step that by itself, at its state, has a derivative that is not finite, in forward or in reverse mode."""
    starts = jax.tree.map(lambda first, x: jnp.concatenate([first[None], x[:-1]]), state, trajectory.state)
    inputs = None if callable(controls) or controls is None else jnp.asarray(controls)[:, None]
    leaves, structure = jax.tree.flatten((system, integrator))
    moving = [k for k, x in enumerate(leaves) if jnp.issubdtype(jnp.result_type(x), jnp.floating)]

    def step(numbers: Any, q: Any, v: Any, t: Any, u: Any) -> Any:
        filled = list(leaves)
        for k, x in zip(moving, numbers, strict=True):
            filled[k] = x
        s, method = jax.tree.unflatten(structure, filled)
        # The states of a rollout may have drifted, which is no fault of the step.
        end = rollout(s, method, State(t, q, v), controls if u is None else u, dt=loss.dt, steps=1, start_tolerance=jnp.inf)
        return end.state.q[0], end.state.v[0], end.info.lam[0]

    def finite(q: Any, v: Any, t: Any, u: Any, numbers: Any) -> Any:
        out, pull = jax.vjp(lambda n, x, y: step(n, x, y, t, u), numbers, q, v)
        tangents = jax.tree.map(jnp.ones_like, (numbers, q, v))
        pushed = jax.jvp(lambda n, x, y: step(n, x, y, t, u), (numbers, q, v), tangents)[1]
        there = jax.tree.leaves((pushed, pull(jax.tree.map(jnp.ones_like, out))))
        return jnp.all(jnp.stack([jnp.all(jnp.isfinite(x)) for x in there]))

    axes = (0, 0, 0, None if inputs is None else 0, None)
    numbers = [jnp.asarray(leaves[k]) for k in moving]
    good = np.asarray(jax.jit(jax.vmap(finite, in_axes=axes))(starts.q, starts.v, starts.t, inputs, numbers))
    return None if good.all() else int(np.argmin(good))

"""Gradient certificate: three computations of the same derivative, and their differences.

For every trained leaf, the derivative of the loss along one direction d (every entry plus or minus its scale,
signs seeded) is computed by

* forward mode, one `jax.jvp`;
* reverse mode, d . grad;
* central differences D(h) = (L(x + h d) - L(x - h d)) / 2h, for steps h = 10^-1, 10^-1.5, ..., 10^-7 of the
  scale, extrapolated over neighbors, R = (10 D(h / sqrt 10) - D(h)) / 9, which removes the error of order
  h^2.

A difference has two errors. The first is the remaining extrapolation error, estimated by the distance of
neighboring R. The second is round-off, eps |L| / h times a factor for the digits that a rollout loses,
estimated from the scatter of the smallest steps. The best step minimizes the sum of both errors. A leaf
passes if forward and reverse mode agree, and both agree with the difference. The allowed error is the
tolerance relative to the derivative, plus the estimated error of the difference for comparisons with it. The
report contains this estimate, so that it does not hide a failure.

*Non-finite derivatives.* The report names each leaf whose derivative is NaN or infinite. For a `RolloutLoss`,
every step is also differentiated separately, at the states of the rollout. The report names the first step
(in time) whose forward or reverse derivative is not finite.

*Chaos.* For a `RolloutLoss`, forward mode computes the growth |dx(t)| / |dx(0)| of a random perturbation of
the start state. It grows as a power of time in regular motions, and exponentially in chaotic motions. The
model ln |dx(t)| = c + p ln t + lambda t is therefore fitted over the last nine tenths of the horizon T. The
horizon counts as chaotic if lambda T > 7, a thousandfold growth beyond any power. The gradient is then exact
but useless, because the loss has as many oscillations. Shorten the horizon, or control the motion.

References:
    A. Griewank, A. Walther, "Evaluating Derivatives", 2nd edition, SIAM (2008).
    L. Metz, C. D. Freeman, S. S. Schoenholz, T. Kachman, "Gradients are not all you need", arXiv:2111.05803
    (2021).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxdae.base.dataclass import get_leaf
from jaxdae.rollouts.trajectory import rollout
from jaxdae.systems.status import Status
from jaxdae.systems.system import State
from jaxdae.tuning.parameters import Trainable, reparametrize
from jaxdae.tuning.rollout_loss import RolloutLoss

CHAOTIC = 7.0
"""Exponent times horizon above which a horizon counts as chaotic: growth by exp(7), about a thousand, beyond
any power of time."""

_STEPS = 10.0 ** -np.arange(1.0, 7.25, 0.5)
_FRESH = 64  # Minimum round-off of a loss, in units of eps |L|.


@dataclasses.dataclass(frozen=True)
class LeafCheck:
    """The derivative along one direction in one leaf.

    Attributes:
        path: the leaf.
        forward: derivative by forward mode, in units of the loss.
        reverse: derivative by reverse mode.
        difference: derivative by central differences, at the best step.
        step: the best step, relative to the scale of the leaf.
        uncertainty: estimated error of the difference, from the spread of its neighbors and round-off.
        modes_error: |forward - reverse| relative to the largest of the three derivatives, or to the round-off
            of the loss if that is larger.
        error: the larger distance of forward and reverse from the difference, relative to the same size.
        allowed: the tolerance plus the uncertainty, relative.
        passed: whether modes_error is at most the tolerance, and error at most `allowed`.
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
    """The result of `check_gradients`; prints as a table.

    Attributes:
        loss: value of the loss.
        leaves: one check per leaf.
        tolerance: the requested relative tolerance.
        not_finite: the leaves whose derivative is not finite.
        first_bad_step: the first step, from 0, without a finite derivative; None if all steps have one, or
            without a `RolloutLoss`.
        failed: status in words and step of a failed rollout, empty without failure.
        growth: |dx(T)| / |dx(0)| of a perturbed start; this and the next two are None without a
            `RolloutLoss`.
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
        """Return whether perturbations grow exponentially over the horizon; None if unknown."""
        if self.exponent is None or self.horizon is None:
            return None
        return bool(self.exponent * self.horizon > CHAOTIC)

    @property
    def passed(self) -> bool:
        """Return whether the loss and all derivatives are finite and agree."""
        return bool(np.isfinite(self.loss)) and not self.failed and all(leaf.passed for leaf in self.leaves)

    def __str__(self) -> str:
        """Return the report as text."""
        width = max(len(leaf.path) for leaf in self.leaves)
        lines = [f"loss {self.loss:.10g}; relative tolerance {self.tolerance:g}"]
        lines.append(
            f"{'leaf':<{width}}  {'forward':>14} {'reverse':>14} {'difference':>14}  best step  modes   "
            "error   allowed"
        )
        for x in self.leaves:
            verdict = "" if x.passed else "  FAILS"
            lines.append(
                f"{x.path:<{width}}  {x.forward:>14.7g} {x.reverse:>14.7g} {x.difference:>14.7g}  "
                f"{x.step:<9.1e}  {x.modes_error:<7.1e}"
                f" {x.error:<7.1e} {x.allowed:<7.1e}{verdict}"
            )
        if self.not_finite:
            lines.append(f"not finite: the derivative with respect to {', '.join(self.not_finite)}")
        if self.first_bad_step is not None:
            lines.append(f"the first step without a finite derivative is step {self.first_bad_step} (from 0)")
        if self.failed:
            lines.append(f"the rollout failed: {self.failed}")
        if self.exponent is not None and self.horizon is not None and self.growth is not None:
            what = (
                f"perturbations of the start grow {self.growth:.3g} times over {self.horizon:g} s, "
                f"exponent {self.exponent:.3g}/s"
            )
            chaos = (
                "chaotic: the gradients are exact but useless; shorten the horizon"
                if self.chaotic
                else "not chaotic"
            )
            lines.append(
                f"{what}: exponent times horizon {self.exponent * self.horizon:.2g} (limit {CHAOTIC:g}), "
                f"{chaos}"
            )
        lines.append("passed" if self.passed else "FAILED")
        return "\n".join(lines)


def check_gradients(
    loss: Callable[[Any], Any],
    parameters: Any,
    *,
    trainable: Trainable = None,
    tolerance: float = 1e-6,
    seed: int = 0,
) -> GradientReport:
    """Compare forward mode, reverse mode and central differences for the gradient of a loss.

    Args:
        loss: parameters -> scalar; for a `RolloutLoss` the report also contains the step of a NaN and whether
            the horizon is chaotic.
        parameters: any pytree.
        trainable: the leaves to check, as in `fit`; all floating-point leaves by default. Bounds have no
            effect.
        tolerance: relative tolerance of the derivative along the direction in each leaf.
        seed: seed of the directions.

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

    along = jax.jit(
        lambda leaves, d, h, fixed: of_leaves({path: x + h * d[path] for path, x in leaves.items()}, fixed)
    )
    push = jax.jit(lambda leaves, d, fixed: jax.jvp(lambda x: of_leaves(x, fixed), (leaves,), (d,))[1])
    value, gradient = jax.jit(jax.value_and_grad(of_leaves))(start, parameters)
    zeros = jax.tree.map(jnp.zeros_like, start)
    checks = []
    for path in paths:
        d = {**zeros, path: scaled[path]}
        forward = float(push(start, d, parameters))
        if not np.isfinite(forward):
            # Zero times infinity is NaN. Differentiate this leaf alone, with the others constant, to see
            # whether it is the cause.
            forward = float(
                jax.jvp(
                    lambda x, path=path: of_leaves({**start, path: x}, parameters), (start[path],), (d[path],)
                )[1]
            )
        reverse = float(jnp.sum(gradient[path] * d[path]))
        sides = [
            [float(along(start, d, jnp.asarray(sign * h, value.dtype), parameters)) for sign in (1, -1)]
            for h in _STEPS
        ]
        checks.append(
            _check(
                path,
                forward,
                reverse,
                np.asarray(sides),
                float(value),
                float(jnp.finfo(value.dtype).eps),
                tolerance,
            )
        )
    bad = tuple(
        path
        for path, c in zip(paths, checks, strict=True)
        if not (np.isfinite(c.forward) and jnp.all(jnp.isfinite(gradient[path])))
    )
    report = GradientReport(float(value), tuple(checks), tolerance, bad)
    return (
        dataclasses.replace(report, **_of_rollout(loss, parameters, seed))
        if isinstance(loss, RolloutLoss)
        else report
    )


def _direction(x: Any, generator: np.random.Generator) -> Any:
    """Return plus or minus the scale of each entry.

    The scale is the size of the entry, or a tenth of the largest size if that is larger, or 1 if all entries
    vanish.
    """
    sizes = np.abs(np.asarray(x, float))
    largest = sizes.max(initial=0.0)
    scale = np.maximum(sizes, 0.1 * largest) if largest > 0 else np.ones_like(sizes)
    return jnp.asarray(scale * generator.choice([-1.0, 1.0], np.shape(x)), x.dtype)


def _check(
    path: str, forward: float, reverse: float, sides: Any, value: float, eps: float, tolerance: float
) -> LeafCheck:
    """Return the comparison for one leaf; `sides` (steps, 2) are the losses on both sides."""
    differences = (sides[:, 0] - sides[:, 1]) / (2.0 * _STEPS)
    richer = (10.0 * differences[1:] - differences[:-1]) / 9.0
    # Scatter of the three smallest steps, where round-off dominates, as an error of the loss; at least a few
    # eps |L|.
    scatter = np.ptp(differences[-3:]) * _STEPS[-3]
    fresh = max(
        scatter,
        _FRESH * eps * max(abs(value), np.nanmax(np.abs(sides), initial=0.0))
        if np.isfinite(sides).any()
        else 0.0,
    )
    spread = np.abs(np.diff(richer))
    # Error of each entry of `richer`: the distance to the preceding entry, which has a larger error, plus the
    # round-off of the smaller step.
    uncertain = np.append(np.inf, spread) + fresh / _STEPS[1:]
    usable = np.isfinite(uncertain)
    if not usable.any():
        return LeafCheck(path, forward, reverse, np.nan, np.nan, np.nan, np.nan, np.nan, tolerance, False)
    best = int(np.argmin(np.where(usable, uncertain, np.inf)))
    difference, off = float(richer[best]), float(uncertain[best])
    size = max(abs(forward), abs(reverse), abs(difference))
    # Derivatives below the round-off of the loss count as zero.
    size = max(size, fresh) or 1.0
    modes, error = (
        abs(forward - reverse) / size,
        max(abs(forward - difference), abs(reverse - difference)) / size,
    )
    allowed = tolerance + off / size
    passed = bool(modes <= tolerance and error <= allowed)
    return LeafCheck(
        path, forward, reverse, difference, float(_STEPS[best + 1]), off, modes, error, allowed, passed
    )


# Rollouts.


def _of_rollout(loss: RolloutLoss, parameters: Any, seed: int) -> dict[str, Any]:
    """Return the fields of the report that exist only for a `RolloutLoss`."""
    system, integrator, state, controls = loss.setup(parameters)
    state = State(jnp.asarray(state.t, state.q.dtype), state.q, state.v)
    plan = {"dt": loss.dt, "steps": loss.steps}
    key = jax.random.key(seed)

    def run(q: Any, v: Any) -> Any:
        return rollout(system, integrator, State(state.t, q, v), controls, **plan)

    nudge = [
        jax.random.normal(jax.random.fold_in(key, k), x.shape, x.dtype)
        for k, x in enumerate((state.q, state.v))
    ]
    trajectory, moved = jax.jit(lambda q, v, dq, dv: jax.jvp(run, (q, v), (dq, dv)))(state.q, state.v, *nudge)
    status = np.asarray(trajectory.info.status)
    found: dict[str, Any] = {"horizon": float(loss.dt) * loss.steps}
    if np.any(status != Status.OK):
        first = int(np.argmax(status != Status.OK))
        found["failed"] = (
            f"{Status(int(status[first])).name} at step {first}: {Status(int(status[first])).meaning}"
        )
    size = np.sqrt(
        np.sum(np.asarray(moved.state.q) ** 2, axis=1) + np.sum(np.asarray(moved.state.v) ** 2, axis=1)
    )
    before = float(jnp.sqrt(sum(jnp.sum(x**2) for x in nudge)))
    found["growth"] = float(size[-1]) / before
    found["exponent"] = _exponent(np.arange(1, loss.steps + 1) * float(loss.dt), size)
    found["first_bad_step"] = _first_bad_step(loss, system, integrator, state, controls, trajectory, key)
    return found


def _exponent(t: Any, size: Any) -> float:
    """Return lambda of ln size = c + p ln t + lambda t, fitted over the last nine tenths."""
    kept = (t > 0.1 * t[-1]) & np.isfinite(size) & (size > 0)
    if kept.sum() < 8:
        return 0.0
    design = np.stack([np.ones(kept.sum()), np.log(t[kept]), t[kept]], axis=1)
    return float(np.linalg.lstsq(design, np.log(size[kept]), rcond=None)[0][2])


def _first_bad_step(
    loss: RolloutLoss, system: Any, integrator: Any, state: State, controls: Any, trajectory: Any, key: Any
) -> int | None:
    """Return the first step whose own derivative, at its state, is not finite in forward or reverse mode."""
    starts = jax.tree.map(lambda first, x: jnp.concatenate([first[None], x[:-1]]), state, trajectory.state)
    inputs = None if callable(controls) or controls is None else jnp.asarray(controls)[:, None]
    leaves, structure = jax.tree.flatten((system, integrator))
    moving = [k for k, x in enumerate(leaves) if jnp.issubdtype(jnp.result_type(x), jnp.floating)]

    def step(numbers: Any, q: Any, v: Any, t: Any, u: Any) -> Any:
        filled = list(leaves)
        for k, x in zip(moving, numbers, strict=True):
            filled[k] = x
        s, method = jax.tree.unflatten(structure, filled)
        # The states of a rollout may have drifted, which is not an error of the step.
        end = rollout(
            s,
            method,
            State(t, q, v),
            controls if u is None else u,
            dt=loss.dt,
            steps=1,
            start_tolerance=jnp.inf,
        )
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

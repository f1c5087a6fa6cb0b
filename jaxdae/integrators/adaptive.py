"""Adaptive steps: Diffrax's methods and step size controllers on the equations of motion, with our projection after every step.

An adaptive method estimates the error of each of its steps and makes it as long as the tolerances allow: |error| <= atol + rtol |y| in the
root mean square over all entries of y = (q, v), of which atol has the units. Errors *along* the constraint manifold add up over the steps;
errors *across* it would grow quadratically, and the projection after every step removes them.

`Adaptive` is an integrator like any other: each step of a rollout, of length dt, is made of as many adaptive steps as it needs, so that
results come on a grid of times, and every world of a batch has steps of its own. Where that grid is not needed for anything but output,
`adaptive_rollout` is faster: it makes steps across the output times.

*Derivatives.* How long the steps are decides about the error of a solution and nothing else; their lengths are constant under
differentiation. A rollout is run with a loop of unknown length, which has no reverse mode. Where it is differentiated, the lengths of the
accepted steps are recorded, and the same steps are made again in a loop of known length, which has both modes at every order, and in which
no rejected step appears. Each step is a checkpoint: reverse mode keeps its start only, and makes it once more.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
from jax.custom_batching import custom_vmap

from jaxdae._pytree import pytree, static
from jaxdae.batching.axes import worlds_first
from jaxdae.integrators.interface import StepInfo, step_info
from jaxdae.integrators.method import Method
from jaxdae.integrators.motion import bound, motion, with_feasible_velocity
from jaxdae.integrators.projected import projection_status
from jaxdae.integrators.vector_field import VectorField, check_method, check_projection, load_diffrax
from jaxdae.moving import Moving, zero_tangent
from jaxdae.requirements import check_requirements, checked_count
from jaxdae.stabilization import NoStabilization, Projection, Stabilization
from jaxdae.status import Status, first_failure
from jaxdae.system import AnySystem, State
from jaxdae.typing import Leaf

BLOCK = 16
"""So many steps are passed over at once where a derivative finds them not taken."""


@pytree
class Adaptive(Method):
    """An adaptive method as an integrator: each step of a rollout is made of as many steps as the tolerances ask for.

    The size of the steps is carried from one step of the rollout to the next. The first one is tried at the length dt.

    Attributes:
        rtol: relative tolerance of a step.
        atol: absolute tolerance of a step, in the units of q and v. The mean square over all their entries counts.
        projection: what is projected after every adaptive step; None for nothing (quaternions are normalized all the same).
        solver: a saddle-point solver; None for the default solver of the system.
        stabilization: the target of the acceleration row.
        pcoeff: the proportional part of the step size controller. With it steps grow more carefully, and fewer are rejected.
        icoeff: its integral part.
        dcoeff: its derivative part.
        method: an explicit Diffrax solver with an error estimate; None for `diffrax.Dopri8()`, of order 8, the fastest at tolerances
            below about 1e-6. `diffrax.Tsit5()`, of order 5, suits looser ones.
        max_steps: how many adaptive steps, accepted and rejected, a step of the rollout may take. If they do not suffice, its status is
            `STEP_BUDGET`.

    First-order systems (`KinematicSystem`) are integrated as well: in q alone, v is the feasible velocity at the end.

    `StepInfo.iterations` counts the adaptive steps, accepted and rejected.

    Differentiable forward and reverse, at every order, with the lengths of the steps held constant; the derivative with respect to the
    tolerances and the coefficients of the controller is therefore zero. A derivative costs about as much as that of a fixed-step
    rollout with the same accepted steps. In a batch it costs as much for every world as for the world with most steps.
    """

    rtol: Leaf = 1e-8
    atol: Leaf = 1e-8
    projection: Projection | None = Projection()
    solver: Leaf = None
    stabilization: Stabilization = NoStabilization()
    pcoeff: Leaf = 0.3
    icoeff: Leaf = 0.4
    dcoeff: Leaf = 0.0
    method: Any = static(default=None)
    max_steps: int = static(default=256)

    def requirements(self) -> Any:
        """Yields what the tolerances have to satisfy; see `jaxdae.requirements`."""
        yield self.rtol > 0, "rtol must be positive"
        yield self.atol > 0, "atol must be positive"

    def init(self, system: AnySystem, state: State) -> Any:
        """Returns (step, state of the controller): the step to take next in s, zero for not known yet."""
        zero = jnp.zeros_like(state.t)
        _, controller_state = self.controller(state.q.dtype, 1.0).init(None, zero, zero, (state.q, state.v), zero, None, None, 1)
        return zero, jax.tree.map(jnp.asarray, controller_state)

    def step(self, system: AnySystem, state: State, memory: Any, u: Any, dt: Any) -> tuple[State, Any, StepInfo]:
        """Returns the state after dt, of as many adaptive steps as it takes.

        The status is STEP_BUDGET where dt is not reached, and NOT_CONVERGED where the projection does not reach the manifold, see
        `jaxdae.integrators.projected.projection_status`.

        Raises:
            ImportError: Diffrax is not installed.
            TypeError: the method or the projection is none.
            ValueError: tolerances that are not positive, or fewer than one step.
        """
        self.check()
        start, a, lam, begun = motion(system, state, u, self.solver, self.stabilization)
        with jax.named_scope("adaptive_steps"):
            (q, v), memory, count, reached = _advance((self, system, state, memory, u, jnp.asarray(dt, state.q.dtype)))
        new, ended = with_feasible_velocity(system, State(state.t + dt, q, v), u, self.solver)
        info = step_info(bound(system, new, u), new, (new.v - start) / dt if system.first_order else a, lam)
        # Steps from a state without accelerations are rejected until the budget is used up; that is not their fault.
        status = jnp.where(jnp.all(jnp.isfinite(a)), jnp.where(reached, Status.OK, Status.STEP_BUDGET), Status.NONFINITE)
        status = first_failure(begun, status, ended, projection_status(system, self.projection, info, new))
        return new, memory, dataclasses.replace(info, iterations=count, status=status)

    def check(self) -> None:
        """Raises where a field cannot be used; numbers are checked where they are known."""
        check_method(self.diffrax_method())
        check_projection(self.projection)
        checked_count("Adaptive.max_steps", self.max_steps)
        check_requirements("integrator", self)

    def diffrax_method(self) -> Any:
        """Returns the method; `diffrax.Dopri8()` where none is given."""
        return load_diffrax()[0].Dopri8() if self.method is None else self.method

    def controller(self, dtype: Any, shortest: Any) -> Any:
        """Returns Diffrax's step size controller.

        Args:
            dtype: the precision of the state, which the tolerances are brought to.
            shortest: a proposed step shorter than that, in s, ends the integration.
        """
        tolerances = {name: jnp.asarray(getattr(self, name), dtype) for name in ("rtol", "atol")}
        coefficients = {name: jnp.asarray(getattr(self, name), dtype) for name in ("pcoeff", "icoeff", "dcoeff")}
        return load_diffrax()[0].PIDController(**tolerances, **coefficients, dtmin=shortest, force_dtmin=False)


# A step of the rollout: adaptive steps from 0 to dt, in a time of its own, so that round-off does not depend on how late it is.


def _field(field: VectorField, start: Any, t: Any, y: Any, u: Any) -> Any:
    return field(start + t, y, u)


def _terms(arguments: Any) -> tuple[Any, Any]:
    """Returns Diffrax's term and solver."""
    diffrax, ours = load_diffrax()
    method, system, state, *_ = arguments
    field = VectorField(system, method.solver or system.default_solver, method.stabilization)
    term = diffrax.ODETerm(jax.tree_util.Partial(_field, field, state.t))
    clock = jax.tree_util.Partial(jnp.add, state.t)
    return term, ours.ProjectedSolver(method.diffrax_method(), system, method.projection, method.solver, clock)


def _solve(arguments: Any, record: bool) -> tuple[Any, Any]:
    """Returns ((q, v), memory, how many steps, whether they reached dt), and the ends of the accepted steps if they are recorded."""
    diffrax, ours = load_diffrax()
    method, _, state, (step, controller_state), u, dt = arguments
    term, solver = _terms(arguments)
    # Diffrax takes 100 units in the last place before dt for dt itself; a step from there must be allowed. Without a shortest step a world
    # that has failed would make its failing step until the budget is used up, every time, and let the others wait.
    inner = method.controller(state.q.dtype, 10.0 * jnp.finfo(state.q.dtype).eps * dt)
    step = jnp.where(step > 0.0, step, dt)
    controller = ours.RememberedStep(inner, (step, controller_state), jnp.minimum(step, dt))
    ends = [diffrax.SubSaveAt(steps=1, fn=_nothing)] if record else []
    solution = diffrax.diffeqsolve(
        term,
        solver,
        t0=jnp.zeros_like(dt),
        t1=dt,
        dt0=None,
        y0=(state.q, state.v),
        args=u,
        stepsize_controller=controller,
        saveat=diffrax.SaveAt(subs=[diffrax.SubSaveAt(t1=True), *ends], controller_state=True),
        adjoint=diffrax.ForwardMode(),
        max_steps=method.max_steps,
        throw=False,
    )
    q, v = solution.ys[0]
    reached = solution.result == diffrax.RESULTS.successful
    count = solution.stats["num_steps"].astype(jnp.int32)
    result = (q[0], v[0]), solution.controller_state, count, reached
    return worlds_first(result), solution.ts[1] if record else None


def _nothing(t: Any, y: Any, args: Any) -> None:
    return None


def _again(arguments: Any, ends: Any) -> Any:
    """Returns (q, v) after the same steps, given by their ends as fractions of dt; from the last one on these are 1."""
    _, ours = load_diffrax()
    *_, state, _, u, dt = arguments
    term, solver = _terms(arguments)
    solver = ours.differentiable(solver)

    def one(y: Any, t0: Any, t1: Any) -> Any:
        moved = solver.step(term, t0 * dt, t1 * dt, y, u, None, False)[0]
        return jax.tree.map(lambda new, old: jnp.where(t1 > t0, new, old), moved, y)

    @jax.checkpoint
    def body(y: Any, edge: Any) -> Any:
        return jax.lax.cond(_any_world(edge[1] > edge[0]), one, lambda y, *_: y, y, *edge), None

    def block(y: Any, edges: Any) -> Any:
        taken = _any_world(edges[1][-1] > edges[0][0])
        return jax.lax.cond(taken, lambda y, edges: jax.lax.scan(body, y, edges)[0], lambda y, _: y, y, edges), None

    # In blocks, because what is not taken is passed by one by one otherwise.
    missing = -ends.shape[0] % BLOCK
    ends = jnp.concatenate([ends, jnp.ones((missing,), ends.dtype)])
    starts = jnp.concatenate([jnp.zeros_like(ends[:1]), ends[:-1]])
    return jax.lax.scan(block, (state.q, state.v), jax.tree.map(lambda x: x.reshape(-1, BLOCK), (starts, ends)))[0]


@custom_vmap
def _any_world(x: Any) -> Any:
    """Returns x; under `jax.vmap`, whether it holds in any world: a condition on it is then not turned into a selection."""
    return x


@_any_world.def_vmap
def _any_world_batched(axis_size: int, in_batched: Any, x: Any) -> Any:
    return _any_world(jnp.any(x) if in_batched[0] else x), False


@jax.custom_jvp
def _advance(arguments: Any) -> Any:
    return _solve(arguments, record=False)[0]


def _advance_jvp(primals: Any, tangents: Any) -> Any:
    (arguments,), (dots,) = primals, tangents
    moving = Moving.of(arguments, dots)

    def again(*values: Any) -> Any:
        return worlds_first(_again(moving.filled(values), fractions))

    # Without the derivatives of the derivative, too: the lengths of the steps are constant at every order.
    (_, *rest), ends = jax.lax.stop_gradient(_solve(jax.lax.stop_gradient(arguments), record=True))
    dt = jax.lax.stop_gradient(arguments[-1])
    fractions = jnp.where(jnp.isfinite(ends), ends, dt) / dt
    y, dy = jax.jvp(again, moving.values, moving.tangents)
    out = (y, *rest)
    return out, (dy, *jax.tree.map(zero_tangent, rest))


_advance.defjvp(_advance_jvp, symbolic_zeros=True)

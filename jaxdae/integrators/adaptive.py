"""Adaptive steps: Diffrax solvers and step size controllers with a projection after every step.

An adaptive method estimates the error of each step and makes the step as long as the tolerances allow:
|error| <= atol + rtol |y| in the root mean square over all entries of y = (q, v). atol has the units of y.
Errors *along* the constraint manifold accumulate over the steps. Errors *across* it would grow quadratically,
and the projection after every step removes them.

`Adaptive` is an ordinary integrator. Each rollout step of length dt consists of as many adaptive steps as it
needs, so results are given on a fixed time grid, and every world of a batch has its own steps. If you need
the grid only for output, use `adaptive_rollout`. It is faster because its steps extend across the output
times.

*Derivatives.* The step lengths affect only the error of a solution, so they are constant under
differentiation. A rollout uses a loop of unknown length, which has no reverse mode. Under differentiation,
the lengths of the accepted steps are recorded and the same steps are repeated in a loop of known length. This
loop supports both modes at every order and contains no rejected steps. Each step is a checkpoint: reverse
mode saves only its start and recomputes the step.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
from jax.custom_batching import custom_vmap

from jaxdae.base.dataclass import pytree, static
from jaxdae.base.requirements import check_requirements, checked_count
from jaxdae.compile.batch_axis import worlds_first
from jaxdae.compile.zero_tangents import Moving, zero_tangent
from jaxdae.dynamics.stabilization import NoStabilization, Projection, Stabilization
from jaxdae.integrators.equation_of_motion import bound, motion, with_feasible_velocity
from jaxdae.integrators.integrator import StepInfo, step_info
from jaxdae.integrators.method import Method
from jaxdae.integrators.ode import VectorField, check_method, check_projection, load_diffrax
from jaxdae.integrators.projected import projection_status
from jaxdae.systems.status import Status, first_failure
from jaxdae.systems.system import AnySystem, State
from jaxdae.typing import Leaf

BLOCK = 16
"""Number of unused steps that the repeated loop skips at once."""


@pytree
class Adaptive(Method):
    """An adaptive method as an integrator: each rollout step consists of adaptive steps.

    The step size is carried from one rollout step to the next. The initial trial step is dt.

    Attributes:
        rtol: relative tolerance of a step.
        atol: absolute tolerance of a step, in the units of q and v. The error is the root mean square over
            all entries. The default is for motions of about 1 m: reduce it in proportion to the size of a
            smaller mechanism.
        projection: the projection after every adaptive step; None for no projection (quaternions are still
            normalized).
        solver: a saddle-point solver; None for the default solver of the system.
        stabilization: the target of the acceleration row.
        pcoeff: the proportional coefficient of the step size controller. With it, steps grow more cautiously
            and fewer are rejected.
        icoeff: the integral coefficient of the controller.
        dcoeff: the derivative coefficient of the controller.
        method: an explicit Diffrax solver with an error estimate; None for `diffrax.Dopri8()`, of order 8,
            the fastest at tolerances below about 1e-6. For larger tolerances, `diffrax.Tsit5()`, of order 5,
            is suitable.
        max_steps: maximum number of adaptive steps, accepted and rejected, per rollout step. If this is not
            enough, the status is `STEP_BUDGET`.

    First-order systems (`KinematicSystem`) are supported: only q is integrated, and v is the feasible
    velocity at the end.

    `StepInfo.iterations` counts the adaptive steps, accepted and rejected.

    The method is differentiable in forward and reverse mode, at every order, with constant step lengths. The
    derivatives with respect to the tolerances and the controller coefficients are therefore zero. A
    derivative costs about as much as for a fixed-step rollout with the same accepted steps. In a batch, every
    world costs as much as the world with the most steps.
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
        """Yield the conditions on the tolerances; see `jaxdae.base.requirements`."""
        yield self.rtol > 0, "rtol must be positive"
        yield self.atol > 0, "atol must be positive"

    def init(self, system: AnySystem, state: State) -> Any:
        """Return (next step in s, state of the controller); a step of zero means unknown."""
        zero = jnp.zeros_like(state.t)
        _, controller_state = self.controller(state.q.dtype, 1.0).init(
            None, zero, zero, (state.q, state.v), zero, None, None, 1
        )
        return zero, jax.tree.map(jnp.asarray, controller_state)

    def step(
        self, system: AnySystem, state: State, memory: Any, u: Any, dt: Any
    ) -> tuple[State, Any, StepInfo]:
        """Return the state after dt, using as many adaptive steps as needed.

        The status is STEP_BUDGET if dt is not reached, and NOT_CONVERGED if the projection does not reach the
        manifold; see `jaxdae.integrators.projected.projection_status`.

        Raises:
            ImportError: Diffrax is not installed.
            TypeError: the method or the projection has an invalid type.
            ValueError: a tolerance is not positive, or `max_steps` is less than 1.
        """
        self.check()
        start, a, lam, begun = motion(system, state, u, self.solver, self.stabilization)
        with jax.named_scope("adaptive_steps"):
            (q, v), memory, count, reached = _advance(
                (self, system, state, memory, u, jnp.asarray(dt, state.q.dtype))
            )
        new, ended = with_feasible_velocity(system, State(state.t + dt, q, v), u, self.solver)
        info = step_info(bound(system, new, u), new, (new.v - start) / dt if system.first_order else a, lam)
        # Steps from a state without finite accelerations are rejected until the budget is exhausted. Report
        # the cause, not STEP_BUDGET.
        status = jnp.where(
            jnp.all(jnp.isfinite(a)), jnp.where(reached, Status.OK, Status.STEP_BUDGET), Status.NONFINITE
        )
        status = first_failure(begun, status, ended, projection_status(system, self.projection, info, new))
        return new, memory, dataclasses.replace(info, iterations=count, status=status)

    def check(self) -> None:
        """Raise an error if a field is invalid; check parameters only if their values are concrete."""
        check_method(self.diffrax_method())
        check_projection(self.projection)
        checked_count("Adaptive.max_steps", self.max_steps)
        check_requirements("integrator", self)

    def diffrax_method(self) -> Any:
        """Return the Diffrax solver, `diffrax.Dopri8()` by default."""
        return load_diffrax()[0].Dopri8() if self.method is None else self.method

    def controller(self, dtype: Any, shortest: Any) -> Any:
        """Return the Diffrax step size controller.

        Args:
            dtype: the precision of the state, to which the tolerances are converted.
            shortest: minimum step in s; a shorter proposed step ends the integration.
        """
        tolerances = {name: jnp.asarray(getattr(self, name), dtype) for name in ("rtol", "atol")}
        coefficients = {
            name: jnp.asarray(getattr(self, name), dtype) for name in ("pcoeff", "icoeff", "dcoeff")
        }
        return load_diffrax()[0].PIDController(
            **tolerances, **coefficients, dtmin=shortest, force_dtmin=False
        )


# One rollout step: adaptive steps from 0 to dt in local time, so that round-off does not depend on the
# absolute time.


def _field(field: VectorField, start: Any, t: Any, y: Any, u: Any) -> Any:
    return field(start + t, y, u)


def _terms(arguments: Any) -> tuple[Any, Any]:
    """Return the Diffrax term and solver."""
    diffrax, ours = load_diffrax()
    method, system, state, *_ = arguments
    field = VectorField(system, method.solver or system.default_solver, method.stabilization)
    term = diffrax.ODETerm(jax.tree_util.Partial(_field, field, state.t))
    clock = jax.tree_util.Partial(jnp.add, state.t)
    return term, ours.ProjectedSolver(
        method.diffrax_method(), system, method.projection, method.solver, clock
    )


def _solve(arguments: Any, record: bool) -> tuple[Any, Any]:
    """Return ((q, v), memory, number of steps, whether they reached dt) and the recorded step ends.

    The second value contains the ends of the accepted steps if `record` is set, else None.
    """
    diffrax, ours = load_diffrax()
    method, _, state, (step, controller_state), u, dt = arguments
    term, solver = _terms(arguments)
    # Diffrax treats times within 100 units in the last place of dt as dt, so the minimum step must allow a
    # step from there. Without a minimum step, a failed world would repeat its failing step until the budget
    # is exhausted, at every rollout step, and delay the other worlds.
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
    """Return (q, v) after the recorded steps.

    The ends of the steps are fractions of dt; the last end and the padding are 1.
    """
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
        return jax.lax.cond(
            taken, lambda y, edges: jax.lax.scan(body, y, edges)[0], lambda y, _: y, y, edges
        ), None

    # Use blocks to skip unused steps together rather than one by one.
    missing = -ends.shape[0] % BLOCK
    ends = jnp.concatenate([ends, jnp.ones((missing,), ends.dtype)])
    starts = jnp.concatenate([jnp.zeros_like(ends[:1]), ends[:-1]])
    return jax.lax.scan(
        block, (state.q, state.v), jax.tree.map(lambda x: x.reshape(-1, BLOCK), (starts, ends))
    )[0]


@custom_vmap
def _any_world(x: Any) -> Any:
    """Return x; under `jax.vmap`, return whether x is true in any world.

    A `lax.cond` on the result is therefore not converted to a selection.
    """
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

    # Stop gradients here so that the step lengths are constant at every order of differentiation.
    (_, *rest), ends = jax.lax.stop_gradient(_solve(jax.lax.stop_gradient(arguments), record=True))
    dt = jax.lax.stop_gradient(arguments[-1])
    fractions = jnp.where(jnp.isfinite(ends), ends, dt) / dt
    y, dy = jax.jvp(again, moving.values, moving.tangents)
    out = (y, *rest)
    return out, (dy, *jax.tree.map(zero_tangent, rest))


_advance.defjvp(_advance_jvp, symbolic_zeros=True)

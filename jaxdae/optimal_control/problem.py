"""Description of an optimal control problem, for all solvers of this package.

    minimize    sum_{k < N} l(x_k, u_k) + l_f(x_N)      over u_0 ... u_{N-1}
    subject to  x_{k+1} = F(x_k, u_k),   x_0 given,     lower <= u_k <= upper,
                h(x_k, u_k) = 0,  c(x_k, u_k) <= 0,     h_f(x_N) = 0,  c_f(x_N) <= 0.

x is a `State` of a constrained system, on its manifold. F are the integrator steps during which an input is
held. The running cost is a number per stage and is not multiplied by dt. States carry their time: a moving
reference is a function of `state.t`.
"""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.core import Tracer

from jaxdae.base.dataclass import function_field, pytree, static
from jaxdae.base.requirements import check_arrays, check_requirements, checked_count, not_above
from jaxdae.compile.layout import Fused
from jaxdae.compile.precompute import prepared
from jaxdae.control.linear_model import count_dimension
from jaxdae.fused import fuse
from jaxdae.integrators.integrator import Integrator
from jaxdae.integrators.method import begun_with
from jaxdae.integrators.stability import feedback_status, may_be_unstable, stability_status
from jaxdae.rollouts.guard import guarded_step
from jaxdae.rollouts.rollout_arguments import check_dt, checked_start, checked_tolerance
from jaxdae.systems.consistency import first_status
from jaxdae.systems.status import Status, first_failure
from jaxdae.systems.system import AnySystem, State, check_fit
from jaxdae.typing import Count, Leaf


@pytree(kw_only=True)
class Problem:
    """An optimal control problem: a system, its integration, its cost and its constraints.

    Attributes:
        system: the mechanical system; its inputs are the unknowns.
        integrator: a one-step method that satisfies the constraints, such as `Projected(RungeKutta.rk4())`.
            The memory of a method with memory is reset at every stage.
        state: the start, on the manifold.
        dt: the step length in s.
        steps: the number of steps (static).
        every: steps during which an input is held (static); must divide `steps`. There are steps / every
            stages.
        running: (state, u) -> l (), the cost of a stage; None for no running cost.
        final: state -> l_f (), the cost of the final state; None for no final cost.
        lower: smallest inputs, a number or (nu,); None for no limit.
        upper: largest inputs, a number or (nu,); None for no limit.
        equality: (state, u) -> h (k,), zero at every stage; None for no rows.
        inequality: (state, u) -> c (k,), non-positive at every stage; None for no rows.
        final_equality: state -> h_f (k,), zero at the final state; None for no rows.
        final_inequality: state -> c_f (k,), non-positive at the final state; None for no rows.
        dimension: dimension of the tangent space of states (static), twice the mobility for holonomic rows.
            None counts it for a known state, and uses 2 nv - 2 ng - nw under transformations. `counted`
            stores it.
        start_tolerance: tolerance of the constraints at the start, as in `rollout`; None for its default.
        kernel: `Fused()` to run a stage and its derivatives as kernels on CPUs (static); None for XLA. XLA
            runs costs and constraints in both cases.
    """

    system: AnySystem
    integrator: Integrator
    state: State
    dt: Leaf
    steps: int = static(one_of=int)
    every: int = static(one_of=int, default=1)
    running: Any = function_field(default=None)
    final: Any = function_field(default=None)
    lower: Leaf = None
    upper: Leaf = None
    equality: Any = function_field(default=None)
    inequality: Any = function_field(default=None)
    final_equality: Any = function_field(default=None)
    final_inequality: Any = function_field(default=None)
    dimension: int | None = static(default=None)
    start_tolerance: Leaf = None
    kernel: Fused | None = static(default=None)

    def requirements(self) -> Any:
        """Yield the conditions on the fields; see `jaxdae.base.requirements`."""
        yield not_above(self.lower, self.upper), "lower must not be above upper"
        for name in ("running", "final", "equality", "inequality", "final_equality", "final_inequality"):
            function = getattr(self, name)
            yield function is None or callable(function), f"{name} must be a function or None"

    @property
    def stages(self) -> int:
        """The number of inputs, each held over `every` steps."""
        return self.steps // self.every

    @property
    def limited(self) -> bool:
        """Return whether inputs have limits."""
        return self.lower is not None or self.upper is not None

    @property
    def constrained(self) -> bool:
        """Return whether the problem has constraints other than input limits."""
        return any(
            f is not None
            for f in (self.equality, self.inequality, self.final_equality, self.final_inequality)
        )

    def counted(self) -> Problem:
        """Return the problem with its dimension counted at the start.

        Use it under transformations if rows are dependent.
        """
        return dataclasses.replace(self, dimension=count_dimension(self.system, self.state, self.dimension))

    def held(self, controls: Any) -> Array:
        """Return the inputs of all steps (steps, nu) for `rollout`, from inputs of stages (stages, nu)."""
        return jnp.repeat(jnp.asarray(controls), self.every, axis=0)

    def limits(self, controls: Array) -> tuple[Array, Array]:
        """Return the smallest and the largest inputs (nu,), infinite without a limit."""
        shape, dtype = controls.shape[-1:], controls.dtype
        lower = -jnp.inf if self.lower is None else self.lower
        upper = jnp.inf if self.upper is None else self.upper
        return jnp.broadcast_to(jnp.asarray(lower, dtype), shape), jnp.broadcast_to(
            jnp.asarray(upper, dtype), shape
        )


def running_cost(problem: Problem, state: State, u: Array) -> Array:
    """Return l(x, u) ()."""
    return jnp.zeros((), u.dtype) if problem.running is None else jnp.asarray(problem.running(state, u))


def final_cost(problem: Problem, state: State) -> Array:
    """Return l_f(x) ()."""
    return jnp.zeros((), state.q.dtype) if problem.final is None else jnp.asarray(problem.final(state))


def stage_rows(problem: Problem, state: State, u: Array) -> tuple[Array, Array]:
    """Return h(x, u) and c(x, u), each (k,); empty if the problem does not define them."""
    none = jnp.zeros((0,), u.dtype)
    rows = (problem.equality, problem.inequality)
    h, c = (none if f is None else jnp.ravel(jnp.asarray(f(state, u))) for f in rows)
    return h, c


def final_rows(problem: Problem, state: State) -> tuple[Array, Array]:
    """Return h_f(x) and c_f(x), each (k,); empty if the problem does not define them."""
    none = jnp.zeros((0,), state.q.dtype)
    rows = (problem.final_equality, problem.final_inequality)
    h, c = (none if f is None else jnp.ravel(jnp.asarray(f(state))) for f in rows)
    return h, c


# Motion.


def advance(problem: Problem, state: State, u: Array, status: Any = None) -> tuple[State, Count]:
    """Return F(x, u) and the status () of the steps; a failed state stays at its last good value.

    Args:
        problem: the problem.
        state: the state at the start of the stage.
        u: the input (nu,) that is held.
        status: initial status; the state does not move unless it is OK. OK by default.
    """
    status = jnp.zeros((), jnp.int32) if status is None else status
    stage = partial(_stage, problem.every)
    run = stage if problem.kernel is None else fuse(stage)
    return run(problem.system, problem.integrator, state, u, jnp.asarray(problem.dt, state.q.dtype), status)


def _stage(
    every: int, system: Any, integrator: Any, state: State, u: Array, dt: Array, status: Any
) -> tuple[State, Count]:
    """Return the state and the status () after the steps of a stage."""
    system, integrator = prepared((system, integrator))
    point, memory = begun_with(integrator, system, state, u, dt, status), integrator.init(system, state)

    def step(carried: Any, _: Any) -> Any:
        point, memory, status = carried
        point, memory, info = guarded_step(system, integrator, point, memory, status, u, dt)
        return (point, memory, info.status), None

    carried = (point, memory, status)
    if every == 1:
        (point, memory, status), _ = step(carried, None)
    else:
        (point, memory, status), _ = jax.lax.scan(step, carried, None, length=every)
    return point.state, status


def stacked_after(first: State, rest: State) -> State:
    """Return the stack of a state followed by stacked states."""
    return jax.tree.map(lambda x, more: jnp.concatenate([x[None], more]), first, rest)


def begin_status(problem: Problem, controls: Array) -> Count:
    """Return the status () of the start under inputs of the stages (stages, nu).

    OK, INCONSISTENT_START, UNSTABLE for gains or forces beyond the stability limit, or OUT_OF_RANGE for an
    invalid parameter.
    """
    state = problem.state
    dt = jnp.asarray(problem.dt, state.q.dtype)
    tolerance = checked_tolerance(problem.start_tolerance, state.q.dtype)
    begun = first_status(problem.system, problem.integrator, problem, state, dt, tolerance, False)
    first = jax.tree.map(lambda x: jnp.asarray(x)[None], state)
    gains = feedback_status(problem.system, problem.integrator, state, dt)
    return first_failure(begun, gains, motion_stability(problem, first, controls[:1]))


def motion_stability(problem: Problem, states: State, controls: Array) -> Count:
    """Return UNSTABLE if a step from any state exceeds the stability limit for the forces, else OK ().

    Args:
        problem: the problem.
        states: a stacked `State` (k, ...).
        controls: inputs (k, nu).
    """
    if not may_be_unstable(problem.system, problem.integrator, None):
        return jnp.zeros((), jnp.int32)
    problem, states, controls = jax.lax.stop_gradient((problem, states, controls))
    system, integrator = prepared((problem.system, problem.integrator))
    dt = jnp.asarray(problem.dt, states.q.dtype)

    def status(state: State, u: Array) -> Count:
        memory, before = integrator.init(system, state), jnp.full_like(state.v, jnp.inf)
        return stability_status(system, integrator, state, before, memory, u, dt)

    return jnp.max(jax.vmap(status)(states, controls))


# Argument checks.


def checked_problem(problem: Any, controls: Any) -> tuple[Problem, Array]:
    """Check the problem and the inputs, and return both as arrays, with the dimension of the problem counted.

    Raises:
        TypeError: an argument or field of a wrong type, including counts that are not integers.
        ValueError: counts that are not positive or do not divide, shapes that do not fit, functions with a
            wrong return value, a negative tolerance.
    """
    if not isinstance(problem, Problem):
        raise TypeError(f"problem must be a Problem(system=..., ...), got {type(problem).__name__}")
    state, _ = checked_start(problem.system, problem.integrator, problem.state, problem.start_tolerance)
    check_fit(problem.system, state)
    if problem.system.first_order:
        raise TypeError(
            f"{type(problem.system).__name__} is of first order, so its velocities are not states; use a "
            "system with masses"
        )
    check_dt(problem.dt)
    check_arrays("problem", problem)
    check_requirements("problem", problem)
    checked_count("Problem.steps", problem.steps)
    checked_count("Problem.every", problem.every)
    if problem.steps % problem.every:
        raise ValueError(f"Problem.every = {problem.every} must divide steps = {problem.steps}")
    controls = jnp.asarray(controls, state.q.dtype)
    count = problem.system.n_inputs
    if controls.ndim != 2 or controls.shape[0] != problem.stages or count not in (None, controls.shape[1]):
        expected = f"({problem.stages}, {'nu' if count is None else count})"
        raise ValueError(
            f"controls must have the shape (stages, nu) = {expected}, got {controls.shape}; use jax.vmap "
            "for many starts"
        )
    if controls.shape[1] == 0:
        raise ValueError(
            f"{type(problem.system).__name__} has no inputs to optimize; give the motors of a mechanism an "
            "input=..."
        )
    for name in ("lower", "upper"):
        limit = getattr(problem, name)
        if limit is not None and jnp.shape(limit) not in ((), controls.shape[1:]):
            raise ValueError(
                f"Problem.{name} must be a number or have the shape of an input {controls.shape[1:]}, got "
                f"{jnp.shape(limit)}"
            )
    problem = dataclasses.replace(problem, state=state).counted()
    if problem.running is None and problem.final is None:
        raise ValueError("Problem.running and Problem.final are both None; give at least one cost")
    costs = {
        "running": lambda: running_cost(problem, state, controls[0]),
        "final": lambda: final_cost(problem, state),
    }
    for name, cost in costs.items():
        shape = jax.eval_shape(cost).shape
        if shape != ():
            raise ValueError(f"Problem.{name} must return a number, got an array of shape {shape}")
    return problem, controls


def finite_or_raise(name: str, controls: Array) -> None:
    """Raise ValueError if a guess with known values contains NaN or infinity."""
    if not isinstance(controls, Tracer) and not np.all(np.isfinite(np.asarray(controls))):
        raise ValueError(f"{name} must be finite; use zeros without a better guess")


def is_ok(status: Any) -> Array:
    """Return whether a status () is OK."""
    return status == Status.OK

"""Interface of integrators and the report of a step."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from jaxdae.base.dataclass import pytree
from jaxdae.base.requirements import came, check_requirements, offers
from jaxdae.dynamics.accelerations import forward_dynamics
from jaxdae.dynamics.stabilization import STABILIZATION_TEXT, is_stabilization
from jaxdae.saddle_point.saddle_point_solver import SOLVER_TEXT, is_solver
from jaxdae.systems.evaluation import Evaluation
from jaxdae.systems.linearization import Linearization, linearize
from jaxdae.systems.masks import hard_rows
from jaxdae.systems.status import Status, first_failure
from jaxdae.systems.system import AnySystem, State, default_tolerance
from jaxdae.systems.tolerances import shortest_scale, size_in_rows
from jaxdae.typing import Input, Leaf, Rows, Velocity


@pytree
class StepInfo:
    """Report of a step.

    Attributes:
        a: accelerations (nv,) at the start of the step.
        lam: multipliers (nc,) at the start of the step; the constraint force is +J^T lam.
        violation: largest |g| () after the step, in row units; zero without position-level rows.
        velocity_violation: largest |[g'; w]| () after the step, in row units per second.
        iterations: number of corrections or Newton iterations () in the step.
        status: `jaxdae.Status` () of the step.

    In a `Trajectory`, `violation`, `velocity_violation` and `iterations` are the maxima over the steps since
    the last entry, and `a` and `lam` are zero in worlds that have failed.
    """

    a: Leaf
    lam: Leaf
    violation: Leaf
    velocity_violation: Leaf
    iterations: Leaf
    status: Leaf

    def common(self) -> dict[str, Any]:
        """Return the fields that all reports have, for a report of another type."""
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(StepInfo)}


class Integrator(Protocol):
    """A one-step method: a pytree whose leaves (gains, tolerances) can be tuned by gradient.

    The optional fields `solver` and `stabilization` belong to the dynamics of the method. Wrappers such as
    `Projected` use the same solver. If the method has no solver, they use the default solver of the system.

    A method of order two whose backward step reverses its forward step sets the class attribute `symmetric =
    True`. `Composition` accepts only such methods.
    """

    def init(self, system: AnySystem, state: State) -> Any:
        """Return the memory that the method carries between steps: a pytree, () for one-step methods."""
        ...

    def step(
        self, system: AnySystem, state: State, memory: Any, u: Any, dt: Any
    ) -> tuple[State, Any, StepInfo]:
        """Return the state after dt, the memory and the report of the step.

        `u` is a constant input or a feedback law of (t, state).
        """
        ...


def check_integrator(integrator: Any) -> None:
    """Raise an error if the value is not an integrator, or if its parameters are invalid.

    Raises:
        TypeError: see `check_roles`.
        ValueError: a requirement is not met; see `jaxdae.base.requirements`.
    """
    check_roles(integrator)
    check_requirements("integrator", integrator)


def check_roles(integrator: Any, name: str = "integrator") -> None:
    """Raise TypeError if the value is not an integrator or has an invalid solver or stabilization.

    Examples of invalid values are text, a class, or a method that was not called. The check includes the
    integrators inside wrappers.

    Args:
        integrator: the value to check.
        name: its name in the message.
    """
    if not offers(integrator, "step"):
        raise TypeError(
            f"{name} must have a method step, like Projected(RungeKutta.rk4()), got {came(integrator)}"
        )
    if offers(integrator, "integrator"):
        # Check the inner integrator first: a wrapper takes its roles from there, and so would the error.
        check_roles(integrator.integrator, f"{name}.integrator")
    kind = type(integrator).__name__
    if offers(integrator, "solver") and not is_solver(integrator.solver):
        raise TypeError(f"{name}: {kind}.{SOLVER_TEXT}, got {came(integrator.solver)}")
    if offers(integrator, "stabilization") and not is_stabilization(integrator.stabilization):
        raise TypeError(f"{name}: {kind}.{STABILIZATION_TEXT}, got {came(integrator.stabilization)}")


def input_at(u: Any, state: State, system: Any = None) -> Input:
    """Return the input at a stage: evaluate a feedback law there, or hold an array over the step.

    Args:
        u: input array, feedback law or None.
        state: the time and state at which to evaluate the law.
        system: the complete system that receives the inputs; it may know their number.

    Raises:
        TypeError: the law does not return an array.
        ValueError: the law does not return a vector, or the vector does not match the inputs of the system.
    """
    return checked_input(u, u(state.t, state), system) if callable(u) else u


def checked_input(law: Any, u: Any, system: Any = None) -> Input:
    """Return the result `u` of a feedback law, which must be a vector (nu,); see `input_at` for errors."""
    count = None if system is None else system.n_inputs
    if isinstance(u, jax.Array | np.ndarray) and u.ndim == 1 and (not count or u.shape == (count,)):
        return u
    function = law.func if isinstance(law, functools.partial) else law
    name = getattr(function, "__qualname__", None) or type(function).__name__
    expected = f"a vector of the {count} inputs, shape ({count},)" if count else "a vector of inputs (nu,)"
    got = f"shape {u.shape}" if isinstance(u, jax.Array | np.ndarray) else came(u)
    error = ValueError if isinstance(u, jax.Array | np.ndarray) else TypeError
    raise error(
        f"the feedback law {name} must return {expected}, got {got}; use jnp.stack([...]) to return a vector"
    )


def stage_dynamics(
    method: Any, system: AnySystem, at: State, u: Any, known: Linearization | None, keep: bool
) -> tuple[tuple[Velocity, Rows], Linearization | None]:
    """Return (a, lam) at a stage of a method, and the linearization there if it is known or requested.

    Args:
        method: an integrator with the fields `solver` and `stabilization`.
        system: the mechanical system.
        at: the stage.
        u: input, or a feedback law.
        known: the linearization at the stage, or None.
        keep: whether to return the linearization.
    """
    if known is None and keep:
        known = linearize(system, at, method.solver)
    stage_input = input_at(u, at, system)
    solution = forward_dynamics(
        system, at, stage_input, solver=method.solver, stabilization=method.stabilization, linearization=known
    )
    return solution, known


def dynamics_at_start(
    method: Any, system: AnySystem, state: State, known: Linearization | None, u: Any
) -> tuple[Velocity, Rows]:
    """Return (a, lam) at the start of a step, for methods that use them only as initial guess and report."""
    given = input_at(u, state, system)
    return forward_dynamics(system, state, given, solver=method.solver, linearization=known)


def largest(residual: Any) -> Any:
    """Return the largest magnitude of a residual, or zero if it has no rows."""
    return jnp.max(jnp.abs(residual)) if residual.shape[0] else jnp.zeros((), residual.dtype)


def convergence(change: Any, tolerance: Any, q: Any, closing: Any) -> Any:
    """Return NOT_CONVERGED () if the last correction of an iteration exceeds the tolerance, else OK.

    Args:
        change: relative size () of the last correction.
        tolerance: the largest change that counts as converged; None for the limit of the precision, eps^0.6 +
            16 c eps (1 + |q|).
        q: coordinates (nq,); |q| is their largest magnitude.
        closing: c (), the factor by which the method scales position-level rows to rows of its unknowns: 1
            for displacements, about 1/h for velocities that close the rows in one step.

    The first term, 4e-10 in double and 7e-5 in single precision, is the required accuracy. The second term
    accounts for rounding: coordinates are rounded by eps |q| / 2, rows therefore by c times as much, and
    every correction closes the violation that the rounding of the last correction has opened. Measurements
    with all methods on a pendulum, a four-bar, Andrews' mechanism and chains of up to 64 m, in both
    precisions and with steps of 1e-3 s and 1e-4 s: the corrections never end, but never exceed 2 c eps (1 +
    |q|).
    """
    if tolerance is None:
        eps = float(jnp.finfo(change.dtype).eps)
        tolerance = eps**0.6 + 16.0 * eps * jnp.abs(closing) * (1.0 + largest(q))
    # NaN compares false. It is reported separately, because the result is not finite.
    return jnp.where(change > tolerance, Status.NOT_CONVERGED, Status.OK).astype(jnp.int32)


def is_open(system: AnySystem, violation: Any, q: Any, tolerance: Any) -> Any:
    """Return whether the violation of position-level rows exceeds a tolerance and its rounding errors ().

    The limit is tolerance min(1, L) + 4 eps (1 + max |q|), with the characteristic length L of the system in
    m. If all rows are lengths, L replaces 1 in the second term, and angles in q count as arcs of radius L. In
    single precision, coordinates of 300 m give a rounding term of 1.4e-4 m; the largest observed violation
    was 6e-5 m.
    """
    unit, size = size_in_rows(system, q, system.names.coordinate_units, system.sizes(q).ng)
    rounding = 4.0 * float(jnp.finfo(q.dtype).eps) * (unit + size)
    return violation > tolerance * shortest_scale(system, q.dtype) + rounding


def moves_off(system: AnySystem, velocity_violation: Any, state: State) -> Any:
    """Return whether the violation of [g'; w] exceeds 1e-5 (min(1, L) + max |v|) ().

    L is the characteristic length of the system, and 3.5e-4 replaces 1e-5 in single precision. If all rows
    are lengths, angular velocities are multiplied by L. A larger violation indicates rows that contradict
    each other or are far from affine.
    """
    v = state.v
    fastest = size_in_rows(system, v, system.names.velocity_units, system.sizes(state.q).nc)[1]
    return velocity_violation > default_tolerance(v.dtype) * (shortest_scale(system, v.dtype) + fastest)


def step_info(
    system: AnySystem, state: State, a: Velocity, lam: Rows, iterations: int = 0, status: Any = None
) -> StepInfo:
    """Return the report of a step that ended at `state`; exclude soft rows from the violations."""
    return step_info_at(system.evaluate(state.t, state.q, state.v), a, lam, iterations, status)


def step_info_at(at: Evaluation, a: Velocity, lam: Rows, iterations: int = 0, status: Any = None) -> StepInfo:
    """Return the report of a step that ended at an evaluation; see `step_info`."""
    rows = hard_rows(at)
    return StepInfo(
        a=a,
        lam=lam,
        violation=largest(rows.position),
        velocity_violation=largest(rows.velocity),
        iterations=jnp.asarray(iterations, jnp.int32),
        status=jnp.asarray(Status.OK, jnp.int32) if status is None else status,
    )


def closed_step_info(
    system: AnySystem, state: State, a: Velocity, lam: Rows, iterations: int, status: Any
) -> StepInfo:
    """Return the report of a step that solves for the position-level rows.

    The status is NOT_CONVERGED if the step leaves these rows open; see `is_open`.
    """
    info = step_info(system, state, a, lam, iterations, status)
    left = is_open(system, info.violation, state.q, default_tolerance(state.q.dtype))
    return dataclasses.replace(
        info, status=first_failure(status, jnp.where(left, Status.NOT_CONVERGED, Status.OK))
    )


def with_closed_velocities(system: AnySystem, state: State, info: StepInfo) -> StepInfo:
    """Return the report of a step that closes the velocity-level rows by one linear solve.

    The status is NOT_CONVERGED if the step leaves these rows open, because they are not affine in v; see
    `moves_off`.
    """
    if system.sizes(state.q).nw == 0:
        return info
    left = moves_off(system, info.velocity_violation, state)
    failed: Any = jnp.where(left, Status.NOT_CONVERGED, Status.OK)
    return dataclasses.replace(info, status=first_failure(info.status, failed.astype(jnp.int32)))

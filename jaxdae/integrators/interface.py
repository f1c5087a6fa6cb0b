"""What every integrator offers, and what every step reports."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from jaxdae._pytree import pytree
from jaxdae.dynamics import forward_dynamics
from jaxdae.linearization import Linearization, linearize
from jaxdae.masks import hard_rows
from jaxdae.requirements import came, check_requirements, offers
from jaxdae.saddle_point.interface import SOLVER_TEXT, is_solver
from jaxdae.stabilization import STABILIZATION_TEXT, is_stabilization
from jaxdae.status import Status, first_failure
from jaxdae.system import AnySystem, State, default_tolerance, velocity_residual
from jaxdae.tolerances import shortest_scale
from jaxdae.typing import Input, Leaf, Rows, Velocity


@pytree
class StepInfo:
    """What a step found out.

    Attributes:
        a: accelerations (nv,) at the start of the step.
        lam: multipliers (nc,) at the start of the step; the constraint force is +J^T lam.
        violation: largest |g| () after the step, in row units; zero without position-level rows.
        velocity_violation: largest |[g'; w]| () after the step, row units per second.
        iterations: corrections or Newton iterations () that the step made.
        status: `jaxdae.Status` () of the step.

    In a `Trajectory`, `violation`, `velocity_violation` and `iterations` are the largest over the steps since the last entry, and
    `a` and `lam` are zero in worlds that have failed.
    """

    a: Leaf
    lam: Leaf
    violation: Leaf
    velocity_violation: Leaf
    iterations: Leaf
    status: Leaf


class Integrator(Protocol):
    """A one-step method: a pytree whose leaves (gains, tolerances) can be tuned by gradient.

    Fields `solver` and `stabilization`, where a method has them, are those of its dynamics; wrappers such as `Projected` then solve with
    that solver, without one with the default solver of the system.

    A method of order two whose step backward undoes its step forward has a class attribute `symmetric = True`: `Composition` takes no
    other.
    """

    def init(self, system: AnySystem, state: State) -> Any:
        """Returns the memory that the method carries from step to step; a pytree, () for one-step methods."""
        ...

    def step(self, system: AnySystem, state: State, memory: Any, u: Any, dt: Any) -> tuple[State, Any, StepInfo]:
        """Returns the state after dt, the memory, and what the step found out. `u` is held constant, or a law of (t, state)."""
        ...


def check_integrator(integrator: Any) -> None:
    """Raises where an integrator is none, or its numbers have no meaning.

    Raises:
        TypeError: as `check_roles`.
        ValueError: requirements that are not met, see `jaxdae.requirements`.
    """
    check_roles(integrator)
    check_requirements("integrator", integrator)


def check_roles(integrator: Any, name: str = "integrator") -> None:
    """Raises TypeError where an integrator, or one inside of it, is none, or has something else in the place of solver or stabilization.

    Such as text, a class, or a method that was not called.

    Args:
        integrator: what was handed over.
        name: what to call it in the message.
    """
    if not offers(integrator, "step"):
        raise TypeError(f"{name} must have a method step, like Projected(RungeKutta.rk4()), got {came(integrator)}")
    if offers(integrator, "integrator"):
        # Those inside first: what a wrapper solves with is theirs, and so is the mistake.
        check_roles(integrator.integrator, f"{name}.integrator")
    kind = type(integrator).__name__
    if offers(integrator, "solver") and not is_solver(integrator.solver):
        raise TypeError(f"{name}: {kind}.{SOLVER_TEXT}, got {came(integrator.solver)}")
    if offers(integrator, "stabilization") and not is_stabilization(integrator.stabilization):
        raise TypeError(f"{name}: {kind}.{STABILIZATION_TEXT}, got {came(integrator.stabilization)}")


def input_at(u: Any, state: State, system: Any = None) -> Input:
    """Returns the input at a stage: a feedback law is evaluated there, an array is held over the step.

    Args:
        u: input array, feedback law or None.
        state: where and when the law is evaluated.
        system: whose inputs these are, all of them; it may know how many it has.

    Raises:
        TypeError: a law that returns no array.
        ValueError: a law that returns something other than a vector, or not as many inputs as the system has.
    """
    return checked_input(u, u(state.t, state), system) if callable(u) else u


def checked_input(law: Any, u: Any, system: Any = None) -> Input:
    """Returns what a feedback law returned, which must be a vector (nu,); errors of `input_at`."""
    count = None if system is None else system.n_inputs
    if isinstance(u, jax.Array | np.ndarray) and u.ndim == 1 and (not count or u.shape == (count,)):
        return u
    function = law.func if isinstance(law, functools.partial) else law
    name = getattr(function, "__qualname__", None) or type(function).__name__
    expected = f"a vector of the {count} inputs, shape ({count},)" if count else "a vector of inputs (nu,)"
    got = f"shape {u.shape}" if isinstance(u, jax.Array | np.ndarray) else came(u)
    error = ValueError if isinstance(u, jax.Array | np.ndarray) else TypeError
    raise error(f"the feedback law {name} must return {expected}, got {got}; jnp.stack([...]) makes a vector of numbers")


def stage_dynamics(
    method: Any, system: AnySystem, at: State, u: Any, known: Linearization | None, keep: bool
) -> tuple[tuple[Velocity, Rows], Linearization | None]:
    """Returns (a, lam) at a stage of a method, and the linearization there where it is known or to be kept.

    Args:
        method: an integrator with the fields `solver` and `stabilization`.
        system: the mechanical system.
        at: the stage.
        u: input, or a law of it.
        known: the linearization at the stage, where there is one.
        keep: whether to return the linearization.
    """
    if known is None and keep:
        known = linearize(system, at, method.solver)
    stage_input = input_at(u, at, system)
    solution = forward_dynamics(system, at, stage_input, solver=method.solver, stabilization=method.stabilization, linearization=known)
    return solution, known


def dynamics_at_start(method: Any, system: AnySystem, state: State, known: Linearization | None, u: Any) -> tuple[Velocity, Rows]:
    """Returns (a, lam) at the start of the step of a method that does not need them but as a first guess, and for its report."""
    given = input_at(u, state, system)
    return forward_dynamics(system, state, given, solver=method.solver, linearization=known)


def largest(residual: Any) -> Any:
    """Returns the largest magnitude of a residual, zero where it has no rows."""
    return jnp.max(jnp.abs(residual)) if residual.shape[0] else jnp.zeros((), residual.dtype)


def convergence(change: Any, tolerance: Any, q: Any, closing: Any) -> Any:
    """Returns the status () of an iteration whose last correction had this size: OK, or NOT_CONVERGED above the tolerance.

    Args:
        change: relative size () of the last correction.
        tolerance: the largest that counts as converged; None for what the precision can reach, eps^0.6 + 16 c eps (1 + |q|).
        q: coordinates (nq,), |q| the largest.
        closing: c (), by what the method multiplies position-level rows to make them rows of its unknowns: 1 for displacements, some 1/h
            for velocities that close them in one step.

    The first part, 4e-10 in double and 7e-5 in single precision, is the accuracy that is asked for. The second is what rounding leaves of
    it: coordinates are rounded by eps |q| / 2, hence rows by as much times c, and every correction closes what the rounding of the last
    one has opened. Measured with all methods, on a pendulum, a four-bar, Andrews' mechanism and chains of up to 64 m, in both precisions
    and steps of 1e-3 s and 1e-4 s: corrections without end that are never above 2 c eps (1 + |q|).
    """
    if tolerance is None:
        eps = float(jnp.finfo(change.dtype).eps)
        tolerance = eps**0.6 + 16.0 * eps * jnp.abs(closing) * (1.0 + largest(q))
    # NaN is a matter of its own: the caller's result is not finite then.
    return jnp.where(change > tolerance, Status.NOT_CONVERGED, Status.OK).astype(jnp.int32)


def is_open(system: AnySystem, violation: Any, q: Any, tolerance: Any) -> Any:
    """Return whether position-level rows are violated by more than a tolerance and what rounding leaves of it ().

    The limit is tolerance min(1, L) + 4 eps (1 + max |q|), with the characteristic length L of the system in m. Rounding of the
    coordinates is 1.4e-4 m in single precision 300 m away, where 6e-5 m were seen.
    """
    rounding = 4.0 * float(jnp.finfo(q.dtype).eps) * (1.0 + largest(q))
    return violation > tolerance * shortest_scale(system, q.dtype) + rounding


def step_info(system: AnySystem, state: State, a: Velocity, lam: Rows, iterations: int = 0, status: Any = None) -> StepInfo:
    """Returns the report of a step that ended at `state`; soft rows are not meant to be zero and do not count as violated."""
    system = hard_rows(system.at(state.q), state)
    return StepInfo(
        a=a,
        lam=lam,
        violation=largest(system.constraint(state.t, state.q)),
        velocity_violation=largest(velocity_residual(system, state)),
        iterations=jnp.asarray(iterations, jnp.int32),
        status=jnp.asarray(Status.OK, jnp.int32) if status is None else status,
    )


def closed_step_info(system: AnySystem, state: State, a: Velocity, lam: Rows, iterations: int, status: Any) -> StepInfo:
    """Return the report of a step that solves for the position-level rows: NOT_CONVERGED if it leaves them open, see `is_open`."""
    info = step_info(system, state, a, lam, iterations, status)
    left = is_open(system, info.violation, state.q, default_tolerance(state.q.dtype))
    return dataclasses.replace(info, status=first_failure(status, jnp.where(left, Status.NOT_CONVERGED, Status.OK)))

"""Inputs that hold a constrained system at rest.

At rest M a = f(t, q, 0, u) + J^T lam with a = 0, or as close to zero as the inputs allow. Eliminating lam,
with f = f0 + B u, gives

    a(u) = L11 (f0 + B u).

The inputs minimize |a(u)|_M^2 = a^T M a and have the smallest norm among all minimizers. This is Gauss'
measure. Unlike a residual of forces, it does not depend on the choice of coordinates or their units. Three
cases occur:

    as many motors as degrees of freedom: a = 0, for whatever lam results;
    fewer (underactuated): the remainder is orthogonal, in the mass metric, to all accelerations that motors
        can produce;
    more (redundantly actuated): a = 0 with the smallest inputs; motors do not work against each other.

With R^T R = M, K = R L11 B: u = -K^+ R L11 f0.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from jaxdae.base.dataclass import pytree, static
from jaxdae.base.requirements import fraction
from jaxdae.control.inputs import accelerations, count_inputs, load_and_effect
from jaxdae.saddle_point import NullSpace, SaddlePointSolver, SingularValues, pseudoinverse
from jaxdae.saddle_point.saddle_point_solver import SOLVER_TEXT, check_solver, is_solver
from jaxdae.systems.linearization import linearize_at
from jaxdae.systems.state_checks import report_coordinates
from jaxdae.systems.system import (
    MODEL_TEXT,
    AnySystem,
    State,
    check_fit,
    check_system,
    checked_state,
    is_system,
)
from jaxdae.typing import Input, Leaf


def solve_inputs(matrix: Any, wanted: Any, tolerance: Any) -> Any:
    """Return the smallest u that minimizes |A u - wanted|.

    Singular values below `tolerance` times the largest count as zero.
    """
    return pseudoinverse(matrix, NullSpace(SingularValues(tolerance))) @ wanted


def at_rest(system: AnySystem, state: State) -> State:
    """Check the system and the state, and return the state with zero velocities."""
    check_system(system)
    state = checked_state(state)
    check_fit(system, state)
    return State(state.t, state.q, jnp.zeros_like(state.v))


def static_inputs(
    system: AnySystem,
    state: State,
    inputs: int | None = None,
    *,
    solver: SaddlePointSolver | None = None,
    rank_tolerance: Any = 1e-5,
) -> Input:
    """Return the inputs (nu,) that hold a system at rest in a configuration, or come closest to it.

    Args:
        system: the mechanical system.
        state: time (s) and coordinates; velocities are taken as zero.
        inputs: the number of inputs, if the system does not define it.
        solver: a saddle-point solver; `NullSpace()` by default, which allows dependent rows.
        rank_tolerance: effects of the motors below this fraction of their largest effect count as zero.

    Raises:
        ValueError: unknown number of inputs, or lengths that do not fit.

    Warns:
        StateWarning: if the coordinates violate the constraints.

    Differentiable where the rank does not change.
    """
    rest = at_rest(system, state)
    check_solver(solver)
    u = _static_inputs(system, rest, count_inputs(system, inputs), solver or NullSpace(), rank_tolerance)
    report_coordinates("static_inputs", system, rest.q, u)
    return u


@partial(jax.jit, static_argnums=2)
def _static_inputs(
    system: AnySystem, rest: State, inputs: int, solver: SaddlePointSolver, rank_tolerance: Any
) -> Input:
    terms = system.evaluate(rest.t, rest.q, rest.v)
    load, effect = load_and_effect(terms, inputs)
    at = linearize_at(terms, solver)
    both = at.mass.root_times(accelerations(at, jnp.concatenate([effect, load[:, None]], axis=1)))
    return -solve_inputs(both[:, :-1], both[:, -1], rank_tolerance)


@pytree
class GravityCompensation:
    """Inputs that compensate weight, springs, and all other forces at rest in the current configuration.

    Add this law to a feedback: `Sum((PD(...), GravityCompensation(mechanism)))`.

    Attributes:
        model: the controller's model of the system.
        solver: a saddle-point solver; None for `NullSpace()`, which allows dependent rows;
            `SchurComplement()` is faster.
        rank_tolerance: effects of the motors below this fraction of their largest effect count as zero.
        inputs: the number of inputs, if the model does not define it (static).

    Differentiable where the rank does not change.
    """

    model: AnySystem
    solver: Leaf = None
    rank_tolerance: Leaf = 1e-5
    inputs: int | None = static(default=None)

    def requirements(self) -> Any:
        """Yield the conditions on the fields; see `jaxdae.base.requirements`."""
        yield is_system(self.model), MODEL_TEXT
        yield is_solver(self.solver), SOLVER_TEXT
        yield fraction(self.rank_tolerance), "rank_tolerance must be at least 0 and below 1"

    def __call__(self, t: Any, state: State) -> Input:
        """Return u (nu,)."""
        at = State(t, state.q, state.v)
        return static_inputs(
            self.model, at, self.inputs, solver=self.solver, rank_tolerance=self.rank_tolerance
        )

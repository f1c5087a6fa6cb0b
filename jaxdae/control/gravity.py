"""Inputs that hold a constrained system at rest.

At rest M a = f(t, q, 0, u) + J^T lam with a = 0, or as nearly as the inputs allow. Eliminating lam, with f = f0 + B u,

    a(u) = L11 (f0 + B u),

and the inputs are those of least |a(u)|_M^2 = a^T M a, of least length where there are several. That is Gauss' measure: it does not depend
on the choice of coordinates or their units, as a residual of forces would. Three cases:

    as many motors as freedoms: a = 0, whatever lam has to be;
    fewer (underactuated): what remains is orthogonal, in the mass metric, to all that motors can do;
    more (redundantly actuated): a = 0 with the smallest inputs; motors do not fight each other.

With R^T R = M, K = R L11 B: u = -K^+ R L11 f0.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from jaxdae._pytree import pytree, static
from jaxdae.control.inputs import accelerations, count_inputs, input_matrix
from jaxdae.linearization import linearize
from jaxdae.requirements import fraction
from jaxdae.saddle_point import NullSpace, SaddlePointSolver, SingularValues, pseudoinverse
from jaxdae.saddle_point.interface import SOLVER_TEXT, check_solver, is_solver
from jaxdae.system import MODEL_TEXT, AnySystem, State, applied_force, check_fit, check_system, checked_state, is_system
from jaxdae.typing import Input, Leaf


def solve_inputs(matrix: Any, wanted: Any, tolerance: Any) -> Any:
    """Returns the shortest u of least |A u - wanted|; singular values below `tolerance` of the largest count as zero."""
    return pseudoinverse(matrix, NullSpace(SingularValues(tolerance))) @ wanted


def at_rest(system: AnySystem, state: State) -> State:
    """Returns a state without its velocities, after a check of the system and of the state."""
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
    """Returns the inputs (nu,) that hold a system at rest in a configuration, or that hold it best.

    Args:
        system: the mechanical system.
        state: time (s) and coordinates; velocities are taken as zero.
        inputs: how many inputs, where the system does not know.
        solver: a saddle-point solver; `NullSpace()` by default, which allows dependent rows.
        rank_tolerance: what motors do less than this fraction of the most that they do, counts as nothing.

    Raises:
        ValueError: unknown number of inputs, or lengths that do not fit.

    Differentiable where the rank does not change.
    """
    rest = at_rest(system, state)
    check_solver(solver)
    return _static_inputs(system, rest, count_inputs(system, inputs), solver or NullSpace(), rank_tolerance)


@partial(jax.jit, static_argnums=2)
def _static_inputs(system: AnySystem, rest: State, inputs: int, solver: SaddlePointSolver, rank_tolerance: Any) -> Input:
    effect = input_matrix(system, rest, inputs)
    load = applied_force(system, rest.t, rest.q, rest.v, jnp.zeros((effect.shape[1],), effect.dtype))
    at = linearize(system, rest, solver)
    both = at.mass.root_times(accelerations(at, jnp.concatenate([effect, load[:, None]], axis=1)))
    return -solve_inputs(both[:, :-1], both[:, -1], rank_tolerance)


@pytree
class GravityCompensation:
    """The inputs that would hold the system at rest where it is: weight, springs, and all other forces of position.

    Add it to a feedback: `Sum((PD(...), GravityCompensation(mechanism)))`.

    Attributes:
        model: the system as the controller knows it.
        solver: a saddle-point solver; None for `NullSpace()`, which allows dependent rows; `SchurComplement()` is faster.
        rank_tolerance: what motors do less than this fraction of the most that they do, counts as nothing.
        inputs: how many inputs, where the model does not know (static).

    Differentiable where the rank does not change.
    """

    model: AnySystem
    solver: Leaf = None
    rank_tolerance: Leaf = 1e-5
    inputs: int | None = static(default=None)

    def requirements(self) -> Any:
        """Yields what the fields have to satisfy; see `jaxdae.requirements`."""
        yield is_system(self.model), MODEL_TEXT
        yield is_solver(self.solver), SOLVER_TEXT
        yield fraction(self.rank_tolerance), "rank_tolerance must be at least 0 and below 1"

    def __call__(self, t: Any, state: State) -> Input:
        """Returns u (nu,)."""
        at = State(t, state.q, state.v)
        return static_inputs(self.model, at, self.inputs, solver=self.solver, rank_tolerance=self.rank_tolerance)

"""How inputs act on a constrained system.

The force of a system is f(t, q, v, u); where inputs enter linearly, as motors do,

    f = f0 + B u,      B = df/du at u = 0,        a = L11 (f0 + B u) - L12 gamma = a0 + A_u u,    A_u = L11 B,

with the blocks of `kkt_inverse`. Columns of B that constraints carry have no effect: A_u is what motors can do. Laws that need a model
start here. A force that is not affine in u is linearized at u = 0.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Float

from jaxdae._pytree import pytree
from jaxdae.dynamics import forward_dynamics
from jaxdae.linearization import Linearization, linearize
from jaxdae.saddle_point import NullSpace, SaddlePointSolver, solve
from jaxdae.saddle_point.interface import check_solver
from jaxdae.system import AnySystem, State, applied_force, check_fit, check_system, checked_state
from jaxdae.typing import Leaf


def count_inputs(system: AnySystem, inputs: int | None = None) -> int:
    """Returns how many inputs a system has.

    Args:
        system: the mechanical system; a `Mechanism` knows, others have `n_inputs` if their author wrote it.
        inputs: the number where the system does not know it.

    Raises:
        ValueError: nobody says, or there is none.
    """
    inputs = system.n_inputs if inputs is None else inputs
    if inputs is None:
        raise ValueError(
            f"{type(system).__name__} does not say how many inputs it has: give inputs=..., or the system an attribute n_inputs"
        )
    if inputs < 1:
        raise ValueError(f"{type(system).__name__} has no inputs; forces with input=k read u[k]")
    return inputs


def input_matrix(system: AnySystem, state: State, inputs: int | None = None) -> Float[Array, "nv nu"]:
    """Returns B = df/du at u = 0, the generalized force of each unit input: N or N m per unit of u.

    Args:
        system: the mechanical system.
        state: time (s), coordinates and velocities.
        inputs: how many inputs, where the system does not know.

    Raises:
        ValueError: unknown number of inputs.

    Differentiable.
    """
    check_system(system)
    state = checked_state(state)
    zero = jnp.zeros((count_inputs(system, inputs),), state.q.dtype)
    return jax.jacfwd(lambda u: applied_force(system, state.t, state.q, state.v, u))(zero)


@pytree
class InputResponse:
    """Accelerations as a function of inputs at one state: a = drift + matrix u.

    Attributes:
        drift: a0 (nv,), without input.
        matrix: L11 B (nv, nu).
        mass: M, an operator.
    """

    drift: Leaf
    matrix: Leaf
    mass: Leaf

    @property
    def weighted(self) -> Float[Array, "nv nu"]:
        """R L11 B with R^T R = M: its columns have the Euclidean length that accelerations have in the mass metric."""
        return self.mass.root_times(self.matrix)


def input_response(system: AnySystem, state: State, inputs: int | None = None, *, solver: SaddlePointSolver | None = None) -> InputResponse:
    """Returns how the accelerations of a constrained system answer to its inputs.

    Args:
        system: the mechanical system.
        state: time (s), coordinates and velocities.
        inputs: how many inputs, where the system does not know.
        solver: a saddle-point solver; `NullSpace()` by default, which allows dependent rows.

    Raises:
        ValueError: unknown number of inputs, or lengths that do not fit.

    One factorization, one solve an input; differentiable.
    """
    effect = input_matrix(system, state, inputs)
    state = checked_state(state)
    check_fit(system, state)
    check_solver(solver)
    at = linearize(system, state, solver or NullSpace())
    zero = jnp.zeros((effect.shape[1],), effect.dtype)
    drift, _ = forward_dynamics(system, state, zero, linearization=at)
    return InputResponse(drift, accelerations(at, effect), at.mass)


def accelerations(at: Linearization, forces: Float[Array, "nv n"]) -> Float[Array, "nv n"]:
    """Returns L11 F, the accelerations of generalized forces that are the columns of F."""
    still = jnp.zeros((at.jacobian.shape[0],), forces.dtype)
    return jax.vmap(lambda f: solve(at.factors, at.mass, at.jacobian, at.compliance, f, still)[0], in_axes=1, out_axes=1)(forces)

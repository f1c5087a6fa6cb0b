"""Effect of inputs on a constrained system.

The force of a system is f(t, q, v, u). If inputs enter linearly, as those of motors do,

    f = f0 + B u,      B = df/du at u = 0,        a = L11 (f0 + B u) - L12 gamma = a0 + A_u u,    A_u = L11 B,

with the blocks of `kkt_inverse`. Columns of B that the constraints carry have no effect: A_u contains the
accelerations that motors can produce. All laws that need a model use this module. A force that is not affine
in u is linearized at u = 0.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Float

from jaxdae.base.dataclass import pytree
from jaxdae.dynamics.accelerations import forward_dynamics
from jaxdae.saddle_point import NullSpace, SaddlePointSolver, solve
from jaxdae.saddle_point.saddle_point_solver import check_solver
from jaxdae.systems.evaluation import Evaluation
from jaxdae.systems.linearization import Linearization, linearize
from jaxdae.systems.system import AnySystem, State, check_fit, check_system, checked_state
from jaxdae.typing import Leaf, Velocity


def count_inputs(system: AnySystem, inputs: int | None = None) -> int:
    """Return the number of inputs of a system.

    Args:
        system: the mechanical system. A `Mechanism` defines the number; other systems do if they have an
            attribute `n_inputs`.
        inputs: the number, if the system does not define it.

    Raises:
        ValueError: the number is unknown or below 1.
    """
    inputs = system.n_inputs if inputs is None else inputs
    if inputs is None:
        raise ValueError(
            f"{type(system).__name__} does not define its number of inputs; give inputs=..., or define the "
            "attribute n_inputs"
        )
    if inputs < 1:
        raise ValueError(f"{type(system).__name__} has no inputs; give forces an input=k to read u[k]")
    return inputs


def input_matrix(system: AnySystem, state: State, inputs: int | None = None) -> Float[Array, "nv nu"]:
    """Return B = df/du at u = 0, the generalized force of each unit input: N or N m per unit of u.

    Args:
        system: the mechanical system.
        state: time (s), coordinates and velocities.
        inputs: the number of inputs, if the system does not define it.

    Raises:
        ValueError: unknown number of inputs.

    Differentiable.
    """
    check_system(system)
    state = checked_state(state)
    terms = system.evaluate(state.t, state.q, state.v)
    return load_and_effect(terms, count_inputs(system, inputs))[1]


def load_and_effect(terms: Evaluation, inputs: int) -> tuple[Velocity, Float[Array, "nv nu"]]:
    """Return f0 (nv,) and B = df/du at u = 0 (nv, nu), from the terms at a state."""
    zero = jnp.zeros((inputs,), terms.q.dtype)
    load, push = jax.linearize(terms.force, zero)
    return load, jax.vmap(push, out_axes=1)(jnp.eye(inputs, dtype=zero.dtype))


@pytree
class InputResponse:
    """Accelerations as a function of inputs at one state: a = drift + matrix u.

    Attributes:
        drift: a0 (nv,), the accelerations without input.
        matrix: L11 B (nv, nu).
        mass: M, an operator.
    """

    drift: Leaf
    matrix: Leaf
    mass: Leaf

    @property
    def weighted(self) -> Float[Array, "nv nu"]:
        """R L11 B with R^T R = M; Euclidean norms of columns are acceleration norms in the mass metric."""
        return self.mass.root_times(self.matrix)


def input_response(
    system: AnySystem, state: State, inputs: int | None = None, *, solver: SaddlePointSolver | None = None
) -> InputResponse:
    """Return the accelerations of a constrained system as an affine function of its inputs.

    Args:
        system: the mechanical system.
        state: time (s), coordinates and velocities.
        inputs: the number of inputs, if the system does not define it.
        solver: a saddle-point solver; `NullSpace()` by default, which allows dependent rows.

    Raises:
        ValueError: unknown number of inputs, or lengths that do not fit.

    Costs one factorization and one solve per input; differentiable.
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
    """Return L11 F, the accelerations that the columns of F cause as generalized forces."""
    still = jnp.zeros((at.jacobian.shape[0],), forces.dtype)
    return jax.vmap(
        lambda f: solve(at.factors, at.mass, at.jacobian, at.compliance, f, still)[0], in_axes=1, out_axes=1
    )(forces)

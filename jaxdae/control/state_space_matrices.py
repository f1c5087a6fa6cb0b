"""State-space matrices of constrained systems about an equilibrium, and their frequency response.

In minimal coordinates z on the constraint manifold,

    z' = A z + B du,      dy = C z + D du,      G(i w) = C (i w I - A)^-1 B + D,

with D = 0 because outputs depend on positions only.

References:
    K. J. Astrom, R. M. Murray, "Feedback Systems" (2008), chapters 5 and 8.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from jaxdae.control.linear_model import linearize_equilibrium
from jaxdae.control.outputs import output_jacobian
from jaxdae.dynamics.stabilization import Stabilization
from jaxdae.saddle_point import SaddlePointSolver
from jaxdae.systems.system import AnySystem, State
from jaxdae.typing import Input


class StateSpace(NamedTuple):
    """The matrices of z' = A z + B du, dy = C z + D du: (n, n), (n, nu), (ny, n), (ny, nu)."""

    a: Any
    b: Any
    c: Any
    d: Any


def state_space(
    system: AnySystem,
    state: State,
    u: Input,
    output: Callable[[Any], Any],
    *,
    dimension: int | None = None,
    solver: SaddlePointSolver | None = None,
    stabilization: Stabilization | None = None,
) -> StateSpace:
    """Return A, B, C, D of a constrained system about an equilibrium, in minimal coordinates.

    Args:
        system: the mechanical system.
        state: time (s) and coordinates of the equilibrium; velocities are taken as zero.
        u: input (nu,) that holds the equilibrium, see `static_inputs`.
        output: y(q), a pytree with `__call__(q)`, such as `BodyPoint`. With dy = C z, the rates are C A z.
        dimension: as in `linearize_equilibrium`.
        solver: as in `linearize_equilibrium`.
        stabilization: as in `linearize_equilibrium`.

    Raises:
        ValueError: as in `linearize_equilibrium`.

    Warns:
        StateWarning: if the coordinates violate the constraints.

    Example:
        >>> transfer = scipy.signal.StateSpace(*control.state_space(linkage, state, u, tip))
    """
    model = linearize_equilibrium(
        system, state, u, dimension=dimension, solver=solver, stabilization=stabilization
    )
    c = output_jacobian(system, state, output) @ model.basis[: state.v.shape[0]]
    return StateSpace(model.a, model.b, c, jnp.zeros((c.shape[0], model.b.shape[1]), c.dtype))


@jax.jit
def frequency_response(matrices: StateSpace, frequencies: Any) -> Array:
    """Return the frequency response G(i w) = C (i w I - A)^-1 B + D, complex, (..., ny, nu).

    The input b exp(i w t) gives the steady output G b exp(i w t) of a stable system.

    Args:
        matrices: the state-space matrices.
        frequencies: w (...) in rad/s.

    Infinite or NaN at a frequency of an undamped mode.

    Example:
        >>> gain = jnp.abs(control.frequency_response(matrices, jnp.linspace(0.1, 10.0, 200)))
    """
    w = jnp.asarray(frequencies, jnp.result_type(matrices.a))
    s = jax.lax.complex(jnp.zeros_like(w), w)[..., None, None]
    a, b, c, d = (jnp.asarray(x, s.dtype) for x in matrices)
    resolvent = s * jnp.eye(a.shape[0], dtype=s.dtype) - a
    return c @ jnp.linalg.solve(resolvent, jnp.broadcast_to(b, (*w.shape, *b.shape))) + d

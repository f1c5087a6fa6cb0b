"""Vibration modes of constrained systems about an equilibrium.

The linear model z' = A z has the solutions z = x exp(lambda t) with A x = lambda x. In all coordinates and
velocities, they are d = N x exp(lambda t). A mode with a complex eigenvalue oscillates,

    lambda = -zeta omega +- i omega sqrt(1 - zeta^2),    omega = |lambda|,    zeta = -Re lambda / |lambda|,

with the natural frequency omega and the damping ratio zeta. Minimal coordinates on the constraint manifold
contain the stiffness of preloaded parts and of gravity, so no separate geometric stiffness is necessary.

*Derivatives.* With the matrix X of eigenvectors, and dY = X^-1 dA X,

    dlambda_i = dY_ii,      dx_i = sum over j != i of x_j dY_ji / (lambda_i - lambda_j).                 (1)

References:
    L. Meirovitch, "Fundamentals of Vibrations" (2001), chapter 7. L. C. Rogers, "Derivatives of eigenvalues
    and eigenvectors", AIAA Journal 8 (1970), for derivatives.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from jaxdae.base.dataclass import pytree
from jaxdae.control.linear_model import LinearModel
from jaxdae.typing import Leaf


@pytree
class Modes:
    """Modes of a linear model, in ascending order of frequency.

    An oscillating mode has two entries with conjugate eigenvalues, the positive imaginary part first. If all
    modes oscillate, `[::2]` selects one entry per mode.

    Attributes:
        eigenvalues: lambda (n,), complex, in 1/s; unstable if the real part is positive.
        frequency: omega (n,) in rad/s.
        damping: damping ratio zeta (n,), 0 without damping, at least 1 without oscillation; NaN for
            lambda = 0.
        shapes: displacements (nv, n), complex, one column per mode, in m and rad; the entry of the largest
            magnitude is 1. `system.retract(q, jnp.real(scale * shape))` is a displaced configuration.
    """

    eigenvalues: Leaf
    frequency: Leaf
    damping: Leaf
    shapes: Leaf


@jax.custom_jvp
def _sorted_eigenvectors(a: Array) -> tuple[Array, Array]:
    """Return the eigenvalues (n,) by magnitude, and the eigenvectors (n, n) as columns."""
    values, vectors = jnp.linalg.eig(a)
    order = jnp.argsort(jnp.abs(values), stable=True)
    return values[order], vectors[:, order]


@_sorted_eigenvectors.defjvp
def _derivative(primals: Any, tangents: Any) -> Any:
    values, vectors = found = _sorted_eigenvectors(*primals)
    change = jnp.linalg.solve(vectors, tangents[0].astype(values.dtype) @ vectors)
    gaps = values[None, :] - values[:, None]
    equal = gaps == 0.0
    mixed: Any = jnp.where(equal, 0.0, change / jnp.where(equal, 1.0, gaps))
    return found, (jnp.diagonal(change), vectors @ mixed)


@jax.jit
def modes(model: LinearModel) -> Modes:
    """Return natural frequencies, damping ratios and shapes of a linear model.

    Args:
        model: a model of `linearize_equilibrium`, open or closed loop. Only `a` and `basis` matter.

    First derivatives are exact where the eigenvalues are distinct. Runs on CPUs, and on other devices where
    JAX supports `jax.numpy.linalg.eig`.

    Example:
        >>> found = control.modes(control.linearize_equilibrium(linkage, state, u))
    """
    values, vectors = _sorted_eigenvectors(model.a)
    size = jnp.abs(values)
    shapes = model.basis[: model.basis.shape[0] // 2].astype(values.dtype) @ vectors
    largest = jnp.argmax(jnp.abs(shapes), axis=0)
    shapes = shapes / jnp.take_along_axis(shapes, largest[None], axis=0)
    return Modes(values, size, -values.real / size, shapes)

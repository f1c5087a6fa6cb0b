"""Vibration modes of constrained systems about an equilibrium.

The linear model z' = A z has the solutions z = x exp(lambda t) with A x = lambda x. In all coordinates and
velocities, they are d = N x exp(lambda t). A mode with a complex eigenvalue oscillates,

    lambda = -zeta omega +- i omega sqrt(1 - zeta^2),    omega = |lambda|,    zeta = -Re lambda / |lambda|,

with the natural frequency omega and the damping ratio zeta. Minimal coordinates on the constraint manifold
contain the stiffness of preloaded parts and of gravity, so no separate geometric stiffness is necessary.

*Derivatives.* With the matrix X of eigenvectors, and dY = X^-1 dA X,

    dlambda_i = dY_ii,      dx_i = sum over j != i of x_j dY_ji / (lambda_i - lambda_j).                 (1)

*Motion.* Without its decay, a mode moves by d(phi) = s Re(x exp(i phi)) about the equilibrium, with the phase
phi = |lambda| t and a scale s. The displacement violates the constraints in second order of s; a position
projection closes them.

References:
    L. Meirovitch, "Fundamentals of Vibrations" (2001), chapter 7. L. C. Rogers, "Derivatives of eigenvalues
    and eigenvectors", AIAA Journal 8 (1970), for derivatives.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from jaxdae.base.dataclass import pytree
from jaxdae.base.requirements import checked_count
from jaxdae.control.linear_model import LinearModel
from jaxdae.dynamics.stabilization import PositionProjection
from jaxdae.integrators.integrator import is_open, largest
from jaxdae.saddle_point import NullSpace
from jaxdae.systems.system import AnySystem, State, check_fit, check_system, checked_state, default_tolerance
from jaxdae.typing import Leaf, Scalar


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


def mode_motion(
    system: AnySystem, state: State, found: Modes, mode: int, scale: Any, *, frames: int = 60
) -> State:
    """Return the motion of a mode during one period, without its decay, for pictures and animations.

    Args:
        system: the mechanical system.
        state: the equilibrium of the model.
        found: the modes.
        mode: the index of the mode.
        scale: displacement of the coordinate that moves most, in m or rad. Choose the sign of a mode with it.
        frames: the number of instants, at least 2; the last one repeats the first.

    Returns:
        Stacked states (frames,) with closed loops, and with the velocities of the linear model. The time
        starts at zero and ends at 2 pi / |lambda|, or 2 pi for lambda = 0. The coordinates are NaN where the
        loops cannot close because the scale is too large.

    Raises:
        ValueError: no such mode, or fewer than two frames.

    Example:
        >>> viewer.write_html(viewer.scene(linkage, control.mode_motion(linkage, state, found, 0, 0.1)), path)
    """
    check_system(system)
    state = checked_state(state)
    check_fit(system, state)
    checked_count("frames - 1", frames - 1)
    count = found.shapes.shape[1]
    if not -count <= mode < count:
        raise ValueError(f"mode must be an index of the {count} modes, got {mode}")
    return _motion(system, state, found.shapes[:, mode], found.frequency[mode], scale, frames)


@partial(jax.jit, static_argnames="frames")
def _motion(system: AnySystem, state: State, shape: Array, rate: Scalar, scale: Any, frames: int) -> State:
    still = State(jnp.asarray(state.t), state.q, jnp.zeros_like(state.v))
    projection = PositionProjection(iterations=8, solver=NullSpace())

    def at(phase: Scalar) -> State:
        x, y, cosine, sine = jnp.real(shape), jnp.imag(shape), jnp.cos(phase), jnp.sin(phase)
        moved = State(still.t, system.retract(state.q, scale * (cosine * x - sine * y)), still.v)
        closed = projection.project(system, moved)
        left = largest(system.constraint(closed.t, closed.q))
        broken = is_open(system, left, closed.q, default_tolerance(closed.q.dtype))
        return State(
            phase / jnp.where(rate > 0.0, rate, 1.0),
            jnp.where(broken, jnp.nan, closed.q),
            -scale * rate * (sine * x + cosine * y),
        )

    return jax.vmap(at)(jnp.linspace(0.0, 2.0 * jnp.pi, frames, dtype=state.q.dtype))

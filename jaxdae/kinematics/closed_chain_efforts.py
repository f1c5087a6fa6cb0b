"""Motor efforts of closed chains for a given motion.

With the rows S of the motors, S v = rates of the driven coordinates, and M a - f the force that the motion
needs,

    S^T tau + J^T lam = M a - f.                                                                         (1)

The loops transmit forces that do no work: with the projector N onto the null space of J, tau solves

    N S^T tau = N (M a - f),

in the least-squares sense, with the smallest |tau|_W if there are more motors than degrees of freedom. Then
lam is the least-squares solution of (1). For an acceleration with J a + gamma = 0, `forward_dynamics` with
the generalized force S^T tau returns a and lam again, if the residual of (1) is zero.

References:
    Y. Nakamura, M. Ghodoussi, "Dynamics computation of closed-link robot mechanisms with nonredundant and
    redundant actuators", IEEE Trans. Robotics and Automation 5 (1989).
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.core import Tracer

from jaxdae.base.dataclass import pytree, static
from jaxdae.base.suggestions import brief
from jaxdae.control.outputs import Coordinates, output_jacobian
from jaxdae.control.virtual_work import motor_efforts
from jaxdae.dynamics.minimum_norm import pseudoinverse
from jaxdae.kinematics.targets import coordinate_indices
from jaxdae.mechanisms import Mechanism
from jaxdae.mechanisms.describe.numbers import concrete
from jaxdae.systems.state_checks import StateWarning, report_state
from jaxdae.systems.system import State, check_mechanism, checked_state, default_tolerance
from jaxdae.typing import Input, Leaf, Velocity

_RANK = 1e-9
"""Singular values of J below this fraction of the largest count as zero."""


@pytree
class ActuatorEfforts:
    """Motor efforts and multipliers of a motion.

    Attributes:
        names: the coordinates that the motors drive (na,) (static).
        efforts: tau (na,) in N m and N.
        lam: multipliers (nc,), as in `forward_dynamics`.
        force: S^T tau (nv,), the argument `tau` of `forward_dynamics`.
        residual: M a - f - S^T tau - J^T lam (nv,); not zero if the motors cannot produce the motion.
    """

    names: tuple[str, ...] = static()
    efforts: Leaf
    lam: Leaf
    force: Leaf
    residual: Leaf


def actuator_efforts(
    mechanism: Mechanism,
    state: State,
    acceleration: Velocity,
    actuated: Sequence[str],
    *,
    u: Input = None,
    weights: Any = None,
) -> ActuatorEfforts:
    """Return the motor efforts that produce an acceleration, and the multipliers of the loops.

    With redundant motors, the sum of squared efforts is minimal. With too few motors, `residual` is not zero.

    Args:
        mechanism: the mechanism. In joint coordinates, the motors drive coordinates.
        state: time (s), coordinates and velocities, consistent with the loops.
        acceleration: a (nv,), consistent with the loops, as from `follow`.
        actuated: the coordinates that the motors drive, or joints with one coordinate.
        u: other inputs (nu,); zero by default.
        weights: weights (na,) of the squared efforts; 1 by default.

    Raises:
        ValueError: unknown or repeated names, weights that are not positive, or shapes that do not fit.

    Warns:
        StateWarning: the state or the acceleration violates the constraints; not under `jit`, `vmap` and
            `grad`.

    Differentiable at constant rank. If the inputs of the mechanism are these motors, in the same order,
    `jm.reactions(mechanism, state, found.lam, found.efforts)` returns the joint reactions.
    """
    check_mechanism(mechanism)
    state = checked_state(state)
    places = coordinate_indices("actuated", mechanism, actuated)
    known = None if weights is None else concrete(weights)
    if known is not None and not np.all(known > 0.0):
        raise ValueError(f"weights must be positive, got {brief(weights)}")
    weights = jnp.ones((len(places),)) if weights is None else jnp.asarray(weights)
    if weights.shape != (len(places),):
        raise ValueError(f"weights must have shape ({len(places)},), one per motor, got {weights.shape}")
    names = tuple(mechanism.names.coordinates[k] for k in places)
    acceleration = jnp.asarray(acceleration, state.q.dtype)
    if acceleration.shape != state.v.shape:
        raise ValueError(f"acceleration must have shape {state.v.shape}, got {acceleration.shape}")
    root = 1.0 / jnp.sqrt(weights.astype(state.q.dtype))
    *found, possible = _efforts(mechanism, state, acceleration, u, root, places)
    report_state("actuator_efforts", mechanism, state, found)
    if not isinstance(possible, Tracer) and not possible:
        text = "actuator_efforts: the acceleration violates the constraints; no efforts produce it"
        warnings.warn(text, StateWarning, stacklevel=2)
    return ActuatorEfforts(names, *found)


@partial(jax.jit, static_argnames="places")
def _efforts(
    mechanism: Mechanism, state: State, a: Array, u: Input, root: Array, places: tuple[int, ...]
) -> tuple[Array, Array, Array, Array, Array]:
    """Return tau, lam, S^T tau, the residual of (1), and whether J a + gamma = 0 up to rounding."""
    at = mechanism.evaluate(state.t, state.q, state.v)
    required, jacobian = at.mass.times(a) - at.force(u), at.dense_jacobian
    motors = output_jacobian(mechanism, state, Coordinates(places))
    loops = jacobian if jacobian.shape[0] else None
    one = jnp.ones((1,), required.dtype)
    tau = root * motor_efforts(root[:, None] * motors, required[None], one, constraint_jacobian=loops)
    rest = required - motors.T @ tau
    lam = pseudoinverse(jacobian.T, _RANK) @ rest if jacobian.shape[0] else jacobian[:, 0]
    bias, speeds = at.bias, jnp.abs(state.v)
    # Terms of size |v|^2 may cancel in gamma.
    size = jnp.abs(jacobian) @ (jnp.abs(a) + speeds * jnp.max(speeds)) + jnp.abs(bias)
    left = jnp.max(jnp.abs(jacobian @ a + bias), initial=0.0)
    possible = left <= default_tolerance(a.dtype) * jnp.max(size, initial=0.0)
    return tau, lam, motors.T @ tau, rest - jacobian.T @ lam, possible

"""Transmission from motors to a tool: velocities, singular configurations, stiffness and inertia.

With the Jacobian J of the loops, the rows S of the motors and the rows E of the tool, all at one pose,

    J v = 0,      theta' = S v,      x' = E v.                                                           (1)

Divide lengths by the characteristic length. With P = I - J^+ J, the pairs (theta', x') of all admissible
velocities form the column space of W = [S P; E P], whose dimension is the mobility k. Let the columns of
[Theta; X] be an orthonormal basis of this space. Then

    Pi = W W^+ = [Theta; X] [Theta; X]^T,      x' = G theta',      G = X Theta^+.                        (2)

*Singular configurations.* Theta^T Theta + X^T X = I. The singular values of Theta are therefore the cosines
of angles phi, those of X their sines, and those of G their tangents (C. C. Paige, M. A. Saunders). They do
not depend on the coordinates of the mechanism or on the choice of the basis. Gosselin and Angeles write (1)
as A x' + B theta' = 0, and distinguish

    type 1, det B = 0: the tool can be at rest while motors move; the smallest sine is zero;
    type 2, det A = 0: the tool can move while the motors are at rest; the smallest cosine is zero.

*Stiffness.* Motors with the stiffnesses k are springs, and all other parts are rigid. A force F at the tool
then moves it by C F. The principle of virtual work gives

    C = X (Theta^T diag(k) Theta)^-1 X^T,      K = C^-1.                                                 (3)

For one motor per degree of freedom K = G^-T diag(k) G^-1. The change of G under preload is neglected.

*Inertia.* A force at the tool accelerates it from rest by E L11 E^T F, where L11 is a block of the inverse
saddle-point matrix (`kkt_inverse`). The effective inertia is (E L11 E^T)^-1, also with moving motors.

References:
    C. Gosselin, J. Angeles, "Singularity analysis of closed-loop kinematic chains", IEEE Trans. Robotics and
    Automation 6 (1990). C. C. Paige, M. A. Saunders, "Towards a generalized singular value decomposition",
    SIAM J. Numer. Anal. 18 (1981). T. Yoshikawa, "Manipulability of robotic mechanisms", Int. J. Robotics
    Research 4 (1985). C. Gosselin, "Stiffness mapping for parallel manipulators", IEEE Trans. Robotics and
    Automation 6 (1990). O. Khatib, IEEE J. Robotics and Automation 3 (1987), for the inertia.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from jaxdae.base.dataclass import pytree, static
from jaxdae.base.suggestions import brief
from jaxdae.control.inputs import accelerations
from jaxdae.kinematics.closed_chains import checked_targets
from jaxdae.kinematics.least_squares_on_loops import scaled_inverse
from jaxdae.kinematics.targets import JointTarget, PoseTarget, coordinate_indices
from jaxdae.mechanisms import Mechanism
from jaxdae.mechanisms.describe.numbers import concrete
from jaxdae.mechanisms.massless import MasslessMechanism
from jaxdae.saddle_point import NullSpace
from jaxdae.systems.linearization import linearize_at
from jaxdae.systems.masks import hard_rows
from jaxdae.systems.state_checks import report_coordinates
from jaxdae.systems.system import State, check_fit, check_mechanism, checked_state
from jaxdae.systems.tolerances import scales
from jaxdae.typing import Leaf


@pytree
class Transmission:
    """Transmission from motors to a tool at a pose.

    Attributes:
        names: the coordinates that the motors drive (na,) (static).
        units: the unit of each row of the tool (nx,), m or rad (static).
        jacobian: G (nx, na) with x' = G theta', in m and rad of the tool per m and rad of the motors. With
            redundant motors, it applies to rates that the loops allow.
        singular_values: of G (min(nx, na),) in descending order, with lengths divided by the characteristic
            length.
        manipulability: their product (), which is sqrt(det(G G^T)) if the rows of the tool are independent.
        dexterity: the smallest over the largest (), between 0 and 1: the reciprocal condition number.
        type1: distance from singular configurations of type 1 (), the smallest sine, between 0 and 1.
        type2: distance from singular configurations of type 2 (), the smallest cosine, between 0 and 1.
        stiffness: K (nx, nx) at the tool in N/m, N and N m/rad; None without motor stiffnesses; NaN if the
            motors do not hold the mechanism.
        inertia: effective inertia (nx, nx) at the tool in kg, kg m and kg m^2; None without masses, for the
            `mechanism` of a first-order mechanism.

    Stiffness and inertia require a tool with independent rows, at most as many as degrees of freedom. They
    are infinite or NaN in singular configurations of type 1.
    """

    names: tuple[str, ...] = static()
    units: tuple[str, ...] = static()
    jacobian: Leaf
    singular_values: Leaf
    manipulability: Leaf
    dexterity: Leaf
    type1: Leaf
    type2: Leaf
    stiffness: Leaf
    inertia: Leaf


def transmission(
    mechanism: Mechanism,
    state: State,
    tool: PoseTarget | JointTarget | Sequence[PoseTarget | JointTarget],
    actuated: Sequence[str],
    *,
    motor_stiffness: Any = None,
) -> Transmission:
    """Return Jacobian, distances from singular configurations, stiffness and inertia from motors to a tool.

    Args:
        mechanism: the mechanism. In joint coordinates, the motors drive coordinates.
        state: time (s) and coordinates with closed loops; velocities do not matter.
        tool: one or several targets, as in `inverse_kinematics`. Only their type matters, not their values: a
            position target selects the velocity of its point in m/s, and an orientation target the angular
            velocity in rad/s (in space with components in body axes).
        actuated: the coordinates that the motors drive, or joints with one coordinate.
        motor_stiffness: (na,) or () in N m/rad and N/m; None for no stiffness at the tool.

    Raises:
        ValueError: unknown names, or shapes that do not fit.

    Warns:
        StateWarning: the state violates the constraints; not under `jit`, `vmap` and `grad`.

    Differentiable where the ranks of J and W are constant and the singular values are distinct; at a singular
    configuration, the distance has a kink. `jax.vmap` computes many poses at once.

    Example:
        >>> found = kinematics.transmission(robot, state, target, ("motor1", "motor2", "motor3"))
    """
    check_mechanism(mechanism)
    state = checked_state(state)
    check_fit(mechanism, state)
    targets = checked_targets(mechanism, tool)
    places, stiffness = checked_motors(mechanism, actuated, motor_stiffness)
    found = transmitted(mechanism, state, targets, stiffness, places)
    report_coordinates("transmission", mechanism, state.q, found)
    return found


def checked_motors(
    mechanism: Mechanism, actuated: Sequence[str], stiffness: Any
) -> tuple[tuple[int, ...], Any]:
    """Return the indices of the motors in q, and their stiffnesses as an array or None.

    Raises:
        ValueError: no motor, an unknown or repeated name, or stiffnesses that are not positive or have a
            wrong shape.
    """
    places = coordinate_indices("actuated", mechanism, actuated)
    if not places:
        raise ValueError("actuated: name at least one motor")
    if stiffness is not None:
        known = concrete(stiffness)
        if known is not None and not np.all(known > 0.0):
            raise ValueError(f"motor_stiffness must be positive, got {brief(stiffness)}")
        stiffness = jnp.asarray(stiffness, mechanism.dtype)
        if stiffness.shape not in ((), (len(places),)):
            raise ValueError(
                f"motor_stiffness must be a number or have shape ({len(places)},), one per motor, got "
                f"{stiffness.shape}"
            )
    return places, stiffness


@partial(jax.jit, static_argnames="places")
def transmitted(
    mechanism: Mechanism, state: State, targets: Any, stiffness: Any, places: tuple[int, ...]
) -> Transmission:
    """Return the result of `transmission` for checked arguments."""
    names, dtype, na = mechanism.names, state.q.dtype, len(places)
    at = hard_rows(mechanism.evaluate(state.t, state.q, jnp.zeros_like(state.v)))
    units = (*(names.coordinate_units[k] for k in places), *(u for x in targets for u in x.units(mechanism)))
    sizes = jax.lax.stop_gradient(scales(mechanism, units, len(units), dtype))
    frames = mechanism.frames(state.q)
    reached = [target.reached(mechanism, frames) for target in targets]

    def rows(xi: Array) -> Array:
        q = mechanism.retract(state.q, xi)
        there = mechanism.frames(q)
        return jnp.concatenate([q[jnp.array(places)], *(x.error(mechanism, there, q) for x in reached)])

    both = jax.jacfwd(rows)(jnp.zeros_like(state.v))
    pairs = _pairs(mechanism, at.dense_jacobian, both / sizes[:, None])
    mobility = jnp.round(jax.lax.stop_gradient(jnp.trace(pairs))).astype(int)
    motors, tool = pairs[:na], pairs[na:]
    map_ = tool @ scaled_inverse(motors)
    values, sines, cosines = (jnp.linalg.svd(x, compute_uv=False) for x in (map_, tool, motors))
    rank = jnp.clip(mobility, 1, values.shape[0])
    smallest = values[rank - 1]
    held = (mobility >= 1) & (mobility <= na)
    at_tool = None
    if stiffness is not None:
        root = jnp.sqrt(jnp.broadcast_to(stiffness, (na,))) * sizes[:na]
        moved = sizes[na:, None] * tool @ scaled_inverse(root[:, None] * motors)
        at_tool = jnp.where(held, jnp.linalg.inv(moved @ moved.T), jnp.nan)
    inertia = None
    if not isinstance(mechanism, MasslessMechanism):
        inertia = jnp.linalg.inv(both[na:] @ accelerations(linearize_at(at, NullSpace()), both[na:].T))
    return Transmission(
        names=tuple(names.coordinates[k] for k in places),
        units=units[na:],
        jacobian=sizes[na:, None] * map_ / sizes[:na],
        singular_values=values,
        manipulability=jnp.prod(jnp.where(jnp.arange(values.shape[0]) < rank, values, 1.0)),
        dexterity=smallest / values[0],
        type1=sines[jnp.clip(mobility, 1, tool.shape[0]) - 1],
        type2=jnp.where(held, cosines[jnp.clip(mobility, 1, na) - 1], 0.0),
        stiffness=at_tool,
        inertia=inertia,
    )


def _pairs(mechanism: Mechanism, jacobian: Array, both: Array) -> Array:
    """Return Pi of (2), from J and [S; E]."""
    names, dtype = mechanism.names, both.dtype
    columns = jax.lax.stop_gradient(scales(mechanism, names.velocity_units, both.shape[1], dtype))
    free = both * columns
    if jacobian.shape[0]:
        rows = jax.lax.stop_gradient(scales(mechanism, names.row_units, jacobian.shape[0], dtype))
        loops = jacobian * columns / rows[:, None]
        free = free - (free @ scaled_inverse(loops)) @ loops
    return free @ scaled_inverse(free)

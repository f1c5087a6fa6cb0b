"""Robot quantities by name, under the names that Pinocchio users look for; `docs/robots.md` has the table.

A body has the position c, the rotation R, the velocity v = c', and omega in its own axes. A link in the body
has the origin r and the axes L in the frame of the body. Its world quantities are

    position c + R r,      axes R L,      velocity v + R (omega x r),      angular velocity R omega.

Its acceleration is the derivative of its velocity along the motion with v' = a. Momentum sums over all
bodies: linear m v, angular (c - com) x m v + R I omega about the common mass center com. All quantities are
functions of arrays: `jit`, `vmap` and `grad` apply.

Called with concrete arrays, each function warns (`jaxdae.StateWarning`) if the state violates the
constraints, such as at an open loop or with a mimic joint that did not follow. Functions of q check the
position-level rows that do not depend on time. Under `jit`, `vmap` and `grad` nothing is checked; use
`jaxdae.state_status` there.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from jaxdae.base.suggestions import brief
from jaxdae.mechanisms import GROUND
from jaxdae.mechanisms.describe.numbers import hint
from jaxdae.mechanisms.equations import Mechanism
from jaxdae.mechanisms.massless import MasslessMechanism, refuse
from jaxdae.robots.load_report import LinkFrame, Report
from jaxdae.systems.state_checks import report_coordinates, report_state
from jaxdae.systems.system import State, check_mechanism
from jaxdae.typing import Coordinates, Velocity


def found_frame(report: Report, name: str) -> LinkFrame:
    """Return the frame of a link, a named frame or a site in its body.

    Raises:
        ValueError: an unknown name.
    """
    if name not in report.frames:
        raise ValueError(
            f"{report.robot} has no link, frame or site named {brief(name)}{hint(name, list(report.frames))}"
        )
    return report.frames[name]


def _bodies(mechanism: Mechanism, q: Coordinates, v: Velocity) -> tuple[Array, Array, Array, Array]:
    """Return positions, rotations, velocities in the world, and angular velocities in body axes (n, ...)."""
    check_mechanism(mechanism)
    motion = mechanism.coordinates.kinematics(q, v)
    rotations = jnp.stack(motion.frame[3:], axis=-1).reshape(-1, 3, 3)
    return (
        jnp.stack(motion.frame[:3], axis=-1),
        rotations,
        jnp.stack(motion.velocity[:3], -1),
        jnp.stack(motion.velocity[3:], -1),
    )


def _masses(mechanism: Mechanism) -> Array:
    """Return the masses (n,) in kg of all bodies; raise TypeError in first order."""
    check_mechanism(mechanism)
    if isinstance(mechanism, MasslessMechanism):
        refuse("masses")
    return mechanism.mass


def link_frame(report: Report, mechanism: Mechanism, q: Coordinates, name: str) -> tuple[Array, Array]:
    """Return the world position (3,) in m and rotation (3, 3) of a link, a named frame or a site.

    Args:
        report: report of the robot.
        mechanism: mechanism of its description.
        q: (nq,).
        name: name of the link, frame or site.

    Raises:
        ValueError: an unknown name.

    Warns:
        StateWarning: the coordinates violate the constraints, see the module.
    """
    frame = found_frame(report, name)
    if frame.body == GROUND:
        return jnp.asarray(frame.place, q.dtype), jnp.asarray(frame.rotation, q.dtype)
    check_mechanism(mechanism)
    k = mechanism.body_names.index(frame.body)
    places, rotations, *_ = _bodies(mechanism, q, jnp.zeros((len(mechanism.names.velocities),), q.dtype))
    place, rotation = (
        places[k] + rotations[k] @ jnp.asarray(frame.place, q.dtype),
        rotations[k] @ jnp.asarray(frame.rotation, q.dtype),
    )
    report_coordinates("link_frame", mechanism, q, place)
    return place, rotation


def link_velocity(report: Report, mechanism: Mechanism, state: State, name: str) -> Array:
    """Return the velocity of a link origin in m/s and its angular velocity in rad/s, in world axes (6,).

    Args:
        report: report of the robot.
        mechanism: mechanism of its description.
        state: coordinates and velocities.
        name: name of the link, frame or site.

    Raises:
        ValueError: an unknown name.

    Warns:
        StateWarning: the state violates the constraints, see the module.
    """
    frame = found_frame(report, name)
    if frame.body == GROUND:
        return jnp.zeros((6,), state.q.dtype)
    check_mechanism(mechanism)
    k = mechanism.body_names.index(frame.body)
    _, rotations, velocities, omegas = _bodies(mechanism, state.q, state.v)
    arm = jnp.asarray(frame.place, state.q.dtype)
    found = jnp.concatenate(
        [velocities[k] + rotations[k] @ jnp.cross(omegas[k], arm), rotations[k] @ omegas[k]]
    )
    report_state("link_velocity", mechanism, state, found)
    return found


def link_jacobian(report: Report, mechanism: Mechanism, q: Coordinates, name: str) -> Array:
    """Return the Jacobian (6, nv) that maps v to `link_velocity`; its transpose maps wrenches to forces.

    Arguments and errors are the same as in `link_frame`.
    """

    def velocity(v: Array) -> Array:
        return link_velocity(report, mechanism, State(jnp.zeros((), q.dtype), q, v), name)

    found = jax.jacfwd(velocity)(jnp.zeros((len(mechanism.names.velocities),), q.dtype))
    report_coordinates("link_jacobian", mechanism, q, found)
    return found


def link_acceleration(report: Report, mechanism: Mechanism, state: State, a: Velocity, name: str) -> Array:
    """Return the rate of `link_velocity` (6,) in m/s^2 and rad/s^2 for v' = a, without gravity.

    Arguments and errors are the same as in `link_velocity`; a: accelerations (nv,).
    """

    def ahead(h: Array) -> Array:
        q = mechanism.retract(state.q, h * state.v)
        return link_velocity(report, mechanism, State(state.t, q, state.v + h * a), name)

    found = jax.jvp(ahead, (jnp.zeros_like(state.t),), (jnp.ones_like(state.t),))[1]
    report_state("link_acceleration", mechanism, state, found)
    return found


def center_of_mass(mechanism: Mechanism, q: Coordinates) -> Array:
    """Return the mass center of all bodies (3,) in m."""
    masses = _masses(mechanism)
    places, *_ = _bodies(mechanism, q, jnp.zeros((len(mechanism.names.velocities),), q.dtype))
    found = masses @ places / jnp.sum(masses)
    report_coordinates("center_of_mass", mechanism, q, found)
    return found


def center_of_mass_jacobian(mechanism: Mechanism, q: Coordinates) -> Array:
    """Return the Jacobian (3, nv) that maps v to the velocity of the mass center in m/s."""
    masses = _masses(mechanism)

    def velocity(v: Array) -> Array:
        return masses @ _bodies(mechanism, q, v)[2] / jnp.sum(masses)

    found = jax.jacfwd(velocity)(jnp.zeros((len(mechanism.names.velocities),), q.dtype))
    report_coordinates("center_of_mass_jacobian", mechanism, q, found)
    return found


def centroidal_momentum(mechanism: Mechanism, state: State) -> Array:
    """Return linear momentum in N s and centroidal angular momentum in N m s, in world axes (6,)."""
    masses, inertia = _masses(mechanism)[:, None], mechanism.inertia
    places, rotations, velocities, omegas = _bodies(mechanism, state.q, state.v)
    own = inertia * omegas if inertia.ndim == 2 else jnp.einsum("nij,nj->ni", inertia, omegas)
    arms = places - jnp.sum(masses * places, axis=0) / jnp.sum(masses)
    spin = jnp.cross(arms, masses * velocities) + jnp.einsum("nij,nj->ni", rotations, own)
    found = jnp.concatenate([jnp.sum(masses * velocities, axis=0), jnp.sum(spin, axis=0)])
    report_state("centroidal_momentum", mechanism, state, found)
    return found


def nonlinear_effects(mechanism: Mechanism, state: State) -> Array:
    """Return h (nv,) in M a + h = tau + J^T lam: Coriolis, centrifugal, gravity minus other forces."""
    found = _effects(mechanism, state)
    report_state("nonlinear_effects", mechanism, state, found)
    return found


def inverse_dynamics(mechanism: Mechanism, state: State, a: Any) -> Array:
    """Return tau = M a + h (nv,) in N and N m: the load besides springs, dampers and constraint forces."""
    found = mechanism.mass_operator(state.q).times(jnp.asarray(a)) + _effects(mechanism, state)
    report_state("inverse_dynamics", mechanism, state, found)
    return found


def _effects(mechanism: Mechanism, state: State) -> Array:
    return -mechanism.force(state.t, state.q, state.v, jnp.zeros((mechanism.n_inputs,), state.q.dtype))

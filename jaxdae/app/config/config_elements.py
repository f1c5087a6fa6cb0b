"""Convert the plain values of a config to a `jaxdae.mechanisms.Description`: bodies, joints, forces, drives.

The values may be traced, because worlds differ in numbers of the config.
"""

from typing import Any

import jax.numpy as jnp
import numpy as np

from jaxdae import mechanisms
from jaxdae.app.config.schema_contact import shape_of
from jaxdae.app.config.schema_mechanism import DRIVE_TYPES, TYPES
from jaxdae.app.config.schema_terrain import terrain
from jaxdae.contact import Pair
from jaxdae.geometry.rotation import quat_normalize
from jaxdae.mechanisms.describe.numbers import concrete, vector

_MOTIONS = {
    "polynomial": mechanisms.Polynomial,
    "sinusoid": lambda frequency_hz, **numbers: mechanisms.Sinusoid(frequency=frequency_hz, **numbers),
}


def description(values: dict[str, Any]) -> mechanisms.Description:
    """Return the description of a mechanism from the plain values of a config, which may be traced."""
    section = values["mechanism"]
    space = section["space"]
    body = _spatial_body if space == "space" else _planar_body
    ground = None if section.get("terrain") is None else terrain(section["terrain"])
    return mechanisms.Description(
        space=mechanisms.SPACE if space == "space" else mechanisms.PLANE,
        bodies=[
            *(body(each) for each in section["bodies"]),
            *(mechanisms.Rotor(**each) for each in section.get("rotors", ())),
        ],
        joints=[described(joint, space, ground) for joint in section["joints"]],
        forces=[described(force, space) for force in section["forces"]],
        drives=[_described_drive(drive, space) for drive in section["drives"]],
        contacts=[_described_contact(contact, space) for contact in section.get("contacts", ())],
        gravity=section["gravity"],
    )


def _described_contact(contact: dict[str, Any], space: str) -> Pair:
    sides = {side: shape_of(contact[side], space) for side in ("shape_a", "shape_b")}
    return Pair(**contact | sides)


def _planar_body(body: dict[str, Any]) -> mechanisms.Body:
    return mechanisms.Body(**{key: body[key] for key in ("name", "mass", "inertia", "pose")})


def _spatial_body(body: dict[str, Any]) -> mechanisms.SpatialBody:
    quaternion = orientation(body["pose"])
    known = concrete(quaternion)
    # Normalize a concrete quaternion with NumPy, so that it stays concrete under tracing.
    unit = quat_normalize(vector(quaternion)) if known is None else known / np.linalg.norm(known)
    mass, inertia = (
        nothing if body[key] is None else body[key]
        for key, nothing in (("mass", 0.0), ("inertia", (0.0, 0.0, 0.0)))
    )
    return mechanisms.SpatialBody(body["name"], mass, inertia, body["pose"]["place"], unit)


def orientation(pose: dict[str, Any]) -> Any:
    """Return the orientation of a start pose in space as an unnormalized quaternion wxyz (4,)."""
    if pose["rpy"] is None:
        return (1.0, 0.0, 0.0, 0.0) if pose["quaternion"] is None else pose["quaternion"]
    (sr, cr), (sp, cp), (sy, cy) = ((jnp.sin(0.5 * angle), jnp.cos(0.5 * angle)) for angle in pose["rpy"])
    # The product of the quaternions of the rotations about z, y and x.
    return (
        cr * cp * cy + sr * sp * sy,
        sr * cp * cy - cr * sp * sy,
        cr * sp * cy + sr * cp * sy,
        cr * cp * sy - sr * sp * cy,
    )


def described(element: dict[str, Any], space: str, ground: Any = None) -> Any:
    """Return a joint or force of `jaxdae.mechanisms` from plain values, which may be traced.

    Args:
        element: the keys and values of the joint or force.
        space: "plane" or "space".
        ground: the default terrain of elements that need a terrain.
    """
    given = {
        key: _motion(**value) if key == "motion" else value for key, value in element.items() if key != "type"
    }
    if "terrain" in given:
        given["terrain"] = ground if given["terrain"] is None else terrain(given["terrain"])
    return TYPES[space][element["type"]](**given)


def _described_drive(element: dict[str, Any], space: str) -> Any:
    """Return a drive of `jaxdae.mechanisms` from plain values, which may be traced."""
    return DRIVE_TYPES[space][element["type"]](
        **{key: value for key, value in element.items() if key != "type"}
    )


def _motion(type: str, **numbers: Any) -> Any:
    return _MOTIONS[type](**numbers)

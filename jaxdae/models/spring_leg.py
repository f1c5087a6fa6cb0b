"""The leg of the robot Cassie in its plane: a six-bar with two springs, and the parallelogram of the foot."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from jax import Array

from jaxdae.mechanisms import GROUND, Body, JointForce, Joints, Mechanism, Revolute, planar_mechanism
from jaxdae.models.model_dimensions import check_dimensions, meet
from jaxdae.models.parallel_robots import at_rest
from jaxdae.systems.system import State

_KNEE, _SHIN = (0.12, 0.0), (0.06068, 0.04741)
_HEEL, _HEEL_TIP = (-0.01269, -0.03059), (-0.1180833, 0.026175)
_CRANK, _CRANK_END, _PLANTAR, _FOOT_END = (0.058, -0.034), (0.055, 0.0), 0.35012, (0.05512, 0.006)
_ASIDE = 0.0361345
"""Distance of the ends of the Achilles rod perpendicular to the plane, in m."""

_BODIES = {
    "thigh": (5.52, (0.05946, 5e-05), 0.030257),
    "knee": (0.9438, (0.0469, 0.04266), 0.0051586),
    "shin": (0.577, (0.18338, 0.001169), 0.014707),
    "tarsus": (0.782, (0.11046, -0.03058), 0.013674),
    "heel_spring": (0.126, (-0.08747, 0.00048), 0.0002007),
    "achilles_rod": (0.1567, (0.24719, 0.0), 0.004488),
    "foot_crank": (0.1261, (0.00493, 2e-05), 6.3362e-05),
    "plantar_rod": (0.1186, (0.17792, 0.0), 0.001775),
    "foot": (0.1498, (0.00474, 0.02748), 0.00033261),
}
"""Mass in kg, mass center in the frame of the joint that carries the body in m, and inertia in kg m^2."""


def cassie_leg(
    *,
    shin: Any = (0.43476, 0.02),
    tarsus: Any = (0.408, -0.04),
    achilles_length: Any = 0.5012,
    stiffness: Any = (1500.0, 1250.0),
    angles: Any = (-1.0735, -1.1997, -1.5968),
    gravity: Any = (0.0, -9.81),
) -> tuple[Mechanism, State]:
    """Return a leg of Cassie in its plane and its state at rest. The hip is at the origin.

    The thigh, the knee, the shin, the tarsus, the heel spring and the Achilles rod are a six-bar with springs
    in the joints "shin" and "heel_spring". Without deflection of the springs, the angles of knee and tarsus
    add up to about 13 degrees. The foot crank and the plantar rod turn the foot by a parallelogram.

    All hinges are parallel. The reference defines the angles of knee and foot. The angle of the hip is the
    angle of the thigh against the x axis, -pi / 2 if the thigh is vertical. The ends of the Achilles rod have
    different distances from the plane, so its length in the plane is sqrt(achilles_length^2 - 0.0361345^2).

    - bodies: "thigh", "knee", "shin", "tarsus", "heel_spring", "achilles_rod", "foot_crank", "plantar_rod",
      "foot"; the spring of the knee belongs to "knee";
    - motors: "hip", "knee", "foot", with the coordinates "hip.angle" and so on and the inputs 0, 1, 2.

    Args:
        shin: joint of the tarsus on the shin (2,) in m.
        tarsus: joint of the foot on the tarsus (2,) in m.
        achilles_length: length of the Achilles rod in m.
        stiffness: stiffness of the springs of shin and heel (2,) in N m/rad.
        angles: start angles (3,) of hip, knee and foot in rad, without deflection of the springs.
        gravity: (2,) in m/s^2.

    Raises:
        ValueError: a length is not positive, or the rods do not close the loops at the start angles.

    References:
        MuJoCo Menagerie, model agility_cassie (MIT license), for dimensions, masses and stiffnesses. Y. Gong
        et al., "Feedback control of a Cassie bipedal robot: walking, standing, and riding a Segway", American
        Control Conference (2019), for the sum of the angles.
    """
    check_dimensions(*angles, achilles_length=achilles_length)
    hip = jnp.zeros((2,))
    thigh = jnp.asarray(angles[0], float)
    below = thigh + angles[1]
    knee = hip + _turned(_KNEE, thigh)
    spring = knee + _turned(_SHIN, below)
    ankle = spring + _turned(shin, below)
    length = jnp.sqrt(achilles_length**2 - _ASIDE**2)
    tip = meet("the Achilles rod", ankle, jnp.hypot(*_HEEL_TIP), hip, length)
    lower = _direction(tip - ankle) - jnp.arctan2(_HEEL_TIP[1], _HEEL_TIP[0])
    heel, toe, crank = (ankle + _turned(x, lower) for x in (_HEEL, tarsus, _CRANK))
    flat = lower + angles[2]
    end = toe + _turned(_FOOT_END, flat)
    elbow = meet("the plantar rod", end, _PLANTAR, crank, jnp.hypot(*_CRANK_END))
    turn = _direction(elbow - crank) - jnp.arctan2(_CRANK_END[1], _CRANK_END[0])
    frames = {
        "thigh": (hip, thigh),
        "knee": (knee, below),
        "shin": (spring, below),
        "tarsus": (ankle, lower),
        "heel_spring": (ankle, lower),
        "achilles_rod": (hip, _direction(tip - hip)),
        "foot_crank": (crank, turn),
        "plantar_rod": (elbow, _direction(end - elbow)),
        "foot": (toe, flat),
    }
    bodies = [
        Body(
            name,
            mass,
            inertia,
            jnp.append(frames[name][0] + _turned(center, frames[name][1]), frames[name][1]),
        )
        for name, (mass, center, inertia) in _BODIES.items()
    ]
    motor, soft = {"armature": 0.09344}, {"damping": 0.1}
    joints = [
        Revolute("hip", GROUND, "thigh", at=hip, **motor),
        Revolute("knee", "thigh", "knee", at=knee, **motor),
        Revolute("shin", "knee", "shin", at=spring, stiffness=stiffness[0], **soft),
        Revolute("tarsus", "shin", "tarsus", at=ankle),
        Revolute("heel_spring", "tarsus", "heel_spring", at=heel, stiffness=stiffness[1], **soft),
        Revolute("achilles_rod", "thigh", "achilles_rod", at=hip),
        Revolute("achilles", "achilles_rod", "heel_spring", at=tip),
        Revolute("foot", "tarsus", "foot", at=toe, armature=0.01225),
        Revolute("foot_crank", "tarsus", "foot_crank", at=crank),
        Revolute("plantar_rod", "foot_crank", "plantar_rod", at=elbow),
        Revolute("plantar", "plantar_rod", "foot", at=end),
    ]
    forces = [
        JointForce(f"{name}_torque", name, force=0.0, input=k)
        for k, name in enumerate(("hip", "knee", "foot"))
    ]
    form = Joints(cut=["achilles", "plantar"])
    found, q = planar_mechanism(bodies, joints, forces, gravity=gravity, coordinates=form)
    return found, at_rest(q, found)


def _turned(point: Any, angle: Any) -> Array:
    """Return a point (2,), turned about the origin."""
    x, y = point
    cos, sin = jnp.cos(angle), jnp.sin(angle)
    return jnp.stack([cos * x - sin * y, sin * x + cos * y])


def _direction(along: Array) -> Array:
    return jnp.arctan2(along[1], along[0])

"""Bodies, joints and forces in space, under the names that they have in the plane."""

from jaxdae.mechanisms.bodies import SpatialBody as Body
from jaxdae.mechanisms.forces.spatial import Bushing, Drag, Force, JointForce, LinearSpring, RotationalDamper, Torque
from jaxdae.mechanisms.joints.spatial import (
    Ball,
    ConstantVelocity,
    Cylindrical,
    Gear,
    Planar,
    PointOnLine,
    PointOnPlane,
    Prismatic,
    Revolute,
    Rod,
    Screw,
    Universal,
    Weld,
)

__all__ = [
    "Ball",
    "Body",
    "Bushing",
    "ConstantVelocity",
    "Cylindrical",
    "Drag",
    "Force",
    "Gear",
    "JointForce",
    "LinearSpring",
    "Planar",
    "PointOnLine",
    "PointOnPlane",
    "Prismatic",
    "Revolute",
    "Rod",
    "RotationalDamper",
    "Screw",
    "Torque",
    "Universal",
    "Weld",
]

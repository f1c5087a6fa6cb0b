"""Bodies, joints and forces in space, under the names that they have in the plane."""

from jaxdae.mechanisms.bodies import SpatialBody as Body
from jaxdae.mechanisms.forces.actuators import Actuator
from jaxdae.mechanisms.forces.spatial import Bushing, Drag, Force, JointForce, LinearSpring, Motor, RotationalDamper, Torque
from jaxdae.mechanisms.joints.relation import Relation
from jaxdae.mechanisms.joints.spatial import (
    Ball,
    BevelGear,
    ConstantVelocity,
    Cylindrical,
    Gear,
    Planar,
    PointOnCurve,
    PointOnLine,
    PointOnPlane,
    PointOnSurface,
    PrescribedMotion,
    Prismatic,
    RackAndPinion,
    Revolute,
    Rod,
    Screw,
    Universal,
    Weld,
)

__all__ = [
    "Actuator",
    "Ball",
    "BevelGear",
    "Body",
    "Bushing",
    "ConstantVelocity",
    "Cylindrical",
    "Drag",
    "Force",
    "Gear",
    "JointForce",
    "LinearSpring",
    "Motor",
    "Planar",
    "PointOnCurve",
    "PointOnLine",
    "PointOnPlane",
    "PointOnSurface",
    "PrescribedMotion",
    "Prismatic",
    "RackAndPinion",
    "Relation",
    "Revolute",
    "Rod",
    "RotationalDamper",
    "Screw",
    "Torque",
    "Universal",
    "Weld",
]

"""Mechanisms made of bodies, joints and forces; planar for now."""

from jaxdae.mechanisms.build import planar_mechanism
from jaxdae.mechanisms.mechanism import Mechanism
from jaxdae.mechanisms.motions import Polynomial, Sinusoid
from jaxdae.mechanisms.specs import (
    GROUND,
    Body,
    Force,
    Gear,
    JointForce,
    LinearSpring,
    PointOnLine,
    PrescribedMotion,
    Prismatic,
    Revolute,
    Rod,
    Torque,
    TorsionalSpring,
    Weld,
)

__all__ = [
    "GROUND",
    "Body",
    "Force",
    "Gear",
    "JointForce",
    "LinearSpring",
    "Mechanism",
    "PointOnLine",
    "Polynomial",
    "PrescribedMotion",
    "Prismatic",
    "Revolute",
    "Rod",
    "Sinusoid",
    "Torque",
    "TorsionalSpring",
    "Weld",
    "planar_mechanism",
]

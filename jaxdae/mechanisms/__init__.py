"""Mechanisms made of bodies, joints and forces; planar for now."""

from jaxdae.mechanisms.build import planar_mechanism
from jaxdae.mechanisms.describe import Body
from jaxdae.mechanisms.fields import GROUND
from jaxdae.mechanisms.forces.planar import Force, JointForce, LinearSpring, Torque, TorsionalSpring
from jaxdae.mechanisms.joints.planar import Gear, PointOnLine, Prismatic, RackAndPinion, Revolute, Rod, Skate, Weld
from jaxdae.mechanisms.joints.prescribed import PrescribedMotion
from jaxdae.mechanisms.mechanism import Mechanism
from jaxdae.mechanisms.motions import Polynomial, Sinusoid

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
    "RackAndPinion",
    "Revolute",
    "Rod",
    "Sinusoid",
    "Skate",
    "Torque",
    "TorsionalSpring",
    "Weld",
    "planar_mechanism",
]

"""Kinematics of closed chains: forward and inverse kinematics, motion along a path, and actuator efforts."""

from jaxdae.kinematics.closed_chain_efforts import ActuatorEfforts, actuator_efforts
from jaxdae.kinematics.closed_chains import (
    Branches,
    KinematicsInfo,
    branches,
    forward_kinematics,
    inverse_kinematics,
)
from jaxdae.kinematics.motion_along_paths import PathMotion, follow
from jaxdae.kinematics.targets import JointTarget, PoseTarget

__all__ = [
    "ActuatorEfforts",
    "Branches",
    "JointTarget",
    "KinematicsInfo",
    "PathMotion",
    "PoseTarget",
    "actuator_efforts",
    "branches",
    "follow",
    "forward_kinematics",
    "inverse_kinematics",
]

"""Kinematics and statics of closed chains, and calibration."""

from jaxdae.kinematics.calibration_fit import Calibration
from jaxdae.kinematics.closed_chain_efforts import ActuatorEfforts, actuator_efforts
from jaxdae.kinematics.closed_chains import (
    Branches,
    KinematicsInfo,
    branches,
    forward_kinematics,
    inverse_kinematics,
)
from jaxdae.kinematics.dimensional_synthesis import Synthesis, synthesize
from jaxdae.kinematics.equilibrium import static_equilibrium
from jaxdae.kinematics.geometric_calibration import calibrate
from jaxdae.kinematics.measured_efforts import MeasuredEfforts
from jaxdae.kinematics.motion_along_paths import PathMotion, follow
from jaxdae.kinematics.motor_transmission import Transmission, transmission
from jaxdae.kinematics.targets import JointTarget, PoseTarget
from jaxdae.kinematics.transmission_angles import transmission_angle
from jaxdae.kinematics.workspace_maps import Workspace, workspace

__all__ = [
    "ActuatorEfforts",
    "Branches",
    "Calibration",
    "JointTarget",
    "KinematicsInfo",
    "MeasuredEfforts",
    "PathMotion",
    "PoseTarget",
    "Synthesis",
    "Transmission",
    "Workspace",
    "actuator_efforts",
    "branches",
    "calibrate",
    "follow",
    "forward_kinematics",
    "inverse_kinematics",
    "static_equilibrium",
    "synthesize",
    "transmission",
    "transmission_angle",
    "workspace",
]

"""Robots from files: `load` returns the description of a mechanism, the start and a report."""

from jaxdae.robots.exchange import from_mujoco, from_pinocchio, to_mujoco, to_pinocchio
from jaxdae.robots.graph import Ignored, Keyframe, matrix_quaternion, quaternion_matrix
from jaxdae.robots.loading import ENDINGS, load
from jaxdae.robots.report import Carried, LinkFrame, Loop, Report, Robot
from jaxdae.robots.source import RobotFileError
from jaxdae.robots.states import joint_state

__all__ = [
    "ENDINGS",
    "Carried",
    "Ignored",
    "Keyframe",
    "LinkFrame",
    "Loop",
    "Report",
    "Robot",
    "RobotFileError",
    "from_mujoco",
    "from_pinocchio",
    "joint_state",
    "load",
    "matrix_quaternion",
    "quaternion_matrix",
    "to_mujoco",
    "to_pinocchio",
]

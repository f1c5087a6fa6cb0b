"""Robots from files: `load` returns the description of a mechanism, the start coordinates and a report."""

from jaxdae.robots.engine_states import from_mujoco, from_pinocchio, to_mujoco, to_pinocchio
from jaxdae.robots.joint_states import joint_state
from jaxdae.robots.link_outputs import CenterOfMass, LinkPlace
from jaxdae.robots.load_report import Carried, LinkFrame, Loop, Report, Robot
from jaxdae.robots.loading import ENDINGS, load
from jaxdae.robots.postures import Posture
from jaxdae.robots.quantities import (
    center_of_mass,
    center_of_mass_jacobian,
    centroidal_momentum,
    inverse_dynamics,
    link_acceleration,
    link_frame,
    link_jacobian,
    link_velocity,
    nonlinear_effects,
)
from jaxdae.robots.robot_graph import Ignored, Keyframe, matrix_quaternion, quaternion_matrix
from jaxdae.robots.robot_source import RobotFileError
from jaxdae.robots.visuals import Box, MeshFile, Rounded, Triangles, Visual, read_visuals

__all__ = [
    "ENDINGS",
    "Box",
    "Carried",
    "CenterOfMass",
    "Ignored",
    "Keyframe",
    "LinkFrame",
    "LinkPlace",
    "Loop",
    "MeshFile",
    "Posture",
    "Report",
    "Robot",
    "RobotFileError",
    "Rounded",
    "Triangles",
    "Visual",
    "center_of_mass",
    "center_of_mass_jacobian",
    "centroidal_momentum",
    "from_mujoco",
    "from_pinocchio",
    "inverse_dynamics",
    "joint_state",
    "link_acceleration",
    "link_frame",
    "link_jacobian",
    "link_velocity",
    "load",
    "matrix_quaternion",
    "nonlinear_effects",
    "quaternion_matrix",
    "read_visuals",
    "to_mujoco",
    "to_pinocchio",
]

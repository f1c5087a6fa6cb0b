"""Robots from files: `load` returns the description of a mechanism, the start and a report."""

from jaxdae.robots.graph import Ignored, Keyframe
from jaxdae.robots.loading import load
from jaxdae.robots.report import Carried, LinkFrame, Loop, Report, Robot
from jaxdae.robots.source import RobotFileError
from jaxdae.robots.states import joint_state

__all__ = ["Carried", "Ignored", "Keyframe", "LinkFrame", "Loop", "Report", "Robot", "RobotFileError", "joint_state", "load"]

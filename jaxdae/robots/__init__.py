"""Robots from files: `load` returns the description of a mechanism, the start and a report."""

from jaxdae.robots.loading import joint_state, load
from jaxdae.robots.model import Ignored, LinkFrame, Report, Robot
from jaxdae.robots.source import RobotFileError

__all__ = ["Ignored", "LinkFrame", "Report", "Robot", "RobotFileError", "joint_state", "load"]

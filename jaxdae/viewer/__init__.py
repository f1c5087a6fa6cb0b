"""Motions in a browser: scenes of mechanisms, single-file pages, and a live view.

Pages and live views need the extra `viewer`.
"""

from jaxdae.viewer.arrows import Arrows, contact_arrows, force_arrows, reaction_arrows
from jaxdae.viewer.live import Live, show
from jaxdae.viewer.meshes import Mesh
from jaxdae.viewer.page import write_html
from jaxdae.viewer.robot_parts import with_robot
from jaxdae.viewer.scenes import Link, Part, Scene, from_poses, scene
from jaxdae.viewer.stage import Look

__all__ = [
    "Arrows",
    "Link",
    "Live",
    "Look",
    "Mesh",
    "Part",
    "Scene",
    "contact_arrows",
    "force_arrows",
    "from_poses",
    "reaction_arrows",
    "scene",
    "show",
    "with_robot",
    "write_html",
]

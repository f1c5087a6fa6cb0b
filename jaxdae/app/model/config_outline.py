"""The drawing of a config's mechanism, for pictures of a run; see `jaxdae.viewer.outline`."""

from typing import Any

import numpy as np

from jaxdae.app.config.config_elements import orientation
from jaxdae.app.config.schema_mechanism import PlanarMechanism, SpatialMechanism
from jaxdae.viewer import outline as drawing
from jaxdae.viewer.outline import Outline, placed, shown


def outline(mechanism: PlanarMechanism | SpatialMechanism) -> Outline:
    """Return the drawing of the mechanism of a config, with points in the frames of its bodies."""
    poses = {body.name: start_pose(body) for body in mechanism.bodies}
    dimension = 2 if mechanism.space == "plane" else 3
    return drawing.outline(
        drawing.Drawn(dimension, mechanism.bodies, poses, mechanism.joints, mechanism.forces)
    )


def places(mechanism: PlanarMechanism | SpatialMechanism, poses: np.ndarray) -> np.ndarray:
    """Return the positions of all drawn points of a mechanism at poses (time, bodies, 3 or 7).

    The result has shape (time, points, dimension) in m. The ground is left out.
    """
    shape = outline(mechanism)
    points = [
        placed(poses[:, index], place)
        for index, name in enumerate(shape.bodies)
        for place in shown(shape, name)
    ]
    return np.stack(points, axis=1)


def start_pose(body: Any) -> np.ndarray:
    """Return the start pose of a body of a config, (3,) or (7,), with a unit quaternion."""
    if isinstance(body.pose, tuple):
        return np.asarray(body.pose, float)
    quaternion = np.asarray([float(entry) for entry in orientation(body.pose.model_dump())])
    return np.concatenate([body.pose.place, quaternion / np.linalg.norm(quaternion)])

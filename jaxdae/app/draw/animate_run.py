"""The animation of a run, for `jaxdae run --animate` and for the result of `jaxdae optimize`."""

import pathlib

import numpy as np

from jaxdae.app.config import safe_files
from jaxdae.app.config.problems import Failed
from jaxdae.app.config.schema import Config
from jaxdae.app.config.schema_mechanism import PlanarMechanism
from jaxdae.app.draw.animation import write_animation
from jaxdae.app.draw.picture_space import skeleton
from jaxdae.app.model.config_outline import outline
from jaxdae.app.runs import results, run_folder
from jaxdae.viewer.outline import Outline, placed, shown
from jaxdae.viewer.scenes import shown_instants

ANIMATION = "motion.gif"
"""The file name in the plots folder of a run."""

_GROUND = "on the ground"


def animate(folder: pathlib.Path, config: Config, written: list[list[int]] | None = None) -> pathlib.Path:
    """Write the motion of the nominal world of a run as a GIF among its plots, and return the file.

    Args:
        folder: the run folder.
        config: its config.
        written: the written extent of an interrupted run, as in its record.

    Raises:
        Failed: a disk error prevented the animation.
    """
    with results.read(folder / run_folder.RESULTS, written) as data:
        some = data.isel(world=0, time=shown_instants(data.time.values))
        poses = results.poses(
            data.isel(world=[0], time=shown_instants(data.time.values)), len(config.mechanism.bodies)
        ).values[0]
        times, status = some.time.values, some.status.values
    mechanism = config.mechanism
    lines = sheets(mechanism, poses) if mechanism.space == "plane" else skeleton(mechanism, poses)
    shape = outline(mechanism)
    lines |= _links(shape, poses)
    ground = shape.ground_points
    points = {_GROUND: np.array(ground)} if ground else {}
    place = folder / run_folder.PLOTS
    try:
        place.mkdir(exist_ok=True)
        return write_animation(
            place / ANIMATION,
            times,
            lines,
            points=points,
            status=dict.fromkeys(lines, status),
            title=config.title,
        )
    except OSError as error:
        raise Failed(safe_files.explained(error, place)) from error


def sheets(mechanism: PlanarMechanism, poses: np.ndarray) -> dict[str, np.ndarray]:
    """Return the lines of the bodies of a planar mechanism over time, for `write_animation`.

    Args:
        mechanism: the mechanism.
        poses: the poses of the bodies (time, bodies, 3).

    Returns:
        By body name, an array (time, vertices, 2) in m: the polygon through the joints of the body, or the
        line from its only joint to its center.
    """
    shape, lines = outline(mechanism), {}
    for index, name in enumerate(shape.bodies):
        corners = shape.bodies[name]
        around = (
            np.vstack([corners, corners[:1]])
            if len(corners) > 2
            else corners
            if len(corners) == 2
            else shown(shape, name)
        )
        lines[name] = np.stack([placed(poses[:, index], point) for point in around], axis=1)
    return lines


def _links(shape: Outline, poses: np.ndarray) -> dict[str, np.ndarray]:
    """Return the rods, springs and slides between bodies over time, (time, 2, dimension) in m."""
    numbers = {name: k for k, name in enumerate(shape.bodies)}

    def end(body: str, point: np.ndarray) -> np.ndarray:
        return placed(poses[:, numbers[body]], point) if body in numbers else np.tile(point, (len(poses), 1))

    links = enumerate(shape.links, 1)
    return {
        f"{kind} {k}": np.stack([end(a, point_a), end(b, point_b)], axis=1)
        for k, (kind, a, point_a, b, point_b) in links
    }

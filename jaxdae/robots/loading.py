"""Loading of robot files by file extension."""

from __future__ import annotations

import dataclasses
import math
import os
import pathlib
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

from jaxdae.base.suggestions import brief, join_first
from jaxdae.mechanisms.build_mechanism import Description
from jaxdae.mechanisms.describe.bodies import DescriptionWarning
from jaxdae.mechanisms.describe.numbers import hint
from jaxdae.robots.assemble_description import Options, assembled
from jaxdae.robots.file_contacts import with_contacts
from jaxdae.robots.file_limits import MOST_LINKS, MOST_LOOPS
from jaxdae.robots.load_report import Robot
from jaxdae.robots.postures import Posture
from jaxdae.robots.referenced_files import Folders
from jaxdae.robots.robot_graph import Graph
from jaxdae.robots.robot_loops import closed_start, in_graph
from jaxdae.robots.robot_source import RobotFileError, Source
from jaxdae.robots.sdf import read_sdf
from jaxdae.robots.urdf import read_urdf

_BASES = (None, "fixed", "floating")
PICTURES = ("visual", "collision", "material", "geom", "mesh", "texture", "camera", "light")
"""Elements for rendering and contact geometry, which `strict` ignores."""


def load(
    path: str | os.PathLike[str],
    base: str | None = None,
    loops: Sequence[Any] = (),
    *,
    strict: bool = False,
    gravity: Any = None,
    packages: Mapping[str, str | os.PathLike[str]] | None = None,
    limits: bool = False,
    dry_friction: bool = False,
    contacts: bool | Sequence[str] = False,
) -> Robot:
    """Return the robot of a file: (description, start, report).

    `jm.mechanism(description, jm.Joints())` builds the mechanism, as for a hand-written description. Joints
    have their names in the file, and bodies have link names. Links that are welded together form one body.
    The pose of the file is preserved; the root link of a URDF is at the origin of the world. Joints outside
    the spanning tree close loops (`description.loops`).

    Args:
        path: a file that ends in ".urdf", ".sdf" or, with the extra `robots`, ".xml" or ".mjcf".
        base: "fixed" for a fixed root link, "floating" for a free root link. The default is "fixed" for URDF,
            which does not define it, and the definition of the file for other formats.
        loops: loop joints of `jaxdae.mechanisms.spatial` that name links, with points and axes in the frames
            of links or, as `at`, in the world in the pose of the file; and names of joints in the file that
            close loops instead of carrying links.
        strict: whether unused elements of the file are an error; otherwise `report.ignored` lists them.
            Visual elements (`visual`, `collision`, `material`, `geom`, ...) are never an error.
        gravity: (3,) in m/s^2; by default the gravity of the file, or (0, 0, -9.81) if the file does not
            define it.
        packages: folders by the names in `package://` and `model://`. Only files in these folders and in the
            folder of the file are read.
        limits: whether the joints have the limits of the file, which steps with `contact.Touching` enforce.
            Otherwise, `report.limits` stores them.
        dry_friction: whether friction in joints is exact and sticks (`dry_friction`, for `contact.Touching`)
            instead of smooth (`friction`).
        contacts: whether the description has the contacts of the file, for `contact.Touching`: True for all
            pairs of collision shapes that the format lets touch, except on neighbors in the graph of joints,
            or names of shapes or links for pairs with one of them. In a URDF, the name "ground" adds the
            plane z = 0. Contacts are rigid, with the sliding friction and the restitution of the file.

    Warns:
        DescriptionWarning: angles that are probably in degrees where the format uses radians, or the
            opposite.

    Raises:
        RobotFileError: a ValueError that lists all mistakes in the file, each with its line.
        ModuleNotFoundError: an MJCF file without the extra `robots`.
        ValueError: another file extension, another base, loops with unknown links, or contacts with unknown
            names.
    """
    path = pathlib.Path(path)
    if path.suffix not in ENDINGS:
        raise ValueError(f"load: {brief(path.name)} must be a robot file that ends in {' or '.join(ENDINGS)}")
    if base not in _BASES:
        raise ValueError(f"load: base must be 'fixed' or 'floating', got {brief(base)}")
    folders = Folders(
        path.absolute().parent, {name: pathlib.Path(folder) for name, folder in (packages or {}).items()}
    )
    source, graph = _READERS[path.suffix](path, folders)
    source.at_most(MOST_LINKS, len(graph.links), "links")
    source.at_most(MOST_LINKS, len(graph.joints), "joints")
    source.at_most(
        MOST_LOOPS, len(graph.joints) - len(graph.links), "joints beyond one per link, which close loops"
    )
    unused = [one for one in graph.ignored if one.what not in PICTURES]
    if strict and unused:
        raise RobotFileError(
            [
                f"{path}:{one.line}: <{one.what}> is not used ({one.count} times); use strict=False to "
                "ignore it"
                for one in unused
            ]
        )
    known = [joint.name for joint in graph.joints]
    cut = tuple(loop for loop in loops if isinstance(loop, str))
    unknown = [name for name in cut if name not in known]
    if unknown:
        raise ValueError(
            f"load: loops names {brief(unknown[0])}, which is not a joint of "
            f"{path.name}{hint(unknown[0], known)}"
        )
    by_names = path.suffix == ".urdf"
    graph, others = in_graph(graph, [loop for loop in loops if not isinstance(loop, str)])
    found = assembled(
        source, graph, Options(base or ("fixed" if by_names else None), gravity, cut), others, by_names
    )
    elsewhere = bool(graph.couplings or graph.rows or "home" in found.report.keyframes)
    lines = {joint.name: joint.line for joint in (*graph.joints, *graph.couplings)}
    start, notes = closed_start(source, found.description, found.start, lines, elsewhere)
    source.end()
    beyond = [name for name, bounds in found.report.limits.items() if _is_beyond(start.get(name), bounds)]
    if beyond:
        notes = (*notes, f"the start violates the limits of: {join_first(beyond)}")
    description, enforced = (
        _with_limits(found.description, found.report.limits) if limits else (found.description, ())
    )
    report = dataclasses.replace(found.report, notes=(*found.report.notes, *notes), enforced=enforced)
    robot = Robot(_with_dry_friction(description) if dry_friction else description, Posture(start), report)
    if contacts:
        robot = with_contacts(robot, graph, contacts)
        source.end()
    if source.doubts:
        doubts = join_first(dict.fromkeys(source.doubts), "; ")
        report = dataclasses.replace(robot.report, notes=(*robot.report.notes, f"angles: {doubts}"))
        robot = robot._replace(report=report)
        warnings.warn(f"load: {path.name}: {doubts}", DescriptionWarning, stacklevel=2)
    return robot


def _with_limits(
    description: Description, limits: Mapping[str, Mapping[str, float]]
) -> tuple[Description, tuple[str, ...]]:
    """Return a description whose joints have their limits, and the names of these joints.

    Joints without a coordinate, and limits whose lower bound is not below the upper bound, remain unchanged.

    Args:
        description: the description of the robot.
        limits: the limits by joint: "lower" and "upper", and "lower2" and "upper2" of a second coordinate.
    """
    joints = {joint.name: _limited(joint, limits.get(joint.name, {})) for joint in description.joints}
    enforced = tuple(joint.name for joint in description.joints if joint is not joints[joint.name])
    return dataclasses.replace(description, joints=list(joints.values())), enforced


def _with_dry_friction(description: Description) -> Description:
    """Return a description whose joints have exact dry friction instead of smooth friction."""
    return dataclasses.replace(description, joints=[_dry(joint) for joint in description.joints])


def _limited(joint: Any, limits: Mapping[str, float]) -> Any:
    if "limits" not in joint.kinds():
        return joint
    pairs = [(limits.get(f"lower{k}"), limits.get(f"upper{k}")) for k in ("", "2")[: len(joint.coordinates)]]
    pairs += [(None, None)] * (len(joint.coordinates) - len(pairs))
    found = [None if pair == (None, None) or _is_empty(*pair) else pair for pair in pairs]
    if not any(found):
        return joint
    return dataclasses.replace(joint, limits=found[0] if len(found) == 1 else found)


def _is_empty(lower: float | None, upper: float | None) -> bool:
    return lower is not None and upper is not None and not lower < upper


def _dry(joint: Any) -> Any:
    if "dry_friction" not in joint.kinds():
        return joint
    return dataclasses.replace(
        joint, friction=0.0, friction_speed=joint.default_of("friction_speed"), dry_friction=joint.friction
    )


def _is_beyond(value: Any, limits: Mapping[str, float]) -> bool:
    """Return whether the value of a single-coordinate joint exceeds its limits by more than file rounding."""
    lower, upper = limits.get("lower", -math.inf), limits.get("upper", math.inf)
    return isinstance(value, float) and lower < upper and not lower - 1e-6 <= value <= upper + 1e-6


def _urdf(path: pathlib.Path, folders: Folders) -> tuple[Source, Graph]:
    return read_urdf(path)


def _mjcf(path: pathlib.Path, folders: Folders) -> tuple[Source, Graph]:
    # Import MuJoCo only if needed.
    from jaxdae.robots.mjcf import read_mjcf

    return read_mjcf(path, folders)


_READERS = {".urdf": _urdf, ".sdf": read_sdf, ".xml": _mjcf, ".mjcf": _mjcf}
ENDINGS = tuple(_READERS)
"""The file extensions of robot files."""

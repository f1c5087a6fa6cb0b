"""Robots as graphs of links and joints, whatever file they come from.

All links have a pose in the world: that of the file, where joints have the coordinates `at_file`. A joint has a frame of its own in both
of its links, with the axes that its type has in `jaxdae.mechanisms.spatial`.
"""

from __future__ import annotations

import dataclasses
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from jaxdae.mechanisms import GROUND
from jaxdae.mechanisms.coordinates.resistance import Pose, cross_matrix, turn

HERE = Pose(np.eye(3), np.zeros(3))


def roll_pitch_yaw(roll: float, pitch: float, yaw: float) -> np.ndarray:
    """Returns Rz(yaw) Ry(pitch) Rx(roll), as URDF and SDF have it."""
    return turn(np.eye(3)[2], yaw) @ turn(np.eye(3)[1], pitch) @ turn(np.eye(3)[0], roll)


def quaternion_matrix(wxyz: np.ndarray) -> np.ndarray:
    """Returns the rotation (3, 3) of a quaternion of any length but zero."""
    w, *xyz = wxyz / np.linalg.norm(wxyz)
    cross = cross_matrix(np.asarray(xyz))
    return np.eye(3) + 2.0 * w * cross + 2.0 * cross @ cross


def matrix_quaternion(matrix: np.ndarray) -> np.ndarray:
    """Returns the unit quaternion wxyz with w >= 0 of a rotation (3, 3): the row of q q^T with the largest diagonal, as a unit vector."""
    (xx, xy, xz), (yx, yy, yz), (zx, zy, zz) = matrix
    rows = np.asarray(
        [
            [1.0 + xx + yy + zz, zy - yz, xz - zx, yx - xy],
            [zy - yz, 1.0 + xx - yy - zz, xy + yx, xz + zx],
            [xz - zx, xy + yx, 1.0 - xx + yy - zz, yz + zy],
            [yx - xy, xz + zx, yz + zy, 1.0 - xx - yy + zz],
        ]
    )
    q = rows[np.argmax(np.diagonal(rows))]
    return q / np.linalg.norm(q) * (-1.0 if q[0] < 0.0 else 1.0)


def axes_with_z(axis: np.ndarray) -> np.ndarray:
    """Returns axes as columns (3, 3) with z along a direction."""
    z = axis / np.linalg.norm(axis)
    away = np.eye(3)[np.argmin(np.abs(z))]
    x = away - (away @ z) * z
    x /= np.linalg.norm(x)
    return np.stack([x, np.cross(z, x), z], axis=1)


@dataclasses.dataclass(frozen=True)
class Link:
    """A rigid link.

    Attributes:
        name: unique.
        line: in its file.
        pose: in the world, in the pose of the file.
        mass: in kg; zero for a frame without a body.
        center: of mass (3,) in the axes of the link, in m.
        inertia: about the mass center in the axes of the link (3, 3), in kg m^2.
        lifted: the part of its weight that something else carries, 0 for none of it.
    """

    name: str
    line: int
    pose: Pose = HERE
    mass: float = 0.0
    center: np.ndarray = dataclasses.field(default_factory=lambda: np.zeros(3))
    inertia: np.ndarray = dataclasses.field(default_factory=lambda: np.zeros((3, 3)))
    lifted: float = 0.0


@dataclasses.dataclass(frozen=True)
class Joint:
    """A joint between two links.

    Attributes:
        name: unique.
        line: in its file.
        kind: the type in `jaxdae.mechanisms.spatial`, `Weld` for none of motion.
        parent: the name of a link or "ground".
        child: the name of a link or "ground".
        in_parent: the frame of the joint in the parent.
        in_child: the frame of the joint in the child, which coincides with that in the parent where all coordinates are zero.
        numbers: further fields of the type: damping, lead and the like.
        limits: of the coordinate and of its rate and effort, by name.
        at_file: the coordinates in the pose of the file; none for balls.
        closes: whether the file says that it closes a loop, where other joints carry both links.
        wraps: whether it turns without limits, for engines that have two numbers for such an angle.
    """

    name: str
    line: int
    kind: Any
    parent: str
    child: str
    in_parent: Pose
    in_child: Pose
    numbers: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    limits: Mapping[str, float] = dataclasses.field(default_factory=dict)
    at_file: tuple[float, ...] = ()
    closes: bool = False
    wraps: bool = False


def joint_at(name: str, line: int, kind: Any, ends: tuple[str, str], links: Mapping[str, Link], frame: Pose, **options: Any) -> Joint:
    """Returns a joint whose frames coincide in the pose of the file, at a frame in the world."""
    in_parent, in_child = (frame.seen_from(HERE if end == GROUND else links[end].pose) for end in ends)
    joint = Joint(name, line, kind, *ends, in_parent, in_child, at_file=(0.0,) * len(kind.coordinates))
    return dataclasses.replace(joint, **options)


@dataclasses.dataclass(frozen=True)
class Coupling:
    """The coordinate of a joint is a polynomial of that of another one.

    Attributes:
        name: unique.
        line: in its file.
        joint: the joint that follows.
        other: the joint that is followed.
        coefficients: c0, c1, ...
        reference: what is taken from the coordinate before.
        other_reference: what is taken from the coordinate of the other joint before.
    """

    name: str
    line: int
    joint: str
    other: str
    coefficients: tuple[float, ...]
    reference: float = 0.0
    other_reference: float = 0.0


class Ignored(NamedTuple):
    """What a file has that nothing here uses: the element, the line where it is first, and how often it is there."""

    what: str
    line: int
    count: int


class Keyframe(NamedTuple):
    """A named state of a file.

    Attributes:
        positions: by the names of joints and free links, as `joint_state` takes them.
        rates: the same of velocities.
        controls: the inputs.
    """

    positions: dict[str, Any]
    rates: dict[str, Any]
    controls: tuple[float, ...]


@dataclasses.dataclass(frozen=True)
class Graph:
    """A robot as its file has it.

    Attributes:
        name: of the robot.
        links: by name, in the order of the file.
        joints: in the order of the file.
        couplings: between coordinates of joints.
        forces: elements of `jaxdae.mechanisms.spatial` that name links for bodies, with points and directions in the frames of links.
        frames: named frames that are no links: the link and the pose in it.
        gravity: (3,) in m/s^2, None where the file does not say.
        ignored: what was not used.
        notes: what else a user should know.
        keyframes: named states, in the coordinates of the file (qpos, qvel).
        controls: the names of the inputs.
        rows: further joints of `jaxdae.mechanisms.spatial` that name joints, such as prescribed motions.
        afloat: links that move freely by the file, whatever the base.
        floating: what acts on the velocities of free links, by link: fields of `Free`.
    """

    name: str
    links: Mapping[str, Link]
    joints: Sequence[Joint]
    couplings: Sequence[Coupling] = ()
    forces: Sequence[Any] = ()
    frames: Mapping[str, tuple[str, Pose]] = dataclasses.field(default_factory=dict)
    gravity: Any = None
    ignored: tuple[Ignored, ...] = ()
    notes: tuple[str, ...] = ()
    keyframes: Mapping[str, tuple[Any, Any, Any]] = dataclasses.field(default_factory=dict)
    controls: tuple[str, ...] = ()
    rows: Sequence[Any] = ()
    afloat: tuple[str, ...] = ()
    floating: Mapping[str, Mapping[str, float]] = dataclasses.field(default_factory=dict)


class Branch(NamedTuple):
    """How a link hangs on the tree: the link that carries it, the joint between them, and whether it leads from the child to the parent."""

    parent: str
    child: str
    joint: Joint
    reversed: bool


class Tree(NamedTuple):
    """A spanning tree of links.

    Attributes:
        branches: carriers before what they carry.
        loops: the joints that are no branches.
        free: the links that no joint connects to the ground, first ones of their trees.
    """

    branches: tuple[Branch, ...]
    loops: tuple[Joint, ...]
    free: tuple[str, ...]


def spanning(links: Sequence[str], joints: Sequence[Joint], cut: Sequence[str] = ()) -> Tree:
    """Returns the tree that grows breadth-first from the ground and then from each link that was not reached, in the order of the file.

    Args:
        links: names.
        joints: all joints; those that close loops by the file are no branches.
        cut: names of joints that are no branches either.
    """
    around: dict[str, list[Joint]] = {name: [] for name in (GROUND, *links)}
    for joint in joints:
        if not joint.closes and joint.name not in cut:
            around[joint.parent].append(joint)
            around[joint.child].append(joint)
    branches: list[Branch] = []
    reached, free = {GROUND}, []
    for root in (GROUND, *links):
        if root in reached and root != GROUND:
            continue
        if root != GROUND:
            free.append(root)
            reached.add(root)
        queue = deque([root])
        while queue:
            at = queue.popleft()
            for joint in around[at]:
                other = joint.child if joint.parent == at else joint.parent
                if other not in reached:
                    reached.add(other)
                    branches.append(Branch(at, other, joint, joint.child == at))
                    queue.append(other)
    used = {branch.joint.name for branch in branches}
    return Tree(tuple(branches), tuple(joint for joint in joints if joint.name not in used), tuple(free))

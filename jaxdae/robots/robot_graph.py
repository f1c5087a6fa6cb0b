"""Robots as graphs of links and joints, independent of the file format.

All links have a pose in the world: the pose of the file, where joints have the coordinates `at_file`. A joint
has its own frame in each of its two links, with the axes of its type in `jaxdae.mechanisms.spatial`.
"""

from __future__ import annotations

import dataclasses
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from jaxdae.mechanisms import GROUND


def cross_matrix(x: np.ndarray) -> np.ndarray:
    """Return the cross-product matrix (3, 3) of a vector."""
    return np.asarray([[0.0, -x[2], x[1]], [x[2], 0.0, -x[0]], [-x[1], x[0], 0.0]])


def turn(axis: np.ndarray, angle: float) -> np.ndarray:
    """Return the rotation matrix (3, 3) about a unit vector."""
    cross = cross_matrix(axis)
    return np.eye(3) + np.sin(angle) * cross + (1.0 - np.cos(angle)) * cross @ cross


class Pose(NamedTuple):
    """The pose of a frame in another frame: the rotation matrix (3, 3) and the position (3,) in m."""

    rotation: np.ndarray
    place: np.ndarray

    def then(self, inner: Pose) -> Pose:
        """Return the pose of a frame that has the pose `inner` in this frame."""
        return Pose(self.rotation @ inner.rotation, self.place + self.rotation @ inner.place)

    def seen_from(self, other: Pose) -> Pose:
        """Return the pose relative to another frame; both poses are relative to the same third frame."""
        return Pose(other.rotation.T @ self.rotation, other.rotation.T @ (self.place - other.place))


HERE = Pose(np.eye(3), np.zeros(3))


def roll_pitch_yaw(roll: float, pitch: float, yaw: float) -> np.ndarray:
    """Return Rz(yaw) Ry(pitch) Rx(roll), the convention of URDF and SDF."""
    return turn(np.eye(3)[2], yaw) @ turn(np.eye(3)[1], pitch) @ turn(np.eye(3)[0], roll)


def quaternion_matrix(wxyz: np.ndarray) -> np.ndarray:
    """Return the rotation matrix (3, 3) of a nonzero quaternion of any length."""
    w, *xyz = wxyz / np.linalg.norm(wxyz)
    cross = cross_matrix(np.asarray(xyz))
    return np.eye(3) + 2.0 * w * cross + 2.0 * cross @ cross


def matrix_quaternion(matrix: np.ndarray) -> np.ndarray:
    """Return the unit quaternion wxyz, w >= 0, of a rotation (3, 3), by the q q^T row of largest diagonal."""
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
    """Return axes as columns (3, 3), with z along a direction."""
    z = axis / np.linalg.norm(axis)
    away = np.eye(3)[np.argmin(np.abs(z))]
    x = away - (away @ z) * z
    x /= np.linalg.norm(x)
    return np.stack([x, np.cross(z, x), z], axis=1)


@dataclasses.dataclass(frozen=True)
class Link:
    """A rigid link.

    Attributes:
        name: unique name.
        line: line in its file.
        pose: world pose in the pose of the file.
        mass: in kg; zero for a frame without a body.
        center: mass center (3,) in the axes of the link, in m.
        inertia: inertia about the mass center in the axes of the link (3, 3), in kg m^2.
        lifted: fraction of its weight that is compensated, 0 for none.
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
        name: unique name.
        line: line in its file.
        kind: type in `jaxdae.mechanisms.spatial`; `Weld` for a fixed joint.
        parent: name of a link or "ground".
        child: name of a link or "ground".
        in_parent: frame of the joint in the parent.
        in_child: frame of the joint in the child, which coincides with the frame in the parent if all
            coordinates are zero.
        numbers: other fields of the type, such as damping and lead.
        limits: limits of the coordinate, its rate and its effort, by name.
        at_file: coordinates in the pose of the file; empty for balls.
        closes: whether the file declares it a loop joint between links that other joints carry.
        wraps: whether it turns without limits, for engines that use two numbers for such an angle.
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


def joint_at(
    name: str,
    line: int,
    kind: Any,
    ends: tuple[str, str],
    links: Mapping[str, Link],
    frame: Pose,
    **options: Any,
) -> Joint:
    """Return a joint whose frames coincide with a world frame in the pose of the file."""
    in_parent, in_child = (frame.seen_from(HERE if end == GROUND else links[end].pose) for end in ends)
    joint = Joint(name, line, kind, *ends, in_parent, in_child, at_file=(0.0,) * len(kind.coordinates))
    return dataclasses.replace(joint, **options)


@dataclasses.dataclass(frozen=True)
class Coupling:
    """A coordinate of a joint that is a polynomial of the coordinate of another joint.

    Attributes:
        name: unique name.
        line: line in its file.
        joint: the follower joint.
        other: the driver joint.
        coefficients: c0, c1, ...
        reference: offset that is subtracted from the coordinate of the follower.
        other_reference: offset that is subtracted from the coordinate of the driver.
    """

    name: str
    line: int
    joint: str
    other: str
    coefficients: tuple[float, ...]
    reference: float = 0.0
    other_reference: float = 0.0


class Ignored(NamedTuple):
    """An unused item of a file: the element, its first line, and its number of occurrences."""

    what: str
    line: int
    count: int


class Keyframe(NamedTuple):
    """A named state of a file.

    Attributes:
        positions: positions by the names of joints and free links, in the form of `joint_state`.
        rates: velocities by the same names.
        controls: the inputs.
    """

    positions: dict[str, Any]
    rates: dict[str, Any]
    controls: tuple[float, ...]


class Geom(NamedTuple):
    """A collision shape of a link.

    Attributes:
        name: unique name.
        link: name of the link.
        shape: a shape of `jaxdae.contact` without its pose, or None if contacts do not support it.
        pose: the pose of the shape in the link.
        kind: the name of its type in the file, such as "mesh".
    """

    name: str
    link: str
    shape: Any
    pose: Pose
    kind: str


class GeomPair(NamedTuple):
    """Two collision shapes that may touch, with their coefficients.

    Attributes:
        a: the first shape.
        b: the second shape.
        friction: the friction coefficient.
        explicit: whether the file lists the pair; such a pair is never filtered.
        restitution: the coefficient of restitution.
        by_name: whether only the name of a shape or link selects the pair.
    """

    a: Geom
    b: Geom
    friction: float
    explicit: bool = False
    restitution: float = 0.0
    by_name: bool = False


class FileContacts(NamedTuple):
    """The contacts of a file.

    Attributes:
        pairs: the pairs of collision shapes that may touch, including pairs without a contact function.
        used: the items of `Graph.ignored` that contacts use.
        ignored: unused items of the collision shapes.
    """

    pairs: list[GeomPair]
    used: tuple[str, ...]
    ignored: tuple[Ignored, ...] = ()


@dataclasses.dataclass(frozen=True)
class Graph:
    """A robot as its file defines it.

    Attributes:
        name: name of the robot.
        links: links by name, in the order of the file.
        joints: joints in the order of the file.
        couplings: couplings between joint coordinates.
        forces: elements of `jaxdae.mechanisms.spatial` that name links as bodies, with points and directions
            in the frames of the links.
        frames: named frames other than links: the link and the pose in it.
        gravity: (3,) in m/s^2, or None if the file does not define it.
        ignored: unused items.
        notes: other notes for the user.
        keyframes: named states, in the coordinates of the file (qpos, qvel).
        controls: names of the inputs.
        rows: additional joints of `jaxdae.mechanisms.spatial` that name joints, such as prescribed motions.
        afloat: links that are free in the file, regardless of the base.
        floating: forces on the velocities of free links, by link: fields of `Free`.
        contacts: returns the contacts of the file, and reports mistakes in them.
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
    contacts: Callable[[], FileContacts] = lambda: FileContacts([], ())


class Branch(NamedTuple):
    """A branch of the tree: parent link, child link, joint, and whether it leads from child to parent."""

    parent: str
    child: str
    joint: Joint
    reversed: bool


class Tree(NamedTuple):
    """A spanning tree of links.

    Attributes:
        branches: branches, parents before children.
        loops: joints outside the tree.
        free: root links of the trees without a joint to the ground.
    """

    branches: tuple[Branch, ...]
    loops: tuple[Joint, ...]
    free: tuple[str, ...]


def spanning(links: Sequence[str], joints: Sequence[Joint], cut: Sequence[str] = ()) -> Tree:
    """Return the breadth-first tree from the ground, then from each unreached link in the order of the file.

    Args:
        links: names of the links.
        joints: all joints. Joints that the file declares as loop joints are not branches.
        cut: names of other joints that are not branches.
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

"""Whether the bodies of a tree resist all of its motions: whether its mass matrix is positive definite.

With the twists of bodies about the origin, V = (omega, velocity of what is at the origin), the motion of a body is the sum S_j v_j over the
links that carry it. With I^c the spatial inertia about the origin of all that link j carries,

    M_jj = S_j^T I^c S_j + armature_j,      D_j = S_j^T I^A S_j + armature_j.

I^A is the articulated inertia, what resists when the links that j carries are free: from the leaves on, each of these takes away
I^A S S^T I^A / D, and what is left counts for its carrier. D_j is the pivot of M when it is eliminated from the leaves: where it is not
positive, beside M_jj, link j has nothing to move. Single bodies may go without mass, such as between the hinges of a wrist.

References:
    R. Featherstone, "Rigid Body Dynamics Algorithms" (2008), chapter 7.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from jaxdae.mechanisms.coordinates.links import AXIS, BALL, COORDINATES, PLACE, VELOCITIES
from jaxdae.mechanisms.values import concrete

LEAST = 1e-13
"""The least pivot of the mass matrix with a diagonal of ones: below it M is singular to the digits that there are."""


def spatial_inertia(mass: float, center: np.ndarray, inertia: np.ndarray) -> np.ndarray:
    """Returns the inertia (6, 6) about the origin, angular before linear, of a body with its mass center and inertia in the world."""
    arm = cross_matrix(center)
    return np.block([[inertia + mass * arm @ arm.T, mass * arm], [mass * arm.T, mass * np.eye(3)]])


def cross_matrix(x: np.ndarray) -> np.ndarray:
    """Returns the matrix (3, 3) of the cross product with a vector."""
    return np.asarray([[0.0, -x[2], x[1]], [x[2], 0.0, -x[0]], [-x[1], x[0], 0.0]])


def turn(axis: np.ndarray, angle: float) -> np.ndarray:
    """Returns the rotation (3, 3) about a unit vector."""
    cross = cross_matrix(axis)
    return np.eye(3) + np.sin(angle) * cross + (1.0 - np.cos(angle)) * cross @ cross


class Pose(NamedTuple):
    """A frame in another: rotation (3, 3) to its axes, place (3,) in m."""

    rotation: np.ndarray
    place: np.ndarray

    def then(self, inner: Pose) -> Pose:
        """Returns where a frame is that has a pose in this one."""
        return Pose(self.rotation @ inner.rotation, self.place + self.rotation @ inner.place)

    def seen_from(self, other: Pose) -> Pose:
        """Returns the pose in another frame, both given in a third."""
        return Pose(other.rotation.T @ self.rotation, other.rotation.T @ (self.place - other.place))


def without_inertia(
    carriers: Sequence[int], own: Sequence[np.ndarray], bodies: Mapping[int, np.ndarray], armature: Sequence[float]
) -> list[int]:
    """Returns the numbers of the joints that have nothing to move.

    Args:
        carriers: the joint that carries each of them, carriers first, -1 for the ground.
        own: the motions of each (6, k).
        bodies: the spatial inertia of what each carries by itself, by its number.
        armature: of each, in kg m^2 or kg.
    """
    # Of all that a joint carries: I^c, moving as one body, and I^A, whose joints are free.
    whole = np.zeros((len(own), 6, 6))
    for k, inertia in bodies.items():
        whole[k] = inertia
    freed = whole.copy()
    failed = set()
    for k in reversed(range(len(own))):
        for motion in reversed(own[k].T):
            resisting = freed[k] @ motion
            pivot, diagonal = motion @ resisting + armature[k], motion @ whole[k] @ motion + armature[k]
            if pivot > LEAST * abs(diagonal) and diagonal > 0.0:
                freed[k] -= np.outer(resisting, resisting) / pivot
            else:
                failed.add(k)
        if carriers[k] >= 0:
            whole[carriers[k]] += whole[k]
            freed[carriers[k]] += freed[k]
    return sorted(failed)


def lack(masses: Sequence[Any], moments: Sequence[Any]) -> bool:
    """Returns whether bodies lack mass or inertia, as far as is known; where none does M is positive definite anyway."""
    known = [x for x in map(concrete, masses) if x is not None], [x for x in map(concrete, moments) if x is not None]
    return any(m == 0.0 for m in known[0]) or any((np.linalg.eigvalsh(_tensor(i))[0] if i.ndim else i) <= 0.0 for i in known[1])


def unresisted(form: Any, q: Any, masses: Sequence[Any], moments: Sequence[Any]) -> tuple[list[str], list[str]] | None:
    """Returns which joints of a tree have nothing to move: in general, and those that have nothing at q alone.

    Args:
        form: the coordinates of the tree, a `TreeCoordinates`.
        q: (nq,) at the start.
        masses: of the bodies, in kg.
        moments: of the bodies, () in the plane, (3,) or (3, 3) in space, in kg m^2.

    Returns:
        Names of joints, of bodies that move freely their own; None where numbers are traced.
    """
    known = [(concrete(mass), concrete(moment)) for mass, moment in zip(masses, moments, strict=True)]
    own = [(float(mass), _tensor(moment)) for mass, moment in known if mass is not None and moment is not None]
    if len(own) < len(known):
        return None
    numbers = [x for given in (form.fixed, form.held, form.turning, form.sliding, form.armature, q) if (x := concrete(given)) is not None]
    if len(numbers) < 6:
        return None
    fixed, held, turning, sliding, armature, start = numbers
    links = [_pose(entries) for entries in fixed.T], [_pose(entries) for entries in held.T]
    axes = [_solid(x, y) for x, y in zip(turning, sliding, strict=True)]
    at_start, elsewhere = (_failing(form.structure, links, axes, armature, own, start, by) for by in (0.0, 1.0))
    owners = [form.structure.joint_names[form.structure.joints[k]] for k in range(form.structure.count)]
    always = dict.fromkeys(owners[k] for k in at_start if k in elsewhere)
    return list(always), [name for name in dict.fromkeys(owners[k] for k in at_start) if name not in always]


def _failing(structure: Any, links: Any, axes: Any, armature: Any, own: Any, q: Any, by: float) -> list[int]:
    """Returns the links that have nothing to move at q, or somewhere else, `by` rad and m from it."""
    fixed, held = links
    poses: list[Pose] = []
    motions, stiff = [], []
    in_q, in_v = (structure.starts(sizes) for sizes in (COORDINATES, VELOCITIES))
    for k, kind in enumerate(structure.kinds):
        parent = structure.parents[k]
        at = fixed[k] if parent == structure.count else poses[parent].then(fixed[k])
        # Numbers that are in no simple relation to each other.
        value = q[in_q[k] : in_q[k] + COORDINATES[kind]] + (by * np.sin(1.0 + 2.3 * k) if kind == AXIS else 0.0)
        own_axes = axes[in_v[k] : in_v[k] + VELOCITIES[kind]]
        motions.append((at, own_axes))
        stiff.append(float(np.min(armature[in_v[k] : in_v[k] + VELOCITIES[kind]])))
        poses.append(at.then(_moved(kind, value, own_axes, by)))
    bodies = [poses[link].then(pose) if link < structure.count else pose for link, pose in zip(structure.body_links, held, strict=True)]
    # Near the bodies, so that arms are short.
    origin = np.mean([pose.place for pose in bodies], axis=0)
    columns = [
        np.stack(
            [np.concatenate([at.rotation @ w, at.rotation @ s + np.cross(at.place - origin, at.rotation @ w)]) for w, s in pairs], axis=1
        )
        for at, pairs in motions
    ]
    inertia: dict[int, np.ndarray] = {}
    for link, pose, (mass, tensor) in zip(structure.body_links, bodies, own, strict=True):
        if link < structure.count:
            turned = pose.rotation @ tensor @ pose.rotation.T
            inertia[link] = inertia.get(link, 0.0) + spatial_inertia(mass, pose.place - origin, turned)
    carriers = [-1 if parent == structure.count else parent for parent in structure.parents]
    return without_inertia(carriers, columns, inertia, stiff)


def _moved(kind: str, value: np.ndarray, axes: Sequence[Any], by: float) -> Pose:
    """Returns the motion of a link by its coordinates; orientations are turned `by` rad more."""
    if kind == PLACE:
        return Pose(np.eye(3), value)
    if kind == BALL:
        w, *xyz = value / np.linalg.norm(value)
        cross = cross_matrix(np.asarray(xyz))
        return Pose((np.eye(3) + 2.0 * w * cross + 2.0 * cross @ cross) @ turn(np.asarray([0.6, 0.0, 0.8]), by), np.zeros(3))
    ((turning, sliding),) = axes
    angle = float(np.linalg.norm(turning))
    rotation = turn(turning / angle, angle * float(value[0])) if angle > 0.0 else np.eye(3)
    return Pose(rotation, value[0] * sliding)


def _pose(entries: np.ndarray) -> Pose:
    """Returns a frame, of the plane or of space, from its entries."""
    if len(entries) == 12:
        return Pose(entries[3:].reshape(3, 3), entries[:3])
    x, y, _, cos, sin = entries
    return Pose(np.asarray([[cos, -sin, 0.0], [sin, cos, 0.0], [0.0, 0.0, 1.0]]), np.asarray([x, y, 0.0]))


def _solid(turning: Any, sliding: Any) -> tuple[np.ndarray, np.ndarray]:
    """Returns a motion of the plane as one of space, motions of space as they are."""
    if np.ndim(turning) == 1:
        return turning, sliding
    return np.asarray([0.0, 0.0, float(turning)]), np.asarray([*sliding, 0.0])


def _tensor(moments: np.ndarray) -> np.ndarray:
    """Returns inertia as a tensor (3, 3); in the plane only its last entry is known."""
    if moments.ndim == 0:
        return np.diag([0.0, 0.0, float(moments)])
    return np.diag(moments) if moments.ndim == 1 else moments

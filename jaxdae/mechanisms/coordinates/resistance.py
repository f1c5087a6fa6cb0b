"""Test whether the mass matrix of a tree is positive definite: whether the bodies resist every motion.

Take the twists of bodies about the origin, V = (omega, velocity of the point at the origin). The motion of a
body is the sum of S_j v_j over the links that carry it. With the composite spatial inertia I^c of the subtree
of link j, about the origin,

    M_jj = S_j^T I^c S_j + armature_j,      D_j = S_j^T I^A S_j + armature_j.

I^A is the articulated inertia: the inertia of the subtree whose joints are free to move. The recursion starts
at the leaves. Each joint subtracts I^A S S^T I^A / D, and the remainder adds to the inertia of the parent.
D_j is the pivot of M in an elimination that starts at the leaves. If D_j is not positive relative to M_jj,
joint j has no inertia to move. Single bodies may lack mass, for example between the hinges of a wrist.

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
"""The smallest pivot of a mass matrix with unit diagonal; below it, M is singular to working precision."""


def spatial_inertia(mass: float, center: np.ndarray, inertia: np.ndarray) -> np.ndarray:
    """Return the spatial inertia (6, 6) of a body about the origin, with angular components first.

    The mass center and the inertia are in world axes.
    """
    arm = cross_matrix(center)
    return np.block([[inertia + mass * arm @ arm.T, mass * arm], [mass * arm.T, mass * np.eye(3)]])


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


def without_inertia(
    carriers: Sequence[int], own: Sequence[np.ndarray], bodies: Mapping[int, np.ndarray], armature: Sequence[float]
) -> list[int]:
    """Return the indices of the joints that have no inertia to move.

    Args:
        carriers: the parent joint of each joint, parents first, -1 for the ground.
        own: the motion subspaces of the joints (6, k).
        bodies: the spatial inertia that each joint carries without its child joints, by the index of the
            joint.
        armature: the armature of each joint, in kg m^2 or kg.
    """
    # The inertias of the subtree of each joint: `whole` is I^c (a rigid subtree), `freed` is I^A (free
    # joints).
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
    """Return whether a known mass or moment of inertia is zero; without any, M is positive definite."""
    known = [x for x in map(concrete, masses) if x is not None], [x for x in map(concrete, moments) if x is not None]
    return any(m == 0.0 for m in known[0]) or any((np.linalg.eigvalsh(_tensor(i))[0] if i.ndim else i) <= 0.0 for i in known[1])


def unresisted(form: Any, q: Any, masses: Sequence[Any], moments: Sequence[Any]) -> tuple[list[str], list[str]] | None:
    """Return the tree joints that have no inertia to move: in general, and at q only.

    Args:
        form: the coordinates of the tree, a `TreeCoordinates`.
        q: the coordinates (nq,) at the start.
        masses: the masses of the bodies, in kg.
        moments: the moments of inertia of the bodies, () in the plane, (3,) or (3, 3) in space, in kg m^2.

    Returns:
        The names of the joints (a free body uses its own name), or None if any value is traced.
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
    """Return the links that have no inertia to move, at coordinates offset from q by `by` rad and m."""
    fixed, held = links
    poses: list[Pose] = []
    motions, stiff = [], []
    in_q, in_v = (structure.starts(sizes) for sizes in (COORDINATES, VELOCITIES))
    for k, kind in enumerate(structure.kinds):
        parent = structure.parents[k]
        at = fixed[k] if parent == structure.count else poses[parent].then(fixed[k])
        # Offsets that have no simple ratios.
        value = q[in_q[k] : in_q[k] + COORDINATES[kind]] + (by * np.sin(1.0 + 2.3 * k) if kind == AXIS else 0.0)
        own_axes = axes[in_v[k] : in_v[k] + VELOCITIES[kind]]
        motions.append((at, own_axes))
        stiff.append(float(np.min(armature[in_v[k] : in_v[k] + VELOCITIES[kind]])))
        poses.append(at.then(_moved(kind, value, own_axes, by)))
    bodies = [poses[link].then(pose) if link < structure.count else pose for link, pose in zip(structure.body_links, held, strict=True)]
    # Choose an origin near the bodies to keep the lever arms short.
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
    """Return the displacement of a link by its coordinates; orientations rotate by `by` rad more."""
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
    """Return the pose of a planar or spatial frame from its entries."""
    if len(entries) == 12:
        return Pose(entries[3:].reshape(3, 3), entries[:3])
    x, y, _, cos, sin = entries
    return Pose(np.asarray([[cos, -sin, 0.0], [sin, cos, 0.0], [0.0, 0.0, 1.0]]), np.asarray([x, y, 0.0]))


def _solid(turning: Any, sliding: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return a planar motion as a spatial motion; spatial motions are unchanged."""
    if np.ndim(turning) == 1:
        return turning, sliding
    return np.asarray([0.0, 0.0, float(turning)]), np.asarray([*sliding, 0.0])


def _tensor(moments: np.ndarray) -> np.ndarray:
    """Return the inertia as a tensor (3, 3); in the plane only the last entry is known."""
    if moments.ndim == 0:
        return np.diag([0.0, 0.0, float(moments)])
    return np.diag(moments) if moments.ndim == 1 else moments

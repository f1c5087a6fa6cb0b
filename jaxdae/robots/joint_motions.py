"""The mass matrix of a robot tree in the pose of its file, to find motions without inertia.

The motion of a link about a common origin is a spatial vector (omega, velocity of the point at the origin).
With the motion subspace S_j of velocity j and the composite inertia I_k of the subtree of link k,
M_jk = S_j . I_k S_k if link k is in the subtree of link j.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from jaxdae.robots.robot_graph import Pose, cross_matrix, turn


def spatial_inertia(mass: float, center: np.ndarray, inertia: np.ndarray) -> np.ndarray:
    """Return the spatial inertia (6, 6) of a body about the origin, with angular components first.

    The mass center and the inertia are in world axes.
    """
    arm = cross_matrix(center)
    return np.block([[inertia + mass * arm @ arm.T, mass * arm], [mass * arm.T, mass * np.eye(3)]])


def columns(steps: Sequence[Any], at: Pose, values: Any) -> tuple[np.ndarray, Pose]:
    """Return the motions (6, k) of the child link of a joint about the origin, and the frame after the joint.

    Args:
        steps: motion steps of the joint.
        at: joint frame in the parent link, in world coordinates.
        values: one number per step, used for axes.
    """
    found = []
    for step, value in zip(steps, values, strict=True):
        if step.kind == "axis":
            turning, sliding = (np.asarray(part, float) for part in (step.turning, step.sliding))
            pairs = [(turning, sliding)]
        else:
            pairs = [(axis, 0.0 * axis) if step.kind == "ball" else (0.0 * axis, axis) for axis in np.eye(3)]
        for turning, sliding in pairs:
            omega = at.rotation @ turning
            found.append(np.concatenate([omega, at.rotation @ sliding + np.cross(at.place, omega)]))
        if step.kind == "axis":
            angle = float(np.linalg.norm(turning))
            rotation = turn(np.asarray(turning / angle), angle * value) if angle > 0.0 else np.eye(3)
            at = at.then(Pose(rotation, value * sliding))
    return np.asarray(found, float).reshape(-1, 6).T, at


def mass_matrix(
    carriers: Sequence[int],
    own: Sequence[np.ndarray],
    bodies: Mapping[int, np.ndarray],
    armature: Sequence[float],
) -> np.ndarray:
    """Return the mass matrix (nv, nv) of a tree, in the order of its joints.

    Args:
        carriers: the parent joint of each joint, parents first, -1 for the ground.
        own: the motion subspaces of the joints (6, k).
        bodies: the spatial inertia that each joint carries without its child joints, by the index of the
            joint.
        armature: the armature of each joint, in kg m^2 or kg.
    """
    composite = np.zeros((len(own), 6, 6))
    for k, inertia in bodies.items():
        composite[k] = inertia
    starts = np.cumsum([0, *(motions.shape[1] for motions in own)])
    matrix = np.diag(np.repeat(np.asarray(armature, float), np.diff(starts)))
    for k in reversed(range(len(own))):
        momenta, columns, j = composite[k] @ own[k], slice(starts[k], starts[k + 1]), k
        while j >= 0:
            block = own[j].T @ momenta
            matrix[starts[j] : starts[j + 1], columns] += block
            if j != k:
                matrix[columns, starts[j] : starts[j + 1]] += block.T
            j = carriers[j]
        if carriers[k] >= 0:
            composite[carriers[k]] += composite[k]
    return matrix

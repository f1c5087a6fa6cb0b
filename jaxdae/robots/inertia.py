"""Whether the bodies of a robot have enough mass and inertia: whether its mass matrix is positive definite.

With the twists of links about the origin, V = (omega, velocity of what is at the origin), the motion of a body is the sum S_j v_j over the
joints that carry it. With I^c the spatial inertia about the origin of all that joint j carries,

    M_jj = S_j^T I^c S_j + armature_j,      D_j = S_j^T I^A S_j + armature_j.

I^A is the articulated inertia, what resists when the joints that j carries are free: from the leaves on, each of these takes away
I^A S S^T I^A / D, and what is left counts for its carrier. D_j is the pivot of M when it is eliminated from the leaves: where it is not
positive, beside M_jj, joint j has nothing to move. Single bodies may go without mass, such as between the hinges of a wrist.

References:
    R. Featherstone, "Rigid Body Dynamics Algorithms" (2008), chapter 7.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from jaxdae.robots.graph import Pose, cross_matrix, turn

LEAST = 1e-13
"""The least pivot of the mass matrix with a diagonal of ones: below it M is singular to the digits that there are."""


def spatial_inertia(mass: float, center: np.ndarray, inertia: np.ndarray) -> np.ndarray:
    """Returns the inertia (6, 6) about the origin, angular before linear, of a body with its mass center and inertia in the world."""
    arm = cross_matrix(center)
    return np.block([[inertia + mass * arm @ arm.T, mass * arm], [mass * arm.T, mass * np.eye(3)]])


def columns(steps: Sequence[Any], at: Pose, values: Any) -> tuple[np.ndarray, Pose]:
    """Returns the motions (6, k) of the links of a joint about the origin, and the frame behind them.

    Args:
        steps: of the joint.
        at: its frame in what carries it, in the world.
        values: one number a step, used for axes.
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

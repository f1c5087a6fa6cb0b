"""Whether the bodies of a robot have enough mass and inertia: whether its mass matrix is positive definite.

With the twists of links about the origin, V = (omega, velocity of what is at the origin), the motion of a body is the sum S_j v_j over the
joints that carry it, and

    M = sum over bodies J_b^T I_b J_b,      J_b: the columns S_j of those that carry b,      I_b: its spatial inertia about the origin.

Eliminating from the leaves, as the articulated-body algorithm does, the pivot of a velocity is the inertia that it moves when all that it
carries is free: what is not positive there, beside M_jj, names a joint with nothing to move. Single bodies may go without mass, such as
between the hinges of a wrist.

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
    size = sum(part.shape[1] for part in own)
    starts = np.concatenate([[0], np.cumsum([part.shape[1] for part in own])]).astype(int)
    jacobians: dict[int, np.ndarray] = {-1: np.zeros((6, size))}
    mass = np.zeros((size, size))
    for k, part in enumerate(own):
        jacobians[k] = jacobians[carriers[k]].copy()
        jacobians[k][:, starts[k] : starts[k + 1]] = part
        if k in bodies:
            mass += jacobians[k].T @ bodies[k] @ jacobians[k]
        mass[range(starts[k], starts[k + 1]), range(starts[k], starts[k + 1])] += armature[k]
    diagonal = np.diag(mass).copy()
    failed = set()
    for row in reversed(range(size)):
        joint = int(np.searchsorted(starts, row, side="right")) - 1
        if not mass[row, row] > LEAST * abs(diagonal[row]) or not diagonal[row] > 0.0:
            failed.add(joint)
            continue
        column = mass[:row, row].copy()
        mass[:row, :row] -= np.outer(column, column) / mass[row, row]
    return sorted(failed)

"""The motions of links about the axes of robot joints.

The moved inertia must resist each motion; see `jaxdae.mechanisms.coordinates.resistance`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from jaxdae.robots.graph import Pose, turn


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

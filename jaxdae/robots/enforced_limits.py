"""Limits and exact dry friction of the joints of a robot file, as fields of its description."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from jaxdae.mechanisms.build_mechanism import Description


def with_limits(
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


def with_dry_friction(description: Description) -> Description:
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

"""Joints, forces and contacts that name links as bodies, with their geometry in the frames of the links."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from jaxdae.mechanisms import SPACE
from jaxdae.mechanisms.contacts.contact_elements import Pair
from jaxdae.mechanisms.describe.kinds import Kind
from jaxdae.robots.load_report import LinkFrame
from jaxdae.robots.robot_graph import Pose, matrix_quaternion, quaternion_matrix


def on_bodies(element: Any, frames: Mapping[str, LinkFrame]) -> Any:
    """Return a joint, force or contact that names bodies, from an element that may name links and frames.

    Points, directions, axes and shapes move from the frame of the link to the frame of its body; world
    positions do not change. Names that are not links are names of bodies and do not change either.

    Args:
        element: an element of `jaxdae.mechanisms.spatial`, or a `jaxdae.contact.Pair`.
        frames: poses of the links in their bodies, by name.
    """
    if isinstance(element, Pair):
        return _pair_on_bodies(element, frames)
    return dataclasses.replace(element, **changes(element.kinds(SPACE), vars(element), frames))


def shape_in_body(shape: Any, pose: Pose, frame: LinkFrame) -> Any:
    """Return a collision shape at a pose in the frame of a link, with its pose in the frame of the body."""
    pose = Pose(frame.rotation, frame.place).then(pose)
    quaternion = tuple(matrix_quaternion(pose.rotation).tolist())
    return dataclasses.replace(shape, at=tuple(pose.place.tolist()), quaternion=quaternion)


def _pair_on_bodies(pair: Pair, frames: Mapping[str, LinkFrame]) -> Pair:
    found: dict[str, Any] = {}
    for side in ("a", "b"):
        frame, shape = frames.get(getattr(pair, side)), getattr(pair, f"shape_{side}")
        if frame is not None:
            quaternion = np.asarray(shape.quaternion, float)
            pose = Pose(
                quaternion_matrix(quaternion / np.linalg.norm(quaternion)), np.asarray(shape.at, float)
            )
            found |= {side: frame.body, f"shape_{side}": shape_in_body(shape, pose, frame)}
    return dataclasses.replace(pair, **found)


def changes(
    kinds: Mapping[str, Kind], given: Mapping[str, Any], frames: Mapping[str, LinkFrame]
) -> dict[str, Any]:
    """Return the changed fields of an element that names bodies in place of links.

    Args:
        kinds: kinds of its fields, by name.
        given: the fields, by name; None or missing if left out.
        frames: poses of the links in their bodies, by name.
    """
    ends = {name: frames.get(given.get(name, "")) for name, kind in kinds.items() if kind.names_body}
    found: dict[str, Any] = {name: end.body for name, end in ends.items() if end is not None}
    for name, kind in kinds.items():
        value, of = given.get(name), ends.get(kind.given_in(given))
        if value is not None and of is not None:
            found[name] = kind.moved(value, of.rotation, of.place)
    acted_on = ends.get("body", ends.get("b"))
    if given.get("body_frame") and acted_on is not None:
        # Forces and torques that rotate with their body are the only vectors whose kind names no body.
        vectors = [name for name in ("force", "torque", "direction") if given.get(name) is not None]
        found |= {name: acted_on.rotation @ np.asarray(given[name], float) for name in vectors}
    return found

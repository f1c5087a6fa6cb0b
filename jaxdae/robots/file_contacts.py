"""Contacts of a robot file, as pairs of shapes of its description."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from jaxdae.base.suggestions import brief
from jaxdae.mechanisms.build_mechanism import Description
from jaxdae.mechanisms.contacts.contact_elements import Pair, neighbors
from jaxdae.mechanisms.describe.numbers import hint
from jaxdae.robots.load_report import LinkFrame
from jaxdae.robots.robot_graph import Geom, GeomPair, Graph, Pose, matrix_quaternion


def with_contacts(
    description: Description,
    graph: Graph,
    frames: Mapping[str, LinkFrame],
    wanted: bool | Sequence[str],
) -> tuple[Description, list[str]]:
    """Return a description with the contacts of its file, and notes for the report.

    Args:
        description: the description of the robot.
        graph: the robot as its file defines it.
        frames: the pose of each link in its body.
        wanted: True for all pairs, or names of geoms or links for pairs with one of them.

    Raises:
        ValueError: the format has no contacts, or unknown names.
    """
    if graph.contacts is None:
        raise ValueError("load: contacts are read from MJCF only; add Pair elements to Description.contacts")
    pairs, notes = graph.contacts()
    if not isinstance(wanted, bool):
        known = dict.fromkeys(name for pair in pairs for geom in (pair.a, pair.b) for name in _names(geom))
        for name in wanted:
            if name not in known:
                raise ValueError(
                    f"load: contacts names {brief(name)}, which is not a geom or link with contacts"
                    f"{hint(name, list(known))}"
                )
        pairs = [pair for pair in pairs if {*_names(pair.a), *_names(pair.b)} & {*wanted}]
    beside = neighbors(description.joints)
    made = [_pair(pair, frames) for pair in pairs]
    kept = [
        one
        for pair, one in zip(pairs, made, strict=True)
        if one.a != one.b and (pair.explicit or frozenset((one.a, one.b)) not in beside)
    ]
    notes = [*notes, f"contacts: {len(kept)} pairs of geoms, rigid, with the sliding friction of the file"]
    return dataclasses.replace(description, contacts=[*description.contacts, *kept]), notes


def _names(geom: Geom) -> tuple[str, str]:
    return geom.name, geom.link


def _pair(pair: GeomPair, frames: Mapping[str, LinkFrame]) -> Pair:
    """Return the pair with shapes in the frames of the bodies."""
    bodies, placed = zip(*(_placed(geom, frames) for geom in (pair.a, pair.b)), strict=True)
    return Pair(f"{pair.a.name}/{pair.b.name}", *bodies, *placed, friction=pair.friction)


def _placed(geom: Geom, frames: Mapping[str, LinkFrame]) -> tuple[str, Any]:
    """Return the body of a collision shape, and the shape with its pose in the frame of the body."""
    frame = frames[geom.link]
    pose = Pose(frame.rotation, frame.place).then(geom.pose)
    quaternion = tuple(matrix_quaternion(pose.rotation).tolist())
    return frame.body, dataclasses.replace(geom.shape, at=tuple(pose.place.tolist()), quaternion=quaternion)

"""Contacts of a robot file, as pairs of shapes of its description."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from jaxdae.base.suggestions import brief
from jaxdae.geometry.pairs.pair_types import pair_type
from jaxdae.mechanisms.contacts.contact_elements import Pair, neighbors
from jaxdae.mechanisms.describe.numbers import hint
from jaxdae.robots.attach import shape_in_body
from jaxdae.robots.load_report import LinkFrame, Robot
from jaxdae.robots.robot_graph import Geom, GeomPair, Graph


def with_contacts(robot: Robot, graph: Graph, wanted: bool | Sequence[str]) -> Robot:
    """Return a robot whose description has the contacts of its file, with notes in its report.

    Args:
        robot: the robot.
        graph: the robot as its file defines it.
        wanted: True for all pairs, or names of collision shapes or links for pairs with one of them.

    Raises:
        ValueError: unknown names.
    """
    description, report = robot.description, robot.report
    found = graph.contacts()
    pairs = found.pairs
    if isinstance(wanted, bool):
        pairs = [pair for pair in pairs if not pair.by_name]
    else:
        known = dict.fromkeys(name for pair in pairs for geom in (pair.a, pair.b) for name in _names(geom))
        for name in wanted:
            if name not in known:
                raise ValueError(
                    f"load: contacts names {brief(name)}, which is not a geom or link with contacts"
                    f"{hint(name, list(known))}"
                )
        pairs = [pair for pair in pairs if {*_names(pair.a), *_names(pair.b)} & {*wanted}]
    beside = neighbors(description.joints)
    pairs = [pair for pair in pairs if _may_touch(pair, report.frames, beside)]
    kept = [_pair(pair, report.frames) for pair in pairs if _is_supported(pair)]
    unsupported = Counter(
        tuple(sorted((pair.a.kind, pair.b.kind))) for pair in pairs if not _is_supported(pair)
    )
    notes = [
        f"contacts between {first} and {second} are not supported: {count} pairs of geoms"
        for (first, second), count in sorted(unsupported.items())
    ]
    notes.append(f"contacts: {len(kept)} pairs of geoms, rigid, with the sliding friction of the file")
    others = [one for one in report.ignored if one.what not in found.used]
    return robot._replace(
        description=dataclasses.replace(description, contacts=[*description.contacts, *kept]),
        report=dataclasses.replace(
            report,
            notes=(*report.notes, *notes),
            ignored=tuple(sorted([*others, *found.ignored], key=lambda one: one.line)),
        ),
    )


def _names(geom: Geom) -> tuple[str, str]:
    return geom.name, geom.link


def _may_touch(pair: GeomPair, frames: Mapping[str, LinkFrame], beside: set[frozenset[str]]) -> bool:
    """Return whether two shapes belong to different bodies that are not neighbors, or to a listed pair."""
    bodies = frozenset(frames[geom.link].body for geom in (pair.a, pair.b))
    return len(bodies) == 2 and (pair.explicit or bodies not in beside)


def _is_supported(pair: GeomPair) -> bool:
    shapes = pair.a.shape, pair.b.shape
    return None not in shapes and pair_type(*shapes) is not None


def _pair(pair: GeomPair, frames: Mapping[str, LinkFrame]) -> Pair:
    """Return the pair with shapes in the frames of the bodies."""
    bodies, placed = zip(*(_placed(geom, frames) for geom in (pair.a, pair.b)), strict=True)
    name = f"{pair.a.name}/{pair.b.name}"
    return Pair(name, *bodies, *placed, friction=pair.friction, restitution=pair.restitution)


def _placed(geom: Geom, frames: Mapping[str, LinkFrame]) -> tuple[str, Any]:
    """Return the body of a collision shape, and the shape with its pose in the frame of the body."""
    frame = frames[geom.link]
    return frame.body, shape_in_body(geom.shape, geom.pose, frame)

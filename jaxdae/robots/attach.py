"""Joints and forces that name links for bodies, with points and directions in the frames of links."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from jaxdae.mechanisms.kinds import Kind
from jaxdae.robots.report import LinkFrame


def on_bodies(element: Any, frames: Mapping[str, LinkFrame]) -> Any:
    """Returns a joint or a force that names bodies, from one that may name links and frames.

    Points, directions and axes that are given in the frame of a link come to be in that of its body; places in the world stay. Names that
    are no links stay as well: they are bodies of their own.

    Args:
        element: of `jaxdae.mechanisms.spatial`.
        frames: where links are, by name.
    """
    return dataclasses.replace(element, **changes(element.kinds(), vars(element), frames))


def changes(kinds: Mapping[str, Kind], given: Mapping[str, Any], frames: Mapping[str, LinkFrame]) -> dict[str, Any]:
    """Returns the fields of an element that are others once it names bodies in place of links.

    Args:
        kinds: of its fields, by name.
        given: the fields, by name; None where they are left out, or missing.
        frames: where links are, by name.
    """
    ends = {name: frames.get(given.get(name, "")) for name, kind in kinds.items() if kind.names_body}
    found: dict[str, Any] = {name: end.body for name, end in ends.items() if end is not None}
    for name, kind in kinds.items():
        value, of = given.get(name), ends.get(kind.given_in(given))
        if value is not None and of is not None:
            found[name] = kind.moved(value, of.rotation, of.place)
    last = next(reversed(list(ends.values())), None)
    if given.get("body_frame") and last is not None:
        # Forces and torques that turn with their body are the only vectors without a body of their own in their kind.
        found |= {name: last.rotation @ np.asarray(given[name], float) for name in ("force", "torque", "direction") if name in given}
    return found

"""Joints and forces that name links for bodies, with points and directions in the frames of links."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np

from jaxdae.geometry.rotation import quat_normalize, rotation_matrix
from jaxdae.mechanisms.kinds import BodyName
from jaxdae.mechanisms.places import Direction, JointAxes, Point
from jaxdae.robots.report import LinkFrame


def on_bodies(element: Any, frames: Mapping[str, LinkFrame]) -> Any:
    """Returns a joint or a force that names bodies, from one that may name links and frames.

    Points, directions and axes that are given in the frame of a link come to be in that of its body; places in the world stay. Names that
    are no links stay as well: they are bodies of their own.

    Args:
        element: of `jaxdae.mechanisms.spatial`.
        frames: where links are, by name.
    """
    kinds = element.kinds()
    ends = {name: frames.get(getattr(element, name)) for name, kind in kinds.items() if isinstance(kind, BodyName)}
    changes: dict[str, Any] = {name: end.body for name, end in ends.items() if end is not None}
    for name, kind in kinds.items():
        value, of = getattr(element, name), ends.get(getattr(kind, "body", ""))
        if value is None or of is None:
            continue
        if isinstance(kind, Point):
            changes[name] = of.place + of.rotation @ jnp.asarray(value)
        elif isinstance(kind, Direction) and (kind.world is None or getattr(element, kind.world) is None):
            changes[name] = of.rotation @ jnp.asarray(value)
        elif isinstance(kind, JointAxes):
            given = jnp.asarray(value, float)
            changes[name] = of.rotation @ (given if given.ndim == 2 else rotation_matrix(quat_normalize(given)))
    last = next(reversed(list(ends.values())), None)
    if getattr(element, "body_frame", False) and last is not None:
        # Forces and torques that turn with their body are the only vectors without a body of their own in their kind.
        vectors = [name for name in ("force", "torque", "direction") if name in kinds]
        changes |= {name: last.rotation @ np.asarray(getattr(element, name), float) for name in vectors}
    return dataclasses.replace(element, **changes)

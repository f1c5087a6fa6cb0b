"""Angles of robot files in the wrong unit: degrees where the format has radians, or the opposite.

The rules have few false positives. Orientations go up to one turn. See also
`jaxdae.mechanisms.describe.angle_limits`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from jaxdae.base.suggestions import brief
from jaxdae.mechanisms.describe.angle_limits import TWO_TURNS, limits_in_degrees, looks_like_degrees
from jaxdae.robots.robot_source import Node, Source

_MOST = 3600.0
"""The largest angle of an orientation in degrees."""
_COMMON = (math.pi / 4.0, math.pi / 2.0, math.pi, 2.0 * math.pi)
_ROUNDED = 1e-3


def orientation_in_degrees(angles: Iterable[float]) -> bool:
    """Return whether angles in rad look like degrees: multiples of five from ten on, or over two turns."""
    return any(
        abs(angle) <= _MOST and (looks_like_degrees(angle) or abs(angle) > TWO_TURNS) for angle in angles
    )


def angles_in_radians(angles: Iterable[float]) -> bool:
    """Return whether angles in degrees look like radians: rounded values of pi / 4, pi / 2, pi or 2 pi."""
    return any(abs(abs(angle) - common) <= _ROUNDED * common for angle in angles for common in _COMMON)


def doubt(what: str, angles: Iterable[float], degrees: bool) -> str:
    """Return the note about angles in the wrong unit.

    Args:
        what: the name of the angles.
        angles: their values in the file.
        degrees: whether the format has degrees.
    """
    values = list(angles)
    units = ("degrees", "radians") if degrees else ("rad", "degrees")
    other = " ".join(f"{math.degrees(x) if degrees else math.radians(x):.6g}" for x in values)
    return (
        f"{what} is {' '.join(f'{x:g}' for x in values)} {units[0]}; if these are {units[1]}, write {other}"
    )


class Hinge(NamedTuple):
    """A hinge of a compiled MJCF model, with angles in rad.

    Attributes:
        name: its name.
        line: its line in the file.
        ends: its range, empty if it has none.
        reference: its `ref`.
        spring: its `springref`, zero without stiffness.
        offsets: the constants of the equalities that it follows, in rad in every file.
        postures: its angles in keyframes, in rad in every file.
    """

    name: str
    line: int
    ends: Sequence[float]
    reference: float
    spring: float
    offsets: Sequence[float]
    postures: Sequence[float]


def doubt_mjcf(source: Source, root: Node, hinges: Sequence[Hinge]) -> None:
    """Note angles of an MJCF file in the wrong unit.

    Args:
        source: the file.
        root: its document.
        hinges: the joints whose angles are in the unit of the main file.
    """
    nodes = list(root.everything())
    units = [
        node.attributes["angle"] for node in nodes if node.tag == "compiler" and "angle" in node.attributes
    ]
    degrees = not units or units[-1] != "radian"
    wrong = angles_in_radians if degrees else orientation_in_degrees
    for node in nodes:
        for key, count in (("euler", 3), ("axisangle", 4)):
            angles = _numbers(node.attributes.get(key, ""), count)
            angles = angles[3:] if key == "axisangle" else angles
            if wrong(angles):
                source.doubt(node.line, doubt(f"{key} of <{node.tag}>", angles, degrees))
    for hinge in hinges:
        ends, references = (
            [math.degrees(x) if degrees else x for x in angles]
            for angles in (hinge.ends, (hinge.reference, hinge.spring))
        )
        name = brief(hinge.name)
        if (angles_in_radians if degrees else limits_in_degrees)(ends):
            source.doubt(hinge.line, doubt(f"the range of joint {name}", ends, degrees))
        for key, angle in zip(("ref", "springref"), references, strict=True):
            if wrong([angle]):
                source.doubt(hinge.line, doubt(f"{key} of joint {name}", [angle], degrees))
        for what, angles in (
            ("polycoef of the equality", hinge.offsets),
            ("qpos of a keyframe", hinge.postures),
        ):
            doubtful = [angle for angle in angles if orientation_in_degrees([angle])]
            if doubtful:
                source.doubt(hinge.line, doubt(f"{what} of joint {name}", doubtful[:1], degrees=False))


def _numbers(text: str, count: int) -> list[float]:
    """Return `count` numbers, or an empty list for other text, which MuJoCo reports."""
    try:
        numbers = [float(word) for word in text.split()]
    except ValueError:
        return []
    return numbers if len(numbers) == count else []

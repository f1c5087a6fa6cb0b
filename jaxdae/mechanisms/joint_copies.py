"""Copies of joint geometry in forces, motors and drives that measure along the joint.

A force along a slide has the axis and the points of the slide, so that its equations need no other group. The
copies are leaves. A copy that disagrees with its joint would push along another axis than the slide.
Requirements of a mechanism therefore compare each copy with its joint.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from jaxdae.base.requirements import seen_from
from jaxdae.mechanisms.describe.number_kinds import Number, PerCoordinate
from jaxdae.mechanisms.describe.place_kinds import Direction, JointAxes, Point

_TOLERANCE = 1e-5
"""Largest difference of a copy, relative to the sizes of both vectors."""


class Copy(NamedTuple):
    """The location of the copies of a group: (place, key), the same of the joints, and pairs of indices."""

    place: str
    key: str
    of_place: str
    of_key: str
    pairs: tuple[tuple[int, int], ...]


def copies_of(places: Mapping[str, Mapping[str, Any]], measured: Mapping[str, str]) -> tuple[Copy, ...]:
    """Return the locations of copies of joint geometry.

    Args:
        places: the groups of joints and forces by key, by the field of `Mechanism`.
        measured: the joint along which an element measures, by the name of the element.
    """
    joints = {
        name: (place, key, k)
        for place in ("joints", "carrying")
        for key, g in places[place].items()
        for k, name in enumerate(g.names)
    }
    found: dict[tuple[str, str, str, str], list[tuple[int, int]]] = {}
    for place, groups in places.items():
        for key, group in groups.items():
            for k, name in enumerate(group.names):
                if (source := joints.get(measured.get(name, ""))) is not None:
                    found.setdefault((place, key, *source[:2]), []).append((k, source[2]))
    return tuple(Copy(*where, tuple(pairs)) for where, pairs in found.items())


def copy_requirements(mechanism: Any, copies: tuple[Copy, ...]) -> Iterator[tuple[Any, str]]:
    """Yield the conditions that copies of joint geometry equal their joints; see `jaxdae.base.requirements`.

    Args:
        mechanism: the mechanism, as `requirements` sees it.
        copies: the locations of the copies.
    """
    for place, key, of_place, of_key, pairs in copies:
        group, joints = getattr(mechanism, place).get(key), getattr(mechanism, of_place).get(of_key)
        if group is None or joints is None:  # Removed since the mechanism was built.
            continue
        inner = getattr(group, "joint", None)
        copy, path = (group, f"{place}.{key}") if inner is None else (inner, f"{place}.{key}.joint")
        for name, kind in joints.kinds().items():
            own, other = (
                getattr(seen_from(mechanism, copy), name, None),
                getattr(seen_from(mechanism, joints), name),
            )
            entries = _entries(kind, inner is not None)
            if own is None or other is None or not entries:
                continue
            for k, at in pairs:
                ours, theirs = (
                    [leaf[(..., index, *entry)] for entry in entries]
                    for leaf, index in ((own, k), (other, at))
                )
                size = sum(map(abs, ours)) + sum(map(abs, theirs))
                for x, y in zip(ours, theirs, strict=True):
                    yield (
                        abs(x - y) <= _TOLERANCE * size,
                        f"{path}.{name} must equal {of_place}.{of_key}.{name}; change both",
                    )


def _entries(kind: Any, is_inner: bool) -> list[tuple[int, ...]]:
    """Return the indices of the entries of a field of one element that describe geometry.

    Empty for other fields.
    """
    if isinstance(kind, JointAxes):
        return [(row, column) for row in range(3) for column in range(3)]
    if isinstance(kind, Direction | Point):
        return [(k,) for k in range(kind.dimension)]
    return [()] if is_inner and isinstance(kind, Number) and not isinstance(kind, PerCoordinate) else []

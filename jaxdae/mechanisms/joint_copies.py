"""Copies of joint geometry in the elements that measure along a joint.

Forces, motors, tires, tendons, relations and driven velocities have copies. A force along a slide has the
axis and the points of the slide, so that its equations need no other group. The copies are leaves. A copy
that disagrees with its joint would push along another axis than the slide. Requirements of a mechanism
therefore compare each copy with its joint.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import jax.numpy as jnp

from jaxdae.base.dataclass import set_leaf
from jaxdae.base.requirements import Stacked, seen_from
from jaxdae.mechanisms.couplings.relations import Measured
from jaxdae.mechanisms.describe.elements import Element
from jaxdae.mechanisms.describe.function_kinds import Ground
from jaxdae.mechanisms.describe.number_kinds import Number, PerCoordinate
from jaxdae.mechanisms.describe.place_kinds import Direction, JointAxes, Point

_TOLERANCE = 1e-5
"""Largest difference of a copy, relative to the sizes of both vectors."""


class Copy(NamedTuple):
    """The location of copies of joint geometry.

    Attributes:
        path: the fields, keys and indices from the owner of the copies to the copies.
        of: the field and the key of the joints.
        pairs: the index of each copy, and the index of its joint.
    """

    path: tuple[str | int, ...]
    of: tuple[str, str]
    pairs: tuple[tuple[int, int], ...]


def copies_of(joints: Any, places: Mapping[str, Any], measured: Mapping[str, str]) -> tuple[Copy, ...]:
    """Return the locations of copies of joint geometry.

    Args:
        joints: the owner of the groups of joints, with the fields `joints` and `carrying`.
        places: the fields with copies: groups of elements by key, tendons, and relations by key.
        measured: the joint along which an element measures, by the name of the element.
    """
    sources = {
        name: ((place, key), k)
        for place in ("joints", "carrying")
        for key, group in getattr(joints, place).items()
        for k, name in enumerate(group.names)
    }
    found: dict[tuple[Any, tuple[str, str]], list[tuple[int, int]]] = {}
    for place, tree in places.items():
        for path, copy in _with_names(tree, (place,)):
            for k, name in enumerate(copy.names):
                joint = name if isinstance(copy, Measured) else measured.get(name, "")
                if (source := sources.get(joint)) is not None:
                    found.setdefault((path, source[0]), []).append((k, source[1]))
    return tuple(Copy(*where, tuple(pairs)) for where, pairs in found.items())


def _with_names(tree: Any, path: tuple[str | int, ...]) -> Iterator[tuple[tuple[str | int, ...], Any]]:
    """Yield groups of elements and measured coordinates in the fields of a mechanism, with their paths."""
    if isinstance(tree, Element | Measured):
        yield path, tree
    elif isinstance(tree, Mapping):
        for key, inner in tree.items():
            yield from _with_names(inner, (*path, key))
    elif isinstance(tree, tuple):
        for k, inner in enumerate(tree):
            yield from _with_names(inner, (*path, k))
    else:
        for name in ("first", "second", "lengths", "along", "parts"):
            yield from _with_names(getattr(tree, name, ()), (*path, name))


def copy_requirements(
    owner: Any, copies: tuple[Copy, ...], joints_of: Any = None
) -> Iterator[tuple[Any, str]]:
    """Yield the conditions that copies of joint geometry equal their joints; see `jaxdae.base.requirements`.

    Args:
        owner: the owner of the copies, as `requirements` sees it.
        copies: the locations of the copies.
        joints_of: the owner of the joints, as `requirements` sees it; None for the owner of the copies.
    """
    for copy_path, (of_place, of_key), pairs in copies:
        group = _at(owner, copy_path)
        joints = _at(owner if joints_of is None else joints_of, (of_place, of_key))
        if group is None or joints is None:  # Removed since the mechanism was built.
            continue
        path = ".".join(map(str, copy_path))
        field = next((name for name in ("joint", "joints") if hasattr(group, name)), "")
        copy, path = (getattr(group, field), f"{path}.{field}") if field else (group, path)
        for name, kind in joints.kinds().items():
            own, other = (
                getattr(seen_from(owner, copy), name, None),
                getattr(seen_from(owner, joints), name),
            )
            if isinstance(kind, Ground):
                for leaf, ours, theirs in _terrains(owner, own, other, pairs):
                    yield (
                        abs(ours - theirs) <= _TOLERANCE * (abs(ours) + abs(theirs)),
                        f"{path}.{name}.{leaf} must equal {of_place}.{of_key}.{name}.{leaf}; change both",
                    )
            entries = _entries(kind, bool(field))
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


def with_equal_copies(owner: Any) -> Any:
    """Return a mechanism whose copies of joint geometry equal the fields of its joints.

    Use it after a change of points, directions, axes or numbers of joints.

    Args:
        owner: a mechanism.
    """
    for path, of, pairs in owner.copies:
        copy: Any = _at(owner, path)
        joints = _at(owner, of)
        if copy is None or joints is None:  # Removed since the mechanism was built.
            continue
        inner = next((name for name in ("joint", "joints") if hasattr(copy, name)), None)
        group: Any = getattr(copy, inner) if inner else copy
        here, there = (jnp.asarray(side) for side in zip(*pairs, strict=True))
        changed = {
            name: old.at[here].set(new[there])
            for name, kind in joints.kinds().items()
            if (old := getattr(group, name, None)) is not None
            and (new := getattr(joints, name)) is not None
            and _entries(kind, bool(inner))
        }
        group = dataclasses.replace(group, **changed)
        copy = dataclasses.replace(copy, **{inner: group}) if inner else group
        owner = set_leaf(owner, ".".join(map(str, path)), copy)
    return owner


def _terrains(
    owner: Any, copy: Any, terrain: Any, pairs: tuple[tuple[int, int], ...]
) -> Iterator[tuple[str, Any, Any]]:
    """Yield the names of the numbers of terrains of one class, their copies, and the numbers themselves."""
    if type(copy) is not type(terrain) or not dataclasses.is_dataclass(terrain):
        return
    for field in dataclasses.fields(terrain):
        given = getattr(terrain, field.name)
        size = given.value.ndim - 1 if isinstance(given, Stacked) else getattr(given, "ndim", 0)
        if size:  # The axis of the elements, and the axes of the numbers of one terrain.
            whole = (slice(None),) * (size - 1)
            ours, theirs = (getattr(seen_from(owner, part), field.name) for part in (copy, terrain))
            yield from ((field.name, ours[(..., k, *whole)], theirs[(..., at, *whole)]) for k, at in pairs)


def _at(tree: Any, path: tuple[str | int, ...]) -> Any:
    """Return a part of an object, or None if the part does not exist."""
    for name in path:
        if isinstance(tree, Mapping):
            tree = tree.get(name)
        elif isinstance(tree, tuple) and isinstance(name, int):
            tree = tree[name] if name < len(tree) else None
        else:
            tree = getattr(tree, str(name), None)
    return tree


def _entries(kind: Any, is_inner: bool) -> list[tuple[int, ...]]:
    """Return the indices of the entries of a field of one element that describe geometry.

    Empty for other fields.
    """
    if isinstance(kind, JointAxes):
        return [(row, column) for row in range(3) for column in range(3)]
    if isinstance(kind, Direction | Point):
        return [(k,) for k in range(kind.dimension)]
    return [()] if is_inner and isinstance(kind, Number) and not isinstance(kind, PerCoordinate) else []

"""The elements of a built mechanism, for drawing."""

from __future__ import annotations

import types
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import jax
import numpy as np

from jaxdae.mechanisms import Mechanism
from jaxdae.mechanisms.describe.kinds import GROUND
from jaxdae.viewer.outline import Drawn


def placed_bodies(mechanism: Mechanism) -> tuple[str, ...]:
    """Return the names of the bodies that have a pose: all except rotors, which come last."""
    return mechanism.body_names[: len(mechanism.body_names) - len(mechanism.rotors)]


def drawn(mechanism: Mechanism, shapes: Sequence[Any] = ()) -> Drawn:
    """Return the elements of a mechanism with the names of their bodies, and with NumPy arrays.

    Args:
        mechanism: the mechanism.
        shapes: bodies of a config, with `name`, and with the `points` and `outline` to draw.
    """
    names = placed_bodies(mechanism)
    given = {
        shape.name: {"points": getattr(shape, "points", ()), "outline": getattr(shape, "outline", None)}
        for shape in shapes
    }
    numbers = ("mass", "inertia")
    known = {
        name: np.asarray(value, float) for name in numbers if (value := getattr(mechanism, name)) is not None
    }
    each = ({key: known[key][k] if key in known else None for key in numbers} for k in range(len(names)))
    bodies = [
        types.SimpleNamespace(name=name, **own, **given.get(name, {}))
        for name, own in zip(names, each, strict=True)
    ]
    joints = [
        element
        for groups in (mechanism.joints, mechanism.carrying)
        for element in _elements(mechanism, groups)
    ]
    return Drawn(mechanism.space.dimension, bodies, {}, joints, list(_elements(mechanism, mechanism.forces)))


def places_in_bodies(element: Any) -> dict[str, np.ndarray]:
    """Return the points of an element of `drawn` in its body frames, by body field such as "a" or "b"."""
    kinds = element.kind.kinds()
    return {
        kinds[point].body: np.asarray(getattr(element, point), float) for _, point in element.kind.places()
    }


def _elements(mechanism: Mechanism, groups: Mapping[str, Any]) -> Iterator[Any]:
    """Yield the elements of groups; replace rotors by the ground, because a rotor has no pose."""
    count, places = len(mechanism.body_names), len(placed_bodies(mechanism))
    for group in groups.values():
        kinds = group.kinds()
        for k, name in enumerate(group.names):
            values: dict[str, Any] = {}
            for field, kind in kinds.items():
                given = getattr(group, field)
                if kind.names_body:
                    number = given[k]
                    values[field] = (
                        GROUND if number == count or number >= places else mechanism.body_names[number]
                    )
                else:
                    # Take the entry of the element from every stacked array, also inside a terrain.
                    values[field] = jax.tree.map(lambda x, k=k: np.asarray(x)[k] if np.ndim(x) else x, given)
            yield types.SimpleNamespace(**values | {"kind": type(group), "name": name})

"""A mechanism that was built, taken apart into its elements, for all who draw it."""

from __future__ import annotations

import types
from collections.abc import Iterator, Mapping
from typing import Any

import jax
import numpy as np

from jaxdae.mechanisms import Mechanism
from jaxdae.mechanisms.kinds import GROUND
from jaxdae.viewer.outline import Drawn


def placed_bodies(mechanism: Mechanism) -> tuple[str, ...]:
    """Returns the names of the bodies that have a place: all but rotors, which come last."""
    return mechanism.body_names[: len(mechanism.body_names) - len(mechanism.rotors)]


def drawn(mechanism: Mechanism) -> Drawn:
    """Returns the elements of a mechanism with the names of their bodies, and numbers of NumPy."""
    names = placed_bodies(mechanism)
    numbers = ("mass", "inertia")
    known = {name: np.asarray(value, float) for name in numbers if (value := getattr(mechanism, name)) is not None}
    each = ({key: known[key][k] if key in known else None for key in numbers} for k in range(len(names)))
    bodies = [types.SimpleNamespace(name=name, **own) for name, own in zip(names, each, strict=True)]
    joints = [element for groups in (mechanism.joints, mechanism.carrying) for element in _elements(mechanism, groups)]
    return Drawn(mechanism.space.dimension, bodies, {}, joints, list(_elements(mechanism, mechanism.forces)))


def places_in_bodies(element: Any) -> dict[str, np.ndarray]:
    """Returns the places of an element of `drawn`, in the frames of its bodies, by the fields that name these, such as "a" and "b"."""
    kinds = element.kind.kinds()
    return {kinds[point].body: np.asarray(getattr(element, point), float) for _, point in element.kind.places()}


def _elements(mechanism: Mechanism, groups: Mapping[str, Any]) -> Iterator[Any]:
    """Yields the elements of groups; what looks at a rotor looks at the ground, because a rotor has no place."""
    count, places = len(mechanism.body_names), len(placed_bodies(mechanism))
    for group in groups.values():
        kinds = group.kinds()
        for k, name in enumerate(group.names):
            values: dict[str, Any] = {}
            for field, kind in kinds.items():
                given = getattr(group, field)
                if kind.names_body:
                    number = given[k]
                    values[field] = GROUND if number == count or number >= places else mechanism.body_names[number]
                else:
                    # Of every array that is stacked the entry of the element, of a terrain's as well.
                    values[field] = jax.tree.map(lambda x, k=k: np.asarray(x)[k] if np.ndim(x) else x, given)
            yield types.SimpleNamespace(**values | {"kind": type(group), "name": name})

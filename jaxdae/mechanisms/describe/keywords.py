"""Dataclasses with keyword arguments that report all unknown keywords together, each with its remedy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, TypeVar

from jaxdae.base.suggestions import meant

T = TypeVar("T", bound="ByKeywords")


class ByKeywords:
    """A dataclass that suggests the closest known keyword for an unknown keyword."""

    instead: ClassVar[Mapping[str, str]] = {}
    """Remedies for keywords that a user may expect here, in addition to the remedies of the base classes."""

    def __new__(cls: type[T], *args: Any, **given: Any) -> T:
        """Return an object without fields set.

        Raises:
            TypeError: for keywords that are not fields.
        """
        # JAX often creates objects without arguments.
        if given:
            fields: Any = cls.__dict__.get("__dataclass_fields__", given)
            if not given.keys() <= fields.keys():
                raise TypeError(
                    "; ".join(_told(cls, name, list(fields)) for name in given if name not in fields)
                )
        return object.__new__(cls)


def _told(cls: type[ByKeywords], name: str, fields: list[str]) -> str:
    for base in cls.__mro__:
        if name in (instead := base.__dict__.get("instead", {})):
            return f"{cls.__name__} has no {name}: {instead[name]}"
    return f"{cls.__name__} has no {name} ({meant(name, fields) or 'available: ' + ', '.join(fields)})"

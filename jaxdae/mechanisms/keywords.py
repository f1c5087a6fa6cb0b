"""Types whose objects a user makes by keywords: those that there are not are told all at once, each with what to use instead."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, TypeVar

from jaxdae.spelling import meant

T = TypeVar("T", bound="ByKeywords")


class ByKeywords:
    """A dataclass that says what may have been meant by keywords that it does not have."""

    instead: ClassVar[Mapping[str, str]] = {}
    """What to use for keywords that one may look for here, in words."""

    def __new__(cls: type[T], *args: Any, **given: Any) -> T:
        """Returns an object, before its fields are set.

        Raises:
            TypeError: keywords that are no fields.
        """
        # JAX makes objects without arguments, and often.
        if given:
            fields: Any = cls.__dict__.get("__dataclass_fields__", given)
            if not given.keys() <= fields.keys():
                raise TypeError("; ".join(_told(cls, name, list(fields)) for name in given if name not in fields))
        return object.__new__(cls)


def _told(cls: type[ByKeywords], name: str, fields: list[str]) -> str:
    if name in cls.instead:
        return f"{cls.__name__} has no {name}: {cls.instead[name]}"
    return f"{cls.__name__} has no {name} ({meant(name, fields) or 'there is: ' + ', '.join(fields)})"

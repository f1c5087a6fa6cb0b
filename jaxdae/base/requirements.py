"""Conditions on parameters, declared once per class: errors if concrete, a status if traced.

A class may have a method `requirements` that yields pairs (condition, text):

    def requirements(self):
        yield not_above(self.lower, self.upper), "lower must not be above upper"
        yield offers(self.law, "__call__"), "law must be a feedback law, such as PD(...)"

Conditions on numbers use plain array operators (`<=`, `&`, `|`, `~`, no functions of `jax.numpy`), entry by
entry, and raise a ValueError. Conditions on the type of a field are Python booleans, and raise a TypeError.
The text names the fields of the condition; their values are appended to the message.

On the host, numbers are NumPy arrays, so that nothing runs on a device. A condition on a traced number is
skipped. In a compiled program the same conditions give one boolean.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import re
import types
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from jaxdae.base.suggestions import brief

_AXES = 8  # more than any field has


class _Unknown:
    """A placeholder for a traced number: comparisons and arithmetic with it are unknown too."""

    __array_ufunc__ = None  # NumPy leaves operators to the reflected ones below.
    __hash__ = None  # pyright: ignore[reportAssignmentType]

    def _same(self, *_: Any) -> _Unknown:
        return self

    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = _same  # pyright: ignore[reportAssignmentType]
    __and__ = __rand__ = __or__ = __ror__ = __xor__ = __rxor__ = __invert__ = _same
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = __pow__ = (
        _same
    )
    __neg__ = __abs__ = __getitem__ = _same


_UNKNOWN = _Unknown()


@dataclasses.dataclass(frozen=True)
class Stacked:
    """A leaf that differs between worlds, for `check_requirements`.

    Attributes:
        value: the leaf.
        axis: the batch axis.
    """

    value: Any
    axis: int


class _Known:
    """View of an object for `requirements` on the host: its fields are NumPy arrays, or unknown."""

    __slots__ = ("_thing",)

    def __init__(self, thing: Any) -> None:
        self._thing = thing

    def __getattr__(self, name: str) -> Any:
        value: Any = getattr(self._thing, name)
        # JAX promotes booleans to numbers, and `True >= 0` holds.
        if (isinstance(value, bool) or getattr(value, "dtype", None) == np.bool_) and name in _fields(
            type(self._thing)
        )[0]:
            raise TypeError(f"{name} must be a number, got {value}")
        return _known(value)


def seen_from(owner: Any, part: Any) -> Any:
    """Return a part of an object as `requirements` sees the object: on the host, with NumPy arrays."""
    return _Known(part) if isinstance(owner, _Known) else part


def _known(x: Any) -> Any:
    if isinstance(x, Stacked):
        inner = _known(x.value)
        if inner is _UNKNOWN:
            return inner
        # Insert axes of length 1 after the batch axis, so that stacked and shared numbers broadcast entry by
        # entry.
        moved = np.moveaxis(np.asarray(inner), x.axis, 0)
        return moved.reshape(moved.shape[0], *(1,) * (_AXES - moved.ndim), *moved.shape[1:])
    if isinstance(x, int | float) and not isinstance(x, bool):
        return np.asarray(x)
    if isinstance(x, tuple | list) and not hasattr(x, "_fields"):
        entries = [_known(entry) for entry in x]
        return tuple(entries) if isinstance(x, tuple) else entries
    if not isinstance(x, jax.Array):
        return x
    return _UNKNOWN if isinstance(x, Tracer) or not x.is_fully_addressable else np.asarray(x)


def _once(check: Callable[[str, Any], None]) -> Callable[[str, Any], None]:
    """Return a check that skips objects that passed before, so that repeated calls cost almost nothing.

    It remembers only frozen objects of JAX arrays and Python numbers, because they cannot change. It holds
    them by weak references.
    """
    in_order: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()

    @functools.wraps(check)
    def checked(name: str, tree: Any) -> None:
        if tree is None or in_order.get(id(tree)) is tree:
            return
        check(name, tree)
        if dataclasses.is_dataclass(tree) and all(map(_cannot_change, jax.tree.leaves(tree))):
            with contextlib.suppress(TypeError):  # A class with slots has no weak references.
                in_order[id(tree)] = tree

    return checked


def _cannot_change(leaf: Any) -> bool:
    return isinstance(leaf, bool | int | float) or (
        isinstance(leaf, jax.Array) and not isinstance(leaf, Tracer)
    )


@_once
def check_requirements(name: str, tree: Any) -> None:
    """Raise an error for the first unmet requirement of an object and of all objects inside of it.

    Args:
        name: the name of the object in the message, such as "integrator".
        tree: a pytree of dataclasses, tuples, lists and dictionaries; leaves may be `Stacked`.

    Raises:
        ValueError: numbers out of range.
        TypeError: a value of a wrong type.

    Conditions on traced numbers are skipped; use `requirements_met` for them.
    """
    for path, thing in _demanding(name, tree):
        for count in _counts(type(thing)):
            if not _is_count(value := getattr(thing, count)) and value is not None:
                raise TypeError(
                    f"{path}: {type(thing).__name__}.{count} must be an integer, got {came(value)}"
                )
        try:
            for condition, text in type(thing).requirements(_Known(thing)):
                if not (
                    condition is True
                    or condition is _UNKNOWN
                    or isinstance(condition, Tracer)
                    or np.all(condition)
                ):
                    raise _Unmet(_reason(path, thing, text, TypeError if condition is False else ValueError))
        except _Unmet as error:
            raise error.reason from None
        except TypeError as error:
            raise TypeError(
                f"{path}: {type(thing).__name__} contains a non-numeric value: {error}"
            ) from error


def check_field(path: str, owner: Any, field: str, *, stacked: bool = False, in_column: bool = False) -> None:
    """Raise ValueError if a number in one field of an object is out of range.

    Conditions on several fields and on traced numbers are skipped.

    Args:
        path: the field in the message.
        owner: the object; not checked if its class has no requirements.
        field: the name of the field.
        stacked: whether the field contains one value per world, along its first axis.
        in_column: whether only one column is new. Conditions between columns name them "(column k)" in their
            text, and are skipped.
    """
    kind: Any = type(owner)
    if not _is_object(kind) or not _demands(kind):
        return
    value: Any = getattr(owner, field)
    if not isinstance(value, jax.Array | np.ndarray | int | float) or isinstance(value, Tracer):
        return
    seen: Any = dataclasses.replace(owner, **{field: Stacked(value, 0)}) if stacked else owner
    for condition, text in kind.requirements(_Known(seen)):
        named = {name for name in _fields(kind)[1] if re.search(rf"\b{name}\b", text)}
        if in_column and "(column" in text:
            continue
        if named == {field} and condition is not _UNKNOWN and not np.all(condition):
            raise ValueError(f"{path}: {kind.__name__}.{text}, got {came(value)}")


def requirements_met(tree: Any) -> jax.Array:
    """Return whether an object and all objects inside of it meet all requirements, as a boolean ().

    It also checks traced numbers.

    Args:
        tree: a pytree of dataclasses, tuples, lists and dictionaries.
    """
    met = jnp.ones((), bool)
    # Only comparisons, so the precision of the user's numbers does not matter.
    with jax.numpy_dtype_promotion("standard"):
        for _, thing in _demanding("", tree):
            for condition, _ in thing.requirements():
                if condition is not True:
                    met = met & jnp.all(jnp.asarray(condition))
    return met


@_once
def check_arrays(name: str, tree: Any) -> None:
    """Raise TypeError, with the path, if a leaf of a pytree is neither a number nor an array.

    Args:
        name: the name of the pytree in the message.
        tree: any pytree that becomes an argument of a compiled program.
    """
    numbers = (jax.Array, np.ndarray, np.generic, bool, int, float, complex)
    if all(isinstance(leaf, numbers) for leaf in jax.tree.leaves(tree)):
        return
    for path, leaf in jax.tree_util.tree_flatten_with_path(tree)[0]:
        if not (isinstance(leaf, numbers) or hasattr(leaf, "__jax_array__")):
            place = f"{name}{jax.tree_util.keystr(path)}"
            raise TypeError(
                f"{place} must hold numbers or arrays, or an object of a class decorated with "
                f"@jaxdae.tree.pytree, got {came(leaf)}"
            )


# Common conditions.


def not_negative(x: Any) -> Any:
    """Return the condition x >= 0, true for None."""
    return x is None or x >= 0


def positive(x: Any) -> Any:
    """Return the condition that x is positive and finite."""
    return (x > 0) & (x < np.inf)


def not_above(lower: Any, upper: Any) -> Any:
    """Return the condition lower <= upper, true if either is None."""
    return lower is None or upper is None or lower <= upper


def ascending(x: Any) -> Any:
    """Return the condition that the entries of an array increase strictly along its last axis."""
    return x[..., :-1] < x[..., 1:] if getattr(x, "ndim", 0) > 0 else True


def fraction(x: Any) -> Any:
    """Return the condition 0 <= x < 1, true for None; for relative tolerances."""
    return x is None or (x >= 0) & (x < 1)


def checked_count(name: str, value: Any) -> int:
    """Return a count after a check that it is an integer of at least 1.

    Args:
        name: of the argument, for the message.
        value: the argument.

    Raises:
        TypeError: not an integer; True and 2.0 are not integers.
        ValueError: an integer below 1.
    """
    if not _is_count(value):
        raise TypeError(f"{name} must be an integer, got {came(value)}")
    if value < 1:
        raise ValueError(f"{name} must be at least 1, got {brief(value)}")
    return int(value)


def check_real(name: str, value: Any) -> None:
    """Raise TypeError if an array contains Booleans or complex numbers, traced or not."""
    if getattr(getattr(value, "dtype", None), "kind", "f") in "bc":
        raise TypeError(f"{name} must contain real numbers, got {value.dtype}")


def _is_count(value: Any) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def offers(thing: Any, *methods: str) -> bool:
    """Return whether an object is an instance, not a class, and has these methods."""
    return not isinstance(thing, type) and all(hasattr(thing, method) for method in methods)


def came(value: Any) -> str:
    """Return a description of a wrong argument, with a remedy if it is obvious."""
    if isinstance(value, type):
        return f"the class {value.__name__}; call it: {value.__name__}()"
    if isinstance(value, types.MethodType) and isinstance(value.__self__, type):
        call = f"{value.__self__.__name__}.{value.__name__}"
        return f"the method {call}; call it: {call}(), not {call}"
    if isinstance(value, str):
        return f"the text {brief(value)}"
    if isinstance(value, jax.Array | np.ndarray):
        return (
            np.array2string(np.asarray(value), precision=4, threshold=6)
            if not isinstance(value, Tracer)
            else f"{value}"
        )
    if isinstance(value, Stacked):
        return came(value.value)
    plain = value is None or isinstance(value, bool | int | float | complex | np.generic | tuple | list)
    if plain and len(text := brief(value, str if isinstance(value, np.generic) else repr)) < 80:
        return text
    if isinstance(value, types.FunctionType | types.BuiltinFunctionType | types.MethodType):
        return f"the function {value.__qualname__}"
    return f"{'an' if type(value).__name__[:1] in 'AEIOU' else 'a'} {type(value).__name__}"


# Traversal.


class _Unmet(Exception):
    """Carry the error of an unmet requirement past the handler of errors in its condition."""

    def __init__(self, reason: Exception) -> None:
        self.reason = reason


def _reason(path: str, thing: Any, text: str, error: type[Exception]) -> Exception:
    """Return the error of a requirement, with the values of the fields that its text names."""
    values = {
        name: getattr(thing, name) for name in _fields(type(thing))[1] if re.search(rf"\b{name}\b", text)
    }
    values = {name: value for name, value in values.items() if not isinstance(value, dict)}
    shown = [came(x) if len(values) == 1 else f"{name} = {came(x)}" for name, x in values.items()]
    return error(f"{path}: {type(thing).__name__}.{text}" + (f", got {', '.join(shown)}" if shown else ""))


@functools.cache
def _fields(kind: type) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the names of the fields of a dataclass that hold subtrees, and of all fields."""
    fields = dataclasses.fields(kind)
    return tuple(f.name for f in fields if not f.metadata.get("static", False)), tuple(f.name for f in fields)


@functools.cache
def _counts(kind: type) -> tuple[str, ...]:
    """Return the names of the static fields of a dataclass that hold an integer, or None."""
    static = (f for f in dataclasses.fields(kind) if f.metadata.get("static", False))
    return tuple(f.name for f in static if f.type in ("int", "int | None"))


@functools.cache
def _is_object(kind: type) -> bool:
    return dataclasses.is_dataclass(kind) and kind is not Stacked


@functools.cache
def _is_inner(kind: type) -> bool:
    """Return whether a type may contain objects."""
    return _is_object(kind) or issubclass(kind, tuple | list | dict | functools.partial)


@functools.cache
def _demands(kind: type) -> bool:
    return isinstance(getattr(kind, "requirements", None), types.FunctionType)


def _demanding(path: str, tree: Any) -> Iterator[tuple[str, Any]]:
    """Yield every object with requirements, outer objects before inner ones, with its path."""
    kind = type(tree)
    if _is_object(kind):
        if _demands(kind):
            yield path, tree
        for name in _fields(kind)[0]:
            child = getattr(tree, name)
            if _is_inner(type(child)):
                yield from _demanding(f"{path}.{name}", child)
    elif isinstance(tree, tuple | list):
        for k, entry in enumerate(tree):
            yield from _demanding(f"{path}[{k}]", entry)
    elif isinstance(tree, dict):
        for key, entry in tree.items():
            yield from _demanding(f"{path}[{key!r}]", entry)
    elif isinstance(tree, functools.partial):
        yield from _demanding(path, (*tree.args, *tree.keywords.values()))

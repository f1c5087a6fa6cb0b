"""What parameters have to satisfy, said once in a class: an error where the numbers are known, a status where they are traced.

A class may have a method `requirements` that yields pairs (condition, text):

    def requirements(self):
        yield not_above(self.lower, self.upper), "lower must not be above upper"
        yield offers(self.law, "__call__"), "law must be a feedback law, such as PD(...)"

Conditions on numbers are written with plain operators of arrays (`<=`, `&`, `|`, `~`, no functions of `jax.numpy`), entry by entry, and
make a ValueError; conditions on what a field holds are Python booleans, and make a TypeError. The text names the fields that it is about;
what these hold is added to the message.

On the host numbers are NumPy arrays, so that nothing is computed on a device; where one is traced, a condition on it is left out. In a
compiled program the same conditions make one boolean.
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

from jaxdae.spelling import brief

_AXES = 8  # more than any field has


class _Unknown:
    """Stands for a number that is traced: comparisons and sums of it are unknown as well."""

    __array_ufunc__ = None  # NumPy leaves operators to the reflected ones below.
    __hash__ = None  # pyright: ignore[reportAssignmentType]

    def _same(self, *_: Any) -> _Unknown:
        return self

    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = _same  # pyright: ignore[reportAssignmentType]
    __and__ = __rand__ = __or__ = __ror__ = __xor__ = __rxor__ = __invert__ = _same
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = __pow__ = _same
    __neg__ = __abs__ = __getitem__ = _same


_UNKNOWN = _Unknown()


@dataclasses.dataclass(frozen=True)
class Stacked:
    """A leaf that differs from world to world, for `check_requirements`.

    Attributes:
        value: the leaf.
        axis: the axis of the worlds.
    """

    value: Any
    axis: int


class _Known:
    """An object as `requirements` sees it on the host: its fields as NumPy arrays, or unknown."""

    __slots__ = ("_thing",)

    def __init__(self, thing: Any) -> None:
        self._thing = thing

    def __getattr__(self, name: str) -> Any:
        value: Any = getattr(self._thing, name)
        # JAX promotes truth values to numbers, and `True >= 0` holds.
        if (isinstance(value, bool) or getattr(value, "dtype", None) == np.bool_) and name in _fields(type(self._thing))[0]:
            raise TypeError(f"{name} must be a number, got {value}")
        return _known(value)


def _known(x: Any) -> Any:
    if isinstance(x, Stacked):
        inner = _known(x.value)
        if inner is _UNKNOWN:
            return inner
        # Axes of length 1 between the worlds and the rest, so that stacked and shared numbers meet entry by entry.
        moved = np.moveaxis(np.asarray(inner), x.axis, 0)
        return moved.reshape(moved.shape[0], *(1,) * (_AXES - moved.ndim), *moved.shape[1:])
    if isinstance(x, int | float) and not isinstance(x, bool):
        return np.asarray(x)
    if not isinstance(x, jax.Array):
        return x
    return _UNKNOWN if isinstance(x, Tracer) or not x.is_fully_addressable else np.asarray(x)


def _once(check: Callable[[str, Any], None]) -> Callable[[str, Any], None]:
    """Returns a check that passes over objects which it found to be in order before, so that repeated calls cost next to nothing.

    Only frozen objects of JAX arrays and Python numbers are remembered: they cannot change. They are held weakly.
    """
    in_order: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()

    @functools.wraps(check)
    def checked(name: str, tree: Any) -> None:
        if tree is None or in_order.get(id(tree)) is tree:
            return
        check(name, tree)
        if dataclasses.is_dataclass(tree) and all(map(_cannot_change, jax.tree.leaves(tree))):
            with contextlib.suppress(TypeError):  # A class with slots cannot be held weakly.
                in_order[id(tree)] = tree

    return checked


def _cannot_change(leaf: Any) -> bool:
    return isinstance(leaf, bool | int | float) or (isinstance(leaf, jax.Array) and not isinstance(leaf, Tracer))


@_once
def check_requirements(name: str, tree: Any) -> None:
    """Raises for the first requirement that is not met among those of an object and of all objects inside of it.

    Args:
        name: what to call the object in the message, such as "integrator".
        tree: a pytree of dataclasses, tuples, lists and dictionaries; leaves may be `Stacked`.

    Raises:
        ValueError: numbers outside of what has a meaning.
        TypeError: something in a place where it does not belong.

    Conditions whose numbers are traced are left out; `requirements_met` is for them.
    """
    for path, thing in _demanding(name, tree):
        try:
            for condition, text in type(thing).requirements(_Known(thing)):
                if not (condition is True or condition is _UNKNOWN or isinstance(condition, Tracer) or np.all(condition)):
                    raise _Unmet(_reason(path, thing, text, TypeError if condition is False else ValueError))
        except _Unmet as error:
            raise error.reason from None
        except TypeError as error:
            raise TypeError(f"{path}: {type(thing).__name__} holds something that is no number: {error}") from error


def requirements_met(tree: Any) -> jax.Array:
    """Returns whether all requirements of an object and of all objects inside of it are met, as a boolean (); for traced numbers.

    Args:
        tree: a pytree of dataclasses, tuples, lists and dictionaries.
    """
    met = jnp.ones((), bool)
    # Comparisons only: what precision the numbers of a user have does not matter.
    with jax.numpy_dtype_promotion("standard"):
        for _, thing in _demanding("", tree):
            for condition, _ in thing.requirements():
                if condition is not True:
                    met = met & jnp.all(jnp.asarray(condition))
    return met


@_once
def check_arrays(name: str, tree: Any) -> None:
    """Raises TypeError where a leaf of a pytree is no number and no array, and says where it is.

    Args:
        name: what to call the pytree in the message.
        tree: any pytree that is to be an argument of a compiled program.
    """
    numbers = (jax.Array, np.ndarray, np.generic, bool, int, float, complex)
    if all(isinstance(leaf, numbers) for leaf in jax.tree.leaves(tree)):
        return
    for path, leaf in jax.tree_util.tree_flatten_with_path(tree)[0]:
        if not (isinstance(leaf, numbers) or hasattr(leaf, "__jax_array__")):
            place = f"{name}{jax.tree_util.keystr(path)}"
            raise TypeError(f"{place} must hold numbers or arrays, or an object of a class decorated with @jaxdae.pytree, got {came(leaf)}")


# Conditions that many classes share.


def not_negative(x: Any) -> Any:
    """Returns the condition x >= 0, true for None."""
    return x is None or x >= 0


def positive(x: Any) -> Any:
    """Return the condition that x is positive and finite."""
    return (x > 0) & (x < np.inf)


def not_above(lower: Any, upper: Any) -> Any:
    """Returns the condition lower <= upper, true where one of them is None."""
    return lower is None or upper is None or lower <= upper


def ascending(x: Any) -> Any:
    """Returns the condition that each entry of an array along its last axis is below the next."""
    return x[..., :-1] < x[..., 1:] if getattr(x, "ndim", 0) > 0 else True


def fraction(x: Any) -> Any:
    """Returns the condition 0 <= x < 1, true for None: what is negligible relative to something."""
    return x is None or (x >= 0) & (x < 1)


def checked_count(name: str, value: Any) -> int:
    """Returns how many there are to be of something, a whole number of at least one.

    Args:
        name: of the argument, for the message.
        value: what was handed over.

    Raises:
        TypeError: no integer; True and 2.0 are none.
        ValueError: an integer below one.
    """
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise TypeError(f"{name} must be an integer, got {came(value)}")
    if value < 1:
        raise ValueError(f"{name} must be at least 1, got {brief(value)}")
    return int(value)


def offers(thing: Any, *methods: str) -> bool:
    """Returns whether something is an instance, no class, and has these methods."""
    return not isinstance(thing, type) and all(hasattr(thing, method) for method in methods)


def came(value: Any) -> str:
    """Returns in words what somebody handed over, and what to write instead where that is plain to see."""
    if isinstance(value, type):
        return f"the class {value.__name__}; call it: {value.__name__}()"
    if isinstance(value, types.MethodType) and isinstance(value.__self__, type):
        call = f"{value.__self__.__name__}.{value.__name__}"
        return f"the method {call}; call it: {call}(), not {call}"
    if isinstance(value, str):
        return f"the text {brief(value)}"
    if isinstance(value, jax.Array | np.ndarray):
        return np.array2string(np.asarray(value), precision=4, threshold=6) if not isinstance(value, Tracer) else f"{value}"
    if isinstance(value, Stacked):
        return came(value.value)
    plain = value is None or isinstance(value, bool | int | float | complex | np.generic | tuple | list)
    if plain and len(text := brief(value, str if isinstance(value, np.generic) else repr)) < 80:
        return text
    if isinstance(value, types.FunctionType | types.BuiltinFunctionType | types.MethodType):
        return f"the function {value.__qualname__}"
    return f"{'an' if type(value).__name__[:1] in 'AEIOU' else 'a'} {type(value).__name__}"


# Walking.


class _Unmet(Exception):
    """Carries the error of a requirement past the handler of errors that its condition makes."""

    def __init__(self, reason: Exception) -> None:
        self.reason = reason


def _reason(path: str, thing: Any, text: str, error: type[Exception]) -> Exception:
    """Returns the error of a requirement, with what the fields hold that its text names."""
    values = {name: getattr(thing, name) for name in _fields(type(thing))[1] if re.search(rf"\b{name}\b", text)}
    shown = [came(x) if len(values) == 1 else f"{name} = {came(x)}" for name, x in values.items()]
    return error(f"{path}: {type(thing).__name__}.{text}" + (f", got {', '.join(shown)}" if shown else ""))


@functools.cache
def _fields(kind: type) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Returns the names of the fields of a dataclass that hold subtrees, and of all fields."""
    fields = dataclasses.fields(kind)
    return tuple(f.name for f in fields if not f.metadata.get("static", False)), tuple(f.name for f in fields)


@functools.cache
def _is_object(kind: type) -> bool:
    return dataclasses.is_dataclass(kind) and kind is not Stacked


@functools.cache
def _is_inner(kind: type) -> bool:
    """Returns whether objects may lie inside of one of this type."""
    return _is_object(kind) or issubclass(kind, tuple | list | dict | functools.partial)


@functools.cache
def _demands(kind: type) -> bool:
    return isinstance(getattr(kind, "requirements", None), types.FunctionType)


def _demanding(path: str, tree: Any) -> Iterator[tuple[str, Any]]:
    """Yields every object with requirements, those outside before those inside, with its place."""
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

"""User-defined functions: laws, references, outputs, motions.

A compiled program treats a function in one of two ways. The numbers of a pytree are arguments of the program.
A plain function is part of the program. An object of a class that is not a pytree is neither: its attributes
may change unnoticed, while the program continues with the values at compile time. Such objects raise an
error.
"""

from __future__ import annotations

import functools
import types
from typing import Any

import jax
import jax.numpy as jnp


def as_pytree(function: Any, name: str = "a function") -> Any:
    """Return a plain function as a pytree without leaves; convert tuples and lists of functions by entry.

    Everything else is returned unchanged.

    Args:
        function: anything; an object that is not a function is returned unchanged.
        name: of the argument, for the message.

    Raises:
        TypeError: as in `checked_function`.
    """
    if type(function) in (tuple, list):
        return type(function)(as_pytree(entry, f"{name}[{k}]") for k, entry in enumerate(function))
    function = checked_function(function, name)
    return jax.tree_util.Partial(function) if is_plain(function) else function


def is_plain(function: Any) -> bool:
    """Return whether an object is a function without pytree structure. Classes do not count."""
    return callable(function) and not isinstance(function, type) and jax.tree_util.all_leaves([function])


def checked_function(function: Any, name: str) -> Any:
    """Return the argument; a bound method of a pytree becomes a pytree of the method and its object.

    Args:
        function: anything; an object that is not a function is returned unchanged.
        name: of the argument, for the message.

    Raises:
        TypeError: an object with `__call__` whose class is not a pytree, or a method of such an object.
    """
    if not callable(function) or isinstance(function, type):
        return function
    if not (is_plain(function) or isinstance(function, functools.partial)):
        return function
    hidden = _unknown_object(function)
    if hidden is not None:
        kind = type(hidden).__name__
        raise TypeError(
            f"{name} has the class {kind}, which is unknown to JAX, so compilation would fix its values "
            f"and ignore later changes. Decorate {kind} with @jaxdae.tree.pytree, or pass a plain function"
        )
    if isinstance(function, types.MethodType) and not isinstance(function.__self__, type):
        return jax.tree_util.Partial(function.__func__, function.__self__)
    return function


def _unknown_object(function: Any) -> Any:
    """Return the object whose class is not a pytree and whose attributes a function reads, or None."""
    if isinstance(function, types.FunctionType | type | jnp.ufunc):
        return None
    if isinstance(function, types.MethodType):
        owner = function.__self__
        return owner if not isinstance(owner, type) and jax.tree_util.all_leaves([owner]) else None
    inner = (
        function.func if isinstance(function, functools.partial) else getattr(function, "__wrapped__", None)
    )
    if inner is not None:
        return _unknown_object(inner)
    # Functions of compiled extensions have no `__call__` written in Python.
    written = isinstance(type(function).__call__, types.FunctionType)
    return function if written and jax.tree_util.all_leaves([function]) else None

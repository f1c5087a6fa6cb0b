"""Functions that users hand over: laws, references, outputs, motions.

A compiled program knows of a function either that it is a pytree, whose numbers are arguments of the program, or that it is this very
function, which is a part of the program. An object of a class that JAX does not know is neither: its attributes may change without anybody
noticing, and the program would go on with those that it was compiled with. Such objects are refused.
"""

from __future__ import annotations

import functools
import types
from typing import Any

import jax
import jax.numpy as jnp


def as_pytree(function: Any, name: str = "a function") -> Any:
    """Returns a plain function as a pytree without leaves, a tuple or list of functions entry by entry, everything else as it is.

    Args:
        function: anything; where it is no function, it is returned as it is.
        name: of what is handed over, for the message.

    Raises:
        TypeError: as `checked_function`.
    """
    if type(function) in (tuple, list):
        return type(function)(as_pytree(entry, f"{name}[{k}]") for k, entry in enumerate(function))
    function = checked_function(function, name)
    return jax.tree_util.Partial(function) if is_plain(function) else function


def is_plain(function: Any) -> bool:
    """Returns whether something is a function that JAX cannot take apart; classes, whose instances are meant, are none."""
    return callable(function) and not isinstance(function, type) and jax.tree_util.all_leaves([function])


def checked_function(function: Any, name: str) -> Any:
    """Returns what was given, and of a bound method of a pytree a pytree: the method, and the object that it is bound to.

    Args:
        function: anything; where it is no function, it is returned as it is.
        name: of what is handed over, for the message.

    Raises:
        TypeError: an object with `__call__` of a class that is no pytree, or a method of such an object.
    """
    if not callable(function) or isinstance(function, type):
        return function
    if not (is_plain(function) or isinstance(function, functools.partial)):
        return function
    hidden = _unknown_object(function)
    if hidden is not None:
        kind = type(hidden).__name__
        raise TypeError(
            f"{name} is of the class {kind}, which is unknown to JAX: what it holds would be fixed when the program is compiled, and later"
            f" changes of it ignored. Decorate {kind} with @jaxdae.pytree, or pass a plain function"
        )
    if isinstance(function, types.MethodType) and not isinstance(function.__self__, type):
        return jax.tree_util.Partial(function.__func__, function.__self__)
    return function


def _unknown_object(function: Any) -> Any:
    """Returns the object of a class unknown to JAX whose attributes a function reads, None where there is none."""
    if isinstance(function, types.FunctionType | type | jnp.ufunc):
        return None
    if isinstance(function, types.MethodType):
        owner = function.__self__
        return owner if not isinstance(owner, type) and jax.tree_util.all_leaves([owner]) else None
    inner = function.func if isinstance(function, functools.partial) else getattr(function, "__wrapped__", None)
    if inner is not None:
        return _unknown_object(inner)
    # Functions of compiled extensions have no `__call__` written in Python.
    written = isinstance(type(function).__call__, types.FunctionType)
    return function if written and jax.tree_util.all_leaves([function]) else None

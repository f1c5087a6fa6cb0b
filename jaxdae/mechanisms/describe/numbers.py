"""Checks of user-provided numbers, and their conversion to arrays."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from jaxdae.base.suggestions import brief, join_first, meant


def concrete(x: Any) -> np.ndarray | None:
    """Return the numbers as an array, None for traced numbers, or one NaN for text, Booleans and others."""
    leaves = jax.tree.leaves(x)
    if not all(map(_is_real, leaves)):
        return np.asarray(np.nan)
    if any(isinstance(leaf, Tracer) for leaf in leaves):
        return None
    try:
        return np.asarray(x, float)
    except (OverflowError, TypeError, ValueError):
        return np.asarray(np.nan)


def named_positive(names: Sequence[str], x: Any) -> tuple[str, ...]:
    """Return the names of the positive entries along the last axis of numbers; () for traced numbers."""
    numbers = concrete(x)
    if numbers is None:
        return ()
    found = np.any(numbers.reshape(-1, len(names)) > 0.0, axis=0)
    return tuple(name for name, positive in zip(names, found, strict=True) if positive)


def _is_real(leaf: Any) -> bool:
    """Return whether a leaf is a real number, an array of real numbers, or traced."""
    if isinstance(leaf, Tracer | int | float) and not isinstance(leaf, bool):
        return True
    dtype = getattr(leaf, "dtype", None) or np.asarray(leaf).dtype
    return jnp.issubdtype(dtype, jnp.floating) or jnp.issubdtype(dtype, jnp.integer)


def shape_of(x: Any) -> tuple[int, ...] | None:
    """Return the shape of numbers, including traced numbers; None for ragged lists."""
    if isinstance(x, list | tuple):
        shapes = {shape_of(entry) for entry in x} or {()}
        shape = shapes.pop()
        return None if shapes or shape is None else (len(x), *shape)
    return tuple(getattr(x, "shape", ()))


def is_vector(x: Any, size: int) -> bool:
    """Return whether a value consists of `size` finite numbers, or is traced with that shape."""
    numbers = concrete(x)
    if numbers is None:
        return shape_of(x) == (size,)
    return numbers.shape == (size,) and bool(np.all(np.isfinite(numbers)))


def is_number(x: Any) -> bool:
    """Return whether a value is a finite number, or is traced with shape ()."""
    numbers = concrete(x)
    return shape_of(x) == () if numbers is None else numbers.ndim == 0 and bool(np.isfinite(numbers))


def has_length(x: Any) -> bool:
    """Return whether a vector is traced, or can be divided by its length.

    Its squares must neither overflow nor underflow in the default precision.
    """
    numbers = concrete(x)
    if numbers is None:
        return True
    kept = jnp.finfo(jnp.result_type(float))
    least, most = np.sqrt(float(kept.tiny)), 0.5 * np.sqrt(float(kept.max))
    return bool(least < np.max(np.abs(numbers), initial=0.0) < most)


def is_positive(x: Any) -> bool:
    """Return whether a value is a positive number, or traced."""
    numbers = concrete(x)
    return is_number(x) and (numbers is None or bool(numbers > 0.0))


def is_zero(x: Any) -> bool:
    """Return whether a value is the number zero."""
    numbers = concrete(x)
    return is_number(x) and numbers is not None and bool(numbers == 0.0)


def is_there(x: Any) -> bool:
    """Return whether any of the numbers is traced or nonzero."""
    numbers = concrete(x)
    return numbers is None or bool(np.any(numbers != 0.0))


def at_time(x: Any, t: Any) -> Any:
    """Return a number, zero for None, or the value of a function of time at t in s."""
    return 0.0 if x is None else x(t) if callable(x) else x


def real(x: Any) -> Any:
    """Return a number as an array in the default precision."""
    return jnp.asarray(x, jnp.result_type(float))


def floating(x: Any) -> Any:
    """Return numbers as an array in their own precision, or in the default precision for integers."""
    given = jnp.asarray(x)
    return given if jnp.issubdtype(given.dtype, jnp.floating) else given.astype(jnp.result_type(float))


def vector(x: Any) -> Any:
    """Return numbers as an array in the default precision."""
    return real(x) if isinstance(x, jax.Array) else jnp.stack([real(entry) for entry in x])


def hint(name: Any, known: Sequence[str]) -> str:
    """Return a suggestion of the closest known name for an unknown name."""
    if not known:
        return " (none available)"
    if isinstance(name, str):
        return f" ({meant(name, known) or 'available: ' + join_first(dict.fromkeys(known))})"
    own = getattr(name, "name", None)
    return (
        f" (give its name, {brief(own)})"
        if isinstance(own, str)
        else f" (available: {join_first(dict.fromkeys(known))})"
    )


def batches(x: Any, *shape: int) -> str:
    """Return the remedy for numbers with a leading world axis, or empty text for other shapes."""
    given = shape_of(x)
    return (
        "; if the leading axis is a world axis: a description holds one world, use jax.vmap for many"
        if given and given[1:] == shape
        else ""
    )


def are_names(x: Any) -> bool:
    """Return whether a value is a sequence of texts."""
    return isinstance(x, Sequence) and not isinstance(x, str) and all(isinstance(name, str) for name in x)


def shown(x: Any) -> str:
    """Return a value for a message: on one line, and shortened if it is long."""
    return brief(x, str if hasattr(x, "dtype") else repr)


def said(x: Any) -> str:
    """Return a short text for a value that was given instead of a name."""
    return (
        shown(x)
        if x is None or isinstance(x, str | int | float)
        else f"a {x.__name__ if isinstance(x, type) else type(x).__name__}"
    )


def vector_mistakes(value: Any, dimension: int) -> Iterable[str]:
    """Yield an error if the value is not a vector."""
    if not is_vector(value, dimension):
        names = "two finite numbers (x, y)" if dimension == 2 else "three finite numbers (x, y, z)"
        yield f"must be {names}, got {shown(value)}{batches(value, dimension)}"

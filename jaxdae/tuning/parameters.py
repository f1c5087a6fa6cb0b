"""Selection of the trained leaves, and their free variables.

A fit changes only the leaves that are named by dotted path ("integrator.stabilization.alpha", "state.v").
Bounds hold by construction, because the optimizer moves a free variable z, and the leaf is a smooth,
increasing function of z:

    Positive          x = exp(z)                                     equal steps of z are equal ratios of x
    AtLeast, AtMost   x = lower + s log(1 + exp(z / s))              the identity far from the bound;
                                                                     s is the width of the bend
    Between           x = lower + (upper - lower) / (1 + exp(-z))    z = 4 dx / (upper - lower) around the
                                                                     middle

None of these functions reaches its bound. A start value on a bound, where the derivative would vanish,
therefore raises an error instead of a fit that does not move.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from jaxdae.base.dataclass import get_leaf, leaf_paths, set_leaf
from jaxdae.base.requirements import offers
from jaxdae.base.suggestions import meant


class Bound(Protocol):
    """A range of values, as a smooth increasing function of a free variable."""

    def constrained(self, z: Any) -> Any:
        """Return x, inside the range, at the free variable z of the same shape."""
        ...

    def free(self, x: Any) -> Any:
        """Return the free variable z of a value inside the range."""
        ...

    def outside(self, x: Any) -> str:
        """Return a description of concrete values outside the range, empty if all values are inside."""
        ...


@dataclasses.dataclass(frozen=True)
class Unbounded:
    """Any value, x = z."""

    def constrained(self, z: Any) -> Any:
        """Return z unchanged."""
        return z

    def free(self, x: Any) -> Any:
        """Return x unchanged."""
        return x

    def outside(self, x: Any) -> str:
        """Return an error text if values are not finite."""
        return "" if np.all(np.isfinite(x)) else "is not finite"


@dataclasses.dataclass(frozen=True)
class Positive:
    """x > 0, by x = exp(z): for masses, lengths and gains of unknown magnitude."""

    def constrained(self, z: Any) -> Any:
        """Return exp(z)."""
        return jnp.exp(z)

    def free(self, x: Any) -> Any:
        """Return log(x)."""
        return jnp.log(x)

    def outside(self, x: Any) -> str:
        """Return an error text if values are not positive."""
        return "" if _all(x > 0) else "must be above 0"


@dataclasses.dataclass(frozen=True)
class AtLeast:
    """x > lower, by softplus.

    Attributes:
        lower: the bound, in the unit of the leaf; a number or an array that broadcasts.
        scale: s > 0, in the unit of the leaf: the distance from the bound below which z and x begin to
            differ.
    """

    lower: Any
    scale: Any = 1.0

    def constrained(self, z: Any) -> Any:
        """Return lower + s log(1 + exp(z / s))."""
        return _as(self.lower, z) + _as(self.scale, z) * jax.nn.softplus(z / _as(self.scale, z))

    def free(self, x: Any) -> Any:
        """Return s log(exp((x - lower) / s) - 1), without overflow."""
        y = (x - _as(self.lower, x)) / _as(self.scale, x)
        return _as(self.scale, x) * (y + jnp.log(-jnp.expm1(-y)))

    def outside(self, x: Any) -> str:
        """Return an error text if values are not above the bound."""
        if not _all(np.asarray(self.scale) > 0):
            return f"has a bound whose scale {_show(self.scale)} is not positive;"
        return "" if _all(x > np.asarray(self.lower)) else f"must be above {_show(self.lower)}"


@dataclasses.dataclass(frozen=True)
class AtMost:
    """x < upper, the mirror image of `AtLeast`.

    Attributes:
        upper: the bound, in the unit of the leaf; a number or an array that broadcasts.
        scale: s > 0, in the unit of the leaf: the distance from the bound below which z and x begin to
            differ.
    """

    upper: Any
    scale: Any = 1.0

    def constrained(self, z: Any) -> Any:
        """Return upper - s log(1 + exp(-z / s))."""
        return -AtLeast(-_as(self.upper, z), self.scale).constrained(-z)

    def free(self, x: Any) -> Any:
        """Return the inverse of `constrained`."""
        return -AtLeast(-_as(self.upper, x), self.scale).free(-x)

    def outside(self, x: Any) -> str:
        """Return an error text if values are not below the bound."""
        if not _all(np.asarray(self.scale) > 0):
            return f"has a bound whose scale {_show(self.scale)} is not positive;"
        return "" if _all(x < np.asarray(self.upper)) else f"must be below {_show(self.upper)}"


@dataclasses.dataclass(frozen=True)
class Between:
    """lower < x < upper, by a sigmoid: torque limits, angles, ratios.

    Attributes:
        lower: the lower bound, in the unit of the leaf; a number or an array that broadcasts.
        upper: the upper bound.
    """

    lower: Any
    upper: Any

    def constrained(self, z: Any) -> Any:
        """Return lower + (upper - lower) / (1 + exp(-z))."""
        lower, upper = _as(self.lower, z), _as(self.upper, z)
        return lower + (upper - lower) * jax.nn.sigmoid(z)

    def free(self, x: Any) -> Any:
        """Return log((x - lower) / (upper - x))."""
        return jnp.log(x - _as(self.lower, x)) - jnp.log(_as(self.upper, x) - x)

    def outside(self, x: Any) -> str:
        """Return an error text if values are not between the bounds."""
        if not _all(np.asarray(self.lower) < np.asarray(self.upper)):
            return (
                f"has a lower bound {_show(self.lower)} that is not below its upper bound "
                f"{_show(self.upper)};"
            )
        inside = _all(x > np.asarray(self.lower)) and _all(x < np.asarray(self.upper))
        return "" if inside else f"must be between {_show(self.lower)} and {_show(self.upper)}"


@dataclasses.dataclass(frozen=True)
class Entries:
    """Some entries of a leaf; the other entries do not change.

    Attributes:
        where: a boolean mask with the shape of the leaf.
        bound: the range of these entries; arrays in it are broadcast to the number of entries.
    """

    where: Any
    bound: Bound = Unbounded()


Trainable = None | str | Sequence[Any] | Mapping[str, Any]
"""Selection of trained leaves: a path, several paths, or a mapping of paths to bounds; None for all
floating-point leaves."""


def _as(x: Any, like: Any) -> Any:
    return jnp.asarray(x, jnp.result_type(like))


def _all(condition: Any) -> bool:
    return bool(np.all(condition))


def _show(x: Any) -> str:
    return f"{float(x):g}" if np.ndim(x) == 0 else np.array2string(np.asarray(x), precision=4, threshold=6)


@dataclasses.dataclass(frozen=True)
class Reparametrization:
    """The map between the trained leaves of a pytree and free variables. Made by `reparametrize`.

    Attributes:
        paths: the dotted paths of the trained leaves.
        bounds: the range of each leaf.
        entries: indices (k,) into each flattened leaf, None for the whole leaf.
    """

    paths: tuple[str, ...]
    bounds: tuple[Any, ...]
    entries: tuple[Any, ...]

    def split(self, parameters: Any) -> dict[str, Any]:
        """Return the free variables by path, each with the shape of its leaf, or (k,) for `Entries`."""
        free = {}
        for path, bound, entries in zip(self.paths, self.bounds, self.entries, strict=True):
            x = jnp.asarray(get_leaf(parameters, path))
            free[path] = bound.free(x if entries is None else x.reshape(-1)[entries])
        return free

    def join(self, parameters: Any, free: dict[str, Any]) -> Any:
        """Return the parameters with the trained leaves at the values of the free variables."""
        for path, x in self.values(free).items():
            entries = self.entries[self.paths.index(path)]
            if entries is not None:
                old = jnp.asarray(get_leaf(parameters, path))
                x = old.reshape(-1).at[entries].set(x).reshape(old.shape)
            parameters = set_leaf(parameters, path, x)
        return parameters

    def values(self, free: dict[str, Any]) -> dict[str, Any]:
        """Return the values of the trained numbers by path, in their own units."""
        return {
            path: bound.constrained(free[path]) for path, bound in zip(self.paths, self.bounds, strict=True)
        }


def reparametrize(
    parameters: Any, trainable: Trainable = None, *, starts: int | None = None
) -> Reparametrization:
    """Check paths and start values, and return the trained leaves of a pytree with their bounds.

    Args:
        parameters: any pytree of systems, integrators, states, controls, numbers.
        trainable: the paths of leaves (or of subtrees, for all their floating-point leaves), or a mapping of
            paths to `Positive`, `AtLeast`, `AtMost`, `Between`, `Unbounded` or `Entries`; None for all
            floating-point leaves without bounds.
        starts: the length of the leading axis of the trained leaves, if they are stacks of independent
            starts.

    Raises:
        ValueError: an unknown leaf, no leaf at all, a leaf named twice, a start value outside its range, a
            mask that does not fit.
        TypeError: a leaf that is not floating point, an invalid bound.
    """
    if isinstance(trainable, str):
        trainable = [trainable]
    if trainable is None:
        trainable = [
            path
            for path in leaf_paths(parameters)
            if _is_float(get_leaf(parameters, path) if path else parameters)
        ]
    named: Mapping[str, Any] = (
        trainable if isinstance(trainable, Mapping) else {path: Unbounded() for path in _once(trainable)}
    )
    found: dict[str, tuple[Any, Any]] = {}
    for path, bound in named.items():
        for leaf in _below(parameters, path):
            if leaf in found:
                raise ValueError(f"trainable: the leaf {leaf!r} is named twice; name each leaf once")
            found[leaf] = _checked(leaf, get_leaf(parameters, leaf), bound, starts)
    if not found:
        raise ValueError(
            f"trainable must name at least one leaf; available: {_listed(leaf_paths(parameters))}"
        )
    bounds, entries = zip(*found.values(), strict=True)
    return Reparametrization(tuple(found), bounds, entries)


def _once(paths: Sequence[Any]) -> Sequence[Any]:
    for path in paths:
        if not isinstance(path, str):
            raise TypeError(
                f"trainable must name leaves by dotted path, got {path!r}; leaf_paths(parameters) lists them"
            )
    twice = [path for k, path in enumerate(paths) if path in paths[:k]]
    if twice:
        raise ValueError(f"trainable: the leaf {twice[0]!r} is named twice; name each leaf once")
    return paths


def _below(parameters: Any, path: str) -> list[str]:
    """Return the paths of the floating-point leaves below a path, or the path itself if it is a leaf."""
    try:
        inside = get_leaf(parameters, path)
    except KeyError:
        known = leaf_paths(parameters)
        remedy = " ".join(filter(None, (meant(path, known), f"available: {_listed(known)}")))
        raise ValueError(f"trainable: the parameters have no leaf {path!r}; {remedy}") from None
    if jax.tree_util.all_leaves([inside]):
        return [path]
    leaves = [f"{path}.{below}" for below in leaf_paths(inside) if _is_float(get_leaf(inside, below))]
    if not leaves:
        raise ValueError(
            f"trainable: {path!r} contains no floating-point leaf; available: "
            f"{_listed(leaf_paths(parameters))}"
        )
    return leaves


def _listed(paths: Sequence[str]) -> str:
    return ", ".join(paths[:40]) + (f", ... ({len(paths)} in all)" if len(paths) > 40 else "")


def _is_float(x: Any) -> bool:
    return isinstance(x, float | jax.Array | np.ndarray | np.floating) and bool(
        jnp.issubdtype(jnp.result_type(x), jnp.floating)
    )


def _checked(path: str, leaf: Any, bound: Any, starts: int | None) -> tuple[Any, Any]:
    """Return the range and the indices of the entries of a trained leaf."""
    if not _is_float(leaf):
        kind = (
            f"{jnp.result_type(leaf)}"
            if isinstance(leaf, int | jax.Array | np.ndarray)
            else type(leaf).__name__
        )
        hint = "; write 0.0 instead of 0" if isinstance(leaf, int) else ""
        raise TypeError(f"trainable: the leaf {path!r} is {kind}, expected floating point{hint}")
    shape = jnp.shape(leaf)
    if starts is not None:
        if shape[:1] != (starts,):
            raise ValueError(
                f"trainable: the leaf {path!r} has shape {shape}, expected {starts} starts along its first "
                "axis"
            )
        shape = shape[1:]
    entries = None
    if isinstance(bound, Entries):
        mask = np.asarray(bound.where)
        if mask.dtype != bool or mask.shape != shape:
            raise ValueError(
                f"trainable: the mask of {path!r} must be boolean of shape {shape}, got {mask.dtype} of "
                f"shape {mask.shape}"
            )
        if not mask.any():
            raise ValueError(f"trainable: the mask of {path!r} selects none of its entries")
        entries, bound = np.flatnonzero(mask), bound.bound
    if not offers(bound, "constrained", "free", "outside"):
        raise TypeError(
            f"trainable: the bound of {path!r} must be a value such as Positive() or Between(0.0, 1.0), got "
            f"{bound!r}"
        )
    if not isinstance(leaf, Tracer):
        values = np.asarray(leaf)
        if entries is not None:
            values = values.reshape((*values.shape[: values.ndim - len(shape)], -1))[..., entries]
        wrong = bound.outside(values)
        if wrong:
            raise ValueError(
                f"trainable: the leaf {path!r} {wrong}, and starts at {_show(values)}; change the start "
                "value or the bound"
            )
    return bound, entries

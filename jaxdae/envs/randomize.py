"""Domain randomization: draw leaves of the system separately for every world."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxdae.base.dataclass import get_leaf, pytree
from jaxdae.base.requirements import checked_count
from jaxdae.envs.environment import real_type, with_params
from jaxdae.envs.task import Start
from jaxdae.mechanisms.describe.numbers import concrete
from jaxdae.typing import Leaf


@pytree
class Factor:
    """Multiply leaves by uniform random factors, one per entry of their first axis, such as per body.

    Attributes:
        low: smallest factor.
        high: largest factor.
    """

    low: Leaf
    high: Leaf

    def __call__(self, key: Any, leaf: Any) -> Any:
        """Return a random leaf with the shape of the leaf."""
        drawn = jax.random.uniform(key, leaf.shape[:1], leaf.dtype, self.low, self.high)
        return leaf * drawn.reshape(drawn.shape + (1,) * (leaf.ndim - drawn.ndim))


@pytree
class Range:
    """Draw leaves entry by entry, uniformly between two numbers or arrays.

    Attributes:
        low: smallest values, a number or an array with the shape of the leaf.
        high: largest values, a number or an array with the shape of the leaf.
    """

    low: Leaf
    high: Leaf

    def __call__(self, key: Any, leaf: Any) -> Any:
        """Return a random leaf with the shape of the leaf."""
        return jax.random.uniform(key, leaf.shape, leaf.dtype, self.low, self.high)


def sample_params(key: Any, system: Any, by: Mapping[str | tuple[str, ...], Any]) -> dict[str, Any]:
    """Return random params of one world; apply `jax.vmap` over keys for many worlds.

    Args:
        key: random key.
        system: the system whose leaves are drawn.
        by: `Factor(0.8, 1.2)`, `Range(low, high)` or your own function (key, leaf) -> leaf, by dotted path.
            The paths in a tuple use the same random numbers: {("mass", "inertia"): Factor(0.8, 1.2)}
            randomizes the density of bodies.

    Raises:
        ValueError: a path that names no leaf, a duplicate path, bounds in the wrong order, or a drawn leaf of
            another shape.

    Example:
        >>> draw = lambda key: envs.sample_params(key, system, {"mass": envs.Factor(0.8, 1.2)})
        >>> params = jax.vmap(draw)(jax.random.split(key, 64))
    """
    groups = [(paths,) if isinstance(paths, str) else tuple(paths) for paths in by]
    named = [path for group in groups for path in group]
    twice = sorted({path for path in named if named.count(path) > 1})
    if twice:
        raise ValueError(f"sample_params: {', '.join(twice)} named twice; name each leaf once")
    for group, draw in zip(groups, by.values(), strict=True):
        low, high = (
            concrete(getattr(draw, name)) if isinstance(draw, Factor | Range) else None
            for name in ("low", "high")
        )
        # With bounds in the wrong order, all numbers would equal the lower bound.
        if low is not None and high is not None and not np.all(low <= high):
            raise ValueError(
                f"sample_params: low must not be above high for {', '.join(group)}, got {draw.low} and "
                f"{draw.high}"
            )
    with_params(system, {path: leaf for path in named if (leaf := _found(system, path)) is not None})
    params, dtype = {}, real_type(system)
    for number, (group, draw) in enumerate(zip(groups, by.values(), strict=True)):
        own = jax.random.fold_in(key, number)
        params |= {path: draw(own, _real(get_leaf(system, path), dtype)) for path in group}
    with_params(system, params)
    return params


@pytree
class StartPool:
    """A reset that draws one of many precomputed starts, for tasks whose reset closes loops.

    Attributes:
        starts: a `Start` whose leaves are stacked, (count, ...).

    The starts belong to the system that produced them. Params that do not affect constraints, such as masses,
    are compatible with them. Other params would violate the constraints, and the episode would end
    immediately with INCONSISTENT_START.
    """

    starts: Any

    @classmethod
    def drawn(cls, task: Any, key: Any, count: int) -> StartPool:
        """Return a pool of starts: `dataclasses.replace(task, reset=StartPool.drawn(task, key, 256))`."""
        checked_count("StartPool.drawn: count", count)
        return cls(
            jax.jit(jax.vmap(task.reset, in_axes=(0, None)))(jax.random.split(key, count), task.system)
        )

    def __call__(self, key: Any, system: Any) -> Start:
        """Return one of the starts at random."""
        count = jax.tree.leaves(self.starts)[0].shape[0]
        return jax.tree.map(lambda x: x[jax.random.randint(key, (), 0, count)], self.starts)


def _real(leaf: Any, dtype: Any) -> Any:
    """Return a leaf as an array, with a real dtype for Python integers such as a mass of 2."""
    return (
        jnp.asarray(leaf, dtype)
        if isinstance(leaf, int) and not isinstance(leaf, bool)
        else jnp.asarray(leaf)
    )


def _found(system: Any, path: str) -> Any:
    """Return the subtree at a path, or a placeholder for an unknown path, which `with_params` reports."""
    try:
        return get_leaf(system, path)
    except KeyError:
        return 0.0

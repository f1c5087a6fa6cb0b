"""Domain randomization: every world a system of its own, by drawing leaves of the system."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxdae._pytree import get_leaf, pytree
from jaxdae.envs.environment import real_type, with_params
from jaxdae.envs.task import Start
from jaxdae.mechanisms.values import concrete
from jaxdae.requirements import checked_count
from jaxdae.typing import Leaf


@pytree
class Factor:
    """Leaves are multiplied by random factors, uniform between two numbers: one for each entry of their first axis, such as a body.

    Attributes:
        low: least factor.
        high: largest factor.
    """

    low: Leaf
    high: Leaf

    def __call__(self, key: Any, leaf: Any) -> Any:
        """Returns a leaf that was drawn, of the shape of the leaf."""
        drawn = jax.random.uniform(key, leaf.shape[:1], leaf.dtype, self.low, self.high)
        return leaf * drawn.reshape(drawn.shape + (1,) * (leaf.ndim - drawn.ndim))


@pytree
class Range:
    """Leaves are drawn entry by entry, uniform between two numbers or arrays.

    Attributes:
        low: least values, a number or of the shape of the leaf.
        high: largest values.
    """

    low: Leaf
    high: Leaf

    def __call__(self, key: Any, leaf: Any) -> Any:
        """Returns a leaf that was drawn, of the shape of the leaf."""
        return jax.random.uniform(key, leaf.shape, leaf.dtype, self.low, self.high)


def sample_params(key: Any, system: Any, by: Mapping[str | tuple[str, ...], Any]) -> dict[str, Any]:
    """Returns params of one world; `jax.vmap` over keys makes those of many.

    Args:
        key: of random numbers.
        system: whose leaves are meant.
        by: `Factor(0.8, 1.2)`, `Range(low, high)` or a function (key, leaf) -> leaf of your own by dotted path. Several paths in a tuple
            are drawn with the same numbers: {("mass", "inertia"): Factor(0.8, 1.2)} are bodies of other density.

    Raises:
        ValueError: a path that names no leaf, one named twice, bounds in the wrong order, or a leaf that is drawn with another shape.

    Example:
        >>> params = jax.vmap(lambda key: envs.sample_params(key, system, {"mass": envs.Factor(0.8, 1.2)}))(jax.random.split(key, 64))
    """
    groups = [(paths,) if isinstance(paths, str) else tuple(paths) for paths in by]
    named = [path for group in groups for path in group]
    twice = sorted({path for path in named if named.count(path) > 1})
    if twice:
        raise ValueError(f"sample_params: {', '.join(twice)} named twice; name each leaf once")
    for group, draw in zip(groups, by.values(), strict=True):
        low, high = (concrete(getattr(draw, name)) if isinstance(draw, Factor | Range) else None for name in ("low", "high"))
        # Uniform numbers between bounds in the wrong order would all be the lower one.
        if low is not None and high is not None and not np.all(low <= high):
            raise ValueError(f"sample_params: low must not be above high for {', '.join(group)}, got {draw.low} and {draw.high}")
    with_params(system, {path: leaf for path in named if (leaf := _found(system, path)) is not None})
    params, dtype = {}, real_type(system)
    for number, (group, draw) in enumerate(zip(groups, by.values(), strict=True)):
        own = jax.random.fold_in(key, number)
        params |= {path: draw(own, _real(get_leaf(system, path), dtype)) for path in group}
    with_params(system, params)
    return params


@pytree
class StartPool:
    """A reset that draws one of many starts that were computed before: for tasks whose reset closes loops.

    Attributes:
        starts: a `Start` whose leaves are stacked, (count, ...).

    The starts belong to the system with which they were made. Params that leave constraints alone, such as masses, do them no harm; with
    others they would break the constraints, and the episode would end at once with INCONSISTENT_START.
    """

    starts: Any

    @classmethod
    def drawn(cls, task: Any, key: Any, count: int) -> StartPool:
        """Returns a pool of starts of a task: `dataclasses.replace(task, reset=StartPool.drawn(task, key, 256))`."""
        checked_count("StartPool.drawn: count", count)
        return cls(jax.jit(jax.vmap(task.reset, in_axes=(0, None)))(jax.random.split(key, count), task.system))

    def __call__(self, key: Any, system: Any) -> Start:
        """Returns one of the starts."""
        count = jax.tree.leaves(self.starts)[0].shape[0]
        return jax.tree.map(lambda x: x[jax.random.randint(key, (), 0, count)], self.starts)


def _real(leaf: Any, dtype: Any) -> Any:
    """Returns a leaf as an array: of reals where it was written as a whole number, such as a mass of 2."""
    return jnp.asarray(leaf, dtype) if isinstance(leaf, int) and not isinstance(leaf, bool) else jnp.asarray(leaf)


def _found(system: Any, path: str) -> Any:
    """Returns the subtree at a path, or a stand-in where there is none, about which `with_params` complains."""
    try:
        return get_leaf(system, path)
    except KeyError:
        return 0.0

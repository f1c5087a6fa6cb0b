"""Where the links and bodies of many worlds are in space, and the motions of their velocities: arrays whose worlds are last.

What `TreeCoordinates.near` computes for one world, in the same steps. All that is picked are runs of worlds here, and what sums over the
tree, factorizations and forces read has the worlds last already. Not differentiated, as there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxdae.batching.last import ruled, together
from jaxdae.mechanisms.coordinates.links import AXIS, COORDINATES, VELOCITIES, Structure
from jaxdae.mechanisms.coordinates.poses import composed_in_levels, of_free_links

DESIGN = ("fixed", "turning", "sliding", "held")
"""What of `TreeCoordinates` frames depend on."""


def by_worlds(space: Any, shape: Structure, one: Callable[..., tuple[Any, ...]]) -> Callable[..., tuple[Any, ...]]:
    """Returns a function of the design of a tree and q, which is `one` for one world and `_located` for many.

    Args:
        space: where the tree is.
        shape: of the tree.
        one: (*design, q) -> what `TreeCoordinates.near` returns; the design is that of `DESIGN`.
    """
    placed = ruled(one)

    @placed.def_vmap
    def many(size: int, batched: Any, *given: Any) -> Any:
        last = jax.tree.map(lambda x, of: jnp.moveaxis(x, 0, -1) if of else x[..., None], given, tuple(batched))
        found = _located(space, shape, *last)
        found = jax.tree.map(lambda x: jnp.moveaxis(jnp.broadcast_to(x, (*x.shape[:-1], size)), -1, 0), found)
        return found, jax.tree.map(lambda _: True, found)

    return placed


def _located(space: Any, shape: Structure, fixed: Any, turning: Any, sliding: Any, held: Any, q: Any) -> tuple[Any, ...]:
    """Returns the frames of links and of bodies and the motions of velocities about the origins of trees, and the origin of each body.

    The last axis of all arrays is that of the worlds, or of length one.
    """
    frame, count = space.frame, shape.count
    # Of a design the worlds may have some numbers of their own and share others, such as lengths and directions.
    fixed, held = (frame(*jnp.broadcast_arrays(*each)) for each in (fixed, held))
    moved = frame(*together(*jnp.broadcast_arrays(*_moved(frame, shape, turning, sliding, q))))
    own = frame.composed(fixed.array(), moved.array())
    first = np.asarray([parent == count for parent in shape.parents])[:, None] & (np.arange(4) == 3)[:, None, None]
    links = composed_in_levels(frame, shape, jnp.where(first, 0.0, own))
    carriers, on_links = np.asarray(shape.body_links, int), np.asarray(shape.column_links, int)
    if np.any(carriers == count):
        ground = frame(
            *jnp.broadcast_to(jnp.asarray(frame.GROUND, q.dtype)[:, None, None], (len(frame.GROUND), 1, links.shape[-1]))
        ).array()
        on_bodies = jnp.concatenate([links, ground], axis=2)[:, :, carriers]
    else:
        on_bodies = links[:, :, carriers]
    bodies = frame.of_array(frame.composed(on_bodies, held.array()))
    columns = space.screw(*together(*space.screw.of_axis(frame.of_array(links[:, :, on_links]), turning, sliding)))
    origins = np.append(shape.roots, count)[carriers]
    return frame.of_array(links), bodies, columns, [_found(own[k, 3], origins) for k in range(3)]


def _moved(frame: Any, shape: Structure, turning: Any, sliding: Any, q: Any) -> Any:
    """Returns the frames of all links as their own coordinates move them; all are taken for axes first."""
    at, columns = shape.starts(COORDINATES), shape.starts(VELOCITIES)
    frames = frame.of_axis(*together(q[at]), turning[columns], sliding[columns])
    others = [k for k, kind in enumerate(shape.kinds) if kind != AXIS]
    if not others:
        return frames
    found, links = of_free_links(frame, shape, q)
    numbers = np.zeros(shape.count, int)
    numbers[links] = np.arange(len(links))
    is_other = np.isin(np.arange(shape.count), others)[:, None]
    placed = (jnp.concatenate(entries)[numbers] for entries in zip(*found, strict=True))
    return frame(*(jnp.where(is_other, entry, axis) for entry, axis in zip(placed, frames, strict=True)))


def _found(entry: Any, numbers: np.ndarray) -> Any:
    """Returns the entries (k, worlds) with these numbers; zero for the number of all of them."""
    return (jnp.concatenate([entry, jnp.zeros_like(entry[:1])]) if np.any(numbers == entry.shape[0]) else entry)[numbers]

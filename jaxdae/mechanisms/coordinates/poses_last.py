"""Where the links and bodies of many worlds are in space, and the motions of their velocities: arrays whose worlds are last.

What `TreeCoordinates.near` computes for one world, in the same steps. All that is picked are runs of worlds here, and what sums over the
tree, factorizations and forces read has the worlds last already. Not differentiated, as there.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxdae.batching.last import Ruled, joined, together
from jaxdae.geometry.trigonometry import kept_cos_sin
from jaxdae.mechanisms.coordinates.links import AXIS, COORDINATES, PLACE, VELOCITIES, Structure
from jaxdae.mechanisms.coordinates.poses import ARRAYS_UP_TO, composed_in_levels, of_free_links
from jaxdae.mechanisms.space import Plane, Space
from jaxdae.outlining import outlined

DESIGN = ("fixed", "turning", "sliding", "held")
"""What of `TreeCoordinates` frames depend on."""

_FROM = 10
"""The number of velocities from which batches of trees of few links in space have the worlds last in frames; fewer were not measured. Pose
and velocity of a rover, 12 links and 16 velocities, each of 1024: 18.5 us, and 21.5 with the worlds first; a step of a chain of 12 hinges,
each of 64: 1.65 us, with a loop over levels 2.15."""


def has_frames_last(space: Plane | Space, shape: Structure) -> bool:
    """Returns whether a tree is best located with the worlds last although sums over it are not."""
    return isinstance(space, Space) and len(shape.velocity_names) >= _FROM and shape.count <= ARRAYS_UP_TO


def by_worlds(space: Any, shape: Structure, one: Callable[..., tuple[Any, ...]]) -> Callable[..., tuple[Any, ...]]:
    """Returns a function of the design of a tree and q, which is `one` for one world and `_located` for many.

    Args:
        space: where the tree is.
        shape: of the tree.
        one: (*design, q) -> what `TreeCoordinates.near` returns; the design is that of `DESIGN`.
    """
    placed = Ruled(one)
    located = _few_located if shape.count <= ARRAYS_UP_TO else _located

    @placed.def_vmap
    def many(size: int, batched: Any, *given: Any) -> Any:
        last = jax.tree.map(lambda x, of: jnp.moveaxis(x, 0, -1) if of else x[..., None], given, tuple(batched))
        found = located(space, shape, *last)
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


def _few_located(space: Any, shape: Structure, fixed: Any, turning: Any, sliding: Any, held: Any, q: Any) -> tuple[Any, ...]:
    """Returns what `_located` does of few links, level by level without a loop.

    Poses are arrays [R p] (n, 3, 4, worlds) all along, of which some are chosen and joined by copying.
    """
    frame, count = space.frame, shape.count
    own = _own_of(shape)(_array(fixed), turning, sliding, q)
    depths = shape.link_levels.depths
    found: list[Any] = []
    order: list[list[int]] = []
    for depth in range(max(depths) + 1):
        numbers = [k for k, each in enumerate(depths) if each == depth]
        here = own[np.asarray(numbers, int)]
        if depth:
            above = [order[-1].index(shape.parents[k]) for k in numbers]
            here = _composed(found[-1][np.asarray(above, int)], here)
        else:
            here = jnp.where((np.arange(4) == 3)[:, None], 0.0, here)
        found.append(here)
        order.append(numbers)
    ground = jnp.broadcast_to(jnp.asarray(np.eye(3, 4)[:, :, None], q.dtype), (1, *found[0].shape[1:]))
    every = joined(*found, ground)
    place = np.argsort([*(k for numbers in order for k in numbers), count])
    bodies = _composed(every[place[np.asarray(shape.body_links, int)]], _array(held))
    columns = space.screw.of_axis(_frames(frame, every[place[np.asarray(shape.column_links, int)]]), turning, sliding)
    origins = np.append(shape.roots, count)[np.asarray(shape.body_links, int)]
    places = [_found(own[:, k, 3], origins) for k in range(3)]
    return _frames(frame, every[place[:-1]]), _frames(frame, bodies), space.screw(*together(*jnp.broadcast_arrays(*columns))), places


def _array(frames: Any) -> Any:
    """Returns the matrices [R p] (n, 3, 4, worlds) of frames, of which some entries may be those of all worlds."""
    return jnp.moveaxis(type(frames)(*jnp.broadcast_arrays(*frames)).array(), 2, 0)


def _frames(frame: Any, poses: Any) -> Any:
    """Returns the frames of matrices [R p] (n, 3, 4, worlds)."""
    return frame(*(poses[:, k, 3] for k in range(3)), *(poses[:, i, j] for i in range(3) for j in range(3)))


@outlined
def _composed(a: Any, b: Any) -> Any:
    """Returns the matrices [R_a R_b, R_a p_b + p_a] (n, 3, 4, worlds) of poses b that are given in poses a."""
    return _turned(a, b) + jnp.where((np.arange(4) == 3)[:, None], a, 0.0)


def _turned(a: Any, b: Any) -> Any:
    """Returns the products (n, 3, k, worlds) of rotations [R p] (n, 3, 4, worlds) and matrices (n, 3, k, worlds)."""
    return a[:, :, :1] * b[:, :1] + a[:, :, 1:2] * b[:, 1:2] + a[:, :, 2:3] * b[:, 2:]


@functools.cache
def _own_of(shape: Structure) -> Callable[..., Any]:
    """Returns `_own` of a tree as a unit, one and the same for all programs."""
    return outlined(partial(_own, shape))


def _own(shape: Structure, fixed: Any, turning: Any, sliding: Any, q: Any) -> Any:
    """Returns the poses [R p] (n, 3, 4, worlds) of all links in their parents.

    Of an axis, R = I + sin(s) [n] + (1 - cos(s)) [n]^2 and p = s d: a sum of three matrices of the design, which the fixed frame turns.
    Of an orientation R = I + 2 (w [v] + [v]^2), and of a place R = I.

    Args:
        shape: of the tree.
        fixed: the frames of links at coordinate zero (n, 3, 4, worlds).
        turning: (nv, 3, worlds).
        sliding: (nv, 3, worlds).
        q: coordinates (nq, worlds).
    """
    starts, columns = shape.starts(COORDINATES), shape.starts(VELOCITIES)
    is_axis = np.asarray([kind == AXIS for kind in shape.kinds])[:, None, None]
    n: Any = jnp.where(is_axis, turning[columns], 0.0)
    d: Any = jnp.where(is_axis, sliding[columns], 0.0)
    crossed, squared = (_turned(fixed, x) for x in (_crossed(n), _crossed_twice(n)))
    s = q[starts][:, None, None]
    cos, sin = kept_cos_sin(s)
    turned = _padded(sin * crossed + (1.0 - cos) * squared, 0, 0, shape) + _padded(s * _turned(fixed, d[:, :, None]), 3, 0, shape)
    own = fixed + turned
    for link in (k for k, kind in enumerate(shape.kinds) if kind != AXIS):
        at, frame = int(starts[link]), fixed[link : link + 1]
        if shape.kinds[link] == PLACE:
            own = own + _padded(_turned(frame, q[None, at : at + 3, None]), 3, link, shape)
        else:
            w, v = q[at], q[None, at + 1 : at + 4]
            own = own + _padded(_turned(frame, 2.0 * (w * _crossed(v) + _crossed_twice(v))), 0, link, shape)
    return own


def _padded(x: Any, before: int, link: int, shape: Structure) -> Any:
    """Returns columns of [R p] of links (k, 3, m, worlds) among zeros (n, 3, 4, worlds), from this column and from this link on."""
    return jnp.pad(x, [(link, shape.count - link - x.shape[0]), (0, 0), (before, 4 - before - x.shape[2]), (0, 0)])


def _crossed(n: Any) -> Any:
    """Returns the matrices [n] (k, 3, 3, ...) of vectors (k, 3, ...), by which others are multiplied in n x."""
    of = np.zeros((3, 3, 3, 1))
    for i, j, k in ((0, 1, 2), (1, 2, 0), (2, 0, 1)):
        of[k, j, i], of[k, i, j] = 1.0, -1.0
    return sum(jnp.asarray(of[k], n.dtype) * n[:, k, None, None] for k in range(3))


def _crossed_twice(n: Any) -> Any:
    """Returns the matrices [n]^2 = n n^T - |n|^2 (k, 3, 3, ...) of vectors (k, 3, ...)."""
    return n[:, :, None] * n[:, None] - jnp.sum(n * n, axis=1)[:, None, None] * jnp.eye(3, dtype=n.dtype)[:, :, None]


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

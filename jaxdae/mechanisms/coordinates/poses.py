"""How the frames of a tree's links are held while they are composed: entry by entry, or as one array; in the plane nothing is composed.

All compute the same. Twelve entries of a frame in space are twelve programs for the compiler, each with a cost of its own, which is most
of the time where there are few links. Where there are many, entries are arrays that the processor runs through without a gap; those of many
worlds, and of very many links, are composed level by level, others by doubling, which takes more operations in fewer steps. None of it is
differentiated: the derivatives of frames are closed forms (`jaxdae.mechanisms.coordinates.tree`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxdae import small_matrix
from jaxdae.batching.last import over_worlds, with_rule
from jaxdae.geometry.trigonometry import kept_cos_sin
from jaxdae.levels import SUMMED_BY_PRODUCTS_UP_TO
from jaxdae.mechanisms import measures
from jaxdae.mechanisms.coordinates.links import BALL, COORDINATES, PLACE, Structure
from jaxdae.outlining import outlined

ARRAYS_UP_TO = 12
"""The number of links up to which frames are composed as arrays. Measured on CPU, chains of hinges in space, microseconds a step of one
world / of each of 64, by entries and by arrays: 3 links 5.3 / 1.4 and 3.5 / 1.1; 12 links 20 / 8.3 and 15 / 8.9; 30 links 37 / 23
and 31 / 32. In the plane angles add up, and sums take two thirds of the time of arrays for the 3 links of a four-bar."""


DOUBLED_UP_TO = 48
"""The number of links up to which frames of one world are composed by doubling, level by level beyond: that is linear in links, and
the program does not grow. Chains of hinges in space, microseconds a step: 253 and 220 with 256 links, 1045 and 890 with 1024."""


_PLANAR = 3
"""The number of components of a motion in the plane. One world has as many in all sums, so that its program has one loop for them; to
batches of 64 that would cost 4 % of a step."""


class Entries(NamedTuple):
    """Poses as they are, stacked frames of the class `frame`."""

    frame: Any

    def of(self, frames: Any) -> Any:
        """Returns the poses of stacked frames."""
        return frames

    def frames(self, poses: Any) -> Any:
        """Returns the frames of poses."""
        return poses

    def composed(self, poses: Any, others: Any) -> Any:
        """Returns the poses of others that are given in poses, one by one."""
        return poses.then(others)

    def chosen(self, numbers: np.ndarray, poses: Any) -> Any:
        """Returns the poses with these numbers (k,); that of the ground for the number one beyond the last."""
        return poses if _is_all(numbers, len(poses[0])) else measures.frames_of(numbers, poses)

    def rooted(self, fixed: Any, moved: Any, shape: Structure) -> tuple[Any, list[Any]]:
        """Returns the poses of all links about the origins of their trees, and the places of all links in their parents."""
        if self.frame.ANGLES_ADD:
            return _summed(self.frame, fixed, moved, shape)
        own, places = _own(self, fixed, moved, shape)
        return self.frame(*self._placed(shape)(jnp.stack(own))), places

    def _placed(self, shape: Structure) -> Any:
        """Returns the function from the poses (entries, n) of all links in their parents to those about the origins of their trees."""

        def in_levels(own: Any) -> Any:
            return jnp.stack(self.frame.of_array(composed_in_levels(self.frame, shape, self.frame(*own).array())))

        def doubled(own: Any) -> Any:
            return jnp.stack(_doubled(self, self.frame(*own), shape))

        return over_worlds(in_levels if shape.count > DOUBLED_UP_TO else doubled, in_levels)


class Arrays(NamedTuple):
    """Poses as one array (..., n) of the frames' class `frame`; the methods are those of `Entries`."""

    frame: Any

    def of(self, frames: Any) -> Any:
        """Returns the poses of stacked frames."""
        return frames.array()

    def frames(self, poses: Any) -> Any:
        """Returns the frames of poses."""
        return self.frame.of_array(poses)

    def composed(self, poses: Any, others: Any) -> Any:
        """Returns the poses of others that are given in poses, one by one."""
        return self.frame.composed(poses, others)

    def chosen(self, numbers: np.ndarray, poses: Any) -> Any:
        """Returns the poses with these numbers (k,); that of the ground for the number one beyond the last."""
        if _is_all(numbers, poses.shape[-1]):
            return poses
        ground = self.frame(*(jnp.full((1,), entry, poses.dtype) for entry in self.frame.GROUND)).array()
        return measures.columns(jnp.concatenate([poses, ground], axis=-1) if np.any(numbers == poses.shape[-1]) else poses, numbers)

    def rooted(self, fixed: Any, moved: Any, shape: Structure) -> tuple[Any, list[Any]]:
        """Returns the poses of all links about the origins of their trees, and the places of all links in their parents."""
        own, places = _own(self, fixed, moved, shape)
        placed = over_worlds(lambda own: _doubled(self, own, shape), partial(_unrolled, outlined(self.frame.composed), shape))
        return placed(own), places


def _summed(frame: Any, fixed: Any, moved: Any, shape: Structure) -> tuple[Any, list[Any]]:
    """Returns what `rooted` does in the plane, where angles add up and nothing has to be composed.

    The angle of a link is the sum of those of all links that carry it, itself included, each seen from its parent. Its place is the sum of
    their places, each turned by the angle of the parent.
    """
    angle = _carried(shape, fixed.angle + moved.angle)[0]
    cos, sin = kept_cos_sin(angle)
    ground = jnp.asarray([[1.0], [0.0]], angle.dtype)
    above: Any = measures.columns(jnp.concatenate([jnp.stack([cos, sin]), ground], axis=1), np.asarray(shape.parents, int))
    place = fixed.place + fixed.turned(moved.place)
    first = np.asarray([parent == shape.count for parent in shape.parents])
    x, y = (jnp.where(first, 0.0, entry) for entry in (place.x, place.y))
    x, y = _carried(shape, above[0] * x - above[1] * y, above[1] * x + above[0] * y)
    return frame(x, y, angle, cos, sin), [place.x, place.y]


def _carried(shape: Structure, *entries: Any) -> Any:
    """Returns sums (n,), as many as entries (n,), over each link and all that carry it; in the plane each link has one velocity."""

    def one_by_one(*entries: Any) -> Sequence[Any]:
        return jnp.unstack(shape.levels.pushed(jnp.stack(entries).T).T)

    def filled(*entries: Any) -> tuple[Any, ...]:
        filling = jax.lax.pad(jnp.stack(entries, axis=1), np.zeros((), entries[0].dtype), [(0, 0, 0), (0, _PLANAR - len(entries), 0)])
        sums = shape.levels.pushed(filling)
        return tuple(sums[:, k] for k in range(len(entries)))

    def many(size: int, batched: Sequence[bool], arguments: Sequence[Any]) -> Any:
        return jax.vmap(one_by_one, in_axes=tuple(0 if of else None for of in batched))(*arguments)

    if shape.count > SUMMED_BY_PRODUCTS_UP_TO:
        return with_rule(filled, many)(*entries)
    return small_matrix.product_transposed(jnp.stack(entries), jnp.asarray(shape.carried_links, entries[0].dtype))


def taken(entries: Any, numbers: np.ndarray) -> Any:
    """Returns the entries with these numbers; those that are there where the numbers are all in order, for which nothing is computed."""
    return entries if _is_all(numbers, entries.shape[0]) else entries[numbers]


def _is_all(numbers: np.ndarray, count: int) -> bool:
    return np.array_equal(numbers, np.arange(count))


def _own(poses: Any, fixed: Any, moved: Any, shape: Structure) -> tuple[Any, list[Any]]:
    """Returns the poses of all links in their parents, those of first links about their own places, and the places of all links there."""
    frames = poses.frames(poses.composed(fixed, moved))
    first = np.asarray([parent == shape.count for parent in shape.parents])
    places = [getattr(frames, name) for name in frames.PLACE]
    return poses.of(frames._replace(**{name: jnp.where(first, 0.0, getattr(frames, name)) for name in frames.PLACE})), places


def _doubled(poses: Any, links: Any, shape: Structure) -> Any:
    """Returns the poses of all links from those in their parents: after k rounds each link knows its pose in its 2^k-th ancestor."""
    above = np.asarray(shape.parents, int)
    while np.any(above < shape.count):
        links = poses.composed(poses.chosen(above, links), links)
        above = np.append(above, shape.count)[above]
    return links


def of_free_links(frame: Any, shape: Structure, q: Any) -> tuple[list[Any], np.ndarray]:
    """Returns the frames of links with a place among their coordinates and of those with a quaternion, and the numbers of them all.

    Args:
        frame: the class of frames.
        shape: of the tree.
        q: coordinates (nq, ...), with whatever axes at the end.
    """
    found = []
    for kind in (PLACE, BALL):
        where = shape.places(kind, COORDINATES)
        zero, one = (make((len(where), *q.shape[1:]), q.dtype) for make in (jnp.zeros, jnp.ones))
        place = [q[where[:, k]] for k in range(3)] if kind == PLACE else [zero] * 3
        found.append(frame.of_pose(place, [q[where[:, k]] for k in range(4)] if kind == BALL else [one, zero, zero, zero]))
    return found, np.concatenate([shape.of_kind(PLACE), shape.of_kind(BALL)])


def composed_in_levels(frame: Any, shape: Structure, own: Any) -> Any:
    """Returns the poses of all links from those in their parents, arrays (., ., n, ...), by a scan over levels."""
    first = jnp.asarray([parent == shape.count for parent in shape.parents])
    own = jnp.moveaxis(own, 2, 0)

    def step(at: Any, above: Any) -> tuple[Any, Any]:
        own, is_first = at
        composed = jnp.moveaxis(frame.composed(*(jnp.moveaxis(one, 0, 2) for one in (above, own))), 2, 0)
        found: Any = jnp.where(is_first.reshape(-1, *[1] * (own.ndim - 1)), own, composed)
        return found, found

    found = shape.link_levels.outward(step, (own, first), jnp.zeros_like(own[0]))
    return jnp.moveaxis(found, 0, 2)


def _unrolled(composed: Callable[[Any, Any], Any], shape: Structure, own: Any) -> Any:
    """Returns what `composed_in_levels` does, one level after the other, of arrays (..., n, worlds) of the few links of `Arrays`.

    Args:
        composed: the poses of others that are given in poses, one by one.
        shape: of the tree.
        own: the poses of all links in their parents.
    """
    depths = shape.link_levels.depths
    found, order = [], []
    for depth in range(max(depths) + 1):
        links = np.asarray([k for k, each in enumerate(depths) if each == depth], int)
        here = measures.picked(links, own, -2)
        if depth:
            above = [order[-1].index(shape.parents[k]) for k in links]
            here = composed(measures.picked(np.asarray(above, int), found[-1], -2), here)
        found.append(here)
        order.append(links.tolist())
    back = np.argsort(np.concatenate([np.asarray(links, int) for links in order]))
    return measures.picked(back, jnp.concatenate(found, axis=-2), -2)


def poses_of(frame: Any, links: int) -> Entries | Arrays:
    """Returns how so many links are held best."""
    return Entries(frame) if frame.ANGLES_ADD or links > ARRAYS_UP_TO else Arrays(frame)

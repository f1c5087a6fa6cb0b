"""The frames of the links of a tree.

In space, the pose of a link is the pose of its parent times its own pose in the parent, level by level from
the roots to the leaves. In the plane, angles add, so no composition is necessary:

- The angle of a link is the sum of the joint angles of the link and of all of its ancestors.
- The position of a link is the sum of the positions in the parents, for the link and all of its ancestors.
  Each position is rotated by the angle of the parent.

These functions are not differentiated. The derivatives of frames have a closed form
(`jaxdae.mechanisms.coordinates.tree_coordinates`).
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np

from jaxdae.compile.batch_last import over_worlds
from jaxdae.geometry.trigonometry import kept_cos_sin
from jaxdae.mechanisms.describe import measures
from jaxdae.mechanisms.describe.links import BALL, COORDINATES, PLACE, Structure
from jaxdae.trees.tree_sweeps import outward, sum_to_leaves


def link_frames(frame: Any, fixed: Any, moved: Any, shape: Structure) -> tuple[Any, list[Any]]:
    """Return the frames of all links about the origins of their trees, and their positions in their parents.

    Args:
        frame: the class of frames.
        fixed: the frames (links,) at coordinate zero in the parents.
        moved: the displacements (links,) by the coordinates, as frames.
        shape: the structure of the tree.
    """
    if frame.ANGLES_ADD:
        return _planar_frames(frame, fixed, moved, shape)
    own = fixed.then(moved)
    places = [getattr(own, name) for name in frame.PLACE]
    is_first = np.asarray([parent == shape.count for parent in shape.parents])
    own = own._replace(
        **{name: jnp.where(is_first, 0.0, place) for name, place in zip(frame.PLACE, places, strict=True)}
    )
    return frame(*over_worlds(lambda own: _composed(frame, shape, own))(jnp.stack(own))), places


def _composed(frame: Any, shape: Structure, own: Any) -> Any:
    """Return the frames (entries, links, ...) of all links, composed level by level."""
    tree, own = shape.link_tree, jnp.moveaxis(frame(*own).array(), 2, 0)
    identity = jnp.asarray(np.eye(3, 4).reshape(3, 4, *[1] * (own.ndim - 3)), own.dtype)

    def step(own: Any, above: Any) -> tuple[Any, Any]:
        found = jnp.moveaxis(frame.composed(*(jnp.moveaxis(one, 0, 2) for one in (above, own))), 2, 0)
        return found, found

    found = outward(tree, step, tree.to_slots(own), jnp.broadcast_to(identity, own.shape[1:]))
    return jnp.stack(frame.of_array(jnp.moveaxis(tree.to_nodes(found), 0, 2)))


def _planar_frames(frame: Any, fixed: Any, moved: Any, shape: Structure) -> tuple[Any, list[Any]]:
    """Return the result of `link_frames` in the plane."""
    (angle,) = _sum_to_leaves(shape, fixed.angle + moved.angle)
    cos, sin = kept_cos_sin(angle)
    ground = jnp.asarray([[1.0], [0.0]], angle.dtype)
    above: Any = measures.columns(
        jnp.concatenate([jnp.stack([cos, sin]), ground], axis=1), np.asarray(shape.parents, int)
    )
    place = fixed.place + fixed.turned(moved.place)
    is_first = np.asarray([parent == shape.count for parent in shape.parents])
    x, y = (jnp.where(is_first, 0.0, entry) for entry in (place.x, place.y))
    x, y = _sum_to_leaves(shape, above[0] * x - above[1] * y, above[1] * x + above[0] * y)
    return frame(x, y, angle, cos, sin), [place.x, place.y]


def _sum_to_leaves(shape: Structure, *entries: Any) -> Any:
    """Return the sums (links,) of entries (links,) over each link and its ancestors.

    Planar links have one velocity each, so the tree of velocities is the tree of links.
    """
    return jnp.unstack(sum_to_leaves(shape.tree, jnp.stack(entries, axis=1)), axis=1)


def taken(entries: Any, numbers: np.ndarray) -> Any:
    """Return the entries with these indices; for indices 0, ..., n - 1, return `entries` without a copy."""
    return entries if _is_all(numbers, entries.shape[0]) else entries[numbers]


def _is_all(numbers: np.ndarray, count: int) -> bool:
    return np.array_equal(numbers, np.arange(count))


def frames_of_free_links(frame: Any, shape: Structure, q: Any) -> tuple[list[Any], np.ndarray]:
    """Return the frames of links of kind `PLACE` and `BALL`, and the indices of these links.

    Args:
        frame: the class of frames.
        shape: the structure of the tree.
        q: the coordinates (nq, ...), with any trailing axes.
    """
    found = []
    for kind in (PLACE, BALL):
        where = shape.places(kind, COORDINATES)
        zero, one = (make((len(where), *q.shape[1:]), q.dtype) for make in (jnp.zeros, jnp.ones))
        place = [q[where[:, k]] for k in range(3)] if kind == PLACE else [zero] * 3
        found.append(
            frame.of_pose(
                place, [q[where[:, k]] for k in range(4)] if kind == BALL else [one, zero, zero, zero]
            )
        )
    return found, np.concatenate([shape.of_kind(PLACE), shape.of_kind(BALL)])

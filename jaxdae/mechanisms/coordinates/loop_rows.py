"""Loop rows in joint coordinates, stored as pushes on links instead of a matrix.

A row of J has entries for all velocities that move its bodies. Here, a row stores its pushes, which are the
forces on its bodies about the origin of their tree. It also stores its direct entries in velocities, from
relations between coordinates. J x and J^T y are then sums over the tree, and M and J are eliminated together
(`jaxdae.mechanisms.coordinates.loop_factors`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Bool, Float

from jaxdae.base.dataclass import pytree, static
from jaxdae.matrices import JacobianOperator, MassOperator
from jaxdae.matrices.jacobian import nan_factors
from jaxdae.mechanisms.coordinates.articulated_bodies import TreeMass
from jaxdae.mechanisms.coordinates.body_coordinates import Terms
from jaxdae.mechanisms.coordinates.loop_factors import LoopFactors, eliminated, rows_matrix
from jaxdae.mechanisms.coordinates.loop_order import LoopOrder, loop_order
from jaxdae.mechanisms.describe import measures
from jaxdae.mechanisms.describe.links import Structure
from jaxdae.mechanisms.describe.plane_and_space import Plane, Space
from jaxdae.trees.tree_layout import Tree
from jaxdae.trees.tree_sweeps import sum_to_leaves, sum_to_root
from jaxdae.typing import Leaf


def order_of(shape: Structure, groups: Sequence[Terms]) -> LoopOrder:
    """Return the elimination order of the rows of groups in a tree.

    Args:
        shape: the structure of the tree.
        groups: the terms of the rows of each group.
    """
    # The node of each body, then of the ground; the number of nodes for a body without motion.
    nodes = shape.last_columns[np.append(shape.body_links, shape.count)]
    ends: list[tuple[int, ...]] = []
    own: list[tuple[int, ...]] = []
    grounded: list[bool] = []
    for terms in groups:
        seen = [term.in_v for term in terms.on_velocities]
        pushed = [nodes[side] for term in terms.on_bodies for side in term.pair.sides]
        count = terms.on_bodies[0].block[0].shape[1] if terms.on_bodies else 1
        elements = len(pushed[0]) if pushed else len(seen[0])
        for k in (k for k in range(elements) for _ in range(count)):
            ends.append(tuple(int(side[k]) for side in pushed))
            own.append(tuple(int(at[k]) for at in seen))
            grounded.append(not all(term.relative for term in terms.on_bodies))
    return loop_order(shape.tree.parents, tuple(ends), tuple(own), tuple(grounded))


def loop_rows(
    order: LoopOrder, space: Plane | Space, tree: Tree, columns: Any, bodies: Any, groups: Sequence[Terms]
) -> LoopRows:
    """Return the Jacobian rows of groups.

    Args:
        order: the result of `order_of`.
        space: the plane or space.
        tree: the tree of the velocities.
        columns: the motion subspaces of the velocities, each component (nv,), about the origins of the trees.
        bodies: the frames of all bodies about the origins of their trees.
        groups: the terms of the rows of each group.
    """
    dtype, width = columns[0].dtype, len(columns)
    sides = max(len(each) for each in order.ends)
    pushes = []
    for terms in groups:
        on_bodies = [
            jnp.stack(force, axis=-1).swapaxes(0, 1).reshape(-1, width)
            for force in _forces(space, bodies, terms)
        ]
        rows = len(on_bodies[0]) if on_bodies else len(terms.on_velocities[0].entries)
        on_bodies += [jnp.zeros((rows, width), dtype)] * (sides - len(on_bodies))
        pushes.append(jnp.stack(on_bodies, axis=1) if sides else jnp.zeros((rows, 0, width), dtype))
    seen = _entries(order, groups, dtype)
    return LoopRows(
        tree, jnp.stack(columns, axis=1), jnp.concatenate(pushes), seen, order.ends, order.own, order.grounded
    )


def _forces(space: Plane | Space, bodies: Any, terms: Terms) -> list[Any]:
    """Return the forces (rows, k) on the body of each side, about the origin of the tree."""
    return [
        space.screw.of_wrench(measures.frames_of(numbers, bodies), space.twist(*side))
        for term in terms.on_bodies
        for side, numbers in zip(term.block, term.pair.sides, strict=True)
    ]


def _entries(order: LoopOrder, groups: Sequence[Terms], dtype: Any) -> Any:
    """Return the direct entries of the rows of groups in velocities (nc, own)."""
    count, found = max(len(each) for each in order.own), []
    for terms in groups:
        given = [term.entries for term in terms.on_velocities]
        rows = len(given[0]) if given else terms.on_bodies[0].block[0][0].size
        given += [jnp.zeros((rows,), dtype)] * (count - len(given))
        found.append(jnp.stack(given, axis=1) if count else jnp.zeros((rows, 0), dtype))
    return jnp.concatenate(found)


@pytree
class LoopRows(JacobianOperator):
    """J of a tree, stored as pushes on nodes and direct entries in velocities.

    Attributes:
        tree: the tree of the velocities (static).
        columns: the motion subspaces S of the velocities (nv, k).
        pushes: the pushes of each row on its nodes, about the origins of the trees (nc, sides, k).
        entries: the direct entries of each row in velocities (nc, own).
        ends: the nodes of each row, at most `sides` per row; the number of nodes for the ground (static).
        own: the velocities of the direct entries of each row, at most as many as `entries` has columns
            (static).
        grounded: whether each row depends on a common motion of its bodies (static).
    """

    tree: Tree = static()
    columns: Leaf
    pushes: Leaf
    entries: Leaf
    ends: tuple[tuple[int, ...], ...] = static()
    own: tuple[tuple[int, ...], ...] = static()
    grounded: tuple[bool, ...] = static()

    @property
    def shape(self) -> tuple[int, int]:
        """Return (nc, nv)."""
        return len(self.ends), self.tree.count

    @property
    def dtype(self) -> Any:
        """Return the floating-point type of the entries."""
        return self.pushes.dtype

    @property
    def order(self) -> LoopOrder:
        """Return the elimination order."""
        return loop_order(self.tree.parents, self.ends, self.own, self.grounded)

    @property
    def _nodes(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the nodes (nc, sides) and velocities (nc, own) of all rows, padded with the node count."""
        return self.order.padded(self.ends, self.pushes.shape[1]), self.order.padded(
            self.own, self.entries.shape[1]
        )

    def times(self, x: Float[Array, " nv"]) -> Float[Array, " nc"]:
        """Return J x from the motions of the nodes and the direct entries."""
        moved = sum_to_leaves(self.tree, self.columns * x[:, None])
        ends, own = self._nodes
        motions = jnp.concatenate([moved, jnp.zeros_like(moved[:1])])[ends]
        return jnp.sum(self.pushes * motions, axis=(1, 2)) + jnp.sum(
            self.entries * jnp.append(x, jnp.zeros((), x.dtype))[own], axis=1
        )

    def transpose_times(self, y: Float[Array, " nc"]) -> Float[Array, " nv"]:
        """Return J^T y."""
        (ends, own), count, width = self._nodes, self.tree.count, self.columns.shape[1]
        forces = jax.ops.segment_sum(
            (self.pushes * y[:, None, None]).reshape(-1, width), ends.reshape(-1), count + 1
        )[:-1]
        pulled = jnp.sum(self.columns * sum_to_root(self.tree, forces), axis=1)
        if not self.entries.shape[1]:
            return pulled
        return (
            pulled
            + jax.ops.segment_sum((self.entries * y[:, None]).reshape(-1), own.reshape(-1), count + 1)[:-1]
        )

    def as_dense(self) -> Float[Array, "nc nv"]:
        """Return the matrix as an array."""
        return rows_matrix(self.order, self.tree, self.columns, self.pushes, self.entries)

    def masked(self, active: Bool[Array, " nc"]) -> LoopRows:
        """Return J with zeros in the inactive rows."""
        pushes, entries = (
            jnp.where(active[:, None, None], self.pushes, 0.0),
            jnp.where(active[:, None], self.entries, 0.0),
        )
        return LoopRows(self.tree, self.columns, pushes, entries, self.ends, self.own, self.grounded)

    def with_nan(self, rows: Bool[Array, " nc"]) -> LoopRows:
        """Return J with NaN in these rows."""
        return dataclasses.replace(self, pushes=nan_factors(rows, self.dtype)[:, None, None] * self.pushes)

    def between(self, start: int, stop: int) -> LoopRows:
        """Return the rows start, ..., stop - 1."""
        of = slice(start, stop)
        ends, own = self.ends[of], self.own[of]
        sides, entries = (max((len(each) for each in numbers), default=0) for numbers in (ends, own))
        return LoopRows(
            self.tree,
            self.columns,
            self.pushes[of, :sides],
            self.entries[of, :entries],
            ends,
            own,
            self.grounded[of],
        )

    def touched(self) -> Bool[Array, " nv"]:
        """Return whether each column has a nonzero entry in any row."""
        return jnp.any(self.as_dense() != 0.0, axis=0)

    def eliminated(self, mass: MassOperator, compliance: Float[Array, " nc"] | None) -> LoopFactors | None:
        """Return the joint factors of M and J, or None if M belongs to another tree or J has no rows."""
        if not isinstance(mass, TreeMass) or mass.tree != self.tree or not self.ends:
            return None
        soft = jnp.zeros(self.shape[:1], self.dtype) if compliance is None else compliance
        return eliminated(self.order, mass, self.pushes, self.entries, soft)

"""The rows of loops in joint coordinates: pushes on links, never a matrix.

A row of J pulls on all velocities that carry its bodies. Kept as what it pushes with on these bodies, forces about the origin of their
tree, and as entries in velocities by themselves (relations between coordinates), J x and J^T y are sums over the tree, and M and J are
eliminated together (`jaxdae.mechanisms.coordinates.loop_factors`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Bool, Float

from jaxdae._pytree import pytree, static
from jaxdae.mechanisms import measures
from jaxdae.mechanisms.coordinates.articulated import TreeMass
from jaxdae.mechanisms.coordinates.interface import Terms
from jaxdae.mechanisms.coordinates.links import Structure
from jaxdae.mechanisms.coordinates.loop_factors import LoopFactors, eliminated, rows_matrix
from jaxdae.mechanisms.coordinates.loop_order import LoopOrder, loop_order
from jaxdae.mechanisms.space import Plane, Space
from jaxdae.operators import JacobianOperator, MassOperator
from jaxdae.trees.sweep import sum_to_leaves, sum_to_root
from jaxdae.trees.tree import Tree
from jaxdae.typing import Leaf


def order_of(shape: Structure, groups: Sequence[Terms]) -> LoopOrder:
    """Returns the order in which the rows of groups are eliminated in a tree.

    Args:
        shape: of the tree.
        groups: what the rows see.
    """
    # The node of each body, that of the ground last; the number of nodes for what stands still.
    nodes = shape.last_columns[np.append(shape.body_links, shape.count)]
    ends: list[tuple[int, ...]] = []
    own: list[tuple[int, ...]] = []
    grounded: list[bool] = []
    for terms in groups:
        seen = [term.in_v for term in terms.on_velocities]
        pushed = [nodes[side] for term in terms.on_bodies for side in term.pair.sides]
        count = len(terms.on_bodies[0].block[0][0]) if terms.on_bodies else 1
        elements = len(pushed[0]) if pushed else len(seen[0])
        for k in (k for k in range(elements) for _ in range(count)):
            ends.append(tuple(int(side[k]) for side in pushed))
            own.append(tuple(int(at[k]) for at in seen))
            grounded.append(not all(term.relative for term in terms.on_bodies))
    return loop_order(shape.tree.parents, tuple(ends), tuple(own), tuple(grounded))


def loop_rows(order: LoopOrder, space: Plane | Space, tree: Tree, columns: Any, bodies: Any, groups: Sequence[Terms]) -> LoopRows:
    """Returns the rows of groups.

    Args:
        order: what `order_of` returned.
        space: the plane or space.
        tree: the velocities as nodes.
        columns: their motions, each component (nv,), about the origins of the trees.
        bodies: the frames of all bodies about the origins of their trees.
        groups: what the rows see.
    """
    dtype, width = columns[0].dtype, len(columns)
    sides = max(len(each) for each in order.ends)
    pushes = []
    for terms in groups:
        on_bodies = [
            jnp.stack([jnp.stack(force, axis=-1) for force in side], axis=1).reshape(-1, width) for side in _forces(space, bodies, terms)
        ]
        rows = len(on_bodies[0]) if on_bodies else len(terms.on_velocities[0].entries)
        on_bodies += [jnp.zeros((rows, width), dtype)] * (sides - len(on_bodies))
        pushes.append(jnp.stack(on_bodies, axis=1) if sides else jnp.zeros((rows, 0, width), dtype))
    seen = _entries(order, groups, dtype)
    return LoopRows(tree, jnp.stack(columns, axis=1), jnp.concatenate(pushes), seen, order.ends, order.own, order.grounded)


def _forces(space: Plane | Space, bodies: Any, terms: Terms) -> list[list[Any]]:
    """Returns the forces with which the rows of each element push on the body of each side, about the origin of the tree."""
    sides = [
        (side, measures.frames_of(numbers, bodies))
        for term in terms.on_bodies
        for side, numbers in zip(term.block, term.pair.sides, strict=True)
    ]
    return [[space.screw.of_wrench(frames, space.twist(*row)) for row in zip(*side, strict=True)] for side, frames in sides]


def _entries(order: LoopOrder, groups: Sequence[Terms], dtype: Any) -> Any:
    """Returns the entries of the rows of groups in velocities by themselves (nc, own)."""
    count, found = max(len(each) for each in order.own), []
    for terms in groups:
        given = [term.entries for term in terms.on_velocities]
        rows = len(given[0]) if given else len(terms.on_bodies[0].pair.a) * len(terms.on_bodies[0].block[0][0])
        given += [jnp.zeros((rows,), dtype)] * (count - len(given))
        found.append(jnp.stack(given, axis=1) if count else jnp.zeros((rows, 0), dtype))
    return jnp.concatenate(found)


@pytree
class LoopRows(JacobianOperator):
    """J of a tree as pushes on nodes and entries in velocities.

    Attributes:
        tree: the velocities as nodes (static).
        columns: their motions S (nv, k).
        pushes: of each row on its nodes, about the origins of the trees (nc, sides, k).
        entries: of each row in velocities by themselves (nc, own).
        ends: the nodes of each row, the number of nodes for the ground, at most as many as `sides` (static).
        own: the velocities of each row, at most as many as `entries` has (static).
        grounded: whether each row sees a motion that all of its bodies have (static).
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
        """Returns (nc, nv)."""
        return len(self.ends), self.tree.count

    @property
    def dtype(self) -> Any:
        """Returns the type of the numbers."""
        return self.pushes.dtype

    @property
    def order(self) -> LoopOrder:
        """Who is eliminated when."""
        return loop_order(self.tree.parents, self.ends, self.own, self.grounded)

    @property
    def _nodes(self) -> tuple[np.ndarray, np.ndarray]:
        """The nodes and the velocities of all rows (nc, sides) and (nc, own); the number of nodes where there are no more."""
        return self.order.padded(self.ends, self.pushes.shape[1]), self.order.padded(self.own, self.entries.shape[1])

    def times(self, x: Float[Array, " nv"]) -> Float[Array, " nc"]:
        """Returns J x: what the pushes see of the motions of their nodes."""
        moved = sum_to_leaves(self.tree, self.columns * x[:, None])
        ends, own = self._nodes
        motions = jnp.concatenate([moved, jnp.zeros_like(moved[:1])])[ends]
        return jnp.sum(self.pushes * motions, axis=(1, 2)) + jnp.sum(self.entries * jnp.append(x, jnp.zeros((), x.dtype))[own], axis=1)

    def transpose_times(self, y: Float[Array, " nc"]) -> Float[Array, " nv"]:
        """Returns J^T y."""
        (ends, own), count, width = self._nodes, self.tree.count, self.columns.shape[1]
        forces = jax.ops.segment_sum((self.pushes * y[:, None, None]).reshape(-1, width), ends.reshape(-1), count + 1)[:-1]
        pulled = jnp.sum(self.columns * sum_to_root(self.tree, forces), axis=1)
        if not self.entries.shape[1]:
            return pulled
        return pulled + jax.ops.segment_sum((self.entries * y[:, None]).reshape(-1), own.reshape(-1), count + 1)[:-1]

    def as_dense(self) -> Float[Array, "nc nv"]:
        """Returns the matrix as an array."""
        return rows_matrix(self.order, self.tree, self.columns, self.pushes, self.entries)

    def masked(self, active: Bool[Array, " nc"]) -> LoopRows:
        """Returns J with zeros in the rows that are not active."""
        pushes, entries = jnp.where(active[:, None, None], self.pushes, 0.0), jnp.where(active[:, None], self.entries, 0.0)
        return LoopRows(self.tree, self.columns, pushes, entries, self.ends, self.own, self.grounded)

    def between(self, start: int, stop: int) -> LoopRows:
        """Returns the rows start, ..., stop - 1."""
        of = slice(start, stop)
        ends, own = self.ends[of], self.own[of]
        sides, entries = (max((len(each) for each in numbers), default=0) for numbers in (ends, own))
        return LoopRows(self.tree, self.columns, self.pushes[of, :sides], self.entries[of, :entries], ends, own, self.grounded[of])

    def touched(self) -> Bool[Array, " nv"]:
        """Returns which columns have entries in any row."""
        return jnp.any(self.as_dense() != 0.0, axis=0)

    def eliminated(self, mass: MassOperator, compliance: Float[Array, " nc"] | None) -> LoopFactors | None:
        """Returns the factors of M and J together where M is of the same tree; None where it is not."""
        if not isinstance(mass, TreeMass) or mass.tree != self.tree or not self.ends:
            return None
        soft = jnp.zeros(self.shape[:1], self.dtype) if compliance is None else compliance
        return eliminated(self.order, mass, self.pushes, self.entries, soft)

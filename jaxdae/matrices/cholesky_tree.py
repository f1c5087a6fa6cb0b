"""Sparse LDL^T factorization of a symmetric matrix on a tree of fronts, with pivots of known sign.

The unknowns of the matrix are divided among the nodes of a tree. The *front* of a node is the dense matrix of
its own unknowns x and of its border w, the later unknowns that share an entry with them. A node is eliminated
after its children, from the leaves to the roots (multifrontal method):

    [A  B^T]   [L    ] [S    ] [L^T  X^T]
    [B   E ] = [X   1] [   E'] [      1 ],        A = L S L^T,    X = B L^-T S,    E' = E - X S X^T,

with S = diag(+1, -1): the sign of each pivot is known, so that no pivoting is needed. A definite matrix has
S = 1. Saddle-point matrices have one sign for motions and the other sign for rows.

The *joint* unknowns z of a node are all unknowns that its children know: the border of a child is w = R^T z
of its parent. They follow from the front of the node, z = D x + Q w. The parent receives R E' R^T, and adds

    D^T G D,   Q^T G D,   Q^T G Q        to A, B and E,    with G the sum over its children.

In absolute coordinates, z is the front itself, and R is a permutation of rows (`elimination_factors`). In
joint coordinates, z is the motion of the body with the open rows, and D contains the motion subspace
(`jaxdae.mechanisms.coordinates.loop_factors`). These two forms differ in their fronts, D, Q and R only.

A right-hand side b is eliminated in the same way. Let g be the sum over the children of a node, and H = R B
A^-1. From the leaves to the roots, and back,

    inward:     c = b + D^T g,    the parent receives R Q^T g - H c
                y = A^-1 c
    outward:    x = y - H^T z of the parent,    z = D x + Q R^T z of the parent.

All nodes are padded to one size, so that the size of the program does not depend on their number.

Arrays have the axes (nodes in slots of `jaxdae.trees.tree_layout`, ..., lanes), with the worlds of a batch as
lanes.

References:
    I. S. Duff, J. K. Reid, "The multifrontal solution of indefinite sparse symmetric linear equations", ACM
        Trans. Math. Softw. 9 (1983).
"""

from __future__ import annotations

from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from jaxdae.trees.tree_layout import Tree
from jaxdae.trees.tree_sweeps import inward, outward


def constant(values: Any, like: Array, lanes: int) -> Array:
    """Return constants as an array with an axis of size one per axis of lanes."""
    return jnp.asarray(values, like.dtype).reshape(*np.shape(values), *[1] * lanes)


def eliminate(columns: Array, signs: Array, limits: Array) -> tuple[Array, Array]:
    """Return L^-T S (nodes, own, own, ...) and X (nodes, border, own, ...) of fronts.

    An identity matrix below the columns turns into L^-T S, as B turns into X. The program does not unroll
    over the border.

    Args:
        columns: [A; B], (nodes, own + border, own, ...).
        signs: the diagonal of S, (nodes, own, ...); zero for padding, whose pivot is set to one.
        limits: the rounding errors of the pivots (nodes, own, ...); a pivot that is not larger becomes NaN.
    """
    own, lanes = columns.shape[2], columns.ndim - 3
    eye = constant(np.eye(own), columns, lanes)
    pending = jnp.concatenate(
        [columns, jnp.broadcast_to(eye, (columns.shape[0], *eye.shape[:2], *columns.shape[3:]))], axis=1
    )

    def one(pending: Any, at: Any) -> tuple[Any, Any]:
        j, sign, limit = at
        column = jax.lax.dynamic_index_in_dim(pending, j, 2, keepdims=False)
        pivot = sign * jax.lax.dynamic_index_in_dim(column, j, 1, keepdims=False)
        regular: Any = jnp.where(pivot > limit, pivot, jnp.nan)
        safe: Any = jnp.where(sign == 0.0, 1.0, regular)
        column = sign[:, None] * column / jnp.sqrt(safe)[:, None]
        return pending - sign[:, None, None] * column[:, :, None] * column[:, None, :own], column

    pivots = np.arange(own), jnp.moveaxis(signs, 1, 0), jnp.moveaxis(limits, 1, 0)
    found = jnp.moveaxis(jax.lax.scan(one, pending, pivots, unroll=own)[1], 0, 2)
    return found[:, -own:], found[:, own:-own]


def remaining(rest: Array, below: Array, signs: Array) -> Array:
    """Return E' = E - X S X^T (nodes, border, border, ...)."""
    for j in range(below.shape[2]):
        column = below[:, :, j]
        rest = rest - signs[:, None, None, j] * column[:, :, None] * column[:, None]
    return rest


def inverses(inverse: Array, below: Array, signs: Array) -> tuple[Array, Array]:
    """Return A^-1 (nodes, own, own, ...) and B A^-1 (nodes, border, own, ...) from L^-T S and X."""
    signed = (signs[:, None] * inverse)[:, None]
    return jnp.sum(inverse[:, :, None] * signed, axis=3), jnp.sum(below[:, :, None] * signed, axis=3)


class Joints(Protocol):
    """The relations D, Q and R between the fronts of a node, its children and its parent.

    `own` contains node data (nodes, ...) of a level of the tree.
    """

    def own_part(self, own: Any, g: Array) -> Array:
        """Return D^T g (nodes, own, ...)."""
        ...

    def border_part(self, own: Any, g: Array) -> Array:
        """Return R Q^T g (nodes, joint, ...)."""
        ...

    def joint(self, own: Any, x: Array, z: Array) -> Array:
        """Return D x + Q R^T z (nodes, joint, ...)."""
        ...


def solve(tree: Tree, joints: Joints, own: Any, inverse: Array, coupling: Array, b: Array) -> Array:
    """Return the unknowns x (nodes, own, ...) of a linear system.

    Args:
        tree: the tree of the nodes.
        joints: D, Q and R.
        own: the node data of `joints`.
        inverse: A^-1, (nodes, own, own, ...).
        coupling: H = R B A^-1, (nodes, joint, own, ...).
        b: the right-hand side (nodes, own, ...).
    """

    def to_parent(at: Any, g: Any) -> tuple[Any, Any]:
        own, coupling, b = at
        c = b + joints.own_part(own, g)
        return joints.border_part(own, g) - jnp.sum(coupling * c[:, None], axis=2), c

    def to_children(at: Any, above: Any) -> tuple[Any, Any]:
        own, coupling, y = at
        x = y - jnp.sum(coupling * above[:, :, None], axis=1)
        return joints.joint(own, x, above), x

    nothing = jnp.zeros((coupling.shape[1], *b.shape[2:]), b.dtype)
    c = inward(tree, to_parent, (own, coupling, b), nothing)
    y = jnp.sum(inverse * c[:, None], axis=2)
    return outward(tree, to_children, (own, coupling, y), nothing)

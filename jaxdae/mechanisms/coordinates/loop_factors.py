"""Accelerations and multipliers of a tree with loops, by joint elimination of bodies and loop rows.

This method forms neither M, nor J, nor the Delassus matrix. With mu = -lam, the saddle-point matrix of (a,
mu) is symmetric, [M J^T; J -C]. The unknowns are eliminated from the leaves to the roots. Node k passes a
quadratic form to its parent, in its motion V and in the multipliers mu of the open rows, with the matrix

    G_k = [A  B^T]        A: the articulated inertia of the subtree of k, with the loops closed in it,
          [B  -E ]        B: the pushes of the open rows on V, through the eliminated unknowns,
                          E: the Delassus matrix of the open rows so far.

The front of node k is a front of `jaxdae.matrices.cholesky_tree`. Its own unknowns are the rows that close at
k, with pivots -(E_jj + C_j), and then the velocity x of the node, by V = V_parent + S x, with the pivot S . A
S + armature. Its border is the motion of the parent with the rows that stay open. The sum of the G of the
children, the inertia of node k, and the pushes on node k enter the front through this relation. Rows that
begin at k take the slots of rows that close at k.

When a row closes, all velocities that affect it are eliminated. The remaining velocities move its bodies
together, which has no effect on the row. E is then the Delassus matrix of the eliminated velocities. It is
positive definite on the closing rows if all rows are independent, so this elimination order needs no
pivoting. Without rows, the method is the articulated-body algorithm. The cost is linear in the number of
nodes.

The Delassus matrix itself has no sparsity, even if the loops are far apart: a force on a floating chain moves
the whole chain. Therefore the method does not factorize it.

References:
    R. Featherstone, "Rigid Body Dynamics Algorithms" (2008), chapter 7 and section 8.
    A. S. Sathya, J. Carpentier, "Constrained articulated body dynamics algorithms", IEEE Trans. Robotics 41
    (2025).
    E. P. Popov, A. F. Vereshchagin, S. L. Zenkevich, "Manipulyatsionnye roboty" (1978), for the recursion
    with multipliers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

from jaxdae.base.dataclass import pytree, static
from jaxdae.compile.batch_factors import Factors, by_columns
from jaxdae.compile.rematerialization import FACTOR, named
from jaxdae.compile.thresholds import DENSE_UP_TO
from jaxdae.linalg import small_matrix
from jaxdae.matrices.cholesky_tree import constant, eliminate, inverses, remaining, solve
from jaxdae.mechanisms.coordinates.articulated_bodies import TreeMass, inertia_matrix
from jaxdae.mechanisms.coordinates.loop_order import LoopOrder
from jaxdae.trees.tree_layout import Tree
from jaxdae.trees.tree_sweeps import inward
from jaxdae.typing import Rows, Velocity


@pytree
class LoopFactors:
    """The factors of the saddle-point matrix of a tree with loops.

    Attributes:
        order: the elimination order (static).
        factors: for a small world, W = R^-1 (nv, nv) with M = R R^T, J R^-T (nc, nv), and the inverse of the
            Cholesky factor of the Delassus matrix (nc, nc). For a batch or a large world, A^-1, H and S of
            all nodes, see `jaxdae.matrices.cholesky_tree`.
    """

    order: LoopOrder = static()
    factors: Factors

    def solve(self, f: Velocity | None, r: Rows) -> tuple[Velocity, Rows]:
        """Return (a, lam) for the right-hand sides f (nv,) and r (nc,); None for f means zero."""
        f = jnp.zeros((len(self.order.parents),), r.dtype) if f is None else f
        recursive = by_columns(lambda factors, f, r: _solved(self.order, factors, f, r))
        a, lam = self.factors.solve(by_columns(_solved_dense), recursive, f[:, None], r[:, None])
        return a[:, 0], lam[:, 0]

    def inconsistent(self, r: Rows) -> None:
        """Return None: the method requires rows of full rank."""


def eliminated(order: LoopOrder, mass: TreeMass, pushes: Any, entries: Any, compliance: Any) -> LoopFactors:
    """Return the factors of [M -J^T; J C]; they are NaN if a pivot does not exceed its rounding error.

    Args:
        order: the elimination order.
        mass: M, of the same tree.
        pushes: the pushes of each row on its nodes, about the origins of the trees (nc, sides, k).
        entries: the direct entries of each row in velocities (nc, own).
        compliance: C (nc,).
    """
    kind, tree, space, nv, nc = type(mass.inertia), mass.tree, mass.space, mass.tree.count, order.rows
    columns, inertia = jnp.stack(mass.columns, axis=1), jnp.stack(mass.inertia, axis=1)

    def dense(*arguments: Any) -> tuple[Any, ...]:
        columns, inertia, armature, pushes, entries, compliance = arguments
        matrix = TreeMass(space, tree, space.screw(*columns.T), kind(*inertia.T), armature).as_dense()
        inverse = small_matrix.inverse_cholesky(matrix)
        scaled = small_matrix.product_transposed(rows_matrix(order, tree, columns, pushes, entries), inverse)
        gram = small_matrix.add_diagonal(small_matrix.product_transposed(scaled, scaled), compliance)
        return inverse, scaled, small_matrix.inverse_cholesky(gram)

    def recursive(*arguments: Any) -> tuple[Any, ...]:
        return _factorized(order, kind, *arguments)

    own, joint = order.width + 1, columns.shape[1] + order.width
    shapes = (nv, nv), (nc, nv), (nc, nc)
    fronts = (own, own), (joint, own), (columns.shape[1],)
    found = Factors.of(
        dense,
        recursive,
        (columns, inertia, mass.armature, pushes, entries, compliance),
        is_small=nv <= DENSE_UP_TO,
        shapes=(shapes, [(order.places, *shape) for shape in fronts]),
    )
    return LoopFactors(order, named(found, FACTOR))


def rows_matrix(order: LoopOrder, tree: Tree, columns: Any, pushes: Any, entries: Any) -> Any:
    """Return J (nc, nv) from pushes (nc, sides, k), entries (nc, own) and motion subspaces S (nv, k)."""
    count = tree.count
    carried = jnp.asarray(np.concatenate([tree.is_ancestor, np.zeros((1, count), bool)]), columns.dtype)
    eye = jnp.asarray(np.eye(count + 1, count), columns.dtype)
    rows = jnp.zeros((order.rows, count), columns.dtype)
    for side, nodes in enumerate(order.padded(order.ends, pushes.shape[1]).T):
        rows = rows + (pushes[:, side] @ columns.T) * carried[nodes]
    for k, nodes in enumerate(order.padded(order.own, entries.shape[1]).T):
        rows = rows + entries[:, k, None] * eye[nodes]
    return rows


def _found(numbers: np.ndarray, entries: Any) -> Any:
    """Return the entries with these indices; the index one beyond the last entry gives zero."""
    return jnp.concatenate([entries, jnp.zeros_like(entries, shape=(1, *entries.shape[1:]))])[numbers]


def _closes(order: LoopOrder) -> np.ndarray:
    """Return one for the slots of closing rows (places, width), and zero for all others."""
    return np.where(order.closed < order.rows, 1.0, 0.0)


def _factorized(order: LoopOrder, kind: Any, *arguments: Any) -> tuple[Any, ...]:
    """Return A^-1, H and S of all nodes; all arguments may have a trailing axis of worlds."""
    columns, inertia, armature, pushes, entries, compliance = arguments
    pushes, entries = pushes.reshape(-1, *pushes.shape[2:]), entries.reshape(-1, *entries.shape[2:])
    k, width, lanes = columns.shape[1], order.width, columns.ndim - 2
    of_rows, of_nodes = (
        small_matrix.rounding(size, columns.dtype) for size in (order.rows, order.tree.count)
    )
    closes = _closes(order)
    moves = np.where(order.velocities < len(order.parents), 1.0, 0.0)
    signs = constant(np.concatenate([-closes, moves[:, None]], axis=1), columns, lanes)
    s = _found(order.velocities, columns)
    own = {
        "column": s,
        "inertia": _found(order.velocities, inertia),
        "armature": _found(order.velocities, armature),
        "met": _pushes(order.met, pushes, ()),
        "push": _pushes(order.pushes, pushes, jnp.zeros((*s.shape[:2], width, *s.shape[2:]), s.dtype)),
        "entry": sum(
            (_found(table, entries) for table in order.entries),
            jnp.zeros((len(s), width, *s.shape[2:]), s.dtype),
        ),
        "closes": constant(closes, columns, lanes),
        "signs": signs,
        "soft": _found(order.closed, compliance),
    }
    eye = constant(np.eye(width)[None], columns, lanes)

    def step(own: Any, given: Any) -> tuple[Any, Any]:
        (motion, crossed, open_rows), carried, gross = given
        s, push, closes, soft = own["column"], own["push"], own["closes"], own["soft"]
        stay = 1.0 - closes
        met = crossed + own["met"] if order.met else crossed
        # The columns of the rows that close here.
        met, crossed = met * closes[:, None], crossed * stay[:, None]
        closing, open_rows = open_rows * closes[:, None], open_rows * stay[:, None]
        here = closing * closes[:, :, None] - eye * soft[:, None]
        # The column of the velocity.
        carried = carried + own["inertia"]
        motion = motion + inertia_matrix(kind, own["inertia"])
        crossed, moved = crossed + push, jnp.sum(motion * s[:, None], axis=2)
        pivot = jnp.sum(s * moved, axis=1) + own["armature"]
        across = jnp.sum(met * s[:, :, None], axis=1)
        ahead = jnp.sum(crossed * s[:, :, None], axis=1) + own["entry"]
        above = jnp.concatenate([here, across[:, None], met, closing * stay[:, :, None]], axis=1)
        columns = jnp.concatenate(
            [above, jnp.concatenate([across, pivot[:, None], moved, ahead], axis=1)[:, :, None]], axis=2
        )
        # A pivot is compared with the size of its terms: of the rows, and of the composite inertia.
        resisting = (
            jnp.sum(s * jnp.sum(inertia_matrix(kind, carried) * s[:, None], axis=2), axis=1) + own["armature"]
        )
        limits = jnp.concatenate([of_rows * (gross + soft), of_nodes * resisting[:, None]], axis=1)
        inverse, below = eliminate(columns, own["signs"], limits)
        top = jnp.concatenate([motion, crossed], axis=2)
        bottom = jnp.concatenate([jnp.swapaxes(crossed, 1, 2), open_rows * stay[:, :, None]], axis=2)
        rest = remaining(jnp.concatenate([top, bottom], axis=1), below, own["signs"])
        passed = rest[:, :k, :k], rest[:, :k, k:], rest[:, k:, k:]
        return (passed, carried, gross * stay + below[:, k:, width] ** 2), (inverse, below)

    size = s.shape[2:]
    shapes = ((k, k), (k, width), (width, width)), inertia.shape[1:2], (width,)
    motion, *rest = (jnp.zeros((*shape, *size), s.dtype) for shape in (*shapes[0], *shapes[1:]))
    found = inward(order.tree, step, own, ((motion, *rest[:2]), *rest[2:]))
    return *inverses(found[0], found[1], signs), s


def _pushes(tables: Sequence[np.ndarray], pushes: Any, none: Any) -> Any:
    """Return the sums of the pushes in the tables, as B^T (places, k, width, ...); `none` without tables."""
    return jnp.moveaxis(sum(_found(table, pushes) for table in tables), 1, 2) if tables else none


class _Joints:
    """The relations of a front to its children: D, and one for the open entries (places, joint, ...)."""

    def own_part(self, own: Any, g: Any) -> Any:
        return jnp.sum(own[0] * g[:, :, None], axis=1)

    def border_part(self, own: Any, g: Any) -> Any:
        return own[1] * g

    def joint(self, own: Any, x: Any, z: Any) -> Any:
        return own[1] * z + jnp.sum(own[0] * x[:, None], axis=2)


def _solved(order: LoopOrder, factors: Any, f: Any, r: Any) -> tuple[Any, Any]:
    """Return a (nv, ...) and lam (nc, ...) from A^-1, H, S, f (nv, ...) and r (nc, ...)."""
    inverse, coupling, s = factors
    places, k, width, closes = *s.shape[:2], order.width, _closes(order)
    # D = [0 S; 1 0] with ones for closing rows.
    known = np.zeros((places, k + width, width + 1))
    known[:, k:, :width] = closes[:, :, None] * np.eye(width)
    motion = jnp.pad(s[:, :, None], [(0, 0), (0, width), (width, 0), *[(0, 0)] * (s.ndim - 2)])
    stay = np.concatenate([np.ones((places, k)), 1.0 - closes], axis=1)
    own = motion + constant(known, s, s.ndim - 2), constant(stay, s, s.ndim - 2)
    b = jnp.concatenate([_found(order.closed, r), _found(order.velocities, f)[:, None]], axis=1)
    x = solve(order.tree, _Joints(), own, inverse, coupling, b)
    mu = x[:, :-1].reshape(-1, *x.shape[2:])[order.closings]
    return x[order.tree.node_slots[order.of_velocities], -1], -mu


def _solved_dense(factors: Any, f: Any, r: Any) -> tuple[Any, Any]:
    """Return a (nv,) and lam (nc,) from dense factors."""
    inverse, scaled, delassus = factors
    free = small_matrix.matvec(inverse, f)
    lam = small_matrix.rmatvec(delassus, small_matrix.matvec(delassus, r - small_matrix.matvec(scaled, free)))
    return small_matrix.rmatvec(inverse, free + small_matrix.rmatvec(scaled, lam)), lam

"""Accelerations and multipliers of a tree with loops, by joint elimination of bodies and loop rows.

This method forms neither M, nor J, nor the Delassus matrix. With mu = -lam, the saddle-point matrix of (a,
mu) is symmetric, [M J^T; J -C]. The unknowns are eliminated from the leaves to the roots. Node k passes a
front to its parent: a quadratic form in its motion V and in the multipliers mu of the open rows, with the
matrix

    G_k = [A  B^T]        A: the articulated inertia of the subtree of k, with the loops closed in it,
          [B  -E ]        B: the pushes of the open rows on V, through the eliminated unknowns,
                          E: the Delassus matrix of the open rows so far.

G_k starts as the sum of the fronts of the children, the inertia of node k, and the pushes on node k. First,
the rows that close at k are eliminated one by one, with pivots -(E_jj + C_j). Rows that begin at k then take
their slots in the front. Second, the velocity x of node k is eliminated by V = V_parent + S x, with the pivot
D = S . A S + armature:

    G' = G + g_j g_j^T / (E_jj + C_j),   g_j the column of row j,
    G'' = G' - U U^T / D,                U = G' S + the direct entries of the rows in x.

When a row closes, all velocities that affect it are eliminated. The remaining velocities move its bodies
together, which has no effect on the row. E is then the Delassus matrix of the eliminated velocities. It is
positive definite on the closing rows if all rows are independent, so this elimination order needs no
pivoting. Without rows, the method is the articulated-body algorithm. The right-hand sides (f, r) are
eliminated inward in the same way, and the unknowns follow outward. The cost is linear in the number of nodes,
plus the square of the size of G for each row that closes.

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

import jax
import jax.numpy as jnp
import numpy as np

from jaxdae import small_matrix
from jaxdae._pytree import pytree, static
from jaxdae.batching.last import Ruled, solved_by_worlds, worlds_back, worlds_last
from jaxdae.checkpointing import FACTOR, named
from jaxdae.mechanisms.coordinates.articulated import TreeMass, inertia_matrix
from jaxdae.mechanisms.coordinates.loop_order import LoopOrder
from jaxdae.operators.elimination_factors import constant, present
from jaxdae.thresholds import DENSE_UP_TO
from jaxdae.trees.sweep import inward, outward
from jaxdae.trees.tree import Tree
from jaxdae.typing import Rows, Velocity


@pytree
class LoopFactors:
    """The factors of the saddle-point matrix of a tree with loops.

    A small world without a batch uses dense matrices. A batch or a large world uses elimination. The arrays
    of the unused form are filled with infinity, or empty.

    Attributes:
        order: the elimination order (static).
        matrices: W = R^-1 (nv, nv) with M = R R^T, J R^-T (nc, nv), and the inverse of the Cholesky factor of
            the Delassus matrix (nc, nc); (0, 0) each if even a single world uses elimination.
        eliminated: S of all nodes (nodes, k); g / sqrt(pivot) of the row that closes in each slot (nodes, k +
            width, width); the square roots of these pivots (nodes, width); U / D (nodes, k + width); D
            (nodes,); and P (nodes, k + width, k + width), see `_transfers`.
    """

    order: LoopOrder = static()
    matrices: tuple[Any, ...]
    eliminated: tuple[Any, ...]

    def solve(self, f: Velocity | None, r: Rows) -> tuple[Velocity, Rows]:
        """Return (a, lam) for the right-hand sides f (nv,) and r (nc,); None for f means zero."""
        order, count = self.order, len(self.matrices)

        def one(factors: Any, f: Any, r: Any) -> tuple[Any, Any]:
            if not _is_small(order):
                return many(factors, f, r)
            inverse, scaled, delassus = factors[:count]
            free = small_matrix.matvec(inverse, f)
            lam = small_matrix.rmatvec(delassus, small_matrix.matvec(delassus, r - small_matrix.matvec(scaled, free)))
            return small_matrix.rmatvec(inverse, free + small_matrix.rmatvec(scaled, lam)), lam

        def many(factors: Any, f: Any, r: Any) -> tuple[Any, Any]:
            arguments: tuple[Any, ...] = (*factors[count:], f, r)
            return _solved(order, *arguments)

        f = jnp.zeros((len(order.parents),), r.dtype) if f is None else f
        return solved_by_worlds(one, many)((*self.matrices, *self.eliminated), f, r)

    def inconsistent(self, r: Rows) -> None:
        """Return None: the method requires rows of full rank."""


def _is_small(order: LoopOrder) -> bool:
    return len(order.parents) <= DENSE_UP_TO


def eliminated(order: LoopOrder, mass: TreeMass, pushes: Any, entries: Any, compliance: Any) -> LoopFactors:
    """Return the factors of [M -J^T; J C]; they are NaN if a pivot does not exceed its rounding error.

    Args:
        order: the elimination order.
        mass: M, of the same tree.
        pushes: the pushes of each row on its nodes, about the origins of the trees (nc, sides, k).
        entries: the direct entries of each row in velocities (nc, own).
        compliance: C (nc,).
    """
    kind, tree, space = type(mass.inertia), mass.tree, mass.space

    @Ruled
    def factorized(*arguments: Any) -> tuple[Any, Any]:
        columns, inertia, armature, pushes, entries, compliance = arguments
        if not _is_small(order):
            return _no_matrices(order, columns, compliance), _factorized(order, kind, *arguments)
        matrix = TreeMass(space, tree, space.screw(*columns.T), kind(*inertia.T), armature).as_dense()
        inverse = small_matrix.inverse_cholesky(matrix)
        scaled = small_matrix.product_transposed(rows_matrix(order, tree, columns, pushes, entries), inverse)
        gram = small_matrix.add_diagonal(small_matrix.product_transposed(scaled, scaled), compliance)
        return (inverse, scaled, small_matrix.inverse_cholesky(gram)), _not_eliminated(order, columns)

    @factorized.def_vmap
    def worlds(size: int, batched: Any, *arguments: Any) -> Any:
        if not any(batched):
            found = factorized(*arguments)
            return found, jax.tree.map(lambda _: False, found)
        *many, soft = worlds_last(size, batched, arguments)
        # Without compliance, C is constant. Do not repeat it for all worlds: the compiler would spend a
        # second on indexing its zeros.
        every = [*many, soft if batched[-1] else arguments[-1][:, None]]
        found = worlds_back(_factorized(order, kind, *every))
        none = _no_matrices(order, *(argument[0] if of else argument for argument, of in ((arguments[k], batched[k]) for k in (0, -1))))
        return (none, found), ((False,) * len(none), (True,) * len(found))

    columns, inertia = jnp.stack(mass.columns, axis=1), jnp.stack(mass.inertia, axis=1)
    return LoopFactors(order, *named(factorized(columns, inertia, mass.armature, pushes, entries, compliance), FACTOR))


def _no_matrices(order: LoopOrder, columns: Any, compliance: Any) -> tuple[Any, ...]:
    """Return placeholders for the dense matrices.

    They are empty if a single world uses elimination as well, because loops would carry placeholders for
    every world.
    """
    nv, nc = (columns.shape[0], compliance.shape[0]) if _is_small(order) else (0, 0)
    return tuple(jnp.full(shape, jnp.inf, columns.dtype) for shape in ((nv, nv), (nc, nv), (nc, nc)))


def _not_eliminated(order: LoopOrder, columns: Any) -> tuple[Any, ...]:
    nodes, k, width = order.places, columns.shape[1], order.width
    shapes = (nodes, k), (nodes, k + width, width), (nodes, width), (nodes, k + width), (nodes,), (nodes, k + width, k + width)
    return tuple(jnp.full(shape, jnp.inf, columns.dtype) for shape in shapes)


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


def _is_closing(order: LoopOrder) -> np.ndarray:
    return np.where(order.closed < order.rows, 1.0, 0.0)


def _staying(closing: np.ndarray, wide: int) -> list[np.ndarray]:
    """Return masks (nodes, k + width) of the entries of G that remain, without the closing rows.

    The mask of slot j omits the closing rows up to slot j. The last mask omits all closing rows.
    """
    nodes, width = closing.shape
    left = np.ones((nodes, wide))
    found = []
    for j in range(width):
        left = left.copy()
        left[:, wide - width + j] *= 1.0 - closing[:, j]
        found.append(left)
    return [*found, left]


def _factorized(order: LoopOrder, kind: Any, columns: Any, inertia: Any, armature: Any, pushes: Any, entries: Any, compliance: Any) -> Any:
    """Return the arrays of an elimination; all arguments may have trailing world axes."""
    pushes, entries = pushes.reshape(-1, *pushes.shape[2:]), entries.reshape(-1, *entries.shape[2:])
    k, width, worlds = columns.shape[1], order.width, columns.ndim - 2
    of_rows, of_nodes = (small_matrix.rounding(size, columns.dtype) for size in (order.rows, order.tree.count))
    closing = _is_closing(order)
    columns = _found(order.velocities, columns)
    none = jnp.zeros((*columns.shape[:2], width, *columns.shape[2:]), columns.dtype)
    entry = sum((_found(table, entries) for table in order.entries), jnp.zeros((), columns.dtype))
    own = {
        "column": columns,
        "inertia": _found(order.velocities, inertia),
        "armature": _found(order.velocities, armature),
        "moves": jnp.broadcast_to(constant(order.velocities < len(order.parents), columns, worlds), columns[:, 0].shape),
        "met": _pushes(order.met, pushes, ()),
        "push": _pushes(order.pushes, pushes, none),
        "entry": jnp.broadcast_to(entry, (columns.shape[0], width, *columns.shape[2:])),
        "closing": constant(closing, columns, worlds),
        "soft": _found(order.closed, compliance),
        "left": [constant(left, columns, worlds) for left in _staying(closing, k + width)],
    }

    def step(own: Any, below: Any) -> tuple[Any, Any]:
        front, carried, gross = below
        s, closing, left = own["column"], own["closing"], own["left"]
        if order.met:
            front = front + _front(jnp.zeros_like(front[:, :k, :k]), own["met"])
        carried, gross = carried + own["inertia"], gross + own["soft"]
        found, roots = [], []
        for j in range(width):
            pivot = own["soft"][:, j] - front[:, k + j, k + j]
            # `gross` is the pivot before subtraction. A pivot within the rounding error of `gross` becomes
            # NaN.
            regular: Any = jnp.where(pivot > of_rows * gross[:, j], pivot, jnp.nan)
            safe: Any = jnp.where(closing[:, j] > 0.0, regular, 1.0)
            roots.append(jnp.sqrt(safe))
            found.append(closing[:, j, None] * left[j] * front[:, :, k + j] / roots[-1][:, None])
            front = front + found[-1][:, :, None] * found[-1][:, None, :]
        front = front * left[-1][:, :, None] * left[-1][:, None, :] + _front(inertia_matrix(kind, own["inertia"]), own["push"])
        gross = gross * left[-1][:, k:]
        ahead = jnp.concatenate([jnp.zeros_like(s), own["entry"]], axis=1) + jnp.sum(front[:, :, :k] * s[:, None], axis=2)
        pivot = jnp.sum(s * ahead[:, :k], axis=1) + own["armature"]
        whole = jnp.sum(s * jnp.sum(inertia_matrix(kind, carried) * s[:, None], axis=2), axis=1) + own["armature"]
        regular = jnp.where(pivot > of_nodes * whole, pivot, jnp.nan)
        safe = jnp.where(own["moves"] > 0.0, regular, 1.0)
        part = ahead / jnp.sqrt(safe)[:, None]
        front = front - part[:, :, None] * part[:, None, :]
        return (front, carried, gross + part[:, k:] ** 2), (jnp.stack(found, axis=2), jnp.stack(roots, axis=1), ahead / safe[:, None], safe)

    size = columns.shape[2:]
    nothing = (
        jnp.zeros((k + width, k + width, *size), columns.dtype),
        jnp.zeros((inertia.shape[1], *size), columns.dtype),
        jnp.zeros((width, *size), columns.dtype),
    )
    closing, roots, pushes, pivots = inward(order.tree, step, own, nothing)
    return columns, closing, roots, pushes, pivots, _transfers(order, columns, closing, roots, pushes)


def _pushes(tables: Sequence[np.ndarray], pushes: Any, none: Any) -> Any:
    """Return the sums of the pushes in the tables, as B^T (places, k, width, ...); `none` without tables."""
    return jnp.moveaxis(sum(_found(table, pushes) for table in tables), 1, 2) if tables else none


def _front(corner: Any, push: Any) -> Any:
    """Return [A B^T; B 0] from A (places, k, k, ...) and B^T (places, k, width, ...)."""
    nothing = jnp.zeros((push.shape[0], push.shape[2], *push.shape[2:]), push.dtype)
    lower = jnp.concatenate([jnp.swapaxes(push, 1, 2), nothing], axis=2)
    return jnp.concatenate([jnp.concatenate([corner, push], axis=2), lower], axis=1)


def _transfers(order: LoopOrder, columns: Any, closing: Any, roots: Any, pushes: Any) -> Any:
    """Return the matrices P of all nodes.

    A node passes P b to its parent, and P^T maps the values of the parent to the node.
    """
    k, wide = columns.shape[1], pushes.shape[1]
    closes = _is_closing(order)
    found = jnp.broadcast_to(constant(np.eye(wide), columns, columns.ndim - 2), (len(closes), wide, wide, *columns.shape[2:]))
    for j in range(order.width):
        ahead = constant(closes[:, j], columns, columns.ndim - 2) / present(roots[:, j])
        found = found + (closing[:, :, j] * ahead[:, None])[:, :, None] * found[:, None, k + j]
    found = found * constant(_staying(closes, wide)[-1], columns, columns.ndim - 2)[:, :, None]
    return found - pushes[:, :, None] * jnp.sum(columns[:, :, None] * found[:, :k], axis=1)[:, None]


def _solved(
    order: LoopOrder, columns: Any, closing: Any, roots: Any, pushes: Any, pivots: Any, transfers: Any, f: Any, r: Any
) -> tuple[Any, Any]:
    """Return a (nv, ...) and lam (nc, ...).

    The scans over the tree contain only sums. The eliminated unknowns, and their values for a parent at zero,
    are computed for all nodes at once.
    """
    k, width, size = columns.shape[1], order.width, f.shape[1:]
    closes = constant(_is_closing(order), columns, columns.ndim - 2)
    nothing = jnp.zeros((k + width, *size), f.dtype)
    f, r = _found(order.velocities, f), _found(order.closed, r)

    def pass_up(own: Any, given: Any) -> tuple[Any, Any]:
        transfer, added = own
        return jnp.sum(transfer * given[:, None], axis=2) + added, given

    at_rest = jnp.concatenate([jnp.zeros_like(columns), r], axis=1)
    # Only the row entries of `at_rest` are nonzero. Read only their columns of P, the largest stored array.
    added = jnp.sum(transfers[:, :, k:] * r[:, None], axis=2) - pushes * f[:, None]
    b = at_rest + inward(order.tree, pass_up, (transfers, added), nothing)
    found = []
    for j in range(width):
        found.append(closes[:, j] * b[:, k + j] / present(roots[:, j]))
        b = b + closing[:, :, j] * found[-1][:, None]
    u = (f + jnp.sum(columns * b[:, :k], axis=1)) / present(pivots)

    at = [columns[:, i] * u for i in range(k)] + [jnp.zeros_like(u)] * width
    for j in reversed(range(width)):
        known = sum((closing[:, i, j] * at[i] for i in range(k + width)), -found[j])
        at[k + j] = closes[:, j] * known / present(roots[:, j])

    def pass_down(own: Any, above: Any) -> tuple[Any, Any]:
        transfer, added = own
        at = jnp.sum(transfer * above[:, :, None], axis=1) + added
        return at, (above, at[:, k:])

    above, mu = outward(order.tree, pass_down, (transfers, jnp.stack(at, axis=1)), nothing)
    x = u - jnp.sum(pushes * above, axis=1)
    return x[order.tree.node_slots[order.of_velocities]], -mu.reshape(-1, *size)[order.closings]

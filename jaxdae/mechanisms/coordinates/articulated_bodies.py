"""Factorization of the mass matrix of a tree by articulated bodies, without forming the matrix.

The velocities of a tree are nodes, each a child of the node that carries it. Node k has the motion subspace
S_k and its own inertia I_k, about one common origin. The articulated-body inertia A_k is the inertia of node
k with its subtree, where all descendants are free to move:

    A_k = I_k + sum over children c of (A_c - U_c U_c^T / D_c),
    U_k = A_k S_k,        D_k = S_k . U_k + armature_k.

The recursion runs from the leaves to the roots. The recursions

    inward:     p_k = sum_c (p_c + U_c u_c / D_c),    u_k = b_k - S_k . p_k
                y = R^-1 b,   y_k = u_k / sqrt(D_k)
    outward:    x_k = y_k / sqrt(D_k) - U_k . a_parent / D_k,    a_k = a_parent + S_k x_k
                x = R^-T y

are the two halves of x = M^-1 b. Here M = R R^T, with R upper triangular if parents precede children. The
cost is linear in the number of nodes. The factors are stored as s = S / sqrt(D) and u = U / sqrt(D), so each
half takes one product and one sum per node.

For a single world with a matrix of moderate size, LAPACK is faster. It works on rows instead of single
numbers. `jaxdae.compile.batch_factors.Factors` chooses between both algorithms.

References:
    R. Featherstone, "Rigid Body Dynamics Algorithms" (2008), chapter 7.
    G. Rodriguez, A. Jain, K. Kreutz-Delgado, "A spatial operator algebra for manipulator modeling and
    control", Int. J. Robotics Research 10 (1991), for the factors.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float

from jaxdae.base.dataclass import pytree, static
from jaxdae.compile.batch_factors import Factors
from jaxdae.compile.platform import for_kernel, on_accelerator
from jaxdae.compile.rematerialization import FACTOR, named
from jaxdae.compile.thresholds import DENSE_UP_TO
from jaxdae.linalg import small_matrix
from jaxdae.matrices import DenseRows, JacobianOperator, MassFactors, MassOperator
from jaxdae.mechanisms.describe.plane_and_space import Plane, Space
from jaxdae.trees.tree_layout import Tree
from jaxdae.trees.tree_sweeps import inward, outward, sum_to_leaves, sum_to_root
from jaxdae.typing import Leaf


@pytree
class TreeMass(MassOperator):
    """The mass matrix of a tree.

    Attributes:
        space: the plane or space (static).
        tree: the tree of the velocities (static).
        columns: the motion subspaces S of the velocities, each component (nv,), about the origin.
        inertia: the inertia of each node without its children, each component (nv,), about the origin.
        armature: the rotor inertia of the motors (nv,).
    """

    space: Plane | Space = static()
    tree: Tree = static()
    columns: Any
    inertia: Any
    armature: Leaf

    @property
    def shape(self) -> tuple[int, int]:
        """Return (nv, nv)."""
        return self.armature.shape * 2

    @property
    def dtype(self) -> Any:
        """Return the floating-point type of the entries."""
        return self.armature.dtype

    def times(self, x: Float[Array, " n"]) -> Float[Array, " n"]:
        """Return M x: project the momenta of the motion x onto the motion subspaces."""
        columns = jnp.stack(self.columns, axis=1)
        moved = self.space.screw(*sum_to_leaves(self.tree, columns * x[:, None]).T)
        momenta = sum_to_root(self.tree, jnp.stack(self.inertia.times(moved), axis=1))
        return jnp.sum(columns * momenta, axis=1) + self.armature * x

    def times_matrix(self, x: Float[Array, "n k"]) -> Float[Array, "n k"]:
        """Return M X."""
        return jax.vmap(self.times, in_axes=1, out_axes=1)(x)

    def as_dense(self) -> Float[Array, "n n"]:
        """Return the matrix from composite inertias: M_jk = S_j . I_k S_k if j is k or an ancestor of k."""
        columns, momenta = (
            jnp.stack(self.columns, axis=1),
            jnp.stack(self._composite().times(self.columns), axis=1),
        )
        products = small_matrix.product_transposed(columns, momenta)
        # On an accelerator, a transposition takes a kernel. A second product takes none.
        mirrored = small_matrix.product_transposed(momenta, columns) if on_accelerator() else products.T
        carried = self.tree.is_ancestor
        return jnp.where(carried.T, products, jnp.where(carried, mirrored, 0.0)) + jnp.diag(self.armature)

    def _composite(self) -> Any:
        """Return the composite inertia of the subtree of each node, each component (nv,)."""
        return type(self.inertia)(*sum_to_root(self.tree, jnp.stack(self.inertia, axis=1)).T)

    def diagonal_mean(self) -> Float[Array, ""]:
        """Return trace(M) / n ()."""
        momenta = self._composite().times(self.columns)
        return jnp.mean(sum(s * p for s, p in zip(self.columns, momenta, strict=True)) + self.armature)

    def root_times(self, x: Float[Array, "n ..."]) -> Float[Array, "n ..."]:
        """Return R^T x, where R is the Cholesky factor of the matrix."""
        return jnp.linalg.cholesky(self.as_dense()).T @ x

    def factorize(self) -> TreeRoot:
        """Return the factors, by articulated bodies or of the dense matrix."""
        return TreeRoot(self.tree, named(_factorized(self), FACTOR))


@pytree
class TreeRoot(MassFactors):
    """The factor R of M = R R^T, as a dense matrix or as the arrays of the articulated-body recursions.

    Attributes:
        tree: the tree of the velocities (static).
        factors: the Cholesky factor of the matrix (nv, nv) for a small world. For a batch or a large world,
            s = S / sqrt(D) and u = U / sqrt(D) in the slots of the tree (slots, k), and 1 / sqrt(D) (nv,).
    """

    tree: Tree = static()
    factors: Factors

    def scaled(self, b: Float[Array, " n"]) -> Float[Array, " n"]:
        """Return R^-1 b."""
        return self._solved(b[:, None], inward=True)[:, 0]

    def unscaled(self, x: Float[Array, " n"]) -> Float[Array, " n"]:
        """Return R^-T x."""
        return self._solved(x[:, None], inward=False)[:, 0]

    def scaled_rows(self, jacobian: JacobianOperator) -> JacobianOperator:
        """Return F = J R^-T, dense."""
        rows = jacobian.as_dense()
        return DenseRows(self._solved(rows.T, inward=True).T if rows.shape[0] else rows)

    def _solved(self, b: Any, *, inward: bool) -> Any:
        """Return R^-1 B or R^-T B (nv, m)."""
        tree, sweep = self.tree, _inward if inward else _outward

        def dense(factors: Any, b: Any) -> Any:
            # The dense factor L satisfies M = L L^T, so R = L.
            return jax.lax.linalg.triangular_solve(
                factors[0], b, left_side=True, lower=True, transpose_a=not inward
            )

        return self.factors.solve(dense, lambda factors, b: sweep(tree, factors, b), b)


def _factorized(mass: TreeMass) -> Factors:
    """Return the factors of `TreeRoot`."""
    tree, space, kind = mass.tree, mass.space, type(mass.inertia)
    nodes, places, width = tree.count, len(tree.slot_nodes), len(mass.columns)

    def dense(columns: Any, inertia: Any, armature: Any) -> tuple[Any, ...]:
        matrix = TreeMass(space, tree, space.screw(*columns.T), kind(*inertia.T), armature).as_dense()
        return (small_matrix.lower_cholesky(matrix),)

    def recursive(*arguments: Any) -> tuple[Any, ...]:
        return _articulated(tree, space, kind, *arguments)

    arguments = jnp.stack(mass.columns, axis=1), jnp.stack(mass.inertia, axis=1), mass.armature
    is_small = tree.count <= DENSE_UP_TO and not for_kernel()
    shapes = ((nodes, nodes),), ((places, width), (places, width), (nodes,))
    return Factors.of(dense, recursive, arguments, is_small=is_small, shapes=shapes)


def _articulated(
    tree: Tree, space: Plane | Space, kind: Any, columns: Any, inertia: Any, armature: Any
) -> tuple[Any, Any, Any]:
    """Return s, u and 1 / sqrt(D) as in `TreeRoot`.

    The arguments are columns (nv, k, ...), inertia (nv, components, ...) and armature (nv, ...). A pivot is
    NaN if it does not exceed the rounding error of the composite inertia S . I S + armature, as in
    `jaxdae.linalg.small_matrix`.
    """
    limit = small_matrix.rounding(tree.count, columns.dtype)
    nodes, width, *worlds = columns.shape
    if not worlds:  # One product forms all matrices. In a batch, reading them is too slow.
        units = inertia_units(kind, inertia.shape[1])
        inertia = inertia @ jnp.asarray(units.reshape(len(units), -1), inertia.dtype)

    def matrix(inertia: Any) -> Any:
        return inertia_matrix(kind, inertia) if worlds else inertia.reshape(-1, width, width)

    def resisting(carried: Any, s: Any) -> Any:
        """Return S . I S with the composite inertia I of each node."""
        if not worlds:
            return _dot_rows(s, _product(matrix(carried), s))
        motion = space.screw(*jnp.moveaxis(s, 1, 0))
        momentum = kind(*jnp.moveaxis(carried, 1, 0)).times(motion)
        return sum(x * p for x, p in zip(motion, momentum, strict=True))

    def step(own: Any, below: Any) -> tuple[Any, Any]:
        (s, inertia, armature), (shown, carried) = own, below
        shown, carried = shown + matrix(inertia), carried + inertia
        push = _product(shown, s)
        pivot = _dot_rows(s, push) + armature
        sound: Any = jnp.where(pivot > limit * (resisting(carried, s) + armature), pivot, jnp.nan)
        inverse = 1.0 / jnp.sqrt(sound)
        part = push * inverse[:, None]
        return (shown - part[:, :, None] * part[:, None, :], carried), (part, inverse)

    columns, inertia, armature = (tree.to_slots(x) for x in (columns, inertia, armature))
    empty = tree.slot_nodes == nodes
    if np.any(empty):  # Empty slots contain zeros; an armature of one gives a valid pivot.
        armature = armature + jnp.asarray(empty, armature.dtype).reshape(-1, *[1] * len(worlds))
    none = jnp.zeros((width, *columns.shape[1:]), columns.dtype), jnp.zeros(inertia.shape[1:], inertia.dtype)
    pushes, inverse = inward(tree, step, (columns, inertia, armature), none)
    return columns * inverse[:, None], pushes, tree.to_nodes(inverse)


def _inward(tree: Tree, factors: Any, b: Any) -> Any:
    """Return R^-1 B (nv, m, ...)."""
    motions, pushes, inverse = factors
    own = motions, pushes, tree.to_slots(b * inverse[:, None])
    return tree.to_nodes(inward(tree, _half, own, jnp.zeros((motions.shape[1], *b.shape[1:]), b.dtype)))


def _outward(tree: Tree, factors: Any, b: Any) -> Any:
    """Return R^-T B (nv, m, ...)."""
    motions, pushes, inverse = factors
    own = pushes, motions, tree.to_slots(b)
    found = outward(tree, _half, own, jnp.zeros((motions.shape[1], *b.shape[1:]), b.dtype))
    return tree.to_nodes(found) * inverse[:, None]


@jax.jit  # Compiled once for both halves.
def _half(own: Any, given: Any) -> tuple[Any, Any]:
    """Return the values for the next nodes and the results, in one half of a solve.

    Nodes project the incoming value onto one of their vectors, and add a multiple of their other vector.
    """
    reads, gives, b = own
    y = b - jnp.sum(reads[:, :, None] * given, axis=1)
    return given + gives[:, :, None] * y[:, None], y


def inertia_matrix(kind: Any, inertia: Any) -> Any:
    """Return inertias (nodes, components, ...) as matrices (nodes, k, k, ...).

    Every entry of a matrix is a component, possibly with negative sign, or zero. For a batch, the components
    are gathered in contiguous runs, one run per entry. For one world, a gather would copy single numbers, so
    sums of constant matrices are faster. `_articulated` uses one matrix product for all nodes of one world.
    """
    units, rest = inertia_units(kind, inertia.shape[1]), (1,) * (inertia.ndim - 2)
    if rest:
        signs = jnp.asarray(units.sum(0), inertia.dtype)
        return inertia[:, np.abs(units).argmax(0)] * signs.reshape(*signs.shape, *rest)
    return sum(jnp.asarray(unit, inertia.dtype) * inertia[:, c, None, None] for c, unit in enumerate(units))


def inertia_units(kind: Any, count: int) -> np.ndarray:
    """Return the matrix of each component of an inertia (components, k, k), with entries 1, -1 and 0."""
    with jax.ensure_compile_time_eval():
        return np.asarray(
            [[list(row) for row in kind(*np.eye(count)[c]).rows()] for c in range(count)], float
        )


def _product(matrix: Any, x: Any) -> Any:
    """Return A x (nodes, k, ...)."""
    return jnp.sum(matrix * x[:, None], axis=2)


def _dot_rows(a: Any, b: Any) -> Any:
    return jnp.sum(a * b, axis=1)

"""The mass matrix of a tree without forming it: articulated bodies.

Take the velocities of a tree as nodes, each below the one that carries it, with motions S_k and the inertias I_k that each carries by
itself, all about one origin. From the leaves to the roots, the inertia that a node shows where everything that it carries is free to move,
its own joint apart, is

    A_k = I_k + sum over children c of (A_c - U_c U_c^T / D_c),        U_k = A_k S_k,        D_k = S_k . U_k + armature_k,

and the recursions

    p_k = sum_c (p_c + U_c u_c / D_c),    u_k = b_k - S_k . p_k    (inward)      y = R^-1 b,   y_k = u_k / sqrt(D_k)
    x_k = y_k / sqrt(D_k) - U_k . a_parent / D_k,    a_k = a_parent + S_k x_k    (outward)      x = R^-T y

are the two halves of x = M^-1 b: M = R R^T, with R upper triangular where parents come first. Everything is linear in the nodes. With
s = S / sqrt(D) and u = U / sqrt(D), which are what is kept, a half is a product and a sum for each node.

One world with a matrix of moderate size is faster with LAPACK, which works on rows instead of numbers. Which of both is used is decided
where JAX knows whether there is a batch, as in `jaxdae.small_matrix`, and by the size.

References:
    R. Featherstone, "Rigid Body Dynamics Algorithms" (2008), chapter 7.
    G. Rodriguez, A. Jain, K. Kreutz-Delgado, "A spatial operator algebra for manipulator modeling and control", Int. J. Robotics
    Research 10 (1991), for the factors.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float

from jaxdae import small_matrix
from jaxdae._pytree import pytree, static
from jaxdae.batching.last import Ruled, worlds_back, worlds_last
from jaxdae.checkpointing import FACTOR, named
from jaxdae.devices import for_kernel, on_accelerator
from jaxdae.mechanisms.space import Plane, Space
from jaxdae.operators import DenseRows, JacobianOperator, MassFactors, MassOperator
from jaxdae.thresholds import DENSE_UP_TO
from jaxdae.trees.sweep import inward, outward, sum_to_leaves, sum_to_root
from jaxdae.trees.tree import Tree
from jaxdae.typing import Leaf


@pytree
class TreeMass(MassOperator):
    """The mass matrix of a tree.

    Attributes:
        space: the plane or space (static).
        tree: the velocities as nodes (static).
        columns: their motions S, each component (nv,), about the origin.
        inertia: what each of them carries by itself, each component (nv,), about the origin.
        armature: what motors add (nv,).
    """

    space: Plane | Space = static()
    tree: Tree = static()
    columns: Any
    inertia: Any
    armature: Leaf

    @property
    def shape(self) -> tuple[int, int]:
        """Returns (nv, nv)."""
        return self.armature.shape * 2

    @property
    def dtype(self) -> Any:
        """Returns the type of the numbers."""
        return self.armature.dtype

    def times(self, x: Float[Array, " n"]) -> Float[Array, " n"]:
        """Returns M x: the momenta of the motion x, which the columns see."""
        columns = jnp.stack(self.columns, axis=1)
        moved = self.space.screw(*sum_to_leaves(self.tree, columns * x[:, None]).T)
        momenta = sum_to_root(self.tree, jnp.stack(self.inertia.times(moved), axis=1))
        return jnp.sum(columns * momenta, axis=1) + self.armature * x

    def times_matrix(self, x: Float[Array, "n k"]) -> Float[Array, "n k"]:
        """Returns M X."""
        return jax.vmap(self.times, in_axes=1, out_axes=1)(x)

    def as_dense(self) -> Float[Array, "n n"]:
        """Returns the matrix, from composite inertias: M_jk = S_j . I_k S_k where j carries k."""
        columns, momenta = jnp.stack(self.columns, axis=1), jnp.stack(self._composite().times(self.columns), axis=1)
        products = small_matrix.product_transposed(columns, momenta)
        # An accelerator would need a kernel to turn the matrix over, and none to multiply the other way round.
        mirrored = small_matrix.product_transposed(momenta, columns) if on_accelerator() else products.T
        carried = self.tree.is_ancestor
        return jnp.where(carried.T, products, jnp.where(carried, mirrored, 0.0)) + jnp.diag(self.armature)

    def _composite(self) -> Any:
        """Returns the inertia of all that each node carries, each component (nv,)."""
        return type(self.inertia)(*sum_to_root(self.tree, jnp.stack(self.inertia, axis=1)).T)

    def diagonal_mean(self) -> Float[Array, ""]:
        """Returns trace(M) / n ()."""
        momenta = self._composite().times(self.columns)
        return jnp.mean(sum(s * p for s, p in zip(self.columns, momenta, strict=True)) + self.armature)

    def root_times(self, x: Float[Array, "n ..."]) -> Float[Array, "n ..."]:
        """Returns R^T x, R the Cholesky factor of the matrix."""
        return jnp.linalg.cholesky(self.as_dense()).T @ x

    def factorize(self) -> TreeRoot:
        """Returns the factors, by articulated bodies or of the matrix."""
        return TreeRoot(self.tree, *named(_factorized(self), FACTOR))


@pytree
class TreeRoot(MassFactors):
    """M = R R^T as a matrix, or as the motions, the pushes and the pivots of articulated bodies.

    Attributes:
        tree: the velocities as nodes (static).
        lower: the Cholesky factor of the matrix (nv, nv), of one small world; else infinite.
        motions: s = S / sqrt(D) in the slots of the tree (slots, k), of a batch or a large world; else infinite.
        pushes: u = U / sqrt(D), likewise.
        inverse: 1 / sqrt(D) (nv,), likewise.
    """

    tree: Tree = static()
    lower: Leaf
    motions: Leaf
    pushes: Leaf
    inverse: Leaf

    def scaled(self, b: Float[Array, " n"]) -> Float[Array, " n"]:
        """Returns R^-1 b."""
        return self._solved(b[:, None], inward=True)[:, 0]

    def unscaled(self, x: Float[Array, " n"]) -> Float[Array, " n"]:
        """Returns R^-T x."""
        return self._solved(x[:, None], inward=False)[:, 0]

    def scaled_rows(self, jacobian: JacobianOperator) -> JacobianOperator:
        """Returns F = J R^-T, dense."""
        rows = jacobian.as_dense()
        return DenseRows(self._solved(rows.T, inward=True).T if rows.shape[0] else rows)

    def _solved(self, b: Any, *, inward: bool) -> Any:
        """Returns R^-1 B or R^-T B (nv, m)."""
        sweep = _inward if inward else _outward
        tree, large = self.tree, _is_large(self.tree)

        @Ruled
        def solved(lower: Any, motions: Any, pushes: Any, inverse: Any, b: Any) -> Any:
            if large:
                return sweep(tree, motions, pushes, inverse, b)
            # The factor of the matrix is L with M = L L^T, that is R = L.
            return jax.lax.linalg.triangular_solve(lower, b, left_side=True, lower=True, transpose_a=not inward)

        @solved.def_vmap
        def many(size: int, batched: Any, lower: Any, motions: Any, pushes: Any, inverse: Any, b: Any) -> tuple[Any, bool]:
            arguments = lower, motions, pushes, inverse, b
            if not batched[3]:  # Only right-hand sides are: several of one world.
                wide = jnp.moveaxis(b, 0, -1)
                several = solved(lower, motions, pushes, inverse, wide.reshape(wide.shape[0], -1)).reshape(wide.shape)
                return jnp.moveaxis(several, -1, 0), True
            _, *last = worlds_last(size, batched, arguments)
            return jnp.moveaxis(sweep(tree, *last), -1, 0), True

        return solved(self.lower, self.motions, self.pushes, self.inverse, b)


def _is_large(tree: Tree) -> bool:
    return tree.count > DENSE_UP_TO or for_kernel()


def _factorized(mass: TreeMass) -> tuple[Any, ...]:
    """Returns what `TreeRoot` has, in a batch by articulated bodies."""
    tree, space, kind = mass.tree, mass.space, type(mass.inertia)
    nodes, width, dtype = tree.count, len(mass.columns), mass.dtype

    @Ruled
    def factors(columns: Any, inertia: Any, armature: Any) -> tuple[Any, ...]:
        columns, inertia = jnp.stack(columns, axis=1), jnp.stack(inertia, axis=1)
        if _is_large(tree):
            return jnp.full((nodes, nodes), jnp.inf, dtype), *_articulated(tree, space, kind, columns, inertia, armature)
        matrix = TreeMass(space, tree, space.screw(*columns.T), kind(*inertia.T), armature).as_dense()
        places = len(tree.slot_nodes), width
        return small_matrix.lower_cholesky(matrix), *(jnp.full(shape, jnp.inf, dtype) for shape in (places, places, (nodes,)))

    @factors.def_vmap
    def worlds(size: int, batched: Any, columns: Any, inertia: Any, armature: Any) -> tuple[Any, Any]:
        of_columns, of_inertia, of_armature = batched
        if not any((*of_columns, *of_inertia, of_armature)):
            return factors(columns, inertia, armature), (False, False, False, False)
        columns, inertia = (jnp.stack(worlds_last(size, of, each), axis=1) for of, each in ((of_columns, columns), (of_inertia, inertia)))
        found = _articulated(tree, space, kind, columns, inertia, *worlds_last(size, (of_armature,), (armature,)))
        return (jnp.full((nodes, nodes), jnp.inf, dtype), *worlds_back(found)), (False, True, True, True)

    return factors(tuple(mass.columns), tuple(mass.inertia), mass.armature)


def _articulated(tree: Tree, space: Plane | Space, kind: Any, columns: Any, inertia: Any, armature: Any) -> tuple[Any, Any, Any]:
    """Returns s, u and 1 / sqrt(D) as `TreeRoot` has them, of columns (nv, k, ...), inertia (nv, components, ...) and armature (nv, ...).

    A pivot that is no more than rounding of what all that the node carries would give it is NaN, as in `jaxdae.small_matrix`.
    """
    limit = small_matrix.rounding(tree.count, columns.dtype)
    nodes, width, *worlds = columns.shape
    if not worlds:  # Matrices of all nodes at once, by a product with constants. In batches they would be too much to be read in the loop.
        units = inertia_units(kind, inertia.shape[1])
        inertia = inertia @ jnp.asarray(units.reshape(len(units), -1), inertia.dtype)

    def matrix(inertia: Any) -> Any:
        return inertia_matrix(kind, inertia) if worlds else inertia.reshape(-1, width, width)

    def resisting(carried: Any, s: Any) -> Any:
        """Returns what all that a node carries resists its motion, S . I S."""
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
    if np.any(empty):  # All else is zero there, and an armature of one is a pivot.
        armature = armature + jnp.asarray(empty, armature.dtype).reshape(-1, *[1] * len(worlds))
    none = jnp.zeros((width, *columns.shape[1:]), columns.dtype), jnp.zeros(inertia.shape[1:], inertia.dtype)
    pushes, inverse = inward(tree, step, (columns, inertia, armature), none)
    return columns * inverse[:, None], pushes, tree.to_nodes(inverse)


def _inward(tree: Tree, motions: Any, pushes: Any, inverse: Any, b: Any) -> Any:
    """Returns R^-1 B (nv, m, ...)."""
    own = motions, pushes, tree.to_slots(b * inverse[:, None])
    return tree.to_nodes(inward(tree, _half, own, jnp.zeros((motions.shape[1], *b.shape[1:]), b.dtype)))


def _outward(tree: Tree, motions: Any, pushes: Any, inverse: Any, b: Any) -> Any:
    """Returns R^-T B (nv, m, ...)."""
    own = pushes, motions, tree.to_slots(b)
    found = outward(tree, _half, own, jnp.zeros((motions.shape[1], *b.shape[1:]), b.dtype))
    return tree.to_nodes(found) * inverse[:, None]


@jax.jit  # A unit: the program has it once for both halves.
def _half(own: Any, given: Any) -> tuple[Any, Any]:
    """Returns what nodes give and keep in a half of a solution, where they read one of their vectors and give the other."""
    reads, gives, b = own
    y = b - jnp.sum(reads[:, :, None] * given, axis=1)
    return given + gives[:, :, None] * y[:, None], y


def inertia_matrix(kind: Any, inertia: Any) -> Any:
    """Returns inertias (nodes, components, ...) as matrices (nodes, k, k, ...), whose entries are components, with a sign, or zero.

    Of many worlds the components are picked, in runs of a world each. Of one world, a level at a time, they would be picked number by
    number, and sums of constant matrices are faster; of all nodes of one world at once `_articulated` takes a product.
    """
    units, rest = inertia_units(kind, inertia.shape[1]), (1,) * (inertia.ndim - 2)
    if rest:
        signs = jnp.asarray(units.sum(0), inertia.dtype)
        return inertia[:, np.abs(units).argmax(0)] * signs.reshape(*signs.shape, *rest)
    return sum(jnp.asarray(unit, inertia.dtype) * inertia[:, c, None, None] for c, unit in enumerate(units))


def inertia_units(kind: Any, count: int) -> np.ndarray:
    """Returns the matrix of each component of an inertia (components, k, k), whose entries are 1, -1 and 0."""
    with jax.ensure_compile_time_eval():
        return np.asarray([[list(row) for row in kind(*np.eye(count)[c]).rows()] for c in range(count)], float)


def _product(matrix: Any, x: Any) -> Any:
    """Returns A x (nodes, k, ...)."""
    return jnp.sum(matrix * x[:, None], axis=2)


def _dot_rows(a: Any, b: Any) -> Any:
    return jnp.sum(a * b, axis=1)

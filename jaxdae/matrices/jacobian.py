"""The constraint Jacobian as an operator: a dense matrix, blocks of body pairs, or products by autodiff.

Callers use only the methods of `JacobianOperator`. Methods without a better algorithm for a structure start
from `as_dense()`. `masked`, `leading`, `between` and `stacked` assemble J of a system from the parts of its
wrappers.
"""

from __future__ import annotations

import abc
import functools
import itertools
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Bool, Float

from jaxdae.base.dataclass import pytree, static
from jaxdae.compile.sharding import varying_with
from jaxdae.linalg import small_matrix
from jaxdae.typing import Leaf


class GramFactors(Protocol):
    """The factorized matrix J J^T + C; a pytree."""

    def solve(self, b: Float[Array, " nc"]) -> Float[Array, " nc"]:
        """Return (J J^T + C)^-1 b."""
        ...


class JacobianOperator(abc.ABC):
    """The Jacobian J (nc, nv) as products.

    It is a pytree, so that it is differentiable with respect to its data.
    """

    @property
    @abc.abstractmethod
    def shape(self) -> tuple[int, int]:
        """Return the shape (nc, nv)."""

    @property
    @abc.abstractmethod
    def dtype(self) -> Any:
        """Return the dtype of the entries."""

    @abc.abstractmethod
    def times(self, x: Float[Array, " nv"]) -> Float[Array, " nc"]:
        """Return J x."""

    @abc.abstractmethod
    def transpose_times(self, y: Float[Array, " nc"]) -> Float[Array, " nv"]:
        """Return J^T y."""

    def as_dense(self) -> Float[Array, "nc nv"]:
        """Return the matrix as an array."""
        return jax.vmap(self.times, out_axes=1)(jnp.eye(self.shape[1], dtype=self.dtype))

    def masked(self, active: Bool[Array, " nc"]) -> JacobianOperator:
        """Return J with zeros in inactive rows."""
        return MaskedRows(self, active)

    def with_nan(self, rows: Bool[Array, " nc"]) -> JacobianOperator:
        """Return J with NaN in these rows."""
        return DenseRows(nan_factors(rows, self.dtype)[:, None] * self.as_dense())

    def between(self, start: int, stop: int) -> JacobianOperator:
        """Return the rows start, ..., stop - 1."""
        return self if (start, stop) == (0, self.shape[0]) else RowRange(self, start, stop)

    def leading(self, rows: int) -> JacobianOperator:
        """Return the first rows."""
        return self.between(0, rows)

    def stacked(self, *others: JacobianOperator) -> JacobianOperator:
        """Return the rows of this operator, followed by the rows of the others."""
        first, *rest = [part for part in (self, *others) if part.shape[0]] or [self]
        return first._above(*rest) if rest else first

    def _above(self, *others: JacobianOperator) -> JacobianOperator:
        return StackedRows((self, *others))

    def over_columns(self, divisors: Float[Array, " nv"]) -> JacobianOperator:
        """Return J diag(d)^-1: divide each column by its divisor."""
        return DenseRows(self.as_dense() / divisors[None, :])

    def times_blocks(self, blocks: Float[Array, "k b b"]) -> JacobianOperator:
        """Return J B with B block diagonal, k b = nv."""
        count, width, _ = blocks.shape
        split = self.as_dense().reshape(-1, count, width)
        return DenseRows(jnp.einsum("rki,kij->rkj", split, blocks).reshape(self.shape))

    def gram(self) -> Float[Array, "nc nc"]:
        """Return J J^T, bitwise symmetric."""
        dense = self.as_dense()
        return small_matrix.product_transposed(dense, dense)

    def gram_factors(self, compliance: Float[Array, " nc"] | None) -> GramFactors:
        """Return the factors of J J^T + C with C diagonal, None for zero; NaN if the matrix is singular.

        Do not differentiate the factors.
        """
        return softened_cholesky(self.gram(), compliance)

    def eliminated(self, mass: Any, compliance: Float[Array, " nc"] | None) -> Any:
        """Return the factors of [M -J^T; J C] if eliminating M and J together is preferable, else None.

        See `jaxdae.saddle_point.saddle_point_solver`.

        Args:
            mass: M, an operator.
            compliance: C, None for zero.
        """
        return None

    def row_sizes(self) -> Float[Array, " nc"]:
        """Return the largest magnitude in each row; zero if there are no columns."""
        return jnp.max(jnp.abs(self.as_dense()), axis=1, initial=0.0)

    def touched(self) -> Bool[Array, " nv"]:
        """Return which columns have a nonzero entry in any row.

        Return all columns if the test would need the dense matrix.
        """
        return jnp.ones((self.shape[1],), bool)


def nan_factors(rows: Bool[Array, " nc"], dtype: Any) -> Float[Array, " nc"]:
    """Return NaN for these rows and 1 for others: products with them keep the zeros of fused kernels."""
    return jnp.where(rows, jnp.nan, jnp.ones((), dtype))


def softened_cholesky(gram: Float[Array, "nc nc"], compliance: Float[Array, " nc"] | None) -> GramFactors:
    """Return the factors of J J^T + C from the lower triangle of J J^T; C diagonal, None for zero."""
    return small_matrix.solving_factors(
        gram if compliance is None else small_matrix.add_diagonal(gram, compliance)
    )


@pytree
class DenseRows(JacobianOperator):
    """J as a dense matrix (nc, nv)."""

    matrix: Leaf

    @property
    def shape(self) -> tuple[int, int]:
        """Return the shape (nc, nv)."""
        return self.matrix.shape

    @property
    def dtype(self) -> Any:
        """Return the dtype of the entries."""
        return self.matrix.dtype

    def times(self, x: Float[Array, " nv"]) -> Float[Array, " nc"]:
        """Return J x."""
        return small_matrix.matvec(self.matrix, x)

    def transpose_times(self, y: Float[Array, " nc"]) -> Float[Array, " nv"]:
        """Return J^T y."""
        return small_matrix.rmatvec(self.matrix, y)

    def as_dense(self) -> Float[Array, "nc nv"]:
        """Return the matrix."""
        return self.matrix

    def masked(self, active: Bool[Array, " nc"]) -> DenseRows:
        """Return J with zeros in inactive rows."""
        return DenseRows(jnp.where(active[:, None], self.matrix, 0.0))

    def between(self, start: int, stop: int) -> DenseRows:
        """Return the rows start, ..., stop - 1."""
        return DenseRows(self.matrix[start:stop])

    def _above(self, *others: JacobianOperator) -> DenseRows:
        return DenseRows(jnp.concatenate([self.matrix, *(other.as_dense() for other in others)]))

    def touched(self) -> Bool[Array, " nv"]:
        """Return which columns have a nonzero entry in any row."""
        return jnp.any(self.matrix != 0.0, axis=0)


@pytree
class AutodiffRows(JacobianOperator):
    """J of a system at a state as products by autodiff; the matrix is never formed.

    J x takes one forward-mode derivative of the rows, and J^T y takes one reverse-mode derivative.

    Attributes:
        system: has the methods `constraint(t, q)`, `velocity_constraint(t, q, v)` and `retract(q, xi)`.
        state: has the fields t, q and v.
    """

    system: Leaf
    state: Leaf

    @property
    def shape(self) -> tuple[int, int]:
        """Return the shape (nc, nv)."""
        return jax.eval_shape(self.times, self.state.v).shape[0], self.state.v.shape[0]

    @property
    def dtype(self) -> Any:
        """Return the dtype of the entries."""
        return self.state.v.dtype

    def times(self, x: Float[Array, " nv"]) -> Float[Array, " nc"]:
        """Return J x."""
        return _push(self, x)

    def transpose_times(self, y: Float[Array, " nc"]) -> Float[Array, " nv"]:
        """Return J^T y."""
        return _pull(self, y)


def _rows(jacobian: AutodiffRows, xi: Any, v: Any) -> Any:
    system, t, q = jacobian.system, jacobian.state.t, jacobian.state.q
    return jnp.concatenate([system.constraint(t, system.retract(q, xi)), system.velocity_constraint(t, q, v)])


# Jitted, so that JAX traces and differentiates each function once although an iteration calls it many times.
@jax.jit
def _push(jacobian: AutodiffRows, x: Any) -> Any:
    v = jacobian.state.v
    return jax.jvp(lambda xi, v: _rows(jacobian, xi, v), (jnp.zeros_like(v), v), (x, x))[1]


@jax.jit
def _pull(jacobian: AutodiffRows, y: Any) -> Any:
    v = jacobian.state.v
    of_positions, of_velocities = jax.vjp(lambda xi, v: _rows(jacobian, xi, v), jnp.zeros_like(v), v)[1](
        varying_with(y, jacobian)
    )
    return of_positions + of_velocities


@pytree
class MaskedRows(JacobianOperator):
    """An operator with zeros in the inactive rows; `active` (nc,) marks the active rows."""

    whole: Leaf
    active: Leaf

    @property
    def shape(self) -> tuple[int, int]:
        """Return the shape (nc, nv)."""
        return self.whole.shape

    @property
    def dtype(self) -> Any:
        """Return the dtype of the entries."""
        return self.whole.dtype

    def times(self, x: Float[Array, " nv"]) -> Float[Array, " nc"]:
        """Return J x, zero in inactive rows."""
        return jnp.asarray(jnp.where(self.active, self.whole.times(x), 0.0))

    def transpose_times(self, y: Float[Array, " nc"]) -> Float[Array, " nv"]:
        """Return J^T y of the active rows."""
        return self.whole.transpose_times(jnp.where(self.active, y, 0.0))


@pytree
class RowRange(JacobianOperator):
    """The rows start, ..., stop - 1 of an operator."""

    whole: Leaf
    start: int = static()
    stop: int = static()

    @property
    def shape(self) -> tuple[int, int]:
        """Return the shape (stop - start, nv)."""
        return self.stop - self.start, self.whole.shape[1]

    @property
    def dtype(self) -> Any:
        """Return the dtype of the entries."""
        return self.whole.dtype

    def times(self, x: Float[Array, " nv"]) -> Float[Array, " nc"]:
        """Return J x."""
        return self.whole.times(x)[self.start : self.stop]

    def transpose_times(self, y: Float[Array, " nc"]) -> Float[Array, " nv"]:
        """Return J^T y."""
        return self.whole.transpose_times(jnp.pad(y, (self.start, self.whole.shape[0] - self.stop)))


@pytree
class StackedRows(JacobianOperator):
    """Operators stacked below each other: a tuple of one or more parts, each in its own structure."""

    parts: tuple[Any, ...]

    @property
    def shape(self) -> tuple[int, int]:
        """Return the shape (nc, nv)."""
        return self._ends()[-1], self.parts[0].shape[1]

    @property
    def dtype(self) -> Any:
        """Return the dtype of the entries."""
        return self.parts[0].dtype

    def _ends(self) -> list[int]:
        """Return the first row of each part, followed by the number of rows."""
        return [0, *np.cumsum([part.shape[0] for part in self.parts]).tolist()]

    def _split(self, y: Any) -> list[Any]:
        ends = self._ends()
        return [y[start:stop] for start, stop in itertools.pairwise(ends)]

    def times(self, x: Float[Array, " nv"]) -> Float[Array, " nc"]:
        """Return J x."""
        return jnp.concatenate([part.times(x) for part in self.parts])

    def transpose_times(self, y: Float[Array, " nc"]) -> Float[Array, " nv"]:
        """Return J^T y."""
        forces = [
            part.transpose_times(entries) for part, entries in zip(self.parts, self._split(y), strict=True)
        ]
        return functools.reduce(jnp.add, forces)

    def _above(self, *others: JacobianOperator) -> StackedRows:
        return StackedRows((*self.parts, *others))

    def as_dense(self) -> Float[Array, "nc nv"]:
        """Return the matrix as an array."""
        return jnp.concatenate([part.as_dense() for part in self.parts])

    def masked(self, active: Bool[Array, " nc"]) -> StackedRows:
        """Return J with zeros in inactive rows."""
        return StackedRows(
            tuple(part.masked(some) for part, some in zip(self.parts, self._split(active), strict=True))
        )

    def between(self, start: int, stop: int) -> JacobianOperator:
        """Return the rows start, ..., stop - 1."""
        offsets = zip(self.parts, self._ends()[:-1], strict=True)
        clipped = [(part, max(start - at, 0), min(stop - at, part.shape[0])) for part, at in offsets]
        first, *rest = [
            part.between(low, max(low, high)) for part, low, high in clipped if low <= part.shape[0]
        ]
        return first.stacked(*rest)

    def over_columns(self, divisors: Float[Array, " nv"]) -> StackedRows:
        """Return J diag(d)^-1."""
        return StackedRows(tuple(part.over_columns(divisors) for part in self.parts))

    def times_blocks(self, blocks: Float[Array, "k b b"]) -> StackedRows:
        """Return J B with B block diagonal."""
        return StackedRows(tuple(part.times_blocks(blocks) for part in self.parts))

    def gram(self) -> Float[Array, "nc nc"]:
        """Return J J^T by blocks.

        Each part forms its own diagonal block. For two parts, the earlier part multiplies the dense matrix of
        the later part.
        """
        across: dict[tuple[int, int], Any] = {}
        for i, part in enumerate(self.parts):
            across[i, i] = part.gram()
            for j in range(i + 1, len(self.parts)):
                across[i, j] = jax.vmap(part.times, out_axes=1)(self.parts[j].as_dense())
                across[j, i] = across[i, j].T
        count = range(len(self.parts))
        return jnp.block([[across[i, j] for j in count] for i in count])

    def row_sizes(self) -> Float[Array, " nc"]:
        """Return the largest magnitude in each row."""
        return jnp.concatenate([part.row_sizes() for part in self.parts])

    def touched(self) -> Bool[Array, " nv"]:
        """Return which columns have a nonzero entry in any row."""
        return jnp.any(jnp.stack([part.touched() for part in self.parts]), axis=0)


def as_jacobian_operator(jacobian: Any) -> JacobianOperator:
    """Convert user input to an operator: an array (nc, nv) to `DenseRows`; an operator stays unchanged."""
    return jacobian if isinstance(jacobian, JacobianOperator) else DenseRows(jnp.asarray(jacobian))

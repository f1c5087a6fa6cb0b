"""The constraint Jacobian as an operator: a matrix by default, products only where a matrix-free method asks for no more."""

from __future__ import annotations

from typing import Any, Protocol, TypeAlias, runtime_checkable

import jax.numpy as jnp
from jax import Array
from jaxtyping import Float

from jaxdae import small_matrix
from jaxdae._pytree import pytree, static
from jaxdae.typing import Leaf


@runtime_checkable
class JacobianOperator(Protocol):
    """J as two products; a pytree, so that it can be differentiated with respect to what it is made of."""

    @property
    def shape(self) -> tuple[int, int]:
        """(nc, nv)."""
        ...

    def times(self, x: Any) -> Any:
        """Returns J x (nc,)."""
        ...

    def transpose_times(self, y: Any) -> Any:
        """Returns J^T y (nv,)."""
        ...


Jacobian: TypeAlias = Float[Array, "nc nv"] | JacobianOperator


def times(jacobian: Any, x: Float[Array, " nv"]) -> Float[Array, " nc"]:
    """Returns J x."""
    return small_matrix.matvec(jacobian, x) if _is_matrix(jacobian) else jacobian.times(x)


def transpose_times(jacobian: Any, y: Float[Array, " nc"]) -> Float[Array, " nv"]:
    """Returns J^T y."""
    return small_matrix.rmatvec(jacobian, y) if _is_matrix(jacobian) else jacobian.transpose_times(y)


def columns(jacobian: Jacobian) -> int:
    """Returns nv."""
    return jacobian.shape[1]


def leading_rows(jacobian: Any, rows: int) -> Any:
    """Returns the first rows of J."""
    return jacobian[:rows] if _is_matrix(jacobian) else LeadingRows(jacobian, rows)


@pytree
class LeadingRows:
    """The first rows of a `JacobianOperator`."""

    whole: Leaf
    rows: int = static()

    @property
    def shape(self) -> tuple[int, int]:
        """(rows, nv)."""
        return self.rows, self.whole.shape[1]

    def times(self, x: Any) -> Any:
        """Returns J x."""
        return self.whole.times(x)[: self.rows]

    def transpose_times(self, y: Any) -> Any:
        """Returns J^T y."""
        return self.whole.transpose_times(jnp.pad(y, (0, self.whole.shape[0] - self.rows)))


def _is_matrix(jacobian: Any) -> bool:
    return not hasattr(jacobian, "transpose_times")

"""Reduced equations on the null space of the constraints.

Let N be a basis of the null space of J (J N = 0) and J^+ the pseudoinverse. All a with J a = r are a = a_p +
N y, with a_p = J^+ r. Substituting a into the first row and multiplying by N^T eliminates the multipliers
(N^T J^T = 0):

    N^T M N y = N^T (f - M a_p),        lam = (J^+)^T (M a - f).

The size of the reduced matrix is the mobility of the mechanism. The matrix is positive definite if M is
positive definite on the null space, whatever the rank of J. The multipliers lie in the range of J: they are
the shortest that carry the load. In the Euclidean metric (M = I), the same decomposition yields the lecture's
projections: v -> N N^T v, and q -> (I - N N^T)(q0 - J^+ g0) + N N^T q_e.

The method that computes N is a separate choice:

    SingularValues   J = U S V^T: any rank; N = the columns of V with singular value zero, J^+ = V S^+ U^T.
    HouseholderQR    J^T = [Q1 Q2] [R; 0]: full row rank; N = Q2, J^+ = Q1 R^-T.
    NormalEquations  full row rank; J^+ = J^T (J J^T)^-1, and instead of a basis the projector P = I - J^+ J.
                     The cheapest.

Shapes do not depend on values. With singular values, N has nv columns. Columns outside the null space are
zero, and the reduced matrix has ones on the corresponding diagonal entries. In general, let the columns of G
(nv, k) generate the null space, and let Z >= 0 be symmetric, be positive on the kernel of G, and commute with
the projector along that kernel. Then (G^T M G + Z) y = G^T (f - M a_p) yields the same G y.

Soft rows, J a + C lam = r, are hard rows of the augmented system with coordinates (a, c) and masses (M, I): J
a + C^1/2 c = r.

References:
    S. Savin, "Contact-aware Control", lecture 5, equations (14) to (20). E. Bayo, R. Ledesma, "Augmented
    Lagrangian and mass-orthogonal projection methods for constrained multibody dynamics", Nonlinear Dynamics
    9 (1996), for redundant rows.
"""

from __future__ import annotations

from typing import Any, ClassVar, Protocol

import jax
import jax.numpy as jnp
from jax import Array

from jaxdae.base.dataclass import pytree, static
from jaxdae.base.requirements import fraction, offers
from jaxdae.linalg import small_matrix
from jaxdae.linalg.singular_values import ThinSVD
from jaxdae.matrices import DenseRows, DiagonalMatrix, JacobianOperator, MassOperator, as_jacobian_operator
from jaxdae.saddle_point.derivative import solve
from jaxdae.typing import Jacobian, Leaf, Rows, Velocity


class Decomposition(Protocol):
    """A decomposition of J that provides its pseudoinverse and its null space."""

    @property
    def generators(self) -> Any:
        """G (nv, k): columns that span the null space of J; additional columns are zero."""
        ...

    @property
    def complement(self) -> Any:
        """Z (k, k), or None for zero: positive on the kernel of G, zero elsewhere."""
        ...

    def solve(self, r: Rows) -> Velocity:
        """Return J^+ r."""
        ...

    def solve_transposed(self, x: Velocity) -> Rows:
        """Return (J^+)^T x."""
        ...

    def inconsistent(self, r: Rows) -> Rows | None:
        """Return (I - J J^+) r, or None if J has full rank by assumption."""
        ...


@pytree
class SVDDecomposition:
    """The singular values of J, with all right singular vectors."""

    thin: Leaf
    generators: Leaf
    complement: Leaf

    def solve(self, r: Rows) -> Velocity:
        """Return J^+ r."""
        return self.thin.solve(r)

    def solve_transposed(self, x: Velocity) -> Rows:
        """Return (J^+)^T x."""
        return self.thin.solve_transposed(x)

    def inconsistent(self, r: Rows) -> Rows:
        """Return (I - J J^+) r."""
        return self.thin.inconsistent(r)


@pytree
class SingularValues:
    """Null space from the singular values of J; any rank.

    Attributes:
        tolerance: singular values below this fraction of the largest count as zero. Off the constraint
            manifold, dependent rows become independent (in integrator stages by about (h |v| / length)^2).
            The tolerance must exceed the singular values that arise this way. It must be below the smallest
            singular value of truly independent rows. If dependent rows count as independent, the mechanism
            stops without a warning. A spatial hinge R meters from the center of mass of its body has values
            down to 1 / R^2 in absolute coordinates: beyond 316 m, one of its rows counts as dependent.
    """

    tolerance: Leaf = 1e-5

    def requirements(self) -> Any:
        """Yield the conditions on the parameters; see `jaxdae.base.requirements`."""
        yield fraction(self.tolerance), "tolerance must be at least 0 and below 1"

    def decompose(self, jacobian: Jacobian) -> SVDDecomposition:
        """Return the decomposition; one SVD, about 20 nv^3 operations."""
        thin, kept, right = ThinSVD.of(jacobian, self.tolerance, all_right=True)
        free = jnp.concatenate([~kept, jnp.ones((right.shape[0] - kept.shape[0],), bool)]).astype(right.dtype)
        return SVDDecomposition(thin, right.T * free[None, :], jnp.diag(1.0 - free))


@pytree
class QRDecomposition:
    """J^T = Q1 R, and Q2, the remaining basis vectors; `triangle` is R."""

    range: Leaf
    generators: Leaf
    triangle: Leaf
    complement: None = static(default=None)

    def solve(self, r: Rows) -> Velocity:
        """Return J^+ r = Q1 R^-T r."""
        if r.shape[0] == 0:
            return jnp.zeros((self.range.shape[0],), r.dtype)
        return self.range @ jax.scipy.linalg.solve_triangular(self.triangle, r, trans=1)

    def solve_transposed(self, x: Velocity) -> Rows:
        """Return (J^+)^T x = R^-1 Q1^T x."""
        if self.range.shape[1] == 0:
            return jnp.zeros((0,), x.dtype)
        return jax.scipy.linalg.solve_triangular(self.triangle, self.range.T @ x)

    def inconsistent(self, r: Rows) -> None:
        """Return None because J has full rank."""


@pytree
class HouseholderQR:
    """Null space from a QR factorization of J^T; J must have full row rank and nc <= nv.

    The cost is about a tenth of the cost of an SVD.
    """

    full_rank: ClassVar[bool] = True

    def decompose(self, jacobian: Jacobian) -> QRDecomposition:
        """Return the decomposition; one QR factorization.

        Raises:
            ValueError: J has more rows than columns, so it cannot have full row rank.
        """
        rows, columns = jacobian.shape
        if rows > columns:
            raise ValueError(
                f"HouseholderQR needs full row rank, but J has {rows} rows and {columns} columns; use "
                "SingularValues"
            )
        if rows == 0:
            eye = jnp.eye(columns, dtype=jacobian.dtype)
            return QRDecomposition(eye[:, :0], eye, eye[:0, :0])
        q, r = jnp.linalg.qr(jacobian.T, mode="complete")
        lengths = jnp.linalg.norm(jacobian, axis=1)
        regular = jnp.all(jnp.abs(jnp.diagonal(r)) > small_matrix.rounding(rows, r.dtype) * lengths)
        return QRDecomposition(q[:, :rows], q[:, rows:], jnp.where(regular, r[:rows], jnp.nan))


@pytree
class NormalDecomposition:
    """J, the Cholesky factor of J J^T, and the projector P = I - J^T (J J^T)^-1 J."""

    jacobian: Leaf
    gram: Leaf
    generators: Leaf
    complement: Leaf

    def solve(self, r: Rows) -> Velocity:
        """Return J^+ r = J^T (J J^T)^-1 r."""
        return small_matrix.rmatvec(self.jacobian, self.gram.solve(r))

    def solve_transposed(self, x: Velocity) -> Rows:
        """Return (J^+)^T x = (J J^T)^-1 J x."""
        return self.gram.solve(small_matrix.matvec(self.jacobian, x))

    def inconsistent(self, r: Rows) -> None:
        """Return None because J has full rank."""


@pytree
class NormalEquations:
    """Closed-form projector P = I - J^T (J J^T)^-1 J from a Cholesky factorization of J J^T.

    J must have full row rank. This decomposition is the cheapest and the least accurate: it squares the
    condition number of J.

    References:
        "Mobile robotics" lecture notes, projection onto the null space of the constraints.
    """

    full_rank: ClassVar[bool] = True

    def decompose(self, jacobian: Jacobian) -> NormalDecomposition:
        """Return the decomposition; one Cholesky factorization of size nc."""
        gram = small_matrix.cholesky(small_matrix.product_transposed(jacobian, jacobian))
        half = gram.inverse @ jacobian
        complement = half.T @ half
        return NormalDecomposition(
            jacobian, gram, jnp.eye(jacobian.shape[1], dtype=jacobian.dtype) - complement, complement
        )


@pytree
class NullSpaceFactors:
    """M, the decomposition of J, and the Cholesky factor of the reduced mass matrix."""

    mass: Leaf
    decomposition: Leaf
    reduced: Leaf

    def solve(self, f: Velocity | None, r: Rows) -> tuple[Velocity, Rows]:
        """Return (a, lam) for the right-hand sides f (nv,) and r (nc,); f = None means zero."""
        particular = self.decomposition.solve(r)
        force = -self.mass.times(particular)
        force = force if f is None else f + force
        basis = self.decomposition.generators
        y = self.reduced.solve(small_matrix.rmatvec(basis, force))
        free = small_matrix.matvec(basis, y)
        return particular + free, self.decomposition.solve_transposed(self.mass.times(free) - force)

    def inconsistent(self, r: Rows) -> Rows | None:
        """Return (I - J J^+) r, or None if J has full rank by assumption."""
        return self.decomposition.inconsistent(r)

    def reweighted(self, mass: MassOperator) -> NullSpaceFactors:
        """Return the factors with another matrix in place of M, from the same decomposition of J."""
        return _reduced(mass, self.decomposition)


def _reduced(mass: MassOperator, decomposition: Decomposition) -> NullSpaceFactors:
    basis = decomposition.generators
    reduced = basis.T @ mass.times_matrix(basis)
    if decomposition.complement is not None:
        # Scale like the rest of the matrix, so that the smallest pivot does not depend on the unit of mass.
        scale = jnp.trace(mass.as_dense()) / basis.shape[0]
        reduced = reduced + scale * decomposition.complement
    return NullSpaceFactors(mass, decomposition, small_matrix.solving_factors(reduced))


@pytree
class SoftFactors:
    """Factors of the augmented system (a, c), which represents soft rows as hard rows."""

    augmented: Leaf
    size: int = static()

    def solve(self, f: Velocity | None, r: Rows) -> tuple[Velocity, Rows]:
        """Return (a, lam) for the right-hand sides f (nv,) and r (nc,); f = None means zero."""
        padded = None if f is None else jnp.pad(f, (0, r.shape[0]))
        a, lam = self.augmented.solve(padded, r)
        return a[: self.size], lam

    def inconsistent(self, r: Rows) -> Rows | None:
        """Return the part of r that neither a nor c can produce."""
        return self.augmented.inconsistent(r)


def augment(
    mass: MassOperator, jacobian: JacobianOperator, compliance: Rows
) -> tuple[MassOperator, JacobianOperator]:
    """Return M and J of the augmented system (a, c), whose hard rows represent the given soft rows."""
    wide = jnp.concatenate([jacobian.as_dense(), jnp.diag(jnp.sqrt(compliance))], axis=1)
    return mass.extended(compliance.shape[0]), DenseRows(wide)


@pytree
class NullSpace:
    """Accelerations from the reduced equations on the null space of J; minimum-norm multipliers.

    The equations are N^T M N y = N^T (f - M a_p), a = a_p + N y. M only needs to be positive definite on the
    null space of J. Derivatives are exact at full rank and at constant deficient rank.

    Attributes:
        decomposition: the method that computes N and J^+. `SingularValues()` allows dependent rows;
            `HouseholderQR()` and `NormalEquations()` are far cheaper but require full row rank.
    """

    decomposition: Any = SingularValues()

    @property
    def full_rank(self) -> bool:
        """Whether J must have full row rank."""
        return offers(self.decomposition, "full_rank") and bool(self.decomposition.full_rank)

    def requirements(self) -> Any:
        """Yield the conditions on the parameters; see `jaxdae.base.requirements`."""
        yield (
            offers(self.decomposition, "decompose"),
            "decomposition must be SingularValues(), HouseholderQR() or NormalEquations()",
        )

    def factorize(
        self, mass: MassOperator, jacobian: JacobianOperator, compliance: Rows | None
    ) -> NullSpaceFactors | SoftFactors:
        """Return the decomposition of J and the Cholesky factor of the reduced mass matrix."""
        if compliance is not None:
            wide_mass, wide = augment(mass, jacobian, compliance)
            return SoftFactors(self.factorize(wide_mass, wide, None), jacobian.shape[1])
        return _reduced(mass, self.decomposition.decompose(jacobian.as_dense()))


def null_projector(jacobian: Any, solver: Any = None) -> Array:
    """Return P = N N^T (nv, nv), the orthogonal projector onto the null space of J.

    Column k is the vector nearest to e_k with J x = 0. It solves a saddle-point problem with M = I, whose
    derivative is exact at constant rank, dP = -(S + S^T) with S = J^+ dJ P.

    Args:
        jacobian: J (nc, nv), an array or an operator.
        solver: `NullSpace()` by default, which allows dependent rows; `SchurComplement()` evaluates I - J^T
            (J J^T)^-1 J.
    """
    return _columns(as_jacobian_operator(jacobian), solver or NullSpace(), 1, lambda e, zero: (e, zero))


def pseudoinverse(jacobian: Any, solver: Any = None) -> Array:
    """Return J^+ (nv, nc), with exact derivatives at constant rank.

    Args:
        jacobian: J (nc, nv), an array or an operator.
        solver: `NullSpace()` by default, which allows dependent rows.
    """
    return _columns(as_jacobian_operator(jacobian), solver or NullSpace(), 0, lambda e, zero: (None, e))


def _columns(jacobian: JacobianOperator, solver: Any, axis: int, sides: Any) -> Array:
    identity = DiagonalMatrix(jnp.ones((jacobian.shape[1],), jacobian.dtype))
    factors = solver.factorize(*jax.lax.stop_gradient((identity, jacobian, None)))
    zero = jnp.zeros((jacobian.shape[0],), jacobian.dtype)

    def column(e: Any) -> Any:
        return solve(factors, identity, jacobian, None, *sides(e, zero))[0]

    return jax.vmap(column, out_axes=1)(jnp.eye(jacobian.shape[axis], dtype=jacobian.dtype))

"""Matrix operators of a system: the mass matrix M and the constraint Jacobian J."""

from jaxdae.matrices.block_rows import BlockRows
from jaxdae.matrices.jacobian import (
    AutodiffRows,
    DenseRows,
    JacobianOperator,
    StackedRows,
    as_jacobian_operator,
)
from jaxdae.matrices.mass import (
    BlockDiagonalMatrix,
    DenseMatrix,
    DiagonalMatrix,
    MassFactors,
    MassOperator,
    as_mass_operator,
)

__all__ = [
    "AutodiffRows",
    "BlockDiagonalMatrix",
    "BlockRows",
    "DenseMatrix",
    "DenseRows",
    "DiagonalMatrix",
    "JacobianOperator",
    "MassFactors",
    "MassOperator",
    "StackedRows",
    "as_jacobian_operator",
    "as_mass_operator",
]

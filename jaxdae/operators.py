"""Matrices and constraint rows of a system at a state, and projections made from them."""

from jaxdae.dynamics.accelerations import KKTInverse, kkt_inverse
from jaxdae.dynamics.diagnostics import IndependentRows, independent_rows, virtual_work
from jaxdae.matrices import DiagonalMatrix
from jaxdae.saddle_point import (
    HouseholderQR,
    NormalEquations,
    SingularValues,
    block_preconditioner,
    null_projector,
    pseudoinverse,
)
from jaxdae.systems.constraint_rows import ConstraintTerms, constraint_terms

__all__ = [
    "ConstraintTerms",
    "DiagonalMatrix",
    "HouseholderQR",
    "IndependentRows",
    "KKTInverse",
    "NormalEquations",
    "SingularValues",
    "block_preconditioner",
    "constraint_terms",
    "independent_rows",
    "kkt_inverse",
    "null_projector",
    "pseudoinverse",
    "virtual_work",
]

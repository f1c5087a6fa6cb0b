"""Solvers of the saddle-point system [M -J^T; J C] [a; lam] = [f; r], and the operators they take."""

from jaxdae.saddle_point.dense import DenseKKT
from jaxdae.saddle_point.interface import SaddlePointFactors, SaddlePointSolver, solve
from jaxdae.saddle_point.mass import DiagonalMatrix, MassMatrix, as_dense
from jaxdae.saddle_point.schur import SchurComplement

__all__ = [
    "DenseKKT",
    "DiagonalMatrix",
    "MassMatrix",
    "SaddlePointFactors",
    "SaddlePointSolver",
    "SchurComplement",
    "as_dense",
    "solve",
]

"""Solvers of the saddle-point system [M -J^T; J C] [a; lam] = [f; r]."""

from jaxdae.saddle_point.dense import DenseKKT
from jaxdae.saddle_point.derivative import solve, solve_saddle_point
from jaxdae.saddle_point.iterative import BiconjugateGradient, ConjugateGradient, block_preconditioner
from jaxdae.saddle_point.least_squares import LeastSquares
from jaxdae.saddle_point.null_space import (
    HouseholderQR,
    NormalEquations,
    NullSpace,
    SingularValues,
    null_projector,
    pseudoinverse,
)
from jaxdae.saddle_point.proximal import Proximal
from jaxdae.saddle_point.saddle_point_solver import SaddlePointFactors, SaddlePointSolver
from jaxdae.saddle_point.schur import SchurComplement

__all__ = [
    "BiconjugateGradient",
    "ConjugateGradient",
    "DenseKKT",
    "HouseholderQR",
    "LeastSquares",
    "NormalEquations",
    "NullSpace",
    "Proximal",
    "SaddlePointFactors",
    "SaddlePointSolver",
    "SchurComplement",
    "SingularValues",
    "block_preconditioner",
    "null_projector",
    "pseudoinverse",
    "solve",
    "solve_saddle_point",
]

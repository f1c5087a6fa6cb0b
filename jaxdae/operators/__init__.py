"""The matrices of a system as operators: the mass matrix M and the constraint Jacobian J."""

from jaxdae.operators.jacobian import JacobianOperator
from jaxdae.operators.mass import DiagonalMatrix, MassMatrix, as_dense

__all__ = ["DiagonalMatrix", "JacobianOperator", "MassMatrix", "as_dense"]

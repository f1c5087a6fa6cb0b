"""Adaptive methods through Diffrax. They need the extra `adaptive`."""

from jaxdae.integrators import Adaptive, VectorField, projected_solver, vector_field
from jaxdae.rollouts.adaptive_trajectory import adaptive_rollout

__all__ = [
    "Adaptive",
    "VectorField",
    "adaptive_rollout",
    "projected_solver",
    "vector_field",
]

"""Textbook methods, for teaching and for comparison with the methods of `jaxdae`."""

from jaxdae.dynamics.stabilization import LinearPositionProjection, MultiplierFeedback
from jaxdae.integrators import ProjectedDerivative, ProjectedStep, Sequential, Taylor

__all__ = [
    "LinearPositionProjection",
    "MultiplierFeedback",
    "ProjectedDerivative",
    "ProjectedStep",
    "Sequential",
    "Taylor",
]

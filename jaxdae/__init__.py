"""jaxdae: mechanics with hard constraints, compiled, batched and differentiable.

The names below are the library; planar mechanisms are in `jaxdae.mechanisms`.
"""

from jaxdae._pytree import batch_axes, get_leaf, leaf_paths, pytree, set_leaf, static
from jaxdae.diagnostics import Diagnosis, diagnose
from jaxdae.dynamics import KKTInverse, forward_dynamics, inverse_dynamics, kkt_inverse
from jaxdae.initialize import InitializeInfo, initialize
from jaxdae.integrators import (
    ExplicitEuler,
    Integrator,
    Projected,
    RungeKutta,
    SemiImplicitEuler,
    StepInfo,
    Tableau,
    Taylor,
)
from jaxdae.rollout import Trajectory, batch_rollout, rollout
from jaxdae.saddle_point import DenseKKT, DiagonalMatrix, SaddlePointSolver, SchurComplement
from jaxdae.stabilization import (
    Baumgarte,
    LinearPositionProjection,
    Metric,
    MultiplierFeedback,
    NoStabilization,
    Origin,
    PositionProjection,
    Projection,
    Stabilization,
    VelocityProjection,
)
from jaxdae.status import SimulationError, Status, raise_if_failed
from jaxdae.system import ConstraintTerms, LagrangianSystem, State, System, constraint_terms, energy

__all__ = [
    "Baumgarte",
    "ConstraintTerms",
    "DenseKKT",
    "Diagnosis",
    "DiagonalMatrix",
    "ExplicitEuler",
    "InitializeInfo",
    "Integrator",
    "KKTInverse",
    "LagrangianSystem",
    "LinearPositionProjection",
    "Metric",
    "MultiplierFeedback",
    "NoStabilization",
    "Origin",
    "PositionProjection",
    "Projected",
    "Projection",
    "RungeKutta",
    "SaddlePointSolver",
    "SchurComplement",
    "SemiImplicitEuler",
    "SimulationError",
    "Stabilization",
    "State",
    "Status",
    "StepInfo",
    "System",
    "Tableau",
    "Taylor",
    "Trajectory",
    "VelocityProjection",
    "batch_axes",
    "batch_rollout",
    "constraint_terms",
    "diagnose",
    "energy",
    "forward_dynamics",
    "get_leaf",
    "initialize",
    "inverse_dynamics",
    "kkt_inverse",
    "leaf_paths",
    "pytree",
    "raise_if_failed",
    "rollout",
    "set_leaf",
    "static",
]

"""Optimal control on the manifold: iLQR, Newton, multiple shooting, MPC, and problems for SciPy."""

from jaxdae.optimal_control.augmented_lagrangian import Multipliers
from jaxdae.optimal_control.expansion import Curvature
from jaxdae.optimal_control.iteration import History, Solution
from jaxdae.optimal_control.methods import ilqr, multiple_shooting
from jaxdae.optimal_control.model_predictive import ModelPredictive, Plan
from jaxdae.optimal_control.problem import Problem
from jaxdae.optimal_control.scipy_problem import ScipyProblem, as_scipy

__all__ = [
    "Curvature",
    "History",
    "ModelPredictive",
    "Multipliers",
    "Plan",
    "Problem",
    "ScipyProblem",
    "Solution",
    "as_scipy",
    "ilqr",
    "multiple_shooting",
]

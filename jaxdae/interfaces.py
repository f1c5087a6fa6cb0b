"""Protocols that you may implement, and records that functions accept or return.

You need these names in annotations, and in your own systems and methods.
"""

from jaxdae.dynamics.diagnostics import Diagnosis
from jaxdae.dynamics.initialization import InitializeInfo
from jaxdae.dynamics.solver_choice import SolverChoice
from jaxdae.dynamics.stabilization import Stabilization
from jaxdae.integrators import Integrator, StepInfo
from jaxdae.linalg.newton import NewtonMethod
from jaxdae.saddle_point import SaddlePointSolver
from jaxdae.systems.names import Names, Sizes
from jaxdae.systems.system import AnySystem

__all__ = [
    "AnySystem",
    "Diagnosis",
    "InitializeInfo",
    "Integrator",
    "Names",
    "NewtonMethod",
    "SaddlePointSolver",
    "Sizes",
    "SolverChoice",
    "Stabilization",
    "StepInfo",
]

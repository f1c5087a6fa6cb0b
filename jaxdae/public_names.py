"""Public names of the package `jaxdae`, which imports this module when you first use one of them."""

from jaxdae import contact, diffrax, interfaces, operators, switching, textbook, tree
from jaxdae._version import __version__
from jaxdae.compile.layout import Automatic, Fused, Layout, Remainder
from jaxdae.compile.rematerialization import Keep
from jaxdae.dynamics.accelerations import forward_dynamics, inverse_dynamics
from jaxdae.dynamics.diagnostics import diagnose
from jaxdae.dynamics.impulse import constraint_impulse
from jaxdae.dynamics.initialization import initialize
from jaxdae.dynamics.solver_choice import choose_solver
from jaxdae.dynamics.stabilization import (
    Baumgarte,
    Metric,
    NoStabilization,
    Origin,
    PositionProjection,
    Projection,
    VelocityProjection,
)
from jaxdae.geometry import rotation
from jaxdae.integrators import (
    BackwardEuler,
    Composition,
    DiscreteEulerLagrange,
    ExplicitEuler,
    GeneralizedAlpha,
    HalfExplicitRungeKutta,
    ImplicitMidpoint,
    Kinematic,
    KinematicImplicit,
    MidpointLagrangian,
    Projected,
    RadauIIA,
    Rattle,
    RungeKutta,
    SemiImplicitEuler,
    Tableau,
    TrapezoidalLagrangian,
)
from jaxdae.linalg.newton import DenseNewton, SaddlePointNewton
from jaxdae.rollouts.step_limits import stable_step
from jaxdae.rollouts.trajectory import Trajectory, batch_rollout, rollout
from jaxdae.saddle_point import (
    BiconjugateGradient,
    ConjugateGradient,
    DenseKKT,
    LeastSquares,
    NullSpace,
    Proximal,
    SchurComplement,
    solve_saddle_point,
)
from jaxdae.systems.evaluation import Evaluation
from jaxdae.systems.kinematic_system import KinematicSystem, kinematic_status, kinematic_velocity
from jaxdae.systems.masks import Masked, Soft
from jaxdae.systems.state_checks import StateWarning, state_status
from jaxdae.systems.status import SimulationError, Status, raise_if_failed
from jaxdae.systems.system import LagrangianSystem, State, System, energy

__all__ = [
    "Automatic",
    "BackwardEuler",
    "Baumgarte",
    "BiconjugateGradient",
    "Composition",
    "ConjugateGradient",
    "DenseKKT",
    "DenseNewton",
    "DiscreteEulerLagrange",
    "Evaluation",
    "ExplicitEuler",
    "Fused",
    "GeneralizedAlpha",
    "HalfExplicitRungeKutta",
    "ImplicitMidpoint",
    "Keep",
    "Kinematic",
    "KinematicImplicit",
    "KinematicSystem",
    "LagrangianSystem",
    "Layout",
    "LeastSquares",
    "Masked",
    "Metric",
    "MidpointLagrangian",
    "NoStabilization",
    "NullSpace",
    "Origin",
    "PositionProjection",
    "Projected",
    "Projection",
    "Proximal",
    "RadauIIA",
    "Rattle",
    "Remainder",
    "RungeKutta",
    "SaddlePointNewton",
    "SchurComplement",
    "SemiImplicitEuler",
    "SimulationError",
    "Soft",
    "State",
    "StateWarning",
    "Status",
    "System",
    "Tableau",
    "Trajectory",
    "TrapezoidalLagrangian",
    "VelocityProjection",
    "__version__",
    "batch_rollout",
    "choose_solver",
    "constraint_impulse",
    "contact",
    "diagnose",
    "diffrax",
    "energy",
    "forward_dynamics",
    "initialize",
    "interfaces",
    "inverse_dynamics",
    "kinematic_status",
    "kinematic_velocity",
    "operators",
    "raise_if_failed",
    "rollout",
    "rotation",
    "solve_saddle_point",
    "stable_step",
    "state_status",
    "switching",
    "textbook",
    "tree",
]

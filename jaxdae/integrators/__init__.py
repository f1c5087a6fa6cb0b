"""One-step methods: (state at t) -> (state at t + dt)."""

from jaxdae.integrators.adaptive import Adaptive
from jaxdae.integrators.composition import Composition
from jaxdae.integrators.coulomb_law import CoulombFriction
from jaxdae.integrators.euler import ExplicitEuler, SemiImplicitEuler
from jaxdae.integrators.generalized_alpha import GeneralizedAlpha
from jaxdae.integrators.half_explicit import HalfExplicitRungeKutta
from jaxdae.integrators.implicit import BackwardEuler, ImplicitMidpoint
from jaxdae.integrators.integrator import Integrator, StepInfo
from jaxdae.integrators.kinematic_implicit import KinematicImplicit
from jaxdae.integrators.kinematic_runge_kutta import Kinematic
from jaxdae.integrators.ode import VectorField, projected_solver, vector_field
from jaxdae.integrators.projected import Projected
from jaxdae.integrators.radau import RadauIIA
from jaxdae.integrators.runge_kutta import RungeKutta, Tableau
from jaxdae.integrators.switching_structure import (
    Scheduled,
    Switching,
    SwitchingInfo,
    SwitchingLaw,
    Unilateral,
)
from jaxdae.integrators.textbook.projected_derivative import ProjectedDerivative
from jaxdae.integrators.textbook.projected_step import ProjectedStep
from jaxdae.integrators.textbook.sequential import Sequential
from jaxdae.integrators.textbook.taylor import Taylor
from jaxdae.integrators.variational import (
    DiscreteEulerLagrange,
    MidpointLagrangian,
    Rattle,
    TrapezoidalLagrangian,
)

__all__ = [
    "Adaptive",
    "BackwardEuler",
    "Composition",
    "CoulombFriction",
    "DiscreteEulerLagrange",
    "ExplicitEuler",
    "GeneralizedAlpha",
    "HalfExplicitRungeKutta",
    "ImplicitMidpoint",
    "Integrator",
    "Kinematic",
    "KinematicImplicit",
    "MidpointLagrangian",
    "Projected",
    "ProjectedDerivative",
    "ProjectedStep",
    "RadauIIA",
    "Rattle",
    "RungeKutta",
    "Scheduled",
    "SemiImplicitEuler",
    "Sequential",
    "StepInfo",
    "Switching",
    "SwitchingInfo",
    "SwitchingLaw",
    "Tableau",
    "Taylor",
    "TrapezoidalLagrangian",
    "Unilateral",
    "VectorField",
    "projected_solver",
    "vector_field",
]

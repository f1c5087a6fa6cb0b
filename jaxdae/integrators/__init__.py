"""One-step methods: (state at t) -> (state at t + dt)."""

from jaxdae.integrators.euler import ExplicitEuler, SemiImplicitEuler
from jaxdae.integrators.interface import Integrator, StepInfo
from jaxdae.integrators.projected import Projected
from jaxdae.integrators.runge_kutta import RungeKutta, Tableau
from jaxdae.integrators.switching import Scheduled, Switching, SwitchingInfo, SwitchingLaw, Unilateral
from jaxdae.integrators.taylor import Taylor

__all__ = [
    "ExplicitEuler",
    "Integrator",
    "Projected",
    "RungeKutta",
    "Scheduled",
    "SemiImplicitEuler",
    "StepInfo",
    "Switching",
    "SwitchingInfo",
    "SwitchingLaw",
    "Tableau",
    "Taylor",
    "Unilateral",
]

"""Systems with switching structure: laws activate and deactivate constraint rows during a rollout."""

from jaxdae.integrators import Scheduled, Switching, SwitchingInfo, SwitchingLaw, Unilateral

__all__ = [
    "Scheduled",
    "Switching",
    "SwitchingInfo",
    "SwitchingLaw",
    "Unilateral",
]

"""Systems with switching structure: laws activate and deactivate constraint rows during a rollout.

`rollout_until` ends a rollout at an event, for return maps.
"""

from jaxdae.integrators import CoulombFriction, Scheduled, Switching, SwitchingInfo, SwitchingLaw, Unilateral
from jaxdae.rollouts.event import rollout_until

__all__ = [
    "CoulombFriction",
    "Scheduled",
    "Switching",
    "SwitchingInfo",
    "SwitchingLaw",
    "Unilateral",
    "rollout_until",
]

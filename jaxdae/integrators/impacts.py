"""Impacts of contacts and one-sided rows within a step, for `integrators.touching`.

A contact closes at the first zero tau of the cubic through its gaps and rates at both ends of the
contact-free step, (gap_0, c_0n) and (gap_e, c_en), with the rate c_tau. With restitution e, the gap at the
end of the step h is

    gap* = max(0, gap_e - (1 + e) c_tau (h - tau))

After an impact, gap* contains the acceleration of the contact-free motion in the rest of the step, from
gap_e. Its velocity-dependent terms belong to the velocities before the impact. They scale with the square of
the velocity, which changes by the factor -e, so they enter with the factor e^2. The acceleration at zero
velocity varies linearly over the rest of the step, with the slope since the last step.

The rate at the end of the step follows from the velocities there, after the bodies have moved to their gaps:

    c* = max(0, d - e min(c_en - d, 0))          d: change of c_n by the acceleration at zero velocity

c_en - d is the rate of approach along the rows of the impulse. Without forces, d = 0, and the impulse
p = (c* - c_en) / D changes the kinetic energy by p (c_en + c*) / 2 = -(1 - e^2) c_en^2 / (2 D), so no
rotation of the bodies within the step can add energy. A contact that persists has
c* = max(0, c_en - (1 + e) c_0n).
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from jax import Array

from jaxdae.base.dataclass import pytree
from jaxdae.integrators.zero_crossing import first_zero, slope_at
from jaxdae.systems.contacts import Touch
from jaxdae.typing import Leaf


@pytree
class Impact:
    """Closing times of contacts and one-sided rows within a step, and tangential motion.

    Attributes:
        approach: normal velocity (m + k,) when the contact closes, at most zero, in m/s.
        rest: time (m + k,) from there to the end of the step, in s.
        slip: tangential displacement (m + f, tangents) in that time without contact impulses, in m; in the
            whole step for dry friction.
        closes: whether the contact closes within the step (m + k,).
    """

    approach: Leaf
    rest: Leaf
    slip: Leaf
    closes: Leaf

    def gap_after(self, touch: Touch, steady: Array, slope: Array) -> Array:
        """Return gap* (m + k,), the gaps at the end of the step after a rebound.

        Args:
            touch: the rows at the end of the step.
            steady: normal accelerations at zero velocity at the end of the step (m + k,).
            slope: their rate (m + k,).
        """
        moved = steady * self.rest**2 / 2.0 - slope * self.rest**3 / 3.0
        # The change without velocity-dependent terms, and a share of these terms.
        share: Any = jnp.where(self.closes, touch.restitution**2, 1.0)
        moved = moved + share * (touch.gap - self.approach * self.rest - moved)
        return jnp.maximum(0.0, moved - touch.restitution * self.approach * self.rest)

    def rate_after(self, touch: Touch, normal: Array, steady: Array, slope: Array) -> Array:
        """Return c* (m + k,), the normal velocities at the end of the step after a rebound.

        Args:
            touch: the rows.
            normal: normal velocities at the end of the step without impulses (m + k,).
            steady: as for `gap_after`.
            slope: as for `gap_after`.
        """
        gained = steady * self.rest - slope * self.rest**2 / 2.0
        rebound = gained - touch.restitution * jnp.minimum(normal - gained, 0.0)
        persists = normal - (1.0 + touch.restitution) * self.approach
        return jnp.maximum(0.0, jnp.where(self.closes, rebound, persists))


def impact_within(
    start: Touch, before: Array, end: Touch, after: Array, rests: Array, dt: Any, position_share: Any
) -> Impact:
    """Return where contacts close: at the root of the cubic, or at the start if the gap is not positive.

    Args:
        start: the rows at the start.
        before: their velocities (n,) at the start.
        end: the rows at the end of the contact-free step.
        after: their velocities (n,) there.
        rests: whether a contact or one-sided row with e = 0 is closed from the start (m + k,).
        dt: the step in s.
        position_share: share s of h^2 a in the displacement of a step; see `Method.position_share`.
    """
    contacts, _, dry = start.sizes
    normal, tangential, last = start.normals(before), start.discs(before), end.discs(after)
    closes = (start.gap > 0.0) & (end.gap <= 0.0) & ~rests
    cubic = (start.gap, dt * normal, end.gap, dt * end.normals(after))
    share: Any = jnp.where(closes, first_zero(closes, *cubic), 0.0)
    approach: Any = jnp.where(closes, slope_at(share, *cubic) / dt, normal)
    of_discs = jnp.pad(share[:contacts], (0, dry))[:, None]
    # The method displaces by h (c_0 + s (c_e - c_0)) in the whole step.
    more = (position_share - 0.5) * dt * (last - tangential)
    tangential = tangential + of_discs * (last - tangential)
    slip = (1.0 - of_discs) * dt * (tangential + last) / 2.0 + more
    return Impact(jnp.minimum(approach, 0.0), (1.0 - share) * dt, slip, closes)

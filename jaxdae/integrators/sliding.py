"""Friction of contacts and joints that slide at the start of a step: the share of the step before slip ends.

The contact law at the end of a step knows one direction of friction per step. Where the slip reverses within
the step, this costs one order, and the derivative does not converge: for a block that stops on an incline and
slides back, dv(T)/dv(0) would be 0 or 1, whatever the step. So the friction of a row that slides has two
parts. With the slip c_0 at the start, its direction d = c_0 / |c_0|, and the share sigma of the step,

    p = sigma p_s + r          p_s: impulses of the step in which every row keeps its mode
                               r: impulses that satisfy the law at the end, with bounds F (1 - sigma)

p_s follows from one linear system. Contacts that remain closed have c_n = 0 and p_t = -mu p_n d where they
slide, c_t = 0 where they stick; dry rows have p = -F dt d and c = 0. With the slip c_s = c_e + D p_s that
would remain at the end, and its part c_d = c_s . d along the initial direction,

    c_d <= 0   slip ends within the step, at   sigma = |c_0| / (|c_0| - c_d)
    c_d > 0    slip continues:                 sigma = max(1/2, 1 - c_d / |c_0|)

The second line is the mean of the directions at the start and at the end, which is accurate to second order
where slip turns in the plane of contact. It meets the first line at c_d = 0 and does not matter without a
turn. In positions, a constant force over the first part has the share 1 - (1 - sigma)^2 of the displacement
of the whole step, and the row moves by

    d_1 = sigma dt (c_0 + s sigma (c_s - c_0))       s: position share of the method, 1/2 for order two

before the second part, whose displacement satisfies the law. For constant forces both stages are exact.

The parts apply to steps in which no contact opens, closes or rebounds. Otherwise sigma is zero. A contact
that leaves its feature, such as a corner that passes an edge, opens.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from jax import Array

from jaxdae.base.dataclass import pytree
from jaxdae.contact_problem.contact_law import BlockDiagonal, length
from jaxdae.linalg.small_matrix import diagonal
from jaxdae.systems.contacts import Touch
from jaxdae.typing import Leaf


@pytree
class Modes:
    """Modes of contacts, one-sided rows and dry-friction rows at the end of a step.

    Attributes:
        closed: whether each contact and one-sided row (m + k,) pushed.
        slides: whether the friction of each contact and dry row (m + f,) was at its bound.
    """

    closed: Leaf
    slides: Leaf

    @classmethod
    def unknown(cls, touch: Touch) -> Modes:
        """Return the modes before the first step: nothing pushes or slides."""
        contacts, one_sided, dry = touch.sizes
        return cls(jnp.zeros((contacts + one_sided,), bool), jnp.zeros((contacts + dry,), bool))


@pytree
class FirstPart:
    """The part of a step before slip ends or, where it continues, before friction turns.

    Attributes:
        share: sigma of each contact and dry-friction row (m + f,), from 0 to 1.
        impulses: p_s (n,), in N s.
        slip: c_0 (m + f, tangents), in m/s.
        change: c_s - c_0 (m + f, tangents), in m/s.
    """

    share: Leaf
    impulses: Leaf
    slip: Leaf
    change: Leaf

    @classmethod
    def none(cls, touch: Touch) -> FirstPart:
        """Return the first part of a step whose friction has one direction: sigma is zero."""
        zeros = jnp.zeros_like(touch.drift)
        slip = touch.discs(zeros)
        return cls(slip[:, 0], zeros, slip, slip)

    def in_velocities(self, touch: Touch) -> Array:
        """Return sigma p_s (n,), the impulses of the first part."""
        return self._shared(touch, self.share)

    def in_positions(self, touch: Touch, dt: Any, position_share: Any) -> tuple[Array, Array]:
        """Return the impulses of the first part (n,), in kg m, and displacements d_1 (m + f, tangents)."""
        share = self.share[:, None]
        moved = share * dt * (self.slip + position_share * share * self.change)
        return self._shared(touch, 1.0 - self.left_in_positions) * position_share * dt, moved

    @property
    def left(self) -> Array:
        """1 - sigma (m + f,): the share of the second part in velocities."""
        return 1.0 - self.share

    @property
    def left_in_positions(self) -> Array:
        """(1 - sigma)^2 (m + f,): the share of the second part in positions."""
        return self.left**2

    def _shared(self, touch: Touch, share: Array) -> Array:
        contacts, one_sided, _ = touch.sizes
        normals = jnp.pad(share[:contacts], (0, one_sided))
        return self.impulses * touch.join(normals, jnp.broadcast_to(share[:, None], self.slip.shape))


def first_part(
    touch: Touch,
    delassus: Array,
    before: Array,
    free: Array,
    pushes: Array,
    modes: Modes,
    dt: Any,
    tolerance: Any,
) -> FirstPart:
    """Return the first part of a step.

    Args:
        touch: the rows at the end of the contact-free step.
        delassus: D (n, n).
        before: velocities of the rows at the start c_0 (n,), in m/s.
        free: velocities of the rows at the end of the contact-free step c_e (n,).
        pushes: (m + k,), whether contacts and one-sided rows are closed at the end or stay closed.
        modes: modes at the end of the last step, not closed where the row rebounds in this step.
        dt: step, in s.
        tolerance: slip below this share of the largest change of velocity in the step is round-off.
    """
    contacts, _, dry = touch.sizes
    slip = touch.discs(before)
    speed = length(slip)
    some = jnp.where(speed == 0.0, 1.0, speed)
    direction = slip / some[:, None]
    holds = pushes & modes.closed
    rubs = jnp.pad(holds[:contacts], (0, dry), constant_values=True)
    moves = speed > tolerance * jnp.max(jnp.abs(free - before), initial=0.0)
    slides = modes.slides & moves & rubs
    impulses = _in_modes(touch, delassus, free, holds, slides, rubs & ~slides, direction, dt)

    end = touch.discs(free + delassus @ impulses)
    along = jnp.sum(end * direction, axis=-1)
    ends: Any = some / (some - jnp.minimum(along, 0.0))
    share: Any = jnp.where(along <= 0.0, ends, jnp.maximum(0.5, 1.0 - along / some))
    keeps: Any = jnp.where(holds, touch.normals(impulses) >= 0.0, pushes == modes.closed)
    return FirstPart(jnp.where(slides & jnp.all(keeps), share, 0.0), impulses, slip, end - slip)


def _in_modes(
    touch: Touch,
    delassus: Array,
    free: Array,
    holds: Array,
    slides: Array,
    sticks: Array,
    direction: Array,
    dt: Any,
) -> Array:
    """Return p_s (n,), the impulses with which every row keeps its mode.

    Args:
        touch: as for `first_part`.
        delassus: as for `first_part`.
        free: as for `first_part`.
        dt: as for `first_part`.
        holds: (m + k,), whether contacts and one-sided rows remain closed.
        slides: (m + f,), whether friction is at its bound.
        sticks: (m + f,), whether friction holds the row.
        direction: d (m + f, tangents).
    """
    contacts, one_sided, dry = touch.sizes
    still = touch.join(holds, jnp.broadcast_to(sticks[:, None], direction.shape))
    bounds = jnp.pad(dt * touch.dry, (contacts, 0))
    given = touch.join(jnp.zeros(holds.shape, free.dtype), -bounds[:, None] * direction)
    # Sliding contacts: p_t + mu p_n d = 0, in the column of p_n.
    friction: Any = jnp.where(slides[:contacts], touch.friction, 0.0)
    columns = (friction[:, None] * direction[:contacts])[:, :, None]
    columns = jnp.pad(columns, ((0, 0), (1, 0), (0, touch.tangents)))
    coupling = BlockDiagonal(columns, jnp.zeros((one_sided + dry,), free.dtype)).dense()
    # Redundant rows share their load, and rows that move nothing have no impulse.
    own = diagonal(delassus)
    softness: Any = jnp.where(own == 0.0, 1.0, float(jnp.finfo(free.dtype).eps) ** 0.5 * own)
    eye = jnp.eye(free.shape[0], dtype=free.dtype)
    matrix = jnp.where(still[:, None], delassus + jnp.diag(softness), eye + coupling)
    return jnp.linalg.solve(matrix, jnp.where(still, -free, given))


def modes_after(
    touch: Touch, impulses: Array, second: Array, first: FirstPart, dt: Any, tolerance: Any
) -> Modes:
    """Return the modes at the end of a step.

    Args:
        touch: the rows.
        impulses: impulses of the step (n,), in N s.
        second: impulses of its second part r (n,).
        first: its first part.
        dt: step, in s.
        tolerance: largest relative distance of the friction of a sliding row from its bound.
    """
    contacts = touch.sizes[0]
    bounds = first.left[contacts:] * dt * touch.dry
    radii = jnp.concatenate([touch.friction * touch.normals(second)[:contacts], bounds])
    at_bound = (length(touch.discs(second)) >= (1.0 - tolerance) * radii) & (radii > 0.0)
    return Modes(touch.normals(impulses) > 0.0, at_bound)

"""Contacts, joint limits and dry friction of a system, for steps with contact.

Contact c has a gap and, in its axes (n, t1[, t2]), the velocity of body b relative to body a at the contact
point:

    gap_c(t, q) >= 0                 m; negative: penetration
    c = J_c v + s(t, q)              (m (1 + tangents),), in m/s, order (normal, t1[, t2]) per contact
                                     s: velocity of surfaces that move by themselves, usually zero

c_n is the rate of the gap. A force p of the contact acts as +J_c^T p on the system: p_n >= 0 pushes the
bodies apart, and p_t acts on body b.

One-sided rows, such as joint limits, have a gap in m or rad and no tangent. Dry-friction rows have no gap:
the force along their rate c opposes it and has a bound. `Touch` has the rows of all three groups in the order
of `jaxdae.contact_problem.ContactProblem`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import jax
import jax.numpy as jnp
from jax import Array

from jaxdae.base.dataclass import function_field, pytree, static
from jaxdae.base.requirements import not_negative
from jaxdae.contact_problem import RowGroups
from jaxdae.systems.evaluation import Evaluation
from jaxdae.typing import Coordinates, Leaf, Scalar, Velocity


@pytree
class Touch(RowGroups):
    """Gaps and rows at one configuration: m contacts, k one-sided rows, f dry-friction rows.

    Attributes:
        gap: gaps of the contacts and the one-sided rows (m + k,), in m or rad; negative: penetration.
        rows: derivatives J_c of the rates by the velocities (n, nv), with n = m (1 + tangents) + k + f.
        drift: rates at zero velocity s (n,), in m/s or rad/s.
        friction: mu of the contacts (m,).
        restitution: Newton's coefficient e of the contacts and the one-sided rows (m + k,).
        dry: largest force of the dry-friction rows (f,), in N or N m.
        tangents: tangents per contact, 1 or 2.
        angular: whether each one-sided row (k,) has a gap in rad.
    """

    gap: Leaf
    rows: Leaf
    drift: Leaf
    friction: Leaf
    restitution: Leaf
    dry: Leaf
    tangents: int = static(default=2)
    angular: tuple[bool, ...] = static(default=())

    @property
    def sizes(self) -> tuple[int, int, int]:
        """The numbers of contacts m, one-sided rows k and dry-friction rows f."""
        contacts = self.friction.shape[0]
        return contacts, self.gap.shape[0] - contacts, self.dry.shape[0]

    def velocity(self, v: Velocity) -> Array:
        """Return c = J_c v + s (n,)."""
        return self.rows @ v + self.drift


class Contacts(Protocol):
    """Contacts of a system; a pytree."""

    def touch(self, at: Evaluation) -> Touch:
        """Return the gaps and rows at the configuration of an evaluation, whose velocities are not read."""
        ...


@pytree
class FunctionContacts:
    """Contacts of a hand-written system, from functions of its coordinates.

    Attributes:
        gap: function (t, q) -> (m,), the gaps in m.
        slip: function (t, q, v) -> (m, tangents), the tangential velocities of body b relative to body a in
            m/s, affine in v.
        friction: mu (m,) or (), non-negative.
        restitution: Newton's coefficient e (m,) or (), from 0 to 1.
        tangents: tangents per contact, 1 or 2.
        rates: function (t, q, v) -> (f,), affine in v: the velocities that dry friction opposes, in m/s or
            rad/s; None without dry friction.
        dry: largest force of the dry friction on each rate (f,) or (), in N or N m.

    Example:
        A ball of radius r above the ground, with coordinates (x, z, angle):

        >>> contacts = FunctionContacts(
        ...     gap=lambda t, q: q[1:2] - r,
        ...     slip=lambda t, q, v: (v[0] - r * v[2])[None, None],
        ...     friction=jnp.asarray([0.3]),
        ...     tangents=1,
        ... )
    """

    gap: Callable[[Scalar, Coordinates], Array] = function_field()
    slip: Callable[[Scalar, Coordinates, Velocity], Array] = function_field()
    friction: Leaf = 0.0
    restitution: Leaf = 0.0
    tangents: int = static(default=2)
    rates: Callable[[Scalar, Coordinates, Velocity], Array] | None = function_field(default=None)
    dry: Leaf = 0.0

    def requirements(self) -> Any:
        """Yield the conditions on the coefficients; see `jaxdae.base.requirements`."""
        yield not_negative(self.friction), "friction must be non-negative"
        yield not_negative(self.dry), "dry must be non-negative"
        yield not_negative(self.restitution), "restitution must be non-negative"
        yield self.restitution <= 1, "restitution must be at most 1"

    def touch(self, at: Evaluation) -> Touch:
        """Return the gaps and rows at the configuration of an evaluation.

        Raises:
            ValueError: a function returns an array of another shape, or the coefficients do not match.
        """
        system, t, q = at.system, at.t, at.q
        still = jnp.zeros_like(system.difference(q, q))
        self._check_shapes(t, q, still)

        def gap(t: Scalar, xi: Velocity) -> Array:
            return self.gap(t, system.retract(q, xi))

        def rates(v: Velocity) -> Array:
            return jnp.zeros((0,), q.dtype) if self.rates is None else self.rates(t, q, v)

        here, normal = gap(t, still), jax.jacfwd(gap, argnums=1)(t, still)
        rate = jax.jvp(lambda t: gap(t, still), (t,), (jnp.ones_like(t),))[1]
        slip = self.slip(t, q, still)
        tangential = jax.jacfwd(lambda v: self.slip(t, q, v))(still)
        rows = jnp.concatenate([normal[:, None], tangential], axis=1).reshape(-1, still.shape[0])
        drift = jnp.concatenate([rate[:, None], slip], axis=1).reshape(-1)
        dry = rates(still)
        return Touch(
            here,
            jnp.concatenate([rows, jax.jacfwd(rates)(still)]),
            jnp.concatenate([drift, dry]),
            jnp.broadcast_to(jnp.asarray(self.friction, q.dtype), here.shape),
            jnp.broadcast_to(jnp.asarray(self.restitution, q.dtype), here.shape),
            jnp.broadcast_to(jnp.asarray(self.dry, q.dtype), dry.shape),
            self.tangents,
        )

    def _check_shapes(self, t: Scalar, q: Coordinates, v: Velocity) -> None:
        gap = jax.eval_shape(self.gap, t, q).shape
        if len(gap) != 1:
            raise ValueError(f"gap(t, q) must have shape (m,), one gap per contact, got {gap}")
        slip, expected = jax.eval_shape(self.slip, t, q, v).shape, (*gap, self.tangents)
        if slip != expected:
            raise ValueError(f"slip(t, q, v) must have shape (m, tangents) = {expected}, got {slip}")
        rates = None if self.rates is None else jax.eval_shape(self.rates, t, q, v).shape
        if rates is not None and len(rates) != 1:
            raise ValueError(f"rates(t, q, v) must have shape (f,), one rate per row, got {rates}")
        for name, rows in (("friction", gap), ("restitution", gap), ("dry", rates or (0,))):
            shape = jnp.shape(getattr(self, name))
            if shape not in ((), rows):
                raise ValueError(f"{name} must be one number or have shape {rows}, got {shape}")


def touch_of(contacts: Contacts | None, at: Evaluation, caller: str) -> Touch:
    """Return the rows of the contacts of a hand-written system, or for None those of the system itself.

    Raises:
        ValueError: the system has no contacts, joint limits or dry friction.
    """
    touch = at.touch if contacts is None else contacts.touch(at)
    if touch is None:
        raise ValueError(
            f"{caller}: {type(at.system).__name__} has no contacts, joint limits or dry friction; add them "
            "to its description, or pass contacts=FunctionContacts(...)"
        )
    return touch

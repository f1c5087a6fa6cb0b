"""Contacts of a system: gaps and the rows of their rates, for steps with contact.

Contact c has a gap and, in its axes (n, t1[, t2]), the velocity of body b relative to body a at the contact
point:

    gap_c(t, q) >= 0                 m; negative: penetration
    c = J_c v + s(t, q)              (m (1 + tangents),), in m/s, order (normal, t1[, t2]) per contact
                                     s: velocity of surfaces that move by themselves, usually zero

c_n is the rate of the gap. A force p of the contact acts as +J_c^T p on the system: p_n >= 0 pushes the
bodies apart, and p_t acts on body b.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import jax
import jax.numpy as jnp
from jax import Array

from jaxdae.base.dataclass import function_field, pytree, static
from jaxdae.base.requirements import not_negative
from jaxdae.systems.system import AnySystem
from jaxdae.typing import Coordinates, Leaf, Scalar, Velocity


@pytree
class Touch:
    """Gaps and rows of contacts at one configuration.

    Attributes:
        gap: (m,), in m; negative: penetration.
        rows: J_c (m (1 + tangents), nv), in the order normal, t1[, t2] per contact.
        drift: s (m (1 + tangents),), in m/s.
    """

    gap: Leaf
    rows: Leaf
    drift: Leaf

    def velocity(self, v: Velocity) -> Array:
        """Return c = J_c v + s, one row per contact (m, 1 + tangents)."""
        return (self.rows @ v + self.drift).reshape(self.gap.shape[0], -1)


class Contacts(Protocol):
    """Contacts of a system: a pytree with coefficients per contact.

    Attributes:
        friction: mu (m,), non-negative.
        restitution: Newton's coefficient e (m,), from 0 to 1.
        tangents: tangents per contact: 2 in space, 1 in the plane.
    """

    friction: Any
    restitution: Any
    tangents: int

    def touch(self, system: AnySystem, t: Scalar, q: Coordinates) -> Touch:
        """Return the gaps and rows at a configuration."""
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

    def requirements(self) -> Any:
        """Yield the conditions on the coefficients; see `jaxdae.base.requirements`."""
        yield not_negative(self.friction), "friction must be non-negative"
        yield not_negative(self.restitution), "restitution must be non-negative"
        yield self.restitution <= 1, "restitution must be at most 1"

    def touch(self, system: AnySystem, t: Scalar, q: Coordinates) -> Touch:
        """Return the gaps and rows at a configuration.

        Raises:
            ValueError: `gap` or `slip` returns an array of another shape, or the coefficients do not match.
        """
        still = jnp.zeros_like(system.difference(q, q))
        self._check_shapes(t, q, still)

        def gap(t: Scalar, xi: Velocity) -> Array:
            return self.gap(t, system.retract(q, xi))

        normal = jax.jacfwd(gap, argnums=1)(t, still)
        rate = jax.jvp(lambda t: gap(t, still), (t,), (jnp.ones_like(t),))[1]
        tangential = jax.jacfwd(lambda v: self.slip(t, q, v))(still)
        drift = self.slip(t, q, still)
        rows = jnp.concatenate([normal[:, None], tangential], axis=1)
        return Touch(
            gap(t, still),
            rows.reshape(-1, rows.shape[-1]),
            jnp.concatenate([rate[:, None], drift], axis=1).reshape(-1),
        )

    def _check_shapes(self, t: Scalar, q: Coordinates, v: Velocity) -> None:
        gap = jax.eval_shape(self.gap, t, q).shape
        if len(gap) != 1:
            raise ValueError(f"gap(t, q) must have shape (m,), one gap per contact, got {gap}")
        slip, expected = jax.eval_shape(self.slip, t, q, v).shape, (*gap, self.tangents)
        if slip != expected:
            raise ValueError(f"slip(t, q, v) must have shape (m, tangents) = {expected}, got {slip}")
        for name in ("friction", "restitution"):
            shape = jnp.shape(getattr(self, name))
            if shape not in ((), gap):
                raise ValueError(f"{name} must be one number or have shape {gap}, got {shape}")

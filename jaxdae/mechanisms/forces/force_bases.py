"""Forces that exist in the plane and in space: springs between points, forces on points, drag."""

from __future__ import annotations

from typing import Any, ClassVar

import jax.numpy as jnp
from jax import Array

from jaxdae.base.dataclass import pytree
from jaxdae.mechanisms.describe import elements, fields
from jaxdae.mechanisms.describe.attachments import GroundAndPoint, PointOfEach
from jaxdae.mechanisms.describe.elements import Number, Rows
from jaxdae.mechanisms.joints import joint_measures


def times(coefficient: Any, x: Any) -> Any:
    """Return a coefficient times x, or zero if the group does not have the coefficient."""
    return 0.0 if coefficient is None else coefficient * x


def effort_limit(text: str = "the largest absolute value of the effort", unit: str = "N m or N") -> Any:
    """Declare the largest effort of a motor."""
    return fields.number(
        text,
        unit,
        value=None,
        above=0.0,
        may_be_none=True,
        default="no limit",
        kw_only=True,
    )


def limited(effort: Any, limit: Any) -> Any:
    """Return an effort clipped to [-limit, limit]; unchanged for None."""
    return effort if limit is None else jnp.clip(effort, -limit, limit)


class Driven(elements.Force):
    """A force that may read an input."""

    of_input: ClassVar[tuple[str, ...]] = ("gain",)
    """Fields that scale the input; groups omit them if no element reads an input."""

    input: Any

    def leaf_of(self, field: str, number: int) -> tuple[str, None] | None:
        """Return the leaf of a group that holds a field of the description of an element, or None."""
        return None if field in self.of_input and self.input[number] < 0 else super().leaf_of(field, number)

    @property
    def inputs(self) -> tuple[int, ...]:
        """The inputs that the elements of a group read, with -1 for elements without an input.

        Raises:
            ValueError: if an element reads an input, but the group has no coefficient for it.
        """
        absent = [name for name in self.of_input if getattr(self, name) is None]
        if absent and any(k is not None and k >= 0 for k in self.input):
            raise ValueError(
                f"{self.key}: the group reads inputs {self.input} without {', '.join(absent)}; give one "
                "entry per element"
            )
        return self.input


@pytree
class Force(GroundAndPoint, Driven):
    """A force on a point of a body; its direction is fixed in the world, or in the body with `body_frame`.

    It is force + u[input] direction in N; without `input`, it is constant.
    """

    resists: ClassVar[bool] = False
    of_input: ClassVar[tuple[str, ...]] = ("direction",)

    force: Any = fields.components("the force", "N", first=0.0, required=True)
    input: Any = fields.input_index()
    direction: Any = fields.components(
        "the force per unit of input", "N", first=1.0, in_config=False, needs="input"
    )
    body_frame: Any = fields.truth("true if the force rotates with the body", value=False)

    @property
    def key(self) -> str:
        """The name of the element's group: forces in the world and in bodies are separate groups."""
        return "body_force" if self.body_frame[0] else "world_force"

    @property
    def conserves_energy(self) -> bool:
        """Whether the force has a fixed direction in the world."""
        return not self.body_frame

    def coordinate(self, a: Any, b: Any, t: Any) -> Rows:
        """Return the position of the point in m."""
        return joint_measures.entries(b.point(self.point))

    def effort(self, s: Array, rate: Array, a: Any, b: Any, u: Any) -> Array:
        """Return the force in the world, in N."""
        force = self.force + times(self.direction, u)
        return b.direction(force).array() if self.body_frame[0] else force

    def energy(self, s: Array) -> Any:
        """Return the potential energy of the constant part in J.

        A force that turns with its body has none.
        """
        return jnp.zeros_like(s[0]) if self.body_frame[0] else -jnp.sum(self.force * s)


@pytree
class Drag(GroundAndPoint, elements.Force):
    """The drag on a point of a body with velocity v in the world: -(linear + quadratic |v|) v."""

    quasi: ClassVar[bool] = True

    linear: Number = fields.number("the drag at low speed", "N s/m", value=0.0, at_least=0.0)
    quadratic: Number = fields.number("the drag at high speed", "N s^2/m^2", value=0.0, at_least=0.0)

    @property
    def conserves_energy(self) -> bool:
        """False, because drag dissipates energy."""
        return False

    def rate(self, a: Any, b: Any, moving_a: Any, moving_b: Any, t: Any) -> Rows:
        """Return the velocity of the point in the world, in m/s."""
        return joint_measures.entries(moving_b.at(b, b.point(self.point)))

    def effort(self, s: Array, rate: Array, a: Any, b: Any, u: Any) -> Array:
        """Return the force in the world, in N; differentiable at rest."""
        return resistance(self.linear, self.quadratic, rate)


def resistance(linear: Any, quadratic: Any, velocity: Array) -> Array:
    """Return -(linear + quadratic |v|) v, differentiable at rest.

    Args:
        linear: linear drag coefficient in N s/m.
        quadratic: quadratic drag coefficient in N s^2/m^2.
        velocity: (2,) or (3,) in m/s.
    """
    square = jnp.sum(velocity * velocity)
    moves = square > 0.0
    speed = jnp.where(moves, jnp.sqrt(jnp.where(moves, square, 1.0)), 0.0)
    return -(linear + quadratic * speed) * velocity


@pytree
class LinearSpring(PointOfEach, elements.Force):
    """A spring and damper between two points, by default at rest at the start pose."""

    stiffness: Number = fields.number("the stiffness", "N/m", value=0.0, at_least=0.0, sparse=True)
    damping: Number = fields.number("the damping", "N s/m", value=0.0, at_least=0.0)
    rest_length: Number = fields.at_start(
        "the length at zero force", "m", joint_measures.distance, at_least=0.0, needs="stiffness"
    )

    @property
    def conserves_energy(self) -> bool:
        """Whether the spring has no damping."""
        return self.damping == 0.0

    def coordinate(self, a: Any, b: Any, t: Any) -> Rows:
        """Return half the squared length in m^2, which unlike the length is smooth where the ends meet."""
        gap = joint_measures.gap(self, a, b)
        return (0.5 * gap.dot(gap),)

    def effort(self, s: Array, rate: Array, a: Any, b: Any, u: Any) -> Array:
        """Return the compressive force divided by the length in N/m; times the gap, it is the force vector.

        If the ends meet, the force direction is undefined, and damping and a rest length contribute nothing.
        A spring with rest length zero has the same stiffness there as elsewhere.
        """
        apart, length = _length(s)
        # The rate of the length is the rate of s divided by the length.
        if self.stiffness is None:
            return jnp.asarray(jnp.where(apart, -self.damping * rate / length**2, 0.0))
        thrust = -self.stiffness * (length - self.rest_length) - self.damping * rate / length
        return jnp.where(apart, thrust / length, -self.stiffness)

    def energy(self, s: Array) -> Any:
        """Return the elastic energy in J."""
        if self.stiffness is None:
            return jnp.zeros_like(s[0])
        apart, length = _length(s[0])
        touching = self.stiffness * (s[0] + 0.5 * self.rest_length**2)
        return jnp.where(apart, 0.5 * self.stiffness * (length - self.rest_length) ** 2, touching)


def _length(s: Array) -> tuple[Any, Any]:
    """Return whether the ends of springs are apart, and the lengths in m from half their squares s.

    If the ends are not apart, the length is sqrt(2).
    """
    apart = s > 0.0
    squares: Any = jnp.where(apart, s, 1.0)
    return apart, jnp.sqrt(2.0 * squares)

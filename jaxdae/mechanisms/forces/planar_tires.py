"""Tire forces of wheels that slip, in the plane.

With v the velocity of the wheel position, e the heading, n to the left of e, r the radius and phi' the spin,
a tire has the inputs

    v_x = e . v,      v_y = n . v,      rim speed V_r = r phi' (v_x for a wheel that rolls freely),
    w_x = v_x - V_r,  w_y = v_y         slip speeds, which the rows of a `Wheel` hold at zero,
    slip ratio    kappa = (V_r - v_x) / |v_x|,           positive for a driving wheel,
    slip angle    alpha = atan(v_y / |v_x|),             positive for motion to the left,
    theoretical   sigma_x = (V_r - v_x) / |V_r|,  sigma_y = v_y / |V_r|,

and returns F_x along e, with the sign of kappa, and F_y along n, opposing alpha (ISO 8855). F_x acts back on
the rotor with r F_x.

    ViscousTire      F_x = -c_x w_x,  F_y = -c_y w_y:  the rows relaxed, lam = -c w; stiff for large c
    LinearTire       F_x = C_kappa kappa,  F_y = -C_alpha (v_y - steer v_x) / |v_x|, at most friction times
    load
    BrushTire        |F| = mu F_z (3 t - 3 t^2 + t^3), t = C |sigma| / (3 mu F_z), all of mu F_z from t = 1;
    along (sigma_x, -sigma_y)
    MagicFormulaTire F = F_z sin(C atan(B s - E (B s - atan(B s)))) (D_x kappa, -D_y tan alpha) / s, s^2 =
    kappa^2 + tan^2 alpha; with C above 2 or E above 1, large slips would reverse the force

The brush model with parabolic pressure is Fiala's tire. The last two laws use a single curve for both
directions, so that combined forces stay within a circle, or within an ellipse with half axes D_x F_z and D_y
F_z.

Slips are velocities divided by a speed, and are undefined at rest. Below `slow`, the speed V in the
denominator is replaced by (V^2 + slow^2) / (2 slow), which is at least slow / 2 and has a continuous
derivative. There, a tire is viscous, c = C / V, and stops a vehicle without a division by zero. Above `slow`,
the law is unchanged. Tire modes decay at the rate C / (m V): an explicit method needs steps below 2.8 m V / C
(Runge-Kutta of order 4).

References:
    H. B. Pacejka, "Tire and Vehicle Dynamics", chapters 1, 3 and 4. E. Fiala, VDI-Zeitschrift 96 (1954). ISO
    8855:2011.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

import jax.numpy as jnp
import numpy as np
from jax import Array

from jaxdae.base.dataclass import pytree
from jaxdae.geometry.planar_frames import Frame, Twist
from jaxdae.mechanisms.describe import fields
from jaxdae.mechanisms.describe.attachments import AxisInB, AxisInBody, PointOfB, PointOfBody
from jaxdae.mechanisms.describe.elements import BodyName, Force, Number, Rows
from jaxdae.mechanisms.describe.kinds import GROUND
from jaxdae.mechanisms.describe.numbers import concrete, shown
from jaxdae.mechanisms.forces.force_bases import Driven, times
from jaxdae.mechanisms.joints.planar_wheels import contact_velocity

SLOW = 0.1
"""Speed in m/s below which the tire laws are viscous."""


FREE, SPEED, SPIN = range(3)
"""Sources of the rim speed: a wheel rolls freely, has a rim speed, or has a rotor."""


def magic_formula(slip: Any, stiffness: Any, shape: Any, peak: Any, curvature: Any) -> Any:
    """Return D sin(C atan(B s - E (B s - atan(B s)))), the force divided by the load at a slip s.

    The slope at zero is B C D.

    Args:
        slip: kappa or tan(alpha).
        stiffness: B.
        shape: C.
        peak: D.
        curvature: E.
    """
    stretched = stiffness * slip
    return peak * jnp.sin(shape * jnp.arctan(stretched - curvature * (stretched - jnp.arctan(stretched))))


def brush_forces(sigma_x: Any, sigma_y: Any, stiffness: Any, friction: Any, load: Any) -> tuple[Any, Any]:
    """Return F_x and F_y in N of a brush with the same stiffness in both directions; F_y opposes sigma_y.

    Args:
        sigma_x: theoretical slip along the heading, positive for a driving wheel.
        sigma_y: theoretical slip to the left of the heading; tan(alpha) for a wheel that rolls freely.
        stiffness: C in N, the slope at zero.
        friction: mu.
        load: F_z in N.
    """
    slip = _length(sigma_x, sigma_y)
    # A wheel with zero or negative load has no force, including at rest.
    loaded = friction * load > 0.0
    most: Any = jnp.where(loaded, friction * load, 0.0)
    some: Any = jnp.where(loaded, most, 1.0)
    t = jnp.minimum(stiffness * slip / (3.0 * some), 1.0)
    # Divide by the slip analytically, to avoid 0 / 0 at rest: 3 t - 3 t^2 + t^3 = t (3 - 3 t + t^2).
    sliding = (stiffness * slip >= 3.0 * most) & (slip > 0.0)
    safe: Any = jnp.where(sliding, slip, 1.0)
    sticking: Any = jnp.where(loaded, stiffness * (3.0 - 3.0 * t + t * t) / 3.0, 0.0)
    factor: Any = jnp.where(sliding, most / safe, sticking)
    return factor * sigma_x, -factor * sigma_y


def _length(x: Any, y: Any) -> Any:
    """Return the length of a vector; its derivative at zero is defined as zero."""
    square = x * x + y * y
    apart = square > 0.0
    safe: Any = jnp.where(apart, square, 1.0)
    return jnp.where(apart, jnp.sqrt(safe), 0.0)


def regularized(speed: Any, slow: Any) -> Any:
    """Return |V| if it is above `slow`, else (V^2 + slow^2) / (2 slow), in m/s."""
    return jnp.where(jnp.abs(speed) > slow, jnp.abs(speed), (speed * speed + slow * slow) / (2.0 * slow))


def parameters(tire: Any) -> dict[str, Any]:
    """Return the parameters of the law of a tire by name."""
    return {field.name: getattr(tire, field.name) for field in dataclasses.fields(tire.law)}


@pytree(kw_only=True)
class Contact(PointOfB, AxisInB, Driven):
    """A tire between a, the rotor or the ground, and b, the body that carries the wheel."""

    quasi: ClassVar[bool] = True
    described: ClassVar[Mapping[str, str]] = {"point": "point_b"}
    site: ClassVar[str] = "the wheel"
    line: ClassVar[str] = "the heading of the wheel"

    a: BodyName = fields.body("the rotor or the ground")
    b: BodyName = fields.body("the body that carries the wheel")
    radius: Number = fields.number("the radius", "m", value=1.0, above=0.0)
    rim_speed: Number = fields.number("the speed of the rim", "m/s", value=0.0)
    input: Any = fields.input_index()
    gain: Number = fields.number("the rim speed per unit of input", "m/s", value=1.0)
    rim: Any = fields.index("FREE, SPEED or SPIN: the source of the rim speed")

    @property
    def key(self) -> str:
        """The name of the element's group, from the law and the source of the rim speed."""
        return f"{('free_', '', 'spinning_')[self.rim[0]]}{self.type_key()}"

    @property
    def without_effect(self) -> tuple[str, ...]:
        """The fields of a group without effect."""
        idle = {
            FREE: ("radius", "rim_speed", "longitudinal", "peak_longitudinal"),
            SPEED: ("radius",),
            SPIN: ("rim_speed",),
        }[self.rim[0]]
        return tuple(name for name in idle if hasattr(self, name))

    def rate(self, a: Frame, b: Frame, moving_a: Twist, moving_b: Twist, t: Any) -> Rows:
        """Return w_x without the contribution of an input to the rim speed, w_y, and v_x, in m/s."""
        along, across = contact_velocity(self, b, moving_b)
        # A freely rolling wheel has no slip along its heading.
        rim = along if self.rim[0] == FREE else self.rim_speed
        return along - (self.radius * moving_a.angle if self.rim[0] == SPIN else rim), across, along

    def effort(self, s: Array, rate: Array, a: Frame, b: Frame, u: Any) -> Array:
        """Return F_x and F_y in N, and zero."""
        slip_x = rate[0] - times(self.gain, u)
        force_x, force_y = self.forces(slip_x, rate[1], rate[2])
        return jnp.stack([force_x, force_y, jnp.zeros_like(force_x)])

    def forces(self, slip_x: Any, slip_y: Any, speed: Any) -> tuple[Any, Any]:
        """Return F_x and F_y in N from slip speeds w_x, w_y and the speed v_x in m/s."""
        raise NotImplementedError(f"{type(self).__name__}.forces")


@pytree(kw_only=True)
class Tire(PointOfBody, AxisInBody, Force):
    """A tire as it is described."""

    contact: ClassVar[type[Contact]]
    law: ClassVar[type[Any]]
    """The class with the parameters of the law."""

    site: ClassVar[str] = "the wheel"
    line: ClassVar[str] = "the heading of the wheel"

    body: BodyName = fields.body("the body that carries the wheel", ground=False, kw_only=False)
    radius: Number = fields.number(
        "the radius", "m", value=None, may_be_none=True, above=0.0, default="the wheel has no spin"
    )
    spin: Any = fields.rotor(
        "the rotor whose angle is the spin of the wheel; default: the wheel rolls freely", default=None
    )
    rim_speed: Number = fields.number(
        "the speed of the rim", "m/s", value=None, may_be_none=True, default="the speed of the spin"
    )
    input: Any = fields.input_index()
    gain: Number = fields.number(
        "the rim speed per unit of input", "m/s", value=1.0, in_config=False, needs="input"
    )

    @property
    def conserves_energy(self) -> bool:
        """False, because slip dissipates energy."""
        return False

    @property
    def _driven(self) -> bool:
        """Whether the rim has its own speed."""
        return self.spin is not None or self.rim_speed is not None or self.input is not None

    def mistakes(self, places: Mapping[str, Any]) -> Iterable[str]:
        """Yield errors for a spin without radius, a radius without spin, and a rim speed given twice."""
        if self.spin is not None and self.radius is None:
            yield f"has the spin {self.spin!r} but no radius; give the radius in m"
        if self.spin is None and self.radius is not None:
            yield "has a radius but no spin; give the name of a Rotor as spin, or the rim_speed in m/s"
        if self.spin is not None and (self.rim_speed is not None or self.input is not None):
            yield (
                "has both a spin and a rim_speed or input; the rotor determines the rim speed, so remove "
                "one of them"
            )
        for name in ("longitudinal", "peak_longitudinal") if not self._driven else ():
            value = concrete(getattr(self, name, None) or 0.0)
            if hasattr(self, name) and value is not None and value not in (0.0, self.default_of(name)):
                yield (
                    f"{name} has no effect on a wheel that rolls freely, got {name} = {shown(value)}; remove "
                    f"{name}, or give a spin, a rim_speed or an input"
                )

    def resolved(self, joints: Mapping[str, Any]) -> Force:
        """Return the tire between the rotor or the ground and its body."""
        return self.contact(
            name=self.name,
            a=GROUND if self.spin is None else self.spin,
            b=self.body,
            axis=self.axis,
            at=self.at,
            point_b=self.point,
            radius=1.0 if self.radius is None else self.radius,
            rim_speed=0.0 if self.rim_speed is None else self.rim_speed,
            input=self.input,
            gain=self.gain,
            rim=SPIN if self.spin is not None else SPEED if self._driven else FREE,
            **parameters(self),
        )  # pyright: ignore[reportCallIssue]


@pytree(kw_only=True)
class ViscousLaw:
    """F = -c w."""

    slow: ClassVar[float] = SLOW

    lateral: Number = fields.number("lateral force per slip speed", "N s/m", at_least=0.0)
    longitudinal: Number = fields.number(
        "longitudinal force per slip speed", "N s/m", value=0.0, at_least=0.0
    )

    def forces(self, slip_x: Any, slip_y: Any, speed: Any) -> tuple[Any, Any]:
        """Return -c_x w_x and -c_y w_y."""
        return -times(self.longitudinal, slip_x), -self.lateral * slip_y


@pytree(kw_only=True)
class ViscousContact(ViscousLaw, Contact):
    """F = -c w."""


@pytree(kw_only=True)
class ViscousTire(ViscousLaw, Tire):
    """A tire whose force is proportional to its slip speed: a `Wheel` with dampers in place of its rows."""

    contact: ClassVar[type[Contact]] = ViscousContact
    law: ClassVar[type[Any]] = ViscousLaw


@pytree(kw_only=True)
class LinearLaw:
    """F in proportion to slips, as far as friction allows."""

    lateral: Number = fields.number("the cornering stiffness", "N/rad", at_least=0.0)
    longitudinal: Number = fields.number(
        "the longitudinal force per slip ratio", "N", value=0.0, at_least=0.0
    )
    steer: Number = fields.number(
        "a small steering angle, subtracted from the slip angle", "rad", value=0.0, within=0.5 * np.pi
    )
    most: Number = fields.number(
        "the largest force, friction times load; zero: no limit,", "N", value=0.0, at_least=0.0
    )
    slow: Number = fields.number("the speed below which the tire is viscous", "m/s", value=SLOW, above=0.0)

    def forces(self, slip_x: Any, slip_y: Any, speed: Any) -> tuple[Any, Any]:
        """Return C_kappa kappa and -C_alpha (v_y - steer v_x) / |v_x|, limited to the largest force."""
        under = regularized(speed, self.slow)
        # The steered wheel moves to its left by v_y - steer v_x: zero at rest, and opposite in reverse.
        force_x, force_y = (
            -times(self.longitudinal, slip_x / under),
            -self.lateral * (slip_y - self.steer * speed) / under,
        )
        size = _length(force_x, force_y)
        limited = (self.most > 0.0) & (size > self.most)
        factor = jnp.where(limited, self.most / jnp.where(limited, size, 1.0), 1.0)
        return factor * force_x, factor * force_y


@pytree(kw_only=True)
class LinearContact(LinearLaw, Contact):
    """F in proportion to slips, as far as friction allows."""


@pytree(kw_only=True)
class LinearTire(LinearLaw, Tire):
    """A linear tire: forces proportional to slip ratio and slip angle, up to the optional force `most`."""

    contact: ClassVar[type[Contact]] = LinearContact
    law: ClassVar[type[Any]] = LinearLaw


@pytree(kw_only=True)
class BrushLaw:
    """F of a brush."""

    stiffness: Number = fields.number("the force per slip at small slip, in both directions,", "N", above=0.0)
    friction: Number = fields.number("the coefficient of friction", above=0.0)
    load: Number = fields.number("the normal load", "N", above=0.0)
    slow: Number = fields.number("the speed below which the tire is viscous", "m/s", value=SLOW, above=0.0)

    def forces(self, slip_x: Any, slip_y: Any, speed: Any) -> tuple[Any, Any]:
        """Return the forces at the theoretical slips."""
        under = regularized(speed - slip_x, self.slow)
        return brush_forces(-slip_x / under, slip_y / under, self.stiffness, self.friction, self.load)


@pytree(kw_only=True)
class BrushContact(BrushLaw, Contact):
    """F of a brush."""


@pytree(kw_only=True)
class BrushTire(BrushLaw, Tire):
    """Fiala's brush tire with combined slip: elastic bristles with parabolic pressure that slide locally."""

    contact: ClassVar[type[Contact]] = BrushContact
    law: ClassVar[type[Any]] = BrushLaw


@pytree(kw_only=True)
class MagicFormulaLaw:
    """F of the Magic Formula."""

    load: Number = fields.number("the normal load", "N", above=0.0)
    stiffness: Number = fields.number("the stiffness factor B", value=10.0, at_least=0.0)
    shape: Number = fields.number("the shape factor C", value=1.9, at_least=0.0, at_most=2.0)
    peak: Number = fields.number(
        "the largest lateral force divided by the load, D_y", value=1.0, at_least=0.0
    )
    peak_longitudinal: Number = fields.number(
        "the largest longitudinal force divided by the load, D_x", value=1.0, at_least=0.0
    )
    curvature: Number = fields.number("the curvature factor E", value=0.97, at_most=1.0)
    slow: Number = fields.number("the speed below which the tire is viscous", "m/s", value=SLOW, above=0.0)

    def forces(self, slip_x: Any, slip_y: Any, speed: Any) -> tuple[Any, Any]:
        """Return the forces at the slips kappa and tan(alpha)."""
        under = regularized(speed, self.slow)
        kappa, tangent = -slip_x / under, slip_y / under
        slip = _length(kappa, tangent)
        moving = slip > 0.0
        safe = jnp.where(moving, slip, 1.0)
        curve = magic_formula(slip, self.stiffness, self.shape, 1.0, self.curvature)
        secant = self.load * jnp.where(moving, curve / safe, self.stiffness * self.shape)
        return times(self.peak_longitudinal, secant * kappa), -self.peak * secant * tangent


@pytree(kw_only=True)
class MagicFormulaContact(MagicFormulaLaw, Contact):
    """F of the Magic Formula."""


@pytree(kw_only=True)
class MagicFormulaTire(MagicFormulaLaw, Tire):
    """Pacejka's Magic Formula, one curve for combined slip."""

    contact: ClassVar[type[Contact]] = MagicFormulaContact
    law: ClassVar[type[Any]] = MagicFormulaLaw


TIRES = (ViscousTire, LinearTire, BrushTire, MagicFormulaTire)

"""A self-balancing pendulum on two wheels: yaw, pitch and both wheel spins, on level ground.

Let (x, y) be the middle of the axle, psi the heading, alpha the pitch (positive forward), and phi_L and phi_R
the absolute wheel spins. The mass center of the body is d above the axle, and the wheels are at +-W/2. The
kinetic energy is

    M |p'|^2 / 2 + (I_y alpha'^2 + (I_x sin^2 alpha + I_z cos^2 alpha) psi'^2) / 2
        + m_w (x'^2 + y'^2) + (m_w W^2 / 4 + K_w) psi'^2 + J_w (phi_L'^2 + phi_R'^2) / 2,
    p = (x + d sin alpha cos psi, y + d sin alpha sin psi, d cos alpha),

and the potential energy is M g d cos alpha. Motors act between body and wheels: a torque on a wheel has its
reaction on the pitch. The constraints of the wheels are

    n . (x', y') = 0,       e . (x', y') -+ (W/2) psi' - r phi' = 0        left, right.

References:
    Y. Kim, S. H. Kim, Y. K. Kwak, "Dynamic analysis of a nonholonomic two-wheeled inverted pendulum robot",
    Journal of Intelligent and Robotic Systems 44 (2005).
"""

from __future__ import annotations

from typing import Any, ClassVar

import jax.numpy as jnp

from jaxdae.base.dataclass import pytree
from jaxdae.base.requirements import not_negative, positive
from jaxdae.geometry.terrain import Plane, Terrain, check_terrain
from jaxdae.mechanisms import spatial as js
from jaxdae.mechanisms.build_mechanism import Description
from jaxdae.mechanisms.describe.numbers import real, vector
from jaxdae.mechanisms.describe.plane_and_space import SPACE
from jaxdae.systems.names import Names
from jaxdae.systems.system import LagrangianSystem
from jaxdae.typing import Leaf
from jaxdae.vehicles.argument_checks import (
    length_mistakes,
    number_mistakes,
    radius_mistakes,
    refuse,
    wheel_mistakes,
)


@pytree(kw_only=True)
class Segway(LagrangianSystem):
    """A pendulum on two wheels: q = (x, y, psi, alpha, phi_left, phi_right), inputs: wheel torques in N m.

    Attributes:
        mass: M, mass of the body in kg.
        height: d, height of the mass center of the body above the axle in m.
        inertia: (I_x, I_y, I_z) of the body about its mass center in kg m^2.
        wheel_mass: m_w, mass of each wheel in kg.
        wheel_inertia: J_w, inertia of each wheel about its axle in kg m^2.
        wheel_inertia_across: K_w, inertia of each wheel about a diameter in kg m^2.
        wheel_radius: r in m.
        wheel_separation: W in m.
        gravity: in m/s^2.
    """

    mass: Leaf
    height: Leaf
    inertia: Leaf
    wheel_mass: Leaf
    wheel_inertia: Leaf
    wheel_inertia_across: Leaf
    wheel_radius: Leaf
    wheel_separation: Leaf
    gravity: Leaf = 9.81

    n_inputs: ClassVar[int] = 2

    def requirements(self) -> Any:
        """Yield the conditions on the numbers; see `jaxdae.base.requirements`."""
        yield positive(self.mass), "mass must be positive and finite"
        for moment in self.inertia if isinstance(self.inertia, tuple | list) else (self.inertia,):
            yield not_negative(moment), "inertia must not be negative"
        for name in ("wheel_mass", "wheel_inertia", "wheel_inertia_across"):
            yield not_negative(getattr(self, name)), f"{name} must not be negative"
        yield positive(self.wheel_radius), "wheel_radius must be positive and finite"
        yield positive(self.wheel_separation), "wheel_separation must be positive and finite"

    @property
    def names(self) -> Names:
        """The names of the coordinates, rows and inputs."""
        coordinates = ("x", "y", "psi", "alpha", "phi_left", "phi_right")
        units = ("m", "m", "rad", "rad", "rad", "rad")
        return Names(
            coordinates=coordinates,
            velocities=tuple(f"{name}_rate" for name in coordinates),
            rows=("axle.lateral", "left.rolling", "right.rolling"),
            inputs=("left_motor", "right_motor"),
            coordinate_units=units,
            velocity_units=tuple(f"{unit}/s" for unit in units),
            row_units=("m/s", "m/s", "m/s"),
            input_units=("N m", "N m"),
        )

    def kinetic_energy(self, q: Any, v: Any) -> Any:
        """Return the kinetic energy in J."""
        vx, vy, turn, pitching, left, right = v
        sin, cos = jnp.sin(q[3]), jnp.cos(q[3])
        heading, aside = jnp.cos(q[2]), jnp.sin(q[2])
        out, down = self.height * cos * pitching, self.height * sin * turn
        px, py = vx + out * heading - down * aside, vy + out * aside + down * heading
        pz = -self.height * sin * pitching
        inertia = jnp.asarray(self.inertia, q.dtype)
        if inertia.shape != (3,):  # JAX would clamp an index beyond the end.
            raise ValueError(
                f"Segway: inertia must be three numbers, (I_x, I_y, I_z) in kg m^2, got shape {inertia.shape}"
            )
        yaw = (
            inertia[0] * sin**2
            + inertia[2] * cos**2
            + 0.5 * self.wheel_mass * self.wheel_separation**2
            + 2.0 * self.wheel_inertia_across
        )
        body = self.mass * (px**2 + py**2 + pz**2) + inertia[1] * pitching**2 + yaw * turn**2
        return 0.5 * (
            body + 2.0 * self.wheel_mass * (vx**2 + vy**2) + self.wheel_inertia * (left**2 + right**2)
        )

    def potential_energy(self, t: Any, q: Any) -> Any:
        """Return M g d cos(alpha) in J."""
        return self.mass * self.gravity * self.height * jnp.cos(q[3])

    def generalized_force(self, t: Any, q: Any, v: Any, u: Any) -> Any:
        """Return the motor torques on the wheels and their reaction on the pitch."""
        if u is None:
            return jnp.zeros_like(v)
        zero = jnp.zeros_like(v[0])
        return jnp.stack([zero, zero, zero, -(u[0] + u[1]), u[0], u[1]])

    def velocity_constraint(self, t: Any, q: Any, v: Any) -> Any:
        """Return the lateral row of the axle and the rolling rows of both wheels in m/s."""
        cos, sin = jnp.cos(q[2]), jnp.sin(q[2])
        along, across = cos * v[0] + sin * v[1], cos * v[1] - sin * v[0]
        lever = 0.5 * self.wheel_separation * v[2]
        return jnp.stack(
            [across, along - lever - self.wheel_radius * v[4], along + lever - self.wheel_radius * v[5]]
        )


def segway(
    *,
    mass: Any,
    height: Any,
    inertia: Any,
    wheel_mass: Any,
    wheel_inertia: Any,
    wheel_inertia_across: Any,
    wheel_radius: Any,
    wheel_separation: Any,
    place: Any = (0.0, 0.0),
    terrain: Terrain | None = None,
    gravity: Any = 9.81,
) -> Description:
    """Return the description of an upright pendulum on two wheels in space: `Segway` on any terrain.

    Bodies `base_link`, `left_wheel`, `right_wheel`; hinges `left_hub` and `right_hub` with coordinates
    `angle` relative to the body; contacts `left` and `right` with rows `left.height`, `left.lateral`,
    `left.rolling`. The motors are `JointForce`s on the hinges, with their reaction on the pitch. Both wheels
    share one axle, so that their lateral rows coincide on a plane. Use `LeastSquares`, a solver for dependent
    rows.

    Args:
        mass: mass of the body in kg.
        height: height of the mass center of the body above the axle in m.
        inertia: (I_x, I_y, I_z) of the body about its mass center in kg m^2.
        wheel_mass: mass of each wheel in kg.
        wheel_inertia: inertia of each wheel about its axle in kg m^2.
        wheel_inertia_across: inertia of each wheel about a diameter in kg m^2.
        wheel_radius: in m.
        wheel_separation: distance between the wheels in m, positive.
        place: (x, y) of the middle of the axle in m.
        terrain: `Plane()` by default; on other terrains call `place_on_terrain` or `initialize` for the
            start.
        gravity: in m/s^2.

    Raises:
        ValueError: an invalid terrain, numbers of the wrong shape, coinciding wheels.
    """
    terrain = Plane() if terrain is None else terrain
    check_terrain("segway", terrain)
    refuse(
        "segway",
        length_mistakes("wheel_separation", wheel_separation),
        number_mistakes("inertia", inertia, 3, "(I_x, I_y, I_z) in kg m^2"),
        number_mistakes("place", place, 2, "(x, y) in m"),
        radius_mistakes("wheel_radius", wheel_radius, 1),
        *(wheel_mistakes(*given, 1) for given in (("height", height), ("gravity", gravity))),
    )
    x, y = vector(place)
    axle = terrain.height(x, y) + real(wheel_radius)
    moments = vector((wheel_inertia_across, wheel_inertia, wheel_inertia_across))
    left, center, none = (0.0, 1.0, 0.0), real(height), jnp.zeros_like(axle)
    bodies, joints = [js.Body("base_link", mass, inertia, jnp.stack([x, y, axle + center]))], []
    for side, sign in (("left", 1.0), ("right", -1.0)):
        aside = 0.5 * sign * real(wheel_separation)
        hub = jnp.stack([none, aside, -center])
        bodies.append(js.Body(f"{side}_wheel", wheel_mass, moments, jnp.stack([x, y + aside, axle])))
        joints.append(
            js.Revolute(
                f"{side}_hub", "base_link", f"{side}_wheel", left, point_a=hub, point_b=(0.0, 0.0, 0.0)
            )
        )
        joints.append(
            js.RollingDisc(
                side,
                "ground",
                f"{side}_wheel",
                left,
                point_b=(0.0, 0.0, 0.0),
                radius=wheel_radius,
                terrain=terrain,
            )
        )
    return Description(space=SPACE, bodies=bodies, joints=joints, gravity=vector((0.0, 0.0, -gravity)))

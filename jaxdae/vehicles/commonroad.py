"""CommonRoad's single-track models as first-order systems, and state conversion to and from mechanisms.

    KS    (sx, sy, delta, v, psi)                 rear axle, no slip:  psi' = v tan(delta) / l
    KST   the same, and alpha                     with a trailer on the rear axle:
                                                  alpha' = -v (sin(alpha)/l_t + tan(delta)/l)
    ST    (sx, sy, delta, v, psi, psi', beta)     mass center, linear tires of stiffness mu C_S F_z,
                                                  load transfer by the acceleration

The inputs are (steering rate in rad/s, acceleration in m/s^2). Let beta be the slip angle of the mass center,
and l = a + b. The axle loads are F_f = m (g b - u_2 h) / l and F_r = m (g a + u_2 h) / l. The side forces of
the axles are

    mu C_Sf F_f (delta - beta - a psi'/v),        mu C_Sr F_r (-beta + b psi'/v).

For v < 0 the side forces have the opposite sign: tires push against the velocity of their axles, which
changes sign with v. Version 3.0.2 of the CommonRoad package omits that sign, so that its car yaws at an
increasing rate in reverse. An axle that lifts off has no load, and the other axle carries the weight. In the
CommonRoad package, its load is negative, so that it pushes the wrong way.

Slip angles are undefined at rest. Below 0.1 m/s, ST moves as a body without slip, beta = atan(tan(delta) b /
l). It ignores the beta of the state and uses the derivatives of that formula. Version 3.0.2 of the CommonRoad
package has an extra square in d beta/dt there. This module does not clip inputs: `limited_inputs` clips them
as that package does. This module does not stop alpha at a right angle, unlike that package.

References:
    M. Althoff, M. Koschi, S. Manzinger, "CommonRoad: composable benchmarks for motion planning on roads", IV
    2017, with the vehicle models of version 3.0.2. R. Rajamani, "Vehicle Dynamics and Control", chapter 2.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array

from jaxdae.base.dataclass import pytree
from jaxdae.base.requirements import not_negative, positive
from jaxdae.geometry.trigonometry import cos_sin_once, once, tan_once
from jaxdae.mechanisms.describe.numbers import concrete, floating
from jaxdae.systems.kinematic_system import KinematicSystem
from jaxdae.systems.names import Names
from jaxdae.systems.status import Status
from jaxdae.systems.system import State
from jaxdae.typing import Leaf
from jaxdae.vehicles.wheel_layout import numbers

SLOW = 0.1
"""The speed in m/s below which ST moves without slip."""

_INPUTS = ("steering_rate", "acceleration")
_INPUT_UNITS = ("rad/s", "m/s^2")


def _names(coordinates: tuple[str, ...], units: tuple[str, ...]) -> Names:
    return Names(
        coordinates=coordinates,
        velocities=tuple(f"{name}_rate" for name in coordinates),
        inputs=_INPUTS,
        coordinate_units=units,
        velocity_units=tuple(f"{unit}/s" for unit in units),
        input_units=_INPUT_UNITS,
    )


def _pole_status(before: State, after: State, slipping: Any = False) -> Any:
    """Return SINGULAR if a car passes a steering angle of pi/2 (), else OK.

    Args:
        before: the state before the step.
        after: the state after the step.
        slipping: whether the car slips (), which removes the pole.
    """
    first, last = (jnp.floor(state.q[2] / jnp.pi + 0.5) for state in (before, after))
    moves = (before.q[3] != 0.0) | (after.q[3] != 0.0)
    # At the pole itself, the angle need not change.
    passed = ((first != last) & moves) | (jnp.abs(after.q[4] - before.q[4]) > jnp.pi)
    return jnp.where(passed & ~jnp.asarray(slipping), Status.SINGULAR, Status.OK).astype(jnp.int32)


@pytree
class KinematicSingleTrack(KinematicSystem):
    """CommonRoad's KS: (sx, sy, delta, v, psi) of the rear axle, without slip.

    At a steering angle of delta = pi/2 the rear axle cannot roll, and psi' has a pole. A step that passes
    this angle has the status SINGULAR.

    Attributes:
        wheelbase: l in m.
    """

    wheelbase: Leaf

    n_inputs = 2

    def requirements(self) -> Any:
        """Yield the conditions on the numbers; see `jaxdae.base.requirements`."""
        yield positive(self.wheelbase), "wheelbase must be positive and finite"

    @property
    def names(self) -> Names:
        """The names of the state and the inputs."""
        return _names(("sx", "sy", "delta", "v", "psi"), ("m", "m", "rad", "m/s", "rad"))

    def rate(self, t: Any, x: Any, u: Any) -> Array:
        """Return x' (5,)."""
        delta, v, psi = numbers(x)[2:5]
        # In batches of cars, XLA would otherwise recompute these functions, and in reverse mode all that
        # depends on them, for every entry.
        cos, sin = cos_sin_once(psi)
        turn: Any = once(v * tan_once(delta) / self.wheelbase)
        return jnp.stack([v * cos, v * sin, u[0], u[1], turn])

    def step_status(self, before: State, after: State, u: Any) -> Any:
        """Return SINGULAR if the steering angle passes an odd multiple of pi/2 in a step (), else OK."""
        return _pole_status(before, after)


@pytree
class KinematicSingleTrackTrailer(KinematicSystem):
    """CommonRoad's KST: KS with a trailer. alpha is the heading of the trailer minus the heading of the car.

    Attributes:
        wheelbase: l in m.
        trailer: l_t, the distance from the hitch on the rear axle to the trailer axle, in m.
    """

    wheelbase: Leaf
    trailer: Leaf

    n_inputs = 2

    def requirements(self) -> Any:
        """Yield the conditions on the numbers; see `jaxdae.base.requirements`."""
        yield positive(self.wheelbase), "wheelbase must be positive and finite"
        yield (
            self.trailer != 0.0,
            "trailer must not be zero, because the trailer would turn about its own axle",
        )

    @property
    def names(self) -> Names:
        """The names of the state and the inputs."""
        return _names(("sx", "sy", "delta", "v", "psi", "alpha"), ("m", "m", "rad", "m/s", "rad", "rad"))

    def rate(self, t: Any, x: Any, u: Any) -> Array:
        """Return x' (6,)."""
        car = KinematicSingleTrack(self.wheelbase).rate(t, x, u)
        return jnp.append(car, -x[3] * jnp.sin(x[5]) / self.trailer - car[4])

    def step_status(self, before: State, after: State, u: Any) -> Any:
        """Return SINGULAR if the steering angle passes an odd multiple of pi/2 in a step (), else OK."""
        return _pole_status(before, after)


@pytree
class DynamicSingleTrack(KinematicSystem):
    """CommonRoad's ST: (sx, sy, delta, v, psi, psi', beta) with linear tires and load transfer.

    Attributes:
        front: a, the distance from the mass center to the front axle, in m.
        rear: b, the distance from the mass center to the rear axle, in m.
        mass: mass in kg.
        inertia: moment of inertia about the vertical through the mass center in kg m^2.
        height: h, the height of the mass center in m.
        friction: mu.
        front_stiffness: C_Sf, the cornering stiffness divided by mu and by the load, in 1/rad.
        rear_stiffness: C_Sr in 1/rad.
        gravity: in m/s^2.
    """

    front: Leaf
    rear: Leaf
    mass: Leaf
    inertia: Leaf
    height: Leaf
    friction: Leaf
    front_stiffness: Leaf
    rear_stiffness: Leaf
    gravity: Leaf = 9.81

    n_inputs = 2

    def requirements(self) -> Any:
        """Yield the conditions on the numbers; see `jaxdae.base.requirements`."""
        yield positive(self.front + self.rear), "front + rear, the wheelbase, must be positive and finite"
        yield positive(self.mass), "mass must be positive and finite"
        yield positive(self.inertia), "inertia must be positive and finite"
        yield not_negative(self.height), "height must not be negative"
        yield not_negative(self.friction), "friction must not be negative"
        yield not_negative(self.front_stiffness), "front_stiffness must not be negative"
        yield not_negative(self.rear_stiffness), "rear_stiffness must not be negative"
        yield not_negative(self.gravity), "gravity must not be negative"

    @property
    def names(self) -> Names:
        """The names of the state and the inputs."""
        names = ("sx", "sy", "delta", "v", "psi", "psi_rate", "beta")
        return _names(names, ("m", "m", "rad", "m/s", "rad", "rad/s", "rad"))

    def rate(self, t: Any, x: Any, u: Any) -> Array:
        """Return x' (7,)."""
        _, _, delta, v, psi, turn, beta = x
        fast = jnp.abs(v) >= SLOW
        safe: Any = jnp.where(fast, v, SLOW)
        turning, sliding = self._dynamic(delta, safe, turn, beta, u)
        slow_side, slow_turn, slow_turning, slow_sliding = self._kinematic(delta, v, u)
        # A car that slipped while braking keeps its beta at low speed, but moves in the direction of its
        # wheels.
        course = psi + jnp.where(fast, beta, slow_side)
        place = [v * jnp.cos(course), v * jnp.sin(course)]
        yaw = [
            jnp.where(fast, turn, slow_turn),
            jnp.where(fast, turning, slow_turning),
            jnp.where(fast, sliding, slow_sliding),
        ]
        return jnp.stack([*place, u[0], u[1], *yaw])

    def step_status(self, before: State, after: State, u: Any) -> Any:
        """Return SINGULAR if the steering angle passes pi/2 in a step without slip (), else OK."""
        fast = (jnp.abs(before.q[3]) >= SLOW) & (jnp.abs(after.q[3]) >= SLOW)
        return _pole_status(before, after, fast)

    def _dynamic(self, delta: Any, v: Any, turn: Any, beta: Any, u: Any) -> tuple[Any, Any]:
        """Return psi'' and beta' with slip."""
        length = self.front + self.rear
        front_load, rear_load = (
            jnp.clip(self.mass * (self.gravity * arm - transfer) / length, 0.0, self.mass * self.gravity)
            for arm, transfer in ((self.rear, u[1] * self.height), (self.front, -u[1] * self.height))
        )
        front_grip = jnp.sign(v) * self.friction * self.front_stiffness * front_load
        rear_grip = jnp.sign(v) * self.friction * self.rear_stiffness * rear_load
        front_force = front_grip * (delta - beta - self.front * turn / v)
        rear_force = rear_grip * (-beta + self.rear * turn / v)
        turning = (self.front * front_force - self.rear * rear_force) / self.inertia
        return turning, (front_force + rear_force) / (self.mass * v) - turn

    def _kinematic(self, delta: Any, v: Any, u: Any) -> tuple[Any, Any, Any, Any]:
        """Return beta, psi', psi'' and beta' without slip."""
        length = self.front + self.rear
        tangent = jnp.tan(delta)
        beta = jnp.arctan(tangent * self.rear / length)
        steepness = (1.0 + tangent * tangent) * u[0]
        sliding = steepness * (self.rear / length) / (1.0 + (tangent * self.rear / length) ** 2)
        turn = v * jnp.cos(beta) * tangent / length
        turning = (
            u[1] * jnp.cos(beta) * tangent
            - v * jnp.sin(beta) * sliding * tangent
            + v * jnp.cos(beta) * steepness
        ) / length
        return beta, turn, turning, sliding


def limited_inputs(
    u: Any,
    delta: Any,
    v: Any,
    *,
    steering: tuple[Any, Any],
    steering_rate: tuple[Any, Any] = (-0.4, 0.4),
    speed: tuple[Any, Any],
    acceleration: Any = 11.5,
    switching_speed: Any = 7.319,
) -> Array:
    """Return the inputs (2,), clipped to the limits of CommonRoad's vehicles.

    Args:
        u: (steering rate in rad/s, acceleration in m/s^2).
        delta: steering angle in rad. At a steering limit, the steering rate beyond it is zero.
        v: speed in m/s. At a speed limit, the acceleration beyond it is zero.
        steering: smallest and largest steering angle in rad.
        steering_rate: smallest and largest steering rate in rad/s.
        speed: smallest and largest speed in m/s.
        acceleration: largest acceleration in either direction in m/s^2. Above switching_speed, the forward
            limit is scaled by switching_speed / v.
        switching_speed: in m/s.
    """
    turned = jnp.clip(u[0], *steering_rate)
    stuck = ((delta <= steering[0]) & (u[0] <= 0.0)) | ((delta >= steering[1]) & (u[0] >= 0.0))
    forward = jnp.where(
        v > switching_speed, acceleration * switching_speed / jnp.maximum(v, switching_speed), acceleration
    )
    pushed = jnp.clip(u[1], -acceleration, forward)
    ended = ((v <= speed[0]) & (u[1] <= 0.0)) | ((v >= speed[1]) & (u[1] >= 0.0))
    return jnp.stack([jnp.where(stuck, 0.0, turned), jnp.where(ended, 0.0, pushed)])


def to_commonroad(state: State, speed: Any) -> Array:
    """Return the KS state (sx, sy, delta, v, psi) of a `vehicles.bicycle`.

    The bicycle has joint coordinates, and its mass center lies on the rear axle.

    Args:
        state: state with q = (x, y, heading, steering angle).
        speed: v in m/s, the input of the speed drive.

    Raises:
        ValueError: other coordinates, such as absolute coordinates.
    """
    if state.q.shape != (4,):
        raise ValueError(
            "to_commonroad: q must have shape (4,), (x, y, heading, steering angle) of vehicles.bicycle in "
            "joint coordinates,"
            f" kinematic_mechanism(bicycle(...), Joints()), got {state.q.shape}"
        )
    x, y, heading, steering = state.q
    return jnp.stack([x, y, steering, jnp.asarray(speed, state.q.dtype), heading])


def from_commonroad(x: Any, t: Any = 0.0) -> tuple[State, Array]:
    """Return the state of a `vehicles.bicycle` at rest in joint coordinates, and v, for a KS state (5,).

    Raises:
        ValueError: x does not have shape (5,). ST states refer to the mass center and are not accepted.
    """
    x = floating(x)
    if x.shape != (5,):
        raise ValueError(
            f"from_commonroad: x must have shape (5,), a state (sx, sy, delta, v, psi) of KS, got {x.shape}"
        )
    q = jnp.stack([x[0], x[1], x[4], x[2]])
    return State(jnp.asarray(t, x.dtype), q, jnp.zeros_like(q)), x[3]


def axle_loads(
    mass: Any, front: Any, rear: Any, height: Any = 0.0, acceleration: Any = 0.0, gravity: Any = 9.81
) -> Array:
    """Return the axle loads (front, rear) (2,) in N at a longitudinal acceleration, without suspension.

    Args:
        mass: in kg.
        front: distance from the mass center to the front axle in m.
        rear: distance from the mass center to the rear axle in m.
        height: height of the mass center in m.
        acceleration: acceleration along x in m/s^2.
        gravity: in m/s^2.

    Raises:
        ValueError: both axles coincide.
    """
    length = front + rear
    known = concrete(length)
    if known is not None and np.any(known == 0.0):
        raise ValueError("axle_loads: front + rear must not be zero, because both axles would coincide")
    return jnp.stack(
        [
            mass * (gravity * rear - acceleration * height) / length,
            mass * (gravity * front + acceleration * height) / length,
        ]
    )


def check_not_collinear(function: str, places: Any) -> None:
    """Raise ValueError if wheel positions (k, 2) in m are all on a line, unless they are traced."""
    known = concrete(places)
    if (
        known is not None
        and np.linalg.matrix_rank(known - np.mean(known, axis=0), tol=1e-9 * (1.0 + np.max(np.abs(known))))
        < 2
    ):
        raise ValueError(
            f"{function}: places must not all be on a line, got {known.tolist()}; use axle_loads for two "
            "axles"
        )


def wheel_loads(
    mass: Any, places: Any, height: Any = 0.0, acceleration: Any = (0.0, 0.0), gravity: Any = 9.81
) -> Array:
    """Return the wheel loads (k,) in N at an acceleration: the least-squares solution of the load balance.

    The balance about the mass center is sum F = m g, sum F p = -m h (a_x, a_y). Four wheels share the load as
    springs of equal stiffness do.

    Args:
        mass: in kg.
        places: wheel positions (k, 2) relative to the mass center in m, not all collinear.
        height: height of the mass center in m.
        acceleration: (a_x, a_y) in m/s^2.
        gravity: in m/s^2.

    Raises:
        ValueError: places do not have shape (k, 2) or are collinear, so that the wheels cannot balance the
            vehicle; acceleration does not have shape (2,).
    """
    places = floating(places)
    if places.ndim != 2 or places.shape[1] != 2:
        raise ValueError(
            "wheel_loads: places must have shape (k, 2), one position (x, y) per wheel in m, got "
            f"{places.shape}"
        )
    check_not_collinear("wheel_loads", places)
    acceleration = jnp.asarray(acceleration, places.dtype)
    if acceleration.shape != (2,):
        raise ValueError(
            f"wheel_loads: acceleration must have shape (2,), (a_x, a_y) in m/s^2, got {acceleration.shape}"
        )
    balance = jnp.concatenate([jnp.ones((1, places.shape[0]), places.dtype), places.T])
    needed = mass * jnp.stack([jnp.asarray(gravity, places.dtype), *(-height * acceleration)])
    return balance.T @ jnp.linalg.solve(balance @ balance.T, needed)

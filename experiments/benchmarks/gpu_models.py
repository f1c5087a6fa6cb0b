"""Mechanisms of `gpu.py`, built in Python from JAX, NumPy and jaxdae alone.

The arrays have the default precision of JAX at the time of the call. The start velocities are consistent and
nonzero, so that a batch of worlds can start with different multiples of them.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from four_bar import COUPLER, four_bar
from work_precision_problems import andrews

import jaxdae
import jaxdae.mechanisms as jm
from jaxdae.mechanisms import spatial as js


@dataclasses.dataclass(frozen=True)
class Model:
    """A mechanism, its integrator and the start of one world.

    Attributes:
        system: the mechanism.
        method: the integrator.
        start: the consistent start state.
        dt: the step in s.
        length: the length of the longest body in m, which sets the scale of rounding errors.
        closure: the largest |g| in m that the integrator leaves in exact arithmetic.
    """

    system: Any
    method: Any
    start: jaxdae.State
    dt: float
    length: float = 0.0
    closure: float = 0.0

    def allowed_violation(self) -> float:
        """Return the largest |g| in m that is correct in the precision of the start state."""
        return self.closure + 16.0 * float(jnp.finfo(self.start.q.dtype).eps) * self.length


def _precise(tree: Any) -> Any:
    """Convert the floating-point leaves of a pytree to the default precision of JAX."""

    def convert(x: Any) -> Any:
        return jnp.asarray(x, float) if jnp.issubdtype(jnp.result_type(x), jnp.floating) else x

    return jax.tree.map(convert, tree)


def _moving(system: Any, q: Any, rate: float) -> jaxdae.State:
    """Return the consistent start state with the velocities nearest to `rate` in all coordinates."""
    nv = len(system.names.velocities)
    return jaxdae.initialize(_precise(system), jnp.asarray(q, float), jnp.full((nv,), rate))[0]


def absolute_four_bar() -> Model:
    """Return the planar four-bar in absolute coordinates: semi-implicit Euler, three corrections per step."""
    system, q = four_bar()
    position = jaxdae.PositionProjection(origin=jaxdae.Origin.STAGE)
    method = jaxdae.Projected(jaxdae.SemiImplicitEuler(), jaxdae.Projection(position))
    return Model(system, method, _moving(system, q, 0.5), 1e-3, COUPLER, 1e-10)


def joint_four_bar() -> Model:
    """Return the same four-bar and integrator in joint coordinates: 3 velocities, 2 constraint rows."""
    system, q = four_bar(coordinates=jm.Joints())
    return Model(system, absolute_four_bar().method, _moving(system, q, 0.5), 1e-3, COUPLER, 1e-10)


def squeezing_mechanism() -> Model:
    """Return Andrews' squeezing mechanism: seven planar bodies, 20 constraint rows, RK4 with projections."""
    system, start, _ = andrews().forms()["poses"]
    position = jaxdae.PositionProjection(origin=jaxdae.Origin.STAGE)
    projection = jaxdae.Projection(position, jaxdae.VelocityProjection())
    method = jaxdae.Projected(jaxdae.RungeKutta.rk4(solver=jaxdae.SchurComplement()), projection)
    return Model(system, method, _moving(system, start.q, 1.0), 2e-5, 0.04)


# Joint name, axis, offset from the previous joint (m; x forward, y left, z up), mass of the child body (kg).
_LEG = (
    ("hip_pitch", "y", (0.0, 0.06, -0.10), 1.4),
    ("hip_roll", "x", (0.0, 0.05, -0.03), 1.5),
    ("hip_yaw", "z", (0.02, 0.0, -0.12), 1.7),
    ("knee", "y", (-0.08, 0.0, -0.18), 1.9),
    ("ankle_pitch", "y", (0.0, 0.0, -0.30), 0.3),
    ("ankle_roll", "x", (0.0, 0.0, -0.02), 0.6),
)
_WAIST = (
    ("waist_yaw", "z", (0.0, 0.0, 0.05), 0.3),
    ("waist_roll", "x", (0.0, 0.0, 0.03), 0.3),
    ("torso", "y", (0.0, 0.0, 0.02), 9.0),
)
_ARM = (
    ("shoulder_pitch", "y", (0.0, 0.10, 0.24), 0.7),
    ("shoulder_roll", "x", (0.0, 0.04, -0.01), 0.6),
    ("shoulder_yaw", "z", (0.0, 0.01, -0.10), 0.7),
    ("elbow", "y", (0.02, 0.0, -0.08), 0.6),
    ("wrist_roll", "x", (0.10, 0.0, -0.01), 0.3),
    ("wrist_pitch", "y", (0.04, 0.0, 0.0), 0.4),
    ("wrist_yaw", "z", (0.05, 0.0, 0.0), 0.3),
)
_AXES = {"x": (1.0, 0.0, 0.0), "y": (0.0, 1.0, 0.0), "z": (0.0, 0.0, 1.0)}
_GYRATION = 0.08  # m, radius of gyration of every body about every axis


def humanoid() -> Model:
    """Return a humanoid with a free base and 29 hinges in joint coordinates, without constraint rows.

    The tree and the joint axes are those of Unitree's G1. Offsets, masses and inertias are estimates, so that
    the model needs no robot file. It has the size of the G1; its motion differs.
    """
    bodies = [js.Body("pelvis", 4.0, (4.0 * _GYRATION**2,) * 3)]
    joints: list[Any] = [js.Free("base", jm.GROUND, "pelvis")]

    def add(limb: Any, side: str, sign: float, parent: str, at: tuple[float, ...]) -> tuple[float, ...]:
        for name, axis, (x, y, z), mass in limb:
            at = (at[0] + x, at[1] + sign * y, at[2] + z)
            place, inertia = (at[0], at[1], at[2] - 0.03), (mass * _GYRATION**2,) * 3
            bodies.append(js.Body(side + name, mass, inertia, place=place))
            joints.append(js.Revolute(f"{side}{name}_joint", parent, side + name, axis=_AXES[axis], at=at))
            parent = side + name
        return at

    chest = add(_WAIST, "", 1.0, "pelvis", (0.0, 0.0, 0.0))
    for side, sign in (("left_", 1.0), ("right_", -1.0)):
        add(_LEG, side, sign, "pelvis", (0.0, 0.0, 0.0))
        add(_ARM, side, sign, "torso", chest)
    description = jm.Description(space=jm.SPACE, bodies=bodies, joints=joints, gravity=(0.0, 0.0, -9.81))
    system, q = jm.mechanism(description, jm.Joints())
    method = jaxdae.SemiImplicitEuler(solver=jaxdae.SchurComplement())
    return Model(system, method, _moving(system, q, 0.3), 1e-3)


MODELS: dict[str, Callable[[], Model]] = {
    "four-bar": absolute_four_bar,
    "four-bar in joint coordinates": joint_four_bar,
    "Andrews": squeezing_mechanism,
    "humanoid": humanoid,
}

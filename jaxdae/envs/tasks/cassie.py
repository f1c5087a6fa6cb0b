"""Cassie, a robot with springs and closed loops in its legs, stands on two blades in spite of a push.

Each foot rotates about the line on which it stands. The tree has 22 degrees of freedom, minus the rows of
loops and blades. At rest, ten motors and the springs carry the weight. The robot file is MuJoCo Menagerie's
`agility_cassie/cassie.xml`. It is not part of jaxdae, and reading it needs the extra `robots`. Building the
robot takes about a minute, and compiling its step takes additional time.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxdae import control, robots
from jaxdae import mechanisms as jm
from jaxdae.base.dataclass import pytree, static
from jaxdae.dynamics.initialization import initialize
from jaxdae.envs.task import Start, Task
from jaxdae.integrators import Projected, SemiImplicitEuler
from jaxdae.mechanisms import spatial as js
from jaxdae.saddle_point import SchurComplement
from jaxdae.systems.system import State
from jaxdae.typing import Leaf

SIDES = ("left", "right")
MOTORS = ("hip-roll", "hip-yaw", "hip-pitch", "knee", "foot")
MIRRORED = ("hip-roll", "hip-yaw")
POSTURE = {
    "hip-roll": 0.0045,
    "hip-yaw": 0.0,
    "hip-pitch": 0.4973,
    "knee": -1.1997,
    "foot": -1.5968,
    "foot-crank": -1.5,
    "plantar-rod": 1.5,
    "tarsus": 1.4267,
}
"""Joint coordinates of each leg in rad; roll and yaw of the right leg are mirrored."""
BLADE = ((0.0212, 0.056, 0.0), (0.1337, -0.112, 0.0))
"""The support line of a foot in the frame of its link: a point in m and a direction."""

_TORQUE, _FALLEN, _PUSH = 20.0, 0.15, 0.1  # N m, m, m/s


class CassieOnBlades(NamedTuple):
    """Cassie on its blades.

    Attributes:
        system: the mechanism; its inputs are the motors of hips, knee and foot, left leg first.
        rest: the rest state.
        torques: (10,) motor torques at rest, in N m.
        description: description of the mechanism.
        report: report of the file.
    """

    system: Any
    rest: Any
    torques: Any
    description: Any
    report: Any


def cassie_on_blades(
    file: str, posture: Mapping[str, float] = POSTURE, blade: tuple[Any, Any] = BLADE
) -> CassieOnBlades:
    """Return Cassie on its blades, at rest.

    Args:
        file: `cassie.xml` in MJCF.
        posture: joint coordinates of each leg in rad, by name without the side.
        blade: a point in m and a direction in the frame of a foot.

    Raises:
        ValueError: an invalid file, or a posture in which motors and springs cannot carry the weight.
        ImportError: the extra `robots` is not installed.
    """
    robot = robots.load(file)
    report, description = robot.report, robot.description
    missing = [
        f"{side}-{joint}"
        for side in SIDES
        for joint in MOTORS
        if f"{side}-{joint}" not in {j.name for j in description.joints}
    ]
    if missing:
        raise ValueError(
            f"{file} must be a model of Cassie, but has no joint {missing[0]!r}; use "
            "agility_cassie/cassie.xml of MuJoCo Menagerie"
        )
    system, q = jm.mechanism(description, jm.Joints())
    guess, placed = _placed(posture, system, q)
    feet = [_hinge(blade, report, system, placed, side) for side in SIDES]
    motors = [
        js.JointForce(f"{s}-{m} motor", f"{s}-{m}", input=5 * i + j)
        for i, s in enumerate(SIDES)
        for j, m in enumerate(MOTORS)
    ]
    whole = dataclasses.replace(
        description,
        joints=[*description.joints, *feet],
        loops=(*description.loops, *(foot.name for foot in feet)),
        forces=[*description.forces, *motors],
    )
    system, _ = jm.mechanism(whole, jm.Joints())
    rest = _balanced(system, placed, guess)
    torques = control.static_inputs(system, rest, solver=SchurComplement())
    return CassieOnBlades(system, rest, torques, whole, report)


@pytree
class _Stand:
    """The functions of the task, with the data of the robot at rest."""

    rest: Leaf
    torques: Leaf
    pushed: tuple[int, ...] = static()

    def reset(self, key: Any, system: Any) -> Start:
        dtype = self.rest.q.dtype
        push = jax.random.uniform(key, (2,), dtype, -_PUSH, _PUSH)
        v = jnp.zeros_like(self.rest.v).at[jnp.asarray(self.pushed[:2])].set(push)
        held = np.isin(np.arange(v.shape[0]), self.pushed[:2])
        # The rest state already closes its loops, so all of its coordinates are fixed.
        start, info = initialize(system, self.rest.q, v, fixed=np.ones(v.shape, bool), fixed_velocity=held)
        return Start(start, (), info.status)

    def control(self, action: Any) -> Any:
        return self.torques + _TORQUE * jnp.clip(action, -1.0, 1.0)

    def observe(self, system: Any, state: Any, goal: Any) -> Any:
        return jnp.concatenate([system.difference(self.rest.q, state.q), 0.1 * state.v])

    def reward(self, system: Any, state: Any, action: Any, new: Any, goal: Any) -> Any:
        off = system.difference(self.rest.q, new.q)[jnp.asarray(self.pushed)]
        return 1.0 - jnp.sum((off / _FALLEN) ** 2) - 0.01 * jnp.sum(action**2)

    def terminated(self, system: Any, state: Any, goal: Any) -> Any:
        off = (state.q - self.rest.q)[:3]
        return jnp.sum(off**2) > _FALLEN**2


def cassie_stand(file: str) -> Task:
    """Return the task of Cassie to stand on its blades after a push of its pelvis.

    Observation: displacements from rest, then velocities in units of 10 m/s or 10 rad/s, in the order of the
        velocities of the system. Action (10,): motor torques relative to the rest torques, at most 20 N m.
        Reward: 1 per action, minus the squared displacement of the pelvis in units of 15 cm and minus 0.01
        |action|^2. If the pelvis moves by 15 cm, the robot has fallen. 200 actions of 10 ms.

    The push, up to 0.1 m/s along each horizontal axis, is made consistent with loops and blades. Precompute
    many starts with `StartPool`.

    Args:
        file: `cassie.xml` in MJCF, such as the file of MuJoCo Menagerie.

    Raises:
        ValueError: an invalid file, or another robot.
        ImportError: the extra `robots` is not installed.
    """
    made = cassie_on_blades(file)
    names = made.system.names.velocities
    at = _Stand(
        made.rest, made.torques, tuple(names.index(f"cassie-pelvis.{name}") for name in ("vx", "vy", "vz"))
    )
    return Task(
        system=made.system,
        integrator=Projected(SemiImplicitEuler()),
        reset=at.reset,
        observe=at.observe,
        reward=at.reward,
        terminated=at.terminated,
        control=at.control,
        actions=10,
        dt=5e-4,
        steps=20,
        limit=200,
        failure=-10.0,
    )


def _placed(posture: Mapping[str, float], system: Any, q: Any) -> tuple[np.ndarray, Any]:
    """Return a mask of the pelvis velocities, and q in the posture, loops closed, springs at rest."""
    names = system.names.velocities
    positions = {
        f"{side}-{joint}": -value if side == "right" and joint in MIRRORED else value
        for side in SIDES
        for joint, value in posture.items()
    }
    state = robots.joint_state(system, q, positions)
    pelvis = np.array([name.split(".")[1].startswith(("v", "omega")) and "rod" not in name for name in names])
    given = {f"{side}-{joint}" for side in SIDES for joint in (*MOTORS, "shin", "heel-spring")}
    fixed = pelvis | np.array([name.rsplit(".", 1)[0] in given for name in names])
    return pelvis, initialize(system, state.q, fixed=fixed)[0].q


def _hinge(blade: tuple[Any, Any], report: Any, system: Any, q: Any, side: str) -> Any:
    """Return the hinge about the blade between a foot and the ground, at the current foot pose."""
    place, rotation = (np.asarray(x) for x in robots.link_frame(report, system, q, f"{side}-foot"))
    frame, axis = report.frames[f"{side}-foot"], np.asarray(blade[1]) / np.linalg.norm(blade[1])
    across = np.cross(axis, [0.0, 0.0, 1.0])
    axes, point = np.stack([across, np.cross(axis, across), axis], axis=1), np.asarray(blade[0])
    ends = {"point_a": place + rotation @ point, "axes_a": rotation @ axes}
    return js.Revolute(
        f"{side} blade",
        "ground",
        frame.body,
        point_b=frame.place + frame.rotation @ point,
        axes_b=frame.rotation @ axes,
        **ends,
    )


def _balanced(system: Any, q: Any, pelvis: np.ndarray) -> Any:
    """Return the state near q in which motors and springs carry the weight, with the pelvis fixed.

    The unknowns are the displacement xi, torques and multipliers. The equations are f + J^T lam = 0, g = 0
    and xi = 0 for the pelvis. Gauss-Newton uses minimum-norm steps, because the feet may push against each
    other, and rods may rotate about their own axes.

    Raises:
        ValueError: no such state near q.
    """
    size, rows = len(pelvis), len(system.names.rows)
    weight = float(jnp.sum(system.mass)) * 9.81

    def residual(x: Any) -> Any:
        xi, u, lam = jnp.split(x, [size, size + system.n_inputs])
        t, at, still = jnp.zeros(()), system.retract(q, xi), jnp.zeros_like(xi)
        force = system.force(t, at, still, u) + system.jacobian_operator(t, at, still).transpose_times(lam)
        return jnp.concatenate([force / weight, system.constraint(t, at), xi[pelvis]])

    step = jax.jit(
        lambda x: (residual(x), jnp.linalg.lstsq(jax.jacfwd(residual)(x), residual(x), rcond=1e-8)[0])
    )
    x = jnp.zeros((size + system.n_inputs + rows,), q.dtype)
    for _ in range(30):
        rest, change = step(x)
        if float(jnp.max(jnp.abs(rest))) < 1e-13:
            return State(jnp.zeros(()), system.retract(q, x[:size]), jnp.zeros((size,), q.dtype))
        x = x - change
    raise ValueError("the motors and springs cannot carry the weight in this posture; choose another posture")

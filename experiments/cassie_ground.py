"""Cassie falls onto its feet, stands, and steps in place: how far do loops open, and do the feet creep?

Each foot is a capsule along its blade, so the robot touches the ground at four points. Ten motors follow

    tau = kp (reference - angle) - kd rate,
    reference = posture + (+-(roll_gain roll + roll_rate_gain roll_rate) - rise(t)) extension.

The vector `extension` makes a leg longer. The legs counteract the roll of the pelvis: +1 for the right leg,
-1 for the left one. The reference of both ankles also follows -forward_gain times the forward velocity of the
pelvis. To step, the robot shortens one leg after the other: rise(t) = step.rise sin^2 during a part of each
period. A raised leg has no feedback from the pelvis. The robot is not in balance on one leg: it begins to fall toward
the raised foot, which catches it.

MuJoCo, if it is installed, simulates the same robot with the same law, step size and friction: with its
default soft constraints, and with stiff loops and contacts. The gains were chosen with jaxdae.

    python experiments/cassie_ground.py [CONFIG] [--set PATH=VALUE ...] [--out DIR]
"""

import dataclasses
import importlib
import sys
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pydantic

import jaxdae
from jaxdae import contact, robots
from jaxdae import mechanisms as jm
from jaxdae.app import conclude, line_style, precision, script, styled
from jaxdae.app.config.config_elements import description
from jaxdae.mechanisms import spatial as js

CONFIG = "configs/cassie_ground.yaml"
SIDES = ("left", "right")
MIRRORED = ("hip-roll", "hip-yaw")
SPRINGS = ("shin", "heel-spring")
FALLEN = 0.5  # m, height of the pelvis


class Balance(pydantic.BaseModel, extra="forbid", strict=True):
    """Gains of the feedback from the pelvis: rad s/m, rad/rad and rad s/rad."""

    forward: float
    roll: float
    roll_rate: float


class Step(pydantic.BaseModel, extra="forbid", strict=True):
    """Time of the first step in s, period of both legs in s, part of the period, and rise in rad."""

    start: pydantic.NonNegativeFloat
    period: pydantic.PositiveFloat
    part: float = pydantic.Field(gt=0.0, le=0.5)
    rise: float


class Settings(pydantic.BaseModel, extra="forbid", strict=True):
    """The section `experiment` of the config."""

    file: str
    posture: dict[str, float]
    height: pydantic.PositiveFloat
    gains: dict[str, list[float]]
    extension: dict[str, float]
    balance: Balance
    step: Step
    stands_from: pydantic.PositiveFloat


@jaxdae.tree.pytree
class Legs:
    """The law of the motors, left leg first.

    Attributes:
        posture: (2, 5) reference angles in rad.
        kp: (5,) in N m/rad.
        kd: (5,) in N m s/rad.
        extension: (5,) angles in rad that make a leg longer.
        balance: forward, roll and roll-rate gain (3,).
        step: start in s, period in s, part of the period, and rise in rad (4,).
        angles: coordinates of the motors (static).
        rates: velocities of the motors (static).
        ankle: the motor of the ankle in a leg (static).
    """

    posture: Any
    kp: Any
    kd: Any
    extension: Any
    balance: Any
    step: Any
    angles: tuple[int, ...] = jaxdae.tree.static()
    rates: tuple[int, ...] = jaxdae.tree.static()
    ankle: int = jaxdae.tree.static()

    def __call__(self, t, state):
        """Return the torques (10,) in N m; the pelvis is the free base of the robot."""
        angles = state.q[jnp.asarray(self.angles)].reshape(2, -1)
        rates = state.v[jnp.asarray(self.rates)].reshape(2, -1)
        w, x, y, z = state.q[3:7]
        forward, roll, roll_rate = self.balance
        roll = roll * 2.0 * (w * x + y * z) + roll_rate * state.v[3]
        bump = self.bump(t)
        stands = jnp.where(bump == 0.0, 1.0, 0.0)
        longer = stands * jnp.stack([-roll, roll]) - self.step[3] * bump
        reference = self.posture + longer[:, None] * self.extension
        reference = reference.at[:, self.ankle].add(-forward * state.v[0] * stands)
        return (self.kp * (reference - angles) - self.kd * rates).reshape(-1)

    def bump(self, t):
        """Return how far the legs are raised (2,), between 0 and 1."""
        start, period, part, _ = self.step
        phase = (t - start) / period + jnp.asarray([0.0, 0.5])
        phase = phase - jnp.floor(phase)
        return jnp.where((t > start) & (phase < part), jnp.sin(jnp.pi * phase / part) ** 2, 0.0)


class Robot(NamedTuple):
    """The robot over the ground: report of its file, system, start, law, and names of the motors."""

    report: Any
    system: Any
    start: Any
    law: Legs
    motors: tuple[str, ...]


def over_the_ground(config: Any, settings: Settings) -> Robot:
    """Return the robot in its posture, with the contacts of the config and a motor for each gain."""
    motors = tuple(f"{side}-{joint}" for side in SIDES for joint in settings.gains)
    forces = [js.JointForce(f"{name} motor", name, input=k) for k, name in enumerate(motors)]
    robot = robots.load(settings.file)
    forces = [*robot.description.forces, *forces]
    contacts = description(config.model_dump()).contacts
    system, q = jm.mechanism(
        dataclasses.replace(robot.description, forces=forces, contacts=contacts), jm.Joints()
    )
    posture = {
        f"{side}-{joint}": -value if side == "right" and joint in MIRRORED else value
        for side in SIDES
        for joint, value in settings.posture.items()
    }
    pelvis = {"cassie-pelvis": (0.0, 0.0, settings.height, 1.0, 0.0, 0.0, 0.0)}
    state = robots.joint_state(system, q, posture | pelvis)
    # Pelvis, motors and springs keep their positions, and the other joints close the loops.
    kept = {"cassie-pelvis", *motors, *(f"{side}-{joint}" for side in SIDES for joint in SPRINGS)}
    fixed = np.array([name.rsplit(".", 1)[0] in kept for name in system.names.velocities])
    start, info = jax.jit(lambda q: jaxdae.initialize(system, q, fixed=fixed))(state.q)
    jaxdae.raise_if_failed(info)
    angles = tuple(system.names.coordinates.index(f"{name}.angle") for name in motors)
    gains = jnp.asarray(list(settings.gains.values()))
    law = Legs(
        posture=start.q[jnp.asarray(angles)].reshape(2, -1),
        kp=gains[:, 0],
        kd=gains[:, 1],
        extension=jnp.asarray([settings.extension.get(joint, 0.0) for joint in settings.gains]),
        balance=jnp.asarray(list(settings.balance.model_dump().values())),
        step=jnp.asarray(list(settings.step.model_dump().values())),
        angles=angles,
        rates=tuple(system.names.velocities.index(f"{name}.angle_rate") for name in motors),
        ankle=list(settings.gains).index("foot"),
    )
    return Robot(robot.report, system, start, law, motors)


class Motion(NamedTuple):
    """A motion: times in s, middles of the feet and pelvis in m, and the largest error since the last entry.

    Attributes:
        time: (time,).
        feet: (time, 2, 3).
        pelvis: (time, 3).
        opening: loop error (time,) in m.
        depth: penetration (time,) in m.
    """

    time: np.ndarray
    feet: np.ndarray
    pelvis: np.ndarray
    opening: np.ndarray
    depth: np.ndarray

    def creep(self, start: float, end: float) -> float:
        """Return the mean speed of the faster foot along the ground from start to end, in m/s."""
        first, last = (int(np.argmin(np.abs(self.time - t))) for t in (start, end))
        moved = np.linalg.norm((self.feet[last] - self.feet[first])[:, :2], axis=1)
        return float(moved.max() / (self.time[last] - self.time[first]))


def simulate(robot: Robot, method: Any, dt: float, steps: int, save_every: int) -> Any:
    """Return the trajectory."""
    plan = {"dt": dt, "steps": steps, "save_every": save_every}
    return jaxdae.rollout(robot.system, method, robot.start, robot.law, **plan)


def link_ends(robot: Robot, pair: Any) -> np.ndarray:
    """Return the ends of the axis of a foot (2, 3) in m, in the frame of its link."""
    shape, frame = pair.shape_b, robot.report.frames[f"{pair.name}-foot"]
    axis = np.asarray(jaxdae.rotation.rotation_matrix(jnp.asarray(shape.quaternion)))[:, 2]
    ends = np.asarray(shape.at) + np.outer([-shape.half_length, shape.half_length], axis)
    return (ends - frame.place) @ frame.rotation


def motion(robot: Robot, trajectory: Any, points: Any) -> Motion:
    """Return the motion of a trajectory, for the middles of the feet (2, 3) in the frames of their links."""

    def middles(q: Any) -> Any:
        frames = [robots.link_frame(robot.report, robot.system, q, f"{side}-foot") for side in SIDES]
        return jnp.stack([p + r @ x for (p, r), x in zip(frames, points, strict=True)])

    q, info = trajectory.state.q, trajectory.info
    feet = np.asarray(jax.jit(jax.vmap(middles))(q))
    depth = np.maximum(0.0, -np.asarray(info.gap).min(axis=1))
    return Motion(
        np.asarray(trajectory.state.t), feet, np.asarray(q)[:, :3], np.asarray(info.violation), depth
    )


def motion_of_mujoco(robot: Robot, config: Any, file: str, stiff: bool) -> Motion | None:
    """Return the motion in MuJoCo with the same step until the robot has fallen, None without MuJoCo.

    Args:
        robot: the robot.
        config: of the experiment.
        file: of the robot.
        stiff: whether loops and contacts have the time constant of two steps and the highest impedance, and
            friction has elliptic cones and impratio 10, as MuJoCo recommends against slip.
    """
    try:
        mujoco: Any = importlib.import_module("mujoco")
    except ModuleNotFoundError:
        return None
    feet = {pair.name: (link_ends(robot, pair), pair.shape_b.radius) for pair in config.mechanism.contacts}
    spec = mujoco.MjSpec.from_file(file)
    spec.worldbody.add_geom(type=mujoco.mjtGeom.mjGEOM_PLANE, size=[1, 1, 1])
    for side, (ends, radius) in feet.items():
        capsule = mujoco.mjtGeom.mjGEOM_CAPSULE
        body = spec.body(f"{side}-foot")
        body.add_geom(type=capsule, size=[radius, 0, 0], fromto=ends.reshape(-1), contype=2)
    for geom in spec.geoms:
        geom.friction = [config.mechanism.contacts[0].friction, 0.0, 0.0]
        geom.conaffinity = 2 if geom.type == mujoco.mjtGeom.mjGEOM_PLANE else 0
    model = spec.compile()
    model.opt.timestep = config.dt
    model.opt.disableflags |= mujoco.mjtDisableBit.mjDSBL_LIMIT
    if stiff:
        model.opt.cone, model.opt.impratio = mujoco.mjtCone.mjCONE_ELLIPTIC, 10.0
        for solref, solimp in ((model.eq_solref, model.eq_solimp), (model.geom_solref, model.geom_solimp)):
            solref[:], solimp[:] = (2.0 * config.dt, 1.0), (0.9999, 0.9999, 0.001, 0.5, 2.0)
    data = mujoco.MjData(model)
    data.qpos[:], data.qvel[:] = (
        np.asarray(x) for x in robots.to_mujoco(robot.report, robot.system, robot.start)
    )
    dofs = [model.joint(name).dofadr[0] for name in robot.motors]
    blades = [(data.body(f"{side}-foot"), ends.mean(axis=0)) for side, (ends, _) in feet.items()]

    @jax.jit
    def torques(t: Any, qpos: Any, qvel: Any) -> Any:
        return robot.law(t, robots.from_mujoco(robot.report, robot.system, qpos, qvel))

    entries, opening, depth = [], 0.0, 0.0
    for step in range(config.steps):
        data.qfrc_applied[dofs] = np.asarray(torques(data.time, data.qpos, data.qvel))
        mujoco.mj_step(model, data)
        opening = max(opening, float(np.abs(data.efc_pos[: data.ne]).max()))
        depth = max(depth, -float(min(data.contact.dist, default=0.0)))
        if (step + 1) % config.save_every == 0:
            feet = [body.xpos + body.xmat.reshape(3, 3) @ at for body, at in blades]
            entries.append((data.time, np.array(feet), data.qpos[:3].copy(), opening, depth))
            opening, depth = 0.0, 0.0
            if data.qpos[2] < FALLEN:
                break
    return Motion(*(np.array(column) for column in zip(*entries, strict=True)))


def draw(robot: Robot, trajectory: Any, made: dict[str, Motion], gap: np.ndarray, force: np.ndarray) -> Any:
    """Return the figure: gaps of the feet, pelvis, contact forces, and loop errors."""
    first = made["jaxdae"]
    with styled() as figure_class:
        figure = figure_class(figsize=(11, 7), layout="constrained")
        (gaps, pelvis), (load, opening) = figure.subplots(2, 2)
        for k, side in enumerate(SIDES):
            gaps.plot(first.time, 1e3 * gap[:, k], label=f"{side} foot", **line_style(k))
            load.plot(first.time, force[:, k], label=f"{side} foot", **line_style(k))
        gaps.set(xlabel="time in s", ylabel="gap in mm", title="lowest point of each foot")
        load.set(xlabel="time in s", ylabel="normal force in N", title="contact force", ylim=(0.0, 800.0))
        for k, axis in enumerate("xyz"):
            moved = first.pelvis[:, k] - first.pelvis[0, k]
            pelvis.plot(first.time, 1e3 * moved, label=axis, **line_style(k))
        pelvis.set(xlabel="time in s", ylabel="displacement in mm", title="pelvis")
        for k, (name, x) in enumerate(made.items()):
            opening.plot(x.time, np.maximum(x.opening, 1e-17), label=name, **line_style(k))
        opening.set(yscale="log", xlabel="time in s", ylabel="opening of the loops in m", title="loops")
        for axes in (gaps, pelvis, load, opening):
            axes.legend()
        return figure


def main() -> int:
    """Run the experiment and return its exit code."""
    asked = script(CONFIG, __doc__)
    config = asked.config
    settings = jaxdae.app.settings(asked, Settings)
    if settings is None:
        return 2
    settings = settings.model_copy(update={"file": str(asked.folder / settings.file)})
    with precision(config):
        robot = over_the_ground(config, settings)
        method = contact.Touching(jaxdae.SemiImplicitEuler())
        trajectory = simulate(robot, method, config.dt, config.steps, config.save_every)
        points = jnp.stack([link_ends(robot, x).mean(axis=0) for x in config.mechanism.contacts])
        made = {"jaxdae": motion(robot, trajectory, points)}
        for name, stiff in (("MuJoCo, default", False), ("MuJoCo, stiff", True)):
            other = motion_of_mujoco(robot, config, settings.file, stiff)
            if other is not None:
                made[name] = other
        force = np.stack(
            [
                np.asarray(contact.ContactForce.named(robot.system, side)(trajectory.info)[..., 0]).sum(
                    axis=1
                )
                for side in SIDES
            ],
            axis=1,
        )
    gap = np.asarray(trajectory.info.gap).reshape(-1, 2, 2).min(axis=2)
    step = settings.step
    headings = (
        "simulator",
        "loop error, m",
        f"creep from {settings.stands_from:g} s to {step.start:g} s, um/s",
        "penetration while standing, m",
        "pelvis moves by, mm",
    )
    rows = []
    for name, x in made.items():
        still = (x.time > settings.stands_from) & (x.time <= step.start)
        fell = x.pelvis[-1, 2] < FALLEN
        rows.append(
            (
                name,
                f"{x.opening.max():.1e}",
                "-" if fell else f"{1e6 * x.creep(settings.stands_from, step.start):.2g}",
                "-" if fell else f"{x.depth[still].max():.1e}",
                f"falls in {x.time[-1]:.1f} s" if fell else f"{1e3 * np.linalg.norm(x.pelvis[-1, :2]):.0f}",
            )
        )
    time, cleared = made["jaxdae"].time, []
    count = int((config.duration - step.start) / step.period * 2)
    for k in range(count):
        begins = step.start + k * step.period / 2.0
        during = (time > begins) & (time <= begins + step.period / 2.0)
        cleared.append(1e3 * gap[during, k % 2].max())
    weight = float(np.asarray(robot.system.mass).sum()) * 9.81
    held = (time > settings.stands_from) & (time <= step.start)
    status = int(np.asarray(trajectory.info.status).max())
    sentences = [
        f"The robot steps {count} times, and raises its feet by {min(cleared):.1f} to {max(cleared):.1f} mm.",
        f"While it stands, the feet carry {force[held].sum(axis=1).mean():.2f} N on average;"
        f" weight: {weight:.2f} N.",
        f"Status: {jaxdae.Status(status).name}.",
    ]
    if len(made) == 1:
        sentences.append("MuJoCo is not installed, so its motion is not shown.")
    conclude(asked, headings, rows, sentences, {"cassie_ground": draw(robot, trajectory, made, gap, force)})
    return 0 if status == jaxdae.Status.OK and made["jaxdae"].pelvis[-1, 2] > FALLEN else 1


if __name__ == "__main__":
    sys.exit(main())

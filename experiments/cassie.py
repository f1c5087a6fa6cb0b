"""Cassie, a robot with springs and closed loops in its legs: falling, standing and loop errors.

The fall is compared with MuJoCo.

    python experiments/cassie.py [CONFIG] [--set PATH=VALUE ...] [--out DIR]

*It falls*, without damping, so that energy has to stay: here, by MuJoCo with its soft equalities as they are
by default, and as stiff as they may be (solref of two steps, solimp near 1) by its RK4 with the same step.

*It stands* on two blades, each foot turning about the line on which it stands: 22 freedoms less 10 rows. A
posture is found in which ten motors (hips, knees, feet) and the springs carry the weight: all of f + J^T lam
= 0, the rows and the pose of the pelvis by Gauss-Newton. About it the linear-quadratic regulator on the
manifold is designed for rods that do not spin, because their spin about themselves is neutral and no motor
reaches it; it acts on the robot whose rods are free to. A push at the pelvis is balanced.

*It stands in many worlds* whose masses scatter, with the feedback of the nominal one.
"""

import dataclasses
import importlib
import sys
from typing import Annotated, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pydantic

import jaxdae
from jaxdae import control, robots
from jaxdae import mechanisms as jm
from jaxdae.app import conclude, line_style, precision, script, skeleton, styled, write_animation
from jaxdae.envs import CassieOnBlades, cassie_on_blades
from jaxdae.mechanisms import spatial as js

CONFIG = "configs/cassie.yaml"
Triple = Annotated[tuple[float, float, float], pydantic.Strict(False)]


class Blade(pydantic.BaseModel, extra="forbid", strict=True):
    """The line on which a foot stands, in the frame of its link."""

    point: Triple
    axis: Triple


class Weights(pydantic.BaseModel, extra="forbid", strict=True):
    """The cost of the regulator."""

    position: pydantic.PositiveFloat
    velocity: pydantic.PositiveFloat
    torque: pydantic.PositiveFloat


class Settings(pydantic.BaseModel, extra="forbid", strict=True):
    """The section `experiment` of the config."""

    file: str
    posture: dict[str, float]
    blade: Blade
    weights: Weights
    push: dict[str, float]
    worlds: pydantic.PositiveInt
    scatter: pydantic.NonNegativeFloat
    worlds_duration: pydantic.PositiveFloat


class Fall(NamedTuple):
    """One fall: times in s, loop errors in m and energy changes in J, all (time,), and the step in s."""

    time: np.ndarray
    opening: np.ndarray
    energy: np.ndarray
    dt: float


# It falls.


def falling(file: str) -> tuple[Any, Any, Any]:
    """Return the report of a robot file, its mechanism without damping, and q in the pose of the file."""
    robot = robots.load(file)
    joints = [
        dataclasses.replace(j, damping=0.0) if hasattr(j, "damping") else j for j in robot.description.joints
    ]
    forces = [one for one in robot.description.forces if not isinstance(one, js.RotationalDamper)]
    return robot.report, *jm.mechanism(
        dataclasses.replace(robot.description, joints=joints, forces=forces), jm.Joints()
    )


def fall(system: Any, method: Any, start: Any, dt: float, steps: int, save_every: int) -> tuple[Fall, Any]:
    """Return a fall by jaxdae, and its states; the opening is the largest between saved entries too."""
    found = jaxdae.rollout(system, method, start, dt=dt, steps=steps, save_every=save_every)
    jaxdae.raise_if_failed(found)
    energy = jax.vmap(lambda x: jaxdae.energy(system, x))(found.state) - jaxdae.energy(system, start)
    return Fall(
        np.asarray(found.state.t), np.asarray(found.info.violation), np.asarray(energy), dt
    ), found.state


def fall_of_mujoco(file: str, qpos: Any, qvel: Any, steps: int, save_every: int, stiff: float | None) -> Fall:
    """Return a fall by MuJoCo.

    The settings are the defaults, or the stiffest equalities and RK4 at the step `stiff` in s.

    Args:
        file: of the robot.
        qpos: the start.
        qvel: the start.
        steps: how many steps of the step of the file make the duration.
        save_every: steps between entries.
        stiff: the step; None for the defaults of MuJoCo.
    """
    mujoco: Any = importlib.import_module("mujoco")
    model = mujoco.MjModel.from_xml_path(file)
    model.dof_damping[:] = 0.0
    model.opt.disableflags |= mujoco.mjtDisableBit.mjDSBL_LIMIT
    model.opt.enableflags |= mujoco.mjtEnableBit.mjENBL_ENERGY
    if stiff is not None:
        model.opt.timestep, model.opt.integrator = stiff, mujoco.mjtIntegrator.mjINT_RK4
        model.eq_solref[:] = (2.0 * stiff, 1.0)
        model.eq_solimp[:] = (0.9999, 0.9999, 0.001, 0.5, 2.0)
    data = mujoco.MjData(model)
    data.qpos[:], data.qvel[:] = qpos, qvel
    mujoco.mj_forward(model, data)
    first, entries = data.energy.sum(), []
    for _ in range(steps // save_every):
        worst = 0.0
        for _ in range(save_every):
            mujoco.mj_step(model, data)
            worst = max(worst, float(np.abs(data.efc_pos[: data.ne]).max()))
        mujoco.mj_forward(model, data)
        entries.append(
            (data.time, max(worst, float(np.abs(data.efc_pos[: data.ne]).max())), data.energy.sum() - first)
        )
    return Fall(*(np.array(column) for column in zip(*entries, strict=True)), model.opt.timestep)


# It stands.


class Standing(NamedTuple):
    """A robot on its blades: system, equilibrium state and torques, feedback about them, and motor joints.

    The joints are in the order of the inputs: those of the left leg, then those of the right.
    """

    system: Any
    rest: Any
    torques: Any
    feedback: Any
    motors: tuple[str, ...]


def on_blades(settings: Settings) -> Standing:
    """Return the robot on its blades."""
    made = cassie_on_blades(settings.file, settings.posture, (settings.blade.point, settings.blade.axis))
    joints = [_without_spin(joint, made) for joint in made.description.joints]
    held, _ = jm.mechanism(dataclasses.replace(made.description, joints=joints), jm.Joints())
    weights = settings.weights
    feedback = control.linear_quadratic_regulator(
        held,
        made.rest,
        made.torques,
        position_weight=weights.position,
        velocity_weight=weights.velocity,
        input_weight=weights.torque,
        solver=jaxdae.SchurComplement(),
    )
    driven = {
        force.input: force.joint for force in made.description.forces if isinstance(force, js.JointForce)
    }
    motors = tuple(driven[k] for k in range(made.system.n_inputs))
    return Standing(
        made.system, made.rest, made.torques, dataclasses.replace(feedback, system=made.system), motors
    )


def _without_spin(joint: Any, robot: CassieOnBlades) -> Any:
    """Return a universal joint for a ball at the end of an achilles rod, and any other joint unchanged.

    The universal joint prevents the spin of the rod about its axis.
    """
    if not joint.name.endswith("-achilles"):
        return joint
    rod = robot.report.frames[f"{joint.name}-rod"]
    axes = (_at_rest(robot, rod.body) @ rod.rotation)[:, [1, 2, 0]]
    points = {"point_a": joint.point_a, "point_b": joint.point_b}
    axes_a, axes_b = (_at_rest(robot, body).T @ axes for body in (joint.a, joint.b))
    return js.Universal(joint.name, joint.a, joint.b, axes_a=axes_a, axes_b=axes_b, **points)


def _at_rest(robot: CassieOnBlades, body: str) -> np.ndarray:
    """Return the rotation matrix of a body at rest (3, 3)."""
    link, frame = next((name, frame) for name, frame in robot.report.frames.items() if frame.body == body)
    rotation = robots.link_frame(robot.report, robot.system, robot.rest.q, link)[1]
    return np.asarray(rotation) @ frame.rotation.T


def pushed(standing: Standing, push: dict[str, float]) -> Any:
    """Return the state at rest with velocities of the pelvis, and what the rows make of the others."""
    names = standing.system.names.velocities
    v = (
        jnp.zeros_like(standing.rest.v)
        .at[jnp.asarray([names.index(name) for name in push])]
        .set(jnp.asarray(list(push.values())))
    )
    held = np.array([name in push for name in names])
    return jaxdae.initialize(standing.system, standing.rest.q, v, fixed_velocity=held)[0]


def scattered(standing: Standing, worlds: int, scatter: float, seed: int) -> Any:
    """Return the system with masses and inertias of all bodies scattered (worlds, ...)."""
    system = standing.system
    factors = 1.0 + scatter * np.random.default_rng(seed).standard_normal((worlds, len(system.mass)))
    factors = jnp.asarray(np.maximum(factors, 0.1))
    inertia = system.inertia * factors.reshape(*factors.shape, *(1,) * (system.inertia.ndim - 1))
    return jaxdae.tree.set_leaf(
        jaxdae.tree.set_leaf(system, "mass", system.mass * factors), "inertia", inertia
    )


def stand(standing: Standing, start: Any, dt: float, steps: int, save_every: int, systems: Any = None) -> Any:
    """Return the trajectory of one world, or of many with systems of their own, under the feedback."""
    method = jaxdae.Projected(jaxdae.SemiImplicitEuler())
    plan = {"dt": dt, "steps": steps, "save_every": save_every}
    if systems is None:
        return jaxdae.rollout(standing.system, method, start, standing.feedback, **plan)
    worlds = systems.mass.shape[0]
    starts = jax.tree.map(lambda x: jnp.broadcast_to(x, (worlds, *jnp.shape(x))), start)
    axes = (jaxdae.tree.batch_axes(systems, "mass", "inertia"), None, 0, None)
    layout = jaxdae.Layout(chunk=min(worlds, 64))
    return jaxdae.batch_rollout(
        systems, method, starts, standing.feedback, in_axes=axes, layout=layout, **plan
    )


# Everything.


def falls(
    config: Any, settings: Settings, method: Any, velocities: dict[str, float]
) -> tuple[dict[str, Fall], Any, Any]:
    """Return all falls by name, and system and states of that by jaxdae."""
    report, system, q = falling(settings.file)
    names = system.names.velocities
    v = (
        jnp.zeros((len(names),), q.dtype)
        .at[jnp.asarray([names.index(name) for name in velocities])]
        .set(jnp.asarray([*velocities.values()]))
    )
    start, _ = jaxdae.initialize(system, q, v)
    found, states = fall(system, method, start, config.dt, config.steps, config.save_every)
    made = {"jaxdae": found}
    try:
        importlib.import_module("mujoco")
    except ModuleNotFoundError:
        return made, system, states
    qpos, qvel = (np.asarray(x) for x in robots.to_mujoco(report, system, start))
    default = 2e-3
    steps = round(config.duration / default)
    made["MuJoCo, default"] = fall_of_mujoco(settings.file, qpos, qvel, steps, max(1, steps // 500), None)
    made["MuJoCo, stiff"] = fall_of_mujoco(
        settings.file, qpos, qvel, config.steps, config.save_every, config.dt
    )
    return made, system, states


def draw(name: str, made: dict[str, Fall], standing: Standing, used: np.ndarray, one: Any, many: Any) -> Any:
    """Return the figure: loop errors, energies, torques of the standing robot, and heights of the batch."""
    with styled() as figure_class:
        figure = figure_class(figsize=(11, 8), layout="constrained")
        (opening, energy), (torque, height) = figure.subplots(2, 2)
        for k, (label, x) in enumerate(made.items()):
            opening.plot(x.time, np.maximum(x.opening, 1e-17), label=label, **line_style(k))
            energy.plot(x.time, np.maximum(np.abs(x.energy), 1e-12), label=label, **line_style(k))
        opening.set(
            yscale="log",
            xlabel="time in s",
            ylabel="opening of the loops in m",
            title="falling without damping",
        )
        energy.set(
            yscale="log", xlabel="time in s", ylabel="energy error in J", title="falling without damping"
        )
        time = np.asarray(one.state.t)
        for k, joint in enumerate(standing.motors[: len(standing.motors) // 2]):
            torque.plot(time, used[:, k], label=joint.removeprefix("left-"), **line_style(k))
        torque.set(xlabel="time in s", ylabel="torque in N m", title="standing after a push, left leg")
        pelvis = list(standing.system.names.coordinates).index("cassie-pelvis.z")
        times, z = (
            np.asarray(many.state.t[0]),
            1e3 * (np.asarray(many.state.q)[:, :, pelvis] - float(standing.rest.q[pelvis])),
        )
        for one_world in z[:: max(1, len(z) // 64)]:
            height.plot(times, one_world, color=line_style(0)["color"], linewidth=0.5, alpha=0.4)
        height.set(
            xlabel="time in s",
            ylabel="height of the pelvis in mm",
            title=f"{len(z)} worlds with other masses",
        )
        for axes in (opening, torque):
            axes.legend(fontsize=8)
        figure.suptitle(name)
        return figure


def limbs(lines: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return the lines of bodies by the limb that they belong to, with gaps between them."""
    found: dict[str, list[np.ndarray]] = {}
    for name, line in lines.items():
        gap = np.full((len(line), 1, 3), np.nan)
        limb = "pelvis" if name == "cassie-pelvis" else f"{name.split('-')[0]} leg"
        found.setdefault(limb, []).extend([line, gap])
    return {limb: np.concatenate(parts[:-1], axis=1) for limb, parts in found.items()}


def main() -> int:
    """Run the experiment and return its exit code."""
    asked = script(CONFIG, __doc__)
    config = asked.config
    settings = jaxdae.app.settings(asked, Settings)
    if settings is None:
        return 2
    settings = settings.model_copy(update={"file": str(asked.folder / settings.file)})
    with precision(config):
        _, method, _ = asked.worlds.one()
        made, _, _ = falls(config, settings, method, dict(config.start.velocities))
        standing = on_blades(settings)
        start = pushed(standing, settings.push)
        one = stand(standing, start, config.dt, config.steps, config.save_every)
        systems = scattered(standing, settings.worlds, settings.scatter, config.batch.seed)
        steps = round(settings.worlds_duration / config.dt)
        many = stand(standing, start, config.dt, steps, config.save_every, systems)
        used = np.asarray(jax.vmap(standing.feedback)(one.state.t, one.state))
        poses = np.asarray(jax.vmap(lambda x: jm.to_absolute(standing.system, x).q)(one.state)).reshape(
            len(one.state.t), -1, 7
        )
    headings = ("what", "step, s", "opening of loops, m", "energy error, J", "at the end", "status")
    rows = [
        (f"falls: {name}", f"{x.dt:g}", f"{x.opening.max():.1e}", f"{np.abs(x.energy).max():.1e}", "", "OK")
        for name, x in made.items()
    ]
    off = np.asarray(one.state.q)[:, :3] - np.asarray(standing.rest.q)[:3]
    all_off = np.asarray(many.state.q)[:, -1, :3] - np.asarray(standing.rest.q)[:3]
    sizes = 1e3 * np.linalg.norm(off, axis=1), 1e3 * np.linalg.norm(all_off, axis=1)
    ends = (
        f"pelvis {sizes[0][-1]:.2g} mm off",
        f"pelvis {np.median(sizes[1]):.2g} mm off (median), {sizes[1].max():.2g} (most)",
    )
    for name, found, end in (("stands", one, ends[0]), (f"stands, {settings.worlds} worlds", many, ends[1])):
        status = jaxdae.Status(int(np.asarray(found.info.status).max())).name
        rows.append(
            (name, f"{config.dt:g}", f"{float(np.asarray(found.info.violation).max()):.1e}", "", end, status)
        )
    good = int(np.sum(np.asarray(many.info.status).max(axis=1) == jaxdae.Status.OK))
    peak = float(np.linalg.norm(off, axis=1).max())
    names, torques = standing.system.names, np.abs(np.asarray(standing.torques))
    sentences = [
        f"From {settings.file}: {len(names.velocities)} velocities, {len(names.rows)} rows with those of "
        "the blades.",
        f"At rest a knee takes {torques[3]:.1f} N m, a hip {torques[2]:.1f} N m to pitch; after the push "
        "the pelvis moves by"
        f" {1e3 * peak:.1f} mm, and no motor takes more than {np.abs(used).max():.1f} N m.",
        f"{good} of {settings.worlds} worlds stand with masses that scatter by {100 * settings.scatter:g} %.",
    ]
    if len(made) == 1:
        sentences.append("MuJoCo is not installed (the extra robots): nothing to compare the fall with.")
    mechanism: Any = config.mechanism
    lines = limbs(skeleton(mechanism, poses))
    shown = slice(None, max(2, round(1.5 / (config.dt * config.save_every))))
    conclude(
        asked,
        headings,
        rows,
        sentences,
        {"cassie": draw(config.name, made, standing, used, one, many)},
        lambda folder: write_animation(
            folder / "cassie.gif",
            np.asarray(one.state.t)[shown],
            {k: x[shown] for k, x in lines.items()},
            title="after the push",
            frames=40,
        ),
    )
    return 0 if good == settings.worlds and int(np.asarray(one.info.status).max()) == 0 else 1


if __name__ == "__main__":
    sys.exit(main())

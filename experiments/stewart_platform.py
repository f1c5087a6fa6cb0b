"""A Stewart platform on a path: the required motor forces, and the motion under these forces.

The platform is given a path, the legs follow from closing their loops, accelerations from the rows
differentiated twice. Inverse dynamics then solve M a = f + S^T tau + J^T lam for the six motor forces tau and
the 18 multipliers of the loops. Compared are: forward dynamics with these forces at the same states, in joint
and in absolute coordinates; the reactions of all joints in both forms; the balance of forces on the platform;
and a simulation that knows nothing but the forces over time, held over each step, against the path.

    python experiments/stewart_platform.py [CONFIG] [--set PATH=VALUE ...] [--out DIR]
"""

import sys
from typing import Annotated, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pydantic

import jaxdae
from jaxdae import mechanisms as jm
from jaxdae.app import conclude, line_style, precision, script, skeleton, styled, write_animation
from jaxdae.app.config.config_elements import description

CONFIG = "configs/stewart_platform.yaml"
LEGS = 6
Triple = Annotated[tuple[float, float, float], pydantic.Strict(False)]


class Path(pydantic.BaseModel, extra="forbid", strict=True):
    """The path of the platform about its middle pose: amplitudes in m and rad.

    It follows 1 - cos over time, so that it starts at rest.
    """

    shift: Triple
    turn: Triple
    frequency_hz: pydantic.PositiveFloat


class Settings(pydantic.BaseModel, extra="forbid", strict=True):
    """The section `experiment` of the config."""

    path: Path


class Motion(NamedTuple):
    """States (time,) on the path with accelerations (time, 24), and the worst result of the loop closure."""

    states: Any
    a: Any
    status: Any


class Found(NamedTuple):
    """Results of inverse dynamics: motor forces (time, 6) in N, multipliers (time, 18) and errors."""

    forces: Any
    lam: Any
    forward: Any
    absolute: Any
    reactions: Any
    balance: Any


def driven(config: Any) -> tuple[Any, Any, Any]:
    """Return the mechanism in joint and absolute coordinates with motors for leg springs, and its q."""
    values = config.model_dump()
    for index, force in enumerate(values["mechanism"]["forces"]):
        force |= {"input": index, "stiffness": 0.0, "force": 0.0}
    given = description(values)
    system, q = jm.mechanism(given, jm.Joints(cut=tuple(config.mechanism.cut)))
    return system, jm.mechanism(given)[0], q


def on_path(system: Any, q: Any, path: Path, times: Any) -> Motion:
    """Return the motion on a path at times (k,) in s."""
    names = system.names
    held = np.array([name.startswith("platform.") for name in names.velocities])
    place = np.array(
        [names.coordinates.index(f"platform.{c}") for c in ("x", "y", "z", "qw", "qx", "qy", "qz")]
    )
    shift, turn = jnp.asarray(path.shift), jnp.asarray(path.turn)

    def follow(t: Any) -> tuple[Any, Any]:
        """Return q of the platform (7,) and its velocities (6,)."""

        def way(t: Any) -> Any:
            # The frequencies differ, so that the path is no line.
            w = 2.0 * jnp.pi * path.frequency_hz * jnp.array([1.0, 2.0, 1.0])
            return shift * (1.0 - jnp.cos(w * t)) / 2.0, turn * (1.0 - jnp.cos(w[0] * t)) / 2.0

        (moved, turned), (velocity, rate) = jax.jvp(way, (t,), (jnp.ones_like(t),))
        # The axis of the turn stays, so that its rate is the angular velocity, in the world and in the body.
        quaternion = jaxdae.rotation.quat_multiply(q[place[3:]], jaxdae.rotation.quat_exp(turned))
        return jnp.concatenate([q[place[:3]] + moved, quaternion]), jnp.concatenate([velocity, rate])

    def at(t: Any) -> Motion:
        (pose, twist), (_, change) = jax.jvp(follow, (t,), (jnp.ones_like(t),))
        v = jnp.zeros((len(held),), q.dtype).at[np.flatnonzero(held)].set(twist)
        state, info = jaxdae.initialize(
            system, q.at[place].set(pose), v, t=t, fixed=held, fixed_velocity=held
        )
        jacobian, bias = (
            f(state.t, state.q, state.v) for f in (system.constraint_jacobian, system.constraint_bias)
        )
        legs = jnp.linalg.solve(jacobian[:, ~held], -bias - jacobian[:, held] @ change)
        a = jnp.zeros_like(v).at[np.flatnonzero(held)].set(change).at[np.flatnonzero(~held)].set(legs)
        return Motion(state, a, info.status)

    return jax.jit(jax.vmap(at))(jnp.asarray(times, q.dtype))


def inverse_dynamics(system: Any, absolute: Any, motion: Motion) -> Found:
    """Return the motor forces on a motion, and what forward dynamics and reactions say of them."""
    slides = np.array([system.names.velocities.index(f"leg{k}.slide_rate") for k in range(LEGS)])
    platform = absolute.body_names.index("platform")
    twist = slice(6 * platform, 6 * platform + 6)
    own = np.array([name.startswith("platform.") for name in system.names.velocities])

    def one(state: Any, a: Any) -> Found:
        t, q, v = state.t, state.q, state.v
        jacobian = system.constraint_jacobian(t, q, v)
        motors = jnp.zeros((len(a), LEGS), q.dtype).at[slides, np.arange(LEGS)].set(1.0)
        idle = system.force(t, q, v, jnp.zeros((LEGS,), q.dtype))
        solved = jnp.linalg.solve(
            jnp.concatenate([motors, jacobian.T], axis=1), system.mass_matrix(q) @ a - idle
        )
        forces, lam = solved[:LEGS], solved[LEGS:]
        back, theirs = jaxdae.forward_dynamics(system, state, forces)
        free = jm.to_absolute(system, state)
        a_free, lam_free = jaxdae.forward_dynamics(absolute, free, forces)
        in_joints = jm.reactions(system, state, theirs, forces)
        in_absolute = jm.reactions(absolute, free, lam_free, forces)
        order = np.array([in_absolute.names.index(name) for name in in_joints.names])
        apart = jnp.maximum(
            jnp.max(jnp.abs(in_joints.force - in_absolute.force[order])),
            jnp.max(jnp.abs(in_joints.torque - in_absolute.torque[order])),
        )
        balls = np.array([k for k, name in enumerate(in_joints.names) if name.startswith("ball")])
        lifted = jnp.sum(in_joints.force[balls], axis=0) + system.mass[platform] * system.gravity
        missing = jnp.max(jnp.abs(lifted - system.mass[platform] * a[own][:3]))
        return Found(
            forces, lam, jnp.max(jnp.abs(back - a)), jnp.max(jnp.abs(a_free[twist] - a[own])), apart, missing
        )

    return jax.jit(jax.vmap(one))(motion.states, motion.a)


def main() -> int:
    """Run the experiment and return its exit code."""
    asked = script(CONFIG, __doc__)
    config = asked.config
    settings = jaxdae.app.settings(asked, Settings)
    if settings is None:
        return 2
    with precision(config):
        system, absolute, q = driven(config)
        # Forces are held over a step: those in the middle of it; states are compared at the ends of steps.
        halves = on_path(system, q, settings.path, 0.5 * config.dt * np.arange(2 * config.steps + 1))
        middles, ends = (jax.tree.map(lambda x, first=first: x[first::2], halves) for first in (1, 0))
        found = inverse_dynamics(system, absolute, middles)
        _, method, _ = asked.worlds.one()
        start = jax.tree.map(lambda x: x[0], ends.states)
        trajectory = jaxdae.rollout(system, method, start, found.forces, dt=config.dt, steps=config.steps)
        frames, wanted = (
            jax.vmap(lambda q: system.frames(q).place.array())(x)
            for x in (trajectory.state.q, ends.states.q[1:])
        )
        away = np.linalg.norm(np.asarray(frames - wanted)[..., -1], axis=1)
        poses = np.asarray(jax.vmap(lambda x: jm.to_absolute(system, x).q)(trajectory.state)).reshape(
            config.steps, -1, 7
        )
    forces, status = np.asarray(found.forces), int(trajectory.info.status.max())
    checks = {
        "forward against inverse dynamics, joint coordinates, m/s^2 or rad/s^2": found.forward,
        "the platform in absolute coordinates, m/s^2 or rad/s^2": found.absolute,
        "reactions of all joints in both forms, N or N m": found.reactions,
        "balls, weight and acceleration of the platform, N": found.balance,
        "opening of the loops in the simulation, m": trajectory.info.violation,
        "the simulated platform off its path, m": away,
    }
    rows = [(what, f"{float(np.max(np.asarray(error))):.2e}") for what, error in checks.items()]
    assembled = int(np.max(np.asarray(ends.status)))
    weight = float(np.asarray(system.mass)[system.body_names.index("platform")]) * 9.81
    sentences = [
        f"Motor forces go from {forces.min():.1f} N to {forces.max():.1f} N; the platform weighs "
        f"{weight:.1f} N.",
        f"All poses of the path can be assembled: {jaxdae.Status(assembled).name}; the simulation ended "
        f"with {jaxdae.Status(status).name}.",
    ]
    time = config.dt * np.arange(1, config.steps + 1)
    with styled() as figure_class:
        figure = figure_class(figsize=(9, 7.5), layout="constrained")
        upper, middle, lower = figure.subplots(3, 1, sharex=True)
        for k in range(LEGS):
            slide = system.names.coordinates.index(f"leg{k}.slide")
            upper.plot(time, np.asarray(trajectory.state.q)[:, slide], label=f"leg {k}", **line_style(k))
            middle.plot(time - 0.5 * config.dt, forces[:, k], **line_style(k))
        lower.plot(time, away, color="black", linewidth=1.0)
        upper.set(ylabel="slide in m", title=f"{config.name}: legs on the path")
        middle.set(ylabel="motor force in N")
        lower.set(ylabel="off the path\nin m", xlabel="time in s", yscale="log")
        figure.legend(loc="outside right center")
    mechanism: Any = config.mechanism
    lines = skeleton(mechanism, poses)
    conclude(
        asked,
        ("comparison", "largest difference"),
        rows,
        sentences,
        {"stewart_platform": figure},
        lambda folder: write_animation(
            folder / "stewart_platform.gif", time, lines, title=config.name, frames=60
        ),
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""A Delta robot picks and places with computed torque through its loops, and along the path of least torque.

    python experiments/delta_robot.py [CONFIG] [--set PATH=VALUE ...] [--out DIR]

The tool goes from one place to another and lifts half way. Three motors drive it; the accelerations that a
torque makes are those of the robot with its 15 rows, nothing is eliminated by hand. The first way is

    y(s) = pick + (place - pick) m(s) + lift w(s) e_z,    m = s^3 (10 - 15 s + 6 s^2),    w = 64 s^3 (1 - s)^3,    s = t / duration,

from rest to rest with continuous accelerations. Then it may leave that way along each axis by w(s) times
Legendre polynomials of 2 s - 1, along z with a further factor 2 s - 1, which keeps the height half way. Their
coefficients are found by Levenberg-Marquardt, with the torques of inverse dynamics at many times for
residuals, differentiated through the closing of the loops. All ways are simulated under computed torque,
which the controller holds over a step. At last the robot carries something that it does not know of.
"""

import sys
from typing import Annotated, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pydantic

import jaxdae
from jaxdae import control, robots, tuning
from jaxdae import mechanisms as jm
from jaxdae.app import conclude, line_style, precision, script, skeleton, styled, write_animation
from jaxdae.app.config.config_elements import description

CONFIG = "configs/delta_robot.yaml"
Triple = Annotated[tuple[float, float, float], pydantic.Strict(False)]


class Settings(pydantic.BaseModel, extra="forbid", strict=True):
    """The section `experiment` of the config."""

    tool: Triple
    pick: Triple
    place: Triple
    lift: pydantic.PositiveFloat
    kp: pydantic.PositiveFloat
    kd: pydantic.PositiveFloat
    shapes: pydantic.PositiveInt
    every: pydantic.PositiveInt
    iterations: pydantic.PositiveInt
    payload: pydantic.PositiveFloat


@jaxdae.tree.pytree
class Way:
    """The way of the tool over time.

    Attributes:
        pick: (3,) in m.
        place: (3,) in m.
        lift: in m.
        duration: in s.
        shape: (shapes, 3) in m, zero for the first way.
    """

    pick: Any
    place: Any
    lift: Any
    duration: Any
    shape: Any

    def __call__(self, t):
        """Return the place (3,) in m at time t; before and after the motion those of its ends."""
        s = jnp.clip(t / self.duration, 0.0, 1.0)
        along, bump, x = s**3 * (10.0 - 15.0 * s + 6.0 * s**2), 64.0 * (s * (1.0 - s)) ** 3, 2.0 * s - 1.0
        legendre = [jnp.ones_like(x), x]
        for k in range(2, self.shape.shape[0]):
            legendre.append(((2 * k - 1) * x * legendre[-1] - (k - 1) * legendre[-2]) / k)
        sway = bump * jnp.stack(legendre[: self.shape.shape[0]]) @ self.shape
        sway = sway * jnp.stack([jnp.ones_like(x), jnp.ones_like(x), x])
        return (
            self.pick
            + (self.place - self.pick) * along
            + sway
            + jnp.stack([0.0 * x, 0.0 * x, self.lift * bump])
        )


class Robot(NamedTuple):
    """The robot with motors and tool, the integrator, and the start at rest at the first tool position."""

    system: Any
    tool: Any
    method: Any
    start: Any


class Motion(NamedTuple):
    """One motion: trajectory, torques (steps, 3) in N m, tool and target positions (steps, 3) in m."""

    trajectory: Any
    torques: Any
    tool: Any
    wanted: Any


def robot(config: Any, settings: Settings, method: Any) -> Robot:
    """Return the robot of the config, whose torques become inputs."""
    values = config.model_dump()
    for index, force in enumerate(values["mechanism"]["forces"]):
        force |= {"input": index}
    system, q = jm.mechanism(description(values), jm.Joints(cut=tuple(config.mechanism.cut)))
    tool = robots.LinkPlace(system, system.body_names.index("platform"), jnp.asarray(settings.tool))
    held = control.WithGoals(system, (control.Goal(tool, jnp.asarray(settings.pick)),))
    return Robot(system, tool, method, jaxdae.initialize(held, q)[0])


def first_way(config: Any, settings: Settings) -> Way:
    """Return the way without sway."""
    numbers = (jnp.asarray(x, float) for x in (settings.pick, settings.place, settings.lift, config.duration))
    return Way(*numbers, jnp.zeros((settings.shapes, 3)))


def law(at: Robot, way: Way, settings: Settings) -> control.ComputedTorque:
    """Return computed torque along a way."""
    return control.ComputedTorque(
        model=at.system,
        output=at.tool,
        reference=way,
        kp=settings.kp,
        kd=settings.kd,
        solver=jaxdae.SchurComplement(),
    )


def move(at: Robot, way: Way, settings: Settings, dt: float, steps: int, system: Any = None) -> Motion:
    """Return the motion along a way; of another system than the controller's where one is given."""
    chosen = law(at, way, settings)
    method = control.Sampled(at.method, chosen)
    trajectory = jaxdae.rollout(at.system if system is None else system, method, at.start, dt=dt, steps=steps)
    states = trajectory.state
    torques = jax.vmap(chosen)(states.t, states)
    return Motion(trajectory, torques, jax.vmap(at.tool)(states.q), jax.vmap(way)(states.t))


def inverse(at: Robot, way: Way, t: Any, guess: Any) -> tuple[Any, Any]:
    """Return the torques (3,) in N m along a path at time t in s, and the result of the loop closure there.

    The way is three rows more, which determine q, v and a together with those of the loops; then M a = f +
    S^T tau + J^T lam is solved for torques and multipliers.
    """
    system = at.system
    led = control.WithGoals(system, (control.Goal(at.tool, way),))
    state, info = jaxdae.initialize(led, guess, t=t)
    t, q, v = state.t, state.q, state.v
    rows = len(system.names.rows)
    jacobian = led.constraint_jacobian(t, q, v)
    a = jnp.linalg.solve(jacobian, -led.constraint_bias(t, q, v))
    idle = jnp.zeros((3,), q.dtype)
    motors = jax.jacfwd(lambda u: system.force(t, q, v, u))(idle)
    forces = jnp.concatenate([motors, jacobian[:rows].T], axis=1)
    return jnp.linalg.solve(forces, system.mass_matrix(q) @ a - system.force(t, q, v, idle))[:3], info.status


def least_torques(at: Robot, way: Way, settings: Settings, times: Any, guesses: Any) -> Any:
    """Return the search result for the path shape with the least mean square torque at times (k,) in s.

    Args:
        at: the robot.
        way: the first way.
        settings: how many iterations.
        times: in s.
        guesses: coordinates (k, nq) there on the first way.
    """

    def residual(parameters: Way) -> Any:
        return jax.vmap(lambda t, q: inverse(at, parameters, t, q)[0])(times, guesses) / np.sqrt(times.size)

    return tuning.least_squares(
        residual, way, trainable=("shape",), iterations=settings.iterations, tolerance=1e-6
    )


def loaded(at: Robot, settings: Settings) -> Any:
    """Return the system with a payload, a point at the mass center of the platform."""
    system, k = at.system, at.system.body_names.index("platform")
    return jaxdae.tree.set_leaf(system, "mass", system.mass.at[k].add(settings.payload))


def main() -> int:
    """Run the experiment and return its exit code."""
    asked = script(CONFIG, __doc__)
    config = asked.config
    settings = jaxdae.app.settings(asked, Settings)
    if settings is None:
        return 2
    plan = config.dt, config.steps
    with precision(config):
        _, method, _ = asked.worlds.one()
        at = robot(config, settings, method)
        way = first_way(config, settings)
        run = jax.jit(lambda way, system: move(at, way, settings, *plan, system=system))
        made = {"first way": run(way, at.system)}
        chosen = slice(settings.every - 1, None, settings.every)
        states = made["first way"].trajectory.state
        found = least_torques(at, way, settings, states.t[chosen], states.q[chosen])
        made["least torques"] = run(found.parameters, at.system)
        made["with the payload"] = run(found.parameters, loaded(at, settings))
        poses = np.asarray(
            jax.vmap(lambda x: jm.to_absolute(at.system, x).q)(made["least torques"].trajectory.state)
        )
        made = jax.device_get(made)
    rows = []
    for name, x in made.items():
        off = 1e6 * np.linalg.norm(np.asarray(x.tool - x.wanted), axis=1)
        u, info = np.asarray(x.torques), x.trajectory.info
        status = jaxdae.Status(int(info.status.max())).name
        opening = f"{float(info.violation.max()):.1e}"
        rows.append(
            (
                name,
                f"{np.sqrt(np.mean(u**2)):.3f}",
                f"{np.abs(u).max():.2f}",
                f"{off.max():.2g}",
                f"{off[-1]:.2g}",
                opening,
                status,
            )
        )
    rms = [
        float(np.sqrt(np.mean(np.asarray(made[name].torques) ** 2)))
        for name in ("first way", "least torques")
    ]
    apart = np.linalg.norm(np.asarray(made["least torques"].wanted - made["first way"].wanted), axis=1)
    sentences = [
        f"The way found takes {100 * (1 - rms[1] / rms[0]):.1f} % less torque (root mean square) than the "
        "first one, after"
        f" {int(found.iterations)} iterations with {3 * settings.shapes} numbers.",
        f"It leaves the first way by up to {1e3 * apart.max():.0f} mm.",
    ]
    time = config.dt * np.arange(1, config.steps + 1)
    with styled() as figure_class:
        figure = figure_class(figsize=(11, 7), layout="constrained")
        grid = figure.add_gridspec(2, 2)
        side, errors, torques = (
            figure.add_subplot(grid[0, 0]),
            figure.add_subplot(grid[0, 1]),
            figure.add_subplot(grid[1, :]),
        )
        for k, (name, x) in enumerate(made.items()):
            style = line_style(k)
            if k < 2:
                side.plot(1e3 * np.asarray(x.tool)[:, 0], 1e3 * np.asarray(x.tool)[:, 2], label=name, **style)
                for motor in range(3):
                    torques.plot(
                        time,
                        np.asarray(x.torques)[:, motor],
                        label=f"{name}, motor {motor}",
                        alpha=1.0 - 0.3 * motor,
                        **style,
                    )
            off = 1e3 * np.linalg.norm(np.asarray(x.tool - x.wanted), axis=1)
            errors.plot(time, np.maximum(off, 1e-9), label=name, **style)
        side.set(xlabel="x in mm", ylabel="z in mm", title="way of the tool, from the side", aspect="equal")
        errors.set(yscale="log", xlabel="time in s", ylabel="off the way in mm", title="error of the tool")
        torques.set(xlabel="time in s", ylabel="torque in N m", title="torques of the motors")
        for axes in (side, errors):
            axes.legend(fontsize=8)
        torques.legend(fontsize=8, ncols=2)
    mechanism: Any = config.mechanism
    lines = skeleton(mechanism, poses.reshape(config.steps, -1, 7))
    headings = (
        "motion",
        "torque, rms, N m",
        "largest, N m",
        "tool off, um",
        "at the end, um",
        "opening of loops, m",
        "status",
    )
    trace = {"tool": np.asarray(made["least torques"].tool)}
    conclude(
        asked,
        headings,
        rows,
        sentences,
        {"delta_robot": figure},
        lambda folder: write_animation(
            folder / "delta_robot.gif", time, lines, traces=trace, title="least torques", frames=40
        ),
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())

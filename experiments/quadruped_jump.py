"""A quadruped jump: optimal torques through switching contacts, from takeoff to landing.

    python experiments/quadruped_jump.py [CONFIG] [--set PATH=VALUE ...] [--out DIR]

Each pair of feet has two rows, its height (position level) and its velocity along the ground (velocity
level), which `Switching` puts on and takes off: a foot lets go when it would have to pull, and is pinned,
with an impulse, where it strikes. Instants are located within the step, and differentiated. Motors follow

    tau_i = feedforward_i(t) - kp (angle_i - angle_i of the start) - kd rate_i,

where the feedforward, linear between knots and bounded, is found by Levenberg-Marquardt through the rollout
with all of its switchings. Wanted are the height of the mass center at one time, neither rise nor turning
there, rest in the posture of the start at the end, and little torque. The search begins with torques that
hold the start, raised for a while.
"""

import sys
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pydantic

import jaxdae
from jaxdae import control, tuning
from jaxdae import mechanisms as jm
from jaxdae.app import conclude, line_style, precision, script, styled, write_animation
from jaxdae.app.config.config_elements import description

CONFIG = "configs/quadruped_jump.yaml"
PAIRS = ("hind", "fore")
MOTORS = ("hind hip", "hind knee", "fore hip", "fore knee")

Pair = pydantic.conlist(float, min_length=2, max_length=2)


class Apex(pydantic.BaseModel, extra="forbid", strict=True):
    """When the mass center is to be how far above where it began."""

    time: pydantic.PositiveFloat
    height: pydantic.PositiveFloat


class Push(pydantic.BaseModel, extra="forbid", strict=True):
    """Where the search begins: by what factor the torques that hold the start are raised until when, in s."""

    factor: pydantic.PositiveFloat
    until: pydantic.PositiveFloat


class Weights(pydantic.BaseModel, extra="forbid", strict=True):
    """What counts as much as one another."""

    height: pydantic.PositiveFloat
    motion: pydantic.PositiveFloat
    angles: pydantic.PositiveFloat
    torque: pydantic.PositiveFloat


class Settings(pydantic.BaseModel, extra="forbid"):
    """The section `experiment` of the config."""

    feet: dict[str, Pair]  # pyright: ignore[reportInvalidTypeForm]
    limit: pydantic.PositiveFloat
    kp: pydantic.PositiveFloat
    kd: pydantic.PositiveFloat
    push: Push
    knots: pydantic.PositiveInt
    apex: Apex
    events: pydantic.NonNegativeInt
    iterations: pydantic.PositiveInt
    weights: Weights


@jaxdae.tree.pytree(kw_only=True)
class OnGround(jaxdae.System):
    """A mechanism over the ground y = 0: rows are the heights of two points, then their velocities along x.

    Attributes:
        mechanism: without rows of its own.
        points: (2, 2) in the frames of their bodies, in m.
        bodies: the numbers of the two bodies (static).
    """

    mechanism: Any
    points: Any
    bodies: tuple[int, ...] = jaxdae.tree.static()

    def mass_matrix(self, q):
        """Return that of the mechanism."""
        return self.mechanism.mass_matrix(q)

    def mass_operator(self, q):
        """Return that of the mechanism."""
        return self.mechanism.mass_operator(q)

    def force(self, t, q, v, u):
        """Return that of the mechanism."""
        return self.mechanism.force(t, q, v, u)

    def potential_energy(self, t, q):
        """Return that of the mechanism."""
        return self.mechanism.potential_energy(t, q)

    def constraint(self, t, q):
        """Return the heights of the feet in m."""
        return self.feet(q)[:, 1]

    def velocity_constraint(self, t, q, v):
        """Return the velocities of the feet along the ground in m/s."""
        return jax.jvp(self.feet, (q,), (v,))[1][:, 0]

    def feet(self, q):
        """Return the places of the feet (2, 2) in m."""
        frames = self.mechanism.frames(q)
        each = [jax.tree.map(lambda entry, k=k: entry[k], frames) for k in self.bodies]
        return jnp.stack([frame.point(self.points[i]).array() for i, frame in enumerate(each)])


@jaxdae.tree.pytree(kw_only=True)
class Motors:
    """The law of the motors.

    Attributes:
        knots: (knots + 1, 4) feedforward in N m.
        span: in s, from the first knot to the last.
        posture: (4,) in rad.
        kp: in N m/rad.
        kd: in N m s/rad.
        angles: which coordinates and velocities are those of the motors (static).
    """

    knots: Any
    span: Any
    posture: Any
    kp: Any
    kd: Any
    angles: tuple[int, ...] = jaxdae.tree.static()

    def __call__(self, t, state):
        """Return the torques (4,) in N m."""
        at = jnp.asarray(self.angles)
        return self.feedforward(t) - self.kp * (state.q[at] - self.posture) - self.kd * state.v[at]

    def feedforward(self, t):
        """Return what does not depend on the state (4,) in N m: hats about the knots, whose sum is one."""
        count = self.knots.shape[0]
        hats = jnp.maximum(
            0.0, 1.0 - jnp.abs(t / self.span * (count - 1) - jnp.arange(count, dtype=self.knots.dtype))
        )
        return hats @ self.knots


class Jumper(NamedTuple):
    """The quadruped with all rows active.

    It has the system, the integrator, the start, the motors without feedforward, the step in s and the number
    of steps.
    """

    system: Any
    method: Any
    start: Any
    motors: Motors
    dt: float
    steps: int


def jumper(config: Any, settings: Settings, method: Any) -> Jumper:
    """Return the quadruped of the config on its feet."""
    values = config.model_dump()
    for index, force in enumerate(values["mechanism"]["forces"]):
        force |= {"input": index}
    mechanism, q = jm.mechanism(description(values), jm.Joints())
    points = jnp.asarray([settings.feet[f"{pair}_shin"] for pair in PAIRS])
    ground = OnGround(
        mechanism=mechanism,
        points=points,
        bodies=tuple(mechanism.body_names.index(f"{pair}_shin") for pair in PAIRS),
    )
    system = jaxdae.Masked(ground, jnp.ones((4,), bool))
    law = jaxdae.switching.Unilateral(jnp.ones((4,)), (0, 1, 0, 1))
    start = jaxdae.initialize(system, q)[0]
    angles = tuple(mechanism.names.coordinates.index(f"{motor.replace(' ', '_')}.angle") for motor in MOTORS)
    motors = Motors(
        knots=jnp.zeros((settings.knots + 1, 4)),
        span=jnp.asarray(config.steps * config.dt),
        posture=start.q[jnp.asarray(angles)],
        kp=jnp.asarray(settings.kp),
        kd=jnp.asarray(settings.kd),
        angles=angles,
    )
    return Jumper(
        system,
        jaxdae.switching.Switching(method, law, settings.events),
        start,
        motors,
        config.dt,
        config.steps,
    )


def center(at: Jumper, q: Any) -> Any:
    """Return the mass center (2,) in m."""
    mechanism = at.system.system.mechanism
    frames = mechanism.frames(q)
    return mechanism.mass @ jnp.stack([frames.place.x, frames.place.y], axis=-1) / jnp.sum(mechanism.mass)


def jump(at: Jumper, knots: Any) -> Any:
    """Return the trajectory with a feedforward of these knots (knots + 1, 4) in N m."""
    law = jaxdae.tree.set_leaf(at.motors, "knots", knots)
    return jaxdae.rollout(at.system, at.method, at.start, law, dt=at.dt, steps=at.steps)


def torques(at: Jumper, knots: Any, states: Any) -> Any:
    """Return the torques (steps, 4) in N m at states of a trajectory."""
    return jax.vmap(jaxdae.tree.set_leaf(at.motors, "knots", knots))(states.t, states)


def first_torques(at: Jumper, settings: Settings) -> Any:
    """Return the torques at knots (knots + 1, 4) in N m that hold the start, raised for a while."""
    held = control.static_inputs(at.system, at.start, 4)
    times = jnp.linspace(0.0, at.motors.span, settings.knots + 1)
    raised = jnp.where(times < settings.push.until, settings.push.factor, 1.0)[:, None] * held
    return jnp.clip(raised, -0.9 * settings.limit, 0.9 * settings.limit)


def residuals(at: Jumper, settings: Settings, knots: Any, states: Any) -> Any:
    """Return what is to be small, at the states of the jump with these knots."""
    weights = settings.weights
    k = round(settings.apex.time / at.dt) - 1
    height, rise = jax.jvp(lambda q: center(at, q)[1], (states.q[k],), (states.v[k],))
    wanted = center(at, at.start.q)[1] + settings.apex.height
    turning = at.system.system.mechanism.names.coordinates.index("trunk.theta")
    angles = jnp.asarray((turning, *at.motors.angles))
    posture = (states.q[-1] - at.start.q)[angles] / weights.angles
    there = [(height - wanted) / weights.height, rise / weights.motion, states.v[k][turning] / weights.motion]
    effort = jnp.ravel(torques(at, knots, states)) / weights.torque * np.sqrt(1.0 / at.steps)
    return jnp.concatenate([jnp.stack(there), states.v[-1] / weights.motion, posture, effort])


def optimized(at: Jumper, settings: Settings, first: Any) -> Any:
    """Return the result of the search."""
    return tuning.least_squares(
        lambda p: residuals(at, settings, p["torque"], jump(at, p["torque"]).state),
        {"torque": first},
        trainable={"torque": tuning.Between(-settings.limit, settings.limit)},
        iterations=settings.iterations,
        max_step=0.5,
        tolerance=1e-5,
    )


def outline(at: Jumper, states: Any) -> dict[str, np.ndarray]:
    """Return the lines of trunk and legs over time (time, points, 2) in m."""
    mechanism = at.system.system.mechanism

    def ends(q: Any) -> Any:
        frames = mechanism.frames(q)

        def line(name: str, *points: Any) -> list[Any]:
            frame = jax.tree.map(lambda entry: entry[mechanism.body_names.index(name)], frames)
            return [frame.point(jnp.asarray(point)).array() for point in points]

        legs = {
            f"{pair} legs": jnp.stack(
                [*line(f"{pair}_thigh", (0.0, 0.1), (0.0, -0.1)), *line(f"{pair}_shin", (0.0, -0.1))]
            )
            for pair in PAIRS
        }
        return {"trunk": jnp.stack(line("trunk", (-0.2, 0.0), (0.2, 0.0))), **legs}

    return {name: np.asarray(x) for name, x in jax.vmap(ends)(states.q).items()}


def main() -> int:
    """Run the experiment and return its exit code."""
    asked = script(CONFIG, __doc__)
    config = asked.config
    settings = jaxdae.app.settings(asked, Settings)
    if settings is None:
        return 2
    with precision(config):
        _, method, _ = asked.worlds.one()
        at = jumper(config, settings, method)
        first = first_torques(at, settings)
        found = optimized(at, settings, first)
        knots = {"start of the search": first, "optimized": found.parameters["torque"]}
        run = jax.jit(lambda knots: jump(at, knots))
        made = {name: run(x) for name, x in knots.items()}
        heights = {
            name: np.asarray(jax.vmap(lambda q: center(at, q)[1])(x.state.q)) for name, x in made.items()
        }
        begun = float(center(at, at.start.q)[1])
        feet = np.asarray(jax.vmap(at.system.system.feet)(made["optimized"].state.q))
        lines = outline(at, made["optimized"].state)
        efforts = {name: np.asarray(torques(at, knots[name], x.state)) for name, x in made.items()}
        # A little off the optimum, where the derivative is not zero.
        cost = jax.jit(
            lambda p, d: jax.jvp(
                lambda p: 0.5 * jnp.sum(residuals(at, settings, p, jump(at, p).state) ** 2), (p,), (d,)
            )
        )
        off, direction, h = 0.98 * knots["optimized"], jnp.ones_like(knots["optimized"]), 1e-5
        exact = float(cost(off, direction)[1])
        ahead, behind = (float(cost(off + side * h * direction, direction)[0]) for side in (1, -1))
        differenced = (ahead - behind) / (2.0 * h)
    time = config.dt * np.arange(1, config.steps + 1)
    k = round(settings.apex.time / config.dt) - 1
    rows = []
    for name, x in made.items():
        info = x.info
        on = np.asarray(info.active)[:, :2]
        rows.append(
            (
                name,
                f"{heights[name][k] - begun:.4f}",
                f"{config.dt * int(np.sum(~on.any(axis=1))):.2f}",
                f"{float(np.abs(np.asarray(x.state.v[-1])).max()):.2g}",
                f"{np.abs(efforts[name]).max():.1f}",
                f"{float(np.abs(np.asarray(x.info.velocity_violation)).max()):.1e}",
                jaxdae.Status(int(np.asarray(info.status).max())).name,
            )
        )
    active = np.asarray(made["optimized"].info.active)[:, :2]
    switches = int(np.sum(active[1:] != active[:-1]))
    sentences = [
        f"After {int(found.iterations)} iterations with {first.size} torques "
        f"({jaxdae.Status(int(found.status)).name}) the cost is"
        f" {float(found.cost):.3g}; the pairs of feet switch {switches} times.",
        f"With 0.98 of these torques the derivative of the cost for all of them together is {exact:.8g} "
        "through the switchings,"
        f" {differenced:.8g} by differences of {h:g} N m.",
        f"The lowest foot of the optimized motion is at {1e3 * feet[:, :, 1].min():.2g} mm.",
    ]
    with styled() as figure_class:
        figure = figure_class(figsize=(9, 8), layout="constrained")
        upper, middle, lower = figure.subplots(3, 1, sharex=True)
        for i, (name, height) in enumerate(heights.items()):
            upper.plot(time, height - begun, label=name, **line_style(i))
        upper.plot(
            [settings.apex.time], [settings.apex.height], "o", color="black", markersize=5, label="wanted"
        )
        for i, pair in enumerate(PAIRS):
            middle.plot(time, feet[:, i, 1], label=f"{pair} feet", **line_style(i))
        for i, motor in enumerate(MOTORS):
            lower.plot(time, efforts["optimized"][:, i], label=motor, **line_style(i))
        upper.set(ylabel="mass center above\nits start in m", title=config.name)
        middle.set(ylabel="height of the feet\nin m (optimized)")
        lower.set(ylabel="torque in N m\n(optimized)", xlabel="time in s")
        for axes in (upper, middle, lower):
            axes.legend(fontsize=8, loc="upper right")
    headings = (
        "torques",
        "height wanted at, m",
        "in the air, s",
        "speed at the end, m/s or rad/s",
        "largest torque, N m",
        "open",
        "status",
    )
    conclude(
        asked,
        headings,
        rows,
        sentences,
        {"quadruped_jump": figure},
        lambda folder: write_animation(
            folder / "quadruped_jump.gif", time, lines, title="optimized", frames=60
        ),
    )
    return 0 if int(np.asarray(made["optimized"].info.status).max()) == 0 else 1


if __name__ == "__main__":
    sys.exit(main())

"""Is model-predictive control of a constrained cart-pole, and of an arm of seven joints, fast enough for 100 Hz?

    python experiments/mpc.py [CONFIG] [--set PATH=VALUE ...] [--out DIR]

The cart-pole is a mechanism in absolute coordinates, six of them with four rows. From rest with the pole down, a force within its limit is
to swing it up and to hold it there; a push halfway through the second half disturbs it. The model takes long steps of a method of first
order, the motion that is controlled short ones of RK4: the feedback has to make up for the difference.

The arm has seven revolute joints, turn and bend in turn, in joint coordinates. It goes to a posture, and halfway back.

Every period the problem is solved anew from the state, for one or two passes of iLQR from the last solution, shifted. The times are those
of one such solution as a compiled program, over states that the motion passed through.
"""

import dataclasses
import sys
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pydantic
import swing_up

import jaxdae
from jaxdae import control, optimal_control
from jaxdae import mechanisms as jm
from jaxdae.app import conclude, line_style, precision, script, styled
from jaxdae.mechanisms import spatial as js

CONFIG = "configs/mpc.yaml"
JOINTS = 7
POSTURES = ((0.0, 0.4, 0.0, 0.8, 0.0, 0.5, 0.0), (0.9, -0.5, 0.6, 1.2, -0.5, -0.4, 0.8))
PUSH = 0.4  # rad/s, of the pole


class Horizon(pydantic.BaseModel, extra="forbid", strict=True):
    """How far a controller looks ahead, and how."""

    stages: pydantic.PositiveInt
    every: pydantic.PositiveInt
    model_dt: pydantic.PositiveFloat
    limit: pydantic.PositiveFloat
    iterations: pydantic.PositiveInt


class Settings(pydantic.BaseModel, extra="forbid", strict=True):
    """The section `experiment` of the config."""

    period: pydantic.PositiveFloat
    cart: Horizon
    arm: Horizon
    arm_duration: pydantic.PositiveFloat
    repeats: pydantic.PositiveInt


@dataclasses.dataclass(frozen=True)
class Case:
    """A system under model-predictive control.

    Attributes:
        name: for the report.
        plant: how the motion that is controlled is integrated.
        law: the controller.
        start: of the motion.
        duration: in s.
        error: from stacked states, what is to become zero (time, k).
        push: of the velocities (nv,) halfway through the second half.
    """

    name: str
    plant: Any
    law: optimal_control.ModelPredictive
    start: jaxdae.State
    duration: float
    error: Any
    push: Any


def planned(system: Any, start: Any, horizon: Horizon, integrator: Any, running: Any, final: Any, guess: Any) -> Any:
    """Returns the law whose first plan is solved to the end."""
    problem = optimal_control.Problem(
        system=system,
        integrator=integrator,
        state=start,
        dt=horizon.model_dt,
        steps=horizon.stages * horizon.every,
        every=horizon.every,
        running=running,
        final=final,
        lower=-horizon.limit,
        upper=horizon.limit,
    ).counted()
    first = optimal_control.ilqr(problem, guess, iterations=60, tolerance=1e-6)
    return optimal_control.ModelPredictive(problem=problem, guess=first.controls, iterations=horizon.iterations)


def cart_pole(config: Any, worlds: Any, horizon: Horizon) -> Case:
    """Returns the cart-pole of the config."""
    plain, integrator, start = worlds.one()
    system = swing_up.driven(plain, ["motor"])
    start = jaxdae.State(start.t, start.q, jnp.zeros_like(start.v))

    def cost(state: Any) -> Any:
        # 1 - sin: no angle is preferred among its turns.
        return 4.0 * (1.0 - jnp.sin(state.q[5])) + 0.5 * state.q[0] ** 2 + 0.05 * state.v[5] ** 2 + 0.05 * state.v[0] ** 2

    def running(state: Any, u: Any) -> Any:
        return cost(state) + 1e-3 * jnp.sum(u**2)

    def error(states: Any) -> Any:
        return np.stack([np.asarray(states.q[:, 0]), np.asarray(states.q[:, 5]) - 0.5 * np.pi], axis=1)

    model = jaxdae.Projected(jaxdae.SemiImplicitEuler())
    guess = 3.0 * jnp.sin(jnp.arange(horizon.stages) * 0.4)[:, None]
    law = planned(system, start, horizon, model, running, lambda state: 10.0 * cost(state), guess)
    push = jnp.zeros(6).at[3:].set(PUSH * jnp.array([-0.5, 0.0, 1.0]))  # of the upright pole about its pin
    return Case("cart-pole", integrator, law, start, config.duration, error, push)


def arm_of_seven() -> tuple[Any, Any]:
    """Returns an arm of seven revolute joints, 0.15 m apart, with a motor in each, and its coordinates upright."""
    length, bodies, joints, forces = 0.15, [], [], []
    for k in range(JOINTS):
        mass = 3.0 - 0.35 * k
        moments = (mass * (length**2 / 12.0 + 0.0012), mass * (length**2 / 12.0 + 0.0012), mass * 0.0012)
        bodies.append(js.Body(f"link{k}", mass, moments, place=(0.0, 0.0, (k + 0.5) * length)))
        axis = (0.0, 0.0, 1.0) if k % 2 == 0 else (0.0, 1.0, 0.0)
        parent = f"link{k - 1}" if k else "ground"
        joints.append(js.Revolute(f"joint{k}", parent, f"link{k}", axis=axis, at=(0.0, 0.0, k * length), damping=0.1, armature=0.1))
        forces.append(js.JointForce(f"motor{k}", f"joint{k}", input=k))
    return jm.spatial_mechanism(bodies, joints, forces, gravity=(0.0, 0.0, -9.81), coordinates=jm.Joints())


def arm(duration: float, horizon: Horizon) -> Case:
    """Returns the arm, which goes to the second posture and halfway back."""
    system, _ = arm_of_seven()
    postures = jnp.asarray(POSTURES)
    start = jaxdae.State(jnp.zeros(()), postures[0], jnp.zeros(JOINTS))
    holding = jax.vmap(lambda q: control.static_inputs(system, jaxdae.State(jnp.zeros(()), q, jnp.zeros(JOINTS))))(postures)

    def wanted(t: Any, of: Any) -> Any:
        return jnp.where(t < 0.5 * duration, of[1], of[0])

    def cost(state: Any) -> Any:
        return 5.0 * jnp.sum((state.q - wanted(state.t, postures)) ** 2) + 0.1 * jnp.sum(state.v**2)

    def running(state: Any, u: Any) -> Any:
        return cost(state) + 1e-4 * jnp.sum((u - wanted(state.t, holding)) ** 2)

    def error(states: Any) -> Any:
        return np.asarray(states.q - jax.vmap(lambda t: wanted(t, postures))(states.t - 1e-9))

    guess = jnp.tile(holding[0], (horizon.stages, 1))
    law = planned(system, start, horizon, jaxdae.SemiImplicitEuler(), running, lambda state: 10.0 * cost(state), guess)
    return Case("arm of seven joints", jaxdae.RungeKutta.rk4(), law, start, duration, error, jnp.zeros(JOINTS))


def motion(case: Case, dt: float, every: int) -> tuple[Any, np.ndarray, Any]:
    """Returns the states, the inputs of all instants, and the last plan; the push comes after three quarters."""
    system = case.law.problem.system
    method = control.Sampled(case.plant, case.law, every=every)
    parts = round(case.duration / dt * 0.75 / every) * every, round(case.duration / dt * 0.25 / every) * every
    first = jaxdae.rollout(system, method, case.start, dt=dt, steps=parts[0])
    last = jax.tree.map(lambda x: x[-1], first.state)
    # The push is one of the constraints as well: only velocities that they allow remain.
    pushed = jaxdae.VelocityProjection().project(system, dataclasses.replace(last, v=last.v + case.push))
    second = jaxdae.rollout(system, method, pushed, dt=dt, steps=parts[1], memory=first.memory)
    for each in (first, second):
        jaxdae.raise_if_failed(each)
    states = jax.tree.map(lambda x, y: jnp.concatenate([x, y]), first.state, second.state)
    return states, max(float(jnp.max(each.info.violation)) for each in (first, second)), second.memory[1]


def timed(case: Case, states: Any, every: int, period: float, repeats: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns wall and CPU milliseconds of solutions along the motion, each from the plan before, and the inputs."""
    update = jax.jit(lambda law, t, state, memory: law.update(t, state, memory, period))
    at = jax.tree.map(lambda x: x[:: max(1, every)], states)
    memory, walls, cpus, inputs = case.law.init(case.law.problem.system, case.start), [], [], []
    jax.block_until_ready(update(case.law, case.start.t, case.start, memory))
    for k in range(min(repeats, at.t.shape[0])):
        state = jax.tree.map(lambda x, k=k: x[k], at)
        wall, cpu = time.perf_counter(), time.process_time()
        u, memory = jax.block_until_ready(update(case.law, state.t, state, memory))
        walls.append(time.perf_counter() - wall)
        cpus.append(time.process_time() - cpu)
        inputs.append(np.asarray(u))
    return 1e3 * np.array(walls), 1e3 * np.array(cpus), np.array(inputs)


def main() -> int:
    """Runs the experiment; returns its exit code."""
    asked = script(CONFIG, __doc__)
    config = asked.config
    settings = jaxdae.app.settings(asked, Settings)
    if settings is None:
        return 2
    every = round(settings.period / config.dt)
    if every < 1 or abs(every * config.dt - settings.period) > 1e-9:
        asked.console.print(f"experiment.period: {settings.period:g} s must be a multiple of dt = {config.dt:g} s", markup=False)
        return 2
    rows, sentences, drawn = [], [], []
    with precision(config):
        for case in (cart_pole(config, asked.worlds, settings.cart), arm(settings.arm_duration, settings.arm)):
            states, violation, plan = motion(case, config.dt, every)
            walls, cpus, inputs = timed(case, states, every, settings.period, settings.repeats)
            errors = case.error(states)
            drawn.append((case, np.asarray(states.t), errors, inputs, walls))
            last = np.abs(errors[-1]).max()
            ahead = case.law.problem.steps * float(case.law.problem.dt)
            median, ready = np.median(walls), int(np.sum(walls <= 1e3 * settings.period))
            numbers = (f"{ahead:g} s in {case.law.problem.stages}", str(case.law.iterations), f"{last:.1e}", f"{violation:.0e}")
            times = (f"{walls.min():.2f}, {median:.2f}, {walls.max():.2f}", f"{np.median(cpus):.2f}", str(int(plan.failures)))
            rows.append((case.name, *numbers, *times))
            sentences.append(
                f"**{case.name}**: one solution takes {median:.2f} ms (median of {len(walls)}), enough for {1e3 / median:.0f} Hz;"
                f" {ready} of {len(walls)} were ready within the period of {1e3 * settings.period:g} ms."
            )
    headings = ("system", "horizon", "passes", "error at the end", "rows open", "wall ms: least, median, most", "CPU ms", "plans not made")
    with styled() as figure_class:
        figure = figure_class(figsize=(13.0, 6.4), layout="constrained")
        for row, (case, times, errors, inputs, walls) in zip(figure.subplots(2, 3), drawn, strict=True):
            labels = ("cart in m", "pole in rad") if errors.shape[1] == 2 else [f"joint {k + 1}" for k in range(errors.shape[1])]
            for k, label in enumerate(labels):
                row[0].plot(times, errors[:, k], **line_style(k), label=label)
            row[0].set(xlabel="time in s", title=f"{case.name}: what is to become zero")
            row[0].legend(ncols=2, fontsize="small")
            for k in range(inputs.shape[1]):
                row[1].step(settings.period * np.arange(len(inputs)), inputs[:, k], where="post", **line_style(k))
            row[1].set(xlabel="time in s", title="inputs that were timed, in N or N m")
            row[2].plot(walls, ".", color="black", markersize=3)
            row[2].axhline(1e3 * settings.period, color="black", linestyle=":", linewidth=1.0)
            row[2].set(xlabel="solution", ylim=(0.0, None), title="time of one solution in ms; period dotted")
    conclude(asked, headings, rows, sentences, {"mpc": figure})
    return 0


if __name__ == "__main__":
    sys.exit(main())

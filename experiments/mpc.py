"""Model-predictive control at 100 Hz of a constrained cart-pole and of an arm of seven joints.

    python experiments/mpc.py [CONFIG] [--set PATH=VALUE ...] [--out DIR]

The cart-pole is a mechanism in absolute coordinates, six of them with four rows. From several starts, such as
rest with the pole down, a force within its limit is to swing it up and to hold it there; a push halfway
through the second half disturbs it. The model takes long steps of a method of first order, the motion that is
controlled short ones of RK4: the feedback has to make up for the difference. The cost is of squares, of the
angle as well, though full turns then count: 1 - sin(theta), which does not count them, bends downward where
the pole hangs, and then a quadratic model of it says little about where to go.

The arm has seven revolute joints, turn and bend in turn, in joint coordinates. It goes to a posture, and
halfway back.

Every period the problem is solved anew from the state, for one or two passes of iLQR from the last solution,
shifted; the first from zero inputs. The times are those of one such solution as a compiled program, over
states that the motion passed through, and how many simulations of the horizon take as long. CPU time depends
little on what else the machine does.
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
NEAR = 0.15  # rad, of what counts as there


class Horizon(pydantic.BaseModel, extra="forbid", strict=True):
    """How far a controller looks ahead, and how."""

    stages: pydantic.PositiveInt
    every: pydantic.PositiveInt
    model_dt: pydantic.PositiveFloat
    limit: pydantic.PositiveFloat
    iterations: pydantic.PositiveInt


class CartStart(pydantic.BaseModel, extra="forbid", strict=True):
    """A start of the cart-pole: places in m and degrees, speeds in m/s and rad/s."""

    x: float = 0.0
    angle: float
    speed: float = 0.0
    rate: float = 0.0


class Settings(pydantic.BaseModel, extra="forbid", strict=True):
    """The section `experiment` of the config."""

    period: pydantic.PositiveFloat
    cart: Horizon
    cart_starts: list[CartStart] = pydantic.Field(min_length=1)
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
        starts: of the motions.
        duration: in s.
        error: from stacked states, what is to become zero (time, k).
        labels: of the k errors.
        watched: (m,) the errors that have to be small.
        near: what counts as small.
        disturbed: after which part of the duration something changes.
        push: of the velocities (nv,) at that time.
    """

    name: str
    plant: Any
    law: optimal_control.ModelPredictive
    starts: list[jaxdae.State]
    duration: float
    error: Any
    labels: list[str]
    watched: list[int]
    near: float
    disturbed: float
    push: Any


@dataclasses.dataclass(frozen=True)
class Motion:
    """A motion under control.

    Attributes:
        states: stacked (time, ...).
        errors: (time, k).
        there: from when on all that is watched stays near, until it is disturbed, in s; NaN where it does
            not.
        held: whether it is near at the end as well.
        violation: of the rows, at most.
        failures: how many plans were not made.
    """

    states: Any
    errors: np.ndarray
    there: float
    held: bool
    violation: float
    failures: int


def law_of(
    system: Any, start: Any, horizon: Horizon, integrator: Any, running: Any, final: Any, guess: Any
) -> Any:
    """Return the law that begins with a guess."""
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
    return optimal_control.ModelPredictive(problem=problem, guess=guess, iterations=horizon.iterations)


def cart_pole(config: Any, worlds: Any, horizon: Horizon, starts: list[CartStart]) -> Case:
    """Return the cart-pole of the config, from several starts."""
    plain, integrator, start = worlds.one()
    system = swing_up.driven(plain, ["motor"])
    given = np.array(
        [True, False, False, False, False, True]
    )  # the cart along its rail and the angle of the pole

    def begin(at: CartStart) -> Any:
        q = start.q.at[0].set(at.x).at[5].set(np.deg2rad(at.angle))
        v = jnp.zeros_like(start.v).at[0].set(at.speed).at[5].set(at.rate)
        return jaxdae.initialize(system, q, v, fixed=given, fixed_velocity=given)[0]

    def cost(state: Any) -> Any:
        lean = state.q[5] - 0.5 * jnp.pi
        return 2.0 * lean**2 + state.q[0] ** 2 + 0.025 * state.v[5] ** 2 + 0.25 * state.v[0] ** 2

    def running(state: Any, u: Any) -> Any:
        return cost(state) + 5e-4 * jnp.sum(u**2)

    def error(states: Any) -> Any:
        return np.stack([np.asarray(states.q[:, 0]), np.asarray(states.q[:, 5]) - 0.5 * np.pi], axis=1)

    begins = [begin(at) for at in starts]
    model = jaxdae.Projected(jaxdae.SemiImplicitEuler())
    law = law_of(
        system,
        begins[0],
        horizon,
        model,
        running,
        lambda state: 10.0 * cost(state),
        jnp.zeros((horizon.stages, 1)),
    )
    push = jnp.zeros(6).at[3:].set(PUSH * jnp.array([-0.5, 0.0, 1.0]))  # of the upright pole about its pin
    labels = ["cart in m", "pole in rad"]
    return Case("cart-pole", integrator, law, begins, config.duration, error, labels, [1], NEAR, 0.75, push)


def arm_of_seven() -> tuple[Any, Any]:
    """Return an arm of seven motorized revolute joints, 0.15 m apart, and its upright coordinates."""
    length, bodies, joints, forces = 0.15, [], [], []
    for k in range(JOINTS):
        mass = 3.0 - 0.35 * k
        moments = (mass * (length**2 / 12.0 + 0.0012), mass * (length**2 / 12.0 + 0.0012), mass * 0.0012)
        bodies.append(js.Body(f"link{k}", mass, moments, place=(0.0, 0.0, (k + 0.5) * length)))
        axis = (0.0, 0.0, 1.0) if k % 2 == 0 else (0.0, 1.0, 0.0)
        parent = f"link{k - 1}" if k else "ground"
        joints.append(
            js.Revolute(
                f"joint{k}",
                parent,
                f"link{k}",
                axis=axis,
                at=(0.0, 0.0, k * length),
                damping=0.1,
                armature=0.1,
            )
        )
        forces.append(js.JointForce(f"motor{k}", f"joint{k}", input=k))
    return jm.spatial_mechanism(bodies, joints, forces, gravity=(0.0, 0.0, -9.81), coordinates=jm.Joints())


def arm(duration: float, horizon: Horizon) -> Case:
    """Return the arm, which goes to the second posture and halfway back."""
    system, _ = arm_of_seven()
    postures = jnp.asarray(POSTURES)
    start = jaxdae.State(jnp.zeros(()), postures[0], jnp.zeros(JOINTS))
    holding = jax.vmap(
        lambda q: control.static_inputs(system, jaxdae.State(jnp.zeros(()), q, jnp.zeros(JOINTS)))
    )(postures)

    def wanted(t: Any, of: Any) -> Any:
        return jnp.where(t < 0.5 * duration, of[1], of[0])

    def cost(state: Any) -> Any:
        return 5.0 * jnp.sum((state.q - wanted(state.t, postures)) ** 2) + 0.1 * jnp.sum(state.v**2)

    def running(state: Any, u: Any) -> Any:
        return cost(state) + 1e-4 * jnp.sum((u - wanted(state.t, holding)) ** 2)

    def error(states: Any) -> Any:
        return np.asarray(states.q - jax.vmap(lambda t: wanted(t, postures))(states.t - 1e-9))

    guess = jnp.tile(holding[0], (horizon.stages, 1))
    law = law_of(
        system, start, horizon, jaxdae.SemiImplicitEuler(), running, lambda state: 10.0 * cost(state), guess
    )
    labels = [f"joint {k + 1}" for k in range(JOINTS)]
    still = jnp.zeros(JOINTS)
    method = jaxdae.RungeKutta.rk4()
    # The controller sees beforehand that the arm is sent back, and leaves before it is: it has a third of the
    # time to be there.
    return Case(
        "arm of seven joints",
        method,
        law,
        [start],
        duration,
        error,
        labels,
        list(range(JOINTS)),
        NEAR,
        1.0 / 3.0,
        still,
    )


def motion(case: Case, start: Any, dt: float, every: int) -> Motion:
    """Return the motion from a start, with the push on its way."""
    system = case.law.problem.system
    method = control.Sampled(case.plant, case.law, every=every)
    parts = [
        round(case.duration / dt * part / every) * every for part in (case.disturbed, 1.0 - case.disturbed)
    ]
    first = jaxdae.rollout(system, method, start, dt=dt, steps=parts[0])
    last = jax.tree.map(lambda x: x[-1], first.state)
    # The push is one of the constraints as well: only velocities that they allow remain.
    pushed = jaxdae.VelocityProjection().project(system, dataclasses.replace(last, v=last.v + case.push))
    second = jaxdae.rollout(system, method, pushed, dt=dt, steps=parts[1], memory=first.memory)
    for each in (first, second):
        jaxdae.raise_if_failed(each)
    states = jax.tree.map(lambda x, y: jnp.concatenate([x, y]), first.state, second.state)
    errors = np.asarray(case.error(states))
    near = np.abs(errors[:, case.watched]).max(axis=1) <= case.near
    before = near[: parts[0]]
    there = (
        dt * (parts[0] - int(np.argmin(before[::-1])) if not before.all() else 0) if before[-1] else np.nan
    )
    violation = max(float(jnp.max(each.info.violation)) for each in (first, second))
    return Motion(
        states, errors, there, bool(before[-1] and near[-1]), violation, int(second.memory[1].failures)
    )


def timed(
    case: Case, states: Any, every: int, period: float, repeats: int
) -> tuple[np.ndarray, np.ndarray, float, np.ndarray]:
    """Return wall and CPU milliseconds of solutions along the motion, each from the plan before.

    Beside them CPU milliseconds of a simulation of the horizon (median), and the inputs.
    """
    problem = case.law.problem

    def simulate(state: Any, controls: Any) -> Any:
        plan = {"dt": problem.dt, "save_every": problem.steps}
        return jaxdae.rollout(problem.system, problem.integrator, state, problem.held(controls), **plan).state

    update = jax.jit(lambda law, t, state, memory: law.update(t, state, memory, period))
    forward = jax.jit(simulate)
    at = jax.tree.map(lambda x: x[:: max(1, every)], states)
    start = case.starts[0]
    memory, walls, cpus, forwards, inputs = case.law.init(problem.system, start), [], [], [], []
    jax.block_until_ready((update(case.law, start.t, start, memory), forward(start, memory.controls)))
    for k in range(min(repeats, at.t.shape[0])):
        state = jax.tree.map(lambda x, k=k: x[k], at)
        wall, cpu = time.perf_counter(), time.process_time()
        u, memory = jax.block_until_ready(update(case.law, state.t, state, memory))
        walls.append(time.perf_counter() - wall)
        cpus.append(time.process_time() - cpu)
        inputs.append(np.asarray(u))
        cpu = time.process_time()
        jax.block_until_ready(forward(state, memory.controls))
        forwards.append(time.process_time() - cpu)
    return 1e3 * np.array(walls), 1e3 * np.array(cpus), 1e3 * float(np.median(forwards)), np.array(inputs)


def main() -> int:
    """Run the experiment and return its exit code."""
    asked = script(CONFIG, __doc__)
    config = asked.config
    settings = jaxdae.app.settings(asked, Settings)
    if settings is None:
        return 2
    every = round(settings.period / config.dt)
    if every < 1 or abs(every * config.dt - settings.period) > 1e-9:
        asked.console.print(
            f"experiment.period: {settings.period:g} s must be a multiple of dt = {config.dt:g} s",
            markup=False,
        )
        return 2
    rows, sentences, drawn, good = [], [], [], True
    with precision(config):
        cart = cart_pole(config, asked.worlds, settings.cart, settings.cart_starts)
        for case in (cart, arm(settings.arm_duration, settings.arm)):
            motions = [motion(case, start, config.dt, every) for start in case.starts]
            walls, cpus, forward, inputs = timed(
                case, motions[0].states, every, settings.period, settings.repeats
            )
            drawn.append((case, motions, inputs, walls))
            there = np.array([one.there for one in motions])
            held = sum(one.held for one in motions)
            good &= held == len(motions)
            last, open_ = (
                max(np.abs(one.errors[-1]).max() for one in motions),
                max(one.violation for one in motions),
            )
            ahead = case.law.problem.steps * float(case.law.problem.dt)
            median, ready = np.median(walls), int(np.sum(walls <= 1e3 * settings.period))
            numbers = (
                f"{ahead:g} s in {case.law.problem.stages}",
                str(case.law.iterations),
                f"{held} of {len(motions)}",
            )
            ends = (f"{np.nanmin(there):.2f} to {np.nanmax(there):.2f}", f"{last:.1e}", f"{open_:.0e}")
            times = (
                f"{walls.min():.2f}, {median:.2f}, {walls.max():.2f}",
                f"{np.median(cpus):.2f}, {cpus.max():.2f}",
                f"{np.median(cpus) / forward:.1f}",
            )
            rows.append((case.name, *numbers, *ends, *times, str(sum(one.failures for one in motions))))
            sentences.append(
                f"**{case.name}**: from {held} of {len(motions)} starts it comes within {case.near:g} rad "
                "and stays, after"
                f" {np.nanmin(there):.2f} to {np.nanmax(there):.2f} s, and is there again at the end. One "
                f"solution takes {median:.2f} ms"
                f" (median of {len(walls)}), {np.median(cpus):.2f} ms of CPU time, enough for "
                f"{1e3 / median:.0f} Hz;"
                f" {ready} of {len(walls)} were ready within the period of {1e3 * settings.period:g} ms."
            )
    headings = ("system", "horizon", "passes", "stay", "after s", "error at the end", "rows open")
    headings += ("wall ms: least, median, most", "CPU ms: median, most", "simulations", "plans not made")
    conclude(asked, headings, rows, sentences, {"mpc": draw(settings, drawn)})
    return 0 if good else 1


def draw(settings: Settings, drawn: list[Any]) -> Any:
    """Return the figure: errors, inputs and times of each case."""
    with styled() as figure_class:
        figure = figure_class(figsize=(13.0, 6.4), layout="constrained")
        for row, (case, motions, inputs, walls) in zip(figure.subplots(2, 3), drawn, strict=True):
            for k, label in enumerate(case.labels):
                for j, one in enumerate(motions):
                    style = line_style(k) | {"linewidth": 1.0}
                    row[0].plot(
                        np.asarray(one.states.t), one.errors[:, k], **style, label=None if j else label
                    )
            row[0].set(
                xlabel="time in s",
                title=f"{case.name}: what is to become zero, {len(motions)} start{'s' * (len(motions) > 1)}",
            )
            row[0].legend(ncols=2, fontsize="small")
            for k in range(inputs.shape[1]):
                row[1].step(
                    settings.period * np.arange(len(inputs)), inputs[:, k], where="post", **line_style(k)
                )
            row[1].set(xlabel="time in s", title="inputs that were timed, in N or N m")
            row[2].plot(walls, ".", color="black", markersize=3)
            row[2].axhline(1e3 * settings.period, color="black", linestyle=":", linewidth=1.0)
            row[2].set(xlabel="solution", ylim=(0.0, None), title="time of one solution in ms; period dotted")
        return figure


if __name__ == "__main__":
    sys.exit(main())

"""Swing a mechanism up with torques too low to lift it slowly, by gradients through the rollout.

The search starts from random torques.

    python experiments/swing_up.py [CONFIG] [--set PATH=VALUE ...] [--out DIR]

The torques u of each motor are held over a few intervals, u = limit * (2 sigmoid(z) - 1) with free variables
z: no torque can pass its limit. Wanted is r(z) = 0 for the errors r of the target's coordinates and of their
rates (weighted, in s) at the end of the motion. There are fewer errors than variables; the steps are those of
Levenberg and Marquardt, written for that case,

    dz = -J^T (J J^T + mu I)^-1 r,      J = dr/dz in reverse mode, one cotangent an error,

no longer than a bound. mu falls with steps that reduce |r| and grows with steps that do not; as mu falls, dz becomes the shortest
solution of J dz = -r. A start that no longer gets nearer is moved by random numbers. All starts, and all
cotangents of each, are worlds of one batch.

The search takes coarse steps. The torques that it finds are simulated with the step of the config, and only
that end counts: all errors of angles within 1 degree, of rates within 0.1 rad/s, of places within 1 cm and
0.1 m/s.

The gradient through the whole swing-up is then compared in forward mode, reverse mode and by central
differences, and its time is compared with that of a simulation. It is taken at nine tenths of the torques
that were found, where the target is missed.
"""

import dataclasses
import sys
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pydantic
import xarray as xr

import jaxdae
from jaxdae import tuning
from jaxdae.app import begin, finish, line_style, precision, script, styled, table_lines, write_animation

CONFIG = "configs/swing_up.yaml"
ALLOWED = {"rad": np.deg2rad(1.0), "m": 0.01}
ALLOWED_RATE = 0.1  # rad/s and m/s
ROUND_OFF, NEAR = (
    1e-10,
    1e-3,
)  # |r| below which a start needs no further step, and below which it counts as there
DAMPING, LEAST, MOST = 0.25, 1e-9, 1e4  # mu at first and its range
FALL, GROW = 3.0, 4.0  # factors of mu
LONGEST = 1.0  # step: root mean square of dz
PATIENCE, PROGRESS = 8, 0.8  # iterations in which |r|^2 is to fall below this fraction
SHAKE = 1.4  # standard deviation of the random move of z
REPEATS = 20


class Settings(pydantic.BaseModel, extra="forbid", strict=True):
    """The section `experiment` of the config."""

    motors: dict[str, pydantic.PositiveFloat | pydantic.PositiveInt] = pydantic.Field(min_length=1)
    held: dict[str, float] = {}
    target: dict[str, float] = pydantic.Field(min_length=1)
    knots: pydantic.PositiveInt
    starts: pydantic.PositiveInt
    guess: float = pydantic.Field(gt=0, lt=1)
    coarse_dt: pydantic.PositiveFloat
    iterations: pydantic.PositiveInt
    rate_weight: pydantic.PositiveFloat
    certificate_steps: pydantic.PositiveInt
    outlines: dict[str, list[list[float]]] = {}
    traced: dict[str, list[float]] = {}


@dataclasses.dataclass(frozen=True)
class Task:
    """What is to be reached, from where, with what.

    Attributes:
        mechanism: its motors read the inputs, in N m or N.
        start: the state at rest.
        method: the integrator.
        limits: (nu,) of the inputs.
        duration: in s.
        knots: values of each input.
        entries: (k,) the coordinates of the target.
        target: (k,) their values.
        angles: (k,) whether they are angles, for which full turns do not count.
        rate_weight: of errors of rates, in s.
    """

    mechanism: Any
    start: jaxdae.State
    method: Any
    limits: np.ndarray
    duration: float
    knots: int
    entries: np.ndarray
    target: np.ndarray
    angles: np.ndarray
    rate_weight: float

    @property
    def variables(self) -> int:
        """Number of free variables of one start."""
        return self.knots * self.limits.size

    def torques(self, z: Any) -> Any:
        """Return the inputs (..., knots, nu) of free variables (..., knots * nu)."""
        return tuning.Between(-self.limits, self.limits).constrained(
            z.reshape(*z.shape[:-1], self.knots, self.limits.size)
        )

    def errors(self, q: Any, v: Any) -> tuple[Any, Any]:
        """Return the distances of coordinates and rates (..., k) from the target, with wrapped angles."""
        away = q[..., self.entries] - self.target
        turns = jnp.where(self.angles, jnp.round(away / (2.0 * jnp.pi)), 0.0)
        return away - 2.0 * jnp.pi * jax.lax.stop_gradient(turns), v[..., self.entries]

    def simulate(self, torques: Any, steps: int, save_every: int | None = None) -> jaxdae.Trajectory:
        """Return the trajectories of a stack of inputs (worlds, knots, nu)."""
        worlds = torques.shape[0]
        states = jaxdae.State(self.start.t, *(jnp.tile(x, (worlds, 1)) for x in (self.start.q, self.start.v)))
        controls = jnp.repeat(torques, steps // self.knots, axis=1)
        plan = {"dt": self.duration / steps, "save_every": save_every or steps, "in_axes": (None, None, 0, 0)}
        return jaxdae.batch_rollout(self.mechanism, self.method, states, controls, **plan)

    def residual(self, z: Any, steps: int) -> Any:
        """Return r (worlds, 2 k) of a stack of free variables; NaN where a simulation failed."""
        end = jax.tree.map(lambda x: x[:, -1], self.simulate(self.torques(z), steps))
        away, rates = self.errors(end.state.q, end.state.v)
        r = jnp.concatenate([away, self.rate_weight * rates], axis=1)
        return jnp.where((end.info.status == jaxdae.Status.OK)[:, None], r, jnp.nan)

    def loss(self, torques: Any, steps: int) -> Any:
        """Return |r|^2 / 2 of the inputs (knots, nu) of a single world."""
        controls = jnp.repeat(torques, steps // self.knots, axis=0)
        plan = {"dt": self.duration / steps, "save_every": steps}
        end = jaxdae.rollout(self.mechanism, self.method, self.start, controls, **plan).state
        away, rates = self.errors(end.q[-1], end.v[-1])
        return 0.5 * (jnp.sum(away**2) + jnp.sum((self.rate_weight * rates) ** 2))


def driven(mechanism: Any, motors: list[str]) -> Any:
    """Return the mechanism with the named torques or forces reading the inputs, in this order."""
    found = [name for group in mechanism.forces.values() for name in group.names]
    for name in motors:
        if name not in found:
            raise ValueError(f"motors: no force is called {name!r}; there is: {', '.join(found) or 'none'}")
    forces = {}
    for kind, group in mechanism.forces.items():
        inputs = tuple(motors.index(name) if name in motors else -1 for name in group.names)
        forces[kind] = dataclasses.replace(group, input=inputs, gain=jnp.ones(len(inputs)))
    return dataclasses.replace(mechanism, forces=forces, n_inputs=len(motors))


def coordinates(mechanism: Any, key: str, values: dict[str, float]) -> np.ndarray:
    """Return the places of named coordinates in q."""
    names = list(mechanism.coordinate_names)
    for name in values:
        if name not in names:
            raise ValueError(f"{key}: no coordinate is called {name!r}; there is: {', '.join(names)}")
    return np.array([names.index(name) for name in values])


def task_of(config: Any, settings: Settings, worlds: Any) -> Task:
    """Return the task of a config.

    Raises:
        ValueError: names that do not exist, steps that the intervals of the torques do not divide.
    """
    plain, method, start = worlds.one()
    for name, dt in (("dt", config.dt), ("experiment.coarse_dt", settings.coarse_dt)):
        steps = round(config.duration / dt)
        if steps % settings.knots or abs(steps * dt - config.duration) > 1e-9 * config.duration:
            raise ValueError(
                f"{name}: {config.duration:g} s must be a whole number of steps of {dt:g} s, a multiple of "
                f"{settings.knots} knots"
            )
    if settings.certificate_steps % settings.knots:
        raise ValueError(
            f"experiment.certificate_steps: {settings.certificate_steps} must be a multiple of "
            f"{settings.knots} knots"
        )
    entries = coordinates(plain, "experiment.target", settings.target)
    coordinates(plain, "experiment.held", settings.held)
    return Task(
        mechanism=driven(plain, list(settings.motors)),
        start=jaxdae.State(start.t, start.q, jnp.zeros_like(start.v)),
        method=method,
        limits=np.array(list(settings.motors.values()), float),
        duration=config.duration,
        knots=settings.knots,
        entries=entries,
        target=np.array(list(settings.target.values())),
        angles=np.array(plain.coordinate_units)[entries] == "rad",
        rate_weight=settings.rate_weight,
    )


def static_torques(task: Task, held: dict[str, float]) -> np.ndarray:
    """Return the inputs (nu,) that hold the mechanism still with some coordinates at given values."""
    entries = coordinates(task.mechanism, "experiment.held", held)
    fixed = np.isin(np.arange(task.start.q.size), entries)
    state, _ = jaxdae.initialize(
        task.mechanism, task.start.q.at[entries].set(jnp.array(list(held.values()))), fixed=fixed
    )

    def acceleration(u: Any) -> Any:
        return jaxdae.forward_dynamics(task.mechanism, state, u)[0]

    none = jnp.zeros(task.limits.size)
    return np.linalg.lstsq(
        np.asarray(jax.jacfwd(acceleration)(none)), -np.asarray(acceleration(none)), rcond=None
    )[0]


def search(
    task: Task, settings: Settings, seed: int, say: Any = lambda text: None
) -> tuple[np.ndarray, np.ndarray]:
    """Return the free variables (starts, n) that were found, and |r| (iteration, starts)."""
    errors, starts = 2 * task.entries.size, settings.starts
    steps = round(task.duration / settings.coarse_dt)
    random = [
        np.random.default_rng([seed, k]) for k in range(starts)
    ]  # a start does not depend on how many there are

    @jax.jit
    def linearized(z: Any) -> tuple[Any, Any]:
        # One world for every start and error: cheaper than many cotangents of one world, because worlds are
        # vectorized best.
        cotangents = jnp.repeat(jnp.eye(errors), starts, axis=0)

        def weighted(z: Any) -> tuple[Any, Any]:
            r = task.residual(z, steps)
            return jnp.sum(r * cotangents), r

        gradient, r = jax.grad(weighted, has_aux=True)(jnp.tile(z, (errors, 1)))
        return r[:starts], jnp.moveaxis(gradient.reshape(errors, starts, -1), 0, 1)

    def evaluated(z: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        r, jacobian = (np.asarray(x) for x in linearized(jnp.asarray(z)))
        finite = np.isfinite(r).all(axis=1) & np.isfinite(jacobian).all(axis=(1, 2))
        return r, jacobian, np.where(finite, np.sum(r**2, axis=1), np.inf)

    spread = 2.0 * np.arctanh(settings.guess)  # of z, where u = limit tanh(z / 2)
    z = np.stack([spread * generator.standard_normal(task.variables) for generator in random])
    r, jacobian, square = evaluated(z)
    damping, reference, since = np.full(starts, DAMPING), square.copy(), np.zeros(starts, int)
    history = [np.sqrt(square)]
    for iteration in range(settings.iterations):
        if np.sqrt(square).max() < ROUND_OFF:
            break
        damped = jacobian @ jacobian.transpose(0, 2, 1) + damping[:, None, None] * np.eye(errors)
        step = -(jacobian.transpose(0, 2, 1) @ np.linalg.solve(damped, r[..., None]))[..., 0]
        step *= np.minimum(1.0, LONGEST / np.maximum(np.sqrt(np.mean(step**2, axis=1)), 1e-300))[:, None]
        shaken = (np.sqrt(square) > 0.1) & (since >= PATIENCE)
        for k in np.flatnonzero(shaken):
            step[k] = SHAKE * random[k].standard_normal(task.variables) - 0.3 * z[k]
        trial = z + step
        new_r, new_jacobian, new_square = evaluated(trial)
        taken = np.isfinite(new_square) & ((new_square < square) | shaken)
        z, r, square = (
            np.where(taken[:, None], trial, z),
            np.where(taken[:, None], new_r, r),
            np.where(taken, new_square, square),
        )
        jacobian = np.where(taken[:, None, None], new_jacobian, jacobian)
        damping = np.where(
            shaken, DAMPING, np.clip(np.where(taken, damping / FALL, damping * GROW), LEAST, MOST)
        )
        better = shaken | (square < PROGRESS * reference)
        reference, since = np.where(better, square, reference), np.where(better, 0, since + 1)
        history.append(np.sqrt(square))
        if iteration % 10 == 9:
            there = np.sum(np.sqrt(square) < NEAR)
            say(
                f"iteration {iteration + 1}: {there} of {starts} at the target, median |r| "
                f"{np.median(np.sqrt(square)):.1e}"
            )
    return z, np.stack(history)


def judge(config: Any, settings: Settings, task: Task, z: np.ndarray) -> xr.Dataset:
    """Return the motions with the step of the config, their final errors, and which of them are successes."""
    torques = np.asarray(task.torques(jnp.asarray(z)))
    trajectory = task.simulate(jnp.asarray(torques), config.steps, config.save_every)
    q, v = (
        np.concatenate([np.tile(first, (len(z), 1, 1)), x], axis=1)
        for first, x in zip(*_first(task, trajectory), strict=True)
    )
    away, rates = (np.asarray(x) for x in task.errors(jnp.asarray(q), jnp.asarray(v)))
    turned = np.unwrap(away, axis=1)  # a swing is drawn without jumps, from the end back
    away = np.where(task.angles, turned - turned[:, -1:] + away[:, -1:], away)
    units = np.array(task.mechanism.coordinate_units)[task.entries]
    allowed = np.array([ALLOWED[unit] for unit in units])
    close = (np.abs(away[:, -1]) <= allowed).all(axis=1) & (np.abs(rates[:, -1]) <= ALLOWED_RATE).all(axis=1)
    kept = (np.abs(torques) <= task.limits).all(axis=(1, 2))
    status = np.pad(
        np.asarray(trajectory.info.status), ((0, 0), (1, 0)), constant_values=int(jaxdae.Status.OK)
    )
    fields = {
        "torque": (("start", "knot", "motor"), torques),
        "q": (("start", "time", "coordinate"), q),
        "v": (("start", "time", "coordinate"), v),
        "away": (("start", "time", "goal"), away),
        "rate": (("start", "time", "goal"), rates),
        "violation": (("start",), np.asarray(trajectory.info.violation).max(axis=1)),
        "status": (("start", "time"), status),
        "kept": (("start",), kept),
        "success": (("start",), close & kept & (status[:, -1] == jaxdae.Status.OK)),
    }
    names = {
        "time": ("time", config.dt * config.save_every * np.arange(q.shape[1]), {"units": "s"}),
        "motor": list(settings.motors),
        "coordinate": list(task.mechanism.coordinate_names),
        "goal": list(settings.target),
        "unit": ("goal", units),
        "limit": ("motor", task.limits),
    }
    return xr.Dataset(fields, names)


def _first(task: Task, trajectory: Any) -> tuple[tuple[Any, Any], tuple[Any, Any]]:
    """Return coordinates and velocities of the start, and those of the trajectories."""
    return (np.asarray(task.start.q), np.asarray(task.start.v)), (
        np.asarray(trajectory.state.q),
        np.asarray(trajectory.state.v),
    )


def certificate(
    task: Task, torques: np.ndarray, steps: int, repeats: int = REPEATS
) -> tuple[tuning.GradientReport, dict[str, float]]:
    """Return a comparison of three gradients at inputs (knots, nu), and times in s.

    The times are the time of a simulation and the time of its gradient.
    """

    def loss(parameters: Any) -> Any:
        return task.loss(parameters["torques"], steps)

    at = {"torques": jnp.asarray(torques)}
    seconds = {}
    programs = {}
    for name, function in (("simulation", loss), ("gradient", jax.value_and_grad(loss))):
        clock = time.perf_counter()
        programs[name] = jax.jit(function).lower(at).compile()
        seconds[f"compile_{name}"] = time.perf_counter() - clock
        seconds[name] = np.inf
    for _ in range(repeats):  # In turn, so that whatever else the machine does slows down both.
        for name, program in programs.items():
            clock = time.perf_counter()
            jax.block_until_ready(program(at))
            seconds[name] = min(seconds[name], time.perf_counter() - clock)
    return tuning.check_gradients(loss, at, tolerance=1e-6), seconds


# The report.


def worst(data: xr.Dataset, unit: str) -> tuple[np.ndarray, np.ndarray]:
    """Return the largest error and the largest rate (start,) at the end, of all coordinates of a unit."""
    of_unit = data.isel(time=-1, goal=np.flatnonzero(data.unit.values == unit))
    return tuple(np.abs(of_unit[name].values).max(axis=1) for name in ("away", "rate"))


def findings(
    task: Task,
    settings: Settings,
    data: xr.Dataset,
    history: np.ndarray,
    report: Any,
    seconds: dict[str, float],
) -> list[str]:
    """Return what was found, in sentences."""
    success = data.success.values
    sentences = [
        f"**{success.sum()} of {success.size}** random starts swing up; limits kept by "
        f"{int(data.kept.sum())}."
    ]
    for unit, scale, name in (("rad", 180.0 / np.pi, "degrees"), ("m", 1e3, "mm")):
        if success.any() and unit in data.unit.values:
            away, rate = (x[success] for x in worst(data, unit))
            sentences.append(
                "Of these, errors at the end, simulated with the step of the config: at most "
                f"{scale * away.max():.2g} {name}"
                f" (median {scale * np.median(away):.2g}) and {rate.max():.2g} {unit}/s (median "
                f"{np.median(rate):.2g})."
            )
    if settings.held:
        static = np.abs(static_torques(task, settings.held))
        shares = ", ".join(
            f"{name} {100 * x:.3g} %" for name, x in zip(settings.motors, task.limits / static, strict=True)
        )
        sentences.append(f"Limits relative to the torques that hold it still at {settings.held}: {shares}.")
    reached = np.where((history < NEAR).any(axis=0), (history < NEAR).argmax(axis=0), -1)
    if (reached >= 0).any():
        sentences.append(
            f"Iterations to |r| < {NEAR:g}: median {np.median(reached[reached >= 0]):.0f}, most "
            f"{reached.max()}."
            f" Loops closed to {float(data.violation.max()):.1e} m."
        )
    leaf = report.leaves[0]
    sentences.append(
        f"**Gradient** of {settings.certificate_steps} steps: forward against reverse mode "
        f"{leaf.modes_error:.1e}, both against"
        f" central differences {leaf.error:.1e} (relative; allowed {leaf.allowed:.1e}):"
        f" {'passed' if report.passed else 'FAILED'}. It takes "
        f"{seconds['gradient'] / seconds['simulation']:.2f} times as long as the"
        f" simulation ({1e3 * seconds['gradient']:.3g} ms and {1e3 * seconds['simulation']:.3g} ms), and"
        f" {seconds['compile_gradient']:.3g} s to compile ({seconds['compile_simulation']:.3g} s)."
    )
    return sentences


def draw(task: Task, data: xr.Dataset, history: np.ndarray):
    """Return the figure: torques, motions and iterations of all starts, and how near they end."""
    with styled() as figure_class:
        figure = figure_class(figsize=(13.5, 8.0), layout="constrained")
        ((torques, motions), (errors, convergence)) = figure.subplots(2, 2)
        edges = np.linspace(0.0, task.duration, task.knots + 1)
        last = {}
        for k, good in enumerate(data.success.values):
            faint = {"alpha": 0.25 if good else 1.0, "linewidth": 0.8 if good else 1.6}
            for j, motor in enumerate(data.motor.values):
                (last[motor],) = torques.step(
                    edges,
                    np.append(*_held(data.torque.values[k, :, j])),
                    where="post",
                    **line_style(j) | faint,
                )
            for j, goal in enumerate(data.goal.values):
                (last[goal],) = motions.plot(data.time, data.away.values[k, :, j], **line_style(j) | faint)
            convergence.semilogy(
                np.maximum(history[:, k], 1e-16), color="black" if good else line_style(1)["color"], **faint
            )
        for j, limit in enumerate(task.limits):
            for side in (-limit, limit):
                torques.axhline(side, **line_style(j) | {"linestyle": ":", "linewidth": 1.2})
        for axes, names in ((torques, data.motor.values), (motions, data.goal.values)):
            shown = axes.legend([last[name] for name in names], list(names), frameon=True)
            for line in shown.get_lines():
                line.set(alpha=1.0, linewidth=1.4)
            axes.set_xlabel("time in s")
        torques.set_title("torques in N m, forces in N; limits dotted")
        motions.set_title("from the target, in rad or m")
        convergence.set_xlabel("iteration")
        convergence.set_title("|r| of the coarse steps")
        for j, unit in enumerate(sorted(set(data.unit.values))):
            for what, values, allowed in zip(
                (unit, f"{unit}/s"), worst(data, unit), (ALLOWED[unit], ALLOWED_RATE), strict=True
            ):
                style = line_style(2 * j + ("/" in what))
                # Cumulative, because each start is a step of one.
                errors.step(
                    np.sort(values),
                    np.arange(1, values.size + 1),
                    where="post",
                    **style,
                    label=f"error in {what}",
                )
                errors.axvline(allowed, **style | {"linestyle": ":", "linewidth": 1.0})
        errors.set_xscale("log")
        errors.set_xlabel("largest error at the end; what is allowed is dotted")
        errors.set_title("starts that end so near")
        errors.yaxis.get_major_locator().set_params(integer=True)
        errors.legend()
        return figure


def _held(values: np.ndarray) -> tuple[np.ndarray, float]:
    return values, values[-1]


def placed(task: Task, q: np.ndarray, body: str, points: Any) -> np.ndarray:
    """Return points of a body in the world (time, k, 2)."""
    x, y, angle = np.moveaxis(q.reshape(len(q), -1, 3)[:, task.mechanism.body_names.index(body)], -1, 0)
    c, s = np.cos(angle)[:, None], np.sin(angle)[:, None]
    px, py = np.asarray(points, float).reshape(-1, 2).T
    return np.stack([x[:, None] + c * px - s * py, y[:, None] + s * px + c * py], axis=-1)


def main() -> int:
    """Run the experiment and return its exit code."""
    asked = script(CONFIG, __doc__)
    config, console = asked.config, asked.console
    settings = jaxdae.app.settings(asked, Settings)
    if settings is None:
        return 2
    with precision(config):
        try:
            task = task_of(config, settings, asked.worlds)
        except ValueError as error:
            console.print(f"{asked.source}: {error}", markup=False)
            return 2
        clock = time.perf_counter()
        z, history = search(
            task, settings, config.batch.seed, lambda text: console.print(text, highlight=False)
        )
        data = judge(config, settings, task, z)
        wall = time.perf_counter() - clock
        best = int(np.argmax(data.success.values))
        report, seconds = certificate(task, 0.9 * data.torque.values[best], settings.certificate_steps)
        sentences = findings(task, settings, data, history, report, seconds)
    folder, record = begin(config, asked.out, asked.source)
    data.to_zarr(folder / "swing_up.zarr", zarr_format=2, consolidated=False)
    draw(task, data, history).savefig(folder / "swing_up.png", bbox_inches="tight")
    q = data.q.values[best]
    if settings.outlines:
        lines = {body: placed(task, q, body, points) for body, points in settings.outlines.items()}
        traces = {body: placed(task, q, body, point)[:, 0] for body, point in settings.traced.items()}
        status = dict.fromkeys(lines, data.status.values[best])
        write_animation(
            folder / "swing_up.gif", data.time.values, lines, traces=traces, status=status, title=config.name
        )
    sentences.append(f"Search and judgment of all starts together took {wall:.3g} s, compilation included.")
    headings = ("start", "success", "away from the target", "rates")
    table = [
        (
            str(k),
            "yes" if good else "no",
            *(" ".join(f"{x:.1e}" for x in data[name].values[k, -1]) for name in ("away", "rate")),
        )
        for k, good in enumerate(data.success.values)
    ]
    for sentence in sentences:
        console.print(sentence.replace("**", ""), markup=False, highlight=False)
    lines = [
        f"# {config.name}",
        "",
        config.description,
        "",
        *(f"- {sentence}" for sentence in sentences),
        "",
        "![swing-up](swing_up.png)",
        "",
    ]
    lines += ["```", str(report), "```", "", *table_lines(headings, table), ""]
    (folder / "report.md").write_text("\n".join(lines), encoding="utf-8")
    gradient = {
        "passed": report.passed,
        "modes_error": report.leaves[0].modes_error,
        "error": report.leaves[0].error,
        **seconds,
    }
    finish(
        folder,
        record,
        successes=int(data.success.sum()),
        starts=settings.starts,
        wall_s=wall,
        gradient=gradient,
        findings=sentences,
    )
    console.print(f"run folder: {folder}", highlight=False, markup=False, soft_wrap=True)
    return 0 if report.passed else 1


if __name__ == "__main__":
    sys.exit(main())

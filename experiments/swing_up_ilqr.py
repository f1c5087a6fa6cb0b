"""iLQR against Levenberg-Marquardt steps through the rollout: time to swing up the five-bar robot.

    python experiments/swing_up_ilqr.py [CONFIG] [--set PATH=VALUE ...] [--out DIR]

The task is that of `swing_up.py`: the same robot, limits, intervals of the torques, coarse steps, random
starts, and the same judgment by the step of the config. The cost is  |r|^2 / 2  of the errors at the end and
a little effort, so that it has a minimum; a start ends when its cost is `enough`, with the step of the config
too: some motions are so sensitive that coarse steps lead them elsewhere. One that has not come so far after
some passes begins anew from other random torques, as the other search shakes its own.

Starts are solved one after the other, two at a time in threads, by one compiled program: on a CPU that takes
less time than all of them in one batch, where each waits for the slowest. Times are those of search and
judgment, compilation included; CPU time does not depend on what else the machine does.
"""

import concurrent.futures
import os
import sys
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pydantic
import swing_up

import jaxdae
from jaxdae import optimal_control
from jaxdae.app import conclude, line_style, precision, script, styled

CONFIG = "configs/swing_up_ilqr.yaml"


class Settings(swing_up.Settings, extra="forbid", strict=True):
    """The section `experiment` of the config."""

    passes: pydantic.PositiveInt
    tries: pydantic.PositiveInt
    effort: pydantic.PositiveFloat
    enough: pydantic.PositiveFloat
    compare: bool


def problem_of(task: swing_up.Task, settings: Settings) -> optimal_control.Problem:
    """Return the task as an optimal control problem."""
    steps, limits = round(task.duration / settings.coarse_dt), jnp.asarray(task.limits)

    def final(state: Any) -> Any:
        away, rates = task.errors(state.q, state.v)
        return 0.5 * (jnp.sum(away**2) + jnp.sum((task.rate_weight * rates) ** 2))

    def running(state: Any, u: Any) -> Any:
        return 0.5 * settings.effort * jnp.mean((u / limits) ** 2) * limits.size / task.knots

    return optimal_control.Problem(
        system=task.mechanism,
        integrator=task.method,
        state=task.start,
        dt=task.duration / steps,
        steps=steps,
        every=steps // task.knots,
        running=running,
        final=final,
        lower=-limits,
        upper=limits,
    ).counted()


def search(
    task: swing_up.Task, settings: Settings, seed: int, steps: int
) -> tuple[np.ndarray, list[Any], np.ndarray]:
    """Return the torques (starts, knots, nu), the last solution of every start, and how many tries it took.

    Args:
        task: what is to be reached.
        settings: of the search.
        seed: of the random torques.
        steps: of the motion by which a start is accepted.
    """
    problem = problem_of(task, settings)
    solve = jax.jit(
        lambda u: optimal_control.ilqr(
            problem, u, iterations=settings.passes, tolerance=1e-5, enough=settings.enough
        )
    )
    left = jax.jit(lambda u: task.loss(u, steps))
    spread = 2.0 * np.arctanh(settings.guess)

    def one(k: int) -> tuple[Any, int]:
        random = np.random.default_rng([seed, k])
        found: Any = None
        for attempt in range(settings.tries):
            found = solve(task.torques(jnp.asarray(spread * random.standard_normal(task.variables))))
            if max(float(found.cost), float(left(found.controls))) <= settings.enough:
                return found, attempt + 1
        return found, settings.tries

    first = one(0)  # compiles
    with concurrent.futures.ThreadPoolExecutor(min(2, os.cpu_count() or 1)) as pool:
        found, tries = zip(first, *pool.map(one, range(1, settings.starts)), strict=True)
    return np.stack([np.asarray(each.controls) for each in found]), list(found), np.array(tries)


def free_variables(task: swing_up.Task, torques: np.ndarray) -> np.ndarray:
    """Return z (starts, n) of torques, those at a limit within rounding of it."""
    share = np.clip(torques / task.limits, -1.0 + 1e-15, 1.0 - 1e-15)
    return 2.0 * np.arctanh(share).reshape(len(torques), -1)


def timed(function: Any) -> tuple[Any, float, float]:
    """Return the result of a function, CPU seconds and wall seconds."""
    cpu, wall = time.process_time(), time.perf_counter()
    result = function()
    return result, time.process_time() - cpu, time.perf_counter() - wall


def draw(task: swing_up.Task, solutions: list[Any], ends: dict[str, np.ndarray]) -> Any:
    """Return the figure: costs of all starts over the passes, torques, and how near the ends are."""
    with styled() as figure_class:
        figure = figure_class(figsize=(13.5, 4.2), layout="constrained")
        costs, torques, errors = figure.subplots(1, 3)
        edges = np.linspace(0.0, task.duration, task.knots + 1)
        for found in solutions:
            costs.semilogy(
                np.asarray(found.history.cost)[: int(found.iterations)],
                color="black",
                alpha=0.35,
                linewidth=0.8,
            )
        costs.set(xlabel="pass of iLQR", title="cost of the last try of every start")
        for j, limit in enumerate(task.limits):
            u = np.asarray(solutions[0].controls)[:, j]
            torques.step(edges, np.append(u, u[-1]), where="post", **line_style(j), label=f"motor {j + 1}")
            for side in (-limit, limit):
                torques.axhline(side, color="black", linestyle=":", linewidth=1.0)
        torques.set(xlabel="time in s", title="torques of the first start in N m; limits dotted")
        torques.margins(y=0.15)
        torques.legend(ncols=len(task.limits), loc="upper center")
        for j, (name, values) in enumerate(ends.items()):
            errors.step(
                np.sort(np.rad2deg(values)),
                np.arange(1, values.size + 1),
                where="post",
                **line_style(j),
                label=name,
            )
        errors.axvline(1.0, color="black", linestyle=":", linewidth=1.0)
        errors.set(
            xscale="log",
            xlabel="largest error of an angle at the end in degrees; allowed: dotted",
            title="starts that end so near",
        )
        errors.legend()
        return figure


def main() -> int:
    """Run the experiment and return its exit code."""
    asked = script(CONFIG, __doc__)
    config, console = asked.config, asked.console
    settings = jaxdae.app.settings(asked, Settings)
    if settings is None:
        return 2
    plain = swing_up.Settings.model_validate(
        {name: getattr(settings, name) for name in swing_up.Settings.model_fields}
    )
    rows, ends, sentences = [], {}, []
    with precision(config):
        task = swing_up.task_of(config, plain, asked.worlds)

        def by_ilqr() -> Any:
            torques, solutions, tries = search(task, settings, config.batch.seed, config.steps)
            return swing_up.judge(config, plain, task, free_variables(task, torques)), solutions, tries

        def by_least_squares() -> Any:
            z, history = swing_up.search(
                task, plain, config.batch.seed, lambda text: console.print(text, highlight=False)
            )
            return swing_up.judge(config, plain, task, z), history

        (data, solutions, tries), *seconds = timed(by_ilqr)
        runs = {"iLQR": (data, seconds)}
        if settings.compare:
            (other, _), *seconds = timed(by_least_squares)
            runs["Levenberg-Marquardt"] = (other, seconds)
    for name, (found, (cpu, wall)) in runs.items():
        away, rate = swing_up.worst(found, "rad")
        ends[name] = away
        success = int(found.success.sum())
        near = f"{np.rad2deg(np.median(away)):.2g}, {np.rad2deg(away.max()):.2g}"
        rows.append(
            (
                name,
                f"{success} of {settings.starts}",
                near,
                f"{np.median(rate):.2g}, {rate.max():.2g}",
                f"{cpu:.0f}",
                f"{wall:.0f}",
            )
        )
    sentences.append(
        f"**{int(data.success.sum())} of {settings.starts}** starts swing up by iLQR, after "
        f"{tries.mean():.1f} tries each (most"
        f" {tries.max()}); limits kept by {int(data.kept.sum())}."
    )
    if settings.compare:
        (cpu, wall), (other_cpu, other_wall) = (seconds for _, seconds in runs.values())
        sentences.append(
            f"It takes **{cpu / other_cpu:.2f}** of the CPU time and **{wall / other_wall:.2f}** of the "
            "time of the other search."
        )
    headings = (
        "search",
        "up",
        "error in degrees: median, most",
        "rate in rad/s: median, most",
        "CPU s",
        "wall s",
    )
    conclude(asked, headings, rows, sentences, {"swing_up_ilqr": draw(task, solutions, ends)})
    return 0


if __name__ == "__main__":
    sys.exit(main())

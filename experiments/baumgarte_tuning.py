"""Which gains should Baumgarte's feedback have? Found by gradient, beside the rules of textbooks.

    python experiments/baumgarte_tuning.py [CONFIG] [--set PATH=VALUE ...] [--out DIR]

Feedback in the acceleration row, g'' + 2 alpha g' + beta^2 g = 0, keeps the drift of the constraints small,
and with it the error of the motion; gains that are too stiff make the integrator unstable. For a pendulum, a
crank-rocker and Andrews' squeezing mechanism, for three integrators and three steps h, alpha and beta are
found by gradient through the rollout, in one batch of several starts and all steps. The loss is the mean of
the logarithms of drift and of inaccuracy,

    L = (ln rms |g| + ln rms |q - reference|) / 2,

so that neither unit matters. Beside them stand, at the same steps,

* none: alpha = beta = 0;
* constant: alpha = beta = 5/s, a number that many papers take whatever the step;
* critical: alpha = beta = 1/h;
* Taylor: alpha = 1/h, beta = sqrt(2)/h, from g + h g' + h^2 g''/2 = 0, "the constraint holds after one step";
* time constant: critical damping that decays over ten steps, alpha = beta = 1/(10 h).

*Stability.* Along alpha = beta = s/h the feedback is the test equation of the integrator, with the double
root -s/h. Where the system itself is slow beside it, semi-implicit Euler is stable for s^2 + 4 s < 4, s <
0.83; the midpoint method for s < 2; RK4 for s < 2.785. The last s before the drift jumps by a factor of ten
is measured beside these limits.
"""

import dataclasses
import pathlib
import sys
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pydantic
import xarray as xr

import jaxdae
from jaxdae.app import begin, finish, line_style, load, precision, script, show_table, styled, table_lines
from jaxdae.app.draw.animation import write_animation
from jaxdae.tuning import FitResult, Positive, fit

CONFIG = "configs/baumgarte_tuning.yaml"
METHODS = {
    "semi-implicit Euler": jaxdae.SemiImplicitEuler,
    "midpoint": jaxdae.RungeKutta.midpoint,
    "RK4": jaxdae.RungeKutta.rk4,
}
LIMITS = {"semi-implicit Euler": 2.0 * np.sqrt(2.0) - 2.0, "midpoint": 2.0, "RK4": 2.7853}
RULES = {
    "none": lambda h: (0.0 * h, 0.0 * h),
    "constant 5/s": lambda h: (5.0 + 0.0 * h, 5.0 + 0.0 * h),
    "critical 1/h": lambda h: (1.0 / h, 1.0 / h),
    "Taylor 1/h": lambda h: (1.0 / h, np.sqrt(2.0) / h),
    "time constant 10 h": lambda h: (0.1 / h, 0.1 / h),
}
STARTS = (0.05, 0.3)  # of h alpha = h beta, from which each fit begins


class Case(pydantic.BaseModel, extra="forbid", strict=True):
    """One mechanism: its config, and the shortest step and the horizon."""

    config: str
    dt: pydantic.PositiveFloat
    duration: pydantic.PositiveFloat
    overrides: list[str] = []


class Settings(pydantic.BaseModel, extra="forbid", strict=True):
    """The section `experiment` of the config."""

    mechanisms: dict[str, Case]
    integrators: list[str]
    factors: list[pydantic.PositiveInt]
    iterations: pydantic.PositiveInt
    learning_rate: pydantic.PositiveFloat
    entries: pydantic.PositiveInt
    sweep: pydantic.PositiveInt

    @pydantic.field_validator("integrators")
    @classmethod
    def _known(cls, names: list[str]) -> list[str]:
        unknown = [name for name in names if name not in METHODS]
        if unknown or not names:
            raise ValueError(f"got {', '.join(unknown) or 'none'}, expected some of {', '.join(METHODS)}")
        return names


@dataclasses.dataclass(frozen=True)
class Problem:
    """A mechanism with its reference motion at the instants that are compared.

    Attributes:
        system: the mechanism.
        state: its start.
        dt: the shortest step in s.
        steps: of the shortest step, over the horizon.
        every: steps between two instants.
        reference: coordinates (instants, nq).
    """

    system: Any
    state: Any
    dt: float
    steps: int
    every: int
    reference: Any

    def measured(self, method: Any, factor: Any, alpha: Any, beta: Any) -> tuple[Any, Any, Any]:
        """Return rms |g|, rms |q - reference| and whether the motion stayed finite, with steps factor * dt.

        The root mean squares are over the horizon.

        All factors run the same number of steps; what lies beyond the horizon does not count.
        """
        gains = jaxdae.Baumgarte(alpha, beta)
        trajectory = jaxdae.rollout(
            self.system,
            method(stabilization=gains),
            self.state,
            dt=factor * self.dt,
            steps=self.steps,
            save_every=self.every,
        )
        entries = self.steps // self.every
        place = factor * jnp.arange(1, entries + 1, dtype=self.reference.dtype) - 1
        within = place < entries
        wanted = self.reference[jnp.minimum(place, entries - 1).astype(int)]
        g = jax.vmap(lambda q: self.system.constraint(jnp.zeros_like(self.state.t), q))(trajectory.state.q)
        # Beyond the horizon motions may break, and squares of what they leave overflow: selected away before
        # they are squared.
        g = jnp.where(within[:, None], g, 0.0)
        error = jnp.where(within[:, None], trajectory.state.q - wanted, 0.0)
        count = jnp.sum(within.astype(self.reference.dtype))
        good = jnp.all(~within | (trajectory.info.status == jaxdae.Status.OK))
        return jnp.sqrt(jnp.sum(g**2) / count), jnp.sqrt(jnp.sum(error**2) / count), good


def problem(system: Any, state: Any, case: Case, entries: int, factors: list[int]) -> Problem:
    """Return a mechanism with its reference: RK4 with projection and a tenth of the shortest step."""
    steps = round(case.duration / case.dt)
    every = max(1, steps // entries)
    steps -= steps % (every * max(factors))
    fine = jaxdae.rollout(
        system,
        jaxdae.Projected(jaxdae.RungeKutta.rk4()),
        state,
        dt=case.dt / 10.0,
        steps=10 * steps,
        save_every=10 * every,
    )
    jaxdae.raise_if_failed(fine)
    return Problem(system, state, case.dt, steps, every, fine.state.q)


def loss(problem: Problem, method: Any, p: Any) -> Any:
    """Return the mean logarithm of drift and inaccuracy.

    NaN where the motion broke, which `fit` walks back from.
    """
    drift, error, good = problem.measured(method, p["factor"], p["alpha"], p["beta"])
    return jnp.where(good, 0.5 * (jnp.log(drift) + jnp.log(error)), jnp.nan)


def tuned(problem: Problem, method: Any, settings: Settings) -> FitResult:
    """Return the fit of both gains from all starts and at all steps, in one program.

    Steps in the outer order.
    """
    factors = np.repeat(settings.factors, len(STARTS)).astype(float)
    begin_at = np.tile(STARTS, len(settings.factors)) / (factors * problem.dt)
    parameters = {
        "alpha": jnp.asarray(begin_at),
        "beta": jnp.asarray(begin_at),
        "factor": jnp.asarray(factors),
    }
    optimizer = optax.adam(optax.cosine_decay_schedule(settings.learning_rate, settings.iterations))
    return fit(
        lambda p: loss(problem, method, p),
        parameters,
        optimizer,
        steps=settings.iterations,
        trainable={"alpha": Positive(), "beta": Positive()},
        starts=len(factors),
        stacked=["factor"],
        clip=3.0,
    )


def compare(problem: Problem, method: Any, settings: Settings) -> xr.Dataset:
    """Return drift and error of the rules, of the tuned gains and along alpha = beta = s/h, by step."""
    found = tuned(problem, method, settings)
    factors = np.asarray(settings.factors, float)
    losses = np.where(np.isfinite(found.loss), found.loss, np.inf).reshape(len(factors), -1)
    best = losses.argmin(axis=1) + losses.shape[1] * np.arange(len(factors))
    scale = np.geomspace(0.02, 5.0, settings.sweep)
    h = factors * problem.dt
    sides = [rule(h) for rule in RULES.values()]
    sides.append((np.asarray(found.parameters["alpha"])[best], np.asarray(found.parameters["beta"])[best]))
    sides += [(s / h, s / h) for s in scale]
    alpha, beta = (np.stack([side[k] for side in sides]) for k in (0, 1))
    one = jax.vmap(lambda factor, a, b: problem.measured(method, factor, a, b))
    drift, error, good = jax.jit(jax.vmap(one, in_axes=(None, 0, 0)))(
        jnp.asarray(factors), jnp.asarray(alpha), jnp.asarray(beta)
    )
    lost = ~np.asarray(good)
    drift, error = (np.where(lost, np.nan, np.asarray(x)) for x in (drift, error))
    names = [*RULES, "tuned"]
    fields = {"alpha": alpha, "beta": beta, "drift": drift, "error": error}
    data = {name: (("gains", "dt"), x[: len(names)]) for name, x in fields.items()}
    data |= {f"sweep_{name}": (("s", "dt"), fields[name][len(names) :]) for name in ("drift", "error")}
    history = np.asarray(found.history.loss).reshape(settings.iterations, len(factors), -1)
    data["history"] = (("iteration", "dt", "start"), history)
    return xr.Dataset(data, {"gains": names, "dt": ("dt", h, {"units": "s"}), "s": scale})


def stability_limit(data: xr.Dataset) -> list[float]:
    """Return by step the last s before the drift jumps: the next is not finite or ten times as large.

    Infinite where none does.
    """
    limits = []
    for k in range(data.sizes["dt"]):
        drift = data.sweep_drift.values[:, k]
        jumps = ~(drift[1:] <= 10.0 * drift[:-1])
        limits.append(float(data.s.values[np.argmax(jumps)]) if jumps.any() else np.inf)
    return limits


def rows(results: dict[tuple[str, str], xr.Dataset]) -> list[tuple[str, ...]]:
    """Return the table: mechanism, integrator, step; for all gains drift and error; the tuned gains.

    The gain over the best rule.
    """
    table = []
    for (mechanism, integrator), data in results.items():
        limits = stability_limit(data)
        for k, h in enumerate(data.dt.values):
            drift, error = data.drift.values[:, k], data.error.values[:, k]
            both = np.sqrt(drift * error)
            rules = both[: len(RULES)]
            best = int(np.nanargmin(rules))
            cells = [
                "broken" if np.isnan(d) else f"{d:.1e}, {e:.1e}" for d, e in zip(drift, error, strict=True)
            ]
            gains = f"{float(data.alpha[-1, k]) * h:.2g}, {float(data.beta[-1, k]) * h:.2g}"
            better = f"{drift[best] / drift[-1]:.3g}, {error[best] / error[-1]:.3g} ({list(RULES)[best]})"
            limit = "none below 5" if np.isinf(limits[k]) else f"{limits[k]:.2g}"
            table.append(
                (
                    mechanism,
                    integrator,
                    f"{h:g}",
                    *cells,
                    gains,
                    better,
                    f"{limit} ({LIMITS[integrator]:.2g})",
                )
            )
    return table


HEADINGS = (
    "mechanism",
    "integrator",
    "h, s",
    *RULES,
    "tuned",
    "tuned h alpha, h beta",
    "best rule over tuned: drift, error",
    "limit of s: seen (theory)",
)


def draw(results: dict[tuple[str, str], xr.Dataset]):
    """Return the figure of the drift along alpha = beta = s/h at the middle step, with all gains."""
    mechanisms = list(dict.fromkeys(name for name, _ in results))
    integrators = list(dict.fromkeys(name for _, name in results))
    with styled() as figure_class:
        figure = figure_class(figsize=(4.6 * len(integrators), 3.4 * len(mechanisms)), layout="constrained")
        panels = figure.subplots(len(mechanisms), len(integrators), sharex=True, squeeze=False)
        for axes, (mechanism, integrator) in zip(panels.ravel(), results, strict=True):
            data = results[mechanism, integrator]
            for k, h in enumerate(data.dt.values):
                style = line_style(k)
                axes.plot(data.s, data.sweep_drift.values[:, k], **style, label=f"h = {h:g} s: drift")
                axes.plot(
                    data.s,
                    data.sweep_error.values[:, k],
                    color=style["color"],
                    linestyle=":",
                    label="error of the motion",
                )
                at = float(np.sqrt(data.alpha[-1, k] * data.beta[-1, k])) * h
                axes.plot(at, data.drift.values[-1, k], "*", color=style["color"], markersize=11)
                axes.plot(
                    at,
                    data.error.values[-1, k],
                    "*",
                    color=style["color"],
                    markersize=11,
                    markerfacecolor="white",
                )
            axes.axvline(LIMITS[integrator], color="black", linewidth=0.8, linestyle="--")
            axes.set_xscale("log")
            axes.set_yscale("log")
            axes.set_title(f"{mechanism}: {integrator}")
            axes.legend(fontsize=7)
        for axes in panels[-1]:
            axes.set_xlabel("s, with gains alpha = beta = s/h (stars: tuned)")
        for axes in panels[:, 0]:
            axes.set_ylabel("rms |g|, rms |q - reference|")
        return figure


def findings(results: dict[tuple[str, str], xr.Dataset]) -> list[str]:
    """Return in words where tuning wins, and by how much."""
    gains = {}
    for (mechanism, integrator), data in results.items():
        both = np.sqrt(data.drift.values * data.error.values)
        for k, h in enumerate(data.dt.values):
            gains[f"{mechanism}, {integrator}, h = {h:g} s"] = float(
                np.nanmin(both[: len(RULES), k]) / both[-1, k]
            )
    best, worst = max(gains, key=lambda name: gains[name]), min(gains, key=lambda name: gains[name])
    values = np.array(list(gains.values()))
    sentences = [
        f"In the geometric mean of drift and error, tuned gains are {np.median(values):.3g} times better "
        "than the best rule of each case"
        f" (median of {len(values)} cases): {values.min():.3g} times in the worst ({worst}), "
        f"{values.max():.3g} times in the best"
        f" ({best}).",
    ]
    for rule in RULES:
        index = list(RULES).index(rule)
        ratio = [
            np.sqrt(d.drift.values[index] * d.error.values[index] / (d.drift.values[-1] * d.error.values[-1]))
            for d in results.values()
        ]
        ratio = np.concatenate(ratio)
        broken = int(np.isnan(ratio).sum())
        said = (
            f"{np.nanmedian(ratio):.3g} times worse in the median" if broken < len(ratio) else "never stable"
        )
        sentences.append(f"Rule *{rule}*: {said}; broken in {broken} of {len(ratio)} cases.")
    return sentences


def outlines(mechanism: Any, q: Any) -> np.ndarray:
    """Return the bodies as one line through their joints (time, vertices, 2), interrupted between bodies."""
    lines = []
    for k, body in enumerate(mechanism.bodies):
        x, y, theta = (q[:, 3 * k + i] for i in range(3))
        points = [
            joint.point_a if joint.a == body.name else joint.point_b
            for joint in mechanism.joints
            if body.name in (joint.a, joint.b)
        ]
        points = (
            points if len(points) > 1 else [*points, tuple(-c for c in points[0])]
        )  # a rod on one hinge: its other end
        for px, py in points:
            lines.append(
                np.stack(
                    [
                        x + np.cos(theta) * px - np.sin(theta) * py,
                        y + np.sin(theta) * px + np.cos(theta) * py,
                    ],
                    axis=1,
                )
            )
        lines.append(np.full_like(lines[-1], np.nan))
    return np.stack(lines[:-1], axis=1)


def animate(
    path: pathlib.Path, mechanism: Any, here: Problem, method: Any, data: xr.Dataset, factor: int
) -> None:
    """Draw the motion at the longest step with tuned gains and with two rules, over the reference."""
    h = factor * here.dt
    plan = {"dt": h, "steps": here.steps // factor}
    shown = {"reference": jaxdae.Projected(jaxdae.RungeKutta.rk4())}
    for gains in ("constant 5/s", "time constant 10 h", "tuned"):
        alpha, beta = (float(data[name].sel(gains=gains)[-1]) for name in ("alpha", "beta"))
        shown[gains] = method(stabilization=jaxdae.Baumgarte(jnp.asarray(alpha), jnp.asarray(beta)))
    lines, status = {}, {}
    for name, integrator in shown.items():
        trajectory = jaxdae.rollout(here.system, integrator, here.state, **plan)
        lines[name] = outlines(mechanism, np.asarray(trajectory.state.q))
        status[name] = np.asarray(trajectory.info.status)
    times = h * np.arange(1, plan["steps"] + 1)
    tips = {name: x[:, -1] for name, x in lines.items()}
    write_animation(path, times, lines, traces=tips, status=status, title=f"steps of {h:g} s")


def main() -> int:
    """Run the experiment and return its exit code."""
    asked = script(CONFIG, __doc__)
    config, console = asked.config, asked.console
    settings = jaxdae.app.settings(asked, Settings)
    if settings is None:
        return 2
    results, animated = {}, {}
    with precision(config):
        for name, case in settings.mechanisms.items():
            loaded, worlds = load(str(asked.folder / case.config), tuple(case.overrides))
            system, _, state = worlds.one()
            here = problem(system, state, case, settings.entries, settings.factors)
            for integrator in settings.integrators:
                console.print(
                    f"{name}, {integrator}: {here.steps} steps, {len(STARTS) * len(settings.factors)} fits",
                    highlight=False,
                )
                results[name, integrator] = compare(here, METHODS[integrator], settings)
                animated.setdefault(
                    "first", (loaded.mechanism, here, METHODS[integrator], results[name, integrator])
                )
    folder, record = begin(config, asked.out, asked.source)
    for (mechanism, integrator), data in results.items():
        group = f"{mechanism}/{integrator}".replace(" ", "_")
        data.to_zarr(folder / "gains.zarr", group=group, zarr_format=2, consolidated=False)
    with precision(config):
        animate(folder / "motion.gif", *animated["first"], max(settings.factors))
    draw(results).savefig(folder / "gains.png", bbox_inches="tight")
    table, sentences = rows(results), findings(results)
    short = [[row[k] for k in (0, 1, 2, 8, 9, 10, 11)] for row in (HEADINGS, *table)]
    show_table(console, "rms |g|, rms |q - reference|", short[0], short[1:])
    for sentence in sentences:
        console.print(sentence, markup=False, highlight=False)
    lines = [f"# {config.name}", "", config.description, "", *(f"- {sentence}" for sentence in sentences), ""]
    lines += ["Cells: rms |g|, rms |q - reference| over the horizon, in m and rad.", ""]
    lines += table_lines(HEADINGS, table)
    (folder / "report.md").write_text(
        "\n".join([*lines, "", "![gains](gains.png)", "", "![motion](motion.gif)", ""]), encoding="utf-8"
    )
    finish(folder, record, gains=[dict(zip(HEADINGS, row, strict=True)) for row in table], findings=sentences)
    console.print(f"run folder: {folder}", highlight=False, markup=False, soft_wrap=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())

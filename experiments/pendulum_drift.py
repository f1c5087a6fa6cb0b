"""How far do a pendulum's hinge and energy drift in 100 s, and what helps?

Compared are the naive index-1 equations, Baumgarte's feedback in both forms over a sweep of gains, and
projections of velocities, of positions, and of both. Stiffer gains mean less drift, until the integrator
breaks: so it is with a method that evaluates the dynamics once a step. The stages of a Runge-Kutta method
leave the manifold within the step, stiff feedback answers to that, and the least drift is at soft gains.
Projections need no gains.

    python experiments/pendulum_drift.py [CONFIG] [--set PATH=VALUE ...] [--out DIR]

With a gain G in 1/s, Baumgarte's form is g'' + 2 G g' + G^2 g = 0. The lecture's form adds -alpha g - beta g'
to the multiplier; alpha = m G^2 and beta = 2 m G, m the mass of the rod, make it comparable: along the rod it
is the same, across it is four times as stiff.
"""

import sys

import jax
import jax.numpy as jnp
import numpy as np
import pydantic
import xarray as xr

import jaxdae
from jaxdae.app import begin, finish, line_style, precision, script, show_table, styled

CONFIG = "configs/pendulum_drift.yaml"
METHODS = {
    "explicit_euler": jaxdae.ExplicitEuler,
    "semi_implicit_euler": jaxdae.SemiImplicitEuler,
    "taylor": jaxdae.textbook.Taylor,
    "midpoint": jaxdae.RungeKutta.midpoint,
    "heun": jaxdae.RungeKutta.heun,
    "rk4": jaxdae.RungeKutta.rk4,
}
FORMS = {"Baumgarte": jaxdae.Baumgarte, "multiplier feedback": jaxdae.textbook.MultiplierFeedback}
PROJECTIONS = {
    "velocity projection": jaxdae.Projection(position=None),
    "position projection": jaxdae.Projection(velocity=None),
    "both projections": jaxdae.Projection(),
}
FIELDS = {"violation": "opening of the hinge in m", "energy_error": "energy error in J"}
LOST = 1.0  # a hinge that is open by more than the length of the rod, in m, counts as broken


class Gains(pydantic.BaseModel, extra="forbid", strict=True):
    """The sweep, on a log scale, in 1/s."""

    lowest: pydantic.PositiveFloat
    highest: pydantic.PositiveFloat
    count: pydantic.PositiveInt


class Settings(pydantic.BaseModel, extra="forbid", strict=True):
    """The section `experiment` of the config."""

    integrators: list[str]
    gains: Gains
    drawn: list[pydantic.PositiveFloat]

    @pydantic.field_validator("integrators")
    @classmethod
    def _known(cls, names: list[str]) -> list[str]:
        unknown = [name for name in names if name not in METHODS]
        if unknown or not names:
            raise ValueError(f"got {', '.join(unknown) or 'none'}, expected some of {', '.join(METHODS)}")
        return names


def simulate(config, system, integrator, state, axes=None) -> xr.Dataset:
    """Return the running maxima of |g| and of the energy error (method, time).

    `axes` are the axes of a stack of integrators.
    """
    plan = {"dt": config.dt, "steps": config.steps, "save_every": config.save_every}
    if axes is None:
        trajectory = jax.tree.map(lambda x: x[None], jaxdae.rollout(system, integrator, state, **plan))
    else:
        trajectory = jaxdae.batch_rollout(system, integrator, state, **plan, in_axes=(None, axes, None, None))
    energy = jax.jit(jax.vmap(jax.vmap(lambda x: jaxdae.energy(system, x))))(trajectory.state)
    violation = np.maximum.accumulate(np.asarray(trajectory.info.violation), axis=1)
    error = np.maximum.accumulate(np.abs(np.asarray(energy - jaxdae.energy(system, state))), axis=1)
    broken = (np.asarray(trajectory.info.status) != jaxdae.Status.OK) | (violation > LOST)
    instants = config.dt * config.save_every * np.arange(1, error.shape[1] + 1)
    fields = {"violation": violation, "energy_error": error}
    data = {name: (("method", "time"), np.where(broken, np.nan, x)) for name, x in fields.items()}
    return xr.Dataset(
        data | {"broken": ("method", broken[:, -1])}, {"time": ("time", instants, {"units": "s"})}
    )


def compare(config, system, method, state, gains) -> dict[str, xr.Dataset]:
    """Return the drift of all cures with one integrator.

    The sweeps are batches whose worlds differ in their gains.
    """
    found = {"naive": simulate(config, system, method(), state)}
    for name, projection in PROJECTIONS.items():
        found[name] = simulate(config, system, jaxdae.Projected(method(), projection), state)
    mass = system.mass[0]
    numbers = {"Baumgarte": (gains, gains), "multiplier feedback": (mass * gains**2, 2 * mass * gains)}
    for name, form in FORMS.items():
        stack = method(stabilization=form(*numbers[name]))
        axes = jax.tree.map(lambda x: 0 if jnp.ndim(x) else None, stack)
        swept = simulate(config, system, stack, state, axes)
        found[name] = swept.assign_coords(gain=("method", np.asarray(gains), {"units": "1/s"}))
    return found


def draw(found, drawn, duration):
    """Return the figure: the first integrator over time, then each integrator over the gain."""
    styles = {name: line_style(k) for k, name in enumerate(("naive", *FORMS, *PROJECTIONS))}
    styles["both projections"]["linestyle"] = "--"
    with styled() as figure_class:
        figure = figure_class(figsize=(4.4 * (len(found) + 1), 8), layout="constrained")
        panels = figure.subplots(2, len(found) + 1, sharey="row", sharex="col", squeeze=False)
        for row, (field, what) in zip(panels, FIELDS.items(), strict=True):
            draw_over_time(row[0], next(iter(found.values())), field, drawn, styles)
            row[0].set_ylabel(f"largest {what}")
            row[0].set_yscale("log")
            for axes, results in zip(row[1:], found.values(), strict=True):
                draw_over_gain(axes, results, field, styles)
        panels[0][0].set_title(f"{next(iter(found))}: largest so far")
        panels[1][0].set_xlabel("time in s")
        for axes, lower, name in zip(panels[0][1:], panels[1][1:], found, strict=True):
            axes.set_title(f"{name}: largest in {duration:g} s")
            lower.set_xlabel("gain in 1/s")
        figure.legend(*panels[0][0].get_legend_handles_labels(), loc="outside lower center", ncols=6)
        return figure


def draw_over_time(axes, results, field, drawn, styles):
    """Draw the drift over time; Baumgarte's at the gains `drawn`, the other form in the legend only."""
    for name, data in results.items():
        axes.plot([], [], **styles[name], label=name)
        if "gain" not in data.coords:
            axes.plot(data.time, data[field].values[0], **styles[name])
        elif name == "Baumgarte":
            for gain in drawn:
                values = data[field].values[int(np.abs(np.log(data.gain.values / gain)).argmin())]
                axes.plot(data.time, values, **styles[name])
                if field == "violation" and np.isfinite(values[-1]):
                    axes.annotate(
                        f"{gain:g}/s",
                        (float(data.time[-1]), values[-1]),
                        (3, 0),
                        textcoords="offset points",
                        fontsize=8,
                        va="center",
                    )


def draw_over_gain(axes, results, field, styles):
    """Draw the largest drift over the gain; horizontal lines have no gain."""
    axes.set_xscale("log")
    for name, data in results.items():
        largest = data[field].values[:, -1]
        if "gain" not in data.coords:
            axes.axhline(largest[0], **styles[name])
            continue
        axes.plot(data.gain, largest, marker=".", **styles[name])
        broken = data.gain.values[data.broken.values]
        if broken.size:
            color = styles[name]["color"]
            axes.axvline(broken.min(), color=color, linewidth=1.0, linestyle=":")
            axes.annotate(
                "breaks",
                (broken.min(), 0.5),
                (2, 0),
                xycoords=("data", "axes fraction"),
                textcoords="offset points",
                rotation=90,
                fontsize=8,
                va="center",
                color=color,
            )


def summary(found) -> list[tuple[str, ...]]:
    """Return the rows of the table: integrator, cure, gain, opening, energy error."""
    rows = []
    for integrator, results in found.items():
        for name, data in results.items():
            best, limit = 0, ""
            if "gain" in data.coords:
                if data.broken.all():
                    rows.append((integrator, name, "none", "broken", "broken"))
                    continue
                best = int(np.nanargmin(data.violation.values[:, -1]))
                broken = data.gain.values[data.broken.values]
                limit = f"{data.gain.values[best]:.3g}" + (
                    f" (breaks at {broken.min():.3g})" if broken.size else ""
                )
            ends = (
                "broken" if data.broken[best] else f"{float(data[field][best, -1]):.2e}" for field in FIELDS
            )
            rows.append((integrator, name, limit, *ends))
    return rows


def main() -> int:
    """Run the experiment and return its exit code."""
    asked = script(CONFIG, __doc__)
    config, console = asked.config, asked.console
    settings = jaxdae.app.settings(asked, Settings)
    if settings is None:
        return 2
    found = {}
    with precision(config):
        system, _, state = asked.worlds.one()
        gains = jnp.geomspace(settings.gains.lowest, settings.gains.highest, settings.gains.count)
        for name in settings.integrators:
            console.print(f"{name}: {config.steps} steps, {len(gains)} gains in two forms")
            found[name] = compare(config, system, METHODS[name], state, gains)
    folder, record = begin(config, asked.out, asked.source)
    for integrator, results in found.items():
        for name, data in results.items():
            data.to_zarr(
                folder / "drift.zarr",
                group=f"{integrator}/{name.replace(' ', '_')}",
                zarr_format=2,
                consolidated=False,
            )
    draw(found, settings.drawn, config.duration).savefig(folder / "drift.png", bbox_inches="tight")
    headings = ("integrator", "cure", "best gain, 1/s", "opening, m", "energy error, J")
    rows = summary(found)
    show_table(console, f"largest drift in {config.duration:g} s, dt = {config.dt:g} s", headings, rows)
    lines = [
        f"# {config.name}",
        "",
        config.description,
        "",
        *(f"| {' | '.join(r)} |" for r in (headings, ["---"] * 5, *rows)),
    ]
    (folder / "report.md").write_text("\n".join([*lines, "", "![drift](drift.png)", ""]), encoding="utf-8")
    finish(folder, record, drift=[dict(zip(headings, row, strict=True)) for row in rows])
    console.print(f"run folder: {folder}", highlight=False, markup=False, soft_wrap=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Do the symplectic methods drift over a million steps?

A symplectic method solves a mechanical system next to the given one, and its energy error oscillates. RK4
solves a system with a little friction, or a little drive. Two undamped systems show the difference: the
mechanism of the config, and a spherical pendulum, whose angular momentum about the vertical is kept as well.
`energy_drift.yaml` has a crank-rocker in the plane, `energy_drift_space.yaml` a four-bar in space in joint
coordinates, whose mass matrix is not constant: RATTLE is there the trapezoidal rule of the discrete
Euler-Lagrange equations.

    python experiments/energy_drift.py [CONFIG] [--set PATH=VALUE ...] [--out DIR]

*Drift* is the slope of a line through the energy error, times the duration. The oscillation is no independent
noise: neighbors in time are alike. So the line is fitted to the means of blocks, each of many periods. The
standard error of the slope comes from the scatter of the block means about the line, times sqrt((1 + r) / (1
- r)) where neighboring ones are alike too, r > 0 their correlation. A method drifts where its drift is more
  than three standard errors, and more than what round-off does: a random walk of one unit of round-off of the
  largest
kinetic energy a step ends, at three standard deviations, at 3 eps sqrt(steps). All energies are relative to
the largest kinetic energy. A drift of a unit of round-off a step need not be the method's: round-off may have
a bias. Then the longer steps tell, with which a method drifts more and round-off less.

In the plane masses are constant and gravity is linear, so that the midpoint rule of the discrete
Euler-Lagrange equations is RATTLE again, solved in another way. Methods solve as the config's `solver` says.
"""

import dataclasses
import sys
import time
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
import pydantic
import xarray as xr

import jaxdae
from jaxdae.app import begin, finish, line_style, precision, script, show_table, styled

CONFIG = "configs/energy_drift.yaml"
METHODS = {
    "rattle": lambda solver: jaxdae.Rattle(solver=solver),
    "discrete_euler_lagrange": lambda solver: jaxdae.DiscreteEulerLagrange(solver=solver),
    "suzuki4": lambda solver: jaxdae.Composition.suzuki4(jaxdae.Rattle(solver=solver)),
    "rk4": lambda solver: jaxdae.Projected(jaxdae.RungeKutta.rk4(solver=solver)),
}
NAMES = {"rattle": "RATTLE", "discrete_euler_lagrange": "Euler-Lagrange", "suzuki4": "Suzuki 4", "rk4": "RK4"}
SYMPLECTIC = ("rattle", "discrete_euler_lagrange", "suzuki4")
PENDULUM = "spherical pendulum"
ERRORS = (
    3.0  # standard errors, and standard deviations of the random walk, within which nothing is said to drift
)
DRIFTS = "DRIFTS"
FEW = 10.0  # units of round-off a step, below which a drift is said in them: it may be that of round-off
CONSISTENT = 1e-9  # relative violation of the pendulum's start that is taken for rounded input

Name = Literal["rattle", "discrete_euler_lagrange", "suzuki4", "rk4"]
Vector = tuple[float, float, float]


@jaxdae.tree.pytree
class SphericalPendulum(jaxdae.System):
    """A point mass at constant distance from the origin, gravity along -z.

    The row reads in m, like the loops of the mechanism.
    """

    mass: Any
    length: Any
    gravity: Any

    def mass_matrix(self, q):
        """Return m I."""
        return self.mass * jnp.eye(3, dtype=q.dtype)

    def force(self, t, q, v, u):
        """Return the weight."""
        return jnp.zeros_like(q).at[2].set(-self.mass * self.gravity)

    def constraint(self, t, q):
        """Return (|q|^2 / L - L) / 2, which is |q| - L to first order."""
        return jnp.stack([0.5 * (jnp.sum(q**2) / self.length - self.length)])

    def potential_energy(self, t, q):
        """Return m g z."""
        return self.mass * self.gravity * q[2]


class Start(pydantic.BaseModel, extra="forbid", strict=True):
    """The spherical pendulum: kg, m, m/s^2, and its start in m and m/s."""

    mass: pydantic.PositiveFloat
    length: pydantic.PositiveFloat
    gravity: float
    position: Vector = pydantic.Field(strict=False)
    velocity: Vector = pydantic.Field(strict=False)

    @pydantic.model_validator(mode="after")
    def _consistent(self) -> "Start":
        q, v = np.array(self.position), np.array(self.velocity)
        distance, outward = np.linalg.norm(q), abs(q @ v) / self.length
        if abs(distance - self.length) > CONSISTENT * self.length:
            raise ValueError(
                f"position: is {distance:.12g} m from the origin, expected length = {self.length:g} m"
            )
        if outward > CONSISTENT * np.linalg.norm(v):
            raise ValueError(f"velocity: must be at right angles to position, has {outward:.3g} m/s along it")
        if abs(q[0] * v[1] - q[1] * v[0]) < CONSISTENT * self.length * np.linalg.norm(v) or not v.any():
            raise ValueError(
                "velocity: must turn the pendulum about the vertical, its angular momentum is zero"
            )
        return self

    def build(self, dtype: Any) -> tuple[SphericalPendulum, jaxdae.State]:
        """Return the pendulum and its start."""
        numbers = (self.mass, self.length, self.gravity, self.position, self.velocity)
        mass, length, gravity, q, v = (jnp.asarray(x, dtype) for x in numbers)
        return SphericalPendulum(mass, length, gravity), jaxdae.State(jnp.zeros((), dtype), q, v)


class Coarse(pydantic.BaseModel, extra="forbid", strict=True):
    """A longer step in s, and the methods that make it, over the same time."""

    dt: pydantic.PositiveFloat
    methods: list[Name]


class Settings(pydantic.BaseModel, extra="forbid", strict=True):
    """The section `experiment` of the config."""

    mechanism: str = pydantic.Field(min_length=1)  # what tables and pictures call it
    methods: list[Name] = pydantic.Field(min_length=1)
    coarse: Coarse
    spherical_pendulum: Start
    blocks: int = pydantic.Field(ge=4)
    opening: pydantic.PositiveFloat
    angular_momentum: pydantic.PositiveFloat

    @property
    def titles(self) -> dict[str, str]:
        """What the systems are called."""
        return {"mechanism": self.mechanism, "pendulum": PENDULUM}


@dataclasses.dataclass(frozen=True)
class Fit:
    """A line through an error over time.

    Attributes:
        drift: slope times duration.
        error: standard error of the drift.
        amplitude: half of the range of the error about the line.
        means: (blocks,) of the error.
        times: (blocks,) of the means, in s.
    """

    drift: float
    error: float
    amplitude: float
    means: np.ndarray
    times: np.ndarray


def fit(t: np.ndarray, values: np.ndarray, blocks: int) -> Fit:
    """Return the least-squares line through block means, with a standard error for correlated neighbors.

    Args:
        t: (entries,) in s, equally spaced.
        values: (entries,), at least one a block.
        blocks: how many, at least 4.
    """
    times, means = (np.array([part.mean() for part in np.array_split(x, blocks)]) for x in (t, values))
    away = times - times.mean()
    slope = away @ means / (away @ away)
    rest = means - means.mean() - slope * away
    scatter = np.sqrt(rest @ rest / (blocks - 2) / (away @ away))
    total = rest @ rest
    alike = max(0.0, float(rest[1:] @ rest[:-1] / total)) if total > 0 else 0.0
    duration = t[-1] - t[0] + (t[1] - t[0])
    return Fit(
        drift=float(slope * duration),
        error=float(scatter * duration * np.sqrt((1 + alike) / (1 - alike))),
        amplitude=float(np.ptp(values - slope * t)) / 2,
        means=means,
        times=times,
    )


def random_walk(steps: int, eps: float) -> float:
    """Return how far round-off takes the relative energy in so many steps."""
    return ERRORS * eps * float(np.sqrt(steps))


def verdict(found: Fit, walk: float, unit: float) -> str:
    """Return whether there is a drift, in words; `unit` is one unit of round-off a step."""
    if abs(found.drift) <= ERRORS * found.error:
        return "none"
    if abs(found.drift) <= walk:
        return "round-off"
    units = found.drift / unit
    return f"{DRIFTS}, {units:.2g} eps a step" if abs(units) < FEW else DRIFTS


@dataclasses.dataclass(frozen=True)
class Run:
    """One method on one system.

    Attributes:
        system: "mechanism" or "pendulum".
        method: key of `METHODS`.
        dt: step in s.
        coarse: whether that is the longer one.
        steps: how many.
        seconds: what it took, with compilation.
        data: energy error (relative), opening in m, and for the pendulum momentum error (relative), over
            time; opening and status are those of all steps since the entry before.
    """

    system: str
    method: str
    dt: float
    coarse: bool
    steps: int
    seconds: float
    data: xr.Dataset

    @property
    def status(self) -> jaxdae.Status:
        """Of the last step."""
        return jaxdae.Status(int(self.data.status[-1]))

    @property
    def label(self) -> str:
        """Method and, where it is the longer one, step."""
        return f"{NAMES[self.method]}, {1e3 * self.dt:g} ms" if self.coarse else NAMES[self.method]

    def largest(self, field: str) -> float:
        """Return the largest magnitude of a field over the run; NaN without such a field."""
        return float(np.abs(self.data[field].values).max()) if field in self.data else float("nan")


def simulate(name: str, problem: Any, method: str, solver: Any, *, coarse: bool = False, **plan: Any) -> Run:
    """Return the run of a method on a system.

    Args:
        name: "mechanism" or "pendulum".
        problem: the system and its start.
        method: key of `METHODS`.
        solver: a saddle-point solver.
        coarse: whether the step is the longer one.
        plan: `dt`, `steps` and `save_every` of `jaxdae.rollout`.
    """
    began = time.perf_counter()
    system, state = problem
    trajectory = jaxdae.rollout(system, METHODS[method](solver), state, **plan)

    def measured(x):
        return jaxdae.energy(system, x), system.kinetic_energy(x.q, x.v)

    energy, kinetic = (np.asarray(x) for x in jax.jit(jax.vmap(measured))(trajectory.state))
    status = np.asarray(trajectory.info.status)
    fields = {
        "energy_error": (energy - float(jaxdae.energy(system, state))) / kinetic.max(),
        "opening": np.asarray(trajectory.info.violation),
        "status": status,
    }
    if name == "pendulum":
        about = [
            np.asarray(x.q[..., 0] * x.v[..., 1] - x.q[..., 1] * x.v[..., 0])
            for x in (trajectory.state, state)
        ]
        fields["momentum_error"] = (about[0] - about[1]) / abs(about[1])
    instants = plan["dt"] * plan["save_every"] * np.arange(1, len(status) + 1)
    data = xr.Dataset(
        {key: ("time", x) for key, x in fields.items()}, {"time": ("time", instants, {"units": "s"})}
    )
    data.attrs["largest_kinetic_energy_J"] = float(kinetic.max())
    return Run(name, method, plan["dt"], coarse, plan["steps"], time.perf_counter() - began, data)


def row_of(run: Run, found: Fit, walk: float, eps: float, title: str) -> dict[str, str]:
    """Return the row of the table."""
    good = run.status == jaxdae.Status.OK
    momentum = run.largest("momentum_error")
    return {
        "system": title,
        "method": run.label,
        "drift": f"{found.drift:.1e} ± {found.error:.1e}",
        "oscillation": f"{found.amplitude:.1e}",
        "verdict": verdict(found, walk, run.steps * eps) if good else f"FAILS: {run.status.name}",
        "opening, m": f"{run.largest('opening'):.1e}",
        "angular momentum": f"{momentum:.1e}" if np.isfinite(momentum) else "",
        "s": f"{run.seconds:.0f}",
    }


def conclusion(runs: list[Run], rows: list[dict[str, str]], settings: Settings) -> list[str]:
    """Return what the results say of the bars."""
    titles = settings.titles
    kept = [
        (run, row) for run, row in zip(runs, rows, strict=True) if run.method in SYMPLECTIC and not run.coarse
    ]
    lines = []
    if kept:
        bad = [run for run, row in kept if row["verdict"] not in ("none", "round-off")]
        held = (
            "none of the symplectic methods drifts"
            if not bad
            else f"these drift or fail: {_names(bad, titles)}"
        )
        lines.append(f"**Energy.** Over {kept[0][0].steps:g} steps {held}.")
    for title, field, bar, unit in (
        ("**Loops** are open", "opening", settings.opening, " m"),
        ("**Angular momentum** about the vertical is off", "momentum_error", settings.angular_momentum, ""),
    ):
        of = [run for run, _ in kept if field in run.data]
        if of:
            worst = max(of, key=lambda run: run.largest(field))
            above = [run for run in of if not run.largest(field) <= bar]
            held = f"NOT kept by {_names(above, titles)}" if above else "kept"
            lines.append(
                f"{title} by at most {worst.largest(field):.1e}{unit} ({_names([worst], titles)}); the bar "
                f"of {bar:.0e}{unit} is {held}."
            )
    others = [
        f"{row['drift'].split()[0]} on the {titles[run.system]} at {1e3 * run.dt:g} ms"
        for run, row in zip(runs, rows, strict=True)
        if run.method not in SYMPLECTIC and row["verdict"].startswith(DRIFTS)
    ]
    if others:
        lines.append(f"**RK4** drifts by {', '.join(others)}, of the largest kinetic energy.")
    return lines


def _names(runs: list[Run], titles: dict[str, str]) -> str:
    return ", ".join(f"{run.label} on the {titles[run.system]}" for run in runs)


def draw(runs: list[Run], fits: list[Fit], settings: Settings, duration: float):
    """Return the figure: for both systems energy errors, their block means, and what else is kept."""
    colors = {name: line_style(k) for k, name in enumerate(METHODS)}
    with styled() as figure_class:
        figure = figure_class(figsize=(12, 11), layout="constrained")
        panels = figure.subplots(3, 2)
        for left, right in panels[:2]:
            right.sharey(left)
        for column, (name, title) in enumerate(settings.titles.items()):
            envelope, means, kept = panels[:, column]
            for run, found in zip(runs, fits, strict=True):
                if run.system != name:
                    continue
                style = colors[run.method] | ({"linestyle": "--"} if run.coarse else {})
                if run.method == "discrete_euler_lagrange":
                    style |= {"linestyle": ":", "linewidth": 3.0}
                middle, error = _largest_in_blocks(run.data, "energy_error", 2 * settings.blocks)
                envelope.plot(middle, error, **style, label=run.label)
                moved = np.abs(found.means[1:] - found.means[0])
                means.plot(
                    found.times[1:], np.where(moved > 0, moved, np.nan), **style, marker=".", markersize=4
                )
                field = "opening" if name == "mechanism" else "momentum_error"
                largest = np.maximum.accumulate(np.abs(run.data[field].values))
                kept.plot(run.data.time, np.where(largest > 0, largest, np.nan), **style)
            envelope.set_title(f"{title}: largest energy error in {duration / (2 * settings.blocks):g} s")
            means.set_title(f"mean energy error of {duration / settings.blocks:g} s, against the first mean")
            means.set_xscale("log")
            kept.set_title(
                "opening of the loop so far, in m"
                if name == "mechanism"
                else "relative error of the angular momentum so far"
            )
            bar = settings.opening if name == "mechanism" else settings.angular_momentum
            kept.axhline(bar, color="black", linewidth=1.0, linestyle=":")
            kept.annotate(
                "bar", (0.0, bar), (3, -11), xycoords=("axes fraction", "data"), textcoords="offset points"
            )
            kept.set_xlabel("time in s")
            for axes in (envelope, means, kept):
                axes.set_yscale("log")
        for axes in panels[:2, 0]:
            axes.set_ylabel("relative to the largest kinetic energy")
        figure.legend(*panels[0][0].get_legend_handles_labels(), loc="outside lower center", ncols=6)
        return figure


def _largest_in_blocks(data: xr.Dataset, field: str, blocks: int) -> tuple[np.ndarray, np.ndarray]:
    """Return mean time and largest magnitude in so many blocks."""
    parts = zip(
        np.array_split(data.time.values, blocks),
        np.array_split(np.abs(data[field].values), blocks),
        strict=True,
    )
    times, largest = zip(*((t.mean(), x.max()) for t, x in parts if len(t)), strict=True)
    return np.array(times), np.array(largest)


def plans(config: Any, settings: Settings) -> list[tuple[str, dict[str, Any]]]:
    """Return method and step of every run.

    Raises:
        ValueError: fewer entries than twice the blocks, or a coarse step that does not fit between two
            entries.
    """
    entries, apart = config.steps // config.save_every, config.dt * config.save_every
    if entries < 2 * settings.blocks:
        raise ValueError(
            f"experiment.blocks: got {settings.blocks}, with {entries} entries expected at most "
            f"{entries // 2}"
        )
    every = round(apart / settings.coarse.dt)
    if every < 1 or abs(every * settings.coarse.dt - apart) > 1e-9 * apart:
        raise ValueError(
            f"experiment.coarse.dt: got {settings.coarse.dt:g} s, expected a whole fraction of {apart:g} s "
            "= dt * save_every"
        )
    fine = {"dt": config.dt, "steps": config.steps, "save_every": config.save_every}
    coarse = {"dt": settings.coarse.dt, "steps": entries * every, "save_every": every, "coarse": True}
    return [(name, fine) for name in settings.methods] + [(name, coarse) for name in settings.coarse.methods]


def main() -> int:
    """Run the experiment and return its exit code."""
    asked = script(CONFIG, __doc__)
    config, console = asked.config, asked.console
    settings = jaxdae.app.settings(asked, Settings)
    if settings is None:
        return 2
    try:
        planned = plans(config, settings)
    except ValueError as error:
        console.print(f"{asked.source}: {error}", markup=False)
        return 2
    runs = []
    with precision(config):
        mechanism, integrator, state = asked.worlds.one()
        solver = integrator.roles.solver
        systems = {
            "mechanism": (mechanism, state),
            "pendulum": settings.spherical_pendulum.build(state.q.dtype),
        }
        for name, problem in systems.items():
            for method, plan in planned:
                run = simulate(name, problem, method, solver, **plan)
                console.print(
                    f"{settings.titles[name]}, {run.label}: {run.steps} steps in {run.seconds:.0f} s",
                    markup=False,
                    highlight=False,
                )
                runs.append(run)
        eps = float(jnp.finfo(state.q.dtype).eps)
    fits = [fit(run.data.time.values, run.data.energy_error.values, settings.blocks) for run in runs]
    walks = [random_walk(run.steps, eps) for run in runs]
    folder, record = begin(config, asked.out, asked.source)
    for run in runs:
        group = f"{run.system}/{run.method}{'_coarse' if run.coarse else ''}"
        run.data.to_zarr(folder / "energy_drift.zarr", group=group, zarr_format=2, consolidated=False)
    draw(runs, fits, settings, config.duration).savefig(folder / "energy_drift.png", bbox_inches="tight")
    rows = [
        row_of(*each, eps, settings.titles[each[0].system]) for each in zip(runs, fits, walks, strict=True)
    ]
    for name, title in settings.titles.items():
        shown = [list(row.values())[1:] for run, row in zip(runs, rows, strict=True) if run.system == name]
        show_table(
            console,
            f"{title}: energy over {config.duration:g} s, of the largest kinetic energy",
            list(rows[0])[1:],
            shown,
        )
    sentences = conclusion(runs, rows, settings)
    for sentence in sentences:
        console.print(sentence.replace("**", ""), markup=False, highlight=False)
    lines = [
        f"# {config.name}",
        "",
        config.description,
        "",
        *(f"| {' | '.join(r)} |" for r in (rows[0], ["---"] * len(rows[0]), *(row.values() for row in rows))),
        "",
        *(f"- {sentence}" for sentence in sentences),
        "",
        f"*Drift*: slope of the energy error times {config.duration:g} s, relative to the largest kinetic "
        "energy; by least squares through"
        f" the means of {settings.blocks} blocks. After the ±: its standard error, from the scatter of the "
        "means about the line, widened"
        " where neighboring ones are alike. *Oscillation*: half of the range of the error about the line. "
        "*Verdict*: a drift of up to"
        f" {ERRORS:g} standard errors is none; one of up to {ERRORS:g} eps sqrt(steps), "
        f"{random_walk(config.steps, eps):.1e} in"
        f" {config.steps:g} steps, is what a random walk of round-off ends at. *Opening*: largest over all "
        "steps. *Angular momentum*:"
        " largest relative error of that about the vertical over all entries. *s*: wall time with "
        "compilation.",
        "",
        "![energy drift](energy_drift.png)",
        "",
    ]
    (folder / "report.md").write_text("\n".join(lines), encoding="utf-8")
    finish(folder, record, energy_drift=rows, findings=sentences)
    console.print(f"run folder: {folder}", highlight=False, markup=False, soft_wrap=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())

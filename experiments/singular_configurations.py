"""Which solvers follow a mechanism through its singular configurations?

The double four-bar passes ten times in 10 s through the place where all its links are in line. There the
constraint Jacobian loses rank, two further branches of motion begin, and a mechanism with momentum goes
straight on. A solver that factorizes the saddle-point matrix as if it had full rank does so as well, as long
as no step comes close to that place. This experiment brings steps close to it: the start is moved along the
motion, so that one step ends in line, or some time before.

    python experiments/singular_configurations.py [CONFIG] [--set PATH=VALUE ...] [--out DIR]

The reference is exact. From upright cranks that turn with the rate w, theta'' = w2 sin(theta) with theta
clockwise from there, w2 = g sum(m y) / sum(m y^2 + I), y the heights of the centers of mass (which are the
radii of their circles) and I of the bodies that turn; theta/2 + pi/2 = am(W t + K, k^2) with W^2 = w^2/4 + w2
and k^2 = w2 / W^2.
"""

import dataclasses
import sys
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pydantic
import xarray as xr

import jaxdae
from jaxdae.app import begin, finish, line_style, precision, script, show_table, styled

CONFIG = "configs/singular_configurations.yaml"
SOLVERS = {
    "dense_kkt": lambda tolerance: jaxdae.DenseKKT(),
    "schur_complement": lambda tolerance: jaxdae.SchurComplement(),
    "null_space": lambda tolerance: jaxdae.NullSpace(jaxdae.operators.SingularValues(tolerance)),
    "least_squares": jaxdae.LeastSquares,
    "proximal": lambda tolerance: jaxdae.Proximal(),
}
NAMES = {
    "dense_kkt": "DenseKKT (LU)",
    "schur_complement": "SchurComplement",
    "null_space": "NullSpace",
    "least_squares": "LeastSquares",
}
NAMES["proximal"] = "Proximal"
FIELDS = {
    "error": "distance from the branch in m",
    "energy_error": "energy error in J",
    "opening": "opening of a hinge in m",
}
LOST = 1e-2  # a body that is farther from its place on the branch, in m, counts as lost


class Approach(pydantic.BaseModel, extra="forbid", strict=True):
    """How long before the singular configuration a step ends, in s, on a log scale."""

    closest: pydantic.PositiveFloat
    farthest: pydantic.PositiveFloat
    count: pydantic.PositiveInt


class Settings(pydantic.BaseModel, extra="forbid", strict=True):
    """The section `experiment` of the config."""

    solvers: list[str]
    tolerance: float = pydantic.Field(gt=0, lt=1)
    approach: Approach

    @pydantic.field_validator("solvers")
    @classmethod
    def _known(cls, names: list[str]) -> list[str]:
        unknown = [name for name in names if name not in SOLVERS]
        if unknown or not names:
            raise ValueError(f"got {', '.join(unknown) or 'none'}, expected some of {', '.join(SOLVERS)}")
        return names


@dataclasses.dataclass(frozen=True)
class Branch:
    """The motion on which the cranks stay in parallel, from upright cranks.

    Attributes:
        upright: (n, 3) poses of the bodies there.
        turns: (n,) 1 for the bodies that turn, 0 for the others.
        rate: of the cranks there, clockwise, in rad/s.
        w2: in 1/s^2.
    """

    upright: np.ndarray
    turns: np.ndarray
    rate: float
    w2: float

    @classmethod
    def of(cls, system, state):
        """Return the branch of a start.

        Raises:
            ValueError: a start that is not upright, or does not turn clockwise.
        """
        q, v = (np.asarray(x).reshape(-1, 3) for x in (state.q, state.v))
        rate = float(-v[0, 2])
        turns = np.abs(v[:, 2]) > 0.5 * abs(rate)
        expected = rate * np.stack([q[:, 1], np.zeros(len(q)), np.where(turns, -1.0, 0.0)], axis=1)
        if not (rate > 0 and np.allclose(v, expected, rtol=0, atol=1e-9 * rate)):
            raise ValueError(
                "start: the cranks must be upright and turn clockwise, crank0.theta = pi/2 with a negative "
                "velocity"
            )
        mass, inertia = np.asarray(system.mass), np.asarray(system.inertia)
        w2 = (
            -float(system.gravity[1]) * np.sum(mass * q[:, 1]) / np.sum(mass * q[:, 1] ** 2 + inertia * turns)
        )
        return cls(q, turns.astype(float), rate, float(w2))

    def angle(self, t) -> tuple[Any, Any]:
        """Return theta in rad and its rate at times (k,) in s."""
        fastest = np.sqrt(self.rate**2 / 4 + self.w2)
        m = self.w2 / fastest**2
        # The arithmetic-geometric mean, and Landen's transformation back from it.
        a, b, ratios = 1.0, np.sqrt(1 - m), []
        while a - b > 1e-15:
            a, b, c = (a + b) / 2, np.sqrt(a * b), (a - b) / 2
            ratios.append(c / a)
        amplitude = 2 ** len(ratios) * (a * fastest * np.asarray(t) + np.pi / 2)
        for ratio in reversed(ratios):
            amplitude = (amplitude + np.arcsin(ratio * np.sin(amplitude))) / 2
        return 2 * amplitude - np.pi, 2 * fastest * np.sqrt(1 - m * np.sin(amplitude) ** 2)

    def at(self, t) -> tuple[np.ndarray, np.ndarray]:
        """Return poses and velocities (k, n, 3) at times (k,) in s."""
        theta, rate = (x[:, None] for x in self.angle(t))
        x, y, angle = self.upright.T
        poses = np.stack([x + y * np.sin(theta), y * np.cos(theta), angle - self.turns * theta], axis=-1)
        return poses, np.stack(
            [y * np.cos(theta) * rate, -y * np.sin(theta) * rate, -self.turns * rate], axis=-1
        )

    def in_line(self) -> float:
        """Return when the cranks are horizontal for the first time, in s."""
        before, after = 0.0, np.pi / 2 / self.rate
        for _ in range(60):
            middle = (before + after) / 2
            before, after = (middle, after) if self.angle(middle)[0] < np.pi / 2 else (before, middle)
        return before


def starts(settings, branch, dt) -> np.ndarray:
    """Return the start times (world,) of the config and for steps that end in line or before."""
    approach = settings.approach
    before = np.concatenate([[0.0], np.geomspace(approach.closest, approach.farthest, approach.count)])
    instant = branch.in_line()
    return np.concatenate([[0.0], np.remainder(instant - before, dt)])


def simulate(config, system, solver, branch, times) -> xr.Dataset:
    """Return branch distance, energy error, largest opening and smallest singular value, (world, time)."""
    poses, velocities = (jnp.asarray(x.reshape(len(times), -1)) for x in branch.at(times))
    states = jaxdae.State(jnp.asarray(times), poses, velocities)
    method = jaxdae.Projected(jaxdae.RungeKutta.rk4(solver=solver))
    plan = {"dt": config.dt, "steps": config.steps, "save_every": config.save_every}
    trajectory = jaxdae.batch_rollout(system, method, states, **plan, in_axes=(None, None, 0, None))
    every = jax.jit(
        jax.vmap(jax.vmap(lambda x: (jaxdae.energy(system, x), system.constraint_jacobian(x.t, x.q, x.v))))
    )
    energy, jacobian = every(trajectory.state)
    start = jax.vmap(lambda x: jaxdae.energy(system, x))(states)
    elapsed = config.dt * config.save_every * np.arange(1, energy.shape[1] + 1)
    exact = branch.at((times[:, None] + elapsed).reshape(-1))[0].reshape(*energy.shape, -1, 3)
    away = np.asarray(trajectory.state.q).reshape(exact.shape) - exact
    fields = {
        "error": np.max(np.hypot(away[..., 0], away[..., 1]), axis=-1),
        "energy_error": np.abs(np.asarray(energy) - np.asarray(start)[:, None]),
        "opening": np.maximum.accumulate(np.asarray(trajectory.info.violation), axis=1),
        "smallest": np.linalg.svd(np.asarray(jacobian), compute_uv=False)[..., -1],
        "status": np.asarray(trajectory.info.status),
    }
    return xr.Dataset(
        {name: (("world", "time"), x) for name, x in fields.items()},
        {"time": ("time", elapsed, {"units": "s"})},
    )


def draw(found, before, duration):
    """Return the figure over time, and at the end over the distance of a step from the line."""
    with styled() as figure_class:
        figure = figure_class(figsize=(14, 11), layout="constrained")
        panels = figure.subplots(4, 3, sharey="row", squeeze=False)
        for k, (name, data) in enumerate(found.items()):
            style = line_style(k)
            for row, field in zip(panels, (*FIELDS, "smallest"), strict=True):
                for axes, world in zip(row, (0, 1), strict=False):
                    good = data.status.values[world] == jaxdae.Status.OK
                    values = np.where(good, data[field].values[world], np.nan)
                    axes.plot(data.time, values, **style, label=NAMES[name])
                    if not good.all() and good.any():
                        last = np.flatnonzero(good)[-1]
                        axes.plot(
                            data.time[last], values[last], marker="x", color=style["color"], clip_on=False
                        )
            for row, field in zip(panels, FIELDS, strict=False):
                values, stopped = data[field].values[2:, -1], data.status.values[2:, -1] != jaxdae.Status.OK
                row[2].plot(before, values, marker=".", **style)
                row[2].plot(
                    before[stopped], values[stopped], marker="x", linestyle="none", color=style["color"]
                )
        for row, what in zip(panels, (*FIELDS.values(), "smallest singular value of J"), strict=True):
            row[0].set_ylabel(what)
            for axes in row:
                axes.set_yscale("log")
        for axes in panels[2]:
            axes.set_ylim(1e-16, None)
        titles = ("as configured", "with a step that ends in line", f"at {duration:g} s")
        for axes, title in zip(panels[0], titles, strict=True):
            axes.set_title(title)
        for axes in panels[-1][:2]:
            axes.set_xlabel("time in s")
        for axes in panels[:3, 2]:
            axes.set_xscale("log")
        panels[2][2].set_xlabel("how long before the links are in line a step ends, in s")
        panels[3][2].axis("off")
        panels[3][2].legend(
            *panels[0][0].get_legend_handles_labels(),
            loc="center",
            title="x: the solver fails, the world stops",
        )
        return figure


def summary(found) -> list[tuple[str, ...]]:
    """Return the rows of the table: solver, configured run, run with a step in line, lost worlds."""
    rows = []
    for name, data in found.items():
        cells = []
        for world in (0, 1):
            status = jaxdae.Status(int(data.status[world, -1]))
            ends = [float(data[field][world, -1]) for field in ("error", "opening")]
            ends.insert(1, float(data.energy_error[world].max()))
            cells += ["OK" if status == jaxdae.Status.OK else status.name, *(f"{x:.1e}" for x in ends)]
        rows.append((NAMES[name], *cells, f"{int(np.sum(lost(data)[2:]))} of {data.world.size - 2}"))
    return rows


def lost(data) -> np.ndarray:
    """Return which worlds (world,) have failed or left the branch."""
    return (data.status.values[:, -1] != jaxdae.Status.OK) | ~(data.error.values[:, -1] <= LOST)


def conclusion(found, before) -> str:
    """Return what the results show, in words."""
    lines = []
    for name, data in found.items():
        gone = lost(data)
        if not gone.any():
            lines.append(
                f"{NAMES[name]} follows the branch in all worlds, to {float(data.error[:, -1].max()):.1e} m "
                "at the end."
            )
            continue
        stopped, silent = (
            int(np.sum(gone & (np.equal(data.status.values[:, -1], jaxdae.Status.OK) == quiet)))
            for quiet in (False, True)
        )
        near = before[gone[2:]]
        reach = f", at up to {near.max():.0e} s from it" if near.size else ""
        start = (
            "The config's own steps miss the place by enough"
            if not gone[0]
            else "The config's own steps come too close"
        )
        lines.append(
            f"{NAMES[name]} is lost in {int(gone.sum())} of {gone.size} worlds{reach}: {stopped} stop with "
            "a status that says so,"
            f" {silent} go on without one. {start}."
        )
    return "\n".join(f"- {line}" for line in lines)


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
        try:
            branch = Branch.of(system, state)
        except ValueError as error:
            console.print(f"{asked.source}: {error}", markup=False)
            return 2
        times = starts(settings, branch, config.dt)
        for name in settings.solvers:
            console.print(f"{NAMES[name]}: {config.steps} steps, {len(times)} worlds")
            found[name] = simulate(config, system, SOLVERS[name](settings.tolerance), branch, times)
    folder, record = begin(config, asked.out, asked.source)
    before = np.geomspace(settings.approach.closest, settings.approach.farthest, settings.approach.count)
    for name, data in found.items():
        data.to_zarr(folder / "singular.zarr", group=name, zarr_format=2, consolidated=False)
    draw(found, before, config.duration).savefig(folder / "singular.png", bbox_inches="tight")
    measured = ("status", "error, m", "energy error, J", "opening, m")
    headings = ("solver", *measured, *(f"in line: {what}" for what in measured), "near: lost")
    rows = summary(found)
    show_table(console, f"after {config.duration:g} s, dt = {config.dt:g} s", headings, rows)
    text = conclusion(found, before)
    lines = [
        f"# {config.name}",
        "",
        config.description,
        "",
        *(f"| {' | '.join(r)} |" for r in (headings, ["---"] * len(headings), *rows)),
        "",
        "*In line*: one of the steps ends where the smallest singular values of the constraint Jacobian "
        "are zero. *Near*: it ends"
        f" {settings.approach.closest:g} to {settings.approach.farthest:g} s before that, in "
        f"{settings.approach.count} worlds. A world is"
        f" lost where its solver fails, or a body is {LOST:g} m or more from its place on the branch.",
        "",
        text,
        "",
        "The steps of a configuration chosen without care miss the singular configurations, and then every "
        "solver passes: what lies a step"
        " apart from them is well conditioned. A factorization that takes the matrix to have full rank "
        "divides by the smallest singular"
        " value. The closer a step comes, the more the error of its stages is multiplied, until the result "
        "is no number or a wrong one."
        " With a rank that is decided by a tolerance the step is made with the mobility of the singular "
        "configuration, the projection"
        " brings it back to the branch, and an error of the order of g dt^2 remains.",
        "",
        "![singular configurations](singular.png)",
        "",
    ]
    (folder / "report.md").write_text("\n".join(lines), encoding="utf-8")
    finish(folder, record, singular=[dict(zip(headings, row, strict=True)) for row in rows])
    console.print(f"run folder: {folder}", highlight=False, markup=False, soft_wrap=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())

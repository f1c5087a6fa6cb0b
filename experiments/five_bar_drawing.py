"""How well does a closed loop with two motors draw? A five-bar and a figure of eight, twice.

    python experiments/five_bar_drawing.py [CONFIG] [--set PATH=VALUE ...] [--out DIR]

(a) Virtual-work control. The goal of the tip, y'- y*' + (beta / h) (y - y*) = 0, is solved together with the
hinges, in the velocity-level stepper. Its force, which nobody can exert, is exchanged for the torques of both
motors with the same virtual work in all motions that the loop allows; these alone act, within limits. It is
feedback in every step.

(b) Optimized torques, without feedback: linear between knots, bounded by the limits, found by
Levenberg-Marquardt through the rollout (RK4 and projection, steps of `save_every` dt), from a start at what
(a) did. It sees the whole figure at once.

Errors are distances of the tip from where it should be at that time, at the entries.
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
from jaxdae import control, tuning
from jaxdae.app import (
    begin,
    finish,
    line_style,
    precision,
    script,
    show_table,
    styled,
    table_lines,
    write_animation,
)

CONFIG = "configs/five_bar_drawing.yaml"
METHODS = ("virtual work", "its torques, replayed", "optimized torques")
LINK = 0.125  # the tip in the frame of the left link, m: as in the config's joint `tip`

Pair = pydantic.conlist(float, min_length=2, max_length=2)


class Settings(pydantic.BaseModel, extra="forbid", strict=True):
    """The section `experiment` of the config."""

    center: Pair  # pyright: ignore[reportInvalidTypeForm]
    size: Pair  # pyright: ignore[reportInvalidTypeForm]
    motors: list[str] = pydantic.Field(min_length=1)
    limit: pydantic.PositiveFloat
    beta: float = pydantic.Field(gt=0.0, lt=2.0)
    knots: pydantic.PositiveInt
    iterations: pydantic.PositiveInt


@jaxdae.tree.pytree
class Eight:
    """A figure of eight (Gerono's lemniscate) that is drawn once, from rest to rest.

    Attributes:
        center: (2,) in m.
        size: (2,) half of width and height in m.
        duration: in s.
    """

    center: Any
    size: Any
    duration: Any

    def __call__(self, t):
        """Return the place (2,) in m at time t."""
        part = jnp.clip(t / self.duration, 0.0, 1.0)
        angle = 2.0 * jnp.pi * part - jnp.sin(2.0 * jnp.pi * part)
        return self.center + self.size * jnp.stack([jnp.sin(angle), jnp.sin(2.0 * angle)])


def driven(mechanism: Any) -> Any:
    """Return the mechanism with its motors driven by inputs instead of the constant torques of the config."""
    torque = mechanism.forces["torque"]
    count = len(torque.names)
    motors = dataclasses.replace(torque, input=tuple(range(count)), gain=jnp.ones(count))
    return dataclasses.replace(mechanism, n_inputs=count, forces={**mechanism.forces, "torque": motors})


def tip_of(mechanism: Any) -> control.BodyPoint:
    """Return the tip as an output."""
    return control.BodyPoint.named(mechanism, "left_link", (LINK, 0.0))


def figure_of(config: Any, settings: Settings, dtype: Any) -> Eight:
    """Return what is to be drawn."""
    return Eight(*(jnp.asarray(x, dtype) for x in (settings.center, settings.size, config.duration)))


def start_of(mechanism: Any, state: Any, figure: Eight) -> jaxdae.State:
    """Return the state at rest with the tip at the start of the figure, by assembly with the goal."""
    held = control.WithGoals(mechanism, (control.Goal(tip_of(mechanism), figure(jnp.zeros_like(state.t))),))
    return jaxdae.initialize(held, state.q)[0]


def controlled(mechanism: Any, figure: Eight, settings: Settings) -> control.VelocityStepping:
    """Return the stepper of virtual-work control."""
    motors = control.VirtualWork(
        tuple(control.JointCoordinate.named(mechanism, name) for name in settings.motors)
    )
    goal = control.GoalGroup(
        goals=(control.Goal(tip_of(mechanism), figure),),
        beta=settings.beta,
        motors=motors,
        limit=settings.limit,
    )
    return control.VelocityStepping(groups=(goal,))


def hats(steps: int, knots: int) -> np.ndarray:
    """Return the matrix (steps, knots + 1) of linear interpolation from knots to the middles of steps."""
    places = (np.arange(steps) + 0.5) / steps * knots
    return np.maximum(0.0, 1.0 - np.abs(places[:, None] - np.arange(knots + 1)[None, :]))


def replay(mechanism: Any, start: jaxdae.State, controls: Any, dt: float) -> jaxdae.Trajectory:
    """Return the trajectory of given torques (steps, 2)."""
    return jaxdae.rollout(mechanism, jaxdae.Projected(jaxdae.RungeKutta.rk4()), start, controls, dt=dt)


def simulate(config: Any, settings: Settings, worlds: Any) -> tuple[xr.Dataset, dict[str, float]]:
    """Return tips, torques and poses of all methods, and seconds of wall time."""
    mechanism, _, closed = worlds.one()
    mechanism = driven(mechanism)
    figure = figure_of(config, settings, closed.q.dtype)
    start, clock = start_of(mechanism, closed, figure), {}
    begun = time.perf_counter()
    drawn = jaxdae.rollout(
        mechanism, controlled(mechanism, figure, settings), start, dt=config.dt, steps=config.steps
    )
    jaxdae.raise_if_failed(drawn)
    clock["virtual work"] = time.perf_counter() - begun
    torques = np.asarray(drawn.info.efforts[0])

    stride = config.save_every
    steps, dt = config.steps // stride, stride * config.dt
    matrix = jnp.asarray(hats(steps, settings.knots), closed.q.dtype)
    means = torques.reshape(steps, stride, -1).mean(axis=1)
    # Torques on the limit have no place between bounds.
    warm = np.clip(
        np.linalg.lstsq(np.asarray(matrix), means, rcond=None)[0],
        -0.99 * settings.limit,
        0.99 * settings.limit,
    )
    output = tip_of(mechanism)
    wanted = jax.vmap(figure)(dt * jnp.arange(1.0, steps + 1.0, dtype=closed.q.dtype))

    def gaps(knots: Any) -> Any:
        """Return the error of the tip at all entries (steps, 2) in mm."""
        return 1e3 * (jax.vmap(output)(replay(mechanism, start, matrix @ knots, dt).state.q) - wanted)

    begun = time.perf_counter()
    fitted = tuning.least_squares(
        lambda p: gaps(p["torque"]) / np.sqrt(steps),
        {"torque": jnp.asarray(warm)},
        trainable={"torque": tuning.Between(-settings.limit, settings.limit)},
        iterations=settings.iterations,
    )
    knots = jax.block_until_ready(fitted.parameters["torque"])
    clock["optimization"] = time.perf_counter() - begun
    poses, tips, used = [np.asarray(drawn.state.q)[stride - 1 :: stride]], [], [means]
    for value in (warm, knots):
        found = replay(mechanism, start, matrix @ jnp.asarray(value), dt)
        jaxdae.raise_if_failed(found)
        poses.append(np.asarray(found.state.q))
        used.append(np.asarray(matrix) @ np.asarray(value))
    tips = [np.asarray(jax.vmap(output)(jnp.asarray(q))) for q in poses]
    entry = ("way", "time")
    data = xr.Dataset(
        {
            "q": ((*entry, "coordinate"), np.stack(poses)),
            "tip": ((*entry, "axis"), np.stack(tips)),
            "torque": ((*entry, "motor"), np.stack(used)),
            "wanted": (("time", "axis"), np.asarray(wanted)),
        },
        {
            "way": list(METHODS),
            "time": dt * np.arange(1, steps + 1),
            "coordinate": list(mechanism.coordinate_names),
            "axis": ["x", "y"],
            "motor": settings.motors,
        },
        {
            "iterations": int(fitted.iterations),
            "violation_m": float(np.max(np.asarray(drawn.info.violation))),
        },
    )
    return data, clock


def summary(data: xr.Dataset) -> list[tuple[str, ...]]:
    """Return the rows of the table: method, errors in mm, largest torque in N m."""
    gaps = 1e3 * np.linalg.norm(data.tip.values - data.wanted.values, axis=-1)
    return [
        (
            name,
            f"{np.sqrt(np.mean(gap**2)):.3g}",
            f"{gap.max():.3g}",
            f"{gap[-1]:.3g}",
            f"{np.abs(torque).max():.3f}",
        )
        for name, gap, torque in zip(METHODS, gaps, data.torque.values, strict=True)
    ]


def outline(data: xr.Dataset, name: str) -> np.ndarray:
    """Return the mechanism of a method (time, 5, 2) in m: pivot, knee, tip, knee, pivot."""

    def place(body: str, along: float) -> np.ndarray:
        x, y, angle = (data.q.sel(way=name, coordinate=f"{body}.{c}").values for c in ("x", "y", "theta"))
        return np.stack([x + along * np.cos(angle), y + along * np.sin(angle)], axis=-1)

    return np.stack(
        [
            place("left", -0.075),
            place("left", 0.075),
            place("left_link", LINK),
            place("right", 0.075),
            place("right", -0.075),
        ],
        axis=1,
    )


def draw(data: xr.Dataset):
    """Return the figure: what was drawn, the errors and the torques."""
    with styled() as figure_class:
        figure = figure_class(figsize=(14, 6), layout="constrained")
        grid = figure.add_gridspec(2, 2, width_ratios=(1, 1.2))
        paths, errors, torques = (
            figure.add_subplot(grid[:, 0]),
            figure.add_subplot(grid[0, 1]),
            figure.add_subplot(grid[1, 1]),
        )
        paths.plot(*data.wanted.values.T, color="black", linewidth=4, alpha=0.2, label="wanted")
        for k, name in enumerate(METHODS):
            style, found = line_style(k), data.sel(way=name)
            paths.plot(*found.tip.values.T, label=name, linewidth=1.0, **style)
            gap = 1e3 * np.linalg.norm(found.tip.values - data.wanted.values, axis=-1)
            errors.plot(data.time, np.maximum(gap, 1e-6), label=name, **style)
            if k != 1:
                for motor, width in zip(found.motor.values, (1.4, 0.7), strict=False):
                    torques.plot(
                        data.time,
                        found.torque.sel(motor=motor),
                        label=f"{name}, {motor}",
                        **{**style, "linewidth": width},
                    )
        paths.plot(*outline(data, METHODS[0])[0].T, "o-", color="#8a8a8a", linewidth=1.0, markersize=3)
        paths.set(aspect="equal", xlabel="x in m", ylabel="y in m")
        errors.set(yscale="log", ylabel="error in mm")
        torques.set(ylabel="torque in N m", xlabel="time in s")
        for axes in (paths, errors, torques):
            axes.legend(fontsize=8)
        return figure


def main() -> int:
    """Run the experiment and return its exit code."""
    asked = script(CONFIG, __doc__)
    config, console = asked.config, asked.console
    settings = jaxdae.app.settings(asked, Settings)
    if settings is None:
        return 2
    torques = [spec.joint for spec in config.mechanism.forces if spec.type == "joint_force"]
    if torques != settings.motors:
        console.print(
            f"{asked.source}: experiment.motors: must be the hinges with a joint_force, {torques}",
            markup=False,
        )
        return 2
    with precision(config):
        data, clock = simulate(config, settings, asked.worlds)
    folder, record = begin(config, asked.out, asked.source)
    data.to_zarr(folder / "five_bar_drawing.zarr", zarr_format=2, consolidated=False)
    draw(data).savefig(folder / "five_bar_drawing.png", bbox_inches="tight")
    shown = {name: outline(data, name) for name in METHODS[::-1]}
    traces = {"drawn: virtual work": data.tip.values[0], "drawn: optimized torques": data.tip.values[2]}
    write_animation(folder / "five_bar_drawing.gif", data.time, shown, traces=traces, title="five-bar")
    headings = ("method", "rms error, mm", "largest, mm", "at the end, mm", "largest torque, N m")
    rows = summary(data)
    show_table(console, "distance of the tip from the figure, at the same time", headings, rows)
    found = [
        f"**Loops** open by at most {data.attrs['violation_m']:.1e} m under virtual-work control.",
        f"**Optimization**: {data.attrs['iterations']} iterations of Levenberg-Marquardt, "
        f"{2 * (settings.knots + 1)} numbers,"
        f" {clock['optimization']:.0f} s with compiling; the rollout of virtual-work control "
        f"{clock['virtual work']:.1f} s.",
    ]
    for line in (*found, f"run folder: {folder}"):
        console.print(line, highlight=False, markup=False, soft_wrap=True)
    lines = "\n".join(table_lines(headings, rows))
    text = "\n".join(f"- {line}" for line in found)
    images = "![paths, errors, torques](five_bar_drawing.png)\n\n![drawing](five_bar_drawing.gif)"
    (folder / "report.md").write_text(
        f"# {config.name}\n\n{config.description}\n\n{lines}\n\n{text}\n\n{images}\n", encoding="utf-8"
    )
    finish(
        folder,
        record,
        five_bar_drawing=[dict(zip(headings, row, strict=True)) for row in rows],
        findings=found,
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Constraints that switch at run time: an upper body whose hands reach for goals.

Hinges are hard constraints. A goal pulls the fingers of a hand to a place while it is on; off, its rows are
masked. In the velocity-level stepper each goal is a pair of rows J v+ + C p = -(beta / h) psi, solved
together with the hinges: hard (C = 0), or soft by compliance, where it is an implicit spring and damper. A
projection closes the hinges after every step.

    python experiments/upper_body.py [CONFIG] [--set PATH=VALUE ...] [--out DIR]

Four worlds in one compiled program, which differ in numbers only:

* hard: hard goals, the distance falling by e every `reach_time`.
* soft: the same goals as springs and dampers.
* other times: soft, with the hours of the left hand's goals and of the right hand's exchanged.
* too far: hard goals, one of them beyond what the arm can reach, with a force that is limited. Hinges are
  solved last, and hold.

Then the program runs once more with all goals off, and is not compiled again.
"""

import itertools
import sys
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pydantic
import xarray as xr

import jaxdae
from jaxdae import control
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

CONFIG = "configs/upper_body.yaml"
WORLDS = ("hard", "soft", "other times", "too far")
SIDES = ("left", "right")
Positive = pydantic.PositiveFloat
Place = list[float]


class GoalSettings(pydantic.BaseModel, extra="forbid", strict=True):
    """A place for a hand, and when."""

    hand: str = pydantic.Field(pattern="^(left|right)$")
    place: Place = pydantic.Field(min_length=2, max_length=2)
    on: float
    off: float


class Beyond(pydantic.BaseModel, extra="forbid", strict=True):
    """Another place for one of the goals, by its number from 0."""

    goal: pydantic.NonNegativeInt
    place: Place = pydantic.Field(min_length=2, max_length=2)


class Settings(pydantic.BaseModel, extra="forbid", strict=True):
    """The section `experiment` of the config."""

    tip: float
    reach_time: Positive
    stiffness: Positive
    damping: Positive
    strength: Positive
    goals: list[GoalSettings] = pydantic.Field(min_length=1)
    too_far: Beyond

    @pydantic.model_validator(mode="after")
    def _one_goal_a_hand(self) -> "Settings":
        for hand in SIDES:
            spans = sorted((goal.on, goal.off) for goal in self.goals if goal.hand == hand)
            if any(on >= off for on, off in spans) or any(a[1] > b[0] for a, b in itertools.pairwise(spans)):
                raise ValueError(
                    f"goals: each must end after it begins, and the {hand} hand can have one at a time"
                )
        if self.too_far.goal >= len(self.goals):
            raise ValueError(f"too_far.goal: there are {len(self.goals)} goals, counted from 0")
        return self


@jaxdae.tree.pytree
class Hours:
    """When goals are on: on <= t < off, each (goals,) in s; two rows a goal."""

    on: Any
    off: Any

    def __call__(self, t, q):
        """Return which rows are on."""
        return jnp.repeat((self.on <= t) & (t < self.off), 2)


def stepper(
    mechanism: Any, settings: Settings, dt: float, soft: bool, hours: Hours, places: Any, limit: float
) -> jaxdae.Projected:
    """Return the stepper of one world, hinges closed after every step.

    Places (goals, 2) in m, limit in N.
    """
    dtype = mechanism.mass.dtype
    hands = {side: control.BodyPoint.named(mechanism, f"{side}_hand", (settings.tip, 0.0)) for side in SIDES}
    goals = tuple(
        control.Goal(hands[goal.hand], place)
        for goal, place in zip(settings.goals, jnp.asarray(places, dtype), strict=True)
    )
    beta, compliance = (
        control.spring_and_damper(settings.stiffness, settings.damping, dt)
        if soft
        else (dt / settings.reach_time, 0.0)
    )
    numbers = [jnp.asarray(x, dtype) for x in (beta, limit, compliance)]
    group = control.GoalGroup(
        goals=goals, beta=numbers[0], limit=numbers[1], compliance=numbers[2], active=hours
    )
    return jaxdae.Projected(control.VelocityStepping(groups=(group,)), jaxdae.Projection(velocity=None))


def steppers(mechanism: Any, settings: Settings, dt: float) -> list[jaxdae.Projected]:
    """Return the steppers of all worlds."""
    dtype = mechanism.mass.dtype
    places = np.array([goal.place for goal in settings.goals])
    far = places.copy()
    far[settings.too_far.goal] = settings.too_far.place
    spans = np.array([[goal.on, goal.off] for goal in settings.goals])
    exchanged = spans.copy()
    numbers = [[k for k, goal in enumerate(settings.goals) if goal.hand == side] for side in SIDES]
    for left, right in zip(*numbers, strict=False):
        exchanged[[left, right]] = spans[[right, left]]
    hours, other = (Hours(*jnp.asarray(x.T, dtype)) for x in (spans, exchanged))
    free = np.inf
    return [
        stepper(mechanism, settings, dt, False, hours, places, free),
        stepper(mechanism, settings, dt, True, hours, places, free),
        stepper(mechanism, settings, dt, True, other, places, free),
        stepper(mechanism, settings, dt, False, hours, far, settings.strength),
    ]


def simulate(config: Any, settings: Settings, worlds: Any) -> tuple[xr.Dataset, dict[str, float]]:
    """Return the entries of all worlds, and the seconds of the first and the second run."""
    mechanism, _, start = worlds.one()
    made = steppers(mechanism, settings, config.dt)
    stack = jax.tree.map(lambda *leaves: jnp.stack(leaves), *made)
    clock = {}

    def run(integrators: Any) -> Any:
        return jax.block_until_ready(
            jaxdae.batch_rollout(
                mechanism,
                integrators,
                start,
                dt=config.dt,
                steps=config.steps,
                save_every=config.save_every,
                in_axes=(None, 0, None, None),
            )
        )

    begun = time.perf_counter()
    trajectory = run(stack)
    clock["first run, with compiling"] = time.perf_counter() - begun
    begun = time.perf_counter()
    never = jaxdae.tree.set_leaf(
        stack, "integrator.groups.0.active.on", jnp.full_like(stack.integrator.groups[0].active.on, np.inf)
    )
    idle = run(never)
    clock["second run, other times"] = time.perf_counter() - begun
    for found in (trajectory, idle):
        jaxdae.raise_if_failed(found)
    count = len(settings.goals)
    efforts = np.asarray(trajectory.info.efforts[0]).reshape(len(WORLDS), -1, count, 2)
    goals = [made[k].integrator.groups[0] for k in range(len(WORLDS))]
    spans = np.stack(
        [np.stack([np.asarray(goal.active.on), np.asarray(goal.active.off)], axis=-1) for goal in goals]
    )
    places = np.stack([[np.asarray(goal.target) for goal in group.goals] for group in goals])
    entry = ("world", "time")
    data = xr.Dataset(
        {
            "q": ((*entry, "coordinate"), np.asarray(trajectory.state.q)),
            "violation": (entry, np.asarray(trajectory.info.violation)),
            "force": ((*entry, "goal", "axis"), efforts),
            "span": (("world", "goal", "end"), spans),
            "place": (("world", "goal", "axis"), places),
            "idle": (("time", "coordinate"), np.asarray(idle.state.q)[0]),
        },
        {
            "world": list(WORLDS),
            "time": np.asarray(trajectory.state.t)[0],
            "coordinate": list(mechanism.coordinate_names),
            "axis": ["x", "y"],
            "end": ["on", "off"],
        },
    )
    return data, clock


def frame_point(data: xr.Dataset, body: str, point: tuple[float, float]) -> np.ndarray:
    """Return places (world, time, 2) in m of a point of a body."""
    x, y, angle = (data.q.sel(coordinate=f"{body}.{name}").values for name in ("x", "y", "theta"))
    cos, sin = np.cos(angle), np.sin(angle)
    return np.stack([x + cos * point[0] - sin * point[1], y + sin * point[0] + cos * point[1]], axis=-1)


def distances(data: xr.Dataset, settings: Settings) -> np.ndarray:
    """Return the distance of each goal's fingers from its place (world, time, goal) in m."""
    tips = {side: frame_point(data, f"{side}_hand", (settings.tip, 0.0)) for side in SIDES}
    gaps = [tips[goal.hand] - data.place.values[:, None, k] for k, goal in enumerate(settings.goals)]
    return np.linalg.norm(np.stack(gaps, axis=2), axis=-1)


def summary(data: xr.Dataset, settings: Settings) -> list[tuple[str, ...]]:
    """Return the rows of the table: world, goal, interval, final distance and force, largest force."""
    rows, gaps = [], distances(data, settings)
    strength = np.linalg.norm(data.force.values, axis=-1)
    for w, world in enumerate(WORLDS):
        for k, goal in enumerate(settings.goals):
            on, off = data.span.values[w, k]
            during = (data.time.values > on) & (data.time.values <= off)
            if not during.any():
                continue
            last = int(np.flatnonzero(during)[-1])
            peak = strength[w, during, k].max()
            rows.append(
                (
                    world,
                    f"{goal.hand} {k}",
                    f"{on:g} to {off:g}",
                    f"{1e3 * gaps[w, last, k]:.2f}",
                    f"{strength[w, last, k]:.1f}",
                    f"{peak:.0f}",
                )
            )
    return rows


def outlines(data: xr.Dataset, settings: Settings, world: int) -> dict[str, np.ndarray]:
    """Return the polylines (time, vertices, 2) in m of a world: torso with shoulders, arms, active goals."""
    torso = [
        (-0.28, 0.0),
        (0.22, 0.0),
        (0.22, 0.2),
        (0.22, -0.2),
        (0.22, 0.0),
        (0.42, 0.0),
    ]  # along its axis, to the left
    lines = {"torso": np.stack([frame_point(data, "torso", point)[world] for point in torso], axis=1)}
    segments = {"upper": (-0.1308, 0.1692), "fore": (-0.1161, 0.1539), "hand": (-0.0506, settings.tip)}
    for side in SIDES:
        ends = [frame_point(data, f"{side}_{name}", (x, 0.0))[world] for name, (x, _) in segments.items()]
        lines[f"{side} arm"] = np.stack(
            [*ends, frame_point(data, f"{side}_hand", (settings.tip, 0.0))[world]], axis=1
        )
    for k in range(len(settings.goals)):
        on, off = data.span.values[world, k]
        shown = (data.time.values >= on) & (data.time.values < off)
        lines[f"goal {k}"] = np.where(shown[:, None, None], data.place.values[world, k][None, None], np.nan)
    return lines


def draw(data: xr.Dataset, settings: Settings):
    """Return the figure: distances from the goals, forces, hinges and poses."""
    gaps, force = distances(data, settings), np.linalg.norm(data.force.values, axis=-1)
    time_s = data.time.values
    with styled() as figure_class:
        figure = figure_class(figsize=(15, 9), layout="constrained")
        panels = figure.subplots(3, len(WORLDS), sharey="row", height_ratios=(2, 2, 3))
        for w, world in enumerate(WORLDS):
            upper, middle, lower = panels[:, w]
            for k, goal in enumerate(settings.goals):
                on, off = data.span.values[w, k]
                during = (time_s > on) & (time_s <= off)
                style = line_style(k)
                upper.plot(
                    time_s,
                    np.where(during, np.maximum(1e3 * gaps[w, :, k], 1e-3), np.nan),
                    label=f"goal {k}: {goal.hand}",
                    **style,
                )
                middle.plot(time_s, np.where(during, force[w, :, k], np.nan), **style)
            upper.set(title=world, yscale="log")
            middle.set(xlabel="time in s", yscale="log")
            lines = outlines(data, settings, w)
            for index, instant in enumerate(np.linspace(0, len(time_s) - 1, 6).astype(int)):
                for name in ("torso", "left arm", "right arm"):
                    lower.plot(
                        *lines[name][instant].T,
                        color=line_style(index)["color"],
                        alpha=0.8,
                        label=f"{time_s[instant]:.1f} s" * (name == "torso"),
                    )
            lower.plot(*data.place.values[w].T, "k+", markersize=10)
            lower.set(aspect="equal", xlabel="x in m")
        panels[0, 0].set_ylabel("distance while on, mm")
        panels[1, 0].set_ylabel("force while on, N")
        panels[2, 0].set_ylabel("y in m")
        panels[0, -1].legend()
        panels[2, -1].legend(fontsize=7)
        return figure


def main() -> int:
    """Run the experiment and return its exit code."""
    asked = script(CONFIG, __doc__)
    config, console = asked.config, asked.console
    settings = jaxdae.app.settings(asked, Settings)
    if settings is None:
        return 2
    with precision(config):
        console.print(f"{config.steps} steps of {len(WORLDS)} worlds")
        data, clock = simulate(config, settings, asked.worlds)
    folder, record = begin(config, asked.out, asked.source)
    data.to_zarr(folder / "upper_body.zarr", zarr_format=2, consolidated=False)
    draw(data, settings).savefig(folder / "upper_body.png", bbox_inches="tight")
    pictures = []
    for w in (0, 1):
        pictures.append(f"upper_body_{WORLDS[w]}.gif")
        write_animation(
            folder / pictures[-1], data.time, outlines(data, settings, w), title=f"{config.name}, {WORLDS[w]}"
        )
    headings = (
        "world",
        "goal",
        "on, s",
        "distance at the end, mm",
        "force at the end, N",
        "largest force at an entry, N",
    )
    rows = summary(data, settings)
    show_table(console, f"goals, dt = {config.dt:g} s", headings, rows)
    opened = ", ".join(
        f"{world} {1e3 * float(data.violation.sel(world=world).max()):.2g} mm" for world in WORLDS
    )
    found = [
        f"**Hinges** open by at most: {opened}.",
        "**Time**: " + ", ".join(f"{name} {x:.2f} s" for name, x in clock.items()) + ".",
    ]
    for line in (*found, f"run folder: {folder}"):
        console.print(line, highlight=False, markup=False, soft_wrap=True)
    table = "\n".join(table_lines(headings, rows))
    text = "\n".join(f"- {line}" for line in found)
    images = "\n\n".join(f"![{name}]({name.replace(' ', '%20')})" for name in ("upper_body.png", *pictures))
    (folder / "report.md").write_text(
        f"# {config.name}\n\n{config.description}\n\n{text}\n\n{table}\n\n{images}\n", encoding="utf-8"
    )
    finish(folder, record, upper_body=[dict(zip(headings, row, strict=True)) for row in rows], findings=found)
    return 0


if __name__ == "__main__":
    sys.exit(main())

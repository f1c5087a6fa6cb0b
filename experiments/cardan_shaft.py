"""Speed of a shaft with universal joints: one joint against its closed form, two joints at two phases.

The input turns at a constant rate. Behind one joint that bends the shaft by beta, the rate of the middle
shaft is

    omega_2 / omega_1 = cos(beta) / (1 - sin(beta)^2 cos(theta)^2),

theta the angle of the pins of the input from the plane of both shafts. The second joint bends the shaft back:
where the pins of the middle shaft lie in one plane (phase 0) it undoes the first one, and the output turns as
evenly as the input; a quarter turn apart (phase 90) it does the same once more.

    python experiments/cardan_shaft.py [CONFIG] [--set PATH=VALUE ...] [--out DIR]
"""

import math
import sys
from typing import Any, NamedTuple

import jax
import numpy as np
import pydantic

import jaxdae
from jaxdae.app import conclude, line_style, precision, script, skeleton, styled, write_animation
from jaxdae.app.model.build import started

CONFIG = "configs/cardan_shaft.yaml"


class Settings(pydantic.BaseModel, extra="forbid", strict=True):
    """The section `experiment` of the config."""

    phases: list[float] = pydantic.Field(min_length=1)


class Shaft(NamedTuple):
    """A shaft at all saved states.

    It has the times in s, the rates of input, middle and output (time, 3) in rad/s, and the closed forms of
    the middle and output rates (time, 2).

    `opening` is the largest violation at any step in m or rad, `poses` those of the bodies (time, 3, 7).
    """

    time: np.ndarray
    rates: np.ndarray
    exact: np.ndarray
    opening: float
    status: int
    poses: np.ndarray


def with_phase(config: Any, phase: float) -> tuple[Any, Any, Any]:
    """Return the section `mechanism`, its mechanism and its closed start.

    The pins of the second joint are rotated by degrees.
    """
    values = config.model_dump()
    joint = next(each for each in values["mechanism"]["joints"] if each["name"] == "joint2")
    axis, second = np.asarray(joint["axis"]), np.asarray(joint["second"])
    middle = np.cross(axis, second) / np.linalg.norm(np.cross(axis, second))
    angle = math.radians(phase)
    # About the middle shaft; the pin of the output is then normal to it and to the output shaft.
    turned = math.cos(angle) * axis + math.sin(angle) * np.cross(middle, axis)
    output = np.asarray(
        next(each for each in values["mechanism"]["joints"] if each["name"] == "bearing2")["axis"]
    )
    joint["axis"], joint["second"] = tuple(turned), tuple(np.cross(output, turned))
    system, _, state, info, _ = started(values)
    if int(info.status) != jaxdae.Status.OK:
        raise jaxdae.SimulationError(f"with phase {phase:g} the shaft cannot be assembled")
    return type(config.mechanism).model_validate(values["mechanism"]), system, state


def ratio(beta: float, theta: Any) -> Any:
    """Return the rate of the second shaft divided by the rate of the first shaft.

    theta is the angle between the pins of the first shaft and the plane of the shafts.
    """
    return math.cos(beta) / (1.0 - math.sin(beta) ** 2 * np.cos(theta) ** 2)


def behind(beta: float, theta: Any) -> Any:
    """Return the angle of the second shaft since theta = pi / 2.

    The first shaft has turned by theta - pi / 2.
    """
    turn = theta - 0.5 * np.pi
    # tan(theta_2) = cos(beta) tan(theta_1) with both counted from there, on the branch of theta_1.
    return np.arctan2(np.sin(turn) * math.cos(beta), np.cos(turn)) + 2.0 * np.pi * np.round(
        turn / (2.0 * np.pi)
    )


def simulate(system: Any, start: Any, method: Any, phase: float, config: Any) -> Shaft:
    """Return the rates of the shafts, and what they should be."""
    plan: Any = {"dt": config.dt, "steps": config.steps, "save_every": config.save_every}
    trajectory = jaxdae.rollout(system, method, start, **plan)
    states = trajectory.state
    twists = jax.vmap(system.twists)(states.q, states.v)
    rates = np.asarray(twists.wx)  # the x axis of each body is along its shaft
    absolute = jax.vmap(lambda x: jaxdae.mechanisms.to_absolute(system, x).q)(states)
    axes = np.asarray(jax.vmap(lambda q: system.frames(q).r11)(states.q))
    beta = float(np.arccos(axes[0, 1]))
    names = system.names.coordinates
    turned = np.asarray(states.q)[:, names.index("bearing1.angle")] - float(
        start.q[names.index("bearing1.angle")]
    )
    # At the start the pins of the input are normal to the plane of the shafts.
    theta = 0.5 * np.pi + turned
    first = ratio(beta, theta)
    # The pins of the middle shaft at the second joint, from the plane of the shafts, with the output as the
    # second shaft.
    second = ratio(beta, behind(beta, theta) + math.radians(phase))
    exact = rates[:, :1] * np.stack([first, first * second], axis=1)
    time = config.dt * config.save_every * np.arange(1, len(turned) + 1)
    opening, status = float(trajectory.info.violation.max()), int(trajectory.info.status.max())
    return Shaft(time, rates, exact, opening, status, np.asarray(absolute).reshape(len(time), 3, 7))


def main() -> int:
    """Run the experiment and return its exit code."""
    asked = script(CONFIG, __doc__)
    config = asked.config
    settings = jaxdae.app.settings(asked, Settings)
    if settings is None:
        return 2
    with precision(config):
        _, method, _ = asked.worlds.one()
        built = {phase: with_phase(config, phase) for phase in settings.phases}
        found = {phase: simulate(*made, method, phase, config) for phase, (_, *made) in built.items()}
    headings = (
        "phase, degrees",
        "shaft",
        "least rate, of the input",
        "largest",
        "error of the closed form",
        "opening, m or rad",
        "status",
    )
    rows, sentences = [], []
    for phase, x in found.items():
        over = x.rates[:, 1:] / x.rates[:, :1]
        off = np.abs(over - x.exact / x.rates[:, :1]).max(axis=0)
        for k, name in enumerate(("behind one joint", "behind two")):
            numbers = (f"{over[:, k].min():.6f}", f"{over[:, k].max():.6f}", f"{off[k]:.1e}")
            rows.append((f"{phase:g}", name, *numbers, f"{x.opening:.1e}", jaxdae.Status(x.status).name))
        evenness = np.ptp(over[:, 1])
        sentences.append(
            f"Phase {phase:g}: behind one joint the rate varies by {np.ptp(over[:, 0]):.4g} of the input's, "
            f"behind two by {evenness:.4g}."
        )
    with styled() as figure_class:
        figure = figure_class(figsize=(9, 2.8 * len(found)), layout="constrained")
        panels = figure.subplots(len(found), 1, sharex=True, squeeze=False)[:, 0]
        for axes, (phase, x) in zip(panels, found.items(), strict=True):
            for k, name in enumerate(("middle shaft", "output")):
                axes.plot(x.time, x.rates[:, k + 1], label=name, **line_style(k))
                axes.plot(
                    x.time[::8],
                    x.exact[::8, k],
                    ".",
                    color=line_style(k)["color"],
                    label=f"{name}, closed form",
                )
            axes.plot(x.time, x.rates[:, 0], label="input", **line_style(6))
            axes.set(ylabel="rate in rad/s", title=f"{config.name}: pins {phase:g} degrees apart")
        panels[-1].set_xlabel("time in s")
        figure.legend(*panels[0].get_legend_handles_labels(), loc="outside right center")
    last = settings.phases[-1]
    lines = skeleton(built[last][0], found[last].poses)
    conclude(
        asked,
        headings,
        rows,
        sentences,
        {"cardan_shaft": figure},
        lambda folder: write_animation(
            folder / "cardan_shaft.gif",
            found[last].time,
            lines,
            title=f"{config.name}, pins {last:g} degrees apart",
        ),
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Four wheels in conflict: how different are the three remedies, and what is their effect on the wheels?

The front wheels stand at Ackermann angles but for an error of the right one. With any error no motion
satisfies all rows. Least slip (`LeastResidual`), two rows and the speed (`IndependentRows`: the rear axle
with either front wheel) and one wheel in the middle of each axle (`EquivalentBicycle`) each let the car
drive; its place after some way is compared with that of the car without error.

    python experiments/overconstrained.py [CONFIG] [--set PATH=VALUE ...] [--out DIR]
"""

import dataclasses
import sys
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jaxdae
from jaxdae import vehicles
from jaxdae.app import conclude, line_style, precision, script, styled
from jaxdae.app.model.build import worlds

CONFIG = "configs/overconstrained.yaml"
FRONT = ("front_left", "front_right")
ANSWERS: dict[str, Any] = {
    "least slip": vehicles.LeastResidual(),
    "rear and left row": vehicles.IndependentRows(("rear_left.lateral", "front_left.lateral")),
    "rear and right row": vehicles.IndependentRows(("rear_left.lateral", "front_right.lateral")),
    "equivalent bicycle": vehicles.EquivalentBicycle(),
}
COUNT = 81
ENLARGED = 12.0
"""How long an arrow is drawn in m for a slip of 1 m/s."""


def with_error(wheels: Any, angles: Any, error: Any) -> Any:
    """Return the wheels with the front wheels at their angles (2,) and an error in rad of the right wheel."""
    left, right = (wheels.number(name) for name in FRONT)
    return dataclasses.replace(
        wheels, steering=wheels.steering.at[left].set(angles[0]).at[right].set(angles[1] + error)
    )


def driven(wheels: Any, angles: Any, errors: Any, answer: Any, way: float) -> tuple[np.ndarray, np.ndarray]:
    """Return poses (k, 3) after a path in m and slip at 1 m/s (k, wheels), for errors (k,) in rad."""

    def one(error: Any) -> tuple[Any, Any]:
        twist, report = vehicles.vehicle_twist(with_error(wheels, angles, error), speed=1.0, slip=answer)
        return vehicles.integrate_twist(jnp.zeros(3), twist, way), jnp.abs(report.slip[:, 1])

    places, slips = jax.jit(jax.vmap(one))(errors)
    return np.asarray(places), np.asarray(slips)


def main() -> int:
    """Run the experiment and return its exit code."""
    asked = script(CONFIG, __doc__)
    config, given = asked.config, asked.config.experiment
    with precision(config):
        system, _, start = worlds(config).one()
        blocked = jaxdae.diagnose(system, start)
        wheels = vehicles.wheels_of(system, start.q, config.mechanism.bodies[0].name)
        front, rear = wheels.place[wheels.number(FRONT[0])], wheels.place[wheels.number("rear_left")]
        angles = vehicles.ackermann_angles(front[0] - rear[0], 2.0 * front[1], given["steering"])
        errors = jnp.linspace(-given["largest_error"], given["largest_error"], COUNT)
        found = {
            name: driven(wheels, angles, errors, answer, given["way"]) for name, answer in ANSWERS.items()
        }
        right = driven(wheels, angles, jnp.zeros(1), ANSWERS["least slip"], given["way"])[0][0]
    off = {name: np.hypot(*(places - right)[:, :2].T) for name, (places, _) in found.items()}
    side = {name: slips.max(axis=1) for name, (_, slips) in found.items()}
    headings = (
        "answer",
        *(f"off at {float(errors[k]):+.3f} rad, m" for k in (0, COUNT // 2, -1)),
        "fastest slip at the last, m/s",
    )
    rows = [
        (name, *(f"{off[name][k]:.4f}" for k in (0, COUNT // 2, -1)), f"{side[name][-1]:.4f}")
        for name in ANSWERS
    ]
    sentences = [
        f"As hard rows the wheels of the config leave the mobility {blocked.mobility}; "
        f"{', '.join(blocked.blocking_rows)} fight.",
        f"Least slip spreads it: the fastest wheel slips by {side['least slip'][-1]:.3f} m/s at 1 m/s, with "
        "two rows the one that is left"
        f" out by {side['rear and left row'][-1]:.3f} m/s.",
    ]
    with styled() as figure_class:
        figure = figure_class(figsize=(11, 4.6), layout="constrained")
        left, other, above = figure.subplots(1, 3, width_ratios=(1.0, 1.0, 0.8))
        for index, name in enumerate(ANSWERS):
            left.plot(errors, off[name], label=name, **line_style(index))
            other.plot(errors, side[name], label=name, **line_style(index))
        left.set(
            xlabel="error of the right front wheel in rad",
            ylabel="off the path in m",
            title=f"after {given['way']:g} m",
        )
        other.set(
            xlabel="error of the right front wheel in rad", ylabel="fastest slip in m/s", title="at 1 m/s"
        )
        for axes in (left, other):
            axes.locator_params(axis="x", nbins=5)
        left.legend()
        with precision(config):
            from_above(above, with_error(wheels, angles, errors[-1]))
    conclude(asked, headings, rows, sentences, {"overconstrained": figure})
    return 0


def from_above(axes: Any, wheels: Any) -> None:
    """Draw wheels and axles, the center of rotation of each remedy, and the least slip at 1 m/s."""
    places, angles = np.asarray(wheels.place), np.asarray(wheels.steering)
    headings, lefts = (
        np.stack([np.cos(angles), np.sin(angles)], axis=1),
        np.stack([-np.sin(angles), np.cos(angles)], axis=1),
    )
    for place, heading, left in zip(places, headings, lefts, strict=True):
        axes.plot(
            *np.stack([place, place + 14.0 * left]).T, color="0.6", linewidth=0.8, linestyle=":", zorder=1
        )
        axes.plot(
            *np.stack([place - 0.4 * heading, place + 0.4 * heading]).T,
            color="black",
            linewidth=4.0,
            solid_capstyle="butt",
        )
    for index, (name, answer) in enumerate(ANSWERS.items()):
        ahead, aside, turning = np.asarray(vehicles.vehicle_twist(wheels, speed=1.0, slip=answer)[0])
        axes.plot(
            -aside / turning, ahead / turning, "o", markersize=6, color=line_style(index)["color"], label=name
        )
    slip = np.asarray(vehicles.vehicle_twist(wheels, speed=1.0, slip=ANSWERS["least slip"])[1].slip[:, 1])
    arrows = ENLARGED * slip[:, None] * lefts
    axes.quiver(
        *places.T,
        *arrows.T,
        angles="xy",
        scale_units="xy",
        scale=1.0,
        width=0.012,
        color=line_style(0)["color"],
        zorder=3,
    )
    axes.set(
        title="axles, centers, least slip",
        xlabel="x in m",
        ylabel="y in m",
        aspect="equal",
        xlim=(-2.0, 4.5),
        ylim=(-2.0, 9.5),
    )


if __name__ == "__main__":
    sys.exit(main())

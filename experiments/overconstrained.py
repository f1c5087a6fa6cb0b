"""Four wheels that contradict each other: how far apart are the three remedies, and what does each of them do to the wheels?

The front wheels stand at Ackermann angles but for an error of the right one. With any error no motion satisfies all rows. Least slip
(`LeastResidual`), two rows and the speed (`IndependentRows`: the rear axle with either front wheel) and one wheel in the middle of each
axle (`EquivalentBicycle`) each let the car drive; its place after some way is compared with that of the car without error.

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
from jaxdae.app.build import worlds

CONFIG = "configs/overconstrained.yaml"
FRONT = ("front_left", "front_right")
ANSWERS: dict[str, Any] = {
    "least slip": vehicles.LeastResidual(),
    "rear and left row": vehicles.IndependentRows(("rear_left.lateral", "front_left.lateral")),
    "rear and right row": vehicles.IndependentRows(("rear_left.lateral", "front_right.lateral")),
    "equivalent bicycle": vehicles.EquivalentBicycle(),
}
COUNT = 81


def driven(wheels: Any, angles: Any, errors: Any, answer: Any, way: float) -> tuple[np.ndarray, np.ndarray]:
    """Returns the places (k, 3) after some way in m, and how fast each wheel slips at 1 m/s (k, wheels), for errors (k,) in rad."""
    numbers = [wheels.number(name) for name in FRONT]

    def one(error: Any) -> tuple[Any, Any]:
        steering = wheels.steering.at[numbers[0]].set(angles[0]).at[numbers[1]].set(angles[1] + error)
        twist, report = vehicles.vehicle_twist(dataclasses.replace(wheels, steering=steering), speed=1.0, slip=answer)
        return vehicles.integrate_twist(jnp.zeros(3), twist, way), jnp.abs(report.slip[:, 1])

    places, slips = jax.jit(jax.vmap(one))(errors)
    return np.asarray(places), np.asarray(slips)


def main() -> int:
    """Runs the experiment; returns its exit code."""
    asked = script(CONFIG, __doc__)
    config, given = asked.config, asked.config.experiment
    with precision(config):
        system, _, start = worlds(config).one()
        blocked = jaxdae.diagnose(system, start)
        wheels = vehicles.wheels_of(system, start.q, config.mechanism.bodies[0].name)
        front, rear = wheels.place[wheels.number(FRONT[0])], wheels.place[wheels.number("rear_left")]
        angles = vehicles.ackermann_angles(front[0] - rear[0], 2.0 * front[1], given["steering"])
        errors = jnp.linspace(-given["largest_error"], given["largest_error"], COUNT)
        found = {name: driven(wheels, angles, errors, answer, given["way"]) for name, answer in ANSWERS.items()}
        right = driven(wheels, angles, jnp.zeros(1), ANSWERS["least slip"], given["way"])[0][0]
    off = {name: np.hypot(*(places - right)[:, :2].T) for name, (places, _) in found.items()}
    side = {name: slips.max(axis=1) for name, (_, slips) in found.items()}
    headings = ("answer", *(f"off at {float(errors[k]):+.3f} rad, m" for k in (0, COUNT // 2, -1)), "fastest slip at the last, m/s")
    rows = [(name, *(f"{off[name][k]:.4f}" for k in (0, COUNT // 2, -1)), f"{side[name][-1]:.4f}") for name in ANSWERS]
    sentences = [
        f"As hard rows the wheels of the config leave the mobility {blocked.mobility}; {', '.join(blocked.blocking_rows)} fight.",
        f"Least slip spreads it: the fastest wheel slips by {side['least slip'][-1]:.3f} m/s at 1 m/s, with two rows the one that is left"
        f" out by {side['rear and left row'][-1]:.3f} m/s.",
    ]
    with styled() as figure_class:
        figure = figure_class(figsize=(9, 4), layout="constrained")
        left, other = figure.subplots(1, 2)
        for index, name in enumerate(ANSWERS):
            left.plot(errors, off[name], label=name, **line_style(index))
            other.plot(errors, side[name], label=name, **line_style(index))
        left.set(xlabel="error of the right front wheel in rad", ylabel="off the path in m", title=f"after {given['way']:g} m")
        other.set(xlabel="error of the right front wheel in rad", ylabel="fastest slip in m/s", title="at 1 m/s")
        for axes in (left, other):
            axes.locator_params(axis="x", nbins=5)
        left.legend()
    conclude(asked, headings, rows, sentences, {"overconstrained": figure})
    return 0


if __name__ == "__main__":
    sys.exit(main())

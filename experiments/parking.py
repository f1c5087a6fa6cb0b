"""Can a gradient through the rollout park a car between two others, from wherever it starts in the lane?

The car has no slip (`KinematicSingleTrack`: place, steering angle, speed, heading). Unknown are steering
angle and speed at knots, within their limits by construction. Levenberg-Marquardt with the Jacobian through
the rollout makes the end of the path the goal, at rest, and keeps what must not happen, steering rates and
accelerations beyond their limits and cars closer than the clearance, out of the way: these are residuals that
are zero where all is well. All starts are one batched program.

Cars are rectangles, and apart by the largest gap between them along the normals of their sides, which is
differentiable but where two normals change places.

    python experiments/parking.py [CONFIG] [--set PATH=VALUE ...] [--out DIR]
"""

import functools
import sys
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jaxdae
from jaxdae import tuning, vehicles
from jaxdae.app import conclude, line_style, precision, script, styled
from jaxdae.app.model.build import worlds

CONFIG = "configs/parking.yaml"
METHOD = jaxdae.Kinematic.rk4()
CLOSE, TURNED = 0.05, 0.03
"""How far from the goal a car may stand that is parked, in m and rad."""


def controls(knots: Any, given: dict[str, Any]) -> Any:
    """Return steering rate and acceleration (steps, 2) from free numbers at knots (knots, 2).

    Steering angle and speed are linear between knots, within their limits at them, and zero at the first; the
    speed also at the last.
    """
    limits = jnp.asarray([given["steering"], given["speed"]])
    zero = jnp.zeros((1, 2))
    at_knots = jnp.concatenate([zero, (limits * jnp.tanh(knots)).at[-1, 1].set(0.0)])
    rates = jnp.diff(at_knots, axis=0) * knots.shape[0] / given["time"]
    return jnp.repeat(rates, given["steps"] // knots.shape[0], axis=0)


def path(car: Any, start: Any, knots: Any, given: dict[str, Any]) -> Any:
    """Return the states (steps, 5) of the car: x, y, steering angle, speed, heading."""
    state = jaxdae.State(jnp.zeros(()), start, jnp.zeros(5))
    run = jaxdae.rollout(car, METHOD, state, controls(knots, given), dt=given["time"] / given["steps"])
    return run.state.q


def corners(states: Any, given: dict[str, Any]) -> Any:
    """Return the corners (steps, 4, 2) of the car at states (steps, 5)."""
    length, width = given["car"]
    x = jnp.asarray([-given["rear"], length - given["rear"], length - given["rear"], -given["rear"]])
    y = 0.5 * width * jnp.asarray([-1.0, -1.0, 1.0, 1.0])
    cos, sin = jnp.cos(states[:, 4:5]), jnp.sin(states[:, 4:5])
    return jnp.stack([states[:, :1] + cos * x - sin * y, states[:, 1:2] + sin * x + cos * y], axis=-1)


def apart(states: Any, given: dict[str, Any]) -> Any:
    """Return how far the car is from each parked one (steps, parked) in m; negative where they overlap.

    Rectangles that do not overlap are apart along the normal of one of their sides (separating axes).
    """
    own, size = corners(states, given), 0.5 * jnp.asarray(given["car"])
    signs = jnp.asarray([[-1.0, -1.0], [1.0, -1.0], [1.0, 1.0], [-1.0, 1.0]])
    still, turned = jnp.zeros_like(states[:, 4]), states[:, 4]
    angles = jnp.stack([still, still + 0.5 * np.pi, turned, turned + 0.5 * np.pi])
    normals = jnp.stack([jnp.cos(angles), jnp.sin(angles)], axis=-1)
    mine = jnp.einsum("skd,nsd->nsk", own, normals)

    def gap(middle: Any) -> Any:
        theirs = jnp.einsum("kd,nsd->nsk", middle + size * signs, normals)
        return jnp.max(jnp.maximum(theirs.min(-1) - mine.max(-1), mine.min(-1) - theirs.max(-1)), axis=0)

    return jnp.stack([gap(jnp.asarray(middle)) for middle in given["parked"]], axis=1)


def residual(parameters: Any, car: Any, start: Any, given: dict[str, Any]) -> Any:
    """Return the residuals: error at the goal, limit violations, and a small effort term."""
    knots = parameters["knots"]
    states = path(car, start, knots, given)
    goal = jnp.stack([states[-1, 0], states[-1, 1], states[-1, 4]]) / 0.01
    rates = controls(knots, given)[:: given["steps"] // knots.shape[0]]
    hasty = (
        jnp.maximum(jnp.abs(rates) / jnp.asarray([given["rate"], given["acceleration"]]) - 0.98, 0.0) / 0.05
    )
    close = jnp.maximum(given["clearance"] - apart(states, given), 0.0) / 0.02
    return jnp.concatenate([goal, hasty.reshape(-1), close.reshape(-1), 0.02 * knots.reshape(-1)])


def starts(given: dict[str, Any]) -> Any:
    """Return random starts at rest (starts, 5)."""
    low, high, near, far = given["place"]
    x, y, heading = jax.random.uniform(jax.random.key(given["seed"]), (3, given["starts"]))
    zero = jnp.zeros_like(x)
    return jnp.stack(
        [
            low + (high - low) * x,
            near + (far - near) * y,
            zero,
            zero,
            given["heading"] * (2.0 * heading - 1.0),
        ],
        axis=1,
    )


def parked(car: Any, at: Any, given: dict[str, Any], iterations: int = 100) -> Any:
    """Return the optimized paths (starts, steps, 5) from starts (starts, 5), and their input knots."""

    def one(start: Any, key: Any) -> Any:
        # A guess: back on two arcs of opposite curvature, which leave the heading, k = 4 y / x^2.
        time = jnp.linspace(0.0, 1.0, given["knots"])
        bend = jnp.arctan(4.0 * car.wheelbase * start[1] / start[0] ** 2) / given["steering"]
        bend = jnp.arctanh(jnp.minimum(bend, 0.95)) * jnp.where(time < 0.5, -1.0, 1.0)
        back = jnp.full_like(time, -start[0] / (given["time"] * given["speed"]))
        guess = jnp.stack([bend, back], axis=1) + 0.05 * jax.random.normal(key, (given["knots"], 2))
        of = functools.partial(residual, car=car, start=start, given=given)
        found = tuning.least_squares(of, {"knots": guess}, iterations=iterations, damping=1e-2, max_step=1.0)
        return path(car, start, found.parameters["knots"], given), found.parameters["knots"]

    keys = jax.random.split(jax.random.key(given["seed"] + 1), at.shape[0])
    return jax.jit(jax.vmap(one))(at, keys)


def main() -> int:
    """Run the experiment and return its exit code."""
    asked = script(CONFIG, __doc__)
    config, given = asked.config, asked.config.experiment
    with precision(config):
        system, _, start = worlds(config).one()
        wheels = vehicles.wheels_of(system, start.q)
        car = vehicles.KinematicSingleTrack(
            wheels.place[wheels.number("front"), 0] - wheels.place[wheels.number("rear"), 0]
        )
        at = starts(given)
        states, knots = parked(car, at, given)
        one = at[0], knots[0]
        gradient = jax.jit(jax.grad(lambda k: path(car, one[0], k, given)[-1, 1]))(one[1])
        gap = np.asarray(jax.vmap(lambda each: jnp.min(apart(each, given)))(states))
        rates = np.abs(np.asarray(jax.vmap(lambda k: controls(k, given))(knots))).max(axis=1)
        outlines = np.asarray(jax.vmap(lambda each: corners(each, given))(states))
    states = np.asarray(states)
    off, turned = np.hypot(*states[:, -1, :2].T), np.abs(states[:, -1, 4])
    limits = (rates[:, 0] <= given["rate"]) & (rates[:, 1] <= given["acceleration"])
    good = (off < CLOSE) & (turned < TURNED) & (gap > 0.0) & limits
    headings = ("quantity", "median", "worst of those that are parked")
    quantities = (
        ("off the goal, m", off),
        ("turned, rad", turned),
        ("steering rate, rad/s", rates[:, 0]),
        ("acceleration, m/s^2", rates[:, 1]),
    )
    rows = [
        (name, f"{np.median(each):.4f}", f"{np.max(each[good], initial=0.0):.4f}")
        for name, each in quantities
    ]
    rows.append(("clearance, m", f"{np.median(gap):.3f}", f"{np.min(gap[good], initial=np.inf):.3f}"))
    sentences = [
        f"{np.sum(good)} of {len(good)} starts end parked: within {100 * CLOSE:g} cm and {TURNED:g} rad of "
        "the goal, at rest, no car"
        " touched, no limit exceeded.",
        f"The gap is {given['parked'][1][0] - given['parked'][0][0] - given['car'][0]:.2f} m for a car of "
        f"{given['car'][0]:g} m.",
    ]
    with styled() as figure_class:
        figure = figure_class(figsize=(11, 6.5), layout="constrained")
        (all_paths, one_path), (inputs, heat) = figure.subplots(2, 2)
        for k in range(len(states)):
            all_paths.plot(*states[k, :, :2].T, linewidth=0.8, color=line_style(0 if good[k] else 1)["color"])
            all_paths.plot(*np.asarray(at)[k, :2], ".", color="black", markersize=4)
        all_paths.set(title="paths of the rear axle from all starts", xlabel="x in m", ylabel="y in m")
        number = int(np.argmax(good))
        for k in range(0, states.shape[1], 4):
            one_path.fill(
                *outlines[number, k].T, facecolor="none", edgecolor=line_style(0)["color"], linewidth=0.8
            )
        one_path.fill(*outlines[number, -1].T, facecolor=line_style(0)["color"], alpha=0.4)
        one_path.set(title="one of them, every second", xlabel="x in m", ylabel="y in m")
        for axes in (all_paths, one_path):
            for middle in given["parked"]:
                corner = np.asarray(middle) - 0.5 * np.asarray(given["car"])
                axes.add_patch(rectangle(corner, given["car"]))
            axes.set(aspect="equal", xlim=(-8, 15), ylim=(-2, 6))
        time = given["time"] / given["steps"] * np.arange(1, given["steps"] + 1)
        for index, (name, column) in enumerate(
            (("steering angle in rad", 2), ("speed in m/s", 3), ("heading in rad", 4))
        ):
            inputs.plot(time, states[number, :, column], label=name, **line_style(index))
        inputs.set(xlabel="time in s", title="of the same one")
        inputs.legend()
        largest = float(np.max(np.abs(gradient)))
        image = heat.imshow(np.asarray(gradient).T, aspect="auto", cmap="RdBu", vmin=-largest, vmax=largest)
        heat.set(
            xlabel="knot",
            yticks=[0, 1],
            yticklabels=["steering", "speed"],
            title="its end across the street in m over each knot",
        )
        heat.grid(visible=False)
        figure.colorbar(image, ax=heat)
    conclude(asked, headings, rows, sentences, {"parking": figure})
    return 0


def rectangle(corner: Any, size: Any) -> Any:
    """Return a parked car for a picture."""
    from matplotlib.patches import Rectangle

    return Rectangle(corner, *size, facecolor="#bbbbbb", edgecolor="black", linewidth=0.8)


if __name__ == "__main__":
    sys.exit(main())

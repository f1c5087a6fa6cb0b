"""How far does odometry drift, and what do loops tell of a robot whose wheels are not what it thinks?

The travel of each wheel has independent errors whose variance grows with the way. The covariance of the pose
then has a closed form, an integral along the path (`odometry_covariance`). The script lets many robots drive
an S, compares their scatter with the closed form, and then drives squares to the left and to the right with
wrong radii and a wrong track, which Levenberg-Marquardt finds from poses that a camera sees at the corners.

    python experiments/odometry_drift.py [CONFIG] [--set PATH=VALUE ...] [--out DIR]

With n runs an entry of the covariance scatters by a relative sqrt((1 + 1/rho^2) / n), rho its correlation:
1.4 % for variances at 10000.

References:
    K. S. Chong, L. Kleeman, "Accurate odometry and error modelling for a mobile robot", ICRA 1997. J.
    Borenstein, L. Feng, "Measurement and correction of systematic odometry errors in mobile robots", IEEE
    Transactions on Robotics and Automation 12 (1996), squares in both directions.
"""

import sys
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxdae import tuning, vehicles
from jaxdae.app import conclude, line_style, precision, script, styled
from jaxdae.app.model.build import worlds

CONFIG = "configs/odometry_drift.yaml"


def rates_of_s(wheels: Any, given: dict[str, Any]) -> Any:
    """Return the spins (steps, wheels) of an S: half of the time to the left, then to the right."""
    steps = given["steps"]
    turns = jnp.where(jnp.arange(steps) < steps // 2, given["turn"], -given["turn"])
    twists = jnp.stack([jnp.full(steps, given["speed"]), jnp.zeros(steps), turns], axis=1)
    return jax.vmap(lambda twist: vehicles.wheel_rates(wheels, twist))(twists)


def driven(wheels: Any, rates: Any, dt: float) -> Any:
    """Return the poses (steps, 3) after each step of spins (steps, wheels)."""

    def step(pose: Any, spins: Any) -> Any:
        return (vehicles.integrate_twist(pose, vehicles.body_twist(wheels, spins)[0], dt),) * 2

    return jax.lax.scan(step, jnp.zeros(3, rates.dtype), rates)[1]


def scattered(wheels: Any, rates: Any, dt: float, variance: float, runs: int, seed: int) -> Any:
    """Return the poses (runs, steps, 3) of robots whose wheels travel with errors of a variance in m^2/m."""
    # Twists are linear in spins: what a wheel adds to the travel is a spin over dt.
    to_twist = jax.jacobian(lambda spins: vehicles.body_twist(wheels, spins)[0])(rates[0])
    size = jnp.sqrt(variance * jnp.abs(wheels.radius * rates) * dt) / (wheels.radius * dt)

    def one(key: Any) -> Any:
        twists = (rates + size * jax.random.normal(key, rates.shape, rates.dtype)) @ to_twist.T
        return jax.lax.scan(
            lambda x, v: (vehicles.integrate_twist(x, v, dt),) * 2, jnp.zeros(3, rates.dtype), twists
        )[1]

    return jax.jit(jax.vmap(one))(jax.random.split(jax.random.key(seed), runs))


def closed_form(wheels: Any, rates: Any, dt: float, variance: float) -> Any:
    """Return the covariance (steps, 3, 3) of the pose after each step."""

    def step(carry: Any, spins: Any) -> Any:
        pose, covariance = carry
        twist = vehicles.body_twist(wheels, spins)[0]
        noise = vehicles.wheel_noise(wheels, spins, variance)
        grown = vehicles.odometry_covariance(covariance, pose, twist, noise, dt)
        return (vehicles.integrate_twist(pose, twist, dt), grown), grown

    return jax.jit(lambda: jax.lax.scan(step, (jnp.zeros(3), jnp.zeros((3, 3))), rates)[1])()


def corners(numbers: Any, spins: Any, times: Any) -> Any:
    """Return the poses (legs, 3) at the ends of legs with spins (legs, 2) and times (legs,).

    The parameters are the left radius, the right radius and the track.
    """
    half = 0.5 * numbers[2]
    wheels = vehicles.wheels(
        jnp.stack([jnp.stack([0.0 * half, half]), jnp.stack([0.0 * half, -half])]), radius=numbers[:2]
    )

    def leg(pose: Any, one: Any) -> Any:
        return (vehicles.integrate_twist(pose, vehicles.body_twist(wheels, one[0])[0], one[1]),) * 2

    return jax.lax.scan(leg, jnp.zeros(3), (spins, times))[1]


def square(wheels: Any, given: dict[str, Any], left: bool) -> tuple[Any, Any]:
    """Return spins (legs, 2) and times (legs,) of loops around a square, for known wheels."""
    turn = given["turn"] if left else -given["turn"]
    straight = vehicles.wheel_rates(wheels, jnp.asarray([given["speed"], 0.0, 0.0]))
    around = vehicles.wheel_rates(wheels, jnp.asarray([0.0, 0.0, turn]))
    times = jnp.asarray([given["side"] / given["speed"], 0.5 * np.pi / given["turn"]])
    count = 4 * given["loops"]
    return jnp.tile(jnp.stack([straight, around]), (count, 1)), jnp.tile(times, count)


def identified(wheels: Any, given: dict[str, Any]) -> tuple[Any, Any, list[Any]]:
    """Return radii and track (3,) from squares in both directions, standard errors and true corners."""
    true = jnp.asarray([*given["radii"], given["track"]])
    guess = jnp.asarray([*wheels.radius, wheels.place[0, 1] - wheels.place[1, 1]])
    keys = jax.random.split(jax.random.key(given["seed"] + 1), 2)
    paths = [square(wheels, given, left) for left in (True, False)]
    ends = [corners(true, *path) for path in paths]
    seen = [
        each + given["camera"] * jax.random.normal(key, each.shape)
        for key, each in zip(keys, ends, strict=True)
    ]

    def residual(parameters: Any) -> Any:
        found = [corners(parameters["numbers"], *path) - each for path, each in zip(paths, seen, strict=True)]
        return jnp.stack(found) / given["camera"]

    result = tuning.least_squares(residual, {"numbers": guess}, standard_deviation=1.0)
    return result.parameters["numbers"], jnp.sqrt(jnp.diag(result.covariance)), ends


def main() -> int:
    """Run the experiment and return its exit code."""
    asked = script(CONFIG, __doc__)
    config, given = asked.config, asked.config.experiment
    with precision(config):
        system, _, start = worlds(config).one()
        wheels = vehicles.wheels_of(system, start.q)
        dt, rates = given["time"] / given["steps"], rates_of_s(wheels, given)
        poses = np.asarray(
            scattered(wheels, rates, dt, given["variance_per_meter"], given["runs"], given["seed"])
        )
        exact = np.asarray(closed_form(wheels, rates, dt, given["variance_per_meter"]))
        mean = np.asarray(driven(wheels, rates, dt))
        numbers, errors, ends = identified(wheels, given)
        numbers, errors = np.asarray(numbers), np.asarray(errors)
    instants = [given["steps"] // 4 - 1, given["steps"] // 2 - 1, given["steps"] - 1]
    rows = []
    for k in instants:
        sample = np.cov(poses[:, k].T)
        for i, name in enumerate(("x in m", "y in m", "heading in rad")):
            ratio = f"{np.sqrt(sample[i, i] / exact[k, i, i]):.4f}"
            rows.append(
                (
                    f"{name} after {(k + 1) * dt:g} s",
                    f"{np.sqrt(exact[k, i, i]):.5f}",
                    f"{np.sqrt(sample[i, i]):.5f}",
                    ratio,
                )
            )
    true = [*given["radii"], given["track"]]
    for name, value, error, target in zip(
        ("left radius", "right radius", "track"), numbers, errors, true, strict=True
    ):
        rows.append((f"{name} in m", f"{target:.5f}", f"{value:.6f}", f"{(value - target) / error:.2f}"))
    worst = max(
        abs(np.sqrt(np.cov(poses[:, k].T)[i, i] / exact[k, i, i]) - 1.0) for k in instants for i in range(3)
    )
    sentences = [
        f"{given['runs']} runs scatter as the closed form says, standard deviations within "
        f"{100 * worst:.1f} % (one standard error is"
        f" {100 / np.sqrt(2 * given['runs']):.1f} %).",
        f"Squares in both directions tell the radii to {1e6 * errors[:2].max():.1f} um and the track to "
        f"{1e6 * errors[2]:.1f} um.",
    ]
    with styled() as figure_class:
        figure = figure_class(figsize=(10, 4.2), layout="constrained")
        left, right = figure.subplots(1, 2)
        shown = poses[:: max(1, len(poses) // 400)]
        for number, k in enumerate(instants):
            left.plot(*shown[:, k, :2].T, ".", markersize=2, alpha=0.5, color=line_style(number)["color"])
            left.plot(
                *ellipse(mean[k, :2], exact[k, :2, :2]),
                color="black",
                linewidth=1.0,
                label="two sigma, closed form" if not number else None,
            )
            left.annotate(f"{(k + 1) * dt:g} s", mean[k, :2], xytext=(26, -12), textcoords="offset points")
        left.plot(mean[:, 0], mean[:, 1], color="gray", linewidth=0.8, label="as meant")
        left.set(
            xlabel="x in m",
            ylabel="y in m",
            title="where 400 of the runs are",
            aspect="equal",
            adjustable="datalim",
        )
        left.legend(loc="lower left")
        for index, (name, each) in enumerate(zip(("to the left", "to the right"), ends, strict=True)):
            places = np.vstack([np.zeros((1, 3)), np.asarray(each)])
            right.plot(places[:, 0], places[:, 1], label=name, linewidth=0.8, **line_style(index))
        right.set(
            xlabel="x in m",
            ylabel="y in m",
            title="squares with wheels that are not alike",
            aspect="equal",
            adjustable="datalim",
        )
        right.legend(loc="upper right")
    conclude(
        asked,
        ("quantity", "closed form, or truth", "found", "ratio, or standard errors off"),
        rows,
        sentences,
        {"odometry_drift": figure},
    )
    return 0


def ellipse(center: Any, covariance: Any, sigmas: float = 2.0) -> Any:
    """Return the places (2, 100) of an ellipse of so many standard deviations."""
    sizes, axes = np.linalg.eigh(covariance)
    angles = np.linspace(0.0, 2.0 * np.pi, 100)
    circle = np.stack([np.cos(angles), np.sin(angles)])
    return center[:, None] + sigmas * axes @ (np.sqrt(np.maximum(sizes, 0.0))[:, None] * circle)


if __name__ == "__main__":
    sys.exit(main())

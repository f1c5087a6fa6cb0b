"""A car without side slip: its single degree of freedom, and the force on redundant rear wheels.

The lecture's car has rear wheels welded to the chassis and a steered front wheel on a rotary joint: 12
coordinates and 12 rows of rank
11. Its one freedom is the speed u of the rear axle, with curvature k = tan(delta) / L,

    (m + J k^2) u' = F - J_r k k' u - I_w k (k' u + delta''),      J_r = J - I_w,

m the mass of all, J the moment of inertia about the rear axle, the front wheel included, I_w that of the
front wheel about its kingpin. The script integrates this equation by itself, compares the speed, the path of
the rear axle and its slip, and shares the force of the rear wheels between them.

A second picture has one such wheel alone, a blade on a slope that starts at rest and turns at the rate w. It
does not slide down but drifts across the slope in cycloids, of the size g sin(slope) / (2 w^2).

    python experiments/car.py [CONFIG] [--set PATH=VALUE ...] [--out DIR]
"""

import sys
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import jaxdae
from jaxdae import mechanisms
from jaxdae.app import conclude, line_style, precision, script, styled
from jaxdae.app.model.build import worlds

CONFIG = "configs/car.yaml"
FINE = 20
"""How many steps of the closed form fit in one of the simulation."""


class Car(NamedTuple):
    """Numbers of the closed form, in SI units."""

    mass: float
    inertia: float
    wheel: float
    wheelbase: float
    back: float
    push: float


def car(system: Any, config: Any) -> Car:
    """Return the numbers of a car: chassis, two rear wheels and a front wheel, in this order."""
    mass, inertia = np.asarray(system.mass), np.asarray(system.inertia)
    places = np.array([body.pose for body in config.mechanism.bodies])[:, :2]
    # About the middle of the rear axle; the front wheel as a point with a spin of its own.
    rear = 0.5 * (places[1] + places[2])
    about = inertia + mass * np.sum((places - rear) ** 2, axis=1)
    push = float(np.linalg.norm(config.mechanism.forces[0].force))
    wheelbase, back = float(places[3, 0] - rear[0]), float(places[0, 0] - rear[0])
    return Car(float(mass.sum()), float(about.sum()), float(inertia[3]), wheelbase, back, push)


def closed_form(car: Car, motion: Any, speed: float, dt: float, steps: int) -> np.ndarray:
    """Return speed, position and heading of the rear axle (steps, 4) from the single equation of motion."""

    def rate(t: Any, x: Any) -> Any:
        u, _, _, heading = x
        delta, turning = jax.jvp(motion, (t,), (jnp.ones_like(t),))
        bending = jax.jvp(lambda s: jax.jvp(motion, (s,), (jnp.ones_like(s),))[1], (t,), (jnp.ones_like(t),))[
            1
        ]
        k, k_rate = jnp.tan(delta) / car.wheelbase, turning / (car.wheelbase * jnp.cos(delta) ** 2)
        resisting = (car.inertia - car.wheel) * k * k_rate * u + car.wheel * k * (k_rate * u + bending)
        forward = (car.push - resisting) / (car.mass + car.inertia * k**2)
        return jnp.stack([forward, u * jnp.cos(heading), u * jnp.sin(heading), k * u])

    h = dt / FINE

    def step(x: Any, number: Any) -> Any:
        t = number * h
        k1 = rate(t, x)
        k2 = rate(t + 0.5 * h, x + 0.5 * h * k1)
        k3 = rate(t + 0.5 * h, x + 0.5 * h * k2)
        k4 = rate(t + h, x + h * k3)
        return (x + h / 6.0 * (k1 + 2.0 * k2 + 2.0 * k3 + k4),) * 2

    start = jnp.asarray([speed, 0.0, 0.0, 0.0])
    return np.asarray(
        jax.jit(lambda: jax.lax.scan(step, start, jnp.arange(float(FINE * steps)))[1])()[FINE - 1 :: FINE]
    )


def rear_axle(car: Car, states: Any) -> np.ndarray:
    """Return speed, place and heading of the rear axle at states (time, 4)."""
    x, y, heading = (states.q[:, k] for k in range(3))
    vx, vy = states.v[:, 0], states.v[:, 1]
    cos, sin = jnp.cos(heading), jnp.sin(heading)
    return np.asarray(
        jnp.stack([vx * cos + vy * sin, x - car.back * cos, y - car.back * sin, heading], axis=1)
    )


def blades(spins: Any, slope: float, time: float, steps: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the positions (spins, steps, 2) of a blade on a slope, simulated and in closed form.

    x points down the slope, and the blade turns at spins in rad/s.
    """
    pull = 9.81 * np.sin(slope)
    edge = mechanisms.Wheel("edge", "blade", (1.0, 0.0), point=(0.0, 0.0))
    blade, q = mechanisms.planar_mechanism([mechanisms.Body("blade", 1.0, 0.1)], [edge], gravity=(pull, 0.0))

    def one(spin: Any) -> Any:
        start = jaxdae.State(jnp.zeros(()), q, jnp.zeros(3).at[2].set(spin))
        return jaxdae.rollout(
            blade, jaxdae.Projected(jaxdae.RungeKutta.rk4()), start, dt=time / steps, steps=steps
        ).state.q[:, :2]

    found = np.asarray(jax.jit(jax.vmap(one))(jnp.asarray(spins)))
    turned = np.asarray(spins)[:, None] * np.linspace(0.0, time, steps + 1)[1:]
    size = 0.5 * pull / np.asarray(spins)[:, None] ** 2
    return found, np.stack(
        [size * np.sin(turned) ** 2, size * (turned - 0.5 * np.sin(2.0 * turned))], axis=-1
    )


def main() -> int:
    """Run the experiment and return its exit code."""
    asked = script(CONFIG, __doc__)
    config = asked.config
    with precision(config):
        system, method, start = worlds(config).one()
        numbers = car(system, config)
        report = jaxdae.diagnose(system, start)
        trajectory = jaxdae.rollout(system, method, start, dt=config.dt, steps=config.steps)
        jaxdae.raise_if_failed(trajectory.info)
        found = rear_axle(numbers, trajectory.state)
        motion = next(iter(group.motion for group in system.joints.values() if hasattr(group, "motion")))
        motion = jax.tree.map(lambda leaf: leaf[0], motion)
        speed = float(rear_axle(numbers, jax.tree.map(lambda x: x[None], start))[0, 0])
        exact = closed_form(numbers, motion, speed, config.dt, config.steps)
        lam = jax.vmap(lambda s: jaxdae.forward_dynamics(system, s, solver=jaxdae.LeastSquares())[1])(
            trajectory.state
        )
        lateral = {
            name: np.asarray(lam[:, k])
            for k, name in enumerate(system.names.rows)
            if name.endswith("lateral")
        }
        slip = np.max(np.abs(jax.vmap(lambda s: system.velocity_constraint(s.t, s.q, s.v))(trajectory.state)))
        spins = (1.5, 2.0, 3.0)
        slid, cycloids = blades(spins, 0.2, 8.0, 1600)
    errors = np.max(np.abs(found - exact), axis=0)
    headings = ("quantity", "at the end", "largest difference from the closed form")
    quantities = (
        "speed of the rear axle, m/s",
        "x of the rear axle, m",
        "y of the rear axle, m",
        "heading, rad",
    )
    rows = [(name, f"{found[-1, k]:.10f}", f"{errors[k]:.1e}") for k, name in enumerate(quantities)]
    total = lateral["left.lateral"] + lateral["right.lateral"]
    apart = np.max(np.abs(lateral["left.lateral"] - lateral["right.lateral"]))
    sentences = [
        f"{report.coordinates} coordinates, {report.rows} rows of rank {report.rank}: the mobility is "
        f"{report.mobility}; wheels slip by"
        f" {slip:.1e} m/s at most.",
        f"The rear wheels share up to {np.max(np.abs(total)):.1f} N, their forces at most {apart:.2f} N "
        "apart; the front wheel takes up to"
        f" {np.max(np.abs(lateral['front_wheel.lateral'])):.1f} N.",
        f"Blades on a slope stay within {np.max(np.abs(slid - cycloids)):.1e} m of their cycloids.",
    ]
    with styled() as figure_class:
        figure = figure_class(figsize=(9, 4.2), layout="constrained")
        path, forces = figure.subplots(1, 2)
        path.plot(exact[:, 1], exact[:, 2], label="closed form", **line_style(0))
        path.plot(found[::20, 1], found[::20, 2], "o", markersize=3, label="12 coordinates, 12 rows")
        path.set(
            xlabel="x in m",
            ylabel="y in m",
            title="path of the rear axle",
            aspect="equal",
            adjustable="datalim",
        )
        path.legend()
        time = config.dt * np.arange(1, config.steps + 1)
        for index, (name, values) in enumerate(lateral.items()):
            # Both rear wheels bear the same: the first is drawn wider, so that it is seen behind the second.
            forces.plot(
                time,
                values,
                label=name.removesuffix(".lateral"),
                linewidth=4.0 if index == 0 else 1.5,
                **line_style(index),
            )
        forces.set(
            xlabel="time in s", ylabel="lateral force in N", title="forces of the ground on the wheels"
        )
        forces.legend()
        blade = figure_class(figsize=(8, 3.4), layout="constrained")
        axes = blade.subplots()
        for index, spin in enumerate(spins):
            axes.plot(
                cycloids[index, :, 1], cycloids[index, :, 0], label=f"{spin:g} rad/s", **line_style(index)
            )
            axes.plot(
                slid[index, ::40, 1],
                slid[index, ::40, 0],
                "o",
                markersize=3,
                color=line_style(index)["color"],
            )
        axes.set(
            xlabel="across the slope in m",
            ylabel="down in m",
            title="blades that turn; dots: the mechanism",
            aspect="equal",
        )
        axes.invert_yaxis()
        axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0))
    conclude(asked, headings, rows, sentences, {"car": figure, "blade": blade})
    return 0


if __name__ == "__main__":
    sys.exit(main())

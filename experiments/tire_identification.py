"""Tire identification from yaw rate and side slip: how large must the steering input be to identify friction?

A car in the plane on two brush tires (one an axle) drives at 20 m/s while its front wheel swings to and fro.
Measured are the yaw rate and the velocity to the side with noise. Levenberg-Marquardt with the Jacobian
through the rollout of the mechanism finds the stiffness of both axles and their common friction. The tire
answers F = C a - (C a)^2 / (3 mu N) + ...: at small slips friction shows in the curvature alone, so that
gentle steering tells stiffness and hardly any friction, which the standard errors say as well.

A second picture shows what such tires do: side force against the force along the heading within the circle of
friction, and the steady yaw rate over the steering angle against speed, V / (l + k V^2) with k = m (b / C_f -
a / C_r) / l, of cars that understeer, are neutral and oversteer, the curve beside `DynamicSingleTrack` at
small angles.

    python experiments/tire_identification.py [CONFIG] [--set PATH=VALUE ...] [--out DIR]
"""

import dataclasses
import sys
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jaxdae
from jaxdae import mechanisms, tuning, vehicles
from jaxdae.app import conclude, line_style, precision, script, styled
from jaxdae.app.model.build import worlds

CONFIG = "configs/tire_identification.yaml"
NAMES = ("front stiffness, N", "rear stiffness, N", "friction")


def with_tires(system: Any, numbers: Any) -> Any:
    """Return the car with other tires, (front stiffness, rear stiffness, friction)."""
    tires = system.forces["free_brush_contact"]
    order = [tires.names.index(name) for name in ("front", "rear")]
    stiffness = tires.stiffness.at[jnp.asarray(order)].set(numbers[:2])
    tires = dataclasses.replace(
        tires, stiffness=stiffness, friction=jnp.broadcast_to(numbers[2], tires.friction.shape)
    )
    return dataclasses.replace(system, forces=system.forces | {"free_brush_contact": tires})


def with_steering(system: Any, amplitude: Any) -> Any:
    """Return the car with another amplitude of its steering in rad."""
    key = next(name for name, group in system.joints.items() if hasattr(group, "motion"))
    motion = dataclasses.replace(system.joints[key].motion, amplitude=jnp.reshape(amplitude, (1,)))
    return dataclasses.replace(
        system, joints=system.joints | {key: dataclasses.replace(system.joints[key], motion=motion)}
    )


def measured(system: Any, method: Any, start: Any, numbers: Any, amplitude: Any, config: Any) -> Any:
    """Return yaw rate and velocity to the side (instants, 2) of the car with these tires."""
    car = with_steering(with_tires(system, numbers), amplitude)
    # The steering turns from the first instant on: the knuckle starts with its rate.
    begun, _ = jaxdae.initialize(car, start.q, start.v)
    run = jaxdae.rollout(car, method, begun, dt=config.dt, steps=config.steps, save_every=config.save_every)
    q, v = run.state.q, run.state.v
    return jnp.stack([v[:, 2], jnp.cos(q[:, 2]) * v[:, 1] - jnp.sin(q[:, 2]) * v[:, 0]], axis=1)


def fitted(system: Any, method: Any, start: Any, true: Any, config: Any) -> tuple[Any, Any, Any]:
    """Return estimates (k, 3), standard errors (k, 3) and data (k, instants, 2) of k amplitudes."""
    given = config.experiment
    noise, amplitudes = jnp.asarray(given["noise"]), jnp.asarray(given["amplitudes"])
    guess = jnp.asarray(given["guess"])

    def one(amplitude: Any, key: Any) -> tuple[Any, Any, Any]:
        exact = measured(system, method, start, true, amplitude, config)
        seen = exact + noise * jax.random.normal(key, exact.shape)

        def residual(parameters: Any) -> Any:
            return (
                measured(system, method, start, jnp.exp(parameters["log"]), amplitude, config) - seen
            ) / noise

        found = tuning.least_squares(
            residual, {"log": jnp.log(guess)}, standard_deviation=1.0, max_step=0.5, iterations=30
        )
        numbers = jnp.exp(found.parameters["log"])
        return numbers, numbers * found.standard_error["log"], seen

    return jax.jit(jax.vmap(one))(
        amplitudes, jax.random.split(jax.random.key(given["seed"]), len(amplitudes))
    )


def main() -> int:
    """Run the experiment and return its exit code."""
    asked = script(CONFIG, __doc__)
    config, given = asked.config, asked.config.experiment
    with precision(config):
        system, method, start = worlds(config).one()
        tires = system.forces["free_brush_contact"]
        true = jnp.stack(
            [
                tires.stiffness[tires.names.index("front")],
                tires.stiffness[tires.names.index("rear")],
                tires.friction[0],
            ]
        )
        numbers, errors, seen = (np.asarray(each) for each in fitted(system, method, start, true, config))
        loads = np.asarray(tires.load)[[tires.names.index("front"), tires.names.index("rear")]]
        slips = jnp.linspace(0.0, 0.3, 100)
        curves = [
            [_curve(slips, each[axle], each[2], loads[axle]) for each in (np.asarray(true), *numbers)]
            for axle in (0, 1)
        ]
    headings = ("steering, rad", "quantity", "truth", "found", "standard error", "standard errors off")
    rows = []
    for k, amplitude in enumerate(given["amplitudes"]):
        for i, name in enumerate(NAMES):
            off = (numbers[k, i] - float(true[i])) / errors[k, i]
            rows.append(
                (
                    f"{amplitude:g}",
                    name,
                    f"{float(true[i]):.4g}",
                    f"{numbers[k, i]:.5g}",
                    f"{errors[k, i]:.2g}",
                    f"{off:.2f}",
                )
            )
    part = errors / np.asarray(true)
    sentences = [
        f"Stiffness is found to {100 * part[0, :2].max():.1f} % with the gentlest steering and to "
        f"{100 * part[-1, :2].max():.1f} % with the"
        " hardest.",
        f"Friction has a standard error of {100 * part[0, 2]:.1f} % with the gentlest steering and of "
        f"{100 * part[-1, 2]:.2f} % with the"
        " hardest, which reaches it.",
    ]
    with styled() as figure_class:
        figure = figure_class(figsize=(11, 4), layout="constrained")
        front, rear, motion = figure.subplots(1, 3)
        labels = ("truth", *(f"from {amplitude:g} rad" for amplitude in given["amplitudes"]))
        for axes, name, found in ((front, "front", curves[0]), (rear, "rear", curves[1])):
            for index, (label, curve) in enumerate(zip(labels, found, strict=True)):
                style = (
                    {"color": "black", "linewidth": 2.5, "alpha": 0.5} if not index else line_style(index - 1)
                )
                axes.plot(slips, 1e-3 * curve, label=label, **style)
            axes.set(
                xlabel="tangent of the slip angle",
                ylabel="side force in kN",
                title=f"tire of the {name} axle",
            )
        front.legend()
        time = config.dt * config.save_every * np.arange(1, seen.shape[1] + 1)
        for k, amplitude in enumerate(given["amplitudes"]):
            motion.plot(
                time,
                seen[k, :, 0],
                ".",
                markersize=4,
                label=f"{amplitude:g} rad",
                color=line_style(k)["color"],
            )
        motion.set(xlabel="time in s", ylabel="yaw rate in rad/s", title="what is measured")
        motion.set_ylim(-0.6, 0.75)
        motion.legend(loc="upper center", ncols=3, columnspacing=0.8, handletextpad=0.0)
        tires = figure_class(figsize=(10, 4.6), layout="constrained")
        combined, gains = tires.subplots(1, 2)
        with precision(config):
            _draw_combined(combined, numbers[-1], loads[0])
            _draw_gains(gains, config.mechanism, numbers[-1])
    conclude(asked, headings, rows, sentences, {"tire_identification": figure, "tires": tires})
    return 0


def _draw_combined(axes: Any, numbers: Any, load: float) -> None:
    """Draw the forces of the estimated front tire, one curve per slip angle, within the friction circle."""
    most = 1e-3 * numbers[2] * load
    turn = np.linspace(0.0, 2.0 * np.pi, 200)
    axes.plot(
        most * np.cos(turn), most * np.sin(turn), color="black", linewidth=0.8, label="friction times load"
    )
    ratios = jnp.tan(jnp.linspace(-1.3, 1.3, 301))
    for index, angle in enumerate((0.02, 0.05, 0.1, 0.2)):
        forces = jax.vmap(
            lambda x, y=np.tan(angle): jnp.stack(mechanisms.brush_forces(x, y, numbers[0], numbers[2], load))
        )(0.3 * ratios)
        axes.plot(*(1e-3 * np.asarray(forces).T), label=f"slip to the left {angle:g}", **line_style(index))
    axes.set(
        xlabel="force along the heading in kN",
        ylabel="side force in kN",
        title="front tire, combined slip",
        aspect="equal",
    )
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, 0.9), fontsize=8)


def _draw_gains(axes: Any, mechanism: Any, numbers: Any) -> None:
    """Draw the steady yaw rates of three cars over the steering angle.

    The curves are the closed form and the single-track model at small angles.
    """
    a, b = mechanism.joints[0].point_a[0], -mechanism.forces[1].point[0]
    mass, inertia = (sum(getattr(body, name) for body in mechanism.bodies) for name in ("mass", "inertia"))
    mean = 0.5 * (numbers[0] + numbers[1])
    # Where the moments of both axles about the mass center are alike, C_f a = C_r b, a car is neutral.
    cars = {
        "as it was found": (numbers[0], numbers[1]),
        "neutral": (2.0 * mean * b / (a + b), 2.0 * mean * a / (a + b)),
        "soft behind": (2.0 * mean * b / (a + b) * 1.15, 2.0 * mean * a / (a + b) * 0.85),
    }
    speeds, marks = np.linspace(1.0, 45.0, 200), np.linspace(3.0, 42.0, 14)
    for index, (name, (of_front, of_rear)) in enumerate(cars.items()):
        slope = float(mass * (b / of_front - a / of_rear) / (a + b))
        critical = np.sqrt(-(a + b) / slope) if slope < -1e-6 else np.inf
        shown = speeds[speeds < 0.97 * critical]
        axes.plot(shown, shown / (a + b + slope * shown**2), label=name, **line_style(index))
        # The model takes stiffness over friction and load of an axle.
        over = [float(c) / (mass * 9.81 * lever / (a + b)) for c, lever in ((of_front, b), (of_rear, a))]
        model = vehicles.DynamicSingleTrack(a, b, mass, inertia, 0.0, 1.0, *over)

        def steady(speed: Any, model: Any = model) -> Any:
            """Return the yaw rate per steering angle () at zero yaw acceleration and constant side slip."""

            def change(z: Any) -> Any:
                return model.rate(
                    jnp.zeros(()),
                    jnp.stack([0.0 * z[0], 0.0 * z[0], z[0], speed, 0.0 * z[0], z[1], z[2]]),
                    jnp.zeros(2),
                )[5:]

            slopes = jax.jacfwd(change)(jnp.zeros(3))
            return jnp.linalg.solve(slopes[:, 1:], -slopes[:, 0])[0]

        dots = marks[marks < 0.97 * critical]
        axes.plot(
            dots,
            jax.vmap(steady)(jnp.asarray(dots)),
            "o",
            markersize=4,
            markerfacecolor="none",
            color=line_style(index)["color"],
        )
    axes.set(xlabel="speed in m/s", ylabel="yaw rate over steering angle in 1/s", ylim=(0.0, 25.0))
    axes.set_title("curves: closed form; dots: DynamicSingleTrack")
    axes.legend(loc="upper left")


def _curve(slips: Any, stiffness: Any, friction: Any, load: Any) -> np.ndarray:
    """Return the side forces of a brush at slips, as positive numbers in N."""
    return -np.asarray(
        jax.vmap(lambda slip: mechanisms.brush_forces(0.0, slip, stiffness, friction, load)[1])(slips)
    )


if __name__ == "__main__":
    sys.exit(main())

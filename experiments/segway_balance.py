"""How far may a pendulum on two wheels lean before its regulator loses it, and how does it start to drive?

The robot (`jaxdae.vehicles.Segway`) is linearized about upright on its rows, in the four numbers that its
rows leave to be chosen: pitch, pitch rate, speed and turn. Place and heading do not matter to it, and at rest
no torque moves it to the side, so that a regulator of all coordinates does not exist. Those four have one, u
= -K (z - wished), by the linear-quadratic regulator. The script lets the nonlinear robot go from leaning
starts, then asks for a speed and a turn: to go forward it has to roll back first, so that it leans into the
motion.

    python experiments/segway_balance.py [CONFIG] [--set PATH=VALUE ...] [--out DIR]

References:
    F. Grasser, A. D'Arrigo, S. Colombi, A. Rufer, "JOE: a mobile, inverted pendulum", IEEE Transactions on
    Industrial Electronics 49 (2002).
"""

import sys
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jaxdae
from jaxdae import vehicles
from jaxdae.app import conclude, line_style, precision, script, styled

CONFIG = "configs/segway_balance.yaml"
METHOD = jaxdae.Projected(jaxdae.RungeKutta.rk4(), jaxdae.Projection())
NAMES = ("pitch", "pitch_rate", "speed", "turn")
WISHED_FROM = 3.0
"""When speed and turn are asked for, in s."""


def robot(config: Any) -> vehicles.Segway:
    """Return the robot of a config, whose wheels are those of its vehicle."""
    given = config.experiment
    left, right = config.mechanism.joints
    return vehicles.Segway(
        mass=given["mass"],
        height=given["height"],
        inertia=jnp.asarray(given["inertia"]),
        wheel_mass=given["wheel_mass"],
        wheel_inertia=given["wheel_inertia"][0],
        wheel_inertia_across=given["wheel_inertia"][1],
        wheel_radius=left.radius,
        wheel_separation=left.point[1] - right.point[1],
    )


def state_of(system: Any, z: Any) -> jaxdae.State:
    """Return a state of the robot at the origin from pitch, pitch rate, speed and turn, on its rows."""
    pitch, pitch_rate, speed, turn = z
    zero, half = jnp.zeros_like(pitch), 0.5 * system.wheel_separation
    spins = [(speed - side * half * turn) / system.wheel_radius for side in (1.0, -1.0)]
    return jaxdae.State(
        jnp.zeros(()),
        jnp.stack([zero, zero, zero, pitch, zero, zero]),
        jnp.stack([speed, zero, turn, pitch_rate, *spins]),
    )


def reduced(system: Any, states: Any) -> Any:
    """Return pitch, pitch rate, speed and turn of a state."""
    q, v = states.q, states.v
    return jnp.stack([q[3], v[3], jnp.cos(q[2]) * v[0] + jnp.sin(q[2]) * v[1], v[2]])


def linearized(system: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return A (4, 4) and B (4, 2) of z' = A z + B u about upright."""

    def rate(z: Any, u: Any) -> Any:
        state = state_of(system, z)
        a = jaxdae.forward_dynamics(system, state, u)[0]
        # At heading zero the speed along it changes as x'' does, up to terms of second order.
        return jnp.stack([z[1], a[3], a[0], a[2]])

    a, b = jax.jit(jax.jacfwd(rate, argnums=(0, 1)))(jnp.zeros(4), jnp.zeros(2))
    return np.asarray(a), np.asarray(b)


def regulator(a: Any, b: Any, weights: dict[str, float]) -> np.ndarray:
    """Return the gain K (2, 4) that minimizes the integral of z^T Q z + u^T R u.

    The stable subspace of the Hamiltonian matrix gives the solution of the Riccati equation.
    """
    q = np.diag([weights[name] for name in NAMES])
    hamiltonian = np.block([[a, -b @ b.T / weights["torque"]], [-q, -a.T]])
    values, vectors = np.linalg.eig(hamiltonian)
    stable = vectors[:, values.real < 0.0]
    riccati = np.real(stable[4:] @ np.linalg.inv(stable[:4]))
    return b.T @ riccati / weights["torque"]


def balanced(system: Any, gain: Any, tilts: Any, config: Any) -> tuple[Any, Any, Any]:
    """Return pitch, pitch rate, speed and turn (tilts, steps, 4), positions (tilts, steps, 2) and statuses.

    The starts are tilted.
    """
    given, gain = config.experiment, jnp.asarray(gain)

    def law(t: Any, state: Any) -> Any:
        asked = jnp.where(t >= WISHED_FROM, 1.0, 0.0) * jnp.asarray([0.0, 0.0, given["speed"], given["turn"]])
        return jnp.clip(-gain @ (reduced(system, state) - asked), -given["most"], given["most"])

    def one(tilt: Any) -> Any:
        start = state_of(system, jnp.stack([tilt, 0.0 * tilt, 0.0 * tilt, 0.0 * tilt]))
        run = jaxdae.rollout(system, METHOD, start, law, dt=config.dt, steps=config.steps)
        return (
            jax.vmap(lambda state: reduced(system, state))(run.state),
            run.state.q[:, :2],
            run.info.status[-1],
        )

    return jax.jit(jax.vmap(one))(jnp.asarray(tilts))


def main() -> int:
    """Run the experiment and return its exit code."""
    asked = script(CONFIG, __doc__)
    config, given = asked.config, asked.config.experiment
    with precision(config):
        system = robot(config)
        a, b = linearized(system)
        gain = regulator(a, b, given["weights"])
        numbers, places, statuses = (
            np.asarray(each) for each in balanced(system, gain, given["tilts"], config)
        )
    poles = np.linalg.eigvals(a - b @ gain)
    # A robot that leans by a right angle lies on the ground.
    stands = (
        np.all(np.abs(numbers[:, :, 0]) < 0.5 * np.pi, axis=1)
        & (statuses == 0)
        & (np.abs(numbers[:, -1, 0]) < 0.2)
    )
    headings = (
        "start, rad",
        "stays up",
        "largest pitch, rad",
        "speed at the end, m/s",
        "turn at the end, rad/s",
    )
    rows = [
        (
            f"{tilt:g}",
            "yes" if up else "no",
            f"{np.abs(each[:, 0]).max():.3f}",
            f"{each[-1, 2]:.3f}",
            f"{each[-1, 3]:.3f}",
        )
        for tilt, up, each in zip(given["tilts"], stands, numbers, strict=True)
    ]
    falls = np.sqrt(np.max(np.linalg.eigvals(a).real) ** 2)
    sentences = [
        f"Upright it falls at {falls:.3f} 1/s; with the regulator all poles lie left of "
        f"{poles.real.max():.2f} 1/s.",
        f"{stands.sum()} of {len(stands)} starts stay up.",
    ]
    with styled() as figure_class:
        figure = figure_class(figsize=(11, 4), layout="constrained")
        pitch, speed, path = figure.subplots(1, 3)
        time = config.dt * np.arange(1, config.steps + 1)
        for k, tilt in enumerate(given["tilts"]):
            shown = (
                numbers[k]
                if stands[k]
                else numbers[k, : max(int(np.argmax(np.abs(numbers[k, :, 0]) > 1.5)), 1)]
            )
            pitch.plot(time[: len(shown)], shown[:, 0], label=f"from {tilt:g} rad", **line_style(k))
            speed.plot(time[: len(shown)], shown[:, 2], **line_style(k))
            path.plot(*places[k, : len(shown)].T, **line_style(k))
        pitch.set(xlabel="time in s", ylabel="pitch in rad", title="pitch, forward positive")
        speed.set(xlabel="time in s", ylabel="speed in m/s", title="speed, wished from the third second on")
        path.set(
            xlabel="x in m", ylabel="y in m", title="path of the axle", aspect="equal", adjustable="datalim"
        )
        pitch.legend()
    conclude(asked, headings, rows, sentences, {"segway_balance": figure})
    return 0


if __name__ == "__main__":
    sys.exit(main())

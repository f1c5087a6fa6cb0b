"""A rimless wheel: its motion over many impacts, and its return map, against closed forms.

A wheel of n spokes without rim rolls down a slope gamma. Between impacts it is a pendulum on its foot. With
alpha = pi / n, mass m, inertia J, spokes of length l and eta = (J + m l^2 cos 2 alpha) / (J + m l^2), the
angular momentum about the new foot and the energy give for the rate omega after an impact

    omega_next^2 = eta^2 (omega^2 + c),      c = 4 m g l sin(alpha) sin(gamma) / (J + m l^2),

if omega carries the wheel over its foot. The fixed point is eta sqrt(c / (1 - eta^2)), its eigenvalue
eta^2.

*Motion.* `Switching` with one height and one slip row per spoke: a spoke that strikes takes the impulse,
and the old foot, which this impulse would have to pull, is released. *Return map.* `rollout_until` the next
spoke strikes, and `constraint_impulse` of its rows. Its derivative by `jax.jacfwd` is the eigenvalue. The
time-stepping method `Touching` with the contacts of the config is compared with both.

    python experiments/rimless_wheel.py [CONFIG] [--set PATH=VALUE ...] [--out DIR]

References: T. McGeer, "Passive dynamic walking", Int. J. Robotics Research 9 (1990). M. J. Coleman, "A
stability study of a three-dimensional passive-dynamic model of human gait", thesis, Cornell University
(1998).
"""

import sys
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jaxdae
from jaxdae.app import conclude, line_style, precision, script, styled

CONFIG = "configs/rimless_wheel.yaml"
METHOD = jaxdae.Projected(jaxdae.RungeKutta.rk4())
# Two feet on the ground have equal slip rows.
MOTION = jaxdae.Projected(jaxdae.RungeKutta.rk4(solver=jaxdae.LeastSquares()))


@jaxdae.tree.pytree
class Wheel(jaxdae.System):
    """A wheel with spokes of 1 m: heights of their ends, then their velocities along the ground.

    Attributes:
        mass: in kg.
        inertia: about the hub in kg m^2.
        gravity: (2,) along and across the slope in m/s^2.
        spokes: the number of spokes of the whole wheel (static).
        ends: the number of spokes that have rows, from the one that points down on (static).
    """

    mass: Any
    inertia: Any
    gravity: Any
    spokes: int = jaxdae.tree.static()
    ends: int = jaxdae.tree.static()

    def mass_matrix(self, q):
        """Return the mass matrix for the position of the hub and the angle."""
        return jnp.diag(jnp.stack([self.mass, self.mass, self.inertia]))

    def force(self, t, q, v, u):
        """Return the weight."""
        return jnp.append(self.mass * self.gravity, 0.0)

    def constraint(self, t, q):
        """Return the heights of the ends (ends,) in m."""
        return q[1] - self.cosines(q)

    def velocity_constraint(self, t, q, v):
        """Return the velocities of the ends along the ground (ends,) in m/s, if they are on it."""
        return v[0] + self.cosines(q) * v[2]

    def cosines(self, q):
        """Return the distances of the ends below the hub (ends,) in m."""
        return jnp.cos(q[2] + 2.0 * jnp.pi / self.spokes * jnp.arange(self.ends, dtype=q.dtype))


def height_of_the_next(system: Any, state: jaxdae.State) -> Any:
    """Return the height of the spoke ahead of the foot in m."""
    return system.system.constraint(state.t, state.q)[1]


def landed(wheel: Wheel, rate: Any) -> jaxdae.State:
    """Return the state after an impact, with the rate in rad/s by which the wheel rolls downhill."""
    alpha = jnp.pi / wheel.spokes
    c, s = jnp.cos(alpha), jnp.sin(alpha)
    return jaxdae.State(jnp.zeros_like(rate), jnp.stack([-s, c, alpha]), rate * jnp.stack([c, s, -1.0]))


def next_rate(wheel: Wheel, rate: Any, dt: Any, steps: int) -> tuple[Any, Any]:
    """Return the rate after the next impact in rad/s, and the trajectory up to the impact."""
    foot, ahead = jnp.array([True, False, True, False]), jnp.array([False, True, False, True])
    system = jaxdae.Masked(wheel, foot)
    end = jaxdae.switching.rollout_until(
        system, METHOD, landed(wheel, rate), height_of_the_next, dt=dt, steps=steps
    )
    v, _ = jaxdae.constraint_impulse(wheel, end.state, ahead, solver=METHOD.solver)
    return -v[2], end


def periodic(
    wheel: Wheel, guess: float, dt: float, steps: int, iterations: int
) -> tuple[float, float, float]:
    """Return rate after an impact in rad/s, eigenvalue and period in s of the periodic motion."""

    @jax.jit
    def mapped(rate: Any) -> Any:
        def both(rate: Any) -> Any:
            image, end = next_rate(wheel, rate, dt, steps)
            return image, (image, end)

        return jax.jacfwd(both, has_aux=True)(rate)

    rate = jnp.asarray(guess)
    for _ in range(iterations):
        slope, (image, _) = mapped(rate)
        rate = rate + (image - rate) / (1.0 - slope)
    slope, (_, end) = mapped(rate)
    jaxdae.raise_if_failed(end)
    return float(rate), float(slope), float(end.state.t)


def moved(wheel: Wheel, start: jaxdae.State, dt: float, steps: int) -> jaxdae.Trajectory:
    """Return the motion of the whole wheel by `Switching`, from a start on the first spoke."""
    n = wheel.ends
    law = jaxdae.switching.Unilateral(jnp.repeat(jnp.array([1.0, 0.0]), n), follows=(*range(n), *range(n)))
    system = jaxdae.Masked(wheel, jnp.arange(2 * n) % n == 0)
    integrator = jaxdae.switching.Switching(MOTION, law)
    trajectory = jaxdae.rollout(system, integrator, start, dt=dt, steps=steps)
    jaxdae.raise_if_failed(trajectory)
    return trajectory


def closed_form(wheel: Wheel) -> tuple[float, float]:
    """Return eta, and c in (rad/s)^2."""
    mass, inertia, g = float(wheel.mass), float(wheel.inertia), np.asarray(wheel.gravity)
    alpha = np.pi / wheel.spokes
    eta = (inertia + mass * np.cos(2 * alpha)) / (inertia + mass)
    return eta, 4 * mass * np.sin(alpha) * g[0] / (inertia + mass)


def after_impacts(wheel: Wheel, motion: jaxdae.Trajectory, at: np.ndarray) -> np.ndarray:
    """Return the rates right after impacts (n,) in rad/s, from the energy at the end of their steps.

    Args:
        wheel: the whole wheel.
        motion: its motion.
        at: the entries whose step contains an impact (n,).
    """
    states = jax.tree.map(lambda x: x[at], motion.state)
    q, v = np.asarray(states.q), np.asarray(states.v)
    mass, inertia, g = float(wheel.mass), float(wheel.inertia), np.asarray(wheel.gravity)
    energy = (mass * np.sum(v[:, :2] ** 2, axis=1) + inertia * v[:, 2] ** 2) / 2 - mass * q[:, :2] @ g
    # At impact k the hub is above the middle of two feet.
    alpha = np.pi / wheel.spokes
    x = 2.0 * np.sin(alpha) * np.arange(1, len(at) + 1) - np.sin(alpha)
    potential = -mass * np.stack([x, np.full_like(x, np.cos(alpha))], axis=1) @ g
    return np.sqrt(2.0 * (energy - potential) / (inertia + mass))


def draw(wheel: Wheel, states: Any, touched: Any, time: Any, impacts: Any, rates: Any, images: Any) -> Any:
    """Return the figure: paths of the spokes, rate against time, return map."""
    eta, c = closed_form(wheel)
    fixed = eta * np.sqrt(c / (1 - eta**2))
    with styled() as figure_class:
        figure = figure_class(figsize=(15, 4.5), layout="constrained")
        paths, rate, map_ = figure.subplots(1, 3)
        q = np.asarray(states.q)
        angles = q[:, 2:] + 2 * np.pi / wheel.spokes * np.arange(wheel.spokes)
        paths.plot(q[:, 0], q[:, 1], label="hub", **line_style(0))
        for k in range(3):
            tip = q[:, 0] + np.sin(angles[:, k]), q[:, 1] - np.cos(angles[:, k])
            paths.plot(*tip, label=f"spoke {k + 1}", **line_style(k + 1))
        paths.set(
            title="path of hub and spokes", xlabel="x in m", ylabel="y in m", xlim=(-1, 4), aspect="equal"
        )
        paths.legend()
        rate.plot(time, -np.asarray(touched.v)[:, 2], label="time stepping", **line_style(1))
        rate.plot(time, -np.asarray(states.v)[:, 2], label="located impacts", **line_style(0))
        rate.plot(impacts["time"], impacts["closed"], "k.", label="closed form, after impacts")
        rate.set(title="rate of the wheel", xlabel="time in s", ylabel="rate in rad/s")
        rate.legend()
        map_.plot(rates, images, label="return map", **line_style(0))
        map_.plot(rates, eta * np.sqrt(rates**2 + c), "k:", label="closed form")
        map_.axline((fixed, fixed), slope=1.0, color="black", linewidth=0.6)
        walk = np.repeat(np.concatenate([[impacts["first"]], impacts["closed"]]), 2)
        map_.plot(walk[:-1], walk[1:], label="this motion", **line_style(2))
        map_.set(title="return map", xlabel="rate after an impact in rad/s", ylabel="after the next one")
        map_.legend()
        return figure


def main() -> int:
    """Run the experiment and return its exit code."""
    asked = script(CONFIG, __doc__)
    config, given = asked.config, asked.config.experiment
    with precision(config):
        mechanism, contact_steps, start = asked.worlds.one()
        numbers = (mechanism.mass[0], mechanism.inertia[0], mechanism.gravity)
        two, whole = (Wheel(*numbers, given["spokes"], ends) for ends in (2, given["spokes"]))
        steps = round(given["longest"] / config.dt)
        rate, slope, period = periodic(two, given["guess"], config.dt, steps, given["newton"])
        plan = {"dt": config.dt, "steps": config.steps}
        motion = moved(whole, start, **plan)
        touched = jaxdae.rollout(mechanism, contact_steps, start, **plan)
        jaxdae.raise_if_failed(touched)
        rates = jnp.linspace(*given["rates"], 60)
        images = jax.jit(jax.vmap(lambda x: next_rate(two, x, config.dt, steps)[0]))(rates)
        eta, c = closed_form(whole)
    time = config.dt * np.arange(1, config.steps + 1)
    at = np.flatnonzero(np.any(np.diff(np.asarray(motion.info.impulse), axis=0) != 0.0, axis=1)) + 1
    instants = np.max(np.asarray(motion.info.switched)[at], axis=1)
    closed = [-float(start.v[2])]
    for _ in at:
        closed.append(eta * np.sqrt(closed[-1] ** 2 + c))
    after = after_impacts(whole, motion, at)
    impacts = {"time": instants, "closed": np.array(closed[1:]), "first": closed[0]}
    fixed = eta * np.sqrt(c / (1 - eta**2))
    headings = ("quantity", "simulated", "closed form", "difference")
    pairs = {
        "rate of the periodic motion after impacts, rad/s": (rate, fixed),
        "eigenvalue": (slope, eta**2),
        "rate after the last impact of the motion, rad/s": (after[-1], closed[-1]),
    }
    rows = [(name, f"{x:.12f}", f"{y:.12f}", f"{abs(x - y):.0e}") for name, (x, y) in pairs.items()]
    off = np.max(np.abs(after - closed[1:]))
    stepped = np.max(np.abs(np.asarray(touched.state.q - motion.state.q)))
    sentences = [
        f"The periodic motion has a period of {period:.10f} s.",
        f"The rates after {len(at)} located impacts agree with the closed form to {off:.0e} rad/s.",
        f"Time stepping with contacts deviates from this motion by {stepped:.2g} m or rad in"
        f" {config.duration:g} s.",
    ]
    figure = draw(whole, motion.state, touched.state, time, impacts, np.asarray(rates), np.asarray(images))
    conclude(asked, headings, rows, sentences, {"rimless_wheel": figure})
    return 0


if __name__ == "__main__":
    sys.exit(main())

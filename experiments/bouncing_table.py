"""A ball on an oscillating table: how accurate are the orbit of period one, its multipliers, and lift-off?

The table is at A sin(omega t). On the orbit of period one, T = 2 pi / omega, the ball leaves the table with
the velocity g T / 2 at the phase phi with

    cos(phi) = (1 - e) / (1 + e) g T / (2 A omega),

and its state returns after T. A disturbance of height and velocity passes the impact by [[-e, 0], [c, -e]],
with

    c = (1 + e) (g - A omega^2 sin(phi)) / w,        w = g T / 2 + A omega cos(phi),

and flight by [[1, T], [0, 1]], so the derivative of this map has the determinant e^2 and the trace T c - 2 e.
A ball that lands with e = 0 rides on the table and leaves it at sin(omega t) = g / (A omega^2).

    python experiments/bouncing_table.py [CONFIG] [--set PATH=VALUE ...] [--out DIR]

References:
    P. J. Holmes, "The dynamics of repeated impacts with a sinusoidally vibrating table", J. Sound Vib. 84
    (1982).
"""

import math
import sys
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pydantic

import jaxdae
from jaxdae import contact
from jaxdae.app import conclude, line_style, precision, script, styled

CONFIG = "configs/bouncing_table.yaml"
BALL = 1  # the index of the height of the ball in q and v


class Settings(pydantic.BaseModel, extra="forbid", strict=True):
    """The section `experiment` of the config."""

    steps_per_period: list[pydantic.PositiveInt] = pydantic.Field(min_length=1)
    periods: pydantic.PositiveInt


class Orbit:
    """The orbit of period one in closed form.

    Args:
        amplitude: A in m.
        omega: in rad/s.
        restitution: e.
        gravity: g in m/s^2.
    """

    def __init__(self, amplitude: float, omega: float, restitution: float, gravity: float):
        """Find the phase of the impacts."""
        self.period, self.gravity = 2.0 * math.pi / omega, gravity
        ratio = (1.0 - restitution) / (1.0 + restitution) * gravity * self.period / (2.0 * amplitude * omega)
        phase = math.acos(ratio)
        self.impact, self.height = phase / omega, amplitude * math.sin(phase)
        approach = gravity * self.period / 2.0 + amplitude * omega * ratio
        curved = (1.0 + restitution) * (gravity - omega**2 * self.height) / approach
        self.trace, self.determinant = self.period * curved - 2.0 * restitution, restitution**2

    def at(self, time: Any) -> Any:
        """Return the height of the ball in m."""
        flown = np.mod(time - self.impact, self.period)
        return self.height + self.gravity * flown * (self.period - flown) / 2.0


def simulate(system: Any, method: Any, start: Any, dt: Any, steps: int) -> Any:
    """Return the trajectory of ball and table."""
    return jaxdae.rollout(system, method, start, dt=dt, steps=steps)


def multipliers(system: Any, method: Any, start: Any, period: float, steps: int) -> Any:
    """Return the derivative (2, 2) of (height, velocity) of the ball after a period by the start values."""

    def after(ball: Any) -> Any:
        q, v = start.q.at[BALL].set(ball[0]), start.v.at[BALL].set(ball[1])
        end = simulate(system, method, jaxdae.State(start.t, q, v), period / steps, steps).state
        return jnp.stack([end.q[-1, BALL], end.v[-1, BALL]])

    return jax.jit(jax.jacfwd(after))(jnp.stack([start.q[BALL], start.v[BALL]]))


def main() -> int:
    """Run the experiment and return its exit code."""
    asked = script(CONFIG, __doc__)
    config = asked.config
    settings = jaxdae.app.settings(asked, Settings)
    if settings is None:
        return 2
    mechanism: Any = config.mechanism
    motion, pair = mechanism.joints[1].motion, mechanism.contacts[0]
    omega, gravity = 2.0 * math.pi * motion.frequency_hz, -mechanism.gravity[1]
    orbit = Orbit(motion.amplitude, omega, pair.restitution, gravity)
    finest = max(settings.steps_per_period)
    with precision(config):
        system, method, start = asked.worlds.one()
        # All rollouts have the same number of steps, so that they share one compiled program.
        steps = finest * settings.periods
        plans = {n: orbit.period / n for n in settings.steps_per_period}
        found = {n: simulate(system, method, start, dt, steps) for n, dt in plans.items()}
        rigid = jaxdae.tree.set_leaf(system, "contacts.table.restitution", 0.0)
        ride = simulate(rigid, method, start, 2.0 * orbit.period / steps, steps)
        jacobian = np.asarray(multipliers(system, method, start, orbit.period, finest))
        force = np.asarray(contact.ContactForce.named(system, "table")(ride.info)[:, 0, 0])
    failed = max(int(np.max(x.info.status)) for x in (*found.values(), ride))
    rows = []
    for n, x in found.items():
        count = n * settings.periods
        time, height = np.asarray(x.state.t)[:count], np.asarray(x.state.q)[:count, BALL]
        off = np.abs(height - orbit.at(time))
        rows.append((f"{n}", f"{off.max():.2e}"))
    time = np.asarray(ride.state.t)
    # A step of an impact has a force, too, but not the step before it.
    presses = force > 1e-6 * gravity
    leaves = time[2:][presses[:-2] & presses[1:-1] & ~presses[2:]]
    expected = math.asin(gravity / (motion.amplitude * omega**2)) / omega
    sentences = [
        f"The derivative of the return map has the determinant {np.linalg.det(jacobian):.8f} and the "
        f"trace {np.trace(jacobian):.8f}; exact: {orbit.determinant:g} and {orbit.trace:.8f}.",
        f"Without restitution, the ball leaves the table at {', '.join(f'{t:.4f}' for t in leaves)} s; "
        f"exact: {expected:.4f} s plus periods of {orbit.period:.4f} s; steps of {time[1] - time[0]:.4f} s.",
        f"Status: {jaxdae.Status(failed).name}.",
    ]
    with styled() as figure_class:
        figure = figure_class(figsize=(9, 6), layout="constrained")
        upper, lower = figure.subplots(2, 1)
        coarse = found[min(found)]
        shown = np.asarray(coarse.state.t)
        for axes, x, name in (
            (upper, coarse, f"e = {pair.restitution:g}, {min(found)} steps per period"),
            (lower, ride, f"e = 0, {steps // 2} steps per period"),
        ):
            at = np.asarray(x.state.t)
            axes.plot(at, 1e3 * np.asarray(x.state.q)[:, BALL], label="ball", **line_style(0))
            axes.plot(at, 1e3 * motion.amplitude * np.sin(omega * at), label="table", **line_style(1))
            axes.set(xlabel="time in s", ylabel="height in mm", title=f"{config.name}: {name}")
        upper.plot(shown[::10], 1e3 * orbit.at(shown[::10]), ".", color="black", label="closed form")
        for k, t in enumerate(np.arange(expected, time[-1], orbit.period)):
            lower.axvline(t, color="gray", linestyle=":", label="" if k else "lift-off, closed form")
        for axes in (upper, lower):
            axes.legend(loc="center left", bbox_to_anchor=(1.01, 0.5))
    headings = ("steps per period", "error of the height, m")
    conclude(asked, headings, rows, sentences, {"bouncing_table": figure})
    return 0 if failed == jaxdae.Status.OK else 1


if __name__ == "__main__":
    sys.exit(main())

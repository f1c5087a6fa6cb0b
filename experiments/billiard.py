"""Billiard shots with side spin, follow and draw: paths, transitions to rolling, and derivatives.

A ball of radius r slides with the velocity u of its contact point, and friction mu:

    u = v + omega x (0, 0, -r) = (v_x - r omega_y, v_y + r omega_x).

Friction is -mu m g u / |u|, and its moment turns the ball, so u keeps its direction, and |u| decreases at the
rate 7 mu g / 2. The path is a parabola until the ball rolls after the time 2 |u| / (7 mu g). Its velocity is
then v - 2 u / 7, without spin 5 v / 7. A cushion without friction reverses one velocity and multiplies it by
its restitution. The spin does not change, so the ball slides again.

All shots are one batch (`jax.vmap`). The derivative of the position by the initial spin follows in reverse
mode through slip, rolling and cushions. Until the first cushion, path and derivative agree with the closed
form. A cushion starts new slip on the cloth. `Touching` resolves the impact at the end of its step, so friction
acts for the whole step and does not change the velocity of rebound. The velocity then has an error of at most
mu g times the step. It depends on the time of the impact within the step, so the error of the derivative does
not become smaller with the step.

    python experiments/billiard.py [CONFIG] [--set PATH=VALUE ...] [--out DIR]

References:
    G. Coriolis, "Theorie mathematique des effets du jeu de billard" (1835).
"""

import math
import sys
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pydantic

import jaxdae
from jaxdae.app import conclude, line_style, precision, script, styled

CONFIG = "configs/billiard.yaml"
ROLLS = 1e-3  # m/s, slip of a ball that rolls; discretization errors are smaller


class Settings(pydantic.BaseModel, extra="forbid", strict=True):
    """The section `experiment` of the config."""

    spins: list[list[float]] = pydantic.Field(min_length=1)
    steps: list[pydantic.PositiveInt] = pydantic.Field(min_length=1)
    before: pydantic.PositiveFloat


class Table(NamedTuple):
    """Radius in m, friction, g in m/s^2, x and y of the center at a cushion in m, and restitution."""

    radius: float
    friction: float
    gravity: float
    x: float
    y: float
    restitution: float

    @classmethod
    def of(cls, mechanism: Any) -> "Table":
        """Return the numbers of the mechanism of the config."""
        pairs = {pair.name: pair for pair in mechanism.contacts}
        radius = pairs["cloth"].shape_b.radius
        return cls(
            radius,
            pairs["cloth"].friction,
            -mechanism.gravity[2],
            pairs["right"].shape_a.at[0] - radius,
            pairs["upper"].shape_a.at[1] - radius,
            pairs["right"].restitution,
        )

    def shot(self, place: Any, velocity: Any, spin: Any, times: Any) -> tuple[np.ndarray, list[Any]]:
        """Return positions (times, 2) in m, and transitions to rolling as (time, velocity), in closed form.

        Args:
            place: x and y of the center in m.
            velocity: of the center in m/s (2,).
            spin: about x and y in rad/s (2,).
            times: increasing times in s (times,).
        """
        p, v, w = (np.array(x, float) for x in (place, velocity, spin))
        now, found, rolls = 0.0, np.zeros((len(times), 2)), []
        while True:
            slip = v + self.radius * np.array([-w[1], w[0]])
            size = math.hypot(*slip)
            lasts = 2.0 * size / (7.0 * self.friction * self.gravity)
            a = -self.friction * self.gravity * slip / size if lasts > 1e-12 else np.zeros(2)
            wall, axis = min((_reaches(p[k], v[k], a[k], (self.x, self.y)[k]), k) for k in (0, 1))
            slides = lasts > 1e-12
            ends = min(wall, lasts if slides else math.inf)
            inside = (times >= now) & (times <= now + ends)
            s = (times[inside] - now)[:, None]
            found[inside] = p + v * s + a * s**2 / 2.0
            if now + ends > times[-1]:
                return found, rolls
            p, v, now = p + v * ends + a * ends**2 / 2.0, v + a * ends, now + ends
            w = w + 2.5 / self.radius * ends * np.array([a[1], -a[0]])
            if ends == wall:
                v[axis] *= -self.restitution
            else:
                # Rolling, without round-off.
                w = np.array([-v[1], v[0]]) / self.radius
                rolls.append((now, v.copy()))


def _reaches(p: float, v: float, a: float, wall: float) -> float:
    """Return the first positive time at which p + v s + a s^2 / 2 reaches -wall or wall on its way out."""
    times = []
    for side in (-wall, wall):
        for root in np.roots([a / 2.0, v, p - side]) if a else ([(side - p) / v] if v else []):
            outward = np.sign(side) * (v + a * np.real(root)) > 0.0
            if abs(np.imag(root)) < 1e-12 and np.real(root) > 1e-12 and outward:
                times.append(float(np.real(root)))
    return min(times, default=math.inf)


def simulate(system: Any, method: Any, start: Any, spin: Any, dt: Any, steps: int) -> Any:
    """Return the trajectory of a shot with a spin (3,) in rad/s about the axes of the world."""
    first = jaxdae.State(start.t, start.q, start.v.at[3:].set(spin))
    return jaxdae.rollout(system, method, first, dt=dt, steps=steps)


def slips(table: Table, state: Any) -> np.ndarray:
    """Return the slip speeds (worlds, time) in m/s of states; their spin is in the axes of the ball."""
    rotate = jax.vmap(jax.vmap(jaxdae.rotation.quat_rotate))
    spin, v = rotate(state.q[..., 3:7], state.v[..., 3:6]), state.v
    return np.hypot(v[..., 0] - table.radius * spin[..., 1], v[..., 1] + table.radius * spin[..., 0])


def rolling_since(table: Table, slip: Any, dt: float) -> float:
    """Return the time of the first transition to rolling in s, from the slip of the last sliding step.

    Args:
        table: the table.
        slip: slip speeds (time,) in m/s.
        dt: the step in s.
    """
    slides = int(np.flatnonzero(slip < ROLLS)[0]) - 1
    return (slides + 1) * dt + slip[slides] / (3.5 * table.friction * table.gravity)


def draw(table: Table, paths: np.ndarray, exact: Any, spins: Any, errors: Any) -> Any:
    """Return the figure: paths on the table, and the error against the step."""
    with styled() as figure_class:
        figure = figure_class(figsize=(12, 4.6), layout="constrained")
        top, order = figure.subplots(1, 2, width_ratios=[2.2, 1])
        for k, (path, form) in enumerate(zip(paths, exact, strict=True)):
            name = ", ".join(f"{x:g}" for x in spins[k])
            top.plot(path[:, 0], path[:, 1], label=name, **line_style(k))
            top.plot(form[::20, 0], form[::20, 1], ".", markersize=4, color=line_style(k)["color"])
        edge = np.array([[-1, -1], [1, -1], [1, 1], [-1, 1], [-1, -1]]) * (table.x, table.y)
        top.plot(edge[:, 0], edge[:, 1], color="black", linewidth=0.8)
        top.set(
            xlabel="x in m", ylabel="y in m", aspect="equal", title="paths of the center; dots: closed form"
        )
        top.legend(title="spin in rad/s", loc="lower left", fontsize=8)
        steps = [1e3 * dt for dt, *_ in errors]
        for k, name in ((1, "before the cushions"), (2, "all")):
            most = [x[k].max() for x in errors]
            order.semilogy(steps, most, "o-", label=name, color=line_style(k)["color"])
        order.set(xlabel="step in ms", ylabel="largest error in m", title="position")
        order.legend()
        return figure


def main() -> int:
    """Run the experiment and return its exit code."""
    asked = script(CONFIG, __doc__)
    config, settings = asked.config, jaxdae.app.settings(asked, Settings)
    if settings is None:
        return 2
    table, most = Table.of(config.mechanism), max(settings.steps)
    with precision(config):
        system, method, start = asked.worlds.one()
        spins = jnp.asarray(settings.spins)

        # All rollouts have the same number of steps, so that they share one compiled program.
        @jax.jit
        def play(spins: Any, dt: Any) -> Any:
            return jax.vmap(lambda spin: simulate(system, method, start, spin, dt, most))(spins)

        dt = config.duration / most
        at = (round(settings.before / dt) - 1, most - 1)

        @jax.jit
        def derivative(spin: Any) -> Any:
            """Return the derivatives (2, 3) of x, before the cushions and at the end, in reverse mode."""

            def places(spin: Any) -> Any:
                return simulate(system, method, start, spin, dt, most).state.q[jnp.asarray(at), 0]

            return jax.jacrev(places)(spin)

        played = {n: play(spins, jnp.asarray(config.duration / n)) for n in settings.steps}
        slopes = np.stack([np.asarray(derivative(spin))[:, 1] for spin in spins])
        eps = 1e-4
        ends = [
            np.asarray(play(spins + x * jnp.eye(3)[1], jnp.asarray(dt)).state.q)[:, at, 0]
            for x in (eps, -eps)
        ]
        slip = slips(table, played[most].state)
    differences = (ends[0] - ends[1]) / (2.0 * eps)
    place, velocity = np.asarray(start.q)[:2], np.asarray(start.v)[:2]
    errors, exact = [], []
    for n, found in played.items():
        times = config.duration / n * np.arange(1, n + 1)
        exact = [table.shot(place, velocity, spin[:2], times) for spin in settings.spins]
        q = np.asarray(found.state.q)[:, :n, :2]
        off = np.stack([np.linalg.norm(q[k] - form, axis=1) for k, (form, _) in enumerate(exact)])
        errors.append((config.duration / n, off[:, times <= settings.before].max(axis=1), off.max(axis=1)))
    times, turn = dt * np.arange(1, most + 1), np.array([0.0, eps])
    rows, closed = [], []
    for k, spin in enumerate(settings.spins):
        after, before = (
            table.shot(place, velocity, np.array(spin[:2]) + x, times)[0][at, 0] for x in (turn, -turn)
        )
        closed.append((after - before) / (2.0 * eps))
        time = exact[k][1][0][0]
        rows.append(
            (
                ", ".join(f"{x:g}" for x in spin),
                f"{time:.6f}",
                f"{abs(rolling_since(table, slip[k], dt) - time):.0e}",
                f"{errors[-1][1][k]:.0e}",
                f"{errors[-1][2][k]:.0e}",
                f"{1e3 * closed[k][0]:.4f} ({1e3 * abs(slopes[k, 0] - closed[k][0]):.0e})",
                f"{1e3 * closed[k][1]:.4f} ({1e3 * abs(slopes[k, 1] - closed[k][1]):.0e})",
            )
        )
    status = max(int(np.asarray(x.info.status).max()) for x in played.values())
    until = (f"until {settings.before:g} s", f"until {config.duration:g} s")
    headings = (
        "spin, rad/s",
        "rolls after, s",
        "error, s",
        f"path error {until[0]}, m",
        f"{until[1]}, m",
        f"dx/domega_y (error) {until[0]}, mm s",
        f"{until[1]}, mm s",
    )
    sentences = [
        f"With steps of {1e3 * errors[0][0]:g} to {1e3 * errors[-1][0]:g} ms, the largest path error"
        f" {until[0]} is {', '.join(f'{off.max():.1e}' for _, off, _ in errors)} m, and {until[1]}"
        f" {', '.join(f'{off.max():.1e}' for _, _, off in errors)} m.",
        "The derivatives in reverse mode agree with central differences of the simulation to a relative"
        f" {np.abs(slopes / differences - 1.0).max():.0e}.",
        f"Status: {jaxdae.Status(status).name}.",
    ]
    paths = np.concatenate(
        [np.broadcast_to(place, (len(spins), 1, 2)), np.asarray(played[most].state.q)[:, :, :2]], axis=1
    )
    figure = draw(table, paths, [form for form, _ in exact], settings.spins, errors)
    conclude(asked, headings, rows, sentences, {"billiard": figure})
    return 0 if status == jaxdae.Status.OK else 1


if __name__ == "__main__":
    sys.exit(main())

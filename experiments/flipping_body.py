"""A body spun about its middle axis flips repeatedly: what do integrators conserve over many steps?

Nothing acts on it: its energy and its angular momentum in the world stay as they are, and the time between
two flips follows from elliptic integrals. Near the unstable rotation errors grow a thousandfold within two
seconds, so that after many flips nobody knows the instant of the next one; energy and momentum are what a
method can be held to.

    python experiments/flipping_body.py [CONFIG] [--set PATH=VALUE ...] [--out DIR]
"""

import math
import sys
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pydantic

import jaxdae
from jaxdae.app import conclude, line_style, precision, script, skeleton, styled, write_animation

CONFIG = "configs/flipping_body.yaml"
METHODS = {
    "rkmk4": jaxdae.RungeKutta.rk4(),
    "rattle": jaxdae.Rattle(),
    "implicit_midpoint": jaxdae.ImplicitMidpoint(),
    "kahan_li8": jaxdae.Composition.kahan_li8(jaxdae.Rattle(iterations=12)),
}


class Settings(pydantic.BaseModel, extra="forbid", strict=True):
    """The section `experiment` of the config."""

    methods: list[str] = pydantic.Field(min_length=1)
    steps: pydantic.PositiveInt
    save_every: pydantic.PositiveInt

    @pydantic.field_validator("methods")
    @classmethod
    def _known(cls, names: list[str]) -> list[str]:
        unknown = [name for name in names if name not in METHODS]
        if unknown:
            raise ValueError(f"got {', '.join(unknown)}, expected some of {', '.join(METHODS)}")
        return names

    @pydantic.model_validator(mode="after")
    def _whole(self) -> "Settings":
        if self.steps % self.save_every:
            raise ValueError("save_every must divide steps")
        return self


class Result(NamedTuple):
    """One simulation, an entry for each saved state.

    `momentum` and `energy` are their changes relative to the start, `omega` (time, 3) in the axes of the body
    in rad/s.
    """

    time: np.ndarray
    momentum: np.ndarray
    energy: np.ndarray
    omega: np.ndarray
    poses: np.ndarray
    status: int


def simulate(system: Any, start: Any, method: Any, dt: float, steps: int, save_every: int) -> Result:
    """Return what a method makes of the body."""
    trajectory = jaxdae.rollout(system, method, start, dt=dt, steps=steps, save_every=save_every)

    def momentum(state: Any) -> Any:
        turning = (
            system.inertia[0] @ state.v[3:6] if system.inertia.ndim == 3 else system.inertia[0] * state.v[3:6]
        )
        return jaxdae.rotation.quat_rotate(state.q[3:7], turning)

    states = trajectory.state
    first, energy = momentum(start), jaxdae.energy(system, start)
    changed = jnp.linalg.norm(jax.vmap(momentum)(states) - first, axis=1) / jnp.linalg.norm(first)
    lost = jnp.abs(jax.vmap(lambda x: jaxdae.energy(system, x))(states) / energy - 1.0)
    time = dt * save_every * np.arange(1, steps // save_every + 1)
    numbers = changed, lost, states.v[:, 3:6], states.q.reshape(len(time), 1, 7)
    return Result(time, *(np.asarray(x) for x in numbers), int(trajectory.info.status.max()))


def time_between_flips(moments: Any, omega: Any) -> float:
    """Return the time between flips in s, for principal moments a < b < c and a start at omega (3,) in rad/s.

    It is half the period of the middle rate, 2 K(m) / p with Jacobi's modulus m of the polhode, K by the
    arithmetic-geometric mean.
    """
    a, b, c = (float(x) for x in moments)
    energy2, momentum2 = (float(np.sum(np.asarray(moments) ** k * np.asarray(omega) ** 2)) for k in (1, 2))
    if momentum2 < b * energy2:
        # About the axis of the smallest moment: the roles of the outer axes change.
        a, c = c, a
    rate = math.sqrt((c - b) * (momentum2 - a * energy2) / (a * b * c))
    m = (b - a) * (c * energy2 - momentum2) / ((c - b) * (momentum2 - a * energy2))
    x, y = 1.0, math.sqrt(1.0 - m)
    while abs(x - y) > 1e-15:
        x, y = (x + y) / 2.0, math.sqrt(x * y)
    return 2.0 * (math.pi / (2.0 * x)) / rate


def flips(result: Result) -> np.ndarray:
    """Return when the middle rate changes its sign, in s, by lines between the saved states."""
    middle = result.omega[:, 1]
    k = np.flatnonzero(middle[1:] * middle[:-1] < 0.0)
    return result.time[k] + (result.time[k + 1] - result.time[k]) * middle[k] / (middle[k] - middle[k + 1])


def main() -> int:
    """Run the experiment and return its exit code."""
    asked = script(CONFIG, __doc__)
    config = asked.config
    settings = jaxdae.app.settings(asked, Settings)
    if settings is None:
        return 2
    with precision(config):
        system, _, start = asked.worlds.one()
        plan = config.dt, settings.steps, settings.save_every
        found = {name: simulate(system, start, METHODS[name], *plan) for name in settings.methods}
    between = time_between_flips(system.inertia[0], start.v[3:6])
    headings = ("method", "momentum, relative", "energy, relative", "flips", "first interval, s", "status")
    rows, sentences = [], [f"By elliptic integrals it flips every {between:.6f} s."]
    for name, x in found.items():
        at = flips(x)
        first = f"{at[1] - at[0]:.6f}" if len(at) > 1 else ""
        rows.append(
            (
                name,
                f"{x.momentum.max():.2e}",
                f"{x.energy.max():.2e}",
                f"{len(at)}",
                first,
                jaxdae.Status(x.status).name,
            )
        )
    kept = min(found, key=lambda name: found[name].momentum.max())
    steps = f"{settings.steps} steps of {config.dt:g} s"
    best, lost = found[kept].momentum.max(), found[kept].energy.max()
    sentences.append(
        f"Of its angular momentum {kept} changes {best:.2g} in {steps}, and {lost:.2g} of its energy."
    )
    with styled() as figure_class:
        figure = figure_class(figsize=(9, 7), layout="constrained")
        rates, momentum, energy = figure.subplots(3, 1)
        some = next(iter(found.values()))
        shown = some.time <= 4.0 * between
        for k, axis in enumerate("xyz"):
            rates.plot(some.time[shown], some.omega[shown, k], label=f"omega_body {axis}", **line_style(k))
        rates.set(
            ylabel="rad/s", xlabel="time in s", title=f"{config.name}: the first flips, {next(iter(found))}"
        )
        rates.legend(loc="center left", bbox_to_anchor=(1.01, 0.5))
        for index, (name, x) in enumerate(found.items()):
            momentum.plot(
                x.time, np.maximum(x.momentum, 1e-17), label=name, linewidth=0.9, **line_style(index)
            )
            energy.plot(x.time, np.maximum(x.energy, 1e-17), label=name, linewidth=0.9, **line_style(index))
        momentum.set(yscale="log", ylabel="angular momentum,\nrelative change", title=steps)
        energy.set(yscale="log", ylabel="energy,\nrelative change", xlabel="time in s")
        momentum.legend(loc="center left", bbox_to_anchor=(1.01, 0.5))
    film = some.time <= 2.0 * between
    mechanism: Any = config.mechanism
    lines = skeleton(mechanism, some.poses[film])
    conclude(
        asked,
        headings,
        rows,
        sentences,
        {"flipping_body": figure},
        lambda folder: write_animation(
            folder / "flipping_body.gif", some.time[film], lines, title=config.name, frames=150
        ),
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())

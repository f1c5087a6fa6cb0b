"""Drift control with an integral: what does it add to proportional and derivative feedback?

The notes' drift control adds PID pseudo-forces to the row of accelerations,

    g'' = -p g - d g' - i I,        I' = g.

An integrator's errors act on that equation like an acceleration. Where the error is nearly constant, as for
explicit Euler steps along a circle, which leave it outward in every step by about (h v)^2 / 2, proportional
feedback settles where p g is as large: the rod stays open by an offset that is proportional to the step. The
integral takes it away, as in any loop of control, whatever the step. Stable is s^3 + d s^2 + p s + i for i <
d p.

The feedback has a memory, so it is an integrator: one of one's own, in thirty lines, around any other.

    python experiments/integral_drift.py [CONFIG] [--set PATH=VALUE ...] [--out DIR]

References: A. Kelly, "Mobile Robotics", section 3.4.4.2 (drift control).
"""

import dataclasses
import sys
from typing import Any

import jax.numpy as jnp
import numpy as np

import jaxdae
from jaxdae.app import conclude, line_style, precision, script, styled

CONFIG = "configs/integral_drift.yaml"


@jaxdae.tree.pytree
class Feedback:
    """The acceleration row r = -gamma - d [g'; w] - p [g; 0] - i I.

    Attributes:
        p: in 1/s^2.
        d: in 1/s.
        i: in 1/s^3.
        integral: I (nc,), in row units times s.
    """

    p: Any
    d: Any
    i: Any
    integral: Any

    def target(self, at: Any, linearization: Any) -> Any:
        """Return r (nc,)."""
        g, velocity = at.position, at.velocity
        g = jnp.pad(g, (0, velocity.shape[0] - g.shape[0]))
        return -at.bias - self.d * velocity - self.p * g - self.i * self.integral


@jaxdae.tree.pytree
class WithIntegral:
    """An integrator with PID feedback of the constraints around another; the integral is its memory.

    Attributes:
        integrator: a method with a field `stabilization`.
        p: in 1/s^2.
        d: in 1/s.
        i: in 1/s^3.
    """

    integrator: Any
    p: Any
    d: Any
    i: Any

    def _inside(self, integral: Any) -> Any:
        return dataclasses.replace(self.integrator, stabilization=Feedback(self.p, self.d, self.i, integral))

    def _g(self, system: Any, state: jaxdae.State) -> Any:
        w = system.velocity_constraint(state.t, state.q, state.v)
        return jnp.concatenate([system.constraint(state.t, state.q), jnp.zeros_like(w)])

    def init(self, system: Any, state: jaxdae.State) -> Any:
        """Return the memory: the integral, zero, and that of the method."""
        integral = jnp.zeros_like(self._g(system, state))
        return integral, self._inside(integral).init(system, state)

    def step(self, system: Any, state: jaxdae.State, memory: Any, u: Any, dt: Any) -> Any:
        """Return the state after dt, the memory, and what the step found out."""
        integral, inner = memory
        new, inner, info = self._inside(integral).step(system, state, inner, u, dt)
        return new, (integral + dt * self._g(system, state), inner), info


def opening(
    system: Any, start: jaxdae.State, gains: tuple[float, float, float], dt: float, steps: int
) -> np.ndarray:
    """Return g (steps,) of the rod, in its row unit."""
    method = WithIntegral(jaxdae.ExplicitEuler(), *map(jnp.asarray, gains))
    found = jaxdae.rollout(system, method, start, dt=dt, steps=steps)
    jaxdae.raise_if_failed(found)
    return np.hypot(*np.asarray(found.state.q)[:, :2].T) - 1.0


def main() -> int:
    """Run the experiment and return its exit code."""
    asked = script(CONFIG, __doc__)
    config, given = asked.config, asked.config.experiment
    gain = given["gain"]
    found = {}
    with precision(config):
        system, _, start = asked.worlds.one()
        for part in given["integrals"]:
            for dt in given["steps"]:
                gains = (gain**2, 2.0 * gain, part * gain**3)
                found[part, dt] = opening(system, start, gains, dt, round(config.duration / dt))
    headings = (
        "integral, of gain^3",
        *(f"open at the end, h = {dt:g} s, m" for dt in given["steps"]),
        "largest, m",
    )
    rows = [
        (
            f"{part:g}",
            *(f"{found[part, dt][-1]:.2e}" for dt in given["steps"]),
            f"{np.max(np.abs(found[part, given['steps'][0]])):.2e}",
        )
        for part in given["integrals"]
    ]
    without = [found[0.0, dt][-1] for dt in given["steps"]] if 0.0 in given["integrals"] else [np.nan]
    order = np.log(without[0] / without[-1]) / np.log(given["steps"][0] / given["steps"][-1])
    best = min(given["integrals"][1:], key=lambda part: abs(found[part, given["steps"][0]][-1]))
    sentences = [
        f"Without the integral the rod stays open by {without[0]:.2e} m at a step of {given['steps'][0]:g}"
        f" s, in proportion to the step to the power {order:.2f}.",
        f"With an integral of {best:g} gain^3 it is open by {abs(found[best, given['steps'][0]][-1]):.1e}"
        " m in the end, with a largest opening of"
        f" {np.max(np.abs(found[best, given['steps'][0]])):.1e} m.",
    ]
    with styled() as figure_class:
        figure = figure_class(figsize=(8, 4), layout="constrained")
        axes = figure.subplots()
        for index, part in enumerate(given["integrals"]):
            for line, dt in zip(("-", "--", ":"), given["steps"], strict=False):
                time = dt * np.arange(1, len(found[part, dt]) + 1)
                label = f"i = {part:g} p$^{{3/2}}$" if line == "-" else None
                axes.plot(
                    time, 1e3 * found[part, dt], color=line_style(index)["color"], linestyle=line, label=label
                )
        for line, dt in zip(("-", "--", ":"), given["steps"], strict=False):
            axes.plot([], [], color="black", linestyle=line, label=f"h = {dt:g} s")
        axes.set(
            xlabel="time in s",
            ylabel="opening of the rod in mm",
            title=f"explicit Euler, p = {gain**2:g}/s$^2$, d = {2 * gain:g}/s",
        )
        axes.legend(
            ncols=2, loc="center right", bbox_to_anchor=(1.0, 0.72)
        )  # between the lines without an integral
    conclude(asked, headings, rows, sentences, {"integral_drift": figure})
    return 0


if __name__ == "__main__":
    sys.exit(main())

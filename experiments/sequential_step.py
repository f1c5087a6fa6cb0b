"""Does root-finding undo the step of the sequential approach, and how far does the system move?

The lecture asks this about a first-order system x' = f(x) with a constraint c(x) = 0. The example is a point on
the unit circle in a wind of speed w along x, at an angle phi from x:

    phi' = -w sin(phi)

With s = w h, one step h moves the point by an angle of

* exact: -s sin(phi) (1 - s cos(phi) / 2) + O(s^3);
* sequential step: root-finding moves the estimate x + f h along the radius, so that tan(phi + move) =
  sin(phi) / (cos(phi) + s), and move = -s sin(phi) (1 - s cos(phi)) + O(s^3);
* projected step: the step ends on the tangent, and tan(move) = -s sin(phi): move = -s sin(phi) + O(s^3). The point
  leaves the circle by s^2 sin(phi)^2 / 2 + O(s^4);
* projected derivative: the order of the Runge-Kutta method that integrates it, here four.

Root-finding does not undo the step: the correction along the radius leaves the movement along the circle to first order.
But the sequential step is short by the fraction s cos(phi) / 2 of the exact movement where the wind blows outward,
and long by this fraction where it blows inward. The error of the projected step has the same size and the opposite
sign.

    python experiments/sequential_step.py [CONFIG] [--set PATH=VALUE ...] [--out DIR]

References: A. Kelly, "Mobile Robotics", Cambridge (2013), sections 3.4.1.3 and 3.4.1.4.
"""

import sys
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jaxdae
from jaxdae.app import conclude, line_style, precision, script, styled

CONFIG = "configs/sequential_step.yaml"
EULER = jaxdae.Kinematic.euler(projected=False)
METHODS = {
    "sequential step": jaxdae.textbook.Sequential(EULER),
    "projected step": jaxdae.textbook.ProjectedStep(EULER),
    "projected derivative, RK4": jaxdae.Kinematic.rk4(),
}


@jaxdae.tree.pytree
class Wind(jaxdae.KinematicSystem):
    """A point on the unit circle in a wind along x.

    Attributes:
        speed: () in m/s.
    """

    speed: Any

    def rate(self, t, q, u):
        """Return the velocity (2,) of the wind in m/s."""
        return jnp.stack([self.speed, jnp.zeros_like(self.speed)])

    def constraint(self, t, q):
        """Return c (1,) in m^2."""
        return (q @ q - 1.0)[None]


def on_circle(angle: Any) -> Any:
    """Return the point (2,) in m at an angle in rad from x."""
    return jnp.stack([jnp.cos(angle), jnp.sin(angle)])


def exact_angle(wind: Any, angle: Any, time: Any) -> Any:
    """Return phi (rad) after a time in s: tan(phi / 2) decays with exp(-w t)."""
    return 2.0 * np.arctan(np.tan(angle / 2.0) * np.exp(-wind * time))


def one_step(wind: float, angle: float, steps: Any) -> dict[str, np.ndarray]:
    """Return the ends (n, 2) in m of one step of n lengths (n,) in s per method, from an angle in rad."""
    system = Wind(jnp.asarray(wind))
    q = on_circle(jnp.asarray(angle))
    start = jaxdae.State(jnp.zeros(()), q, jnp.zeros(2))

    def ends(method: Any) -> np.ndarray:
        def end(dt: Any) -> Any:
            return method.step(system, start, method.init(system, start), None, dt)[0].q

        return np.asarray(jax.jit(jax.vmap(end))(steps))

    return {name: ends(method) for name, method in METHODS.items()}


def measured(
    wind: float, angle: float, steps: np.ndarray, ends: dict[str, np.ndarray]
) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Return the movement along the circle relative to the exact one, minus 1, and the distance in m, all (n,)."""
    exact = exact_angle(wind, angle, steps) - angle
    return {
        name: ((np.arctan2(q[:, 1], q[:, 0]) - angle) / exact - 1.0, np.abs(np.hypot(*q.T) - 1.0))
        for name, q in ends.items()
    }


def draw_steps(axes: Any, wind: float, step: float, angles: Any, ends: dict[str, list[np.ndarray]]) -> None:
    """Draw the circle, the free step from each start, and where each method ends."""
    turn = np.linspace(0.0, np.pi, 200)
    axes.plot(np.cos(turn), np.sin(turn), color="black", linewidth=1.0)
    for k, angle in enumerate(angles):
        x, y = np.cos(angle), np.sin(angle)
        axes.annotate("", (x + wind * step, y), (x, y), arrowprops={"arrowstyle": "->", "color": "gray"})
        axes.plot(x, y, "o", color="black", label="start" if k == 0 else None)
        phi = exact_angle(wind, angle, step)
        axes.plot(np.cos(phi), np.sin(phi), "k*", markersize=11, label="exact" if k == 0 else None)
        for index, (name, marker) in enumerate(zip(METHODS, "s^x", strict=True)):
            axes.plot(
                *ends[name][k],
                marker,
                color=line_style(index)["color"],
                markerfacecolor="none",
                label=name if k == 0 else None,
            )
    axes.set(
        aspect="equal",
        xlim=(-0.75, 1.25),
        ylim=(0.25, 1.3),
        xlabel="x in m",
        ylabel="y in m",
        title=f"one step of {step:g} s",
    )
    axes.legend(fontsize=8, loc="lower center")


def main() -> int:
    """Run the experiment and return its exit code."""
    asked = script(CONFIG, __doc__)
    config, given = asked.config, asked.config.experiment
    wind, angles, step = given["wind"], given["angles"], given["step"]
    steps = step * 0.5 ** np.arange(given["halvings"] + 1)
    with precision(config):
        ends = [one_step(wind, angle, jnp.asarray(steps)) for angle in angles]
    found = [measured(wind, angle, steps, end) for angle, end in zip(angles, ends, strict=True)]
    headings = ("start, rad", "method", "movement / exact", "halved", "order", "from the circle, m")
    rows = [
        (
            f"{angle:.2f}",
            name,
            f"{1.0 + error[0]:.3f}",
            f"{1.0 + error[1]:.3f}",
            f"{np.log2(abs(error[-2] / error[-1])):.2f}",
            f"{distance[0]:.1e}",
        )
        for angle, case in zip(angles, found, strict=True)
        for name, (error, distance) in case.items()
    ]
    outward = {name: error[0] for name, (error, _) in found[0].items()}
    inward = {name: error[0] for name, (error, _) in found[-1].items()}
    sentences = [
        "Root-finding does not undo the step: it moves the estimate along the radius. At"
        f" {angles[0]:.2f} rad the sequential step of {step:g} s moves by"
        f" {1 + outward['sequential step']:.3f} of the exact movement, at {angles[-1]:.2f} rad by"
        f" {1 + inward['sequential step']:.3f}.",
        "The projected step errs in the opposite direction:"
        f" {1 + outward['projected step']:.3f} and {1 + inward['projected step']:.3f}. It leaves the circle by"
        f" {found[0]['projected step'][1][0]:.2g} m.",
    ]
    with styled() as figure_class:
        figure = figure_class(figsize=(11, 4.2), layout="constrained")
        left, right = figure.subplots(1, 2)
        of_largest = {name: [end[name][0] for end in ends] for name in METHODS}
        draw_steps(left, wind, step, angles, of_largest)
        for index, ((name, (error, _)), marker) in enumerate(zip(found[0].items(), "s^x", strict=True)):
            right.loglog(
                steps, np.abs(error), **line_style(index), marker=marker, markerfacecolor="none", label=name
            )
        right.set(
            xlabel="step in s",
            ylabel="|movement / exact - 1|",
            title=f"error of one step from {angles[0]:.2f} rad",
        )
        right.legend(fontsize=8)
    conclude(asked, headings, rows, sentences, {"sequential_step": figure})
    return 0


if __name__ == "__main__":
    sys.exit(main())

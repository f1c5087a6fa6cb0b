"""Cost of Baumgarte gains: the number of steps of an explicit method with adaptive steps.

With alpha = beta = G what is open decays as exp(-G t): a further motion whose rate is G. An explicit method
of order five is stable for h G < 3.3 or so, whatever its tolerance: an interval T takes at least G T / 3.3
steps. Tight tolerances take more, because what their own errors excite has to be followed as well. What the
gain buys is a smaller opening: errors of steps decay within 1/G. A projection needs no gain and costs a fixed
amount per step.

    python experiments/stiffness_cost.py [CONFIG] [--set PATH=VALUE ...] [--out DIR]
"""

import sys
from typing import Any

import diffrax
import jax
import jax.numpy as jnp
import numpy as np

import jaxdae
from jaxdae.app import conclude, line_style, precision, script, styled

CONFIG = "configs/stiffness_cost.yaml"
INSTANTS = 50


def cost(
    system: Any, start: jaxdae.State, gains: Any, tolerance: float, end: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the steps (n,), the largest opening in m (n,) and the status (n,) for gains (n,) in 1/s."""
    times = jnp.linspace(end / INSTANTS, end, INSTANTS)

    def one(gain: Any) -> tuple[Any, Any, Any]:
        feedback = jaxdae.Baumgarte(gain, gain)
        method = jaxdae.diffrax.Adaptive(
            tolerance, tolerance, projection=None, stabilization=feedback, method=diffrax.Dopri5()
        )
        found = jaxdae.diffrax.adaptive_rollout(system, method, start, times=times, max_steps=2**17)
        return found.info.iterations[-1], jnp.max(found.info.violation), jnp.max(found.info.status)

    return tuple(np.asarray(x) for x in zip(*map(jax.jit(one), gains), strict=True))


def projected(system: Any, start: jaxdae.State, tolerance: float, end: float) -> tuple[int, float]:
    """Return steps and largest opening in m of the same method with projections and without feedback."""
    times = jnp.linspace(end / INSTANTS, end, INSTANTS)
    found = jaxdae.diffrax.adaptive_rollout(
        system, jaxdae.diffrax.Adaptive(tolerance, tolerance, method=diffrax.Dopri5()), start, times=times
    )
    jaxdae.raise_if_failed(found)
    return int(found.info.iterations[-1]), float(jnp.max(found.info.violation))


def main() -> int:
    """Run the experiment and return its exit code."""
    asked = script(CONFIG, __doc__)
    config, given = asked.config, asked.config.experiment
    with precision(config):
        system, _, start = asked.worlds.one()
        gains = np.geomspace(given["lowest"], given["highest"], given["count"])
        found = {x: cost(system, start, gains, x, config.duration) for x in given["tolerances"]}
        closed = {x: projected(system, start, x, config.duration) for x in given["tolerances"]}
    headings = (
        "tolerance",
        "steps, softest",
        "steps, stiffest",
        "largest h G",
        "opening, softest, m",
        "least opening, m",
        "projected: steps",
        "opening, m",
    )
    rows, sentences = [], []
    for tolerance, (steps, opening, status) in found.items():
        stable = float(gains[-1]) * config.duration / steps[-1]
        many, gap = closed[tolerance]
        best = int(np.argmin(opening))
        rows.append(
            (
                f"{tolerance:g}",
                str(steps[0]),
                str(steps[-1]),
                f"{stable:.2f}",
                f"{opening[0]:.1e}",
                f"{opening[best]:.1e}",
                str(many),
                f"{gap:.1e}",
            )
        )
        slope = np.log(steps[-1] / steps[-3]) / np.log(float(gains[-1] / gains[-3]))
        sentences.append(
            f"At a tolerance of {tolerance:g} the stiffest feedback takes {steps[-1] / steps[0]:.3g} times"
            " as many steps as the softest; at the end"
            f" their number grows with the gain to the power {slope:.2f}. The least opening,"
            f" {opening[best]:.1e} m, is that of G = {gains[best]:.3g} 1/s;"
            f" projections leave {gap:.1e} m in {many} steps."
            + ("" if not status.any() else " Some runs failed.")
        )
    with styled() as figure_class:
        figure = figure_class(figsize=(10, 4), layout="constrained")
        left, right = figure.subplots(1, 2)
        for index, (tolerance, (steps, opening, _)) in enumerate(found.items()):
            style = line_style(index)
            left.loglog(gains, steps, label=f"tolerance {tolerance:g}", marker=".", **style)
            right.loglog(gains, opening, label=f"tolerance {tolerance:g}", marker=".", **style)
            left.axhline(closed[tolerance][0], color=style["color"], linestyle=":", linewidth=1.0)
            right.axhline(closed[tolerance][1], color=style["color"], linestyle=":", linewidth=1.0)
        left.loglog(
            gains,
            gains * config.duration / 3.3,
            color="black",
            linewidth=0.8,
            linestyle="--",
            label="stability, h G = 3.3",
        )
        left.set(
            xlabel="alpha = beta in 1/s",
            ylabel=f"steps for {config.duration:g} s",
            title="work (dotted: projected)",
        )
        right.set(
            xlabel="alpha = beta in 1/s",
            ylabel="largest opening in m",
            title="opening of the hinge (dotted: projected)",
        )
        left.legend()
        right.legend()
    conclude(asked, headings, rows, sentences, {"stiffness_cost": figure})
    return 0


if __name__ == "__main__":
    sys.exit(main())

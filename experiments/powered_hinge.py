"""How far does a powered hinge tear its rod open, in steps that go straight on?

A physics engine drives a hinge by a constraint of velocity with a bias, theta' = -beta (theta - theta*) / h:
the motor is to take the part beta of its error in one step. The new velocity is along the circle, and the
explicit update of the place, q + h v, goes along the tangent. A step by the angle beta e from the radius r
ends at the radius r sqrt(1 + (beta e)^2): with e = 0.5 rad and beta = 1 the rod is 12 % too long after the
first step, however short the step is in time. That is why the published example ("Controlling a pendulum with
constraints", May 8, 2017) lowers beta to around 0.1, where it is 0.1 %.

    python experiments/powered_hinge.py [CONFIG] [--set PATH=VALUE ...] [--out DIR]
"""

import sys
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jaxdae
from jaxdae import control
from jaxdae.app import conclude, line_style, precision, script, styled

CONFIG = "configs/powered_hinge.yaml"


def angle(q: Any) -> Any:
    """Return the angle of the rod (1,) in rad, zero below, growing to the right."""
    return jnp.arctan2(q[0], -q[1])[None]


def radii(
    system: Any, start: jaxdae.State, rod: float, betas: Any, target: float, dt: float, steps: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return lengths of the rod in m and angles in rad (n, steps) for biases of the motor (n,)."""

    def one(beta: Any) -> tuple[Any, Any]:
        motor = control.GoalGroup(goals=(control.Goal(angle, target),), beta=beta)
        found = jaxdae.rollout(system, control.VelocityStepping(rod, (motor,)), start, dt=dt, steps=steps)
        q = found.state.q
        return jnp.hypot(q[:, 0], q[:, 1]), jax.vmap(angle)(q)[:, 0]

    return tuple(np.asarray(x) for x in jax.jit(jax.vmap(one))(betas))


def first(betas: np.ndarray, error: float) -> np.ndarray:
    """Return the length in m of a 1 m rod after the first step, along the tangent by the motor angle."""
    return np.sqrt(1.0 + (betas * error) ** 2)


def main() -> int:
    """Run the experiment and return its exit code."""
    asked = script(CONFIG, __doc__)
    config, given = asked.config, asked.config.experiment
    target = given["target"]
    with precision(config):
        system, _, start = asked.worlds.one()
        betas = np.unique(
            np.concatenate([np.geomspace(given["lowest"], given["highest"], given["count"]), given["drawn"]])
        )
        found = {
            rod: radii(system, start, rod, jnp.asarray(betas), target, config.dt, config.steps)
            for rod in given["rods"]
        }
    exact = first(betas, target)
    worst = {rod: np.max(np.abs(radius - 1.0), axis=1) for rod, (radius, _) in found.items()}
    headings = (
        "beta of the motor",
        "first step, closed form, m",
        *(
            f"rod {rod:g}: {what}"
            for rod in found
            for what in ("first step, m", "worst, m", "angle off at the end, rad")
        ),
    )
    rows = []
    for beta in given["drawn"]:
        k = int(np.argmin(np.abs(betas - beta)))
        cells = [
            text
            for rod, (radius, turned) in found.items()
            for text in (
                f"{radius[k, 0] - 1:.6f}",
                f"{worst[rod][k]:.2e}",
                f"{abs(turned[k, -1] - target):.1e}",
            )
        ]
        rows.append((f"{beta:g}", f"{exact[k] - 1:.6f}", *cells))
    off = max(float(np.max(np.abs(radius[:, 0] - exact))) for radius, _ in found.values())
    allowed = given["allowed"]
    limit = np.sqrt((1.0 + allowed) ** 2 - 1.0) / target
    sentences = [
        f"After the first step the rod has the length of the closed form, to {off:.1e} m, whatever is done "
        "about the rod."
    ]
    for rod in found:
        good = betas[worst[rod] <= allowed]
        sentences.append(
            f"With a rod that takes {rod:g} of its error a step, it stays within {allowed:.0%} of its"
            f" length for beta up to {good.max():.2g};"
            f" the first step alone allows {limit:.2g}."
        )
    with styled() as figure_class:
        figure = figure_class(figsize=(10, 4), layout="constrained")
        left, right = figure.subplots(1, 2)
        for index, (rod, (_radius, _)) in enumerate(found.items()):
            left.loglog(betas, worst[rod], label=f"rod takes {rod:g} a step", **line_style(index))
        left.loglog(
            betas, exact - 1.0, color="black", linestyle="--", linewidth=0.9, label="first step, closed form"
        )
        left.axhline(allowed, color="black", linestyle=":", linewidth=0.9)
        steps = np.arange(min(config.steps, 60) + 1)
        rod = given["rods"][-1]
        for index, beta in enumerate(given["drawn"]):
            k = int(np.argmin(np.abs(betas - beta)))
            right.plot(
                steps,
                np.concatenate([[1.0], found[rod][0][k]])[: len(steps)],
                label=f"beta = {beta:g}",
                **line_style(index),
            )
        left.set(
            xlabel="beta of the motor", ylabel="largest error of the length in m", title="over 300 steps"
        )
        right.set(
            xlabel="step", ylabel="length of the rod in m", title=f"rod takes {rod:g} of its error a step"
        )
        left.legend()
        right.legend()
    conclude(asked, headings, rows, sentences, {"powered_hinge": figure})
    return 0


if __name__ == "__main__":
    sys.exit(main())

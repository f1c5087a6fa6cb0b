"""A position projection about any point: how far off is it, and how far may the point be?

The lecture's projection of an estimate q_e uses the constraint linearized at a point q_0 of one's choice,

    q = (I - N N^T)(q_0 - F^+ g_0) + N N^T q_e,

and warns that the choice affects the result. It lies on the tangent plane of q_0, so that

* what it leaves open is of second order in the distance from q_0, measured along the plane: for the circle of
  radius l, and q_0 on it at an angle phi from the estimate at radius r, the result is at the distance
  sqrt(l^2 + r^2 sin(phi)^2) from the center;
* it is not the nearest point of the manifold, even where the manifold is flat enough: the correction is along
  F_0^T, not across the circle.

Repeated with the same F_0 it closes the constraint if q_0 is near enough: each correction along u_0, the
direction of q_0, multiplies what is open by 1 - cos(psi) or so, psi the angle between q_0 and where it ends;
the line along u_0 through the estimate leaves the circle where r sin(phi) > l.

    python experiments/projection_point.py [CONFIG] [--set PATH=VALUE ...] [--out DIR]
"""

import sys
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jaxdae
from jaxdae.app import conclude, line_style, precision, script, styled

CONFIG = "configs/projection_point.yaml"
WAYS = {"linear, once": None, "iterated, 3": 3, "iterated, 20": 20}


def place(radius: Any, angle: Any) -> jaxdae.State:
    """Return the state at rest of the mass at a radius in m and an angle in rad from the horizontal."""
    q = jnp.stack([radius * jnp.cos(angle), radius * jnp.sin(angle), jnp.zeros_like(angle)])
    return jaxdae.State(jnp.zeros_like(angle), q, jnp.zeros_like(q))


def project(system: Any, estimate: jaxdae.State, about: jaxdae.State, iterations: int | None) -> jaxdae.State:
    """Return the estimate after one or several corrections with the Jacobian at a point of linearization."""
    plan: dict[str, Any] = {"metric": jaxdae.Metric.EUCLIDEAN, "origin": jaxdae.Origin.PREVIOUS}
    way = (
        jaxdae.textbook.LinearPositionProjection(**plan)
        if iterations is None
        else jaxdae.PositionProjection(**plan, iterations=iterations)
    )
    return way.project(system, estimate, previous=about)


def sweep(system: Any, off: float, angles: Any) -> dict[str, np.ndarray]:
    """Return the positions of the mass (n, 2) in m per method, for linearization at angles (n,) in rad."""
    estimate = place(1.0 + off, jnp.zeros(()))

    def one(iterations: int | None) -> np.ndarray:
        return np.asarray(
            jax.jit(jax.vmap(lambda phi: project(system, estimate, place(1.0, phi), iterations).q[:2]))(
                angles
            )
        )

    return {name: one(iterations) for name, iterations in WAYS.items()}


def main() -> int:
    """Run the experiment and return its exit code."""
    asked = script(CONFIG, __doc__)
    config, given = asked.config, asked.config.experiment
    off = given["off"]
    with precision(config):
        system, _, _ = asked.worlds.one()
        angles = jnp.linspace(0.0, given["farthest"], given["count"])
        found = sweep(system, off, angles)
    angles = np.asarray(angles)
    radius = {name: np.hypot(*x.T) for name, x in found.items()}
    exact = np.sqrt(1.0 + (1.0 + off) ** 2 * np.sin(angles) ** 2)
    away = {name: np.hypot(*(x - [1.0, 0.0]).T) for name, x in found.items()}
    headings = (
        "point at, rad",
        *(f"{name}: {what}, m" for name in WAYS for what in ("open", "from the nearest")),
    )
    chosen = [int(np.argmin(np.abs(angles - phi))) for phi in (0.0, 0.1, 0.2, 0.5, 1.0, given["farthest"])]
    rows = [
        (
            f"{angles[k]:.3g}",
            *(f"{x:.1e}" for name in WAYS for x in (abs(radius[name][k] - 1), away[name][k])),
        )
        for k in chosen
    ]
    lost = np.flatnonzero(~(np.abs(radius["iterated, 20"] - 1.0) < 1e-6))
    line = np.arcsin(1.0 / (1.0 + off))
    sentences = [
        "Once: what is left open follows the closed form to "
        f"{np.max(np.abs(radius['linear, once'] - exact)):.1e} m.",
        f"About a point {angles[chosen[2]]:.2g} rad away one correction leaves"
        f" {abs(radius['linear, once'][chosen[2]] - 1):.2g} m open, a fifth"
        f" of the {off:g} m that there were, and the mass is {away['iterated, 20'][chosen[2]]:.2g} m from"
        " the nearest point however often it is"
        " corrected: the direction is that of the point, not of the circle.",
        "Twenty corrections close it for points up to"
        f" {angles[lost[0] - 1] if len(lost) else angles[-1]:.2f} rad away; from {line:.2f} rad on the line"
        " along which they go does not meet the circle.",
    ]
    with styled() as figure_class:
        figure = figure_class(figsize=(11, 4.4), layout="constrained")
        left, right = figure.subplots(1, 2)
        turn = np.linspace(-0.35, 1.15, 200)
        left.plot(np.cos(turn), np.sin(turn), color="black", linewidth=1.0)
        left.plot(1.0 + off, 0.0, "k*", markersize=10, label="estimate")
        for index, phi in enumerate(given["drawn"]):
            k, style = int(np.argmin(np.abs(angles - phi))), line_style(index)
            at, along = (
                np.array([np.cos(angles[k]), np.sin(angles[k])]),
                np.array([-np.sin(angles[k]), np.cos(angles[k])]),
            )
            ends = np.stack([at - 0.95 * along, at + 0.35 * along])
            left.plot(*ends.T, color=style["color"], linewidth=0.8, linestyle="--")
            left.plot(
                *at,
                "o",
                color=style["color"],
                markerfacecolor="white",
                label=f"linearized at {angles[k]:.1f} rad",
            )
            left.plot(*found["linear, once"][k], "s", color=style["color"])
            left.plot(*found["iterated, 20"][k], "^", color=style["color"])
        left.plot([], [], "ks", label="once")
        left.plot([], [], "k^", label="20 times")
        left.set(
            aspect="equal",
            xlabel="x in m",
            ylabel="y in m",
            title="where the estimate goes",
            xlim=(0.35, 1.5),
            ylim=(-0.45, 1.0),
        )
        left.legend(fontsize=8, loc="upper right")
        for index, name in enumerate(WAYS):
            right.semilogy(
                angles,
                np.maximum(np.abs(radius[name] - 1.0), 1e-17),
                label=f"{name}: open",
                **line_style(index),
            )
        right.semilogy(
            angles,
            away["iterated, 20"],
            color="black",
            linewidth=1.0,
            linestyle="--",
            label="iterated, 20: from the nearest point",
        )
        right.axvline(line, color="black", linewidth=0.8, linestyle=":")
        right.set(
            xlabel="from the estimate to the point of linearization in rad",
            ylabel="distance in m",
            title="what is left",
            ylim=(1e-17, 10),
        )
        right.legend(fontsize=8, loc="lower right", frameon=True, framealpha=1.0, edgecolor="none")
    conclude(asked, headings, rows, sentences, {"projection_point": figure})
    return 0


if __name__ == "__main__":
    sys.exit(main())

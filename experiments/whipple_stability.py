"""Self-stability of a bicycle: eigenvalues from the mechanism compared with the published matrices.

The Whipple bicycle is four bodies, three hinges and two wheels that roll without slip. Running upright at a
speed v is a solution; near it roll and steer, q, obey M q'' + v C1 q' + (g K0 + v^2 K2) q = 0. The script
finds this twice from the mechanism and knows neither M nor the others:

* at every speed, the accelerations of `forward_dynamics` at poses and velocities on the manifold,
  differentiated with respect to (q, q'),
* from these of two speeds the parts of A(v) = [0, I; -M^-1 (g K0 + v^2 K2), -v M^-1 C1], whose characteristic
  polynomial has the critical speeds as roots: where the oscillation of the weave stops to grow, where the
  capsize begins to, where two real eigenvalues meet.

    python experiments/whipple_stability.py [CONFIG] [--set PATH=VALUE ...] [--out DIR]
"""

import sys
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pydantic

import jaxdae
from jaxdae.app import conclude, line_style, precision, script, settings, styled
from jaxdae.vehicles import LinearBicycle

CONFIG = "configs/whipple_stability.yaml"
CHOSEN = ("frame.omega_x", "steer.angle_rate", "rear_hub.angle_rate")
"""The velocities of the freedoms: roll, steer and speed."""


class Speeds(pydantic.BaseModel, extra="forbid"):
    """At which speeds in m/s, from zero on."""

    fastest: float = pydantic.Field(gt=0)
    count: int = pydantic.Field(ge=2)


class Settings(pydantic.BaseModel, extra="forbid"):
    """The section `experiment` of the config."""

    radius: float = pydantic.Field(gt=0)
    gravity: float = pydantic.Field(gt=0)
    speeds: Speeds
    published: dict[str, list[list[float]]]


@jax.jit
def state_matrix(system: Any, q: Any, spin: Any) -> Any:
    """Return A (4, 4) for roll, steer and their rates, about upright motion at rear wheel rate `spin`."""
    names = system.names.velocities
    chosen = np.array([names.index(name) for name in CHOSEN])
    others = np.setdiff1d(np.arange(len(names)), chosen)
    t, still = jnp.zeros((), q.dtype), jnp.zeros((len(names),), q.dtype)

    def accelerations(x: Any) -> Any:
        # Height and pitch change in second order only, so that this pose is on the manifold to first order.
        pose = system.retract(q, still.at[chosen[:2]].set(x[:2]))
        rates = jnp.append(x[2:], spin)
        jacobian = system.constraint_jacobian(t, pose, still)
        v = (
            still.at[chosen]
            .set(rates)
            .at[others]
            .set(-jnp.linalg.solve(jacobian[:, others], jacobian[:, chosen] @ rates))
        )
        a, _ = jaxdae.forward_dynamics(system, jaxdae.State(t, pose, v), solver=jaxdae.DenseKKT())
        return a[chosen[:2]]

    lower = jax.jacfwd(accelerations)(jnp.zeros(4, q.dtype))
    return jnp.concatenate([jnp.eye(4, dtype=q.dtype)[2:], lower])


def of_mechanism(system: Any, q: Any, radius: float, gravity: float) -> LinearBicycle:
    """Return M^-1 C1, M^-1 K0 and M^-1 K2 of the mechanism, with the identity for M: the same eigenvalues."""
    rest, fast = (np.asarray(state_matrix(system, q, jnp.asarray(v / radius)))[2:] for v in (0.0, 1.0))
    return LinearBicycle(
        jnp.eye(2),
        jnp.asarray(-fast[:, 2:]),
        jnp.asarray(-rest[:, :2] / gravity),
        jnp.asarray(rest - fast)[:, :2],
        gravity,
    )


def main() -> int:
    """Run the experiment and return its exit code."""
    asked = script(CONFIG, __doc__)
    plan = settings(asked, Settings)
    if plan is None:
        return 2
    config = asked.config
    with precision(config):
        system, _, start = asked.worlds.one()
        published = LinearBicycle(
            **{name: jnp.asarray(part) for name, part in plan.published.items()},
            gravity=jnp.asarray(plan.gravity),
        )
        speeds = np.linspace(0.0, plan.speeds.fastest, plan.speeds.count)
        matrices = jax.lax.map(lambda v: state_matrix(system, start.q, v / plan.radius), jnp.asarray(speeds))
        found = np.linalg.eigvals(np.asarray(matrices))
        exact = np.array([published.eigenvalues(v) for v in speeds])
        # Each to the nearest of the others: equal real parts have no order.
        errors = np.max(np.min(np.abs(found[:, :, None] - exact[:, None, :]), axis=2), axis=1)
        wrong = max(
            float(np.max(np.abs(a - published.state_matrix(v))))
            for v, a in zip(speeds, matrices, strict=True)
        )
        critical = of_mechanism(system, start.q, plan.radius, plan.gravity).critical_speeds()
        expected = published.critical_speeds()
        figure = drawn(speeds, found, published, critical)
    rows = [
        (
            name,
            f"{critical[name]:.12f}",
            f"{expected[name]:.12f}",
            f"{abs(critical[name] - expected[name]):.1e}",
        )
        for name in expected
    ]
    sentences = [
        f"At {len(speeds)} speeds the eigenvalues of the mechanism are within {np.max(errors):.1e} 1/s of "
        "the published ones,"
        f" the entries of A within {wrong:.1e}.",
        f"It balances itself between {critical['weave']:.4f} and {critical['capsize']:.4f} m/s.",
    ]
    conclude(
        asked,
        ("critical speed", "mechanism, m/s", "published, m/s", "difference"),
        rows,
        sentences,
        {"eigenvalues": figure},
    )
    return 0


def drawn(speeds: np.ndarray, found: np.ndarray, published: LinearBicycle, critical: dict[str, float]) -> Any:
    """Return the figure: curves of the published matrices, dots of the mechanism, and the stable speeds."""
    fine = np.linspace(0.0, speeds[-1], 1500)
    curves = np.array([published.eigenvalues(v) for v in fine])
    oscillating = np.abs(curves.imag) > 1e-9
    with styled() as figure_class:
        figure = figure_class(figsize=(8.5, 5.2), layout="constrained")
        axes = figure.subplots()
        axes.axvspan(critical["weave"], critical["capsize"], color="0.9", label="balances itself")
        axes.axhline(0.0, color="0.3", linewidth=0.8)
        x = np.repeat(fine[:, None], 4, axis=1)
        # Points and no lines: which eigenvalue goes on as which is not said by their order.
        axes.plot(x[oscillating], curves.real[oscillating], ".", markersize=1.5, color=line_style(0)["color"])
        axes.plot(
            x[~oscillating], curves.real[~oscillating], ".", markersize=1.5, color=line_style(1)["color"]
        )
        upward = curves.imag > 1e-9
        axes.plot(x[upward], curves.imag[upward], ".", markersize=1.0, color="0.6")
        axes.plot([], [], color=line_style(0)["color"], label="weave, real part")
        axes.plot([], [], color=line_style(1)["color"], label="capsize and castering, real")
        axes.plot([], [], color="0.6", label="weave, imaginary part")
        dots = np.repeat(speeds[:, None], 4, axis=1)
        axes.plot(dots, found.real, "o", markersize=3.5, markerfacecolor="none", color="black")
        axes.plot(
            [], [], "o", markersize=3.5, markerfacecolor="none", color="black", label="from the mechanism"
        )
        for name, speed in critical.items():
            label = f"{name.replace('_', ' ')}, {speed:.3f} m/s"
            at, up, beside = (9.8, "top", "left") if name == "double_root" else (-9.8, "bottom", "right")
            axes.annotate(label, (speed, at), rotation=90, ha=beside, va=up, fontsize=8)
            axes.axvline(speed, color="0.5", linewidth=0.8, linestyle=":")
        axes.set(
            xlabel="speed in m/s", ylabel="eigenvalue in 1/s", xlim=(0.0, speeds[-1]), ylim=(-10.0, 10.0)
        )
        axes.set_title("Whipple bicycle about upright running")
        axes.legend(loc="lower right", fontsize=8)
    return figure


if __name__ == "__main__":
    sys.exit(main())

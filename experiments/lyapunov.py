"""Does feedback through the multipliers close the constraints, and is there a function that says so?

The lecture's form adds -alpha g - beta g' to the multipliers, so that with A = J M^-1 J^T, of full rank,

    g'' = -A (alpha g + beta g'),        V = g'^T A^-1 g' / 2 + alpha g^T g / 2

V is zero on the manifold and positive elsewhere. Where A is constant, V' = -beta |g'|^2 and V falls. In a mechanism A moves with q, and

    V' = -beta |g'|^2 + g'^T (A^-1)' g' / 2,       (A^-1)' = -A^-1 A' A^-1

so that V falls wherever beta I > (A^-1)' / 2: always near the manifold at rest, and not when the motion makes
A^-1 grow faster than the damping takes. The second term is of third order in what is open where only that
motion changes A, and of second order where the mechanism's own motion does.

    python experiments/lyapunov.py [CONFIG] [--set PATH=VALUE ...] [--out DIR]

References: Z. Manchester, lecture "Simulation with constraints" (the feedback; it states Lyapunov stability
without the function).
"""

import sys
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jaxdae
from jaxdae.app import conclude, line_style, precision, script, styled

CONFIG = "configs/lyapunov.yaml"


def function(system: Any, state: jaxdae.State, alpha: Any) -> Any:
    """Return V () in J for gains in N/m: a point mass on one rod has A = 1/m."""
    terms = jaxdae.operators.constraint_terms(system, state)
    g, rate = terms.position, terms.velocity
    delassus = terms.jacobian @ jnp.linalg.solve(system.mass_matrix(state.q), terms.jacobian.T)
    return rate @ jnp.linalg.solve(delassus, rate) / 2 + alpha * g @ g / 2


def parts(system: Any, state: jaxdae.State, beta: Any) -> tuple[Any, Any]:
    """Return both parts of V' () in W: what the damping takes, and what the motion of A adds."""

    def delassus(q: Any) -> Any:
        jacobian = system.constraint_jacobian(state.t, q, state.v)
        return jacobian @ jnp.linalg.solve(system.mass_matrix(q), jacobian.T)

    matrix, moved = jax.jvp(delassus, (state.q,), (state.v,))
    rate = jaxdae.operators.constraint_terms(system, state).velocity
    x = jnp.linalg.solve(matrix, rate)
    return -beta * rate @ rate, -x @ moved @ x / 2


def opened(system: Any, start: jaxdae.State, g: Any, rate: Any) -> jaxdae.State:
    """Return a start whose rods are open by g (2,) in m and open at a rate (2,) in m/s.

    Newton's method along J^T.
    """
    q = start.q
    for _ in range(8):
        jacobian = system.constraint_jacobian(start.t, q, start.v)
        q = q + jnp.linalg.pinv(jacobian) @ (g - system.constraint(start.t, q))
    return jaxdae.State(start.t, q, jnp.linalg.pinv(system.constraint_jacobian(start.t, q, start.v)) @ rate)


def follow(
    system: Any, start: jaxdae.State, alpha: float, beta: float, dt: float, steps: int
) -> dict[str, np.ndarray]:
    """Return V, largest |g| and the parts of V', all (time,), of a motion that starts with open rods."""
    feedback = jaxdae.textbook.MultiplierFeedback(jnp.asarray(alpha), jnp.asarray(beta))
    method = jaxdae.RungeKutta.rk4(stabilization=feedback)
    trajectory = jaxdae.rollout(system, method, start, dt=dt, steps=steps, start_tolerance=jnp.inf)
    jaxdae.raise_if_failed(trajectory)
    states = jax.tree.map(
        lambda first, x: jnp.concatenate([jnp.asarray(first)[None], x]), start, trajectory.state
    )
    taken, added = jax.jit(jax.vmap(lambda x: parts(system, x, beta)))(states)
    value = jax.jit(jax.vmap(lambda x: function(system, x, alpha)))(states)
    g = jax.vmap(system.constraint)(states.t, states.q)
    return {
        "V": np.asarray(value),
        "g": np.asarray(jnp.max(jnp.abs(g), axis=1)),
        "taken": np.asarray(taken),
        "added": np.asarray(added),
    }


def main() -> int:
    """Run the experiment and return its exit code."""
    asked = script(CONFIG, __doc__)
    config, given = asked.config, asked.config.experiment
    alpha, dampings = given["stiffness"], given["damping"]
    with precision(config):
        system, _, start = asked.worlds.one()
        still = opened(system, start, jnp.asarray(given["open"]), jnp.zeros(2))
        found = {
            f"beta = {beta:g}": follow(system, still, alpha, beta, config.dt, config.steps)
            for beta in dampings
        }
        inward = opened(system, start, jnp.asarray(given["open"]), jnp.asarray([given["inward"], 0.0]))
        found[f"beta = {dampings[-1]:g}, thrown inward"] = follow(
            system, inward, alpha, dampings[-1], config.dt, config.steps
        )
    headings = (
        "case",
        "V at the start, J",
        "V at the end, J",
        "largest rise of V in a step, J",
        "V' against its formula",
        "|g| at the end, m",
    )
    rows = []
    for name, x in found.items():
        slope = np.gradient(x["V"], config.dt)[1:-1]
        formula = (x["taken"] + x["added"])[1:-1]
        off = np.max(np.abs(slope - formula)) / np.max(np.abs(formula))
        rise = max(0.0, float(np.max(np.diff(x["V"]))))
        rows.append(
            (name, f"{x['V'][0]:.4g}", f"{x['V'][-1]:.2e}", f"{rise:.1e}", f"{off:.1e}", f"{x['g'][-1]:.1e}")
        )
    first, last = next(iter(found)), list(found)[-1]
    rises = np.flatnonzero(np.diff(found[last]["V"]) > 0)
    sentences = [
        f"With {first} V falls by a factor of {found[first]['V'][0] / found[first]['V'][-1]:.1e} in "
        f"{config.duration:g} s.",
        f"{last.capitalize()}: V rises in {len(rises)} of {config.steps} steps, by"
        f" {found[last]['V'].max() / found[last]['V'][0] - 1:.0%} in all:"
        f" A^-1 grows while the rod is made shorter, which adds up to {found[last]['added'].max():.3g} W.",
    ]
    with styled() as figure_class:
        figure = figure_class(figsize=(10, 4), layout="constrained")
        left, right = figure.subplots(1, 2)
        time = config.dt * np.arange(config.steps + 1)
        for index, (name, x) in enumerate(found.items()):
            left.plot(time, np.maximum(x["V"], 1e-30), label=name, **line_style(index))
        shown = found[last]
        until = min(len(time), round(0.2 / config.dt))
        right.plot(time[:until], shown["taken"][:until], label="damping, $-\\beta |g'|^2$", **line_style(0))
        right.plot(time[:until], shown["added"][:until], label="motion of $A$", **line_style(1))
        right.plot(time[:until], (shown["taken"] + shown["added"])[:until], label="V'", **line_style(6))
        left.set(
            yscale="log", xlabel="time in s", ylabel="V in J", title="V of a double pendulum with open rods"
        )
        right.set(xlabel="time in s", ylabel="W", title=last)
        left.legend()
        right.legend()
    conclude(asked, headings, rows, sentences, {"lyapunov": figure})
    return 0


if __name__ == "__main__":
    sys.exit(main())

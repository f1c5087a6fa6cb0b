"""The gaits of the simplest walker: fixed points of the return map, eigenvalues, basin of attraction.

    theta'' = sin(theta - gamma)
    phi'' = sin(theta - gamma) + (theta'^2 - cos(theta - gamma)) sin(phi)

theta is the angle of the stance leg from the normal of the slope, phi the angle between the legs. The swing
foot strikes at phi = 2 theta, with theta < 0; the grazing near theta = 0, where straight legs scuff, does
not count. The legs then exchange their names, with an impulse on the new foot and massless feet:

    theta+ = -theta,    theta'+ = cos(2 theta) theta',
    phi+ = -2 theta,    phi'+ = (1 - cos 2 theta) theta'+

A step is `rollout_until` the strike, and this map. As a function of (theta, theta') after a strike it is
the return map. Newton's method with its derivative finds the gaits, whatever their stability; the
eigenvalues of the derivative tell how a disturbance of the gait grows per step.

    python experiments/simplest_walker.py [CONFIG] [--set PATH=VALUE ...] [--out DIR]

References: M. Garcia, A. Chatterjee, A. Ruina, M. Coleman, "The simplest walking model: stability,
complexity, and scaling", J. Biomech. Eng. 120 (1998). A. L. Schwab, M. Wisse, "Basin of attraction of the
simplest walking model", DETC2001/VIB-21363, for the map of starts.
"""

import sys
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jaxdae
from jaxdae.app import conclude, line_style, precision, script, styled

CONFIG = "configs/simplest_walker.yaml"
METHOD = jaxdae.RungeKutta.rk4()


@jaxdae.tree.pytree
class Walker(jaxdae.System):
    """Two legs of length 1 with massless feet, in the gravity 1.

    Attributes:
        slope: gamma in rad.
    """

    slope: Any

    def mass_matrix(self, q):
        """Return the identity: the forces are accelerations."""
        return jnp.eye(2, dtype=q.dtype)

    def force(self, t, q, v, u):
        """Return theta'' and phi''."""
        lean = q[0] - self.slope
        swing = (v[0] ** 2 - jnp.cos(lean)) * jnp.sin(q[1])
        return jnp.stack([jnp.sin(lean), jnp.sin(lean) + swing])


def before_strike(system: Any, state: jaxdae.State) -> Any:
    """Return 2 theta - phi, which falls through zero at a strike and rises through zero where legs scuff."""
    return 2.0 * state.q[0] - state.q[1]


def started(x: Any) -> jaxdae.State:
    """Return the state after a strike from the angle and the rate of the stance leg, x (2,)."""
    angle, rate = x
    q = jnp.stack([angle, 2.0 * angle])
    return jaxdae.State(jnp.zeros_like(angle), q, jnp.stack([rate, (1.0 - jnp.cos(2.0 * angle)) * rate]))


def stride(system: Any, x: Any, dt: Any, steps: int) -> tuple[Any, Any]:
    """Return the image of x (2,) under the return map, and the trajectory that ends at the strike."""
    end = jaxdae.switching.rollout_until(system, METHOD, started(x), before_strike, dt=dt, steps=steps)
    angle, rate = end.state.q[0], end.state.v[0]
    return jnp.stack([-angle, jnp.cos(2.0 * angle) * rate]), end


def gait(system: Any, guess: Any, dt: float, steps: int, iterations: int) -> dict[str, np.ndarray]:
    """Return fixed point (2,), period in s, Jacobian (2, 2), eigenvalues (2,) and error of a gait."""

    @jax.jit
    def mapped(x: Any) -> Any:
        def both(x: Any) -> Any:
            image, end = stride(system, x, dt, steps)
            return image, (image, end)

        return jax.jacfwd(both, has_aux=True)(x)

    x = jnp.asarray(guess, float)
    for _ in range(iterations):
        jacobian, (image, _) = mapped(x)
        x = x + jnp.linalg.solve(jnp.eye(2) - jacobian, image - x)
    jacobian, (image, end) = mapped(x)
    jaxdae.raise_if_failed(end)
    return {
        "x": np.asarray(x),
        "period": np.asarray(end.state.t),
        "jacobian": np.asarray(jacobian),
        "eigenvalues": np.linalg.eigvals(np.asarray(jacobian)),
        "error": np.max(np.abs(image - x)),
    }


def attracted(system: Any, fixed: Any, starts: Any, dt: float, steps: int, strides: int) -> np.ndarray:
    """Return the number of strides (n,) after which starts (n, 2) stay within 1 % of a gait; -1 for never."""

    def one(x: Any) -> Any:
        def step(carry: Any, _: Any) -> tuple[Any, Any]:
            x, walks = carry
            image, end = stride(system, x, dt, steps)
            walks &= (end.info.status == jaxdae.Status.OK) & (jnp.abs(image[0]) < jnp.pi / 2)
            x = jnp.where(walks, image, x)
            near = jnp.max(jnp.abs(x / fixed - 1.0)) < 0.01
            return (x, walks), walks & near

        _, near = jax.lax.scan(step, (x, jnp.asarray(True)), length=strides)
        late = strides - jnp.argmin(near[::-1])
        return jnp.where(near[-1], jnp.where(jnp.all(near), 0, late), -1)

    return np.asarray(jax.jit(jax.vmap(one))(starts))


def path(system: Any, x: Any, period: float, count: int = 400) -> jaxdae.State:
    """Return `count` states of one step from x (2,) after a strike."""
    dt = period / count
    return jaxdae.rollout(system, METHOD, started(jnp.asarray(x)), dt=dt, steps=count).state


def draw(system: Any, gaits: Any, given: Any, arrived: np.ndarray) -> Any:
    """Return the figure: a step, its phase portrait, and the starts that reach the stable gait."""
    with styled() as figure_class:
        figure = figure_class(figsize=(15, 4.5), layout="constrained")
        legs, phase, basin = figure.subplots(1, 3)
        for k, (name, found) in enumerate(gaits.items()):
            states = path(system, found["x"], float(found["period"]))
            q, v = np.asarray(states.q), np.asarray(states.v)
            phase.plot(q[:, 0], v[:, 0], label=f"{name}, stance leg", **line_style(k))
            swing = (q[:, 0] - q[:, 1], v[:, 0] - v[:, 1])
            phase.plot(*swing, label=f"{name}, swing leg", color=line_style(k)["color"], linestyle=":")
            if k == 0:
                for angle, between in q[:: len(q) // 10]:
                    hip = np.array([-np.sin(angle), np.cos(angle)])
                    foot = hip + np.array([np.sin(angle - between), -np.cos(angle - between)])
                    x, y = np.stack([np.zeros(2), hip, foot], axis=1)
                    legs.plot(x[:2], y[:2], color=line_style(0)["color"], linewidth=0.8)
                    legs.plot(x[1:], y[1:], color=line_style(1)["color"], linewidth=0.8)
        legs.set(title="a step of the stable gait", xlabel="along the slope", aspect="equal")
        phase.set(title="gaits", xlabel="angle of a leg in rad", ylabel="its rate in rad/s")
        phase.legend()
        low, high = given["angle"], given["sum"]
        image = np.where(arrived < 0, np.nan, arrived).reshape(given["count"], given["count"])
        shown = basin.imshow(image.T, origin="lower", extent=(*low, *high), aspect="auto", cmap="viridis")
        figure.colorbar(shown, ax=basin, label="steps until within 1 % of the gait")
        for k, (name, found) in enumerate(gaits.items()):
            basin.plot(found["x"][0], np.sum(found["x"]), "o", label=name, color=line_style(k)["color"])
        basin.set(title="starts that reach the stable gait", xlabel="angle in rad", ylabel="rate + angle")
        basin.legend()
        return figure


def main() -> int:
    """Run the experiment and return its exit code."""
    asked = script(CONFIG, __doc__)
    config, given = asked.config, asked.config.experiment
    grid = given["basin"]
    with precision(config):
        system = Walker(jnp.asarray(given["slope"]))
        steps = round(given["longest"] / config.dt)
        gaits = {
            name: gait(system, guess, config.dt, steps, given["newton"])
            for name, guess in given["guesses"].items()
        }
        stable = next(x for x in gaits.values() if np.max(np.abs(x["eigenvalues"])) < 1.0)
        angle, total = np.meshgrid(
            *(np.linspace(*grid[x], grid["count"]) for x in ("angle", "sum")), indexing="ij"
        )
        starts = jnp.stack([angle, total - angle], axis=-1).reshape(-1, 2)
        plan = (grid["dt"], round(grid["longest"] / grid["dt"]), grid["strides"])
        arrived = attracted(system, jnp.asarray(stable["x"]), starts, *plan)
        figure = draw(system, gaits, grid, arrived)
    headings = ("gait", "angle, rad", "rate, rad/s", "period, s", "eigenvalues", "error of the fixed point")
    rows = [
        (
            name,
            f"{x['x'][0]:.12f}",
            f"{x['x'][1]:.12f}",
            f"{x['period']:.12f}",
            ", ".join(f"{z:.10f}" for z in x["eigenvalues"]),
            f"{x['error']:.0e}",
        )
        for name, x in gaits.items()
    ]
    sentences = [
        f"The stable gait has eigenvalues of modulus {np.max(np.abs(stable['eigenvalues'])):.4f}.",
        f"It attracts {np.count_nonzero(arrived >= 0)} of {len(arrived)} starts within"
        f" {grid['strides']} steps.",
    ]
    conclude(asked, headings, rows, sentences, {"simplest_walker": figure})
    return 0


if __name__ == "__main__":
    sys.exit(main())

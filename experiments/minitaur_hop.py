"""A five-bar leg hops: torques optimized by gradient through push-off, flight and landing.

The motors follow

    tau = feedforward(t) - kp (angle - angle of the start) - kd rate,

where the feedforward is linear between knots. The cost penalizes the torque and the errors of height and
velocity of the trunk at two times: the apex, and the end at rest at the height of the start. `Touching` resolves the impact of the
toe within the steps, and the derivative passes through it. Adam follows the gradient by reverse mode.

    python experiments/minitaur_hop.py [CONFIG] [--set PATH=VALUE ...] [--out DIR]

References:
    G. Kenneally, A. De, D. E. Koditschek, "Design principles for a family of direct-drive legged robots",
    IEEE Robotics and Automation Letters 1 (2016).
"""

import sys
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

import jaxdae
from jaxdae import mechanisms as jm
from jaxdae.app import conclude, line_style, precision, script, styled
from jaxdae.app.config.config_elements import description

CONFIG = "configs/minitaur_hop.yaml"
SIGNS = (1.0, -1.0)  # of the motors, so that equal feedforward extends the leg


@jaxdae.tree.pytree
class Motors:
    """The law of the two motors.

    Attributes:
        knots: (knots, 2) feedforward in N m; positive values extend the leg.
        span: time of the last knot in s.
        posture: (2,) angles in rad.
        kp: in N m/rad.
        kd: in N m s/rad.
        angles: coordinates and velocities of the motors (static).
    """

    knots: Any
    span: Any
    posture: Any
    kp: Any
    kd: Any
    angles: tuple[int, ...] = jaxdae.tree.static()

    def __call__(self, t, state):
        """Return the torques (2,) in N m."""
        at = jnp.asarray(self.angles)
        return self.feedforward(t) - self.kp * (state.q[at] - self.posture) - self.kd * state.v[at]

    def feedforward(self, t):
        """Return the torques that do not depend on the state (2,) in N m."""
        last = self.knots.shape[0] - 1
        hats = jnp.maximum(0.0, 1.0 - jnp.abs(t / self.span * last - jnp.arange(last + 1, dtype=float)))
        return jnp.asarray(SIGNS) * (hats @ self.knots)


class Hop:
    """Rollouts of the leg of a config, and their cost.

    Args:
        config: of the experiment.
        method: the integrator.
    """

    def __init__(self, config: Any, method: Any):
        """Build the leg at rest on the ground."""
        values = config.model_dump()
        for index, force in enumerate(values["mechanism"]["forces"]):
            force |= {"input": index}
        self.system, q = jm.mechanism(description(values), jm.Joints())
        self.method, self.start = method, jaxdae.initialize(self.system, q)[0]
        self.config, self.given = config, config.experiment
        names = self.system.names.coordinates
        self.rail = names.index("rail.slide")
        self.angles = tuple(names.index(f"{side}_hip.angle") for side in ("left", "right"))
        self.improve = jax.jit(jax.value_and_grad(self.cost, has_aux=True))

    def law(self, knots: Any) -> Motors:
        """Return the law with a feedforward (knots, 2) in N m."""
        posture = self.start.q[jnp.asarray(self.angles)]
        given = self.given
        return Motors(knots, self.config.duration, posture, given["kp"], given["kd"], self.angles)

    def first(self) -> Any:
        """Return the feedforward of the start (knots, 2) in N m."""
        times = np.linspace(0.0, self.config.duration, self.given["knots"])
        return jnp.asarray(
            np.repeat(np.where(times <= self.given["until"], self.given["push"], 0.0), 2)
        ).reshape(-1, 2)

    def cost(self, knots: Any) -> tuple[Any, Any]:
        """Return the cost () and the trajectory of a feedforward (knots, 2) in N m."""
        plan = {"dt": self.config.dt, "steps": self.config.steps}
        trajectory = jaxdae.rollout(self.system, self.method, self.start, self.law(knots), **plan)
        apex, weights = self.given["apex"], self.given["weights"]
        at = jnp.asarray([round(apex["time"] / self.config.dt) - 1, self.config.steps - 1])
        risen = trajectory.state.q[at, self.rail] - self.start.q[self.rail]
        off = (risen - jnp.asarray([apex["rise"], 0.0])) / weights["rise"]
        rate = trajectory.state.v[at, self.rail] / weights["rate"]
        effort = jnp.mean((knots / weights["torque"]) ** 2)
        return jnp.sum(off**2) + jnp.sum(rate**2) + effort, trajectory

    def optimized(self, knots: Any) -> tuple[Any, list[float]]:
        """Return the best feedforward (knots, 2) in N m and the costs of all iterations."""
        steps = optax.adam(optax.cosine_decay_schedule(self.given["learning_rate"], self.given["iterations"]))
        memory, costs, best = steps.init(knots), [], knots
        for _ in range(self.given["iterations"]):
            (cost, trajectory), gradient = self.improve(knots)
            jaxdae.raise_if_failed(trajectory)
            if not costs or float(cost) < min(costs):
                best = knots
            costs.append(float(cost))
            change, memory = steps.update(gradient, memory)
            knots = optax.apply_updates(knots, change)
        return best, costs

    def gradient_error(self, knots: Any, eps: float = 1e-5, seed: int = 0) -> float:
        """Return the relative difference between gradient and central differences along a direction."""
        along = jnp.asarray(np.random.default_rng(seed).standard_normal(knots.shape))
        up, down = (float(self.improve(knots + s * eps * along)[0][0]) for s in (1.0, -1.0))
        slope = float(jnp.sum(self.improve(knots)[1] * along))
        return abs(slope - (up - down) / (2.0 * eps)) / abs(slope)


def draw(hop: Hop, found: dict[str, Any], costs: list[float]) -> Any:
    """Return the figure: height of trunk and toe, torques, convergence.

    Args:
        hop: the problem.
        found: feedforward and trajectory by name.
        costs: of all iterations.
    """
    apex = hop.given["apex"]
    with styled() as figure_class:
        figure = figure_class(figsize=(14, 4.2), layout="constrained")
        height, torque, convergence = figure.subplots(1, 3)
        for k, (name, (knots, trajectory)) in enumerate(found.items()):
            time = np.asarray(trajectory.state.t)
            risen = np.asarray(trajectory.state.q)[:, hop.rail] - float(hop.start.q[hop.rail])
            height.plot(time, 1e3 * risen, label=f"trunk, {name}", **line_style(k))
            gap = 1e3 * np.asarray(trajectory.info.gap)[:, 0]
            height.plot(time, gap, ":", label=f"toe, {name}", color=line_style(k)["color"])
            used = np.asarray(jax.vmap(hop.law(knots))(trajectory.state.t, trajectory.state))
            torque.plot(time, used[:, 0], label=name, **line_style(k))
        height.plot([apex["time"]], [1e3 * apex["rise"]], "ko", label="wanted")
        height.set(xlabel="time in s", ylabel="height over the start in mm", title="hop")
        torque.set(xlabel="time in s", ylabel="torque in N m", title="left motor")
        convergence.semilogy(costs, **line_style(0))
        convergence.set(xlabel="iteration", ylabel="cost", title="Adam")
        for axes in (height, torque):
            axes.legend()
        return figure


def main() -> int:
    """Run the experiment and return its exit code."""
    asked = script(CONFIG, __doc__)
    config = asked.config
    with precision(config):
        hop = Hop(config, asked.worlds.one()[1])
        knots = {"start": hop.first()}
        knots["optimized"], costs = hop.optimized(knots["start"])
        made = {name: hop.improve(x) for name, x in knots.items()}
        errors = {name: hop.gradient_error(x) for name, x in knots.items()}
        found = {name: (knots[name], trajectory) for name, ((_, trajectory), _) in made.items()}
        figure = draw(hop, found, costs)
    apex, rows = round(hop.given["apex"]["time"] / config.dt) - 1, []
    for name, ((cost, trajectory), _) in made.items():
        risen = np.asarray(trajectory.state.q)[:, hop.rail] - float(hop.start.q[hop.rail])
        rows.append(
            (
                name,
                f"{float(cost):.3g}",
                f"{1e3 * risen[apex]:.1f}",
                f"{1e3 * risen[-1]:.1f}",
                f"{float(np.asarray(trajectory.info.violation).max()):.1e}",
                f"{errors[name]:.0e}",
            )
        )
    headings = (
        "torques",
        "cost",
        f"rise at {hop.given['apex']['time']:g} s, mm",
        "rise at the end, mm",
        "loop error, m",
        "gradient: relative error",
    )
    status = max(int(np.asarray(x.info.status).max()) for _, x in found.values())
    sentences = [
        f"The optimized torques reduce the cost by the factor {costs[0] / min(costs):.3g} in {len(costs)}"
        " iterations.",
        f"The gradient by reverse mode agrees with central differences to {max(errors.values()):.0e}.",
        f"Status: {jaxdae.Status(status).name}.",
    ]
    conclude(asked, headings, rows, sentences, {"minitaur_hop": figure})
    return 0 if status == jaxdae.Status.OK else 1


if __name__ == "__main__":
    sys.exit(main())

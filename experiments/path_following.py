"""What do gains of path following gain by gradient?

A car whose steering lags behind its command follows a winding road by two textbook laws,

    pure pursuit    delta = atan(2 L sin(eta) / d), eta the angle to the point of the road at the distance d ahead of the rear axle,
    Stanley         delta = k_h (heading of the road - heading) - atan(k e / v), e the distance of the front axle from the road,

and reverses with a trailer along a line, which without feedback folds up. With alpha the angle of the trailer
in the hitch, psi its heading and y its place beside the line, a cascade of three gains steers it back,

    alpha_wished = -k_psi (psi - k_y y),        delta = -k_alpha (alpha - alpha_wished).

A truck with two trailers, the mechanism `truck_and_trailers` without its rows, has a stage more: the second
hitch is steered by the first, alpha_1 wished = l_1 (alpha_2 / l_2 + k_2 (alpha_2 - alpha_2 wished)). A second
picture shows what the train sweeps on a circle, where the axle of each trailer runs inside of that before it,
r^2 = r_before^2 - l^2.

Levenberg-Marquardt through the rollouts (`jaxdae.KinematicSystem` of first order, RK4) makes the squares of
the distance from the path and a little of the steering rate least, over several starts at once; gains stay
positive because their logarithms are tuned.

    python experiments/path_following.py [CONFIG] [--set PATH=VALUE ...] [--out DIR]

References:
    R. C. Coulter, "Implementation of the pure pursuit path tracking algorithm", CMU-RI-TR-92-01 (1992). S.
    Thrun et al., "Stanley: the robot that won the DARPA Grand Challenge", Journal of Field Robotics 23
    (2006). C. Altafini, A. Speranzon, B. Wahlberg, "A feedback control scheme for reversing a truck and
    trailer vehicle", IEEE Transactions on Robotics and Automation 17 (2001).
"""

import sys
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jaxdae
from jaxdae import mechanisms, tuning, vehicles
from jaxdae.app import conclude, line_style, precision, script, styled
from jaxdae.app.model.build import worlds

CONFIG = "configs/path_following.yaml"
METHOD = jaxdae.Kinematic.rk4()


def road(x: Any, given: dict[str, Any]) -> tuple[Any, Any]:
    """Return the road beside x in m, and its heading in rad."""
    amplitude, length = given["waves"]
    k = 2.0 * np.pi / length
    return amplitude * jnp.sin(k * x), jnp.arctan(amplitude * k * jnp.cos(k * x))


def pursuit(car: Any, state: Any, gains: dict[str, Any], given: dict[str, Any]) -> Any:
    """Return the steering angle of pure pursuit in rad."""
    x, y, _, _, heading = state
    ahead = gains["lookahead"]
    # A step along the road by its heading, and one to be at the distance: within a few percent on such a
    # road.
    target_x = x + ahead * jnp.cos(road(x + 0.5 * ahead, given)[1])
    target_y = road(target_x, given)[0]
    eta = jnp.arctan2(target_y - y, target_x - x) - heading
    return jnp.arctan(2.0 * car.wheelbase * jnp.sin(eta) / ahead)


def stanley(car: Any, state: Any, gains: dict[str, Any], given: dict[str, Any]) -> Any:
    """Return the steering angle of Stanley's law in rad."""
    x, y, _, speed, heading = state
    front_x, front_y = x + car.wheelbase * jnp.cos(heading), y + car.wheelbase * jnp.sin(heading)
    beside, along = road(front_x, given)
    error = (front_y - beside) * jnp.cos(along)
    return gains["heading"] * (along - heading) - jnp.arctan(gains["cross"] * error / speed)


def trailer_of(car: Any, state: Any) -> tuple[Any, Any]:
    """Return place across the line in m and heading in rad of the trailer."""
    heading = state[4] + state[5]
    return state[1] - car.trailer * jnp.sin(heading), heading


def reversing(car: Any, state: Any, gains: dict[str, Any], given: dict[str, Any]) -> Any:
    """Return the steering angle of the cascade in rad."""
    beside, heading = trailer_of(car, state)
    wished = -0.6 * jnp.tanh(gains["heading"] * (heading - gains["cross"] * beside) / 0.6)
    return -gains["hitch"] * (state[5] - wished)


@jaxdae.tree.pytree
class Train(jaxdae.KinematicSystem):
    """A truck with trailers: the state of `KinematicSingleTrack` and one angle per hitch.

    The state is (x, y, steering angle, speed, heading).

    Attributes:
        embedded: `truck_and_trailers` in joint coordinates, without rows.
        lengths: of the trailers in m, whose hitches are on the axles before them.
    """

    embedded: Any
    lengths: Any

    n_inputs = 2

    def rate(self, t: Any, x: Any, u: Any) -> Any:
        """Return x' of the inputs (steering rate in rad/s, acceleration in m/s^2)."""
        q = jnp.concatenate([x[:2], x[4:5], x[2:3], x[5:]])
        v = self.embedded.rate(t, q, jnp.stack([x[3], u[0]]))
        return jnp.concatenate([v[:2], u, v[2:3], v[4:]])


def train(wheelbase: Any, given: dict[str, Any]) -> Train:
    """Return the truck with its trailers."""
    lengths = given["trailers"]
    description = vehicles.truck_and_trailers(wheelbase, lengths, [0.0] * len(lengths))
    return Train(
        mechanisms.Embedded(mechanisms.kinematic_mechanism(description, mechanisms.Joints())[0]),
        jnp.asarray(lengths),
    )


def axles(lengths: Any, states: Any) -> list[tuple[Any, Any, Any]]:
    """Return x and y in m and the heading in rad of the rear axle and of that of each trailer."""
    found = [(states[..., 0], states[..., 1], states[..., 4])]
    for k in range(len(lengths)):
        x, y, heading = found[-1]
        own = heading + states[..., 5 + k]
        found.append((x - lengths[k] * jnp.cos(own), y - lengths[k] * jnp.sin(own), own))
    return found


def reversing_train(car: Any, state: Any, gains: dict[str, Any], given: dict[str, Any]) -> Any:
    """Return the steering angle of the cascade for two trailers in rad."""
    _, beside, heading = axles(car.lengths, state)[-1]
    first, second = state[5], state[6]
    wished = -0.6 * jnp.tanh(gains["heading"] * (heading - gains["cross"] * beside) / 0.6)
    bent = car.lengths[0] * (second / car.lengths[1] + gains["second"] * (second - wished))
    return -gains["hitch"] * (first - 0.8 * jnp.tanh(bent / 0.8))


def followed(law: Any, car: Any, starts: Any, gains: dict[str, Any], config: Any) -> tuple[Any, Any]:
    """Return states (starts, steps, nx) and steering rates (starts, steps) of a law."""
    given = config.experiment

    def rate(state: Any) -> Any:
        asked = given["steering"] * jnp.tanh(law(car, state, gains, given) / given["steering"])
        return (asked - state[2]) / given["lag"]

    def inputs(t: Any, state: Any) -> Any:
        turning = rate(state.q)
        return jnp.stack([turning, jnp.zeros_like(turning)])

    def one(start: Any) -> Any:
        run = jaxdae.rollout(
            car,
            METHOD,
            jaxdae.State(jnp.zeros(()), start, jnp.zeros_like(start)),
            inputs,
            dt=config.dt,
            steps=config.steps,
        )
        return run.state.q, jax.vmap(rate)(run.state.q)

    return jax.vmap(one)(starts)


def off_road(car: Any, states: Any, given: dict[str, Any]) -> Any:
    """Return how far the rear axle is from the road in m."""
    beside, along = road(states[..., 0], given)
    return (states[..., 1] - beside) * jnp.cos(along)


def off_line(car: Any, states: Any, given: dict[str, Any]) -> Any:
    """Return how far the axle of the trailer is from the line in m."""
    return states[..., 1] - car.trailer * jnp.sin(states[..., 4] + states[..., 5])


def off_behind(car: Any, states: Any, given: dict[str, Any]) -> Any:
    """Return how far the axle of the last trailer is from the line in m."""
    return axles(car.lengths, states)[-1][1]


def tuned(law: Any, off: Any, car: Any, starts: Any, gains: dict[str, Any], config: Any) -> Any:
    """Return the gains that follow best."""
    given = config.experiment

    def residual(parameters: Any) -> Any:
        states, rates = followed(law, car, starts, jax.tree.map(jnp.exp, parameters), config)
        return jnp.concatenate([off(car, states, given).reshape(-1), given["effort"] * rates.reshape(-1)])

    start = {name: jnp.log(value) for name, value in gains.items()}
    found = jax.jit(lambda: tuning.least_squares(residual, start, max_step=0.3, iterations=40))()
    return jax.tree.map(jnp.exp, found.parameters)


def cases(system: Any, q: Any, given: dict[str, Any]) -> dict[str, tuple[Any, Any, Any, Any]]:
    """Return laws with their distance, car and starts, by the names of their gains."""
    wheels = vehicles.wheels_of(system, q)
    wheelbase = wheels.place[wheels.number("front"), 0] - wheels.place[wheels.number("rear"), 0]
    car, truck = (
        vehicles.KinematicSingleTrack(wheelbase),
        vehicles.KinematicSingleTrackTrailer(wheelbase, given["trailer"]),
    )
    along = float(road(jnp.zeros(()), given)[1])
    starts = jnp.asarray([[0.0, offset, 0.0, given["speed"], along] for offset in given["offsets"]])
    back = jnp.asarray(
        [[0.0, offset, 0.0, given["reverse"], 0.0, 0.0] for offset in given["reverse_offsets"]]
    )
    longer = jnp.asarray(
        [[0.0, offset, 0.0, given["reverse"], 0.0, 0.0, 0.0] for offset in given["train_offsets"]]
    )
    return {
        "pursuit": (pursuit, off_road, car, starts),
        "stanley": (stanley, off_road, car, starts),
        "reversing": (reversing, off_line, truck, back),
        "train": (reversing_train, off_behind, train(wheelbase, given), longer),
    }


def on_a_circle(car: Train, given: dict[str, Any], config: Any) -> Any:
    """Return the states (steps, 7) of a train on a circle, with a steering ramp in the first second."""
    steps = round(given["circle_time"] / config.dt)
    turning = jnp.where(jnp.arange(steps) * config.dt < 1.0, given["circle"], 0.0)
    start = jaxdae.State(jnp.zeros(()), jnp.zeros(7).at[3].set(-given["reverse"]), jnp.zeros(7))
    return jaxdae.rollout(
        car, METHOD, start, jnp.stack([turning, 0.0 * turning], axis=1), dt=config.dt
    ).state.q


def main() -> int:
    """Run the experiment and return its exit code."""
    asked = script(CONFIG, __doc__)
    config, given = asked.config, asked.config.experiment
    paths, rows, rms = {}, [], {}
    with precision(config):
        system, _, start = worlds(config).one()
        asked_of = cases(system, start.q, given)
        for name, (law, off, car, starts) in asked_of.items():
            before = jax.tree.map(jnp.asarray, given["gains"][name])
            after = tuned(law, off, car, starts, before, config)
            for when, gains in (("before", before), ("after", after)):
                states, rates = (np.asarray(each) for each in followed(law, car, starts, gains, config))
                away = np.asarray(off(car, states, given))
                rms[name, when] = float(np.sqrt(np.mean(away**2)))
                paths[name, when] = states
                written = ", ".join(f"{key} {float(value):.3g}" for key, value in gains.items())
                rows.append(
                    (
                        name,
                        when,
                        written,
                        f"{rms[name, when]:.3f}",
                        f"{np.abs(away[:, -20:]).max():.3f}",
                        f"{np.abs(rates).max():.2f}",
                    )
                )
        swept = on_a_circle(asked_of["train"][2], given, config)
        places = [np.asarray(jnp.stack(each)) for each in axles(given["trailers"], swept)]
        wheelbase = float(asked_of["pursuit"][2].wheelbase)
    headings = (
        "law",
        "tuned",
        "gains",
        "rms distance, m",
        "largest in the last second, m",
        "largest steering rate, rad/s",
    )
    fold, bend = (np.abs(paths[name, "after"][:, :, 5:]).max() for name in ("reversing", "train"))
    radius = wheelbase / np.tan(given["circle"])
    # Of three places of an axle that are a third of the way apart, on their circle.
    found = [_radius(*each[:2, [-1, -len(each[0]) // 6, -len(each[0]) // 3]].T) for each in places]
    exact = np.sqrt(radius**2 - np.cumsum([0.0, *np.square(given["trailers"])]))
    sentences = [
        f"Tuning takes pure pursuit from {rms['pursuit', 'before']:.2f} to {rms['pursuit', 'after']:.2f} m "
        "of the road (rms), Stanley's law"
        f" from {rms['stanley', 'before']:.2f} to {rms['stanley', 'after']:.2f} m, the trailer from "
        f"{rms['reversing', 'before']:.2f} to"
        f" {rms['reversing', 'after']:.2f} m of its line.",
        f"The last of two trailers comes from {rms['train', 'before']:.2f} to {rms['train', 'after']:.2f} m "
        "of the line.",
        f"Tuned, nothing folds: the hitch of one trailer turns by {fold:.2f} rad at most, those of two by "
        f"{bend:.2f} rad.",
        f"On a circle of {radius:.2f} m the axle of the last trailer runs on {found[-1]:.3f} m; the closed "
        f"form is {exact[-1]:.3f} m.",
    ]
    with styled() as figure_class:
        figure = figure_class(figsize=(11, 9), layout="constrained")
        for row, name in enumerate(asked_of):
            axes = figure.add_subplot(len(asked_of), 1, row + 1)
            with precision(config):
                draw(axes, name, paths, given)
        circle = figure_class(figsize=(7, 6.5), layout="constrained")
        sweep(circle.subplots(), places, wheelbase, given)
    conclude(asked, headings, rows, sentences, {"path_following": figure, "swept": circle})
    return 0


def _radius(a: Any, b: Any, c: Any) -> float:
    """Return the radius of the circle through three places (2,)."""
    sides = [float(np.hypot(*(q - p))) for p, q in ((a, b), (b, c), (c, a))]
    (px, py), (qx, qy) = b - a, c - a
    return float(np.prod(sides) / (2.0 * abs(px * qy - py * qx)))


def sweep(axes: Any, places: list[np.ndarray], wheelbase: float, given: dict[str, Any]) -> None:
    """Draw the outlines of a train on a circle, and the ways of its axles."""
    for index, (x, y, heading) in enumerate(places):
        front = wheelbase + 0.9 if not index else given["trailers"][index - 1] - 0.4
        along, across = np.array([-0.9, front, front, -0.9]), np.array([-1.0, -1.0, 1.0, 1.0])
        color = line_style(index)["color"]
        for k in range(0, len(x), 10):
            cos, sin = np.cos(heading[k]), np.sin(heading[k])
            axes.fill(
                x[k] + cos * along - sin * across,
                y[k] + sin * along + cos * across,
                color=color,
                alpha=0.05,
                linewidth=0,
            )
        cos, sin = np.cos(heading[-1]), np.sin(heading[-1])
        axes.fill(
            x[-1] + cos * along - sin * across,
            y[-1] + sin * along + cos * across,
            facecolor="none",
            edgecolor=color,
        )
        axes.plot(
            x,
            y,
            label="rear axle of the truck" if not index else f"axle of trailer {index}",
            **line_style(index),
        )
    axes.set(xlabel="x in m", ylabel="y in m", title="what a truck with two trailers sweeps", aspect="equal")
    axes.legend(loc="upper left")


def draw(axes: Any, name: str, paths: Any, given: dict[str, Any]) -> None:
    """Draw where a law goes before and after tuning."""
    behind = {"reversing": [given["trailer"]], "train": given["trailers"]}
    for index, when in enumerate(("before", "after")):
        for k, states in enumerate(paths[name, when]):
            x, y = states[:, 0], states[:, 1]
            if name in behind:
                x, y, _ = axles(behind[name], states)[-1]
            axes.plot(x, y, label=f"{when} tuning" if not k else None, linewidth=1.0, **line_style(index))
    low, high = axes.get_xlim()
    x = np.linspace(low, high, 300)
    axes.plot(
        x,
        0.0 * x if name in behind else np.asarray(road(x, given)[0]),
        color="black",
        linewidth=0.8,
        label="the path",
        zorder=1,
    )
    titles = {
        "pursuit": "pure pursuit, rear axle",
        "stanley": "Stanley's law, rear axle",
        "reversing": "axle of the trailer, driving to the left",
        "train": "axle of the last of two trailers, driving to the left",
    }
    axes.set(xlabel="x in m", ylabel="y in m", title=titles[name])
    axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0))


if __name__ == "__main__":
    sys.exit(main())

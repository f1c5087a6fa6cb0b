"""How does a rover with a rocker-bogie suspension drive over hills, and how much do its wheels have to slip?

Six heights and the differential hold exactly, the wheels turn as they are told to, and the slip of all
wheels, sideways and forward, is the least in squares (`LeastSlip`). Integrated in time the rover keeps to the
ground only as well as its velocities do, so that placing it anew, from x, y and heading alone, is an
independent check of height, roll, pitch and the angles of the suspension.

    python experiments/rover_terrain.py [CONFIG] [--set PATH=VALUE ...] [--out DIR]
"""

import sys
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pydantic

import jaxdae
from jaxdae import vehicles
from jaxdae.app import conclude, line_style, precision, script, settings, styled

CONFIG = "configs/rover_terrain.yaml"


class Start(pydantic.BaseModel, extra="forbid"):
    """Where the rover starts: x and y in m, the heading in rad."""

    place: tuple[float, float]
    yaw: float


class Settings(pydantic.BaseModel, extra="forbid"):
    """The section `experiment` of the config."""

    start: Start
    rates: tuple[float, float, float, float, float, float]
    duration: float = pydantic.Field(gt=0)
    dt: float = pydantic.Field(gt=0)


class Drive(NamedTuple):
    """The drive: coordinates (n, nq), slip (n, 12) in m/s, gaps (n, 6), placement errors (n,)."""

    t: np.ndarray
    q: np.ndarray
    slip: np.ndarray
    gap: np.ndarray
    apart: np.ndarray


def heading(mechanism: Any, q: Any) -> Any:
    """Return the heading of the body in rad."""
    frame = jax.tree.map(lambda x: x[0], mechanism.frames(q))
    return jnp.arctan2(frame.r21, frame.r11)


def placed(mechanism: Any, q: Any, place: Any, yaw: Any) -> tuple[Any, Any]:
    """Return the coordinates of the rover that stands at a place, and its report."""
    return vehicles.place_on_terrain(mechanism, q, place, yaw, suspension=vehicles.ROVER_SUSPENSION)


@jax.jit
def after_step(rover: Any, state: Any, u: Any, dt: Any) -> tuple[Any, Any]:
    """Return the state after a step, and its slip before it."""
    slip = rover.motion(state.t, state.q, u)[1]
    return jaxdae.Kinematic.rk4().step(rover, state, (), u, dt)[0], slip


@jax.jit
def checked(mechanism: Any, q: Any) -> tuple[Any, Any, Any]:
    """Return the gaps beneath the wheels, how far q is from the pose that is placed there, and the status."""
    report = vehicles.terrain_report(mechanism, q)
    again, _ = placed(mechanism, q, q[:2], heading(mechanism, q))
    return report.gap, jnp.max(jnp.abs(mechanism.difference(again, q))), report.status


def driven(mechanism: Any, q: Any, plan: Settings) -> Drive:
    """Return the drive from a placed start."""
    rover = vehicles.LeastSlip(mechanism, tuple(f"{wheel}.angle_rate" for wheel in vehicles.ROVER_WHEELS))
    u, dt = jnp.asarray(plan.rates, q.dtype), jnp.asarray(plan.dt, q.dtype)
    state = jaxdae.State(jnp.zeros((), q.dtype), q, jnp.zeros((len(mechanism.names.velocities),), q.dtype))
    rows = []
    for _ in range(round(plan.duration / plan.dt) + 1):
        gap, apart, status = checked(mechanism, state.q)
        if int(status) != jaxdae.Status.OK:
            raise jaxdae.SimulationError(f"at {float(state.t):g} s: {jaxdae.Status(int(status)).meaning}")
        new, slip = after_step(rover, state, u, dt)
        rows.append([np.asarray(part) for part in (state.t, state.q, slip, gap, apart)])
        state = new
    return Drive(*(np.array(column) for column in zip(*rows, strict=True)))


def main() -> int:
    """Run the experiment and return its exit code."""
    asked = script(CONFIG, __doc__)
    plan = settings(asked, Settings)
    if plan is None:
        return 2
    with precision(asked.config):
        mechanism, _, start = asked.worlds.one()
        q, report = placed(mechanism, start.q, jnp.asarray(plan.start.place), jnp.asarray(plan.start.yaw))
        if int(report.status) != jaxdae.Status.OK:
            raise jaxdae.SimulationError(f"the start: {jaxdae.Status(int(report.status)).meaning}")
        drive = driven(mechanism, q, plan)
        figure = drawn(mechanism, drive)
    names = mechanism.names.coordinates
    headings = ("joint", "smallest, deg", "largest, deg")
    columns = {joint: drive.q[:, names.index(f"{joint}.angle")] for joint in vehicles.ROVER_SUSPENSION}
    rows = [
        (name, *(f"{np.degrees(pick(angle)):.2f}" for pick in (np.min, np.max)))
        for name, angle in columns.items()
    ]
    size = np.sqrt(np.sum(drive.slip**2, axis=1))
    length = float(np.sum(np.linalg.norm(np.diff(drive.q[:, :2], axis=0), axis=1)))
    sentences = [
        f"In {drive.t[-1]:g} s the rover drives {length:.2f} m; its wheels are off the ground by at most"
        f" {np.max(np.abs(drive.gap)):.1e} m.",
        f"The slip of all rows together is between {np.min(size):.3f} and {np.max(size):.3f} m/s, that of a "
        "single one at most"
        f" {np.max(np.abs(drive.slip)):.3f}.",
        f"Placed anew from x, y and heading it stands as it drove to within {np.max(drive.apart):.1e} m and "
        "rad.",
    ]
    conclude(asked, headings, rows, sentences, {"rover": figure})
    return 0


def side_view(axes: Any, mechanism: Any, terrain: Any, q: Any, side: str) -> None:
    """Draw the left or right suspension and the ground beneath it in the vertical plane of the heading."""
    frames = mechanism.frames(q)
    places = {
        name: np.array([frames.x[k], frames.y[k], frames.z[k]]) for k, name in enumerate(mechanism.body_names)
    }
    yaw = float(heading(mechanism, q))
    forward = np.array([np.cos(yaw), np.sin(yaw), 0.0])
    base = places["base_link"]

    def seen(name: str) -> tuple[float, float]:
        return float((places[name] - base) @ forward), float(places[name][2])

    rocker, bogie = f"{side}_rocker", f"{side}_bogie"
    chains = (
        ("base_link", rocker, f"front_{side}"),
        (rocker, bogie, f"middle_{side}"),
        (bogie, f"rear_{side}"),
    )
    for chain in chains:
        axes.plot(*zip(*map(seen, chain), strict=True), "-o", markersize=4, color=line_style(1)["color"])
    radius = float(next(iter(mechanism.joints.values())).radius[0])
    angle = np.linspace(0.0, 2.0 * np.pi, 60)
    for wheel in ("front", "middle", "rear"):
        x, z = seen(f"{wheel}_{side}")
        axes.plot(x + radius * np.cos(angle), z + radius * np.sin(angle), color="0.2", linewidth=1.2)
    # The ground under the line through the wheels of this side.
    across = places[f"middle_{side}"] - base
    across = across - (across @ forward) * forward
    s = np.linspace(-0.3, 0.65, 80)
    line = base[:2] + across[:2] + s[:, None] * forward[:2]
    ground = np.asarray(jax.vmap(terrain.height)(jnp.asarray(line[:, 0]), jnp.asarray(line[:, 1])))
    axes.fill_between(s, ground, ground.min() - 0.1, color="0.85")
    axes.plot(s, ground, color="0.4", linewidth=1.0)
    axes.set(
        xlabel="forward of the body in m",
        ylabel="z in m",
        aspect="equal",
        ylim=(ground.min() - 0.1, base[2] + 0.15),
    )


def drawn(mechanism: Any, drive: Drive) -> Any:
    """Return the figure: path, left view at the largest rocker angle, angles and slip over time."""
    terrain = jax.tree.map(lambda leaf: leaf[0], next(iter(mechanism.joints.values())).terrain)
    x, y = drive.q[:, 0], drive.q[:, 1]
    span = np.linspace(min(x.min(), y.min()) - 0.8, max(x.max(), y.max()) + 0.8, 160)
    z = np.asarray(
        jax.vmap(lambda a: jax.vmap(lambda b: terrain.height(b, a))(jnp.asarray(span)))(jnp.asarray(span))
    )
    names = mechanism.names.coordinates
    angles = {
        joint: np.degrees(drive.q[:, names.index(f"{joint}.angle")]) for joint in vehicles.ROVER_SUSPENSION
    }
    at = int(np.argmax(np.abs(angles["left_rocker"])))
    with styled() as figure_class:
        figure = figure_class(figsize=(10.5, 7.2), layout="constrained")
        (path, side), (suspension, slips) = figure.subplots(2, 2)
        picture = path.imshow(z, extent=(span[0], span[-1]) * 2, origin="lower", cmap="terrain", alpha=0.8)
        path.contour(span, span, z, levels=12, colors="0.35", linewidths=0.4)
        path.plot(x, y, color="black", linewidth=2.0)
        path.plot(x[0], y[0], "o", color="black")
        path.plot(x[at], y[at], "D", color=line_style(1)["color"])
        path.annotate("side view", (x[at], y[at]), xytext=(8, -4), textcoords="offset points")
        margin = 0.8
        path.set(xlim=(x.min() - margin, x.max() + margin), ylim=(y.min() - margin, y.max() + margin))
        path.set(xlabel="x in m", ylabel="y in m", title="path over the hills", aspect="equal")
        path.grid(visible=False)
        figure.colorbar(picture, ax=path, label="height in m")
        side_view(side, mechanism, terrain, jnp.asarray(drive.q[at]), "left")
        side.set_title(f"left side at {drive.t[at]:.1f} s")
        for index, (name, values) in enumerate(angles.items()):
            suspension.plot(drive.t, values, label=name.replace("_", " "), **line_style(index))
        suspension.set(xlabel="time in s", ylabel="angle in deg", title="suspension")
        suspension.margins(y=0.3)
        suspension.legend(ncols=2, loc="upper center")
        lateral, rolling = (np.sqrt(np.mean(drive.slip[:, k::2] ** 2, axis=1)) for k in range(2))
        for index, (name, values) in enumerate((("sideways", lateral), ("forward", rolling))):
            slips.plot(drive.t, 1e3 * values, label=name, **line_style(index))
        slips.set(
            xlabel="time in s",
            ylabel="slip in mm/s",
            title="root mean square of the slip of six wheels",
            ylim=(0.0, None),
        )
        slips.legend()
    return figure


if __name__ == "__main__":
    sys.exit(main())

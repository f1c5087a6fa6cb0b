"""A motor that replaces a force at the end of a pendulum: the published example of goals and virtual work.

A point mass on a rod; the motor is to hold it at an angle. The goal is a place of the mass, solved as if
there were no rod, and its force lam is exchanged for the torque tau of the motor by virtual work, J_m^T tau =
lam in least squares: tau = y lam_x - x lam_y. Rod and motor are solved apart, each from the free velocity,
and both impulses act ("Controlling a pendulum with constraints", May 8, 2017, with its program).

    python experiments/motor_pendulum.py [CONFIG] [--set PATH=VALUE ...] [--out DIR]

Three steppers, of the same parts:

* published: the torque acts by the lever [y, -x], as in the published program. Compared with its frames to
  1e-12.
* consistent: the torque acts by J_m = [y, -x] / r^2, the derivative of the angle. It is J_m^T tau that does
  the work of lam; tau [y, -x] does r^2 times that. The difference vanishes on the circle, and steps leave it:
  the first one, of 48 mm in 1 ms, goes along the tangent, and r^2 - 1 = (h v)^2 after it.
* joint motor: the angle itself is the goal, solved together with the rod. No virtual work is needed.
"""

import sys
from typing import Any

import jax.numpy as jnp
import numpy as np
import pydantic
import xarray as xr

import jaxdae
from jaxdae import control
from jaxdae.app import (
    begin,
    finish,
    line_style,
    precision,
    script,
    show_table,
    styled,
    table_lines,
    write_animation,
)

CONFIG = "configs/motor_pendulum.yaml"
STEPPERS = ("published", "consistent", "joint motor")


class Frame(pydantic.BaseModel, extra="forbid", strict=True):
    """The place of the mass in a frame of the published program, in m."""

    frame: pydantic.PositiveInt
    x: float
    y: float


class Settings(pydantic.BaseModel, extra="forbid", strict=True):
    """The section `experiment` of the config."""

    target: float
    beta_rod: float = pydantic.Field(gt=0.0, lt=2.0)
    beta_goal: float = pydantic.Field(gt=0.0, lt=2.0)
    published: list[Frame]


def angle(q: Any) -> Any:
    """Return the angle of the rod (1,) in rad, zero below, growing to the left.

    Its derivative is [y, -x] / r^2, as of atan(x / y).
    """
    return jnp.arctan2(-q[0], -q[1])[None]


def lever(t: Any, q: Any) -> Any:
    """Return [y, -x], by which the published program lets a unit of torque act (1, 3)."""
    return jnp.stack([q[1], -q[0], jnp.zeros_like(q[0])])[None]


def steppers(mechanism: Any, settings: Settings) -> dict[str, control.VelocityStepping]:
    """Return the three steppers."""
    end = control.BodyPoint.named(mechanism, mechanism.body_names[0], (0.0, 0.0))
    place = jnp.asarray([np.sin(settings.target), -np.cos(settings.target)], mechanism.mass.dtype)

    def decoupled(motors: control.VirtualWork) -> control.VelocityStepping:
        goal = control.GoalGroup(
            goals=(control.Goal(end, place),),
            beta=settings.beta_goal,
            coupling=control.Coupling.FREE,
            motors=motors,
        )
        return control.VelocityStepping(settings.beta_rod, (goal,), constraints=control.ConstraintOrder.FREE)

    joint = control.GoalGroup(goals=(control.Goal(angle, -settings.target),), beta=settings.beta_goal)
    return {
        "published": decoupled(control.VirtualWork((angle,), lever, project=False)),
        "consistent": decoupled(control.VirtualWork((angle,), project=False)),
        "joint motor": control.VelocityStepping(settings.beta_rod, (joint,)),
    }


def simulate(config: Any, settings: Settings, worlds: Any) -> xr.Dataset:
    """Return positions (stepper, frame, 2) in m and torques (stepper, frame) in N m of all steppers.

    Each torque is the torque of the step after the frame.
    """
    mechanism, _, start = worlds.one()
    places, torques = [], []
    for stepper in steppers(mechanism, settings).values():
        trajectory = jaxdae.rollout(mechanism, stepper, start, dt=config.dt, steps=config.steps)
        jaxdae.raise_if_failed(trajectory)
        places.append(np.concatenate([np.asarray(start.q)[None, :2], np.asarray(trajectory.state.q)[:, :2]]))
        # The multiplier of a row in rad is a torque; positive to the left, as the angle.
        torques.append(np.append(np.asarray(trajectory.info.efforts[0])[:, 0], np.nan))
    frames = np.arange(config.steps + 1)
    axes = ("stepper", "frame")
    return xr.Dataset(
        {"place": ((*axes, "coordinate"), np.stack(places)), "torque": (axes, np.stack(torques))},
        {
            "stepper": list(STEPPERS),
            "frame": frames,
            "time": ("frame", config.dt * frames),
            "coordinate": ["x", "y"],
        },
    )


def compare(data: xr.Dataset, settings: Settings) -> list[tuple[str, ...]]:
    """Return the rows of the table: frame, coordinate, published, and what each stepper differs by."""
    rows = []
    for published in settings.published:
        for name in ("x", "y"):
            exact = getattr(published, name)
            found = data.place.sel(frame=published.frame, coordinate=name)
            cells = [f"{float(found.sel(stepper=stepper)) - exact:.1e}" for stepper in STEPPERS]
            rows.append((str(published.frame), name, f"{exact:.16g}", *cells))
    return rows


def findings(data: xr.Dataset, settings: Settings) -> list[str]:
    """Return what the frames say."""
    radius = np.hypot(*np.moveaxis(data.place.values, -1, 0))
    angles = np.arctan2(data.place.values[..., 0], -data.place.values[..., 1])
    errors = [
        abs(float(data.place.sel(stepper="published", frame=f.frame, coordinate=name)) - getattr(f, name))
        for f in settings.published
        for name in ("x", "y")
    ]
    apart = np.linalg.norm(data.place.values[1] - data.place.values[0], axis=-1)
    within = {
        name: int(np.max(np.flatnonzero(np.abs(x - settings.target) > 1e-3), initial=-1)) + 1
        for name, x in zip(STEPPERS, angles, strict=True)
    }
    ends = ", ".join(
        f"{name} {x[-1] - settings.target:.1e} rad" for name, x in zip(STEPPERS, angles, strict=True)
    )
    return [
        f"**Published frames**: reproduced to {max(errors):.1e} m.",
        f"**The rod** is off by up to {1e3 * np.max(np.abs(radius[0] - 1)):.2f} mm, after the first frame "
        f"(r^2 = {radius[0, 1] ** 2:.6f}),"
        f" where step and torque are largest, and by {abs(radius[0, -1] - 1):.1e} m in the last one.",
        f"**The lever**: consistent virtual work moves the mass by up to {1e3 * np.max(apart):.3f} mm "
        "differently"
        f" (frame {int(np.argmax(apart))}).",
        "**The goal** is within 1 mrad from frame "
        + ", ".join(f"{within[name]} ({name})" for name in STEPPERS)
        + f" on; at the end: {ends}.",
    ]


def draw(data: xr.Dataset, settings: Settings):
    """Return the figure: angle, torque and length of the rod."""
    with styled() as figure_class:
        figure = figure_class(figsize=(9, 8), layout="constrained")
        upper, middle, lower = figure.subplots(3, 1, sharex=True)
        published = data.place.sel(stepper="published").values
        milliseconds = 1e3 * data.time.values
        for k, name in enumerate(STEPPERS):
            found = data.sel(stepper=name)
            x, y = found.place.values.T
            style = {**line_style(k), "linewidth": 4.0 - 1.5 * k}
            upper.plot(milliseconds, np.arctan2(x, -y), label=name, **style)
            middle.plot(milliseconds, -found.torque, **style)
            if k:
                apart = np.linalg.norm(found.place.values - published, axis=-1)
                lower.plot(
                    milliseconds,
                    np.maximum(apart, 1e-17),
                    label=f"{name}, distance from published",
                    **line_style(k),
                )
        off = np.abs(np.linalg.norm(published, axis=-1) - 1.0)
        lower.plot(milliseconds, np.maximum(off, 1e-17), label="published, error of the rod", **line_style(0))
        upper.axhline(settings.target, color="black", linewidth=0.6)
        upper.set(
            ylabel="angle in rad",
            title="a pendulum with a motor, 1 ms a frame",
            xlim=(0.0, min(150.0, milliseconds[-1])),
        )
        middle.set(ylabel="torque to the right in N m")
        middle.set_yscale("symlog", linthresh=10.0)
        lower.set(ylabel="m", xlabel="time in ms", yscale="log")
        lower.legend()
        figure.legend(*upper.get_legend_handles_labels(), loc="outside right upper")
        return figure


def main() -> int:
    """Run the experiment and return its exit code."""
    asked = script(CONFIG, __doc__)
    config, console = asked.config, asked.console
    settings = jaxdae.app.settings(asked, Settings)
    if settings is None:
        return 2
    last = max((frame.frame for frame in settings.published), default=0)
    if last > config.steps:
        console.print(
            f"{asked.source}: experiment.published: frame {last} is beyond the last of {config.steps}",
            markup=False,
        )
        return 2
    with precision(config):
        data = simulate(config, settings, asked.worlds)
    folder, record = begin(config, asked.out, asked.source)
    data.to_zarr(folder / "motor_pendulum.zarr", zarr_format=2, consolidated=False)
    draw(data, settings).savefig(folder / "motor_pendulum.png", bbox_inches="tight")
    places = data.place.values
    rods = {name: np.stack([np.zeros_like(x), x], axis=1) for name, x in zip(STEPPERS, places, strict=True)}
    goal = [[np.sin(settings.target), -np.cos(settings.target)]]
    write_animation(folder / "motor_pendulum.gif", data.time, rods, points={"goal": goal}, title=config.name)
    headings = ("frame", "", "published, m", *(f"{name}: difference, m" for name in STEPPERS))
    rows, said = compare(data, settings), findings(data, settings)
    show_table(console, "against the published program", headings, rows)
    lines = [*said, f"run folder: {folder}"]
    for line in lines:
        console.print(line, highlight=False, markup=False, soft_wrap=True)
    table = "\n".join(table_lines(headings, rows))
    text = "\n".join(f"- {line}" for line in said)
    pictures = "![angle, torque, rod](motor_pendulum.png)\n\n![motion](motor_pendulum.gif)"
    (folder / "report.md").write_text(
        f"# {config.name}\n\n{config.description}\n\n{text}\n\n{table}\n\n{pictures}\n", encoding="utf-8"
    )
    finish(
        folder, record, motor_pendulum=[dict(zip(headings, row, strict=True)) for row in rows], findings=said
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""A path of constant curvature by Euler's method, the midpoint method and RK4: accuracy against code length.

The path is the notes' example, integrated with respect to its length s:

    x' = (cos theta, sin theta, kappa),      x(0) = 0,      theta = kappa s,      (x, y) = (sin theta, 1 - cos theta) / kappa.

Checked are three statements of the notes (A. Kelly, "Mobile Robotics", section 3.5.2): that the midpoint
method has an error twenty times smaller than Euler's, that RK4 "can be 1000 times more accurate", and that "a
few lines of code can be the difference between 100 mm of error after moving 10 meters, 0.1 mm of error after
moving 10 meters".

    python experiments/arc.py [CONFIG] [--set PATH=VALUE ...] [--out DIR]

The error is the distance between the end points, sqrt(dx^2 + dy^2) in m. The heading theta is exact in all
three methods.
"""

import sys
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pydantic
import xarray as xr

import jaxdae
from jaxdae.app import begin, finish, line_style, precision, script, show_table, styled, table_lines

CONFIG = "configs/arc.yaml"
METHODS = {
    "Euler": jaxdae.Kinematic.euler(),
    "midpoint": jaxdae.Kinematic.midpoint(),
    "RK4": jaxdae.Kinematic.rk4(),
}
ORDERS = {"Euler": 1, "midpoint": 2, "RK4": 4}
EVALUATIONS = {name: len(method.tableau.b) for name, method in METHODS.items()}  # of the rate, a step
WHOLE = 1e-9  # a path whose length differs from a whole number of steps by less, relative, ends with a step


@jaxdae.tree.pytree
class Arc(jaxdae.KinematicSystem):
    """A path (x, y, theta) of constant curvature in 1/m; time is the length along it in m."""

    curvature: Any

    def rate(self, t, x, u):
        """Return the direction of the path, and its curvature."""
        return jnp.stack([jnp.cos(x[2]), jnp.sin(x[2]), self.curvature])


Length = pydantic.PositiveFloat


class Settings(pydantic.BaseModel, extra="forbid", strict=True):
    """The section `experiment` of the config."""

    curvature: float
    length: Length
    steps: list[Length] = pydantic.Field(min_length=1)
    far: Length
    far_steps: list[Length] = pydantic.Field(min_length=1)
    large: Length
    small: Length

    @pydantic.field_validator("curvature")
    @classmethod
    def _curved(cls, curvature: float) -> float:
        if curvature == 0.0:
            raise ValueError("must not be zero: every method integrates a straight line exactly")
        return curvature

    @pydantic.model_validator(mode="after")
    def _whole_steps(self) -> "Settings":
        for name, steps, length in (
            ("steps", self.steps, self.length),
            ("far_steps", self.far_steps, self.far),
        ):
            for step in steps:
                count = round(length / step)
                if count < 1 or abs(count * step - length) > WHOLE * length:
                    raise ValueError(f"{name}: {length:g} m must be a whole number of steps of {step:g} m")
        return self


def exact(curvature: float, s: np.ndarray) -> np.ndarray:
    """Return the path (..., 2) at the lengths s."""
    angle = curvature * s
    # 1 - cos without cancellation.
    return np.stack([np.sin(angle), 2.0 * np.sin(0.5 * angle) ** 2], axis=-1) / curvature


def integrate(curvature: float, length: float, steps: list[float], dtype: Any) -> xr.Dataset:
    """Return final and largest errors (integrator, step) in m, and paths (integrator, step, node, 3)."""
    counts = [round(length / step) for step in steps]
    system = Arc(jnp.asarray(curvature, dtype))
    start = jaxdae.State(jnp.zeros((), dtype), jnp.zeros(3, dtype), jnp.zeros(3, dtype))
    shape = (len(METHODS), len(steps))
    paths = np.full((*shape, max(counts) + 1, 3), np.nan)
    end, largest, heading = np.zeros(shape), np.zeros(shape), np.zeros(shape)
    for row, method in enumerate(METHODS.values()):
        for column, (step, count) in enumerate(zip(steps, counts, strict=True)):
            # One program a method: dt is data, and what lies beyond the end is not looked at.
            trajectory = jaxdae.rollout(system, method, start, dt=step, steps=max(counts))
            paths[row, column, 0] = 0.0
            paths[row, column, 1 : count + 1] = np.asarray(trajectory.state.q)[:count]
            places = exact(curvature, length / count * np.arange(count + 1))
            distance = np.linalg.norm(paths[row, column, : count + 1, :2] - places, axis=-1)
            end[row, column], largest[row, column] = distance[-1], distance.max()
            heading[row, column] = abs(paths[row, column, count, 2] - curvature * length)
    axes = ("integrator", "step")
    data = {"error": (axes, end), "largest": (axes, largest), "heading": (axes, heading)}
    data |= {"path": ((*axes, "node", "coordinate"), paths)}
    return xr.Dataset(
        data, {"integrator": list(METHODS), "step": np.array(steps), "coordinate": ["x", "y", "theta"]}
    )


def step_for(data: xr.Dataset, name: str, error: float) -> float:
    """Return the step for a given error, extrapolated by the order from the nearest measurement."""
    errors = data.error.sel(integrator=name).values
    k = int(np.abs(np.log(errors / error)).argmin())
    return float(data.step[k]) * float(error / errors[k]) ** (1.0 / ORDERS[name])


def error_at(data: xr.Dataset, name: str, step: float) -> float:
    """Return the error of a method at a step, by its order from the nearest measured step."""
    k = int(np.abs(np.log(data.step.values / step)).argmin())
    return float(data.error.sel(integrator=name)[k]) * float(step / data.step[k]) ** ORDERS[name]


def millimeters(error: float) -> str:
    """Return a length in mm, with three digits."""
    return f"{1e3 * error:.3g} mm"


def findings(near: xr.Dataset, far: xr.Dataset, settings: Settings) -> list[str]:
    """Return what the results say of the three statements."""

    def gains(better: str) -> str:
        ratios = near.error.sel(integrator="Euler").values / near.error.sel(integrator=better).values
        return ", ".join(
            f"{ratio:.3g} at {step:g} m" for ratio, step in zip(ratios, near.step.values, strict=True)
        )

    coarse = step_for(far, "Euler", settings.large)
    same_step = {name: error_at(far, name, coarse) for name in METHODS}
    same_work = {name: error_at(far, name, coarse * EVALUATIONS[name]) for name in METHODS}
    better = [name for name in METHODS if name != "Euler"]
    keep = {name: "holds" if same_step[name] <= settings.small else "does not hold" for name in better}
    work = {name: "holds" if same_work[name] <= settings.small else "does not hold" for name in better}
    reach = {name: step_for(far, name, settings.small) for name in METHODS}
    claim = f"{millimeters(settings.large)} or {millimeters(settings.small)} after {settings.far:g} m"
    return [
        f"**Midpoint against Euler**, errors over {settings.length:g} m: smaller by a factor of "
        f"{gains('midpoint')}. It grows as 1 / step.",
        f"**RK4 against Euler**: smaller by a factor of {gains('RK4')}. It grows as 1 / step^3.",
        f"**{claim}, same step.** Euler is off by {millimeters(settings.large)} with steps of {coarse:.3g} "
        "m; there "
        + ", ".join(
            f"{name} by {millimeters(same_step[name])} (the statement {keep[name]})" for name in better
        )
        + ".",
        f"**{claim}, same work.** With as many evaluations of the rate in all "
        + ", ".join(
            f"{name} takes steps of {coarse * EVALUATIONS[name]:.3g} m and is off by "
            f"{millimeters(same_work[name])}"
            f" (the statement {work[name]})"
            for name in better
        )
        + ".",
        f"**{millimeters(settings.small)}** takes steps of "
        + ", ".join(
            f"{reach[name]:.3g} m with {name} ({settings.far / reach[name] * EVALUATIONS[name]:.3g} "
            "evaluations)"
            for name in reach
        )
        + ".",
    ]


def rows(data: xr.Dataset, length: float, digits: int) -> list[tuple[str, ...]]:
    """Return the rows of the table: length, step, number of steps, final and largest errors per method."""
    table = []
    for step in data.step.values:
        cells = [
            f"{float(data[field].sel(integrator=name, step=step)):.{digits}g}"
            for name in METHODS
            for field in ("error", "largest")
        ]
        table.append((f"{length:g}", f"{step:g}", f"{round(length / step)}", *cells))
    return table


def draw(near: xr.Dataset, far: xr.Dataset, settings: Settings):
    """Return the figure: the paths with the longest step, and the errors over the step and over the work."""
    with styled() as figure_class:
        figure = figure_class(figsize=(13.5, 4.4), layout="constrained")
        path, by_step, by_work = figure.subplots(1, 3)
        arc = exact(settings.curvature, np.linspace(0.0, settings.length, 200))
        path.plot(arc[:, 0], arc[:, 1], color="black", linewidth=4.0, alpha=0.2, label="exact")
        longest = float(near.step.max())
        for k, name in enumerate(METHODS):
            style, errors = line_style(k), far.error.sel(integrator=name)
            nodes = near.path.sel(integrator=name, step=longest)
            path.plot(
                nodes.sel(coordinate="x"),
                nodes.sel(coordinate="y"),
                **style,
                marker="o",
                markersize=4,
                label=name,
            )
            by_step.plot(far.step, errors, **style, marker=".")
            by_work.plot(settings.far / far.step * EVALUATIONS[name], errors, **style, marker=".")
        path.set_aspect("equal")
        path.set_xlabel("x in m")
        path.set_ylabel("y in m")
        path.set_title(f"{settings.length:g} m in steps of {longest:g} m")
        path.legend()
        for axes, what, side in (
            (by_step, "step in m", "left"),
            (by_work, "evaluations of the rate", "right"),
        ):
            axes.set_xscale("log")
            axes.set_yscale("log")
            axes.set_xlabel(what)
            for error in (settings.large, settings.small):
                axes.axhline(error, color="black", linewidth=1.0, linestyle=":")
                place = (0.99 if side == "right" else 0.01, error)
                text = {"xycoords": ("axes fraction", "data"), "textcoords": "offset points", "ha": side}
                axes.annotate(millimeters(error), place, (0, 2), **text)
        by_step.set_ylabel("error of the end point in m")
        by_step.set_title(f"after {settings.far:g} m, by the step")
        by_work.set_title(f"after {settings.far:g} m, by the work")
        return figure


def main() -> int:
    """Run the experiment and return its exit code."""
    asked = script(CONFIG, __doc__)
    config, console = asked.config, asked.console
    settings = jaxdae.app.settings(asked, Settings)
    if settings is None:
        return 2
    with precision(config):
        dtype = jax.dtypes.canonicalize_dtype(config.precision)
        near = integrate(settings.curvature, settings.length, settings.steps, dtype)
        far = integrate(settings.curvature, settings.far, settings.far_steps, dtype)
    folder, record = begin(config, asked.out, asked.source)
    for group, data in (("near", near), ("far", far)):
        data.to_zarr(folder / "arc.zarr", group=group, zarr_format=2, consolidated=False)
    draw(near, far, settings).savefig(folder / "arc.png", bbox_inches="tight")
    headings = (
        "length, m",
        "step, m",
        "steps",
        *(f"{name}: {what}, m" for name in METHODS for what in ("end", "largest")),
    )
    # In short on the console: errors at the end, to three digits.
    short, table = (
        rows(near, settings.length, digits) + rows(far, settings.far, digits) for digits in (3, 9)
    )
    sentences = findings(near, far, settings)
    of_ends = [(*row[:3], *row[3::2]) for row in (headings, *short)]
    show_table(console, "distance from the exact path", of_ends[0], of_ends[1:])
    for sentence in sentences:
        console.print(sentence.replace("**", ""), markup=False, highlight=False)
    lines = [f"# {config.name}", "", config.description, "", *(f"- {sentence}" for sentence in sentences), ""]
    lines += [
        "*End*: distance from the exact end point. *Largest*: that from the exact path at the same length, "
        "at any step.",
        "",
    ]
    lines += table_lines(headings, table)
    (folder / "report.md").write_text("\n".join([*lines, "", "![arc](arc.png)", ""]), encoding="utf-8")
    finish(folder, record, arc=[dict(zip(headings, row, strict=True)) for row in table], findings=sentences)
    console.print(f"run folder: {folder}", highlight=False, markup=False, soft_wrap=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Four-bar linkages through given coupler points: success rate of random starts, and branch defects.

Unknown are the places of the fixed pins A and D, the lengths of crank AB, coupler BC and rocker CD, the place
of the tracing point on the coupler, and the crank angle at each point. For each point the mechanism is
assembled by `jaxdae.initialize` with the crank held, and the distance of the tracing point from its target is
differentiated through the assembly by the implicit function theorem (forward mode,
`jaxdae.tuning.least_squares`). All starts are one batched program.

    python experiments/linkage_synthesis.py [CONFIG] [--set PATH=VALUE ...] [--out DIR]

Branch and circuit. At a crank angle the loop closes in two ways, C on the left or on the right of the line
from B to D; the way can only change where B, C and D are in line, which is where the sine of the transmission
angle, between coupler and rocker, is zero. With the lengths g of the ground link, r of the crank, l of the
coupler and k of the rocker, |BD| runs from g - r to g + r as the crank turns. The unknowns of the search are
ratios,

    r = ratio g,     l + k = (1 + spread) (g + r),     l - k = skew (g - r),        0 < ratio < 1, spread > 0, |skew| < 1,

so that |l - k| < |BD| < l + k always holds: every linkage on the way is a crank-rocker (crank shortest, Grashof's inequality strict) whose
crank turns all the way round, and its two ways of closing are two circuits with one branch each. Each start
is given a side and keeps it. What remains is to check that the assembly found that side: each result is
assembled all around the crank's turn, and counts only if the loop is closed and the sine keeps its sign at
all positions. Whether the points are also passed in their order is reported beside.

Starts. A random linkage of that kind is moved as a rigid body to where its coupler curve comes nearest to the
points, for crank angles equally far apart, the best of some offsets and of both senses. Nothing else is done
to help it.

References:
    G. N. Sandor, A. G. Erdman, "Advanced Mechanism Design", vol. 2, Prentice-Hall (1984), chapter 3
    (precision points, Grashof's rule). T. R. Chase, J. A. Mirth, "Circuits and Branches of
    Single-Degree-of-Freedom Planar Linkages", J. Mech. Des. 115 (1993).
"""

import sys
from typing import Annotated, Any

import jax
import jax.numpy as jnp
import numpy as np
import pydantic
import xarray as xr

import jaxdae
from jaxdae import mechanisms as jm
from jaxdae import tuning
from jaxdae.app import begin, finish, line_style, precision, script, show_table, styled, table_lines
from jaxdae.app.draw.animation import write_animation

CONFIG = "configs/linkage_synthesis.yaml"
CRANK_HELD = np.array(
    [
        name == "crank.theta"
        for name in (f"{b}.{c}" for b in ("crank", "coupler", "rocker") for c in ("x", "y", "theta"))
    ]
)
CLOSED = 1e-9  # m: the largest opening of a loop that counts as closed
ARM = (
    1.5  # m: longer arms to the tracing point are counted, because such linkages are larger than their links
)
LENGTHS = ("crank", "coupler", "rocker", "ground")

Pair = Annotated[list[float], pydantic.Field(min_length=2, max_length=2)]


class Settings(pydantic.BaseModel, extra="forbid", strict=True):
    """The section `experiment` of the config."""

    points: list[Pair] = pydantic.Field(min_length=2)
    starts: pydantic.PositiveInt
    reached: pydantic.PositiveFloat
    ground: Pair
    offsets: pydantic.PositiveInt
    turn: pydantic.PositiveInt

    @pydantic.field_validator("ground")
    @classmethod
    def _ordered(cls, ground: list[float]) -> list[float]:
        if not 0.0 < ground[0] < ground[1]:
            raise ValueError("must be two positive lengths, the smaller one first")
        return ground


@jaxdae.tree.pytree
class Linkage:
    """A four-bar with a tracing point, and the crank angles at which it should be at the targets.

    Attributes:
        pivot: the place (2,) of the fixed pin A in m.
        direction: angle () of the line from A to D.
        ground: length () of that line in m.
        ratio: crank over ground.
        spread: how far coupler and rocker together exceed ground and crank, over these.
        skew: coupler minus rocker, over ground minus crank.
        point: the tracing point (2,) in m, from B, along and across BC.
        angles: of the crank from the ground line, one a target.
        side: 1 where C is on the left of the line from B to D, -1 where it is on the right.
    """

    pivot: Any
    direction: Any
    ground: Any
    ratio: Any
    spread: Any
    skew: Any
    point: Any
    angles: Any
    side: Any

    def lengths(self):
        """Return the lengths (4,) of crank, coupler, rocker and ground in m."""
        crank = self.ratio * self.ground
        both, difference = (1.0 + self.spread) * (self.ground + crank), self.skew * (self.ground - crank)
        return jnp.stack([crank, 0.5 * (both + difference), 0.5 * (both - difference), self.ground])

    def mechanism(self) -> jm.Mechanism:
        """Return the mechanism; mass centers in the middle of the links."""
        crank, coupler, rocker, ground = self.lengths()
        half = {"crank": 0.5 * crank, "coupler": 0.5 * coupler, "rocker": 0.5 * rocker}
        bodies = [jm.Body(name, mass=1.0, inertia=1.0) for name in half]
        far = self.pivot + ground * along(self.direction)
        joints = [
            jm.Revolute("A", jm.GROUND, "crank", point_a=self.pivot, point_b=(-half["crank"], 0.0)),
            jm.Revolute(
                "B", "crank", "coupler", point_a=(half["crank"], 0.0), point_b=(-half["coupler"], 0.0)
            ),
            jm.Revolute(
                "C", "coupler", "rocker", point_a=(half["coupler"], 0.0), point_b=(half["rocker"], 0.0)
            ),
            jm.Revolute("D", jm.GROUND, "rocker", point_a=far, point_b=(-half["rocker"], 0.0)),
        ]
        return jm.planar_mechanism(bodies, joints)[0]

    def assembled(self, angle: Any) -> dict[str, Any]:
        """Return tracing point (2,), pins (4, 2), coupler-rocker sine and loop opening at a crank angle ().

        Differentiable through the closure. Its guess has C on its side of BD, half a rocker away, and all
        links at their angles then.
        """
        crank, coupler, rocker, ground = self.lengths()
        turned = self.direction + angle
        b, d = self.pivot + crank * along(turned), self.pivot + ground * along(self.direction)
        x, y = (d - b) / jnp.linalg.norm(d - b)
        c = 0.5 * (b + d) + self.side * 0.5 * rocker * jnp.stack([-y, x])
        pose = lambda tail, tip: [*(0.5 * (tail + tip)), jnp.arctan2(tip[1] - tail[1], tip[0] - tail[0])]  # noqa: E731
        guess = jnp.stack([*(0.5 * (self.pivot + b)), turned, *pose(b, c), *pose(d, c)])
        state, info = jaxdae.initialize(
            self.mechanism(), jax.lax.stop_gradient(guess).at[2].set(turned), fixed=CRANK_HELD
        )
        middle, theta, half = state.q[3:5], state.q[5], 0.5 * coupler * along(state.q[5])
        return {
            "point": middle - half + turned_by(theta, self.point),
            "pins": jnp.stack([self.pivot, middle - half, middle + half, d]),
            "sine": jnp.sin(state.q[8] - theta),
            "opening": info.violation,
        }


def along(angle: Any) -> Any:
    """Return the direction (2,) of an angle."""
    return jnp.stack([jnp.cos(angle), jnp.sin(angle)])


def turned_by(angle: Any, places: Any) -> Any:
    """Return vectors (..., 2) turned by an angle (...)."""
    c, s = jnp.cos(angle), jnp.sin(angle)
    return jnp.stack(
        [c * places[..., 0] - s * places[..., 1], s * places[..., 0] + c * places[..., 1]], axis=-1
    )


def trainable(settings: Settings) -> dict[str, Any]:
    """Return what is found, and in which ranges."""
    free = dict.fromkeys(("pivot", "direction", "point", "angles"), tuning.Unbounded())
    shape = {
        "ratio": tuning.Between(0.05, 0.95),
        "spread": tuning.Between(0.02, 2.0),
        "skew": tuning.Between(-0.98, 0.98),
    }
    return free | shape | {"ground": tuning.Between(*settings.ground)}


def start(key: Any, settings: Settings) -> Linkage:
    """Return a random linkage, moved rigidly so that its coupler curve is nearest to the points."""
    targets = jnp.asarray(settings.points)
    keys = jax.random.split(key, 6)
    low, high = settings.ground
    count, zero = len(settings.points), jnp.zeros((), targets.dtype)
    uniform = lambda k, a, b, shape=(): jax.random.uniform(keys[k], shape, targets.dtype, a, b)  # noqa: E731
    linkage = Linkage(
        pivot=jnp.zeros_like(targets[0]),
        direction=zero,
        ground=uniform(0, low + 0.1 * (high - low), high - 0.1 * (high - low)),
        ratio=uniform(1, 0.2, 0.8),
        spread=uniform(2, 0.05, 0.6),
        skew=uniform(3, -0.8, 0.8),
        point=uniform(4, -0.8, 0.8, (2,)),
        angles=jnp.zeros_like(targets[:, 0]),
        side=jnp.where(jax.random.bernoulli(keys[5]), 1.0, -1.0).astype(targets.dtype),
    )
    angles = jnp.linspace(0.0, 2.0 * jnp.pi, settings.offsets * count, endpoint=False)
    curve = jax.vmap(linkage.assembled)(angles)["point"]
    # Equal parts of a turn, from each offset, in both senses.
    places = np.arange(settings.offsets)[:, None] + settings.offsets * np.arange(count)
    indices = jnp.asarray(np.concatenate([places, places[:, ::-1]]))
    # The rigid motion that fits best: centers on each other, turned by the angle of the correlation.
    curves, goal = curve[indices], targets.mean(axis=0)
    centered, wanted = curves - curves.mean(axis=1, keepdims=True), targets - goal
    across = jnp.sum(centered[..., 0] * wanted[:, 1] - centered[..., 1] * wanted[:, 0], axis=1)
    direction = jnp.arctan2(across, jnp.sum(centered * wanted, axis=(1, 2)))
    best = jnp.argmin(jnp.sum((turned_by(direction[:, None], centered) - wanted) ** 2, axis=(1, 2)))
    changes = {
        "pivot": goal - turned_by(direction[best], curves[best].mean(axis=0)),
        "direction": direction[best],
        "angles": angles[indices[best]],
    }
    for name, value in changes.items():
        linkage = jaxdae.tree.set_leaf(linkage, name, value)
    return linkage


def distances(linkage: Linkage, targets: Any) -> Any:
    """Return how far (targets, 2) the tracing point is from each target, in m."""
    return jax.vmap(linkage.assembled)(linkage.angles)["point"] - targets


def search(key: Any, settings: Settings) -> tuple[Linkage, Any]:
    """Return the starts, and the results of least squares (starts,)."""
    targets = jnp.asarray(settings.points)
    starts = jax.jit(jax.vmap(lambda k: start(k, settings)))(jax.random.split(key, settings.starts))

    def one(linkage: Linkage) -> Any:
        residual = lambda x: distances(x, targets) / settings.reached  # noqa: E731
        return tuning.least_squares(
            residual, linkage, trainable=trainable(settings), iterations=100, damping=1e-2, max_step=0.3
        )

    return starts, jax.jit(jax.vmap(one))(starts)


def judged(result: Any, settings: Settings) -> xr.Dataset:
    """Return per start the errors, the full crank turn, and whether one branch reaches the points."""
    found: Linkage = result.parameters
    angles = jnp.linspace(0.0, 2.0 * jnp.pi, settings.turn + 1)

    @jax.jit
    @jax.vmap
    def around(linkage: Linkage) -> tuple[Any, Any, Any]:
        return (
            jax.vmap(linkage.assembled)(angles),
            jax.vmap(linkage.assembled)(linkage.angles),
            linkage.lengths(),
        )

    whole, at, lengths = jax.tree.map(np.asarray, around(found))
    off = np.linalg.norm(at["point"] - np.asarray(settings.points), axis=-1)
    side = np.asarray(found.side)[:, None]
    # The angle is that from the direction BC to DC: its sine is positive where C is on the left of BD.
    kept = np.all(side * whole["sine"] > 0.0, axis=1) & np.all(side * at["sine"] > 0.0, axis=1)
    closed = (whole["opening"].max(axis=1) <= CLOSED) & (at["opening"].max(axis=1) <= CLOSED)
    reached = (off.max(axis=1) <= settings.reached) & kept & closed
    data = {
        "error": (("start", "target"), off),
        "reached": ("start", reached),
        "branch_kept": ("start", kept),
        "closed": ("start", closed),
        "in_order": ("start", in_order(np.asarray(found.angles))),
        "length": (("start", "link"), lengths),
        "least_sine": ("start", np.abs(whole["sine"]).min(axis=1)),
        "arm": ("start", np.linalg.norm(np.asarray(found.point), axis=-1)),
        "curve": (("start", "position", "xy"), whole["point"]),
        "pins": (("start", "position", "pin", "xy"), whole["pins"]),
        "pins_at": (("start", "target", "pin", "xy"), at["pins"]),
    }
    data |= {"iterations": ("start", np.asarray(result.iterations))}
    return xr.Dataset(data, {"link": list(LENGTHS), "xy": ["x", "y"]})


def in_order(angles: np.ndarray) -> np.ndarray:
    """Return whether one crank turn, in either sense, passes the targets in order.

    The crank angles have shape (starts, targets).
    """

    def once(sense: float) -> np.ndarray:
        steps = np.mod(sense * np.diff(angles, axis=1, append=angles[:, :1]), 2.0 * np.pi)
        return np.isclose(steps.sum(axis=1), 2.0 * np.pi)

    return once(1.0) | once(-1.0)


def findings(found: xr.Dataset, settings: Settings) -> list[str]:
    """Return what the results say, in sentences."""
    good = found.isel(start=np.flatnonzero(found.reached))
    near = found.error.max("target").values <= settings.reached
    sentences = [
        f"**Reached.** From {int(found.reached.sum())} of {found.sizes['start']} starts the coupler passes "
        "all"
        f" {found.sizes['target']} points within {1e3 * settings.reached:g} mm,"
        " the loop closed and the branch kept all around the crank's turn.",
        f"**Branch.** {int(near.sum())} come within that distance; of these "
        f"{int((near & ~found.branch_kept.values).sum())} leave their"
        f" side somewhere on the turn, and {int((near & ~found.closed.values).sum())} do not close. Of "
        "those that reach,"
        f" {int(good.in_order.sum())} pass the points in their order.",
    ]
    if good.sizes["start"]:
        worst, middle = float(good.error.max()), float(good.error.max("target").median())
        ranges = ", ".join(
            f"{link} {float(x.min()):.2f} to {float(x.max()):.2f} m"
            for link, x in zip(LENGTHS, good.length.T, strict=True)
        )
        transmission = np.degrees(np.arcsin(good.least_sine.values))
        sentences += [
            f"**Errors.** Of those that reach, the largest distance from a point is {1e3 * worst:.2g} mm,"
            f" the median {1e3 * middle:.2g} mm.",
            f"**Linkages.** {ranges}, from B to the tracing point {float(good.arm.min()):.2f} to "
            f"{float(good.arm.max()):.2f} m"
            f" ({int((good.arm <= ARM).sum())} of {good.sizes['start']} up to {ARM:g} m). The transmission "
            "angle keeps"
            f" {transmission.min():.1f} degrees from 0 and 180 in the worst of them, "
            f"{transmission.max():.1f} in the best.",
        ]
    return sentences


def draw(found: xr.Dataset, settings: Settings):
    """Return the figure: all curves through the points, the errors of all starts, and some linkages."""
    good = np.flatnonzero(found.reached)
    order = good[np.argsort(-found.least_sine.values[good])]
    targets = np.array(settings.points)
    with styled() as figure_class:
        figure = figure_class(figsize=(15.0, 7.6), layout="constrained")
        panels = figure.subplots(2, 4).ravel()
        curves, errors = panels[0], panels[1]
        for k in good:
            curves.plot(*found.curve.values[k].T, linewidth=0.6, alpha=0.6, color=line_style(0)["color"])
        curves.plot(*targets.T, "o", color="black", markersize=4, zorder=5)
        curves.set_title(f"coupler curves of {good.size} linkages")
        curves.set(aspect="equal", xlabel="x in m", ylabel="y in m")
        largest = 1e3 * np.sort(found.error.max("target").values)
        errors.semilogy(
            np.arange(1, largest.size + 1),
            np.maximum(largest, 1e-12),
            marker=".",
            linestyle="none",
            color=line_style(0)["color"],
        )
        errors.axhline(1e3 * settings.reached, color="black", linewidth=1.0, linestyle=":")
        errors.set_title("largest distance from a point in mm")
        errors.set_xlabel("starts, sorted")
        for panel, k in zip(panels[2:], order, strict=False):
            panel.plot(*found.curve.values[k].T, linewidth=1.0, **line_style(0))
            pins, point = found.pins_at.values[k, 0], targets[0]
            panel.plot(*pins.T, marker="o", markersize=3, color="black")
            panel.plot(*np.stack([pins[1], point, pins[2]]).T, linewidth=1.0, color="black", alpha=0.5)
            panel.plot(*targets.T, "o", markersize=4, color=line_style(1)["color"], zorder=5)
            panel.set_title(f"start {k}: " + ", ".join(f"{x:.2f}" for x in found.length.values[k]) + " m")
            panel.set_aspect("equal")
        for panel in panels[2 + order.size :]:
            panel.set_axis_off()
        return figure


def animate(path: Any, found: xr.Dataset, settings: Settings, k: int) -> None:
    """Write one linkage turning its crank once in 4 s, the path of its tracing point, and the targets."""
    pins, point = found.pins.values[k], found.curve.values[k]
    times = 4.0 * np.arange(len(point)) / (len(point) - 1)
    lines = {"linkage": pins, "tracing point": np.stack([pins[:, 1], point, pins[:, 2]], axis=1)}
    write_animation(
        path,
        times,
        lines,
        traces={"path": point},
        points={"targets": np.array(settings.points)},
        title=f"start {k}",
    )


def main() -> int:
    """Run the experiment and return its exit code."""
    asked = script(CONFIG, __doc__ or "")
    config, console = asked.config, asked.console
    settings = jaxdae.app.settings(asked, Settings)
    if settings is None:
        return 2
    with precision(config):
        _, result = search(jax.random.key(config.batch.seed), settings)
        found = judged(result, settings)
    folder, record = begin(config, asked.out, asked.source)
    found.to_zarr(folder / "linkage_synthesis.zarr", zarr_format=2, consolidated=False)
    draw(found, settings).savefig(folder / "linkage_synthesis.png", bbox_inches="tight")
    pictures = ["linkage_synthesis.png"]
    good = np.flatnonzero(found.reached)
    if good.size:
        best = int(good[np.argmax(found.least_sine.values[good])])
        animate(folder / "linkage_synthesis.gif", found, settings, best)
        pictures.append("linkage_synthesis.gif")
    headings = ("start", *(f"{link}, m" for link in LENGTHS), "least |sine|", "error, mm", "in order")
    table = [
        (
            f"{k}",
            *(f"{x:.4f}" for x in found.length.values[k]),
            f"{float(found.least_sine[k]):.2f}",
            f"{1e3 * float(found.error[k].max()):.2g}",
            "yes" if found.in_order[k] else "no",
        )
        for k in good
    ]
    show_table(console, "linkages that pass all points", headings, table)
    sentences = findings(found, settings)
    for sentence in sentences:
        console.print(sentence.replace("**", ""), markup=False, highlight=False)
    lines = [f"# {config.name}", "", config.description, "", *(f"- {sentence}" for sentence in sentences), ""]
    lines += table_lines(headings, table)
    lines += ["", *(f"![{name}]({name})" for name in pictures), ""]
    (folder / "report.md").write_text("\n".join(lines), encoding="utf-8")
    finish(
        folder, record, linkages=[dict(zip(headings, row, strict=True)) for row in table], findings=sentences
    )
    console.print(f"run folder: {folder}", highlight=False, markup=False, soft_wrap=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())

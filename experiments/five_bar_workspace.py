"""Where can a five-bar work, and how far are its poses from singular configurations?

    python experiments/five_bar_workspace.py [CONFIG] [--set PATH=VALUE ...] [--out DIR]

The map contains the points that the tip reaches on the branch of the start, and three measures at each of
them: the distances from singular configurations of type 1, where a leg is straight or folded, and of type 2,
where the links are in line, and the dexterity, the smallest over the largest singular value of the Jacobian.
The closed form of the area: each leg reaches a ring about its motor.
"""

import sys
from typing import Annotated

import jax.numpy as jnp
import numpy as np
import pydantic

import jaxdae
from jaxdae.app import conclude, precision, script, styled
from jaxdae.kinematics import PoseTarget, workspace

CONFIG = "configs/five_bar_workspace.yaml"
MEASURES = {"type1": "distance from type 1", "type2": "distance from type 2", "dexterity": "dexterity"}
Pair = Annotated[list[float], pydantic.Field(min_length=2, max_length=2)]


class Settings(pydantic.BaseModel, extra="forbid", strict=True):
    """The section `experiment` of the config."""

    motors: list[str] = pydantic.Field(min_length=2, max_length=2)
    body: str
    point: Pair
    x: Pair
    y: Pair
    count: pydantic.PositiveInt
    distance: pydantic.PositiveFloat
    rings: Pair


def lens(radius: float, distance: float) -> float:
    """Return the area that two discs have in common, in m^2."""
    half = min(distance / 2.0, radius)
    return float(2.0 * (radius**2 * np.arccos(half / radius) - half * np.sqrt(radius**2 - half**2)))


def area(settings: Settings) -> float:
    """Return the closed form of the area in m^2: what both discs share, less both holes."""
    inner, outer = settings.rings
    holes = 2.0 * np.pi * inner**2 - lens(inner, settings.distance)
    return lens(outer, settings.distance) - holes


def draw(found, points, settings):
    """Return the figure with one panel per measure."""
    inner, outer = settings.rings
    x, y = points[..., 0], points[..., 1]
    with styled() as figure_class:
        figure = figure_class(figsize=(15, 5.4), layout="constrained")
        for axes, (name, title) in zip(figure.subplots(1, 3, sharey=True), MEASURES.items(), strict=True):
            values = np.where(found.reachable, getattr(found.transmission, name), np.nan)
            shades = axes.pcolormesh(x, y, values, vmin=0.0, cmap="viridis", rasterized=True)
            figure.colorbar(shades, ax=axes, shrink=0.8)
            for center in (0.0, settings.distance):
                for radius in (inner, outer):
                    turn = np.linspace(0.0, 2.0 * np.pi, 400)
                    axes.plot(center + radius * np.cos(turn), radius * np.sin(turn), color="0.6", lw=0.8)
                axes.plot(center, 0.0, marker="o", color="black", ms=5)
            axes.set(title=title, xlabel="x in m", xlim=settings.x, ylim=settings.y, aspect="equal")
        figure.axes[0].set_ylabel("y in m")
        return figure


def main() -> int:
    """Run the experiment and return its exit code."""
    asked = script(CONFIG, __doc__)
    settings = jaxdae.app.settings(asked, Settings)
    if settings is None:
        return 2
    cells = (np.arange(settings.count) + 0.5) / settings.count
    axes = [low + (high - low) * cells for low, high in (settings.x, settings.y)]
    points = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1)
    with precision(asked.config):
        system, _, start = asked.worlds.one()

        def tip(point):
            return PoseTarget(settings.body, position=point, point=tuple(settings.point))

        found = workspace(system, tip, jnp.asarray(points, start.q.dtype), start, settings.motors)
    cell = np.ptp(settings.x) * np.ptp(settings.y) / settings.count**2
    reached = np.asarray(found.reachable)
    expected, measured = area(settings), cell * reached.sum()
    rows = []
    for name, title in MEASURES.items():
        values = np.asarray(getattr(found.transmission, name))[reached]
        rows.append((title, *(f"{x:.3f}" for x in np.quantile(values, (0.1, 0.5, 0.9)))))
    sentences = [
        f"The tip reaches {reached.sum()} of {reached.size} points.",
        f"Their area is {measured:.5f} m^2, the closed form {expected:.5f} m^2.",
    ]
    headings = ("measure", "lowest decile", "median", "highest decile")
    conclude(asked, headings, rows, sentences, {"workspace": draw(found, points, settings)})
    return 0


if __name__ == "__main__":
    sys.exit(main())

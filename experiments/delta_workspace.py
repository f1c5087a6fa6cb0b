"""Smallest Delta robots whose workspace contains a given cylinder with bounded conditioning.

The unknowns x are the base radius, the arm length, the forearm length and the depth of the cylinder below the
base. With the Jacobian G from the motors to the platform, x' = G theta', the design minimizes the sum of the
three lengths subject to

    s_min(G) >= speed arm_length,      s_min(G) / s_max(G) >= dexterity

at the points of a grid. s_min and s_max are the extreme singular values of G. The first bound is the distance
from singular configurations of type 1, the boundary of the workspace, where arm and forearm are in line. The
second bound excludes type 2, where s_max is infinite. The cylinder is symmetric like the robot, so a sector
of 60 degrees suffices. `inverse_kinematics` places the platform at all points in one program, `transmission`
returns G, and their derivatives through the loops are the slopes for sequential linear programming.

Check. On a finer grid, the closed form for each leg replaces the loops: the elbow is an intersection of the
circle of the arm with the sphere of the forearm. A robot with 1 % shorter lengths violates a bound for every
depth of the cylinder.

    python experiments/delta_workspace.py [CONFIG] [--set PATH=VALUE ...] [--out DIR]

References:
    M. A. Laribi, L. Romdhane, S. Zeghloul, "Analysis and dimensional synthesis of the DELTA robot for a
    prescribed workspace", Mechanism and Machine Theory 42 (2007), for the problem without conditioning.
"""

import sys
from typing import Annotated, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pydantic
import scipy.optimize

import jaxdae
from jaxdae import kinematics, models
from jaxdae.app import conclude, line_style, precision, script, styled

CONFIG = "configs/delta_workspace.yaml"
NAMES = ("base radius", "arm length", "forearm length", "depth")
MOTORS = ("motor1", "motor2", "motor3")
PRICE = 10.0  # m, of a violated margin

Positive = pydantic.PositiveFloat
Lengths = Annotated[list[Positive], pydantic.Field(min_length=4, max_length=4)]
Counts = Annotated[list[pydantic.PositiveInt], pydantic.Field(min_length=3, max_length=3)]


class Settings(pydantic.BaseModel, extra="forbid", strict=True):
    """The section `experiment` of the config."""

    radius: Positive
    height: Positive
    platform_radius: Positive
    speed: Positive
    dexterities: Annotated[list[Positive], pydantic.Field(min_length=1)]
    start: Lengths
    lower: Lengths
    upper: Lengths
    grid: Counts
    fine: Counts


class Designed(NamedTuple):
    """Design (4,) in m, and its bounds (2,) on speed and dexterity."""

    x: np.ndarray
    bounds: np.ndarray


def cylinder(settings: Settings, counts: list[int]) -> np.ndarray:
    """Return points (n, 3) of a sector of the cylinder about the origin: angles, radii and heights."""
    angles, radii, heights = counts
    angle, radius, z = np.meshgrid(
        np.linspace(0.0, np.pi / 3.0, angles),
        settings.radius * np.linspace(1.0, 0.0, radii),
        settings.height * np.linspace(-0.5, 0.5, heights),
    )
    return np.stack([radius * np.cos(angle), radius * np.sin(angle), z], axis=-1).reshape(-1, 3)


def margins(x: Any, bounds: Any, points: Any, platform_radius: float) -> Any:
    """Return speed and dexterity (n, 2) over their bounds (2,), minus 1, by the loops of the robot."""
    base, arm, forearm, depth = x
    robot, start = models.delta(
        base_radius=base, platform_radius=platform_radius, arm_length=arm, forearm_length=forearm
    )

    def at(point: Any) -> Any:
        target = kinematics.PoseTarget("platform", position=point - jnp.array([0.0, 0.0, 1.0]) * depth)
        state, _ = kinematics.inverse_kinematics(robot, target, start)
        jacobian = kinematics.transmission(robot, state, target, MOTORS).jacobian
        singular = jnp.linalg.svd(jacobian, compute_uv=False)
        return jnp.stack([singular[2] / arm, singular[2] / singular[0]]) / bounds - 1.0

    return jax.vmap(at)(jnp.asarray(points))


def closed_form(x: Any, bounds: Any, points: np.ndarray, platform_radius: float) -> np.ndarray:
    """Return the margins (n, 2) from the closed form of each leg; -1 at points out of reach.

    With the components u outward and s sideways of the arm, and z, of the platform joint relative to the
    motor, the elbow is at the motor angle theta with u cos(theta) - z sin(theta) = k.
    """
    base, arm, forearm, depth = x
    turns = 2.0 * np.pi * np.arange(3) / 3.0
    p, z = points[:, None], points[:, None, 2] - depth
    u = p[..., 0] * np.cos(turns) + p[..., 1] * np.sin(turns) + platform_radius - base
    s = p[..., 1] * np.cos(turns) - p[..., 0] * np.sin(turns)
    cosine = (u**2 + s**2 + z**2 + arm**2 - forearm**2) / (2.0 * arm) / np.hypot(u, z)
    reached = np.all(np.abs(cosine) < 1.0, axis=1)
    theta = -np.arctan2(z, u) - np.arccos(np.clip(cosine, -1.0, 1.0))
    out, up = u - arm * np.cos(theta), z + arm * np.sin(theta)
    # The forearm (out, s, up) has constant length: forearm . p' = arm theta' (forearm . tangent).
    driven = arm * (-out * np.sin(theta) - up * np.cos(theta))
    forearms = np.stack(
        [out * np.cos(turns) - s * np.sin(turns), out * np.sin(turns) + s * np.cos(turns), up], axis=-1
    )
    largest, _, smallest = np.linalg.svd(forearms[reached] / driven[reached, :, None], compute_uv=False).T
    found = np.full((len(points), 2), -1.0)
    found[reached] = np.stack([1.0 / (largest * arm), smallest / largest], axis=-1) / bounds - 1.0
    return found


def designs(settings: Settings) -> list[Designed]:
    """Return the smallest design for each bound on dexterity, by sequential linear programming.

    Each linear program minimizes the size within a trust region, with the linearized margins. A slack with
    the price PRICE keeps it feasible. A step that does not reduce size plus PRICE times the largest violation
    halves the trust region.
    """
    points = cylinder(settings, settings.grid)
    limits = np.stack([settings.lower, settings.upper])

    def twice(x: Any, bounds: Any) -> Any:
        found = margins(x, bounds, points, settings.platform_radius).ravel()
        return found, found

    margins_and_slopes = jax.jit(jax.jacfwd(twice, has_aux=True))

    def evaluated(x: np.ndarray, bounds: np.ndarray) -> tuple[np.ndarray, np.ndarray, float]:
        slopes, value = map(np.asarray, margins_and_slopes(x, bounds))
        return slopes, value, size(x) + PRICE * max(0.0, -value.min())

    found, x = [], np.array(settings.start)
    for dexterity in settings.dexterities:
        bounds, trust, step = np.array([settings.speed, dexterity]), 0.1, np.ones(4)
        slopes, value, merit = evaluated(x, bounds)
        while trust > 1e-6 and np.max(np.abs(step)) > 1e-9:
            low, high = np.maximum(limits[0] - x, -trust * x), np.minimum(limits[1] - x, trust * x)
            step = scipy.optimize.linprog(
                [1.0, 1.0, 1.0, 0.0, PRICE],
                A_ub=np.concatenate([-slopes, -np.ones((len(value), 1))], axis=1),
                b_ub=value,
                bounds=[*zip(low, high, strict=True), (0.0, None)],
            ).x[:4]
            new = evaluated(x + step, bounds)
            if new[2] < merit - 1e-10:
                x, (slopes, value, merit) = x + step, new
            else:
                trust /= 2.0
        found.append(Designed(x, bounds))
    return found


def size(x: np.ndarray) -> float:
    """Return the sum of the lengths in m."""
    return float(np.sum(x[:3]))


def smaller(one: Designed, settings: Settings) -> float:
    """Return the worst margin of the design with 1 % shorter lengths, at the best depth of the cylinder."""
    points, depths = cylinder(settings, settings.grid), one.x[3] * np.linspace(0.8, 1.2, 401)
    tried = ([*(0.99 * one.x[:3]), depth] for depth in depths)
    return max(float(closed_form(x, one.bounds, points, settings.platform_radius).min()) for x in tried)


def draw(found: list[Designed], settings: Settings):
    """Return the figure: lengths over the bound on dexterity, and dexterity in the plane y = 0 of two designs."""
    with styled() as figure_class:
        figure = figure_class(figsize=(14.0, 4.6), layout="constrained")
        lengths, *sections = figure.subplots(1, 3)
        for k, name in enumerate(NAMES):
            values = [one.x[k] for one in found]
            lengths.plot(settings.dexterities, values, marker="o", label=name, **line_style(k))
        lengths.set(xlabel="bound on dexterity", ylabel="m", title="smallest robots")
        lengths.legend()
        x, z = np.meshgrid(np.linspace(-0.5, 0.5, 201), np.linspace(-0.65, 0.0, 131))
        for axes, one in zip(sections, (found[0], found[-1]), strict=True):
            points = np.stack([x, np.zeros_like(x), z + one.x[3]], axis=-1).reshape(-1, 3)
            margin = closed_form(one.x, 1.0, points, settings.platform_radius)[:, 1].reshape(x.shape)
            shown = axes.contourf(x, z, np.ma.masked_less(margin + 1.0, 1e-3), np.linspace(0.0, 1.0, 11))
            figure.colorbar(shown, ax=axes, label="dexterity")
            corners = np.array([[-1, -1], [1, -1], [1, 1], [-1, 1], [-1, -1]])
            cylinder_at = corners * [settings.radius, settings.height / 2.0] - [0.0, one.x[3]]
            axes.plot(*cylinder_at.T, color="white", linewidth=2.0)
            axes.set(aspect="equal", xlabel="x in m", ylabel="z in m")
            axes.set_title(f"dexterity at least {one.bounds[1]:g}")
        return figure


def main() -> int:
    """Run the experiment and return its exit code."""
    asked = script(CONFIG, __doc__ or "")
    settings = jaxdae.app.settings(asked, Settings)
    if settings is None:
        return 2
    with precision(asked.config):
        found = designs(settings)
    fine, radius, rows = cylinder(settings, settings.fine), settings.platform_radius, []
    worst = [100.0 * float(closed_form(one.x, one.bounds, fine, radius).min()) for one in found]
    shrunk = [100.0 * smaller(one, settings) for one in found]
    for one, margin, less in zip(found, worst, shrunk, strict=True):
        lengths = (f"{x:.4f}" for x in (*one.x, size(one.x)))
        rows.append((f"{one.bounds[1]:g}", *lengths, f"{margin:.3f} %", f"{less:.1f} %"))
    larger = 100.0 * (size(found[-1].x) / size(found[0].x) - 1.0)
    first, last = settings.dexterities[0], settings.dexterities[-1]
    sentences = [
        f"Dexterity {last:g} instead of {first:g} requires a robot that is {larger:.0f} % larger.",
        f"The closed form confirms the designs at {len(fine)} points: the worst margin is {min(worst):.2g} %.",
        f"Every design with 1 % shorter lengths violates a bound, by at least {-max(shrunk):.2g} %.",
    ]
    headings = ("dexterity", *(f"{name}, m" for name in NAMES), "sum, m", "worst margin", "1 % smaller")
    conclude(asked, headings, rows, sentences, {"delta_workspace": draw(found, settings)})
    return 0


if __name__ == "__main__":
    sys.exit(main())

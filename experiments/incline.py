"""Does a plate on an incline creep below the friction angle, and how far does it slide above it?

With the exact law, the plate stays or slides by a t^2 / 2 with

    a = g (sin(angle) - mu cos(angle)).

With the smoothed law (kappa in J), friction at n contacts needs a slip. In the position stage of a step h,
each contact carries m g cos(angle) h^2 / (2 n). It slips by 2 eps r / (1 - r^2) with
eps = kappa n / (mu m g cos(angle)), and the plate falls along the slope through its hover height
2 n kappa / (m g cos(angle)). To first order in kappa, it creeps at the speed

    2 n kappa r / (m g cos(angle) h) (1 / (mu (1 - r^2)) + mu),      r = tan(angle) / mu.

    python experiments/incline.py [CONFIG] [--set PATH=VALUE ...] [--out DIR]
"""

import dataclasses
import math
import sys
from typing import Any

import jax.numpy as jnp
import numpy as np
import pydantic

import jaxdae
from jaxdae import contact
from jaxdae.app import conclude, line_style, precision, script, styled

CONFIG = "configs/incline.yaml"
FEET = 2  # the contacts of the plate that carry it
SHOWN = 10  # saved states between the dots of the closed form


class Settings(pydantic.BaseModel, extra="forbid", strict=True):
    """The section `experiment` of the config."""

    angles: list[pydantic.NonNegativeFloat] = pydantic.Field(min_length=1)
    smoothing: pydantic.PositiveFloat


def simulate(system: Any, method: Any, start: Any, angles: Any, config: Any) -> Any:
    """Return the trajectories of the plate for all angles in degrees, one world per angle."""
    strength, radians = jnp.linalg.norm(system.gravity), jnp.deg2rad(jnp.asarray(angles))
    tilted = strength * jnp.stack([jnp.sin(radians), -jnp.cos(radians)], axis=1)
    worlds = jaxdae.tree.set_leaf(system, "gravity", tilted)
    axes = jaxdae.tree.batch_axes(worlds, "gravity")
    plan = {"dt": config.dt, "steps": config.steps, "save_every": config.save_every}
    return jaxdae.batch_rollout(worlds, method, start, **plan, in_axes=(axes, None, None, None))


def acceleration(gravity: float, friction: float, angle: Any) -> Any:
    """Return the acceleration of the sliding plate in m/s^2, zero below the friction angle."""
    return gravity * np.maximum(0.0, np.sin(angle) - friction * np.cos(angle))


def creep(kappa: float, load: Any, friction: float, angle: Any, dt: float) -> Any:
    """Return the creep speed of the smoothed law in m/s, for a normal force `load` in N."""
    ratio = np.tan(angle) / friction
    return 2.0 * FEET * kappa * ratio / (load * dt) * (1.0 / (friction * (1.0 - ratio**2)) + friction)


def main() -> int:
    """Run the experiment and return its exit code."""
    asked = script(CONFIG, __doc__)
    config = asked.config
    settings = jaxdae.app.settings(asked, Settings)
    if settings is None:
        return 2
    angles = np.radians(settings.angles)
    with precision(config):
        system, exact, start = asked.worlds.one()
        smoothed = dataclasses.replace(exact, smoothing=jnp.asarray(settings.smoothing))
        found = {
            name: simulate(system, method, start, settings.angles, config)
            for name, method in (("exact", exact), ("smoothed", smoothed))
        }
        force = contact.ContactForce.named(system, "slope")(found["exact"].info)
        carried = np.asarray(force[..., 0]).sum(axis=-1)
        mass, mu = float(system.mass[0]), float(system.contacts.groups["line_polygon"].friction[0])
        gravity = float(jnp.linalg.norm(system.gravity))
    failed = max(int(np.max(x.info.status)) for x in found.values())
    moved = {name: np.asarray(x.state.q)[..., 0] for name, x in found.items()}
    load, time = mass * gravity * np.cos(angles), np.asarray(found["exact"].state.t[0])
    slides = acceleration(gravity, mu, angles)
    theory = slides[:, None] * time**2 / 2.0
    speeds = np.where(slides > 0.0, np.nan, creep(settings.smoothing, load, mu, angles, config.dt))
    half = len(time) // 2  # the plate first rises to its hover height
    crept = (moved["smoothed"][:, -1] - moved["smoothed"][:, half]) / (time[-1] - time[half])
    heavy = np.abs(carried - load[:, None]).max(axis=1) / load
    off = np.abs(moved["exact"] - theory).max(axis=1)

    headings = (
        "angle, degrees",
        "distance in 1 s, m",
        "error of the distance, m",
        "error of the normal force",
        "smoothed: creep, um/s",
        "closed form, um/s",
    )
    rows = [
        (
            f"{angle:g}",
            f"{moved['exact'][k, -1]:.6f}",
            f"{off[k]:.1e}",
            f"{heavy[k]:.1e}",
            "slides" if slides[k] > 0.0 else f"{1e6 * crept[k]:.4g}",
            "slides" if slides[k] > 0.0 else f"{1e6 * speeds[k]:.4g}",
        )
        for k, angle in enumerate(settings.angles)
    ]
    rests = slides == 0.0
    sentences = [
        f"Below the friction angle of {math.degrees(math.atan(mu)):.3f} degrees, the plate moves by at most "
        f"{off[rests].max(initial=0.0):.1e} m, and above it the distance has an error of at most "
        f"{off[~rests].max(initial=0.0):.1e} m.",
        f"The smoothed law with kappa = {settings.smoothing:g} J creeps by up to "
        f"{1e6 * crept[rests].max(initial=0.0):.3g} um/s.",
        f"Status: {jaxdae.Status(failed).name}.",
    ]
    with styled() as figure_class:
        figure = figure_class(figsize=(10, 4.2), layout="constrained")
        left, right = figure.subplots(1, 2)
        for k, angle in enumerate(settings.angles):
            if slides[k] > 0.0 or k == np.flatnonzero(rests)[-1]:
                left.plot(time, moved["exact"][k], label=f"{angle:g} degrees", **line_style(k))
                left.plot(time[::SHOWN], theory[k, ::SHOWN], ".", color=line_style(k)["color"])
        left.set(xlabel="time in s", ylabel="distance in m", title="exact law; dots: closed form")
        left.legend()
        degrees = np.asarray(settings.angles)[rests]
        right.plot(degrees, 1e6 * crept[rests], "o", label="smoothed law", color=line_style(1)["color"])
        right.plot(degrees, 1e6 * speeds[rests], label="closed form", **line_style(1))
        size = np.maximum(np.abs(moved["exact"][rests, -1]) / time[-1], 1e-17)
        right.plot(
            degrees, 1e6 * size, "s", label="exact law (at least 1e-17 m/s)", color=line_style(0)["color"]
        )
        right.set(
            yscale="log", xlabel="angle in degrees", ylabel="creep in um/s", title="below the friction angle"
        )
        right.legend()
    conclude(asked, headings, rows, sentences, {"incline": figure})
    return 0 if failed == jaxdae.Status.OK else 1


if __name__ == "__main__":
    sys.exit(main())

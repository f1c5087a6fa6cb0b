"""Verdicts on the energy balance and on the constraint violations of a run.

The thresholds are in docs/command.md with their reasons.
"""

from typing import Any

import numpy as np

from jaxdae.app.config.schema import Config
from jaxdae.app.model import config_outline
from jaxdae.app.runs.simulate import Summary
from jaxdae.rollouts.rollout_arguments import checked_tolerance

ENERGY_LIMIT = 0.05
"""The largest acceptable balance error, relative to the exchanged energy."""

OK, POOR, UNKNOWN = "ok", "poor", "unknown"


def energy_balance(config: Config, summary: Summary) -> dict[str, Any] | None:
    """Return error, exchanged energy and verdict of the world with the worst balance.

    Return None for a first-order mechanism, and for joint limits and dry friction, whose losses are unknown.
    """
    if config.mechanism.order == "first" or config.touches:
        return None
    relative = summary.energy_balance_relative
    return {
        "error_J": summary.energy_balance_error,
        "exchanged_J": summary.energy_exchanged,
        "relative": relative,
        "limit": ENERGY_LIMIT,
        "world": summary.energy_balance_world,
        "verdict": verdict(relative, ENERGY_LIMIT),
    }


def constraints(config: Config, summary: Summary) -> dict[str, Any]:
    """Return the largest violations with their limits, and the verdict over all worlds and steps."""
    tolerance, length = float(checked_tolerance(None, np.dtype(config.precision))), size(config)
    limit, velocity_limit = (
        tolerance * min(1.0, length),
        tolerance * (min(1.0, length) + summary.largest_velocity),
    )
    found = [
        verdict(summary.largest_violation, limit),
        verdict(summary.largest_velocity_violation, velocity_limit),
    ]
    return {
        "violation": summary.largest_violation,
        "limit": limit,
        "velocity_violation": summary.largest_velocity_violation,
        "velocity_limit": velocity_limit,
        "size_m": length,
        "verdict": next((each for each in (UNKNOWN, POOR) if each in found), OK),
    }


def verdict(value: float, limit: float) -> str:
    """Return the verdict on a value with an upper limit."""
    return UNKNOWN if not np.isfinite(value) else OK if value <= limit else POOR


def size(config: Config) -> float:
    """Return the bounding-box diagonal of the mechanism at its start pose, in m; 1 for a single point."""
    poses = np.stack([config_outline.start_pose(body) for body in config.mechanism.bodies])
    dimension = 2 if config.mechanism.space == "plane" else 3
    points = np.concatenate([config_outline.places(config.mechanism, poses[None])[0], poses[:, :dimension]])
    diagonal = float(np.linalg.norm(np.ptp(points, axis=0)))
    return diagonal if diagonal > 0.0 else 1.0


def sentences(results: dict[str, Any]) -> list[str]:
    """Return explanations and remedies for all verdicts that are not ok."""
    found = []
    energy = results.get("energy_balance")
    if energy and energy["verdict"] != OK:
        world = f" in world {energy['world']}" if energy["world"] else ""
        found.append(
            f"The energy balance is {energy['verdict']}: its error{world} is {energy['error_J']:.3g} J, "
            f"{_percent(energy['relative'])} of the exchanged energy; the limit is "
            f"{_percent(energy['limit'])}. Either the step does not resolve the motion, or the method loses "
            "energy. Halve dt and compare."
        )
    rows = results.get("constraints")
    if rows and rows["verdict"] != OK:
        found.append(
            f"The constraints are {rows['verdict']}: their violation is up to {rows['violation']:.3g} m or "
            f"rad (limit {rows['limit']:.3g}) and {rows['velocity_violation']:.3g} m/s or rad/s (limit "
            f"{rows['velocity_limit']:.3g}). Use a projection, or a smaller dt."
        )
    return found


def _percent(relative: float) -> str:
    return f"{100.0 * relative:.3g} %"


def mechanism_only(config: Config) -> str:
    """Return the warning that the command simulates only the mechanism of a script's config."""
    remedy = f" Run the experiment with: python {config.script} CONFIG" if config.script else ""
    return (
        f"This config belongs to {config.of_script}. The command jaxdae simulates only its mechanism, "
        f"without the experiment.{remedy}"
    )

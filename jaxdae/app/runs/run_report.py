"""The short report of a run, in Markdown."""

import pathlib
from typing import Any

from jaxdae.app.config import safe_files
from jaxdae.app.config.schema import Config
from jaxdae.app.runs import run_folder, verdicts


def rows(config: Config, record: dict[str, Any]) -> list[tuple[str, str]]:
    """Return the main facts of a run as pairs of label and value."""
    numbers, timing = record["results"], record["timing"]
    batch, mechanism = config.batch, config.mechanism
    varied = [vary.path for vary in batch.vary] if batch.size > 1 else []  # World 0 is nominal.
    acting, count = (
        ("drives", len(mechanism.drives)) if mechanism.order == "first" else ("forces", len(mechanism.forces))
    )
    projection = config.integrator.projection
    projected = "none"
    if projection is not None:
        velocities = "yes" if projection.velocity else "no"
        projected = (
            f"positions {projection.position or 'no'}, velocities {velocities}, metric {projection.metric}"
        )
    constraints, energy = numbers["constraints"], numbers.get("energy_balance")
    found = [
        (
            f"bodies, joints, {acting}",
            f"{len(config.mechanism.bodies)}, {len(config.mechanism.joints)}, {count}",
        ),
        (
            "worlds",
            f"{batch.size}" + (f" (seed {batch.seed}; {', '.join(varied)} varied)" if varied else ""),
        ),
        (
            "duration",
            f"{config.duration:g} s in {config.steps} steps of {config.dt:g} s, every {config.save_every} "
            "saved"
            if config.save_every > 1
            else f"{config.duration:g} s in {config.steps} steps of {config.dt:g} s",
        ),
        ("integrator", f"{config.integrator.type}; projection: {projected}"),
        ("solver, stabilization", f"{config.solver.type}, {config.stabilization.type}"),
        ("precision", config.precision),
        (
            "largest violation, all worlds and steps",
            f"{constraints['violation']:.3g} m or rad; "
            f"{_judged(constraints['violation'], constraints['limit'])}",
        ),
        (
            "largest velocity violation",
            f"{constraints['velocity_violation']:.3g} m/s or rad/s;"
            f" {_judged(constraints['velocity_violation'], constraints['velocity_limit'])}",
        ),
        *([(_energy_label(config), _energy(energy))] if energy else []),
        ("status", ", ".join(f"{count} {name}" for name, count in numbers["status"].items())),
        ("simulated in", f"{timing['simulate_s']:.3g} s after {timing['compile_s']:.3g} s of compilation"),
        (
            "speed",
            f"{timing['worlds_per_s']:,.4g} worlds/s, {timing['world_steps_per_s']:,.4g} world steps/s",
        ),
    ]
    return found


def _energy_label(config: Config) -> str:
    return "energy balance error" + (", worst world" if config.batch.size > 1 else "")


def _energy(energy: dict[str, Any]) -> str:
    """Return error, scale and verdict of the energy balance in words."""
    return (
        f"{energy['error_J']:.3g} J of {energy['exchanged_J']:.3g} J exchanged "
        f"({energy['relative']:.2g}); {energy['verdict']}"
    )


def _judged(value: float, limit: float) -> str:
    return f"{verdicts.verdict(value, limit)} (limit {limit:.2g})"


def write(file: pathlib.Path, config: Config, record: dict[str, Any], pictures: list[pathlib.Path]) -> None:
    """Write the report next to the results."""
    lines = [f"# {config.title}", ""]
    if config.of_script:
        lines += [verdicts.mechanism_only(config), ""]
    elif config.description:
        lines += [config.description.strip(), ""]
    versions = record["environment"]["versions"]
    lines += ["| | |", "|---|---|", *(f"| {label} | {value} |" for label, value in rows(config, record)), ""]
    reason = run_folder.incomplete(record)
    if reason:
        lines += [f"**The run is not complete:** {reason}.", ""]
    if record["results"].get("failure"):
        lines += [f"**The simulation failed:** {record['results']['failure']}", ""]
    lines += [line for sentence in verdicts.sentences(record["results"]) for line in (f"**{sentence}**", "")]
    for picture in pictures:
        lines += [f"![{picture.stem}]({picture.parent.name}/{picture.name})", ""]
    written = ", ".join(f"{name} {version}" for name, version in versions.items())
    lines += [
        f"Started {record['started']}; {written}. `run.json` has all details, and `results.zarr` has "
        "the numbers."
    ]
    safe_files.write_text(file, "\n".join(lines) + "\n")

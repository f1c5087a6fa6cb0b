"""The results of `jaxdae calibrate`: corrections with confidence intervals from a log."""

import json
import pathlib
from collections.abc import Iterator
from typing import Any

import numpy as np

from jaxdae import kinematics
from jaxdae.app.config import safe_files
from jaxdae.app.config.precision import precision
from jaxdae.app.config.problems import Failed, Refused, did_you_mean
from jaxdae.app.config.schema_kinematics import Calibrate, Measured
from jaxdae.app.experiment_report import conclude
from jaxdae.app.experiment_script import Script
from jaxdae.app.model.config_laws import LARGEST_TABLE
from jaxdae.app.model.coordinate_names import mechanism_of
from jaxdae.app.model.fit_history import read_table
from jaxdae.base.dataclass import get_leaf
from jaxdae.base.suggestions import counted
from jaxdae.geometry.rotation import matrix_quaternion
from jaxdae.kinematics.geometric_parameters import points_of_body, without_entry
from jaxdae.systems.status import Status

RESULT = "calibration.json"
_FIRST_LINE = 2
"""Line of the first pose in the log, after the names of the columns."""


def report(asked: Script, log: pathlib.Path) -> None:
    """Print the table of a calibration, and write it to a new run folder.

    Raises:
        Refused: the log lacks columns, or the library rejects a parameter.
        Failed: the fit has no poses, or did not converge; then its last iteration is written.
    """
    section: Any = asked.config.calibrate
    plane = asked.config.mechanism.space == "plane"
    wanted = [*section.actuated, *(x for one in section.measured for x in names(one, plane))]
    efforts = effort_names(section)
    columns = read_log(log, [*wanted, *(x for group in efforts.values() for x in group.values())])
    held = np.zeros(len(columns[section.actuated[0]]), bool)
    chosen = np.random.default_rng(asked.config.batch.seed).permutation(held.size)
    held[chosen[: round(section.held_out * held.size)]] = True
    with precision(asked.config):
        system, _, start = asked.worlds.one()
        try:
            found = fitted(mechanism_of(system), section, columns, start, held, plane)
        except ValueError as error:
            raise Refused(f"{asked.source}: calibrate: {error}") from None
        ends = [np.asarray(end) for end in found.interval()]
        text = json.dumps(_record(found, section, ends, held), indent=2)

    if not np.any(~held & (found.pose_status == Status.OK)):
        raise Failed(
            f"{log}: got no pose that the mechanism reaches from its start, expected readings in rad and m"
        )

    def write(folder: pathlib.Path) -> None:
        safe_files.write_text(folder / RESULT, text + "\n")

    headings = ("parameter", "correction", "95 % interval", "unit")
    conclude(asked, headings, list(_rows(found, ends)), list(_sentences(found, held, log)), {}, write)
    if found.status != Status.OK:
        raise Failed(
            "calibrate: the fit did not converge; name fewer parameters, or use a start closer to the poses"
        )


def names(frame: Measured, plane: bool) -> list[str]:
    """Return the columns of a measured frame: its position, then its orientation."""
    turn = ("theta",) if plane else ("qw", "qx", "qy", "qz")
    keys = (
        *("xyz"[: 2 if plane else 3] if frame.position_std else ()),
        *(turn if frame.orientation_std else ()),
    )
    return [f"{frame.name}.{key}" for key in keys]


def effort_names(section: Calibrate) -> dict[str, dict[str, str]]:
    """Return the columns of rates, accelerations and efforts by motor; empty without efforts."""
    if section.effort_std is None:
        return {}
    suffixes = {"rates": "rate", "accelerations": "acceleration", "efforts": "effort"}
    return {
        field: {name: f"{name}.{suffix}" for name in section.actuated} for field, suffix in suffixes.items()
    }


def read_log(file: pathlib.Path, wanted: list[str]) -> dict[str, np.ndarray]:
    """Return columns of a log, each with one number per pose.

    Raises:
        Refused: the file is not readable, lacks columns or poses, or has numbers that are not finite.
    """
    try:
        safe_files.read_text(file, LARGEST_TABLE)
        columns = read_table(file)
    except (OSError, safe_files.Unreadable) as error:
        reason = getattr(error, "strerror", None) or error
        raise Refused(f"{file}: got a file that is not readable ({reason}), expected a CSV file") from None
    except (ValueError, IndexError):
        expected = "numbers, with the names of the columns in the first line"
        raise Refused(f"{file}: got another format, expected {expected}") from None
    missing = [name for name in wanted if name not in columns]
    if missing:
        remedy = did_you_mean(missing[0], columns, "columns")
        raise Refused(f"{file}: got no column {', '.join(missing)}, expected {', '.join(wanted)}; {remedy}")
    found = {name: columns[name] for name in wanted}
    wrong = ~np.all(np.isfinite(list(found.values())), axis=0)
    if not wrong.size or np.any(wrong):
        got = (
            f"a number that is not finite in line {wrong.argmax() + _FIRST_LINE}"
            if wrong.size
            else "no poses"
        )
        raise Refused(f"{file}: got {got}, expected one pose per line")
    return found


def fitted(
    mechanism: Any, section: Calibrate, columns: dict[str, np.ndarray], start: Any, held: Any, plane: bool
) -> Any:
    """Return the calibration; `held` contains whether each pose (n,) is held out."""
    targets, deviations = [], []
    for frame in section.measured:
        given = np.stack([columns[name] for name in names(frame, plane)], axis=1)
        size = 0 if frame.position_std is None else 2 if plane else 3
        turn = None if frame.orientation_std is None else given[:, -1] if plane else given[:, size:]
        targets.append(
            kinematics.PoseTarget(frame.body, given[:, :size] if size else None, turn, frame.point)
        )
        deviations += [frame.position_std] * size
        deviations += [frame.orientation_std] * (0 if turn is None else 1 if plane else 3)
    if section.effort_std is not None:
        motors = {
            field: {name: columns[column] for name, column in group.items()}
            for field, group in effort_names(section).items()
        }
        targets.append(kinematics.MeasuredEfforts(**motors))
        each = dict(
            zip(section.actuated, np.broadcast_to(section.effort_std, len(section.actuated)), strict=True)
        )
        deviations += [each[name] for name in sorted(each)]
    return kinematics.calibrate(
        mechanism,
        {name: columns[name] for name in section.actuated},
        targets,
        start,
        section.parameters,
        offsets=section.offsets,
        standard_deviation=np.array(deviations),
        robust=section.robust,
        held_out=held,
    )


def _rows(found: Any, ends: list[np.ndarray]) -> Iterator[tuple[str, ...]]:
    """Yield the row of each correction in the table, with two digits of the half width of its interval."""
    for name, unit, correction, *interval in zip(
        found.names, found.units, np.asarray(found.correction), *ends, strict=True
    ):
        half = (interval[1] - interval[0]) / 2.0
        digits = max(0, 1 - int(np.floor(np.log10(half)))) if 0.0 < half < np.inf else 6
        told = " to ".join(f"{end:.{digits}f}" for end in interval) if np.isfinite(half) else "unknown"
        yield name, f"{correction:.{digits}f}", told, unit


def trade_offs(found: kinematics.Calibration) -> list[tuple[list[str], int]]:
    """Return groups of corrections that compensate each other, and the number of free combinations of each.

    P = V^T V projects on the combinations V (k, p) without effect on the measurements. Corrections i and j
    are in the same group if a chain of nonzero entries of P links them, and the trace of the block of a group
    is its number of combinations.
    """
    free = np.asarray(found.directions)[~np.asarray(found.identifiable)]
    projector = free.T @ free
    linked = np.abs(projector) > 1e-6
    for _ in found.names:
        linked = linked @ linked
    groups = [np.flatnonzero(row) for k, row in enumerate(linked) if row[k] and not row[:k].any()]
    return [([found.names[i] for i in group], round(projector[group, group].sum())) for group in groups]


def _sentences(found: Any, held: np.ndarray, log: pathlib.Path) -> Iterator[str]:
    """Yield the findings: poses, identifiable combinations, outliers and residuals."""
    codes, counts = np.unique(found.pose_status, return_counts=True)
    told = ", ".join(f"{Status(code).name} {n}" for code, n in zip(codes, counts, strict=True))
    yield f"{held.size} poses, {held.sum()} of them held out. Status of the nominal poses: {told}."
    yield f"{np.sum(found.identifiable)} of {len(found.names)} combinations of corrections are identifiable."
    for group, count in trade_offs(found):
        of = f"{counted(count, 'combination')} of " if len(group) > 1 else ""
        yield f"Without effect on the measurements: {of}{', '.join(group)}."
    lines = ", ".join(str(k + _FIRST_LINE) for k in np.flatnonzero(found.outlier))
    yield f"Lines with outliers in {log.name}: {lines or 'none'}."
    yield f"Residual over its standard deviation: {found.sigma:.3g} in the fit" + (
        f", {found.held_out_rms:.3g} in held-out poses." if held.any() else "."
    )


def _record(found: Any, section: Calibrate, ends: list[np.ndarray], held: np.ndarray) -> dict[str, Any]:
    """Return the content of the JSON file, with null in place of numbers that are not finite."""

    def known(x: Any) -> float | None:
        return float(x) if np.isfinite(x) else None

    leaves = dict.fromkeys(leaf for name in section.parameters for leaf in changed_leaves(found, name))
    numbers = np.stack([found.correction, found.standard_error, *ends], axis=1)
    keys = ("correction", "standard_error", "lower", "upper")
    poses = zip(found.pose_status, held, found.outlier, strict=True)
    return {
        "status": Status(int(found.status)).name,
        "corrections": [
            {"name": name, "unit": unit, **dict(zip(keys, map(known, row), strict=True))}
            for name, unit, row in zip(found.names, found.units, numbers, strict=True)
        ],
        "calibrated": {name: config_value(name, get_leaf(found.mechanism, name)) for name in leaves},
        "free_combinations": [{"names": group, "count": count} for group, count in trade_offs(found)],
        "singular_values": list(map(known, found.singular_values)),
        "directions": np.asarray(found.directions).tolist(),
        "sigma": known(found.sigma),
        "held_out_rms": known(found.held_out_rms),
        "poses": [
            {"line": k, "status": Status(int(code)).name, "held_out": bool(out), "outlier": bool(bad)}
            for k, (code, out, bad) in enumerate(poses, start=_FIRST_LINE)
        ],
    }


def changed_leaves(found: kinematics.Calibration, name: str) -> list[str]:
    """Return the leaves that a parameter changes: for a center of mass, the points of its body."""
    leaf = without_entry(name)
    kind, _, field = leaf.rpartition(".")
    if not (leaf.startswith("bodies.") and field == "center"):
        return [leaf]
    return [path for _, _, path in points_of_body(found.mechanism, kind.removeprefix("bodies."))]


def config_value(name: str, leaf: Any) -> Any:
    """Return a leaf in the form of a config: axes (3, 3) of a joint as a quaternion wxyz."""
    axes = name.startswith("joints.") and np.shape(leaf) == (3, 3)
    return np.asarray(matrix_quaternion(leaf) if axes else leaf).tolist()

"""Open existing run folders, to plot them or to resume them. Only this module knows their required contents.

Run folders are copied, edited, truncated by full disks and mixed up. This module therefore checks, before
anything is written, all data of later use:

* the record `run.json` against its schema,
* `config.yaml` against the config in the record,
* the results against the digests in the record,
* the history of a killed fit against its checkpoint,
* the output files for links that lead elsewhere.
"""

import contextlib
import dataclasses
import json
import pathlib
from collections.abc import Iterator
from typing import Any, Literal

import pydantic

from jaxdae.app.config import safe_files
from jaxdae.app.config.config_source import read
from jaxdae.app.config.problems import ConfigError, Refused
from jaxdae.app.config.schema import Config
from jaxdae.app.model import fit_history
from jaxdae.app.runs import continuation, locks, run_folder
from jaxdae.tuning import checkpoint

_RECORD_BYTES = 100_000_000
_EXAMPLE = "the folder of a run, for example runs/NAME-TIME"
_SAME = "restore the folder as the run left it"
_WRITTEN_BY_FITS = (
    run_folder.RECORD,
    run_folder.REPORT,
    run_folder.CHECKPOINT,
    run_folder.HISTORY,
    run_folder.TUNED,
    run_folder.CONTROLS,
    run_folder.OPTIMIZED,
    run_folder.LOCK,
)
_LAST_OF_FITS = {"tune": run_folder.TUNED, "optimize": run_folder.CONTROLS}


class _Environment(pydantic.BaseModel, extra="allow", strict=True):
    versions: dict[str, str]


class _Record(pydantic.BaseModel, extra="allow", strict=True):
    """The entries that every run writes into `run.json`."""

    name: str
    started: str
    finished: str | None
    complete: bool
    stopped: str = ""
    environment: _Environment
    config: dict[str, Any]
    digests: dict[str, str] = {}

    @pydantic.field_validator("complete")
    @classmethod
    def _agrees(cls, complete: bool, info: Any) -> bool:
        if "finished" in info.data and complete != (info.data["finished"] is not None):
            raise ValueError("a complete run needs an end time")
        return complete


class _Results(pydantic.BaseModel, extra="allow", strict=True):
    largest_violation: float
    largest_velocity_violation: float
    constraints: dict[str, Any]
    energy_balance: dict[str, Any] | None = None
    status: dict[str, int]
    failure: str


class _Timing(pydantic.BaseModel, extra="allow", strict=True):
    compile_s: float
    simulate_s: float
    worlds_per_s: float
    world_steps_per_s: float


class _SimulationRecord(_Record):
    results: _Results
    timing: _Timing


class _Learned(pydantic.BaseModel, extra="allow", strict=True):
    command: Literal["tune", "optimize"]
    resumed: int = pydantic.Field(ge=0)


class _FitRecord(_Record):
    learned: _Learned


class _Found(_Learned):
    loss_at_start: float
    loss: float
    best_iteration: int = pydantic.Field(ge=0)
    iterations: int = pydantic.Field(ge=1)
    skipped: int = pydantic.Field(ge=0)
    parameters: dict[str, float | list[float]]


class _FinishedFitRecord(_Record):
    learned: _Found


@dataclasses.dataclass(frozen=True)
class Opened:
    """A run folder with verified contents.

    Attributes:
        folder: the folder.
        config: its config.
        record: the contents of `run.json`.
    """

    folder: pathlib.Path
    config: Config
    record: dict[str, Any]

    @property
    def is_fit(self) -> bool:
        """Whether the run is a run of `jaxdae tune` or `jaxdae optimize`."""
        return "learned" in self.record

    @property
    def has_checkpoint(self) -> bool:
        """Whether a fit wrote a checkpoint before its interruption."""
        return (self.folder / run_folder.CHECKPOINT).exists()


def drawable(folder: pathlib.Path) -> Opened:
    """Open the folder of a simulation or fit with intact results, or partial results if it was interrupted.

    Raises:
        Refused: the folder does not qualify.
    """
    _check_parts(folder, (run_folder.CONFIG, run_folder.RECORD), _EXAMPLE)
    record = _record(folder)
    return _drawable_fit(folder, record) if "learned" in record else _drawable_simulation(folder, record)


def _drawable_simulation(folder: pathlib.Path, record: dict[str, Any]) -> Opened:
    if "results" not in record and not record.get("complete"):
        raise Refused(
            f"{folder}: got an unfinished run, expected a finished run; jaxdae run --resume "
            f"{folder} continues it"
        )
    _check_parts(folder, (run_folder.RESULTS,), _EXAMPLE)
    _validated(folder, _SimulationRecord, record)
    config = _config(folder, record)
    _check_digests(folder, record, run_folder.RESULTS)
    _check_targets(folder, (run_folder.REPORT,))
    return Opened(folder, config, record)


def _drawable_fit(folder: pathlib.Path, record: dict[str, Any]) -> Opened:
    found = _fit(folder, record)
    if record["complete"]:
        _check_digests(folder, record, run_folder.HISTORY, _LAST_OF_FITS[record["learned"]["command"]])
    elif record.get("digests"):
        _check_digests(folder, record, run_folder.HISTORY)
    elif not (folder / run_folder.HISTORY).exists():
        what = "a run that was stopped before its first checkpoint"
        raise Refused(f"{folder}: got {what}, expected {run_folder.HISTORY}; --resume continues it")
    else:
        _check_history(found)
    return found


def with_results(folder: pathlib.Path) -> Opened:
    """Open a run folder with a motion; for `jaxdae optimize`, open the run folder inside of it.

    Raises:
        Refused: the folder does not qualify.
    """
    found = drawable(folder)
    if found.is_fit and (folder / run_folder.MOTION).is_dir():
        return drawable(folder / run_folder.MOTION)
    if found.is_fit:
        remedy = f"run jaxdae run {folder / run_folder.TUNED} or {run_folder.OPTIMIZED}"
        raise Refused(f"{folder}: got a fit without a motion, expected a run of jaxdae run; {remedy}")
    return found


@contextlib.contextmanager
def fit(folder: pathlib.Path, command: str, overrides: tuple[str, ...] = ()) -> Iterator[Opened]:
    """Lock and yield the folder of a fit that `command` can resume or lengthen with these overrides.

    Raises:
        Refused: the folder does not qualify, or another process works on the run.
    """
    continuable_fit(folder, command, overrides)
    with locks.lock(folder):
        # Check again: the previous holder of the lock may just have finished the run.
        yield continuable_fit(folder, command, overrides)


def continuable_fit(folder: pathlib.Path, command: str, overrides: tuple[str, ...] = ()) -> Opened:
    """Return the folder as in `fit`, but without a lock, for processes that write nothing."""
    _check_parts(folder, (run_folder.CONFIG, run_folder.RECORD), f"the folder of a run of jaxdae {command}")
    record = _record(folder)
    if not isinstance(record.get("learned"), dict) or record["learned"].get("command") != command:
        raise Refused(
            f"--resume: got {folder}, which is not a run of jaxdae {command}; run its "
            f"{run_folder.CONFIG} again"
        )
    found = _fit(folder, record)
    refusal = continuation.refusal(folder, record, command, overrides)
    if refusal:
        raise Refused(f"--resume: got {refusal}")
    return found


def _fit(folder: pathlib.Path, record: dict[str, Any]) -> Opened:
    """Open the folder of a fit for any purpose; check its record, config and checkpoint."""
    _validated(folder, _FinishedFitRecord if record.get("complete") else _FitRecord, record)
    config = _config(folder, record)
    if getattr(config, record["learned"]["command"]) is None:
        raise _damaged(
            folder / run_folder.RECORD, f"a config without a section {record['learned']['command']}"
        )
    _check_targets(folder, _WRITTEN_BY_FITS)
    found = Opened(folder, config, record)
    if found.has_checkpoint:
        _checkpoint(folder)
    return found


def _checkpoint(folder: pathlib.Path) -> dict[str, Any]:
    try:
        return checkpoint.load(folder / run_folder.CHECKPOINT)[1]
    except checkpoint.CheckpointError as error:
        raise Refused(str(error)) from None


def _check_history(found: Opened) -> None:
    """Raise unless the history of a killed or running fit is a prefix of the history of its checkpoint.

    A killed process may have written a checkpoint without its history. A running process updates both files
    in the meantime. Therefore this function reads the history before the checkpoint, and the history holds
    the first rows.
    """
    file = found.folder / run_folder.HISTORY
    text = _text(file, checkpoint.LARGEST)
    if not found.has_checkpoint:
        raise _damaged(found.folder / run_folder.CHECKPOINT, "no such file")
    section = getattr(found.config, found.record["learned"]["command"])
    try:
        expected = fit_history.table_of_checkpoint(_checkpoint(found.folder), section)
    except (ValueError, KeyError):
        raise _damaged(found.folder / run_folder.CHECKPOINT, "a checkpoint of another fit") from None
    if text.count("\n") < 2 or not text.endswith("\n") or not expected.startswith(text):
        raise _damaged(file, f"a table that does not match {run_folder.CHECKPOINT}")


def looked_at(folder: pathlib.Path) -> Opened:
    """Open the folder of a simulation or fit, complete or not, for reading.

    Raises:
        Refused: the folder does not qualify.
    """
    _check_parts(folder, (run_folder.CONFIG, run_folder.RECORD), _EXAMPLE)
    record = _record(folder)
    return _fit(folder, record) if "learned" in record else recorded(folder)


def recorded(folder: pathlib.Path) -> Opened:
    """Open the folder of a `jaxdae run`, complete or not, for reading.

    Raises:
        Refused: the folder does not qualify.
    """
    _check_parts(folder, (run_folder.CONFIG, run_folder.RECORD), _EXAMPLE)
    record = _record(folder)
    if "learned" in record:
        raise Refused(f"{folder}: got a fit, expected a simulation; {run_folder.HISTORY} shows its progress")
    _validated(folder, _SimulationRecord if record.get("complete") else _Record, record)
    return Opened(folder, _config(folder, record), record)


def simulation(folder: pathlib.Path, asked: str, digests: bool = True) -> Opened:
    """Open the folder of an incomplete `jaxdae run` in order to resume it.

    Args:
        folder: the folder.
        asked: the purpose, such as --resume.
        digests: whether to verify the results of an interrupted run, which reads all of them.

    Raises:
        Refused: the folder does not qualify.
    """
    _check_parts(folder, (run_folder.CONFIG, run_folder.RECORD), "the folder of a run of jaxdae run")
    record = _record(folder)
    if "learned" in record:
        raise Refused(
            f"{asked}: got {folder}, a run of jaxdae {record['learned'].get('command')}, expected a run of "
            "jaxdae run; use --resume of jaxdae tune or optimize"
        )
    _validated(folder, _Record, record)
    config = _config(folder, record)
    if record["complete"]:
        raise Refused(f"{asked}: got {folder}, which is complete; use jaxdae plot to draw it")
    if not isinstance(record.get("identity"), dict):
        raise Refused(
            f"{asked}: got {folder}, a run of an older version without checkpoints; run its "
            f"{run_folder.CONFIG} again"
        )
    if digests:
        _check_digests(folder, record)  # A killed run has no digests.
    _check_targets(folder, (run_folder.RECORD, run_folder.REPORT))
    return Opened(folder, config, record)


def _check_parts(folder: pathlib.Path, parts: tuple[str, ...], expected: str) -> None:
    try:
        is_folder, missing = folder.is_dir(), [part for part in parts if not (folder / part).exists()]
    except OSError as error:
        raise Refused(f"{folder}: got an unreadable folder ({error.strerror}), expected {expected}") from None
    if missing:
        what = f"a folder without {', '.join(missing)}" if is_folder else "no such folder"
        raise Refused(f"{folder}: got {what}, expected {expected}")


def _record(folder: pathlib.Path) -> dict[str, Any]:
    try:
        record = json.loads(_text(folder / run_folder.RECORD, _RECORD_BYTES))
    except (ValueError, RecursionError) as error:
        raise _damaged(folder / run_folder.RECORD, f"text that is not JSON ({error})") from None
    if not isinstance(record, dict):
        raise _damaged(folder / run_folder.RECORD, "JSON that is not a mapping")
    return record


def _text(file: pathlib.Path, largest: int) -> str:
    try:
        return safe_files.read_text(file, largest)
    except OSError as error:
        raise _damaged(file, f"an unreadable file ({error.strerror})") from None
    except safe_files.Unreadable as error:
        raise _damaged(file, str(error)) from None
    except UnicodeDecodeError as error:
        raise _damaged(file, f"bytes that are not text ({error.reason})") from None


def _validated(folder: pathlib.Path, model: type[pydantic.BaseModel], record: dict[str, Any]) -> None:
    try:
        model.model_validate(record)
    except pydantic.ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        raise _damaged(
            folder / run_folder.RECORD, f"a record with a wrong entry {place} ({first['msg']})"
        ) from None


def _config(folder: pathlib.Path, record: dict[str, Any]) -> Config:
    """Return the config of a run; require that `config.yaml` and the record agree."""
    file = folder / run_folder.CONFIG
    try:
        recorded = Config.model_validate(record["config"])
    except pydantic.ValidationError as error:
        raise _damaged(
            folder / run_folder.RECORD, f"an invalid config ({error.error_count()} errors)"
        ) from None
    try:
        document = read(str(file))
    except ConfigError as error:
        raise Refused(f"{error}; {_SAME}") from None
    try:
        written = Config.model_validate(document.data)
    except pydantic.ValidationError as error:
        raise _damaged(file, f"an invalid config ({error.error_count()} errors)") from None
    difference = _difference(run_folder.resolved(recorded), run_folder.resolved(written), "")
    if document.problems or difference:
        raise _damaged(
            file,
            f"a config that differs from the config in {run_folder.RECORD} "
            f"({difference or document.problems[0]})",
        )
    return recorded


def _difference(recorded: Any, written: Any, path: str) -> str:
    """Return the first difference between two configs with both values, or an empty string."""
    if json.dumps(recorded, sort_keys=True) == json.dumps(written, sort_keys=True):
        return ""
    if isinstance(recorded, dict) and isinstance(written, dict):
        keys = [*recorded, *(key for key in written if key not in recorded)]
        pairs = ((str(key), recorded.get(key), written.get(key)) for key in keys)
    elif isinstance(recorded, list) and isinstance(written, list) and len(recorded) == len(written):
        pairs = ((str(index), *both) for index, both in enumerate(zip(recorded, written, strict=True)))
    else:
        return f"{path}: {json.dumps(written)[:60]} instead of {json.dumps(recorded)[:60]}"
    return next(
        found for key, one, other in pairs if (found := _difference(one, other, f"{path}.{key}".lstrip(".")))
    )


def _check_digests(folder: pathlib.Path, record: dict[str, Any], *required: str) -> None:
    """Raise if a result file differs from its digest, or if a required file has no digest."""
    wrong, digests = [], record.get("digests", {})
    for name, expected in digests.items():
        parts = pathlib.PurePosixPath(name)
        if parts.is_absolute() or ".." in parts.parts:
            raise _damaged(folder / run_folder.RECORD, f"the name {name!r}, which is outside of the folder")
        try:
            same = (folder / name).is_file() and safe_files.digest(folder / name) == expected
        except OSError as error:
            raise _damaged(folder / name, f"an unreadable file ({error.strerror})") from None
        if not same:
            wrong.append(name)
    if any(all(pathlib.PurePosixPath(name).parts[:1] != (part,) for name in digests) for part in required):
        raise _damaged(folder / run_folder.RECORD, "a record without the digests of the results")
    if wrong:
        more = f" and {len(wrong) - 1} others" if len(wrong) > 1 else ""
        exists = (folder / wrong[0]).exists()
        raise _damaged(
            folder / wrong[0],
            f"{'a file that has changed since the run' if exists else 'no such file'}{more}",
        )


def _check_targets(folder: pathlib.Path, names: tuple[str, ...]) -> None:
    """Raise if an output, one of `names` or a plot, is a link or is neither a file nor a folder."""
    for name in names:
        safe_files.check_place(folder / name)
    if run_folder.CHECKPOINT in names:  # All other files are first written under a unique name.
        safe_files.check_place(checkpoint.partial(folder / run_folder.CHECKPOINT))
    plots = folder / run_folder.PLOTS
    if plots.is_symlink() or (plots.exists() and not plots.is_dir()):
        raise Refused(
            f"{plots}: got {'a symbolic link' if plots.is_symlink() else 'a file'}, expected an "
            "ordinary folder; remove it"
        )
    for file in plots.iterdir() if plots.exists() else ():
        if file.is_symlink() or not file.is_file():
            raise Refused(f"{file}: got a symbolic link or a folder, expected a picture; remove it")


def _damaged(file: pathlib.Path, got: str) -> Refused:
    return Refused(f"{file}: got {got}, expected the original file of the run; {_SAME}; nothing was written")

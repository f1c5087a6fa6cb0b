"""Run folders: a unique name for every run, and the origin of the results next to them."""

import contextlib
import datetime
import importlib.metadata
import json
import os
import pathlib
import platform
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from typing import Any

import yaml

from jaxdae._version import __version__
from jaxdae.app.config import safe_files
from jaxdae.app.config.problems import Failed
from jaxdae.app.config.schema import Config
from jaxdae.base.atomic_writes import force, force_names

RECORD = "run.json"
CONFIG = "config.yaml"
RESULTS = "results.zarr"
REPORT = "report.md"
PLOTS = "plots"
CHECKPOINT = "checkpoint.npz"
HISTORY = "history.csv"
TUNED = "tuned.yaml"
CONTROLS = "controls.csv"
OPTIMIZED = "optimized.yaml"
MOTION = "motion"
LOCK = "lock"
_SAY_NONE = ("projection", "position")  # written as "none", because an omitted key means the default
_PACKAGES = ("jaxdae", "jax", "jaxlib", "numpy", "scipy", "xarray", "zarr")


def create(parent: pathlib.Path, name: str, now: datetime.datetime | None = None) -> pathlib.Path:
    """Return a new, empty run folder `parent/name-<UTC time>`, with `-2`, `-3`, ... if the name exists.

    Creating a folder is atomic. Runs started at the same moment, even by different processes, therefore never
    share one.
    """
    now = now or datetime.datetime.now(datetime.UTC)
    parent.mkdir(parents=True, exist_ok=True)
    stem = f"{name}-{now:%Y%m%dT%H%M%SZ}"
    number = 1
    while True:
        folder = parent / (stem if number == 1 else f"{stem}-{number}")
        try:
            folder.mkdir()
        except FileExistsError:
            number += 1
        else:
            force_names(parent)
            return folder


def write_config(folder: pathlib.Path, config: Config) -> None:
    """Write the resolved config, including defaults, in a form that `jaxdae run` can read again."""
    text = yaml.safe_dump(
        resolved(config), sort_keys=False, allow_unicode=True, default_flow_style=None, width=120
    )
    safe_files.write_text(folder / CONFIG, text)


def write_record(folder: pathlib.Path, record: dict[str, Any]) -> None:
    """Write `run.json` atomically."""
    safe_files.write_text(folder / RECORD, json.dumps(record, indent=2, default=str) + "\n")


def read_record(folder: pathlib.Path) -> dict[str, Any]:
    """Return the contents of `run.json` of a trusted folder, without checks."""
    return json.loads((folder / RECORD).read_text(encoding="utf-8"))


def incomplete(record: dict[str, Any]) -> str:
    """Return the reason why the run of a record is incomplete, or an empty string for a complete run."""
    return "" if record["complete"] else record.get("stopped") or "it is still in progress, or it was killed"


def failed(error: OSError, folder: pathlib.Path, told: str) -> Failed:
    """Return the exception for a run whose folder could not be written.

    Args:
        error: the error of the operating system.
        folder: the run folder.
        told: the saved results and the way to continue, in words; valid if the folder still exists.
    """
    if (folder / RECORD).exists():
        return Failed(f"{safe_files.explained(error, folder)}; {told}")
    return Failed(
        f"{folder}: the folder was removed during the run, or its disk is gone; restore it, and {told}; "
        "otherwise, run the config again"
    )


def digests(folder: pathlib.Path) -> dict[str, str]:
    """Return the SHA-256 digests of all result files of a run, by their paths in the run folder."""
    candidates = [
        *(folder / RESULTS).rglob("*"),
        *(folder / name for name in (HISTORY, TUNED, CONTROLS, OPTIMIZED)),
    ]
    found = sorted(file for file in candidates if file.is_file() and file.suffix != safe_files.PARTIAL)
    return {file.relative_to(folder).as_posix(): safe_files.digest(file) for file in found}


@contextlib.contextmanager
def pictures(folder: pathlib.Path) -> Iterator[pathlib.Path]:
    """Yield an empty folder for plots; on success, move its files to `plots`, otherwise discard them."""
    with tempfile.TemporaryDirectory(prefix=f"{PLOTS}.", dir=folder) as place:
        yield pathlib.Path(place)
        (folder / PLOTS).mkdir(exist_ok=True)
        for file in sorted(pathlib.Path(place).iterdir()):
            force(file)
            file.replace(folder / PLOTS / file.name)
        force_names(folder / PLOTS)


def resolved(config: Config) -> dict[str, Any]:
    """Return the config as plain values including defaults, without keys that have no value."""
    return _without_none(config.model_dump(mode="json"))


def environment(project: pathlib.Path) -> dict[str, Any]:
    """Return versions, hardware and the state of the project's git repository."""
    return {"versions": versions(), "hardware": hardware(), "git": git_state(project)}


def versions() -> dict[str, str]:
    """Return the versions of Python and of the packages that affect the numbers."""
    found = {"python": platform.python_version()}
    for package in _PACKAGES:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            found[package] = "not installed"
    # The metadata of an editable installation may be older than its code.
    return found | {"jaxdae": __version__}


def hardware() -> dict[str, Any]:
    """Return a description of the machine from JAX and the operating system."""
    import jax

    return {
        "system": f"{platform.system()} {platform.release()}",
        "machine": platform.machine(),
        "processor": _processor(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "backend": jax.default_backend(),
        "devices": [str(device.device_kind) for device in jax.devices()],
        "XLA_FLAGS": os.environ.get("XLA_FLAGS", ""),
    }


def git_state(project: pathlib.Path) -> dict[str, Any] | None:
    """Return commit and number of changed files of the repository of a folder, or None without one."""
    commit = _git(project, "rev-parse", "HEAD")
    if commit is None:
        return None
    return {
        "commit": commit,
        "changed_files": len((_git(project, "status", "--porcelain") or "").splitlines()),
    }


def command_line() -> list[str]:
    """Return the command line as typed, without the folder of the program."""
    return [pathlib.Path(sys.argv[0]).name, *sys.argv[1:]]


def _git(project: pathlib.Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", *arguments], cwd=project, capture_output=True, text=True, timeout=10, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def _processor() -> str:
    try:
        lines = pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    return next(
        (line.partition(":")[2].strip() for line in lines if line.startswith("model name")),
        platform.processor(),
    )


def _without_none(value: Any) -> Any:
    """Return the value as in a config file: without None entries, type and name first."""
    if isinstance(value, dict):
        value = {key: value[key] for key in ("type", "name") if key in value} | value
        kept = {
            key: "none" if inside is None and key in _SAY_NONE else inside for key, inside in value.items()
        }
        return {key: _without_none(inside) for key, inside in kept.items() if inside is not None}
    if isinstance(value, list):
        return [_without_none(inside) for inside in value]
    return value

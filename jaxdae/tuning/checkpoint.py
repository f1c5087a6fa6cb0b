"""Checkpoints of a fit: whole or not there, and only ever continued by the fit that wrote them.

A checkpoint is one `.npz` file with every array that the fit carries from step to step and its history. It is written to a temporary file
beside it, forced to the disk, and then put in place by an atomic rename: a process killed at any instant leaves the checkpoint before or
the one after. Steps are deterministic, so that a fit that is continued ends where the uninterrupted one does, bit for bit.

The fingerprint in it is that of the compiled program (loss, optimizer, bounds, clipping, constants), of all numbers that are passed to
it, and of the version of JAX; a checkpoint of anything else is refused.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import pathlib
import zipfile
from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np

_FORMAT = 1
_META = "meta"


@dataclasses.dataclass(frozen=True)
class Checkpoint:
    """Where and how often a fit saves itself. Where the file is there already, the fit continues from it.

    Attributes:
        file: the path of the file, which ends in .npz.
        every: steps from one checkpoint to the next; the last step is always saved.
        saved: called after every checkpoint, and with the one that is continued, with the history so far (`FitStep` with a leading axis of
            steps) and what `record` returned.
    """

    file: str | os.PathLike[str]
    every: int = 10
    saved: Callable[[Any, Any], None] | None = None


def fingerprint(program: str, numbers: Any) -> dict[str, str]:
    """Returns what identifies a fit: hashes of its program's text and of the numbers it starts from, and the version of JAX."""
    digest = hashlib.sha256()
    for x in map(np.asarray, jax.tree.leaves(numbers)):
        digest.update(f"{x.dtype}{x.shape}".encode())
        digest.update(np.ascontiguousarray(x).tobytes())
    return {
        "program": hashlib.sha256(program.encode()).hexdigest(),
        "numbers": digest.hexdigest(),
        "jax": f"{jax.__version__} on {jax.default_backend()}",
    }


def write(file: pathlib.Path, carried: Any, history: Mapping[str, np.ndarray], identity: dict[str, str]) -> None:
    """Writes a checkpoint atomically.

    Args:
        file: where to.
        carried: pytree of arrays that the fit carries.
        history: arrays by name.
        identity: what `fingerprint` returned.
    """
    arrays: dict[str, Any] = {f"carried_{k}": np.asarray(x) for k, x in enumerate(jax.tree.leaves(carried))}
    arrays |= {f"history_{name}": np.asarray(x) for name, x in history.items()}
    meta = np.frombuffer(json.dumps({"format": _FORMAT, **identity}).encode(), np.uint8)
    partial = file.with_name(file.name + ".partial")
    with partial.open("wb") as stream:
        np.savez(stream, **{_META: meta}, **arrays)
        stream.flush()
        os.fsync(stream.fileno())
    partial.replace(file)
    _sync_folder(file.parent)


def _sync_folder(folder: pathlib.Path) -> None:
    """Forces the rename itself to the disk, where the system lets a folder be opened."""
    try:
        descriptor = os.open(folder, os.O_RDONLY)
    except OSError:
        return
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def read(file: pathlib.Path, like: Any, identity: dict[str, str]) -> tuple[Any, dict[str, np.ndarray]]:
    """Returns what the fit carried, as a pytree like `like`, and its history; removes what a killed writer left beside the file.

    Raises:
        ValueError: the file is no checkpoint, or one of another fit.
    """
    file.with_name(file.name + ".partial").unlink(missing_ok=True)
    try:
        # Opened here, because numpy leaves a file open that it cannot read.
        with file.open("rb") as stream, np.load(stream, allow_pickle=False) as stored:
            arrays = {name: stored[name] for name in stored.files}
        meta = json.loads(arrays.pop(_META).tobytes())
    except (OSError, ValueError, KeyError, zipfile.BadZipFile) as error:
        raise ValueError(f"checkpoint: {file} is no checkpoint of a fit ({error}); remove it to start anew") from None
    told = {
        "format": "its format is another",
        "jax": f"it was written with JAX {meta.get('jax')}, and this is {identity['jax']}",
        "program": "its fit has another loss, optimizer, bound, clipping or mode",
        "numbers": "its fit began from other numbers (start values, other leaves, hyperparameters, or batch)",
    }
    for key, what in told.items():
        if meta.get(key) != {"format": _FORMAT, **identity}[key]:
            raise ValueError(f"checkpoint: {file} is of another fit: {what}; continue that fit as it was, or name another file")
    leaves, structure = jax.tree.flatten(like)
    carried = [np.asarray(arrays[f"carried_{k}"], np.asarray(x).dtype) for k, x in enumerate(leaves)]
    history = {name.removeprefix("history_"): x for name, x in arrays.items() if name.startswith("history_")}
    return jax.tree.unflatten(structure, carried), history

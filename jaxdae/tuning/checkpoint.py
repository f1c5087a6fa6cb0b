"""Checkpoints of a fit: written atomically, and continued only by the fit that wrote them.

A checkpoint is one `.npz` file with every array that the fit carries from step to step, and its history. It
is written to a temporary file in the same folder, flushed to the disk, and moved into place by an atomic
rename. A process killed at any time leaves either the previous or the new checkpoint. Steps are
deterministic: a continued fit ends with the same bits as the uninterrupted fit.

The checkpoint contains a fingerprint of the compiled program (loss, optimizer, bounds, clipping, constants),
of all its numeric arguments, and of the version of JAX. A checkpoint with any other fingerprint is rejected.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import os
import pathlib
import stat
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import jax
import numpy as np

from jaxdae.base.atomic_writes import PARTIAL, whole

LARGEST = 10_000_000_000  # Bytes: far more than a fit needs, far less than an endless device would deliver.
_FORMAT = 2
_META = "meta"
_ZIP = b"PK\x03\x04"


class CheckpointError(ValueError):
    """A file that is not a checkpoint of the fit."""


@dataclasses.dataclass(frozen=True)
class Checkpoint:
    """Location and frequency of the checkpoints of a fit. If the file exists, the fit continues from it.

    Attributes:
        file: the path of the file, which ends in .npz.
        every: number of steps between checkpoints; the last step is always saved.
        saved: called after every checkpoint, and with the checkpoint from which the fit continues. Arguments
            are the history so far (`FitStep` with a leading axis of steps) and the results of `record`.
    """

    file: str | os.PathLike[str]
    every: int = 10
    saved: Callable[[Any, Any], None] | None = None


def fingerprint(program: str, numbers: Any) -> dict[str, str]:
    """Return the identity of a fit: hashes of its program and initial numbers, and the version of JAX."""
    digest = hashlib.sha256()
    for x in map(np.asarray, jax.tree.leaves(numbers)):
        digest.update(f"{x.dtype}{x.shape}".encode())
        digest.update(np.ascontiguousarray(x).tobytes())
    return {
        "program": hashlib.sha256(program.encode()).hexdigest(),
        "numbers": digest.hexdigest(),
        "jax": f"{jax.__version__} on {jax.default_backend()}",
    }


def write(
    file: pathlib.Path, carried: Any, history: Mapping[str, np.ndarray], identity: dict[str, str]
) -> None:
    """Write a checkpoint atomically.

    Args:
        file: path of the checkpoint.
        carried: pytree of arrays that the fit carries.
        history: arrays by name.
        identity: result of `fingerprint`.

    Raises:
        CheckpointError: arrays that are too large for `load`.
    """
    arrays: dict[str, Any] = {f"carried_{k}": np.asarray(x) for k, x in enumerate(jax.tree.leaves(carried))}
    arrays |= {f"history_{name}": np.asarray(x) for name, x in history.items()}
    size = sum(x.nbytes for x in arrays.values())
    if size > LARGEST:
        raise CheckpointError(
            f"checkpoint: {file} would have {size} bytes, the limit is {LARGEST}; record less, or train "
            "fewer parameters"
        )
    told = {"format": _FORMAT, "content": _content(arrays), **identity}
    meta = np.frombuffer(json.dumps(told).encode(), np.uint8)
    # Create the file exclusively, so that a link at its path is not followed.
    with whole(file, partial(file)) as place, place.open("xb") as stream:
        np.savez(stream, **{_META: meta}, **arrays)


def partial(file: pathlib.Path) -> pathlib.Path:
    """Return the path of the temporary file, always the same: `read` removes it after a killed writer."""
    return file.with_name(file.name + PARTIAL)


def load(file: pathlib.Path) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Return the metadata of a checkpoint, and its arrays as written.

    Raises:
        CheckpointError: not a regular file, too large, not a checkpoint, or modified.
    """
    with _read(file):
        meta, arrays = _stored(file)
        same = meta.get("format") != _FORMAT or meta["content"] == _content(arrays)
    if not same:
        raise CheckpointError(
            f"checkpoint: {file} is not a valid checkpoint of a fit (its content was changed); remove it "
            "to start over"
        )
    return meta, arrays


def meta(file: pathlib.Path) -> dict[str, Any]:
    """Return the metadata of a checkpoint, without reading its arrays.

    Raises:
        CheckpointError: not a regular file, too large, or not a checkpoint.
    """
    with _read(file):
        return _stored(file, only_meta=True)[0]


@contextlib.contextmanager
def _read(file: pathlib.Path) -> Iterator[None]:
    """Raise CheckpointError for any error while a file is read."""
    try:
        yield
    except Exception as error:  # Archive readers raise many types for damaged files.
        reason = " ".join(str(error).split()) or type(error).__name__
        raise CheckpointError(
            f"checkpoint: {file} is not a checkpoint of a fit ({reason}); remove it to start over"
        ) from error


def _stored(file: pathlib.Path, only_meta: bool = False) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Return metadata and arrays of a file.

    O_NONBLOCK avoids waiting for a pipe, and the check for a regular file avoids reading an endless device.
    """
    with os.fdopen(os.open(file, os.O_RDONLY | os.O_NONBLOCK), "rb") as stream:
        status = os.fstat(stream.fileno())
        if not stat.S_ISREG(status.st_mode) or status.st_size > LARGEST:
            raise CheckpointError(f"expected a regular file of at most {LARGEST} bytes")
        if stream.read(len(_ZIP)) != _ZIP:
            raise CheckpointError(
                f"expected an archive, got {'other content' if status.st_size else 'an empty file'}"
            )
        stream.seek(0)
        with np.load(stream, allow_pickle=False) as stored:
            arrays = {name: stored[name] for name in ([_META] if only_meta else stored.files)}
    return dict(json.loads(arrays.pop(_META).tobytes())), arrays


def _content(arrays: Mapping[str, np.ndarray]) -> str:
    """Return a hash of arrays, their names, dtypes and shapes."""
    digest = hashlib.sha256()
    for name in sorted(arrays):
        x = arrays[name]
        digest.update(f"{name}{x.dtype}{x.shape}".encode())
        digest.update(np.ascontiguousarray(x).tobytes())
    return digest.hexdigest()


def read(file: pathlib.Path, like: Any, identity: dict[str, str]) -> tuple[Any, dict[str, np.ndarray]]:
    """Return the carried state of a fit, as a pytree like `like`, and its history.

    The function also removes the temporary file of a killed writer.

    Raises:
        CheckpointError: not a checkpoint, modified, or a checkpoint of another fit.
    """
    partial(file).unlink(missing_ok=True)
    meta, arrays = load(file)
    told = {
        "format": "its format differs",
        "jax": f"it was written with JAX {meta.get('jax')}, but this is JAX {identity['jax']}",
        "program": "its fit has a different loss, optimizer, bound, clipping or mode",
        "numbers": "its fit started from different numbers (start values, other leaves, hyperparameters, "
        "or batch)",
    }
    for key, what in told.items():
        if meta.get(key) != {"format": _FORMAT, **identity}[key]:
            raise CheckpointError(
                f"checkpoint: {file} belongs to a different fit: {what}; continue that fit unchanged, or "
                "name another file"
            )
    leaves, structure = jax.tree.flatten(like)
    carried = [arrays.get(f"carried_{k}") for k in range(len(leaves))]
    for k, (x, expected) in enumerate(zip(carried, map(np.asarray, leaves), strict=True)):
        if x is None or (x.shape, x.dtype) != (expected.shape, expected.dtype):
            got = "nothing" if x is None else f"{x.dtype}{x.shape}"
            raise CheckpointError(
                f"checkpoint: {file} holds {got} as carried_{k}, expected {expected.dtype}{expected.shape}; "
                "remove it"
            )
    history = {name.removeprefix("history_"): x for name, x in arrays.items() if name.startswith("history_")}
    return jax.tree.unflatten(structure, carried), history

"""The parts of an unfinished run on disk: their progress, and the processes that work on them.

In the folder `parts` of a run, worlds 64 to 127 have up to four files:

    worlds-00000064-00000127.npz     the checkpoint for a bitwise exact resume; deleted on completion
    worlds-00000064-00000127.json    the record and summary of a complete part
    worlds-00000064-00000127.sha256  the store files that this part has written, with their digests
    worlds-00000064-00000127.lock    held by the working process; the lock ends with it

Checkpoints and records are written atomically. When all parts are complete, their summaries go into
`run.json`, and the folder is deleted.
"""

import contextlib
import dataclasses
import itertools
import json
import pathlib
import re
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np

from jaxdae.app.config import safe_files
from jaxdae.app.config.problems import Refused
from jaxdae.app.runs import locks, results, run_folder, store_digests
from jaxdae.app.runs.result_grid import Grid, Range
from jaxdae.app.runs.results import Writer
from jaxdae.app.runs.simulate import Carried, Summary
from jaxdae.tuning import checkpoint

FOLDER = "parts"
STORE = f"{FOLDER}/store{store_digests.ENDING}"
_NAME = re.compile(r"worlds-(\d{8})-(\d{8})\.(json|npz)")
_RECORD_BYTES = 1_000_000


@dataclasses.dataclass(frozen=True)
class Found:
    """A part that a process has started.

    Attributes:
        worlds: its worlds (first, past the last).
        complete: whether it is complete.
        told: the contents of its record or checkpoint: `steps`, the number of instants `written` in whole
            chunks, `summary`, and the `identity` of its run.
    """

    worlds: Range
    complete: bool
    told: dict[str, Any]

    @property
    def summary(self) -> Summary:
        """The summary of the part so far."""
        return Summary(**self.told["summary"])


def found(folder: pathlib.Path) -> list[Found]:
    """Return the started parts of a run that left a record or checkpoint, in the order of their worlds.

    Raises:
        Refused: a damaged file in the folder.
    """
    parts: dict[Range, Found] = {}
    for file in sorted((folder / FOLDER).glob("worlds-*")):
        match = _NAME.fullmatch(file.name)
        if match is None:
            continue
        worlds = int(match[1]), int(match[2]) + 1
        complete = match[3] == "json"
        if complete or worlds not in parts:
            with contextlib.suppress(FileNotFoundError):  # Another process has just completed it.
                parts[worlds] = Found(worlds, complete, _record(file) if complete else _told_by(file))
    return sorted(parts.values(), key=lambda part: part.worlds)


def listed(folder: pathlib.Path, worlds: Range) -> pathlib.Path:
    """Return the file that lists the files of a part."""
    return folder / FOLDER / f"{_stem(worlds)}{store_digests.ENDING}"


def check_store(folder: pathlib.Path, digest: store_digests.Digest | None = None) -> None:
    """Raise `Refused` if names, instants or metadata of the store have changed.

    See `check_written` for `digest`.
    """
    expected = store_digests.read(folder / STORE)
    if not expected:
        raise _damaged(
            folder / run_folder.RESULTS,
            f"a store without a list of its files in {folder / STORE}",
            "the run restarts",
        )
    changed = store_digests.first_changed(
        expected, expected, digest or store_digests.on_disk(folder / run_folder.RESULTS)
    )
    if changed is not None:
        raise Refused(
            f"{folder / run_folder.RESULTS / changed[0]}: got {changed[1]}, expected the original file of "
            f"the run; restore the folder as the run left it, or remove {run_folder.RESULTS} and {FOLDER} to "
            "restart the run"
        )


def check_written(
    folder: pathlib.Path, grid: Grid, found: list[Found], digest: store_digests.Digest | None = None
) -> None:
    """Raise `Refused` if a store file that these parts have written has changed.

    Args:
        folder: the run folder.
        grid: the chunking of the results.
        found: the parts.
        digest: returns the digest of a store file; by default, the digest of the file now on disk.
    """
    store = folder / run_folder.RESULTS
    for part in found:
        names = results.chunk_files(store, grid, part.worlds, part.told["written"])
        if part.complete and part.told["written"] != grid.saved:
            raise _damaged(
                _file(folder, part),
                f"the record of a part with {part.told['written']} of {grid.saved} saved states",
            )
        changed = store_digests.first_changed(
            store_digests.read(listed(folder, part.worlds)), names, digest or store_digests.on_disk(store)
        )
        if changed is not None:
            name, got = changed
            raise Refused(
                f"{store / name}: got {got}{results.what_is_in(name, grid)}, expected the original file of "
                f"the run; restore the folder as the run left it, or remove {_file(folder, part)} to restart "
                f"worlds {part.worlds[0]} to {part.worlds[1] - 1}"
            )


@contextlib.contextmanager
def locked(folder: pathlib.Path, worlds: Range) -> Iterator[None]:
    """Keep other processes from working on a part and on any overlapping part.

    Raises:
        Refused: another process works on some of these worlds.
    """
    (folder / FOLDER).mkdir(exist_ok=True)
    with locks.lock(folder, f"{FOLDER}/{_stem(worlds)}.lock"):
        # Each process takes its own lock before it checks the other locks. If two processes want the same
        # worlds, at least one of them sees the other.
        others = at_work(folder, worlds)
        if others:
            raise Refused(
                f"{folder}: got worlds {worlds[0]} to {worlds[1] - 1}, while another process is working on "
                f"worlds {others[0][0]} to {others[0][1] - 1}; wait for its end, or stop it first"
            )
        yield


def at_work(folder: pathlib.Path, beside: Range | None = None) -> list[Range]:
    """Return the parts on which a process of this machine works at present.

    Args:
        folder: the run folder.
        beside: if given, return only other parts that overlap this part.
    """
    found = []
    for file in sorted((folder / FOLDER).glob("worlds-*.lock")):
        first, last = file.stem.removeprefix("worlds-").split("-")
        worlds = int(first), int(last) + 1
        looked_at = beside is None or (worlds != beside and worlds[0] < beside[1] and beside[0] < worlds[1])
        if looked_at and locks.is_locked(file):
            found.append(worlds)
    return found


def save(
    folder: pathlib.Path,
    worlds: Range,
    identity: dict[str, str],
    carried: Carried,
    writer: Writer,
    summary: Summary,
) -> None:
    """Write the checkpoint of a part."""
    told = _told(worlds, identity, writer, summary)
    checkpoint.write(
        folder / FOLDER / f"{_stem(worlds)}.npz", _leaves(carried), writer.pending, {"told": json.dumps(told)}
    )


def resumed(
    folder: pathlib.Path, worlds: Range, like: Carried
) -> tuple[dict[str, Any], Carried, dict[str, np.ndarray]] | None:
    """Return the record, carried state and pending arrays of a checkpoint, or None without one.

    Args:
        folder: the run folder.
        worlds: the worlds of the part.
        like: the carried state of the part at its start.

    Raises:
        Refused: the checkpoint is damaged or belongs to another part.
    """
    file = folder / FOLDER / f"{_stem(worlds)}.npz"
    checkpoint.partial(file).unlink(missing_ok=True)
    if not file.exists():
        return None
    told, arrays = _checkpoint(file)
    leaves: list[Any] = [arrays.get(f"carried_{k}") for k in range(len(_leaves(like)))]
    pending = {name.removeprefix("history_"): x for name, x in arrays.items() if name.startswith("history_")}
    for x, expected in zip(leaves, _leaves(like), strict=True):
        if x is None or (x.shape, x.dtype) != (np.shape(expected), np.asarray(expected).dtype):
            raise _damaged(file, "arrays of another part")
    state, status, memory = jax.tree.unflatten(
        jax.tree.structure((like.state, like.status, like.memory)), leaves
    )
    return told, Carried(state, status, memory), pending


def complete(
    folder: pathlib.Path, worlds: Range, identity: dict[str, str], writer: Writer, summary: Summary
) -> None:
    """Record that a part is complete."""
    stem = folder / FOLDER / _stem(worlds)
    safe_files.write_text(
        stem.with_suffix(".json"), json.dumps(_told(worlds, identity, writer, summary), indent=2) + "\n"
    )
    stem.with_suffix(".npz").unlink(missing_ok=True)


def merged(parts: list[Found]) -> Summary:
    """Return the combined summary of all parts of a run; times are sums over the parts."""
    whole = Summary()
    for part in parts:
        one = part.summary
        for field in ("largest_violation", "largest_velocity_violation", "largest_velocity"):
            setattr(whole, field, max(getattr(whole, field), getattr(one, field)))
        for field in ("compile_s", "simulate_s"):
            setattr(whole, field, getattr(whole, field) + getattr(one, field))
        whole.status = {
            name: whole.status.get(name, 0) + one.status.get(name, 0) for name in (whole.status | one.status)
        }
        whole.layout = whole.layout or one.layout
    failed = [part.summary for part in parts if part.summary.failure]
    if failed:  # Report the same failure as a single part with all worlds would.
        first = min(failed, key=lambda one: one.failed_first)
        whole.failure, whole.failed_first = first.failure, first.failed_first
    # Use the first of the worst worlds, regardless of the partition of the worlds.
    if parts:
        worst = max(
            (part.summary for part in parts),
            key=lambda one: (one.energy_balance_relative, -one.energy_balance_world),
        )
        for field in ("error", "relative", "world"):
            setattr(whole, f"energy_balance_{field}", getattr(worst, f"energy_balance_{field}"))
        whole.energy_exchanged = worst.energy_exchanged
    whole.steps = min((part.summary.steps for part in parts), default=0)
    return whole


def overlap(parts: list[Found]) -> bool:
    """Return whether two parts share a world, because jobs with different partitions worked at the same time.

    Both jobs wrote the same bytes, but both counted the world.
    """
    ordered = sorted(part.worlds for part in parts)
    return any(after[0] < before[1] for before, after in itertools.pairwise(ordered))


def _told(worlds: Range, identity: dict[str, str], writer: Writer, summary: Summary) -> dict[str, Any]:
    steps, told = summary.steps, dataclasses.asdict(summary)
    return {
        "part": _stem(worlds),
        "identity": identity,
        "written": writer.written,
        "steps": steps,
        "summary": told,
    }


def _leaves(carried: Carried) -> list[Any]:
    return jax.tree.leaves((carried.state, carried.status, carried.memory))


def _stem(worlds: Range) -> str:
    return f"worlds-{worlds[0]:08d}-{worlds[1] - 1:08d}"


def _file(folder: pathlib.Path, part: Found) -> pathlib.Path:
    """Return the file that records the progress of a part."""
    return folder / FOLDER / f"{_stem(part.worlds)}.{'json' if part.complete else 'npz'}"


def _record(file: pathlib.Path) -> dict[str, Any]:
    try:
        return _checked(file, json.loads(safe_files.read_text(file, _RECORD_BYTES)))
    except FileNotFoundError:
        raise
    except (OSError, ValueError, TypeError, KeyError, safe_files.Unreadable) as error:
        raise _damaged(file, f"an invalid record of a part ({error})") from None


def _checkpoint(file: pathlib.Path) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    with _read(file):
        meta, arrays = checkpoint.load(file)
        return _checked(file, json.loads(meta["told"])), arrays


def _told_by(file: pathlib.Path) -> dict[str, Any]:
    """Return the record in a checkpoint without its arrays, which may be large.

    The arrays are checked when the part resumes.
    """
    with _read(file):
        return _checked(file, json.loads(checkpoint.meta(file)["told"]))


def _checked(file: pathlib.Path, told: dict[str, Any]) -> dict[str, Any]:
    """Return the required entries of a record after checking that it belongs to its file name."""
    Summary(**told["summary"])
    if told["part"] != file.stem:
        raise ValueError(f"{told['part']} under another name")
    return {key: told[key] for key in ("identity", "written", "steps", "summary")}


@contextlib.contextmanager
def _read(file: pathlib.Path) -> Iterator[None]:
    """Report an unreadable checkpoint as damaged, or as missing if it no longer exists."""
    try:
        yield
    except (checkpoint.CheckpointError, KeyError, TypeError, ValueError):
        if not file.exists():
            raise FileNotFoundError(file) from None
        raise _damaged(file, "an invalid checkpoint of a part") from None


def _damaged(file: pathlib.Path, got: str, then: str = "its worlds restart") -> Refused:
    return Refused(f"{file}: got {got}, expected the original file of the run; remove it, and {then}")

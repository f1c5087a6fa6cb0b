"""The progress of a run, from its folder alone, even while processes on other machines work on it."""

import datetime
import pathlib

from jaxdae.app.jobs import parts
from jaxdae.app.model.fit_history import read_table
from jaxdae.app.runs import locks, metrics, open_run, run_folder
from jaxdae.app.runs.progress import duration


def lines(folder: pathlib.Path) -> list[str]:
    """Return the output lines of `jaxdae status`.

    Raises:
        Refused: the folder is not a run folder.
    """
    found = open_run.looked_at(folder)
    if found.is_fit:
        return _of_fit(found)
    record, size, steps = found.record, found.config.batch.size, found.config.steps
    told = [f"{folder}: {found.config.name}, {size} worlds, {steps} steps, started {record['started']}"]
    if record["complete"]:
        numbers = record["results"]
        status = ", ".join(f"{count} {name}" for name, count in numbers["status"].items())
        return [
            *told,
            f"complete, finished {record['finished']}: {status}; largest violation "
            f"{numbers['largest_violation']:.3g}",
        ]
    begun = parts.found(folder)
    told.append(f"{far(begun, size, steps)}; {run_folder.incomplete(record)}")
    told += [
        f"worlds {first} to {behind - 1}: {state}" for (first, behind), state in _states(folder, begun, steps)
    ]
    return told + [_speed(line) for line in metrics.last_lines(folder)]


def _of_fit(found: open_run.Opened) -> list[str]:
    folder, record, learned = found.folder, found.record, found.record["learned"]
    count = getattr(found.config, learned["command"]).iterations
    told = [
        f"{folder}: {found.config.name}, jaxdae {learned['command']}, {count} iterations, started "
        f"{record['started']}"
    ]
    if record["complete"]:
        losses = (
            f"loss {learned['loss_at_start']:.6g} at the start, {learned['loss']:.6g} at iteration "
            f"{learned['best_iteration'] + 1}"
        )
        return [*told, f"complete, finished {record['finished']}: {losses}"]
    history = folder / run_folder.HISTORY
    columns = read_table(history) if history.exists() else {"iteration": (), "loss": ()}
    last = list(zip(columns["iteration"], columns["loss"], strict=True))[-1:]
    at = f"iteration {last[0][0]:.0f} of {count}, loss {last[0][1]:.6g}" if last else "no checkpoint yet"
    who = (
        "a process on this machine is working on it"
        if locks.is_locked(folder / run_folder.LOCK)
        else "no process on this machine is working on it"
    )
    return [*told, f"{at}; {run_folder.incomplete(record)}; {who}"]


def far(begun: list[parts.Found], size: int, steps: int) -> str:
    """Return the joint progress of all processes of a run in words.

    Args:
        begun: the parts with a record or checkpoint.
        size: the number of worlds.
        steps: steps per world.
    """
    done = sum(part.told["steps"] * (part.worlds[1] - part.worlds[0]) for part in begun)
    failed = sum(count for part in begun for name, count in part.summary.status.items() if name != "OK")
    ready = sum(part.worlds[1] - part.worlds[0] for part in begun if part.complete)
    return (
        f"{100.0 * done / (size * steps):.1f} % on disk, {ready} of {size} worlds complete, {failed} failed"
    )


def _states(folder: pathlib.Path, begun: list[parts.Found], steps: int) -> list[tuple[tuple[int, int], str]]:
    """Return the state of each incomplete part in words."""
    locked = set(parts.at_work(folder))
    known = {
        part.worlds: f"checkpoint at step {part.told['steps']} of {steps}"
        for part in begun
        if not part.complete
    }
    who = {
        True: "a process on this machine is working on it",
        False: "no process on this machine is working on it",
    }
    return [
        (worlds, f"{known.get(worlds, 'no checkpoint yet')}, {who[worlds in locked]}")
        for worlds in sorted({*known, *locked})
    ]


def _speed(line: dict) -> str:
    """Return the last metrics line of a process in words."""
    age = datetime.datetime.now(datetime.UTC) - datetime.datetime.fromisoformat(line["time"])
    first, last = line["worlds"]
    told = f"{line['world_steps_per_s']:,.4g} world steps/s, {line['memory_MB']} MB"
    ago = duration(max(age.total_seconds(), 0.0))
    return f"worlds {first} to {last - 1} at step {line['steps']} of {line['of']} {ago} ago: {told}"

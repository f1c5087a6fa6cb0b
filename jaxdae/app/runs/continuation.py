"""Check whether a run of tune or optimize can be continued; only a larger number of iterations may change."""

import pathlib
from collections.abc import Iterator
from typing import Any

from jaxdae.app.config.config_source import read, value_at
from jaxdae.app.config.problems import ConfigError, is_whole, show
from jaxdae.app.runs import run_folder


def refusal(folder: pathlib.Path, record: dict[str, Any], command: str, overrides: tuple[str, ...]) -> str:
    """Return the reason why a run cannot be continued with these overrides, or an empty string.

    The reason completes a message that starts with "got". The string is also empty if the overrides are
    invalid: reading the config reports the errors.

    Args:
        folder: the run folder.
        record: the content of its `run.json`.
        command: `tune` or `optimize`.
        overrides: assignments `path.to.key=value`.
    """
    source = str(folder / run_folder.CONFIG)
    try:
        before, after = read(source).data, read(source, overrides).data
    except ConfigError:
        return ""  # Reading the config for the run reports all errors.
    count = f"{command}.iterations"
    changes = list(_changes(before, after, ()))
    others = [
        f"{'.'.join(map(str, place))} {show(old)} -> {show(new)}"
        for place, old, new in changes
        if place != (command, "iterations")
    ]
    if others:
        told = ", ".join([*others[:3], *(["..."] if len(others) > 3 else [])])
        return (
            f"a change of {told}, expected no change except a larger {count}; start a new run for any other "
            "change"
        )
    old, new = (value_at(data, (command, "iterations")) for data in (before, after))
    if not all(map(is_whole, (old, new))):
        return ""
    if new < old:
        return (
            f"{count} {new}, expected more than the {old} of the run; a run can be lengthened but not "
            "shortened"
        )
    schedule = value_at(before, (command, "optimizer", "schedule"))
    if new > old and schedule != "constant":
        return (
            f"{count} {new} for a run of {old} with {command}.optimizer.schedule {schedule}, expected "
            f"schedule constant: with {schedule}, the learning rate of every iteration depends on the number "
            "of iterations; start a new run"
        )
    done = value_at(record, ("learned", "iterations")) if record["finished"] else None
    if done is not None and new <= done:
        more = f"; --set {count}=N with N above {done} lengthens it" if schedule == "constant" else ""
        return f"{folder}, which finished at {record['finished']}; there is nothing to continue{more}"
    return ""


def _changes(before: Any, after: Any, place: tuple[Any, ...]) -> Iterator[tuple[tuple[Any, ...], Any, Any]]:
    """Yield the locations at which two configs differ, with both values."""
    pairs: list[tuple[Any, Any, Any]] = []
    if isinstance(before, dict) and isinstance(after, dict):
        pairs = [(key, before.get(key), after.get(key)) for key in dict.fromkeys((*before, *after))]
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        pairs = [(index, *both) for index, both in enumerate(zip(before, after, strict=True))]
    elif before != after:
        yield place, before, after
    for key, old, new in pairs:
        yield from _changes(old, new, (*place, key))

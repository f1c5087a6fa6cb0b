"""Estimate the disk space of a run before anything is written, so that it does not fill the disk."""

import pathlib

import jax

from jaxdae.app.config import safe_files
from jaxdae.app.config.problems import Refused
from jaxdae.app.config.schema import Config
from jaxdae.app.config.schema_tuning import Optimize, Tune
from jaxdae.app.model.build import Worlds
from jaxdae.app.runs.result_grid import grid

_OVERHEAD = 10_000_000  # bytes of plots, reports, records and metadata
_WORD = 25  # bytes per number in a text table


def results_bytes(config: Config, entry: int) -> int:
    """Return an upper bound for the bytes of the results of `jaxdae run`; compression may save some.

    Args:
        config: the config.
        entry: bytes of one saved state of one world.
    """
    return config.batch.size * (config.steps // config.save_every + 1) * entry


def forecast(config: Config, entry: int, worlds: Worlds) -> str:
    """Return the memory and disk needs of a run with several parts in words; empty for a single part.

    Args:
        config: the config.
        entry: bytes of one saved state of one world.
        worlds: all of its worlds at their starts.
    """
    cut = grid(config, entry)
    parts = cut.parts((0, cut.size))
    if len(parts) == 1:
        return ""
    largest = max(behind - first for first, behind in parts)
    starts = sum(
        x.nbytes for x in jax.tree.leaves((worlds.system, worlds.state, worlds.guess, worlds.parameters))
    )
    # Count the pending instants, the computed block and its copy on the host.
    together = largest * entry * (min(cut.entries, cut.saved) + 2 * cut.block)
    return (
        f"{cut.size} worlds in {len(parts)} parts of at most {largest}: "
        f"{safe_files.in_words(starts)} of starts and {safe_files.in_words(together)} of results in memory "
        "at a time, in addition to Python and the compiled program; at most "
        f"{safe_files.in_words(results_bytes(config, entry))} on the disk"
    )


def fit_bytes(config: Config, section: Tune | Optimize) -> int:
    """Return an upper bound for the bytes that `jaxdae tune` or `optimize` writes."""
    if isinstance(section, Optimize):
        trained, driven = sum(given.knots for given in section.inputs), len(section.inputs)
    else:
        trained, driven = len(section.parameters), 0
    iteration = 8 + trained
    # A checkpoint exists twice during its replacement; the history table and the metrics lines are text.
    return (
        section.iterations * (iteration * (2 * 8 + _WORD) + 10 * _WORD) + config.steps * (driven + 1) * _WORD
    )


def check(folder: pathlib.Path, needed: int, remedy: str) -> None:
    """Raise `Refused` if a folder, which need not exist yet, has less than `needed` bytes of free space."""
    needed += _OVERHEAD
    free = safe_files.free_bytes(folder)
    if free is not None and free < needed:
        raise Refused(
            f"--out: got {folder} with {safe_files.in_words(free)} of free space, expected "
            f"{safe_files.in_words(needed)} for the results of this run; {remedy}, free some space, or "
            "choose another folder; nothing was written"
        )

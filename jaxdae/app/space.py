"""How much a run will write, told before anything is written: a disk that fills up overnight takes the night with it."""

import pathlib

import jax

from jaxdae.app import files
from jaxdae.app.build import Worlds
from jaxdae.app.grid import grid
from jaxdae.app.problems import Refused
from jaxdae.app.schema import Config
from jaxdae.app.schema_tuning import Optimize, Tune

_OVERHEAD = 10_000_000  # bytes of plots, reports, records and metadata
_WORD = 25  # bytes of a number in a table of text


def results_bytes(config: Config, entry: int) -> int:
    """Returns how many bytes the results of `jaxdae run` take at most; compression may save some of them.

    Args:
        config: the config.
        entry: bytes of one saved state of one world.
    """
    return config.batch.size * (config.steps // config.save_every + 1) * entry


def forecast(config: Config, entry: int, worlds: Worlds) -> str:
    """Returns in words what a run of several parts will take; nothing where all worlds are in memory at once.

    Args:
        config: the config.
        entry: bytes of one saved state of one world.
        worlds: all of its worlds at their starts.
    """
    cut = grid(config, entry)
    parts = -(-cut.size // cut.part)
    if parts == 1:
        return ""
    starts = sum(x.nbytes for x in jax.tree.leaves((worlds.system, worlds.state, worlds.guess, worlds.parameters)))
    # Beside what is not yet in the store, the block that is computed and its copy on the host.
    together = cut.part * entry * (min(cut.entries, cut.saved) + 2 * cut.block)
    return (
        f"{cut.size} worlds in {parts} parts of at most {cut.part}: {files.in_words(starts)} of starts and {files.in_words(together)} of"
        f" results in memory at a time, beside Python and the compiled program; at most {files.in_words(results_bytes(config, entry))}"
        " on the disk"
    )


def fit_bytes(config: Config, section: Tune | Optimize) -> int:
    """Returns how many bytes checkpoint, history and inputs of `jaxdae tune` or `optimize` take at most."""
    if isinstance(section, Optimize):
        trained, driven = sum(given.knots for given in section.inputs), len(section.inputs)
    else:
        trained, driven = len(section.parameters), 0
    iteration = 8 + trained
    # A checkpoint is there twice while it is replaced; the table of the history and the lines of metrics are text.
    return section.iterations * (iteration * (2 * 8 + _WORD) + 10 * _WORD) + config.steps * (driven + 1) * _WORD


def check(folder: pathlib.Path, needed: int, remedy: str) -> None:
    """Raises `Refused` where less than `needed` bytes are free below a folder, which need not be there yet."""
    needed += _OVERHEAD
    free = files.free_bytes(folder)
    if free is not None and free < needed:
        raise Refused(
            f"--out: got {folder}, where {files.in_words(free)} are free, expected {files.in_words(needed)} for the results of this run;"
            f" {remedy}, make room, or choose another folder; nothing was written"
        )

"""Partition of the results of a run over worlds and times.

Only the config determines the partition, so that no file depends on the process that wrote it.

    chunk    `worlds` x `entries` saved states, one file per variable; one process writes the complete chunk
    block    `block` saved states that the compiled program computes per call; a divisor of `entries`
    part     some chunks of worlds over all times: the unit of memory, and the unit of work of one process

A store of a million worlds needs the memory of one part. Different processes write different files. A run
that is divided into other parts, or continued after it was killed, leaves the same bytes.
"""

import dataclasses
from collections.abc import Iterable

from jaxdae.app.config.problems import Refused
from jaxdae.app.config.schema import Config

_BLOCKS = 40
_CHUNKS = 32  # Minimum number of chunks of worlds in a large batch, so that many processes can share it.
_FEWEST, _MOST = 32, 1024  # worlds per chunk
_CHUNK_BYTES = 16_000_000  # sum over all variables
_ENTRIES = 10_000
_BLOCK_BYTES = 128_000_000
_PART_BYTES = 256_000_000

Range = tuple[int, int]


@dataclasses.dataclass(frozen=True)
class Grid:
    """Sizes of the partition of the results.

    Attributes:
        size: number of worlds.
        saved: number of saved states per world, including the initial state.
        worlds: worlds per chunk of the store.
        entries: saved times per chunk of the store.
        block: saved states per call of the compiled program.
        part: maximum number of worlds per part, a multiple of `worlds`. Parts are as equal as whole chunks
            allow, so that all parts share one compiled program.
    """

    size: int
    saved: int
    worlds: int
    entries: int
    block: int
    part: int

    @property
    def chunks(self) -> int:
        """Return the number of chunks of worlds."""
        return -(-self.size // self.worlds)

    def share(self, index: int, count: int) -> Range:
        """Return the worlds (first, last + 1) of share `index` of `count`: whole chunks, distributed evenly.

        Raises:
            Refused: there are more shares than chunks.
        """
        if count > self.chunks:
            raise Refused(
                f"--chunks: got {count}, expected at most {self.chunks}: the results keep {self.worlds} "
                "worlds together"
                f" and there are {self.size}"
            )
        first, behind = (self.chunks * k // count for k in (index, index + 1))
        return first * self.worlds, min(behind * self.worlds, self.size)

    def parts(self, within: Range, taken: Iterable[Range] = ()) -> list[Range]:
        """Return the parts of a range of worlds without the ranges that are already taken, in order."""
        found, first = [], within[0]
        for low, high in [*sorted(taken), (within[1], within[1])]:
            found += self._divided(first, min(low, within[1]))
            first = max(first, high)
        return found

    def _divided(self, first: int, behind: int) -> list[Range]:
        """Divide adjacent worlds into the fewest and most equal parts of whole chunks, larger parts first."""
        found = []
        while first < behind:
            chunks = -(-(behind - first) // self.worlds)
            parts = -(-chunks * self.worlds // self.part)
            end = min(first + -(-chunks // parts) * self.worlds, behind)
            found.append((first, end))
            first = end
        return found


def grid(config: Config, entry: int) -> Grid:
    """Return the partition of the results of a config.

    Args:
        config: the config.
        entry: bytes of one saved state of one world, from `jaxdae.app.runs.results.entry_bytes`.
    """
    size, saved = config.batch.size, config.steps // config.save_every
    worlds = min(size, max(_FEWEST, min(-(-size // _CHUNKS), _MOST)))
    # A chunk with a single world would be compiled without a world axis, which changes the last bits.
    while size > 1 and size % worlds == 1:
        worlds += 1
    most = max(1, min(_CHUNK_BYTES // (entry * worlds), _ENTRIES))
    wanted = max(1, min(-(-saved // _BLOCKS), _BLOCK_BYTES // (entry * worlds), most))
    divisors = [n for n in range(max(1, wanted // 2), min(2 * wanted, most) + 1) if saved % n == 0]
    block = min(divisors, key=lambda n: abs(n - wanted)) if divisors else wanted
    entries = most // block * block
    part = max(1, _PART_BYTES // (entry * worlds * (entries + 2 * block))) * worlds
    return Grid(size, saved + 1, worlds, entries, block, part)

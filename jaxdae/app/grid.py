"""How the results of a run are cut, in worlds and in instants: by the config alone, so that no file depends on who wrote it.

    chunk of the store      `worlds` x `entries` saved states, one file a variable; only ever written whole, by one process
    block                   `block` saved states, what the compiled program computes at a time; a divisor of `entries`
    part                    some chunks of worlds, over all instants: what is in memory at a time, and what one process does

A store of a million worlds takes the memory of one part. Any two processes write different files. And a run that was cut into other
parts, or continued after it was killed, leaves the same bytes.
"""

import dataclasses
from collections.abc import Iterable

from jaxdae.app.problems import Refused
from jaxdae.app.schema import Config

_BLOCKS = 40
_CHUNKS = 32  # Chunks of worlds that a large batch has at least, so that many processes can share it.
_FEWEST, _MOST = 32, 1024  # worlds of a chunk
_CHUNK_BYTES = 16_000_000  # of all variables
_ENTRIES = 10_000
_BLOCK_BYTES = 128_000_000
_PART_BYTES = 256_000_000

Range = tuple[int, int]


@dataclasses.dataclass(frozen=True)
class Grid:
    """The numbers by which results are cut.

    Attributes:
        size: the number of worlds.
        saved: the number of saved states of each, its start among them.
        worlds: worlds of a chunk of the store.
        entries: instants of a chunk of the store.
        block: saved states that are computed at a time.
        part: the most worlds of a part, a multiple of `worlds`. Parts are as equal as whole chunks allow, so that one
            compiled program serves all of them.
    """

    size: int
    saved: int
    worlds: int
    entries: int
    block: int
    part: int

    @property
    def chunks(self) -> int:
        """The number of chunks of worlds."""
        return -(-self.size // self.worlds)

    def share(self, index: int, count: int) -> Range:
        """Returns the worlds (first, behind the last) of share `index` of `count`: whole chunks, as evenly as they can be.

        Raises:
            Refused: more shares than chunks.
        """
        if count > self.chunks:
            raise Refused(
                f"--chunks: got {count}, expected at most {self.chunks}: the results keep {self.worlds} worlds together"
                f" and there are {self.size}"
            )
        first, behind = (self.chunks * k // count for k in (index, index + 1))
        return first * self.worlds, min(behind * self.worlds, self.size)

    def parts(self, within: Range, taken: Iterable[Range] = ()) -> list[Range]:
        """Returns the parts of some worlds that do not belong to those that are taken, in order."""
        found, first = [], within[0]
        for low, high in [*sorted(taken), (within[1], within[1])]:
            found += self._divided(first, min(low, within[1]))
            first = max(first, high)
        return found

    def _divided(self, first: int, behind: int) -> list[Range]:
        """Return the parts of adjacent worlds: as few as possible, as equal as whole chunks allow, the larger ones first."""
        found = []
        while first < behind:
            chunks = -(-(behind - first) // self.worlds)
            parts = -(-chunks * self.worlds // self.part)
            end = min(first + -(-chunks // parts) * self.worlds, behind)
            found.append((first, end))
            first = end
        return found


def grid(config: Config, entry: int) -> Grid:
    """Returns how the results of a config are cut.

    Args:
        config: the config.
        entry: bytes of one saved state of one world, from `jaxdae.app.results.entry_bytes`.
    """
    size, saved = config.batch.size, config.steps // config.save_every
    worlds = min(size, max(_FEWEST, min(-(-size // _CHUNKS), _MOST)))
    # A world alone would be compiled without a world axis, to other last bits.
    while size > 1 and size % worlds == 1:
        worlds += 1
    most = max(1, min(_CHUNK_BYTES // (entry * worlds), _ENTRIES))
    wanted = max(1, min(-(-saved // _BLOCKS), _BLOCK_BYTES // (entry * worlds), most))
    divisors = [n for n in range(max(1, wanted // 2), min(2 * wanted, most) + 1) if saved % n == 0]
    block = min(divisors, key=lambda n: abs(n - wanted)) if divisors else wanted
    entries = most // block * block
    part = max(1, _PART_BYTES // (entry * worlds * (entries + 2 * block))) * worlds
    return Grid(size, saved + 1, worlds, entries, block, part)

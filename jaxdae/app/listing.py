"""Which files of the store are whole, with their SHA-256: no run goes on from a file, or ends with one, that was changed since.

Every part lists the files of the store that it has written, in `parts/worlds-00000064-00000127.sha256`; what was made at the beginning
(metadata, names, instants) is listed in `parts/store.sha256`. A line has the form of `sha256sum`, so that

    cd results.zarr && sha256sum --check --quiet ../parts/*.sha256

looks at them, too. A line is on the disk after its file, and before the checkpoint that counts on both: what a writer that was killed has
added after its last checkpoint is dropped, be it cut off or not.
"""

import os
import pathlib
from collections.abc import Callable, Iterable, Mapping

from jaxdae.app import files
from jaxdae.app.problems import Refused

ENDING = ".sha256"
_BYTES = 1_000_000_000

Digest = Callable[[str], str | None]


def lines(digests: Mapping[str, str]) -> str:
    """Returns a list of files by name as text."""
    return "".join(f"{digest}  {name}\n" for name, digest in digests.items())


def append(listing: pathlib.Path, digests: Mapping[str, str]) -> None:
    """Adds files to a list, and forces it to the disk."""
    with listing.open("a", encoding="utf-8") as stream:
        stream.write(lines(digests))
        stream.flush()
        os.fsync(stream.fileno())


def read(listing: pathlib.Path) -> dict[str, str]:
    """Returns the digests in a list by the names of their files; none where there is no list. A line without its end does not count.

    Raises:
        Refused: no list.
    """
    try:
        text = files.read_text(listing, _BYTES)
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, files.Unreadable) as error:
        raise Refused(f"{listing}: got no list of files ({error}), expected what the run wrote; remove it") from None
    pairs = (line.partition("  ") for line in text.split("\n")[:-1])
    return {name: digest for digest, _, name in pairs}


def keep(listing: pathlib.Path, names: Iterable[str]) -> None:
    """Leaves only these files in a list."""
    listed = read(listing)
    files.write_text(listing, lines({name: listed[name] for name in names if name in listed}))


def on_disk(store: pathlib.Path) -> Digest:
    """Returns what gives the digest of a file of a store as it lies there now, None where there is none."""

    def digest(name: str) -> str | None:
        try:
            return files.digest(store / name)
        except OSError:
            return None

    return digest


def first_changed(listed: Mapping[str, str], names: Iterable[str], digest: Digest) -> tuple[str, str] | None:
    """Returns the first of these files that is not as it was listed, and what is there in its place; None where all are."""
    for name in names:
        found = digest(name)
        if name not in listed:
            return name, "a file that was not listed" if found else "no such file"
        if found != listed[name]:
            return name, "a file that is not what the run wrote" if found else "no such file"
    return None

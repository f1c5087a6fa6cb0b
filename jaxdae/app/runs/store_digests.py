"""Lists of complete store files with their SHA-256, so that no run uses a file modified afterward.

Every part lists the store files that it has written, in `parts/worlds-00000064-00000127.sha256`. The list
`parts/store.sha256` covers the initial files (metadata, names, times). The lines have the format of
`sha256sum`, so you can also check them with

    cd results.zarr && sha256sum --check --quiet ../parts/*.sha256

A line reaches the disk after its file and before the checkpoint that relies on both. Lines that a killed
writer added after its last checkpoint are dropped, whether or not they are truncated.
"""

import os
import pathlib
from collections.abc import Callable, Iterable, Mapping

from jaxdae.app.config import safe_files
from jaxdae.app.config.problems import Refused

ENDING = ".sha256"
_BYTES = 1_000_000_000

Digest = Callable[[str], str | None]


def lines(digests: Mapping[str, str]) -> str:
    """Format a list of files and their digests as text."""
    return "".join(f"{digest}  {name}\n" for name, digest in digests.items())


def append(listing: pathlib.Path, digests: Mapping[str, str]) -> None:
    """Append files to a list and flush it to the disk."""
    with listing.open("a", encoding="utf-8") as stream:
        stream.write(lines(digests))
        stream.flush()
        os.fsync(stream.fileno())


def read(listing: pathlib.Path) -> dict[str, str]:
    """Return the digests of a list by file name, or {} if the list is missing; ignore an unterminated line.

    Raises:
        Refused: the list is not readable.
    """
    try:
        text = safe_files.read_text(listing, _BYTES)
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, safe_files.Unreadable) as error:
        raise Refused(
            f"{listing}: got an invalid list of files ({error}), expected the original file of the "
            "run; remove it"
        ) from None
    pairs = (line.partition("  ") for line in text.split("\n")[:-1])
    return {name: digest for digest, _, name in pairs}


def keep(listing: pathlib.Path, names: Iterable[str]) -> None:
    """Reduce a list to these files."""
    listed = read(listing)
    safe_files.write_text(listing, lines({name: listed[name] for name in names if name in listed}))


def on_disk(store: pathlib.Path) -> Digest:
    """Return a function that maps the name of a store file to its current digest, None if it is missing."""

    def digest(name: str) -> str | None:
        try:
            return safe_files.digest(store / name)
        except OSError:
            return None

    return digest


def first_changed(listed: Mapping[str, str], names: Iterable[str], digest: Digest) -> tuple[str, str] | None:
    """Return the first of these files that does not match the list, and the reason; None if all match."""
    for name in names:
        found = digest(name)
        if name not in listed:
            return name, "an unlisted file" if found else "no such file"
        if found != listed[name]:
            return name, "a file that has changed since the run" if found else "no such file"
    return None

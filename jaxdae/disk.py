"""What outlives a loss of power: files that are whole or not there, forced to the disk with their names before anybody counts on them."""

from __future__ import annotations

import contextlib
import errno
import os
import pathlib
import socket
from collections.abc import Iterator

PARTIAL = ".partial"
"""The ending of a file that is being written, and is no result."""


def beside(file: pathlib.Path) -> pathlib.Path:
    """Returns where this process, and no other, writes what is then put in the place of a file or a folder."""
    return file.with_name(f"{file.name}.{socket.gethostname()}.{os.getpid()}{PARTIAL}")


def is_being_written(partial: pathlib.Path) -> bool:
    """Returns whether another process of this machine, one that lives, has made a file or folder `beside` its place."""
    rest, _, number = partial.name.removesuffix(PARTIAL).rpartition(".")
    if not rest.endswith(f".{socket.gethostname()}") or not number.isdigit() or int(number) == os.getpid():
        return False
    try:
        os.kill(int(number), 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # It lives, and is of another user.
        return True
    return True


@contextlib.contextmanager
def whole(file: pathlib.Path, partial: pathlib.Path | None = None) -> Iterator[pathlib.Path]:
    """Gives the place where a file is written; it becomes the file where nothing fails, and leaves no trace where something does.

    What was written is forced to the disk first, and its new name afterwards. A link in the place of the file is replaced, not followed.

    Args:
        file: the file; one that is there stays until the new one is whole.
        partial: where it is written, in the same folder; left out, `beside` it.
    """
    partial = beside(file) if partial is None else partial
    partial.unlink(missing_ok=True)
    try:
        yield partial
        force(partial)
        partial.replace(file)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise
    force_names(file.parent)


def force(file: pathlib.Path) -> None:
    """Forces what was written into a file to the disk."""
    with file.open("rb") as stream:
        os.fsync(stream.fileno())


def force_names(folder: pathlib.Path) -> None:
    """Forces the names of new files in a folder to the disk, where the system lets a folder be opened and forced."""
    try:
        descriptor = os.open(folder, os.O_RDONLY)
    except OSError:
        return
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # Some file systems keep names without being asked, and cannot be.
            raise
    finally:
        os.close(descriptor)

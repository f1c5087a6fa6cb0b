"""Atomic and durable writes: a file is complete or absent, and is flushed to disk with its name."""

from __future__ import annotations

import contextlib
import errno
import os
import pathlib
import socket
from collections.abc import Iterator

PARTIAL = ".partial"
"""The suffix of an incomplete file."""


def beside(file: pathlib.Path) -> pathlib.Path:
    """Return the temporary path, unique to this process, at which a file or folder is written first."""
    return file.with_name(f"{file.name}.{socket.gethostname()}.{os.getpid()}{PARTIAL}")


def is_being_written(partial: pathlib.Path) -> bool:
    """Return whether another running process of this machine owns the temporary path (see `beside`)."""
    rest, _, number = partial.name.removesuffix(PARTIAL).rpartition(".")
    if not rest.endswith(f".{socket.gethostname()}") or not number.isdigit() or int(number) == os.getpid():
        return False
    try:
        os.kill(int(number), 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # It is running, as another user.
        return True
    return True


@contextlib.contextmanager
def whole(file: pathlib.Path, partial: pathlib.Path | None = None) -> Iterator[pathlib.Path]:
    """Yield the path for writing a file. On success it becomes the file; on an error it is removed.

    The content is flushed to disk before the rename, and the new name after it. A link in the place of the
    file is replaced, not followed.

    Args:
        file: the file; an existing file stays until the new one is complete.
        partial: the temporary path, in the same folder; by default `beside(file)`.
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
    """Flush the content of a file to disk."""
    with file.open("rb") as stream:
        os.fsync(stream.fileno())


def force_names(folder: pathlib.Path) -> None:
    """Flush the names of new files in a folder to disk, if the operating system supports it for folders."""
    try:
        descriptor = os.open(folder, os.O_RDONLY)
    except OSError:
        return
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # Some file systems reject fsync of folders.
            raise
    finally:
        os.close(descriptor)

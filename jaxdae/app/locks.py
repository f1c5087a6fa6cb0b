"""Locks on run folders. A lock ends with its process, however that ends, and says nothing on disks that know none."""

import contextlib
import fcntl
import os
import pathlib
from collections.abc import Iterator

from jaxdae.app import files, run_folder
from jaxdae.app.problems import Refused


@contextlib.contextmanager
def lock(folder: pathlib.Path, name: str = run_folder.LOCK) -> Iterator[None]:
    """Keeps other processes from continuing the run in a folder, or a part of it. The lock ends with the process, however that ends.

    Raises:
        Refused: another process holds it.
    """
    file = folder / name
    try:
        descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK, 0o644)
    except OSError as error:
        raise Refused(files.explained(error, file)) from None
    with os.fdopen(descriptor, "r+b", buffering=0):
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Refused(f"{folder}: got a run that another process works on; wait for its end, or end it first") from None
        except OSError as error:
            raise Refused(f"{file}: the disk knows no locks ({error.strerror}); copy the folder to another disk") from None
        if not file.exists() or not os.path.samestat(os.fstat(descriptor), file.stat()):
            raise Refused(f"{folder}: got a run that another process ends at this moment; try again")
        try:
            yield
        finally:
            file.unlink(missing_ok=True)


def is_locked(file: pathlib.Path) -> bool:
    """Returns whether a process of this machine holds a lock."""
    try:
        with file.open("rb") as stream:
            fcntl.flock(stream, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


@contextlib.contextmanager
def turn(folder: pathlib.Path) -> Iterator[None]:
    """Lets the processes that share a run change its record one after the other: waits for who is at it, and nobody is for long."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        with contextlib.suppress(OSError):  # Where a folder cannot be locked they are as many as before, and as seldom at one moment.
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)

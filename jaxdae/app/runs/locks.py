"""Locks on run folders. The operating system releases a lock when its process ends for any reason.

On a disk without lock support, `lock` raises `Refused`, `is_locked` returns False, and `turn` does not wait.
"""

import contextlib
import fcntl
import os
import pathlib
from collections.abc import Iterator

from jaxdae.app.config import safe_files
from jaxdae.app.config.problems import Refused
from jaxdae.app.runs import run_folder


@contextlib.contextmanager
def lock(folder: pathlib.Path, name: str = run_folder.LOCK) -> Iterator[None]:
    """Prevent other processes from continuing the run in a folder, or a part of the run.

    The lock ends with the process, for any reason.

    Raises:
        Refused: another process holds the lock, or the disk does not support locks.
    """
    file = folder / name
    try:
        descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK, 0o644)
    except OSError as error:
        raise Refused(safe_files.explained(error, file)) from None
    with os.fdopen(descriptor, "r+b", buffering=0):
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Refused(
                f"{folder}: got a run that another process is working on; wait for its end, or stop it first"
            ) from None
        except OSError as error:
            raise Refused(
                f"{file}: the disk does not support locks ({error.strerror}); copy the folder to another disk"
            ) from None
        if not file.exists() or not os.path.samestat(os.fstat(descriptor), file.stat()):
            raise Refused(f"{folder}: got a run that another process is just finishing; try again")
        try:
            yield
        finally:
            file.unlink(missing_ok=True)


def is_locked(file: pathlib.Path) -> bool:
    """Return whether a process on this machine holds a lock."""
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
    """Serialize changes to the record of a shared run; processes hold this lock only briefly."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        with contextlib.suppress(OSError):  # Continue without lock support: collisions are rare.
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)

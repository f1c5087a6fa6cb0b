"""Safe access to files of unknown origin: bounded reads, and atomic writes that do not follow symbolic links.

Reading a pipe or a device may never end. A symbolic link may point anywhere. Configs and run folders contain
neither.
"""

import errno
import hashlib
import os
import pathlib
import shutil
import stat

from jaxdae.app.config.problems import Refused
from jaxdae.base.atomic_writes import PARTIAL, force, is_being_written, whole

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class Unreadable(Exception):
    """Error for a file that is not a regular file or exceeds the size limit.

    Attributes:
        got: description of the file, for a message.
        remedy: the remedy.
    """

    def __init__(self, got: str, remedy: str):
        """Store the description and the remedy."""
        self.got, self.remedy = got, remedy
        super().__init__(f"{got}; {remedy}")


def read_text(file: pathlib.Path, largest: int) -> str:
    """Return the text of a regular file of at most `largest` bytes; never block on a pipe.

    Raises:
        Unreadable: the file is a pipe, a device or larger than `largest` bytes.
        OSError: the file does not exist, is a folder or is not readable.
        UnicodeDecodeError: the file is not valid UTF-8.
    """
    descriptor = os.open(file, os.O_RDONLY | os.O_NONBLOCK)
    with os.fdopen(descriptor, "rb") as stream:
        check_regular(os.fstat(stream.fileno()), largest)
        # Read one byte more than the limit, because the file may grow in the meantime.
        data = stream.read(largest + 1)
    if len(data) > largest:
        raise Unreadable(*_too_large(len(data), largest))
    return data.decode("utf-8")


def check_regular(status: os.stat_result, largest: int) -> None:
    """Raise `Unreadable` for a pipe, device or file above `largest` bytes, IsADirectoryError for a folder."""
    if stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    if not stat.S_ISREG(status.st_mode):
        raise Unreadable(
            "a pipe, a device or a socket", "write its content to a file and give the path of that file"
        )
    if status.st_size > largest:
        raise Unreadable(*_too_large(status.st_size, largest))


def _too_large(size: int, largest: int) -> tuple[str, str]:
    return f"a file of {in_words(size)}", f"the limit is {in_words(largest)}"


def check_place(file: pathlib.Path, otherwise: str = "") -> None:
    """Raise `Refused` if the path to be written is a symbolic link or exists and is not a regular file.

    Args:
        file: the path.
        otherwise: text of an alternative to removing it.
    """
    if file.is_symlink():
        raise Refused(
            f"{file}: got a symbolic link, expected a regular file or a free path; remove it{otherwise}"
        )
    if file.exists() and not file.is_file():
        raise Refused(f"{file}: got something that is not a regular file; remove it{otherwise}")


def write_text(file: pathlib.Path, text: str) -> None:
    """Write a file atomically; see `jaxdae.base.atomic_writes.whole`.

    If several processes write the same file at the same time, the last one wins.
    """
    with whole(file) as partial, partial.open("x", encoding="utf-8") as stream:
        stream.write(text)


def remove_leftovers(folder: pathlib.Path) -> None:
    """Remove partial files of killed processes; keep files that a live process on this machine is writing."""
    for leftover in folder.glob(f"*{PARTIAL}"):
        if is_being_written(leftover):
            continue
        if leftover.is_dir() and not leftover.is_symlink():
            shutil.rmtree(leftover, ignore_errors=True)
        else:
            leftover.unlink(missing_ok=True)


def digest(file: pathlib.Path) -> str:
    """Return the SHA-256 of the content of a file."""
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def forced(file: pathlib.Path) -> str:
    """Flush a written file to the disk and return the SHA-256 of its content."""
    force(file)
    return digest(file)


def free_bytes(folder: pathlib.Path) -> int | None:
    """Return the free bytes at the path of an existing or future folder, or None if they are unknown."""
    existing = next(
        place for place in (folder.absolute(), *folder.absolute().parents) if os.path.exists(place)
    )
    usage = shutil.disk_usage(existing)
    return usage.free if usage.total else None


def in_words(size: int | float) -> str:
    """Format a number of bytes with a suitable unit."""
    for unit in ("bytes", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.4g} {unit}"
        size /= 1000
    return f"{size:.4g} TB"


def explained(error: OSError, place: pathlib.Path | str) -> str:
    """Explain an operating system error for a path to be written, with a remedy."""
    reason = error.strerror or str(error)
    where = error.filename if isinstance(error.filename, str) else place
    if error.errno in _FULL:
        return (
            f"{where}: the disk is full, or a quota or limit is reached ({reason}); free some space, or "
            "choose another folder"
        )
    if error.errno == errno.EROFS:
        return f"{where}: the disk is not writable ({reason}); choose another folder"
    if error.errno in (errno.EACCES, errno.EPERM):
        return f"{where}: no permission to write ({reason}); change the permissions, or choose another folder"
    return f"{where}: {reason}; choose a writable folder"

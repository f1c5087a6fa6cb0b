"""Files that others may have put there: read whole but never without end, written whole and never through a link.

A pipe or a device has no end, or none that comes; a symbolic link may lead anywhere. Neither is what a config or a run folder is made of.
"""

import errno
import hashlib
import os
import pathlib
import shutil
import stat

from jaxdae.app.problems import Refused
from jaxdae.disk import PARTIAL, force, is_being_written, whole

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class Unreadable(Exception):
    """A file that is none, or too large to be what it should be.

    Attributes:
        got: what came, for a message.
        remedy: what to do.
    """

    def __init__(self, got: str, remedy: str):
        """Keeps both."""
        self.got, self.remedy = got, remedy
        super().__init__(f"{got}; {remedy}")


def read_text(file: pathlib.Path, largest: int) -> str:
    """Returns the text of a regular file of at most `largest` bytes, without waiting for a pipe to be filled.

    Raises:
        Unreadable: a pipe, a device or a larger file.
        OSError: no such file, a folder, or one that cannot be read.
        UnicodeDecodeError: bytes that are not UTF-8.
    """
    descriptor = os.open(file, os.O_RDONLY | os.O_NONBLOCK)
    with os.fdopen(descriptor, "rb") as stream:
        check_regular(os.fstat(stream.fileno()), largest)
        # Read by one byte more than is allowed: the file may grow meanwhile.
        data = stream.read(largest + 1)
    if len(data) > largest:
        raise Unreadable(*_too_large(len(data), largest))
    return data.decode("utf-8")


def check_regular(status: os.stat_result, largest: int) -> None:
    """Raises `Unreadable` for a pipe, a device and a file of more than `largest` bytes, and IsADirectoryError for a folder."""
    if stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    if not stat.S_ISREG(status.st_mode):
        raise Unreadable("a pipe, a device or a socket", "write its content to a file and name that")
    if status.st_size > largest:
        raise Unreadable(*_too_large(status.st_size, largest))


def _too_large(size: int, largest: int) -> tuple[str, str]:
    return f"a file of {in_words(size)}", f"at most {in_words(largest)} are read"


def check_place(file: pathlib.Path, otherwise: str = "") -> None:
    """Raises `Refused` where something else than a file is in the place of one that is to be written.

    Args:
        file: the place.
        otherwise: what may be done besides removing it.
    """
    if file.is_symlink():
        raise Refused(f"{file}: got a symbolic link, through which nothing is written; remove it{otherwise}")
    if file.exists() and not file.is_file():
        raise Refused(f"{file}: got something that is no file; remove it{otherwise}")


def write_text(file: pathlib.Path, text: str) -> None:
    """Writes a file whole or not at all, see `jaxdae.disk.whole`.

    Others may write the same file at the same moment: one of them is the last.
    """
    with whole(file) as partial, partial.open("x", encoding="utf-8") as stream:
        stream.write(text)


def remove_leftovers(folder: pathlib.Path) -> None:
    """Removes what processes that were killed were about to put in its place; what a living process of this machine writes now stays."""
    for leftover in folder.glob(f"*{PARTIAL}"):
        if is_being_written(leftover):
            continue
        if leftover.is_dir() and not leftover.is_symlink():
            shutil.rmtree(leftover, ignore_errors=True)
        else:
            leftover.unlink(missing_ok=True)


def digest(file: pathlib.Path) -> str:
    """Returns the SHA-256 of what a file holds."""
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def forced(file: pathlib.Path) -> str:
    """Forces a file that was written to the disk, and returns the SHA-256 of what it holds."""
    force(file)
    return digest(file)


def free_bytes(folder: pathlib.Path) -> int | None:
    """Returns how many bytes can still be written where a folder is, or will be; None where the file system does not say."""
    existing = next(place for place in (folder.absolute(), *folder.absolute().parents) if os.path.exists(place))
    usage = shutil.disk_usage(existing)
    return usage.free if usage.total else None


def in_words(size: int | float) -> str:
    """Returns a number of bytes with a unit that suits it."""
    for unit in ("bytes", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.4g} {unit}"
        size /= 1000
    return f"{size:.4g} TB"


def explained(error: OSError, place: pathlib.Path | str) -> str:
    """Returns what an error of the operating system means for a place that was to be written, and what to do."""
    reason = error.strerror or str(error)
    where = error.filename if isinstance(error.filename, str) else place
    if error.errno in _FULL:
        return f"{where}: the disk is full, or a quota or limit is reached ({reason}); make room, or choose a folder elsewhere"
    if error.errno == errno.EROFS:
        return f"{where}: the disk cannot be written to ({reason}); choose a folder elsewhere"
    if error.errno in (errno.EACCES, errno.EPERM):
        return f"{where}: no permission to write there ({reason}); change it, or choose a folder elsewhere"
    return f"{where}: {reason}; the folder must be one that can be written to"

"""What outlives a loss of power: contents of files are forced to the disk by whoever writes them, and their names here."""

from __future__ import annotations

import errno
import os
import pathlib


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

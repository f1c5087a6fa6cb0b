"""Access to referenced files: a robot file may name files in its own folder and in folders of the caller.

`package://name/...` and `model://name/...` are resolved in the given packages, then next to the file. Paths
that leave these folders, through dots or links, are rejected.
"""

from __future__ import annotations

import dataclasses
import os
import pathlib
from collections.abc import Mapping

from jaxdae.base.suggestions import brief, shorten

_MOST_PARTS = 400
_SCHEMES = ("package://", "model://")


class Outside(str):
    """The reason why a path outside the allowed folders is rejected."""


@dataclasses.dataclass(frozen=True)
class Folders:
    """The folders in which files may be read.

    Attributes:
        home: folder of the robot file.
        packages: folders by the names of packages or models.
    """

    home: pathlib.Path
    packages: Mapping[str, pathlib.Path] = dataclasses.field(default_factory=dict)

    def found(self, uri: str, beside: pathlib.Path) -> pathlib.Path | str:
        """Return the path that a file reference names, or the reason why it is rejected, perhaps `Outside`.

        Args:
            uri: a path, or a URI with `package://`, `model://` or `file://`.
            beside: folder of the file that contains the reference.
        """
        if "\0" in uri or not uri.strip():
            return f"{brief(uri)} is not a path"
        uri = uri.strip()
        for scheme in _SCHEMES:
            if uri.startswith(scheme):
                return self._of_package(*(uri.removeprefix(scheme).partition("/")[::2]))
        path = pathlib.Path(uri.removeprefix("file://"))
        return self._inside(path if path.is_absolute() else beside / path)

    def _of_package(self, name: str, rest: str) -> pathlib.Path | str:
        if name in self.packages:
            return self._inside(pathlib.Path(self.packages[name]) / rest)
        found = self._inside(self.home / name / rest)
        if isinstance(found, pathlib.Path):
            return found
        return (
            f"the package or model {brief(name)} was not found; give its folder as "
            f"packages={{{brief(name)}: ...}}"
        )

    def _inside(self, path: pathlib.Path) -> pathlib.Path | str:
        """Return the resolved path if it is in an allowed folder, else the reason in words."""
        shown = shorten(str(path), 300)
        if len(path.parts) > _MOST_PARTS:  # Each part costs a link lookup.
            return f"{shown} is not a valid path: it has {len(path.parts)} parts; the limit is {_MOST_PARTS}"
        try:
            real = pathlib.Path(os.path.realpath(path))
            exists = real.exists()
        except (OSError, ValueError) as error:
            return f"{shown} cannot be read: {getattr(error, 'strerror', None) or error}"
        allowed = [self.home, *self.packages.values()]
        if not any(real.is_relative_to(os.path.realpath(folder)) for folder in allowed):
            return Outside(
                f"{shown} is outside the folder of the robot; only files there and in packages={{...}} are "
                "read"
            )
        if not exists:
            return f"{shown} does not exist"
        return real

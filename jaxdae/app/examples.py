"""The configs that come with the package: those of `configs/` in the repository, which the wheel carries as data of this package.

There is one set of files. A wheel holds a copy of the folder beside this module; an editable install reads the repository's own.
"""

import pathlib
import re
import shutil

from jaxdae.app.problems import Refused, did_you_mean

_HERE = pathlib.Path(__file__).resolve().parent
_INSTALLED, _REPOSITORY = _HERE / "examples", _HERE.parents[1] / "configs"
_DESCRIPTION = re.compile(r"^description:\s*(.+?)\s*$", re.MULTILINE)
_FILE = re.compile(r"^\s+file:\s*([^\s#\"']+)", re.MULTILINE)


def folder() -> pathlib.Path:
    """Returns the folder of the configs.

    Raises:
        Refused: an installation without them.
    """
    for place in (_INSTALLED, _REPOSITORY):
        if place.is_dir():
            return place
    raise Refused(f"this installation holds no example configs; expected them in {_INSTALLED}: install jaxdae again")


def examples() -> dict[str, pathlib.Path]:
    """Returns the configs by name; those that read a file which only the repository holds are left out where it is missing."""
    found = {path.stem: path for path in sorted(folder().glob("*.yaml"))}
    return {name: path for name, path in found.items() if all((path.parent / file).is_file() for file in _files(path)[:1])}


def example(name: str) -> pathlib.Path:
    """Returns the file of a config.

    Raises:
        Refused: no config has this name.
    """
    known = examples()
    if name not in known:
        raise Refused(f"example: got {name!r}, expected one of the names that `jaxdae example` lists; {did_you_mean(name, known)}")
    return known[name]


def described(path: pathlib.Path) -> str:
    """Returns the description that a config gives of itself; empty where it gives none."""
    found = _DESCRIPTION.search(path.read_text(encoding="utf-8"))
    return found.group(1).strip("\"'") if found else ""


def copy(path: pathlib.Path, into: pathlib.Path) -> list[pathlib.Path]:
    """Copies a config and the robot file that it reads into a folder, and returns what was written.

    Raises:
        Refused: one of the files is there already; nothing is written then.
    """
    names = [pathlib.Path(path.name), *(pathlib.Path(file) for file in _files(path)[:1] if ".." not in pathlib.Path(file).parts)]
    there = [str(into / name) for name in names if (into / name).exists()]
    if there:
        raise Refused(f"example --copy: {', '.join(there)} exists, expected a folder without it; give another folder or remove the file")
    for name in names:
        (into / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path.parent / name, into / name)
    return [into / name for name in names]


def _files(path: pathlib.Path) -> list[str]:
    """Returns the files that a config reads; that of its mechanism first, which is the one that it cannot do without."""
    return _FILE.findall(path.read_text(encoding="utf-8"))

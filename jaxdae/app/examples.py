"""The configs that come with the package: those of `configs/` in the repository, which the wheel carries as data of this package.

There is one set of files. A wheel holds a copy of the folder beside this module; an editable install reads the repository's own.
"""

import pathlib
import re
import shutil
from typing import Any

import yaml

from jaxdae.app.problems import Refused, did_you_mean

_HERE = pathlib.Path(__file__).resolve().parent
_INSTALLED, _REPOSITORY = _HERE / "examples", _HERE.parents[1] / "configs"
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


def listed() -> list[str]:
    """Return the lines of the list: first the configs that the command runs completely, then those of experiment scripts."""
    known = {name: _parsed(path) for name, path in examples().items()}
    width = max(map(len, known))
    complete = {name: data for name, data in known.items() if not of_script(data)}
    of_scripts = {name: data for name, data in known.items() if of_script(data)}

    def row(name: str, data: dict[str, Any]) -> str:
        return f"  {name:<{width}}  {described(data)}".rstrip()

    return [
        "Configs that jaxdae runs completely, jaxdae run $(jaxdae example NAME):",
        *(row(*each) for each in complete.items()),
        "",
        "Configs of the scripts in experiments/, of which jaxdae run simulates only the mechanism:",
        *(f"{row(*each)} [{of_script(each[1])}]" for each in of_scripts.items()),
    ]


def described(data: dict[str, Any]) -> str:
    """Return the description of a config on one line; empty where it has none."""
    return " ".join(str(data.get("description") or "").split())


def of_script(data: dict[str, Any]) -> str:
    """Return the script that a config belongs to; empty where the command runs all of it."""
    return str(data.get("script") or ("a script" if data.get("experiment") else ""))


def _parsed(path: pathlib.Path) -> dict[str, Any]:
    found = yaml.load(path.read_text(encoding="utf-8"), yaml.CSafeLoader)
    return found if isinstance(found, dict) else {}


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

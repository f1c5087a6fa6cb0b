"""Example configs of the package: the folder `configs/` of the repository, also included in the wheel.

A wheel holds a copy of this folder, and of `experiments/` with the scripts, next to this module. An editable
install reads the folders of the repository.
"""

import pathlib
import re
import shutil
from typing import Any

import yaml

from jaxdae.app.config.problems import Refused, did_you_mean

_HERE = pathlib.Path(__file__).resolve().parent
_INSTALLED, _REPOSITORY = _HERE / "examples", _HERE.parents[1] / "configs"
_FILE = re.compile(r"^\s+file:\s*([^\s#\"']+)", re.MULTILINE)


def folder() -> pathlib.Path:
    """Return the folder of the example configs.

    Raises:
        Refused: the installation has no example configs.
    """
    for place in (_INSTALLED, _REPOSITORY):
        if place.is_dir():
            return place
    raise Refused(
        f"the installation has no example configs, expected them in {_INSTALLED}; install jaxdae again"
    )


def examples() -> dict[str, pathlib.Path]:
    """Return the configs by name; omit configs whose mechanism file is missing in this installation."""
    found = {path.stem: path for path in sorted(folder().glob("*.yaml"))}
    return {
        name: path
        for name, path in found.items()
        if all((path.parent / file).is_file() for file in _files(path)[:1])
    }


def example(name: str) -> pathlib.Path:
    """Return the file of a config.

    Raises:
        Refused: no config has this name.
    """
    known = examples()
    if name not in known:
        raise Refused(
            f"example: got {name!r}, expected one of the names that `jaxdae example` lists; "
            f"{did_you_mean(name, known)}"
        )
    return known[name]


def listed() -> list[str]:
    """Return the lines of the list: configs that the command runs completely, then configs of scripts."""
    known = {name: _parsed(path) for name, path in examples().items()}
    width = max(map(len, known))
    complete = {name: data for name, data in known.items() if not of_script(data)}
    of_scripts = {name: data for name, data in known.items() if of_script(data)}

    def row(name: str, data: dict[str, Any]) -> str:
        return f"  {name:<{width}}  {described(data)}".rstrip()

    return [
        "Configs that jaxdae runs: jaxdae example NAME --run, or jaxdae run $(jaxdae example NAME):",
        *(row(*each) for each in complete.items()),
        "",
        "Configs of experiments, jaxdae example NAME --run; jaxdae run simulates only their mechanism:",
        *(f"{row(*each)} [{of_script(each[1])}]" for each in of_scripts.items()),
    ]


def described(data: dict[str, Any]) -> str:
    """Return the description of a config on one line, or an empty string."""
    return " ".join(str(data.get("description") or "").split())


def of_script(data: dict[str, Any]) -> str:
    """Return the script that a config belongs to, or an empty string if the command runs the whole config."""
    return str(data.get("script") or ("a script" if data.get("experiment") else ""))


def script(config: pathlib.Path) -> pathlib.Path | None:
    """Return the file of the script that a config belongs to, or None if the command runs the whole config.

    Raises:
        Refused: the installation has no such script.
    """
    data = _parsed(config)
    if not of_script(data):
        return None
    places = [root / of_script(data) for root in (_HERE, _REPOSITORY.parent)]
    for place in places:
        if place.is_file():
            return place
    raise Refused(
        f"this installation has no {of_script(data)}, expected it in {places[0]}: install jaxdae again"
    )


def _parsed(path: pathlib.Path) -> dict[str, Any]:
    found = yaml.load(path.read_text(encoding="utf-8"), yaml.CSafeLoader)
    return found if isinstance(found, dict) else {}


def copy(path: pathlib.Path, into: pathlib.Path) -> list[pathlib.Path]:
    """Copy a config with its robot file and its log into a folder, and return the paths of the copies.

    Raises:
        Refused: one of the files already exists; nothing is written.
    """
    names = [
        pathlib.Path(path.name),
        *(pathlib.Path(file) for file in _files(path)[:1] if ".." not in pathlib.Path(file).parts),
        *(pathlib.Path(log.name) for log in [path.with_suffix(".csv")] if log.is_file()),
    ]
    there = [str(into / name) for name in names if (into / name).exists()]
    if there:
        raise Refused(
            f"example --copy: {', '.join(there)} exists, expected a folder without it; give another folder "
            "or remove the file"
        )
    for name in names:
        (into / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path.parent / name, into / name)
    return [into / name for name in names]


def _files(path: pathlib.Path) -> list[str]:
    """Return the files that a config reads; the first one is the file of the mechanism, which is required."""
    return _FILE.findall(path.read_text(encoding="utf-8"))

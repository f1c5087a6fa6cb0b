"""The command line of experiments.

Usage: `python experiments/NAME.py [CONFIG] [--set PATH=VALUE ...] [--out DIR]`.
"""

import argparse
import dataclasses
import pathlib
import sys
from typing import Any, TypeVar

import pydantic
import rich.console

from jaxdae.app.config.problems import ConfigError
from jaxdae.app.config.schema import Config
from jaxdae.app.model.load_config import load

Model = TypeVar("Model", bound=pydantic.BaseModel)


@dataclasses.dataclass(frozen=True)
class Script:
    """The parsed command line of an experiment.

    Attributes:
        config: the checked config.
        worlds: its worlds, with closed loops.
        source: the file of the config.
        out: the parent of the run folders.
        console: the output console.
    """

    config: Config
    worlds: Any
    source: str
    out: pathlib.Path
    console: rich.console.Console

    @property
    def folder(self) -> pathlib.Path:
        """The folder of the config; files that the config names are relative to it."""
        return pathlib.Path(self.source).parent


def script(default: str, about: str) -> Script:
    """Parse the command line of an experiment; exit with code 2 if its config has errors.

    Args:
        default: the config used without the argument CONFIG.
        about: the description of the experiment for `--help`.
    """
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("config", metavar="CONFIG", nargs="?", default=default, help=f"default: {default}")
    parser.add_argument(
        "--set", metavar="PATH=VALUE", action="append", default=[], help="override one value; repeatable"
    )
    parser.add_argument(
        "--out", metavar="DIR", type=pathlib.Path, default=pathlib.Path("runs"), help="default: runs"
    )
    asked = parser.parse_args()
    try:
        config, worlds = load(asked.config, tuple(asked.set))
    except ConfigError as error:
        parser.exit(2, f"{error}\n")
    return Script(config, worlds, asked.config, asked.out, rich.console.Console(file=sys.stdout))


def settings(asked: Script, model: type[Model]) -> Model | None:
    """Return the checked `experiment` section of the config; if it has errors, print them and return None.

    Args:
        asked: the result of `script`.
        model: the model of the section.
    """
    try:
        return model.model_validate(asked.config.experiment)
    except pydantic.ValidationError as error:
        for details in error.errors():
            place = ".".join(["experiment", *map(str, details["loc"])])
            asked.console.print(
                f"{asked.source}: {place}: {details['msg']}, got {details['input']!r}", markup=False
            )
        return None

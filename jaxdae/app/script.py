"""The command line that experiments share: `python experiments/NAME.py [CONFIG] [--set PATH=VALUE ...] [--out DIR]`."""

import argparse
import dataclasses
import pathlib
import sys
from typing import Any, TypeVar

import pydantic
import rich.console

from jaxdae.app.config import load
from jaxdae.app.problems import ConfigError
from jaxdae.app.schema import Config

Model = TypeVar("Model", bound=pydantic.BaseModel)


@dataclasses.dataclass(frozen=True)
class Script:
    """What an experiment was asked to do.

    Attributes:
        config: the checked config.
        worlds: its worlds, loops closed.
        source: the file of the config.
        out: where run folders are made.
        console: where to print.
    """

    config: Config
    worlds: Any
    source: str
    out: pathlib.Path
    console: rich.console.Console


def script(default: str, about: str) -> Script:
    """Returns what the command line of an experiment asks for; ends with exit code 2 where its config is wrong.

    Args:
        default: the config without the argument CONFIG.
        about: what the experiment does, for `--help`.
    """
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("config", metavar="CONFIG", nargs="?", default=default, help=f"default: {default}")
    parser.add_argument("--set", metavar="PATH=VALUE", action="append", default=[], help="override one value; repeatable")
    parser.add_argument("--out", metavar="DIR", type=pathlib.Path, default=pathlib.Path("runs"), help="default: runs")
    asked = parser.parse_args()
    try:
        config, worlds = load(asked.config, tuple(asked.set))
    except ConfigError as error:
        parser.exit(2, f"{error}\n")
    return Script(config, worlds, asked.config, asked.out, rich.console.Console(file=sys.stdout))


def settings(asked: Script, model: type[Model]) -> Model | None:
    """Returns the section `experiment` of the config, checked; None where it is wrong, after every mistake is printed with its place.

    Args:
        asked: what `script` returned.
        model: the model of the section.
    """
    try:
        return model.model_validate(asked.config.experiment)
    except pydantic.ValidationError as error:
        for details in error.errors():
            place = ".".join(["experiment", *map(str, details["loc"])])
            asked.console.print(f"{asked.source}: {place}: {details['msg']}, got {details['input']!r}", markup=False)
        return None

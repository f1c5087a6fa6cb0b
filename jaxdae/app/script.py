"""The command line that experiments share: `python experiments/NAME.py [CONFIG] [--set PATH=VALUE ...] [--out DIR]`."""

import argparse
import dataclasses
import pathlib
import sys
from typing import Any

import rich.console

from jaxdae.app.config import load
from jaxdae.app.problems import ConfigError
from jaxdae.app.schema import Config


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

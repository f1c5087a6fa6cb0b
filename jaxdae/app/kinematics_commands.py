"""The commands `jaxdae map` and `jaxdae calibrate`: workspace and calibration of a mechanism from a config.

This module does not import JAX.
"""

import pathlib
from typing import Annotated, Any

import typer

from jaxdae.app.load_or_stop import check_section, load_or_stop, make_folder
from jaxdae.app.runs.console import new_console

_CONFIG = typer.Argument(help="YAML file, see configs/.", show_default=False)
_LOG = typer.Argument(
    help="CSV file with one row per pose: encoder readings, measured poses and motor efforts.",
    show_default=False,
)
_SET = typer.Option("--set", metavar="PATH=VALUE", help="Override one value. Repeatable.")
_OUT = typer.Option("--out", metavar="DIR", help="Parent folder of the new run folder.")
_RUNS = pathlib.Path("runs")


def map_workspace(
    config: Annotated[str, _CONFIG],
    set_: Annotated[list[str] | None, _SET] = None,
    out: Annotated[pathlib.Path, _OUT] = _RUNS,
) -> None:
    """Map the workspace of a mechanism, as the section map of a config specifies.

    Write pictures of the distances from singular configurations and other quantities, the arrays and a report
    to a new folder.
    """
    from jaxdae.app.workspace_report import report

    report(_request("map", config, set_, out))


def calibrate(
    config: Annotated[str, _CONFIG],
    log: Annotated[pathlib.Path, _LOG],
    set_: Annotated[list[str] | None, _SET] = None,
    out: Annotated[pathlib.Path, _OUT] = _RUNS,
) -> None:
    """Fit lengths, joint axes, encoder offsets, masses and friction to a log of poses and motor efforts.

    The section calibrate of the config names them. Write the table as JSON and a report to a new folder.
    """
    from jaxdae.app.calibration_report import report

    report(_request("calibrate", config, set_, out), log)


def _request(command: str, config: str, overrides: list[str] | None, out: pathlib.Path) -> Any:
    """Return the checked config with the section of the command, its source and the output of the command."""
    checked, worlds = load_or_stop(config, overrides)
    check_section(checked, command, config)
    make_folder(out)
    from jaxdae.app.experiment_script import Script

    return Script(checked, worlds, config, out, new_console())

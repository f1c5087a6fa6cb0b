"""The command `jaxdae example`: list, copy and run the configs that come with the package.

This module does not import JAX.
"""

import pathlib
import runpy
import sys
from typing import Annotated

import typer

from jaxdae.app import examples
from jaxdae.app.config.problems import Refused
from jaxdae.app.runs.console import stop

_NAME = typer.Argument(
    metavar="NAME", help="A name from the list. Without a name, print the list.", show_default=False
)
_COPY = typer.Option(
    "--copy", metavar="DIR", help="Copy the config, its robot file and its log into this folder."
)
_RUN = typer.Option("--run", help="Run the script of an experiment, or jaxdae run for other configs.")
_SET = typer.Option("--set", metavar="PATH=VALUE", help="With --run: override one value. Repeatable.")
_OUT = typer.Option("--out", metavar="DIR", help="With --run: parent of the run folder.", show_default="runs")


def example(
    name: Annotated[str | None, _NAME] = None,
    copy: Annotated[pathlib.Path | None, _COPY] = None,
    run: Annotated[bool, _RUN] = False,
    set_: Annotated[list[str] | None, _SET] = None,
    out: Annotated[pathlib.Path | None, _OUT] = None,
) -> None:
    """List the configs that come with jaxdae, or print the path of a config, copy it or run it."""
    if name is None:
        given = f"--copy {copy}" if copy is not None else "--run" if run else ""
        if given:
            stop(f"example: got {given} without a NAME, expected both", code=2)
    if run and copy is not None:
        stop(f"example: got --run and --copy {copy}, expected one of them", code=2)
    if not run and (set_ or out is not None):
        stop("example: got --set or --out without --run, expected them with it", code=2)
    if name is None:
        for line in examples.listed():
            typer.echo(line)
        return
    found = examples.example(name)
    if run:
        _run(name, found, set_ or [], out)
        return
    for path in [found] if copy is None else examples.copy(found, copy):
        typer.echo(path)


def _run(name: str, config: pathlib.Path, overrides: list[str], out: pathlib.Path | None) -> None:
    script = examples.script(config)
    if script is None:
        from jaxdae.app.cli import run

        run(str(config), set_=overrides, out=out)
        return
    arguments = [str(config), *(word for each in overrides for word in ("--set", each))]
    _start(name, script, arguments if out is None else [*arguments, "--out", str(out)])


def _start(name: str, script: pathlib.Path, arguments: list[str]) -> None:
    """Run a script in this process, as `python SCRIPT ARGUMENTS` would.

    Raises:
        Refused: the script needs a package that is not installed.
    """
    command, path = sys.argv, list(sys.path)
    sys.argv = [str(script), *arguments]
    sys.path.insert(0, str(script.parent))
    try:
        runpy.run_path(str(script), run_name="__main__")
    except ModuleNotFoundError as error:
        package = (error.name or "").split(".")[0]
        if package == "jaxdae":
            raise
        # Modules of jaxdae raise this error with a text that names the extra.
        reason = str(error)
        if reason.startswith("No module named"):
            reason = f"the package {package} is not installed; install it with: pip install {package}"
        raise Refused(f"example {name} --run: {script.name} cannot run: {reason}") from error
    finally:
        sys.argv, sys.path[:] = command, path

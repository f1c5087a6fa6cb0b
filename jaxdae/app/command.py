"""The command `jaxdae`: run, check and plot. Heavy imports wait until a subcommand needs them.

Exit codes: 0 all is well, 1 a simulation failed, 2 the command line or the config is wrong (nothing is written then).
"""

import pathlib
from typing import Annotated, NoReturn

import typer

_CONFIG = typer.Argument(help="YAML file, see configs/.", show_default=False)
_SET = typer.Option("--set", metavar="PATH=VALUE", help="Override one value, for example --set forces.motor.torque=0.05. Repeatable.")
_OUT = typer.Option("--out", metavar="DIR", help="Where the run folder is made.")

app = typer.Typer(add_completion=False, no_args_is_help=True, rich_markup_mode=None, pretty_exceptions_enable=False)


def main() -> None:
    """Runs the command line."""
    app()


def _print_version(wanted: bool | None) -> None:
    if wanted:
        from jaxdae.app.run_folder import versions

        typer.echo(f"jaxdae {versions()['jaxdae']}")
        raise typer.Exit


@app.callback()
def _common(
    version: Annotated[bool | None, typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version.")] = None,
) -> None:
    """Mechanics with hard constraints: simulate mechanisms described in YAML files."""


@app.command()
def run(
    config: Annotated[str, _CONFIG],
    set_: Annotated[list[str] | None, _SET] = None,
    out: Annotated[pathlib.Path, _OUT] = pathlib.Path("runs"),
) -> None:
    """Simulate a config; results, plots and report go to a new folder."""
    from jaxdae.app import closing
    from jaxdae.app.run import run as run_config
    from jaxdae.app.run import table

    checked, worlds = _load(config, set_)
    console = _console()
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        _stop(f"--out: got {out}, where no folder can be made ({error.strerror}), expected a folder", code=2)
    redundant = closing.diagnosis(checked, worlds).redundant
    if redundant and checked.solver.type in ("dense_kkt", "schur_complement"):
        _note(
            f"redundant constraints at the start: {', '.join(redundant)}; {checked.solver.type} needs full rank and may fail:"
            " least_squares, null_space and proximal do not, and auto chooses"
        )
    done = run_config(checked, worlds, out, console, source=config)
    console.print(table(checked, done.record))
    console.print(f"run folder: {done.folder}", highlight=False, markup=False, soft_wrap=True)
    if done.summary.failure:
        _stop(f"the simulation failed: {done.summary.failure}", code=1)


@app.command()
def check(config: Annotated[str, _CONFIG], set_: Annotated[list[str] | None, _SET] = None) -> None:
    """Validate a config, close its loops and print mobility and diagnosis, without simulating."""
    from jaxdae.app import closing

    checked, worlds = _load(config, set_)
    console = _console()
    mechanism, batch = checked.mechanism, checked.batch
    parts = f"{len(mechanism.bodies)} bodies, {len(mechanism.joints)} joints, {len(mechanism.forces)} forces"
    lines = [f"{config}: {checked.name}: {parts}; {batch.size} worlds, {checked.steps} steps"]
    name, change = max(closing.moved(worlds), key=lambda pair: abs(pair[1]))
    lines.append(f"loops close; closing them moved the coordinates by at most {abs(change):.3g} ({name})")
    lines.append(str(closing.diagnosis(checked, worlds)))
    for line in lines:
        console.print(line, highlight=False, markup=False, soft_wrap=True)


@app.command()
def plot(
    folder: Annotated[pathlib.Path, typer.Argument(metavar="RUN", help="A run folder.", show_default=False)],
) -> None:
    """Redraw plots and report of a run."""
    from jaxdae.app import run_folder

    parts = (run_folder.CONFIG, run_folder.RECORD, run_folder.RESULTS)
    missing = [part for part in parts if not (folder / part).exists()]
    if missing:
        what = "no such folder" if not folder.is_dir() else f"a folder without {', '.join(missing)}"
        _stop(f"{folder}: got {what}, expected the folder of a run, for example runs/NAME-TIME", code=2)
    record = run_folder.read_record(folder)
    if "results" not in record:
        _stop(
            f"{folder}: got a run that did not finish, expected a finished one; run its {run_folder.CONFIG} again",
            code=2,
        )
    from jaxdae.app.run import draw
    from jaxdae.app.schema import Config

    draw(folder, Config.model_validate(record["config"]), record)
    _console().print(f"drawn into {folder / run_folder.PLOTS}", highlight=False, markup=False, soft_wrap=True)


def _load(config: str, overrides: list[str] | None) -> tuple:
    from jaxdae.app.config import load
    from jaxdae.app.problems import ConfigError

    try:
        return load(config, tuple(overrides or ()))
    except ConfigError as error:
        count = len(error.problems)
        _stop(f"{error}\n{count} problem{'s' if count > 1 else ''} in {config}; nothing was written", code=2)


def _console():
    import rich.console

    return rich.console.Console()


def _note(text: str) -> None:
    typer.echo(f"note: {text}", err=True)


def _stop(text: str, code: int) -> NoReturn:
    typer.echo(text, err=True)
    raise typer.Exit(code)

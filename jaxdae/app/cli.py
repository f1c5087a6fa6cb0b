"""The command `jaxdae`: run, tune, optimize, check, map, calibrate, plot and example.

Heavy imports wait until a subcommand needs them.

Exit codes: 0 success; 1 a simulation or a disk write failed; 2 the command line, the config or a run folder
has an error (nothing is written); 130 Ctrl-C; 143 SIGTERM.
"""

import contextlib
import pathlib
from collections.abc import Callable
from typing import Annotated, Any

import typer

from jaxdae.app import compilation_cache
from jaxdae.app.config.bare_robot import is_robot
from jaxdae.app.example_command import example
from jaxdae.app.exit_codes import Commands
from jaxdae.app.export.show import export, plot, view
from jaxdae.app.kinematics_commands import calibrate, map_workspace
from jaxdae.app.load_or_stop import check_section, load_or_stop, make_folder
from jaxdae.app.runs.console import new_console, note, stop, warnings_as_notes
from jaxdae.app.xla_flags import for_small_programs
from jaxdae.base.suggestions import counted

_SET = typer.Option(
    "--set",
    metavar="PATH=VALUE",
    help="Override one value, for example --set forces.motor.torque=0.05. Repeatable.",
)
_OUT = typer.Option("--out", metavar="DIR", help="Parent folder of the new run folder.", show_default="runs")
_RUNS = pathlib.Path("runs")

app = typer.Typer(cls=Commands, no_args_is_help=True, rich_markup_mode=None, pretty_exceptions_enable=False)


def main() -> None:
    """Run the command line."""
    for_small_programs()
    warnings_as_notes()
    compilation_cache.use()
    app(prog_name="jaxdae")


def _print_version(wanted: bool | None) -> None:
    if wanted:
        from jaxdae import __version__

        typer.echo(f"jaxdae {__version__}")
        raise typer.Exit


@app.callback()
def _common(
    version: Annotated[
        bool | None,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version."),
    ] = None,
) -> None:
    """Mechanics with hard constraints: simulate mechanisms described in YAML files."""


_OPTIONAL_CONFIG = typer.Argument(help="YAML file, see configs/. Omit it with --resume.", show_default=False)
_MOVED = typer.Argument(
    metavar="[CONFIG]",
    help="YAML file, see configs/, or a robot file (.urdf, .sdf, .xml), which is released at its start for 2 "
    "s. Omit it with --resume.",
    show_default=False,
)
_RESUME = typer.Option(
    "--resume",
    metavar="RUN",
    help="Continue the run in this folder, with results bitwise identical to an uninterrupted run. With "
    "--set and more iterations, continue beyond its end.",
)


_RESUME_RUN = typer.Option(
    "--resume",
    metavar="RUN",
    help="Continue the run in this folder, with results bitwise identical to an uninterrupted run.",
)
_CHUNKS = typer.Option(
    "--chunks",
    min=1,
    help="Divide the worlds among this many jobs and run one of them; jaxdae merge combines the results.",
)
_CHUNK = typer.Option("--chunk", min=0, help="Index of this job, from 0.")
_DISTRIBUTED = typer.Option(
    "--distributed",
    help="Join several processes, started by srun, by mpirun or with the three options below.",
)
_COORDINATOR = typer.Option(
    "--coordinator", metavar="HOST:PORT", help="With --distributed: the address of process 0."
)
_PROCESSES = typer.Option("--processes", min=1, help="With --distributed: the number of processes.")
_PROCESS = typer.Option("--process", min=0, help="With --distributed: the index of this process, from 0.")
_ANIMATE = typer.Option("--animate", help="Also write an animation of the nominal world, plots/motion.gif.")
_DEVICES = typer.Option(
    "--devices", min=1, help="Number of cores, or of devices, that share the worlds. Default: all."
)


@app.command()
def run(
    config: Annotated[str | None, _MOVED] = None,
    set_: Annotated[list[str] | None, _SET] = None,
    out: Annotated[pathlib.Path | None, _OUT] = None,
    resume: Annotated[pathlib.Path | None, _RESUME_RUN] = None,
    chunks: Annotated[int | None, _CHUNKS] = None,
    chunk: Annotated[int | None, _CHUNK] = None,
    distributed: Annotated[bool, _DISTRIBUTED] = False,
    coordinator: Annotated[str | None, _COORDINATOR] = None,
    processes: Annotated[int | None, _PROCESSES] = None,
    process: Annotated[int | None, _PROCESS] = None,
    devices: Annotated[int | None, _DEVICES] = None,
    animate: Annotated[bool, _ANIMATE] = False,
) -> None:
    """Simulate a config and write results, plots and a report to a new folder."""
    from jaxdae.app.jobs import launch

    if (config is None) == (resume is None):
        stop(f"run: got {'both' if config else 'neither'}, expected a CONFIG or --resume RUN", code=2)
    if (chunks is None) != (chunk is None) or (chunk is not None and chunks is not None and chunk >= chunks):
        stop(
            f"run: got --chunks {chunks} and --chunk {chunk}, expected both, with --chunk from 0 to one less "
            "than --chunks",
            code=2,
        )
    if distributed and (chunks or resume):
        stop(
            "run --distributed: got --chunks or --resume, expected neither: to continue a stopped run, "
            "repeat the same command",
            code=2,
        )
    if animate and (chunks or distributed or resume):
        stop(
            "run --animate: got --chunks, --distributed or --resume too, expected a new run in a single "
            "process",
            code=2,
        )
    given = coordinator, processes, process
    joined = _joined("run", distributed, given, lambda: _read_before(str(config), set_))
    if resume is not None:
        if set_ or chunks or out:
            stop(
                "run --resume: got --set, --chunks or --out, expected none of them: a continued run keeps "
                "its folder and settings",
                code=2,
            )
        _tell(launch.resume(resume, _load_again, new_console(), devices))
        return
    source, out = str(config), out or _RUNS
    checked, worlds = load_or_stop(source, set_)
    _note_script(checked)
    _check_space(checked, worlds, out)
    make_folder(out)
    _warn_of_rows(checked, worlds)
    if chunks is not None and chunk is not None:
        told, failed = launch.share(checked, worlds, out, new_console(), source, (chunk, chunks), devices)
        new_console().print(told, highlight=False, markup=False, soft_wrap=True)
        if failed:
            stop(failed, code=1)
        return
    if joined is not None:
        done = launch.distributed(checked, worlds, out, new_console(), source, joined, devices)
        if done is not None:
            _tell(done)
        return
    from jaxdae.app.jobs.run_config import run as run_config

    done = run_config(checked, worlds, out, new_console(), source=source, devices=devices)
    if animate:
        from jaxdae.app.draw.animate_run import animate as write_motion

        write_motion(done.folder, done.config)
    _tell(done)


def _joined(
    command: str,
    distributed: bool,
    given: tuple[str | None, int | None, int | None],
    check: Callable[[], Any],
) -> Any:
    """Connect this process to the others with `--distributed`, after the checks that do not need them."""
    from jaxdae.app.jobs import hosts

    coordinator, processes, process = given
    if not distributed and (coordinator or processes or process is not None):
        stop(
            f"{command}: got --coordinator, --processes or --process without --distributed, expected them "
            "with it",
            code=2,
        )
    if not distributed:
        return None
    check()
    return hosts.join(coordinator, processes, process)


def _read_before(source: str, overrides: list[str] | None) -> Any:
    """Return a config after the checks of its text, without any computation.

    If the config has errors, print all of them and end the command.
    """
    from jaxdae.app.model.load_config import readable

    return readable(source, tuple(overrides or ())) or load_or_stop(source, overrides)[0]


@app.command()
def merge(
    folder: Annotated[pathlib.Path, typer.Argument(metavar="RUN", help="A run folder.", show_default=False)],
) -> None:
    """Combine the results of the jobs of jaxdae run --chunks in a run folder, and draw the plots."""
    from jaxdae.app.jobs import launch

    _tell(launch.merge(folder, _load_again, new_console()))


@app.command()
def status(
    folder: Annotated[pathlib.Path, typer.Argument(metavar="RUN", help="A run folder.", show_default=False)],
) -> None:
    """Show the progress of a run or fit, the processes that work on it, and their speed."""
    from jaxdae.app.jobs import watch

    for line in watch.lines(folder):
        new_console().print(line, highlight=False, markup=False, soft_wrap=True)


@app.command()
def tune(
    config: Annotated[str | None, _OPTIONAL_CONFIG] = None,
    set_: Annotated[list[str] | None, _SET] = None,
    out: Annotated[pathlib.Path | None, _OUT] = None,
    resume: Annotated[pathlib.Path | None, _RESUME] = None,
    distributed: Annotated[bool, _DISTRIBUTED] = False,
    coordinator: Annotated[str | None, _COORDINATOR] = None,
    processes: Annotated[int | None, _PROCESSES] = None,
    process: Annotated[int | None, _PROCESS] = None,
) -> None:
    """Fit numbers of a config by gradient descent, as its section tune specifies.

    Write the history, the plots and the tuned config to a new folder.
    """
    _learn("tune", config, set_, out, resume, distributed, (coordinator, processes, process))


@app.command()
def optimize(
    config: Annotated[str | None, _OPTIONAL_CONFIG] = None,
    set_: Annotated[list[str] | None, _SET] = None,
    out: Annotated[pathlib.Path | None, _OUT] = None,
    resume: Annotated[pathlib.Path | None, _RESUME] = None,
    distributed: Annotated[bool, _DISTRIBUTED] = False,
    coordinator: Annotated[str | None, _COORDINATOR] = None,
    processes: Annotated[int | None, _PROCESSES] = None,
    process: Annotated[int | None, _PROCESS] = None,
) -> None:
    """Optimize inputs over time by gradient descent, as the section optimize of a config specifies.

    Write the history, the plots and the inputs to a new folder.
    """
    _learn("optimize", config, set_, out, resume, distributed, (coordinator, processes, process))


_FILE = typer.Argument(
    metavar="CONFIG", help="YAML file, see configs/, or a robot file (.urdf, .sdf, .xml).", show_default=False
)
_GRADIENTS = typer.Option(
    "--gradients",
    help="Compare the gradient of the loss in forward mode, in reverse mode and by finite differences.",
)


@app.command()
def check(
    config: Annotated[str, _FILE],
    set_: Annotated[list[str] | None, _SET] = None,
    gradients: Annotated[bool, _GRADIENTS] = False,
) -> None:
    """Validate a config, close its loops, and print tree, loops, mobility and diagnosis."""
    if is_robot(config):
        _check_robot(config, set_)
        return
    from jaxdae.app.model import close_loops, structure

    checked, worlds = load_or_stop(config, set_)
    _note_script(checked)
    console = new_console()
    mechanism, batch = checked.mechanism, checked.batch
    acting, kind = (mechanism.drives, "drive") if mechanism.order == "first" else (mechanism.forces, "force")
    bodies = counted(len(mechanism.bodies), "body", "bodies")
    parts = f"{bodies}, {counted(len(mechanism.joints), 'joint')}, {counted(len(acting), kind)}"
    size = f"{counted(batch.size, 'world')}, {counted(checked.steps, 'step')}"
    lines = [f"{config}: {checked.name}: {parts}; {size}"]
    name, change = max(
        close_loops.moved(checked, worlds), key=lambda pair: abs(pair[1]), default=("none", 0.0)
    )
    lines.append(f"loops close; closing them moved the coordinates by at most {abs(change):.3g} ({name})")
    lines += structure.lines(checked)
    found = close_loops.diagnosis(checked, worlds)
    lines += [str(found), f"{'redundant joints':<28}{', '.join(found.redundant) or 'none'}"]
    lines += close_loops.gaps(checked, worlds)
    lines += close_loops.stable_step(checked, worlds)
    for line in lines:
        console.print(line, highlight=False, markup=False, soft_wrap=True)
    if gradients and not _certificate(checked, worlds, console):
        raise typer.Exit(1)


app.command("map")(map_workspace)
for _command in (calibrate, example, view, plot, export):
    app.command()(_command)


def _learn(
    command: str,
    config: str | None,
    overrides: list[str] | None,
    out: pathlib.Path | None,
    resume: pathlib.Path | None,
    distributed: bool,
    shared: tuple[str | None, int | None, int | None],
) -> None:
    from jaxdae.app.runs import open_run, run_folder

    if (config is None) == (resume is None):
        stop(
            f"{command}: got {'both' if config else 'neither'}, expected a CONFIG or --resume RUN",
            code=2,
        )
    if resume is not None and out is not None:
        stop(
            f"{command} --resume: got --out {out}, expected no --out: a continued run keeps its folder",
            code=2,
        )
    given = tuple(overrides or ())

    def check() -> None:
        from jaxdae.app.learn.fit_run import check_divides

        source = (
            str(config)
            if resume is None
            else str(open_run.continuable_fit(resume, command, given).folder / run_folder.CONFIG)
        )
        read = _read_before(source, overrides)
        check_section(read, command, source)
        check_divides(read, command)

    hosts = _joined(command, distributed, shared, check)
    if resume is None:
        continued = contextlib.nullcontext()
    elif hosts is not None and hosts.index > 0:
        continued = contextlib.nullcontext(open_run.continuable_fit(resume, command, given))
    else:
        continued = open_run.fit(resume, command, given)
    with continued as found:
        source = str(config) if found is None else str(found.folder / run_folder.CONFIG)
        _learn_checked(command, source, overrides, out or _RUNS, found, hosts)


def _learn_checked(
    command: str, source: str, overrides: list[str] | None, out: pathlib.Path, found: Any, hosts: Any
) -> None:
    """Run a fit of a config in a new folder, or in the folder that it continues."""
    checked, worlds = load_or_stop(source, overrides)
    check_section(checked, command, source)
    from jaxdae.app.learn.fit_run import learn, rows
    from jaxdae.app.runs import disk_space

    console = new_console()
    disk_space.check(
        found.folder if found else out,
        disk_space.fit_bytes(checked, getattr(checked, command)),
        "use fewer iterations",
    )
    if found is None:
        make_folder(out)
    elif not found.has_checkpoint:
        note(f"{found.folder} has no checkpoint; the fit restarts at its first iteration")
    try:
        done = learn(checked, worlds, command, console, parent=out, source=source, resume=found, hosts=hosts)
    except ValueError as error:
        stop(f"{command} failed: {error}", code=1)
    for label, value in [] if done is None else rows(done.record):
        console.print(f"{label}: {value}", highlight=False, markup=False, soft_wrap=True)
    if done is not None:
        console.print(f"run folder: {done.folder}", highlight=False, markup=False, soft_wrap=True)


def _check_robot(path: str, overrides: list[str] | None) -> None:
    """Print the content of a robot file, and the largest stable step of the method that `run` uses."""
    from jaxdae.app.config import robot_section
    from jaxdae.app.config.problems import ConfigError
    from jaxdae.app.model import close_loops
    from jaxdae.app.model.load_config import load

    try:
        found = robot_section.lines(path)
    except (ValueError, ModuleNotFoundError) as error:
        stop(str(error), code=2)
    try:
        found += close_loops.stable_step(*load(path, tuple(overrides or ())))
    except ConfigError as error:
        found.append(f"{'stable step':<28}unknown, because jaxdae run stops:\n{error}")
    console = new_console()
    for line in found:
        console.print(line, highlight=False, markup=False, soft_wrap=True)


def _load_again(config: str) -> tuple:
    return load_or_stop(config, None)


def _check_space(checked: Any, worlds: Any, out: pathlib.Path) -> None:
    from jaxdae.app.runs import disk_space, results

    entry = results.entry_bytes(worlds.one()[0], 8 if checked.precision == "float64" else 4)
    disk_space.check(
        out,
        disk_space.results_bytes(checked, entry),
        "increase save_every, or simulate fewer worlds or a shorter time",
    )
    told = disk_space.forecast(checked, entry, worlds)
    if told:
        note(told)


def _note_script(checked: Any) -> None:
    """Print a note if the config belongs to a script."""
    from jaxdae.app.runs import verdicts

    if checked.of_script:
        note(verdicts.mechanism_only(checked))


def _warn_of_rows(checked: Any, worlds: Any) -> None:
    from jaxdae.app.model import close_loops

    found = close_loops.diagnosis(checked, worlds)
    if found.redundant and checked.solver.type in ("dense_kkt", "schur_complement"):
        note(
            f"redundant constraints at the start: {', '.join(found.redundant)}; {checked.solver.type} needs "
            "full rank and may fail; use least_squares, null_space, proximal or auto"
        )
    # A structure without mobility is a valid result. Wheels that block each other should not pass for one.
    if found.blocking_rows and not found.told:
        note(
            f"the mechanism cannot move at the start, because of {', '.join(found.blocking_rows)}; see "
            "jaxdae check"
        )


def _tell(done: Any) -> None:
    """Print the report of a run; exit with code 1 if the run failed."""
    from jaxdae.app.jobs.run_record import table
    from jaxdae.app.runs import verdicts

    console = new_console()
    console.print(table(done.config, done.record))
    for sentence in verdicts.sentences(done.record["results"]):
        console.print(sentence, highlight=False, markup=False, soft_wrap=True)
    console.print(f"run folder: {done.folder}", highlight=False, markup=False, soft_wrap=True)
    if done.summary.failure:
        stop(f"the simulation failed: {done.summary.failure}", code=1)


def _certificate(checked: Any, worlds: Any, console: Any) -> bool:
    """Print the gradient check of each section that has a loss, and return whether all of them passed."""
    from jaxdae.app.config.precision import precision
    from jaxdae.app.model.objective import objective
    from jaxdae.app.runs.progress import compiling
    from jaxdae.tuning import check_gradients

    passed = True
    sections = [section for section in (checked.tune, checked.optimize) if section is not None] or [None]
    for section in sections:
        with precision(checked):
            found = objective(checked, worlds, section)
            if not found.parameters:
                stop(
                    "check --gradients: got no number to differentiate, expected mechanism.rates or a "
                    "section tune",
                    code=2,
                )
            compiling(console, "the loss and its derivatives, forward and reverse")
            report = check_gradients(found.loss, found.parameters)
        console.print(str(report), highlight=False, markup=False, soft_wrap=True)
        passed = passed and report.passed
    return passed

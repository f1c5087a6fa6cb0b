"""The command `jaxdae`: run, tune, optimize, check, plot and example.

Heavy imports wait until a subcommand needs them.

Exit codes: 0 all is well, 1 a simulation failed or its disk did, 2 the command line, the config or a run
folder is wrong (nothing is written then), 130 Ctrl-C, 143 SIGTERM.
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
from jaxdae.app.runs.console import new_console, note, stop, warnings_as_notes
from jaxdae.app.xla_flags import for_small_programs

_SET = typer.Option(
    "--set",
    metavar="PATH=VALUE",
    help="Override one value, for example --set forces.motor.torque=0.05. Repeatable.",
)
_OUT = typer.Option("--out", metavar="DIR", help="Where the run folder is made.", show_default="runs")
_RUNS = pathlib.Path("runs")

app = typer.Typer(cls=Commands, no_args_is_help=True, rich_markup_mode=None, pretty_exceptions_enable=False)


def main() -> None:
    """Runs the command line."""
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


_OPTIONAL_CONFIG = typer.Argument(help="YAML file, see configs/; left out with --resume.", show_default=False)
_MOVED = typer.Argument(
    metavar="[CONFIG]",
    help="YAML file, see configs/, or a robot file (.urdf, .sdf, .xml), released at its start for 2 s; left "
    "out with --resume.",
    show_default=False,
)
_RESUME = typer.Option(
    "--resume",
    metavar="RUN",
    help="Continue the run in this folder, bit for bit as if it had not stopped; with --set of more "
    "iterations, beyond its end.",
)


_RESUME_RUN = typer.Option(
    "--resume", metavar="RUN", help="Continue the run in this folder, bit for bit as if it had not stopped."
)
_CHUNKS = typer.Option(
    "--chunks",
    min=1,
    help="Share the worlds among this many jobs, of which this is one; jaxdae merge ends the run.",
)
_CHUNK = typer.Option("--chunk", min=0, help="Which of the jobs this is, from 0.")
_DISTRIBUTED = typer.Option(
    "--distributed",
    help="This is one of several processes, started by srun, mpirun or with the three options below.",
)
_COORDINATOR = typer.Option(
    "--coordinator", metavar="HOST:PORT", help="With --distributed: the address of process 0."
)
_PROCESSES = typer.Option("--processes", min=1, help="With --distributed: how many processes there are.")
_PROCESS = typer.Option("--process", min=0, help="With --distributed: which of them this is, from 0.")
_ANIMATE = typer.Option("--animate", help="Write the motion of the nominal world, too: plots/motion.gif.")
_DEVICES = typer.Option(
    "--devices", min=1, help="Among how many cores, or devices, the worlds are divided; left out: all."
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
    """Simulate a config; results, plots and report go to a new folder."""
    from jaxdae.app.jobs import launch

    if (config is None) == (resume is None):
        stop(f"run: got {'both' if config else 'neither'}, expected a CONFIG or --resume RUN", code=2)
    if (chunks is None) != (chunk is None) or (chunk is not None and chunks is not None and chunk >= chunks):
        stop(
            f"run: got --chunks {chunks} and --chunk {chunk}, expected both, --chunk from 0 to one less "
            "than --chunks",
            code=2,
        )
    if distributed and (chunks or resume):
        stop(
            "run --distributed: got --chunks or --resume, expected neither: the same command continues a "
            "run that was stopped",
            code=2,
        )
    if animate and (chunks or distributed or resume):
        stop(
            "run --animate: got --chunks, --distributed or --resume with it, expected a run of this process",
            code=2,
        )
    given = coordinator, processes, process
    joined = _joined("run", distributed, given, lambda: _read_before(str(config), set_))
    if resume is not None:
        if set_ or chunks or out:
            stop(
                "run --resume: got --set, --chunks or --out, expected none of them: a run goes on where and "
                "as it began",
                code=2,
            )
        _tell(launch.resume(resume, _load_again, new_console(), devices))
        return
    source, out = str(config), out or _RUNS
    checked, worlds = _load(source, set_)
    _note_script(checked)
    _check_space(checked, worlds, out)
    _make(out)
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
    """Connects this process with the others where that was asked for, after a check of what can be seen without them."""
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
    """Returns a config as it is read without computing anything.

    Ends the command with all of its mistakes where there are some.
    """
    from jaxdae.app.model.load_config import readable

    return readable(source, tuple(overrides or ())) or _load(source, overrides)[0]


@app.command()
def merge(
    folder: Annotated[pathlib.Path, typer.Argument(metavar="RUN", help="A run folder.", show_default=False)],
) -> None:
    """Put together what the jobs of jaxdae run --chunks left in a run folder, and draw it."""
    from jaxdae.app.jobs import launch

    _tell(launch.merge(folder, _load_again, new_console()))


@app.command()
def status(
    folder: Annotated[pathlib.Path, typer.Argument(metavar="RUN", help="A run folder.", show_default=False)],
) -> None:
    """Say how far a run or a fit is, who works on it, and how fast."""
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
    """Find numbers of a config by gradient, as its section tune says.

    History, plots and tuned config go to a new folder.
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
    """Find inputs over time by gradient, as the section optimize of a config says.

    History, plots and inputs go to a new folder.
    """
    _learn("optimize", config, set_, out, resume, distributed, (coordinator, processes, process))


_FILE = typer.Argument(
    metavar="CONFIG", help="YAML file, see configs/, or a robot file (.urdf, .sdf, .xml).", show_default=False
)
_GRADIENTS = typer.Option(
    "--gradients", help="Print the certificate of the gradient of its loss: forward, reverse, differences."
)


@app.command()
def check(
    config: Annotated[str, _FILE],
    set_: Annotated[list[str] | None, _SET] = None,
    gradients: Annotated[bool, _GRADIENTS] = False,
) -> None:
    """Validate a config, close its loops and print tree, loops, mobility and diagnosis, without simulating."""
    if is_robot(config):
        _check_robot(config)
        return
    from jaxdae.app.model import close_loops, structure

    checked, worlds = _load(config, set_)
    _note_script(checked)
    console = new_console()
    mechanism, batch = checked.mechanism, checked.batch
    acting = (
        f"{len(mechanism.drives)} drives" if mechanism.order == "first" else f"{len(mechanism.forces)} forces"
    )
    parts = f"{len(mechanism.bodies)} bodies, {len(mechanism.joints)} joints, {acting}"
    lines = [f"{config}: {checked.name}: {parts}; {batch.size} worlds, {checked.steps} steps"]
    name, change = max(
        close_loops.moved(checked, worlds), key=lambda pair: abs(pair[1]), default=("none", 0.0)
    )
    lines.append(f"loops close; closing them moved the coordinates by at most {abs(change):.3g} ({name})")
    lines += structure.lines(checked)
    found = close_loops.diagnosis(checked, worlds)
    lines += [str(found), f"{'redundant joints':<28}{', '.join(found.redundant) or 'none'}"]
    lines += close_loops.stable_step(checked, worlds)
    for line in lines:
        console.print(line, highlight=False, markup=False, soft_wrap=True)
    if gradients and not _certificate(checked, worlds, console):
        raise typer.Exit(1)


for _command in (example, view, plot, export):
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
            f"{command}: got {'both' if config else 'neither'}, expected a CONFIG or --resume RUN, either "
            "with --set or not",
            code=2,
        )
    if resume is not None and out is not None:
        stop(f"{command} --resume: got --out {out}, expected none: a run goes on in its folder", code=2)
    given = tuple(overrides or ())

    def check() -> None:
        from jaxdae.app.learn.fit_run import check_divides

        source = (
            str(config)
            if resume is None
            else str(open_run.continuable_fit(resume, command, given).folder / run_folder.CONFIG)
        )
        read = _read_before(source, overrides)
        _check_section(read, command, source)
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


def _check_section(checked: Any, command: str, source: str) -> None:
    if getattr(checked, command) is None:
        if checked.mechanism.order == "first":
            stop(
                f"{source}: got order first, expected order second for {command}: velocities are what "
                "drives say, no force moves",
                code=2,
            )
        stop(f"{source}: got no section {command}, expected one; configs/README.md has an example", code=2)


def _learn_checked(
    command: str, source: str, overrides: list[str] | None, out: pathlib.Path, found: Any, hosts: Any
) -> None:
    """Runs a fit of a config in a new folder, or in the one that was found."""
    checked, worlds = _load(source, overrides)
    _check_section(checked, command, source)
    from jaxdae.app.learn.fit_run import learn, rows
    from jaxdae.app.runs import disk_space

    console = new_console()
    disk_space.check(
        found.folder if found else out,
        disk_space.fit_bytes(checked, getattr(checked, command)),
        "take fewer iterations",
    )
    if found is None:
        _make(out)
    elif not found.has_checkpoint:
        note(f"{found.folder} holds no checkpoint: the run begins again with its first iteration")
    try:
        done = learn(checked, worlds, command, console, parent=out, source=source, resume=found, hosts=hosts)
    except ValueError as error:
        stop(f"{command} failed: {error}", code=1)
    for label, value in [] if done is None else rows(done.record):
        console.print(f"{label}: {value}", highlight=False, markup=False, soft_wrap=True)
    if done is not None:
        console.print(f"run folder: {done.folder}", highlight=False, markup=False, soft_wrap=True)


def _check_robot(path: str) -> None:
    """Prints what a robot file holds."""
    from jaxdae.app.config import robot_section

    try:
        found = robot_section.lines(path)
    except (ValueError, ModuleNotFoundError) as error:
        stop(str(error), code=2)
    console = new_console()
    for line in found:
        console.print(line, highlight=False, markup=False, soft_wrap=True)


def _make(out: pathlib.Path) -> None:
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        stop(f"--out: got {out}, where no folder can be made ({error.strerror}), expected a folder", code=2)


def _load_again(config: str) -> tuple:
    return _load(config, None)


def _check_space(checked: Any, worlds: Any, out: pathlib.Path) -> None:
    from jaxdae.app.runs import disk_space, results

    entry = results.entry_bytes(worlds.one()[0], 8 if checked.precision == "float64" else 4)
    disk_space.check(
        out,
        disk_space.results_bytes(checked, entry),
        "save less often (save_every), simulate fewer worlds or a shorter time",
    )
    told = disk_space.forecast(checked, entry, worlds)
    if told:
        note(told)


def _note_script(checked: Any) -> None:
    """Say that a config belongs to a script, where it does."""
    from jaxdae.app.runs import verdicts

    if checked.of_script:
        note(verdicts.mechanism_only(checked))


def _warn_of_rows(checked: Any, worlds: Any) -> None:
    from jaxdae.app.model import close_loops

    found = close_loops.diagnosis(checked, worlds)
    if found.redundant and checked.solver.type in ("dense_kkt", "schur_complement"):
        note(
            f"redundant constraints at the start: {', '.join(found.redundant)}; {checked.solver.type} needs "
            "full rank and may fail:"
            " least_squares, null_space and proximal do not, and auto chooses"
        )
    # A structure that stands is a result, too; wheels that fight should not look like one.
    if found.blocking_rows and not found.told:
        note(
            f"nothing can move at the start, because of {', '.join(found.blocking_rows)}; jaxdae check says "
            "more"
        )


def _tell(done: Any) -> None:
    """Prints what a run was like; ends with exit code 1 where it failed."""
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
    """Prints the certificate of each section that has a loss; returns whether all passed."""
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
                    "check --gradients: got no number to differentiate; add mechanism.rates or a section "
                    "tune",
                    code=2,
                )
            compiling(console, "the loss and its derivatives, forward and reverse")
            report = check_gradients(found.loss, found.parameters)
        console.print(str(report), highlight=False, markup=False, soft_wrap=True)
        passed = passed and report.passed
    return passed


def _load(config: str, overrides: list[str] | None) -> tuple:
    from jaxdae.app.config.problems import ConfigError
    from jaxdae.app.model.load_config import load
    from jaxdae.app.runs import interrupts

    try:
        loaded = load(config, tuple(overrides or ()))
    except ConfigError as error:
        count = len(error.problems)
        stop(f"{error}\n{count} problem{'s' if count > 1 else ''} in {config}; nothing was written", code=2)
    from jaxdae.app.model import close_loops

    for each in close_loops.notes(loaded[0]):
        note(each)
    interrupts.check()
    return loaded

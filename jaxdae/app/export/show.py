"""The commands that show the results of a run: view, plot and export."""

import contextlib
import pathlib
from collections.abc import Iterator
from typing import Annotated, Any

import typer

from jaxdae.app.runs.console import new_console, note, stop

_RUN = typer.Argument(metavar="RUN", help="A run folder.", show_default=False)
_WORLDS = typer.Option("--worlds", min=1, help="Number of worlds to show, from the first. Default: all.")
_ROBOT = typer.Option(
    "--robot",
    metavar="FILE",
    help="Robot file with the visual shapes. Default: the robot file of the config, if it still exists.",
)
_ARROWS = typer.Option(
    "--arrows", help="With --html: draw reactions, forces and contact forces of the nominal world."
)
_VIOLATION = typer.Option("--violation", help="With --html: color bodies by constraint violation.")
_DARK = typer.Option("--dark", help="With --html: use a dark background.")
_OVERLAY = typer.Option(
    "--overlay", help="With --html: draw all worlds at the same place instead of side by side."
)


def view(
    folder: Annotated[pathlib.Path, _RUN],
    worlds: Annotated[int | None, _WORLDS] = None,
    port: Annotated[
        int, typer.Option("--port", min=1, max=65535, help="Port of the server on this machine.")
    ] = 8080,
    robot: Annotated[pathlib.Path | None, _ROBOT] = None,
) -> None:
    """Show a run live in the browser. Ctrl-C ends the command.

    Play and scrub the motion, and select worlds, frames, joints, forces and reactions.
    """
    from jaxdae.app.export.view_run import live

    with _extra():
        shown, notes = live(_moving(folder), worlds=worlds, port=port, robot=robot)
    for each in notes:
        note(each)
    new_console().print(
        f"showing {folder} at {shown.url}; press Ctrl-C to end", highlight=False, markup=False, soft_wrap=True
    )
    try:
        shown.wait()
    finally:
        shown.close()


def _moving(folder: pathlib.Path) -> Any:
    """Open a run with a motion, and print a note if it is incomplete."""
    from jaxdae.app.runs import open_run

    found = open_run.with_results(folder)
    _note_incomplete(found)
    return found


def _note_incomplete(found: Any) -> None:
    from jaxdae.app.runs import run_folder

    reason = run_folder.incomplete(found.record)
    if reason:
        note(f"{found.folder} is not complete: {reason}")


@contextlib.contextmanager
def _extra() -> Iterator[None]:
    """End the command if a package of an extra is missing."""
    try:
        yield
    except ModuleNotFoundError as error:
        stop(str(error), code=2)


def plot(
    folder: Annotated[pathlib.Path, _RUN],
    html: Annotated[
        bool,
        typer.Option("--html", help="Write scene.html, the motion in 3-D in one file, instead of plots."),
    ] = False,
    worlds: Annotated[int | None, _WORLDS] = None,
    arrows: Annotated[bool, _ARROWS] = False,
    violation: Annotated[bool, _VIOLATION] = False,
    dark: Annotated[bool, _DARK] = False,
    overlay: Annotated[bool, _OVERLAY] = False,
    robot: Annotated[pathlib.Path | None, _ROBOT] = None,
) -> None:
    """Redraw the plots and the report of a run, or write its scene for browsers."""
    from jaxdae.app.config import safe_files
    from jaxdae.app.runs import open_run, run_folder, verdicts

    if html:
        _write_page(
            folder,
            worlds,
            (("reactions", "forces", "contacts") if arrows else ()),
            violation,
            dark,
            not overlay,
            robot,
        )
        return
    if worlds or arrows or violation or dark or overlay or robot:
        stop(
            "plot: got --worlds, --arrows, --violation, --dark, --overlay or --robot without --html, "
            "expected them only with --html",
            code=2,
        )
    from jaxdae.app.config.problems import Refused
    from jaxdae.app.jobs.run_record import draw as draw_simulation
    from jaxdae.app.learn.fit_run import draw as draw_fit

    found = open_run.drawable(folder)
    _note_incomplete(found)
    if found.config.of_script and not found.is_fit:
        note(verdicts.mechanism_only(found.config))
    draw = draw_fit if found.is_fit else draw_simulation
    try:
        draw(folder, found.config, found.record, pictures=True)
    except OSError as error:
        raise Refused(safe_files.explained(error, folder)) from error
    new_console().print(
        f"drawn into {folder / run_folder.PLOTS}", highlight=False, markup=False, soft_wrap=True
    )


def export(
    folder: Annotated[pathlib.Path, _RUN],
    kind: Annotated[
        str,
        typer.Option(
            "--format",
            metavar="csv|npz|mcap",
            help="csv: table; npz: NumPy arrays; mcap: timestamped messages.",
        ),
    ],
    worlds: Annotated[int | None, _WORLDS] = None,
    out: Annotated[
        pathlib.Path | None, typer.Option("--out", help="Output file. Default: a file in the run folder.")
    ] = None,
) -> None:
    """Export the results of a run for other programs; docs/results.md describes the files."""
    from jaxdae.app.config import safe_files
    from jaxdae.app.export.export_results import FORMATS
    from jaxdae.app.export.export_results import export as written

    if kind not in FORMATS:
        stop(f"export: got --format {kind}, expected one of {', '.join(FORMATS)}", code=2)
    with _extra():
        for path in written(_moving(folder), kind, out, worlds):
            new_console().print(
                f"{path}, {safe_files.in_words(path.stat().st_size)}",
                highlight=False,
                markup=False,
                soft_wrap=True,
            )


def _write_page(
    folder: pathlib.Path,
    worlds: int | None,
    arrows: Any,
    violation: bool,
    dark: bool,
    apart: bool,
    robot: Any,
) -> None:
    from jaxdae.app.config import safe_files
    from jaxdae.app.export.view_run import write_page
    from jaxdae.viewer import Look

    with _extra():
        look = Look(apart=apart, arrows=arrows, violation=violation, dark=dark)
        path, notes = write_page(_moving(folder), worlds=worlds, look=look, robot=robot)
    for each in notes:
        note(each)
    new_console().print(
        f"{path}, {safe_files.in_words(path.stat().st_size)}", highlight=False, markup=False, soft_wrap=True
    )

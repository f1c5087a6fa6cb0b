"""The output of the command: results on its console, notes and refusals on the error stream."""

import warnings
from typing import Any, NoReturn

import typer


def new_console() -> Any:
    """Return the console of the command; `rich` is imported only when needed."""
    import rich.console

    return rich.console.Console()


def note(text: str) -> None:
    """Print a note for the user, and continue."""
    typer.echo(f"note: {text}", err=True)


def warnings_as_notes() -> None:
    """Print warnings of the library as notes, without the line of Python code."""
    usual = warnings.showwarning

    def show(message: Any, category: type[Warning], *place: Any, **more: Any) -> None:
        if issubclass(category, UserWarning):
            note(str(message))
        else:
            usual(message, category, *place, **more)

    warnings.showwarning = show


def stop(text: str, code: int) -> NoReturn:
    """Print the reason for the end of the command, and exit with a code."""
    typer.echo(text, err=True)
    raise typer.Exit(code)

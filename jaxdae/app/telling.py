"""How the command talks: results on its console, notes and refusals beside it."""

import warnings
from typing import Any, NoReturn

import typer


def new_console() -> Any:
    """Returns the console of the command; its import waits until something is printed."""
    import rich.console

    return rich.console.Console()


def note(text: str) -> None:
    """Prints what the user should know, and goes on."""
    typer.echo(f"note: {text}", err=True)


def warnings_as_notes() -> None:
    """Makes warnings of the library notes: the line of Python that warned tells a reader of a config nothing."""
    usual = warnings.showwarning

    def show(message: Any, category: type[Warning], *place: Any, **more: Any) -> None:
        if issubclass(category, UserWarning):
            note(str(message))
        else:
            usual(message, category, *place, **more)

    warnings.showwarning = show


def stop(text: str, code: int) -> NoReturn:
    """Prints why the command ends, and ends it with an exit code."""
    typer.echo(text, err=True)
    raise typer.Exit(code)

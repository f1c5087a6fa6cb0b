"""How the command talks: results on its console, notes and refusals beside it."""

from typing import Any, NoReturn

import typer


def new_console() -> Any:
    """Returns the console of the command; its import waits until something is printed."""
    import rich.console

    return rich.console.Console()


def note(text: str) -> None:
    """Prints what the user should know, and goes on."""
    typer.echo(f"note: {text}", err=True)


def stop(text: str, code: int) -> NoReturn:
    """Prints why the command ends, and ends it with an exit code."""
    typer.echo(text, err=True)
    raise typer.Exit(code)

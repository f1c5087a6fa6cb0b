"""Read the config of a subcommand, or print its errors and end the command with exit code 2."""

import pathlib
from typing import Any

from jaxdae.app.runs.console import note, stop
from jaxdae.base.suggestions import counted


def load_or_stop(config: str, overrides: list[str] | None) -> tuple:
    """Return a config and its worlds; if the config has errors, print all of them and end the command."""
    from jaxdae.app.config.problems import ConfigError
    from jaxdae.app.model.load_config import load
    from jaxdae.app.runs import interrupts

    try:
        loaded = load(config, tuple(overrides or ()))
    except ConfigError as error:
        stop(f"{error}\n{counted(len(error.problems), 'problem')} in {config}; nothing was written", code=2)
    from jaxdae.app.model import close_loops

    for each in close_loops.notes(loaded[0]):
        note(each)
    interrupts.check()
    return loaded


def check_section(checked: Any, command: str, source: str) -> None:
    """End the command if a config lacks the section with the name of the command."""
    if getattr(checked, command) is None:
        if checked.mechanism.order == "first":
            stop(
                f"{source}: got order first, expected order second for {command}, because drives set the "
                "velocities and forces have no effect",
                code=2,
            )
        remedy = "docs/configs_reference.md has an example"
        stop(f"{source}: got no section {command}, expected one; {remedy}", code=2)


def make_folder(out: pathlib.Path) -> None:
    """Create the parent of run folders, or end the command."""
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        stop(f"--out: got {out}, which cannot be created ({error.strerror}), expected a folder", code=2)

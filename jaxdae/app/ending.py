"""How the command ends: every error that a user can do something about is one message and an exit code, never a traceback.

0 all is well, 1 what had begun failed, 2 what was asked for cannot be done and nothing was changed, 130 Ctrl-C, 143 SIGTERM.
"""

import errno
import sys
from typing import Any

import typer
import typer.core

from jaxdae.app import interrupts
from jaxdae.app.files import explained
from jaxdae.app.problems import Failed, Refused


class Commands(typer.core.TyperGroup):
    """The subcommands, each of which ends in one of these ways."""

    def invoke(self, ctx: Any) -> Any:
        """Runs a subcommand."""
        try:
            with interrupts.listening():
                result = super().invoke(ctx)
                interrupts.check()
                return result
        except Refused as error:
            _end(str(error), 2)
        except Failed as error:
            _end(str(error), 1)
        except KeyboardInterrupt as error:
            _end(f"interrupted: {error}" if error.args else "interrupted", interrupts.exit_code())
        except OSError as error:
            # Nobody reads what is printed any more: typer ends quietly.
            if error.errno == errno.EPIPE:
                raise
            _end(explained(error, "a file"), 1)


def _end(text: str, code: int) -> None:
    # A child that shares the terminal may have left its line unfinished.
    sys.stdout.flush()
    typer.echo(text, err=True)
    raise typer.Exit(code)

"""Exit codes of the command: an error that a user can fix gives a message and an exit code, no traceback.

The exit code is 0 for success, 1 for a failure after the work started, 2 for a refused request without any
changes, 130 for Ctrl-C, and 143 for SIGTERM.
"""

import errno
import sys
from typing import Any

import typer
import typer.core

from jaxdae.app.config.problems import Failed, Refused
from jaxdae.app.config.safe_files import explained
from jaxdae.app.runs import interrupts


class Commands(typer.core.TyperGroup):
    """Group of subcommands that end with one of the exit codes above."""

    def invoke(self, ctx: Any) -> Any:
        """Run a subcommand and convert its errors to exit codes."""
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
            # The reader of the output closed the pipe: typer ends quietly.
            if error.errno == errno.EPIPE:
                raise
            _end(explained(error, "a file"), 1)


def _end(text: str, code: int) -> None:
    # A child process on the same terminal may have left an unfinished line.
    sys.stdout.flush()
    typer.echo(text, err=True)
    raise typer.Exit(code)

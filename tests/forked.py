"""The command in processes of their own that begin with all modules imported: forks of a server that has
computed nothing.

They are killed, and may end, as any process: a fork takes milliseconds where a start takes seconds.
"""

import contextlib
import multiprocessing
import os
import pathlib
import sys

import jax

# What the command imports on its way, here for the server.
from jaxdae.app import cli, run  # noqa: F401
from jaxdae.app.jobs import hosts, launch, shares  # noqa: F401
from jaxdae.app.model import build, close_loops, load_config, reachability  # noqa: F401
from jaxdae.app.runs import disk_space, results, run_report  # noqa: F401

SERVER = multiprocessing.get_context("forkserver")
ROOT = pathlib.Path(__file__).resolve().parent


class Command:
    """A process of the command `jaxdae` that has begun.

    Args:
        arguments: of the command.
        errors: a file for what it prints to standard error.
        cache: a folder for compiled programs; none are kept without.
        seconds: between checkpoints.
    """

    def __init__(self, *arguments, errors=os.devnull, cache="", seconds=0.1):
        SERVER.set_forkserver_preload(["forked"])
        with _modules_found():
            self._process = SERVER.Process(
                target=_run, args=([str(x) for x in arguments], str(errors), str(cache), seconds)
            )
            self._process.start()

    def wait(self):
        """Returns its exit code when it has ended, minus the number of a signal that ended it."""
        self._process.join()
        return self._process.exitcode

    def poll(self):
        """Returns the same, None while it runs."""
        return self._process.exitcode

    def send_signal(self, number):
        """Sends a signal; it comes too late for a process that has ended."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._process.pid, number)


@contextlib.contextmanager
def _modules_found():
    """Tells a server that begins now where modules are."""
    before = os.environ.get("PYTHONPATH", "")
    os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), str(ROOT.parent), before])
    try:
        yield
    finally:
        os.environ["PYTHONPATH"] = before


def _run(arguments, errors, cache, seconds):
    for name, stream in ((os.devnull, sys.stdout), (errors, sys.stderr)):
        with open(name, "w") as file:
            os.dup2(file.fileno(), stream.fileno())
    if cache:
        os.environ["JAX_COMPILATION_CACHE_DIR"] = cache
        jax.config.update("jax_compilation_cache_dir", cache)
    sys.argv = ["jaxdae", *arguments]
    shares.SECONDS_BETWEEN_CHECKPOINTS = seconds
    cli.main()

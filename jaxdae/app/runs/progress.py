"""The progress of a long run: a bar on a terminal, or periodic plain lines on a pipe."""

import contextlib
import logging
import time
from collections.abc import Callable, Iterator
from types import TracebackType

import rich.console
import rich.progress

_SECONDS_BETWEEN_LINES = 5.0


class Progress:
    """Show completed steps, steps per second and remaining time; a context manager.

    The display counts the steps of all worlds. The remaining time is therefore correct if the parts of a run
    have different numbers of worlds.

    Args:
        steps: steps per world.
        console: the output console.
        worlds: the number of worlds.
        seconds: the time between two plain lines.
        others: returns the joint progress of all processes of a run, if there are several.
    """

    def __init__(
        self,
        steps: int,
        console: rich.console.Console,
        worlds: int = 1,
        seconds: float = _SECONDS_BETWEEN_LINES,
        others: Callable[[], str] | None = None,
    ):
        """Prepare the display; entering the context shows it."""
        self._steps, self._console, self._worlds, self._seconds, self._others = (
            steps,
            console,
            worlds,
            seconds,
            others,
        )
        self._total, self._done = steps * worlds, 0
        self._bar: rich.progress.Progress | None = None

    def __enter__(self) -> "Progress":
        """Start the clock."""
        self._start = self._last = time.perf_counter()
        if self._console.is_terminal:
            self._bar = rich.progress.Progress(
                rich.progress.TextColumn("{task.description}"),
                rich.progress.BarColumn(),
                rich.progress.TaskProgressColumn(),
                rich.progress.TextColumn("{task.fields[speed]}"),
                rich.progress.TimeRemainingColumn(),
                console=self._console,
                transient=True,
            )
            self._bar.start()
            self._task = self._bar.add_task("simulating", total=self._total, speed="compiling the steps")
        else:
            self._line(
                f"simulating {self._steps} steps" + (f" of {self._worlds} worlds" if self._worlds > 1 else "")
            )
            compiling(
                self._console, f"the steps of {self._worlds} worlds" if self._worlds > 1 else "the steps"
            )
        return self

    def update(self, done: int) -> None:
        """Report that all worlds together have completed `done` steps."""
        first, self._done = self._done == 0, done
        now = time.perf_counter()
        if first:
            # The first block includes compilation. Speed and remaining time count from its end.
            self._measured_from, self._start = done, now
        speed = (
            (done - self._measured_from) / (now - self._start)
            if done > self._measured_from and now > self._start
            else 0.0
        )
        is_due = now - self._last >= self._seconds
        if self._bar is not None:
            self._bar.update(self._task, completed=done, speed=_speed(speed, self._worlds))
        elif is_due and done < self._total:
            left = f", {duration((self._total - done) / speed)} left" if speed else ""
            what = "world steps" if self._worlds > 1 else "steps"
            self._line(
                f"{done}/{self._total} {what} ({100 * done // self._total} %), "
                f"{_speed(speed, self._worlds)}{left}"
            )
        if is_due and self._others is not None:
            self._line(f"all processes: {self._others()}")
        if is_due:
            self._last = now

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Remove the bar."""
        if self._bar is not None:
            self._bar.stop()

    def _line(self, text: str) -> None:
        self._console.print(text, highlight=False, markup=False, soft_wrap=True)


def compiling(console: rich.console.Console, what: str) -> None:
    """Announce the next compilation, which shows no progress."""
    console.print(f"compiling {what}", highlight=False, markup=False, soft_wrap=True)


class _Lines(logging.Handler):
    """Print log messages on a console."""

    def __init__(self, console: rich.console.Console):
        super().__init__()
        self._console = console

    def emit(self, record: logging.LogRecord) -> None:
        """Print a message."""
        self._console.print(record.getMessage(), highlight=False, markup=False, soft_wrap=True)


@contextlib.contextmanager
def kernels_shown(console: rich.console.Console) -> Iterator[None]:
    """Print a line whenever a kernel is compiled."""
    logger, lines = logging.getLogger("jaxdae.fused"), _Lines(console)
    level = logger.level
    logger.addHandler(lines)
    logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.setLevel(level)
        logger.removeHandler(lines)


def _speed(steps: float, worlds: int) -> str:
    if not steps:
        return "measuring"
    return f"{steps:,.0f} {'world steps' if worlds > 1 else 'steps'}/s"


def duration(seconds: float) -> str:
    """Return a time in hours, minutes and seconds."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return (
        f"{hours} h {minutes:02d} min" if hours else f"{minutes} min {rest:02d} s" if minutes else f"{rest} s"
    )

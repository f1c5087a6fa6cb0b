"""Reliable handling of Ctrl-C and SIGTERM: raise at once, record, and raise again if swallowed.

Python raises KeyboardInterrupt at an arbitrary point of the program. If this point is in a compiler callback,
a finalizer or a weak reference callback, Python prints or drops the exception, and the program continues. The
handler in this module therefore also records the signal, and long computations call `check` between their
parts. `held` postpones the exception during atomic writes.
"""

import contextlib
import signal
import threading
from collections.abc import Iterator
from typing import Any


class _Noted:
    """State of the signal handling, global because signals belong to the whole process."""

    asked = False
    holding = 0
    last = signal.SIGINT


@contextlib.contextmanager
def listening() -> Iterator[None]:
    """Record Ctrl-C and SIGTERM inside the context, and restore the previous handlers afterward.

    Do nothing outside the main thread, where Python does not allow signal handlers.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    _Noted.asked, _Noted.holding = False, 0
    before = {number: signal.signal(number, _note) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        _Noted.asked = False


def check() -> None:
    """Raise KeyboardInterrupt if one of the signals arrived since `listening` began."""
    if _Noted.asked and not _Noted.holding:
        raise KeyboardInterrupt


def exit_code() -> int:
    """Return the shell exit code of the last signal: 130 for Ctrl-C, 143 for SIGTERM."""
    return 128 + _Noted.last


def forget() -> None:
    """Clear a handled signal, so that the final files of a run can be written."""
    _Noted.asked = False


@contextlib.contextmanager
def held() -> Iterator[None]:
    """Postpone both signals to the end of the context."""
    _Noted.holding += 1
    try:
        yield
    finally:
        _Noted.holding -= 1
    check()


def _note(number: int, frame: Any) -> None:
    _Noted.asked, _Noted.last = True, signal.Signals(number)
    check()

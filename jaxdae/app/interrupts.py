"""Ctrl-C and SIGTERM, never lost: raised at once, remembered, and raised again where they were swallowed.

Python raises KeyboardInterrupt wherever its interpreter happens to be. Where that is a callback of a compiler, a finalizer or a weak
reference, the exception is printed or dropped and the program goes on as if nothing had happened. So the handler here also keeps a note,
and long work calls `check` between its parts. While something is written that must be whole, `held` postpones the exception.
"""

import contextlib
import signal
import threading
from collections.abc import Iterator
from typing import Any


class _Noted:
    """What is known about these signals in this process; they belong to the process as a whole."""

    asked = False
    holding = 0
    last = signal.SIGINT


@contextlib.contextmanager
def listening() -> Iterator[None]:
    """Notes every Ctrl-C and SIGTERM inside, and gives the signals back afterwards. Outside of the main thread Python allows no handler."""
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
    """Raises KeyboardInterrupt where one of the signals came since `listening` began."""
    if _Noted.asked and not _Noted.holding:
        raise KeyboardInterrupt


def exit_code() -> int:
    """Returns the exit code of a process that ends by the last signal that came: 130 for Ctrl-C, 143 for SIGTERM, as shells have it."""
    return 128 + _Noted.last


def forget() -> None:
    """Forgets a signal that has been acted upon, so that what ends a run can be written."""
    _Noted.asked = False


@contextlib.contextmanager
def held() -> Iterator[None]:
    """Postpones both signals to the end of what is done inside."""
    _Noted.holding += 1
    try:
        yield
    finally:
        _Noted.holding -= 1
    check()


def _note(number: int, frame: Any) -> None:
    _Noted.asked, _Noted.last = True, signal.Signals(number)
    check()

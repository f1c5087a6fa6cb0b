"""Ctrl-C that is never lost: raised at once, remembered, and raised again where it was swallowed.

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
    """What is known about Ctrl-C in this process; signals belong to the process as a whole."""

    asked = False
    holding = 0


@contextlib.contextmanager
def listening() -> Iterator[None]:
    """Notes every Ctrl-C inside, and gives the signal back afterwards. Outside of the main thread Python allows no handler."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    _Noted.asked, _Noted.holding = False, 0
    before = signal.signal(signal.SIGINT, _note)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        _Noted.asked = False


def check() -> None:
    """Raises KeyboardInterrupt where Ctrl-C was pressed since `listening` began."""
    if _Noted.asked and not _Noted.holding:
        raise KeyboardInterrupt


def forget() -> None:
    """Forgets a Ctrl-C that has been acted upon, so that what ends a run can be written."""
    _Noted.asked = False


@contextlib.contextmanager
def held() -> Iterator[None]:
    """Postpones Ctrl-C to the end of what is done inside."""
    _Noted.holding += 1
    try:
        yield
    finally:
        _Noted.holding -= 1
    check()


def _note(number: int, frame: Any) -> None:
    _Noted.asked = True
    check()

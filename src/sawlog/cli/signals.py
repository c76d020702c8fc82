"""Signals that end a process, and the exit codes that say so."""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from collections.abc import Iterator

INTERRUPTED = 130
TERMINATED = 143
BUG = 70
"""What the BSDs call EX_SOFTWARE."""

WORDS = {INTERRUPTED: "interrupted", TERMINATED: "terminated"}
"""What is said of a process that was ended."""


class Terminated(KeyboardInterrupt):
    """SIGTERM or SIGHUP: what was begun is taken back, as with Ctrl-C."""


_ENDINGS = {signal.SIGINT: INTERRUPTED, signal.SIGTERM: TERMINATED, signal.SIGHUP: TERMINATED}
_DEFAULTS = (signal.SIG_DFL, signal.default_int_handler)
_received: list[int] = []


@contextlib.contextmanager
def terminable() -> Iterator[None]:
    """Have the signals that end a process raise `KeyboardInterrupt`, unless somebody wants them otherwise."""
    before = {}
    if threading.current_thread() is threading.main_thread():
        before = {one: kept for one in _ENDINGS if (kept := signal.getsignal(one)) in _DEFAULTS}
    for number in before:
        signal.signal(number, _end)
    try:
        yield
    finally:
        for number, kept in before.items():
            signal.signal(number, kept)
        _received.clear()


def ended(error: BaseException) -> int | None:
    """The exit code of a process that a signal has ended; None where an error is one.

    Libraries answer the end of a process with errors of their own: Spark's JVM is gone, a query was cut short.
    """
    if isinstance(error, Terminated):
        return TERMINATED
    if isinstance(error, KeyboardInterrupt):
        return INTERRUPTED
    return _received[0] if _received else None


def pause(seconds: float) -> None:
    """Wait; and end as a signal has said that was lost in a destructor, whose exceptions Python only prints."""
    time.sleep(seconds)
    if _received:
        raise Terminated if _received[0] == TERMINATED else KeyboardInterrupt


def _end(number: int, frame: object) -> None:
    code = _ENDINGS[signal.Signals(number)]
    _received.append(code)
    raise Terminated if code == TERMINATED else KeyboardInterrupt

"""Signals that end a process, and the exit codes that say so."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator

INTERRUPTED = 130
TERMINATED = 143
BUG = 70
"""What the BSDs call EX_SOFTWARE."""


class Terminated(KeyboardInterrupt):
    """SIGTERM or SIGHUP: what was begun is taken back, as with Ctrl-C."""


@contextlib.contextmanager
def terminable() -> Iterator[None]:
    """Have the signals that end a process raise `Terminated`, unless somebody wants them otherwise."""
    taken = []
    if threading.current_thread() is threading.main_thread():
        taken = [one for one in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(one) is signal.SIG_DFL]
    for number in taken:
        signal.signal(number, _terminate)
    try:
        yield
    finally:
        for number in taken:
            signal.signal(number, signal.SIG_DFL)


def _terminate(number: int, frame: object) -> None:
    raise Terminated

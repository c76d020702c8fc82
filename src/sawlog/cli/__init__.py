"""The command line: one module per verb, one `Output` for people and for programs."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator, Sequence

INTERRUPTED = 130
TERMINATED = 143


class Terminated(KeyboardInterrupt):
    """SIGTERM or SIGHUP: what was begun is taken back, as with Ctrl-C."""


def main(args: Sequence[str] | None = None) -> int:
    """Run one command line (without the program's name; `sys.argv` by default) and return its exit code."""
    try:
        with _terminable():
            from sawlog.cli.app import run

            return run(args)
    except Terminated:
        return TERMINATED
    except KeyboardInterrupt:
        return INTERRUPTED


@contextlib.contextmanager
def _terminable() -> Iterator[None]:
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

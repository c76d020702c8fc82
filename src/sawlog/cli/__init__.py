"""The command line: one module per verb, one `Output` for people and for programs."""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
import traceback
from collections.abc import Iterator, Sequence

INTERRUPTED = 130
TERMINATED = 143
BUG = 70
"""What the BSDs call EX_SOFTWARE."""


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
    except Exception:  # noqa: BLE001, whatever it is, it must not look like damage
        traceback.print_exc()
        sys.stderr.write("sawlog: this is an error in sawlog itself; please report it\n")
        return BUG


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

"""Signals that end a process, and the exit codes that say so."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Iterator
from typing import NoReturn

INTERRUPTED = 130
TERMINATED = 143
BUG = 70
"""What the BSDs call EX_SOFTWARE."""

ENDING_MESSAGES = {INTERRUPTED: "interrupted", TERMINATED: "terminated"}
"""What is said of a process that was ended."""


REPEAT_SECONDS = 1.0
"""Seconds after which a lost signal is repeated. It is lost in a destructor, whose exceptions Python only prints, or in
a library that catches everything, as Numba does while it is imported."""


_WAKE_SECONDS = 0.1
"""Seconds after which the main thread is interrupted again, until it answers."""


class Terminated(KeyboardInterrupt):
    """SIGTERM or SIGHUP: what was begun is taken back, as with Ctrl-C."""


_ENDINGS = {signal.SIGINT: INTERRUPTED, signal.SIGTERM: TERMINATED, signal.SIGHUP: TERMINATED}
_DEFAULTS = (signal.SIG_DFL, signal.default_int_handler)
_received: list[int] = []


@contextlib.contextmanager
def raise_on_signals() -> Iterator[None]:
    """Have the signals that end a process raise `KeyboardInterrupt`, unless somebody wants them otherwise."""
    before = {}
    if threading.current_thread() is threading.main_thread():
        before = {number: handler for number in _ENDINGS if (handler := signal.getsignal(number)) in _DEFAULTS}
    for number in before:
        signal.signal(number, _handle_signal)
    repeated = bool(before) and hasattr(signal, "setitimer") and signal.getsignal(signal.SIGALRM) == signal.SIG_DFL
    if repeated:
        before[signal.SIGALRM] = signal.SIG_DFL
        signal.signal(signal.SIGALRM, _repeat_signal)
    try:
        with _wake_main_thread() if repeated else contextlib.nullcontext():
            yield
    finally:
        if repeated:
            signal.setitimer(signal.ITIMER_REAL, 0)
        for number, handler in before.items():
            signal.signal(number, handler)
        _received.clear()


@contextlib.contextmanager
def _wake_main_thread() -> Iterator[None]:
    """Interrupt what the main thread waits for when another thread has received a signal.

    The kernel gives it to any thread, but Python answers it in the main thread, when that does something again.
    """
    readable, writable = os.pipe()
    os.set_blocking(writable, False)
    main = threading.get_ident()
    awake = threading.Event()

    def wake() -> None:
        while number := os.read(readable, 1)[0]:
            if number in _ENDINGS:
                awake.clear()
                while not awake.is_set():  # it may have been about to wait
                    signal.pthread_kill(main, signal.SIGURG)
                    awake.wait(_WAKE_SECONDS)

    handler = signal.signal(signal.SIGURG, lambda number, frame: awake.set())
    waker = threading.Thread(target=wake, daemon=True)
    waker.start()
    before = signal.set_wakeup_fd(writable, warn_on_full_buffer=False)
    try:
        yield
    finally:
        signal.set_wakeup_fd(before)
        os.write(writable, bytes(1))
        waker.join()
        os.close(writable)
        os.close(readable)
        signal.signal(signal.SIGURG, handler)


def find_exit_code(error: BaseException) -> int | None:
    """Return the exit code of a process that a signal has ended; None where an error is one.

    Libraries answer the end of a process with errors of their own: Spark's JVM is gone, a query was cut short.
    """
    if isinstance(error, Terminated):
        return TERMINATED
    if isinstance(error, KeyboardInterrupt):
        return INTERRUPTED
    return _received[0] if _received else None


def _handle_signal(number: int, frame: object) -> None:
    _received.append(_ENDINGS[signal.Signals(number)])
    if hasattr(signal, "setitimer") and signal.getsignal(signal.SIGALRM) == _repeat_signal:
        signal.setitimer(signal.ITIMER_REAL, REPEAT_SECONDS, REPEAT_SECONDS)
    _raise(_received[-1])


def _repeat_signal(number: int, frame: object) -> None:
    """End what goes on as if there had been no signal; what takes back what was begun is not disturbed."""
    error = sys.exc_info()[1]
    while error is not None:
        if isinstance(error, KeyboardInterrupt):
            return
        error = error.__context__
    if _received:
        _raise(_received[0])


def _raise(code: int) -> NoReturn:
    raise Terminated if code == TERMINATED else KeyboardInterrupt

"""Exit codes, and errors as one line on stderr."""

from __future__ import annotations

import functools
import os
import re
import sys
import warnings
from collections.abc import Callable
from enum import IntEnum
from typing import ParamSpec

import typer

from sawlog.cli.signals import BUG, INTERRUPTED, TERMINATED, find_exit_code
from sawlog.errors import (
    FINDING_ERRORS,
    DamageError,
    IncompleteError,
    InternalError,
    SawlogError,
    UnsupportedError,
    without_secrets,
)
from sawlog.guard import make_internal_error

P = ParamSpec("P")

USAGE_ERROR: type[Exception] = next(kind for kind in typer.BadParameter.__mro__ if kind.__name__ == "ClickException")
"""What Typer raises for a wrong command line; it has no public name for it."""

_OWN_ERROR = re.compile(rf"{DamageError.__module__}\.(\w+): (.*)")
_REMOTE_LIBRARIES = ("_duckdb", "botocore", "duckdb", "fsspec", "obstore")


class Exit(IntEnum):
    """Exit codes, the same for all commands."""

    OK = 0
    DAMAGED = 1
    """Damage was found, something that metadata names is missing, or either stood in the way.

    For `repair`: nothing could be recovered.
    """
    DIFFERENT = 1
    """What was compared is not the same."""
    UNUSABLE = 2
    """Wrong command line, or files that are missing, unreadable or of no known format."""
    LOST = 3
    """A new file was written, and something of the source is not in it."""
    UNSUPPORTED = 4
    """Nothing is damaged, but a file holds what this version does not support: a newer writer's, or another codec's."""
    INTERRUPTED = INTERRUPTED
    TERMINATED = TERMINATED
    BUG = BUG
    """A fault of sawlog or of the machine: the message, or a traceback, says where."""
    BROKEN_PIPE = 141
    """The reader of stdout went away; what any Unix filter ends with."""


_CODES = {
    DamageError.__name__: Exit.DAMAGED,
    IncompleteError.__name__: Exit.DAMAGED,
    UnsupportedError.__name__: Exit.UNSUPPORTED,
    InternalError.__name__: Exit.BUG,
}


def with_exit_codes(verb: Callable[P, int]) -> Callable[P, int]:
    """Return a command whose errors and warnings are reported in one line each, and become exit codes."""

    @functools.wraps(verb)
    def run(*args: P.args, **kwargs: P.kwargs) -> int:
        from sawlog.format.damage import DamageWarning

        with warnings.catch_warnings():
            warnings.simplefilter("always", DamageWarning)
            warnings.showwarning = lambda message, *_, **__: complain(f"warning: {message}")
            try:
                code = verb(*args, **kwargs)
                sys.stdout.flush()
                return code
            except KeyboardInterrupt as error:
                return find_exit_code(error) or Exit.INTERRUPTED
            except BrokenPipeError:
                # Python would complain at exit about what it cannot flush any more.
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
                return Exit.BROKEN_PIPE
            except Exception as error:
                if (signalled := find_exit_code(error)) is not None:
                    return signalled
                if isinstance(error, MemoryError):
                    error = make_internal_error(error)
                message = explain(error)
                if message is None:
                    raise
                complain(message, is_complete=_is_sql_error(error))
                return exit_code(error)

    return run


def exit_code(error: Exception) -> Exit:
    """Return the exit code of a command that an error has stopped; other libraries may have handed it on as text."""
    kind = type(error).__name__ if isinstance(error, SawlogError) else _find_own_error(error)[0]
    return _CODES.get(kind, Exit.UNUSABLE)


def explain(error: Exception) -> str | None:
    """Return what to report to the user about an error; `None` for one that is a bug."""
    if isinstance(error, FINDING_ERRORS):
        return str(error).replace('on_damage="skip"', "--on-damage skip")
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    is_known = isinstance(error, SawlogError | OSError)
    if is_known or type(error).__module__.split(".")[0] in _REMOTE_LIBRARIES:
        return (
            _find_own_error(error)[1].replace('on_damage="skip"', "--on-damage skip")
            or str(error)
            or type(error).__name__
        )
    return None


def _find_own_error(error: Exception) -> tuple[str, str]:
    """Return class and message of an error of sawlog within the traceback of another library; empty without one."""
    own_errors = _OWN_ERROR.findall(str(error))
    return own_errors[-1] if own_errors else ("", "")


def _is_sql_error(error: Exception) -> bool:
    """Return whether an error is DuckDB's own about a query, and not one of sawlog that it hands on."""
    return type(error).__module__.split(".")[0] in ("_duckdb", "duckdb") and not _find_own_error(error)[0]


def complain(message: str, *, is_complete: bool = False) -> None:
    """Report an error on stderr, escaped: in one line, or, if `is_complete`, with all of its lines."""
    lines = message.expandtabs().splitlines() if is_complete else [" ".join(message.split())]
    for place, line in enumerate(map(without_secrets, lines)):
        printable = line if line.isprintable() else line.encode("unicode_escape").decode()
        sys.stderr.write(f"{'' if place else 'sawlog: '}{printable}\n")

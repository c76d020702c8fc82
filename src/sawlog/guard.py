"""The one place where exceptions of other libraries, and those that nobody thought of, become sawlog's own."""

from __future__ import annotations

import datetime as dt
import importlib
import json
import os
import shlex
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Any, ParamSpec, TypeVar

from sawlog.errors import InternalError, OptionError, SawlogError, StorageError

P = ParamSpec("P")
T = TypeVar("T")

EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)

_CYTHON = (".pyx", ".pxi")
_PACKAGE = os.path.dirname(__file__) + os.sep


def is_system_error(error: BaseException) -> bool:
    """Return whether the operating system, or a store, says that a path cannot be read.

    Arrow raises OSError for bad bytes.
    """
    return isinstance(error, OSError) and not _find_innermost_file(error.__traceback__).endswith(_CYTHON)


def explain(error: Exception) -> str:
    """Return what a foreign exception says, and the place in sawlog that it passed last."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename.startswith(_PACKAGE)]
    frames = [frame for frame in frames if frame.filename != __file__] or frames
    place = f" in {frames[-1].filename.removeprefix(_PACKAGE)}, line {frames[-1].lineno}" if frames else ""
    message = " ".join(str(error).split())[:300]
    return f"{type(error).__name__}{place}{': ' if message else ''}{message}"


def make_internal_error(error: Exception, doing: str = "") -> InternalError:
    """Return a foreign exception as sawlog's own: it names the place, and asks for a report."""
    prefix = f"{doing}: " if doing else ""
    return InternalError(f"{prefix}{explain(error)}; this is a fault of sawlog or of the machine: please report it")


FAULTS = (MemoryError, RecursionError, ImportError, AttributeError, NameError, TypeError, AssertionError)
"""Exceptions that say nothing about bytes: faults of sawlog, of its installation, or of the machine."""


@dataclass(frozen=True, slots=True)
class Undecodable:
    """Refusal of a decoder, and what it said of the bytes."""

    detail: str


def call_decoder(decoder: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T | Undecodable:
    """Call a decoder of another library on bytes from outside: the only place whose exceptions may become damage.

    Returns:
        What the decoder returns, or what it said of the bytes.

    Raises:
        InternalError: For `FAULTS`, which say nothing about bytes.
        StorageError: For what the operating system says where the decoder reads from it itself.
        SawlogError: As the decoder raised it.
    """
    try:
        return decoder(*args, **kwargs)
    except (SawlogError, Warning):
        raise
    except FAULTS as error:
        raise make_internal_error(error) from error
    except Exception as error:
        if isinstance(error, OSError) and error.errno is not None and is_system_error(error):
            raise StorageError(str(error)) from error
        return Undecodable(" ".join(str(error).split())[:300] or type(error).__name__)


def import_optional(module: str, extra: str, purpose: str) -> Any:
    """Import a module of a package that comes with an extra of sawlog.

    Args:
        module: Its name.
        extra: The extra that installs it.
        purpose: What it is needed for, to begin the message with: "a pipeline's metrics".

    Raises:
        OptionError: When it is not installed; says what to install.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise OptionError(f"{purpose}: {install(extra)} ({error})") from error


def install(extra: str) -> str:
    """Return the command that adds an extra to this installation, be it from a checkout or a wheel, as pip says."""
    from importlib.metadata import PackageNotFoundError, distribution
    from urllib.parse import urlsplit
    from urllib.request import url2pathname

    try:
        origin = decode_json(distribution("sawlog").read_text("direct_url.json") or "")
    except PackageNotFoundError:
        origin = None
    url = urlsplit(str(origin.get("url", ""))) if isinstance(origin, dict) else urlsplit("")
    path = url2pathname(url.path)
    if url.scheme == "file" and os.path.exists(path):
        return f"pip install {shlex.quote(f'{path}[{extra}]')}"
    return f"pip install '.[{extra}]' in a checkout of sawlog"


def wrap_decoder(decoder: Callable[P, T], *faults: type[Exception]) -> Callable[P, T]:
    """Return a decoder for `call_decoder` that reports faults of bytes by some of `FAULTS` too: how deep they nest."""

    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return decoder(*args, **kwargs)
        except faults as error:
            raise ValueError(f"{type(error).__name__}: {error}") from error

    return call


_parse_json = wrap_decoder(json.loads, RecursionError)


def decode_json(text: bytes | str) -> Any | Undecodable:
    """Return the value of a text in JSON; `Undecodable` for any other, and for one that is nested too deeply."""
    return call_decoder(_parse_json, text)


@dataclass(frozen=True, slots=True)
class _ErrorWrapper:
    """Context of `wrap_errors`: entered and left in a quarter of the time of a generator."""

    doing: str

    def __enter__(self) -> None: ...

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if isinstance(error, Exception) and not (isinstance(error, SawlogError | Warning) or is_system_error(error)):
            raise make_internal_error(error, self.doing) from error


def wrap_errors(doing: str) -> _ErrorWrapper:
    """Turn exceptions that are neither sawlog's, nor the system's, nor warnings into an `InternalError`.

    Args:
        doing: What is being done, and to which path, for the message.
    """
    return _ErrorWrapper(doing)


def parse_time(option: str, value: object, expected: str = "a time like 2024-05-01T12:00:00Z") -> dt.datetime:
    """Return the time that an option names, in ISO 8601 where it is text; UTC if it has no zone.

    Args:
        option: The name of the option, for the message.
        value: Its value.
        expected: What else it might have been, for the message.

    Raises:
        OptionError: When it is no time.
    """
    try:
        moment = value if isinstance(value, dt.datetime) else dt.datetime.fromisoformat(str(value))
    except ValueError:
        raise OptionError(f"{option}={value!r}: expected {expected}") from None
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=dt.UTC)


def count_microseconds(moment: dt.datetime) -> int:
    """Return the whole microseconds from 1970 to a moment, which is UTC if it has no zone."""
    aware = moment if moment.tzinfo is not None else moment.replace(tzinfo=dt.UTC)
    return (aware - EPOCH) // dt.timedelta(microseconds=1)


def _find_innermost_file(trace: TracebackType | None) -> str:
    """Return the file of the frame that raised."""
    name = ""
    while trace is not None:
        name = trace.tb_frame.f_code.co_filename
        trace = trace.tb_next
    return name

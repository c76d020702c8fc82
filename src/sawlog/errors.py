"""Every exception sawlog raises on purpose, in one tree, and the damage that one of them carries."""

from __future__ import annotations

import contextlib
import difflib
import functools
import os
import re
import sys
import warnings
from collections.abc import Iterable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass

_USER = re.compile(r"\b(?!(?:abfss?|wasbs?)://[^:/]*@)([a-zA-Z][a-zA-Z0-9+.-]*://)[^/\s?#'\"]*@")
"""User and password of a URL; before an @, Azure has the name of a container."""
_SIGNATURE = re.compile(r"(://[^\s?'\"]*\?)(?=[^\s'\"]*=)[^\s'\"]*")


def without_secrets(text: str) -> str:
    """Return a text in which URLs have neither users and passwords nor the values of a query, such as signatures."""
    if "://" not in text:
        return text
    return _SIGNATURE.sub(r"\1***", _USER.sub(r"\1***@", text))


def find_secrets(url: str) -> list[str]:
    """Return users and passwords, and values of a query, that a URL carries."""
    secrets = [
        secret for match in _USER.finditer(url) for secret in re.split("[:/@]+", match[0].removeprefix(match[1]))
    ]
    _, _, query = url.partition("?")
    return [secret for secret in (*secrets, *(pair.partition("=")[2] for pair in query.split("&"))) if secret]


_OURS = (os.path.dirname(__file__) + os.sep, functools.__file__, contextlib.__file__)
"""Where a frame is none of the caller's."""

_COLLECTED: ContextVar[list[str] | None] = ContextVar("collected", default=None)


@contextlib.contextmanager
def collect_warnings() -> Iterator[list[str]]:
    """Collect what sawlog would warn of, here and in the threads that work for this one; others warn as before."""
    messages: list[str] = []
    token = _COLLECTED.set(messages)
    try:
        yield messages
    finally:
        _COLLECTED.reset(token)


def warn(message: str, category: type[Warning] = UserWarning) -> None:
    """Warn at the line by which sawlog was called."""
    messages = _COLLECTED.get()
    if messages is not None:
        messages.append(message)
        return
    level, frame = 1, sys._getframe()
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_OURS):
        level, frame = level + 1, frame.f_back
    warnings.warn(message, category, stacklevel=level)


class SawlogError(Exception):
    """Base of all sawlog errors. The message says what was expected, what was found, and where.

    Secrets that URLs carry are not in it.
    """

    def __init__(self, *args: object) -> None:
        super().__init__(*(without_secrets(argument) if isinstance(argument, str) else argument for argument in args))


class FormatError(SawlogError):
    """The path does not hold this format, or holds a version of it that is not supported."""


@dataclass(frozen=True, slots=True)
class Damage:
    """Range of bytes that could not be decoded.

    Attributes:
        path: The file, as it was named to sawlog.
        offset: First damaged byte, counted from the start of the file.
        length: Bytes in the damaged range; ranges of one scan never overlap.
        kind: A short name from the format's own list.
        detail: What was expected and what was found.
        dropped: What the original system's reader would count as lost for this event, where it counts at all.
    """

    path: str
    offset: int
    length: int
    kind: str
    detail: str
    dropped: int | None = None

    def __str__(self) -> str:
        return f"{self.path}: {self.kind} at byte {self.offset} ({self.length} bytes): {self.detail}"


class DamageError(SawlogError):
    """Damaged bytes were found while `on_damage="fail"` was in force. Carries the `Damage`."""

    def __init__(self, damage: Damage) -> None:
        super().__init__(f'{damage}; read on past it with on_damage="skip"')
        self.damage = damage

    def __reduce__(self) -> tuple[type[DamageError], tuple[Damage]]:
        """Pickle by the damage, so that Spark workers can hand the error to the driver."""
        return (DamageError, (self.damage,))


class UnsupportedError(FormatError):
    """A range that a newer or another writer wrote in a way this version does not know, under `on_damage="fail"`.

    Attributes:
        damage: The range, of kind `unsupported`; its detail names what was found.
        advice: What can be done about it.
    """

    def __init__(self, damage: Damage, advice: str = 'read the rest with on_damage="skip"') -> None:
        super().__init__(f"{damage}; {advice}")
        self.damage, self.advice = damage, advice

    def __reduce__(self) -> tuple[type[UnsupportedError], tuple[Damage, str]]:
        """Pickle by the range, as `DamageError` does."""
        return (UnsupportedError, (self.damage, self.advice))


class IncompleteError(SawlogError):
    """Something that metadata names is not there, or metadata is cut, under `on_damage="fail"`.

    Attributes:
        damage: The file, of one of the kinds in `sawlog.format.damage.INCOMPLETE_KINDS`; its detail says what is
            missing.
    """

    def __init__(self, damage: Damage) -> None:
        place = f"{damage.path}: {damage.kind}" + (f" at byte {damage.offset}" if damage.offset else "")
        super().__init__(f'{place}: {damage.detail}; read what is there with on_damage="skip"')
        self.damage = damage

    def __reduce__(self) -> tuple[type[IncompleteError], tuple[Damage]]:
        """Pickle by the range, as `DamageError` does."""
        return (IncompleteError, (self.damage,))


FINDING_ERRORS = (DamageError, UnsupportedError, IncompleteError)
"""Errors that carry a finding of a scan, under `on_damage="fail"`."""


class InternalError(SawlogError):
    """A fault of sawlog or of the machine, running out of memory included. Never damage, never skipped."""


class SchemaError(SawlogError):
    """Columns, types or values that a format cannot represent, or that do not exist."""


class OptionError(SawlogError):
    """An unknown option, or a value it cannot take."""

    inapplicable = ""  # the option that the dataset has no use for, whatever its value


class StorageError(SawlogError, OSError):
    """A store, or the operating system, failed to answer. Says nothing about the bytes: never damage, worth a retry."""


class DiskError(StorageError):
    """A local disk cannot read a range (EIO): the only storage error that may be damage, of kind `read_error`."""


class BitrotError(DamageError, DiskError):
    """Bytes that a store keeps checksums of are not those that were stored, or are gone. Carries the `Damage`."""

    def __reduce__(self) -> tuple[type[BitrotError], tuple[Damage]]:
        """Pickle by the range, as `DamageError` does."""
        return (BitrotError, (self.damage,))


class ChangedError(StorageError):
    """A file became shorter, or was replaced, while it was read."""

    @classmethod
    def from_sizes(cls, path: str, expected: int, size: int) -> ChangedError:
        """Return the error for a file that has lost its end."""
        return cls(f"{path}: expected {expected} bytes, found {size}: the file became shorter while it was read")


def suggest_name(name: str, known_names: Iterable[str]) -> str:
    """To be appended to a message on an unknown name: the known one that is nearest, if any is near."""
    near = difflib.get_close_matches(name, list(known_names), 1)
    return f"; did you mean {near[0]!r}?" if near else ""


class PipelineError(SawlogError):
    """A pipeline failed while it ran.

    Attributes:
        damaged: Whether it was damage in a source that stopped it.
        transient: Whether what stopped it may be gone when it is tried again.
    """

    def __init__(self, message: str, *, damaged: bool = False, transient: bool = False) -> None:
        super().__init__(message)
        self.damaged = damaged
        self.transient = transient

"""File names of logs: whose table and partition a file belongs to, and when it was begun."""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone
from functools import lru_cache

_BIN = ".bin"
_SETS = ("System", "User")
_STANDARD_TOKENS = 5
_DATE = re.compile(r"\d{4}-\d\d-\d\d")
_TIME = re.compile(r"(\d{4})-(\d\d)-(\d\d)\.(\d\d)(\d\d)(\d\d)\.(\d{1,6})([+-]\d{4}|Z)?$")
_FIRST_TIME = datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=24, microseconds=-1)))
_TIME_STEP = timedelta(microseconds=1)
_WHOLE_BIN = re.compile(r"\.bin(\.|$)")


@dataclass(frozen=True, slots=True)
class LogName:
    """Parts of the name of a log. Those that it says nothing on are None.

    Attributes:
        namespace: Namespace of the table.
        table: Name of the table.
        namespace_set: `System` or `User`.
        internal_partition: The writer: one process, so that there is one writer per partition.
        column_partition: Value of the partitioning column, usually a date.
        start_time: When the file was begun.
    """

    namespace: str | None = None
    table: str | None = None
    namespace_set: str | None = None
    internal_partition: str | None = None
    column_partition: str | None = None
    start_time: datetime | None = None

    @property
    def partition(self) -> tuple[str, str, str, str]:
        """Key that files of one partition share: namespace, table, internal and column partition."""
        parts = (self.namespace, self.table, self.internal_partition, self.column_partition)
        namespace, table, internal, column = (part or "" for part in parts)
        return namespace, table, internal, column


def is_log_name(name: str) -> bool:
    """Return whether a file is called like a binary log."""
    return _WHOLE_BIN.search(name) is not None


def parse_name(name: str) -> LogName:
    """Take a file name apart.

    There are two styles: `ns.table.System.internal.column.bin.time` and the older `ns.table.internal.bin.column.time`.
    Tokens that fit neither are left out rather than guessed.
    """
    bin_place = name.rfind(_BIN + ".")
    if bin_place < 0:
        bin_place = len(name) - len(_BIN) if name.endswith(_BIN) else -1
    if bin_place < 0:
        return LogName()
    namespace, table, kind, internal, column = _parse_parts(name[:bin_place])
    right = name[bin_place + len(_BIN) + 1 :]
    if internal is not None and column is None and (date := _DATE.match(right)):
        column = date[0]
    return LogName(namespace, table, kind, internal, column, _parse_begin(right))


@lru_cache(1 << 10)
def _parse_parts(text: str) -> tuple[str | None, str | None, str | None, str | None, str | None]:
    """Return what is in front of `.bin` as the first five parts of a `LogName`; many files share it."""
    tokens = [sys.intern(token) for token in text.split(".")]
    if len(tokens) >= _STANDARD_TOKENS and tokens[2] in _SETS:
        return tokens[0], tokens[1], tokens[2], sys.intern(".".join(tokens[3:-1])), tokens[-1]
    if len(tokens) < 3:
        namespace, table = tokens if len(tokens) == 2 else (None, None)
        return namespace, table, None, None, None
    kind = tokens[2] if tokens[2] in _SETS and len(tokens) > 3 else None
    return tokens[0], tokens[1], kind, ".".join(tokens[3:] if kind else tokens[2:]), None


def format_name(name: LogName) -> str:
    """Return the standard name of a log.

    Raises:
        ValueError: When a part is missing or would be read back otherwise.
    """
    parts = (name.namespace, name.table, name.namespace_set or "System", name.internal_partition, name.column_partition)
    if name.start_time is None or any(not part for part in parts):
        raise ValueError(f"a log name needs every part: {name}")
    millis = f"{name.start_time.microsecond // 1000:03d}"
    text = ".".join(map(str, parts)) + f"{_BIN}.{name.start_time:%Y-%m-%d.%H%M%S}.{millis}{name.start_time:%z}"
    back = parse_name(text)
    if "/" in text or "\0" in text or back.partition != name.partition:
        raise ValueError(f"the parts of {text!r} cannot be told apart again: no dots or slashes in names")
    return text


def order_key(name: LogName, path: str) -> str:
    """Return a sort key: partitions apart, files by the instant they were begun (local times do not sort) and path.

    It is one string, because sorting holds the keys of all files at a time.
    """
    namespace, table, internal, column = name.partition
    began = "" if name.start_time is None else f"{(name.start_time - _FIRST_TIME) // _TIME_STEP:018}"
    return f"{namespace}\0{table}\0{column}\0{internal}\0{began}\0{path}"


def _parse_begin(text: str) -> datetime | None:
    match = _TIME.search(text)
    if match is None:
        return None
    *digits, fraction, zone = match.groups()
    year, month, day, hour, minute, second = map(int, digits)
    try:
        return datetime(year, month, day, hour, minute, second, int(fraction.ljust(6, "0")), _parse_zone(zone))
    except ValueError:
        return None


def _parse_zone(text: str | None) -> timezone:
    """Return a time's zone, `+0130` or `Z`; UTC where none is named."""
    if text in (None, "Z", "+0000"):
        return UTC
    hours, minutes = int(text[1:3]), int(text[3:])
    if minutes > 59:
        raise ValueError(f"{text}: {minutes} minutes")
    offset = timedelta(hours=hours, minutes=minutes)
    return timezone(-offset if text[0] == "-" else offset)

"""File names of logs: whose table and partition a file belongs to, and when it was begun."""

from __future__ import annotations

import re
import sys
from datetime import UTC, datetime, timedelta, timezone
from functools import lru_cache
from typing import NamedTuple

_BIN = ".bin"
_SETS = ("System", "User")
_STANDARD_TOKENS = 5
_DATE = re.compile(r"\d{4}-\d\d-\d\d")
_TIME = re.compile(r"\d{4}-\d\d-\d\d\.\d{6}\.\d{1,6}([+-]\d\d[0-5]\d|Z)?$")
_FIRST_TIME = datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=24, microseconds=-1)))
_WHOLE_BIN = re.compile(r"\.bin(\.|$)")


class LogName(NamedTuple):
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
        return self.namespace or "", self.table or "", self.internal_partition or "", self.column_partition or ""


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
    age = None if name.start_time is None else name.start_time - _FIRST_TIME
    began = "" if age is None else f"{age.days * 86_400 + age.seconds:012}{age.microseconds:06}"
    return f"{namespace}\0{table}\0{column}\0{internal}\0{began}\0{path}"


def _parse_begin(text: str) -> datetime | None:
    """Return the time at the end of a name; in UTC where it names no zone."""
    match = _TIME.search(text)
    if match is None:
        return None
    try:
        time = datetime.fromisoformat(match[0])
    except ValueError:
        return None
    return time if match[1] else time.replace(tzinfo=UTC)

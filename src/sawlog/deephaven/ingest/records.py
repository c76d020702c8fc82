"""The position record: which ranges of which logs a location holds. It is published with the location, as one."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from sawlog.errors import FormatError, SawlogError
from sawlog.guard import decode_json
from sawlog.storage import File, Storage
from sawlog.storage.typed_json import parse_json_as

RECORD_NAME = "_sawlog.json"
"""The record's file in a location; readers of column files skip names that begin like this."""
RECORD_VERSION = 1
MAX_RECORD_BYTES = 256 << 20
"""A merged location names every intraday one that it was made of."""
_ORIGIN_DIGITS = 32
_CHECK_BYTES = 4
"""A taken range is known again by so many bytes before its end: the digest of its last entry, or of the header."""


@dataclass(frozen=True, slots=True)
class Partition:
    """The logs of one single-writer stream: it has its own order, and its own positions."""

    namespace: str
    table: str
    internal_partition: str
    column_partition: str

    def __str__(self) -> str:
        return f"{self.namespace}.{self.table} {self.internal_partition}/{self.column_partition}"


@dataclass(frozen=True, slots=True)
class ImportedRange:
    """A range of one log.

    Attributes:
        start: Its first byte.
        end: The byte after it: the end of a committed entry.
        check: The `_CHECK_BYTES` before `end`, in hexadecimal.
    """

    start: int
    end: int
    check: str

    @classmethod
    def of(cls, file: File, start: int, end: int, storage: Storage) -> ImportedRange:
        """Return the range of a log as it is now."""
        return cls(start, end, _check(file, end, storage))

    def confirm(self, file: File, storage: Storage) -> None:
        """Raise unless a log is still the log that the range was taken from.

        Raises:
            SawlogError: When it shrank, or holds other bytes.
        """
        if file.size < self.end:
            raise SawlogError(
                f"{file.path}: {self.end} bytes were imported, and the log has {file.size} now: it was cut or replaced;"
                " bring the old log back, or move the new one away"
            )
        check = _check(file, self.end, storage)
        if check != self.check:
            raise SawlogError(
                f"{file.path}: expected {self.check} before byte {self.end}, where the import stopped, found {check}:"
                " another log has taken this one's name; bring the old log back, or rename the new one"
            )


def _check(file: File, end: int, storage: Storage) -> str:
    return storage.read(file.path, end - _CHECK_BYTES, _CHECK_BYTES).hex()


@dataclass(frozen=True, slots=True)
class PositionRecord:
    """The origin of the rows of a location.

    Attributes:
        partition: Whose rows they are.
        sequence: Its place among the locations of the partition.
        rows: How many they are.
        truncates: Whether the partition begins with it: locations before it are void. Its ranges include theirs.
        truncated_in: Name of the log that holds the DELETE_PARTITION which did that.
        logs: Ranges by name of the log.
        deletions: How often the partition was deleted before its rows.
    """

    partition: Partition
    sequence: int
    rows: int
    truncates: bool = False
    truncated_in: str | None = None
    logs: Mapping[str, ImportedRange] = field(default_factory=dict)
    deletions: int = 0

    @property
    def origin(self) -> str:
        """A digest of the ranges, which no other location of the partition has."""
        ranges = json.dumps({name: asdict(progress) for name, progress in self.logs.items()}, sort_keys=True)
        return hashlib.sha256(ranges.encode()).hexdigest()[:_ORIGIN_DIGITS]

    def to_json(self) -> bytes:
        """Return the record as it is stored: the same for the same record."""
        document = {"version": RECORD_VERSION, **asdict(self)}
        return (json.dumps(document, indent=1, sort_keys=True) + "\n").encode()

    @classmethod
    def from_json(cls, data: bytes, path: str) -> PositionRecord:
        """Read a stored record.

        Raises:
            FormatError: When it is none, or of an unknown version.
        """
        document = parse_json_as(decode_json(data), dict[str, Any], f"{path}: not a position record")
        if (version := document.get("version")) != RECORD_VERSION:
            raise FormatError(f"{path}: a record of version {version}; known is {RECORD_VERSION}")
        record: PositionRecord = parse_json_as(document, cls, f"{path}: not a position record")
        numbers = [record.sequence, record.rows, record.deletions]
        numbers += [number for progress in record.logs.values() for number in (progress.start, progress.end)]
        if min(numbers) < 0:
            raise FormatError(f"{path}: not a position record: a number below 0")
        return record


@dataclass(frozen=True, slots=True)
class Progress:
    """The progress of the logs of a partition.

    Attributes:
        sequence: That of the next location.
        logs: Per log, the last range that was taken.
        truncated_in: The log of the last DELETE_PARTITION; what logs before it say is void.
        deletions: How many of them there were.
    """

    sequence: int = 0
    logs: Mapping[str, ImportedRange] = field(default_factory=dict)
    truncated_in: str | None = None
    deletions: int = 0

    @classmethod
    def of(cls, records: Iterable[PositionRecord]) -> Progress:
        """Return the progress by the records of a partition's locations."""
        logs: dict[str, ImportedRange] = {}
        sequence, truncated_in, deletions = 0, None, 0
        for record in sorted(records, key=lambda record: record.sequence):
            sequence = record.sequence + 1
            truncated_in = record.truncated_in or truncated_in
            deletions = max(deletions, record.deletions)
            for name, progress in record.logs.items():
                if name not in logs or progress.end >= logs[name].end:
                    logs[name] = progress
        return cls(sequence, logs, truncated_in, deletions)

"""The original format, before there was a magic number: columns, then bare rows. Experimental: little is published."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from sawlog.arrow import constant
from sawlog.damage import Findings, Tail, TailStatus
from sawlog.deephaven_log import columns, layout
from sawlog.deephaven_log.header import Header, LogColumn
from sawlog.deephaven_log.layout import TYPES, ColumnType
from sawlog.errors import FormatError
from sawlog.format import FILE_COLUMN, OFFSET_COLUMN, Fragment

if TYPE_CHECKING:
    from sawlog.storage import File

_BATCH_ROWS = 8 << 10
_READ_BYTES = 1 << 20


def is_original(head: bytes) -> bool:
    """Whether a file begins with a plausible number of columns, as the original format does."""
    count = int.from_bytes(head[: layout.COUNT_SIZE], "big", signed=True)
    return len(head) >= layout.COUNT_SIZE and 0 < count <= layout.MAX_ORIGINAL_COLUMNS


def read_original_header(path: str, head: bytes) -> Header:
    """The header: per column two zero-terminated strings, a size that nobody uses, and metadata.

    Raises:
        FormatError: When it is none, or longer than what is looked at.
    """
    position = layout.COUNT_SIZE
    found = []

    def text() -> str:
        nonlocal position
        end = head.find(b"\0", position)
        if end < 0:
            raise FormatError(f"{path}: byte {position}: a string without an end: not a log of the original format")
        start, position = position, end + 1
        return head[start:end].decode("utf-8", "replace")

    def number() -> int:
        nonlocal position
        piece = head[position : position + layout.COUNT_SIZE]
        if len(piece) < layout.COUNT_SIZE:
            raise FormatError(f"{path}: the file ends at byte {len(head)}, inside the header of the original format")
        position += layout.COUNT_SIZE
        return int.from_bytes(piece, "big", signed=True)

    for _ in range(int.from_bytes(head[: layout.COUNT_SIZE], "big")):
        name, spelled = text(), text()
        number()
        length = number()
        if not 0 <= length <= len(head) - position:
            raise FormatError(f"{path}: byte {position}: column {name!r} has metadata of {length} bytes")
        position += length
        kind = layout.ORIGINAL_TYPE_NAMES.get(spelled.rpartition(".")[2].lower())
        if kind is None:
            raise FormatError(f"{path}: column {name!r} has the unknown type {spelled!r}")
        charset = layout.DEFAULT_CHARSET if kind is ColumnType.ENHANCED_STRING else ""
        found.append(LogColumn(name, kind, charset))
    if len({column.name for column in found}) < len(found):
        raise FormatError(f"{path}: columns of the same name: not a log of the original format")
    return Header(0, tuple(found), None, head[:position])


@dataclass(frozen=True)
class OriginalLog(Fragment):
    """A whole file of the original format. Its rows have no sizes and no digests, so that damage goes unnoticed.

    Attributes:
        file: The log.
        header: Its header.
        partition: Value of the partitioning column.
    """

    file: File
    header: Header
    partition: str | None

    def decode(self, schema: pa.Schema, findings: Findings) -> Iterator[pa.RecordBatch]:
        """See `Fragment.decode`. A row that the file ends in is its tail."""
        findings.account.header += self.header.size
        position = self.header.size
        rows: list[tuple[int, list[bytes | None]]] = []
        buffer, start = b"", position
        while True:
            row, used = _row(self.header, buffer, position - start)
            missing = position + used - start - len(buffer)
            if row is None and position + used <= self.file.size and missing > 0:
                buffer, start = self.scan.storage.read(self.path, position, max(_READ_BYTES, used)), position
                if len(buffer) >= used:
                    continue
            if row is None or len(rows) >= _BATCH_ROWS:
                findings.rows += len(rows)
                yield self._batch(schema, rows)
                rows = []
                if row is None:
                    break
            rows.append((position, row))
            findings.account.record += used
            position += used
        left = self.file.size - position
        status = TailStatus.TORN if left else TailStatus.CLEAN
        findings.tail = Tail(status, position, left, "the file ends inside a row" if left else "")
        findings.account.tail += left

    def _batch(self, schema: pa.Schema, rows: list[tuple[int, list[bytes | None]]]) -> pa.RecordBatch:
        arrays = [self._array(field, rows) for field in schema]
        return pa.RecordBatch.from_arrays(arrays, schema=schema)

    def _array(self, field: pa.Field, rows: list[tuple[int, list[bytes | None]]]) -> pa.Array:
        if field.name == FILE_COLUMN:
            return constant(self.path, pa.string(), len(rows))
        if field.name == OFFSET_COLUMN:
            return pa.array([position for position, _ in rows], pa.int64())
        if columns.PARTITION_KEY in (field.metadata or {}):
            return constant(self.partition, pa.string(), len(rows))
        names = [column.name for column in self.header.columns]
        if field.name not in names:
            return pa.nulls(len(rows), field.type)
        place = names.index(field.name)
        column = self.header.columns[place]
        values = [row[place] for _, row in rows]
        if column.width == 0:
            binary = columns.encoded_array(values, pa.binary())
            return binary if column.type is ColumnType.BLOB else columns.decode_text(binary, column.charset)[0]
        converted = [None if value is None else columns.decode_value(column, value) for value in values]
        return pa.array(converted, columns.PLAIN[column.type]).cast(field.type)


def _row(header: Header, buffer: bytes, start: int) -> tuple[list[bytes | None] | None, int]:
    """The row at `start` of a buffer as bytes per column, and its length; no row, and the bytes it needs at least."""
    position = start + max(header.presence_bytes, 1)
    row: list[bytes | None] = []
    for index, column in enumerate(header.columns):
        if position > len(buffer):
            return None, position - start
        byte, bit = divmod(index, layout.PRESENCE_BITS)
        if not buffer[start + byte] >> bit & 1:
            row.append(None)
            continue
        length = TYPES[column.type].width
        if length == 0:
            position += layout.COUNT_SIZE
            if position > len(buffer):
                return None, position - start
            length = int.from_bytes(buffer[position - layout.COUNT_SIZE : position], "big", signed=True)
            # A negative length is no row, and neither is anything behind it.
            length = length if length >= 0 else 1 << 62
        if position + length > len(buffer):
            return None, position + length - start
        row.append(buffer[position : position + length])
        position += length
    return row, position - start

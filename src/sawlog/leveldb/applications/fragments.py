"""Entries of a database, decoded by an application's view."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import pyarrow as pa

from sawlog.arrow import array_of, batch_of
from sawlog.format.contract import Fragment
from sawlog.format.damage import Findings
from sawlog.format.scan import Projection
from sawlog.leveldb.applications import application
from sawlog.leveldb.applications.view import ApplicationView, Entry, Home, UnknownBytesError
from sawlog.leveldb.database.fragments import STATE_SCHEMA, KeyRange

RAW = {"raw_key": "key", "raw_value": "value"}
"""Columns of stored bytes, and what they are in the view `live`."""
_REASON = pa.field("reason", pa.string())
UNDECODED_ROWS = "undecoded_rows"
"""Note of rows with a reason: of those, some bytes are delivered as they are stored."""
_DELETIONS = frozenset({"delete", "single_delete", "delete_sized", "delete_range"})
BATCH_BYTES = 8 << 20
"""Decoded text that makes a batch, at most, unless one value has more."""


def schema_of(view: ApplicationView, entries: pa.Schema) -> pa.Schema:
    """Columns of a view, given those of the entries that it decodes."""
    raw = [entries.field(name).with_name(new) for new, name in RAW.items()]
    return pa.schema([*view.columns, _REASON, *raw, *(field for field in entries if field.name not in RAW.values())])


@dataclass(frozen=True)
class Decoded(Fragment):
    """Fragment of an application's view: the decoded entries of a range of keys.

    Attributes:
        entries: The range, as `live` or `all` reads it.
        whole: All keys, in view `all`.
        home: Where the database is.
    """

    entries: KeyRange
    whole: KeyRange
    home: Home
    several: ClassVar = True

    def decode(self, schema: pa.Schema, findings: Findings) -> Iterator[pa.RecordBatch]:
        """Decode the entries; columns of bytes only are passed on."""
        view = application(self.scan.view)
        assert view is not None
        decoded = [field for field in schema if field.name in view.columns.names or field.name == _REASON.name]
        stored = [field.with_name(RAW.get(field.name, field.name)) for field in schema if field not in decoded]
        missing = [field for field in STATE_SCHEMA if decoded and field.name not in {column.name for column in stored}]
        context = view.context(self._names(view), self.home) if decoded else None
        for batch in self.entries.decode(pa.schema([*stored, *missing]), findings):
            first = 0
            empty_rows: list[list[Mapping[str, Any]]] = [[{}] * batch.num_rows]
            for rows in _stretches(view, context, batch) if decoded else empty_rows:
                part, first = batch.slice(first, len(rows)), first + len(rows)
                arrays = [
                    column_of(rows, field) if field in decoded else part.column(RAW.get(field.name, field.name))
                    for field in schema
                ]
                findings.notes[UNDECODED_ROWS] += sum(row.get(_REASON.name) is not None for row in rows)
                yield batch_of(arrays, schema, len(rows))

    def scan_into(self, findings: Findings) -> Findings:
        """Findings without columns. For a report, entries are decoded: what they mean is a part of its verdict."""
        if findings.intact is None:
            return super().scan_into(findings)
        for _ in self._decoded(pa.schema([_REASON]), findings):
            pass
        return findings

    def _names(self, view: ApplicationView) -> Iterator[Entry]:
        """The entries that explain others. What is damaged among them is reported where they are read as rows."""
        if view.names is None:
            return
        low, high = view.names
        bytewise = self.whole.version.bytewise
        names = replace(self.whole, low=low, high=high) if bytewise else self.whole
        for batch in names.decode(STATE_SCHEMA, Findings("skip", drained=True)):
            for entry in _entries(batch):
                if low <= entry.key and (high is None or entry.key < high):
                    yield entry


def entries_of(keys: KeyRange, view: str) -> KeyRange:
    """A range of keys, to be read by another view, with all of its columns and rows."""
    scan = replace(keys.scan, view=view, columns=None, filters=(), expression=None, schema=None)
    return replace(keys, scan=scan, projection=Projection.of(STATE_SCHEMA, scan))


def _entries(batch: pa.RecordBatch) -> Iterator[Entry]:
    names = ("key", "value", "sequence", "operation")
    for key, value, sequence, operation in zip(*(batch.column(name).to_pylist() for name in names), strict=True):
        yield Entry(key, None if operation in _DELETIONS else value, sequence)


def _stretches(view: ApplicationView, context: Any, batch: pa.RecordBatch) -> Iterator[list[Mapping[str, Any]]]:
    """Decoded rows, cut where there is much text: a compressed value expands."""
    rows: list[Mapping[str, Any]] = []
    size = 0
    for entry in _entries(batch):
        try:
            row = view.decode(entry, context)
        except UnknownBytesError as unknown:
            row = {_REASON.name: str(unknown)}
        rows.append(row)
        for value in row.values():
            if isinstance(value, (str, bytes)):
                size += len(value)
        if size > BATCH_BYTES:
            yield rows
            rows, size = [], 0
    if rows:
        yield rows


def column_of(rows: Sequence[Mapping[str, Any]], field: pa.Field) -> pa.Array:
    """Return one column of decoded rows; times are numbers of their unit."""
    values = [row.get(field.name) for row in rows]
    if pa.types.is_timestamp(field.type):
        return array_of(values, pa.int64()).view(field.type)
    return array_of(values, field.type)

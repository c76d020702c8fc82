"""Entries of a database, decoded by an application's view."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from sawlog.arrow import (
    call_function,
    combine_table,
    make_array,
    make_batch,
    make_fixed_array,
    make_scalar,
    unpack_booleans,
    view_offsets,
)
from sawlog.errors import SawlogError
from sawlog.format.contract import Fragment
from sawlog.format.damage import Findings
from sawlog.format.scan import Projection
from sawlog.leveldb.applications import find_application
from sawlog.leveldb.applications.view import ApplicationView, Entries, Home, PlainRows, UnknownBytesError, put_rows
from sawlog.leveldb.columns import STATE_SCHEMA, slice_keys
from sawlog.leveldb.database.fragments import KeyRange, Orphan, SharedFiles
from sawlog.storage import File
from sawlog.storage.workers import ReadOnce

if TYPE_CHECKING:
    from sawlog.leveldb.database.merge import MergedEntries

_RAW = "raw_"
"""Begins the names of columns of stored bytes, and of those that the view has another column by the name of."""
_BYTES = ("key", "value")
_REASON = pa.field("reason", pa.string())
_UNDECODED_ROWS = "undecoded_rows"
"""Note of rows with a reason: of those, some bytes are delivered as they are stored."""
_DELETIONS = frozenset({"delete", "single_delete", "delete_sized", "delete_range"})
_LEAST_DELETION = min(map(len, _DELETIONS))
"""Characters of the shortest of them; of other operations most have fewer."""
_BATCH_BYTES = 8 << 20
"""Decoded text that makes a batch, at most, unless one value has more."""


def make_view_schema(view: ApplicationView, entries: pa.Schema) -> pa.Schema:
    """Return columns of a view, given those of the entries that it decodes."""
    names = {*view.columns.names, *_BYTES}
    fields = [field.with_name(f"{_RAW}{field.name}") if field.name in names else field for field in entries]
    raw = [field for field in fields if field.name.removeprefix(_RAW) in _BYTES]
    return pa.schema([*view.columns, _REASON, *raw, *(field for field in fields if field not in raw)])


@dataclass(frozen=True)
class Decoded(Fragment):
    """Fragment of an application's view: the decoded entries of a range of keys.

    Attributes:
        entries: The range, as `live` or `all` reads it.
        all_keys: All keys, in view `all`.
        home: Where the database is.
        context: What explains entries, once for all ranges of this process; other processes read it again.
    """

    entries: KeyRange
    all_keys: KeyRange
    home: Home
    context: ReadOnce[Any] | None = field(default=None, repr=False, compare=False)
    several: ClassVar = True

    @property
    def extents(self) -> Iterator[tuple[File, int, int]]:
        """The ranges of its entries."""
        return self.entries.extents

    def decode(self, schema: pa.Schema, findings: Findings) -> Iterator[pa.RecordBatch]:
        """Decode the entries; columns of bytes only are passed on."""
        view = find_application(self.scan.view)
        assert view is not None
        if not self.entries.version.bytewise and self.entries.shared is None and self.entries.several:
            shared = SharedFiles(self.entries.tables, None)
            entries, all_keys = (replace(keys, shared=shared) for keys in (self.entries, self.all_keys))
            yield from replace(self, entries=entries, all_keys=all_keys).decode(schema, findings)
            return
        decoded = [field for field in schema if field.name in view.columns.names or field.name == _REASON.name]
        stored = [field.with_name(field.name.removeprefix(_RAW)) for field in schema if field not in decoded]
        missing = [field for field in STATE_SCHEMA if decoded and field.name not in {column.name for column in stored}]
        batches = self.entries.decode(pa.schema([*stored, *missing]), findings)
        context = None
        if decoded:
            names = None
            if view.names is not None and view.names[1] is not None and self._has_all_keys:
                ahead = _ReadAhead(view.names, batches, findings)
                batches, names = ahead.deliver(), ahead.names
            context = (self.context or ReadOnce[Any]()).get(
                lambda: view.make_context(self._read_names(view, names), self.home)
            )
        for batch in batches:
            parts = decode_parts(view, context, batch, decoded) if decoded else iter([_DecodedRows(batch, {}, 0)])
            for part in parts:
                arrays = [
                    part.columns[field.name] if field in decoded else part.entries.column(field.name.removeprefix(_RAW))
                    for field in schema
                ]
                findings.notes[_UNDECODED_ROWS] += part.undecoded
                yield make_batch(arrays, schema, part.entries.num_rows)
        files = self.entries.shared
        if files is not None and not next(files.finished) % self.entries.parts:
            files.unordered = ReadOnce()

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "context": None}

    def scan_into(self, findings: Findings) -> Findings:
        """Return findings without columns.

        For a report, entries are decoded: what they mean is a part of its verdict.
        """
        if findings.intact is None:
            return super().scan_into(findings)
        for _ in self._decode_batches(pa.schema([_REASON]), findings):
            pass
        return findings

    @property
    def _has_all_keys(self) -> bool:
        """Whether all entries are in this range, in the order of the bytes of their keys."""
        keys = self.entries
        return keys.version.bytewise and not isinstance(keys, Orphan) and not keys.low and keys.high is None

    def _read_names(self, view: ApplicationView, batches: Iterable[pa.RecordBatch] | None) -> Entries:
        """Return entries that explain others. What is damaged among them is reported where they are read as rows.

        Args:
            view: The view.
            batches: Entries that have them among them, if they were read.
        """
        if view.names is None:
            return Entries.of([])
        low, high = view.names
        bytewise = self.all_keys.version.bytewise
        if batches is None:
            keys = self.all_keys
            names = replace(keys, low=low, high=high) if bytewise else replace(keys, select=view.are_names)
            batches = names.decode(STATE_SCHEMA, Findings("skip", drained=True))
        selected = []
        for batch in batches:
            are_names = view.are_names(batch.column("key"))
            selected.append(batch if are_names is None else batch.filter(make_array(are_names, pa.bool_())))
        entries = _make_entries(combine_table(pa.Table.from_batches(selected, STATE_SCHEMA)))
        if not bytewise:
            bounds = [("greater_equal", low), *([] if high is None else [("less", high)])]
            for function, bound in bounds:
                entries = entries.filter(call_function(function, entries.keys, make_scalar(bound, pa.binary())))
        return entries


class _ReadAhead:
    """Entries of all keys, read up to the last that explains others.

    Attributes:
        names: Those that explain others, dead ones included; `None` where others come first, or not all of them are
            sure to be there.

    Args:
        bounds: Between which keys there is what explains others.
        batches: The entries, in key order.
        findings: What is found in them.
    """

    def __init__(
        self, bounds: tuple[bytes, bytes | None], batches: Iterator[pa.RecordBatch], findings: Findings
    ) -> None:
        self._batches = batches
        self._waiting: deque[pa.RecordBatch] = deque()
        self._error: SawlogError | OSError | None = None
        self.names: list[pa.RecordBatch] | None = None
        low, high = bounds
        merged: list[MergedEntries] = []
        observe = findings.observe

        def collect(entries: MergedEntries) -> None:
            merged.append(entries)
            if observe is not None:
                observe(entries)

        findings.observe = collect
        is_passed = True
        try:
            for batch in batches:
                self._waiting.append(batch)
                last = batch.column("key")[-1].as_py() if batch.num_rows else low
                is_passed = high is not None and last >= high
                if is_passed or last < low:
                    break
            else:
                is_passed = True
        except (SawlogError, OSError) as error:
            self._error = error
        findings.observe = observe
        if is_passed and not findings.kinds and not any(entries.blobs or entries.has_strays for entries in merged):
            self.names = [
                slice_keys(batch, low, high)
                for entries in merged
                for batch in entries.make_batches(STATE_SCHEMA, {}, include_dead=True)
            ]

    def deliver(self) -> Iterator[pa.RecordBatch]:
        """Yield the entries, and raise what the reading of them has raised."""
        while self._waiting:
            yield self._waiting.popleft()
        if self._error is not None:
            raise self._error
        yield from self._batches


def change_view(keys: KeyRange, view: str) -> KeyRange:
    """Return a range of keys, to be read by another view, with all of its columns and rows."""
    scan = replace(keys.scan, view=view, columns=None, filters=(), expression=None, schema=None)
    return replace(keys, scan=scan, projection=Projection.of(STATE_SCHEMA, scan))


class _DecodedRows(NamedTuple):
    """Decoded rows.

    Attributes:
        entries: What they are made of.
        columns: By name.
        undecoded: How many have a reason.
    """

    entries: pa.RecordBatch
    columns: Mapping[str, pa.Array]
    undecoded: int


def decode_parts(
    view: ApplicationView, context: Any, batch: pa.RecordBatch, fields: Sequence[pa.Field]
) -> Iterator[_DecodedRows]:
    """Decode entries: many at a time those that are plain, one by one those that are not."""
    plain = view.decode_plain_rows(batch.column("key"), batch.column("value"), context)
    if plain is None:
        plain = PlainRows(np.zeros(batch.num_rows, np.bool_), {})
    doubtful = np.flatnonzero(~plain.is_plain | _are_deletions(batch.column("operation")))
    doubtful_rows: Iterator[list[Mapping[str, Any]]] = iter(())
    if len(doubtful):
        entries = batch if len(doubtful) == batch.num_rows else batch.take(make_fixed_array(pa.int64(), doubtful))
        doubtful_rows = _decode_rows(view, context, entries)
    start = decoded = 0
    for rows in itertools.chain(doubtful_rows, [[]]):
        places = doubtful[decoded : decoded + len(rows)] - start
        decoded += len(rows)
        stop = int(doubtful[decoded]) if rows and decoded < len(doubtful) else batch.num_rows
        if start < stop:
            columns = {
                field.name: _merge_column(plain, field, start, stop - start, places, rows)
                for field in {*fields, _REASON}
            }
            undecoded = stop - start - columns[_REASON.name].null_count
            yield _DecodedRows(batch.slice(start, stop - start), columns, undecoded)
        start = stop


def _merge_column(
    plain: PlainRows,
    field: pa.Field,
    start: int,
    count: int,
    places: NDArray[np.int64],
    rows: Sequence[Mapping[str, Any]],
) -> pa.Array:
    """Return a column of `count` entries from `start` on: of plain ones, with `rows` in their places among them."""
    if len(rows) == count:
        return make_column(rows, field)
    column = plain.columns.get(field.name)
    column = pa.nulls(count, field.type) if column is None else column.slice(start, count)
    return put_rows(column, places, make_column(rows, field)) if rows else column


def _are_deletions(operations: pa.Array) -> NDArray[np.bool_]:
    """Return which entries have no value."""
    if np.diff(view_offsets(operations)).max(initial=0) < _LEAST_DELETION:
        return np.zeros(len(operations), np.bool_)
    return unpack_booleans(
        call_function("is_in", operations, options=("SetLookupOptions", make_array(sorted(_DELETIONS), pa.string())))
    )


def _make_entries(batch: pa.RecordBatch) -> Entries:
    values = batch.column("value")
    are_deletions = _are_deletions(batch.column("operation"))
    if are_deletions.any():
        values = call_function(
            "if_else", make_array(are_deletions, pa.bool_()), pa.nulls(len(values), values.type), values
        )
    return Entries(batch.column("key"), values, batch.column("sequence"))


def _decode_rows(view: ApplicationView, context: Any, batch: pa.RecordBatch) -> Iterator[list[Mapping[str, Any]]]:
    """Yield decoded rows, cut where there is much text: a compressed value expands."""
    rows: list[Mapping[str, Any]] = []
    size = 0
    for entry in _make_entries(batch):
        try:
            row = view.decode(entry, context)
        except UnknownBytesError as unknown:
            row = {_REASON.name: str(unknown)}
        rows.append(row)
        for value in row.values():
            if isinstance(value, (str, bytes)):
                size += len(value)
        if size > _BATCH_BYTES:
            yield rows
            rows, size = [], 0
    if rows:
        yield rows


def make_column(rows: Sequence[Mapping[str, Any]], field: pa.Field) -> pa.Array:
    """Return one column of decoded rows; times are numbers of their unit."""
    values = [row.get(field.name) for row in rows]
    if pa.types.is_timestamp(field.type):
        return make_array(values, pa.int64()).view(field.type)
    return make_array(values, field.type)

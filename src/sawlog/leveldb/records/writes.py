"""The view `writes`: write batches of LevelDB and RocksDB, one row per operation."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from sawlog.arrow import (
    Column,
    call_function,
    make_array,
    make_fixed_array,
    make_scalar,
    pack_bits,
    view_binary,
    view_values,
)
from sawlog.format.contract import OFFSET_COLUMN, assemble
from sawlog.format.damage import Damage, Findings
from sawlog.leveldb.columns import (
    KEY,
    OPERATION,
    OPERATION_NAMES,
    STAMP,
    VALUE,
    WRITES_SCHEMA,
    convert_codes,
    make_name_array,
    split_stamps,
    strip_times,
)
from sawlog.leveldb.log.dataset import add_marks
from sawlog.leveldb.log.layout import RECORD_COLUMN, RECOVERED_COLUMN, STALE_COLUMN, Dialect
from sawlog.leveldb.log.walk import END_COLUMN, RECORDS_SCHEMA, LogRange, StampSizes
from sawlog.leveldb.records import kernels as k
from sawlog.leveldb.records import layout
from sawlog.leveldb.records.kernels import Table
from sawlog.leveldb.records.layout import BatchDamageKind, Field
from sawlog.leveldb.table.layout import STAMP_WIDTH

BATCH_ROWS = 64 << 10
_ROWS_OF_RECORD = 16
"""Room for so many rows of a record is taken until a batch has more."""
EVENT_ROOM = 1024
"""Damaged ranges that the kernel writes down before it hands over."""

STAMP_SIZE = "_timestamp_size"
"""The bytes at the end of an operation's keys that are a timestamp, as its log says; not for users."""
STAMP_SIZE_FIELD = pa.field(STAMP_SIZE, pa.int64())

_SPLIT = (WRITES_SCHEMA.field(OPERATION), WRITES_SCHEMA.field(KEY), STAMP_SIZE_FIELD)
"""Needed where timestamps and keys are taken apart."""
_STAMPED = np.array([operation.key and bool(operation.shape & Field.COUNTED) for operation in layout.OPERATIONS])
_NAMES_LOOKUP = ("SetLookupOptions", make_name_array(layout.NAMES))

_NUMBERS = np.array([OPERATION_NAMES.index(name) for name in layout.NAMES], np.uint8)
_MARKED = np.array([name in layout.MARKS for name in layout.NAMES])
_BINARY = ("key", "value")
_OF_BATCH = ("rows", "key_bytes", "value_bytes", "events", "no_keys", "no_values")
"""What of the decoder's state begins again with each batch of rows."""


@cache
def make_tag_table(dialect: Dialect) -> Table:
    """Return the meaning of tags in a dialect."""
    operations = layout.OPERATIONS
    variants = np.full(256, 2 * len(operations), np.uint8)
    shapes = np.zeros(2 * len(operations), np.uint8)
    tags = np.full((len(operations), 2), -1, np.int16)
    for code, operation in enumerate(operations):
        shapes[2 * code] = operation.shape
        shapes[2 * code + 1] = operation.shape | Field.FAMILY
        for variant, tag in enumerate(operation.find_tags(dialect)):
            if tag is not None:
                variants[tag] = 2 * code + variant
                tags[code, variant] = tag
    return Table(variants, shapes, tags)


@dataclass(frozen=True)
class WriteRange(LogRange):
    """The operations of those write batches whose record belongs to the range."""

    def decode(self, schema: pa.Schema, findings: Findings) -> Iterator[pa.RecordBatch]:
        """Return the operations of a range. Bytes after an error in a batch are damage; so is a wrong count."""
        if self.scan.options.keys == "internal" or not {KEY, VALUE, STAMP}.intersection(schema.names):
            return self._read_operations(schema, findings)
        extra_fields = [field for field in _SPLIT if field.name not in schema.names]
        stored = pa.schema([*(field for field in schema if field.name != STAMP), *extra_fields])
        return (self._split_rows(batch, schema) for batch in self._read_operations(stored, findings))

    def _split_rows(self, batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
        """Return operations with their timestamps in a column, null for operations without one of eight bytes.

        A key, or the end of a range, that is shorter than that has none either, whatever the log says.
        """
        names = view_values(call_function("index_in", batch.column(OPERATION), options=_NAMES_LOOKUP), np.int32)
        sizes = view_values(batch.column(STAMP_SIZE), np.int64)
        lengths = np.diff(view_binary(batch.column(KEY))[1])
        widths = np.where(_STAMPED[names] & (sizes == STAMP_WIDTH) & (lengths >= STAMP_WIDTH), STAMP_WIDTH, 0)
        keys, stamps = split_stamps(batch.column(KEY), widths, self.path)
        missing = make_array(widths == 0, pa.bool_())
        columns = {
            KEY: call_function("if_else", batch.column(KEY).is_null(), batch.column(KEY), keys),
            STAMP: call_function("if_else", missing, make_scalar(None, pa.uint64()), stamps),
        }
        if VALUE in batch.schema.names:
            values = batch.column(VALUE)
            ranges = (names == layout.DELETE_RANGE) & (np.diff(view_binary(values)[1]) >= STAMP_WIDTH)
            ends, _ = split_stamps(values, np.where(ranges, widths, 0), self.path)
            columns[VALUE] = call_function("if_else", values.is_null(), values, ends)
        arrays = [columns[name] if name in columns else batch.column(name) for name in schema.names]
        return pa.RecordBatch.from_arrays(arrays, schema=schema)

    def _read_operations(self, schema: pa.Schema, findings: Findings) -> Iterator[pa.RecordBatch]:
        decoders: dict[bool, tuple[Decoder, Findings]] = {}
        stamps = StampSizes() if STAMP_SIZE in schema.names else None
        for records in self.read_records(add_marks(RECORDS_SCHEMA, self.scan.options), findings, stamps):
            findings.rows -= records.num_rows
            stale = STALE_COLUMN in records.schema.names and records.column(STALE_COLUMN).true_count > 0
            if stale not in decoders:
                # What cannot be read of a log's former life is no damage.
                ledger = Findings("skip") if stale else findings
                decoders[stale] = self._make_decoder(schema, ledger, stamps), ledger
            decoder, ledger = decoders[stale]
            for batch in self._read_batches(decoder, records):
                if stale:
                    findings.rows, ledger.rows = findings.rows + ledger.rows, 0
                yield batch

    def _make_decoder(self, schema: pa.Schema, findings: Findings, stamps: StampSizes | None = None) -> Decoder:
        return Decoder(self.path, self.head.dialect, schema, findings, stamps)

    def _read_batches(self, decoder: Decoder, records: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        return decoder.read_batches(records)


class Decoder:
    """Decodes batches of records: drives the kernel, makes batches of rows, reports damage.

    Attributes:
        marked: Whether the rows of the records at hand, up to the end of the last write batch that has begun, have
            marks of transactions.
    """

    def __init__(
        self, path: str, dialect: Dialect, schema: pa.Schema, findings: Findings, stamps: StampSizes | None = None
    ) -> None:
        self._path = path
        self._stamps = stamps
        self._schema = schema
        self._findings = findings
        self._dialect: Dialect = dialect
        self._table = make_tag_table(dialect)
        self.marked = False
        self._state = np.zeros(1, k.DECODER)[0]
        # The first damage must stop the kernel where rows after it must not be delivered.
        room = 1 if findings.on_damage == "fail" else EVENT_ROOM
        self._events = np.zeros(room, k.EVENT)
        self._records = np.empty(0, np.int32)
        self._rows_of_record = _ROWS_OF_RECORD

    def read_batches(self, records: pa.RecordBatch, *, ahead: bool = True) -> Iterator[pa.RecordBatch]:
        """Yield the rows of some records, in batches of bounded size.

        Args:
            records: The records.
            ahead: Whether the rest of a write batch that begins in a batch of rows is looked through for marks.
        """
        self.marked, last_record = False, -1
        data, offsets = view_binary(records.column(RECORD_COLUMN))
        starts = view_values(records.column(OFFSET_COLUMN), np.int64)
        stops = view_values(records.column(END_COLUMN), np.int64)
        self._state = np.zeros(1, k.DECODER)[0]
        status = k.FULL
        while status == k.FULL:
            for name in _OF_BATCH:
                self._state[name] = 0
            self._reset(len(data), min(BATCH_ROWS, len(data) + 1, self._rows_of_record * len(offsets)))  # a byte each
            status = self._decode(data, offsets)
            self._rows_of_record = BATCH_ROWS if status == k.FULL else self._rows_of_record
            rows = int(self._state.rows)
            self._findings.rows += rows
            self.marked = self.marked or bool(_MARKED[self._operations[:rows]].any())
            record = int(self._state.record)
            if ahead and not self.marked and status == k.FULL and self._state.position and record != last_record:
                last_record = record
                decoder = Decoder(self._path, self._dialect, pa.schema([]), Findings("skip"))
                self.marked = any(decoder.marked for _ in decoder.read_batches(records.slice(record, 1), ahead=False))
            if rows or status == k.DONE:
                yield self._make_batch(rows, records)
            self._report(self._events[: int(self._state.events)], starts, stops)

    def _reset(self, payload: int, max_rows: int) -> None:
        if max_rows > len(self._records):
            self._records = np.empty(max_rows, np.int32)
            self._operations = np.empty(max_rows, np.int8)
            self._has = {name: np.empty(max_rows, np.uint8) for name in _BINARY}
        self._sequences = Column(np.int64, max_rows)
        self._families = Column(np.int64, max_rows)
        self._ends = {name: Column(np.int32, max_rows + 1) for name in _BINARY}
        self._bytes = {name: Column(np.uint8, payload if name in self._schema.names else 0) for name in _BINARY}
        for ends in self._ends.values():
            ends.values[0] = 0

    def _decode(self, data: NDArray[np.uint8], offsets: NDArray[np.int32]) -> int:
        keys, values = (
            k.Gathered(name in self._schema.names, self._has[name], self._bytes[name].values, self._ends[name].values)
            for name in _BINARY
        )
        numbers = self._sequences.values, self._operations, self._families.values
        out = k.Decoded(self._records, *numbers, keys, values, self._events)
        return int(k.decode_batches(k.Strings(data, offsets), self._table, self._state, out))

    def _make_batch(self, rows: int, records: pa.RecordBatch) -> pa.RecordBatch:
        def take_offsets() -> NDArray[np.int64]:
            starts: NDArray[np.int64] = view_values(records.column(OFFSET_COLUMN), np.int64)
            return starts[self._records[:rows]]

        def make_column(name: str) -> pa.Array:
            if name in (RECOVERED_COLUMN, STALE_COLUMN):
                return records.column(name).take(make_fixed_array(pa.int32(), self._records[:rows]))
            if name == OPERATION and pa.types.is_integer(self._schema.field(name).type):
                return make_fixed_array(pa.uint8(), _NUMBERS[self._operations[:rows]])
            if name == OPERATION:
                return convert_codes(self._operations[:rows], layout.NAMES)
            if name in _BINARY:
                return self._make_binary(name, rows)
            if name == STAMP_SIZE and self._stamps is not None:
                return make_fixed_array(pa.int64(), self._stamps.of(self._families.values[:rows], take_offsets()))
            numbers = {"sequence": self._sequences, "column_family": self._families}[name]
            return pa.Array.from_buffers(pa.int64(), rows, [None, numbers.take(rows)])

        return assemble(
            self._schema, rows, make_column, self._path, lambda: make_fixed_array(pa.int64(), take_offsets())
        )

    def _make_binary(self, name: str, rows: int) -> pa.Array:
        """Return the `key` or `value`, null where the operation has none."""
        missing = int(self._state.no_keys if name == "key" else self._state.no_values)
        validity = pack_bits(self._has[name][:rows]) if missing else None
        used = int(self._ends[name].values[rows])
        buffers = [validity, self._ends[name].take(rows + 1), self._bytes[name].take(used)]
        column = pa.Array.from_buffers(pa.binary(), rows, buffers, missing)
        return strip_times(column, self._operations[:rows] == layout.TIMED_PUT) if name == "value" else column

    def _report(self, events: NDArray[np.void], starts: NDArray[np.int64], stops: NDArray[np.int64]) -> None:
        for code, record, first, two in events.tolist():
            kind = BatchDamageKind(code)
            subject = layout.NAMES[first] if kind == BatchDamageKind.BROKEN_OPERATION else first
            offset = int(starts[record])
            length, detail = int(stops[record]) - offset, kind.detail.format(subject, two)
            # LevelDB counts the bytes of a batch without a header as dropped, and no others.
            dropped = first if kind == BatchDamageKind.BATCH_TOO_SMALL else None
            report_record(self._findings, Damage(self._path, offset, length, kind.label, detail, dropped))


def report_record(findings: Findings, damage: Damage) -> None:
    """Report damage inside a record that was read intact: its bytes are damage now, not a record.

    Raises:
        DamageError: When the policy is `fail`.
    """
    findings.account.record -= damage.length
    if findings.listing:
        findings.add_damage(damage)
    else:
        findings.tally(damage.kind, 1, damage.length)

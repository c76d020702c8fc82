"""Building write batches: a table of operations becomes records that LevelDB and RocksDB recover."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from sawlog.arrow import (
    Column,
    find_index,
    is_binary,
    is_text,
    make_binary_array,
    make_fixed_array,
    unpack_booleans,
    view_binary,
    view_values,
)
from sawlog.errors import OptionError, SchemaError
from sawlog.format.contract import OFFSET_COLUMN, PROVENANCE
from sawlog.leveldb.columns import SEQUENCE, TRANSACTION_SCHEMA, VALUE, WRITES_SCHEMA, append_times, make_name_array
from sawlog.leveldb.log.walk import ROWS_SCHEMA
from sawlog.leveldb.log.writer import LogWriter
from sawlog.leveldb.options import LogWriteOptions
from sawlog.leveldb.records import kernels, layout
from sawlog.leveldb.records.transactions import compute_sequences
from sawlog.leveldb.records.writes import make_tag_table
from sawlog.storage import Staged, Storage

PIECE_BYTES = 64 << 20
"""Keys and values that are laid out at a time."""

_REQUIRED = ("operation", "key", "value")
_MARKS = np.array([layout.NAMES.index(name) for name in layout.MARKS])
_FAMILY = "column_family"
_KNOWN = (*WRITES_SCHEMA.names, *(field.name for field in PROVENANCE))


class BatchBuilder:
    """Turns record batches of operations into record batches of the column `record`, one write batch per row.

    Args:
        schema: Columns of `WRITES_SCHEMA`. `sequence` and `column_family` may be missing: operations are numbered from
            `first_sequence` then, and belong to family 0. With `_offset`, as read from a log, operations with equal
            offsets make one write batch, as they did there; otherwise each operation makes one of its own, or
            `operations_per_batch` do.
        first_sequence: Number of the first operation, where the data has no `sequence`.
        operations_per_batch: Operations per write batch, where the data has no `_offset`.

    Raises:
        SchemaError: For columns that are missing, unknown or of the wrong type.
    """

    def __init__(self, schema: pa.Schema, first_sequence: int, operations_per_batch: int) -> None:
        for name in _REQUIRED:
            if name not in schema.names:
                raise SchemaError(f"write batches need the columns {', '.join(_REQUIRED)}; {name!r} is missing")
        for name in schema.names:
            if name not in _KNOWN:
                raise SchemaError(f"write batches have no column {name!r}; columns: {', '.join(_KNOWN)}")
        self._sequence = first_sequence
        self._group = operations_per_batch
        self._row = 0
        self._waiting: pa.RecordBatch | None = None

    def build(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Yield the write batches of some operations; the last one may wait for its other operations.

        Raises:
            SchemaError: For a value that no write batch can hold; names column and row.
        """
        if OFFSET_COLUMN in batch.schema.names and batch.num_rows:
            if self._waiting is not None:
                batch = pa.concat_batches([self._waiting, batch])
            last = _group_start(batch.column(OFFSET_COLUMN), batch.num_rows - 1)
            self._waiting = batch.slice(last)
            batch = batch.slice(0, last)
        yield from self._build(batch)

    def finish(self) -> Iterator[pa.RecordBatch]:
        """Yield the write batch that was waiting, if there is one."""
        if self._waiting is not None:
            waiting, self._waiting = self._waiting, None
            yield from self._build(waiting)

    def _build(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        if not batch.num_rows:
            return
        size = sum(batch.column(name).nbytes for name in ("key", "value"))
        half = batch.num_rows // 2
        if OFFSET_COLUMN in batch.schema.names:
            half = _group_start(batch.column(OFFSET_COLUMN), half)
        if size > PIECE_BYTES and half:
            yield from self._build(batch.slice(0, half))
            yield from self._build(batch.slice(half))
            return
        yield self._encode(batch)
        self._row += batch.num_rows

    def _encode(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        operations = self._read_operations(batch)
        families = self._read_integers(batch, "column_family", layout.MAX_FAMILY)
        if families is None:
            families = np.zeros(batch.num_rows, np.int64)
        self._check_families(operations, families)
        keys, values = (kernels.Strings(*self._read_binary(batch, name, operations)) for name in ("key", "value"))
        sequences, counted = self._assign_sequences(batch, operations)
        starts = self._find_batch_starts(batch, operations, sequences, counted)
        payload = keys.offsets[-1] - keys.offsets[0] + values.offsets[-1] - values.offsets[0]
        batches = len(starts) - 1
        room = int(payload) + batches * layout.BATCH_HEADER + batch.num_rows * kernels.OPERATION_ROOM
        if room > layout.MAX_RECORD:
            raise SchemaError(f"row {self._row}: a write batch of 2 GiB or more")
        out = Column(np.uint8, room)
        ends = np.zeros(batches + 1, np.int32)
        rows = kernels.Operations(starts, sequences, operations, families, keys, values)
        status = kernels.encode_batches(rows, make_tag_table("rocksdb"), out.values, ends)
        if status == kernels.INVALID:
            raise SchemaError("columns 'key' and 'value': an Arrow array is invalid: offsets outside its data")
        return pa.RecordBatch.from_arrays([make_binary_array(ends, out)], schema=ROWS_SCHEMA)

    def _read_operations(self, batch: pa.RecordBatch) -> NDArray[np.int8]:
        column = batch.column("operation")
        if not pa.types.is_dictionary(column.type) and not is_text(column.type):
            raise SchemaError(f"column 'operation' is {column.type}; expected strings")
        codes = pc.index_in(column.cast(pa.string()), make_name_array(layout.NAMES))
        if codes.null_count:
            row = find_index(codes.is_null(), True)
            known_names = ", ".join(layout.NAMES)
            raise SchemaError(
                f"column 'operation', row {self._row + row}: {column[row].as_py()!r} is none of {known_names}"
            )
        numbers: NDArray[np.int8] = view_values(codes, np.int32).astype(np.int8)
        return numbers

    def _read_integers(self, batch: pa.RecordBatch, name: str, largest: int) -> NDArray[np.int64] | None:
        if name not in batch.schema.names:
            return None
        column = batch.column(name)
        if not pa.types.is_integer(column.type):
            raise SchemaError(f"column {name!r} is {column.type}; expected integers")
        if column.null_count:
            raise SchemaError(f"column {name!r}, row {self._row + find_index(column.is_null(), True)}: null")
        numbers: NDArray[np.int64] = view_values(column.cast(pa.int64()), np.int64)
        wrong = (numbers < 0) | (numbers > largest)
        if wrong.any():
            row = int(wrong.argmax())
            raise SchemaError(f"column {name!r}, row {self._row + row}: {numbers[row]} is not between 0 and {largest}")
        return numbers

    def _check_families(self, operations: NDArray[np.int8], families: NDArray[np.int64]) -> None:
        tags = make_tag_table("rocksdb").tags
        foreign = (tags[operations] < 0).all(1)
        if foreign.any():
            row = int(foreign.argmax())
            name = layout.NAMES[operations[row]]
            raise SchemaError(f"column 'operation', row {self._row + row}: {name!r} is Pebble's, and is not written")
        wrong = (families != 0) & (tags[operations, 1] < 0)
        if wrong.any():
            row = int(wrong.argmax())
            name = layout.NAMES[operations[row]]
            raise SchemaError(f"column 'column_family', row {self._row + row}: {name!r} belongs to no column family")

    def _read_binary(
        self, batch: pa.RecordBatch, name: str, operations: NDArray[np.int8]
    ) -> tuple[NDArray[np.uint8], NDArray[np.int32]]:
        """Return the data and offsets of `key` or `value`, null exactly where the operation has none."""
        column = batch.column(name)
        kind = column.type
        if pa.types.is_null(kind) or is_text(kind) or is_binary(kind):
            column = column.cast(pa.binary())
        else:
            raise SchemaError(f"column {name!r} is {kind}; expected binary or strings")
        needs = np.array([operation.key if name == "key" else operation.value for operation in layout.OPERATIONS])
        needs_value = needs[operations]
        valid = unpack_booleans(column.is_valid())
        wrong = needs_value != valid
        if wrong.any():
            row = int(wrong.argmax())
            requirement = "needs one" if needs_value[row] else "has none"
            raise SchemaError(
                f"column {name!r}, row {self._row + row}: {layout.NAMES[operations[row]]!r} {requirement}"
                f" and the {name} is {'null' if needs_value[row] else 'not null'}"
            )
        return view_binary(append_times(column, (operations == layout.TIMED_PUT) & (name == VALUE)))

    def _assign_sequences(
        self, batch: pa.RecordBatch, operations: NDArray[np.int8]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the sequence number of each row, and how many numbers it takes: 0 or 1."""
        shapes = np.array([operation.shape for operation in layout.OPERATIONS])
        counted = ((shapes[operations] & layout.Field.COUNTED) != 0).astype(np.int64)
        sequences = self._read_integers(batch, "sequence", layout.MAX_SEQUENCE)
        if sequences is not None:
            return sequences, counted
        before = np.cumsum(counted) - counted
        numbers = before + self._sequence
        self._sequence += int(counted.sum())
        if self._sequence > layout.MAX_SEQUENCE:
            raise SchemaError(f"column 'sequence': numbers end at {layout.MAX_SEQUENCE}")
        return numbers, counted

    def _find_batch_starts(
        self,
        batch: pa.RecordBatch,
        operations: NDArray[np.int8],
        sequences: NDArray[np.int64],
        counted: NDArray[np.int64],
    ) -> NDArray[np.int64]:
        """Return the first row of each write batch, and the number of rows after the last."""
        begins = np.ones(batch.num_rows, bool)
        # Within a batch numbers have no gaps: it holds only the first one. In some its operations share that.
        gap = sequences[1:] != sequences[:-1] + counted[:-1]
        offsets = self._read_integers(batch, OFFSET_COLUMN, (1 << 63) - 1)
        if offsets is not None:
            if gap.any() and np.isin(operations, _MARKS).any():
                gap &= _expect_sequences(batch, sequences, offsets)[1:] != sequences[1:]
            begins[1:] = gap | (offsets[1:] != offsets[:-1])
        elif self._group > 1:
            begins[1:] = gap
            runs = np.flatnonzero(begins)
            inside = np.arange(batch.num_rows) - np.repeat(runs, np.diff(np.append(runs, batch.num_rows)))
            begins = inside % self._group == 0
        return np.append(np.flatnonzero(begins), batch.num_rows)


def _expect_sequences(
    batch: pa.RecordBatch, sequences: NDArray[np.int64], offsets: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Return the number of each operation where those of a batch share one, by the first one of their batch."""
    numbers = {SEQUENCE: sequences, OFFSET_COLUMN: offsets}
    if _FAMILY not in batch.schema.names:
        numbers[_FAMILY] = np.zeros(batch.num_rows, np.int64)
    fields = [field for field in TRANSACTION_SCHEMA if field.name != VALUE]
    columns = [
        make_fixed_array(pa.int64(), numbers[field.name])
        if field.name in numbers
        else batch.column(field.name).cast(field.type)
        for field in fields
    ]
    return compute_sequences(pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields)), shared=True)


def _group_start(offsets: pa.Array, row: int) -> int:
    """Return the first of the rows up to `row` that have the same offset as it."""
    different = np.flatnonzero(view_values(offsets, np.int64)[: row + 1] != offsets[row].as_py())
    return int(different[-1]) + 1 if len(different) else 0


class WritesWriter(LogWriter):
    """Writes one log of write batches; see `BatchBuilder` for the columns it takes.

    Raises:
        SchemaError: For columns that are missing, unknown or of the wrong type.
        OptionError: For numbers out of range.
    """

    def __init__(self, path: str, schema: pa.Schema, options: LogWriteOptions, storage: Storage) -> None:
        if not 0 <= options.first_sequence <= layout.MAX_SEQUENCE:
            raise OptionError(f"first_sequence={options.first_sequence}: expected 0 to {layout.MAX_SEQUENCE}")
        if options.operations_per_batch < 1:
            raise OptionError(f"operations_per_batch={options.operations_per_batch}: expected 1 or more")
        self._builder = BatchBuilder(schema, options.first_sequence, options.operations_per_batch)
        super().__init__(path, ROWS_SCHEMA, options, storage)

    def write(self, batch: pa.RecordBatch) -> None:
        for records in self._builder.build(batch):
            super().write(records)

    def finish(self) -> list[Staged]:
        for records in self._builder.finish():
            super().write(records)
        return super().finish()

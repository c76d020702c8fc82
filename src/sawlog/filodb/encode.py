"""From Arrow columns to the parts of records: columns are checked and encoded whole."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from sawlog.arrow import make_array, view_binary, view_values
from sawlog.errors import SchemaError
from sawlog.filodb import layout
from sawlog.filodb.arrays import cast, list_parts, map_parts, pack_texts
from sawlog.filodb.histograms import Buckets
from sawlog.filodb.kernels import containers as c
from sawlog.filodb.kernels import histogram_payloads as h
from sawlog.filodb.kernels import payloads as p
from sawlog.filodb.kernels.gather import Texts
from sawlog.filodb.schemas.record import Column, RecordSchema
from sawlog.filodb.selection import RecordLayout
from sawlog.filodb.target import HASH_COLUMN, RECORD_COLUMN, SCHEMA_ID_COLUMN
from sawlog.kernels.intern import make_seed

_NESTED_HEADS = (Column(SCHEMA_ID_COLUMN, "int"), Column(HASH_COLUMN, "int"))
"""What nested records with partition columns have besides them."""

_WRONG = {
    p.TOO_LONG: "{0} bytes; there can be 65535",
    p.KEY_TOO_LONG: "a key of {0} bytes; there can be 191",
    p.NOT_WHOLE: "histogram values that are not whole numbers cannot be stored in these buckets",
    p.DECREASING: "histogram values decrease; they must be cumulative",
    p.WRONG_COUNT: "as many values and tops as buckets, {0}, are expected",
    p.BAD_BUCKETS: "`buckets` is no definition of buckets",
    p.OTHER_TOPS: "`tops` and `buckets` differ at bucket {0}; leave one of them out",
}


@dataclass(frozen=True)
class Encoded:
    """Rows, ready to be laid out.

    Attributes:
        ops: `PUT` records per layout and column, what is where in a record, and where it is here.
        values: The values; the scratch has, per payload column, positions (u64), lengths and hashes (u32).
        hashes: uint64, partition hashes.
    """

    ops: Any
    values: c.Values
    hashes: NDArray[np.uint64]


class Encoder:
    """Encodes batches of rows. What `encode` gives is only lent: the next call overwrites it.

    Args:
        records: The layouts that rows can have; none for rows that are whole records.
        prefix: What to put before the names of columns in messages.
    """

    def __init__(self, records: Sequence[RecordLayout], prefix: str = "") -> None:
        self._records = records
        self._prefix = prefix
        self._columns = _merge_columns(records)
        self._have = {
            column.name: np.array(
                [column.name in {c.name for c in record.record.columns} for record in records] or [True]
            )
            for column in self._columns
        }
        self._heads = _NESTED_HEADS if prefix and records[0].record.has_partition else ()
        for column in self._heads:
            self._columns.append(column)
            self._have[column.name] = np.array([True])
        self._hashed = {record.record.columns[i].name for record in records for i in record.record.hashed_columns}
        self._payloads = np.zeros(1 << 16, np.uint8)
        self._nested: dict[str, Encoder] = {}
        names = records[0].record.predefined if records else ()
        self._predefined = p.Names(pack_texts(names), np.zeros(p.HEADS, np.int16), np.zeros(len(names), np.int16))
        p.index_names(self._predefined)
        self.layouts = np.array(
            [
                (
                    record.record.variable_area_start,
                    -1 if record.schema_id is None else record.schema_id,
                    record.record.slots_end,
                )
                for record in records
            ]
            or [(0, -1, 0)],
            c.LAYOUT,
        )

    def encode(
        self,
        batch: pa.RecordBatch,
        layout_numbers: NDArray[np.uint8],
        first_row: int,
        present: NDArray[np.bool_] | None = None,
    ) -> Encoded:
        """Encode the rows of a batch.

        Args:
            batch: The rows.
            layout_numbers: Number of each row's layout.
            first_row: Number of the first row, for messages.
            present: Which rows there are; the others have no values. None: all.

        Raises:
            SchemaError: For anything that cannot be represented; names column and row.
        """
        self._first_row = first_row
        self._present = present
        self._used = 0
        rows = batch.num_rows
        arena, scratch = self._allocate_memory(rows)
        for column in self._columns:
            if self._heads and column.name == HASH_COLUMN and HASH_COLUMN not in batch.schema.names:
                continue
            self._encode(batch, column, layout_numbers, arena, scratch)
        hashes = self._compute_hashes(batch, layout_numbers, scratch)
        if self._heads:
            self._finish_heads(batch, hashes, arena)
        return Encoded(self._make_operations(), c.Values(arena, self._payloads, scratch), hashes)

    @property
    def names(self) -> list[str]:
        """Names of the columns."""
        return [column.name for column in self._columns]

    def _allocate_memory(self, rows: int) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
        self._places: dict[str, tuple[int, int, int]] = {}
        fixed = payloads = 0
        for column in self._columns:
            if column.pointer:
                self._places[column.name] = payloads, payloads + 8 * rows, payloads + 12 * rows
                payloads += 16 * rows
            else:
                self._places[column.name] = fixed, 0, 0
                fixed += column.slot_size * rows
        return np.zeros(max(fixed, 1), np.uint8), np.zeros(max(payloads, 4), np.uint8)

    def _make_operations(self) -> Any:
        orders: list[Sequence[Column]] = [record.record.columns for record in self._records] or [self._columns]
        ops = np.zeros((len(orders), max(map(len, orders)) + len(self._heads)), c.PUT)
        for number, columns in enumerate(orders):
            offsets = self._records[number].record.field_offsets if self._records else (0,)
            for index, (column, offset) in enumerate(zip(columns, offsets, strict=True)):
                width = c.PAYLOAD if column.pointer else column.slot_size
                ops[number, index] = (width, offset, *self._places[column.name][:2])
        if self._heads:
            ops[0, -2] = (layout.SCHEMA_ID_SIZE, layout.SCHEMA_ID_OFFSET, *self._places[SCHEMA_ID_COLUMN][:2])
            ops[0, -1] = (layout.HASH_SIZE, self._records[0].record.slots_end, *self._places[HASH_COLUMN][:2])
        return ops

    def _finish_heads(self, batch: pa.RecordBatch, hashes: NDArray[np.uint64], arena: NDArray[np.uint8]) -> None:
        """Check that nested records have schema IDs, and store FiloDB's own hashes where none are given."""
        rows = batch.num_rows
        identities, stored = (
            arena[self._places[column.name][0] :][: 4 * rows].view(np.uint32) for column in self._heads
        )
        present = np.ones(rows, np.bool_) if self._present is None else self._present
        wrong = np.flatnonzero(present & (identities > layout.MAX_SCHEMA_ID))
        if len(wrong):
            row, identity = int(wrong[0]), int(identities.view(np.int32)[wrong[0]])
            raise SchemaError(
                f"column {self._prefix + SCHEMA_ID_COLUMN!r}, row {self._first_row + row}: {identity} is no schema ID;"
                f" expected 0 to {layout.MAX_SCHEMA_ID}"
            )
        identities.view(np.uint16)[:rows] = identities
        if HASH_COLUMN not in batch.schema.names:
            stored[:] = hashes

    def _encode(
        self,
        batch: pa.RecordBatch,
        column: Column,
        layout_numbers: NDArray[np.uint8],
        arena: NDArray[np.uint8],
        scratch: NDArray[np.uint8],
    ) -> None:
        """Encode one column: values to the arena, payloads to the buffer."""
        rows = batch.num_rows
        have = self._have[column.name]
        has = None if have.all() else have[layout_numbers]
        if self._present is not None:
            has = self._present if has is None else has & self._present
        if column.name not in batch.schema.names:
            self._refuse_missing(column, layout_numbers, np.ones(rows, np.bool_) if has is None else has)
            return
        column_array = batch.column(column.name)
        refuse_nulls(column_array, self._prefix + column.name, self._first_row, has)
        first, second, third = self._places[column.name]
        if not column.pointer:
            scalar = layout.SCALARS[column.type]
            array = self._cast(column_array, scalar.arrow, column.name)
            arena[first : first + scalar.width * rows] = view_values(array, scalar.bits).view(np.uint8)
            return
        mask = np.ones(rows, np.uint8) if has is None else has.astype(np.uint8)
        target = p.Encoded(
            mask,
            column.name in self._hashed and HASH_COLUMN not in batch.schema.names,
            scratch[first : first + 8 * rows].view(np.uint64),
            scratch[second : second + 4 * rows].view(np.uint32),
            scratch[third : third + 4 * rows].view(np.uint32),
        )
        if column.type == "map":
            self._encode_maps(column_array, column.name, target)
        elif column.type == "hist" and pa.types.is_struct(column_array.type):
            self._encode_histograms(column_array, column.name, target)
        elif column.type == "br" and pa.types.is_struct(column_array.type):
            self._encode_records(column_array, column.name, target)
        else:
            texts = Texts(*view_binary(self._cast(column_array, pa.binary(), column.name)))
            longest = np.uint64(layout.MAX_PAYLOAD if self._records else layout.MAX_CONTAINER_SIZE)
            self._run(column.name, partial(p.encode_strings, texts, longest, target))

    def _refuse_missing(self, column: Column, layout_numbers: NDArray[np.uint8], has: NDArray[np.bool_]) -> None:
        if has.any():
            row = int(np.flatnonzero(has)[0])
            name = self._records[layout_numbers[row]].name
            raise SchemaError(
                f"row {self._first_row + row}: schema {name!r} has a column {self._prefix + column.name!r};"
                " it is missing"
            )

    def _encode_maps(self, array: pa.Array, name: str, target: p.Encoded) -> None:
        maps = map_parts(array, self._prefix + name, self._first_row)
        max_entries = int((maps.ends[1:] - maps.ends[:-1]).max(initial=0)) + 1
        slots = np.zeros(1 << (2 * len(target.wanted) + 1).bit_length(), np.uint64)
        following = np.zeros(len(target.wanted), np.int32)
        work = p.Work(np.zeros(max_entries, np.int32), np.zeros(max_entries, np.int16), slots, make_seed(), following)
        self._run(name, partial(p.encode_maps, maps, self._predefined, work, target))

    def _encode_histograms(self, array: pa.StructArray, name: str, target: p.Encoded) -> None:
        names = [field.name for field in array.type]
        label = self._prefix + name
        if "values" not in names or "tops" not in names:
            raise SchemaError(f"column {label!r}: a histogram has the fields tops and values, and may have buckets")
        tops = self._cast(array.field("tops"), pa.list_(pa.float64()), name)
        values = self._cast(array.field("values"), pa.list_(pa.float64()), name)
        for histogram_column in (tops, values):
            if (
                histogram_column.is_null().to_numpy(zero_copy_only=False) & (target.wanted != 0)
            ).any() or histogram_column.values.null_count:
                raise SchemaError(f"column {label!r}: tops and values of histograms cannot be null")
        buckets = array.field("buckets") if "buckets" in names else pa.nulls(len(array), pa.binary())
        buckets = self._cast(buckets, pa.binary(), name)
        if buckets.null_count:
            buckets = self._fill_custom_buckets(tops, buckets, name, target.wanted)
        top_ends, top_data = list_parts(tops)
        value_ends, values = list_parts(values)
        bits = values.view(np.uint64)
        histograms = h.HistogramInput(Texts(*view_binary(buckets)), value_ends, values, bits, top_ends, top_data)
        computed, steps = np.zeros(layout.MAX_BUCKETS), np.zeros(layout.MAX_BUCKETS, np.uint64)
        work = h.Work(computed, computed.view(np.uint64), steps, np.zeros(layout.NIBBLE_GROUP, np.uint64))
        with np.errstate(all="ignore"):
            self._run(name, partial(h.encode_histograms, histograms, work, target))

    def _fill_custom_buckets(self, tops: pa.Array, buckets: pa.Array, name: str, mask: NDArray[np.uint8]) -> pa.Array:
        """Return definitions where none are given: custom buckets of those tops."""
        encoded_by_definition: dict[bytes, bytes] = {}
        ends, data = list_parts(tops)
        encoded = []
        for row, bucket in enumerate(buckets):
            part = data[ends[row] : ends[row + 1]]
            if bucket.is_valid or not mask[row] or not len(part):
                encoded.append(bucket.as_py() or b"")
                continue
            key = part.tobytes()
            if key not in encoded_by_definition:
                try:
                    encoded_by_definition[key] = (
                        bytes((layout.HistogramFormat.CUSTOM_DELTA,)) + Buckets.custom(part.tolist()).definition
                    )
                except SchemaError as error:
                    raise SchemaError(
                        f"column {self._prefix + name!r}, row {self._first_row + row}: {error}"
                    ) from error
            encoded.append(encoded_by_definition[key])
        return make_array(encoded, pa.binary())

    def _encode_records(self, array: pa.StructArray, name: str, target: p.Encoded) -> None:
        """Lay the records out that are nested in this column."""
        inner = self._nested.get(name)
        if inner is None:
            inner = self._nested[name] = Encoder((self._find_nested_layout(name),), f"{self._prefix}{name}.")
        children = pa.RecordBatch.from_arrays(array.flatten(), [field.name for field in array.type])
        for child in children.schema.names:
            if child not in inner.names:
                raise SchemaError(f"column {self._prefix + name!r}: there is no {child!r} in the nested records")
        mask = target.wanted
        first = np.zeros(len(mask), np.uint8)
        rows = inner.encode(children, first, self._first_row, None if mask.all() else mask != 0)
        self._run(name, partial(c.encode_records, rows.values, inner.layouts[0].payloads, rows.ops[0], target))

    def _find_nested_layout(self, name: str) -> RecordLayout:
        for record in self._records:
            for index, column in enumerate(record.record.columns):
                schema: RecordSchema | None = record.record.br_schemas.get(index)
                if column.name == name and schema is not None:
                    return RecordLayout(name, None, schema)
        raise SchemaError(
            f"column {self._prefix + name!r} is a struct; its schema does not say what is nested in it: give bytes, or"
            " schemas that say it"
        )

    def _run(self, name: str, encode: Callable[[NDArray[np.uint8], Any], int]) -> None:
        """Run an encoder, with as much room as it needs."""
        progress = np.zeros(1, p.PROGRESS)[0]
        progress.used = self._used
        while (wrong := encode(self._payloads, progress)) == p.NO_ROOM:
            self._payloads = np.concatenate((self._payloads, np.zeros_like(self._payloads)))
        if wrong:
            row = self._first_row + int(progress.row)
            raise SchemaError(f"column {self._prefix + name!r}, row {row}: {_WRONG[wrong].format(int(progress.wrong))}")
        self._used = int(progress.used)

    def _compute_hashes(
        self, batch: pa.RecordBatch, layout_numbers: NDArray[np.uint8], scratch: NDArray[np.uint8]
    ) -> NDArray[np.uint64]:
        """Return the partition hashes: those of a column, or FiloDB's own."""
        if HASH_COLUMN in batch.schema.names and not self._prefix:
            stored_hashes = self._cast(batch.column(HASH_COLUMN), pa.int32(), HASH_COLUMN)
            has = (self.layouts["schema_id"] >= 0)[layout_numbers]
            refuse_nulls(stored_hashes, HASH_COLUMN, self._first_row, has)
            return view_values(stored_hashes, np.uint32).astype(np.uint64)
        hashes = np.full(batch.num_rows, layout.HASH_INIT, np.uint64)
        if self._hashed:
            max_columns = max(len(record.record.hashed_columns) for record in self._records)
            places = np.full((len(self._records), max_columns), -1, np.int64)
            for number, record in enumerate(self._records):
                for place, index in enumerate(record.record.hashed_columns):
                    places[number, place] = self._places[record.record.columns[index].name][2] // 4
            p.combine_hashes(layout_numbers, places, scratch.view(np.uint32), hashes)
        return hashes

    def _cast(self, array: pa.Array, kind: pa.DataType, name: str) -> pa.Array:
        return cast(array, kind, self._prefix + name, self._first_row)


def refuse_nulls(array: pa.Array, name: str, first_row: int, has: NDArray[np.bool_] | None = None) -> None:
    """Check that rows have values, those of whose schema the column is (None: all), and only those.

    Raises:
        SchemaError: Where it is not so.
    """
    if has is None:
        if not array.null_count:
            return
        has = np.ones(len(array), np.bool_)
    nulls = np.zeros(len(array), np.bool_)
    if array.null_count:
        nulls = array.is_null().to_numpy(zero_copy_only=False)
    for wrong, problem in ((nulls & has, "is null; FiloDB has no nulls"), (~nulls & ~has, "has a value, but")):
        if wrong.any():
            row = int(np.flatnonzero(wrong)[0])
            reason = problem if problem.startswith("is") else f"{problem} the row's schema has no such column"
            raise SchemaError(f"column {name!r}, row {first_row + row}: {reason}")


def _merge_columns(records: Sequence[RecordLayout]) -> list[Column]:
    if not records:
        return [Column(RECORD_COLUMN, "br")]
    columns: dict[str, Column] = {}
    for record in records:
        for column in record.record.columns:
            same_name = columns.setdefault(column.name, column)
            if same_name.type != column.type:
                raise SchemaError(
                    f"column {column.name!r} is {same_name.type} in one schema and {column.type} in another:"
                    " write them one at a time"
                )
    return list(columns.values())

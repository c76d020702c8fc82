"""From Arrow columns to containers: columns are checked and encoded whole, then records are laid out."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
import pyarrow as pa

from sawlog.errors import SchemaError
from sawlog.filodb_record import layout
from sawlog.filodb_record.columns import Column
from sawlog.filodb_record.fields import TIMESTAMP
from sawlog.filodb_record.histogram import Buckets
from sawlog.filodb_record.kernels import build as b
from sawlog.filodb_record.kernels.gather import SLACK
from sawlog.filodb_record.kernels.records import hash_payloads
from sawlog.filodb_record.writer import (
    HASH_COLUMN,
    RECORD_COLUMN,
    SCHEMA_COLUMN,
    TIME_COLUMN,
    Target,
    WriteOptions,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

BATCH_ROWS = 8 << 10
"""Rows that are encoded at a time, so that their payloads stay in the cache."""

_FIXED = {"int": pa.int32(), "long": pa.int64(), "double": pa.float64(), "ts": TIMESTAMP}

_WRONG = {
    b.TOO_LONG: "{0} bytes; there can be 65535",
    b.KEY_TOO_LONG: "a key of {0} bytes; there can be 191",
    b.NOT_WHOLE: "histogram values that are not whole numbers cannot be stored in these buckets",
    b.DECREASING: "histogram values decrease; they must be cumulative",
    b.WRONG_COUNT: "as many values and tops as buckets, {0}, are expected",
    b.BAD_BUCKETS: "`buckets` is no definition of buckets",
    b.OTHER_TOPS: "`tops` and `buckets` differ at bucket {0}; leave one of them out",
}


class Layer:
    """Lays rows out in containers.

    Args:
        target: What rows are written as.
        options: Size and shape of containers.
        out_bytes: Bytes gathered before they are handed on, besides two containers.
        sink: Takes complete containers, back to back; what it is given is only lent.
    """

    def __init__(
        self, target: Target, options: WriteOptions, out_bytes: int, sink: Callable[[NDArray[np.uint8]], None]
    ) -> None:
        self._target = target
        self._options = options
        self._sink = sink
        self._rows = 0
        self._out = np.zeros(out_bytes + 2 * options.container_size + SLACK, np.uint8)
        self._state = np.zeros(b.LAYER_STATE_SIZE, np.int64)
        self._state[b.START] = -1
        self._payloads = np.zeros(1 << 16, np.uint8)
        self._columns = _columns(target)
        self._column_names = [{c.name for c in one.record.columns} for one in target.layouts] or [{RECORD_COLUMN}]
        self._layouts = np.array(
            [
                (one.record.variable_area_start, -1 if one.schema_id is None else one.schema_id, one.record.slots_end)
                for one in target.layouts
            ],
            np.int64,
        ).reshape(-1, b.LAYOUT_FIELDS)
        self._names = {one.name: number for number, one in enumerate(target.layouts)}

    def add(self, batch: pa.RecordBatch, now: int) -> None:
        """Add the rows of a batch; containers that begin get the timestamp `now`, unless a column says otherwise.

        Raises:
            SchemaError: For anything that cannot be represented; names column and row.
        """
        for start in range(0, batch.num_rows, BATCH_ROWS):
            self._add(batch.slice(start, BATCH_ROWS), now)

    def hashes(self, batch: pa.RecordBatch) -> NDArray[np.uint64]:
        """The partition hashes of a batch's rows, unsigned; nothing is laid out.

        Raises:
            SchemaError: As `add`.
        """
        which = self._which(batch)
        arena, scratch, _ = self._memory(batch.num_rows)
        self._used = 0
        for column in self._columns:
            self._encode(batch, column, which, arena, scratch)
        return self._hashes(batch, which, scratch)

    def finish(self) -> None:
        """Complete the last container, trimmed, and hand everything on."""
        b.close_container(self._out, self._state, np.int64(self._options.container_size), False)
        self._flush()

    def _add(self, batch: pa.RecordBatch, now: int) -> None:
        rows = batch.num_rows
        which = self._which(batch)
        arena, scratch, ops = self._memory(rows)
        self._used = 0
        for column in self._columns:
            self._encode(batch, column, which, arena, scratch)
        hashes = self._hashes(batch, which, scratch)
        times = self._times(batch, now)
        self._state[b.RECORD] = 0
        layouts = self._layouts if len(self._layouts) else np.zeros((1, b.LAYOUT_FIELDS), np.int64)
        status = b.FLUSH
        while status == b.FLUSH:
            status = b.lay_records(
                which,
                layouts,
                ops,
                arena,
                self._payloads,
                scratch,
                hashes,
                times,
                self._target.raw,
                np.int64(self._options.container_size),
                self._options.whole,
                self._state,
                self._out,
            )
            if status == b.FLUSH:
                self._flush()
        if status != b.DONE:
            self._refuse_record(status)
        self._rows += rows

    def _flush(self) -> None:
        """Hand complete containers on, and move the one that is being filled to the front."""
        start, end = int(self._state[b.START]), int(self._state[b.END])
        complete = start if start >= 0 else end
        if complete:
            self._sink(self._out[:complete])
        rest = end - complete
        self._out[:rest] = self._out[complete:end].copy()
        self._state[b.START] = 0 if start >= 0 else -1
        self._state[b.END] = rest

    def _refuse_record(self, status: int) -> NoReturn:
        row = self._rows + int(self._state[b.RECORD])
        if status == b.BAD_RECORD:
            raise SchemaError(f"column {RECORD_COLUMN!r}, row {row}: not one whole record")
        raise SchemaError(
            f"row {row}: the record is too long for containers of {self._options.container_size} bytes:"
            " give a larger container_size"
        )

    def _which(self, batch: pa.RecordBatch) -> NDArray[np.uint8]:
        """Number of each row's layout."""
        which = np.zeros(batch.num_rows, np.uint8)
        if not self._target.by_name:
            return which
        names = self._cast(batch.column(SCHEMA_COLUMN), pa.string(), SCHEMA_COLUMN).dictionary_encode()
        self._refuse_nulls(names, SCHEMA_COLUMN, np.ones(len(names), np.bool_))
        numbers = np.array([self._names.get(name, -1) for name in names.dictionary.to_pylist()], np.int64)
        found = numbers[_values(names.indices, np.int32)]
        if (found < 0).any():
            row = int(np.flatnonzero(found < 0)[0])
            raise SchemaError(
                f"column {SCHEMA_COLUMN!r}, row {self._rows + row}: no schema {names[row].as_py()!r};"
                f" schemas: {', '.join(self._names)}"
            )
        which[:] = found
        return which

    def _memory(self, rows: int) -> tuple[NDArray[np.uint8], NDArray[np.uint8], NDArray[np.int64]]:
        """Room for the values of a batch, and the operations that put them into records."""
        places: dict[str, tuple[int, int]] = {}
        fixed = payloads = 0
        for column in self._columns:
            if column.pointer:
                places[column.name] = payloads, payloads + 8 * rows
                payloads += 12 * rows
            else:
                places[column.name] = fixed, 0
                fixed += column.slot_size * rows
        self._places = places
        orders = [one.record.columns for one in self._target.layouts] or [tuple(self._columns)]
        ops = np.zeros((len(orders), max(map(len, orders)), b.PUT_FIELDS), np.int64)
        for number, columns in enumerate(orders):
            offsets = self._target.layouts[number].record.field_offsets if self._target.layouts else (0,)
            for at, (column, offset) in enumerate(zip(columns, offsets, strict=True)):
                code = b.PUT_PAYLOAD if column.pointer else b.PUT_8 if column.slot_size == 8 else b.PUT_4
                ops[number, at] = (code, offset, *places[column.name])
        return np.zeros(max(fixed, 1), np.uint8), np.zeros(max(payloads, 1), np.uint8), ops

    def _encode(
        self,
        batch: pa.RecordBatch,
        column: Column,
        which: NDArray[np.uint8],
        arena: NDArray[np.uint8],
        scratch: NDArray[np.uint8],
    ) -> None:
        """Encode one column: values to the arena, payloads to the buffer."""
        rows = batch.num_rows
        has = np.array([column.name in names for names in self._column_names])[which]
        if column.name not in batch.schema.names:
            if has.any():
                row = int(np.flatnonzero(has)[0])
                name = self._target.layouts[which[row]].name
                raise SchemaError(
                    f"row {self._rows + row}: schema {name!r} has a column {column.name!r}; it is missing"
                )
            return
        given = batch.column(column.name)
        self._refuse_nulls(given, column.name, has)
        first, second = self._places[column.name]
        if not column.pointer:
            array = self._cast(given, _FIXED[column.type], column.name)
            width = column.slot_size
            arena[first : first + width * rows] = _values(array, np.uint64 if width == 8 else np.uint32).view(np.uint8)
            return
        positions = scratch[first : first + 8 * rows].view(np.uint64)
        lengths = scratch[second : second + 4 * rows].view(np.uint32)
        wanted = has.astype(np.uint8)
        if column.type == "map":
            self._encode_maps(given, column.name, wanted, positions, lengths)
        elif column.type == "hist" and pa.types.is_struct(given.type):
            self._encode_histograms(given, column.name, wanted, positions, lengths)
        else:
            array = self._cast(given, pa.binary(), column.name)
            ends, data = binary_parts(array)
            longest = np.uint64(layout.MAX_CONTAINER_SIZE if self._target.raw else layout.MAX_PAYLOAD)
            self._run(
                column.name,
                lambda out, state: b.encode_strings(data, ends, wanted, longest, positions, lengths, out, state),
            )

    def _encode_maps(
        self,
        given: pa.Array,
        name: str,
        wanted: NDArray[np.uint8],
        positions: NDArray[np.uint64],
        lengths: NDArray[np.uint32],
    ) -> None:
        ends, key_ends, key_data, value_ends, value_data = map_parts(given, name, self._rows)
        names, name_ends, heads, following = self._predefined()
        most = int((ends[1:] - ends[:-1]).max(initial=0)) + 1
        order, numbers = np.zeros(most, np.int32), np.zeros(most, np.int16)
        self._run(
            name,
            lambda out, state: b.encode_maps(
                ends, key_data, key_ends, value_data, value_ends, wanted, names, name_ends, heads, following, order,
                numbers, positions, lengths, out, state,
            ),
        )  # fmt: skip

    def _encode_histograms(
        self,
        given: pa.StructArray,
        name: str,
        wanted: NDArray[np.uint8],
        positions: NDArray[np.uint64],
        lengths: NDArray[np.uint32],
    ) -> None:
        names = [field.name for field in given.type]
        if "values" not in names or "tops" not in names:
            raise SchemaError(f"column {name!r}: a histogram has the fields tops and values, and may have buckets")
        tops = self._cast(given.field("tops"), pa.list_(pa.float64()), name)
        values = self._cast(given.field("values"), pa.list_(pa.float64()), name)
        for one in (tops, values):
            if (one.is_null().to_numpy(zero_copy_only=False) & (wanted != 0)).any() or one.values.null_count:
                raise SchemaError(f"column {name!r}: tops and values of histograms cannot be null")
        buckets = given.field("buckets") if "buckets" in names else pa.nulls(len(given), pa.binary())
        buckets = self._cast(buckets, pa.binary(), name)
        if buckets.null_count:
            buckets = self._custom_buckets(tops, buckets, name, wanted)
        definition_ends, definitions = binary_parts(buckets)
        top_ends, top_data = _lists(tops)
        value_ends, value_data = _lists(values)
        computed = np.zeros(layout.MAX_BUCKETS)
        steps, group = np.zeros(layout.MAX_BUCKETS, np.uint64), np.zeros(layout.NIBBLE_GROUP, np.uint64)
        bits = value_data.view(np.uint64), computed.view(np.uint64)
        with np.errstate(all="ignore"):
            self._run(
                name,
                lambda out, state: b.encode_histograms(
                    definitions, definition_ends, value_ends, value_data, bits[0], top_data, top_ends, wanted, computed,
                    bits[1], steps, group, positions, lengths, out, state,
                ),
            )  # fmt: skip

    def _custom_buckets(self, tops: pa.Array, buckets: pa.Array, name: str, wanted: NDArray[np.uint8]) -> pa.Array:
        """Definitions where none are given: custom buckets of those tops."""
        known: dict[bytes, bytes] = {}
        ends, data = _lists(tops)
        made = []
        for row, given in enumerate(buckets):
            part = data[ends[row] : ends[row + 1]]
            if given.is_valid or not wanted[row] or not len(part):
                made.append(given.as_py() or b"")
                continue
            key = part.tobytes()
            if key not in known:
                try:
                    known[key] = (
                        bytes((layout.HistogramFormat.CUSTOM_DELTA,)) + Buckets.custom(part.tolist()).definition
                    )
                except SchemaError as error:
                    raise SchemaError(f"column {name!r}, row {self._rows + row}: {error}") from error
            made.append(known[key])
        return pa.array(made, pa.binary())

    def _run(self, name: str, encode: Callable[[NDArray[np.uint8], NDArray[np.int64]], int]) -> None:
        """Run an encoder, with as much room as it needs."""
        state = np.zeros(b.ENCODER_STATE_SIZE, np.int64)
        state[b.USED] = self._used
        while (wrong := encode(self._payloads, state)) == b.NO_ROOM:
            self._payloads = np.concatenate((self._payloads, np.zeros_like(self._payloads)))
        if wrong:
            row = self._rows + int(state[b.ROW])
            raise SchemaError(f"column {name!r}, row {row}: {_WRONG[wrong].format(int(state[b.WRONG]))}")
        self._used = int(state[b.USED])

    def _hashes(
        self, batch: pa.RecordBatch, which: NDArray[np.uint8], scratch: NDArray[np.uint8]
    ) -> NDArray[np.uint64]:
        """Partition hashes: those given, or FiloDB's own."""
        rows = batch.num_rows
        if HASH_COLUMN in batch.schema.names:
            given = self._cast(batch.column(HASH_COLUMN), pa.int32(), HASH_COLUMN)
            self._refuse_nulls(given, HASH_COLUMN, (self._layouts[:, b.SCHEMA_ID] >= 0)[which])
            return _values(given, np.uint32).astype(np.uint64)
        hashes = np.full(rows, layout.HASH_INIT, np.uint64)
        for number, one in enumerate(self._target.layouts):
            mine = np.flatnonzero(which == number) if self._target.by_name else slice(None)
            part = hashes[mine]
            for index in one.record.hashed_columns:
                column = one.record.columns[index]
                if column.name not in self._places or not len(part):
                    continue
                first, second = self._places[column.name]
                positions = scratch[first : first + 8 * rows].view(np.uint64)[mine]
                lengths = scratch[second : second + 4 * rows].view(np.uint32)[mine]
                hash_payloads(self._payloads, positions, lengths, column.type == "map", part)
            hashes[mine] = part
        return hashes

    def _times(self, batch: pa.RecordBatch, now: int) -> NDArray[np.int64]:
        if TIME_COLUMN in batch.schema.names:
            given = self._cast(batch.column(TIME_COLUMN), TIMESTAMP, TIME_COLUMN)
            self._refuse_nulls(given, TIME_COLUMN, np.ones(len(given), np.bool_))
            return _values(given, np.int64).copy()
        # A container keeps the time at which it was begun.
        begun = int(self._state[b.TIME]) if self._state[b.START] >= 0 else now
        return np.full(batch.num_rows, begun, np.int64)

    def _predefined(self) -> tuple[Any, ...]:
        keys = self._target.layouts[0].record.predefined
        ends = np.zeros(len(keys) + 1, np.int64)
        ends[1:] = np.cumsum([len(key) for key in keys])
        names = np.frombuffer(b"".join(keys) + bytes(SLACK), np.uint8)
        heads, following = np.zeros(b.HEADS, np.int16), np.zeros(len(keys), np.int16)
        b.index_names(names, ends, heads, following)
        return names, ends, heads, following

    def _refuse_nulls(self, array: pa.Array, name: str, has: NDArray[np.bool_]) -> None:
        """Columns of a row's own schema have values, and only those."""
        nulls = np.zeros(len(array), np.bool_)
        if array.null_count:
            nulls = array.is_null().to_numpy(zero_copy_only=False)
        for wrong, what in ((nulls & has, "is null; FiloDB has no nulls"), (~nulls & ~has, "has a value, but")):
            if wrong.any():
                row = int(np.flatnonzero(wrong)[0])
                more = what if what.startswith("is") else f"{what} the row's schema has no such column"
                raise SchemaError(f"column {name!r}, row {self._rows + row}: {more}")

    def _cast(self, array: pa.Array, kind: pa.DataType, name: str) -> pa.Array:
        """A column in the type that the format has; nothing may be lost."""
        if array.type == kind:
            return array
        try:
            if pa.types.is_binary(kind) and pa.types.is_dictionary(array.type):
                array = array.dictionary_decode()
            if pa.types.is_timestamp(kind) and pa.types.is_timestamp(array.type) and array.type.tz is None:
                return array.cast(pa.timestamp(kind.unit)).cast(kind)
            if pa.types.is_binary(kind) and not _is_text(array.type):
                raise SchemaError(f"column {name!r} is {array.type}; expected strings or bytes")
            return array.cast(kind)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            row = next((i for i in range(len(array)) if not _fits(array.slice(i, 1), kind)), 0)
            raise SchemaError(f"column {name!r}, row {self._rows + row}: does not fit {kind}: {error}") from error


def _columns(target: Target) -> list[Column]:
    """All columns of all layouts, in the order of records."""
    if target.raw:
        return [Column(RECORD_COLUMN, "br")]
    found: dict[str, Column] = {}
    for one in target.layouts:
        for column in one.record.columns:
            other = found.setdefault(column.name, column)
            if other.type != column.type:
                raise SchemaError(
                    f"column {column.name!r} is {other.type} in one schema and {column.type} in another:"
                    " write them one at a time"
                )
    return list(found.values())


def _fits(value: pa.Array, kind: pa.DataType) -> bool:
    try:
        value.cast(kind)
    except pa.ArrowInvalid:
        return False
    return True


def _is_text(kind: pa.DataType) -> bool:
    tests: Iterator[Any] = iter(
        (
            pa.types.is_string,
            pa.types.is_large_string,
            pa.types.is_string_view,
            pa.types.is_binary,
            pa.types.is_large_binary,
            pa.types.is_binary_view,
            pa.types.is_fixed_size_binary,
        )
    )
    return any(test(kind) for test in tests)


def _values(array: pa.Array, dtype: Any) -> NDArray[Any]:
    """The values of a fixed-width array; nulls hold anything."""
    found: NDArray[Any] = np.frombuffer(array.buffers()[1] or b"", dtype)[array.offset : array.offset + len(array)]
    return found


def map_parts(
    given: pa.Array, name: str, first_row: int
) -> tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.uint8], NDArray[np.int32], NDArray[np.uint8]]:
    """Entries of each row, and ends and data of keys and of values, of a map column.

    Raises:
        SchemaError: When it is no map of strings, or a value is null.
    """
    if not pa.types.is_map(given.type):
        raise SchemaError(f"column {name!r} is {given.type}; expected map<string, string>")
    ends = np.frombuffer(given.buffers()[1] or bytes(4), np.int32)[given.offset : given.offset + len(given) + 1]
    low, high = int(ends[0]), int(ends[-1])
    parts = []
    for entries in (given.keys, given.items):
        # `keys` and `items` of a slice are those of the whole, or of the slice, by the version of Arrow.
        text = entries.slice(low, high - low) if len(entries) != high - low else entries
        if not _is_text(text.type) and not pa.types.is_dictionary(text.type):
            raise SchemaError(f"column {name!r} is {given.type}; expected map<string, string>")
        parts.append((text.dictionary_decode() if pa.types.is_dictionary(text.type) else text).cast(pa.binary()))
    keys, items = parts
    ends = ends - np.int32(low)
    if items.null_count:
        entry = items.is_null().index(True).as_py()
        row = int(np.searchsorted(ends, entry, side="right")) - 1
        raise SchemaError(f"column {name!r}, row {first_row + row}: the value of key {keys[entry].as_py()!r} is null")
    return ends, *binary_parts(keys), *binary_parts(items)


def binary_parts(array: pa.Array) -> tuple[NDArray[np.int32], NDArray[np.uint8]]:
    """Ends and data of a binary array."""
    _, offsets, data = array.buffers()
    if offsets is None or not len(array):
        return np.zeros(len(array) + 1, np.int32), np.zeros(0, np.uint8)
    ends = np.frombuffer(offsets, np.int32)[array.offset : array.offset + len(array) + 1]
    found = np.frombuffer(data or b"", np.uint8)
    if not b.valid_ends(ends, np.int64(len(found))):
        raise SchemaError("the Arrow array is invalid: offsets outside its data")
    return ends, found


def _lists(array: pa.Array) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
    """Ends and values of a list array."""
    ends = np.frombuffer(array.buffers()[1] or bytes(4), np.int32)[array.offset : array.offset + len(array) + 1]
    values = array.values
    return ends, _values(values, np.float64).copy()

"""Record batches: buffers for the kernels to gather into, and the Arrow arrays over them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from sawlog.arrow import call_function, make_array, make_bitmap, make_constant, make_fixed_array, pack_bits
from sawlog.deephaven.log import layout
from sawlog.deephaven.log.columns import PARTITION_KEY, make_constant_array, read_enum_table
from sawlog.deephaven.log.header import Header, LogColumn
from sawlog.deephaven.log.kernels import gather
from sawlog.deephaven.text import WHOLE_CHARSETS, decode_characters, decode_text, make_string_array
from sawlog.deephaven.types import BY_LOG, LogType
from sawlog.format.contract import PROVENANCE, assemble
from sawlog.kernels.vector import SLACK

FIRST_ROWS = 8 << 10
MAX_ROWS = 128 << 10
"""Rows per batch; fewer in the first, from which the sizes of the others follow."""
_FIXED_BYTES = 16 << 20
"""Fixed-width values per batch, at most."""
FIRST_ROOM = 1 << 20
_MAX_ROOM = 8 << 20
"""Bytes per batch of values with a length, by column, unless a single row needs more."""
_ALIGNMENT = 64


class _Description(NamedTuple):
    """Columns of a header, of which some are wanted.

    Attributes:
        columns: What kernels know of the stored ones.
        gathered: Places of those that are gathered.
        judged: Places of those whose values are checked.
        has_lengths: Per stored column, whether its values have lengths.
        row_bytes: Fixed-width and constant bytes of a row.
        stored: Places by name.
        constants: The columns that are not stored, by name.
    """

    columns: Any
    gathered: list[int]
    judged: list[int]
    has_lengths: NDArray[np.bool_]
    row_bytes: int
    stored: dict[str, int]
    constants: dict[str, LogColumn]


class _BadValue(NamedTuple):
    """A value that is none: its row, the place of its column among the stored ones, its bytes, and what is wrong."""

    row: int
    place: int
    length: int
    reason: str


def describe_columns(header: Header) -> Any:
    """Return what kernels know of the stored columns of a header, as records; none is wanted."""
    columns = np.zeros(len(header.stored), gather.COLUMN)
    places = np.arange(len(columns))
    columns["width"] = [column.width for column in header.stored]
    columns["byte"] = places // layout.PRESENCE_BITS
    columns["mask"] = 1 << places % layout.PRESENCE_BITS
    columns["first"] = places * gather.CHUNK
    return columns


@lru_cache(maxsize=64)
def _describe(header: Header, names: frozenset[str], *, sentinels: bool, strict: bool) -> _Description:
    """Return which columns of a header are gathered, and how: once for all files that begin alike."""
    columns = describe_columns(header)
    judged = [place for place, column in enumerate(header.stored) if _is_judged(column, strict=strict)]
    for place, (facts, column) in enumerate(zip(columns, header.stored, strict=True)):
        facts.wanted = column.name in names or place in judged
        facts.boolean = column.type is LogType.BOOLEAN
        facts.text = column.type is LogType.ENHANCED_STRING
        if column.width:
            scalar = layout.SCALARS[column.type]
            facts.null_mask = scalar.null_mask
            facts.null = np.uint64(scalar.nulls[0] | scalar.null_mask).astype(np.int64)
            # An index that stands for null is no index either way.
            facts.has_null = sentinels or column.type is LogType.ENUM
    constants = {column.name: column for column in header.columns if column.constant is not None}
    wide = int(columns["wanted"] @ columns["width"])
    wide += sum(len(column.constant or b"") for name, column in constants.items() if name in names)
    gathered = np.flatnonzero(columns["wanted"]).tolist()
    stored = {column.name: place for place, column in enumerate(header.stored)}
    return _Description(columns, gathered, judged, columns["width"] == 0, wide, stored, constants)


def _is_judged(column: LogColumn, *, strict: bool) -> bool:
    """Return whether a value of a column may be none, though it fits its row: it is looked at whether wanted or not."""
    text = column.type is LogType.ENHANCED_STRING and column.charset not in WHOLE_CHARSETS
    return column.type is LogType.ENUM or (strict and text)


class RowBatch:
    """Buffers of one batch after the other.

    Args:
        header: Header of the file, for its columns.
        schema: The columns wanted, with their metadata.
        path: Value of the column `_file`.
        partition: Value of the partitioning column.
        span: Bytes of the range to be read, which bounds what is allocated.
        sentinels: Whether values in rows that the engine takes for null become null.
        strict: Whether malformed text counts as a value that could not be decoded.

    Attributes:
        columns: What kernels know of the stored columns, of `sawlog.deephaven.log.kernels.gather.COLUMN`.
        max_rows: Rows that there is room for.
        arena: uint8, gathered values.
        scratch: uint8, gathered Booleans and validity.
        starts: int64, file offsets of rows.
        bad_values: Of the rows built last, in order.
    """

    def __init__(
        self,
        header: Header,
        schema: pa.Schema,
        path: str,
        partition: str | None,
        span: int,
        *,
        sentinels: bool,
        strict: bool,
    ) -> None:
        self._header = header
        self._schema = schema
        self._path = path
        self._partition = partition
        described = _describe(header, frozenset(schema.names), sentinels=sentinels, strict=strict)
        self._stored, self._constants = described.stored, described.constants
        self._wanted, self._judged = described.gathered, described.judged
        self._has_lengths = described.has_lengths
        # Bytes are copied in a tenth of the time that records are.
        self.columns = np.frombuffer(bytearray(described.columns.tobytes()), gather.COLUMN)
        self._tables: dict[str, pa.Array] = {}
        self._texts: dict[int, tuple[pa.Array, list[int]]] = {}
        self.bad_values: list[_BadValue] = []
        smallest = layout.SIZE_SIZE + layout.MIN_ENTRY_SIZE + header.presence_bytes
        self._row_limit = max(1, min(MAX_ROWS, span // smallest + 1, _FIXED_BYTES // max(described.row_bytes, 1)))
        self._rooms = np.where(self._has_lengths, min(FIRST_ROOM, span), 0)
        self._sparse = False
        self._gathered: dict[int, dict[str, int]] = {}
        self.max_rows = min(FIRST_ROWS, self._row_limit)
        self._arrange()
        self._allocate()

    @property
    def is_judging(self) -> bool:
        """Whether there are values that are looked at once they are gathered."""
        return bool(self._judged)

    def _arrange(self) -> None:
        """Give every column its place in arena and scratch."""
        values, bodies = self.columns["values"], self.columns["body"]
        rows = self.max_rows
        place = 0

        def take(length: int) -> int:
            nonlocal place
            start, place = place, -(-(place + length) // _ALIGNMENT) * _ALIGNMENT
            return start

        self._firsts = []
        for index in self._wanted:
            column = self._header.stored[index]
            if column.type is LogType.BOOLEAN:
                values[index] = (2 * index + 1) * rows
            elif column.width:
                values[index] = take(rows * column.width)
            else:
                self._firsts.append(take((rows + 1) * layout.COUNT_SIZE))
                values[index] = self._firsts[-1] + layout.COUNT_SIZE
                bodies[index] = take(int(self._rooms[index]) + SLACK)
        self._arena_bytes = max(place, 1)
        self.columns["room"] = self._rooms
        self.columns["valid"] = 2 * np.arange(len(values)) * rows
        self.scratch: NDArray[np.uint8] = np.empty(2 * len(values) * rows + 1, np.uint8)
        self.starts = np.zeros(rows, np.int64)

    def _allocate(self) -> None:
        """Allocate fresh buffers for the next batch."""
        self._buffer = pa.allocate_buffer(self._arena_bytes)
        self.arena: NDArray[np.uint8] = np.frombuffer(self._buffer, np.uint8)
        for first in self._firsts:
            self.arena[first : first + layout.COUNT_SIZE] = 0
        for name in ("nulls", "used", "high"):
            self.columns[name] = 0

    def grow(self) -> None:
        """Make more room: not a single row found any."""
        self._rooms = 2 * self._rooms
        self._arrange()
        self._allocate()

    def adapt(self, rows: int) -> None:
        """Allocate fresh buffers, of sizes by what was found in the last rows."""
        if rows and not rows == self.max_rows == self._row_limit:
            room = self.columns["used"] * self._row_limit // rows
            room = np.where(self._has_lengths, np.minimum(room + room // 16, _MAX_ROOM), 0)
            if self.max_rows < self._row_limit or (room > self._rooms).any():
                grown_rooms = self._rooms * (self.max_rows > FIRST_ROWS)
                self.max_rows = self._row_limit
                self._rooms = np.maximum(room + room // 8 + (64 << 10), grown_rooms)
                self._arrange()
        self._allocate()

    def build(self, rows: int) -> pa.RecordBatch:
        """Return the gathered rows as a batch of the schema; invalid values are null, and listed in `bad_values`."""
        # Plain numbers: to ask the records for one field after the other takes long.
        names = gather.COLUMN.names or ()
        self._gathered = {place: dict(zip(names, self.columns[place].item(), strict=True)) for place in self._wanted}
        used = sum(rows * (facts["width"] or layout.COUNT_SIZE) + facts["used"] for facts in self._gathered.values())
        self._sparse = 2 * used < self._arena_bytes
        self.bad_values = []
        bad = {place: self._judge(place, rows) for place in self._judged}
        self.bad_values.sort(key=lambda value: value.row)
        columns = {
            field.name: self._make_array(field, rows, bad)
            for field in self._schema
            if field not in PROVENANCE or field.name in self._stored or field.name in self._constants
        }
        self._texts.clear()
        return assemble(
            self._schema, rows, columns, self._path, lambda: make_fixed_array(pa.int64(), self.starts[:rows].copy())
        )

    def _judge(self, place: int, rows: int) -> NDArray[np.bool_] | None:
        """Return a mask of the values of a column that are invalid; None where all are valid."""
        column = self._header.stored[place]
        if column.type is LogType.ENUM:
            indices = self.arena[self._gathered[place]["values"] :][: rows * column.width].view(np.int32)
            bad = (indices < 0) | (indices >= len(column.values))
            if self._gathered[place]["nulls"]:
                bad &= self._slice_validity(place, rows) != 0
            message = f"column {column.name!r}: index {{}} in a table of {len(column.values)} values"
            bad_values = [(row, column.width, message.format(indices[row])) for row in np.flatnonzero(bad).tolist()]
        else:
            bad = np.zeros(rows, np.bool_)
            bad[self._decode_strings(place, rows)[1]] = True
            message = f"column {column.name!r}: bytes that are no {column.charset}"
            malformed_rows = np.flatnonzero(bad)
            first = self._gathered[place]["values"] - layout.COUNT_SIZE
            ends = self.arena[first:][: (rows + 1) * layout.COUNT_SIZE].view(np.int32)
            lengths = layout.COUNT_SIZE + ends[malformed_rows + 1] - ends[malformed_rows]
            bad_values = [
                (row, length, message) for row, length in zip(malformed_rows.tolist(), lengths.tolist(), strict=True)
            ]
        self.bad_values += [_BadValue(row, place, length, text) for row, length, text in bad_values]
        return bad if bad_values else None

    def _make_array(self, field: pa.Field, rows: int, bad: Mapping[int, NDArray[np.bool_] | None]) -> pa.Array:
        if field.name in self._stored:
            place = self._stored[field.name]
            return self._make_stored_array(field, place, rows, bad.get(place))
        if field.name in self._constants:
            return make_constant_array(self._constants[field.name], field, rows)
        if PARTITION_KEY in (field.metadata or {}):
            return make_constant(self._partition, pa.string(), rows)
        if pa.types.is_dictionary(field.type):
            return pa.DictionaryArray.from_arrays(pa.nulls(rows, pa.int32()), self._make_table(field, ()))
        return pa.nulls(rows, field.type)

    def _make_stored_array(self, field: pa.Field, place: int, rows: int, bad: NDArray[np.bool_] | None) -> pa.Array:
        column = self._header.stored[place]
        facts = self._gathered[place]
        if column.type is LogType.ENHANCED_STRING:
            text = self._decode_strings(place, rows)[0]
            return text if bad is None else call_function("if_else", make_array(bad, pa.bool_()), None, text)
        nulls, values = facts["nulls"], facts["values"]
        validity = pack_bits(self._slice_validity(place, rows)) if nulls else None
        if column.type is LogType.BOOLEAN:
            bits = pack_bits(self.scratch[values : values + rows])
            return pa.Array.from_buffers(pa.bool_(), rows, [validity, bits], nulls)
        if column.type is LogType.BLOB:
            return self._make_binary(place, rows)
        data = self._slice(values, rows * column.width)
        if column.type is LogType.ENUM:
            return self._make_enum(field, place, rows, bad)
        if column.type is LogType.CHAR and pa.types.is_string(field.type):
            return decode_characters(np.frombuffer(data, np.uint16, rows), validity)
        native = field.type if pa.types.is_timestamp(field.type) else BY_LOG[column.type].arrow
        array = pa.Array.from_buffers(native, rows, [validity, data], nulls)
        return array if native == field.type else array.cast(field.type)

    def _slice_validity(self, place: int, rows: int) -> NDArray[np.uint8]:
        """Return a byte per row of a column that has nulls: whether the value is there."""
        first = self._gathered[place]["valid"]
        return self.scratch[first : first + rows]

    def _slice(self, start: int, length: int) -> pa.Buffer:
        part = self._buffer.slice(start, length)
        # Little was used of much: do not keep the rest alive with the batch.
        return pa.py_buffer(part.to_pybytes()) if self._sparse else part

    def _make_binary(self, place: int, rows: int) -> pa.Array:
        facts = self._gathered[place]
        validity = pack_bits(self._slice_validity(place, rows)) if facts["nulls"] else None
        ends = self._slice(facts["values"] - layout.COUNT_SIZE, (rows + 1) * layout.COUNT_SIZE)
        data = self._slice(facts["body"], facts["used"])
        return pa.Array.from_buffers(pa.binary(), rows, [validity, ends, data], facts["nulls"])

    def _decode_strings(self, place: int, rows: int) -> tuple[pa.Array, list[int]]:
        """Return strings of a column, and the rows of those that are malformed."""
        if place not in self._texts:
            charset = self._header.stored[place].charset
            ascii = not self._gathered[place]["high"]
            self._texts[place] = decode_text(self._make_binary(place, rows), charset, ascii=ascii)
        return self._texts[place]

    def _make_enum(self, field: pa.Field, place: int, rows: int, bad: NDArray[np.bool_] | None) -> pa.Array:
        column = self._header.stored[place]
        table = read_enum_table(field) or column.values
        facts = self._gathered[place]
        indices = np.frombuffer(self._slice(facts["values"], rows * column.width), np.int32)
        valid = self._slice_validity(place, rows) != 0 if facts["nulls"] else None
        if bad is not None:
            valid = ~bad if valid is None else valid & ~bad
            indices = np.where(bad, 0, indices)
        if table != column.values and len(column.values):
            places = {value: number for number, value in enumerate(table)}
            indices = np.array([places[value] for value in column.values], np.int32)[indices]
        buffers = [make_bitmap(valid), pa.py_buffer(np.ascontiguousarray(indices))]
        array = pa.Array.from_buffers(pa.int32(), rows, buffers)
        return pa.DictionaryArray.from_arrays(array, self._make_table(field, table), safe=False)

    def _make_table(self, field: pa.Field, otherwise: Sequence[str]) -> pa.Array:
        """Return the table of an Enum, made once."""
        if field.name not in self._tables:
            self._tables[field.name] = make_string_array(read_enum_table(field) or otherwise)
        return self._tables[field.name]

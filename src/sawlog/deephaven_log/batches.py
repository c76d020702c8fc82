"""Record batches: buffers for the kernels to gather into, and the Arrow arrays over them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from sawlog.arrow import constant
from sawlog.deephaven.text import characters, decode_text, string_array
from sawlog.deephaven_log import columns, layout
from sawlog.deephaven_log.columns import constant_array, enum_table
from sawlog.deephaven_log.layout import TYPES, ColumnType
from sawlog.format import FILE_COLUMN, OFFSET_COLUMN

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np
    from numpy.typing import NDArray

    from sawlog.deephaven_log.header import Header, LogColumn

    Complaint = Callable[[NDArray[np.int64], str], None]

FIRST_ROWS = 8 << 10
MAX_ROWS = 128 << 10
"""Rows per batch; fewer in the first, from which the sizes of the others follow."""
FIXED_BYTES = 16 << 20
"""Fixed-width values per batch, at most."""
FIRST_ROOM = 1 << 20
MAX_ROOM = 8 << 20
"""Bytes per batch of values with a length, by column, unless one row alone needs more."""
_ALIGNMENT = 64


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
        complain: Told of such values: their rows' offsets in the file, and what is wrong.
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
        complain: Complaint,
    ) -> None:
        import numpy as np

        from sawlog.deephaven_log.kernels import gather

        self._gather = gather
        self._header = header
        self._schema = schema
        self._path = path
        self._partition = partition
        self._complain = complain
        self._strict = strict
        enums = any(pa.types.is_dictionary(field.type) for field in schema)
        wanted = set(schema.names)
        self._traced = OFFSET_COLUMN in wanted or strict or enums
        self._stored = {column.name: place for place, column in enumerate(header.stored)}
        self._constants = {column.name: column for column in header.columns if column.constant is not None}
        self.cols = np.zeros((len(header.stored), gather.COLUMN_FIELDS), np.int64)
        for place, column in enumerate(header.stored):
            self._describe(place, column, wanted=column.name in wanted, sentinels=sentinels)
        wide = int(self.cols[:, gather.WANTED] @ self.cols[:, gather.WIDTH])
        smallest = layout.SIZE_SIZE + layout.MIN_ENTRY_SIZE + header.presence_bytes
        self._most = max(1, min(MAX_ROWS, span // smallest + 1, FIXED_BYTES // max(wide, 1)))
        self._rooms = np.where(self.cols[:, gather.WIDTH] == 0, min(FIRST_ROOM, span), 0)
        self._sparse = False
        self.max_rows = min(FIRST_ROWS, self._most)
        self._arrange()
        self.allocate()

    def _describe(self, place: int, column: LogColumn, *, wanted: bool, sentinels: bool) -> None:
        g = self._gather
        facts = TYPES[column.type]
        byte, bit = divmod(place, layout.PRESENCE_BITS)
        row = self.cols[place]
        row[g.WIDTH] = facts.width
        row[g.BYTE] = byte
        row[g.MASK] = 1 << bit
        row[g.WANTED] = wanted
        row[g.BOOLEAN] = column.type is ColumnType.BOOLEAN
        row[g.TEXT] = column.type is ColumnType.ENHANCED_STRING
        if facts.null is not None:
            pattern = facts.null | facts.null_mask
            row[g.NULL] = pattern - (1 << 64) if pattern >= 1 << 63 else pattern
            row[g.NULL_MASK] = facts.null_mask
            # An index that stands for null is no index either way.
            row[g.HAS_NULL] = sentinels or column.type is ColumnType.ENUM

    def _arrange(self) -> None:
        """Give every column its place in arena and scratch."""
        import numpy as np

        g = self._gather
        rows = self.max_rows
        place = 0

        def take(length: int) -> int:
            nonlocal place
            start, place = place, -(-(place + length) // _ALIGNMENT) * _ALIGNMENT
            return start

        self._firsts = []
        for index in np.flatnonzero(self.cols[:, g.WANTED]):
            column = self.cols[index]
            if column[g.WIDTH]:
                column[g.VALUES] = take(rows * int(column[g.WIDTH])) if not column[g.BOOLEAN] else 0
            else:
                self._firsts.append(take((rows + 1) * layout.COUNT_SIZE))
                column[g.VALUES] = self._firsts[-1] + layout.COUNT_SIZE
                column[g.ROOM] = self._rooms[index]
                column[g.DATA] = take(int(self._rooms[index]) + g.SLACK)
        self._arena_bytes = max(place, 1)
        every = np.arange(len(self.cols))
        self.cols[:, g.VALID] = 2 * every * rows
        booleans = self.cols[:, g.BOOLEAN] != 0
        self.cols[booleans, g.VALUES] = (2 * every[booleans] + 1) * rows
        self.scratch: NDArray[np.uint8] = np.empty(2 * len(self.cols) * rows + 1, np.uint8)
        self.starts = np.zeros(rows if self._traced else 0, np.int64)

    def allocate(self) -> None:
        """Fresh buffers for the next batch."""
        import numpy as np

        g = self._gather
        self._buffer = pa.allocate_buffer(self._arena_bytes)
        self.arena: NDArray[np.uint8] = np.frombuffer(self._buffer, np.uint8)
        for first in self._firsts:
            self.arena[first : first + layout.COUNT_SIZE] = 0
        self.cols[:, [g.NULLS, g.USED, g.HIGH]] = 0

    def adapt(self, rows: int) -> None:
        """Size the next batch by what was found in the last one; more room if not a single row found any."""
        import numpy as np

        if rows == self.max_rows == self._most:
            return
        g = self._gather
        if rows == 0:
            self._rooms = 2 * self._rooms
            self._arrange()
            return
        needed = self.cols[:, g.USED] * self._most // rows
        needed = np.where(self.cols[:, g.WIDTH] == 0, np.minimum(needed + needed // 16, MAX_ROOM), 0)
        if self.max_rows < self._most or (needed > self._rooms).any():
            self.max_rows = self._most
            self._rooms = np.maximum(needed + needed // 8 + (64 << 10), self._rooms * (self.max_rows > FIRST_ROWS))
            self._arrange()

    def build(self, rows: int) -> pa.RecordBatch:
        """The gathered rows as a batch of the schema."""
        import numpy as np

        g = self._gather
        widths = np.where(self.cols[:, g.WIDTH] == 0, layout.COUNT_SIZE, self.cols[:, g.WIDTH])
        used = int(self.cols[:, g.WANTED] @ (rows * widths + self.cols[:, g.USED]))
        self._sparse = 2 * used < self._arena_bytes
        arrays = [self._array(field, rows) for field in self._schema]
        if not arrays:
            return pa.RecordBatch.from_arrays([], schema=self._schema)
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _array(self, field: pa.Field, rows: int) -> pa.Array:
        if field.name in self._stored:
            return self._stored_array(field, self._stored[field.name], rows)
        if field.name in self._constants:
            return constant_array(self._constants[field.name], field, rows)
        if field.name == FILE_COLUMN:
            return constant(self._path, pa.string(), rows)
        if field.name == OFFSET_COLUMN:
            return pa.Array.from_buffers(pa.int64(), rows, [None, pa.py_buffer(self.starts[:rows].tobytes())])
        if columns.PARTITION_KEY in (field.metadata or {}):
            return constant(self._partition, pa.string(), rows)
        if pa.types.is_dictionary(field.type):
            return pa.DictionaryArray.from_arrays(pa.nulls(rows, pa.int32()), string_array(enum_table(field) or ()))
        return pa.nulls(rows, field.type)

    def _stored_array(self, field: pa.Field, place: int, rows: int) -> pa.Array:
        import numpy as np

        g = self._gather
        column = self._header.stored[place]
        facts = self.cols[place]
        nulls = int(facts[g.NULLS])
        valid = self.scratch[facts[g.VALID] : facts[g.VALID] + rows]
        bitmap = pa.py_buffer(np.packbits(valid, bitorder="little")) if nulls else None
        values = int(facts[g.VALUES])
        if column.type is ColumnType.BOOLEAN:
            bits = np.packbits(self.scratch[values : values + rows], bitorder="little")
            return pa.Array.from_buffers(pa.bool_(), rows, [bitmap, pa.py_buffer(bits)], nulls)
        if column.width == 0:
            ends = self._slice(values - layout.COUNT_SIZE, (rows + 1) * layout.COUNT_SIZE)
            data = self._slice(int(facts[g.DATA]), int(facts[g.USED]))
            array = pa.Array.from_buffers(pa.binary(), rows, [bitmap, ends, data], nulls)
            return array if column.type is ColumnType.BLOB else self._text(array, column, ascii=not facts[g.HIGH])
        data = self._slice(values, rows * column.width)
        if column.type is ColumnType.ENUM:
            return self._enum(field, column, rows, bitmap, data)
        if column.type is ColumnType.CHAR and pa.types.is_string(field.type):
            return characters(np.frombuffer(data, np.uint16, rows), bitmap)
        native = columns.PLAIN[column.type]
        if pa.types.is_timestamp(field.type):
            native = field.type
        array = pa.Array.from_buffers(native, rows, [bitmap, data], nulls)
        return array if native == field.type else array.cast(field.type)

    def _slice(self, start: int, length: int) -> pa.Buffer:
        part = self._buffer.slice(start, length)
        # Little was used of much: do not keep the rest alive with the batch.
        return pa.py_buffer(part.to_pybytes()) if self._sparse else part

    def _text(self, array: pa.Array, column: LogColumn, *, ascii: bool) -> pa.Array:
        import numpy as np

        text, replaced = decode_text(array, column.charset, ascii=ascii)
        if replaced and self._strict:
            what = f"column {column.name!r}: bytes that are no {column.charset}"
            self._complain(self.starts[np.array(replaced, np.int64)], what)
        return text

    def _enum(self, field: pa.Field, column: LogColumn, rows: int, bitmap: Any, data: pa.Buffer) -> pa.Array:
        import numpy as np

        table = enum_table(field) or column.values
        indices = np.frombuffer(data, np.int32, rows)
        outside = (indices < 0) | (indices >= len(column.values))
        if bitmap is not None:
            present = np.unpackbits(np.frombuffer(bitmap, np.uint8), count=rows, bitorder="little").view(np.bool_)
            outside &= present
        if outside.any():
            worst = int(indices[np.flatnonzero(outside)[0]])
            what = f"column {column.name!r}: index {worst} in a table of {len(column.values)} values"
            self._complain(self.starts[np.flatnonzero(outside)], what)
            known = ~outside if bitmap is None else present & ~outside
            indices = np.where(known, indices, 0).astype(np.int32)
            bitmap = pa.py_buffer(np.packbits(known, bitorder="little"))
        if table != column.values and len(column.values):
            places = {value: place for place, value in enumerate(table)}
            remap = np.array([places[value] for value in column.values], np.int32)
            indices = remap[indices]
        array = pa.Array.from_buffers(pa.int32(), rows, [bitmap, pa.py_buffer(np.ascontiguousarray(indices))])
        return pa.DictionaryArray.from_arrays(array, string_array(table), safe=False)

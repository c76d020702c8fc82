"""Arrow batches as entries: which column is written as what, and the buffers that the kernel lays out."""

from __future__ import annotations

import math
import posixpath
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from sawlog.arrow import (
    fill_null,
    find_index,
    find_value_type,
    is_binary,
    is_text,
    make_array,
    make_scalar,
    unpack_booleans,
    view_binary,
    view_values,
)
from sawlog.chain.kernels import make_record
from sawlog.deephaven.log import columns, layout
from sawlog.deephaven.log.header import LogColumn, build_header
from sawlog.deephaven.log.names import parse_name
from sawlog.deephaven.log.options import WriteOptions
from sawlog.deephaven.nulls import refuse_nulls
from sawlog.deephaven.text import CHARSETS, encode_code_units, encode_string, find_charset
from sawlog.deephaven.types import BOXED, BY_LOG, LogType
from sawlog.errors import OptionError, SchemaError

OUT_BYTES = 2 << 20
"""Bytes laid out before they are written, at least."""
_PIECE_ROWS = 64 << 10
SINGLE_FLAGS = (layout.SINGLE, layout.SINGLE, layout.SINGLE)
"""Flags of the first row, of those between, and of the last one."""

_TYPES = {row.arrow: kind for kind, row in BY_LOG.items() if row.type in BOXED}


@dataclass(slots=True)
class _Piece:
    """Buffers of one column of a piece of a batch."""

    values: NDArray[Any]
    data: NDArray[np.uint8] | None
    valid: NDArray[np.bool_] | None


class Encoder:
    """Turns batches of one schema into entries of one log.

    Args:
        schema: The columns, with their metadata.
        charset: Of strings whose metadata does not say.
        unit: Unit that times are stored in; None for that of each column.
        constants: Values of columns that are stored once, in the header; None: that of the first row.
        application_version: For the header; None: as in the schema's metadata, if there.
        partition: What the file name says of the partitioning column.
        max_entry: Longest entry that is written, in bytes.

    Raises:
        SchemaError: For columns that a log cannot hold.
    """

    def __init__(
        self,
        schema: pa.Schema,
        *,
        charset: str,
        unit: str | None,
        constants: Mapping[str, Any],
        application_version: int | None,
        partition: str | None,
        max_entry: int,
    ) -> None:
        self._schema = schema
        self._partition = partition
        self._max_entry = max_entry
        self._unit = unit
        charset_in_java = find_charset(charset)
        if charset_in_java is None:
            raise OptionError(f"charset={charset!r}: expected one of {', '.join(CHARSETS)}")
        stored = (schema.metadata or {}).get(columns.APPLICATION_VERSION_KEY)
        self._version = application_version if application_version is not None or stored is None else int(stored)
        self._further = columns.read_header_records(schema)
        if len(set(schema.names)) < len(schema.names):
            raise SchemaError("columns of a log must have different names")
        for name in constants:
            if name not in schema.names:
                raise SchemaError(f"constants: there is no column {name!r}; columns: {', '.join(schema.names)}")
        # A partitioning column stays out where the file name gives its value.
        self._implied = [
            field.name for field in schema if columns.PARTITION_KEY in (field.metadata or {}) and partition is not None
        ]
        self.columns = [
            self._make_column(field, charset_in_java, constants) for field in schema if field.name not in self._implied
        ]
        self._expected: dict[str, Any] = {}
        self._pending = [name for name, value in constants.items() if value is None]
        self._open_enums = {c.name for c in self.columns if c.type is LogType.ENUM and not c.values}
        self._rows = 0
        self._ready = False

    @classmethod
    def of(cls, options: WriteOptions, schema: pa.Schema, path: str, constants: Mapping[str, Any]) -> Self:
        """Return the encoder for the log at `path`."""
        return cls(
            schema,
            charset=options.charset,
            unit=options.timestamp_unit,
            constants=constants,
            application_version=options.application_version,
            partition=parse_name(posixpath.basename(path)).column_partition,
            max_entry=options.max_item_bytes,
        )

    def encode_header(self, batch: pa.RecordBatch | None) -> bytes:
        """Return the header.

        What neither schema nor options say (tables of Enums, constants) comes from the first batch.
        """
        self.columns = [self._complete_column(column, batch) for column in self.columns]
        self._stored = [column for column in self.columns if column.constant is None]
        self._presence = -(-len(self._stored) // layout.PRESENCE_BITS)
        self._ready = True
        return build_header(self.columns, self._version, self._further)

    def encode(self, batch: pa.RecordBatch, flags: tuple[int, int, int] = SINGLE_FLAGS) -> Iterator[NDArray[np.uint8]]:
        """Yield entries of a batch's rows, some at a time; each piece is valid until the next is asked for.

        Raises:
            SchemaError: For a value that cannot be represented; names column and row.
        """
        assert self._ready
        first, middle, last = flags
        for start in range(0, batch.num_rows, _PIECE_ROWS):
            piece = batch.slice(start, _PIECE_ROWS)
            begins, ends = start == 0, start + piece.num_rows == batch.num_rows
            if piece.num_rows == 1 and begins and ends:
                piece_flags = (first, middle, last)
            else:
                piece_flags = (first if begins else middle, middle, last if ends else middle)
                if piece.num_rows == 1:
                    piece_flags = (piece_flags[2] if ends else piece_flags[0], middle, middle)
            yield from self._encode_piece(piece, piece_flags)
            self._rows += piece.num_rows

    def _encode_piece(self, batch: pa.RecordBatch, flags: tuple[int, int, int]) -> Iterator[NDArray[np.uint8]]:
        from sawlog.deephaven.log.kernels import encode as k

        self._check_implied(batch)
        self._check_constants(batch)
        parts: list[NDArray[np.uint8]] = []
        size = 0

        def put_array(array: NDArray[Any]) -> int:
            nonlocal size
            start = size
            parts.append(array.view(np.uint8))
            size += array.nbytes
            return start

        columns = np.zeros(len(self._stored), k.COLUMN)
        for index, column in enumerate(self._stored):
            piece = self._convert(column, batch.column(column.name))
            if len(piece.values) != batch.num_rows + (column.width == 0):
                raise SchemaError(f"column {column.name!r}: an Arrow array whose buffers are too short")
            facts = columns[index]
            facts.width = column.width
            facts.values = put_array(np.ascontiguousarray(piece.values))
            if piece.data is not None:
                facts.body = put_array(piece.data)
                facts.length = len(piece.data)
            facts.valid = -1 if piece.valid is None else put_array(piece.valid)
            facts.byte, bit = divmod(index, layout.PRESENCE_BITS)
            facts.mask = 1 << bit
        arena = np.concatenate([*parts, np.zeros(1, np.uint8)])
        record, state = make_record(k.STATE)
        out = np.empty(max(OUT_BYTES, self._max_entry), np.uint8)
        rows = k.Rows(arena, columns, np.int64(self._presence), np.int64(batch.num_rows), np.int64(self._max_entry))
        roles = k.Flags(*map(np.uint8, flags))
        status = k.FULL
        while status == k.FULL:
            status = k.encode_rows(rows, roles, record, out)
            if status == k.TOO_LARGE:
                raise SchemaError(
                    f"row {self._rows + state.row}: its entry is longer than {self._max_entry} bytes;"
                    " max_item_bytes would allow it, Deephaven's own readers may not"
                )
            if status == k.INVALID:
                raise SchemaError(f"row {self._rows + state.row}: an Arrow array has offsets outside its data")
            yield out[: state.used]
            state.used = 0

    def _complete_column(self, column: LogColumn, batch: pa.RecordBatch | None) -> LogColumn:
        """Return a column completed by the first batch, such as with the values of an enum."""
        if batch is not None and column.name in self._open_enums and column.name in batch.schema.names:
            values = batch.column(column.name).dictionary.cast(pa.string()).to_pylist()
            if None in values:
                raise SchemaError(f"column {column.name!r}: a null in the dictionary; nulls belong into the indices")
            column = replace(column, values=tuple(values))
        if column.name not in self._pending:
            return column
        if batch is None or not batch.num_rows:
            return replace(column, constant=layout.encode_null(column.type))
        value = batch.column(column.name)[0]
        return replace(column, constant=self._encode_constant(column, value.as_py(), value.type))

    def _make_column(self, field: pa.Field, charset: str, constants: Mapping[str, Any]) -> LogColumn:
        metadata = field.metadata or {}
        charset = metadata.get(columns.CHARSET_KEY, charset.encode()).decode()
        kind = self._infer_type(field, metadata)
        column = LogColumn(field.name, kind)
        if kind in (LogType.ENHANCED_STRING, LogType.ENUM):
            column = replace(column, charset=charset)
        if kind is LogType.ENUM:
            column = replace(column, values=columns.read_enum_table(field) or ())
        stored = metadata.get(columns.CONSTANT_KEY)
        if field.name in constants:
            value = constants[field.name]
            if value is not None:
                column = replace(column, constant=self._encode_constant(column, value, field.type))
        elif stored is not None:
            column = replace(column, constant=columns.from_hex(stored.decode(), columns.CONSTANT_KEY))
        return column

    @staticmethod
    def _infer_type(field: pa.Field, metadata: Mapping[bytes, bytes]) -> LogType:
        kind = field.type
        if pa.types.is_dictionary(kind) and is_text(kind.value_type):
            return LogType.ENUM
        if is_text(kind):
            char = metadata.get(columns.TYPE_KEY) == LogType.CHAR.title.encode()
            return LogType.CHAR if char else LogType.ENHANCED_STRING
        if is_binary(kind):
            return LogType.BLOB
        if pa.types.is_timestamp(kind):
            return LogType.LONG
        if kind in _TYPES:
            return _TYPES[kind]
        names = ", ".join(kind.title for kind in LogType)
        raise SchemaError(f"column {field.name!r} is {kind}, which a Deephaven log cannot hold; it holds {names}")

    def _encode_constant(self, column: LogColumn, value: Any, kind: pa.DataType) -> bytes:
        """Return a constant's value as the header holds it."""
        if value is None:
            return layout.encode_null(column.type)
        try:
            array = make_array([value], find_value_type(kind))
            if column.type is LogType.ENUM:
                return layout.SCALARS[column.type].encode(column.values.index(value))
            piece = self._convert(column, array)
        except (pa.ArrowInvalid, pa.ArrowTypeError, ValueError) as error:
            raise SchemaError(f"column {column.name!r}: constant {value!r}: {error}") from error
        if column.width == 0:
            data = b"" if piece.data is None else piece.data[piece.values[0] : piece.values[1]].tobytes()
            return layout.VALUE.encode(data)
        return piece.values[:1].tobytes()[::-1]

    def _check_constants(self, batch: pa.RecordBatch) -> None:
        import pyarrow.compute as pc

        for column in self.columns:
            if column.constant is None or column.name not in batch.schema.names:
                continue
            values = batch.column(column.name)
            field = batch.schema.field(column.name)
            if pa.types.is_dictionary(values.type):
                values = values.cast(values.type.value_type)
                index = columns.decode_value(column, column.constant)
                value = None if index is None else column.values[index]
                expected = make_scalar(value, values.type)
            else:
                bare = field.with_type(values.type)
                expected = columns.make_constant_array(column, bare, 1)[0]
            equal = values.is_null() if not expected.is_valid else fill_null(pc.equal(values, expected), False)
            wrong = find_index(equal, False)
            if wrong >= 0 and not self._are_nan(values[wrong], expected):
                raise SchemaError(
                    f"column {column.name!r}, row {self._rows + wrong}: {values[wrong]} in a constant column whose"
                    f" value is {expected}; drop {columns.CONSTANT_KEY.decode()} from its metadata to store it in the"
                    " rows"
                )

    @staticmethod
    def _are_nan(value: pa.Scalar, expected: pa.Scalar) -> bool:
        first, second = value.as_py(), expected.as_py()
        return isinstance(first, float) and isinstance(second, float) and math.isnan(first) and math.isnan(second)

    def _check_implied(self, batch: pa.RecordBatch) -> None:
        for name in self._implied:
            if name not in batch.schema.names:
                continue
            values = batch.column(name).to_pylist()
            for row, value in enumerate(values):
                if value != self._partition:
                    raise SchemaError(
                        f"column {name!r}, row {self._rows + row}: {value!r} does not belong into a file whose name"
                        f" says {self._partition!r}"
                    )

    def _convert(self, column: LogColumn, array: pa.Array) -> _Piece:
        """Return a column's values as the kernel wants them."""
        valid = None
        if array.null_count:
            valid = unpack_booleans(array.is_valid())
        if column.type is LogType.ENUM:
            return _Piece(self._map_indices(column, array, valid), None, valid)
        if column.width == 0:
            ends, data = self._encode_bytes(column, array)
            return _Piece(ends, data, valid)
        if column.type is LogType.BOOLEAN:
            return _Piece(unpack_booleans(array), None, valid)
        original, scalar = array, layout.SCALARS[column.type]
        if pa.types.is_timestamp(array.type):
            array = self._cast_times(column, array)
        error = partial(self._make_error, column)
        if column.type is LogType.CHAR and array.type != pa.uint16():
            values = encode_code_units(array, error)
        else:
            values = view_values(array, scalar.bits)
        refuse_nulls(values, valid, (scalar.nulls[0], scalar.null_mask), original, column.type.title, error)
        return _Piece(values, None, valid)

    def _cast_times(self, column: LogColumn, array: pa.Array) -> pa.Array:
        unit = self._unit or array.type.unit
        kind = pa.timestamp(unit, array.type.tz)
        try:
            return array.cast(kind).view(pa.int64())
        except pa.ArrowInvalid:
            for row in range(len(array)):
                try:
                    array.slice(row, 1).cast(kind)
                except pa.ArrowInvalid as error:
                    raise self._make_error(column, row, f"not a whole number of {unit}: {error}") from error
            raise

    def _make_error(self, column: LogColumn, row: int, message: str) -> SchemaError:
        """Return the error to raise about a row of the batch."""
        return SchemaError(f"column {column.name!r}, row {self._rows + row}: {message}")

    def _map_indices(self, column: LogColumn, array: pa.DictionaryArray, valid: Any) -> NDArray[np.int32]:
        places: dict[str, int] = {}
        for place, value in enumerate(column.values):
            places.setdefault(value, place)
        values = array.dictionary.cast(pa.string()).to_pylist()
        if values == list(column.values):
            remap = np.arange(len(values) + 1, dtype=np.int32)
        else:
            remap = np.array([*(places.get(value, -1) for value in values), 0], np.int32)
        indices = array.indices.cast(pa.int32())
        numbers = view_values(indices, np.int32)
        if valid is not None:
            numbers = np.where(valid, numbers, len(values))
        if len(numbers) and (numbers.min() < 0 or numbers.max() > len(values)):
            raise SchemaError(f"column {column.name!r}: an index outside the dictionary")
        table_indices: NDArray[np.int32] = remap[numbers]
        if (table_indices < 0).any():
            row = int(np.flatnonzero(table_indices < 0)[0])
            raise SchemaError(
                f"column {column.name!r}, row {self._rows + row}: {values[numbers[row]]!r} is not in the Enum's table,"
                f" which is that of the first batch unless the metadata {columns.ENUM_KEY.decode()} gives it"
            )
        return table_indices

    def _encode_bytes(self, column: LogColumn, array: pa.Array) -> tuple[NDArray[np.int32], NDArray[np.uint8]]:
        """Return ends (the first is a start) and bytes of values with a length, strings in their charset."""
        try:
            binary = array.cast(pa.binary())
        except pa.ArrowInvalid as error:
            raise SchemaError(f"column {column.name!r}: 2 GiB or more in {len(array)} rows: {error}") from error
        data, ends = view_binary(binary)
        plain = column.type is LogType.BLOB or column.charset == "UTF-8"
        low, high = int(ends[0]), int(ends[-1])
        if plain or (not column.charset.startswith("UTF-16") and not (data[low:high] & 0x80).any()):
            return ends - ends[0], data[low:high]
        encoded = []
        for row, value in enumerate(array.to_pylist()):
            try:
                encoded.append(None if value is None else encode_string(value, column.charset))
            except UnicodeError as error:
                message = f'{value!r} cannot be written in {column.charset}; charset="UTF-8" takes every text'
                raise self._make_error(column, row, message) from error
        data, ends = view_binary(make_array(encoded, pa.binary()))
        return ends, data

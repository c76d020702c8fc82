"""Columns of logs as Arrow: types and their metadata, the united schema of several files, decoded values."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa

from sawlog.arrow import make_constant
from sawlog.deephaven.log import layout
from sawlog.deephaven.log.layout import HeaderRecord
from sawlog.deephaven.text import decode_character, decode_string, make_string_array
from sawlog.deephaven.types import BY_LOG, FLOATS, INTEGERS, LogType
from sawlog.errors import FormatError, SchemaError
from sawlog.guard import Undecodable, call_decoder, decode_json
from sawlog.storage.typed_json import parse_json_as

if TYPE_CHECKING:
    from sawlog.deephaven.log.header import Header, LogColumn
    from sawlog.deephaven.schema_xml import SchemaColumn

TYPE_KEY = b"sawlog.type"
"""The format's name of the column's type."""
CHARSET_KEY = b"sawlog.charset"
"""Stored charset of an EnhancedString's values or of an Enum's table."""
ENUM_KEY = b"sawlog.enum"
"""JSON list: the table of an Enum."""
CONSTANT_KEY = b"sawlog.constant"
"""Hexadecimal: the value of a constant column as stored in the header."""
_UNIT_KEY = b"sawlog.unit"
"""Unit of times stored in a Long column."""
PARTITION_KEY = b"sawlog.partition"
"""`column`: the value comes from the name of the file, not out of it."""
CLASS_KEY = b"sawlog.java_class"
"""Of a Blob that a `.schema` file defines: the Java class of its values, their codec, and its arguments."""
CODEC_KEY = b"sawlog.codec"
_CODEC_ARGUMENTS_KEY = b"sawlog.codec_arguments"
APPLICATION_VERSION_KEY = b"sawlog.application_version"
"""Of the schema, where all files agree on it."""
_HEADER_RECORDS_KEY = b"sawlog.header_records"
"""Likewise, where all agree on them: header records of unknown types, as a JSON list of `[type, hexadecimal]`."""


@dataclass(frozen=True, slots=True)
class Rendering:
    """Rules by which columns become Arrow columns, from the read options and a schema file.

    Attributes:
        units: Long columns that hold times, and their units.
        char: Whether a Char is a string of one character or the number of its UTF-16 code unit.
        widen: Whether columns whose types differ between files may take the wider type.
        order: Names that come first, in this order.
        defined: What a schema file says of columns, by name.
    """

    units: Mapping[str, str]
    char: Literal["number", "string"] = "number"
    widen: bool = False
    order: tuple[str, ...] = ()
    defined: Mapping[str, SchemaColumn] = field(default_factory=dict)


def choose_arrow_type(column: LogColumn, rendering: Rendering) -> pa.DataType:
    """Return the Arrow type of a column.

    Raises:
        SchemaError: When a column that is said to hold times is no Long.
    """
    unit = rendering.units.get(column.name)
    if unit is not None:
        if column.type is not LogType.LONG:
            raise SchemaError(f"column {column.name!r} is {column.type.title}; times are Long columns")
        return pa.timestamp(unit, "UTC")
    if column.type is LogType.CHAR and rendering.char == "string":
        return pa.string()
    return BY_LOG[column.type].arrow


def unite(files: Sequence[tuple[str, Header]], rendering: Rendering) -> pa.Schema:
    """Return the schema of all files: columns by name, in the order in which they first appear.

    Raises:
        SchemaError: When files disagree on the type of a column; names both.
    """
    united: dict[str, tuple[str, LogColumn]] = {}
    file_counts: dict[str, int] = {}
    tables: dict[str, dict[tuple[str, ...], None]] = {}
    same_constant: dict[str, bool] = {}
    for path, header in files:
        for column in header.columns:
            file_counts[column.name] = file_counts.get(column.name, 0) + 1
            if column.name not in united:
                united[column.name] = (path, column)
                same_constant[column.name] = True
            else:
                united[column.name] = _choose_wider(united[column.name], (path, column), rendering.widen)
            same_constant[column.name] &= column.constant == united[column.name][1].constant
            if column.type is LogType.ENUM:
                tables.setdefault(column.name, {})[column.values] = None
    names = dict.fromkeys([*(name for name in rendering.order if name in united), *united])
    fields = []
    for name in names:
        column = united[name][1]
        constant = same_constant[name] and file_counts[name] == len(files)
        column_tables = list(tables.get(name, ()))
        if len(column_tables) == 1:  # kept as it is, where all agree
            values = column_tables[0]
        else:
            values = tuple(dict.fromkeys(value for table in column_tables for value in table))
        fields.append(_make_field(column, values, rendering, constant=constant))
    return pa.schema(fields, _merge_facts([header for _, header in files]))


def _merge_facts(headers: Sequence[Header]) -> dict[bytes, bytes] | None:
    """Return what the headers say of their tables, where they all say the same, as metadata of the schema."""
    metadata = {}
    versions = {header.application_version for header in headers}
    records = {header.unknown for header in headers}
    if len(versions) == 1 and None not in versions:
        metadata[APPLICATION_VERSION_KEY] = str(versions.pop()).encode()
    if len(records) == 1 and () not in records:
        stored = [(kind, payload.hex()) for kind, payload in records.pop()]
        metadata[_HEADER_RECORDS_KEY] = json.dumps(stored).encode()
    return metadata or None


def read_header_records(schema: pa.Schema) -> tuple[tuple[int, bytes], ...]:
    """Return the header records of unknown types that a schema's metadata holds: type and payload.

    Raises:
        SchemaError: When the metadata is not what this module writes.
    """
    stored = (schema.metadata or {}).get(_HEADER_RECORDS_KEY, b"[]")
    try:
        stored_records = parse_json_as(
            decode_json(stored), list[tuple[int, str]], f"schema metadata {_HEADER_RECORDS_KEY.decode()}"
        )
    except FormatError as error:
        raise SchemaError(str(error)) from error
    records = tuple((kind, from_hex(payload, _HEADER_RECORDS_KEY)) for kind, payload in stored_records)
    if any(kind in list(HeaderRecord) or not -(1 << 31) <= kind < 1 << 31 for kind, _ in records):
        raise SchemaError(
            f"schema metadata {_HEADER_RECORDS_KEY.decode()}: a type that sawlog writes itself, or no i32"
        )
    return records


def from_hex(text: str, key: bytes) -> bytes:
    """Return bytes that schema metadata hold in hexadecimal.

    Raises:
        SchemaError: For any other text.
    """
    decoded = call_decoder(bytes.fromhex, text)
    if isinstance(decoded, Undecodable):
        raise SchemaError(f"schema metadata {key.decode()}: expected hexadecimal digits: {decoded.detail}")
    return decoded


def _choose_wider(earlier: tuple[str, LogColumn], later: tuple[str, LogColumn], widen: bool) -> tuple[str, LogColumn]:
    first, second = earlier[1].type, later[1].type
    if first is second:
        return earlier
    can_widen = any({BY_LOG[first].type, BY_LOG[second].type} <= set(ladder) for ladder in (INTEGERS, FLOATS))
    if widen and can_widen:
        return earlier if BY_LOG[first].width > BY_LOG[second].width else later
    hint = "; widen=True would allow Byte, Short, Int, Long and Float, Double to meet" if can_widen else ""
    raise SchemaError(
        f"column {earlier[1].name!r} is {first.title} in {earlier[0]} and {second.title} in {later[0]}:"
        f" read them apart{hint}"
    )


def _make_field(column: LogColumn, values: Sequence[str], rendering: Rendering, *, constant: bool) -> pa.Field:
    kind = choose_arrow_type(column, rendering)
    metadata = {TYPE_KEY: column.type.title.encode()}
    if column.charset:
        metadata[CHARSET_KEY] = column.charset.encode()
    if column.type is LogType.ENUM:
        metadata[ENUM_KEY] = json.dumps(list(values)).encode()
    if constant and column.constant is not None:
        metadata[CONSTANT_KEY] = column.constant.hex().encode()
    if pa.types.is_timestamp(kind):
        metadata[_UNIT_KEY] = kind.unit.encode()
    if column.type is LogType.BLOB and column.name in rendering.defined:
        defined = rendering.defined[column.name]
        facts = {CLASS_KEY: defined.data_type, CODEC_KEY: defined.codec, _CODEC_ARGUMENTS_KEY: defined.codec_arguments}
        metadata |= {key: value.encode() for key, value in facts.items() if value}
    return pa.field(column.name, kind, metadata=metadata)


def read_enum_table(field: pa.Field) -> tuple[str, ...] | None:
    """Return the table in the metadata of an Enum's field; None when there is none."""
    stored = (field.metadata or {}).get(ENUM_KEY)
    if stored is None:
        return None
    return tuple(parse_json_as(decode_json(stored), list[str], f"schema metadata {ENUM_KEY.decode()}"))


def make_constant_array(column: LogColumn, field: pa.Field, length: int) -> pa.Array:
    """Return a constant column: its value `length` times."""
    value = _decode_constant(column)
    if pa.types.is_dictionary(field.type):
        table = read_enum_table(field) or column.values
        index = None
        if isinstance(value, int) and 0 <= value < len(column.values):
            index = list(table).index(column.values[value])
        indices = make_constant(index, pa.int32(), length)
        return pa.DictionaryArray.from_arrays(indices, make_string_array(table))
    if column.type is LogType.CHAR and pa.types.is_string(field.type) and isinstance(value, int):
        value = decode_character(value)
    if pa.types.is_timestamp(field.type):
        return make_constant(value, pa.int64(), length).cast(field.type)
    return make_constant(value, field.type, length)


def _decode_constant(column: LogColumn) -> Any:
    data = column.constant or b""
    if column.width == 0:
        if data == layout.encode_null(column.type):
            return None
        payload = data[layout.COUNT_SIZE :]
        if column.type is LogType.BLOB:
            return payload
        return decode_string(payload, column.charset, "replace")
    return decode_value(column, data)


def decode_value(column: LogColumn, data: bytes) -> Any:
    """Return a fixed-width value, as stored, as a Python value; None for the pattern that stands for null."""
    scalar = layout.SCALARS[column.type]
    return None if scalar.is_null(data) else scalar.of(data)

"""Arrow fields as columns to write: which type a field is written as, and whether it can be."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pyarrow as pa

from sawlog.arrow import is_binary, is_text
from sawlog.deephaven.table.layout import COLUMN_NAME
from sawlog.deephaven.table.types import CHARSET_KEY, GUESS_KEY, ColumnSpec, parse_type
from sawlog.deephaven.text import find_charset
from sawlog.deephaven.types import ARRAYS, BOXED, BY_COLUMN, INTEGERS, MAPS, ColumnType
from sawlog.errors import SchemaError

_NATURAL = {BY_COLUMN[kind].arrow: kind for kind in (*BOXED, ColumnType.LOCAL_DATE)}
_ARRAYS = {row.arrow.value_type: kind for kind, row in ARRAYS.items()}
_MAPS = {row.arrow.item_type: kind for kind, row in MAPS.items()}


def choose_spec(
    field: pa.Field, types: Mapping[str, str], charset: str, defined: ColumnSpec | None = None
) -> ColumnSpec:
    """Return the column that a field is written as, by options, else a schema, else its metadata, else its Arrow type.

    Raises:
        SchemaError: When column files cannot hold it.
        OptionError: For an unknown type.
    """
    if not COLUMN_NAME.fullmatch(field.name):
        raise SchemaError(f"column {field.name!r}: names of columns are names of files: expected a Java identifier")
    if field.name in types:
        defined = parse_type(types[field.name], f"types: column {field.name!r}", charset)
    if defined is not None:
        if not fits(defined, field.type) and not _widens(defined, field.type):
            raise SchemaError(f"column {field.name!r} is {field.type}, which cannot be written as {defined.type.value}")
        return defined
    if GUESS_KEY in (field.metadata or {}):
        guess = field.metadata[GUESS_KEY].decode("utf-8", "replace")
        raise SchemaError(
            f"column {field.name!r}: its type was inferred when it was read ({guess}), and a guess is not written:"
            " name it with types= or schema=, for reading or for writing"
        )
    described = ColumnSpec.of_metadata(field.metadata)
    if CHARSET_KEY in (field.metadata or {}):  # of this format or another one
        charset = find_charset(field.metadata[CHARSET_KEY].decode("utf-8", "replace")) or charset
    spec = described if described is not None and fits(described, field.type) else _choose_natural_spec(field)
    return replace(spec, charset=charset)


def _widens(spec: ColumnSpec, kind: pa.DataType) -> bool:
    """Return whether values of another Arrow type can be cast, each of them or with an error, to a column's type."""
    if spec.type in INTEGERS:
        return bool(pa.types.is_integer(kind))
    return spec.type is ColumnType.DOUBLE and kind == pa.float32()


def fits(spec: ColumnSpec, kind: pa.DataType) -> bool:
    """Return whether values of an Arrow type can be written as a column's type."""
    if pa.types.is_null(kind):
        return True
    if pa.types.is_dictionary(kind):
        return spec.type is ColumnType.STRING and is_text(kind.value_type)
    if spec.type in (ColumnType.STRING, ColumnType.UTF8_STRING):
        return is_text(kind)
    if spec.type in (ColumnType.BLOB, ColumnType.BYTE_ARRAY):
        return is_binary(kind)
    if spec.type is ColumnType.DATE_TIME:
        return bool(pa.types.is_timestamp(kind)) or kind == pa.int64()
    if spec.type is ColumnType.CHAR:
        return kind == pa.uint16() or is_text(kind)
    if spec.type is ColumnType.ZONED_DATE_TIME:
        return bool(pa.types.is_timestamp(kind) and kind.tz is not None) or kind == spec.choose_arrow_type()
    if spec.type in (ColumnType.BIG_DECIMAL, ColumnType.BIG_INTEGER):
        return bool(pa.types.is_decimal(kind)) or is_text(kind)
    if spec.type is ColumnType.LOCAL_TIME:
        return bool(pa.types.is_time(kind))
    if spec.type is ColumnType.STRING_SET:
        return is_list(kind) and is_text(kind.value_type)
    expected = spec.choose_arrow_type()
    if pa.types.is_list(expected):
        return is_list(kind) and kind.value_type == expected.value_type
    if pa.types.is_map(expected):
        same_items = kind.item_type == expected.item_type if pa.types.is_map(kind) else False
        return same_items and is_text(kind.key_type)
    return bool(kind == expected)


def is_list(kind: pa.DataType) -> bool:
    """Return whether an Arrow type holds lists."""
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


def _choose_natural_spec(field: pa.Field) -> ColumnSpec:
    """Return the column that an Arrow type is written as when nothing else is said."""
    kind = field.type
    if is_text(kind) or (pa.types.is_dictionary(kind) and is_text(kind.value_type)):
        return ColumnSpec(ColumnType.STRING)
    if kind in _NATURAL:
        return ColumnSpec(_NATURAL[kind])
    if pa.types.is_timestamp(kind):
        return ColumnSpec(ColumnType.DATE_TIME)
    if pa.types.is_time(kind):
        return ColumnSpec(ColumnType.LOCAL_TIME)
    if is_binary(kind):
        return ColumnSpec(ColumnType.BYTE_ARRAY)
    if pa.types.is_decimal(kind) and 0 <= kind.scale <= kind.precision:
        return ColumnSpec(ColumnType.BIG_DECIMAL, arguments=f"{kind.precision},{kind.scale}")
    if is_list(kind) and kind.value_type in _ARRAYS:
        return ColumnSpec(_ARRAYS[kind.value_type])
    if pa.types.is_map(kind) and is_text(kind.key_type) and kind.item_type in _MAPS:
        return ColumnSpec(_MAPS[kind.item_type])
    raise SchemaError(f"column {field.name!r} is {kind}, which Deephaven's column files have no type for")

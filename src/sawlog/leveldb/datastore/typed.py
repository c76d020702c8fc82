"""Typed columns for entities: inferring Arrow types from values, and bringing values to them."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, TypeAlias

import pyarrow as pa

from sawlog.arrow import make_array
from sawlog.errors import SchemaError
from sawlog.guard import Undecodable, call_decoder
from sawlog.leveldb.datastore.layout import EXACT_INTEGER
from sawlog.leveldb.datastore.values import GeoPoint, Key, make_json_encoder

MAX_FIELDS = 2000
"""Properties, nested ones included, that typed columns can be made of: each entity takes room in each of them."""

Shape: TypeAlias = "str | tuple[str, Any]"
"""What is known of the values of a property: a scalar type's name, `("list", shape)` or `("map", {name: shape})`."""

_TYPE = b"sawlog.type"
_JSON = "json"
NULL = "null"

KEY_TYPE = pa.struct(
    [
        pa.field("project", pa.string(), nullable=False),
        pa.field("database", pa.string(), nullable=False),
        pa.field("namespace", pa.string(), nullable=False),
        pa.field("kind", pa.string(), nullable=False),
        pa.field("id", pa.int64()),
        pa.field("name", pa.string()),
        pa.field("key", pa.string(), nullable=False),
    ]
)

_ARROW = {
    "bool": pa.bool_(),
    "int64": pa.int64(),
    "large int64": pa.int64(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "timestamp": pa.timestamp("us", "UTC"),
    "geo point": pa.struct([pa.field(name, pa.float64(), nullable=False) for name in ("latitude", "longitude")]),
    "key": KEY_TYPE,
}


def find_shape(value: Any) -> Shape:
    """Return the shape of one value."""
    if value is None:
        return NULL
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, int):
        return "int64" if -EXACT_INTEGER <= value <= EXACT_INTEGER else "large int64"
    for kind, name in _KINDS:
        if isinstance(value, kind):
            return name
    if isinstance(value, list):
        shape: Shape = NULL
        for element in value:
            shape = unite(shape, find_shape(element))
        return ("list", shape)
    return ("map", {name: find_shape(element) for name, element in value.items()})


def unite(first: Shape, second: Shape) -> Shape:
    """Return the shape that holds the values of both without loss: JSON text where there is no better one."""
    if second in (first, NULL):
        return first
    if first == NULL:
        return second
    if isinstance(first, tuple) and isinstance(second, tuple) and first[0] == second[0]:
        if first[0] == "list":
            return ("list", unite(first[1], second[1]))
        return ("map", _unite_fields(first[1], second[1]))
    numbers = {str(first), str(second)}
    if numbers == {"int64", "double"}:
        return "double"
    if numbers == {"int64", "large int64"}:
        return "large int64"
    return _JSON


def _unite_fields(first: Mapping[str, Shape], second: Mapping[str, Shape]) -> dict[str, Shape]:
    """Return the fields of both; those of `first` come first."""
    united = dict(first)
    for name, shape in second.items():
        united[name] = unite(united.get(name, NULL), shape)
    check_fields(len(united))
    return united


def count_fields(shape: Shape) -> int:
    """Return the number of columns that a shape takes."""
    if not isinstance(shape, tuple):
        return 1
    return count_fields(shape[1]) if shape[0] == "list" else sum(map(count_fields, shape[1].values()))


def check_fields(count: int) -> None:
    """Refuse more columns than entities can be spread over.

    Raises:
        SchemaError: For more than `MAX_FIELDS`.
    """
    if count > MAX_FIELDS:
        raise SchemaError(
            f"properties='infer': the entities have {count} or more properties; at most {MAX_FIELDS} can be columns."
            " Read one kind (table=...), or leave them as JSON (properties='json')"
        )


def make_field(name: str, shape: Shape) -> pa.Field:
    """Return a shape as an Arrow field. JSON text is a string that says so in `sawlog.type`.

    That is also what becomes of properties that are always null, and of maps that are always empty, for which there is
    no type that all file formats have.
    """
    if isinstance(shape, tuple) and shape[0] == "list":
        return pa.field(name, pa.list_(make_field("element", shape[1])))
    if isinstance(shape, tuple) and shape[1]:
        return pa.field(name, pa.struct([make_field(*item) for item in shape[1].items()]))
    if isinstance(shape, str) and shape in _ARROW:
        return pa.field(name, _ARROW[shape])
    return pa.field(name, pa.string(), metadata={_TYPE: _JSON.encode()})


def make_converter(field: pa.Field) -> Callable[[Any], Any] | None:
    """Return a function that brings values to a field of `make_field`; `None` where they fit as they are."""
    if _is_json(field):
        encode = make_json_encoder()
        return lambda value: None if value is None else encode(value).decode()
    if pa.types.is_list(field.type):
        convert = make_converter(field.type.value_field)
        if convert is None:
            return None
        return lambda value: None if value is None else [convert(element) for element in value]
    if pa.types.is_struct(field.type):
        fields = {field.name: make_converter(field) for field in field.type}
        converters = {name: convert for name, convert in fields.items() if convert is not None}
        if converters:
            return lambda value: (
                None
                if value is None
                else {**value, **{name: convert(value.get(name)) for name, convert in converters.items()}}
            )
    return None


def read_typed(texts: pa.Array, fields: Sequence[pa.Field]) -> list[pa.Array] | None:
    """Return typed columns out of JSON objects, one a string without nulls, as `plain` renders them, by Arrow's reader.

    Returns:
        The columns, or `None` where values do not fit the fields, or have to stay JSON text.
    """
    from pyarrow.json import ParseOptions, ReadOptions, read_json

    if not len(texts):
        return [make_array([], field.type) for field in fields]
    data = texts.buffers()[2]
    schema = pa.schema([pa.field(field.name, _as_json(field)) for field in fields])
    table = call_decoder(
        read_json,
        data,
        ReadOptions(use_threads=False, block_size=data.size + 1),
        ParseOptions(schema, unexpected_field_behavior="ignore"),
    )
    if isinstance(table, Undecodable):
        return None
    return [_from_json(table.column(field.name).combine_chunks(), field) for field in fields]


def _is_json(field: pa.Field) -> bool:
    return bool(field.metadata) and field.metadata.get(_TYPE) == _JSON.encode()


def _as_json(field: pa.Field) -> pa.DataType:
    """Return the type by which Arrow's reader finds the values of a field; of JSON text, it finds only nulls."""
    kind = field.type
    if _is_json(field):
        return pa.null()
    if pa.types.is_list(kind):
        return pa.list_(_as_json(kind.value_field))
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(field.name, _as_json(field)) for field in kind])
    return pa.string() if pa.types.is_binary(kind) else kind


def _from_json(array: pa.Array, field: pa.Field) -> pa.Array:
    """Return an array of Arrow's JSON reader in the type of a field."""
    kind = field.type
    if pa.types.is_null(array.type):
        return pa.nulls(len(array), kind)
    if pa.types.is_binary(kind):
        return make_array([None if text is None else b64decode(text) for text in array.to_pylist()], kind)
    if pa.types.is_list(kind):
        values = _from_json(array.values, kind.value_field)
        return pa.Array.from_buffers(kind, len(array), array.buffers()[:2], array.null_count, array.offset, [values])
    if pa.types.is_struct(kind):
        columns = [_from_json(array.field(index), field) for index, field in enumerate(kind)]
        return pa.Array.from_buffers(kind, len(array), array.buffers()[:1], array.null_count, array.offset, columns)
    return array


_KINDS: tuple[tuple[type, str], ...] = (
    (float, "double"),
    (str, "string"),
    (bytes, "binary"),
    (datetime, "timestamp"),
    (GeoPoint, "geo point"),
    (Key, "key"),
)

"""Typed columns for entities: inferring Arrow types from values, and bringing values to them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, TypeAlias

import pyarrow as pa

from sawlog.leveldb_log.datastore.values import GeoPoint, Key, json_encoder

Shape: TypeAlias = "str | tuple[str, Any]"
"""What is known of the values of a property: a scalar type's name, `("list", shape)` or `("map", {name: shape})`."""

_TYPE = b"sawlog.type"
_JSON = "json"
NULL = "null"
_EXACT = 1 << 53
"""Integers up to this are doubles too."""

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


def shape_of(value: Any) -> Shape:
    """What one value tells."""
    if value is None:
        return NULL
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, int):
        return "int64" if -_EXACT <= value <= _EXACT else "large int64"
    for kind, name in _KINDS:
        if isinstance(value, kind):
            return name
    if isinstance(value, list):
        shape: Shape = NULL
        for element in value:
            shape = unite(shape, shape_of(element))
        return ("list", shape)
    return ("map", {name: shape_of(one) for name, one in value.items()})


def unite(one: Shape, other: Shape) -> Shape:
    """The shape that holds the values of both without loss: JSON text where there is no better one."""
    if other in (one, NULL):
        return one
    if one == NULL:
        return other
    if isinstance(one, tuple) and isinstance(other, tuple) and one[0] == other[0]:
        if one[0] == "list":
            return ("list", unite(one[1], other[1]))
        return ("map", unite_fields(one[1], other[1]))
    numbers = {str(one), str(other)}
    if numbers == {"int64", "double"}:
        return "double"
    if numbers == {"int64", "large int64"}:
        return "large int64"
    return _JSON


def unite_fields(one: Mapping[str, Shape], other: Mapping[str, Shape]) -> dict[str, Shape]:
    """The fields of both; those of `one` come first."""
    united = dict(one)
    for name, shape in other.items():
        united[name] = unite(united.get(name, NULL), shape)
    return united


def shape_field(name: str, shape: Shape) -> pa.Field:
    """A shape as an Arrow field. JSON text is a string that says so in `sawlog.type`.

    That is also what becomes of properties that are always null, and of maps that are always empty, for which there is
    no type that all file formats have.
    """
    if isinstance(shape, tuple) and shape[0] == "list":
        return pa.field(name, pa.list_(shape_field("element", shape[1])))
    if isinstance(shape, tuple) and shape[1]:
        return pa.field(name, pa.struct([shape_field(*item) for item in shape[1].items()]))
    if isinstance(shape, str) and shape in _ARROW:
        return pa.field(name, _ARROW[shape])
    return pa.field(name, pa.string(), metadata={_TYPE: _JSON.encode()})


def converter(field: pa.Field) -> Callable[[Any], Any] | None:
    """What brings values to a field of `shape_field`; `None` where they fit as they are."""
    if field.metadata and field.metadata.get(_TYPE) == _JSON.encode():
        encode = json_encoder()
        return lambda value: None if value is None else encode(value).decode()
    if pa.types.is_list(field.type):
        convert = converter(field.type.value_field)
        if convert is None:
            return None
        return lambda value: None if value is None else [convert(element) for element in value]
    if pa.types.is_struct(field.type):
        fields = {one.name: converter(one) for one in field.type}
        converters = {name: convert for name, convert in fields.items() if convert is not None}
        if converters:
            return lambda value: None if value is None else _convert_fields(value, converters)
    return None


def _convert_fields(value: Mapping[str, Any], converters: Mapping[str, Callable[[Any], Any]]) -> dict[str, Any]:
    converted = dict(value)
    for name, convert in converters.items():
        converted[name] = convert(value.get(name))
    return converted


_KINDS: tuple[tuple[type, str], ...] = (
    (float, "double"),
    (str, "string"),
    (bytes, "binary"),
    (datetime, "timestamp"),
    (GeoPoint, "geo point"),
    (Key, "key"),
)

"""Fields as metadata describes them: in protobuf, and in the spellings of JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import pyarrow as pa

from sawlog.errors import FormatError, OptionError, SchemaError
from sawlog.milvus_binlog import layout
from sawlog.milvus_binlog.layout import DataType
from sawlog.milvus_binlog.metadata import shape, wire
from sawlog.milvus_binlog.metadata.model import reading
from sawlog.milvus_binlog.types import Field, data_type
from sawlog.storage import Storage

_ALIVE = (0, 1)
"""States of fields that are there: created, and being created."""
_STRUCTS = ("struct_array_fields", "struct_fields", "structArrayFields")


def user_schema(given: Mapping[str, Any] | str, storage: Storage) -> tuple[str, tuple[Field, ...]]:
    """Name and fields of a schema given by the user: what pymilvus' `CollectionSchema.to_dict` gives, or its JSON.

    Args:
        given: The schema, its JSON, or the path of a file of it.
        storage: Where such a file is.

    Raises:
        OptionError: When it is none of these.
    """
    if isinstance(given, str):
        try:
            text = given if given.lstrip().startswith("{") else storage.read(given)
            given = shape.parsed(text, "its text")
        except (FormatError, OSError) as error:
            raise OptionError(f"schema={given!r}: expected JSON, or the path of a JSON file: {error}") from None
    if not isinstance(given, Mapping) or not isinstance(given.get("fields"), list):
        raise OptionError("schema: expected an object with a list `fields`, as of pymilvus' CollectionSchema.to_dict()")
    try:
        return str(given.get("name", "")), json_fields(given)
    except FormatError as error:
        raise OptionError(f"schema: {error}") from None


def json_fields(schema: Mapping[str, Any]) -> tuple[Field, ...]:
    """Fields of a schema in JSON, in whichever spelling; ids are counted from 100 where they are left out.

    Raises:
        FormatError: Names the field that is none.
    """
    fields: list[Field] = []
    auto = bool(schema.get("auto_id") or schema.get("autoID"))

    def following() -> int:
        return max([layout.FIRST_USER_FIELD - 1, *(one.id for one in fields)]) + 1

    for at, given in enumerate(shape.listing(schema["fields"], "'fields'")):
        with reading(f"field {given.get('name', at) if isinstance(given, Mapping) else at!r}"):
            fields.append(_json_field(shape.mapping(given, "its entry"), following(), auto=auto))
    structs = next((schema[key] for key in _STRUCTS if schema.get(key)), None)
    for at, struct in enumerate(shape.listing(structs, "structs")):
        with reading(f"struct {struct.get('name', at) if isinstance(struct, Mapping) else at!r}"):
            name = str(shape.required(shape.mapping(struct, "its entry"), "name"))
            for given in shape.mappings(shape.required(struct, "fields"), "'fields'"):
                field = _json_field(given, following(), auto=False)
                fields.append(_within(name, bool(struct.get("nullable")), field))
    if schema.get("enable_dynamic_field") and not any(one.dynamic for one in fields):
        fields.append(Field(following(), layout.DYNAMIC_NAME, DataType.JSON, dynamic=True))
    return checked(one for one in fields if one.id not in layout.SYSTEM_FIELDS)


def _json_field(given: Mapping[str, Any], following: int, *, auto: bool) -> Field:
    params = given.get("params") or given.get("type_params") or {}
    if isinstance(params, list):
        pairs = (shape.mapping(pair, "a parameter") for pair in params)
        params = {str(shape.required(pair, "key")): shape.required(pair, "value") for pair in pairs}
    params = shape.mapping(params, "its parameters")
    kind = next((given[key] for key in ("dtype", "type") if key in given), None)
    kind = shape.required(given, "data_type") if kind is None else kind
    element = given.get("element_type") or DataType.None_
    id = next(
        (shape.number(given, key) for key in ("fieldID", "field_id", "id") if given.get(key) is not None), following
    )
    primary = bool(given.get("is_primary_key") or given.get("is_primary"))
    default = given.get("default_value")
    if isinstance(default, Mapping):
        found = default.get("Data", default)  # Go's name of a oneof
        default = next((value for value in found.values()), None) if isinstance(found, Mapping) else found
    return Field(
        id=id,
        name=str(shape.required(given, "name")),
        type=data_type(kind),
        element=data_type(element),
        dim=shape.number(params, "dim"),
        nullable=bool(given.get("nullable")),
        primary=primary,
        auto_id=primary and (auto or bool(given.get("auto_id") or given.get("autoID"))),
        dynamic=bool(given.get("is_dynamic")),
        default=default,
        max_length=shape.number(params, "max_length"),
        computed=bool(given.get("is_function_output")),
    )


def wire_fields(schema: wire.Message, apart: Iterable[bytes], structs_apart: Iterable[bytes]) -> tuple[Field, ...]:
    """Fields of a schema in protobuf that are not dropped: those within it, and those under keys of their own.

    Raises:
        FormatError: Names the field that is none.
    """
    fields = [_wire_field(one) for one in (*wire.messages(schema, 4), *apart)]
    for raw in (*wire.messages(schema, 9), *structs_apart):
        struct = wire.decode(raw, "a struct")
        name, nullable = wire.text(struct, 2), bool(wire.integer(struct, 6))
        found = (_wire_field(one) for one in wire.messages(struct, 4))
        fields += [_within(name, nullable, one) for one in found if one is not None]
    there = {one.id: one for one in fields if one is not None and one.id not in layout.SYSTEM_FIELDS}
    return checked(sorted(there.values(), key=lambda one: one.id))


def _wire_field(raw: bytes) -> Field | None:
    """One field; `None` for one that is dropped."""
    message = wire.decode(raw, "a field")
    if wire.integer(message, 9) not in _ALIVE:
        return None
    name = wire.text(message, 2)
    with reading(f"field {name!r}"):
        pairs = [wire.decode(one, "type_params") for one in wire.messages(message, 6)]
        params = {wire.text(pair, 1): wire.text(pair, 2) for pair in pairs}
        kind = wire.integer(message, 5)
        return Field(
            id=wire.integer(message, 1),
            name=name,
            type=DataType(kind) if kind in DataType.__members__.values() else DataType.None_,
            element=data_type(wire.integer(message, 10)),
            dim=shape.number(params, "dim"),
            nullable=bool(wire.integer(message, 15)),
            primary=bool(wire.integer(message, 3)),
            auto_id=bool(wire.integer(message, 8)),
            dynamic=bool(wire.integer(message, 12)),
            default=_default(wire.raw(message, 11)) if 11 in message else None,
            max_length=shape.number(params, "max_length"),
            computed=bool(wire.integer(message, 16)),
        )


def _within(struct: str, nullable: bool, field: Field) -> Field:
    """A field of a struct, under the name that Milvus gives to its column."""
    name = field.name if field.name.startswith(f"{struct}[") else f"{struct}[{field.name}]"
    return replace(field, name=name, nullable=field.nullable or nullable)


def _default(raw: bytes) -> Any:
    """A protobuf `ValueField`; numbers that are 0 are not written, but their field is."""
    value = wire.decode(raw, "default_value")
    if 1 in value:
        return bool(wire.integer(value, 1))
    for number in (2, 3, 8, 9, 10):  # int, long, timestamptz, date, time
        if number in value:
            return wire.integer(value, number)
    for number in (4, 5):
        if number in value:
            return wire.floating(value, number)
    if 6 in value:
        return wire.text(value, 6)
    return wire.raw(value, 7) if 7 in value else None


def checked(fields: Iterable[Field]) -> tuple[Field, ...]:
    """Fields that can be: with names of their own, dimensions that vectors have, and defaults of their types.

    Raises:
        FormatError: Names the one that cannot.
    """
    found = tuple(fields)
    for what, counted in (("name", Counter(one.name for one in found)), ("id", Counter(one.id for one in found))):
        twice = [value for value, count in counted.items() if count > 1]
        if twice:
            raise FormatError(f"the {what} {twice[0]!r} occurs twice among the fields")
    for one in found:
        with reading(f"field {one.name!r}"):
            if not 0 <= one.dim <= layout.MAX_DIMENSIONS:
                raise FormatError(f"{one.dim} dimensions; expected 1 to {layout.MAX_DIMENSIONS}")
            if one.default is not None:
                typed_default(one)
    return found


def typed_default(field: Field) -> pa.Scalar:
    """What a missing value reads as.

    Raises:
        SchemaError: When it is not of the field's type.
    """
    value = field.default
    if isinstance(value, bytes) and pa.types.is_string(field.arrow_type()):
        value = value.decode("utf-8", "replace")
    kind = field.arrow_type()
    try:
        return pa.scalar(value, kind)
    except (pa.ArrowException, OverflowError, TypeError, ValueError) as error:
        raise SchemaError(f"the default {field.default!r} is no {field.type.name}: {error}") from None

"""Fields as metadata describes them: in protobuf, and in the spellings of JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import pyarrow as pa

from sawlog.arrow import make_scalar
from sawlog.errors import FormatError, OptionError, SchemaError
from sawlog.milvus import layout
from sawlog.milvus.layout import DataType
from sawlog.milvus.metadata import shape
from sawlog.milvus.metadata.messages import FieldSchema, StructArrayFieldSchema
from sawlog.milvus.metadata.model import locate_errors
from sawlog.milvus.types import Field, parse_data_type
from sawlog.storage import Storage

_ALIVE = (0, 1)
"""States of fields that are there: created, and being created."""
_STRUCTS = ("struct_array_fields", "struct_fields", "structArrayFields")


def parse_user_schema(schema: Mapping[str, Any] | str, storage: Storage) -> tuple[str, tuple[Field, ...]]:
    """Return the name and fields of a user's schema: what pymilvus' `CollectionSchema.to_dict` makes, JSON, or a path.

    Raises:
        OptionError: When it is none of these.
    """
    if isinstance(schema, str):
        try:
            text = schema if schema.lstrip().startswith("{") else storage.read(schema)
            schema = shape.parse_json(text, "its text")
        except (FormatError, OSError) as error:
            raise OptionError(f"schema={schema!r}: expected JSON, or the path of a JSON file: {error}") from None
    if not isinstance(schema, Mapping) or not isinstance(schema.get("fields"), list):
        raise OptionError("schema: expected an object with a list `fields`, as of pymilvus' CollectionSchema.to_dict()")
    try:
        return str(schema.get("name", "")), parse_json_fields(schema)
    except FormatError as error:
        raise OptionError(f"schema: {error}") from None


def parse_json_fields(schema: Mapping[str, Any]) -> tuple[Field, ...]:
    """Return fields of a schema in JSON, in whichever spelling; ids are counted from 100 where they are left out.

    Raises:
        FormatError: Names the field that is none.
    """
    fields: list[Field] = []
    auto = bool(schema.get("auto_id") or schema.get("autoID"))

    def find_next_id() -> int:
        return max([layout.FIRST_USER_FIELD - 1, *(field.id for field in fields)]) + 1

    for index, mapping in enumerate(shape.require_list(schema["fields"], "'fields'")):
        with locate_errors(f"field {mapping.get('name', index) if isinstance(mapping, Mapping) else index!r}"):
            fields.append(_parse_json_field(shape.require_mapping(mapping, "its entry"), find_next_id(), auto=auto))
    structs = next((schema[key] for key in _STRUCTS if schema.get(key)), None)
    for index, struct in enumerate(shape.require_list(structs, "structs")):
        with locate_errors(f"struct {struct.get('name', index) if isinstance(struct, Mapping) else index!r}"):
            name = str(shape.require(shape.require_mapping(struct, "its entry"), "name"))
            for mapping in shape.require_mappings(shape.require(struct, "fields"), "'fields'"):
                field = _parse_json_field(mapping, find_next_id(), auto=False)
                fields.append(_qualify_field(name, bool(struct.get("nullable")), field))
    if schema.get("enable_dynamic_field") and not any(field.dynamic for field in fields):
        fields.append(Field(find_next_id(), layout.DYNAMIC_NAME, DataType.JSON, dynamic=True))
    return check_fields(field for field in fields if field.id not in layout.SYSTEM_FIELDS)


def _parse_json_field(entry: Mapping[str, Any], following: int, *, auto: bool) -> Field:
    params = entry.get("params") or entry.get("type_params") or {}
    if isinstance(params, list):
        pairs = (shape.require_mapping(pair, "a parameter") for pair in params)
        params = {str(shape.require(pair, "key")): shape.require(pair, "value") for pair in pairs}
    params = shape.require_mapping(params, "its parameters")
    kind = next((entry[key] for key in ("dtype", "type") if key in entry), None)
    kind = shape.require(entry, "data_type") if kind is None else kind
    element = entry.get("element_type") or DataType.None_
    id = next(
        (shape.read_number(entry, key) for key in ("fieldID", "field_id", "id") if entry.get(key) is not None),
        following,
    )
    primary = bool(entry.get("is_primary_key") or entry.get("is_primary"))
    default = entry.get("default_value")
    if isinstance(default, Mapping):
        value = default.get("Data", default)  # Go's name of a oneof
        default = next((value for value in value.values()), None) if isinstance(value, Mapping) else value
    return Field(
        id=id,
        name=str(shape.require(entry, "name")),
        type=parse_data_type(kind),
        element=parse_data_type(element),
        dim=shape.read_number(params, "dim"),
        nullable=bool(entry.get("nullable")),
        primary=primary,
        auto_id=primary and (auto or bool(entry.get("auto_id") or entry.get("autoID"))),
        dynamic=bool(entry.get("is_dynamic")),
        default=default,
        max_length=shape.read_number(params, "max_length"),
        computed=bool(entry.get("is_function_output")),
    )


def convert_messages(messages: Iterable[FieldSchema], structs: Iterable[StructArrayFieldSchema]) -> tuple[Field, ...]:
    """Return fields that are not dropped, those of structs after all others.

    Raises:
        FormatError: Names the field that is not one.
    """
    fields = [_convert_message(message) for message in messages]
    for struct in structs:
        struct_fields = (_convert_message(field) for field in struct.fields)
        fields += [_qualify_field(struct.name, struct.nullable, field) for field in struct_fields if field is not None]
    by_id = {field.id: field for field in fields if field is not None and field.id not in layout.SYSTEM_FIELDS}
    return check_fields(sorted(by_id.values(), key=lambda field: field.id))


def _convert_message(message: FieldSchema) -> Field | None:
    """Return a field; `None` for one that is dropped."""
    if message.state not in _ALIVE:
        return None
    with locate_errors(f"field {message.name!r}"):
        params = {pair.key: pair.value for pair in message.type_params}
        kind = message.data_type
        return Field(
            id=message.id,
            name=message.name,
            type=DataType(kind) if kind in DataType.__members__.values() else DataType.None_,
            element=parse_data_type(message.element_type),
            dim=shape.read_number(params, "dim"),
            nullable=message.nullable,
            primary=message.is_primary_key,
            auto_id=message.auto_id,
            dynamic=message.is_dynamic,
            default=message.default_value.find_first(),
            max_length=shape.read_number(params, "max_length"),
            computed=message.is_function_output,
        )


def _qualify_field(struct: str, nullable: bool, field: Field) -> Field:
    """Return a field of a struct, under the name that Milvus gives to its column."""
    name = field.name if field.name.startswith(f"{struct}[") else f"{struct}[{field.name}]"
    return replace(field, name=name, nullable=field.nullable or nullable)


def check_fields(fields: Iterable[Field]) -> tuple[Field, ...]:
    """Return fields that can be: with names of their own, dimensions that vectors have, and defaults of their types.

    Raises:
        FormatError: Names the one that cannot.
    """
    all_fields = tuple(fields)
    for role, counted in (
        ("name", Counter(field.name for field in all_fields)),
        ("id", Counter(field.id for field in all_fields)),
    ):
        twice = [value for value, count in counted.items() if count > 1]
        if twice:
            raise FormatError(f"the {role} {twice[0]!r} occurs twice among the fields")
    for field in all_fields:
        with locate_errors(f"field {field.name!r}"):
            if not 0 <= field.dim <= layout.MAX_DIMENSIONS:
                raise FormatError(f"{field.dim} dimensions; expected 1 to {layout.MAX_DIMENSIONS}")
            if field.default is not None:
                make_default(field)
    return all_fields


def make_default(field: Field) -> pa.Scalar:
    """Return the value that a missing value reads as.

    Raises:
        SchemaError: When it is not of the field's type.
    """
    value = field.default
    if isinstance(value, bytes) and pa.types.is_string(field.choose_arrow_type()):
        value = value.decode("utf-8", "replace")
    kind = field.choose_arrow_type()
    try:
        return make_scalar(value, kind)
    except (pa.ArrowException, OverflowError, TypeError, ValueError) as error:
        raise SchemaError(f"the default {field.default!r} is no {field.type.name}: {error}") from None

"""Entities as Python values: keys, and properties of all types; and as JSON.

| Datastore           | Python                   | JSON                                             |
|---------------------|--------------------------|--------------------------------------------------|
| null                | None                     | null                                             |
| boolean             | bool                     | true, false                                      |
| integer             | int                      | number                                           |
| double              | float, `NotFinite`       | number; "NaN", "Infinity", "-Infinity"           |
| string              | str                      | string                                           |
| blob, byte string   | bytes                    | string, base64                                   |
| timestamp           | datetime (UTC)           | string, RFC 3339                                 |
| geo point           | `GeoPoint`               | {"latitude": …, "longitude": …}                  |
| key, reference      | `Key`                    | {"project": …, …, "key": "kind/name/kind/id"}    |
| user                | dict                     | {"email": …, …}                                  |
| nested entity, map  | dict                     | object; a key, if it has one, as `__key__`       |
| array, vector       | list                     | array                                            |

A string that is no UTF-8 counts as a byte string; a timestamp outside the years 1 to 9999 stays an integer.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from functools import cache
from typing import Any

from sawlog.guard import EPOCH, Undecodable, call_decoder, import_optional
from sawlog.kernels.varints import encode_varint
from sawlog.leveldb.datastore import layout
from sawlog.leveldb.datastore.layout import MESSAGES

_PACKAGE = "sawlog.datastore"


@cache
def find_message_class(name: str) -> Any:
    """Return the class of a message in `MESSAGES`.

    Raises:
        OptionError: When the packages that the view `entities` needs are not installed.
    """
    message_factory = import_optional("google.protobuf.message_factory", "datastore", "reading Datastore entities")
    return message_factory.GetMessageClass(_make_pool().FindMessageTypeByName(f"{_PACKAGE}.{name}"))


@cache
def _make_pool() -> Any:
    """Return a pool of our own: the same messages may exist in the default one, made by the vendor."""
    from google.protobuf import descriptor_pb2, descriptor_pool

    field_type = descriptor_pb2.FieldDescriptorProto
    # As in proto2, but text that is no UTF-8 is an error of the record, and not bytes where text is expected.
    file = descriptor_pb2.FileDescriptorProto(
        name="sawlog/datastore.proto", package=_PACKAGE, syntax="editions", edition=descriptor_pb2.EDITION_2023
    )
    for name, fields in MESSAGES.items():
        message = file.message_type.add(name=name)
        if any(spec.oneof for spec in fields.values()):
            message.oneof_decl.add(name="kind")
        for field_name, spec in fields.items():
            field = message.field.add(
                name=field_name,
                number=spec.number,
                type=getattr(field_type, f"TYPE_{'MESSAGE' if spec.kind == 'group' else spec.kind.upper()}"),
                label=field_type.LABEL_REPEATED if spec.repeated else field_type.LABEL_OPTIONAL,
            )
            if spec.kind == "group":
                field.options.features.message_encoding = descriptor_pb2.FeatureSet.DELIMITED
            if spec.message:
                field.type_name = f".{_PACKAGE}.{spec.message}"
            if spec.oneof:
                field.oneof_index = 0
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return pool


KEY_PROPERTY = "__key__"


class EntityError(Exception):
    """Bytes that are no entity."""


class NotFinite(float):
    """A double that JSON has no number for."""

    __slots__ = ()


class GeoPoint(dict[str, float]):
    """Latitude and longitude."""

    __slots__ = ()


class Key(dict[str, Any]):
    """A key: project, database, namespace, kind, id or name, and the whole path as text."""

    __slots__ = ()


class EntityDecoder:
    """Decodes entities.

    Raises:
        OptionError: When the packages that it needs are not installed.
    """

    def __init__(self) -> None:
        self._entities = find_message_class("Entities")
        self._entity = find_message_class("EntityProto")
        # What kind of value a property had last: asking for it directly is cheaper than asking what is there.
        self._guesses: dict[str, str] = {}

    def parse(self, records: Sequence[bytes]) -> list[Any]:
        """Return records as messages; an `EntityError` takes the place of each one that is not an entity."""
        tag, lengths = layout.ENTITIES_TAG, map(encode_varint, map(len, records))
        framed = b"".join(
            [part for record, length in zip(records, lengths, strict=True) for part in (tag, length, record)]
        )
        message = call_decoder(self._entities.FromString, framed)
        if isinstance(message, Undecodable):
            entities = [call_decoder(self._entity.FromString, record) for record in records]
            return [
                EntityError(f"expected an EntityProto message: {entity.detail}")
                if isinstance(entity, Undecodable)
                else entity
                for entity in entities
            ]
        return list(message.entity)

    def decode_key(self, message: Any) -> Key:
        """Return the key of an entity.

        Raises:
            EntityError: When it has none.
        """
        reference = message.key
        elements = reference.path.element
        if not elements:
            raise EntityError("expected an entity with a key")
        return _decode_key(reference, elements)

    def decode_properties(self, message: Any, depth: int = 0) -> dict[str, Any]:
        """Return the properties of an entity, by name; arrays as lists.

        Raises:
            EntityError: For nested bytes that are no entity, or are nested too deep.
        """
        values: dict[str, Any] = {}
        guesses = self._guesses
        for properties in (message.property, message.raw_property):
            for prop in properties:
                name = prop.name
                holder = prop.value
                kind = guesses.get(name)
                # Of values that exclude each other all but one are 0 or empty.
                value: Any = getattr(holder, kind) if kind is not None else None
                if not value:
                    kind = holder.WhichOneof("kind")
                    if kind in _SCALARS:
                        guesses[name] = kind
                    value = getattr(holder, kind) if kind is not None else None
                if kind == "string":
                    meaning = prop.meaning
                    if meaning == _ENTITY:
                        value = self._decode_nested(value, depth + 1)
                    elif meaning not in _BYTES:
                        value = _decode_text(value)
                elif kind == "int64":
                    if prop.meaning == _TIMESTAMP:
                        value = _decode_timestamp(value)
                elif kind == "double":
                    if not math.isfinite(value):
                        value = NotFinite(value)
                elif kind is None:
                    if prop.meaning == _EMPTY_LIST:
                        values.setdefault(name, [])
                        continue
                elif kind != "boolean":
                    value = _decode_composite(kind, value)
                if prop.multiple:
                    array = values.setdefault(name, [])
                    if type(array) is list:
                        array.append(value)
                    else:
                        values[name] = [array, value]
                else:
                    values[name] = value
        return values

    def _decode_nested(self, value: bytes, depth: int) -> Any:
        if depth > layout.MAX_DEPTH:
            raise EntityError(f"entities nested more than {layout.MAX_DEPTH} deep")
        message = call_decoder(self._entity.FromString, value)
        if isinstance(message, Undecodable):
            raise EntityError(f"expected a nested EntityProto message: {message.detail}")
        nested = self.decode_properties(message, depth)
        if nested.keys() == {layout.VECTOR_PROPERTY}:
            vector = nested[layout.VECTOR_PROPERTY]
            return vector if isinstance(vector, list) else [vector]
        if message.key.path.element:
            nested[KEY_PROPERTY] = self.decode_key(message)
        return nested


def decode_path(message: Any) -> list[dict[str, Any]]:
    """Return the path of an entity's key: kind and id or name of each step, ancestors first."""
    return [
        {"kind": step.type, "id": step.id if step.HasField("id") else None, "name": step.name or None}
        for step in message.key.path.element
    ]


@cache
def make_json_encoder() -> Callable[[Any], bytes]:
    """Return a function that makes JSON text of values.

    Raises:
        OptionError: When the package that it needs is not installed.
    """
    orjson = import_optional("orjson", "datastore", "reading Datastore entities")
    flags = orjson.OPT_PASSTHROUGH_SUBCLASS | orjson.OPT_UTC_Z

    def encode(value: Any) -> bytes:
        text: bytes = orjson.dumps(value, _convert_for_json, flags)
        return text

    return encode


def _convert_for_json(value: Any) -> Any:
    """Return a value that orjson does not know as one that it does."""
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, NotFinite):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, dict):
        return dict(value)
    raise TypeError(type(value).__name__)


def _decode_key(reference: Any, elements: Any) -> Key:
    last = elements[-1]
    name = last.name
    steps = [part for step in elements for part in (step.type, step.name or str(step.id))]
    return Key(
        project=reference.app.rpartition("~")[2],
        database=reference.database_id,
        namespace=reference.name_space,
        kind=last.type,
        id=None if name or not last.HasField("id") else last.id,
        name=name or None,
        key="/".join(steps),
    )


def _decode_composite(kind: str, value: Any) -> Any:
    if kind == "pointvalue":
        return GeoPoint(latitude=value.x, longitude=value.y)
    if kind == "uservalue":
        return {
            "email": value.email,
            "auth_domain": value.auth_domain,
            "nickname": value.nickname or None,
            "user_id": value.obfuscated_gaiaid or None,
        }
    if not value.pathelement:
        raise EntityError("expected a reference with a path")
    return _decode_key(value, value.pathelement)


def _decode_text(value: bytes) -> str | bytes:
    text = call_decoder(bytes.decode, value)
    return value if isinstance(text, Undecodable) else text


def _decode_timestamp(micros: int) -> datetime | int:
    try:
        return EPOCH + timedelta(0, 0, micros)
    except OverflowError:
        return micros


_TIMESTAMP = layout.MEANING_TIMESTAMP
_ENTITY = layout.MEANING_ENTITY
_BYTES = (layout.MEANING_BLOB, layout.MEANING_BYTESTRING)
_EMPTY_LIST = layout.MEANING_EMPTY_LIST
_SCALARS = frozenset({"int64", "boolean", "string", "double"})

"""Entities for tests, encoded by Google's own App Engine library; and the metadata of exports, by hand."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

from google.appengine.datastore import entity_bytes_pb2 as pb

from tests.bytes import encode_varint

from .fragments import write

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Blob(bytes):
    """Bytes with the meaning of a blob."""


class ByteString(bytes):
    """Bytes with the meaning of a byte string."""


class Raw(bytes):
    """Bytes that claim to be text."""


class Geo(NamedTuple):
    latitude: float
    longitude: float


class Reference(NamedTuple):
    app: str
    path: list[tuple[str, str | int]]
    namespace: str = ""
    database: str = ""


class User(NamedTuple):
    email: str
    domain: str


class Vector(list):
    """Numbers that are stored as a vector."""


class Nested(NamedTuple):
    """A nested entity with a key of its own."""

    key: Reference
    properties: dict[str, Any]


def entity(
    properties: dict[str, Any],
    path: list[tuple[str, str | int]] | None = None,
    app: str = "s~demo",
    namespace: str = "",
    database: str = "",
    *,
    indexed: bool = False,
) -> bytes:
    """An entity as it is in an export."""
    message = pb.EntityProto()
    message.key.app = app
    if namespace:
        message.key.name_space = namespace
    if database:
        message.key.database_id = database
    message.key.path.SetInParent()
    message.entity_group.SetInParent()
    for kind, name in [("users", "alice")] if path is None else path:
        step = message.key.path.element.add()
        step.type = kind
        if isinstance(name, int):
            step.id = name
        else:
            step.name = name
    for name, value in properties.items():
        if isinstance(value, list) and not isinstance(value, Vector):
            if not value:
                add(message, name, None, indexed=True, meaning=pb.Property.EMPTY_LIST)
            for element in value:
                add(message, name, element, multiple=True, indexed=indexed)
        else:
            add(message, name, value, indexed=indexed)
    return message.SerializeToString()


def add(
    message: Any, name: str, value: Any, *, multiple: bool = False, indexed: bool = False, meaning: int | None = None
) -> None:
    protobuf_property = (message.property if indexed else message.raw_property).add()
    protobuf_property.name = name
    protobuf_property.multiple = multiple
    protobuf_property.value.SetInParent()
    if isinstance(value, bool):
        protobuf_property.value.booleanValue = value
    elif isinstance(value, int):
        protobuf_property.value.int64Value = value
    elif isinstance(value, float):
        protobuf_property.value.doubleValue = value
    elif isinstance(value, str):
        protobuf_property.value.stringValue = value.encode()
    elif isinstance(value, bytes):
        protobuf_property.value.stringValue = value
        if not isinstance(value, Raw):
            meaning = pb.Property.BLOB if isinstance(value, Blob) else pb.Property.BYTESTRING
    elif isinstance(value, datetime):
        protobuf_property.value.int64Value = (value - EPOCH) // timedelta(microseconds=1)
        meaning = pb.Property.GD_WHEN
    elif isinstance(value, Geo):
        protobuf_property.value.pointvalue.x, protobuf_property.value.pointvalue.y = value
        meaning = pb.Property.GEORSS_POINT
    elif isinstance(value, Reference):
        add_reference(protobuf_property.value.referencevalue, value)
    elif isinstance(value, User):
        protobuf_property.value.uservalue.email, protobuf_property.value.uservalue.auth_domain = value
        protobuf_property.value.uservalue.gaiaid = 0
    elif value is not None:
        protobuf_property.value.stringValue = nested(value)
        meaning = pb.Property.ENTITY_PROTO
    if meaning is not None:
        protobuf_property.meaning = meaning


def add_reference(message: Any, value: Reference) -> None:
    message.app = value.app
    if value.namespace:
        message.name_space = value.namespace
    if value.database:
        message.database_id = value.database
    for kind, name in value.path:
        step = message.pathelement.add()
        step.type = kind
        if isinstance(name, int):
            step.id = name
        else:
            step.name = name


def nested(value: Any) -> bytes:
    if isinstance(value, Vector):
        return entity({"__vector__": list(value)}, [], "")
    if isinstance(value, Nested):
        key = value.key
        return entity(value.properties, key.path, key.app, key.namespace, key.database)
    return entity(value, [], "")


def field(number: int, value: int | bytes) -> bytes:
    if isinstance(value, int):
        return encode_varint(number << 3) + encode_varint(value)
    return encode_varint(number << 3 | 2) + encode_varint(len(value)) + value


def save_export(
    place: Path,
    kinds: dict[str, list[list[bytes]]],
    start: int = 1_700_000_000_000_000,
    *,
    label: bytes = b"",
    slash: str = "/",
) -> Path:
    """An export as Google lays it out: per kind a directory with the records of its data files. Returns its root.

    Managed exports have the label `__all__`; the emulator on Windows writes backslashes in paths.
    """
    root = place / "2024-export"
    pointers = b""
    for kind, files in kinds.items():
        directory = root / "default_namespace" / f"kind_{kind}"
        directory.mkdir(parents=True)
        outputs = b""
        for number, records in enumerate(files):
            (directory / f"output-{number}").write_bytes(write(*records))
            outputs += field(2, b"output-%d" % number)
        name = f"default_namespace_kind_{kind}.export_metadata"
        (directory / name).write_bytes(
            field(1, field(1, b"2024-export") + field(2, start) + field(3, start + 9))
            + field(2, field(1, label) + outputs)
        )
        counted = sum(map(len, files))
        path = slash.join(("default_namespace", f"kind_{kind}", name))
        pointer = field(2, path.encode()) + field(3, counted) + field(4, 1000)
        pointers += field(1, field(1, field(1, 2) + field(3, 3)) + pointer)
    root.mkdir(exist_ok=True)
    (root / "2024-export.overall_export_metadata").write_bytes(write(b"\x33", pointers))
    return root

"""Every number of Datastore and Firestore exports: protobuf messages, meanings of properties, names of files.

An export is a directory with `<name>.overall_export_metadata` (a log) and, for each kind, a directory with an
`.export_metadata` file (a bare protobuf message) and the data, `output-0`, `output-1` and so on (logs, one
`EntityProto` per record).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

Kind = Literal["int32", "int64", "bool", "bytes", "string", "double", "group", "message"]


@dataclass(frozen=True, slots=True)
class ProtoField:
    """Field of a protobuf message.

    Attributes:
        number: Its number on the wire.
        kind: Its type; a group is a message between two tags.
        message: The message, for `group` and `message`.
        repeated: Whether it may occur more than once.
        oneof: Whether it is one of the values that exclude each other.
    """

    number: int
    kind: Kind
    message: str = ""
    repeated: bool = False
    oneof: bool = False


WIRE_TYPES = {"int32": 0, "int64": 0, "bool": 0, "double": 1, "bytes": 2, "string": 2, "message": 2, "group": 3}
"""The low three bits of what precedes a field."""
GROUP_END = 1
"""How much greater the tag that ends a group is than the tag that begins it."""

_KEY_NUMBERS = {"app": 13, "name_space": 20, "database_id": 23}

MESSAGES: dict[str, dict[str, ProtoField]] = {
    "EntityProto": {
        "key": ProtoField(13, "message", "Reference"),
        "property": ProtoField(14, "message", "Property", repeated=True),
        "raw_property": ProtoField(15, "message", "Property", repeated=True),
    },
    "Reference": {
        **{name: ProtoField(number, "string") for name, number in _KEY_NUMBERS.items()},
        "path": ProtoField(14, "message", "Path"),
    },
    "Path": {"element": ProtoField(1, "group", "Element", repeated=True)},
    "Element": {"type": ProtoField(2, "string"), "id": ProtoField(3, "int64"), "name": ProtoField(4, "string")},
    "Property": {
        "meaning": ProtoField(1, "int32"),
        "name": ProtoField(3, "string"),
        "multiple": ProtoField(4, "bool"),
        "value": ProtoField(5, "message", "PropertyValue"),
    },
    "PropertyValue": {
        "int64": ProtoField(1, "int64", oneof=True),
        "boolean": ProtoField(2, "bool", oneof=True),
        "string": ProtoField(3, "bytes", oneof=True),
        "double": ProtoField(4, "double", oneof=True),
        "pointvalue": ProtoField(5, "group", "PointValue", oneof=True),
        "uservalue": ProtoField(8, "group", "UserValue", oneof=True),
        "referencevalue": ProtoField(12, "group", "ReferenceValue", oneof=True),
    },
    "PointValue": {"x": ProtoField(6, "double"), "y": ProtoField(7, "double")},
    "UserValue": {
        "email": ProtoField(9, "string"),
        "auth_domain": ProtoField(10, "string"),
        "nickname": ProtoField(11, "string"),
        "obfuscated_gaiaid": ProtoField(19, "string"),
    },
    "ReferenceValue": {
        **{name: ProtoField(number, "string") for name, number in _KEY_NUMBERS.items()},
        "pathelement": ProtoField(14, "group", "PathElement", repeated=True),
    },
    "PathElement": {"type": ProtoField(15, "string"), "id": ProtoField(16, "int64"), "name": ProtoField(17, "string")},
    "Entities": {"entity": ProtoField(1, "message", "EntityProto", repeated=True)},
    "OverallExportMetadata": {"pointer": ProtoField(1, "message", "Pointer", repeated=True)},
    "Pointer": {"path": ProtoField(2, "string"), "entities": ProtoField(3, "int64"), "bytes": ProtoField(4, "int64")},
    "ExportMetadata": {
        "export": ProtoField(1, "message", "Export"),
        "outputs": ProtoField(2, "message", "Outputs", repeated=True),
    },
    "Export": {"name": ProtoField(1, "string"), "start": ProtoField(2, "int64"), "end": ProtoField(3, "int64")},
    "Outputs": {"label": ProtoField(1, "string"), "file": ProtoField(2, "string", repeated=True)},
}
"""The messages that are read; fields that nobody needs are left out, and skipped as unknown ones.

`Entities` is in no file: records become one such message so that many entities are parsed at a time. Names are
protobuf's own but for those of the metadata, whose definition is not public: the `label` of outputs is `__all__` in
managed exports and empty in those of the emulators.
"""


def find_wire_tag(message: str, name: str) -> int:
    """Return the tag that precedes a field of a message in `MESSAGES` on the wire."""
    field = MESSAGES[message][name]
    return field.number << 3 | WIRE_TYPES[field.kind]


ENTITIES_TAG = b"\x0a"
"""Begins each entity of an `Entities` message: field 1, length-delimited. A varint length follows."""

MEANING_TIMESTAMP = 7
"""The int64 counts microseconds since 1970."""
MEANING_BLOB = 14
MEANING_BYTESTRING = 16
MEANING_ENTITY = 19
"""The string is an `EntityProto`: a nested entity, a map, or a vector."""
MEANING_EMPTY_LIST = 24

EXACT_INTEGER = 1 << 53
"""Integers up to this are doubles too."""

VECTOR_PROPERTY = "__vector__"
"""Name of all properties of a nested entity that is a vector; their values are its elements."""

MAX_DEPTH = 100
"""Entities nested deeper than this are refused; Firestore allows 20."""

ENTITY_DAMAGE = "bad_entity"
"""Kind of damage: a record of an export that is no entity."""

VERSION_RECORD = b"\x33"
"""The first record of an overall metadata file; the second is an `OverallExportMetadata`."""

OVERALL_NAME = re.compile(r"^.+\.overall_export_metadata$")
METADATA_NAME = re.compile(r"^.+\.export_metadata$")
KIND_DIRECTORY = "kind_"
"""Begins the name of the directory of one kind; one for all kinds is called `all_kinds`."""

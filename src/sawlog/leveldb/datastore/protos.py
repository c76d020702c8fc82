"""Protobuf message classes, made of the numbers in `layout` when the first of them is needed."""

from __future__ import annotations

from functools import cache
from typing import Any

from sawlog.guard import optional
from sawlog.leveldb.datastore.layout import MESSAGES

_PACKAGE = "sawlog.datastore"


@cache
def message_class(name: str) -> Any:
    """The class of a message in `MESSAGES`.

    Raises:
        OptionError: When the packages that the view `entities` needs are not installed.
    """
    message_factory = optional("google.protobuf.message_factory", "datastore", "reading Datastore entities")
    return message_factory.GetMessageClass(_pool().FindMessageTypeByName(f"{_PACKAGE}.{name}"))


@cache
def _pool() -> Any:
    """A pool of our own: the same messages may exist in the default one, made by the vendor."""
    from google.protobuf import descriptor_pb2, descriptor_pool

    field_type = descriptor_pb2.FieldDescriptorProto
    # As in proto2, but text that is no UTF-8 is an error of the record, and not bytes where text is expected.
    file = descriptor_pb2.FileDescriptorProto(
        name="sawlog/datastore.proto",
        package=_PACKAGE,
        syntax="editions",
        edition=descriptor_pb2.EDITION_2023,
    )
    for name, fields in MESSAGES.items():
        message = file.message_type.add(name=name)
        if any(one.oneof for one in fields.values()):
            message.oneof_decl.add(name="kind")
        for field_name, one in fields.items():
            field = message.field.add(
                name=field_name,
                number=one.number,
                type=getattr(field_type, f"TYPE_{'MESSAGE' if one.kind == 'group' else one.kind.upper()}"),
                label=field_type.LABEL_REPEATED if one.repeated else field_type.LABEL_OPTIONAL,
            )
            if one.kind == "group":
                field.options.features.message_encoding = descriptor_pb2.FeatureSet.DELIMITED
            if one.message:
                field.type_name = f".{_PACKAGE}.{one.message}"
            if one.oneof:
                field.oneof_index = 0
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return pool

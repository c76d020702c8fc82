"""The `.schema` file that the writer leaves in a location: the files of columns do not say what they hold."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from html import escape

from sawlog.deephaven.table.location import Declared, Generation
from sawlog.deephaven.table.types import GROUPING, NO_SYMBOL_TABLE, SYMBOL_TABLE, ColumnSpec, split_arguments
from sawlog.deephaven.types import BY_COLUMN, ColumnType

_CODECS = "io.deephaven.util.codec"
_SIMPLE = "simple"
_VERSION = "columnVersion"
_ORDER = "byteOrder"
_LITTLE, _BIG = "little", "big"
_ROOT = re.compile(rb"<Table [^>]*>")
_ATTRIBUTE = re.compile(rb'(\w+)="([^"]*)"')


def build_schema_file(
    columns: Mapping[str, ColumnSpec | None], namespace: str | None, table: str | None, generation: Generation
) -> bytes:
    """Return a `.schema` file, in the vendor's words but for the generation of the column files."""
    attributes = {"name": table or "", "namespace": namespace or "", "storageType": "NestedPartitionedOnDisk"}
    attributes[_VERSION] = str(generation.version)
    attributes[_ORDER] = _LITTLE if generation.little else _BIG
    lines = ['<?xml version="1.0" encoding="UTF-8"?>', f"<Table{_render_attributes(attributes)}>"]
    lines += [
        f"  <Column{_render_attributes({'name': name, **_describe_column(spec)})} />" for name, spec in columns.items()
    ]
    return "\n".join([*lines, "</Table>", ""]).encode()


@lru_cache(maxsize=16)
def parse_declaration(data: bytes) -> Declared:
    """Return what a schema file that sawlog has left says of the files next to it."""
    root = _ROOT.search(data)
    attributes = dict(_ATTRIBUTE.findall(root[0])) if root else {}
    version, order = attributes.get(_VERSION.encode()), attributes.get(_ORDER.encode())
    little = {_LITTLE.encode(): True, _BIG.encode(): False}.get(order or b"")
    return Declared(int(version) if version in (b"1", b"2") else None, little)


def _describe_column(spec: ColumnSpec | None) -> dict[str, str]:
    if spec is None:
        return {"dataType": BY_COLUMN[ColumnType.STRING].java, "columnType": "Partitioning"}
    facts = BY_COLUMN[spec.type]
    by_class = facts.codec or spec.type in (ColumnType.STRING, ColumnType.BLOB)
    attributes = {"dataType": facts.java if by_class else spec.type.value}
    if spec.type is ColumnType.BLOB and spec.class_name:
        attributes["dataType"] = spec.class_name
    if spec.grouping:
        attributes["columnType"] = GROUPING
    if spec.type is ColumnType.STRING:
        attributes["symbolTable"] = SYMBOL_TABLE if spec.symbols else NO_SYMBOL_TABLE
    if spec.type in (ColumnType.STRING, ColumnType.STRING_SET):
        attributes["encoding"] = spec.charset.replace("-", "_")
    if facts.codec:
        arguments = split_arguments(spec.arguments)
        simple = "Simple" if _SIMPLE in arguments else ""
        attributes["objectCodec"] = f"{_CODECS}.{simple}{spec.type.value}Codec"
        attributes["objectCodecArguments"] = ",".join(argument for argument in arguments if argument != _SIMPLE)
    return attributes


def _render_attributes(values: Mapping[str, str]) -> str:
    return "".join(f' {name}="{escape(value)}"' for name, value in values.items() if value)

"""Deephaven's `.schema` files: which columns are times, in which order columns come, which one partitions.

Documents with a DTD are refused, so that there are no entities to expand and nothing external to fetch; and size, depth
and number of elements are bounded.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NoReturn
from xml.parsers import expat

from sawlog.errors import FormatError, SchemaError
from sawlog.guard import Undecodable, call_decoder

MAX_BYTES = 16 << 20
_MAX_ELEMENTS = 200_000
_MAX_DEPTH = 32

_TIME_TYPES = frozenset({"datetime", "dbdatetime", "instant"})
_UNIT_WORDS = {"millis": "ms", "micros": "us", "nanos": "ns", "seconds": "s"}
_STREAMING = frozenset({"loggerlistener", "listener", "logger", "logformat"})


@dataclass(frozen=True, slots=True)
class SchemaColumn:
    """A column as a `.schema` file defines it; attributes that it does not have are empty.

    Attributes:
        name: Its name.
        data_type: Java class or primitive, with or without a package.
        kind: `Normal`, `Grouping` or `Partitioning`.
        symbol_table: `None` for a String without one.
        encoding: Charset of a String, in the vendor's spelling.
        codec: Class of the codec of an object.
        codec_arguments: Its arguments.
    """

    name: str
    data_type: str
    kind: str
    symbol_table: str = ""
    encoding: str = ""
    codec: str = ""
    codec_arguments: str = ""


@dataclass(frozen=True, slots=True)
class TableSchema:
    """Table of a `.schema` file: the parts of it that matter to readers.

    Attributes:
        namespace: Namespace of the table.
        name: Its name.
        order: All columns, in order.
        units: Columns of times and the units they are logged in: milliseconds unless a listener says otherwise.
        partition_column: The partitioning column.
        columns: The definitions of all columns.
    """

    namespace: str | None = None
    name: str | None = None
    order: tuple[str, ...] = ()
    units: dict[str, str] = field(default_factory=dict)
    partition_column: str | None = None
    columns: tuple[SchemaColumn, ...] = ()


class _Reader:
    """Takes what is wanted out of the stream of elements; no tree is built."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.stack: list[str] = []
        self.elements = 0
        self.table: dict[str, str] = {}
        self.columns: list[SchemaColumn] = []
        self.units: dict[str, str] = {}

    def start(self, tag: str, attributes: dict[str, str]) -> None:
        self.elements += 1
        if self.elements > _MAX_ELEMENTS or len(self.stack) >= _MAX_DEPTH:
            raise FormatError(f"{self.path}: more than {_MAX_ELEMENTS} elements, or nested deeper than {_MAX_DEPTH}")
        name = tag.rpartition("}")[2].lower()
        lower = {key.lower(): value for key, value in attributes.items()}
        if not self.stack:
            if name != "table":
                raise FormatError(f"{self.path}: expected the element Table, found {tag!r}")
            self.table = {key: _find_attribute(attributes, lower, key) for key in ("namespace", "name")}
        elif name == "column" and len(self.stack) == 1:
            self._parse_column(attributes, lower)
        elif name == "column" and _STREAMING & set(self.stack):
            self._parse_logging(attributes, lower)
        self.stack.append(name)

    def end(self, _tag: str) -> None:
        self.stack.pop()

    def forbid(self, *_: Any) -> NoReturn:
        raise FormatError(f"{self.path}: a schema may not have a DTD or entities")

    def _parse_column(self, attributes: dict[str, str], lower: dict[str, str]) -> None:
        name = _find_attribute(attributes, lower, "name")
        if not name:
            raise SchemaError(f"{self.path}: a column without a name")
        if any(column.name == name for column in self.columns[-1:]) or len(self.columns) > _MAX_ELEMENTS:
            raise SchemaError(f"{self.path}: column {name!r} twice")
        kind = _find_attribute(attributes, lower, "columnType") or "Normal"
        attribute_names = ("dataType", "symbolTable", "encoding", "objectCodec", "objectCodecArguments")
        data_type, symbols, encoding, codec, arguments = (
            _find_attribute(attributes, lower, key) for key in attribute_names
        )
        codec = codec or _find_attribute(attributes, lower, "objectCodecClass")
        self.columns.append(SchemaColumn(name, data_type, kind, symbols, encoding, codec, arguments))

    def _parse_logging(self, attributes: dict[str, str], lower: dict[str, str]) -> None:
        """Return how a column is logged: a conversion such as `millisToTime(x)` gives the unit."""
        name = _find_attribute(attributes, lower, "name")
        text = " ".join(
            _find_attribute(attributes, lower, key) for key in ("dbSetter", "intradaySetter", "datePartitionInput")
        ).lower()
        for word, unit in _UNIT_WORDS.items():
            if word in text:
                self.units.setdefault(name, unit)


def _find_attribute(attributes: dict[str, str], lower: dict[str, str], name: str) -> str:
    """Return the attribute of a name as published, or in any case."""
    return attributes.get(name, lower.get(name.lower(), "")).strip()


def parse_schema(path: str, data: bytes) -> TableSchema:
    """Read a `.schema` file.

    Raises:
        FormatError: When it is not well-formed XML with the root Table, has a DTD, or is unreasonably large.
        SchemaError: When a column has no name.
    """
    if len(data) > MAX_BYTES:
        raise FormatError(f"{path}: a schema of {len(data)} bytes; at most {MAX_BYTES} are read")

    reader = _Reader(path)
    parser = expat.ParserCreate(namespace_separator="}")
    parser.StartDoctypeDeclHandler = reader.forbid
    parser.EntityDeclHandler = reader.forbid
    parser.StartElementHandler = reader.start
    parser.EndElementHandler = reader.end
    outcome = call_decoder(parser.Parse, data, True)
    if isinstance(outcome, Undecodable):
        raise FormatError(f"{path}: not well-formed XML: {outcome.detail}")
    return _summarize(reader)


def _summarize(reader: _Reader) -> TableSchema:
    names = [column.name for column in reader.columns]
    if len(set(names)) != len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise SchemaError(f"{reader.path}: column {twice!r} twice")
    units = {
        column.name: reader.units.get(column.name, "ms")
        for column in reader.columns
        if column.data_type.rpartition(".")[2].lower() in _TIME_TYPES
    }
    partitioning = [column.name for column in reader.columns if column.kind.lower() == "partitioning"]
    return TableSchema(
        reader.table.get("namespace") or None,
        reader.table.get("name") or None,
        tuple(names),
        units,
        partitioning[0] if partitioning else None,
        tuple(reader.columns),
    )

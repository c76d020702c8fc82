"""Columns of FiloDB schemas: `name:type:parameters`, and what they add to a schema ID. Section 5 of the format."""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, get_args

from sawlog.errors import SchemaError
from sawlog.filodb_record.hashing import combine, h32
from sawlog.filodb_record.java import java_string_hash, signed
from sawlog.filodb_record.layout import HASH_INIT, POINTER_TYPES, SLOT_SIZES, ColumnType
from sawlog.guard import Undecodable, decode_by, decode_json

if TYPE_CHECKING:
    from sawlog.filodb_record.schemas.record import RecordSchema

_FORBIDDEN = re.compile("[:() ,\u0001]")
_TYPE_NAMES: dict[ColumnType, str] = {
    "int": "IntColumn",
    "long": "LongColumn",
    "double": "DoubleColumn",
    "ts": "TimestampColumn",
    "string": "StringColumn",
    "map": "MapColumn",
    "hist": "HistogramColumn",
    "br": "BinaryRecordColumn",
}
"""FiloDB's own names of the types: their hashes enter the schema ID."""
_EMPTY_PARAMS = 70602
"""What a column without parameters adds to the schema hash."""

ParamValue = bool | int | float | str | None
_WORDS: dict[str, ParamValue] = {"true": True, "false": False, "null": None}
_PARAMETER = re.compile(
    r"""\s*(?:(?P<key>"(?:[^"\\]|\\.)*"|[\w-]+)\s*[=:]\s*"""
    r"""(?P<value>"(?:[^"\\]|\\.)*"|(?:[^\n,{}\[\]"#$+`^?!@*&\\=:]|(?<=[eE])\+)+))?\s*(?:[,\n]|$)"""
)
_NUMBER = re.compile(r"[-\d][\d.eE+-]*")
_BARE = re.compile(r"[A-Za-z_][\w-]*")


@dataclass(frozen=True)
class Column:
    """One column of a schema.

    Attributes:
        name: Its name.
        type: One of `int long double ts string map hist br`.
        params: Parameters such as `detectDrops`, in the order they were given; they enter the schema ID.
        schema: For `br` columns: the schema of the nested records.
    """

    name: str
    type: ColumnType
    params: tuple[tuple[str, ParamValue], ...] = ()
    schema: RecordSchema | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        if self.type not in get_args(ColumnType):
            raise SchemaError(
                f"column {self.name!r}: unknown type {self.type!r}; types: {', '.join(get_args(ColumnType))}"
            )
        if not self.name or _FORBIDDEN.search(self.name):
            raise SchemaError(f"column {self.name!r}: a name is not empty and holds none of ':', '(', ')', ' ', ','")

    @classmethod
    def parse(cls, text: str) -> Column:
        """A column from FiloDB's notation: `value:double:detectDrops=false`, `h:hist:{counter=false,delta=true}`.

        Raises:
            SchemaError: When it is none.
        """
        name, separator, rest = text.partition(":")
        if not separator:
            raise SchemaError(f"column {text!r}: expected name:type or name:type:parameters")
        kind, _, params = rest.partition(":")
        given = _parameters(params.replace(":", "\n"), name)
        if kind == "hist" and not isinstance(given.get("counter"), bool):
            raise SchemaError(f"column {name!r}: a histogram needs the parameter counter=true or counter=false")
        known: Any = kind
        return cls(name, known, tuple(given.items()))

    @property
    def pointer(self) -> bool:
        """Whether the slot is a pointer into the variable area."""
        return self.type in POINTER_TYPES

    @property
    def slot_size(self) -> int:
        """Bytes of the slot."""
        return SLOT_SIZES[self.type]

    @cached_property
    def hash(self) -> int:
        """What the column adds to a schema hash, a signed 32-bit number."""
        return signed(h32(self.name.encode()) * java_string_hash(_TYPE_NAMES[self.type]) + params_hash(self.params))

    def __str__(self) -> str:
        """The column in FiloDB's notation."""
        if not self.params:
            return f"{self.name}:{self.type}"
        pairs = [f"{_key_text(key)}={_as_text(value)}" for key, value in self.params]
        params = pairs[0] if len(pairs) == 1 else "{" + ",".join(pairs) + "}"
        return f"{self.name}:{self.type}:{params}"


def parse_columns(given: Sequence[Column | str]) -> tuple[Column, ...]:
    """Columns from columns, or from their notation."""
    return tuple(column if isinstance(column, Column) else Column.parse(column) for column in given)


def schema_hash(columns: Sequence[Column]) -> int:
    """The hash of some columns, 16 bits: names, types, parameters and order enter."""
    total = HASH_INIT
    for column in columns:
        total = combine(total, column.hash)
    return total & 0xFFFF


def params_hash(params: Sequence[tuple[str, ParamValue]] | Mapping[str, ParamValue]) -> int:
    """The hash that Typesafe Config gives to a flat object, a signed 32-bit number."""
    pairs = sorted(params.items() if isinstance(params, Mapping) else params)
    if not pairs:
        return _EMPTY_PARAMS
    keys = 1
    for key, _ in pairs:
        keys = signed(31 * keys + java_string_hash(key))
    return signed(41 * (41 * (41 + keys) + sum(_value_hash(value) for _, value in pairs)))


def _value_hash(value: ParamValue) -> int:
    """The hash of a value: numbers that are whole hash alike, however they are written."""
    if value is None:
        return 0
    if isinstance(value, bool):
        return 1231 if value else 1237
    if isinstance(value, str):
        return java_string_hash(value)
    if isinstance(value, float) and not (value.is_integer() and -(2**63) <= value < 2**63):
        bits = int.from_bytes(struct.pack("<d", value), "little")
    else:
        bits = int(value) & 0xFFFFFFFFFFFFFFFF
    return signed(bits ^ bits >> 32)


def _parameters(text: str, column: str) -> dict[str, ParamValue]:
    """The parameters of a column: pairs of `key=value`, or an object of them, typed as Typesafe Config types them.

    Raises:
        SchemaError: When it is anything else.
    """
    found: dict[str, ParamValue] = {}
    inner = text.strip()
    if inner.startswith("{") and inner.endswith("}"):
        inner = inner[1:-1]
    at = 0
    while at < len(inner):
        match = _PARAMETER.match(inner, at)
        if match is None:
            raise SchemaError(f"parameters of column {column!r}: expected key=value, found {inner[at:].strip()!r}")
        at = match.end()
        if match["key"]:
            key = match["key"]
            found[_quoted(key) if key.startswith('"') else key] = _value(match["value"].strip())
    return found


def _value(text: str) -> ParamValue:
    if text.startswith('"'):
        return _quoted(text)
    if text in _WORDS:
        return _WORDS[text]
    if not _NUMBER.fullmatch(text):
        return text
    number = decode_by(float if set(text) & set(".eE") else int, text)
    if isinstance(number, Undecodable):  # of more digits than Python takes
        return text
    return number if isinstance(number, float) or -(2**63) <= number < 2**63 else text


def _quoted(text: str) -> str:
    found = decode_json(text)
    if not isinstance(found, str):
        raise SchemaError(f"parameters of a column: expected a string as in JSON, found {text}")
    return found


def _key_text(key: str) -> str:
    return key if re.fullmatch(r"[\w-]+", key) else json.dumps(key)


def _as_text(value: ParamValue) -> str:
    for word, meaning in _WORDS.items():
        if value is meaning:
            return word
    if isinstance(value, str):
        return value if _BARE.fullmatch(value) and isinstance(_value(value), str) else json.dumps(value)
    return str(value).replace("inf", "1e999")

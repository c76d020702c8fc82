"""Columns of FiloDB schemas: `name:type:parameters`, and what they add to a schema ID. Section 5 of the format."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, get_args

from sawlog.errors import SchemaError
from sawlog.filodb_record import hocon
from sawlog.filodb_record.hashing import combine, h32, java_string_hash, signed
from sawlog.filodb_record.layout import HASH_INIT, POINTER_TYPES, SLOT_SIZES, ColumnType

if TYPE_CHECKING:
    from sawlog.filodb_record.schema import RecordSchema

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

ParamValue = bool | int | str


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
        given = hocon.parse(params.replace(":", "\n"), where=f"parameters of column {name!r}") if params else {}
        for key, value in given.items():
            if not isinstance(value, bool | int | str):
                raise SchemaError(f"column {name!r}: parameter {key!r} is {value!r}; expected a plain value")
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
        pairs = [f"{key}={_as_text(value)}" for key, value in self.params]
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
    if isinstance(value, bool):
        return 1231 if value else 1237
    return value if isinstance(value, int) else java_string_hash(value)


def _as_text(value: ParamValue) -> str:
    return (
        str(value).lower() if isinstance(value, bool) else hocon.quote(value) if isinstance(value, str) else str(value)
    )

"""Types of columns: as Deephaven names them, how they are stored, their Arrow types, their fields' metadata."""

from __future__ import annotations

import re
from collections.abc import Container, Mapping
from dataclasses import dataclass, replace
from typing import Final, Literal

import pyarrow as pa

from sawlog.deephaven.table import layout
from sawlog.deephaven.text import find_charset
from sawlog.deephaven.types import BY_COLUMN, FIXED, TYPES, ColumnType
from sawlog.errors import OptionError

TYPE_KEY: Final = b"sawlog.type"
"""The column's type: a value of `ColumnType`."""
CHARSET_KEY: Final = b"sawlog.charset"
_SYMBOLS_KEY: Final = b"sawlog.symbol_table"
"""`ColumnLocation` or `None`, of a String."""
CODEC_KEY: Final = b"sawlog.codec"
"""Arguments of the codec, as `10,2`."""
CLASS_KEY: Final = b"sawlog.class"
"""Class of objects that are handed over as they are."""
GUESS_KEY: Final = b"sawlog.guessed"
"""What the type might as well be, where it was inferred: such a column is read, and never written."""
ROLE_KEY: Final = b"sawlog.column_type"
"""`Grouping`, where a schema says so."""
PARTITION_KEY: Final = b"sawlog.partition"
"""`column` or `internal`: the value comes from a directory's name, not out of files."""

SYMBOL_TABLE: Final = "ColumnLocation"
NO_SYMBOL_TABLE: Final = "None"
GROUPING: Final = "Grouping"
MAX_DECIMAL: Final = 76
"""Digits of Arrow's widest decimal."""

_ALIASES: Final = {name: kind for kind, row in BY_COLUMN.items() for name in (kind.value.lower(), *row.aliases)}
_SPELLED: Final = re.compile(r"\s*([\w.$]+(?:\[\])?)\s*(?:\((.*)\))?\s*", re.DOTALL)
_CODECS: Final = frozenset(kind for kind, row in BY_COLUMN.items() if row.codec)


@dataclass(frozen=True, slots=True)
class ColumnSpec:
    """Type of a column and how it is stored, from a schema, from options, or by a look at its files.

    Attributes:
        type: Its type.
        symbols: Whether a String has a symbol table.
        charset: Stored name of the charset of a String or StringSet.
        arguments: Arguments of an object's codec; None for types without.
        class_name: Class of objects that are handed over as they are.
        grouping: Whether the schema makes it a grouping column.
        guessed: What is not certain from the bytes, in words; empty if the type is known.
    """

    type: ColumnType
    symbols: bool = True
    charset: str = layout.DEFAULT_CHARSET
    arguments: str | None = None
    class_name: str | None = None
    grouping: bool = False
    guessed: str = ""

    def adapt_to_files(self, suffixes: Container[str]) -> ColumnSpec:
        """Return the spec as the files have it: whether a String has a symbol table is theirs to say."""
        if self.type is not ColumnType.STRING:
            return self
        symbols = self.symbols if layout.BINARY not in suffixes else False
        symbols = symbols or layout.SYMBOL_OFFSETS in suffixes
        return self if symbols == self.symbols else replace(self, symbols=symbols)

    @property
    def has_symbols(self) -> bool:
        """Whether values are numbers of strings in a symbol table."""
        return self.type is ColumnType.STRING_SET or (self.type is ColumnType.STRING and self.symbols)

    def find_foreign_file(self, suffixes: Container[str]) -> str | None:
        """Return the suffix of a file, of those of a column, that a column of this type does not have."""
        if layout.SYMBOL_OFFSETS in suffixes and not self.has_symbols:
            return layout.SYMBOL_OFFSETS
        return layout.BINARY if layout.BINARY in suffixes and self.type in FIXED else None

    @property
    def width(self) -> int:
        """Bytes per row in `.dat`: of the value, or of what leads to it."""
        if self.type in FIXED:
            return FIXED[self.type].width
        if self.type is ColumnType.STRING and self.symbols:
            return layout.SYMBOL_SIZE
        return self.slot_width or layout.OFFSET_SIZE

    @property
    def variable(self) -> bool:
        """Whether values lie in `.bytes`, and `.dat` says where."""
        symbol = self.type is ColumnType.STRING and self.symbols
        return self.type not in FIXED and not symbol and not self.slot_width

    @property
    def slot_width(self) -> int:
        """Bytes of an object whose codec has a fixed width; 0 otherwise."""
        arguments = split_arguments(self.arguments)
        number = int(arguments[0]) if arguments and arguments[0].isdigit() else None
        nullable = "notNull" not in arguments
        if self.type in (ColumnType.BIG_DECIMAL, ColumnType.BIG_INTEGER):
            return layout.compute_decimal_width(number) if number is not None else 0
        if self.type is ColumnType.LOCAL_DATE:
            return layout.DATE_COMPACT_SIZE if "Compact" in arguments else layout.DATE_SIZE
        if self.type is ColumnType.LOCAL_TIME:
            return layout.compute_time_width(len(layout.TIME_FRACTION_BITS) - 1 if number is None else number, nullable)
        if self.type is ColumnType.BYTE_ARRAY and number is not None:
            return number + (nullable and "simple" not in arguments)
        return 0

    def choose_arrow_type(
        self, char: Literal["number", "string"] = "number", decimal: str | None = None
    ) -> pa.DataType:
        """Return the Arrow type of the column.

        Args:
            char: A char as a number or as a string.
            decimal: Precision and scale, as `38,10`, for decimals whose codec does not fix them; None: as strings.
        """
        if self.type is ColumnType.STRING and self.symbols:
            return pa.dictionary(pa.int32(), pa.string())
        if self.type is ColumnType.CHAR and char == "string":
            return pa.string()
        if self.type in (ColumnType.BIG_DECIMAL, ColumnType.BIG_INTEGER):
            argument_list = split_arguments(self.arguments) or split_arguments(decimal)
            return _choose_decimal_type(argument_list, integer=self.type is ColumnType.BIG_INTEGER)
        return BY_COLUMN[self.type].arrow

    def make_field(
        self, name: str, char: Literal["number", "string"] = "number", decimal: str | None = None
    ) -> pa.Field:
        """Return the column as an Arrow field, its metadata included."""
        metadata: dict[bytes, bytes] = {TYPE_KEY: self.type.value.encode()}
        if self.type in (ColumnType.STRING, ColumnType.STRING_SET):
            metadata[CHARSET_KEY] = self.charset.encode()
        if self.type is ColumnType.STRING:
            metadata[_SYMBOLS_KEY] = (SYMBOL_TABLE if self.symbols else NO_SYMBOL_TABLE).encode()
        if self.type in _CODECS and self.arguments:
            metadata[CODEC_KEY] = self.arguments.encode()
        if self.class_name:
            metadata[CLASS_KEY] = self.class_name.encode()
        if self.grouping:
            metadata[ROLE_KEY] = GROUPING.encode()
        if self.guessed:
            metadata[GUESS_KEY] = self.guessed.encode()
        return pa.field(name, self.choose_arrow_type(char, decimal), metadata=metadata)

    @classmethod
    def of_metadata(cls, metadata: Mapping[bytes, bytes] | None) -> ColumnSpec | None:
        """Return the column that a field's metadata describes; None when it does not name a type of column files."""
        field_metadata = metadata or {}
        kind = _ALIASES.get(field_metadata.get(TYPE_KEY, b"").decode("utf-8", "replace").lower())
        if kind is None:
            return None
        charset = (
            find_charset(field_metadata.get(CHARSET_KEY, b"").decode("utf-8", "replace")) or layout.DEFAULT_CHARSET
        )
        symbols = field_metadata.get(_SYMBOLS_KEY, SYMBOL_TABLE.encode()) != NO_SYMBOL_TABLE.encode()
        arguments = field_metadata[CODEC_KEY].decode() if CODEC_KEY in field_metadata else None
        class_name = field_metadata[CLASS_KEY].decode("utf-8", "replace") if CLASS_KEY in field_metadata else None
        return cls(kind, symbols, charset, arguments, class_name, field_metadata.get(ROLE_KEY) == GROUPING.encode())


def split_arguments(text: str | None) -> list[str]:
    """Return the arguments of a codec, one by one."""
    return [part.strip() for part in (text or "").split(",") if part.strip()]


def parse_type(text: str, context: str, charset: str = layout.DEFAULT_CHARSET) -> ColumnSpec:
    """Return a type as an option spells it.

    `double`, `String` (with a symbol table), `String(None)` and `String(None,UTF-8)` (without), `BigDecimal(10,2)`,
    `LocalDate(Compact)`, `double[]`; names of Java classes, with their package, will do. A String or StringSet that
    names no charset has the given one.

    Raises:
        OptionError: For an unknown type, or arguments it cannot have.
    """
    match = _SPELLED.fullmatch(text)
    kind = _ALIASES.get(match[1].rpartition(".")[2].lower()) if match else None
    if match is None or kind is None:
        type_names = ", ".join(kind.value for kind in ColumnType)
        raise OptionError(f"{context}: unknown type {text!r}; known types: {type_names}")
    arguments = split_arguments(match[2])
    if kind is ColumnType.STRING:
        return _make_string_spec(arguments, context, charset)
    if arguments and kind not in _CODECS:
        raise OptionError(f"{context}: {kind.value} takes no arguments, found {match[2]!r}")
    return _check_spec(ColumnSpec(kind, charset=charset, arguments=",".join(arguments) or None), context)


def make_codec_spec(class_name: str, arguments: str, context: str) -> ColumnSpec | None:
    """Return the column of a codec, by the name of the codec's class; None for a codec that is not known."""
    name = class_name.rpartition(".")[2].lower()
    kind = next((row.type for row in TYPES if row.codec and row.codec.lower() in name), None)
    if kind is None:
        return None
    argument_list = split_arguments(arguments)
    if kind is ColumnType.BYTE_ARRAY and "simple" in name:
        argument_list.append("simple")
    return _check_spec(ColumnSpec(kind, arguments=",".join(argument_list) or None), context)


def make_class_spec(class_name: str) -> ColumnSpec:
    """Return the column of a data type without a codec: an engine's type, a serialized array, or an opaque object."""
    name = class_name.strip()
    kind = _ALIASES.get(name.rpartition(".")[2].lower())
    if kind is None or kind in _CODECS:
        return ColumnSpec(ColumnType.BLOB, class_name=name or None)
    return ColumnSpec(kind)


def _make_string_spec(arguments: list[str], context: str, charset: str) -> ColumnSpec:
    spec = ColumnSpec(ColumnType.STRING, charset=charset)
    for argument in arguments:
        named = find_charset(argument)
        if argument.lower() in ("none", "columnlocation"):
            spec = replace(spec, symbols=argument.lower() != "none")
        elif named is not None:
            spec = replace(spec, charset=named)
        else:
            raise OptionError(f"{context}: String takes None or ColumnLocation, and a charset; found {argument!r}")
    return spec


def _check_spec(spec: ColumnSpec, context: str) -> ColumnSpec:
    arguments = split_arguments(spec.arguments)
    numbers = [int(argument) for argument in arguments if re.fullmatch(r"-?\d{1,9}", argument)]
    words = [argument for argument in arguments if not re.fullmatch(r"-?\d{1,9}", argument)]
    low, high, count, known_words = {
        ColumnType.BIG_DECIMAL: (0, 10_000, 2, {"allowRounding", "noRounding"}),
        ColumnType.BIG_INTEGER: (1, 10_000, 1, set[str]()),
        ColumnType.LOCAL_DATE: (0, 0, 0, {"Full", "Compact", "notNull", "nullable"}),
        ColumnType.LOCAL_TIME: (0, 9, 1, {"notNull", "nullable"}),
        ColumnType.BYTE_ARRAY: (1, 1 << 20, 1, {"notNull", "nullable", "simple"}),
    }.get(spec.type, (0, 0, 0, set[str]()))
    decimal = spec.type is ColumnType.BIG_DECIMAL and arguments
    fits = len(numbers) == count if decimal else len(numbers) <= count
    if not fits or not set(words) <= known_words or any(not low <= number <= high for number in numbers):
        raise OptionError(f"{context}: {spec.type.value} cannot have the arguments ({spec.arguments})")
    if decimal and (numbers[0] < 1 or numbers[1] > numbers[0]):
        raise OptionError(
            f"{context}: expected a precision of 1 or more and a scale within it, found ({spec.arguments})"
        )
    return spec


def _choose_decimal_type(arguments: list[str], *, integer: bool) -> pa.DataType:
    if not arguments:
        return pa.string()
    precision = int(arguments[0])
    scale = 0 if integer or len(arguments) < 2 else int(arguments[1])
    if precision > MAX_DECIMAL:
        return pa.string()
    return pa.decimal128(precision, scale) if precision <= 38 else pa.decimal256(precision, scale)

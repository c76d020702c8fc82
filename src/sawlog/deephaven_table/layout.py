"""Every number of Deephaven's column files: headers, data regions, sentinels, codecs, directories.

A location is a directory with a few files per column. Integers of the header are always big endian; the byte order of
the data is told by the header (column version 1) or is a constant of the product (column version 2).
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from enum import IntEnum, StrEnum
from typing import Final

# Files of a location.

DATA: Final = ".dat"
"""Fixed-width values, i64 end offsets into the binary data, or i32 symbol ids. Has the header in column version 1."""
OVERFLOW: Final = ".ovr"
"""What the metadata of `.dat` has more than its header has room for; no header of its own."""
BINARY: Final = ".bytes"
"""Values of variable width, one behind the other. Never a header."""
SYMBOL_OFFSETS: Final = ".sym"
"""One i64 per symbol: the end of its characters in `.sym.bytes`. Has the header in column version 1."""
SYMBOL_BINARY: Final = ".sym.bytes"
"""Characters of the symbols. Never a header."""
SYMBOL_OVERFLOW: Final = ".sym.ovr"
SUFFIXES: Final = (SYMBOL_BINARY, SYMBOL_OVERFLOW, SYMBOL_OFFSETS, BINARY, DATA, OVERFLOW)
"""The longest first: `X.sym.bytes` ends with `.bytes` too."""
COLUMN_NAME: Final = re.compile(r"[^\W\d][\w$]*|[$][\w$]*")
"""Java identifiers: no dots, no separators."""

TABLE_SIZE: Final = "table.size"
"""The checkpoint record: how many rows are committed."""
TABLE_DEFINITION: Final = "table.tbl"
TABLE_SCHEMA: Final = "table.schema"
"""Left by sawlog's writer: a `.schema` file of the location. The product has its schemas elsewhere."""
TABLE_PARQUET: Final = "table.parquet"
"""A location with this file is a Parquet location."""

# The header of `.dat` and `.sym`, column version 1.

METADATA_SIZE_OFFSET: Final = 0
"""u32, big endian: the byte order of the data in the high bit, the size of the metadata in the others."""
DATA_START_OFFSET: Final = 4
"""u32, big endian: where the data begins, in the low 18 bits; the others are reserved, written as 0, masked on read."""
HEADER_SIZE: Final = 8
"""Then the metadata, as much of it as there is room for before the data."""
LITTLE_ENDIAN_BIT: Final = 1 << 31
METADATA_SIZE_MASK: Final = LITTLE_ENDIAN_BIT - 1
DATA_START_MASK: Final = (1 << 18) - 1
MAX_DATA_START: Final = 1 << 17
"""Largest data start, and what the product writes."""
COMPACT_DATA_START: Final = 1 << 12

JAVA_STREAM_MAGIC: Final = bytes.fromhex("aced0005")
JAVA_NULL: Final = bytes.fromhex("aced000570")
"""A stream that holds null: the metadata of a column that is not grouped."""
OBJECT_STREAM_START: Final = bytes.fromhex("77")
"""The product's own object streams begin without the magic number, with block data (short; 7a is long)."""
OBJECT_STREAM_LONG_START: Final = bytes.fromhex("7a")

# Data regions.

OFFSET_SIZE: Final = 8
"""End offsets, of `.dat` and `.sym`: i64, exclusive; a value begins where the one before it ends, the first at 0."""
SYMBOL_SIZE: Final = 4
"""Symbol ids: i32."""
NULL_SYMBOL: Final = -(1 << 31)
EMPTY_STRING: Final = b"\0"
"""Zero bytes are null, so an empty string is stored as this one byte."""
WIDTHS: Final = (8, 4, 2, 1)
"""Widths of plain values, the widest first."""
MAX_SYMBOLS_IN_SET: Final = 64
"""A StringSet is a mask: bit k stands for symbol k."""
MAX_ROWS: Final = 1 << 40
"""Rows a location may have."""


class ColumnType(StrEnum):
    """Data types, as `.schema` files spell them."""

    BYTE = "byte"
    SHORT = "short"
    INT = "int"
    LONG = "long"
    FLOAT = "float"
    DOUBLE = "double"
    CHAR = "char"
    BOOLEAN = "Boolean"
    DATE_TIME = "DateTime"
    STRING = "String"
    STRING_SET = "StringSet"
    BLOB = "Blob"
    """Bytes that nobody looks into: serialized objects of unknown classes among them."""
    BIG_DECIMAL = "BigDecimal"
    BIG_INTEGER = "BigInteger"
    LOCAL_DATE = "LocalDate"
    LOCAL_TIME = "LocalTime"
    ZONED_DATE_TIME = "ZonedDateTime"
    BYTE_ARRAY = "ByteArray"
    """byte[] by its codec; `byte[]` is the array by Java serialization."""
    UTF8_STRING = "UTF8StringAsByteArray"
    """A String by a codec: UTF-8 without nulls."""
    STRING_TO_DOUBLE = "StringDoubleMap"
    STRING_TO_FLOAT = "StringFloatMap"
    STRING_TO_LONG = "StringLongMap"
    STRING_TO_INT = "StringIntMap"
    STRING_TO_BOOLEAN = "StringBooleanMap"
    STRING_TO_STRING = "StringStringMap"
    BYTES = "byte[]"
    SHORTS = "short[]"
    INTS = "int[]"
    LONGS = "long[]"
    FLOATS = "float[]"
    DOUBLES = "double[]"
    CHARS = "char[]"
    BOOLEANS = "boolean[]"


@dataclass(frozen=True, slots=True)
class Fixed:
    """How values of a fixed width are stored.

    Attributes:
        width: Bytes per value.
        null: The bit pattern that stands for null; what a writer writes.
        also_null: Another pattern that readers take for null.
    """

    width: int
    null: int
    also_null: int | None = None


FIXED: Final[dict[ColumnType, Fixed]] = {
    ColumnType.BYTE: Fixed(1, 0x80),
    ColumnType.SHORT: Fixed(2, 0x8000),
    ColumnType.INT: Fixed(4, 0x8000_0000),
    ColumnType.LONG: Fixed(8, 0x8000_0000_0000_0000),
    ColumnType.FLOAT: Fixed(4, 0xFF7F_FFFF),
    ColumnType.DOUBLE: Fixed(8, 0xFFEF_FFFF_FFFF_FFFF),
    # 0xFFFE in Enterprise, 0xFFFF in Community since 2021.
    ColumnType.CHAR: Fixed(2, 0xFFFE, 0xFFFF),
    # -1 on disk by the documentation; -128 in binary logs and in Community.
    ColumnType.BOOLEAN: Fixed(1, 0xFF, 0x80),
    ColumnType.DATE_TIME: Fixed(8, 0x8000_0000_0000_0000),
    ColumnType.STRING_SET: Fixed(8, 0x8000_0000_0000_0000),
}

ARRAY_WIDTHS: Final[dict[ColumnType, tuple[str, int]]] = {
    ColumnType.BYTES: ("B", 1),
    ColumnType.SHORTS: ("S", 2),
    ColumnType.INTS: ("I", 4),
    ColumnType.LONGS: ("J", 8),
    ColumnType.FLOATS: ("F", 4),
    ColumnType.DOUBLES: ("D", 8),
    ColumnType.CHARS: ("C", 2),
    ColumnType.BOOLEANS: ("Z", 1),
}
"""Java-serialized arrays of primitives: the letter of the element type and the width of an element, big endian."""

ARRAY_ELEMENTS: Final[dict[ColumnType, ColumnType]] = {
    ColumnType.BYTES: ColumnType.BYTE,
    ColumnType.SHORTS: ColumnType.SHORT,
    ColumnType.INTS: ColumnType.INT,
    ColumnType.LONGS: ColumnType.LONG,
    ColumnType.FLOATS: ColumnType.FLOAT,
    ColumnType.DOUBLES: ColumnType.DOUBLE,
    ColumnType.CHARS: ColumnType.CHAR,
    ColumnType.BOOLEANS: ColumnType.BOOLEAN,
}
"""The column types of their elements."""

ARRAY_UIDS: Final[dict[str, int]] = {
    "B": 0xACF317F8060854E0,
    "S": 0xEF832E06E55DB0FA,
    "I": 0x4DBA602676EAB2A5,
    "J": 0x782004B512B17593,
    "F": 0x0B9C818922E00C42,
    "D": 0x3EA68C14AB635A1E,
    "C": 0xB02666B0E25D84AC,
    "Z": 0x578F203914B85DE2,
}
"""serialVersionUID of the array classes; the JDK computes them from the class, so they are the same everywhere."""

ARRAY_PREFIX_SIZE: Final = 23
"""Magic, TC_ARRAY, TC_CLASSDESC, name, serialVersionUID, flags, no fields, no annotation, no super class."""
ARRAY_LENGTH_SIZE: Final = 4
"""i32, number of elements."""

# Codecs of objects: big endian, whatever the byte order of the file.

SCALE_SIZE: Final = 4
"""BigDecimal and BigInteger of variable width: i32 scale, then the unscaled value as minimal two's complement."""
SIGN_NEGATIVE: Final = 0
SIGN_POSITIVE: Final = 1
"""Of fixed width: a sign byte, then the magnitude; of negative values its one's complement. Null: 00 ff...ff."""

DATE_SIZE: Final = 5
"""LocalDate: (year + 999999999) << 9 | month << 5 | day. Null: first byte ff."""
DATE_COMPACT_SIZE: Final = 3
"""LocalDate, Compact: year << 9 | month << 5 | day, years 0 to 9999."""
DATE_YEAR_BIAS: Final = 999_999_999
DATE_YEAR_SHIFT: Final = 9
DATE_MONTH_SHIFT: Final = 5
DATE_NULL: Final = 0xFF
"""First byte of a null."""
MAX_COMPACT_YEAR: Final = 9999

TIME_FRACTION_BITS: Final = (0, 4, 7, 10, 14, 17, 20, 24, 27, 30)
"""LocalTime: bits of the fraction for 0 to 9 digits."""
TIME_BITS: Final = 17
"""5 of hours, 6 of minutes, 6 of seconds: hour << (12 + f) | minute << (6 + f) | second << f | fraction."""
TIME_MINUTE_SHIFT: Final = 6
TIME_HOUR_SHIFT: Final = 12
TIME_NULL: Final = 0x80
"""First byte of a null; a bit more, where nulls are allowed."""

ZONED_TIME_SIZE: Final = 8
"""ZonedDateTime: i64 nanoseconds since 1970, i32 length, zone id as UTF-8."""
LENGTH_SIZE: Final = 4
"""Counts and lengths of codecs: i32."""
BYTES_PRESENT: Final = 0x00
BYTES_NULL: Final = 0xFF
"""ByteArray of fixed width, if nulls are allowed: a first byte tells."""
MAP_BOOLEAN_NULL: Final = 0x80

CHARSETS: Final = {
    1: "ISO-8859-1",
    2: "UTF-8",
    4: "US-ASCII",
    8: "UTF-16",
    16: "UTF-16BE",
    32: "UTF-16LE",
}
"""Codes of encodings in a table definition; everything else is ISO-8859-1."""
DEFAULT_CHARSET: Final = "ISO-8859-1"

# Directories.

PARTITIONS: Final = ("Partitions", "WritablePartitions")
"""Historical: `<namespace>/Partitions/<internal partition>/<column partition>/<table>`."""
TABLES: Final = "Tables"
"""Splayed: `<namespace>/Tables/<table>`, or anywhere."""
INTRADAY: Final = "Intraday"
"""Intraday: `Intraday/<namespace>/<table>/<internal partition>/<column partition>/<table>`."""
INTERNAL_PARTITION: Final = "__InternalPartition"
"""Column with the internal partition, on request."""
DEFAULT_PARTITION_COLUMN: Final = "Date"

# The checkpoint record.

ROW_COUNT_SIZE: Final = 4
"""Version 0: i32 row count, big endian, and nothing else."""
MAX_COUNTED_ROWS: Final = (1 << 31) - 1
NAME_LENGTH_SIZE: Final = 2
"""Later versions, whose layout is not public: u16 length and characters of a file's name, then, it seems, i64 size."""
FILE_SIZE_SIZE: Final = 8
MAX_CHECKPOINT_SIZE: Final = 4 << 20


class Kind(IntEnum):
    """Kinds of damage; the names are those of the `kind` column."""

    BAD_HEADER = 1
    BAD_METADATA = 2
    BAD_OFFSET = 3
    BAD_SYMBOL = 4
    BAD_VALUE = 5
    SHORT_FILE = 6
    MISSING_FILE = 7
    UNSAFE_PATH = 8


def split_name(name: str) -> tuple[str, str] | None:
    """Column and suffix of a column file's name; None when it is not called like one."""
    for suffix in SUFFIXES:
        if name.endswith(suffix):
            column = name[: -len(suffix)]
            return (column, suffix) if COLUMN_NAME.fullmatch(column) else None
    return None


def array_prefix(letter: str) -> bytes:
    """What every serialized array of a primitive type begins with, up to its length."""
    name = f"[{letter}".encode()
    described = b"\x72" + len(name).to_bytes(2, "big") + name + ARRAY_UIDS[letter].to_bytes(8, "big")
    return JAVA_STREAM_MAGIC + b"\x75" + described + b"\x02\0\0\x78\x70"


def decimal_width(precision: int) -> int:
    """Bytes of a BigDecimal or BigInteger of fixed width, its sign byte included."""
    return math.ceil(precision * math.log2(10) / 8) + 1


def time_width(digits: int, nullable: bool) -> int:
    """Bytes of a LocalTime with so many digits of its second."""
    return math.ceil((TIME_BITS + TIME_FRACTION_BITS[digits] + nullable) / 8)


def immutable(path: str) -> bool:
    """Whether a column file is written once and never changed: intraday ones grow."""
    return INTRADAY not in path.split("/")

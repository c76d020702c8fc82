"""Every number of Deephaven's column files: headers, data regions, sentinels, codecs, directories.

A location is a directory with a few files per column. Integers of the header are always big endian; the byte order of
the data is given by the header (column version 1) or is a constant of the product (column version 2).
"""

from __future__ import annotations

import math
import re
from typing import Final

from sawlog.deephaven.types import ARRAYS
from sawlog.format.damage import DamageKind

# Files of a location.

DATA: Final = ".dat"
"""Fixed-width values, i64 end offsets into the binary data, or i32 symbol ids. Has the header in column version 1."""
OVERFLOW: Final = ".ovr"
"""What the metadata of `.dat` has more than its header has room for; no header of its own."""
BINARY: Final = ".bytes"
"""Values of variable width, one after the other. Never a header."""
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
"""End offsets, of `.dat` and `.sym`: i64, exclusive; a value begins where the previous one ends, the first at 0."""
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


ARRAY_UIDS: Final = {row.descriptor: row.uid for row in ARRAYS.values()}
"""serialVersionUID of the classes of arrays."""
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
"""ByteArray of fixed width, if nulls are allowed: a first byte marks them."""
MAP_BOOLEAN_NULL: Final = 0x80

CHARSETS: Final = {1: "ISO-8859-1", 2: "UTF-8", 4: "US-ASCII", 8: "UTF-16", 16: "UTF-16BE", 32: "UTF-16LE"}
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


class ColumnDamageKind(DamageKind):
    """Kinds of damage of a location and its column files."""

    BAD_HEADER = 1
    BAD_METADATA = 2
    BAD_OFFSET = 3
    BAD_SYMBOL = 4
    BAD_VALUE = 5
    SHORT_FILE = 6
    MISSING_FILE = 7
    UNSAFE_PATH = 8


_COLUMN_FILE_NAME = re.compile(rf"({COLUMN_NAME.pattern})({'|'.join(map(re.escape, SUFFIXES))})")


def split_name(name: str) -> tuple[str, str] | None:
    """Return the column and suffix of a column file's name; None when it is not called like one."""
    match = _COLUMN_FILE_NAME.fullmatch(name)
    return (match[1], match[2]) if match is not None else None


def is_member(name: str) -> bool:
    """Return whether a file of a location can have this name."""
    return name in (TABLE_SIZE, TABLE_DEFINITION, TABLE_SCHEMA) or split_name(name) is not None


def make_array_prefix(letter: str) -> bytes:
    """Return the first bytes of every serialized array of a primitive type, up to its length."""
    name = f"[{letter}".encode()
    described = b"\x72" + len(name).to_bytes(2, "big") + name + ARRAY_UIDS[letter].to_bytes(8, "big")
    return JAVA_STREAM_MAGIC + b"\x75" + described + b"\x02\0\0\x78\x70"


def compute_decimal_width(precision: int) -> int:
    """Return the size of a BigDecimal or BigInteger of fixed width, its sign byte included."""
    return math.ceil(precision * math.log2(10) / 8) + 1


def compute_time_width(digits: int, nullable: bool) -> int:
    """Return the size of a LocalTime with so many digits of its second."""
    return math.ceil((TIME_BITS + TIME_FRACTION_BITS[digits] + nullable) / 8)

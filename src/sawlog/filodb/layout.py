"""Every number of FiloDB's BinaryRecord v2, RecordContainer, BinaryHistogram and NibblePack.

All integers are little endian. Pointers inside a record count from its first byte, the length field.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Literal

import pyarrow as pa

from sawlog.format.damage import UNSUPPORTED, DamageKind
from sawlog.kernels.layout import Number, Scalar, Slice

ColumnType = Literal["int", "long", "double", "ts", "string", "map", "hist", "br"]

SCALARS: dict[str, Scalar] = {
    "int": Scalar("<i", pa.int32()),
    "long": Scalar("<q", pa.int64()),
    "double": Scalar("<d", pa.float64()),
    "ts": Scalar("<q", pa.timestamp("ms", "UTC")),
}
"""How values are stored in the fixed area; slots are not aligned. Those of other types are pointers."""
POINTER_SIZE = 4
POINTER = Number(0, POINTER_SIZE)
"""Into the variable area."""

# Records.
LENGTH_SIZE = 4
LENGTH = Number(0, LENGTH_SIZE)
"""Bytes of the record, or of the container, after this field; padding of records not counted."""
RECORD = Slice(LENGTH)
SCHEMA_ID_OFFSET = 4
SCHEMA_ID_SIZE = 2
SCHEMA_ID = Number(SCHEMA_ID_OFFSET, SCHEMA_ID_SIZE)
"""Only where the schema has partition columns."""
MAX_SCHEMA_ID = (1 << 8 * SCHEMA_ID_SIZE) - 1
HASH_SIZE = 4
"""i32 after the last slot, only where the schema has partition columns."""
ALIGNMENT = 4
"""Records begin at multiples of this, counted from the start of their container."""
PAYLOAD_LENGTH_SIZE = 2
PAYLOAD = Slice(Number(0, PAYLOAD_LENGTH_SIZE))
"""Every payload of the variable area, and every value of a map."""
MAX_PAYLOAD = 0xFFFF

# Maps.
PREDEFINED_FLAG = 0xC0
"""A key byte from here on is a predefined key; its low six bits say which. Below, it is the length of the key."""
MAP_KEY = Slice(Number(0, 1))
"""Every other key of a map."""
MAX_PREDEFINED_KEYS = 64
MAX_KEY = PREDEFINED_FLAG - 1

# Hashes.
HASH_SEED = 0x9747B28C
"""Seed of XXH32."""
HASH_INIT = 7
HASH_FACTOR = 31

# Containers.
CONTAINER_HEADER_SIZE = 16
VERSION_WORD = Number(4, 4)
"""The version in its top byte, the rest zero."""
VERSION_SHIFT = 24
VERSION = 1
TIMESTAMP = Number(8, 8)
"""Signed: milliseconds since the epoch."""
SMALLEST_LENGTH = 4
"""The length field of the smallest record: one slot of four bytes."""
EMPTY_CONTAINER = CONTAINER_HEADER_SIZE - LENGTH_SIZE
"""The length field of a container without records."""
DEFAULT_CONTAINER_SIZE = 256 << 10
MIN_CONTAINER_SIZE = 2048
MAX_CONTAINER_SIZE = 0x7FFFFFFF
WHOLE_UNIT = 1024
"""Whole containers are recognised without a given size where it is a multiple of this."""
MAX_TIMESTAMP = 1 << 47
"""A container header whose milliseconds lie beyond this is not taken for one while searching."""
DOUBTS = 4096
DOUBT_BYTES = 64
"""Doubtful containers are looked at while there are fewer than so many, and one more for each so many bytes."""

# Histograms.
HISTOGRAM_HEADER_SIZE = 3
"""Format code (u8) and bytes of the bucket definition (u16), after the length of the blob."""
MAX_BUCKETS = 8192
GEOMETRIC_SIZE = 18
"""Buckets (u16), first and multiplier (f64)."""
EXPONENTIAL_SIZE = 16
"""Buckets (u16), scale (i16), start index (i32), positive buckets (u16), and six bytes for negative ones."""
MAX_SCALE = 20
MAX_EXPONENTIAL = 180
"""Positive buckets of an exponential histogram."""
NIBBLE_GROUP = 8
"""Values that NibblePack packs together."""


class HistogramFormat(IntEnum):
    """Format codes of histogram blobs."""

    EMPTY = 0x00
    GEOMETRIC_DELTA = 0x03
    GEOMETRIC_1_DELTA = 0x04
    CUSTOM_DELTA = 0x05
    GEOMETRIC_XOR = 0x08
    EXPONENTIAL_DELTA = 0x09
    CUSTOM_XOR = 0x0A
    EXPONENTIAL_XOR = 0x10


class ContainerDamageKind(DamageKind):
    """Kinds of damage of containers and the records in them."""

    BAD_HEADER = 1, "expected a container header (version 1 in byte 7), found length {0} and version word {1:#010x}"
    UNKNOWN_VERSION = 2, "a container of version {1}; only version 1 is known", UNSUPPORTED
    BAD_CONTAINER_LENGTH = (
        3,
        "the container's length, {0}, is wrong: another container begins at byte {1}; the records up to it are read",
    )
    BAD_RECORD_LENGTH = 4, "a record of length {0}; the rest of the container, which ends at byte {1}, is lost"
    UNKNOWN_SCHEMA = (
        5,
        (
            "a record of schema ID {0}, which is not among the known schemas; give schema=,"
            ' or take such records as raw bytes with salvage="unknown_schemas"'
        ),
        UNSUPPORTED,
    )
    UNEXPECTED_SCHEMA = (
        6,
        (
            "a record of schema ID {0}, whose columns are not being read: it is not among"
            ' the schemas at the start of the data; name all schemas to read with table=, or table="all"'
        ),
    )
    BAD_POINTER = 7, "column {0}: pointer or length {1} leads outside the record"
    BAD_MAP = 8, "column {0}: the map's entries do not end where the map does (entry at byte {1} of the map)"
    UNKNOWN_PREDEFINED_KEY = 9, "column {0}: predefined key number {1} is beyond the schema's list"
    BAD_HISTOGRAM = 10, "column {0}: not a histogram (format code {1})"
    BAD_NESTED_RECORD = 11, "column {0}: the nested record is damaged (byte {1} of its payload)"
    INVALID_UTF8 = 12, 'column {0}: not UTF-8 (byte {1} of the payload); strings="binary" returns the bytes'
    HASH_MISMATCH = 13, "the stored partition hash is {0}, the computed one {1}"
    READ_ERROR = 14
    BAD_TIMESTAMP = 15
    BAD_RECORD_SIZE = 16, "a record of length {0}, whose columns end at byte {1} of it"
    HIDDEN_CONTAINER = (
        17,
        "a container begins inside the one at byte {1}, whose length, {0}, is wrong; the records of both are read",
    )
    UNKNOWN_HISTOGRAM = 18, "column {0}: a histogram of format {1}, which is not known", UNSUPPORTED
    DOUBTFUL = 19, "a doubtful container after {0} others and more: these bytes are not looked at"


def align(size: int) -> int:
    """Return the next multiple of `ALIGNMENT` at or above `size`."""
    return -(-size // ALIGNMENT) * ALIGNMENT

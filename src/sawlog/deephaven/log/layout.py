"""Every number of Deephaven's intraday binary log format (versions 2 and 3).

All integers are big endian. A file is a header (preamble, header records, digest) and entries up to its end.
"""

from __future__ import annotations

from enum import IntEnum, IntFlag

from sawlog.deephaven.types import BY_LOG, LogType
from sawlog.format.damage import UNSUPPORTED, DamageKind
from sawlog.kernels.layout import Number, Scalar, Slice

MAGIC = 0xDB1AA1DB
"""u32 at byte 0."""
VERSION_OFFSET = 4
"""i32."""
REMAINING_OFFSET = 8
"""i32: bytes after this field, up to and including the digest of the header."""
PREAMBLE_SIZE = 12
"""Magic, version, remaining."""

CURRENT_VERSION = 3
JAVA_METADATA_VERSION = 2
"""Version 2 holds the charset of a column as a serialized Java object."""

RECORD_HEADER_SIZE = 8
"""Of a header record: i32 size (without these 8 bytes), i32 type."""
DIGEST_SIZE = 4
"""Adler-32, u32."""
MAX_HEADER_SIZE = 64 << 20
"""Longer headers are taken for damage. The vendor's loggers stop at 4 KiB; a table of an enum may need more."""

COUNT_SIZE = 4
"""Counts, lengths and codes are i32."""
VALUE = Slice(Number(0, COUNT_SIZE, big=True))
"""Strings and blobs."""
NULL_LENGTH = -(1 << 31)
"""Length of a constant string or blob that is null; nothing follows it."""

SIZE_SIZE = 4
"""i32 before every entry: bytes that follow it, digest included."""
FLAGS_SIZE = 1
MIN_ENTRY_SIZE = FLAGS_SIZE + DIGEST_SIZE
"""Smallest value of the size field."""
VENDOR_MAX_ENTRY = 1 << 20
"""The vendor's loggers refuse longer entries."""
RECORD_TYPE_OFFSET = 5
"""In a non-row entry, counted from its size field: i32 type, i32 version, then data."""
RECORD_VERSION_OFFSET = 9
RECORD_DATA_OFFSET = 13
BARE_COMMAND_SIZE = 17
"""Bytes of a command without data and without a digest."""
COMMAND_RECORD = 20000
"""Type of a non-row record: i32 command id, data."""
RECORD_VERSION = 1
DELETE_PARTITION = 10000
"""Command id, without data: all rows of the partition so far are gone, those of its earlier files too."""

PRESENCE_BITS = 8
"""Columns per byte of a presence map: stored column i is bit `i % 8`, the least significant first, of byte `i // 8`."""


class HeaderRecord(IntEnum):
    """Types of header records; each at most once, in any order."""

    COLUMNS = 1
    CONSTANTS = 2
    APPLICATION_VERSION = 3


class Flag(IntFlag):
    """The flags byte of an entry. A stand-alone row is a set of one: START and END."""

    START = 1
    END = 2
    RECORD = 4


SINGLE = int(Flag.START | Flag.END)
KNOWN_FLAGS = 7
"""Mask: lenient readers ignore reserved bits."""


MAX_ORIGINAL_COLUMNS = 1 << 15
"""The format before version 2 begins with the number of its columns, where the magic number is today."""

JAVA_STREAM_MAGIC = bytes.fromhex("aced0005")
JAVA_STRING = 0x74
"""TC_STRING: u16 length, modified UTF-8."""

HEADER_DIGEST_STARTS = {"file": 0, "size": REMAINING_OFFSET, "records": PREAMBLE_SIZE}
"""Where the bytes that the digest of the header covers may begin; the first is what we write."""


class BinaryLogDamageKind(DamageKind):
    """Kinds of damage of a binary log."""

    BAD_SIZE = 1, "an entry of {0} bytes cannot be here: expected at least {1}, within the file and max_item_bytes"
    CHECKSUM_MISMATCH = 2, "expected Adler-32 {0:#010x}, found {1:#010x}"
    BAD_FLAGS = 3, "flags {0:#04x} have reserved bits set"
    BAD_ROW = 4, "the columns do not fit the row of {0} bytes: they need more at byte {1} of it"
    BROKEN_SET = 5, "{0} rows of a set that lost a member to the damage after them"
    LOST_START = 6, "a row of a set that lost a member to the damage before it"
    ORPHAN_ROW = 7, "flags {0}: a row of a set that was never started"
    HEADER_DIGEST = 8
    INCOMPLETE_SET = 9, "a set of {0} rows so far has no end"
    BAD_VALUE = 10
    READ_ERROR = 11
    BAD_HEADER = 12
    UNUSED_SPACE = 13, "zeros in the middle of the log"
    UNKNOWN_FLAGS = (
        14,
        "flags {0:#04x} have reserved bits set, and the digest says that they were written so",
        UNSUPPORTED,
    )


def _make_scalar(kind: LogType) -> Scalar:
    facts = BY_LOG[kind]
    nulls = (facts.null, facts.also_null) if facts.log_null is None else (facts.log_null,)
    return Scalar(facts.packed, facts.arrow, tuple(null for null in nulls if null is not None))


SCALARS = {kind: _make_scalar(kind) for kind, facts in BY_LOG.items() if facts.width}
"""How values of fixed width are stored. Patterns stand for null where there is no presence bit, and in the engine."""


def encode_null(kind: LogType) -> bytes:
    """Return the bytes of a constant null of a type."""
    if kind in SCALARS:
        return SCALARS[kind].encode(None)
    return NULL_LENGTH.to_bytes(COUNT_SIZE, "big", signed=True)

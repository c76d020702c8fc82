"""Every number of the LevelDB log format and of its RocksDB and Pebble dialects.

All integers are little endian. A file is a sequence of 32 KiB blocks; a record is stored as one FULL fragment, or as
FIRST, MIDDLE…, LAST; a fragment never crosses a block boundary.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import IntEnum
from typing import Literal

from sawlog.format.damage import UNSUPPORTED, DamageKind
from sawlog.kernels.layout import Number

BLOCK_SIZE = 32768
"""Bytes per block, counted from the start of the file."""

CHECKSUM = Number(0, 4)
"""Masked CRC-32C of everything from the type byte to the end of the payload."""
LENGTH = Number(4, 2)
"""Bytes of payload."""
TYPE = Number(6, 1)
LOG_NUMBER = Number(7, 4)
"""Only in headers longer than `HEADER_SIZE`: the low 32 bits of the number of the log."""

HEADER_SIZE = TYPE.end
RECYCLABLE_HEADER_SIZE = LOG_NUMBER.end
"""Checksum, length, type, log number."""
SYNC_HEADER_SIZE = 19
"""Pebble only: a recyclable header and the u64 offset up to which the log was synced."""

MASK_DELTA = 0xA282EAD8
"""A stored checksum is the CRC rotated right by 15, plus this, modulo 2**32."""
MASK_ROTATION = 15

SAFE_IGNORE = 0x80
"""RocksDB: unknown fragment types with this bit are skipped without a report."""

COMPRESSION_PAYLOAD = 4
"""Bytes of the payload of a compression-type fragment: one u32."""


class Compression(IntEnum):
    """Compression codes of RocksDB, and the last one of Pebble; of records in logs only `ZSTD`.

    LevelDB has the first two for the blocks of its tables, and a code of its own for ZSTD.
    """

    NONE = 0
    SNAPPY = 1
    ZLIB = 2
    BZIP2 = 3
    LZ4 = 4
    LZ4HC = 5
    XPRESS = 6
    ZSTD = 7
    MINLZ = 8


class Type(IntEnum):
    """Fragment types. 5 to 131 are RocksDB's; Pebble uses 9 to 12 otherwise."""

    ZERO = 0
    FULL = 1
    FIRST = 2
    MIDDLE = 3
    LAST = 4
    RECYCLABLE_FULL = 5
    RECYCLABLE_FIRST = 6
    RECYCLABLE_MIDDLE = 7
    RECYCLABLE_LAST = 8
    SET_COMPRESSION = 9
    TIMESTAMP_SIZES = 10
    RECYCLABLE_TIMESTAMP_SIZES = 11
    PREDECESSOR = 130
    RECYCLABLE_PREDECESSOR = 131


class Role(IntEnum):
    """Meaning of a fragment type to the reader, whatever the dialect."""

    UNKNOWN = 0
    FULL = 1
    FIRST = 2
    MIDDLE = 3
    LAST = 4
    METADATA = 5
    COMPRESSION = 6


GIVEN_UP = "; the rest of the block is lost"
"""What is said where the rest of a block is not looked at."""


class LogDamageKind(DamageKind):
    """Kinds of damage of a log."""

    BAD_LENGTH = 1, f"the length in the header, {{0}}, reaches beyond the block{GIVEN_UP}"
    CHECKSUM_MISMATCH = 2, f"expected masked CRC-32C {{0:#010x}}, found {{1:#010x}}{GIVEN_UP}"
    UNKNOWN_TYPE = 3, "a fragment of type {0}, which this version of sawlog does not know", UNSUPPORTED
    PARTIAL_RECORD = 4, "a record of {0} bytes so far has no end: another one starts at byte {1}"
    MISSING_START = 5, "a {1} fragment of {0} bytes whose record has no start"
    BROKEN_RECORD = 6, "a record of {0} bytes so far is cut off by damage or unused space at byte {1}"
    RECORD_TOO_LARGE = 7, "a record of {0} bytes; max_item_bytes is {1}"
    READ_ERROR = 8
    BAD_COMPRESSION = 9, "a record that is not one intact ZSTD frame"
    FOREIGN_FRAGMENT = 10, f"a fragment of log number {{0}} in log number {{1}}{GIVEN_UP}"
    UNUSED_SPACE = 11, "unused space in the middle of a record, or in front of intact ones"


Dialect = Literal["leveldb", "rocksdb", "pebble"]


@dataclass(frozen=True, slots=True)
class FragmentType:
    """Reading of a type byte: its role and the size of its header in bytes."""

    role: Role
    header_size: int = HEADER_SIZE


_LEGACY = {
    1: FragmentType(Role.FULL),
    2: FragmentType(Role.FIRST),
    3: FragmentType(Role.MIDDLE),
    4: FragmentType(Role.LAST),
}
_RECYCLABLE = {
    5: FragmentType(Role.FULL, RECYCLABLE_HEADER_SIZE),
    6: FragmentType(Role.FIRST, RECYCLABLE_HEADER_SIZE),
    7: FragmentType(Role.MIDDLE, RECYCLABLE_HEADER_SIZE),
    8: FragmentType(Role.LAST, RECYCLABLE_HEADER_SIZE),
}
TYPES: dict[Dialect, dict[int, FragmentType]] = {
    "leveldb": _LEGACY,
    "rocksdb": {
        **{code: FragmentType(Role.METADATA) for code in range(SAFE_IGNORE, 256)},
        **_LEGACY,
        **_RECYCLABLE,
        Type.SET_COMPRESSION: FragmentType(Role.COMPRESSION),
        Type.TIMESTAMP_SIZES: FragmentType(Role.METADATA),
        Type.RECYCLABLE_TIMESTAMP_SIZES: FragmentType(Role.METADATA, RECYCLABLE_HEADER_SIZE),
        Type.RECYCLABLE_PREDECESSOR: FragmentType(Role.METADATA, RECYCLABLE_HEADER_SIZE),
    },
    "pebble": {
        **_LEGACY,
        **_RECYCLABLE,
        9: FragmentType(Role.FULL, SYNC_HEADER_SIZE),
        10: FragmentType(Role.FIRST, SYNC_HEADER_SIZE),
        11: FragmentType(Role.MIDDLE, SYNC_HEADER_SIZE),
        12: FragmentType(Role.LAST, SYNC_HEADER_SIZE),
    },
}
"""Per dialect, the type bytes it knows."""

STAMP_SIZES = (Type.TIMESTAMP_SIZES, Type.RECYCLABLE_TIMESTAMP_SIZES)
"""Types that say how many bytes of keys are timestamps, in the records after them: of column families, one by one."""
STAMP_FAMILY = Number(0, 4)
STAMP_SIZE = Number(4, 2)
STAMP_ENTRY = 6
"""Bytes of what is said of a column family: its number and the size; families that are not named have none."""

LEGACY_METADATA: dict[int, int] = {
    Type.RECYCLABLE_TIMESTAMP_SIZES: Type.TIMESTAMP_SIZES,
    Type.RECYCLABLE_PREDECESSOR: Type.PREDECESSOR,
}
"""Metadata types with a recyclable header, and the types that say the same with a legacy one."""

OWN_TYPES: dict[Dialect, frozenset[int]] = {
    "rocksdb": frozenset(TYPES["rocksdb"]) - frozenset(_LEGACY),
    "pebble": frozenset(TYPES["pebble"]) - frozenset(TYPES["leveldb"]) - frozenset(_RECYCLABLE),
}
"""Types by which a log shows whose it is; those with recyclable headers are taken for RocksDB's."""

RECORD_COLUMN = "record"
STALE_COLUMN = "stale"
"""Whether a row is from the former life of a recycled log; only with `salvage="stale"`."""
RECOVERED_COLUMN = "recovered"
"""Whether a row begins after damage in the same block; only with `salvage="damaged"`."""

LOG_NAME = re.compile(r"^(\d+)(?:-(\d+))?\.log$")
"""A write-ahead log; the digits are its number, in decimal. Pebble's may be in parts, which are numbered, too."""
SINK_NAME = re.compile(r"^part-[\w-]+\.log$")
"""A log written by a Spark job."""
MANIFEST_NAME = re.compile(r"^MANIFEST-(\d+)$")
CURRENT_NAME = "CURRENT"
"""The file of a database that names its live MANIFEST."""
ENCRYPTED_PREFIX = 4096
"""Bytes before every file that RocksDB encrypts, CURRENT too: random ones, by which what follows is deciphered."""
ENCRYPTED_VALUES = 200
"""So many different bytes are in such a prefix at the least; a text has fewer."""
CURRENT_BYTES = ENCRYPTED_PREFIX + 1
"""So many of its bytes are looked at: it holds one name and a line feed, unless it is encrypted."""
MARKER_NAME = re.compile(r"^marker\.manifest\.(\d+)\.(MANIFEST-\d+)$")
"""Pebble's markers instead of CURRENT: the marker with the highest number names the MANIFEST."""
IDENTITY_NAME = "IDENTITY"
"""A file that only RocksDB puts into its directories."""
PEBBLE_MARKER = "marker.format-version."
"""Begins the name of a file that only Pebble puts into its directories."""
OPTIONS_NAME = re.compile(r"^OPTIONS-\d+$")
"""The options that RocksDB or Pebble ran with; which of them, its first lines say."""
OWNER_NAME = re.compile(rf"^(?:{re.escape(PEBBLE_MARKER)}|{IDENTITY_NAME}$|{OPTIONS_NAME.pattern[1:]})")
"""Files that say whose a directory is."""
OWNER_BEGINNINGS = (PEBBLE_MARKER, IDENTITY_NAME, "OPTIONS-")
"""What their names begin with."""
POINTER_NAME = re.compile(rf"^{CURRENT_NAME}$|{MANIFEST_NAME.pattern}|{MARKER_NAME.pattern}")
"""Files that say which MANIFEST is the live one, and what they may name."""
OPTIONS_HEAD = 4096
OPTIONS_OWNERS: dict[bytes, Dialect] = {b"pebble_version": "pebble", b"rocksdb_version": "rocksdb"}
ARCHIVE_NAME = "archive"
"""The directory, within its own, that RocksDB moves old logs to."""
TABLE_NAME = re.compile(r"^\d+\.(ldb|sst)$")
"""Tables: sorted files that operations are moved to from the logs."""
EXPORT_NAME = re.compile(r"^output-(\d+)$")
"""A data file of a Datastore or Firestore export."""


def find_block_end(offset: int) -> int:
    """Return the first block boundary at or after a file offset."""
    return -(-offset // BLOCK_SIZE) * BLOCK_SIZE

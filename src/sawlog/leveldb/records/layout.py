"""Every number of what LevelDB and RocksDB put into records: write batches and version edits.

Fixed integers are little endian. A varint holds seven bits per byte, low ones first. "String" means a varint32 length
and that many bytes.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from sawlog.format.damage import UNSUPPORTED, DamageKind
from sawlog.leveldb.log.layout import Dialect

VARINT32_BYTES = 5
VARINT64_BYTES = 10

# Write batches.

COUNT_OFFSET = 8
"""u32: how many operations take a sequence number."""
BATCH_HEADER = 12
"""Sequence and count; operations follow."""


class Field(IntEnum):
    """The fields after the tag of an operation, in this order: bits that are set in its shape."""

    FAMILY = 1
    """varint32: column family; 0 where it is absent."""
    KEY = 2
    """String, into the column `key`."""
    VALUE = 4
    """String, into the column `value`."""
    COUNTED = 8
    """Not a field: the operation takes a sequence number."""
    VALUE_FIRST = 16
    """Not a field: the value precedes the key."""


_FAMILY, _KEY, _VALUE, _COUNTED, _VALUE_FIRST = (field.value for field in Field)


@dataclass(frozen=True, slots=True)
class Operation:
    """An operation: its name in the column `operation`, its tags without and with a column family, and Pebble's."""

    name: str
    shape: int
    tag: int | None = None
    family_tag: int | None = None
    pebble_tag: int | None = None

    def find_tags(self, dialect: Dialect) -> tuple[int | None, int | None]:
        """Return its tags in a dialect, without and with a column family."""
        return (self.pebble_tag, None) if dialect == "pebble" else (self.tag, self.family_tag)

    @property
    def key(self) -> bool:
        """Whether it has a key."""
        return bool(self.shape & _KEY)

    @property
    def value(self) -> bool:
        """Whether it has a value."""
        return bool(self.shape & _VALUE)


OPERATIONS = (
    Operation("delete", _KEY | _COUNTED, 0x00, 0x04, 0x00),
    Operation("put", _KEY | _VALUE | _COUNTED, 0x01, 0x05, 0x01),
    Operation("merge", _KEY | _VALUE | _COUNTED, 0x02, 0x06, 0x02),
    Operation("log_data", _VALUE, 0x03, None, 0x03),
    Operation("single_delete", _KEY | _COUNTED, 0x07, 0x08, 0x07),
    Operation("delete_range", _KEY | _VALUE | _COUNTED, 0x0F, 0x0E, 0x0F),
    Operation("put_blob_index", _KEY | _VALUE | _COUNTED, 0x11, 0x10),
    Operation("put_entity", _KEY | _VALUE | _COUNTED, 0x16, 0x17),
    Operation("timed_put", _KEY | _VALUE | _COUNTED, 0x18, 0x19),
    Operation("begin_prepare", 0, 0x09),
    Operation("begin_persisted_prepare", 0, 0x12),
    Operation("begin_unprepare", 0, 0x13),
    Operation("end_prepare", _KEY, 0x0A),
    Operation("commit", _KEY, 0x0B),
    Operation("commit_with_timestamp", _KEY | _VALUE | _VALUE_FIRST, 0x15),
    Operation("rollback", _KEY, 0x0C),
    Operation("noop", 0, 0x0D),
    Operation("range_key_delete", _KEY | _VALUE | _COUNTED, pebble_tag=0x13),
    Operation("range_key_unset", _KEY | _VALUE | _COUNTED, pebble_tag=0x14),
    Operation("range_key_set", _KEY | _VALUE | _COUNTED, pebble_tag=0x15),
    Operation("ingest_sst", _KEY | _COUNTED, pebble_tag=0x16),
    Operation("delete_sized", _KEY | _VALUE | _COUNTED, pebble_tag=0x17),
    Operation("excise", _KEY | _VALUE | _COUNTED, pebble_tag=0x18),
    Operation("ingest_sst_with_blobs", _KEY | _VALUE | _COUNTED, pebble_tag=0x1A),
)
"""LevelDB knows `put` and `delete` in family 0; the others are RocksDB's, or Pebble's. Codes are places here.

Up to 0x0F Pebble's tags are RocksDB's; above, it has put others in the places of RocksDB's. Of its own operations
`range_key_set` and `range_key_unset` have the key after the range, its suffixes and values in `value`,
`range_key_delete` and `excise` the key after the range; `ingest_sst` has the number of the table, a varint, in `key`;
`ingest_sst_with_blobs`, from format major version 29 on, also how many blob files the table refers to and their
numbers, varints, in `value`; and `delete_sized` the size of what it deletes, a varint, in `value`.
"""

NAMES = tuple(operation.name for operation in OPERATIONS)
MARKS = (
    "begin_prepare",
    "begin_persisted_prepare",
    "begin_unprepare",
    "end_prepare",
    "commit",
    "commit_with_timestamp",
    "rollback",
    "noop",
)
"""Operations that transactions write around others, and at the ends of batches."""
DELETE, PUT, DELETE_RANGE, TIMED_PUT = (NAMES.index(name) for name in ("delete", "put", "delete_range", "timed_put"))

TIMED_SUFFIX = 8
"""After the value of a `timed_put`: in logs, when it was written; in tables, the sequence number of that time."""

MAX_RECORD = (1 << 31) - 1
"""What 32-bit offsets reach; no limit of the format itself."""
MAX_SEQUENCE = (1 << 56) - 1
MAX_FAMILY = (1 << 32) - 1


class BatchDamageKind(DamageKind):
    """Kinds of damage inside write batches."""

    BATCH_TOO_SMALL = 1, "a write batch has a header of 12 bytes; the record has {0}"
    UNKNOWN_OPERATION = (
        2,
        (
            "tag {0:#04x} at byte {1} of the write batch, which this version of sawlog does not know;"
            " what follows it in the batch is not read"
        ),
        UNSUPPORTED,
    )
    """A tag that nobody knows under a checksum that matches is a newer engine's."""
    BROKEN_OPERATION = 3, "the {0} at byte {1} of the write batch does not end in it"
    WRONG_COUNT = 4, "the write batch counts {0} operations and holds {1}"


# Version edits: the records of a MANIFEST.

SKIPPABLE = 8192
"""Tags with this bit that nobody knows are followed by a string, and skipped."""

SEQUENCE_SHIFT = 8
"""An internal key ends in a u64: the sequence number shifted by this, and the type of the operation."""
KEY_TRAILER = 8


class Tag(IntEnum):
    """Tags of version edits. 1 to 9 are LevelDB's, the others RocksDB's and Pebble's."""

    COMPARATOR = 1
    LOG_NUMBER = 2
    NEXT_FILE = 3
    LAST_SEQUENCE = 4
    COMPACT_POINTER = 5
    DELETED_FILE = 6
    NEW_FILE = 7
    PREVIOUS_LOG_NUMBER = 9
    MIN_LOG_TO_KEEP = 10
    NEW_FILE_2 = 100
    NEW_FILE_3 = 102
    NEW_FILE_4 = 103
    NEW_FILE_5 = 104
    """Pebble: a table with range keys."""
    BACKING_ADDITION = 105
    BACKING_REMOVAL = 106
    BLOB_FILE_ADDITION = 107
    """Pebble, as are the next one and the two before."""
    BLOB_FILE_REMOVAL = 108
    COLUMN_FAMILY = 200
    ADD_COLUMN_FAMILY = 201
    DROP_COLUMN_FAMILY = 202
    MAX_COLUMN_FAMILY = 203
    ATOMIC_GROUP = 300
    BLOB_ADDITION = 400
    BLOB_GARBAGE = 401
    DB_ID = 8193
    BLOB_ADDITION_OLD = 8194
    BLOB_GARBAGE_OLD = 8195
    WAL_ADDITION_OLD = 8196
    WAL_DELETION_OLD = 8197
    WAL_ADDITION = 8199
    WAL_DELETION = 8200
    STAMPS_PERSISTED = 8201
    """One byte: whether the tables of a column family have the timestamps that keys in its order have."""


class PebbleTag(IntEnum):
    """Tags that mean something else in Pebble than in RocksDB, or that only Pebble has."""

    EXCISE_BOUNDS = 10
    """From format major version 25 on: first key, end, whether the end is a part of it, and a sequence number."""
    MARKED_FILE = 11
    """From format major version 28 on: a table that is to be compacted."""


class Custom(IntEnum):
    """Tags of the fields that end a `Tag.NEW_FILE_4`; each but `END` and Pebble's varints is followed by a string."""

    END = 1
    NEED_COMPACTION = 2
    OLDEST_BLOB_FILE = 4
    OLDEST_ANCESTOR_TIME = 5
    CREATION_TIME = 6
    CHECKSUM = 7
    CHECKSUM_FUNCTION = 8
    TEMPERATURE = 9
    UNIQUE_ID = 12
    EPOCH_NUMBER = 13
    STAMPS_PERSISTED = 16
    """One byte, only where it is 0: keys of the table are without the timestamps that they have otherwise."""
    PATH_ID = 65
    VIRTUAL = 66
    """Pebble, as are those that follow: a varint, the file that holds the table."""
    SYNTHETIC_PREFIX = 67
    SYNTHETIC_SUFFIX = 68
    BLOB_REFERENCES = 69
    """A varint, the depth; another, how many references follow; of each the file and the bytes of its values."""
    SIZED_BLOB_REFERENCES = 70
    """The same with a third varint for each: the bytes of the values that the whole file refers to."""


POINT_KEYS = 1
"""Bit of the byte after the size in a `Tag.NEW_FILE_5`: the table has point keys; their bounds come first."""
SMALLEST_IS_POINT = 2
LARGEST_IS_POINT = 4

CUSTOM_MUST_KNOW = 64
"""Unknown custom tags with this bit must not be skipped."""
BLOB_END = 0
"""Ends the custom fields of a blob file; unknown ones with the bit `CUSTOM_MUST_KNOW` must not be skipped."""
BOUND_INCLUDED = 1
"""The kind of the end of an excise that is a part of it; 0 where it is not."""
WAL_END = 1
"""Ends the fields of a WAL addition."""
WAL_SYNCED_SIZE = 2

EDIT_DAMAGE = "bad_edit"
"""Kind of damage: a record of a MANIFEST that is no version edit."""

MAX_LEVEL = 255
"""LevelDB has 7 levels; RocksDB as many as it is told to."""

"""Every number of etcd's files: bbolt's pages, etcd's buckets, the frames and records of its write-ahead log.

bbolt writes integers as the machine has them, which is little endian wherever etcd runs; etcd's own keys are big
endian.
"""

from __future__ import annotations

import re
import struct
from enum import IntEnum, IntFlag

PAGE_HEADER = struct.Struct("<QHHI")
"""Page id, flags, number of elements, and how many pages follow that belong to it (overflow)."""
BRANCH_ELEMENT = struct.Struct("<IIQ")
"""Position of the key from the element's own start, length of the key, page id of the child."""
LEAF_ELEMENT = struct.Struct("<IIII")
"""Flags, position of the key from the element's own start, lengths of key and value; the value follows the key."""
BUCKET_HEADER = struct.Struct("<QQ")
"""Root page of a bucket, 0 for one whose only page follows inline; and a sequence number."""
META = struct.Struct("<IIIIQQQQQQ")
"""Magic, version, page size, flags, root page, sequence, page of the free list, number of pages, transaction, checksum;
after the header of a page."""
META_CHECKED = META.size - 8
"""Bytes of a meta that its checksum covers."""
BOLT_MAGIC = 0xED0CDAED
BOLT_VERSION = 2
FIRST_PAGE = 2
"""Pages 0 and 1 are the two metas."""
PAGE_SIZES = tuple(1024 << shift for shift in range(15))
"""The sizes of pages that bbolt looks for."""
FNV_OFFSET = 0xCBF29CE484222325
FNV_PRIME = 0x100000001B3
SNAPSHOT_HASH = 32
"""Bytes of the SHA-256 that `etcdctl snapshot save` puts after a database, whose size is else a multiple of 512."""
SECTOR = 512


class PageKind(IntFlag):
    """Flags of a page."""

    BRANCH = 1
    LEAF = 2
    META = 4
    FREE_LIST = 16


IS_BUCKET = 1
"""Flag of a leaf element whose value is a bucket."""

KEY_BUCKET = b"key"
META_BUCKET = b"meta"
LEASE_BUCKET = b"lease"
ALARM_BUCKET = b"alarm"
MEMBERS_BUCKET = b"members"
CONSISTENT_INDEX = b"consistent_index"
SCHEDULED_COMPACTION = b"scheduledCompactRev"
FINISHED_COMPACTION = b"finishedCompactRev"
REVISION = struct.Struct(">QcQ")
"""Key of a change: main revision, `_`, and its place among the changes of that revision."""
REVISION_MARK = b"_"
TOMBSTONE_MARK = b"t"
"""What follows the key of a change that deletes."""
NUMBER = struct.Struct(">Q")

FRAME = struct.Struct("<Q")
"""Length of a record in the lower 56 bits; the upper byte has its own highest bit and the length of the padding."""
LENGTH_MASK = (1 << 56) - 1
PADDED = 1 << 63
PADDING_SHIFT, PADDING_MASK = 56, 7
LOG_NAME = re.compile(r"^([0-9a-f]{16})-([0-9a-f]{16})\.wal$")
"""Number of a file of the write-ahead log, and the index of its first entry."""


class RecordType(IntEnum):
    """Types of records in the write-ahead log."""

    METADATA = 1
    ENTRY = 2
    STATE = 3
    CRC = 4
    SNAPSHOT = 5


OLD_METHODS = frozenset({b"PUT", b"POST", b"DELETE", b"GET", b"QGET", b"SYNC"})
"""Methods of requests to the store that etcd had before, which members up to 3.5 put into the log as they are."""
NORMAL_ENTRY = 0
"""Type of an entry that is a request; others change who is a member."""


class Comparison(IntEnum):
    """Comparisons of a transaction."""

    EQUAL = 0
    GREATER = 1
    LESS = 2
    NOT_EQUAL = 3


class Target(IntEnum):
    """Property of a key that a transaction compares."""

    VERSION = 0
    CREATE = 1
    MOD = 2
    VALUE = 3
    LEASE = 4


class Alarm(IntEnum):
    """Alarms, while which requests are refused."""

    NO_SPACE = 1
    CORRUPT = 2


ACTIVATE, DEACTIVATE = 1, 2
"""Actions of requests that concern alarms."""
FROM_KEY = b"\0"
"""End of a range without an end."""

DATABASE = "db"
SNAPSHOT_DIRECTORY = "snap"
LOG_DIRECTORY = "wal"
MEMBER_DIRECTORY = "member"

"""Every number of Milvus binlogs.

All integers are little endian. An enveloped file (V1) is a magic number, a descriptor event, and data events whose
payloads are complete Parquet files. Storage V2 files are bare Parquet.
"""

from __future__ import annotations

import datetime as dt
import re
import struct
from enum import IntEnum
from typing import Literal

from sawlog.format.damage import UNSUPPORTED, DamageKind
from sawlog.guard import EPOCH, count_microseconds
from sawlog.kernels.layout import locate_numbers

MAGIC = b"\xbc\xfa\xff\x00"
"""int32 0x00FFFABC."""
PARQUET_MAGIC = b"PAR1"
ENCRYPTED_PARQUET_MAGIC = b"PARE"
AVRO_MAGIC = b"Obj\x01"
"""A manifest of Storage V3."""
GZIP_MAGIC = b"\x1f\x8b"
PARQUET_MINIMUM = 12
"""Bytes of the smallest Parquet file: magic, footer length, magic."""
MAGIC_SEARCH = 200
"""Bytes in front of a displaced magic number within which it is looked for (left-over S3 chunk signatures)."""

HEADER = struct.Struct("<qbII")
"""Event header: timestamp (a TSO, which Milvus has as u64 here and as i64 in rows; i64 everywhere in sawlog), type code
i8, event length i32 and next position i32 (read as u32 here)."""
LEGACY_HEADER = struct.Struct("<qbIII")
"""Before 2.0: timestamp, type code, server id, event length, next position."""
EVENT_HEADER = locate_numbers(HEADER, "timestamp", "type", "event length", "next position")
"""The numbers of an event header."""
DESCRIPTOR = struct.Struct("<qqqqqqi8s")
"""Collection, partition, segment, field id; start and end timestamp; payload type; post-header lengths."""
EXTRA_LENGTH = struct.Struct("<I")
DESCRIPTOR_FIELDS = locate_numbers(
    struct.Struct(DESCRIPTOR.format + "I"),
    *("collection", "partition", "segment", "field", "start timestamp", "end timestamp"),
    *("payload type", "post-header lengths", "extra length"),
)
"""The numbers of the fixed part of a descriptor, and of the extras' length after it."""
LEGACY_DESCRIPTOR = struct.Struct("<hqqbqqqqqi7s")
"""Binlog version, server version, commit id, header length; collection, partition, segment id; start and end
timestamp; payload type; post-header lengths."""
LEGACY_FIELD_DESCRIPTOR = struct.Struct("<hqqbqqqqqqi")
"""The same with a field id after the segment id, of spring 2021."""
EVENT_DATA = struct.Struct("<qq")
"""Start and end timestamp, in front of the payload."""
EVENT_RANGE = locate_numbers(EVENT_DATA, "start timestamp", "end timestamp")
POST_HEADER_LENGTHS = bytes([52, *[EVENT_DATA.size] * 7])
"""Sizes of the fixed parts of events, by type code."""
MAX_FILE_SIZE = (1 << 31) - 1
"""Positions and lengths are int32."""


class EventType(IntEnum):
    """Type codes of events."""

    DESCRIPTOR = 0
    INSERT = 1
    DELETE = 2
    CREATE_COLLECTION = 3
    DROP_COLLECTION = 4
    CREATE_PARTITION = 5
    DROP_PARTITION = 6
    INDEX_FILE = 7


DDL_EVENTS = frozenset(range(EventType.CREATE_COLLECTION, EventType.DROP_PARTITION + 1))


class DataType(IntEnum):
    """Codes of field types, by Milvus' names."""

    None_ = 0
    Bool = 1
    Int8 = 2
    Int16 = 3
    Int32 = 4
    Int64 = 5
    Float = 10
    Double = 11
    String = 20
    VarChar = 21
    Array = 22
    JSON = 23
    Geometry = 24
    Text = 25
    Timestamptz = 26
    Mol = 27
    Date = 28
    Time = 29
    Decimal = 30
    UUID = 31
    BinaryVector = 100
    FloatVector = 101
    Float16Vector = 102
    BFloat16Vector = 103
    SparseFloatVector = 104
    Int8Vector = 105
    ArrayOfVector = 106
    ArrayOfStruct = 200
    Struct = 201


ROW_ID_FIELD = 0
TIMESTAMP_FIELD = 1
FIRST_USER_FIELD = 100
SYSTEM_FIELDS = frozenset([ROW_ID_FIELD, TIMESTAMP_FIELD])
DELTA_FIELD = -1
"""Field id in the descriptor of a delta log."""
ALL_PARTITIONS = -1
DYNAMIC_NAME = "$meta"
COMPOUND_STATS = 1
"""Log id of a stats log that holds a JSON array, one entry per binlog batch."""

PAYLOAD_COLUMN = "val"
ORIGINAL_SIZE = "original_size"
"""Extra that every file has: bytes of its values in memory, as text. Only a hint."""

COLLECTION_COLUMN = "_collection"
PARTITION_COLUMN = "_partition"
SEGMENT_COLUMN = "_segment"
"""Columns that give the place of a row."""

INSERT_LOG = "insert_log"
DELTA_LOG = "delta_log"
STATS_LOG = "stats_log"
INDEX_FILES = "index_files"
DDL_LOG = "data_definition_log"
BM25_STATS = "bm25_stats"
DIRECTORIES = (INSERT_LOG, DELTA_LOG, STATS_LOG, INDEX_FILES, DDL_LOG, BM25_STATS)
SERVER_DIRECTORIES = frozenset({"rocksmq", "rdb_data", "rdb_data_meta_kv", "etcd"})
"""Where a standalone server keeps its queue and its metadata, next to the logs of collections."""
FOLLOWED = {"inserts": INSERT_LOG, "deletes": DELTA_LOG}
"""The views that are streams, and the directories whose files they read."""
ID = re.compile(r"^(-1|\d{1,19})$")
"""A decimal int64 in a path; -1 stands for all partitions."""
INTEGER = re.compile(r"-?[0-9]{1,20}")
"""A decimal integer of 64 bits in JSON, as text."""
SECONDS = re.compile(r"[0-9]{1,18}")
"""A time to live in the properties of a collection."""
ETCD_DUMP = "etcd.json"
ETCD_NAME = "etcd"
"""Name of a dump of an etcd next to logs, and what the name of an etcd's data directory has in it."""
SNAPSHOTS = "snapshots"
SNAPSHOT_DOCUMENTS = "metadata"
SNAPSHOT_MANIFESTS = "manifests"
"""Directories of Milvus' snapshots, next to those of logs: `snapshots/<collection>/metadata/<snapshot>.json`."""
LAST_SNAPSHOT = 5
"""The last version of snapshots."""
BACKUP_META = "full_meta.json"
BACKUP_HEAD = "backup_meta.json"
BACKUP_META_DIRECTORY = "meta"
BACKUP_LOGS = "binlogs"
"""Files and directories of a milvus-backup; by the head, which says nothing else, it knows that one is there."""
MAX_LENGTH = 65535
MAX_CAPACITY = 4096
"""The most that Milvus allows a text to have bytes, and an array elements."""
DEFAULT_PARTITION = "_default"
DEFAULT_DATABASE = "default"
TTL_PROPERTY = "collection.ttl.seconds"
"""Property of a collection: seconds after which rows are no longer seen."""
MAX_DIMENSIONS = 1 << 20
"""More than any vector of Milvus has (32768, and 262144 bits)."""
STATS_HEAD = re.compile(rb'^\s*\[?\s*\{\s*"(fieldID|max|min|bf|bfType|pkType|maxPk|minPk)"')
Shape = Literal["v1", "parquet", "stats", "manifest", "encrypted_parquet", "unknown"]
"""What a file is, as far as its first bytes say."""
V2_MARK = b"group_field_id_list"
"""Key in the footer of Storage V2 files."""
FIELD_ID_KEY = b"PARQUET:field_id"
FIELD_ID = re.compile(rb"^\d{1,18}$")
MANIFEST_DIRECTORY = "_metadata"
"""Where a segment of Storage V3 keeps its manifests."""
MANIFEST_NAME = re.compile(r"^manifest-(\d{1,18})\.avro$")
MAX_MANIFEST = 1 << 20
"""Bytes of the largest manifest that is read: thousands of files."""
PACKED_DATA = "_data"
PACKED_DELTAS = "_delta"
PACKED_STATS = "_stats"
"""What the paths in a manifest are relative to, below the segment's directory."""
PACKED_STATISTICS = {"bloom_filter": STATS_LOG, "bm25": BM25_STATS}
"""Keys of statistics in a manifest, in front of the id of their field, by what they are elsewhere."""
PACKED_FORMAT = "parquet"
"""The format of column groups that is read; `vortex`, `lance-table` and others are not."""
DELETES_BY_KEY = 0
"""Type of the delta logs that hold keys; 1 holds positions, 2 conditions."""
MANIFEST_MARK = 0x4D494C56
"""What manifests without an Avro container begin with, as Avro's int; their version follows."""
LAST_MANIFEST = 6
"""The last version of those."""
LOB_INLINE = 0
LOB_REFERENCE = 1
"""First byte of a text in Storage V3: the text follows; or a reference to a file of large ones."""
LARGE_TEXT = struct.Struct("<B3x16si")
"""Such a reference: its first byte, the UUID of the file, the row in it."""
BM25_HEADER = struct.Struct("<iqq")
"""Version, rows and tokens, in front of the entries of BM25 statistics."""
BM25_ENTRY = struct.Struct("<Ii")
"""A token (its hash), and how many rows have it."""

TSO_BYTES = 8
MAX_TSO = (1 << 63) - 1
LOGICAL_BITS = 18
"""A TSO is milliseconds since 1970, shifted left by this, and a counter below."""


STORAGE_V3 = 3
"""Storage version, in the metadata of a segment, of manifests."""


class SegmentState(IntEnum):
    """States of a segment in the metadata."""

    NOT_EXIST = 1
    GROWING = 2
    SEALED = 3
    FLUSHED = 4
    FLUSHING = 5
    DROPPED = 6
    IMPORTING = 7


class SegmentLevel(IntEnum):
    """Levels of a segment; `L0` holds deletes only."""

    LEGACY = 0
    L0 = 1
    L1 = 2
    L2 = 3


class BinlogDamageKind(DamageKind):
    """Kinds of damage; the walk over events writes the first ones."""

    TRUNCATED = 1
    BAD_EVENT_LENGTH = 2
    UNKNOWN_EVENT = 3
    TRAILING_BYTES = 4
    ENCRYPTED = 5, "", UNSUPPORTED
    UNSUPPORTED = 6
    BAD_MAGIC = 7
    BAD_DESCRIPTOR = 8
    BAD_EXTRA = 9
    BAD_PAYLOAD = 10
    PAYLOAD_TOO_LARGE = 11
    BAD_VALUE = 12
    BAD_DELETE = 13
    BAD_STATS = 14
    MISSING_FILE = 15
    CUT_METADATA = 16
    MISMATCHED_FILE = 17
    ROW_COUNT_MISMATCH = 18
    TYPE_MISMATCH = 19
    BAD_MANIFEST = 20


OTHER_STATE = "it is of another state of the segment: copy files and metadata again, of one state"
"""What to say of a file that does not agree with the metadata."""


def encode_tso(moment: dt.datetime) -> int:
    """Return the first TSO of a moment's millisecond; moments without a time zone are UTC."""
    return count_microseconds(moment) // 1000 << LOGICAL_BITS


def decode_tso(timestamp: int) -> dt.datetime:
    """Return the moment of a TSO, to the millisecond, in UTC."""
    milliseconds = timestamp >> LOGICAL_BITS
    return EPOCH + dt.timedelta(milliseconds=milliseconds)


def sniff(head: bytes) -> Shape:
    """Return what a file is, by its first bytes."""
    if head.startswith(MAGIC):
        return "v1"
    if head.startswith(PARQUET_MAGIC):
        return "parquet"
    if head.startswith(ENCRYPTED_PARQUET_MAGIC):
        return "encrypted_parquet"
    if head.startswith(AVRO_MAGIC):
        return "manifest"
    return "stats" if STATS_HEAD.match(head) else "unknown"

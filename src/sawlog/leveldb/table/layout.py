"""Every number of LevelDB's table format and of RocksDB's block-based one.

All integers are little endian. A table is a chain of blocks, each followed by a trailer of five bytes, and ends in a
footer that leads to two of them: the index, whose values are the places of the data blocks, and the metaindex, whose
keys name the other blocks.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import IntEnum
from functools import lru_cache
from itertools import accumulate
from typing import Literal

from sawlog.format.damage import UNSUPPORTED, DamageKind
from sawlog.kernels.layout import Number
from sawlog.leveldb.records import layout as records

Dialect = Literal["leveldb", "rocksdb", "pebble"]

MAGIC_SIZE = 8
MAGICS: dict[int, Dialect] = {
    0xDB4775248B80FB57: "leveldb",
    0x88E241B785F4CFF7: "rocksdb",
    0xB3AA9FF0B3AA9FF0: "pebble",
}
"""The last eight bytes of a table. RocksDB's format version 0 has LevelDB's."""
OTHER_MAGICS: dict[int, str] = {
    0x4F3418EB7A8F13B8: "a plain table of RocksDB, which has no blocks",
    0x8242229663BF9564: "a plain table of RocksDB, which has no blocks",
}
"""RocksDB's other kinds of tables, which are not read."""
CUCKOO_MAGIC = 0x926789D0C5F17873
"""RocksDB's cuckoo tables: buckets of one size, then properties and metaindex, all without trailers."""
CUCKOO_VERSION = 1
"""The format version of their footers, which are RocksDB's first ones."""
FIXED_KEY = b"rocksdb.fixed.key.length"
BUCKET_USER_KEY = b"rocksdb.cuckoo.hash.userkeylength"
BUCKET_VALUE = b"rocksdb.cuckoo.value.length"
BUCKET_EMPTY = b"rocksdb.cuckoo.bucket.empty.key"

SELF_CHECKED_VERSION = 6
"""From this format version on the footer has a checksum, and those of blocks depend on their place."""
CHECKED_FOOTERS = (6, 7, 8)
"""Pebble's format versions whose footers have a checksum: a CRC-32C of the other fields."""
EXTENDED_MAGIC = 0x007A003E


@lru_cache(maxsize=32)  # versions come from files
def list_footer_fields(dialect: Dialect, version: int) -> Mapping[str, Number]:
    """Return the fields of a footer, by their names.

    Handles are those of the metaindex and of the index (offset and size of each, as varint64), and padding. A footer
    without handles follows the metaindex, which names the index.
    """
    fields = {"handles": 40}
    if dialect == "rocksdb" and version >= SELF_CHECKED_VERSION:
        fields = {
            "extended magic": 4,
            "checksum": 4,
            "base context": 4,
            "metaindex size": 4,
            "reserved": 16,
            "zeros": 8,
        }
    elif dialect == "pebble" and version in CHECKED_FOOTERS:
        fields |= {"checksum": 4} if version == CHECKED_FOOTERS[0] else {"attributes": 4, "checksum": 4}
    if dialect != "leveldb":
        fields = {"checksum type": 1, **fields, "format version": 4}
    fields["magic"] = MAGIC_SIZE
    starts = accumulate(fields.values(), initial=0)
    return {name: Number(start, size) for (name, size), start in zip(fields.items(), starts, strict=False)}


LEVELDB_FOOTER = list_footer_fields("leveldb", 0)["magic"].end
ROCKSDB_FOOTER = list_footer_fields("rocksdb", 0)["magic"].end
LARGEST_FOOTER = list_footer_fields("pebble", CHECKED_FOOTERS[-1])["magic"].end

LAST_VERSION: dict[Dialect, int] = {"leveldb": 0, "rocksdb": 7, "pebble": 8}
"""The last format version that is understood."""
DELTA_VERSION = 4
"""From this format version of RocksDB's on, the values of an index are differences, unless properties say otherwise."""
MANAGED_VERSION = 7
"""From this one on, the property COMPRESSION begins with the name of what compressed the blocks, and a semicolon."""
BUILTIN_MANAGERS = frozenset({b"", b"BuiltinV2"})
"""Names there under which compression codes are those of `Compression`."""

# From which version of Pebble's tables on they have what.
PREFIXED_VALUES = 3
"""Values of `put` begin with a byte that says where they are: after it, or in a block of values."""
COLUMNAR = 5
"""Blocks of entries and of the index are columnar."""
COLUMNAR_METAINDEX = 6
COLUMNAR_PROPERTIES = 7
"""Version 8 adds two columns to blocks of entries, after all others: a span and an attribute, for tiers of storage."""

COLUMNAR_VERSION = 1
COLUMNAR_HEADER = 7
"""Version, number of columns (u16) and of rows (u32)."""
COLUMN_HEADER = 5
"""Kind, and where the column begins (u32)."""
FROM_BASE = 0x80
"""In the width of integers: they are counted from a number of eight bytes, which comes before them."""
NO_BITS = 1
"""Of a column of bits: all are zero, and left out."""


class ColumnKind(IntEnum):
    """The content of a column."""

    BITS = 1
    INTEGER = 2
    STRING = 3
    PREFIXED = 4


VALUE_PLACE = 0xC0
"""In the byte before a value: where it is."""
IN_BLOB_FILE = 0x40
IN_VALUE_BLOCK = 0x80
NEVER_PREFIXED = 0x18
"""In that byte: zeros."""
OBSOLETE = 0x40
"""In the type of a key, from version 4 on: another entry of the table hides it."""
OBSOLETE_VERSION = 4

TRAILER_SIZE = 5
"""After each block: its compression, and a checksum of the block and that byte."""
CHECKSUM_OFFSET = 1


class Checksum(IntEnum):
    """Checksum types. LevelDB knows only CRC-32C."""

    NONE = 0
    CRC32C = 1
    XXH32 = 2
    XXH64 = 3
    XXH3 = 4


LAST_BYTE_FACTOR = 0x6B9083D9
"""XXH3 is taken of only the block; the compression byte times this is combined with it."""


MINLZ_MARK = b"\0"
"""What MinLZ's blocks begin with; their size follows, as a varint."""
LEVELDB_ZSTD = 2
"""LevelDB's own code for ZSTD; a fork that keeps a game's worlds uses it for zlib, and `LEVELDB_DEFLATE`, too."""
LEVELDB_DEFLATE = 4
ZSTD_MAGIC = bytes.fromhex("28b52ffd")
"""What a frame of ZSTD begins with."""
SIZED_VERSION = 2
"""From this format version on, compressed blocks begin with their size as a varint32, except for Snappy's."""
OLD_LZ4_SIZE = 8
"""Before that, LZ4's begin with it as a u64."""
LZ4_REACH = 1 << 16
"""LZ4 refers to so many bytes before, those of a dictionary included."""

RESTART_SIZE = 4
BLOCK_FLAGS = 0xF0000000
"""In the number of restart points that ends a block: what else is known of the block."""
HASH_INDEX = 1 << 31
"""Buckets of a hash index are before the number, after the restart points."""
UNKNOWN_FLAG = 1 << 30
"""Reserved for format versions to come."""
VALUES_APART = 1 << 28
"""All values follow the keys; before the number is a u32, where they begin; at each restart point the lengths of an
entry are followed by a varint, where its value begins among them."""
HASH_INDEX_LARGEST = 1 << 16
"""Larger blocks have no hash index."""
BUCKETS_SIZE = 2
SMALLEST_ENTRY = 3
"""Bytes of the smallest entry of a block, or of an index."""

KEY_TRAILER, SEQUENCE_SHIFT = records.KEY_TRAILER, records.SEQUENCE_SHIFT
SALVAGED_BYTES = 1 << 20
"""Longer blocks are not found where nothing leads to them."""
STAMP_SUFFIX = ".u64ts"
"""Ends the name of a comparator of RocksDB's: keys are ordered as by the one before, and then by the timestamps that
they end in, newest first."""
STAMP_WIDTH = 8
MOST_EXPANSION = 4096
"""Keys of a block that together are longer than so many times the block are not believed."""

OPERATIONS: dict[int, str] = {
    0x00: "delete",
    0x01: "put",
    0x02: "merge",
    0x07: "single_delete",
    0x0F: "delete_range",
    0x11: "put_blob_index",
    0x16: "put_entity",
    0x17: "delete_sized",
    0x18: "timed_put",
}
"""What the type of a key says about it."""
OTHER_OPERATIONS = {0x12: "put", 0x14: "delete"}
"""In tables that Pebble writes in formats of others, and in those of keys with timestamps."""
DELETE_RANGE = 0x0F
BLOB_INDEX = 0x11
PUT = 0x01
PUT_ENTITY = 0x16
PEBBLE_OPERATIONS = {
    **{code: OPERATIONS[code] for code in (0x00, 0x01, 0x02, 0x07, DELETE_RANGE, BLOB_INDEX, 0x17)},
    0x12: "put",
}
"""Pebble's; the last is a `put` after which something may have been deleted."""
PREFIXED_KIND = 0x01
"""From version 3 on, a byte precedes the values of these."""

ENTITY_VERSION = 1
"""Of wide-column entities: names and sizes of columns, in turns; then values."""
TYPED_ENTITY_VERSION = 2
"""A type for each column, then names and values, sizes first; a value may be an address, as in BLOB_INDEX."""
ENTITY_LENGTHS = 3
"""Before the types: bytes of the sizes of names, of those of values, and of the names."""

BLOB_INLINE = 0
"""First byte of a value that is in its entry: a varint of when it expires, and the value, follow."""
BLOB_IN_FILE = 1
"""First byte of an address: file, place and size as varints, and its compression, follow."""
BLOB_WITH_EXPIRATION = 2
"""Likewise, after a varint of when it expires."""

INDEX_NAME = b"rocksdb.index"
"""In the metaindex: the index, where the footer has no handle of it."""
PROPERTIES_NAMES = (b"rocksdb.properties", b"rocksdb.stats")
RANGE_DELETES_NAMES = (b"rocksdb.range_del", b"rocksdb.range_del2")
PARTITIONED_FILTER = b"partitionedfilter."
"""What the name of a filter begins with that is an index of its parts."""
DICTIONARY_NAME = b"rocksdb.compression_dict"
VALUE_INDEX_NAME = b"pebble.value_index"
"""Blocks of values, as tuples of number, offset and length; the widths of these follow the handle."""
VALUE_BLOCK = "values"
KEY_SCHEMA = b"pebble.colblk.schema"
"""How keys are cut into columns: by prefix and suffix (DEFAULT_SCHEMA), or by CockroachDB's versions."""
DEFAULT_SCHEMA = b"DefaultKeySchema("
COCKROACH_SCHEMA = b"crdb1"

INDEX_TYPE = b"rocksdb.block.based.table.index.type"
DELTA_ENCODED = b"rocksdb.index.value.is.delta.encoded"
USER_KEYS = b"rocksdb.index.key.is.user.key"
GLOBAL_SEQUENCE = b"rocksdb.external_sst_file.global_seqno"
EXTERNAL_VERSION = b"rocksdb.external_sst_file.version"
LAST_EXTERNAL = 2
"""The last version of ingested tables; from this one on they may have a `GLOBAL_SEQUENCE`."""
COMPARATOR = b"rocksdb.comparator"
SESSION = b"rocksdb.creating.session.identity"
"""The session of a process that wrote the table, in base 36."""
SESSION_DIGITS = range(13, 25)
"""So many digits it has; the last `SESSION_LOW_DIGITS` are the low 62 bits."""
SESSION_LOW_DIGITS = 12
COMPRESSION = b"rocksdb.compression"
GLOBAL_SEQUENCE_SIZE = 8
COLUMN_FAMILY = b"rocksdb.column.family.name"
COLUMN_FAMILY_NUMBER = b"rocksdb.column.family.id"
EMBEDDED_VALUES = b"rocksdb.embedded.blob.stats"
"""Values are between the blocks of entries, each with the trailer of a block; entries lead to them."""
SAME_FILE = 0
"""The number of the file in the address of such a value."""
STAMPS_KEPT = b"rocksdb.user.defined.timestamps.persisted"
"""A varint; 0 where keys are without the timestamps that their order has: all are 0."""
RANGE_KEYS_NAME = b"pebble.range_key"
"""In the metaindex: Pebble's range keys, sets, unsets and deletions of them."""
RANGE_KEYS = b"pebble.num.range-key-sets"
"""Pebble's: how many range keys a table sets, as a varint."""
FIXED_PROPERTIES = frozenset({INDEX_TYPE, GLOBAL_SEQUENCE, EXTERNAL_VERSION})
"""Properties whose values are fixed integers; those of the others that are no text are varints."""
TEXT_PROPERTIES = re.compile(
    rb"rocksdb\.(comparator|merge\.operator|property\.collectors|compression.*|filter\.policy"
    rb"|prefix\.extractor\.name|column\.family\.name|creating\..*|.*\.identity)$"
)

BYTEWISE_NAME = "leveldb.BytewiseComparator"
REVERSE_NAME = "rocksdb.ReverseBytewiseComparator"
BYTEWISE = frozenset({BYTEWISE_NAME, ""})
"""Comparators whose order is that of the bytes."""


class IndexType(IntEnum):
    """The kinds of index by which data blocks are found."""

    BINARY = 0
    HASH = 1
    TWO_LEVEL = 2
    FIRST_KEY = 3


class Role(IntEnum):
    """The purpose of a span."""

    DATA = 0
    RANGE_DELETES = 1
    VALUES = 2
    """Values that entries lead to."""
    HEADER = 3
    """Whatever leads to the data, with the footer."""
    GAP = 4
    """No block that anything leads to."""
    OVERLAP = 5
    """Named as a data block, but other blocks lie there, or it reaches beyond the blocks."""


_NEWER = "which this version of sawlog does not know"


class TableDamageKind(DamageKind):
    """Kinds of damage of a table."""

    CHECKSUM_MISMATCH = 1, "a block with checksum {0:#010x}; expected {1:#010x}"
    UNKNOWN_COMPRESSION = 2, "a block with compression type {0:#04x}, " + _NEWER, UNSUPPORTED
    BAD_COMPRESSION = 3, "a block of compression type {0} that cannot be expanded"
    BLOCK_TOO_LARGE = 4, "a block that expands to {0} bytes; max_item_bytes is {1}"
    BAD_BLOCK = 5, "a block of {0} bytes with {1} restart points"
    BAD_ENTRY = 6, "the entry at byte {0} of the expanded block does not end in its {1} bytes; what follows is lost"
    BAD_KEY = 7, "the entry at byte {0} of the expanded block has a key of {1} bytes; what follows is lost"
    UNKNOWN_OPERATION = 8, "the entry at byte {0} of the expanded block has the type {1:#04x}, " + _NEWER, UNSUPPORTED
    BAD_HANDLE = 9, "a block of {0} bytes that the index places there reaches beyond the {1} bytes of blocks"
    BAD_FOOTER = 10
    UNREFERENCED = 11
    READ_ERROR = 12
    LOST_VALUE = 13, "{0} entries are left out, whose values are in other blocks that are damaged or not there"
    MISPLACED_KEY = 14, "the entry at byte {0} of the expanded block has a key of {1} bytes that belongs elsewhere"
    BAD_INDEX = 15, "the {0} separators of the index, or the blocks that they lead to, are out of order"
    UNKNOWN_FLAGS = 16, "a block with the flags {0:#010x}, " + _NEWER, UNSUPPORTED
    UNKNOWN_VERSION = 17, "", UNSUPPORTED
    UNKNOWN_LAYOUT = 18, "a block of columns in version {0}, " + _NEWER, UNSUPPORTED
    UNKNOWN_COLUMN = 19, "a block with a column of the kind or width {0}, " + _NEWER, UNSUPPORTED
    UNKNOWN_SCHEMA = 20, "a block whose keys are cut into columns in a way that only the application knows", UNSUPPORTED
    UNKNOWN_PLACE = (
        21,
        "a block with a value of which the byte before it, {0:#04x}, says where it is; " + _NEWER,
        UNSUPPORTED,
    )
    UNKNOWN_INDEX = 22, "an index of type {0}, " + _NEWER, UNSUPPORTED
    UNKNOWN_EXTERNAL = 23, "properties of an ingested table of version {0}, " + _NEWER, UNSUPPORTED


TABLE_NAME = re.compile(r"^(\d+)\.(ldb|sst)$")
"""A table of a database; the digits are its number."""
SINK_NAME = re.compile(r"\.(ldb|sst)$")
"""Any file that is named like one."""

"""The files of a database directory, by name, and the kinds of damage of a whole database."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable

from sawlog.format.damage import DamageKind
from sawlog.kernels.layout import Number
from sawlog.leveldb.log.layout import CURRENT_NAME, LOG_NAME, MANIFEST_NAME, MARKER_NAME, OPTIONS_NAME, OWNER_NAME
from sawlog.leveldb.table.layout import BYTEWISE, TABLE_NAME
from sawlog.storage import File

__all__ = ["BYTEWISE", "CURRENT_NAME", "LOG_NAME", "MANIFEST_NAME", "TABLE_NAME", "DatabaseDamageKind", "belongs"]

COCKROACH_NAME = "cockroach_comparator"
"""CockroachDB's order of keys: of each a zero follows, and then its version, and the length of that with this byte."""
DEFAULT_FAMILY = "default"
"""The column family that every database has; its number is 0."""
LOCK_NAME = "LOCK"
"""A file that an engine makes where it writes."""
ENGINE_FILE = re.compile(rf"^{LOCK_NAME}$|{OPTIONS_NAME.pattern}")
"""Files that say what an engine does here."""
INGESTS = ("ingest_sst", "ingest_sst_with_blobs")
"""Operations in a log of Pebble's that take in a table; the key is the number of the table, as a varint.

The value of the second one is how many blob files the table refers to, and their numbers, as varints.
"""
FORMAT_MARKER = re.compile(r"^marker\.format-version\.(\d+)\.(\d+)$")
"""Pebble's markers of the format: in the name with the highest first number, the second is the format major version."""
LAST_FORMAT = 30
"""The last one that is known, of May 2026."""
MARKERS = ("marker.manifest.000001.{0}", "marker.format-version.000001.{1:03d}")
"""Pebble's: empty files whose names say which MANIFEST is the current one, and the format major version."""
WRITTEN_FORMAT = 13
"""The format major version of databases that are written: the oldest one that Pebble of 2026 opens."""
LEVELS = 7
"""Of LevelDB, of Pebble, and of RocksDB where its OPTIONS file does not say another number."""
LEVELS_SETTING = re.compile(r"^\s*num_levels=(\d+)\s*$", re.MULTILINE)
BLOB_NAME = re.compile(r"^(\d+)\.blob$")
"""A file of values that RocksDB or Pebble keeps apart from their keys."""
BLOB_DIRECTORY = "blob_dir"
"""The directory, within its own, of the blob files of a stacked BlobDB of RocksDB's, which no MANIFEST names."""
SHARED_NAME = re.compile(r"^(\d+)(?:_\w+)?\.(sst|ldb|blob)$")
"""A table or blob file of a backup; its checksum, or the session that wrote it, and its size may be in the name."""
BACKUP_HOME = re.compile(r"^(?:(.*)/)?private/(\d+)$")
"""The directory of what only the backup of that number has, below that of all backups."""
BACKUP_FILE = re.compile(r"^(private/\d+|shared|shared_checksum)/[^/.][^/]*$")
BACKUP_META = re.compile(r"^(?:(.*)/)?meta/(\d+)$")
"""The file that says what a backup is made of: time, sequence number, how many files there are, and a line for each."""
BACKUP_SHARED = re.compile(r"^(?:(.*)/)?shared(_checksum)?$")
CATALOG_MARKER = re.compile(r"^marker\.remote-obj-catalog\.(\d+)\.(REMOTE-OBJ-CATALOG-\d+)$")
"""Pebble's markers of the catalog: the highest number names the file of its objects in remote storage."""
SETTING_NAME = re.compile(rf"{OWNER_NAME.pattern}|{CATALOG_MARKER.pattern}|^REMOTE-OBJ-CATALOG-\d+$")
"""Files besides those of `belongs` that a database is read by, `FORMAT_MARKER` included."""
CATALOG_NEW = 1
"""Number, kind, creator, the creator's number, how it is cleaned up; then tags with texts, up to 0."""
CATALOG_DELETED = 2
CATALOG_CREATOR = 3
CATALOG_LOCATOR = 4
CATALOG_NAME = 5
CATALOG_BLOB = 2
"""The kind of blob files; that of tables is 1."""
OBJECT_HASH = (7459, 17539)
"""An object's name begins with the lower 16 bits of its creator and its number, multiplied by these and added."""
META_BYTES = 64 << 20
META_VERSION = "schema_version "
META_CHECKSUM = "crc32"
"""Before the CRC-32C of a file, in decimal."""
META_SIZE = "size"
META_EXCLUDED = "ni::excluded"
META_FOOTER = "// FOOTER"
META_LAST_TIME = 253_402_300_799
"""The last second of the year 9999."""
OPTIONS_BYTES = 1 << 18
"""Bytes of an OPTIONS file that are looked into: what concerns the database as a whole comes first."""
TWO_PHASES = "allow_2pc"
"""The setting of RocksDB's OPTIONS that says whether there are two-phase transactions; `TransactionDB` sets it."""
WAL_DIR = "wal_dir"
"""The setting of RocksDB's and Pebble's OPTIONS files that says where the logs are."""
SECONDARY_DIR = "secondary_dir"
"""Likewise, of Pebble's: where parts of logs are that were written while the first directory was slow."""
BLOB_MAGIC = 0x248F37
BLOB_MAGIC_NUMBER = Number(0, 4)
"""At the beginning of a blob file of RocksDB's, and of its footer."""
BLOB_VERSION = Number(4, 4)
LAST_BLOB_VERSION = 1
BLOB_FILE_HEADER = 30
BLOB_FILE_FOOTER = 32
BLOB_FOOTER_CHECKSUM = Number(28, 4)
BLOB_KEY_SIZE = Number(0, 8)
BLOB_VALUE_SIZE = Number(8, 8)
BLOB_HEADER_CHECKSUM = Number(24, 4)
"""Masked CRC-32C of the sizes, and of the expiration between them and it."""
BLOB_CHECKSUM = Number(28, 4)
"""Masked CRC-32C of key and value, which follow."""
BLOB_RECORD_HEADER = BLOB_CHECKSUM.end

VALUE_FOOTER_CHECKSUM = Number(0, 4)
"""At the beginning of the footer of a blob file of Pebble's, over what follows there."""
VALUE_INDEX_OFFSET = Number(4, 8)
VALUE_INDEX_SIZE = Number(12, 8)
VALUE_CHECKSUM_TYPE = Number(20, 1)
VALUE_VERSION = Number(21, 1)
VALUE_MAGIC_SIZE = 8
VALUE_PROPERTIES_OFFSET = Number(30, 8)
VALUE_PROPERTIES_SIZE = Number(38, 8)
"""From version 2 on; the place and size of a metaindex follow, which is not used."""
VALUE_MAGICS = {bytes.fromhex("f09faab3f09fa680"): 1, bytes.fromhex("f09faab3f09fa682"): 2}
"""What ends a blob file of Pebble's, and the first version that does."""
VALUE_FOOTER_SIZES = {1: 38, 2: 70}
"""Of each version; the fields are at these places in the footer. Version 2 comes with format major version 26."""


class DatabaseDamageKind(DamageKind):
    """Kinds of damage of a database, besides those of logs and tables."""

    MISSING_FILE = 1
    BAD_BLOB = 2
    """A value that an entry leads to is not whole: the entry is lost."""
    BAD_BLOB_PART = 3
    """A part of a blob file is damaged, whether or not an entry leads there."""
    BAD_COPY = 4
    """A file of a backup has another checksum than the backup says."""


_PART = re.compile(
    rf"(?P<manifest>{MANIFEST_NAME.pattern})|(?P<pointer>^{CURRENT_NAME}$|{MARKER_NAME.pattern})"
    rf"|(?P<table>{TABLE_NAME.pattern})|(?P<log>{LOG_NAME.pattern})"
)
ENGINE_NAME = re.compile(
    r"^(LOG(\.old(\.\d+)?)?|LOCK|IDENTITY|OPTIONS-\d+|REMOTE-OBJ-CATALOG-\d+|marker\.[a-z-]+\.\d+\.[\w-]+)$"
)
"""What an engine keeps for itself: messages, locks, settings."""


def _find_part(name: str) -> str:
    """Return what of a database a file of that name is, as `_PART` calls it; empty for none."""
    match = _PART.match(name)
    return match.lastgroup or "" if match is not None else ""


def find_homes(files: Iterable[File], home: Callable[[File], str]) -> set[str]:
    """Return the directories that hold a database, or enough of one: what says its version may be missing.

    Tables next to logs are one, and tables or logs next to what names a MANIFEST; files that a user names one by one
    are what they are.
    """
    parts: dict[str, set[str]] = defaultdict(set)
    for file in files:
        part = _find_part(file.name)
        if part and (part == "manifest" or not file.explicit):
            parts[home(file)].add(part)
    return {place for place, kinds in parts.items() if "manifest" in kinds or len(kinds) > 1}


def belongs(file: File) -> bool:
    """Return whether a file has the name of one that is read of a database."""
    if _find_part(file.name) or BLOB_NAME.match(file.name) or BACKUP_META.match(file.path):
        return True
    return bool(SHARED_NAME.match(file.name) and BACKUP_SHARED.match(file.directory))

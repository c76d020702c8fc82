"""Options for reading and writing logs, tables and databases."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from sawlog.errors import OptionError
from sawlog.format.options import moved, renamed, rescues

RecoveryMode = Literal[
    "absolute_consistency",
    "point_in_time_recovery",
    "tolerate_corrupted_tail_records",
    "skip_any_corrupted_records",
]
"""RocksDB's `WALRecoveryMode`, without its k and in snake case."""

MAX_RECORD_BYTES = (1 << 31) - 1
"""What a record column's 32-bit offsets reach."""


@dataclass(frozen=True, slots=True)
class LogReadOptions:
    """Options for reading LevelDB logs.

    Attributes:
        dialect: Whose fragment types are understood. `auto` takes RocksDB's where the file begins with one of them, or
            is next to RocksDB's IDENTITY file, and LevelDB's otherwise.
        verify_checksums: Whether the CRC-32C of every fragment is verified.
        max_item_bytes: Longer records (expanded, where the log is compressed) are described as damage and skipped.
        salvage: What is delivered that the system itself would not read; views `rows` and `writes` only. `damaged`:
            intact fragments in the rest of a damaged block, which LevelDB gives up; only what a checksum proves is
            taken, and rows that begin after the damage are marked in a column `recovered`. `stale`: what is left of the
            former life of a recycled log, marked in a column `stale`.
        recovery: View `writes` only: what RocksDB would keep of the logs of a database that it opens in this mode,
            whatever `on_damage` says. Where it would refuse to open the database, so does sawlog.
        latest: View `writes` only: the last operation on each key instead of all of them; needs memory for all keys.
        keys: View `writes` only: `stamped` delivers the timestamps of eight bytes that keys end in, as the log says of
            their column family, as a column; `internal` leaves them there.
        properties: View `entities` only: `json` delivers properties as one JSON string, `infer` one typed column per
            property, for which all entities are read twice.
        table: View `entities` only: deliver the entities of this kind.
    """

    dialect: Literal["auto", "leveldb", "rocksdb", "pebble"] = "auto"
    verify_checksums: bool = True
    max_item_bytes: int = 1 << 30
    salvage: tuple[Literal["damaged", "stale"], ...] = field(default=(), metadata=rescues(("damaged",)))
    recovery: RecoveryMode | None = None
    latest: bool = False
    keys: Literal["internal", "stamped"] = "internal"
    properties: Literal["json", "infer"] = "json"
    table: str | None = None

    old: ClassVar = {
        "max_record_bytes": renamed("max_item_bytes"),
        "resync": moved({True: {"salvage": ("damaged",)}, False: {"salvage": ()}}),
        "stale": moved({"include": {"salvage": ("stale",)}, "ignore": {}}),
        "schema": renamed("properties"),
        "kind": renamed("table"),
    }

    def __post_init__(self) -> None:
        if not 0 <= self.max_item_bytes <= MAX_RECORD_BYTES:
            raise OptionError(f"max_item_bytes={self.max_item_bytes}: expected 0 to {MAX_RECORD_BYTES}")


@dataclass(frozen=True, slots=True)
class LogWriteOptions:
    """Options for writing LevelDB logs.

    Attributes:
        dialect: `leveldb`, or `rocksdb` for recyclable headers that carry `log_number`.
        log_number: The number of the log, as in its file name; only, and always, for `rocksdb`.
        append: Continue an existing log after its last complete record; a torn tail is cut off first.
        view: What the data is: `rows` for records as they are, `writes` for operations, which make write batches.
        first_sequence: Only for `writes` without a column `sequence`: the number of the first operation.
        operations_per_batch: Only for `writes` without a column `_offset`: how many operations make a write batch.
    """

    dialect: Literal["leveldb", "rocksdb"] = "leveldb"
    log_number: int | None = None
    append: bool = False
    view: Literal["rows", "writes"] = "rows"
    first_sequence: int = 1
    operations_per_batch: int = 1

    def __post_init__(self) -> None:
        if (self.dialect == "rocksdb") != (self.log_number is not None):
            raise OptionError('writing leveldb_log: dialect="rocksdb" and log_number go together')
        if self.log_number is not None and self.log_number < 0:
            raise OptionError(f"writing leveldb_log: log_number={self.log_number}: expected 0 or more")


MAX_BLOCK_BYTES = 1 << 30
"""What 32-bit offsets reach, twice over."""


@dataclass(frozen=True, slots=True)
class TableReadOptions:
    """Options for reading tables.

    Attributes:
        verify_checksums: Whether the checksum of every block is verified.
        max_item_bytes: Blocks that expand to more are described as damage and skipped.
        keys: `internal`: keys end in sequence number and operation, as databases write them; `raw`: they do not, as in
            tables that programs write with only LevelDB's table library; `stamped`: a timestamp of eight bytes comes
            before these, and is delivered as a column.
        comparator: The name of the order of keys, of tables that do not say it, as LevelDB's:
            `leveldb.BytewiseComparator` is that of their bytes. Filters on the key then use the index, and a key that
            is where the index does not expect it is damage.
    """

    verify_checksums: bool = True
    max_item_bytes: int = 32 << 20
    keys: Literal["internal", "stamped", "raw"] = "internal"
    comparator: str = ""

    old: ClassVar = {"max_block_bytes": renamed("max_item_bytes")}

    def __post_init__(self) -> None:
        if not 0 < self.max_item_bytes <= MAX_BLOCK_BYTES:
            raise OptionError(f"max_item_bytes={self.max_item_bytes}: expected 1 to {MAX_BLOCK_BYTES}")


@dataclass(frozen=True, slots=True)
class TableWriteOptions:
    """Options for writing tables.

    Attributes:
        dialect: `leveldb`, or `rocksdb` for its block-based tables, with the properties that let it ingest them.
        compression: Of blocks; those that do not become smaller by an eighth are stored as they are. LevelDB's dialect
            has `none`, `snappy` and `zstd`.
        block_bytes: Blocks are complete at this size.
        restart_interval: Every so many entries, a key is stored whole.
    """

    dialect: Literal["leveldb", "rocksdb"] = "leveldb"
    compression: Literal["none", "snappy", "zlib", "lz4", "zstd"] = "snappy"
    block_bytes: int = 4096
    restart_interval: int = 16

    def __post_init__(self) -> None:
        if self.dialect == "leveldb" and self.compression in ("zlib", "lz4"):
            raise OptionError(f'writing leveldb_table: compression="{self.compression}" needs dialect="rocksdb"')
        if not 0 < self.block_bytes <= MAX_BLOCK_BYTES:
            raise OptionError(f"writing leveldb_table: block_bytes={self.block_bytes}: expected 1 to {MAX_BLOCK_BYTES}")
        if self.restart_interval < 1:
            raise OptionError(f"writing leveldb_table: restart_interval={self.restart_interval}: expected 1 or more")


_MAX_BLOB_BYTES = 1 << 30
"""The default of `max_item_bytes` for values in blob files; that for blocks is the one of tables."""


@dataclass(frozen=True, slots=True)
class DatabaseReadOptions:
    """Options for reading databases.

    Attributes:
        table: Which column family, by name; LevelDB has one.
        salvage: What is delivered that the system itself would not read. `orphans`, in view `all` and with `history`:
            the entries of tables and logs that the MANIFEST does not name, which compactions have merged into others,
            or which never became part of the database. Column `orphan` marks them. Tables do not say their column
            family: those of all are read.
        history: Whether views of applications have every entry, as view `all` does: older versions and deletions, too.
        verify_checksums: Whether the checksums of tables and logs are verified.
        recovery: How damaged logs are taken: what RocksDB would keep of them when it opens the database in this mode.
            Without it, `on_damage` decides, as everywhere.
        max_item_bytes: Blocks of tables, and values in blob files, that expand to more are described as damage and
            skipped; by default 32 MiB for blocks, and 1 GiB for values. Views of applications deliver longer values as
            bytes.
        wal_dir: The directory that has the logs, where they are neither next to the tables nor where the OPTIONS file
            of the database says; several where Pebble writes logs to a second one while the first is slow.
        paths: Directories that have tables and blob files besides the database's own: those of RocksDB's `db_paths` and
            `cf_paths`, or what Pebble has in remote storage.
        backup: Which backup of a directory of RocksDB's BackupEngine, by number; the last one by default.
        as_of: Instead of `backup`, the last one that was made up to that time: a datetime, or ISO 8601 text; UTC where
            it says no zone. Backups know the second in which they were begun.
    """

    table: str = "default"
    salvage: tuple[Literal["orphans"], ...] = ()
    history: bool = False
    verify_checksums: bool = True
    recovery: RecoveryMode | None = None
    max_item_bytes: int | None = None
    wal_dir: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()
    backup: int | None = None
    as_of: dt.datetime | str | None = None

    old: ClassVar = {
        "column_family": renamed("table"),
        "orphans": moved({True: {"salvage": ("orphans",)}, False: {}}),
        "max_block_bytes": renamed("max_item_bytes"),
        "max_blob_bytes": renamed("max_item_bytes"),
    }

    def __post_init__(self) -> None:
        """Refuse what names no backup, before anything is read.

        Raises:
            OptionError: For `as_of`.
        """
        if self.until is not None and self.backup is not None:
            raise OptionError("the options backup and as_of both say which backup is meant: give one of them")

    @property
    def until(self) -> dt.datetime | None:
        """The time of `as_of`, with its zone."""
        moment = self.as_of
        if isinstance(moment, str):
            try:
                moment = dt.datetime.fromisoformat(moment)
            except ValueError:
                raise OptionError(f"as_of={moment!r}: expected a time like 2024-05-01T12:00:00Z") from None
        return moment if moment is None or moment.tzinfo is not None else moment.replace(tzinfo=dt.UTC)

    @property
    def of_tables(self) -> TableReadOptions:
        """The same for tables."""
        if self.max_item_bytes is None:
            return TableReadOptions(verify_checksums=self.verify_checksums)
        return TableReadOptions(verify_checksums=self.verify_checksums, max_item_bytes=self.max_item_bytes)

    @property
    def max_blob_bytes(self) -> int:
        """The longest value of a blob file."""
        return _MAX_BLOB_BYTES if self.max_item_bytes is None else self.max_item_bytes

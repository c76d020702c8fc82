"""Options for reading and writing logs, tables and databases."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass, field
from typing import Literal

from sawlog.errors import OptionError
from sawlog.format.options import check_record_bytes, make_rescue_metadata
from sawlog.guard import parse_time

RecoveryMode = Literal[
    "absolute_consistency", "point_in_time_recovery", "tolerate_corrupted_tail_records", "skip_any_corrupted_records"
]
"""RocksDB's `WALRecoveryMode`, without its k and in snake case."""


@dataclass(frozen=True, slots=True)
class LogReadOptions:
    """Options for reading LevelDB logs.

    Attributes:
        dialect: Fragment types to expect. `auto` goes by the files next to the log, else by its fragments.
        verify_checksums: Verify the CRC-32C of every fragment.
        max_item_bytes: Longer records, also once decompressed, are damage.
        salvage: Views `rows` and `writes`: `damaged` also returns intact records from the rest of a damaged block,
            marked in a column `recovered`; `stale` those of the earlier log in a recycled file, marked in a column
            `stale`.
        recovery: View `writes`: return what RocksDB would recover in this mode, whatever `on_damage` says. Where
            RocksDB would refuse to open the database, reading fails.
        latest: View `writes`: return only the last operation on each key. Needs memory for all keys.
        keys: View `writes`: `stamped` returns the user-defined timestamp (8 bytes) at the end of keys as a column
            `timestamp`.
        properties: View `entities`: `json` returns the properties as one JSON string, `infer` as a typed column each,
            for which all entities are read twice.
        table: View `entities`: return only entities of this kind.
    """

    dialect: Literal["auto", "leveldb", "rocksdb", "pebble"] = "auto"
    verify_checksums: bool = True
    max_item_bytes: int = 1 << 30
    salvage: tuple[Literal["damaged", "stale"], ...] = field(default=(), metadata=make_rescue_metadata(("damaged",)))
    recovery: RecoveryMode | None = None
    latest: bool = False
    keys: Literal["internal", "stamped"] = "internal"
    properties: Literal["json", "infer"] = "json"
    table: str | None = None

    def __post_init__(self) -> None:
        check_record_bytes(self.max_item_bytes)


@dataclass(frozen=True, slots=True)
class LogWriteOptions:
    """Options for writing LevelDB logs.

    Attributes:
        dialect: `rocksdb` writes recyclable headers, which hold `log_number`.
        log_number: Number of the log, as in its file name. Required for `rocksdb`, not allowed for `leveldb`.
        append: Continue an existing file after its last complete record; what follows that is cut off.
        view: What the rows are: records, or operations, which become write batches.
        first_sequence: View `writes`: number of the first operation, if there is no column `sequence`.
        operations_per_batch: View `writes`: operations per write batch, if there is no column `_offset`.
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
        verify_checksums: Verify the checksum of every block.
        max_item_bytes: Blocks that expand to more are damage.
        keys: `internal`: keys end in a sequence number and an operation. `stamped`: a timestamp of 8 bytes comes before
            these (RocksDB's comparators called `.u64ts`) and becomes a column `timestamp`, 0 where the table keeps
            none. `raw`: keys have neither, as in tables of programs that use only LevelDB's table library.
        comparator: Order of keys of a table that does not say it, such as LevelDB's: `leveldb.BytewiseComparator`,
            unless the application has its own. Filters on `key` then skip blocks, and misplaced keys are damage.
    """

    verify_checksums: bool = True
    max_item_bytes: int = 32 << 20
    keys: Literal["internal", "stamped", "raw"] = "internal"
    comparator: str = ""

    def __post_init__(self) -> None:
        if not 0 < self.max_item_bytes <= MAX_BLOCK_BYTES:
            raise OptionError(f"max_item_bytes={self.max_item_bytes}: expected 1 to {MAX_BLOCK_BYTES}")


@dataclass(frozen=True, slots=True)
class TableWriteOptions:
    """Options for writing tables.

    Attributes:
        dialect: `rocksdb` writes block-based tables that RocksDB can ingest.
        compression: Codec of blocks; those that do not shrink by an eighth are stored as they are. `zlib` and `lz4`
            only for `rocksdb`.
        block_bytes: A block is complete at this size.
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
        table: Column family; LevelDB has only `default`.
        salvage: View `all`, and with `history`: `orphans` also returns the entries of tables and logs that the MANIFEST
            does not name, of all column families, marked in a column `orphan`. Where a table is damaged or missing,
            `logs` also reads logs that its MANIFEST no longer needs, if these and later ones hold every operation up
            to the last one.
        history: Views of applications return all versions, deletions included, as view `all` does.
        verify_checksums: Verify the checksums of tables and logs.
        recovery: Read damaged logs as RocksDB does in this recovery mode. By default `on_damage` decides.
        max_item_bytes: Larger blocks and values in blob files are damage: by default 32 MiB for blocks, 1 GiB for
            values. Views of applications return longer values as bytes.
        wal_dir: Directories of the logs. By default the one that the OPTIONS file names, or the database's own.
        paths: Further directories with tables and blob files, such as those of RocksDB's `db_paths` and `cf_paths`, or
            of Pebble's remote storage.
        backup: Number of the backup to read, in a directory of RocksDB's BackupEngine; by default the last.
        as_of: Read the last backup made up to this time: a datetime or ISO 8601 text, in UTC unless it has a zone.
    """

    table: str = "default"
    salvage: tuple[Literal["orphans", "logs"], ...] = field(default=(), metadata=make_rescue_metadata(("logs",)))
    history: bool = False
    verify_checksums: bool = True
    recovery: RecoveryMode | None = None
    max_item_bytes: int | None = None
    wal_dir: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()
    backup: int | None = None
    as_of: dt.datetime | str | None = None

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
        return None if self.as_of is None else parse_time("as_of", self.as_of)

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

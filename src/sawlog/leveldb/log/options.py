"""Options for reading and writing LevelDB logs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from sawlog.errors import OptionError
from sawlog.options import moved, renamed

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
class ReadOptions:
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
        properties: View `entities` only: `json` delivers properties as one JSON string, `infer` one typed column per
            property, for which all entities are read twice.
        table: View `entities` only: deliver the entities of this kind.
    """

    dialect: Literal["auto", "leveldb", "rocksdb", "pebble"] = "auto"
    verify_checksums: bool = True
    max_item_bytes: int = 1 << 30
    salvage: tuple[Literal["damaged", "stale"], ...] = ()
    recovery: RecoveryMode | None = None
    latest: bool = False
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
class WriteOptions:
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

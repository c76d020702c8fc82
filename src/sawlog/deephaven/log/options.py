"""Options for reading and writing Deephaven logs."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Literal, Self

from sawlog.deephaven.log import layout
from sawlog.errors import OptionError

_MAX_ENTRY_BYTES = 64 << 20
"""Bound of `max_item_bytes`."""


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """Options for reading Deephaven logs.

    Attributes:
        verify_checksums: Verify the Adler-32 of every entry.
        incomplete: Sets (transactions) with missing rows, at the end of a file or because of damage: `drop` their rows;
            `error` makes an unfinished set at the end damage.
        deletes: `apply` leaves out rows that a later DELETE_PARTITION deletes; `ignore` treats it like any other
            command.
        split: How a log is split into tasks: `scan` follows its entries from the start; `resync` searches for entries
            near the places to split at, and needs `deletes=ignore`.
        sentinels_as_null: Return Deephaven's null values (such as the smallest Int) as null.
        timestamp_columns: Long columns that hold times, with their units (s, ms, us, ns): `Time=ms,Other=ns`.
        char: Return a Char as the number of its UTF-16 code unit, or as a string of one character.
        schema: Path of a Deephaven `.schema` file: columns that are times and their units, order of columns,
            partitioning column.
        partition_column: Name of the partitioning column; by default that of the schema file, or `Date`. Empty leaves
            it out.
        namespace: Selects the logs of this namespace; for a single log, or one whose name lacks it, supplies it.
        table: Likewise for the table.
        internal_partition: Likewise for the internal partition.
        column_partition: Likewise for the value of the partitioning column.
        widen: If files have different types for a column, use the widest of Byte, Short, Int and Long, or of Float and
            Double.
        max_item_bytes: Longer entries are damage.
        salvage: `incomplete` returns the rows of incomplete sets as single rows. `unknown_versions` reads unknown
            versions as version 3, and passes over header records of unknown types.
        strict: Also damage, or an error: reserved flag bits, rows of a set that never began, bytes after the last
            column, malformed text, a wrong digest of the header.
    """

    verify_checksums: bool = True
    incomplete: Literal["drop", "error"] = "drop"
    deletes: Literal["apply", "ignore"] = "apply"
    split: Literal["scan", "resync"] = "scan"
    sentinels_as_null: bool = True
    timestamp_columns: dict[str, Literal["s", "ms", "us", "ns"]] = field(default_factory=dict)
    char: Literal["number", "string"] = "number"
    schema: str | None = None
    partition_column: str | None = None
    namespace: str | None = None
    table: str | None = None
    internal_partition: str | None = None
    column_partition: str | None = None
    widen: bool = False
    max_item_bytes: int = _MAX_ENTRY_BYTES
    salvage: tuple[Literal["incomplete", "unknown_versions"], ...] = ()
    strict: bool = False

    def __post_init__(self) -> None:
        if not layout.MIN_ENTRY_SIZE <= self.max_item_bytes <= _MAX_ENTRY_BYTES:
            raise OptionError(f"max_item_bytes={self.max_item_bytes}: expected 5 to {_MAX_ENTRY_BYTES}")
        if self.split == "resync" and self.deletes == "apply":
            raise OptionError('split="resync" does not see every command: it needs deletes="ignore"')
        if self.incomplete == "error" and "incomplete" in self.salvage:
            raise OptionError('incomplete="error" and salvage="incomplete" exclude each other')

    def without_incomplete(self) -> Self:
        """Return the same options, by which the rows of incomplete sets are dropped."""
        return replace(self, incomplete="drop", salvage=tuple(kind for kind in self.salvage if kind != "incomplete"))


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """Options for writing Deephaven logs.

    Attributes:
        application_version: Version of the listener in the table's schema; by default that in the metadata of the data,
            if any.
        charset: Charset of strings whose metadata names none: `UTF-8`, `ISO-8859-1`, `US-ASCII`, `UTF-16` (BE, LE).
            Deephaven's own default is ISO-8859-1.
        constants: Columns stored once, in the header; all rows must have the same value.
        timestamp_unit: Unit of times in the log; by default that of the column. Deephaven expects `ms` by default.
        transactions: `batch` makes every record batch a set, which readers see whole or not at all.
        max_item_bytes: Longest entry; the default is that of Deephaven.
        append: Continue a local file after its last complete set; what follows that is cut off.
    """

    application_version: int | None = None
    charset: str = "UTF-8"
    constants: tuple[str, ...] = ()
    timestamp_unit: Literal["s", "ms", "us", "ns"] | None = None
    transactions: Literal["none", "batch"] = "none"
    max_item_bytes: int = layout.VENDOR_MAX_ENTRY
    append: bool = False

    def __post_init__(self) -> None:
        if not layout.MIN_ENTRY_SIZE <= self.max_item_bytes <= _MAX_ENTRY_BYTES:
            raise OptionError(f"max_item_bytes={self.max_item_bytes}: expected 5 to {_MAX_ENTRY_BYTES}")

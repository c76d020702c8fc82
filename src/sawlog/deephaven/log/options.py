"""Options for reading and writing Deephaven logs."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import ClassVar, Literal, Self

from sawlog.deephaven.log import layout
from sawlog.errors import OptionError
from sawlog.format.options import moved, renamed

MAX_ENTRY_BYTES = 64 << 20
"""Bound of `max_item_bytes`."""


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """Options for reading Deephaven logs.

    Attributes:
        verify_checksums: Whether the Adler-32 of every entry is verified.
        incomplete: What becomes of sets (transactions) that lack a member, at the end of a file or through damage:
            `drop` their rows, or `error`, which makes an unfinished set at the end damage; see `salvage`, too.
        deletes: `apply` leaves out the rows that a later DELETE_PARTITION deleted, for which every log is searched
            before its rows are delivered one after the other; `ignore` treats it as any command.
        split: How one log is cut for many tasks: `scan` walks it from its start, `resync` finds entries near the cuts
            without the bytes between, and needs `deletes=ignore`.
        sentinels_as_null: Whether the values that stand for null in Deephaven's engine (such as the smallest Int) are
            null in rows too.
        timestamp_columns: Long columns that hold times, and their units (s, ms, us, ns); as text, `Time=ms,Other=ns`.
        char: A Char as the number of its UTF-16 code unit, or as a string of one character.
        schema: A Deephaven `.schema` file: which columns are times, their units, the order of columns and the
            partitioning column.
        partition_column: Name of the partitioning column, whose value the file name gives: from the schema file, or
            `Date`. Empty leaves it out.
        namespace: Of several logs, read those of this namespace; where a name does not say it or is the only one,
            what it is.
        table: Likewise, the table.
        internal_partition: Likewise, the internal partition.
        column_partition: Likewise, the value of the partitioning column.
        widen: Let Byte, Short, Int and Long columns of one name become the widest of them; Float and Double too.
        max_item_bytes: Longer entries are taken for damage.
        salvage: What is delivered that the system itself would not read. `incomplete`: the rows of such sets, by
            themselves. `unknown_versions`: files of unknown versions, as if they were of version 3;
            header records of unknown types, as if rows did not need them.
        strict: Take for damage or refuse what is only unusual: reserved flag bits, rows of sets that never began, bytes
            after the last column, malformed text, a wrong digest of the header.
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
    max_item_bytes: int = MAX_ENTRY_BYTES
    salvage: tuple[Literal["incomplete", "unknown_versions"], ...] = ()
    strict: bool = False

    old: ClassVar = {
        "max_entry_bytes": renamed("max_item_bytes"),
        "incomplete": moved({"emit": {"salvage": ("incomplete",)}}),
        "force": moved({True: {"salvage": ("unknown_versions",)}, False: {}}),
    }

    def __post_init__(self) -> None:
        if not layout.MIN_ENTRY_SIZE <= self.max_item_bytes <= MAX_ENTRY_BYTES:
            raise OptionError(f"max_item_bytes={self.max_item_bytes}: expected 5 to {MAX_ENTRY_BYTES}")
        if self.split == "resync" and self.deletes == "apply":
            raise OptionError('split="resync" does not see every command: it needs deletes="ignore"')
        if self.incomplete == "error" and "incomplete" in self.salvage:
            raise OptionError('incomplete="error" and salvage="incomplete" exclude each other')

    def without_incomplete(self) -> Self:
        """The same options, by which the rows of incomplete sets are dropped."""
        return replace(self, incomplete="drop", salvage=tuple(kind for kind in self.salvage if kind != "incomplete"))


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """Options for writing Deephaven logs.

    Attributes:
        application_version: The number of the schema's listener; None: as the schema's metadata says, or none.
        charset: Of strings whose field metadata names none: `UTF-8`, `ISO-8859-1`, `US-ASCII`, `UTF-16` (BE, LE).
        constants: Columns that are stored once, in the header; every row must hold the same value.
        timestamp_unit: Unit in which times are logged (as Long); None: that of each column's Arrow type.
        transactions: `batch` makes every record batch a set of rows that appears whole or not at all.
        max_item_bytes: Longest entry. Deephaven's own limit is 1 MiB by default.
        append: Continue an existing log after its last complete set; an unfinished end is cut off first.
    """

    application_version: int | None = None
    charset: str = "UTF-8"
    constants: tuple[str, ...] = ()
    timestamp_unit: Literal["s", "ms", "us", "ns"] | None = None
    transactions: Literal["none", "batch"] = "none"
    max_item_bytes: int = layout.VENDOR_MAX_ENTRY
    append: bool = False

    old: ClassVar = {"max_entry_bytes": renamed("max_item_bytes")}

    def __post_init__(self) -> None:
        if not layout.MIN_ENTRY_SIZE <= self.max_item_bytes <= MAX_ENTRY_BYTES:
            raise OptionError(f"max_item_bytes={self.max_item_bytes}: expected 5 to {MAX_ENTRY_BYTES}")

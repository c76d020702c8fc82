"""Locations: the files of one directory by column, and the record of its rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

from sawlog.deephaven_table import layout
from sawlog.deephaven_table.header import NOTHING_TOLD, FileHeader, Told
from sawlog.storage import File

if TYPE_CHECKING:
    from sawlog.storage import Storage


@dataclass(frozen=True, slots=True)
class ColumnFiles:
    """The files of one column.

    Attributes:
        name: Name of the column.
        files: By suffix.
    """

    name: str
    files: Mapping[str, File]

    @property
    def data(self) -> File | None:
        """The primary file; a column without one is null in every row."""
        return self.files.get(layout.DATA)

    @property
    def size(self) -> int:
        """Bytes of all its files."""
        return sum(file.size for file in self.files.values())


@dataclass(frozen=True, slots=True)
class Location:
    """One directory of column files: all columns of one internal and one column partition.

    Attributes:
        directory: Where it is.
        layout: Which tree it is in: `intraday`, `historical` or `splayed`.
        namespace: Where the tree names it.
        table: Name of the table.
        internal_partition: Where the tree names it.
        column_partition: Where the tree names it.
        told: What is said of how its files begin: by a schema file in it, or by an earlier judgement.
        columns: Its columns by name.
        others: Files of no column: `table.size`, `table.tbl`, and what does not belong there.
        parsed: How its files begin, as far as they were looked at before: see `generation.Headers.judged`.
    """

    directory: str
    layout: Literal["intraday", "historical", "splayed"] = "splayed"
    namespace: str | None = None
    table: str | None = None
    internal_partition: str | None = None
    column_partition: str | None = None
    told: Told = NOTHING_TOLD
    columns: Mapping[str, ColumnFiles] = field(default_factory=dict)
    others: tuple[File, ...] = ()
    parsed: Mapping[tuple[str, bool], FileHeader | None] = field(default_factory=dict)

    @property
    def files(self) -> list[File]:
        """All files, column by column."""
        return [file for column in self.columns.values() for file in column.files.values()] + list(self.others)

    def other(self, name: str) -> File | None:
        """A file of no column, by its name."""
        return next((file for file in self.others if file.name == name), None)

    def with_files(self, files: Iterable[File]) -> Location:
        """The location with the files that lie in its directory."""
        columns: dict[str, dict[str, File]] = {}
        others = []
        for file in files:
            parts = layout.split_name(file.name)
            if parts is None:
                others.append(file)
            else:
                columns.setdefault(parts[0], {})[parts[1]] = file
        found = {
            name: ColumnFiles(name, {suffix: given[suffix] for suffix in layout.SUFFIXES[::-1] if suffix in given})
            for name, given in columns.items()
        }
        return replace(self, columns=found, others=tuple(others))


def read_checkpoint(location: Location, storage: Storage) -> bytes | None:
    """The bytes of `table.size`; None when there is none, or it is unreasonably large."""
    path = f"{location.directory.rstrip('/')}/{layout.TABLE_SIZE}"
    if location.other(layout.TABLE_SIZE) is None:
        return None
    data = storage.read(path, 0, layout.MAX_CHECKPOINT_SIZE + 1)
    return data if len(data) <= layout.MAX_CHECKPOINT_SIZE else None


def plain_count(checkpoint: bytes | None) -> int | None:
    """The row count of a record of version 0; None for other versions and for the count that means unknown."""
    if checkpoint is None or len(checkpoint) != layout.ROW_COUNT_SIZE:
        return None
    count = int.from_bytes(checkpoint, "big", signed=True)
    return count if count >= 0 else None

"""Deephaven's column files as a format of sawlog."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

import pyarrow as pa

from sawlog.deephaven.table import layout
from sawlog.errors import OptionError
from sawlog.format.contract import Contents, DirectoryLayout, Format, Match, Scan, Writer
from sawlog.format.lazy import make_lazy_attribute
from sawlog.storage import File, Storage, normalize

if TYPE_CHECKING:
    from sawlog.deephaven.table.options import ReadOptions, WriteOptions


class _Locations(DirectoryLayout):
    """Directories of locations, whose files make up columns."""

    def dataset_directory(self, file: File) -> str:
        """Return the directory of the table, above its partitions; of a historical tree that of its tables."""
        from sawlog.deephaven.table.tree import parse_location

        location = parse_location(file.directory, "auto")
        above = {"intraday": 3, "historical": 4}.get(location.layout, 0)
        return "/".join(location.directory.split("/")[: -above or None])

    def judged_together(self, file: File) -> str:
        """Return the location that a file is of: its rows are judged by all of them."""
        return file.directory

    def replaced_paths(self, files: Sequence[File], root: str) -> list[str]:
        """Return whole locations, but for one that is the directory itself."""
        owners = dict.fromkeys(file.directory for file in files)
        inside = [owner for owner in owners if owner.startswith(normalize(root).rstrip("/") + "/")]
        return inside + [file.path for file in files if file.directory not in inside]


class DeephavenTable(Format):
    """Column store directories of Deephaven (formerly Illumon Iris): single locations, and trees of them."""

    name = "deephaven_table"
    title = "Deephaven table location"
    suffix = ""
    views: ClassVar = {
        "rows": "rows of the table, and the partitioning column",
        "columns": "one row per column of a location: type, files, version, byte order, size, symbols, groups",
        "groups": "one row per group of a grouped column: value, first and end (exclusive) row",
        "damage": "one row per damaged range",
    }
    directory_layout = _Locations()
    read_options = make_lazy_attribute("sawlog.deephaven.table.options", "ReadOptions")
    write_options = make_lazy_attribute("sawlog.deephaven.table.options", "WriteOptions")

    def match(self, file: File, head: bytes) -> Match:
        """Recognize by a header with metadata; headerless files only by the files next to them."""
        parts = layout.split_name(file.name)
        if parts is not None and parts[1] in (layout.DATA, layout.SYMBOL_OFFSETS):
            from sawlog.deephaven.table.location import parse_header

            header = parse_header(head, file.size)
            if header is not None and header.certain:
                return Match.CONTENT
        symbols = (layout.SYMBOL_OFFSETS, layout.SYMBOL_BINARY)
        named = file.name == layout.TABLE_SIZE or (parts is not None and parts[1] in symbols)
        return Match.NAME if named else Match.NO

    def select(self, files: Sequence[File], view: str) -> list[File]:
        """Return the files of locations: of directories with a primary file, or with the record of their rows."""
        del view
        named = [(file, file.name) for file in files]
        members = [(file, name, file.directory) for file, name in named if layout.is_member(name)]
        locations = {owner for _, name, owner in members if name == layout.TABLE_SIZE or name.endswith(layout.DATA)}
        return [file for file, _, owner in members if owner in locations]

    def recognize(self, files: Sequence[File], storage: Storage) -> Match:
        """Recognize by headers; otherwise by the names of files that nobody else has."""
        match = super().recognize([file for file in files if file.name.endswith(layout.DATA)], storage)
        return max([match, *(self.match(file, b"") for file in files)])

    def open(self, files: Sequence[File], scan: Scan) -> Contents:
        from sawlog.deephaven.table.dataset import DeephavenTableContents

        return DeephavenTableContents(self, files, scan)

    def writer(self, path: str, schema: pa.Schema, options: WriteOptions, storage: Storage) -> Writer:
        """Open a writer, as `Format.writer` says; the path is a location's directory. One that is there is replaced."""
        from sawlog.deephaven.table.writer import LocationWriter

        return LocationWriter(path, schema, options, storage, replace=True)

    def open_partitioned_writer(
        self, path: str, column: str, schema: pa.Schema, options: WriteOptions, storage: Storage
    ) -> Writer:
        """Open a writer of partitions; the path is an internal partition, `TABLE/INTERNAL`.

        Rows go to the locations `TABLE/INTERNAL/VALUE/TABLE`, and the names of directories give the column.

        Raises:
            OptionError: Where the path does not name a table, or where the partitions of a table that was merged lie.
        """
        from sawlog.deephaven.table.types import PARTITION_KEY
        from sawlog.format.partitions import PartitionedWriter, check_partition_column

        check_partition_column(schema, column, pa.string())
        names = normalize(path).rstrip("/").split("/")
        table = names[-2] if len(names) > 1 else ""
        if table in ("", ".", "..", *layout.PARTITIONS):
            raise OptionError(
                f"{path}: partition_by={column!r} takes the path of an internal partition, TABLE/INTERNAL"
            )
        place = schema.get_field_index(column)
        marked = schema.set(place, schema.field(column).with_metadata({PARTITION_KEY: b"column"}))

        def begin(value: str) -> Writer:
            return self.writer("/".join((*names, value, table)), marked, options, storage)

        return PartitionedWriter(column, storage, begin)

    def repair(self, file: File, target: str, options: ReadOptions, storage: Storage) -> None:
        """Refuse: the files of a location only make sense together.

        Raises:
            OptionError: Always; says what to do instead.
        """
        raise OptionError(
            f"{file.path}: a location is not repaired file by file; write what is intact to a new one:"
            f' sawlog.write(sawlog.open({file.directory!r}, on_damage="skip"), NEW,'
            f' format="deephaven_table")'
        )

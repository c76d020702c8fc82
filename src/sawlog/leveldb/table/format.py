"""Sorted tables as a format of sawlog."""

from __future__ import annotations

import posixpath
from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

import pyarrow as pa

from sawlog.format.contract import Contents, Format, Match, Scan, Writer
from sawlog.format.lazy import make_lazy_attribute
from sawlog.leveldb.table import layout
from sawlog.storage import File, Storage

if TYPE_CHECKING:
    from sawlog.leveldb.options import TableReadOptions, TableWriteOptions


class LevelDBTable(Format):
    """Sorted tables of LevelDB (`.ldb`), RocksDB and Pebble (`.sst`)."""

    name = "leveldb_table"
    title = "LevelDB / RocksDB table"
    suffix = ".ldb"
    views: ClassVar = {
        "rows": "one row per entry, in key order: sequence, operation, key, value",
        "damage": "one row per damaged range",
        "frames": "one row per intact block: name, offset, length, compression, expanded, last_key",
        "properties": "one row per property of a RocksDB table: name, value",
    }
    aliases: ClassVar = {"blocks": "frames"}
    read_options = make_lazy_attribute("sawlog.leveldb.options", "TableReadOptions")
    write_options = make_lazy_attribute("sawlog.leveldb.options", "TableWriteOptions")

    def match(self, file: File, head: bytes) -> Match:
        """Recognize by its name; see `recognize` for what its end shows."""
        del head
        return Match.NAME if layout.SINK_NAME.search(file.name) else Match.NO

    def recognize(self, files: Sequence[File], storage: Storage) -> Match:
        """Recognize by the magic number at the end; a database's tables next to its logs give way to those."""
        best = max((self.match(file, b"") for file in files[:8]), default=Match.NO)
        if not all(file.explicit for file in files):
            return min(best, Match.ADJACENT)
        for file in files[:8]:
            length = min(layout.MAGIC_SIZE, file.size)
            magic = storage.read(file, file.size - length, length)
            if int.from_bytes(magic, "little") in layout.MAGICS and file.size >= layout.LEVELDB_FOOTER:
                best = Match.CONTENT
        return best

    def select(self, files: Sequence[File], view: str) -> list[File]:
        """Return tables in the order of their numbers, directory by directory."""
        del view
        selected = [file for file in files if file.explicit or layout.SINK_NAME.search(file.name)]
        return sorted(selected, key=_make_sort_key)

    def open(self, files: Sequence[File], scan: Scan) -> Contents:
        from sawlog.leveldb.table.dataset import TableContents

        return TableContents(self, files, scan)

    def writer(self, path: str, schema: pa.Schema, options: TableWriteOptions, storage: Storage) -> Writer:
        from sawlog.leveldb.table.writer import TableWriter

        return TableWriter(path, schema, options, storage)

    def repair(self, file: File, target: str, options: TableReadOptions, storage: Storage) -> None:
        from sawlog.leveldb.table.writer import repair

        repair(file, target, options, storage)


def _make_sort_key(file: File) -> tuple[str, int, str]:
    directory, name = posixpath.split(file.path)
    number = layout.TABLE_NAME.match(name)
    return directory, int(number[1]) if number else -1, name

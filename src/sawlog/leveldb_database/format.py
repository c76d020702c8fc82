"""Whole databases as a format of sawlog."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa

from sawlog.errors import OptionError
from sawlog.format import Contents, Format, Match, Scan
from sawlog.leveldb_database import layout
from sawlog.leveldb_database.options import ReadOptions, WriteOptions

if TYPE_CHECKING:
    from sawlog.format import Writer
    from sawlog.storage import File, Storage


class LevelDBDatabase(Format):
    """Databases of LevelDB and RocksDB: what they would answer, without them."""

    name = "leveldb_database"
    title = "LevelDB / RocksDB database"
    suffix = ""
    views: ClassVar = {
        "rows": "the same as live",
        "live": "one row per key that the database would answer with: key, value, sequence, operation",
        "all": "every entry that still stands in live files: live, file and level beside these",
        "damage": "one row per damaged range of tables and logs",
    }
    read_options = ReadOptions
    write_options = WriteOptions

    def match(self, file: File, head: bytes) -> Match:
        """A MANIFEST beside other files; logs and tables are recognised before, where their own views are asked for."""
        del head
        return Match.BESIDE if layout.MANIFEST_NAME.match(file.name) else Match.NO

    def recognize(self, files: Sequence[File], storage: Storage) -> Match:
        """By the MANIFEST."""
        del storage
        return max((self.match(file, b"") for file in files), default=Match.NO)

    def select(self, files: Sequence[File], view: str) -> list[File]:
        """CURRENT, MANIFEST, logs and tables of one directory."""
        del view
        chosen = [file for file in files if layout.belongs(file.path)]
        return chosen if any(layout.MANIFEST_NAME.match(file.name) for file in chosen) else []

    def open(self, files: Sequence[File], scan: Scan) -> Contents:
        """See `Format.open`."""
        from sawlog.leveldb_database.dataset import DatabaseContents

        return DatabaseContents(self, files, scan)

    def writer(self, path: str, schema: pa.Schema, options: Any, storage: Storage) -> Writer:
        """Refused: tables and logs are written one by one.

        Raises:
            OptionError: Always.
        """
        del schema, options, storage
        raise OptionError(f"{path}: databases are not written; write a leveldb_table, and have the database ingest it")

    def repair(self, file: File, target: str, options: Any, storage: Storage) -> None:
        """Refused: tables and logs are repaired one by one.

        Raises:
            OptionError: Always.
        """
        del target, options, storage
        raise OptionError(f"{file.path}: repair the tables and logs of a database one by one")

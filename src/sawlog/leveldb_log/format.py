"""LevelDB logs as a format of sawlog."""

from __future__ import annotations

import os
import posixpath
import tempfile
import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

import pyarrow as pa

from sawlog import api
from sawlog.damage import DamageWarning
from sawlog.format import Dataset, Format, Match, Scan
from sawlog.leveldb_log import layout
from sawlog.leveldb_log.reader import RECORD_COLUMN, LevelDBLogDataset, ReadOptions, first_fragments
from sawlog.leveldb_log.writer import LogWriter, WriteOptions, repair

if TYPE_CHECKING:
    from sawlog.damage import FileReport
    from sawlog.storage import File, Storage

_DATA_NAMES = (layout.LOG_NAME, layout.SINK_NAME, layout.EXPORT_NAME)
_ARCHIVE = "archive"
_WRITE_BATCH = bytes.fromhex("0100000000000000 01000000 01016b0176")
"""A record to warm up with: one write batch that puts `k` = `v` as number 1."""


class LevelDBLog(Format):
    """Write-ahead logs of LevelDB and RocksDB, and everything else in their framing."""

    name = "leveldb_log"
    title = "LevelDB / RocksDB log"
    suffix = ".log"
    views: ClassVar = {
        "rows": "one row per record: record (binary)",
        "damage": "one row per damaged range",
    }
    read_options = ReadOptions
    write_options = WriteOptions

    def match(self, file: File, head: bytes) -> Match:
        """By an intact fragment at a block start; an empty or damaged file by its name."""
        for dialect in ("rocksdb", "pebble"):
            if next(first_fragments(head, dialect), None) is not None:
                return Match.CONTENT
        names = (*_DATA_NAMES, layout.MANIFEST_NAME)
        return Match.NAME if any(name.match(file.name) for name in names) else Match.NO

    def select(self, files: Sequence[File], view: str) -> list[File]:
        """Logs in the order of their numbers (RocksDB's archive first, where it belongs), and export files."""
        chosen = [file for file in files if file.explicit or any(name.match(file.name) for name in _DATA_NAMES)]
        return sorted(chosen, key=_log_order)

    def open(self, files: Sequence[File], scan: Scan) -> Dataset:
        """See `Format.open`."""
        return LevelDBLogDataset(self, files, scan)

    def writer(self, path: str, schema: pa.Schema, options: WriteOptions, storage: Storage) -> LogWriter:
        """See `Format.writer`."""
        return LogWriter(path, schema, options, storage)

    def repair(self, file: File, target: str, options: ReadOptions, storage: Storage) -> FileReport:
        """See `Format.repair`."""
        return repair(file, target, options, storage)

    def warm_up(self) -> None:
        """See `Format.warm_up`: write a log of one write batch, read every view of it, check and repair it."""
        with tempfile.TemporaryDirectory() as directory, warnings.catch_warnings():
            warnings.simplefilter("ignore", DamageWarning)
            log, copy = (os.path.join(directory, f"00000{number}{self.suffix}") for number in (1, 2))
            record = pa.array([_WRITE_BATCH], pa.binary())
            api.write(pa.table([record], names=[RECORD_COLUMN]), log, format=self.name)
            for view in self.views:
                api.read(log, format=self.name, view=view, on_damage="skip", provenance=True)
            api.verify(log, format=self.name)
            api.repair(log, copy, format=self.name)


def _log_order(file: File) -> tuple[str, int]:
    """Directories apart, an archive together with the directory it lies in; logs by number."""
    directory, name = posixpath.split(file.path)
    if posixpath.basename(directory) == _ARCHIVE:
        directory = posixpath.dirname(directory)
    number = layout.LOG_NAME.match(name) or layout.EXPORT_NAME.match(name)
    return directory, int(number[1]) if number else -1

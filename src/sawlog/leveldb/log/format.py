"""LevelDB logs as a format of sawlog."""

from __future__ import annotations

import importlib
import posixpath
import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar, NamedTuple

import pyarrow as pa

from sawlog.errors import OptionError
from sawlog.format.contract import Contents, DirectoryLayout, Format, Match, Scan, StreamRules, Writer, WriterPosition
from sawlog.format.damage import FileReport, Remark, Skipped, Verdict
from sawlog.format.lazy import make_lazy_attribute
from sawlog.leveldb.datastore import layout as datastore_layout
from sawlog.leveldb.log import layout
from sawlog.leveldb.log.head import iterate_first_fragments
from sawlog.leveldb.log.layout import RECOVERED_COLUMN, STALE_COLUMN
from sawlog.storage import File, Storage

if TYPE_CHECKING:
    from sawlog.leveldb.options import LogReadOptions, LogWriteOptions

_METADATA_NAMES = (datastore_layout.OVERALL_NAME, datastore_layout.METADATA_NAME)
_DATA_NAMES = (layout.LOG_NAME, layout.SINK_NAME, layout.EXPORT_NAME)


class _View(NamedTuple):
    """View of a format: a line on it, the files of a directory that it reads, and the class of its contents."""

    title: str
    names: tuple[re.Pattern[str], ...]
    module: str
    contents: str


_VIEWS = {
    "rows": _View("one row per record: record (binary)", _DATA_NAMES, "log.dataset", "LogContents"),
    "damage": _View("one row per damaged range", _DATA_NAMES, "log.dataset", "LogContents"),
    "writes": _View(
        "one row per operation in write batches: sequence, operation, column_family, key, value",
        (layout.LOG_NAME, layout.SINK_NAME),
        "records.history",
        "WritesContents",
    ),
    "edits": _View(
        "one row per version edit of a MANIFEST: comparator, log number, added and deleted files",
        (layout.MANIFEST_NAME,),
        "records.edits",
        "EditsContents",
    ),
    "files": _View(
        "one row per file that lives after the last edit of a MANIFEST: level, size, key range",
        (layout.MANIFEST_NAME,),
        "records.edits",
        "FilesContents",
    ),
    "entities": _View(
        "one row per entity of a Datastore or Firestore export: key, properties",
        (layout.EXPORT_NAME, *_METADATA_NAMES),
        "datastore.entities",
        "EntitiesContents",
    ),
}
"""The views. What reads one is imported with it: decoders of records are large."""
_MEANINGS = {
    "entities": (layout.EXPORT_NAME, "entity"),
    "writes": (layout.LOG_NAME, "write batch"),
    "edits": (layout.MANIFEST_NAME, "version edit"),
}
"""Views that say what records mean, the names of files that they are for, and what a record is to them."""
_WRITTEN_OVER = 1000
"""How far back the numbers of logs may lie that a log is written over."""


class _Logs(DirectoryLayout):
    """Logs of databases, which may lie next to tables, or in an archive."""

    file_names = "a number and .log, such as 000007.log"

    def dataset_directory(self, file: File) -> str:
        """Return the directory of a log; an archive belongs to the directory above it."""
        return _make_sort_key(file)[0]

    def unread(self, files: Sequence[File], view: str) -> list[Skipped]:
        """Return tables. They hold operations that have left the logs: views of operations miss them."""
        databases = {self.dataset_directory(file) for file in files if layout.MANIFEST_NAME.match(file.name)}
        tables = [file for file in files if layout.TABLE_NAME.match(file.name)]
        skipped = []
        for file in tables:
            directory = self.dataset_directory(file)
            command = (
                f"sawlog cat {shlex.quote(directory)}{'' if directory in databases else ' --format leveldb_table'}"
            )
            reason = f"a table, to which the database has moved operations from its logs; read by: {command}"
            skipped.append(Skipped(file.path, reason, file.size, missed=view in ("rows", "writes")))
        return skipped


class _Numbers(StreamRules):
    """Logs of databases, which are numbered."""

    def stream_name(self, name: str) -> str:
        """Return the name of a log without its archive: RocksDB moves logs into its archive."""
        directory, base = posixpath.split(name)
        if posixpath.basename(directory) == layout.ARCHIVE_NAME and layout.LOG_NAME.match(base):
            return posixpath.join(posixpath.dirname(directory), base)
        return name

    def overwritten_names(self, name: str, head: bytes) -> Iterator[str]:
        """Yield names of lower numbers: RocksDB and Pebble write over old logs, whose numbers are in fragments."""
        directory, base = posixpath.split(name)
        numbered = len(head) < layout.HEADER_SIZE or layout.TYPE.of(head, 0) not in layout.TYPES["leveldb"]
        if numbered and (number := layout.LOG_NAME.match(base)):
            last = int(number[1])
            for earlier in range(max(0, last - _WRITTEN_OVER), last):
                yield posixpath.join(directory, f"{earlier:06}.log")

    def writer_position(self, file: File) -> WriterPosition | None:
        """Return the number of a log among those of its database."""
        directory, number = _make_sort_key(file)
        return WriterPosition(directory, number) if layout.LOG_NAME.match(file.name) else None


class LevelDBLog(Format):
    """Write-ahead logs of LevelDB and RocksDB, and everything else in their framing."""

    name = "leveldb_log"
    title = "LevelDB / RocksDB log"
    suffix = ".log"
    marks: ClassVar = frozenset({STALE_COLUMN, RECOVERED_COLUMN})
    directory_layout = _Logs()
    stream_rules = _Numbers()
    views: ClassVar = {name: view.title for name, view in _VIEWS.items()}
    read_options = make_lazy_attribute("sawlog.leveldb.options", "LogReadOptions")
    write_options = make_lazy_attribute("sawlog.leveldb.options", "LogWriteOptions")

    def match(self, file: File, head: bytes) -> Match:
        """Recognize by an intact fragment at a block start; an empty or damaged file by its name."""
        for dialect in ("rocksdb", "pebble"):
            if next(iterate_first_fragments(head, dialect), None) is not None:
                return Match.CONTENT
        names = (*_DATA_NAMES, layout.MANIFEST_NAME, *_METADATA_NAMES)
        return Match.NAME if any(name.match(file.name) for name in names) else Match.NO

    def select(self, files: Sequence[File], view: str) -> list[File]:
        """Return logs in the order of their numbers (RocksDB's archive first, where it belongs), and export files."""
        names = _VIEWS[view].names if view in _VIEWS else _DATA_NAMES
        selection = [file for file in files if file.explicit or any(name.match(file.name) for name in names)]
        return sorted(selection, key=_make_sort_key)

    def open(self, files: Sequence[File], scan: Scan) -> Contents:
        _check_options(scan.options, scan.view)
        _, _, module, name = _VIEWS[scan.view]
        contents: Contents = getattr(importlib.import_module(f"sawlog.leveldb.{module}"), name)(self, files, scan)
        return contents

    def remark_on_repair(self, contents: Contents) -> list[Skipped | Remark]:
        """Return remarks on files of which records are kept that are not such as the names promise."""
        remarks: list[Skipped | Remark] = []
        for view, (name, meaning) in _MEANINGS.items():
            logs = [file for file in contents.files if name.match(file.name)]
            judged = {report.path: report for report in self._judge(logs, view, contents.scan)}
            doubtful = [file for file in logs if judged[file.path].rows and judged[file.path].damaged]
            for framing in self._judge(doubtful, "rows", contents.scan):
                count = judged[framing.path].count(Verdict.DAMAGED) - framing.count(Verdict.DAMAGED)
                if count > 0:
                    remarks.append(Remark(framing.path, _without_meaning(count, meaning)))
        return remarks

    def _judge(self, files: Sequence[File], view: str, scan: Scan) -> Iterator[FileReport]:
        """Yield what a view finds in files, each by itself."""
        from sawlog.dataset.dataset import Dataset

        options = replace(self.read_options(), dialect=scan.options.dialect)
        scan = replace(scan, view=view, options=options)
        for file in files:
            yield from Dataset(self.open([file], scan), scan).verify()

    def writer(self, path: str, schema: pa.Schema, options: LogWriteOptions, storage: Storage) -> Writer:
        if options.view == "writes":
            from sawlog.leveldb.records.batches import WritesWriter

            return WritesWriter(path, schema, options, storage)
        from sawlog.leveldb.log.writer import LogWriter

        return LogWriter(path, schema, options, storage)

    def repair(self, file: File, target: str, options: LogReadOptions, storage: Storage) -> None:
        from sawlog.leveldb.log.writer import repair

        repair(file, target, options, storage)


def _without_meaning(count: int, meaning: str) -> str:
    records, pronoun = ("1 record is", "it") if count == 1 else (f"{count:,} records are", "them")
    return f"{records} no valid {meaning}: damaged in meaning, not in framing; the copy has {pronoun} unchanged"


def _check_options(options: LogReadOptions, view: str) -> None:
    """Refuse options that the view has no use for."""
    if options.salvage and view not in ("rows", "writes", "damage"):
        raise OptionError(f"the option salvage is for the views 'rows' and 'writes', not {view!r}")
    if options.latest and "stale" in options.salvage:
        raise OptionError('latest=true and salvage="stale" exclude each other: what is stale is no state of any key')
    if options.recovery is not None and (options.salvage or view != "writes"):
        raise OptionError("the option recovery is for the view 'writes', without salvage: RocksDB has no such thing")
    if options.latest and view != "writes":
        raise OptionError(f"latest=true is for the view 'writes', not {view!r}")
    if options.keys != "internal" and view != "writes":
        raise OptionError(f"the option keys is for the view 'writes', not {view!r}")
    if (options.properties != "json" or options.table is not None) and view != "entities":
        raise OptionError(f"the options properties and table are for the view 'entities', not {view!r}")


def _make_sort_key(file: File) -> tuple[str, int]:
    """Return the directory of a log, without an archive below it, and its number; -1 for a file without one."""
    directory, name = posixpath.split(file.path)
    if posixpath.basename(directory) == layout.ARCHIVE_NAME:
        directory = posixpath.dirname(directory)
    number = layout.LOG_NAME.match(name) or layout.EXPORT_NAME.match(name)
    return directory, int(number[1]) if number else -1

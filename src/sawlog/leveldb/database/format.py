"""Whole databases as a format of sawlog."""

from __future__ import annotations

import posixpath
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa

from sawlog.dataset.scanning import find_more_rows, verify_contents
from sawlog.errors import FormatError, OptionError
from sawlog.format.capabilities import Verification
from sawlog.format.contract import Contents, DirectoryLayout, Format, Match, Scan, Writer
from sawlog.format.damage import FileReport, Remark, Skipped
from sawlog.format.lazy import make_lazy_attribute
from sawlog.format.planning import bind_scan
from sawlog.format.recognition import get_format
from sawlog.leveldb.applications import Views, find_application
from sawlog.leveldb.columns import OPERATION
from sawlog.leveldb.database import layout
from sawlog.leveldb.log.layout import ARCHIVE_NAME
from sawlog.storage import File, Storage

if TYPE_CHECKING:
    from sawlog.leveldb.database.dataset import DatabaseContents

_MAX_LISTED_DATABASES = 5
"""Databases that an error names, of many."""

_INNER_NAMES = (ARCHIVE_NAME, layout.BLOB_DIRECTORY)
"""Directories within that of a database, which have files of it."""


@lru_cache(256)
def _is_plain(directory: str) -> bool:
    """Return whether the name of a directory says nothing of the files in it."""
    patterns = (layout.BACKUP_HOME, layout.BACKUP_SHARED)
    is_backup = any(pattern.match(directory) for pattern in patterns) or layout.BACKUP_META.match(f"{directory}/1")
    return not (is_backup or posixpath.basename(directory) in _INNER_NAMES)


class _Directories(DirectoryLayout):
    """Directories that are a database each."""

    absorbs: ClassVar = frozenset({"leveldb_log", "leveldb_table"})
    is_directory: ClassVar = True

    def dataset_directory(self, file: File) -> str:
        """Return the directory of a file: above archives and blob files, and for a backup that of all backups."""
        directory = file.directory
        if _is_plain(directory):
            return directory
        of_backup = layout.BACKUP_HOME.match(directory) or layout.BACKUP_META.match(file.path)
        if of_backup is None and layout.SHARED_NAME.match(file.name):
            of_backup = layout.BACKUP_SHARED.match(directory)
        if of_backup is not None:
            return of_backup[1] or ""
        above, name = posixpath.split(directory)
        inner = name == ARCHIVE_NAME or (name == layout.BLOB_DIRECTORY and layout.BLOB_NAME.match(file.name))
        return above if inner else directory

    def unread(self, files: Sequence[File], view: str) -> list[Skipped]:
        """Return an engine's own files, which hold no entries."""
        reason = "the engine's own: messages, locks or settings"
        return [Skipped(file.path, reason, file.size) for file in files if layout.ENGINE_NAME.match(file.name)]


class LevelDBDatabase(Format):
    """Databases of LevelDB and RocksDB: what they would answer, without them."""

    name = "leveldb_database"
    title = "LevelDB / RocksDB database"
    suffix = ""
    views: ClassVar = Views(
        {
            "rows": "the same as live",
            "live": "one row per key that the database would answer with: key, value, sequence, operation",
            "all": "one row per entry of live files, deletions included, with live, file and level (-1 for logs)",
            "damage": "one row per damaged range of a table, log or blob file, and per value lost in a blob file",
        }
    )
    directory_layout = _Directories()
    read_options = make_lazy_attribute("sawlog.leveldb.options", "DatabaseReadOptions")
    write_options = make_lazy_attribute("sawlog.format.options", "NoOptions")

    def match(self, file: File, head: bytes) -> Match:
        """Recognize by its name: a MANIFEST may be next to other files, or be what is left of a database."""
        del head
        return Match.ADJACENT if layout.MANIFEST_NAME.match(file.name) else Match.NO

    def recognize(self, files: Sequence[File], storage: Storage) -> Match:
        """Return how certain it is that files are a database: a MANIFEST and anything else of it in one directory are.

        See `find_homes` for one without.
        """
        del storage
        manifests = {
            self.directory_layout.dataset_directory(file) for file in files if layout.MANIFEST_NAME.match(file.name)
        }
        unopened = {
            self.directory_layout.dataset_directory(file) for file in files if not layout.MANIFEST_NAME.match(file.name)
        }
        if unopened & layout.find_homes(files, self.directory_layout.dataset_directory):
            return Match.CONTENT
        return Match.ADJACENT if manifests else Match.NO

    def select(self, files: Sequence[File], view: str) -> list[File]:
        """Return CURRENT, MANIFEST, logs, tables and blob files of the directories that hold a database."""
        del view
        homes = layout.find_homes(files, self.directory_layout.dataset_directory)
        return [
            file
            for file in (files if homes else ())
            if layout.belongs(file) and self.directory_layout.dataset_directory(file) in homes
        ]

    def find_more_rows(self, contents: Contents, reports: Sequence[FileReport]) -> str:
        """Return a remark on logs: those that tables were made of, and those that are read up to the first damage."""
        scan, version = contents.scan, self._as_database(contents).version
        if any(layout.LOG_NAME.match(file.name) for file in version.dead):
            own_files = [file for file in contents.files if file not in version.elsewhere]
            if rows_hint := find_more_rows(self, reports, own_files, scan):
                return rows_hint
        damaged_paths = {report.path for report in reports if report.damaged}
        damaged = [file for file in contents.files if file.path in damaged_paths and layout.LOG_NAME.match(file.name)]
        if not damaged:
            return ""
        logs = get_format("leveldb_log")
        read = replace(scan, view="writes", options=logs.read_options(), filters=(), columns=None, expression=None)
        opened = [logs.open([file], read) for file in damaged]
        reports_of_logs = [
            log_report
            for log_contents in opened
            for log_report in verify_contents(log_contents, bind_scan(log_contents, read), Verification())
        ]
        rows_hint = find_more_rows(logs, reports_of_logs, damaged, read)
        paths = " ".join(shlex.quote(file.path) for file in damaged)
        return f"{rows_hint}: sawlog cat {paths} --view writes -o salvage=damaged" if rows_hint else ""

    def open(self, files: Sequence[File], scan: Scan) -> Contents:
        """Return the contents of a database.

        Raises:
            FormatError: When there are several databases.
            OptionError: When an option is for another view.
        """
        from sawlog.leveldb.database.dataset import DatabaseContents

        if scan.options.history and find_application(scan.view) is None:
            raise OptionError(f"the option history is for views of applications, not {scan.view!r}; see view 'all'")
        if "orphans" in scan.options.salvage and not (scan.view == "all" or scan.options.history):
            raise OptionError(f"salvage=orphans is for the view 'all' and history=true, not for {scan.view!r}")
        homes = dict.fromkeys(map(self.directory_layout.dataset_directory, files))
        if len(homes) > 1:
            listed = ", ".join(list(homes)[:_MAX_LISTED_DATABASES]) + (
                ", ..." if len(homes) > _MAX_LISTED_DATABASES else ""
            )
            command = f"sawlog cat {shlex.quote(next(iter(homes)))}"
            raise FormatError(f"{len(homes)} databases: {listed}; name one of them: {command}; sawlog ls lists all")
        return DatabaseContents(self, files, scan)

    def writer(self, path: str, schema: pa.Schema, options: Any, storage: Storage) -> Writer:
        """Refuse: tables and logs are written one by one.

        Raises:
            OptionError: Always.
        """
        del schema, options, storage
        raise OptionError(f"{path}: databases are not written; write a leveldb_table, and have the database ingest it")

    def repair(self, file: File, target: str, options: Any, storage: Storage) -> None:
        """Refuse: the files of a database are repaired together.

        Raises:
            OptionError: Always.
        """
        del target, options, storage
        raise OptionError(f"{file.path}: a database is repaired as a whole: name its directory")

    def repair_files(self, contents: Contents, places: Sequence[tuple[File, str]], storage: Storage) -> None:
        """Write a new database that answers as the old one would."""
        from sawlog.leveldb.database.repair import repair_database

        repair_database(contents, places, storage)

    def list_repaired_parts(self, contents: Contents) -> list[Mapping[str, Any]]:
        """Return the options that select each column family."""
        return [{"table": name} for name in self._as_database(contents).versions]

    @staticmethod
    def _as_database(contents: Contents) -> DatabaseContents:
        """Return the same contents, which are a database's."""
        from sawlog.leveldb.database.dataset import DatabaseContents

        assert isinstance(contents, DatabaseContents)
        return contents

    def remark_on_repair(self, contents: Contents) -> list[Skipped | Remark]:
        """Return transactions that are prepared: a process that opens the old database again may commit them."""
        from sawlog.leveldb.database.repair import find_prepared_entries

        return list(find_prepared_entries(contents))

    def convert_repaired_rows(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return rows as the new database has them: values that were elsewhere are with their keys."""
        from sawlog.leveldb.database.repair import convert_operations

        if OPERATION not in batch.schema.names:
            return batch
        operation_index = batch.schema.get_field_index(OPERATION)
        return batch.set_column(
            operation_index, batch.schema.field(operation_index), convert_operations(batch.column(OPERATION))
        )

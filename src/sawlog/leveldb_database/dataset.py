"""A database as one dataset: tables and logs together, as the database itself would answer."""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import pyarrow as pa

from sawlog.anatomy import Dissector
from sawlog.damage import Account, FileReport, Findings
from sawlog.errors import OptionError
from sawlog.follow import Range
from sawlog.format import PROBE_BYTES, TASK_BYTES, Dataset, Format, Fragment, Scan
from sawlog.leveldb_database.columns import STAMPED_SCHEMA
from sawlog.leveldb_database.fragments import (
    HISTORY_SCHEMA,
    ORPHAN,
    STATE_SCHEMA,
    BlobDamage,
    BlobParts,
    KeyRange,
    MissingTable,
    Orphan,
)
from sawlog.leveldb_database.layout import BLOB_NAME, LOG_NAME, MANIFEST_NAME, TABLE_NAME
from sawlog.leveldb_database.tables import JudgedTable
from sawlog.leveldb_database.version import DatabaseVersion, LiveTable, read_version
from sawlog.leveldb_log import anatomy as log_anatomy
from sawlog.leveldb_log.head import read_head
from sawlog.leveldb_log.options import ReadOptions as LogOptions
from sawlog.leveldb_log.payloads.writes import WriteRange
from sawlog.leveldb_table import anatomy as table_anatomy
from sawlog.leveldb_table.columns import STAMP
from sawlog.leveldb_table.fragments import table_map
from sawlog.leveldb_table.meta import MapReader
from sawlog.leveldb_table.pruning import SPARED, on_keys, told
from sawlog.skipped import Skipped
from sawlog.storage import File, Source


class DatabaseDataset(Dataset):
    """One database.

    Attributes:
        version: The files that it is made of.
    """

    version: DatabaseVersion

    def __init__(self, format: Format, files: Sequence[File], scan: Scan) -> None:
        self.version = read_version(files, scan.options.column_family, scan.storage)
        super().__init__(format, files, scan)

    @property
    def shared(self) -> bool:
        """See `Dataset.shared`: half of the merging is done under the interpreter's lock; two threads are slower."""
        return False

    @property
    def readable_apart(self) -> int:
        """See `Dataset.readable_apart`: the files are one."""
        return 1

    def view_schema(self) -> pa.Schema:
        """See `STATE_SCHEMA` and `HISTORY_SCHEMA`; with a timestamp behind the key, where keys have one."""
        schema = HISTORY_SCHEMA if self.scan.view == "all" else STATE_SCHEMA
        if self.scan.view == "all" and self.scan.options.orphans:
            schema = schema.append(pa.field(ORPHAN, pa.bool_(), nullable=False))
        return schema.insert(1, STAMPED_SCHEMA.field(STAMP)) if self.version.stamped else schema

    def plan(self, task_bytes: int | None) -> Iterator[Fragment]:
        """Ranges of keys that begin where tables do; at most about `TASK_BYTES` of tables each."""
        if self.scan.view == "damage":
            yield from self._files()
            if self.version.apart or not self.version.bytewise:
                yield from self._ranges(task_bytes, BlobDamage)
            return
        yield from self._ranges(task_bytes, KeyRange)
        for file in self._orphans:
            yield Orphan.of(self, self.version, file)

    @property
    def _orphans(self) -> list[File]:
        """Tables and logs that the MANIFEST does not name, where they are asked for."""
        wanted = self.scan.view == "all" and self.scan.options.orphans
        return [file for file in self.version.dead if not BLOB_NAME.match(file.name)] if wanted else []

    def _ranges(self, task_bytes: int | None, kind: type[KeyRange]) -> Iterator[Fragment]:
        version = self.version
        cuts = list(self._cuts(task_bytes or TASK_BYTES)) if version.bytewise else []
        logs = sum(file.size for file in version.logs)
        for low, high in zip([b"", *cuts], [*cuts, None], strict=True):
            tables = overlapping(version.tables, low, high) if version.bytewise else version.tables
            size = logs + sum(table.file.size for table in tables)
            yield kind(self.scan, self.projection, version.manifest.path, size, version, tables, low, high)

    def verify(
        self, task_bytes: int | None = None, advance: Callable[[int], None] | None = None, *, every: bool = False
    ) -> Iterator[FileReport]:
        """See `Dataset.verify`: the MANIFEST with the rows of the view, then every other file, which have none."""
        manifest = self.version.manifest
        counted = Findings("skip", account=Account(header=manifest.size))
        lost: dict[str, Findings] = {}
        for fragment in self.plan(task_bytes) if self.scan.view != "damage" else ():
            found = fragment.inspect(every=every)
            counted.rows += found.rows
            for damage in found.damages:
                if BLOB_NAME.match(posixpath.basename(damage.path)):
                    lost.setdefault(damage.path, Findings("skip", drained=every)).damage(damage)
        yield FileReport.of(manifest.path, manifest.size, [counted])
        sizes = {file.path: file.size for file in self.files}
        for fragment in self._files():
            found = fragment.inspect(every=every)
            found.rows = 0
            more = [lost.pop(fragment.path)] if fragment.path in lost else []
            yield FileReport.of(fragment.path, sizes.get(fragment.path, 0), [found, *more])
            if advance is not None:
                advance(fragment.size)
        for path, values in lost.items():  # files that are not there
            yield FileReport.of(path, 0, [values])
        self.scan.storage.confirm()

    def _files(self) -> Iterator[Fragment]:
        """Each table, log and blob file as a whole."""
        version = self.version
        scan = replace(self.scan, options=version.entry_options(self.scan.options))
        tables: dict[str, list[LiveTable]] = {}
        for table in version.tables:
            tables.setdefault(table.file.path, []).append(table)
        for path, live in tables.items():
            size, judged = live[0].file.size, tuple(live) if version.bytewise else ()
            yield JudgedTable(scan, self.projection, path, size, live[0].file, 0, size, False, live=judged)
        logs = replace(self.scan, options=LogOptions(verify_checksums=self.scan.options.verify_checksums))
        for file in (one for one in self._orphans if TABLE_NAME.match(one.name)):
            yield JudgedTable(scan, self.projection, file.path, file.size, file, 0, file.size, False)
        for file in [*self.version.logs, *(one for one in self._orphans if LOG_NAME.match(one.name))]:
            dialect = self.version.dialect
            yield WriteRange(
                logs, self.projection, file.path, file.size, file, 0, file.size, synced=True, dialect=dialect
            )
        for blobs in version.blobs.values():
            yield BlobParts(self.scan, self.projection, blobs.file.path, blobs.file.size, blobs)
        for name in self.version.missing:
            yield MissingTable(self.scan, self.projection, name, 0)

    def _cuts(self, task_bytes: int) -> Iterator[bytes]:
        gathered = 0
        # Tables of level 0 may each hold keys from everywhere: to begin where they do divides nothing.
        deeper = [table for table in self.version.tables if table.level]
        for table in sorted(deeper or self.version.tables, key=lambda one: one.smallest):
            if gathered >= task_bytes and table.smallest:
                yield table.smallest
                gathered = 0
            gathered += table.file.size

    @cached_property
    def skipped(self) -> list[Skipped]:
        """Tables, logs and blob files that the database has done with, beside what every dataset leaves out."""
        reason = "the MANIFEST does not name it any more"
        orphans = self._orphans
        dead = [Skipped(file.path, reason, file.size) for file in self.version.dead if file not in orphans]
        return [*super().skipped, *dead]

    def between(self, ranges: Sequence[Range]) -> list[Fragment]:
        """Refused: what a database answers changes in other ways than by rows that are added.

        Raises:
            OptionError: Always.
        """
        del ranges
        raise OptionError(
            f"view {self.scan.view!r} of leveldb_database cannot be followed as a stream: name leveldb_log as the"
            " format, to follow its logs"
        )

    def dissector(self, file: File, source: Source) -> Dissector:
        """See `Dataset.dissector`: fragments of logs and MANIFESTs, blocks of tables."""
        name = posixpath.basename(file.path)
        if TABLE_NAME.match(name):
            table = MapReader(file, source, self.version.table_options(self.scan.options)).read()
            return lambda offset: table_anatomy.parts(source, offset, table)
        if LOG_NAME.match(name) or MANIFEST_NAME.match(name):
            head = read_head(source.window(0, PROBE_BYTES).tobytes(), file, self.version.dialect, self.scan.storage)
            return lambda offset: log_anatomy.parts(source, offset, head.dialect)
        return super().dissector(file, source)

    def facts(self) -> dict[str, Any]:
        """Comparator, how many tables and logs are alive, and what filters on the key spare of the tables."""
        version = self.version
        levels = sorted({table.level for table in version.tables})
        tables = {f"tables of level {n}": sum(one.level == n for one in version.tables) for n in levels}
        facts = {"comparator": version.comparator, **tables, "logs": len(version.logs)}
        if version.bytewise and self.scan.view != "damage" and on_keys(self.projection):
            scan = replace(self.scan, options=version.entry_options(self.scan.options))
            maps = (table_map(table.file, scan) for table in version.tables)
            facts[SPARED] = told(maps, self.projection)
        return facts


def overlapping(tables: Sequence[LiveTable], low: bytes, high: bytes | None) -> tuple[LiveTable, ...]:
    """The tables that may hold keys in `[low, high)`."""
    return tuple(one for one in tables if one.end > low and (high is None or one.smallest < high))

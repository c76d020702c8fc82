"""A database as one dataset: tables and logs together, as the database itself would answer."""

from __future__ import annotations

import contextlib
import heapq
import itertools
import posixpath
import re
import sys
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from operator import itemgetter
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pyarrow as pa

from sawlog.errors import DiskError, FormatError, OptionError
from sawlog.format.capabilities import Counting, Verification, make_follow_error
from sawlog.format.charts import Picture
from sawlog.format.contract import PROBE_BYTES, TASK_BYTES, BoundScan, Contents, Format, Fragment, Range, Scan, View
from sawlog.format.damage import (
    DAMAGE_SCHEMA,
    MISMATCHED_FILE,
    MISSING_FILE,
    Account,
    Damage,
    FileReport,
    Findings,
    Skipped,
    Tail,
    TailStatus,
)
from sawlog.format.fields import FieldParser
from sawlog.format.planning import bind_scan, plan, plan_fragments
from sawlog.format.scan import NamedTable, Projection
from sawlog.leveldb.applications import find_application, recognize_views
from sawlog.leveldb.applications.fragments import Decoded, change_view, make_view_schema
from sawlog.leveldb.applications.view import Home
from sawlog.leveldb.columns import (
    HISTORY_SCHEMA,
    SEQUENCE,
    STAMP,
    STAMPED_SCHEMA,
    STATE_SCHEMA,
    TRANSACTION,
    WRITES_SCHEMA,
)
from sawlog.leveldb.database.backups import BackupCheck, read_backup
from sawlog.leveldb.database.fragments import (
    ORPHAN,
    BlobDamage,
    BlobParts,
    JudgedTable,
    KeyRange,
    MetadataFile,
    MissingFile,
    Orphan,
    SharedFiles,
)
from sawlog.leveldb.database.layout import BLOB_NAME, LOG_NAME, MANIFEST_NAME, TABLE_NAME
from sawlog.leveldb.database.manifest import DatabaseMetadata, read_metadata
from sawlog.leveldb.database.version import (
    DatabaseVersion,
    LiveTable,
    find_last_sequence,
    parse_number,
    read_entries,
    read_versions,
    resolve_directory,
)
from sawlog.leveldb.log import fields as log_fields
from sawlog.leveldb.log.head import read_head
from sawlog.leveldb.options import LogReadOptions
from sawlog.leveldb.records.writes import WriteRange
from sawlog.leveldb.table import fields as table_fields
from sawlog.leveldb.table.layout import COMPARATOR, EXTERNAL_VERSION
from sawlog.leveldb.table.meta import (
    EVERY_KEY,
    SPARED,
    BoundsReader,
    MapReader,
    describe_spared_blocks,
    find_key_interval,
)
from sawlog.leveldb.table.rows import read_table_map
from sawlog.storage import File, Source, confirm_files
from sawlog.storage.workers import ReadOnce, map_all

if TYPE_CHECKING:
    from sawlog.leveldb.database.pictures import Charts

_DATA_NAMES = re.compile("|".join(name.pattern for name in (TABLE_NAME, LOG_NAME, BLOB_NAME)))
_MAX_SAMPLE_KEYS = 100
"""So many keys of tables, or of a small log, show what application has written them."""
_ENTRY_VIEWS = ("rows", "live", "all")
"""Views that read all entries; the application's read them, too, by ways of their own."""
_PIECES_OF_TASK = 4
"""Into so many pieces is a table looked at for each task, so that ranges of several tables are of about one size."""
_MAX_PARTS = 4
"""Parts of entries that are not in the order of the bytes of keys: each process reads and sorts all for one of them,
which takes a third of what the view of IndexedDB takes."""
_MAX_SHOWN_FAULTS = 3
"""So many of them does `info` show."""
_SAMPLE_BYTES = PROBE_BYTES // 2
"""So much of the beginning of a log is looked into for that; those who read it next are spared what was fetched."""


class DatabaseContents(Contents):
    """The contents of a database.

    Attributes:
        metadata: What says of which files it is made.
        version: The files that the column family is made of that is read.
        versions: Those of all column families, by name.
        backup: The backup that it is; `None` where it is no backup.
    """

    metadata: DatabaseMetadata
    version: DatabaseVersion
    versions: dict[str, DatabaseVersion]

    def __init__(self, format: Format, files: Sequence[File], scan: Scan) -> None:
        self._other_backups: Sequence[File] = ()
        self.backup = read_backup(files, scan.options, scan.storage)
        if self.backup is not None:
            directory = posixpath.join(self.backup.root, "private", str(self.backup.number))
            read = {self.backup.meta, *self.backup.present}
            self._other_backups = [file for file in files if file.path not in read and file.directory != directory]
            files = [file for file in files if file.directory == directory]
        shared = self.backup.shared if self.backup is not None else ()
        self.metadata = read_metadata(files, scan.storage)
        self.versions = read_versions(self.metadata, files, scan.storage, scan.options, shared)
        family = scan.options.table
        if family not in self.versions:
            families = ", ".join(self.versions)
            raise OptionError(f"{files[0].path}: no column family {family!r}; there are: {families}")
        self.version = self.versions[family]
        self._unselected: Sequence[File] = ()
        super().__init__(format, [*files, *self.version.elsewhere], scan)

    def count_parts(self, request: BoundScan) -> int:
        """Return 1: the files are read as one."""
        del request
        return 1

    def find_tables(self) -> list[NamedTable]:
        """Return the backups of a directory of them."""
        numbers = self.backup.numbers if self.backup is not None else ()
        return [NamedTable("backup", str(number), {"backup": str(number)}) for number in numbers]

    def _plan_backup_checks(self, request: BoundScan) -> Iterator[Fragment]:
        """Yield the files of a backup, each held to what the backup says of it."""
        if self.backup is None:
            return
        if not self.backup.files:
            detail = "this file says which tables the backup is made of: name their directory with paths="
            fault = Damage(self.backup.meta, 0, 0, MISSING_FILE, detail)
            yield MissingFile(*request, self.backup.meta, 0, fault)
        for backup_file in self.backup.files:
            path = posixpath.join(self.backup.root, backup_file.path)
            size = self.backup.present[path].size if path in self.backup.present else 0
            yield BackupCheck(*request, path, size, self.backup.meta, backup_file)

    def _plan_file_checks(self, request: BoundScan) -> Iterator[Fragment]:
        """Yield what the backup, and the MANIFEST, say of files that are there."""
        yield from self._plan_backup_checks(request)
        sizes = {file.path: file.size for file in self.files}
        for fault in dict.fromkeys(fault for version in self.versions.values() for fault in version.faults):
            if fault.kind == MISMATCHED_FILE and fault.path in sizes:
                yield MissingFile(*request, fault.path, sizes[fault.path], fault)

    @property
    def unselected(self) -> Sequence[File]:
        """Files of the path that are not read: those are left out that the OPTIONS file or the caller leads to."""
        read = {file.path for file in self.version.elsewhere}
        return [file for file in self._unselected if file.path not in read]

    @unselected.setter
    def unselected(self, files: Sequence[File]) -> None:
        self._unselected = files

    def find_view(self, name: str) -> View[Any]:
        """Return a view, be it an application's."""
        if find_application(name) is None:
            return super().find_view(name)
        return View(DatabaseContents._make_view_schema, DatabaseContents._plan_decoded)

    def _make_view_schema(self) -> pa.Schema:
        """Return columns of an application's view, and those of `live`, or of `all` where its history is asked for."""
        decoder = find_application(self.scan.view)
        assert decoder is not None
        history = self.scan.options.history
        return make_view_schema(decoder, self._make_history_schema() if history else self._add_stamp(STATE_SCHEMA))

    def _plan_decoded(self, request: BoundScan, task_bytes: int | None) -> Iterator[Fragment]:
        """Yield the fragments of the entries, decoded."""
        home = Home(self._directory, self.scan.storage, self.scan.options.max_blob_bytes)
        history = self.scan.options.history
        (database_range,) = self._plan_ranges(request, sys.maxsize)
        all_entries, context = change_view(database_range, "all"), ReadOnce[Any]()
        if not self.version.bytewise:
            all_entries = replace(all_entries, shared=SharedFiles(all_entries.tables, None))
        for key_range in self._plan_entries(request, task_bytes) if history else self._plan_ranges(request, task_bytes):
            entries = change_view(key_range, "all" if history else "live")
            is_cut = not self.version.bytewise and entries.several
            parts = max(1, min(-(-entries.size // task_bytes), _MAX_PARTS)) if is_cut and task_bytes else 1
            shared = all_entries.shared if is_cut else entries.shared
            for part in range(parts):
                part_entries = replace(entries, shared=shared, part=part, parts=parts)
                yield Decoded(*request, entries.path, entries.size, part_entries, all_entries, home, context)

    def find_decoders(self) -> list[str]:
        """Return the views of applications that know the directory, the comparator, or first and last keys."""
        version = self.version
        keys = [key for table in version.tables[:_MAX_SAMPLE_KEYS] for key in (table.smallest, table.end[:-1])]
        if not version.tables and version.bytewise:
            scan = replace(self.scan, columns=("key",), filters=(), expression=None, schema=None)
            schema = pa.schema([STATE_SCHEMA.field("key")])
            with contextlib.suppress(FormatError):  # a read says why
                for log_range in self._plan_writes(BoundScan(scan, Projection.of(STATE_SCHEMA, scan)), version.logs):
                    self.scan.storage.read(log_range.file, 0, min(log_range.size, _SAMPLE_BYTES + PROBE_BYTES))
                    beginning = replace(log_range, end=min(log_range.size, _SAMPLE_BYTES))
                    for batch in beginning.decode(schema, Findings("skip", drained=True)):
                        keys += [key for key in batch.column("key")[:_MAX_SAMPLE_KEYS].to_pylist() if key is not None]
        return recognize_views(self._directory, version.comparator, keys)

    @property
    def _directory(self) -> str:
        """The path of the database, with the names of the directories above it, by which applications know theirs."""
        return resolve_directory(self.version.directory)

    def _make_history_schema(self) -> pa.Schema:
        """Return entries in `HISTORY_SCHEMA`.

        Which are in orphans, where these are asked for, or in open transactions.
        """
        orphans = [pa.field(ORPHAN, pa.bool_(), nullable=False)] if self._has_orphans else []
        pending = [pa.field(TRANSACTION, pa.string())] if self.version.pending else []
        return self._add_stamp(pa.schema([*HISTORY_SCHEMA, *pending, *orphans]))

    def _add_stamp(self, schema: pa.Schema) -> pa.Schema:
        """Return a schema with a timestamp after the key, where keys have one."""
        return schema.insert(1, STAMPED_SCHEMA.field(STAMP)) if self.version.has_stamps else schema

    def _plan_checks(self, request: BoundScan, task_bytes: int | None) -> Iterator[Fragment]:
        """Yield every file, and what only the ranges can say of blob files."""
        yield from self._plan_files(request)
        yield from self._plan_file_checks(request)
        for version in self.versions.values():
            yield from self._plan_blob_checks(request, task_bytes, version)

    def _plan_blob_checks(
        self, request: BoundScan, task_bytes: int | None, version: DatabaseVersion
    ) -> Iterator[Fragment]:
        """Yield the ranges of a column family that look for damage of its blob files only."""
        if version.has_blob_files or version.has_stamps or not version.bytewise:
            yield from self._plan_version_ranges(request, task_bytes, version, BlobDamage)

    def _plan_ranges(self, request: BoundScan, task_bytes: int | None) -> Iterator[KeyRange]:
        """Return ranges of keys of the column family that is read."""
        return self._plan_version_ranges(request, task_bytes, self.version, KeyRange)

    def _plan_version_ranges(
        self, request: BoundScan, task_bytes: int | None, version: DatabaseVersion, kind: type[KeyRange]
    ) -> Iterator[KeyRange]:
        """Yield ranges of keys of about `task_bytes` of tables, or of `TASK_BYTES` that begin where tables do."""
        cuts = self._choose_cuts(version, task_bytes) if version.bytewise else iter(())
        waiting = deque(sorted(enumerate(version.tables), key=lambda numbered: numbered[1].smallest))
        overlapping: dict[int, LiveTable] = {}
        log_bytes = sum(file.size for file in version.logs)
        shared: SharedFiles | None = None
        low: bytes | None = b""
        while low is not None:
            high = next(cuts, None)
            while waiting and (high is None or waiting[0][1].smallest < high):
                overlapping.update([waiting.popleft()])
            overlapping = {number: table for number, table in overlapping.items() if table.end > low}
            tables = tuple(table for _, table in sorted(overlapping.items(), key=itemgetter(0)))
            size = log_bytes + sum(table.file.size for table in tables)
            if low or high is not None:
                shared = SharedFiles(tables, shared)
            yield kind(*request, version.path, size, version, tables, low, high, shared)
            low = high

    def _choose_cuts(self, version: DatabaseVersion, task_bytes: int | None) -> Iterator[bytes]:
        """Yield keys that ranges begin with."""
        min_bytes = task_bytes or TASK_BYTES
        # Tables of level 0 may each hold keys from everywhere: to begin where they do divides nothing.
        deeper = [table for table in version.tables if table.level]
        large = [table for table in version.tables if not table.level and task_bytes and table.file.size > min_bytes]
        gathered, last = 0, b""
        for key, size in self._plan_pieces(version, [*deeper, *large] or version.tables, task_bytes):
            if gathered >= min_bytes and key > last:
                yield key
                gathered, last = 0, key
            gathered += size

    def _plan_pieces(
        self, version: DatabaseVersion, tables: Iterable[LiveTable], task_bytes: int | None
    ) -> Iterator[tuple[bytes, int]]:
        """Yield keys where tables, or pieces of those that are larger than a task, may be cut, and bytes from there."""
        pieces: list[tuple[bytes, int]] = []
        for table in sorted(tables, key=lambda table: table.smallest):
            while pieces and pieces[0][0] <= table.smallest:
                yield heapq.heappop(pieces)
            inner: list[tuple[bytes, int]] = []
            if task_bytes and table.file.size > task_bytes and not table.part:
                inner = self._split_table(version, table, task_bytes // _PIECES_OF_TASK)
            for piece in inner or [(table.smallest, table.file.size)]:
                heapq.heappush(pieces, piece)
        yield from sorted(pieces)

    def _split_table(self, version: DatabaseVersion, table: LiveTable, min_bytes: int) -> list[tuple[bytes, int]]:
        """Return the pieces of a table between separators of its index; nothing where there is no index to rely on."""
        scan = Scan(options=version.make_table_options(self.scan.options), storage=self.scan.storage)
        with contextlib.suppress(DiskError, FileNotFoundError):  # a read says so
            table_with_index = read_table_map(table.file, scan)
            if table_with_index is None or table_with_index.bounds is None:
                return []
            offsets = table_with_index.handles["offset"]
            offsets = offsets[offsets < table.file.size].astype(np.int64)
            if not len(offsets):
                return []
            _, blocks = np.unique(offsets // max(min_bytes, 1), return_index=True)
            index = BoundsReader(table_with_index.bounds)
            keys = [table.smallest, *(index.read_separator(int(block) - 1) for block in blocks[1:])]
            sizes = np.diff(offsets[blocks], append=table.file.size)
            return [(max(key, table.smallest), int(size)) for key, size in zip(keys, sizes, strict=True)]
        return []

    def _plan_entries(self, request: BoundScan, task_bytes: int | None) -> Iterator[KeyRange]:
        """Yield the ranges, and the orphans that are asked for."""
        yield from self._plan_ranges(request, task_bytes)
        for file in self._orphans:
            yield Orphan.of(request, self.version, file)

    @property
    def _orphans(self) -> list[File]:
        """Tables and logs that the MANIFEST does not name, where they are asked for."""
        return [file for file in self.version.dead if not BLOB_NAME.match(file.name)] if self._has_orphans else []

    @property
    def _has_orphans(self) -> bool:
        """Whether they are asked for."""
        return "orphans" in self.scan.options.salvage

    views: ClassVar = {
        **dict.fromkeys(("rows", "live"), View(lambda self: self._add_stamp(STATE_SCHEMA), _plan_ranges)),
        "all": View(_make_history_schema, _plan_entries),
        "damage": View(DAMAGE_SCHEMA, _plan_checks),
    }

    def report_files(self, request: BoundScan, verification: Verification) -> Iterator[FileReport]:
        """Return the MANIFEST with the rows of the view, then every other file, which have none."""
        findings, task_bytes = verification.findings, verification.task_bytes
        if self.scan.view == "damage":
            findings = ()
        elif findings is None:
            other_versions = [version for version in self.versions.values() if version is not self.version]
            planned: list[Iterable[Fragment]] = [plan(self, request, task_bytes)]
            planned += [self._plan_blob_checks(request, task_bytes, version) for version in other_versions]
            parts = itertools.chain.from_iterable(planned)
            findings = (part.scan_into(Findings("skip", drained=verification.lists_all, intact={})) for part in parts)
        return self._make_reports(request, findings, verification)

    def _make_reports(
        self, request: BoundScan, read: Iterable[Findings], verification: Verification
    ) -> Iterator[FileReport]:
        every = verification.lists_all
        rows, notes = 0, Counter[str]()
        lost_values: dict[str, Findings] = {}
        intact: dict[str, Account] = {}
        for file_findings in read:
            rows += file_findings.rows
            notes += file_findings.notes
            intact |= file_findings.intact or {}
            for damage in file_findings.damages:
                if self.version.is_lost_value(damage):
                    lost_values.setdefault(damage.path, Findings("skip", drained=every)).add_damage(damage)
        checks: dict[str, list[Fragment]] = {}
        for check in self._plan_file_checks(request):
            checks.setdefault(check.path, []).append(check)
        sizes = {file.path: file.size for file in self.files}
        for fragment in self._plan_files(request):
            if fragment.path in intact:
                tail = Tail(TailStatus.CLEAN, fragment.size, 0)
                file_findings = Findings("skip", account=intact[fragment.path], tail=tail)
            else:
                file_findings = fragment.inspect(every=every)
            file_findings.rows, rows = rows, 0  # the first file has them all
            file_findings.notes, notes = file_findings.notes + notes, Counter()
            value_findings = [lost_values.pop(fragment.path)] if fragment.path in lost_values else []
            value_findings += [check.inspect(every=every) for check in checks.pop(fragment.path, ())]
            yield FileReport.of(fragment.path, sizes.get(fragment.path, 0), [file_findings, *value_findings])
            if verification.advance is not None:
                verification.advance(fragment.size)
        for path, of_file in checks.items():
            all_of_file = Findings("skip", account=Account(header=of_file[0].size))
            yield FileReport.of(
                path, of_file[0].size, [all_of_file, *(check.inspect(every=every) for check in of_file)]
            )
        for path, values in lost_values.items():  # files that are not there
            yield FileReport.of(path, 0, [values])
        confirm_files(self.scan.storage)

    def _plan_files(self, request: BoundScan) -> Iterator[Fragment]:
        """Yield each file of all column families as a whole, and what is not there."""
        yield from self._plan_metadata_files(request)
        versions = self.versions.values()
        for version in versions:
            scan = replace(request.scan, options=version.make_entry_options(self.scan.options))
            tables: dict[str, list[LiveTable]] = {}
            for table in version.tables:
                tables.setdefault(table.file.path, []).append(table)
            for live in tables.values():
                judged = tuple(live) if version.bytewise and not any(table.virtual for table in live) else ()
                place = (live[0].file, scan, request.projection)
                yield JudgedTable.cover_file(*place, live=judged, sequence=live[0].sequence)
        scan = replace(request.scan, options=self.version.make_entry_options(self.scan.options))
        for file in (file for file in self._orphans if TABLE_NAME.match(file.name)):
            yield JudgedTable.cover_file(file, scan, request.projection)
        logs = max((version.logs for version in versions), key=len)  # a family needs all that follow its first one
        prior = {file.path: file for version in versions for file in version.prior if file not in logs}
        orphans = [file for file in self._orphans if LOG_NAME.match(file.name)]
        yield from self._plan_writes(request, [*(prior[path] for path in sorted(prior)), *logs, *orphans])
        for blobs in {blobs.file.path: blobs for version in versions for blobs in version.blobs.values()}.values():
            yield BlobParts(*request, blobs.file.path, blobs.file.size, blobs)

    def _plan_metadata_files(self, request: BoundScan) -> Iterator[Fragment]:
        """Yield the MANIFEST that is read; where something is missing, also what should name it, and the others."""
        faults: dict[str, list[Damage]] = {}
        listed = [damage for manifest in self.metadata.read for damage in manifest.findings.damages]
        for fault in dict.fromkeys(fault for version in self.versions.values() for fault in version.faults):
            if fault not in listed:
                faults.setdefault(fault.path, []).append(fault)
        read_manifest = self.metadata.manifest
        for manifest in sorted(self.metadata.read, key=lambda manifest: manifest is not read_manifest):
            path, size = manifest.file.path, manifest.file.size
            yield MetadataFile(*request, path, size, manifest.findings, tuple(faults.pop(path, ())))
        read = {manifest.file.path for manifest in self.metadata.read}
        for file in self.files if self.version.evidence else ():
            if file.path not in read and not _DATA_NAMES.match(file.name):
                file_findings = Findings("skip", account=Account(header=file.size))
                yield MetadataFile(*request, file.path, file.size, file_findings, tuple(faults.pop(file.path, ())))
        present_paths = {file.path for file in self.files}
        for fault in (fault for path in faults for fault in faults[path] if path not in present_paths):
            yield MissingFile(*request, fault.path, 0, fault)

    def _plan_writes(self, request: BoundScan, logs: Iterable[File]) -> Iterator[WriteRange]:
        """Yield the operations of logs."""
        scan = replace(request.scan, options=LogReadOptions(verify_checksums=self.scan.options.verify_checksums))
        for file in logs:
            yield WriteRange.cover_file(file, scan, request.projection, self.version.dialect, numbered=True)

    def skipped_files(self, request: BoundScan) -> list[Skipped]:
        """Return tables, logs and blob files that the database has done with, or that it does not name yet."""
        orphans = self._orphans
        unread = [file for file in self.version.dead if file not in orphans]
        skipped = map_all(unread, self._describe_skipped, request.scan.threads)
        return [*skipped, *(Skipped(file.path, "of another backup", file.size) for file in self._other_backups)]

    def _describe_skipped(self, file: File) -> Skipped:
        manifest = self.metadata.manifest
        is_table = TABLE_NAME.match(file.name) is not None
        if manifest is None or not is_table or not manifest.is_later(parse_number(file)):
            return Skipped(file.path, "the MANIFEST does not name it any more", file.size)
        missed = self._may_hold_rows(file)
        content = "may hold rows that are in no other file" if missed else "holds nothing that is not in others"
        reason = f"it was written after the MANIFEST's last edit, and {content}"
        return Skipped(file.path, reason, file.size, missed=missed)

    def _may_hold_rows(self, file: File) -> bool:
        """Return whether a table that nothing names has operations later than those of the files that are read.

        An engine that was killed leaves tables which it has begun, or not yet named: what is in them is in others, too.
        Of RocksDB's tables, these entries have no number that a compaction to the last level writes, or a table that is
        to be taken in has, which says so.
        """
        storage, manifest = self.scan.storage, self.metadata.manifest
        options = self.version.make_table_options(self.scan.options)
        table = read_table_map(file, Scan(options=options, storage=storage))
        is_own = table is not None and table.footer.dialect == "rocksdb" and COMPARATOR in table.properties
        is_compacted = is_own and table is not None and EXTERNAL_VERSION not in table.properties
        last = find_last_sequence(read_entries(file, options, storage, [SEQUENCE]), is_compacted=is_compacted)
        last_named = (manifest.last_sequence if manifest is not None else None) or 0
        return last < 0 or last > max(self._last_of_logs, last_named)

    @cached_property
    def _last_of_logs(self) -> int:
        """The highest sequence number in the logs."""
        scan = Scan(view="writes", options=LogReadOptions(), storage=self.scan.storage)
        schema = pa.schema([WRITES_SCHEMA.field("sequence")])
        request = BoundScan(scan, Projection.of(schema, scan))
        batches = (
            log_range.decode(schema, Findings("skip")) for log_range in self._plan_writes(request, self.version.logs)
        )
        return max((find_last_sequence(batches_of_log) for batches_of_log in batches), default=0)

    def find_committed_end(self, request: BoundScan, file: File, position: int) -> int:
        """Refuse: what a database answers changes in other ways than by rows that are added.

        Raises:
            OptionError: Always.
        """
        raise make_follow_error(self, ": name leveldb_log as the format, to follow its logs")

    def list_fragments(self, request: BoundScan, ranges: Sequence[Range]) -> list[Fragment]:
        """Refuse as `find_committed_end` does."""
        raise make_follow_error(self, ": name leveldb_log as the format, to follow its logs")

    def make_field_parser(self, file: File, source: Source) -> FieldParser:
        """Return fragments of logs and MANIFESTs, blocks of tables."""
        name = posixpath.basename(file.path)
        if TABLE_NAME.match(name):
            table = MapReader(file, source, self.version.make_table_options(self.scan.options)).read()
            return lambda offset: table_fields.parse_parts(source, offset, table)
        if LOG_NAME.match(name) or MANIFEST_NAME.match(name):
            head = read_head(
                source.read_window(0, PROBE_BYTES).tobytes(),
                file,
                self.version.dialect,
                self.scan.storage,
                numbered=True,
            )
            edits = MANIFEST_NAME.match(name) is not None
            return lambda offset: log_fields.parse_parts(source, offset, head, edits=edits)
        return lambda offset: iter(())

    def draw_pictures(self, request: BoundScan) -> Iterator[Picture]:
        """Return levels, ranges of keys, live and dead bytes."""
        from sawlog.leveldb.database.pictures import COUNTED

        options = replace(self.scan.options, salvage=())
        scan = replace(
            request.scan, view="all", options=options, columns=COUNTED, filters=(), expression=None, on_damage="skip"
        )
        full_contents = type(self)(self.format, self.files, scan)
        fragments = plan_fragments(full_contents, bind_scan(full_contents, scan), None)
        charts = self._make_charts()
        for batch in (batch for fragment in fragments for batch in fragment.to_batches(Findings("skip"))):
            charts.add_batch(batch)
        return charts.draw_pictures()

    def make_counting(self, request: BoundScan) -> Counting | None:
        """Return the counting of all entries, where their values are in tables and logs."""
        scan = request.scan
        has_other_values = self.version.has_blob_files or scan.filters or scan.expression is not None
        return self._make_charts() if scan.view in _ENTRY_VIEWS and not has_other_values else None

    def _make_charts(self) -> Charts:
        from sawlog.leveldb.database.pictures import Charts

        return Charts(self.version)

    def facts(self, request: BoundScan) -> dict[str, Any]:
        """Return the comparator, how many tables and logs are alive, and what filters on the key spare of tables."""
        version = self.version
        levels = sorted({table.level for table in version.tables})
        tables = {f"tables of level {n}": sum(table.level == n for table in version.tables) for n in levels}
        facts = {"comparator": version.comparator, **tables, "logs": len(version.logs)}
        if version.faults:
            facts["incomplete"] = "; ".join(
                f"{fault.path}: {fault.detail}" for fault in version.faults[:_MAX_SHOWN_FAULTS]
            )
        if version.evidence:
            facts["read by"] = version.evidence
        if decoders := self.find_decoders():
            facts["decoded by"] = ", ".join(f"--view {name}" for name in decoders)
        interval = find_key_interval(request.projection)
        if version.bytewise and self.scan.view != "damage" and interval != EVERY_KEY:
            scan = replace(self.scan, options=version.make_entry_options(self.scan.options))
            maps = (read_table_map(table.file, scan) for table in version.tables)
            facts[SPARED] = describe_spared_blocks(maps, interval)
        return facts

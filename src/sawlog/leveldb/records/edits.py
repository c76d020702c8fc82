"""The views `edits` and `files`: what MANIFEST files say, edit by edit, and which files live after the last one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import pyarrow as pa

from sawlog.arrow import make_batch_from_rows
from sawlog.format.capabilities import make_follow_error
from sawlog.format.contract import FILE_COLUMN, OFFSET_COLUMN, BoundScan, Format, Scan, View
from sawlog.format.damage import UNSUPPORTED, Damage, Findings, Skipped
from sawlog.leveldb.log.dataset import LogContents
from sawlog.leveldb.log.head import Pointer, read_pointer, sort_manifests
from sawlog.leveldb.log.layout import POINTER_NAME, RECORD_COLUMN
from sawlog.leveldb.log.walk import END_COLUMN, RECORDS_SCHEMA, LogRange
from sawlog.leveldb.records import layout
from sawlog.leveldb.records.edit import EDITS_SCHEMA, FILE_FIELDS, EditError, UnknownFieldError, parse_edit
from sawlog.leveldb.records.writes import report_record
from sawlog.storage import File, Storage

_FILES_SCHEMA = pa.schema(
    [pa.field("column_family", pa.int64(), nullable=False), pa.field("column_family_name", pa.string()), *FILE_FIELDS]
)
"""One row per live table file, ordered by column family, level and file number."""


@dataclass(frozen=True)
class EditRange(LogRange):
    """The version edits of a MANIFEST."""

    def decode(self, schema: pa.Schema, findings: Findings) -> Iterator[pa.RecordBatch]:
        """Yield the edits of a range. A record that is no version edit is damage; one with a newer field is not."""
        for edits, failed in self.read_edits(findings):
            rows = [{**edit, FILE_COLUMN: self.path, OFFSET_COLUMN: offset} for offset, edit in edits]
            findings.rows += len(rows)
            yield make_batch_from_rows(rows, schema) if schema.names else _make_empty_batch()
            if failed is not None:
                report_record(findings, failed)

    def read_edits(self, findings: Findings) -> Iterator[tuple[list[tuple[int, dict[str, Any]]], Damage | None]]:
        """Yield edits with the offsets of their records, up to and with the next damage inside a record."""
        for records in LogRange.decode(self, RECORDS_SCHEMA, findings):
            findings.rows -= records.num_rows
            edits: list[tuple[int, dict[str, Any]]] = []
            columns = (records.column(name).to_pylist() for name in (RECORD_COLUMN, OFFSET_COLUMN, END_COLUMN))
            for record, offset, end in zip(*columns, strict=True):
                try:
                    edits.append((offset, parse_edit(record, self.head.dialect)))
                except EditError as error:
                    newer = isinstance(error, UnknownFieldError)
                    kind = UNSUPPORTED if newer else layout.EDIT_DAMAGE
                    explanation = f"a version edit with {error}, which this version of sawlog does not know"
                    detail = explanation if newer else f"expected a version edit: {error}"
                    yield edits, Damage(self.path, offset, end - offset, kind, detail)
                    edits = []
            yield edits, None


@dataclass(frozen=True)
class LiveFiles(EditRange):
    """The files that live after the last edit of a MANIFEST."""

    def decode(self, schema: pa.Schema, findings: Findings) -> Iterator[pa.RecordBatch]:
        version = VersionState()
        for edits, failed in self.read_edits(findings):
            for offset, edit in edits:
                version.apply(offset, edit)
            if failed is not None:
                report_record(findings, failed)
        rows = [{**row, FILE_COLUMN: self.path} for row in version.make_rows()]
        findings.rows += len(rows)
        yield make_batch_from_rows(rows, schema) if schema.names else _make_empty_batch()


@dataclass
class VersionState:
    """The state that edits add up to."""

    files: dict[tuple[int, int, int], dict[str, Any]] = field(default_factory=dict)
    families: dict[int, str] = field(default_factory=lambda: {0: "default"})
    group: list[tuple[int, dict[str, Any]]] = field(default_factory=list)

    def apply(self, offset: int, edit: dict[str, Any]) -> None:
        """Take in the next edit. Edits of an atomic group count when the last of them is there."""
        self.group.append((offset, edit))
        if not edit.get("atomic_group_remaining"):
            for place, member in self.group:
                self._apply(place, member)
            self.group.clear()

    def _apply(self, offset: int, edit: dict[str, Any]) -> None:
        family = edit["column_family"]
        if edit.get("column_family_added") is not None:
            self.families[family] = edit["column_family_added"]
        if edit["column_family_dropped"]:
            self.families.pop(family, None)
            for place in [place for place in self.files if place[0] == family]:
                del self.files[place]
        for entry in edit["deleted_files"]:
            self.files.pop((family, entry["level"], entry["file"]), None)
        for entry in edit["new_files"]:
            self.files[family, entry["level"], entry["file"]] = {**entry, OFFSET_COLUMN: offset}

    def make_rows(self) -> list[dict[str, Any]]:
        """Return the live files as rows of `_FILES_SCHEMA`, with the offsets of the edits that added them."""
        return [
            {"column_family": place[0], "column_family_name": self.families.get(place[0]), **entry}
            for place, entry in sorted(self.files.items())
        ]


class EditsContents(LogContents):
    """MANIFEST files; of a database directory, the live one: see `read_pointer`."""

    range_type: ClassVar[type[LogRange]] = EditRange
    views: ClassVar = {"edits": View(EDITS_SCHEMA, LogContents._plan_ranges)}

    def __init__(self, format: Format, files: Sequence[File], scan: Scan) -> None:
        self._pointers: list[Pointer] = []
        super().__init__(format, self._find_live(files, scan.storage), scan)

    def skipped_files(self, request: BoundScan) -> list[Skipped]:
        """Return files that are not read, and the MANIFESTs that are named and not there: others are read instead."""
        faults = [pointer.fault for pointer in self._pointers if pointer.fault is not None]
        gaps = [Skipped(fault.path, f"{fault.kind}: {fault.detail}", 0, missed=True) for fault in faults]
        return [*super().skipped_files(request), *gaps]

    def _find_live(self, files: Sequence[File], storage: Storage) -> list[File]:
        """Return the MANIFEST files that the user has named, and of each directory the live one."""
        manifests = [file for file in files if file.explicit]
        directories: dict[str, list[File]] = {}
        for file in files:
            if not file.explicit:
                directories.setdefault(file.directory, []).append(file)
        for directory, candidates in directories.items():
            siblings = storage.list_files(directory or ".", fresh=False, names=POINTER_NAME)
            pointer = read_pointer(directory, siblings, storage)
            self._pointers.append(pointer)
            named = [file for file in candidates if file.name == pointer.name]
            manifests.append((named or sort_manifests(candidates))[0])
        return manifests


class FilesContents(EditsContents):
    """The live files of databases."""

    range_type: ClassVar[type[LogRange]] = LiveFiles
    views: ClassVar = {
        "files": View(
            _FILES_SCHEMA,  # of whole files: only all edits together say which files live
            lambda self, request, _: (
                log_range for file in self.files for log_range in self._cut_log(request, file, 0, file.size, True, None)
            ),
        )
    }

    def find_committed_end(self, request: BoundScan, file: File, position: int) -> int:
        """Refuse: the files that live are no stream.

        Raises:
            OptionError: Always.
        """
        raise make_follow_error(self)


def _make_empty_batch() -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([], schema=pa.schema([]))

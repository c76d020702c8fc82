"""A MANIFEST read to its end: what its edits add up to, and whether they are all that an engine needs."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

from sawlog.errors import UnsupportedError
from sawlog.format.damage import CUT_METADATA, UNSUPPORTED, Damage, Findings, Tail
from sawlog.format.scan import Projection, Scan
from sawlog.leveldb.database.layout import MANIFEST_NAME, SETTING_NAME
from sawlog.leveldb.log.head import Pointer, read_pointer, resolve_dialect, sort_manifests
from sawlog.leveldb.log.layout import Dialect
from sawlog.leveldb.options import LogReadOptions
from sawlog.leveldb.records.edit import EDITS_SCHEMA
from sawlog.leveldb.records.edits import EditRange, VersionState
from sawlog.leveldb.records.writes import report_record
from sawlog.storage import File, Storage

_REQUIRED = ("log_number", "next_file", "last_sequence")
"""Columns of edits that LevelDB and RocksDB refuse to do without."""
_REQUIRED_BY_PEBBLE = ("next_file",)
"""What is asked for of Pebble's edits. It is a rule of sawlog's: every MANIFEST that Pebble has made says it in its
first edit, and recent versions of Pebble open an empty one as an empty database all the same."""


class Manifest:
    """The sum of the edits of a MANIFEST, for all column families.

    Args:
        file: The MANIFEST.

    Attributes:
        version: Families and tables.
        comparators: The name of the order of keys of each family.
        stripped: The families whose tables have no timestamps, even if the order of their keys has them.
        logs: The number of the oldest log that each family needs.
        previous: The number of a log before these that is alive; 0 for none.
        min_log: The number of the oldest log that RocksDB keeps for transactions that are prepared.
        wals: The sizes of logs that RocksDB keeps track of, by number; `None` where it does not say.
        blobs: The family and the kind of each blob file.
        numbers: The file that each of Pebble's blob files is now.
        backed: The sizes of files that several of Pebble's tables are parts of, by number.
        has_blob_files: Whether values have ever been in blob files.
        next_file: No file that an edit names has this number, or a larger one; `None` where no edit says it.
        last_sequence: The last sequence number that had been taken; `None` where no edit says it.
        leveled: Whether it has what only RocksDB and Pebble write.
        findings: What was found while it was read: its account, damage and tail.
    """

    def __init__(self, file: File) -> None:
        self.file = file
        self.version = VersionState()
        self.comparators: dict[int, str] = {}
        self.stripped: set[int] = set()
        self.logs: dict[int, int] = {}
        self.previous = self.min_log = 0
        self.wals: dict[int, int | None] = {}
        self.blobs: dict[int, tuple[int, Literal["rocksdb", "pebble"]]] = {}
        self.numbers: dict[int, int] = {}
        self.backed: dict[int, int] = {}
        self.has_blob_files = False
        self.next_file: int | None = None
        self.last_sequence: int | None = None
        self.leveled = False
        self.findings = Findings("skip", drained=True)

    @classmethod
    def read(cls, file: File, dialect: Dialect | Literal["auto"], storage: Storage) -> Manifest:
        """Take in all edits of a file that can be read."""
        manifest = cls(file)
        findings = manifest.findings
        scan = Scan(view="edits", options=LogReadOptions(), storage=storage)
        for edits, failed in EditRange.cover_file(file, scan, _make_projection(), dialect).read_edits(findings):
            for offset, edit in edits:
                manifest.apply(offset, edit)
            if failed is not None:
                report_record(findings, failed)
        account = findings.account
        account.header, account.record = account.header + account.record, 0
        return manifest

    def apply(self, offset: int, edit: dict[str, Any]) -> None:
        """Take in the next edit."""
        self.version.apply(offset, edit)
        family = edit["column_family"]
        if edit.get("comparator"):
            self.comparators[family] = edit["comparator"]
            if edit.get("timestamps_persisted") is False:
                self.stripped.add(family)
        if "log_number" in edit:
            self.logs[family] = edit["log_number"]
        self.previous = edit.get("previous_log_number", self.previous)
        self.min_log = max(self.min_log, edit.get("min_log_to_keep") or 0)
        self.next_file = edit.get("next_file", self.next_file)
        self.last_sequence = edit.get("last_sequence", self.last_sequence)
        self.wals.update({log["log"]: log.get("synced_size") for log in edit["wals_added"]})
        if (first := edit.get("wals_deleted_before")) is not None:
            self.wals = {number: size for number, size in self.wals.items() if number >= first}
        self.blobs.update({file["file"]: (family, "rocksdb") for file in edit["new_blob_files"]})
        self.blobs.update({file["file"]: (family, "pebble") for file in edit["new_value_files"]})
        self.backed.update({file["file"]: file["size"] for file in edit["new_backing_files"]})
        self.numbers.update({file["blob"]: file["file"] for file in edit["new_value_files"]})
        self.has_blob_files = self.has_blob_files or bool(self.blobs)
        for file in edit["removed_value_files"]:
            self.blobs.pop(file["file"], None)
        self.leveled = self.leveled or "db_id" in edit or "max_column_family" in edit or "min_log_to_keep" in edit
        self.leveled = self.leveled or any("smallest_sequence" in file for file in edit["new_files"])

    @property
    def tables(self) -> set[int]:
        """The numbers of all live tables, and of the files that some of them are parts of."""
        rows = self.version.make_rows()
        return {row[name] for row in rows for name in ("file", "backing_file") if row.get(name) is not None}

    @property
    def oldest_log(self) -> int:
        """The number of the oldest log that any family needs."""
        return min((self.logs.get(family, 0) for family in self.version.families), default=0)

    def needs(self, number: int, first: int) -> bool:
        """Return whether a log is alive for a family whose first log is that."""
        return number >= first or bool(self.previous and number == self.previous)

    def is_later(self, number: int) -> bool:
        """Return whether a file with this number was made after the last edit."""
        return self.next_file is None or number >= self.next_file

    @property
    def torn(self) -> Tail | None:
        """The unfinished end, if there is one."""
        tail = self.findings.tail
        return tail if tail is not None and tail.unfinished else None

    def find_fault(self, dialect: Dialect | Literal["auto"]) -> Damage | None:
        """Return why the MANIFEST does not say all that it was to say; `None` where it does."""
        path = self.file.path
        if self.findings.damages:
            first = self.findings.damages[0]
            if first.kind == UNSUPPORTED:
                return first
            return Damage(path, first.offset, 0, CUT_METADATA, f"the MANIFEST is damaged: {first.kind}: {first.detail}")
        if lacking := self._find_lacking(dialect):
            detail = f"no edit of the MANIFEST says {', '.join(lacking)}: it is cut, or not whole yet"
            return Damage(path, self.file.size, 0, CUT_METADATA, detail)
        if self.torn is not None:
            detail = f"the MANIFEST is cut in its last edit, of which {self.torn.length} bytes are there"
            return Damage(path, self.torn.offset, 0, CUT_METADATA, detail)
        if self.version.group:
            detail = "the MANIFEST ends within a group of edits that belong together"
            return Damage(path, self.version.group[0][0], 0, CUT_METADATA, detail)
        return None

    def is_usable(self, dialect: Dialect | Literal["auto"]) -> bool:
        """Return whether an engine would take it, as it takes one that is cut after all that it requires."""
        return not self.findings.damages and not self._find_lacking(dialect)

    def _find_lacking(self, dialect: Dialect | Literal["auto"]) -> list[str]:
        presence = {
            "log_number": bool(self.logs),
            "next_file": self.next_file is not None,
            "last_sequence": self.last_sequence is not None,
        }
        return [name for name in (_REQUIRED_BY_PEBBLE if dialect == "pebble" else _REQUIRED) if not presence[name]]


@cache
def _make_projection() -> Projection:
    """Return all columns of edits."""
    return Projection.of(EDITS_SCHEMA, Scan(view="edits", options=LogReadOptions()))


@dataclass(frozen=True, slots=True)
class DatabaseMetadata:
    """The metadata of a database, as far as it is whole.

    Attributes:
        directory: The directory.
        dialect: Whose logs it has, as far as the files in it say.
        pointer: What names the MANIFEST.
        manifest: The MANIFEST that is believed; `None`: there is none to be believed.
        read: All that were read, that one included.
        faults: What is missing of what names the version: the database is incomplete. Damage of these files, too.
        settings: Files of the directory that say whose it is, and what it holds besides: see `SETTING_NAME`.
    """

    directory: str
    dialect: Dialect | Literal["auto"]
    pointer: Pointer
    manifest: Manifest | None
    read: tuple[Manifest, ...]
    faults: tuple[Damage, ...]
    settings: tuple[File, ...]


def read_metadata(files: Sequence[File], storage: Storage) -> DatabaseMetadata:
    """Return the MANIFEST that is named, if it is there and whole; otherwise the newest one that is, if any."""
    directory = min((file.directory for file in files), key=len)  # RocksDB's archive is in it
    pointer = read_pointer(directory, files, storage)
    settings: list[File] = []
    with contextlib.suppress(FileNotFoundError, NotADirectoryError, PermissionError):
        settings = storage.list_files(directory or ".", fresh=False, names=SETTING_NAME)
    dialect = resolve_dialect(File(pointer.path, 0), "auto", storage, settings)
    manifests = {file.name: file for file in files if MANIFEST_NAME.match(file.name)}
    faults = [] if pointer.fault is None else [pointer.fault]
    read: list[Manifest] = []
    if pointer.name in manifests:
        read.append(Manifest.read(manifests[pointer.name], dialect, storage))
        if (fault := read[0].find_fault(dialect)) is not None:
            faults.append(fault)
            if fault.kind == UNSUPPORTED:
                advice = "which files are alive is not known without it: read tables and logs one by one"
                raise UnsupportedError(fault, advice)
    if not read or not read[0].is_usable(dialect):
        for file in sort_manifests(manifests.values()):
            if file.name != pointer.name:
                read.append(Manifest.read(file, dialect, storage))
                if read[-1].find_fault(dialect) is None:
                    break
    faults += (damage for manifest in read for damage in manifest.findings.damages if damage not in faults)
    intact = [manifest for manifest in read if manifest.find_fault(dialect) is None]
    usable = next((manifest for manifest in (*read[:1], *intact, *read) if manifest.is_usable(dialect)), None)
    return DatabaseMetadata(directory, dialect, pointer, usable, tuple(read), tuple(faults), tuple(settings))

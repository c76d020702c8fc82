"""Which files a database is made of: what CURRENT and the MANIFEST that it names say."""

from __future__ import annotations

import posixpath
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from sawlog.arrow import scalar_of
from sawlog.damage import UNSUPPORTED, Damage, Findings
from sawlog.errors import DamageError, SawlogError, UnsupportedError
from sawlog.leveldb.columns import KEY, OPERATION, SCHEMAS, VALUE, binary_parts
from sawlog.leveldb.database.layout import (
    BLOB_DIRECTORY,
    BYTEWISE,
    INGESTS,
    MANIFEST_NAME,
)
from sawlog.leveldb.database.places import Absent, Stored, stored_files
from sawlog.leveldb.log.head import live_manifest, resolve_dialect
from sawlog.leveldb.log.layout import Dialect
from sawlog.leveldb.options import DatabaseReadOptions, LogReadOptions, TableReadOptions
from sawlog.leveldb.records.edit import EDITS_SCHEMA
from sawlog.leveldb.records.edits import EditRange, Version
from sawlog.leveldb.records.layout import MAX_SEQUENCE
from sawlog.leveldb.records.writes import WRITES_SCHEMA, WriteRange
from sawlog.leveldb.table.layout import STAMP_SUFFIX, STAMP_WIDTH
from sawlog.leveldb.table.rows import TableRange
from sawlog.scan import Projection, Scan
from sawlog.storage import File, Storage
from sawlog.varints import decode_varints

_INGESTS = pa.schema([WRITES_SCHEMA.field(name) for name in ("sequence", "operation", "key", "value")])


@dataclass(frozen=True, slots=True)
class LiveTable:
    """A table that the MANIFEST says is alive.

    Attributes:
        file: The table.
        level: Its level; tables of level 0 may overlap, those of others do not.
        smallest: Its first user key.
        end: The user key after its last one, and after the first one in any case.
        part: Whether it is a part of a file; what else the file holds belongs to others, or to nobody any more.
        blobs: The numbers of Pebble's blob files that its entries lead to, in the order in which they count them.
        reported: Of several parts of a file: from which key on, and before which, it reports what is wrong there.
        sequence: The sequence number of all of its entries, which those of a table that was ingested do not have
            themselves; `None` where there are several.
    """

    file: File
    level: int
    smallest: bytes
    end: bytes
    part: bool = False
    blobs: tuple[int, ...] = ()
    reported: tuple[bytes, bytes | None] = (b"", None)
    sequence: int | None = None


@dataclass(frozen=True, slots=True)
class LiveBlobs:
    """A blob file that the MANIFEST names, or that is in the directory of a stacked BlobDB, and that is there.

    Attributes:
        file: The file.
        dialect: Whose it is.
        closed: Whether it must have an end: a stacked BlobDB goes on writing to those that it has.
    """

    file: File
    dialect: Literal["rocksdb", "pebble"]
    closed: bool = True


@dataclass(frozen=True, slots=True)
class DatabaseVersion:
    """The files of one column family, as the last version edit leaves them.

    Attributes:
        manifest: The MANIFEST.
        comparator: The name of the order of keys.
        family: The number of the column family.
        tables: Its live tables, by level and number.
        logs: The logs after them, by number; of a log in parts these, in order.
        dialect: Whose logs they are, as far as the files next to them say.
        missing: What is not there: live tables, and directories that have logs.
        dead: Tables, logs and blob files that are there and not alive, for no column family.
        apart: Whether values have ever been in blob files.
        blobs: Its blob files, by number.
        elsewhere: Files of the database that are not in its directory.
    """

    manifest: File
    comparator: str
    family: int
    tables: tuple[LiveTable, ...]
    logs: tuple[File, ...]
    dialect: Dialect | Literal["auto"]
    missing: tuple[Absent, ...]
    dead: tuple[File, ...]
    apart: bool
    blobs: Mapping[int, LiveBlobs]
    elsewhere: tuple[File, ...] = ()

    @property
    def bytewise(self) -> bool:
        """Whether keys are ordered by their bytes."""
        return self.comparator.removesuffix(STAMP_SUFFIX) in BYTEWISE

    @property
    def stamped(self) -> bool:
        """Whether keys end in timestamps, which order them where they are the same otherwise."""
        return self.comparator.endswith(STAMP_SUFFIX)

    def table_options(self, options: DatabaseReadOptions) -> TableReadOptions:
        """How its tables are read: in the order of its keys, which LevelDB's do not say."""
        return replace(options.of_tables, comparator=self.comparator)

    def entry_options(self, options: DatabaseReadOptions) -> TableReadOptions:
        """The same, with timestamps in a column of their own where keys have them."""
        return replace(self.table_options(options), keys="stamped" if self.stamped else "internal")


class _State:
    """The sum of the edits of a MANIFEST, for all column families.

    Attributes:
        version: Families and tables.
        comparators: The name of the order of keys of each family.
        logs: The number of the oldest log that each family needs.
        previous: The number of a log before these that is alive; 0 for none.
        blobs: The family and the kind of each blob file.
        numbers: The file that each of Pebble's blob files is now.
        apart: Whether values have ever been in blob files.
    """

    def __init__(self) -> None:
        self.version = Version()
        self.comparators: dict[int, str] = {}
        self.logs: dict[int, int] = {}
        self.previous = 0
        self.blobs: dict[int, tuple[int, Literal["rocksdb", "pebble"]]] = {}
        self.numbers: dict[int, int] = {}
        self.apart = False

    def apply(self, offset: int, edit: dict[str, Any]) -> None:
        """Take in the next edit."""
        self.version.apply(offset, edit)
        family = edit["column_family"]
        if edit.get("comparator"):
            self.comparators[family] = edit["comparator"]
        if "log_number" in edit:
            self.logs[family] = edit["log_number"]
        self.previous = edit.get("previous_log_number", self.previous)
        self.blobs.update({one["file"]: (family, "rocksdb") for one in edit["new_blob_files"]})
        self.blobs.update({one["file"]: (family, "pebble") for one in edit["new_value_files"]})
        self.numbers.update({one["blob"]: one["file"] for one in edit["new_value_files"]})
        self.apart = self.apart or bool(self.blobs)
        for one in edit["removed_value_files"]:
            self.blobs.pop(one["file"], None)

    @property
    def oldest(self) -> int:
        """The number of the oldest log that any family needs."""
        return min((self.logs.get(family, 0) for family in self.version.families), default=0)

    def needs(self, number: int, first: int) -> bool:
        """Whether a log is alive for a family whose first log is that."""
        return number >= first or bool(self.previous and number == self.previous)

    @property
    def tables(self) -> set[int]:
        """The numbers of all live tables, and of the files that some of them are parts of."""
        rows = self.version.rows()
        return {row["file"] for row in rows} | {row["backing_file"] for row in rows if row.get("backing_file")}


def read_versions(
    files: Sequence[File], storage: Storage, options: DatabaseReadOptions, shared: Sequence[File] = ()
) -> dict[str, DatabaseVersion]:
    """Return the column families of a database by name, as the MANIFEST that lives leaves them: see `live_manifest`.

    Raises:
        SawlogError: When there is none, or it is damaged.
    """
    manifest = _manifest(files, storage)
    scan = Scan(view="edits", options=LogReadOptions(), storage=storage)
    dialect = resolve_dialect(manifest, "auto", storage)
    whole = EditRange.whole(manifest, scan, Projection.of(EDITS_SCHEMA, scan), dialect)
    state = _State()
    for offset, edit in _edits(whole):
        state.apply(offset, edit)
    stored = stored_files(files, posixpath.dirname(manifest.path), state.oldest, options, storage, shared)
    names = dict(sorted(state.version.families.items()))
    return {name: _version(state, family, manifest, stored, dialect, storage) for family, name in names.items()}


def _version(
    state: _State,
    family: int,
    manifest: File,
    stored: Stored,
    dialect: Dialect | Literal["auto"],
    storage: Storage,
) -> DatabaseVersion:
    """Return one column family."""
    comparator = state.comparators.get(family, "")
    rows = [row for row in state.version.rows() if row["column_family"] == family]
    tables, missing = _tables(stored, manifest, rows, state.numbers, comparator)
    first, oldest, alive = state.logs.get(family, 0), state.oldest, state.tables
    logs = [file for number in sorted(stored.logs) if state.needs(number, first) for file in stored.parts(number)]
    dead = [file for number, file in stored.tables.items() if number not in alive]
    dead += [file for number in stored.logs if not state.needs(number, oldest) for file in stored.parts(number)]
    dead += [file for number, file in stored.blobs.items() if number not in state.blobs]
    blobs = {
        number: LiveBlobs(stored.blobs[number], whose)
        for number, (of, whose) in sorted(state.blobs.items())
        if number in stored.blobs and of == family
    }
    apart = state.apart
    for number, file in stored.blobs.items():
        if number not in state.blobs and posixpath.basename(posixpath.dirname(file.path)) == BLOB_DIRECTORY:
            dead.remove(file)
            blobs[number] = LiveBlobs(file, "rocksdb", closed=False)
            apart = True
    if dialect == "pebble":
        unnamed = {number: file for number, file in stored.tables.items() if number not in alive}
        for number, sequence, led in _ingested(logs, storage):
            if number in unnamed:
                dead.remove(unnamed[number])
                table = unnamed_table(unnamed.pop(number), sequence, storage, comparator)
                tables.append(replace(table, blobs=led))
                apart = apart or bool(led)
                for blob in set(led) & stored.blobs.keys() - blobs.keys():
                    dead.remove(stored.blobs[blob])
                    blobs[blob] = LiveBlobs(stored.blobs[blob], "pebble")
            elif number not in alive:
                missing.append(_missing_table(manifest, number, stored))
            alive.add(number)
    return DatabaseVersion(
        manifest=manifest,
        comparator=comparator,
        family=family,
        tables=tuple(tables),
        logs=tuple(logs),
        dialect=dialect,
        missing=(*stored.absent, *missing),
        dead=tuple(dead),
        apart=apart,
        blobs=blobs,
        elsewhere=tuple(stored.elsewhere),
    )


def _edits(whole: EditRange) -> Iterator[tuple[int, dict[str, Any]]]:
    """The edits of a MANIFEST: all of them, or it is refused."""
    try:
        for edits, failed in whole.edits(Findings("fail")):
            yield from edits
            if failed is not None:
                raise _refused(failed)
    except DamageError as error:
        raise _refused(error.damage) from error


def _refused(damage: Damage) -> SawlogError:
    if damage.kind == UNSUPPORTED:
        more = "; which files are alive is not known without it: read tables and logs one by one"
        return UnsupportedError(replace(damage, detail=damage.detail + more))
    return SawlogError(f"{damage}; a database is read by an intact MANIFEST only: read its tables and logs one by one")


def _manifest(files: Sequence[File], storage: Storage) -> File:
    manifests = [file for file in files if MANIFEST_NAME.match(file.name)]
    if not manifests:
        raise SawlogError(f"{files[0].path}: no MANIFEST next to it, which says what a database is made of")
    return live_manifest(manifests, files, storage)


def _tables(
    stored: Stored, manifest: File, rows: Sequence[dict[str, Any]], numbers: dict[int, int], comparator: str
) -> tuple[list[LiveTable], list[Absent]]:
    """Live tables, and those that are not there."""
    tables, missing = [], []
    stamp = STAMP_WIDTH if comparator.endswith(STAMP_SUFFIX) else 0
    for row in rows:
        backing = row.get("backing_file")
        number = row["file"] if backing is None else backing
        smallest, largest = row["smallest_key"][: -stamp or None], row["largest_key"][: -stamp or None]
        if (
            (backing is not None and comparator not in BYTEWISE)
            or row.get("synthetic_prefix")
            or row.get("synthetic_suffix")
        ):
            raise SawlogError(
                f"{manifest.path}: table {row['file']} is a part of table {number}, or has other keys than that one,"
                " in an order that only the database knows: read its tables and logs one by one"
            )
        # A largest key with the last sequence number is itself past the end of the table.
        end = largest if row["largest_key_sequence"] == MAX_SEQUENCE else largest + b"\0"
        end = max(end, smallest + b"\0")
        led = tuple(numbers.get(one["file"], one["file"]) for one in row.get("blob_references") or ())
        if number not in stored.tables:
            missing.append(_missing_table(manifest, number, stored, row.get("path_id") or 0))
        else:
            sequence = row.get("smallest_sequence") or None
            sequence = sequence if sequence == row.get("largest_sequence") else None
            part = backing is not None
            tables.append(LiveTable(stored.tables[number], row["level"], smallest, end, part, led, sequence=sequence))
    return _shared(tables), missing


def _missing_table(manifest: File, number: int, stored: Stored, path: int = 0) -> Absent:
    """A table that is neither in the directory nor in those that the caller names."""
    place = f", in number {path} of db_paths or cf_paths," if path else ""
    if (found := stored.objects.get(number)) is not None:
        place = f", {found.catalog} says that it is the object {found.name!r} in the remote storage {found.locator!r},"
    detail = (
        f"the MANIFEST names this table{place} and it is not there: its entries are missing, and older ones may appear"
        " that they would replace; if the database has tables in other directories, name these with paths="
    )
    return Absent(posixpath.join(posixpath.dirname(manifest.path), f"{number:06d}"), detail)


def _ingested(logs: Sequence[File], storage: Storage) -> Iterator[tuple[int, int, tuple[int, ...]]]:
    """Yield the tables that Pebble's logs take in: number, sequence number of all entries, and blob files."""
    scan = Scan(view="writes", options=LogReadOptions(), storage=storage)
    projection = Projection.of(_INGESTS, scan)
    for log in logs:
        whole = WriteRange.whole(log, scan, projection, "pebble", numbered=True)
        for batch in whole.decode(_INGESTS, Findings("skip")):
            names, keys, sequences = (batch.column(name) for name in ("operation", "key", "sequence"))
            _, ends = binary_parts(names)
            lengths = np.isin(np.diff(ends), [len(name) for name in INGESTS])  # `info` waits for no imports
            for row in np.flatnonzero(lengths).tolist():
                if names[row].as_py() in INGESTS:
                    numbers = list(decode_varints(keys[row].as_py()))
                    led = tuple(decode_varints(batch.column("value")[row].as_py() or b""))[1:]
                    yield from ((number, sequences[row].as_py(), led) for number in numbers[:1])


def unnamed_table(file: File, sequence: int | None, storage: Storage, comparator: str) -> LiveTable:
    """A table that the MANIFEST does not name, between the keys that it holds; Pebble puts it on level 0."""
    import pyarrow.compute as pc

    scan = Scan(options=TableReadOptions(comparator=comparator), storage=storage)
    schema = SCHEMAS["internal"]
    whole = TableRange.whole(file, scan, Projection.of(schema, scan))
    smallest, end = None, b""
    for batch in whole.decode(schema, Findings("skip")):
        keys, ends = (
            batch.column(KEY),
            batch.filter(pc.equal(batch.column(OPERATION), scalar_of("delete_range", pa.string()))).column(VALUE),
        )
        first, last = pc.min_max(keys).values()
        smallest = first.as_py() if smallest is None else min(smallest, first.as_py())
        end = max(end, last.as_py() + b"\0", pc.max(ends).as_py() or b"")
    return LiveTable(file, 0, smallest or b"", end or b"\0", sequence=sequence)


def _shared(tables: Sequence[LiveTable]) -> list[LiveTable]:
    """The same tables; of the parts of a file each answers for what is before the next one."""
    begins: dict[str, list[bytes]] = {}
    for one in sorted((table for table in tables if table.part), key=lambda table: table.smallest):
        begins.setdefault(one.file.path, []).append(one.smallest)
    found = []
    for table in tables:
        keys = begins.get(table.file.path, [])
        at = bisect_left(keys, table.smallest)
        reported = (
            (keys[at] if at else b"", keys[at + 1] if at + 1 < len(keys) else None) if table.part else table.reported
        )
        found.append(replace(table, reported=reported))
    return found

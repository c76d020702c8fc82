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
from sawlog.errors import DamageError, OptionError, SawlogError, UnsupportedError
from sawlog.leveldb.columns import KEY, OPERATION, SCHEMAS, VALUE, binary_parts
from sawlog.leveldb.database.layout import (
    BLOB_NAME,
    BYTEWISE,
    INGESTS,
    LOG_NAME,
    MANIFEST_NAME,
    TABLE_NAME,
)
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
    """A blob file that the MANIFEST names, and that is there."""

    file: File
    dialect: Literal["rocksdb", "pebble"]


@dataclass(frozen=True, slots=True)
class DatabaseVersion:
    """The files of one column family, as the last version edit leaves them.

    Attributes:
        manifest: The MANIFEST.
        comparator: The name of the order of keys.
        family: The number of the column family.
        tables: Its live tables, by level and number.
        logs: The logs after them, by number.
        dialect: Whose logs they are, as far as the files next to them say.
        missing: Live tables that are not there.
        dead: Tables, logs and blob files that are there and not alive.
        apart: Whether values have ever been in blob files.
        blobs: Its blob files, by number.
    """

    manifest: File
    comparator: str
    family: int
    tables: tuple[LiveTable, ...]
    logs: tuple[File, ...]
    dialect: Dialect | Literal["auto"]
    missing: tuple[str, ...]
    dead: tuple[File, ...]
    apart: bool
    blobs: Mapping[int, LiveBlobs]

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


def read_version(files: Sequence[File], column_family: str, storage: Storage) -> DatabaseVersion:
    """Read the MANIFEST that lives: see `live_manifest`.

    Raises:
        SawlogError: When there is none, or it is damaged.
        OptionError: When there is no such column family.
    """
    manifest = _manifest(files, storage)
    scan = Scan(view="edits", options=LogReadOptions(), storage=storage)
    dialect = resolve_dialect(manifest, "auto", storage)
    whole = EditRange.whole(manifest, scan, Projection.of(EDITS_SCHEMA, scan), dialect)
    version = Version()
    comparators: dict[int, str] = {}
    logs: dict[int, int] = {}
    previous = 0
    numbers: dict[int, int] = {}
    named: dict[int, tuple[int, Literal["rocksdb", "pebble"]]] = {}
    apart = False
    for offset, edit in _edits(whole):
        version.apply(offset, edit)
        family = edit["column_family"]
        if edit.get("comparator"):
            comparators[family] = edit["comparator"]
        if "log_number" in edit:
            logs[family] = edit["log_number"]
        previous = edit.get("previous_log_number", previous)
        named.update({one["file"]: (family, "rocksdb") for one in edit["new_blob_files"]})
        named.update({one["file"]: (family, "pebble") for one in edit["new_value_files"]})
        numbers.update({one["blob"]: one["file"] for one in edit["new_value_files"]})
        apart = apart or bool(named)
        for one in edit["removed_value_files"]:
            named.pop(one["file"], None)
    family = _family(version, column_family, manifest)
    comparator = comparators.get(family, "")
    rows = [row for row in version.rows() if row["column_family"] == family]
    tables, missing = _tables(files, manifest, rows, numbers, comparator)
    every = {int(match[1]): file for file in files if (match := LOG_NAME.match(file.name))}
    first = logs.get(family, 0)
    live = {number: file for number, file in every.items() if number >= first or (previous and number == previous)}
    alive = {number for row in version.rows() for number in (row["file"], row.get("backing_file"))}
    dead = [file for file in files if (match := TABLE_NAME.match(file.name)) and int(match[1]) not in alive]
    dead += [file for number, file in every.items() if number not in live]
    stored = {int(match[1]): file for file in files if (match := BLOB_NAME.match(file.name))}
    dead += [file for number, file in stored.items() if number not in named]
    blobs = {
        number: LiveBlobs(stored[number], whose)
        for number, (of, whose) in sorted(named.items())
        if number in stored and of == family
    }
    ordered = tuple(file for _, file in sorted(live.items()))
    if dialect == "pebble":
        unnamed = {int(match[1]): file for file in dead if (match := TABLE_NAME.match(file.name))}
        for number, sequence, led in _ingested(ordered, storage):
            if number in unnamed:
                dead.remove(unnamed[number])
                table = unnamed_table(unnamed.pop(number), sequence, storage, comparator)
                tables.append(replace(table, blobs=led))
                apart = apart or bool(led)
                for blob in set(led) & stored.keys() - blobs.keys():
                    dead.remove(stored[blob])
                    blobs[blob] = LiveBlobs(stored[blob], "pebble")
            elif number not in alive:
                missing.append(_table_path(manifest, number))
            alive.add(number)
    return DatabaseVersion(
        manifest=manifest,
        comparator=comparator,
        family=family,
        tables=tuple(tables),
        logs=ordered,
        dialect=dialect,
        missing=tuple(missing),
        dead=tuple(dead),
        apart=apart,
        blobs=blobs,
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


def _family(version: Version, name: str, manifest: File) -> int:
    for number, known in version.families.items():
        if known == name:
            return number
    known = ", ".join(version.families.values())
    raise OptionError(f"{manifest.path}: no column family {name!r}; there are: {known}")


def _tables(
    files: Sequence[File], manifest: File, rows: Sequence[dict[str, Any]], numbers: dict[int, int], comparator: str
) -> tuple[list[LiveTable], list[str]]:
    """Live tables, and the names of those that are not there."""
    present = {int(match[1]): file for file in files if (match := TABLE_NAME.match(file.name))}
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
        if number not in present:
            missing.append(_table_path(manifest, number))
        else:
            sequence = row.get("smallest_sequence") or None
            sequence = sequence if sequence == row.get("largest_sequence") else None
            part = backing is not None
            tables.append(LiveTable(present[number], row["level"], smallest, end, part, led, sequence=sequence))
    return _shared(tables), missing


def _table_path(manifest: File, number: int) -> str:
    return posixpath.join(posixpath.dirname(manifest.path), f"{number:06d}")


def _ingested(logs: Sequence[File], storage: Storage) -> Iterator[tuple[int, int, tuple[int, ...]]]:
    """Yield the tables that Pebble's logs take in: number, sequence number of all entries, and blob files."""
    scan = Scan(view="writes", options=LogReadOptions(), storage=storage)
    projection = Projection.of(_INGESTS, scan)
    for log in logs:
        whole = WriteRange.whole(log, scan, projection, "pebble")
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

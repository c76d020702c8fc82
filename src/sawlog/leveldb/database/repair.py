"""Repair of whole databases: what they would answer, as a new one with tables on its last level and a MANIFEST."""

from __future__ import annotations

import itertools
import os
import posixpath
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sawlog.arrow import make_array, make_fixed_array, make_scalar, view_binary, view_values
from sawlog.errors import OptionError, SawlogError
from sawlog.format.contract import Contents
from sawlog.format.damage import Findings, Skipped
from sawlog.format.planning import bind_scan, plan_fragments
from sawlog.format.scan import Projection, Scan
from sawlog.kernels.columns import gather_bytes
from sawlog.kernels.varints import decode_varints, encode_varint
from sawlog.leveldb.applications.idb_order import order_of
from sawlog.leveldb.applications.indexed_db_layout import COMPARATOR as INDEXED_DB
from sawlog.leveldb.applications.view import UnknownBytesError
from sawlog.leveldb.columns import KEY, OPERATION, SEQUENCE, STAMP, TRANSACTION, VALUE, WRITES_SCHEMA
from sawlog.leveldb.database import layout
from sawlog.leveldb.database.dataset import DatabaseContents
from sawlog.leveldb.database.version import DatabaseVersion
from sawlog.leveldb.log.layout import CURRENT_NAME, OPTIONS_NAME, RECORD_COLUMN
from sawlog.leveldb.log.walk import ROWS_SCHEMA
from sawlog.leveldb.log.writer import LogWriter
from sawlog.leveldb.options import LogReadOptions, LogWriteOptions, TableReadOptions, TableWriteOptions
from sawlog.leveldb.records.edit import NewTable, encode_edit, encode_internal_key
from sawlog.leveldb.records.layout import Tag
from sawlog.leveldb.records.transactions import PREPARED
from sawlog.leveldb.records.writes import WriteRange
from sawlog.leveldb.table import layout as tables
from sawlog.leveldb.table.rows import read_table_map
from sawlog.leveldb.table.writer import TableWriter
from sawlog.storage import File, Storage
from sawlog.storage.staging import StagedDirectory

Dialect = Literal["leveldb", "rocksdb", "pebble"]

_TABLE_BYTES = 64 << 20
"""A table that has so many ends at the next key."""
_BATCH_ROWS = 64 << 10
_MANIFEST_NUMBER = 1
_SCHEMA = pa.schema([(KEY, pa.binary()), (VALUE, pa.binary()), (SEQUENCE, pa.int64()), (OPERATION, pa.string())])
_AS_PUT = ("put_blob_index", "timed_put")
"""Operations whose values a read fetches, or takes a time from: they are written as `put`."""
_TYPES = {name: code for code, name in tables.OPERATIONS.items()}
_RANGE_KEY = "range_key_set"
_OLDEST_VERSION = 2
"""Of RocksDB's tables: all releases since 5.18, and Pebble, read it."""


class _DatabaseTable(TableWriter):
    """A table that belongs to a column family of a database, in a format version that all of RocksDB's releases read.

    Args:
        path: Where it goes.
        dialect: Whose it is.
        name: The column family.
        version: What is repaired.
    """

    format_version = _OLDEST_VERSION

    def __init__(self, path: str, dialect: Dialect, name: str, version: DatabaseVersion) -> None:
        written: Literal["leveldb", "rocksdb"] = "leveldb" if dialect == "leveldb" else "rocksdb"
        super().__init__(path, _SCHEMA, TableWriteOptions(dialect=written), Storage())
        self.ordered = version.comparator in tables.BYTEWISE  # type: ignore[misc]
        self._properties_of_origin = {
            tables.COMPARATOR: (version.comparator or tables.BYTEWISE_NAME).encode(),
            tables.COLUMN_FAMILY: name.encode(),
            tables.COLUMN_FAMILY_NUMBER: encode_varint(version.family),
        }

    def _make_origin(self) -> dict[bytes, bytes]:
        return self._properties_of_origin


@dataclass
class _Family:
    """A column family that was written."""

    name: str
    version: DatabaseVersion
    tables: list[NewTable]


def repair_database(contents: Contents, places: Sequence[tuple[File, str]], storage: Storage) -> None:
    """Write a database with what `skip` delivers of another one; see `RepairsTogether.repair_files`.

    Raises:
        OptionError: When no directory is named, or there is something at its place.
        SawlogError: When the order of keys is not known, or there are range keys.
    """
    assert isinstance(contents, DatabaseContents)
    _refuse_range_keys(contents)
    target = _choose_target(contents, places, storage)
    staged = storage.directories.stage_directory(target)
    try:
        _write(contents, [file for file, _ in places], staged)
        storage.publish([staged.finish(storage, exclusive=True)])
    except BaseException:
        staged.discard(storage)
        raise


def find_prepared_entries(contents: Contents) -> Iterator[Skipped]:
    """Yield the files that have entries of transactions that are prepared and not committed.

    A repaired database is without them; what is not even prepared, an engine that opens the old one rolls back.
    """
    assert isinstance(contents, DatabaseContents)
    counts: Counter[str] = Counter()
    sizes: Counter[str] = Counter()
    for name in (name for name, version in contents.versions.items() if version.pending):
        options = replace(contents.scan.options, table=name)
        columns = (KEY, VALUE, "file", TRANSACTION)
        scan = replace(contents.scan, view="all", columns=columns, filters=(), expression=None, options=options)
        full_contents = DatabaseContents(contents.format, contents.files, scan)
        for fragment in plan_fragments(full_contents, bind_scan(full_contents, scan), None):
            for batch in fragment.to_batches(Findings("skip")):
                prepared = batch.filter(pc.equal(batch.column(TRANSACTION), make_scalar(PREPARED, pa.string())))
                for key, value, file in zip(*(prepared.column(name).to_pylist() for name in columns[:3]), strict=True):
                    counts[file] += 1
                    sizes[file] += len(key or b"") + len(value or b"")
    for file, count in sorted(counts.items()):
        entries = f"{count:,} entr{'ies' if count > 1 else 'y'} of transactions"
        reason = f"{entries} that are prepared and not committed: a repaired database is without them"
        yield Skipped(posixpath.join(contents.version.directory, file), reason, sizes[file], missed=True)


def _refuse_range_keys(contents: DatabaseContents) -> None:
    """Refuse to lose Pebble's range keys, which are not read."""
    version, storage = contents.version, contents.scan.storage
    holders = []
    for table in version.tables:
        table_of_keys = read_table_map(table.file, Scan(options=TableReadOptions(), storage=storage))
        if table_of_keys is not None and any(decode_varints(table_of_keys.properties.get(tables.RANGE_KEYS, b""))):
            holders.append(table.file.path)
    if version.dialect == "pebble":
        scan = Scan(view="writes", on_damage="skip", options=LogReadOptions(), storage=storage)
        projection = Projection.of(WRITES_SCHEMA, scan)
        schema = pa.schema([WRITES_SCHEMA.field(OPERATION)])
        for log in version.logs:
            log_range = WriteRange.cover_file(log, scan, projection, "pebble")
            for batch in log_range.decode(schema, Findings("skip")):
                if pc.any(pc.equal(batch.column(OPERATION), make_scalar(_RANGE_KEY, pa.string()))).as_py():
                    holders.append(log.path)
                    break
    if holders:
        raise SawlogError(
            f"{holders[0]}: Pebble's range keys are not written, and a repaired database would be without them;"
            " sawlog convert --on-damage skip writes the other keys to another format"
        )


def _choose_target(contents: DatabaseContents, places: Sequence[tuple[File, str]], storage: Storage) -> str:
    home = contents.version.directory
    if contents.backup is not None:
        raise OptionError(f"{places[0][0].path}: a backup is not repaired; restore it, or convert what is intact")
    if any(file.explicit for file, _ in places):
        raise OptionError(f"{places[0][0].path}: a database is repaired as a whole: name its directory, {home or '.'}")
    inside = [place for file, place in places if file.directory == home]
    target = posixpath.dirname(inside[0] if inside else posixpath.dirname(places[0][1]))
    if storage.exists(target):
        raise OptionError(f"{target}: exists; a repaired database is written to a new directory: name another one")
    return target


def _write(contents: DatabaseContents, files: Sequence[File], staged: StagedDirectory) -> None:
    dialect = _find_dialect(contents)
    levels = _count_levels(contents)
    numbers = itertools.count(_MANIFEST_NUMBER + 1)
    families = []
    for name in contents.versions:  # the default one first
        options = replace(contents.scan.options, table=name)
        family_contents = DatabaseContents(contents.format, files, replace(contents.scan, options=options))
        written = _write_tables(family_contents, name, staged.work, dialect, levels, numbers)
        families.append(_Family(name, family_contents.version, written))
    _write_manifest(families, staged.work, dialect, next(numbers))


def _find_dialect(contents: DatabaseContents) -> Dialect:
    """Return the dialect to write: as the files next to the database say, or else its tables."""
    dialect = contents.version.dialect
    if dialect != "auto":
        return dialect
    options = TableReadOptions()
    for version in contents.versions.values():
        for table in version.tables:
            table_with_footer = read_table_map(table.file, Scan(options=options, storage=contents.scan.storage))
            if table_with_footer is not None and table_with_footer.lost_end is None:
                return table_with_footer.rules.dialect
    manifest = contents.metadata.manifest
    is_leveled = len(contents.versions) > 1 or (manifest is not None and manifest.leveled)
    return "rocksdb" if is_leveled else "leveldb"


def _count_levels(contents: DatabaseContents) -> int:
    """Return the number of levels of the engine."""
    directory = contents.version.directory or "."
    settings = contents.scan.storage.list_files(directory, fresh=False, names=OPTIONS_NAME)
    if not settings:
        return layout.LEVELS
    newest = max(settings, key=lambda file: int(file.name.rpartition("-")[2]))
    text = contents.scan.storage.read(newest, 0, layout.OPTIONS_BYTES).decode("utf-8", "replace")
    return min((int(match) for match in layout.LEVELS_SETTING.findall(text) if int(match)), default=layout.LEVELS)


def _write_tables(
    contents: DatabaseContents, name: str, directory: str, dialect: Dialect, levels: int, numbers: Iterator[int]
) -> list[NewTable]:
    """Write what the column family would answer with, as a run of tables that follow each other."""
    suffix = "ldb" if dialect == "leveldb" else "sst"
    suffixes = {file.name.rpartition(".")[2] for file in contents.files if layout.TABLE_NAME.match(file.name)}
    suffix = "sst" if suffixes == {"sst"} else suffix
    new_tables: list[NewTable] = []
    writer: _DatabaseTable | None = None
    first = last = (b"", 0, "")
    low = high = number = 0
    try:
        for batch in _sort_entries(contents):
            begins = _read_entry(batch, 0)
            if writer is not None and writer.size >= _TABLE_BYTES and levels > 1 and begins[0] != last[0]:
                new_tables.append(_finish(writer, number, levels - 1, first, last, (low, high)))
                writer = None
            if writer is None:
                number, first = next(numbers), begins
                low, high = begins[1], begins[1]
                path = os.path.join(directory, f"{number:06d}.{suffix}")
                writer = _DatabaseTable(path, dialect, name, contents.version)
            writer.write(batch)
            last = _read_entry(batch, batch.num_rows - 1)
            lowest, highest = (limit.as_py() for limit in pc.min_max(batch.column(SEQUENCE)).values())
            low, high = min(low, lowest), max(high, highest)
        if writer is not None:
            new_tables.append(_finish(writer, number, levels - 1, first, last, (low, high)))
            writer = None
    finally:
        if writer is not None:
            writer.abort()
    return new_tables


def _read_entry(batch: pa.RecordBatch, row: int) -> tuple[bytes, int, str]:
    key, sequence, operation = (batch.column(name)[row].as_py() for name in (KEY, SEQUENCE, OPERATION))
    return key, sequence, operation


def _finish(
    writer: _DatabaseTable,
    number: int,
    level: int,
    first: tuple[bytes, int, str],
    last: tuple[bytes, int, str],
    sequences: tuple[int, int],
) -> NewTable:
    (published,) = writer.publish()
    smallest, largest = (encode_internal_key(key, sequence, _TYPES[name]) for key, sequence, name in (first, last))
    return NewTable(number, level, published.size, smallest, largest, sequences)


def _sort_entries(contents: DatabaseContents) -> Iterator[pa.RecordBatch]:
    """Yield the entries in the order of the database's keys, as they are written."""
    request = bind_scan(contents, contents.scan)
    batches = (
        _as_written(batch)
        for fragment in plan_fragments(contents, request, None)
        for batch in fragment.to_batches(Findings("skip"))
        if batch.num_rows
    )
    comparator = contents.version.comparator
    if contents.version.bytewise or contents.version.key_order is not None:
        yield from batches
        return
    if comparator != INDEXED_DB:
        raise SawlogError(
            f"{contents.version.path}: keys are in the order {comparator!r}, which only the database knows, so its"
            " tables cannot be written; sawlog convert --on-damage skip writes the rows to another format"
        )
    all_rows = pa.Table.from_batches(batches, _SCHEMA).combine_chunks()
    keys, sequences = (all_rows.column(name).to_pylist() for name in (KEY, SEQUENCE))
    order = _sort_as_chromium(keys, sequences, contents.version.path)
    sorted_rows = all_rows.take(make_fixed_array(pa.int64(), np.array(order, np.int64)))
    yield from (batch for batch in sorted_rows.to_batches(_BATCH_ROWS) if batch.num_rows)


def _sort_as_chromium(keys: list[bytes], sequences: list[int], path: str) -> list[int]:
    try:
        places = [(order_of(key), -sequence) for key, sequence in zip(keys, sequences, strict=True)]
    except UnknownBytesError as error:
        raise SawlogError(
            f"{path}: a key is none of IndexedDB's ({error}), so the order of keys is not known;"
            " sawlog convert --on-damage skip writes the rows to another format"
        ) from error
    return sorted(range(len(keys)), key=places.__getitem__)


def _as_written(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return entries as they are written: values in their places, and timestamps in keys."""
    operations = convert_operations(batch.column(OPERATION))
    keys = batch.column(KEY)
    if STAMP in batch.schema.names:
        keys = _append_stamps(keys, batch.column(STAMP))
    columns = [keys, batch.column(VALUE), batch.column(SEQUENCE), operations]
    return pa.RecordBatch.from_arrays(columns, schema=_SCHEMA)


def convert_operations(operations: pa.Array) -> pa.Array:
    """Return operations as they are written."""
    moved = pc.is_in(operations, value_set=make_array(_AS_PUT, pa.string()))
    if not pc.any(moved).as_py():
        return operations
    return pc.if_else(moved, make_scalar("put", pa.string()), operations)


def _append_stamps(keys: pa.Array, stamps: pa.Array) -> pa.Array:
    data, ends = view_binary(keys)
    times = view_values(stamps, np.uint64).astype("<u8").view(np.uint8)
    edges = ends.astype(np.int64)
    rows, width = len(keys), tables.STAMP_WIDTH
    starts, lengths = np.zeros(2 * rows, np.int64), np.full(2 * rows, width, np.int64)
    starts[::2], lengths[::2] = edges[:-1], np.diff(edges)
    starts[1::2] = len(data) + width * np.arange(rows)
    offsets, joined = gather_bytes(np.concatenate([data, times]), starts, lengths)
    value_offsets = np.frombuffer(offsets, np.int32)[::2].copy()
    return pa.Array.from_buffers(pa.binary(), rows, [None, pa.py_buffer(value_offsets), joined])


def _write_manifest(families: Sequence[_Family], directory: str, dialect: Dialect, log: int) -> None:
    """Write the MANIFEST, and what says that it is the current one.

    Args:
        families: The default one first.
        directory: Where it goes.
        dialect: Whose it is.
        log: The number of the first log; none is there.
    """
    last = max((table.sequences[1] for family in families for table in family.tables), default=0)
    edits = []
    for family in families:
        comparator = family.version.comparator or tables.BYTEWISE_NAME
        numbers = {Tag.COLUMN_FAMILY: family.version.family} if family.version.family else {}
        texts = {Tag.COMPARATOR: comparator}
        if family.version.family:
            edits.append(encode_edit(numbers, {Tag.ADD_COLUMN_FAMILY: family.name} | texts, [], is_leveldb=False))
            edits.append(encode_edit(numbers | {Tag.LOG_NUMBER: log}, {}, family.tables, is_leveldb=False))
        else:
            counts = {Tag.LOG_NUMBER: log, Tag.NEXT_FILE: log + 1, Tag.LAST_SEQUENCE: last}
            counts |= {Tag.PREVIOUS_LOG_NUMBER: 0} if dialect != "pebble" else {}
            max_family = max(family_written.version.family for family_written in families)
            counts |= {Tag.MAX_COLUMN_FAMILY: max_family} if max_family else {}
            edits.append(encode_edit(counts, texts, family.tables, is_leveldb=dialect == "leveldb"))
    name = f"MANIFEST-{_MANIFEST_NUMBER:06d}"
    with LogWriter(os.path.join(directory, name), ROWS_SCHEMA, LogWriteOptions(), Storage()) as writer:
        writer.write(pa.RecordBatch.from_arrays([make_array(edits, pa.binary())], [RECORD_COLUMN]))
    # An engine that ends well leaves the log that its MANIFEST names, be it empty; without it, writes may be missing.
    open(os.path.join(directory, f"{log:06d}.log"), "wb").close()
    if dialect == "pebble":
        for marker in layout.MARKERS:
            open(os.path.join(directory, marker.format(name, layout.WRITTEN_FORMAT)), "wb").close()
        return
    with open(os.path.join(directory, CURRENT_NAME), "wb") as file:
        file.write(f"{name}\n".encode())

"""The files that a database is made of: what CURRENT and the MANIFEST that it names say, or else what is there."""

from __future__ import annotations

import os
import posixpath
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from itertools import chain, islice
from typing import Any, Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from sawlog.arrow import make_scalar, view_binary, view_values
from sawlog.format.contract import OFFSET_COLUMN
from sawlog.format.damage import MISMATCHED_FILE, MISSING_FILE, UNSUPPORTED, Damage, Findings
from sawlog.format.scan import Projection, Scan
from sawlog.kernels.varints import decode_varints
from sawlog.leveldb.applications.idb_order import is_key
from sawlog.leveldb.applications.indexed_db_layout import COMPARATOR as INDEXED_DB
from sawlog.leveldb.applications.indexed_db_layout import DIRECTORY_SUFFIX
from sawlog.leveldb.columns import (
    KEY,
    MARKED_SCHEMA,
    NUMBERED_OPERATION,
    OPERATION,
    SCHEMAS,
    SEQUENCE,
    VALUE,
    WRITES_SCHEMA,
)
from sawlog.leveldb.database.identity import Identity
from sawlog.leveldb.database.layout import (
    BLOB_DIRECTORY,
    BLOB_NAME,
    BYTEWISE,
    DEFAULT_FAMILY,
    FORMAT_MARKER,
    INGESTS,
    LAST_FORMAT,
)
from sawlog.leveldb.database.logs import find_missing_logs, find_repeatable_logs
from sawlog.leveldb.database.manifest import DatabaseMetadata, Manifest
from sawlog.leveldb.database.order import ORDERS, KeyOrder, VirtualTable
from sawlog.leveldb.database.places import StoredPlace, find_files, may_have_transactions
from sawlog.leveldb.log.layout import Dialect
from sawlog.leveldb.options import DatabaseReadOptions, LogReadOptions, TableReadOptions
from sawlog.leveldb.records.layout import MAX_SEQUENCE
from sawlog.leveldb.records.transactions import Numbering, PendingOperations, Transactions, has_marks
from sawlog.leveldb.records.writes import STAMP_SIZE_FIELD, WriteRange
from sawlog.leveldb.table.layout import (
    BYTEWISE_NAME,
    COLUMN_FAMILY,
    COLUMN_FAMILY_NUMBER,
    COMPARATOR,
    REVERSE_NAME,
    STAMP_SUFFIX,
    STAMP_WIDTH,
    STAMPS_KEPT,
)
from sawlog.leveldb.table.rows import TableRange, read_table_map
from sawlog.storage import File, Storage
from sawlog.storage.names import is_remote

_OPERATIONS_SCHEMA = pa.schema([NUMBERED_OPERATION])
"""By which logs are looked through for transactions."""
_MAX_SYNTHETIC_BYTES = 1 << 10
"""Bytes that a table of Pebble's may show in each key that are not in its file."""
_NOWHERE = b"\0"
"""Where what a table reports begins and ends, if it reports nothing."""
_NO_MANIFEST = "all tables and logs, by their sequence numbers: what was deleted may appear again"
_SAMPLE_KEYS = 1000
"""So many keys of each file show whose they are, where no MANIFEST names their order."""
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
        identity: What else the MANIFEST knows of its content; `None` for parts of files, and where it does not name it.
        virtual: What it shows of its file, where that is not all between its bounds, in the order of the bytes.
    """

    file: File
    level: int
    smallest: bytes
    end: bytes
    part: bool = False
    blobs: tuple[int, ...] = ()
    reported: tuple[bytes, bytes | None] = (b"", None)
    sequence: int | None = None
    identity: Identity | None = None
    virtual: VirtualTable | None = None


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
class LoggedTransactions:
    """Transactions in the logs of a database.

    Attributes:
        logs: The logs that have marks of theirs.
        has_shared_numbers: Whether all operations of a batch have one sequence number.
        pending: Operations that no log commits.
    """

    logs: tuple[File, ...]
    has_shared_numbers: bool
    pending: PendingOperations


@dataclass(frozen=True)
class LogTransactions:
    """The transactions of a database, for which its logs are looked through when somebody has to know.

    Attributes:
        logs: The logs, the oldest first.
        dialect: Whose they are, as far as the files next to them say.
        settings: Files of the database, OPTIONS files among them.
        storage: Where all of this is.
    """

    logs: tuple[File, ...]
    dialect: Dialect | Literal["auto"]
    settings: tuple[File, ...]
    storage: Storage

    @cached_property
    def logged(self) -> LoggedTransactions | None:
        """The transactions that the logs have; `None` where they have none."""
        if self.dialect == "pebble" or not may_have_transactions(self.settings, self.storage):
            return None
        scan = Scan(view="writes", options=LogReadOptions(), storage=self.storage)
        marked: dict[File, pa.RecordBatch] = {}
        for log in self.logs:
            log_range = WriteRange.cover_file(log, scan, _make_projection(), self.dialect, numbered=True)
            if any(map(has_marks, log_range.decode(_OPERATIONS_SCHEMA, Findings("skip", drained=True)))):
                batches = log_range.decode(MARKED_SCHEMA, Findings("skip", drained=True))
                marked[log] = pa.concat_batches(list(batches))
        if not marked:
            return None
        numbering = Numbering()
        for rows in marked.values():
            numbering.add(rows)
        transactions = Transactions(numbering.shared)
        for log, rows in marked.items():
            transactions.resolve_rows(rows, log.path)
        return LoggedTransactions(tuple(marked), numbering.shared, transactions.list_undecided())

    @property
    def has_looked(self) -> bool:
        """Whether the logs were looked through already."""
        return "logged" in vars(self)

    def note_absence(self) -> None:
        """Keep that the logs have no transactions, as a reader of all their operations has seen."""
        vars(self)["logged"] = None


@dataclass(frozen=True, slots=True)
class DatabaseVersion:
    """The files of one column family, as the last version edit leaves them.

    Attributes:
        path: The MANIFEST; where there is none to be believed, what should name it.
        directory: Where they are.
        comparator: The name of the order of keys.
        family: The number of the column family.
        tables: Its live tables, by level and number.
        stripped: Whether tables have no timestamps, even if the order of keys has them.
        logs: The logs after them, by number; of a log in parts these, in order.
        dialect: Whose logs they are, as far as the files next to them say.
        faults: What is missing: of what names the version, and of the files that it names.
        evidence: What the version is taken from, where what names it is not whole; empty otherwise.
        dead: Tables, logs and blob files that are there and not alive, for no column family.
        has_blob_files: Whether values have ever been in blob files.
        blobs: Its blob files, by number.
        elsewhere: Files of the database that are not in its directory.
        transactions: Those in the logs; `None` where they are of no concern.
        prior: Older logs, of which only transactions count that are not committed there.
        nameless: Tables that may be of this column family and do not say it; the default one has their entries.
    """

    path: str
    directory: str
    comparator: str
    family: int
    tables: tuple[LiveTable, ...]
    logs: tuple[File, ...]
    dialect: Dialect | Literal["auto"]
    faults: tuple[Damage, ...]
    evidence: str
    dead: tuple[File, ...]
    has_blob_files: bool
    blobs: Mapping[int, LiveBlobs]
    elsewhere: tuple[File, ...] = ()
    transactions: LogTransactions | None = None
    prior: tuple[File, ...] = ()
    stripped: bool = False
    nameless: tuple[File, ...] = ()

    @property
    def pending(self) -> PendingOperations:
        """Operations of transactions that are neither committed nor rolled back."""
        logged = None if self.transactions is None else self.transactions.logged
        return PendingOperations() if logged is None else logged.pending

    @property
    def bytewise(self) -> bool:
        """Whether keys are ordered by their bytes."""
        return self.comparator.removesuffix(STAMP_SUFFIX) in BYTEWISE

    @property
    def key_order(self) -> KeyOrder | None:
        """The order of keys, where it is another than that of their bytes, and known."""
        return ORDERS.get(self.comparator)

    @property
    def has_stamps(self) -> bool:
        """Whether keys end in timestamps, which order them where they are the same otherwise."""
        return self.comparator.endswith(STAMP_SUFFIX)

    @property
    def is_plain(self) -> bool:
        """Whether the order of keys is one that is known to have no timestamps."""
        return self.comparator in (*BYTEWISE, REVERSE_NAME)

    def is_lost_value(self, damage: Damage) -> bool:
        """Return whether a value in a blob file is damaged or missing, which only entries that lead there can say."""
        if BLOB_NAME.match(posixpath.basename(damage.path)):
            return True
        return damage.path == self.path and damage.kind in (MISSING_FILE, UNSUPPORTED) and damage not in self.faults

    def make_table_options(self, options: DatabaseReadOptions) -> TableReadOptions:
        """Return the options by which its tables are read: in the order of its keys, which LevelDB's do not say."""
        return replace(options.of_tables, comparator=self.comparator)

    def make_entry_options(self, options: DatabaseReadOptions) -> TableReadOptions:
        """Return the same, with timestamps in a column of their own where keys have them."""
        return _make_entry_options(options, self.comparator)

    def choose_stamp_widths(self, recorded: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the number of bytes at the end of each key in logs that are its timestamp, by what the log says.

        RocksDB's logs say it since timestamps need not be in tables. Whether they are in keys of logs may change then.
        """
        if self.has_stamps:
            return recorded if self.stripped else np.full(len(recorded), STAMP_WIDTH)
        return recorded if self.is_plain else np.zeros(len(recorded), np.int64)


def _make_entry_options(options: DatabaseReadOptions, comparator: str) -> TableReadOptions:
    """Return options for tables whose keys are in an order, with timestamps apart."""
    keys: Literal["stamped", "internal"] = "stamped" if comparator.endswith(STAMP_SUFFIX) else "internal"
    return replace(options.of_tables, comparator=comparator, keys=keys)


def read_versions(
    metadata: DatabaseMetadata,
    files: Sequence[File],
    storage: Storage,
    options: DatabaseReadOptions,
    shared: Sequence[File],
) -> dict[str, DatabaseVersion]:
    """Return the column families by name; where metadata is not whole, as the files themselves say."""
    manifest = metadata.manifest
    if manifest is None:
        all_places = find_files(files, metadata, 0, options, storage, shared)
        return _recover_versions(metadata, all_places, storage, options)
    stored = find_files(files, metadata, manifest.oldest_log, options, storage, shared)
    cut = metadata.faults
    if manifest.file.name == metadata.pointer.name:
        cut += tuple(find_missing_logs(manifest, stored, metadata.dialect, metadata.directory, storage))
    families = sorted(manifest.version.families.items())
    logs = (file for number in sorted(stored.logs) if number >= manifest.min_log for file in stored.list_parts(number))
    transactions = LogTransactions(tuple(logs), metadata.dialect, metadata.settings, storage)
    repeatable: frozenset[int] = frozenset()
    if "logs" in options.salvage:
        repeatable = find_repeatable_logs(manifest, stored, metadata.dialect, storage)
    if repeatable and transactions.logged is not None:
        repeatable = frozenset()
    named = manifest.tables
    late = [file for number, file in stored.tables.items() if number not in named and manifest.is_later(number)]
    owners = _read_owners(late if cut else (), storage)
    return {
        name: _make_version(metadata, manifest, family, stored, cut, owners, transactions, repeatable, storage, options)
        for family, name in families
    }


def _make_version(
    metadata: DatabaseMetadata,
    manifest: Manifest,
    family: int,
    stored: StoredPlace,
    cut: tuple[Damage, ...],
    owners: Mapping[File, tuple[int, str]],
    transactions: LogTransactions,
    repeatable: frozenset[int],
    storage: Storage,
    options: DatabaseReadOptions,
) -> DatabaseVersion:
    """Return one column family; where the metadata is cut, with the tables that were written after it."""
    directory, comparator = metadata.directory, manifest.comparators.get(family, "")
    read = _make_entry_options(options, comparator)
    rows = [row for row in manifest.version.make_rows() if row["column_family"] == family]
    tables, faults = _find_tables(stored, manifest, rows, comparator, directory)
    first, alive = manifest.logs.get(family, 0), manifest.tables
    log_numbers = {number for number in stored.logs if manifest.needs(number, first)}
    if repeatable - log_numbers and (faults or any(_is_damaged(table.file, read, storage) for table in tables)):
        log_numbers |= repeatable
    logs = [file for number in sorted(log_numbers) for file in stored.list_parts(number)]
    alive_logs = log_numbers | {number for number in stored.logs if manifest.needs(number, manifest.oldest_log)}
    idle = [number for number in stored.logs if number not in alive_logs]
    dead = {file.path: file for number, file in stored.tables.items() if number not in alive}
    dead |= {file.path: file for number in idle for file in stored.list_parts(number)}
    dead |= {file.path: file for number, file in stored.blobs.items() if number not in manifest.blobs}
    unnamed = {number: file for number, file in stored.tables.items() if number not in alive}
    prior: tuple[File, ...] = ()
    if not set(transactions.logs) <= set(logs) and transactions.logged is not None:
        prior = tuple(file for file in transactions.logged.logs if file not in logs)
    blobs = {
        number: LiveBlobs(stored.blobs[number], blob_owner)
        for number, (of, blob_owner) in sorted(manifest.blobs.items())
        if number in stored.blobs and of == family
    }
    blobs |= _list_stacked_blobs(stored, manifest.blobs)
    if metadata.dialect == "pebble":
        for number, sequence, led in _read_ingestions(logs, storage):
            if number in unnamed:
                table = make_live_table(unnamed.pop(number), sequence, storage, read)
                tables.append(replace(table, blobs=led))
                blobs |= {
                    blob_number: LiveBlobs(stored.blobs[blob_number], "pebble")
                    for blob_number in led
                    if blob_number in stored.blobs
                }
            elif number not in alive:
                faults.append(_make_missing_damage(directory, number, stored))
    later = [file for file in unnamed.values() if file in owners and owners[file][0] == family]
    tables += (make_live_table(file, None, storage, read) for file in later)
    if cut and metadata.dialect != "pebble":  # its tables lead to blob files by numbers that only edits have
        later_blobs = {number: file for number, file in stored.blobs.items() if manifest.is_later(number)}
        blobs |= {number: LiveBlobs(file, "rocksdb") for number, file in later_blobs.items() if number not in blobs}
    for file in (*(table.file for table in tables), *(blob.file for blob in blobs.values()), *prior):
        dead.pop(file.path, None)
    evidence = f"{manifest.file.name}, and tables that were written after its last edit" if cut else ""
    faults += _check_format(metadata.settings)
    return DatabaseVersion(
        path=manifest.file.path,
        directory=directory,
        comparator=comparator,
        family=family,
        tables=tuple(tables),
        logs=tuple(logs),
        dialect=metadata.dialect,
        faults=(*_read_from(evidence, cut), *_check_directories(stored), *faults),
        evidence=evidence,
        dead=tuple(dead.values()),
        has_blob_files=manifest.has_blob_files or bool(blobs),
        blobs=blobs,
        elsewhere=tuple(stored.elsewhere),
        transactions=transactions,
        prior=prior,
        stripped=family in manifest.stripped,
        nameless=_list_nameless(owners, family),
    )


def _is_damaged(file: File, options: TableReadOptions, storage: Storage) -> bool:
    """Return whether a table has lost entries."""
    findings = Findings("skip")
    deque(read_entries(file, options, storage, [SEQUENCE], findings), maxlen=0)
    return bool(findings.damages)


@cache
def _make_projection() -> Projection:
    """Return the columns by which transactions are told apart."""
    return Projection.of(MARKED_SCHEMA, Scan(view="writes", options=LogReadOptions()))


def _check_directories(stored: StoredPlace) -> Iterable[Damage]:
    """Return the directories that have files of the database and are not there, each once."""
    return dict.fromkeys(Damage(absence.path, 0, 0, MISSING_FILE, absence.detail) for absence in stored.absent)


def _list_stacked_blobs(stored: StoredPlace, named: Iterable[int]) -> dict[int, LiveBlobs]:
    """Return the files of a stacked BlobDB, which no MANIFEST names."""
    return {
        number: LiveBlobs(file, "rocksdb", closed=False)
        for number, file in stored.blobs.items()
        if number not in named and posixpath.basename(file.directory) == BLOB_DIRECTORY
    }


def _recover_versions(
    metadata: DatabaseMetadata, stored: StoredPlace, storage: Storage, options: DatabaseReadOptions
) -> dict[str, DatabaseVersion]:
    """Return all tables and logs: what no MANIFEST says, their sequence numbers do."""
    table_files = [file for _, file in sorted(stored.tables.items())]
    owners = _read_owners(table_files, storage)
    families = {0: DEFAULT_FAMILY} | {number: name for number, name in owners.values() if name}
    for manifest in metadata.read:
        families |= manifest.version.families
    logs = tuple(file for number in sorted(stored.logs) for file in stored.list_parts(number))
    dialect: Literal["rocksdb", "pebble"] = "pebble" if metadata.dialect == "pebble" else "rocksdb"
    transactions = LogTransactions(logs, metadata.dialect, metadata.settings, storage)
    ingested = _read_ingestions(logs, storage) if metadata.dialect == "pebble" else ()
    ingested_tables = {number: (sequence, led) for number, sequence, led in ingested}
    versions = {}
    for family, name in sorted(families.items()):
        family_tables = [file for file, (number, _) in owners.items() if number == family]
        comparator = next(
            (manifest.comparators[family] for manifest in metadata.read if manifest.comparators.get(family)), ""
        )
        is_stamped = None if metadata.dialect == "pebble" else _has_logged_stamps(logs, family, storage)
        comparator = comparator or _find_comparator(family_tables, logs, metadata, storage, is_stamped=is_stamped)
        tables, read = [], _make_entry_options(options, comparator)
        for file in family_tables:
            sequence, led = ingested_tables.get(parse_number(file), (None, ()))
            tables.append(replace(make_live_table(file, sequence, storage, read), blobs=led))
        versions[name] = DatabaseVersion(
            path=metadata.pointer.path,
            directory=metadata.directory,
            comparator=comparator,
            family=family,
            tables=tuple(tables),
            logs=logs,
            dialect=metadata.dialect,
            faults=(*_read_from(_NO_MANIFEST, metadata.faults), *_check_directories(stored)),
            evidence=_NO_MANIFEST,
            dead=(),
            has_blob_files=bool(stored.blobs),
            blobs={number: LiveBlobs(file, dialect) for number, file in sorted(stored.blobs.items())}
            | _list_stacked_blobs(stored, ()),
            elsewhere=tuple(stored.elsewhere),
            transactions=transactions,
            stripped=is_stamped is True
            or any(family in manifest.stripped for manifest in metadata.read)
            or any(_read_properties(file, storage).get(STAMPS_KEPT) == b"\0" for file in family_tables),
            nameless=_list_nameless(owners, family),
        )
    return versions


def _read_from(evidence: str, faults: Sequence[Damage]) -> tuple[Damage, ...]:
    """Return the same faults, the first of which says what is read instead."""
    first = [replace(fault, detail=f"{fault.detail}; what is there is read from {evidence}") for fault in faults[:1]]
    return (*first, *faults[1:])


def parse_number(file: File) -> int:
    """Return the number that the name of a table, log or blob file begins with; 0 for those that others have named."""
    return int(file.name[: len(file.name) - len(file.name.lstrip("0123456789"))] or 0)


def _list_nameless(owners: Mapping[File, tuple[int, str]], family: int) -> tuple[File, ...]:
    """Return the tables that do not say to which column family they belong; none for that which has their entries."""
    return tuple(file for file, (_, name) in owners.items() if family and not name)


def _read_owners(tables: Iterable[File], storage: Storage) -> dict[File, tuple[int, str]]:
    """Return the number and name of the column family that each table says; 0 and no name where it says none."""
    owners = {}
    for file in tables:
        properties = _read_properties(file, storage)
        number = list(decode_varints(properties.get(COLUMN_FAMILY_NUMBER, b"")))[:1]
        name = properties.get(COLUMN_FAMILY, b"").decode("utf-8", "backslashreplace")
        owners[file] = (number[0], name) if number and name else (0, "")
    return owners


def _read_properties(file: File, storage: Storage) -> Mapping[bytes, bytes]:
    table = read_table_map(file, Scan(options=TableReadOptions(), storage=storage))
    return {} if table is None else table.properties


def _find_comparator(
    tables: Sequence[File],
    logs: Sequence[File],
    metadata: DatabaseMetadata,
    storage: Storage,
    *,
    is_stamped: bool | None,
) -> str:
    """Return the name of the order of keys: what tables say, what goes with directory or keys, or what they are in.

    Where logs say whether keys have timestamps, tables may be older.
    """
    suffix = STAMP_SUFFIX if is_stamped else ""
    for file in reversed(tables):
        if name := _read_properties(file, storage).get(COMPARATOR, b"").decode(errors="replace"):
            return name if is_stamped is None else name.removesuffix(STAMP_SUFFIX) + suffix
    if metadata.dialect in ("auto", "leveldb"):  # Chromium has no other engine
        if resolve_directory(metadata.directory).endswith(DIRECTORY_SUFFIX):
            return INDEXED_DB
        keys = chain(_read_first_keys(tables, storage), _read_first_log_keys(logs, storage))
        first = next(keys, None)
        if first is not None and all(map(is_key, chain([first], keys))):
            return INDEXED_DB
    return BYTEWISE_NAME + suffix if all(_ascends(file, storage) for file in tables) else "unknown"


def _has_logged_stamps(logs: Sequence[File], family: int, storage: Storage) -> bool | None:
    """Return whether keys of a column family have timestamps, as the last log says that has any.

    `None`: no log has them.
    """
    scan = Scan(view="writes", options=LogReadOptions(), storage=storage)
    projection = Projection.of(WRITES_SCHEMA, scan)
    schema = pa.schema([WRITES_SCHEMA.field("column_family"), STAMP_SIZE_FIELD])
    newer = False
    for log in reversed(logs):
        log_range = WriteRange.cover_file(log, scan, projection, "auto", numbered=True)
        for batch in log_range.decode(schema, Findings("skip")):
            families, sizes = (view_values(batch.column(name), np.int64) for name in schema.names)
            if (sizes[families == family] == STAMP_WIDTH).any():
                return not newer
            newer = newer or bool((families == family).any())
    return None


def resolve_directory(directory: str) -> str:
    """Return a directory with the names of those above it, by which applications know theirs."""
    return directory if is_remote(directory) else os.path.abspath(directory)


def _read_first_keys(tables: Sequence[File], storage: Storage) -> Iterator[bytes]:
    for file in tables:
        batches = read_entries(file, TableReadOptions(), storage, [KEY])
        all_keys = (key for batch in batches for key in batch.column(KEY).to_pylist())
        yield from islice(all_keys, _SAMPLE_KEYS)


def _read_first_log_keys(logs: Sequence[File], storage: Storage) -> Iterator[bytes]:
    scan = Scan(view="writes", options=LogReadOptions(), storage=storage)
    projection = Projection.of(WRITES_SCHEMA, scan)
    schema = pa.schema([WRITES_SCHEMA.field(KEY)])
    for log in logs:
        log_range = WriteRange.cover_file(log, scan, projection, "leveldb", numbered=True)
        all_keys = (
            key for batch in log_range.decode(schema, Findings("skip")) for key in batch.column(KEY).to_pylist()
        )
        yield from islice((key for key in all_keys if key is not None), _SAMPLE_KEYS)


def _ascends(file: File, storage: Storage) -> bool:
    """Return whether the keys of a table are in the order of their bytes."""
    import pyarrow.compute as pc

    last = b""
    for batch in read_entries(file, TableReadOptions(), storage, [KEY]):
        keys = batch.column(KEY)
        if keys[0].as_py() < last or pc.all(pc.less_equal(keys[:-1], keys[1:])).as_py() is False:
            return False
        last = keys[-1].as_py()
    return True


def _find_tables(
    stored: StoredPlace, manifest: Manifest, rows: Sequence[dict[str, Any]], comparator: str, directory: str
) -> tuple[list[LiveTable], list[Damage]]:
    """Return the live tables, and what is said of those that are not there, or are others."""
    tables, missing = [], []
    order = ORDERS.get(comparator)
    stamped = comparator.endswith(STAMP_SUFFIX)
    for row in rows:
        stamp = STAMP_WIDTH if stamped and row.get("timestamps_persisted") is not False else 0
        backing = row.get("backing_file")
        number = row["file"] if backing is None else backing
        smallest, largest = row["smallest_key"][: -stamp or None], row["largest_key"][: -stamp or None]
        part = any(row.get(name) is not None for name in ("backing_file", "synthetic_prefix", "synthetic_suffix"))
        prefix, suffix = (row.get(f"synthetic_{name}") or b"" for name in ("prefix", "suffix"))
        is_known = (comparator in BYTEWISE and not suffix) if order is None else order.versioned
        if part and (not is_known or len(prefix) + len(suffix) > _MAX_SYNTHETIC_BYTES):
            detail = (
                f"table {row['file']} is a part of table {number}, or has other keys than that one, in the order"
                f" {comparator!r} or longer than this version of sawlog knows them: its entries are not read"
            )
            missing.append(Damage(manifest.file.path, row[OFFSET_COLUMN], 0, UNSUPPORTED, detail))
            continue
        if part and number in stored.tables and comparator in BYTEWISE and largest < smallest:
            detail = f"its part that the MANIFEST names {row['file']} ends before it begins: its entries are missing"
            missing.append(Damage(stored.tables[number].path, 0, 0, MISMATCHED_FILE, detail))
            continue
        # A largest key with the last sequence number is itself past the end of the table.
        end = largest if row["largest_key_sequence"] == MAX_SEQUENCE else largest + b"\0"
        end = max(end, smallest + b"\0")
        led = tuple(
            manifest.numbers.get(reference["file"], reference["file"]) for reference in row.get("blob_references") or ()
        )
        if number not in stored.tables:
            missing.append(_make_missing_damage(directory, number, stored, row.get("path_id") or 0))
        else:
            size = row["size"] if backing is None else manifest.backed.get(backing)
            mismatches = [] if number in stored.objects else list(_check_size(stored.tables[number], size))
            missing += mismatches
            sequence = row.get("smallest_sequence") or None
            sequence = sequence if sequence == row.get("largest_sequence") else None
            identity = None if part or mismatches else Identity.of(row, stamped=stamped)
            table = LiveTable(stored.tables[number], row["level"], smallest, end, part, led)
            virtual = VirtualTable.of(row, order)
            tables.append(replace(table, sequence=sequence, identity=identity, virtual=virtual))
    return _split_shared_tables(tables), list(dict.fromkeys(missing))  # parts of a file share what is said of it


def _check_format(settings: Sequence[File]) -> Iterator[Damage]:
    """Yield what to say of a database in a format of Pebble's that is not known: its files may hold what is not."""
    markers = [(int(match[1]), int(match[2]), file) for file in settings if (match := FORMAT_MARKER.match(file.name))]
    if markers:
        _, version, file = max(markers, key=lambda marker: marker[0])
        if version > LAST_FORMAT:
            detail = f"format major version {version} of Pebble; known up to {LAST_FORMAT}: what is known of it is read"
            yield Damage(file.path, 0, 0, UNSUPPORTED, detail)


def _make_missing_damage(directory: str, number: int, stored: StoredPlace, path: int = 0) -> Damage:
    """Return what is said of a table that is neither in the directory nor in those that the caller names."""
    place = f", in number {path} of db_paths or cf_paths," if path else ""
    if (remote := stored.objects.get(number)) is not None:
        place = (
            f", {remote.catalog} says that it is the object {remote.name!r} in the remote storage {remote.locator!r},"
        )
    detail = (
        f"the MANIFEST names this table{place} and it is not there: its entries are missing, and older ones may appear"
        " that they would replace; if the database has tables in other directories, name these with paths="
    )
    return Damage(posixpath.join(directory, f"{number:06d}"), 0, 0, MISSING_FILE, detail)


def _check_size(file: File, size: int | None) -> Iterator[Damage]:
    """Yield what is said of a table that has another size than the MANIFEST gives it."""
    if size is not None and file.size != size:
        detail = (
            f"expected a table of {size:,} bytes, as the MANIFEST says, found {file.size:,}: it is of another state of"
            " the database, or not whole; entries may be missing, or be others: copy all files again, of one state"
        )
        yield Damage(file.path, 0, 0, MISMATCHED_FILE, detail)


def _read_ingestions(logs: Sequence[File], storage: Storage) -> Iterator[tuple[int, int, tuple[int, ...]]]:
    """Yield the tables that Pebble's logs take in: number, sequence number of all entries, and blob files."""
    scan = Scan(view="writes", options=LogReadOptions(), storage=storage)
    projection = Projection.of(_INGESTS, scan)
    for log in logs:
        log_range = WriteRange.cover_file(log, scan, projection, "pebble", numbered=True)
        for batch in log_range.decode(_INGESTS, Findings("skip")):
            names, keys, sequences = (batch.column(name) for name in ("operation", "key", "sequence"))
            _, ends = view_binary(names)
            lengths = np.isin(np.diff(ends), [len(name) for name in INGESTS])  # `info` waits for no imports
            for row in np.flatnonzero(lengths).tolist():
                if names[row].as_py() in INGESTS:
                    numbers = list(decode_varints(keys[row].as_py()))
                    led = tuple(decode_varints(batch.column("value")[row].as_py() or b""))[1:]
                    yield from ((number, sequences[row].as_py(), led) for number in numbers[:1])


def make_live_table(file: File, sequence: int | None, storage: Storage, options: TableReadOptions) -> LiveTable:
    """Return a table that the MANIFEST does not name, between the keys that are read of it.

    Pebble puts it on level 0.
    """
    import pyarrow.compute as pc

    smallest, end = None, b""
    for batch in read_entries(file, options, storage, [KEY, VALUE, OPERATION]):
        keys, ends = (
            batch.column(KEY),
            batch.filter(pc.equal(batch.column(OPERATION), make_scalar("delete_range", pa.string()))).column(VALUE),
        )
        first, last = pc.min_max(keys).values()
        smallest = first.as_py() if smallest is None else min(smallest, first.as_py())
        end = max(end, last.as_py() + b"\0", pc.max(ends).as_py() or b"")
    return LiveTable(file, 0, smallest or b"", end or b"\0", sequence=sequence)


def read_entries(
    file: File, options: TableReadOptions, storage: Storage, names: Iterable[str], findings: Findings | None = None
) -> Iterator[pa.RecordBatch]:
    """Return columns of the entries of a table that can be read; what cannot is added to findings."""
    scan = Scan(options=options, storage=storage)
    schema = pa.schema([SCHEMAS["internal"].field(name) for name in names])
    return TableRange.cover_file(file, scan, Projection.of(schema, scan)).decode(schema, findings or Findings("skip"))


def find_last_sequence(batches: Iterable[pa.RecordBatch], *, is_compacted: bool = False) -> int:
    """Return the highest sequence number of entries, 0 for none; -1 where some have no number of their own.

    Args:
        batches: The entries.
        is_compacted: Whether those without one are such that a compaction has taken it from.
    """
    import pyarrow.compute as pc

    last = 0
    for batch in batches:
        low, high = (limit.as_py() for limit in pc.min_max(batch.column(SEQUENCE)).values())
        if low == 0 and not is_compacted:
            return -1
        last = max(last, high or 0)
    return last


def _split_shared_tables(tables: Sequence[LiveTable]) -> list[LiveTable]:
    """Return the same tables; of the parts of a file each answers for what is before the next one.

    Where a part is a virtual table, each reads all of the file, and the first one answers for it.
    """
    parts: dict[str, list[int]] = {}
    for number in sorted(range(len(tables)), key=lambda number: tables[number].smallest):
        if tables[number].part:
            parts.setdefault(tables[number].file.path, []).append(number)
    reported = [table.reported for table in tables]
    for numbers in parts.values():
        # Only the first one answers for the file as such. The keys of two may begin with the same one.
        firsts = [b"", *(max(tables[number].smallest, b"\0") for number in numbers[1:])]
        virtual = next((number for number in numbers if tables[number].virtual is not None), None)
        for number, first, after in zip(numbers, firsts, [*firsts[1:], None], strict=True):
            reported[number] = first, after
            if virtual is not None:
                reported[number] = (b"", None) if number == virtual else (_NOWHERE, _NOWHERE)
    return [replace(table, reported=keys) for table, keys in zip(tables, reported, strict=True)]

"""Ranges of keys of a database, settled alone."""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from sawlog.damage import Damage, Findings, Tail, TailStatus
from sawlog.errors import FormatError, SawlogError
from sawlog.format import FILE_COLUMN, OFFSET_COLUMN, Fragment
from sawlog.leveldb_database.columns import (
    BLOB,
    ENTRY_SCHEMA,
    EXCISE,
    LIVE,
    RANGE,
    STAMPED_SCHEMA,
    Run,
    Stream,
    operation_names,
)
from sawlog.leveldb_database.layout import BLOB_NAME, Kind
from sawlog.leveldb_database.value_files import addressed
from sawlog.leveldb_database.version import DatabaseVersion, LiveTable
from sawlog.leveldb_log.options import ReadOptions as LogOptions
from sawlog.leveldb_log.payloads.recovery import Replay
from sawlog.leveldb_log.payloads.writes import WRITES_SCHEMA, WriteRange
from sawlog.leveldb_table.columns import SCHEMAS
from sawlog.leveldb_table.fragments import TableRange
from sawlog.leveldb_table.stamps import split_stamps
from sawlog.scan import Projection, Scan

if TYPE_CHECKING:
    from sawlog.leveldb_database.state import Settled
    from sawlog.leveldb_table.meta import TableMap
    from sawlog.storage import Source

LEVEL = "level"
LOG_LEVEL = -1
"""The level of what is in a log."""

STATE_SCHEMA = pa.schema(
    [
        pa.field("key", pa.binary(), nullable=False),
        pa.field("value", pa.binary(), nullable=False),
        pa.field("sequence", pa.int64(), nullable=False),
        pa.field("operation", pa.string(), nullable=False),
    ]
)
"""`rows` and `live`: one row per key that the database would answer with, in key order.

`operation` is `put`, or what else RocksDB keeps: `put_entity`, `put_blob_index` (the value is in a blob file), and
`merge` for operands, which stand newest first before the value that they are merged into; how, only the database knows.
"""
HISTORY_SCHEMA = pa.schema(
    [
        *STATE_SCHEMA,
        pa.field(LIVE, pa.bool_(), nullable=False),
        pa.field("file", pa.string(), nullable=False),
        pa.field(LEVEL, pa.int32(), nullable=False),
    ]
)
"""`all`: every entry that still stands in the files that are alive, deletions included; level -1 is that of logs."""

_MARKS = ("begin_prepare", "begin_persisted_prepare", "begin_unprepare", "end_prepare", "commit", "rollback")
_OF_RANGE_KEYS = ("range_key_set", "range_key_unset", "range_key_delete")
"""Pebble's range keys are no part of the state: they stand beside its keys."""


@dataclass(frozen=True)
class MissingTable(Fragment):
    """A table that the MANIFEST names, and that is not there."""

    def decode(self, schema: pa.Schema, findings: Findings) -> Iterator[pa.RecordBatch]:
        """See `Fragment.decode`."""
        del schema
        detail = "the MANIFEST names this table, and it is not there"
        findings.damage(Damage(self.path, 0, 0, Kind.MISSING_FILE.name.lower(), detail))
        yield from ()


@dataclass(frozen=True)
class KeyRange(Fragment):
    """The keys of a database in `[low, high)`.

    Attributes:
        version: The files.
        tables: Those tables that may hold such keys.
        low: The first user key.
        high: The user key behind the last one; `None`: there is no end.
    """

    version: DatabaseVersion
    tables: tuple[LiveTable, ...]
    low: bytes
    high: bytes | None

    def decode(self, schema: pa.Schema, findings: Findings) -> Iterator[pa.RecordBatch]:
        """See `Fragment.decode`. Damage is told when the merging of the files reaches it."""
        from sawlog.leveldb_database.merge import merged

        if not self.low:
            for name in self.version.missing:
                yield from MissingTable(self.scan, self.projection, name, 0).decode(schema, findings)
        every = self.scan.view == "all"
        try:
            for settled in merged(self._streams(findings), bytewise=self.version.bytewise):
                findings.rows += len(settled.order) if every else int(settled.live.sum())
                if settled.blobs:
                    yield from self._with_blobs(settled, schema, findings)
                elif schema.names:
                    yield from settled.batches(schema, _of_runs(settled.runs), every=every)
        except FileNotFoundError as error:
            raise SawlogError(
                f"{error.filename}: the file is gone: the database has changed while it was read;"
                " read it again, or read a copy"
            ) from error
        findings.tail = findings.tail or Tail(TailStatus.CLEAN, self.version.manifest.size, 0)

    def _with_blobs(self, settled: Settled, schema: pa.Schema, findings: Findings) -> Iterator[pa.RecordBatch]:
        """Entries with values in the places of those that lead to blob files; without values that are damaged."""
        from sawlog.leveldb_database.blobs import Blobs

        options = self.scan.options
        directory = posixpath.dirname(self.version.manifest.path)
        needed = pa.schema([*schema, *(field for field in STATE_SCHEMA if field.name not in schema.names)])
        batches = settled.batches(needed, _of_runs(settled.runs), every=self.scan.view == "all")
        ledger = self._apart(findings, owned=True)
        verify, longest = options.verify_checksums, options.max_blob_bytes
        with closing(Blobs(directory, self.scan.storage, ledger, verify=verify, longest=longest)) as blobs:
            for batch in blobs.resolved(batches):
                if schema.names:
                    yield batch.select(schema.names)
        findings.rows -= blobs.lost

    def _streams(self, findings: Findings) -> list[list[Stream]]:
        """Newest first: the logs, each table of level 0, and the tables of each other level."""
        groups = [[stream] for stream in self._log_streams(findings)]
        deeper: dict[int, list[Stream]] = {}
        for table in sorted(self.tables, key=lambda one: (one.level, one.smallest)):
            stream = self._table_stream(table, findings)
            if table.level == 0:
                groups.append([stream])
            else:
                deeper.setdefault(table.level, []).append(stream)
        return [*groups, *(streams for _, streams in sorted(deeper.items()))]

    def _bounds(self, table: LiveTable) -> tuple[bytes, bytes | None]:
        """Between which keys a table is read: what begins or ends in the range is read whole there.

        So nothing of it is lost, should it hold keys that the MANIFEST does not know of.
        """
        low, high = self._shared(table)
        if table.end is None:
            return low, high
        return max(low, table.smallest), table.end if high is None else min(high, table.end)

    def _shared(self, table: LiveTable) -> tuple[bytes, bytes | None]:
        """Where the range parts a table with the ranges before and behind; nothing where it does not."""
        low = self.low if table.smallest < self.low else b""
        return low, self.high if self.high is not None and table.largest >= self.high else None

    def _table_stream(self, table: LiveTable, findings: Findings) -> Stream:
        stamped = self.version.stamped
        options = self.version.entry_options(self.scan.options)
        low, high = self._bounds(table)
        above = (("key", ">=", low),) if low else ()
        bounds = (*above, ("key", "<", high)) if high is not None else above
        if self.version.bytewise:
            bounds += tuple((one.column, one.op, one.value) for one in self.projection.filters if one.column == "key")
        scan = Scan(filters=bounds, on_damage=findings.on_damage, options=options, storage=self.scan.storage)
        projection = Projection.of(SCHEMAS[options.keys], scan)
        file = table.file
        begins, ends = self._shared(table)
        whole = _Table(
            scan, projection, file.path, file.size, file, 0, file.size, pruned=True, begins=begins, ends=ends
        )
        batches = whole.decode(STAMPED_SCHEMA if stamped else ENTRY_SCHEMA, self._apart(findings, owned=not begins))
        if table.blobs:
            batches = (addressed(batch, table.blobs, BLOB) for batch in batches)
        inside = (_inside(batch, low, high) for batch in batches)
        return Stream(
            file.path, table.level, inside if table.end is None else (_clipped(one, low, table.end) for one in inside)
        )

    def _log_streams(self, findings: Findings) -> Iterator[Stream]:
        from sawlog.leveldb_database.state import sorted_batch

        options = LogOptions(verify_checksums=self.scan.options.verify_checksums)
        scan = Scan(view="writes", on_damage=findings.on_damage, options=options, storage=self.scan.storage)
        projection = Projection.of(WRITES_SCHEMA, scan)
        mode = self.scan.options.recovery
        replay = Replay(mode, self._apart(findings, owned=not self.low)) if mode is not None else None
        for file in self.version.logs:
            dialect = self.version.dialect
            whole = WriteRange(scan, projection, file.path, file.size, file, 0, file.size, synced=True, dialect=dialect)
            ledger = self._apart(findings, owned=not self.low)
            found = whole.to_batches(ledger) if replay is None else replay.batches(whole, WRITES_SCHEMA)
            batches = [_inside(self._of_family(batch), self.low, self.high) for batch in found]
            if not self.low and ledger.tail is not None and ledger.tail.unfinished:
                findings.tail = ledger.tail
            yield Stream(file.path, LOG_LEVEL, iter([sorted_batch(pa.concat_batches(batches))] if batches else []))

    def _of_family(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The operations of a log on keys of the column family."""
        import pyarrow.compute as pc

        if pc.any(pc.is_in(batch.column("operation"), value_set=pa.array(_MARKS))).as_py():
            raise FormatError(
                f"{self.path}: the logs hold prepared transactions, whose fate a database settles when it is opened;"
                ' read them with view="writes", latest=True'
            )
        if pc.any(pc.equal(batch.column("operation"), "ingest_sst")).as_py():
            raise FormatError(
                f"{self.path}: the logs tell of tables that the MANIFEST does not name yet; a database takes them in"
                ' when it is opened: read its tables, and its logs with view="writes"'
            )
        family = pc.equal(batch.column("column_family"), self.version.family)
        of_ranges = pc.is_in(batch.column("operation"), value_set=pa.array(_OF_RANGE_KEYS))
        kept = batch.filter(pc.and_(pc.and_not(family, of_ranges), pc.is_valid(batch.column("key"))))
        codes = pc.index_in(kept.column("operation"), operation_names()).cast(pa.uint8())
        codes = pc.if_else(pc.equal(codes, EXCISE), pa.array([RANGE], pa.uint8())[0], codes)
        columns = [kept.column("sequence"), codes, kept.column("key"), pc.fill_null(kept.column("value"), b"")]
        if not self.version.stamped:
            return pa.RecordBatch.from_arrays(columns, schema=ENTRY_SCHEMA)
        columns[2], stamps = split_stamps(columns[2], self.path)
        return pa.RecordBatch.from_arrays([*columns, stamps], schema=STAMPED_SCHEMA)

    def _apart(self, findings: Findings, *, owned: bool) -> Findings:
        """A ledger for one file, whose damage goes into that of the range that the file begins in."""
        return _Forwarded(findings, owned=owned)


@dataclass(frozen=True)
class BlobDamage(KeyRange):
    """Which values of a range of keys are damaged in their blob files; refused where its entries cannot be settled."""

    def decode(self, schema: pa.Schema, findings: Findings) -> Iterator[pa.RecordBatch]:
        """See `Fragment.decode`."""
        ledger = Findings("skip", drained=True)
        for _ in super().decode(pa.schema([]), ledger):
            pass
        for damage in ledger.damages:
            if BLOB_NAME.match(posixpath.basename(damage.path)):
                findings.damage(damage)
        yield from ()


def _inside(batch: pa.RecordBatch, low: bytes, high: bytes | None) -> pa.RecordBatch:
    """The entries on keys in `[low, high)`; a range deletion counts where it reaches into it."""
    import pyarrow.compute as pc

    from sawlog.leveldb_database.state import within

    if (not low and high is None) or within(batch, low, high):
        return batch
    keys = batch.column("key")
    if low:
        deletion = pc.equal(batch.column("operation"), RANGE)
        reach = pc.if_else(deletion, pc.greater(batch.column("value"), low), pc.greater_equal(keys, low))
        batch = batch.filter(reach)
        keys = batch.column("key")
    return batch if high is None else batch.filter(pc.less(keys, high))


def _clipped(batch: pa.RecordBatch, low: bytes, high: bytes) -> pa.RecordBatch:
    """Entries of a part of a table, whose range deletions end where it does."""
    import numpy as np

    places = np.flatnonzero(np.asarray(batch.column("operation")) == RANGE).tolist()
    for name, bound, limit in (("key", max, low), ("value", min, high)) if places else ():
        found = batch.column(name).to_pylist()
        for place in places:
            found[place] = bound(found[place], limit)
        at = batch.schema.get_field_index(name)
        batch = batch.set_column(at, batch.schema.field(at), pa.array(found, pa.binary()))
    return batch


@dataclass(frozen=True)
class _Table(TableRange):
    """A table whose range deletions are read before its other entries.

    Attributes:
        begins: From which key on the range of keys has a share in the table.
        ends: The key behind it; `None` where the table ends in the range.
    """

    begins: bytes = b""
    ends: bytes | None = None

    def read(self, table: TableMap, source: Source, schema: pa.Schema, findings: Findings) -> Iterator[pa.RecordBatch]:
        """See `TableRange.read`."""
        import numpy as np

        from sawlog.leveldb_table.rows import RowReader
        from sawlog.leveldb_table.spans import Role

        if isinstance(findings, _Forwarded) and table.bounds is not None:
            findings.owns = partial(self._owns, table)
        reader = RowReader(self, table, source, schema, findings)
        first = reader.spans["role"] == Role.RANGE_DELETES
        reader.spans = np.concatenate([reader.spans[first], reader.spans[~first]])
        yield from reader.batches()

    def _owns(self, table: TableMap, offset: int) -> bool | None:
        """Whether the damage of a data block is this range's to tell: the one with the block's separator.

        No other range need read the block. `None` for what is no data block.
        """
        import numpy as np

        found = np.flatnonzero(table.handles["offset"] == offset)
        if not len(found):
            return None
        separator = table.separator(int(found[0]))
        return separator >= self.begins and (self.ends is None or separator < self.ends)


def _of_runs(runs: Sequence[Run]) -> dict[str, list[Any]]:
    """The columns that are the same for all entries of a file."""
    return {
        "file": [posixpath.basename(run.path) for run in runs],
        FILE_COLUMN: [run.path for run in runs],
        LEVEL: [run.level for run in runs],
        OFFSET_COLUMN: [0] * len(runs),
    }


class _Forwarded(Findings):
    """A ledger that hands damage on, or keeps it to itself.

    Attributes:
        owns: Whether damage at an offset is handed on; `None` where that is as for the file.
    """

    __slots__ = ("_every", "_into", "owns")

    def __init__(self, findings: Findings, *, owned: bool) -> None:
        super().__init__(findings.on_damage)
        self._every = findings
        self._into = findings if owned or findings.on_damage == "fail" else Findings("skip")
        self.owns: Callable[[int], bool | None] = lambda offset: None

    def damage(self, damage: Damage) -> None:
        owned = self.owns(damage.offset)
        into = self._into if owned is None or self.on_damage == "fail" else self._every if owned else Findings("skip")
        into.damage(damage)

    def tally(self, kind: str, count: int, length: int) -> None:
        self._into.tally(kind, count, length)

    @property
    def listing(self) -> bool:
        return self._into.listing

"""Writing collections in V1: insert, delta, stats and DDL logs that Milvus 2.0 to 2.6 imports. Section 7."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from sawlog.arrow import combine_column, find_index, make_constant, make_fixed_array, make_scalar, view_values
from sawlog.errors import OptionError, SchemaError
from sawlog.format.contract import FILE_COLUMN, OFFSET_COLUMN, Writer
from sawlog.milvus import layout
from sawlog.milvus.encode import (
    LogPlace,
    encode,
    encode_ddl_logs,
    encode_delta_log,
    encode_empty_log,
    encode_insert_log,
    measure_column,
)
from sawlog.milvus.layout import COLLECTION_COLUMN, DDL_EVENTS, PARTITION_COLUMN, SEGMENT_COLUMN, DataType, EventType
from sawlog.milvus.metadata.written import WrittenCollection, WrittenLog, WrittenSegment, make_documents
from sawlog.milvus.options import WriteOptions
from sawlog.milvus.stats import encode_stats, make_stats_log
from sawlog.milvus.types import ROW_ID, TIMESTAMP, Field, make_field
from sawlog.storage import Staged, StagedFile, Storage, discard_staged
from sawlog.storage.staging import find_published_path

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_DEFAULT_TIMESTAMP = 1_577_836_800_000 << layout.LOGICAL_BITS
"""Of rows that have none: 2020-01-01. Milvus gives imported rows new ones."""

_TASK_IDS = 1 << 28
"""Ids that one task of a job has for itself."""
_TASKS = 1 << 16
_JOBS = 1 << 19
_MICRO_BATCH = re.compile(r"(.+)-(\d+)")
"""The name of a job that is one of a stream: the query, and its number."""

_NOT_STORED = (FILE_COLUMN, OFFSET_COLUMN, COLLECTION_COLUMN, PARTITION_COLUMN, SEGMENT_COLUMN)
_ROUTES = {"partition": PARTITION_COLUMN, "segment": SEGMENT_COLUMN, "collection": COLLECTION_COLUMN}
_KEY_TYPES = (DataType.Int64, DataType.VarChar)


def make_task_options(options: WriteOptions, job: str, task: int) -> WriteOptions:
    """Return the options with ids that no other task of any job uses."""
    if task >= _TASKS:
        raise OptionError(f"writing milvus_binlog: at most {_TASKS} tasks can write; repartition first")
    # The micro-batches of a stream take one number after the other, so that they do not collide by chance.
    of_stream = _MICRO_BATCH.fullmatch(job)
    name, step = (of_stream[1], int(of_stream[2])) if of_stream else (job, 0)
    number = (int.from_bytes(hashlib.sha256(name.encode()).digest()[:4], "big") + step) % _JOBS
    return replace(options, first_id=(number * _TASKS + task) * _TASK_IDS + _TASK_IDS // 2)


def make_writer(path: str, schema: pa.Schema, options: WriteOptions, storage: Storage, marker: str = "") -> TreeWriter:
    """Return the writer for what the options call the content. See `Format.writer`; the path is a root."""
    kinds: dict[str, type[TreeWriter]] = {"inserts": InsertWriter, "deletes": DeltaWriter, "ddl": DDLWriter}
    return kinds[options.content](path, schema, options, storage, marker)


class TreeWriter(Writer):
    """Stages files below a root."""

    def __init__(self, path: str, schema: pa.Schema, options: WriteOptions, storage: Storage, marker: str = "") -> None:
        self.storage = storage
        self.schema = schema
        self.options = options
        self._tree = path.rstrip("/")
        self._root = f"{self._tree}/{layout.BACKUP_LOGS}" if options.tree == "backup" else self._tree
        self._written: dict[tuple[int, int, int], WrittenSegment] = {}
        self._marker = marker
        self._staged: list[Staged] = []
        self._open: StagedFile | None = None
        self._rows = 0
        self._next = options.first_id
        self._check_ids()

    def abort(self) -> None:
        if self._open is not None:
            self._open.discard(self.storage)
            self._open = None
        discard_staged(self.storage, self._staged)
        self._staged = []

    def stage(self, place: str, data: bytes) -> None:
        """Write one file below the root, not yet visible."""
        self._stage(f"{self._root}/{place}", data)

    def _stage(self, path: str, data: bytes) -> None:
        self._open = self.storage.stage(path, self._marker)
        self._open.write(data)
        self._staged.append(self._open.finish())
        self._open = None

    def note_segment(self, place: LogPlace) -> WrittenSegment:
        """Return the record of what was written of a segment."""
        key = (place.collection, place.partition, place.segment)
        return self._written.setdefault(key, WrittenSegment(place.partition, place.segment))

    def stage_metadata(self, fields: tuple[Field, ...] = ()) -> None:
        """Write a backup's metadata, with what was written, not yet visible."""
        if self.options.tree != "backup" or not self._written:
            return
        collections = []
        for id in sorted({collection for collection, _, _ in self._written}):
            segments = [segment for (collection, _, _), segment in self._written.items() if collection == id]
            name = self.options.collection_name if id == self.options.collection_id else f"_{id}"
            collections.append((WrittenCollection(id, name, fields, self.options.partitions), segments))
        for path, data in make_documents(self._tree, collections, self.storage).items():
            self._stage(path, data)

    def make_id(self) -> int:
        """Return an id that was not used before."""
        self._next += 1
        return self._next - 1

    def refuse_existing(self, place: str) -> None:
        """Keep out of what is already there. A micro-batch has a directory of its own, and may be written again.

        Raises:
            OptionError: When it is.
        """
        if _MICRO_BATCH.fullmatch(self._marker):
            return
        path = f"{find_published_path(self._root)}/{place}"
        if self.storage.exists(path) and self.storage.find(path):  # a dead job leaves empty directories
            raise OptionError(f"{path} exists; write with another first_id, partition_id or collection_id")

    def _check_ids(self) -> None:
        _ = self.options.partitions
        for name in ("collection_id", "partition_id", "first_id", "segment_bytes", "binlog_bytes"):
            value = getattr(self.options, name)
            if not 0 < value < layout.MAX_TSO:
                raise OptionError(f"writing milvus_binlog: {name}={value}: expected a positive int64")
        stamp = self.options.timestamp
        if stamp is not None and not 0 < stamp < layout.MAX_TSO:
            raise OptionError(f"writing milvus_binlog: timestamp={stamp}: expected a TSO")


@dataclass(slots=True)
class _Segment:
    """A segment being written: its rows that wait for their binlog, and statistics of those that have one."""

    place: LogPlace
    chunks: list[list[pa.Array]] = field(default_factory=list)
    waiting: int = 0
    size: int = 0
    stats: list[dict[str, Any]] = field(default_factory=list)


class InsertWriter(TreeWriter):
    """Writes insert logs and stats logs.

    Raises:
        SchemaError: When a column has no Milvus type, or there is no primary key.
    """

    def __init__(self, path: str, schema: pa.Schema, options: WriteOptions, storage: Storage, marker: str = "") -> None:
        super().__init__(path, schema, options, storage, marker)
        self.fields = self._make_user_fields(schema)
        self.primary = self._find_primary()
        self._stored_fields = (ROW_ID, TIMESTAMP, *self.fields)
        self._segments: dict[tuple[int, int], _Segment] = {}
        self._places: set[LogPlace] = set()
        self._numbered = 0
        for name in (ROW_ID.name, TIMESTAMP.name):
            if name in schema.names and not pa.types.is_integer(schema.field(name).type):
                raise SchemaError(f"column {name!r} is {schema.field(name).type}; expected int64")

    def write(self, batch: pa.RecordBatch) -> None:
        if not batch.num_rows:
            return
        for place, rows in _route_rows(batch, self.options):
            rows_of_key = batch if rows is None else batch.take(rows)
            self._add(place, rows_of_key)
        self._rows += batch.num_rows

    def finish(self) -> list[Staged]:
        for segment in self._segments.values():
            self._close(segment)
        self._segments = {}
        if not self._rows and not self._marker:
            self._stage_empty()
        self.stage_metadata(tuple(replace(field, primary=field.id == self.primary.id) for field in self.fields))
        return self._staged

    def _stage_empty(self) -> None:
        """Write a segment without rows, whose files say which fields the collection has."""
        segment = self._find_segment(LogPlace(self.options.collection_id, self.options.partition_id, -1))
        self._segments = {}
        place = segment.place
        noted = self.note_segment(place)
        stamp = self.options.timestamp or _DEFAULT_TIMESTAMP
        for stored_field in self._stored_fields:
            data = encode_empty_log(place, stored_field, stamp)
            directory = f"{layout.INSERT_LOG}/{place.collection}/{place.partition}/{place.segment}/{stored_field.id}"
            name = f"{directory}/{self.make_id()}"
            self.stage(name, data)
            noted.inserts.setdefault(stored_field.id, []).append(WrittenLog(name, len(data), 0, stamp, stamp))

    def _make_user_fields(self, schema: pa.Schema) -> tuple[Field, ...]:
        """Return fields of the columns: with the ids in their metadata, else numbered from 100 as Milvus would."""
        stored = [field for field in schema if field.name not in (*_NOT_STORED, ROW_ID.name, TIMESTAMP.name)]
        fields = [make_field(field, layout.FIRST_USER_FIELD + index) for index, field in enumerate(stored)]
        ids = [field.id for field in fields]
        if not fields or len(set(ids)) < len(ids) or min(ids) < layout.FIRST_USER_FIELD:
            raise SchemaError(f"field ids {ids}: expected at least one column, and ids from 100 on, each once")
        for column in fields:
            if not column.is_writable:
                raise SchemaError(
                    f"column {column.name!r}: {column.type.name} with {column.dim} dimensions cannot be written"
                )
        return tuple(fields)

    def _find_primary(self) -> Field:
        named = self.options.primary_key
        if named is not None:
            candidates = [field for field in self.fields if field.name == named]
        else:
            candidates = [field for field in self.fields if field.primary] or [
                field for field in self.fields if field.type in _KEY_TYPES
            ]
        if not candidates or candidates[0].type not in _KEY_TYPES:
            expected = f"column {named!r}" if named is not None else "an int64 or string column"
            raise SchemaError(
                f"a collection needs a primary key: expected {expected} among {', '.join(self.schema.names)}"
            )
        return candidates[0]

    def _add(self, place: LogPlace, batch: pa.RecordBatch) -> None:
        """Put rows into a segment, in pieces no larger than a binlog."""
        required = {self.primary.id: replace(self.primary, nullable=False)}
        columns = [encode(required.get(field.id, field), batch.column(field.name), self._rows) for field in self.fields]
        columns = [self._make_row_ids(batch), self._make_timestamps(batch), *columns]
        size = max(1, sum(map(measure_column, columns)))
        step = -(-batch.num_rows * self.options.binlog_bytes // size)
        for start in range(0, batch.num_rows, step):
            count = min(step, batch.num_rows - start)
            segment = self._find_segment(place)
            segment.chunks.append([column.slice(start, count) for column in columns])
            segment.waiting += -(-size * count // batch.num_rows)
            if segment.waiting >= self.options.binlog_bytes:
                self._flush(segment)
            if segment.size + segment.waiting >= self.options.segment_bytes and place.segment < 0:
                self._close(segment)
                del self._segments[place.partition, place.segment]

    def _find_segment(self, place: LogPlace) -> _Segment:
        key = (place.partition, place.segment)
        if key not in self._segments:
            new_place = replace(place, segment=self.make_id()) if place.segment < 0 else place
            if new_place not in self._places:
                self.refuse_existing(
                    f"{layout.INSERT_LOG}/{new_place.collection}/{new_place.partition}/{new_place.segment}"
                )
                self._places.add(new_place)
            self._segments[key] = _Segment(new_place)
        return self._segments[key]

    def _make_row_ids(self, batch: pa.RecordBatch) -> pa.Array:
        import numpy as np

        if ROW_ID.name in batch.schema.names:
            return encode(ROW_ID, batch.column(ROW_ID.name), self._rows)
        first = self.options.first_id + self._numbered
        self._numbered += batch.num_rows
        return make_fixed_array(pa.int64(), np.arange(first, first + batch.num_rows))

    def _make_timestamps(self, batch: pa.RecordBatch) -> pa.Array:
        import pyarrow.compute as pc

        if TIMESTAMP.name not in batch.schema.names:
            return make_constant(self.options.timestamp or _DEFAULT_TIMESTAMP, pa.int64(), batch.num_rows)
        times = encode(TIMESTAMP, batch.column(TIMESTAMP.name), self._rows)
        if pc.min(times).as_py() <= 0:
            row = find_index(pc.less_equal(times, make_scalar(0, times.type)), True)
            raise SchemaError(f"column {TIMESTAMP.name!r}, row {self._rows + row}: {times[row]}; a TSO is positive")
        return times

    def _flush(self, segment: _Segment) -> None:
        """Write the waiting rows of a segment as one binlog batch, in the order of their row ids."""
        import pyarrow.compute as pc

        if not segment.chunks:
            return
        columns = [pa.chunked_array(chunks) for chunks in zip(*segment.chunks, strict=True)]
        columns = _sort_rows(columns)
        limits = pc.min_max(columns[1])
        first, last = limits["min"].as_py(), limits["max"].as_py()
        place = segment.place
        directory = f"{place.collection}/{place.partition}/{place.segment}"
        rows = len(columns[0])
        noted = self.note_segment(place)
        noted.rows += rows
        for stored_field, column in zip(self._stored_fields, columns, strict=True):
            data = encode_insert_log(place, stored_field, column, first, last)
            name = f"{layout.INSERT_LOG}/{directory}/{stored_field.id}/{self.make_id()}"
            self.stage(name, data)
            noted.inserts.setdefault(stored_field.id, []).append(WrittenLog(name, len(data), rows, first, last))
        if self.options.stats:
            keys = columns[self._stored_fields.index(self.primary)].combine_chunks()
            entry = make_stats_log(self.primary.id, keys)
            segment.stats.append(entry)
            name = f"{layout.STATS_LOG}/{directory}/{self.primary.id}/{self.make_id()}"
            self.stage(name, encode_stats([entry], compound=False))
        segment.chunks = []
        segment.size += segment.waiting
        segment.waiting = 0

    def _close(self, segment: _Segment) -> None:
        self._flush(segment)
        if segment.stats:
            place = segment.place
            directory = f"{place.collection}/{place.partition}/{place.segment}/{self.primary.id}"
            data = encode_stats(segment.stats, compound=True)
            self.stage(f"{layout.STATS_LOG}/{directory}/{layout.COMPOUND_STATS}", data)


class DeltaWriter(TreeWriter):
    """Writes one delta log per segment.

    Raises:
        SchemaError: When there is no column `pk`, or no timestamps.
    """

    def __init__(self, path: str, schema: pa.Schema, options: WriteOptions, storage: Storage, marker: str = "") -> None:
        super().__init__(path, schema, options, storage, marker)
        if "pk" not in schema.names or ("timestamp" not in schema.names and options.timestamp is None):
            raise SchemaError(f"deletes have the columns pk and timestamp; found {', '.join(schema.names)}")
        kind = schema.field("pk").type
        if not (pa.types.is_int64(kind) or pa.types.is_string(kind) or pa.types.is_large_string(kind)):
            raise SchemaError(f"column 'pk' is {kind}; expected int64 or string")
        self._key = pa.int64() if pa.types.is_int64(kind) else pa.string()
        self._parts: dict[LogPlace, list[tuple[pa.Array, pa.Array]]] = {}

    def write(self, batch: pa.RecordBatch) -> None:
        for place, rows in _route_rows(batch, self.options):
            rows_of_key = batch if rows is None else batch.take(rows)
            for name in ("pk", "timestamp"):
                if name in rows_of_key.schema.names and rows_of_key.column(name).null_count:
                    raise SchemaError(f"column {name!r}, row {self._rows} and following: null in a delete")
            keys = rows_of_key.column("pk").cast(self._key)
            has_timestamp = "timestamp" in rows_of_key.schema.names
            stamps = (
                rows_of_key.column("timestamp")
                if has_timestamp
                else make_constant(self.options.timestamp, pa.int64(), len(keys))
            )
            times = stamps.cast(pa.int64())
            new_place = place if place.segment >= 0 else replace(place, segment=self.options.first_id)
            self._parts.setdefault(new_place, []).append((keys, times))
        self._rows += batch.num_rows

    def finish(self) -> list[Staged]:
        if not self._rows and not self._marker:
            raise SchemaError("there are no deletes to be written: Milvus has no delta log without rows")
        for place, parts in self._parts.items():
            directory = f"{layout.DELTA_LOG}/{place.collection}/{place.partition}/{place.segment}"
            keys = pa.concat_arrays([part[0] for part in parts])
            times = pa.concat_arrays([part[1] for part in parts])
            if len(keys):
                name = f"{directory}/{self.make_id()}"
                self.refuse_existing(name)
                data = encode_delta_log(place, keys, times)
                self.stage(name, data)
                self.note_segment(place).deltas.append(WrittenLog(name, len(data), len(keys)))
        self._parts = {}
        self.stage_metadata()
        return self._staged


class DDLWriter(TreeWriter):
    """Writes DDL logs: a file of timestamps and one of requests.

    Raises:
        SchemaError: When there are other columns than `type`, `timestamp` and `request`.
    """

    def __init__(self, path: str, schema: pa.Schema, options: WriteOptions, storage: Storage, marker: str = "") -> None:
        super().__init__(path, schema, options, storage, marker)
        if not {"type", "timestamp", "request"} <= set(schema.names):
            raise SchemaError(f"DDL has the columns type, timestamp and request; found {', '.join(schema.names)}")
        self._requests: list[tuple[EventType, int, bytes]] = []

    def write(self, batch: pa.RecordBatch) -> None:
        columns = [batch.column(name).to_pylist() for name in ("type", "timestamp", "request")]
        for kind, time, request in zip(*columns, strict=True):
            type = EventType.__members__.get(str(kind))
            if type not in DDL_EVENTS or type is None or time is None or time <= 0 or request is None:
                kinds = ", ".join(EventType(code).name for code in sorted(DDL_EVENTS))
                raise SchemaError(
                    f"row {self._rows}: expected type ({kinds}), timestamp and request, found {kind}, {time}"
                )
            self._requests.append((type, time, request if isinstance(request, bytes) else str(request).encode()))
            self._rows += 1

    def finish(self) -> list[Staged]:
        if not self._rows and not self._marker:
            raise SchemaError("there are no requests to be written: Milvus has no DDL log without rows")
        if self._requests:
            types, times, requests = zip(*self._requests, strict=True)
            stamps, ddl = encode_ddl_logs(self.options.collection_id, types, times, requests)
            base = f"{layout.DDL_LOG}/{self.options.collection_id}"
            log = self.make_id()
            for name, data in ((f"{base}/ts/{log}", stamps), (f"{base}/ddl/{log}", ddl)):
                self.refuse_existing(name)
                self.stage(name, data)
        self._requests = []
        return self._staged


def _sort_rows(columns: Sequence[pa.ChunkedArray]) -> list[pa.ChunkedArray]:
    """Return rows by ascending row id, as Milvus stores them."""
    import numpy as np

    ids: NDArray[np.int64] = view_values(combine_column(columns[0]), np.int64)
    if (np.diff(ids) > 0).all():
        return list(columns)
    order = np.argsort(ids, kind="stable")
    if (np.diff(ids[order]) == 0).any():
        twice = ids[order][:-1][np.diff(ids[order]) == 0][0]
        raise SchemaError(f"column {ROW_ID.name!r}: the id {twice} occurs twice in a segment")
    return [column.take(make_fixed_array(pa.int64(), order)) for column in columns]


def _route_rows(batch: pa.RecordBatch, options: WriteOptions) -> Iterator[tuple[LogPlace, pa.Array | None]]:
    """Yield which rows go where: by the columns that say so, else by the options. A segment below 0 is a new one."""
    import numpy as np

    columns: Mapping[str, pa.Array] = {
        key: batch.column(name)
        for key, names in ((key, (hidden, key)) for key, hidden in _ROUTES.items())
        for name in names
        if name in batch.schema.names and (name.startswith("_") or options.content == "deletes")
    }
    defaults = {"collection": options.collection_id, "partition": options.partition_id, "segment": -1}
    if not columns:
        yield LogPlace(**defaults), None
        return
    for name, column in columns.items():
        if column.null_count:
            raise SchemaError(f"column {name!r} holds null; expected an id for every row")
    names = list(columns)
    ids = np.stack([view_values(columns[name].cast(pa.int64()), np.int64) for name in names], axis=1)
    unique, inverse = np.unique(ids, axis=0, return_inverse=True)
    for index, values in enumerate(unique.tolist()):
        place = LogPlace(**{**defaults, **dict(zip(names, values, strict=True))})
        rows = None if len(unique) == 1 else make_fixed_array(pa.int64(), np.flatnonzero(inverse.reshape(-1) == index))
        yield place, rows

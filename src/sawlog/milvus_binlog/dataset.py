"""Files by themselves: one binlog of any kind as a table, without the collection that it belongs to."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

import pyarrow as pa

from sawlog.arrow import constant_string
from sawlog.damage import Findings
from sawlog.errors import FormatError, OptionError, SchemaError
from sawlog.format import FILE_COLUMN, Dataset, Format, Fragment, Scan
from sawlog.milvus_binlog import envelope as _envelope
from sawlog.milvus_binlog import layout, paths
from sawlog.milvus_binlog.collection.infer import file_fields
from sawlog.milvus_binlog.columns import decode
from sawlog.milvus_binlog.envelope import Descriptor, Envelope, Event
from sawlog.milvus_binlog.fragments import (
    DELETES_SCHEMA,
    EVENTS_SCHEMA,
    DeltaFragment,
    EventsFragment,
    FileFragment,
)
from sawlog.milvus_binlog.layout import DDL_EVENTS, DataType, EventType, Kind
from sawlog.milvus_binlog.metadata.model import user_schema
from sawlog.milvus_binlog.options import ReadOptions
from sawlog.milvus_binlog.payloads.payload import ColumnStream, Extent, Payload, UnreadableError, batch_rows
from sawlog.milvus_binlog.source import open_log
from sawlog.milvus_binlog.stats import BM25_SCHEMA, STATS_SCHEMA, bm25_batch, check_stats, stats_batch
from sawlog.milvus_binlog.types import SYSTEM, Field
from sawlog.storage import File, Source, Storage

Content = Literal["insert", "delta", "ddl", "index", "columns", "stats", "bm25"]

DDL_SCHEMA = pa.schema(
    [
        pa.field("type", pa.string(), nullable=False),
        pa.field("timestamp", pa.int64(), nullable=False),
        pa.field("request", pa.binary()),
    ]
)
"""One row per request: what it asks for, when, and the request itself (a protobuf message)."""
INDEX_SCHEMA = pa.schema([pa.field("data", pa.large_binary(), nullable=False)])
"""The bytes of one slice of an index."""
LEGACY_COLUMN = layout.PAYLOAD_COLUMN


@dataclass(frozen=True, slots=True)
class Subject:
    """What a file holds: its content, and the fields of its columns where it has some."""

    content: Content
    fields: tuple[Field, ...] = ()
    key: pa.DataType | None = None


def subject_of(file: File, storage: Storage, options: ReadOptions) -> Subject:
    """Look into a file.

    Raises:
        FormatError: When it is no Milvus file, or so damaged that it does not say what it holds.
    """
    log = paths.parse(file)
    kind = log.kind if log is not None else ""
    with closing(open_log(file, storage)) as source:
        head = bytes(source.window(0, 4096))
        shape = _envelope.sniff(head)
        if kind == layout.BM25_STATS:
            return Subject("bm25")
        if kind == layout.STATS_LOG or shape == "stats":
            return Subject("stats")
        if shape not in ("v1", "parquet"):
            raise FormatError(f"{file.path}: {_envelope.explain(head)}")
        try:
            if shape == "parquet":
                return _parquet_subject(source, file, storage, options, kind)
            return _v1_subject(source, file, storage, options)
        except UnreadableError as error:
            raise FormatError(str(error)) from None


def _parquet_subject(source: Source, file: File, storage: Storage, options: ReadOptions, kind: str) -> Subject:
    fields = file_fields(file, storage, options.max_page_bytes, -1)
    ids = [one.id for one in fields]
    if kind == layout.DELTA_LOG or (not kind and ids == [0, 1]):
        key = pa.int64() if fields[0].type is DataType.Int64 else pa.string()
        return Subject("delta", key=key)
    return Subject("columns", tuple(fields))


def _v1_subject(source: Source, file: File, storage: Storage, options: ReadOptions) -> Subject:
    quiet = Findings("skip", drained=True)
    found = _envelope.read_envelope(source, file.path, quiet)
    if found is None:
        raise FormatError(str(quiet.damages[0]))
    if found.descriptor.encrypted or not found.events:
        known = found.descriptor.payload_type in DataType.__members__.values()
        if not known:
            raise FormatError(
                str(quiet.damages[0]) if quiet.damages else f"{file.path}: no event behind the descriptor"
            )
        return Subject("insert", (_field(found.descriptor, None),))
    first = found.events[0].type
    if first is EventType.DELETE and found.descriptor.field in (layout.DELTA_FIELD, 0):
        return Subject("delta", key=_key_type(file, storage, options))
    if first is EventType.INDEX_FILE:
        return Subject("index")
    if first in DDL_EVENTS and found.descriptor.payload_type == DataType.String:
        return Subject("ddl")
    (field,) = file_fields(file, storage, options.max_page_bytes, _id(found.descriptor, file))
    return Subject("insert", (_field(found.descriptor, field),))


def _id(descriptor: Descriptor, file: File) -> int:
    """The field id by the descriptor; by the path where it has none."""
    log = paths.parse(file)
    return log.field if descriptor.field < 0 and log is not None else descriptor.field


def _field(descriptor: Descriptor, field: Field | None) -> Field:
    if field is None:
        field = Field(descriptor.field, "", DataType(descriptor.payload_type))
    system = {one.id: one.name for one in SYSTEM}
    name = system.get(field.id, LEGACY_COLUMN if field.id < 0 else str(field.id))
    return replace(field, name=name)


def _key_type(file: File, storage: Storage, options: ReadOptions) -> pa.DataType:
    from sawlog.milvus_binlog.deletes.log import read_deletes

    some = next(read_deletes(file, storage, options.max_page_bytes, Findings("skip")), None)
    return some.keys.type if some is not None else pa.string()


class LooseDataset(Dataset):
    """Files by themselves, all of them of one kind."""

    def __init__(self, format: Format, files: Sequence[File], scan: Scan) -> None:
        self._scan = scan
        self._options: ReadOptions = scan.options
        self._paths = list(files)
        super().__init__(format, files, scan)

    @cached_property
    def subject(self) -> Subject:
        """What the first file holds; the others have to hold the same.

        Raises:
            FormatError: When it is no Milvus file.
        """
        subject = subject_of(self._paths[0], self._scan.storage, self._options)
        if self._options.schema is None:
            return subject
        named = {one.id: one for one in user_schema(self._options.schema, self._scan.storage)[1]}
        return replace(subject, fields=tuple(named.get(one.id, one) for one in subject.fields))

    def view_schema(self) -> pa.Schema:
        """See the views of the format."""
        view = self._scan.view
        if view == "events":
            return EVENTS_SCHEMA
        subject = self.subject
        if view == "deletes" or (view == "rows" and subject.content == "delta"):
            if subject.content != "delta":
                raise OptionError(f"{self._paths[0].path}: view deletes is for delta logs; this is {subject.content}")
            return pa.schema([pa.field("pk", subject.key or pa.string(), nullable=False), *DELETES_SCHEMA])
        if view == "segments":
            raise OptionError("view segments is for collections; name the directory above insert_log")
        known = {"ddl": DDL_SCHEMA, "index": INDEX_SCHEMA, "stats": STATS_SCHEMA, "bm25": BM25_SCHEMA}.get(
            subject.content
        )
        return known if known is not None else pa.schema([one.arrow() for one in subject.fields])

    def plan(self, task_bytes: int | None) -> Iterator[Fragment]:
        """One fragment per file."""
        view = self.scan.view
        for file in self.files:
            common = (self.scan, self.projection, file.path, file.size, file)
            log = paths.parse(file)
            if view == "events":
                yield EventsFragment(*common, log)
            elif view == "damage":
                yield FileFragment(*common, log)
            elif self.subject.content == "delta":
                place = self._place(file)
                yield DeltaFragment(*common, place, deletes_only=False)
            else:
                yield LooseFragment(*common, self.subject)

    def _place(self, file: File) -> tuple[int, int, int]:
        """Ids of collection, partition and segment: by the descriptor, or by the path."""
        with closing(open_log(file, self.scan.storage)) as source:
            found = None
            if _envelope.sniff(bytes(source.window(0, 16))) == "v1":
                found = _envelope.read_envelope(source, file.path, Findings("skip"))
        if found is not None:
            return found.descriptor.collection, found.descriptor.partition, found.descriptor.segment
        log = paths.parse(file)
        return (log.collection, log.partition, log.segment) if log is not None else (0, -1, -1)

    def verify(self, task_bytes: int | None = None, advance: Any = None, *, every: bool = False) -> Iterator[Any]:
        """See `Dataset.verify`."""
        checked = type(self)(self.format, self.files, replace(self.scan, view="damage", columns=None, filters=()))
        yield from Dataset.verify(checked if self.scan.view != "damage" else self, task_bytes, advance, every=every)

    def info(self) -> dict[str, Any]:
        """What the headers of the first file say."""
        file = self.files[0]
        quiet = Findings("skip", drained=True)
        with closing(open_log(file, self.scan.storage)) as source:
            head = bytes(source.window(0, 4096))
            shape = _envelope.sniff(head)
            if shape != "v1":
                return {"content": self.subject.content, "envelope": "none", **self._bare_facts(source, file, shape)}
            found = _envelope.read_envelope(source, file.path, quiet)
            if found is None:
                return {"envelope": str(quiet.damages[0])}
            return {**_facts(found), **self._payload_facts(found, source, file)}

    def _bare_facts(self, source: Source, file: File, shape: str) -> dict[str, Any]:
        if shape != "parquet":
            return {}
        try:
            payload = Payload(source, file.path, Extent(0, source.size), self._options.max_page_bytes)
        except UnreadableError as error:
            return {"payload": str(error)}
        stored = {
            key.decode(): value.decode("utf-8", "replace")
            for key, value in (payload.file.metadata.metadata or {}).items()
        }
        keys = ("storage_version", layout.V2_MARK.decode())
        return {**_payload_facts(payload), **{key: stored[key] for key in keys if key in stored}}

    def _payload_facts(self, found: Envelope, source: Source, file: File) -> dict[str, Any]:
        for event in found.events[:1]:
            extent = Extent(event.payload, event.payload_length)
            try:
                return _payload_facts(Payload(source, file.path, extent, self._options.max_page_bytes))
            except UnreadableError as error:
                return {"payload": str(error)}
        return {}


def _payload_facts(payload: Payload) -> dict[str, Any]:
    metadata = payload.file.metadata
    return {
        "payload": ", ".join(f"{one.name}: {one.type}" for one in payload.schema),
        "payload rows": payload.rows,
        "payload written by": metadata.created_by,
    }


def _facts(found: Envelope) -> dict[str, Any]:
    descriptor = found.descriptor
    facts: dict[str, Any] = {
        "envelope": "before 2.0" if descriptor.legacy else "V1",
        "collection": descriptor.collection,
        "partition": descriptor.partition,
        "segment": descriptor.segment,
        "field": descriptor.field,
        "type": descriptor.type_name,
        "events": ", ".join(event.type.name for event in found.events) or "none",
        "created": str(layout.tso_time(descriptor.timestamp)) if descriptor.timestamp else "not told",
        "timestamps": f"{descriptor.start_timestamp} to {descriptor.end_timestamp}",
    }
    if descriptor.encrypted:
        facts["encrypted"] = f"zone {descriptor.extra.get('encryption_zone')}"
    return facts | {f"extra {key}": value for key, value in sorted(descriptor.extra.items()) if key != "edek"}


@dataclass(frozen=True)
class LooseFragment(Fragment):
    """One file that is no delta log."""

    file: File
    subject: Subject

    def decode(self, schema: pa.Schema, findings: Findings) -> Iterator[pa.RecordBatch]:
        """See `Fragment.decode`."""
        with closing(open_log(self.file, self.scan.storage)) as source:
            if self.subject.content == "stats":
                entries = check_stats(bytes(source.window(0, source.size)), self.path, findings)
                yield self._deliver(stats_batch(entries), schema, 0)
                return
            if self.subject.content == "bm25":
                data = bytes(source.window(0, source.size))
                yield self._deliver(bm25_batch(data, self.path, findings), schema, 0)
                return
            if self.subject.content == "columns":
                extent = Extent(0, source.size)
                yield from self._guarded(self._columns(source, extent, 0, schema, findings), findings)
                return
            found = _envelope.read_envelope(source, self.path, findings)
            for event in found.events if found is not None else ():
                yield from self._guarded(self._event(source, event, schema, findings), findings)

    def _guarded(self, batches: Iterator[pa.RecordBatch], findings: Findings) -> Iterator[pa.RecordBatch]:
        try:
            yield from batches
        except UnreadableError as error:
            findings.damage(error.damage)

    def _event(self, source: Source, event: Event, schema: pa.Schema, findings: Findings) -> Iterator[pa.RecordBatch]:
        extent = Extent(event.payload, event.payload_length)
        if self.subject.content in ("insert", "columns"):
            yield from self._columns(source, extent, event.offset, schema, findings)
            return
        payload = Payload(source, self.path, extent, self.scan.options.max_page_bytes)
        if not payload.schema:
            raise payload.unreadable("the payload has no column")
        values = payload.whole_column(0, layout.MAX_FILE_SIZE)
        if self.subject.content == "index":
            batch = pa.record_batch(
                [pa.array([_concatenated(values, payload)], pa.large_binary())], schema=INDEX_SCHEMA
            )
        else:
            requests = [cell for array in values for cell in array.cast(pa.binary()).to_pylist()]
            rows = [{"type": event.type.name, "timestamp": event.start_timestamp, "request": cell} for cell in requests]
            batch = pa.RecordBatch.from_pylist(rows, schema=DDL_SCHEMA)
        findings.account.record += event.length
        findings.rows += batch.num_rows
        yield self._deliver(batch, schema, event.offset)

    def _columns(
        self, source: Source, extent: Extent, offset: int, schema: pa.Schema, findings: Findings
    ) -> Iterator[pa.RecordBatch]:
        """The columns of one payload."""
        payload = Payload(source, self.path, extent, self.scan.options.max_page_bytes)
        fields = {one.name: (at, one) for at, one in enumerate(self.subject.fields)}
        if len(payload.schema) < len(fields):
            raise payload.unreadable(f"{len(payload.schema)} columns where {len(fields)} were expected")
        read = {name: one for name, one in fields.items() if name in schema.names}
        step = batch_rows((payload, at) for at, _ in read.values())
        streams = {name: ColumnStream([payload], at, step) for name, (at, _) in read.items()}
        for start in range(0, payload.rows, step):
            count = min(step, payload.rows - start)
            arrays = {name: self._take(stream, count, read[name][1], payload) for name, stream in streams.items()}
            findings.rows += count
            yield self._assemble(arrays, schema, offset, count)
        findings.account.record += extent.offset + extent.length - offset

    def _take(self, stream: ColumnStream, count: int, field: Field, payload: Payload) -> pa.Array:
        taken = stream.take(count)
        if taken is None or len(taken) != count:
            raise payload.unreadable(f"fewer values than the {payload.rows} that the footer claims")
        try:
            return decode(field, taken)
        except SchemaError as error:
            raise payload.unreadable(str(error), Kind.BAD_VALUE) from None

    def _deliver(self, batch: pa.RecordBatch, schema: pa.Schema, offset: int) -> pa.RecordBatch:
        columns = {name: batch.column(name) for name in batch.schema.names}
        return self._assemble(columns, schema, offset, batch.num_rows)

    def _assemble(self, columns: dict[str, pa.Array], schema: pa.Schema, offset: int, count: int) -> pa.RecordBatch:
        arrays = []
        for one in schema:
            if one.name in columns:
                arrays.append(columns[one.name])
            elif one.name == FILE_COLUMN:
                arrays.append(constant_string(self.path, count))
            else:
                arrays.append(pa.repeat(pa.scalar(offset, pa.int64()), count))
        return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _concatenated(values: Sequence[pa.Array], payload: Payload) -> bytes:
    """The bytes of an index slice: a column of one byte per row (C++), or of rows of bytes (Go)."""
    parts: list[bytes] = []
    for array in values:
        if pa.types.is_int8(array.type) or pa.types.is_uint8(array.type):
            parts.append(array.to_numpy(zero_copy_only=False).tobytes())
        elif pa.types.is_string(array.type) or pa.types.is_binary(array.type):
            parts += [cell or b"" for cell in array.cast(pa.binary()).to_pylist()]
        else:
            raise payload.unreadable(f"expected bytes of an index, found {array.type}")
    return b"".join(parts)

"""Files as fragments: which kind of rows one holds, the rows, or whether it is whole; events and deletes."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from sawlog.arrow import make_array, make_batch_from_rows, make_constant, view_values
from sawlog.errors import FormatError
from sawlog.format.contract import FILE_COLUMN, OFFSET_COLUMN, Fragment, assemble
from sawlog.format.damage import Damage, Findings
from sawlog.milvus import layout
from sawlog.milvus.deletes.log import Deletes, read_deletes
from sawlog.milvus.layout import COLLECTION_COLUMN, PARTITION_COLUMN, SEGMENT_COLUMN, BinlogDamageKind, DataType
from sawlog.milvus.log import Content, Descriptor, Log, LogPart, blame, check_content, explain, find_content, hold_log
from sawlog.milvus.metadata.manifest import read_manifest
from sawlog.milvus.paths import LogFile
from sawlog.milvus.payloads.payload import Payload, UnreadableError, zip_columns
from sawlog.milvus.payloads.stored import check_stored, make_event_field, make_fields
from sawlog.milvus.stats import check_stats, decode_bm25_batch, make_stats_batch
from sawlog.milvus.types import SYSTEM, Field
from sawlog.storage import File

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

DELETES_SCHEMA = (
    pa.field("timestamp", pa.int64(), nullable=False),
    pa.field("collection", pa.int64(), nullable=False),
    pa.field("partition", pa.int64(), nullable=False),
    pa.field("segment", pa.int64(), nullable=False),
    pa.field("l0", pa.bool_(), nullable=False),
)
"""Columns of deletes after the key."""

EVENTS_SCHEMA = pa.schema(
    [
        pa.field("file", pa.string(), nullable=False),
        pa.field("kind", pa.string()),
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("length", pa.int64(), nullable=False),
        pa.field("next_position", pa.int64()),
        pa.field("type", pa.string(), nullable=False),
        pa.field("timestamp", pa.int64(), nullable=False),
        pa.field("start_timestamp", pa.int64(), nullable=False),
        pa.field("end_timestamp", pa.int64(), nullable=False),
        pa.field("collection", pa.int64(), nullable=False),
        pa.field("partition", pa.int64(), nullable=False),
        pa.field("segment", pa.int64(), nullable=False),
        pa.field("field", pa.int64(), nullable=False),
        pa.field("payload_type", pa.string(), nullable=False),
        pa.field("payload_bytes", pa.int64()),
        pa.field("rows", pa.int64()),
        pa.field("payload_schema", pa.string()),
        pa.field("extra", pa.string()),
    ]
)
"""One row per event; the descriptor, with the extras, is the first of its file."""

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


@dataclass(frozen=True, slots=True)
class FileSubject:
    """Content and fields of a file.

    Attributes:
        content: Its content: the column of an event, those of bare Parquet, deletes, ...
        fields: The fields of its columns, where it has some.
        key: Type of the keys, of deletes.
    """

    content: Content
    fields: tuple[Field, ...] = ()
    key: pa.DataType | None = None


def read_subject(log: Log, place: LogFile | None, named: Mapping[int, Field]) -> FileSubject:
    """Look into a file.

    Raises:
        FormatError: When it is no Milvus file, or so damaged that it does not say what it holds.
    """
    if log.fault is not None:
        raise FormatError(str(log.fault))
    kind = place.kind if place is not None else ""
    if kind == layout.BM25_STATS:
        return FileSubject("bm25")
    if kind == layout.STATS_LOG or log.shape == "stats":
        return FileSubject("stats")
    if log.shape not in ("v1", "parquet"):
        raise FormatError(f"{log.path}: {explain(log.head)}")
    quiet = Findings("skip", drained=True)
    descriptor = log.load_descriptor(quiet)
    if descriptor is None and not log.is_bare_parquet:
        raise FormatError(str(quiet.damages[0]))
    parts = list(log.iterate_parts(descriptor, quiet))
    content = _find_content(log, descriptor, parts, kind)
    if content == "delta":
        deletes = next(read_deletes(log, Findings("skip")), None)
        return FileSubject("delta", key=deletes.keys.type if deletes is not None else pa.string())
    id = layout.DELTA_FIELD if descriptor is None else descriptor.field
    if place is not None and (named or id < 0):  # a collection goes by its directories
        id = place.field
    fields = _read_fields(log, descriptor, parts, id, quiet) if content in ("insert", "columns") else []
    return FileSubject(content, tuple(named.get(field.id, field) for field in fields))


def _find_content(log: Log, descriptor: Descriptor | None, parts: list[LogPart], kind: str) -> Content:
    if descriptor is None:
        if kind == layout.DELTA_LOG:
            return "delta"
        try:
            ids = [stored_field.id for stored_field in make_fields(log.open_payload(parts[0]), None, -1)]
        except UnreadableError as error:
            raise FormatError(str(error)) from None
        return "delta" if not kind and ids == [0, 1] else "columns"
    events = [part.event.type for part in parts if part.event is not None]
    return find_content(events[0], descriptor) if events and kind != layout.INSERT_LOG else "insert"


def _read_fields(
    log: Log, descriptor: Descriptor | None, parts: list[LogPart], id: int, quiet: Findings
) -> list[Field]:
    """Return the fields of the first event that has them; those that the descriptor gives where none has."""
    for part in parts:
        try:
            fields = make_fields(log.open_payload(part), descriptor, id)
        except UnreadableError as error:
            quiet.add_damage(error.damage)
        else:
            return [_name_field(field) for field in fields] if descriptor is not None else fields
    if descriptor is None or make_event_field(descriptor, id).type is DataType.None_:
        reason = quiet.damages[0] if quiet.damages else f"{log.path}: no event after the descriptor"
        raise FormatError(str(reason))
    return [_name_field(make_event_field(descriptor, id))]


def _name_field(field: Field) -> Field:
    system = {field.id: field.name for field in SYSTEM}
    return replace(field, name=system.get(field.id, layout.PAYLOAD_COLUMN if field.id < 0 else str(field.id)))


@dataclass(frozen=True)
class FileFragment(Fragment):
    """Fragment of one file. Where no column is wanted, the projection's are decoded anyway, to find all damage.

    Attributes:
        file: The file.
        log: What its path says.
        subject: What it holds; `None`: whatever that is, to be checked whole.
        named: Fields that are known by their ids, where the file itself has to say what it holds.
        deletes: How many deletes it has by the metadata; 0 where unknown.
    """

    file: File
    log: LogFile | None = None
    subject: FileSubject | None = None
    named: Mapping[int, Field] = field(default_factory=dict)
    deletes: int = 0

    def decode(self, schema: pa.Schema, findings: Findings) -> Iterator[pa.RecordBatch]:
        if self.log is not None and self.log.kind == layout.MANIFEST_DIRECTORY:
            self._check_manifest(self.log, findings)
            return
        with hold_log(self.file, self.scan.storage, self.scan.options.max_item_bytes) as log:
            subject = None if log.fault is not None else self.subject or self._judge(log)
            if subject is None:
                self._check_payloads(log, findings)
            elif subject.content == "stats":
                entries = check_stats(log.read_all(), self.path, findings)
                yield self._deliver(make_stats_batch(entries), schema, 0)
            elif subject.content == "bm25":
                yield self._deliver(decode_bm25_batch(log.read_all(), self.path, findings), schema, 0)
            elif subject.content == "delta":
                for _ in read_deletes(log, findings, expected=self.deletes):
                    yield pa.RecordBatch.from_arrays([], schema=pa.schema([]))
            else:
                yield from self._decode_parts(log, subject, schema, findings)

    def _check_manifest(self, log: LogFile, findings: Findings) -> None:
        """Check every byte of a manifest, which says itself where it is wrong."""
        try:
            manifest = read_manifest(self.scan.storage.read(self.path), self.path, log.root)
        except FormatError as error:
            detail = str(error).removeprefix(f"{self.path}: ")
            findings.add_damage(Damage(self.path, 0, self.size, BinlogDamageKind.BAD_MANIFEST.label, detail))
        else:
            if manifest.unsupported:
                findings.add_damage(
                    Damage(self.path, 0, self.size, BinlogDamageKind.UNSUPPORTED.label, manifest.unsupported)
                )
            else:
                findings.account.record += self.size

    def _check_payloads(self, log: Log, findings: Findings) -> None:
        """Check the payloads of a file that does not say what it holds."""
        descriptor = log.load_descriptor(findings)
        before = sum(findings.kinds.values())
        parts = 0
        for part in log.iterate_parts(descriptor, findings):
            parts += 1
            try:
                log.open_payload(part)
            except UnreadableError as error:
                blame(part, error.damage, findings)
        if descriptor is not None and not parts and before == sum(findings.kinds.values()):
            findings.add_damage(log.without_events())

    def _judge(self, log: Log) -> FileSubject | None:
        """Return the subject of the file; `None` when it is too broken to say."""
        if self.log is not None and self.log.kind == layout.DELTA_LOG:
            return FileSubject("delta")
        try:
            return read_subject(log, self.log, self.named)
        except FormatError:
            return None

    def _decode_parts(
        self, log: Log, subject: FileSubject, schema: pa.Schema, findings: Findings
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one event after the other; what cannot be read of one costs nothing of the others."""
        descriptor = log.load_descriptor(findings)
        before = sum(findings.kinds.values())
        parts = 0
        for part in log.iterate_parts(descriptor, findings):
            parts += 1
            try:
                check_content(part, descriptor, subject.content, self.path)
                if subject.content in ("insert", "columns"):
                    yield from self._decode_columns(log.open_payload(part), part, subject.fields, schema, findings)
                else:
                    batch = decode_part(log.open_payload(part), part, subject)
                    findings.rows += batch.num_rows
                    yield self._deliver(batch, schema, part.offset)
            except UnreadableError as error:
                blame(part, error.damage, findings)
            else:
                findings.account.record += part.length
        if not parts and self.named and before == sum(findings.kinds.values()):
            findings.add_damage(log.without_events())

    def _decode_columns(
        self, payload: Payload, part: LogPart, fields: Sequence[Field], schema: pa.Schema, findings: Findings
    ) -> Iterator[pa.RecordBatch]:
        if len(payload.schema) < len(fields):
            raise payload.make_error(f"{len(payload.schema)} columns where {len(fields)} were expected")
        names = schema.names or (None if self.subject is None else self.projection.decoded.names)
        read = [(index, field) for index, field in enumerate(fields) if names is None or field.name in names]
        for arrays, keep in decode_rows(payload, read, is_strict=findings.on_damage == "fail"):
            count = int(keep.sum())
            findings.rows += count
            yield self._assemble(arrays, schema, part.offset, count)

    def _deliver(self, batch: pa.RecordBatch, schema: pa.Schema, offset: int) -> pa.RecordBatch:
        columns = {name: batch.column(name) for name in batch.schema.names}
        return self._assemble(columns, schema, offset, batch.num_rows)

    def _assemble(self, columns: dict[str, pa.Array], schema: pa.Schema, offset: int, count: int) -> pa.RecordBatch:
        return assemble(schema, count, columns, self.path, lambda: make_constant(offset, pa.int64(), count))


def decode_rows(
    payload: Payload, fields: Sequence[tuple[int, Field]], *, is_strict: bool = False
) -> Iterator[tuple[dict[str, pa.Array], NDArray[np.uint8]]]:
    """Yield the rows of a payload, some at a time: the values of some columns by name, and which of the rows these are.

    With `is_strict`, no row that follows one of which a value is lost.

    Raises:
        UnreadableError: After the last rows that are delivered.
    """
    for index, user_field in fields:
        check_stored(user_field, payload, index)
    for arrays, keep in zip_columns(payload, fields, is_strict=is_strict):
        yield dict(zip((field.name for _, field in fields), arrays, strict=True)), keep


def decode_part(payload: Payload, part: LogPart, subject: FileSubject) -> pa.RecordBatch:
    """Return the requests of an event of a DDL log, or the bytes of one of an index.

    Raises:
        UnreadableError: When the payload holds something else.
    """
    if not payload.schema:
        raise payload.make_error("the payload has no column")
    values = payload.read_column(layout.MAX_FILE_SIZE)
    if subject.content == "index":
        data = make_array([_concatenate(values, payload)], pa.large_binary())
        return pa.record_batch([data], schema=INDEX_SCHEMA)
    cells: list[bytes | None] = []
    for array in values:
        if not (pa.types.is_string(array.type) or pa.types.is_binary(array.type)):
            raise payload.make_error(f"expected requests, found {array.type}")
        cells += array.cast(pa.binary()).to_pylist()
    event = part.event
    name, time = (event.type.name, event.start_timestamp) if event is not None else ("", 0)
    return make_batch_from_rows([{"type": name, "timestamp": time, "request": cell} for cell in cells], DDL_SCHEMA)


def _concatenate(values: Sequence[pa.Array], payload: Payload) -> bytes:
    """Return the bytes of an index slice: a column of one byte per row (C++), or of rows of bytes (Go)."""
    import numpy as np

    parts: list[bytes] = []
    for array in values:
        if pa.types.is_int8(array.type) or pa.types.is_uint8(array.type):
            parts.append(view_values(array, np.uint8).tobytes())
        elif pa.types.is_string(array.type) or pa.types.is_binary(array.type):
            parts += [cell or b"" for cell in array.cast(pa.binary()).to_pylist()]
        else:
            raise payload.make_error(f"expected bytes of an index, found {array.type}")
    return b"".join(parts)


@dataclass(frozen=True)
class EventsFragment(Fragment):
    """The events of one file: their headers, and the footers of their payloads."""

    file: File
    log: LogFile | None = None

    def decode(self, schema: pa.Schema, findings: Findings) -> Iterator[pa.RecordBatch]:
        with hold_log(self.file, self.scan.storage, self.scan.options.max_item_bytes) as log:
            manifest = self.log is not None and self.log.kind == layout.MANIFEST_DIRECTORY
            if manifest or log.shape in ("parquet", "stats"):  # no envelope, by right
                findings.account.record += self.file.size
                return
            for row in self._iterate_rows(log, findings):
                findings.rows += 1
                yield make_batch_from_rows([row], schema)

    def _iterate_rows(self, log: Log, findings: Findings) -> Iterator[dict[str, Any]]:
        inside = Findings("skip", drained=True)  # what is wrong within the descriptor is reported after it
        descriptor = log.load_descriptor(inside)
        findings.account.header += inside.account.header
        if descriptor is None:
            for damage in inside.damages:
                findings.add_damage(damage)
            return
        common = {
            "file": self.path,
            FILE_COLUMN: self.path,
            "kind": self.log.kind if self.log is not None else None,
            "collection": descriptor.collection,
            "partition": descriptor.partition,
            "segment": descriptor.segment,
            "field": descriptor.field,
            "payload_type": descriptor.type_name,
        }
        yield common | _make_descriptor_row(descriptor)
        for damage in inside.damages:
            findings.add_damage(damage)
        for part in log.iterate_parts(descriptor, findings):
            wrong = None
            try:
                row = _make_event_row(part, log.open_payload(part))
            except UnreadableError as error:
                row, wrong = _make_event_row(part, None), error.damage
            yield common | row
            if wrong is None:
                findings.account.record += part.length
            else:
                blame(part, wrong, findings)


def _make_descriptor_row(descriptor: Descriptor) -> dict[str, Any]:
    return {
        "offset": len(layout.MAGIC),
        OFFSET_COLUMN: len(layout.MAGIC),
        "length": descriptor.length,
        "next_position": descriptor.next_position,
        "type": "DESCRIPTOR",
        "timestamp": descriptor.timestamp,
        "start_timestamp": descriptor.start_timestamp,
        "end_timestamp": descriptor.end_timestamp,
        "extra": json.dumps(descriptor.extra, ensure_ascii=False, separators=(",", ":")),
    }


def _make_event_row(part: LogPart, payload: Payload | None) -> dict[str, Any]:
    event = part.event
    if event is None:
        return {}
    row: dict[str, Any] = {
        "offset": event.offset,
        OFFSET_COLUMN: event.offset,
        "length": event.length,
        "next_position": event.next_position,
        "type": event.type.name,
        "timestamp": event.timestamp,
        "start_timestamp": event.start_timestamp,
        "end_timestamp": event.end_timestamp,
        "payload_bytes": event.payload_length,
    }
    if payload is None:
        return row
    stored = ", ".join(f"{field.name}: {field.type}{'' if field.nullable else ' not null'}" for field in payload.schema)
    return row | {"rows": payload.rows, "payload_schema": stored}


@dataclass(frozen=True)
class DeltaFragment(Fragment):
    """The deletes of one file.

    Attributes:
        file: The delta log.
        place: Ids of collection, partition and segment.
        deletes_only: Whether its segment is an L0 segment.
        key: Type of the keys; `None` where unknown.
        count: How many deletes it has by the metadata; 0 where unknown.
    """

    file: File
    place: tuple[int, int, int]
    deletes_only: bool
    key: pa.DataType | None = None
    count: int = 0

    def decode(self, schema: pa.Schema, findings: Findings) -> Iterator[pa.RecordBatch]:
        with hold_log(self.file, self.scan.storage, self.scan.options.max_item_bytes) as log:
            for deletes in read_deletes(log, findings, self.key, self.count):
                yield self._make_batch(schema, deletes)

    def _make_batch(self, schema: pa.Schema, deletes: Deletes) -> pa.RecordBatch:
        count = len(deletes.keys)
        collection, partition, segment = self.place
        constants = {
            "collection": collection,
            "partition": partition,
            "segment": segment,
            "l0": self.deletes_only,
            COLLECTION_COLUMN: collection,
            PARTITION_COLUMN: partition,
            SEGMENT_COLUMN: segment,
        }

        def make_column(name: str) -> pa.Array:
            kind = schema.field(name).type
            if name == "pk":
                return deletes.keys if deletes.keys.type == kind else deletes.keys.cast(kind)
            return deletes.times if name == "timestamp" else make_constant(constants[name], kind, count)

        return assemble(
            schema, count, make_column, self.file.path, lambda: make_constant(deletes.offset, pa.int64(), count)
        )

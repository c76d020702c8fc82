"""Single files: checking one byte by byte, and the views of events and deletes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from sawlog.arrow import constant_string
from sawlog.damage import Damage, Findings
from sawlog.format import FILE_COLUMN, OFFSET_COLUMN, Fragment
from sawlog.milvus_binlog import envelope as _envelope
from sawlog.milvus_binlog import layout
from sawlog.milvus_binlog.collection.fragments import COLLECTION_COLUMN, PARTITION_COLUMN, SEGMENT_COLUMN
from sawlog.milvus_binlog.deletes.log import Deletes, read_deletes
from sawlog.milvus_binlog.envelope import Descriptor, Event
from sawlog.milvus_binlog.layout import Kind
from sawlog.milvus_binlog.paths import LogFile
from sawlog.milvus_binlog.payloads.payload import BATCH_ROWS, Extent, Payload, UnreadableError
from sawlog.milvus_binlog.source import open_log
from sawlog.milvus_binlog.stats import bm25_batch, check_stats
from sawlog.storage import File, Source

DELETES_SCHEMA = (
    pa.field("timestamp", pa.int64(), nullable=False),
    pa.field("collection", pa.int64(), nullable=False),
    pa.field("partition", pa.int64(), nullable=False),
    pa.field("segment", pa.int64(), nullable=False),
    pa.field("l0", pa.bool_(), nullable=False),
)
"""Columns of deletes behind the key."""

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


@dataclass(frozen=True)
class FileFragment(Fragment):
    """One file, to be checked whole. Delivers no rows of its own."""

    file: File
    log: LogFile | None = field(default=None)

    def decode(self, schema: pa.Schema, findings: Findings) -> Iterator[pa.RecordBatch]:
        """Read every page of every payload."""
        check_file(self, findings)
        yield pa.RecordBatch.from_arrays([], schema=pa.schema([]))


def check_file(fragment: FileFragment, findings: Findings) -> None:
    """Check every byte of a file, whatever its kind."""
    path, limit = fragment.file.path, fragment.scan.options.max_page_bytes
    kind = fragment.log.kind if fragment.log is not None else ""
    with closing(open_log(fragment.file, fragment.scan.storage)) as source:
        head = bytes(source.window(0, 4096))
        shape = _envelope.sniff(head)
        if kind == layout.DELTA_LOG:
            for _ in read_deletes(fragment.file, fragment.scan.storage, limit, findings):
                pass
        elif kind == layout.BM25_STATS:
            bm25_batch(bytes(source.window(0, source.size)), path, findings)
        elif kind == layout.STATS_LOG or (shape == "stats" and not kind):
            check_stats(bytes(source.window(0, source.size)), path, findings)
        elif shape == "parquet":
            _check_payload(source, path, Extent(0, source.size), 0, limit, findings)
        else:
            found = _envelope.read_envelope(source, path, findings)
            for event in found.events if found is not None else ():
                extent = Extent(event.payload, event.payload_length)
                _check_payload(source, path, extent, event.offset, limit, findings)


def _check_payload(source: Source, path: str, extent: Extent, start: int, limit: int, findings: Findings) -> None:
    length = extent.offset + extent.length - start
    try:
        payload = Payload(source, path, extent, limit)
        for index in range(len(payload.schema)):
            for array in payload.column_batches(index, BATCH_ROWS):
                array.validate(full=True)
    except UnreadableError as error:
        findings.damage(Damage(path, start, length, error.damage.kind, error.damage.detail))
        return
    except pa.ArrowInvalid as error:
        findings.damage(Damage(path, start, length, Kind.BAD_VALUE, str(error)))
        return
    findings.rows += payload.rows
    findings.account.record += length


@dataclass(frozen=True)
class EventsFragment(Fragment):
    """The events of one file."""

    file: File
    log: LogFile | None = None

    def decode(self, schema: pa.Schema, findings: Findings) -> Iterator[pa.RecordBatch]:
        """See `Fragment.decode`."""
        rows = list(self._rows(findings))
        findings.rows += len(rows)
        columns = [pa.array([row.get(one.name) for row in rows], one.type) for one in schema]
        yield pa.RecordBatch.from_arrays(columns, schema=schema)

    def _rows(self, findings: Findings) -> Iterator[dict[str, Any]]:
        path = self.file.path
        with closing(open_log(self.file, self.scan.storage)) as source:
            if _envelope.sniff(bytes(source.window(0, 4096))) != "v1" and self._bare(source):
                return
            found = _envelope.read_envelope(source, path, findings)
            if found is None:
                return
            descriptor = found.descriptor
            common = {
                "file": path,
                FILE_COLUMN: path,
                "kind": self.log.kind if self.log is not None else None,
                "collection": descriptor.collection,
                "partition": descriptor.partition,
                "segment": descriptor.segment,
                "field": descriptor.field,
                "payload_type": descriptor.type_name,
            }
            yield common | _descriptor_row(descriptor)
            for event in found.events:
                yield common | self._event_row(event, source, findings)

    def _bare(self, source: Source) -> bool:
        """Whether a file has no envelope by right: bare Parquet and statistics hold no events."""
        return _envelope.sniff(bytes(source.window(0, 4096))) in ("parquet", "stats")

    def _event_row(self, event: Event, source: Source, findings: Findings) -> dict[str, Any]:
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
        extent = Extent(event.payload, event.payload_length)
        try:
            payload = Payload(source, self.file.path, extent, self.scan.options.max_page_bytes)
        except UnreadableError as error:
            findings.damage(error.damage)
            return row
        findings.account.record += event.length
        stored = ", ".join(f"{one.name}: {one.type}{'' if one.nullable else ' not null'}" for one in payload.schema)
        return row | {"rows": payload.rows, "payload_schema": stored}


def _descriptor_row(descriptor: Descriptor) -> dict[str, Any]:
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


@dataclass(frozen=True)
class DeltaFragment(Fragment):
    """The deletes of one file.

    Attributes:
        file: The delta log.
        place: Ids of collection, partition and segment.
        deletes_only: Whether its segment is an L0 segment.
    """

    file: File
    place: tuple[int, int, int]
    deletes_only: bool

    def decode(self, schema: pa.Schema, findings: Findings) -> Iterator[pa.RecordBatch]:
        """See `Fragment.decode`."""
        for some in read_deletes(self.file, self.scan.storage, self.scan.options.max_page_bytes, findings):
            yield pa.RecordBatch.from_arrays([self._column(one, some) for one in schema], schema=schema)

    def _column(self, wanted: pa.Field, some: Deletes) -> pa.Array:
        count = len(some.keys)
        if wanted.name == "pk":
            return some.keys if some.keys.type == wanted.type else some.keys.cast(wanted.type)
        if wanted.name == "timestamp":
            return some.times
        if wanted.name == FILE_COLUMN:
            return constant_string(self.file.path, count)
        collection, partition, segment = self.place
        constants = {
            OFFSET_COLUMN: some.offset,
            "collection": collection,
            "partition": partition,
            "segment": segment,
            "l0": self.deletes_only,
            COLLECTION_COLUMN: collection,
            PARTITION_COLUMN: partition,
            SEGMENT_COLUMN: segment,
        }
        return pa.repeat(pa.scalar(constants[wanted.name], wanted.type), count)

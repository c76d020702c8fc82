"""The bytes of V1 files: envelope, descriptor, events. Section 7 of the format."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from sawlog.errors import SchemaError
from sawlog.milvus_binlog import layout
from sawlog.milvus_binlog.deletes.log import delta_cells
from sawlog.milvus_binlog.encode import encode, payload, raw_size
from sawlog.milvus_binlog.layout import DataType, EventType
from sawlog.milvus_binlog.types import Field


@dataclass(frozen=True, slots=True)
class Place:
    """Where a log belongs: ids of collection, partition and segment."""

    collection: int
    partition: int
    segment: int


@dataclass(frozen=True, slots=True)
class NewEvent:
    """An event to be written: its type, the range of its timestamps, and its payload."""

    type: EventType
    first: int
    last: int
    payload: bytes


def log_bytes(
    place: Place, field: int, type: DataType, events: Sequence[NewEvent], extra: dict[str, Any], where: str
) -> bytes:
    """A whole file.

    Args:
        place: Where it belongs.
        field: Field id; -1 in delta and DDL logs.
        type: Type of its payloads.
        events: Its events, in order; timestamps must not be 0.
        extra: The JSON object of the descriptor.
        where: What it is, for messages.

    Raises:
        SchemaError: When the file would be larger than its positions can say.
    """
    first, last = min(event.first for event in events), max(event.last for event in events)
    fixed = layout.DESCRIPTOR.pack(
        place.collection, place.partition, place.segment, field, first, last, type, layout.POST_HEADER_LENGTHS
    )
    parts = [layout.MAGIC, descriptor_bytes(_created(last), fixed, extra)]
    position = sum(map(len, parts))
    for event in events:
        position += layout.HEADER.size + layout.EVENT_DATA.size + len(event.payload)
        if position > layout.MAX_FILE_SIZE:
            raise SchemaError(f"{where}: {position} bytes; a binlog has less than 2 GiB: make binlog_bytes smaller")
        parts += [event_bytes(event, _created(event.last), position), event.payload]
    return b"".join(parts)


def descriptor_bytes(created: int, fixed: bytes, extra: dict[str, Any]) -> bytes:
    """The descriptor event, from its fixed part (`layout.DESCRIPTOR`) and its extras."""
    text = json.dumps(extra, ensure_ascii=False, separators=(",", ":")).encode()
    length = layout.HEADER.size + len(fixed) + layout.EXTRA_LENGTH.size + len(text)
    header = layout.HEADER.pack(created, EventType.DESCRIPTOR, length, len(layout.MAGIC) + length)
    return b"".join((header, fixed, layout.EXTRA_LENGTH.pack(len(text)), text))


def event_bytes(event: NewEvent, created: int, end: int) -> bytes:
    """What precedes an event's payload; the event ends at byte `end` of its file."""
    length = layout.HEADER.size + layout.EVENT_DATA.size + len(event.payload)
    return layout.HEADER.pack(created, event.type, length, end) + layout.EVENT_DATA.pack(event.first, event.last)


def _created(timestamp: int) -> int:
    """Time of writing: that of the last row, so that the same rows give the same bytes."""
    return timestamp >> layout.LOGICAL_BITS << layout.LOGICAL_BITS


def insert_log(place: Place, field: Field, column: pa.ChunkedArray, first: int, last: int) -> bytes:
    """The insert log of one field of one binlog batch."""
    extra: dict[str, Any] = {layout.ORIGINAL_SIZE: str(raw_size(column))}
    if field.nullable:
        extra["nullable"] = True
    event = NewEvent(EventType.INSERT, first, last, payload(field, column))
    return log_bytes(place, field.id, field.type, [event], extra, f"field {field.name!r}")


def empty_log(place: Place, field: Field, timestamp: int = 1) -> bytes:
    """The insert log of a field of a batch without rows."""
    values = encode(field, pa.array([], field.arrow_type()))
    return insert_log(place, field, pa.chunked_array([values]), timestamp, timestamp)


def delta_log(place: Place, keys: pa.Array, times: pa.Array) -> bytes:
    """The delta log of some deletes, in JSON."""
    import pyarrow.compute as pc

    limits = pc.min_max(times)
    first, last = limits["min"].as_py(), limits["max"].as_py()
    column = pa.chunked_array([pa.array(delta_cells(keys, times), pa.string())])
    text = Field(layout.DELTA_FIELD, "delta", DataType.String)
    event = NewEvent(EventType.DELETE, first, last, payload(text, column))
    extra = {layout.ORIGINAL_SIZE: str(raw_size(column))}
    return log_bytes(place, layout.DELTA_FIELD, DataType.String, [event], extra, "a delta log")


def ddl_logs(
    collection: int, types: Sequence[EventType], times: Sequence[int], requests: Sequence[bytes]
) -> tuple[bytes, bytes]:
    """The two files of DDL requests: their timestamps, and the requests themselves, an event each. Section 3.5."""
    place = Place(collection, layout.ALL_PARTITIONS, -1)
    stamps = pa.chunked_array([pa.array(times, pa.int64())])
    numbers = Field(layout.DELTA_FIELD, "ts", DataType.Int64)
    event = NewEvent(EventType.CREATE_COLLECTION, min(times), max(times), payload(numbers, stamps))
    extra = {layout.ORIGINAL_SIZE: str(raw_size(stamps))}
    first = log_bytes(place, layout.DELTA_FIELD, DataType.Int64, [event], extra, "a DDL log")
    text = Field(layout.DELTA_FIELD, "ddl", DataType.String)
    events = [
        NewEvent(kind, time, time, payload(text, pa.chunked_array([pa.array([request], pa.binary())])))
        for kind, time, request in zip(types, times, requests, strict=True)
    ]
    extra = {layout.ORIGINAL_SIZE: str(sum(map(len, requests)))}
    return first, log_bytes(place, layout.DELTA_FIELD, DataType.String, events, extra, "a DDL log")

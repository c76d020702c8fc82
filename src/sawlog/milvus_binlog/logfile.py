"""The bytes of V1 files: envelope, descriptor, events. Section 7 of the format."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from sawlog.errors import SchemaError
from sawlog.milvus_binlog import layout
from sawlog.milvus_binlog.encode import payload, raw_size
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
    text = json.dumps(extra, ensure_ascii=False, separators=(",", ":")).encode()
    first, last = min(event.first for event in events), max(event.last for event in events)
    created = _created(last)
    length = layout.HEADER.size + layout.DESCRIPTOR.size + layout.EXTRA_LENGTH.size + len(text)
    position = len(layout.MAGIC) + length
    parts = [
        layout.MAGIC,
        layout.HEADER.pack(created, EventType.DESCRIPTOR, length, position),
        layout.DESCRIPTOR.pack(
            place.collection, place.partition, place.segment, field, first, last, type, layout.POST_HEADER_LENGTHS
        ),
        layout.EXTRA_LENGTH.pack(len(text)),
        text,
    ]
    for event in events:
        length = layout.HEADER.size + layout.EVENT_DATA.size + len(event.payload)
        position += length
        if position > layout.MAX_FILE_SIZE:
            raise SchemaError(f"{where}: {position} bytes; a binlog has less than 2 GiB: make binlog_bytes smaller")
        parts += [
            layout.HEADER.pack(_created(event.last), event.type, length, position),
            layout.EVENT_DATA.pack(event.first, event.last),
            event.payload,
        ]
    return b"".join(parts)


def _created(timestamp: int) -> int:
    """Time of writing: that of the last row, so that the same rows give the same bytes."""
    return timestamp >> layout.LOGICAL_BITS << layout.LOGICAL_BITS


def insert_log(place: Place, field: Field, column: pa.ChunkedArray, first: int, last: int) -> bytes:
    """The insert log of one field of one binlog batch."""
    extra: dict[str, Any] = {"original_size": str(raw_size(column))}
    if field.nullable:
        extra["nullable"] = True
    event = NewEvent(EventType.INSERT, first, last, payload(field, column))
    return log_bytes(place, field.id, field.type, [event], extra, f"field {field.name!r}")


def delta_log(place: Place, keys: pa.Array, times: pa.Array) -> bytes:
    """The delta log of some deletes, in JSON."""
    import pyarrow.compute as pc

    kind = DataType.Int64 if pa.types.is_int64(keys.type) else DataType.VarChar
    quoted = [key if kind is DataType.Int64 else json.dumps(key, ensure_ascii=False) for key in keys.to_pylist()]
    pairs = zip(quoted, times.to_pylist(), strict=True)
    cells = [f'{{"pk":{key},"ts":{time},"pkType":{kind:d}}}' for key, time in pairs]
    limits = pc.min_max(times)
    first, last = limits["min"].as_py(), limits["max"].as_py()
    column = pa.chunked_array([pa.array(cells, pa.string())])
    text = Field(layout.DELTA_FIELD, "delta", DataType.String)
    event = NewEvent(EventType.DELETE, first, last, payload(text, column))
    extra = {"original_size": str(raw_size(column))}
    return log_bytes(place, layout.DELTA_FIELD, DataType.String, [event], extra, "a delta log")


def ddl_logs(
    collection: int, types: Sequence[EventType], times: Sequence[int], requests: Sequence[bytes]
) -> tuple[bytes, bytes]:
    """The two files of DDL requests: their timestamps, and the requests themselves, an event each. Section 3.5."""
    place = Place(collection, layout.ALL_PARTITIONS, -1)
    stamps = pa.chunked_array([pa.array(times, pa.int64())])
    numbers = Field(layout.DELTA_FIELD, "ts", DataType.Int64)
    event = NewEvent(EventType.CREATE_COLLECTION, min(times), max(times), payload(numbers, stamps))
    extra = {"original_size": str(raw_size(stamps))}
    first = log_bytes(place, layout.DELTA_FIELD, DataType.Int64, [event], extra, "a DDL log")
    text = Field(layout.DELTA_FIELD, "ddl", DataType.String)
    events = [
        NewEvent(kind, time, time, payload(text, pa.chunked_array([pa.array([request], pa.binary())])))
        for kind, time, request in zip(types, times, requests, strict=True)
    ]
    extra = {"original_size": str(sum(map(len, requests)))}
    return first, log_bytes(place, layout.DELTA_FIELD, DataType.String, events, extra, "a DDL log")

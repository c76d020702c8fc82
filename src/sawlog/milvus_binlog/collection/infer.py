"""Fields of a collection that no schema describes, and times of batches that no metadata tells: from the files."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import closing
from dataclasses import replace

import pyarrow as pa

from sawlog.damage import Findings
from sawlog.milvus_binlog import envelope as _envelope
from sawlog.milvus_binlog import layout
from sawlog.milvus_binlog.collection.model import Collection
from sawlog.milvus_binlog.layout import DataType
from sawlog.milvus_binlog.paths import LogFile
from sawlog.milvus_binlog.payloads.payload import Extent, Payload, UnreadableError
from sawlog.milvus_binlog.payloads.stored import bare_field, settle
from sawlog.milvus_binlog.source import open_log
from sawlog.milvus_binlog.types import Field
from sawlog.storage import File, Storage

_PEEK = 256
"""Values by which the element type of an array is told."""
_TRIES = 16
"""Files of a field that are looked into for it."""
_KEYS = (DataType.Int64, DataType.VarChar)


def infer_fields(collection: Collection, storage: Storage, max_page_bytes: int) -> tuple[Field, ...]:
    """The user's fields, named by their ids: types from descriptors, dimensions from payloads.

    The primary key is the field that there are statistics of, or else the first that can be one.
    """
    segments = collection.segments.values()
    keys = {log.field for segment in segments for log in segment.stats}
    by_directory: dict[int, list[LogFile]] = {}
    for segment in segments:
        for id, logs in segment.inserts.items():
            by_directory.setdefault(id, []).extend(logs)
    found: dict[int, Field] = {}
    for logs in by_directory.values():
        for field in _fields_of(logs, storage, max_page_bytes):
            before = found.get(field.id)
            found[field.id] = field if before is None else replace(before, nullable=before.nullable or field.nullable)
    user = [field for id, field in sorted(found.items()) if id not in layout.SYSTEM_FIELDS]
    primary = next((one.id for one in user if one.id in keys), next((one.id for one in user if one.type in _KEYS), -1))
    return tuple(replace(one, primary=one.id == primary) for one in user)


def _fields_of(logs: Iterable[LogFile], storage: Storage, max_page_bytes: int) -> list[Field]:
    """The fields that the files of one directory number hold; damaged files tell nothing."""
    groups: dict[int, Field] = {}
    for tried, log in enumerate(logs):
        try:
            fields = file_fields(log.file, storage, max_page_bytes, log.field)
        except UnreadableError:
            continue
        groups |= {one.id: one for one in fields}
        vague = any(one.type is DataType.Array and not one.element for one in fields)
        if len(fields) == 1 and fields[0].id == log.field and (not vague or tried >= _TRIES):
            return fields
    return list(groups.values())


def file_fields(file: File, storage: Storage, max_page_bytes: int, id: int) -> list[Field]:
    """The fields that one file holds: one in an enveloped file, those of a column group in bare Parquet.

    Raises:
        UnreadableError: When the file is damaged.
    """
    with closing(open_log(file, storage)) as source:
        if _envelope.sniff(bytes(source.window(0, 16))) == "parquet":
            payload = Payload(source, file.path, Extent(0, source.size), max_page_bytes)
            fields = []
            for at, stored in enumerate(payload.schema):
                field = bare_field(stored, at)
                peek = _peek(payload, at) if field.type is DataType.FloatVector else []
                fields.append(settle(field, stored, peek))
            return fields
        quiet = Findings("skip", drained=True)
        found = _envelope.read_envelope(source, file.path, quiet)
        if found is None or not found.events:
            raise UnreadableError(quiet.damages[0])
        descriptor = found.descriptor
        known = descriptor.payload_type in DataType.__members__.values()
        kind = DataType(descriptor.payload_type) if known else DataType.None_
        event = found.events[0]
        payload = Payload(source, file.path, Extent(event.payload, event.payload_length), max_page_bytes)
        if not payload.schema:
            raise payload.unreadable("the payload has no column")
        values = _peek(payload, 0) if kind is DataType.Array else []
        return [settle(Field(id, str(id), kind, nullable=descriptor.nullable), payload.schema.field(0), values)]


def _peek(payload: Payload, index: int) -> list[pa.Array]:
    """The first values of a column."""
    return [array for array, _ in zip(payload.column_batches(index, _PEEK), range(1), strict=False)]


def time_range(file: File, storage: Storage, max_page_bytes: int) -> tuple[int, int]:
    """Earliest and latest timestamp by the Parquet statistics of a timestamp file; 0 and 0 where there are none."""
    with closing(open_log(file, storage)) as source:
        quiet = Findings("skip")
        found = _envelope.read_envelope(source, file.path, quiet)
        first, last = layout.MAX_TSO, 0
        try:
            for event in found.events if found is not None else ():
                payload = Payload(source, file.path, Extent(event.payload, event.payload_length), max_page_bytes)
                metadata = payload.file.metadata
                for group in range(metadata.num_row_groups):
                    statistics = metadata.row_group(group).column(0).statistics
                    if statistics is None or not statistics.has_min_max:
                        return 0, 0
                    first, last = min(first, statistics.min), max(last, statistics.max)
        except UnreadableError:
            return 0, 0
    return (first, last) if last and not quiet.kinds else (0, 0)

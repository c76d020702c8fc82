"""Fields of a collection that no schema describes, and times of batches that no metadata gives: from the files."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from sawlog.errors import FINDING_ERRORS
from sawlog.format.damage import Findings
from sawlog.milvus import layout
from sawlog.milvus.collection.model import Collection
from sawlog.milvus.layout import DataType
from sawlog.milvus.log import hold_log
from sawlog.milvus.paths import LogFile
from sawlog.milvus.payloads.payload import UnreadableError
from sawlog.milvus.payloads.stored import make_event_field, make_fields
from sawlog.milvus.types import Field
from sawlog.storage import File, Storage

_MAX_TRIED_FILES = 16
"""Files of a field that are looked into for the element type of its arrays."""
_KEYS = (DataType.Int64, DataType.VarChar)


def infer_fields(collection: Collection, storage: Storage, max_page_bytes: int | None) -> tuple[Field, ...]:
    """Return the user's fields, named by their ids: types from descriptors, dimensions from payloads.

    The primary key is the field that there are statistics of, or else the first that can be one. A field none of whose
    files can be read has no type: it is there, and reading it says what is wrong.
    """
    segments = collection.segments.values()
    keys = {log.field for segment in segments for log in segment.stats}
    by_directory: dict[int, list[LogFile]] = {}
    for segment in segments:
        for id, logs in segment.inserts.items():
            by_directory.setdefault(id, []).extend(logs)
    fields: dict[int, Field] = {}
    for logs in by_directory.values():
        for field in _list_fields(logs, storage, max_page_bytes):
            before = fields.get(field.id)
            fields[field.id] = field if before is None else replace(before, nullable=before.nullable or field.nullable)
    user = [field for id, field in sorted(fields.items()) if id not in layout.SYSTEM_FIELDS]
    primary = next(
        (field.id for field in user if field.id in keys), next((field.id for field in user if field.type in _KEYS), -1)
    )
    return tuple(replace(field, primary=field.id == primary) for field in user)


def _list_fields(logs: Iterable[LogFile], storage: Storage, max_page_bytes: int | None) -> list[Field]:
    """Return fields that the files of one directory number hold; those of damaged files are known from the others."""
    groups: dict[int, Field] = {}
    unknown: dict[int, Field] = {}
    for tried, log in enumerate(logs):
        try:
            fields = _read_fields(log, storage, max_page_bytes)
        except (UnreadableError, *FINDING_ERRORS):
            unknown[log.field] = Field(log.field, str(log.field), DataType.None_)
            continue
        groups |= {field.id: field for field in fields}
        vague = any(field.type is DataType.Array and not field.element for field in fields)
        if len(fields) == 1 and fields[0].id == log.field and (not vague or tried >= _MAX_TRIED_FILES):
            return fields
    return list((groups or unknown).values())


def _read_fields(log: LogFile, storage: Storage, max_page_bytes: int | None) -> list[Field]:
    """Return the fields that one file holds: one in an enveloped file, those of a column group in bare Parquet.

    Raises:
        UnreadableError: When the file is damaged.
    """
    with hold_log(log.file, storage, max_page_bytes, planning=True) as binlog:
        quiet = Findings("skip", drained=True)
        descriptor = binlog.load_descriptor(quiet)
        part = next(binlog.iterate_parts(descriptor, quiet), None)
        if part is None:
            raise UnreadableError(quiet.damages[0] if quiet.damages else binlog.without_events())
        if descriptor is not None and log.field in layout.SYSTEM_FIELDS:
            return [make_event_field(descriptor, log.field)]  # not the user's
        return make_fields(binlog.open_payload(part), descriptor, log.field)


def read_time_range(file: File, storage: Storage, max_page_bytes: int | None) -> tuple[int, int]:
    """Return the earliest and the latest timestamp by the Parquet statistics of a timestamp file.

    0 and 0 where there are none.
    """
    first, last = layout.MAX_TSO, 0
    with hold_log(file, storage, max_page_bytes, planning=True) as log:
        if log.is_bare_parquet:
            return 0, 0
        try:
            groups = [group for _, payload in log.require_parts() for group in payload.footer.groups]
        except (UnreadableError, *FINDING_ERRORS):
            return 0, 0
        for group in groups:
            limits = group.chunks[0].minimum, group.chunks[0].maximum
            low, high = (int.from_bytes(limit or b"", "little", signed=True) for limit in limits)
            if any(limit is None or len(limit) != layout.TSO_BYTES for limit in limits) or low > high:
                return 0, 0
            first, last = min(first, low), max(last, high)
    return (first, last) if last else (0, 0)

"""What a file by itself holds: which kind of rows, and the fields of its columns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import pyarrow as pa

from sawlog.damage import Findings
from sawlog.errors import FormatError
from sawlog.milvus_binlog import envelope, layout
from sawlog.milvus_binlog.deletes.log import read_deletes
from sawlog.milvus_binlog.envelope import Content, Descriptor, content_of
from sawlog.milvus_binlog.layout import DataType
from sawlog.milvus_binlog.opener import Log, Part
from sawlog.milvus_binlog.paths import LogFile
from sawlog.milvus_binlog.payloads.payload import UnreadableError
from sawlog.milvus_binlog.payloads.stored import described_field, stored_fields
from sawlog.milvus_binlog.types import SYSTEM, Field


@dataclass(frozen=True, slots=True)
class Subject:
    """What a file holds.

    Attributes:
        content: Its content: the column of an event, those of bare Parquet, deletes, ...
        fields: The fields of its columns, where it has some.
        key: Type of the keys, of deletes.
    """

    content: Content
    fields: tuple[Field, ...] = ()
    key: pa.DataType | None = None


def subject_of(log: Log, place: LogFile | None, named: Mapping[int, Field]) -> Subject:
    """Look into a file.

    Args:
        log: The file, open.
        place: What its path says.
        named: Fields that are known by their ids.

    Raises:
        FormatError: When it is no Milvus file, or so damaged that it does not say what it holds.
    """
    kind = place.kind if place is not None else ""
    if kind == layout.BM25_STATS:
        return Subject("bm25")
    if kind == layout.STATS_LOG or log.shape == "stats":
        return Subject("stats")
    if log.shape not in ("v1", "parquet"):
        raise FormatError(f"{log.path}: {envelope.explain(log.head)}")
    quiet = Findings("skip", drained=True)
    descriptor = log.descriptor(quiet)
    if descriptor is None and not log.bare:
        raise FormatError(str(quiet.damages[0]))
    parts = list(log.parts(descriptor, quiet))
    content = _content(log, descriptor, parts, kind)
    if content == "delta":
        return Subject("delta", key=_key_type(log))
    id = layout.DELTA_FIELD if descriptor is None else descriptor.field
    if place is not None and (named or id < 0):  # a collection goes by its directories
        id = place.field
    fields = _fields(log, descriptor, parts, id, quiet) if content in ("insert", "columns") else []
    return Subject(content, tuple(named.get(one.id, one) for one in fields))


def _content(log: Log, descriptor: Descriptor | None, parts: list[Part], kind: str) -> Content:
    if descriptor is None:
        if kind == layout.DELTA_LOG:
            return "delta"
        try:
            ids = [one.id for one in stored_fields(log.payload(parts[0]), None, -1)]
        except UnreadableError as error:
            raise FormatError(str(error)) from None
        return "delta" if not kind and ids == [0, 1] else "columns"
    events = [part.event.type for part in parts if part.event is not None]
    return content_of(events[0], descriptor) if events and kind != layout.INSERT_LOG else "insert"


def _fields(log: Log, descriptor: Descriptor | None, parts: list[Part], id: int, quiet: Findings) -> list[Field]:
    """The fields of the first event that has them; those that the descriptor gives where none has."""
    for part in parts:
        try:
            fields = stored_fields(log.payload(part), descriptor, id)
        except UnreadableError as error:
            quiet.damage(error.damage)
        else:
            return [_named(one) for one in fields] if descriptor is not None else fields
    if descriptor is None or described_field(descriptor, id).type is DataType.None_:
        found = quiet.damages[0] if quiet.damages else f"{log.path}: no event after the descriptor"
        raise FormatError(str(found))
    return [_named(described_field(descriptor, id))]


def _named(field: Field) -> Field:
    system = {one.id: one.name for one in SYSTEM}
    return replace(field, name=system.get(field.id, layout.PAYLOAD_COLUMN if field.id < 0 else str(field.id)))


def _key_type(log: Log) -> pa.DataType:
    some = next(read_deletes(log, Findings("skip")), None)
    return some.keys.type if some is not None else pa.string()

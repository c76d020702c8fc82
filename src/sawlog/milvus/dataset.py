"""Files by themselves: one binlog of any kind as a table, without the collection that it belongs to."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any, ClassVar

import pyarrow as pa

from sawlog.errors import OptionError
from sawlog.format.contract import BoundScan, Contents, Format, Fragment, Scan, View
from sawlog.format.damage import DAMAGE_SCHEMA, Findings
from sawlog.format.fields import FieldParser
from sawlog.guard import Undecodable, call_decoder
from sawlog.milvus import layout, paths
from sawlog.milvus.fields import parse_parts
from sawlog.milvus.fragments import (
    DDL_SCHEMA,
    DELETES_SCHEMA,
    EVENTS_SCHEMA,
    INDEX_SCHEMA,
    DeltaFragment,
    EventsFragment,
    FileFragment,
    FileSubject,
    read_subject,
)
from sawlog.milvus.log import Descriptor, LogPart, hold_log
from sawlog.milvus.metadata.schema import parse_user_schema
from sawlog.milvus.options import ReadOptions
from sawlog.milvus.payloads.payload import Payload, UnreadableError
from sawlog.milvus.stats import BM25_SCHEMA, STATS_SCHEMA
from sawlog.storage import File, Source


class LooseContents(Contents):
    """Files by themselves, all of them of one kind."""

    def __init__(self, format: Format, files: Sequence[File], scan: Scan) -> None:
        self._scan = scan
        self._options: ReadOptions = scan.options
        self._paths = list(files)
        super().__init__(format, files, scan)

    @cached_property
    def subject(self) -> FileSubject:
        """Subject of the first file; the others have to hold the same.

        Raises:
            FormatError: When it is no Milvus file.
        """
        schema = self._options.schema
        fields = parse_user_schema(schema, self._scan.storage)[1] if schema is not None else ()
        file = self._paths[0]
        with hold_log(file, self._scan.storage, self._options.max_item_bytes) as log:
            return read_subject(log, paths.parse(file), {field.id: field for field in fields})

    def find_view(self, name: str) -> View[Any]:
        """Return a view of the files, as `Contents.find_view` says.

        Raises:
            FormatError: When the first file is no Milvus file.
            OptionError: For a view of collections.
        """
        if name not in self.views and self.subject is not None:
            raise OptionError(f"view {name} is for collections; name the directory above insert_log")
        return super().find_view(name)

    def _make_rows_schema(self) -> pa.Schema:
        subject = self.subject
        if subject.content == "delta":
            return self._make_deletes_schema()
        schemas = {"ddl": DDL_SCHEMA, "index": INDEX_SCHEMA, "stats": STATS_SCHEMA, "bm25": BM25_SCHEMA}
        return schemas.get(subject.content) or pa.schema([field.to_arrow() for field in subject.fields])

    def _make_inserts_schema(self) -> pa.Schema:
        if self.subject.content not in ("insert", "columns"):
            raise OptionError(f"{self._paths[0].path}: view inserts is for insert logs; this is {self.subject.content}")
        return self._make_rows_schema()

    def _make_deletes_schema(self) -> pa.Schema:
        subject = self.subject
        if subject.content != "delta":
            raise OptionError(f"{self._paths[0].path}: view deletes is for delta logs; this is {subject.content}")
        return pa.schema([pa.field("pk", subject.key or pa.string(), nullable=False), *DELETES_SCHEMA])

    def _plan_rows(self, request: BoundScan, task_bytes: int | None) -> Iterator[Fragment]:
        """Yield a fragment per file."""
        del task_bytes
        for file in self.files:
            if self.subject.content == "delta":
                place, key = self._find_place(file), self.subject.key
                yield DeltaFragment(*request, file.path, file.size, file, place, deletes_only=False, key=key)
            else:
                yield FileFragment(*request, file.path, file.size, file, paths.parse(file), self.subject)

    def _plan_events(self, request: BoundScan, task_bytes: int | None) -> Iterator[Fragment]:
        del task_bytes
        for file in self.files:
            yield EventsFragment(*request, file.path, file.size, file, paths.parse(file))

    def _plan_checks(self, request: BoundScan, task_bytes: int | None) -> Iterator[Fragment]:
        del task_bytes
        for file in self.files:
            yield FileFragment(*request, file.path, file.size, file, paths.parse(file))

    views: ClassVar = {
        "rows": View(_make_rows_schema, _plan_rows),
        "inserts": View(_make_inserts_schema, _plan_rows),
        "deletes": View(_make_deletes_schema, _plan_rows),
        "frames": View(EVENTS_SCHEMA, _plan_events),
        "damage": View(DAMAGE_SCHEMA, _plan_checks),
    }

    def _find_place(self, file: File) -> tuple[int, int, int]:
        """Return ids of collection, partition and segment: by the descriptor, or by the path."""
        with hold_log(file, self.scan.storage, self._options.max_item_bytes) as log:
            descriptor = log.load_descriptor(Findings("skip"))
        if descriptor is not None:
            return descriptor.collection, descriptor.partition, descriptor.segment
        place = paths.parse(file)
        return (place.collection, place.partition, place.segment) if place is not None else (0, -1, -1)

    def make_field_parser(self, file: File, source: Source) -> FieldParser:
        """Return a parser of descriptor and events."""
        del file
        return lambda offset: parse_parts(source, offset)

    def facts(self, request: BoundScan) -> dict[str, Any]:
        """Return what the headers of the first file say."""
        del request
        quiet = Findings("skip", drained=True)
        with hold_log(self.files[0], self.scan.storage, self._options.max_item_bytes) as log:
            descriptor = log.load_descriptor(quiet)
            parts = list(log.iterate_parts(descriptor, quiet))
            payload: dict[str, Any] = {}
            if parts:
                try:
                    payload = _describe_payload(log.open_payload(parts[0]), bare=log.is_bare_parquet)
                except UnreadableError as error:
                    payload = {"payload": str(error)}
            if descriptor is not None:
                return _describe_descriptor(descriptor, parts) | payload
            if log.is_bare_parquet or log.shape == "stats":
                return {"content": self.subject.content, "envelope": "none", **payload}
            return {"envelope": str(quiet.damages[0])}


def _describe_payload(payload: Payload, *, bare: bool) -> dict[str, Any]:
    metadata = payload.reader.metadata
    writer = call_decoder(lambda: metadata.created_by)
    facts: dict[str, Any] = {
        "payload": ", ".join(f"{field.name}: {field.type}" for field in payload.schema),
        "payload rows": payload.rows,
        "payload written by": f"not text: {writer.detail}" if isinstance(writer, Undecodable) else writer,
    }
    stored = {key.decode("utf-8", "replace"): value for key, value in (metadata.metadata or {}).items()}
    keys = ("storage_version", layout.V2_MARK.decode()) if bare else ()
    return facts | {key: stored[key].decode("utf-8", "replace") for key in keys if key in stored}


def _describe_descriptor(descriptor: Descriptor, parts: Sequence[LogPart]) -> dict[str, Any]:
    events = [part.event.type.name for part in parts if part.event is not None]
    facts: dict[str, Any] = {
        "envelope": "before 2.0" if descriptor.is_legacy else "V1",
        "collection": descriptor.collection,
        "partition": descriptor.partition,
        "segment": descriptor.segment,
        "field": descriptor.field,
        "type": descriptor.type_name,
        "events": ", ".join(events) or "none",
        "created": str(layout.decode_tso(descriptor.timestamp)) if descriptor.timestamp else "unknown",
        "timestamps": f"{descriptor.start_timestamp} to {descriptor.end_timestamp}",
    }
    if descriptor.is_encrypted:
        facts["encrypted"] = f"zone {descriptor.extra.get('encryption_zone')}"
    return facts | {f"extra {key}": value for key, value in sorted(descriptor.extra.items()) if key != "edek"}

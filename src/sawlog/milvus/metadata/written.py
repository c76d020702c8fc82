"""The metadata of what sawlog writes, as a milvus-backup has it: `meta/full_meta.json` next to `binlogs/`."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from sawlog.milvus import layout
from sawlog.milvus.layout import DataType
from sawlog.milvus.metadata import shape
from sawlog.milvus.metadata.backup import parse_backup
from sawlog.milvus.types import Field
from sawlog.storage import Storage

_EXECUTED = 2
"""State of a backup that is complete."""


_DEFAULTS = {
    DataType.Bool: "bool_data",
    DataType.Int8: "int_data",
    DataType.Int16: "int_data",
    DataType.Int32: "int_data",
    DataType.Int64: "long_data",
    DataType.Float: "float_data",
    DataType.Double: "double_data",
    DataType.Timestamptz: "timestamptz_data",
    DataType.Date: "date_data",
    DataType.Time: "time_data",
}


@dataclass(frozen=True, slots=True)
class WrittenLog:
    """Log that was written: path below the root of the logs, bytes, rows, and the range of their timestamps."""

    path: str
    size: int
    rows: int = 0
    first: int = 0
    last: int = 0


@dataclass(slots=True)
class WrittenSegment:
    """Segment that was written: its rows, and its logs, those of inserts by field."""

    partition: int
    id: int
    rows: int = 0
    inserts: dict[int, list[WrittenLog]] = field(default_factory=dict)
    deltas: list[WrittenLog] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class WrittenCollection:
    """Collection that was written: id, name, database, fields, and names of partitions where it has some."""

    id: int
    name: str
    fields: tuple[Field, ...]
    partitions: Mapping[int, str]
    database: str = layout.DEFAULT_DATABASE


def _build_meta_path(root: str, name: str) -> str:
    """Return the path of a file of metadata in a backup's tree."""
    return f"{root.rstrip('/')}/{layout.BACKUP_META_DIRECTORY}/{name}"


def make_documents(
    root: str, collections: Iterable[tuple[WrittenCollection, Iterable[WrittenSegment]]], storage: Storage
) -> dict[str, bytes]:
    """Return the metadata of a tree with some more segments: its files, by path.

    Raises:
        FormatError: When the metadata that is there is none.
    """
    place = _build_meta_path(root, layout.BACKUP_META)
    document: dict[str, Any] = {"name": root.rstrip("/").rsplit("/", 1)[-1], "state_code": _EXECUTED}
    if storage.exists(place):
        document = shape.parse_json(storage.read(place), f"{place}: expected the metadata of a backup")
        parse_backup(document, place)
    backups = document.setdefault("collection_backups", [])
    for collection, segments in collections:
        entry = next((backup for backup in backups if backup.get("collection_id") == collection.id), None)
        if entry is None:
            entry = {"collection_id": collection.id, "db_name": collection.database}
            entry["collection_name"] = collection.name
            backups.append(entry)
        if collection.fields:
            entry["collection_name"] = collection.name
            entry["schema"] = _describe_schema(collection)
        for segment in segments:
            _add(entry, segment, collection)
    parse_backup(document, place)
    head = {key: value for key, value in document.items() if key != "collection_backups"}
    written = {place: document, _build_meta_path(root, layout.BACKUP_HEAD): head}
    return {path: json.dumps(document, ensure_ascii=False, indent=1).encode() for path, document in written.items()}


def _describe_schema(collection: WrittenCollection) -> dict[str, Any]:
    """Return a collection's schema. A server adds the dynamic field itself, last, and refuses one that is named."""
    last = max((field.id for field in collection.fields), default=0)
    fields = [describe_field(field) for field in collection.fields if not (field.dynamic and field.id == last)]
    dynamic = {"enable_dynamic_field": True} if any(field.dynamic for field in collection.fields) else {}
    return {"name": collection.name, "fields": fields, **dynamic}


def describe_field(user_field: Field) -> dict[str, Any]:
    """Return a field as protobuf's JSON, without what is nothing. A server makes no field without its bounds."""
    texts = DataType.VarChar in (user_field.type, user_field.element)
    params = {
        "dim": user_field.dim,
        "max_length": user_field.max_length or (layout.MAX_LENGTH if texts else 0),
        "max_capacity": layout.MAX_CAPACITY if user_field.type is DataType.Array else 0,
    }
    entry = {
        "fieldID": user_field.id,
        "name": user_field.name,
        "is_primary_key": user_field.primary,
        "data_type": int(user_field.type),
        "element_type": int(user_field.element),
        "type_params": [{"key": key, "value": str(value)} for key, value in params.items() if value],
        "autoID": user_field.auto_id,
        "nullable": user_field.nullable,
        "is_dynamic": user_field.dynamic,
        "is_function_output": user_field.computed,
    }
    default = (
        {}
        if user_field.default is None
        else {"default_value": {_DEFAULTS.get(user_field.type, "string_data"): _describe_default(user_field)}}
    )
    return {key: value for key, value in entry.items() if value} | default


def _describe_default(user_field: Field) -> Any:
    return (
        user_field.default.decode("utf-8", "replace") if isinstance(user_field.default, bytes) else user_field.default
    )


def _add(document: dict[str, Any], segment: WrittenSegment, collection: WrittenCollection) -> None:
    """Put a segment among those of its partition, or more logs to one that is there."""
    everywhere = segment.partition == layout.ALL_PARTITIONS
    if everywhere:
        place = document.setdefault("l0_segments", [])
    else:
        partitions = document.setdefault("partition_backups", [])
        partition = next(
            (partition for partition in partitions if partition.get("partition_id") == segment.partition), None
        )
        if partition is None:
            name = collection.partitions.get(segment.partition, f"_{segment.partition}")
            partition = {"partition_id": segment.partition, "partition_name": name, "collection_id": collection.id}
            partitions.append(partition)
        place = partition.setdefault("segment_backups", [])
    entry = next((segment_entry for segment_entry in place if segment_entry.get("segment_id") == segment.id), None)
    if entry is None:
        entry = {"segment_id": segment.id, "collection_id": collection.id, "partition_id": segment.partition}
        place.append(entry)
    if segment.inserts:
        entry["num_of_rows"] = entry.get("num_of_rows", 0) + segment.rows
        entry["binlogs"] = [
            {"fieldID": id, "binlogs": [_describe_log(log) for log in logs]}
            if id
            else {"binlogs": [_describe_log(log) for log in logs]}
            for id, logs in sorted(segment.inserts.items())
        ]
    if segment.deltas:
        entry.setdefault("deltalogs", []).append({"binlogs": [_describe_log(delta) for delta in segment.deltas]})
    if not entry.get("binlogs"):
        entry["is_l0"] = True
    logs = [log for kind in ("binlogs", "deltalogs") for group in entry.get(kind, ()) for log in group["binlogs"]]
    entry["size"] = sum(log["log_size"] for log in logs)


def _describe_log(log: WrittenLog) -> dict[str, Any]:
    entry = {
        "entries_num": log.rows,
        "timestamp_from": log.first,
        "timestamp_to": log.last,
        "log_path": log.path,
        "log_size": log.size,
        "log_id": int(log.path.rsplit("/", 1)[-1]),
    }
    return {key: value for key, value in entry.items() if value}

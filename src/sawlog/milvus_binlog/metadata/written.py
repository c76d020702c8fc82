"""The metadata of what sawlog writes, as a milvus-backup has it: `meta/full_meta.json` next to `binlogs/`."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from sawlog.milvus_binlog import layout
from sawlog.milvus_binlog.layout import DataType
from sawlog.milvus_binlog.metadata import shape
from sawlog.milvus_binlog.metadata.backup import parse_backup
from sawlog.milvus_binlog.types import Field
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
    """One log: its path below the root of the logs, its bytes, and its rows, with the range of their timestamps."""

    path: str
    size: int
    rows: int = 0
    first: int = 0
    last: int = 0


@dataclass(slots=True)
class WrittenSegment:
    """One segment: its rows, and its logs, those of inserts by field."""

    partition: int
    id: int
    rows: int = 0
    inserts: dict[int, list[WrittenLog]] = field(default_factory=dict)
    deltas: list[WrittenLog] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class WrittenCollection:
    """One collection: its id, name, database, fields, and the names of its partitions where they have some."""

    id: int
    name: str
    fields: tuple[Field, ...]
    partitions: Mapping[int, str]
    database: str = layout.DEFAULT_DATABASE


def _meta_path(root: str, name: str) -> str:
    """Where the metadata of a backup's tree is."""
    return f"{root.rstrip('/')}/{layout.BACKUP_META_DIRECTORY}/{name}"


def backup_documents(
    root: str, collections: Iterable[tuple[WrittenCollection, Iterable[WrittenSegment]]], storage: Storage
) -> dict[str, bytes]:
    """The metadata of a tree with some more segments: its files, by path.

    Args:
        root: The tree; what its metadata says already stays.
        collections: What was written, by collection.
        storage: Where it is.

    Raises:
        FormatError: When the metadata that is there is none.
    """
    place = _meta_path(root, layout.BACKUP_META)
    document: dict[str, Any] = {"name": root.rstrip("/").rsplit("/", 1)[-1], "state_code": _EXECUTED}
    if storage.exists(place):
        document = shape.parsed(storage.read(place), f"{place}: expected the metadata of a backup")
        parse_backup(document, place)
    backups = document.setdefault("collection_backups", [])
    for collection, segments in collections:
        known = next((backup for backup in backups if backup.get("collection_id") == collection.id), None)
        if known is None:
            known = {"collection_id": collection.id, "db_name": collection.database}
            known["collection_name"] = collection.name
            backups.append(known)
        if collection.fields:
            known["collection_name"] = collection.name
            known["schema"] = _schema(collection)
        for segment in segments:
            _add(known, segment, collection)
    parse_backup(document, place)
    head = {key: value for key, value in document.items() if key != "collection_backups"}
    written = {place: document, _meta_path(root, layout.BACKUP_HEAD): head}
    return {path: json.dumps(one, ensure_ascii=False, indent=1).encode() for path, one in written.items()}


def _schema(collection: WrittenCollection) -> dict[str, Any]:
    """Its schema. A server adds the dynamic field itself, after all others, and refuses one that is named."""
    last = max((field.id for field in collection.fields), default=0)
    fields = [json_field(field) for field in collection.fields if not (field.dynamic and field.id == last)]
    dynamic = {"enable_dynamic_field": True} if any(field.dynamic for field in collection.fields) else {}
    return {"name": collection.name, "fields": fields, **dynamic}


def json_field(one: Field) -> dict[str, Any]:
    """One field; what is nothing is left out, as protobuf's JSON does. A server makes no field without its bounds."""
    texts = DataType.VarChar in (one.type, one.element)
    params = {
        "dim": one.dim,
        "max_length": one.max_length or (layout.MAX_LENGTH if texts else 0),
        "max_capacity": layout.MAX_CAPACITY if one.type is DataType.Array else 0,
    }
    given = {
        "fieldID": one.id,
        "name": one.name,
        "is_primary_key": one.primary,
        "data_type": int(one.type),
        "element_type": int(one.element),
        "type_params": [{"key": key, "value": str(value)} for key, value in params.items() if value],
        "autoID": one.auto_id,
        "nullable": one.nullable,
        "is_dynamic": one.dynamic,
        "is_function_output": one.computed,
    }
    default = {} if one.default is None else {"default_value": {_DEFAULTS.get(one.type, "string_data"): _default(one)}}
    return {key: value for key, value in given.items() if value} | default


def _default(one: Field) -> Any:
    return one.default.decode("utf-8", "replace") if isinstance(one.default, bytes) else one.default


def _add(known: dict[str, Any], segment: WrittenSegment, collection: WrittenCollection) -> None:
    """Put a segment among those of its partition, or more logs to one that is there."""
    everywhere = segment.partition == layout.ALL_PARTITIONS
    if everywhere:
        place = known.setdefault("l0_segments", [])
    else:
        partitions = known.setdefault("partition_backups", [])
        partition = next(
            (partition for partition in partitions if partition.get("partition_id") == segment.partition), None
        )
        if partition is None:
            name = collection.partitions.get(segment.partition, f"_{segment.partition}")
            partition = {"partition_id": segment.partition, "partition_name": name, "collection_id": collection.id}
            partitions.append(partition)
        place = partition.setdefault("segment_backups", [])
    entry = next((one for one in place if one.get("segment_id") == segment.id), None)
    if entry is None:
        entry = {"segment_id": segment.id, "collection_id": collection.id, "partition_id": segment.partition}
        place.append(entry)
    if segment.inserts:
        entry["num_of_rows"] = entry.get("num_of_rows", 0) + segment.rows
        entry["binlogs"] = [
            {"fieldID": id, "binlogs": [_log(log) for log in logs]} if id else {"binlogs": [_log(log) for log in logs]}
            for id, logs in sorted(segment.inserts.items())
        ]
    if segment.deltas:
        entry.setdefault("deltalogs", []).append({"binlogs": [_log(delta) for delta in segment.deltas]})
    if not entry.get("binlogs"):
        entry["is_l0"] = True
    logs = [log for kind in ("binlogs", "deltalogs") for group in entry.get(kind, ()) for log in group["binlogs"]]
    entry["size"] = sum(log["log_size"] for log in logs)


def _log(one: WrittenLog) -> dict[str, Any]:
    given = {
        "entries_num": one.rows,
        "timestamp_from": one.first,
        "timestamp_to": one.last,
        "log_path": one.path,
        "log_size": one.size,
        "log_id": int(one.path.rsplit("/", 1)[-1]),
    }
    return {key: value for key, value in given.items() if value}

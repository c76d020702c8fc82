"""The metadata of a milvus-backup: `full_meta.json`. Zero values are left out there."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

from sawlog.errors import FormatError
from sawlog.milvus_binlog import layout, paths
from sawlog.milvus_binlog.layout import DEFAULT_DATABASE, SegmentLevel
from sawlog.milvus_binlog.metadata import wire
from sawlog.milvus_binlog.metadata.model import CollectionMeta, Log, Moment, SegmentMeta, reading
from sawlog.milvus_binlog.metadata.schema import json_fields


def parse_backup(data: Mapping[str, Any], where: str) -> Moment:
    """The collections of a backup.

    Raises:
        FormatError: Names the collection that is none.
    """
    found = {}
    with reading(where):
        for at, given in enumerate(data["collection_backups"]):
            name = given.get("collection_name", at) if isinstance(given, Mapping) else at
            with reading(f"collection {name!r}"):
                meta = _collection(given)
                found[meta.id] = meta
    return Moment(found)


def _collection(given: Mapping[str, Any]) -> CollectionMeta:
    partitions = {}
    segments: dict[int, SegmentMeta] = {}
    for partition in given.get("partition_backups", ()):
        id = int(partition.get("partition_id", 0))
        partitions[id] = str(partition.get("partition_name", ""))
        for segment in partition.get("segment_backups", ()):
            made = _segment(segment, id)
            segments[made.id] = made
    for segment in given.get("l0_segments", ()):
        made = _segment({"is_l0": True, **segment}, layout.ALL_PARTITIONS)
        segments[made.id] = made
    schema = given.get("schema", {})
    properties = {pair["key"]: pair.get("value") for pair in given.get("properties", ())}
    return CollectionMeta(
        id=int(given.get("collection_id", 0)),
        name=str(given.get("collection_name", "")),
        fields=json_fields({"fields": [], **schema}),
        partitions=partitions,
        segments=segments,
        ttl=seconds(properties.get(layout.TTL_PROPERTY)),
        database=str(given.get("db_name") or DEFAULT_DATABASE),
        aliases=tuple(map(str, given.get("aliases", ()))),
        created=int(given.get("created_timestamp", 0)),
        checkpoints={
            str(channel): position_time(base64.b64decode(position, validate=True))
            for channel, position in given.get("channel_checkpoints", {}).items()
        },
    )


def position_time(position: bytes) -> int:
    """The TSO of a position in the message queue.

    Raises:
        FormatError: When it is none.
    """
    time = wire.integer(wire.decode(position, "a position in the message queue"), 4)
    if not 0 <= time < layout.MAX_TSO:
        raise FormatError(f"a position in the message queue: {time} is no TSO")
    return time


def seconds(value: Any) -> int:
    """A time to live in metadata, where it is one."""
    return int(value) if value is not None and str(value).isdigit() else 0


def _segment(given: Mapping[str, Any], partition: int) -> SegmentMeta:
    def logs(entry: Mapping[str, Any]) -> tuple[Log, ...]:
        found = (one for one in entry.get("binlogs", ()) if one)
        return tuple(
            Log(
                int(one["log_id"]) if one.get("log_id") else paths.trailing_id(str(one["log_path"])),
                int(one.get("timestamp_from", 0)),
                int(one.get("timestamp_to", 0)),
            )
            for one in found
        )

    return SegmentMeta(
        id=int(given.get("segment_id", 0)),
        partition=int(given.get("partition_id", partition)),
        level=SegmentLevel.L0 if given.get("is_l0") else SegmentLevel.L1,
        channel=str(given.get("v_channel", "")),
        rows=int(given.get("num_of_rows", 0)),
        storage_version=int(given.get("storage_version", 0)),
        inserts={int(entry.get("fieldID", 0)): logs(entry) for entry in given.get("binlogs", ()) if entry},
        deltas=tuple(log for entry in given.get("deltalogs", ()) for log in logs(entry)),
    )

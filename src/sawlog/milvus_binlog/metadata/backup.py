"""The metadata of a milvus-backup: `full_meta.json`. Zero values are left out there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from sawlog.errors import FormatError
from sawlog.milvus_binlog import layout, paths
from sawlog.milvus_binlog.layout import DEFAULT_DATABASE, SegmentLevel
from sawlog.milvus_binlog.metadata import shape
from sawlog.milvus_binlog.metadata.messages import MsgPosition
from sawlog.milvus_binlog.metadata.model import CollectionMeta, Log, Moment, SegmentMeta, reading
from sawlog.milvus_binlog.metadata.schema import json_fields


def parse_backup(data: Mapping[str, Any], where: str) -> Moment:
    """The collections of a backup.

    Raises:
        FormatError: Names the collection that is none.
    """
    found = {}
    with reading(where):
        for at, given in enumerate(shape.listing(data["collection_backups"], "'collection_backups'")):
            name = given.get("collection_name", at) if isinstance(given, Mapping) else at
            with reading(f"collection {name!r}"):
                meta = _collection(shape.mapping(given, "its entry"))
                found[meta.id] = meta
    return Moment(found)


def _collection(given: Mapping[str, Any]) -> CollectionMeta:
    partitions = {}
    segments: dict[int, SegmentMeta] = {}
    for partition in shape.mappings(given.get("partition_backups"), "'partition_backups'"):
        id = shape.number(partition, "partition_id")
        partitions[id] = str(partition.get("partition_name", ""))
        for segment in shape.mappings(partition.get("segment_backups"), "'segment_backups'"):
            made = segment_meta(segment, id)
            segments[made.id] = made
    for segment in shape.mappings(given.get("l0_segments"), "'l0_segments'"):
        made = segment_meta({"is_l0": True, **segment}, layout.ALL_PARTITIONS)
        segments[made.id] = made
    schema = shape.mapping(given.get("schema", {}), "'schema'")
    properties = {
        str(shape.required(pair, "key")): pair.get("value")
        for pair in shape.mappings(given.get("properties"), "'properties'")
    }
    checkpoints = shape.mapping(given.get("channel_checkpoints", {}), "'channel_checkpoints'")
    return CollectionMeta(
        id=shape.number(given, "collection_id"),
        name=str(given.get("collection_name", "")),
        fields=json_fields({"fields": [], **schema}),
        partitions=partitions,
        segments=segments,
        ttl=seconds(properties.get(layout.TTL_PROPERTY)),
        database=str(given.get("db_name") or DEFAULT_DATABASE),
        aliases=tuple(map(str, shape.listing(given.get("aliases"), "'aliases'"))),
        created=shape.number(given, "created_timestamp"),
        checkpoints={
            channel: position_time(shape.from_base64(position, f"the checkpoint of {channel}"))
            for channel, position in checkpoints.items()
        },
    )


def position_time(position: bytes) -> int:
    """The TSO of a position in the message queue.

    Raises:
        FormatError: When it is none.
    """
    time = MsgPosition(position, "a position in the message queue").timestamp
    if not 0 <= time < layout.MAX_TSO:
        raise FormatError(f"a position in the message queue: {time} is no TSO")
    return time


def seconds(value: Any) -> int:
    """A time to live in metadata, where it is one."""
    return int(str(value)) if layout.SECONDS.fullmatch(str(value)) else 0


def segment_meta(given: Mapping[str, Any], partition: int) -> SegmentMeta:
    """A segment, as the metadata of a backup describes it."""

    def logs(entry: Mapping[str, Any]) -> tuple[Log, ...]:
        found = (shape.mapping(one, "a binlog") for one in shape.listing(entry.get("binlogs"), "'binlogs'") if one)
        return tuple(
            Log(
                shape.number(one, "log_id") or paths.trailing_id(str(shape.required(one, "log_path"))),
                shape.number(one, "timestamp_from"),
                shape.number(one, "timestamp_to"),
                shape.number(one, "entries_num"),
                shape.number(one, "log_size") if shape.number(one, "memory_size") else 0,
            )
            for one in found
        )

    def entries(key: str) -> Iterator[Mapping[str, Any]]:
        return (shape.mapping(one, repr(key)) for one in shape.listing(given.get(key), repr(key)) if one)

    return SegmentMeta(
        id=shape.number(given, "segment_id"),
        partition=shape.integer(given.get("partition_id", partition), "'partition_id'"),
        level=SegmentLevel.L0 if given.get("is_l0") else SegmentLevel.L1,
        channel=str(given.get("v_channel", "")),
        rows=shape.number(given, "num_of_rows"),
        storage_version=shape.number(given, "storage_version"),
        inserts={shape.number(entry, "fieldID"): logs(entry) for entry in entries("binlogs")},
        deltas=tuple(log for entry in entries("deltalogs") for log in logs(entry)),
    )

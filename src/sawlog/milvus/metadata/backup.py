"""The metadata of a milvus-backup: `full_meta.json`. Zero values are left out there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from sawlog.errors import FormatError
from sawlog.milvus import layout, paths
from sawlog.milvus.layout import DEFAULT_DATABASE, SegmentLevel
from sawlog.milvus.metadata import shape
from sawlog.milvus.metadata.messages import MsgPosition
from sawlog.milvus.metadata.model import CollectionMeta, Log, MetadataSnapshot, SegmentMeta, reading
from sawlog.milvus.metadata.schema import json_fields


def parse_backup(data: Mapping[str, Any], location: str) -> MetadataSnapshot:
    """Return the collections of a backup.

    Raises:
        FormatError: Names the collection that is none.
    """
    collections = {}
    with reading(location):
        for index, entry in enumerate(shape.listing(data["collection_backups"], "'collection_backups'")):
            name = entry.get("collection_name", index) if isinstance(entry, Mapping) else index
            with reading(f"collection {name!r}"):
                meta = _collection(shape.mapping(entry, "its entry"))
                collections[meta.id] = meta
    return MetadataSnapshot(collections)


def _collection(entry: Mapping[str, Any]) -> CollectionMeta:
    partitions = {}
    segments: dict[int, SegmentMeta] = {}
    for partition in shape.mappings(entry.get("partition_backups"), "'partition_backups'"):
        id = shape.number(partition, "partition_id")
        partitions[id] = str(partition.get("partition_name", ""))
        for segment in shape.mappings(partition.get("segment_backups"), "'segment_backups'"):
            meta = segment_meta(segment, id)
            segments[meta.id] = meta
    for segment in shape.mappings(entry.get("l0_segments"), "'l0_segments'"):
        meta = segment_meta({"is_l0": True, **segment}, layout.ALL_PARTITIONS)
        segments[meta.id] = meta
    schema = shape.mapping(entry.get("schema", {}), "'schema'")
    properties = {
        str(shape.require(pair, "key")): pair.get("value")
        for pair in shape.mappings(entry.get("properties"), "'properties'")
    }
    checkpoints = shape.mapping(entry.get("channel_checkpoints", {}), "'channel_checkpoints'")
    return CollectionMeta(
        id=shape.number(entry, "collection_id"),
        name=str(entry.get("collection_name", "")),
        fields=json_fields({"fields": [], **schema}),
        partitions=partitions,
        segments=segments,
        ttl=seconds(properties.get(layout.TTL_PROPERTY)),
        database=str(entry.get("db_name") or DEFAULT_DATABASE),
        aliases=tuple(map(str, shape.listing(entry.get("aliases"), "'aliases'"))),
        created=shape.number(entry, "created_timestamp"),
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


def segment_meta(entry: Mapping[str, Any], partition: int) -> SegmentMeta:
    """A segment, as the metadata of a backup describes it."""

    def logs(entry: Mapping[str, Any]) -> tuple[Log, ...]:
        binlogs = (
            shape.mapping(binlog, "a binlog") for binlog in shape.listing(entry.get("binlogs"), "'binlogs'") if binlog
        )
        return tuple(
            Log(
                shape.number(binlog, "log_id") or paths.trailing_id(str(shape.require(binlog, "log_path"))),
                shape.number(binlog, "timestamp_from"),
                shape.number(binlog, "timestamp_to"),
                shape.number(binlog, "entries_num"),
                shape.number(binlog, "log_size") if shape.number(binlog, "memory_size") else 0,
            )
            for binlog in binlogs
        )

    def entries(key: str) -> Iterator[Mapping[str, Any]]:
        return (shape.mapping(log, repr(key)) for log in shape.listing(entry.get(key), repr(key)) if log)

    return SegmentMeta(
        id=shape.number(entry, "segment_id"),
        partition=shape.integer(entry.get("partition_id", partition), "'partition_id'"),
        level=SegmentLevel.L0 if entry.get("is_l0") else SegmentLevel.L1,
        channel=str(entry.get("v_channel", "")),
        rows=shape.number(entry, "num_of_rows"),
        storage_version=shape.number(entry, "storage_version"),
        inserts={shape.number(entry, "fieldID"): logs(entry) for entry in entries("binlogs")},
        deltas=tuple(log for entry in entries("deltalogs") for log in logs(entry)),
    )

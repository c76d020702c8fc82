"""The metadata of a milvus-backup: `full_meta.json`. Zero values are left out there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from sawlog.errors import FormatError
from sawlog.milvus import layout, paths
from sawlog.milvus.layout import DEFAULT_DATABASE, SegmentLevel
from sawlog.milvus.metadata import shape
from sawlog.milvus.metadata.messages import MsgPosition
from sawlog.milvus.metadata.model import CollectionMeta, LogMeta, MetadataSnapshot, SegmentMeta, locate_errors
from sawlog.milvus.metadata.schema import parse_json_fields


def parse_backup(data: Mapping[str, Any], location: str) -> MetadataSnapshot:
    """Return the collections of a backup.

    Raises:
        FormatError: Names the collection that is none.
    """
    collections = {}
    with locate_errors(location):
        for index, entry in enumerate(shape.require_list(data["collection_backups"], "'collection_backups'")):
            name = entry.get("collection_name", index) if isinstance(entry, Mapping) else index
            with locate_errors(f"collection {name!r}"):
                meta = _parse_collection(shape.require_mapping(entry, "its entry"))
                collections[meta.id] = meta
    return MetadataSnapshot(collections)


def _parse_collection(entry: Mapping[str, Any]) -> CollectionMeta:
    partitions = {}
    segments: dict[int, SegmentMeta] = {}
    for partition in shape.require_mappings(entry.get("partition_backups"), "'partition_backups'"):
        id = shape.read_number(partition, "partition_id")
        partitions[id] = str(partition.get("partition_name", ""))
        for segment in shape.require_mappings(partition.get("segment_backups"), "'segment_backups'"):
            meta = parse_segment(segment, id)
            segments[meta.id] = meta
    for segment in shape.require_mappings(entry.get("l0_segments"), "'l0_segments'"):
        meta = parse_segment({"is_l0": True, **segment}, layout.ALL_PARTITIONS)
        segments[meta.id] = meta
    schema = shape.require_mapping(entry.get("schema", {}), "'schema'")
    properties = {
        str(shape.require(pair, "key")): pair.get("value")
        for pair in shape.require_mappings(entry.get("properties"), "'properties'")
    }
    checkpoints = shape.require_mapping(entry.get("channel_checkpoints", {}), "'channel_checkpoints'")
    return CollectionMeta(
        id=shape.read_number(entry, "collection_id"),
        name=str(entry.get("collection_name", "")),
        fields=parse_json_fields({"fields": [], **schema}),
        partitions=partitions,
        segments=segments,
        ttl=parse_seconds(properties.get(layout.TTL_PROPERTY)),
        database=str(entry.get("db_name") or DEFAULT_DATABASE),
        aliases=tuple(map(str, shape.require_list(entry.get("aliases"), "'aliases'"))),
        created=shape.read_number(entry, "created_timestamp"),
        checkpoints={
            channel: decode_position(shape.from_base64(position, f"the checkpoint of {channel}"))
            for channel, position in checkpoints.items()
        },
    )


def decode_position(position: bytes) -> int:
    """Return the TSO of a position in the message queue.

    Raises:
        FormatError: When it is none.
    """
    time = MsgPosition(position, "a position in the message queue").timestamp
    if not 0 <= time < layout.MAX_TSO:
        raise FormatError(f"a position in the message queue: {time} is no TSO")
    return time


def parse_seconds(value: Any) -> int:
    """Return a time to live in metadata, where it is one."""
    return int(str(value)) if layout.SECONDS.fullmatch(str(value)) else 0


def parse_segment(entry: Mapping[str, Any], partition: int) -> SegmentMeta:
    """Return a segment, as the metadata of a backup describes it."""

    def parse_logs(entry: Mapping[str, Any]) -> tuple[LogMeta, ...]:
        binlogs = (
            shape.require_mapping(binlog, "a binlog")
            for binlog in shape.require_list(entry.get("binlogs"), "'binlogs'")
            if binlog
        )
        return tuple(
            LogMeta(
                shape.read_number(binlog, "log_id") or paths.parse_trailing_id(str(shape.require(binlog, "log_path"))),
                shape.read_number(binlog, "timestamp_from"),
                shape.read_number(binlog, "timestamp_to"),
                shape.read_number(binlog, "entries_num"),
                shape.read_number(binlog, "log_size") if shape.read_number(binlog, "memory_size") else 0,
            )
            for binlog in binlogs
        )

    def list_entries(key: str) -> Iterator[Mapping[str, Any]]:
        return (shape.require_mapping(log, repr(key)) for log in shape.require_list(entry.get(key), repr(key)) if log)

    return SegmentMeta(
        id=shape.read_number(entry, "segment_id"),
        partition=shape.require_integer(entry.get("partition_id", partition), "'partition_id'"),
        level=SegmentLevel.L0 if entry.get("is_l0") else SegmentLevel.L1,
        channel=str(entry.get("v_channel", "")),
        rows=shape.read_number(entry, "num_of_rows"),
        storage_version=shape.read_number(entry, "storage_version"),
        inserts={shape.read_number(entry, "fieldID"): parse_logs(entry) for entry in list_entries("binlogs")},
        deltas=tuple(log for entry in list_entries("deltalogs") for log in parse_logs(entry)),
    )

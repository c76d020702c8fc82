"""The metadata of Milvus' snapshots: a JSON document per snapshot, and a manifest in Avro per segment."""

from __future__ import annotations

import io
import posixpath
from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from typing import Any

from sawlog.errors import FormatError
from sawlog.guard import import_optional
from sawlog.milvus import layout
from sawlog.milvus.layout import SegmentLevel
from sawlog.milvus.metadata import shape
from sawlog.milvus.metadata.backup import parse_seconds, parse_segment
from sawlog.milvus.metadata.manifest import decode_avro, make_list_schema, make_record_schema, parse_version
from sawlog.milvus.metadata.model import CollectionMeta, SegmentMeta, locate_errors
from sawlog.milvus.metadata.schema import parse_json_fields
from sawlog.storage import Storage


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Document of a snapshot.

    Attributes:
        path: Its file, `snapshots/<collection>/metadata/<snapshot>.json`.
        collection: Id of the collection.
        time: The time that it is of, as a TSO.
        version: Version of the format, which is that of its manifests.
        document: What it says.
    """

    path: str
    collection: int
    time: int
    version: int
    document: Mapping[str, Any]

    @classmethod
    def of(cls, document: Mapping[str, Any], path: str) -> Snapshot:
        """Return the snapshot of a document.

        Raises:
            FormatError: When it is none, or of a newer version.
        """
        with locate_errors(path):
            info = shape.require_mapping(shape.require(document, "snapshot_info"), "'snapshot_info'")
            version = shape.read_number(document, "format_version")
            if version > layout.LAST_SNAPSHOT:
                raise FormatError(f"a snapshot of version {version}; versions up to {layout.LAST_SNAPSHOT} are read")
            return cls(
                path, shape.read_number(info, "collection_id"), shape.read_number(info, "create_ts"), version, document
            )

    def read_meta(self, storage: Storage) -> CollectionMeta:
        """Return the collection, with the segments of the snapshot.

        Raises:
            FormatError: For a part that is not what it should be, or a manifest that is not there.
        """
        with locate_errors(self.path):
            entry = shape.require_mapping(shape.require(self.document, "collection"), "'collection'")
            schema = shape.require_mapping(shape.require(entry, "schema"), "'schema'")
            properties = shape.require_mappings(entry.get("properties") or schema.get("properties"), "'properties'")
            values = {str(pair.get("key")): pair.get("value") for pair in properties}
            partitions = shape.require_mapping(entry.get("partitions", {}), "'partitions'")
            segments = self._read_segments(storage)
            return CollectionMeta(
                id=self.collection,
                name=str(schema.get("name", "")),
                fields=parse_json_fields({"fields": [], **schema}),
                partitions={
                    shape.require_integer(id, "a partition's id"): str(name) for name, id in partitions.items()
                },
                segments={segment.id: segment for segment in segments},
                ttl=parse_seconds(values.get(layout.TTL_PROPERTY)),
            )

    def _read_segments(self, storage: Storage) -> Iterator[SegmentMeta]:
        entries = shape.require_mappings(self.document.get("storagev2_manifest_list"), "'storagev2_manifest_list'")
        versions = {
            shape.read_number(entry, "segment_id") or shape.read_number(entry, "segmentID"): str(
                entry.get("manifest", "")
            )
            for entry in entries
        }
        for place in shape.require_list(self.document.get("manifest_list"), "'manifest_list'"):
            path = self._build_manifest_path(shape.require_text(place, "the path of a manifest"))
            if not storage.exists(path):
                raise FormatError(f"{path}: a manifest that the snapshot names is not there")
            with locate_errors(path):
                record = _read_segment(storage.read(path), self.version)
                meta = parse_segment(record, layout.ALL_PARTITIONS)
                yield replace(
                    meta,
                    commit_timestamp=shape.read_number(record, "commit_timestamp"),
                    manifest=parse_version(versions.get(meta.id, "")),
                )

    def _build_manifest_path(self, place: str) -> str:
        """Return the path of a manifest by that in the bucket, `.../manifests/<snapshot>/<segment>.avro`."""
        parts = place.split("/")[-2:]
        if len(parts) < 2 or not layout.ID.match(parts[0]) or not layout.ID.match(parts[1].removesuffix(".avro")):
            raise FormatError(f"a manifest at {place!r}: expected manifests/<snapshot>/<segment>.avro")
        return posixpath.join(posixpath.dirname(posixpath.dirname(self.path)), layout.SNAPSHOT_MANIFESTS, *parts)


@dataclass(frozen=True, slots=True)
class Snapshots:
    """Snapshots of collections as their metadata at any time: the last one before it, or the first there is."""

    snapshots: tuple[Snapshot, ...]
    storage: Storage

    def find_collections(self, time: int | None) -> Mapping[int, CollectionMeta]:
        """Return the collections at a time, as `Timeline.find_collections` says."""
        ordered = sorted(self.snapshots, key=lambda snapshot: snapshot.time)
        latest: dict[int, Snapshot] = {}
        for snapshot in ordered:
            if snapshot.collection not in latest or time is None or snapshot.time <= time:
                latest[snapshot.collection] = snapshot
        return {id: snapshot.read_meta(self.storage) for id, snapshot in latest.items()}

    def list_collection_ids(self) -> AbstractSet[int]:
        """Return the ids of the collections, as `Timeline.list_collection_ids` says."""
        return {snapshot.collection for snapshot in self.snapshots}


_POSITION = {"channel_name": "string", "msg_id": "bytes", "msg_group": "string", "timestamp": "long"}
_BINLOG = ("entries_num", "timestamp_from", "timestamp_to", "log_path", "log_size", "log_id", "memory_size")
_CHILDREN, _COMMIT, _DELETES = 4, 3, 5
"""Versions of the format with column groups, with timestamps of commits, and with where deletes begin."""


def _read_segment(data: bytes, version: int) -> Mapping[str, Any]:
    """Return the segment of a manifest, an Avro record without a container, in the form of a backup's metadata.

    Raises:
        FormatError: When they are none.
    """
    if len(data) > layout.MAX_MANIFEST:
        raise FormatError(f"a manifest of {len(data)} bytes; expected no more than {layout.MAX_MANIFEST}")
    fastavro = import_optional("fastavro", "milvus", "manifests of Milvus' snapshots")
    record = decode_avro(fastavro.schemaless_reader, io.BytesIO(data), _make_schema(version), None)
    logs = {
        key: [{"fieldID": group["field_id"], "binlogs": group["binlogs"]} for group in record[f"{key[:-1]}_files"]]
        for key in ("binlogs", "deltalogs")
    }
    is_level_zero = record["segment_level"] == SegmentLevel.L0
    return {**record, **logs, "is_l0": is_level_zero, "v_channel": record["channel_name"]}


def _make_schema(version: int) -> dict[str, Any]:
    """Return the schema of a manifest, up to what is read of it."""
    binlog = {name: "string" if name == "log_path" else "long" for name in _BINLOG}
    children = {"child_fields": {"type": "array", "items": "long"}, "format": "string"} if version >= _CHILDREN else {}
    group = {"field_id": "long", **children, "binlogs": make_list_schema("Binlog", binlog)}
    return make_record_schema(
        "ManifestEntry",
        {
            **dict.fromkeys(("segment_id", "partition_id", "segment_level"), "long"),
            "channel_name": "string",
            "num_of_rows": "long",
            "start_position": make_record_schema("Position", _POSITION),
            "dml_position": "Position",
            "storage_version": "long",
            "is_sorted": "boolean",
            **({"commit_timestamp": "long"} if version >= _COMMIT else {}),
            **({"delete_apply_start_after_timetick": "long"} if version >= _DELETES else {}),
            "binlog_files": make_list_schema("FieldBinlog", group),
            "deltalog_files": {"type": "array", "items": "FieldBinlog"},
        },
    )

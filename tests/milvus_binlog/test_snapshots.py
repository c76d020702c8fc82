"""Snapshots of Milvus as metadata: made here as the sources of Milvus define them, of collections of a real server."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import fastavro
import pytest

import sawlog
from sawlog.errors import FormatError
from sawlog.milvus.metadata.load import load
from sawlog.milvus.metadata.model import CollectionMeta, LogMeta, SegmentMeta
from sawlog.milvus.metadata.written import describe_field
from sawlog.storage import Storage
from tests.milvus_binlog.packing import record
from tests.milvus_binlog.support import GOLDEN, NOW, copy_root, id_of, read_rows

DUMP = str(GOLDEN / "2.3.5" / "etcd.json")
COLLECTION = id_of("2.3.5", "alltypes")
VERSIONS = (0, 1, 2, 3, 4, 5)


def meta_of(collection: str = COLLECTION) -> CollectionMeta:
    timeline = load(DUMP, Storage()).timeline
    assert timeline is not None
    return timeline.find_collections(None)[int(collection)]


def schema(version: int) -> Any:
    """The first fields of the schema of Milvus; arrays of files that hold no rows follow."""
    longs = dict.fromkeys(("entries_num", "timestamp_from", "timestamp_to"), "long")
    binlog = {**longs, "log_path": "string", "log_size": "long", "log_id": "long", "memory_size": "long"}
    children = {"child_fields": {"type": "array", "items": "long"}, "format": "string"}
    binlogs = {"type": "array", "items": record("AvroBinlog", **binlog)}
    group = {"field_id": "long", **(children if version >= 4 else {}), "binlogs": binlogs}
    position = {"channel_name": "string", "msg_id": "bytes", "msg_group": "string", "timestamp": "long"}
    fields: dict[str, Any] = {"segment_id": "long", "partition_id": "long", "segment_level": "long"}
    fields |= {"channel_name": "string", "num_of_rows": "long"}
    fields |= {"start_position": record("AvroMsgPosition", **position), "dml_position": "AvroMsgPosition"}
    fields |= {"storage_version": "long", "is_sorted": "boolean"}
    fields |= {"commit_timestamp": "long"} if version >= 3 else {}
    fields |= {"delete_apply_start_after_timetick": "long"} if version >= 5 else {}
    fields["binlog_files"] = {"type": "array", "items": record("AvroFieldBinlog", **group)}
    names = ("deltalog_files", "statslog_files", "bm25_statslog_files")
    fields |= {name: {"type": "array", "items": "AvroFieldBinlog"} for name in names}
    return fastavro.parse_schema(record("ManifestEntry", **fields))


def group_of(field: int, logs: tuple[LogMeta, ...]) -> dict[str, Any]:
    binlogs = [
        {
            "entries_num": log.rows,
            "timestamp_from": log.first,
            "timestamp_to": log.last,
            "log_path": f"files/insert_log/1/2/3/{field}/{log.id}",
            "log_size": log.size,
            "log_id": log.id,
            "memory_size": log.size,
        }
        for log in logs
    ]
    return {"field_id": field, "child_fields": [], "format": "", "binlogs": binlogs}


def manifest(segment: SegmentMeta, version: int) -> bytes:
    position = {"channel_name": segment.channel, "msg_id": b"1", "msg_group": "", "timestamp": 1}
    stream = io.BytesIO()
    entry = {
        "segment_id": segment.id,
        "partition_id": segment.partition,
        "segment_level": segment.level,
        "channel_name": segment.channel,
        "num_of_rows": segment.rows,
        "start_position": position,
        "dml_position": position,
        "storage_version": segment.storage_version,
        "is_sorted": True,
        "commit_timestamp": 0,
        "delete_apply_start_after_timetick": 0,
        "binlog_files": [group_of(field, logs) for field, logs in segment.inserts.items()],
        "deltalog_files": [group_of(0, segment.deltas)] if segment.deltas else [],
        "statslog_files": [],
        "bm25_statslog_files": [],
    }
    fastavro.schemaless_writer(stream, schema(version), entry)
    return stream.getvalue() + bytes(3)


def write_snapshot(root: Path, meta: CollectionMeta, id: int, time: int, version: int = 5, name: str = "") -> Path:
    """Write a snapshot of the live segments of a collection."""
    place = root / "snapshots" / str(meta.id)
    paths = []
    for segment in (meta.segments or {}).values():
        if segment.is_live and segment.partition in meta.partitions:
            path = place / "manifests" / str(id) / f"{segment.id}.avro"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(manifest(segment, version))
            paths.append(f"files/{path.relative_to(root)}")
    document = {
        "format_version": version,
        "snapshot_info": {"name": f"s{id}", "id": str(id), "collection_id": str(meta.id), "create_ts": str(time)},
        "collection": {
            "schema": {"name": name or meta.name, "fields": [describe_field(field) for field in meta.fields]},
            "partitions": {partition: str(number) for number, partition in meta.partitions.items()},
        },
        "manifest_list": paths,
        "segment_ids": [],
    }
    (place / "metadata").mkdir(parents=True, exist_ok=True)
    (place / "metadata" / f"{id}.json").write_text(json.dumps(document))
    return place / "metadata" / f"{id}.json"


@pytest.mark.parametrize("version", VERSIONS)
def test_rows_are_those_of_the_server(tmp_path: Path, version: int) -> None:
    files = copy_root("2.3.5", tmp_path / "files")
    document = write_snapshot(files, meta_of(), 9, NOW, version)
    expected = sawlog.read(files, table="alltypes", metadata=DUMP)
    for metadata in (document, files / "snapshots"):
        assert read_rows(files, table="alltypes", metadata=str(metadata)) == (expected, [])


def test_the_last_snapshot_before_a_time_is_used(tmp_path: Path) -> None:
    files = copy_root("2.3.5", tmp_path / "files")
    meta = meta_of()
    write_snapshot(files, meta, 11, NOW, name="later")
    write_snapshot(files, meta, 12, NOW - (5 << 18), name="earlier")
    options = {"view": "collections", "metadata": str(files / "snapshots"), "table": COLLECTION}
    for time, name in ((None, "later"), (NOW, "later"), (NOW - 1, "earlier"), (1, "earlier")):
        assert read_rows(files, as_of=time, **options)[0]["name"].to_pylist() == [name]


def test_snapshots_next_to_the_logs_are_told(tmp_path: Path) -> None:
    files = copy_root("2.3.5", tmp_path / "files")
    write_snapshot(files, meta_of(), 9, NOW)
    _, warned = read_rows(files, table=COLLECTION)
    assert f"{files}/snapshots has snapshots: metadata={files}/snapshots reads them" in warned


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda document: document.update(format_version=6), "a snapshot of version 6; versions up to 5 are read"),
        (
            lambda document: document.update(manifest_list=["a/../../b"]),
            r"expected manifests/<snapshot>/<segment>\.avro",
        ),
        (lambda document: document.update(manifest_list=["m/9/1.avro"]), "9/1.avro: a manifest .* is not there"),
        (lambda document: document.update(snapshot_info=[]), "'snapshot_info': expected an object"),
        (lambda document: document.update(collection={}), "'schema' is missing"),
    ],
)
def test_what_is_no_snapshot_is_refused(tmp_path: Path, change: Any, message: str) -> None:
    files = copy_root("2.3.5", tmp_path / "files")
    path = write_snapshot(files, meta_of(), 9, NOW)
    document = json.loads(path.read_text())
    change(document)
    path.write_text(json.dumps(document))
    with pytest.raises(FormatError, match=message):
        sawlog.read(files, table="alltypes", metadata=str(path))


def test_a_manifest_of_any_bytes_is_refused_as_that(tmp_path: Path) -> None:
    files = copy_root("2.3.5", tmp_path / "files")
    path = write_snapshot(files, meta_of(), 9, NOW)
    manifests = sorted((files / "snapshots").rglob("*.avro"))
    content = manifests[0].read_bytes()
    refusals = []
    for length in range(0, len(content) - 10, 29):
        for changed in (content[:length], content[:length] + b"\xff" * 9 + content[length + 9 :]):
            manifests[0].write_bytes(changed)
            try:
                read_rows(files, table="alltypes", metadata=str(path), columns=["pk"], on_damage="skip")
            except FormatError as error:
                refusals.append(str(error))
    assert refusals
    assert all(manifests[0].name in refusal for refusal in refusals)

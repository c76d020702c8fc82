"""Metadata and statistics of any shape: what is wrong with them is named, and faults of sawlog's own are not."""

from __future__ import annotations

import base64
import copy
import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import sawlog
from sawlog.errors import FormatError, InternalError
from sawlog.format.damage import Findings
from sawlog.milvus import stats
from sawlog.milvus.metadata import backup, load, manifest

from .support import GOLDEN, delete, write_collection

STRANGE_VALUES = (
    None,
    True,
    5,
    -1,
    1 << 70,
    1.5,
    float("nan"),
    "",
    "x",
    "9" * 30,
    "²",
    "\ud800",
    [],
    [5],
    [[]],
    {},
    {"key": []},
)


def iterate_changes(value: Any) -> Iterator[Any]:
    """A document with each of its values replaced by each odd one, and with each of its keys left out."""
    places: list[tuple[Any, Any]] = []

    def visit(node: Any) -> None:
        for key, inner in list(node.items() if isinstance(node, dict) else enumerate(node)):
            places.append((node, key))
            if isinstance(inner, dict | list):
                visit(inner)

    document = [copy.deepcopy(value)]
    visit(document)
    for holder, key in places:
        before = holder[key]
        for strange_value in STRANGE_VALUES:
            holder[key] = strange_value
            yield document[0]
        if isinstance(holder, dict):
            del holder[key]
            yield document[0]
        holder[key] = before


def judged(read: Callable[..., object], *arguments: Any) -> bool:
    """Whether something is read; it may be refused as what it is not, and nothing else may leave."""
    try:
        read(*arguments)
    except FormatError:
        return False
    return True


DOCUMENT = {
    "collection_backups": [
        {
            "collection_id": 1,
            "collection_name": "c",
            "db_name": "d",
            "schema": {
                "enable_dynamic_field": True,
                "fields": [
                    {"fieldID": 100, "name": "pk", "data_type": 5, "is_primary_key": True},
                    {"name": "v", "data_type": 101, "type_params": [{"key": "dim", "value": "4"}]},
                    {"name": "n", "data_type": 2, "default_value": {"Data": {"IntData": 3}}, "params": {"dim": 0}},
                ],
                "struct_fields": [{"name": "s", "fields": [{"name": "a", "type": "ARRAY", "element_type": 5}]}],
            },
            "properties": [{"key": "collection.ttl.seconds", "value": "60"}],
            "aliases": ["e"],
            "created_timestamp": "7",
            "channel_checkpoints": {"one": base64.b64encode(b"\x20\x05").decode()},
            "partition_backups": [
                {
                    "partition_id": 2,
                    "partition_name": "p",
                    "segment_backups": [
                        {
                            "segment_id": 100,
                            "num_of_rows": 3,
                            "binlogs": [{"fieldID": 1, "binlogs": [{"log_path": "a/7"}, {"log_id": "8"}]}],
                            "deltalogs": [{"binlogs": [{"log_id": 9, "timestamp_from": 1, "timestamp_to": 2}]}],
                        }
                    ],
                }
            ],
            "l0_segments": [{"segment_id": 900}],
        }
    ]
}


def read_metadata(document: Any) -> object:
    """What metadata says of now."""
    timeline = load.parse(json.loads(json.dumps(document)), "meta").timeline
    assert timeline is not None
    return timeline.find_collections(None)


def test_a_backup_of_any_shape_is_read_or_refused() -> None:
    assert judged(read_metadata, DOCUMENT)
    judgements = [judged(read_metadata, document) for document in iterate_changes(DOCUMENT)]
    assert {True, False} <= set(judgements)


@pytest.mark.nightly
def test_a_dump_of_any_shape_is_read_or_refused() -> None:
    dump = json.loads((GOLDEN / "2.3.5" / "etcd.json").read_text())
    dice = random.Random(1)
    few = {key: dump[key] for key in sorted(dump)[:: max(1, len(dump) // 40)]}
    pairs = [{"key": base64.b64encode(key.encode()).decode(), "value": value} for key, value in few.items()]
    assert judged(read_metadata, dump)
    for document in (*iterate_changes({"kvs": pairs[:3]}), *iterate_changes(dict(list(few.items())[:5]))):
        judged(read_metadata, document)
    for key in [key for key in sorted(dump) if "collection" in key or "/s/" in key or "fields" in key] * 4:
        value = bytearray(base64.b64decode(dump[key]))
        if value:
            value[dice.randrange(len(value))] ^= 1 << dice.randrange(8)
        judged(read_metadata, {**dump, key: base64.b64encode(value).decode()})


def test_a_manifest_of_any_shape_is_read_or_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The schema in an Avro container is the writer's."""
    file = {"path": "1.parquet", "start_index": 0, "end_index": 3, "metadata": b""}
    record = {
        "column_groups": [{"columns": ["0", "1"], "files": [file], "format": "parquet"}],
        "delta_logs": [{"path": "1", "type": 0, "num_entries": 1}],
        "stats": {"one": ["2"], "two": {"paths": ["3"], "metadata": {}}},
    }
    path = "root/insert_log/1/2/3/_metadata/manifest-1.avro"
    for document in (record, *iterate_changes(record)):
        monkeypatch.setattr(manifest, "read_record", {b"": document}.__getitem__)
        if isinstance(document, dict):
            assert judged(manifest.read_manifest, b"", path, "root") or document is not record


def test_statistics_of_any_shape_are_read_or_damage() -> None:
    entry = stats.make_stats_log(100, pa.array([1, 2, 3]))
    for document in (entry, [entry]):
        for changed_document in iterate_changes(document):
            text = json.dumps(changed_document).encode()
            findings = Findings("skip")
            rows = stats.make_stats_batch(stats.check_stats(text, "1", findings)).num_rows
            assert rows or findings.kinds == {"bad_stats": 1} or changed_document == []


@pytest.mark.parametrize("error", [TypeError, AttributeError, ValueError, KeyError])
def test_a_fault_of_sawlog_is_neither_wrong_metadata_nor_damage(
    error: type[Exception], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fault(*_: object) -> None:
        raise error("oh")

    write_collection(tmp_path, pa.table({"id": [1, 2]}), tree="backup")
    delete(tmp_path, [1], [1], 100, tree="backup")
    log = next(tmp_path.glob("**/stats_log/**/1*"), None)
    monkeypatch.setattr(backup, "parse_segment", fault)
    with pytest.raises(InternalError, match=f"{error.__name__}.*please report"):
        sawlog.read(tmp_path)
    monkeypatch.undo()
    assert log is not None
    monkeypatch.setattr(stats.BloomFilter, "of_json", fault)
    with pytest.raises(InternalError, match=f"{error.__name__}.*please report"):
        sawlog.verify(log, format="milvus_binlog")

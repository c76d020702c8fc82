"""Collections: deletes, upserts, L0, time travel, duplicates, schemas, dynamic fields, bare Parquet segments."""

from __future__ import annotations

import base64
import contextlib
import datetime as dt
import json
import os
import shutil
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sawlog
from sawlog.errors import FormatError, IncompleteError, OptionError, SchemaError
from sawlog.format.damage import DamageWarning
from sawlog.milvus import layout
from sawlog.milvus.collection.dataset import SegmentsWarning
from sawlog.milvus.collection.model import Collection, Segment
from sawlog.milvus.encode import LogPlace, NewEvent, encode_log
from sawlog.milvus.layout import DataType, EventType, SegmentState
from sawlog.milvus.metadata import messages
from sawlog.milvus.metadata.load import load
from sawlog.milvus.metadata.messages import CollectionInfo, Message, SegmentInfo, ValueField
from sawlog.milvus.metadata.model import CollectionMeta, LogMeta, SegmentMeta
from sawlog.milvus.options import ReadOptions

from .support import GOLDEN, NOW, SYNTHETIC, delete, id_of, open_as_it_lies, truth, with_etcd, write_collection

pytestmark = pytest.mark.filterwarnings("ignore::sawlog.milvus.collection.dataset.SegmentsWarning")


def read_keys(root: Path, **options: Any) -> list[Any]:
    dataset = open_as_it_lies(root, **options)
    return sorted(dataset.to_table()[dataset.contents.primary.name].to_pylist())


def test_warning_says_that_rows_are_read_as_they_lie(tmp_path: Path) -> None:
    write_collection(tmp_path, pa.table({"pk": [1, 2]}))
    with pytest.warns(SegmentsWarning, match="read as found"):
        sawlog.read(tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        sawlog.read(tmp_path, segments=(100,))
        sawlog.verify(tmp_path)
        sawlog.open(tmp_path).info()


def test_deletes_hit_strictly_older_rows(tmp_path: Path) -> None:
    """Upserts write the delete and the new row with the same timestamp."""
    table = pa.table({"pk": [1, 2, 3, 4], "Timestamp": [NOW, NOW, NOW, NOW + 10]})
    write_collection(tmp_path, table)
    delete(tmp_path, [1, 2, 3, 3, 4], [NOW + 1, NOW, NOW - 1, NOW + 2, NOW + 5], 100)
    assert read_keys(tmp_path) == [2, 4]
    assert open_as_it_lies(tmp_path).count_rows() == 2
    assert read_keys(tmp_path, view="inserts") == [1, 2, 3, 4]


@settings(max_examples=12)
@given(
    rows=st.lists(st.tuples(st.integers(0, 20), st.integers(1, 30)), max_size=60),
    deletes=st.lists(st.tuples(st.integers(0, 20), st.integers(1, 30)), max_size=40),
    texts=st.booleans(),
)
def test_deletes_are_those_of_a_plain_model(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[int, int]], deletes: list[tuple[int, int]], texts: bool
) -> None:
    if not rows:
        return
    root = tmp_path_factory.mktemp("model", numbered=True)

    def key(value: int) -> Any:
        return f"k{value}" if texts else value - 10

    table = pa.table({"pk": [key(k) for k, _ in rows], "Timestamp": [t for _, t in rows]})
    write_collection(root, table, binlog_bytes=1 << 10)
    if deletes:
        delete(root, [key(k) for k, _ in deletes], [t for _, t in deletes], 100)
    latest: dict[int, int] = {}
    for k, t in deletes:
        latest[k] = max(t, latest.get(k, 0))
    expected = sorted(key(k) for k, t in rows if t >= latest.get(k, 0))
    dataset = open_as_it_lies(root, segments=(100,))
    assert sorted(dataset.to_table()["100"].to_pylist()) == expected
    for until in (5, 15):
        early = {}
        for k, t in deletes:
            if t <= until:
                early[k] = max(t, early.get(k, 0))
        then = sorted(key(k) for k, t in rows if t <= until and t >= early.get(k, 0))
        assert read_keys(root, as_of=until) == then


def test_l0_segments_concern_their_partition_or_all(tmp_path: Path) -> None:
    table = pa.table({"pk": range(6), "_partition": [2, 2, 2, 3, 3, 3]})
    write_collection(tmp_path, table)
    delete(tmp_path, [0, 3], [NOW + 1] * 2, 900, 2)
    delete(tmp_path, [1, 4], [NOW + 1] * 2, 901, -1)
    assert read_keys(tmp_path) == [2, 3, 5]
    assert read_keys(tmp_path, deletes="own") == list(range(6))
    rows = sawlog.read(tmp_path, view="deletes").to_pylist()
    assert {(row["pk"], row["partition"], row["l0"]) for row in rows} == {
        (0, 2, True),
        (3, 2, True),
        (1, -1, True),
        (4, -1, True),
    }
    levels = {row["segment"]: row["level"] for row in sawlog.read(tmp_path, view="segments").to_pylist()}
    assert levels[900] == levels[901] == "L0"


@pytest.mark.parametrize("name", ["comma_legacy", "json_stream", "multi_field_int64", "v2_bare_parquet"])
def test_every_delta_encoding_deletes(tmp_path: Path, name: str) -> None:
    expected = json.loads((SYNTHETIC / "expected.json").read_text())[f"delta/{name}"]
    write_collection(
        tmp_path,
        pa.table({"pk": [key for key, _ in expected] + [5], "Timestamp": [time - 1 for _, time in expected] + [1]}),
    )
    place = tmp_path / "delta_log" / "1" / "2" / "100" / "7"
    place.parent.mkdir(parents=True)
    shutil.copy(SYNTHETIC / "delta" / name, place)
    assert read_keys(tmp_path) == [5]
    assert [(row["pk"], row["timestamp"]) for row in sawlog.read(tmp_path, view="deletes").to_pylist()] == [
        tuple(value) for value in expected
    ]


def test_paths_below_the_root_find_their_deletes(tmp_path: Path) -> None:
    root = tmp_path / "files"
    write_collection(root, pa.table({"pk": range(10)}), binlog_bytes=20)
    write_collection(root, pa.table({"pk": range(10, 20)}), first_id=5000)
    delete(root, [0, 10], [NOW + 1] * 2, 100)
    delete(root, [1], [NOW + 1], 900, -1)
    assert read_keys(root) == [k for k in range(20) if k not in (0, 1)]
    assert read_keys(root / "insert_log") == read_keys(root)
    assert read_keys(root / "insert_log" / "1" / "2" / "100") == list(range(2, 10))
    field = root / "insert_log" / "1" / "2" / "5000" / "100"
    (file,) = field.iterdir()
    assert sawlog.read(file).to_pydict() == {"100": list(range(10, 20))}


def test_as_of_takes_times() -> None:
    for moment in (dt.datetime(2024, 5, 1, 12, tzinfo=dt.UTC), "2024-05-01T12:00:00Z", "2024-05-01T12:00:00"):
        until = ReadOptions(as_of=moment).until
        assert until is not None
        assert until >> layout.LOGICAL_BITS == 1714564800000
        assert until & 0x3FFFF == 0x3FFFF
    with pytest.raises(OptionError, match="as_of"):
        sawlog.open(GOLDEN / "2.3.5", as_of="yesterday")
    assert layout.decode_tso(layout.encode_tso(dt.datetime(2024, 5, 1, tzinfo=dt.UTC))) == dt.datetime(
        2024, 5, 1, tzinfo=dt.UTC
    )


def test_as_of_warns_where_compaction_has_lost_the_past(tmp_path: Path) -> None:
    root = tmp_path / "tree"
    shutil.copytree(GOLDEN / "2.3.5-compacted", root)
    for segment in (470611342512033767, 470611342512233783):
        shutil.rmtree(next(root.glob(f"insert_log/*/*/{segment}")))
    moment = [operation["timestamp"] for operation in truth("2.3.5-compacted")["log"] if operation["op"] == "insert"][1]
    options = {"table": "alltypes", "metadata": str(root / "etcd.json"), "as_of": moment}
    with pytest.warns(SegmentsWarning, match="compacted after as_of"):
        rows = sawlog.read(root, **options).num_rows
    assert rows < 1000


def test_dedupe_keeps_the_newest(tmp_path: Path) -> None:
    write_collection(tmp_path, pa.table({"pk": [1, 2, 3], "v": [10, 20, 30]}))
    again = pa.table({"pk": [2, 3, 4], "v": [21, 31, 41], "Timestamp": [NOW + 5, NOW - 5, NOW]})
    write_collection(tmp_path, again, first_id=1000)
    delete(tmp_path, [4], [NOW + 1], 1000)
    assert read_keys(tmp_path) == [1, 2, 2, 3, 3]
    table = open_as_it_lies(tmp_path, dedupe=True).to_table().sort_by("100")
    assert table.to_pydict() == {"100": [1, 2, 3], "101": [10, 21, 30]}
    compacted = open_as_it_lies(GOLDEN / "2.3.5-compacted", table=id_of("2.3.5-compacted", "alltypes"), dedupe=True)
    assert compacted.to_table().num_rows == 996


SCHEMA = {
    "name": "given",
    "fields": [
        {"name": "key", "type": 5, "is_primary": True},
        {"name": "v", "type": "FLOAT_VECTOR", "params": {"dim": 2}},
        {"name": "late", "type": "INT32", "default_value": {"int_data": 7}, "nullable": True},
        {"name": "never", "type": "VARCHAR", "nullable": True},
    ],
    "enable_dynamic_field": True,
}


def vectors(rows: int, dim: int = 2) -> pa.Array:
    return pa.FixedSizeListArray.from_arrays(pa.array(np.arange(rows * dim, dtype="f4")), dim)


def test_schema_names_types_and_defaults(tmp_path: Path) -> None:
    write_collection(tmp_path, pa.table({"pk": [1, 2], "v": vectors(2)}))
    (tmp_path / "schema.json").write_text(json.dumps(SCHEMA))
    for given_schema in (SCHEMA, json.dumps(SCHEMA), str(tmp_path / "schema.json")):
        dataset = open_as_it_lies(tmp_path / "insert_log", schema=given_schema)
        assert dataset.schema.names == ["key", "v", "late", "never", "$meta"]
        row = dataset.to_table().to_pylist()[1]
        assert row == {"key": 2, "v": [2.0, 3.0], "late": 7, "never": None, "$meta": None}
        raw = open_as_it_lies(tmp_path / "insert_log", schema=given_schema, view="inserts").to_table().to_pylist()[1]
        assert raw["late"] is None
    with pytest.raises(OptionError, match="schema"):
        open_as_it_lies(tmp_path / "insert_log", schema="{")
    with pytest.raises(OptionError, match="data type"):
        open_as_it_lies(tmp_path / "insert_log", schema={"fields": [{"name": "a", "type": 99}]})


def test_the_fields_of_long_files_are_found_without_reading_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows, dim = 4000, 256
    values = pa.array(np.random.default_rng(1).standard_normal(rows * dim, dtype="f4"))
    table = pa.table({"pk": range(rows), "vector": pa.FixedSizeListArray.from_arrays(values, dim)})
    write_collection(tmp_path, table)
    assert max(path.stat().st_size for path in tmp_path.rglob("*")) > 3 << 20
    sizes = []
    preadv = os.preadv

    def note(*args: Any) -> int:
        sizes.append(preadv(*args))
        return sizes[-1]

    monkeypatch.setattr(os, "preadv", note)
    opened = sawlog.open(tmp_path)
    assert opened.schema.types == [pa.int64(), pa.list_(pa.float32(), dim)]
    assert sum(sizes) < 512 << 10
    assert opened.to_table().num_rows == rows
    assert sum(sizes) > 3 << 20


def test_a_field_added_later_is_aligned_at_the_end(tmp_path: Path) -> None:
    field = pa.field("late", pa.int32(), metadata={"sawlog.milvus.nullable": "true"})
    table = pa.table(
        [pa.array(range(4)), pa.array([None, 1, 2, 3], pa.int32())], pa.schema([pa.field("pk", pa.int64()), field])
    )
    write_collection(tmp_path, table, binlog_bytes=1)
    logs = sorted((tmp_path / "insert_log/1/2/100/101").iterdir(), key=lambda path: int(path.name))
    assert len(logs) == 4
    for log in logs[:2]:
        log.unlink()
    assert open_as_it_lies(tmp_path).to_table().to_pydict() == {"100": [0, 1, 2, 3], "101": [None, None, 2, 3]}


def test_system_fields_on_request(tmp_path: Path) -> None:
    write_collection(
        tmp_path,
        pa.table({"pk": [5, 6], "RowID": [70, 60], "Timestamp": [NOW, NOW + 1]}),
        collection_id=8,
        partition_id=9,
    )
    columns = ["100", "RowID", "Timestamp", "_collection", "_partition", "_segment", "_file", "_offset"]
    rows = open_as_it_lies(tmp_path, columns=columns).to_table().to_pylist()
    assert [(row["100"], row["RowID"], row["Timestamp"]) for row in rows] == [(6, 60, NOW + 1), (5, 70, NOW)]
    assert {(row["_collection"], row["_partition"], row["_segment"]) for row in rows} == {(8, 9, 100)}
    assert all(Path(row["_file"]).is_file() and row["_offset"] > 0 for row in rows)
    assert open_as_it_lies(tmp_path, filters=[("Timestamp", ">", NOW)]).to_table().to_pydict() == {"100": [6]}
    assert open_as_it_lies(tmp_path).schema.names == ["100"]


def test_partitions_and_collections_are_chosen_by_name_or_id() -> None:
    root = GOLDEN / "2.3.5"
    counts = {name: with_etcd("2.3.5", "strpk", partitions=(name,)).count_rows() for name in ("_default", "p1")}
    assert sum(counts.values()) == 185
    assert min(counts.values()) > 0
    for options, message in (
        ({}, "name one of its collections"),
        ({"table": "nobody"}, "there is none"),
        ({"table": "strpk", "partitions": ("p9",)}, "'p9' is none of"),
        ({"table": "strpk", "segments": (1,)}, "no segment 1"),
    ):
        with pytest.raises(OptionError, match=message):
            sawlog.read(root, metadata=str(root / "etcd.json"), **options)
    assert "alltypes" in sawlog.open(root, metadata=str(root / "etcd.json")).info()["collections"]


def test_dynamic_fields_become_columns() -> None:
    table = with_etcd("2.3.5", "alltypes", dynamic_fields=("*",)).to_table()
    sent = [
        row
        for operation in truth("2.3.5")["log"]
        if operation.get("rows") and operation["collection"] == "alltypes"
        for row in operation["rows"]
    ]
    known_names = set(table.schema.names)
    named = set(with_etcd("2.3.5", "alltypes").schema.names)
    expected = {key for row in sent for key in row} - named
    assert expected <= known_names
    by_key = {row["pk"]: row for row in sent}
    for row in table.to_pylist():
        if row["pk"] not in (1, 3, 5, 7, 9, 11, 13, 15, 17, 19):
            assert row["dyn_a"] == by_key[row["pk"]].get("dyn_a")
    typed = with_etcd(
        "2.3.5", "alltypes", dynamic_fields=("dyn_a:int64", "dyn_b"), columns=["dyn_b", "dyn_a"]
    ).to_table()
    assert typed.schema.types == [pa.string(), pa.int64()]
    assert '"v4"' in typed["dyn_b"].to_pylist()
    with pytest.raises(OptionError, match="expected name:type"):
        with_etcd("2.3.5", "alltypes", dynamic_fields=("a:vector",))
    with pytest.raises(OptionError, match="no dynamic field"):
        with_etcd("2.3.5", "strpk", dynamic_fields=("a",))


def group(columns: dict[str, tuple[int, pa.Array]]) -> pa.Table:
    fields = [
        pa.field(name, array.type, metadata={"PARQUET:field_id": str(id)}) for name, (id, array) in columns.items()
    ]
    return pa.table([array for _, array in columns.values()], pa.schema(fields))


def test_bare_parquet_segments_are_read(tmp_path: Path) -> None:
    """Storage V2: directories are column groups, row groups are cut independently."""
    segment = tmp_path / "insert_log" / "1" / "2" / "3"
    slots = pa.array([np.arange(i, i + 2, dtype="f4").tobytes() for i in range(100)], pa.binary(8))
    numbers = pa.array(range(100), pa.int64())
    tables = {
        "0": group({"RowID": (0, numbers), "Timestamp": (1, pa.array([NOW] * 100)), "pk": (100, numbers)}),
        "1": group({"name": (101, pa.array([f"n{i}" for i in range(100)])), "n": (103, numbers.cast(pa.int32()))}),
        "102": group({"vec": (102, slots)}),
    }
    for directory, table in tables.items():
        (segment / directory).mkdir(parents=True)
        pq.write_table(table, segment / directory / "77", row_group_size=30 if directory == "1" else 100)
    deltas = tmp_path / "delta_log" / "1" / "2" / "3"
    deltas.mkdir(parents=True)
    pq.write_table(group({"": (0, pa.array([4, 5])), "x": (1, pa.array([NOW + 1, NOW]))}), deltas / "78")
    schema = {
        "fields": [
            {"name": "pk", "type": 5, "is_primary": True},
            {"name": "name", "type": 21},
            {"name": "vec", "type": 101, "params": {"dim": 2}},
            {"name": "n", "type": 4},
            {"name": "gone", "type": 4, "nullable": True},
        ]
    }
    rows = open_as_it_lies(tmp_path, schema=schema).to_table().to_pylist()
    assert len(rows) == 99
    assert rows[5] == {"pk": 6, "name": "n6", "vec": [6.0, 7.0], "n": 6, "gone": None}
    assert [row["pk"] for row in rows[3:6]] == [3, 5, 6]
    inferred = open_as_it_lies(tmp_path)
    assert inferred.schema.names == ["pk", "name", "vec", "n"]
    assert inferred.count_rows() == 99
    assert not sawlog.verify(tmp_path).damaged
    (segment_row,) = sawlog.read(tmp_path, view="segments").to_pylist()
    assert (segment_row["rows"], segment_row["deletes"]) == (100, 2)
    (segment / "102" / "77").unlink()
    with pytest.raises(IncompleteError, match="field 102"):
        open_as_it_lies(tmp_path, schema=schema).to_table()


def test_backup_directory_with_group_and_metadata(tmp_path: Path) -> None:
    """A milvus-backup tree is read by its own metadata; zero values are left out of that."""
    root = tmp_path / "backup"
    write_collection(root / "plain", pa.table({"pk": range(10), "v": vectors(10)}))
    moved = root / "binlogs" / "insert_log" / "1" / "2" / "100" / "100"
    moved.parent.mkdir(parents=True)
    shutil.move(root / "plain" / "insert_log" / "1" / "2" / "100", moved)
    shutil.rmtree(root / "plain")
    other_path = root / "binlogs" / "insert_log" / "1" / "2" / "999"
    shutil.copytree(moved, other_path)
    binlogs = [
        {"binlogs": [{"log_path": f"x/insert_log/1/2/100/{path.parent.name}/{path.name}"}]}
        | ({"fieldID": int(path.parent.name)} if path.parent.name != "0" else {})
        for path in moved.glob("*/*")
    ]
    meta = {
        "collection_backups": [
            {
                "collection_id": 1,
                "collection_name": "kept",
                "schema": {
                    "fields": [
                        {"fieldID": 100, "name": "pk", "is_primary_key": True, "data_type": 5},
                        {"fieldID": 101, "name": "v", "data_type": 101, "type_params": [{"key": "dim", "value": "2"}]},
                    ]
                },
                "partition_backups": [
                    {
                        "partition_id": 2,
                        "partition_name": "p",
                        "segment_backups": [{"segment_id": 100, "binlogs": binlogs}],
                    }
                ],
            }
        ]
    }
    (root / "meta").mkdir()
    (root / "meta" / "full_meta.json").write_text(json.dumps(meta))
    dataset = sawlog.open(root)
    with pytest.warns(DamageWarning, match="999/.*the metadata does not name its segment"):
        assert dataset.to_table()["pk"].to_pylist() == list(range(10))
    shutil.rmtree(other_path)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        dataset = sawlog.open(root)
        assert dataset.schema.names == ["pk", "v"]
        assert dataset.to_table()["pk"].to_pylist() == list(range(10))
        assert dataset.count_rows() == 10
        assert sawlog.open(root / "binlogs", metadata=str(root / "meta")).count_rows() == 10


def test_etcd_as_etcdctl_prints_it(tmp_path: Path) -> None:
    dump = json.loads((GOLDEN / "2.3.5" / "etcd.json").read_text())
    kvs = [{"key": base64.b64encode(key.encode()).decode(), "value": value} for key, value in dump.items()]
    (tmp_path / "dump.json").write_text(json.dumps({"header": {}, "kvs": kvs, "count": len(kvs)}))
    dataset = sawlog.open(GOLDEN / "2.3.5", table="alltypes", metadata=str(tmp_path / "dump.json"))
    assert dataset.count_rows() == 996


def test_ttl_hides_old_rows(tmp_path: Path) -> None:
    timeline = load(str(GOLDEN / "2.3.5" / "etcd.json"), sawlog.storage.Storage()).timeline
    assert timeline is not None
    meta = timeline.find_collections(None)
    assert {entry.ttl for entry in meta.values()} == {0}
    second = 1000 << layout.LOGICAL_BITS
    write_collection(tmp_path / "tree", pa.table({"pk": [1, 2], "Timestamp": [NOW, NOW + 100 * second]}))
    segment = {"segment_id": 100, "binlogs": []}
    backup = {
        "collection_id": 1,
        "collection_name": "c",
        "schema": {"fields": [{"fieldID": 100, "name": "pk", "data_type": 5, "is_primary_key": True}]},
        "properties": [{"key": "collection.ttl.seconds", "value": "60"}],
        "partition_backups": [{"partition_id": 2, "segment_backups": [segment]}],
    }
    (tmp_path / "full_meta.json").write_text(json.dumps({"collection_backups": [backup]}))
    options = {"metadata": str(tmp_path / "full_meta.json")}
    assert sawlog.read(tmp_path / "tree", as_of=NOW + 101 * second, **options)["pk"].to_pylist() == [2]
    assert sawlog.read(tmp_path / "tree", as_of=NOW + 50 * second, **options)["pk"].to_pylist() == [1]
    assert sawlog.open(tmp_path / "tree", view="inserts", **options).count_rows() == 2


def test_a_wrong_type_in_a_file_is_damage(tmp_path: Path) -> None:
    write_collection(tmp_path, pa.table({"pk": [1], "n": pa.array([2], pa.int64())}))
    schema = {"fields": [{"name": "pk", "type": 5, "is_primary": True}, {"name": "n", "type": 11}]}
    with pytest.raises(sawlog.DamageError, match="type_mismatch"):
        open_as_it_lies(tmp_path / "insert_log", schema=schema).to_table()


def test_deletes_without_a_known_key(tmp_path: Path) -> None:
    write_collection(tmp_path, pa.table({"pk": [1], "f": [0.5]}))
    delete(tmp_path, [1], [NOW + 1], 100)
    schema = {"fields": [{"name": "f", "fieldID": 101, "type": 11}]}
    with pytest.raises(SchemaError, match="primary key"):
        open_as_it_lies(tmp_path, schema=schema).to_table()


def test_stream_written_files_join(tmp_path: Path) -> None:
    """The stream writer names its column after the field, and its timestamps and positions say nothing."""
    for path in (SYNTHETIC / "stream_writer").glob("*/*"):
        field = path.parent.name.split("_")[0]
        target = tmp_path / "insert_log" / "1" / "2" / "3" / field / path.name
        target.parent.mkdir(parents=True)
        shutil.copy(path, target)
    for field, values in ((0, [1, 2, 3]), (1, [NOW] * 3)):
        from sawlog.milvus import PayloadWriter

        writer = PayloadWriter("Int64")
        writer.add_int64(values)
        writer.finish()
        event = NewEvent(EventType.INSERT, 1, 1, writer.buffer)
        data = encode_log(LogPlace(1, 2, 3), field, DataType.Int64, [event], {"original_size": "24"}, "")
        target = tmp_path / "insert_log" / "1" / "2" / "3" / str(field) / "1"
        target.parent.mkdir(parents=True)
        target.write_bytes(data)
    expected = json.loads((SYNTHETIC / "expected.json").read_text())
    table = open_as_it_lies(tmp_path).to_table()
    assert table.num_rows == 3
    assert table["101"].to_pylist() == expected["stream_writer/101_nullable_varchar/2"]
    assert table["109"].to_pylist() == expected["stream_writer/109_array_of_vector/10"]
    copy = tmp_path / "copy"
    sawlog.write(open_as_it_lies(tmp_path), copy, format="milvus_binlog")
    again = open_as_it_lies(copy).to_table()
    assert again.to_pydict() == table.to_pydict()
    assert again.schema.equals(table.schema, check_metadata=True)


def iterate_values(message: Message) -> Iterator[Any]:
    """All values of a message that is declared, and of those in it."""
    for name, declared in vars(type(message)).items():
        if isinstance(declared, messages.Field):
            value = getattr(message, name)
            yield value
            for item in value if isinstance(value, list) else [value]:
                if isinstance(item, Message):
                    yield from iterate_values(item)


@given(st.binary(max_size=60), st.sampled_from([CollectionInfo, SegmentInfo, ValueField]))
def test_protobuf_reader_never_breaks(data: bytes, kind: type[Message]) -> None:
    with contextlib.suppress(FormatError):
        assert list(iterate_values(kind(data)))


@pytest.mark.nightly
def test_a_collection_in_an_object_store_is_read(s3: dict[str, Any], tmp_path: Path) -> None:
    import fsspec

    fs = fsspec.filesystem("s3", **s3)
    fs.put(str(GOLDEN / "2.3.5"), "logs/milvus", recursive=True)
    options = {"table": "alltypes", "metadata": "s3://logs/milvus/etcd.json", "storage_options": s3}
    table = sawlog.read("s3://logs/milvus", **options)
    assert table.equals(with_etcd("2.3.5", "alltypes").to_table())
    sawlog.write(table, "s3://logs/written", format="milvus_binlog", storage_options=s3)
    assert sawlog.read("s3://logs/written", storage_options=s3).num_rows == table.num_rows


@pytest.mark.parametrize("texts", [False, True])
def test_statistics_of_keys_leave_segments_unread(tmp_path: Path, texts: bool) -> None:
    """As far as they are trusted, and never where they say nothing; the rows are the same."""

    def key(value: int) -> Any:
        return f"k{value:04}" if texts else value

    for segment in range(4):
        numbers = range(segment * 100, segment * 100 + 100, 2)
        write_collection(
            tmp_path, pa.table({"pk": [key(n) for n in numbers]}), first_id=1000 * (segment + 1), binlog_bytes=1 << 10
        )
    cases = [
        ("=", key(102), 1), ("=", key(103), 1), ("in", [key(0), key(398)], 2), (">", key(250), 2),
        ("<=", key(100), 2), ("!=", key(4), 4), ("<", key(0), 0), ("not in", [key(2)], 4),
    ]  # fmt: skip
    for op, value, limit in cases:
        filters = [("100", op, value)]
        plain = open_as_it_lies(tmp_path, filters=filters)
        quick = open_as_it_lies(tmp_path, filters=filters, use_statistics=True)
        assert quick.to_table().equals(plain.to_table())
        assert len({fragment.place[2] for fragment in quick.fragments()}) <= limit
        skipped_files = [file for file in quick.skipped if "statistics" in file.reason]
        assert len(skipped_files) >= 4 - limit
        assert len({fragment.place[2] for fragment in plain.fragments()}) == 4
    absent = open_as_it_lies(
        tmp_path, filters=[("100", "in", [key(n) for n in (1, 103, 205, 307)])], use_statistics=True
    )
    assert len(absent.fragments()) < len(open_as_it_lies(tmp_path).fragments())  # the Bloom filters know
    for log in tmp_path.glob("stats_log/1/2/2000/100/*"):
        log.write_bytes(b"{")
    table_read = open_as_it_lies(tmp_path, filters=[("100", "=", key(0))], use_statistics=True)
    assert {fragment.place[2] for fragment in table_read.fragments()} == {1000, 2000}


def test_segments_of_dropped_partitions_cost_the_same_however_many_there_are() -> None:
    reads = 0

    class Sources(tuple[int, ...]):
        __slots__ = ()

        def __iter__(self) -> Iterator[int]:
            nonlocal reads
            reads += 1
            return super().__iter__()

    reads_per_segment = []
    for count in (50, 200):
        reads = 0
        metas = {
            id: SegmentMeta(
                id,
                7,
                SegmentState.DROPPED,
                sources=Sources([id - 1] if id % 2 else []),
                inserts={0: (LogMeta(1),)},
            )
            for id in range(count)
        }
        segments = {id: Segment("", 1, 7, id, meta) for id, meta in metas.items()}
        collection = Collection(1, CollectionMeta(1, "c", (), segments=metas), segments)
        assert [segment.id for segment in collection.list_living(None, {7})] == list(range(1, count, 2))
        reads_per_segment.append(reads / count)
    assert reads_per_segment[0] == reads_per_segment[1] <= 3

"""Metadata as a timeline: partitions, collections, fields and aliases that come and go; and metadata that is wrong."""

from __future__ import annotations

import contextlib
import json
import shutil
import warnings
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import sawlog
from sawlog.cli.app import app
from sawlog.errors import DamageError, FormatError, OptionError, SawlogError
from sawlog.format.damage import DamageWarning
from sawlog.milvus import layout
from sawlog.milvus.collection.dataset import SegmentsWarning

from .support import (
    GOLDEN,
    NOW,
    PK,
    SECOND,
    Server,
    delete,
    field,
    message,
    open_as_it_lies,
    quiet,
    with_etcd,
    write_collection,
)


def pks(root: Path, **options: Any) -> list[int]:
    return sorted(sawlog.read(root, **options)["pk"].to_pylist())


@quiet
def test_a_dropped_partition_stays_dropped_at_later_times() -> None:
    """Of the golden server: partition p2 was dropped for good at a time that etcd's snapshots hold."""
    dropped = 470611434799628292
    counts = [with_etcd("2.3.5", "strpk", as_of=time).count_rows() for time in (dropped - 1, dropped, None)]
    assert counts == [279, 185, 185]
    assert with_etcd("2.3.5", "strpk", as_of="2030-01-01").count_rows() == 185


@quiet
def test_a_partition_is_never_torn(tmp_path: Path) -> None:
    """Its segments are dropped one by one, later than itself: at no time in between is a part of it there."""
    root = tmp_path / "files"
    for partition, first in ((2, 100), (3, 200), (3, 300)):
        write_collection(root, pa.table({"pk": range(first, first + 5)}), partition_id=partition, first_id=first)
    server = Server()
    server.collection(1, "c", [PK], NOW - SECOND)
    server.partition(1, 2, "kept", 0, NOW - SECOND)
    server.partition(1, 3, "gone", 0, NOW - SECOND)
    server.partition(1, 3, "gone", 2, NOW + 10 * SECOND)
    server.segment(1, 2, 100)
    server.segment(1, 3, 200, 6, NOW + 20 * SECOND)
    server.segment(1, 3, 300, 6, NOW + 30 * SECOND)
    options = {"metadata": server.save(tmp_path / "etcd.json")}
    counts = [len(pks(root, as_of=NOW + second * SECOND, **options)) for second in (5, 9, 10, 15, 25, 35)]
    assert counts == [15, 15, 5, 5, 5, 5]
    assert len(pks(root, **options)) == 5
    with pytest.warns(SegmentsWarning, match="gone is dropped"):
        assert len(pks(root, partitions=("gone",), **options)) == 10
    with pytest.raises(OptionError, match="'never' is none of"):
        pks(root, partitions=("never",), **options)
    assert {file.reason for file in sawlog.open(root, **options).skipped} == {"its segment is dropped"}


@quiet
def test_names_that_come_and_go(tmp_path: Path) -> None:
    """Aliases, databases, names that were dropped and made again, and collections that are gone."""
    root = tmp_path / "files"
    for id in (1, 2, 3, 4):
        write_collection(root, pa.table({"pk": [id]}), collection_id=id, first_id=100 * id)
    server = Server()
    for id, name in ((1, "default"), (2, "other")):
        server.put(f"root-coord/database/db-info/{id}", message({2: name, 3: id, 4: 1}))
    server.collection(1, "twice", [PK], NOW - SECOND, info={13: 3})
    server.collection(2, "twice", [PK], NOW + SECOND)
    server.collection(3, "twice", [PK], NOW - SECOND, database=2, info={15: 2})
    for id in (1, 2, 3):
        server.segment(id, 2, 100 * id)
    server.put("root-coord/database/aliases/1/known_as", message({1: "known_as", 2: 2, 5: 1}))
    server.put("root-coord/database/aliases/2/gone", message({1: "gone", 2: 3, 4: 3}))
    options = {"metadata": server.save(tmp_path / "etcd.json")}
    for name, row_count in (
        ("twice", 2),
        ("default.twice", 2),
        ("other.twice", 3),
        ("known_as", 2),
        ("3", 3),
        ("4", 4),
    ):
        column = sawlog.read(root, table=name, **options).column(0)
        assert column.to_pylist() == [row_count]
    rows = {row["collection"]: row for row in sawlog.read(root, view="collections", **options).to_pylist()}
    assert {id: (row["database"], row["name"], row["aliases"]) for id, row in rows.items()} == {
        2: ("default", "twice", ["known_as"]),
        3: ("other", "twice", []),
    }
    assert rows[2]["fields"] == ["pk"]
    assert not any(sawlog.verify(root, view=view, **options).damaged for view in ("collections", "segments"))
    assert (rows[2]["segments"], rows[2]["primary_key"]) == (1, "pk")
    then = sawlog.read(root, view="collections", as_of=NOW, **options)
    assert then["collection"].to_pylist() == [3]
    with pytest.raises(OptionError, match=r"none; known: default.twice \(2\), other.twice \(3\)"):
        sawlog.read(root, table="gone", **options)
    assert pks(root, table="twice", as_of=NOW, **options) == [3]  # the other two were not there then
    reasons = {file.reason for file in sawlog.open(root, table="twice", **options).skipped}
    assert reasons == {"its collection is none of the metadata's"}


@quiet
def test_fields_that_were_added_and_dropped(tmp_path: Path) -> None:
    root = tmp_path / "files"
    write_collection(root, pa.table({"pk": [1, 2], "old": pa.array([5, 6], pa.int64())}))
    server = Server()
    server.collection(1, "c", [], NOW - SECOND)
    server.segment(1, 2, 100)
    server.put("root-coord/fields/1/100", PK, NOW - SECOND)
    server.put("root-coord/fields/1/101", field(101, "old", 5, {9: 3}), NOW - SECOND)
    moment = message({8: 1_714_564_800_000_000})
    server.put("root-coord/fields/1/102", field(102, "when", 26, {15: 1, 11: moment}), NOW + SECOND)
    server.put("root-coord/fields/1/103", field(103, "day", 28, {15: 1, 11: message({9: 19844})}), NOW + SECOND)
    vectors = field(104, "vectors", 106, {10: 101, 15: 1}, dim=2)
    server.put("root-coord/fields/1/104", vectors, NOW + SECOND)
    options = {"metadata": server.save(tmp_path / "etcd.json")}
    rows = sawlog.read(root, **options).to_pylist()
    assert [str(rows[0][name]) for name in ("when", "day", "vectors")] == [
        "2024-05-01 12:00:00+00:00", "2024-05-01", "None"
    ]  # fmt: skip
    assert list(rows[0]) == ["pk", "when", "day", "vectors"]
    assert sawlog.open(root, as_of=NOW, **options).schema.names == ["pk"]


@quiet
@pytest.mark.parametrize("apart", [False, True])
def test_fields_of_structs_are_columns(tmp_path: Path, apart: bool) -> None:
    root = tmp_path / "files"
    numbers = pa.array([[1, 2], []], pa.list_(pa.int64()))
    write_collection(root, pa.table({"pk": [1, 2], "a": numbers, "b": pa.array([["x"], ["y", "z"]])}))
    inner = [field(101, "s[a]", 22, {10: 5}), field(102, "b", 22, {10: 21})]
    struct = message({1: 110, 2: "s", 4: inner})
    server = Server()
    server.collection(1, "c", [PK], NOW - SECOND, schema={} if apart else {9: struct})
    if apart:
        server.put("root-coord/struct-array-fields/1/110", struct, NOW - SECOND)
    server.segment(1, 2, 100)
    table = sawlog.read(root, metadata=server.save(tmp_path / "etcd.json"))
    assert table.to_pydict() == {"pk": [1, 2], "s[a]": [[1, 2], []], "s[b]": [["x"], ["y", "z"]]}
    struct_document = {"name": "s", "fields": [{"name": "a", "type": 22, "element_type": 5, "fieldID": 101}]}
    schema = {"fields": [{"name": "pk", "type": 5, "is_primary": True}], "struct_fields": [struct_document]}
    assert open_as_it_lies(root, schema=schema).schema.names == ["pk", "s[a]"]


def listed(id: int, log: int, number: int = 100) -> bytes:
    return message({1: number, 2: [message({6: log})]})


def test_logs_that_the_metadata_does_not_name_are_told(tmp_path: Path) -> None:
    """The metadata wins, as it does in the server; what is left out is said."""
    root = tmp_path / "files"
    write_collection(root, pa.table({"pk": [1, 2, 3]}))
    delete(root, [1], [NOW + 1], 100)
    delete(root, [2], [NOW + 1], 100, first_id=900)
    server = Server()
    server.collection(1, "c", [PK], NOW - SECOND)
    server.segment(1, 2, 100)
    for path in root.glob("insert_log/1/2/100/*/*"):
        number = int(path.parent.name)
        server.put(f"datacoord-meta/binlog/1/2/100/{number}", listed(100, int(path.name), number))
    server.put("datacoord-meta/deltalog/1/2/100/100", listed(100, 100))
    options = {"metadata": server.save(tmp_path / "etcd.json")}
    with pytest.warns(DamageWarning, match="the metadata does not name it"):
        assert pks(root, **options) == [2, 3]
    (skipped_file,) = sawlog.open(root, **options).skipped
    assert skipped_file.path.endswith("delta_log/1/2/100/900")
    assert skipped_file.missed


@pytest.mark.parametrize(("segment", "missed"), [(99, False), (101, True)])
def test_segments_that_the_metadata_does_not_name_are_told(tmp_path: Path, segment: int, missed: bool) -> None:
    """Ids ascend: one that is newer than the metadata may have rows that no other segment has; older ones are gone."""
    root = tmp_path / "files"
    write_collection(root, pa.table({"pk": [1, 2]}))
    write_collection(tmp_path / "other", pa.table({"pk": [3]}), first_id=segment)
    shutil.copytree(tmp_path / "other", root, dirs_exist_ok=True)
    server = Server()
    server.collection(1, "c", [PK], NOW - SECOND)
    server.segment(1, 2, 100)
    options = {"metadata": server.save(tmp_path / "etcd.json")}
    warned = pytest.warns(DamageWarning, match="the metadata does not name its segment")
    with warned if missed else contextlib.nullcontext():
        assert pks(root, **options) == [1, 2]
    skipped = sawlog.open(root, **options).skipped
    assert {Path(part.path).parts[-3] for part in skipped} == {str(segment)}
    assert {part.missed for part in skipped} == {missed}
    report = sawlog.verify(root, **options)
    assert report.rows == 2
    assert report.incomplete == missed
    assert not report.damaged
    listed = json.loads(
        CliRunner().invoke(app, ["ls", str(root), "-o", f"metadata={options['metadata']}", "--json"]).stdout
    )
    assert [part["state"] for part in listed["parts"]] == ["incomplete" if missed else "clean"]
    assert {part.missed for part in sawlog.open(root, as_of=NOW + SECOND, **options).skipped} == {False}
    assert not sawlog.open(root, segments=[segment], **options).skipped
    assert pks(root, segments=[segment], **options) == [3]


def test_segments_that_the_metadata_hides_are_told(tmp_path: Path) -> None:
    """Those that are imported, of dropped partitions, and of partitions that it does not name: the last are missed."""
    root = tmp_path / "files"
    server = Server()
    server.collection(1, "c", [PK], NOW - SECOND)
    server.partition(1, 2, "p", 0, NOW)
    server.partition(1, 3, "gone", 3, NOW)
    for number, (partition, state) in enumerate([(2, 4), (2, 7), (3, 4), (5, 4)]):
        part = tmp_path / str(number)
        write_collection(part, pa.table({"pk": [number]}), first_id=100 * number + 100, partition_id=partition)
        shutil.copytree(part, root, dirs_exist_ok=True)
        server.segment(1, partition, 100 * number + 100, state)
    options = {"metadata": server.save(tmp_path / "etcd.json")}
    with pytest.warns(DamageWarning, match="the metadata does not name its partition"):
        assert pks(root, **options) == [0]
    reasons = {Path(part.path).parts[-3]: (part.reason, part.missed) for part in sawlog.open(root, **options).skipped}
    assert reasons == {
        "200": ("its segment is not visible yet", False),
        "300": ("its partition is dropped", False),
        "400": ("the metadata does not name its partition", True),
    }
    assert sawlog.verify(root, **options).incomplete
    for settings in ({"view": "history"}, {"partitions": ["gone"]}, {"segments": [300]}):
        assert "300" not in {Path(part.path).parts[-3] for part in sawlog.open(root, **options, **settings).skipped}


def test_a_time_to_live_hides_nothing_silently(tmp_path: Path) -> None:
    root = tmp_path / "files"
    write_collection(root, pa.table({"pk": [1, 2], "Timestamp": [NOW, NOW + 100 * SECOND]}))
    server = Server()
    server.collection(1, "c", [PK], NOW - SECOND, info={14: message({1: "collection.ttl.seconds", 2: "60"})})
    server.segment(1, 2, 100)
    options = {"metadata": server.save(tmp_path / "etcd.json")}
    late = NOW + 101 * SECOND
    for time_to_live, rows_visible, remark in (
        ({}, [1, 2], "shown"),
        ({"ttl": "ignore", "as_of": late}, [1, 2], "shown"),
        ({"ttl": "now"}, [], "left out"),
        ({"as_of": late}, [2], "left out"),
        ({"ttl": late}, [2], "left out"),
        ({"ttl": layout.decode_tso(late).isoformat()}, [2], "left out"),
    ):
        with pytest.warns(SegmentsWarning, match=f"rows live 60 seconds: older ones are {remark}"):
            assert pks(root, **time_to_live, **options) == rows_visible
    with pytest.raises(OptionError, match="ttl='soon'"):
        pks(root, ttl="soon", **options)


def backup(fields: list[dict[str, Any]], **further_keys: Any) -> dict[str, Any]:
    document = {"collection_id": 1, "collection_name": "c", "schema": {"fields": fields}, **further_keys}
    return {"collection_backups": [document]}


KEY = {"fieldID": 100, "name": "pk", "data_type": 5, "is_primary_key": True}


@pytest.mark.parametrize(
    ("data", "named"),
    [
        (backup([KEY, {"name": "v", "data_type": 101, "type_params": [{"key": "dim", "value": "abc"}]}]), "field 'v'"),
        (backup([KEY, {"name": "v", "data_type": 101, "type_params": [{"key": "dim", "value": 1 << 40}]}]), "'v'"),
        (backup([KEY, {"name": "v", "data_type": 101, "type_params": [{"key": "dim", "value": -2}]}]), "-2 dimensions"),
        (backup([KEY, {"name": "n", "data_type": 2, "default_value": {"int_data": 300}}]), "default 300 is no Int8"),
        (backup([KEY, {**KEY, "fieldID": 101}]), "'pk' occurs twice"),
        (backup([KEY, {**KEY, "name": "other"}]), "id 100 occurs twice"),
        (backup([{"fieldID": 100, "name": "pk"}]), "field 'pk'"),
        (backup([5]), "field"),
        (backup([{**KEY, "data_type": "Quaternion"}]), "no|not a Milvus"),
        (backup([KEY], partition_backups=[5]), "collection 'c'"),
        (backup([KEY], partition_backups=[{"segment_backups": [{"segment_id": "x"}]}]), "collection 'c'"),
        (
            backup([KEY], partition_backups=[{"segment_backups": [{"binlogs": [{"binlogs": [{"log_id": "x"}]}]}]}]),
            "collection 'c'",
        ),
        (backup([KEY], properties=[{"value": 1}]), "'key' is missing"),
        ({"collection_backups": [7]}, "collection 0"),
        ({"collection_backups": 7}, "full_meta"),
    ],
)
@quiet
def test_wrong_metadata_is_an_error_that_names_it(tmp_path: Path, data: dict[str, Any], named: str) -> None:
    write_collection(tmp_path / "files", pa.table({"pk": [1]}))
    place = tmp_path / "full_meta.json"
    place.write_text(json.dumps(data))
    with pytest.raises(FormatError, match=named) as caught:
        sawlog.read(tmp_path / "files", metadata=str(place))
    assert str(place) in str(caught.value)
    schema = data["collection_backups"]
    if isinstance(schema, list) and isinstance(schema[0], dict) and len(schema[0]) == 3:
        with pytest.raises(OptionError):
            sawlog.read(tmp_path / "files", schema=schema[0]["schema"])


@quiet
def test_wrong_values_in_etcd_are_errors(tmp_path: Path) -> None:
    write_collection(tmp_path / "files", pa.table({"pk": [1]}))
    for wrong in (field(101, "v", 101, dim="abc"), field(101, "v", 101, dim=1 << 40), field(101, "pk", 5)):
        server = Server()
        server.collection(1, "c", [PK, wrong], NOW)
        with pytest.raises(SawlogError, match=r"field|occurs twice"):
            sawlog.read(tmp_path / "files", metadata=server.save(tmp_path / "etcd.json"))


@pytest.mark.parametrize("texts", [False, True])
@quiet
def test_bare_deletes_are_selected_by_position(tmp_path: Path, texts: bool) -> None:
    """Milvus' own writer names neither column: both are called the same, which is nothing."""
    keys = ["a", "b", "c"] if texts else [1, 2, 3]
    write_collection(tmp_path, pa.table({"pk": keys}))
    place = tmp_path / "delta_log" / "1" / "2" / "100" / "7"
    place.parent.mkdir(parents=True)
    for numbered in (False, True):
        stored = [
            pa.field("", kind, metadata={"PARQUET:field_id": str(id)} if numbered else None)
            for id, kind in enumerate((pa.string() if texts else pa.int64(), pa.int64()))
        ]
        table = pa.Table.from_arrays([pa.array(keys[:2]), pa.array([NOW + 1, NOW + 1])], schema=pa.schema(stored))
        pq.write_table(table, place, store_schema=False)
        assert open_as_it_lies(tmp_path).to_table()["100"].to_pylist() == keys[2:]
        rows = open_as_it_lies(tmp_path, view="deletes").to_table()
        assert (rows["pk"].to_pylist(), rows["timestamp"].to_pylist()) == (keys[:2], [NOW + 1] * 2)
    other_table = pa.Table.from_arrays([pa.array([1] if texts else ["a"]), pa.array([NOW])], names=["", "x"])
    pq.write_table(other_table, place, store_schema=False)
    with pytest.raises(DamageError, match="bad_delete"):
        open_as_it_lies(tmp_path).to_table()
    assert sawlog.verify(tmp_path, view="deletes").damaged


@quiet
def test_the_directory_of_one_field_is_its_column(tmp_path: Path) -> None:
    write_collection(tmp_path, pa.table({"pk": range(10), "s": [str(i) for i in range(10)]}), binlog_bytes=20)
    directory = tmp_path / "insert_log" / "1" / "2" / "100" / "101"
    assert len(list(directory.iterdir())) > 1
    assert sawlog.read(directory)["101"].to_pylist() == [str(i) for i in range(10)]


@quiet
def test_a_collection_without_rows_has_its_columns(tmp_path: Path) -> None:
    shutil.copytree(GOLDEN / "2.3.5", tmp_path / "root")
    server = Server()
    server.collection(1, "empty", [PK], NOW)
    options = {"metadata": server.save(tmp_path / "etcd.json"), "table": "empty"}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        table = sawlog.read(tmp_path / "root", **options)
    assert (table.schema.names, table.num_rows) == (["pk"], 0)


def test_checkpoints_say_until_when_everything_is_in_logs() -> None:
    """Of the golden server, whose collection of two shards has a channel for each."""
    checkpoint = 470611428836114433
    options = {"table": "strpk", "metadata": str(GOLDEN / "2.3.5" / "etcd.json")}
    (row,) = sawlog.read(GOLDEN / "2.3.5", view="collections", **options).to_pylist()
    names = [f"by-dev-rootcoord-dml_{number + 1}_{row['collection']}v{number}" for number in (0, 1)]
    assert row["checkpoints"] == [(name, checkpoint) for name in names]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with_etcd("2.3.5", "strpk").count_rows()
        with_etcd("2.3.5", "strpk", as_of=checkpoint).count_rows()
    with pytest.warns(SegmentsWarning, match=r"later than the checkpoint, 2026-11-21 05:48:50\.753"):
        with_etcd("2.3.5", "strpk", as_of=checkpoint + 1).count_rows()
    assert with_etcd("2.3.5", "strpk").info()["checkpoint"].startswith("2026-11-21 05:48:50.753")
    (row,) = sawlog.read(
        GOLDEN / "2.1.0", view="collections", table="strpk", metadata=str(GOLDEN / "2.1.0" / "etcd.json")
    ).to_pylist()
    assert row["checkpoints"] == []

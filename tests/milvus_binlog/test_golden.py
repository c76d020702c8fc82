"""Every value of every tree that a real Milvus wrote, against what was sent to it and what it answered."""

from __future__ import annotations

import base64
import json
import math
import struct
from typing import Any

import pyarrow as pa
import pytest

import sawlog

from .support import GOLDEN, SETS, SYNTHETIC, collections, id_of, manifest, open_as_it_lies, truth, with_etcd

pytestmark = pytest.mark.filterwarnings("ignore::sawlog.milvus.collection.dataset.SegmentsWarning")


def float32(value: float) -> float:
    return struct.unpack("<f", struct.pack("<f", value))[0]


def normal(row: dict[str, Any], types: dict[str, str]) -> dict[str, Any]:
    """A row of the truth as sawlog delivers it; fields that no schema names are those of the dynamic field."""
    values: dict[str, Any] = {}
    dynamic: dict[str, Any] = {}
    for name, value in row.items():
        kind = types.get(name)
        if kind is None:
            dynamic[name] = value
        elif kind == "Float" or kind == "FloatVector":
            values[name] = [float32(number) for number in value] if isinstance(value, list) else float32(value)
        elif kind == "BinaryVector":
            text = value["b64"][0] if isinstance(value, dict) else value
            values[name] = base64.b64decode(text)
        else:
            values[name] = value
    if "$meta" in types:
        values["$meta"] = dynamic
    return values


def delivered(row: dict[str, Any]) -> dict[str, Any]:
    return {name: json.loads(value) if name in ("f_json", "$meta") else value for name, value in row.items()}


def types_of(schema: pa.Schema) -> dict[str, str]:
    return {field.name: field.metadata[b"sawlog.milvus.type"].decode() for field in schema}


@pytest.mark.parametrize(("name", "collection"), collections())
def test_every_row_that_was_sent(name: str, collection: str) -> None:
    """Insert logs hold exactly the rows of the inserts and upserts, by key and timestamp."""
    key = manifest(name)[collection]["pk"]
    dataset = sawlog.open(
        GOLDEN / name,
        view="inserts",
        table=collection,
        metadata=str(GOLDEN / name / "etcd.json"),
        segments=tuple(s["segment"] for s in manifest(name)[collection]["segments"] if not s["made_by_compaction"]),
    )
    user = [n for n in dataset.schema.names if n not in ("RowID", "Timestamp", "_collection", "_partition", "_segment")]
    types = types_of(pa.schema([dataset.schema.field(n) for n in user]))
    sent = {}
    for operation in truth(name)["log"]:
        if operation["collection"] == collection and operation["op"] in ("insert", "upsert"):
            for pk, row in zip(operation["pks"], operation["rows"], strict=True):
                sent[pk, operation["timestamp"]] = normal({key: pk, **row}, types)
    rows = dataset.to_table().to_pylist()
    assert len(rows) == len(sent)
    assert len({row["RowID"] for row in rows}) == len(rows)
    for row in rows:
        read = delivered({n: row[n] for n in user})
        assert read == sent[read[key], row["Timestamp"]]


@pytest.mark.parametrize(("name", "collection"), collections())
def test_every_row_that_the_server_shows(name: str, collection: str) -> None:
    """What a strong query answered before partition p2 was dropped; the two oldest servers answered none."""
    truth_document = truth(name)
    state = (truth_document.get("state_before_drop_partition") or truth_document.get("state") or {}).get(collection)
    rows = open_as_it_lies(GOLDEN / name, table=id_of(name, collection)).count_rows()
    assert rows == manifest(name)[collection]["naive_directory_scan"]["rows_after_segment_deletes"]
    if not state:
        assert name == "2.1.0"
        return
    segments = tuple(
        s["segment"] for s in manifest(name)[collection]["segments"] if s["state"] != "Dropped" or collection == "strpk"
    )
    dataset = with_etcd(name, collection, segments=segments)
    key, types = manifest(name)[collection]["pk"], types_of(dataset.schema)
    read = {row[key]: delivered(row) for row in dataset.to_table().to_pylist()}
    assert len(read) == len(state)
    for state_row in state:
        expected_row = normal(state_row, types)
        have = read[state_row[key]]
        if "$meta" in expected_row and not expected_row["$meta"]:
            have = {n: v for n, v in have.items() if n != "$meta"}
            expected_row.pop("$meta")
        assert {n: have[n] for n in expected_row} == expected_row


@pytest.mark.parametrize(("name", "collection"), collections())
def test_counts_are_those_of_the_server(name: str, collection: str) -> None:
    facts = manifest(name)[collection]
    rows = sum(segment["rows"] for segment in facts["segments"])
    assert open_as_it_lies(GOLDEN / name, table=id_of(name, collection), view="inserts").count_rows() == rows
    with_states = with_etcd(name, collection)
    assert with_states.count_rows() == facts["with_segment_states"]["rows_after_segment_deletes"]
    keys = set(with_states.to_table()[facts["pk"]].to_pylist())
    assert len(keys) == facts["with_segment_states"]["distinct_pks"]
    deletes = open_as_it_lies(GOLDEN / name, table=id_of(name, collection), view="deletes")
    assert deletes.count_rows() == deletes.to_table().num_rows == facts["delete_records"]


@pytest.mark.parametrize(("name", "collection"), collections())
def test_view_of_segments(name: str, collection: str) -> None:
    read = {row["segment"]: row for row in with_etcd(name, collection, view="segments").to_table().to_pylist()}
    for segment in manifest(name)[collection]["segments"]:
        row = read[segment["segment"]]
        assert row["rows"] == segment["rows"]
        assert row["deletes"] == segment["deletes"]
        assert row["batches"] == segment["logs_per_field"]
        assert row["state"] == segment["state"].lower()
        assert row["channel"] == segment["channel"]
        assert (row["min_timestamp"], row["max_timestamp"]) == (segment["min_ts"], segment["max_ts"])
        live = with_etcd(name, collection, segments=(segment["segment"],)).count_rows()
        assert live == segment["live_after_own_deletes"]


@pytest.mark.parametrize("name", SETS)
def test_every_file_is_whole_and_accounted_for(name: str) -> None:
    report = sawlog.verify(GOLDEN / name)
    assert not report.damaged
    for file in report.files:
        assert file.account.total == file.size
    assert len(report.files) == sum(1 for path in (GOLDEN / name).rglob("*") if path.is_file() and path.suffix == "")


def test_as_of_goes_back_before_deletes_and_compaction() -> None:
    """Before the first deletes there were 1000 rows; the segments that were compacted later still say so."""
    log = [operation for operation in truth("2.3.5-compacted")["log"] if operation["collection"] == "alltypes"]
    inserts = [row["timestamp"] for row in log if row["op"] == "insert"]
    counts = []
    for moment in inserts:
        dataset = with_etcd("2.3.5-compacted", "alltypes", as_of=moment)
        counts.append(dataset.count_rows())
    # After the second insert, all thousand; after the third, less the hundred deleted, and a hundred more.
    assert counts == [500, 1000, 1000]
    assert with_etcd("2.3.5-compacted", "alltypes", as_of="2030-01-01").count_rows() == 996


def test_as_of_brings_a_dropped_partition_back() -> None:
    before = truth("2.3.5")["state_before_drop_partition"]["strpk"]
    assert with_etcd("2.3.5", "strpk").count_rows() == 185
    assert with_etcd("2.3.5", "strpk", as_of=470611429871583233).count_rows() == len(before)


def test_multi_event_file_concatenates() -> None:
    assert sawlog.read(SYNTHETIC / "multi_event_insert").column(0).to_pylist() == list(range(1, 13))


def expectations() -> list[tuple[str, Any]]:
    return list(json.loads((SYNTHETIC / "expected.json").read_text()).items())


@pytest.mark.parametrize(("path", "expected"), expectations())
def test_files_of_every_age_are_read(path: str, expected: Any) -> None:
    """Stream-written files, all vector kinds, all delta encodings, DDL, and the layout of before 2.0."""
    table = sawlog.read(SYNTHETIC / path, format="milvus_binlog")
    if path.startswith("delta/"):
        assert [[row["pk"], row["timestamp"]] for row in table.to_pylist()] == expected
    elif path.startswith("ddl/") and "/ddl/" in path.removeprefix("ddl/"):
        assert [[row["type"], row["request"].decode()] for row in table.to_pylist()] == expected
    elif "timestamptz" in path:
        assert table.column(0).cast(pa.int64()).to_pylist() == expected
    elif "sparse" in path:
        assert [{str(index): value for index, value in row} for row in table.column(0).to_pylist()] == expected
    else:
        assert table.column(0).to_pylist() == expected
    assert not sawlog.verify(SYNTHETIC / path, format="milvus_binlog").damaged


def test_vector_types_are_proper_arrow() -> None:
    kinds = {
        "104_float16_vector/5": pa.list_(pa.float16(), 2),
        "105_bfloat16_vector/6": pa.list_(pa.float32(), 2),
        "106_sparse_vector/7": pa.map_(pa.uint32(), pa.float32()),
        "107_int8_vector/8": pa.list_(pa.int8(), 3),
        "108_nullable_float_vector/9": pa.list_(pa.float32(), 2),
        "109_array_of_vector/10": pa.list_(pa.list_(pa.float32(), 2)),
        "110_timestamptz/11": pa.timestamp("us", "UTC"),
    }
    for path, kind in kinds.items():
        assert sawlog.open(SYNTHETIC / "stream_writer" / path, format="milvus_binlog").schema.types == [kind]


def test_index_file_is_its_bytes() -> None:
    slices = sorted(path for path in (GOLDEN / "2.3.5-multi" / "index_files").rglob("*") if path.is_file())
    assert slices
    for path in slices:
        table = sawlog.read(path)
        assert table.num_rows == 1
        events = sawlog.read(path, view="frames").to_pylist()
        assert len(table["data"][0].as_py()) == events[1]["rows"]
        assert events[1]["type"] == "INDEX_FILE"


def test_stats_logs_hold_the_keys_of_their_segment() -> None:
    from sawlog.milvus.stats import BloomFilter, make_stats_log, parse_stats

    for path in sorted((GOLDEN / "2.3.5").glob("stats_log/*/*/*/*/1")):
        segment = int(path.parts[-3])
        keys = open_as_it_lies(
            GOLDEN / "2.3.5", table=path.parts[-5], view="inserts", filters=[("_segment", "=", segment)]
        ).to_table()
        name = keys.schema.names[0]
        column = keys[name].combine_chunks()
        (entry,) = parse_stats(path.read_bytes())
        bloom = BloomFilter.of_json(entry["bf"])
        assert bloom.count_hits(column) == len(column)
        absent = (
            pa.array(range(10**9, 10**9 + 1000)) if pa.types.is_int64(column.type) else pa.array(map(str, range(1000)))
        )
        assert bloom.count_hits(absent) < 150
        stats_log = make_stats_log(entry["fieldID"], column)
        assert stats_log["bf"] == entry["bf"]
        assert (stats_log["minPk"], stats_log["maxPk"], stats_log["pkType"]) == (
            entry["minPk"],
            entry["maxPk"],
            entry["pkType"],
        )
        rows = sawlog.read(path).to_pylist()
        assert rows[0]["bits"] == entry["bf"]["m"]
        assert 0 < rows[0]["bits_set"] <= math.ceil(entry["bf"]["m"])

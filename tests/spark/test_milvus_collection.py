"""Milvus collections through Spark: the source, L0 deletes by a join, the sink, compaction."""

from __future__ import annotations

import json
import shutil
import tarfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest

import sawlog
from sawlog.milvus.collection.dataset import SegmentsWarning
from tests.milvus_binlog.support import GOLDEN, NOW, SYNTHETIC, delete, open_as_it_lies, with_etcd, write_collection
from tests.storage.minio.golden import GOLDEN as MINIO

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.filterwarnings("ignore::sawlog.milvus.collection.dataset.SegmentsWarning")


def source(spark: SparkSession, path: Path, **options: Any) -> DataFrame:
    reader = spark.read.format("sawlog").option("format", "milvus_binlog")
    return reader.options(**{name: str(value) for name, value in options.items()}).load(str(path))


def make_table(rows: int = 1000) -> pa.Table:
    rng = np.random.default_rng(2)
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(rng.standard_normal(rows * 4, dtype="f4")), 4)
    return pa.table(
        {
            "pk": pa.array(range(rows), pa.int64()),
            "name": [f"row {i}" for i in range(rows)],
            "sparse": pa.array([[(i, 0.5), (i + 7, 1.5)] for i in range(rows)], pa.map_(pa.uint32(), pa.float32())),
            "half": pa.FixedSizeListArray.from_arrays(pa.array(np.arange(rows * 2), pa.float16()), 2),
            "bits": pa.array([i.to_bytes(2, "little") for i in range(rows)], pa.binary(2)),
            "vec": vectors,
            "_partition": pa.array([2 + i % 2 for i in range(rows)], pa.int64()),
        }
    )


def by_key(rows: pa.Table, key: str = "pk") -> list[dict[str, Any]]:
    return sorted(rows.to_pylist(), key=lambda row: row[key])


@pytest.fixture
def tree(tmp_path: Path) -> tuple[Path, list[int]]:
    """Two partitions, several segments and batches, own deletes, and L0 deletes of one and of all partitions."""
    root = tmp_path / "tree"
    write_collection(root, make_table(), binlog_bytes=8 << 10, segment_bytes=16 << 10)
    segments = open_as_it_lies(root, view="segments").to_table().to_pylist()
    assert len(segments) > 4
    for segment in segments[:2]:
        delete(root, list(range(0, 1000, 10)), [NOW + 1] * 100, segment["segment"], segment["partition"])
    delete(root, [1, 3, 4], [NOW + 5, NOW, NOW + 5], 900_001, 3)
    delete(root, [7, 8], [NOW + 5, NOW + 5], 900_002, -1)
    return root, [segment["segment"] for segment in segments]


def test_source_reads_what_the_api_reads(spark: SparkSession, tree: tuple[Path, list[int]]) -> None:
    root, _ = tree
    table = open_as_it_lies(root).to_table()
    frame = source(spark, root)
    batches = len(open_as_it_lies(root).fragments())
    assert frame.rdd.getNumPartitions() == 1 < batches, "small binlog batches share a task"
    assert source(spark, root, task_bytes="1").rdd.getNumPartitions() == batches
    assert {row[0] for row in frame.select("`100`").collect()} == set(table["100"].to_pylist())
    got = frame.toArrow().sort_by("100")
    assert got["101"].to_pylist() == [row["101"] for row in by_key(table, "100")]


def test_source_applies_deletes_without_a_shuffle(spark: SparkSession, tree: tuple[Path, list[int]]) -> None:
    plan = source(spark, tree[0])._jdf.queryExecution().executedPlan().toString()
    assert "Exchange" not in plan


@pytest.mark.nightly
def test_deletes_across_segments_by_one_join(spark: SparkSession, tree: tuple[Path, list[int]]) -> None:
    from sawlog.milvus.spark import read_collection

    root, _ = tree
    expected_keys = set(open_as_it_lies(root).to_table()["100"].to_pylist())
    own_keys = set(open_as_it_lies(root, deletes="own").to_table()["100"].to_pylist())
    # Key 1 is in partition 3, key 4 in partition 2; key 3's delete is no younger than its row.
    assert own_keys - expected_keys == {1, 7, 8}
    frame = read_collection(spark, str(root))
    assert {row[0] for row in frame.select("`100`").collect()} == expected_keys
    plan = frame._jdf.queryExecution().executedPlan().toString()
    assert plan.count("Join") == 1 or "AdaptiveSparkPlan" in plan
    assert frame.columns == open_as_it_lies(root).schema.names
    assert {row[0] for row in source(spark, root).select("`100`").collect()} == expected_keys
    for moment in (NOW, NOW + 1, NOW + 5):
        joined, plain = read_collection(spark, str(root), as_of=moment), source(spark, root, as_of=moment)
        assert joined.count() == plain.count() == open_as_it_lies(root, as_of=moment).count_rows()


def test_partition_and_segment_filters_prune(spark: SparkSession, tree: tuple[Path, list[int]]) -> None:
    root, segments = tree
    whole_dataset = open_as_it_lies(root)
    partition_dataset = open_as_it_lies(root, filters=[("_partition", "=", 3)])
    assert 0 < len(partition_dataset.fragments()) < len(whole_dataset.fragments())
    segment_dataset = open_as_it_lies(root, filters=[("_segment", "in", segments[:1])])
    assert {fragment.place[2] for fragment in segment_dataset.fragments()} == set(segments[:1])
    late = open_as_it_lies(root, filters=[("Timestamp", ">", NOW)])
    assert late.fragments() == []
    frame = source(spark, root, columns="100,_partition", filters=json.dumps([["_partition", "=", 3]]))
    assert {row[1] for row in frame.collect()} == {3}
    named = source(spark, root, partitions="3")
    assert named.count() == frame.count()


def test_golden_collections_are_read_on_spark(spark: SparkSession) -> None:
    name, collection = "2.3.5-compacted", "alltypes"
    root = GOLDEN / name
    frame = source(spark, root, table=collection, metadata=root / "etcd.json")
    expected = by_key(with_etcd(name, collection).to_table())
    rows = sorted((row.asDict() for row in frame.collect()), key=lambda row: row["pk"])
    assert rows == expected


def test_all_vector_kinds_reach_spark(spark: SparkSession) -> None:
    expected = json.loads((SYNTHETIC / "expected.json").read_text())
    for path in ("104_float16_vector/5", "105_bfloat16_vector/6", "107_int8_vector/8", "108_nullable_float_vector/9"):
        rows = source(spark, SYNTHETIC / "stream_writer" / path).collect()
        assert [row[0] for row in rows] == expected[f"stream_writer/{path}"]
    sparse = source(spark, SYNTHETIC / "stream_writer" / "106_sparse_vector" / "7").collect()
    assert [{str(k): v for k, v in row[0].items()} for row in sparse] == expected["stream_writer/106_sparse_vector/7"]


def test_sink_writes_what_the_api_reads_back(spark: SparkSession, tree: tuple[Path, list[int]], tmp_path: Path) -> None:
    root, _ = tree
    target = tmp_path / "target"
    frame = source(spark, root, columns="100,101,102,103,104,105,_partition,Timestamp").repartition(3)
    writer = frame.write.format("sawlog").option("format", "milvus_binlog").mode("append")
    writer.option("primary_key", "100").save(str(target))
    writer.option("primary_key", "100").save(str(target))  # another job, other ids
    once = by_key(open_as_it_lies(root).to_table(), "100")
    twice = by_key(open_as_it_lies(target).to_table(), "100")
    assert twice[::2] == once
    assert twice[1::2] == once
    assert not sawlog.verify(target).damaged
    assert not [path for path in target.rglob("*") if "staged" in path.name]


@pytest.mark.nightly
def test_compact_keeps_every_row(spark: SparkSession, tree: tuple[Path, list[int]], tmp_path: Path) -> None:
    from sawlog.errors import OptionError
    from sawlog.milvus.spark import compact

    root, segments = tree
    target = tmp_path / "compacted"
    for path in (root / "insert_log").iterdir():  # as a compaction that was ended leaves it
        (target / "insert_log" / path.name / "2").mkdir(parents=True)
    with pytest.warns(SegmentsWarning) as warning_records:
        done = compact(spark, str(root), str(target))
    assert [record.category for record in warning_records].count(SegmentsWarning) == 1
    columns = [*open_as_it_lies(root).schema.names, "RowID", "Timestamp", "_partition"]
    before = by_key(open_as_it_lies(root, columns=columns).to_table(), "100")
    after = by_key(open_as_it_lies(target, columns=columns).to_table(), "100")
    assert after == before
    assert done.rows == len(after)
    assert done.segments_before == len(segments)
    assert done.segments_after == 2 < done.segments_before
    assert done.files_after < done.files_before
    assert not (target / "delta_log").exists()
    with pytest.raises(OptionError, match="already"):
        compact(spark, str(root), str(target))


@pytest.mark.nightly
def test_compact_golden_collection_with_metadata(spark: SparkSession, tmp_path: Path) -> None:
    from sawlog.milvus.spark import compact

    root = GOLDEN / "2.3.5"
    metadata = shutil.copy(root / "etcd.json", tmp_path)  # next to what is written, of which it says nothing
    options = {"table": "alltypes", "metadata": str(metadata)}
    done = compact(spark, str(root), str(tmp_path / "out"), **options)
    assert (done.rows, done.segments_before, done.segments_after) == (996, 3, 1)
    assert done.files_before == sum(with_etcd("2.3.5", "alltypes", view="segments").to_table()["files"].to_pylist())
    assert done.files_after == len([path for path in (tmp_path / "out").rglob("*") if path.is_file()])


@pytest.mark.nightly
def test_compact_into_a_backup_keeps_names(spark: SparkSession, tmp_path: Path) -> None:
    """Names with dots, and names that differ only in case, which Spark would take for other things."""
    from sawlog.milvus.spark import compact

    table = pa.table({"pk": range(20), "a.b": [f"{i}" for i in range(20)], "A.B": range(20), "a`": [0.5] * 20})
    write_collection(tmp_path / "in", table, tree="backup", collection_name="odd", binlog_bytes=100)
    done = compact(spark, str(tmp_path / "in"), str(tmp_path / "out"), tree="backup")
    assert (done.rows, done.segments_after) == (20, 1)
    copy = sawlog.open(tmp_path / "out")
    assert (copy.contents.collection.name, copy.contents.collection.meta.partitions) == ("odd", {2: "_default"})
    assert copy.to_table().sort_by("pk").cast(table.schema).equals(table)
    assert compact(spark, str(tmp_path / "out"), str(tmp_path / "plain")).rows == 20


@pytest.mark.nightly
def test_compact_on_the_command_line(spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from sawlog.cli import main

    root, target = GOLDEN / "2.3.5", tmp_path / "out"
    options = ["-o", "table=strpk", "-o", f"metadata={root / 'etcd.json'}"]
    assert main(["compact", str(root), str(target), *options]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"185 rows compacted and checked: {target}"
    before, after = with_etcd("2.3.5", "strpk"), open_as_it_lies(target)
    keys = before.to_table()[before.contents.primary.name].to_pylist()
    assert sorted(after.to_table()["100"].to_pylist()) == sorted(keys)
    assert main(["compact", str(root), str(target), *options]) == 2
    assert "already" in capsys.readouterr().err
    assert spark.range(3).count() == 3, "the session that was there goes on"


def test_damaged_segment_is_skipped(spark: SparkSession, tree: tuple[Path, list[int]], tmp_path: Path) -> None:
    from pyspark.errors import PythonException

    root = tmp_path / "damaged"
    shutil.copytree(tree[0], root)
    victim = next(path for path in sorted(root.glob("insert_log/1/2/*/101/*")))
    victim.write_bytes(victim.read_bytes()[:-20])
    intact = open_as_it_lies(root, on_damage="skip").fragments()
    with pytest.raises(PythonException, match=r"insert_log/1/2/.*/101/"):
        source(spark, root).collect()
    row_count = len(source(spark, root, mode="DROPMALFORMED").collect())  # counting may not look at this column
    assert 0 < row_count < open_as_it_lies(tree[0]).count_rows()
    damage = source(spark, root, view="damage").collect()
    assert [Path(row.file) for row in damage] == [victim]
    assert intact


def test_drives_of_minio(spark: SparkSession, tmp_path: Path) -> None:
    """Executors open objects that only the driver has listed, two of four drives being lost."""
    with tarfile.open(MINIO / "four.tar.gz") as archive:
        archive.extractall(tmp_path, filter="data")
    for drive in ("d2", "d3"):
        shutil.rmtree(tmp_path / drive)
    metadata = GOLDEN / "2.3.5" / "etcd.json"
    table = source(spark, tmp_path / "d1/a-bucket/files", table="autoid", metadata=metadata).toArrow()
    expected = with_etcd("2.3.5", "autoid").to_table()
    key = expected.schema.names[0]
    assert by_key(table, key) == by_key(expected, key)

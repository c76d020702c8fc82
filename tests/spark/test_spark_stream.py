"""Streams on Spark: from logs into tables and into logs, limits, restarts, repeated micro-batches."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import sawlog
from sawlog.deephaven_log import Logger

pytest.importorskip("pyspark.sql.streaming.datasource", reason="streams need PySpark 4.2")

from sawlog.spark.stream_writer import LEDGER, BatchShare, SawlogStreamWriter
from sawlog.spark.writer import SawlogWriter
from sawlog.storage import Storage

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import StreamingQuery

SCHEMA = pa.schema([("n", pa.int64()), ("s", pa.string())])


def log(directory: Path, first: int, last: int, name: str) -> None:
    numbers = list(range(first, last))
    with Logger(directory, SCHEMA, namespace="Market", table="Trades", internal_partition=name) as logger:
        logger.write(pa.record_batch([pa.array(numbers), pa.array([f"row {n}" for n in numbers])], schema=SCHEMA))


def run(spark: SparkSession, root: Path, sink: str, columns: str = "n", **options: Any) -> StreamingQuery:
    rows = spark.readStream.format("sawlog").options(**options).load(str(root / "logs")).selectExpr(columns)
    writer = rows.writeStream.trigger(availableNow=True).option("checkpointLocation", str(root / "checkpoint"))
    writer = writer.format("parquet") if sink == "parquet" else writer.format("sawlog").option("format", sink)
    query = writer.start(str(root / "out"))
    query.awaitTermination()
    return query


def test_into_parquet_within_limits(spark: SparkSession, tmp_path: Path) -> None:
    log(tmp_path / "logs", 0, 100, "a")
    assert [one.numInputRows for one in run(spark, tmp_path, "parquet", maxRowsPerTrigger=40).recentProgress] == [
        40,
        40,
        20,
    ]
    log(tmp_path / "logs", 100, 150, "b")
    progress = run(spark, tmp_path, "parquet").recentProgress
    assert [one.numInputRows for one in progress] == [50]
    assert progress[0].sources[0].latestOffset == '{"behind": {"bytes": 0, "files": 0}}'
    found = spark.read.parquet(str(tmp_path / "out")).toArrow().column("n").to_pylist()
    assert sorted(found) == list(range(150))


def test_a_micro_batch_that_is_repeated_is_written_once(spark: SparkSession, tmp_path: Path) -> None:
    log(tmp_path / "logs", 0, 100, "a")
    record = "CAST(s AS BINARY) AS record"
    run(spark, tmp_path, "leveldb_log", record)
    for path in (tmp_path / "checkpoint" / "commits").iterdir():
        path.unlink()
    run(spark, tmp_path, "leveldb_log", record)
    found = sawlog.read(tmp_path / "out", format="leveldb_log").column("record").to_pylist()
    assert sorted(found) == sorted(b"row %d" % n for n in range(100))


def test_a_replaced_file_ends_the_stream(spark: SparkSession, tmp_path: Path) -> None:
    from pyspark.errors import StreamingQueryException

    log(tmp_path / "logs", 0, 100, "a")
    run(spark, tmp_path, "parquet")
    (path,) = (tmp_path / "logs").iterdir()
    log(tmp_path / "other", 500, 700, "a")
    (other,) = (tmp_path / "other").iterdir()
    shutil.copy(other, path)
    with pytest.raises(StreamingQueryException, match="the file was replaced or rewritten"):
        run(spark, tmp_path, "parquet")


def share(writer: SawlogWriter, text: bytes, task: int, run: str) -> BatchShare:
    batch = pa.record_batch([pa.array([text], pa.binary())], names=["record"])
    share = writer.named(f"query{run}-00000007")._open(writer.directory, task, Storage())
    share.write(batch)
    return BatchShare(share.finish(), "query", run)


def records(path: Path) -> list[bytes]:
    return sorted(sawlog.read(path, format="leveldb_log").column("record").to_pylist())


@pytest.fixture
def writer(tmp_path: Path) -> SawlogWriter:
    chosen = sawlog.formats()["leveldb_log"]
    schema = pa.schema([("record", pa.binary())])
    return SawlogWriter(chosen, chosen.write_options(), Storage(), str(tmp_path), schema, overwrite=False)


def test_a_driver_killed_between_files(writer: SawlogWriter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sink = SawlogStreamWriter(writer)
    shares = [share(writer, b"a", 0, "r1"), share(writer, b"b", 1, "r1")]
    publish = Storage.publish

    def killed(storage: Storage, staged: Any) -> None:
        chosen = list(staged)
        publish(storage, chosen[:1])
        if len(chosen) > 1:
            raise KeyboardInterrupt

    monkeypatch.setattr(Storage, "publish", killed)
    with pytest.raises(KeyboardInterrupt):
        sink.commit(shares, 7)
    monkeypatch.undo()
    assert len(records(tmp_path)) == 1
    sink.commit([share(writer, b"other split of a and b", 0, "r2")], 7)
    assert records(tmp_path) == [b"other split of a and b"]
    sink.commit([share(writer, b"once more", 0, "r3")], 7)
    sink.commit([share(writer, b"older", 0, "r3")], 6)
    assert records(tmp_path) == [b"other split of a and b"]
    sink.commit([share(writer, b"next", 3, "r3")], 8)
    assert records(tmp_path) == [b"next", b"other split of a and b"]
    assert Storage().staged(tmp_path, "") == []
    assert len(list((tmp_path / LEDGER).iterdir())) == 1


def test_abort_leaves_nothing_staged(writer: SawlogWriter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sawlog.spark.stream_writer.LINGER", 0)
    lost = share(writer, b"lost", 1, "r1")
    SawlogStreamWriter(writer).abort([share(writer, b"a", 0, "r1"), None], 7)
    assert not any(Path(one.temporary).exists() for one in lost.staged)
    assert Storage().staged(tmp_path, "") == []

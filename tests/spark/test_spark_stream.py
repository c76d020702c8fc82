"""Streams on Spark: from logs into tables and into logs, limits, restarts, repeated micro-batches."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import itertools
import json
import math
import os
import pickle
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from fsspec.implementations.memory import MemoryFileSystem

import sawlog
from sawlog.dataset.dataset import Dataset
from sawlog.errors import OptionError, SawlogError, StorageError

pytest.importorskip("pyspark.sql.streaming.datasource", reason="streams need PySpark 4.2")

from pyspark.sql.types import StructType

from sawlog.spark.options import SparkRequest
from sawlog.spark.reader import read_schema
from sawlog.spark.stream_reader import make_stream_reader
from sawlog.spark.stream_writer import SawlogStreamWriter, StagedTask
from sawlog.spark.writer import SawlogWriter
from sawlog.storage import Storage, commit
from sawlog.storage.commit_log import LOG
from tests.exactly_once.run_queries import SINKS
from tests.spark.stream_logs import log_other, write_log
from tests.support import write_records

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import StreamingQuery


def run(spark: SparkSession, root: Path, sink: str, columns: str = "n", **options: Any) -> StreamingQuery:
    rows = spark.readStream.format("sawlog").options(**options).load(str(root / "logs")).selectExpr(columns)
    writer = rows.writeStream.trigger(availableNow=True).option("checkpointLocation", str(root / "checkpoint"))
    writer = writer.format("parquet") if sink == "parquet" else writer.format("sawlog").option("format", sink)
    query = writer.start(str(root / "out"))
    query.awaitTermination()
    return query


def test_rows_are_written_into_parquet_within_limits(spark: SparkSession, tmp_path: Path) -> None:
    write_log(tmp_path / "logs", 0, 100, "a")
    assert [
        progress_entry.numInputRows
        for progress_entry in run(spark, tmp_path, "parquet", maxRowsPerTrigger=40).recentProgress
    ] == [
        40,
        40,
        20,
    ]
    write_log(tmp_path / "logs", 100, 150, "b")
    progress = run(spark, tmp_path, "parquet").recentProgress
    assert [progress_entry.numInputRows for progress_entry in progress] == [50]
    assert progress[0].sources[0].latestOffset == '{"behind": {"bytes": 0, "files": 0}}'
    values = spark.read.parquet(str(tmp_path / "out")).toArrow().column("n").to_pylist()
    assert sorted(values) == list(range(150))


@pytest.mark.filterwarnings("ignore::sawlog.milvus.collection.dataset.SegmentsWarning")
@pytest.mark.parametrize(
    "sink",
    [
        "milvus_binlog",
        *(
            pytest.param(format_name, marks=pytest.mark.nightly)
            for format_name in ("leveldb_log", "deephaven_log", "deephaven_table", "filodb_record")
        ),
    ],
)
def test_a_micro_batch_that_is_repeated_is_written_once(spark: SparkSession, tmp_path: Path, sink: str) -> None:
    """The driver was killed after it had committed the files, and before Spark knew."""
    write_log(tmp_path / "logs", 0, 100, "a")
    columns, options = SINKS[sink]
    for _ in range(2):
        rows = spark.readStream.format("sawlog").load(str(tmp_path / "logs")).selectExpr("n AS k", "s")
        writer = rows.selectExpr(*columns).writeStream.format("sawlog").option("format", sink).options(**options)
        writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True)
        writer.start(str(tmp_path / "out")).awaitTermination()
        for path in (tmp_path / "checkpoint" / "commits").iterdir():
            path.unlink()
    assert sawlog.open(tmp_path / "out", format=sink).count_rows() == 100


@pytest.mark.nightly
def test_a_replaced_file_ends_the_stream(spark: SparkSession, tmp_path: Path) -> None:
    from pyspark.errors import StreamingQueryException

    write_log(tmp_path / "logs", 0, 100, "a")
    run(spark, tmp_path, "parquet")
    (path,) = (tmp_path / "logs").iterdir()
    write_log(tmp_path / "other", 500, 700, "a")
    (other_path,) = (tmp_path / "other").iterdir()
    shutil.copy(other_path, path)
    with pytest.raises(StreamingQueryException, match="the file was replaced or rewritten"):
        run(spark, tmp_path, "parquet")


@pytest.mark.nightly
def test_from_an_object_store_and_into_it(spark: SparkSession, s3: dict[str, Any], tmp_path: Path) -> None:
    kwargs = str(s3["client_kwargs"]).replace("'", '"')
    options = {"storage.key": "k", "storage.secret": "s", "storage.client_kwargs": kwargs}
    place = "s3://logs/spark/stream"
    for number in range(2):
        texts = [f"row {n}" for n in range(number * 50, number * 50 + 50)]
        log = pa.table({"n": pa.array(range(50), pa.int64()), "s": texts})
        sawlog.write(log, f"{place}/in/{number}.bin", format="deephaven_log", storage_options=s3)
        rows = spark.readStream.format("sawlog").options(**options).load(f"{place}/in")
        writer = rows.selectExpr("CAST(s AS BINARY) AS record").writeStream.format("sawlog").trigger(availableNow=True)
        writer = writer.option("format", "leveldb_log").option("checkpointLocation", str(tmp_path)).options(**options)
        query = writer.start(f"{place}/out")
        query.awaitTermination()
        assert [progress_entry.numInputRows for progress_entry in query.recentProgress] == [50]
    values = sawlog.read(f"{place}/out", format="leveldb_log", storage_options=s3).column("record").to_pylist()
    assert values == [b"row %d" % n for n in range(100)]
    assert Storage(s3).directories.find_staged_paths(f"{place}/out", "") == []


def test_every_core_gets_a_share_of_a_micro_batch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(8):
        write_log(tmp_path, number * 100, number * 100 + 100, f"w{number}")
    options = {"path": str(tmp_path), "format": "deephaven_log"}

    def tasks(worth: int, cores: int = 2, **settings: str) -> list[int]:
        monkeypatch.setattr("sawlog.spark.stream_reader.MIN_TASK_BYTES", worth)
        monkeypatch.setattr(os, "cpu_count", lambda: cores)
        schema = StructType().add("n", "long")
        reader = make_stream_reader({**options, **settings}, None, schema)
        start = reader.initialOffset()
        parts = reader.partitions(start, reader.latestOffset(start, reader.getDefaultReadLimit()))
        return [len(part.value.parts) for part in parts]

    assert tasks(4 << 20) == [8]
    assert tasks(1) == [4, 4]
    assert tasks(1, cores=4) == [2, 2, 2, 2]
    assert tasks(1, cores=1) == [8]
    assert len(tasks(1, cores=1, task_bytes="1")) == 8


def test_a_file_that_appears_while_a_query_starts_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_log(tmp_path, 0, 100, "w0")
    (tmp_path / "notes.txt").write_text("no log")
    opened = SparkRequest.open

    def open_slowly(request: SparkRequest) -> Dataset:
        dataset = opened(request)
        write_log(tmp_path, 100, 200, "w1")
        return dataset

    monkeypatch.setattr(SparkRequest, "open", open_slowly)
    reader = make_stream_reader({"path": str(tmp_path), "format": "deephaven_log"}, None, StructType().add("n", "long"))
    start = reader.initialOffset()
    parts = reader.partitions(start, reader.latestOffset(start, reader.getDefaultReadLimit()))
    assert sorted(n for part in parts for batch in reader.read(part) for n in batch["n"].to_pylist()) == list(
        range(200)
    )


def test_executors_are_sent_nothing_that_is_known_of_the_files(tmp_path: Path) -> None:
    for number in range(20):
        write_log(tmp_path, number * 10, number * 10 + 10, f"w{number}")
    reader = make_stream_reader({"path": str(tmp_path), "format": "deephaven_log"}, None, StructType().add("n", "long"))
    sent = copy.copy(reader).__getstate__()
    start = reader.initialOffset()
    end = reader.latestOffset(start, reader.getDefaultReadLimit())
    parts = reader.partitions(start, end)
    assert reader.latestOffset(end, reader.getDefaultReadLimit()) == end, "the next look finds nothing"
    assert reader.__getstate__() == {**sent, "_pause_end": reader.__getstate__()["_pause_end"]}
    assert sum(batch.num_rows for part in parts for batch in pickle.loads(pickle.dumps(reader)).read(part)) == 200


QUERY, BATCH = "query", 7


def share(sink: SawlogStreamWriter, text: bytes, task: int, run: str, batch: int = BATCH) -> StagedTask:
    writing = sink.sink.begin(sink.make_job(QUERY, run, batch), task)
    writing.write(pa.record_batch([pa.array([text], pa.binary())], names=["record"]))
    return StagedTask(writing.finish(), QUERY, run)


def read_records(place: object) -> list[bytes]:
    if not Storage().exists(str(place)) or not Storage().find(str(place)):
        return []
    return sorted(sawlog.read(str(place), format="leveldb_log").column("record").to_pylist())


def make_sink(place: object, *, overwrite: bool = False) -> SawlogStreamWriter:
    format_object = sawlog.formats()["leveldb_log"]
    schema = pa.schema([("record", pa.binary())])
    return SawlogStreamWriter(
        SawlogWriter(format_object, format_object.write_options(), Storage(), str(place), schema, overwrite=overwrite)
    )


@pytest.fixture(params=["local", "remote"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A directory, and one that cannot be renamed."""
    return str(tmp_path / "out") if request.param == "local" else f"memory://{tmp_path.name}/out"


STEPS = [
    *((os, name) for name in ("rename", "replace", "link", "unlink", "rmdir")),
    *((MemoryFileSystem, name) for name in ("mv", "pipe_file", "rm_file", "rm")),
    (commit, "exchange"),
]
"""What changes something that others see."""


@contextmanager
def killed_at(step: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], bool]]:
    """Let nothing be changed any more after `step` changes; returns whether it came to that."""
    steps_left = step
    cut = False

    def counted(change: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **arguments: Any) -> Any:
            nonlocal steps_left, cut
            if not steps_left:
                cut = True
                raise KeyboardInterrupt  # also when it is to be taken back: a process that is killed does not
            steps_left -= 1
            return change(*args, **arguments)

        return call

    for owner, name in STEPS:
        monkeypatch.setattr(owner, name, counted(getattr(owner, name)))
    with contextlib.suppress(KeyboardInterrupt):
        yield lambda: cut
    monkeypatch.undo()
    monkeypatch.setattr(commit, "has_exited", lambda _: True)


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_driver_killed_between_any_two_steps(place: str, overwrite: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    for step in itertools.count():
        root = f"{place}/{step}"
        sink = make_sink(root, overwrite=overwrite)
        sink.commit([share(sink, b"before", 0, "r0", 6)], 6)
        shares = [share(sink, b"a", 0, "r1"), share(sink, b"b", 1, "r1")]
        before = [] if overwrite else [b"before"]
        with killed_at(step, monkeypatch) as cut:
            sink.commit(shares, BATCH)
        records_seen, all_records = read_records(root), [b"a", b"b", *before]
        assert records_seen in ([b"before"], all_records), "a part of a micro-batch was seen"
        again = [share(sink, b"b", 0, "r2"), share(sink, b"a", 3, "r2")]
        sink.commit(again, BATCH)
        assert read_records(root) == [b"a", b"b", *before]
        sink.commit([share(sink, b"once more", 0, "r3")], BATCH)
        sink.commit([share(sink, b"older", 0, "r3", 6)], 6)
        assert read_records(root) == [b"a", b"b", *before]
        assert Storage().directories.find_staged_paths(root, "") == []
        if not cut():
            break
    assert step >= 4


def test_micro_batches_lie_side_by_side(place: str) -> None:
    sink = make_sink(place)
    for batch in (8, 9, 10):
        tasks = [share(sink, b"%d %d" % (batch, task), task, "r1", batch) for task in range(2)]
        sink.commit([*tasks, None, StagedTask([], QUERY, "r1")], batch)
    sink.commit([StagedTask([], QUERY, "r1")], 11)
    values = sawlog.read(place, format="leveldb_log").column("record").to_pylist()
    assert values == [b"8 0", b"8 1", b"9 0", b"9 1", b"10 0", b"10 1"]
    assert Storage().directories.list_directories(place) == [LOG, *(f"batch-{batch:08d}-query" for batch in (8, 9, 10))]
    assert len(Storage().list_files(f"{place}/{LOG}")) == 1


def test_a_commit_in_a_process_that_has_lost_its_parent_publishes_all(place: str) -> None:
    """Spark keeps it over many micro-batches. With the daemon that forked it, it loses what it names owners by."""
    sink = make_sink(place)
    orphan = SawlogStreamWriter(copy.copy(sink.sink))
    for owner in ("", "00000000-1-1"):
        orphan.sink.job = dataclasses.replace(sink.sink.job, owner=owner)
        batch = BATCH + len(owner)
        task = share(sink, b"row", 0, "r1", batch)
        with pytest.raises(SawlogError, match="staged for another job"):
            orphan.commit([task], batch)
        orphan.commit([dataclasses.replace(task, owner=sink.sink.job.owner)], batch)
    assert read_records(place) == [b"row", b"row"]


def test_what_failed_attempts_have_staged_does_not_become_visible(tmp_path: Path) -> None:
    sink = make_sink(tmp_path)
    failed, good = share(sink, b"failed", 0, "r1"), share(sink, b"good", 0, "r1")
    sink.commit([good], BATCH)
    assert read_records(tmp_path) == [b"good"]
    assert not Path(failed.staged[0].temporary).exists()
    assert [path.name for path in (tmp_path / "batch-00000007-query").iterdir()] == ["part-00000-query-00000007.log"]


def test_abort_leaves_nothing_staged(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sawlog.spark.writer.LINGER_SECONDS", 0)
    sink = make_sink(place)
    share_lost = share(sink, b"lost", 1, "r1")
    sink.abort([share(sink, b"a", 0, "r1"), None], BATCH)
    assert not any(Storage().exists(staged_file.temporary) for staged_file in share_lost.staged)
    assert Storage().directories.find_staged_paths(place, "") == []


class Query:
    """What Spark asks of a stream source, without Spark: each one is a process of its own, with what JSON kept."""

    def __init__(self, path: Path, start: dict[str, Any] | None = None, *, now: bool = False, **options: str) -> None:
        schema = options.pop("schema", "n long")
        name, kind = schema.split()
        self.column = name
        self.reader = make_stream_reader({"path": str(path), **options}, None, StructType().add(name, kind))
        self.offset = start if start is not None else self.reader.initialOffset()
        if now:
            self.reader.prepareForTriggerAvailableNow()

    def look(self) -> list[Any]:
        start = self.offset
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("sawlog.spark.stream_reader.CHEAP_SECONDS", math.inf)  # no look is followed by a rest
            self.offset = json.loads(json.dumps(self.reader.latestOffset(start, self.reader.getDefaultReadLimit())))
        return self.rows(start, self.offset)

    def rows(self, start: dict[str, Any], end: dict[str, Any]) -> list[Any]:
        parts = self.reader.partitions(start, end)
        return sorted(n for part in parts for batch in self.reader.read(part) for n in batch[self.column].to_pylist())


@pytest.mark.parametrize("now", [False, True], ids=["continuous", "available now"])
@pytest.mark.parametrize("format", [{"format": "deephaven_log"}, {}], ids=["named", "recognised"])
def test_logs_of_another_table_that_appear(
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    now: bool,
    format: dict[str, str],
) -> None:
    place = tmp_path / "logs"
    write_log(place, 0, 5, "a")
    query = Query(place, now=now, **format)
    begin = query.offset
    assert query.look() == list(range(5))
    offset = query.offset
    for name in ("a", "b"):
        log_other(place, name)
    write_log(place, 5, 8, "b")
    assert Query(place, now=now, **format).rows(begin, query.offset) == list(range(5)), "the first one is repeated"
    caplog.clear()
    query = Query(place, offset, now=now, **format)
    assert query.look() == [5, 6, 7]
    log_other(place, "c")
    assert query.look() == []
    assert caplog.text.count("a log of the table Market.Other: the stream is of Market.Trades") == 1
    assert "left out of the stream until" not in caplog.text
    trades = [path for path in place.iterdir() if ".Trades." in path.name]
    for path in trades:
        path.rename(tmp_path / path.name)
    query = Query(place, query.offset, now=now, **format)
    assert query.look() == []
    write_log(place, 8, 9, "c")
    for path in trades:
        (tmp_path / path.name).rename(path)
    query = Query(place, query.offset, now=now, **format)
    assert query.look() == [8]
    for path in place.iterdir():
        if ".Other." in path.name:
            path.unlink()
    write_log(place, 9, 10, "d")
    assert Query(place, query.offset, now=now, **format).look() == [9]


def test_a_micro_batch_whose_files_are_all_gone_is_not_empty(tmp_path: Path) -> None:
    place = tmp_path / "logs"
    write_log(place, 0, 5, "a")
    query = Query(place)
    begin = query.offset
    query.look()
    place.rename(tmp_path / "unmounted")
    with pytest.raises(SawlogError, match=r"there are no files of the stream; .* repeated needs Market.Trades"):
        Query(place).rows(begin, query.offset)
    assert Query(place, query.offset).look() == []
    (tmp_path / "unmounted").rename(place)
    assert Query(place).rows(begin, query.offset) == list(range(5))


def test_a_stream_of_one_of_several_tables(tmp_path: Path) -> None:
    write_log(tmp_path, 0, 5, "a")
    log_other(tmp_path)
    with pytest.raises(OptionError, match=r"logs of several tables: Market.Other, Market.Trades"):
        Query(tmp_path).look()
    options = {"format": "deephaven_log", "namespace": "Market"}
    query = Query(tmp_path, **options, table="Trades")
    assert query.look() == list(range(5))
    write_log(tmp_path, 5, 7, "b")
    log_other(tmp_path, "v")
    assert Query(tmp_path, query.offset, now=True, **options, table="Trades").look() == [5, 6]
    other_query = Query(tmp_path, **options, table="Other", schema="price double")
    assert other_query.look() == [1.5, 1.5]


def test_files_of_another_format_that_appear(tmp_path: Path) -> None:
    """A database grows around its logs: what its path is recognised as says nothing of what the stream began with."""

    def write(number: int, *records: bytes) -> None:
        path = tmp_path / f"{number:06}.log"
        write_records(path, records, append=path.exists())

    write(3, b"1", b"2")
    query = Query(tmp_path, schema="record binary")
    assert query.look() == [b"1", b"2"]
    shop = Path(__file__).parents[2] / "examples" / "data" / "shop"
    for path in shop.iterdir():
        if not path.name.endswith(".log"):
            shutil.copy(path, tmp_path / path.name)
    write_log(tmp_path, 0, 5, "a")
    write(3, b"3")
    write(9, b"4")
    query = Query(tmp_path, query.offset, schema="record binary", now=True)
    assert query.look() == [b"3", b"4"]
    assert query.look() == []


def test_a_storage_that_fails_leaves_no_file_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even while it is found out which files belong to the stream."""
    write_log(tmp_path, 0, 5, "a")
    log_other(tmp_path)
    offset = Query(tmp_path, format="deephaven_log", table="Trades").reader.initialOffset()
    query = Query(tmp_path, offset, format="deephaven_log", table="Trades")
    opened = SparkRequest.open
    calls = itertools.count()

    def open_once(request: SparkRequest) -> Dataset:
        if not next(calls):
            raise StorageError("the connection was reset")
        return opened(request)

    monkeypatch.setattr(SparkRequest, "open", open_once)
    with pytest.raises(StorageError, match="reset"):
        query.look()
    assert query.look() == list(range(5))


def test_damaged_ranges_of_a_stream_have_rows_where_the_mode_is_permissive(damaged: Path) -> None:
    """Once each, however the file is cut into micro-batches."""
    options = {"path": str(damaged), "mode": "PERMISSIVE", "maxbytespertrigger": "40000"}
    reader = make_stream_reader(options, None, read_schema(options, None))
    begin, batches = reader.initialOffset(), []
    while (end := reader.latestOffset(begin, reader.getDefaultReadLimit())) != begin:
        batches.append([batch for part in reader.partitions(begin, end) for batch in reader.read(part)])
        begin = end
    assert len(batches) > 2
    rows = pa.Table.from_batches(itertools.chain.from_iterable(batches)).to_pylist()
    damage = sawlog.read(damaged, view="damage").to_pylist()
    bad = [row["_corrupt_record"] for row in rows if row["_corrupt_record"] is not None]
    assert [(row["offset"], row["kind"]) for row in bad] == [(row["offset"], row["kind"]) for row in damage]
    with pytest.warns(sawlog.DamageWarning):
        intact = sawlog.read(damaged, on_damage="skip")["record"].to_pylist()
    assert [row["record"] for row in rows if row["_corrupt_record"] is None] == intact

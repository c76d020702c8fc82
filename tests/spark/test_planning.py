"""What planning a read costs the driver: requests, bytes, memory."""

from __future__ import annotations

import base64
import datetime as dt
import itertools
import json
import pickle
import tempfile
import threading
import tracemalloc
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import fsspec
import pyarrow as pa
import pytest
from fsspec.implementations.memory import MemoryFileSystem
from pyspark.serializers import CPickleSerializer

import sawlog
from sawlog.deephaven.log import Logger
from sawlog.format.damage import DamageWarning
from sawlog.format.planning import FRAGMENTS_PER_TASK
from sawlog.spark.planner import Conversation
from sawlog.spark.reader import make_reader, read_schema
from sawlog.storage.index import Searches
from tests.deephaven_log.reference import DELETE, entry

FILES = FRAGMENTS_PER_TASK + 44
MAX_TABLE_BYTES = 64 << 10
"""Bytes of a file that its header may cost."""


@pytest.fixture(autouse=True)
def two_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sawlog.spark.reader.count_cores", lambda: 2)


@pytest.fixture
def requests(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Requests by method, those by path, and bytes fetched.

    They are counted as they begin: answers that nobody waits for any more come when something else is counted.
    """
    counts: Counter[str] = Counter()
    lock = threading.Lock()

    def counted(name: str) -> None:
        method = getattr(MemoryFileSystem, name)

        def call(self: Any, path: str, *args: Any, **settings: Any) -> Any:
            with lock:
                counts[name] += 1
                if name == "cat_file":
                    counts[path] += 1
                    size = self.store[self._strip_protocol(path)].getbuffer().nbytes
                    counts["bytes"] += len(range(size)[slice(settings.get("start"), settings.get("end"))])
            return method(self, path, *args, **settings)

        monkeypatch.setattr(MemoryFileSystem, name, call)

    for name in ("cat_file", "info", "find"):
        counted(name)
    return counts


def make_gauges(count: int) -> pa.Table:
    tags = pa.array([[("_ws_", "demo")]] * count, pa.map_(pa.string(), pa.string()))
    times = pa.array(range(count)).cast(pa.timestamp("ms", "UTC"))
    return pa.table({"timestamp": times, "value": [1.0] * count, "_metric_": ["m"] * count, "tags": tags})


def make_records(count: int) -> pa.Table:
    return pa.table({"record": pa.array([b"%0100d" % n for n in range(count)])})


SAMPLES: dict[str, tuple[str, Any, dict[str, Any]]] = {
    "leveldb_log": ("{:06}.log", make_records, {}),
    "deephaven_log": ("Trades.bin.{:06}", lambda count: pa.table({"i": range(count)}), {}),
    "filodb_record": ("{:06}.container", make_gauges, {"table": "gauge", "container_timestamp": 0}),
}


def planned(options: dict[str, str], format: str | None) -> tuple[Any, list[Any]]:
    """A reader and its partitions, as executors get them."""
    reader = make_reader(options, format, read_schema(options, format))
    return reader, pickle.loads(pickle.dumps(reader.partitions()))


def delivered(reader: Any, partitions: list[Any]) -> pa.Table:
    return pa.Table.from_batches([batch for partition in partitions for batch in reader.read(partition)])


@pytest.mark.parametrize("name", SAMPLES)
def test_many_small_remote_files_are_planned_together(name: str, requests: Counter[str], root: str) -> None:
    pattern, make, written = SAMPLES[name]
    for number in range(FILES):
        sawlog.write(make(1), f"{root}/{pattern.format(number)}", format=name, **written)
    options = {"path": root}
    requests.clear()
    schema = read_schema(options, name)
    assert (requests["find"], requests["info"]) == (1, 0)
    assert all(count == 1 for path, count in requests.items() if path.startswith("/"))
    requests.clear()
    reader = make_reader(options, name, schema)
    partitions = reader.partitions()
    assert (requests["find"], requests["info"]) == (1, 0), "sizes are those of the listing"
    assert all(count == 1 for path, count in requests.items() if path.startswith("/")), "a range of each file at most"
    tasks = -(-FILES // FRAGMENTS_PER_TASK)
    assert 1 < len(partitions) <= tasks, "files have an open cost, so that they do not make one task"
    assert delivered(reader, partitions).num_rows == FILES


def test_few_rows_of_many_files_are_few_tasks(requests: Counter[str], root: str) -> None:
    """No more than run at a time: Spark runs all of them to see whether there is a row."""
    for number in range(FILES):
        sawlog.write(make_records(1), f"{root}/{number:06}.log", format="leveldb_log")
    _, tasks, (function, parts) = planned_by_the_jar({"path": root}, 3)
    assert tasks == 2
    requests.clear()
    assert len(list(called(function, parts[:1]))) == 3
    assert requests["cat_file"] <= 64
    assert len(list(called(*planned_by_the_jar({"path": root}, 1000)[2]))) == FILES


@pytest.mark.parametrize("name", SAMPLES)
def test_the_bytes_of_large_remote_files_do_not_cross_the_driver(name: str, requests: Counter[str], root: str) -> None:
    pattern, make, written = SAMPLES[name]
    files = 3
    for number in range(files):
        sawlog.write(make(40_000), f"{root}/{pattern.format(number)}", format=name, **written)
    size = sum(len(data.getvalue()) for path, data in MemoryFileSystem.store.items() if root[9:] in path)
    assert size > 4 * files * MAX_TABLE_BYTES
    requests.clear()
    reader, partitions = planned({"path": root, "task_bytes": "300000"}, name)
    assert requests["bytes"] <= 2 * files * MAX_TABLE_BYTES, "schema() and partitions() read headers"
    assert len(partitions) > 1
    expected = sawlog.read(root, format=name)
    assert delivered(reader, partitions).num_rows == expected.num_rows == files * 40_000


def logs(place: Any, internal: str, deleting: bool) -> None:
    """Two logs of one partition; the second one may delete what precedes it in both."""
    schema = pa.schema([("n", pa.int64())])
    for begin in (0, 50_000):
        options = {"namespace": "N", "table": "T", "internal_partition": internal, "column_partition": "2026-01-02"}
        with Logger(place, schema, **options) as logger:
            logger.write(pa.record_batch([pa.array(range(begin, begin + 30_000))], schema=schema))
            if deleting and begin:
                logger.delete_partition()
            logger.write(pa.record_batch([pa.array(range(begin + 30_000, begin + 50_000))], schema=schema))


@pytest.mark.parametrize("deletes", ["apply", "ignore"])
def test_tasks_find_what_is_deleted(deletes: str, requests: Counter[str], root: str, tmp_path: Any) -> None:
    for internal, deleting in (("a", True), ("b", False), ("c", True)):
        logs(tmp_path / "logs", internal, deleting)
    fs = fsspec.filesystem("memory")
    fs.put(str(tmp_path / "logs"), f"/{root[9:]}", recursive=True)
    requests.clear()
    reader, partitions = planned({"path": root, "deletes": deletes, "task_bytes": "1000000"}, "deephaven_log")
    assert (
        requests["bytes"]
        <= 12 * MAX_TABLE_BYTES
        < sum(path.stat().st_size for path in (tmp_path / "logs").rglob("*.bin.*"))
    )
    assert len(partitions) == (3 if deletes == "apply" else 6), "what one command may delete is read by one task"
    delivered_rows = delivered(reader, partitions)
    assert delivered_rows.num_rows == sawlog.read(tmp_path / "logs", deletes=deletes).num_rows
    assert delivered_rows.num_rows == (2 * 20_000 + 100_000 if deletes == "apply" else 300_000)
    base_options = {"path": root, "filters": '[["n", "<", 5]]', "internal_partition": "b", "deletes": deletes}
    assert sorted(delivered(*planned(base_options, "deephaven_log"))["n"].to_pylist()) == list(range(5))


HUGE = 300_000
DELETED = 120_000


@pytest.fixture
def huge(root: str, tmp_path: Any) -> int:
    """One remote log, of some 40 MB, with a DELETE_PARTITION in it; its size."""
    schema = pa.schema([("n", pa.int64()), ("text", pa.string())])
    options = {"namespace": "N", "table": "T", "column_partition": "2026-01-02", "roll_bytes": 1 << 40}
    with Logger(tmp_path / "huge", schema, **options) as logger:
        for begin in range(0, HUGE, 20_000):
            if begin == DELETED:
                logger.delete_partition()
            numbers = range(begin, begin + 20_000)
            texts = pa.array([f"{n:0100}" for n in numbers])
            logger.write(pa.record_batch([pa.array(numbers), texts], schema=schema))
    (path,) = (tmp_path / "huge").iterdir()
    fsspec.filesystem("memory").put(str(path), f"/{root[9:]}/{path.name}")
    return int(path.stat().st_size)


@pytest.mark.parametrize("deletes", ["apply", "ignore"])
def test_a_huge_remote_log_is_cut_by_what_plans(deletes: str, requests: Counter[str], root: str, huge: int) -> None:
    requests.clear()
    options = {"path": root, "task_bytes": "4000000", "deletes": deletes}
    reader, partitions = planned(options, "deephaven_log")
    tasks = -(-huge // 4_000_000)
    assert requests["bytes"] <= huge + tasks * (11 << 20), "each byte is looked at once, and what is near a cut again"
    assert len(partitions) == tasks
    requests.clear()
    values = delivered(reader, partitions)["n"].to_pylist()
    assert values == list(range(DELETED if deletes == "apply" else 0, HUGE))
    assert requests["bytes"] <= huge * 11 // 10, "and read once"


def test_tasks_find_their_ends_in_a_huge_remote_log(requests: Counter[str], root: str, huge: int) -> None:
    requests.clear()
    options = {"path": root, "task_bytes": "4000000", "deletes": "ignore", "split": "resync"}
    reader, partitions = planned(options, "deephaven_log")
    assert requests["bytes"] <= 2 * MAX_TABLE_BYTES < huge // 200, "schema() and partitions() read the header"
    assert len(partitions) == -(-huge // 4_000_000)
    requests.clear()
    assert delivered(reader, partitions)["n"].to_pylist() == list(range(HUGE))
    max_bytes = 2 * len(partitions) * (10 << 20)
    assert requests["bytes"] <= huge + max_bytes, "each cut is looked for in its neighbourhood"


def planned_by_the_jar(options: dict[str, str], limit: int | None = None) -> tuple[int, int, list[Any]]:
    """How many tasks look into files first, how many read, and what those call with what."""
    schema = read_schema(options, None).json()
    side = {"wanted": schema, "filters": [], "limit": limit}
    question = {"options": options, "full": schema, "sides": [side], "parallelism": 2}
    head, function, *parts = Conversation().answer("plan", question)
    looks = len(parts) if json.loads(head)["look"] else 0
    if looks:
        encoded = [base64.b64encode(part).decode() for part in called(function, parts)]
        head, function, *parts = Conversation().answer("plan", {**question, "looked": encoded})
    assert not json.loads(head)["look"]
    return looks, len(parts), [function, parts]


def called(function: bytes, parts: list[bytes]) -> Iterator[Any]:
    """The first column of what workers answer."""
    call, _ = CPickleSerializer().loads(function)
    with tempfile.TemporaryDirectory() as directory:
        for part in parts:
            for batch in call(iter([pa.record_batch({"partition": [part], "stop": [f"{directory}/stop"]})])):
                yield from batch.column(0).to_pylist()


@pytest.mark.parametrize("deletes", ["apply", "ignore"])
def test_tasks_look_where_a_huge_remote_log_may_be_cut(
    deletes: str, requests: Counter[str], root: str, huge: int
) -> None:
    options = {"path": root, "format": "deephaven_log", "task_bytes": "4000000", "deletes": deletes}
    looks, tasks, reading = planned_by_the_jar(options)
    assert looks == tasks == -(-huge // 4_000_000)
    assert requests["bytes"] <= huge + looks * (11 << 20), "each byte is looked at once, and what is near a cut again"
    requests.clear()
    assert list(called(*reading)) == list(range(DELETED if deletes == "apply" else 0, HUGE))
    assert requests["bytes"] <= huge * 11 // 10, "and read once"


def test_what_cannot_be_cut_is_one_task(root: str, huge: int) -> None:
    """A damaged stretch does not end where the next begins."""
    (path,) = fsspec.filesystem("memory").find(f"/{root[9:]}")
    data = bytearray(MemoryFileSystem.store[path].getvalue())
    data[huge // 2 : huge // 2 + 1000] = bytes(1000)
    fsspec.filesystem("memory").pipe_file(path, bytes(data))
    options = {"path": root, "format": "deephaven_log", "task_bytes": "4000000", "mode": "DROPMALFORMED"}
    looks, tasks, reading = planned_by_the_jar(options)
    assert looks > tasks == 1
    with pytest.warns(DamageWarning):
        expected = sawlog.read(root, on_damage="skip")
    assert list(called(*reading)) == expected["n"].to_pylist()
    reader, partitions = planned(options, None)
    assert len(partitions) == 1
    assert delivered(reader, partitions)["n"].to_pylist() == expected["n"].to_pylist()


def test_only_partitions_with_a_long_log_are_looked_into(root: str, huge: int) -> None:
    """What is known of one partition is planned with the rest, which tasks plan themselves."""
    schema = pa.schema([("n", pa.int64()), ("text", pa.string())])
    other_path = f"{root}/N.T.System.other.2026-01-02.bin.2026-01-02.100000.000+0000"
    sawlog.write(pa.table({"n": [-1], "text": ["x"]}, schema), other_path, format="deephaven_log")
    looks, tasks, reading = planned_by_the_jar({"path": root, "format": "deephaven_log", "task_bytes": "4000000"})
    assert looks == -(-huge // 4_000_000)
    assert tasks >= looks
    assert sorted(called(*reading)) == [-1, *range(DELETED, HUGE)]


def test_a_log_that_is_gone_when_tasks_look_is_left_to_its_readers(root: str, huge: int) -> None:
    options = {"path": root, "format": "deephaven_log", "task_bytes": str(huge // 2)}
    schema = read_schema(options, None).json()
    question = {"options": options, "full": schema, "sides": [{"wanted": schema, "filters": []}], "parallelism": 2}
    _, function, *parts = Conversation().answer("plan", question)
    (path,) = fsspec.filesystem("memory").find(f"/{root[9:]}")
    fsspec.filesystem("memory").rm(path)
    assert [CPickleSerializer().loads(part) for part in called(function, parts)] == [[]] * len(parts)
    fsspec.filesystem("memory").pipe_file(path, b"")


@pytest.mark.nightly
def test_a_task_looks_where_containers_begin(root: str) -> None:
    sawlog.write(make_gauges(150_000), f"{root}/1.container", format="filodb_record", **SAMPLES["filodb_record"][2])
    looks, tasks, reading = planned_by_the_jar({"path": root, "format": "filodb_record", "task_bytes": "2000000"})
    assert (looks, tasks > 3) == (1, True)
    expected = sawlog.read(root, format="filodb_record")["timestamp"].to_pylist()
    assert [time.replace(tzinfo=dt.UTC) for time in called(*reading)] == expected


@pytest.mark.heavy
def test_a_hundred_thousand_remote_files(requests: Counter[str], root: str) -> None:
    files = 100_000
    sawlog.write(make_records(1), f"{root}/000001.log", format="leveldb_log")
    fs = fsspec.filesystem("memory")
    (data,) = (file_data.getvalue() for path, file_data in fs.store.items() if root[9:] in path)
    for number in range(2, files + 1):
        fs.pipe_file(f"/{root[9:]}/{number:06}.log", data)
    requests.clear()
    tracemalloc.start()
    reader = make_reader({"path": root}, "leveldb_log", read_schema({"path": root}, "leveldb_log"))
    partitions = reader.partitions()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    pickled = sum(len(pickle.dumps(partition)) for partition in partitions)
    print({key: count for key, count in requests.items() if not key.startswith("/")}, peak >> 20, "MB", pickled, "B")
    assert requests["find"] == 2
    assert requests["cat_file"] <= 16
    assert len(partitions) == -(-files // (4 * FRAGMENTS_PER_TASK))
    assert peak < files * 4096, "memory per file is bounded"
    assert pickled < files * 512


def test_an_index_plans_without_headers(requests: Counter[str], root: str) -> None:
    for number in range(FILES):
        sawlog.write(pa.table({"i": [number]}), f"{root}/Trades.bin.{number:06}", format="deephaven_log")
    pipe_old(root)
    assert sawlog.index(root, format="deephaven_log").files == FILES
    requests.clear()
    reader, partitions = planned({"path": root, "index": "true", "deletes": "ignore"}, "deephaven_log")
    headers = [path for path in requests if "Trades" in path]
    assert not headers
    assert (requests["find"], requests["cat_file"]) == (2, 2), (
        "for the schema and for the plan: a listing, and the index"
    )
    assert 1 < len(partitions) <= -(-FILES // FRAGMENTS_PER_TASK)
    assert len(pickle.dumps(partitions)) < FILES * 300 + 10_000, "what begins alike shares a header"
    assert sorted(delivered(reader, partitions)["i"].to_pylist()) == list(range(FILES))


def test_an_index_cuts_a_large_remote_file(requests: Counter[str], root: str) -> None:
    sawlog.write(make_gauges(150_000), f"{root}/1.container", format="filodb_record", **SAMPLES["filodb_record"][2])
    pipe_old(root)
    options = {"path": root, "task_bytes": "2000000"}
    (size,) = fsspec.filesystem("memory").du(f"/{root[9:]}", total=False).values()
    requests.clear()
    assert len(planned(options, "filodb_record")[1]) > 3
    assert requests["bytes"] > size, "it has to be walked for that"
    sawlog.index(root, format="filodb_record", statistics=True)
    requests.clear()
    reader, partitions = planned({**options, "index": "true"}, "filodb_record")
    assert (requests["find"], requests["cat_file"]) == (2, 2), "listings, and the index"
    assert len(partitions) > 3
    delivered_rows, expected = delivered(reader, partitions), sawlog.read(root, format="filodb_record")
    assert delivered_rows["timestamp"].cast(expected["timestamp"].type).equals(expected["timestamp"])


def pipe_old(root: str) -> None:
    """Files as if they had been there for a minute: the store tells versions apart by time only."""
    for path, file in MemoryFileSystem.store.items():
        if root[9:] in path:
            file.created -= dt.timedelta(minutes=1)


@pytest.fixture
def in_new_process(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> Callable[[], None]:
    """Has this process remember no more than another one of the same Spark application."""
    (tmp_path / "local").mkdir()
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path / "local"))

    def forget() -> None:
        memory = Searches()
        for module in ("sawlog.spark.reader", "sawlog.deephaven.log.plan"):
            monkeypatch.setattr(f"{module}.SEARCHES", memory)

    return forget


@pytest.mark.parametrize(("with_jar", "damaged"), [(True, False), (True, True), (False, False)])
def test_a_huge_remote_log_is_searched_once(
    with_jar: bool, damaged: bool, requests: Counter[str], root: str, huge: int, in_new_process: Callable[[], None]
) -> None:
    """Whichever process plans, and however large tasks are; again when the log has become another."""
    (path,) = fsspec.filesystem("memory").find(f"/{root[9:]}")
    if damaged:
        data = bytearray(MemoryFileSystem.store[path].getvalue())
        data[huge // 2 : huge // 2 + 1000] = bytes(1000)
        fsspec.filesystem("memory").pipe_file(path, bytes(data))
    pipe_old(root)
    options = {"path": root, "format": "deephaven_log", "mode": "DROPMALFORMED"}

    def plan(task_bytes: int) -> tuple[int, list[int]]:
        """How many bytes planning reads, and the rows."""
        in_new_process()
        requests.clear()
        if with_jar:
            _, _, reading = planned_by_the_jar({**options, "task_bytes": str(task_bytes)})
            return requests["bytes"], list(called(*reading))
        reader, partitions = planned({**options, "task_bytes": str(task_bytes)}, None)
        batches = itertools.chain.from_iterable(map(reader.read, partitions))
        return requests["bytes"], [n for batch in batches for n in batch["n"].to_pylist()]

    planning, rows = plan(8_000_000)
    assert planning > huge // 2
    for task_bytes in (8_000_000, 11_000_000):
        assert plan(task_bytes) == (pytest.approx(0, abs=4 * MAX_TABLE_BYTES), rows)
    data = MemoryFileSystem.store[path].getvalue()
    fsspec.filesystem("memory").pipe_file(path, data + entry(4, DELETE))
    pipe_old(root)
    planning, rows = plan(8_000_000)
    assert planning > huge // 2
    assert rows == []


def test_an_etag_is_what_a_search_is_remembered_by(
    requests: Counter[str],
    root: str,
    huge: int,
    in_new_process: Callable[[], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also of a log that was written just now, and when another one of its size is written at the same time."""
    find, tag = MemoryFileSystem.find, "a"

    def tagged(self: Any, path: str, *args: Any, **settings: Any) -> Any:
        files = find(self, path, *args, **settings)
        return {name: {**info, "created": None, "ETag": tag} for name, info in files.items()}

    searched = []
    with monkeypatch.context() as patch:
        patch.setattr(MemoryFileSystem, "find", tagged)
        for written in ("a", "a", "b", "b"):
            tag = written
            in_new_process()
            requests.clear()
            planned_by_the_jar({"path": root, "format": "deephaven_log", "task_bytes": "8000000"})
            searched.append(requests["bytes"] > huge)
    assert searched == [True, False, True, False]


@pytest.mark.parametrize("place", ["near", "far"])
def test_few_rows_of_a_huge_log_cost_little(
    place: str,
    requests: Counter[str],
    root: str,
    huge: int,
    in_new_process: Callable[[], None],
    tmp_path: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """They are of its end, after which nothing is deleted; of its beginning once that is known to be there."""
    path = {"near": str(tmp_path / "huge"), "far": root}[place]

    def take_rows(limit: int, **options: str) -> list[int]:
        in_new_process()
        requests.clear()
        options = {"path": path, "format": "deephaven_log", **options}
        _, tasks, reading = planned_by_the_jar(options, limit)
        assert tasks == 1
        return list(called(*reading))

    pipe_old(root)
    monkeypatch.setattr("sawlog.deephaven.log.plan.STABLE_SECONDS", -1)
    rows_taken = take_rows(5)
    assert rows_taken == list(range(rows_taken[0], rows_taken[0] + 5))
    assert rows_taken[0] > HUGE - 20_000
    assert requests["bytes"] <= huge // 4
    assert sorted(take_rows(1 << 16)) == sorted(set(take_rows(1 << 16)))
    list(called(*planned_by_the_jar({"path": path, "format": "deephaven_log", "task_bytes": "8000000"})[2]))
    assert take_rows(5) == list(range(DELETED, DELETED + 5)), "it is known by now"
    assert take_rows(5, deletes="ignore") == [0, 1, 2, 3, 4]
    assert requests["bytes"] <= 2 * huge // 3

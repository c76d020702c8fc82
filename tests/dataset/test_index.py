"""An index saves requests, and never changes an answer: of files that have changed, or when it is damaged or forged."""

from __future__ import annotations

import datetime as dt
import hashlib
import itertools
import json
import os
import pickle
import shutil
import threading
import time
import uuid
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import fsspec
import pyarrow as pa
import pytest
from fsspec.implementations.memory import MemoryFileSystem

import sawlog
from sawlog.dataset import index
from sawlog.dataset.index import IndexWarning
from sawlog.deephaven.log import Logger, plan
from sawlog.deephaven.log.dataset import HEADER, LAYOUT
from sawlog.deephaven.log.format import DeephavenLog
from sawlog.deephaven.log.header import measure_header
from sawlog.deephaven.log.options import ReadOptions
from sawlog.errors import ChangedError, OptionError, SawlogError
from sawlog.format.contract import CUT_BYTES
from sawlog.format.damage import Findings
from sawlog.format.planning import count_indexed_rows
from sawlog.storage import File, Storage
from sawlog.storage.index import INDEX_NAME, MAGIC, Index, IndexedFileFacts, pack_numbers
from sawlog.stream.follower import Follower
from sawlog.stream.limits import StreamOptions
from sawlog.stream.offset import Offset
from tests.cli.conftest import Run, run
from tests.samples import samples
from tests.support import write_records

__all__ = ["run", "samples"]

FILES = 40
OLD = time.time() - 60


@pytest.fixture(autouse=True)
def settled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files count as written long ago."""
    monkeypatch.setattr(index, "STABLE_SECONDS", -60)


@pytest.fixture
def requests(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Requests by method and path."""
    counts: Counter[str] = Counter()
    lock = threading.Lock()

    def counted(name: str) -> None:
        method = getattr(MemoryFileSystem, name)

        def call(self: Any, path: str, *args: Any, **settings: Any) -> Any:
            with lock:
                counts[name] += 1
                counts[f"{name} {path.rpartition('/')[2]}"] += 1
            return method(self, path, *args, **settings)

        monkeypatch.setattr(MemoryFileSystem, name, call)

    for name in ("cat_file", "info", "find"):
        counted(name)
    return counts


@pytest.fixture
def remote() -> Iterator[str]:
    name = uuid.uuid4().hex
    yield f"memory://{name}"
    fsspec.filesystem("memory").rm(f"/{name}", recursive=True)


def write_trades(root: str, number: int, start: int, columns: tuple[str, ...] = ("i",)) -> str:
    """A log that was written a minute ago."""
    path = f"{root}/Trades.bin.{number:06}"
    sawlog.write(pa.table({name: range(start, start + 3) for name in columns}), path, format="deephaven_log")
    age(path)
    return path


def age(path: str) -> None:
    if "://" in path:
        store = fsspec.filesystem("memory").store
        store[path.removeprefix("memory:/")].created = dt.datetime.fromtimestamp(OLD, dt.UTC)
    else:
        os.utime(path, (OLD, OLD))


@pytest.fixture
def logs(tmp_path: Path) -> str:
    """Logs with two different headers; one is damaged, one is cut off, one has no whole header."""
    root = str(tmp_path / "logs")
    os.mkdir(root)
    for number in range(8):
        path = write_trades(root, number, 10 * number, ("i", "j") if number % 2 else ("i",))
        data = bytearray(Path(path).read_bytes())
        if number == 3:
            data[-3] ^= 1
        Path(path).write_bytes(data[: {5: -4, 6: 20}.get(number)])
        age(path)
    return root


def collect_answers(path: str, **options: Any) -> list[Any]:
    """Rows, entries, damage and accounts, or what is wrong, of `fail` and `skip`."""
    results: list[Any] = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for view in ("rows", "frames", "commands", "damage"):
            for policy in ("fail", "skip"):
                try:
                    dataset = sawlog.open(path, view=view, on_damage=policy, provenance=True, **options)
                    results += [dataset.schema, dataset.to_table(), dataset.fragments(100)]
                except SawlogError as error:
                    results.append(str(error))
        results.append(sawlog.verify(path, **options))
    return [
        [pickle.dumps((fragment.path, fragment.extent)) for fragment in each] if isinstance(each, list) else each
        for each in results
    ]


def test_answers_are_the_same(logs: str) -> None:
    expected = collect_answers(logs)
    done = sawlog.index(logs)
    assert (done.format, done.files, done.read, done.dropped) == ("deephaven_log", 8, 8, 0)
    assert collect_answers(logs, index=True) == expected
    assert sawlog.index(logs).read == 0
    with pytest.warns(match="Trades"):
        table = sawlog.read(logs, on_damage="skip", index=f"{logs}/{INDEX_NAME}")
    assert table.num_rows == 19


@pytest.mark.parametrize("change", ["rewritten", "grown", "gone", "new"])
def test_what_has_changed_is_looked_into(logs: str, change: str, monkeypatch: pytest.MonkeyPatch) -> None:
    sawlog.index(logs)
    path = f"{logs}/Trades.bin.000002"
    if change == "rewritten":
        sawlog.write(pa.table({"k": ["a", "b"]}), path, format="deephaven_log")
    elif change == "grown":
        data = Path(f"{logs}/Trades.bin.000004").read_bytes()
        with open(path, "ab") as file:
            file.write(data[-20:])
    elif change == "gone":
        os.unlink(path)
    else:
        write_trades(logs, 9, 90, ("k",))
    age(path) if change == "grown" else None
    assert collect_answers(logs, index=True) == collect_answers(logs)
    done = sawlog.index(logs)
    assert (done.read, done.dropped) == {"gone": (0, 1), "new": (1, 0)}.get(change, (1, 1))
    assert collect_answers(logs, index=True) == collect_answers(logs)


def test_a_file_that_was_written_just_now_is_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index, "STABLE_SECONDS", 60)
    sawlog.write(pa.table({"i": [1]}), tmp_path / "Trades.bin.1", format="deephaven_log")
    done = sawlog.index(tmp_path)
    assert (done.files, done.read) == (0, 1), "another one of its size in the same tick would not be noticed"
    monkeypatch.setattr(index, "STABLE_SECONDS", -60)
    assert sawlog.index(tmp_path).files == 1


def test_a_damaged_index_is_not_used(logs: str) -> None:
    sawlog.index(logs)
    place = Path(logs, INDEX_NAME)
    file_data = place.read_bytes()
    expected = sawlog.open(logs, on_damage="skip").schema
    for offset in range(0, len(file_data), 97):
        for data in (file_data[:offset], file_data[:offset] + bytes([file_data[offset] ^ 4]) + file_data[offset + 1 :]):
            place.write_bytes(data)
            with pytest.warns(IndexWarning, match="the index is not used"):
                assert sawlog.open(logs, on_damage="skip", index=True).schema == expected
    place.unlink()
    with pytest.warns(IndexWarning, match="there is no index"):
        sawlog.open(logs, on_damage="skip", index=True)


def forged(body: bytes) -> bytes:
    return MAGIC + hashlib.sha256(body).digest() + body


@pytest.mark.parametrize("step", [293, pytest.param(7, marks=pytest.mark.nightly)])
def test_what_only_looks_like_an_index_is_not_used(logs: str, step: int) -> None:
    """The digest is right, what it covers is not: one byte of the table after the other is changed."""
    sawlog.index(logs)
    place = Path(logs, INDEX_NAME)
    data = place.read_bytes()
    start = len(MAGIC) + 32
    outcomes: Counter[str] = Counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = sawlog.open(logs, on_damage="skip").to_table()
        for offset in range(start, len(data), step):
            place.write_bytes(forged(data[start:offset] + bytes([data[offset] ^ 1]) + data[offset + 1 :]))
            try:
                assert sawlog.open(logs, on_damage="skip", index=True).to_table() == expected
                outcomes["same"] += 1
            except SawlogError as error:
                outcomes[type(error).__name__] += 1
    assert outcomes["same"] > outcomes.total() // 2, outcomes


def test_who_writes_an_index_is_trusted(tmp_path: Path) -> None:
    """Limits and deletions that are not those of the data leave rows out, as if the files were others."""
    path = write_trades(str(tmp_path), 1, 0)
    (file,) = Storage().find(path)
    place = tmp_path / "index"

    def read_numbers(facts: IndexedFileFacts, **options: Any) -> list[int]:
        settings = repr(DeephavenLog().choose_file_options(ReadOptions()))
        place.write_bytes(Index.of({file: facts}, settings).to_bytes())
        values: list[int] = sawlog.read(path, index=place, **options)["i"].to_pylist()
        return values

    wrong = IndexedFileFacts({}, measured=True, limits={"i": (pa.scalar(7), pa.scalar(9))})
    assert read_numbers(wrong, filters=[("i", "<", 5)]) == []
    assert read_numbers(wrong, filters=[("i", "<", 8)]) == read_numbers(wrong) == [0, 1, 2], "limits are no filters"
    deleted = IndexedFileFacts({LAYOUT: pack_numbers([file.size])}, measured=True)
    assert read_numbers(deleted) == []
    assert read_numbers(deleted, deletes="ignore") == [0, 1, 2]
    Path(path).write_bytes(Path(path).read_bytes())
    assert read_numbers(wrong, filters=[("i", "<", 5)]) == read_numbers(deleted) == [0, 1, 2], (
        "it counts for the state that it was made of"
    )


def header(path: str) -> bytes:
    with open(path, "rb") as file:
        head = file.read()
    return head[: measure_header(head)]


def test_a_header_that_is_not_the_files_is_noticed(tmp_path: Path) -> None:
    path = write_trades(str(tmp_path), 1, 0)
    (file,) = Storage().find(path)
    other_file = write_trades(str(tmp_path), 2, 0, ("j",))
    place = tmp_path / "index"
    place.write_bytes(Index.of({file: IndexedFileFacts({HEADER: header(other_file)})}).to_bytes())
    for view in ("rows", "frames"):
        with pytest.raises(ChangedError, match="the header is not the one that the read was planned by"):
            sawlog.open(path, index=place, view=view).to_table()


def test_indexed_files_are_asked_for_nothing_but_rows(requests: Counter[str], remote: str) -> None:
    for number in range(FILES):
        write_trades(remote, number, 0)
    requests.clear()
    assert sawlog.index(remote, format="deephaven_log").read == FILES
    heads = {name: count for name, count in requests.items() if name.startswith("cat_file Trades")}
    assert len(heads) == FILES
    assert set(heads.values()) == {1}
    requests.clear()
    dataset = sawlog.open(remote, index=True, format="deephaven_log", deletes="ignore")
    assert len(dataset.fragments()) == FILES
    assert requests["find"] == 1
    assert (requests["cat_file"], requests[f"cat_file {INDEX_NAME}"]) == (1, 1), "no header is read"
    assert dataset.count_rows() == 3 * FILES
    for number in range(5):
        write_trades(remote, number, 7, ("i", "j"))
    requests.clear()
    assert sawlog.open(remote, index=True, format="deephaven_log").schema.names == ["i", "j"]
    assert requests["cat_file"] == 1 + 5, "those that have changed"
    requests.clear()
    done = sawlog.index(remote, format="deephaven_log")
    assert (done.read, done.dropped) == (5, 5)
    assert requests["cat_file"] == 1 + 5


@pytest.mark.nightly
def test_an_object_store(s3: dict[str, Any], tmp_path: Path) -> None:
    root = f"s3://logs/{tmp_path.name}"
    for number in range(3):
        table = pa.table({"i": [number]})
        sawlog.write(table, f"{root}/T.bin.{number}", format="deephaven_log", storage_options=s3)
    assert sawlog.index(root, storage_options=s3).files == 3, "its tags tell versions apart at once"
    assert sawlog.read(root, storage_options=s3, index=True)["i"].to_pylist() == [0, 1, 2]
    sawlog.write(pa.table({"i": [9]}), f"{root}/T.bin.1", format="deephaven_log", storage_options=s3)
    assert sawlog.read(root, storage_options=s3, index=True)["i"].to_pylist() == [0, 9, 2]
    done = sawlog.index(root, storage_options=s3)
    assert (done.files, done.read) == (3, 1)


def test_on_the_command_line(run: Run, logs: str, tmp_path: Path) -> None:
    place = tmp_path / "the.index"
    assert "8 files of deephaven_log in the index" in run("index", logs, "--output", str(place)).out
    result = run("cat", logs, "--json", "-o", f"index={place}")
    assert result.out == run("cat", logs, "--json").out
    assert not Path(logs, INDEX_NAME).exists()
    run("index", logs)
    assert run("cat", logs, "--json", "-o", "index=true").out == result.out
    assert run("index", str(tmp_path / "missing")).code == 2


@pytest.mark.parametrize(
    ("path", "settings", "message"),
    [
        (lambda logs: f"{logs}/Trades.bin.*", {}, "is not one directory; give the path of the index"),
        (lambda logs: f"{logs}/../log", {"format": "leveldb_log"}, "no index is needed"),
    ],
)
def test_settings_that_an_index_cannot_have_are_refused(
    logs: str, path: Callable[[str], str], settings: dict[str, Any], message: str
) -> None:
    write_records(f"{logs}/../log/000001.log", [b"x"])
    with pytest.raises(OptionError, match=message):
        sawlog.index(path(logs), **settings)


def make_gauges(start: int) -> pa.Table:
    tags = pa.array([[("_ws_", "demo")]] * 3, pa.map_(pa.string(), pa.string()))
    times = pa.array(range(start, start + 3)).cast(pa.timestamp("ms", "UTC"))
    return pa.table({"timestamp": times, "value": [1.0, 2.0, float(start)], "_metric_": ["m"] * 3, "tags": tags})


def make_inserts(start: int) -> pa.Table:
    texts = [f"{number:06}" for number in range(start, start + 3)]
    return pa.table({"pk": range(start, start + 3), "text": texts, "x": [0.5, float("nan"), float(start)]})


def make_keys(start: int) -> pa.Table:
    numbers = [b"%06d" % number for number in range(start, start + 3)]
    return pa.table({"key": pa.array(numbers, pa.binary()), "value": pa.array([bytes(99)] * 3, pa.binary())})


def instant(milliseconds: int) -> dt.datetime:
    return dt.datetime.fromtimestamp(milliseconds / 1000, dt.UTC)


GROUPS: dict[str, tuple[str, Callable[[int], pa.Table], dict[str, Any], list[Any]]] = {
    "deephaven_log": (
        "N.T.System.h.2024-01-0{0}.bin.{0}",
        make_inserts,
        {},
        [("pk", ">", 30), ("text", "=", "000021")],
    ),
    "filodb_record": (
        "{}.container",
        make_gauges,
        {"table": "gauge", "container_timestamp": 0},
        [("timestamp", ">=", instant(30)), ("value", "in", [20.0, 30.0])],
    ),
    "leveldb_table": ("{}.ldb", make_keys, {}, [("key", "<", b"000012"), ("key", "=", b"000021")]),
    "deephaven_table": ("Intraday/N/T/w/2024-01-0{}/T", make_inserts, {}, [("pk", ">", 30), ("text", "=", "000021")]),
    "milvus_binlog": ("", make_inserts, {"timestamp": 1 << 40}, [("100", ">", 30), ("Timestamp", "<", 5)]),
    "leveldb_log": ("{:06}.log", lambda start: pa.table({"record": [b"%d" % start]}), {}, [("record", "=", b"20")]),
}
"""Of each format the name of a file, its rows, options to write it with, and conditions."""
APART = ("deephaven_log", "filodb_record", "leveldb_table")
"""Those that leave files out by their limits."""


def put_one(root: str, name: str, number: int) -> None:
    """Write a file, or what is one to its format, a minute ago."""
    pattern, table, options, _ = GROUPS[name]
    if name == "milvus_binlog":
        options = options | {"first_id": 1000 * number}
    place = f"{root}/{pattern.format(number)}".rstrip("/")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for written in sawlog.write(table(10 * number), place, format=name, **options):
            for path in [written.path] if os.path.isfile(written.path) else Path(written.path).rglob("*"):
                age(str(path))


@pytest.fixture(params=GROUPS)
def named_root(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, str]:
    name, root = request.param, str(tmp_path / "some")
    for number in range(1, 5):
        put_one(root, name, number)
    return name, root


def read_intact(root: str, name: str, **settings: Any) -> pa.Table:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        table = sawlog.read(root, format=name, on_damage="skip", **settings)
    return table.replace_schema_metadata()


def check_same(root: str, name: str) -> None:
    """With the index as without it."""
    conditions = GROUPS[name][3]
    for filters in ([], *([condition] for condition in conditions), [[condition] for condition in conditions]):
        expected = read_intact(root, name, filters=filters)
        table = read_intact(root, name, filters=filters, index=True)
        assert table.schema == expected.schema
        assert table.to_pylist().__repr__() == expected.to_pylist().__repr__(), filters


@pytest.mark.spread(3)
@pytest.mark.parametrize("statistics", [False, True])
def test_every_format_is_read_by_an_index_as_without_one(named_root: tuple[str, str], statistics: bool) -> None:
    name, root = named_root
    try:
        done = sawlog.index(root, format=name, statistics=statistics)
    except OptionError:
        assert name in ("leveldb_log", "leveldb_table")
        assert not statistics
        return
    check_same(root, name)
    put_one(root, name, 5)  # a new one
    if name != "milvus_binlog":  # whose files are never written again
        put_one(root, name, 2)
    pattern = GROUPS[name][0]
    if name in (*APART, "leveldb_log"):  # what is another one now
        os.replace(f"{root}/{pattern.format(3)}", f"{root}/{pattern.format(1)}")
    check_same(root, name)
    again = sawlog.index(root, format=name)
    assert 0 < again.read < again.files
    assert again.files >= done.files
    check_same(root, name)
    assert sawlog.index(root, format=name).read == 0


def followed(root: str, name: str, **settings: Any) -> tuple[str, int]:
    """The offset that a stream of a directory reaches, and the rows up to there."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        view = "inserts" if name == "milvus_binlog" else "rows"
        dataset = sawlog.open(root, format=name, view=view, **settings)
        follower = Follower.of(dataset.contents, [root], dataset.scan, StreamOptions())
        end = follower.find_latest(Offset())
        fragments = follower.list_fragments(Offset(), end)
    batches = [batch for fragment in fragments for batch in fragment.to_batches(Findings("skip"))]
    return json.dumps(end.to_json()), sum(batch.num_rows for batch in batches)


@pytest.mark.parametrize("statistics", [False, True])
@pytest.mark.parametrize("name", ["deephaven_log", "filodb_record", "leveldb_log", "milvus_binlog"])
def test_a_stream_is_planned_by_an_index_as_without_one(name: str, statistics: bool, tmp_path: Path) -> None:
    root = str(tmp_path / "some")
    for number in range(1, 5):
        put_one(root, name, number)
    if name != "leveldb_log" or statistics:
        sawlog.index(root, format=name, statistics=statistics)
    index = os.path.exists(f"{root}/{INDEX_NAME}")
    assert followed(root, name, index=index) == followed(root, name)
    put_one(root, name, 5)
    if name in ("deephaven_log", "filodb_record", "leveldb_log"):
        with open(f"{root}/{GROUPS[name][0].format(3)}", "ab") as file:
            file.write(Path(f"{root}/{GROUPS[name][0].format(4)}").read_bytes()[:-1])
        os.replace(f"{root}/{GROUPS[name][0].format(2)}", f"{root}/{GROUPS[name][0].format(1)}")
    assert followed(root, name, index=index) == followed(root, name)


@pytest.mark.parametrize("name", ["deephaven_log", "filodb_record", "leveldb_log"])
def test_a_stream_asks_a_store_for_no_file_that_an_index_knows(
    name: str, requests: Counter[str], remote: str, tmp_path: Path
) -> None:
    for number in range(1, 5):
        put_one(str(tmp_path), name, number)
    fsspec.filesystem("memory").put(f"{tmp_path}/", remote, recursive=True)
    sawlog.index(remote, format=name, statistics=True)
    requests.clear()
    answer = followed(remote, name, index=True)
    # The four files are read for their rows, and the index is read once.
    assert requests["cat_file"] == 5
    requests.clear()
    assert followed(remote, name) == answer
    assert requests["cat_file"] >= 4


@pytest.mark.filterwarnings("ignore")
def test_files_are_left_out_by_their_limits(named_root: tuple[str, str]) -> None:
    name, root = named_root
    sawlog.index(root, format=name, statistics=True)
    for condition in GROUPS[name][3]:
        dataset = sawlog.open(root, format=name, filters=[condition], index=True)
        few = len(dataset.fragments()) < len(sawlog.open(root, format=name, filters=[condition]).fragments())
        assert few == (name in APART and condition[0] != "x")
        assert dataset.count_rows() == len(read_intact(root, name, filters=[condition]))


def test_not_a_number_has_no_limits(tmp_path: Path) -> None:
    root = str(tmp_path)
    put_one(root, "deephaven_log", 1)
    sawlog.index(root, statistics=True)
    assert len(sawlog.read(root, index=True, filters=[("x", "in", [float("nan")])])) == 1
    assert len(sawlog.read(root, index=True, filters=[("x", ">", 5)])) == 1


def test_statistics_count_for_reads_by_the_same_options(tmp_path: Path) -> None:
    """A column of numbers may be one of times, and what is deleted may be wanted."""
    root = str(tmp_path)
    put_one(root, "deephaven_log", 1)
    sawlog.index(root, statistics=True)
    settings: dict[str, Any] = {"filters": [("pk", ">", 99)], "index": True}
    assert not sawlog.open(root, **settings).fragments()
    assert not sawlog.open(root, deletes="ignore", **settings).fragments()
    assert sawlog.open(root, verify_checksums=False, **settings).fragments()


def test_damaged_and_unfinished_files_have_no_statistics(logs: str) -> None:
    sawlog.index(logs, statistics=True)
    settings: dict[str, Any] = {"index": True, "filters": [("i", "<", 0)], "on_damage": "skip"}
    names = {fragment.path.rpartition("0")[2] for fragment in sawlog.open(logs, **settings).fragments()}
    assert names == {"3", "5", "6"}, "whose damage is reported"
    assert collect_answers(logs, index=True) == collect_answers(logs)
    assert sawlog.index(logs).read == 0, "they are not read again"


def test_what_a_log_deletes_is_known(tmp_path: Path, searched: list[str]) -> None:
    """A log that deletes what is in others is read whatever its limits are; what it deletes is not searched again."""
    paths = [f"{tmp_path}/N.T.System.h.2024-01-01.bin.2024-01-01.10000{number}.000+0000" for number in range(4)]
    for number, path in enumerate(paths):
        sawlog.write(pa.table({"i": range(10 * number, 10 * number + 3)}), path, format="deephaven_log")
    with Logger(paths[2], pa.schema([("i", pa.int64())]), append=True) as log:
        log.delete_partition()
        log.write(pa.table({"i": [100]}))
    list(map(age, paths))
    root = str(tmp_path)
    sawlog.index(root, statistics=True)
    for filters, deletes in itertools.product(([], [("i", ">=", 30)], [("i", "=", 11)]), ("apply", "ignore")):
        expected = sawlog.read(root, filters=filters, deletes=deletes)
        searched.clear()
        assert sawlog.read(root, filters=filters, deletes=deletes, index=True) == expected
        assert not searched
    assert len(sawlog.open(root, filters=[("i", "=", 11)], index=True).fragments()) == 2, "of the four logs"
    assert count_indexed_rows(sawlog.open(root, index=True).contents) is None


@pytest.fixture
def searched(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Logs that are searched for what they delete."""
    paths: list[str] = []
    scan = plan.scan

    def watched(file: File, *arguments: Any, **settings: Any) -> plan.CutLayout:
        paths.append(file.path)
        return scan(file, *arguments, **settings)

    monkeypatch.setattr("sawlog.deephaven.log.dataset.scan", watched)
    return paths


@pytest.mark.parametrize("name", APART)
def test_rows_are_counted_where_no_file_depends_on_another(name: str, tmp_path: Path) -> None:
    root = str(tmp_path)
    for number in range(1, 5):
        put_one(root, name, number)
    assert count_indexed_rows(sawlog.open(root, format=name).contents) is None
    sawlog.index(root, format=name, statistics=True)
    dataset = sawlog.open(root, format=name, index=True)
    assert count_indexed_rows(dataset.contents) == dataset.count_rows() == 12
    put_one(root, name, 5)
    assert count_indexed_rows(sawlog.open(root, format=name, index=True).contents) is None, (
        "of a file that it does not know"
    )


@pytest.mark.parametrize("name", APART)
def test_large_files_are_cut_by_the_index(name: str, samples: dict[str, Path], tmp_path: Path) -> None:
    root = tmp_path / "large"
    root.mkdir()
    place = root / GROUPS[name][0].format(1)
    shutil.copy(samples[name], place)
    age(str(place))
    sawlog.index(root, statistics=True)
    size = place.stat().st_size
    for task_bytes in (2 << 20, 5 << 20):
        (whole_fragment,) = sawlog.open(root).fragments(None)
        fragments = sawlog.open(root, index=True).fragments(task_bytes)
        assert size // (task_bytes + CUT_BYTES) <= len(fragments) <= size // task_bytes + 2
        assert max(fragment.size for fragment in fragments) < task_bytes + (3 << 20)
        assert sum(fragment.extent[1] for fragment in fragments) == whole_fragment.extent[1]
        batches = [batch for fragment in fragments for batch in fragment.to_batches()]
        assert pa.Table.from_batches(batches) == sawlog.read(root)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Storage, "open", None)
        assert len(sawlog.open(root, index=True).fragments(2 << 20)) > 3, "nothing of it is read"

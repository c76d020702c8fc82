"""What happens to followed files, through each door that follows: `Dataset.watch`, `cat --follow`, Spark's source."""

from __future__ import annotations

import json
import math
import os
import pickle
import shutil
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import sawlog
from sawlog.cli import cat
from sawlog.errors import OptionError, SawlogError, StorageError
from sawlog.storage import Storage
from sawlog.stream import listing

try:
    from pyspark.sql.types import StructType

    from sawlog.spark.stream_reader import make_stream_reader
except ImportError:
    make_stream_reader = None  # type: ignore[assignment]

Numbers = list[int]


class Log:
    """How a format writes numbers into a file, and what they look like in a batch."""

    view = "rows"

    def __init__(self, format: str, suffix: str, column: str) -> None:
        self.format, self.suffix, self.column = format, suffix, column

    @property
    def spark(self) -> StructType:
        """The column as Spark is asked for it."""
        return StructType().add(
            self.column,
            {"record": "binary", "n": "long", "value": "double", "100": "long", "_file": "string"}[self.column],
        )

    def __repr__(self) -> str:
        return self.format

    def name(self, number: int) -> str:
        return f"{number:06}{self.suffix}"

    def table(self, numbers: range) -> tuple[pa.Table, dict[str, Any]]:
        raise NotImplementedError

    def add(self, path: Path, *numbers: int) -> None:
        """Append rows to the same file, as loggers do."""
        path.parent.mkdir(parents=True, exist_ok=True)
        old_bytes = path.read_bytes() if path.exists() else b""
        with path.open("ab") as file:
            file.write(self.encode(old_bytes, *numbers))

    @cache  # noqa: B019 - there are three of them
    def encode(self, old_bytes: bytes, *numbers: int) -> bytes:
        """The bytes that rows add to a file."""
        table, options = self.table(range(*numbers))
        with tempfile.TemporaryDirectory() as directory:
            path = Path(directory, "x")
            if old_bytes:
                path.write_bytes(old_bytes)
                options["append"] = True
            sawlog.write(table, path, format=self.format, **options)
            return path.read_bytes()[len(old_bytes) :]

    def replace(self, path: Path, *numbers: int) -> None:
        """Put another file in its place."""
        other_path = path.with_name(".other")
        other_path.unlink(missing_ok=True)
        self.add(other_path, *numbers)
        other_path.replace(path)

    def ints(self, batch: pa.RecordBatch) -> Numbers:
        return batch.column(self.column).to_pylist()


class LevelDB(Log):
    def table(self, numbers: range) -> tuple[pa.Table, dict[str, Any]]:
        return pa.table({"record": pa.array([b"%d" % n for n in numbers], pa.binary())}), {}

    def ints(self, batch: pa.RecordBatch) -> Numbers:
        return [int(value) for value in batch.column("record").to_pylist()]


class Deephaven(Log):
    def table(self, numbers: range) -> tuple[pa.Table, dict[str, Any]]:
        return pa.table({"n": pa.array(numbers, pa.int64())}), {}


class FiloDB(Log):
    def table(self, numbers: range) -> tuple[pa.Table, dict[str, Any]]:
        labels = pa.array([[("_ws_", "w")]] * len(numbers), pa.map_(pa.string(), pa.string()))
        values = pa.array(numbers, pa.int64())
        columns = {"timestamp": values.cast(pa.timestamp("ms", "UTC")), "value": values.cast(pa.float64())}
        columns["_metric_"] = pa.array(["m"] * len(numbers))
        return pa.table({**columns, "tags": labels}), {"table": "gauge"}

    def encode(self, old_bytes: bytes, *numbers: int) -> bytes:
        return super().encode(b"", *numbers)  # one container after the other

    def ints(self, batch: pa.RecordBatch) -> Numbers:
        return [int(value) for value in batch.column("value").to_pylist()]


LOGS = [
    LevelDB("leveldb_log", ".log", "record"),
    Deephaven("deephaven_log", ".bin", "n"),
    FiloDB("filodb_record", ".container", "value"),
]


class PauseSignal(BaseException):
    """Raised where a door would wait."""


class Door:
    """Someone who follows; `look` says what is new, and `again` is a later process, where the door can have one."""

    def __init__(self, log: Log, path: object, saved: Any = None) -> None:
        self.log, self.path = log, str(path)

    def look(self) -> Numbers:
        raise NotImplementedError

    def again(self) -> Door:
        raise NotImplementedError


class Python(Door):
    def __init__(self, log: Log, path: object, saved: Any = None) -> None:
        super().__init__(log, path)
        self.watch = sawlog.open(self.path, format=log.format, view=log.view).watch(saved)

    def look(self) -> Numbers:
        return [n for batch in self.watch.look() for n in self.log.ints(batch)]

    def again(self) -> Door:
        return Python(self.log, self.path, json.loads(json.dumps(self.watch.positions)))


class Cat(Python):
    """The inner part of `cat --follow`, until it would wait; its positions are kept for it here."""

    def __init__(self, log: Log, path: object, saved: Any = None) -> None:
        super().__init__(log, path, saved)
        self.found: Numbers = []

    def look(self) -> Numbers:
        try:
            for batch in cat.follow_rows(self.watch):
                self.found += self.log.ints(batch)
        except PauseSignal:
            numbers_read, self.found = self.found, []
            return numbers_read
        raise AssertionError("it goes on for ever")

    def again(self) -> Door:
        later = Cat(self.log, self.path, json.loads(json.dumps(self.watch.positions)))
        later.found = self.found
        return later


class Spark(Door):
    """What Spark calls of a stream source, without Spark: offsets pass through JSON, as in a checkpoint."""

    def __init__(self, log: Log, path: object, saved: Any = None) -> None:
        super().__init__(log, path)
        options = {"path": self.path, "format": log.format, "view": log.view}
        self.reader = make_stream_reader(options, None, log.spark)
        self.offset = saved if saved is not None else self.reader.initialOffset()
        self.rows: Numbers = []

    def look(self) -> Numbers:
        while True:
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr("sawlog.spark.stream_reader.CHEAP_SECONDS", math.inf)  # no look is followed by a rest
                end = self.reader.latestOffset(self.offset, self.reader.getDefaultReadLimit())
            if end == self.offset:
                rows_read, self.rows = self.rows, []
                return rows_read
            end = json.loads(json.dumps(end))
            parts = [pickle.loads(pickle.dumps(partition)) for partition in self.reader.partitions(self.offset, end)]
            self.rows += [n for part in parts for batch in self.reader.read(part) for n in self.log.ints(batch)]
            self.offset = end

    def again(self) -> Door:
        later = Spark(self.log, self.path, json.loads(json.dumps(self.offset)))
        later.rows = self.rows
        return later


DOORS = [Python, Cat, *([Spark] if make_stream_reader is not None else [])]


@pytest.fixture(params=DOORS, ids=lambda door_class: door_class.__name__.lower())
def door(request: pytest.FixtureRequest, sleep_is: Callable[[Callable[[float], None]], None]) -> type[Door]:
    def pause(_: float) -> None:
        raise PauseSignal

    sleep_is(pause)
    return request.param


@pytest.fixture(params=LOGS, ids=repr)
def log(request: pytest.FixtureRequest) -> Log:
    return request.param


@pytest.fixture(params=[False, True], ids=["one process", "restarts"])
def later(request: pytest.FixtureRequest) -> Callable[[Door], Door]:
    """The same door later, in the same process or in another one, which knows what was saved."""
    return (lambda follower: follower.again()) if request.param else (lambda follower: follower)


@pytest.fixture(params=["directory", "glob"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Path, str]:
    """A directory, and what is followed of it."""
    (tmp_path / "logs").mkdir()
    return tmp_path / "logs", str(tmp_path / "logs" / ("" if request.param == "directory" else "*"))


def test_rows_are_added(door: type[Door], log: Log, later, tmp_path: Path) -> None:
    path = tmp_path / log.name(3)
    log.add(path, 0, 5)
    follower = door(log, tmp_path)
    assert follower.look() == list(range(5))
    assert follower.look() == []
    log.add(path, 5, 8)
    follower = later(follower)
    assert follower.look() == [5, 6, 7]
    log.add(tmp_path / log.name(4), 100, 102)
    log.add(path, 8, 9)
    follower = later(follower)
    assert sorted(follower.look()) == [8, 100, 101]
    assert later(follower).look() == []


def test_what_is_unfinished_waits(door: type[Door], log: Log, later, tmp_path: Path) -> None:
    path = tmp_path / log.name(3)
    log.add(path, 0, 5)
    size = path.stat().st_size
    log.add(path, 5, 6)
    data = path.read_bytes()
    os.truncate(path, size)
    follower = door(log, tmp_path)
    assert follower.look() == list(range(5))
    for end in range(size + 1, len(data), max(1, (len(data) - size) // 5)):
        with path.open("r+b") as file:
            file.write(data[:end])
        follower = later(follower)
        assert follower.look() == []
    path.write_bytes(data)
    assert later(follower).look() == [5]


@pytest.mark.spread(6)
@pytest.mark.parametrize("rows", [(100, 103), (100, 105), (100, 120)], ids=["smaller", "same size", "larger"])
@pytest.mark.parametrize("way", ["replaced", "rewritten", "deleted first"])
def test_another_file_of_that_name_is_an_error(
    door: type[Door], log: Log, later, tmp_path: Path, rows: tuple[int, int], way: str
) -> None:
    path = tmp_path / log.name(3)
    log.add(path, 10, 15)
    log.add(tmp_path / log.name(1), 0, 1)
    follower = door(log, tmp_path)
    assert sorted(follower.look()) == [0, *range(10, 15)]
    if way == "deleted first":
        path.unlink()
        follower = later(follower)
        assert follower.look() == []
    if way == "rewritten":
        log.add(tmp_path / ".other", *rows)
        path.write_bytes((tmp_path / ".other").read_bytes())
    else:
        log.replace(path, *rows)
    for _ in range(2):
        follower = later(follower)
        with pytest.raises(SawlogError, match=rf"{path.name}: the file (shrank|was replaced or rewritten)"):
            follower.look()


def test_a_file_that_is_written_again_with_the_same_bytes(door: type[Door], log: Log, later, tmp_path: Path) -> None:
    path = tmp_path / log.name(3)
    log.add(path, 0, 5)
    follower = door(log, tmp_path)
    follower.look()
    shutil.copy(path, tmp_path / ".other")
    (tmp_path / ".other").replace(path)
    follower = later(follower)
    assert follower.look() == []
    log.add(path, 5, 6)
    assert later(follower).look() == [5]


def test_a_file_that_is_emptied_without_a_copy(door: type[Door], log: Log, later, tmp_path: Path) -> None:
    path = tmp_path / log.name(3)
    log.add(path, 0, 5)
    follower = door(log, tmp_path)
    follower.look()
    os.truncate(path, 0)
    with pytest.raises(SawlogError, match=r"the file (shrank to 0 bytes|ends at byte 0)"):
        later(follower).look()
    log.add(path, 100, 150)
    with pytest.raises(SawlogError, match="was replaced or rewritten"):
        later(follower).look()


def rotated(log: Log, path: Path, followed: str) -> Path:
    """Where a log goes: to another name where all names are followed, otherwise into a directory."""
    if followed.endswith("*"):
        return path.with_name(f"{path.name}.1")
    target = path.parent / "old" / path.name
    target.parent.mkdir(exist_ok=True)
    return target


@pytest.mark.spread(6)
@pytest.mark.parametrize("unread", [0, 2])
@pytest.mark.parametrize("way", ["moved", "copied and emptied", "copied and deleted"])
def test_a_rotated_log_is_read_to_its_end_once(door: type[Door], log: Log, later, place, way: str, unread: int) -> None:
    directory, followed = place
    path = directory / log.name(3)
    log.add(path, 0, 5)
    follower = door(log, followed)
    batches = follower.look()
    log.add(path, 5, 5 + unread) if unread else None
    target = rotated(log, path, followed)
    if way == "moved":
        path.rename(target)
    else:
        shutil.copy(path, target)
        follower = later(follower)
        batches += follower.look()
        os.truncate(path, 0) if way == "copied and emptied" else path.unlink()
    follower = later(follower)
    batches += follower.look()
    log.add(path, 50, 53)
    follower = later(follower)
    batches += follower.look()
    log.add(path, 53, 54)
    assert sorted(batches + later(follower).look()) == [*range(5 + unread), *range(50, 54)]


@pytest.mark.spread(6)
@pytest.mark.parametrize("way", ["moved", "copied and emptied"])
def test_rotation_between_two_looks(door: type[Door], log: Log, later, place, way: str) -> None:
    directory, followed = place
    path = directory / log.name(3)
    log.add(path, 0, 5)
    follower = door(log, followed)
    batches = follower.look()
    target = rotated(log, path, followed)
    if way == "moved":
        path.rename(target)
    else:
        shutil.copy(path, target)
        os.truncate(path, 0)
    log.add(path, 50, 70)
    follower = later(follower)
    batches += follower.look()
    assert sorted(batches) == [*range(5), *range(50, 70)]
    assert later(follower).look() == []


def test_files_that_were_read_may_go(door: type[Door], log: Log, later, tmp_path: Path) -> None:
    for number in range(3, 6):
        log.add(tmp_path / log.name(number), 10 * number, 10 * number + 2)
    follower = door(log, tmp_path)
    batches = follower.look()
    (tmp_path / log.name(3)).unlink()
    follower = later(follower)
    assert follower.look() == []
    log.add(tmp_path / log.name(6), 60, 62)
    batches += later(follower).look()
    assert sorted(batches) == [30, 31, 40, 41, 50, 51, 60, 61]


class Faults:
    """The storage fails at one call, once."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, error: type[OSError]) -> None:
        self.left: int | None = None
        self.failed = False
        for owner, name in ((Storage, "read"), (Storage, "open"), (os, "preadv"), (os, "scandir")):
            monkeypatch.setattr(owner, name, self.list_countable_batches(getattr(owner, name), error))

    def list_countable_batches(self, call: Callable[..., Any], error: type[OSError]) -> Callable[..., Any]:
        def counting(*args: Any, **options: Any) -> Any:
            if self.left is not None:
                self.left -= 1
                if self.left < 0:
                    self.left, self.failed = None, True
                    raise error("the connection was reset")
            return call(*args, **options)

        return counting

    def fail_call(self, call: int) -> None:
        self.left, self.failed = call, False


@pytest.mark.spread(6)
@pytest.mark.parametrize("restarts", [False, True], ids=["one process", "restarts"])
def test_a_storage_that_fails_once(
    door: type[Door], log: Log, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, restarts: bool
) -> None:
    """Whatever call of a look it is: no row is lost, none comes twice."""
    faults = Faults(monkeypatch, StorageError)
    for call in range(0, 1000, 1 if door is Python else 7):
        directory = tmp_path / str(call)
        path, other_path = directory / log.name(3), directory / log.name(1)
        log.add(path, 0, 5)
        log.add(other_path, 100, 103)
        follower = door(log, f"{directory}/*")
        batches = follower.look()
        log.add(path, 5, 7)
        path.rename(rotated(log, path, "*"))
        shutil.copy(other_path, rotated(log, other_path, "*"))
        os.truncate(other_path, 0)
        log.add(path, 20, 40)
        log.add(directory / log.name(5), 200, 202)
        faults.fail_call(call)
        try:
            batches += follower.look()
        except StorageError:
            assert faults.failed
        faults.left = None
        if restarts and not isinstance(follower, Cat):
            follower = follower.again()
        batches += follower.look()
        assert sorted(batches) == [*range(7), *range(20, 40), 100, 101, 102, 200, 201], f"call {call}"
        if not faults.failed:
            break
    assert call > 30


def test_positions_of_paths_and_bytes_are_taken_on_trust(log: Log, tmp_path: Path) -> None:
    path = tmp_path / log.name(3)
    log.add(path, 0, 5)
    size = path.stat().st_size
    log.add(path, 5, 8)
    follower = Python(log, tmp_path, {str(path): size, str(tmp_path / log.name(1)): 7})
    assert follower.look() == [5, 6, 7]
    log.replace(path, 100, 130)
    for again in (follower, follower.again()):
        with pytest.raises(SawlogError, match="replaced or rewritten"):
            again.look()
    follower = Python(log, tmp_path, {str(path): path.stat().st_size})
    assert follower.look() == []
    log.replace(path, 200, 260)
    with pytest.raises(SawlogError, match="replaced or rewritten"):
        follower.look()


def test_iterating_goes_on_where_it_was_left(log: Log, tmp_path: Path) -> None:
    for number in range(3, 7):
        log.add(tmp_path / log.name(number), 10 * number, 10 * number + 3)
    watch = sawlog.open(tmp_path, format=log.format).watch()
    start = watch.positions
    numbers_read: Numbers = []
    for _ in range(3):
        for batch in watch:
            numbers_read += log.ints(batch)
            break
        assert watch.positions == start
    numbers_read += [n for batch in watch.look() for n in log.ints(batch)]
    assert numbers_read == [n for number in range(3, 7) for n in range(10 * number, 10 * number + 3)]
    assert watch.positions != start


def test_what_cannot_be_followed_is_refused(door: type[Door]) -> None:
    data = Path(__file__).parents[2] / "examples" / "data" / "shop"
    for format, view in (("leveldb_log", "files"), ("leveldb_database", "live")):
        log = LevelDB(format, ".log", "_file")
        log.view = view
        with pytest.raises(OptionError, match=f"view '{view}' of {format} cannot be followed"):
            door(log, data).look()


class Milvus(Log):
    """Whole files: one batch of inserts, in as many as there are fields."""

    view = "inserts"

    def add(self, path: Path, *numbers: int) -> None:
        table = pa.table({"id": pa.array(range(*numbers), pa.int64())})
        first = 1000 * (1 + numbers[0])
        sawlog.write(table, path, format=self.format, primary_key="id", timestamp=100, first_id=first)


def logs_of(root: Path) -> list[Path]:
    return sorted(path for path in (root / "insert_log").rglob("*") if path.is_file())


def test_files_that_appear_whole_are_read_once(
    door: type[Door], later, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listing, "SWEEP_SECONDS", -1)  # files that are finished are looked at each time
    log = Milvus("milvus_binlog", "", "100")
    root, other_path = tmp_path / "root", tmp_path / "other"
    log.add(root, 0, 5)
    follower = door(log, root)
    assert follower.look() == list(range(5))
    assert follower.look() == []
    log.add(other_path, 5, 9)
    for path in logs_of(other_path):
        follower = later(follower)
        assert follower.look() == [], "a batch waits for all of its files"
        target = root / path.relative_to(other_path)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, target)
    follower = later(follower)
    assert follower.look() == [5, 6, 7, 8]
    for path in logs_of(other_path):
        (root / path.relative_to(other_path)).unlink()
    follower = later(follower)
    assert follower.look() == []
    log.add(root, 20, 21)
    follower = later(follower)
    assert follower.look() == [20]
    victim = logs_of(root)[0]
    data = bytearray(victim.read_bytes())
    data[-1] ^= 1
    victim.write_bytes(data)
    with pytest.raises(SawlogError, match="the file was replaced or rewritten"):
        later(follower).look()


def test_whole_files_of_a_storage_that_fails_once(
    door: type[Door], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = Milvus("milvus_binlog", "", "100")
    log.add(tmp_path / "first", 0, 5)
    log.add(tmp_path / "second", 5, 9)
    faults = Faults(monkeypatch, StorageError)
    for call in range(0, 1000, 1 if door is Python else 7):
        root = tmp_path / str(call)
        shutil.copytree(tmp_path / "first", root)
        follower = door(log, root)
        batches = follower.look()
        shutil.copytree(tmp_path / "second", root, dirs_exist_ok=True)
        faults.fail_call(call)
        try:
            batches += follower.look()
        except StorageError:
            assert faults.failed
        faults.left = None
        assert batches + follower.look() == list(range(9)), f"call {call}"
        if not faults.failed:
            break
    assert call > 10

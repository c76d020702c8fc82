"""The network is kept busy: ranges in flight, small files in one request, no copies."""

from __future__ import annotations

import itertools
import os
import pickle
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import fsspec
import numpy as np
import obstore
import pyarrow as pa
import pytest
from rocksdict import Options, Rdict

import sawlog
from sawlog import OptionError
from sawlog.storage import File, Storage, ask_ahead, flight
from sawlog.storage.flight import Flight, Pace
from sawlog.storage.remote import ObjectState, StoreObject
from sawlog.storage.sources import RemoteSource
from tests.storage.answers import Answers
from tests.support import SAMPLES, write_records

FILES = 12
DATA = np.random.default_rng(3).integers(0, 256, 5_000_000, dtype=np.uint8)


class Object:
    """A remote file in memory that counts what is asked of it."""

    def __init__(self, size: int = len(DATA), delay: float = 0.01) -> None:
        self.url = "memory:///object"
        self.state = ObjectState(size, {"etag": "a"}, None)
        self.asked: list[tuple[int, int]] = []
        self.sent: list[memoryview] = []
        self.under_way = self.most = 0
        self._delay = delay
        self._lock = threading.Lock()

    def fetch(self, start: int, end: int) -> memoryview:
        with self._lock:
            self.asked.append((start, end))
            self.under_way += 1
            self.most = max(self.most, self.under_way)
        time.sleep(self._delay)
        data = memoryview(DATA[start:end].tobytes())
        with self._lock:
            self.under_way -= 1
            self.sent.append(data)
        return data

    def close(self) -> None:
        """Nothing is held."""


@pytest.fixture
def small_ranges(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(flight, "REMOTE_RANGE", 200_000)
    monkeypatch.setattr(flight, "AHEAD_BYTES", 1_600_000)
    monkeypatch.setattr(flight, "MAX_AHEAD_BYTES", 1_600_000)
    for remembered in (flight.compute_default_bytes, flight.find_paces):
        remembered.cache_clear()
    yield
    for remembered in (flight.compute_default_bytes, flight.find_paces):
        remembered.cache_clear()


@pytest.mark.usefixtures("small_ranges")
def test_a_file_that_is_read_on_has_many_ranges_in_flight(monkeypatch: pytest.MonkeyPatch) -> None:
    remote, flight, answers = Object(), Flight(), Answers(monkeypatch)
    source = RemoteSource(remote, flight)  # type: ignore[arg-type]
    for offset in range(0, len(DATA), 50_000):
        assert np.array_equal(source.read_window(offset, 50_000), DATA[offset : offset + 50_000])
        assert sum(answers.sizes) <= 2_000_000, "bounded by memory"
    assert remote.most >= 6
    assert sorted(remote.asked) == [(start, start + 200_000) for start in range(0, len(DATA), 200_000)], "each once"
    source.close()
    assert answers.are_let_go()


@pytest.mark.usefixtures("small_ranges")
def test_windows_are_views_of_answers() -> None:
    remote = Object(delay=0)
    source = RemoteSource(remote, Flight())  # type: ignore[arg-type]
    shared = 0
    for offset in range(0, len(DATA), 40_000):
        window = source.read_window(offset, 40_000)
        shared += any(np.shares_memory(window, np.frombuffer(data, np.uint8)) for data in [*remote.sent])
    assert shared >= 120, "all but those that cross two answers"


@pytest.mark.usefixtures("small_ranges")
def test_who_jumps_asks_for_little() -> None:
    remote, flight = Object(delay=0), Flight()
    source = RemoteSource(remote, flight)  # type: ignore[arg-type]
    for offset in (4_000_000, 1_000_000, 3_000_000):
        assert np.array_equal(source.read_window(offset, 1000), DATA[offset : offset + 1000])
    source.close()
    assert len(remote.asked) <= 6


@pytest.mark.usefixtures("small_ranges")
def test_the_end_of_a_range_is_not_fetched_twice() -> None:
    remote, flight = Object(delay=0), Flight()
    first, second = (RemoteSource(remote, flight, end) for end in (400_000, 800_000))  # type: ignore[arg-type]
    second.read_window(400_000, 100_000)
    second.read_window(700_000, 100_000)
    for offset in range(0, 400_000, 100_000):
        first.read_window(offset, 100_000)
    assert np.array_equal(first.read_window(390_000, 60_000), DATA[390_000:450_000])
    assert len(remote.asked) == 4


@pytest.mark.usefixtures("small_ranges")
def test_a_source_that_the_garbage_collector_closes_blocks_nobody() -> None:
    """It may do so at any step of another read of the same thread: here, wherever that asks for the file's URL."""
    flight = Flight()
    abandoned = [RemoteSource(Object(delay=0), flight, 2_000_000) for _ in range(30)]  # type: ignore[arg-type]
    for number, source in enumerate(abandoned):
        source.read_window(100_000 * number, 1000)

    class CollectingObject(Object):
        @property
        def url(self) -> str:
            if abandoned:
                abandoned.pop().close()
            return "memory:///object"

        @url.setter
        def url(self, url: str) -> None:
            assert url == "memory:///object"

    windows: list[bool] = []

    def read() -> None:
        source = RemoteSource(CollectingObject(delay=0), flight, len(DATA))  # type: ignore[arg-type]
        for offset in range(0, len(DATA), 100_000):
            windows.append(np.array_equal(source.read_window(offset, 100_000), DATA[offset : offset + 100_000]))

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    reader.join(60)
    assert not reader.is_alive(), "it waits for itself"
    assert not abandoned
    assert windows == [True] * 50


@pytest.mark.parametrize(("capacity", "limit"), [(5, 8), (12, 16), (1000, 64)])
def test_more_requests_are_made_while_more_arrives(capacity: int, limit: int) -> None:
    now = 0.0
    pace = Pace(8, 64, lambda: now)
    for _ in range(8):
        pace.begin()
    for answer in range(2000):  # of a store that answers so many at a time
        now += 1 / min(capacity, pace.limit)
        pace.end()
        pace.begin()
        if answer > 200:
            pace.wait()
        assert pace.limit <= (2 * limit if answer > 200 else 8), "nobody waits at first: decoding takes longer"
        if 600 < answer < 700:
            assert pace.limit == limit


def test_an_option_says_how_much_is_on_its_way() -> None:
    flight.find_paces.cache_clear()
    remote, own_flight = Object(), Flight.of({"bytes_in_flight": "20_000_000"})
    assert own_flight.count_ranges(remote) == 2  # type: ignore[arg-type]
    assert own_flight.measure_room(remote)[0] == 16 << 20  # type: ignore[arg-type]
    assert Flight.of({"bytes_in_flight": 1}).measure_room(remote)[0] == 1  # type: ignore[arg-type]
    assert pickle.loads(pickle.dumps(Storage({"bytes_in_flight": 1}))).options == {"bytes_in_flight": 1}
    assert not Storage({"bytes_in_flight": 1 << 20}).exists("memory://nothing"), "the store is not asked for it"
    for wrong in ("much", 0, None):
        with pytest.raises(OptionError, match="bytes_in_flight"):
            Storage({"bytes_in_flight": wrong})


class Part:
    """A fragment of the object."""

    def __init__(self, storage: Any, number: int) -> None:
        self.scan = SimpleNamespace(storage=storage)
        self.path = "memory:///object"
        self.extent = number * 200_000, 200_000
        self.extents = [(self.path, *self.extent)]


def read_part(storage: Storage, part: Part) -> None:
    start, length = part.extent
    source = storage.open(part.path, start + length)
    assert np.array_equal(source.read_window(start, length), DATA[start : start + length])
    source.close()


@pytest.mark.usefixtures("small_ranges")
@pytest.mark.parametrize("fragment_count", [25, 3])
def test_fragments_are_asked_for_before_their_turn_and_let_go_of(
    monkeypatch: pytest.MonkeyPatch, fragment_count: int
) -> None:
    remote, answers = Object(), Answers(monkeypatch)
    fsspec.filesystem("memory").pipe("/object", DATA.tobytes())
    storage = Storage({"bytes_in_flight": 1_000_000})
    assert [file.path for file in storage.find(remote.url)] == [remote.url]
    monkeypatch.setattr(StoreObject, "fetch", lambda _, start, end: remote.fetch(start, end))
    with ask_ahead(Part(storage, number) for number in range(25)) as fragments:
        for fragment in itertools.islice(fragments, fragment_count):
            read_part(storage, fragment)
            assert len(answers.sizes) <= 9, "bounded by memory"
    assert remote.most >= 4
    assert len({*remote.asked}) == len(remote.asked) <= fragment_count + 6
    assert answers.are_let_go()


@pytest.mark.usefixtures("small_ranges")
@pytest.mark.parametrize(("fragment_count", "threads"), [(25, 1), (25, 2), (3, 1)])
def test_copies_of_what_a_server_sends_whole_are_closed(
    monkeypatch: pytest.MonkeyPatch, fragment_count: int, threads: int
) -> None:
    """One for each opening, also where several of its ranges arrive at a time, and where nobody reads on."""
    memory, copies, make_copy = fsspec.filesystem("memory"), list[Any](), tempfile.TemporaryFile
    memory.pipe("/object", DATA.tobytes())

    def send_whole(self: Any, path: str, start: int | None = None, end: int | None = None) -> bytes:
        del self, path, start, end
        time.sleep(0.01)
        return DATA.tobytes()

    def record(**settings: Any) -> Any:
        copy = make_copy(**settings)
        copies.append(copy)
        time.sleep(0.01)
        return copy

    storage = Storage()
    assert len(storage.find("memory:///object")) == 1
    monkeypatch.setattr(type(memory), "cat_file", send_whole)
    monkeypatch.setattr(tempfile, "TemporaryFile", record)
    with ask_ahead((Part(storage, number) for number in range(25)), threads) as fragments:
        for fragment in itertools.islice(fragments, fragment_count):
            read_part(storage, fragment)
    storage._stores.forget()
    for _ in range(500):
        if all(copy.closed for copy in copies):
            break
        time.sleep(0.01)
    assert [copy.closed for copy in copies] == [True] * len(copies)
    assert copies


KEYS = pa.table({name: pa.array([b"%05d" % number for number in range(2000)]) for name in ("key", "value")})
VECTORS = pa.table({"pk": range(2000), "vec": pa.array([[0.5, 0.5]] * 2000, pa.list_(pa.float32(), 2))})
NUMBERS = pa.table({"i": range(2000), "s": [str(number) for number in range(2000)]})


def several(name: str, root: str, place: Path) -> None:
    """Write what several fragments are made of, with several files each but for tables."""
    for number in range(6):
        if name == "leveldb_table":
            sawlog.write(KEYS, f"{root}/{number:06}.ldb", format=name)
        elif name == "deephaven_table":
            sawlog.write(NUMBERS, f"{root}/Intraday/N/T/w/2026-11-{number + 10}/T", format=name)
    if name == "milvus_binlog":
        table = pa.Table.from_batches(VECTORS.to_batches(max_chunksize=400))
        sawlog.write(table, root, format=name, timestamp=1 << 40, segment_bytes=1)
    elif name == "leveldb_database":
        options = Options(raw_mode=True)
        options.set_disable_auto_compactions(True)
        database = Rdict(str(place), options)
        for number in range(6000):
            database[b"%05d" % number] = DATA[100 * number :][:100].tobytes()
            if number % 1000 == 999:
                database.flush()
        database.close()
        fsspec.filesystem("memory").put(f"{place}/", f"{root}/", recursive=True)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("threads", [False, 2])
@pytest.mark.parametrize("name", ["leveldb_table", "leveldb_database", "deephaven_table", "milvus_binlog"])
def test_files_of_the_next_fragments_are_on_their_way(
    name: str, threads: bool | int, monkeypatch: pytest.MonkeyPatch, root: str, tmp_path: Path
) -> None:
    monkeypatch.setattr(flight, "WHOLE_BYTES", 64)
    flight.find_paces.cache_clear()
    several(name, root, tmp_path)
    dataset = sawlog.open(root, format=name, use_threads=threads)
    fragments = dataset.fragments(10_000 if name == "leveldb_database" else 4000)
    assert 4 < len(fragments) <= flight.AHEAD_FILES, "so many are asked for at a time"
    answers = Answers(monkeypatch)
    with ask_ahead(iter(fragments), 2 if threads else 1) as ahead:
        next(ahead)
        files = {file if isinstance(file, str) else file.path for part in fragments for file, _, n in part.extents if n}
        assert answers.urls == files
    assert answers.are_let_go(), "what nobody reads"
    fetch, fetched = StoreObject.fetch, Counter[str]()

    def counted(remote: StoreObject, start: int, end: int) -> memoryview:
        fetched[remote.url] += end - start
        return fetch(remote, start, end)

    monkeypatch.setattr(StoreObject, "fetch", counted)
    rows = dataset.to_table().num_rows
    sizes = {file.path: file.size for file in dataset.files}
    assert [path for path, count in fetched.items() if count > sizes[path]] == [], "nothing twice"
    assert rows == sum(part.inspect().rows for part in fragments)
    assert answers.are_let_go()


def test_small_files_that_were_read_make_room_for_those_to_come(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flight, "KEPT_BYTES", 2500)
    own_flight, remotes = Flight(), [Object(1000, delay=0) for _ in range(3)]
    for number, remote in enumerate(remotes):
        remote.url = f"memory://{number}"
    planned, read, new = remotes
    own_flight.read(planned, 0, 10)  # type: ignore[arg-type]
    own_flight.read(read, 0, 10)  # type: ignore[arg-type]
    own_flight.retire(read)  # type: ignore[arg-type]
    own_flight.read(new, 0, 10)  # type: ignore[arg-type]
    own_flight.read(planned, 10, 20)  # type: ignore[arg-type]
    assert [len(remote.asked) for remote in remotes] == [1, 1, 1]


def test_a_process_that_was_forked_writes_beginnings_to_a_file_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both would write to the same place of the one that they share, and read what the other has written."""
    monkeypatch.setattr(flight, "KEPT_BYTES", 1500)
    own_flight, remotes = Flight(), [Object(1000 + number, delay=0) for number in range(4)]
    files: list[Any] = []
    make = tempfile.TemporaryFile
    monkeypatch.setattr(tempfile, "TemporaryFile", lambda **settings: files.append(make(**settings)) or files[-1])
    for number, remote in enumerate(remotes):
        remote.url = f"memory://{number}"
        monkeypatch.setattr(os, "getpid", lambda process=number // 2: process)
        own_flight.read(remote, 0, 10)  # type: ignore[arg-type]
    for remote in remotes:
        size = remote.state.size
        assert own_flight.read(remote, 10, size) == DATA[10:size].tobytes()  # type: ignore[arg-type]
    assert [len(remote.asked) for remote in remotes] == [1, 1, 1, 1]
    assert len(files) == 2


def test_a_failed_beginning_is_asked_for_again() -> None:
    remote, flight = Object(1000, delay=0), Flight()
    fetch, fails = remote.fetch, [True]

    def failing(start: int, end: int) -> memoryview:
        if fails.pop() if fails else False:
            raise OSError("no answer")
        return fetch(start, end)

    remote.fetch = failing  # type: ignore[method-assign]
    source = RemoteSource(remote, flight)  # type: ignore[arg-type]
    with pytest.raises(OSError, match="no answer"):
        source.read_window(0, 10)
    assert source.read_window(0, 10).tobytes() == DATA[:10].tobytes()


@pytest.fixture
def requests(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Requests to stores that obstore reaches, by name."""
    counts: Counter[str] = Counter()

    def counted(name: str) -> None:
        method = getattr(obstore, name)

        def call(*args: Any, **settings: Any) -> Any:
            counts[name] += 1
            return method(*args, **settings)

        monkeypatch.setattr(obstore, name, call)

    for name in ("get", "head", "list", "list_with_delimiter"):
        counted(name)
    return counts


@pytest.fixture
def small_files(s3: dict[str, Any], request: pytest.FixtureRequest) -> tuple[str, str, int]:
    """Small files of a format in a bucket: the format, their directory, and how many rows there are."""
    name = request.param
    pattern, table, options = SAMPLES[name]
    for number in range(FILES):
        path = f"s3://logs/flight/{name}/{pattern.format(number)}"
        sawlog.write(table, path, format=name, storage_options=s3, **options)
    return name, f"s3://logs/flight/{name}", FILES * table.num_rows


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("small_files", ["leveldb_log", "deephaven_log", "filodb_record"], indirect=True)
def test_a_small_file_costs_one_request(
    small_files: tuple[str, str, int], s3: dict[str, Any], requests: Counter[str]
) -> None:
    name, root, rows = small_files
    dataset = sawlog.open(root, format=name, storage_options=s3)
    assert dataset.to_table().num_rows == rows
    assert requests["get"] == FILES
    assert sum(requests.values()) - FILES <= 4, "the listing, and that there is no log of jobs"
    assert dataset.count_rows() == rows
    assert requests["get"] == FILES


def test_a_file_that_another_process_has_found_is_not_asked_about(s3: dict[str, Any], requests: Counter[str]) -> None:
    url = "s3://logs/flight/found/1.log"
    write_records(url, [b"x"], storage_options=s3)
    (file,) = Storage(s3).find("s3://logs/flight/found")
    requests.clear()
    assert len(Storage(s3).read(File(file.path, file.size, False, file.version, file.modified, is_tagged=True)))
    assert requests == {"get": 1}

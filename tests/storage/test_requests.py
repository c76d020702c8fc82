"""What opening and reading many remote files costs: requests, counted and made several at a time."""

from __future__ import annotations

import errno
import gc
import json
import os
import shutil
import tempfile
import threading
import time
import weakref
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fsspec
import pyarrow as pa
import pytest
from fsspec.implementations.memory import MemoryFileSystem
from rocksdict import Options, Rdict
from typer.testing import CliRunner

import sawlog
from sawlog.cli.app import app
from sawlog.deephaven.log import Logger
from sawlog.format import planning
from sawlog.storage import flight
from sawlog.storage.remote import StoreObject
from tests.samples import ALL, FORMATS, ROWS, samples
from tests.storage.answers import Answers
from tests.storage.minio.maker import StoredVersion, format_drives, put
from tests.support import DATABASE, SAMPLES, write_records

__all__ = ["samples"]

FILES = 40
MANY = 10_000
FILES_IN_FLIGHT = 128
"""Small files that are on their way at a time, at most."""
LOCATIONS_IN_FLIGHT = 300
"""Of tables, at most: those that are planned, those whose files are on their way, those that are read."""
PLANNED_BYTES = 64 << 10
"""Bytes of a long file that planning fetches, at its end, and that are not kept."""
REQUEST_NAMES = ("cat_file", "exists", "find", "glob", "info", "isdir", "isfile", "ls", "open")
"""Methods of a file system that cost requests."""


@pytest.fixture
def requests(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Counter[str]:
    """Requests by method, and the most of them at a time."""
    counts: Counter[str] = Counter()
    lock, under_way = threading.Lock(), [0]
    delay = getattr(request, "param", 0.001)

    def counted(name: str) -> None:
        method = getattr(MemoryFileSystem, name)

        def call(self: Any, *args: Any, **settings: Any) -> Any:
            with lock:
                counts[name] += 1
                under_way[0] += 1
                counts["at a time"] = max(counts["at a time"], under_way[0])
            time.sleep(delay)
            try:
                return method(self, *args, **settings)
            finally:
                with lock:
                    under_way[0] -= 1

        monkeypatch.setattr(MemoryFileSystem, name, call)

    for name in REQUEST_NAMES:
        counted(name)
    return counts


@pytest.fixture
def fetched(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[int]]:
    """Bytes of each range that is fetched, by file."""
    ranges: dict[str, list[int]] = {}
    fetch = StoreObject.fetch

    def note_range(remote: StoreObject, start: int, end: int) -> memoryview:
        ranges.setdefault(remote.url, []).append(end - start)
        return fetch(remote, start, end)

    monkeypatch.setattr(StoreObject, "fetch", note_range)
    return ranges


@pytest.fixture
def temporary_files(monkeypatch: pytest.MonkeyPatch) -> list[weakref.ref[Any]]:
    """Files without a name that were made."""
    files: list[weakref.ref[Any]] = []
    make = tempfile.TemporaryFile

    def record(*args: Any, **settings: Any) -> Any:
        file = make(*args, **settings)
        files.append(weakref.ref(file))
        return file

    monkeypatch.setattr(tempfile, "TemporaryFile", record)
    return files


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", SAMPLES)
@pytest.mark.nightly
def test_many_remote_files_are_opened_with_one_request_each(name: str, requests: Counter[str], root: str) -> None:
    pattern, table, options = SAMPLES[name]
    for number in range(FILES):
        sawlog.write(table, f"{root}/{pattern.format(number)}", format=name, **options)
    requests.clear()
    dataset = sawlog.open(root, format=name)
    _ = dataset.schema
    assert requests["find"] == 1, "one listing"
    assert requests["cat_file"] <= len(dataset.files), "at most one read per file"
    assert sum(requests[verb] for verb in REQUEST_NAMES) <= requests["cat_file"] + 4, "nothing else per file"
    if requests["cat_file"] > 10:
        assert requests["at a time"] > 4
    fragments = dataset.fragments()
    assert len(fragments) >= FILES
    assert sum(requests[verb] for verb in REQUEST_NAMES if verb != "cat_file") <= 4
    assert requests["cat_file"] <= (2 if name == "deephaven_log" else 1) * len(dataset.files)
    planned = requests.copy()
    _ = dataset.schema, dataset.info()
    if name != "deephaven_log":  # which looks for deletions again each time
        assert len(dataset.fragments()) == len(fragments)
        assert requests["cat_file"] - planned["cat_file"] <= 1, "what was read is kept"
    before = requests.copy()
    assert dataset.count_rows() == FILES * table.num_rows
    assert requests["info"] == before["info"], "sizes are those of the listing"
    requests.clear()
    many_files = sawlog.open(root)  # recognised by the heads of a few files
    assert many_files.format.name == name


VERBS: dict[str, Callable[[str, str], Any]] = {
    "info": lambda root, name: sawlog.open(root, format=name).info(),
    "ls": lambda root, name: list_folder(root),
    "read": lambda root, name: sawlog.read(root, format=name),
    "verify": lambda root, name: sawlog.verify(root, format=name),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("requests", [0.005], indirect=True)
@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("name", [*SAMPLES, "leveldb_table"])
def test_each_small_file_costs_one_request_several_at_a_time(
    name: str, verb: str, requests: Counter[str], root: str
) -> None:
    pairs = pa.table({"key": pa.array([b"k"]), "value": pa.array([b"v"])})
    pattern, table, options = SAMPLES.get(name, ("{:06}.ldb", pairs, {}))
    for number in range(FILES // 2):
        sawlog.write(table, f"{root}/{pattern.format(number)}", format=name, **options)
    requests.clear()
    VERBS[verb](root, name)
    files = len(fsspec.filesystem("memory").find(root))
    assert requests["cat_file"] <= files
    if requests["cat_file"] > FILES // 4:
        assert requests["at a time"] > 4
    confirmed = files if verb != "info" else 0  # by looking again, as there are no tags
    assert sum(requests[verb] for verb in REQUEST_NAMES) <= requests["cat_file"] + confirmed + 5


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("verb", VERBS)
def test_small_column_files_are_fetched_once_however_few_are_kept(
    verb: str, root: str, fetched: dict[str, list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are planned as they are read, not all of them before the first is read."""
    locations, partition = 2 * LOCATIONS_IN_FLIGHT, f"{root}/Intraday/N/T/{{:03}}/2026-11-28/T"
    sawlog.write(pa.table({"i": [1]}), partition.format(0), format="deephaven_table", compact_header=True)
    memory = fsspec.filesystem("memory")
    written = {path.rpartition("/")[2]: memory.cat_file(path) for path in memory.find(partition.format(0))}
    for number in range(1, locations):
        for name, data in written.items():
            memory.pipe_file(f"{partition.format(number)}/{name}", data)
    monkeypatch.setattr(flight, "KEPT_BYTES", LOCATIONS_IN_FLIGHT * sum(map(len, written.values())))
    VERBS[verb](root, "deephaven_table")
    assert {url for url, ranges in fetched.items() if len(ranges) > 1} == set()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("name", ["deephaven_log", "filodb_record", "leveldb_log", "leveldb_table"])
def test_more_small_files_than_memory_keeps_are_fetched_once(
    name: str,
    verb: str,
    root: str,
    fetched: dict[str, list[int]],
    monkeypatch: pytest.MonkeyPatch,
    temporary_files: list[weakref.ref[Any]],
) -> None:
    """Those that planning has read and that are still to be read are on disk meanwhile."""
    pairs = pa.table({"key": pa.array([b"k"]), "value": pa.array([b"v"])})
    pattern, table, options = SAMPLES.get(name, ("{:06}.ldb", pairs, {}))
    sawlog.write(table, f"{root}/{pattern.format(0)}", format=name, **options)
    memory = fsspec.filesystem("memory")
    data = memory.cat_file(f"{root}/{pattern.format(0)}")
    for number in range(1, 3 * FILES_IN_FLIGHT):
        memory.pipe_file(f"{root}/{pattern.format(number)}", data)
    monkeypatch.setattr(flight, "KEPT_BYTES", 2 * FILES_IN_FLIGHT * len(data))
    VERBS[verb](root, name)
    assert {url for url, ranges in fetched.items() if len(ranges) > 1} == set()
    gc.collect()
    assert [file() for file in temporary_files if file() is not None] == []


@pytest.mark.parametrize("verb", VERBS)
def test_the_only_log_of_a_database_is_fetched_once(
    verb: str, root: str, fetched: dict[str, list[int]], tmp_path: Path
) -> None:
    """Its first keys say what application has written it, where no table does."""
    database = Rdict(str(tmp_path), Options(raw_mode=True))
    for number in range(1000):
        database[b"%04d" % number] = bytes(1000)
    fsspec.filesystem("memory").put(f"{tmp_path}/", f"{root}/", recursive=True)
    database.close()
    VERBS[verb](root, "leveldb_database")
    assert [path for path in list_fetched_twice(fetched) if path.endswith(".log")] == []


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("verb", ["info", "read", "verify"])
def test_files_of_a_database_are_fetched_once(
    verb: str, root: str, fetched: dict[str, list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is read for rows is not checked by itself again, where nothing is wrong with it."""
    monkeypatch.setattr(flight, "WHOLE_BYTES", 64)
    monkeypatch.setattr(flight, "EDGE_BYTES", 0)
    fsspec.filesystem("memory").put(f"{DATABASE}/", f"{root}/", recursive=True)
    VERBS[verb](root, "leveldb_database")
    assert [path for path in list_fetched_twice(fetched) if path.endswith(".log")] == []


ROW_COUNTERS: dict[str, Callable[[sawlog.Dataset], int]] = {
    "table": lambda dataset: dataset.to_table().num_rows,
    "count": lambda dataset: dataset.count_rows(),
    "verify": lambda dataset: sum(report.rows for report in dataset.verify()),
    "batches": lambda dataset: sum(batch.num_rows for batch in dataset.to_batches()),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("read", ROW_COUNTERS.values(), ids=ROW_COUNTERS)
@pytest.mark.parametrize("name", FORMATS)
def test_long_files_that_threads_read_at_once_are_fetched_once(
    name: str,
    read: Callable[[sawlog.Dataset], int],
    root: str,
    samples: dict[str, Path],
    fetched: dict[str, list[int]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Threads share them: to find where one may begin does not take what is in front of that. Nothing is held then."""
    answers = Answers(monkeypatch)
    monkeypatch.setattr(planning, "PIECE_BYTES", 4 << 20)
    memory = fsspec.filesystem("memory")
    sample, is_tree = str(samples[name]), samples[name].is_dir()
    memory.put(f"{sample}/" if is_tree else sample, f"{root}/" if is_tree else root, recursive=is_tree)
    dataset = sawlog.open(root, format=name, use_threads=2)
    assert read(dataset) == ALL.get(name, ROWS)
    assert answers.are_let_go(), "though the dataset is there"
    sizes = {url: memory.size(url) for url in fetched}
    assert {url for url, ranges in fetched.items() if sum(ranges) > 1.1 * sizes[url] + PLANNED_BYTES} == set()


@pytest.fixture
def deletions(root: str, tmp_path: Path) -> str:
    """A log of 9,000 rows, of which a DELETE_PARTITION deletes 6,000."""
    table = pa.table({"N": range(9000), "Text": ["text" * 20] * 9000})
    with Logger(tmp_path / "Trades.bin", table.schema) as logger:
        logger.write(table.slice(0, 6000))
        logger.delete_partition()
        logger.write(table.slice(6000))
    fsspec.filesystem("memory").put(f"{tmp_path}/Trades.bin", f"{root}/Trades.bin")
    return f"{root}/Trades.bin"


@pytest.mark.parametrize("task_bytes", [None, 64 << 10])
def test_what_a_search_for_deletions_fetches_is_read_from_disk(
    task_bytes: int | None, deletions: str, fetched: dict[str, list[int]], temporary_files: list[weakref.ref[Any]]
) -> None:
    """Rows are those after the deletion; what is in front of it is on disk until the dataset goes."""
    dataset = sawlog.open(deletions, format="deephaven_log", use_threads=1)
    numbers = [
        number
        for fragment in dataset.fragments(task_bytes)
        for batch in fragment.to_batches()
        for number in batch["N"].to_pylist()
    ]
    assert numbers == list(range(6000, 9000))
    assert temporary_files
    assert list_fetched_twice(fetched) == []
    del dataset
    gc.collect()
    assert [file() for file in temporary_files if file() is not None] == []


def test_many_logs_that_are_searched_are_in_one_file_on_disk(
    deletions: str, fetched: dict[str, list[int]], temporary_files: list[weakref.ref[Any]]
) -> None:
    """Of a partition, all are searched before the first is read: a process may not open so many files."""
    memory = fsspec.filesystem("memory")
    data = memory.cat_file(deletions)
    folder = f"{deletions.rpartition('/')[0]}/many"
    for number in range(FILES):
        memory.pipe_file(f"{folder}/{number:03}.bin", data)
    dataset = sawlog.open(folder, format="deephaven_log", use_threads=1)
    numbers = [number for batch in dataset.to_batches() for number in batch["N"].to_pylist()]
    assert numbers[-3000:] == list(range(6000, 9000))
    assert len(temporary_files) == 1
    assert list_fetched_twice(fetched) == []


def test_without_room_on_disk_a_log_is_fetched_again(
    deletions: str,
    fetched: dict[str, list[int]],
    temporary_files: list[weakref.ref[Any]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    size = fsspec.filesystem("memory").size(deletions)
    for free, files in ((4 * size - 1, 0), (4 * size, 1)):
        usage = shutil.disk_usage(tempfile.gettempdir())._replace(free=free)
        monkeypatch.setattr(shutil, "disk_usage", lambda _, usage=usage: usage)
        fetched.clear()
        with sawlog.open(deletions, format="deephaven_log").to_reader() as reader:
            assert reader.read_all()["N"].to_pylist() == list(range(6000, 9000))
        assert len(temporary_files) == files
        assert len(list_fetched_twice(fetched)) == 1 - files


@pytest.mark.parametrize(("function", "code"), [("pwrite", errno.ENOSPC), ("pread", errno.EIO)])
def test_a_fault_of_the_disk_is_none_of_a_log(
    function: str,
    code: int,
    deletions: str,
    temporary_files: list[weakref.ref[Any]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(*_: Any) -> int:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, function, refuse)
    batches = sawlog.open(deletions, format="deephaven_log").to_batches()
    assert [number for batch in batches for number in batch["N"].to_pylist()] == list(range(6000, 9000))
    assert temporary_files


def list_fetched_twice(fetched: dict[str, list[int]]) -> list[str]:
    """Files of which more bytes were fetched than they have."""
    return [url for url, ranges in fetched.items() if sum(ranges) > fsspec.filesystem("memory").size(url)]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("verb", VERBS)
def test_places_of_metadata_are_asked_for_once(verb: str, requests: Counter[str], root: str) -> None:
    """Many trees of Milvus lie side by side, and metadata may be in each and above all of them."""
    table = pa.table({"pk": [1, 2, 3]})
    for number in range(FILES // 2):
        sawlog.write(table, f"{root}/trees/{number:03}", format="milvus_binlog", timestamp=1 << 40)
    requests.clear()
    VERBS[verb](f"{root}/trees", "milvus_binlog")
    assert requests["cat_file"] <= len(fsspec.filesystem("memory").find(root))
    above = 2 * 3  # directories, each with places of three kinds
    confirmed = requests["cat_file"]  # by looking again, as there are no tags
    assert sum(requests[verb] for verb in REQUEST_NAMES) <= requests["cat_file"] + confirmed + above + 5


@pytest.mark.parametrize("requests", [0.0], indirect=True)
@pytest.mark.nightly
def test_ten_thousand_remote_files_need_few_requests(requests: Counter[str], root: str) -> None:
    name = "leveldb_log"
    pattern, table, options = SAMPLES[name]
    sawlog.write(table, f"{root}/{pattern.format(0)}", format=name, **options)
    memory = fsspec.filesystem("memory")
    path = root.removeprefix("memory:/")
    data = memory.cat_file(f"{path}/{pattern.format(0)}")
    for number in range(1, MANY):
        memory.pipe_file(f"{path}/{pattern.format(number)}", data)
    requests.clear()
    dataset = sawlog.open(root, format=name)
    assert dataset.schema == dataset.fragments()[0].projection.schema
    assert len(dataset.tasks()) > 1
    assert len(dataset.files) == MANY
    assert requests["find"] == 1
    assert requests["cat_file"] <= MANY
    assert sum(requests[verb] for verb in REQUEST_NAMES) <= requests["cat_file"] + 4


def list_folder(root: str) -> dict[str, Any]:
    listed = CliRunner().invoke(app, ["ls", root, "--json"])
    assert listed.exit_code == 0, listed.output
    return dict(json.loads(listed.stdout))


@pytest.mark.parametrize("requests", [0.01], indirect=True)
def test_a_folder_is_listed_once_and_its_parts_are_read_several_at_a_time(requests: Counter[str], root: str) -> None:
    write_records(f"{root}/000000", [b"x"])
    data = fsspec.filesystem("memory").cat_file(f"{root}/000000")
    for number in range(1, 20):  # whose names say nothing
        fsspec.filesystem("memory").pipe_file(f"{root}/{number:06}", data)
    requests.clear()
    parts = list_folder(root)["parts"]
    assert [(part["format"], part["rows"], part["state"]) for part in parts] == [("leveldb_log", 1, "clean")] * 20
    assert requests["cat_file"] == 20, "what recognition has read is counted"
    assert sum(requests[name] for name in REQUEST_NAMES) <= requests["cat_file"] + 20 + 4, (
        "and confirmed: there are no tags"
    )
    assert requests["at a time"] > 4


@pytest.mark.parametrize("requests", [0.01], indirect=True)
def test_remote_databases_are_opened_several_at_a_time(requests: Counter[str], root: str) -> None:
    files = list(DATABASE.iterdir())
    for number in range(12):
        for file in files:
            fsspec.filesystem("memory").pipe_file(f"{root}/{number}/{file.name}", file.read_bytes())
    requests.clear()
    parts = list_folder(root)["parts"]
    assert [part["format"] for part in parts] == ["leveldb_database"] * 12
    assert requests["ls"] <= 1, "no directory is listed that was found just now"
    assert requests["at a time"] > 4
    assert requests["cat_file"] <= 12 * len(files)
    requests.clear()
    assert len(sawlog.verify(root).parts) == 12
    assert requests["ls"] <= 1
    assert requests["at a time"] > 4
    assert requests["cat_file"] <= 12 * len(files)


@pytest.mark.parametrize("requests", [0.01], indirect=True)
def test_objects_on_a_remote_drive_are_found_in_its_listing(requests: Counter[str], root: str, tmp_path: Path) -> None:
    format_drives([tmp_path / "drive"])
    write_records(tmp_path / "log", [b"x"])
    for number in range(20):
        put(tmp_path / "drive", f"bucket/logs/{number:06}.log", StoredVersion([(tmp_path / "log").read_bytes()]))
    fsspec.filesystem("memory").put(f"{tmp_path}/drive/", f"{root}/drive/", recursive=True)
    requests.clear()
    assert sawlog.open(root).count_rows() == 20
    assert requests["at a time"] > 4
    assert sum(requests[name] for name in ("info", "exists", "isdir", "ls", "find")) <= 6, "nothing for each object"

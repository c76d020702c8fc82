"""Remote roots: same rows as local ones, and nothing is fetched twice."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pyarrow as pa
import pytest
from fsspec.implementations.memory import MemoryFileSystem
from hypothesis import given, settings
from hypothesis import strategies as st

from sawlog.errors import ChangedError
from sawlog.milvus_binlog import log
from sawlog.storage import File, Storage

from .packing import write_segment
from .support import NOW, delete, open_as_it_lies, write

pytestmark = pytest.mark.filterwarnings("ignore::sawlog.milvus_binlog.collection.dataset.SegmentsWarning")
ROWS = 3000
DIMENSIONS = 1024


@pytest.fixture
def remote(tmp_path: Path) -> Iterator[str]:
    """A collection whose vectors make a file that is not fetched whole; the URL of its root."""
    values = pa.array(np.random.default_rng(1).standard_normal(ROWS * DIMENSIONS, dtype="f4"))
    vectors = pa.FixedSizeListArray.from_arrays(values, DIMENSIONS)
    write(tmp_path, pa.table({"pk": range(ROWS), "vector": vectors}))
    delete(tmp_path, [3, 7], [1 << 62, 1 << 62], 100)
    memory = fsspec.filesystem("memory")
    memory.put(f"{tmp_path}/", "/sawlog/", recursive=True)
    yield "memory://sawlog"
    memory.rm("/sawlog", recursive=True)


def test_payloads_are_fetched_once(remote: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fetched: list[int] = []
    inherited = MemoryFileSystem.cat_file

    def counted(self: Any, path: str, start: int | None = None, end: int | None = None, **more: Any) -> bytes:
        data: bytes = inherited(self, path, start=start, end=end, **more)
        fetched.append(len(data))
        return data

    monkeypatch.setattr(MemoryFileSystem, "cat_file", counted)
    dataset = open_as_it_lies(remote)
    largest = max(file.size for file in dataset.files)
    assert largest > log.SMALL
    assert sum(fetched) < largest / 4  # fields are known from headers and footers
    assert dataset.to_table().equals(open_as_it_lies(tmp_path).to_table())
    assert sum(fetched) < 1.2 * largest
    assert len(fetched) < 20


@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 130), st.integers(0, 130)), max_size=8), st.booleans())
def test_windows_go_anywhere(windows: list[tuple[int, int]], small: bool) -> None:
    data = bytes(range(128))
    fsspec.filesystem("memory").pipe_file("/sawlog-windows", data)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(log, "BLOCK", 16)
        patch.setattr(log, "SMALL", 1000 if small else 0)
        opened = log.open_bytes(File("memory://sawlog-windows", len(data)), Storage())
        for offset, length in windows:
            assert opened.window(offset, length).tobytes() == data[offset : offset + length]


def test_a_file_that_became_shorter(tmp_path: Path) -> None:
    fsspec.filesystem("memory").pipe_file("/sawlog-short", bytes(10))
    opened = log.open_bytes(File("memory://sawlog-short", 20), Storage())
    with pytest.raises(ChangedError, match="expected 20 bytes, found 10"):
        opened.window(0, 4)


def test_files_that_are_not_mapped(tmp_path: Path) -> None:
    """Nothing is mapped unless asked for; no array may point into memory that is used again."""
    values = pa.array(np.random.default_rng(1).standard_normal(ROWS * 16, dtype="f4"))
    write(tmp_path, pa.table({"pk": range(ROWS), "vector": pa.FixedSizeListArray.from_arrays(values, 16)}))
    delete(tmp_path, [3, 7], [1 << 62, 1 << 62], 100)
    mapped = open_as_it_lies(tmp_path, memory_map=True)
    plain = open_as_it_lies(tmp_path)
    assert plain.to_table().equals(mapped.to_table())


class Watched:
    """Requests to the memory's file system: what they were, and which were under way at the same time."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, patience: float) -> None:
        self.paths: list[str] = []
        self.most = 0
        self._under_way = 0
        self._changed = threading.Condition()
        inherited = MemoryFileSystem.cat_file

        def watched(fs: Any, path: str, **range: Any) -> bytes:
            with self._changed:
                self.paths.append(path)
                self._under_way += 1
                self.most = max(self.most, self._under_way)
                self._changed.notify_all()
                self._changed.wait_for(lambda: self._under_way > 1, patience)
            try:
                return bytes(inherited(fs, path, **range))
            finally:
                with self._changed:
                    self._under_way -= 1

        monkeypatch.setattr(MemoryFileSystem, "cat_file", watched)
        monkeypatch.setattr(MemoryFileSystem, "ls", self._refused)
        monkeypatch.setattr(MemoryFileSystem, "isdir", self._refused)

    def _refused(self, *_: Any, **__: Any) -> Any:
        raise AssertionError("nothing is listed that was found just now")


def test_manifests_are_read_at_the_same_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One request for each, none for the files that they name; statistics and delta logs likewise."""
    segments = range(900, 906)
    for segment in segments:
        write_segment(tmp_path, segment, {100: pa.array([segment])}, {(0, 1, 100): [1]})
    memory = fsspec.filesystem("memory")
    memory.put(f"{tmp_path}/", "/sawlog-packed/", recursive=True)
    dataset = open_as_it_lies("memory://sawlog-packed", schema={"name": "c", "fields": [PRIMARY]})
    requests = Watched(monkeypatch, 5)
    assert len(dataset.contents.batches()) == len(segments)
    assert sorted(requests.paths) == [
        f"/sawlog-packed/insert_log/1/2/{segment}/_metadata/manifest-1.avro" for segment in segments
    ]
    assert requests.most > 1
    monkeypatch.undo()
    assert sorted(dataset.to_table()["pk"].to_pylist()) == list(segments)
    memory.rm("/sawlog-packed", recursive=True)


PRIMARY = {"name": "pk", "type": 5, "is_primary": True}


def test_delta_logs_and_statistics_are_read_at_the_same_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for first in (100, 200, 300):
        write(tmp_path, pa.table({"pk": range(first, first + 9)}), first_id=first)
        delete(tmp_path, [first + 1], [NOW + 1], 100, first_id=1000 + first)
    memory = fsspec.filesystem("memory")
    memory.put(f"{tmp_path}/", "/sawlog-many/", recursive=True)
    schema = {"name": "c", "fields": [PRIMARY]}
    for options in ({"filters": [("pk", "=", 205)], "use_statistics": True}, {"segments": (100,)}):
        dataset = open_as_it_lies("memory://sawlog-many", schema=schema, use_threads=False, **options)
        with pytest.MonkeyPatch.context() as patch:
            requests = Watched(patch, 1)
            found = dataset.to_table()
        assert requests.most > 1
        kind = "stats_log" if "filters" in options else "delta_log"
        assert sum(kind in path for path in requests.paths) == 3
        assert found.num_rows == (1 if "filters" in options else 8)
    memory.rm("/sawlog-many", recursive=True)

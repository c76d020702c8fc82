"""Remote roots: same rows as local ones, and nothing is fetched twice."""

from __future__ import annotations

import datetime as dt
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fsspec.implementations.memory import MemoryFileSystem
from hypothesis import given, settings
from hypothesis import strategies as st

import sawlog
from sawlog.errors import ChangedError
from sawlog.milvus import log
from sawlog.storage import File, Storage

from .packing import write_segment
from .support import NOW, delete, open_as_it_lies, write_collection

pytestmark = pytest.mark.filterwarnings("ignore::sawlog.milvus.collection.dataset.SegmentsWarning")
ROWS = 3000
DIMENSIONS = 1024


@pytest.fixture
def remote(tmp_path: Path) -> Iterator[str]:
    """A collection whose vectors make a file that is not fetched whole; the URL of its root."""
    values = pa.array(np.random.default_rng(1).standard_normal(ROWS * DIMENSIONS, dtype="f4"))
    vectors = pa.FixedSizeListArray.from_arrays(values, DIMENSIONS)
    write_collection(tmp_path, pa.table({"pk": range(ROWS), "vector": vectors}))
    delete(tmp_path, [3, 7], [1 << 62, 1 << 62], 100)
    memory = fsspec.filesystem("memory")
    memory.put(f"{tmp_path}/", "/sawlog/", recursive=True)
    yield "memory://sawlog"
    memory.rm("/sawlog", recursive=True)


def test_payloads_are_fetched_once(remote: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fetched: list[int] = []
    inherited = MemoryFileSystem.cat_file

    def counted(self: Any, path: str, start: int | None = None, end: int | None = None, **options: Any) -> bytes:
        data: bytes = inherited(self, path, start=start, end=end, **options)
        fetched.append(len(data))
        return data

    monkeypatch.setattr(MemoryFileSystem, "cat_file", counted)
    dataset = open_as_it_lies(remote)
    largest = max(file.size for file in dataset.files)
    assert largest > log.SMALL_FILE_BYTES
    assert sum(fetched) < largest / 4  # fields are known from headers and footers
    assert dataset.to_table().equals(open_as_it_lies(tmp_path).to_table())
    assert sum(fetched) < 1.2 * largest
    assert len(fetched) <= 20


def grouped(root: Path) -> None:
    """A segment of Storage V2: 16 MB of vectors in row groups of 1 MB, and their keys in row groups of other sizes."""
    rows, width = 3400, 4800
    random = np.random.default_rng(1).standard_normal(rows * width // 4, dtype="f4")
    vectors = pa.Array.from_buffers(pa.binary(width), rows, [None, pa.py_buffer(random)])
    keys = pa.array(range(rows), pa.int64())
    groups = {0: ({0: keys, 1: pa.array([NOW] * rows), 100: keys}, 300), 101: ({101: vectors}, 210)}
    for directory, (columns, size) in groups.items():
        place = root / "insert_log" / "1" / "2" / "3" / str(directory)
        place.mkdir(parents=True)
        fields = [
            pa.field(f"f{id}", column.type, metadata={"PARQUET:field_id": str(id)}) for id, column in columns.items()
        ]
        pq.write_table(pa.table(list(columns.values()), schema=pa.schema(fields)), place / "77", row_group_size=size)
    delete(root, [3, 3399], [NOW + 1, NOW + 1], 3, first_id=78)


@pytest.mark.parametrize("place", ["local", "remote", "indexed"])
def test_large_column_groups_are_cut_at_row_groups(place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each task reads its row groups only, and an index knows where they end."""
    grouped(tmp_path)
    vector = {"name": "vector", "type": 101, "params": {"dim": 1200}}
    options: dict[str, Any] = {"schema": {"name": "c", "fields": [PRIMARY, vector]}}
    expected = open_as_it_lies(str(tmp_path), use_threads=False, **options).to_table()
    (whole_fragment,) = open_as_it_lies(str(tmp_path), **options).fragments(None)
    root = str(tmp_path)
    if place != "local":
        root = f"memory://sawlog-{place}"
        fsspec.filesystem("memory").put(f"{tmp_path}/", f"/sawlog-{place}/", recursive=True)
    if place == "indexed":
        for path, file in fsspec.filesystem("memory").store.items():
            if path.startswith("/sawlog-indexed/"):
                file.created -= dt.timedelta(minutes=1)  # files of this moment may change unseen
        assert sawlog.index(root, **options).files == 3
        options["index"] = True
    dataset = open_as_it_lies(root, **options)
    requests = RequestLog(monkeypatch, 0)
    fragments = dataset.fragments(4 << 20)
    assert len(requests.paths) == {"local": 0, "remote": 1, "indexed": 0}[place]
    assert 4 <= len(fragments) <= 6
    assert max(fragment.size for fragment in fragments) < 6 << 20
    assert sum(fragment.size for fragment in fragments) == pytest.approx(whole_fragment.size, abs=2 * len(fragments))
    tables = []
    for fragment in fragments:
        requests.bytes = 0
        tables.append(pa.Table.from_batches(fragment.to_batches(), expected.schema))
        assert requests.bytes < 6 << 20
    assert pa.concat_tables(tables).equals(expected)
    assert dataset.to_table().equals(expected)
    monkeypatch.undo()
    assert sawlog.verify(root, **options).rows == 3398
    if place != "local":
        fsspec.filesystem("memory").rm(f"/sawlog-{place}", recursive=True)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 130), st.integers(0, 130)), max_size=8), st.booleans())
def test_windows_go_anywhere(windows: list[tuple[int, int]], small: bool) -> None:
    data = bytes(range(128))
    fsspec.filesystem("memory").pipe_file("/sawlog-windows", data)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(log, "BLOCK", 16)
        patch.setattr(log, "SMALL_FILE_BYTES", 1000 if small else 0)
        opened = log.open_bytes(File("memory://sawlog-windows", len(data)), Storage())
        for offset, length in windows:
            assert opened.read_window(offset, length).tobytes() == data[offset : offset + length]


def test_a_file_that_became_shorter_is_told(tmp_path: Path) -> None:
    fsspec.filesystem("memory").pipe_file("/sawlog-short", bytes(10))
    opened = log.open_bytes(File("memory://sawlog-short", 20), Storage())
    with pytest.raises(ChangedError, match="expected 20 bytes, found 10"):
        opened.read_window(0, 4)


def test_files_that_are_not_mapped(tmp_path: Path) -> None:
    """Nothing is mapped unless asked for; no array may point into memory that is used again."""
    values = pa.array(np.random.default_rng(1).standard_normal(ROWS * 16, dtype="f4"))
    write_collection(tmp_path, pa.table({"pk": range(ROWS), "vector": pa.FixedSizeListArray.from_arrays(values, 16)}))
    delete(tmp_path, [3, 7], [1 << 62, 1 << 62], 100)
    mapped = open_as_it_lies(tmp_path, memory_map=True)
    plain = open_as_it_lies(tmp_path)
    assert plain.to_table().equals(mapped.to_table())


class RequestLog:
    """Requests to the memory's file system: what they were, and which were under way at the same time."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, patience: float, *, lists: bool = False) -> None:
        self.paths: list[str] = []
        self.bytes = 0
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
                data = bytes(inherited(fs, path, **range))
                self.bytes += len(data)
                return data
            finally:
                with self._changed:
                    self._under_way -= 1

        monkeypatch.setattr(MemoryFileSystem, "cat_file", watched)
        if not lists:
            monkeypatch.setattr(MemoryFileSystem, "ls", self._refused)
            monkeypatch.setattr(MemoryFileSystem, "isdir", self._refused)

    def _refused(self, *_: Any, **__: Any) -> Any:
        raise AssertionError("nothing is listed that was found just now")


@pytest.mark.nightly
def test_manifests_are_read_at_the_same_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One request for each, none for the files that they name; statistics and delta logs likewise."""
    segments = range(900, 906)
    for segment in segments:
        write_segment(tmp_path, segment, {100: pa.array([segment])}, {(0, 1, 100): [1]})
    memory = fsspec.filesystem("memory")
    memory.put(f"{tmp_path}/", "/sawlog-packed/", recursive=True)
    requests = RequestLog(monkeypatch, 5, lists=True)  # to know which collections there are takes manifests
    dataset = open_as_it_lies("memory://sawlog-packed", schema={"name": "c", "fields": [PRIMARY]})
    assert len(dataset.contents.list_batches()) == len(segments)
    assert sorted(requests.paths) == [
        f"/sawlog-packed/insert_log/1/2/{segment}/_metadata/manifest-1.avro" for segment in segments
    ]
    assert requests.most > 1
    monkeypatch.undo()
    assert sorted(dataset.to_table()["pk"].to_pylist()) == list(segments)
    memory.rm("/sawlog-packed", recursive=True)


PRIMARY = {"name": "pk", "type": 5, "is_primary": True}


@pytest.mark.nightly
def test_delta_logs_and_statistics_are_read_at_the_same_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for first in (100, 200, 300):
        write_collection(tmp_path, pa.table({"pk": range(first, first + 9)}), first_id=first)
        delete(tmp_path, [first + 1], [NOW + 1], 100, first_id=1000 + first)
    memory = fsspec.filesystem("memory")
    memory.put(f"{tmp_path}/", "/sawlog-many/", recursive=True)
    schema = {"name": "c", "fields": [PRIMARY]}
    for options in ({"filters": [("pk", "=", 205)], "use_statistics": True}, {"segments": (100,)}):
        with pytest.MonkeyPatch.context() as patch:
            requests = RequestLog(patch, 1, lists=True)  # the first files are fetched whole, to recognize them
            table = open_as_it_lies("memory://sawlog-many", schema=schema, use_threads=False, **options).to_table()
        assert requests.most > 1
        kind = "stats_log" if "filters" in options else "delta_log"
        assert sum(kind in path for path in requests.paths) == 3
        assert table.num_rows == (1 if "filters" in options else 8)
    memory.rm("/sawlog-many", recursive=True)

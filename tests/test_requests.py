"""What opening and reading many remote files costs: requests, counted and made several at a time."""

from __future__ import annotations

import threading
import time
import uuid
from collections import Counter
from typing import Any

import fsspec
import pyarrow as pa
import pytest
from fsspec.implementations.memory import MemoryFileSystem

import sawlog

FILES = 40


@pytest.fixture
def requests(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Requests by method, and the most of them at a time."""
    counts: Counter[str] = Counter()
    lock, under_way = threading.Lock(), [0]

    def counted(name: str) -> None:
        whole = getattr(MemoryFileSystem, name)

        def call(self: Any, *args: Any, **settings: Any) -> Any:
            with lock:
                counts[name] += 1
                under_way[0] += 1
                counts["at a time"] = max(counts["at a time"], under_way[0])
            time.sleep(0.001)
            try:
                return whole(self, *args, **settings)
            finally:
                with lock:
                    under_way[0] -= 1

        monkeypatch.setattr(MemoryFileSystem, name, call)

    for name in ("cat_file", "info", "find"):
        counted(name)
    return counts


def gauges() -> pa.Table:
    tags = pa.array([[("_ws_", "demo")]], pa.map_(pa.string(), pa.string()))
    times = pa.array([1]).cast(pa.timestamp("ms", "UTC"))
    return pa.table({"timestamp": times, "value": [1.0], "_metric_": ["m"], "tags": tags})


SAMPLES: dict[str, tuple[str, pa.Table, dict[str, Any]]] = {
    "leveldb_log": ("{:06}.log", pa.table({"record": pa.array([b"x"])}), {}),
    "deephaven_log": ("Trades.bin.{:06}", pa.table({"i": [1]}), {}),
    "filodb_record": ("{:06}.container", gauges(), {"schema": "gauge", "container_timestamp": 0}),
}


@pytest.mark.parametrize("name", SAMPLES)
def test_many_remote_files_are_opened_with_one_request_each(name: str, requests: Counter[str]) -> None:
    pattern, table, options = SAMPLES[name]
    root = f"memory://{uuid.uuid4().hex}"
    for number in range(FILES):
        sawlog.write(table, f"{root}/{pattern.format(number)}", format=name, **options)
    requests.clear()
    dataset = sawlog.open(root, format=name)
    _ = dataset.schema
    assert requests["find"] == 1, "one listing"
    assert requests["cat_file"] <= FILES, "at most one read per file"
    assert requests["info"] == 0
    if requests["cat_file"] > 1:
        assert requests["at a time"] > 4
    assert dataset.count_rows() == FILES * table.num_rows
    requests.clear()
    found = sawlog.open(root)  # recognised by the heads of a few files
    assert found.format.name == name
    fsspec.filesystem("memory").rm(root.removeprefix("memory:/"), recursive=True)

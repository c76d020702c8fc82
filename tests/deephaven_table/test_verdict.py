"""A location is judged once: how often its directory is listed, and its files are asked for."""

from __future__ import annotations

import os
import pickle
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import sawlog
from sawlog.storage import Storage

ROWS = pa.table({"id": pa.array([1], pa.int64()), "name": ["a"]})
HEADER_BYTES = 16


class Requests:
    """What is asked of the storage, by file name: whole requests, and listings by directory."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.asked: Counter[str] = Counter()
        self.heads: Counter[str] = Counter()
        self.listed: Counter[str] = Counter()
        read, opened, scandir = Storage.read, Storage.open, os.scandir

        def counted_read(storage: Storage, path: Any, offset: int = 0, length: int | None = None) -> bytes:
            name = os.path.basename(getattr(path, "path", path))
            self.asked[name] += 1
            self.heads[name] += offset == 0 and length == HEADER_BYTES
            return read(storage, path, offset, length)

        def counted_open(storage: Storage, path: Any, *args: Any, **options: Any) -> Any:
            self.asked[os.path.basename(path)] += 1
            return opened(storage, path, *args, **options)

        def counted_scandir(path: Any = ".") -> Any:
            self.listed[os.fspath(path)] += 1
            return scandir(path)

        monkeypatch.setattr(Storage, "read", counted_read)
        monkeypatch.setattr(Storage, "open", counted_open)
        monkeypatch.setattr(os, "scandir", counted_scandir)


@pytest.fixture
def location(tmp_path: Path) -> Path:
    path = tmp_path / "Trade"
    sawlog.write(ROWS, path, format="deephaven_table")
    return path


@pytest.mark.parametrize(
    ("work", "max_requests"),
    [
        (lambda path: sawlog.read(path, format="deephaven_table"), 9),
        (lambda path: sawlog.read(path, format="deephaven_table", view="columns"), 9),
        (lambda path: sawlog.verify(path, format="deephaven_table"), 15),
        (lambda path: sawlog.open(path, format="deephaven_table").info(), 3),
        (lambda path: sawlog.open(path, format="deephaven_table").count_rows(), 4),
    ],
    ids=["read", "columns", "verify", "info", "count"],
)
def test_a_location_is_judged_once(
    location: Path, work: Any, max_requests: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One walk of the storage, one of the tree; each header once; a bound on all requests for one row."""
    requests = Requests(monkeypatch)
    work(location)
    assert requests.listed[str(location)] <= 2
    assert max(requests.heads.values(), default=0) <= 1
    assert requests.asked.total() <= max_requests


@pytest.mark.parametrize("schema", [True, False])
def test_fragments_elsewhere_ask_the_same_verdict(
    location: Path, schema: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pickled fragments look at no header, and at no schema, that planning has looked at."""
    if not schema:
        (location / "table.schema").unlink()
    opened = sawlog.open(location, format="deephaven_table", types={"id": "long"})
    fragments = [pickle.loads(pickle.dumps(fragment)) for fragment in opened.fragments()]
    requests = Requests(monkeypatch)
    (batch,) = [batch for fragment in fragments for batch in fragment.to_batches()]
    assert batch.to_pylist() == ROWS.to_pylist()
    assert requests.asked["table.schema"] == 0
    assert {name for name, count in requests.heads.items() if count} <= {"name.sym"}  # planning does without it
    assert not requests.listed


def test_ranges_of_rows_share_symbols(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sawlog.deephaven.table.dataset.BATCH_ROWS", 7)
    rows = pa.table({"name": pa.array([f"s{number % 5}" for number in range(100)]).dictionary_encode()})
    sawlog.write(rows, tmp_path / "Trade", format="deephaven_table")
    fragments = sawlog.open(tmp_path / "Trade", format="deephaven_table").fragments(1)
    requests = Requests(monkeypatch)
    table = pa.Table.from_batches([batch for fragment in fragments for batch in fragment.to_batches()])
    assert len(fragments) == 15
    assert table.column("name").to_pylist() == rows.column("name").to_pylist()
    assert requests.asked["name.sym.bytes"] == 1

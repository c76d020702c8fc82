"""The memory of batches: what a consumer holds is never written over, nor is more of it held than is used."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import sawlog

from .reference import Col, header, row

COLS = [Col("N", "Long"), Col("S", "EnhancedString"), Col("B", "Boolean")]
COUNT = 4000


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("sawlog.deephaven.log.batches.FIRST_ROWS", 20)
    monkeypatch.setattr("sawlog.deephaven.log.batches.MAX_ROWS", 100)
    path = tmp_path / "t.bin"
    values = [{"N": i, "S": None if i % 7 == 0 else f"value {i}", "B": i % 3 == 0} for i in range(COUNT)]
    path.write_bytes(header(COLS) + b"".join(row(COLS, value) for value in values))
    return path


def text(number: int) -> str | None:
    return None if number % 7 == 0 else f"value {number}"


def test_what_is_held_stays_as_it_was(log: Path) -> None:
    rng = random.Random(1)
    snapshots: list[tuple[int, pa.Array, np.ndarray, memoryview]] = []
    first = 0
    for batch in sawlog.open(log).to_batches():
        if rng.random() < 0.4:
            numbers = batch.column("N")
            views = numbers.to_numpy(zero_copy_only=True), memoryview(numbers.buffers()[1])
            snapshots.append((first, batch.column("S").slice(3, 9), *views))
        if snapshots and rng.random() < 0.2:
            snapshots.pop(rng.randrange(len(snapshots)))
        first += len(batch)
        del batch
    assert first == COUNT
    assert len(snapshots) > 5
    for first, strings, numbers, view in snapshots:
        assert strings.to_pylist() == [text(first + 3 + i) for i in range(len(strings))]
        assert numbers.tolist() == list(range(first, first + len(numbers)))
        assert np.frombuffer(view, np.int64)[: len(numbers)].tolist() == numbers.tolist()


def test_full_batches_of_long_values_are_not_copied(tmp_path: Path) -> None:
    path = tmp_path / "t.bin"
    path.write_bytes(header(COLS) + b"".join(row(COLS, {"N": i, "S": "x" * 40_000}) for i in range(600)))
    for batch in list(sawlog.open(path, use_threads=False).to_batches())[1:-1]:
        numbers, strings = batch.column("N").buffers()[1], batch.column("S").buffers()[2]
        assert 0 < strings.address - numbers.address < 16 << 20
        assert strings.parent is not None


def test_a_batch_of_little_does_not_hold_much(tmp_path: Path) -> None:
    path = tmp_path / "t.bin"
    path.write_bytes(header(COLS) + b"".join(row(COLS, {"N": i, "S": "x"}) for i in range(10)))
    (batch,) = sawlog.open(path).to_batches()
    assert all(buffer.size < 200 for column in batch.columns for buffer in column.buffers() if buffer is not None)
    assert batch.column("S").buffers()[2].parent is None

"""Small inputs that reach every branch of the kernels: quick enough for plain Python and for checked builds."""

from __future__ import annotations

import random
from pathlib import Path

import pyarrow as pa
import pytest

import sawlog
from sawlog.kernels.jit import MODE, PYTHON

from .reference import committed, header, row
from .support import ALL_COLUMNS, COLS, HEADER, SINGLES, checked, convert_values, make

PACE = 4 if MODE == PYTHON else 1
"""Plain Python, which is slow, tries every fourth place only."""


@pytest.fixture(autouse=True)
def narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches, events and windows so small that they run out everywhere."""
    monkeypatch.setattr("sawlog.deephaven.log.batches.FIRST_ROWS", 2)
    monkeypatch.setattr("sawlog.deephaven.log.batches.MAX_ROWS", 5)
    monkeypatch.setattr("sawlog.deephaven.log.batches.FIRST_ROOM", 16)
    monkeypatch.setattr("sawlog.chain.walk.EVENT_ROOM", 2)
    monkeypatch.setattr("sawlog.chain.walk.WINDOW_BYTES", 100)
    monkeypatch.setattr("sawlog.deephaven.log.walk.SUSPICIOUS_BYTES", 120)
    monkeypatch.setattr("sawlog.deephaven.log.plan.SEARCHED_BYTES", 90)


@pytest.mark.nightly
def test_sets_in_every_order() -> None:
    rng = random.Random(1)
    for _ in range(25 // PACE):
        flags = [rng.choice([0, 0, 1, 1, 2, 2, 3, 3, 4, 5]) for _ in range(10)]
        rows, report = checked(make(flags), deletes="ignore")
        assert rows == committed(flags, deletes=False)
        assert checked(make(flags))[0] == committed(flags)
        assert not report.damaged


@pytest.mark.nightly
def test_small_logs_cut_and_damaged() -> None:
    rng = random.Random(2)
    for offset in range(len(HEADER), len(SINGLES), 5 * PACE):
        data = SINGLES[:offset] + bytes([SINGLES[offset] ^ rng.randrange(1, 256)]) + SINGLES[offset + 1 :]
        assert len(checked(data)[0]) == 11
        checked(SINGLES[:offset])
        checked(SINGLES[:offset] + rng.randbytes(9) + SINGLES[offset:])
        checked(SINGLES[:offset] + bytes(30) + SINGLES[offset:])


def test_all_types_in_runs_and_mixtures(tmp_path: Path) -> None:
    rng = random.Random(3)
    rows = []
    for i in range(60):
        values = {"Bool": i % 2 == 0, "Byte": i, "Char": 65, "Short": -i, "Int": i, "Long": i << 40, "Float": 0.5}
        values |= {"Double": -i / 4, "Blob": bytes(i % 40), "Str": "é" * (i % 25), "Enum": i % 3}
        if i % 4:
            values["Int"] = -(1 << 31)
        if i > 30:
            values = {name: value if rng.random() < 0.6 else None for name, value in values.items()}
        rows.append(values)
    path = tmp_path / "t.bin"
    path.write_bytes(header(ALL_COLUMNS) + b"".join(row(ALL_COLUMNS, values) for values in rows))
    expected = [
        convert_values({**values, "Int": None if values["Int"] == -(1 << 31) else values["Int"]}) for values in rows
    ]
    table = sawlog.read(path)
    assert table.to_pylist() == expected
    assert sawlog.read(path, verify_checksums=False).equals(table)
    tasks = sawlog.open(path, split="resync", deletes="ignore").fragments(300)
    assert pa.Table.from_batches([b for f in tasks for b in f.to_batches()]).to_pylist() == expected
    sawlog.write(table, tmp_path / "again.bin", format="deephaven_log")
    assert sawlog.read(tmp_path / "again.bin").equals(table)


def test_long_entries_are_looked_up_in_running_sums() -> None:
    long = b"".join(row(COLS, {"N": i, "S": "x" * (1500 + i)}) for i in range(4))
    rows, report = checked(SINGLES + b"\xff" * 7 + long + b"\xff" * 9 + long)
    assert rows == [*range(12), *range(4), *range(4)]
    assert report.account.damage == 16

"""Charts of databases: their numbers are those of the view `all`."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import sawlog
import sawlog.map
from sawlog.dataset.dataset import Dataset
from sawlog.leveldb.table.rows import TableRange
from tests.map.pictures import pictures, widths


@pytest.fixture
def levels(tmp_path: Path) -> Path:
    """A database with several levels, older versions, deletions, and a table that compaction has left."""
    plyvel = pytest.importorskip("plyvel", reason="plyvel has no wheels for Python 3.13 and later")
    dice = np.random.default_rng(3)
    path = tmp_path / "database"
    with plyvel.DB(str(path), create_if_missing=True, write_buffer_size=1 << 16, max_file_size=1 << 20) as database:
        for key in dice.integers(0, 3000, 12_000).tolist():
            if key % 7:
                database.put(b"key%05d" % key, dice.bytes(100))
            else:
                database.delete(b"key%05d" % key)
    shutil.copy(next(path.glob("*.ldb")), path / "000001.ldb")
    return path


def test_a_database_shows_levels_and_what_is_live_in_them(levels: Path) -> None:
    charts = pictures(levels)
    entries = sawlog.read(levels, view="all").to_pylist()
    expected: dict[str, Counter[str]] = {}
    for entry in entries:
        fate = "live" if entry["live"] else "deletions" if "delete" in entry["operation"] else "older versions"
        lane = "logs" if entry["level"] < 0 else f"level {entry['level']}"
        expected.setdefault(lane, Counter())[fate] += len(entry["key"]) + len(entry["value"])
    assert widths(charts["Live and dead bytes by level"]) == expected
    assert {"older versions", "deletions"} <= {fate for sums in expected.values() for fate in sums}
    sizes = widths(charts["Bytes of files by level"])
    leftovers = [file for file in sawlog.open(levels).skipped if file.path.endswith(".ldb")]
    assert str(levels / "000001.ldb") in {file.path for file in leftovers}
    assert sizes["tables left by compaction"] == {"not named by the MANIFEST": sum(file.bytes for file in leftovers)}
    tables = charts["Tables by level and key"]
    drawn = [box for boxes in tables.lanes.values() for box in boxes]
    assert {box.path for box in drawn} == {
        str(levels / name) for name in {Path(row["file"]).name for row in entries if row["level"] >= 0}
    }
    assert all(0 <= box.start < box.end <= 1 for box in drawn)
    keys = [row["key"] for row in entries if row["level"] >= 0]
    assert tables.ends == (min(keys).decode(), max(keys).decode())
    for box in drawn:
        rows = sum(row["file"] == Path(box.path).name for row in entries)
        assert f"{rows:,} entries" in box.text


@pytest.mark.parametrize("look", [sawlog.map.survey, lambda dataset: list(dataset.verify())], ids=["map", "verify"])
def test_each_table_is_read_once(levels: Path, monkeypatch: pytest.MonkeyPatch, look: Callable[[Dataset], Any]) -> None:
    """It was read for its rows, and again for its account; where something is wrong in it, it still is."""
    read: Counter[str] = Counter()
    decode = TableRange.decode

    def counted(self: TableRange, *arguments: Any) -> Iterator[pa.RecordBatch]:
        read[self.path] += 1
        return decode(self, *arguments)

    monkeypatch.setattr(TableRange, "decode", counted)
    dataset = sawlog.open(levels, on_damage="skip")
    look(dataset)
    assert set(read.values()) == {1}
    before = {file.path: (file.account, file.tail) for file in dataset.verify()}
    damaged = min(read)
    data = bytearray(Path(damaged).read_bytes())
    data[100] ^= 1
    Path(damaged).write_bytes(data)
    read.clear()
    look(dataset)
    assert read[damaged] == 2
    after = {file.path: file for file in dataset.verify()}
    assert after[damaged].damaged
    assert {path for path, file in after.items() if (file.account, file.tail) != before[path]} == {damaged}


def test_a_filter_changes_no_chart(levels: Path) -> None:
    whole_chart = pictures(levels)["Live and dead bytes by level"]
    assert pictures(levels, filters=[("key", "<", b"key00010")])["Live and dead bytes by level"] == whole_chart

"""Charts of logs: operations along them are those of the view `writes`."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import sawlog
from tests.map.pictures import pictures
from tests.support import write_records

TITLE = "Operations along the log"


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    """Two logs; in the second one numbers are missing, and go back."""
    dice = np.random.default_rng(2)
    for number, first in ((1, 1), (2, 3001)):
        operations = dice.choice(["put", "delete"], 3000, p=[0.7, 0.3])
        sequences = np.arange(first, first + 3000)
        if number == 2:
            sequences[1000:] += 500
            sequences[2000:] -= 100
        values = [dice.bytes(30) if operation == "put" else None for operation in operations]
        table = {"sequence": sequences, "operation": operations, "key": [b"k"] * 3000, "value": pa.array(values)}
        path = tmp_path / f"00000{number}.log"
        sawlog.write(pa.table(table), path, format="leveldb_log", view="writes")
    return tmp_path


@pytest.mark.parametrize("view", ["rows", "writes"])
def test_charts_show_operations_along_logs(logs: Path, view: str) -> None:
    picture = pictures(logs, format="leveldb_log", view=view)[TITLE]
    rows = sawlog.read(logs, format="leveldb_log", view="writes", columns=["operation", "sequence", "_file", "_offset"])
    expected = Counter(rows["operation"].to_pylist())
    places = set(zip(rows["_file"].to_pylist(), rows["_offset"].to_pylist(), strict=True))
    for name in ("put", "delete"):
        counts = [int(box.text.split(" ")[0].replace(",", "")) for box in picture.lanes[name]]
        assert sum(counts) == expected[name]
        assert {(box.path, box.offset) for box in picture.lanes[name]} <= places
        assert max(box.end for box in picture.lanes[name]) <= sum(path.stat().st_size for path in logs.iterdir())
    missing, back = picture.lanes["sequence"]
    second = rows.filter(pa.compute.ends_with(rows["_file"], "2.log"))["_offset"].to_pylist()
    assert missing.text == f"sequence numbers: 500 are missing before byte {second[1000]:,}"
    assert back.text == f"sequence numbers: they go back by 99 before byte {second[2000]:,}"
    assert (missing.offset, back.offset) == (second[1000], second[2000])


def test_records_that_are_something_else_have_no_such_chart(tmp_path: Path) -> None:
    path = tmp_path / "000001.log"
    write_records(path, [b"x" * 20, b"y" * 30] * 50)
    assert TITLE not in pictures(path)
    assert "Largest rows" in pictures(path)
    write_records(path, [b"x" * 20] * 100)
    assert pictures(path) == {}, "all rows are of one size"
    header = (7).to_bytes(8, "little") + (1).to_bytes(4, "little")
    batches = [header + b"\x01\x01k\x01v"] * 50
    write_records(path, batches)
    assert TITLE in pictures(path)
    write_records(path, [*batches, header + b"\xee" * 20])
    assert TITLE not in pictures(path), "the last one has an operation that nobody knows"

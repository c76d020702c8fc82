"""The merge without Spark: sorted, spread, in pieces, proven; what order values have, and which hashes."""

from __future__ import annotations

import decimal
import itertools
import math
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import sawlog
from sawlog.deephaven.ingest import runs
from sawlog.deephaven.ingest.digest import hash_batch, make_digest
from sawlog.deephaven.ingest.history import MergedPart, MergeRecord
from sawlog.deephaven.ingest.order import compute_sort_order, sort_key
from sawlog.deephaven.ingest.records import RECORD_NAME
from sawlog.deephaven.ingest.spark import follow_logs, import_logs, merge, nightly
from sawlog.errors import FormatError, OptionError
from sawlog.format.digest import Digest
from tests.deephaven_import.support import DATE, Logs

job = sys.modules["sawlog.deephaven.ingest.spark.merge"]
ROWS = 3000


@pytest.fixture
def db(tmp_path: Path) -> Path:
    """Rows in many locations of two internal partitions, as many tasks read them."""
    logs = Logs(tmp_path / "logs")
    logs.write(0, ROWS // 2)
    logs.write(ROWS // 2, ROWS, internal="vm2")
    import_logs(None, logs.directory, tmp_path / "db", location_bytes=12_000)
    return tmp_path / "db"


def history(db: Path) -> list[list[dict[str, Any]]]:
    """The rows of each location."""
    place = db / "Systems" / "Ns" / "Partitions"
    names = sorted((path.name for path in place.iterdir()), key=int)
    return [sawlog.read(place / name, format="deephaven_table").to_pylist() for name in names]


def read_history(db: Path) -> list[int]:
    return [row["N"] for rows in history(db) for row in rows]


def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have each fragment be a run, of batches of seven rows, and all be merged a few rows at a time."""
    tasks = runs.plan_pieces
    monkeypatch.setattr(job, "plan_pieces", lambda *of: [[piece] for task in tasks(*of) for piece in task])
    monkeypatch.setattr(runs, "BATCH_ROWS", 7)
    monkeypatch.setattr(runs, "PIECE_BYTES", 2000)


@pytest.mark.parametrize("pieces", [False, True])
def test_groups_are_spread_and_rows_stay_in_order(db: Path, monkeypatch: pytest.MonkeyPatch, pieces: bool) -> None:
    if pieces:
        small_pieces(monkeypatch)
    done = merge(None, db, "Ns", "T", DATE, group=["Sym"], internal_partitions=3, delete_intraday=True)
    assert (done.rows, done.grouped, done.written, done.deleted) == (ROWS, ["Sym"], True, True)
    partitions = history(db)
    names = [{row["Sym"] for row in rows} for rows in partitions]
    assert sum(map(len, names)) == len(set().union(*names)) == 6
    for rows in partitions:
        keys = [(row["Sym"] or "", row["N"]) for row in rows]
        assert keys == sorted(keys)
    assert sorted(read_history(db)) == list(range(ROWS))
    assert not [path for path in db.rglob(".*") if path.name != ".sawlog.lock"]


@pytest.mark.parametrize("pieces", [False, True])
@pytest.mark.parametrize("sort", [[], ["N"], ["Sym", "Px"]])
@pytest.mark.nightly
def test_without_groups_rows_are_cut_by_their_order(
    db: Path, monkeypatch: pytest.MonkeyPatch, pieces: bool, sort: list[str]
) -> None:
    if pieces:
        small_pieces(monkeypatch)
    merge(None, db, "Ns", "T", DATE, sort=sort, internal_partitions=4)
    names = ["" if n % 11 == 0 else f"s{n % 5}é" for n in range(ROWS)]
    assert read_history(db) == sorted(range(ROWS), key=lambda n: (names[n] if "Sym" in sort else "", n))
    counts = [len(rows) for rows in history(db)]
    assert len(counts) == 4
    assert max(counts) < ROWS / 2


def test_merges_during_the_day_keep_followed_locations_few(tmp_path: Path) -> None:
    """Followed rows are merged every now and then, and what is merged is deleted: each row stays there once."""
    logs, root = Logs(tmp_path / "logs"), tmp_path / "db"
    looks = None
    for hour in range(3):
        for minute in range(4):
            first = 40 * hour + 10 * minute
            logs.write(first, first + 10)
            looks = looks or follow_logs(None, logs.directory, root, seconds=0)
            assert next(looks).done.rows == 10
        done = merge(None, root, "Ns", "T", DATE, group=["Sym"], delete_intraday=True)
        assert (done.rows, done.added) == (40 * (hour + 1), 40)
        assert sawlog.read(root / "Intraday", format="deephaven_table").num_rows == 0
        assert len(list((root / "Intraday/Ns/T").glob("vm1*"))) == 1
    assert looks is not None
    assert next(looks).done.rows == 0
    assert sorted(read_history(root)) == list(range(120))
    logs.write(120, 130)
    assert next(looks).done.rows == 10
    merge(None, root, "Ns", "T", DATE, group=["Sym"], replace=True, delete_intraday=True)
    assert sorted(read_history(root)) == list(range(130))
    assert len(history(root)) == 1


@pytest.mark.nightly
def test_a_record_of_very_many_parts_is_read(tmp_path: Path) -> None:
    parts = tuple(MergedPart(f"vm1~{n:06d}", "vm1", f"{n:032x}", 0, n, (1 << 64) - n) for n in range(100_000))
    record = MergeRecord("0123456789ab", 7, parts)
    (tmp_path / RECORD_NAME).write_bytes(record.to_json())
    assert MergeRecord.read(str(tmp_path)) == record


def test_nightly_without_spark(db: Path) -> None:
    assert not nightly(None, db, before="2999-01-01", group=["Sym"]).failed
    assert sorted(read_history(db)) == list(range(ROWS))


def test_a_tree_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    root = tmp_path / "db"
    with pytest.raises(FormatError, match=f"there are no rows of {DATE}"):
        merge(None, root, "Ns", "T", DATE)
    with pytest.raises(OptionError, match="no such directory"):
        nightly(None, root)
    assert not root.exists()


def test_columns_that_rows_cannot_be_sorted_by(tmp_path: Path) -> None:
    table = pa.table({"N": [1, 2], "Ls": pa.array([[1.0], [2.0]])})
    sawlog.write(table, tmp_path / "Intraday/Ns/T/vm1" / DATE / "T", format="deephaven_table")
    with pytest.raises(OptionError, match=r"'Ls' is .*; rows cannot be sorted by it"):
        merge(None, tmp_path, "Ns", "T", DATE, sort=["Ls"])
    assert not (tmp_path / "Systems").exists()


ORDERED: list[pa.Array] = [
    pa.array([None, False, True]),
    pa.array([None, -(1 << 63) + 1, -1, 0, 1 << 62]),
    pa.array([None, -math.inf, -1.5, -0.0, 0.0, 1e-300, math.inf, math.nan]),
    pa.array([None, -1.5, 0.0, 2.5], pa.float32()),
    pa.array([None, "", "A", "a", "ab", "é", "𝄞"]),
    pa.array([None, "b", "c"]).dictionary_encode(),
    pa.array([None, b"", b"\x00", b"\xff"]),
    pa.array([None, decimal.Decimal("-1.50"), decimal.Decimal("0.10")], pa.decimal128(10, 2)),
    pa.array([None, 5, 6], pa.timestamp("ns", "UTC")),
    pa.array([None, 5, 65_535], pa.uint16()),
    pa.array([None, 5, 60_000], pa.date32()),
]


@pytest.mark.parametrize("values", ORDERED, ids=lambda array: str(array.type))
def test_the_order_of_values(values: pa.Array) -> None:
    random = np.random.default_rng(len(values))
    places = random.integers(0, len(values), 200)
    shuffled = values.take(pa.array(places))
    order = compute_sort_order([shuffled], len(shuffled))
    assert order.tolist() == sorted(range(200), key=lambda row: (places[row], row))
    keys = [sort_key([values], row) for row in range(len(values))]
    assert all(key < next_key for key, next_key in itertools.pairwise(keys))


def of(columns: dict[str, Any]) -> Digest:
    return make_digest(hash_batch(pa.record_batch(columns)))


def test_digests_tell_rows_apart() -> None:
    digest = of({"a": [1, 3], "b": [2, 4]})
    assert digest == of({"b": [4, 2], "a": pa.array([3, 1], pa.int16())})
    assert digest == of({"a": [1], "b": [2]}) + of({"a": [3], "b": [4]})
    assert digest == of({"a": [1, 3], "b": [2, 4], "c": pa.nulls(2)})
    variants = [{"a": [1, 3], "b": [4, 2]}, {"a": [1, 3], "c": [2, 4]}, {"a": [1, 3], "b": [2, None]}, {"a": [1, 3]}]
    assert digest not in map(of, variants)
    assert len({digest, *map(of, variants)}) == 5


VALUES = [
    ([1.0, 2.0], pa.list_(pa.float64())),
    ([2.0, 1.0], pa.list_(pa.float64())),
    ([], pa.list_(pa.float64())),
    ([None], pa.list_(pa.float64())),
    ([0.0], pa.list_(pa.float64())),
    ([-0.0], pa.list_(pa.float64())),
    ([["a"], ["b"]], pa.list_(pa.list_(pa.string()))),
    ([["a", "b"], []], pa.list_(pa.list_(pa.string()))),
    ([("a", 1), ("b", 2)], pa.map_(pa.string(), pa.int64())),
    ([("a", 2), ("b", 1)], pa.map_(pa.string(), pa.int64())),
    ([("a", 1)], pa.map_(pa.string(), pa.int64())),
    ({"x": 1, "y": None}, pa.struct({"x": pa.int64(), "y": pa.int64()})),
    ({"x": None, "y": 1}, pa.struct({"x": pa.int64(), "y": pa.int64()})),
    ("", pa.string()),
    ("text", pa.string()),
    (None, pa.string()),
    (decimal.Decimal("1.5"), pa.decimal128(5, 1)),
    (True, pa.bool_()),
    (False, pa.bool_()),
    (1 << 40, pa.time64("ns")),
]


def test_digests_of_every_type() -> None:
    digests = [of({"v": pa.array([value], kind)}) for value, kind in VALUES]
    assert len({(kind, digest) for (_, kind), digest in zip(VALUES, digests, strict=True)}) == len(VALUES)
    for (value, kind), digest in zip(VALUES, digests, strict=True):
        padded = pa.array([None, value, None], kind)
        assert of({"v": padded.slice(1, 1)}) == digest, value
        assert of({"v": pa.chunked_array([padded, padded]).combine_chunks().slice(4, 1)}) == digest, value
    entries = pa.map_(pa.string(), pa.int64())
    assert of({"v": pa.array([[("b", 2), ("a", 1)]], entries)}) == of({"v": pa.array([[("a", 1), ("b", 2)]], entries)})
    nans = np.array([0x7FF8000000000000, 0xFFF8000000000001], np.uint64).view(np.float64)
    assert of({"v": nans[:1]}) == of({"v": nans[1:]})
    assert of({"v": pa.array(["a", None]).dictionary_encode()}) == of({"v": ["a", None]})

"""diff: equal or not, which rows, and in bounded windows."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import sawlog.cli.diff
from sawlog.cli.diff import Comparison, PeekableRows, compare_in_order
from tests.cli.conftest import RECORDS, Run, write_log


def test_the_same_rows_are_equal_in_any_format(run: Run, log: Path, tmp_path: Path) -> None:
    assert run("convert", log, tmp_path / "rows.parquet").code == 0
    result = run("diff", log, tmp_path / "rows.parquet")
    assert (result.code, result.out, result.err) == (0, f"equal: {len(RECORDS)} rows equal\n", "")


def test_original_and_repaired(run: Run, log: Path, damaged: Path, tmp_path: Path) -> None:
    assert run("repair", damaged, tmp_path / "new.log").code == 3
    result = run("diff", damaged, tmp_path / "new.log")
    assert result.code == 0
    assert "damaged bytes" in result.err, "what neither delivers is mentioned"
    document = json.loads(run("diff", log, tmp_path / "new.log", "--json").out)
    assert (document["equal"], document["only_a"], document["only_b"]) == (len(RECORDS) - 1, 1, 0)
    assert [row["row"] for row in document["rows"]] == [4]
    outcome = run("diff", log, tmp_path / "new.log")
    assert outcome.code == 1
    assert outcome.out.startswith('- row 4  {"record":"xxx')
    assert run("diff", damaged, log, "--on-damage", "fail").code == 1


@pytest.mark.parametrize("rows", [1, 7, 10_000])
def test_in_order_accounts_for_every_row(rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sawlog.cli.diff, "WINDOW_ROWS", max(rows, 2))
    random = Random(rows)
    for _ in range(60):
        old_numbers = [random.randrange(9) for _ in range(random.randrange(50))]
        new_numbers = [n for n in old_numbers if random.random() < 0.9]
        if random.random() < 0.7:
            new_numbers.insert(random.randrange(len(new_numbers) + 1), 99)
        comparison = Comparison("a", "b", {}, 1000)
        compare_in_order(comparison, *(PeekableRows(iter(cut(rows, n)), ["n"]) for n in (old_numbers, new_numbers)))
        assert (comparison.equal + comparison.only_a, comparison.equal + comparison.only_b) == (
            len(old_numbers),
            len(new_numbers),
        )
        assert comparison.different is (old_numbers != new_numbers)
        removed, new = ({row.number for row in comparison.rows if row.side == side} for side in "ab")
        assert [n for index, n in enumerate(old_numbers) if index not in removed] == [
            n for index, n in enumerate(new_numbers) if index not in new
        ]


def test_a_difference_is_as_small_as_it_can_be_where_rows_are_not_repeated() -> None:
    random = Random(1)
    for _ in range(60):
        old_numbers = random.sample(range(10_000), 300)
        new_numbers = [n for n in old_numbers if random.random() < 0.9]
        for n in random.sample(range(10_000, 20_000), 20):
            new_numbers.insert(random.randrange(len(new_numbers) + 1), n)
        comparison = Comparison("a", "b", {}, 0)
        compare_in_order(comparison, *(PeekableRows(iter(cut(64, n)), ["n"]) for n in (old_numbers, new_numbers)))
        assert (comparison.only_a, comparison.only_b) == (len(set(old_numbers) - set(new_numbers)), 20)


def cut(rows: int, numbers: list[int]) -> list[pa.RecordBatch]:
    table = pa.table({"n": pa.array(numbers, pa.int64())})
    return table.to_batches(max_chunksize=rows)


def test_a_key_says_what_belongs_together(run: Run, tmp_path: Path) -> None:
    old_table = pa.table({"k": [3, 1, 2, 2, None], "v": ["c", "a", "b", "b2", "n"]})
    new_table = pa.table({"k": [2, 1, 2, 4, None], "v": ["b", "A", "b2", "d", "n"]})
    pq.write_table(old_table, tmp_path / "a.parquet")
    pq.write_table(new_table, tmp_path / "b.parquet")
    document = json.loads(run("diff", tmp_path / "a.parquet", tmp_path / "b.parquet", "--key", "k", "--json").out)
    assert [document[name] for name in ("equal", "changed", "only_a", "only_b")] == [3, 1, 1, 1]
    assert [(row["side"], row["row"], row["values"]["v"]) for row in document["rows"]] == [
        ("a", 0, "c"),
        ("a", 1, "a"),
        ("b", 1, "A"),
        ("b", 3, "d"),
    ]
    assert run("diff", tmp_path / "a.parquet", tmp_path / "a.parquet", "--key", "k,v").code == 0
    assert "--key: no column 'x'" in run("diff", tmp_path / "a.parquet", tmp_path / "b.parquet", "--key", "x").err


def test_columns_that_differ_are_listed(run: Run, tmp_path: Path) -> None:
    pq.write_table(pa.table({"a": pa.array([1], pa.int32()), "b": [1]}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"a": pa.array([1], pa.int64()), "c": [1]}), tmp_path / "b.parquet")
    result = run("diff", tmp_path / "a.parquet", tmp_path / "b.parquet", "--json")
    assert result.code == 1
    assert json.loads(result.out)["columns"] == {
        "a": "int32 in the first, int64 in the second",
        "b": "only in the first",
        "c": "only in the second",
    }
    assert json.loads(result.out)["equal"] == 1


def test_nan_is_nan_and_what_a_terminal_would_obey_is_escaped(run: Run, tmp_path: Path) -> None:
    pq.write_table(pa.table({"f": [float("nan")]}), tmp_path / "a.parquet")
    assert run("diff", tmp_path / "a.parquet", tmp_path / "a.parquet").code == 0
    old_log, new_log = (write_log(tmp_path / f"00000{n}.log", [b"\x1b[31m%d" % n]) for n in (1, 2))
    result = run("diff", old_log, new_log)
    assert result.code == 1
    assert "\x1b" not in result.out

"""Grouping: what it says, and that a filter on a grouped column reads only its rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import sawlog
from sawlog.errors import DamageError
from sawlog.format.damage import DamageWarning

from .reference import Shape, grouping, put_fixed, put_rows, put_symbols, put_text

GROUPS = [(None, 0, 1000), ("AAPL", 1000, 11_000), ("IBM", 11_000, 11_500), ("MSFT", 11_500, 20_000)]
ROWS = 20_000
TYPES = {"n": "long", "t": "String(None)"}


def grouped(directory: Path, groups: Any = GROUPS, start: int = 131072) -> Path:
    values = [key for key, first, end in GROUPS for _ in range(end - first)]
    put_symbols(directory, "s", values, Shape(metadata=grouping(groups), start=start))
    put_fixed(directory, "n", "long", list(range(ROWS)), Shape())
    put_text(directory, "t", [f"row {i:05d}" for i in range(ROWS)], Shape())
    put_rows(directory, ROWS)
    return directory


@pytest.mark.parametrize("start", [131072, 64])
def test_a_filter_reads_the_rows_of_its_groups(tmp_path: Path, touched: list[int], start: int) -> None:
    """With the metadata in the header, and most of it in the overflow file."""
    grouped(tmp_path, start=start)
    assert (tmp_path / "s.ovr").exists() == (start == 64)
    result_table = sawlog.read(tmp_path, types=TYPES)
    total_bytes = sum(touched)
    for filters, ranges in (
        ([("s", "=", "IBM")], [(11_000, 11_500)]),
        ([("s", "in", ["MSFT", "IBM"])], [(11_000, 20_000)]),
        ([("s", "in", ["AAPL", "MSFT"])], [(1000, 11_000), (11_500, 20_000)]),
        ([("s", "=", "IBM"), ("n", ">", 11_400)], [(11_401, 11_500)]),
        ([("s", "=", "TSLA")], []),
        ([("s", "=", "IBM"), ("s", "=", "AAPL")], []),
    ):
        touched.clear()
        table = sawlog.read(tmp_path, types=TYPES, filters=filters)
        expected = pa.concat_tables([result_table.slice(0, 0), *(result_table.slice(a, b - a) for a, b in ranges)])
        assert table.to_pydict() == expected.to_pydict()
        rows = 500 if filters[0] == ("s", "=", "IBM") else sum(end - first for first, end in ranges)
        # Of a row: symbol id, number, end offset and text; the tables of symbols; an offset before each range.
        assert sum(touched) <= (total_bytes * rows) // ROWS + len(ranges) * 400 + (200 if ranges else 0)


def test_rows_without_a_value_are_in_no_group(tmp_path: Path) -> None:
    grouped(tmp_path)
    table = sawlog.read(tmp_path, types=TYPES)
    condition = pc.field("s").isin(["IBM", None])
    assert table.filter(condition).num_rows == 1500
    for filtered_table in (
        sawlog.read(tmp_path, types=TYPES, filters=[("s", "in", ["IBM", None])]),
        sawlog.read(tmp_path, types=TYPES, filter=condition),
    ):
        assert filtered_table == table.filter(condition)
    assert sawlog.read(tmp_path, types=TYPES, filters=[("s", "=", None)]).num_rows == 0


def test_expressions_read_the_rows_of_groups(tmp_path: Path, touched: list[int]) -> None:
    grouped(tmp_path)
    table = sawlog.read(tmp_path, types=TYPES)
    total_bytes = sum(touched)
    touched.clear()
    condition = pc.field("s").isin(["IBM"]) & pc.starts_with(pc.field("t"), "row 110")
    assert sawlog.read(tmp_path, types=TYPES, filter=condition) == table.filter(condition)
    assert sum(touched) < total_bytes / 20


def test_a_filter_that_groups_do_not_help_reads_everything(tmp_path: Path) -> None:
    grouped(tmp_path)
    assert sawlog.read(tmp_path, types=TYPES, filters=[("s", "!=", "AAPL")]).num_rows == 500 + 8500
    assert sawlog.read(tmp_path, types=TYPES, filters=[("s", ">", "IBM")]).num_rows == 8500


def test_views_of_groups(tmp_path: Path) -> None:
    grouped(tmp_path)
    groups = sawlog.read(tmp_path, types=TYPES, view="groups").to_pylist()
    assert [(row["column"], row["value"], row["first"], row["end"]) for row in groups] == [
        ("s", *group) for group in GROUPS
    ]
    assert [row["rows"] for row in groups] == [1000, 10_000, 500, 8500]
    facts = {row["column"]: row["groups"] for row in sawlog.read(tmp_path, types=TYPES, view="columns").to_pylist()}
    assert facts == {"s": 4, "n": None, "t": None}


@pytest.mark.parametrize(
    ("groups", "message"),
    [
        ([("AAPL", 0, 10_000)], "the groups end at row 10000"),
        ([("AAPL", 0, 10_000), ("IBM", 9_000, ROWS)], "expected them to begin at 10000"),
        ([("AAPL", 0, ROWS + 5)], "expected them"),
        ([("AAPL", -5, ROWS)], "are -5 to 20000"),
    ],
)
def test_groups_that_lie_are_not_used(tmp_path: Path, groups: Any, message: str) -> None:
    grouped(tmp_path, groups)
    with pytest.warns(DamageWarning, match=message):
        table = sawlog.read(tmp_path, types=TYPES, filters=[("s", "=", "IBM")])
    assert table.num_rows == 500
    assert sawlog.read(tmp_path, types=TYPES).num_rows == ROWS
    report = sawlog.verify(tmp_path, types=TYPES)
    assert report.damaged
    (damage,) = sawlog.read(tmp_path, types=TYPES, view="damage").to_pylist()
    assert (Path(damage["file"]).name, damage["kind"]) == ("s.dat", "bad_metadata")
    assert message in damage["detail"]


def test_groups_of_other_values_are_found_by_verify(tmp_path: Path) -> None:
    swapped = [("MSFT" if key == "IBM" else "IBM" if key == "MSFT" else key, first, end) for key, first, end in GROUPS]
    grouped(tmp_path, swapped)
    (damage,) = sawlog.read(tmp_path, types=TYPES, view="damage").to_pylist()
    assert damage["detail"] == "grouping: row 11000 is IBM, and in the group of another value"
    report = sawlog.verify(tmp_path, types=TYPES)
    assert all(file.account.total == file.size for file in report.files)


def test_metadata_that_cannot_be_read_is_no_failure(tmp_path: Path) -> None:
    grouped(tmp_path, start=64)
    (tmp_path / "s.ovr").unlink()
    assert sawlog.read(tmp_path, types=TYPES).num_rows == ROWS
    with pytest.warns(DamageWarning, match=r"expected \d+ of them in the overflow file, found 0; all rows are read"):
        assert sawlog.read(tmp_path, types=TYPES, filters=[("s", "=", "IBM")]).num_rows == 500
    bomb = bytes.fromhex("aced0005") + bytes.fromhex("757200025b4c") + bytes(40)
    put_fixed(tmp_path, "n", "long", list(range(ROWS)), Shape(metadata=bomb))
    assert sawlog.read(tmp_path, types=TYPES).column("n").to_pylist() == list(range(ROWS))
    kinds = {
        (Path(row["file"]).name, row["kind"]) for row in sawlog.read(tmp_path, types=TYPES, view="damage").to_pylist()
    }
    assert kinds == {("s.dat", "bad_metadata"), ("n.dat", "bad_metadata")}


def test_numbers_and_times_are_found_as_groups_name_them(tmp_path: Path) -> None:
    """Groups that our own writer made, whose bytes a JDK reads."""
    table = pa.table(
        {
            "n": pa.array([1, 1, 2], pa.int32()),
            "f": pa.array([0.1, 0.1, 0.2], pa.float32()),
            "c": pa.array([65, 66, 66], pa.uint16()),
            "b": [True, False, False],
        }
    )
    leaf = tmp_path / "T"
    sawlog.write(table, leaf, format="deephaven_table", group=("n", "f", "c", "b"))
    types = {"n": "int", "f": "float", "c": "char", "b": "Boolean"}
    assert not sawlog.verify(leaf, types=types, char="string").damaged
    for column, value, rows in (("n", 1, 2), ("f", 0.1, 2), ("c", 66, 2), ("b", True, 1), ("n", 3, 0)):
        dataset = sawlog.open(leaf, types=types, filters=[(column, "=", value)])
        assert sum(fragment.end - fragment.start for fragment in dataset.fragments()) == rows
        assert dataset.count_rows() == rows
    dataset = sawlog.open(leaf, types=types, filters=[("c", "=", "B")], char="string")
    assert dataset.to_table().num_rows == 2


@pytest.mark.parametrize("name", ["s.sym.bytes", "s.dat"])
def test_what_a_filter_delivers_is_what_the_whole_read_has(tmp_path: Path, name: str) -> None:
    """One byte of a symbol, or one bit of a key, changed: the groups say something else than the rows."""
    grouped(tmp_path)
    data = (tmp_path / name).read_bytes()
    offset = data.index(b"AAPL")
    (tmp_path / name).write_bytes(data[:offset] + b"AAPM" + data[offset + 4 :])
    table = sawlog.read(tmp_path, types=TYPES)
    for value in ("AAPL", "AAPM"):
        with pytest.warns(DamageWarning, match="row 1000 is in the group of another value; all rows are read"):
            result_table = sawlog.read(tmp_path, types=TYPES, filters=[("s", "=", value)])
        expected = [row for row in table.to_pylist() if row["s"] == value]
        assert result_table.to_pylist() == expected
        assert len(expected) == (10_000 if (value == "AAPM") == (name == "s.sym.bytes") else 0)


def test_a_row_in_the_group_of_another_value_is_told(tmp_path: Path) -> None:
    """A value inside of a group, which no checksum covers: the filter that finds it says so."""
    grouped(tmp_path)
    data = bytearray((tmp_path / "s.dat").read_bytes())
    data[131072 + 4 * 5000] ^= 1
    (tmp_path / "s.dat").write_bytes(data)
    filters = [("s", "=", "AAPL")]
    message = r"s\.dat: bad_metadata at byte 8 .* row 5000 is \w+, and in the group of another value"
    with pytest.raises(DamageError, match=message):
        sawlog.read(tmp_path, types=TYPES, filters=filters)
    with pytest.warns(DamageWarning, match="1 bad_metadata"):
        assert sawlog.read(tmp_path, types=TYPES, filters=filters, on_damage="skip").num_rows == 9_999


def test_filters_find_both_zeros_in_groups(tmp_path: Path) -> None:
    values = [-1.0, -0.0, -0.0, 0.0, 1.0, None]
    sawlog.write(pa.table({"d": values}), tmp_path / "grouped", format="deephaven_table", group=("d",))
    sawlog.write(pa.table({"d": values}), tmp_path / "plain", format="deephaven_table")
    for name in ("grouped", "plain"):
        for op, value in (("=", 0.0), ("=", -0.0), ("in", [0.0]), ("in", [-0.0, 7.0])):
            table = sawlog.read(tmp_path / name, format="deephaven_table", filters=[("d", op, value)])
            assert str(table.column("d").to_pylist()) == "[-0.0, -0.0, 0.0]", (name, op, value)
        table = sawlog.read(tmp_path / name, format="deephaven_table", filters=[("d", "not in", [0.0])])
        assert table.column("d").to_pylist() == [-1.0, 1.0]

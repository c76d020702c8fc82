"""`sawlog validate`: what a table's locations are, against what is expected of them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sawlog.cli import main
from sawlog.deephaven.table.validation import ColumnExpectation, Expectations, validate
from sawlog.errors import FormatError, OptionError

from .reference import Shape, grouping, put_fixed, put_rows, put_symbols, put_text

TYPES = {"Px": "double", "Ts": "long", "Note": "String(None)"}
GROUPS = (("AAPL", 0, 3), ("IBM", 3, 6))
EXPECTED = """
min_rows = 6
max_rows = 6

[columns.Ts]
type = "long"
max_nulls = 0
sorted = "groups"

[columns.Sym]
grouped = true

[columns.Px]
max_null_fraction = 0.2
"""


def trades(
    leaf: Path,
    times: tuple[int | None, ...] = (1, 2, 3, 1, 1, 2),
    groups: tuple[tuple[str | None, int, int], ...] | None = GROUPS,
) -> Path:
    metadata = Shape(metadata=grouping(groups)) if groups is not None else Shape()
    put_symbols(leaf, "Sym", ["AAPL", "AAPL", "AAPL", "IBM", "IBM", "IBM"], metadata)
    put_fixed(leaf, "Ts", "long", times, Shape())
    put_fixed(leaf, "Px", "double", [1.5, None, 2.5, 3.5, 0.0, -0.0], Shape())
    put_text(leaf, "Note", ["a", None, "", "b", "c", "d"], Shape())
    put_rows(leaf, 6)
    return leaf


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for internal in ("0", "1"):
        for date in ("2024-05-06", "2024-05-07"):
            trades(tmp_path / "Systems" / "Ns" / "Partitions" / internal / date / "Trades")
    return tmp_path


def write_expectations(path: Path) -> Expectations:
    file = path / "trades.toml"
    file.write_text(EXPECTED)
    return Expectations.read(file)


def test_what_is_as_expected(tree: Path, tmp_path: Path) -> None:
    report = validate(tree / "Systems", write_expectations(tmp_path), types=TYPES)
    assert report.valid, report.problems
    assert (report.rows, len(report.locations)) == (24, 4)
    columns = report.locations[0].columns
    assert (columns["Sym"].groups, columns["Ts"].ascends, columns["Note"].nulls, columns["Px"].nulls) == (2, True, 1, 1)
    partition_report = validate(tree / "Systems", column_partition="2024-05-07", types=TYPES)
    assert [(location.internal_partition, location.column_partition) for location in partition_report.locations] == [
        ("0", "2024-05-07"),
        ("1", "2024-05-07"),
    ]
    with pytest.raises(FormatError, match="no location of the column partition '2024-05-08'"):
        validate(tree / "Systems", column_partition="2024-05-08", types=TYPES)


@pytest.mark.parametrize(
    ("column", "expectation", "problem"),
    [
        ("Ts", ColumnExpectation(sorted="location"), "column 'Ts': row 3 is less than the row before it"),
        ("Note", ColumnExpectation(max_nulls=0), "column 'Note': expected at most 0 nulls, found 1"),
        ("Px", ColumnExpectation(max_null_fraction=0.1), "column 'Px': expected at most 10.000% nulls, found 1 in 6"),
        ("Ts", ColumnExpectation(grouped=True), "column 'Ts': expected groups, found none"),
        ("Ts", ColumnExpectation(type="DateTime"), "column 'Ts': expected the type DateTime, found long"),
        ("Gone", ColumnExpectation(), "column 'Gone': expected it, found none"),
    ],
)
def test_what_is_not(tmp_path: Path, column: str, expectation: ColumnExpectation, problem: str) -> None:
    report = validate(trades(tmp_path), Expectations(columns={column: expectation}), types=TYPES)
    assert len(report.problems) == 1
    assert problem in report.problems[0]


def test_rows_are_counted(tmp_path: Path) -> None:
    trades(tmp_path)
    assert "at least 7 rows, found 6" in validate(tmp_path, Expectations(min_rows=7), types=TYPES).problems[0]
    assert "at most 5 rows, found 6" in validate(tmp_path, Expectations(max_rows=5), types=TYPES).problems[0]


@pytest.mark.parametrize(
    ("times", "row"),
    [((1, 2, 3, 1, 2, 1), 5), ((1, None, 3, 1, 1, 2), 1), ((None, None, 3, None, 1, 2), None)],
    ids=["less", "a null after a value", "nulls first"],
)
def test_order_in_groups(
    tmp_path: Path, times: tuple[int | None, ...], row: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where a batch ends between the two rows."""
    for rows in (256, 1, 2, 5):
        monkeypatch.setattr("sawlog.deephaven.table.fragments.BATCH_ROWS", rows)
        report = validate(trades(tmp_path, times), Expectations().expect("Ts", sorted="groups"), types=TYPES)
        assert report.locations[0].columns["Ts"].ascends == (row is None)
        assert report.problems == (
            [] if row is None else [f"{tmp_path}: column 'Ts': row {row} is less than the row before it"]
        )


@pytest.mark.parametrize(
    ("groups", "problem"),
    [
        ((("AAPL", 0, 3), ("IBM", 3, 5)), "the groups end at row 5; the column has 6"),
        ((("AAPL", 0, 2), ("IBM", 2, 6)), "row 2 is AAPL, and in the group of another value"),
        ((("AAPL", 0, 3), ("IBM", 4, 6)), "the rows of 'IBM' are 4 to 6"),
    ],
)
def test_groups_that_lie(tmp_path: Path, groups: tuple[tuple[str | None, int, int], ...], problem: str) -> None:
    report = validate(trades(tmp_path, groups=groups), types=TYPES)
    assert len(report.problems) == 1
    assert problem in report.problems[0]


def test_damage_is_named_as_a_problem(tmp_path: Path) -> None:
    trades(tmp_path)
    data = tmp_path / "Ts.dat"
    data.write_bytes(data.read_bytes()[:-8])
    (problem,) = validate(tmp_path, types=TYPES).problems
    assert f"short_file in {data}" in problem


@pytest.mark.parametrize(
    "text", ["rows = 1", "[columns.Ts]\nsorted = 'up'", "[columns.Ts]\nnulls = 0", "columns = 1", "max_rows = 'x'", "["]
)
def test_expectations_that_are_none(tmp_path: Path, text: str) -> None:
    file = tmp_path / "e.toml"
    file.write_text(text)
    with pytest.raises(OptionError, match=r"e\.toml"):
        Expectations.read(file)


def test_the_command_validates_expected_partitions(
    tree: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_expectations(tmp_path)
    systems, types = str(tree / "Systems"), ["-o", "types=Px=double,Ts=long,Note=String(None)"]
    assert main(["validate", systems, "--expect", str(tmp_path / "trades.toml"), *types]) == 0
    assert capsys.readouterr().out.splitlines()[0] == "24 rows in 4 locations: 0 problems"
    arguments = ["--partition", "2024-05-06", "--sorted", "Ts", "--no-nulls", "Px,Note", "--grouped", "Sym", "--json"]
    assert main(["validate", systems, *arguments, *types]) == 1
    captured = capsys.readouterr()
    document = json.loads(captured.out)
    assert (document["valid"], document["rows"], len(document["locations"])) == (False, 12, 2)
    assert [len(location["problems"]) for location in document["locations"]] == [3, 3]
    assert captured.err.count("expected at most 0 nulls, found 1") == 4
    assert main(["validate", systems, "--min-rows", "7", "--sorted-in-groups", "Ts", *types]) == 1
    assert "expected at least 7 rows" in capsys.readouterr().err
    assert main(["validate", str(tmp_path / "nowhere")]) == 2
    assert main(["validate", systems, "--expect", str(tmp_path / "no.toml"), *types]) == 2

"""convert: from anything to anything, whole or not at all."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

import sawlog
from tests.cli.conftest import RECORDS, Run, write_log

TABLE = pa.table(
    {
        "i": pa.array([1, None, -3], pa.int32()),
        "s": pa.array(["", None, 'quote " comma , line \n']),
        "b": pa.array([b"\xff", None, b""], pa.binary()),
        "t": pa.array([0, None, 1], pa.timestamp("us", "UTC")),
        "l": pa.array([[1], None, []], pa.list_(pa.int8())),
    }
)


@pytest.mark.parametrize("suffix", [".parquet", ".arrow", ".csv", ".jsonl"])
def test_rows_survive_the_way_there_and_back(run: Run, suffix: str, log: Path, tmp_path: Path) -> None:
    middle, back = tmp_path / f"rows{suffix}", tmp_path / "back.log"
    result = run("convert", log, middle)
    assert (result.code, result.err) == (0, "")
    text = ["-o", "binary_columns=record"] if suffix in (".csv", ".jsonl") else []
    assert run("convert", middle, back, *text).code == 0
    assert back.read_bytes() == log.read_bytes()


@pytest.mark.parametrize("binary", ["hex", "base64"])
@pytest.mark.parametrize("suffix", [".csv", ".jsonl"])
def test_binary_as_the_user_wants_it(run: Run, suffix: str, binary: str, log: Path, tmp_path: Path) -> None:
    middle, back = tmp_path / f"rows{suffix}", tmp_path / "back.log"
    assert run("convert", log, middle, "-O", f"binary={binary}").code == 0
    assert run("convert", middle, back, "-o", "binary_columns=record", "-o", f"binary={binary}").code == 0
    assert back.read_bytes() == log.read_bytes()


@pytest.mark.parametrize("first", ["parquet", "arrow", "csv", "jsonl"])
@pytest.mark.parametrize("second", ["parquet", "arrow"])
def test_tables_keep_their_values(run: Run, first: str, second: str, tmp_path: Path) -> None:
    pq.write_table(TABLE, tmp_path / "in.parquet")
    assert run("convert", tmp_path / "in.parquet", tmp_path / "one", "--to", first).code == 0
    text = ["-o", "binary_columns=b"] if first in ("csv", "jsonl") else []
    assert run("convert", tmp_path / "one", tmp_path / "two", "--from", first, "--to", second, *text).code == 0
    table = pq.read_table(tmp_path / "two") if second == "parquet" else pa.ipc.open_file(tmp_path / "two").read_all()
    columns = ["i", "s", "b"] if first in ("csv", "jsonl") else TABLE.column_names
    assert table.select(columns).to_pydict() == TABLE.select(columns).to_pydict()
    if not text:
        assert table.schema.types == TABLE.schema.types


def rows_of(path: Path, query: str = "SELECT * FROM rows") -> list[tuple[Any, ...]]:
    """What the database's own library reads."""
    database: Any = (duckdb if path.suffix == ".duckdb" else sqlite3).connect(path)
    try:
        return database.execute(query).fetchall()
    finally:
        database.close()


@pytest.mark.parametrize("suffix", [".duckdb", ".sqlite"])
def test_databases_are_read_by_their_own_library(run: Run, suffix: str, tmp_path: Path) -> None:
    extra_columns = {
        "f": pa.array([1.5, None, -0.0]),
        "u": pa.array([0, None, 2**63 - 1], pa.uint64()),
        "o": pa.array([True, None, False]),
        "d": pa.array(["x", None, "x"]).dictionary_encode(),
        "n": pa.array([1, None, 3], pa.timestamp("ns", "UTC")),
    }
    pq.write_table(
        pa.table({**dict(zip(TABLE.column_names, TABLE.columns, strict=True)), **extra_columns}),
        tmp_path / "in.parquet",
    )
    target = tmp_path / f"out{suffix}"
    target.write_bytes(b"old")
    result = run("convert", tmp_path / "in.parquet", target, "-O", 'table=my "rows"')
    assert (result.code, result.err) == (0, "")
    rows = rows_of(target, 'SELECT i, s, b, f, u, o, d, CAST(n AS VARCHAR) FROM "my ""rows"""')
    last = (-3, 'quote " comma , line \n', b"", -0.0, 2**63 - 1, 0, "x")
    assert rows[0][:7] == (1, "", b"\xff", 1.5, 0, 1, "x")
    assert rows[1] == (None,) * 8
    assert rows[2][:7] == last
    assert rows[0][7].replace("T", " ").rstrip("Z") == "1970-01-01 00:00:00.000000001", "no digit is lost"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.parquet", target.name]


@pytest.mark.parametrize(
    ("name", "column", "message"),
    [
        ("o.sqlite", pa.array([2**64 - 1], pa.uint64()), "too large"),
        ("o.duckdb", pa.array([1], pa.time64("ns")), "would lose data"),
        ("o.duckdb", pa.array([1], pa.duration("ns")), "would lose data"),
    ],
)
def test_a_database_says_what_it_cannot_hold(
    run: Run, tmp_path: Path, name: str, column: pa.Array, message: str
) -> None:
    with pa.ipc.new_file(tmp_path / "in.arrow", pa.schema([("a", column.type)])) as file:
        file.write_table(pa.table({"a": column}))
    result = run("convert", tmp_path / "in.arrow", tmp_path / name)
    assert (result.code, message in result.err) == (2, True), result
    assert not (tmp_path / name).exists()


@pytest.mark.parametrize("name", ["o.sqlite", "o.duckdb"])
def test_a_database_keeps_what_is_not_a_number_and_names_but_for_case(run: Run, tmp_path: Path, name: str) -> None:
    pq.write_table(pa.table({"f": [float("nan"), float("inf")]}), tmp_path / "in.parquet")
    assert run("convert", tmp_path / "in.parquet", tmp_path / name).code == 0
    assert [str(value).lower()[:3] for (value,) in rows_of(tmp_path / name)] == ["nan", "inf"]
    pq.write_table(pa.table({"a": [1], "A": [2]}), tmp_path / "in.parquet")
    assert "upper and lower case" in run("convert", tmp_path / "in.parquet", tmp_path / name).err
    assert "does not read them" in run("convert", tmp_path / name, tmp_path / "back.csv").err


def test_csv_tells_null_from_empty_and_writes_what_others_read(run: Run, tmp_path: Path) -> None:
    pq.write_table(TABLE, tmp_path / "in.parquet")
    assert run("convert", tmp_path / "in.parquet", tmp_path / "out.csv").code == 0
    text = (tmp_path / "out.csv").read_text()
    assert text.splitlines()[:3] == [
        '"i","s","b","t","l"',
        r'1,"","\xff","1970-01-01T00:00:00.000000Z","[1]"',
        ",,,,",
    ]
    parse = pa.csv.ParseOptions(newlines_in_values=True)
    assert pa.csv.read_csv(tmp_path / "out.csv", parse_options=parse).num_rows == 3


def test_views_columns_and_filters_choose_what_is_converted(run: Run, log: Path, tmp_path: Path) -> None:
    target = tmp_path / "out.jsonl"
    assert run("convert", log, target, "--columns", "record", "--filter", "record >= n3").code == 0
    assert [json.loads(line)["record"] for line in target.read_text().splitlines()][-2:] == ["n3", "n4"]
    again = tmp_path / "again.csv"
    assert run("convert", target, again, "--filter", "record = n4").code == 0
    assert again.read_text().splitlines() == ['"record"', '"n4"']
    assert run("convert", log, target, "--view", "damage").code == 0
    assert target.read_text() == ""


def test_damage_stops_unless_it_may_be_skipped(run: Run, damaged: Path, tmp_path: Path) -> None:
    target = tmp_path / "out.parquet"
    result = run("convert", damaged, target)
    assert result.code == 1
    assert len(result.err.splitlines()) == 1
    result = run("convert", damaged, target, "--on-damage", "skip", "--json")
    assert result.code == 3
    document = json.loads(result.out)
    assert document["rows"] == len(RECORDS) - 1 == pq.read_table(target).num_rows
    assert document["skipped"][str(damaged)]["bytes"] == sawlog.verify(damaged).account.damage


def test_a_failure_leaves_nothing_and_keeps_what_was_there(run: Run, damaged: Path, tmp_path: Path) -> None:
    for name in ("a.parquet", "b.arrow", "c.csv", "d.jsonl", "e.log", "f.duckdb", "g.sqlite"):
        (tmp_path / "out").mkdir(exist_ok=True)
        target = tmp_path / "out" / name
        target.write_text("old")
        assert run("convert", damaged, target).code == 1
        assert target.read_text() == "old"
    assert len(list((tmp_path / "out").iterdir())) == 7


def test_directories_of_tables(run: Run, tmp_path: Path) -> None:
    source = tmp_path / "in"
    source.mkdir()
    for number in range(3):
        pq.write_table(pa.table({"n": [number]}), source / f"part-{number}.parquet")
    (source / "_SUCCESS").touch()
    target = tmp_path / "out.jsonl"
    assert run("convert", source, target).code == 0
    assert [json.loads(line)["n"] for line in target.read_text().splitlines()] == [0, 1, 2]
    pq.write_table(pa.table({"other": [1]}), source / "part-9.parquet")
    result = run("convert", source, target)
    assert result.code == 2
    assert "part-9.parquet: columns differ" in result.err


def test_a_source_without_rows_becomes_an_empty_table(run: Run, tmp_path: Path) -> None:
    empty = write_log(tmp_path / "000001.log", [])
    for suffix in ("parquet", "arrow", "csv", "jsonl"):
        assert run("convert", empty, tmp_path / f"out.{suffix}").code == 0
    assert pq.read_table(tmp_path / "out.parquet").schema.names == ["record"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["{log}", "{tmp}/out.foo"], "name the format with --to"),
        (["{log}", "{tmp}/out.foo", "--to", "foo"], "unknown format 'foo'"),
        (["{log}", "{tmp}/out.csv", "-O", "nope=1"], "unknown option 'nope'"),
        (["{log}", "{tmp}/out.csv", "-o", "nope=1"], "unknown option 'nope'"),
        (["{log}", "{tmp}/out.csv", "--from", "parquet"], "not readable as Parquet"),
        (["{tmp}/bad.jsonl", "{tmp}/out.csv"], "not readable as JSON lines"),
        (["{tmp}/bad.csv", "{tmp}/out.parquet"], "not readable as CSV"),
        (["{tmp}/good.csv", "{tmp}/out.log"], "one column, 'record'"),
        (["{tmp}/good.csv", "{tmp}/out.parquet", "--view", "damage"], "neither views nor provenance"),
        (["{tmp}/good.csv", "{tmp}/out.parquet", "--columns", "x"], "no column 'x'"),
        (["{tmp}/good.csv", "{tmp}/out.parquet", "-o", "binary_columns=a"], "column 'a', row 0: not binary as escape"),
        (["{tmp}/good.csv", "{tmp}/out.parquet", "-o", "binary_columns=x"], "no column 'x'"),
    ],
)
def test_a_text_file_that_cannot_be_converted_leaves_nothing(
    run: Run, arguments: list[str], message: str, log: Path, tmp_path: Path
) -> None:
    (tmp_path / "bad.jsonl").write_text('{"a": 1}\n{"a":')
    (tmp_path / "bad.csv").write_text("a,b\n1,2\n3\n")
    (tmp_path / "good.csv").write_text("a,b\n\\q,2\n")
    result = run("convert", *(text.format(log=log, tmp=tmp_path) for text in arguments))
    assert result.code == 2
    assert result.out == ""
    assert len(result.err.splitlines()) == 1
    assert message in result.err
    assert not list(tmp_path.glob("out.*"))
    assert not list(tmp_path.glob(".*"))


def test_tables_in_an_object_store_are_written_and_read(
    run: Run, s3: dict[str, Any], log: Path, tmp_path: Path
) -> None:
    storage = [part for key, value in s3.items() for part in ("--storage", f"{key}={json.dumps(value)}")]
    for suffix in ("parquet", "arrow", "csv"):
        url = f"s3://logs/cli/rows.{suffix}"
        assert run("convert", log, url, *storage).code == 0
        back = tmp_path / "back.log"
        text = ["-o", "binary_columns=record"] if suffix == "csv" else []
        assert run("convert", url, back, *text, *storage).code == 0
        assert back.read_bytes() == log.read_bytes()


def test_dictionaries_that_differ_from_batch_to_batch(run: Run, tmp_path: Path) -> None:
    """As the symbols of Deephaven's locations do; an Arrow file has one dictionary for all."""
    values = (["a", "b"], ["b", None, "c"], ["a"], ["d", "c"])
    for number, part in enumerate(values):
        table = pa.table({"s": pa.array(part).dictionary_encode()})
        sawlog.write(table, tmp_path / "tree" / str(number), format="deephaven_table", compact_header=True)
    assert run("convert", tmp_path / "tree", tmp_path / "out.arrow").code == 0
    result_table = pa.ipc.open_file(tmp_path / "out.arrow").read_all()
    assert result_table.column("s").to_pylist() == [value for part in values for value in part]
    assert pa.types.is_dictionary(result_table.schema.field("s").type)

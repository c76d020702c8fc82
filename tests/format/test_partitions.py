"""Rows are written to the partitions that the values of a column name."""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet
import pytest

import sawlog
from tests.cli.conftest import Run, run

__all__ = ["run"]

DATES = ["2024-01-02", "2024-01-03", "2024-01-02", "2024-01-04"]
TRADES = pa.table({"Date": DATES, "Px": [1.5, 2.5, 3.5, 4.5], "Sym": ["A", "B", "A", None]})


def write_by_date(data: pa.Table, path: Path, **options: object) -> list[sawlog.Written]:
    return sawlog.write(data, path, format="deephaven_table", partition_by="Date", **options)  # type: ignore[arg-type]


def list_files(path: Path) -> list[str]:
    return sorted(str(file_path.relative_to(path)) for file_path in path.rglob("*") if file_path.is_file())


def test_a_table_is_spread_over_locations(tmp_path: Path) -> None:
    path = tmp_path / "Intraday" / "Market" / "Trades" / "w1"
    locations = write_by_date(pa.Table.from_batches(TRADES.to_batches(max_chunksize=2)), path)
    assert sorted(os.path.relpath(location.path, path) for location in locations) == [
        f"{date}/Trades" for date in sorted(set(DATES))
    ]
    table = sawlog.read(tmp_path / "Intraday")
    assert table.select(["Date", "Px", "Sym"]).sort_by("Px").to_pydict() == TRADES.to_pydict()
    assert sawlog.open(tmp_path / "Intraday", filters=[("Date", "=", "2024-01-02")]).count_rows() == 2
    assert write_by_date(table, tmp_path / "again" / "Trades" / "w1")
    assert sawlog.read(tmp_path / "again").equals(table)
    assert write_by_date(TRADES.slice(3), path), "a location that is there is replaced, the others stay"
    assert sawlog.open(tmp_path / "Intraday").count_rows() == 4


def test_all_partitions_appear_or_none(tmp_path: Path) -> None:
    strange = tmp_path / "Trades" / "w1" / "2024-01-04" / "Trades" / "notes"
    strange.mkdir(parents=True)
    with pytest.raises(sawlog.OptionError, match="'notes', which does not belong to a location"):
        write_by_date(TRADES, tmp_path / "Trades" / "w1")
    for wrong in ("", "..", "a/b", "_x", ".x", "a\\b", "a\nb", None):
        table = TRADES.set_column(0, "Date", pa.array(["2024-01-02", wrong, "x", "y"], pa.string()))
        with pytest.raises(sawlog.SchemaError, match=r"column 'Date', row 1: .* cannot name a partition"):
            write_by_date(table, tmp_path / "Trades" / "w1")
    assert list_files(tmp_path) == []
    assert not [path for path in tmp_path.rglob("*") if path.name.endswith(".sawlog-staged")]


def test_what_cannot_tell_partitions_is_refused(tmp_path: Path) -> None:
    for table, path, message in (
        (TRADES.rename_columns(["Dat", "Px", "Sym"]), "T/w1", "no column 'Date'; did you mean 'Dat'"),
        (
            TRADES.set_column(0, "Date", pa.array([1, 2, 3, 4])),
            "T/w1",
            "column 'Date' is int64, .* are string; cast it",
        ),
        (TRADES, "N/Partitions/0", "takes the path of an internal partition"),
    ):
        with pytest.raises((sawlog.SchemaError, sawlog.OptionError), match=message):
            write_by_date(table, tmp_path / path)
    with pytest.raises(sawlog.OptionError, match="partition_by='n': leveldb_log has no partitions"):
        sawlog.write(pa.table({"n": ["a"]}), tmp_path / "1.log", format="leveldb_log", partition_by="n")
    assert list(tmp_path.iterdir()) == []


def test_milvus_spreads_by_the_ids_of_partitions(tmp_path: Path) -> None:
    table = pa.table({"id": [1, 2, 3], "_partition": [7, 8, 7]})
    options = {"format": "milvus_binlog", "primary_key": "id", "timestamp": 5}
    sawlog.write(table, tmp_path / "root", partition_by="_partition", **options)
    with pytest.warns(UserWarning, match="all 2 segments"):
        result_table = sawlog.read(tmp_path / "root", format="milvus_binlog", columns=["100", "_partition"])
    assert result_table.rename_columns(table.schema.names).sort_by("id").to_pydict() == table.to_pydict()
    with pytest.raises(sawlog.OptionError, match="Milvus numbers partitions, in '_partition'"):
        sawlog.write(table, tmp_path / "other", partition_by="id", **options)
    with pytest.raises(sawlog.SchemaError, match="no column '_partition'"):
        sawlog.write(table.select(["id"]), tmp_path / "other", partition_by="_partition", **options)
    assert not (tmp_path / "other").exists()


def test_on_the_command_line(run: Run, tmp_path: Path) -> None:
    source = tmp_path / "rows.parquet"
    pyarrow.parquet.write_table(TRADES, source)
    target = tmp_path / "Trades" / "w1"
    arguments = ["convert", source, target, "--to", "deephaven_table", "--partition-by"]
    result = run(*arguments, "Date")
    assert (result.code, result.err) == (0, "")
    assert sawlog.open(target).count_rows() == 4
    assert run(*arguments, "Dat").err.startswith("sawlog: partition_by: no column 'Dat'; did you mean 'Date'?")
    result = run("convert", source, tmp_path / "copy.parquet", "--partition-by", "Date")
    assert (result.code, result.err) == (2, "sawlog: --partition-by Date: Parquet is written as one file\n")
    assert not (tmp_path / "copy.parquet").exists()

"""Trees of locations: layouts, partitions, pruning, schema evolution, links."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fsspec
import pyarrow as pa
import pytest

import sawlog
from sawlog.deephaven.table import fragments
from sawlog.deephaven.table.checkpoint import LocationVerdict
from sawlog.deephaven.table.columns import ColumnReader
from sawlog.deephaven.table.tree import TreeWalk, parse_location
from sawlog.errors import DamageError, FormatError, OptionError, SchemaError
from sawlog.format.damage import DamageWarning
from sawlog.storage import Storage, workers
from tests.support import make_dead_links

from .reference import Shape, put_fixed, put_rows, put_symbols, put_text

DATES = ("2024-05-06", "2024-05-07")
TYPES = {"n": "int"}


def location(directory: Path, *values: int | None) -> None:
    put_fixed(directory, "n", "int", values, Shape())
    put_rows(directory, len(values))


@pytest.fixture
def historical(tmp_path: Path) -> Path:
    root = tmp_path / "db" / "Systems" / "Ns" / "Partitions"
    for internal in ("0", "10", "2"):
        for number, date in enumerate(DATES):
            location(root / internal / date / "Trades", int(internal), number)
    return tmp_path / "db"


@pytest.fixture
def intraday(tmp_path: Path) -> Path:
    root = tmp_path / "db" / "Intraday" / "Ns" / "Trades"
    for internal in ("vm-1", "vm-2"):
        for number, date in enumerate(DATES):
            location(root / internal / date / "Trades", number)
    return tmp_path / "db"


def test_a_historical_tree_is_read_as_a_table(historical: Path) -> None:
    dataset = sawlog.open(historical, types=TYPES)
    assert dataset.info() == {
        "layout": "historical",
        "table": "Ns.Trades",
        "locations": 6,
        "internal partitions": 3,
        "column partitions": 2,
        "rows": 12,
        "row count from": "table.size",
    }
    table = sawlog.read(historical, types=TYPES, columns=["n", "Date", "__InternalPartition"])
    assert table.column("Date").to_pylist() == [date for date in DATES for _ in range(6)]
    assert table.column("__InternalPartition").to_pylist() == ["0", "0", "2", "2", "10", "10"] * 2
    assert table.column("n").to_pylist() == [0, 0, 2, 0, 10, 0, 0, 1, 2, 1, 10, 1]
    assert sawlog.open(historical, types=TYPES).schema.names == ["n", "Date"]
    assert sawlog.open(historical, types=TYPES, partition_column="").schema.names == ["n"]
    assert sawlog.open(historical, types=TYPES, partition_column="Day").schema.names == ["n", "Day"]


def test_an_intraday_tree_is_read_as_a_table(intraday: Path) -> None:
    dataset = sawlog.open(intraday, types=TYPES)
    assert dataset.info()["layout"] == "intraday"
    assert dataset.info()["table"] == "Ns.Trades"
    assert dataset.to_table().to_pydict() == {"n": [0, 0, 1, 1], "Date": [DATES[0]] * 2 + [DATES[1]] * 2}


def test_a_single_location_knows_its_place(historical: Path) -> None:
    leaf = historical / "Systems" / "Ns" / "Partitions" / "10" / DATES[1] / "Trades"
    assert sawlog.read(leaf, types=TYPES).to_pydict() == {"n": [10, 1], "Date": [DATES[1]] * 2}
    assert sawlog.read(leaf, types=TYPES, layout="splayed").to_pydict() == {"n": [10, 1]}


def test_a_splayed_table_is_read_alone(tmp_path: Path) -> None:
    leaf = tmp_path / "db" / "Users" / "Ns" / "Tables" / "Mine"
    location(leaf, 1)
    dataset = sawlog.open(leaf, types=TYPES)
    assert dataset.info()["table"] == "Ns.Mine"
    assert dataset.to_table().to_pydict() == {"n": [1]}


def test_partitions_prune_locations(historical: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []

    def open_reader(name: str, verdict: LocationVerdict, *arguments: Any) -> ColumnReader:
        opened.append(verdict.location.directory)
        return ColumnReader(name, verdict, *arguments)

    monkeypatch.setattr(fragments, "ColumnReader", open_reader)
    for filters, expected, count in (
        ([("Date", "=", DATES[1])], [0, 1, 2, 1, 10, 1], 3),
        ([("Date", "<", DATES[0])], [], 0),
        ([("Date", "in", [DATES[0]]), ("__InternalPartition", "=", "2")], [2, 0], 1),
        ([("__InternalPartition", "=", "10"), ("n", ">", 5)], [10, 10], 2),
    ):
        opened.clear()
        table = sawlog.read(historical, types=TYPES, columns=["n"], filters=filters)
        assert table.column("n").to_pylist() == expected
        assert len(opened) == count


def test_tables_of_several_names(tmp_path: Path) -> None:
    root = tmp_path / "Ns" / "Partitions" / "0" / DATES[0]
    location(root / "Trades", 1)
    location(root / "Quotes", 2)
    with pytest.raises(OptionError, match=r"Ns\.Quotes, Ns\.Trades; choose one"):
        sawlog.open(tmp_path, types=TYPES)
    assert sawlog.read(tmp_path, types=TYPES, table="Quotes").column("n").to_pylist() == [2]
    with pytest.raises(FormatError, match="none of the 2 locations"):
        sawlog.open(tmp_path, types=TYPES, table="Orders")


def test_columns_that_came_later_are_null_and_no_row_is_made_up(tmp_path: Path) -> None:
    root = tmp_path / "Ns" / "Partitions" / "0"
    location(root / DATES[0] / "T", 1)
    location(root / DATES[1] / "T", 2)
    put_symbols(root / DATES[1] / "T", "s", ["x"], Shape())
    location(root / "2024-05-08" / "T")
    table = sawlog.read(tmp_path, types=TYPES)
    assert table.to_pydict() == {"n": [1, 2], "s": [None, "x"], "Date": list(DATES)}


def test_a_schema_file_gives_types(tmp_path: Path) -> None:
    schema = tmp_path / "Ns.T.schema"
    schema.write_text(
        """<Table name="T" namespace="Ns" storageType="NestedPartitionedOnDisk">
          <Column name="Day" dataType="String" columnType="Partitioning" />
          <Column name="Px" dataType="double" />
          <Column name="Time" dataType="DateTime" />
          <Column name="Sym" dataType="java.lang.String" columnType="Grouping" />
          <Column name="Note" dataType="String" symbolTable="None" encoding="UTF_8" />
          <Column name="Fee" dataType="java.math.BigDecimal" objectCodec="com.x.BigDecimalCodec"
                  objectCodecArguments="10,2" />
          <Column name="Thing" dataType="com.x.Thing" />
          <Column name="Side" dataType="char" />
        </Table>"""
    )
    leaf = tmp_path / "Ns" / "Partitions" / "0" / DATES[0] / "T"
    put_fixed(leaf, "Px", "double", [1.5], Shape())
    put_fixed(leaf, "Time", "DateTime", [7], Shape())
    put_symbols(leaf, "Sym", ["a"], Shape())
    put_text(leaf, "Note", ["€"], Shape(), "utf-8")
    put_fixed(leaf, "extra", "int", [3], Shape())
    with pytest.warns(UserWarning, match=r"extra \(4 bytes a row: int or float\)"):
        table = sawlog.read(leaf, schema=str(schema))
    assert table.schema.names == ["Day", "Px", "Time", "Sym", "Note", "Fee", "Thing", "Side", "extra"]
    assert table.schema.field("Fee").type == pa.decimal128(10, 2)
    assert table.schema.field("Thing").metadata[b"sawlog.class"] == b"com.x.Thing"
    (row,) = table.set_column(2, "Time", table.column("Time").cast(pa.int64())).to_pylist()
    assert row == {
        "Day": DATES[0], "Px": 1.5, "Time": 7, "Sym": "a", "Note": "€", "Fee": None, "Thing": None, "Side": None,
        "extra": 3,
    }  # fmt: skip
    assert sawlog.open(leaf, schema=str(schema), types={"extra": "int"}).info()["grouping columns"] == "Sym"


def test_types_are_inferred_as_far_as_the_bytes_allow(tmp_path: Path) -> None:
    put_fixed(tmp_path, "b", "byte", [1, 2], Shape())
    put_fixed(tmp_path, "d", "double", [1.0, 2.0], Shape())
    put_symbols(tmp_path, "s", ["x", None], Shape())
    put_text(tmp_path, "t", ["x", None], Shape())
    with pytest.warns(UserWarning, match=r"d \(8 bytes a row: long, double or DateTime\); t \(text") as warning_records:
        dataset = sawlog.open(tmp_path)
    assert len(warning_records) == 1
    kinds = {field.name: field.metadata[b"sawlog.type"].decode() for field in dataset.schema}
    assert kinds == {"b": "byte", "d": "long", "s": "String", "t": "String"}
    with pytest.warns(UserWarning, match="types were inferred"):
        view = sawlog.read(tmp_path, view="columns").to_pydict()
    assert view["guessed"][1] == "8 bytes a row: long, double or DateTime"


def test_rows_that_nothing_tells(tmp_path: Path) -> None:
    put_fixed(tmp_path, "n", "int", [1, 2, 3, 4], Shape())
    with pytest.raises(SchemaError, match="unknown number of rows: name the type"):
        sawlog.open(tmp_path)
    with pytest.warns(UserWarning, match="4 bytes a row"):
        assert sawlog.read(tmp_path, num_rows=4).to_pydict() == {"n": [1, 2, 3, 4]}
    put_fixed(tmp_path, "b", "byte", [1, 2, 3, 4], Shape())
    put_fixed(tmp_path, "l", "long", [1, 2, 3, 4], Shape())
    with pytest.warns(UserWarning, match="4 bytes a row"):
        assert sawlog.read(tmp_path).num_rows == 4


def test_a_definition_is_looked_at(tmp_path: Path) -> None:
    put_fixed(tmp_path, "Px", "double", [1.5], Shape())
    put_fixed(tmp_path, "Time", "DateTime", [7], Shape())

    def utf(text: str) -> bytes:
        return len(text).to_bytes(2, "big") + text.encode()

    table = b"\x77\x10junk" + utf("Ns") + utf("T")
    table += utf("Px") + b"\x76\x72" + utf("double") + bytes(12) + utf("Time") + b"\x76\x72"
    table += utf("com.illumon.iris.db.tables.utils.DBDateTime") + bytes(20)
    (tmp_path / "table.tbl").write_bytes(table)
    result_table = sawlog.read(tmp_path)
    assert result_table.schema.field("Px").type == pa.float64()
    assert result_table.schema.field("Time").type == pa.timestamp("ns", "UTC")


def test_columns_whose_names_hide_files(tmp_path: Path) -> None:
    put_fixed(tmp_path, "_n", "int", [1], Shape())
    put_fixed(tmp_path, "$m", "int", [2], Shape())
    put_rows(tmp_path, 1)
    assert sawlog.read(tmp_path, types={"_n": "int", "$m": "int"}).to_pydict() == {"_n": [1], "$m": [2]}


def test_files_of_others_are_left_alone(tmp_path: Path) -> None:
    location(tmp_path, 1)
    for name in ("a b.dat", "x.y.dat", "README", "n.dat.bak"):
        (tmp_path / name).write_bytes(b"not a column")
    assert sawlog.read(tmp_path, types=TYPES).to_pydict() == {"n": [1]}
    assert not sawlog.verify(tmp_path, types=TYPES).damaged


def test_parquet_leaves_are_not_ours(historical: Path) -> None:
    leaf = historical / "Systems" / "Ns" / "Partitions" / "0" / DATES[0] / "Trades"
    (leaf / "table.parquet").write_bytes(b"PAR1")
    with pytest.warns(UserWarning, match="Parquet location"):
        assert sawlog.read(historical, types=TYPES).num_rows == 10
    with pytest.warns(UserWarning, match="Parquet location"), pytest.raises(FormatError, match="no location"):
        sawlog.read(leaf, types=TYPES, format="deephaven_table")


def test_a_tree_in_a_remote_store_is_pruned_by_partition(historical: Path) -> None:
    memory = fsspec.filesystem("memory")
    memory.put(str(historical), "/tree", recursive=True)
    try:
        url = "memory://tree/Systems/Ns"
        assert sawlog.read(url, types=TYPES, filters=[("Date", "=", DATES[1])]).column("n").to_pylist() == [
            0,
            1,
            2,
            1,
            10,
            1,
        ]
        assert sawlog.open(url, types=TYPES).info()["table"] == "Ns.Trades"
    finally:
        memory.rm("/tree", recursive=True)


def test_partitions_that_are_links_out_of_the_tree(historical: Path, tmp_path: Path) -> None:
    root = historical / "Systems" / "Ns" / "Partitions"
    elsewhere = tmp_path / "mount"
    location(elsewhere / DATES[0] / "Trades", 99)
    (root / "3").symlink_to(elsewhere)
    with pytest.raises(DamageError, match=r"unsafe_path .* a link to .*mount, outside"):
        sawlog.open(historical, types=TYPES)
    with pytest.warns(DamageWarning, match="a link to"):
        table = sawlog.read(historical, types=TYPES, on_damage="skip")
    assert 99 not in table.column("n").to_pylist()
    with pytest.warns(DamageWarning, match="a link to"):
        damages = sawlog.read(historical, types=TYPES, on_damage="skip", view="damage").to_pylist()
    assert [(row["file"], row["kind"]) for row in damages] == [(str(root / "3"), "unsafe_path")]


def test_columns_that_are_links_out_of_the_tree(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_bytes(Shape().header() + b"\1\0\0\0")
    leaf = tmp_path / "T"
    location(leaf, 5)
    (leaf / "m.dat").symlink_to(secret)
    types = {"n": "int", "m": "int"}
    with pytest.raises(DamageError, match=r"m\.dat: unsafe_path"):
        sawlog.open(leaf, types=types)
    with pytest.warns(DamageWarning, match="a link to"):
        table = sawlog.read(leaf, types=TYPES, on_damage="skip")
    assert table.to_pydict() == {"n": [5]}
    with pytest.warns(DamageWarning, match="a link to"):
        report = sawlog.verify(leaf, types=TYPES)
    assert report.to_dict()["files"][-1]["damage_kinds"] == {"unsafe_path": 1}


def test_links_inside_of_the_tree_are_other_names(historical: Path) -> None:
    root = historical / "Systems" / "Ns" / "Partitions"
    (root / "latest").symlink_to(root / "2")
    assert sawlog.read(historical, types=TYPES).num_rows == 12


def test_links_that_lead_nowhere_are_left_out(historical: Path) -> None:
    before = sawlog.read(historical, types=TYPES)
    for directory in [path for path in historical.rglob("*") if path.is_dir()]:
        make_dead_links(directory)
    assert sawlog.read(historical, types=TYPES).equals(before)
    assert not sawlog.verify(historical, types=TYPES).damaged


def test_a_directory_that_goes_away_while_a_tree_is_walked(historical: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As those of an import that is tidied."""
    files = Storage().find(historical)
    empty = historical / "Systems" / "Ns" / "Partitions" / "7"
    empty.mkdir()
    scandir = os.scandir

    def scan(path: str) -> Any:
        if path == str(empty):
            empty.rmdir()
        return scandir(path)

    monkeypatch.setattr(os, "scandir", scan)
    walk = TreeWalk([str(historical)], files)
    assert not empty.exists()
    assert walk.listed.keys() == walk.directories.keys()


def test_links_inside_of_the_tree_are_followed(historical: Path) -> None:
    """A partition on another disk, below the same root; links to links, and round in circles."""
    root = historical / "Systems" / "Ns" / "Partitions"
    (historical / "disks").mkdir()
    (root / "2").rename(historical / "disks" / "a")
    (root / "2").symlink_to(historical / "disks" / "a")
    (root / "10").rename(historical / "disks" / "b")
    (historical / "disks" / "c").symlink_to(historical / "disks" / "b")
    (root / "10").symlink_to(historical / "disks" / "c")
    (historical / "disks" / "a" / "round").symlink_to(historical)
    (root / "0" / "back").symlink_to(root)
    table = sawlog.read(historical, types=TYPES, columns=["n", "Date", "__InternalPartition"])
    assert table.column("__InternalPartition").to_pylist() == ["0", "0", "2", "2", "10", "10"] * 2
    assert table.column("n").to_pylist() == [0, 0, 2, 0, 10, 0, 0, 1, 2, 1, 10, 1]
    assert sawlog.verify(historical, types=TYPES).rows == 12
    with pytest.raises(DamageError, match=r"Partitions/10: unsafe_path .*disks/b, outside of what was named"):
        sawlog.open(root, types=TYPES)


def test_types_that_changed(tmp_path: Path) -> None:
    """Every location is read as it says itself, and converted to the widest type."""
    for number, (date, kind) in enumerate((("2024-05-06", pa.int32()), ("2024-05-07", pa.int64()))):
        numbers = pa.array([number, None], kind)
        table = pa.table({"n": numbers, "s": ["é", "x"], "f": pa.array([1.5, 2.5], pa.float32())})
        charset = ("ISO-8859-1", "UTF-8")[number]
        leaf = tmp_path / "Ns" / "Partitions" / "0" / date / "T"
        sawlog.write(table, leaf, format="deephaven_table", charset=charset, column_version=number + 1)
    result_table = sawlog.read(tmp_path)
    assert result_table.schema.field("n").type == pa.int64()
    assert result_table.column("n").to_pylist() == [0, None, 1, None]
    assert result_table.column("s").to_pylist() == ["é", "x"] * 2
    assert sawlog.read(tmp_path, filters=[("n", "=", 1)]).column("s").to_pylist() == ["é"]
    schema = tmp_path / "T.schema"
    schema.write_text('<Table><Column name="n" dataType="short"/><Column name="s" dataType="String"/></Table>')
    assert sawlog.read(tmp_path, schema=str(schema), columns=["n"]).schema.field("n").type == pa.int16()
    sawlog.write(pa.table({"n": [1 << 40]}), tmp_path / "Ns/Partitions/1/2024-05-07/T", format="deephaven_table")
    with pytest.raises(SchemaError, match=r"Partitions/1/.*: column 'n' is int64 here and int16 in the table"):
        sawlog.read(tmp_path, schema=str(schema), columns=["n"])


@pytest.mark.parametrize("part", ["..", ".", "a\nb", "\0"])
def test_names_that_lead_elsewhere(part: str) -> None:
    with pytest.raises(FormatError, match="cannot be the name of a partition"):
        parse_location(f"s3://bucket/Ns/Partitions/0/{part}/T", "auto")


def test_too_few_directories_for_a_layout_are_refused() -> None:
    with pytest.raises(FormatError, match="too few directories"):
        parse_location("s3://T", "historical")


def test_recognised_without_being_told(historical: Path, tmp_path: Path) -> None:
    assert sawlog.open(historical, types=TYPES).format.name == "deephaven_table"
    headerless = tmp_path / "new"
    put_fixed(headerless, "n", "int", [1], Shape(version=2))
    put_rows(headerless, 1)
    assert sawlog.open(headerless, types=TYPES, byteorder="little").format.name == "deephaven_table"
    other_path = tmp_path / "other"
    other_path.mkdir()
    (other_path / "x.dat").write_bytes(b"something else entirely")
    with pytest.raises(FormatError, match="not recognised"):
        sawlog.open(other_path)


def test_everything_goes_through_a_pickle(historical: Path) -> None:
    import pickle

    fragments: list[Any] = sawlog.open(historical, types=TYPES).fragments()
    copies = pickle.loads(pickle.dumps(fragments))
    assert [b.to_pydict() for f in copies for b in f.to_batches()] == [
        b.to_pydict() for f in fragments for b in f.to_batches()
    ]


def test_guesses_are_not_written(tmp_path: Path) -> None:
    """1.5 would be 4609434218613702656 for good."""
    put_fixed(tmp_path / "T", "d", "double", [1.5], Shape())
    put_rows(tmp_path / "T", 1)
    with pytest.warns(UserWarning, match="types were inferred"):
        guessed = sawlog.read(tmp_path / "T")
    assert guessed.schema.field("d").metadata[b"sawlog.guessed"] == b"8 bytes a row: long, double or DateTime"
    with pytest.raises(SchemaError, match=r"column 'd': its type was inferred .*\(8 bytes a row: long.* types="):
        sawlog.write(guessed, tmp_path / "U", format="deephaven_table")
    assert not (tmp_path / "U").exists()
    sawlog.write(guessed, tmp_path / "U", format="deephaven_table", types={"d": "long"})
    table = sawlog.read(tmp_path / "T", types={"d": "double"})
    sawlog.write(table, tmp_path / "V", format="deephaven_table")
    assert sawlog.read(tmp_path / "V", format="deephaven_table").to_pydict() == {"d": [1.5]}


def test_threads_share_the_rows_of_one_location(historical: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pools = []

    class WatchedPool(workers.WorkerPool):
        def __init__(self, threads: int, measure: Callable[[Any], int] | None = None) -> None:
            pools.append(threads)
            super().__init__(threads, measure)

    location = historical / "Systems" / "Ns" / "Partitions" / "0" / DATES[0] / "Trades"
    rows = sawlog.read(location, types=TYPES, use_threads=False)
    monkeypatch.setattr(workers, "WorkerPool", WatchedPool)
    monkeypatch.setattr("sawlog.format.planning.PIECE_BYTES", 0)
    assert sawlog.read(location, types=TYPES, use_threads=4) == rows
    assert pools == [4]

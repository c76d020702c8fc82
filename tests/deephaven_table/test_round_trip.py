"""What is written is read back: every type, both generations, both byte orders, any batches, any values."""

from __future__ import annotations

import itertools
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sawlog
from sawlog.deephaven.schema_xml import parse_schema
from sawlog.deephaven.table.infer import make_schema_spec
from sawlog.deephaven.table.location import Generation
from sawlog.deephaven.table.schema_file import build_schema_file
from sawlog.deephaven.table.types import ColumnSpec, parse_type
from sawlog.deephaven.types import ColumnType
from sawlog.errors import IncompleteError, OptionError

TEXT = st.text(st.characters(blacklist_categories=["Cs"]), max_size=6).filter(lambda text: text != "\0")
LATIN = st.text(st.characters(max_codepoint=255), max_size=6).filter(lambda text: text != "\0")
ASCII = st.text(st.characters(max_codepoint=127), max_size=6).filter(lambda text: text != "\0")


@pytest.fixture(scope="module", autouse=True)
def _unsynced() -> Iterator[None]:
    """Hundreds of small tables need not survive a power cut."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sawlog.storage.staging.sync_file", lambda path: None)
        patch.setattr("sawlog.storage.stores.sync_directory", lambda path: None)
        yield


def integers(bits: int) -> st.SearchStrategy[int]:
    return st.integers(-(1 << bits - 1) + 1, (1 << bits - 1) - 1)


def floats(width: Any) -> st.SearchStrategy[float]:
    lowest = float(np.finfo(np.float32 if width == 32 else np.float64).min)
    return st.floats(width=width, allow_nan=False).filter(lambda value: value != lowest)


def entries(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.dictionaries(TEXT, values, max_size=3).map(lambda mapping: list(mapping.items()))


DATES = st.integers(-700_000, 2_900_000)
NANOS = st.integers(0, 86_400 * 10**9 - 1)
ZONES = st.sampled_from(["UTC", "America/New_York"])

TYPES: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "byte": (pa.int8(), integers(8)),
    "short": (pa.int16(), integers(16)),
    "int": (pa.int32(), integers(32)),
    "long": (pa.int64(), integers(64)),
    "float": (pa.float32(), floats(32)),
    "double": (pa.float64(), floats(64)),
    "char": (pa.uint16(), st.integers(0, 0xFFFD)),
    "Boolean": (pa.bool_(), st.booleans()),
    "DateTime": (pa.timestamp("ns", "UTC"), integers(64)),
    "String(UTF-8)": (pa.dictionary(pa.int32(), pa.string()), TEXT),
    "String": (pa.dictionary(pa.int32(), pa.string()), LATIN),
    "String(None)": (pa.string(), LATIN),
    "String(None,US-ASCII)": (pa.string(), ASCII),
    "String(None,UTF-8)": (pa.string(), TEXT),
    "String(None,UTF-16)": (pa.string(), TEXT),
    "String(None,UTF-16BE)": (pa.string(), TEXT),
    "String(UTF-16LE)": (pa.dictionary(pa.int32(), pa.string()), TEXT),
    "StringSet": (pa.list_(pa.string()), st.lists(st.sampled_from([f"s{i}" for i in range(20)]), unique=True)),
    "Blob": (pa.binary(), st.binary(min_size=1, max_size=9)),
    "BigDecimal(10,2)": (pa.decimal128(10, 2), st.decimals(-99999999, 99999999, places=2)),
    "BigDecimal(38,0)": (pa.decimal128(38, 0), st.decimals(-(10**38) + 1, 10**38 - 1, places=0)),
    "BigDecimal(45,5)": (pa.decimal256(45, 5), st.decimals(-(10**40) + 1, 10**40 - 1, places=5)),
    "BigInteger(7)": (pa.decimal128(7, 0), st.decimals(-(1 << 23) + 1, (1 << 23) - 1, places=0)),
    "BigDecimal": (pa.string(), st.integers(-(10**40), 10**40).filter(lambda value: value % 10).map(str)),
    "BigInteger": (pa.string(), st.integers(-(10**40), 10**40).filter(lambda value: value % 10).map(str)),
    "LocalDate": (pa.date32(), DATES),
    "LocalDate(Compact)": (pa.date32(), DATES),
    "LocalTime": (pa.time64("ns"), NANOS),
    "LocalTime(6)": (pa.time64("ns"), NANOS.map(lambda value: value // 1000 * 1000)),
    "ZonedDateTime": (
        ColumnSpec(ColumnType.ZONED_DATE_TIME).choose_arrow_type(),
        st.fixed_dictionaries({"time": integers(64), "zone": ZONES}),
    ),
    "ByteArray": (pa.binary(), st.binary(min_size=1, max_size=9)),
    "ByteArray(3)": (pa.binary(), st.binary(min_size=3, max_size=3)),
    "StringDoubleMap": (pa.map_(pa.string(), pa.float64()), entries(floats(64) | st.none())),
    "StringFloatMap": (pa.map_(pa.string(), pa.float32()), entries(floats(32) | st.none())),
    "StringLongMap": (pa.map_(pa.string(), pa.int64()), entries(integers(64) | st.none())),
    "StringIntMap": (pa.map_(pa.string(), pa.int32()), entries(integers(32) | st.none())),
    "StringBooleanMap": (pa.map_(pa.string(), pa.bool_()), entries(st.booleans() | st.none())),
    "StringStringMap": (pa.map_(pa.string(), pa.string()), entries(TEXT)),
    "byte[]": (pa.list_(pa.int8()), st.lists(integers(8) | st.none(), max_size=4)),
    "short[]": (pa.list_(pa.int16()), st.lists(integers(16) | st.none(), max_size=4)),
    "int[]": (pa.list_(pa.int32()), st.lists(integers(32) | st.none(), max_size=4)),
    "long[]": (pa.list_(pa.int64()), st.lists(integers(64) | st.none(), max_size=4)),
    "float[]": (pa.list_(pa.float32()), st.lists(floats(32) | st.none(), max_size=4)),
    "double[]": (pa.list_(pa.float64()), st.lists(floats(64) | st.none(), max_size=4)),
    "char[]": (pa.list_(pa.uint16()), st.lists(st.integers(0, 0xFFFD) | st.none(), max_size=4)),
    "boolean[]": (pa.list_(pa.bool_()), st.lists(st.booleans(), max_size=4)),
}  # fmt: skip


def array(values: list[Any], kind: pa.DataType) -> pa.Array:
    if pa.types.is_dictionary(kind):
        return pa.array(values, pa.string()).dictionary_encode()
    return pa.array(values, kind)


def make_comparable(column: pa.ChunkedArray) -> list[Any]:
    """Values that can be compared: integers for times, bits for floats, sets without an order."""
    kind = column.type
    if pa.types.is_temporal(kind):
        return column.cast(pa.int32() if pa.types.is_date32(kind) else pa.int64()).to_pylist()
    if pa.types.is_struct(kind):
        times = column.combine_chunks().field("time").cast(pa.int64()).to_pylist()
        zones = column.combine_chunks().field("zone").to_pylist()
        return [
            pair if valid else None
            for valid, pair in zip(column.is_valid().to_pylist(), zip(times, zones, strict=True), strict=True)
        ]
    return column.to_pylist()


@st.composite
def tables(draw: st.DrawFn) -> tuple[pa.Table, dict[str, str]]:
    """A table of some columns, and their types."""
    names = draw(st.lists(st.sampled_from(sorted(TYPES)), min_size=1, max_size=6, unique=True))
    rows = draw(st.integers(1, 12))
    types = {f"c{index}": name for index, name in enumerate(names)}
    columns = {}
    for name, spelled in types.items():
        kind, values = TYPES[spelled]
        columns[name] = array(draw(st.lists(values | st.none(), min_size=rows, max_size=rows)), kind)
    return pa.table(columns), types


OPTIONS = st.fixed_dictionaries(
    {
        "column_version": st.sampled_from([1, 2]),
        "byteorder": st.sampled_from(["little", "big"]),
        "compact_header": st.booleans(),
    }
)


@settings(max_examples=2 * settings().max_examples)
@given(tables(), OPTIONS, st.lists(st.integers(0, 12), max_size=3))
def test_every_table_comes_back(
    drawn: tuple[pa.Table, dict[str, str]], options: dict[str, Any], cuts: list[int]
) -> None:
    table, types = drawn
    bounds = sorted({0, *(cut for cut in cuts if cut < len(table)), len(table)})
    parts = [table.slice(start, end - start) for start, end in itertools.pairwise(bounds)]
    # The byte order of a headerless file is not in it.
    read_options = {"byteorder": options["byteorder"]} if options["column_version"] == 2 else {}
    read_options |= {"column_version": options["column_version"]}
    with tempfile.TemporaryDirectory() as root:
        path = Path(root) / "t"
        sawlog.write(pa.concat_tables(parts), path, format="deephaven_table", types=types, **options)
        result_table = sawlog.read(path, format="deephaven_table", **read_options)
        assert result_table.schema.names == table.schema.names
        for name, spelled in types.items():
            assert result_table.schema.field(name).type == TYPES[spelled][0], spelled
            expected, read = make_comparable(table.column(name)), make_comparable(result_table.column(name))
            if spelled == "StringSet":
                expected, read = (
                    [entry if entry is None else sorted(entry) for entry in side] for side in (expected, read)
                )
            assert read == expected, spelled
        report = sawlog.verify(path, format="deephaven_table", **read_options)
        assert not report.damaged
        # Reading and writing again, with nothing said, makes the same files.
        sawlog.write(result_table, Path(root) / "again" / "t", format="deephaven_table", **options)
        for name in sorted(os.listdir(path)):
            if not any(spelled == "StringSet" and name.startswith(column) for column, spelled in types.items()):
                assert (Path(root) / "again" / "t" / name).read_bytes() == (path / name).read_bytes(), name


@given(
    st.lists(
        st.tuples(st.sampled_from(["A", "", None, "日", "B" * 300]), st.integers(1, 5)),
        min_size=1,
        max_size=5,
        unique_by=lambda group: group[0],
    ),
    st.integers(1, 5),
    st.sampled_from([pa.string(), pa.dictionary(pa.int32(), pa.string())]),
)
def test_groups_come_back(groups: list[tuple[str | None, int]], step: int, kind: pa.DataType) -> None:
    values = [value for value, count in groups for _ in range(count)]
    table = pa.table({"Sym": array(values, kind), "N": range(len(values))})
    pieces = [table.slice(start, step) for start in range(0, len(table), step)]
    with tempfile.TemporaryDirectory() as root:
        path = Path(root) / "t"
        sawlog.write(pa.concat_tables(pieces), path, format="deephaven_table", group=["Sym"], charset="UTF-8")
        result_values = sawlog.read(path, view="groups").to_pylist()
        ends = np.cumsum([count for _, count in groups]).tolist()
        assert [(row["first"], row["end"]) for row in result_values] == list(itertools.pairwise([0, *ends]))
        for value, _ in groups:
            if value is not None:
                rows = sawlog.read(path, filters=[("Sym", "==", value)]).column("N").to_pylist()
                assert rows == [i for i, row_value in enumerate(values) if row_value == value]


def test_every_type_has_a_schema() -> None:
    specs: dict[str, ColumnSpec | None] = {f"c{i}": parse_type(spelled, "x") for i, spelled in enumerate(TYPES)}
    specs["Date"] = None
    specs["simple"] = ColumnSpec(ColumnType.BYTE_ARRAY, arguments="3,simple")
    specs["utf8"] = ColumnSpec(ColumnType.UTF8_STRING)
    specs["grouped"] = ColumnSpec(ColumnType.INT, grouping=True)
    specs["odd"] = ColumnSpec(ColumnType.BLOB, class_name='a.B<"&>')
    data = build_schema_file(specs, 'N"s', "T&<>'", Generation())
    table = parse_schema("x.schema", data)
    assert (table.namespace, table.name, table.partition_column) == ('N"s', "T&<>'", "Date")
    assert table.order == tuple(specs)
    for column in table.columns:
        spec, expected = make_schema_spec(column, "x"), specs[column.name]
        if expected is None:
            continue
        assert (spec.type, spec.symbols, spec.arguments, spec.grouping) == (
            expected.type,
            expected.symbols,
            expected.arguments,
            expected.grouping,
        ), column
        if expected.type is ColumnType.STRING:
            assert spec.charset == expected.charset
    assert make_schema_spec(table.columns[-1], "x").class_name == 'a.B<"&>'


def test_an_empty_table_comes_back(tmp_path: Path) -> None:
    table = pa.table(
        {"A": pa.array([], pa.int32()), "S": pa.array([], pa.string()), "T": pa.array([], pa.list_(pa.int8()))}
    )
    for version in (1, 2):
        path = tmp_path / str(version)
        sawlog.write(table, path, format="deephaven_table", column_version=version)
        result_table = sawlog.read(path, format="deephaven_table", byteorder="little")
        assert result_table.num_rows == 0
        assert result_table.schema.names == ["A", "S", "T"]


def test_a_location_is_replaced_and_nothing_else(tmp_path: Path) -> None:
    first_table, two = pa.table({"A": [1], "B": [2]}), pa.table({"A": [3]})
    path = tmp_path / "t"
    sawlog.write(first_table, path, format="deephaven_table")
    sawlog.write(two, path, format="deephaven_table")
    assert sawlog.read(path).to_pylist() == [{"A": 3}]
    assert os.listdir(tmp_path) == ["t"]
    (path / "mine.txt").write_text("x")
    with pytest.raises(OptionError, match=r"holds 'mine\.txt', which does not belong to a location"):
        sawlog.write(first_table, path, format="deephaven_table")
    (tmp_path / "other" / "deep").mkdir(parents=True)
    (tmp_path / "other" / "deep" / "A.dat").write_bytes(b"x")
    with pytest.raises(OptionError, match="holds 'deep', which does not belong"):
        sawlog.write(first_table, tmp_path / "other", format="deephaven_table")
    (tmp_path / "hidden" / ".git").mkdir(parents=True)
    with pytest.raises(OptionError, match=r"holds '\.git'"):
        sawlog.write(first_table, tmp_path / "hidden", format="deephaven_table")
    (tmp_path / "file").write_bytes(b"x")
    with pytest.raises(OptionError, match="is a file"):
        sawlog.write(first_table, tmp_path / "file", format="deephaven_table")
    assert sorted(os.listdir(tmp_path)) == ["file", "hidden", "other", "t"]


def test_replacing_what_a_link_leads_to(tmp_path: Path) -> None:
    sawlog.write(pa.table({"A": [1]}), tmp_path / "real", format="deephaven_table")
    (tmp_path / "t").symlink_to(tmp_path / "real")
    sawlog.write(pa.table({"A": [2]}), tmp_path / "t", format="deephaven_table")
    assert sawlog.read(tmp_path / "t").to_pylist() == [{"A": 2}]
    assert sawlog.read(tmp_path / "real").to_pylist() == [{"A": 2}]
    assert (tmp_path / "t").is_symlink()
    assert sorted(os.listdir(tmp_path)) == ["real", "t"]


def test_a_failure_leaves_what_was_there(tmp_path: Path) -> None:
    sawlog.write(pa.table({"A": [1]}), tmp_path / "t", format="deephaven_table")
    with pytest.raises(sawlog.SchemaError, match="row 0"):
        sawlog.write(pa.table({"A": [-(1 << 63)]}), tmp_path / "t", format="deephaven_table")
    assert sawlog.read(tmp_path / "t").to_pylist() == [{"A": 1}]
    assert os.listdir(tmp_path) == ["t"]


@pytest.mark.nightly
def test_locations_in_object_stores_are_replaced_and_read(s3: dict[str, Any]) -> None:
    table = pa.table({"A": [1, 2], "S": ["x", None]})
    for root, options in (("memory://deephaven", {}), ("s3://logs/deephaven", s3)):
        path = f"{root}/t"
        for _ in range(2):
            sawlog.write(table, path, format="deephaven_table", group=["A"], storage_options=options)
        assert sawlog.read(path, storage_options=options).to_pylist() == table.to_pylist()


def test_a_broken_schema_file_is_not_used(tmp_path: Path) -> None:
    path = tmp_path / "t"
    sawlog.write(pa.table({"A": [1.5]}), path, format="deephaven_table")
    (path / "table.schema").write_bytes(b"<!DOCTYPE x><Table/>")
    assert sawlog.read(path, types={"A": "double"}).to_pylist() == [{"A": 1.5}]
    with pytest.warns(UserWarning, match="types were inferred"), pytest.raises(IncompleteError, match="a DTD"):
        sawlog.read(path)


def test_one_column_is_read_by_its_file(tmp_path: Path) -> None:
    sawlog.write(pa.table({"A": [1.5], "B": [2]}), tmp_path / "t", format="deephaven_table")
    assert sawlog.read(tmp_path / "t" / "A.dat", format="deephaven_table").to_pylist() == [{"A": 1.5}]


def test_the_partitioning_column_keeps_its_place(tmp_path: Path) -> None:
    date = pa.field("Date", pa.string(), metadata={"sawlog.partition": "column"})
    schema = pa.schema([pa.field("A", pa.int64()), date, pa.field("B", pa.float64())])
    table = pa.table({"A": [1], "Date": ["2024-05-06"], "B": [1.5]}, schema)
    path = tmp_path / "Intraday" / "Ns" / "T" / "vm" / "2024-05-06" / "T"
    sawlog.write(table, path, format="deephaven_table")
    assert sawlog.read(tmp_path / "Intraday").to_pylist() == table.to_pylist()
    assert sawlog.read(tmp_path / "Intraday").schema.names == ["A", "Date", "B"]


def test_logs_become_locations(tmp_path: Path) -> None:
    log = tmp_path / "Ns.T.System.vm.2024-05-06.bin.2024-05-06.000000.000+0000"
    table = pa.table(
        {
            "Sym": ["A", "日", None],
            "Side": pa.array(["Buy", None, "Sell"]).dictionary_encode(),
            "At": pa.array([1, 2, None], pa.timestamp("ms", "UTC")),
            "N": pa.array([1, None, 3], pa.int8()),
            "Raw": [b"a", b"bb", None],
        }
    )
    sawlog.write(table, log, format="deephaven_log")
    path = tmp_path / "Intraday" / "Ns" / "T" / "vm" / "2024-05-06" / "T"
    sawlog.write(sawlog.open(log, timestamp_columns={"At": "ms"}), path, format="deephaven_table")
    result_table = sawlog.read(tmp_path / "Intraday")
    assert result_table.schema.names == [*table.schema.names, "Date"]
    assert result_table.column("Date").to_pylist() == ["2024-05-06"] * 3
    assert result_table.column("At").cast(pa.int64()).to_pylist() == [1_000_000, 2_000_000, None]
    for name in ("Sym", "Side", "N", "Raw"):
        assert result_table.column(name).to_pylist() == table.column(name).to_pylist()


def test_tables_of_polars_and_pandas(tmp_path: Path) -> None:
    frame = pl.DataFrame(
        {
            "Sym": ["A", "A", None],
            "Cat": ["x", "y", None],
            "Px": [1.5, None, 2.5],
            "L": [[1, 2], None, []],
            "D": [1, 2, 3],
        },
        schema_overrides={"Cat": pl.Categorical, "D": pl.Date},
    )
    sawlog.write(frame, tmp_path / "polars", format="deephaven_table", group=["Sym"])
    table = sawlog.read(tmp_path / "polars")
    assert [list(row.values()) for row in table.to_pylist()] == [list(row) for row in frame.rows()]
    sawlog.write(
        frame.to_pandas(date_as_object=True), tmp_path / "pandas", format="deephaven_table", types={"L": "long[]"}
    )
    assert sawlog.read(tmp_path / "pandas").column("Px").to_pylist() == [1.5, None, 2.5]


@pytest.mark.parametrize(
    "kind",
    [
        pa.decimal128(12, 2),
        pa.decimal256(39, 19),
        pa.string(),
        pa.date32(),
        pa.list_(pa.int32()),
        pa.binary(),
        pa.float64(),
        pa.dictionary(pa.int32(), pa.string()),
    ],
    ids=str,
)
def test_a_batch_without_rows(tmp_path: Path, kind: pa.DataType) -> None:
    batch = pa.RecordBatch.from_arrays([pa.array([], kind)], names=["x"])
    sawlog.write(batch, tmp_path / "T", format="deephaven_table")
    assert sawlog.read(tmp_path / "T").num_rows == 0

"""Rows of locations against an encoder of another make: both generations, both byte orders, any cut."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import sawlog
from sawlog.errors import OptionError, SchemaError
from sawlog.format.damage import DamageWarning

from .reference import Shape, int_array, put, put_fixed, put_rows, put_symbols, put_text, put_variable

INTEGER_BITS = {"byte": 8, "short": 16, "int": 32, "long": 64, "DateTime": 64}
TYPES = {
    **{f"c{kind}": kind for kind in ("byte", "short", "int", "long", "float", "double", "char", "Boolean", "DateTime")},
    "csym": "String",
    "ctext": "String(None)",
}
SHAPES = st.builds(
    Shape, version=st.sampled_from([1, 2]), little=st.booleans(), start=st.sampled_from([8 + 5, 16, 64, 4096, 131072])
)


def values_of(kind: str) -> st.SearchStrategy[Any]:
    if kind in INTEGER_BITS:
        bound = 1 << INTEGER_BITS[kind] - 1
        return st.integers(1 - bound, bound - 1)
    if kind == "float":
        return st.floats(width=32, min_value=-(2.0**100))
    if kind == "double":
        return st.floats(min_value=-1e300)
    if kind == "char":
        return st.integers(0, 0xFFFD)
    if kind == "Boolean":
        return st.booleans()
    letters = st.text(st.characters(min_codepoint=1, max_codepoint=0xFF), max_size=5)
    return letters | st.sampled_from(["", "AAPL", "MSFT"])


@st.composite
def tables(draw: st.DrawFn) -> dict[str, list[Any]]:
    rows = draw(st.integers(0, 12))
    return {
        name: draw(st.lists(st.none() | values_of(kind.partition("(")[0]), min_size=rows, max_size=rows))
        for name, kind in TYPES.items()
    }


def encode(directory: Path, table: dict[str, list[Any]], shape: Shape) -> None:
    for name, values in table.items():
        if name == "csym":
            put_symbols(directory, name, values, shape, forget=2)
        elif name == "ctext":
            put_text(directory, name, values, shape)
        else:
            put_fixed(directory, name, TYPES[name], values, shape)


def show_values(values: list[Any]) -> list[str]:
    """Values that can be compared: NaN equals NaN, and times are numbers."""
    return [repr(getattr(value, "value", value)) for value in values]


def columns(table: pa.Table) -> dict[str, list[Any]]:
    flat = {name: table.column(name) for name in table.schema.names}
    return {
        name: column.cast(pa.int64()).to_pylist() if pa.types.is_timestamp(column.type) else column.to_pylist()
        for name, column in flat.items()
    }


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(table=tables(), shape=SHAPES)
def test_every_type_is_read_in_every_shape(tmp_path_factory: pytest.TempPathFactory, table: Any, shape: Shape) -> None:
    directory = tmp_path_factory.mktemp("location")
    encode(directory, table, shape)
    order = "little" if shape.little else "big"
    read_columns = columns(sawlog.read(directory, types=TYPES, format="deephaven_table", byteorder=order))
    assert list(read_columns) == list(TYPES)
    for name, values in table.items():
        assert show_values(read_columns[name]) == show_values(values), name


@pytest.mark.parametrize("little", [True, False])
def test_headerless_files_tell_their_byte_order(tmp_path: Path, little: bool) -> None:
    shape = Shape(version=2, little=little)
    put_fixed(tmp_path, "n", "int", [1, 2, None], shape)
    put_symbols(tmp_path, "s", ["a", "b", "a"], shape)
    put_rows(tmp_path, 3)
    table = sawlog.read(tmp_path, types={"n": "int"})
    assert table.to_pydict() == {"n": [1, 2, None], "s": ["a", "b", "a"]}
    (facts,) = {row["byte_order"] for row in sawlog.read(tmp_path, types={"n": "int"}, view="columns").to_pylist()}
    assert facts == ("little" if little else "big")


def test_headerless_numbers_are_taken_for_little_endian_and_said_so(tmp_path: Path) -> None:
    put_fixed(tmp_path, "n", "int", [1, 2], Shape(version=2))
    put_rows(tmp_path, 2)
    with pytest.warns(UserWarning, match="the byte order of these headerless files is unknown") as warning_records:
        assert sawlog.read(tmp_path, types={"n": "int"}).to_pydict() == {"n": [1, 2]}
    assert len(warning_records) == 1
    assert sawlog.read(tmp_path, types={"n": "int"}, byteorder="big").to_pydict() == {"n": [1 << 24, 2 << 24]}


def test_headerless_data_that_looks_like_a_header(tmp_path: Path) -> None:
    """0 and 16 as big-endian ints are a header without metadata; the other column proves that there are none."""
    put_fixed(tmp_path, "n", "int", [0, 16, 1, 2, 3, 4], Shape(version=2, little=False))
    put_fixed(tmp_path, "m", "int", [-1, 16, 1, 2, 3, 4], Shape(version=2, little=False))
    types = {"n": "int", "m": "int"}
    put_rows(tmp_path, 6)
    assert sawlog.read(tmp_path, types=types, byteorder="big").to_pydict()["n"] == [0, 16, 1, 2, 3, 4]
    columns = sawlog.read(tmp_path, types=types, byteorder="big", column_version=2).to_pydict()
    assert columns["n"] == [0, 16, 1, 2, 3, 4]


def test_all_the_nulls_that_there_are(tmp_path: Path) -> None:
    shape = Shape()
    put(tmp_path, "b", shape, bytes([0xFF, 0x80, 0, 1, 7]))
    put(tmp_path, "c", shape, struct.pack("<5H", 0xFFFE, 0xFFFF, 0, 65, 0xFFFD))
    put(tmp_path, "f", shape, bytes.fromhex("ffff7fff 00007fff 000080ff 0000c07f feff7fff"))
    types = {"b": "Boolean", "c": "char", "f": "float"}
    columns = sawlog.read(tmp_path, types=types).to_pydict()
    assert columns["b"] == [None, None, False, True, True]
    assert columns["c"] == [None, None, 0, 65, 0xFFFD]
    assert columns["f"][0] is None
    assert columns["f"][1] == struct.unpack("<f", bytes.fromhex("00007fff"))[0]
    assert columns["f"][2] == float("-inf")
    plain_columns = sawlog.read(tmp_path, types=types, sentinels_as_null=False).to_pydict()
    assert plain_columns["c"] == [0xFFFE, 0xFFFF, 0, 65, 0xFFFD]
    assert plain_columns["b"] == columns["b"]
    assert sawlog.read(tmp_path, types=types, char="string").column("c").to_pylist()[3] == "A"


def test_fixed_width_columns_are_views_of_the_file(tmp_path: Path) -> None:
    put_fixed(tmp_path, "n", "long", list(range(100_000)), Shape(start=131072))
    before = pa.total_allocated_bytes()
    (batch,) = sawlog.open(tmp_path, types={"n": "long"}, memory_map=True).to_batches()
    assert pa.total_allocated_bytes() - before < 10_000
    assert batch.column(0).buffers()[0] is None
    assert batch.column(0)[99_999].as_py() == 99_999


def test_symbols_that_were_forgotten_and_given_again_are_one(tmp_path: Path) -> None:
    values = ["a", "b", "c", "a", None, "", "b", "a"]
    put_symbols(tmp_path, "s", values, Shape(), forget=2)
    (batch,) = sawlog.open(tmp_path).to_batches()
    assert batch.column(0).to_pylist() == values
    assert sorted(batch.column(0).dictionary.to_pylist()) == ["", "a", "b", "c"]
    (row,) = sawlog.read(tmp_path, view="columns").to_pylist()
    assert row["symbols"] > row["distinct_symbols"] == 4


@pytest.mark.parametrize(
    ("charset", "codec", "text"),
    [
        ("UTF-8", "utf-8", "zwölf €"),
        ("US-ASCII", "ascii", "twelve"),
        ("UTF_16", "utf-16", "zwölf €"),
        ("UTF-16BE", "utf-16-be", "zwölf €"),
        ("UTF-16LE", "utf-16-le", "zwölf €"),
        ("ISO_8859_1", "latin-1", "zwölf"),
    ],
)
def test_text_is_read_by_the_charset_of_its_column(tmp_path: Path, charset: str, codec: str, text: str) -> None:
    put_text(tmp_path, "t", [text, None, "", "x"], Shape(), codec)
    table = sawlog.read(tmp_path, types={"t": f"String(None,{charset})"})
    assert table.column("t").to_pylist() == [text, None, "", "x"]


def test_arrays_of_primitives(tmp_path: Path) -> None:
    stored = [int_array(1, -2, -(1 << 31)), b"", int_array(), bytes.fromhex("aced000570"), int_array(7)]
    put_variable(tmp_path, "a", stored, Shape())
    table = sawlog.read(tmp_path)
    assert table.schema.field("a").type == pa.list_(pa.int32())
    assert table.column("a").to_pylist() == [[1, -2, None], None, [], None, [7]]


def test_sets_of_symbols(tmp_path: Path) -> None:
    shape = Shape()
    put_symbols(tmp_path, "s", ["a", "b", "c"], shape)
    put(tmp_path, "s", shape, struct.pack("<4q", 0b101, 0, -(1 << 63), 0b010))
    put_rows(tmp_path, 4)
    assert sawlog.read(tmp_path).column("s").to_pylist() == [["a", "c"], [], None, ["b"]]


def test_batches_of_wide_values_are_smaller(tmp_path: Path) -> None:
    """Of a small file: what a row may become is bounded, not only what it takes up."""
    rows = 40
    shape = Shape(start=16)
    put(tmp_path, "b", shape, b"\x00" * ((1 << 20) + 1) * rows)
    table = sawlog.open(tmp_path, types={"b": "ByteArray(1048576)"}, num_rows=rows)
    assert [batch.num_rows for batch in table.to_batches()] == [15, 15, 10]
    sets = tmp_path / "sets"
    put_symbols(sets, "s", ["x" * (1 << 20), "y" * (1 << 20)], shape)
    put(sets, "s", shape, struct.pack("<3000q", *[3] * 3000))
    dataset = sawlog.open(sets, types={"s": "StringSet"}, num_rows=3000)
    first = next(dataset.to_batches())
    assert first.num_rows == 63
    assert len(first.column(0)[0].as_py()[1]) == 1 << 20


def test_tables_of_many_columns_make_no_huge_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sawlog.deephaven.table.fragments.BATCH_BYTES", 120)
    for name in "abc":
        put_fixed(tmp_path, name, "long", list(range(12)), Shape())
    types = dict.fromkeys("abc", "long")
    assert [batch.num_rows for batch in sawlog.open(tmp_path, types=types).to_batches()] == [5, 5, 2]
    assert [batch.num_rows for batch in sawlog.open(tmp_path, types=types, columns=["a"]).to_batches()] == [12]


def test_opaque_objects_are_binary(tmp_path: Path) -> None:
    java = bytes.fromhex("aced0005737200")
    put_variable(tmp_path, "o", [java, b""], Shape())
    with pytest.warns(UserWarning, match="serialized objects"):
        table = sawlog.read(tmp_path)
    assert table.column("o").to_pylist() == [java, None]


def test_any_cut_gives_the_same_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sawlog.deephaven.table.dataset.BATCH_ROWS", 7)
    monkeypatch.setattr("sawlog.deephaven.table.fragments.BATCH_ROWS", 7)
    monkeypatch.setattr("sawlog.deephaven.table.columns.BATCH_BYTES", 20)
    rows = 100
    put_fixed(tmp_path, "n", "long", list(range(rows)), Shape())
    put_text(tmp_path, "t", ["x" * (i % 11) for i in range(rows)], Shape())
    put_symbols(tmp_path, "s", [f"s{i % 5}" for i in range(rows)], Shape())
    dataset = sawlog.open(tmp_path, types={"n": "long", "t": "String(None)"}, provenance=True)
    table = dataset.to_table()
    assert table.column("_offset").to_pylist() == list(range(rows))
    assert set(table.column("_file").to_pylist()) == {str(tmp_path)}
    for task in (1, 200, 1000, 1 << 20):
        fragments = dataset.fragments(task)
        parts = [batch for fragment in fragments for batch in fragment.to_batches()]
        assert pa.Table.from_batches(parts, dataset.schema).to_pydict() == table.to_pydict()
    assert len(dataset.fragments(1)) > 10
    assert dataset.count_rows() == rows
    assert dataset.head(3).num_rows == 3


def test_columns_are_read_by_themselves(tmp_path: Path) -> None:
    put_fixed(tmp_path, "n", "int", [1, 2], Shape())
    put_fixed(tmp_path, "m", "int", [3, 4], Shape())
    put_rows(tmp_path, 2)
    types = {"n": "int", "m": "int"}
    (tmp_path / "m.dat").write_bytes(b"\x80\x00\x00\x05 no header")
    assert sawlog.read(tmp_path, types=types, columns=["n"]).to_pydict() == {"n": [1, 2]}
    assert sawlog.read(tmp_path / "n.dat", types={"n": "int"}).to_pydict() == {"n": [1, 2]}


@pytest.mark.parametrize(
    ("types", "message"),
    [
        ({"n": "integre"}, "unknown type"),
        ({"x": "int"}, "no column 'x'"),
        ({"n": "BigDecimal(2,5)"}, "scale within it"),
        ({"n": "int(3)"}, "takes no arguments"),
        ({"n": "String(None,KOI8)"}, "a charset"),
        ({"n": "LocalTime(12)"}, "cannot have the arguments"),
    ],
)
def test_types_that_cannot_be(tmp_path: Path, types: dict[str, str], message: str) -> None:
    put_fixed(tmp_path, "n", "int", [1], Shape())
    with pytest.raises(OptionError, match=message):
        sawlog.read(tmp_path, types=types)


def test_a_type_that_the_files_contradict_is_refused(tmp_path: Path) -> None:
    put_text(tmp_path, "t", ["a"], Shape())
    with pytest.raises(SchemaError, match=r"is double, yet it has a \.bytes file"):
        sawlog.read(tmp_path, types={"t": "double"})


def test_types_as_text(tmp_path: Path) -> None:
    put_fixed(tmp_path, "n", "int", [1], Shape())
    put(tmp_path, "d", Shape(), bytes.fromhex("010000000096"))
    put_text(tmp_path, "t", ["ü"], Shape(), "utf-8")
    table = sawlog.read(tmp_path, types="n=int, d=BigDecimal(10,2),t=String(None,UTF-8)")
    assert [str(value) for value in table.to_pylist()[0].values()] == ["1", "1.50", "ü"]


def test_rows_by_the_order_of_trust(tmp_path: Path) -> None:
    types = {"n": "int", "m": "long"}
    put_fixed(tmp_path, "n", "int", [1, 2, 3, 4], Shape())
    put_fixed(tmp_path, "m", "long", [1, 2, 3], Shape())

    def rows(**options: Any) -> tuple[int, str]:
        facts = sawlog.read(tmp_path, types=types, view="columns", **options).to_pylist()[0]
        read = sawlog.read(tmp_path, types=types, on_damage="skip", **options)
        assert read.num_rows == facts["rows"]
        return facts["rows"], facts["row_count_source"]

    with pytest.warns(DamageWarning, match=r"hold 3 \(m\) to 4 \(n\) rows"):
        assert rows() == (3, "files")
    put_rows(tmp_path, 2)
    assert rows() == (2, "table.size")
    assert rows(num_rows=1) == (1, "num_rows")
    with pytest.raises(OptionError, match="the longest column has 4 rows"):
        rows(num_rows=5)

    def checkpoint(count: int, sizes: dict[str, int], order: str) -> None:
        record = b"\x00\x00\x00\x03" + count.to_bytes(8, order)
        for name, size in sizes.items():
            record += struct.pack(">H", len(name)) + name.encode() + size.to_bytes(8, order)
        (tmp_path / "table.size").write_bytes(record)

    for order in ("big", "little"):
        checkpoint(3, {"n.dat": 12, "m.dat": 24}, order)
        assert rows() == (3, "checkpoint-heuristic")
    for lie in ({"n.dat": 12, "m.dat": 16}, {"n.dat": 400, "m.dat": 800}, {"n.dat": 11}, {"other.dat": 12}):
        checkpoint(3, lie, "big")
        with pytest.warns(DamageWarning, match="no row count is known"):
            assert rows() == (3, "files")
    (tmp_path / "table.size").write_bytes(struct.pack(">i", -(1 << 31)))
    with pytest.warns(DamageWarning, match="no row count is known"):
        assert rows() == (3, "files")


def test_room_that_was_reserved_is_suspected(tmp_path: Path) -> None:
    types = {"n": "int", "m": "long"}
    put_fixed(tmp_path, "n", "int", [1, 2, *[0] * 100], Shape())
    put_fixed(tmp_path, "m", "long", [1, 2, *[0] * 100], Shape())
    with pytest.warns(DamageWarning, match="its 102 rows end in zeros in every column"):
        assert sawlog.read(tmp_path, types=types).num_rows == 102
    assert sawlog.read(tmp_path, types=types, num_rows=2).num_rows == 2
    put_fixed(tmp_path, "m", "long", [1, 2, *[7] * 100], Shape())
    assert sawlog.read(tmp_path, types=types).num_rows == 102


def test_a_version_that_is_given_is_taken_at_its_word(tmp_path: Path) -> None:
    data = Shape().header() + struct.pack("<2i", 1, 2)
    reserved = data[:4] + bytes([data[4] | 0x80]) + data[5:]
    (tmp_path / "n.dat").write_bytes(reserved)
    put_rows(tmp_path, 2)
    assert sawlog.read(tmp_path, types={"n": "int"}, column_version=1).to_pydict() == {"n": [1, 2]}
    assert sawlog.read(tmp_path, types={"n": "int"}, column_version="1").to_pydict() == {"n": [1, 2]}


def test_rows_after_the_committed_ones_are_not_read(tmp_path: Path) -> None:
    put_fixed(tmp_path, "n", "int", [1, 2, 3], Shape())
    with (tmp_path / "n.dat").open("ab") as file:
        file.write(b"\x05\x00")
    put_text(tmp_path, "t", ["a", "b", "later"], Shape())
    put_rows(tmp_path, 2)
    types = {"n": "int", "t": "String(None)"}
    assert sawlog.read(tmp_path, types=types).to_pydict() == {"n": [1, 2], "t": ["a", "b"]}
    report = sawlog.verify(tmp_path, types=types)
    assert not report.damaged
    assert report.rows == 2
    assert report.account.total == sum(file.stat().st_size for file in tmp_path.iterdir())
    tails = {Path(file.path).name: (file.tail.status, file.tail.length) for file in report.files}
    assert tails["n.dat"] == ("open", 6)
    assert tails["t.bytes"] == ("open", 5)


def test_a_location_that_has_grown_since(tmp_path: Path) -> None:
    put_fixed(tmp_path, "n", "int", [1], Shape())
    put_rows(tmp_path, 1)
    dataset = sawlog.open(tmp_path, types={"n": "int"})
    put_fixed(tmp_path, "n", "int", [1, 2, 3], Shape())
    put_rows(tmp_path, 3)
    assert dataset.to_table().to_pydict() == {"n": [1, 2, 3]}


def test_a_location_that_was_truncated_since(tmp_path: Path) -> None:
    put_fixed(tmp_path, "n", "int", [1, 2, 3], Shape())
    put_rows(tmp_path, 3)
    (fragment,) = sawlog.open(tmp_path, types={"n": "int"}).fragments()
    put_rows(tmp_path, 1)
    assert [batch.to_pydict() for batch in fragment.to_batches()] == [{"n": [1]}]

"""What a location must have and lacks: incomplete, never clean."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import sawlog
from sawlog.errors import DamageError, FormatError, IncompleteError, SchemaError
from sawlog.format.damage import DamageWarning, Verdict
from sawlog.format.recognition import find_parts
from sawlog.storage import Storage

from .reference import Shape, put_fixed, put_rows, put_symbols, put_text

pytestmark = pytest.mark.filterwarnings("ignore:.*types were inferred:UserWarning")

TABLE = pa.table({"Id": range(3), "Px": [0.5, 1.5, 2.5], "Sym": ["a", "b", "a"]})


def write_partitions(directory: Path) -> Path:
    sawlog.write(TABLE, directory, format="deephaven_table")
    return directory


def partial(path: Path, match: str, **options: Any) -> pa.Table:
    """What is read of an incomplete location, once it was seen that it is reported."""
    with pytest.raises(IncompleteError, match=match):
        sawlog.read(path, format="deephaven_table", **options)
    report = sawlog.verify(path, format="deephaven_table", **options)
    assert report.verdict is Verdict.INCOMPLETE
    with pytest.warns(DamageWarning, match=match):
        return sawlog.read(path, format="deephaven_table", on_damage="skip", **options)


@pytest.mark.parametrize("name", ["Id", "Px", "Sym"])
def test_a_column_that_the_schema_names_and_that_has_no_data(tmp_path: Path, name: str) -> None:
    (write_partitions(tmp_path) / f"{name}.dat").unlink()
    table = partial(tmp_path, rf"{name}\.dat: .*restore the file")
    nulls = pa.nulls(3, table.schema.field(name).type).to_pylist()
    assert table.to_pydict() == {**TABLE.to_pydict(), name: nulls}
    other_names = [column for column in TABLE.schema.names if column != name]
    assert sawlog.read(tmp_path, columns=other_names).to_pydict() == TABLE.select(other_names).to_pydict()


@pytest.mark.parametrize("name", ["s.dat", "t.dat"])
def test_a_column_of_which_only_other_files_are_there(tmp_path: Path, name: str) -> None:
    put_symbols(tmp_path, "s", ["a", "b"], Shape())
    put_text(tmp_path, "t", ["a", "b"], Shape())
    put_fixed(tmp_path, "n", "int", [1, 2], Shape())
    put_rows(tmp_path, 2)
    (tmp_path / name).unlink()
    types = {"s": "String", "t": "String(None)", "n": "int"}
    assert partial(tmp_path, "other files are there", types=types)[name[0]].null_count == 2
    assert partial(tmp_path, "other files are there")["n"].to_pylist() == [1, 2]


def test_symbols_without_their_offsets_are_no_numbers(tmp_path: Path) -> None:
    put_symbols(tmp_path, "s", ["a", "b"], Shape())
    put_rows(tmp_path, 2)
    (tmp_path / "s.sym").unlink()
    with pytest.raises(IncompleteError, match=r"s\.sym: missing_file"):
        sawlog.read(tmp_path, format="deephaven_table")
    assert sawlog.verify(tmp_path, format="deephaven_table").verdict is not Verdict.CLEAN


@pytest.mark.parametrize("length", [0, 1, 40, 160, 200])
def test_a_schema_that_is_cut(tmp_path: Path, length: int) -> None:
    file = write_partitions(tmp_path) / "table.schema"
    data = file.read_bytes()
    file.write_bytes(data[:length])
    assert partial(tmp_path, r"table\.schema: .*types were inferred")["Id"].to_pylist() == [0, 1, 2]
    (tmp_path.parent / "given.schema").write_bytes(data)
    table = sawlog.read(tmp_path, schema=str(tmp_path.parent / "given.schema"))
    assert table.to_pydict() == TABLE.to_pydict()


def test_a_schema_that_the_files_of_a_column_contradict(tmp_path: Path) -> None:
    """Read without types of the reader's own, it is the schema that cannot be right."""
    file = write_partitions(tmp_path) / "table.schema"
    schema = file.read_text()
    changed = re.sub(r'(name="Sym"[^>]*dataType=")[^"]*', r"\1int", schema)
    assert changed != schema
    file.write_text(changed)
    assert partial(tmp_path, r"table\.schema: .*'Sym' is int, yet it has a \.sym file").num_rows == 3
    with pytest.raises(SchemaError, match=r"the wrong one was given"):
        sawlog.read(tmp_path, types={"Sym": "int"})


@pytest.mark.parametrize("length", [None, 0, 1, 3])
def test_a_count_of_rows_that_is_gone_or_cut(tmp_path: Path, length: int | None) -> None:
    file = write_partitions(tmp_path) / "table.size"
    file.write_bytes(file.read_bytes()[:length]) if length is not None else file.unlink()
    assert partial(tmp_path, r"table\.size: .*num_rows=").to_pydict() == TABLE.to_pydict()
    assert sawlog.read(tmp_path, num_rows=3).to_pydict() == TABLE.to_pydict()
    assert sawlog.verify(tmp_path, num_rows=3).verdict is Verdict.CLEAN


def test_columns_of_differing_lengths_without_a_count(tmp_path: Path) -> None:
    put_fixed(tmp_path, "n", "int", [1, 2, 3], Shape())
    put_fixed(tmp_path, "m", "int", [1, 2], Shape())
    types = {"n": "int", "m": "int"}
    assert partial(tmp_path, r"2 \(m\) to 3 \(n\) rows", types=types)["n"].to_pylist() == [1, 2]


@pytest.mark.parametrize("size", [0, 1, 70])
def test_a_file_too_short_to_show_its_type(tmp_path: Path, size: int) -> None:
    put_fixed(tmp_path, "n", "int", range(10), Shape())
    put_fixed(tmp_path, "m", "long", range(10), Shape())
    put_rows(tmp_path, 10)
    file = tmp_path / "m.dat"
    file.write_bytes(file.read_bytes()[:size])
    with pytest.raises(DamageError, match=r"m\.dat: (bad_header|short_file)"):
        sawlog.read(tmp_path, format="deephaven_table")
    assert sawlog.verify(tmp_path, format="deephaven_table").verdict is Verdict.DAMAGED


def test_a_location_of_a_historical_tree_that_lacks_what_others_have(tmp_path: Path) -> None:
    for internal in ("0", "1"):
        for day in ("2024-01-01", "2024-01-02", "2024-01-03"):
            place = tmp_path / "db" / "Systems" / "Ns" / "Partitions" / internal / day / "T"
            put_fixed(place, "n", "int", [1, 2], Shape())
            if day != "2024-01-01":  # the column came later
                put_fixed(place, "m", "int", [1, 2], Shape())
            put_rows(place, 2)
    types = {"n": "int", "m": "int"}
    assert sawlog.verify(tmp_path / "db", types=types).verdict is Verdict.CLEAN
    partitions = tmp_path / "db" / "Systems" / "Ns" / "Partitions"
    path = partitions / "1" / "2024-01-03" / "T" / "m.dat"
    data = path.read_bytes()
    path.unlink()
    assert partial(tmp_path / "db", "2024-01-03/T/m.dat: .*other locations have", types=types)["m"].null_count == 6
    path.write_bytes(data)
    for internal in ("0", "1"):
        (partitions / internal / "2024-01-02" / "T" / "n.dat").unlink()
    assert partial(tmp_path / "db", "2024-01-02/T/n.dat: .*other locations have", types=types)["n"].null_count == 4


def test_a_name_is_not_content(tmp_path: Path) -> None:
    """Minecraft has a `level.dat`, too. A location whose header is damaged is read where the format is named."""
    (tmp_path / "level.dat").write_bytes(bytes.fromhex("0a000000b00400000a00000d00") + b"FlatWorldLayers" * 80)
    (part,) = find_parts(Storage().find(str(tmp_path)), Storage())
    assert part.format is None
    with pytest.raises(FormatError, match="not recognised"):
        sawlog.open(tmp_path)
    with pytest.warns(UserWarning, match="byte order of these headerless files is unknown"):
        assert sawlog.open(tmp_path, format="deephaven_table").count_rows() > 0
    (tmp_path / "level.dat").unlink()
    (write_partitions(tmp_path) / "Id.dat").write_bytes(bytes(300))
    (part,) = find_parts(Storage().find(str(tmp_path)), Storage())
    assert part.format is not None
    assert part.format.name == "deephaven_table"


@pytest.mark.parametrize("over", [1, 7])
def test_a_column_that_ends_within_a_value(over: int, tmp_path: Path) -> None:
    """Nothing says how many rows there are, and yet the file was cut."""
    put_fixed(tmp_path / "T", "n", "long", [1, 2, 3], Shape())
    file = tmp_path / "T" / "n.dat"
    file.write_bytes(file.read_bytes()[: -8 + over])
    table = partial(tmp_path / "T", f"the last {over} bytes of column n are no whole value of 8", types={"n": "long"})
    assert table["n"].to_pylist() == [1, 2]

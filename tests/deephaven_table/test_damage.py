"""Bad input: whatever the bytes are, a clear error or described damage, and everything intact delivered."""

from __future__ import annotations

import struct
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import sawlog
from sawlog.errors import DamageError, IncompleteError
from sawlog.testing import Outcome, Sample, check
from tests.unit_of_loss import assert_lost_by_unit

from .reference import Shape, int_array, put, put_fixed, put_rows, put_symbols, put_text, put_variable

HEADER = 64


def skipping(
    directory: Path, types: dict[str, str], **options: Any
) -> tuple[dict[str, list[Any]], list[dict[str, Any]]]:
    """What is delivered past damage, and the damage; the location keeps the laws."""
    outcome = checked(directory, laws=(), types=types, **options)
    listed = [asdict(damage) for report in outcome.reports for damage in report.damages]
    return outcome.table.to_pydict(), [{"file": damage.pop("path"), **damage} for damage in listed]


def checked(directory: Path, laws: Any = None, **options: Any) -> Outcome:
    files = {path.name: path.read_bytes() for path in directory.iterdir()}
    location = Sample("location", "deephaven_table", files, ordered=False, repaired="no", advisory=["bad_metadata"])
    return check(location, laws=laws, **options)


def only(damages: list[dict[str, Any]]) -> tuple[str, int, int, str]:
    (damage,) = damages
    return Path(damage["file"]).name, damage["offset"], damage["length"], damage["kind"]


def fails(directory: Path, types: dict[str, str], message: str) -> None:
    with pytest.raises(DamageError, match=message):
        sawlog.read(directory, types=types)


def test_offsets_that_go_back_or_out(tmp_path: Path) -> None:
    types = {"t": "String(None)"}
    for ends, values, bad in (
        ([1, 3, 2, 4, 5], ["a", "bc", None, "cd", "e"], (2, 1)),
        ([1, 2, 99, 4, 5], ["a", "b", None, None, "e"], (2, 2)),
        ([1, 2, -3, 4, 5], ["a", "b", None, None, "e"], (2, 2)),
        ([1 << 62, 2, 3, 4, 5], [None, None, "c", "d", "e"], (0, 2)),
    ):
        shape = Shape()
        put(tmp_path, "t", shape, shape.pack("q", ends), bytes=b"abcde")
        fails(tmp_path, types, r"t\.dat: bad_offset at byte \d+ .* rows? \d.*: expected ends in order and within 5")
        rows, damages = skipping(tmp_path, types)
        assert rows == {"t": values}
        assert only(damages) == ("t.dat", HEADER + bad[0] * 8, bad[1] * 8, "bad_offset")


def test_offsets_that_would_make_much_of_little(tmp_path: Path) -> None:
    shape = Shape()
    count = 20_000
    put(tmp_path, "t", shape, shape.pack("q", [1000, 0] * count), bytes=b"x" * 1000)
    rows, _ = skipping(tmp_path, {"t": "String(None)"})
    assert len(rows["t"]) == 2 * count
    assert sum(len(value or "") for value in rows["t"]) <= 2000


def test_symbols_out_of_range(tmp_path: Path) -> None:
    shape = Shape()
    put_symbols(tmp_path, "s", ["a", "b", "a"], shape)
    put(tmp_path, "s", shape, shape.pack("i", [0, 2, -1, -(1 << 31), 1, 1 << 30]))
    types = {"s": "String"}
    fails(tmp_path, types, r"s\.dat: bad_symbol at byte 68 \(8 bytes\): column 's', rows 1 to 2: expected an id of 2")
    rows, damages = skipping(tmp_path, types)
    assert rows == {"s": ["a", None, None, None, "b", None]}
    assert [(row["offset"], row["length"], row["kind"]) for row in damages] == [
        (68, 8, "bad_symbol"),
        (84, 4, "bad_symbol"),
    ]


def test_symbols_that_cannot_be_read_harm_only_who_uses_them(tmp_path: Path) -> None:
    shape = Shape()
    put_symbols(tmp_path, "s", ["a", "bb", "c"], shape)
    (tmp_path / "s.sym").write_bytes(shape.header() + shape.pack("q", [1, 900, 4, 1 << 60]))
    rows, damages = skipping(tmp_path, {"s": "String"})
    assert rows == {"s": ["a", None, None]}
    assert only(damages) == ("s.dat", HEADER + 4, 8, "bad_symbol")
    put(tmp_path, "s", shape, shape.pack("i", [0, 0]))
    assert skipping(tmp_path, {"s": "String"}) == ({"s": ["a", "a"]}, [])


def test_files_that_are_missing(tmp_path: Path) -> None:
    types = {"t": "String(None)", "s": "String", "n": "int"}
    put_text(tmp_path, "t", ["a", "b"], Shape())
    put_symbols(tmp_path, "s", ["a", "b"], Shape())
    put_fixed(tmp_path, "n", "int", [1, 2], Shape())
    (tmp_path / "t.bytes").unlink()
    (tmp_path / "s.sym.bytes").unlink()
    with pytest.raises(IncompleteError, match="missing_file"):
        sawlog.read(tmp_path, types=types)
    rows, damages = skipping(tmp_path, types)
    assert rows == {"t": [None, None], "s": [None, None], "n": [1, 2]}
    assert {(Path(row["file"]).name, row["kind"]) for row in damages} == {
        ("t.bytes", "missing_file"),
        ("s.sym.bytes", "missing_file"),
        ("s.dat", "bad_symbol"),
    }
    (tmp_path / "n.dat").unlink()


def test_a_column_that_is_shorter_than_the_others(tmp_path: Path) -> None:
    types = {"n": "int", "m": "long"}
    put_fixed(tmp_path, "n", "int", [1, 2, 3], Shape())
    put_fixed(tmp_path, "m", "long", [1, 2], Shape())
    with (tmp_path / "m.dat").open("ab") as file:
        file.write(b"\1\2\3")
    put_rows(tmp_path, 3)
    fails(tmp_path, types, r"m\.dat: short_file at byte 80 \(3 bytes\): expected 3 rows of 8 bytes, found 2")
    rows, damages = skipping(tmp_path, types)
    assert rows == {"n": [1, 2, 3], "m": [1, 2, None]}
    assert only(damages) == ("m.dat", 80, 3, "short_file")


def test_damage_of_a_column_does_not_depend_on_the_others(tmp_path: Path) -> None:
    """Bad rows on both sides of the end of a shorter column are one damage, as they are without it."""
    types = {"s": "String", "t": "String(None)"}
    put_symbols(tmp_path, "s", ["a", "a", "a", "a"], Shape())
    data = tmp_path / "s.dat"
    data.write_bytes(data.read_bytes()[:-12] + struct.pack("<3i", 7, 7, 7))
    put_text(tmp_path, "t", ["x", "y"], Shape())
    put_rows(tmp_path, 4)
    _, damages = skipping(tmp_path, types)
    places = [(Path(damage["file"]).name, damage["offset"], damage["length"], damage["kind"]) for damage in damages]
    assert ("s.dat", 68, 12, "bad_symbol") in places
    checked(tmp_path, types=types)


def test_more_rows_than_any_column_has(tmp_path: Path) -> None:
    put_fixed(tmp_path, "n", "int", [1, 2, 3], Shape())
    put_rows(tmp_path, (1 << 31) - 1)
    fails(tmp_path, {"n": "int"}, r"table\.size: short_file .* expected columns of 2147483647 rows, found 3")
    rows, damages = skipping(tmp_path, {"n": "int"})
    assert rows == {"n": [1, 2, 3]}
    assert only(damages) == ("table.size", 0, 4, "short_file")
    (tmp_path / "n.dat").unlink()
    assert sawlog.read(tmp_path, format="deephaven_table", view="columns").num_rows == 0
    with pytest.raises(DamageError, match="found 0 in the longest"):
        sawlog.read(tmp_path, format="deephaven_table")


@pytest.mark.parametrize(
    "head",
    [
        "80000005 00000004 aced000570",
        "80000005 00040040 aced000570",
        "80000005 0fffffff aced000570",
        "80000005 00020000 aced000570",
        "7fffffff 00000040 deadbeef70",
        "",
        "8000",
    ],
)
def test_headers_that_lie(tmp_path: Path, head: str) -> None:
    types = {"n": "int", "m": "int"}
    put_fixed(tmp_path, "n", "int", [1, 2], Shape())
    put_rows(tmp_path, 2)
    data = bytes.fromhex(head)
    (tmp_path / "m.dat").write_bytes(data + bytes(20) if data[4:] else data)
    fails(tmp_path, types, r"m\.dat: bad_header")
    rows, damages = skipping(tmp_path, types)
    assert rows == {"n": [1, 2], "m": [None, None]}
    assert only(damages)[3] == "bad_header"


def test_malformed_text_is_told(tmp_path: Path) -> None:
    put_text(tmp_path, "t", ["ok", "caf\xe9", "ok"], Shape())
    types = {"t": "String(None,UTF-8)"}
    fails(tmp_path, types, r"bad_value .* row 1: not UTF-8")
    rows, damages = skipping(tmp_path, types)
    assert rows == {"t": ["ok", "caf\ufffd", "ok"]}
    assert only(damages) == ("t.dat", HEADER + 8, 8, "bad_value")


@pytest.mark.parametrize(
    ("kind", "good", "bad"),
    [
        ("BigDecimal(10,2)", "010000000096", ["020000000096", "01ffffffffff", "0002540be3ff"]),
        ("LocalDate", "7735a3ce5d", ["7735a3ce5f", "7735a3ce40", "0000000021", "7735a3cfff", "7fffffffff"]),
        ("LocalDate(Compact)", "0fd05d", ["0fd05e", "0fd1a1", "4e2021"]),
        ("LocalTime(3)", "0322e315", ["0622e315", "03ffffff", "0322e3ff"]),
        ("ByteArray(2)", "00abcd", ["01abcd"]),
    ],
)
def test_objects_that_cannot_be(tmp_path: Path, kind: str, good: str, bad: list[str]) -> None:
    put(tmp_path, "x", Shape(), bytes.fromhex(good + "".join(bad) + good))
    put_rows(tmp_path, len(bad) + 2)
    rows, damages = skipping(tmp_path, {"x": kind})
    assert rows["x"][0] == rows["x"][-1] is not None
    assert rows["x"][1:-1] == [None] * len(bad)
    width = len(good) // 2
    assert only(damages) == ("x.dat", HEADER + width, width * len(bad), "bad_value")


@pytest.mark.parametrize(
    ("kind", "bad"),
    [
        ("BigDecimal", ["00", "00000000"]),
        ("BigDecimal", ["00000000" + "7f" * 2000]),
        ("ZonedDateTime", ["17b863fdbadca005", "17b863fdbadca00500000010416d", "17b863fdbadca005ffffffff"]),
        ("StringIntMap", ["7fffffff", "ffffffff", "00000001", "000000010000000161", "0000000000"]),
        ("StringStringMap", ["00000001 00000001 61 7fffffff", "00000001 00000001 ff 00000000"]),
        ("StringBooleanMap", ["00000001 00000001 61"]),
        ("int[]", ["aced0005", int_array(1).hex()[:-2], int_array(1).hex() + "00", "aced000571007e0000"]),
        ("int[]", [int_array(1)[:23].hex() + "7fffffff", int_array(1)[:23].hex() + "ffffffff"]),
        ("LocalDate", ["7735a3ce", "7735a3ce5d00"]),
        ("UTF8StringAsByteArray", ["ff"]),
    ],
)
def test_objects_of_variable_width_that_cannot_be(tmp_path: Path, kind: str, bad: list[str]) -> None:
    put_variable(tmp_path, "x", [bytes.fromhex(text) for text in bad], Shape())
    fails(tmp_path, {"x": kind}, "bad_value")
    rows, damages = skipping(tmp_path, {"x": kind})
    assert rows == {"x": [None] * len(bad)}
    assert only(damages) == ("x.dat", HEADER, 8 * len(bad), "bad_value")


CODECS = {
    "BigDecimal(10,2)": ("010000000096", "020000000096"),
    "BigDecimal(45,5)": ("01" + "00" * 18 + "96", "02" + "00" * 18 + "96"),
    "BigInteger(7)": ("01000096", "02000096"),
    "LocalDate": ("7735a3ce5d", "7735a3ce5f"),
    "LocalDate(Compact)": ("0fd05d", "0fd05e"),
    "LocalTime(3)": ("0322e315", "0622e315"),
    "ByteArray(2)": ("00abcd", "01abcd"),
    "BigDecimal": ("00000002ff", "00000002"),
    "BigInteger": ("00000000ff", "00"),
    "ZonedDateTime": ("17b863fdbadca00500000003555443", "17b863fdbadca005ffffffff555443"),
    "StringIntMap": ("00000001000000016100000007", "00000001ffffffff6100000007"),
    "StringLongMap": ("0000000100000001610000000000000007", "0000000200000001610000000000000007"),
    "StringBooleanMap": ("00000001000000016101", "7fffffff000000016101"),
    "StringStringMap": ("0000000100000001610000000162", "000000010000000161000000017f62"),
    "int[]": (int_array(1, 2).hex(), int_array(1, 2).hex()[:-2]),
    "UTF8StringAsByteArray": ("6162", "ffff"),
}
"""Of each codec a value, and one that it refuses."""
FIXED_WIDTH = [kind for kind in CODECS if "(" in kind or kind.startswith("Local")]


@pytest.mark.parametrize(
    ("kind", "variable"),
    [(kind, variable) for kind in CODECS for variable in (False, True) if variable or kind in FIXED_WIDTH],
)
def test_a_value_that_a_codec_refuses_costs_itself_only(kind: str, variable: bool, tmp_path: Path) -> None:
    """The others of its column, and those of other columns, are what they were."""
    good, bad = map(bytes.fromhex, CODECS[kind])
    count, bad_rows = 1000, (0, 499, 999)

    def content(row: int | None) -> bytes:
        values = [bad if index == row else good for index in range(count)]
        if variable:
            put_variable(tmp_path, "x", values, Shape())
        else:
            put(tmp_path, "x", Shape(), b"".join(values))
        return (tmp_path / "x.dat").read_bytes()

    put_fixed(tmp_path, "n", "int", list(range(count)), Shape())
    put_rows(tmp_path, count)
    content(None)
    options: dict[str, Any] = {"types": {"x": kind, "n": "int"}}
    rows = sawlog.read(tmp_path, format="deephaven_table", **options).to_pylist()
    assert rows[0]["x"] is not None
    for row in bad_rows:
        broken = content(row)
        units = {0: rows[:row], 1: [rows[row]], 2: rows[row + 1 :]}
        reduced_units = {1: [{**rows[row], "x": None}]}
        place = tmp_path / "x.dat"
        assert_lost_by_unit(
            tmp_path, "deephaven_table", {1: broken}, units, file=place, remaining_units=reduced_units, **options
        )


def test_numbers_of_an_absurd_scale(tmp_path: Path) -> None:
    put_variable(tmp_path, "x", [bytes.fromhex("7fffffff01"), bytes.fromhex("8000000101")], Shape())
    rows, damages = skipping(tmp_path, {"x": "BigDecimal"})
    assert rows == {"x": ["1E-2147483647", "1E+2147483647"]}
    assert not damages
    assert skipping(tmp_path, {"x": "BigDecimal"}, decimal="38,4")[0] == {"x": [None, None]}


def test_sets_with_members_that_are_no_symbols(tmp_path: Path) -> None:
    shape = Shape()
    put_symbols(tmp_path, "s", ["a", "b"], shape)
    put(tmp_path, "s", shape, shape.pack("q", [1, 0b110, 3]))
    put_rows(tmp_path, 3)
    rows, damages = skipping(tmp_path, {"s": "StringSet"})
    assert rows == {"s": [["a"], None, ["a", "b"]]}
    assert only(damages) == ("s.dat", HEADER + 8, 8, "bad_symbol")


def test_thousands_of_damaged_ranges_are_counted(tmp_path: Path) -> None:
    shape = Shape()
    put(tmp_path, "t", shape, shape.pack("q", [5, 90] * 3000), bytes=b"abcdefg")
    report = sawlog.verify(tmp_path, types={"t": "String(None)"})
    damaged = next(file for file in report.files if file.path.endswith("t.dat"))
    assert damaged.account.damage == 8 * 5999
    assert damaged.account.total == damaged.size


@pytest.mark.nightly
def test_unfinished_values_are_never_read_past_the_file(tmp_path: Path) -> None:
    """Every truncation of every file of a location."""
    types = {"n": "long", "t": "String(None)", "s": "String", "a": "int[]"}
    columns = {"n": [1, None, 3], "t": ["ab", None, "c"], "s": ["x", "y", None], "a": [[1], None, [2, 3]]}
    put_fixed(tmp_path, "n", "long", columns["n"], Shape(start=16))
    put_text(tmp_path, "t", columns["t"], Shape(start=16))
    put_symbols(tmp_path, "s", columns["s"], Shape(start=16))
    put_variable(tmp_path, "a", [int_array(1), b"", int_array(2, 3)], Shape(start=16))
    put_rows(tmp_path, 3)
    assert skipping(tmp_path, types) == (columns, [])
    for path in sorted(tmp_path.iterdir()):
        content = path.read_bytes()
        for size in range(0, len(content), 1 if path.suffix == ".dat" else 3):
            if path.name == "table.size" and size:
                continue
            path.write_bytes(content[:size])
            rows, _ = skipping(tmp_path, types)
            for name, values in rows.items():
                assert all(new in (old, None) for new, old in zip(values, columns[name], strict=False)), (
                    path.name,
                    size,
                )
        path.write_bytes(content)


FILES = {
    "n.dat": Shape(start=16).header() + struct.pack("<3q", 1, 2, 3),
    "t.dat": Shape(start=16).header() + struct.pack("<3q", 2, 2, 3),
    "t.bytes": b"abc",
    "s.dat": Shape(start=16).header() + struct.pack("<3i", 0, 1, -(1 << 31)),
    "s.sym": Shape(start=16).header() + struct.pack("<2q", 1, 2),
    "s.sym.bytes": b"xy",
    "a.dat": Shape(start=16).header() + struct.pack("<3q", 31, 31, 66),
    "a.bytes": int_array(1) + int_array(2, 3),
    "d.dat": Shape(start=16).header() + bytes.fromhex("010000000096") * 3,
    "m.dat": Shape(start=16).header() + struct.pack("<3q", 13, 13, 13),
    "m.bytes": bytes.fromhex("00000001 00000001 61 00000007"),
    "table.size": struct.pack(">i", 3),
}
KINDS = {
    "n": "long",
    "t": "String(None,UTF-8)",
    "s": "String",
    "a": "int[]",
    "d": "BigDecimal(10,2)",
    "m": "StringIntMap",
}


@pytest.mark.nightly
@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    name=st.sampled_from(sorted(FILES)),
    changes=st.lists(st.tuples(st.integers(0, 200), st.integers(0, 255)), min_size=1, max_size=6),
    inferred=st.booleans(),
)
def test_changed_files_are_read_or_reported(
    tmp_path_factory: pytest.TempPathFactory, name: str, changes: Any, inferred: bool
) -> None:
    directory = tmp_path_factory.mktemp("location")
    for file, content in FILES.items():
        (directory / file).write_bytes(content)
    data = bytearray(FILES[name])
    for offset, value in changes:
        data[offset % len(data)] = value
    (directory / name).write_bytes(data)
    checked(directory, **{} if inferred else {"types": KINDS})

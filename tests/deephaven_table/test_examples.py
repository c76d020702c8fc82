"""The worked examples of the format, byte for byte."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest

import sawlog
from sawlog.deephaven.table import layout

from .reference import Shape, put, put_variable

HEADER = bytes.fromhex("80000005 00000010 aced000570 000000")
NEW_YORK = bytes.fromhex("17b863fdbadca005 00000010 416d65726963612f4e65775f596f726b")


def test_the_smallest_column_is_read(tmp_path: Path) -> None:
    data = "80 00 00 05  00 00 00 10  ac ed 00 05 70 00 00 00  01 00 00 00  02 00 00 00  00 00 00 80"
    (tmp_path / "I.dat").write_bytes(bytes.fromhex(data))
    assert sawlog.read(tmp_path, types={"I": "int"}).to_pydict() == {"I": [1, 2, None]}


def test_strings_with_and_without_symbols(tmp_path: Path) -> None:
    (tmp_path / "S.dat").write_bytes(HEADER + bytes.fromhex("00000000 01000000 00000080 02000000 00000000"))
    (tmp_path / "S.sym").write_bytes(HEADER + bytes.fromhex("0100000000000000 0200000000000000 0400000000000000"))
    (tmp_path / "S.sym.bytes").write_bytes(bytes.fromhex("41 00 42 42"))
    table = sawlog.read(tmp_path, types={"S": "String"})
    assert table.column("S").to_pylist() == ["A", "", None, "BB", "A"]
    assert table.schema.field("S").type == pa.dictionary(pa.int32(), pa.string())
    ends = "0200000000000000 0200000000000000 0300000000000000 0400000000000000"
    other_path = tmp_path / "other"
    other_path.mkdir()
    (other_path / "T.dat").write_bytes(HEADER + bytes.fromhex(ends))
    (other_path / "T.bytes").write_bytes(bytes.fromhex("61 62 00 63"))
    table = sawlog.read(other_path, types={"T": "String(None)"})
    assert table.column("T").to_pylist() == ["ab", None, "", "c"]
    assert table.schema.field("T").type == pa.string()


def test_sizes_of_a_real_location() -> None:
    """What a print-out of a checkpoint of 11132 rows says of its files."""
    rows = 11132
    assert layout.SYMBOL_SIZE * rows == 44528
    assert layout.OFFSET_SIZE * rows == 89056
    assert len("INFOWARNERRORFATALSTDOUTSTDERR") == 30
    assert layout.OFFSET_SIZE * 6 == 48


@pytest.mark.parametrize(
    ("kind", "slots", "values"),
    [
        (
            "BigDecimal(10,2)",
            ["010000000000", "010000000096", "00ffffffff69", "01000001d4c0", "00ffffffffff"],
            [Decimal("0.00"), Decimal("1.50"), Decimal("-1.50"), Decimal("1200.00"), None],
        ),
        ("BigInteger(5)", ["010000ff", "00ffff00", "00ffffff"], [Decimal(255), Decimal(-255), None]),
        (
            "LocalDate",
            ["7735a36221", "7735a3ce5d", "ff00000000"],
            [dt.date(1970, 1, 1), dt.date(2024, 2, 29), None],
        ),
        ("LocalDate(Compact)", ["0fd05d", "ff0000"], [dt.date(2024, 2, 29), None]),
        ("LocalTime", ["5fbefb9ac9ff", "800000000000"], [dt.time(23, 59, 59, 999999), None]),
        ("LocalTime(3)", ["0322e315", "80000000"], [dt.time(12, 34, 56, 789000), None]),
        ("LocalTime(0)", ["00c8b8"], [dt.time(12, 34, 56)]),
        ("ByteArray(2)", ["00abcd", "ff0000"], [b"\xab\xcd", None]),
        ("ByteArray(2,notNull)", ["abcd", "ff00"], [b"\xab\xcd", b"\xff\x00"]),
    ],
)
def test_objects_of_a_fixed_width(tmp_path: Path, kind: str, slots: list[str], values: list[object]) -> None:
    shape = Shape(start=16)
    put(tmp_path, "X", shape, b"".join(map(bytes.fromhex, slots)))
    column = sawlog.read(tmp_path, types={"X": kind}).column("X")
    if kind == "LocalTime":
        assert column[0].value == 86_399_999_999_999
    assert column.to_pylist() == values
    # The same objects with offsets, as such columns may be stored.
    other_path = tmp_path / "variable"
    put_variable(other_path, "X", [*map(bytes.fromhex, slots), b""], shape)
    assert sawlog.read(other_path, types={"X": kind}).column("X").to_pylist() == [*values, None]


@pytest.mark.parametrize(
    ("kind", "slots", "values"),
    [
        (
            "BigDecimal",
            ["0000000000", "000000010f", "00000001f1", "fffffffe0c", ""],
            ["0", "1.5", "-1.5", "1200", None],
        ),
        ("BigInteger", ["0000000000ff", "00000000ff01", "fffffffd01"], ["255", "-255", "1000"]),
        ("ByteArray", ["abcd", ""], [b"\xab\xcd", None]),
        ("StringDoubleMap", ["00000002 00000001 61 3ff0000000000000 00000001 62 ffefffffffffffff", "00000000", ""],
         [[("a", 1.0), ("b", None)], [], None]),
        ("StringIntMap", ["00000001 00000001 61 00000007"], [[("a", 7)]]),
        ("StringBooleanMap", ["00000002 00000001 61 01 00000001 62 80"], [[("a", True), ("b", None)]]),
        ("StringStringMap", ["00000001 00000001 61 00000002 c3bc"], [[("a", "ü")]]),
        ("UTF8StringAsByteArray", ["c3bc", ""], ["ü", ""]),
    ],
)  # fmt: skip
def test_objects_of_variable_width(tmp_path: Path, kind: str, slots: list[str], values: list[object]) -> None:
    put_variable(tmp_path, "X", [bytes.fromhex(slot) for slot in slots], Shape(start=16))
    assert sawlog.read(tmp_path, types={"X": kind}).column("X").to_pylist() == values


def test_decimals_are_read_by_option(tmp_path: Path) -> None:
    slots = [bytes.fromhex(slot) for slot in ("000000010f", "fffffffe0c", "")]
    put_variable(tmp_path, "X", slots, Shape(start=16))
    table = sawlog.read(tmp_path, types={"X": "BigDecimal"}, decimal="38,4")
    assert table.column("X").to_pylist() == [Decimal("1.5000"), Decimal(1200), None]
    with pytest.raises(sawlog.errors.DamageError, match="no BigDecimal"):
        sawlog.read(tmp_path, types={"X": "BigDecimal"}, decimal="38,0")


def test_a_time_with_its_zone(tmp_path: Path) -> None:
    put_variable(tmp_path, "X", [NEW_YORK, b""], Shape(start=16))
    time, missing = sawlog.read(tmp_path, types={"X": "ZonedDateTime"}).column("X").combine_chunks()
    assert time["time"].value == 1_709_208_000_000_000_005 + 5 * 3600 * 10**9
    assert time["zone"].as_py() == "America/New_York"
    assert missing.as_py() is None

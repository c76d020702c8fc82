"""The bytes of locations, against the worked examples of the format and a plain encoder of another make."""

from __future__ import annotations

import datetime as dt
import os
import resource
import struct
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import sawlog
from sawlog.deephaven.table.column_writer import ColumnWriter
from sawlog.deephaven.table.groups.grouping import Group, read_grouping
from sawlog.deephaven.table.layout import JAVA_NULL, make_array_prefix
from sawlog.deephaven.table.location import Generation
from sawlog.deephaven.table.options import WriteOptions
from sawlog.deephaven.table.types import ColumnSpec
from sawlog.deephaven.table.writer import LocationWriter
from sawlog.deephaven.types import ColumnType
from sawlog.errors import OptionError, SchemaError
from sawlog.storage import Storage

HEADER = bytes.fromhex("80000005 00001000 aced000570").ljust(4096, b"\0")


def write_location(path: Path, data: pa.Table, **options: Any) -> dict[str, bytes]:
    """Write a location; its files, without headers where they are the plain ones."""
    settings = {"compact_header": True, **options}
    writer = LocationWriter(str(path), data.schema, WriteOptions(**settings), Storage())
    try:
        for batch in data.to_batches():
            writer.write(batch)
        writer.publish()
    except BaseException:
        writer.abort()
        raise
    contents = {name: (path / name).read_bytes().removeprefix(HEADER) for name in os.listdir(path)}
    assert contents.pop("table.schema").startswith(b"<?xml")
    return contents


def column(
    values: list[Any], kind: pa.DataType, path: Path, type: str | None = None, **options: Any
) -> dict[str, bytes]:
    data = pa.table({"C": pa.array(values, kind)})
    if type is not None:
        options["types"] = {"C": type}
    contents = write_location(path, data, **options)
    assert contents.pop("table.size") == len(values).to_bytes(4, "big")
    return {name[1:]: content for name, content in contents.items()}


def test_a_complete_tiny_file() -> None:
    header, tail = Generation(data_start=16).encode_header(JAVA_NULL)
    values = bytes.fromhex("01000000 02000000 00000080")
    assert tail == b""
    assert header + values == bytes.fromhex("80000005 00000010 aced0005 70000000 01000000 02000000 00000080")
    assert Generation(data_start=16, little=False).encode_header(JAVA_NULL)[0][:4] == bytes.fromhex("00000005")
    assert Generation(version=2).encode_header(JAVA_NULL) == (b"", b"")


def test_metadata_beyond_the_header_goes_to_the_end() -> None:
    header, tail = Generation(data_start=64).encode_header(bytes(range(120)))
    assert (len(header), header[8:], tail) == (64, bytes(range(56)), bytes(range(56, 120)))
    header, tail = Generation(data_start=8).encode_header(JAVA_NULL)
    assert (header, tail) == (bytes.fromhex("8000000500000008"), JAVA_NULL)


def test_the_header_of_the_product(tmp_path: Path) -> None:
    write_location(tmp_path / "t", pa.table({"I": pa.array([1], pa.int32())}), compact_header=False)
    data = (tmp_path / "t" / "I.dat").read_bytes()
    assert len(data) == 131072 + 4
    assert data[:13] == bytes.fromhex("80000005 00020000 aced000570")
    assert not any(data[13:131072])


INF = float("inf")
FIXED: list[tuple[str, pa.DataType, list[Any], str]] = [
    ("byte", pa.int8(), [1, -127, None], "01 81 80"),
    ("short", pa.int16(), [1, -32767, None], "0001 8001 8000"),
    ("int", pa.int32(), [1, 2, None], "00000001 00000002 80000000"),
    ("long", pa.int64(), [1, None], "0000000000000001 8000000000000000"),
    ("float", pa.float32(), [1.5, -INF, None], "3fc00000 ff800000 ff7fffff"),
    ("double", pa.float64(), [1.5, INF, None], "3ff8000000000000 7ff0000000000000 ffefffffffffffff"),
    ("char", pa.uint16(), [97, None], "0061 fffe"),
    ("char", pa.string(), ["a", None, "日"], "0061 fffe 65e5"),
    ("Boolean", pa.bool_(), [True, False, None], "01 00 ff"),
    ("DateTime", pa.timestamp("ns", "UTC"), [5, None], "0000000000000005 8000000000000000"),
    ("DateTime", pa.timestamp("ms", "UTC"), [5, None], "00000000004c4b40 8000000000000000"),
    ("DateTime", pa.timestamp("s", "Europe/Berlin"), [-1, 0], "ffffffffc4653600 0000000000000000"),
    ("DateTime", pa.int64(), [5, None], "0000000000000005 8000000000000000"),
    ("short", pa.int64(), [5, None, -6], "0005 8000 fffa"),
    ("long", pa.uint8(), [255, None], "00000000000000ff 8000000000000000"),
    ("double", pa.float32(), [1.5, None], "3ff8000000000000 ffefffffffffffff"),
]


@pytest.mark.parametrize(("kind", "arrow", "values", "expected"), FIXED)
def test_values_of_fixed_width_are_written_byte_by_byte_alike(
    kind: str, arrow: pa.DataType, values: list[Any], expected: str, tmp_path: Path
) -> None:
    words = [bytes.fromhex(word) for word in expected.split()]
    little = column(values, arrow, tmp_path / "little", kind)
    assert little == {".dat": b"".join(word[::-1] for word in words)}
    headerless = column(values, arrow, tmp_path / "new", kind, column_version=2)
    assert headerless == little
    big = column(values, arrow, tmp_path / "big", kind, byteorder="big")[".dat"]
    assert big[:4] == bytes.fromhex("00000005")
    assert big[4096:] == b"".join(words)


def test_nan_is_a_value(tmp_path: Path) -> None:
    (data,) = column([float("nan")], pa.float64(), tmp_path / "t").values()
    assert struct.unpack("<d", data)[0] != 0
    assert data != bytes.fromhex("ffffffffffffefff")


def test_strings_without_symbols(tmp_path: Path) -> None:
    contents = column(["ab", None, "", "c"], pa.string(), tmp_path / "t", "String(None)")
    assert contents == {
        ".dat": bytes.fromhex("0200000000000000 0200000000000000 0300000000000000 0400000000000000"),
        ".bytes": bytes.fromhex("61 62 00 63"),
    }


def test_strings_are_written_as_symbols(tmp_path: Path) -> None:
    for number, kind in enumerate((pa.string(), pa.large_string(), pa.dictionary(pa.int8(), pa.string()))):
        contents = column(["A", "", None, "BB", "A"], kind, tmp_path / str(number))
        assert contents == {
            ".dat": bytes.fromhex("00000000 01000000 00000080 02000000 00000000"),
            ".sym": bytes.fromhex("0100000000000000 0200000000000000 0400000000000000"),
            ".sym.bytes": bytes.fromhex("41 00 42 42"),
        }


def test_symbols_of_several_batches_and_odd_dictionaries(tmp_path: Path) -> None:
    first = pa.DictionaryArray.from_arrays(pa.array([2, None, 0], pa.int32()), ["x", "unused", "y", "x", None])
    second = pa.DictionaryArray.from_arrays(pa.array([3, 4, 1], pa.int32()), ["y", "new", "unused", "x", None])
    data = pa.Table.from_batches([pa.record_batch({"C": array}) for array in (first, second)])
    contents = write_location(tmp_path / "t", data)
    assert contents["C.sym.bytes"] == b"yxnew"
    assert contents["C.dat"] == struct.pack("<6i", 0, -(1 << 31), 1, 1, -(1 << 31), 2)


@pytest.mark.parametrize(
    ("charset", "expected"),
    [
        ("ISO-8859-1", b"\xe9a"),
        ("UTF-8", "éa".encode()),
        ("UTF-16", b"\xfe\xff\x00\xe9\xfe\xff\x00a"),
        ("UTF-16BE", b"\x00\xe9\x00a"),
        ("UTF-16LE", b"\xe9\x00a\x00"),
    ],
)
def test_text_is_written_in_its_charset(charset: str, expected: bytes, tmp_path: Path) -> None:
    for number, kind in enumerate(("String", "String(None)")):
        contents = column(
            ["é", None, "a"],
            pa.string(),
            tmp_path / str(number),
            f"{kind[:6]}({charset})" if number == 0 else f"String(None,{charset})",
        )
        assert contents[".sym.bytes" if number == 0 else ".bytes"] == expected


def test_charset_of_metadata_and_option(tmp_path: Path) -> None:
    field = pa.field(
        "C", pa.string(), metadata={"sawlog.type": "String", "sawlog.symbol_table": "None", "sawlog.charset": "UTF-8"}
    )
    data = pa.table({"C": ["é"], "D": ["é"]}, pa.schema([field, pa.field("D", pa.string())]))
    contents = write_location(tmp_path / "t", data, charset="UTF-16BE")
    assert contents["C.bytes"] == "é".encode()
    assert contents["D.sym.bytes"] == b"\0\xe9"


def test_sets_of_strings_are_written_as_bits(tmp_path: Path) -> None:
    contents = column([["a", "b"], None, [], ["b", "c", "b"]], pa.list_(pa.string()), tmp_path / "t", "StringSet")
    assert contents[".dat"] == struct.pack("<QQQQ", 3, 1 << 63, 0, 6)
    assert contents[".sym.bytes"] == b"abc"
    assert len(contents[".sym"]) == 24


def date(text: str) -> dt.date:
    return dt.date.fromisoformat(text)


def time(text: str) -> int:
    parts = text.split(":")
    return int(Decimal(3600 * int(parts[0]) + 60 * int(parts[1]) + Decimal(parts[2])) * 10**9)


SLOTS: list[tuple[str, pa.DataType, list[Any], str]] = [
    (
        "BigDecimal(10,2)",
        pa.decimal128(10, 2),
        [Decimal(0), Decimal("1.50"), Decimal("-1.50"), Decimal("1200.00"), None],
        "010000000000 010000000096 00ffffffff69 01000001d4c0 00ffffffffff",
    ),
    ("BigDecimal(10,2)", pa.string(), ["1.5", "-1.50"], "010000000096 00ffffffff69"),
    ("BigInteger(5)", pa.decimal128(5, 0), [Decimal(255), Decimal(-255), None], "010000ff 00ffff00 00ffffff"),
    ("LocalDate", pa.date32(), [date("1970-01-01"), date("2024-02-29"), None], "7735a36221 7735a3ce5d ff00000000"),
    ("LocalDate(Compact)", pa.date32(), [date("2024-02-29"), None], "0fd05d ff0000"),
    ("LocalDate(Compact,notNull)", pa.date32(), [date("2024-02-29")], "0fd05d"),
    ("LocalTime", pa.time64("ns"), [time("23:59:59.999999999"), None], "5fbefb9ac9ff 800000000000"),
    ("LocalTime(3)", pa.time32("ms"), [time("12:34:56.789") // 10**6, None], "0322e315 80000000"),
    ("LocalTime(0)", pa.time32("s"), [time("12:34:56") // 10**9], "00c8b8"),
    ("ByteArray(2)", pa.binary(), [b"ab", None], "006162 ff0000"),
    ("ByteArray(2,notNull)", pa.binary(2), [b"ab"], "6162"),
]


@pytest.mark.parametrize(("kind", "arrow", "values", "expected"), SLOTS)
def test_codecs_of_fixed_width(kind: str, arrow: pa.DataType, values: list[Any], expected: str, tmp_path: Path) -> None:
    for order in ("little", "big"):
        contents = column(values, arrow, tmp_path / order, kind, byteorder=order, column_version=2)
        assert contents == {".dat": bytes.fromhex(expected)}


VARIABLE: list[tuple[str, pa.DataType, list[Any], list[str]]] = [
    (
        "BigDecimal",
        pa.string(),
        ["0", "1.50", "-1.5", "1200", None],
        ["0000000000", "000000010f", "00000001f1", "fffffffe0c", ""],
    ),
    ("BigInteger", pa.string(), ["255", "-255", "1000"], ["0000000000ff", "00000000ff01", "fffffffd01"]),
    ("BigDecimal", pa.decimal128(10, 2), [Decimal("-1.28")], ["0000000280"]),
    (
        "ZonedDateTime",
        pa.timestamp("ns", "America/New_York"),
        [1709226000000000005, None],
        ["17b863fdbadca005 00000010 416d65726963612f4e65775f596f726b", ""],
    ),
    ("ByteArray", pa.binary(), [b"abc", None], ["616263", ""]),
    ("Blob", pa.large_binary(), [b"abc", None], ["616263", ""]),
    ("UTF8StringAsByteArray", pa.string(), ["é", ""], ["c3a9", ""]),
    (
        "StringDoubleMap",
        pa.map_(pa.string(), pa.float64()),
        [[("a", 1.0), ("b", None)], [], None],
        ["00000002 00000001 61 3ff0000000000000 00000001 62 ffefffffffffffff", "00000000", ""],
    ),
    ("StringLongMap", pa.map_(pa.string(), pa.int64()), [[("a", 1)]], ["00000001 00000001 61 0000000000000001"]),
    ("StringIntMap", pa.map_(pa.string(), pa.int32()), [[("a", None)]], ["00000001 00000001 61 80000000"]),
    ("StringFloatMap", pa.map_(pa.string(), pa.float32()), [[("a", 1.5)]], ["00000001 00000001 61 3fc00000"]),
    (
        "StringBooleanMap",
        pa.map_(pa.string(), pa.bool_()),
        [[("a", True), ("b", None)]],
        ["00000002 00000001 61 01 00000001 62 80"],
    ),
    ("StringStringMap", pa.map_(pa.string(), pa.string()), [[("a", "é")]], ["00000001 00000001 61 00000002 c3a9"]),
    (
        "int[]",
        pa.list_(pa.int32()),
        [[1, None], [], None],
        [make_array_prefix("I").hex() + "00000002 00000001 80000000", make_array_prefix("I").hex() + "00000000", ""],
    ),
    ("double[]", pa.large_list(pa.float64()), [[1.5]], [make_array_prefix("D").hex() + "00000001 3ff8000000000000"]),
    ("char[]", pa.list_(pa.uint16(), 1), [[97]], [make_array_prefix("C").hex() + "00000001 0061"]),
    ("boolean[]", pa.list_(pa.bool_()), [[True, False]], [make_array_prefix("Z").hex() + "00000002 01 00"]),
]


@pytest.mark.parametrize(("kind", "arrow", "values", "expected"), VARIABLE)
def test_values_of_variable_width_are_written_with_their_ends(
    kind: str, arrow: pa.DataType, values: list[Any], expected: list[str], tmp_path: Path
) -> None:
    contents = column(values, arrow, tmp_path / "t", kind, column_version=2)
    pieces = [bytes.fromhex(piece) for piece in expected]
    ends = [sum(map(len, pieces[: index + 1])) for index in range(len(pieces))]
    assert contents == {".dat": struct.pack(f"<{len(ends)}q", *ends), ".bytes": b"".join(pieces)}


def test_slices_are_written_as_they_are_seen(tmp_path: Path) -> None:
    data = pa.table(
        {
            "I": pa.array([9, 1, None, 9], pa.int32()),
            "B": [False, True, None, False],
            "S": ["no", "ab", None, "no"],
            "T": ["no", "x", "", "no"],
            "L": pa.array([[9], [1, 2], None, [9]], pa.list_(pa.int16())),
            "D": pa.array([9, 1, None, 9], pa.date32()),
            "Y": pa.array(["no", "ab", None, "no"]).dictionary_encode(),
        }
    )
    types = {"T": "String(None)"}
    sliced = write_location(tmp_path / "sliced", data.slice(1, 2), types=types)
    copied = write_location(tmp_path / "copied", pa.concat_tables([data.slice(1, 2).take([0, 1])]), types=types)
    assert sliced == copied
    assert sliced["I.dat"] == struct.pack("<ii", 1, -(1 << 31))
    assert sliced["L.bytes"].endswith(bytes.fromhex("00000002 0001 0002"))


def test_groups_are_found_across_batches(tmp_path: Path) -> None:
    data = pa.table({"Sym": ["A", "A", None, "B"], "N": pa.array([7, 7, 7, 8], pa.int32()), "X": [1, 2, 3, 4]})
    batches = pa.Table.from_batches([batch for i in range(4) for batch in data.slice(i, 1).to_batches()])
    for number, table in enumerate((data, batches)):
        contents = write_location(tmp_path / str(number), table, group=("Sym", "N"))
        for name, groups in (
            ("Sym", (Group("A", 0, 2), Group(None, 2, 3), Group("B", 3, 4))),
            ("N", (Group(7, 0, 3), Group(8, 3, 4))),
        ):
            content = contents[f"{name}.dat"]
            size = int.from_bytes(content[:4], "big") & 0x7FFFFFFF
            grouping = read_grouping(content[8 : 8 + size], name)
            assert grouping is not None
            assert grouping.groups == groups
        assert len(contents["X.dat"]) == 32


def test_groups_beyond_the_header_go_to_the_end(tmp_path: Path) -> None:
    names = [f"S{i:05}" for i in range(20_000)]
    contents = write_location(tmp_path / "t", pa.table({"Sym": names}), group=("Sym",), compact_header=False)
    header = contents["Sym.dat"][:131072]
    size = int.from_bytes(header[:4], "big") & 0x7FFFFFFF
    assert size > 131072
    grouping = read_grouping(header[8:] + contents["Sym.ovr"], "Sym")
    assert len(header[8:]) + len(contents["Sym.ovr"]) == size
    assert grouping is not None
    assert [(group.value, group.first, group.end) for group in grouping.groups] == [
        (name, i, i + 1) for i, name in enumerate(names)
    ]


@pytest.mark.parametrize(
    ("values", "kind", "row"),
    [
        (["A", "B", "A"], pa.string(), 2),
        (["A", None, "B", None], pa.dictionary(pa.int32(), pa.string()), 3),
        ([1.0, float("nan"), 2.0, float("nan")], pa.float64(), 3),
        ([True, False, True], pa.bool_(), 2),
    ],
)
def test_scattered_values_are_not_grouped(values: list[Any], kind: pa.DataType, row: int, tmp_path: Path) -> None:
    data = pa.table({"C": pa.array(values, kind)})
    for number, table in enumerate((data, pa.concat_tables([data.slice(0, 2), data.slice(2)]))):
        with pytest.raises(SchemaError, match=f"column 'C', row {row}: .* must follow one another"):
            write_location(tmp_path / str(number), table, group=("C",))
    assert os.listdir(tmp_path) == []


def test_equal_neighbours_are_one_group(tmp_path: Path) -> None:
    nans = pa.array([float("nan"), float("nan"), -0.0, 0.0])
    content = write_location(tmp_path / "t", pa.table({"C": nans}), group=("C",))["C.dat"]
    grouping = read_grouping(content[8:4096], "C")
    assert grouping is not None
    assert [(group.first, group.end) for group in grouping.groups] == [(0, 2), (2, 3), (3, 4)]


REFUSED: list[tuple[str, pa.DataType, list[Any], str]] = [
    ("byte", pa.int8(), [0, -128], "row 1: -128 stands for null in a byte column"),
    ("short", pa.int16(), [-32768], "row 0: -32768 stands for null"),
    ("byte", pa.int64(), [1, 300], "row 1: 300 cannot be written as int8"),
    ("byte", pa.int64(), [1, -128], "row 1: -128 stands for null"),
    ("int", pa.int32(), [None, -(1 << 31)], "row 1: -2147483648 stands for null"),
    ("long", pa.int64(), [-(1 << 63)], "row 0: -9223372036854775808 stands for null"),
    ("DateTime", pa.int64(), [1, -(1 << 63)], "row 1: .* in a DateTime column"),
    ("DateTime", pa.timestamp("us", "UTC"), [1, 1 << 60], "row 1: .* out of a DateTime's reach"),
    ("float", pa.float32(), [-3.4028234663852886e38], "row 0: .* stands for null"),
    ("double", pa.float64(), [-1.7976931348623157e308], "row 0: .* stands for null"),
    ("char", pa.uint16(), [97, 0xFFFE], "row 1: 65534 stands for null"),
    ("char", pa.uint16(), [0xFFFF], "row 0: 65535 stands for null"),
    ("char", pa.string(), ["a", "ab"], "row 1: 'ab' is not one UTF-16 unit"),
    ("String", pa.string(), ["é", "日"], "row 1: '日' cannot be written in ISO-8859-1"),
    ("String(None)", pa.string(), ["é", None, "日"], "row 2: '日' cannot be written in ISO-8859-1"),
    ("String(US-ASCII)", pa.string(), ["a", "é"], "row 1: 'é' cannot be written in US-ASCII"),
    ("String", pa.string(), ["a", "\0"], "row 1: .* read as an empty one"),
    ("String(None)", pa.string(), ["a", "\0"], "row 1: .* read as an empty one"),
    ("StringSet", pa.list_(pa.string()), [["a"], ["b", None]], "row 1: a null in a set"),
    ("StringSet", pa.list_(pa.string()), [[f"s{i}" for i in range(65)]], "row 0: 's64' is one string too many"),
    ("StringSet", pa.list_(pa.string()), [[f"s{i}" for i in range(64)], ["s63"]], "row 1: .* stands for null"),
    ("BigDecimal(4,2)", pa.string(), ["1", "1.234"], "row 1: 1.234 cannot be written"),
    ("BigDecimal(7,2)", pa.decimal128(7, 2), [Decimal("83886.07"), Decimal("-83886.08")], "row 1: .* too large for"),
    ("BigInteger(7)", pa.string(), [None, "8388608"], "row 1: .* too large for Deephaven's codec"),
    ("BigDecimal(89,0)", pa.string(), ["1", str(10**89 - 1)], "row 1: .* too large for"),
    ("BigDecimal(50,2)", pa.string(), ["1", "1.234"], "row 1: .*1.234"),
    ("BigDecimal(99,2)", pa.string(), ["1", "1.234"], "row 1: '1.234' does not fit"),
    ("BigDecimal(99,2)", pa.string(), ["1e999999999"], "row 0: '1e999999999' does not fit"),
    ("BigDecimal(99,2)", pa.string(), ["NaN"], "row 0: 'NaN' is no decimal"),
    ("BigDecimal", pa.string(), ["1", "x"], "row 1: 'x' cannot be written as BigDecimal"),
    ("BigInteger", pa.string(), ["1.5"], "row 0: .*not a whole number"),
    ("LocalDate(Compact)", pa.date32(), [0, 3_000_000], "row 1: the year 10183"),
    ("LocalDate(Compact,notNull)", pa.date32(), [0, None], "row 1: null"),
    ("LocalTime(3)", pa.time64("us"), [1000, 1], "row 1: .* 3 digits"),
    ("ByteArray(2)", pa.binary(), [b"ab", b"abc"], "row 1: 3 bytes in a column of 2"),
    ("ByteArray", pa.binary(), [b"a", b""], "row 1: an empty value would be read as null"),
    ("Blob", pa.binary(), [b""], "row 0: an empty value"),
    ("UTF8StringAsByteArray", pa.string(), ["a", None], "row 1: null"),
    ("StringDoubleMap", pa.map_(pa.string(), pa.float64()), [[("a", 1.0), ("a", 2.0)]], "row 0: .*a key twice"),
    ("StringIntMap", pa.map_(pa.string(), pa.int32()), [[], [("a", -(1 << 31))]], "row 1: .* stands for null"),
    ("StringStringMap", pa.map_(pa.string(), pa.string()), [[("a", None)]], "row 0: .*a null string"),
    ("int[]", pa.list_(pa.int32()), [[1], None, [], [1, -(1 << 31)]], "row 3: .* stands for null"),
    ("boolean[]", pa.list_(pa.bool_()), [[True], [False, None]], "row 1: null in an array"),
]


@pytest.mark.parametrize(("kind", "arrow", "values", "message"), REFUSED)
def test_what_cannot_be_written(kind: str, arrow: pa.DataType, values: list[Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(SchemaError, match=f"column 'C', {message}"):
        column(values, arrow, tmp_path / "t", kind)
    assert os.listdir(tmp_path) == []
    # Rows are counted from the start of the location, not of the batch.
    shifted = message.replace(f"row {message[4]}", f"row {int(message[4]) + 5}") if message[5] == ":" else message
    data = pa.table({"C": pa.array(values, arrow)})
    fillers = {"StringSet": []} if kind == "StringSet" else {}
    first = pa.table(
        {
            "C": pa.array(
                [fillers.get(kind, None if "notNull" not in kind and "UTF8" not in kind else values[0])] * 5, arrow
            )
        }
    )
    with pytest.raises(SchemaError, match=f"column 'C', {shifted}"):
        write_location(tmp_path / "t", pa.concat_tables([first, data]), types={"C": kind})


@pytest.mark.parametrize(
    ("data", "options", "error", "message"),
    [
        (pa.table({"A": pa.array([1], pa.uint32())}), {}, SchemaError, "'A' is uint32"),
        (pa.table({"A": pa.array([1], pa.uint8())}), {}, SchemaError, "'A' is uint8"),
        (pa.table({"A": [{"x": 1}]}), {}, SchemaError, "'A' is struct"),
        (pa.table({"A": [["x"]]}), {}, SchemaError, "'A' is list"),
        (pa.table({"a b": [1]}), {}, SchemaError, "'a b': .* Java identifier"),
        (pa.table({"../A": [1]}), {}, SchemaError, "Java identifier"),
        (
            pa.table({"A": [1.5]}),
            {"types": {"A": "float"}},
            SchemaError,
            "'A' is double, which cannot be written as float",
        ),
        (pa.table({"A": [1]}), {"types": {"A": "what"}}, OptionError, "unknown type 'what'"),
        (pa.table({"A": [1]}), {"types": {"B": "int"}}, OptionError, "no column 'B'"),
        (pa.table({"A": [1]}), {"group": ("B",)}, OptionError, "no column 'B'"),
        (pa.table({"A": [1]}), {"group": ("A",), "column_version": 2}, OptionError, "never published; use version 1"),
        (pa.table({"A": [1]}), {"column_version": 3}, OptionError, "expected 1 or 2"),
        (pa.table({"A": [1]}), {"charset": "EBCDIC"}, OptionError, "charset='EBCDIC'"),
        (pa.table({"A": pa.array([1], pa.date32())}), {"group": ("A",)}, SchemaError, "cannot be grouped"),
        (pa.table({}), {}, SchemaError, "one at least"),
        (pa.Table.from_arrays([pa.array([1]), pa.array([2])], ["A", "A"]), {}, SchemaError, "different names"),
    ],
)
def test_what_no_location_is_begun_for(
    data: pa.Table, options: dict[str, Any], error: type[Exception], message: str, tmp_path: Path
) -> None:
    with pytest.raises(error, match=message):
        write_location(tmp_path / "t", data, **options)
    assert os.listdir(tmp_path) == []


def test_a_location_is_published_with_what_belongs_to_it(tmp_path: Path) -> None:
    data = pa.table({"A": [1, 2]})
    path = tmp_path / "Db" / "Intraday" / "Ns" / "T" / "vm" / "2024-05-06" / "T"
    writer = LocationWriter(str(path), data.schema, WriteOptions(), Storage())
    for batch in data.to_batches():
        writer.write(batch)
    writer.add_file("_position.json", b"{}")
    with pytest.raises(OptionError, match="no file of a location"):
        writer.add_file("A.dat", b"")
    with pytest.raises(OptionError, match="no file of a location"):
        writer.add_file("../x", b"")
    (staged,) = writer.finish()
    assert not path.exists()
    assert staged.size == sum(file.stat().st_size for file in Path(staged.temporary).iterdir())
    writer.publish()
    assert sorted(os.listdir(path)) == ["A.dat", "_position.json", "table.schema", "table.size"]
    assert os.listdir(path.parent) == ["T"]
    with pytest.raises(OptionError, match="exists; a location is written as a whole"):
        LocationWriter(str(path), data.schema, WriteOptions(), Storage())


def test_the_second_of_two_writers_fails(tmp_path: Path) -> None:
    data = pa.table({"A": [1]})
    writers = [LocationWriter(str(tmp_path / "t"), data.schema, WriteOptions(), Storage()) for _ in range(2)]
    for writer in writers:
        writer.write(data.to_batches()[0])
    writers[0].publish()
    with pytest.raises(FileExistsError):
        writers[1].publish()
    writers[1].abort()
    assert os.listdir(tmp_path) == ["t"]


def test_partitions_stay_in_the_names_of_directories(tmp_path: Path) -> None:
    fields = [
        pa.field("A", pa.int64()),
        pa.field("Date", pa.string(), metadata={"sawlog.partition": "column"}),
        pa.field("In", pa.string(), metadata={"sawlog.partition": "internal"}),
    ]
    data = pa.table({"A": [1, 2], "Date": ["d1"] * 2, "In": ["7"] * 2}, pa.schema(fields))
    path = tmp_path / "Systems" / "Ns" / "Partitions" / "7" / "d1" / "T"
    assert sorted(write_location(path, data)) == ["A.dat", "table.size"]
    with pytest.raises(SchemaError, match="column 'Date', row 0: d1 does not belong into a location of 'd2'"):
        write_location(tmp_path / "Ns" / "Partitions" / "7" / "d2" / "T", data)
    assert "Date.sym" in write_location(tmp_path / "splayed", data)


def test_many_columns_need_few_descriptors(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    data = pa.table({f"C{i}": ["x"] for i in range(150)})
    resource.setrlimit(resource.RLIMIT_NOFILE, (100, hard))
    try:
        contents = write_location(tmp_path / "t", data)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert len(contents) == 3 * 150 + 1


def test_a_symbol_table_forgets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sawlog.deephaven.table.symbol_table.MAX_KNOWN_SYMBOLS", 2)
    batches = [pa.record_batch({"C": values}) for values in (["a", "b"], ["b", "c"], ["c", "a"], ["a"])]
    contents = write_location(tmp_path / "t", pa.Table.from_batches(batches))
    assert contents["C.sym.bytes"] == b"abcca"
    assert contents["C.dat"] == struct.pack("<7i", 0, 1, 1, 2, 3, 4, 4)
    assert sawlog.read(tmp_path / "t").column("C").to_pylist() == ["a", "b", "b", "c", "c", "a", "a"]


def test_a_location_with_a_part_of_a_batch_is_never_published(tmp_path: Path) -> None:
    schema = pa.schema([("A", pa.int32()), ("B", pa.int32())])
    good = pa.record_batch({"A": [1], "B": [2]}, schema)
    bad = pa.record_batch({"A": [3], "B": [-(1 << 31)]}, schema)
    writer = LocationWriter(str(tmp_path / "t"), schema, WriteOptions(), Storage())
    writer.write(good)
    with pytest.raises(SchemaError, match="row 1"):
        writer.write(bad)
    with pytest.raises(SchemaError, match="a batch was refused"):
        writer.__exit__(None, None, None)
    assert os.listdir(tmp_path) == []


def test_names_that_a_file_system_takes_for_one(tmp_path: Path) -> None:
    ColumnWriter(str(tmp_path), "A", ColumnSpec(ColumnType.INT), Generation())
    with pytest.raises(SchemaError, match="column 'A': this file system"):
        ColumnWriter(str(tmp_path), "A", ColumnSpec(ColumnType.INT), Generation())


def test_types_of_a_schema_file(tmp_path: Path) -> None:
    (tmp_path / "Ns.T.schema").write_text(
        """<Table name="T" namespace="Ns" storageType="NestedPartitionedOnDisk">
          <Column name="Date" dataType="String" columnType="Partitioning" />
          <Column name="N" dataType="int" columnType="Grouping" />
          <Column name="S" dataType="String" symbolTable="None" encoding="UTF_8" />
          <Column name="Gone" dataType="int" />
        </Table>"""
    )
    data = pa.table({"S": ["é"], "N": [7], "X": [1.5]})
    contents = write_location(tmp_path / "t", data, schema=str(tmp_path / "Ns.T.schema"), types={"X": "double"})
    assert contents["N.dat"] == struct.pack("<i", 7)
    assert contents["S.bytes"] == "é".encode()
    assert "Gone.dat" not in contents
    with pytest.raises(SchemaError, match="'N' is string, which cannot be written as int"):
        write_location(tmp_path / "u", pa.table({"N": ["x"]}), schema=str(tmp_path / "Ns.T.schema"))


def test_many_symbols_take_linear_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each look-up goes through all known symbols, so that there must be few where there are many symbols."""
    sizes: list[int] = []
    index_in = pc.index_in

    def counted(values: Any, *, value_set: Any) -> Any:
        sizes.append(len(value_set))
        return index_in(values, value_set=value_set)

    monkeypatch.setattr(pc, "index_in", counted)
    texts = [f"s{number % 30_000}" for number in range(40_000)]
    pieces = pa.chunked_array([pa.array(texts[index : index + 100]) for index in range(0, len(texts), 100)])
    sawlog.write(pa.table({"s": pieces}), tmp_path / "t", format="deephaven_table")
    assert sum(sizes) < 4 * len(texts)
    assert sawlog.read(tmp_path / "t").column("s").to_pylist() == texts


def test_a_symbol_that_cannot_be_written_is_named_after_many(tmp_path: Path) -> None:
    texts = [*(f"s{number}" for number in range(5000)), "€"]
    pieces = pa.chunked_array([pa.array(texts[index : index + 70]) for index in range(0, len(texts), 70)])
    with pytest.raises(SchemaError, match=r"'s'.* row 5000"):
        sawlog.write(pa.table({"s": pieces}), tmp_path / "t", format="deephaven_table", charset="ISO-8859-1")

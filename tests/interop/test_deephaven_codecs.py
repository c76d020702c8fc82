"""Objects in columns against the codecs that Deephaven itself uses, from its Community release."""

from __future__ import annotations

import random
import shutil
import struct
import subprocess
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyspark
import pytest

import sawlog
from sawlog.deephaven.table.types import parse_type

pytestmark = pytest.mark.interop

VERSION = "0.36.1"
ROWS = 300
RANDOM = random.Random(7)


def bits(value: float) -> int:
    return int(struct.unpack(">q", struct.pack(">d", value))[0])


def decimals(digits: int, scale: int) -> list[Any]:
    limit = 10**digits - 1
    numbers = [*(RANDOM.randint(-limit, limit) for _ in range(ROWS - 4)), limit, -limit, 0]
    return [*(Decimal(f"{number}e-{scale}") for number in numbers), None]


def show_decimal(value: Decimal) -> str:
    text = format(value, "f")
    return text.rstrip("0").rstrip(".") if "." in text else text


def make_values(make: Any) -> list[Any]:
    return [*(make() for _ in range(ROWS - 1)), None]


def texts() -> list[Any]:
    return make_values(lambda: str(RANDOM.randint(-(10**30), 10**30) * 10 ** RANDOM.randrange(5)))


def mapping(values: Any) -> Any:
    return lambda: [(key, values()) for key in RANDOM.sample(["a", "é", "日本", ""], RANDOM.randrange(4))]


def entries(show: Any) -> Any:
    def described(value: list[tuple[str, Any]]) -> str:
        parts = (f"{key}={'null' if item is None else show(item)}" for key, item in sorted(value))
        return "{" + ", ".join(parts) + "}"

    return described


NANOS = 86_400 * 10**9
COLUMNS: dict[str, tuple[str, str, str, pa.DataType, list[Any], Any]] = {
    "Price": ("BigDecimal(10,2)", "BigDecimalCodec", "10,2", pa.decimal128(10, 2), decimals(10, 2), show_decimal),
    "Wide": ("BigDecimal(38,10)", "BigDecimalCodec", "38,10", pa.decimal128(38, 10), decimals(38, 10), show_decimal),
    "Wider": ("BigDecimal(60,5)", "BigDecimalCodec", "60,5", pa.decimal256(60, 5), decimals(59, 5), show_decimal),
    "Any": ("BigDecimal", "BigDecimalCodec", "", pa.string(), texts(), lambda value: show_decimal(Decimal(value))),
    "Whole": ("BigInteger(20)", "BigIntegerCodec", "20", pa.decimal128(20, 0), decimals(20, 0), str),
    "Integer": ("BigInteger", "BigIntegerCodec", "", pa.string(), texts(), lambda value: str(int(value))),
    "Day": (
        "LocalDate",
        "LocalDateCodec",
        "",
        pa.date32(),
        make_values(lambda: RANDOM.randint(-700_000, 2_900_000)),
        str,
    ),
    "Compact": (
        "LocalDate(Compact)",
        "LocalDateCodec",
        "Compact",
        pa.date32(),
        make_values(lambda: RANDOM.randint(-700_000, 2_900_000)),
        str,
    ),
    "Time": ("LocalTime", "LocalTimeCodec", "", pa.time64("ns"), make_values(lambda: RANDOM.randrange(NANOS)), str),
    "Millis": (
        "LocalTime(3)",
        "LocalTimeCodec",
        "3",
        pa.time64("ns"),
        make_values(lambda: RANDOM.randrange(NANOS) // 10**6 * 10**6),
        str,
    ),
    "Seconds": (
        "LocalTime(0,notNull)",
        "LocalTimeCodec",
        "0,notNull",
        pa.time64("ns"),
        [RANDOM.randrange(86_400) * 10**9 for _ in range(ROWS)],
        str,
    ),
    "Certain": (
        "LocalDate(Compact,notNull)",
        "LocalDateCodec",
        "Compact,notNull",
        pa.date32(),
        [RANDOM.randint(-700_000, 2_900_000) for _ in range(ROWS)],
        str,
    ),
    "Zoned": (
        "ZonedDateTime",
        "ZonedDateTimeCodec",
        "",
        pa.timestamp("ns", "Europe/Berlin"),
        make_values(lambda: RANDOM.randint(-(1 << 61), 1 << 61)),
        lambda value: f"{value} Europe/Berlin",
    ),
    "Bytes": (
        "ByteArray(5,notNull)",
        "SimpleByteArrayCodec",
        "5",
        pa.binary(),
        [RANDOM.randbytes(5) for _ in range(ROWS)],
        lambda value: f"bytes{list(struct.unpack('5b', value))}",
    ),
    "Text": (
        "UTF8StringAsByteArray",
        "UTF8StringAsByteArrayCodec",
        "",
        pa.string(),
        [RANDOM.choice(["", "a", "é日\U0001f600"]) for _ in range(ROWS)],
        str,
    ),
    "Doubles": (
        "StringDoubleMap",
        "StringDoubleMapCodec",
        "",
        pa.map_(pa.string(), pa.float64()),
        make_values(mapping(lambda: RANDOM.choice([None, 1.5, -0.0]))),
        entries(bits),
    ),
    "Floats": (
        "StringFloatMap",
        "StringFloatMapCodec",
        "",
        pa.map_(pa.string(), pa.float32()),
        make_values(mapping(lambda: RANDOM.choice([None, 1.5, -0.25]))),
        entries(str),
    ),
    "Longs": (
        "StringLongMap",
        "StringLongMapCodec",
        "",
        pa.map_(pa.string(), pa.int64()),
        make_values(mapping(lambda: RANDOM.choice([None, -5, 1 << 60]))),
        entries(str),
    ),
    "Ints": (
        "StringIntMap",
        "StringIntMapCodec",
        "",
        pa.map_(pa.string(), pa.int32()),
        make_values(mapping(lambda: RANDOM.choice([None, -5]))),
        entries(str),
    ),
    "Flags": (
        "StringBooleanMap",
        "StringBooleanMapCodec",
        "",
        pa.map_(pa.string(), pa.bool_()),
        make_values(mapping(lambda: RANDOM.choice([None, True, False]))),
        entries(lambda value: str(value).lower()),
    ),
    "Names": (
        "StringStringMap",
        "StringStringMapCodec",
        "",
        pa.map_(pa.string(), pa.string()),
        make_values(mapping(lambda: RANDOM.choice(["x", "é"]))),
        entries(str),
    ),
    "Sizes": (
        "int[]",
        "SerializableCodec",
        "",
        pa.list_(pa.int32()),
        make_values(lambda: [RANDOM.randint(-99, 99) for _ in range(RANDOM.randrange(4))]),
        str,
    ),
    "Prices": (
        "double[]",
        "SerializableCodec",
        "",
        pa.list_(pa.float64()),
        make_values(lambda: [RANDOM.random() for _ in range(RANDOM.randrange(4))]),
        lambda value: str(list(map(bits, value))),
    ),
}


@pytest.fixture(scope="module")
def jars(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Deephaven's codecs and what they need, by the Ivy that Spark ships."""
    root = tmp_path_factory.mktemp("jars")
    (ivy,) = (Path(pyspark.__file__).parent / "jars").glob("ivy-*.jar")
    module = ["io.deephaven", "deephaven-codec-builtin", VERSION]
    pattern = str(root / "[artifact]-[revision].[ext]")
    run("-jar", str(ivy), "-dependency", *module, "-retrieve", pattern, "-confs", "default")
    return root


def run(*arguments: str) -> None:
    java = shutil.which("java")
    assert java, "the interop tests need Java"
    done = subprocess.run([java, *arguments], capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr


def test_deephaven_decodes_and_encodes_the_same(jars: Path, tmp_path: Path) -> None:
    types = {name: column[0] for name, column in COLUMNS.items()}
    table = pa.table({name: pa.array(column[4], column[3]) for name, column in COLUMNS.items()})
    sawlog.write(table, tmp_path / "t", format="deephaven_table", column_version=2, types=types)
    lines = [
        f"{name}\t{column[1]}\t{column[2]}\t{parse_type(column[0], name).slot_width}"
        for name, column in COLUMNS.items()
    ]
    (tmp_path / "columns.txt").write_text("\n".join(lines))
    program = Path(__file__).with_name("Codecs.java")
    run("-cp", f"{jars}/*", str(program), str(tmp_path))
    decoded_lines: dict[str, list[str]] = {name: [] for name in COLUMNS}
    for line in (tmp_path / "described.txt").read_text().split("\n")[:-1]:
        name, _, text = line.partition("\t")
        decoded_lines[name].append(text)
    for name, (_, _, _, _, values, show) in COLUMNS.items():
        assert decoded_lines[name] == ["null" if value is None else show(value) for value in values], name

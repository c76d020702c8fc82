"""Every row of the published text: what a plain encoder writes of it is read, and written again as it was."""

from __future__ import annotations

import itertools
import struct
import zlib
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import sawlog
from sawlog.deephaven.log import Logger
from sawlog.errors import SchemaError

from .reference import CODES, DELETE, Col, entry, header, row, text
from .support import NULLS, save

VALUES: dict[str, list[Any]] = {
    "Boolean": [True, False],
    "Byte": [-127, 127],
    "Char": [0, 0x20AC, 0xFFFD],
    "Short": [-0x7FFF, 0x7FFF],
    "Int": [-0x7FFFFFFF, 0x7FFFFFFF],
    "Long": [-0x7FFFFFFFFFFFFFFF, 0x7FFFFFFFFFFFFFFF],
    "Float": [-1.5, float("inf")],
    "Double": [-1.5, 5e-324],
    "Blob": [b"", bytes(range(256))],
    "EnhancedString": ["", "€ 語 🙂"],
    "Enum": [0, 2],
}
TABLE = ("Buy", "", "Séll")
ARROW = {
    "Boolean": pa.bool_(),
    "Byte": pa.int8(),
    "Char": pa.uint16(),
    "Short": pa.int16(),
    "Int": pa.int32(),
    "Long": pa.int64(),
    "Float": pa.float32(),
    "Double": pa.float64(),
    "Blob": pa.binary(),
    "EnhancedString": pa.string(),
    "Enum": pa.dictionary(pa.int32(), pa.string()),
}


def written_again(path: Path) -> bytes:
    again = path.with_suffix(".again")
    sawlog.write(sawlog.read(path), again, format="deephaven_log")
    return again.read_bytes()


def show_value(kind: str, value: Any) -> Any:
    return TABLE[value] if kind == "Enum" and value is not None else value


@pytest.mark.parametrize("kind", CODES)
def test_a_type_is_read_in_rows(tmp_path: Path, kind: str):
    col = Col("C", kind, table=TABLE if kind == "Enum" else ())
    values = [*VALUES[kind], None]
    path = save(tmp_path / "t.bin", header([col]), *(row([col], {"C": value}) for value in values))
    table = sawlog.read(path)
    assert table.schema.field("C").type == ARROW[kind]
    assert table.schema.field("C").metadata[b"sawlog.type"] == kind.encode()
    assert table["C"].to_pylist() == [show_value(kind, value) for value in values]
    assert written_again(path) == path.read_bytes()


@pytest.mark.parametrize("kind", CODES)
def test_a_type_as_a_constant(tmp_path: Path, kind: str):
    nulls = {bytes.fromhex(NULLS[kind])} | ({b"\xff\xff"} if kind == "Char" else set())
    for value in (*VALUES[kind], *nulls):
        table = TABLE if kind == "Enum" else ()
        stored = value if value in nulls else Col("C", kind, table=table).encode(value)
        cols = [Col("C", kind, table=table, constant=stored), Col("N", "Int")]
        path = save(tmp_path / "t.bin", header(cols), row(cols, {"N": 1}))
        assert sawlog.read(path)["C"].to_pylist() == [None if value in nulls else show_value(kind, value)]
        assert written_again(path) == path.read_bytes()


@pytest.mark.parametrize("charset", ["US-ASCII", "ISO-8859-1", "UTF-8", "UTF-16BE", "UTF-16LE", "UTF-16"])
def test_a_charset_of_an_enum_and_of_constants(tmp_path: Path, charset: str):
    words = ("Buy", "Sell", "€ 語" if charset.startswith("UTF") else "é" if "8859" in charset else "x")
    cols = [
        Col("E", "Enum", charset, words),
        Col("K", "EnhancedString", charset, constant=text(words[2], charset)),
    ]
    path = save(tmp_path / "t.bin", header(cols), *(row(cols, {"E": place}) for place in range(3)))
    assert sawlog.read(path).to_pylist() == [{"E": word, "K": words[2]} for word in words]
    assert written_again(path) == path.read_bytes()


def test_text_without_a_mark_is_big_endian(tmp_path: Path):
    """As Java's UTF-16 has it; with a mark, that says."""
    cols = [Col("S", "EnhancedString", "UTF-16")]
    texts = [b"\0A\x20\xac", b"\xfe\xff\0A\x20\xac", b"\xff\xfeA\0\xac\x20"]
    constant = Col("K", "EnhancedString", "UTF-16", constant=struct.pack(">i", 4) + texts[0])
    rows = [entry(3, b"\1" + struct.pack(">i", len(text)) + text) for text in texts]
    path = save(tmp_path / "t.bin", header([*cols, constant]), *rows)
    assert sawlog.read(path).to_pylist() == [{"S": "A€", "K": "A€"}] * 3


def test_an_enum_that_its_charset_cannot_hold(tmp_path: Path):
    field = pa.field("E", pa.dictionary(pa.int32(), pa.string()), metadata={b"sawlog.charset": b"ISO-8859-1"})
    data = pa.table([pa.array(["€"]).dictionary_encode()], pa.schema([field]))
    with pytest.raises(SchemaError, match=r"'E'.*'€' cannot be written in ISO-8859-1"):
        sawlog.write(data, tmp_path / "t.bin", format="deephaven_log")


def test_header_records_in_every_order(tmp_path: Path):
    """Each at most once; which comes first is not said. They are written as 1, 2, 3."""
    cols = [Col("N", "Int"), Col("K", "Long", constant=struct.pack(">q", 5))]
    data = header(cols, app=7)
    pieces, offset = [], 12
    while offset < len(data) - 4:
        size = 8 + int.from_bytes(data[offset : offset + 4], "big")
        pieces.append(data[offset : offset + size])
        offset += size
    assert len(pieces) == 3
    for order in itertools.permutations(pieces):
        head = data[:12] + b"".join(order)
        path = save(tmp_path / "t.bin", head, struct.pack(">I", zlib.adler32(head)), row(cols, {"N": 3}))
        table = sawlog.read(path)
        assert table.to_pylist() == [{"N": 3, "K": 5}]
        assert table.schema.metadata[b"sawlog.application_version"] == b"7"
        assert written_again(path) == data + row(cols, {"N": 3})


@pytest.mark.parametrize("count", [0, 1, 7, 8, 9, 16, 17])
def test_the_bit_of_a_column(tmp_path: Path, count: int):
    """Column i, constants not counted, is bit i % 8 of byte i / 8."""
    cols = [Col("K", "Byte", constant=b"\1"), *(Col(f"C{i}", "Byte") for i in range(count))]
    bodies = [bytes((1 << i % 8) if i // 8 == byte else 0 for byte in range(-(-count // 8))) for i in range(count)]
    rows = [entry(3, body + bytes([i])) for i, body in enumerate(bodies)] or [entry(3, b"")]
    path = save(tmp_path / "t.bin", header(cols), *rows)
    table = sawlog.read(path)
    assert table.num_rows == len(rows)
    for i in range(count):
        assert table[f"C{i}"].to_pylist() == [i if place == i else None for place in range(count)]
    assert written_again(path) == path.read_bytes()


def test_records_that_are_no_rows(tmp_path: Path):
    cols = [Col("N", "Int")]
    other_record = struct.pack(">ii", 123, 4) + b"data"
    command = struct.pack(">iii", 20000, 1, 42) + b"more"
    rows = [row(cols, {"N": n}) for n in range(2)]
    path = save(
        tmp_path / "t.bin", header(cols), rows[0], entry(4, DELETE), entry(4, other_record), rows[1], entry(4, command)
    )
    assert sawlog.read(path)["N"].to_pylist() == [1]
    commands = [tuple(value.values())[1:] for value in sawlog.read(path, view="commands").to_pylist()]
    assert commands == [(20000, 1, 10000, b""), (123, 4, None, b"data"), (20000, 1, 42, b"more")]
    again = tmp_path / "again.bin"
    with Logger(again, pa.schema([("N", pa.int32())])) as log:
        log.write(pa.table({"N": pa.array([0], pa.int32())}))
        log.delete_partition()
        log.write(pa.table({"N": pa.array([1], pa.int32())}))
        log.command(42, b"more")
    assert again.read_bytes() == path.read_bytes().replace(entry(4, other_record), b"")


def test_the_flags_of_a_set(tmp_path: Path):
    cols = [Col("N", "Int")]
    data = header(cols) + b"".join(row(cols, {"N": n}, flags) for n, flags in enumerate([1, 0, 2]))
    path = save(tmp_path / "t.bin", data)
    assert sawlog.read(path)["N"].to_pylist() == [0, 1, 2]
    again = tmp_path / "again.bin"
    sawlog.write(sawlog.read(path), again, format="deephaven_log", transactions="batch")
    assert again.read_bytes() == data

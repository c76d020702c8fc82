"""An encoder of column files written from the specification with `struct`, which shares nothing with sawlog."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

NULL_STREAM = bytes.fromhex("aced000570")
CODES = {
    "byte": "b", "short": "h", "int": "i", "long": "q", "float": "f", "double": "d", "char": "H", "Boolean": "b",
    "DateTime": "q", "StringSet": "q",
}  # fmt: skip
NULLS: dict[str, Any] = {
    "byte": -128,
    "short": -(1 << 15),
    "int": -(1 << 31),
    "long": -(1 << 63),
    "float": struct.unpack("<f", bytes.fromhex("ffff7fff"))[0],
    "double": struct.unpack("<d", bytes.fromhex("ffffffffffffefff"))[0],
    "char": 0xFFFE,
    "Boolean": -1,
    "DateTime": -(1 << 63),
    "StringSet": -(1 << 63),
}


@dataclass(frozen=True)
class Shape:
    """How files are laid out."""

    version: int = 1
    little: bool = True
    start: int = 64
    metadata: bytes = NULL_STREAM

    def header(self) -> bytes:
        if self.version == 2:
            return b""
        first = len(self.metadata) | (0x80000000 if self.little else 0)
        body = self.metadata[: self.start - 8]
        return struct.pack(">II", first, self.start) + body + bytes(self.start - 8 - len(body))

    def overflow(self) -> bytes:
        return self.metadata[max(0, self.start - 8) :] if self.version == 1 else b""

    def pack(self, code: str, values: Sequence[Any]) -> bytes:
        return struct.pack(("<" if self.little else ">") + str(len(values)) + code, *values)


def put(directory: Path, column: str, shape: Shape, data: bytes, **contents: bytes) -> None:
    """The files of one column: `.dat`, its overflow if there is any, and the others by suffix."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / f"{column}.dat").write_bytes(shape.header() + data)
    if shape.overflow():
        (directory / f"{column}.ovr").write_bytes(shape.overflow())
    for suffix, content in contents.items():
        (directory / f"{column}.{suffix.replace('_', '.')}").write_bytes(content)


def put_fixed(directory: Path, column: str, kind: str, values: Sequence[Any], shape: Shape) -> None:
    stored = [NULLS[kind] if value is None else value for value in values]
    put(directory, column, shape, shape.pack(CODES[kind], stored))


def put_text(
    directory: Path, column: str, values: Sequence[str | None], shape: Shape, charset: str = "latin-1"
) -> None:
    encoded = [b"" if value is None else value.encode(charset) or b"\0" for value in values]
    put_variable(directory, column, encoded, shape)


def put_variable(directory: Path, column: str, values: Sequence[bytes], shape: Shape) -> None:
    put(directory, column, shape, shape.pack("q", ends(values)), bytes=b"".join(values))


def put_symbols(directory: Path, column: str, values: Sequence[str | None], shape: Shape, forget: int = 0) -> None:
    """Strings with a symbol table; a bounded table forgets a symbol when it has `forget` others."""
    table: list[str] = []
    ids = []
    for value in values:
        if value is None:
            ids.append(-(1 << 31))
            continue
        symbols = table[-forget:] if forget else table
        if value not in symbols:
            table.append(value)
            symbols = table[-forget:] if forget else table
        ids.append(len(table) - len(symbols) + symbols.index(value))
    encoded = [value.encode("latin-1") or b"\0" for value in table]
    plain = Shape(shape.version, shape.little, shape.start)
    sym = plain.header() + shape.pack("q", ends(encoded))
    put(directory, column, shape, shape.pack("i", ids), sym=sym, sym_bytes=b"".join(encoded))


def ends(values: Sequence[bytes]) -> list[int]:
    total = 0
    totals = []
    for value in values:
        total += len(value)
        totals.append(total)
    return totals


def put_rows(directory: Path, count: int) -> None:
    (directory / "table.size").write_bytes(struct.pack(">i", count))


def int_array(*values: int) -> bytes:
    """An int[] by Java serialization, as a JDK writes it."""
    return bytes.fromhex("aced0005757200025b494dba602676eab2a50200007870") + struct.pack(
        f">i{len(values)}i", len(values), *values
    )


def grouping(groups: Sequence[tuple[str | None, int, int]]) -> bytes:
    """A HashMap of String to int[2], as the specification spells its bytes out. Keys are String or null."""
    capacity = 16
    while capacity * 3 // 4 < len(groups):
        capacity *= 2
    out = bytes.fromhex("aced0005737200116a6176612e7574696c2e486173684d61700507dac1c31660d1030002")
    out += bytes.fromhex("46000a6c6f6164466163746f724900097468726573686f6c647870") + bytes.fromhex("3f400000")
    out += struct.pack(">I", capacity * 3 // 4) + b"\x77\x08" + struct.pack(">II", capacity, len(groups))
    array_class = None
    handle = 2
    for key, first, end in groups:
        if key is None:
            out += b"\x70"
        else:
            encoded = key.encode()
            out += b"\x74" + struct.pack(">H", len(encoded)) + encoded
            handle += 1
        if array_class is None:
            out += bytes.fromhex("757200025b494dba602676eab2a502000078 70".replace(" ", ""))
            array_class = handle
            handle += 1
        else:
            out += b"\x75\x71" + struct.pack(">I", 0x7E0000 + array_class)
        handle += 1
        out += struct.pack(">iii", 2, first, end)
    return out + b"\x78"

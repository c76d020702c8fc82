"""Logs built byte by byte, and read back by the plainest code there is: an oracle that shares nothing with sawlog."""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass
from typing import Any

CODES = {
    "Boolean": 1,
    "Byte": 2,
    "Char": 3,
    "Short": 4,
    "Int": 5,
    "Long": 6,
    "Float": 7,
    "Double": 8,
    "Blob": 9,
    "EnhancedString": 10,
    "Enum": 11,
}
PACK = {
    "Boolean": ">?",
    "Byte": ">b",
    "Char": ">H",
    "Short": ">h",
    "Int": ">i",
    "Long": ">q",
    "Float": ">f",
    "Double": ">d",
    "Enum": ">i",
}
DELETE = struct.pack(">iii", 20000, 1, 10000)


def text(value: str, encoding: str = "utf-8") -> bytes:
    # Java's UTF-16 is big-endian, after a mark.
    data = b"\xfe\xff" + value.encode("utf-16-be") if encoding == "UTF-16" else value.encode(encoding)
    return struct.pack(">i", len(data)) + data


@dataclass
class Col:
    name: str
    type: str
    charset: str = "UTF-8"
    table: tuple[str, ...] = ()
    constant: bytes | None = None

    def meta(self) -> bytes:
        if self.type == "EnhancedString":
            return text(self.charset)
        if self.type == "Enum":
            strings = b"".join(text(value, self.charset) for value in self.table)
            return struct.pack(">i", len(self.table)) + text(self.charset) + strings
        return b""

    def encode(self, value: Any) -> bytes:
        if self.type == "EnhancedString":
            return text(value, self.charset)
        if self.type == "Blob":
            return struct.pack(">i", len(value)) + value
        return struct.pack(PACK[self.type], value)


def header(
    cols: list[Col], app: int | None = None, version: int = 3, digest_from: int = 0, extra: bytes = b""
) -> bytes:
    definitions = struct.pack(">i", len(cols))
    for col in cols:
        meta = col.meta()
        definitions += text(col.name) + struct.pack(">ii", CODES[col.type], len(meta)) + meta
    records = struct.pack(">ii", len(definitions), 1) + definitions
    constants = [text(col.name) + col.constant for col in cols if col.constant is not None]
    if constants:
        body = struct.pack(">i", len(constants)) + b"".join(constants)
        records += struct.pack(">ii", len(body), 2) + body
    if app is not None:
        records += struct.pack(">iii", 4, 3, app)
    records += extra
    head = struct.pack(">Iii", 0xDB1AA1DB, version, len(records) + 4) + records
    return head + struct.pack(">I", zlib.adler32(head[digest_from:]))


def entry(flags: int, body: bytes) -> bytes:
    head = struct.pack(">iB", 1 + len(body) + 4, flags) + body
    return head + struct.pack(">I", zlib.adler32(head))


def row_body(cols: list[Col], values: dict[str, Any], *, big_bits: bool = False) -> bytes:
    stored = [col for col in cols if col.constant is None]
    presence = bytearray(-(-len(stored) // 8))
    data = b""
    for index, col in enumerate(stored):
        value = values.get(col.name)
        if value is not None:
            presence[index // 8] |= (0x80 >> index % 8) if big_bits else 1 << index % 8
            data += col.encode(value)
    return bytes(presence) + data


def row(cols: list[Col], values: dict[str, Any], flags: int = 3) -> bytes:
    return entry(flags, row_body(cols, values))


def committed(flags: list[int], *, deletes: bool = True) -> list[int]:
    """Indices of the rows that are delivered (section 5): flags 0 to 3 are rows, 4 a DELETE_PARTITION, 5 any other."""
    out: list[int] = []
    pending: list[int] | None = None
    for index, flag in enumerate(flags):
        if flag == 4:
            if deletes:
                out, pending = [], None
        elif flag == 5:
            continue
        elif flag == 3:
            pending = None
            out.append(index)
        elif flag == 1:
            pending = [index]
        elif pending is None:
            out.append(index)
        else:
            pending.append(index)
            if flag == 2:
                out += pending
                pending = None
    return out

"""Bytes of keys and values, taken in order; every length is checked."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

from sawlog.leveldb.applications.view import UnknownBytesError


class Cursor:
    """Some bytes, and how far they were read.

    Args:
        data: The bytes.
        at: Where to begin.
    """

    def __init__(self, data: bytes, at: int = 0) -> None:
        self.data = data
        self.at = at

    @property
    def left(self) -> int:
        """Bytes that were not read."""
        return len(self.data) - self.at

    def take(self, length: int, what: str = "value") -> bytes:
        """The next bytes.

        Raises:
            UnknownBytesError: When there are fewer.
        """
        if length > self.left:
            raise UnknownBytesError(f"{what} of {length} bytes at byte {self.at}, where {self.left} are left")
        self.at += length
        return self.data[self.at - length : self.at]

    def rest(self) -> bytes:
        """All bytes that are left."""
        return self.take(self.left)

    def byte(self) -> int:
        """The next byte."""
        return self.take(1, "byte")[0]

    def peek(self) -> int:
        """The next byte, which stays; -1 at the end."""
        return self.data[self.at] if self.left else -1

    def little(self, length: int) -> int:
        """An unsigned integer, little endian."""
        return int.from_bytes(self.take(length, "integer"), "little")

    def double(self) -> float:
        """A float64, little endian."""
        found: float = struct.unpack("<d", self.take(8, "double"))[0]
        return found

    def varint(self, bits: int = 64) -> int:
        """An unsigned integer, seven bits per byte, low ones first.

        Raises:
            UnknownBytesError: When it has more bits, or does not end.
        """
        start = self.at
        value = shift = 0
        while True:
            byte = self.byte()
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                break
            if shift >= bits:
                raise UnknownBytesError(f"varint of more than {bits} bits at byte {start}")
        if value >> bits:
            raise UnknownBytesError(f"varint of more than {bits} bits at byte {start}")
        return value

    def end(self) -> None:
        """Make sure that nothing is left.

        Raises:
            UnknownBytesError: When something is.
        """
        if self.left:
            raise UnknownBytesError(f"{self.left} bytes after the end, at byte {self.at}")


def columns_of(value: bytes | None, read: Callable[[bytes], dict[str, Any]]) -> dict[str, Any]:
    """Columns that a value gives, or why it gives none. A deletion has no value."""
    try:
        return {} if value is None else read(value)
    except UnknownBytesError as unknown:
        return {"reason": f"value: {unknown}"}


def text(data: bytes, encoding: str) -> tuple[str, str | None]:
    """A text, and why it is not exactly what is stored, where Unicode has no place for it."""
    try:
        return data.decode(encoding), None
    except UnicodeDecodeError as error:
        shown = data.decode(encoding, "replace")
        return shown, f"not {encoding} at byte {error.start} of the text: shown with U+FFFD"

"""Numbers of seven bits per byte, low ones first, as LevelDB, RocksDB and protobuf write them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator

MAX_VARINT_BYTES = 10
"""Bytes of a number of 64 bits, at most."""


def encode_varint(value: int) -> bytes:
    """Return a number that is not negative."""
    out = bytearray()
    while value >= 128:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def read_varint(data: bytes | memoryview, start: int = 0, max_bytes: int = MAX_VARINT_BYTES) -> tuple[int, int] | None:
    """Return the number that begins at a byte, and the byte after it; None where it does not end in time."""
    value = 0
    for index, byte in enumerate(data[start : start + max_bytes]):
        value |= (byte & 127) << 7 * index
        if byte < 128:
            return value, start + index + 1
    return None


def decode_varints(data: bytes) -> Iterator[int]:
    """Return all numbers of a sequence; one that does not end is left out."""
    return (value for value, _ in decode_varints_with_ends(data))


def decode_varints_with_ends(data: bytes) -> Iterator[tuple[int, int]]:
    """Yield the same, each with where it ends."""
    value = shift = 0
    for end, byte in enumerate(data, 1):
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            yield value, end
            value = shift = 0


class ByteCursor(ABC):
    """Bytes, and the position up to which they were read.

    Args:
        data: The bytes.
        position: Where reading begins.
        stop: Where it ends; by default where the bytes do.
    """

    def __init__(self, data: bytes, position: int = 0, stop: int | None = None) -> None:
        self.data = data
        self.position = position
        self.stop = len(data) if stop is None else stop

    @abstractmethod
    def make_missing_error(self, label: str, length: int) -> Exception:
        """Return the error to raise for a value of so many bytes, of which not all are there."""

    @property
    def remaining(self) -> int:
        """Number of bytes that were not read."""
        return self.stop - self.position

    def take(self, length: int, label: str = "value") -> bytes:
        """Return the next bytes; raises what `make_missing_error` returns where there are fewer."""
        start, end = self.position, self.position + length
        if not start <= end <= self.stop:
            raise self.make_missing_error(label, length)
        self.position = end
        return self.data[start:end]

    def take_remainder(self) -> bytes:
        """Return all bytes that are left."""
        return self.take(self.remaining)

    def take_byte(self) -> int:
        """Return the next byte."""
        return self.take(1, "byte")[0]

"""Numbers of seven bits per byte, low ones first, as LevelDB, RocksDB and protobuf write them."""

from __future__ import annotations

from collections.abc import Iterator

MAX_VARINT_BYTES = 10
"""Bytes of a number of 64 bits, at most."""


def encode_varint(value: int) -> bytes:
    """A number that is not negative."""
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
    """All numbers of a sequence; one that does not end is left out."""
    return (value for value, _ in varints_and_ends(data))


def varints_and_ends(data: bytes) -> Iterator[tuple[int, int]]:
    """The same, each with where it ends."""
    value = shift = 0
    for end, byte in enumerate(data, 1):
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            yield value, end
            value = shift = 0

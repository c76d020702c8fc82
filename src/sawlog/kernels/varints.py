"""Numbers of seven bits per byte, low ones first, as LevelDB, RocksDB and protobuf write them."""

from __future__ import annotations

from collections.abc import Iterator


def encode_varint(value: int) -> bytes:
    """A number that is not negative."""
    out = bytearray()
    while value >= 128:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


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

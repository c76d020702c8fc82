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
    value = shift = 0
    for byte in data:
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            yield value
            value = shift = 0

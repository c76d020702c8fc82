"""Bytes as formats of several packages have them."""

from __future__ import annotations

import crc32c


def encode_varint(number: int) -> bytes:
    """Return a varint; of a negative number, that of its 64 bits."""
    data = bytearray()
    number &= (1 << 64) - 1
    while number > 127:
        data.append(number & 127 | 128)
        number >>= 7
    return bytes([*data, number])


def decode_varint(data: bytes, offset: int) -> tuple[int, int]:
    """Return the number of a varint, and where it ends."""
    number = shift = 0
    while True:
        number |= (data[offset] & 127) << shift
        offset, shift = offset + 1, shift + 7
        if data[offset - 1] < 128:
            return number, offset


def mask_crc(data: bytes) -> int:
    """Return the CRC-32C of bytes as LevelDB and TFRecord mask it."""
    crc = crc32c.crc32c(data)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def flip_bit(data: bytes, bit: int) -> bytes:
    """Return bytes of which one bit is another."""
    changed = bytearray(data)
    changed[bit >> 3] ^= 1 << (bit & 7)
    return bytes(changed)

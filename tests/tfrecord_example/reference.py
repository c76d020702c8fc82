"""TFRecord files by struct and the package crc32c, which share nothing with sawlog."""

from __future__ import annotations

import struct

import crc32c


def masked(data: bytes) -> int:
    crc = crc32c.crc32c(data)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def record(data: bytes) -> bytes:
    length = struct.pack("<Q", len(data))
    return length + struct.pack("<I", masked(length)) + data + struct.pack("<I", masked(data))


def write(*records: bytes) -> bytes:
    return b"".join(map(record, records))


def offsets(*records: bytes) -> list[int]:
    found = [0]
    for one in records:
        found.append(found[-1] + 16 + len(one))
    return found[:-1]

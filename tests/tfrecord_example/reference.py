"""TFRecord files by struct and the package crc32c, which share nothing with sawlog."""

from __future__ import annotations

import struct

from tests.bytes import mask_crc


def record(data: bytes) -> bytes:
    length = struct.pack("<Q", len(data))
    return length + struct.pack("<I", mask_crc(length)) + data + struct.pack("<I", mask_crc(data))


def frame(*records: bytes) -> bytes:
    return b"".join(map(record, records))


def offsets(*records: bytes) -> list[int]:
    offset_list = [0]
    for record in records:
        offset_list.append(offset_list[-1] + 16 + len(record))
    return offset_list[:-1]

"""Just enough of the protobuf wire format for Milvus' metadata. Section 5.1 of the format."""

from __future__ import annotations

import struct
from collections import defaultdict
from typing import TypeAlias

from sawlog.errors import FormatError

Value: TypeAlias = int | bytes
Message: TypeAlias = dict[int, list[Value]]

VARINT, FIXED64, LENGTH, FIXED32 = 0, 1, 2, 5


def decode(data: bytes, what: str) -> Message:
    """The fields of a message by number, in order; fixed-width values stay bytes.

    Raises:
        FormatError: When the bytes are no message.
    """
    fields: Message = defaultdict(list)
    at = 0
    while at < len(data):
        key, at = _varint(data, at, what)
        kind = key & 7
        value: Value
        if kind == VARINT:
            value, at = _varint(data, at, what)
        else:
            length = {FIXED64: 8, FIXED32: 4}.get(kind, -1)
            if kind == LENGTH:
                length, at = _varint(data, at, what)
            if length < 0 or length > len(data) - at:
                raise FormatError(f"{what}: not a protobuf message (byte {at}: {data[at : at + 8].hex(' ')})")
            value = data[at : at + length]
            at += length
        fields[key >> 3].append(value)
    return fields


def integer(message: Message, number: int, default: int = 0) -> int:
    """The last value of an integer field, as int64."""
    for value in reversed(message.get(number, ())):
        if isinstance(value, int):
            return value - (1 << 64) if value >= 1 << 63 else value
    return default


def raw(message: Message, number: int) -> bytes:
    """The last value of a bytes or message field; empty when there is none."""
    for value in reversed(message.get(number, ())):
        if isinstance(value, bytes):
            return value
    return b""


def text(message: Message, number: int) -> str:
    """The last value of a string field."""
    return raw(message, number).decode("utf-8", "replace")


def messages(message: Message, number: int) -> list[bytes]:
    """All values of a repeated message field."""
    return [value for value in message.get(number, ()) if isinstance(value, bytes)]


def integers(message: Message, number: int, what: str) -> list[int]:
    """All values of a repeated integer field, packed or not, as int64."""
    values: list[int] = []
    for value in message.get(number, ()):
        if isinstance(value, int):
            values.append(value)
            continue
        at = 0
        while at < len(value):
            one, at = _varint(value, at, what)
            values.append(one)
    return [value - (1 << 64) if value >= 1 << 63 else value for value in values]


def floating(message: Message, number: int) -> float:
    """The last value of a float or double field.

    Raises:
        FormatError: When it is of another width.
    """
    value = raw(message, number)
    if len(value) not in (0, 4, 8):
        raise FormatError(f"expected a number of 4 or 8 bytes, found {len(value)}")
    return float(struct.unpack("<f" if len(value) == 4 else "<d", value)[0]) if value else 0.0


def _varint(data: bytes, at: int, what: str) -> tuple[int, int]:
    value = shift = 0
    while at < len(data) and shift < 70:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at += 1
        if byte < 0x80:
            return value & 0xFFFFFFFFFFFFFFFF, at
        shift += 7
    raise FormatError(f"{what}: not a protobuf message (a broken varint at byte {at})")

"""Thrift's compact protocol, read into lists and written again: enough to lie in Parquet's footers and page headers."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from typing import Any

from tests.bytes import decode_varint, encode_varint

TRUE, FALSE, BYTE, I16, I32, I64, DOUBLE, BINARY, LIST, SET, MAP, STRUCT = 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12
NUMBERS = (I16, I32, I64)


@dataclass
class Struct:
    """Fields in order: id, type, value."""

    fields: list[list[Any]] = field(default_factory=list)


def read(data: bytes, offset: int = 0) -> tuple[Struct, int]:
    """A struct, and where it ends."""
    return _struct(data, offset)


def _struct(data: bytes, offset: int) -> tuple[Struct, int]:
    struct, last = Struct(), 0
    while True:
        head = data[offset]
        offset += 1
        if not head:
            return struct, offset
        kind, step = head & 15, head >> 4
        if step:
            last += step
        else:
            value, offset = decode_varint(data, offset)
            last = value >> 1 ^ -(value & 1)
        value, offset = _value(data, offset, kind)
        struct.fields.append([last, kind, value])


def _value(data: bytes, offset: int, kind: int) -> tuple[Any, int]:
    match kind:
        case 1 | 2:
            return None, offset
        case 3:
            return data[offset], offset + 1
        case 4 | 5 | 6:
            value, offset = decode_varint(data, offset)
            return value >> 1 ^ -(value & 1), offset
        case 7:
            return data[offset : offset + 8], offset + 8
        case 8:
            size, offset = decode_varint(data, offset)
            return data[offset : offset + size], offset + size
        case 9 | 10:
            head = data[offset]
            offset += 1
            size, kind = head >> 4, head & 15
            if size == 15:
                size, offset = decode_varint(data, offset)
            items = []
            for _ in range(size):
                item, offset = (data[offset], offset + 1) if kind in (TRUE, FALSE) else _value(data, offset, kind)
                items.append(item)
            return [kind, items], offset
        case 12:
            return _struct(data, offset)
    raise ValueError(kind)


def write(struct: Struct) -> bytes:
    """The bytes of a struct."""
    out, last = bytearray(), 0
    for number, kind, value in struct.fields:
        step = number - last
        if 0 < step < 16:
            out.append(step << 4 | kind)
        else:
            out.append(kind)
            out += encode_varint(_zigzag(number))
        last = number
        out += _written(kind, value)
    return bytes(out) + b"\0"


def _zigzag(value: int) -> int:
    return (value << 1 ^ value >> 63) & (1 << 64) - 1


def _written(kind: int, value: Any) -> bytes:
    match kind:
        case 1 | 2:
            return b""
        case 3:
            return bytes([value])
        case 4 | 5 | 6:
            return encode_varint(_zigzag(value))
        case 7:
            return bytes(value)
        case 8:
            return encode_varint(len(value)) + value
        case 9 | 10:
            inner, items = value
            head = (
                bytes([len(items) << 4 | inner])
                if len(items) < 15
                else bytes([0xF0 | inner]) + encode_varint(len(items))
            )
            return head + b"".join(bytes([i]) if inner in (TRUE, FALSE) else _written(inner, i) for i in items)
        case 12:
            return write(value)
    raise ValueError(kind)


def bend(struct: Struct, dice: Random) -> str:
    """Change one value somewhere in a struct; says which."""
    places: list[tuple[Any, Any, int, str]] = []
    _places(struct, places, "")
    holder, key, kind, path = dice.choice(places)
    if kind in NUMBERS:
        old = holder[key]
        limit = {I16: 15, I32: 31, I64: 63}[kind]
        new = dice.choice((0, 1, -1, old + 1, old - 1, old * 2, 7, 1000, 1 << 20, (1 << limit) - 1, -(1 << limit)))
        holder[key] = max(-(1 << limit), min(new, (1 << limit) - 1))
    elif kind == BINARY:
        holder[key] = dice.choice((b"", holder[key][1:], holder[key] * 3, b"\xff" + holder[key]))
    elif kind in (LIST, SET):
        items = holder[key][1]
        if items and dice.random() < 0.5:
            items.pop(dice.randrange(len(items)))
        elif items:
            items.append(dice.choice(items))
    elif kind == STRUCT and holder[key].fields:
        holder[key].fields.pop(dice.randrange(len(holder[key].fields)))
    elif kind in (TRUE, FALSE) and isinstance(holder, list) and len(holder) == 3:
        holder[1] = TRUE + FALSE - kind
    return path


def _places(struct: Struct, place_list: list[tuple[Any, Any, int, str]], path: str) -> None:
    for entry in struct.fields:
        number, kind, value = entry
        place = f"{path}.{number}"
        place_list.append((entry, 2, kind, place))
        if kind == STRUCT:
            _places(value, place_list, place)
        elif kind in (LIST, SET):
            inner, items = value
            for index, item in enumerate(items):
                place_list.append((items, index, inner, f"{place}[{index}]"))
                if inner == STRUCT:
                    _places(item, place_list, f"{place}[{index}]")

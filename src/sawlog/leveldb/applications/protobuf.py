"""Messages of protobuf as JSON: fields that are declared by name, others by number.

A declaration is a line per message: its name, a colon, and its fields: number, name and kind. `*` after a kind is for
repeated fields. Kinds are `int` (signed), `uint`, `bool`, `float`, `double`, `fixed`, `text`, `bytes`, the names of an
enum's values from 0 on, with `|` between them, or the name of another message. `Name = A|B` names an enum.
No message contains itself: declarations bound how deep a document is.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple, TypeAlias

from sawlog.kernels.varints import read_varint
from sawlog.leveldb.applications.script_values import encode_base64, render_number, to_json
from sawlog.leveldb.applications.view import UnknownBytesError, decode_text

VARINT, FIXED64, LENGTH, FIXED32 = 0, 1, 2, 5
"""Wire types: how many bytes the value of a field has."""
_WIDTHS = {FIXED64: 8, FIXED32: 4}
_FIRST_FIELD = 8
"""The smallest tag: that of the field 1."""

Show: TypeAlias = Callable[[Any, list[str]], Any]
"""What makes JSON of the value of a field, given the list of reasons why parts of it are shown as bytes."""


class Field(NamedTuple):
    """Declared field of a message.

    Attributes:
        name: What its message calls it.
        kind: That of its value: a name of `_KINDS`, of a message, or of the caller's own; `enum` for all enums.
        values: Names of the values of an enum.
        is_repeated: Whether it is a list.
        wires: The wire types that it may have.
        show: What makes JSON of its value.
    """

    name: str
    kind: str
    values: tuple[str, ...]
    is_repeated: bool
    wires: tuple[int, ...]
    show: Show


class Messages:
    """Declared messages, by name.

    Attributes:
        fields: By the name of a message: its fields, by number.

    Args:
        declarations: The lines that declare them; one that begins with a space continues the line before.
        kinds: Kinds of bytes that are the caller's own.
    """

    def __init__(self, declarations: str, **kinds: Show) -> None:
        lines = declarations.strip().replace("\n ", " ").splitlines()
        self._enums = dict(line.replace(" ", "").split("=") for line in lines if " = " in line)
        declared = dict(line.split(":") for line in lines if ":" in line)
        self._kinds: dict[str, tuple[tuple[int, ...], Show]] = {
            **_KINDS,
            **{name: ((LENGTH,), partial(self._read_message, name)) for name in declared},
            **{name: ((LENGTH,), show) for name, show in kinds.items()},
        }
        self.fields: Mapping[str, Mapping[int, Field]] = {
            name: self._declare(fields) for name, fields in declared.items()
        }

    def read(self, data: bytes, name: str = "") -> tuple[dict[str, Any], str | None]:
        """Return a message as an object of JSON, and why parts of it are shown as bytes, if any are.

        Args:
            data: Its bytes.
            name: That of its declaration; without it, fields have numbers only.
        """
        reasons: list[str] = []
        return self._read_message(name, data, reasons), reasons[0] if reasons else None

    def show(self, data: bytes, name: str = "") -> dict[str, Any]:
        """Return the columns `value` and `reason` of a message; see `read`."""
        return make_message_columns(*self.read(data, name))

    def _declare(self, fields: str) -> dict[int, Field]:
        """Return the fields of a message, by number."""
        declared: dict[int, Field] = {}
        for place, name, kind in (field.split() for field in fields.split(",") if field.strip()):
            plain = kind.removesuffix("*")
            values = self._enums.get(plain, plain if "|" in plain else "")
            if values:
                names = tuple(values.split("|"))
                field = Field(name, "enum", names, kind != plain, (VARINT,), partial(_find_value_name, names))
            else:
                field = Field(name, plain, (), kind != plain, *self._kinds[plain])
            declared[int(place)] = field
        return declared

    def _read_message(self, name: str, data: bytes, reasons: list[str]) -> dict[str, Any]:
        """Return a message as an object of JSON; from a field on that is broken, its bytes."""
        declared = self.fields.get(name, {})
        document: dict[str, Any] = {}
        position, end = 0, len(data)
        while position < end:
            start = position
            try:
                tag, wire, value, position = _read_field(data, start, end)
            except UnknownBytesError as unknown:
                reasons.append(f"{name or 'message'}: {unknown}")
                document["$bytes"] = encode_base64(data[start:])
                break
            field = declared.get(tag >> 3)
            if field is not None and wire in field.wires:
                content = field.show(value, reasons)
                if field.is_repeated:
                    document.setdefault(field.name, []).append(content)
                elif field.name not in document:
                    document[field.name] = content
                else:
                    _repeat(document, field.name, content)
            elif field is not None and field.is_repeated and wire == LENGTH and field.wires == (VARINT,):
                document.setdefault(field.name, []).extend(_read_packed(value, field.show, reasons))
            else:
                _repeat(document, str(tag >> 3), value if wire == VARINT else {"$bytes": encode_base64(value)})
        return document


def make_message_columns(message: dict[str, Any], reason: str | None) -> dict[str, Any]:
    """Return the columns `value` and `reason` of a message that was read."""
    return {"value": to_json(message), "reason": reason}


def find_integer(message: Mapping[str, Any], *path: str) -> int | None:
    """Return the integer of a field in nested messages: the last, where there are several, or `None`."""
    value: Any = message
    for name in path:
        value = value.get(name) if isinstance(value, Mapping) else None
        value = value[-1] if isinstance(value, list) else value
    return value if isinstance(value, int) else None


def _read_field(data: bytes, start: int, end: int) -> tuple[int, int, Any, int]:
    """Return the tag, wire type and value of a field, and where it ends."""
    tag, position = (data[start], start + 1) if data[start] < 128 else _require_varint(data, start, 32)
    wire = tag & 7
    if tag < _FIRST_FIELD or wire not in (VARINT, LENGTH, FIXED32, FIXED64):
        raise UnknownBytesError(f"field {tag >> 3} of wire type {wire} at byte {start}, expected 0, 1, 2 or 5")
    if wire in _WIDTHS:
        size = _WIDTHS[wire]
    else:
        is_short = position < end and data[position] < 128
        size, position = (data[position], position + 1) if is_short else _require_varint(data, position, 64)
        if wire == VARINT:
            return tag, wire, size, position
    if size > end - position:
        raise UnknownBytesError(f"field of {size} bytes at byte {position}, where {end - position} are left")
    return tag, wire, data[position : position + size], position + size


def _require_varint(data: bytes, start: int, bits: int) -> tuple[int, int]:
    """Return a varint and where it ends."""
    longest = -(-bits // 7)
    number = read_varint(data, start, longest)
    if number is None and len(data) - start < longest:
        raise UnknownBytesError(f"varint without an end at byte {start}")
    if number is None or number[0] >> bits:
        raise UnknownBytesError(f"varint of more than {bits} bits at byte {start}")
    return number


def _read_packed(data: bytes, show: Show, reasons: list[str]) -> list[Any]:
    """Return varints one after another; if one is broken, all of them as bytes."""
    values, position = [], 0
    try:
        while position < len(data):
            value, position = _require_varint(data, position, 64)
            values.append(show(value, reasons))
    except UnknownBytesError as unknown:
        reasons.append(f"packed numbers: {unknown}")
        return [{"$bytes": encode_base64(data)}]
    return values


def _repeat(document: dict[str, Any], name: str, value: Any) -> None:
    """Add a field that is not repeated: if it is there several times, it is a list."""
    before = document.get(name)
    if isinstance(before, list):
        before.append(value)
    else:
        document[name] = [before, value] if name in document else value


def _read_signed(value: int, reasons: list[str]) -> int:
    del reasons
    return value - (1 << 64) if value >> 63 else value


def _find_value_name(names: tuple[str, ...], value: int, reasons: list[str]) -> str | int:
    """Return the name of a value of an enum; its number, where it has none."""
    return (names[value] if value < len(names) else "") or _read_signed(value, reasons)


def _decode_text(data: bytes, reasons: list[str]) -> str:
    replaced, wrong = decode_text(data, "utf-8")
    reasons += [wrong] if wrong else []
    return replaced


_KINDS: Mapping[str, tuple[tuple[int, ...], Show]] = {
    "int": ((VARINT,), _read_signed),
    "uint": ((VARINT,), lambda value, reasons: value),
    "bool": ((VARINT,), lambda value, reasons: value != 0),
    "text": ((LENGTH,), _decode_text),
    "bytes": ((LENGTH,), lambda data, reasons: {"$bytes": encode_base64(data)}),
    "float": ((FIXED32,), lambda data, reasons: render_number(struct.unpack("<f", data)[0])),
    "double": ((FIXED64,), lambda data, reasons: render_number(struct.unpack("<d", data)[0])),
    "fixed": ((FIXED32, FIXED64), lambda data, reasons: int.from_bytes(data, "little")),
}
"""Kinds that need no declaration: the wire types that they may have, and how they are shown."""

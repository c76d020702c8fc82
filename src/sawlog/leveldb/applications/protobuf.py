"""Messages of protobuf as JSON: fields that are declared by name, others by number.

A declaration is a line per message: its name, a colon, and its fields: number, name and kind. `*` after a kind is for
repeated fields. Kinds are `int` (signed), `uint`, `bool`, `float`, `double`, `fixed`, `text`, `bytes`, the names of an
enum's values from 0 on, with `|` between them, or the name of another message. `Name = A|B` names an enum.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeAlias

from sawlog.leveldb.applications.script_values import binary, number, to_json
from sawlog.leveldb.applications.view import Cursor, UnknownBytesError, text

VARINT, FIXED64, LENGTH, FIXED32 = 0, 1, 2, 5
"""Wire types: how many bytes the value of a field has."""
_WIDTHS = {FIXED64: 8, FIXED32: 4}
_FIRST_FIELD = 8
"""The smallest tag: that of the field 1."""

Raw: TypeAlias = int | bytes


class Field(NamedTuple):
    """Declared field of a message.

    Attributes:
        name: What its message calls it.
        kind: How its value is shown.
        is_repeated: Whether it is a list.
    """

    name: str
    kind: str
    is_repeated: bool


class Messages:
    """Declared messages, by name.

    Args:
        declarations: The lines that declare them; one that begins with a space continues the line before.
        kinds: Kinds of bytes that are the caller's own: what makes JSON of them, given the list of reasons.
    """

    def __init__(self, declarations: str, **kinds: Callable[[bytes, list[str]], Any]) -> None:
        self._of_bytes = {**_OF_BYTES, **{kind: ((LENGTH,), show) for kind, show in kinds.items()}}
        self._fields: dict[str, dict[int, Field]] = {}
        enums: dict[str, str] = {}
        for line in declarations.strip().replace("\n ", " ").splitlines():
            name, separator, values = line.partition(" = ")
            if separator:
                enums[name] = values.replace(" ", "")
                continue
            name, _, fields = line.partition(":")
            declared = (field.split() for field in fields.split(",") if field.strip())
            self._fields[name] = {
                int(place): Field(label, enums.get(kind, kind).removesuffix("*"), kind.endswith("*"))
                for place, label, kind in declared
            }

    def read(self, data: bytes, name: str = "") -> tuple[dict[str, Any], str | None]:
        """Return a message as an object of JSON, and why parts of it are shown as bytes, if any are.

        Args:
            data: Its bytes.
            name: That of its declaration; without it, fields have numbers only.
        """
        reasons: list[str] = []
        return self._message(data, name, reasons), reasons[0] if reasons else None

    def show(self, data: bytes, name: str = "") -> dict[str, Any]:
        """The columns `value` and `reason` of a message; see `read`."""
        return columns_of_message(*self.read(data, name))

    def _message(self, data: bytes, name: str, reasons: list[str]) -> dict[str, Any]:
        declared = self._fields.get(name, {})
        cursor = Cursor(data)
        document: dict[str, Any] = {}
        while cursor.left:
            start = cursor.at
            try:
                place, wire, raw = _field(cursor)
            except UnknownBytesError as unknown:
                reasons.append(f"{name or 'message'}: {unknown}")
                document["$bytes"] = binary(data[start:])
                break
            field = declared.get(place)
            values = self._values(field, wire, raw, reasons) if field else None
            if field is None or values is None:
                _add(
                    document, str(place), [raw if isinstance(raw, int) else {"$bytes": binary(raw)}], is_repeated=False
                )
            else:
                _add(document, field.name, values, is_repeated=field.is_repeated)
        return document

    def _values(self, field: Field, wire: int, raw: Raw, reasons: list[str]) -> list[Any] | None:
        """The values of a field as its kind shows them; `None` where its bytes are of another kind."""
        if field.kind in self._fields:
            return [self._message(raw, field.kind, reasons)] if wire == LENGTH and isinstance(raw, bytes) else None
        if field.kind in self._of_bytes:
            expected, show = self._of_bytes[field.kind]
            return [show(raw, reasons)] if wire in expected and isinstance(raw, bytes) else None
        if isinstance(raw, int):
            return [_of_number(field.kind, raw)]
        if not field.is_repeated or wire != LENGTH:
            return None
        packed, values = Cursor(raw), []
        try:
            while packed.left:
                values.append(_of_number(field.kind, packed.varint()))
        except UnknownBytesError:
            return None
        return values


def columns_of_message(message: dict[str, Any], reason: str | None) -> dict[str, Any]:
    """The columns `value` and `reason` of a message that was read."""
    return {"value": to_json(message), "reason": reason}


def integer(message: Mapping[str, Any], *path: str) -> int | None:
    """The integer of a field, through the messages that it is in: the last, where there are several, or `None`."""
    value: Any = message
    for name in path:
        value = value.get(name) if isinstance(value, Mapping) else None
        value = value[-1] if isinstance(value, list) else value
    return value if isinstance(value, int) else None


def _field(cursor: Cursor) -> tuple[int, int, Raw]:
    """Number, wire type and value of the next field."""
    start = cursor.at
    tag = cursor.varint(32)
    wire = tag & 7
    if tag < _FIRST_FIELD or wire not in (VARINT, LENGTH, *_WIDTHS):
        raise UnknownBytesError(f"field {tag >> 3} of wire type {wire} at byte {start}, expected 0, 1, 2 or 5")
    if wire == VARINT:
        return tag >> 3, wire, cursor.varint()
    return tag >> 3, wire, cursor.take(cursor.varint() if wire == LENGTH else _WIDTHS[wire], "field")


def _add(document: dict[str, Any], name: str, values: list[Any], *, is_repeated: bool) -> None:
    """Add values of a field: a list where it is repeated, or is there several times."""
    before = document.get(name)
    if isinstance(before, list):
        before += values
    elif is_repeated:
        document[name] = values
    else:
        document[name] = [before, *values] if name in document else values[0]


def _of_number(kind: str, value: int) -> Any:
    """A varint as its kind shows it: `uint`, `int`, `bool`, or the name in an enum, where it has one."""
    if kind == "bool":
        return bool(value)
    signed = value - (1 << 64) if value >> 63 and kind != "uint" else value
    names = kind.split("|") if "|" in kind else []
    return (names[signed] if 0 <= signed < len(names) else "") or signed


def _text(data: bytes, reasons: list[str]) -> str:
    replaced, wrong = text(data, "utf-8")
    reasons += [wrong] if wrong else []
    return replaced


_OF_BYTES: Mapping[str, tuple[tuple[int, ...], Callable[[bytes, list[str]], Any]]] = {
    "text": ((LENGTH,), _text),
    "bytes": ((LENGTH,), lambda data, reasons: {"$bytes": binary(data)}),
    "float": ((FIXED32,), lambda data, reasons: number(struct.unpack("<f", data)[0])),
    "double": ((FIXED64,), lambda data, reasons: number(struct.unpack("<d", data)[0])),
    "fixed": ((FIXED32, FIXED64), lambda data, reasons: int.from_bytes(data, "little")),
}
"""Kinds that are not varints: the wire types that they may have, and how they are shown."""

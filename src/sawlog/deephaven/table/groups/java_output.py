"""The one form of Java's serialization stream that sawlog writes besides arrays: a map from values to rows, or null."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Any

from sawlog.deephaven.table.groups.java_stream import FIRST_HANDLE, SERIALIZABLE, WRITE_METHOD, Code
from sawlog.deephaven.table.layout import JAVA_STREAM_MAGIC, make_array_prefix

_HASH_MAP_UID = "0507dac1c31660d1"
_NUMBER_UID = "86ac951d0b94e08b"
_LOAD_FACTOR = 0.75
_CAPACITY = 16
"""Of an empty HashMap. It doubles until the entries fill no more than the load factor of it."""

BOXES = {
    "java.lang.Boolean": ("Z", "cd207280d59cfaee", False, ">?"),
    "java.lang.Byte": ("B", "9c4e6084ee50f51c", True, ">b"),
    "java.lang.Character": ("C", "348b47d96b1a2678", False, ">H"),
    "java.lang.Short": ("S", "684d37133460da52", True, ">h"),
    "java.lang.Integer": ("I", "12e2a0a4f7818738", True, ">i"),
    "java.lang.Long": ("J", "3b8be490cc8f23df", True, ">q"),
    "java.lang.Float": ("F", "daedc9a2db3cf0ec", True, ">f"),
    "java.lang.Double": ("D", "80b3c24a296bfb04", True, ">d"),
}
"""Boxed primitives: type code, serialVersionUID, whether it extends java.lang.Number, layout."""
STRING_TYPE = "java.lang.String"


def map_stream(key_type: str, entries: Iterable[tuple[Any, int, int]]) -> bytes:
    """Return a java.util.HashMap from values to int arrays of two.

    Args:
        key_type: Class of the keys: `java.lang.String`, or one of `BOXES`.
        entries: Key (None is a null key), first and end, each key once.
    """
    listed = list(entries)
    capacity = _CAPACITY
    while len(listed) > _LOAD_FACTOR * capacity:
        capacity *= 2
    parts = [
        JAVA_STREAM_MAGIC,
        bytes([Code.OBJECT]),
        _encode_class(
            "java.util.HashMap", _HASH_MAP_UID, WRITE_METHOD | SERIALIZABLE, (("F", "loadFactor"), ("I", "threshold"))
        ),
        struct.pack(">fi", _LOAD_FACTOR, int(_LOAD_FACTOR * capacity)),
        struct.pack(">BBii", Code.BLOCK_DATA, 8, capacity, len(listed)),
    ]
    keys = _Keys(key_type)
    array_class = make_array_prefix("I")[len(JAVA_STREAM_MAGIC) + 1 :]
    for key, first, end in listed:
        parts += [keys.encode(key), bytes([Code.ARRAY]), array_class, struct.pack(">iii", 2, first, end)]
        if keys.array_handle < 0:
            keys.array_handle = keys.handles
            array_class = _encode_reference(keys.array_handle)
            keys.handles += 1
        keys.handles += 1
    return b"".join([*parts, bytes([Code.END_BLOCK_DATA])])


class _Keys:
    """Writes the keys of a map, and counts the handles that the stream gives out: the map and its class have two."""

    def __init__(self, kind: str) -> None:
        self.handles = 2
        self.array_handle = -1
        self._kind = kind
        self._class: bytes | None = None

    def encode(self, key: Any) -> bytes:
        if key is None:
            return bytes([Code.NULL])
        if self._kind == STRING_TYPE:
            self.handles += 1
            return encode_string(key)
        code, uid, number, layout = BOXES[self._kind]
        described = self._class
        if described is None:
            self._class = _encode_reference(self.handles)
            parent = _encode_class("java.lang.Number", _NUMBER_UID, SERIALIZABLE) if number else bytes([Code.NULL])
            described = _encode_class(self._kind, uid, SERIALIZABLE, ((code, "value"),), parent)
            self.handles += 1 + number
        self.handles += 1
        return bytes([Code.OBJECT]) + described + struct.pack(layout, key)


def encode_string(text: str) -> bytes:
    """Return a string as an element of a stream."""
    data = _encode_modified(text)
    if len(data) < 1 << 16:
        return bytes([Code.STRING]) + len(data).to_bytes(2, "big") + data
    return bytes([Code.LONG_STRING]) + len(data).to_bytes(8, "big") + data


def _encode_modified(text: str) -> bytes:
    """Return Java's modified UTF-8: NUL has two bytes, characters beyond U+FFFF two surrogates of three bytes each."""
    if text.isascii() and "\0" not in text:
        return text.encode()
    units = struct.iter_unpack(">H", text.encode("utf-16-be", "surrogatepass"))
    encoded = "".join(chr(unit) for (unit,) in units).encode("utf-8", "surrogatepass")
    return encoded.replace(b"\0", b"\xc0\x80")


def _encode_reference(handle: int) -> bytes:
    return bytes([Code.REFERENCE]) + (FIRST_HANDLE + handle).to_bytes(4, "big")


def _encode_class(
    name: str, uid: str, flags: int, fields: tuple[tuple[str, str], ...] = (), parent: bytes = bytes([Code.NULL])
) -> bytes:
    parts = [bytes([Code.CLASS_DESC]), _encode_utf(name), bytes.fromhex(uid), struct.pack(">BH", flags, len(fields))]
    parts += [code.encode() + _encode_utf(label) for code, label in fields]
    return b"".join([*parts, bytes([Code.END_BLOCK_DATA]), parent])


def _encode_utf(text: str) -> bytes:
    data = _encode_modified(text)
    return len(data).to_bytes(2, "big") + data

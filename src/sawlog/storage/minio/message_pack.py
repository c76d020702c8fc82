"""Values in MessagePack, read without trust.

The library of that name reserves memory for as many items as a header claims: nine kilobytes that nest such headers
cost it 67 MiB. Here memory grows with what is there.
"""

from __future__ import annotations

import struct
from typing import Any, Protocol

_MAX_DEPTH = 32
"""Values in values at most."""
_FIXED = {
    0xCA: struct.Struct(">f"),
    0xCB: struct.Struct(">d"),
    0xCC: struct.Struct(">B"),
    0xCD: struct.Struct(">H"),
    0xCE: struct.Struct(">I"),
    0xCF: struct.Struct(">Q"),
    0xD0: struct.Struct(">b"),
    0xD1: struct.Struct(">h"),
    0xD2: struct.Struct(">i"),
    0xD3: struct.Struct(">q"),
}
_SIZED = {0xC4: 1, 0xC5: 2, 0xC6: 4, 0xD9: 1, 0xDA: 2, 0xDB: 4}
"""Bytes and texts: by their first byte, how many bytes their length has."""
_EXTENSIONS = {0xC7: 1, 0xC8: 2, 0xC9: 4}
_FIXED_EXTENSIONS = range(0xD4, 0xD9)
_ARRAYS = {0xDC: 2, 0xDD: 4}
_MAPS = {0xDE: 2, 0xDF: 4}
_CONSTANTS = {0xC0: None, 0xC2: False, 0xC3: True}


class PackError(Exception):
    """Bytes that are no value in MessagePack, or end inside of one."""


class Sliceable(Protocol):
    """Bytes, or what has slices of them."""

    def __getitem__(self, place: slice, /) -> bytes:
        """Return the bytes from one place to another, fewer at the end."""
        ...


class Unpacker:
    """Position in bytes that hold values one after the other; texts and bytes come as bytes.

    Args:
        data: The bytes, or what has slices of them.
        position: Where the next value begins.
    """

    def __init__(self, data: Sliceable, position: int = 0) -> None:
        self._data = data
        self.position = position

    def take_value(self, depth: int = 0) -> Any:
        """Take the next value: a number, bytes, a list or a dictionary.

        Raises:
            PackError: When there is none.
        """
        if depth > _MAX_DEPTH:
            raise PackError(f"values nested more than {_MAX_DEPTH} deep at byte {self.position}")
        start = self.position
        code = self._take(1)[0]
        if code < 0x80 or code >= 0xE0:
            return code if code < 0x80 else code - 0x100
        if code in _CONSTANTS:
            return _CONSTANTS[code]
        if code in _FIXED:
            number = _FIXED[code]
            return number.unpack(self._take(number.size))[0]
        self.position = start
        if code in _ARRAYS or code & 0xF0 == 0x90:
            return [self.take_value(depth + 1) for _ in range(self._count(0x90, _ARRAYS, "an array"))]
        if code in _MAPS or code & 0xF0 == 0x80:
            return self._take_map(depth)
        return self.take_bytes()

    def take_bytes(self) -> bytes:
        """Take the bytes of a text, of bytes, or of an extension.

        Raises:
            PackError: When the next value is another, or does not end here.
        """
        return self._take(self.take_bytes_header())

    def take_bytes_header(self) -> int:
        """Take the header of bytes, which begin at the position then; return how many there are.

        Raises:
            PackError: When the next value is another.
        """
        start = self.position
        code = self._take(1)[0]
        if code & 0xE0 == 0xA0:
            return code & 0x1F
        if code in _SIZED:
            return self._take_number(_SIZED[code])
        if code in _EXTENSIONS:
            length = self._take_number(_EXTENSIONS[code])
            self._take(1)
            return length
        if code in _FIXED_EXTENSIONS:
            self._take(1)
            return 1 << code - _FIXED_EXTENSIONS.start
        raise PackError(f"byte {code:#04x} at {start} where bytes or a text were expected")

    def take_map_header(self) -> int:
        """Take the header of a map; return how many pairs follow by its word.

        Raises:
            PackError: When the next value is another.
        """
        return self._count(0x80, _MAPS, "a map")

    def _count(self, fixed: int, sizes: dict[int, int], name: str) -> int:
        start = self.position
        code = self._take(1)[0]
        if code & 0xF0 == fixed:
            return code & 0x0F
        if code not in sizes:
            raise PackError(f"byte {code:#04x} at {start} where {name} was expected")
        return self._take_number(sizes[code])

    def _take_map(self, depth: int) -> dict[Any, Any]:
        values: dict[Any, Any] = {}
        for _ in range(self.take_map_header()):
            start = self.position
            key = self.take_value(depth + 1)
            if isinstance(key, list | dict):
                raise PackError(f"a key at byte {start} is neither a text nor a number")
            values[key] = self.take_value(depth + 1)
        return values

    def _take_number(self, size: int) -> int:
        return int.from_bytes(self._take(size), "big")

    def _take(self, length: int) -> bytes:
        piece = self._data[self.position : self.position + length]
        if len(piece) < length:
            raise PackError(f"{length} bytes expected at byte {self.position}, {len(piece)} are there")
        self.position += length
        return piece

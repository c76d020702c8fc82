"""Thrift's compact protocol, as far as the page headers and footers of Parquet go."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sawlog.milvus_binlog.payloads.parquet import Kind

_MAX_DEPTH = 12
_SMALLEST_STRUCT = 3
"""Bytes of a struct in a list, at least: a field that is always there, its value, and the end."""
_NONE: Mapping[int, dict[int, int]] = {}
# Plain numbers: these are compared for every byte of a footer.
_FALSE, _BYTE, _I16, _I64, _DOUBLE = (int(kind) for kind in (Kind.FALSE, Kind.BYTE, Kind.I16, Kind.I64, Kind.DOUBLE))
_BINARY, _LIST, _SET, _STRUCT = (int(kind) for kind in (Kind.BINARY, Kind.LIST, Kind.SET, Kind.STRUCT))


class ThriftError(Exception):
    """Bytes that are not of the compact protocol, or that claim more than there is."""


class Thrift:
    """Structs in the compact protocol, one behind the other.

    Args:
        data: The bytes; `at` is the position behind what was read.
    """

    def __init__(self, data: memoryview | bytes) -> None:
        self._data = data
        self.at = 0

    def integers(self, structs: Mapping[int, dict[int, int]] = _NONE) -> dict[int, int]:
        """The integer fields of the struct at hand, and those of the `structs` within it; the rest is passed over.

        Raises:
            ThriftError: When there is no struct.
        """
        found: dict[int, int] = {}
        number = 0
        while kind := (byte := self._byte()) & 15:
            number = number + (byte >> 4) if byte >> 4 else self._zigzag()
            if _I16 <= kind <= _I64:
                found[number] = self._zigzag()
            elif kind == _STRUCT and number in structs:
                structs[number].update(self.integers())
            else:
                self._value(kind, 0)
        return found

    def struct(self, last: int = 1 << 15, depth: int = 0) -> dict[int, Any]:
        """The fields of the struct at hand, by number: integers, bytes, lists, and structs as such.

        Args:
            last: Number of a field behind which nothing is wanted.
            depth: How deep the struct lies.

        Raises:
            ThriftError: When there is no struct.
        """
        found: dict[int, Any] = {}
        number = 0
        data, at = self._data, self.at
        size = len(data)
        while number != last:  # a footer has hundreds of fields: most are read without a call
            if at >= size:
                raise ThriftError("no end")
            byte = data[at]
            at += 1
            kind = byte & 15
            if not kind:
                break
            if byte >> 4:
                number += byte >> 4
            else:
                self.at = at
                number, at = self._zigzag(), self.at
            if _I16 <= kind <= _I64 and at < size and data[at] < 0x80:
                found[number] = data[at] >> 1 ^ -(data[at] & 1)
                at += 1
            else:
                self.at = at
                found[number], at = self._value(kind, depth), self.at
        self.at = at
        return found

    def _value(self, kind: int, depth: int) -> Any:
        if _I16 <= kind <= _I64:
            return self._zigzag()
        if kind == _BINARY:
            return self._bytes(self._varint())
        if depth > _MAX_DEPTH:
            raise ThriftError("nested too deeply")
        if kind == _STRUCT:
            return self.struct(depth=depth + 1)
        if kind in (_LIST, _SET):
            return self._list(depth)
        if kind <= _FALSE:
            return kind != _FALSE
        if kind == _BYTE:
            return self._byte()
        if kind == _DOUBLE:
            return self._bytes(8)
        raise ThriftError(f"a field of type {kind}")

    def _list(self, depth: int) -> list[Any]:
        byte = self._byte()
        kind = byte & 15
        count = byte >> 4 if byte >> 4 < 15 else self._varint()
        if count * (_SMALLEST_STRUCT if kind == _STRUCT else 1) > len(self._data) - self.at:
            raise ThriftError(f"a list of {count}")
        if _I16 <= kind <= _I64:
            return [self._zigzag() for _ in range(count)]
        if kind == _STRUCT and depth < _MAX_DEPTH:
            return [self.struct(depth=depth + 1) for _ in range(count)]
        return [self._value(max(kind, _BYTE), depth + 1) for _ in range(count)]

    def _byte(self) -> int:
        at = self.at
        self.at = at + 1
        try:
            return self._data[at]
        except IndexError:
            raise ThriftError("no end") from None

    def _bytes(self, count: int) -> bytes:
        if count > len(self._data) - self.at:
            raise ThriftError("no end")
        self.at += count
        return bytes(self._data[self.at - count : self.at])

    def _varint(self) -> int:
        value = shift = 0
        at = self.at
        try:
            while shift < 70:
                byte = self._data[at]
                at += 1
                value |= (byte & 0x7F) << shift
                if byte < 0x80:
                    self.at = at
                    return value
                shift += 7
        except IndexError:
            raise ThriftError("no end") from None
        raise ThriftError("a broken number")

    def _zigzag(self) -> int:
        value = self._varint()
        return value >> 1 ^ -(value & 1)


def written(fields: Sequence[tuple[int, Kind, Any]]) -> bytes:
    """A struct in the compact protocol.

    Args:
        fields: Number, type and value of each, in order: numbers, bytes, fields of structs, and for lists the type of
            their elements and these.
    """
    out = bytearray()
    last = 0
    for number, kind, value in fields:
        out.append((number - last) << 4 | kind)
        out += _written(kind, value)
        last = number
    return bytes(out) + bytes([Kind.STOP])


def _written(kind: Kind, value: Any) -> bytes:
    if kind is Kind.STRUCT:
        return written(value)
    if kind is Kind.BINARY:
        return _number(len(value)) + bytes(value)
    if kind is Kind.LIST:
        element, values = value
        return bytes([len(values) << 4 | element]) + b"".join(_written(element, one) for one in values)
    return _number(value << 1 ^ value >> 63)


def _number(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])

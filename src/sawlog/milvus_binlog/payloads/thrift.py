"""Thrift's compact protocol, as far as the page headers and footers of Parquet go."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sawlog.milvus_binlog.payloads.parquet import Kind

_MAX_DEPTH = 12
_SMALLEST_STRUCT = 3
"""Bytes of a struct in a list, at least: a field that is always there, its value, and the end."""
_NONE: Mapping[int, dict[int, int]] = {}


class ThriftError(ValueError):
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
        """The integer fields of the struct at hand, and those of the `structs` within it; the rest is passed over."""
        found: dict[int, int] = {}
        number = 0
        while True:
            byte = self._byte()
            kind = byte & 15
            if kind == Kind.STOP:
                return found
            number = number + (byte >> 4) if byte >> 4 else self._zigzag()
            if Kind.I16 <= kind <= Kind.I64:
                found[number] = self._zigzag()
            elif kind == Kind.STRUCT and number in structs:
                structs[number].update(self.integers())
            else:
                self._value(kind, 0)

    def struct(self, depth: int = 0) -> dict[int, Any]:
        """All fields of the struct at hand, by number: integers, bytes, lists, and structs as such."""
        found: dict[int, Any] = {}
        number = 0
        while kind := (byte := self._byte()) & 15:
            number = number + (byte >> 4) if byte >> 4 else self._zigzag()
            found[number] = self._value(kind, depth)
        return found

    def _value(self, kind: int, depth: int) -> Any:
        if depth > _MAX_DEPTH:
            raise ThriftError("nested too deeply")
        if kind in (Kind.TRUE, Kind.FALSE):
            return kind == Kind.TRUE
        if Kind.I16 <= kind <= Kind.I64:
            return self._zigzag()
        if kind == Kind.BINARY:
            return self._bytes(self._varint())
        if kind == Kind.STRUCT:
            return self.struct(depth + 1)
        if kind in (Kind.LIST, Kind.SET):
            return self._list(depth)
        if kind == Kind.BYTE:
            return self._byte()
        if kind == Kind.DOUBLE:
            return self._bytes(8)
        raise ThriftError(f"a field of type {kind}")

    def _list(self, depth: int) -> list[Any]:
        byte = self._byte()
        kind = byte & 15
        count = byte >> 4 if byte >> 4 < 15 else self._varint()
        if count * (_SMALLEST_STRUCT if kind == Kind.STRUCT else 1) > len(self._data) - self.at:
            raise ThriftError(f"a list of {count}")
        return [self._value(Kind.BYTE if kind in (Kind.TRUE, Kind.FALSE) else kind, depth + 1) for _ in range(count)]

    def _byte(self) -> int:
        if self.at >= len(self._data):
            raise ThriftError("no end")
        self.at += 1
        return self._data[self.at - 1]

    def _bytes(self, count: int) -> bytes:
        if count > len(self._data) - self.at:
            raise ThriftError("no end")
        self.at += count
        return bytes(self._data[self.at - count : self.at])

    def _varint(self) -> int:
        value = shift = 0
        while shift < 70:
            byte = self._byte()
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7
        raise ThriftError("a broken number")

    def _zigzag(self) -> int:
        value = self._varint()
        return value >> 1 ^ -(value & 1)

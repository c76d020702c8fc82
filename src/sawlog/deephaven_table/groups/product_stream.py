"""The product's own object stream: types and values inside block data, which may break anywhere."""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import TYPE_CHECKING, Any

from sawlog.deephaven_table.groups.java_values import MAX_DEPTH, JavaArray, JavaMap

if TYPE_CHECKING:
    from sawlog.deephaven_table.groups.java_stream import Reader


class ProductCode(IntEnum):
    """Types of values in the product's own stream; i8."""

    NEW_CLASS = -1
    JAVA_OBJECT = -2
    STRING = -3
    INTEGER = -4
    LONG = -6
    INTS = -11
    LONGS = -13
    NULL = -15
    MAP = -17
    LINKED_MAP = -19


class ProductReader:
    """Walks the product's own object stream, whose values lie in block data that may break anywhere."""

    def __init__(self, reader: Reader) -> None:
        self.maps = reader.maps
        self._reader = reader
        self._block = b""
        self._used = 0

    def value(self, depth: int) -> Any:
        """The next value."""
        if depth > MAX_DEPTH:
            raise self._reader.error(f"objects nest deeper than {MAX_DEPTH}")
        self._reader.count_element()
        code = self._number(">b")
        if code == ProductCode.NULL:
            return None
        if code == ProductCode.STRING:
            return self._text()
        if code == ProductCode.INTEGER:
            return self._number(">i")
        if code == ProductCode.LONG:
            return self._number(">q")
        if code in (ProductCode.INTS, ProductCode.LONGS):
            kind, width = ("I", 4) if code == ProductCode.INTS else ("J", 8)
            return JavaArray(kind, self._take(self._count() * width))
        if code in (ProductCode.MAP, ProductCode.LINKED_MAP):
            found = JavaMap([(self.value(depth + 1), self.value(depth + 1)) for _ in range(self._count())])
            self.maps.append(found)
            return found
        if code == ProductCode.JAVA_OBJECT:
            if self._used < len(self._block):
                raise self._reader.error("expected a Java object at the end of the block data")
            return self._reader.value(depth + 1)
        raise self._reader.error(f"values of type {code} can only be read by the classes that wrote them")

    def _text(self) -> str:
        return self._reader.decoded(self._take(self._number(">H")))

    def _number(self, layout: str) -> Any:
        return struct.unpack(layout, self._take(struct.calcsize(layout)))[0]

    def _count(self) -> int:
        count: int = self._number(">i")
        if not 0 <= count <= len(self._reader.data):
            raise self._reader.error(f"{count} elements in a stream of {len(self._reader.data)} bytes")
        return count

    def _take(self, length: int) -> bytes:
        parts = []
        while length:
            if self._used == len(self._block):
                self._block, self._used = self._reader.block(), 0
            part = self._block[self._used : self._used + length]
            self._used += len(part)
            length -= len(part)
            parts.append(part)
        return b"".join(parts)

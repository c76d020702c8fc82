"""Java's serialization stream, protocol version 5, as data: no class is ever looked for, loaded or run.

What is read is a graph of plain values. Its depth is bounded, and nothing is made that the bytes do not hold: every
length is checked against what is left of them. The product's own object stream (types and values inside block data,
with no magic number in front) is read as far as it is known. Numbers of the protocol are those of
java.io.ObjectStreamConstants.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Callable
from enum import IntEnum
from typing import Any, TypeVar

from sawlog.deephaven.table.groups.java_values import (
    MAX_DEPTH,
    PRIMITIVES,
    JavaArray,
    JavaClass,
    JavaMap,
    JavaObject,
    JavaStream,
    RangeMap,
    decode_modified,
)
from sawlog.deephaven.table.layout import JAVA_STREAM_MAGIC
from sawlog.errors import FormatError
from sawlog.guard import Undecodable, call_decoder
from sawlog.kernels.varints import ByteCursor

FIRST_HANDLE = 0x7E0000
MAX_BYTES = 64 << 20
"""Longer streams are not read."""
MAX_ELEMENTS = 1 << 22
"""Elements of a stream, and parts of objects that their classes write: more are not read. A group takes up to four."""
_MAX_OBJECTS = 1 << 17
"""Elements of streams that hold something else than groups of one class, which take more memory."""


class Code(IntEnum):
    """Codes that begin an element of the stream."""

    NULL = 0x70
    REFERENCE = 0x71
    CLASS_DESC = 0x72
    OBJECT = 0x73
    STRING = 0x74
    ARRAY = 0x75
    CLASS = 0x76
    BLOCK_DATA = 0x77
    END_BLOCK_DATA = 0x78
    RESET = 0x79
    LONG_BLOCK_DATA = 0x7A
    LONG_STRING = 0x7C
    PROXY_CLASS_DESC = 0x7D
    ENUM = 0x7E


WRITE_METHOD, SERIALIZABLE, EXTERNALIZABLE, BLOCK_DATA_MODE = 1, 2, 4, 8
"""Flags of a class."""

_SIZES = {layout: struct.calcsize(layout) for layout in (">B", *PRIMITIVES.values())}
_END = bytes([Code.END_BLOCK_DATA])
_RESET = int(Code.RESET)
_Value = TypeVar("_Value")
KeyOf = Callable[[Any], tuple[str, Any] | None]
_RANGE = 2
"""Elements of an entry."""
_BOXES = "java.lang."
_SMALL_VALUE_BYTES = 256
"""Bytes of values that are read again when they are referred to."""


def read_stream(data: bytes, context: str, key: KeyOf | None = None) -> JavaStream:
    """Return the first value of a stream; what follows it is not looked at.

    Args:
        data: A Java stream, or one of the product's own kind.
        context: What the bytes are, to begin error messages with.
        key: Class and value of a map's key; None for an unknown class. With it maps from such values to ranges are read
            as `RangeMap`, if all maps are of that kind.

    Raises:
        FormatError: When it is neither, ends early, is too long, nests too deep or holds what cannot be told apart
            without running its classes; names the byte.
    """
    if len(data) > MAX_BYTES:
        raise FormatError(f"{context}: {len(data)} bytes of serialized objects; at most {MAX_BYTES} are read")
    if data.startswith(JAVA_STREAM_MAGIC):
        reader = Reader(data, len(JAVA_STREAM_MAGIC), context, key)
        try:
            return JavaStream(reader.read_value(0), reader.maps)
        except _NoRangesError:
            reader = Reader(data, len(JAVA_STREAM_MAGIC), context, max_elements=_MAX_OBJECTS)
            return JavaStream(reader.read_value(0), reader.maps)
    if data[:1] in (bytes([Code.BLOCK_DATA]), bytes([Code.LONG_BLOCK_DATA])):
        product = _ProductReader(Reader(data, 0, context))
        return JavaStream(product.read_value(0), product.maps)
    raise FormatError(f"{context}: expected a Java stream (ac ed 00 05), found {data[:4].hex(' ') or 'nothing'}")


class Reader(ByteCursor):
    """Walks a Java stream. Values that can be referred to are kept by their handles: small ones by where they begin.

    There may be millions of them, of which few are ever referred to; these are read again.
    """

    def __init__(
        self, data: bytes, position: int, context: str, key: KeyOf | None = None, max_elements: int = MAX_ELEMENTS
    ) -> None:
        super().__init__(data, position)
        self.context = context
        self.maps: list[JavaMap | RangeMap] = []
        self._key = key
        self._max_elements = max_elements
        self._handles = array("q")
        self._values: dict[int, Any] = {}
        self._again = False
        self._elements = 0

    def make_error(self, message: str) -> FormatError:
        """Return the error to raise: the message, and where in the stream."""
        return FormatError(f"{self.context}: byte {self.position} of the serialized objects: {message}")

    def make_missing_error(self, label: str, length: int) -> FormatError:
        return self.make_error(f"expected {length} bytes, found {self.remaining}")

    def read_number(self, layout: str) -> Any:
        """Return the next number, laid out as `struct` says."""
        size = _SIZES[layout]
        if self.position + size > self.stop:
            raise self.make_missing_error("number", size)
        (value,) = struct.unpack_from(layout, self.data, self.position)
        self.position += size
        return value

    def read_text(self, length: int) -> str:
        """Return the next bytes as text in modified UTF-8."""
        return self.decode_text(self.take(length))

    def decode_text(self, data: bytes) -> str:
        """Return bytes as text in modified UTF-8."""
        text = call_decoder(decode_modified, data)
        if isinstance(text, Undecodable):
            raise self.make_error(f"malformed text: {text.detail}")
        return text

    def read_value(self, depth: int) -> Any:
        """Return the next value. Block data is none."""
        element = self._read_element(depth)
        if isinstance(element, bytes):
            raise self.make_error("expected an object, found block data")
        return element

    def read_block(self) -> bytes:
        """Return the next piece of block data."""
        code = self.read_number(">B")
        if code == Code.BLOCK_DATA:
            return self.take(self.read_number(">B"))
        if code == Code.LONG_BLOCK_DATA:
            return self.take(self.read_number(">i"))
        self.position -= 1
        raise self.make_error(f"expected block data, found the code {code:#04x}")

    def count_element(self) -> None:
        """Keep to `MAX_ELEMENTS`, or `_MAX_OBJECTS`."""
        self._elements += 1
        if self._elements > self._max_elements:
            raise self.make_error(f"more than {self._max_elements} elements")

    def _read_element(self, depth: int) -> Any:
        self.count_element()
        if depth > MAX_DEPTH:
            raise self.make_error(f"objects nest deeper than {MAX_DEPTH}")
        code = self.read_number(">B")
        while code == _RESET and depth == 0:
            del self._handles[:]
            self._values.clear()
            code = self.read_number(">B")
        read = _ELEMENTS.get(code)
        if read is None:
            self.position -= 1
            raise self.make_error(f"expected an object, found the code {code:#04x}")
        return read(self, depth)

    def _read_string(self, depth: int) -> str:
        start = self.position - 1
        length = self.read_number(">H")
        return self._keep(self.read_text(length), start if length <= _SMALL_VALUE_BYTES else None)

    def _read_block(self, depth: int) -> bytes:
        self.position -= 1
        return self.read_block()

    def _read_description(self, depth: int) -> JavaClass | None:
        self.position -= 1
        return self._read_class(depth)

    def _keep(self, value: _Value, start: int | None = None) -> _Value:
        """Give a value the next handle; with `start`, it is read again from there when it is referred to."""
        if not self._again:
            if start is None:
                self._values[len(self._handles)] = value
            self._handles.append(-1 if start is None else start)
        return value

    def _fill(self, place: int, value: Any, start: int | None = None) -> None:
        """Put the value in the place of one that was kept before it was complete."""
        if self._again:
            return
        if start is None:
            self._values[place] = value
        else:
            self._values.pop(place, None)
            self._handles[place] = start

    def _read_reference(self, depth: int = 0) -> Any:
        place = self.read_number(">i") - FIRST_HANDLE
        if not 0 <= place < len(self._handles):
            raise self.make_error(f"a reference to value {place} of the {len(self._handles)} so far")
        if self._handles[place] < 0:
            return self._values[place]
        end, again = self.position, self._again
        self.position, self._again = self._handles[place], True
        value = self._read_element(depth + 1)
        self.position, self._again = end, again
        return value

    def _read_class(self, depth: int) -> JavaClass | None:
        """Return a description of a class, or a reference to one."""
        if depth > MAX_DEPTH:
            raise self.make_error(f"classes nest deeper than {MAX_DEPTH}")
        code = self.read_number(">B")
        if code == Code.NULL:
            return None
        if code == Code.REFERENCE:
            target = self._read_reference()
            if not isinstance(target, JavaClass):
                raise self.make_error("expected a reference to a class, found one to something else")
            return target
        if code == Code.CLASS_DESC:
            return self._read_new_class(depth)
        if code == Code.PROXY_CLASS_DESC:
            place = len(self._handles)
            self._keep(None)
            for _ in range(self._count()):
                self.read_text(self.read_number(">H"))
            self._read_annotation(depth)
            proxy = JavaClass("$Proxy", bytes(8), SERIALIZABLE, (), self._read_class(depth + 1))
            self._fill(place, proxy)
            return proxy
        self.position -= 1
        raise self.make_error(f"expected a class, found the code {code:#04x}")

    def _read_new_class(self, depth: int) -> JavaClass:
        name, uid = self.read_text(self.read_number(">H")), self.take(8)
        place = len(self._handles)
        self._keep(None)
        flags = self.read_number(">B")
        fields = []
        for _ in range(self.read_number(">H")):
            kind = chr(self.read_number(">B"))
            label = self.read_text(self.read_number(">H"))
            if kind in "[L":
                self.read_value(depth + 1)
            elif kind not in PRIMITIVES:
                raise self.make_error(f"field {label!r} of {name} has the unknown type {kind!r}")
            fields.append((kind, label))
        self._read_annotation(depth)
        java_class = JavaClass(name, uid, flags, tuple(fields), self._read_class(depth + 1))
        self._fill(place, java_class)
        return java_class

    def _read_annotation(self, depth: int, take: Callable[[Any], None] = lambda _: None) -> None:
        """Read values and block data up to the end mark."""
        while self.data[self.position : self.position + 1] != _END:
            take(self._read_element(depth + 1))
        self.position += 1

    def _read_array(self, depth: int) -> JavaArray | list[Any]:
        start = self.position - 1
        kind = self._read_class(depth + 1)
        if kind is None or not kind.name.startswith("[") or len(kind.name) < 2:
            raise self.make_error("expected the class of an array")
        element = kind.name[1]
        place = len(self._handles)
        self._keep(None)
        count = self._count()
        if element in PRIMITIVES:
            java_array: JavaArray | list[Any] = JavaArray(
                element, self.take(count * struct.calcsize(PRIMITIVES[element]))
            )
            self._fill(place, java_array, start if self.position - start <= _SMALL_VALUE_BYTES else None)
            return java_array
        values: list[Any] = []
        self._fill(place, values)
        values.extend(self.read_value(depth + 1) for _ in range(count))
        return values

    def _count(self) -> int:
        count: int = self.read_number(">i")
        if not 0 <= count <= len(self.data) - self.position:
            self.position -= 4
            raise self.make_error(f"{count} elements in the {len(self.data) - self.position} bytes that are left")
        return count

    def _read_enum(self, depth: int) -> str:
        self._read_class(depth + 1)
        place = len(self._handles)
        self._keep(None)
        name = self.read_value(depth + 1)
        if not isinstance(name, str):
            raise self.make_error("expected the name of an enum's constant")
        self._fill(place, name)
        return name

    def _read_object(self, depth: int) -> Any:
        start = self.position - 1
        kind = self._read_class(depth + 1)
        if kind is None:
            raise self.make_error("an object without a class")
        instance = JavaObject(kind)
        # A map refers to itself only where it is its own value; then it is no map of ranges.
        place = len(self._handles)
        self._keep(instance)
        entries: _Entries | None = None
        for part in kind.list_lineage():
            if part.name.startswith("java.util.") and part.name.endswith(("Map", "Hashtable")):
                entries = entries or _Entries(self._key)
                self._read_part(part, instance, depth, entries.take)
            else:
                self._read_part(part, instance, depth, instance.written.append)
        if entries is None or entries.is_odd:
            if entries is not None and self._key is not None:
                raise _NoRangesError
            instance.written += entries.pieces if entries is not None else []
            small = kind.name.startswith(_BOXES) and self.position - start <= _SMALL_VALUE_BYTES
            self._fill(place, instance, start if small else None)
            return instance
        java_map = entries.map(marked=kind.name == "java.util.concurrent.ConcurrentHashMap")
        self._fill(place, java_map)
        self.maps.append(java_map)
        return java_map

    def _read_part(self, part: JavaClass, instance: JavaObject, depth: int, written: Callable[[Any], None]) -> None:
        """Read what one class of an object's lineage has written, and hand it over piece by piece."""
        self.count_element()
        if part.flags & SERIALIZABLE:
            for kind, name in part.fields:
                primitive = PRIMITIVES.get(kind)
                instance.values[name] = self.read_value(depth + 1) if primitive is None else self.read_number(primitive)
            if part.flags & WRITE_METHOD:
                self._read_annotation(depth, written)
        elif part.flags & EXTERNALIZABLE and part.flags & BLOCK_DATA_MODE:
            self._read_annotation(depth, written)
        elif part.flags & EXTERNALIZABLE:
            raise self.make_error(f"{part.name} wrote itself by protocol 1, which only the class itself can read")


class _NoRangesError(Exception):
    """A map that is none from values of one class to ranges: the stream is read once more, as it is."""


class _Entries:
    """Collects the entries of a map: as ranges, where that is wanted, or as they come."""

    def __init__(self, key: KeyOf | None) -> None:
        self._key = key
        self._ranges = RangeMap()
        self._ended = False
        self.pieces: list[Any] = []

    def take(self, piece: Any) -> None:
        """Take a key or a value; block data is neither."""
        if isinstance(piece, bytes):
            return
        self.pieces.append(piece)
        if self._key is None or len(self.pieces) < _RANGE:
            return
        key, value = self.pieces
        self.pieces.clear()
        if self._ended:
            raise _NoRangesError
        self._ended = key is None and value is None
        named = self._key(key)
        if not self._ended and (named is None or not self._ranges.add(*named, value)):
            raise _NoRangesError

    @property
    def is_odd(self) -> bool:
        """Whether the last key has no value."""
        return bool(len(self.pieces) % 2)

    def map(self, *, marked: bool) -> JavaMap | RangeMap:
        """Return the map; `marked`: its end is marked with an entry of nulls, for it has none of its own."""
        if self._key is not None:
            if self._ended and not marked:
                raise _NoRangesError
            return self._ranges
        if marked and self.pieces[-2:] == [None, None]:
            del self.pieces[-2:]
        return JavaMap(list(zip(self.pieces[::2], self.pieces[1::2], strict=True)))


_ELEMENTS: dict[int, Callable[[Reader, int], Any]] = {
    Code.NULL: lambda reader, depth: None,
    Code.REFERENCE: Reader._read_reference,
    Code.CLASS_DESC: Reader._read_description,
    Code.OBJECT: Reader._read_object,
    Code.STRING: Reader._read_string,
    Code.ARRAY: Reader._read_array,
    Code.CLASS: lambda reader, depth: reader._keep(reader._read_class(depth)),
    Code.BLOCK_DATA: Reader._read_block,
    Code.LONG_BLOCK_DATA: Reader._read_block,
    Code.LONG_STRING: lambda reader, depth: reader._keep(reader.read_text(reader.read_number(">q"))),
    Code.PROXY_CLASS_DESC: Reader._read_description,
    Code.ENUM: Reader._read_enum,
}
"""How to read what a code begins."""


class _ProductCode(IntEnum):
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


class _ProductReader:
    """Walks the product's own object stream, whose values lie in block data that may break anywhere."""

    def __init__(self, reader: Reader) -> None:
        self.maps = reader.maps
        self._reader = reader
        self._block = b""
        self._used = 0

    def read_value(self, depth: int) -> Any:
        if depth > MAX_DEPTH:
            raise self._reader.make_error(f"objects nest deeper than {MAX_DEPTH}")
        self._reader.count_element()
        code = self._read_number(">b")
        if code == _ProductCode.NULL:
            return None
        if code == _ProductCode.STRING:
            return self._read_text()
        if code == _ProductCode.INTEGER:
            return self._read_number(">i")
        if code == _ProductCode.LONG:
            return self._read_number(">q")
        if code in (_ProductCode.INTS, _ProductCode.LONGS):
            kind, width = ("I", 4) if code == _ProductCode.INTS else ("J", 8)
            return JavaArray(kind, self._take(self._count() * width))
        if code in (_ProductCode.MAP, _ProductCode.LINKED_MAP):
            java_map = JavaMap([(self.read_value(depth + 1), self.read_value(depth + 1)) for _ in range(self._count())])
            self.maps.append(java_map)
            return java_map
        if code == _ProductCode.JAVA_OBJECT:
            if self._used < len(self._block):
                raise self._reader.make_error("expected a Java object at the end of the block data")
            return self._reader.read_value(depth + 1)
        raise self._reader.make_error(f"values of type {code} can only be read by the classes that wrote them")

    def _read_text(self) -> str:
        return self._reader.decode_text(self._take(self._read_number(">H")))

    def _read_number(self, layout: str) -> Any:
        return struct.unpack(layout, self._take(struct.calcsize(layout)))[0]

    def _count(self) -> int:
        count: int = self._read_number(">i")
        if not 0 <= count <= len(self._reader.data):
            raise self._reader.make_error(f"{count} elements in a stream of {len(self._reader.data)} bytes")
        return count

    def _take(self, length: int) -> bytes:
        parts = []
        while length:
            if self._used == len(self._block):
                self._block, self._used = self._reader.read_block(), 0
            part = self._block[self._used : self._used + length]
            self._used += len(part)
            length -= len(part)
            parts.append(part)
        return b"".join(parts)

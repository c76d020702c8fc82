"""Plain data that a stream of Java's serialization holds: classes, objects, arrays and maps."""

from __future__ import annotations

import struct
from array import array
from dataclasses import dataclass, field
from typing import Any

PRIMITIVES = {"B": ">b", "C": ">H", "D": ">d", "F": ">f", "I": ">i", "J": ">q", "S": ">h", "Z": ">?"}
"""Type codes of primitives, and their big-endian layout. A char is the number of a UTF-16 unit."""
MAX_DEPTH = 48
"""Deeper graphs are not read. The groups of a column are four deep."""

_RANGES = ("I", "J")
_RANGE = 2
"""Numbers of a range."""


@dataclass(frozen=True, slots=True)
class JavaClass:
    """A class as the stream describes it.

    Attributes:
        name: Its binary name, such as `java.util.HashMap` or `[I`.
        uid: serialVersionUID, 8 bytes.
        flags: How its instances are written.
        fields: Type code and name of every field.
        parent: The class it extends, if that is serializable.
    """

    name: str
    uid: bytes
    flags: int
    fields: tuple[tuple[str, str], ...]
    parent: JavaClass | None

    def list_lineage(self) -> list[JavaClass]:
        """Return the class and those that it extends, the topmost first."""
        chain = [self]
        while chain[-1].parent is not None:
            chain.append(chain[-1].parent)
        return chain[::-1]


@dataclass(slots=True)
class JavaObject:
    """An object.

    Attributes:
        type: Its class.
        values: Its fields by name.
        written: What the methods writeObject and writeExternal of its classes wrote: block data as bytes, and objects.
    """

    type: JavaClass
    values: dict[str, Any] = field(default_factory=dict)
    written: list[Any] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class JavaArray:
    """An array of primitives.

    Attributes:
        kind: Type code of the elements.
        data: The elements, big endian.
    """

    kind: str
    data: bytes

    def __len__(self) -> int:
        return len(self.data) // struct.calcsize(PRIMITIVES[self.kind])

    def tolist(self) -> list[Any]:
        """Return the elements as Python values."""
        return list(struct.unpack(f">{len(self)}{PRIMITIVES[self.kind][1]}", self.data))


@dataclass(slots=True)
class JavaMap:
    """A map of java.util: its entries, in the order of the stream."""

    entries: list[tuple[Any, Any]]


@dataclass(slots=True)
class RangeMap:
    """A map of java.util from values of one class to ranges, as columns: there may be millions of them.

    Attributes:
        key_type: Class of the keys; empty while all are null.
        keys: The keys, as the reader of the stream has made them.
        ranges: First and end of each, one after the other.
    """

    key_type: str = ""
    keys: list[Any] = field(default_factory=list)
    ranges: array[int] = field(default_factory=lambda: array("q"))

    def add(self, key_type: str, key: Any, value: Any) -> bool:
        """Take an entry; False when it is none of a range, or its key is of another class."""
        if not isinstance(value, JavaArray) or value.kind not in _RANGES or len(value) != _RANGE:
            return False
        if key_type and self.key_type and key_type != self.key_type:
            return False
        self.key_type = self.key_type or key_type
        self.keys.append(key)
        self.ranges.extend(value.tolist())
        return True


@dataclass(frozen=True, slots=True)
class JavaStream:
    """Values of a stream: the root, and every map.

    Attributes:
        root: Its first value: None, a string, a `JavaArray`, `JavaMap`, `RangeMap`, `JavaObject`, `JavaClass`, or a
            list (an array of objects). Numbers are objects of java.lang with the field `value`.
        maps: Every map in it, at any depth, in the order in which they end.
    """

    root: Any
    maps: list[JavaMap | RangeMap]


def decode_modified(data: bytes) -> str:
    """Return the text of Java's modified UTF-8; a surrogate without its other half becomes U+FFFD.

    Raises:
        UnicodeDecodeError: When it is malformed.
    """
    if data.isascii():
        return data.decode()
    text = data.replace(b"\xc0\x80", b"\0").decode("utf-8", "surrogatepass")
    return text.encode("utf-16-be", "surrogatepass").decode("utf-16-be", "replace")

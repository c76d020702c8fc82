"""Declaring the numbers and values of a layout, from which kernels, scalar readers and writers are made."""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import pairwise
from struct import Struct, calcsize, pack, unpack_from
from typing import Any, Literal

import numpy as np
import pyarrow as pa


@dataclass(frozen=True, slots=True)
class Number:
    """An unsigned integer at a place of a thing.

    Attributes:
        offset: Its first byte, counted from the start of the thing.
        size: Bytes.
        big: Whether the most significant byte comes first.
    """

    offset: int
    size: int
    big: bool = False

    @property
    def end(self) -> int:
        """The byte after it."""
        return self.offset + self.size

    def of(self, thing: Any, start: int = 0) -> int:
        """Return the value in the record that begins at `start` of some bytes, which must hold it."""
        pos = start + self.offset
        return int.from_bytes(thing[pos : pos + self.size], "big" if self.big else "little")

    def encode(self, value: int) -> bytes:
        """Return a value as it is stored.

        Raises:
            OverflowError: When it does not fit.
        """
        return value.to_bytes(self.size, "big" if self.big else "little")


@dataclass(frozen=True, slots=True)
class Scalar:
    """A type of column whose values have a fixed width.

    Attributes:
        packed: How a value is stored: its format for `struct`, with the byte order.
        arrow: Its Arrow type.
        nulls: Bit patterns that stand for null; the first is what a writer writes.
    """

    packed: str
    arrow: pa.DataType
    nulls: tuple[int, ...] = ()

    @property
    def width(self) -> int:
        """Bytes of a value."""
        return calcsize(self.packed)

    @property
    def bits(self) -> str:
        """NumPy's type of the bit patterns of values in Arrow's buffers."""
        return f"<u{self.width}"

    @property
    def null_mask(self) -> int:
        """The bits in which patterns for null differ, at most one: kernels ignore it."""
        return self.nulls[0] ^ self.nulls[-1] if self.nulls else 0

    def of(self, thing: Any, start: int = 0) -> Any:
        """Return the value at `start` of some bytes, which must hold it; one that stands for null is a value, too."""
        return unpack_from(self.packed, thing, start)[0]

    def is_null(self, stored: bytes) -> bool:
        """Return whether a stored value stands for null."""
        return int.from_bytes(stored, self._order) in self.nulls

    def encode(self, value: Any) -> bytes:
        """Return a value, or None, as it is stored.

        Raises:
            struct.error: When it does not fit.
        """
        if value is None:
            return self.nulls[0].to_bytes(self.width, self._order)
        return pack(self.packed, value)

    @property
    def _order(self) -> Literal["big", "little"]:
        return "big" if self.packed[0] == ">" else "little"

    def render(self, stored: bytes) -> str:
        """Return a stored value for people; nothing where it is cut off."""
        if len(stored) < self.width:
            return ""
        return "null" if self.is_null(stored) else str(self.of(stored))


@dataclass(frozen=True, slots=True)
class Slice:
    """A type of column whose values are bytes after their length.

    Attributes:
        length: The length, counted from its own first byte.
    """

    length: Number

    def find_ends(self, thing: Any, start: int = 0) -> tuple[int, int]:
        """Return the start and end of the slice in the record at `start`; the end may be past that of the bytes."""
        begin = start + self.length.end
        return begin, begin + self.length.of(thing, start)

    def encode(self, value: bytes) -> bytes:
        """Return a value as it is stored.

        Raises:
            OverflowError: When it is too long.
        """
        return self.length.encode(len(value)) + value


def locate_numbers(packed: Struct, *names: str) -> dict[str, Number]:
    """Return the numbers of a struct without padding, by name, in their order."""
    order, kinds = packed.format[0], re.findall(r"\d*[a-z]", packed.format, re.IGNORECASE)
    ends = [calcsize(order + "".join(kinds[:count])) for count in range(len(kinds) + 1)]
    numbers = [Number(start, end - start, order == ">") for start, end in pairwise(ends)]
    return dict(zip(names, numbers, strict=True))


def make_load(number: Number) -> Any:
    """Return `load(data, pos) -> uint64` for kernels: the number in the thing at uint64 `pos` of a uint8 array."""
    from sawlog.kernels import memory
    from sawlog.kernels.jit import CHECKED, inlined

    if not CHECKED:
        return memory.load_number(8 * number.size, number.offset, big=number.big)
    offset = np.uint64(number.offset)
    if number.size == 1:

        @inlined
        def load_byte(data: Any, pos: Any) -> Any:
            return np.uint64(data[pos + offset])

        return load_byte
    primitive = getattr(memory, f"load_{'big_' if number.big else ''}u{8 * number.size}")

    @inlined
    def load(data: Any, pos: Any) -> Any:
        return primitive(data, pos + offset)

    return load


def make_store(number: Number) -> Any:
    """Return `store(data, pos, value)` for kernels, the reverse of `make_load`."""
    from sawlog.kernels import memory
    from sawlog.kernels.jit import inlined

    offset = np.uint64(number.offset)
    if number.size == 1:

        @inlined
        def store_byte(data: Any, pos: Any, value: Any) -> None:
            data[pos + offset] = value

        return store_byte
    primitive = getattr(memory, f"store_{'big_' if number.big else ''}u{8 * number.size}")

    @inlined
    def store(data: Any, pos: Any, value: Any) -> None:
        primitive(data, pos + offset, value)

    return store

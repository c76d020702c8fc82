"""What is at a place of a file, part by part, for people who look at its bytes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from sawlog.chain.layout import Number

Use = Literal["header", "record", "padding"]


@dataclass(frozen=True, slots=True)
class Part:
    """One field of a layout, found in a file.

    Attributes:
        name: What the format calls it.
        offset: Its first byte in the file.
        length: Its bytes.
        value: What it says, as text; empty where the bytes say it themselves.
        expected: What it should say, where it says something else.
        use: What its bytes are in the account of the file.
    """

    name: str
    offset: int
    length: int
    value: str = ""
    expected: str = ""
    use: Use = "record"

    @property
    def end(self) -> int:
        """The byte after it."""
        return self.offset + self.length


FieldParser = Callable[[int], Iterator[Part]]
"""The parts from an offset on."""


def numbers(data: bytes, base: int, at: int, places: Mapping[str, Number], use: Use = "record") -> Iterator[Part]:
    """The numbers of a thing, as far as its bytes are there; checksums as hexadecimal digits.

    Args:
        data: Bytes of the file.
        base: Where they begin in the file.
        at: Where the thing begins in the file.
        places: Names, and where the numbers stand in the thing.
        use: What the bytes are.
    """
    for name, number in places.items():
        start = at - base + number.offset
        if 0 <= start <= start + number.size <= len(data):
            value = number.of(data, at - base)
            shown = hex(value) if "checksum" in name else f"{value:,}"
            yield Part(name, at + number.offset, number.size, shown, use=use)

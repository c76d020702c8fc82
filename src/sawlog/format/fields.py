"""Fields at a place of a file, part by part, for people who look at its bytes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from sawlog.kernels.layout import Number, Slice
from sawlog.kernels.varints import MAX_VARINT_BYTES, read_varint

Use = Literal["header", "record", "padding"]


@dataclass(frozen=True, slots=True)
class Part:
    """Field of a layout, found in a file.

    Attributes:
        name: What the format calls it.
        offset: Its first byte in the file.
        length: Its bytes.
        value: What it says, as text; empty where the bytes say it themselves.
        expected: What it should say, where it says something else.
        use: What its bytes are in the account of the file.
        inside: Of compressed bytes, the parts of their content, whose offsets count from its beginning.
    """

    name: str
    offset: int
    length: int
    value: str = ""
    expected: str = ""
    use: Use = "record"
    inside: tuple[Part, ...] = ()

    @property
    def end(self) -> int:
        """The byte after it."""
        return self.offset + self.length


class Fields:
    """Fields that follow each other in some bytes, each noted as a part once it is read.

    Args:
        data: The bytes; a field that they end in is noted as far as it is there.
        base: Where they begin in the file.
        use: What they are.

    Attributes:
        parts: The parts so far.
        position: How many bytes they have.
    """

    def __init__(self, data: bytes, base: int, use: Use = "record") -> None:
        self.parts: list[Part] = []
        self.position = 0
        self._data = data
        self._base = base
        self._use = use

    @property
    def remaining(self) -> int:
        """Number of bytes that follow."""
        return len(self._data) - self.position

    def take(self, name: str, length: int, show: Callable[[bytes], str] = lambda content: "") -> bytes:
        """Return a field of a known length.

        Raises:
            EOFError: When the bytes end in it.
        """
        content = self._data[self.position : self.position + length]
        cut = len(content) < length
        text = f"the first {len(content):,} of {length:,} bytes" if cut else show(content)
        if content:
            self.parts.append(Part(name, self._base + self.position, len(content), text, use=self._use))
        self.position += len(content)
        if cut:
            raise EOFError
        return content

    def take_number(self, name: str, length: int) -> int:
        """Return a little-endian integer; see `take`."""
        return int.from_bytes(
            self.take(name, length, lambda content: f"{int.from_bytes(content, 'little'):,}"), "little"
        )

    def take_varint(self, name: str) -> int:
        """Return a number of seven bits per byte, low ones first; see `take`."""
        value, end = read_varint(self._data, self.position) or (0, self.position + MAX_VARINT_BYTES + 1)
        length = min(end - self.position, self.remaining + 1)
        self.take(name, length, lambda content: f"{value:,}")
        return value

    def take_remainder(self, name: str) -> None:
        """Note what follows, as one part, if anything does."""
        if self.remaining:
            self.take(name, self.remaining, lambda content: f"{len(content):,} bytes")


FieldParser = Callable[[int], Iterator[Part]]
"""The parts from an offset on."""


def iterate_numbers(
    data: bytes, base: int, offset: int, places: Mapping[str, Number], use: Use = "record"
) -> Iterator[Part]:
    """Yield the numbers of a thing at `offset` of a file, as far as its bytes, from `base` on, are there."""
    for name, number in places.items():
        start = offset - base + number.offset
        if 0 <= start <= start + number.size <= len(data):
            value = number.of(data, offset - base)
            text = hex(value) if "checksum" in name else f"{value:,}"
            yield Part(name, offset + number.offset, number.size, text, use=use)


def slice_parts(
    name: str, kind: Slice, data: bytes, base: int, start: int, show: Callable[[bytes], str]
) -> Iterator[Part]:
    """Yield the length of the value at `start` of some bytes from `base` on, and the value, if it has any bytes."""
    begin, end = kind.find_ends(data, start)
    yield Part(f"{name}: length", base + start, begin - start, f"{end - begin:,}")
    if end > begin:
        yield Part(name, base + begin, end - begin, show(data[begin:end]))

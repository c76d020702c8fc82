"""Pebble's columnar blocks: a header, and columns of integers, byte strings or bits, one after the other."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from sawlog.leveldb.table import layout

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray


class MalformedError(Exception):
    """A block, or a file of values, is not laid out as its format says; the caller makes damage of it."""


class Slices(NamedTuple):
    """Byte strings in a block: string i is `data[starts[i] : starts[i] + lengths[i]]`. Both are int64."""

    starts: NDArray[np.int64]
    lengths: NDArray[np.int64]

    def of(self, rows: NDArray[np.int64]) -> Slices:
        """Some of them."""
        return Slices(self.starts[rows], self.lengths[rows])


class Columns:
    """The columns of a block.

    Every method raises `MalformedError` where the block does not hold what is asked for.

    Args:
        content: The block, expanded.
        header: Bytes before the block's own header.

    Attributes:
        data: The block.
        rows: How many rows it says that it has.
    """

    def __init__(self, content: pa.Buffer, header: int = 0) -> None:
        self.data: NDArray[np.uint8] = np.frombuffer(content, np.uint8)
        self._header = header
        if self.number(header, 1) != layout.COLUMNAR_VERSION:
            raise MalformedError("no columnar block")
        self._count = self.number(header + 1, 2)
        self.rows = self.number(header + 3, 4)

    def number(self, at: int, width: int) -> int:
        """The number of `width` bytes at a byte."""
        found = self.data[at : at + width].tobytes()
        if len(found) != width:
            raise MalformedError(f"a number at byte {at} of {len(self.data)}")
        return int.from_bytes(found, "little")

    def _start(self, column: int, kind: layout.ColumnKind) -> int:
        at = self._header + layout.COLUMNAR_HEADER + layout.COLUMN_HEADER * column
        if column >= self._count or self.number(at, 1) != kind:
            raise MalformedError(f"column {column} is none of kind {kind}")
        return self.number(at + 1, 4)

    def integers(self, column: int, count: int) -> NDArray[np.uint64]:
        """A column of unsigned integers."""
        return self._integers(self._start(column, layout.ColumnKind.INTEGER), count)[0]

    def _integers(self, at: int, count: int) -> tuple[NDArray[np.uint64], int]:
        if not count:
            return np.zeros(0, np.uint64), at
        encoding = self.number(at, 1)
        width = encoding & ~layout.FROM_BASE
        base = self.number(at + 1, 8) if encoding & layout.FROM_BASE else 0
        at += 9 if encoding & layout.FROM_BASE else 1
        if not width:
            return np.full(count, base, np.uint64), at
        if width not in (1, 2, 4, 8):
            raise MalformedError(f"integers of {width} bytes")
        at += -at % width
        end = at + width * count
        if end > len(self.data):
            raise MalformedError(f"{count} integers at byte {at} of {len(self.data)}")
        return self.data[at:end].view(f"<u{width}").astype(np.uint64) + np.uint64(base), end

    def strings(self, column: int, count: int) -> Slices:
        """A column of byte strings."""
        return self._strings(self._start(column, layout.ColumnKind.STRING), count, first=True)

    def _strings(self, at: int, count: int, *, first: bool) -> Slices:
        """Byte strings of which the ends are written down, and where the first one begins, or else it does at 0."""
        if not count:
            return Slices(np.zeros(0, np.int64), np.zeros(0, np.int64))
        ends, data = self._integers(at, count + first)
        edges = ends.astype(np.int64) if first else np.concatenate([np.zeros(1, np.int64), ends.astype(np.int64)])
        lengths = np.diff(edges)
        if edges[0] < 0 or (lengths < 0).any() or edges[-1] > len(self.data) - data:
            raise MalformedError(f"{count} strings at byte {at} that do not follow each other")
        return Slices(edges[:-1] + data, lengths)

    def prefixed(self, column: int, count: int) -> list[Slices]:
        """A column of byte strings in order, of which each is three, one after the other.

        All strings share the first. The others come in bundles, which share the second; where the third is empty, it is
        that of the string before in its bundle.
        """
        at = self._start(column, layout.ColumnKind.PREFIXED)
        shift = min(self.number(at, 1), 32)
        bundles = (count + (1 << shift) - 1) >> shift
        every = self._strings(at + 1, count + bundles + 1, first=False)
        rows = np.arange(count)
        bundle = rows >> shift
        firsts = 1 + bundle * ((1 << shift) + 1)
        own = rows + bundle + 2
        filled = np.maximum.accumulate(np.where(every.lengths[own] > 0, own, 0)) if count else own
        return [
            every.of(np.zeros(count, np.int64)),
            every.of(firsts),
            every.of(np.where(filled > firsts, filled, own)),
        ]

    def bits(self, column: int, count: int) -> NDArray[np.bool_]:
        """A column of bits."""
        at = self._start(column, layout.ColumnKind.BITS)
        if self.number(at, 1) == layout.NO_BITS:
            return np.zeros(count, np.bool_)
        at += 1
        at += -at % 8
        packed = self.data[at : at + (count + 7) // 8]
        found = np.unpackbits(packed, count=count, bitorder="little")
        if len(packed) * 8 < count:
            raise MalformedError(f"{count} bits at byte {at} of {len(self.data)}")
        return found.view(np.bool_)


def pairs(content: pa.Buffer) -> list[tuple[bytes, bytes]]:
    """Keys and values of a columnar block of both; none where it is damaged."""
    try:
        columns = Columns(content)
        if columns.rows > len(columns.data):
            return []
        keys, values = (columns.strings(number, columns.rows) for number in (0, 1))
    except MalformedError:
        return []
    data = columns.data.tobytes()
    return [
        (data[key : key + size], data[value : value + length])
        for key, size, value, length in zip(*(part.tolist() for part in (*keys, *values)), strict=True)
    ]

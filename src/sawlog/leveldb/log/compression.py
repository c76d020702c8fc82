"""Expanding the records of compressed RocksDB logs: one ZSTD frame per record, across its fragments.

A batch of records is expanded by one call of the decoder where every frame declares its size, as RocksDB's do. A kernel
walks the blocks of each frame first: it proves that the frame ends where the record ends, and bounds its content, so
that nothing is allocated just because a header says so. See section 8.1 of the format, and RFC 8878 for ZSTD's frames.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from sawlog.guard import Undecodable, decode_by
from sawlog.kernels.jit import kernel
from sawlog.kernels.memory import load_u16, load_u32, load_u64
from sawlog.kernels.signature import Bytes, Int32s, OutInt64s

if TYPE_CHECKING:
    from numpy.typing import NDArray

EXPANDED_BYTES = 16 << 20
"""Content per batch, unless one record is larger."""

_MAGIC = np.uint64(0xFD2FB528)
_MAGIC_SIZE = np.uint64(4)
_BLOCK_HEADER = np.uint64(3)
_CHECKSUM = np.uint64(4)
_BLOCK_MAX = np.uint64(128 << 10)
"""No block has more content."""
_RUN = np.uint64(1)
"""Type of blocks that repeat one byte; type 0 is stored as it is."""
_RESERVED = np.uint64(3)

UNDECLARED = -1
"""In `sizes`: the frame does not say how long its content is."""
BROKEN = -2
"""In `sizes`: the record is no ZSTD frame, or none that ends where the record ends."""

_ZERO = np.uint64(0)
_ONE = np.uint64(1)


@kernel
def measure_frames(data: Bytes, ends: Int32s, sizes: OutInt64s, bounds: OutInt64s) -> None:
    """Measure the ZSTD frame of each record, without decoding it.

    Args:
        data: uint8, record i is `data[ends[i] : ends[i + 1]]`.
        ends: int32.
        sizes: int64, set to the size that each frame declares, UNDECLARED or BROKEN; 0 for an empty record.
        bounds: int64, set to the most bytes that the blocks of each frame can hold.
    """
    for row in range(len(sizes)):
        pos = np.uint64(ends[row])
        end = np.uint64(ends[row + 1])
        sizes[row] = 0
        bounds[row] = 0
        if pos == end:
            continue
        sizes[row] = BROKEN
        if end - pos < _MAGIC_SIZE + _ONE or load_u32(data, pos) != _MAGIC:
            continue
        descriptor = np.uint64(data[pos + _MAGIC_SIZE])
        pos += _MAGIC_SIZE + _ONE
        single = descriptor >> np.uint64(5) & _ONE
        code = descriptor >> np.uint64(6)
        dictionary = descriptor & np.uint64(3)
        width = single if code == _ZERO else _ONE << code
        # A window descriptor, unless one segment holds all; then the dictionary's number, which RocksDB never has.
        skipped = _ONE - single
        if descriptor & np.uint64(8) != _ZERO or dictionary != _ZERO or end - pos < skipped + width:
            continue
        pos += skipped
        declared = _ZERO
        if width == _ONE:
            declared = np.uint64(data[pos])
        elif width == np.uint64(2):
            declared = load_u16(data, pos) + np.uint64(256)
        elif width == np.uint64(4):
            declared = load_u32(data, pos)
        elif width == np.uint64(8):
            declared = load_u64(data, pos)
        pos += width

        bound = _ZERO
        complete = False
        while not complete and end - pos >= _BLOCK_HEADER:
            head = load_u16(data, pos) | np.uint64(data[pos + np.uint64(2)]) << np.uint64(16)
            pos += _BLOCK_HEADER
            kind = head >> _ONE & np.uint64(3)
            content = head >> _BLOCK_HEADER
            stored = _ONE if kind == _RUN else content
            if kind == _RESERVED or content > _BLOCK_MAX or end - pos < stored:
                break
            pos += stored
            bound += content if kind <= _RUN else _BLOCK_MAX
            complete = head & _ONE != _ZERO
        trailer = _CHECKSUM if descriptor & np.uint64(4) != _ZERO else _ZERO
        if complete and end - pos == trailer and (width == _ZERO or declared <= bound):
            sizes[row] = np.int64(declared) if width != _ZERO else UNDECLARED
            bounds[row] = np.int64(bound)


@dataclass(frozen=True, slots=True)
class Expanded:
    """Some records of a batch, expanded.

    Attributes:
        rows: Their numbers in the batch, ascending; those that failed are missing.
        ends: int32, record `rows[i]` is `data[ends[i] : ends[i + 1]]`.
        data: Their content.
        failed: Rows that failed, ascending, with their sizes where they are merely too long, otherwise `None`.
    """

    rows: NDArray[np.int64]
    ends: NDArray[np.int32]
    data: pa.Buffer
    failed: dict[int, int | None]


def expand(data: NDArray[np.uint8], ends: NDArray[np.int32], longest: int) -> Iterator[Expanded]:
    """Expand a batch of records, in order, in groups of about `EXPANDED_BYTES`.

    Args:
        data: Compressed records back to back.
        ends: Record i is `data[ends[i] : ends[i + 1]]`.
        longest: Records with more content fail.
    """
    rows = len(ends) - 1
    sizes = np.empty(rows, np.int64)
    bounds = np.empty(rows, np.int64)
    measure_frames(data, ends, sizes, bounds)
    np.minimum(bounds, longest, out=bounds)
    claims = np.where(sizes == UNDECLARED, bounds, np.where(sizes > longest, 0, sizes.clip(0)))
    reach = np.concatenate([[0], claims.cumsum()])
    group = _Expansion(pa.py_buffer(data), ends, sizes, bounds, longest)
    first = 0
    while first < rows:
        last = max(first + 1, int(np.searchsorted(reach, reach[first] + EXPANDED_BYTES, "right")) - 1)
        yield group.expand(first, last)
        first = last


class _Expansion:
    """Expands runs of neighbouring records."""

    def __init__(
        self,
        source: pa.Buffer,
        ends: NDArray[np.int32],
        sizes: NDArray[np.int64],
        bounds: NDArray[np.int64],
        longest: int,
    ) -> None:
        self._source = source
        self._ends = ends
        self._sizes = sizes
        self._bounds = bounds
        self._longest = longest
        self._codec = pa.Codec("zstd")

    def expand(self, first: int, last: int) -> Expanded:
        sizes = self._sizes[first:last]
        declared = (sizes >= 0) & (sizes <= self._longest)
        edges = np.flatnonzero(np.diff(declared, prepend=not declared[0], append=not declared[-1])) + first
        pieces: list[pa.Buffer] = []
        failed: dict[int, int | None] = {}
        for start, stop in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True):
            if declared[start - first]:
                self._declared(start, stop, pieces, failed)
            else:
                for row in range(start, stop):
                    self._undeclared(row, pieces, failed)
        rows = np.setdiff1d(np.arange(first, last), list(failed)) if failed else np.arange(first, last)
        ends = np.zeros(len(rows) + 1, np.int32)
        ends[1:] = self._sizes[rows].cumsum()
        data = pieces[0] if len(pieces) == 1 else pa.py_buffer(b"".join(pieces))
        return Expanded(rows, ends, data, failed)

    def _declared(self, first: int, last: int, pieces: list[pa.Buffer], failed: dict[int, int | None]) -> None:
        """Frames back to back are one stream to the decoder; if it fails, each has to answer for itself."""
        begin, end = int(self._ends[first]), int(self._ends[last])
        if begin == end:
            return
        total = int(self._sizes[first:last].sum())
        frames = self._source.slice(begin, end - begin)
        content = decode_by(self._codec.decompress, frames, decompressed_size=total)
        if not isinstance(content, Undecodable):
            pieces.append(content)
        elif last - first == 1:
            failed[first] = None
        else:
            for row in range(first, last):
                self._declared(row, row + 1, pieces, failed)

    def _undeclared(self, row: int, pieces: list[pa.Buffer], failed: dict[int, int | None]) -> None:
        size = int(self._sizes[row])
        if size != UNDECLARED:
            failed[row] = size if size != BROKEN else None
            return
        begin, end = int(self._ends[row]), int(self._ends[row + 1])
        piece = decode_by(_expanded, self._source.slice(begin, end - begin), int(self._bounds[row]) + 1)
        if isinstance(piece, Undecodable):
            failed[row] = None
            return
        if piece.size > self._longest:
            failed[row] = piece.size
            return
        self._sizes[row] = piece.size
        pieces.append(piece)


def _expanded(frame: pa.Buffer, most: int) -> pa.Buffer:
    """The content of a frame, `most` bytes of it."""
    with pa.CompressedInputStream(pa.BufferReader(frame), "zstd") as stream:
        return stream.read_buffer(most)

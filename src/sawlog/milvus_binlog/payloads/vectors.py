"""Columns of vectors, of which only the rows that are left are copied.

Vectors are most of what a collection holds, and their pages mostly hold them as they are, one behind the other. Such a
page is decompressed, and the rows that are left are copied out of it while it is in the cache. pyarrow would copy all
of them first; so it decodes only the pages that refer to a dictionary, or hold nulls. Nobody holds on to a page when
the next one is decompressed, so that it takes the same memory, which is in the cache.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from sawlog.milvus_binlog.deletes import kernels
from sawlog.milvus_binlog.payloads.pages import Page, decompressed, plain_values
from sawlog.milvus_binlog.payloads.payload import ColumnStream, Payload

if TYPE_CHECKING:
    from numpy.typing import NDArray


def open_column(payloads: Sequence[Payload], index: int, batch_rows: int) -> ColumnStream:
    """The stream of a column of which `take_kept` is the cheapest."""
    alike = len({payload.schema.types[index] for payload in payloads}) == 1
    vectors = all(one.holds_vectors(index) and one.held and len(one.leaves(index)) == 1 for one in payloads)
    return (VectorStream if alike and vectors else ColumnStream)(payloads, index, batch_rows)


_HEADERS = 64
_EXACT = ("ZSTD", "UNCOMPRESSED")
"""What Milvus writes; of other codecs, Arrow does not tell how many bytes a page has in the end."""


@dataclass(slots=True)
class _Piece:
    """Some vectors: their bytes, the first of them that is still to be taken, how many are left, and those not null."""

    data: NDArray[np.uint8]
    first: int
    rows: int
    valid: NDArray[np.bool_] | None = None


class VectorStream(ColumnStream):
    """The values of one column of vectors of one file: those of all its payloads, one behind the other."""

    def __init__(self, payloads: Sequence[Payload], index: int, batch_rows: int) -> None:
        super().__init__(payloads, index, batch_rows)
        self._type = payloads[0].schema.types[index]
        self._pieces = (piece for payload in payloads for piece in _pieces(payload, index, batch_rows))
        self._piece: _Piece | None = None
        self._left = self.rows

    def take(self, count: int) -> pa.Array | None:
        """See `ColumnStream.take`."""
        count = min(count, self._left)
        return self.take_kept(np.ones(count, np.uint8), count) if count else None

    def take_kept(self, keep: NDArray[np.uint8], left: int) -> pa.Array | None:
        """See `ColumnStream.take_kept`."""
        width = np.uint64(self._type.byte_width)
        out: NDArray[np.uint8] | None = None
        valid: NDArray[np.bool_] | None = None
        row, rows, at = 0, len(keep), np.uint64(0)
        while row < rows:
            piece = self._piece or next(self._pieces, None)
            if piece is None:
                return None
            if out is None:  # not before there is a vector: what a footer claims does not justify it
                buffer = pa.allocate_buffer(left * self._type.byte_width)
                out = np.frombuffer(buffer, np.uint8)
            stop = min(rows, row + piece.rows)
            at = np.uint64(kernels.copy_kept(piece.data, np.uint64(piece.first), keep, row, stop, width, out, at))
            if piece.valid is not None:
                valid = np.ones(rows, bool) if valid is None else valid
                valid[row:stop] = piece.valid[piece.first : piece.first + stop - row]
            piece.first += stop - row
            piece.rows -= stop - row
            self._piece = piece if piece.rows else None
            row = stop
            del piece
        self._left -= rows
        if int(at) != left * self._type.byte_width:
            return None
        mask = None if valid is None else pa.py_buffer(np.packbits(valid[keep == 1], bitorder="little"))
        return pa.Array.from_buffers(self._type, left, [mask, pa.py_buffer(b"") if out is None else buffer])


def _pieces(payload: Payload, index: int, batch_rows: int) -> Iterator[_Piece]:
    """The vectors of a column: plain pages as they lie, whatever else there is as pyarrow decodes it."""
    (leaf,) = payload.leaves(index)
    for group, stored in enumerate(payload.footer.groups):
        rows = stored.rows
        done = 0
        for start, piece in _plain_pages(payload, index, group, leaf):
            if piece.rows > rows - start:
                break
            if done < start:
                yield from _decoded(payload, index, batch_rows, group, done, start)
            done = start + piece.rows
            yield piece
            del piece
        if done < rows:
            yield from _decoded(payload, index, batch_rows, group, done, rows)


def _decoded(payload: Payload, index: int, batch_rows: int, group: int, start: int, stop: int) -> Iterator[_Piece]:
    """Rows of a row group as pyarrow decodes them."""
    at = 0
    for array in payload.column_batches(index, min(batch_rows, stop), group):
        first, last = max(start - at, 0), min(stop - at, len(array))
        if first < last:
            width = array.type.byte_width
            data = np.frombuffer(array.buffers()[1], np.uint8)[array.offset * width :]
            data.flags.writeable = False  # as all input of kernels, so that there is one version of each
            valid = array.is_valid().to_numpy(zero_copy_only=False) if array.null_count else None
            yield _Piece(data, first, last - first, valid)
        at += len(array)
        if at >= stop:
            return


def _plain_pages(payload: Payload, index: int, group: int, leaf: int) -> Iterator[tuple[int, _Piece]]:
    """Plain pages of a row group, and the row that each begins with.

    They follow those that refer to a dictionary; ends where something else follows.
    """
    chunk = payload.footer.groups[group].chunks[leaf]
    levels = payload.columns[leaf].max_definition_level
    if chunk.compression not in _EXACT or levels > 1:
        return
    width = payload.schema.types[index].byte_width
    row = 0
    plain = False
    with payload.errors():
        for page in _ahead(payload.pages(group, leaf)):
            if page.plain:
                values = plain_values(page, decompressed(payload.source, page, chunk.compression), width, levels == 1)
                if values is None:
                    return
                plain = True
                if page.values:
                    yield row, _Piece(values, 0, page.values)
                del values
            elif plain or not (page.indices or page.dictionary):
                return
            row += page.values


def _ahead(found: Iterator[Page]) -> Iterator[Page]:
    """Some headers at a time: to change between them and values would push both out of the cache."""
    while some := list(itertools.islice(found, _HEADERS)):
        yield from some

"""Columns of vectors, of which only the rows that are left are copied.

Vectors are most of what a collection holds, and their pages mostly hold them as they are, one behind the other. Such a
page is decompressed, and the rows that are left are copied out of it while it is in the cache. pyarrow would copy all
of them first; so it decodes only the pages that refer to a dictionary, or hold nulls.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from sawlog.milvus_binlog import delete_kernels as kernels
from sawlog.milvus_binlog.pages import Page, decompressed, plain_values
from sawlog.milvus_binlog.payload_stream import ColumnStream, Payload

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


class VectorStream(ColumnStream):
    """The values of one column of vectors of one file: those of all its payloads, one behind the other."""

    def __init__(self, payloads: Sequence[Payload], index: int, batch_rows: int) -> None:
        super().__init__(payloads, index, batch_rows)
        self._arrays = (array for payload in payloads for array in _vectors(payload, index, batch_rows))
        self._type = payloads[0].schema.types[index]

    def take_kept(self, keep: NDArray[np.uint8], left: int) -> pa.Array | None:
        """See `ColumnStream.take_kept`."""
        kept = _Kept(self._type, left)
        at = 0
        while at < len(keep):
            array = self._rest.pop() if self._rest else next(self._arrays, None)
            if array is None:
                return None
            some = array.slice(0, len(keep) - at)
            kept.add(some, keep[at : at + len(some)])
            at += len(some)
            if len(some) < len(array):
                self._rest.append(array.slice(len(some)))
        self._have = sum(map(len, self._rest))
        return kept.array()


class _Kept:
    """Vectors that are left, one behind the other.

    Args:
        kind: Their type.
        left: How many there will be.
    """

    def __init__(self, kind: pa.FixedSizeBinaryType, left: int) -> None:
        self._kind = kind
        self._left = left
        self._at = 0
        self._out: pa.Buffer | None = None
        self._valid: NDArray[np.bool_] | None = None

    def add(self, array: pa.Array, keep: NDArray[np.uint8]) -> None:
        """Copy the vectors of which `keep` is 1."""
        width = self._kind.byte_width
        if self._out is None:  # not before there is a vector: what a footer claims does not justify it
            self._out = pa.allocate_buffer(self._left * width)
        source = np.frombuffer(array.buffers()[1], np.uint8)[array.offset * width : (array.offset + len(array)) * width]
        source.flags.writeable = False
        out = np.frombuffer(self._out, np.uint8)
        end = int(kernels.copy_kept(source, keep, np.uint64(width), out, np.uint64(self._at)))
        if array.null_count:
            self._valid = np.ones(self._left, bool) if self._valid is None else self._valid
            valid = array.is_valid().to_numpy(zero_copy_only=False)
            self._valid[self._at // width : end // width] = valid[keep == 1]
        self._at = end

    def array(self) -> pa.Array | None:
        """What was copied; `None` when it is not all of them."""
        if self._at != self._left * self._kind.byte_width:
            return None
        mask = None if self._valid is None else pa.py_buffer(np.packbits(self._valid, bitorder="little"))
        return pa.Array.from_buffers(self._kind, self._left, [mask, self._out or pa.py_buffer(b"")])


def _vectors(payload: Payload, index: int, batch_rows: int) -> Iterator[pa.Array]:
    """The vectors of a column: plain pages without a copy, whatever else there is as pyarrow decodes it."""
    (leaf,) = payload.leaves(index)
    for group in range(payload.file.metadata.num_row_groups):
        rows = payload.file.metadata.row_group(group).num_rows
        done = 0
        for start, array in _plain_pages(payload, index, group, leaf):
            if len(array) > rows - start:
                break
            yield from _decoded(payload, index, batch_rows, group, done, start)
            yield array
            done = start + len(array)
        yield from _decoded(payload, index, batch_rows, group, done, rows)


def _decoded(payload: Payload, index: int, batch_rows: int, group: int, start: int, stop: int) -> Iterator[pa.Array]:
    """Rows of a row group as pyarrow decodes them."""
    if start == stop:
        return
    at = 0
    for array in payload.column_batches(index, min(batch_rows, stop), group):
        first, last = max(start - at, 0), min(stop - at, len(array))
        if first < last:
            yield array.slice(first, last - first)
        at += len(array)
        if at >= stop:
            return


def _plain_pages(payload: Payload, index: int, group: int, leaf: int) -> Iterator[tuple[int, pa.Array]]:
    """Plain pages of a row group, and the row that each begins with.

    They follow those that refer to a dictionary; ends where something else follows.
    """
    kind = payload.schema.types[index]
    codec = payload.file.metadata.row_group(group).column(leaf).compression
    levels = payload.file.schema.column(leaf).max_definition_level
    if codec not in _EXACT or levels > 1:
        return
    row = 0
    plain = False
    with payload.errors():
        for page in _ahead(payload.pages(group, leaf)):
            if page.plain:
                data = decompressed(payload.source, page, codec)
                values = plain_values(page, data, kind.byte_width, optional=levels == 1)
                if values is None:
                    return
                plain = True
                yield row, pa.Array.from_buffers(kind, page.values, [None, values])
            elif plain or not (page.indices or page.dictionary):
                return
            row += page.values


def _ahead(found: Iterator[Page]) -> Iterator[Page]:
    """Some headers at a time: to change between them and values would push both out of the cache."""
    while some := list(itertools.islice(found, _HEADERS)):
        yield from some

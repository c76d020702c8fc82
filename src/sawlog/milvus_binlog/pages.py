"""Page headers of a Parquet column chunk, read before pyarrow trusts them: a few bytes may claim gigabytes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from sawlog.storage import Source

HEADER_ROOM = (1 << 10, 64 << 10)
"""Bytes within which a page header usually ends, and within which it has to, statistics included."""

_STOP, _TRUE, _FALSE, _BYTE, _DOUBLE, _BINARY, _LIST, _SET, _MAP, _STRUCT = 0, 1, 2, 3, 7, 8, 9, 10, 11, 12
_VARINTS = (4, 5, 6)
_DICTIONARY_PAGE = 2
_MAX_DEPTH = 8


class PageError(ValueError):
    """A page header that is broken, or claims more than is allowed."""


@dataclass(frozen=True, slots=True)
class Page:
    """One page: its type and its size before and after decompression."""

    type: int
    compressed: int
    uncompressed: int

    @property
    def dictionary(self) -> bool:
        """Whether it holds the values that other pages refer to."""
        return self.type == _DICTIONARY_PAGE


def pages(source: Source, start: int, length: int) -> Iterator[Page]:
    """The pages of the column chunk at `start`, headers only.

    Raises:
        PageError: When a header is broken, or a page reaches beyond the chunk.
    """
    at, end = start, start + length
    while at < end:
        fields, size = _header(source, at, end - at)
        compressed, uncompressed = fields.get(3, -1), fields.get(2, -1)
        at += size
        if compressed < 0 or uncompressed < 0 or compressed > end - at:
            raise PageError(
                f"a page of {compressed} bytes ({uncompressed} decompressed) in a chunk with {end - at} left"
            )
        yield Page(fields.get(1, -1), compressed, uncompressed)
        at += compressed


def _header(source: Source, at: int, left: int) -> tuple[dict[int, int], int]:
    """The integers of a page header by field number, and its size."""
    usual, most = HEADER_ROOM
    try:
        header = _Thrift(bytes(source.window(at, min(usual, left))))
        return header.integers(), header.at
    except PageError:
        if left <= usual:
            raise
    header = _Thrift(bytes(source.window(at, min(most, left))))
    return header.integers(), header.at


def check_chunk(source: Source, base: int, size: int, chunk: pa.lib.ColumnChunkMetaData, max_page: int) -> int:
    """Check where a column chunk lies and how large its pages claim to be.

    Args:
        source: The file.
        base: Where the Parquet file begins in it.
        size: Its length.
        chunk: pyarrow's metadata of the column chunk.
        max_page: Bytes that a decompressed page may have.

    Returns:
        Decompressed bytes of the dictionary page; 0 without one.

    Raises:
        PageError: For a chunk outside of the file, a broken page header, or a page that is too large.
    """
    if not chunk.num_values:
        return 0  # without values there are no pages, and offsets mean nothing
    start = chunk.data_page_offset
    if chunk.has_dictionary_page and chunk.dictionary_page_offset:
        start = min(start, chunk.dictionary_page_offset)
    length = chunk.total_compressed_size
    if start < 0 or length < 0 or length > size - start:
        raise PageError(f"a column chunk of {length} bytes at byte {start} of a payload of {size} bytes")
    dictionary = 0
    for page in pages(source, base + start, length):
        if page.uncompressed > max_page:
            raise PageError(f"a page claims {page.uncompressed} bytes; max_page_bytes is {max_page}")
        if page.dictionary:
            dictionary = page.uncompressed
    return dictionary


class _Thrift:
    """The compact protocol, as far as page headers go."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.at = 0

    def integers(self) -> dict[int, int]:
        """The integer fields of the struct at hand; everything else is passed over."""
        found: dict[int, int] = {}
        number = 0
        while True:
            byte = self._byte()
            kind = byte & 15
            if kind == _STOP:
                return found
            number = number + (byte >> 4) if byte >> 4 else self._zigzag()
            if kind in _VARINTS:
                found[number] = self._zigzag()
            else:
                self._skip(kind, 0)

    def _skip(self, kind: int, depth: int) -> None:
        if depth > _MAX_DEPTH:
            raise PageError("a page header is nested too deeply")
        if kind in (_TRUE, _FALSE):
            return
        if kind == _BYTE:
            self._forward(1)
        elif kind in _VARINTS:
            self._varint()
        elif kind == _DOUBLE:
            self._forward(8)
        elif kind == _BINARY:
            self._forward(self._varint())
        elif kind == _STRUCT:
            while (byte := self._byte()) & 15 != _STOP:
                if not byte >> 4:
                    self._zigzag()
                self._skip(byte & 15, depth + 1)
        elif kind in (_LIST, _SET):
            byte = self._byte()
            count = byte >> 4 if byte >> 4 < 15 else self._varint()
            if count > len(self._data):
                raise PageError(f"a page header with a list of {count}")
            for _ in range(count):
                self._skip(_BYTE if byte & 15 in (_TRUE, _FALSE) else byte & 15, depth + 1)
        else:
            raise PageError(f"a page header with a field of type {kind}")

    def _byte(self) -> int:
        if self.at >= len(self._data):
            raise PageError("a page header does not end")
        self.at += 1
        return self._data[self.at - 1]

    def _forward(self, count: int) -> None:
        if count > len(self._data) - self.at:
            raise PageError("a page header does not end")
        self.at += count

    def _varint(self) -> int:
        value = shift = 0
        while shift < 70:
            byte = self._byte()
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7
        raise PageError("a page header with a broken number")

    def _zigzag(self) -> int:
        value = self._varint()
        return value >> 1 ^ -(value & 1)

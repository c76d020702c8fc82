"""Page headers of a Parquet column chunk, read before pyarrow trusts them: a few bytes may claim gigabytes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from sawlog.storage import Source

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

HEADER_ROOM = 64 << 10
"""Bytes within which a page header has to end, statistics included."""

_STOP, _TRUE, _FALSE, _BYTE, _DOUBLE, _BINARY, _LIST, _SET, _MAP, _STRUCT = 0, 1, 2, 3, 7, 8, 9, 10, 11, 12
_VARINTS = (4, 5, 6)
_DATA_PAGE, _DICTIONARY_PAGE = 0, 2
_DATA_HEADER, _DATA_HEADER_2 = 5, 8
"""Fields of a page header that hold the headers of data pages of both versions: number of values, and encoding."""
_PLAIN = 0
_INDICES = (2, 8)
"""Encodings of pages that refer to a dictionary."""
_CODECS = {"SNAPPY": "snappy", "GZIP": "gzip", "BROTLI": "brotli", "ZSTD": "zstd"}
"""Arrow's names of Parquet's codecs. What "LZ4" stands for has changed over the years."""
_MAX_DEPTH = 8
_NONE: Mapping[int, dict[int, int]] = {}


class PageError(ValueError):
    """A page header that is broken."""


class PageSizeError(PageError):
    """A page header that claims more than is allowed."""


@dataclass(frozen=True, slots=True)
class Page:
    """One page: its type, where its data begins in the file, and its size before and after decompression.

    Of a data page also the number of its values, nulls included; of one of the first version their encoding.
    """

    type: int
    start: int
    compressed: int
    uncompressed: int
    values: int = 0
    encoding: int = -1

    @property
    def dictionary(self) -> bool:
        """Whether it holds the values that other pages refer to."""
        return self.type == _DICTIONARY_PAGE

    @property
    def plain(self) -> bool:
        """Whether it holds values as they are, one behind the other."""
        return self.type == _DATA_PAGE and self.encoding == _PLAIN

    @property
    def indices(self) -> bool:
        """Whether it holds references to the dictionary."""
        return self.type == _DATA_PAGE and self.encoding in _INDICES


def pages(source: Source, start: int, length: int) -> Iterator[Page]:
    """The pages of the column chunk at `start`, headers only.

    Raises:
        PageError: When a header is broken, or a page reaches beyond the chunk.
    """
    at, end = start, start + length
    while at < end:
        fields, data, size = _header(source, at, end - at)
        compressed, uncompressed = fields.get(3, -1), fields.get(2, -1)
        at += size
        if compressed < 0 or uncompressed < 0 or compressed > end - at:
            raise PageError(
                f"a page of {compressed} bytes ({uncompressed} decompressed) in a chunk with {end - at} left"
            )
        yield Page(fields.get(1, -1), at, compressed, uncompressed, max(0, data.get(1, 0)), data.get(2, -1))
        at += compressed


def _header(source: Source, at: int, left: int) -> tuple[dict[int, int], dict[int, int], int]:
    """The integers of a page header by field number, those of its data header, and its size."""
    header = _Thrift(source.window(at, min(HEADER_ROOM, left)).data)
    data: dict[int, int] = {}
    second: dict[int, int] = {}
    found = header.integers({_DATA_HEADER: data, _DATA_HEADER_2: second})
    return found, data or {1: second.get(1, 0)}, header.at


def checked_pages(
    source: Source, base: int, size: int, chunk: pa.lib.ColumnChunkMetaData, max_page: int
) -> Iterator[Page]:
    """The pages of a column chunk that lies where it may, and whose pages claim no more than they may.

    Args:
        source: The file.
        base: Where the Parquet file begins in it.
        size: Its length.
        chunk: pyarrow's metadata of the column chunk.
        max_page: Bytes that a decompressed page may have.

    Raises:
        PageError: For a chunk outside of the file, or a broken page header.
        PageSizeError: For a page that is too large.
    """
    if not chunk.num_values:
        return  # without values there are no pages, and offsets mean nothing
    start = chunk.data_page_offset
    if chunk.has_dictionary_page and chunk.dictionary_page_offset:
        start = min(start, chunk.dictionary_page_offset)
    length = chunk.total_compressed_size
    if start < 0 or length < 0 or length > size - start:
        raise PageError(f"a column chunk of {length} bytes at byte {start} of a payload of {size} bytes")
    for page in pages(source, base + start, length):
        if page.uncompressed > max_page:
            raise PageSizeError(f"a page claims {page.uncompressed} bytes; max_page_bytes is {max_page}")
        yield page


def longest_value(source: Source, dictionary: Page, compression: str) -> int:
    """Length of the longest value of a dictionary of byte arrays, found without expanding any row.

    Raises:
        PageError: When the page cannot be decompressed, or its values do not fit into it.
    """
    import numpy as np

    from sawlog.milvus_binlog import kernels

    data = decompressed(source, dictionary, compression)
    if data is None:
        return dictionary.uncompressed
    values = np.frombuffer(data, np.uint8)
    values.flags.writeable = False
    longest = int(kernels.longest_value(values))
    if longest < 0:
        raise PageError("a dictionary page whose values do not fit into it")
    return longest


def decompressed(source: Source, page: Page, compression: str) -> pa.Buffer | None:
    """The bytes of a page; `None` where nothing says for sure how it is compressed.

    Raises:
        PageError: When the page cannot be decompressed.
    """
    data = pa.py_buffer(source.window(page.start, page.compressed))
    if compression == "UNCOMPRESSED":
        return data
    name = _CODECS.get(compression)
    if name is None:
        return None
    try:
        return pa.Codec(name).decompress(data, page.uncompressed)
    except (pa.ArrowException, OSError) as error:
        raise PageError(f"a page that cannot be decompressed: {error}") from None


def plain_values(page: Page, data: pa.Buffer | None, width: int, optional: bool) -> NDArray[np.uint8] | None:
    """The values of a plain page of fixed-width values, as they lie; `None` unless it holds no nulls for sure.

    Args:
        page: The page.
        data: Its bytes, decompressed.
        width: Bytes per value.
        optional: Whether definition levels, a single run of ones, stand in front of the values.
    """
    import numpy as np

    if data is None:
        return None
    values = np.frombuffer(data, np.uint8)
    values.flags.writeable = False
    if optional:
        run = _varint_bytes(page.values << 1) + b"\x01"
        levels = len(run).to_bytes(4, "little") + run
        if values[: len(levels)].tobytes() != levels:
            return None
        values = values[len(levels) :]
    return values if len(values) == page.values * width else None


def _varint_bytes(value: int) -> bytes:
    found = bytearray()
    while value >= 0x80:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*found, value])


class _Thrift:
    """The compact protocol, as far as page headers go."""

    def __init__(self, data: memoryview) -> None:
        self._data = data
        self.at = 0

    def integers(self, structs: Mapping[int, dict[int, int]] = _NONE) -> dict[int, int]:
        """The integer fields of the struct at hand, and those of the `structs` within it; the rest is passed over."""
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
            elif kind == _STRUCT and number in structs:
                structs[number].update(self.integers())
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

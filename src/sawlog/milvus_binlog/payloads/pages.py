"""Page headers of a Parquet column chunk, read before pyarrow trusts them: a few bytes may claim gigabytes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from sawlog.guard import Undecodable, decode_by
from sawlog.milvus_binlog.layout import Kind
from sawlog.milvus_binlog.payloads.footer import Chunk
from sawlog.milvus_binlog.payloads.parquet import (
    ARROW_CODECS,
    ARROW_ENCODINGS,
    ENCODING_V2,
    DataPageHeader,
    Encoding,
    PageHeader,
    PageType,
)
from sawlog.milvus_binlog.payloads.thrift import Thrift, ThriftError
from sawlog.storage import Source

HEADER_ROOM = 64 << 10
"""Bytes within which a page header has to end, statistics included."""

_UNSURE = ("LZ4", "LZ4_RAW")
"""What "LZ4" stands for has changed over the years."""
FREE_PAGE = 8 << 20
"""Bytes that every page may have when it is decompressed: as many as a batch."""
EXPANSION = 64
"""Larger ones may have so many times the bytes that they take in the file, unless an option says otherwise."""
LARGEST_PAGE = 256 << 20


class PageError(Exception):
    """A page header that is broken."""

    kind = Kind.BAD_PAYLOAD


class PageSizeError(PageError):
    """A page header that claims more than is allowed."""

    kind = Kind.PAYLOAD_TOO_LARGE


class PageUnsupportedError(PageError):
    """Pages of a codec, an encoding or a cipher that is not decoded."""

    kind = Kind.UNSUPPORTED


@dataclass(frozen=True, slots=True)
class Page:
    """One page: its type, where its header and its data begin in the file, and its size before and after decompression.

    Of a data page also the number of its values, nulls included, and whether they are indices into the dictionary.
    """

    type: int
    offset: int
    start: int
    compressed: int
    uncompressed: int
    values: int = 0
    indices: bool = False

    @property
    def dictionary(self) -> bool:
        """Whether it holds the values that other pages refer to."""
        return self.type == PageType.DICTIONARY_PAGE


def pages(source: Source, start: int, length: int) -> Iterator[Page]:
    """The pages of the column chunk at `start`, headers only.

    Raises:
        PageError: When a header is broken, or a page reaches beyond the chunk.
    """
    at, end = start, start + length
    while at < end:
        offset = at
        fields, values, indices, size = _header(source, at, end - at)
        compressed = fields.get(PageHeader.COMPRESSED_PAGE_SIZE, -1)
        uncompressed = fields.get(PageHeader.UNCOMPRESSED_PAGE_SIZE, -1)
        at += size
        if compressed < 0 or uncompressed < 0 or compressed > end - at:
            raise PageError(
                f"a page of {compressed} bytes ({uncompressed} decompressed) in a chunk with {end - at} left"
            )
        yield Page(fields.get(PageHeader.TYPE, -1), offset, at, compressed, uncompressed, max(0, values), indices)
        at += compressed


def _header(source: Source, at: int, left: int) -> tuple[dict[int, int], int, bool, int]:
    """The integers of a page header by field number; how many values there are by its data header; its size.

    Before the size: whether the values are indices into the dictionary.
    """
    header = Thrift(source.window(at, min(HEADER_ROOM, left)).data)
    data: dict[int, int] = {}
    second: dict[int, int] = {}
    try:
        found = header.integers({PageHeader.DATA_PAGE_HEADER: data, PageHeader.DATA_PAGE_HEADER_V2: second})
    except ThriftError as error:
        raise PageError(f"a broken page header: {error}") from None
    encoding = data.get(DataPageHeader.ENCODING, second.get(ENCODING_V2, 0))
    if encoding not in ARROW_ENCODINGS:
        raise PageUnsupportedError(f"a page of encoding {encoding}, which pyarrow does not have")
    values = (data or second).get(DataPageHeader.NUM_VALUES, 0)
    return found, values, encoding in Encoding.__members__.values(), header.at


def checked_pages(
    source: Source, base: int, chunk: Chunk, max_page: int | None, *, any_size: bool = False
) -> Iterator[Page]:
    """The pages of a column chunk, none of which claims more than it may.

    Args:
        source: The file.
        base: Where the Parquet file begins in it.
        chunk: The column chunk; the footer was checked.
        max_page: Bytes that a decompressed page may have; `None`: what its compressed bytes justify.
        any_size: Whether pages that claim more are taken, too: who decodes them checks each of them.

    Raises:
        PageError: For a broken page header.
        PageSizeError: For a page that is too large.
        PageUnsupportedError: For pages that are not decoded.
    """
    if not chunk.values:
        return  # without values there are no pages, and offsets mean nothing
    if chunk.unsupported:
        raise PageUnsupportedError(chunk.unsupported)
    for page in pages(source, base + chunk.start, chunk.compressed):
        if not any_size:
            check_size(page, max_page)
        yield page


def check_size(page: Page, max_page: int | None) -> None:
    """Refuse a page that claims more than it may.

    Raises:
        PageSizeError: Says how much.
    """
    limit = max_page if max_page is not None else page_limit(page.compressed)
    if page.uncompressed > limit:
        raise PageSizeError(
            f"a page of {page.compressed} bytes claims {page.uncompressed} bytes; max_page_bytes is {limit}"
        )


def page_limit(compressed: int) -> int:
    """Bytes that a page may have when it is decompressed, by those that it takes in the file."""
    return min(LARGEST_PAGE, max(FREE_PAGE, EXPANSION * compressed))


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
    name = ARROW_CODECS.get(compression)
    if name is None or compression in _UNSURE:
        return None
    content = decode_by(pa.Codec(name).decompress, data, page.uncompressed)
    if isinstance(content, Undecodable):
        raise PageError(f"a page that cannot be decompressed: {content.detail}")
    return content

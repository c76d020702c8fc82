"""The header of a column file, for people who look at the bytes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from sawlog.anatomy import Part
from sawlog.deephaven_table import layout
from sawlog.deephaven_table.header import HEAD_SIZE, parse_header

if TYPE_CHECKING:
    from sawlog.storage import Source


def parts(source: Source, path: str, offset: int) -> Iterator[Part]:
    """The header, if the file has one, and the data after it; otherwise only the data."""
    head = source.window(0, HEAD_SIZE).tobytes()
    header = parse_header(head, source.size) if path.endswith((layout.DATA, layout.SYMBOL_OFFSETS)) else None
    at = offset
    if not offset and header is not None:
        order = "little endian" if header.little else "big endian"
        size = f"{header.metadata_size:,}, data {order}"
        yield Part("metadata size", layout.METADATA_SIZE_OFFSET, layout.DATA_START_OFFSET, size, use="header")
        width = layout.HEADER_SIZE - layout.DATA_START_OFFSET
        yield Part("data start", layout.DATA_START_OFFSET, width, f"{header.data_start:,}", use="header")
        if header.prefix_size:
            yield Part("metadata", layout.HEADER_SIZE, header.prefix_size, use="header")
        at = header.data_start
    yield Part("data", at, max(0, source.size - at))

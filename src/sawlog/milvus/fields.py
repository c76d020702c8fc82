"""The parts of descriptors and events, for people who look at the bytes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from struct import Struct
from typing import TYPE_CHECKING

from sawlog.format.fields import Part
from sawlog.milvus import layout
from sawlog.milvus.layout import EventType
from sawlog.milvus.log import HEAD, find_type_name
from sawlog.milvus.payloads.parquet import (
    ParquetError,
    Physical,
    compute_page_limit,
    decompress_page,
    read_footer,
    read_pages,
)

if TYPE_CHECKING:
    from sawlog.kernels.layout import Number
    from sawlog.milvus.payloads.parquet import Chunk, Page
    from sawlog.storage import Source


_FORMS: dict[int, Struct] = {
    Physical.INT32: Struct("<i"),
    Physical.INT64: Struct("<q"),
    Physical.FLOAT: Struct("<f"),
    Physical.DOUBLE: Struct("<d"),
}
_LEVELS = Struct("<I")
"""How many bytes of levels follow."""
_MAX_VALUES = 20
"""Values of a page that are named."""


def parse_parts(source: Source, offset: int) -> Iterator[Part]:
    """Yield magic number and descriptor, if they are at the offset, and the events from there on; not before 2.0."""
    pos = offset
    if pos == 0:
        head = source.read_window(0, HEAD).tobytes()
        magic = head[: len(layout.MAGIC)]
        if magic == layout.PARQUET_MAGIC:
            yield Part("magic", 0, len(magic), "PAR1, a Parquet file", use="header")
            return
        wrong = "" if magic == layout.MAGIC else layout.MAGIC.hex(" ")
        yield Part("magic", 0, len(magic), magic.hex(" "), wrong, "header")
        pos = len(magic)
    while pos + layout.HEADER.size <= source.size:
        data = source.read_window(pos, HEAD).tobytes()
        _, kind, length, _ = layout.HEADER.unpack_from(data)
        fits = layout.HEADER.size <= length <= source.size - pos
        yield from _parse_numbers(data, 0, pos, layout.EVENT_HEADER, "" if fits else f"at most {source.size - pos:,}")
        if not fits:
            return
        cursor = layout.HEADER.size
        if kind == EventType.DESCRIPTOR:
            yield from _parse_numbers(data, cursor, pos, layout.DESCRIPTOR_FIELDS, "")
            cursor += layout.DESCRIPTOR.size + layout.EXTRA_LENGTH.size
            extra = data[cursor : min(length, len(data))]
            yield Part("extra", pos + cursor, length - cursor, extra.decode("utf-8", "replace")[:200], use="header")
        else:
            yield from _parse_numbers(data, cursor, pos, layout.EVENT_RANGE, "")
            cursor += layout.EVENT_DATA.size
            yield from _parse_payload(source, pos + cursor, length - cursor)
        pos += length


def _parse_payload(source: Source, pos: int, length: int) -> Iterator[Part]:
    """Yield a payload, with the marks of Parquet and its footer where they are there."""
    mark = len(layout.PARQUET_MAGIC)
    ends = source.read_window(pos + length - 2 * mark, 2 * mark).tobytes() if length >= 3 * mark else b""
    footer = int.from_bytes(ends[:mark], "little")
    marked = source.read_window(pos, mark).tobytes() == layout.PARQUET_MAGIC == ends[mark:]
    if not marked or footer > length - 3 * mark:
        yield Part("payload", pos, length, f"{length:,} bytes")
        return
    stored, end = length - 3 * mark - footer, pos + length
    yield Part("Parquet magic", pos, mark, "PAR1")
    cursor = pos + mark
    try:
        for part in _parse_pages(source, pos, length):
            if cursor < part.offset:
                yield Part("not named", cursor, part.offset - cursor)
            yield part
            cursor = part.end
    except ParquetError:
        pass  # what a read says of it is in the list of damage
    if cursor < pos + mark + stored:
        yield Part("pages", cursor, pos + mark + stored - cursor, f"{pos + mark + stored - cursor:,} bytes of Parquet")
    yield Part("Parquet footer", pos + mark + stored, footer, f"{footer:,} bytes: schema and places of pages")
    yield Part("footer length", end - 2 * mark, mark, f"{footer:,}")
    yield Part("Parquet magic", end - mark, mark, "PAR1")


def _parse_pages(source: Source, pos: int, length: int) -> Iterator[Part]:
    """Yield the pages of a payload, each as its header and its data, in which values of a fixed width are named."""
    groups = read_footer(source, pos, length).groups
    chunks = [(column, chunk) for group in groups for column, chunk in enumerate(group.chunks) if chunk.values]
    for column, chunk in sorted(chunks, key=lambda item: item[1].start):
        for page in read_pages(source, pos + chunk.start, chunk.compressed):
            description = "dictionary" if page.is_dictionary else f"{page.values:,} values"
            yield Part("page header", page.offset, page.start - page.offset, f"column {column}, {description}")
            packed = "" if chunk.compression == "UNCOMPRESSED" else f", compressed with {chunk.compression.lower()}"
            inside = (
                tuple(_parse_values(source, page, chunk))
                if page.uncompressed <= compute_page_limit(page.compressed)
                else ()
            )
            size = f"; {page.uncompressed:,} bytes decompressed" if packed and inside else ""
            yield Part("page", page.start, page.compressed, f"{page.compressed:,} bytes{packed}{size}", inside=inside)


def _parse_values(source: Source, page: Page, chunk: Chunk) -> Iterator[Part]:
    """Yield the first values of a page whose type has a width, and its null rows; nothing of other pages."""
    form = _FORMS.get(chunk.type)
    data = decompress_page(source, page, chunk.compression) if form is not None and not page.has_indices else None
    if form is None or data is None:
        return
    remaining = data.size if page.is_dictionary else page.values * form.size
    levels = data.size - remaining
    if levels and (levels < _LEVELS.size or _LEVELS.unpack_from(data)[0] != levels - _LEVELS.size):
        return
    if levels:
        yield Part("levels", 0, levels, "which rows are null, in runs")
    for row in range(min(remaining // form.size, _MAX_VALUES)):
        start = levels + row * form.size
        yield Part(f"value {row}", start, form.size, str(form.unpack_from(data, start)[0]))


def _parse_numbers(data: bytes, cursor: int, pos: int, fields: Mapping[str, Number], expected: str) -> Iterator[Part]:
    for name, number in fields.items():
        stored = data[cursor + number.offset : cursor + number.end]
        value = int.from_bytes(stored, "little", signed=True)
        wrong = expected if name == "event length" else ""
        yield Part(name, pos + cursor + number.offset, number.size, _render_value(name, value, stored), wrong, "header")


def _render_value(name: str, value: int, stored: bytes) -> str:
    if name == "type":
        event_names = {int(event_type): event_type.name.lower() for event_type in EventType}
        return f"{value}, {event_names.get(value, 'unknown')}"
    if name.endswith("timestamp") and 0 < value < layout.MAX_TSO:
        return f"{value}, {layout.decode_tso(value):%Y-%m-%d %H:%M:%S.%f}"
    if name == "payload type":
        return f"{value}, {find_type_name(value)}"
    if name in ("collection", "partition", "segment", "field"):
        return str(value)
    return stored.hex(" ") if name == "post-header lengths" else f"{value:,}"

"""The parts of headers and entries, for people who look at the bytes."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from functools import partial

from sawlog.deephaven.log import layout
from sawlog.deephaven.log.header import Header, LogColumn
from sawlog.deephaven.log.layout import HeaderRecord
from sawlog.deephaven.types import LogType
from sawlog.format.fields import Part, slice_parts
from sawlog.storage import Source

_FLAGS = {0: "within a set", 1: "first of a set", 2: "last of a set", 3: "row", 4: "record"}
_MAX_ENTRY_BYTES = 64 << 10
"""Bytes of an entry that are looked at."""


def parse_parts(source: Source, offset: int, header: Header | None) -> Iterator[Part]:
    """Yield the header, if it is at the offset, and entries from there on."""
    position = offset
    if position == 0:
        yield from _parse_header(source)
        position = header.size if header is not None else source.size
    while header is not None and position + layout.SIZE_SIZE <= source.size:
        data = source.read_window(position, _MAX_ENTRY_BYTES).tobytes()
        size = int.from_bytes(data[: layout.SIZE_SIZE], "big", signed=True)
        total = layout.SIZE_SIZE + size
        fits = layout.MIN_ENTRY_SIZE <= size <= source.size - position - layout.SIZE_SIZE
        expected_length = f"at least {layout.MIN_ENTRY_SIZE}, within the file"
        yield Part("size", position, layout.SIZE_SIZE, f"{size:,}", "" if fits else expected_length)
        if not fits:
            return
        yield from _parse_entry(data, position, total, header)
        position += total


def _parse_entry(data: bytes, offset: int, total: int, header: Header) -> Iterator[Part]:
    flags, body, end = data[layout.SIZE_SIZE], layout.SIZE_SIZE + layout.FLAGS_SIZE, total - layout.DIGEST_SIZE
    wrong = "" if flags in _FLAGS else "0 to 4"
    yield Part(
        "flags", offset + layout.SIZE_SIZE, layout.FLAGS_SIZE, f"{flags}, {_FLAGS.get(flags, 'reserved')}", wrong
    )
    if flags & layout.Flag.RECORD:
        for name, start, stop in (
            ("record type", body, layout.RECORD_VERSION_OFFSET),
            ("record version", layout.RECORD_VERSION_OFFSET, layout.RECORD_DATA_OFFSET),
        ):
            if stop <= end:
                yield Part(
                    name, offset + start, stop - start, f"{int.from_bytes(data[start:stop], 'big', signed=True):,}"
                )
        if end > layout.RECORD_DATA_OFFSET:
            yield Part("data", offset + layout.RECORD_DATA_OFFSET, end - layout.RECORD_DATA_OFFSET)
    else:
        yield from _parse_row(data[:end], offset, body, header)
    if total <= len(data):
        digest, expected = int.from_bytes(data[end:total], "big"), zlib.adler32(data[:end])
        yield Part("digest", offset + end, layout.DIGEST_SIZE, hex(digest), "" if digest == expected else hex(expected))


def _parse_row(data: bytes, offset: int, body: int, header: Header) -> Iterator[Part]:
    presence = data[body : body + header.presence_bytes]
    yield Part("presence", offset + body, header.presence_bytes, " ".join(f"{byte:08b}" for byte in presence))
    position = body + header.presence_bytes
    for number, column in enumerate(header.stored):
        if position >= len(data) or not presence[number // layout.PRESENCE_BITS] >> number % layout.PRESENCE_BITS & 1:
            continue
        if column.width:
            yield Part(
                column.name,
                offset + position,
                column.width,
                layout.SCALARS[column.type].render(data[position : position + column.width]),
            )
            position += column.width
            continue
        yield from slice_parts(column.name, layout.VALUE, data, offset, position, partial(_render_text, column))
        position = layout.VALUE.find_ends(data, position)[1]


def _render_text(column: LogColumn, stored: bytes) -> str:
    return "" if column.type is LogType.BLOB else repr(stored[:200].decode("utf-8", "replace"))


def _parse_header(source: Source) -> Iterator[Part]:
    data = source.read_window(0, _MAX_ENTRY_BYTES).tobytes()
    if len(data) < layout.PREAMBLE_SIZE:
        return
    magic = int.from_bytes(data[: layout.VERSION_OFFSET], "big")
    wrong = "" if magic == layout.MAGIC else hex(layout.MAGIC)
    yield Part("magic", 0, layout.VERSION_OFFSET, hex(magic), wrong, "header")
    for name, start, stop in (
        ("version", layout.VERSION_OFFSET, layout.REMAINING_OFFSET),
        ("remaining", layout.REMAINING_OFFSET, layout.PREAMBLE_SIZE),
    ):
        yield Part(name, start, stop - start, str(int.from_bytes(data[start:stop], "big", signed=True)), use="header")
    remaining = int.from_bytes(data[layout.REMAINING_OFFSET : layout.PREAMBLE_SIZE], "big")
    end = layout.PREAMBLE_SIZE + remaining - layout.DIGEST_SIZE
    kinds = {int(record): record.name.lower().replace("_", " ") for record in HeaderRecord}
    position = layout.PREAMBLE_SIZE
    while position + layout.RECORD_HEADER_SIZE <= min(end, len(data)):
        size, kind = struct.unpack_from(">ii", data, position)
        body = position + layout.RECORD_HEADER_SIZE
        if not 0 <= size <= end - body:
            return
        yield Part("record", position, layout.RECORD_HEADER_SIZE, f"type {kind}, {size} bytes", use="header")
        yield Part(kinds.get(kind, "unknown record"), body, size, use="header")
        position = body + size
    if position == end and end + layout.DIGEST_SIZE <= len(data):
        yield Part("digest", end, layout.DIGEST_SIZE, "0x" + data[end : end + layout.DIGEST_SIZE].hex(), use="header")

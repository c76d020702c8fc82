"""The parts of descriptors and events, for people who look at the bytes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from sawlog.fields import Part
from sawlog.milvus_binlog import layout
from sawlog.milvus_binlog.layout import EventType
from sawlog.milvus_binlog.log import HEAD, data_type_name

if TYPE_CHECKING:
    from sawlog.chain.layout import Number
    from sawlog.storage import Source


def parts(source: Source, offset: int) -> Iterator[Part]:
    """Magic number and descriptor, where they stand at the offset, and events from there on; not before 2.0."""
    at = offset
    if at == 0:
        head = source.window(0, HEAD).tobytes()
        magic = head[: len(layout.MAGIC)]
        if magic == layout.PARQUET_MAGIC:
            yield Part("magic", 0, len(magic), "PAR1, a Parquet file", use="header")
            return
        wrong = "" if magic == layout.MAGIC else layout.MAGIC.hex(" ")
        yield Part("magic", 0, len(magic), magic.hex(" "), wrong, "header")
        at = len(magic)
    while at + layout.HEADER.size <= source.size:
        data = source.window(at, HEAD).tobytes()
        _, kind, length, _ = layout.HEADER.unpack_from(data)
        fits = layout.HEADER.size <= length <= source.size - at
        yield from _numbers(data, 0, at, layout.EVENT_HEADER, "" if fits else f"at most {source.size - at:,}")
        if not fits:
            return
        here = layout.HEADER.size
        if kind == EventType.DESCRIPTOR:
            yield from _numbers(data, here, at, layout.DESCRIPTOR_FIELDS, "")
            here += layout.DESCRIPTOR.size + layout.EXTRA_LENGTH.size
            extra = data[here : min(length, len(data))]
            yield Part("extra", at + here, length - here, extra.decode("utf-8", "replace")[:200], use="header")
        else:
            yield from _numbers(data, here, at, layout.EVENT_RANGE, "")
            here += layout.EVENT_DATA.size
            yield from _parquet(source, at + here, length - here)
        at += length


def _parquet(source: Source, at: int, length: int) -> Iterator[Part]:
    """A payload, with the marks of Parquet and its footer where they are there."""
    mark = len(layout.PARQUET_MAGIC)
    ends = source.window(at + length - 2 * mark, 2 * mark).tobytes() if length >= 3 * mark else b""
    footer = int.from_bytes(ends[:mark], "little")
    marked = source.window(at, mark).tobytes() == layout.PARQUET_MAGIC == ends[mark:]
    if not marked or footer > length - 3 * mark:
        yield Part("payload", at, length, f"{length:,} bytes")
        return
    pages, end = length - 3 * mark - footer, at + length
    yield Part("Parquet magic", at, mark, "PAR1")
    if pages:
        yield Part("pages", at + mark, pages, f"{pages:,} bytes of Parquet")
    yield Part("Parquet footer", at + mark + pages, footer, f"{footer:,} bytes: schema and places of pages")
    yield Part("footer length", end - 2 * mark, mark, f"{footer:,}")
    yield Part("Parquet magic", end - mark, mark, "PAR1")


def _numbers(data: bytes, here: int, at: int, fields: Mapping[str, Number], expected: str) -> Iterator[Part]:
    for name, number in fields.items():
        stored = data[here + number.offset : here + number.end]
        value = int.from_bytes(stored, "little", signed=True)
        wrong = expected if name == "event length" else ""
        yield Part(name, at + here + number.offset, number.size, _said(name, value, stored), wrong, "header")


def _said(name: str, value: int, stored: bytes) -> str:
    if name == "type":
        known = {int(one): one.name.lower() for one in EventType}
        return f"{value}, {known.get(value, 'unknown')}"
    if name.endswith("timestamp") and 0 < value < layout.MAX_TSO:
        return f"{value}, {layout.tso_time(value):%Y-%m-%d %H:%M:%S.%f}"
    if name == "payload type":
        return f"{value}, {data_type_name(value)}"
    return stored.hex(" ") if name == "post-header lengths" else f"{value:,}"

"""The parts of descriptors and events, for people who look at the bytes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from sawlog.anatomy import Part
from sawlog.milvus_binlog import layout
from sawlog.milvus_binlog.envelope import HEAD, data_type_name
from sawlog.milvus_binlog.layout import EventType

if TYPE_CHECKING:
    from sawlog.storage import Source

_HEADER = (("timestamp", 8), ("type", 1), ("event length", 4), ("next position", 4))
_DESCRIPTOR = (
    ("collection", 8),
    ("partition", 8),
    ("segment", 8),
    ("field", 8),
    ("start timestamp", 8),
    ("end timestamp", 8),
    ("payload type", 4),
    ("post-header lengths", 8),
    ("extra length", 4),
)
_EVENT = (("start timestamp", 8), ("end timestamp", 8))


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
        yield from _numbers(data, 0, at, _HEADER, "" if fits else f"at most {source.size - at:,}")
        if not fits:
            return
        here = layout.HEADER.size
        if kind == EventType.DESCRIPTOR:
            yield from _numbers(data, here, at, _DESCRIPTOR, "")
            here += sum(size for _, size in _DESCRIPTOR)
            extra = data[here : min(length, len(data))]
            yield Part("extra", at + here, length - here, extra.decode("utf-8", "replace")[:200], use="header")
        else:
            yield from _numbers(data, here, at, _EVENT, "")
            here += sum(size for _, size in _EVENT)
            yield Part("payload", at + here, length - here, f"{length - here:,} bytes of Parquet")
        at += length


def _numbers(data: bytes, here: int, at: int, fields: tuple[tuple[str, int], ...], expected: str) -> Iterator[Part]:
    for name, size in fields:
        stored = data[here : here + size]
        value = int.from_bytes(stored, "little", signed=True)
        wrong = expected if name == "event length" else ""
        yield Part(name, at + here, size, _said(name, value, stored), wrong, "header")
        here += size


def _said(name: str, value: int, stored: bytes) -> str:
    if name == "type":
        known = {int(one): one.name.lower() for one in EventType}
        return f"{value}, {known.get(value, 'unknown')}"
    if name.endswith("timestamp") and 0 < value < layout.MAX_TSO:
        return f"{value}, {layout.tso_time(value):%Y-%m-%d %H:%M:%S.%f}"
    if name == "payload type":
        return f"{value}, {data_type_name(value)}"
    return stored.hex(" ") if name == "post-header lengths" else f"{value:,}"

"""The parts of fragments, write batches and version edits, for people who look at the bytes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np

from sawlog.format.charts import key_text
from sawlog.format.fields import Fields, Part, numbers
from sawlog.leveldb.codecs import EXPANDED_BYTES, expand_records
from sawlog.leveldb.log import layout
from sawlog.leveldb.log.head import LogHead
from sawlog.leveldb.log.layout import Dialect, Role
from sawlog.leveldb.records.edit import EditError, edit_fields
from sawlog.leveldb.records.layout import BATCH_HEADER, COUNT_OFFSET, OPERATIONS, Field, Operation
from sawlog.storage import Source

_MOST = 80
"""Parts of a batch that are named; the rest is one."""


@cache
def _operations(dialect: Dialect) -> dict[int, tuple[Operation, bool]]:
    """Operations by their tags, and whether a column family follows those."""
    every = ((one, one.tags(dialect)) for one in OPERATIONS)
    return {tag: (one, bool(place)) for one, tags in every for place, tag in enumerate(tags) if tag is not None}


def batch_parts(data: bytes, at: int, dialect: Dialect, *, cut: bool) -> list[Part]:
    """The fields of a write batch; none where the bytes are something else."""
    tags = _operations(dialect)
    fields, counted = Fields(data, at), 0
    if len(data) < BATCH_HEADER:
        return []
    fields.number("sequence", COUNT_OFFSET)
    count = fields.number("count", BATCH_HEADER - COUNT_OFFSET)
    try:
        while fields.left and len(fields.found) < _MOST:
            tag = data[fields.position]
            if tag not in tags:
                return []
            operation, family = tags[tag]
            fields.take("operation", 1, lambda taken, name=operation.name: f"{taken[0]}, {name}")  # type: ignore[misc]
            if family:
                fields.varint("column family")
            strings = [(Field.KEY, "key"), (Field.VALUE, "value")]
            for bit, name in reversed(strings) if operation.shape & Field.VALUE_FIRST else strings:
                if operation.shape & bit:
                    fields.take(name, fields.varint(f"{name} length"), key_text)
            counted += bool(operation.shape & Field.COUNTED)
    except EOFError:
        return fields.found if cut else []
    if counted > count or (not fields.left and not cut and counted != count):
        return []
    fields.rest("further operations")
    return fields.found


def edit_parts(data: bytes, at: int, dialect: Dialect) -> Iterator[Part]:
    """The fields of a version edit, each with its tag, as far as they can be read."""
    end = 0
    try:
        for name, start, end, value in edit_fields(data, dialect):
            yield Part(name or "skipped", at + start, end - start, _text(value))
    except EditError as error:
        yield Part("unreadable", at + end, len(data) - end, "", str(error))


def _text(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {_text(one)}" for name, one in value.items())
    return key_text(value) if isinstance(value, bytes) else str(value)


_HEADER = {"checksum": layout.CHECKSUM, "length": layout.LENGTH}


def parts(source: Source, offset: int, head: LogHead, *, edits: bool = False) -> Iterator[Part]:
    """The fragments from an offset on, each as its header and its payload, and unused ends of blocks.

    Args:
        source: The log.
        offset: Where to begin.
        head: Whose it is, and whether its records are compressed.
        edits: Whether records are version edits; otherwise they are write batches, or something that is not known.
    """
    at, dialect = offset, head.dialect
    while at < source.size:
        block_end = at - at % layout.BLOCK_SIZE + layout.BLOCK_SIZE
        end = min(block_end, source.size)
        if end - at < layout.HEADER_SIZE:
            yield Part("unused", at, end - at, "end of the block" if end == block_end else "", use="padding")
            at = end
            continue
        data = source.window(at, end - at).tobytes()
        length, kind = layout.LENGTH.of(data), layout.TYPE.of(data)
        known = layout.TYPES[dialect].get(kind)
        size = known.header_size if known is not None else layout.HEADER_SIZE
        fits = size + length <= end - at
        if size == layout.RECYCLABLE_HEADER_SIZE and fits and not any(data[: layout.TYPE.offset]):
            # Pebble ends a log so; the checksum of a fragment without a payload would not be 0.
            number = layout.LOG_NUMBER.of(data)
            yield Part("end of the log", at, size, f"an empty header of log number {number:,}", use="padding")
            at += size
            continue
        checksum, declared = numbers(data, at, at, _HEADER)
        yield Part(checksum.name, checksum.offset, checksum.length, checksum.value, _expected(data, size, length, fits))
        room = "" if fits else f"at most {end - at - size}"
        yield Part(declared.name, declared.offset, declared.length, declared.value, room)
        yield Part("type", at + layout.TYPE.offset, layout.TYPE.size, *_type(kind, layout.TYPES[dialect]))
        if size > layout.HEADER_SIZE:
            yield from numbers(data, at, at, {"log number": layout.LOG_NUMBER})
        if size > layout.RECYCLABLE_HEADER_SIZE:
            rest = data[layout.RECYCLABLE_HEADER_SIZE : size]
            synced = f"{int.from_bytes(rest, 'little'):,}"
            yield Part("synced up to", at + layout.RECYCLABLE_HEADER_SIZE, len(rest), synced)
        payload = min(length, end - at - size)
        role = known.role if known is not None else Role.UNKNOWN
        yield from _payload(data[size : size + payload], at + size, role, head, edits=edits)
        at += size + payload


_OF_RECORDS = (Role.FULL, Role.FIRST, Role.MIDDLE, Role.LAST)


def _payload(data: bytes, at: int, role: Role, head: LogHead, *, edits: bool) -> Iterator[Part]:
    """What a fragment carries, down to fields where it begins a record that is known."""
    if edits and role is Role.FULL:
        yield from edit_parts(data, at, head.dialect)
        return
    begins = not edits and role in (Role.FULL, Role.FIRST)
    goes_on = ", which go on a record" if role in (Role.MIDDLE, Role.LAST) else ""
    whole = Part("payload", at, len(data), f"{len(data):,} bytes{goes_on}")
    if head.compression == layout.Compression.NONE or role not in _OF_RECORDS:
        yield from (batch_parts(data, at, head.dialect, cut=role is Role.FIRST) if begins else []) or [whole]
        return
    record = _expanded(data) if role is Role.FULL else b""
    size = f"; {len(record):,} bytes decompressed" if record else ""
    inside = tuple(batch_parts(record, 0, head.dialect, cut=False)) if record else ()
    yield replace(whole, value=f"{whole.value}, compressed with zstd{size}", inside=inside)


def _expanded(data: bytes) -> bytes:
    """The content of a compressed record, empty where it is damaged."""
    ends = np.array([0, len(data)], np.int32)
    return b"".join(
        one.data.to_pybytes() for one in expand_records(np.frombuffer(data, np.uint8), ends, EXPANDED_BYTES)
    )


def _expected(data: bytes, size: int, length: int, fits: bool) -> str:
    """The checksum that should be there, if it is another."""
    from sawlog.leveldb.log.kernels import masked_checksum

    if not fits:
        return ""
    expected = masked_checksum(data[layout.TYPE.offset : size + length])
    return "" if expected == layout.CHECKSUM.of(data) else hex(expected)


def _type(kind: int, known: Mapping[int, layout.FragmentType]) -> tuple[str, str]:
    """A type byte in words, and what is expected in its place."""
    if kind not in known:
        return str(kind), f"a known type: {', '.join(str(int(one)) for one in sorted(known)[:8])}"
    return f"{kind}, {known[kind].role.name.lower()}", ""

"""The parts of fragments, write batches and version edits, for people who look at the bytes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np

from sawlog.format.charts import render_key
from sawlog.format.fields import Fields, Part, iterate_numbers
from sawlog.leveldb.codecs import EXPANDED_BYTES, expand_records
from sawlog.leveldb.log import layout
from sawlog.leveldb.log.head import LogHead
from sawlog.leveldb.log.layout import Dialect, Role
from sawlog.leveldb.records.edit import EditError, iterate_fields
from sawlog.leveldb.records.layout import BATCH_HEADER, COUNT_OFFSET, OPERATIONS, Field, Operation
from sawlog.storage import Source

_MAX_PARTS = 80
"""Parts of a batch that are named; the rest is one."""


@cache
def _index_operations(dialect: Dialect) -> dict[int, tuple[Operation, bool]]:
    """Return operations by their tags, and whether a column family follows those."""
    operation_tags = ((operation, operation.find_tags(dialect)) for operation in OPERATIONS)
    return {
        tag: (operation, bool(place))
        for operation, tags in operation_tags
        for place, tag in enumerate(tags)
        if tag is not None
    }


def _parse_batch_parts(data: bytes, position: int, dialect: Dialect, *, cut: bool) -> list[Part]:
    """Return the fields of a write batch; none where the bytes are something else."""
    tags = _index_operations(dialect)
    fields, counted = Fields(data, position), 0
    if len(data) < BATCH_HEADER:
        return []
    fields.take_number("sequence", COUNT_OFFSET)
    count = fields.take_number("count", BATCH_HEADER - COUNT_OFFSET)
    try:
        while fields.remaining and len(fields.parts) < _MAX_PARTS:
            tag = data[fields.position]
            if tag not in tags:
                return []
            operation, family = tags[tag]
            fields.take("operation", 1, lambda tag, name=operation.name: f"{tag[0]}, {name}")  # type: ignore[misc]
            if family:
                fields.take_varint("column family")
            strings = [(Field.KEY, "key"), (Field.VALUE, "value")]
            for bit, name in reversed(strings) if operation.shape & Field.VALUE_FIRST else strings:
                if operation.shape & bit:
                    fields.take(name, fields.take_varint(f"{name} length"), render_key)
            counted += bool(operation.shape & Field.COUNTED)
    except EOFError:
        return fields.parts if cut else []
    if counted > count or (not fields.remaining and not cut and counted != count):
        return []
    fields.take_remainder("further operations")
    return fields.parts


def _parse_edit_parts(data: bytes, position: int, dialect: Dialect) -> Iterator[Part]:
    """Yield the fields of a version edit, each with its tag, as far as they can be read."""
    end = 0
    try:
        for name, start, end, value in iterate_fields(data, dialect):
            yield Part(name or "skipped", position + start, end - start, _render_text(value))
    except EditError as error:
        yield Part("unreadable", position + end, len(data) - end, "", str(error))


def _render_text(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {_render_text(item)}" for name, item in value.items())
    return render_key(value) if isinstance(value, bytes) else str(value)


_HEADER = {"checksum": layout.CHECKSUM, "length": layout.LENGTH}


def parse_parts(source: Source, offset: int, head: LogHead, *, edits: bool = False) -> Iterator[Part]:
    """Yield the fragments from an offset on, each as its header and its payload, and unused ends of blocks.

    Args:
        source: The log.
        offset: Where to begin.
        head: Whose it is, and whether its records are compressed.
        edits: Whether records are version edits; otherwise they are write batches, or something that is not known.
    """
    position, dialect = offset, head.dialect
    while position < source.size:
        block_end = position - position % layout.BLOCK_SIZE + layout.BLOCK_SIZE
        end = min(block_end, source.size)
        if end - position < layout.HEADER_SIZE:
            yield Part(
                "unused", position, end - position, "end of the block" if end == block_end else "", use="padding"
            )
            position = end
            continue
        data = source.read_window(position, end - position).tobytes()
        length, kind = layout.LENGTH.of(data), layout.TYPE.of(data)
        fragment_type = layout.TYPES[dialect].get(kind)
        size = fragment_type.header_size if fragment_type is not None else layout.HEADER_SIZE
        fits = size + length <= end - position
        if size == layout.RECYCLABLE_HEADER_SIZE and fits and not any(data[: layout.TYPE.offset]):
            # Pebble ends a log so; the checksum of a fragment without a payload would not be 0.
            number = layout.LOG_NUMBER.of(data)
            yield Part("end of the log", position, size, f"an empty header of log number {number:,}", use="padding")
            position += size
            continue
        checksum, declared = iterate_numbers(data, position, position, _HEADER)
        yield Part(
            checksum.name,
            checksum.offset,
            checksum.length,
            checksum.value,
            _describe_checksum(data, size, length, fits),
        )
        room = "" if fits else f"at most {end - position - size}"
        yield Part(declared.name, declared.offset, declared.length, declared.value, room)
        yield Part(
            "type", position + layout.TYPE.offset, layout.TYPE.size, *_describe_type(kind, layout.TYPES[dialect])
        )
        if size > layout.HEADER_SIZE:
            yield from iterate_numbers(data, position, position, {"log number": layout.LOG_NUMBER})
        if size > layout.RECYCLABLE_HEADER_SIZE:
            synced_bytes = data[layout.RECYCLABLE_HEADER_SIZE : size]
            synced = f"{int.from_bytes(synced_bytes, 'little'):,}"
            yield Part("synced up to", position + layout.RECYCLABLE_HEADER_SIZE, len(synced_bytes), synced)
        payload = min(length, end - position - size)
        role = fragment_type.role if fragment_type is not None else Role.UNKNOWN
        yield from _parse_payload(data[size : size + payload], position + size, role, head, edits=edits)
        position += size + payload


_OF_RECORDS = (Role.FULL, Role.FIRST, Role.MIDDLE, Role.LAST)


def _parse_payload(data: bytes, position: int, role: Role, head: LogHead, *, edits: bool) -> Iterator[Part]:
    """Return the payload of a fragment, down to fields where it begins a record that is known."""
    if edits and role is Role.FULL:
        yield from _parse_edit_parts(data, position, head.dialect)
        return
    begins = not edits and role in (Role.FULL, Role.FIRST)
    goes_on = ", which go on a record" if role in (Role.MIDDLE, Role.LAST) else ""
    payload = Part("payload", position, len(data), f"{len(data):,} bytes{goes_on}")
    if head.compression == layout.Compression.NONE or role not in _OF_RECORDS:
        yield from (_parse_batch_parts(data, position, head.dialect, cut=role is Role.FIRST) if begins else []) or [
            payload
        ]
        return
    record = _expand(data) if role is Role.FULL else b""
    size = f"; {len(record):,} bytes decompressed" if record else ""
    inside = tuple(_parse_batch_parts(record, 0, head.dialect, cut=False)) if record else ()
    yield replace(payload, value=f"{payload.value}, compressed with zstd{size}", inside=inside)


def _expand(data: bytes) -> bytes:
    """Return the content of a compressed record, empty where it is damaged."""
    ends = np.array([0, len(data)], np.int32)
    return b"".join(
        group.data.to_pybytes() for group in expand_records(np.frombuffer(data, np.uint8), ends, EXPANDED_BYTES)
    )


def _describe_checksum(data: bytes, size: int, length: int, fits: bool) -> str:
    """Return the checksum that should be there, if it is another."""
    from sawlog.leveldb.log.kernels import compute_masked_checksum

    if not fits:
        return ""
    expected = compute_masked_checksum(data[layout.TYPE.offset : size + length])
    return "" if expected == layout.CHECKSUM.of(data) else hex(expected)


def _describe_type(kind: int, types: Mapping[int, layout.FragmentType]) -> tuple[str, str]:
    """Return a type byte in words, and what is expected in its place."""
    if kind not in types:
        return str(kind), f"a known type: {', '.join(str(int(code)) for code in sorted(types)[:8])}"
    return f"{kind}, {types[kind].role.name.lower()}", ""

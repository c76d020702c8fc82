"""The parts of containers and records, for people who look at the bytes."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from functools import partial

from sawlog.errors import FormatError
from sawlog.fields import Part, slice_parts
from sawlog.filodb_record import layout
from sawlog.filodb_record.judge import header_length
from sawlog.filodb_record.maps import iterate
from sawlog.filodb_record.schemas import RecordSchema
from sawlog.filodb_record.selection import Selection
from sawlog.pictures import key_text
from sawlog.storage import Source

_MOST = 128 << 10
"""Bytes of a record that are looked at."""


def parts(source: Source, offset: int, selection: Selection) -> Iterator[Part]:
    """The header of a container, where one begins at the offset, and records from there on."""
    at = offset
    while at + layout.LENGTH_SIZE <= source.size:
        data = source.window(at, _MOST).tobytes()
        if header_length(data) is not None and not selection.plain:
            yield from _header(data, at)
            at += layout.CONTAINER_HEADER_SIZE
            continue
        length = layout.LENGTH.of(data)
        wrong = length < layout.SMALLEST_LENGTH or length > source.size - at - layout.LENGTH_SIZE
        least = f"at least {layout.SMALLEST_LENGTH}, within the container"
        yield Part("length", at, layout.LENGTH_SIZE, f"{length:,}", least if wrong else "")
        if wrong:
            return
        size = layout.LENGTH_SIZE + length
        yield from _record(data[:size], at, selection)
        end = at + layout.align(size)
        if end > at + size:
            yield Part("padding", at + size, end - at - size)
        at = end


def _header(data: bytes, at: int) -> Iterator[Part]:
    yield Part("container length", at, layout.LENGTH_SIZE, f"{layout.LENGTH.of(data):,}", use="header")
    yield Part("version", at + layout.VERSION_WORD.offset, 4, str(layout.VERSION), use="header")
    yield Part("timestamp", at + layout.TIMESTAMP.offset, 8, _time(layout.TIMESTAMP.of(data)), use="header")


def _record(data: bytes, at: int, selection: Selection) -> Iterator[Part]:
    found = selection.layouts[0] if selection.plain else None
    if not selection.plain:
        number = layout.SCHEMA_ID.of(data)
        found = next((layout for layout in selection.layouts if layout.schema_id == number), None)
        named = f"{number}, {found.name}" if found is not None else str(number)
        wrong = "" if found is not None or number in selection.known else "a known schema"
        yield Part("schema id", at + layout.SCHEMA_ID_OFFSET, layout.SCHEMA_ID_SIZE, named, wrong)
    if found is None:
        rest = layout.SCHEMA_ID_OFFSET + layout.SCHEMA_ID_SIZE
        yield Part("columns", at + rest, max(0, len(data) - rest))
        return
    record = found.record
    for column, start in zip(record.columns, record.field_offsets, strict=True):
        size = column.slot_size
        if start + size <= len(data):
            yield Part(column.name, at + start, size, _slot(column.type, data[start : start + size]))
    if record.hash_offset is not None and record.hash_offset + layout.HASH_SIZE <= len(data):
        stored = data[record.hash_offset :][: layout.HASH_SIZE]
        yield Part("partition hash", at + record.hash_offset, layout.HASH_SIZE, "0x" + stored[::-1].hex())
    yield from _payloads(data, at, record)


def _payloads(data: bytes, at: int, record: RecordSchema) -> Iterator[Part]:
    """The variable area: the payloads that pointers lead to, each after its length."""
    led = [
        (layout.POINTER.of(data, start), number)
        for number, (column, start) in enumerate(zip(record.columns, record.field_offsets, strict=True))
        if column.pointer
    ]
    here = record.variable_area_start
    for start, number in sorted(led):
        _, end = layout.PAYLOAD.ends(data, start)
        if start < here or end > len(data):
            break
        if start > here:
            yield Part("unused", at + here, start - here)
        column = record.columns[number]
        yield from slice_parts(column.name, layout.PAYLOAD, data, at, start, partial(_text, column.type, record=record))
        here = end
    if len(data) > here:
        yield Part("payloads", at + here, len(data) - here)


def _text(kind: layout.ColumnType, payload: bytes, record: RecordSchema) -> str:
    """A payload as text, where it is text; nothing for histograms and records."""
    if kind == "map":
        try:
            entries = [(key, bytes(value)) for key, value in iterate(payload, record.predefined)]
        except FormatError as error:
            return str(error)
        return ", ".join(f"{key_text(key)}={key_text(value)}" for key, value in entries)
    return key_text(payload) if kind == "string" else ""


def _slot(kind: layout.ColumnType, stored: bytes) -> str:
    if kind not in layout.SCALARS:
        return f"payload at byte {layout.POINTER.of(stored)} of the record"
    scalar = layout.SCALARS[kind]
    return _time(scalar.of(stored)) if kind == "ts" else scalar.shown(stored)


def _time(milliseconds: int) -> str:
    if not 0 <= milliseconds < layout.MAX_TIMESTAMP:
        return str(milliseconds)
    return str(dt.datetime(1970, 1, 1, tzinfo=dt.UTC) + dt.timedelta(milliseconds=milliseconds))

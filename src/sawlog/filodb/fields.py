"""The parts of containers and records, for people who look at the bytes."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from functools import partial

from sawlog.errors import FormatError
from sawlog.filodb import layout
from sawlog.filodb.judge import read_header_length
from sawlog.filodb.maps import iterate
from sawlog.filodb.schemas import RecordSchema
from sawlog.filodb.selection import Selection
from sawlog.format.charts import render_key
from sawlog.format.fields import Part, slice_parts
from sawlog.guard import EPOCH
from sawlog.storage import Source

_MAX_RECORD_BYTES = 128 << 10
"""Bytes of a record that are looked at."""


def parse_parts(source: Source, offset: int, selection: Selection) -> Iterator[Part]:
    """Yield the header of a container, where one begins at the offset, and records from there on."""
    pos = offset
    while pos + layout.LENGTH_SIZE <= source.size:
        data = source.read_window(pos, _MAX_RECORD_BYTES).tobytes()
        if read_header_length(data) is not None and not selection.plain:
            yield from _parse_header(data, pos)
            pos += layout.CONTAINER_HEADER_SIZE
            continue
        length = layout.LENGTH.of(data)
        wrong = length < layout.SMALLEST_LENGTH or length > source.size - pos - layout.LENGTH_SIZE
        expected_length = f"at least {layout.SMALLEST_LENGTH}, within the container"
        yield Part("length", pos, layout.LENGTH_SIZE, f"{length:,}", expected_length if wrong else "")
        if wrong:
            return
        size = layout.LENGTH_SIZE + length
        yield from _parse_record(data[:size], pos, selection)
        end = pos + layout.align(size)
        if end > pos + size:
            yield Part("padding", pos + size, end - pos - size)
        pos = end


def _parse_header(data: bytes, pos: int) -> Iterator[Part]:
    yield Part("container length", pos, layout.LENGTH_SIZE, f"{layout.LENGTH.of(data):,}", use="header")
    yield Part("version", pos + layout.VERSION_WORD.offset, 4, str(layout.VERSION), use="header")
    yield Part("timestamp", pos + layout.TIMESTAMP.offset, 8, _render_time(layout.TIMESTAMP.of(data)), use="header")


def _parse_record(data: bytes, pos: int, selection: Selection) -> Iterator[Part]:
    record_layout = selection.layouts[0] if selection.plain else None
    if not selection.plain:
        number = layout.SCHEMA_ID.of(data)
        record_layout = next((layout for layout in selection.layouts if layout.schema_id == number), None)
        named = f"{number}, {record_layout.name}" if record_layout is not None else str(number)
        wrong = "" if record_layout is not None or number in selection.known_ids else "a known schema"
        yield Part("schema id", pos + layout.SCHEMA_ID_OFFSET, layout.SCHEMA_ID_SIZE, named, wrong)
    if record_layout is None:
        fields_start = layout.SCHEMA_ID_OFFSET + layout.SCHEMA_ID_SIZE
        yield Part("columns", pos + fields_start, max(0, len(data) - fields_start))
        return
    record = record_layout.record
    for column, start in zip(record.columns, record.field_offsets, strict=True):
        size = column.slot_size
        if start + size <= len(data):
            yield Part(column.name, pos + start, size, _render_slot(column.type, data[start : start + size]))
    if record.hash_offset is not None and record.hash_offset + layout.HASH_SIZE <= len(data):
        stored = data[record.hash_offset :][: layout.HASH_SIZE]
        yield Part("partition hash", pos + record.hash_offset, layout.HASH_SIZE, "0x" + stored[::-1].hex())
    yield from _parse_payloads(data, pos, record)


def _parse_payloads(data: bytes, pos: int, record: RecordSchema) -> Iterator[Part]:
    """Yield the variable area: the payloads that pointers lead to, each after its length."""
    led = [
        (layout.POINTER.of(data, start), number)
        for number, (column, start) in enumerate(zip(record.columns, record.field_offsets, strict=True))
        if column.pointer
    ]
    payload_start = record.variable_area_start
    for start, number in sorted(led):
        _, end = layout.PAYLOAD.find_ends(data, start)
        if start < payload_start or end > len(data):
            break
        if start > payload_start:
            yield Part("unused", pos + payload_start, start - payload_start)
        column = record.columns[number]
        yield from slice_parts(
            column.name, layout.PAYLOAD, data, pos, start, partial(_render_text, column.type, record=record)
        )
        payload_start = end
    if len(data) > payload_start:
        yield Part("payloads", pos + payload_start, len(data) - payload_start)


def _render_text(kind: layout.ColumnType, payload: bytes, record: RecordSchema) -> str:
    """Return a payload as text, where it is text; nothing for histograms and records."""
    if kind == "map":
        try:
            entries = [(key, bytes(value)) for key, value in iterate(payload, record.predefined)]
        except FormatError as error:
            return str(error)
        return ", ".join(f"{render_key(key)}={render_key(value)}" for key, value in entries)
    return render_key(payload) if kind == "string" else ""


def _render_slot(kind: layout.ColumnType, stored: bytes) -> str:
    if kind not in layout.SCALARS:
        return f"payload at byte {layout.POINTER.of(stored)} of the record"
    scalar = layout.SCALARS[kind]
    return _render_time(scalar.of(stored)) if kind == "ts" else scalar.render(stored)


def _render_time(milliseconds: int) -> str:
    if not 0 <= milliseconds < layout.MAX_TIMESTAMP:
        return str(milliseconds)
    return str(EPOCH + dt.timedelta(milliseconds=milliseconds))

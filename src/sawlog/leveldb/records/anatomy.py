"""The parts of write batches and version edits, for people who look at the bytes."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

from sawlog.anatomy import Fields, Part
from sawlog.leveldb.log.layout import Dialect
from sawlog.leveldb.records import layout
from sawlog.leveldb.records.edit import EditError, edit_fields
from sawlog.leveldb.records.layout import Field, Operation
from sawlog.pictures import key_text

_MOST = 80
"""Parts of a batch that are named; the rest is one."""


@cache
def _operations(dialect: Dialect) -> dict[int, tuple[Operation, bool]]:
    """Operations by their tags, and whether a column family follows those."""
    every = ((one, one.tags(dialect)) for one in layout.OPERATIONS)
    return {tag: (one, bool(place)) for one, tags in every for place, tag in enumerate(tags) if tag is not None}


def batch_parts(data: bytes, at: int, dialect: Dialect, *, cut: bool) -> list[Part]:
    """The fields of a write batch; none where the bytes are something else.

    Args:
        data: The bytes.
        at: Where they begin in the file.
        dialect: Whose they are.
        cut: Whether the batch goes on after them.
    """
    tags = _operations(dialect)
    fields, counted = Fields(data, at), 0
    if len(data) < layout.BATCH_HEADER:
        return []
    fields.number("sequence", layout.COUNT_OFFSET)
    count = fields.number("count", layout.BATCH_HEADER - layout.COUNT_OFFSET)
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


def edit_parts(data: bytes, at: int) -> Iterator[Part]:
    """The fields of a version edit, each with its tag, as far as they can be read."""
    end = 0
    try:
        for name, start, end, value in edit_fields(data):
            yield Part(name or "skipped", at + start, end - start, _text(value))
    except EditError as error:
        yield Part("unreadable", at + end, len(data) - end, "", str(error))


def _text(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {_text(one)}" for name, one in value.items())
    return key_text(value) if isinstance(value, bytes) else str(value)

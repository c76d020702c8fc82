"""The order of keys in IndexedDB's databases, which Chromium calls `idb_cmp1`: keys as tuples that compare so."""

from __future__ import annotations

from typing import Any

from sawlog.leveldb.applications import indexed_db_layout as layout
from sawlog.leveldb.applications.script_values import MAX_DEPTH
from sawlog.leveldb.applications.view import Cursor, UnknownBytesError

_RANKS = {
    rank: place
    for place, rank in enumerate(
        (layout.SMALLEST, layout.NUMBER, layout.DATE, layout.STRING, layout.BINARY, layout.ARRAY, layout.NO_KEY)
    )
}
"""Types of keys in order: the smallest key, numbers, dates, strings, binaries, arrays, and no key at all."""
_SIMPLE_GLOBAL, _SIMPLE_STORE = 7, 6
"""Types below have one key each, in what belongs to no database, and in the metadata of one."""
_SCOPES = 50
_IDS: dict[bool, dict[int, int]] = {True: {100: 1}, False: {50: 2, 100: 3, 150: 1, 151: 2, 200: 0, 201: 1}}
"""How many integers follow these types, of what belongs to no database and of metadata."""
_NAMES: dict[bool, dict[int, int]] = {True: {201: 2}, False: {200: 1, 201: 1}}
"""How many names follow, after these integers."""
_BYTES = {50, 100}
"""Types of metadata whose last integer is a byte."""


def order_of(key: bytes) -> tuple[Any, ...]:
    """Return the key as a tuple that is smaller, equal or larger as Chromium has it.

    Raises:
        UnknownBytesError: When it is no key of IndexedDB's.
    """
    return _read_sort_key(Cursor(key))


def _read_sort_key(cursor: Cursor) -> tuple[Any, ...]:
    place = layout.read_place(cursor)
    if not place.database:
        return (*place, *_read_metadata(cursor, is_global=True))
    if not place.store:
        return (*place, *_read_metadata(cursor, is_global=False))
    if (
        place.index_id not in (layout.RECORD, layout.EXISTS, layout.EXTERNAL_OBJECTS)
        and place.index_id < layout.FIRST_INDEX
    ):
        raise UnknownBytesError(f"index ID {place.index_id}")
    if not cursor.remaining:
        return (*place, ())
    first_key = _read_key(cursor)
    return (*place, (first_key, _read_index_tail(cursor)) if place.index_id >= layout.FIRST_INDEX else (first_key,))


def is_key(key: bytes) -> bool:
    """Return whether bytes are a key of IndexedDB's, to their end."""
    cursor = Cursor(key)
    try:
        _read_sort_key(cursor)
    except UnknownBytesError:
        return False
    return not cursor.remaining


def _read_metadata(cursor: Cursor, *, is_global: bool) -> tuple[Any, ...]:
    kind = cursor.take_byte()
    if kind < (_SIMPLE_GLOBAL if is_global else _SIMPLE_STORE):
        return (kind,)
    if is_global and kind == _SCOPES:
        return kind, cursor.take_remainder()
    names = _NAMES[is_global].get(kind, 0)
    ids = _IDS[is_global].get(kind, 0)
    if not names and not ids:
        raise UnknownBytesError(f"type {kind} of metadata")
    last = not is_global and kind in _BYTES
    parts: list[Any] = [cursor.take_varint() for _ in range(ids - last)]
    parts += [cursor.take_byte()] if last else []
    parts += [cursor.take(2 * cursor.take_varint(), "name") for _ in range(names)]
    return (kind, *parts)


def _read_index_tail(cursor: Cursor) -> tuple[Any, ...]:
    """Return the end of an index's key: a sequence number, which comes last, and the key of the record."""
    sequence = cursor.take_varint() if cursor.remaining else -1
    return (_read_key(cursor), sequence) if cursor.remaining else ()


def _read_key(cursor: Cursor, depth: int = 0) -> tuple[Any, ...]:
    if depth > MAX_DEPTH:
        raise UnknownBytesError(f"keys in keys, deeper than {MAX_DEPTH}")
    kind = cursor.take_byte()
    if kind not in _RANKS:
        raise UnknownBytesError(f"type {kind} of a key")
    rank = _RANKS[kind]
    if kind == layout.ARRAY:
        count = cursor.take_varint()
        if count > cursor.remaining:
            raise UnknownBytesError(f"{count} keys in {cursor.remaining} bytes")
        return rank, tuple(_read_key(cursor, depth + 1) for _ in range(count))
    if kind == layout.BINARY:
        return rank, cursor.take(cursor.take_varint(), "binary")
    if kind == layout.STRING:
        return rank, cursor.take(2 * cursor.take_varint(), "text")
    if kind in (layout.DATE, layout.NUMBER):
        return rank, cursor.take_double()
    return (rank,)

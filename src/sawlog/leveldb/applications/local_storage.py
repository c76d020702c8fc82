"""Chromium's Local Storage: what pages keep in `localStorage`. See `components/services/storage/dom_storage`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import pyarrow as pa

from sawlog.leveldb.applications.cursor import Cursor, columns_of, text
from sawlog.leveldb.applications.view import ApplicationView, Entry, UnknownBytesError

VERSION = b"VERSION"
PREFIXES = {b"_": "item", b"META:": "modified", b"METAACCESS:": "accessed"}
"""How keys begin, and the kinds of entries."""
ENCODINGS = {0: "utf-16-le", 1: "latin-1"}
"""The first byte of keys and values of pages, and what follows."""
TIME, SIZE = 1, 2
"""Numbers of the fields of metadata, which are varints of protobuf."""
EPOCH = 11_644_473_600_000_000
"""Microseconds from 1601 to 1970."""


class LocalStorage(ApplicationView):
    """One row per item of a page, and per piece of metadata on its origin."""

    title = "Chromium's Local Storage: kind, storage_key, key, value"
    columns: ClassVar = pa.schema(
        [
            ("kind", pa.string()),
            ("storage_key", pa.string()),
            ("key", pa.string()),
            ("value", pa.string()),
            ("time", pa.timestamp("us", "UTC")),
            ("size", pa.int64()),
        ]
    )

    def recognizes(self, path: str, comparator: str, keys: Sequence[bytes]) -> bool:
        """By its directory, or by metadata on origins."""
        del comparator
        return path.endswith("Local Storage/leveldb") or any(one.startswith((b"META:", b"METAACCESS:")) for one in keys)

    def decode(self, entry: Entry, context: Any) -> Mapping[str, Any]:
        """Items in two encodings, metadata in protobuf, the version as text."""
        del context
        if entry.key == VERSION:
            value = None if entry.value is None else entry.value.decode("ascii", "backslashreplace")
            return {"kind": "version", "value": value}
        prefix = next((one for one in PREFIXES if entry.key.startswith(one)), None)
        if prefix is None:
            raise UnknownBytesError(f"a key that begins with neither of {', '.join(map(repr, PREFIXES))}")
        rest = entry.key[len(prefix) :]
        if prefix != b"_":
            origin, wrong = text(rest, "utf-8")
            return {"kind": PREFIXES[prefix], "storage_key": origin, "reason": wrong} | columns_of(
                entry.value, _metadata
            )
        stored, end, name = rest.partition(b"\0")
        if not end:
            raise UnknownBytesError("an item without the byte 0 after its origin")
        origin, wrong = text(stored, "utf-8")
        row: dict[str, Any] = {"kind": "item", "storage_key": origin}
        for column, data in (("key", name), ("value", entry.value)):
            if data is not None:
                row[column], found = _string(data)
                wrong = wrong or (found and f"{column}: {found}")
        return row | {"reason": wrong}


def _string(data: bytes) -> tuple[str | None, str | None]:
    """A string after the byte that says how it is encoded, and what is wrong with it."""
    if not data or data[0] not in ENCODINGS:
        return None, f"encoding {data[:1].hex() or 'missing'}, expected {' or '.join(map(str, ENCODINGS))}"
    return text(data[1:], ENCODINGS[data[0]])


def _metadata(value: bytes) -> dict[str, Any]:
    """Time and size, which are fields of a message in protobuf."""
    cursor = Cursor(value)
    fields: dict[int, int] = {}
    while cursor.left:
        tag = cursor.varint(32)
        if tag & 7:
            raise UnknownBytesError(f"field {tag >> 3} of wire type {tag & 7}, expected 0")
        fields[tag >> 3] = cursor.varint(63)
    time = fields.get(TIME)
    return {"time": None if time is None else time - EPOCH, "size": fields.get(SIZE)}

"""The catalog of what Pebble has in remote storage: which object there each table or blob file is."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import NamedTuple

from sawlog.format.damage import Findings
from sawlog.kernels.varints import ByteCursor, read_varint
from sawlog.leveldb.database.layout import (
    CATALOG_BLOB,
    CATALOG_CREATOR,
    CATALOG_DELETED,
    CATALOG_LOCATOR,
    CATALOG_MARKER,
    CATALOG_NAME,
    CATALOG_NEW,
    OBJECT_HASH,
)
from sawlog.leveldb.log.layout import RECORD_COLUMN
from sawlog.leveldb.log.walk import ROWS_SCHEMA, make_log_range
from sawlog.leveldb.options import LogReadOptions
from sawlog.storage import File, Storage


class RemoteObject(NamedTuple):
    """An object in remote storage: the file that says so, what names the storage, and the object's name there."""

    catalog: str
    locator: str
    name: str

    @property
    def is_below(self) -> bool:
        """Whether its name leads to no place outside of a directory."""
        return not posixpath.isabs(self.name) and ".." not in self.name.split("/") and bool(self.name)


def read_remote_objects(settings: Sequence[File], storage: Storage) -> dict[int, RemoteObject]:
    """Return the objects of a database, by the numbers of its files; those before damage in the catalog.

    Args:
        settings: Files of its directory, among them the catalog and what names it.
        storage: Where they are.
    """
    siblings = {file.name: file for file in settings}
    marked = [(int(match[1]), match[2]) for match in map(CATALOG_MARKER.match, siblings) if match]
    catalog = siblings.get(max(marked)[1]) if marked else None
    objects: dict[int, RemoteObject] = {}
    if catalog is None:
        return objects
    log = make_log_range(catalog, LogReadOptions(dialect="leveldb"), storage)
    for batch in log.decode(ROWS_SCHEMA, Findings("skip")):
        for record in batch.column(RECORD_COLUMN).to_pylist():
            for number, change in _iterate_changes(record, catalog.name):
                if change is None:
                    objects.pop(number, None)
                else:
                    objects[number] = change
    return objects


class _Cursor(ByteCursor):
    """Reads numbers and texts of a record, up to where it ends in one of them: then there is an `EOFError`."""

    def make_missing_error(self, label: str, length: int) -> EOFError:
        return EOFError(f"{label} of {length} bytes")

    def take_number(self) -> int:
        number = read_varint(self.data, self.position)
        if number is None:
            raise self.make_missing_error("number", 1)
        value, self.position = number
        return value


def _iterate_changes(record: bytes, catalog: str) -> Iterator[tuple[int, RemoteObject | None]]:
    """Yield the objects that a record adds, and the numbers of those that it deletes, up to what is not known."""
    cursor = _Cursor(record)
    with suppress(EOFError):
        while cursor.remaining:
            tag, number = cursor.take_number(), cursor.take_number()
            if tag == CATALOG_DELETED:
                yield number, None
            elif tag == CATALOG_NEW and (remote := _read_object(cursor, catalog)) is not None:
                yield number, remote
            elif tag != CATALOG_CREATOR:
                return


def _read_object(cursor: _Cursor, catalog: str) -> RemoteObject | None:
    kind, creator, file, _ = (cursor.take_number() for _ in range(4))
    texts = {CATALOG_LOCATOR: "", CATALOG_NAME: ""}
    while tag := cursor.take_number():
        if tag not in texts:
            return None
        texts[tag] = cursor.take(cursor.take_number()).decode("utf-8", "replace")
    hashed = sum(prime * value for prime, value in zip(OBJECT_HASH, (creator, file), strict=True)) & 0xFFFF
    name = texts[CATALOG_NAME] or f"{hashed:04x}-{creator}-{file:06d}.{'blob' if kind == CATALOG_BLOB else 'sst'}"
    return RemoteObject(catalog, texts[CATALOG_LOCATOR], name)

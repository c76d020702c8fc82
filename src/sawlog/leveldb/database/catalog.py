"""The catalog of what Pebble has in remote storage: which object there each table or blob file is."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from sawlog.format.damage import Findings
from sawlog.kernels.varints import read_varint
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


class _Fields:
    """Reads numbers and texts of a record."""

    def __init__(self, record: bytes) -> None:
        self._record = record
        self._position = 0

    def take_number(self) -> int | None:
        """Return the next varint; `None` where there is none."""
        value, self._position = read_varint(self._record, self._position) or (None, self._position)
        return value

    def take_text(self) -> str | None:
        """Return the next text, after its length; `None` where there is none."""
        size = self.take_number()
        if size is None or size > len(self._record) - self._position:
            return None
        self._position += size
        return self._record[self._position - size : self._position].decode("utf-8", "replace")


def _iterate_changes(record: bytes, catalog: str) -> Iterator[tuple[int, RemoteObject | None]]:
    """Yield the objects that a record adds, and the numbers of those that it deletes, up to what is not known."""
    fields = _Fields(record)
    while (tag := fields.take_number()) is not None:
        number = fields.take_number()
        if number is None or tag not in (CATALOG_NEW, CATALOG_DELETED, CATALOG_CREATOR):
            return
        if tag == CATALOG_DELETED:
            yield number, None
        elif tag == CATALOG_NEW:
            remote = _make_object(fields, catalog)
            if remote is None:
                return
            yield number, remote


def _make_object(fields: _Fields, catalog: str) -> RemoteObject | None:
    kind, creator, file, _ = (fields.take_number() for _ in range(4))
    if kind is None or creator is None or file is None:
        return None
    texts = {CATALOG_LOCATOR: "", CATALOG_NAME: ""}
    while tag := fields.take_number():
        text = fields.take_text()
        if tag not in texts or text is None:
            return None
        texts[tag] = text
    if tag is None:
        return None
    hashed = sum(prime * value for prime, value in zip(OBJECT_HASH, (creator, file), strict=True)) & 0xFFFF
    name = texts[CATALOG_NAME] or f"{hashed:04x}-{creator}-{file:06d}.{'blob' if kind == CATALOG_BLOB else 'sst'}"
    return RemoteObject(catalog, texts[CATALOG_LOCATOR], name)

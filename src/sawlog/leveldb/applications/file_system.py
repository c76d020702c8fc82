"""View of Chromium's File System: the directories of sites, and the files in them, also those private to a site.

See `sandbox_origin_database.cc` and `sandbox_directory_database.cc` in Chromium's source.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar

import pyarrow as pa

from sawlog.leveldb.applications.view import (
    ApplicationView,
    Cursor,
    Entry,
    Home,
    UnknownBytesError,
    columns_of,
    integer_of,
    microseconds,
    row_of,
    text,
)

_STORAGES = {"t": "temporary", "p": "persistent", "s": "syncable"}
"""Directories that hold the files of a site, and the names of such storage; files private to a site are temporary."""
_PLACE = re.compile(r"(?:^|/)([^/]*)/([tps])/Paths$")
"""The end of the path of a database of files: the directory of its site, and that of the kind of storage."""
_ORIGIN = b"ORIGIN:"
CHILD = b"CHILD_OF:"
_COUNTERS = {b"LAST_PATH": "last_directory", b"LAST_FILE_ID": "last_file_id", b"LAST_INTEGER": "last_data_file"}
_MOST_PATH = 4096
"""Characters of a path; longer ones, and those of directories that are in themselves, are not made."""


@dataclass
class Files:
    """Files and directories by their ID, as they were last written.

    Attributes:
        columns: What each row of the database has of where it is.
        rows: Columns of the files.
    """

    columns: dict[str, Any]
    rows: dict[int, dict[str, Any]] = field(default_factory=dict)

    def path_of(self, parent: int, name: str) -> str:
        """The path of what has a name in a directory.

        Raises:
            UnknownBytesError: When a directory on the way is not known, or the path does not end.
        """
        names, length = [name], len(name)
        while parent:
            row = self.rows.get(parent)
            if row is None:
                raise UnknownBytesError(f"path: there is no directory {parent}")
            names.append(row["name"])
            length += len(row["name"]) + 1
            parent = row["parent_id"]
            if length > _MOST_PATH:
                raise UnknownBytesError(f"path: more than {_MOST_PATH} characters, or a directory is in itself")
        return "/" + "/".join(reversed(names))

    def with_path(self, row: dict[str, Any], place: Mapping[str, Any]) -> dict[str, Any]:
        """Return a row with the path of a place, which has a parent and a name if it is known."""
        if "name" not in place:
            return row
        try:
            return {**row, "path": self.path_of(place["parent_id"], place["name"])}
        except UnknownBytesError as unknown:
            return {**row, "reason": row.get("reason") or str(unknown)}


class FileSystem(ApplicationView):
    """View of the files of sites: a row per site, file, directory, and name in a directory."""

    title = "Chromium's File System: kind, origin, directory, path, name, data_path, time of sites' files"
    columns: ClassVar = pa.schema(
        [
            ("kind", pa.string()),
            ("origin", pa.string()),
            ("directory", pa.string()),
            ("storage", pa.string()),
            ("path", pa.string()),
            ("name", pa.string()),
            ("file_id", pa.int64()),
            ("parent_id", pa.int64()),
            ("data_path", pa.string()),
            ("time", pa.timestamp("us", "UTC")),
            ("number", pa.int64()),
        ]
    )
    names: ClassVar = (b"0", b":")

    def recognizes(self, path: str, comparator: str, keys: Sequence[bytes]) -> bool:
        """By its directories, or by its keys."""
        del comparator
        named = path.endswith("File System/Origins") or _PLACE.search(path) is not None
        return named or any(key.startswith((_ORIGIN, CHILD)) for key in keys)

    def context(self, entries: Iterable[Entry], home: Home) -> Files:
        """The files by their IDs, newest first, and where the database is."""
        place = _PLACE.search(home.path)
        files = Files({"directory": place[1], "storage": _STORAGES[place[2]]} if place else {})
        for entry in entries:
            try:
                number = integer_of(entry.key)
                if entry.value is not None and number not in files.rows:
                    files.rows[number] = _file(entry.value)
            except UnknownBytesError:
                continue  # which its own row says
        return files

    def decode(self, entry: Entry, context: Files) -> Mapping[str, Any]:
        """Sites in the one database, files and the names in directories in the others."""
        key, value, _ = entry
        if key.startswith(_ORIGIN):
            origin, wrong = text(key[len(_ORIGIN) :], "utf-8")
            return row_of({"kind": "origin", "origin": origin}, wrong, columns_of(value, _directory))
        if key in _COUNTERS:
            return {**context.columns, "kind": _COUNTERS[key], **columns_of(value, partial(_number, "number"))}
        if key.startswith(CHILD):
            digits, colon, stored = key[len(CHILD) :].partition(b":")
            if not colon:
                raise UnknownBytesError("a name in a directory without a colon before it")
            name, wrong = text(stored, "utf-8")
            columns = {**context.columns, "kind": "child", "parent_id": integer_of(digits), "name": name}
            row = row_of(columns, wrong, columns_of(value, partial(_number, "file_id")))
            return context.with_path(row, row)
        number = integer_of(key)
        last = context.rows.get(number, {})
        row = {"kind": last.get("kind", "file"), **columns_of(value, _file), **context.columns, "file_id": number}
        return context.with_path(row, last if value is None else row)


def _number(column: str, value: bytes) -> dict[str, Any]:
    return {column: integer_of(value)}


def _directory(value: bytes) -> dict[str, Any]:
    directory, wrong = text(value, "utf-8")
    return {"directory": directory, "reason": wrong}


def _file(value: bytes) -> dict[str, Any]:
    """Columns of a file or a directory, which has no data: a `base::Pickle`, after the number of its bytes."""
    cursor = Cursor(value)
    if (size := cursor.little(4)) > cursor.left:
        raise UnknownBytesError(f"{size} bytes of a file's record, where {cursor.left} are left")
    parent = _signed(cursor)
    (data_path, wrong), (name, wrong_too) = _padded(cursor), _padded(cursor)
    row: dict[str, Any] = {"kind": "file" if data_path else "directory", "parent_id": parent, "name": name}
    row |= {"data_path": data_path or None, "time": microseconds(_signed(cursor))}
    cursor.reasons += [reason for reason in (wrong, wrong_too) if reason]
    return cursor.explain(row)


def _signed(cursor: Cursor) -> int:
    return int.from_bytes(cursor.take(8, "integer"), "little", signed=True)


def _padded(cursor: Cursor) -> tuple[str, str | None]:
    """A text after its length, up to a multiple of four bytes."""
    length = cursor.little(4)
    stored = cursor.take(length, "text")
    cursor.take(-length % 4, "padding")
    return text(stored, "utf-8")

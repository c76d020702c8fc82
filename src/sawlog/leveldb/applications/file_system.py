"""View of Chromium's File System: the directories of sites, and the files in them, also those private to a site.

See `sandbox_origin_database.cc` and `sandbox_directory_database.cc` in Chromium's source.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cached_property, partial
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from sawlog.arrow import (
    Column,
    call_function,
    compute_offsets,
    make_array,
    make_constant,
    make_fixed_array,
    unpack_booleans,
    view_binary,
)
from sawlog.leveldb.applications import protobuf_kernels as k
from sawlog.leveldb.applications import view
from sawlog.leveldb.applications.protobuf import Messages
from sawlog.leveldb.applications.protobuf_rows import (
    INTEGER,
    KeyPart,
    KeyPattern,
    KeyPatterns,
    KeyRows,
    Lookup,
    MessageRows,
    convert_times,
    find_texts,
    take_texts,
)
from sawlog.leveldb.columns import convert_codes
from sawlog.leveldb.records.kernels import Strings

_STORAGES = {"t": "temporary", "p": "persistent", "s": "syncable"}
"""Directories that hold the files of a site, and the names of such storage; files private to a site are temporary."""
_PLACE = re.compile(r"(?:^|/)([^/]*)/([tps])/Paths$")
"""The end of the path of a database of files: the directory of its site, and that of the kind of storage."""
_ORIGIN = b"ORIGIN:"
_CHILD = b"CHILD_OF:"
_COUNTERS = {b"LAST_PATH": "last_directory", b"LAST_FILE_ID": "last_file_id", b"LAST_INTEGER": "last_data_file"}
_MOST_PATH = 4096
"""Characters of a path; longer ones, and those of directories that are in themselves, are not made."""


_VALUES = MessageRows(Messages(""), {}, has_integers=True)
_KEYS = KeyPatterns(
    [
        KeyPattern(_ORIGIN, "origin", (KeyPart("origin"),), k.PLAIN_TEXT),
        *(KeyPattern(key, kind, (), k.DECIMAL) for key, kind in _COUNTERS.items()),
        KeyPattern(_CHILD, "child", (KeyPart("parent_id", "int", b":"), KeyPart("name")), k.DECIMAL),
        KeyPattern(b"", "file", (KeyPart("file_id", "int"),)),
    ],
    _VALUES,
)
_RECORD_PARTS = (
    KeyPart("size", "size"),
    KeyPart("parent_id", "int64"),
    KeyPart("data_path", "pickled"),
    KeyPart("name", "pickled"),
    KeyPart("time", "int64"),
)
_RECORDS = KeyPatterns([KeyPattern(b"", "", _RECORD_PARTS, group=_KEYS.kinds.index("file"))], _VALUES)
"""Values of files."""
_KINDS = (*_KEYS.kinds, "directory")


class _Files:
    """Files and directories by their ID, as they were last written.

    Attributes:
        columns: What each row of the database has of where it is.

    Args:
        columns: See above.
        numbers: IDs, newest first.
        are_directories: Which of them are such.
        parents: IDs of the directories that they are in.
        names: Names there.
    """

    def __init__(
        self,
        columns: dict[str, Any],
        numbers: NDArray[np.int64],
        are_directories: NDArray[np.bool_],
        parents: NDArray[np.int64],
        names: pa.Array,
    ) -> None:
        self.columns = columns
        self._numbers, places = np.unique(numbers, return_index=True)
        self._are_directories, self._parents = are_directories[places], parents[places]
        self._names = names.take(make_fixed_array(pa.int64(), places))

    @cached_property
    def rows(self) -> dict[int, tuple[str, int, str]]:
        """Kinds, IDs of the directories that they are in, and names there."""
        kinds = ("directory" if is_directory else "file" for is_directory in self._are_directories.tolist())
        rows = zip(kinds, self._parents.tolist(), self._names.to_pylist(), strict=True)
        return dict(zip(self._numbers.tolist(), rows, strict=True))

    @cached_property
    def directories(self) -> Lookup:
        """Paths of directories, which begin with `/` but for that of the first; of those that have one."""
        are_listed = self._are_directories & (self._numbers != 0)
        numbers, parents = self._numbers[are_listed], self._parents[are_listed]
        names = Strings(*view_binary(self._names.filter(make_array(are_listed, pa.bool_()))))
        places = np.searchsorted(numbers, parents)
        are_known = (places < len(numbers)) & (np.append(numbers, 0)[places] == parents)
        above = np.where(are_known, places, np.where(parents == 0, k.ROOT, k.NOWHERE))
        order, starts, lengths = np.empty((3, len(numbers)), np.int64)
        order = order[: k.measure_paths(names, above, _MOST_PATH, order, starts, lengths)]
        ends = np.append(0, compute_offsets(lengths[order]))
        out = Column(np.uint8, int(ends[-1]))
        k.join_paths(names, above, order, starts, lengths, out.values)
        paths = [None, pa.py_buffer(ends), out.take(int(ends[-1]))]
        return Lookup(np.append([0], numbers[order]), pa.Array.from_buffers(pa.large_string(), len(ends) - 1, paths))

    def build_path(self, parent: int, name: str) -> str:
        """Return the path of what has a name in a directory.

        Raises:
            UnknownBytesError: When a directory on the way is not known, or the path does not end.
        """
        names, length = [name], len(name)
        while parent:
            row = self.rows.get(parent)
            if row is None:
                raise view.UnknownBytesError(f"path: there is no directory {parent}")
            _, parent, directory = row
            names.append(directory)
            length += len(directory) + 1
            if length > _MOST_PATH:
                raise view.UnknownBytesError(f"path: more than {_MOST_PATH} characters, or a directory is in itself")
        return "/" + "/".join(reversed(names))

    def with_path(self, row: dict[str, Any], parent: int, name: str) -> dict[str, Any]:
        """Return a row with the path of what has a name in a directory."""
        try:
            return {**row, "path": self.build_path(parent, name)}
        except view.UnknownBytesError as unknown:
            return {**row, "reason": row.get("reason") or str(unknown)}


class FileSystem(view.ApplicationView):
    """View of the files of sites: a row per site, file, directory, and name in a directory."""

    title = "Chromium's File System: kind, origin, directory, path, name, data_path, time of sites' files"
    directory: ClassVar = f"File System/Origins|{_PLACE.pattern}"
    own_key: ClassVar = b"(%b|%b).*" % (_ORIGIN, _CHILD)
    columns: ClassVar = view.make_columns(
        "kind origin directory storage path name file_id:int parent_id:int data_path time:time number:int"
    )
    names: ClassVar = (b"0", b":")

    def make_context(self, entries: view.Entries, home: view.Home) -> _Files:
        """Return the files by their IDs, newest first, and where the database is."""
        place = _PLACE.search(home.path)
        stored = _KEYS.read(entries.keys)
        records = _RECORDS.read(entries.values, stored.patterns)
        is_plain = (records.patterns > 0) & unpack_booleans(call_function("is_valid", entries.values))
        numbers, parents = stored.select_numbers("file_id"), records.select_numbers("parent_id")
        are_directories = ~_are_data(records)
        doubtful, rows = np.flatnonzero(~is_plain), []
        for index, entry in zip(doubtful.tolist(), entries.filter(make_array(~is_plain, pa.bool_())), strict=True):
            try:
                row = {} if entry.value is None else _read_file(entry.value)
                numbers[index] = view.parse_integer(entry.key)
            except view.UnknownBytesError:
                row = {}  # which its own row says
            rows.append(row)
            are_directories[index], parents[index] = row.get("kind") == "directory", row.get("parent_id", 0)
        names = view.put_rows(
            records.make_texts("name"), doubtful, make_array([row.get("name") for row in rows], pa.string())
        )
        are_there = unpack_booleans(call_function("is_valid", names))
        return _Files(
            {"directory": place[1], "storage": _STORAGES[place[2]]} if place else {},
            numbers[are_there],
            are_directories[are_there],
            parents[are_there],
            names.filter(make_array(are_there, pa.bool_())),
        )

    def decode_plain_rows(self, keys: pa.Array, values: pa.Array, context: _Files) -> view.PlainRows:
        """Return all that have a path, or need none."""
        stored = _KEYS.read(keys)
        records = _RECORDS.read(values, stored.patterns)
        rendered = _VALUES.render(values, stored.roots)
        are_files, are_children, are_origins = records.patterns > 0, stored.are_of("child"), stored.are_of("origin")
        parents = np.where(are_files, records.select_numbers("parent_id"), stored.select_numbers("parent_id"))
        have_parents = are_files | are_children
        names = take_texts(records.find_texts("name"), stored.find_texts("name"))
        names_here = find_texts(names, have_parents)
        directories = context.directories.find_texts(parents)
        are_short = (directories.lengths >= 0) & (directories.lengths + names_here.lengths < _MOST_PATH)
        short_names = names_here._replace(lengths=np.where(are_short, names_here.lengths, -1))
        paths = take_texts(directories, short_names, separator=ord("/"))
        numbers = rendered.select_numbers(INTEGER)
        file_ids = np.where(are_children, numbers, stored.select_numbers("file_id"))
        directory, storage = (
            make_constant(context.columns.get(name), pa.string(), len(keys)) for name in ("directory", "storage")
        )
        if are_origins.any():
            directory = call_function("coalesce", rendered.make_values(are_origins), directory)
            nulls = pa.nulls(len(keys), pa.string())
            storage = call_function("if_else", make_array(are_origins, pa.bool_()), nulls, storage)
        data_paths = records.find_texts("data_path")
        columns = {
            "kind": _make_kinds(stored, records),
            "origin": stored.make_texts("origin"),
            "directory": directory,
            "storage": storage,
            "path": paths,
            "name": names,
            "file_id": make_array(file_ids, pa.int64(), ~have_parents),
            "parent_id": make_array(parents, pa.int64(), ~have_parents),
            "data_path": take_texts(data_paths._replace(lengths=np.where(_are_data(records), data_paths.lengths, -1))),
            "time": convert_times(records.select_numbers("time"), records.are_there("time")),
            "number": make_array(numbers, pa.int64(), have_parents | ~rendered.are_there(INTEGER)),
        }
        return view.PlainRows((rendered.is_plain | are_files) & (are_short | ~have_parents), columns)

    def decode(self, entry: view.Entry, context: _Files) -> Mapping[str, Any]:
        """Return sites in the database of all sites, files and the names in directories in the others."""
        key, value, _ = entry
        if key.startswith(_ORIGIN):
            origin, wrong = view.decode_text(key[len(_ORIGIN) :], "utf-8")
            return view.make_row(
                {"kind": "origin", "origin": origin},
                wrong,
                view.read_columns(value, partial(view.read_text, "directory")),
            )
        if key in _COUNTERS:
            return {
                **context.columns,
                "kind": _COUNTERS[key],
                **view.read_columns(value, partial(view.read_integer, "number")),
            }
        if key.startswith(_CHILD):
            digits, colon, stored = key[len(_CHILD) :].partition(b":")
            if not colon:
                raise view.UnknownBytesError("a name in a directory without a colon before it")
            name, wrong = view.decode_text(stored, "utf-8")
            columns = {**context.columns, "kind": "child", "parent_id": view.parse_integer(digits), "name": name}
            row = view.make_row(columns, wrong, view.read_columns(value, partial(view.read_integer, "file_id")))
            return context.with_path(row, row["parent_id"], name)
        number = view.parse_integer(key)
        last = context.rows.get(number)
        kind = "file" if last is None else last[0]
        row = {"kind": kind, **view.read_columns(value, _read_file), **context.columns, "file_id": number}
        if value is None:
            return row if last is None else context.with_path(row, *last[1:])
        return context.with_path(row, row["parent_id"], row["name"]) if "name" in row else row


def _are_data(records: KeyRows) -> NDArray[np.bool_]:
    """Return which records are of files, which have data; those of directories have none."""
    return records.select_lengths("data_path") > 0


def _make_kinds(stored: KeyRows, records: KeyRows) -> pa.Array:
    """Return the column of kinds."""
    are_directories = (records.patterns > 0) & ~_are_data(records)
    return convert_codes(np.where(are_directories, _KINDS.index("directory"), stored.patterns), _KINDS)


def _read_file(value: bytes) -> dict[str, Any]:
    """Return columns of a file or a directory, which has no data: a `base::Pickle`, after the number of its bytes."""
    cursor = view.Cursor(value)
    if (size := cursor.take_unsigned(4)) > cursor.remaining:
        raise view.UnknownBytesError(f"{size} bytes of a file's record, where {cursor.remaining} are left")
    parent = _read_signed(cursor)
    (data_path, wrong), (name, wrong_too) = _read_padded(cursor), _read_padded(cursor)
    row: dict[str, Any] = {"kind": "file" if data_path else "directory", "parent_id": parent, "name": name}
    row |= {"data_path": data_path or None, "time": view.convert_time(_read_signed(cursor))}
    cursor.reasons += [reason for reason in (wrong, wrong_too) if reason]
    return cursor.explain(row)


def _read_signed(cursor: view.Cursor) -> int:
    return int.from_bytes(cursor.take(8, "integer"), "little", signed=True)


def _read_padded(cursor: view.Cursor) -> tuple[str, str | None]:
    """Return a text after its length, up to a multiple of four bytes."""
    length = cursor.take_unsigned(4)
    stored = cursor.take(length, "text")
    cursor.take(-length % 4, "padding")
    return view.decode_text(stored, "utf-8")

"""Trees of locations: which directories are locations, of which table and partition. Section 5."""

from __future__ import annotations

import os
import re
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cache
from typing import Literal

from sawlog.deephaven.table import layout
from sawlog.deephaven.table.location import Location
from sawlog.errors import FormatError, warn
from sawlog.storage import File, Storage, is_remote
from sawlog.storage.directories import find_file_size, raise_unless_gone
from sawlog.storage.names import HIDDEN
from sawlog.storage.workers import map_all

Layout = Literal["auto", "intraday", "historical", "splayed"]

_MAX_NAMES = 8
"""Links through which a directory is looked at; further ones are names of what was found."""
_MAX_LISTINGS = 16
"""Remote directories that are listed at a time."""
_UNSAFE = re.compile(r"[\x00-\x1f\x7f]")


def find_locations(walk: TreeWalk, layout_kind: Layout, storage: Storage) -> list[Location]:
    """Return the locations that files of a walk lie in, by table, column partition and internal partition.

    A directory is listed again: names that begin with an underscore are names of columns.
    Files that were named by themselves stand for their columns.

    Raises:
        FormatError: For a directory whose name would lead out of the tree.
    """
    directories = walk.directories | _by_directory(walk.inner)
    listed = walk.listed | _list([name for name in directories if name not in walk.listed], storage)
    locations = []
    for directory, named_files in directories.items():
        if any(file.name == layout.TABLE_PARQUET for file in listed[directory]):
            warn(f"{directory}: a Parquet location, left out: read it with pyarrow")
            continue
        member_files, is_complete = listed[directory], True
        if all(file.explicit for file in named_files):
            columns = {parts[0] for file in named_files if (parts := layout.split_name(file.name)) is not None}
            is_complete = not columns
            member_files = [
                file
                for file in member_files
                if (parts := layout.split_name(file.name)) is None or not columns or parts[0] in columns
            ]
        location = parse_location(directory, layout_kind).with_files(member_files, has_all_columns=is_complete)
        if location.columns or location.find_other_file(layout.TABLE_SIZE) is not None:
            locations.append(location)
    return _remove_duplicates(sorted(locations, key=_order))


def _by_directory(files: Iterable[File]) -> dict[str, list[File]]:
    """Return files by the directories that they lie in."""
    directories: dict[str, list[File]] = {}
    for file in files:
        directories.setdefault(file.directory or ".", []).append(file)
    return directories


def parse_location(directory: str, layout_kind: Layout) -> Location:
    """Return a location with what its path or URL says of it, which decides on the tree for `auto`, too.

    Raises:
        FormatError: When a name would lead out of the tree, or the path is not of the tree.
    """
    path = directory if is_remote(directory) else os.path.abspath(directory)
    inner = path.partition("://")[2] or path
    parts = [sys.intern(part) for part in re.split(r"[/\\]" if os.sep == "\\" else "/", inner) if part]
    for part in parts[-5:]:
        if part in (".", "..") or _UNSAFE.search(part):
            raise FormatError(f"{directory!r}: {part!r} cannot be the name of a partition or a table")
    padded = [""] * (5 - len(parts)) + parts
    namespace, first, second, column, table = padded[-5:]
    if layout_kind == "intraday" or (layout_kind == "auto" and table and table == first and second):
        _check_parts(directory, "intraday", namespace, first, second, column, table)
        return Location(directory, "intraday", namespace, table, second, column)
    if layout_kind == "historical" or (layout_kind == "auto" and first in layout.PARTITIONS):
        _check_parts(directory, "historical", namespace, first, second, column, table)
        return Location(directory, "historical", namespace, table, second, column)
    above = padded[-2]
    owner = padded[-3] if above == layout.TABLES else None
    return Location(directory, "splayed", owner, table or None)


def _check_parts(directory: str, kind: str, *parts: str) -> None:
    if not all(parts):
        raise FormatError(f"{directory}: too few directories above it for the {kind} layout")


class TreeWalk:
    """A walk down the local directories that the user named, through links that stay inside of them.

    Each directory is listed once. No directory is walked through more than a few links.

    Args:
        roots: What the user named.
        files: The files that were found there: their directories' listings are kept.

    Attributes:
        directories: The files, by directory.
        listed: Those listings: all files, by directory, those with hidden names included.
        inner: Files in linked directories that stay inside.
        escaping: Linked directories that lead out of what was named, and where to.
    """

    def __init__(self, roots: Sequence[str], files: Sequence[File]) -> None:
        self._roots = [os.path.realpath(root) for root in roots if not is_remote(root)]
        self.directories = _by_directory(files)
        self._visits: Counter[str] = Counter()
        self._links: set[str] = set()
        self.listed: dict[str, list[File]] = {}
        self.inner: list[File] = []
        self.escaping: dict[str, str] = {}
        for root in roots:
            if not is_remote(root) and os.path.isdir(root):
                self._walk_down(root.rstrip("/") or root, linked=False)

    def find_escaping_files(self, locations: Iterable[Location]) -> dict[str, str]:
        """Return files of locations that are links out of what was named, and where to."""
        targets: dict[str, str] = {}
        for location in locations:
            links = [file.path for file in location.files if self._is_link(location.directory, file.path)]
            allowed = [*self._roots, os.path.realpath(location.directory)] if links else []
            targets |= {link: to for link in links if not _is_inside(to := os.path.realpath(link), allowed)}
        return targets

    def _is_link(self, directory: str, path: str) -> bool:
        if directory in self.listed:
            return path in self._links
        return not is_remote(path) and os.path.islink(path)

    def _walk_down(self, directory: str, *, linked: bool) -> None:
        """Walk down a directory; in linked ones, note the files too."""
        try:
            with os.scandir(directory) as iterator:
                entries = sorted(iterator, key=lambda entry: entry.name)
        except OSError as error:
            raise_unless_gone(error)
            return
        if linked or directory in self.directories:
            # Spelled as `Storage.list_files` does: files in the current directory have nothing in front of them.
            old = {file.path: file for file in self.directories.get(directory, ()) if not file.explicit}
            paths = {entry.name if directory == "." else entry.path: entry for entry in entries}
            sizes = {path: old[path].size if path in old else find_file_size(entry) for path, entry in paths.items()}
            listed = [old.get(path) or File(path, size, False) for path, size in sizes.items() if size is not None]
            self._links |= {path for path, entry in paths.items() if entry.is_symlink()}
            if linked or all(
                sizes.get(file.path) is not None for file in self.directories[directory]
            ):  # others are objects that a server keeps
                self.listed[directory] = listed
            if linked:
                self.inner += [
                    file for file in listed if not file.name.startswith(HIDDEN) and file.path not in self._links
                ]
        for entry in entries:
            if entry.is_symlink():
                if os.path.isdir(entry.path):
                    self._follow(entry.path, entry.name)
            elif entry.is_dir() and not entry.name.startswith(HIDDEN):
                self._walk_down(entry.path, linked=linked)

    def _follow(self, link: str, name: str) -> None:
        target = os.path.realpath(link)
        if not _is_inside(target, self._roots):
            self.escaping[link] = target
        elif _is_inside(os.path.realpath(os.path.dirname(link)), [target]):
            return  # it is what this walk goes through
        elif not name.startswith(HIDDEN) and self._visits[target] < _MAX_NAMES:
            self._visits[target] += 1
            self._walk_down(link, linked=True)


def _remove_duplicates(locations: Sequence[Location]) -> list[Location]:
    """Return every location once, whatever links lead to it: by the name that says most, then by its own."""
    locations_by_path: dict[str, Location] = {}
    if len(locations) < 2:
        return list(locations)
    find_real_path = cache(os.path.realpath)  # of the directory that many locations are in
    for location in locations:
        real, (above, name) = location.directory, os.path.split(location.directory)
        if not is_remote(real):
            is_plain = name not in ("", ".", "..") and not os.path.islink(real)
            real = os.path.join(find_real_path(above), name) if is_plain else os.path.realpath(real)
        previous = locations_by_path.get(real)
        if previous is None or _rank(location, real) < _rank(previous, real):
            locations_by_path[real] = location
    directories = {location.directory for location in locations_by_path.values()}
    return [location for location in locations if location.directory in directories]


def _rank(location: Location, real: str) -> tuple[bool, bool]:
    return location.layout == "splayed", os.path.abspath(location.directory) != real


def _is_inside(path: str, roots: Iterable[str]) -> bool:
    return any(path == root or path.startswith(root.rstrip(os.sep) + os.sep) for root in roots)


def _list(directories: Sequence[str], storage: Storage) -> dict[str, list[File]]:
    if not any(is_remote(directory) for directory in directories):
        return {directory: storage.list_files(directory) for directory in directories}
    listings = map_all(directories, lambda directory: storage.list_files(directory, fresh=False), _MAX_LISTINGS)
    return dict(zip(directories, listings, strict=True))


def _order(location: Location) -> tuple[str, str, list[tuple[int, int, str]], list[tuple[int, int, str]], str]:
    return (
        location.namespace or "",
        location.table or "",
        _make_natural_key(location.column_partition or ""),
        _make_natural_key(location.internal_partition or ""),
        location.directory,
    )


def _make_natural_key(text: str) -> list[tuple[int, int, str]]:
    """Return a sort key that orders digits by value."""
    return [(0, int(part), "") if part.isdecimal() else (1, 0, part) for part in re.split(r"(\d+)", text) if part]

"""Trees of locations: which directories are locations, of which table and partition. Section 5."""

from __future__ import annotations

import os
import posixpath
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from sawlog.deephaven_table import layout
from sawlog.deephaven_table.location import Location
from sawlog.errors import FormatError, warn
from sawlog.names import hidden
from sawlog.storage import File, is_remote

if TYPE_CHECKING:
    from sawlog.storage import Storage

Layout = Literal["auto", "intraday", "historical", "splayed"]

_MAX_NAMES = 8
"""Links through which a directory is looked at; further ones are names of what was found."""
_LISTERS = 16
"""Remote directories that are listed at a time."""
_UNSAFE = re.compile(r"[\x00-\x1f\x7f]")


def find_locations(files: Sequence[File], wanted: Layout, storage: Storage) -> list[Location]:
    """The locations that files lie in, by table, column partition and internal partition.

    A directory is listed again: its files may have grown, and names that begin with an underscore are names of columns.
    Files that were named by themselves stand for their columns.

    Raises:
        FormatError: For a directory whose name would lead out of the tree.
    """
    directories: dict[str, list[File]] = {}
    for file in files:
        directories.setdefault(posixpath.dirname(file.path) or ".", []).append(file)
    listed = _list(list(directories), storage)
    locations = []
    for directory, found in directories.items():
        if any(file.name == layout.TABLE_PARQUET for file in listed[directory]):
            warn(f"{directory}: a Parquet location, left out: read it with pyarrow")
            continue
        chosen = listed[directory]
        if all(file.explicit for file in found):
            columns = {parts[0] for file in found if (parts := layout.split_name(file.name)) is not None}
            chosen = [
                file
                for file in chosen
                if (parts := layout.split_name(file.name)) is None or not columns or parts[0] in columns
            ]
        location = place(directory, wanted).with_files(chosen)
        if location.columns or location.other(layout.TABLE_SIZE) is not None:
            locations.append(location)
    return sorted(locations, key=_order)


def place(directory: str, wanted: Layout) -> Location:
    """What the path of a location says of it.

    Args:
        directory: Path or URL of the location.
        wanted: The tree it is in; `auto` decides by the path.

    Raises:
        FormatError: When a name would lead out of the tree, or the path is not of the tree.
    """
    path = directory if is_remote(directory) else os.path.abspath(directory)
    inner = path.partition("://")[2] or path
    parts = [part for part in re.split(r"[/\\]" if os.sep == "\\" else "/", inner) if part]
    for part in parts[-5:]:
        if part in (".", "..") or _UNSAFE.search(part):
            raise FormatError(f"{directory!r}: {part!r} cannot be the name of a partition or a table")
    padded = [""] * (5 - len(parts)) + parts
    namespace, first, second, column, table = padded[-5:]
    if wanted == "intraday" or (wanted == "auto" and table and table == first and second):
        _complete(directory, "intraday", namespace, first, second, column, table)
        return Location(directory, "intraday", namespace, table, second, column)
    if wanted == "historical" or (wanted == "auto" and first in layout.PARTITIONS):
        _complete(directory, "historical", namespace, first, second, column, table)
        return Location(directory, "historical", namespace, table, second, column)
    above = padded[-2]
    owner = padded[-3] if above == layout.TABLES else None
    return Location(directory, "splayed", owner, table or None)


def _complete(directory: str, kind: str, *parts: str) -> None:
    if not all(parts):
        raise FormatError(f"{directory}: too few directories above it for the {kind} layout")


@dataclass(frozen=True, slots=True)
class Links:
    """Links in what was named, of local files and directories.

    Attributes:
        escaping: Those that lead out of it, and where to.
        inner: Files in linked directories that stay inside.
    """

    escaping: dict[str, str]
    inner: tuple[File, ...]


def find_links(roots: Sequence[str]) -> Links:
    """Linked directories below what the user named: followed where they stay inside of it.

    Args:
        roots: What the user named.
    """
    walk = _LinkWalk([os.path.realpath(root) for root in roots if not is_remote(root)])
    for root in roots:
        if not is_remote(root) and os.path.isdir(root):
            walk.down(root, linked=False)
    return Links(walk.escaping, tuple(walk.inner.values()))


class _LinkWalk:
    """A walk down directories, through the links in them. No directory is walked through more than a few links.

    Args:
        roots: Real paths that links may lead into.
    """

    def __init__(self, roots: Sequence[str]) -> None:
        self._roots = roots
        self._visits: Counter[str] = Counter()
        self.escaping: dict[str, str] = {}
        self.inner: dict[str, File] = {}

    def down(self, directory: str, *, linked: bool) -> None:
        """Walk down a directory; in linked ones, note the files too."""
        with os.scandir(directory) as found:
            entries = sorted(found, key=lambda entry: entry.name)
        for entry in entries:
            if not entry.is_dir():
                if linked and not hidden(entry.name) and entry.is_file() and not entry.is_symlink():
                    self.inner[entry.path] = File(entry.path, entry.stat().st_size, explicit=False)
            elif entry.is_symlink():
                self._follow(entry.path, entry.name)
            elif not hidden(entry.name):
                self.down(entry.path, linked=linked)

    def _follow(self, link: str, name: str) -> None:
        target = os.path.realpath(link)
        if not _inside(target, self._roots):
            self.escaping[link] = target
        elif _inside(os.path.realpath(os.path.dirname(link)), [target]):
            return  # it is what this walk goes through
        elif not hidden(name) and self._visits[target] < _MAX_NAMES:
            self._visits[target] += 1
            self.down(link, linked=True)


def distinct(locations: Iterable[Location]) -> list[Location]:
    """Every location once, whatever links lead to it: by the name that says most, then by its own."""
    found: dict[str, Location] = {}
    for location in locations:
        real = location.directory if is_remote(location.directory) else os.path.realpath(location.directory)
        other = found.get(real)
        if other is None or _rank(location, real) < _rank(other, real):
            found[real] = location
    return [location for location in locations if location in found.values()]


def _rank(location: Location, real: str) -> tuple[bool, bool]:
    return location.layout == "splayed", os.path.abspath(location.directory) != real


def escaping_files(locations: Iterable[Location], roots: Sequence[str]) -> dict[str, str]:
    """Files that are links out of what was named, and where to."""
    real = [os.path.realpath(root) for root in roots if not is_remote(root)]
    found = {}
    for location in locations:
        if is_remote(location.directory):
            continue
        allowed = [*real, os.path.realpath(location.directory)]
        for file in location.files:
            if os.path.islink(file.path) and not _inside(target := os.path.realpath(file.path), allowed):
                found[file.path] = target
    return found


def _inside(path: str, roots: Iterable[str]) -> bool:
    return any(path == root or path.startswith(root.rstrip(os.sep) + os.sep) for root in roots)


def _list(directories: Sequence[str], storage: Storage) -> dict[str, list[File]]:
    if not any(is_remote(directory) for directory in directories):
        return {directory: storage.files_in(directory) for directory in directories}
    with ThreadPoolExecutor(_LISTERS) as pool:
        found = pool.map(lambda directory: storage.files_in(directory, anew=False), directories)
        return dict(zip(directories, found, strict=True))


def _order(location: Location) -> tuple[str, str, list[tuple[int, int, str]], list[tuple[int, int, str]], str]:
    return (
        location.namespace or "",
        location.table or "",
        _natural(location.column_partition or ""),
        _natural(location.internal_partition or ""),
        location.directory,
    )


def _natural(text: str) -> list[tuple[int, int, str]]:
    """Sort key that orders digits by value."""
    return [(0, int(part), "") if part.isdecimal() else (1, 0, part) for part in re.split(r"(\d+)", text) if part]

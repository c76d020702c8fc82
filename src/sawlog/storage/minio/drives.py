"""Drives of MinIO, and which of them belong together."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from sawlog.guard import decode_json
from sawlog.storage.directories import File
from sawlog.storage.minio import layout
from sawlog.storage.names import natural_order
from sawlog.storage.sources import Source

_MOST_BYTES = 1 << 20
"""Bytes of a drive's own file at most: its ids of a thousand drives have 40 KB."""


class RawFiles(Protocol):
    """Files as they are on the drives."""

    def open_raw(self, path: str) -> Source:
        """Open a file."""
        ...

    def size_of_raw(self, path: str) -> int | None:
        """Bytes of a file; `None` where there is none."""
        ...

    def files_below(self, directory: str) -> list[File]:
        """Files below a directory, those with hidden names left out; none where it is missing."""
        ...

    def folders_in(self, directory: str) -> list[str]:
        """Names of the directories in a directory; none where it is missing."""
        ...


@dataclass(frozen=True, slots=True)
class Drive:
    """Drive of MinIO.

    Attributes:
        root: Where it is.
        deployment: Id of the servers and drives that it belongs to.
        count: How many drives these have.
    """

    root: str
    deployment: str
    count: int


class Drives:
    """Drives that were found, and those that belong to them.

    Attributes:
        places: All drives of a deployment that are there, by the first of them, which its objects are named by.
    """

    def __init__(self, places: dict[str, tuple[str, ...]] | None = None) -> None:
        self.places = dict(places or {})
        self._drives: dict[str, Drive | None] = {}

    def above(self, folder: str, raw: RawFiles) -> Drive | None:
        """The drive that a directory is in; `None` where there is none."""
        for root in directories_above(folder):
            if (drive := self._drive(root, raw)) is not None:
                return drive
        return None

    def first(self, drive: Drive, named: Sequence[str], raw: RawFiles) -> str:
        """The drive by which the objects of a drive are named: the first of its deployment that the user named."""
        for first, members in self.places.items():
            if drive.root in members:
                return first
        roots = {peer.root for peer in self._drives.values() if peer and peer.deployment == drive.deployment}
        if drive.count > 1:
            folders = {above for name in named for above in directories_above(name)}
            for folder in {posixpath.dirname(drive.root), *named}:
                folders |= {posixpath.join(folder, name) for name in raw.folders_in(folder or ".")}
            for folder in folders:
                roots |= self._roots(folder, drive, raw)
        ordered = sorted(roots, key=natural_order)
        first = next(
            (root for root in ordered if any(is_below(root, name) or is_below(name, root) for name in named)),
            drive.root,
        )
        self.places[first] = tuple(ordered)
        return first

    def _roots(self, folder: str, drive: Drive, raw: RawFiles) -> set[str]:
        peer = self._drive(folder, raw)
        return {folder} if peer is not None and peer.deployment == drive.deployment else set()

    def _drive(self, root: str, raw: RawFiles) -> Drive | None:
        if root not in self._drives:
            self._drives[root] = _read_drive(root, raw)
        return self._drives[root]


def _read_drive(root: str, raw: RawFiles) -> Drive | None:
    path = posixpath.join(root, layout.DRIVE)
    size = raw.size_of_raw(path)
    if size is None or size > _MOST_BYTES:
        return None
    source = raw.open_raw(path)
    try:
        document = decode_json(bytes(source.window(0, size)))
    finally:
        source.close()
    if not isinstance(document, dict) or not isinstance(document.get("xl"), dict):
        return None
    sets = document["xl"].get("sets")
    count = sum(len(each) for each in sets if isinstance(each, list)) if isinstance(sets, list) else 1
    return Drive(root, str(document.get("id")), count)


def is_below(path: str, folder: str) -> bool:
    """Whether a path is a directory, or below it."""
    return path == folder or folder in ("", ".") or path.startswith(f"{folder.rstrip('/')}/")


def directories_above(folder: str) -> Iterator[str]:
    """A directory, and those above it; not the store that a remote one is in."""
    scheme, mark, path = folder.rpartition("://")
    while path.strip("/"):
        yield scheme + mark + path
        path = posixpath.dirname(path)
    if not mark:
        yield path

"""Drives of MinIO, and which of them belong together."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from sawlog.guard import decode_json
from sawlog.storage.directories import File
from sawlog.storage.minio import layout
from sawlog.storage.names import make_natural_key
from sawlog.storage.sources import Source

_MOST_BYTES = 1 << 20
"""Bytes of a drive's own file at most: its ids of a thousand drives have 40 KB."""


class RawFiles(Protocol):
    """Files as they are on the drives."""

    def open_raw(self, path: str) -> Source:
        """Open a file."""
        ...

    def find_raw_size(self, path: str) -> int | None:
        """Return the size of a file; `None` where there is none."""
        ...

    def list_files_below(self, directory: str) -> list[File]:
        """Return files below a directory, those with hidden names left out; none where it is missing."""
        ...

    def list_folders(self, directory: str) -> list[str]:
        """Return names of the directories in a directory; none where it is missing."""
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

    def find_drive(self, folder: str, raw: RawFiles) -> Drive | None:
        """Return the drive that a directory is in; `None` where there is none."""
        for root in walk_upwards(folder):
            if (drive := self._load_drive(root, raw)) is not None:
                return drive
        return None

    def choose_first(self, drive: Drive, named: Sequence[str], raw: RawFiles) -> str:
        """Return the drive that names the objects of a drive: the first of its deployment that the user named."""
        for first, members in self.places.items():
            if drive.root in members:
                return first
        roots = {peer.root for peer in self._drives.values() if peer and peer.deployment == drive.deployment}
        if drive.count > 1:
            folders = {above for name in named for above in walk_upwards(name)}
            for folder in {posixpath.dirname(drive.root), *named}:
                folders |= {posixpath.join(folder, name) for name in raw.list_folders(folder or ".")}
            for folder in folders:
                peer = self._load_drive(folder, raw)
                roots |= {folder} if peer is not None and peer.deployment == drive.deployment else set()
        ordered = sorted(roots, key=make_natural_key)
        first = next(
            (root for root in ordered if any(is_below(root, name) or is_below(name, root) for name in named)),
            drive.root,
        )
        self.places[first] = tuple(ordered)
        return first

    def _load_drive(self, root: str, raw: RawFiles) -> Drive | None:
        if root not in self._drives:
            self._drives[root] = _read_drive(root, raw)
        return self._drives[root]


def _read_drive(root: str, raw: RawFiles) -> Drive | None:
    path = posixpath.join(root, layout.DRIVE)
    size = raw.find_raw_size(path)
    if size is None or size > _MOST_BYTES:
        return None
    source = raw.open_raw(path)
    try:
        document = decode_json(bytes(source.read_window(0, size)))
    finally:
        source.close()
    if not isinstance(document, dict) or not isinstance(document.get("xl"), dict):
        return None
    sets = document["xl"].get("sets")
    count = sum(len(drive_set) for drive_set in sets if isinstance(drive_set, list)) if isinstance(sets, list) else 1
    return Drive(root, str(document.get("id")), count)


def is_below(path: str, folder: str) -> bool:
    """Return whether a path is a directory, or below it."""
    return path == folder or folder in ("", ".") or path.startswith(f"{folder.rstrip('/')}/")


def walk_upwards(folder: str) -> Iterator[str]:
    """Yield a directory, and those above it; not the store that a remote one is in."""
    scheme, mark, path = folder.rpartition("://")
    while path.strip("/"):
        yield scheme + mark + path
        path = posixpath.dirname(path)
    if not mark:
        yield path

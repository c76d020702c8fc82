"""Listing of a stream's files, again and again: only what may have changed is looked at."""

from __future__ import annotations

import contextlib
import os
import stat
import time
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass, field
from typing import Any

from sawlog.storage import File, Storage, is_remote
from sawlog.storage.directories import raise_unless_gone
from sawlog.storage.index import STABLE_SECONDS
from sawlog.storage.names import HIDDEN, is_hidden_directory

SWEEP_SECONDS = 30.0
"""Seconds between looks at files that are finished."""


@dataclass(frozen=True, slots=True)
class FileSnapshot:
    """A file as it was last seen.

    Attributes:
        file: Path and size.
        stamp: Changes whenever the file does, as far as the storage shows.
        changed: When it was last written to, in seconds since the epoch; where unknown, when that was noticed.
        first: Number of the listing that found it.
    """

    file: File
    stamp: tuple[Any, ...]
    changed: float
    first: int

    @property
    def version(self) -> str:
        """Stamp that shows that the file may have been rewritten."""
        return self.file.version or "/".join(map(str, self.stamp[1:]))

    @property
    def inode(self) -> Any:
        """Inode, which stays when a local file is renamed; `None` for a remote one."""
        return self.stamp[2] if len(self.stamp) > 2 else None


@dataclass(slots=True)
class _Directory:
    modified: int
    files: list[str]
    directories: list[str]
    stable: bool


@dataclass
class Listing:
    """The files below some paths.

    Attributes:
        files: By name, as last seen.
        number: How often was looked.
    """

    paths: Sequence[str]
    storage: Storage
    name: Callable[[str], str]
    files: dict[str, FileSnapshot] = field(default_factory=dict)
    number: int = 0
    _directories: dict[str, _Directory] = field(default_factory=dict)
    _swept: float = 0.0

    @property
    def remote(self) -> bool:
        """Whether every look costs requests."""
        return any(is_remote(path) for path in self.paths)

    def refresh(self, finished: Container[str]) -> dict[str, FileSnapshot]:
        """Look again.

        Args:
            finished: Names of files that are looked at only now and then.
        """
        self.number += 1
        if all(not is_remote(path) and os.path.isdir(path) for path in self.paths):
            self._look(finished)
        else:
            files = {self.name(file.path): file for file in find_all(self.storage, self.paths)}
            self.files = {name: self._take_snapshot(name, file, self._stamp(file)) for name, file in files.items()}
        return self.files

    def _look(self, finished: Container[str]) -> None:
        now = time.monotonic()
        is_sweep = now - self._swept > SWEEP_SECONDS
        if is_sweep:
            self._swept = now
        entries: dict[str, FileSnapshot] = {}
        is_chosen = self.storage.file_filter
        waiting = [(path, path) for path in self.paths]
        while waiting:
            root, path = waiting.pop()
            directory = self._read_directory(path)
            waiting += [(root, inner) for inner in directory.directories]
            for entry in directory.files:
                name = self.name(entry)
                previous = self.files.get(name)
                if previous is not None and previous.file.path == entry and not is_sweep and name in finished:
                    entries[name] = previous
                    continue
                try:
                    status = os.stat(entry)
                except OSError as error:
                    raise_unless_gone(error)
                    directory.stable = False
                    continue
                if not stat.S_ISREG(status.st_mode):
                    continue
                file = File(entry, status.st_size, explicit=False, modified=status.st_mtime, changed=status.st_ctime)
                if is_chosen is None or is_chosen(root, file):
                    stamp = (status.st_size, status.st_mtime_ns, status.st_ino)
                    entries[name] = self._take_snapshot(name, file, stamp)
        self.files = entries

    def _read_directory(self, path: str) -> _Directory:
        try:
            modified = os.stat(path).st_mtime_ns
            previous = self._directories.get(path)
            if previous is not None and previous.stable and previous.modified == modified:
                return previous
            start = time.time()
            with os.scandir(path) as iterator:
                entries = list(iterator)
        except OSError as error:
            raise_unless_gone(error)
            return _Directory(0, [], [], stable=False)
        files: list[str] = []
        directories: list[str] = []
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                directories += [] if is_hidden_directory(entry.name) else [entry.path]
            elif not entry.name.startswith(HIDDEN):
                files.append(entry.path)
        stable = start - modified / 1e9 > STABLE_SECONDS
        self._directories[path] = _Directory(modified, files, directories, stable)
        return self._directories[path]

    def _stamp(self, file: File) -> tuple[Any, ...]:
        """Return the stamp of a file; remote files and what is in memory have no inode."""
        if is_remote(file.path) or file.path in self.storage.inputs.resources:
            return (file.size, file.version)
        try:
            status = os.stat(file.path)
        except FileNotFoundError:  # it was deleted since it was listed
            return (file.size, file.version)
        return (file.size, status.st_mtime_ns, status.st_ino)

    def _take_snapshot(self, name: str, file: File, stamp: tuple[Any, ...]) -> FileSnapshot:
        previous = self.files.get(name)
        if previous is not None and previous.stamp == stamp and previous.file.path == file.path:
            return previous
        changed = stamp[1] / 1e9 if len(stamp) > 2 else time.time()
        return FileSnapshot(file, stamp, changed, previous.first if previous is not None else self.number)


def find_all(storage: Storage, paths: Sequence[str]) -> list[File]:
    """Return the files that are there.

    A path that is missing may come: a directory that is not made, or not mounted, yet.
    """
    files: dict[str, File] = {}
    for path in paths:
        with contextlib.suppress(FileNotFoundError):
            files |= {file.path: file for file in storage.find(path)}
    return list(files.values())

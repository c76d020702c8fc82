"""Files of a database: those in its directory, and those elsewhere, where its OPTIONS file or the caller says."""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from sawlog.leveldb.database.catalog import RemoteObject, read_remote_objects
from sawlog.leveldb.database.layout import LOG_NAME, OPTIONS_BYTES, SECONDARY_DIR, SHARED_NAME, TWO_PHASES, WAL_DIR
from sawlog.leveldb.log.layout import OPTIONS_NAME
from sawlog.leveldb.options import DatabaseReadOptions
from sawlog.storage import File, Storage
from sawlog.storage.names import is_remote

if TYPE_CHECKING:
    from sawlog.leveldb.database.manifest import DatabaseMetadata

_SETTING = re.compile(rf"^\s*({WAL_DIR}|{SECONDARY_DIR})=(.+?)\s*$", re.MULTILINE)
_TWO_PHASES = re.compile(rf"^\s*{TWO_PHASES}=(\w+)\s*$".encode(), re.MULTILINE)
_ESCAPED = re.compile(r"\\(.)")
"""RocksDB's, for what has a meaning in OPTIONS files."""
_MAX_COMMON_PARTS = 4
"""So many of the last parts of a directory's path may be the same where a copy is."""


class Absent(NamedTuple):
    """A file that a database needs and that is not there, or the directory of some, and what to do about it."""

    path: str
    detail: str


@dataclass(slots=True)
class StoredPlace:
    """The files of a database, by number.

    Attributes:
        tables: Its tables, alive or not.
        logs: Its logs likewise, each with its parts: Pebble writes a log in parts to two directories.
        blobs: Its blob files likewise.
        elsewhere: Those of all of them that are not in its directory.
        absent: Directories that have more of them and are not there.
        objects: What Pebble has in remote storage.
    """

    tables: dict[int, File] = field(default_factory=dict)
    logs: dict[int, dict[int, File]] = field(default_factory=dict)
    blobs: dict[int, File] = field(default_factory=dict)
    elsewhere: list[File] = field(default_factory=list)
    absent: list[Absent] = field(default_factory=list)
    objects: dict[int, RemoteObject] = field(default_factory=dict)

    def list_parts(self, number: int) -> list[File]:
        """Return the parts of a log, in order."""
        return [file for _, file in sorted(self.logs.get(number, {}).items())]

    def add_logs(self, files: Iterable[File]) -> list[File]:
        """Take in the logs among files; return those that were taken in."""
        return [file for file in files if self._add_log(file)]

    def _add_log(self, file: File) -> bool:
        name = LOG_NAME.match(file.name)
        return name is not None and self.logs.setdefault(int(name[1]), {}).setdefault(int(name[2] or 0), file) is file

    def add_tables(self, files: Iterable[File]) -> list[File]:
        """Take in the tables and blob files among files; return those that were taken in."""
        added = []
        for file in files:
            if name := SHARED_NAME.match(file.name):
                into = self.blobs if name[2] == "blob" else self.tables
                added += [file] if into.setdefault(int(name[1]), file) is file else []
        return added


def find_files(
    files: Sequence[File],
    metadata: DatabaseMetadata,
    oldest: int,
    options: DatabaseReadOptions,
    storage: Storage,
    shared: Sequence[File],
) -> StoredPlace:
    """Return the files of a database, wherever they are.

    Args:
        files: Those in its directory.
        metadata: What its directory says.
        oldest: The number of the oldest log that is alive.
        options: Whether the caller says where others are.
        storage: Where all of them are.
        shared: Tables and blob files that a backup shares with others.
    """
    stored, home = StoredPlace(), metadata.directory
    stored.add_logs(files)
    stored.add_tables(files)
    stored.elsewhere += stored.add_tables(shared)
    for path in options.paths:
        stored.elsewhere += stored.add_tables(storage.list_files(path))
    stored.objects = read_remote_objects(metadata.settings, storage)
    _add_objects(stored, home, options, storage)
    if options.wal_dir:
        for path in options.wal_dir:
            stored.elsewhere += stored.add_logs(storage.list_files(path))
        return stored
    has_own_logs = max(stored.logs, default=-1) >= oldest
    for setting, named, source in _list_directories(metadata.settings, storage):
        # A checkpoint has logs of its own, and the OPTIONS of the database that it was taken of.
        if setting == WAL_DIR and has_own_logs:
            continue
        directory = _locate_logs(setting, named, home, oldest, storage)
        if directory is not None:
            stored.elsewhere += stored.add_logs(storage.list_files(directory))
        else:
            detail = (
                f"{source.name} says {setting}={named}, and no such directory with logs is next to the database, or in"
                " it: what the logs there hold is missing; give the directory with wal_dir="
            )
            stored.absent.append(Absent(named, detail))
    return stored


def _add_objects(stored: StoredPlace, home: str, options: DatabaseReadOptions, storage: Storage) -> None:
    """Take in objects of remote storage: from where the caller says, or from a directory that its name leads to."""
    directories: dict[str, list[str]] = {}
    for number, remote in stored.objects.items():
        if not remote.is_below or number in stored.tables or number in stored.blobs:
            continue
        if remote.locator not in directories:
            near = [path for path in _list_candidates(remote.locator, home) if storage.is_directory(path)]
            directories[remote.locator] = [*options.paths, *near]
        for path in (posixpath.join(directory, remote.name) for directory in directories[remote.locator]):
            if storage.exists(path):
                (file,) = storage.find(path)
                (stored.blobs if remote.name.endswith(".blob") else stored.tables)[number] = file
                stored.elsewhere.append(file)
                break


def _list_directories(settings: Sequence[File], storage: Storage) -> Iterator[tuple[str, str, File]]:
    """Yield the directories for logs that the last OPTIONS file names: setting, path, and the file."""
    named = _select_options_files(settings)
    if not named:
        return
    newest = max(named, key=lambda file: int(file.name.rpartition("-")[2]))
    text = storage.read(newest, 0, OPTIONS_BYTES).decode("utf-8", "replace")
    for setting, path in _SETTING.findall(text):
        yield setting, (_ESCAPED.sub(r"\1", path) if "rocksdb_version" in text else path), newest


def _select_options_files(settings: Sequence[File]) -> list[File]:
    return [file for file in settings if OPTIONS_NAME.match(file.name)]


def may_have_transactions(settings: Sequence[File], storage: Storage) -> bool:
    """Return whether logs of RocksDB may have marks of two-phase transactions: unless all OPTIONS files say no."""
    matches = [_TWO_PHASES.search(storage.read(file, 0, OPTIONS_BYTES)) for file in _select_options_files(settings)]
    return not matches or any(match is None or match[1] != b"false" for match in matches)


def _locate_logs(setting: str, named: str, home: str, oldest: int, storage: Storage) -> str | None:
    """Return the path that a directory of logs has now: of several, one with a log that is alive."""
    present = [candidate for candidate in _list_candidates(named, home) if storage.is_directory(candidate)]
    for directory in present:
        logs = [LOG_NAME.match(name) for name in storage.directories.list_names(directory)]
        if any(name is not None and int(name[1]) >= oldest for name in logs):
            return directory
    # The second directory is empty as long as the first one was never slow.
    return present[0] if present and setting == SECONDARY_DIR else None


def _list_candidates(named: str, home: str) -> Iterator[str]:
    """Yield the paths that a directory may have now.

    Next to the database, in it, in the same place relative to the directories above it, or where it always was.
    """
    parts = [part for part in re.split(r"[/\\]+", named) if part not in ("", ".", "..")]
    remote = is_remote(home)
    own_path = home if remote else os.path.abspath(home or ".")
    parent = posixpath.dirname(own_path)
    roots = [(parent, 1), (own_path, 1)]
    for length in range(2, min(len(parts), _MAX_COMMON_PARTS) + 1):
        roots += [(parent, length), (posixpath.dirname(parent), length)]
    for root, length in roots:
        directory = posixpath.join(root, *parts[-length:])
        if directory != own_path and parts:
            yield directory
    if os.path.isabs(named) and not remote and os.path.abspath(named) != own_path:
        yield named

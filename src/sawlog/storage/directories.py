"""Directories near and far, as jobs, logs and vacuums see them: names, moves, deletions, and what is staged there."""

from __future__ import annotations

import contextlib
import errno
import os
import posixpath
import re
import shutil
import stat
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from sawlog.errors import OptionError
from sawlog.storage.commit_log import LOG
from sawlog.storage.names import PathLike, is_remote, normalize
from sawlog.storage.remote import StoreFileSystem, connect, find_modified_time, find_version
from sawlog.storage.sources import make_read_error
from sawlog.storage.staging import (
    STAGED_SUFFIX,
    StagedDirectory,
    begin,
    find_staged_end,
    make_staged_name,
    sync_directory,
)
from sawlog.storage.workers import finish_all

_MAX_UPLOADS = 8
"""Files that are sent at a time, each in parts."""
TIME_STEP_SECONDS = 3.0
"""Seconds after which a change of a directory shows in its times: file systems count them in steps."""


@dataclass(frozen=True, slots=True)
class File:
    """A file that exists.

    Attributes:
        path: Path or URL.
        size: Size in bytes.
        explicit: Whether the user named it, by itself or by a glob; not so for what was found in a directory.
        version: What a remote storage says of its state, as an ETag; empty where it says nothing.
        modified: When it was last written to, in seconds since the epoch; `None` where unknown.
        changed: When a local one was last changed in any way, renaming included, in seconds since the epoch.
        is_tagged: Whether the store of a remote file that was found gives other contents another tag.
        name: The last part of the path.
    """

    path: str
    size: int
    explicit: bool = True
    version: str = field(default="", compare=False)
    modified: float | None = field(default=None, compare=False)
    changed: float | None = field(default=None, compare=False)
    is_tagged: bool = field(default=False, compare=False)
    name: str = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", self.path.rpartition("/")[2])

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle it by its fields, in half of the time of a dataclass: Spark's tasks have many."""
        return File, (self.path, self.size, self.explicit, self.version, self.modified, self.changed, self.is_tagged)

    @property
    def directory(self) -> str:
        """Path of its directory, as `posixpath.dirname` has it; empty for the current one."""
        above, separator, _ = self.path.rpartition("/")
        return above.rstrip("/") or above + separator


def find_files_by_name(directory: str, names: re.Pattern[str]) -> Iterator[File]:
    """Yield the files of a local directory that have such names; it is listed again only if it has changed."""
    for name in find_names(directory, names):
        path = name if directory == "." else os.path.join(directory, name)
        try:
            status = os.stat(path)
        except OSError as error:
            raise_unless_gone(error)
            continue
        if stat.S_ISREG(status.st_mode):
            yield File(path, status.st_size, False)


def raise_unless_gone(error: OSError) -> None:
    """Raise what keeps files from being seen; those that were deleted meanwhile, and links to nothing, are none."""
    if error.errno not in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):
        raise error


def find_file_size(entry: os.DirEntry[str]) -> int | None:
    """Return the bytes of the file that an entry of a directory is, or links to; `None` if it is no file."""
    if entry.is_dir(follow_symlinks=False):
        return None
    try:
        status = entry.stat()
    except OSError as error:
        raise_unless_gone(error)
        return None
    return status.st_size if stat.S_ISREG(status.st_mode) else None


def is_directory_entry(entry: os.DirEntry[str]) -> bool:
    """Return whether an entry of a directory is a directory, or links to one; links in a circle do not."""
    return os.path.isdir(entry.path) if entry.is_symlink() else entry.is_dir()


def find_names(directory: str, names: re.Pattern[str]) -> tuple[str, ...]:
    """Return names in a local directory that a pattern finds; it is listed again only if it has changed."""
    status = os.stat(directory)
    is_old = time.time() - max(status.st_mtime, status.st_ctime) > TIME_STEP_SECONDS
    state = (status.st_dev, status.st_ino, status.st_mtime_ns, status.st_ctime_ns)
    return (_list_names if is_old else _list_names.__wrapped__)(directory, names, state)


@lru_cache(maxsize=256)
def _list_names(directory: str, names: re.Pattern[str], state: tuple[int, ...]) -> tuple[str, ...]:
    """Return names in a directory that a pattern finds, as it is in a state."""
    del state
    return tuple(sorted(filter(names.search, os.listdir(directory))))


def find_directories(directory: PathLike, part: str) -> list[str]:
    """Return names of the directories in a local directory whose names have a part, whatever its case.

    Hidden ones, too.

    A directory that does not change is listed once: thousands of datasets may lie in it, each of which looks there.
    """
    name = normalize(directory)
    try:
        names = find_names(name, re.compile(re.escape(part), re.IGNORECASE))
    except OSError:
        return []
    return [entry for entry in names if os.path.isdir(os.path.join(name, entry))]


@dataclass(frozen=True)
class Directories:
    """Operations on directories of a storage, whatever it has found there before.

    Attributes:
        options: What fsspec needs.
        forget: Called before something moves: what was found at its path is another file then.
    """

    options: Mapping[str, Any] = field(repr=False)
    forget: Callable[[], None] = field(repr=False)

    def list_directories(self, directory: PathLike) -> list[str]:
        """Return names of the directories that lie directly in a directory, hidden ones included.

        None where it is missing.
        """
        name = normalize(directory)
        if is_remote(name):
            fs, inner = self._connect_again(name)
            infos = fs.ls(inner, detail=True) if fs.isdir(inner) else []
            return sorted(
                posixpath.basename(entry["name"].rstrip("/")) for entry in infos if entry["type"] == "directory"
            )
        if not os.path.isdir(name):
            return []
        with os.scandir(name) as entries:
            return sorted(entry.name for entry in entries if is_directory_entry(entry))

    def list_names(self, directory: PathLike) -> list[str]:
        """Return names of everything directly in a directory, hidden ones included; none where it is missing."""
        name = normalize(directory)
        try:
            if not is_remote(name):
                return os.listdir(name)
            fs, inner = self._connect_again(name)
            return [posixpath.basename(path.rstrip("/")) for path in fs.ls(inner, detail=False)]
        except (FileNotFoundError, NotADirectoryError):
            return []

    def resolve_directory(self, directory: PathLike) -> str:
        """Return a directory as its files are spelled; what a link points to."""
        name = normalize(directory).rstrip("/")
        if is_remote(name):
            fs, inner = self._connect(name)
            return str(fs.unstrip_protocol(inner)).rstrip("/")
        return os.path.realpath(name) if os.path.islink(name) else name

    def list_log_directories(self, directory: str) -> list[str]:
        """Return the directories in a directory, itself included, that have a log of jobs."""
        if not is_remote(directory):
            return sorted(parent for parent, names, _ in os.walk(directory) if LOG in names)
        fs, inner = self._connect_again(directory)
        parents = {posixpath.dirname(name) for name in fs.find(inner) if name != inner}
        logs = {posixpath.dirname(parent) for parent in parents if posixpath.basename(parent) == LOG}
        return sorted(fs.unstrip_protocol(log) for log in logs)

    def stat(self, path: str) -> File:
        """Return a file or local directory, as it is now; of size 0 and no time where it is gone."""
        if is_remote(path):
            fs, inner = self._connect_again(path)
            info = fs.info(inner) if fs.exists(inner) else {"size": 0}
            return File(path, int(info["size"]), version=find_version(info), modified=find_modified_time(info))
        try:
            status = os.stat(path, follow_symlinks=False)
        except FileNotFoundError:
            return File(path, 0)
        return File(path, status.st_size, modified=status.st_mtime)

    def read_now(self, path: PathLike) -> bytes:
        """Return all of a small file as it is now, whatever was found before: others may replace it.

        Raises:
            FileNotFoundError: When there is none.
            StorageError: When its store, or the operating system, does not deliver it.
        """
        name = normalize(path)
        if is_remote(name):
            fs, inner = self._connect_again(name)
            return bytes(fs.cat_file(inner))
        with open(name, "rb") as file:
            try:
                return file.read()
            except OSError as error:
                raise make_read_error(name, 0, error) from error

    def create(self, path: PathLike, data: bytes) -> None:
        """Make a small file, whole, where there is none.

        On stores without conditional requests, two that do so at the same moment may both succeed.

        Raises:
            FileExistsError: When there is one.
        """
        name = normalize(path)
        if is_remote(name):
            fs, inner = self._connect(name)
            fs.makedirs(fs._parent(inner), exist_ok=True)
            fs.pipe_file(inner, data, mode="create")
            return
        file = begin(name, "")
        file.write(data)
        staged = file.finish()
        try:
            os.link(staged.temporary, name)
        except FileExistsError:
            raise
        except FileNotFoundError:  # a faster process has deleted it
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), name) from None
        except OSError:  # there are no links on this file system
            if os.path.exists(name):
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), name) from None
            os.replace(staged.temporary, name)
        finally:
            Path(staged.temporary).unlink(missing_ok=True)
        sync_directory(os.path.dirname(name))

    def stage_directory(self, path: PathLike, marker: str = "") -> StagedDirectory:
        """Begin a directory that appears at `path`, with all of its files, when it is published.

        Args:
            path: Where it will be.
            marker: What its temporary name contains, for `staged` to find it by.
        """
        final = normalize(path).rstrip("/")
        if not is_remote(final):
            final = os.path.realpath(final) if os.path.islink(final) else final
            if os.path.exists(final) and not os.path.isdir(final) and not os.path.isfile(final):
                raise OptionError(f"{final}: neither a directory nor a file; it is not replaced")
        temporary = make_staged_name(final, marker)
        if is_remote(final):
            return StagedDirectory(tempfile.mkdtemp(prefix="sawlog-"), temporary, final)
        os.makedirs(os.path.dirname(final) or ".", exist_ok=True)
        os.mkdir(temporary)
        return StagedDirectory(temporary, temporary, final)

    def find_staged_paths(self, directory: PathLike, marker: str) -> list[str]:
        """Return paths staged below a directory, neither published nor discarded: left by writers that were killed.

        Args:
            directory: Where to look, walking down; it may not exist.
            marker: What their paths below it contain, such as the name of a job.
        """
        root = normalize(directory)
        if is_remote(root):
            fs, inner = self._connect_again(root)
            root = fs.unstrip_protocol(inner)
            below = [fs.unstrip_protocol(name) for name in fs.find(inner)]
        else:
            below = [os.path.join(parent, name) for parent, inner, names in os.walk(root) for name in [*inner, *names]]
        relative = (path[len(root) :] for path in below)
        staged = {path[: end + len(STAGED_SUFFIX)]: None for path in relative if (end := find_staged_end(path)) >= 0}
        return [root + path for path in staged if marker in path]

    def list_paths(self, directory: str) -> list[str]:
        """Return the paths of all files in a directory, hidden ones included."""
        if is_remote(directory):
            fs, inner = self._connect_again(directory)
            root = fs.unstrip_protocol(inner)
            return [directory + fs.unstrip_protocol(name)[len(root) :] for name in fs.find(inner)]
        return [os.path.join(parent, name) for parent, _, names in os.walk(directory) for name in names]

    def move(self, source: str, target: str) -> None:
        """Move one file or local directory. On an object store it is copied, and the source stays."""
        self.forget()
        if not is_remote(source):
            os.makedirs(os.path.dirname(target.rstrip("/")), exist_ok=True)
            os.rename(source, target.rstrip("/"))
            return
        (fs, inner), place = self._connect(source), self._connect(target)[1]
        if fs.has_objects:
            fs.cp_file(inner, place)
            return
        fs.makedirs(fs._parent(place), exist_ok=True)
        fs.mv(inner, place)

    def remove(self, path: PathLike) -> None:
        """Delete a file, or a staged directory, if it exists."""
        name = normalize(path)
        if is_remote(name) and name.endswith(STAGED_SUFFIX):
            self.remove_all(name)
            return
        if is_remote(name):
            fs, inner = self._connect(name)
            with contextlib.suppress(FileNotFoundError):
                fs.rm_file(inner)
            return
        if name.endswith(STAGED_SUFFIX) and os.path.isdir(name) and not os.path.islink(name):
            shutil.rmtree(name)
            return
        Path(name).unlink(missing_ok=True)

    def remove_all(self, url: str) -> None:
        """Delete all files below a remote directory, if there are any."""
        fs, inner = self._connect(url.rstrip("/"))
        with contextlib.suppress(FileNotFoundError):
            fs.rm(inner, recursive=True)

    def upload(self, directory: str, url: str) -> None:
        """Copy the files of a local directory to a remote one."""
        fs, inner = self._connect(url)
        fs.makedirs(inner, exist_ok=True)
        finish_all(
            sorted(os.listdir(directory)),
            lambda name: fs.put_file(os.path.join(directory, name), f"{inner}/{name}"),
            _MAX_UPLOADS if fs.has_objects else 1,
        )

    def _connect(self, url: str) -> tuple[StoreFileSystem, str]:
        return connect(url, self.options)

    def _connect_again(self, url: str) -> tuple[StoreFileSystem, str]:
        """Connect without what an earlier listing left in fsspec's cache: others may have written since."""
        fs, path = connect(url, self.options)
        fs.invalidate_cache()
        return fs, path

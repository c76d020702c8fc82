"""Stores of files: the local file system, and those that fsspec reaches."""

from __future__ import annotations

import contextlib
import glob
import itertools
import os
import posixpath
import re
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Protocol

from sawlog.errors import ChangedError, StorageError, without_secrets
from sawlog.storage.commit_log import LOG, list_committed_files
from sawlog.storage.directories import Directories, File, find_file_size, find_files_by_name, raise_unless_gone
from sawlog.storage.flight import Flight
from sawlog.storage.inputs import Inputs
from sawlog.storage.minio import AS_OF, DriveObjects, parse_as_of
from sawlog.storage.minio.drives import is_below
from sawlog.storage.names import HIDDEN, is_hidden_directory, is_remote
from sawlog.storage.remote import ObjectState, StoreFileSystem, StoreObject, connect, find_version
from sawlog.storage.sources import LocalSource, MappedSource, RemoteSource, Source, read_bytes
from sawlog.storage.staging import StagedFile, begin, make_staged_name, resolve_destination, sync_directory
from sawlog.storage.workers import finish_all

REQUESTS = 64
"""Requests for remote files at a time."""
_MAX_UNLISTED = 1000
"""So many paths that no listing has shown are remembered."""

_BITS = 64
"""Of an inode's number, and of a size."""
_MAX_SINGLE_REQUESTS = 2
"""This many files are asked for one by one; more of them by listing what they are in."""


class FileStore(Protocol):
    """Protocol of a store of files, which remembers what it has found. Paths are those of `names.normalize`."""

    def has_found(self, path: str) -> bool:
        """Return whether a file was found at a path."""

    def forget(self) -> None:
        """Forget what was found: what is replaced now is known to be another file."""

    def find(self, path: str, directories: Directories) -> Iterator[tuple[str, Iterable[File]]]:
        """Yield what is at a path, or matches a glob: a file and its path, or a directory and the files below it.

        Args:
            path: The path or glob.
            directories: What reads the logs of jobs, which say what files count.

        Raises:
            FileNotFoundError: When nothing is there.
        """

    def list_raw(self, directory: str) -> list[File]:
        """Return the files below a directory, those with hidden names left out; none where it is missing."""

    def list_files(
        self, directory: str, *, fresh: bool, names: re.Pattern[str] | None, beginnings: Sequence[str]
    ) -> Iterable[File]:
        """Return the files directly in a directory, at least those with such names: see `Storage.list_files`."""

    def is_directory(self, path: str, *, fresh: bool) -> bool:
        """Return whether a path is a directory."""

    def exists(self, path: str, *, fresh: bool) -> bool:
        """Return whether there is a file or directory."""

    def find_size(self, path: str) -> int | None:
        """Return the bytes of a file; `None` where there is none."""

    def open(self, path: str, file: File | None, end: int | None) -> Source:
        """Open a file, which is still what was found, here or by another process: see `Storage.open`."""

    def read(self, path: str, file: File | None, offset: int, length: int | None) -> bytes:
        """Return a range of a file: see `Storage.read`."""

    def stage(self, path: str, marker: str) -> StagedFile:
        """Begin a file that appears at a path when it is published."""

    def rename(self, source: str, target: str, *, directory: bool) -> None:
        """Move a file, or a directory, and make that safe."""


class LocalStore(FileStore):
    """Files of the operating system.

    Args:
        memory_map: Whether files are memory-mapped.
        inputs: What takes in paths that are no files.
    """

    def __init__(self, memory_map: bool, inputs: Inputs) -> None:
        self._memory_map = memory_map
        self._inputs = inputs
        self._inodes: dict[str, int] = {}  # device, number and size of files when they were found, in one number

    def has_found(self, path: str) -> bool:
        return path in self._inodes

    def forget(self) -> None:
        self._inodes.clear()

    def find(self, path: str, directories: Directories) -> Iterator[tuple[str, Iterable[File]]]:
        if (size := self._inputs.take(path)) is not None:
            yield "", [File(path, size)]
        elif (status := _find_status(path)) is not None and stat.S_ISDIR(status.st_mode):
            yield path, list_committed_files(directories, path, lambda: self._list_unchanged(path))
        elif status is not None:
            yield os.path.dirname(path), [self._make_file(path, status, explicit=True)]
        else:
            matches = [match for match in glob.glob(path, recursive=True) if os.path.exists(match)]
            matches = [match for match in matches if not os.path.basename(match).startswith(HIDDEN)]
            if not matches:
                with contextlib.suppress(FileNotFoundError, NotADirectoryError, ValueError):
                    os.stat(path)  # says what else there is to say, such as who may not look
                raise FileNotFoundError(f"{path}: no such file, directory or glob match")
            for match in matches:
                yield from self.find(match, directories)

    def list_raw(self, directory: str) -> list[File]:
        return list(self._walk(directory, {}, []))

    def list_files(
        self, directory: str, *, fresh: bool, names: re.Pattern[str] | None, beginnings: Sequence[str]
    ) -> Iterable[File]:
        del fresh, beginnings
        if names is not None:
            return find_files_by_name(directory, names)
        # Paths are spelled as `find` spells them: files in the current directory have none in front of them.
        with os.scandir(directory) as entries:
            return [
                File(os.path.join(directory, entry.name) if directory != "." else entry.name, size, False)
                for entry in entries
                if (size := find_file_size(entry)) is not None
            ]

    def is_directory(self, path: str, *, fresh: bool) -> bool:
        del fresh
        return os.path.isdir(path)

    def exists(self, path: str, *, fresh: bool) -> bool:
        del fresh
        return os.path.exists(path)

    def find_size(self, path: str) -> int | None:
        if path in self._inodes:
            return self._inodes[path] % (1 << _BITS)
        status = _find_status(path)
        return status.st_size if status is not None and stat.S_ISREG(status.st_mode) else None

    def open(self, path: str, file: File | None, end: int | None) -> Source:
        del file
        descriptor = os.open(path, os.O_RDONLY)
        try:
            self._check_same(path, descriptor)
            return MappedSource(descriptor, path) if self._memory_map else LocalSource(descriptor, path, end)
        except BaseException:
            os.close(descriptor)
            raise

    def read(self, path: str, file: File | None, offset: int, length: int | None) -> bytes:
        del file
        descriptor = os.open(path, os.O_RDONLY)
        try:
            self._check_same(path, descriptor)
            return read_bytes(descriptor, path, offset, length)
        finally:
            os.close(descriptor)

    def stage(self, path: str, marker: str) -> StagedFile:
        return begin(resolve_destination(path), marker)

    def rename(self, source: str, target: str, *, directory: bool) -> None:
        del directory
        os.replace(source, target)
        sync_directory(os.path.dirname(target) or ".")

    def _list_unchanged(self, root: str) -> tuple[list[File], list[str]]:
        """Return files of a directory, none of which a job has replaced meanwhile, and what in it has a log of jobs."""
        while True:
            walked: dict[str, int] = {}
            logs: list[str] = []
            files = list(self._walk(root, walked, logs))
            with contextlib.suppress(FileNotFoundError, NotADirectoryError):
                if all(_identify_directory(name) == identity for name, identity in walked.items()):
                    return files, logs

    def _walk(self, root: str, walked: dict[str, int], logs: list[str]) -> Iterator[File]:
        waiting = [root]
        while waiting:
            directory = waiting.pop()
            inner: list[str] = []
            try:
                walked[directory] = _identify_directory(directory)
                with os.scandir(directory) as entries:
                    for entry in entries:
                        if entry.is_dir(follow_symlinks=False):
                            inner.append(entry.name)
                        elif not entry.name.startswith(HIDDEN):
                            file = self._find_file(entry.path)
                            if file is not None:
                                yield file
            except OSError as error:
                raise_unless_gone(error)
            if LOG in inner:
                logs.append(directory)
            start = directory if directory.endswith("/") else f"{directory}/"
            waiting += [start + name for name in reversed(inner) if not is_hidden_directory(name)]

    def _find_file(self, path: str) -> File | None:
        """Return a file that a walk has found; `None` where it is not one, or not there any more."""
        try:
            status = os.stat(path)
        except OSError as error:
            raise_unless_gone(error)
            return None
        return self._make_file(path, status, explicit=False) if stat.S_ISREG(status.st_mode) else None

    def _make_file(self, path: str, status: os.stat_result, *, explicit: bool) -> File:
        self._inodes[path] = (status.st_dev << _BITS | status.st_ino) << _BITS | status.st_size
        return File(path, status.st_size, explicit, "", status.st_mtime, status.st_ctime)

    def _check_same(self, path: str, descriptor: int) -> None:
        """Return whether an open file is the file that was found."""
        if path not in self._inodes:
            return
        inode, size = divmod(self._inodes[path], 1 << _BITS)
        now = os.fstat(descriptor)
        if now.st_dev << _BITS | now.st_ino != inode:
            raise ChangedError(f"{path}: the file was replaced while it was read; open it again")
        if now.st_size < size:
            raise ChangedError.from_sizes(path, size, now.st_size)


class _Listings:
    """Directories of stores as the last listings had them. A later one may say otherwise.

    Attributes:
        answers: By path that is below none of the listed ones: whether there was something when it was asked for.
        files: The files that lie directly in a directory, by directory.
    """

    def __init__(self) -> None:
        self.answers: dict[str, bool] = {}
        self.files: dict[str, list[File]] = {}
        self._directories: set[str] = set()
        self._roots: set[str] = set()

    def add(self, root: str, files: Mapping[str, list[File]]) -> None:
        """Take in a listing."""
        self.files.update(files)
        self._roots.add(root)
        for directory in files:
            above = directory
            while above not in self._directories and is_below(above, root):
                self._directories.add(above)
                above = posixpath.dirname(above)

    def has_directory(self, path: str) -> bool:
        """Return whether a listed file is below a path."""
        return path.rstrip("/") in self._directories

    def covers(self, path: str) -> bool:
        """Return whether a path is below a listed one: all that is there is known."""
        directory = posixpath.dirname(path.rstrip("/"))
        while directory not in self._roots:
            above = posixpath.dirname(directory)
            if above == directory or not above:
                return False
            directory = above
        return True

    def clear(self) -> None:
        """Forget everything."""
        for answers in (self.answers, self.files, self._directories, self._roots):
            answers.clear()


class RemoteStore(FileStore):
    """Files that fsspec reaches.

    Attributes:
        flight: Bytes that are on their way.

    Args:
        options: What fsspec needs.
        inputs: What takes in files whose server does not say how long they are.
    """

    def __init__(self, options: Mapping[str, Any], inputs: Inputs) -> None:
        self.flight = Flight.of(options)
        self._options = options
        self._inputs = inputs
        self._states: dict[str, ObjectState] = {}
        self._unconfirmed: dict[str, ObjectState] = {}
        self._listings = _Listings()
        self._connections: dict[tuple[int, str], StoreFileSystem] = {}

    def has_found(self, path: str) -> bool:
        return path in self._states

    def forget(self) -> None:
        for cache in (self._states, self._unconfirmed, self._listings):
            cache.clear()
        self.flight.clear()

    def find(self, path: str, directories: Directories) -> Iterator[tuple[str, Iterable[File]]]:
        fs, inner = self._connect_afresh(path)
        self._listings.clear()
        matches = fs.glob(inner) if glob.has_magic(inner) and not fs.exists(inner) else [inner]
        has_any = False
        for match in matches:
            root = fs.unstrip_protocol(match)
            files = list(list_committed_files(directories, root, partial(self._list_objects, fs, match)))
            has_any = has_any or bool(files)
            yield root, files
        if not has_any and not any(fs.isdir(match) for match in matches):
            raise FileNotFoundError(f"{without_secrets(path)}: no such file, directory or glob match")

    def list_raw(self, directory: str) -> list[File]:
        return self._list_objects(*self._connect(directory))[0]

    def list_files(
        self, directory: str, *, fresh: bool, names: re.Pattern[str] | None, beginnings: Sequence[str]
    ) -> Iterable[File]:
        del names
        if not fresh and (files := self._listings.files.get(directory)) is not None:
            return files
        fs, inner = self._connect_afresh(directory)
        if fs.http:
            detail = "HTTP servers do not list directories; name the files"
            raise FileNotFoundError(f"{without_secrets(directory)}: {detail}")
        is_named = bool(beginnings) and fs.has_objects
        entries = fs.find_names(inner, beginnings) if is_named else fs.ls(inner, detail=True)
        return [
            self._remember(fs.unstrip_protocol(entry["name"]), entry, explicit=False)
            for entry in entries
            if entry["type"] == "file"
        ]

    def is_directory(self, path: str, *, fresh: bool) -> bool:
        if not fresh and self._listings.covers(path):
            return self._listings.has_directory(path)
        fs, inner = self._connect_afresh(path)
        return bool(fs.isdir(inner))

    def exists(self, path: str, *, fresh: bool) -> bool:
        if not fresh and self._listings.covers(path):
            return path in self._states or self._listings.has_directory(path)
        answers = self._listings.answers
        if fresh or path not in answers:
            fs, inner = self._connect_afresh(path)
            answers[path] = bool(fs.exists(inner))
        return answers[path]

    def find_size(self, path: str) -> int | None:
        if path in self._states:
            return self._states[path].size
        if self._listings.covers(path):
            return None
        fs, inner = self._connect(path)
        return self._remember(path, fs.info(inner), explicit=False).size if fs.exists(inner) else None

    def open(self, path: str, file: File | None, end: int | None) -> Source:
        return RemoteSource(self.open_object(path, file), self.flight, end)

    def read(self, path: str, file: File | None, offset: int, length: int | None) -> bytes:
        with contextlib.closing(self.open_object(path, file)) as remote:
            stop = remote.state.size if length is None else min(offset + length, remote.state.size)
            return self.flight.read(remote, offset, stop)

    def stage(self, path: str, marker: str) -> StagedFile:
        temporary = make_staged_name(path, marker)
        fs, inner = self._connect(temporary)
        fs.makedirs(fs._parent(inner), exist_ok=True)
        return StagedFile(fs.open(inner, "wb"), temporary, path)

    def rename(self, source: str, target: str, *, directory: bool) -> None:
        fs, inner = self._connect_afresh(source) if directory else self._connect(source)
        target = self._connect(target)[1]
        names = fs.find(inner) if directory else [inner]
        threads = REQUESTS if fs.has_objects else 1
        finish_all(names, lambda name: fs.mv(name, f"{target}{name[len(inner) :]}"), threads)

    def confirm(self) -> None:
        """Ask whether files that were read are still what they were when they were found: see `confirm_files`."""
        if not self._unconfirmed:
            return
        first, names = dict(self._unconfirmed), sorted(self._unconfirmed)
        self._unconfirmed.clear()
        pairs = zip(posixpath.dirname(names[0]).split("/"), posixpath.dirname(names[-1]).split("/"), strict=False)
        common = [part for part, last_part in itertools.takewhile(lambda pair: pair[0] == pair[1], pairs)]
        fs, inner = self._connect_afresh("/".join(common) if len(names) > 1 else names[0])
        for url, state in first.items():
            state.check(self._states.get(url, state), url)  # which a later listing may have changed
        urls = [] if fs.has_objects else list(first)
        now: dict[str, ObjectState] = {}
        if len(urls) > _MAX_SINGLE_REQUESTS and not fs.http:
            now = {fs.unstrip_protocol(name): ObjectState.of(info) for name, info in fs.find(inner).items()}
        for url in urls:
            with contextlib.suppress(FileNotFoundError):  # what is gone since has not been replaced
                if len(urls) <= _MAX_SINGLE_REQUESTS or fs.http:
                    now[url] = ObjectState.of(fs.info(self._connect(url)[1]))
            if url in now:
                first[url].check(now[url], url)

    def open_object(self, url: str, file: File | None = None) -> StoreObject:
        """Return a remote file, as it was when it was found, here or by another process."""
        fs, path = self._connect(url)
        state = self._states.get(url)
        if file is not None and file.is_tagged and fs.has_objects:
            state = ObjectState(file.size, {"etag": file.version.strip('"')}, file.modified)
            self._states.setdefault(url, state)  # a later listing may have found another object
        else:
            if state is None:
                info = fs.info(path)
                if info["size"] is None:
                    raise StorageError(f"{url}: the server does not say how long the file is; download it first")
                state = self._states[url] = ObjectState.of(info)
            if file is not None:
                state.recall_earlier(file.size, file.version, file.modified).check(state, url)
        self._unconfirmed.setdefault(url, state)
        return StoreObject(fs, path, url, state)

    def _connect(self, url: str) -> tuple[StoreFileSystem, str]:
        """Return the file system of a URL, and the path in it; objects are many, so the connection is kept."""
        key = (os.getpid(), url.partition("://")[0])
        connection = self._connections.get(key)
        if connection is not None:
            return connection.resolve_url(url)
        store, path = connect(url, self._options)
        if store.has_objects:
            self._connections[key] = store
        return store, path

    def _connect_afresh(self, url: str) -> tuple[StoreFileSystem, str]:
        """Connect as `_connect` does, without what a listing left in fsspec's cache: others may have written since."""
        fs, path = self._connect(url)
        fs.invalidate_cache()
        return fs, path

    def _remember(self, url: str, info: Mapping[str, Any], *, explicit: bool) -> File:
        """Keep what a listing says, so that no request asks for it again."""
        state = self._states[url] = ObjectState.of(info)
        return File(url, state.size, explicit, find_version(info), state.time, is_tagged=bool(state.tags))

    def _list_objects(self, fs: Any, match: str) -> tuple[list[File], set[str]]:
        """Return the files below a remote path, and the directories below it that have a log of jobs."""
        files: list[File] = []
        logs: set[str] = set()
        listed: dict[str, list[File]] = {}
        fs.invalidate_cache()
        for name, info in fs.list_below(match):
            explicit = name == match
            url = fs.unstrip_protocol(name)
            if info["size"] is None:  # by an HTTP server that makes its answers as it sends them
                with fs.open(name, "rb") as stream:
                    files.append(File(url, self._inputs.hold(url, stream)))
                continue
            file = self._remember(url, info, explicit=explicit)
            if not explicit:
                listed.setdefault(posixpath.dirname(url), []).append(file)
            inner = name[len(match) :].strip("/") if name.startswith(match) else posixpath.relpath(name, match)
            *above, last = inner.split("/")
            if explicit or not (last.startswith(HIDDEN) or any(map(is_hidden_directory, above))):
                files.append(file)
            elif above and above[-1] == LOG:
                logs.add(posixpath.dirname(posixpath.dirname(url)))
        self._listings.add(fs.unstrip_protocol(match), listed)
        return files, logs


class Stores:
    """The stores of a `Storage`, with all that they have found.

    Attributes:
        options: What fsspec needs, without the time as of which objects are read.
        local: Files of the operating system.
        remote: Files that fsspec reaches.
        objects: Objects that servers keep in several files.
        unlisted: Paths that were asked for, and that no listing had shown before; `None`: they are too many.

    Args:
        options: Those of the storage, of which one says as of which time objects are read.
        memory_map: Whether local files are memory-mapped.
        inputs: What is read without being a file at a path.
        objects: Objects that were found before; `None` for none.
    """

    def __init__(
        self, options: Mapping[str, Any], memory_map: bool, inputs: Inputs, objects: DriveObjects | None = None
    ) -> None:
        if objects is None:
            objects = DriveObjects(until=parse_as_of(options[AS_OF]) if AS_OF in options else None)
        self.options = {key: value for key, value in options.items() if key != AS_OF}
        self.objects = objects
        self.local = LocalStore(memory_map, inputs)
        self.remote = RemoteStore(self.options, inputs)
        self.unlisted: set[str] | None = set()

    def choose_store(self, path: str) -> FileStore:
        """Return the store that a path is in."""
        if self.local.has_found(path):
            return self.local
        store = self.remote if is_remote(path) else self.local
        unlisted = self.unlisted  # which other threads may let go of
        if unlisted is not None and not store.has_found(path):
            unlisted.add(path)
            self.unlisted = unlisted if len(unlisted) <= _MAX_UNLISTED else None
        return store

    def forget(self) -> None:
        """Forget what was found, but for the drives that belong together."""
        self.unlisted = set()
        for store in (self.local, self.remote, self.objects):
            store.forget()


def _find_status(path: str) -> os.stat_result | None:
    """Return the status of a local path; `None` where nobody may look, and of what no file can be called."""
    try:
        return os.stat(path)
    except (OSError, ValueError):
        return None


def _identify_directory(path: str) -> int:
    """Return device and inode in a number: walks remember it of each directory, and a status takes a kilobyte."""
    status = os.stat(path)
    return status.st_dev << _BITS | status.st_ino

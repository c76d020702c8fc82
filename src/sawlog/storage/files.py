"""Files: where they are found and how they are published; local ones, and remote ones through fsspec."""

from __future__ import annotations

import contextlib
import errno
import glob
import itertools
import os
import posixpath
import re
import stat
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple, Protocol, TypeVar

from sawlog.errors import ChangedError, StorageError, without_secrets
from sawlog.storage.commit_log import LOG, list_committed
from sawlog.storage.directories import Directories, File, find_files_by_name
from sawlog.storage.flight import AHEAD_BYTES, AHEAD_FILES, Flight, Request
from sawlog.storage.index import Memory
from sawlog.storage.inputs import Inputs
from sawlog.storage.listings import Listings
from sawlog.storage.minio import AS_OF, Objects, StoredObject, parse_as_of
from sawlog.storage.names import HIDDEN, PathLike, is_hidden_directory, is_remote, normalize, sort_files
from sawlog.storage.remote import Remote, State, Store, connect, find_version
from sawlog.storage.sources import LocalSource, MappedSource, RemoteSource, Source, read_bytes
from sawlog.storage.staging import (
    STAGED_SUFFIX,
    Staged,
    StagedFile,
    begin,
    exchange,
    make_staged_name,
    resolve_destination,
    sync_directory,
)
from sawlog.storage.workers import finish_all, map_ordered, wrap_single_step

_REQUESTS = 64
"""Requests for remote files at a time."""

_SINGLY = 2
"""This many files are asked for one by one; more of them by listing what they are in."""

Result = TypeVar("Result")


class Placed(Protocol):
    """Something at a path: a file, or the files of a directory."""

    @property
    def path(self) -> str:
        """The path."""
        ...


AnyPlaced = TypeVar("AnyPlaced", bound=Placed)


class Ranged(Protocol):
    """Protocol of a `sawlog.format.contract.Fragment`."""

    @property
    def scan(self) -> Any:
        """A scan, which has the storage."""
        ...

    @property
    def path(self) -> str:
        """Path of the file."""
        ...

    @property
    def extents(self) -> Iterable[tuple[File | str, int, int]]:
        """Files that it is decoded from, with offsets and lengths."""
        ...


AnyRange = TypeVar("AnyRange", bound=Ranged)


class _Inode(NamedTuple):
    """Identity and size of a local file when it was found: of what `os.stat` says, a quarter of the memory."""

    device: int
    number: int
    size: int


@dataclass(frozen=True)
class Storage:
    """Place where files are found and put. Picklable; holds what fsspec needs to reach remote places.

    Attributes:
        options: What fsspec needs.
        memory_map: Whether local files are memory-mapped: one that is then truncated ends the process.
        inputs: What is read without being a file at a path.
        chosen: Whether a file below a path belongs to it; all of them do by default. Picklable.
        index: What planning has asked of files before; it stays in this process.
    """

    options: Mapping[str, Any] = field(default_factory=dict, repr=False)
    memory_map: bool = False
    inputs: Inputs = field(default_factory=Inputs, repr=False, compare=False)
    chosen: Callable[[str, File], bool] | None = None
    index: Memory | None = field(default=None, repr=False, compare=False)
    _objects: Objects = field(default_factory=Objects, repr=False, compare=False)
    _found: dict[str, _Inode] = field(default_factory=dict, repr=False, compare=False)
    _states: dict[str, State] = field(default_factory=dict, repr=False, compare=False)
    _asked: dict[str, State] = field(default_factory=dict, repr=False, compare=False)
    _listings: Listings = field(default_factory=Listings, repr=False, compare=False)
    _flight: Flight = field(init=False, repr=False, compare=False)
    _connections: dict[tuple[int, str], Store] = field(default_factory=dict, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_flight", Flight.of(self.options))
        if AS_OF in self.options:
            self._objects.until = parse_as_of(self.options[AS_OF])
            object.__setattr__(self, "options", {key: self.options[key] for key in self.options if key != AS_OF})

    def __reduce__(self) -> tuple[Any, ...]:
        return (Storage, (self.options, self.memory_map, self.inputs, self.chosen, None, self._objects))

    def make_fresh(self) -> Storage:
        """The same, with nothing found yet, and without an index: what is opened need not be what was found before."""
        return Storage(
            self.options, self.memory_map, self.inputs, self.chosen, _objects=Objects(until=self._objects.until)
        )

    @property
    def directories(self) -> Directories:
        """Directories, as they are now: what jobs and writers of several files do there."""
        return Directories(self.options, self._forget)

    def find(self, paths: PathLike | Sequence[PathLike]) -> list[File]:
        """All files under paths, directories (walked down) and globs, in natural order (`9.log` before `10.log`).

        Names that begin with a dot or an underscore are left out of directories and globs, but for directories called
        `_metadata`.

        Raises:
            FileNotFoundError: When a path or glob matches nothing.
        """
        patterns = [paths] if isinstance(paths, str | os.PathLike) else list(paths)
        files: dict[str, File] = {}
        self._objects.named.update(normalize(path).rstrip("/") for path in patterns)
        for path in patterns:
            for file in self._list_one(normalize(path)):
                files.setdefault(file.path, file)
        return list(files.values())

    def list_files(
        self,
        directory: PathLike,
        *,
        fresh: bool = True,
        names: re.Pattern[str] | None = None,
        beginnings: Sequence[str] = (),
    ) -> list[File]:
        """Return the files that lie directly in a directory, those with hidden names included, by name.

        Args:
            directory: The directory.
            fresh: Whether a remote one that `find` has walked is listed again: not where it was found just now.
            names: A pattern of the names that are wanted; of local files the others cost nothing, and a directory that
                has not changed is not listed again.
            beginnings: What all of these begin with: an object store is asked for no others.
        """
        name = normalize(directory)
        files = self._list_direct_files(name, fresh, names, beginnings)
        if names is not None:
            files = [file for file in files if names.search(file.name)]
        return sorted({file.path: file for file in files}.values(), key=lambda file: file.path)

    def _list_direct_files(
        self, name: str, fresh: bool, names: re.Pattern[str] | None, beginnings: Sequence[str]
    ) -> list[File]:
        """Return files that lie directly in a directory; of local ones, and objects, at least those with such names."""
        if not fresh and (found := self._listings.list_files(name)) is not None:
            return found
        if is_remote(name):
            fs, inner = self._connect_afresh(name)
            if fs.http:
                raise FileNotFoundError(
                    f"{without_secrets(name)}: HTTP servers do not list directories; name the files"
                )
            is_named = bool(beginnings) and fs.has_objects
            listed = fs.find_names(inner, beginnings) if is_named else fs.ls(inner, detail=True)
            entries = [entry for entry in listed if entry["type"] == "file"]
            files = [self._remember(fs.unstrip_protocol(entry["name"]), entry, explicit=False) for entry in entries]
        elif names is not None and self._objects.is_empty:
            files = list(find_files_by_name(name, names))
        else:
            # Paths are spelled as `find` spells them: files in the current directory have none in front of them.
            with os.scandir(name) as iterator:
                files = [
                    File(os.path.join(name, entry.name) if name != "." else entry.name, entry.stat().st_size, False)
                    for entry in iterator
                    if entry.is_file()
                ]
        if not self._objects.is_empty:
            below = self._objects.unwrap(name, _OnDrives(self).list_files_below(name), _OnDrives(self))
            files = [file for file in (*files, *below) if posixpath.dirname(file.path) == ("" if name == "." else name)]
        return files

    def is_directory(self, path: PathLike, *, fresh: bool = True) -> bool:
        """Return whether the path is a directory (on object stores: a prefix).

        Args:
            path: The path.
            fresh: Whether a store is asked what `find`, or an earlier question, has answered: not where that was now.
        """
        name = normalize(path)
        if self._find_object(name) is not None:
            return False
        if is_remote(name):
            if not fresh and self._listings.covers(name):
                return self._listings.has_directory(name)
            fs, inner = self._connect_afresh(name)
            return bool(fs.isdir(inner))
        return os.path.isdir(name)

    def exists(self, path: PathLike, *, fresh: bool = True) -> bool:
        """Return whether there is a file or directory at the path; arguments are those of `is_directory`."""
        name = normalize(path)
        if self._find_object(name) is not None:
            return True
        if is_remote(name):
            if not fresh and self._listings.covers(name):
                return name in self._states or self._listings.has_directory(name)
            answers = self._listings.answers
            if fresh or name not in answers:
                fs, inner = self._connect_afresh(name)
                answers[name] = bool(fs.exists(inner))
            return answers[name]
        return os.path.exists(name)

    def open(self, path: PathLike | File, end: int | None = None) -> Source:
        """Open one file for reading.

        Args:
            path: The file; what another process has found is still the same if it is given as a `File`.
            end: Nothing past this is read unless a window reaches there.

        Raises:
            ChangedError: When the file is not the one that was found, or has become shorter.
            StorageError: When its store does not answer.
            BitrotError: When it is an object that a server keeps, whose metadata is damaged.
            IncompleteError: When it is one, and files of it are missing.
            UnsupportedError: When it is one that is encrypted or compressed there.
        """
        name = path.path if isinstance(path, File) else normalize(path)
        if name in self.inputs.held:
            return self.inputs.open(name)
        stored = self._find_object(name)
        return self._open(name, path, end) if stored is None else self._objects.open(stored, _OnDrives(self))

    def _open(self, name: str, path: PathLike | File, end: int | None) -> Source:
        """Open a file as it is."""
        if name not in self._found and is_remote(name):
            return RemoteSource(self._make_remote(name, path if isinstance(path, File) else None), self._flight, end)
        descriptor = os.open(name, os.O_RDONLY)
        try:
            self._check_same(name, descriptor)
            return MappedSource(descriptor, name) if self.memory_map else LocalSource(descriptor, name, end)
        except BaseException:
            os.close(descriptor)
            raise

    def confirm(self) -> None:
        """Ask whether remote files that were read are still what they were when they were found.

        Stores that were asked for a version with each request have answered that; others list all of the files once.

        Raises:
            ChangedError: When one is not.
            StorageError: When the store does not answer.
        """
        first, names = dict(self._asked), sorted(self._asked)
        self._asked.clear()
        if not first:
            return
        pairs = zip(posixpath.dirname(names[0]).split("/"), posixpath.dirname(names[-1]).split("/"), strict=False)
        common = [part for part, last_part in itertools.takewhile(lambda pair: pair[0] == pair[1], pairs)]
        fs, inner = self._connect_afresh("/".join(common) if len(names) > 1 else names[0])
        for url, state in first.items():
            state.check(self._states.get(url, state), url)  # which a later listing may have changed
        urls = [] if fs.has_objects else list(first)
        now: dict[str, State] = {}
        if len(urls) > _SINGLY and not fs.http:
            now = {fs.unstrip_protocol(name): State.of(info) for name, info in fs.find(inner).items()}
        for url in urls:
            with contextlib.suppress(FileNotFoundError):  # what is gone since has not been replaced
                if len(urls) <= _SINGLY or fs.http:
                    now[url] = State.of(fs.info(self._connect(url)[1]))
            if url in now:
                first[url].check(now[url], url)

    def read(self, path: PathLike | File, offset: int = 0, length: int | None = None) -> bytes:
        """Return a small range of one file, the whole of it by default.

        Args:
            path: The file; what another process has found is still the same if it is given as a `File`.
            offset: Where the range begins.
            length: How many bytes it has, at most.

        Raises:
            ChangedError: When the file is not the one that was found, or has become shorter.
            StorageError: When its store, or the operating system, does not return it.
        """
        name = path.path if isinstance(path, File) else normalize(path)
        if name in self.inputs.held:
            with contextlib.closing(self.inputs.open(name)) as source:
                return source.read_window(offset, source.size if length is None else length).tobytes()
        stored = self._find_object(name)
        if stored is not None:
            with contextlib.closing(self._objects.open(stored, _OnDrives(self))) as source:
                return source.read_window(offset, source.size if length is None else length).tobytes()
        if name not in self._found and is_remote(name):
            with contextlib.closing(self._make_remote(name, path if isinstance(path, File) else None)) as remote:
                stop = remote.state.size if length is None else min(offset + length, remote.state.size)
                return self._flight.read(remote, offset, stop)
        descriptor = os.open(name, os.O_RDONLY)
        try:
            self._check_same(name, descriptor)
            return read_bytes(descriptor, name, offset, length)
        finally:
            os.close(descriptor)

    def stage(self, path: PathLike, marker: str = "") -> StagedFile:
        """Begin a file that appears at `path`, whole, when it is published; pipes are written to at once.

        Args:
            path: Where it will be.
            marker: What its temporary name contains, for `staged` to find it by.

        Raises:
            IsADirectoryError: When there is a directory.
            OptionError: When there is a device that does not take a stream.
        """
        final = normalize(path)
        if is_remote(final):
            temporary = make_staged_name(final, marker)
            fs, inner = self._connect(temporary)
            fs.makedirs(fs._parent(inner), exist_ok=True)
            return StagedFile(fs.open(inner, "wb"), temporary, final)
        return begin(resolve_destination(final), marker)

    def publish(self, staged: Iterable[Staged]) -> None:
        """Make what is staged visible. Each appears whole; if one fails, those before it are taken back.

        Raises:
            FileExistsError: When there is something where an exclusive one belongs.
        """
        published: list[Staged] = []
        try:
            for staged_file in staged:
                self._publish(staged_file)
                if staged_file.temporary != staged_file.final:
                    published.append(staged_file)
        except BaseException:
            for staged_file in published:
                self._take_back(staged_file)
            raise

    def _publish(self, staged: Staged) -> None:
        """Rename one. A directory that is replaced steps aside first, and comes back if its place is not taken."""
        if staged.temporary == staged.final:
            return
        if staged.exclusive and self.exists(staged.final):
            raise FileExistsError(f"{staged.final} exists already")
        if staged.exclusive or not staged.directory or not self.is_directory(staged.final):
            self._rename(staged.temporary, staged.final, directory=staged.directory)
            return
        if not is_remote(staged.final) and exchange(staged.temporary, staged.final):
            self._forget()
            sync_directory(os.path.dirname(staged.final) or ".")
            self.directories.remove(staged.temporary)
            return
        aside = f"{staged.temporary.removesuffix(STAGED_SUFFIX)}.old{STAGED_SUFFIX}"
        self._rename(staged.final, aside, directory=True)
        try:
            self._rename(staged.temporary, staged.final, directory=True)
        except BaseException:
            self._rename(aside, staged.final, directory=True)
            raise
        self.directories.remove(aside)

    def _take_back(self, staged: Staged) -> None:
        """Make what was published disappear again."""
        if staged.directory:
            self._rename(staged.final, staged.temporary, directory=True)
            self.directories.remove(staged.temporary)
        else:
            self.directories.remove(staged.final)

    def _rename(self, source: str, target: str, *, directory: bool = False) -> None:
        self._forget()
        if is_remote(source):
            fs, inner = self._connect_afresh(source) if directory else self._connect(source)
            target = self._connect(target)[1]

            names = fs.find(inner) if directory else [inner]
            finish_all(
                names, lambda name: fs.mv(name, f"{target}{name[len(inner) :]}"), _REQUESTS if fs.has_objects else 1
            )
            return
        os.replace(source, target)
        sync_directory(os.path.dirname(target) or ".")

    def _forget(self) -> None:
        """Forget what was found: what is replaced now is known to be another file."""
        for cache in (self._found, self._states, self._asked, self._listings):
            cache.clear()
        self._objects.forget()
        self._flight.clear()

    def _connect(self, url: str) -> tuple[Store, str]:
        """Return the file system of a URL, and the path in it; objects are many, so the connection is kept."""
        key = (os.getpid(), url.partition("://")[0])
        connection = self._connections.get(key)
        if connection is not None:
            return connection.resolve_url(url)
        store, path = connect(url, self.options)
        if store.has_objects:
            self._connections[key] = store
        return store, path

    def _connect_afresh(self, url: str) -> tuple[Store, str]:
        """As `_connect`, without what an earlier listing left in fsspec's cache: others may have written since."""
        fs, path = self._connect(url)
        fs.invalidate_cache()
        return fs, path

    def _find_object(self, name: str) -> StoredObject | None:
        """Return the object of a server's at a path; `None` where there is a file, a directory, or nothing."""
        if name in self._found or name in self._states:
            return None
        if self._objects.is_empty and not is_remote(name) and not os.path.isdir(name):
            return None  # where no drives are known, an object is a directory
        return self._objects.get(name, _OnDrives(self))

    def _list_one(self, path: str) -> list[File]:
        if is_remote(path):
            return self._list_remote(path)
        size = self.inputs.take(path)
        if size is not None:
            return [File(path, size)]
        if os.path.isdir(path):
            committed_files = list_committed(self.directories, path, lambda: self._list_committed(path))
            return sort_files(self._choose(path, committed_files))
        if os.path.exists(path):
            return list(self._choose(os.path.dirname(path), [self._make_file(path, os.stat(path), explicit=True)]))
        matches = [match for match in glob.glob(path, recursive=True) if not os.path.basename(match).startswith(HIDDEN)]
        if not matches:
            with contextlib.suppress(FileNotFoundError, NotADirectoryError, ValueError):
                os.stat(path)  # says what else there is to say, such as who may not look
            raise FileNotFoundError(f"{path}: no such file, directory or glob match")
        files = [file for match in matches for file in self._list_one(match)]
        return sort_files(files)

    def _choose(self, root: str, raw: Iterable[File]) -> Iterable[File]:
        files = self._objects.unwrap(root.rstrip("/"), list(raw), _OnDrives(self))
        is_chosen = self.chosen
        return files if is_chosen is None else (file for file in files if is_chosen(root, file))

    def _list_committed(self, root: str) -> tuple[list[File], list[str]]:
        """Return files of a directory, none of which a job has replaced meanwhile, and what in it has a log of jobs."""
        while True:
            walked: dict[str, os.stat_result] = {}
            logs: list[str] = []
            files = list(self._walk(root, walked, logs))
            with contextlib.suppress(FileNotFoundError):
                if all(os.path.samestat(os.stat(name), status) for name, status in walked.items()):
                    return files, logs

    def _walk(self, root: str, walked: dict[str, os.stat_result], logs: list[str]) -> Iterator[File]:
        waiting = [root]
        while waiting:
            directory = waiting.pop()
            inner: list[str] = []
            try:
                walked[directory] = os.stat(directory)
                with os.scandir(directory) as entries:
                    for entry in entries:
                        if entry.is_dir(follow_symlinks=False):
                            inner.append(entry.name)
                        elif not entry.name.startswith(HIDDEN):
                            file = self._find_file(os.path.join(directory, entry.name))
                            if file is not None:
                                yield file
            except OSError as error:
                _raise_unless_gone(error)
            if LOG in inner:
                logs.append(directory)
            waiting += [os.path.join(directory, name) for name in reversed(inner) if not is_hidden_directory(name)]

    def _find_file(self, path: str) -> File | None:
        """Return a file that a walk has found; `None` where it is not one, or not there any more."""
        try:
            status = os.stat(path)
        except OSError as error:
            _raise_unless_gone(error)
            return None
        return self._make_file(path, status, explicit=False) if stat.S_ISREG(status.st_mode) else None

    def _make_file(self, path: str, status: os.stat_result, *, explicit: bool) -> File:
        size = status.st_size
        self._found[path] = _Inode(status.st_dev, status.st_ino, size)
        return File(path, size, explicit, modified=status.st_mtime, changed=status.st_ctime)

    def _check_same(self, path: str, descriptor: int) -> None:
        """Check that an open file is the one that was found."""
        inode = self._found.get(path)
        if inode is None:
            return
        now = os.fstat(descriptor)
        if (now.st_dev, now.st_ino) != (inode.device, inode.number):
            raise ChangedError(f"{path}: the file was replaced while it was read; open it again")
        if now.st_size < inode.size:
            raise ChangedError.from_sizes(path, inode.size, now.st_size)

    def _make_remote(self, url: str, file: File | None = None) -> Remote:
        """Return a remote file, as it was when it was found, here or by another process."""
        fs, path = self._connect(url)
        state = self._states.get(url)
        if state is None and file is not None and file.is_tagged and fs.has_objects:
            state = self._states[url] = State(file.size, {"etag": file.version.strip('"')}, file.modified)
        if state is None:
            info = fs.info(path)
            if info["size"] is None:
                raise StorageError(f"{url}: the server does not say how long the file is; download it first")
            state = State.of(info)
            if file is not None:
                state.recall_earlier(file.size, file.version, file.modified).check(state, url)
            self._states[url] = state
        self._asked.setdefault(url, state)
        return Remote(fs, path, url, state)

    def _remember(self, url: str, info: Mapping[str, Any], *, explicit: bool) -> File:
        """Keep what a listing says, so that no request asks for it again."""
        state = self._states[url] = State.of(info)
        return File(url, state.size, explicit, find_version(info), state.time, is_tagged=bool(state.tags))

    def _list_remote(self, url: str) -> list[File]:
        fs, path = self._connect_afresh(url)
        self._listings.clear()
        matches = fs.glob(path) if glob.has_magic(path) and not fs.exists(path) else [path]
        files: list[File] = []
        for match in matches:
            root = fs.unstrip_protocol(match)
            files += self._choose(root, list_committed(self.directories, root, partial(self._list_objects, fs, match)))
        if not files and not any(fs.isdir(match) for match in matches):
            raise FileNotFoundError(f"{without_secrets(url)}: no such file, directory or glob match")
        return sort_files(files)

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
                    files.append(File(url, self.inputs.hold(url, stream)))
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


@dataclass(frozen=True, slots=True)
class _OnDrives:
    """Files of a storage as they are, for what makes objects of them."""

    storage: Storage

    def open_raw(self, path: str) -> Source:
        """Open a file."""
        return self.storage._open(path, path, None)

    def find_raw_size(self, path: str) -> int | None:
        """Return bytes of a file; `None` where there is none."""
        storage = self.storage
        if (inode := storage._found.get(path)) is not None:
            return inode.size
        if path in storage._states:
            return storage._states[path].size
        if is_remote(path):
            if storage._listings.covers(path):
                return None
            fs, inner = storage._connect(path)
            return storage._remember(path, fs.info(inner), explicit=False).size if fs.exists(inner) else None
        try:
            status = os.stat(path)
        except (OSError, ValueError):  # where nobody may look, and what no file can be called, is none
            return None
        return status.st_size if stat.S_ISREG(status.st_mode) else None

    def list_files_below(self, directory: str) -> list[File]:
        """Return files below a directory, those with hidden names left out; none where it is missing."""
        if is_remote(directory):
            return self.storage._list_objects(*self.storage._connect(directory))[0]
        return list(self.storage._walk(directory, {}, []))

    def list_folders(self, directory: str) -> list[str]:
        """Return names of the directories in a directory; none where it is missing."""
        return self.storage.directories.list_directories(directory)


def map_files(work: Callable[[AnyPlaced], Result], files: Iterable[AnyPlaced]) -> Iterator[Result]:
    """Yield the results for every file, in order: remote files many at a time, as they wait for the network."""
    files = list(files)
    remote = len(files) > 1 and is_remote(normalize(files[0].path))
    return (result for _, result in map_ordered(files, wrap_single_step(work), _REQUESTS if remote else 1))


def ask_ahead(fragments: Iterable[AnyRange], threads: int = 1) -> Iterator[AnyRange]:
    """Yield fragments, in order; bytes of remote ones are on their way before their turn comes.

    Args:
        fragments: Ranges of files; they say where these are.
        threads: How many decode them, as for `map_ordered`: what none of these reads any more is let go of.
    """
    waiting: deque[tuple[AnyRange, _Ahead]] = deque()
    decoded: deque[_Ahead] = deque()
    count = 0
    try:
        for fragment in fragments:
            if not is_remote(fragment.path):
                yield fragment
                continue
            ranges = _ask(fragment)
            waiting.append((fragment, ranges))
            count += ranges.length
            while waiting and (count > ranges.room[0] or len(waiting) > ranges.room[1]):
                count -= waiting[0][1].length
                yield _take(waiting, decoded, threads)
        while waiting:
            yield _take(waiting, decoded, threads)
        if threads > 1:  # which may still decode the last ones, and let go of what they have read
            decoded.clear()
    finally:
        for ranges in (*decoded, *(ranges for _, ranges in waiting)):  # nobody reads them any more
            ranges.let_go()


@dataclass(frozen=True, slots=True)
class _Ahead:
    """Ranges of a fragment that are on their way.

    Attributes:
        length: Their bytes.
        room: Bytes and fragments that are worth having on their way at a time.
        flight: What is on its way.
        requests: Those that nobody had made before, with their files.
        remotes: The files.
    """

    length: int
    room: tuple[int, int]
    flight: Flight
    requests: list[tuple[Remote, Request]]
    remotes: list[Remote]

    def let_go(self) -> None:
        """Let go of what nobody reads any more."""
        for remote, request in self.requests:
            self.flight.drop(remote, request)
        for remote in self.remotes:
            self.flight.retire(remote)


def _take(waiting: deque[tuple[AnyRange, _Ahead]], decoded: deque[_Ahead], threads: int) -> AnyRange:
    """Return the next fragment; ranges of those that are decoded by now are let go of."""
    fragment, ranges = waiting.popleft()
    decoded.append(ranges)
    if len(decoded) > (2 * threads if threads > 1 else 1):
        decoded.popleft().let_go()
    return fragment


def _ask(fragment: Ranged) -> _Ahead:
    """Have the first bytes of a remote fragment fetched."""
    storage = fragment.scan.storage
    requests: list[tuple[Remote, Request]] = []
    remotes: list[Remote] = []
    length, room = 0, (AHEAD_BYTES, AHEAD_FILES)
    for file, offset, size in fragment.extents:
        path, is_tagged = (file, False) if isinstance(file, str) else (file.path, file.is_tagged)
        if length >= room[0] or not (path in storage._states or is_tagged):
            continue
        remote = storage._make_remote(path, None if isinstance(file, str) else file)
        remotes.append(remote)
        room = storage._flight.measure_room(remote)
        end = offset + max(0, min(size, room[0] - length))
        requests += [(remote, request) for request in storage._flight.begin(remote, offset, end)]
        length += end - offset
    return _Ahead(length, room, storage._flight, requests, remotes)


def discard_staged(storage: Storage, staged: Iterable[Staged]) -> None:
    """Delete staged files that shall not be published."""
    for staged_file in staged:
        if staged_file.temporary != staged_file.final:
            storage.directories.remove(staged_file.temporary)


def find_answer(storage: Storage, file: File, question: str) -> bytes | None:
    """Return what an index says of a file; `None` where it says nothing, or there is none.

    Args:
        storage: Where the file is.
        file: The file.
        question: What is asked. It says all that the answer depends on besides the bytes of the file.
    """
    return storage.index.answer(file, question) if storage.index is not None else None


def note_answer(storage: Storage, file: File, question: str, answer: bytes) -> None:
    """Note for an index that is being made what planning has found out."""
    if storage.index is not None:
        storage.index.note(file, question, answer)


def read_indexed(storage: Storage, file: File, offset: int, length: int) -> bytes:
    """Return what `Storage.read` does, for planning: bytes that an index may know.

    Raises:
        ChangedError: As `Storage.read` does.
        StorageError: As `Storage.read` does.
    """
    question = f"{offset}+{length}"
    data = find_answer(storage, file, question)
    if data is None:
        data = storage.read(file, offset, length)
        note_answer(storage, file, question, data)
    return data


def _raise_unless_gone(error: OSError) -> None:
    """Raise what keeps files from being seen; those that were deleted meanwhile, and links to nothing, are none."""
    if error.errno not in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):
        raise error

"""Files: where they are found and how they are published, in whichever store."""

from __future__ import annotations

import contextlib
import os
import re
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from sawlog.storage.directories import Directories, File
from sawlog.storage.flight import AHEAD_BYTES, AHEAD_FILES, Flight, PendingRange
from sawlog.storage.index import Memory
from sawlog.storage.inputs import Inputs
from sawlog.storage.minio import DriveObjects, StoredObject
from sawlog.storage.names import PathLike, is_remote, normalize, sort_files
from sawlog.storage.remote import StoreObject
from sawlog.storage.sources import Source
from sawlog.storage.staging import STAGED_SUFFIX, Staged, StagedFile, exchange, sync_directory
from sawlog.storage.stores import REQUESTS, Stores
from sawlog.storage.workers import map_ordered, wrap_single_step

_Result = TypeVar("_Result")


class _Placed(Protocol):
    """Something at a path: a file, or the files of a directory."""

    @property
    def path(self) -> str:
        """The path."""
        ...


_AnyPlaced = TypeVar("_AnyPlaced", bound=_Placed)


class _Ranged(Protocol):
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


_AnyRange = TypeVar("_AnyRange", bound=_Ranged)


@dataclass(frozen=True)
class Storage:
    """Place where files are found and put. Picklable; holds what fsspec needs to reach remote places.

    Attributes:
        options: What fsspec needs.
        memory_map: Whether local files are memory-mapped: one that is then truncated ends the process.
        inputs: What is read without being a file at a path.
        file_filter: Whether a file below a path belongs to it; all of them do by default. Picklable.
        index: What planning has asked of files before; it stays in this process.
    """

    options: Mapping[str, Any] = field(default_factory=dict, repr=False)
    memory_map: bool = False
    inputs: Inputs = field(default_factory=Inputs, repr=False, compare=False)
    file_filter: Callable[[str, File], bool] | None = None
    index: Memory | None = field(default=None, repr=False, compare=False)
    _stores: Stores = field(default=None, repr=False, compare=False)  # type: ignore[assignment]

    def __post_init__(self) -> None:
        if self._stores is None:
            object.__setattr__(self, "_stores", Stores(self.options, self.memory_map, self.inputs))
            object.__setattr__(self, "options", self._stores.options)

    def __reduce__(self) -> tuple[Any, ...]:
        return (_restore, (self.options, self.memory_map, self.inputs, self.file_filter, self._stores.objects))

    def make_fresh(self) -> Storage:
        """Return the same storage with nothing found yet, and no index: files may be others than those found before."""
        objects = DriveObjects(until=self._stores.objects.until)
        return _restore(self.options, self.memory_map, self.inputs, self.file_filter, objects)

    @property
    def unlisted(self) -> set[str] | None:
        """Paths that were asked for, and that no listing had shown before; `None`: they are too many."""
        return self._stores.unlisted

    @property
    def directories(self) -> Directories:
        """Directories, as they are now: what jobs and writers of several files do there."""
        return Directories(self.options, self._stores.forget)

    def find(self, paths: PathLike | Sequence[PathLike]) -> list[File]:
        """Return all files under paths, directories, walked down, and globs, in natural order: `9.log` before `10.log`.

        Names that begin with a dot or an underscore are left out of directories and globs, but for directories called
        `_metadata`.

        Raises:
            FileNotFoundError: When a path or glob matches nothing.
        """
        patterns = [normalize(path) for path in ([paths] if isinstance(paths, str | os.PathLike) else paths)]
        files: dict[str, File] = {}
        self._stores.objects.named.update(pattern.rstrip("/") for pattern in patterns)
        for pattern in patterns:
            roots = self._stores.choose_store(pattern).find(pattern, self.directories)
            for file in sort_files(file for root, listed in roots for file in self._choose(root, listed)):
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
        name, objects = normalize(directory), self._stores.objects
        store = self._stores.choose_store(name)
        sought = names if objects.is_empty else None  # objects have no names of their own
        files = list(store.list_files(name, fresh=fresh, names=sought, beginnings=beginnings))
        if not objects.is_empty:
            below = objects.unwrap(name, store.list_raw(name), _OnDrives(self))
            files = [file for file in (*files, *below) if file.directory == ("" if name == "." else name)]
        if names is not None:
            files = [file for file in files if names.search(file.name)]
        return sorted({file.path: file for file in files}.values(), key=lambda file: file.path)

    def is_directory(self, path: PathLike, *, fresh: bool = True) -> bool:
        """Return whether the path is a directory (on object stores: a prefix).

        Args:
            path: The path.
            fresh: Whether a store is asked what `find`, or an earlier question, has answered: not where that was now.
        """
        name = normalize(path)
        if self._find_object(name) is not None:
            return False
        return self._stores.choose_store(name).is_directory(name, fresh=fresh)

    def exists(self, path: PathLike, *, fresh: bool = True) -> bool:
        """Return whether there is a file or directory at the path; arguments are those of `is_directory`."""
        name = normalize(path)
        if self._find_object(name) is not None:
            return True
        return self._stores.choose_store(name).exists(name, fresh=fresh)

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
        name, file = _split_path(path)
        source = self._open_apart(name, file)
        return self._open(name, file, end) if source is None else source

    def _open_apart(self, name: str, file: File | None) -> Source | None:
        """Open an input, or an object that a server keeps in several files; `None` for a file."""
        if name in self.inputs.resources:
            return self.inputs.open(name)
        stored = self._find_object(name, file)
        return None if stored is None else self._stores.objects.open(stored, _OnDrives(self))

    def _open(self, name: str, file: File | None, end: int | None) -> Source:
        """Open a file as it is."""
        return self._stores.choose_store(name).open(name, file, end)

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
        name, file = _split_path(path)
        source = self._open_apart(name, file)
        if source is None:
            return self._stores.choose_store(name).read(name, file, offset, length)
        with contextlib.closing(source):
            return source.read_window(offset, source.size if length is None else length).tobytes()

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
        return self._stores.choose_store(final).stage(final, marker)

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
                if staged_file.directory:
                    self._rename(staged_file.final, staged_file.temporary, directory=True)
                self.directories.remove(staged_file.temporary if staged_file.directory else staged_file.final)
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
            self._stores.forget()
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

    def _rename(self, source: str, target: str, *, directory: bool = False) -> None:
        self._stores.forget()
        self._stores.choose_store(source).rename(source, target, directory=directory)

    def _find_object(self, name: str, file: File | None = None) -> StoredObject | None:
        """Return the object of a server's at a path; `None` where there is a file, a directory, or nothing."""
        stores, objects = self._stores, self._stores.objects
        if stores.local.has_found(name) or stores.remote.has_found(name):
            return None
        if objects.is_empty and not is_remote(name) and (file is not None or not os.path.isdir(name)):
            return None  # where no drives are known, an object is a directory that nobody has found to be a file
        return objects.get(name, _OnDrives(self))

    def _choose(self, root: str, raw: Iterable[File]) -> Iterable[File]:
        files = self._stores.objects.unwrap(root.rstrip("/"), list(raw), _OnDrives(self))
        is_chosen = self.file_filter
        return files if is_chosen is None else (file for file in files if is_chosen(root, file))


def _restore(options: Any, memory_map: bool, inputs: Inputs, file_filter: Any, objects: DriveObjects) -> Storage:
    """Return a storage that has found nothing but objects."""
    return Storage(options, memory_map, inputs, file_filter, None, Stores(options, memory_map, inputs, objects))


def _split_path(path: PathLike | File) -> tuple[str, File | None]:
    """Return the path of a file, and what was found there, where the caller knows it."""
    return (path.path, path) if isinstance(path, File) else (normalize(path), None)


def confirm_files(storage: Storage) -> None:
    """Ask whether remote files that were read are still what they were when they were found.

    Stores that were asked for a version with each request have answered that; others list all of the files once.

    Raises:
        ChangedError: When one is not.
        StorageError: When the store does not answer.
    """
    storage._stores.remote.confirm()


@dataclass(frozen=True, slots=True)
class _OnDrives:
    """Files of a storage as they are, for what makes objects of them."""

    storage: Storage

    def open_raw(self, path: str) -> Source:
        """Open a file."""
        return self.storage._open(path, None, None)

    def find_raw_size(self, path: str) -> int | None:
        """Return the size of a file; `None` where there is none."""
        return self.storage._stores.choose_store(path).find_size(path)

    def list_files_below(self, directory: str) -> list[File]:
        """Return files below a directory, those with hidden names left out; none where it is missing."""
        return self.storage._stores.choose_store(directory).list_raw(directory)

    def list_folders(self, directory: str) -> list[str]:
        """Return names of the directories in a directory; none where it is missing."""
        return self.storage.directories.list_directories(directory)


def map_files(work: Callable[[_AnyPlaced], _Result], files: Iterable[_AnyPlaced]) -> Iterator[_Result]:
    """Yield the results for every file, in order: remote files many at a time, as they wait for the network."""
    files = list(files)
    remote = len(files) > 1 and is_remote(normalize(files[0].path))
    return (result for _, result in map_ordered(files, wrap_single_step(work), REQUESTS if remote else 1))


@contextlib.contextmanager
def ask_ahead(fragments: Iterable[_AnyRange], threads: int = 1) -> Iterator[Iterator[_AnyRange]]:
    """Return an iterator of fragments, in order; bytes of remote ones are on their way before their turn comes.

    Args:
        fragments: Ranges of files; they say where these are.
        threads: How many decode them, as for `map_ordered`: what none of these reads any more is let go of, and
            the rest when the context ends.
    """
    waiting: deque[tuple[_AnyRange, _Ahead]] = deque()
    decoded: deque[_Ahead] = deque()
    ahead = _ask_ahead(fragments, waiting, decoded, 2 * threads if threads > 1 else 1)
    try:
        yield ahead
    finally:
        ahead.close()
        for ranges in (*decoded, *(ranges for _, ranges in waiting)):
            ranges.let_go()


def _ask_ahead(
    fragments: Iterable[_AnyRange], waiting: deque[tuple[_AnyRange, _Ahead]], decoded: deque[_Ahead], limit: int
) -> Generator[_AnyRange, None, None]:
    """Yield fragments; ranges of those that were yielded last are held, up to a limit."""
    count = 0
    for fragment in fragments:
        if not is_remote(fragment.path):
            yield fragment
            continue
        ranges = _ask(fragment)
        waiting.append((fragment, ranges))
        count += ranges.length
        while waiting and (count > ranges.room[0] or len(waiting) > ranges.room[1]):
            count -= waiting[0][1].length
            yield _take(waiting, decoded, limit)
    while waiting:
        yield _take(waiting, decoded, limit)


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
    requests: list[tuple[StoreObject, PendingRange]]
    remotes: list[StoreObject]

    def let_go(self) -> None:
        """Let go of what nobody reads any more."""
        for remote, request in self.requests:
            self.flight.drop(remote, request)
        for remote in self.remotes:
            self.flight.retire(remote)


def _take(waiting: deque[tuple[_AnyRange, _Ahead]], decoded: deque[_Ahead], limit: int) -> _AnyRange:
    """Return the next fragment; ranges of those that are decoded by now are let go of."""
    fragment, ranges = waiting.popleft()
    decoded.append(ranges)
    if len(decoded) > limit:
        decoded.popleft().let_go()
    return fragment


def _ask(fragment: _Ranged) -> _Ahead:
    """Have the first bytes of a remote fragment fetched."""
    remote_store = fragment.scan.storage._stores.remote
    requests: list[tuple[StoreObject, PendingRange]] = []
    remotes: list[StoreObject] = []
    length, room = 0, (AHEAD_BYTES, AHEAD_FILES)
    for file, offset, size in fragment.extents:
        path, is_tagged = (file, False) if isinstance(file, str) else (file.path, file.is_tagged)
        if length >= room[0] or not (remote_store.has_found(path) or is_tagged):
            continue
        remote = remote_store.open_object(path, None if isinstance(file, str) else file)
        remotes.append(remote)
        room = remote_store.flight.measure_room(remote)
        end = offset + max(0, min(size, room[0] - length))
        requests += [(remote, request) for request in remote_store.flight.begin(remote, offset, end)]
        length += end - offset
    return _Ahead(length, room, remote_store.flight, requests, remotes)


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

"""Files: where they are found and how they are published; local ones, and remote ones through fsspec."""

from __future__ import annotations

import contextlib
import errno
import glob
import os
import posixpath
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from sawlog.errors import ChangedError, OptionError
from sawlog.inputs import Inputs
from sawlog.names import PathLike, hidden, is_remote, natural_order, normalize, passed_over
from sawlog.reading import in_order, once
from sawlog.remote import connected, modified_at, version_of
from sawlog.sources import LocalSource, MappedSource, RemoteSource, Source
from sawlog.staging import (
    STAGED_SUFFIX,
    Staged,
    StagedDirectory,
    StagedFile,
    begin,
    destination,
    staged_end,
    staged_name,
    sync_directory,
)

if TYPE_CHECKING:
    from sawlog.sources import Bytes

__all__ = [
    "Bytes",
    "File",
    "PathLike",
    "Source",
    "Staged",
    "StagedDirectory",
    "StagedFile",
    "Storage",
    "is_remote",
    "normalize",
]

_REQUESTS = 16
"""Requests for remote files at a time."""

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class File:
    """A file that exists.

    Attributes:
        path: Path or URL.
        size: Size in bytes.
        explicit: Whether the user named it, by itself or by a glob; not so for what lies in a directory.
        version: What a remote storage says of its state, as an ETag; empty where it says nothing.
        modified: When it was last written to, in seconds since the epoch; `None` where nothing tells.
    """

    path: str
    size: int
    explicit: bool = True
    version: str = field(default="", compare=False)
    modified: float | None = field(default=None, compare=False)

    @property
    def name(self) -> str:
        """The last part of the path."""
        return self.path.rpartition("/")[2]


@dataclass(frozen=True)
class Storage:
    """Where files are found and put. Picklable; holds what fsspec needs to reach remote places.

    Attributes:
        options: What fsspec needs.
        memory_map: Whether local files are memory-mapped: one that is then truncated ends the process.
        inputs: What is read without being a file at a path.
        chosen: Whether a file that lies below a path belongs to it; all of them do by default. Picklable.
    """

    options: Mapping[str, Any] = field(default_factory=dict, repr=False)
    memory_map: bool = False
    inputs: Inputs = field(default_factory=Inputs, repr=False, compare=False)
    chosen: Callable[[str, File], bool] | None = None
    _found: dict[str, os.stat_result] = field(default_factory=dict, repr=False, compare=False)
    _sizes: dict[str, int] = field(default_factory=dict, repr=False, compare=False)
    _listed: dict[str, list[File]] = field(default_factory=dict, repr=False, compare=False)

    def __reduce__(self) -> tuple[Any, ...]:
        return (Storage, (self.options, self.memory_map, self.inputs, self.chosen))

    def anew(self) -> Storage:
        """The same, with nothing found yet: what is opened need not be what was found before."""
        return Storage(self.options, self.memory_map, self.inputs, self.chosen)

    def find(self, paths: PathLike | Sequence[PathLike]) -> list[File]:
        """All files under paths, directories (walked down) and globs, in natural order (`9.log` before `10.log`).

        Names that begin with a dot or an underscore are left out of directories and globs, but for directories called
        `_metadata`.

        Raises:
            FileNotFoundError: When a path or glob matches nothing.
        """
        given = [paths] if isinstance(paths, str | os.PathLike) else list(paths)
        found: dict[str, File] = {}
        for path in given:
            for file in self._list_one(normalize(path)):
                found.setdefault(file.path, file)
        return list(found.values())

    def files_in(self, directory: PathLike, *, anew: bool = True) -> list[File]:
        """The files that lie directly in a directory, those with hidden names included, by name.

        Args:
            directory: The directory.
            anew: Whether a remote one that `find` has walked is listed again: not where it was found just now.
        """
        name = normalize(directory)
        if not anew and name in self._listed:
            return sorted(self._listed[name], key=lambda file: file.path)
        if is_remote(name):
            fs, inner = self._fresh(name)
            entries = [entry for entry in fs.ls(inner, detail=True) if entry["type"] == "file"]
            files = [File(fs.unstrip_protocol(entry["name"]), int(entry["size"]), explicit=False) for entry in entries]
        else:
            # Paths are spelled as `find` spells them: files in the current directory have none in front of them.
            with os.scandir(name) as found:
                files = [
                    File(os.path.join(name, entry.name) if name != "." else entry.name, entry.stat().st_size, False)
                    for entry in found
                    if entry.is_file()
                ]
        return sorted(files, key=lambda file: file.path)

    def directories_in(self, directory: PathLike) -> list[str]:
        """Names of the directories that lie directly in a directory, hidden ones included; none where it is missing."""
        name = normalize(directory)
        if is_remote(name):
            fs, inner = self._fresh(name)
            found = fs.ls(inner, detail=True) if fs.isdir(inner) else []
            return sorted(posixpath.basename(one["name"].rstrip("/")) for one in found if one["type"] == "directory")
        if not os.path.isdir(name):
            return []
        with os.scandir(name) as entries:
            return sorted(entry.name for entry in entries if entry.is_dir())

    def is_directory(self, path: PathLike) -> bool:
        """Whether the path is a directory (on object stores: a prefix)."""
        name = normalize(path)
        if is_remote(name):
            fs, inner = self._fresh(name)
            return bool(fs.isdir(inner))
        return os.path.isdir(name)

    def exists(self, path: PathLike) -> bool:
        """Whether there is a file or directory at the path."""
        name = normalize(path)
        if is_remote(name):
            fs, inner = self._fresh(name)
            return bool(fs.exists(inner))
        return os.path.exists(name)

    def open(self, path: PathLike, end: int | None = None) -> Source:
        """Open one file for reading.

        Args:
            path: The file.
            end: Of a remote file, nothing behind this is read unless a window reaches there.

        Raises:
            ChangedError: When the file is not the one that was found, or has become shorter.
        """
        name = normalize(path)
        if is_remote(name):
            return RemoteSource(*self._remote(name), name, end, self._sizes.get(name))
        if name in self.inputs:
            return self.inputs.open(name)
        descriptor = os.open(name, os.O_RDONLY)
        try:
            self._check_same(name, descriptor)
            return (MappedSource if self.memory_map else LocalSource)(descriptor, name)
        except BaseException:
            os.close(descriptor)
            raise

    def each(self, work: Callable[[File], Result], files: Iterable[File]) -> Iterator[Result]:
        """What `work` finds in every file, in order: remote files many at a time, as they wait for the network."""
        files = list(files)
        remote = len(files) > 1 and is_remote(normalize(files[0].path))
        return (found for _, found in in_order(files, once(work), _REQUESTS if remote else 1))

    def read(self, path: PathLike, offset: int = 0, length: int | None = None) -> bytes:
        """A small range of one file, the whole of it by default."""
        name = normalize(path)
        if is_remote(name):
            fs, inner = self._remote(name)
            end = None if length is None else offset + length
            return bytes(fs.cat_file(inner, start=offset, end=end))
        if name in self.inputs:
            source = self.inputs.open(name)
            data = source.window(offset, source.size if length is None else length).tobytes()
            source.close()
            return data
        with open(name, "rb") as file:
            self._check_same(name, file.fileno())
            file.seek(offset)
            return file.read(-1 if length is None else length)

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
            temporary = staged_name(final, marker)
            fs, inner = self._remote(temporary)
            fs.makedirs(fs._parent(inner), exist_ok=True)
            return StagedFile(fs.open(inner, "wb"), temporary, final)
        return begin(destination(final), marker)

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
        temporary = staged_name(final, marker)
        if is_remote(final):
            return StagedDirectory(tempfile.mkdtemp(prefix="sawlog-"), temporary, final)
        os.makedirs(os.path.dirname(final) or ".", exist_ok=True)
        os.mkdir(temporary)
        return StagedDirectory(temporary, temporary, final)

    def publish(self, staged: Iterable[Staged]) -> None:
        """Make what is staged visible. Each appears whole; if one fails, those before it are taken back.

        Raises:
            FileExistsError: When there is something where an exclusive one belongs.
        """
        published: list[Staged] = []
        try:
            for one in staged:
                self._publish(one)
                if one.temporary != one.final:
                    published.append(one)
        except BaseException:
            for one in published:
                self.take_back(one)
            raise

    def discard(self, staged: Iterable[Staged]) -> None:
        """Delete staged files that shall not be published."""
        for one in staged:
            if one.temporary != one.final:
                self.remove(one.temporary)

    def staged(self, directory: PathLike, marker: str) -> list[str]:
        """What is staged under a directory and neither published nor discarded: left by writers that were killed.

        Args:
            directory: Where to look, walking down; it may not exist.
            marker: What their paths below it contain, such as the name of a job.
        """
        root = normalize(directory)
        if is_remote(root):
            fs, inner = self._fresh(root)
            root = fs.unstrip_protocol(inner)
            below = [fs.unstrip_protocol(name) for name in fs.find(inner)]
        else:
            below = [os.path.join(parent, name) for parent, inner, names in os.walk(root) for name in [*inner, *names]]
        relative = (path[len(root) :] for path in below)
        found = {path[: end + len(STAGED_SUFFIX)]: None for path in relative if (end := staged_end(path)) >= 0}
        return [root + path for path in found if marker in path]

    def join(self, staged: Iterable[Staged], temporary: str, final: str) -> Staged:
        """Make one staged directory of what was staged below it; what others have staged there is deleted.

        Args:
            staged: What belongs into it, its final places being below `temporary`.
            temporary: A local directory with a staged name.
            final: Where it will be; nothing may be there.
        """
        size = 0
        for one in staged:
            os.replace(one.temporary, one.final)
            size += one.size
        for left in self.staged(temporary, ""):
            self.remove(left)
        for directory, _, _ in os.walk(temporary):
            sync_directory(directory)
        return Staged(temporary, final, size, directory=True, exclusive=True)

    def remove(self, path: PathLike) -> None:
        """Delete a file, or a staged directory, if it exists."""
        name = normalize(path)
        if is_remote(name):
            fs, inner = self._remote(name)
            with contextlib.suppress(FileNotFoundError):
                fs.rm(inner, recursive=name.endswith(STAGED_SUFFIX))
            return
        if name.endswith(STAGED_SUFFIX) and os.path.isdir(name) and not os.path.islink(name):
            shutil.rmtree(name)
            return
        Path(name).unlink(missing_ok=True)

    def remove_directory(self, path: PathLike) -> None:
        """Delete a directory and all that is in it. Nobody sees a part of it: it is renamed first."""
        aside = staged_name(normalize(path).rstrip("/"), "")
        self._rename(normalize(path).rstrip("/"), aside, directory=True)
        self.remove(aside)

    def upload(self, directory: str, url: str) -> None:
        """Copy the files of a local directory to a remote one."""
        fs, inner = self._remote(url)
        fs.makedirs(inner, exist_ok=True)
        for name in sorted(os.listdir(directory)):
            fs.put_file(os.path.join(directory, name), f"{inner}/{name}")

    def _publish(self, one: Staged) -> None:
        """Rename one. A directory that is replaced steps aside first, and comes back if its place is not taken."""
        if one.temporary == one.final:
            return
        if one.exclusive and self.exists(one.final):
            raise FileExistsError(f"{one.final} exists already")
        if one.exclusive or not one.directory or not self.is_directory(one.final):
            self._rename(one.temporary, one.final, directory=one.directory)
            return
        aside = f"{one.temporary.removesuffix(STAGED_SUFFIX)}.old{STAGED_SUFFIX}"
        self._rename(one.final, aside, directory=True)
        try:
            self._rename(one.temporary, one.final, directory=True)
        except BaseException:
            self._rename(aside, one.final, directory=True)
            raise
        self.remove(aside)

    def take_back(self, one: Staged) -> None:
        """Make what was published disappear again."""
        if one.directory:
            self._rename(one.final, one.temporary, directory=True)
            self.remove(one.temporary)
        else:
            self.remove(one.final)

    def _rename(self, source: str, target: str, *, directory: bool = False) -> None:
        for known in (self._found, self._sizes, self._listed):
            known.clear()  # what is replaced here is known to be another file
        if is_remote(source):
            fs, inner = self._fresh(source) if directory else self._remote(source)
            target = self._remote(target)[1]
            for name in fs.find(inner) if directory else [inner]:
                fs.mv(name, f"{target}{name[len(inner) :]}")
            return
        os.replace(source, target)
        sync_directory(os.path.dirname(target) or ".")

    def _remote(self, url: str) -> tuple[Any, str]:
        return connected(url, self.options)

    def _fresh(self, url: str) -> tuple[Any, str]:
        """As `_remote`, without what an earlier listing left in fsspec's cache: others may have written since."""
        fs, path = self._remote(url)
        fs.invalidate_cache()
        return fs, path

    def _list_one(self, path: str) -> list[File]:
        if is_remote(path):
            return self._list_remote(path)
        size = self.inputs.take(path)
        if size is not None:
            return [File(path, size)]
        if os.path.isdir(path):
            return sorted(self._choose(path, self._walk(path)), key=_natural)
        if os.path.exists(path):
            return list(self._choose(os.path.dirname(path), [self._file(path, explicit=True)]))
        matches = [match for match in glob.glob(path, recursive=True) if not hidden(os.path.basename(match))]
        if not matches:
            with contextlib.suppress(FileNotFoundError, NotADirectoryError, ValueError):
                os.stat(path)  # says what else there is to say, such as who may not look
            raise FileNotFoundError(f"{path}: no such file, directory or glob match")
        files = [file for match in matches for file in self._list_one(match)]
        return sorted(files, key=_natural)

    def _choose(self, root: str, files: Iterable[File]) -> Iterable[File]:
        chosen = self.chosen
        return files if chosen is None else (file for file in files if chosen(root, file))

    def _walk(self, root: str) -> Iterator[File]:
        for directory, names, files in os.walk(root, onerror=_unless_gone):
            names[:] = [name for name in names if not passed_over(name)]
            for name in files:
                path = os.path.join(directory, name)
                if hidden(name):
                    continue
                try:
                    file = self._file(path, explicit=False)
                except OSError as error:
                    _unless_gone(error)
                else:
                    if stat.S_ISREG(self._found[path].st_mode):
                        yield file

    def _file(self, path: str, *, explicit: bool) -> File:
        found = self._found[path] = os.stat(path)
        return File(path, found.st_size, explicit, modified=found.st_mtime)

    def _check_same(self, path: str, descriptor: int) -> None:
        """Whether an open file is the one that was found.

        Raises:
            ChangedError: When it is another one, or has become shorter.
        """
        found = self._found.get(path)
        if found is None:
            return
        now = os.fstat(descriptor)
        if (now.st_dev, now.st_ino) != (found.st_dev, found.st_ino):
            raise ChangedError(f"{path}: the file was replaced while it was read; open it again")
        if now.st_size < found.st_size:
            raise ChangedError.shorter(path, found.st_size, now.st_size)

    def _remember(self, url: str, size: int, *, explicit: bool) -> None:
        """Keep what a listing says, so that no request asks for it again."""
        self._sizes[url] = size
        if not explicit:
            self._listed.setdefault(posixpath.dirname(url), []).append(File(url, size, explicit=False))

    def _list_remote(self, url: str) -> list[File]:
        fs, path = self._fresh(url)
        self._listed.clear()
        matches = fs.glob(path) if glob.has_magic(path) and not fs.exists(path) else [path]
        files: list[File] = []
        for match in matches:
            below: list[File] = []
            entries = fs.find(match, withdirs=False, detail=True)
            for name, info in entries.items():
                explicit = name == match
                found, size = fs.unstrip_protocol(name), int(info["size"])
                self._remember(found, size, explicit=explicit)
                *above, last = posixpath.relpath(name, match).split("/")
                if explicit or not (hidden(last) or any(map(passed_over, above))):
                    below.append(File(found, size, explicit, version_of(info), modified_at(info)))
            files += self._choose(fs.unstrip_protocol(match), below)
        if not files and not any(fs.isdir(match) for match in matches):
            raise FileNotFoundError(f"{url}: no such file, directory or glob match")
        return sorted(files, key=_natural)


def _unless_gone(error: OSError) -> None:
    """Raise what keeps files from being seen; those that were deleted meanwhile, and links to nothing, are none."""
    if error.errno not in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):
        raise error


def _natural(file: File) -> list[tuple[int, int, str]]:
    return natural_order(file.path)

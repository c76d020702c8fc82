"""Staged files, written and not yet visible: how they are named, made durable, and where they go."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import re
import shutil
import stat
import sys
import uuid
from dataclasses import dataclass
from typing import IO, Any, Protocol

from sawlog.errors import OptionError
from sawlog.storage.names import is_remote
from sawlog.storage.owners import PATTERN, find_owner, has_exited
from sawlog.storage.workers import finish_all


class DirectoryOperations(Protocol):
    """Operations that staging and the commit log need from `sawlog.storage.Directories`."""

    def read_now(self, path: str) -> bytes:
        """Return all of a small file, whatever was found at its path before."""
        ...

    def create(self, path: str, data: bytes) -> None:
        """Make a small file where there is none."""
        ...

    def list_names(self, directory: str) -> list[str]:
        """Return names of all that is directly in a directory."""
        ...

    def remove(self, path: str) -> None:
        """Delete a file, or a staged directory, if it exists."""
        ...

    def remove_all(self, url: str) -> None:
        """Delete all files below a remote directory, if there are any."""
        ...

    def upload(self, directory: str, url: str) -> None:
        """Copy the files of a local directory to a remote one."""
        ...

    def stat(self, path: str) -> FileInfo:
        """Return a file, as it is now; without a time where it is gone."""
        ...


class HasDirectories(Protocol):
    """Storage with directories, which staged files are deleted from: a `sawlog.storage.Storage`."""

    @property
    def directories(self) -> DirectoryOperations:
        """Directories of the storage."""
        ...


class FileInfo(Protocol):
    """Protocol of a `sawlog.storage.File`."""

    @property
    def path(self) -> str:
        """Path of the file."""
        ...

    @property
    def modified(self) -> float | None:
        """When it was changed, in seconds since the epoch, where that is known."""
        ...


STAGED_SUFFIX = ".sawlog-staged"

STDOUT = ("-", "/dev/stdout", "/dev/fd/1", "/proc/self/fd/1")
"""Names of standard output."""

WITHIN = "_"
"""In the name of a job's hidden directory, for the directory that holds it."""
JOB = re.compile(
    rf"(?<![^/])\.(?P<target>[^/]+)\.(?P<job>[0-9A-Za-z-]+)\.(?P<owner>{PATTERN}|x){re.escape(STAGED_SUFFIX)}(?=/|$)"
)
"""The name of a job's hidden directory: what it will be, the job, and the process that the job ends with."""

_AT_FDCWD = -100
_RENAME_EXCHANGE = 2
_NO_EXCHANGE = (errno.EINVAL, errno.ENOSYS, errno.EXDEV, errno.EBUSY, errno.EPERM, errno.EACCES)
"""What `renameat2` says where a file system cannot exchange, or a directory is a mount point or not to be renamed."""

_SYNCERS = 8
"""Files of a directory that are made safe at a time."""


@dataclass(frozen=True, slots=True)
class Staged:
    """A finished file or directory that is not visible yet, and the place it is to be published at.

    Where both places are the same, a file was continued in place; it is never deleted.

    Attributes:
        temporary: Where it is.
        final: Where it will be.
        size: Bytes in it.
        directory: Whether it is a directory.
        exclusive: Whether it may only be published where there is nothing yet.
    """

    temporary: str
    final: str
    size: int
    directory: bool = False
    exclusive: bool = False


def make_staged_name(final: str, marker: str) -> str:
    """Return a new hidden name next to the place where something will be published; it says whose it is."""
    tail = os.path.split(final)[1]
    owner = find_owner(os.getpid())
    hidden = f".{tail}.{marker}{owner}{'-' if owner else ''}{uuid.uuid4().hex[:12]}{STAGED_SUFFIX}"
    # What is before the name stays as it is: `memory://name` has no directory that could be joined to it.
    return final[: len(final) - len(tail)] + hidden


def sweep(final: str) -> None:
    """Delete what writers that were killed have staged for a local place, where it is proven that they are gone.

    Those of other machines and containers stay, and what was staged for others to publish.
    """
    directory, tail = os.path.split(final)
    named = re.compile(rf"\.{re.escape(tail)}\.({PATTERN})-[0-9a-f]{{12}}{re.escape(STAGED_SUFFIX)}")
    with contextlib.suppress(FileNotFoundError, NotADirectoryError, PermissionError):
        for name in os.listdir(directory or "."):
            match = named.fullmatch(name)
            if match is None or not has_exited(match[1]):
                continue
            path = os.path.join(directory, name)
            if os.lstat(path).st_uid != os.getuid():
                continue  # processes of others may be hidden
            if os.path.isdir(path):
                shutil.rmtree(path, ignore_errors=True)
            else:
                os.unlink(path)


def find_staged_end(path: str) -> int:
    """Return where the outermost staged name in a path ends but for its suffix; -1: there is none."""
    for place in re.finditer(re.escape(STAGED_SUFFIX), path):
        if path[place.end() : place.end() + 1] in ("", "/", os.sep):
            return place.start()
    return -1


def name_job_directory(target: str, job: str, owner: str) -> str:
    """Return the name of the hidden directory that the tasks of a job fill; see `JOB`."""
    return f".{target}.{job}.{owner or 'x'}{STAGED_SUFFIX}"


def find_published_path(path: str) -> str:
    """Return the path that what is in a job's hidden directory will have: what it says of its content holds there."""
    return re.sub(r"/\.(?=/|$)", "", JOB.sub(lambda match: "." if match["target"] == WITHIN else match["target"], path))


def lock_file(descriptor: int, *, waits: bool) -> bool:
    """Lock an open file or directory until it is closed, for one process among those that do so.

    Args:
        descriptor: The file.
        waits: Whether to wait for the process that holds the lock.

    Returns:
        `False` when it cannot be locked; `True` on systems that have no such locks.
    """
    try:
        import fcntl
    except ImportError:  # pragma: no cover, Windows
        return True
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX if waits else fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def sync_file(path: str) -> None:
    """Have the bytes of a file safe on disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_directory(path: str) -> None:
    """Make a rename durable, where directories can be synced."""
    with contextlib.suppress(OSError):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def exchange(path: str, other_path: str) -> bool:
    """Exchange two local directories at one moment; return whether the system can, for these."""
    call = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None) if sys.platform == "linux" else None
    if call is None:
        return False
    if call(_AT_FDCWD, os.fsencode(path), _AT_FDCWD, os.fsencode(other_path), _RENAME_EXCHANGE) == 0:
        return True
    code = ctypes.get_errno()
    if code in _NO_EXCHANGE:
        return False
    raise OSError(code, os.strerror(code), other_path)


@dataclass
class StagedFile:
    """A file being written under a temporary name."""

    stream: IO[bytes]
    temporary: str
    final: str
    size: int = 0

    def write(self, data: Any) -> None:
        """Append bytes: anything with the buffer protocol."""
        view = memoryview(data).cast("B")
        self.size += len(view)
        while len(view):
            # Raw files may take fewer bytes than they are given; some remote ones answer None.
            view = view[self.stream.write(view) or len(view) :]

    def finish(self) -> Staged:
        """Close the file, its bytes safe on disk."""
        if not is_remote(self.temporary):
            with contextlib.nullcontext() if self.temporary != self.final else contextlib.suppress(OSError):
                os.fsync(self.stream.fileno())  # pipes and terminals have nothing to be made safe
        self.stream.close()
        return Staged(self.temporary, self.final, self.size)

    def discard(self, storage: HasDirectories) -> None:
        """Close the file and delete it; what was there before is not."""
        self.stream.close()
        if self.temporary != self.final:
            storage.directories.remove(self.temporary)


@dataclass
class StagedDirectory:
    """A directory being filled under a temporary name.

    Attributes:
        work: Local directory to put files into; where the final place is remote, it is uploaded at the end.
        temporary: Where it is before it is published.
        final: Where it will be.
    """

    work: str
    temporary: str
    final: str

    def finish(self, storage: HasDirectories, *, exclusive: bool = False) -> Staged:
        """Have all files safe at the temporary place.

        Args:
            storage: Where that is.
            exclusive: Whether nothing may be at the final place when the directory is published.
        """
        names = sorted(os.listdir(self.work))
        size = sum(os.path.getsize(os.path.join(self.work, name)) for name in names)
        if self.work == self.temporary:
            # Many at a time: the disk then writes its journal once for all of them.
            finish_all([os.path.join(self.work, name) for name in names], sync_file, _SYNCERS)
            sync_directory(self.work)
        else:
            storage.directories.upload(self.work, self.temporary)
            shutil.rmtree(self.work)
        return Staged(self.temporary, self.final, size, directory=True, exclusive=exclusive)

    def discard(self, storage: HasDirectories) -> None:
        """Delete it."""
        shutil.rmtree(self.work, ignore_errors=True)
        if self.work != self.temporary:
            storage.directories.remove(self.temporary)


def resolve_destination(path: str) -> str:
    """Return the place where something local will be: what a symbolic link points to, so that the link stays."""
    if path in STDOUT or not os.path.islink(path):
        return path
    return os.path.realpath(path)


def begin(final: str, marker: str) -> StagedFile:
    """Begin a local file; see `Storage.stage`.

    One that replaces another gets its mode, and its owner where that is allowed. Pipes, terminals and the like are not
    replaced but written to.

    Raises:
        IsADirectoryError: When there is a directory.
        OptionError: When there is a device that does not take a stream.
    """
    if final in STDOUT:
        return StagedFile(open(os.dup(1), "wb", buffering=0), final, final)
    try:
        final_state = os.stat(final)
    except FileNotFoundError:
        final_state = None
        os.makedirs(os.path.dirname(final) or ".", exist_ok=True)
    if final_state is not None and stat.S_ISDIR(final_state.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), final)
    if final_state is not None and not stat.S_ISREG(final_state.st_mode):
        if not (stat.S_ISFIFO(final_state.st_mode) or stat.S_ISCHR(final_state.st_mode)):
            raise OptionError(f"{final}: neither a file nor something that takes a stream; it is not replaced")
        return StagedFile(open(final, "wb", buffering=0), final, final)
    temporary = make_staged_name(final, marker)
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666 if final_state is None else 0o600)
    if final_state is not None:
        with contextlib.suppress(PermissionError):
            os.fchown(descriptor, final_state.st_uid, final_state.st_gid)
        os.fchmod(descriptor, stat.S_IMODE(final_state.st_mode))
    return StagedFile(open(descriptor, "wb", buffering=0), temporary, final)

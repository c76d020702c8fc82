"""Commit protocol for jobs of many files: tasks fill a hidden directory, and all of it appears at one moment.

On a local disk one rename does it: of the directory, where there is none yet, or of its only file. Otherwise the new
state of the directory is made of hard links next to it, and the two are exchanged. Where nothing can be renamed or
exchanged at once, the log of the directory (`sawlog.storage.commit_log`) says which files do not count: new files
until all of them are there, then old files until all of them are deleted. What was killed in between is finished, or
taken back, by the next job.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import posixpath
import re
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from sawlog.errors import SawlogError
from sawlog.guard import decode_json
from sawlog.storage import Storage
from sawlog.storage.commit_log import CommitLog, LogRecord
from sawlog.storage.names import is_remote
from sawlog.storage.owners import find_current_owner, has_exited
from sawlog.storage.staging import (
    JOB,
    WITHIN,
    Staged,
    exchange,
    find_published_path,
    lock_file,
    name_job_directory,
    sync_directory,
)
from sawlog.storage.typed_json import parse_json_as
from sawlog.storage.workers import finish_all

LEASE_SECONDS = 600.0
"""Seconds after which a commit that nobody finished is another one's to finish, where its process cannot be seen."""

_MAX_REQUESTS = 32
"""Copies and deletions at a time."""
_POLL = 0.1
_REPLACED_NAME = ".sawlog-replaced"
"""File in a directory that is exchanged: what of it the job replaces."""
_NO_LINKS = (errno.EXDEV, errno.EPERM, errno.EMLINK, errno.ENOTSUP, errno.ENOSYS)

Item = TypeVar("Item")


@dataclass(frozen=True)
class MicroBatch:
    """A micro-batch: the query, its number, and the run of the query, another one after every start."""

    query: str
    batch: int
    run: str


@dataclass(frozen=True)
class Job:
    """Job that puts files into a directory, all at once. Picklable.

    Attributes:
        storage: Where the directory is.
        root: The directory; it holds the log.
        target: Where the files will be: the same, or a directory in it that is the job's only.
        name: No other job has it.
        staging: The hidden directory that tasks fill.
        owner: The process that the job ends with; see `sawlog.storage.owners`.
    """

    storage: Storage
    root: str
    target: str
    name: str
    staging: str
    owner: str

    @classmethod
    def begin(cls, storage: Storage, root: str, name: str) -> Job:
        """Return a job of this process that puts files into a directory itself; nothing is made yet."""
        root, owner = storage.directories.resolve_directory(root), find_current_owner()
        if _may_be_exchanged(root):
            parent, tail = os.path.split(root)
        else:
            parent, tail = root, WITHIN
        staging = posixpath.join(parent, name_job_directory(tail, name, owner))
        return cls(storage, root, root, name, staging, owner)

    def make_inner_job(self, inner: str, name: str, attempt: str) -> Job:
        """Return the job that makes one directory in this one's, at one of several attempts."""
        return replace(
            self,
            target=f"{self.root}/{inner}",
            name=name,
            staging=f"{self.root}/{name_job_directory(inner, f'{name}-{attempt}', self.owner)}",
        )

    @property
    def log(self) -> CommitLog:
        """The log of the directory."""
        return CommitLog(self.storage.directories, self.root)

    def publish(
        self, staged: Sequence[Staged], old: Callable[[], list[str]] | None = None, delivery: MicroBatch | None = None
    ) -> None:
        """Make all files visible, and what they replace disappear.

        Args:
            staged: The files, staged in the hidden directory; what others have staged there is deleted.
            old: Lists paths of files and directories in `root` that are replaced.
            delivery: The micro-batch that they are.

        Raises:
            SawlogError: When a file is already in the place of a new one, another job has taken over, or a file is
                staged elsewhere. When an old file cannot be deleted: then the new files are in place.
        """
        for item in staged:
            if not item.final.startswith(f"{self.staging}/"):
                raise SawlogError(f"{item.final}: staged for another job than {self.name}, in {self.staging}")
        recover(self.log)
        moves = self._plan_remote_moves(staged) if is_remote(self.root) else self._plan_local_moves(staged)
        if moves and not is_remote(self.root) and self._publish_at_once(moves, old):
            moves, old = [], None
        if len(moves) == 1 and old is None and delivery is None:
            self._check_free(moves)
            self.move_all(moves)
        elif moves or old is not None:
            self._publish_by_log(moves, old, delivery)
        elif delivery is not None:
            self._note(delivery)

    def sweep(self, query: str = "") -> None:
        """Delete what the job has staged, what jobs have whose process has ended, and what else a query has."""
        with contextlib.suppress(OSError):  # what is left is hidden, and the next job's to delete
            self.storage.directories.remove(self.staging)
            self.log.prune()
            for path, job, owner in find_job_directories(self.storage, self.root):
                if has_exited(owner) or (query and job.startswith(f"{query}-")):
                    dispose(self.storage, path)

    def abort(self) -> None:
        """Delete what the job has staged, and finish or take back a commit of its own that was cut off."""
        last = self.log.read_last()
        if last is not None and last.job == self.name and last.state != "done":
            recover(self.log, ours=self.name)
        self.storage.directories.remove(self.staging)

    @property
    def _inner(self) -> str:
        return f"{self.target[len(self.root) + 1 :]}/" if self.target != self.root else ""

    def _plan_remote_moves(self, staged: Sequence[Staged]) -> list[tuple[str, str]]:
        start = len(self.staging) + 1
        return [
            (path, f"{self._inner}{item.final[start:]}{path[len(item.temporary) :]}")
            for item in staged
            for path in (self.storage.directories.list_paths(item.temporary) if item.directory else [item.temporary])
        ]

    def _plan_local_moves(self, staged: Sequence[Staged]) -> list[tuple[str, str]]:
        """Name what is staged in the hidden directory; return what is to be moved out of there, and where to."""
        for item in staged:
            os.replace(item.temporary, item.final)
        if not os.path.isdir(self.staging):
            return []
        for leftover in self.storage.directories.find_staged_paths(self.staging, ""):
            self.storage.directories.remove(leftover)
        for directory, _, _ in os.walk(self.staging):
            sync_directory(directory)
        if self._inner:
            return [] if os.path.exists(self.target) else [(self.staging, self._inner)]
        names = os.listdir(self.staging)
        if len(names) == 1 and not os.path.lexists(f"{self.root}/{names[0]}"):
            return [(f"{self.staging}/{names[0]}", _make_relative_path(self.staging, f"{self.staging}/{names[0]}"))]
        return [
            (path, _make_relative_path(self.staging, path))
            for path in self.storage.directories.list_paths(self.staging)
        ]

    def _publish_at_once(self, moves: list[tuple[str, str]], old: Callable[[], list[str]] | None) -> bool:
        """Have one rename of a local directory do it all; return whether it could."""
        with _lock_directory(os.path.dirname(self.root) or "."):
            replaced = [] if old is None else old()
            if self._inner:
                return self._publish_directory(replaced)
            if os.path.dirname(self.staging) != os.path.dirname(self.root):
                return False
            if not os.path.isdir(self.root) or not os.listdir(self.root):
                if os.path.isdir(self.root):
                    _copy_attributes(self.staging, self.root)
                os.rename(self.staging, self.root)
                sync_directory(os.path.dirname(self.root) or ".")
                return True
            if len(moves) == 1 and not replaced:
                return False
            return self._exchange_directories([_make_relative_path(self.root, path) for path in replaced])

    def _publish_directory(self, replaced: list[str]) -> bool:
        """Make a directory of its own visible, be it in the place of the only other one."""
        if not replaced:
            os.rename(self.staging, self.target)
        elif len(replaced) == 1 and os.path.isdir(replaced[0]) and exchange(self.staging, replaced[0]):
            os.rename(replaced[0], self.target)
        else:
            return False
        sync_directory(self.root)
        return True

    def _exchange_directories(self, replaced: list[str]) -> bool:
        """Exchange the directory with one that holds what is kept, too; return whether that could be done."""
        try:
            _link_tree(self.root, self.staging, frozenset(replaced))
        except FileExistsError as error:
            raise self._make_exists_error(str(error.filename2 or error.filename)) from error
        except OSError as error:
            if error.errno in _NO_LINKS:
                return False
            raise
        for directory, _, _ in os.walk(self.staging):
            sync_directory(directory)
        with open(f"{self.root}/{_REPLACED_NAME}", "w", encoding="utf-8") as file:
            json.dump(replaced, file)
            file.flush()
            os.fsync(file.fileno())
        if not exchange(self.staging, self.root):
            os.unlink(f"{self.root}/{_REPLACED_NAME}")
            return False
        sync_directory(os.path.dirname(self.root) or ".")
        with _explain_failed_deletion(self.root):
            dispose(self.storage, self.staging)
        return True

    def _publish_by_log(
        self, moves: list[tuple[str, str]], old: Callable[[], list[str]] | None, delivery: MicroBatch | None
    ) -> None:
        """Let the log say which files do not count while there are some of both."""
        while True:
            last = recover(self.log)
            self._check_free(moves)
            new = tuple(path for _, path in moves)
            record = last.make_next(state="publishing", job=self.name, owner=self.owner, new=new, old=())
            if self.log.append(record):
                break
        try:
            self.move_all(moves)
            replaced = tuple(_make_relative_path(self.root, path) for path in (() if old is None else old()))
            record = _with_delivery(record, delivery).make_next(state="published", new=(), old=replaced)
            if not self.log.append(record):
                raise SawlogError(  # noqa: TRY301, it is taken back in one place
                    f"{self.root}: after {LEASE_SECONDS:.0f} s another job took this one for dead, and took it back"
                )
        except BaseException:
            with contextlib.suppress(OSError, SawlogError):
                self.abort()
                if delivery is None:  # files of a micro-batch may be there because it was repeated
                    _delete(self.log, record, new)
            raise
        with _explain_failed_deletion(self.root):
            _delete(self.log, record, replaced)
        self.log.append(record.make_next(state="done", old=()))

    def _note(self, delivery: MicroBatch) -> None:
        """Remember that a micro-batch is there."""
        while not self.log.append(_with_delivery(recover(self.log), delivery).make_next(job=self.name)):
            pass

    def _check_free(self, moves: list[tuple[str, str]]) -> None:
        finals = [f"{self.root}/{path}" for _, path in moves]
        for path, exists in zip(finals, finish_all(finals, self.storage.exists, _MAX_REQUESTS), strict=True):
            if exists:
                raise self._make_exists_error(path)

    def _make_exists_error(self, path: str) -> SawlogError:
        return SawlogError(f"{find_published_path(path)}: exists already, and job {self.name} has not written it")

    def move_all(self, moves: list[tuple[str, str]]) -> None:
        """Put files where they belong, many at a time."""
        move = self.storage.directories.move
        finish_all(moves, lambda paths: move(paths[0], f"{self.root}/{paths[1]}"), _MAX_REQUESTS)
        if not is_remote(self.root):
            for directory in {os.path.dirname(f"{self.root}/{path}".rstrip("/")) for _, path in moves}:
                sync_directory(directory)


def recover(log: CommitLog, ours: str = "") -> LogRecord:
    """Finish, or take back, what a job has begun in a directory; of one at work, except `ours`, the end is awaited.

    Returns:
        The last record, which says that all is done.

    Raises:
        SawlogError: When a file cannot be deleted.
    """
    while True:
        last = log.read_last() or LogRecord()
        if last.state == "done":
            return last
        if last.job != ours and not is_abandoned(log, last):
            time.sleep(_POLL)
            continue
        commit_record = last.make_next(owner=find_current_owner())  # so that no one else does the same
        if log.append(commit_record):
            with _explain_failed_deletion(log.directory):
                _delete(log, commit_record, commit_record.list_hidden_paths())
            log.append(commit_record.make_next(state="done", new=(), old=()))


def is_abandoned(log: CommitLog, record: LogRecord) -> bool:
    """Return whether nobody is at work on what a record says: its process has ended, or the lease has."""
    modified = log.find_modified_time()
    return has_exited(record.owner) is True or (modified is not None and time.time() - modified > LEASE_SECONDS)


def find_job_directories(storage: Storage, root: str) -> Iterator[tuple[str, str, str]]:
    """Yield the hidden directories of jobs that write to a directory: their paths, the jobs and the owners."""
    places = [(root, r".+")]
    if not is_remote(root):
        places.append((os.path.dirname(root) or ".", re.escape(os.path.basename(root))))
    for parent, target in places:
        for name in storage.directories.list_names(parent):
            match = JOB.fullmatch(name)
            if match and re.fullmatch(target, match["target"]):
                yield f"{parent}/{name}", match["job"], match["owner"]


def dispose(storage: Storage, staged: str) -> None:
    """Delete a hidden directory. What others have put there while it was exchanged is put where it belongs, first."""
    replaced = None if is_remote(staged) else _read_list(f"{staged}/{_REPLACED_NAME}")
    if replaced is not None:
        _move_late_files(staged, find_published_path(staged), frozenset(replaced))
    storage.directories.remove(staged)


def _link_tree(source: str, target: str, left_out: frozenset[str], inner: str = "") -> None:
    """Make hard links of what is in a directory, but for some of it, with the modes and owners of directories."""
    _copy_attributes(target, source)
    with os.scandir(source) as entries:
        for entry in entries:
            path = f"{inner}{entry.name}"
            place = f"{target}/{entry.name}"
            if entry.is_dir(follow_symlinks=False):
                if f"{path}/" not in left_out:
                    os.makedirs(place, exist_ok=True)
                    _link_tree(entry.path, place, left_out, f"{path}/")
            elif path not in left_out and entry.name != _REPLACED_NAME:
                with contextlib.suppress(FileNotFoundError):
                    os.link(entry.path, place, follow_symlinks=False)


def _copy_attributes(directory: str, other: str) -> None:
    """Give a directory the mode and owner of another one; its time of change stays its own."""
    shutil.copystat(other, directory)
    os.utime(directory)
    with contextlib.suppress(PermissionError):
        os.chown(directory, os.stat(other).st_uid, os.stat(other).st_gid)


def _move_late_files(old: str, current: str, replaced: frozenset[str], inner: str = "") -> None:
    """Move to a directory what was put at the last moment into the directory that it has replaced."""
    with os.scandir(old) as entries:
        for entry in entries:
            path, place = f"{inner}{entry.name}", f"{current}/{entry.name}"
            if entry.is_dir(follow_symlinks=False):
                if os.path.isdir(place):
                    _move_late_files(entry.path, place, replaced, f"{path}/")
                elif f"{path}/" not in replaced and not os.path.lexists(place):
                    os.rename(entry.path, place)
            elif path not in replaced and entry.name != _REPLACED_NAME and _is_newer(entry.path, place):
                os.replace(entry.path, place)


def _is_newer(path: str, place: str) -> bool:
    try:
        target_state = os.lstat(place)
    except FileNotFoundError:
        return True
    file_state = os.lstat(path)
    return not os.path.samestat(file_state, target_state) and file_state.st_mtime_ns > target_state.st_mtime_ns


def _delete(log: CommitLog, record: LogRecord, paths: Iterable[str]) -> None:
    """Delete files and directories, many at a time. Nobody sees a part of a local directory: it is renamed first."""
    directories, root = log.directories, log.directory

    def delete(path: str) -> None:
        place = f"{root}/{path}"
        if path.endswith("/") and not is_remote(root):
            parent, name = os.path.split(place.rstrip("/"))
            aside = f"{parent}/{name_job_directory(name, record.job, record.owner)}"
            with contextlib.suppress(FileNotFoundError):
                os.rename(place, aside)
            directories.remove(aside)
        elif path.endswith("/"):
            directories.remove_all(place)
        else:
            directories.remove(place)

    finish_all(paths, delete, _MAX_REQUESTS)


def _with_delivery(record: LogRecord, delivery: MicroBatch | None) -> LogRecord:
    if delivery is None:
        return record
    return replace(
        record,
        batches={**record.batches, delivery.query: delivery.batch},
        runs={**record.runs, delivery.query: delivery.run},
    )


def _make_relative_path(root: str, path: str) -> str:
    """Return the path of a file, or of a directory with a slash after it, relative to another one."""
    inner = path.rstrip("/")[len(root) + 1 :]
    return f"{inner}/" if path.endswith("/") or (not is_remote(path) and os.path.isdir(path)) else inner


def _may_be_exchanged(root: str) -> bool:
    """Return whether a hidden directory can be next to a directory, to be renamed or exchanged with it."""
    if is_remote(root):
        return False
    parent = os.path.dirname(root) or "."
    if not os.path.isdir(parent):
        return True
    device = os.stat(root).st_dev if os.path.isdir(root) else os.stat(parent).st_dev
    return os.access(parent, os.W_OK | os.X_OK) and device == os.stat(parent).st_dev and not os.path.ismount(root)


@contextlib.contextmanager
def _lock_directory(directory: str) -> Iterator[None]:
    """Be the only process that renames in a local directory; without locks there is no such process."""
    if not os.path.isdir(directory):
        yield
        return
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        lock_file(descriptor, waits=True)
        yield
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def _explain_failed_deletion(root: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise SawlogError(
            f"{root}: the new files are in place, but what they replace cannot be deleted: {error}"
        ) from error


def _read_list(path: str) -> list[str] | None:
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read()
    except (FileNotFoundError, NotADirectoryError):
        return None
    names: list[str] = parse_json_as(decode_json(text), list[str], path)
    return names

"""Leftovers of writers that were killed, in a directory: found, and deleted where that is proven."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from sawlog.storage import PathLike, Storage
from sawlog.storage.commit import dispose, find_job_directories, is_abandoned, recover
from sawlog.storage.commit_log import CommitLog
from sawlog.storage.owners import PATTERN, has_exited
from sawlog.storage.staging import JOB, STAGED_SUFFIX

DAY = 86_400.0
_OWN_FILE = re.compile(rf"(?!.*\.old\.)\..+\.(?:{PATTERN}-)?[0-9a-f]{{12}}{re.escape(STAGED_SUFFIX)}")
"""A file or directory of a writer without a job; not one that has stepped aside, and may have to come back."""


@dataclass(frozen=True, slots=True)
class Leftover:
    """Something hidden that a writer has made.

    Attributes:
        path: A staged file or directory; the directory whose log has a commit that was cut off.
        kind: `staged` or `commit`.
        files: How many files it is; of a commit, how many files and directories do not count.
        size: Bytes in them; 0 of a commit.
        dead: Whether its writer has ended; if that cannot be known, whether it has not changed for long.
        reason: Why, or why not.
    """

    path: str
    kind: str
    files: int
    size: int
    dead: bool
    reason: str


def vacuum(
    path: PathLike, *, older_than: float = DAY, dry_run: bool = False, storage_options: Mapping[str, Any] | None = None
) -> list[Leftover]:
    """Delete what writers that were killed have left in a directory, and finish commits that were cut off.

    Files that count are never deleted, and nothing of a process that still runs on this machine.

    Args:
        path: The directory.
        older_than: Seconds without a change after which that is dead whose process cannot be seen from here.
        dry_run: Delete nothing.
        storage_options: What fsspec needs to reach the path.

    Returns:
        All that was found; what is dead was deleted.

    Raises:
        FileNotFoundError: When there is no such directory.
        SawlogError: When something cannot be deleted.
    """
    storage = Storage(dict(storage_options or {}))
    root = storage.directories.resolve_directory(path)
    if not storage.is_directory(root):
        raise FileNotFoundError(f"{root}: no such directory")
    leftovers = []
    for commit in _find_commits(storage, root):
        leftovers.append(commit)
        if commit.dead and not dry_run:
            recover(CommitLog(storage.directories, commit.path))
    for leftover in _find_staged(storage, root, older_than):
        leftovers.append(leftover)
        if leftover.dead and not dry_run:
            dispose(storage, leftover.path)
    return leftovers


def _find_commits(storage: Storage, root: str) -> Iterator[Leftover]:
    for directory in storage.directories.list_log_directories(root):
        log = CommitLog(storage.directories, directory)
        last = log.read_last()
        if last is not None and last.state != "done":
            dead = is_abandoned(log, last)
            reason = f"{last.state}, its writer {'has ended' if dead else 'may be at work'}"
            yield Leftover(directory, "commit", len(last.list_hidden_paths()), 0, dead, reason)


def _find_staged(storage: Storage, root: str, older_than: float) -> Iterator[Leftover]:
    paths = dict.fromkeys(
        [
            *(path for path, _, _ in find_job_directories(storage, root)),
            *storage.directories.find_staged_paths(root, ""),
        ]
    )
    for path in paths:
        name = path.rstrip("/").rpartition("/")[2]
        job = JOB.fullmatch(name)
        if job is None and not _OWN_FILE.fullmatch(name):
            continue
        files = [storage.directories.stat(file) for file in storage.directories.list_paths(path) or [path]]
        ended = has_exited(job["owner"]) if job else None
        idle = time.time() - max((file.modified or time.time() for file in files), default=time.time())
        reason = {
            True: "its process has ended",
            False: "its process is at work",
            None: f"not changed for {idle:.0f} s",
        }[ended]
        dead = idle > older_than if ended is None else ended
        yield Leftover(path, "staged", len(files), sum(file.size for file in files), dead, reason)

"""The log of a directory that jobs write: which of its files do not count, and what streams have delivered.

A directory has a log, `_sawlog/`, once a job needed one. Each state is a file of its own, `_sawlog/00000007.json`, made
only where none of that number is; the highest number counts. Readers leave out what it says.
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, Literal, TypeVar

from sawlog.errors import FormatError
from sawlog.guard import decode_json
from sawlog.storage.staging import DirectoryOperations, FileInfo
from sawlog.storage.typed_json import parse_json_as

LOG = "_sawlog"
"""Directory of the log, in the directory that it is about."""

_ANCESTORS = 16
"""Records before it that a record knows."""

_File = TypeVar("_File", bound=FileInfo)
_NAME = re.compile(r"(\d{8})\.json")

_STAGED = re.compile(r"\.?(?P<number>\d{8})\.json")

State = Literal["publishing", "published", "done"]


@dataclass(frozen=True)
class LogRecord:
    """A state of a directory. Paths are relative to it; those of directories end with a slash.

    Attributes:
        number: Of the state: 1, 2, ...
        state: `publishing`: files of `new` do not count yet. `published`: files of `old` do not count any more, and are
            being deleted. `done`: everything counts.
        job: Who made it.
        owner: The process that does the work; see `sawlog.storage.owners`.
        new: What the job adds.
        old: What that replaces.
        batches: The last micro-batch that each query has written, by the query's id.
        runs: The run of the query that did it.
        token: Different in every record.
        before: Tokens of the records before it, the last ones.
    """

    number: int = 0
    state: State = "done"
    job: str = ""
    owner: str = ""
    new: Sequence[str] = ()
    old: Sequence[str] = ()
    batches: Mapping[str, int] = field(default_factory=dict)
    runs: Mapping[str, str] = field(default_factory=dict)
    token: str = field(default_factory=lambda: uuid.uuid4().hex)
    before: Sequence[str] = ()

    def make_next(self, **changes: Any) -> LogRecord:
        """Return the record that follows this one, with some changes."""
        before = (*self.before[1 - _ANCESTORS :], self.token)
        return replace(self, number=self.number + 1, token=uuid.uuid4().hex, before=before, **changes)

    def list_hidden_paths(self) -> frozenset[str]:
        """Return the files and directories that do not count."""
        return frozenset({"publishing": self.new, "published": self.old, "done": ()}[self.state])


@dataclass(frozen=True)
class CommitLog:
    """The log of one directory."""

    directories: DirectoryOperations
    directory: str

    def read_last(self) -> LogRecord | None:
        """Return the record that counts; `None` where there is no log.

        Raises:
            FormatError: When it is not one of ours.
        """
        while True:
            numbers = self._list_numbers()
            if not numbers:
                return None
            path = self._build_path(numbers[-1])
            try:
                text = self.directories.read_now(path)
            except FileNotFoundError:
                continue  # there is a later one now
            return _parse_record(path, text)

    def append(self, record: LogRecord) -> bool:
        """Add a record, delete those before it, and return whether that worked: another job may have been faster."""
        path = self._build_path(record.number)
        text = json.dumps(asdict(record), sort_keys=True).encode()
        try:
            self.directories.create(path, text)
        except FileExistsError:
            try:  # a store that answered late, and was asked again, has refused what it had taken before
                if self.directories.read_now(path) != text:
                    return False
            except FileNotFoundError:
                return False
        last = self.read_last()
        if last is None or (last.token != record.token and record.token not in last.before):
            self.directories.remove(path)  # it is one of those that were deleted: others have gone on
            return False
        self.prune()
        return True

    def prune(self) -> None:
        """Delete records before the last one, and those that were cut off, or too late, while they were written."""
        last = max(self._list_numbers(), default=0)
        for name in self.directories.list_names(f"{self.directory}/{LOG}"):
            match = _STAGED.match(name)
            if match and int(match["number"]) < last + name.startswith("."):
                self.directories.remove(f"{self.directory}/{LOG}/{name}")

    def find_modified_time(self) -> float | None:
        """Return when the last record was made, in seconds since the epoch; None if the storage does not say."""
        return self.directories.stat(self._build_path(max(self._list_numbers(), default=0))).modified

    def _build_path(self, number: int) -> str:
        return f"{self.directory}/{LOG}/{number:08d}.json"

    def _list_numbers(self) -> list[int]:
        names = self.directories.list_names(f"{self.directory}/{LOG}")
        return sorted(int(match[1]) for match in map(_NAME.fullmatch, names) if match)


def list_committed_files(
    directories: DirectoryOperations, root: str, listing: Callable[[], tuple[Iterable[_File], Iterable[str]]]
) -> Iterable[_File]:
    """Return the files that count.

    The log is looked at before and after the directory is listed: both have to show the same state. A file has none.
    """
    before: dict[str, LogRecord] = {}
    while True:
        files, inner = listing()
        files = list(files)
        above = () if len(files) == 1 and files[0].path == root else (root,)
        logs = {path.rstrip("/") for path in (*above, *inner)}
        after = {path: record for path in logs if (record := CommitLog(directories, path).read_last()) is not None}
        if after == before:
            break
        before = after
    for directory, record in after.items():
        start, hidden = f"{directory}/", record.list_hidden_paths()
        files = [
            file
            for file in files
            if not (hidden and file.path.startswith(start) and _is_within(file.path, start, hidden))
        ]
    return files


def _is_within(path: str, start: str, names: Container[str]) -> bool:
    """Return whether a file is among names below a directory, or in one of them."""
    inner = path[len(start) :]
    return inner in names or any(inner[: index + 1] in names for index, sign in enumerate(inner) if sign == "/")


def _parse_record(path: str, text: bytes) -> LogRecord:
    """Return a record of the log; what later versions may have added is left out."""
    description = f"{path}: not a record of a job"
    settings = parse_json_as(decode_json(text), dict[str, Any], description)
    if missing := [member.name for member in fields(LogRecord) if member.name not in settings]:
        raise FormatError(f"{description}: {missing[0]} is missing")
    record: LogRecord = parse_json_as(settings, LogRecord, description)
    for member in (*record.new, *record.old):
        if not member or member.startswith("/") or ".." in member.split("/"):
            raise FormatError(f"{description}: expected a path below the directory, found {member!r}")
    return record

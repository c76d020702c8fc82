"""The record of an examination: every dataset of a folder with verdict, views, times, and hashes of the files read."""

from __future__ import annotations

import contextlib
import datetime as dt
import functools
import hashlib
import os
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from sawlog.dataset.folder import Folder, FolderPart, describe_missed_part
from sawlog.dataset.timeline import MAX_EVENTS, Day, Timeline, TimelineEvent
from sawlog.errors import collect_warnings
from sawlog.format.capabilities import HasDecoders
from sawlog.format.damage import Report, Skipped, Verdict
from sawlog.storage import File, PathLike, Source, Storage, map_files, normalize

_WINDOW_BYTES = 4 << 20

_OPENED: ContextVar[dict[str, None] | None] = ContextVar("opened", default=None)


@contextlib.contextmanager
def _record_files() -> Iterator[dict[str, None]]:
    """Record the files that a `RecordingStorage` opens, here and in the threads that work for this one."""
    opened: dict[str, None] = {}
    token = _OPENED.set(opened)
    try:
        yield opened
    finally:
        _OPENED.reset(token)


@dataclass(frozen=True)
class RecordingStorage(Storage):
    """A storage that records the files that are opened, for whom `_record_files` asks."""

    def open(self, path: PathLike | File, end: int | None = None) -> Source:
        """Open one file for reading, and record its path."""
        self._record_path(path)
        return super().open(path, end)

    def read(self, path: PathLike | File, offset: int = 0, length: int | None = None) -> bytes:
        """Return a small range of one file, whose path is recorded."""
        self._record_path(path)
        return super().read(path, offset, length)

    def _open(self, name: str, file: File | None, end: int | None) -> Source:
        """Open a file as it is, such as those that make up an object of a server's, and record its path."""
        self._note(name)
        return super()._open(name, file, end)

    def list_object_files(self, name: str) -> list[str]:
        """Return the file, or the metadata on drives of an object that a server keeps; parts are recorded when read."""
        stored = self._find_object(name)
        return [name] if stored is None else [shard.meta for shard in stored.shards.values()]

    def _record_path(self, path: PathLike | File) -> None:
        name = path.path if isinstance(path, File) else normalize(path)
        if self._find_object(name) is None:
            self._note(name)

    def _note(self, name: str) -> None:
        opened = _OPENED.get()
        if opened is not None:
            opened[name] = None


@dataclass(frozen=True, slots=True)
class HashedFile:
    """A file that was read.

    Attributes:
        path: The file.
        size: Its bytes.
        modified: When it was changed last, with the zone; `None` where that is not known.
        sha256: Its SHA-256, in hexadecimal digits.
    """

    path: str
    size: int
    modified: str | None
    sha256: str

    @classmethod
    def of(cls, path: str, storage: Storage) -> HashedFile | None:
        """Read a file and hash it; `None` where there is none.

        Raises:
            ChangedError: When it is not the one that the storage has found.
        """
        digest = hashlib.sha256()
        try:
            opened = storage.open(path)
        except FileNotFoundError:
            return None
        with contextlib.closing(opened) as source:
            for start in range(0, source.size, _WINDOW_BYTES):
                digest.update(source.read_window(start, min(_WINDOW_BYTES, source.size - start)).tobytes())
            size = source.size
        modified = None
        with contextlib.suppress(OSError):
            modified = dt.datetime.fromtimestamp(os.stat(path).st_mtime).astimezone().isoformat()
        return cls(path, size, modified, digest.hexdigest())

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return {"path": self.path, "size": self.size, "modified": self.modified, "sha256": self.sha256}


@dataclass(frozen=True, slots=True)
class ExaminedPart:
    """A dataset of a folder.

    Attributes:
        path: The directory or file that it is.
        title: The title of its format.
        report: The findings of `verify`.
        views: Rows by view: the one that was asked for, and those that decode the rows of an application.
        files: The files that were opened, metadata included.
        timeline: The times in its rows.
    """

    path: str
    title: str
    report: Report
    views: dict[str, int]
    files: list[HashedFile]
    timeline: Timeline

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return {
            "path": self.path,
            "title": self.title,
            "verdict": str(self.report.verdict),
            "views": self.views,
            "hashes": [file.to_dict() for file in self.files],
            **self.report.to_dict(),
        }


@dataclass(slots=True)
class Examination:
    """All datasets of a folder, and the files that are of none.

    Attributes:
        paths: The examined paths.
        begin_time: When the examination began, with the zone.
        parts: The datasets that were read.
        skipped: Files and datasets that were not read, and why.
    """

    paths: list[str]
    begin_time: str
    parts: list[ExaminedPart] = field(default_factory=list)
    skipped: list[Skipped] = field(default_factory=list)

    @property
    def verdicts(self) -> list[Verdict]:
        """The verdict of each part; a part that could not be read is incomplete."""
        missed = [Verdict.INCOMPLETE for skipped in self.skipped if skipped.missed]
        return [*(part.report.verdict for part in self.parts), *missed]

    @property
    def events(self) -> list[TimelineEvent]:
        """The newest times of all parts, in order."""
        events = [event for part in self.parts for event in part.timeline.events]
        return sorted(events, key=lambda event: event.nanoseconds)

    @property
    def days(self) -> list[Day]:
        """The number of times on each day, in order."""
        return sorted((day for part in self.parts for day in part.timeline.days), key=lambda day: day.order)

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return {
            "begun": self.begin_time,
            "paths": self.paths,
            "parts": [part.to_dict() for part in self.parts],
            "skipped": [skipped.to_dict() for skipped in self.skipped],
            "timeline": {
                "newest_of_each_part": MAX_EVENTS,
                "events": [event.to_dict() for event in self.events],
                "days": [day.to_dict() for day in self.days],
            },
        }


def examine(
    folder: Folder, paths: list[str], recorder: RecordingStorage, advance: Callable[[int], None] | None = None
) -> Examination:
    """Check every dataset of a folder, count rows of its views, note their times, and hash every file that this opens.

    Args:
        folder: Datasets that were found with the storage `recorder`.
        paths: The paths of the folder, as they were named.
        recorder: Records the files that are opened.
        advance: Called with the bytes of each dataset that is done.

    Raises:
        SawlogError: When the folder is one dataset, and it cannot be read.
    """
    begin_time = dt.datetime.now().astimezone().isoformat(timespec="seconds")
    examination = Examination(paths, begin_time, skipped=list(folder.skipped))
    for part, outcome in folder.map_parts(functools.partial(_examine_part, recorder=recorder)):
        if isinstance(outcome, Exception):
            examination.skipped.append(describe_missed_part(part, outcome))
        else:
            examination.parts.append(outcome)
        if advance is not None:
            advance(part.size)
    return examination


def _examine_part(part: FolderPart, recorder: RecordingStorage) -> ExaminedPart:
    with _record_files() as opened:
        dataset = part.open()
        report = dataset.report(every=True)
        views = {dataset.scan.view: report.rows}
        timeline = Timeline(part.path)
        contents = dataset.contents
        with collect_warnings():  # the report has what they say
            for name, table in part.open_tables(dataset).items():
                timeline.read(table, f"{table.scan.view} of {name}" if name else table.scan.view)
            for view in contents.find_decoders() if isinstance(contents, HasDecoders) else ():
                decoded = part.open(view=view)
                rows = timeline.read(decoded, view)
                views[view] = decoded.count_rows() if rows is None else rows
    paths = {path for file in dataset.files for path in recorder.list_object_files(file.path)} | opened.keys()
    hashes = map_files(lambda file: HashedFile.of(file.path, recorder), [File(path, 0) for path in sorted(paths)])
    hashed = [file for file in hashes if file is not None]
    return ExaminedPart(part.path, part.title, report, views, hashed, timeline)

"""The contract between formats and doors: Format, Dataset, Fragment, Writer; and the registry of formats."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from enum import IntEnum
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any, ClassVar, Self

import pyarrow as pa

from sawlog.dataset import Dataset, Fragment
from sawlog.errors import FormatError, OptionError
from sawlog.follow import FollowedFormat
from sawlog.guard import guarded
from sawlog.packing import TASK_BYTES, pack
from sawlog.reading import in_order, once
from sawlog.scan import (
    FILE_COLUMN,
    OFFSET_COLUMN,
    PROVENANCE,
    Projection,
    Scan,
)
from sawlog.skipped import Skipped
from sawlog.spelling import meant
from sawlog.storage import File, Staged, StagedFile, Storage

__all__ = [
    "FILE_COLUMN",
    "OFFSET_COLUMN",
    "PROBE_BYTES",
    "PROVENANCE",
    "TASK_BYTES",
    "Dataset",
    "FileWriter",
    "Format",
    "Fragment",
    "Match",
    "Projection",
    "Scan",
    "Writer",
    "formats",
    "get_format",
    "pack",
    "recognize",
]

ENTRY_POINT_GROUP = "sawlog.formats"
PROBE_BYTES = 64 << 10
"""Bytes from the start of a file that recognition may look at."""


class Match(IntEnum):
    """How sure a format is that a file is its own."""

    NO = 0
    BESIDE = 1
    """It lies beside files of another format, and is meant only where none of them is there."""
    NAME = 2
    CONTENT = 3
    TREE = 4
    """Nobody else lays a whole directory out like this; other files may lie in it, be they of a format of their own."""


class Writer(ABC):
    """Takes record batches and makes files that the original system accepts.

    Nothing is visible before `publish`. As a context manager it publishes on success and leaves nothing on failure.
    """

    storage: Storage

    @abstractmethod
    def write(self, batch: pa.RecordBatch) -> None:
        """Append the rows of a batch.

        Raises:
            SchemaError: For anything the format cannot represent; names column and row.
        """

    @abstractmethod
    def finish(self) -> list[Staged]:
        """Complete all files and make them durable, still under their temporary names."""

    @abstractmethod
    def abort(self) -> None:
        """Stop, and leave nothing behind."""

    def publish(self) -> list[Staged]:
        """Complete all files and make them visible."""
        staged = self.finish()
        self.storage.publish(staged)
        return staged

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if kind is not None:
            self.abort()
            return
        try:
            self.publish()
        except BaseException:
            self.abort()
            raise


class FileWriter(Writer):
    """A writer of one file."""

    _file: StagedFile
    """The file, or something else that is finished or discarded; the writer's to open."""

    def finish(self) -> list[Staged]:
        """See `Writer.finish`."""
        self._flush()
        return [self._file.finish()]

    def abort(self) -> None:
        """See `Writer.abort`."""
        self._file.discard(self.storage)

    def _flush(self) -> None:
        """Write what is still in hand, at the end."""
        return


class Format(FollowedFormat, ABC):
    """Knows one kind of file: recognises it, opens it as a dataset, writes and repairs it.

    Third-party packages add formats through the entry point group `sawlog.formats`.
    """

    name: ClassVar[str]
    """Short name: of the package, in Python, in Spark and on the command line."""
    title: ClassVar[str]
    """What people call it."""
    suffix: ClassVar[str]
    """Suffix of the files that it writes, with the dot."""
    views: ClassVar[Mapping[str, str]]
    """Views and one line on each; every format has `rows` and `damage`."""
    marks: ClassVar[frozenset[str]] = frozenset()
    """Columns that say how a row was found, which a repaired copy does not keep."""
    read_options: ClassVar[type]
    """Frozen dataclass of the options for reading."""
    write_options: ClassVar[type]
    """Frozen dataclass of the options for writing."""
    time_option: ClassVar[str | None] = None
    """The read option that names a time: what it reads is as it was then. `None` where there are no earlier times."""

    @abstractmethod
    def match(self, file: File, head: bytes) -> Match:
        """Whether a file is of this format, judged by its name and its first `PROBE_BYTES`."""

    @abstractmethod
    def select(self, files: Sequence[File], view: str) -> list[File]:
        """Those files of a directory or glob that belong to a dataset of this format, in reading order."""

    def left_out(self, files: Sequence[File], view: str) -> list[Skipped]:
        """Why files that `select` did not choose are not read, judged by their names.

        A format whose rows can also stand in files that it cannot read names them, as `missed`.
        """
        others = {name: {one.path for one in self.select(files, name)} for name in self.views if name != view}

        def reason(file: File) -> str:
            readers = [name for name, paths in others.items() if file.path in paths]
            return f"read by view {' or '.join(map(repr, readers))}" if readers else f"no {self.title}"

        return [Skipped(file.path, reason(file), file.size) for file in files]

    @abstractmethod
    def open(self, files: Sequence[File], scan: Scan) -> Dataset:
        """Open files as one dataset."""

    @abstractmethod
    def writer(self, path: str, schema: pa.Schema, options: Any, storage: Storage) -> Writer:
        """Begin writing to `path`.

        Raises:
            SchemaError: When the schema cannot be represented.
        """

    def partitioned_writer(self, path: str, column: str, schema: pa.Schema, options: Any, storage: Storage) -> Writer:
        """Begin writing to the partitions below `path` that the values of a column name.

        Raises:
            OptionError: When the format has no partitions.
            SchemaError: When the column cannot tell them, or the schema cannot be represented.
        """
        raise OptionError(f"partition_by={column!r}: {self.name} has no partitions; write what belongs apart by itself")

    def task_writer(
        self, directory: str, job: str, task: int, schema: pa.Schema, options: Any, storage: Storage
    ) -> Writer:
        """Begin the share of one task in a directory that many tasks write.

        Args:
            directory: What the job writes; one file per task unless the format knows better.
            job: A name that no other job has; it stands in the names of all files, staged ones included.
            task: Number of the task; no two of a job share one, but for attempts at the same work.
            schema: The columns.
            options: Write options.
            storage: Where the directory is.
        """
        return self.writer(f"{directory.rstrip('/')}/part-{task:05d}-{job}{self.suffix}", schema, options, storage)

    def replaced(self, files: Sequence[File], root: str) -> list[str]:
        """What is deleted when new files replace those below a directory: files, or the directories they make up.

        Args:
            files: What `select` has chosen.
            root: The directory that was written; it stays.
        """
        del root
        return [file.path for file in files]

    @abstractmethod
    def repair(self, file: File, target: str, options: Any, storage: Storage) -> None:
        """Write the intact content of one file to a new file at `target`.

        Args:
            file: The damaged file; it is not changed.
            target: The new file.
            options: Read options.
            storage: Where both are.

        Raises:
            FormatError: When nothing can be taken out of it.
        """

    def repair_files(
        self, dataset: Dataset, places: Sequence[tuple[File, str]], storage: Storage, threads: int
    ) -> None:
        """Write what `skip` delivers of a dataset to new files: each of its own, by `repair`, unless overridden.

        Args:
            dataset: The files as they are read.
            places: Its files, and where the new ones go.
            storage: Where both are; it publishes what is written once it has proven to be what the dataset delivers.
            threads: How many threads work.
        """

        def repaired(one: tuple[File, str]) -> None:
            file, place = one
            with guarded(f"{file.path}: repair as {self.name} failed"):
                self.repair(file, place, dataset.scan.options, storage)

        for _ in in_order(places, once(repaired), threads if len(places) > 1 else 1):
            pass

    def recognize(self, files: Sequence[File], storage: Storage) -> Match:
        """How sure the format is that a path, given as the list of its files, is its own."""
        probed = (self.match(file, storage.read(file.path, 0, PROBE_BYTES)) for file in files[:8])
        return max(probed, default=Match.NO)


@cache
def formats() -> dict[str, Format]:
    """All formats, by name, from the entry points that are installed."""
    return {name: _load(point) for name, point in _entry_points().items()}


@cache
def get_format(name: str) -> Format:
    """The format of that name.

    Raises:
        OptionError: When there is none.
    """
    known = _entry_points()
    if name not in known:
        raise OptionError(f"unknown format {name!r}{meant(name, known)}; known formats: {', '.join(known)}")
    return _load(known[name])


def _entry_points() -> dict[str, EntryPoint]:
    return {point.name: point for point in sorted(entry_points(group=ENTRY_POINT_GROUP), key=lambda one: one.name)}


@cache
def _load(point: EntryPoint) -> Format:
    """Only what is asked for: each of Spark's Python processes starts with this."""
    format: Format = point.load()()
    return format


def recognize(files: Sequence[File], storage: Storage, where: str, view: str = "rows") -> Format:
    """The one format that knows the files best, of those that have the view.

    Raises:
        FormatError: When no format knows them, or several know them equally well.
    """
    scores: dict[str, Match] = {}
    having = {name: one for name, one in formats().items() if view in one.views}
    for name, candidate in (having or formats()).items():
        # What the view reads tells, where nothing is there that rows are read of: the MANIFEST of a database, say.
        told = candidate.select(files, "rows") or candidate.select(files, view)
        chosen = told or (files if len(files) == 1 else [])
        with guarded(f"{where}: {name} could not tell whether the path is its own; name the format"):
            scores[name] = candidate.recognize(chosen, storage) if chosen else Match.NO
    best = max(scores.values(), default=Match.NO)
    names = [name for name, score in scores.items() if score == best]
    if best is Match.NO:
        head = storage.read(files[0].path, 0, 16).hex(" ") or "none, the file is empty"
        found = f"first bytes: {head}" if len(files) == 1 else f"{len(files)} files, none of a known kind"
        raise FormatError(f"{where}: not recognised ({found}); name one of {', '.join(scores)} as the format")
    if len(names) > 1:
        raise FormatError(f"{where}: could be {' or '.join(names)}; name the format")
    return formats()[names[0]]

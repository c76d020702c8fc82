"""The contract between formats and doors: Format, Dataset, Fragment, Writer."""

from __future__ import annotations

import contextlib
import json
import posixpath
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Self

import pyarrow as pa

from sawlog.dataset import Dataset, Fragment
from sawlog.errors import OptionError
from sawlog.follow import FollowedFormat
from sawlog.guard import guarded
from sawlog.packing import TASK_BYTES, pack
from sawlog.reading import in_order, once
from sawlog.recognition import Match, formats, get_format
from sawlog.scan import (
    FILE_COLUMN,
    OFFSET_COLUMN,
    PROVENANCE,
    Projection,
    Scan,
)
from sawlog.skipped import Skipped
from sawlog.storage import File, Staged, StagedFile, Storage

if TYPE_CHECKING:
    from sawlog.damage import FileReport

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
]

PROBE_BYTES = 64 << 10
"""Bytes from the start of a file that recognition may look at."""


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
    rescue: ClassVar[Mapping[str, Any]] = {}
    """Read options under which damaged files give more rows, each proven by a checksum."""
    includes: ClassVar[frozenset[str]] = frozenset()
    """Formats whose files are parts of its own: where it is recognised, it is meant instead of them."""
    time_option: ClassVar[str | None] = None
    """The read option that names a time: what it reads is as it was then. `None` where there are no earlier times."""

    @abstractmethod
    def match(self, file: File, head: bytes) -> Match:
        """Whether a file is of this format, judged by its name and its first `PROBE_BYTES`."""

    @abstractmethod
    def select(self, files: Sequence[File], view: str) -> list[File]:
        """Those files of a directory or glob that belong to a dataset of this format, in reading order."""

    def home(self, file: File) -> str:
        """The directory of the dataset that a file belongs to, judged by its path."""
        return posixpath.dirname(file.path)

    def left_out(self, files: Sequence[File], view: str) -> list[Skipped]:
        """Why files that `select` did not choose are not read, as far as the format knows: another view reads them.

        A format whose rows can also be in files that it cannot read names them, as `missed`.
        """
        others = {name: {one.path for one in self.select(files, name)} for name in self.views if name != view}
        readers = {file: [repr(name) for name, paths in others.items() if file.path in paths] for file in files}
        found = [(file, f"read by view {' or '.join(views)}") for file, views in readers.items() if views]
        return [Skipped(file.path, reason, file.size) for file, reason in found]

    def rescued(self, reports: Sequence[FileReport], files: Sequence[File], scan: Scan) -> str:
        """What more can be read of damaged files, as a phrase for people; empty if nothing.

        Args:
            reports: What `verify` found in the files.
            files: Files with damage.
            scan: How they were read.
        """
        given = {name: getattr(scan.options, name) for name in self.rescue}
        if given == self.rescue or scan.view not in ("rows", "writes") or not scan.options.verify_checksums:
            return ""
        with contextlib.suppress(OptionError):  # options that exclude each other
            dataset = self.open(files, replace(scan, options=replace(scan.options, **self.rescue)))
            if (more := dataset.count(lambda *_: None) - sum(one.rows for one in reports)) > 0:
                options = " ".join(f"-o {name}={json.dumps(value)}" for name, value in self.rescue.items())
                return f"{more:,} more row{'s' if more > 1 else ''} with {options}"
        return ""

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

"""The contract between formats and doors: Format, Dataset, Fragment, Writer; and the registry of formats."""

from __future__ import annotations

import itertools
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import cache, cached_property
from importlib.metadata import EntryPoint, entry_points
from typing import Any, ClassVar, Self

import pyarrow as pa

from sawlog.damage import DAMAGE_SCHEMA, MAX_LISTED, DamageWarning, FileReport, Findings
from sawlog.errors import FormatError, OptionError
from sawlog.follow import FollowedDataset, FollowedFormat
from sawlog.guard import decoded, guarded
from sawlog.reading import PIECE_BYTES, Remarks, count_fragments, in_order, read_fragments
from sawlog.scan import (
    BYTES_COLUMN,
    DAMAGE_EXTRA,
    DAMAGED_BYTES,
    FILE_COLUMN,
    OFFSET_COLUMN,
    PROVENANCE,
    Projection,
    Scan,
    fixed_schema,
)
from sawlog.skipped import Skipped, remarks
from sawlog.spelling import meant
from sawlog.storage import File, Staged, Storage

__all__ = [
    "FILE_COLUMN",
    "OFFSET_COLUMN",
    "PROBE_BYTES",
    "PROVENANCE",
    "TASK_BYTES",
    "Dataset",
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
TASK_BYTES = 64 << 20
"""Input bytes per task that planning aims at."""

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


@dataclass(frozen=True)
class Fragment(ABC):
    """A piece of a dataset that can be decoded alone. Small and picklable.

    Attributes:
        scan: What is wanted, shared by all fragments of the dataset.
        projection: The columns of the scan.
        path: What the fragment reads, for messages.
        size: Input bytes, for planning.
    """

    scan: Scan
    projection: Projection
    path: str
    size: int

    @property
    def extent(self) -> tuple[int, int]:
        """Offset and length of the bytes of `path` that the fragment accounts for."""
        return 0, self.size

    @abstractmethod
    def decode(self, schema: pa.Schema, findings: Findings) -> Iterator[pa.RecordBatch]:
        """Decode the fragment.

        Args:
            schema: The columns to gather, of the view and of `PROVENANCE`; batches must have exactly this schema. It
                may be empty, when only the findings are wanted: then batches may be empty too, but must still be
                yielded at the usual pace.
            findings: Told of every damage, of the tail, of the use of every byte, and of the rows decoded.

        Yields:
            Record batches of bounded size.
        """

    def to_batches(self, findings: Findings | None = None) -> Iterator[pa.RecordBatch]:
        """The delivered rows. Without `findings` of the caller's own, what was left out becomes a warning.

        Raises:
            DamageError: At the first damage, if `on_damage` is `fail`; rows before it were delivered.
        """
        if self.scan.view == "damage":
            yield from self._damages()
            return
        ledger = findings if findings is not None else Findings(self.scan.on_damage)
        for batch in decoded(self, self.projection.decoded, ledger):
            delivered = self.projection.apply(batch)
            if delivered.num_rows:
                yield delivered
        if findings is None:
            ledger.warn(self.path)

    def scanned(self) -> Findings:
        """Scan without gathering any column, under the policy of the scan.

        Raises:
            DamageError: At the first damage, if `on_damage` is `fail`.
        """
        findings = Findings(self.scan.on_damage)
        for _ in decoded(self, pa.schema([]), findings):
            pass
        return findings

    def inspect(self, *, every: bool = False) -> Findings:
        """Scan without gathering any column; damage never raises. Lists `every` damage, or the first ones."""
        findings = Findings("skip", drained=every)
        for _ in decoded(self, pa.schema([]), findings):
            pass
        return findings

    def _damages(self) -> Iterator[pa.RecordBatch]:
        findings = Findings("skip", drained=True, columns=[])
        for _ in decoded(self, pa.schema([]), findings):
            if (batch := findings.drain_batch()) is not None:
                yield self._deliver_damages(batch)
        if (batch := findings.drain_batch()) is not None:
            yield self._deliver_damages(batch)

    def _deliver_damages(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        for provenance, source in zip(PROVENANCE, ("file", "offset"), strict=True):
            batch = batch.append_column(provenance, batch.column(source))
        if BYTES_COLUMN in self.projection.decoded.names:
            batch = batch.append_column(DAMAGE_EXTRA[-1], self._damaged_bytes(batch))
        return self.projection.apply(batch.select(self.projection.decoded.names))

    def _damaged_bytes(self, batch: pa.RecordBatch) -> pa.Array:
        """The first bytes of each damaged range; null where nothing can be read, as of a file that is missing."""
        found: list[bytes | None] = []
        for path, offset, length in zip(*(batch.column(i).to_pylist() for i in range(3)), strict=True):
            try:
                found.append(self.scan.storage.read(path, offset, min(length, DAMAGED_BYTES)) if length else b"")
            except OSError:
                found.append(None)
        return pa.array(found, pa.binary())


class Dataset(FollowedDataset, ABC):
    """What a path holds: a schema, and fragments. Opening reads no more than headers.

    Args:
        format: The format that opened it.
        files: The files it is made of.
        scan: What is wanted of it.

    Attributes:
        beside: Files of the path that `Format.select` did not choose.
        threads: How many threads decode.
    """

    beside: Sequence[File] = ()
    threads: int = 1

    def __init__(self, format: Format, files: Sequence[File], scan: Scan) -> None:
        self.format = format
        self.files = list(files)
        self.scan = scan
        damages = scan.view == "damage"
        view = DAMAGE_SCHEMA if damages else self.view_schema()
        if scan.schema is not None:
            view = fixed_schema(scan.schema, view, self._where)
        self.projection = Projection.of(view, scan, DAMAGE_EXTRA if damages else self.extra_columns())

    @abstractmethod
    def view_schema(self) -> pa.Schema:
        """Schema of the whole view, without provenance."""

    def extra_columns(self) -> Sequence[pa.Field]:
        """Columns besides those of the view that can be asked for by name, in every view but `damage`."""
        return PROVENANCE

    @property
    def available(self) -> pa.Schema:
        """Every column that can be asked for by name: those of the view, and the extra ones."""
        damages = self.scan.view == "damage"
        view = DAMAGE_SCHEMA if damages else self.view_schema()
        extra = DAMAGE_EXTRA if damages else self.extra_columns()
        return pa.schema([*view, *(f for f in extra if f.name not in view.names)])

    @abstractmethod
    def plan(self, task_bytes: int | None) -> Iterator[Fragment]:
        """Fragments in reading order, pruned by what filters allow.

        Args:
            task_bytes: Cut what can be cut into pieces of about this size; `None`: one fragment per file.
        """

    @cached_property
    def skipped(self) -> list[Skipped]:
        """What the path holds and a read leaves out; a format whose metadata tells of more adds it here."""
        return self.format.left_out(self.beside, self.scan.view)

    def warn_of_skipped(self) -> None:
        """Tell the user where rows of the view were left out."""
        for remark in remarks(self.skipped):
            warnings.warn(remark, DamageWarning, stacklevel=3)

    @property
    def schema(self) -> pa.Schema:
        """Schema of the delivered batches."""
        return self.projection.schema

    def info(self) -> dict[str, Any]:
        """Facts about the format's content that cost no more than headers, for people to read."""
        return {}

    def fragments(self, task_bytes: int | None = TASK_BYTES) -> list[Fragment]:
        """Fragments in reading order; together they hold every row exactly once."""
        return list(self._fragments(task_bytes))

    def tasks(self, task_bytes: int = TASK_BYTES) -> list[list[Fragment]]:
        """Fragments packed, in order, into tasks of about `task_bytes` of input."""
        return pack(self._fragments(task_bytes), task_bytes)

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """The rows, as record batches, in order. What was left out becomes a warning, once per file."""
        self.warn_of_skipped()
        ledger = Remarks()
        yield from self.read(ledger.add)
        ledger.tell()

    def read(
        self, done: Callable[[Fragment, Findings], None], task_bytes: int | None = None
    ) -> Iterator[pa.RecordBatch]:
        """The rows, as record batches, in order; what was left out is told to `done`, fragment by fragment.

        Args:
            done: Told what a fragment came across, once its rows are delivered.
            task_bytes: As for `plan`, where one thread reads.
        """
        return read_fragments(self.pieces(task_bytes), self._threads, done)

    def pieces(self, task_bytes: int | None = None) -> Iterator[Fragment]:
        """Fragments for the threads of this process; of the size asked for, where one thread reads."""
        return self._fragments(PIECE_BYTES if self._threads > 1 else task_bytes)

    @property
    def _threads(self) -> int:
        """What is small is read before threads are up."""
        return self.threads if sum(file.size for file in self.files) > PIECE_BYTES else 1

    def to_reader(self) -> pa.RecordBatchReader:
        """The rows as a stream of record batches."""
        return pa.RecordBatchReader.from_batches(self.schema, self.to_batches())

    def to_table(self) -> pa.Table:
        """The rows as a table in memory."""
        return pa.Table.from_batches(self.to_batches(), self.schema)

    def count_rows(self) -> int:
        """How many rows `to_batches` delivers; without filters no column is gathered."""
        if self.scan.filters or self.scan.view == "damage":
            return sum(batch.num_rows for batch in self.to_batches())
        self.warn_of_skipped()
        ledger = Remarks()
        total = self.count(ledger.add)
        ledger.tell()
        return total

    def count(self, done: Callable[[Fragment, Findings], None]) -> int:
        """How many rows there are before any filter; what was left out is told to `done`, fragment by fragment."""
        return count_fragments(self.pieces(), self._threads, done)

    def head(self, n: int = 10) -> pa.Table:
        """The first `n` rows; nothing behind them is read."""
        batches = []
        missing = n
        self.warn_of_skipped()
        ledger = Remarks()
        rows = read_fragments(self._fragments(None), 1, ledger.add)
        for batch in rows:
            batches.append(batch.slice(0, missing))
            missing -= batches[-1].num_rows
            if missing <= 0:
                break
        return pa.Table.from_batches(batches, self.schema)

    def verify(
        self, task_bytes: int | None = None, advance: Callable[[int], None] | None = None, *, every: bool = False
    ) -> Iterator[FileReport]:
        """Check every byte that the view reads: one report per file, in order.

        Args:
            task_bytes: As for `plan`.
            advance: Told the input bytes of every fragment that is done.
            every: Whether reports list every damage, however many there are.
        """
        sizes = {file.path: file.size for file in self.files}
        inspected = self._inspected(self.pieces(task_bytes), advance, every=every)
        for path, found in itertools.groupby(inspected, key=lambda one: one[0].path):
            report = FileReport.of(path, sizes[path], (findings for _, findings in found))
            if not every:
                del report.damages[MAX_LISTED:]
            yield report

    def _inspected(
        self, fragments: Iterable[Fragment], advance: Callable[[int], None] | None, *, every: bool
    ) -> Iterator[tuple[Fragment, Findings]]:
        """What every fragment comes across, in order."""
        for fragment, findings in in_order(fragments, lambda one: iter([one.inspect(every=every)]), self._threads):
            if advance is not None:
                advance(fragment.size)
            yield fragment, findings

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """The Arrow C stream, by which Polars, DuckDB, pandas and others read a dataset."""
        return self.to_reader().__arrow_c_stream__(requested_schema)

    def __repr__(self) -> str:
        return f"<Dataset {self.format.name} view={self.scan.view!r} {self._where}>"

    def _fragments(self, task_bytes: int | None) -> Iterator[Fragment]:
        with guarded(f"{self._where}: planning failed"):
            yield from self.plan(task_bytes)

    @property
    def _where(self) -> str:
        first = self.files[0].path if self.files else "(no files)"
        return f"{first} and {len(self.files) - 1} more" if len(self.files) > 1 else first


def pack(fragments: Iterable[Fragment], task_bytes: int) -> list[list[Fragment]]:
    """Pack fragments, in order, into tasks of about `task_bytes` of input."""
    tasks: list[list[Fragment]] = []
    room = 0
    for fragment in fragments:
        if not tasks or fragment.size > room:
            tasks.append([])
            room = task_bytes
        tasks[-1].append(fragment)
        room -= fragment.size
    return tasks


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
    read_options: ClassVar[type]
    """Frozen dataclass of the options for reading."""
    write_options: ClassVar[type]
    """Frozen dataclass of the options for writing."""

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
    def repair(self, file: File, target: str, options: Any, storage: Storage) -> FileReport:
        """Write the intact content of one file to a new file at `target`; report what was and was not kept.

        Args:
            file: The damaged file; it is not changed.
            target: The new file.
            options: Read options.
            storage: Where both are.
        """

    def warm_up(self) -> None:
        """Compile every kernel of the format, so that Numba's cache holds it: a tiny round trip through all paths.

        A format without kernels has nothing to do.
        """
        return

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

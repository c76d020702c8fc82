"""The contract between formats and doors: Format, Contents, View, Fragment, Writer."""

from __future__ import annotations

import contextlib
import copy
import hashlib
import itertools
import operator
import posixpath
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import TYPE_CHECKING, Any, ClassVar, Generic, NamedTuple, Protocol, Self, TypeVar

import numpy as np
import pyarrow as pa

from sawlog.arrow import array_of, values_of
from sawlog.damage import DAMAGE_SCHEMA, MAX_LISTED, FileReport, Findings, Skipped, TailStatus
from sawlog.errors import FINDING_ERRORS, DiskError, OptionError
from sawlog.guard import wrap_errors
from sawlog.names import is_remote
from sawlog.options import as_text
from sawlog.query import columns_of, possible_within
from sawlog.reading import PIECE_BYTES, map_ordered, once
from sawlog.scan import (
    BYTES_COLUMN,
    DAMAGE_EXTRA,
    DAMAGED_BYTES,
    FILE_COLUMN,
    OFFSET_COLUMN,
    PROVENANCE,
    NamedTable,
    Projection,
    Scan,
    fixed_schema,
)
from sawlog.storage import File, Source, Staged, StagedFile, Storage
from sawlog.storage.index import Index, packed, unpacked

if TYPE_CHECKING:
    from sawlog.fields import FieldParser
    from sawlog.pictures import Picture

__all__ = [
    "FILE_COLUMN",
    "OFFSET_COLUMN",
    "PROBE_BYTES",
    "PROVENANCE",
    "TASK_BYTES",
    "WORTH_A_TASK",
    "Contents",
    "Counting",
    "Done",
    "FileRange",
    "FileWriter",
    "Format",
    "Fragment",
    "Match",
    "Projection",
    "Range",
    "Request",
    "Scan",
    "Succession",
    "View",
    "Writer",
    "apart",
    "intact_end",
    "pack",
    "read_fragments",
]

PROBE_BYTES = 64 << 10
"""Bytes from the start of a file that recognition may look at."""

CUT_BYTES = 1 << 20
"""Distance of the places that an index knows where a file may be cut."""
ROWS = "rows"
"""What an index with statistics is asked of an intact file whose rows depend on no other: how many it has."""
SMALLEST = 64
"""What opening a file costs at least, as a share of a task: thousands of small ones make more than one task."""
TASK_BYTES = 64 << 20
"""Input bytes per task that planning aims at."""
WORTH_A_TASK = 4 << 20
"""Input bytes that a task of Spark's reads at least, where there are so many; Spark reckons likewise for its files."""

Done = Callable[["Fragment", Findings], None]
"""Takes what a fragment came across, once its rows are delivered."""

_Part = TypeVar("_Part")
_Result = TypeVar("_Result")
_C = TypeVar("_C", bound="Contents")


class Match(IntEnum):
    """How sure a format is that a file is its own."""

    NO = 0
    BESIDE = 1
    """It is next to files of another format, and is meant only where none of them is there."""
    NAME = 2
    CONTENT = 3
    TREE = 4
    """Nobody else lays a whole directory out like this: all files in it are a part of it, whatever their formats."""


@dataclass(frozen=True)
class Fragment(ABC):
    """A piece of a dataset that can be decoded by itself. Small and picklable.

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

    several: ClassVar[bool] = False
    """Whether `path` is one of the files of a directory that are read as one."""

    @property
    def about(self) -> str:
        """What warnings name."""
        return (posixpath.dirname(self.path) or ".") if self.several else self.path

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
            findings: Receives all damage, the tail, the use of every byte, and the rows decoded.

        Yields:
            Record batches of bounded size.
        """

    def to_batches(self, findings: Findings | None = None) -> Iterator[pa.RecordBatch]:
        """The delivered rows. Without `findings` of the caller's own, what was left out becomes a warning.

        Raises:
            DamageError: At the first damage, if `on_damage` is `fail`; rows before it were delivered.
        """
        if self.scan.view == "damage":
            yield from self._damage_rows()
            return
        ledger = findings if findings is not None else Findings(self.scan.on_damage)
        for batch in self._decoded(self.projection.decoded, ledger):
            delivered = self.projection.apply(batch)
            if delivered.num_rows:
                yield delivered
        if findings is None:
            ledger.warn(self.about)

    def inspect(self, *, every: bool = False) -> Findings:
        """Scan without gathering any column; damage never raises. Lists `every` damage, or the first ones."""
        return self.scan_into(Findings("skip", drained=every))

    def scan_into(self, findings: Findings) -> Findings:
        """Scan without gathering any column; the findings, filled.

        Raises:
            DamageError: At the first damage, if their policy is `fail`.
        """
        for _ in self._decoded(pa.schema([]), findings):
            pass
        return findings

    def _decoded(self, schema: pa.Schema, findings: Findings) -> Iterator[pa.RecordBatch]:
        """What `decode` yields; only judges and `decode_by` say what is damage, so another exception is a fault."""
        with wrap_errors(f"{self.path}: reading failed"):
            yield from self.decode(schema, findings)

    def _damage_rows(self) -> Iterator[pa.RecordBatch]:
        findings = Findings("skip", drained=True, columns=[])
        for _ in self._decoded(pa.schema([]), findings):
            if (batch := findings.drain_batch()) is not None:
                yield self._deliver_damage(batch)
        if (batch := findings.drain_batch()) is not None:
            yield self._deliver_damage(batch)

    def _deliver_damage(self, batch: pa.RecordBatch) -> pa.RecordBatch:
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
            except (FileNotFoundError, NotADirectoryError, DiskError):
                found.append(None)
        return array_of(found, pa.binary())


@dataclass(frozen=True)
class FileRange(Fragment):
    """A range of one file.

    Attributes:
        file: The file; its size is where this scan takes it to end.
        start: Where the range begins.
        end: Where it ends: where another may begin, or the size of the file.
    """

    file: File
    start: int
    end: int

    @property
    def extent(self) -> tuple[int, int]:
        return self.start, self.end - self.start


def read_fragments(fragments: Iterable[Fragment], threads: int, done: Done) -> Iterator[pa.RecordBatch]:
    """The rows of fragments, in order.

    Args:
        fragments: What to read.
        threads: How many read; with 1, nothing is read ahead.
        done: Takes what a fragment came across, once its rows are delivered or the consumer has stopped among them.
    """
    begun: dict[int, tuple[Fragment, Findings]] = {}

    def batches(fragment: Fragment) -> Iterator[pa.RecordBatch]:
        findings = Findings(fragment.scan.on_damage)
        begun[id(fragment)] = fragment, findings
        yield from fragment.to_batches(findings)

    def ended(fragment: Fragment) -> None:
        done(*begun.pop(id(fragment)))

    try:
        for _, batch in map_ordered(fragments, batches, threads, ended):
            yield batch
    finally:
        for fragment, findings in begun.values() if threads <= 1 else ():
            done(fragment, findings)


def intact_end(batches: Iterable[pa.RecordBatch], findings: Findings, size: int) -> int:
    """Where the last complete record of a file ends, or the intact part, if damage reaches up to that.

    Damage there may be something that is still being written.

    Args:
        batches: A walk up to the end of the file; they are not looked at.
        findings: What it reports; drained, with `columns`.
        size: Of the file.
    """
    start = stop = -1
    for _ in itertools.chain(batches, (None,)):
        if (batch := findings.drain_batch()) is not None:
            starts = values_of(batch.column("offset"), np.int64)
            stops = starts + values_of(batch.column("length"), np.int64)
            gaps = (starts[1:] > stops[:-1]).nonzero()[0]
            if len(gaps) or starts[0] > stop:
                start = int(starts[gaps[-1] + 1 if len(gaps) else 0])
            stop = int(stops[-1])
    tail = findings.tail
    end = size if tail is None or tail.status is TailStatus.CLEAN else tail.offset
    return start if stop >= end else end


def apart(offsets: Iterable[int], distance: int) -> Iterator[int]:
    """Of ascending offsets those that are so far from the one before, and from byte 0, or farther."""
    following = distance
    for offset in offsets:
        if offset >= following:
            yield offset
            following = offset + distance


def pack(
    parts: Iterable[_Part], task_bytes: int, size: Callable[[_Part], int] = operator.attrgetter("size")
) -> list[list[_Part]]:
    """Pack fragments, or what has a size, in order, into tasks of about `task_bytes` and at most `SMALLEST` parts."""
    tasks: list[list[_Part]] = []
    least = task_bytes // SMALLEST
    room = 0
    for part in parts:
        cost = max(size(part), least)
        if not tasks or cost > room:
            tasks.append([])
            room = task_bytes
        tasks[-1].append(part)
        room -= cost
    return tasks


class Request(NamedTuple):
    """What is wanted of contents: a scan, and its columns. Every fragment begins with it."""

    scan: Scan
    projection: Projection


@dataclass(frozen=True)
class View(Generic[_C]):
    """One view of the bytes of a format.

    Attributes:
        schema: Its columns, without provenance; where the files define them, a function of the contents.
        fragments: As `Contents.plan`.
        extra: Columns besides those of the view that can be asked for by name.
    """

    schema: pa.Schema | Callable[[_C], pa.Schema]
    fragments: Callable[[_C, Request, int | None], Iterator[Fragment]]
    extra: Sequence[pa.Field] | Callable[[_C], Sequence[pa.Field]] = field(default=PROVENANCE)


class Counting(Protocol):
    """Draws charts from what it counts while rows are read, so that they need no read of their own.

    Attributes:
        columns: What it counts of the rows; none where it counts what they are made from.
    """

    @property
    def columns(self) -> Sequence[str]: ...

    def add(self, seen: Any) -> None:
        """Count a batch that has the columns, or what fragments hand to `Findings.observe`."""

    def pictures(self) -> Iterable[Picture]:
        """The charts, when all has been read."""


class Contents(ABC):
    """What a format knows of files that were opened, whichever columns and rows are wanted of them.

    Args:
        format: The format that has opened them.
        files: The files.
        scan: How they were opened. Its view, options and storage hold for all that is read of the contents.

    Attributes:
        views: The views by name. Where there is none for `damage`, that has the fragments of `rows`.
        unselected: Files of the path that `Format.select` did not choose.
        shared: Whether threads share one file. If not, as where to cut one costs too much, each has files of its own.
        apart: Whether the rows of a file are what they are whatever is in the others.
    """

    views: ClassVar[Mapping[str, View[Any]]]
    shared: ClassVar[bool] = True
    apart: ClassVar[bool] = False
    unselected: Sequence[File] = ()

    def __init__(self, format: Format, files: Sequence[File], scan: Scan) -> None:
        self.format = format
        self.files = list(files)
        self.scan = scan

    @property
    def view(self) -> View[Any]:
        """The view that is read."""
        return self.views[self.scan.view if self.scan.view in self.views else "rows"]

    def view_schema(self) -> pa.Schema:
        """Schema of the whole view, without provenance."""
        schema = self.view.schema
        return schema if isinstance(schema, pa.Schema) else schema(self)

    def extra_columns(self) -> Sequence[pa.Field]:
        """Columns besides those of the view that can be asked for by name, in every view but `damage`."""
        extra = self.view.extra
        return extra(self) if callable(extra) else extra

    @property
    def available(self) -> pa.Schema:
        """Every column that can be asked for by name: those of the view, and the extra ones."""
        damages = self.scan.view == "damage"
        view = DAMAGE_SCHEMA if damages else self.view_schema()
        extra = DAMAGE_EXTRA if damages else self.extra_columns()
        return pa.schema([*view, *(f for f in extra if f.name not in view.names)])

    def request(self, scan: Scan) -> Request:
        """A scan of the contents with its columns.

        Raises:
            SchemaError: For a column that the view does not have.
        """
        damages = scan.view == "damage"
        view = DAMAGE_SCHEMA if damages else self.view_schema()
        if scan.schema is not None:
            view = fixed_schema(scan.schema, view, self.where)
        return Request(scan, Projection.of(view, scan, DAMAGE_EXTRA if damages else self.extra_columns()))

    def plan(self, request: Request, task_bytes: int | None) -> Iterator[Fragment]:
        """Fragments in reading order, pruned by what filters allow.

        Args:
            request: What is wanted.
            task_bytes: Cut what can be cut into pieces of about this size; `None`: one fragment per file.
        """
        return self.view.fragments(self, request, task_bytes)

    def fragments(self, request: Request, task_bytes: int | None) -> Iterator[Fragment]:
        """What `plan` yields; an exception that is not sawlog's own is a fault.

        Raises:
            InternalError: For one.
        """
        with wrap_errors(f"{self.where}: planning failed"):
            yield from self.needed(request).plan(request, task_bytes)

    def needed(self, request: Request) -> Self:
        """The same without files of which an index says that no row of them can be wanted."""
        index, query = self.scan.storage.index, request.projection.query
        if not isinstance(index, Index) or not (self.apart and request.scan.view == "rows" and query.parts):
            return self
        if index.options != repr(self.format.whole_rows(self.scan.options)):
            return self
        wanted = columns_of(query)
        limits = index.limits(self.files, [one for one in self.view_schema() if one.name in wanted])
        if not limits[0].num_columns:
            return self
        kept = possible_within(query, *limits).to_pylist()
        return self if all(kept) else self.of_files([file for file, one in zip(self.files, kept, strict=True) if one])

    def look(self, request: Request) -> None:
        """Ask of the files what planning asks besides what opening them has: an index that is made remembers it."""
        del request

    def survey(self, request: Request) -> bool:
        """Ask what is known once all of an intact file was read: where it may be cut, and what it says of others.

        Returns:
            Whether other files are read without it as they are with it.
        """
        del request
        return self.apart

    def tasks(self, request: Request, task_bytes: int) -> list[list[Fragment]]:
        """Fragments packed, in order, into tasks of about `task_bytes` of input."""
        return pack(self.fragments(request, task_bytes), task_bytes)

    def splits(self, request: Request, task_bytes: int) -> Iterable[Contents | Fragment]:
        """Fragments, and contents to be planned by the task that reads them, which together are these, in order.

        There are none where planning needs no more than headers, or the bytes are near: then the caller can plan all.
        """
        if any(self._unknown(file, task_bytes) for file in self.files):
            for file in self.files:
                part = self.of_files([file])
                yield from [part] if self._unknown(file, task_bytes) else part.plan(request, task_bytes)

    def unknown(self, request: Request, task_bytes: int) -> Iterable[Contents]:
        """Remote parts that need a look, `survey`, each in a task of its own, before all of these can be planned."""
        del request
        return [self.of_files([file]) for file in self.files if self._unknown(file, task_bytes)]

    def _unknown(self, file: File, task_bytes: int) -> bool:
        return is_remote(file.path) and file.size > task_bytes and self.walks(file, task_bytes)

    def walks(self, file: File, task_bytes: int) -> bool:
        """Whether all of a file has to be looked at to cut it."""
        del file, task_bytes
        return False

    def of_files(self, files: Sequence[File]) -> Self:
        """The same of some of the files."""
        found = copy.copy(self)
        found.files = list(files)
        return found

    def with_scan(self, scan: Scan) -> Self:
        """The same, under a scan that differs in columns, filters, or what planning has asked before."""
        found = copy.copy(self)
        found.scan = scan
        return found

    def optimistic(self) -> Self | None:
        """The same for a read that delivers nothing before all of it has succeeded; `None` where that is no faster.

        Its fragments may fail where those of `plan` have looked further first.
        """
        return None

    def thread_fragments(self, request: Request, task_bytes: int | None = None) -> Iterator[Fragment]:
        """Fragments for the threads of this process; of the size asked for, where one thread reads."""
        return self.fragments(request, PIECE_BYTES if self.threads(request) > 1 and self.shared else task_bytes)

    def threads(self, request: Request) -> int:
        """How many threads read. What is small is read before they are up; files that are not shared have one each."""
        wanted = request.scan.threads
        most = wanted if self.shared else min(wanted, self.readable_apart(request))
        return most if sum(file.size for file in self.files) > PIECE_BYTES else 1

    def readable_apart(self, request: Request) -> int:
        """What threads can read at the same time where they share no file: the files, unless several are one."""
        del request
        return len(self.files)

    def left_out(self, request: Request) -> list[Skipped]:
        """What a read leaves out of the files, or of what their metadata names, besides what is in other files."""
        del request
        return []

    def facts(self, request: Request) -> dict[str, Any]:
        """Facts about the content that cost no more than headers, for people to read."""
        del request
        return {}

    def tables(self) -> list[NamedTable]:
        """The tables below the path that options can name; none where the path is one table."""
        return []

    def decoders(self) -> list[str]:
        """Views that decode what an application has put into the rows, as far as a short look shows."""
        return []

    def field_parser(self, file: File, source: Source) -> FieldParser:
        """Names the fields of what is at an offset, for people who look at bytes; formats that can override this.

        Args:
            file: One of the files.
            source: Its bytes, of which a few hundred around each offset are enough.

        Returns:
            A function of an offset, where a row, damage or the file begins: the fields from there on, in ascending
            order, as many as are asked for. They may lie, and the function may raise: the bytes may be damaged.
        """
        del file, source
        return lambda offset: iter(())

    def pictures(self, request: Request) -> Iterable[Picture]:
        """Charts of what the files hold, for people, as `sawlog map` draws them; formats that have some override this.

        Args:
            request: What is wanted. Charts are of all the contents, whatever its columns and filters.
        """
        del request
        return ()

    def counting(self, request: Request) -> Counting | None:
        """What draws the same charts from what all fragments read; None where charts need a read of their own."""
        del request
        return None

    def committed_end(self, request: Request, file: File, position: int) -> int:
        """How far a file can be read: the end of its last complete record or transaction; unfinished tails wait.

        A stream asks this of each file, and `between` for the fragments of a micro-batch. Both depend on nothing but
        the bytes up to the end of what is asked about, so that a micro-batch can be repeated.

        Args:
            request: What is wanted.
            file: One of the files; it is taken to end at its size.
            position: A committed position: 0, or what an earlier call has answered.

        Raises:
            OptionError: When the view cannot be followed.
        """
        del request, file, position
        raise OptionError(f"view {self.scan.view!r} of {self.format.name} cannot be followed as a stream")

    def whole_end(self, request: Request, file: File) -> int:
        """The committed end of a file of which nothing was read; an index with statistics knows that of intact files.

        Raises:
            OptionError: When the view cannot be followed.
        """
        storage, question = self.scan.storage, self.by_options(f"end of {self.scan.view}")
        answer = storage.known(file, question)
        if answer:
            return unpacked(answer)[0]
        end = self.committed_end(request, file, 0)
        storage.note(file, question, packed([end]))
        return end

    def known_rows(self) -> int | None:
        """How many rows the files have, if an index knows that of all of them."""
        index = self.scan.storage.index
        if not (isinstance(index, Index) and index.has_statistics and self.scan.view == "rows"):
            return None
        question = self.by_options(ROWS)
        counts = [index.answer(file, question) for file in self.files]
        return sum(unpacked(one)[0] for one in counts if one) if all(counts) else None

    def by_options(self, question: str) -> str:
        """A question to an index whose answer depends on the options by which files are read."""
        options = repr(self.format.whole_rows(self.scan.options)).encode()
        return f"{question} {hashlib.sha256(options).hexdigest()[:16]}"

    def between(self, request: Request, ranges: Sequence[Range]) -> list[Fragment]:
        """The fragments that read ranges of the files, in reading order.

        Raises:
            OptionError: When the view cannot be followed.
        """
        del request, ranges
        raise OptionError(f"view {self.scan.view!r} of {self.format.name} cannot be followed as a stream")

    def verify(
        self, request: Request, task_bytes: int | None, advance: Callable[[int], None] | None, *, every: bool
    ) -> Iterator[FileReport]:
        """Check every byte that the view reads: one report per file, in order; see `Dataset.verify`."""
        sizes = {file.path: file.size for file in self.files}
        inspected = self._inspected(request, task_bytes, advance, every=every)
        for path, found in itertools.groupby(self.confirmed(inspected), key=lambda one: one[0].path):
            report = FileReport.of(path, sizes.get(path, 0), (findings for _, findings in found))
            if not every:
                del report.damages[MAX_LISTED:]
            yield report

    def reports(self, request: Request, read: Sequence[Findings]) -> Iterator[FileReport]:
        """What `verify` finds, where all fragments have been read already, with these findings."""
        del read
        return self.verify(request, None, None, every=False)

    def _inspected(
        self, request: Request, task_bytes: int | None, advance: Callable[[int], None] | None, *, every: bool
    ) -> Iterator[tuple[Fragment, Findings]]:
        """What every fragment comes across, in order."""
        fragments, threads = self.thread_fragments(request, task_bytes), self.threads(request)
        for fragment, findings in map_ordered(fragments, once(lambda one: one.inspect(every=every)), threads):
            if advance is not None:
                advance(fragment.size)
            yield fragment, findings

    def read_rows(self, request: Request, done: Done, task_bytes: int | None = None) -> Iterator[pa.RecordBatch]:
        """The rows, as record batches, in order; what was left out goes to `done`, fragment by fragment.

        Args:
            request: What is wanted.
            done: Takes what a fragment came across, once its rows are delivered.
            task_bytes: As for `plan`, where one thread reads.
        """
        fragments = self.thread_fragments(request, task_bytes)
        yield from self.confirmed(read_fragments(fragments, self.threads(request), done))

    def count_rows(self, request: Request, done: Done) -> int:
        """How many rows there are before any filter; what was left out goes to `done`, fragment by fragment."""

        def scanned(fragment: Fragment) -> Findings:
            return fragment.scan_into(Findings(fragment.scan.on_damage))

        total = 0
        for fragment, findings in map_ordered(self.thread_fragments(request), once(scanned), self.threads(request)):
            total += findings.rows
            done(fragment, findings)
        self.scan.storage.confirm()
        return total

    def confirmed(self, results: Iterable[_Result]) -> Iterator[_Result]:
        """Results of reading, after which remote files must still be what they were."""
        try:
            yield from results
        except FINDING_ERRORS:
            self.scan.storage.confirm()  # what looks damaged may have been replaced
            raise
        self.scan.storage.confirm()

    @property
    def where(self) -> str:
        """The files, for messages."""
        first = self.files[0].path if self.files else "(no files)"
        return f"{first} and {len(self.files) - 1} more" if len(self.files) > 1 else first


class Range(NamedTuple):
    """Bytes of one file that a stream reads next; both ends are committed positions."""

    file: File
    start: int
    end: int


class Succession(NamedTuple):
    """A file's place among those that one writer has written, one after the other."""

    writer: Hashable
    place: Any


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
        """Stop, and leave nothing of it."""

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
        self._flush()
        return [self._file.finish()]

    def abort(self) -> None:
        self._file.discard(self.storage)

    def _flush(self) -> None:
        """Write what is still in hand, at the end."""
        return


class Format(ABC):
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
    aliases: ClassVar[Mapping[str, str]] = {}
    """Other names of views, such as the format's own word for `frames`."""
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
    is_directory: ClassVar[bool] = False
    """Whether a dataset is one directory, see `home`: what is below it, or next to it, is another."""
    time_option: ClassVar[str | None] = None
    """The read option that names a time: what it reads is as it was then. `None` where there are no earlier times."""

    def whole_rows(self, options: Any) -> Any:
        """Options by which files have all rows that they have by these, for statistics of each by itself."""
        return options

    @property
    def view_names(self) -> dict[str, str]:
        """Every name that a view goes by, and the one that it has in `views`."""
        return {**{name: name for name in self.views}, **self.aliases}

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
        """What more can be read of damaged files, as a phrase for people; empty if nothing."""
        given = {name: getattr(scan.options, name) for name in self.rescue}
        if given == self.rescue or scan.view not in ("rows", "writes") or not scan.options.verify_checksums:
            return ""
        with contextlib.suppress(OptionError):  # options that exclude each other
            scan = replace(scan, options=replace(scan.options, **self.rescue))
            contents = self.open(files, scan)
            found = contents.verify(contents.request(scan), None, None, every=False)
            if (more := sum(one.rows for one in found) - sum(one.rows for one in reports)) > 0:
                options = " ".join(f"-o {name}={as_text(value)}" for name, value in self.rescue.items())
                return f"{more:,} more row{'s' if more > 1 else ''} with {options}"
        return ""

    @abstractmethod
    def open(self, files: Sequence[File], scan: Scan) -> Contents:
        """Open files. No more than headers are read."""

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
            SchemaError: When the column cannot name them, or the schema cannot be represented.
        """
        raise OptionError(f"partition_by={column!r}: {self.name} has no partitions; write what belongs apart by itself")

    def task_writer(
        self, directory: str, job: str, task: int, schema: pa.Schema, options: Any, storage: Storage
    ) -> Writer:
        """Begin the share of one task in a directory that many tasks write.

        Args:
            directory: What the job writes; one file per task unless the format knows better.
            job: A name that no other job has; it is part of the names of all files, staged ones included.
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

    def repair_files(self, contents: Contents, places: Sequence[tuple[File, str]], storage: Storage) -> None:
        """Write what `skip` delivers of files to new ones: each of its own, by `repair`, unless overridden.

        Args:
            contents: The files as they are read.
            places: Them, and where the new ones go.
            storage: Where both are; it publishes what is written once it has proven to be what a read delivers.
        """

        def repaired(one: tuple[File, str]) -> None:
            file, place = one
            with wrap_errors(f"{file.path}: repair as {self.name} failed"):
                self.repair(file, place, contents.scan.options, storage)

        for _ in map_ordered(places, once(repaired), contents.scan.threads if len(places) > 1 else 1):
            pass

    def repaired_parts(self, contents: Contents) -> list[Mapping[str, Any]]:
        """Options for each part of what `repair_files` writes that is read by itself; none where it is read as one."""
        return [one.options for one in contents.tables()]

    def not_repaired(self, contents: Contents) -> list[Skipped]:
        """What the new files are without, although no row that a read delivers is lost; see `repair_files`."""
        del contents
        return []

    def repaired_rows(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Rows as a repaired copy has them: without the columns that say how each was found."""
        return batch.select([name for name in batch.schema.names if name not in self.marks])

    def recognize(self, files: Sequence[File], storage: Storage) -> Match:
        """How sure the format is that a path, given as the list of its files, is its own."""
        probed = (self.match(file, storage.read(file, 0, PROBE_BYTES)) for file in files[:8])
        return max(probed, default=Match.NO)

    def stream_name(self, name: str) -> str:
        """What a stream calls a file, whose name is given relative to the stream's path; the same after a move."""
        return name

    def predecessors(self, name: str, head: bytes) -> Iterable[str]:
        """What a stream calls the earlier files that a writer may have written this one over: it has not been read.

        Args:
            name: What a stream calls the file.
            head: How the file begins.
        """
        del name, head
        return ()

    def succession(self, file: File) -> Succession | None:
        """The writer of a file, and the file's place among that writer's; `None` where its name does not say.

        When a writer has begun a file, it has finished those before.
        """
        del file
        return None

    def table(self, file: File) -> str | None:
        """The table that a file belongs to, by its name; `None` where that does not say. A stream is of one table."""
        del file
        return None

    def naming(self, file: File) -> dict[str, str]:
        """Options that choose the table of a file where a path holds several, by its path."""
        del file
        return {}

    def follows(self, file: File, view: str) -> bool:
        """Whether a stream of the view reads a file that `select` chooses."""
        del file, view
        return True

    def whole(self, view: str) -> bool:
        """Whether the files of a view appear whole and never grow."""
        del view
        return False

    def companions(self, file: File) -> str | None:
        """A name that those files share that can only be judged together; `None` for a file by itself."""
        del file
        return None

"""Datasets, what a path holds, and fragments, the pieces of it that are decoded alone."""

from __future__ import annotations

import copy
import itertools
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import pyarrow as pa

from sawlog.arrow import array_of
from sawlog.computed import Columns
from sawlog.damage import DAMAGE_SCHEMA, MAX_LISTED, DamageWarning, FileReport, Findings, Report
from sawlog.errors import DamageError, DiskError, OptionError, UnsupportedError
from sawlog.follow import Range
from sawlog.guard import decoded, guarded
from sawlog.names import is_remote
from sawlog.packing import TASK_BYTES, pack
from sawlog.reading import PIECE_BYTES, Remarks, count_fragments, in_order, once, read_fragments
from sawlog.recognition import left_out
from sawlog.scan import (
    BYTES_COLUMN,
    DAMAGE_EXTRA,
    DAMAGED_BYTES,
    PROVENANCE,
    NamedTable,
    Projection,
    Scan,
    fixed_schema,
)
from sawlog.scanner import Scanner, exported, narrowed
from sawlog.skipped import Skipped, remarks
from sawlog.storage import File

if TYPE_CHECKING:
    from sawlog.anatomy import Dissector
    from sawlog.format import Format
    from sawlog.storage import Source
    from sawlog.watching import Watch


Result = TypeVar("Result")


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
            except (FileNotFoundError, NotADirectoryError, DiskError):
                found.append(None)
        return array_of(found, pa.binary())


class Dataset(ABC):
    """What a path holds: a schema, and fragments. Opening reads no more than headers.

    Args:
        format: The format that opened it.
        files: The files it is made of.
        scan: What is wanted of it.

    Attributes:
        beside: Files of the path that `Format.select` did not choose.
        threads: How many threads decode.
        walked: Whether all of a file has to be looked at to cut it.
        narrowed: Cached properties that depend on columns or filters.
    """

    beside: Sequence[File] = ()
    threads: int = 1
    walked: ClassVar[bool] = False
    narrowed: ClassVar[Sequence[str]] = ("skipped",)

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
        """What the path holds and a read leaves out; a format whose metadata names more adds it here."""
        return left_out(self.format, self.files, self.beside, self.scan.view) if self.beside else []

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
        with guarded(f"{self._where}: info failed"):
            facts = self.facts()
        self.scan.storage.confirm()
        return facts

    def facts(self) -> dict[str, Any]:
        """What `info` says; formats that have something to say override this."""
        return {}

    def tables(self) -> list[NamedTable]:
        """The tables below the path that options can name; none where the path is one table."""
        return []

    def dissector(self, file: File, source: Source) -> Dissector:
        """Names the parts of what stands at an offset, for people who look at bytes; formats that can override this.

        Args:
            file: One of the files.
            source: Its bytes, of which a few hundred around each offset are enough.

        Returns:
            A function of an offset, where a row, damage or the file begins: the parts from there on, in ascending
            order, as many as are asked for. They may lie, and the function may raise: the bytes may be damaged.
        """
        del file, source
        return lambda offset: iter(())

    def fragments(self, task_bytes: int | None = TASK_BYTES) -> list[Fragment]:
        """Fragments in reading order; together they hold every row exactly once."""
        return list(self._fragments(task_bytes))

    def tasks(self, task_bytes: int = TASK_BYTES) -> list[list[Fragment]]:
        """Fragments packed, in order, into tasks of about `task_bytes` of input."""
        return pack(self._fragments(task_bytes), task_bytes)

    def portions(self, task_bytes: int) -> Sequence[Dataset]:
        """Datasets that together are this one, in order, each to be planned by the task that reads it.

        There are none where planning needs no more than headers, or the bytes are near: then who asks can plan it all.

        Args:
            task_bytes: As for `plan`.
        """
        far = any(is_remote(file.path) for file in self.files)
        walked = self.walked and any(file.size > task_bytes for file in self.files)
        return [self.part([file]) for file in self.files] if far and walked else ()

    def part(self, files: Sequence[File]) -> Dataset:
        """The same dataset of some of its files."""
        found = copy.copy(self)
        found.files = list(files)
        return found

    def rescan(self, scan: Scan) -> Dataset:
        """The same dataset with other columns or filters; what was read of the files is not read again."""
        found = copy.copy(self)
        for name in self.narrowed:
            vars(found).pop(name, None)
        for name, value in vars(self).items():
            if value is self.scan:
                vars(found)[name] = scan
        Dataset.__init__(found, self.format, self.files, scan)
        return found

    def scanner(self, columns: Columns | None = None, filter: Any = None, batch_size: int | None = None) -> Scanner:
        """Rows under one more choice of columns and rows, which is pushed into the decoder.

        Args:
            columns: Names to deliver, in order, or a dictionary of names and the expressions that make them.
            filter: A `pyarrow.compute.Expression`.
            batch_size: Rows per batch, at most.

        Raises:
            SchemaError: For a column that the view does not have.
        """
        return Scanner(narrowed(self, columns, filter), batch_size)

    def to_batches(
        self, columns: Columns | None = None, filter: Any = None, batch_size: int | None = None
    ) -> Iterator[pa.RecordBatch]:
        """The rows, as record batches, in order. What was left out becomes a warning, once per file.

        Arguments are those of `scanner`.
        """
        if columns is not None or filter is not None or batch_size is not None:
            yield from self.scanner(columns, filter, batch_size).to_batches()
            return
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
        yield from self._confirmed(read_fragments(self.pieces(task_bytes), self._threads, done))

    def pieces(self, task_bytes: int | None = None) -> Iterator[Fragment]:
        """Fragments for the threads of this process; of the size asked for, where one thread reads."""
        return self._fragments(PIECE_BYTES if self._threads > 1 and self.shared else task_bytes)

    @property
    def _threads(self) -> int:
        """What is small is read before threads are up; files that are not shared are not worth more than one each."""
        most = self.threads if self.shared else min(self.threads, self.readable_apart)
        return most if sum(file.size for file in self.files) > PIECE_BYTES else 1

    @property
    def readable_apart(self) -> int:
        """What threads can read side by side where they share no file: the files, unless several belong together."""
        return len(self.files)

    @property
    def shared(self) -> bool:
        """Whether threads share one file. If not, as where to cut one costs too much, each has files of its own."""
        return True

    @property
    def accounted_by_pieces(self) -> bool:
        """Whether `verify` says what the pieces find, each of which is a part of one of the files."""
        first = next(iter(self.pieces()), None)
        return type(self).verify is Dataset.verify and (first is None or first.path in {one.path for one in self.files})

    def to_reader(self) -> pa.RecordBatchReader:
        """The rows as a stream of record batches."""
        return pa.RecordBatchReader.from_batches(self.schema, self.to_batches())

    def to_table(self, columns: Columns | None = None, filter: Any = None) -> pa.Table:
        """The rows as a table in memory; arguments are those of `scanner`."""
        chosen = narrowed(self, columns, filter)
        return pa.Table.from_batches(chosen.to_batches(), chosen.schema)

    def to_pandas(self, **settings: Any) -> Any:
        """The rows as a data frame of pandas; settings are those of `pyarrow.Table.to_pandas`."""
        return self.to_table().to_pandas(**settings)

    def frontier(self, file: File, position: int) -> int:
        """How far a file can be read: the end of its last complete record or transaction; unfinished tails wait.

        A stream asks this of each file, and `between` for the fragments of a micro-batch. Both depend on nothing but
        the bytes up to the end of what is asked about, so that a micro-batch can be repeated.

        Args:
            file: One of the dataset's files; it is taken to end at its size.
            position: A committed position: 0, or what an earlier call has answered.

        Raises:
            OptionError: When the view cannot be followed.
        """
        del file, position
        raise OptionError(f"view {self.scan.view!r} of {self.format.name} cannot be followed as a stream")

    def between(self, ranges: Sequence[Range]) -> list[Fragment]:
        """The fragments that read ranges of the dataset's files, in reading order.

        Raises:
            OptionError: When the view cannot be followed.
        """
        del ranges
        raise OptionError(f"view {self.scan.view!r} of {self.format.name} cannot be followed as a stream")

    def watch(self, positions: Mapping[str, Any] | None = None, *, poll: float = 1.0) -> Watch:
        """The rows, and those that are written from now on: an endless iterator of record batches.

        Args:
            positions: Where an earlier watch has stopped: its `positions`.
            poll: Seconds between two looks where nothing was added.

        Raises:
            OptionError: When the view cannot be followed; some views raise it with the first look.
        """
        from sawlog.watching import Watch

        return Watch(self, positions, poll)

    def count_rows(self, filter: Any = None) -> int:
        """How many rows `to_batches` delivers; without filters no column is gathered."""
        if filter is not None:
            return narrowed(self, None, filter).count_rows()
        if self.scan.filters or self.scan.expression is not None or self.scan.view == "damage":
            return sum(batch.num_rows for batch in self.to_batches())
        self.warn_of_skipped()
        ledger = Remarks()
        total = self.count(ledger.add)
        ledger.tell()
        return total

    def count(self, done: Callable[[Fragment, Findings], None]) -> int:
        """How many rows there are before any filter; what was left out is told to `done`, fragment by fragment."""
        total = count_fragments(self.pieces(), self._threads, done)
        self.scan.storage.confirm()
        return total

    def head(self, n: int = 10) -> pa.Table:
        """The first `n` rows; nothing behind them is read."""
        batches = []
        missing = n
        self.warn_of_skipped()
        ledger = Remarks()
        rows = read_fragments(self._fragments(None), 1, ledger.add)
        for batch in self._confirmed(rows):
            batches.append(batch.slice(0, missing))
            missing -= batches[-1].num_rows
            if missing <= 0:
                self.scan.storage.confirm()
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
        for path, found in itertools.groupby(self._confirmed(inspected), key=lambda one: one[0].path):
            report = FileReport.of(path, sizes[path], (findings for _, findings in found))
            if not every:
                del report.damages[MAX_LISTED:]
            yield report

    def _confirmed(self, results: Iterable[Result]) -> Iterator[Result]:
        """Results of reading, after which remote files must still be what they were."""
        try:
            yield from results
        except (DamageError, UnsupportedError):
            self.scan.storage.confirm()  # what looks damaged may have been replaced
            raise
        self.scan.storage.confirm()

    def report(
        self, task_bytes: int | None = None, advance: Callable[[int], None] | None = None, *, every: bool = False
    ) -> Report:
        """What `verify` finds, with what is not read, and what more could be read of damaged files."""
        found = list(self.verify(task_bytes, advance, every=every))
        damaged = {one.path: one for one in found if one.damaged}
        files = [file for file in self.files if file.path in damaged]
        more = self.format.rescued(list(damaged.values()), files, self.scan) if files else ""
        return Report(self.format.name, found, self.skipped, more)

    def _inspected(
        self, fragments: Iterable[Fragment], advance: Callable[[int], None] | None, *, every: bool
    ) -> Iterator[tuple[Fragment, Findings]]:
        """What every fragment comes across, in order."""
        for fragment, findings in in_order(fragments, once(lambda one: one.inspect(every=every)), self._threads):
            if advance is not None:
                advance(fragment.size)
            yield fragment, findings

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """The Arrow C stream, by which Polars, DuckDB, pandas and others read a dataset."""
        return exported(self.to_reader(), requested_schema)

    def __len__(self) -> int:
        """How many rows there are, counted anew by every call."""
        return self.count_rows()

    def __bool__(self) -> bool:
        """True: to ask whether there is a dataset costs nothing."""
        return True

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        """See `to_batches`."""
        return self.to_batches()

    def _repr_html_(self) -> str:
        """What a notebook shows: where the bytes of small files went, and the first rows."""
        from sawlog.map.notebook import as_html

        return as_html(self)

    def __repr__(self) -> str:
        return f"<Dataset {self.format.name} view={self.scan.view!r} {self._where}>"

    def _fragments(self, task_bytes: int | None) -> Iterator[Fragment]:
        with guarded(f"{self._where}: planning failed"):
            yield from self.plan(task_bytes)

    @property
    def _where(self) -> str:
        first = self.files[0].path if self.files else "(no files)"
        return f"{first} and {len(self.files) - 1} more" if len(self.files) > 1 else first

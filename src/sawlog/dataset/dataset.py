"""Datasets: what a path holds, under a choice of columns and rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

import pyarrow as pa

from sawlog.dataset.scanning import (
    confirm_after,
    count_rows,
    find_more_rows,
    read_fragments,
    read_rows,
    run_at_once,
    verify_contents,
)
from sawlog.errors import SchemaError, warn
from sawlog.format.capabilities import FindsMoreRows, Verification
from sawlog.format.contract import TASK_BYTES, BoundScan, Contents, Format, Fragment
from sawlog.format.damage import (
    DamageWarning,
    FileReport,
    Findings,
    Report,
    Skipped,
    describe_skipped,
    merge_findings,
    warn_of_losses,
)
from sawlog.format.planning import bind_scan, describe_files, hold_full_collections, plan_fragments, plan_tasks
from sawlog.format.recognition import explain_unselected
from sawlog.format.scan import Columns, Scan, parse_columns, parse_filter
from sawlog.guard import wrap_errors
from sawlog.storage import File, confirm_files

if TYPE_CHECKING:
    from sawlog.dataset.watch import Watch


@dataclass(frozen=True, eq=False, repr=False)
class Dataset:
    """Dataset at a path: a schema, and rows. Opening reads no more than headers.

    Args:
        contents: What the format knows of the files.
        scan: What is wanted of them.

    Attributes:
        request: The scan with its columns, as `contents` are asked for it.

    Raises:
        SchemaError: For a column that the view does not have.
    """

    contents: Contents
    scan: Scan
    request: BoundScan = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "request", bind_scan(self.contents, self.scan))

    @property
    def format(self) -> Format:
        """The format."""
        return self.contents.format

    @property
    def files(self) -> Sequence[File]:
        """The files, in reading order."""
        return self.contents.files

    @property
    def schema(self) -> pa.Schema:
        """Schema of the returned batches."""
        return self.request.projection.schema

    @cached_property
    def skipped(self) -> list[Skipped]:
        """Contents of the path that a read leaves out."""
        unselected = self.contents.unselected
        unread = explain_unselected(self.format, self.files, unselected, self.scan) if unselected else []
        return [*unread, *self.contents.skipped_files(self.request)]

    def info(self) -> dict[str, Any]:
        """Return facts about the content that cost no more than headers, for people to read."""
        with wrap_errors(f"{describe_files(self.contents)}: info failed"):
            facts = self.contents.facts(self.request)
        confirm_files(self.scan.storage)
        return facts

    def fragments(self, task_bytes: int | None = TASK_BYTES) -> list[Fragment]:
        """Return fragments in reading order; together they hold every row exactly once."""
        with hold_full_collections():
            return list(plan_fragments(self.contents, self.request, task_bytes))

    def tasks(self, task_bytes: int = TASK_BYTES) -> list[list[Fragment]]:
        """Return fragments packed, in order, into tasks of about `task_bytes` of input."""
        return plan_tasks(self.contents, self.request, task_bytes)

    def with_projection(self, columns: Columns | None = None, filter: Any = None) -> Self:
        """Return the same dataset with fewer columns or rows; what was read of the files is not read again.

        Args:
            columns: Names, in order, or names and expressions; those of the dataset if not given.
            filter: A `pyarrow.compute.Expression` that holds for every returned row, besides what the dataset's does.

        Raises:
            SchemaError: For a column that the view does not have.
        """
        if columns is None and filter is None:
            return self
        scan = self.scan
        selection = parse_columns(columns)
        if isinstance(scan.columns, dict) and isinstance(selection, tuple) and scan.columns.keys() >= set(selection):
            selection = {name: scan.columns[name] for name in selection}
        filter = parse_filter(filter)
        if filter is not None and scan.expression is not None:
            filter = scan.expression & filter
        expression = scan.expression if filter is None else filter
        scan = replace(scan, columns=scan.columns if selection is None else selection, expression=expression)
        return replace(self, scan=scan)

    def scanner(self, columns: Columns | None = None, filter: Any = None, batch_size: int | None = None) -> Scanner:
        """Return rows under one more choice of columns and rows, which is pushed into the decoder.

        Args:
            columns: Names, in order, or a dictionary of names and the expressions that make them.
            filter: A `pyarrow.compute.Expression`.
            batch_size: Rows per batch, at most.

        Raises:
            SchemaError: For a column that the view does not have.
        """
        return Scanner(self.with_projection(columns, filter), batch_size)

    def to_batches(
        self, columns: Columns | None = None, filter: Any = None, batch_size: int | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows, as record batches, in order. What was left out becomes a warning, once per file.

        Arguments are those of `scanner`.
        """
        if columns is not None or filter is not None or batch_size is not None:
            yield from self.scanner(columns, filter, batch_size).to_batches()
            return
        collector = _WarningCollector(self.skipped)
        yield from read_rows(self.contents, self.request, collector.add)
        collector.report()

    def to_reader(self) -> pa.RecordBatchReader:
        """Return the rows as a stream of record batches."""
        return pa.RecordBatchReader.from_batches(self.schema, self.to_batches())

    def to_table(self, columns: Columns | None = None, filter: Any = None) -> pa.Table:
        """Return the rows as a table in memory; arguments are those of `scanner`."""
        projected = self.with_projection(columns, filter)
        collector = _WarningCollector(projected.skipped)
        batches = run_at_once(
            projected.contents, lambda contents, done: list(read_rows(contents, projected.request, done)), collector.add
        )
        collector.report()
        return pa.Table.from_batches(batches, projected.schema)

    def to_pandas(self, **settings: Any) -> Any:
        """Return the rows as a data frame of pandas; settings are those of `pyarrow.Table.to_pandas`."""
        return self.to_table().to_pandas(**settings)

    def count_rows(self, filter: Any = None) -> int:
        """Return how many rows `to_batches` returns; without filters no column is gathered."""
        if filter is not None:
            return self.with_projection(None, filter).count_rows()
        if self.scan.filters or self.scan.expression is not None or self.scan.view == "damage":
            return sum(batch.num_rows for batch in self.to_batches())
        collector = _WarningCollector(self.skipped)
        total = count_rows(self.contents, self.request, collector.add)
        collector.report()
        return total

    def head(self, n: int = 10) -> pa.Table:
        """Return the first `n` rows; nothing after them is read."""
        batches = []
        missing = n
        fragments = plan_fragments(self.contents, self.request, None)
        rows = read_fragments(fragments, 1, _WarningCollector(self.skipped).add)
        for batch in confirm_after(self.contents, rows):
            batches.append(batch.slice(0, missing))
            missing -= batches[-1].num_rows
            if missing <= 0:
                confirm_files(self.scan.storage)
                break
        return pa.Table.from_batches(batches, self.schema)

    def verify(
        self, task_bytes: int | None = None, advance: Callable[[int], None] | None = None, *, every: bool = False
    ) -> Iterator[FileReport]:
        """Check every byte that the view reads: one report per file, in order.

        Args:
            task_bytes: As for `fragments`.
            advance: Called with the input bytes of every fragment that is done.
            every: Whether reports list every damage, however many there are.
        """
        return verify_contents(self.contents, self.request, Verification(task_bytes, advance, every))

    def report(
        self, task_bytes: int | None = None, advance: Callable[[int], None] | None = None, *, every: bool = False
    ) -> Report:
        """Return what `verify` finds, with what is not read, and what more could be read of damaged files.

        Args:
            task_bytes: As for `fragments`.
            advance: Called with the input bytes of every fragment that is done.
            every: Whether the report lists every damage, however many there are.
        """
        file_reports = list(self.verify(task_bytes, advance, every=every))
        damaged = {file_report.path: file_report for file_report in file_reports if file_report.damaged}
        files = [file for file in self.files if file.path in damaged]
        rows_hint = ""
        if isinstance(self.format, FindsMoreRows):
            if any(file_report.damaged or file_report.incomplete for file_report in file_reports):
                rows_hint = self.format.find_more_rows(self.contents, file_reports)
        elif files:
            rows_hint = find_more_rows(self.format, list(damaged.values()), files, self.scan)
        return Report(self.format.name, file_reports, self.skipped, rows_hint)

    def watch(self, positions: Mapping[str, Any] | None = None, *, poll: float = 1.0) -> Watch:
        """Return the rows, and those that are written from now on: an endless iterator of record batches.

        Files that the path holds and the view leaves out become a warning.

        Args:
            positions: Where an earlier watch has stopped: its `positions`.
            poll: Seconds between two looks where nothing was added.

        Raises:
            OptionError: When the view cannot be followed; some views raise it with the first look.
        """
        from sawlog.dataset.watch import Watch

        for remark in describe_skipped(self.skipped):
            warn(remark, DamageWarning)
        return Watch(self.contents, self.scan, positions, poll)

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Return the Arrow C stream, by which Polars, DuckDB, pandas and others read a dataset."""
        return export_reader(self.to_reader(), requested_schema)

    def __len__(self) -> int:
        """Return how many rows there are, counted by every call."""
        return self.count_rows()

    def __bool__(self) -> bool:
        """Return True: to ask whether there is a dataset costs nothing."""
        return True

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        """Return the rows, as record batches."""
        return self.to_batches()

    def _repr_html_(self) -> str:
        """Return what a notebook shows: where the bytes of small files went, and the first rows."""
        from sawlog.map.notebook import as_html

        return as_html(self)

    def __repr__(self) -> str:
        return f"<Dataset {self.format.name} view={self.scan.view!r} {describe_files(self.contents)}>"


class Scanner:
    """Rows of a dataset, as pyarrow's scanners deliver them.

    Args:
        dataset: What is read.
        batch_size: Rows per batch, at most; as they come if not given.
    """

    def __init__(self, dataset: Dataset, batch_size: int | None = None) -> None:
        self.dataset = dataset
        self._batch_size = batch_size

    @property
    def schema(self) -> pa.Schema:
        """Schema of the returned batches."""
        return self.dataset.schema

    projected_schema = schema

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows, as record batches, in order."""
        for batch in self.dataset.to_batches():
            for start in range(0, batch.num_rows, self._batch_size or batch.num_rows):
                yield batch.slice(start, self._batch_size)

    def to_reader(self) -> pa.RecordBatchReader:
        """Return the rows as a stream of record batches."""
        return pa.RecordBatchReader.from_batches(self.schema, self.to_batches())

    def to_table(self) -> pa.Table:
        """Return the rows as a table in memory."""
        return pa.Table.from_batches(self.to_batches(), self.schema)

    def count_rows(self) -> int:
        """Return how many rows there are."""
        return self.dataset.count_rows()

    def head(self, n: int = 10) -> pa.Table:
        """Return the first `n` rows; nothing after them is read."""
        return self.dataset.head(n)

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Return the Arrow C stream."""
        return export_reader(self.to_reader(), requested_schema)


def export_reader(reader: pa.RecordBatchReader, requested: object = None) -> object:
    """Return a reader as an Arrow C stream.

    Raises:
        SchemaError: For columns that the C stream would call otherwise: its names end at a NUL.
    """
    broken = [name for name in reader.schema.names if "\0" in name]
    if broken:
        raise SchemaError(f"the column {broken[0]!r} has a NUL in its name, with which no other library can take it")
    return reader.__arrow_c_stream__(requested)


class _WarningCollector:
    """Warns of what was left out: of files at once, of what is in them once per file, however many fragments it has."""

    def __init__(self, skipped: Iterable[Skipped]) -> None:
        for remark in describe_skipped(skipped):
            warn(remark, DamageWarning)
        self._path = ""
        self._findings: Findings | None = None

    def add(self, fragment: Fragment, findings: Findings) -> None:
        """Take in what a fragment came across."""
        if fragment.about != self._path:
            self.report()
            self._path = fragment.about
        if self._findings is not None or not findings.is_clean:
            self._findings = self._findings or Findings("skip")
            merge_findings(self._findings, findings)

    def report(self) -> None:
        """Warn of what was left out of the last file."""
        if self._findings is not None:
            warn_of_losses(self._findings, self._path)
        self._findings = None

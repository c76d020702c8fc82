"""Capabilities of only some formats: small protocols that are found by type, each with one caller."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, Self, runtime_checkable

from sawlog.errors import OptionError

if TYPE_CHECKING:
    import pyarrow as pa

    from sawlog.format.charts import Picture
    from sawlog.format.contract import BoundScan, Contents, Format, Fragment, Range, Writer
    from sawlog.format.damage import FileReport, Findings, Remark, Skipped
    from sawlog.format.fields import FieldParser
    from sawlog.format.scan import NamedTable, Scan
    from sawlog.storage import File, Source, Storage


@runtime_checkable
class Followable(Protocol):
    """Contents that a stream can follow. Used by `sawlog.stream`, through `require_followable`.

    Both methods depend on nothing but the bytes up to the end of what is asked about, so that a micro-batch can be
    repeated. They raise `OptionError` for a view that cannot be followed, see `make_follow_error`.
    """

    def find_committed_end(self, request: BoundScan, file: File, position: int) -> int:
        """Return how far a file can be read: the end of its last complete record or transaction.

        Args:
            request: What is wanted.
            file: One of the files; it is taken to end at its size.
            position: A committed position: 0, or what an earlier call has answered.
        """

    def list_fragments(self, request: BoundScan, ranges: Sequence[Range]) -> list[Fragment]:
        """Return the fragments that read ranges of the files, in reading order."""


def make_follow_error(contents: Contents, advice: str = "") -> OptionError:
    """Return the error for a view that cannot be followed; the advice begins with a colon."""
    return OptionError(f"view {contents.scan.view!r} of {contents.format.name} cannot be followed as a stream{advice}")


def require_followable(contents: Contents) -> Followable:
    """Return contents as what a stream follows.

    Raises:
        OptionError: When the format cannot be followed.
    """
    if isinstance(contents, Followable):
        return contents
    raise make_follow_error(contents)


@runtime_checkable
class ScansForSplits(Protocol):
    """Contents whose large files have no marks at which they could be cut. Used by indexes and by tasks of Spark."""

    def scan_for_splits(self, request: BoundScan) -> bool:
        """Read the files once, and note in the index where they may be cut, and what they say of others.

        Returns:
            Whether other files are read without these as they are with them.
        """


@runtime_checkable
class NeedsScanToSplit(Protocol):
    """Contents that may have to be scanned for splits, file by file. Used by Spark's planner."""

    def needs_scan(self, file: File, task_bytes: int) -> bool:
        """Return whether all of a file has to be read to cut it into pieces of this size."""


@runtime_checkable
class SplitsGroups(Protocol):
    """Contents that may have to be scanned for splits, group by group of files. Used by Spark's planner."""

    def split_groups(self, request: BoundScan, task_bytes: int) -> Iterable[Contents | Fragment]:
        """Return fragments, and contents that tasks plan, which together are these, in order.

        There are none where planning needs no more than headers, or the bytes are near: then the caller can plan all.
        """

    def list_unscanned_parts(self, request: BoundScan, task_bytes: int) -> Iterable[Contents]:
        """Return the remote parts that tasks have to scan, each in one of its own, before these can be planned."""


@runtime_checkable
class PrefetchesHeaders(Protocol):
    """Contents that ask their files for more than opening them does. Used by `sawlog.index`."""

    def prefetch_headers(self, request: BoundScan) -> None:
        """Ask of the files what planning asks, so that an index remembers it."""


@runtime_checkable
class PlansWholeReads(Protocol):
    """Contents with a faster plan for work that returns nothing before all of it has succeeded.

    Used by tables, counts, and checks of remote files.
    """

    def plan_whole_read(self) -> Self | None:
        """Return the same contents for such a read; `None` where it is no faster.

        Its fragments may fail where those of a plan that looks further first do not.
        """


@runtime_checkable
class PlansFewRows(Protocol):
    """Contents with a faster plan for a reader that ends when it has some rows. Used by Spark's planner, for limits."""

    def plan_few_rows(self) -> Self | None:
        """Return the same contents for such a read; `None` where it is no faster.

        Its fragments together hold the same rows, in another order, and are found one after the other.
        """


@runtime_checkable
class JoinsFiles(Protocol):
    """Contents that read several files as one. Used to find how many threads can read."""

    def count_parts(self, request: BoundScan) -> int:
        """Return how many parts threads can read at the same time, where they share no file."""


@runtime_checkable
class ChecksScans(Protocol):
    """Contents that cannot answer every scan of their views. Used when a scan is bound to its columns."""

    def check_scan(self, scan: Scan) -> None:
        """Raise a `SchemaError` for a scan that these files cannot answer."""


@runtime_checkable
class VerifiesOtherwise(Protocol):
    """Contents whose bytes are verified by another scan than they are read by. Used by `verify`."""

    def make_verify_request(self, request: BoundScan) -> BoundScan:
        """Return the request whose fragments check every byte."""


@dataclass(frozen=True, slots=True)
class Verification:
    """Options of one check of every byte.

    Attributes:
        task_bytes: As for `plan_fragments`.
        advance: Called with the input bytes of every file that is done.
        lists_all: Whether reports list every damage.
        findings: Those of all fragments, where they have been read already.
    """

    task_bytes: int | None = None
    advance: Callable[[int], None] | None = None
    lists_all: bool = False
    findings: Iterable[Findings] | None = None


@runtime_checkable
class ReportsFiles(Protocol):
    """Contents whose fragments are of several files, so that they make the reports themselves. Used by `verify`."""

    def report_files(self, request: BoundScan, verification: Verification) -> Iterator[FileReport]:
        """Check every byte that the view reads: one report per file, in order."""


@runtime_checkable
class HasTables(Protocol):
    """Contents of several tables that options name. Used by catalogs and repairs, through `list_tables`."""

    def find_tables(self) -> list[NamedTable]:
        """Return the tables below the path; none where the path is one table."""


def list_tables(contents: Contents) -> list[NamedTable]:
    """Return the tables below a path that options can name."""
    return contents.find_tables() if isinstance(contents, HasTables) else []


@runtime_checkable
class HasDecoders(Protocol):
    """Contents whose rows applications have written. Used by `sawlog ls`."""

    def find_decoders(self) -> list[str]:
        """Return the views that decode what an application has put into the rows, as far as a short look shows."""


@runtime_checkable
class HasFields(Protocol):
    """Contents that name the fields at an offset. Used by maps."""

    def make_field_parser(self, file: File, source: Source) -> FieldParser:
        """Return a function that names the fields of what is at an offset, for people who look at bytes.

        Args:
            file: One of the files.
            source: Its bytes, of which a few hundred around each offset are enough.

        Returns:
            A function of an offset, where a row, damage or the file begins: the fields from there on, in ascending
            order, as many as are asked for. They may lie, and the function may raise: the bytes may be damaged.
        """


def find_field_parser(contents: Contents, file: File, source: Source) -> FieldParser:
    """Return what names the fields of a file; nothing is named where the format cannot do it."""
    return contents.make_field_parser(file, source) if isinstance(contents, HasFields) else lambda offset: iter(())


@runtime_checkable
class HasCharts(Protocol):
    """Contents that draw themselves. Used by maps."""

    def draw_pictures(self, request: BoundScan) -> Iterable[Picture]:
        """Return charts of all that the files hold, whatever the columns and filters of the request are."""


@runtime_checkable
class CountsCharts(Protocol):
    """Contents whose charts are counted while rows are read, so that they need no read of their own. Used by maps."""

    def make_counting(self, request: BoundScan) -> Counting | None:
        """Return what counts the rows of a request; `None` where charts need a read of their own."""


@runtime_checkable
class FindsMoreRows(Protocol):
    """A format that reads more rows of what is damaged or incomplete under other options. Used by reports."""

    def find_more_rows(self, contents: Contents, reports: Sequence[FileReport]) -> str:
        """Return what more can be read of what these reports say, as a phrase for people; empty if nothing."""


@runtime_checkable
class WritesPartitions(Protocol):
    """A format with partitions of its own. Used by `sawlog.write`."""

    def open_partitioned_writer(
        self, path: str, column: str, schema: pa.Schema, options: Any, storage: Storage
    ) -> Writer:
        """Begin writing to the partitions below `path` that the values of a column name.

        Raises:
            SchemaError: When the column cannot name them, or the schema cannot be represented.
        """


@runtime_checkable
class WritesTasks(Protocol):
    """A format whose tasks do not write one file each. Used by Spark's writer."""

    def open_task_writer(
        self, directory: str, job: str, task: int, schema: pa.Schema, options: Any, storage: Storage
    ) -> Writer:
        """Begin the share of one task in a directory that many tasks write.

        Args:
            directory: What the job writes.
            job: A name that no other job has; it is part of the names of all files, staged ones included.
            task: Number of the task; no two of a job share one, but for attempts at the same work.
            schema: The columns.
            options: Write options.
            storage: Where the directory is.
        """


@runtime_checkable
class RepairsTogether(Protocol):
    """A format that does not repair its files one by one. Used by `sawlog.repair`."""

    def repair_files(self, contents: Contents, places: Sequence[tuple[File, str]], storage: Storage) -> None:
        """Write what `skip` returns of files to new ones.

        Args:
            contents: The files as they are read.
            places: The files, and where the new ones go.
            storage: Where both are; it publishes what is written once it has proven to be what a read delivers.
        """


@runtime_checkable
class RepairsParts(Protocol):
    """A format whose repaired copies are read part by part. Used where `sawlog.repair` checks them."""

    def list_repaired_parts(self, contents: Contents) -> list[Mapping[str, Any]]:
        """Return options for each part of what `repair_files` writes that is read by itself."""

    def convert_repaired_rows(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return rows as a repaired copy has them."""


@runtime_checkable
class RemarksOnRepairs(Protocol):
    """A format that knows what a repaired copy lacks, or keeps in spite of damage. Used by `sawlog.repair`."""

    def remark_on_repair(self, contents: Contents) -> list[Skipped | Remark]:
        """Return what the files hold and a copy does not, and what is damaged in another view and was kept."""


@runtime_checkable
class MarksRows(Protocol):
    """A format with columns that say how a row was found, which a repaired copy does not keep.

    Used where `sawlog.repair` proves its copies, through `list_marks`.
    """

    marks: ClassVar[frozenset[str]]


def list_marks(format: Format) -> frozenset[str]:
    """Return the columns that say how a row was found."""
    return format.marks if isinstance(format, MarksRows) else frozenset()


@runtime_checkable
class ReadsFilesOtherwise(Protocol):
    """A format whose files have more rows each than all of them together. Used by indexes, through `file_options`."""

    def choose_file_options(self, options: Any) -> Any:
        """Return the options by which each file has all rows that it has by these."""


def find_file_options(format: Format, options: Any) -> Any:
    """Return the options by which statistics of single files are taken."""
    return format.choose_file_options(options) if isinstance(format, ReadsFilesOtherwise) else options


class Counting(Protocol):
    """A counter of rows that draws charts.

    Attributes:
        columns: The columns of the rows that it counts; none where it counts what rows are made from.
    """

    @property
    def columns(self) -> Sequence[str]: ...

    def add(self, observed: Any) -> None:
        """Count a batch that has the columns, or what fragments hand to `Findings.observe`."""

    def draw_pictures(self) -> Iterable[Picture]:
        """Return the charts, when all has been read."""

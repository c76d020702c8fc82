"""The merge: an intraday date to history, sorted, grouped and proven."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.errors import PySparkException
from pyspark.serializers import CPickleSerializer

from sawlog.deephaven_import.history import (
    HistoricalTable,
    Journal,
    MergeRecord,
    NamespaceSet,
    delete_merged,
    recover,
    take_back,
)
from sawlog.deephaven_import.records import RECORD_NAME
from sawlog.deephaven_import.spark.rows import FRAGMENT, ROW, placed_rows, values
from sawlog.deephaven_import.tree import IntradayTable, Location, local_root
from sawlog.deephaven_table.options import ReadOptions, WriteOptions
from sawlog.deephaven_table.types import GROUPING, ROLE_KEY
from sawlog.deephaven_table.writer import LocationWriter
from sawlog.errors import FormatError, OptionError, SawlogError
from sawlog.format import Dataset, Scan, get_format
from sawlog.options import parse_options
from sawlog.spark.cast import cast_batch
from sawlog.spark.digest import Digest, column, digest
from sawlog.spark.errors import explain
from sawlog.storage import PathLike, Staged, Storage

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MERGED_BYTES = 1 << 30
"""Bytes of column files per historical location, about."""


@dataclass(frozen=True, slots=True)
class Merge:
    """What `merge` did.

    Attributes:
        rows: Rows of the intraday date, and of the historical locations.
        checksum: Sum of the hashes of all rows over all columns, modulo 2**64, the same on both sides.
        merged: The intraday locations.
        locations: The historical ones.
        grouped: Columns that got grouping metadata.
        written: Whether they were written now; otherwise they held the same rows already.
        deleted: Whether the intraday locations were deleted.
        remarks: What is worth telling, a sentence each.
    """

    rows: int
    checksum: int
    merged: list[str]
    locations: list[str]
    grouped: list[str] = field(default_factory=list)
    written: bool = False
    deleted: bool = False
    remarks: list[str] = field(default_factory=list)


def merge(
    spark: SparkSession,
    root: PathLike,
    namespace: str,
    table: str,
    date: str,
    *,
    schema: str | None = None,
    group: Sequence[str] | None = None,
    sort: Sequence[str] = (),
    internal_partitions: int | None = None,
    namespace_set: NamespaceSet = "System",
    append: bool = False,
    delete_intraday: bool = False,
    write_options: Mapping[str, Any] | None = None,
    **options: Any,
) -> Merge:
    """Merge all intraday locations of a date into history: `ROOT/Systems/NAMESPACE/Partitions/N/DATE/TABLE`.

    Rows are sorted by the grouping columns, all rows of a value of the first of them in one internal partition; rows of
    the same values stay in the order in which they were logged, or are sorted further by `sort`. Without grouping
    columns, internal partitions hold the rows one after the other. What was published is read back, and must have the
    same count and hash of rows as the intraday date; otherwise it is taken back. A merge that is killed is taken back,
    or brought to its end, by the next merge or import of the table. A date that was merged before is only proven again.

    Args:
        spark: The session. Its executors have to see the tree.
        root: The root of both trees, on a file system.
        namespace: Namespace of the table.
        table: The table.
        date: The column partition.
        schema: A Deephaven `.schema` file: types, and grouping columns.
        group: Grouping columns, instead of the schema's.
        sort: Columns that rows of the same group are sorted by.
        internal_partitions: How many there will be; by default one per GiB.
        namespace_set: `System` for `ROOT/Systems`, `User` for `ROOT/Users`.
        append: Add internal partitions to a date that history has already, for rows that came late. Takes
            `delete_intraday`, lest they are added twice.
        delete_intraday: Delete the intraday locations when the proof is there.
        write_options: Options for writing `deephaven_table`.
        **options: Options for reading `deephaven_table`, such as `types`.

    Raises:
        FormatError: When there is nothing to merge.
        SawlogError: When history holds other rows of the date, or what was written is not what was read.
    """
    if append and not delete_intraday:
        raise OptionError("append without delete_intraday would add the same rows again with the next merge")
    place = local_root(root)
    tree = IntradayTable(place, namespace, table)
    history = HistoricalTable(place, namespace_set, namespace, table)
    read = parse_options(ReadOptions, {"schema": schema, **options}, where="reading deephaven_table")
    written = parse_options(WriteOptions, dict(write_options or {}), where="writing deephaven_table")
    arrangement = Arrangement(None if group is None else tuple(group), tuple(sort), internal_partitions)
    with tree.locked():
        locations = [one for one in recover(tree) if one.partition.column_partition == date]
        history.tidy(date)
        if all(one.record is not None and not one.record.rows for one in locations):
            raise FormatError(f"{tree.directory}: there are no rows of {date} to merge")
        found = history.locations(date)
        try:
            job = _MergeJob(spark, history, date, locations, read)
            done = job.prove(found) if found and not append else job.write(tree, found, arrangement, written)
        except PySparkException as error:
            raise SawlogError(f"{tree.directory}: {date}: {explain(error)}") from error
        if delete_intraday:
            # In the journal's place: killed here, what is proven is never merged, or appended, a second time.
            job.delete(tree, locations)
        Journal.delete(tree)
        return replace(done, deleted=delete_intraday)


@dataclass(frozen=True, slots=True)
class Arrangement:
    """How the rows of a date are arranged.

    Attributes:
        group: Columns that they are sorted by, and spread by the first of; None: those that the schema says.
        sort: Columns that they are sorted by further.
        internal_partitions: How many locations they are spread over; None: by size.
    """

    group: tuple[str, ...] | None = None
    sort: tuple[str, ...] = ()
    internal_partitions: int | None = None

    def __post_init__(self) -> None:
        if self.internal_partitions is not None and self.internal_partitions <= 0:
            raise OptionError(f"internal_partitions={self.internal_partitions}: expected 1 or more")


class _MergeJob:
    """The merge of one date, under the lock of its table."""

    def __init__(
        self,
        spark: SparkSession,
        history: HistoricalTable,
        date: str,
        locations: Sequence[Location],
        options: ReadOptions,
    ) -> None:
        self.name = uuid.uuid4().hex[:12]
        self._spark = spark
        self._history = history
        self._date = date
        self._merged = [one.path for one in locations if one.record is None or one.record.rows]
        self._options = options
        self._dataset = self._open(self._merged)
        self._rows = placed_rows(spark, self._dataset)

    def prove(self, found: Sequence[Location]) -> Merge:
        """See to it that history has the rows of the date.

        Raises:
            SawlogError: When it has not.
        """
        paths = [one.path for one in found]
        wanted = digest(values(self._rows))
        self._compare(paths, wanted, "move it away to merge anew, or append if rows came late")
        return Merge(wanted.rows, wanted.checksum, self._merged, paths)

    def write(
        self, tree: IntradayTable, found: Sequence[Location], arrangement: Arrangement, options: WriteOptions
    ) -> Merge:
        """Write, publish and prove internal partitions beside those that were found. Leaves its journal.

        Raises:
            SawlogError: When what is published is not what was read; it is taken back.
        """
        asked = self._grouping() if arrangement.group is None else arrangement.group
        self._check(*asked, *arrangement.sort)
        wanted = digest(values(self._rows))
        groups = self._contiguous(asked)
        first = max((int(n) + 1 for one in found if (n := one.partition.internal_partition).isdecimal()), default=0)
        schema = pa.schema([_without_dictionary(one) for one in self._dataset.schema])
        writer = _Writer(self._history, self._date, first, schema, replace(options, group=groups), self.name)
        staged = self._run(asked, arrangement, writer)
        journal = Journal(self.name, "publishing", self._history.namespace_set, self._date, tuple(staged), ())
        journal.write(tree)
        paths = [self._history.path(internal, self._date) for internal in staged]
        try:
            Storage().publish(one for pieces in staged.values() for one in pieces)
            self._compare(paths, wanted, "what was written was taken back")
        except BaseException:
            take_back(self._history, journal)
            self._history.tidy(self._date)
            Journal.delete(tree)
            raise
        remarks = [
            f"column {name!r} got no groups: values of it come under several of the columns before it"
            for name in asked
            if name not in groups
        ]
        return Merge(wanted.rows, wanted.checksum, self._merged, paths, list(groups), written=True, remarks=remarks)

    def delete(self, tree: IntradayTable, locations: Sequence[Location]) -> None:
        """Delete the intraday locations, which were proven to be in history."""
        merged = tuple(one.partition.internal_partition for one in locations)
        journal = Journal(self.name, "deleting", self._history.namespace_set, self._date, (), merged)
        journal.write(tree)
        delete_merged(tree, journal)

    def _grouping(self) -> tuple[str, ...]:
        """The grouping columns, as a schema file says: the given one, or those that lie in the locations."""
        role = (ROLE_KEY, GROUPING.encode())
        return tuple(one.name for one in self._dataset.schema if role in (one.metadata or {}).items())

    def _check(self, *names: str) -> None:
        known = self._dataset.schema.names
        for name in names:
            if name not in known:
                raise OptionError(f"there is no column {name!r}; columns: {', '.join(known)}")

    def _contiguous(self, groups: Sequence[str]) -> tuple[str, ...]:
        """Grouping columns whose rows follow one another when sorted: values come under one of the columns before."""
        from pyspark.sql import functions as f

        found = list(groups[:1])
        for index, name in enumerate(groups[1:], 1):
            before = [column(other) for other in groups[:index]]
            pairs = self._rows.select(*before, column(name)).distinct()
            if pairs.groupBy(column(name)).count().where(f.col("count") > 1).isEmpty():
                found.append(name)
        return tuple(found)

    def _run(self, groups: Sequence[str], arrangement: Arrangement, writer: _Writer) -> dict[str, Sequence[Staged]]:
        """Have every task write one internal partition; what is staged, by internal partition."""
        size = sum(file.size for file in self._dataset.files)
        tasks = arrangement.internal_partitions or max(1, -(-size // MERGED_BYTES))
        place = [column(FRAGMENT), column(ROW)]
        order = [column(name) for name in (*groups, *arrangement.sort)] + place
        if groups:
            spread = self._rows.repartition(tasks, column(groups[0]))
        else:
            spread = self._rows.repartitionByRange(tasks, *order)
        rows = spread.sortWithinPartitions(*order).mapInArrow(writer, "internal int, staged binary").collect()
        pickled = CPickleSerializer()
        return {str(row["internal"]): pickled.loads(bytes(row["staged"])) for row in sorted(rows)}

    def _compare(self, paths: list[str], wanted: Digest, advice: str) -> None:
        """Read what is at paths, and compare it with the intraday rows."""
        there = digest(values(placed_rows(self._spark, self._open(paths))))
        if there != wanted:
            raise SawlogError(
                f"{self._history.directory}: history has {there} of {self._date}, intraday are {wanted}; {advice}"
            )

    def _open(self, paths: list[str]) -> Dataset:
        format = get_format("deephaven_table")
        storage = Storage()
        return format.open(format.select(storage.find(paths), "rows"), Scan(options=self._options, storage=storage))


@dataclass(frozen=True)
class _Writer:
    """Writes the internal partition of the task that it runs in. Picklable."""

    history: HistoricalTable
    date: str
    first: int
    schema: pa.Schema
    options: WriteOptions
    job: str

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Stage a location, if there is a row."""
        internal = self.first + TaskContext.get().partitionId()
        writer: LocationWriter | None = None
        rows = 0
        try:
            for batch in batches:
                if batch.num_rows:
                    writer = writer or self._begin(str(internal))
                    writer.write(cast_batch(batch, self.schema))
                    rows += batch.num_rows
            if writer is not None:
                writer.add_file(RECORD_NAME, MergeRecord(self.job, rows).to_json())
                staged = CPickleSerializer().dumps(writer.finish())
                yield pa.record_batch({"internal": pa.array([internal], pa.int32()), "staged": [staged]})
        except BaseException:
            if writer is not None:
                writer.abort()
            raise

    def _begin(self, internal: str) -> LocationWriter:
        return LocationWriter(
            self.history.path(internal, self.date), self.schema, self.options, Storage(), marker=f"{self.job}."
        )


def _without_dictionary(field: pa.Field) -> pa.Field:
    return field.with_type(field.type.value_type) if pa.types.is_dictionary(field.type) else field

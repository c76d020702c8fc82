"""The merge: an intraday date to history, sorted, grouped and checked."""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from dataclasses import replace as altered
from typing import TYPE_CHECKING, Any, TypeVar, cast

import pyarrow as pa
from pyspark.errors import PySparkException

from sawlog import api
from sawlog.deephaven.ingest.arrange import (
    Arrangement,
    LocationsWriter,
    TargetLocation,
    choose_ranges,
    find_contiguous_groups,
)
from sawlog.deephaven.ingest.history import (
    HistoricalTable,
    MergedPart,
    MergeRecord,
    NamespaceSet,
    list_parts,
    select_void_parts,
)
from sawlog.deephaven.ingest.journal import Journal, delete_merged, forget, hide_locations, recover, take_back
from sawlog.deephaven.ingest.order import check_sortable
from sawlog.deephaven.ingest.runs import (
    FragmentPiece,
    RetainedRows,
    Sorter,
    count_bytes,
    measure,
    plan_pieces,
    unite_schemas,
)
from sawlog.deephaven.ingest.tree import IntradayTable, TreeLocation, require_table
from sawlog.deephaven.table.dataset import DeephavenTableContents
from sawlog.deephaven.table.options import ReadOptions, WriteOptions
from sawlog.deephaven.table.types import GROUPING, GUESS_KEY, ROLE_KEY
from sawlog.errors import FormatError, OptionError, SawlogError, SchemaError
from sawlog.format.contract import Scan
from sawlog.format.digest import Digest
from sawlog.format.options import parse_options
from sawlog.format.planning import find_view_schema
from sawlog.format.recognition import get_format
from sawlog.spark.errors import explain
from sawlog.spark.tasks import run_tasks
from sawlog.storage import PathLike, Staged, Storage

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Outcome = TypeVar("Outcome")

_OF_VALUES = ("char", "decimal", "sentinels_as_null")
"""Options that say how values look; types come from what the merge itself has written."""


@dataclass(frozen=True, slots=True)
class Merge:
    """The outcome of `merge`.

    Attributes:
        rows: Rows that history has of the date, checked.
        checksum: Sum of the hashes of all rows over all columns, modulo 2**64, the same on both sides.
        merged: The intraday locations that are in history.
        locations: The historical ones that were written, or, when there was nothing to write, those that were checked.
        grouped: Columns that got grouping metadata.
        added: Rows that were taken out of intraday locations now.
        removed: Rows that history had of partitions that were deleted since.
        written: Whether anything was written; otherwise history held all rows already.
        deleted: Whether the intraday locations were deleted.
        remarks: What is worth a warning, a sentence each.
    """

    rows: int
    checksum: int
    merged: list[str]
    locations: list[str]
    grouped: list[str] = field(default_factory=list)
    added: int = 0
    removed: int = 0
    written: bool = False
    deleted: bool = False
    remarks: list[str] = field(default_factory=list)


def merge(
    spark: SparkSession | None,
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
    replace: bool = False,
    delete_intraday: bool = False,
    write_options: Mapping[str, Any] | None = None,
    **options: Any,
) -> Merge:
    """Merge all intraday locations of a date into history: `ROOT/Systems/NAMESPACE/Partitions/N/DATE/TABLE`.

    Rows are sorted by the grouping columns; all rows of a value of the first grouping column are in one internal
    partition. Rows of the same values stay in the order in which they were logged, or are sorted further by `sort`.
    Without grouping columns, internal partitions hold the rows one after the other.

    Every merged location records what it was made of. A later merge of the date takes only what is not there yet, into
    internal partitions of its own; when a partition was deleted since (DELETE_PARTITION), the date is rebuilt without
    its rows. What is published is opened as any reader opens the tree, and must have the count and the hash of all rows
    that were taken, then and now; otherwise it is taken back. A merge that is killed is taken back, or brought to its
    end, by the next merge or import of the table.

    Args:
        spark: The session, whose executors have to see the tree; without one, threads of this process merge.
        root: The root of both trees, on a file system.
        namespace: Namespace of the table.
        table: The table.
        date: The column partition.
        schema: A Deephaven `.schema` file: types, and grouping columns.
        group: Grouping columns, instead of the schema's.
        sort: Columns that rows of the same group are sorted by.
        internal_partitions: How many there will be; by default one per GiB.
        namespace_set: `System` for `ROOT/Systems`, `User` for `ROOT/Users`.
        append: Add to locations that no merge of sawlog made, which do not say what they hold.
        replace: Rebuild the date: sorted and spread as a whole. Locations that do not say what they hold are
            replaced by the intraday rows.
        delete_intraday: Delete the intraday locations when the proof is there.
        write_options: Options for writing `deephaven_table`.
        **options: Options for reading `deephaven_table`, such as `types`.

    Raises:
        FormatError: When there is nothing to merge.
        SchemaError: When the type of a column would be a guess.
        SawlogError: When history holds other rows of the date, or what was written is not what was read.
    """
    tree = require_table(root, namespace, table, date)
    history = HistoricalTable(tree.root, namespace_set, namespace, table)
    read = parse_options(ReadOptions, {"schema": schema, **options}, context="reading deephaven_table")
    written = parse_options(WriteOptions, dict(write_options or {}), context="writing deephaven_table")
    arrangement = Arrangement(None if group is None else tuple(group), tuple(sort), internal_partitions)
    with tree.lock():
        locations = [location for location in recover(tree) if location.partition.column_partition == date]
        history.tidy(date)
        job = MergeJob(spark, tree, history, date, locations, read)
        try:
            done = job.run(job.plan(append=append, replacing=replace), arrangement, written)
        except PySparkException as error:
            raise SawlogError(f"{tree.directory}: {date}: {explain(error)}") from error
        if delete_intraday:
            # In the journal's place: killed here, what is proven is deleted by the next merge.
            job.delete(locations)
        Journal.delete(tree)
        return altered(done, deleted=delete_intraday)


@dataclass(frozen=True, slots=True)
class _Plan:
    """The work of a merge.

    Attributes:
        incoming_parts: Intraday locations to take, and the parts that they are.
        retained_parts: Parts that are taken out of the locations that are replaced.
        replaced: Historical locations that go.
        removed: Rows that go with them.
        expected: The digest that history must have in the end.
        advice: What to do when it has not, and nothing was written.
    """

    incoming_parts: Mapping[str, MergedPart]
    retained_parts: tuple[MergedPart, ...]
    replaced: tuple[TreeLocation, ...]
    removed: int
    expected: Digest
    advice: str = ""

    @property
    def parts(self) -> tuple[MergedPart, ...]:
        """The parts that the written locations are made of."""
        return (*self.retained_parts, *self.incoming_parts.values())

    @property
    def has_writes(self) -> bool:
        """Whether there is anything to do but the proof."""
        return bool(self.incoming_parts or self.replaced)


class MergeJob:
    """The merge of one date, under the lock of its table."""

    def __init__(
        self,
        spark: SparkSession | None,
        tree: IntradayTable,
        history: HistoricalTable,
        date: str,
        locations: Sequence[TreeLocation],
        options: ReadOptions,
    ) -> None:
        self.name = uuid.uuid4().hex[:12]
        self._spark = spark
        self._tree = tree
        self._history = history
        self._date = date
        self._locations = locations
        self._filled = {
            location.path: location for location in locations if location.record is None or location.record.rows
        }
        self._options = options
        self._historical_locations = tuple(history.list_locations(date))
        self._intraday = self._open(self._filled) if self._filled else None

    def plan(self, *, append: bool, replacing: bool) -> _Plan:
        """Find out what of the date history does not have.

        Raises:
            FormatError: When there is nothing to merge.
            SawlogError: When it is unknown what history has.
        """
        historical = self._historical_locations
        recorded, unknown = list_parts(historical)
        void = select_void_parts(recorded, self._locations)
        if not self._filled and not void:
            raise FormatError(f"{self._tree.directory}: there are no rows of {self._date} to merge")
        intraday_parts = self._measure()
        recorded_by_identity = {part.identity: part for part in recorded}
        for path, part in intraday_parts.items():
            before = recorded_by_identity.get(part.identity)
            if before is not None and (before.rows, before.checksum) != (part.rows, part.checksum):
                raise SawlogError(
                    f"{path}: has {_make_digest(part)} now, and had {_make_digest(before)} when it was merged;"
                    " what was merged is not deleted, and what is there now is not merged"
                )
        new = {path: part for path, part in intraday_parts.items() if part.identity not in recorded_by_identity}
        kept_parts = tuple(part for part in recorded if part not in void)
        if replacing:
            inside = {part.identity for part in intraday_parts.values()}
            only = tuple(part for part in kept_parts if part.identity not in inside)
            rows = _sum((*only, *intraday_parts.values()))
            return _Plan(intraday_parts, only, historical, _count_rows(void), rows)
        if void and unknown:
            raise SawlogError(
                f"{unknown[0].path}: does not say what it was made of, and a partition of {self._date} was deleted"
                " since a merge; replace the date to rebuild it from the intraday rows"
            )
        if void:
            return _Plan(new, kept_parts, historical, _count_rows(void), _sum((*kept_parts, *new.values())))
        if not unknown:
            return _Plan(new, (), (), 0, _sum((*kept_parts, *new.values())))
        if append:
            return _Plan(new, (), (), 0, self.read_proof() + _sum(new.values()))
        advice = "replace it to merge again, or append to what no merge of sawlog made"
        return _Plan({}, (), (), 0, _sum(intraday_parts.values()), advice)

    def run(self, plan: _Plan, arrangement: Arrangement, options: WriteOptions) -> Merge:
        """Write what is to be written, publish it, and prove what is there then. Leaves its journal.

        Raises:
            SawlogError: When what is published is not what it should be; it is taken back.
        """
        merged = list(self._filled)
        if not plan.has_writes:
            self._compare(plan.expected, plan.advice or "nothing was written")
            paths = [location.path for location in self._historical_locations]
            return Merge(plan.expected.rows, plan.expected.checksum, merged, paths)
        staged, group_columns, groups = self._arrange(plan, arrangement, options)
        replaced = tuple(location.partition.internal_partition for location in plan.replaced)
        journal = Journal(self.name, "publishing", self._history.namespace_set, self._date, tuple(staged), (), replaced)
        journal.write(self._tree)
        try:
            hide_locations(self._history, journal)
            Storage().publish(piece for pieces in staged.values() for piece in pieces)
            self._compare(plan.expected, "what was written was taken back")
        except BaseException:
            take_back(self._history, journal)
            self._history.tidy(self._date)
            Journal.delete(self._tree)
            raise
        altered(journal, state="deleting").write(self._tree)
        forget(self._history, journal)
        self._history.tidy(self._date)  # attempts that came second have staged what nobody publishes
        paths = [self._history.build_path(internal, self._date) for internal in staged]
        remarks = [
            f"column {name!r} got no groups: values of it come under several of the columns before it"
            for name in group_columns
            if name not in groups
        ]
        if plan.removed:
            remarks.append(f"{plan.removed} rows went: their partitions were deleted after they had been merged")
        added = sum(part.rows for part in plan.incoming_parts.values())
        return Merge(
            plan.expected.rows, plan.expected.checksum, merged, paths, list(groups), added, plan.removed, True,
            remarks=remarks,
        )  # fmt: skip

    def _arrange(
        self, plan: _Plan, arrangement: Arrangement, options: WriteOptions
    ) -> tuple[dict[str, Sequence[Staged]], Sequence[str], tuple[str, ...]]:
        """Sort and spread the rows; return what is staged by partition, grouping columns, those with groups."""
        tasks, schema = self._plan_rows(plan)
        group_columns = self._find_grouping(schema) if arrangement.group is None else arrangement.group
        keys = (*group_columns, *arrangement.sort)
        self._check(schema, *keys)
        locations = arrangement.count_locations(sum(map(count_bytes, tasks)))
        board = self._tree.make_board()
        os.mkdir(board)
        try:
            sorter = Sorter(board, schema, tuple(group_columns), keys, locations if group_columns else 1)
            runs = tuple(
                run for run in self._run_tasks(sorter, tasks, list(map(count_bytes, tasks))) if run is not None
            )
            groups = find_contiguous_groups(runs, group_columns)
            internals = [location.partition.internal_partition for location in self._historical_locations]
            first = max((int(name) + 1 for name in internals if name.isdecimal()), default=0)
            targets = [TargetLocation(first + i, i) for i in range(locations)]
            if not group_columns:
                targets = [TargetLocation(first + i, 0, *cut) for i, cut in enumerate(choose_ranges(runs, locations))]
            record = MergeRecord(self.name, 0, plan.parts)
            written = altered(options, group=groups)
            writer = LocationsWriter(runs, keys, self._history, self._date, schema, written, record)
            staged = self._run_tasks(writer, targets, [sum(run.bytes for run in runs) // locations] * locations)
        finally:
            shutil.rmtree(board, ignore_errors=True)
        return (
            {
                str(target.internal): staged_files
                for target, staged_files in zip(targets, staged, strict=True)
                if staged_files
            },
            group_columns,
            groups,
        )

    def _run_tasks(
        self, function: Callable[[Any], Outcome], items: Sequence[Any], sizes: Sequence[int]
    ) -> list[Outcome]:
        """Apply a function to items in tasks."""
        try:
            outcomes = run_tasks(self._spark, function, items, sizes)
            failed = next((outcome for outcome in outcomes if isinstance(outcome, SawlogError)), None)
        except BaseException:
            self._history.tidy(self._date)
            raise
        if failed is not None:
            self._history.tidy(self._date)
            raise failed
        return cast("list[Outcome]", outcomes)

    def delete(self, locations: Sequence[TreeLocation]) -> None:
        """Delete the intraday locations, which were proven to be in history."""
        merged = tuple(location.partition.internal_partition for location in locations)
        journal = Journal(self.name, "deleting", self._history.namespace_set, self._date, (), merged)
        journal.write(self._tree)
        delete_merged(self._tree, journal)

    def _measure(self) -> dict[str, MergedPart]:
        """Return the parts that the intraday locations are, every row of them read."""
        if self._intraday is None:
            return {}
        paths = list(self._filled)
        self._find_types()
        digests = self._compute_digests(self._intraday, {path: i for i, path in enumerate(paths)})
        measured = [(path, digests.get(i, Digest())) for i, path in enumerate(paths)]
        return {path: MergedPart.of(self._filled[path], digest.rows, digest.checksum) for path, digest in measured}

    def _compute_digests(self, contents: DeephavenTableContents, parts: Mapping[str, int]) -> dict[int, Digest]:
        tasks = plan_pieces(contents, parts)
        digests: dict[int, Digest] = {}
        for task_digests in self._run_tasks(measure, tasks, list(map(count_bytes, tasks))):
            for part, digest in task_digests.items():
                digests[part] = digests.get(part, Digest()) + digest
        return digests

    def _plan_rows(self, plan: _Plan) -> tuple[list[list[FragmentPiece]], pa.Schema]:
        """Return the rows to write by task, each with the number of its part in the record, and their columns."""
        numbers = {part.identity: number for number, part in enumerate(plan.parts)}
        tasks = []
        schemas = [] if self._intraday is None else [self._find_types()]
        if plan.retained_parts:
            old = self._open(location.path for location in plan.replaced)
            schemas.append(find_view_schema(old))
            origins = {location.path: _retain_rows(location, numbers) for location in plan.replaced}
            tasks += plan_pieces(old, origins)
        if plan.incoming_parts:
            tasks += plan_pieces(
                self._open(plan.incoming_parts),
                {path: numbers[part.identity] for path, part in plan.incoming_parts.items()},
            )
        return tasks, unite_schemas(schemas)

    def _find_types(self) -> pa.Schema:
        """Return the columns of the intraday locations."""
        assert self._intraday is not None
        for column in find_view_schema(self._intraday):
            if GUESS_KEY in (column.metadata or {}):
                guess = column.metadata[GUESS_KEY].decode()
                raise SchemaError(
                    f"{self._tree.directory}: column {column.name!r}: its type is unknown ({guess}): name it with"
                    " schema= or types=, to merge it"
                )
        return find_view_schema(self._intraday)

    @staticmethod
    def _find_grouping(schema: pa.Schema) -> tuple[str, ...]:
        """Return the grouping columns, as a schema file says: the given one, or those that lie in the locations."""
        role = (ROLE_KEY, GROUPING.encode())
        return tuple(field.name for field in schema if role in (field.metadata or {}).items())

    @staticmethod
    def _check(schema: pa.Schema, *names: str) -> None:
        for name in names:
            if name not in schema.names:
                raise OptionError(f"there is no column {name!r}; columns: {', '.join(schema.names)}")
            check_sortable(schema.field(name))

    def _compare(self, expected: Digest, advice: str) -> None:
        """Read what history has of the date, and compare it with what it should have."""
        history_digest = self.read_proof()
        if history_digest != expected:
            raise SawlogError(
                f"{self._history.directory}: history has {history_digest} of {self._date}, intraday are {expected};"
                f" {advice}"
            )

    def read_proof(self) -> Digest:
        """Return the rows that a reader of the historical tree gets for the date."""
        if not self._history.list_locations(self._date):
            return Digest()
        values = {field.name: getattr(self._options, field.name) for field in fields(ReadOptions)}
        options: dict[str, Any] = {name: values[name] for name in _OF_VALUES}
        if any(MergeRecord.read(location.path) is None for location in self._history.list_locations(self._date)):
            options |= {"schema": values["schema"], "types": values["types"]}
        options |= {"namespace": self._history.namespace, "table": self._history.table}
        dataset = api.open(self._history.directory, format="deephaven_table", **options)
        assert isinstance(dataset.contents, DeephavenTableContents)
        scan = altered(dataset.scan, filters=((dataset.contents.partition_column, "=", self._date),))
        contents = dataset.format.open(dataset.files, scan)
        assert isinstance(contents, DeephavenTableContents)
        parts = dict.fromkeys((location.directory for location in contents.locations), 0)
        return self._compute_digests(contents, parts).get(0, Digest())

    def _open(self, paths: Iterable[str]) -> DeephavenTableContents:
        format = get_format("deephaven_table")
        storage = Storage()
        scan = Scan(options=self._options, storage=storage, roots=(self._tree.root,))
        return cast(DeephavenTableContents, format.open(format.select(storage.find(list(paths)), "rows"), scan))


def _retain_rows(location: TreeLocation, numbers: Mapping[tuple[Any, ...], int]) -> RetainedRows:
    """Return the rows of a merged location that are taken, and the numbers of their parts."""
    record = MergeRecord.read(location.path)
    parts = () if record is None or record.parts is None else record.parts
    return RetainedRows({i: numbers[part.identity] for i, part in enumerate(parts) if part.identity in numbers})


def _make_digest(part: MergedPart) -> Digest:
    return Digest(part.rows, part.checksum)


def _sum(parts: Iterable[MergedPart]) -> Digest:
    return sum(map(_make_digest, parts), Digest())


def _count_rows(parts: Iterable[MergedPart]) -> int:
    return sum(part.rows for part in parts)

"""The import: binary logs to an intraday tree."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, cast, get_args

import pyarrow as pa

from sawlog.damage import DamageWarning, check_on_damage
from sawlog.deephaven.schema_xml import TableSchema, parse_schema
from sawlog.deephaven_import.journal import recover
from sawlog.deephaven_import.plan import PartitionPlan, Planner, Share, order_of
from sawlog.deephaven_import.records import Partition
from sawlog.deephaven_import.schema import common_schema, left_out, location_schema
from sawlog.deephaven_import.shares import Filled, Filler
from sawlog.deephaven_import.tree import IntradayTable, Location, local_root, remove_location
from sawlog.deephaven_import.unstorable import UNSTORABLE_NAME, OnUnstorable
from sawlog.deephaven_log.dataset import DeephavenLogDataset, Log, open_log
from sawlog.deephaven_log.header import IncompleteHeaderError
from sawlog.deephaven_log.names import LogName, parse_name
from sawlog.deephaven_log.options import ReadOptions
from sawlog.deephaven_table.options import WriteOptions
from sawlog.errors import FormatError, OptionError, SawlogError, SchemaError
from sawlog.format import Projection, Scan, get_format
from sawlog.options import parse_options
from sawlog.spark.tasks import run_tasks
from sawlog.storage import File, PathLike, Storage

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOCATION_BYTES = 512 << 20
"""Bytes of logs that become one location, about."""


@dataclass(slots=True)
class Import:
    """What `import_logs` did.

    Attributes:
        rows: Rows that were imported.
        partitions: Partitions that got new locations.
        locations: The new locations, in order.
        removed: Locations that a DELETE_PARTITION emptied.
        remarks: What was left for later, a sentence each.
        skipped: What was left out because it is damaged, a sentence each.
        unstorable: Values that column files cannot hold; they lie beside those that are stored instead.
    """

    rows: int = 0
    partitions: int = 0
    locations: list[str] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    unstorable: int = 0


def import_logs(
    spark: SparkSession,
    source: PathLike | Sequence[PathLike],
    root: PathLike,
    *,
    on_damage: str = "fail",
    on_unstorable: OnUnstorable = "error",
    location_bytes: int = LOCATION_BYTES,
    write_options: Mapping[str, Any] | None = None,
    storage_options: Mapping[str, Any] | None = None,
    **options: Any,
) -> Import:
    """Import what binary logs have got since the last time into `ROOT/Intraday`, each row exactly once.

    A partition (namespace, table, internal and column partition) has its rows in the order of its logs. Only committed
    rows are imported; what is still being written waits for the next time. A location appears as soon as it is done,
    together with the record of the logs and bytes that it was made from, so that the import can be killed at any moment
    and goes on from there. Logs that do not agree on a type are converted, each by itself, to what all can become.

    Args:
        spark: The session. Its executors have to see the logs and the tree.
        source: Logs, directories of logs, globs or fsspec URLs; of any number of tables.
        root: The root of the tree, on a file system.
        on_damage: `fail` stops a partition before the first location that damage would be in; `skip` imports everything
            intact, and says in the remarks what was left out.
        on_unstorable: What becomes of values that column files cannot hold, such as an empty Blob or a character that
            the charset lacks: `error` stops the partition; `null` stores null; `replace` stores text with `?` for what
            the charset lacks, as Java does, and else null. They are counted, and written down in the location, with
            log and offset, in `_sawlog.unstorable.jsonl`.
        location_bytes: Bytes of logs per location, about.
        write_options: Options for writing `deephaven_table`.
        storage_options: What fsspec needs to reach the logs.
        **options: Options for reading `deephaven_log`, such as `schema`, `namespace` or `timestamp_columns`.

    Raises:
        SawlogError: Such as DamageError, after all that could be imported was; other errors become warnings.
    """
    parsed = parse_options(ReadOptions, options, where="reading deephaven_log")
    scan = Scan(on_damage=check_on_damage(on_damage), options=parsed, storage=Storage(storage_options or {}))
    if on_unstorable not in get_args(OnUnstorable):
        raise OptionError(f"on_unstorable={on_unstorable!r}: expected one of {', '.join(get_args(OnUnstorable))}")
    job = _ImportJob(spark, local_root(root), scan, location_bytes, on_unstorable, write_options or {})
    for (namespace, table), files in _tables(source, scan).items():
        job.run(IntradayTable(job.root, namespace, table), files)
    for error in job.errors[1:]:
        warnings.warn(str(error), DamageWarning, stacklevel=2)
    if job.errors:
        raise job.errors[0]
    return job.done


def _tables(source: PathLike | Sequence[PathLike], scan: Scan) -> dict[tuple[str, str], list[File]]:
    """Logs by table.

    Raises:
        FormatError: When a log's name and the options do not tell its table and partitions, or there is no log.
        OptionError: When two logs have the same name, or one schema is to describe several tables.
    """
    tables: dict[tuple[str, str], list[File]] = {}
    seen: dict[str, str] = {}
    given = _given(scan)
    for file in get_format("deephaven_log").select(scan.storage.find(source), "rows"):
        name = parse_name(file.name)
        if any(getattr(name, part) not in (None, value) for part, value in given.items()):
            continue
        partition = _partition(replace(name, **given), file.path)
        if seen.setdefault(file.name, file.path) != file.path:
            raise OptionError(f"{file.path}: {seen[file.name]} has the same name; leave the copy out")
        tables.setdefault((partition.namespace, partition.table), []).append(file)
    if not tables:
        raise FormatError(f"{source}: no binary log of what was asked for is there")
    if len(tables) > 1 and scan.options.schema is not None:
        found = ", ".join(f"{namespace}.{table}" for namespace, table in tables)
        raise OptionError(f"one schema, and logs of several tables: {found}; choose one with namespace= and table=")
    return tables


def _given(scan: Scan) -> dict[str, Any]:
    """What the options say of the names of logs."""
    return {part: getattr(scan.options, part) for part in _NAME_PARTS if getattr(scan.options, part) is not None}


_NAME_PARTS = ("namespace", "table", "internal_partition", "column_partition")


def _partition(name: LogName, path: str) -> Partition:
    """The partition that a log belongs to.

    Raises:
        FormatError: When that is not known.
    """
    missing = [part for part in _NAME_PARTS if not getattr(name, part)]
    if missing:
        raise FormatError(
            f"{path}: its name does not tell {', '.join(missing)}; give it as an option, or leave the log out"
        )
    return Partition(*name.partition)


class _ImportJob:
    """One import, table by table."""

    def __init__(
        self,
        spark: SparkSession,
        root: str,
        scan: Scan,
        location_bytes: int,
        on_unstorable: OnUnstorable,
        write_options: Mapping[str, Any],
    ) -> None:
        if location_bytes <= 0:
            raise OptionError(f"location_bytes={location_bytes}: expected a positive number of bytes")
        self._spark = spark
        self.root = root
        self._scan = scan
        self._location_bytes = location_bytes
        self._on_unstorable = on_unstorable
        self._options = parse_options(WriteOptions, write_options, where="writing deephaven_table")
        self.done = Import()
        self.errors: list[SawlogError] = []

    def run(self, tree: IntradayTable, files: Sequence[File]) -> None:
        """Import one table."""
        with tree.locked():
            locations = recover(tree)
            logs = self._logs(files, locations)
            if logs is None:
                return
            plans = self._plan(tree, logs, locations)
            filler = Filler(self._schema(logs), self._options, Storage(), self._on_unstorable)
            publication = _Publication(self, tree, plans, locations)
            items = publication.items
            sizes = [sum(fragment.size for fragment in share.fragments) for share, _ in items]
            run_tasks(self._spark, filler, items, sizes, tree.board(), publication.arrived)
            # Attempts that came second have staged what nobody publishes.
            tree.tidy()

    def _logs(self, files: Sequence[File], locations: list[Location]) -> _Logs | None:
        """The logs of one table; None when all of them are new, and still inside their headers."""
        taken = {name for one in locations if one.record is not None for name in one.record.logs}
        options = replace(self._scan.options, **dict(zip(_NAME_PARTS[:2], self._table(files[0]), strict=True)))
        scan = replace(self._scan, options=options)
        format = get_format("deephaven_log")

        def opened(some: Sequence[File]) -> DeephavenLogDataset | None:
            try:
                return cast(DeephavenLogDataset, format.open(some, scan))
            except FormatError:
                if all(file.name not in taken and self._begins(file) for file in some):
                    self.done.remarks += [f"{file.path}: its header is not all there yet" for file in some]
                    return None
                raise

        try:
            whole = opened(files)
            datasets = [whole] if whole is not None else []
        except SchemaError as error:
            self.done.remarks.append(f"{error}; every log is converted by itself")
            datasets = [one for file in files if (one := opened([file])) is not None]
        return _Logs.of(datasets) if datasets else None

    def _table(self, file: File) -> tuple[str, str]:
        name = replace(parse_name(file.name), **_given(self._scan))
        return _partition(name, file.path).namespace, _partition(name, file.path).table

    def _schema(self, logs: _Logs) -> pa.Schema:
        """The columns of the table's locations."""
        path = self._scan.options.schema
        table = TableSchema() if path is None else parse_schema(path, self._scan.storage.read(path))
        unknown = left_out(logs.schema, table.columns)
        if unknown:
            self.done.remarks.append(f"{path}: does not know {', '.join(unknown)}, which are logged; they are left out")
        return location_schema(logs.schema, table.columns, self._options.charset, str(path))

    def _begins(self, file: File) -> bool:
        """Whether a log is still inside its header."""
        try:
            open_log(file, self._scan.options, self._scan.storage)
        except IncompleteHeaderError:
            return True
        except FormatError:
            return False
        return False

    def _plan(self, tree: IntradayTable, found: _Logs, locations: list[Location]) -> list[PartitionPlan]:
        logs: dict[Partition, list[Log]] = {}
        for log in found.logs:
            logs.setdefault(_partition(log.name, log.file.path), []).append(log)
        planner = Planner(found.scan, found.projections, self._location_bytes)
        items = [(partition, of_it, tree.progress(partition, locations)) for partition, of_it in logs.items()]
        outcomes = run_tasks(self._spark, planner, items, [planner.size(of_it, at) for _, of_it, at in items])
        plans = [outcome for outcome in outcomes if isinstance(outcome, PartitionPlan)]
        self.errors += [outcome for outcome in outcomes if isinstance(outcome, SawlogError)]
        self.done.remarks += [remark for plan in plans for remark in plan.remarks]
        self.done.skipped += [remark for plan in plans for remark in plan.skipped]
        return plans


@dataclass(frozen=True, slots=True)
class _Logs:
    """The logs of a table, in order.

    Attributes:
        logs: The logs.
        scan: How they are read.
        projections: The columns of each, by its path.
        schema: The columns that all of them can be converted to.
    """

    logs: Sequence[Log]
    scan: Scan
    projections: Mapping[str, Projection]
    schema: pa.Schema

    @classmethod
    def of(cls, datasets: Sequence[DeephavenLogDataset]) -> _Logs:
        """The logs of datasets."""
        pairs = [(log, one.projection) for one in datasets for log in one.logs]
        logs = sorted((log for log, _ in pairs), key=lambda log: order_of(log.file.name)) if datasets[1:] else None
        return cls(
            logs or [log for log, _ in pairs],
            datasets[0].scan,
            {log.file.path: projection for log, projection in pairs},
            common_schema([one.schema for one in datasets]),
        )


class _Publication:
    """Publishes the locations of each partition in order, as they are done, up to the first that failed.

    Attributes:
        items: Shares, and where their locations go.
    """

    def __init__(
        self, job: _ImportJob, tree: IntradayTable, plans: Sequence[PartitionPlan], locations: list[Location]
    ) -> None:
        self._job = job
        self._tree = tree
        self._locations = locations
        self._done: dict[int, Filled | SawlogError] = {}
        self._open: dict[int, tuple[PartitionPlan, list[int]]] = {}
        self.items: list[tuple[Share, str]] = []
        for number, plan in enumerate(plans):
            first = len(self.items)
            self.items += [(share, tree.path(plan.partition, share.record.sequence)) for share in plan.shares]
            if plan.shares:
                self._open[number] = plan, list(range(first, len(self.items)))

    def arrived(self, index: int, outcome: Filled | SawlogError) -> None:
        """Take what became of a share, and publish what can be."""
        self._done[index] = outcome
        for number, (plan, left) in list(self._open.items()):
            while left and left[0] in self._done:
                place = left.pop(0)
                one = self._done.pop(place)
                if isinstance(one, SawlogError):
                    self._job.errors.append(one)
                    del self._open[number]
                    break
                self._publish(plan, self.items[place][0], one)
            else:
                if not left:
                    self._job.done.partitions += 1
                    del self._open[number]

    def _publish(self, plan: PartitionPlan, share: Share, one: Filled) -> None:
        done = self._job.done
        if share.record.truncates:
            # Removed first, so that no reader meets deleted rows beside new ones. The newest goes last: whatever is
            # left when this is killed says no more than was imported, and the logs say again what is deleted.
            for location in self._tree.of(plan.partition, self._locations):
                remove_location(location.path)
                done.removed.append(location.path)
        Storage().publish(one.staged)
        done.rows += one.rows
        done.locations += [staged.final for staged in one.staged]
        done.skipped += one.skipped
        done.unstorable += one.unstorable
        if one.unstorable:
            path = os.path.join(one.staged[0].final, UNSTORABLE_NAME)
            done.remarks.append(f"{path}: {one.unstorable} values that column files cannot hold")

"""The import: binary logs to an intraday tree."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from sawlog.damage import DamageWarning, check_on_damage
from sawlog.deephaven.schema_xml import TableSchema, parse_schema
from sawlog.deephaven_import.journal import recover
from sawlog.deephaven_import.plan import PartitionPlan, Planner
from sawlog.deephaven_import.records import Partition
from sawlog.deephaven_import.schema import left_out, location_schema
from sawlog.deephaven_import.shares import Filled, Filler
from sawlog.deephaven_import.tree import IntradayTable, Location, local_root, remove_location
from sawlog.deephaven_log.dataset import DeephavenLogDataset, Log, open_log
from sawlog.deephaven_log.header import IncompleteHeaderError
from sawlog.deephaven_log.names import LogName, parse_name
from sawlog.deephaven_log.options import ReadOptions
from sawlog.deephaven_table.options import WriteOptions
from sawlog.errors import FormatError, OptionError, SawlogError
from sawlog.format import Scan, get_format
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
    """

    rows: int = 0
    partitions: int = 0
    locations: list[str] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)


def import_logs(
    spark: SparkSession,
    source: PathLike | Sequence[PathLike],
    root: PathLike,
    *,
    on_damage: str = "fail",
    location_bytes: int = LOCATION_BYTES,
    write_options: Mapping[str, Any] | None = None,
    storage_options: Mapping[str, Any] | None = None,
    **options: Any,
) -> Import:
    """Import what binary logs have got since the last time into `ROOT/Intraday`, each row exactly once.

    A partition (namespace, table, internal and column partition) has its rows in the order of its logs. Only committed
    rows are imported; what is still being written waits for the next time. A location appears together with the record
    of the logs and bytes that it was made from, so that the import can be killed at any moment and run again.

    Args:
        spark: The session. Its executors have to see the logs and the tree.
        source: Logs, directories of logs, globs or fsspec URLs; of any number of tables.
        root: The root of the tree, on a file system.
        on_damage: `fail` stops a partition before the first location that damage would be in; `skip` imports everything
            intact, and says in the remarks what was left out.
        location_bytes: Bytes of logs per location, about.
        write_options: Options for writing `deephaven_table`.
        storage_options: What fsspec needs to reach the logs.
        **options: Options for reading `deephaven_log`, such as `schema`, `namespace` or `timestamp_columns`.

    Raises:
        SawlogError: Such as DamageError, after all that could be imported was; other errors become warnings.
    """
    parsed = parse_options(ReadOptions, options, where="reading deephaven_log")
    scan = Scan(on_damage=check_on_damage(on_damage), options=parsed, storage=Storage(storage_options or {}))
    job = _ImportJob(spark, local_root(root), scan, location_bytes, write_options or {})
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
    given = {part: getattr(scan.options, part) for part in _NAME_PARTS if getattr(scan.options, part) is not None}
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
        self, spark: SparkSession, root: str, scan: Scan, location_bytes: int, write_options: Mapping[str, Any]
    ) -> None:
        if location_bytes <= 0:
            raise OptionError(f"location_bytes={location_bytes}: expected a positive number of bytes")
        self._spark = spark
        self.root = root
        self._scan = scan
        self._location_bytes = location_bytes
        self._options = parse_options(WriteOptions, write_options, where="writing deephaven_table")
        self.done = Import()
        self.errors: list[SawlogError] = []

    def run(self, tree: IntradayTable, files: Sequence[File]) -> None:
        """Import one table."""
        with tree.locked():
            locations = recover(tree)
            dataset = self._open(tree, files, locations)
            if dataset is None:
                return
            plans = self._plan(tree, dataset, locations)
            filler = Filler(self._schema(dataset), self._options, Storage())
            shares = [
                (share, tree.path(plan.partition, share.record.sequence)) for plan in plans for share in plan.shares
            ]
            sizes = [sum(fragment.size for fragment in share.fragments) for share, _ in shares]
            filled = run_tasks(self._spark, filler, shares, sizes)
            try:
                outcomes = iter(filled)
                for plan in plans:
                    self._publish(tree, plan, list(itertools.islice(outcomes, len(plan.shares))), locations)
            finally:
                for one in filled:
                    if isinstance(one, Filled):
                        self._discard(one)

    def _open(
        self, tree: IntradayTable, files: Sequence[File], locations: list[Location]
    ) -> DeephavenLogDataset | None:
        """The logs of one table; None when all of them are new, and still inside their headers."""
        taken = {name for one in locations if one.record is not None for name in one.record.logs}
        options = replace(self._scan.options, namespace=tree.namespace, table=tree.table)
        format = get_format("deephaven_log")
        try:
            dataset = format.open(files, replace(self._scan, options=options))
        except FormatError:
            if all(file.name not in taken and self._begins(file) for file in files):
                self.done.remarks += [f"{file.path}: its header is not all there yet" for file in files]
                return None
            raise
        assert isinstance(dataset, DeephavenLogDataset)
        return dataset

    def _schema(self, dataset: DeephavenLogDataset) -> pa.Schema:
        """The columns of the table's locations."""
        path = self._scan.options.schema
        table = TableSchema() if path is None else parse_schema(path, self._scan.storage.read(path))
        unknown = left_out(dataset.schema, table.columns)
        if unknown:
            self.done.remarks.append(f"{path}: does not know {', '.join(unknown)}, which are logged; they are left out")
        return location_schema(dataset.schema, table.columns, self._options.charset, str(path))

    def _begins(self, file: File) -> bool:
        """Whether a log is still inside its header."""
        try:
            open_log(file, self._scan.options, self._scan.storage)
        except IncompleteHeaderError:
            return True
        except FormatError:
            return False
        return False

    def _plan(
        self, tree: IntradayTable, dataset: DeephavenLogDataset, locations: list[Location]
    ) -> list[PartitionPlan]:
        logs: dict[Partition, list[Log]] = {}
        for log in dataset.logs:
            logs.setdefault(_partition(log.name, log.file.path), []).append(log)
        planner = Planner(dataset.scan, dataset.projection, self._location_bytes)
        items = [(partition, found, tree.progress(partition, locations)) for partition, found in logs.items()]
        outcomes = run_tasks(self._spark, planner, items, [planner.size(found, at) for _, found, at in items])
        plans = [outcome for outcome in outcomes if isinstance(outcome, PartitionPlan)]
        self.errors += [outcome for outcome in outcomes if isinstance(outcome, SawlogError)]
        self.done.remarks += [remark for plan in plans for remark in plan.remarks]
        self.done.skipped += [remark for plan in plans for remark in plan.skipped]
        return plans

    def _publish(
        self,
        tree: IntradayTable,
        plan: PartitionPlan,
        filled: Sequence[Filled | SawlogError],
        locations: list[Location],
    ) -> None:
        """Publish the new locations of a partition in order, up to the first that failed."""
        for share, one in zip(plan.shares, filled, strict=True):
            if isinstance(one, SawlogError):
                self.errors.append(one)
                return
            if share.record.truncates:
                # Removed first, so that no reader meets deleted rows beside new ones. The newest goes last: whatever is
                # left when this is killed says no more than was imported, and the logs say again what is deleted.
                for location in tree.of(plan.partition, locations):
                    remove_location(location.path)
                    self.done.removed.append(location.path)
            Storage().publish(one.staged)
            self.done.rows += one.rows
            self.done.locations += [staged.final for staged in one.staged]
            self.done.skipped += one.skipped
        self.done.partitions += bool(plan.shares)

    def _discard(self, filled: Filled) -> None:
        """Delete a location that was not published."""
        Storage().discard(filled.staged)

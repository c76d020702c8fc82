"""The import: binary logs to an intraday tree."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast, get_args

import pyarrow as pa

from sawlog.deephaven.ingest.journal import recover
from sawlog.deephaven.ingest.plan import Filler, PartitionPlan, Planner, order_of
from sawlog.deephaven.ingest.publication import Import, Publication
from sawlog.deephaven.ingest.records import Partition
from sawlog.deephaven.ingest.schema import make_location_schema, merge_schemas
from sawlog.deephaven.ingest.tree import IntradayTable, TreeLocation, resolve_root
from sawlog.deephaven.ingest.unstorable import OnUnstorable
from sawlog.deephaven.log.dataset import BinaryLog, DeephavenLogContents, open_log
from sawlog.deephaven.log.header import IncompleteHeaderError
from sawlog.deephaven.log.names import LogName, parse_name
from sawlog.deephaven.log.options import ReadOptions
from sawlog.deephaven.schema_xml import TableSchema, parse_schema
from sawlog.deephaven.table.options import WriteOptions
from sawlog.errors import FormatError, OptionError, SawlogError, SchemaError, warn
from sawlog.format.contract import Projection, Scan
from sawlog.format.damage import DamageWarning, check_on_damage
from sawlog.format.options import parse_options
from sawlog.format.planning import bind_scan, find_view_schema
from sawlog.format.recognition import get_format
from sawlog.spark.tasks import run_tasks
from sawlog.storage import File, PathLike, Storage
from sawlog.storage.workers import map_ordered, wrap_single_step

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOCATION_BYTES = 512 << 20
"""Bytes of logs that become one location, about."""
_TABLES_AT_A_TIME = 8


def import_logs(
    spark: SparkSession | None,
    source: PathLike | Sequence[PathLike],
    root: PathLike,
    *,
    on_damage: str = "fail",
    on_unstorable: OnUnstorable = "error",
    location_bytes: int = LOCATION_BYTES,
    max_bytes: int | None = None,
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
        spark: The session, whose executors have to see the logs and the tree; without one, threads of this process
            import them.
        source: Logs, directories of logs, globs or fsspec URLs; of any number of tables.
        root: The root of the tree, on a file system.
        on_damage: `fail` stops a partition before the first location that damage would be in; `skip` imports everything
            intact, and says in the remarks what was left out.
        on_unstorable: What becomes of values that column files cannot hold, such as an empty Blob or a character that
            the charset lacks: `error` stops the partition; `null` stores null; `replace` stores text with `?` for what
            the charset lacks, as Java does, and else null. They are counted, and written down in the location, with
            log and offset, in `_sawlog.unstorable.jsonl`.
        location_bytes: Bytes of logs per location, about.
        max_bytes: Bytes of logs that are taken of a partition, about; the rest is left for the next time.
        write_options: Options for writing `deephaven_table`.
        storage_options: What fsspec needs to reach the logs.
        **options: Options for reading `deephaven_log`, such as `schema`, `namespace` or `timestamp_columns`.

    Raises:
        SawlogError: Such as DamageError, after all that could be imported was; other errors become warnings.
    """
    choices = ImportSettings(on_damage, on_unstorable, location_bytes, max_bytes)
    job = ImportJob(spark, root, choices, write_options or {}, storage_options or {}, options)
    done, errors = job.run(source)
    for error in errors[1:]:
        warn(str(error), DamageWarning)
    if errors:
        raise errors[0]
    return done


def check_source(
    source: PathLike | Sequence[PathLike],
    root: PathLike,
    *,
    on_damage: str,
    on_unstorable: OnUnstorable,
    write_options: Mapping[str, Any],
    storage_options: Mapping[str, Any],
    **options: Any,
) -> None:
    """Raise what `import_logs` would of source and options before it has looked into a log; arguments are the same."""
    choices = ImportSettings(on_damage, on_unstorable)
    _group_tables(source, ImportJob(None, root, choices, write_options, storage_options, options).scan)


@dataclass(frozen=True, slots=True)
class ImportSettings:
    """The settings of an import; see `import_logs`.

    Attributes:
        here_bytes: Work of at most so many bytes is no job of Spark.
    """

    on_damage: str = "fail"
    on_unstorable: OnUnstorable = "error"
    location_bytes: int = LOCATION_BYTES
    max_bytes: int | None = None
    here_bytes: int = 0

    def __post_init__(self) -> None:
        if self.on_unstorable not in get_args(OnUnstorable):
            choices = ", ".join(get_args(OnUnstorable))
            raise OptionError(f"on_unstorable={self.on_unstorable!r}: expected one of {choices}")
        for name in ("location_bytes", "max_bytes"):
            number = getattr(self, name)
            if number is not None and number <= 0:
                raise OptionError(f"{name}={number}: expected a positive number of bytes")


def _group_tables(source: PathLike | Sequence[PathLike], scan: Scan) -> dict[tuple[str, str], list[File]]:
    tables: dict[tuple[str, str], list[File]] = {}
    paths_by_name: dict[str, str] = {}
    named_parts = _select_options(scan)
    for file in get_format("deephaven_log").select(scan.storage.find(source), "rows"):
        name = parse_name(file.name)
        if any(getattr(name, part) not in (None, value) for part, value in named_parts.items()):
            continue
        partition = _make_partition(name._replace(**named_parts), file.path)
        if paths_by_name.setdefault(file.name, file.path) != file.path:
            raise OptionError(f"{file.path}: {paths_by_name[file.name]} has the same name; leave the copy out")
        tables.setdefault((partition.namespace, partition.table), []).append(file)
    if not tables:
        raise FormatError(f"{source}: no binary log of what was asked for is there")
    if len(tables) > 1 and scan.options.schema is not None:
        table_names = ", ".join(f"{namespace}.{table}" for namespace, table in tables)
        raise OptionError(
            f"one schema, and logs of several tables: {table_names}; choose one with namespace= and table="
        )
    return tables


def _select_options(scan: Scan) -> dict[str, Any]:
    """Return values of the options that name logs."""
    return {part: getattr(scan.options, part) for part in _NAME_PARTS if getattr(scan.options, part) is not None}


_NAME_PARTS = ("namespace", "table", "internal_partition", "column_partition")


def _make_partition(name: LogName, path: str) -> Partition:
    missing = [part for part in _NAME_PARTS if not getattr(name, part)]
    if missing:
        raise FormatError(
            f"{path}: its name does not say {', '.join(missing)}; give it as an option, or leave the log out"
        )
    return Partition(*name.partition)


class ImportJob:
    """An import, which can be run again and again."""

    def __init__(
        self,
        spark: SparkSession | None,
        root: PathLike,
        choices: ImportSettings,
        write_options: Mapping[str, Any],
        storage_options: Mapping[str, Any],
        options: Mapping[str, Any],
    ) -> None:
        self.spark = spark
        self.root = resolve_root(root)
        self.choices = choices
        self.scan = Scan(
            on_damage=check_on_damage(choices.on_damage),
            options=parse_options(ReadOptions, options, context="reading deephaven_log"),
            storage=Storage(storage_options),
        )
        self._trees: dict[tuple[str, str], IntradayTable] = {}
        self.write_options = parse_options(WriteOptions, write_options, context="writing deephaven_table")

    def run(self, source: PathLike | Sequence[PathLike]) -> tuple[Import, list[SawlogError]]:
        """Import what the logs have got, several tables at a time; errors leave out what they concern."""
        totals, errors = Import(), []
        scan = replace(self.scan, storage=self.scan.storage.make_fresh())
        tables = [
            _TableImport(self, self._trees.setdefault(name, IntradayTable(self.root, *name)), files, scan)
            for name, files in _group_tables(source, scan).items()
        ]
        for _, (done, of_table) in map_ordered(
            tables, wrap_single_step(_TableImport.run), min(len(tables), _TABLES_AT_A_TIME)
        ):
            totals.add(done)
            errors += of_table
        return totals, errors


class _TableImport:
    def __init__(self, job: ImportJob, tree: IntradayTable, files: Sequence[File], scan: Scan) -> None:
        self._job = job
        self._scan = scan
        self._tree = tree
        self._files = files
        self.done = Import()
        self.errors: list[SawlogError] = []

    def run(self) -> tuple[Import, list[SawlogError]]:
        """Import the table; return what was done, and what went wrong."""
        try:
            with self._tree.lock():
                self._run()
                self._tree.clean = not self.errors
        except SawlogError as error:
            self.errors.append(error)
        return self.done, self.errors

    def _run(self) -> None:
        tree, choices = self._tree, self._job.choices
        locations = recover(tree)
        tree.clean = False
        logs = self._open_logs(self._files, locations)
        if logs is None:
            return
        plans = self._plan(logs, locations)
        filler = Filler(self._make_schema(logs), self._job.write_options, Storage(), choices.on_unstorable)
        publication = Publication(tree, plans, locations, self.done, self.errors)
        items = publication.items
        sizes = [sum(fragment.size for fragment in split.fragments) for split, _ in items]
        if items:
            arrived, local_bytes = publication.take_outcome, choices.here_bytes
            try:
                run_tasks(
                    self._job.spark,
                    filler,
                    items,
                    sizes,
                    board=tree.make_board(),
                    arrived=arrived,
                    local_bytes=local_bytes,
                )
            finally:
                if self._job.spark is not None and sum(sizes) > local_bytes:
                    # Attempts that came second, or whose job was cancelled, have staged what nobody publishes.
                    tree.tidy()

    def _open_logs(self, files: Sequence[File], locations: list[TreeLocation]) -> _Logs | None:
        """Return the logs of one table; None when all of them are new, and still inside their headers."""
        imported_logs = {name for location in locations if location.record is not None for name in location.record.logs}
        name = parse_name(files[0].name)._replace(**_select_options(self._scan))
        partition = _make_partition(name, files[0].path)
        options = replace(self._scan.options, namespace=partition.namespace, table=partition.table)
        scan = replace(self._scan, options=options)
        format = get_format("deephaven_log")

        def open_files(files_to_open: Sequence[File]) -> DeephavenLogContents | None:
            try:
                contents = cast(DeephavenLogContents, format.open(files_to_open, scan))
                find_view_schema(contents)  # logs may not agree on their columns
                return contents
            except FormatError:
                if all(file.name not in imported_logs and self._begins(file) for file in files_to_open):
                    self.done.remarks += [f"{file.path}: its header is not all there yet" for file in files_to_open]
                    return None
                raise

        try:
            all_logs = open_files(files)
            datasets = [all_logs] if all_logs is not None else []
        except SchemaError as error:
            self.done.remarks.append(f"{error}; every log is converted by itself")
            datasets = [contents_of_log for file in files if (contents_of_log := open_files([file])) is not None]
        return _Logs.of(datasets) if datasets else None

    def _make_schema(self, logs: _Logs) -> pa.Schema:
        """Return the columns of the table's locations."""
        path = self._scan.options.schema
        table = TableSchema() if path is None else parse_schema(path, self._scan.storage.read(path))
        columns = {column.name for column in table.columns}
        unknown = [name for name in logs.schema.names if name not in columns]
        if columns and unknown:
            self.done.remarks.append(f"{path}: does not know {', '.join(unknown)}, which are logged; they are left out")
        return make_location_schema(logs.schema, table.columns, self._job.write_options.charset, str(path))

    def _begins(self, file: File) -> bool:
        """Return whether a log is still inside its header."""
        try:
            open_log(file, self._scan.options, self._scan.storage)
        except IncompleteHeaderError:
            return True
        except FormatError:
            return False
        return False

    def _plan(self, logs_of_table: _Logs, locations: list[TreeLocation]) -> list[PartitionPlan]:
        tree, choices = self._tree, self._job.choices
        logs: dict[Partition, list[BinaryLog]] = {}
        for log in logs_of_table.logs:
            logs.setdefault(_make_partition(log.name, log.file.path), []).append(log)
        planner = Planner(logs_of_table.scan, logs_of_table.projections, choices.location_bytes, choices.max_bytes)
        items = [(partition, of_it, tree.find_progress(partition, locations)) for partition, of_it in logs.items()]
        sizes = [planner.count_bytes(of_it, progress) for _, of_it, progress in items]
        outcomes = run_tasks(self._job.spark, planner, items, sizes, local_bytes=choices.here_bytes)
        plans = [outcome for outcome in outcomes if isinstance(outcome, PartitionPlan)]
        self.errors += [outcome for outcome in outcomes if isinstance(outcome, SawlogError)]
        self.done.lag = {str(plan.partition): plan.lag for plan in plans if plan.lag}
        self.done.limited = any(plan.limited for plan in plans)
        self.done.remarks += [remark for plan in plans for remark in plan.remarks]
        self.done.skipped += [remark for plan in plans for remark in plan.skipped]
        return plans


@dataclass(frozen=True, slots=True)
class _Logs:
    """The logs of a table, in order."""

    logs: Sequence[BinaryLog]
    scan: Scan
    projections: Mapping[str, Projection]
    schema: pa.Schema

    @classmethod
    def of(cls, datasets: Sequence[DeephavenLogContents]) -> _Logs:
        pairs = [(log, bind_scan(contents, contents.scan).projection) for contents in datasets for log in contents.logs]
        logs = sorted((log for log, _ in pairs), key=lambda log: order_of(log.file.name)) if datasets[1:] else None
        return cls(
            logs or [log for log, _ in pairs],
            datasets[0].scan,
            {log.file.path: projection for log, projection in pairs},
            merge_schemas([find_view_schema(contents) for contents in datasets]),
        )

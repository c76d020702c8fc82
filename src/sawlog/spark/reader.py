"""The batch source: one input partition per task that sawlog plans."""

from __future__ import annotations

import contextlib
import gc
import glob
import itertools
import logging
import os
import sys
import time
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.serializers import CPickleSerializer
from pyspark.sql.datasource import DataSourceReader, InputPartition

from sawlog.arrow import make_constant
from sawlog.dataset.dataset import Dataset
from sawlog.errors import OptionError, SchemaError
from sawlog.format.contract import MIN_TASK_BYTES, Contents, Fragment, Scan
from sawlog.format.damage import Findings, describe_losses, describe_skipped, take_damage_batch
from sawlog.format.planning import (
    bind_scan,
    hold_full_collections,
    list_available_columns,
    list_unscanned_parts,
    pack,
    plan_for_few_rows,
    plan_fragments,
    plan_tasks,
    prune_files,
    scan_for_splits,
    split_contents,
    with_scan,
)
from sawlog.spark.cast import cast_batch
from sawlog.spark.errors import as_sentence
from sawlog.spark.files import RESCUED_TYPE, FileColumns, FileValues, append_file_columns, rescue
from sawlog.spark.filters import is_pushing_down, read_filters, translate_filters
from sawlog.spark.options import SparkRequest, make_read_request
from sawlog.spark.schema import check_schema, make_arrow_schema, make_spark_schema
from sawlog.storage import ask_ahead, confirm_files, find_answer
from sawlog.storage.index import SEARCHES, Index, Notebook, find_remote_state
from sawlog.storage.index import IndexedFileFacts as Known
from sawlog.storage.names import is_remote
from sawlog.storage.remote import REQUESTS
from sawlog.storage.staging import lock_file
from sawlog.storage.workers import count_cores, map_all

if TYPE_CHECKING:
    from typing import TypeAlias

    from pyspark.sql.types import StructType

    from sawlog.storage import File

    Found: TypeAlias = list[tuple[File, Mapping[str, bytes]]]

logger = logging.getLogger("sawlog")

KEEPS_PLANS = hasattr(DataSourceReader, "pushFilters")
"""Whether Spark keeps what a DataFrame's reader has planned, as 4.1 and later do, which can push filters to readers."""
_PLANS = "sawlog-plan-"
SAME_QUERY_SECONDS = 60.0
"""Seconds within which Spark has the second side of a join planned."""
FEW_ROWS = 1 << 16
"""Rows that some task is likely to find where it begins to read: no more tasks are worth their cost."""
_VAIN_SEARCH = "searched in vain"
"""What is noted of a file in a part of which nothing was found."""
_METRICS_SUFFIX = ".metrics"
"""What the file that a task's metrics are written to is called, after that which ends the task."""
_SKIPPED_ROWS = ("orphan_rows", "aborted_rows", "deleted_rows", "incomplete_rows")
"""Notes of findings that count rows which are intact and not delivered."""
_FACT_ROWS = pa.record_batch({"": pa.nulls(1 << 16)})
"""Rows without values of the data, which take no memory; batches are slices of them."""
_JOINED_ROWS = 1 << 13
"""Rows of a batch that is made of small ones; those with as many are none."""
_JOINED_BYTES = 1 << 20
"""Bytes of such a batch."""


@as_sentence()
def read_schema(options: Mapping[str, str], format: str | None) -> StructType:
    """Return the schema of what the options of a read ask for."""
    request = make_read_request(options, format)
    return make_full_schema(request, request.open())


def make_full_schema(request: SparkRequest, dataset: Dataset) -> StructType:
    """Return the columns of a dataset, and those that the names of its directories make."""
    schema = dataset.schema
    if dataset.scan.columns is None:
        columns = FileColumns.of(
            dataset.files, request.paths, request.files, list_available_columns(dataset.contents).names
        )
        schema = pa.schema([*schema, *columns.partitions])
    if request.rescued is not None:  # rows of damaged ranges have nothing but what is damaged
        fields = [field.with_nullable(True) for field in schema]
        schema = pa.schema([*fields, pa.field(request.rescued, RESCUED_TYPE)])
    return make_spark_schema(schema)


@as_sentence()
def make_reader(options: Mapping[str, str], format: str | None, schema: StructType, loaded: str = "") -> SawlogReader:
    """Return the reader for these options, which takes filters only if that is wanted and Spark will push them."""
    request = make_read_request(options, format)
    if format is None:
        _recommend_jar()
    pushdown = request.source_options.pushdown and is_pushing_down()
    return PushdownReader(request, schema, loaded) if pushdown else SawlogReader(request, schema, loaded)


def _recommend_jar() -> None:
    """Say once what Spark, which has asked this source and not the jar, would gain by the jar.

    Nobody configures logging in the processes in which Spark plans; what they write to stderr comes out where the lines
    of Spark's own log do. There is one such process, or more, for each query, and one directory for each application.
    """
    folder = _find_local_folder()
    if not folder:
        return
    with contextlib.suppress(OSError), open(os.path.join(folder, _RECOMMENDED), "x"):
        sys.stderr.write(f"{time.strftime('%y/%m/%d %H:%M:%S')} INFO sawlog: {_RECOMMENDATION}\n")


def _find_local_folder() -> str:
    """Return the directory of a Spark application; empty in a process that is none of Spark's."""
    return os.environ.get("SPARK_LOCAL_DIRS", "").partition(",")[0]


_RECOMMENDED = "sawlog-recommends-jar"
"""The file by which the processes of an application know that it was said."""
_RECOMMENDATION = (
    "Spark reads rows: with --jars $(sawlog spark-jar) it takes columns, only those that a query needs, and pushes"
    " filters down, which is up to five times as fast"
)


class SawlogReader(DataSourceReader):
    """Plans and reads the columns of `schema`. Picklable; holds no open file."""

    def __init__(self, request: SparkRequest, schema: StructType, loaded: str = "") -> None:
        self._request = request
        self._schema = schema
        self._loaded = loaded
        self._filters: list[Any] = []

    @as_sentence()
    def partitions(self) -> list[InputPartition]:
        """Return one partition per task: small files share a task, large files make several.

        Spark may ask two processes at the same time for the two sides of a join, before it keeps what one has answered:
        the second waits for the first, and takes its answer.
        """
        folder = _find_local_folder()
        if not (KEEPS_PLANS and self._loaded and os.path.isdir(folder)) or self._filters:
            return self._plan()
        for old in glob.glob(os.path.join(glob.escape(folder), f"{_PLANS}*")):
            with contextlib.suppress(FileNotFoundError):
                if time.time() - os.path.getmtime(old) > SAME_QUERY_SECONDS:
                    os.unlink(old)
        pickled = CPickleSerializer()
        with open(os.path.join(folder, _PLANS + self._loaded), "a+b") as plan_file:
            lock_file(plan_file.fileno(), waits=True)
            plan_file.seek(0)
            answer = plan_file.read()
            if answer:
                partitions: list[InputPartition] = pickled.loads(answer)
                return partitions
            planned = self._plan()
            plan_file.write(pickled.dumps(planned))
            return planned

    def _plan(self) -> list[InputPartition]:
        dataset, task_bytes = remember_findings(self._request.open()), self._request.source_options.task_bytes
        reading = project_request(self._request, dataset, self._schema, self._filters)
        unknown = [part for part in reading.list_unknown_parts(task_bytes) if not is_searched(dataset, part)]
        sizes = {file.path: file.size for part in unknown for file in part.files}.values()
        if unknown and sum(sizes) <= count_cores() * max(sizes):
            # Sooner here than in the task that reads the longest one.
            looked = map_all(unknown, search_part, count_cores())
            reading = project_request(self._request, inform(dataset, looked), self._schema, self._filters)
        log_unread(dataset)
        return [InputPartition(task) for task in reading.make_tasks(task_bytes)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one partition, in order."""
        with as_sentence():
            yield from read_task(partition.value, self._schema)


class PushdownReader(SawlogReader):
    """A reader that Spark may push filters to."""

    def pushFilters(self, filters: list[Any]) -> list[Any]:
        """Remember the filters, to read less, and leave all of them for Spark to check."""
        self._filters = list(filters)
        return self._filters


@dataclass(frozen=True)
class Task:
    """Input of one Spark task: fragments, and the values of file columns.

    Attributes:
        parts: Fragments, and datasets that the task plans itself, in order.
        file_values: Values of the columns that files have, by path; empty where none of them is wanted.
        ignore_missing: Whether files that are gone are left out.
        rescued: The column that says what is damaged, where damaged ranges have rows of their own.
    """

    parts: Sequence[Fragment | Dataset]
    file_values: Mapping[str, FileValues]
    ignore_missing: bool = False
    rescued: str | None = None

    @property
    def size(self) -> int:
        """Input bytes."""
        return sum(map(_count_bytes, self.parts))

    def iterate_fragments(self) -> Iterator[Fragment]:
        """Yield the fragments of the task, in order."""
        for part in self.parts:
            if isinstance(part, Dataset):
                yield from plan_fragments(part.contents, part.request, None)
            else:
                yield part


def join_tasks(tasks: Sequence[Task]) -> Task:
    """Return the task that reads what some tasks of a read do, one after the other."""
    parts = [part for task in tasks for part in task.parts]
    return replace(
        tasks[0], parts=parts, file_values={path: values for task in tasks for path, values in task.file_values.items()}
    )


@dataclass(frozen=True)
class Reading:
    """A dataset bound to the columns and files that a query reads.

    Attributes:
        request: What was asked for.
        dataset: The dataset, of whose files some may be left out.
        files: Those that are read.
        scan: The wanted columns and rows of the data.
        columns: The columns that files have besides them.
        names: The wanted columns of both kinds.
        rescued: The column that says what is damaged, where damaged ranges have rows of their own: where the schema has
            it, whether or not a query needs it.
        is_of_few: Whether some rows will do, whichever these are: nothing is searched for all of them.
    """

    request: SparkRequest
    dataset: Dataset
    files: list[File]
    scan: Scan
    columns: FileColumns
    names: tuple[str, ...]
    rescued: str | None
    is_of_few: bool = False

    def with_projection(self, names: Sequence[str], counted: bool = True) -> Reading:
        """Return the same, of other columns; if there are none of the data, rows are only counted.

        Args:
            names: The columns.
            counted: Whether all rows of a fragment may be counted before the first is delivered.
        """
        data_columns = tuple(name for name in names if name not in self.columns.names)
        if not data_columns and (self.scan.filters or self.scan.view == "damage" or not counted):
            data_columns = tuple(
                list_available_columns(self.dataset.contents).names[:1]
            )  # rows have to be looked at to be counted
        return replace(self, names=tuple(names), scan=replace(self.scan, columns=data_columns))

    def make_tasks(self, task_bytes: int) -> list[Task]:
        """Return the tasks of a read: small files share a task, large files make several."""
        if not self.files:
            return []
        contents = self._open_contents()
        request = bind_scan(contents, self.scan)
        files = {file.path: file for file in self.files}
        with hold_full_collections():
            splits = split_contents(prune_files(contents, request), request, task_bytes)
            parts = [Dataset(split, self.scan) if isinstance(split, Contents) else split for split in splits]
            tasks: Sequence[Sequence[Fragment | Dataset]] = pack(parts, task_bytes, _count_bytes)
            return [self.make_task(parts, files) for parts in tasks or plan_tasks(contents, request, task_bytes)]

    def list_unknown_parts(self, task_bytes: int) -> list[Contents]:
        """Return parts of remote files that tasks have to look into before all can be planned.

        See `list_unscanned_parts`.
        """
        if not self.files:
            return []
        contents = self._open_contents()
        request = bind_scan(contents, self.scan)
        unsplit = list_unscanned_parts(prune_files(contents, request), request, task_bytes)
        return [with_scan(contents_part, self.dataset.scan) for contents_part in unsplit]

    def _open_contents(self) -> Contents:
        has_all_files = len(self.files) == len(self.dataset.files)
        contents = self.dataset.contents if has_all_files else self.dataset.format.open(self.files, self.scan)
        return plan_for_few_rows(contents) if self.is_of_few else contents

    def make_task(self, parts: Sequence[Fragment | Dataset], files: Mapping[str, File]) -> Task:
        """Return the task that reads these parts of files."""
        inside = ([file.path for file in part.files] if isinstance(part, Dataset) else [part.path] for part in parts)
        file_values = self.columns.collect_values(itertools.chain.from_iterable(inside), self.names, files)
        return Task(parts, file_values, self.request.files.ignoremissingfiles, self.rescued)


def _count_bytes(part: Fragment | Dataset) -> int:
    return sum(file.size for file in part.files) if isinstance(part, Dataset) else part.size


def project_request(request: SparkRequest, dataset: Dataset, schema: StructType, pushed: Sequence[Any] = ()) -> Reading:
    """Return the read that delivers the columns of a schema, with the option's and Spark's filters.

    Raises:
        OptionError: When the option `columns` says otherwise.
        SchemaError: When neither the dataset nor its files have such columns.
    """
    scan = dataset.scan
    available = list_available_columns(dataset.contents)
    columns = FileColumns.of(dataset.files, request.paths, request.files, available.names, schema, request.rescued)
    if request.of_table:
        columns = columns.with_added(schema, dataset.schema.names)
    available = pa.schema([*available, *columns.available])
    names = tuple(schema.names)
    data_columns = tuple(name for name in names if name not in columns.names)
    if scan.columns is not None and scan.columns != data_columns:
        raise OptionError(
            f"option columns={','.join(scan.columns)!r}: the schema given to Spark has the columns"
            f" {', '.join(names)}; give one of the two"
        )
    check_schema(schema, available, f"view {scan.view!r} of {dataset.format.name}")
    filters = read_filters(request.source_options.filters, available)
    filters += translate_filters(pushed, available, schema)
    file_filters = [condition for condition in filters if condition[0] in columns.partitions.names]
    files = columns.choose_files(dataset.files, file_filters)
    scan = replace(scan, filters=tuple(condition for condition in filters if condition not in file_filters))
    rescued = request.rescued if request.rescued in names else None
    return Reading(request, dataset, files, scan, columns, names, rescued).with_projection(names)


def log_unread(dataset: Dataset) -> None:
    """Log which files with rows a read of a path leaves out: once, where it is planned, for no task sees them."""
    for remark in describe_skipped(dataset.skipped):
        logger.warning(remark)


def search_part(part: Contents) -> Found:
    """Look into a part of remote files, which is read through for that: what planning needs of each of them."""
    notebook = Notebook()
    part = with_scan(part, replace(part.scan, storage=replace(part.scan.storage, index=notebook)))
    with contextlib.suppress(FileNotFoundError):  # whether that may be is its reader's to say
        scan_for_splits(part, bind_scan(part, part.scan))
        confirm_files(part.scan.storage)
        return [(file, notebook.of(file) or {_VAIN_SEARCH: b"1"}) for file in part.files]
    return []


def inform(dataset: Dataset, looked: Iterable[Found]) -> Dataset:
    """Return a dataset that is planned by what was found in parts of it, as by an index.

    Queries to come remember that.
    """
    answers_by_file: dict[File, dict[str, list[bytes]]] = {}
    for file, answers in itertools.chain.from_iterable(looked):
        parts_by_question = answers_by_file.setdefault(file, {})
        for question, answer in answers.items():  # of several parts of a file, one after the other
            parts_by_question.setdefault(question, []).append(answer)
    facts_by_file = {
        file: Known({question: b"".join(parts) for question, parts in answers.items()})
        for file, answers in answers_by_file.items()
    }
    for file, facts in facts_by_file.items():
        if (search := _search(dataset, file)) is not None:
            SEARCHES.keep(search, Index.of({file: facts}).to_bytes())
    return _with_answers(dataset, facts_by_file, [Index.of(facts_by_file)])


def remember_findings(dataset: Dataset) -> Dataset:
    """Return a dataset that is planned by what earlier queries found in large remote files that have not changed."""
    SEARCHES.directory = _find_local_folder() or None
    indexes = {
        file: Index.from_bytes(answer)
        for file in dataset.files
        if file.size > MIN_TASK_BYTES and (search := _search(dataset, file)) is not None
        if (answer := SEARCHES.recall(search)) is not None
    }
    return _with_answers(dataset, indexes, indexes.values()) if indexes else dataset


def is_searched(dataset: Dataset, part: Contents) -> bool:
    """Return whether a query before has looked into a part in vain, as into one that is damaged."""
    storage = dataset.scan.storage
    return any(find_answer(storage, file, _VAIN_SEARCH) is not None for file in part.files)


def _search(dataset: Dataset, file: File) -> tuple[object, ...] | None:
    """Return what all depends on that is found in a file; None where a change would not be seen."""
    state = find_remote_state(file) if is_remote(file.path) else None
    scan = dataset.scan
    options = (dataset.format.name, scan.view, scan.on_damage, repr(scan.options), repr(scan.storage.options))
    return (*state, *options) if state is not None else None


def _with_answers(dataset: Dataset, files: Container[File], indexes: Iterable[Index]) -> Dataset:
    """Return the dataset with an index that knows more of some files."""
    storage = dataset.scan.storage
    index = storage.index if isinstance(storage.index, Index) else Index()
    remaining_index = index.of_files(file for file in dataset.files if file not in files)
    scan = replace(
        dataset.scan, storage=replace(storage, index=Index.join_indexes([remaining_index, *indexes], index.options))
    )
    return Dataset(with_scan(dataset.contents, scan), scan)


class TaskMetrics:
    """Numbers of a task that Spark's UI shows besides rows and bytes."""

    def __init__(self) -> None:
        self._numbers = Counter(damagedRanges=0, damagedBytes=0, skippedRows=0)
        self._requests = REQUESTS.total

    def add(self, findings: Findings) -> None:
        """Add what was found in a fragment."""
        if not findings.kinds and not findings.notes:
            return
        self._numbers["damagedRanges"] += findings.kinds.total()
        self._numbers["damagedBytes"] += findings.account.damage
        self._numbers["skippedRows"] += sum(findings.notes[note] for note in _SKIPPED_ROWS)

    def write(self, path: str) -> None:
        """Write the numbers down for the JVM: a line each."""
        self._numbers["storeRequests"] = REQUESTS.total - self._requests
        with open(path, "w", encoding="ascii") as file:
            file.writelines(f"{name}={number}\n" for name, number in self._numbers.items())


def read_task(
    task: Task | None, schema: StructType, limit: int | None = None, metrics: TaskMetrics | None = None
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a task, in order, as Spark wants them. What is left out is logged.

    Args:
        task: What it reads; without partitions, Spark makes one of `None`.
        schema: The wanted columns; when there are none, only the number of rows is delivered.
        limit: How many rows are enough; None: all are delivered.
        metrics: Receive what was found.

    Raises:
        SchemaError: When a value has no place in the schema, as a null where it says NOT NULL; names file and column.
    """
    if task is None:
        return
    SEARCHES.directory = _find_local_folder() or None
    target = make_arrow_schema(schema)
    if target.names:
        batches = _read_fragments(task, target, limit, metrics)
        yield from batches if limit is not None else _join_small(batches)
        return
    rows = 0
    for batch in _read_fragments(task, target, limit, metrics):
        rows += batch.num_rows
        if limit is not None and rows >= limit:
            break
    if rows:
        yield pa.record_batch({"rows": make_constant(rows, pa.int64(), 1)})


def _read_fragments(
    task: Task, target: pa.Schema, limit: int | None, metrics: TaskMetrics | None
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a task's fragments in the wanted columns; without any, batches only have a length."""
    fragments = task.iterate_fragments()
    # Where few rows are enough, those of the first fragment often are.
    first = itertools.islice(fragments, 1 if limit is not None and limit <= FEW_ROWS else 0)
    with ask_ahead(fragments) as ahead:
        for fragment in itertools.chain(first, ahead):
            yield from _read_fragment(fragment, task, target, metrics)


def _read_fragment(
    fragment: Fragment, task: Task, target: pa.Schema, metrics: TaskMetrics | None
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a fragment in the wanted columns; what was left out is logged and counted."""
    file_values = task.file_values.get(fragment.path, {})
    rescuing = task.rescued is not None
    findings = Findings(fragment.scan.on_damage, drained=rescuing, columns=[] if rescuing else None)
    try:
        for batch in _read_rows_and_damage(fragment, findings, file_values, target, task.rescued):
            freeze_loaded()
            if not target.names:
                yield batch
                continue
            try:
                ready = cast_batch(append_file_columns(batch, file_values, fragment, target), target)
            except SchemaError as error:
                raise SchemaError(f"{fragment.path}: {error}") from error
            yield ready
    except FileNotFoundError:
        if not task.ignore_missing:
            raise
        logger.warning("%s: left out: the file is gone", fragment.path)
        return
    if metrics is not None:
        metrics.add(findings)
    for remark in describe_losses(findings, fragment.about):
        logger.warning(remark)
    confirm_files(fragment.scan.storage)


def _join_small(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the same rows in fewer batches: each costs Spark as much as a hundred rows, and small files make many."""
    small_batches: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        batch_bytes = batch.nbytes
        is_small = batch.num_rows < _JOINED_ROWS and batch_bytes < _JOINED_BYTES
        if is_small:
            small_batches.append(batch)
            rows, size = rows + batch.num_rows, size + batch_bytes
        if not is_small or rows >= _JOINED_ROWS or size >= _JOINED_BYTES:
            yield from _join_batches(small_batches)
            small_batches, rows, size = [], 0, 0
        if not is_small:
            yield batch
    yield from _join_batches(small_batches)


def _join_batches(batches: list[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
    """Return batches of the same schema as one."""
    return batches if len(batches) < 2 else pa.Table.from_batches(batches).combine_chunks().to_batches()


def _read_rows_and_damage(
    fragment: Fragment, findings: Findings, file_values: FileValues, target: pa.Schema, rescued: str | None
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a fragment, and after them rows of the damaged ranges, which have no values of the data."""
    for batch in _read_batches(fragment, findings):
        yield batch
        if rescued is not None and (damage := take_damage_batch(findings)) is not None:
            yield rescue(damage, rescued, file_values, fragment.scan.storage, target)
    if rescued is not None and (damage := take_damage_batch(findings)) is not None:
        yield rescue(damage, rescued, file_values, fragment.scan.storage, target)


def _read_batches(fragment: Fragment, findings: Findings) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a fragment; without columns of the data none is decoded."""
    if fragment.scan.columns:
        yield from fragment.to_batches(findings)
        return
    fragment.scan_into(findings)
    for start in range(0, findings.rows, _FACT_ROWS.num_rows):
        yield _FACT_ROWS.slice(0, findings.rows - start)


@dataclass(frozen=True)
class PartitionFunction:
    """Function of Spark's workers for the jar: pickled fragments in, batches of a schema out.

    It ends early when it has delivered enough, or there is a file of the name that comes with the fragments: then
    nobody wants more. At its end it writes its metrics to a file next to that one.

    Attributes:
        schema: The wanted columns; when there are none, rows are counted.
        limit: How many rows are enough; None: all are delivered.
    """

    schema: StructType
    limit: int | None = None

    def __call__(self, partition: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one partition, in order."""
        ((pickled_task, stop),) = [(batch.column(0)[0].as_py(), batch.column(1)[0].as_py()) for batch in partition]
        rows, limit = 0, sys.maxsize if self.limit is None else self.limit
        metrics = TaskMetrics()
        with as_sentence():
            try:
                for batch in read_task(CPickleSerializer().loads(pickled_task), self.schema, self.limit, metrics):
                    rows += batch.num_rows if self.schema.names else sum(batch.column(0).to_pylist())
                    yield batch.slice(0, batch.num_rows - max(0, rows - limit)) if self.schema.names else batch
                    if rows >= limit or os.path.exists(stop):
                        return
            finally:
                metrics.write(stop + _METRICS_SUFFIX)


@cache
def freeze_loaded() -> None:
    """Keep what the first batch has loaded out of garbage collection, which Spark runs after every task."""
    gc.collect()
    gc.freeze()

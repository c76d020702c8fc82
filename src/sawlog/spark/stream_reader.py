"""The stream source: files that grow, micro-batch by micro-batch."""

from __future__ import annotations

import contextlib
import logging
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from sawlog.dataset.dataset import Dataset
from sawlog.errors import FormatError, InternalError, OptionError, SawlogError, SchemaError, StorageError
from sawlog.format.capabilities import require_followable
from sawlog.format.contract import MIN_TASK_BYTES, Fragment
from sawlog.format.planning import find_view_schema, pack, with_scan
from sawlog.format.recognition import get_format, load_formats, recognize
from sawlog.format.scan import is_wider
from sawlog.spark.errors import as_sentence
from sawlog.spark.options import SparkRequest, make_read_request
from sawlog.spark.reader import Reading, log_unread, project_request, read_task
from sawlog.spark.schema import find_spark_version, is_of_type, make_arrow_schema
from sawlog.storage import File
from sawlog.stream.files import find_root
from sawlog.stream.follower import Follower
from sawlog.stream.listing import find_all
from sawlog.stream.offset import Offset, dump_schema, load_schema

if TYPE_CHECKING:
    import pyspark.sql.streaming.datasource as micro_batches
    from pyspark.sql.types import StructType
else:
    try:
        import pyspark.sql.streaming.datasource as micro_batches
    except ImportError:  # before Spark 4.2 the jar asks for micro-batches, and nobody else
        micro_batches = SimpleNamespace(SupportsTriggerAvailableNow=object)

logger = logging.getLogger("sawlog")

STREAMS = hasattr(micro_batches, "ReadLimit")
"""Whether this PySpark can ask a Python source for micro-batches."""
_REMOTE_PAUSE_SECONDS = 1.0
"""Seconds between looks at remote files."""
CHEAP_SECONDS = 0.01
"""Seconds of computing that a look may cost for the next one to follow at once: Spark asks every ten milliseconds."""
_PAUSE_PER_LOOK = 10
"""After a longer look that found nothing, this many times its duration passes before the next one."""


class NoStreams(DataSourceStreamReader):
    """Stream source for a PySpark that has none and a Spark without the jar: refuses to read."""

    def initialOffset(self) -> dict[str, Any]:
        """Refuse; Spark 4.0 and 4.1 do not report what is raised earlier.

        Raises:
            OptionError: Always.
        """
        with as_sentence():
            raise OptionError(f"streams need PySpark 4.2 or later, or the jar; found {find_spark_version()} without it")

    def latestOffset(self, *_: Any) -> dict[str, Any]:
        """Refuse: Spark 4.0 asks for this one first."""
        return self.initialOffset()

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Refuse: nobody asks, since `initialOffset` comes first and refuses."""
        raise NotImplementedError


@as_sentence()
def make_stream_reader(options: Mapping[str, str], format: str | None, schema: StructType) -> SawlogStreamReader:
    """Return the stream reader for these options."""
    request = make_read_request(options, format)
    if request.files.modifiedbefore is not None or request.files.modifiedafter is not None:
        raise OptionError("options modifiedBefore and modifiedAfter: files of a stream are written to meanwhile")
    return SawlogStreamReader(request, schema)


class SawlogStreamReader(DataSourceStreamReader, micro_batches.SupportsTriggerAvailableNow):
    """Plans and reads the columns of `schema`. What it knows of the files stays in the process that plans."""

    def __init__(self, request: SparkRequest, schema: StructType) -> None:
        self._request = request
        self._schema = schema
        self._follower: Follower | None = None
        self._reading: Reading | None = None
        self._reached: Offset | None = None
        self._last: tuple[dict[str, Any], Offset] | None = None
        self._frozen = False
        self._paused_offset: Offset | None = None
        self._pause_end = 0.0

    def __getstate__(self) -> dict[str, Any]:
        """Return what executors need: what to read with, and nothing of what is known of the files."""
        return {**vars(self), **dict.fromkeys(("_follower", "_reading", "_reached", "_last", "_paused_offset"))}

    def initialOffset(self) -> dict[str, Any]:
        """Return the offset of a stream of which nothing is read yet."""
        return Offset().to_json()

    def getDefaultReadLimit(self) -> micro_batches.ReadLimit:
        """Return the narrowest of the limits that the options set; `latestOffset` keeps to all of them."""
        options = self._request.stream
        if options.maxrowspertrigger is not None:
            return micro_batches.ReadMaxRows(options.maxrowspertrigger)
        if options.maxbytespertrigger is not None:
            return micro_batches.ReadMaxBytes(int(options.maxbytespertrigger))
        return micro_batches.ReadMaxFiles(options.maxfilespertrigger)

    def latestOffset(self, start: dict[str, Any], limit: micro_batches.ReadLimit) -> dict[str, Any]:
        """Return the end of the next micro-batch."""
        return self.find_latest(start, limited=not isinstance(limit, micro_batches.ReadAllAvailable))

    @as_sentence()
    def find_latest(self, start: dict[str, Any], *, limited: bool) -> dict[str, Any]:
        """Return the end of the next micro-batch, within the limits that the options set, or without any."""
        begin = self._parse_offset(start)
        if begin == self._paused_offset and time.monotonic() < self._pause_end:
            return start
        follower = self._follow(begin)
        if follower is None:
            return start
        start_time = time.thread_time()
        end = follower.find_latest(begin, limited=limited)
        self._reached = end
        if end is begin:
            took = time.thread_time() - start_time
            pause = (
                _REMOTE_PAUSE_SECONDS
                if follower.listing.remote
                else _PAUSE_PER_LOOK * took
                if took > CHEAP_SECONDS
                else 0.0
            )
            self._paused_offset, self._pause_end = begin, time.monotonic() + pause
            return start
        self._last = end.to_json(), end
        return self._last[0]

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """Return the offset of everything that was listed last, from which Spark reports the lag of the query."""
        if self._follower is None or self._reached is None:
            return None
        files, size = self._follower.measure_lag(self._reached)
        return {"behind": {"bytes": size, "files": files}}

    def prepareForTriggerAvailableNow(self) -> None:
        """Read what is there now, and nothing that comes later; what the stream is of, the first offset says."""
        self._frozen = True

    @as_sentence()
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """Return one partition per task: small files share a task as long as every core has work.

        Raises:
            SawlogError: When a file of the micro-batch is gone, or was replaced, rewritten or cut.
        """
        if start == end:
            return []
        begin, reached = self._parse_offset(start), self._parse_offset(end)
        follower = self._follow(reached)
        if follower is None:
            paths = ", ".join(self._request.paths)
            raise SawlogError(
                f"{paths}: there are no files of the stream; a micro-batch that has to be repeated needs"
                f" {', '.join(reached.files)}. Put them back, or start again with a new checkpoint"
            )
        assert self._reading is not None
        fragments = follower.list_fragments(begin, reached)
        files = {followed.file.path: followed.file for followed in follower.listing.files.values()}
        tasks = _split_tasks(fragments, self._request.source_options.task_bytes)
        return [InputPartition(self._reading.make_task(task, files)) for task in tasks]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one partition, in order."""
        with as_sentence():
            yield from read_task(partition.value, self._schema)

    def _parse_offset(self, data: dict[str, Any]) -> Offset:
        """Return the offset of a document, which mostly is that of the offset handed out last."""
        if self._last is not None and self._last[0] == data:
            return self._last[1]
        return Offset.from_json(data)

    def _follow(self, offset: Offset) -> Follower | None:
        """Return the follower of the files with the columns that the stream began with; `None` without files."""
        if self._follower is None:
            request = self._request
            # Files that appear while the dataset is opened are not decided on yet.
            listed_files = find_all(request.storage, request.paths)
            opened = _open_followed(request, listed_files, offset, self._schema) if listed_files else None
            if opened is None:
                return None
            dataset, foreign = opened
            log_unread(dataset)
            schema = offset.schema
            if dataset.scan.view != "damage":
                columns = _continue_schema(offset, find_view_schema(dataset.contents), self._schema)
                _mention_taken(request.paths, offset, columns)
                scan = replace(dataset.scan, schema=columns)
                dataset, schema = Dataset(with_scan(dataset.contents, scan), scan), dump_schema(columns)
            self._reading = project_request(request, dataset, self._schema)
            storage = replace(request.storage, index=dataset.scan.storage.index)
            scan = replace(self._reading.scan, storage=storage)
            self._follower = Follower.of(dataset.contents, request.paths, scan, request.stream, foreign, schema)
            if self._frozen:
                self._follower.freeze()
        return self._follower


def _continue_schema(offset: Offset, view: pa.Schema, requested: StructType) -> pa.Schema:
    """Return the columns of a stream: those that it began with, and what Spark asks for now, if files have it.

    A column that is asked for with another type takes it from the files, or becomes a wider number.
    """
    if offset.schema is None:
        return view
    columns = {column.name: column for column in load_schema(offset.schema)}
    for spark_field, arrow_field in zip(requested.fields, make_arrow_schema(requested), strict=True):
        name = spark_field.name
        file_column = view.field(name) if name in view.names else None
        if name not in columns:
            if file_column is not None:
                columns[name] = file_column.with_nullable(True)
        elif not is_of_type(columns[name], spark_field):
            if file_column is not None and is_of_type(file_column, spark_field):
                columns[name] = file_column
            elif is_wider(arrow_field.type, columns[name].type):
                columns[name] = columns[name].with_type(arrow_field.type)
    return pa.schema(columns.values())


def _mention_taken(paths: Sequence[str], offset: Offset, columns: pa.Schema) -> None:
    """Log the columns that a query has from here on, and did not have before it was started again."""
    before = load_schema(offset.schema).names if offset.schema is not None else columns.names
    taken_names = [name for name in columns.names if name not in before]
    if taken_names:
        logger.warning(
            "%s: started again with more columns: %s; .schema(...) without them leaves them out",
            ", ".join(paths),
            ", ".join(map(repr, taken_names)),
        )


def _open_followed(
    request: SparkRequest, listed_files: Sequence[File], offset: Offset, requested: StructType
) -> tuple[Dataset, list[str]] | None:
    """Return the dataset that a stream goes on with, and paths of files that are not of it; `None` if none is yet.

    Files of another table, or of another format, may have appeared since the stream began.

    Raises:
        SawlogError: As `sawlog.open` does.
    """
    candidate_formats = (
        [get_format(request.source_options.format)]
        if request.source_options.format is not None
        else load_formats().values()
    )
    tables = {offset.table} - {None} or {
        candidate.directory_layout.table_name(File(name, 0)) for name in offset.files for candidate in candidate_formats
    } - {None}
    table_files = [
        file
        for file in listed_files
        if not tables
        or {candidate.directory_layout.table_name(file) for candidate in candidate_formats} <= {None, *tables}
    ]
    root = find_root(request.paths)
    read = [file for file in table_files if offset.knows(file.path.removeprefix(root))]
    if read and request.source_options.format is None:
        with contextlib.suppress(FormatError):
            known_as = recognize(read, request.storage, root, request.source_options.view)
            request = replace(request, source_options=replace(request.source_options, format=known_as.name))
    for candidates in filter(None, (table_files, read)):
        paths = {file.path for file in candidates}
        try:
            dataset = replace(request, storage=replace(request.storage, file_filter=_Among(paths))).open()
            if read and not dataset.format.stream_rules.is_complete(dataset.scan.view):
                require_followable(dataset.contents).list_fragments(dataset.request, ())
        except (StorageError, InternalError):
            raise
        except SchemaError:
            if offset.schema is None:
                raise
            return _open_with_columns(request, table_files, _continue_schema(offset, pa.schema([]), requested))
        except SawlogError:
            if len(table_files) == 1:
                raise
        else:
            # Of files that have appeared since, the follower judges those that are logs of the stream by their names.
            unread = {file.path: file for file in table_files}
            for file in dataset.files:
                unread.pop(file.path, None)
            logs = dataset.format.select([*unread.values()], dataset.scan.view) if candidates is not table_files else []
            return dataset, sorted(unread.keys() - {log.path for log in logs})
    usable: list[Dataset] = []
    for file in table_files:
        try:
            usable.append(replace(request, paths=(file.path,)).open())
        except (StorageError, InternalError):
            raise
        except SawlogError as error:
            logger.warning("%s: left out of the stream: %s", file.path, error)
    if not usable:
        return None
    stream_format = usable[0].format
    files = [
        replace(file, explicit=False)
        for recognition in usable
        if recognition.format.name == stream_format.name
        for file in recognition.files
    ]
    paths = {file.path for file in table_files} - {file.path for file in files}
    return Dataset(stream_format.open(files, usable[0].scan), usable[0].scan), sorted(paths)


def _open_with_columns(
    request: SparkRequest, files: Sequence[File], columns: pa.Schema
) -> tuple[Dataset, list[str]] | None:
    """Return the dataset of files whose columns differ, with those of a stream, and paths of files that are not of it.

    Raises:
        SchemaError: When a column of the stream cannot hold that of a file.
    """
    for file in files:
        with contextlib.suppress(FormatError):
            dataset = replace(request, paths=(file.path,)).open()
            scan = replace(dataset.scan, schema=columns, roots=request.paths)
            logs = dataset.format.select(list(files), scan.view)
            foreign = {file.path for file in files} - {log.path for log in logs}
            return Dataset(dataset.format.open(logs, scan), scan), sorted(foreign)
    return None


@dataclass(frozen=True)
class _Among:
    """Chooses some files, for `Storage.file_filter`."""

    paths: set[str]

    def __call__(self, root: str, file: File) -> bool:
        return file.path in self.paths


def _split_tasks(fragments: list[Fragment], task_bytes: int) -> list[list[Fragment]]:
    """Return fragments in order, a task per core if there is enough to read, and more tasks if there is too much."""
    total = sum(fragment.size for fragment in fragments)
    count = max(1, min(os.cpu_count() or 1, total // MIN_TASK_BYTES))
    if total > count * task_bytes:
        return pack(fragments, task_bytes)
    tasks: list[list[Fragment]] = [[] for _ in range(count)]
    place = 0
    for fragment in fragments:
        tasks[min((2 * place + fragment.size) * count // (2 * total or 1), count - 1)].append(fragment)
        place += fragment.size
    return [task for task in tasks if task]

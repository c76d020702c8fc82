"""The Python process that answers the jar: schemas of paths, and plans of reads.

Spark starts the process with the module `pyspark_sawlog`, whose `main` calls this one's; it talks to `Planner.scala`.
"""

from __future__ import annotations

import base64
import contextlib
import datetime as dt
import io
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from importlib import import_module
from typing import IO, Any

import pyarrow as pa
from pyspark.serializers import CPickleSerializer, UTF8Deserializer, read_int, write_int, write_with_length
from pyspark.sql import types as spark
from pyspark.util import handle_worker_exception
from pyspark.worker_util import check_python_version, setup_memory_limits, setup_spark_files

from sawlog.arrow import make_array
from sawlog.dataset.dataset import Dataset
from sawlog.errors import OptionError
from sawlog.format.capabilities import list_tables
from sawlog.format.contract import MIN_TASK_BYTES, TASK_BYTES
from sawlog.format.options import find_time_option, parse_options
from sawlog.format.planning import count_indexed_rows
from sawlog.guard import EPOCH
from sawlog.spark.errors import is_sentence, translate_errors
from sawlog.spark.filters import Comparison
from sawlog.spark.options import SparkRequest, make_read_request
from sawlog.spark.reader import (
    FEW_ROWS,
    SAME_QUERY_SECONDS,
    PartitionFunction,
    freeze_loaded,
    inform,
    is_searched,
    join_tasks,
    log_unread,
    make_full_schema,
    project_request,
    remember_findings,
    search_part,
)
from sawlog.storage import File
from sawlog.storage.directories import TIME_STEP_SECONDS
from sawlog.storage.minio.drives import walk_upwards

_DESCRIBED: list[tuple[Mapping[str, str], float, Dataset]] = []
"""The options of the last path that was described, when that began, and the dataset: mostly it is planned next."""
_MICROSECOND = dt.timedelta(microseconds=1)
_COUNTS = spark.StructType([spark.StructField("rows", spark.LongType())])
_UNCUT_BYTES = 1 << 50
"""Input of a task so large that nothing is looked into to find where it may be cut."""
_FOUND = spark.StructType([spark.StructField("found", spark.BinaryType())])
_VALUES: dict[str, Callable[[str], Any]] = {
    "bool": bool,
    "int": int,
    "float": float,
    "decimal": Decimal,
    "str": str,
    "bytes": base64.b64decode,
    "date": lambda text: EPOCH.date() + dt.timedelta(int(text)),
    "instant": lambda text: EPOCH + int(text) * _MICROSECOND,
    "local": lambda text: EPOCH.replace(tzinfo=None) + int(text) * _MICROSECOND,
}


@dataclass(frozen=True)
class ScanRequest:
    """A side of a query: a requested schema and the conditions on it.

    Attributes:
        columns: The columns; none where it only counts rows.
        filters: What Spark has pushed down, and checks again.
        limit: How many rows are enough; None: all are read.
    """

    columns: spark.StructType
    filters: list[Comparison]
    limit: int | None = None


@dataclass(frozen=True)
class SidePlan:
    """A plan of how one side of a query is read, or of what is looked into before.

    Attributes:
        function: What workers call.
        partitions: What they call it with: one pickled list of fragments per task.
        sizes: Input bytes of each; 0 where a task ends when it has enough rows.
    """

    function: PartitionFunction | PlanningFunction
    partitions: list[bytes]
    sizes: list[int]


def main(infile: io.BufferedReader, outfile: IO[bytes]) -> None:
    """Answer the questions of the JVM until it closes the connection.

    A question is a verb and a JSON object, each preceded by its length; an answer is a number of blocks of bytes, and
    the blocks, each preceded by its length. The process ends with the first error, which is the answer.
    """
    conversation, text = Conversation(), UTF8Deserializer()
    try:
        if infile.peek(1):
            read_int(infile)  # by which `pyspark_sawlog` knows questions
            check_python_version(infile)
            setup_spark_files(infile)
            setup_memory_limits(int(os.environ.get("PYSPARK_PLANNER_MEMORY_MB", "-1")))
        while infile.peek(1):
            with translate_errors():
                blocks = conversation.answer(text.loads(infile), json.loads(text.loads(infile)))
            write_int(len(blocks), outfile)
            for block in blocks:
                write_with_length(block, outfile)
            outfile.flush()
            freeze_loaded()
    except BaseException as error:  # noqa: BLE001
        handle_worker_exception(error, outfile, is_sentence(error) or None)
        outfile.flush()
    sys.exit(1)  # 0 would mean to PySpark's daemon that more may come


def describe(options: Mapping[str, str]) -> dict[str, Any]:
    """Describe a path from its headers: columns, bytes, format, and rows if an index knows their number."""
    start = time.time()
    request = make_read_request(options, None)
    dataset = request.open_stored()
    if dataset is None:
        return {"schema": spark.StructType().json(), "bytes": 0, "rows": 0}
    _DESCRIBED[:] = [(options, start, dataset)]
    return {
        "schema": make_full_schema(request, dataset).json(),
        "bytes": sum(file.size for file in dataset.files),
        "rows": count_indexed_rows(dataset.contents),
        "format": dataset.format.name,
    }


def _check_table(options: Mapping[str, str], schema: str) -> dict[str, Any]:
    """Check the columns of a table that is being made: against its files or, if there are none, one without rows.

    A table of no files and no format has what is written to it first: Spark keeps no options of `saveAsTable`.

    Raises:
        SchemaError: When the files have other columns, or the format cannot hold them.
    """
    columns = _parse_schema(schema)
    if "path" in options or "paths" in options:
        request = make_read_request(options, None)
        if not request.is_empty():
            project_request(request, request.open(), columns)
            return {}
    if "format" in options:
        with tempfile.TemporaryDirectory() as scratch:
            options = {**options, "path": scratch}
            writing = import_module("sawlog.spark.writer")  # which no read needs
            writing.make_writer(options, None, columns, overwrite=False).commit([])
            request = make_read_request(options, None)
            if not request.is_empty():  # some formats write nothing where there are no rows
                project_request(request, request.open(), columns)
    return {}


def _describe_tables(options: Mapping[str, str]) -> dict[str, Any]:
    """Return the tables below a path, for the catalog: each with its namespace and the options that name it.

    Raises:
        OptionError: When the format knows no tables.
    """
    request = make_read_request(options, None)
    dataset = request.open()
    table_infos = [
        {"namespace": table.namespace, "name": table.name, "options": table.options}
        for table in list_tables(dataset.contents)
    ]
    if not table_infos:
        raise OptionError(f"{dataset.format.name} has no tables that a catalog could list")
    return {"tables": table_infos, "time": find_time_option(dataset.format.read_options)}


def _take_described(options: Mapping[str, str], request: SparkRequest) -> Dataset | None:
    """Return the dataset that was described just now, if a listing shows all that it came from in the same state."""
    if _DESCRIBED:
        described_options, start, dataset = _DESCRIBED.pop()
        states = _list_states([*dataset.files, *dataset.contents.unselected])
        is_old = all(changed is not None and start - changed > TIME_STEP_SECONDS for *_, changed in states)
        is_same = described_options == options and time.time() - start < SAME_QUERY_SECONDS
        roots = set(request.paths)
        unlisted = dataset.scan.storage.unlisted
        is_shown = unlisted is not None and not any(
            "/." in path or "/_" in path or roots.isdisjoint(walk_upwards(path)) for path in unlisted - roots
        )
        if is_same and is_old and is_shown:
            context = f"reading {dataset.format.name}"
            parsed: Any = parse_options(dataset.format.read_options, request.format_options, context=context)
            with contextlib.suppress(FileNotFoundError):
                listing = request.storage.make_fresh().find(request.paths)
                if _list_states(listing) == states and parsed == dataset.scan.options:  # which may name files
                    return dataset
    return None


def _list_states(files: Iterable[File]) -> set[tuple[str, int, float | None, float | None]]:
    return {(file.path, file.size, file.modified, file.changed) for file in files}


def plan(
    options: Mapping[str, str],
    full: spark.StructType,
    sides: Iterable[ScanRequest],
    parallelism: int = 1,
    looked: Sequence[bytes] | None = None,
) -> list[SidePlan]:
    """Plan a read: a function and its pickled tasks for each side of the query.

    Args:
        options: Of the read.
        full: All columns, as the user gave them or as `describe` found them.
        sides: What a query needs, once for each time that it reads the path: all of them see the same files.
        parallelism: How many tasks Spark runs at a time: none of its cores is left without work that is worth a task,
            unless the option `task_bytes` says how large tasks are.
        looked: What `PlanningFunction` has answered; None when it was not called yet.

    Returns:
        One plan for each side, or only that of a `PlanningFunction`, whose answers the next question needs.
    """
    request = make_read_request(options, None)
    pickled = CPickleSerializer()
    dataset = _take_described(options, request)
    if dataset is None and (dataset := request.open_stored()) is None:
        return [SidePlan(PartitionFunction(side.columns), [], []) for side in sides]
    dataset = remember_findings(dataset)
    if looked:
        dataset = inform(dataset, map(pickled.loads, looked))
    readings = []
    for side in sides:
        counted = side.limit is None
        reading = project_request(request, dataset, full, side.filters).with_projection(side.columns.names, counted)
        task_bytes = request.source_options.task_bytes
        if side.limit is not None and side.limit <= FEW_ROWS:
            reading, task_bytes = replace(reading, is_of_few=True), _UNCUT_BYTES
        elif not any(name.lower() == "task_bytes" for name in options):
            task_bytes = _choose_task_bytes(sum(file.size for file in reading.files), parallelism)
        readings.append((side, reading, task_bytes))
    if looked is None:
        parts = (part for _, reading, task_bytes in readings for part in reading.list_unknown_parts(task_bytes))
        unsplit_files = (part for part in parts if not is_searched(dataset, part))
        unknown = list(dict.fromkeys(map(pickled.dumps, unsplit_files)))
        if unknown:
            return [SidePlan(PlanningFunction(), unknown, [0] * len(unknown))]
    log_unread(dataset)
    plans = []
    for side, reading, task_bytes in readings:
        tasks = reading.make_tasks(task_bytes)
        if reading.is_of_few:  # of which Spark may run all, where the first one would have been enough
            together = -(-len(tasks) // max(1, parallelism))
            tasks = [join_tasks(tasks[place : place + together]) for place in range(0, len(tasks), together or 1)]
        sizes = [task.size if side.limit is None else 0 for task in tasks]
        plans.append(SidePlan(PartitionFunction(side.columns, side.limit), list(map(pickled.dumps, tasks)), sizes))
    return plans


@dataclass(frozen=True)
class PlanningFunction:
    """Function by which Spark's tasks read what planning needs, if files are large and remote.

    Attributes:
        schema: Of the answer: of each file what is known.
    """

    schema: spark.StructType = _FOUND

    def __call__(self, partition: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the answer of one partition."""
        pickled = CPickleSerializer()
        outcome = search_part(pickled.loads(next(partition).column(0)[0].as_py()))
        yield pa.record_batch({"found": make_array([pickled.dumps(outcome)], pa.binary())})


def _choose_task_bytes(size: int, parallelism: int) -> int:
    """Return the number of bytes per task that keeps all cores at work until the end: as many tasks for each."""
    rounds = max(1, -(-size // (max(1, parallelism) * 2 * TASK_BYTES)))
    return max(MIN_TASK_BYTES, -(-size // (max(1, parallelism) * rounds)))


class Conversation:
    """The requests of one JVM to one planning process, and the stream that it plans, if any."""

    def __init__(self) -> None:
        self._stream: Any = None

    def answer(self, verb: str, arguments: dict[str, Any]) -> list[bytes]:
        """Return the blocks of an answer."""
        if verb in _ANSWERS:
            return [json.dumps(_ANSWERS[verb](**arguments)).encode()]
        if verb == "plan":
            looked = arguments.get("looked")
            plans = plan(
                arguments["options"],
                _parse_schema(arguments["full"]),
                map(_parse_side, arguments["sides"]),
                arguments["parallelism"],
                None if looked is None else list(map(base64.b64decode, looked)),
            )
            sizes = [side_plan.sizes for side_plan in plans]
            blocks = [
                block for side_plan in plans for block in (_pickle_function(side_plan.function), *side_plan.partitions)
            ]
            look = any(isinstance(side_plan.function, PlanningFunction) for side_plan in plans)
            return [json.dumps({"look": look, "sizes": sizes}).encode(), *blocks]
        if verb == "stream":
            from sawlog.spark.stream_reader import make_stream_reader

            schema = _parse_schema(arguments["schema"])
            self._stream = make_stream_reader(arguments["options"], None, schema)
            return [_pickle_function(PartitionFunction(schema))]
        if verb == "partitions":
            return [CPickleSerializer().dumps(partition.value) for partition in self._stream.partitions(**arguments)]
        return [json.dumps(_OF_STREAMS[verb](self._stream, **arguments)).encode()]


_ANSWERS: dict[str, Callable[..., dict[str, Any]]] = {
    "check": _check_table,
    "describe": describe,
    "tables": _describe_tables,
}
_OF_STREAMS: dict[str, Callable[..., Any]] = {
    "initial": lambda stream: stream.initialOffset(),
    "available_now": lambda stream: stream.prepareForTriggerAvailableNow(),
    "latest": lambda stream, start, limited: stream.find_latest(start, limited=limited),
    "behind": lambda stream: stream.reportLatestOffset(),
}


def _parse_schema(text: str) -> spark.StructType:
    return spark.StructType.fromJson(json.loads(text))


def _parse_side(request: Mapping[str, Any]) -> ScanRequest:
    filters = [
        {**comparison, "values": [_parse_value(value) for value in comparison["values"]]}
        for comparison in request["filters"]
    ]
    comparisons = [Comparison(**comparison) for comparison in filters]
    return ScanRequest(_parse_schema(request["wanted"]), comparisons, request.get("limit"))


def _pickle_function(function: PartitionFunction | PlanningFunction) -> bytes:
    """Return the pickled function of a worker with the schema of its result."""
    returned = function.schema if function.schema.fields else _COUNTS
    return bytes(CPickleSerializer().dumps((function, returned)))


def _parse_value(tagged: Mapping[str, Any] | None) -> Any:
    if tagged is None:
        return None
    ((kind, text),) = tagged.items()
    return _VALUES[kind](text)

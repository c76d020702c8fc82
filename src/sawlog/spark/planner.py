"""What the jar asks a Python process: what a path holds, and how its columns are read.

Spark starts the process with the module `pyspark_sawlog`, whose `main` is this one's; it talks to `Planner.scala`.
"""

from __future__ import annotations

import base64
import datetime as dt
import io
import json
import sys
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import IO, Any

from pyspark.serializers import CPickleSerializer, UTF8Deserializer, write_int, write_with_length
from pyspark.sql import types as spark

from sawlog.errors import OptionError
from sawlog.format import TASK_BYTES
from sawlog.spark.filters import Comparison
from sawlog.spark.options import read_request
from sawlog.spark.reader import PartitionFunction, full_schema, projected, settle

WORTH_A_TASK = 4 << 20
"""Bytes that a task reads at least, where there are so many; Spark reckons likewise for its files."""

_EPOCH = dt.datetime(1970, 1, 1)  # noqa: DTZ001
_MICROSECOND = dt.timedelta(microseconds=1)
_COUNTS = spark.StructType([spark.StructField("rows", spark.LongType())])
_VALUES: dict[str, Callable[[str], Any]] = {
    "bool": bool,
    "int": int,
    "float": float,
    "decimal": Decimal,
    "str": str,
    "bytes": base64.b64decode,
    "date": lambda text: _EPOCH.date() + dt.timedelta(int(text)),
    "instant": lambda text: _EPOCH.replace(tzinfo=dt.UTC) + int(text) * _MICROSECOND,
    "local": lambda text: _EPOCH + int(text) * _MICROSECOND,
}


def main(infile: io.BufferedReader, outfile: IO[bytes]) -> None:
    """Answer one question of the JVM; end quietly when it has closed the connection, as it does at the end.

    PySpark would report the end of the input as an error, to where nobody listens, and print a `BrokenPipeError`.
    """
    if not infile.peek(1):
        sys.exit(1)  # 0 would mean that another question may come
    try:
        from pyspark.sql.worker.utils import worker_run
    except ImportError:  # before 4.2
        worker_run = _worker_run
    worker_run(_answer, infile, outfile)


def describe(options: Mapping[str, str]) -> dict[str, Any]:
    """What a path holds, by its headers: columns and bytes."""
    request = read_request(options, None)
    dataset = request.open()
    return {"schema": full_schema(request, dataset).json(), "bytes": sum(file.size for file in dataset.files)}


def tables(options: Mapping[str, str]) -> dict[str, Any]:
    """The tables below a path, for the catalog: each with its namespace and the options that name it.

    Raises:
        OptionError: When the format knows no tables.
    """
    request = read_request(options, None)
    dataset = request.open()
    found = [
        {"namespace": one.namespace, "name": one.name, "options": one.options} for one in dataset.contents.tables()
    ]
    if not found:
        raise OptionError(f"{dataset.format.name} has no tables that a catalog could list")
    return {"tables": found, "time": dataset.format.time_option}


def plan(
    options: Mapping[str, str],
    full: spark.StructType,
    wanted: spark.StructType,
    filters: list[Comparison],
    parallelism: int = 1,
) -> tuple[PartitionFunction, list[bytes]]:
    """How columns are read.

    Args:
        options: Of the read.
        full: All columns, as the user gave them or as `describe` found them.
        wanted: Those that a query needs; none where it only counts rows.
        filters: What Spark has pushed down, and checks again.
        parallelism: How many tasks Spark runs at a time: none of its cores is left without work that is worth a task,
            unless the option `task_bytes` says how large tasks are.

    Returns:
        What workers call, and what they call it with: one pickled list of fragments per task.
    """
    request = read_request(options, None)
    reading = projected(request, request.open(), full, filters).narrowed(wanted.names)
    task_bytes = request.own.task_bytes
    if not any(name.lower() == "task_bytes" for name in options):
        task_bytes = _even(sum(file.size for file in reading.files), parallelism)
    pickled = CPickleSerializer()
    return PartitionFunction(wanted), [pickled.dumps(one) for one in reading.shares(task_bytes)]


_ANSWERS: dict[str, Callable[..., dict[str, Any]]] = {"describe": describe, "tables": tables}


def _even(size: int, parallelism: int) -> int:
    """Bytes per task by which all cores are at work until the end: as many tasks for each."""
    rounds = max(1, -(-size // (max(1, parallelism) * 2 * TASK_BYTES)))
    return max(WORTH_A_TASK, -(-size // (max(1, parallelism) * rounds)))


def _answer(infile: IO[bytes], outfile: IO[bytes]) -> None:
    text = UTF8Deserializer()
    verb, asked = text.loads(infile), json.loads(text.loads(infile))
    if verb in _ANSWERS:
        write_with_length(json.dumps(_ANSWERS[verb](**asked)).encode(), outfile)
        settle()
        return
    full, wanted = (spark.StructType.fromJson(json.loads(asked[name])) for name in ("full", "wanted"))
    filters = [Comparison(**{**one, "values": [_value(value) for value in one["values"]]}) for one in asked["filters"]]
    function, partitions = plan(asked["options"], full, wanted, filters, asked["parallelism"])
    returned = function.schema if function.schema.fields else _COUNTS
    write_with_length(CPickleSerializer().dumps((function, returned)), outfile)
    write_int(len(partitions), outfile)
    for partition in partitions:
        write_with_length(partition, outfile)
    settle()


def _value(tagged: Mapping[str, Any] | None) -> Any:
    if tagged is None:
        return None
    ((kind, text),) = tagged.items()
    return _VALUES[kind](text)


def _worker_run(answer: Callable[[IO[bytes], IO[bytes]], None], infile: IO[bytes], outfile: IO[bytes]) -> None:
    """The conversation of a planning process, which PySpark has as a function of its own from 4.2 on."""
    from pyspark.accumulators import _accumulatorRegistry
    from pyspark.serializers import SpecialLengths, read_int
    from pyspark.util import handle_worker_exception
    from pyspark.worker_util import check_python_version, send_accumulator_updates, setup_broadcasts, setup_spark_files

    try:
        check_python_version(infile)
        setup_spark_files(infile)
        setup_broadcasts(infile)
        _accumulatorRegistry.clear()
        answer(infile, outfile)
    except BaseException as error:  # noqa: BLE001
        handle_worker_exception(error, outfile)
        sys.exit(-1)
    send_accumulator_updates(outfile)
    ended = read_int(infile) == SpecialLengths.END_OF_STREAM
    write_int(SpecialLengths.END_OF_STREAM if ended else SpecialLengths.END_OF_DATA_SECTION, outfile)
    if not ended:
        sys.exit(-1)

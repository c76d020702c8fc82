"""Work that is no query: a function of picklable items, run in Spark's tasks."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa
from pyspark import TaskContext
from pyspark.serializers import CPickleSerializer

from sawlog.errors import SawlogError, StorageError
from sawlog.format.contract import TASK_BYTES
from sawlog.format.planning import pack
from sawlog.storage.workers import count_cores, map_ordered, wrap_single_step

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Item = TypeVar("Item")
Outcome = TypeVar("Outcome")

LINGER_SECONDS = 3.0
"""Seconds after which no task of a failed job is alive: Spark kills workers after `spark.python.task.killTimeout`,
two seconds, while the job has failed at once."""
_LOCAL = re.compile(r"local(?:\[ *[\d*]+ *(?:, *(\d+) *)?\])?")
"""A master that runs tasks in the driver: threads, and attempts at a task, which are one where nothing is said."""
_LOOK_SECONDS = 0.05


def require_task() -> TaskContext:
    """Return the task of Spark that this process runs."""
    context = TaskContext.get()
    if context is None:
        raise AssertionError("no task of Spark runs here")
    return context


def run_tasks(
    spark: SparkSession | None,
    function: Callable[[Item], Outcome],
    items: Sequence[Item],
    sizes: Sequence[int],
    *,
    board: str | None = None,
    arrived: Callable[[int, Outcome | SawlogError], None] | None = None,
    local_bytes: int = 0,
) -> list[Outcome | SawlogError]:
    """Apply a function to items in the tasks of one job.

    Errors of sawlog are outcomes, for they would come again. After other errors, and when a store does not answer,
    Spark tries the task again: the function must bear being called twice, even at the same time. That a store does not
    answer at the last attempt either is an outcome, too.

    Args:
        spark: The session; without one, threads of this process work.
        function: What is done; it and the items are pickled.
        items: What it is done to.
        sizes: Bytes that each item reads; small ones share a task.
        board: A directory that all workers see, which is made and deleted: there outcomes are put up as they come.
        arrived: Called with each outcome, by the number of its item, as soon as it is on the board.
        local_bytes: Items that read no more bytes than this, all together, are no job: threads of this process work
            on them.

    Returns:
        Outcomes, or errors, in the order of the items.
    """
    if not items:
        return []
    if spark is None or sum(sizes) <= local_bytes:
        return _run_here(function, items, arrived)
    tasks = pack(range(len(sizes)), TASK_BYTES, sizes.__getitem__)
    pickled = CPickleSerializer()
    attempts = _count_attempts(spark)

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for task in batch.column("id").to_pylist():
                for index in tasks[task]:
                    outcome: Any
                    try:
                        outcome = function(items[index])
                    except SawlogError as error:
                        if type(error) is StorageError and require_task().attemptNumber() + 1 < attempts:
                            raise
                        outcome = error
                    if board is not None:
                        _put_up(board, index, pickled.dumps(outcome))
                    yield pa.record_batch({"item": [index], "outcome": [pickled.dumps(outcome)]}, _SCHEMA)

    frame = spark.range(0, len(tasks), 1, len(tasks)).mapInArrow(run, "item long, outcome binary")
    try:
        if board is None or arrived is None:
            rows = frame.collect()
        else:
            rows = _collect(frame, board, lambda index, data: arrived(index, pickled.loads(data)))
    except BaseException:
        time.sleep(LINGER_SECONDS)  # what is taken back now must not come again
        raise
    outcomes = {row["item"]: pickled.loads(bytes(row["outcome"])) for row in rows}
    return [outcomes[index] for index in range(len(items))]


def make_task_runner(spark: SparkSession) -> Callable[[Callable[[Item], Outcome], Sequence[Item]], list[Outcome]]:
    """Return a function that runs items in Spark's tasks, one each, and raises the first error."""

    def run(function: Callable[[Item], Outcome], items: Sequence[Item]) -> list[Outcome]:
        outcomes: list[Outcome] = []
        for outcome in run_tasks(spark, function, items, [TASK_BYTES] * len(items)):
            if isinstance(outcome, SawlogError):
                raise outcome
            outcomes.append(outcome)
        return outcomes

    return run


def _count_attempts(spark: SparkSession) -> int:
    """Return how many times Spark tries a task before the job fails."""
    local = _LOCAL.fullmatch(str(spark.conf.get("spark.master", "")))
    return int(local[1] or 1) if local else int(str(spark.conf.get("spark.task.maxFailures", "4")))


def _run_here(
    function: Callable[[Item], Outcome],
    items: Sequence[Item],
    arrived: Callable[[int, Outcome | SawlogError], None] | None,
) -> list[Outcome | SawlogError]:
    """Run the items of `run_tasks` in threads of this process."""

    def attempt(item: Item) -> Outcome | SawlogError:
        try:
            return function(item)
        except SawlogError as error:
            return error

    outcomes = []
    for index, (_, outcome) in enumerate(map_ordered(items, wrap_single_step(attempt), count_cores())):
        outcomes.append(outcome)
        if arrived is not None:
            arrived(index, outcome)
    return outcomes


def _collect(frame: DataFrame, board: str, arrived: Callable[[int, bytes], None]) -> list[Any]:
    """Collect a frame, and report what is put up on a board meanwhile, each item once."""
    os.makedirs(board, exist_ok=True)
    finished_ids: set[str] = set()

    def report_arrivals() -> None:
        for name in sorted(set(os.listdir(board)) - finished_ids):
            if name.isdecimal():
                finished_ids.add(name)
                with open(os.path.join(board, name), "rb") as file:
                    arrived(int(name), file.read())

    with ThreadPoolExecutor(1) as pool:
        job = pool.submit(frame.collect)
        try:
            while not wait([job], _LOOK_SECONDS).done:
                report_arrivals()
            report_arrivals()
            rows: list[Any] = job.result()
            return rows
        finally:
            shutil.rmtree(board, ignore_errors=True)


def _put_up(board: str, index: int, outcome: bytes) -> None:
    """Put an outcome on the board. Of attempts at the same item, the first one counts."""
    path = os.path.join(board, str(index))
    with tempfile.NamedTemporaryFile(dir=board, prefix=".", delete=False) as file:
        file.write(outcome)
    try:
        os.link(file.name, path)
    except FileExistsError:
        pass
    finally:
        os.unlink(file.name)


_SCHEMA = pa.schema([("item", pa.int64()), ("outcome", pa.binary())])

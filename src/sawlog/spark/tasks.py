"""Work that is no query: a function of picklable items, run in Spark's tasks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa
from pyspark.serializers import CPickleSerializer

from sawlog.errors import SawlogError
from sawlog.format import TASK_BYTES

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Item = TypeVar("Item")
Outcome = TypeVar("Outcome")

_ITEM_BYTES = 1 << 20
"""What an item costs at least, so that thousands of small ones do not make one task."""


def run_tasks(
    spark: SparkSession, function: Callable[[Item], Outcome], items: Sequence[Item], sizes: Sequence[int]
) -> list[Outcome | SawlogError]:
    """Apply a function to items in the tasks of one job.

    Errors of sawlog are outcomes, for they would come again; after any other, Spark tries the task again, so that the
    function has to bear being called twice, even at the same time.

    Args:
        spark: The session.
        function: What is done; it and the items are pickled.
        items: What it is done to.
        sizes: Bytes that each item reads; small ones share a task.

    Returns:
        Outcomes, or errors, in the order of the items.
    """
    if not items:
        return []
    tasks = _pack(sizes)
    pickled = CPickleSerializer()

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for task in batch.column("id").to_pylist():
                for index in tasks[task]:
                    outcome: Any
                    try:
                        outcome = function(items[index])
                    except SawlogError as error:
                        outcome = error
                    yield pa.record_batch({"item": [index], "outcome": [pickled.dumps(outcome)]}, _SCHEMA)

    rows = spark.range(0, len(tasks), 1, len(tasks)).mapInArrow(run, "item long, outcome binary").collect()
    found = {row["item"]: pickled.loads(bytes(row["outcome"])) for row in rows}
    return [found[index] for index in range(len(items))]


_SCHEMA = pa.schema([("item", pa.int64()), ("outcome", pa.binary())])


def _pack(sizes: Sequence[int]) -> list[list[int]]:
    """Items of about `TASK_BYTES` together, in order."""
    tasks: list[list[int]] = []
    room = 0
    for index, size in enumerate(sizes):
        cost = max(size, _ITEM_BYTES)
        if not tasks or cost > room:
            tasks.append([])
            room = TASK_BYTES
        tasks[-1].append(index)
        room -= cost
    return tasks

"""A driver that kills its own executors in the middle of tasks, of a batch and of a stream.

`python -m tests.exactly_once.run_on_executors ROOT`, with `ROOT/logs` full of rows, writes `ROOT/batch` and
`ROOT/stream`, and prints in JSON how many executors it killed in each.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from .processes import command, descendants, is_worker, kill
from .run_queries import session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EXECUTOR = "CoarseGrainedExecutorBackend"
KILLS = 2
"""In each of the two: of the first executor with a task, and of the next one after `APART` more tasks."""
APART = 4
TASK_BYTES = 1_000_000
LOOK = 0.01


def killing(spark: SparkSession, work: Callable[[], None]) -> int:
    """Kill executors that have tasks while something is done; how many were killed."""
    done = threading.Event()
    killed: list[int] = []
    tracker = spark.sparkContext.statusTracker()

    def look() -> None:
        ended: dict[int, int] = {}
        next_at = 0
        while not done.is_set() and len(killed) < KILLS:
            time.sleep(LOOK)
            stages = list(filter(None, map(tracker.getStageInfo, tracker.getActiveStageIds())))
            ended |= {stage.stageId: stage.numCompletedTasks for stage in stages}
            if (
                any(stage.numActiveTasks for stage in stages)
                and sum(ended.values()) >= next_at
                and (busy := executors())
            ):
                killed.append(busy[0])
                kill(busy[0])
                next_at = sum(ended.values()) + APART

    killer = threading.Thread(target=look)
    killer.start()
    try:
        work()
    finally:
        done.set()
        killer.join()
    return len(set(killed))


def executors() -> list[int]:
    """Those that have begun to work: they have Python processes."""
    pids = [pid for pid in descendants(os.getpid()) if EXECUTOR in command(pid)]
    return [pid for pid in pids if any(map(is_worker, descendants(pid)))]


def main(root: str) -> None:
    spark = session("local-cluster[2,1,1024]", {"spark.executor.memory": "1g"})
    options = {"format": "deephaven_log", "task_bytes": str(TASK_BYTES)}

    def batch() -> None:
        rows = spark.read.format("sawlog").options(**options).load(f"{root}/logs")
        rows.write.format("sawlog").option("format", "deephaven_log").mode("overwrite").save(f"{root}/batch")

    def stream() -> None:
        rows = spark.readStream.format("sawlog").options(**options, maxFilesPerTrigger="4").load(f"{root}/logs")
        writer = rows.writeStream.format("sawlog").option("format", "deephaven_log").trigger(availableNow=True)
        writer.option("checkpointLocation", f"{root}/checkpoint").start(f"{root}/stream").awaitTermination()

    results = {"batch": killing(spark, batch), "stream": killing(spark, stream)}
    spark.stop()
    print(json.dumps(results))


if __name__ == "__main__":
    main(sys.argv[1])

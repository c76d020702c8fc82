"""Commits jobs, and dies at a given step: `python -m tests.exactly_once.commit_jobs`.

Reads one job per line from standard input, and answers each with a line: how many steps its commit took, and whether it
was killed. Each job is a process of its own, so that all of them share what is imported once.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import signal
import sys
import tempfile
import threading
from collections.abc import Callable
from typing import Any

import obstore
import pyarrow as pa
from pyspark.sql.types import LongType, StringType, StructType

import sawlog
import sawlog.storage.commit
from sawlog.spark.stream_writer import SawlogStreamWriter, StagedTask, make_stream_writer
from sawlog.spark.writer import SawlogWriter, TaskCommit, make_writer

SCHEMA = StructType().add("generation", LongType()).add("task", LongType()).add("side", StringType())
QUERY = "11112222-3333-4444-5555-666677778888"
LOCAL = ("rename", "replace", "link", "unlink", "rmdir", "mkdir", "fsync")
REQUESTS = ("copy", "delete", "get", "head", "list", "list_with_delimiter", "open_writer", "put")


def make_sides(generation: int, task: int) -> pa.RecordBatch:
    sides = ["left", "right"]
    return pa.record_batch({"generation": [generation] * 2, "task": [task] * 2, "side": sides})


def commit(request: dict[str, Any]) -> Callable[[], None]:
    """Stage a job; what commits it."""
    options = {"path": request["root"], "format": "deephaven_log", **request["options"]}
    overwrite = request["kind"] in ("overwrite", "complete")
    generation, tasks = request["generation"], range(request["tasks"])
    if request["kind"] in ("append", "overwrite"):
        batch = make_writer(options, None, SCHEMA, overwrite=overwrite)
        messages = [TaskCommit(_staged(batch, batch.job, generation, task)) for task in tasks]
        return lambda: batch.commit(messages)
    stream: SawlogStreamWriter = make_stream_writer(options, None, SCHEMA, overwrite=overwrite)
    run = f"{os.getpid():08x}-run"
    job = stream.make_job(QUERY, run, generation)
    shares = [StagedTask(_staged(stream.sink, job, generation, task), QUERY, run) for task in tasks]
    return lambda: stream.commit(shares, generation)


def _staged(writer: SawlogWriter, job: sawlog.storage.commit.Job, generation: int, task: int) -> list[Any]:
    writing = writer.begin(job, task)
    writing.write(make_sides(generation, task))
    return writing.finish()


def count_steps(kill: int | None, answer: int) -> Callable[[], int]:
    """Count what changes the disk, or is asked of a store, and be killed before or after one of them."""
    numbers, lock, done = itertools.count(1), threading.Lock(), [0]

    def step(name: str) -> None:
        with lock:
            done[0] = next(numbers)
            if done[0] == kill:
                os.write(answer, json.dumps({"step": name}).encode())
                os.kill(os.getpid(), signal.SIGKILL)

    def counted(change: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **arguments: Any) -> Any:
            step(f"before {change.__name__}")
            result = change(*args, **arguments)
            step(f"after {change.__name__}")
            return result

        return call

    for name in LOCAL:
        setattr(os, name, counted(getattr(os, name)))
    sawlog.storage.commit.exchange = counted(sawlog.storage.commit.exchange)  # type: ignore[attr-defined]
    for name in REQUESTS:
        setattr(obstore, name, counted(getattr(obstore, name)))
    return lambda: done[0]


def run(request: dict[str, Any], answer: int) -> None:
    if request["exchange"] is False:
        sawlog.storage.commit.exchange = lambda *_: False  # type: ignore[attr-defined]
    publish = commit(request)
    steps = count_steps(request["kill"], answer)
    publish()
    os.write(answer, json.dumps({"steps": steps()}).encode())


def main() -> None:
    with tempfile.TemporaryDirectory() as scratch:  # every job finds the kernels loaded
        sawlog.write(make_sides(0, 0), f"{scratch}/1.bin", format="deephaven_log")
    for line in sys.stdin:
        reading, writing = os.pipe()
        child = os.fork()
        if not child:
            code = 1
            with contextlib.suppress(KeyboardInterrupt):
                run(json.loads(line), writing)
                code = 0
            os._exit(code)
        os.close(writing)
        with os.fdopen(reading, "rb") as pipe:
            answer = json.loads(pipe.read() or "{}")
        _, status = os.waitpid(child, 0)
        killed = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
        print(json.dumps({"killed": killed, "code": status, **answer}), flush=True)


if __name__ == "__main__":
    main()

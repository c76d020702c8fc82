"""Streams: logs into Parquet through Spark, against Spark's own file streams; from a logged row to a visible one."""

from __future__ import annotations

import json
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import sawlog
from benchmarks.deephaven_log import ROW_BYTES, SCHEMA, market_data
from benchmarks.harness import PATIENCE, Case, Probe, Settings, Side, wait_for
from benchmarks.spark import session_with_jar
from sawlog.deephaven.log import Logger

FILES = 16
"""Logs that the rows are spread over, as a writer that rolls leaves them."""
FORMATS = {"parquet": "Spark's Parquet stream", "json": "Spark's JSON stream"}
PER_BATCH = 4
"""Files per micro-batch."""
LOGGED = pa.schema([("Time", pa.int64()), ("Number", pa.int64())])
ROWS = 100
PAUSE = 0.02
WARM_UP = 10.0
"""Seconds of logging that are not measured: Spark starts its workers, and they load what they need."""
SECONDS = 30.0


def cases(settings: Settings) -> Iterator[Case | Probe]:
    if settings.wanted("stream_ingest"):
        yield from ingest_cases(settings)
    if settings.wanted("stream_latency"):
        yield Probe(
            "stream_latency",
            "from logging a row to seeing it in the Parquet that a stream with the jar writes, 5,000 rows/s, local[2]",
            partial(latency, settings),
            "ms",
        )


def ingest_cases(settings: Settings) -> Iterator[Case]:
    """All that is there, in micro-batches of a few files, into Parquet."""
    count = max(FILES, settings.size // ROW_BYTES)
    spark = session_with_jar(settings.program)
    logs = write_logs(settings.place / "logs", count)
    size = sum(path.stat().st_size for path in logs.iterdir())
    plain = {name: settings.place / name for name in FORMATS}
    frame = spark.read.format("sawlog").option("format", "deephaven_log").load(str(logs)).repartition(FILES)
    for name, place in plain.items():
        frame.write.format(name).save(str(place))
    schema = frame.schema

    per_batch = FILES // 2 if settings.once else PER_BATCH

    def source(name: str, place: Path, **options: str) -> Callable[[], Any]:
        reader = spark.readStream.format(name).schema(schema).options(maxFilesPerTrigger=per_batch, **options)
        return lambda: reader.load(str(place))

    target, checkpoint = settings.memory / "out", settings.memory / "checkpoint"
    drained = partial(drain, target=target, checkpoint=checkpoint)
    clear = partial(remove, target, checkpoint)
    columns = partial(drained, source("sawlog", logs, format="deephaven_log"))
    rows = partial(drained, source("deephaven_log", logs))
    note = f"{FILES // per_batch} micro-batches"
    yield Case(
        "stream_ingest",
        "Deephaven logs streamed into Parquet by Spark, local[2]",
        (
            Side("sawlog with the jar", columns, size, count, note, clear),
            Side("sawlog without it", rows, size, count, note, clear),
            *(
                Side(FORMATS[name], partial(drained, source(name, place)), size, count, note, clear)
                for name, place in plain.items()
            ),
        ),
        per="rows",
        cores=0,
    )


def write_logs(place: Path, count: int) -> Path:
    """The rows in logs of equal size."""
    place.mkdir()
    table = pa.Table.from_batches(market_data(count), SCHEMA)
    share = -(-count // FILES)
    for number in range(FILES):
        sawlog.write(table.slice(number * share, share), place / f"{number:02d}.bin", format="deephaven_log")
    return place


def drain(source: Callable[[], Any], target: Path, checkpoint: Path) -> None:
    writer = source().writeStream.trigger(availableNow=True).option("checkpointLocation", str(checkpoint))
    writer.format("parquet").start(str(target)).awaitTermination()


def remove(*places: Path) -> None:
    for place in places:
        shutil.rmtree(place, ignore_errors=True)


def latency(settings: Settings) -> dict[str, float]:
    """A logger at work, a query that writes Parquet as fast as it can, and for each row when its batch was there."""
    spark = session_with_jar(settings.program, {"spark.sql.streaming.stopTimeout": str(PATIENCE * 1000)})
    logs, target = settings.place / "live", settings.place / "seen"
    logs.mkdir()
    stop = threading.Event()
    with ThreadPoolExecutor(1) as pool:  # an error of the logger is one here
        logging = pool.submit(log_rows, logs, stop)
        try:
            wait_for(logging, lambda: any(logs.glob("*.bin.*")))
            begin = 0.0 if settings.once else time.time() + WARM_UP
            query = (
                spark.readStream.format("sawlog")
                .option("format", "deephaven_log")
                .load(str(logs))
                .writeStream.format("parquet")
                .option("checkpointLocation", str(settings.place / "checkpoint"))
                .start(str(target))
            )
            if settings.once:
                wait_for(logging, lambda: not query.isActive or any(True for _ in batches(target)))
                query.awaitTermination(PAUSE)  # raises what has ended it
            else:
                query.awaitTermination(WARM_UP + SECONDS)
            query.stop()
        finally:
            stop.set()
    milliseconds = np.concatenate([now - times[times >= begin * 1e9] for now, times in batches(target)]) / 1e6
    return {
        "median": float(np.median(milliseconds)),
        "99th percentile": float(np.percentile(milliseconds, 99)),
        "longest": float(milliseconds.max()),
    }


def batches(target: Path) -> Iterator[tuple[int, np.ndarray[Any, np.dtype[np.int64]]]]:
    """When each micro-batch became visible, in nanoseconds, and when its rows were logged."""
    paths_seen: set[str] = set()
    for entry in sorted((target / "_spark_metadata").glob("[0-9]*"), key=lambda path: int(path.stem)):
        paths = [json.loads(line)["path"] for line in entry.read_text().splitlines()[1:]]
        new = [path.removeprefix("file://") for path in paths if path not in paths_seen]
        paths_seen.update(paths)
        if new:
            yield entry.stat().st_mtime_ns, pq.read_table(new, columns=["Time"])["Time"].to_numpy()


def log_rows(directory: Path, stop: threading.Event) -> None:
    number = 0
    with Logger(directory, LOGGED, namespace="Bench", table="Rows", roll_bytes=1 << 20) as log:
        while not stop.wait(PAUSE):
            times = np.full(ROWS, time.time_ns(), np.int64)
            log.write(pa.record_batch([pa.array(times), pa.array(np.arange(number, number + ROWS))], schema=LOGGED))
            number += ROWS

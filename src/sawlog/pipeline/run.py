"""Runs a plan: in batches one sink after the other, in streams all sinks at once."""

from __future__ import annotations

import contextlib
import logging
import queue
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as sql
from pyspark.sql.streaming.listener import StreamingQueryProgress

from sawlog.errors import PipelineError, SawlogError, StorageError
from sawlog.pipeline.progress import BatchReport, Listener, sum_read_bytes, sum_waiting_bytes
from sawlog.pipeline.settings import AVAILABLE_NOW, SAWLOG, Quarantine, Target
from sawlog.spark.errors import explain, is_damage, is_transient, list_spark_errors

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

    from sawlog.pipeline.plan import Plan

logger = logging.getLogger("sawlog")

Report = Callable[[BatchReport], None]

RETRIES = 5
"""How often in a row streams are tried again without a batch between."""
_FIRST_PAUSE_SECONDS = 1.0
"""Seconds before they are; doubled from time to time."""

QUARANTINE = "quarantine"
_SKIPPED = "skipped"
_POLL = 0.2
_GRACE = 0.5
_REPORT_SECONDS = 10.0
"""Seconds that the last reports may take to arrive."""
_DAMAGE_PREFIX = "_"
"""Begins the names of queries that read damage; no sink's name does."""


@dataclass(slots=True)
class Totals:
    """Totals of a run: batches, rows, damage.

    Attributes:
        rows: Per sink.
        batches: Per sink.
        damage: Damaged ranges found, in sources that do not fail at damage.
        skipped: Those of them that were written down nowhere.
        seconds: How long it took.
    """

    rows: Counter[str] = field(default_factory=Counter)
    batches: Counter[str] = field(default_factory=Counter)
    damage: int = 0
    skipped: int = 0
    seconds: float = 0.0

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return {
            "event": "end",
            "rows": dict(self.rows),
            "batches": dict(self.batches),
            "damage": self.damage,
            "skipped": self.skipped,
            "seconds": round(self.seconds, 3),
        }


class PipelineRun:
    """A run of a plan.

    Args:
        plan: What to run.
        report: Called with every batch, as soon as it is over.
        stop: Set it to end streams in good order; what they have not finished is repeated by the next run.
        warn: Called with what a user should know of, such as that a stream is tried again.
    """

    def __init__(
        self,
        plan: Plan,
        report: Report,
        stop: threading.Event | None = None,
        warn: Callable[[str], None] = logger.warning,
    ) -> None:
        self._plan = plan
        self._pipeline = plan.pipeline
        self._report = report
        self._stop = stop or threading.Event()
        self._warn = warn
        self._totals = Totals()
        self._reported: Counter[str] = Counter()
        self._ended = 0

    def __call__(self) -> Totals:
        """Run until everything is read, or a stream is stopped.

        Raises:
            PipelineError: When a sink or a source fails; what other sinks have taken stays.
        """
        start_time = time.monotonic()
        if self._pipeline.mode == "stream":
            self._run_with_retries()
        else:
            self._run_batch()
        self._totals.seconds = time.monotonic() - start_time
        return self._totals

    def _run_with_retries(self) -> None:
        """Run streams, from their checkpoints again after errors that may pass, with longer and longer pauses."""
        failures = 0
        while True:
            before = sum(self._totals.batches.values())
            self._ended = 0
            try:
                self._run_streams()
            except PipelineError as error:
                failures = failures + 1 if sum(self._totals.batches.values()) == before else 1
                if not error.transient or failures > RETRIES:
                    raise
                pause = _FIRST_PAUSE_SECONDS * 2 ** (failures - 1)
                self._warn(f"{error}; trying again in {pause:g} s ({failures} of {RETRIES})")
                if not self._stop.wait(pause):
                    continue
            return

    def _run_batch(self) -> None:
        plan, pipeline = self._plan, self._pipeline
        if plan.skipped is not None:
            self._totals.skipped = self._totals.damage = self._guard(("sources",), plan.skipped.count)
        if plan.quarantined is not None and pipeline.quarantine is not None:
            self._totals.damage += self._write(pipeline.quarantine, plan.quarantined)
        for sink in pipeline.sinks:
            began, start_time = datetime.now(UTC), time.monotonic()
            rows = self._write(sink, plan.frames[sink.source])
            self._deliver(
                BatchReport(
                    time=began.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
                    pipeline=pipeline.name,
                    sink=sink.name,
                    batch=0,
                    rows=rows,
                    bytes=None,
                    lag_bytes=None,
                    damage=self._take_new_damage(sink.name),
                    seconds=time.monotonic() - start_time,
                )
            )

    def _write(self, sink: Target, frame: DataFrame) -> int:
        """Write a batch; return how many rows it had."""
        observation = Observation()
        writer = _configure_writer(frame.observe(observation, sql.count(sql.lit(1)).alias("rows")).write, sink).mode(
            sink.mode
        )
        if sink.partition_by:
            writer = writer.partitionBy(*sink.partition_by)

        def write() -> int:
            if sink.table is not None:
                writer.saveAsTable(sink.table)
            else:
                writer.save(sink.path)
            return int(observation.get["rows"])

        return int(self._guard(sink.key, write))

    def _run_streams(self) -> None:
        plan, pipeline = self._plan, self._pipeline
        events: queue.SimpleQueue[StreamingQueryProgress | None] = queue.SimpleQueue()
        listener = Listener(events.put)
        plan.spark.streams.addListener(listener)
        queries: list[tuple[Target, StreamingQuery]] = []
        try:
            if plan.quarantined is not None and pipeline.quarantine is not None:
                queries.append(self._start(pipeline.quarantine, plan.quarantined, _DAMAGE_PREFIX + QUARANTINE))
            if plan.skipped is not None:
                nowhere = Quarantine(format="noop").with_key("sources", _SKIPPED)
                queries.append(self._start(nowhere, plan.skipped, _DAMAGE_PREFIX + _SKIPPED))
            queries += [self._start(sink, plan.frames[sink.source], sink.name) for sink in pipeline.sinks]
            self._attend(queries, events)
        except list_spark_errors() as error:
            # SIGTERM may have reached Spark itself as well, and a moment earlier.
            if not self._stop.wait(_GRACE):
                raise self._make_failure(("pipeline",), error) from error
        finally:
            ending = self._stop.is_set() or sys.exc_info()[0] is not None  # Spark may be gone; the error is reported
            with contextlib.suppress(*(list_spark_errors() if ending else ())):
                for _, query in queries:
                    query.stop()
                self._drain(events, len(queries))
                plan.spark.streams.removeListener(listener)

    def _start(self, sink: Target, frame: DataFrame, name: str) -> tuple[Target, StreamingQuery]:
        pipeline = self._pipeline
        writer = _configure_writer(frame.writeStream, sink).queryName(name).outputMode(sink.output_mode)
        writer = writer.option("checkpointLocation", f"{str(pipeline.checkpoint).rstrip('/')}/{name}")
        if sink.partition_by:
            writer = writer.partitionBy(*sink.partition_by)
        if pipeline.trigger == AVAILABLE_NOW:
            writer = writer.trigger(availableNow=True)
        elif pipeline.trigger is not None:
            writer = writer.trigger(processingTime=pipeline.trigger)
        query = self._guard(
            sink.key, lambda: writer.toTable(sink.table) if sink.table is not None else writer.start(sink.path)
        )
        return sink, query

    def _attend(
        self, queries: list[tuple[Target, StreamingQuery]], events: queue.SimpleQueue[StreamingQueryProgress | None]
    ) -> None:
        """Pass reports on until all queries have ended, one has failed, or the run is stopped."""
        while not self._stop.is_set():
            try:
                self._take(events.get(timeout=_POLL))
                continue
            except queue.Empty:
                pass
            active = [query.isActive for _, query in queries]
            for sink, query in queries:
                error = None if query.isActive else query.exception()
                if error is not None and not self._stop.wait(_GRACE):
                    raise self._make_failure(sink.key, error)
            if not any(active):
                return

    def _drain(self, events: queue.SimpleQueue[StreamingQueryProgress | None], missing: int) -> None:
        """Pass on what is still on its way: each query's end comes after its last report."""
        deadline = time.monotonic() + _REPORT_SECONDS
        while missing > self._ended and time.monotonic() < deadline:
            try:
                self._take(events.get(timeout=_POLL))
            except queue.Empty:
                continue

    def _take(self, progress: StreamingQueryProgress | None) -> None:
        if progress is None:
            self._ended += 1
            return
        name = str(progress.name)
        rows = int(progress.numInputRows)
        if name.startswith(_DAMAGE_PREFIX):
            self._totals.damage += rows
            self._totals.skipped += rows if name == _DAMAGE_PREFIX + _SKIPPED else 0
            if not rows or name != _DAMAGE_PREFIX + QUARANTINE:
                return
            name = QUARANTINE
        self._deliver(
            BatchReport(
                time=str(progress.timestamp),
                pipeline=self._pipeline.name,
                sink=name,
                batch=int(progress.batchId),
                rows=rows,
                bytes=sum_read_bytes(progress.sources),
                lag_bytes=sum_waiting_bytes(progress.sources),
                damage=self._take_new_damage(name),
                seconds=progress.batchDuration / 1000,
            )
        )

    def _deliver(self, report: BatchReport) -> None:
        self._totals.rows[report.sink] += report.rows
        self._totals.batches[report.sink] += 1
        self._report(report)

    def _take_new_damage(self, sink: str) -> int:
        fresh = self._totals.damage - self._reported[sink]
        self._reported[sink] = self._totals.damage
        return fresh

    def _guard(self, key: tuple[str, ...], work: Callable[[], Any]) -> Any:
        try:
            return work()
        except Exception as error:
            if isinstance(error, SawlogError) and not isinstance(error, StorageError):
                raise
            raise self._make_failure(key, error) from error

    def _make_failure(self, key: tuple[str, ...], error: BaseException) -> PipelineError:
        document = self._pipeline.document
        message = document.secrets.redact(explain(error))
        return PipelineError(
            f"{document.describe_place(key)}: {message}", damaged=is_damage(error), transient=is_transient(error)
        )


def _configure_writer(writer: Any, sink: Target) -> Any:
    """Return a writer of Spark with the sink's format and options."""
    if sink.is_sawlog:
        return writer.format(SAWLOG).option("format", sink.format).options(**sink.options)
    return writer.format(sink.format).options(**sink.options)

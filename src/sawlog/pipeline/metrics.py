"""Metrics of a running pipeline, for Prometheus."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from sawlog.guard import import_optional
from sawlog.pipeline.settings import Metrics

if TYPE_CHECKING:
    from sawlog.pipeline.progress import BatchReport

_LABELS = ("pipeline", "sink")
_SECONDS = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)


@contextmanager
def serve(settings: Metrics) -> Iterator[Callable[[BatchReport], None]]:
    """Serve the metrics over HTTP until the block ends.

    Yields:
        What is to be reported of every batch.

    Raises:
        OptionError: When prometheus-client is missing.
        OSError: When the port cannot be had.
    """
    import_optional("prometheus_client", "metrics", "a pipeline's metrics")
    from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, start_http_server

    registry = CollectorRegistry()
    rows = Counter("sawlog_rows", "Rows that sinks have taken.", _LABELS, registry=registry)
    read = Counter("sawlog_read_bytes", "Bytes of sources' files that were read.", _LABELS, registry=registry)
    damage = Counter("sawlog_damage", "Damaged ranges found in the sources.", _LABELS, registry=registry)
    lag = Gauge("sawlog_lag_bytes", "Bytes that are not read yet.", _LABELS, registry=registry)
    last = Gauge("sawlog_last_batch", "Number of the last batch.", _LABELS, registry=registry)
    seconds = Histogram("sawlog_batch_seconds", "How long batches took.", _LABELS, registry=registry, buckets=_SECONDS)
    ended = Gauge("sawlog_last_batch_end_seconds", "When the last batch ended.", _LABELS, registry=registry)

    def add(report: BatchReport) -> None:
        labels = (report.pipeline, report.sink)
        rows.labels(*labels).inc(report.rows)
        damage.labels(*labels).inc(report.damage)
        last.labels(*labels).set(report.batch)
        seconds.labels(*labels).observe(report.seconds)
        ended.labels(*labels).set_to_current_time()
        if report.bytes is not None:
            read.labels(*labels).inc(report.bytes)
        if report.lag_bytes is not None:
            lag.labels(*labels).set(report.lag_bytes)

    server, thread = start_http_server(settings.port, settings.address, registry)
    try:
        yield add
    finally:
        server.shutdown()
        server.server_close()
        thread.join()

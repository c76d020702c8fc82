"""Streams are tried again when what stopped them may pass: how often, how long apart, and that it is logged."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("pyspark")

from py4j.protocol import Py4JNetworkError

from sawlog.errors import ChangedError, FormatError, PipelineError, StorageError
from sawlog.pipeline import run as module
from sawlog.pipeline.run import RETRIES, PipelineRun
from sawlog.spark.errors import explain, is_transient


class PauseLog(threading.Event):
    """An event that nobody has to wait for."""

    def __init__(self) -> None:
        super().__init__()
        self.pauses: list[float | None] = []

    def wait(self, timeout: float | None = None) -> bool:
        self.pauses.append(timeout)
        return self.is_set()


class FlakyRun(PipelineRun):
    """A run whose streams end when they should."""

    def __init__(self, *ends: Any) -> None:
        self.stop = PauseLog()
        self.told: list[str] = []
        pipeline = SimpleNamespace(mode="stream", document=None)
        super().__init__(SimpleNamespace(pipeline=pipeline), lambda _: None, self.stop, self.told.append)  # type: ignore[arg-type]
        self.ends = list(ends)

    def _run_streams(self) -> None:
        end = self.ends.pop(0)
        if isinstance(end, Exception):
            raise end
        self._totals.batches["rows"] += end
        if self.ends:
            self._run_streams()


LOST_CONNECTION = PipelineError("p.toml: Connection reset", transient=True)


def test_what_may_pass_is_tried_again() -> None:
    run = FlakyRun(LOST_CONNECTION, LOST_CONNECTION, 3)
    assert run().batches == {"rows": 3}
    assert run.stop.pauses == [1, 2]
    assert run.told == [
        "p.toml: Connection reset; trying again in 1 s (1 of 5)",
        "p.toml: Connection reset; trying again in 2 s (2 of 5)",
    ]


def test_retries_end() -> None:
    run = FlakyRun(*[LOST_CONNECTION] * 20)
    with pytest.raises(PipelineError, match="Connection reset"):
        run()
    assert run.stop.pauses == [1, 2, 4, 8, 16]
    assert len(run.ends) == 20 - RETRIES - 1


def test_a_batch_between_makes_it_a_new_failure() -> None:
    run = FlakyRun(LOST_CONNECTION, LOST_CONNECTION, 1, LOST_CONNECTION, 1, LOST_CONNECTION, 1)
    run()
    assert run.stop.pauses == [1, 2, 1, 1]


def test_what_will_come_again_is_not_tried_again() -> None:
    run = FlakyRun(PipelineError("p.toml: damaged", damaged=True), 1)
    with pytest.raises(PipelineError, match="damaged"):
        run()
    assert run.told == []


def test_stopping_ends_a_pause() -> None:
    run = FlakyRun(LOST_CONNECTION, 1)
    run.stop.set()
    run()
    assert run.ends == [1]


class SparkFailure(Exception):
    """An exception of PySpark whose cause is known to the JVM."""

    def __init__(self, message: str, trace: str) -> None:
        super().__init__(message)
        self._cause = SimpleNamespace(_stackTrace=trace)


KILLED = SparkFailure(
    "[STREAM_FAILED] Query q terminated with exception:  SQLSTATE: XXKST (no cause message)",
    "java.lang.reflect.UndeclaredThrowableException\n\tat a.B.c(B.scala:500)\n"
    "Caused by: java.io.IOException: Broken pipe\n\t... 26 more",
)
"""What became of a query whose source's Python process was killed."""


def test_a_cause_that_spark_does_not_name_is_named() -> None:
    assert explain(KILLED) == (
        "[STREAM_FAILED] Query q terminated with exception: SQLSTATE: XXKST java.io.IOException: Broken pipe"
    )


@pytest.mark.parametrize(
    ("error", "transient"),
    [
        (Exception("org.apache.spark.SparkException: Python worker exited unexpectedly (crashed)"), True),
        (Exception("org.apache.spark.SparkException: Python worker failed to connect back."), True),
        (Exception("[CANNOT_OPEN_SOCKET] Can not open socket: tried to connect to /tmp/.8d388410.sock"), True),
        (Exception("java.io.IOException: No space left on device"), True),
        (Exception("botocore.exceptions.EndpointConnectionError: Could not connect"), True),
        (Exception("An error occurred (SlowDown) when calling the PutObject operation"), True),
        (KILLED, True),
        (SparkFailure("a plan", "java.lang.IllegalStateException\n\tat a.B.c(B.scala:500)\n"), False),
        (Exception("sawlog.errors.DamageError: Connection reset"), False),
        (Exception("sawlog.errors.StorageError: s3://b/x: no answer"), True),
        (Exception("sawlog.errors.ChangedError: s3://b/x: replaced"), False),
        (Exception("sawlog.errors.InternalError: Connection reset"), False),
        (StorageError("s3://b/x: no answer"), True),
        (ChangedError("s3://b/x: replaced"), False),
        (FormatError("Connection reset"), False),
        (Exception("[UNRESOLVED_COLUMN] no such column"), False),
        (Py4JNetworkError("Connection refused"), False),
    ],
)
def test_what_may_pass(error: Exception, transient: bool) -> None:
    assert is_transient(error) == transient
    assert module.is_transient is is_transient

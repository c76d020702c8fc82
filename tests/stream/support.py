"""Helpers that tests of stream share."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pytest

import sawlog
from sawlog.deephaven.log import Logger
from sawlog.stream import listing
from sawlog.stream.follower import Follower
from sawlog.stream.limits import StreamOptions
from sawlog.stream.offset import Offset

SCHEMA = pa.schema([("n", pa.int64()), ("s", pa.string())])


def make_batch(first: int, last: int) -> pa.RecordBatch:
    numbers = list(range(first, last))
    return pa.record_batch([pa.array(numbers), pa.array([f"row {n}" for n in numbers])], schema=SCHEMA)


@pytest.fixture(autouse=True)
def close_loggers() -> Iterator[None]:
    yield
    while Source.instances:
        Source.instances.pop().logger.close()


class Source:
    """A logger that rolls, on a clock of its own."""

    instances: ClassVar[list[Source]] = []

    def __init__(self, directory: Path, internal: str = "w", roll_bytes: int = 4000) -> None:
        self.now = 1_700_000_000.0
        self.written = 0
        self.logger = Logger(
            directory,
            SCHEMA,
            namespace="Market",
            table="Trades",
            internal_partition=internal,
            roll_bytes=roll_bytes,
            fsync="never",
            clock=self.clock,
        )
        self.instances.append(self)

    def clock(self) -> float:
        self.now += 1
        return self.now

    def log(self, batches: int, size: int = 20) -> None:
        for _ in range(batches):
            self.logger.write(make_batch(self.written, self.written + size))
            self.written += size


class Stream:
    """A query, without Spark; every micro-batch is planned twice, and offsets pass through JSON as in a checkpoint."""

    def __init__(
        self,
        path: Path,
        offset: Offset | None = None,
        view: str = "rows",
        format: str | None = None,
        **options: Any,
    ) -> None:
        dataset = sawlog.open(path, format=format, view=view)
        self.follower = Follower.of(dataset.contents, [str(path)], dataset.scan, StreamOptions(**options))
        self.offset = offset or Offset()
        self.numbers: list[int] = []

    def step(self, *, limited: bool = True) -> int:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(listing, "SWEEP_SECONDS", -1)  # files that are finished are looked at each time
            end = self.follower.find_latest(self.offset, limited=limited)
        if end is self.offset:
            return 0
        assert Offset.from_json(json.loads(json.dumps(end.to_json()))) == end
        passes = [
            [
                n
                for fragment in self.follower.list_fragments(self.offset, end)
                for b in fragment.to_batches()
                for n in self.ints(b)
            ]
            for _ in range(2)
        ]
        assert passes[0] == passes[1]
        self.numbers += passes[0]
        self.offset = end
        return len(passes[0])

    def ints(self, batch: pa.RecordBatch) -> list[int]:
        return ints(batch)

    def drain(self) -> list[int]:
        steps = []
        while count := self.step():
            steps.append(count)
        return steps


def ints(batch: pa.RecordBatch) -> list[int]:
    return batch.column("n").to_pylist()


def only_rows(directory: Path) -> Path:
    (path,) = (path for path in directory.iterdir() if path.is_file())
    return path


def restarted(stream: Stream, **options: object) -> Stream:
    """The stream of a later process: it knows what the checkpoint says."""
    offset = Offset.from_json(json.loads(json.dumps(stream.offset.to_json())))
    again = Stream(Path(stream.follower.paths[0]), offset, format=stream.follower.format.name, **options)
    again.numbers = stream.numbers
    return again


def quiet(path: Path, seconds: float = 700) -> None:
    os.utime(path, (time.time() - seconds,) * 2)


@pytest.fixture(params=[False, True], ids=["one process", "restarts"])
def later(request: pytest.FixtureRequest) -> object:
    """The same stream later, in the same process or in another one."""
    return restarted if request.param else lambda stream, **_: stream

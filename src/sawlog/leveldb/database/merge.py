"""Sorted files merged as they are read: of each no more is in hand than a batch, and what shares its last key."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sawlog.arrow import batch_of_rows, fixed_array, scalar_of, values_of
from sawlog.errors import FormatError
from sawlog.leveldb.database.columns import ENTRY_SCHEMA, RANGE, STRAY, Run, Stream
from sawlog.leveldb.database.places import count_below, share
from sawlog.leveldb.database.state import Settled, covers_of, sorted_batch
from sawlog.leveldb.table.columns import KEY, OPERATION, STAMP, VALUE

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from sawlog.leveldb.database.kernels import Covers


def merged(groups: Sequence[Sequence[Stream]], low: bytes, high: bytes | None, *, bytewise: bool) -> Iterator[Settled]:
    """Merge streams, window after window of keys.

    Args:
        groups: Streams, newest first; those of a group follow each other in key order.
        low: The first key that is wanted. All keys but those of range deletions are in the range that is.
        high: The key after the last one; `None`: there is no end.
        bytewise: Whether that order is the bytes'; otherwise all is read before anything is resolved.

    Raises:
        FormatError: For range deletions in another order, or with timestamps.
    """
    if not bytewise:
        runs = [[Run(one.path, one.level, list(one.batches)) for one in group] for group in groups]
        for run in itertools.chain(*runs):
            for batch in run.batches:
                if only(batch, deletions=True).num_rows:
                    raise _refused(run.path)
        yield Settled(runs, covers_of([]), bytewise=False)
        return
    deletions = _Deletions(low, high)
    feeds = [_Feed(group, deletions) for group in groups]
    for feed in feeds:
        feed.fill()
    while waiting := [feed for feed in feeds if not feed.done]:
        frontier = min(feed.last_key for feed in waiting)
        runs = [feed.take(frontier) for feed in feeds]
        strays = [run for feed in feeds for run in feed.take_strays(frontier)]
        yield Settled([*runs, *strays, *deletions.take(frontier)], deletions.covers, bytewise=True)
        for feed in waiting:
            if feed.last_key == frontier:
                feed.fill()
    strays = [run for feed in feeds for run in feed.take_strays(None)]
    yield Settled(
        [*(feed.take(None) for feed in feeds), *strays, *deletions.take(None)], deletions.covers, bytewise=True
    )


def _refused(path: str) -> FormatError:
    return FormatError(
        f"{path}: range deletions in an order of keys that only the database knows, or with timestamps;"
        " read its tables and logs one by one"
    )


class _Deletions:
    """The range deletions of the files that are open, or were, as far as they reach into a range of keys."""

    def __init__(self, low: bytes, high: bytes | None) -> None:
        self._low = low
        self._high = high
        self._every: list[pa.RecordBatch] = []
        self._waiting: list[Run] = []
        self._covers: Covers | None = None

    def add(self, path: str, level: int, batch: pa.RecordBatch) -> None:
        """Take in those of a file, in any order."""
        if STAMP in batch.schema.names:
            raise _refused(path)
        # As rows, the others belong to the ranges that they begin in.
        self._waiting.append(Run(path, level, [share(sorted_batch(batch), self._low, self._high)]))
        if self._high is not None:
            batch = batch.filter(pc.less(batch.column(KEY), scalar_of(self._high, pa.binary())))
        if self._low:
            batch = batch.filter(pc.greater(batch.column(VALUE), scalar_of(self._low, pa.binary())))
        self._every.append(batch)
        self._covers = None

    @property
    def covers(self) -> Covers:
        """Which keys they delete."""
        if self._covers is None:
            self._covers = covers_of(self._every)
        return self._covers

    def take(self, frontier: bytes | None) -> list[list[Run]]:
        """As rows of their own: those that begin below a key, each run as a group."""
        taken, self._waiting = _cut(self._waiting, frontier)
        return [[run] for run in taken]


class _Feed:
    """The streams of a group, one after the other.

    Attributes:
        done: Whether all is in hand.
        last_key: The last key in hand.
    """

    def __init__(self, streams: Sequence[Stream], deletions: _Deletions) -> None:
        self._batches = ((one, batch) for one in streams for batch in one.batches)
        self._deletions = deletions
        self._pending: list[Run] = []
        self._strays: list[Run] = []
        self.done = False
        self.last_key = b""

    def fill(self) -> None:
        """Read one more batch."""
        for stream, batch in self._batches:
            if not batch.num_rows:
                continue
            if STRAY in batch.schema.names:
                self._strays.append(Run(stream.path, stream.level, [batch]))
            elif batch.column(OPERATION)[0].as_py() == RANGE:
                self._deletions.add(stream.path, stream.level, batch)
            else:
                self._pending.append(Run(stream.path, stream.level, [batch]))
                self.last_key = batch.column(KEY)[-1].as_py()
                return
        self.done = True

    def take(self, frontier: bytes | None) -> list[Run]:
        """The entries below a key; `None`: all."""
        taken, self._pending = _cut(self._pending, frontier)
        return taken

    def take_strays(self, frontier: bytes | None) -> list[list[Run]]:
        """Those that are given before a key, each run as a group."""
        taken, self._strays = _cut(self._strays, frontier)
        return [[run] for run in taken]


def only(batch: pa.RecordBatch, *, deletions: bool) -> pa.RecordBatch:
    """The range deletions of a batch, or everything else."""
    found: NDArray[np.bool_] = values_of(batch.column(OPERATION), np.uint8) == RANGE
    if not deletions:
        found = ~found
    if found.all():
        return batch
    return batch.take(fixed_array(pa.int64(), np.flatnonzero(found))) if found.any() else _EMPTY


_EMPTY = batch_of_rows([], ENTRY_SCHEMA)


def _cut(runs: list[Run], frontier: bytes | None) -> tuple[list[Run], list[Run]]:
    """Runs of one batch each, cut in two by a key."""
    if frontier is None:
        return runs, []
    below, rest = [], []
    for run in runs:
        (batch,) = run.batches
        count = count_below(batch.column(KEY), frontier)
        if count:
            below.append(Run(run.path, run.level, [batch.slice(0, count)]))
        if count < batch.num_rows:
            rest.append(Run(run.path, run.level, [batch.slice(count)]))
    return below, rest

"""Ranges of one file as fragments."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from sawlog.arrow import values_of
from sawlog.damage import Findings, TailStatus
from sawlog.format import Fragment
from sawlog.storage import File


@dataclass(frozen=True)
class FileRange(Fragment):
    """A range of one file.

    Attributes:
        file: The file; its size is where this scan takes it to end.
        start: Where the range begins.
        end: Where it ends: where another may begin, or the size of the file.
    """

    file: File
    start: int
    end: int

    @property
    def extent(self) -> tuple[int, int]:
        """See `Fragment.extent`."""
        return self.start, self.end - self.start


def intact_end(batches: Iterable[pa.RecordBatch], findings: Findings, size: int) -> int:
    """Where the last complete record of a file ends, or the intact part, if damage reaches up to that.

    Damage there may be something that is still being written.

    Args:
        batches: A walk up to the end of the file; they are not looked at.
        findings: What it reports; drained, with `columns`.
        size: Of the file.
    """
    start = stop = -1
    for _ in itertools.chain(batches, (None,)):
        if (batch := findings.drain_batch()) is not None:
            starts = values_of(batch.column("offset"), np.int64)
            stops = starts + values_of(batch.column("length"), np.int64)
            gaps = (starts[1:] > stops[:-1]).nonzero()[0]
            if len(gaps) or starts[0] > stop:
                start = int(starts[gaps[-1] + 1 if len(gaps) else 0])
            stop = int(stops[-1])
    tail = findings.tail
    end = size if tail is None or tail.status is TailStatus.CLEAN else tail.offset
    return start if stop >= end else end

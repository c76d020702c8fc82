"""The offsets at which rows begin and end; some rows are kept singly."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from sawlog.arrow import view_values

MAX_KEPT_ROWS = 40_000
"""Rows of all files that are kept one by one, from their beginnings on."""
_ROWS_AROUND_DAMAGE = 16
"""Rows kept before and after a damage, and at the end of a file."""
_MAX_KEPT_RANGES = 300
"""Damaged ranges, of each file, whose surroundings are kept."""


class PlacedBatch(NamedTuple):
    """A batch whose places in the file are known.

    Attributes:
        batch: The rows.
        starts: int64, where each begins.
        sizes: int64, the bytes of each.
        places: int64, where rows begin, each place once: operations of one batch of writes, say, share theirs evenly.
        lengths: int64, the bytes at each place.
    """

    batch: pa.RecordBatch
    starts: NDArray[np.int64]
    sizes: NDArray[np.int64]
    places: NDArray[np.int64]
    lengths: NDArray[np.int64]


class PlacedRows:
    """Batches with the places of their rows; each is given once it is known where the next one begins.

    Args:
        batches: Batches with a column of offsets, ascending.
        column: Its name.
        end: Where the last row ends, at the latest, by where the first one begins; asked when all batches are there.
        lost_starts: Where damage begins, ascending, as far as it was seen: no row reaches into it.
    """

    def __init__(
        self,
        batches: Iterator[pa.RecordBatch],
        column: str,
        end: Callable[[int], int],
        lost_starts: Sequence[NDArray[np.int64]],
    ) -> None:
        self._batches = batches
        self._column = column
        self._end = end
        self._lost_starts = lost_starts

    def __iter__(self) -> Iterator[PlacedBatch]:
        """Yield the batches, in order."""
        held_rows: tuple[pa.RecordBatch, NDArray[np.int64]] | None = None
        first = 0
        for batch in self._batches:
            starts = view_values(batch.column(self._column), np.int64)
            if held_rows is None:
                first = int(starts[0])
            else:
                yield self._place_batch(*held_rows, int(starts[0]))
            held_rows = batch, starts
        if held_rows is not None:
            yield self._place_batch(*held_rows, self._end(first))

    def _place_batch(self, batch: pa.RecordBatch, starts: NDArray[np.int64], end: int) -> PlacedBatch:
        changes = np.flatnonzero(np.diff(starts, prepend=starts[0] - 1))
        places, counts = starts[changes], np.diff(changes, append=len(starts))
        ends = np.append(places[1:], end)
        for lost_starts in self._lost_starts[-2:]:  # what was found before this batch, and before the next one
            following = np.searchsorted(lost_starts, places, "right")
            ends = np.where(
                following < len(lost_starts),
                np.minimum(ends, lost_starts[np.minimum(following, len(lost_starts) - 1)]),
                ends,
            )
        lengths = np.maximum(ends - places, 0)
        total, count = np.repeat(lengths, counts), np.repeat(counts, counts)
        within = np.arange(len(starts)) - np.repeat(changes, counts)
        sizes = total * (within + 1) // count - total * within // count
        return PlacedBatch(batch, starts, sizes, places, lengths)


class SampledRows:
    """Rows of one file that are kept one by one: the first, the last, and those around damage.

    Args:
        files: How many files there are, which share what may be kept.
    """

    def __init__(self, files: int) -> None:
        self._room = MAX_KEPT_ROWS // max(1, files)
        self._ranges = _MAX_KEPT_RANGES
        self._head: list[tuple[NDArray[np.int64], NDArray[np.int64]]] = []
        self._near: dict[int, int] = {}
        self._last = np.zeros((0, 2), np.int64)
        self._waiting = 0
        self._total_rows = 0
        self._sampled_rows = 0

    @property
    def complete(self) -> bool:
        """Whether every row was kept."""
        return self._total_rows == self._sampled_rows

    def add(self, starts: NDArray[np.int64], sizes: NDArray[np.int64], lost_starts: NDArray[np.int64]) -> None:
        """Take in rows, and where damage begins that was found last."""
        count = min(len(starts), self._room - self._sampled_rows)
        if count > 0:
            self._head.append((starts[:count].copy(), sizes[:count].copy()))
            self._sampled_rows += count
        self._total_rows += len(starts)
        self._keep(starts[: self._waiting], sizes[: self._waiting])
        self._waiting = max(0, self._waiting - len(starts))
        for place in lost_starts[: self._ranges].tolist():
            row = int(np.searchsorted(starts, place))
            around = slice(max(0, row - _ROWS_AROUND_DAMAGE), row + _ROWS_AROUND_DAMAGE)
            self._keep(starts[around], sizes[around])
        self._ranges = max(0, self._ranges - len(lost_starts))
        self._last = np.concatenate([self._last, np.stack([starts, sizes], 1)[-_ROWS_AROUND_DAMAGE:]])[
            -_ROWS_AROUND_DAMAGE:
        ]

    def keep_around(self, lost_starts: NDArray[np.int64]) -> None:
        """Keep the rows around damage that follows the rows so far: those in front of it, and the next ones."""
        if len(lost_starts) and self._ranges:
            self._keep(self._last[:, 0], self._last[:, 1])
            self._waiting = _ROWS_AROUND_DAMAGE

    def list_spans(self) -> list[tuple[int, int]]:
        """Return the offset and bytes of what was kept, ascending."""
        self._keep(self._last[:, 0], self._last[:, 1])
        nearest = dict(self._near)
        for starts, sizes in self._head:
            nearest.update(zip(starts.tolist(), sizes.tolist(), strict=True))
        return sorted(nearest.items())

    def _keep(self, starts: NDArray[np.int64], sizes: NDArray[np.int64]) -> None:
        if self._total_rows > self._sampled_rows:
            self._near.update(zip(starts.tolist(), sizes.tolist(), strict=True))

"""Files as rows of bins: as many for ten gigabytes as for ten megabytes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sawlog.format.damage import Account
from sawlog.map.kernels import BIN, ORDER, USES, bin_rows

MAX_BINS = 2048
"""Of one file."""
_MAX_ALL_BINS = 16384
"""Of all files together, each of which has at least `_MIN_BINS`."""
_MIN_BINS = 8


@dataclass(frozen=True, slots=True)
class Ranges:
    """Ranges of a file whose use is known exactly: ascending, none over another."""

    starts: NDArray[np.int64]
    ends: NDArray[np.int64]
    use: str


def choose_bin_count(files: int) -> int:
    """Return the number of bins of each of so many files."""
    return max(_MIN_BINS, min(MAX_BINS, _MAX_ALL_BINS // max(files, 1)))


class Levels:
    """The bins of one file.

    Attributes:
        width: Bytes per bin.
        bins: Records of `BIN`.
        order: A record of `ORDER`.
    """

    def __init__(self, size: int, max_bins: int) -> None:
        self.size = size
        self.width = max(1, -(-size // max_bins))
        self.bins: Any = np.zeros(max(1, -(-size // self.width)), BIN)
        self.bins["low"], self.bins["high"] = 0, -1
        self.order: Any = np.zeros(1, ORDER)[0]

    def add_rows(self, starts: NDArray[np.int64], sizes: NDArray[np.int64], order: NDArray[np.int64]) -> None:
        """Count rows in the bins that they begin in.

        Args:
            starts: File offsets of the rows.
            sizes: Bytes of each row.
            order: A value per row that is expected to ascend; empty where there is none.
        """
        is_inside = (starts >= 0) & (starts < self.size)
        if not is_inside.all():
            starts, sizes, order = starts[is_inside], sizes[is_inside], order[is_inside] if len(order) else order
        bin_rows(starts, sizes, order, np.int64(self.width), self.order, self.bins)

    def add_piece(self, start: int, end: int, account: Account, exact: list[Ranges]) -> None:
        """Spread the account of a piece over its bins.

        Args:
            start: First byte of the piece.
            end: The byte after it.
            account: Where its bytes went.
            exact: Ranges whose use is known; what is left of the account is spread over what is left of the piece.
        """
        remaining = {use: getattr(account, use) for use in USES}
        free = self._cover([start], [end])
        for ranges in exact:
            covered = self._cover(ranges.starts, ranges.ends)
            total = int(covered.sum())
            if total:
                share = covered if total <= remaining[ranges.use] else _split_by_weight(covered, remaining[ranges.use])
                self.bins[f"{ranges.use}_bytes"] += share
                remaining[ranges.use] -= int(share.sum())
                free = np.maximum(free - share, 0)
        for use, count in remaining.items():
            if count > 0:
                self.bins[f"{use}_bytes"] += _split_by_weight(free, count)

    def _cover(self, starts: Any, ends: Any) -> NDArray[np.int64]:
        """Return the number of bytes of every bin that some ranges cover."""
        edges = np.arange(len(self.bins) + 1, dtype=np.int64) * self.width
        edges[-1] = max(int(edges[-1]), self.size)
        begins, stops = np.asarray(starts, np.int64), np.asarray(ends, np.int64)
        # Bytes covered before each edge: whole ranges in front of it, and what the one that it cuts has there.
        sums = np.concatenate([np.zeros(1, np.int64), np.cumsum(stops - begins)])
        before = np.searchsorted(begins, edges, "left")
        if not len(begins):
            return np.zeros(len(self.bins), np.int64)
        last = np.maximum(stops[np.maximum(before - 1, 0)] - edges, 0)
        over = np.where(before > 0, last, 0).astype(np.int64)
        covered: NDArray[np.int64] = (sums[before] - over).astype(np.int64)
        return covered[1:] - covered[:-1]


def _split_by_weight(weights: NDArray[np.int64], total: int) -> NDArray[np.int64]:
    """Return a total in whole parts, by weights."""
    total_weight = int(weights.sum())
    if not total_weight:
        weights, total_weight = np.ones_like(weights), len(weights)
    # Of the rounded sums, so that the parts add up to the total.
    sums = np.concatenate([[0.0], np.cumsum(weights.astype(np.float64))]) * (total / total_weight)
    ends: NDArray[np.int64] = np.round(sums).astype(np.int64)
    ends[-1] = total
    return ends[1:] - ends[:-1]

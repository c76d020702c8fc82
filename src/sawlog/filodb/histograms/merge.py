"""Adding histograms, as FiloDB does: bucket by bucket, or, of exponential ones, on a scale that holds both."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from sawlog.filodb import layout
from sawlog.filodb.histograms.histogram import Buckets, Histogram


@dataclass(frozen=True)
class Scheme:
    """Exponential buckets: the positive one number i, from 1 on, ends at `base**(start + i)`, base `2**(2**-scale)`."""

    scale: int
    start: int
    positive: int

    @classmethod
    def of(cls, buckets: Buckets) -> Scheme:
        """Return the scheme of exponential buckets."""
        scale, start = (
            int.from_bytes(buckets.definition[offset : offset + size], "little", signed=True)
            for offset, size in ((2, 2), (4, 4))
        )
        return cls(scale, start, len(buckets.tops) - 1)

    @property
    def ends(self) -> tuple[float, float]:
        """Upper edges of its first and its last positive bucket."""
        step = math.log(_compute_base(self.scale))
        return math.exp((self.start + 1) * step), math.exp((self.start + self.positive) * step)

    def holds(self, scheme: Scheme) -> bool:
        """Return whether its buckets reach as far, both ways, as those of another one, and are no finer."""
        (low, high), (other_low, other_high) = self.ends, scheme.ends
        return self.scale <= scheme.scale and low <= other_low and high >= other_high

    def unite(self, scheme: Scheme, max_buckets: int = layout.MAX_EXPONENTIAL) -> Scheme:
        """Return the scheme that FiloDB finds to hold two others, of no more than so many buckets."""
        (low, high), (other_low, other_high) = self.ends, scheme.ends
        scale = min(self.scale, scheme.scale)
        while True:
            step = math.log(_compute_base(scale))
            start = math.floor(math.log(min(low, other_low)) / step) - 1
            end = math.ceil(math.log(max(high, other_high)) / step) - 1
            if end - start + 1 <= max_buckets:
                return Scheme(scale, start, end - start + 1)
            scale -= 1

    def add(self, values: list[float], scheme: Scheme, sums: tuple[float, ...]) -> None:
        """Add cumulative values of a scheme that this one holds."""
        step = 1 << scheme.scale - self.scale
        values[0] += sums[0]
        for place in range(1, self.positive + 1):
            # The bucket that ends here ends there at the same power.
            index = (self.start + place) * step - scheme.start
            if index >= 1:
                values[place] += sums[min(index, scheme.positive)]
            else:
                values[place] += sums[0]


def _compute_base(scale: int) -> float:
    return float(2.0 ** (2.0**-scale))


def add(first: Histogram, second: Histogram) -> Histogram:
    """Return the sum of two histograms; with NaN for values where their buckets cannot be united.

    A histogram without buckets adds nothing. Sums do not decrease from bucket to bucket: what scrapes at different
    times have mixed up is made good, as in FiloDB. Unlike there, the zero bucket of an exponential histogram counts in
    all buckets above it, those below its first positive one too.
    """
    if not first.values or not second.values:
        return first if first.values else second
    xor = first.xor or second.xor
    if first.buckets.tops == second.buckets.tops:
        total, values = 0.0, []
        for value, addend in zip(first.values, second.values, strict=True):
            total = max(total, value + addend)
            values.append(total)
        return Histogram(first.buckets, tuple(values), xor)
    if first.buckets.kind == second.buckets.kind == "exponential":
        mine, theirs = Scheme.of(first.buckets), Scheme.of(second.buckets)
        if not mine.positive or not theirs.positive:
            zeros, nonzeros = (first, second) if not mine.positive else (second, first)
            return Histogram(nonzeros.buckets, tuple(value + zeros.values[0] for value in nonzeros.values), xor)
        united = mine if mine.holds(theirs) else mine.unite(theirs)
        sums = [0.0] * (united.positive + 1)
        united.add(sums, mine, first.values)
        united.add(sums, theirs, second.values)
        return Histogram(Buckets.exponential(united.scale, united.start, united.positive), tuple(sums), xor)
    return Histogram(first.buckets, (math.nan,) * len(first.values), xor=True)


def merge(histograms: Iterable[Histogram]) -> Histogram:
    """Return the sum of any number of histograms."""
    total = Histogram(Buckets.empty(), ())
    for histogram in histograms:
        total = add(total, histogram)
    return total

"""Histograms: buckets, values, NibblePack, which packs both, and what is computed of them. Sections 8 and 9."""

from __future__ import annotations

from sawlog.filodb.histograms.functions import histogram_add, histogram_fraction, histogram_merge, histogram_quantile
from sawlog.filodb.histograms.histogram import BucketKind, Buckets, Histogram
from sawlog.filodb.histograms.merge import add, merge

__all__ = [
    "BucketKind",
    "Buckets",
    "Histogram",
    "add",
    "histogram_add",
    "histogram_fraction",
    "histogram_merge",
    "histogram_quantile",
    "merge",
]

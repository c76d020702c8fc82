"""Histograms: buckets, values, and NibblePack, which packs both. Sections 8 and 9 of the format."""

from __future__ import annotations

from sawlog.filodb_record.histograms.histogram import BucketKind, Buckets, Histogram

__all__ = ["BucketKind", "Buckets", "Histogram"]

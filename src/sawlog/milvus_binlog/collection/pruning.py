"""What need not be read: segments and binlog batches that hold no row that filters let through."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa

from sawlog.damage import Findings
from sawlog.filters import Filter
from sawlog.milvus_binlog import layout
from sawlog.milvus_binlog.collection.infer import time_range
from sawlog.milvus_binlog.collection.model import Batch, Segment
from sawlog.milvus_binlog.paths import LogFile
from sawlog.milvus_binlog.stats import BloomFilter, check_stats
from sawlog.milvus_binlog.types import TIMESTAMP, Field
from sawlog.storage import Storage


def wanted(segment: Segment, filters: Iterable[Filter]) -> bool:
    """Whether the filters on partition and segment leave rows of it possible."""
    values = {layout.PARTITION_COLUMN: segment.partition, layout.SEGMENT_COLUMN: segment.id}
    for condition in filters:
        if condition.column in values:
            row = pa.record_batch([pa.array([values[condition.column]], pa.int64())], names=[condition.column])
            if not condition.mask(row)[0].as_py():
                return False
    return True


def time_bounds(filters: Iterable[Filter], until: int | None) -> tuple[int, int]:
    """First and last timestamp that filters, and the time that is asked for, leave possible."""
    low, high = 0, layout.MAX_TSO if until is None else until
    for condition in filters:
        if condition.column == TIMESTAMP.name:
            if condition.op in (">", ">=", "=", "=="):
                low = max(low, condition.value + (condition.op == ">"))
            if condition.op in ("<", "<=", "=", "=="):
                high = min(high, condition.value - (condition.op == "<"))
    return low, high


def outside(
    segment: Segment, batch: Batch, bounds: tuple[int, int], storage: Storage, max_page_bytes: int | None
) -> bool:
    """Whether the times of a batch's rows, as metadata or Parquet statistics have them, lie outside of bounds."""
    low, high = bounds
    if (low == 0 and high == layout.MAX_TSO) or (segment.meta is not None and segment.meta.commit_timestamp):
        return False
    first, last = (batch.first, batch.last) if batch.last else (0, 0)
    log = batch.files.get(layout.TIMESTAMP_FIELD)
    if not last and log is not None:
        first, last = time_range(log.file, storage, max_page_bytes)
    return bool(last) and (last < low or first > high)


def ruled_out(
    segments: Iterable[Segment], primary: Field, filters: Iterable[Filter], storage: Storage
) -> frozenset[int]:
    """The segments that statistics rule out every row of: those of all of their binlog batches, none missing."""
    conditions = [one for one in filters if one.column == primary.name]
    known = [(segment, _key_stats(segment, primary)) for segment in segments if conditions]
    read = storage.each(lambda file: storage.read(file.path), [log.file for _, logs in known for log in logs])
    found = set()
    for segment, logs in known:
        findings = Findings("skip")
        entries = [entry for log in logs for entry in check_stats(next(read), log.file.path, findings)]
        told = not findings.kinds and len(entries) >= len(segment.batches())
        if told and all(
            one["fieldID"] == primary.id and not all(_possible(one, condition, primary) for condition in conditions)
            for one in entries
        ):
            found.add(segment.id)
    return frozenset(found)


def _key_stats(segment: Segment, primary: Field) -> list[LogFile]:
    """The statistics of a segment's keys: those of all batches together where there are some."""
    logs = [log for log in segment.stats if log.field == primary.id]
    return [log for log in logs if log.log == layout.COMPOUND_STATS] or logs


def _possible(entry: dict[str, Any], condition: Filter, primary: Field) -> bool:
    """Whether a binlog batch may hold a key that meets a condition."""
    values: Sequence[Any] = condition.value if condition.op == "in" else [condition.value]
    low, high = entry.get("minPk"), entry.get("maxPk")
    kind = int if pa.types.is_integer(primary.arrow_type()) else str
    if not all(isinstance(one, kind) for one in (low, high, *values)):
        return True
    if condition.op in ("=", "==", "in"):
        inside = [value for value in values if low <= value <= high]
        return bool(inside) and _maybe(entry, inside, primary)
    tests = {
        "<": lambda value: low < value,
        "<=": lambda value: low <= value,
        ">": lambda value: high > value,
        ">=": lambda value: high >= value,
    }
    return bool(tests[condition.op](values[0])) if condition.op in tests else True


def _maybe(entry: dict[str, Any], values: Sequence[Any], primary: Field) -> bool:
    """Whether a batch's Bloom filter may hold any of some keys."""
    stored = entry.get("bf") or {}
    if entry.get("bfType", 0) not in (0, 1) or "b" not in stored:
        return True
    return BloomFilter.of_json(stored).found(pa.array(values, primary.arrow_type())) > 0

"""What need not be read: segments and binlog batches that hold no row that filters let through."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa

from sawlog.arrow import array_of
from sawlog.damage import Findings
from sawlog.milvus_binlog import layout
from sawlog.milvus_binlog.collection.infer import time_range
from sawlog.milvus_binlog.collection.model import Batch, Segment
from sawlog.milvus_binlog.paths import LogFile
from sawlog.milvus_binlog.stats import check_stats, filter_of
from sawlog.milvus_binlog.types import TIMESTAMP, Field
from sawlog.query import Query, conditions, interval, possible
from sawlog.storage import Storage


def wanted(segment: Segment, query: Query) -> bool:
    """Whether partition and segment leave rows of it possible."""
    values = {layout.PARTITION_COLUMN: segment.partition, layout.SEGMENT_COLUMN: segment.id}
    return possible(query, pa.record_batch({name: array_of([value], pa.int64()) for name, value in values.items()}))


def time_bounds(query: Query, until: int | None) -> tuple[int, int]:
    """First and last timestamp that a query, and the time that is asked for, leave possible."""
    first, end = interval(query, TIMESTAMP.name)
    latest = layout.MAX_TSO if until is None else until
    return max(first or 0, 0), latest if end is None else min(end - 1, latest)


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


def ruled_out(segments: Iterable[Segment], primary: Field, query: Query, storage: Storage) -> frozenset[int]:
    """The segments that statistics rule out every row of: those of all of their binlog batches, none missing."""
    limits = interval(query, primary.name)
    listed = [one.values for one in conditions(query) if one.column == primary.name and one.values]
    used = listed or limits != (None, None)
    known = [(segment, _key_stats(segment, primary)) for segment in segments if used]
    read = storage.each(lambda file: storage.read(file.path), [log.file for _, logs in known for log in logs])
    found = set()
    for segment, logs in known:
        findings = Findings("skip")
        entries = [entry for log in logs for entry in check_stats(next(read), log.file.path, findings)]
        told = not findings.kinds and len(entries) >= len(segment.batches())
        if told and all(
            one["fieldID"] == primary.id and not _possible(one, limits, listed, primary) for one in entries
        ):
            found.add(segment.id)
    return frozenset(found)


def _key_stats(segment: Segment, primary: Field) -> list[LogFile]:
    """The statistics of a segment's keys: those of all batches together where there are some."""
    logs = [log for log in segment.stats if log.field == primary.id]
    return [log for log in logs if log.log == layout.COMPOUND_STATS] or logs


def _possible(entry: dict[str, Any], limits: tuple[Any, Any], listed: Iterable[Sequence[Any]], primary: Field) -> bool:
    """Whether a binlog batch may hold a key within limits that is one of each list."""
    low, high = entry.get("minPk"), entry.get("maxPk")
    kind = int if pa.types.is_integer(primary.arrow_type()) else str
    if not all(isinstance(one, kind) for one in (low, high, *(one for one in limits if one is not None))):
        return True
    first, end = limits
    if (first is not None and high < first) or (end is not None and low >= end):
        return False
    return all(
        _maybe(entry, [one for one in values if low <= one <= high], primary) for values in listed if None not in values
    )


def _maybe(entry: dict[str, Any], values: Sequence[Any], primary: Field) -> bool:
    """Whether a batch's Bloom filter may hold any of some keys."""
    if not values:
        return False
    bloom = filter_of(entry)
    return bloom is None or bloom.found(array_of(values, primary.arrow_type())) > 0

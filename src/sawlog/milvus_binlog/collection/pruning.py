"""Segments that hold no row a filter on the primary key lets through, by their stats logs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa

from sawlog.damage import Findings
from sawlog.filters import Filter
from sawlog.milvus_binlog import layout
from sawlog.milvus_binlog.collection.model import Segment
from sawlog.milvus_binlog.stats import BloomFilter, check_stats
from sawlog.milvus_binlog.types import Field
from sawlog.storage import Storage


def excluded(segment: Segment, primary: Field, filters: Iterable[Filter], storage: Storage) -> bool:
    """Whether statistics rule out every row of a segment: those of all of its binlog batches, none missing."""
    conditions = [one for one in filters if one.column == primary.name]
    if not conditions:
        return False
    logs = [log for log in segment.stats if log.field == primary.id]
    compound = [log for log in logs if log.log == layout.COMPOUND_STATS]
    entries: list[dict[str, Any]] = []
    for log in compound or logs:
        findings = Findings("skip")
        entries += check_stats(storage.read(log.file.path), log.file.path, findings)
        if findings.kinds:
            return False
    if len(entries) < len(segment.batches()) or any(one["fieldID"] != primary.id for one in entries):
        return False
    return not any(all(_possible(entry, one, primary) for one in conditions) for entry in entries)


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

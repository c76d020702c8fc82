"""Selection of what is read of a collection: its logs, its segments, and the batches that filters leave."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from sawlog.arrow import make_array
from sawlog.errors import OptionError
from sawlog.format.contract import Scan
from sawlog.format.damage import Findings
from sawlog.format.query import EVERY_ROW, Query, can_match, find_interval, iterate_conditions
from sawlog.milvus import layout, paths
from sawlog.milvus.collection.infer import read_time_range
from sawlog.milvus.collection.model import Batch, Collection, Segment
from sawlog.milvus.metadata.nearby import choose_metadata
from sawlog.milvus.options import ReadOptions
from sawlog.milvus.paths import LogFile
from sawlog.milvus.stats import check_stats, make_filter
from sawlog.milvus.types import TIMESTAMP, Field
from sawlog.storage import Storage, map_files, read_indexed


@dataclass(frozen=True, slots=True)
class Selection:
    """The segments of a collection that options ask for."""

    collection: Collection
    options: ReadOptions

    @property
    def all_segments(self) -> list[Segment]:
        """All segments of the partitions that there is anything of."""
        segments = self.select_in_partitions(list(self.collection.segments.values()))
        return [
            segment
            for segment in segments
            if segment.inserts or segment.deltas or segment.is_v3 or segment.find_missing_deltas()
        ]

    @property
    def alive(self) -> list[Segment]:
        """The segments whose rows are the collection's: those that are named, or those that are alive."""
        living = self.collection.list_living(self.options.until, self.dropped)
        return self.select_in_partitions(living) if not self.options.segments else self._named_segments

    @property
    def origins(self) -> list[Segment]:
        """The segments that hold every version of every row, each once, or those that are named."""
        return (
            self.select_in_partitions(self.collection.list_origins())
            if not self.options.segments
            else self._named_segments
        )

    @property
    def _named_segments(self) -> list[Segment]:
        """The segments of the option.

        Raises:
            OptionError: For one that is not there.
        """
        segments = self.collection.segments
        stored_ids = {id for id, segment in segments.items() if segment.inserts or segment.is_v3}
        unknown = [id for id in self.options.segments if id not in stored_ids]
        if unknown:
            raise OptionError(f"segments: the collection {self.collection.name} has no segment {unknown[0]}")
        return self.select_in_partitions([segments[id] for id in sorted(set(self.options.segments))])

    @property
    def dropped(self) -> tuple[int, ...]:
        """Dropped partitions that are asked for by name or id."""
        meta = self.collection.meta
        dropped = meta.dropped_partitions if meta is not None else {}
        return tuple(id for id, name in dropped.items() if {str(id), name} & set(self.options.partitions))

    def select_in_partitions(self, segments: list[Segment]) -> list[Segment]:
        """Return the segments that lie in the partitions that are asked for.

        Raises:
            OptionError: For a partition that is not known.
        """
        requested = self.options.partitions
        if not requested:
            return segments
        collection = self.collection
        names = {segment.partition: collection.find_partition_name(segment.partition) for segment in segments}
        if collection.meta is not None:
            names |= {**collection.meta.dropped_partitions, **collection.meta.partitions}
        unknown = [name for name in requested if name not in names.values() and name not in map(str, names)]
        if unknown:
            known_names = ", ".join(sorted(f"{name} ({id})" for id, name in names.items()))
            raise OptionError(f"partitions: {unknown[0]!r} is none of {known_names}")
        return [
            segment
            for segment in segments
            if str(segment.partition) in requested or names[segment.partition] in requested
        ]


def with_deltas(logs: Sequence[LogFile], scan: Scan) -> list[LogFile]:
    """Return the logs, and, where only insert logs were given, the delta and stats logs next to them."""
    kinds = {log.kind for log in logs} | ({layout.DELTA_LOG} if scan.schema is not None else set())
    inserts = [log for log in logs if log.kind == layout.INSERT_LOG]
    if layout.DELTA_LOG in kinds or not inserts:
        return list(logs)
    added: list[LogFile] = []
    for root, collection in sorted({(log.root, log.collection) for log in inserts}):
        for kind in (layout.DELTA_LOG, layout.STATS_LOG):
            directory = posixpath.join(root, kind, str(collection))
            if kind not in kinds and scan.storage.is_directory(directory, fresh=False):
                added += [log for log in map(paths.parse, scan.storage.find(directory)) if log is not None]
    segments = {log.segment for log in inserts}
    return [*logs, *(log for log in added if log.segment in segments or _is_delete_log(log, scan))]


def _is_delete_log(log: LogFile, scan: Scan) -> bool:
    """Return whether a delta log belongs to a segment that has no insert logs anywhere."""
    ids = (log.collection, log.partition, log.segment)
    place = posixpath.join(log.root, layout.INSERT_LOG, *map(str, ids))
    return not scan.storage.exists(place, fresh=False)


def select_followed(logs: Sequence[LogFile], scan: Scan) -> list[LogFile]:
    """Return the logs, of those that have appeared, of the view and the collection that a stream follows."""
    kind, table = layout.FOLLOWED.get(scan.view), scan.options.table
    followed = [log for log in logs if kind in (None, log.kind)]
    if table is None:
        return followed
    roots, ids = {log.root for log in logs}, {log.collection for log in logs} - {0}
    metadata = choose_metadata(scan.options.metadata, roots, ids, None, scan.storage).metadata
    metas = metadata.timeline.find_collections(None) if metadata is not None and metadata.timeline is not None else {}
    named = {id for id, meta in metas.items() if meta.has_name(table)}
    return [log for log in followed if table == str(log.collection) or log.collection in named]


def is_selected(segment: Segment, query: Query) -> bool:
    """Return whether partition and segment leave rows of it possible."""
    if query == EVERY_ROW:
        return True
    values = {layout.PARTITION_COLUMN: segment.partition, layout.SEGMENT_COLUMN: segment.id}
    return can_match(query, pa.record_batch({name: make_array([value], pa.int64()) for name, value in values.items()}))


def find_time_bounds(query: Query, until: int | None) -> tuple[int, int]:
    """Return the first and the last timestamp that a query, and the time that is asked for, leave possible."""
    first, end = find_interval(query, TIMESTAMP.name)
    latest = layout.MAX_TSO if until is None else until
    return max(first or 0, 0), latest if end is None else min(end - 1, latest)


def is_outside_times(
    segment: Segment, batch: Batch, bounds: tuple[int, int], storage: Storage, max_page_bytes: int | None
) -> bool:
    """Return whether the times of a batch's rows, by metadata or Parquet statistics, are outside of bounds."""
    low, high = bounds
    if (low == 0 and high == layout.MAX_TSO) or (segment.meta is not None and segment.meta.commit_timestamp):
        return False
    first, last = (batch.first, batch.last) if batch.last else (0, 0)
    log = batch.files.get(layout.TIMESTAMP_FIELD)
    if not last and log is not None:
        first, last = read_time_range(log.file, storage, max_page_bytes)
    return bool(last) and (last < low or first > high)


def rule_out_segments(segments: Iterable[Segment], primary: Field, query: Query, storage: Storage) -> frozenset[int]:
    """Return the segments that statistics rule out every row of: those of all of their binlog batches, none missing."""
    limits = find_interval(query, primary.name)
    listed = [
        condition.values
        for condition in iterate_conditions(query)
        if condition.column == primary.name and condition.values
    ]
    used = listed or limits != (None, None)
    statistics = [(segment, find_key_stats(segment, primary)) for segment in segments if used]
    read = map_files(
        lambda file: read_indexed(storage, file, 0, file.size), [log.file for _, logs in statistics for log in logs]
    )
    ruled_out = set()
    for segment, logs in statistics:
        findings = Findings("skip")
        entries = [entry for log in logs for entry in check_stats(next(read), log.file.path, findings)]
        complete = not findings.kinds and len(entries) >= len(segment.list_batches())
        if complete and all(
            entry["fieldID"] == primary.id and not _may_hold_key(entry, limits, listed, primary) for entry in entries
        ):
            ruled_out.add(segment.id)
    return frozenset(ruled_out)


def find_key_stats(segment: Segment, primary: Field) -> list[LogFile]:
    """Return the statistics of a segment's keys: those of all batches together where there are some."""
    logs = [log for log in segment.stats if log.field == primary.id]
    return [log for log in logs if log.log == layout.COMPOUND_STATS] or logs


def _may_hold_key(
    entry: dict[str, Any], limits: tuple[Any, Any], listed: Iterable[Sequence[Any]], primary: Field
) -> bool:
    """Return whether a binlog batch may hold a key within limits that is one of each list."""
    low, high = entry.get("minPk"), entry.get("maxPk")
    kind = int if pa.types.is_integer(primary.choose_arrow_type()) else str
    if not all(isinstance(limit, kind) for limit in (low, high, *(limit for limit in limits if limit is not None))):
        return True
    first, end = limits
    if (first is not None and high < first) or (end is not None and low >= end):
        return False
    return all(
        _may_pass_filter(entry, [value for value in values if low <= value <= high], primary)
        for values in listed
        if None not in values
    )


def _may_pass_filter(entry: dict[str, Any], values: Sequence[Any], primary: Field) -> bool:
    """Return whether a batch's Bloom filter may hold any of some keys."""
    if not values:
        return False
    bloom = make_filter(entry)
    return bloom is None or bloom.count_hits(make_array(values, primary.choose_arrow_type())) > 0

"""The plan of an import: ranges of logs for each location, and the rows of a location with its position record."""

from __future__ import annotations

import itertools
import posixpath
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from sawlog.deephaven.ingest.records import RECORD_NAME, ImportedRange, Partition, PositionRecord, Progress
from sawlog.deephaven.ingest.schema import conform
from sawlog.deephaven.ingest.unstorable import UNSTORABLE_NAME, Mender, OnUnstorable
from sawlog.deephaven.log.dataset import BinaryLog, replace_size
from sawlog.deephaven.log.extent import measure_range
from sawlog.deephaven.log.fragments import RowRange, make_log_range
from sawlog.deephaven.log.names import order_key, parse_name
from sawlog.deephaven.table.writer import LocationWriter
from sawlog.errors import SchemaError
from sawlog.format.contract import PROVENANCE, Projection, Scan
from sawlog.format.damage import Findings, describe_losses
from sawlog.storage import Staged, Storage


@dataclass(frozen=True, slots=True)
class Split:
    """The ranges of logs of one partition, in order, that become one location. Picklable.

    Attributes:
        record: The position record, without the number of rows.
        fragments: The ranges that hold live rows. There may turn out to be none: the position is worth a location.
    """

    record: PositionRecord
    fragments: tuple[RowRange, ...]


@dataclass(frozen=True, slots=True)
class PartitionPlan:
    """The work on one partition.

    Attributes:
        partition: The partition.
        splits: Its new locations, in order.
        lag: Bytes of its logs that will still not be taken: they wait for their end, or for the next import.
        limited: Whether they wait for the next import because there are too many of them.
        remarks: What is worth a warning: bytes that wait, logs that came late.
        skipped: Logs that are left out, for their headers are damaged.
    """

    partition: Partition
    splits: tuple[Split, ...]
    lag: int = 0
    limited: bool = False
    remarks: tuple[str, ...] = ()
    skipped: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _News:
    """The bytes of a log past the point at which the last import stopped.

    Attributes:
        log: The log, as if it ended at the last committed entry.
        start: Where the last import stopped.
        cuts: Where sets begin, some way apart.
        live_from: End of the last DELETE_PARTITION; -1 when there is none.
        stopped: Whether there is more, which is left for the next import.
    """

    log: BinaryLog
    start: int
    cuts: tuple[int, ...]
    live_from: int
    stopped: bool

    @property
    def end(self) -> int:
        """The end of the last committed entry."""
        return self.log.file.size


class Planner:
    """Plans partitions of one table. Picklable, so that partitions are planned side by side.

    Args:
        scan: How the logs are read: options, damage policy, storage.
        projections: The columns of each log, by its path.
        location_bytes: Bytes of logs per location, about.
        max_bytes: Bytes of logs that are taken of a partition, about; None: all.
    """

    def __init__(
        self, scan: Scan, projections: Mapping[str, Projection], location_bytes: int, max_bytes: int | None = None
    ) -> None:
        self._scan = scan
        self._projections = projections
        self._location_bytes = location_bytes
        self._max_bytes = max_bytes

    def count_bytes(self, logs: Sequence[BinaryLog], progress: Progress) -> int:
        """Return the number of bytes to walk."""
        new_bytes = sum(log.file.size - _find_stop(log, progress) for log in logs)
        return new_bytes if self._max_bytes is None else min(new_bytes, self._max_bytes)

    def __call__(self, item: tuple[Partition, Sequence[BinaryLog], Progress]) -> PartitionPlan:
        """Plan what the logs of a partition have past the point where the last import stopped, each walked once.

        Raises:
            SawlogError: When a log is not the one any more that was imported.
        """
        partition, logs, progress = item
        remarks: list[str] = []
        news: list[_News] = []
        waiting = [log for log in logs if not self._is_void(log, progress)]
        is_begun = [log.file.name in progress.logs for log in waiting]
        lag, remaining, limited = 0, self._max_bytes, False
        for place, log in enumerate(waiting):
            news_of_log = None
            if not limited:
                news_of_log = self._find_news(
                    log, progress.logs.get(log.file.name), remarks, remaining, last=log is logs[-1]
                )
            lag += log.file.size - (news_of_log.end if news_of_log is not None else _find_stop(log, progress))
            if news_of_log is not None:
                news.append(news_of_log)
                remaining = None if remaining is None else remaining - (news_of_log.end - news_of_log.start)
                limited = news_of_log.stopped or (remaining is not None and remaining <= 0)
                if not is_begun[place] and any(is_begun[place:]):
                    remarks.append(f"{log.file.path}: came after later logs were imported; its rows come after theirs")
        skipped = [f"{log.reason}; the log is left out" for log in logs if log.header is None and not log.incomplete]
        splits = self._plan_splits(partition, news, progress)
        return PartitionPlan(partition, tuple(splits), lag, limited, tuple(remarks), tuple(skipped))

    def _is_void(self, log: BinaryLog, progress: Progress) -> bool:
        """Return whether a log that was never seen comes before the log whose DELETE_PARTITION was imported."""
        if progress.truncated_in is None or log.file.name in progress.logs:
            return False
        return order_of(log.file.name) < order_of(progress.truncated_in)

    def _find_news(
        self, log: BinaryLog, progress: ImportedRange | None, remarks: list[str], remaining: int | None, *, last: bool
    ) -> _News | None:
        """Return the new bytes of a log, up to `remaining`, if there are not to be more.

        Damage that the last log of a partition ends in may be an entry on its way; in any other it is damage.
        """
        header, storage = log.header, self._scan.storage
        if progress is not None:
            progress.confirm(log.file, storage)
        if header is None:
            return None
        start = max(header.size, progress.end if progress is not None else 0)
        if log.file.size <= start:
            return None
        options = self._scan.options.without_incomplete()
        ahead = replace(make_log_range(log.file, header, options, storage), start=start)
        extent = measure_range(ahead, self._location_bytes, remaining, last=last)
        if extent.end < log.file.size and not extent.stopped:
            remarks.append(
                f"{log.file.path}: {log.file.size - extent.end} bytes after byte {extent.end} wait for their end"
            )
        if extent.end <= start:
            return None
        live_from = extent.live_from if self._scan.options.deletes == "apply" else -1
        cuts = tuple(cut for cut in extent.cuts if start < cut < extent.end)
        return _News(replace_size(log, extent.end), start, cuts, live_from, extent.stopped)

    def _plan_splits(self, partition: Partition, news: Sequence[_News], progress: Progress) -> Iterator[Split]:
        """Fill one location after the other."""
        storage = self._scan.storage
        deleting = max((index for index, item in enumerate(news) if item.live_from >= 0), default=0)
        record = PositionRecord(partition, progress.sequence, 0, deletions=progress.deletions)
        ranges: dict[str, ImportedRange] = {}
        if news and news[deleting].live_from >= 0:
            # A location that makes the ones before it void has to know what they knew.
            deletions, deleted_in = progress.deletions + 1, news[deleting].log.file.name
            record = replace(record, truncates=True, truncated_in=deleted_in, deletions=deletions)
            void = {
                item.log.file.name: ImportedRange.of(item.log.file, item.start, item.end, storage)
                for item in news[:deleting]
            }
            ranges = {**progress.logs, **void}
        fragments: list[RowRange] = []
        size = 0
        for fragment in itertools.chain.from_iterable(map(self._cut_ranges, news[deleting:])):
            if fragments and size + fragment.size > self._location_bytes:
                yield Split(replace(record, logs=ranges), tuple(fragments))
                record = PositionRecord(partition, record.sequence + 1, 0, deletions=record.deletions)
                fragments, ranges, size = [], {}, 0
            name, start = fragment.file.name, fragment.start
            if name in ranges and ranges[name].end == start:
                start = ranges[name].start
            ranges[name] = ImportedRange.of(fragment.file, start, fragment.end, storage)
            fragments.append(fragment)
            size += fragment.size
        if fragments:
            yield Split(replace(record, logs=ranges), tuple(fragments))

    def _cut_ranges(self, item: _News) -> Iterator[RowRange]:
        """Yield the news of one log, cut; nothing before the last cut in front of the live rows."""
        assert item.log.header is not None
        live_from = max(item.live_from, 0)
        begin = max([item.start, *(cut for cut in item.cuts if cut <= live_from)])
        bounds = [begin, *(cut for cut in item.cuts if cut > max(begin, live_from)), item.end]
        for start, end in itertools.pairwise(bounds):
            yield RowRange(
                self._scan,
                self._projections[item.log.file.path],
                item.log.file.path,
                end - start,
                item.log.file,
                item.log.header,
                start,
                end,
                live_from,
                item.log.name.column_partition,
            )


def _find_stop(log: BinaryLog, progress: Progress) -> int:
    """Return the offset at which the last import of a log stopped."""
    progress_of_log = progress.logs.get(log.file.name)
    return 0 if progress_of_log is None else progress_of_log.end


def order_of(name: str) -> str:
    """Return a sort key of logs by their paths or names: the order in which they were begun."""
    base = posixpath.basename(name)
    return order_key(parse_name(base), base)


@dataclass(frozen=True, slots=True)
class FilledPartition:
    """A location that is complete, and not published."""

    staged: Sequence[Staged]
    rows: int
    skipped: tuple[str, ...]
    unstorable: int = 0


@dataclass(frozen=True)
class Filler:
    """Fills locations of one table. Picklable."""

    schema: pa.Schema
    options: Any
    storage: Storage
    on_unstorable: OnUnstorable = "error"

    def __call__(self, item: tuple[Split, str]) -> FilledPartition:
        """Decode the ranges of a split, and stage its location, which will be at a path.

        Raises:
            DamageError: Where a log is damaged, when that is the policy.
            SchemaError: For a value that column files cannot hold, when that is the policy.
        """
        split, path = item
        try:
            return self._fill(split, path)
        except SchemaError:
            if self.on_unstorable == "error":
                raise
            return self._fill(split, path, mending=True)

    def _fill(self, split: Split, path: str, *, mending: bool = False) -> FilledPartition:
        writer = LocationWriter(path, self.schema, self.options, self.storage)
        mender = Mender(self.schema, writer.specs, self.on_unstorable) if mending else None
        rows = 0
        skipped: list[str] = []
        try:
            for fragment in split.fragments:
                findings = Findings(fragment.scan.on_damage)
                read = fragment
                if mender is not None:  # it names the rows that it changes
                    schema = pa.schema([*fragment.projection.schema, *PROVENANCE])
                    read = replace(fragment, projection=Projection(schema, schema))
                for batch in read.to_batches(findings):
                    writer.write(conform(batch, self.schema) if mender is None else mender.mend(batch))
                    rows += batch.num_rows
                skipped += describe_losses(findings, fragment.path)
            writer.add_file(RECORD_NAME, replace(split.record, rows=rows).to_json())
            if mender is not None:
                writer.add_file(UNSTORABLE_NAME, mender.encode_listing())
            return FilledPartition(writer.finish(), rows, tuple(skipped), mender.count if mender is not None else 0)
        except BaseException:
            writer.abort()
            raise

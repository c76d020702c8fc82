"""The views of collections and of segments: what they are made of, and how much of them is below the root."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from sawlog.arrow import make_array
from sawlog.format.contract import FILE_COLUMN, OFFSET_COLUMN, Fragment, Projection, Scan
from sawlog.format.damage import Findings
from sawlog.milvus import layout
from sawlog.milvus.collection.fragments import BatchColumns, BatchFragment, Shared
from sawlog.milvus.collection.infer import read_time_range
from sawlog.milvus.collection.model import Batch, Collection, Missing, Segment
from sawlog.milvus.deletes.log import read_deletes
from sawlog.milvus.layout import BinlogDamageKind, SegmentLevel
from sawlog.milvus.log import hold_log
from sawlog.milvus.payloads.payload import UnreadableError
from sawlog.milvus.types import Field

COLLECTIONS_SCHEMA = pa.schema(
    [
        pa.field("collection", pa.int64(), nullable=False),
        pa.field("database", pa.string()),
        pa.field("name", pa.string()),
        pa.field("aliases", pa.list_(pa.string())),
        pa.field("created", pa.int64()),
        pa.field("checkpoints", pa.map_(pa.string(), pa.int64())),
        pa.field("fields", pa.list_(pa.string())),
        pa.field("primary_key", pa.string()),
        pa.field("partitions", pa.list_(pa.string())),
        pa.field("dropped_partitions", pa.list_(pa.string())),
        pa.field("ttl", pa.int64()),
        pa.field("segments", pa.int64(), nullable=False),
        pa.field("bytes", pa.int64(), nullable=False),
    ]
)
"""Names are null where no metadata gives them. `created` is a TSO, and so are the checkpoints of
channels: what was written later may be only in the message queue. `ttl` are seconds, 0 for no end; segments and bytes
are those of insert logs below the root, dropped ones included."""


@dataclass(frozen=True)
class CollectionFragment(Fragment):
    """Fragment of the view `collections`: one collection."""

    collection: Collection

    def decode(self, schema: pa.Schema, findings: Findings) -> Iterator[pa.RecordBatch]:
        """Yield one row. Nothing is read for it but metadata and names of files."""
        collection, meta = self.collection, self.collection.meta
        stored_segments = [segment for segment in collection.segments.values() if segment.inserts]
        row = {
            "collection": collection.id,
            "segments": len(stored_segments),
            "bytes": sum(segment.size for segment in stored_segments),
            FILE_COLUMN: self.path,
            OFFSET_COLUMN: 0,
        }
        if meta is not None:
            row |= {
                "database": meta.database,
                "name": meta.name,
                "aliases": list(meta.aliases),
                "created": meta.created or None,
                "checkpoints": list(meta.checkpoints.items()),
                "fields": [field.name for field in meta.fields],
                "primary_key": next((field.name for field in meta.fields if field.primary), None),
                "partitions": list(meta.partitions.values()),
                "dropped_partitions": list(meta.dropped_partitions.values()),
                "ttl": meta.ttl,
            }
        findings.rows += 1
        yield pa.RecordBatch.from_arrays(
            [make_array([row.get(field.name)], field.type) for field in schema], schema=schema
        )


SEGMENTS_SCHEMA = pa.schema(
    [
        pa.field("collection", pa.int64(), nullable=False),
        pa.field("partition", pa.int64(), nullable=False),
        pa.field("partition_name", pa.string(), nullable=False),
        pa.field("segment", pa.int64(), nullable=False),
        pa.field("state", pa.string()),
        pa.field("level", pa.string()),
        pa.field("channel", pa.string()),
        pa.field("batches", pa.int64(), nullable=False),
        pa.field("files", pa.int64(), nullable=False),
        pa.field("bytes", pa.int64(), nullable=False),
        pa.field("rows", pa.int64()),
        pa.field("deletes", pa.int64()),
        pa.field("min_timestamp", pa.int64()),
        pa.field("max_timestamp", pa.int64()),
    ]
)
"""Rows count before deletes; deletes are those in the segment's own delta logs. Timestamps are TSOs."""


@dataclass(frozen=True)
class MissingFragment(Fragment):
    """A file that is not there, and has no rows."""

    missing: Missing

    @property
    def extent(self) -> tuple[int, int]:
        return 0, 0

    def decode(self, schema: pa.Schema, findings: Findings) -> Iterator[pa.RecordBatch]:
        """Yield nothing but the report."""
        del schema
        findings.add_damage(self.missing.damage)
        yield from ()


@dataclass(frozen=True)
class SegmentFragment(Fragment):
    """Fragment of the view `segments`: one segment.

    Attributes:
        segment: What is on disk, and what the metadata knows.
        batches: Its binlog batches.
        fields: Fields that every batch has to have.
        partition_name: Name of its partition, or its id.
        standalone: Whether its files are not checked besides it: it reports what is wrong with its manifest then.
    """

    segment: Segment
    batches: tuple[Batch, ...]
    fields: tuple[Field, ...]
    partition_name: str
    standalone: bool = False

    @property
    def extent(self) -> tuple[int, int]:
        return 0, 0  # the bytes are those of its files

    def decode(self, schema: pa.Schema, findings: Findings) -> Iterator[pa.RecordBatch]:
        """Yield one row; damage are files that are missing, or that disagree about the number of rows."""
        rows = self._count(findings)
        findings.rows += 1
        if not schema.names:
            return
        row = self._make_row(rows)
        yield pa.RecordBatch.from_arrays(
            [make_array([row.get(field.name)], field.type) for field in schema], schema=schema
        )

    def _make_row(self, rows: int | None) -> dict[str, Any]:
        segment, meta = self.segment, self.segment.meta
        files = [log.file for log in (*segment.files, *segment.manifests, *segment.deltas, *segment.stats)]
        first, last = self._find_times()
        level = meta.level if meta is not None else None
        is_known = level in SegmentLevel.__members__.values()
        return {
            "collection": segment.collection,
            "partition": segment.partition,
            "partition_name": self.partition_name,
            "segment": segment.id,
            "state": meta.state_name if meta is not None else None,
            "level": ("L0" if segment.is_l0 else None) if not is_known else SegmentLevel(level or 0).name,
            "channel": meta.channel if meta is not None else None,
            "batches": len(self.batches),
            "files": len(files),
            "bytes": sum(file.size for file in files),
            "rows": rows,
            "deletes": self._count_deletes(),
            "min_timestamp": first,
            "max_timestamp": last,
            FILE_COLUMN: self.path,
            "_offset": 0,
        }

    def _count_deletes(self) -> int:
        quiet = Findings("skip")
        count = 0
        for log in self.segment.deltas:
            with hold_log(log.file, self.scan.storage, self.scan.options.max_item_bytes) as binlog:
                count += sum(len(read_delete.keys) for read_delete in read_deletes(binlog, quiet))
        return count

    def _find_times(self) -> tuple[int | None, int | None]:
        pairs = []
        for batch in self.batches:
            log = batch.files.get(layout.TIMESTAMP_FIELD)
            if batch.last:
                pairs.append((batch.first, batch.last))
            elif log is not None:
                pairs.append(read_time_range(log.file, self.scan.storage, self.scan.options.max_item_bytes))
        known_pairs = [pair for pair in pairs if pair[1]]
        if not known_pairs:
            return None, None
        return min(first for first, _ in known_pairs), max(last for _, last in known_pairs)

    def _count(self, findings: Findings) -> int | None:
        """Return the number of rows by the footers of all files; `None` where a batch cannot be counted."""
        missing = self.segment.find_missing_logs()
        for finding in (*missing, *self.segment.find_missing_deltas(), *self.segment.find_other_sizes()):
            if self.standalone or finding.kind != BinlogDamageKind.BAD_MANIFEST.label:
                findings.add_damage(finding.damage)
        for detail in {detail: None for batch in self.batches for detail in batch.unread.values()}:
            findings.add_damage(Missing(self.path, detail, BinlogDamageKind.UNSUPPORTED.label).damage)
        total: int | None = None if self.segment.is_v3 and missing else 0
        for batch in self.batches:  # what the whole segment lacks is not reported for each batch again
            count = self._count_batch(batch, Findings("skip") if missing else findings)
            total = None if count is None or total is None else total + count
        return total

    def _count_batch(self, batch: Batch, findings: Findings) -> int | None:
        if not batch.files:
            return 0
        fragment = self._make_fragment(batch)
        quiet = Findings("skip")
        with closing(BatchColumns(fragment, quiet, planning=True)) as columns:
            for id in batch.slices:
                try:
                    columns.open(id)
                except UnreadableError as error:
                    # The file's check reports others.
                    if error.damage.kind == BinlogDamageKind.ROW_COUNT_MISMATCH.label:
                        findings.add_damage(error.damage)
            counts, odd_file = columns.count_rows(), columns.find_odd_file()
            try:
                missing = [*columns.find_missing_files(), *columns.find_absent_fields()]
            except UnreadableError:
                missing = []
        for gap in missing:
            findings.add_damage(gap.damage)
        if odd_file is not None:
            findings.add_damage(odd_file)
            return None
        count = next(iter(counts.values()), None)
        mismatch = batch.describe_other_rows(count) if count is not None else None
        if mismatch is not None:
            findings.add_damage(mismatch)
        return count

    def _make_fragment(self, batch: Batch) -> BatchFragment:
        scan: Scan = self.scan
        projection = Projection(pa.schema([]), pa.schema([]))
        shared = Shared({field.name: field for field in self.fields}, None)
        place = (self.segment.collection, self.segment.partition, self.segment.id)
        return BatchFragment(scan, projection, self.path, self.size, shared, batch, place)

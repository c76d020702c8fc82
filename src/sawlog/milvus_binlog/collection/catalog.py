"""The view of collections: what they are called, what they are made of, and how much of them is below the root."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from sawlog.arrow import array_of
from sawlog.damage import Findings
from sawlog.format import FILE_COLUMN, OFFSET_COLUMN, Fragment
from sawlog.milvus_binlog.collection.model import Collection

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
    """One collection."""

    collection: Collection

    def decode(self, schema: pa.Schema, findings: Findings) -> Iterator[pa.RecordBatch]:
        """One row. Nothing is read for it but metadata and names of files."""
        collection, meta = self.collection, self.collection.meta
        there = [segment for segment in collection.segments.values() if segment.inserts]
        row = {
            "collection": collection.id,
            "segments": len(there),
            "bytes": sum(segment.size for segment in there),
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
                "fields": [one.name for one in meta.fields],
                "primary_key": next((one.name for one in meta.fields if one.primary), None),
                "partitions": list(meta.partitions.values()),
                "dropped_partitions": list(meta.dropped_partitions.values()),
                "ttl": meta.ttl,
            }
        findings.rows += 1
        yield pa.RecordBatch.from_arrays([array_of([row.get(one.name)], one.type) for one in schema], schema=schema)

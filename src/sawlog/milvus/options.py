"""Options for reading and writing Milvus binlogs."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass, field
from typing import Any, Literal

from sawlog.errors import OptionError
from sawlog.format.options import NAMES_TIME
from sawlog.guard import parse_time
from sawlog.milvus import layout


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """Options for reading Milvus binlogs.

    Attributes:
        table: Collection to read, if there are several: id, name or alias, or `database.name`.
        partitions: Names or ids of partitions; by default all. A dropped one is read if it is named.
        segments: Ids of the live segments; overrides what metadata says about that.
        metadata: Path of an etcd's data directory, database or dump (JSON), of a milvus-backup's `meta` directory or
            `full_meta.json`, or of Milvus' `snapshots`; or `none`. By default, what is next to the logs.
        schema: The collection's schema as pymilvus' `CollectionSchema.to_dict()` gives it: a dictionary, JSON, or the
            path of a JSON file.
        as_of: Read the collection as it was then: a TSO, a datetime or ISO 8601 text, in UTC unless it has a zone.
        ttl: Time at which the collection's time to live is applied: as for `as_of`, or `now`, or `ignore`. By default
            that of `as_of`, else `ignore`.
        deletes: `apply` leaves out deleted rows; `own` does not apply the deletes of L0 segments; `ignore` applies
            none.
        dynamic_fields: Keys of the dynamic field to return as columns: `name`, `name:type` (bool, int64, double,
            string, or json, the default), or `*` for all, which reads the dynamic field of the whole collection first.
        dedupe: Of live rows with the same primary key, return only the newest. Reads all keys first.
        use_statistics: Let filters on the primary key skip segments by their stats logs (minimum, maximum, Bloom
            filter), which have no checksum.
        max_item_bytes: Larger Parquet pages are damage, and lists that expand to more from a few bytes. By default 256
            MiB, or 8 MiB for what is larger than 64 times its size in the file.
        max_delete_bytes: Memory for the deleted keys of a segment or partition. By default 64 MiB, or 32 times the size
            of their delta logs.
    """

    table: str | None = None
    partitions: tuple[str, ...] = ()
    segments: tuple[int, ...] = ()
    metadata: str | None = None
    schema: str | dict[str, Any] | None = None
    as_of: int | dt.datetime | str | None = field(default=None, metadata=NAMES_TIME)
    ttl: int | dt.datetime | str | None = None
    deletes: Literal["apply", "own", "ignore"] = "apply"
    dynamic_fields: tuple[str, ...] = ()
    dedupe: bool = False
    use_statistics: bool = False
    max_item_bytes: int | None = None
    max_delete_bytes: int | None = None

    def __post_init__(self) -> None:
        """Refuse what is no time, before anything is read.

        Raises:
            OptionError: For `as_of` and `ttl`.
        """
        _ = self.until, self.expiry

    @property
    def until(self) -> int | None:
        """The last TSO that counts; `None` for all."""
        return None if self.as_of is None else _find_last_tso("as_of", self.as_of)

    @property
    def expiry(self) -> int | None:
        """The TSO at which rows have to be alive; `None` for any time."""
        if self.ttl is None:
            return self.until
        if self.ttl == "ignore":
            return None
        return layout.encode_tso(dt.datetime.now(dt.UTC)) if self.ttl == "now" else _find_last_tso("ttl", self.ttl)


def _find_last_tso(name: str, value: int | dt.datetime | str) -> int:
    """Return the last TSO of a moment's millisecond."""
    if isinstance(value, int):
        return value
    moment = parse_time(name, value, "a TSO, or a time like 2024-05-01T12:00:00Z")
    return layout.encode_tso(moment) | ((1 << layout.LOGICAL_BITS) - 1)


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """Options for writing Milvus binlogs.

    Attributes:
        content: What the rows are: `deletes` have the columns `pk` and `timestamp`, `ddl` requests `type`, `timestamp`
            and `request`.
        collection_id: Id of the collection.
        partition_id: Id of the partition, for rows without a column `_partition`.
        first_id: First id of segments and logs, and of rows without a column `RowID`.
        primary_key: Name of the primary key; by default the field marked in its metadata, else the first that can be
            one.
        timestamp: TSO of rows without a column `Timestamp`; by default the start of 2020.
        segment_bytes: Approximate size of a segment; rows with a column `_segment` stay in theirs.
        binlog_bytes: Approximate size of a binlog batch, all of its files together.
        stats: Write stats logs, which a server needs that loads the segments itself.
        tree: `plain` is a server's tree; `backup` that of a milvus-backup, with names and types in
            `meta/full_meta.json`.
        collection_name: Name of the collection in a backup's metadata.
        partition_names: Names of partitions in a backup's metadata, as `id=name`; `_default` for `partition_id`.
    """

    content: Literal["inserts", "deletes", "ddl"] = "inserts"
    collection_id: int = 1
    partition_id: int = 2
    first_id: int = 100
    primary_key: str | None = None
    timestamp: int | None = None
    segment_bytes: int = 512 << 20
    binlog_bytes: int = 64 << 20
    stats: bool = True
    tree: Literal["plain", "backup"] = "plain"
    collection_name: str = "collection"
    partition_names: tuple[str, ...] = ()

    @property
    def partitions(self) -> dict[int, str]:
        """Names of partitions by id.

        Raises:
            OptionError: For a text that is not `id=name`.
        """
        partitions = {self.partition_id: layout.DEFAULT_PARTITION}
        for text in self.partition_names:
            id, equals, name = text.partition("=")
            if not equals or not name or not layout.ID.match(id):
                raise OptionError(f"partition_names: {text!r}: expected id=name")
            partitions[int(id)] = name
        return partitions

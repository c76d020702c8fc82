"""Options for reading and writing Milvus binlogs."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from sawlog.errors import OptionError
from sawlog.format.options import NAMES_TIME, moved, renamed
from sawlog.milvus import layout


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """Options for reading Milvus binlogs.

    Attributes:
        table: Name or id of the collection, where a root holds several.
        partitions: Names or ids of the partitions to read; all by default.
        segments: Ids of the segments that are alive; takes the place of what metadata says about that.
        metadata: Path of an etcd's data directory or database, of a dump of it (JSON), or of a milvus-backup's
            `full_meta.json` or `meta` directory, or of Milvus' `snapshots`: names, types, and which segments are alive;
            or `none`. By default what is next to the logs: a backup's, the data directory of an etcd, or `etcd.json`.
        schema: The collection's schema: what pymilvus' `CollectionSchema.to_dict()` gives, as a dictionary, as JSON or
            as the path of a JSON file. Without it and without metadata, fields are named by their ids.
        as_of: The collection as it was at that time: a TSO, a datetime, or ISO 8601 text; UTC where it says no zone.
        ttl: When rows that have outlived the collection's time to live are left out: at a time (`now`, or as for
            `as_of`), or `ignore` for never. By default at `as_of`, and never where that is not given: a copy outlives
            its server.
        deletes: `apply` leaves out rows that were deleted; `own` only by deletes in the segments' own delta logs, not
            by those of L0 segments; `ignore` by none.
        dynamic_fields: Keys of the dynamic field to deliver as columns: `name`, or `name:type` with one of bool, int64,
            double, string and json (default: json, the value's text); `*` for every key there is, found by reading
            the dynamic field of the whole collection first.
        dedupe: Whether of several live rows with the same primary key only the newest is read.
        use_statistics: Whether a filter on the primary key leaves segments unread whose stats logs say that they do not
            hold it. Nothing proves what a stats log says.
        max_item_bytes: Parquet pages that claim to be larger when decompressed are damage. By default those are that
            are larger than 8 MiB and 64 times the bytes that they take in the file, or than 256 MiB.
        max_delete_bytes: What the keys of a segment's, or of a partition's, delta logs may take in memory, the newest
            delete of each. By default 64 MiB, or 32 times the bytes of the logs.
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

    old: ClassVar = {
        "collection": renamed("table"),
        "deletes": moved({"all": {"deletes": "apply"}}),
        "max_page_bytes": renamed("max_item_bytes"),
    }

    def __post_init__(self) -> None:
        """Refuse what is no time, before anything is read.

        Raises:
            OptionError: For `as_of` and `ttl`.
        """
        _ = self.until, self.expiry

    @property
    def until(self) -> int | None:
        """The last TSO that counts; `None` for all."""
        return None if self.as_of is None else _last_tso("as_of", self.as_of)

    @property
    def expiry(self) -> int | None:
        """The TSO at which rows have to be alive; `None` for any time."""
        if self.ttl is None:
            return self.until
        if self.ttl == "ignore":
            return None
        return layout.tso(dt.datetime.now(dt.UTC)) if self.ttl == "now" else _last_tso("ttl", self.ttl)


def _last_tso(name: str, value: int | dt.datetime | str) -> int:
    """The last TSO of a moment's millisecond."""
    if isinstance(value, int):
        return value
    moment = value
    if isinstance(moment, str):
        try:
            moment = dt.datetime.fromisoformat(moment)
        except ValueError:
            raise OptionError(f"{name}={moment!r}: expected a TSO, or a time like 2024-05-01T12:00:00Z") from None
    return layout.tso(moment) | ((1 << layout.LOGICAL_BITS) - 1)


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """Options for writing Milvus binlogs.

    Attributes:
        content: What the rows are: `inserts`; `deletes` (columns `pk` and `timestamp`); or `ddl` requests (`type`,
            `timestamp` and `request`).
        collection_id: Id of the collection.
        partition_id: Id of the partition, for rows without a column `_partition` that says otherwise.
        first_id: Segments and logs are numbered from here; rows too, unless they have a column `RowID`.
        primary_key: Name of the primary key; by default the field that says so in its metadata, or else the first
            that can be one.
        timestamp: TSO of rows without a column `Timestamp`; the first of 2020 by default.
        segment_bytes: A segment takes about so many bytes of rows; rows with a column `_segment` stay in theirs.
        binlog_bytes: A binlog batch takes about so many bytes of rows, in all of its files together.
        stats: Whether stats logs are written, which a server needs that loads the segments itself.
        tree: `plain` is a server's, its root the path; `backup` that of a milvus-backup, the logs below `binlogs` and
            the metadata in `meta/full_meta.json`, by which names and types survive.
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

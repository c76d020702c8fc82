"""The metadata of a server: the keys of its etcd, with the snapshots that it keeps there of earlier times."""

from __future__ import annotations

import re
import struct
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from functools import cached_property
from typing import Any, TypeAlias

from sawlog.errors import FormatError
from sawlog.milvus import layout, paths
from sawlog.milvus.layout import DEFAULT_DATABASE
from sawlog.milvus.metadata import shape
from sawlog.milvus.metadata.backup import decode_position, parse_seconds
from sawlog.milvus.metadata.manifest import parse_version
from sawlog.milvus.metadata.messages import (
    AliasInfo,
    CollectionInfo,
    DatabaseInfo,
    FieldBinlog,
    FieldSchema,
    PartitionInfo,
    SegmentInfo,
    StructArrayFieldSchema,
)
from sawlog.milvus.metadata.model import CollectionMeta, LogMeta, SegmentMeta, locate_errors
from sawlog.milvus.metadata.schema import convert_messages

Changes: TypeAlias = Sequence[tuple[int, bytes | None]]
"""Revisions of etcd that changed a key, and the values, which are `None` where they end."""
Clock: TypeAlias = Sequence[tuple[int, int]]
"""Revisions of etcd, and the TSOs that they were not later than."""
WATCHED = (b"root-coord/", b"/tso/timestamp", b"/gid/timestamp")
"""Parts of keys: those of collections, and those in which a running server keeps the time, a few seconds ahead."""
_CLOCKS = ("/tso/timestamp", "/gid/timestamp")
_CLOCK = struct.Struct(">Q")
_TOMBSTONE = b"\xe2\x9b\xbc"
"""Value of a key that was deleted and whose history is kept."""
_SNAPSHOT = re.compile(r"_ts(\d{1,20})$")
"""What follows a key in the name of its snapshot: since when it had that value, as a TSO."""
_ALIVE = (0, 1)
"""Created and being created; 2 and 3 are being dropped and dropped."""
_NO_LOG = 0
_NANOSECONDS = 1_000_000
_ROOTS = ("root-coord/", "datacoord-meta/")
_COLLECTIONS = ("root-coord/collection/", "root-coord/database/collection-info/")
_ALIASES = ("root-coord/aliases/", "root-coord/database/aliases/")


class Etcd:
    """The keys of a server, by what follows the root path, now and at the times of their snapshots.

    Args:
        keys: The values by key.
        location: Where they were read from, for messages.
        past: By key, the revisions of etcd that changed it, and the values, which are `None` where they end.

    Raises:
        FormatError: When none of them is that of a collection.
    """

    def __init__(self, keys: Mapping[str, bytes], location: str, past: Mapping[str, Changes] | None = None) -> None:
        self._location = location
        self._now: dict[str, bytes] = {}
        self._history: dict[str, list[tuple[int, bytes]]] = {}
        for key, value in keys.items():
            index = min((key.find(part) for part in _ROOTS if part in key), default=-1)
            stamp = _SNAPSHOT.search(key) if "snapshots/" in key[: max(0, index)] else None
            if stamp is not None:
                self._history.setdefault(key[index : stamp.start()], []).append((int(stamp[1]), value))
            elif index >= 0 and "snapshots/" not in key[:index] and value != _TOMBSTONE:
                self._now[key[index:]] = value
        if past and (clock := _make_clock(past)):
            self._add_past(keys, past, clock)
        for history in self._history.values():
            history.sort()
        if not any(True for _ in self._iterate_collections(None)) and not self._history:
            raise FormatError(f"{location}: no collection in these {len(keys)} keys; expected those below <root>/meta")

    def _add_past(self, keys: Mapping[str, bytes], past: Mapping[str, Changes], clock: Clock) -> None:
        """Add what etcd itself still knows of earlier times: snapshots that are gone, and values without snapshots."""
        events: dict[str, list[tuple[int, bytes]]] = {}
        for key, changes in past.items():
            index = key.find(_ROOTS[0])
            stamp = _SNAPSHOT.search(key) if "snapshots/" in key[: max(0, index)] else None
            if stamp is not None:
                values = [value for _, value in changes if value is not None]
                if values and key not in keys:
                    self._history.setdefault(key[index : stamp.start()], []).append((int(stamp[1]), values[-1]))
            elif index >= 0 and "snapshots/" not in key[:index]:
                times = [_find_time(clock, revision) for revision, _ in changes]
                # The first is the oldest that is known: it may have been so for longer.
                events[key[index:]] = [
                    (time if place else 0, _TOMBSTONE if value is None else value)
                    for place, (time, (_, value)) in enumerate(zip(times, changes, strict=True))
                ]
        for name, changed in events.items():
            history = self._history.get(name)
            if history is None and len(changed) > 1:
                self._history[name] = changed
            elif history is not None and name not in self._now and max(history)[1] != _TOMBSTONE:
                history.append((max(changed[-1][0], max(history)[0]), _TOMBSTONE))

    def find_collections(self, time: int | None) -> dict[int, CollectionMeta]:
        """Return the collections at a time. Keys without snapshots are taken to have always been as they are now.

        Raises:
            FormatError: When a value is not what its key says.
        """
        with locate_errors(self._location):
            aliases = self._find_aliases(time)
            infos = self._iterate_below("root-coord/database/db-info/", time)
            databases = {_parse_id(name): DatabaseInfo(value, f"database {name}").name for name, value in infos}
            collections = {}
            for name, value in self._iterate_collections(time):
                with locate_errors(f"collection {_parse_id(name)}"):
                    meta = self._parse_collection(value, time, databases, aliases)
                    if meta is not None:
                        collections[meta.id] = meta
            return collections

    def list_collection_ids(self) -> AbstractSet[int]:
        """Return the ids of all collections that there ever were, as `Timeline.list_collection_ids` says."""
        names = {key for key in self._now.keys() | self._history.keys() if key.startswith(_COLLECTIONS)}
        return {int(id) for name in names if layout.ID.match(id := name.rsplit("/", 1)[-1])}

    def _find_value(self, key: str, time: int | None) -> bytes | None:
        history = self._history.get(key)
        if time is None or not history:
            return self._now.get(key)
        place = bisect_right(history, time, key=lambda revision: revision[0])
        value = history[place - 1][1] if place else None
        return None if value == _TOMBSTONE else value

    def _iterate_below(self, prefix: str, time: int | None) -> Iterator[tuple[str, bytes]]:
        """Yield keys below a prefix, in order, by what follows it."""
        for key in sorted(self._now.keys() | self._history.keys()):
            if key.startswith(prefix) and (value := self._find_value(key, time)) is not None:
                yield key[len(prefix) :], value

    def _iterate_collections(self, time: int | None) -> Iterator[tuple[str, bytes]]:
        for prefix in _COLLECTIONS:
            yield from self._iterate_below(prefix, time)

    def _find_aliases(self, time: int | None) -> dict[int, tuple[str, ...]]:
        """Return aliases by collection id."""
        aliases: dict[int, tuple[str, ...]] = {}
        for prefix in _ALIASES:
            for name, value in self._iterate_below(prefix, time):
                alias = AliasInfo(value, f"alias {name}")
                if alias.state in _ALIVE:
                    other_aliases = aliases.get(alias.collection, ())
                    aliases[alias.collection] = (*other_aliases, alias.name or name.rsplit("/", 1)[-1])
        for name, value in self._iterate_below("root-coord/collection-alias/", time):
            id = CollectionInfo(value, f"alias {name}").id
            aliases[id] = (*aliases.get(id, ()), name.rsplit("/", 1)[-1])
        return aliases

    def _parse_collection(
        self, value: bytes, time: int | None, databases: Mapping[int, str], aliases: Mapping[int, tuple[str, ...]]
    ) -> CollectionMeta | None:
        """Return a collection; `None` for one that is dropped, or not made yet."""
        info = CollectionInfo(value)
        id = info.id
        if info.state not in _ALIVE or (time is not None and info.create_time > time):
            return None
        schema = info.schema
        fields = [FieldSchema(field) for _, field in self._iterate_below(f"root-coord/fields/{id}/", time)]
        structs = [
            StructArrayFieldSchema(struct)
            for _, struct in self._iterate_below(f"root-coord/struct-array-fields/{id}/", time)
        ]
        ttl = next(
            (table_property.value for table_property in info.properties if table_property.key == layout.TTL_PROPERTY),
            None,
        )
        partitions = self._find_partitions(id, info, time)
        dropped = {p: name for p, name in self._find_all_partitions(id).items() if p not in partitions}
        return CollectionMeta(
            id=id,
            name=schema.name,
            fields=convert_messages((*schema.fields, *fields), (*schema.struct_array_fields, *structs)),
            partitions=partitions,
            segments=self._segments.get(id, {}),
            ttl=parse_seconds(ttl),
            database=databases.get(info.db_id, DEFAULT_DATABASE),
            aliases=aliases.get(id, ()),
            dropped_partitions=dropped,
            partition_ends={partition: self._find_drop_time(id, partition) for partition in dropped},
            created=info.create_time,
            checkpoints={  # those of other times are unknown
                channel: decode_position(position)
                for channel in info.virtual_channel_names
                if (position := self._now.get(f"datacoord-meta/channel-cp/{channel}")) is not None
            },
        )

    def _find_partitions(self, collection: int, info: CollectionInfo, time: int | None) -> dict[int, str]:
        """Return partitions that are not dropped: up to 2.1 within the collection, then under keys of their own."""
        partitions = _list_inner_partitions(info)
        prefix = f"root-coord/partitions/{collection}/"
        for name, value in self._iterate_below(prefix, time):
            partition = PartitionInfo(value, f"partition {name}")
            alive = partition.state in _ALIVE
            if not alive and time is not None and f"{prefix}{name}" not in self._history:
                alive = time < self._guess_drop_time(collection, partition.id)
            if alive and (time is None or partition.created <= time):
                partitions[partition.id] = partition.name
        return partitions

    def _find_drop_time(self, collection: int, partition: int) -> int:
        """Return when a partition was dropped, as far as the keys show; 0 where they do not."""
        for since, value in self._history.get(f"root-coord/partitions/{collection}/{partition}", ()):
            if value == _TOMBSTONE or PartitionInfo(value, f"partition {partition}").state not in _ALIVE:
                return since
        return self._guess_drop_time(collection, partition)

    def _guess_drop_time(self, collection: int, partition: int) -> int:
        """Return when a dropped partition's first segment was dropped: the best guess at when the partition was."""
        segments = self._segments.get(collection, {}).values()
        return min(
            (segment.dropped_at for segment in segments if segment.partition == partition and segment.dropped_at),
            default=0,
        )

    def _find_all_partitions(self, collection: int) -> dict[int, str]:
        """Return all partitions that there ever were, as far as the keys show."""
        names: dict[int, str] = {}
        for key in self._now.keys() | self._history.keys():
            values = [value for _, value in self._history.get(key, ())] + [self._now.get(key, _TOMBSTONE)]
            for value in values:
                if value == _TOMBSTONE:
                    continue
                if key.startswith(f"root-coord/partitions/{collection}/"):
                    partition = PartitionInfo(value, f"partition {key}")
                    names[partition.id] = partition.name
                elif key.startswith("root-coord/collection/") and key.endswith(f"/{collection}"):
                    names |= _list_inner_partitions(CollectionInfo(value))
        return names

    @cached_property
    def _segments(self) -> dict[int, dict[int, SegmentMeta]]:
        """Segments by collection; they say themselves when they were dropped."""
        inserts: dict[int, dict[int, tuple[LogMeta, ...]]] = {}
        for name, value in self._iterate_below("datacoord-meta/binlog/", None):
            inserts.setdefault(_parse_segment_id(name), {}).update(_list_field_logs(FieldBinlog(value)))
        deltas: dict[int, tuple[LogMeta, ...]] = {}
        for name, value in self._iterate_below("datacoord-meta/deltalog/", None):
            logs = tuple(log for field_logs in _list_field_logs(FieldBinlog(value)).values() for log in field_logs)
            deltas[_parse_segment_id(name)] = deltas.get(_parse_segment_id(name), ()) + logs
        segments: dict[int, dict[int, SegmentMeta]] = {}
        for name, value in self._iterate_below("datacoord-meta/s/", None):
            with locate_errors(f"segment {name}"):
                collection, meta = _parse_segment(value)
                if not (meta.inserts or meta.deltas):
                    meta = replace(meta, inserts=inserts.get(meta.id, {}), deltas=deltas.get(meta.id, ()))
                segments.setdefault(collection, {})[meta.id] = meta
        return segments


def decode_dump(data: Any, location: str) -> dict[str, bytes]:
    """Return keys and decoded values of a dump: base64 values by key, or what etcdctl and etcd's gateway answer.

    Raises:
        FormatError: When it is none.
    """
    with locate_errors(location):
        document = shape.require_mapping(data, "an etcd dump or a milvus-backup")
        if not isinstance(document.get("kvs"), list):
            return {key: shape.from_base64(value, f"the value of {key!r}") for key, value in document.items()}
        decoded = {}
        for pair in shape.require_mappings(document.get("kvs"), "'kvs'"):
            key = shape.from_base64(shape.require(pair, "key"), "a key").decode("utf-8", "replace")
            decoded[key] = shape.from_base64(pair.get("value", ""), f"the value of {key!r}")
        return decoded


def _make_clock(past: Mapping[str, Changes]) -> Clock:
    """Return the times of revisions, as a server has written them; none where it did so less than twice."""
    clocks: list[Clock] = [[]]
    for key, changes in past.items():
        if key.endswith(_CLOCKS):
            values = [(revision, value) for revision, value in changes if value is not None]
            saved = [(revision, *_CLOCK.unpack(value)) for revision, value in values if len(value) == _CLOCK.size]
            clocks.append([(revision, time // _NANOSECONDS << layout.LOGICAL_BITS) for revision, time in saved])
    return max((clock for clock in clocks if len({time for _, time in clock}) != 1), key=len)


def _find_time(clock: Clock, revision: int) -> int:
    """Return the TSO that a revision was not later than; 0 where it was before all that are known."""
    place = bisect_right(clock, revision, key=lambda saved: saved[0])
    return clock[place - 1][1] if place else 0


def _list_inner_partitions(info: CollectionInfo) -> dict[int, str]:
    return dict(zip(info.partition_ids, info.partition_names, strict=False))


def _parse_id(name: str) -> int:
    """Return the id at the end of a key."""
    last = name.rsplit("/", 1)[-1]
    if not layout.ID.match(last):
        raise FormatError(f"expected a decimal id at the end of the key {name!r}")
    return int(last)


def _parse_segment_id(name: str) -> int:
    """Return the segment in a key that ends with it and a field."""
    parts = name.split("/")
    if len(parts) < 3 or not all(layout.ID.match(part) for part in parts):
        raise FormatError(f"expected decimal ids in the key {name!r}")
    return int(parts[-2])


def _list_field_logs(field: FieldBinlog) -> dict[int, tuple[LogMeta, ...]]:
    logs = []
    for log in field.binlogs:
        path, id = log.log_path, log.log_id
        if path and not id:
            id = paths.parse_trailing_id(path)
        if id != _NO_LOG:
            # Before Milvus 2.4, which gives both, `log_size` was the size in memory.
            size = log.log_size if log.memory_size else 0
            logs.append(LogMeta(id, log.timestamp_from, log.timestamp_to, log.entries_num, size))
    return {field.field_id: tuple(logs)}


def _parse_segment(value: bytes) -> tuple[int, SegmentMeta]:
    """Return the collection of a segment, and the segment."""
    info = SegmentInfo(value)
    inserts: dict[int, tuple[LogMeta, ...]] = {}
    for field in info.binlogs:
        inserts.update(_list_field_logs(field))
    return info.collection, SegmentMeta(
        id=info.id,
        partition=info.partition,
        state=info.state,
        level=info.level,
        channel=info.insert_channel,
        rows=info.num_of_rows,
        is_hidden=info.is_importing or info.is_invisible,
        dropped_at=info.dropped_at // _NANOSECONDS << layout.LOGICAL_BITS,
        sources=tuple(info.compaction_from),
        storage_version=info.storage_version,
        manifest=parse_version(info.manifest_path),
        commit_timestamp=info.commit_timestamp,
        inserts=inserts,
        deltas=tuple(
            log for field in info.deltalogs for field_logs in _list_field_logs(field).values() for log in field_logs
        ),
    )

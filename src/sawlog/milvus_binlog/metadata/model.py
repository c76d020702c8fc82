"""Collections as metadata describes them: an etcd dump, a milvus-backup's files, or a schema given by the user.

Section 5.1 of the format. Integers are never taken through floats: ids and timestamps need all of their 64 bits.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from sawlog.errors import FormatError, OptionError, SchemaError
from sawlog.milvus_binlog import layout, paths
from sawlog.milvus_binlog.layout import DataType, SegmentLevel, SegmentState
from sawlog.milvus_binlog.metadata import wire
from sawlog.milvus_binlog.types import Field, data_type
from sawlog.storage import Storage

_TOMBSTONE = b"\xe2\x9b\xbc"
"""Value of a key that was deleted and whose history is kept."""
_TTL = "collection.ttl.seconds"
_PARTITION_ALIVE = (0, 1)
"""Created and being created; 2 and 3 are being dropped and dropped."""
_LIVE_STATES = (SegmentState.GROWING, SegmentState.SEALED, SegmentState.FLUSHED, SegmentState.FLUSHING)
_NO_LOG = 0
_NANOSECONDS = 1_000_000


@dataclass(frozen=True, slots=True)
class Log:
    """One binlog in the metadata: its id, and the range of timestamps of its rows (0 and 0 where not told)."""

    id: int
    first: int = 0
    last: int = 0


@dataclass(frozen=True, slots=True)
class SegmentMeta:
    """One segment in the metadata.

    Attributes:
        id: Segment id.
        partition: Partition id; -1 for deletes that concern all of them.
        state: State; flushed in backups, which hold no others.
        level: `L0` segments hold deletes only.
        channel: The shard that it belongs to.
        rows: Rows before deletes.
        hidden: Whether it is being imported, or not visible yet.
        dropped_at: When it was dropped, as a TSO; 0 when it was not.
        sources: The segments that compaction made it of.
        storage_version: 0 for V1, 2 and 3 for the later ones.
        commit_timestamp: Takes the place of its rows' timestamps, unless 0.
        inserts: Per field, or column group, the ids of its logs; empty when the metadata does not list them.
        deltas: The ids of its delta logs; `None` when the metadata does not list any logs.
    """

    id: int
    partition: int
    state: int = SegmentState.FLUSHED
    level: int = SegmentLevel.L1
    channel: str = ""
    rows: int = 0
    hidden: bool = False
    dropped_at: int = 0
    sources: tuple[int, ...] = ()
    storage_version: int = 0
    commit_timestamp: int = 0
    inserts: Mapping[int, tuple[Log, ...]] = field(default_factory=dict)
    deltas: tuple[Log, ...] | None = None

    @property
    def live(self) -> bool:
        """Whether its rows are in the collection now."""
        return self.state in _LIVE_STATES and not self.hidden

    @property
    def state_name(self) -> str:
        """Name of the state, in lower case."""
        known = self.state in SegmentState.__members__.values()
        return SegmentState(self.state).name.lower() if known else str(self.state)


@dataclass(frozen=True, slots=True)
class CollectionMeta:
    """One collection in the metadata.

    Attributes:
        id: Collection id; 0 in schemas given by the user.
        name: Its name.
        fields: Its fields, those of the system left out.
        partitions: Names by id, of those that are not dropped.
        segments: By id; `None` when the metadata does not know them (a schema alone).
        ttl: Seconds after which rows are no longer seen; 0 for never.
    """

    id: int
    name: str
    fields: tuple[Field, ...]
    partitions: Mapping[int, str] = field(default_factory=dict)
    segments: Mapping[int, SegmentMeta] | None = None
    ttl: int = 0


def load(path: str, storage: Storage) -> dict[int, CollectionMeta]:
    """Collections by id, from the file of an etcd dump or of a backup, or from a backup's `meta` directory.

    Raises:
        FormatError: When it is none of these.
    """
    if storage.is_directory(path):
        path = f"{path.rstrip('/')}/{layout.BACKUP_META}"
    return parse(storage.read(path), path)


def parse(text: bytes, where: str) -> dict[int, CollectionMeta]:
    """Collections by id, from the bytes of an etcd dump or of a backup's `full_meta.json`.

    An etcd dump is a JSON object of base64 values by key, or what `etcdctl get --prefix -w json` and etcd's gateway
    answer, with keys and values in base64.

    Raises:
        FormatError: When it is none of these.
    """
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise FormatError(f"{where}: expected the JSON of an etcd dump or of a milvus-backup: {error}") from None
    if isinstance(data, dict) and "collection_backups" in data:
        return {meta.id: meta for meta in map(_backup, data["collection_backups"])}
    keys = _etcd_keys(data, where)
    found = _etcd(keys, where)
    if not found:
        raise FormatError(f"{where}: no collection in these {len(keys)} keys; expected those below <root>/meta")
    return found


def user_schema(given: Mapping[str, Any] | str, storage: Storage) -> tuple[str, tuple[Field, ...]]:
    """Name and fields of a schema given by the user: what pymilvus' `CollectionSchema.to_dict` gives, or its JSON.

    Args:
        given: The schema, its JSON, or the path of a file of it.
        storage: Where such a file is.

    Raises:
        OptionError: When it is none of these.
    """
    if isinstance(given, str):
        try:
            text = given if given.lstrip().startswith("{") else storage.read(given).decode()
            given = json.loads(text)
        except (ValueError, OSError) as error:
            raise OptionError(f"schema={given!r}: expected JSON, or the path of a JSON file: {error}") from None
    if not isinstance(given, Mapping) or not isinstance(given.get("fields"), list):
        raise OptionError("schema: expected an object with a list `fields`, as of pymilvus' CollectionSchema.to_dict()")
    try:
        return str(given.get("name", "")), _json_fields(given)
    except (KeyError, TypeError, ValueError, AttributeError, SchemaError) as error:
        raise OptionError(f"schema: {error}") from None


def _json_fields(schema: Mapping[str, Any]) -> tuple[Field, ...]:
    """Fields of a schema in JSON, in whichever spelling; ids are counted from 100 where they are left out."""
    fields: list[Field] = []
    for given in schema["fields"]:
        following = max([layout.FIRST_USER_FIELD - 1, *(one.id for one in fields)]) + 1
        fields.append(_json_field(given, following, auto=bool(schema.get("auto_id") or schema.get("autoID"))))
    dynamic = schema.get("enable_dynamic_field") and not any(one.dynamic for one in fields)
    if dynamic:
        id = max([layout.FIRST_USER_FIELD - 1, *(one.id for one in fields)]) + 1
        fields.append(Field(id, layout.DYNAMIC_NAME, DataType.JSON, dynamic=True))
    return tuple(one for one in fields if one.id not in layout.SYSTEM_FIELDS)


def _json_field(given: Mapping[str, Any], following: int, *, auto: bool) -> Field:
    params = given.get("params") or given.get("type_params") or {}
    if isinstance(params, list):
        params = {pair["key"]: pair["value"] for pair in params}
    kind = next(given[key] for key in ("data_type", "dtype", "type") if key in given)
    element = given.get("element_type") or DataType.None_
    id = next((int(given[key]) for key in ("fieldID", "field_id", "id") if given.get(key) is not None), following)
    primary = bool(given.get("is_primary_key") or given.get("is_primary"))
    default = given.get("default_value")
    if isinstance(default, Mapping):
        default = next((value for key, value in default.items() if key.endswith("_data")), None)
    return Field(
        id=id,
        name=str(given["name"]),
        type=data_type(kind),
        element=data_type(element),
        dim=int(params.get("dim", 0)),
        nullable=bool(given.get("nullable")),
        primary=primary,
        auto_id=primary and (auto or bool(given.get("auto_id") or given.get("autoID"))),
        dynamic=bool(given.get("is_dynamic")),
        default=default,
        max_length=int(params.get("max_length", 0)),
        computed=bool(given.get("is_function_output")),
    )


def _backup(given: Mapping[str, Any]) -> CollectionMeta:
    """One collection of a backup. Zero values are left out there."""
    partitions = {}
    segments: dict[int, SegmentMeta] = {}
    for partition in given.get("partition_backups", ()):
        id = int(partition.get("partition_id", 0))
        partitions[id] = str(partition.get("partition_name", ""))
        for segment in partition.get("segment_backups", ()):
            made = _backup_segment(segment, id)
            segments[made.id] = made
    for segment in given.get("l0_segments", ()):
        made = _backup_segment({"is_l0": True, **segment}, layout.ALL_PARTITIONS)
        segments[made.id] = made
    schema = given.get("schema", {})
    properties = {pair.get("key"): pair.get("value") for pair in given.get("properties", ()) if isinstance(pair, dict)}
    return CollectionMeta(
        id=int(given.get("collection_id", 0)),
        name=str(given.get("collection_name", "")),
        fields=_json_fields({"fields": [], **schema}),
        partitions=partitions,
        segments=segments,
        ttl=_seconds(properties.get(_TTL)),
    )


def _backup_segment(given: Mapping[str, Any], partition: int) -> SegmentMeta:
    def logs(entry: Mapping[str, Any]) -> tuple[Log, ...]:
        found = (one for one in entry.get("binlogs", ()) if one)
        return tuple(
            Log(
                int(one["log_id"]) if one.get("log_id") else paths.trailing_id(str(one["log_path"])),
                int(one.get("timestamp_from", 0)),
                int(one.get("timestamp_to", 0)),
            )
            for one in found
        )

    return SegmentMeta(
        id=int(given.get("segment_id", 0)),
        partition=int(given.get("partition_id", partition)),
        level=SegmentLevel.L0 if given.get("is_l0") else SegmentLevel.L1,
        channel=str(given.get("v_channel", "")),
        rows=int(given.get("num_of_rows", 0)),
        storage_version=int(given.get("storage_version", 0)),
        inserts={int(entry.get("fieldID", 0)): logs(entry) for entry in given.get("binlogs", ()) if entry},
        deltas=tuple(log for entry in given.get("deltalogs", ()) for log in logs(entry)),
    )


def _etcd_keys(data: Any, where: str) -> dict[str, bytes]:
    """Keys and decoded values of a dump."""
    try:
        if isinstance(data, dict) and isinstance(data.get("kvs"), list):
            pairs: Iterable[tuple[str, str]] = (
                (base64.b64decode(one["key"]).decode(), one.get("value", "")) for one in data["kvs"]
            )
        elif isinstance(data, dict):
            pairs = data.items()
        else:
            raise FormatError(f"{where}: expected a JSON object of an etcd dump or of a milvus-backup")
        return {key: base64.b64decode(value, validate=True) for key, value in pairs}
    except (KeyError, TypeError, binascii.Error, UnicodeDecodeError) as error:
        raise FormatError(f"{where}: expected base64 values by key, as of etcd: {error!r}") from None


def _etcd(keys: Mapping[str, bytes], where: str) -> dict[int, CollectionMeta]:
    tree = _Tree(keys, where)
    found: dict[int, CollectionMeta] = {}
    for name, value in tree.below("root-coord/collection/"):
        found[tree.id(name)] = _collection(tree, value)
    for name, value in tree.below("root-coord/database/collection-info/"):
        found[tree.id(name)] = _collection(tree, value)
    return found


class _Tree:
    """The keys of a dump, by what stands behind the root path."""

    def __init__(self, keys: Mapping[str, bytes], where: str) -> None:
        self.where = where
        self._keys: dict[str, bytes] = {}
        for key, value in keys.items():
            at = min((key.find(part) for part in ("root-coord/", "datacoord-meta/") if part in key), default=-1)
            if at >= 0 and "snapshots/" not in key[:at] and value != _TOMBSTONE:
                self._keys[key[at:]] = value

    def below(self, prefix: str) -> list[tuple[str, bytes]]:
        """Keys below a prefix, in order, by what follows it."""
        return [(key[len(prefix) :], value) for key, value in sorted(self._keys.items()) if key.startswith(prefix)]

    def message(self, value: bytes, what: str) -> wire.Message:
        return wire.decode(value, f"{self.where}: {what}")

    def id(self, name: str) -> int:
        """The id at the end of a key."""
        last = name.rsplit("/", 1)[-1]
        if not layout.ID.match(last):
            raise FormatError(f"{self.where}: expected a decimal id at the end of the key {name!r}")
        return int(last)


def _collection(tree: _Tree, value: bytes) -> CollectionMeta:
    info = tree.message(value, "a collection")
    id = wire.integer(info, 1)
    schema = tree.message(wire.raw(info, 2), f"the schema of collection {id}")
    stored = wire.messages(schema, 4) + [value for _, value in tree.below(f"root-coord/fields/{id}/")]
    fields = [_field(tree.message(one, f"a field of collection {id}")) for one in stored]
    properties = [tree.message(one, f"a property of collection {id}") for one in wire.messages(info, 14)]
    ttl = next((wire.text(one, 2) for one in properties if wire.text(one, 1) == _TTL), None)
    return CollectionMeta(
        id=id,
        name=wire.text(schema, 1),
        fields=tuple(sorted((one for one in fields if one.id not in layout.SYSTEM_FIELDS), key=lambda one: one.id)),
        partitions=_partitions(tree, id, info),
        segments=_segments(tree, id),
        ttl=_seconds(ttl),
    )


def _seconds(value: Any) -> int:
    return int(value) if value is not None and str(value).isdigit() else 0


def _partitions(tree: _Tree, collection: int, info: wire.Message) -> dict[int, str]:
    """Partitions that are not dropped: up to 2.1 within the collection, then under keys of their own."""
    what = f"the partitions of collection {collection}"
    named = [name.decode("utf-8", "replace") for name in wire.messages(info, 5)]
    found = dict(zip(wire.integers(info, 4, what), named, strict=False))
    for _, value in tree.below(f"root-coord/partitions/{collection}/"):
        partition = tree.message(value, what)
        if wire.integer(partition, 5) in _PARTITION_ALIVE:
            found[wire.integer(partition, 1)] = wire.text(partition, 2)
    return found


def _field(message: wire.Message) -> Field:
    params = {}
    for raw in wire.messages(message, 6):
        pair = wire.decode(raw, "type_params")
        params[wire.text(pair, 1)] = wire.text(pair, 2)
    kind = wire.integer(message, 5)
    return Field(
        id=wire.integer(message, 1),
        name=wire.text(message, 2),
        type=DataType(kind) if kind in DataType.__members__.values() else DataType.None_,
        element=data_type(wire.integer(message, 10)),
        dim=int(params.get("dim", 0)),
        nullable=bool(wire.integer(message, 15)),
        primary=bool(wire.integer(message, 3)),
        auto_id=bool(wire.integer(message, 8)),
        dynamic=bool(wire.integer(message, 12)),
        default=_default(wire.raw(message, 11)) if 11 in message else None,
        max_length=int(params.get("max_length", 0)),
        computed=bool(wire.integer(message, 16)),
    )


def _default(raw: bytes) -> Any:
    """A protobuf `ValueField`; numbers that are 0 are not written, but their field is."""
    value = wire.decode(raw, "default_value")
    if 1 in value:
        return bool(wire.integer(value, 1))
    for number in (2, 3):
        if number in value:
            return wire.integer(value, number)
    for number in (4, 5):
        if number in value:
            return wire.floating(value, number)
    if 6 in value:
        return wire.text(value, 6)
    return wire.raw(value, 7) if 7 in value else None


def _segments(tree: _Tree, collection: int) -> dict[int, SegmentMeta]:
    inserts: dict[int, dict[int, tuple[Log, ...]]] = {}
    for name, value in tree.below(f"datacoord-meta/binlog/{collection}/"):
        segment, _ = _segment_and_field(tree, name)
        inserts.setdefault(segment, {}).update(_field_logs(tree, value))
    deltas: dict[int, tuple[Log, ...]] = {}
    for name, value in tree.below(f"datacoord-meta/deltalog/{collection}/"):
        segment, _ = _segment_and_field(tree, name)
        logs = tuple(log for found in _field_logs(tree, value).values() for log in found)
        deltas[segment] = deltas.get(segment, ()) + logs
    found = {}
    for _, value in tree.below(f"datacoord-meta/s/{collection}/"):
        made = _segment(tree, value)
        inside = made.inserts or made.deltas
        if not inside:
            made = replace(made, inserts=inserts.get(made.id, {}), deltas=deltas.get(made.id, ()))
        found[made.id] = made
    return found


def _segment_and_field(tree: _Tree, name: str) -> tuple[int, int]:
    parts = name.split("/")
    if len(parts) < 3 or not all(layout.ID.match(part) for part in parts):
        raise FormatError(f"{tree.where}: expected decimal ids in the key {name!r}")
    return int(parts[-2]), int(parts[-1])


def _field_logs(tree: _Tree, value: bytes) -> dict[int, tuple[Log, ...]]:
    message = tree.message(value, "a list of binlogs")
    logs = []
    for raw in wire.messages(message, 2):
        log = tree.message(raw, "a binlog")
        path, id = wire.text(log, 4), wire.integer(log, 6)
        if path and not id:
            id = paths.trailing_id(path)
        if id != _NO_LOG:
            logs.append(Log(id, wire.integer(log, 2), wire.integer(log, 3)))
    return {wire.integer(message, 1): tuple(logs)}


def _segment(tree: _Tree, value: bytes) -> SegmentMeta:
    info = tree.message(value, "a segment")
    inserts: dict[int, tuple[Log, ...]] = {}
    for raw in wire.messages(info, 11):
        inserts.update(_field_logs(tree, raw))
    deltas = tuple(log for raw in wire.messages(info, 13) for found in _field_logs(tree, raw).values() for log in found)
    id = wire.integer(info, 1)
    return SegmentMeta(
        id=id,
        partition=wire.integer(info, 3),
        state=wire.integer(info, 6),
        level=wire.integer(info, 20),
        channel=wire.text(info, 4),
        rows=wire.integer(info, 5),
        hidden=bool(wire.integer(info, 17) or wire.integer(info, 28)),
        dropped_at=wire.integer(info, 16) // _NANOSECONDS << layout.LOGICAL_BITS,
        sources=tuple(wire.integers(info, 15, f"segment {id}")),
        storage_version=wire.integer(info, 21),
        commit_timestamp=wire.integer(info, 36),
        inserts=inserts,
        deltas=deltas,
    )

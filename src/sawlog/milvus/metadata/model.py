"""Model of the metadata of collections and segments, and the timeline that it is read from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Protocol

from sawlog.errors import FormatError, InternalError, OptionError, SawlogError, StorageError
from sawlog.milvus.layout import DEFAULT_DATABASE, SegmentLevel, SegmentState
from sawlog.milvus.types import Field

_LIVE_STATES = (SegmentState.GROWING, SegmentState.SEALED, SegmentState.FLUSHED, SegmentState.FLUSHING)


@dataclass(frozen=True, slots=True)
class LogMeta:
    """Binlog as the metadata has it.

    Attributes:
        id: Its id.
        first: The earliest timestamp of its rows; 0 where unknown.
        last: The latest; 0 where unknown.
        rows: How many rows or deletes it has; 0 where unknown.
        size: Bytes of the file; 0 where unknown.
    """

    id: int
    first: int = 0
    last: int = 0
    rows: int = 0
    size: int = 0


@dataclass(frozen=True, slots=True)
class SegmentMeta:
    """Segment as the metadata has it.

    Attributes:
        id: Segment id.
        partition: Partition id; -1 for deletes that concern all of them.
        state: State; flushed in backups, which hold no others.
        level: `L0` segments hold deletes only.
        channel: The shard that it belongs to.
        rows: Rows before deletes.
        is_hidden: Whether it is being imported, or not visible yet.
        dropped_at: When it was dropped, as a TSO; 0 when it was not.
        sources: The segments that compaction made it of.
        storage_version: 0 for V1, 2 and 3 for the later ones.
        manifest: Version of its manifest, in Storage V3; 0 where unknown.
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
    is_hidden: bool = False
    dropped_at: int = 0
    sources: tuple[int, ...] = ()
    storage_version: int = 0
    manifest: int = 0
    commit_timestamp: int = 0
    inserts: Mapping[int, tuple[LogMeta, ...]] = field(default_factory=dict)
    deltas: tuple[LogMeta, ...] | None = None

    @property
    def is_live(self) -> bool:
        """Whether its rows are in the collection now."""
        return self.state in _LIVE_STATES and not self.is_hidden

    @property
    def state_name(self) -> str:
        """Name of the state, in lower case."""
        is_known = self.state in SegmentState.__members__.values()
        return SegmentState(self.state).name.lower() if is_known else str(self.state)


@dataclass(frozen=True, slots=True)
class CollectionMeta:
    """Collection as the metadata has it, at some time.

    Attributes:
        id: Collection id; 0 in schemas given by the user.
        name: Its name.
        fields: Its fields, those of the system left out.
        partitions: Names by id, of those that are not dropped.
        segments: By id, dropped ones included; `None` when the metadata does not know them (only a schema).
        ttl: Seconds after which rows are no longer seen; 0 for never.
        database: Name of its database.
        aliases: Other names of it.
        dropped_partitions: Names by id, of those that are dropped.
        partition_ends: When these were dropped, as TSOs by id; 0 where unknown.
        created: When it was made, as a TSO; 0 where unknown.
        checkpoints: By channel, the TSO up to which everything that was written is in logs, where known.
    """

    id: int
    name: str
    fields: tuple[Field, ...]
    partitions: Mapping[int, str] = field(default_factory=dict)
    segments: Mapping[int, SegmentMeta] | None = None
    ttl: int = 0
    database: str = DEFAULT_DATABASE
    aliases: tuple[str, ...] = ()
    dropped_partitions: Mapping[int, str] = field(default_factory=dict)
    partition_ends: Mapping[int, int] = field(default_factory=dict)
    created: int = 0
    checkpoints: Mapping[str, int] = field(default_factory=dict)

    def has_name(self, name: str) -> bool:
        """Return whether a text names it: its id, its name, an alias, or one of these after its database."""
        names = (self.name, *self.aliases)
        return name in (str(self.id), *names, *(f"{self.database}.{name}" for name in names))


class Timeline(Protocol):
    """Metadata of collections at any time."""

    def find_collections(self, time: int | None) -> Mapping[int, CollectionMeta]:
        """Return the collections that there were at a TSO, by id; `None` for now."""
        ...

    def list_collection_ids(self) -> AbstractSet[int]:
        """Return ids of all collections that there ever were, as far as it says."""
        ...


@dataclass(frozen=True, slots=True)
class MetadataSnapshot:
    """Collections at one time; nothing is known of other times."""

    metas: Mapping[int, CollectionMeta]

    def find_collections(self, time: int | None) -> Mapping[int, CollectionMeta]:
        """Return the collections, which are the same at any time."""
        del time
        return self.metas

    def list_collection_ids(self) -> AbstractSet[int]:
        """Return the ids of the collections, as `Timeline.list_collection_ids` says."""
        return self.metas.keys()


@contextmanager
def locate_errors(description: str) -> Iterator[None]:
    """Have errors of metadata that is not what it should be, in the block, say where it is.

    Raises:
        FormatError: For each of them.
    """
    try:
        yield
    except (StorageError, InternalError, OptionError):
        raise
    except SawlogError as error:
        raise FormatError(f"{description}: {error}") from None

"""Collections below a root: their segments, binlog batches, and which of them are alive. Section 5."""

from __future__ import annotations

from collections.abc import Collection as Collection_
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from sawlog.errors import OptionError
from sawlog.format.damage import Damage
from sawlog.milvus import layout
from sawlog.milvus.deletes.log import describe_other_count
from sawlog.milvus.layout import BinlogDamageKind, SegmentLevel, SegmentState
from sawlog.milvus.metadata.model import CollectionMeta, LogMeta, SegmentMeta
from sawlog.milvus.paths import LogFile
from sawlog.milvus.types import Field
from sawlog.storage import File


@dataclass(frozen=True, slots=True)
class Missing:
    """Why rows of a segment cannot be delivered: a file that ought to be there, or a storage that is not read."""

    directory: str
    detail: str
    kind: str = BinlogDamageKind.MISSING_FILE.label
    length: int = 0
    offset: int = 0

    @property
    def damage(self) -> Damage:
        """Damage that it is to a reader of the rows."""
        return Damage(self.directory, self.offset, self.length, self.kind, self.detail)


class RowSlice(NamedTuple):
    """Rows of a file: the first, the end of the range, and how many the file has."""

    first: int
    last: int
    of: int


@dataclass(frozen=True, slots=True)
class Batch:
    """Binlog batch: the files, one per field or column group, that hold the same rows.

    Attributes:
        index: Its number within the segment.
        files: By field id, or, in Storage V2, by column group.
        first: The earliest timestamp of its rows by the metadata; 0 where unknown.
        last: The latest; 0 where unknown.
        slices: In Storage V3, and where a large batch is cut, which rows of each file they are.
        groups: In Storage V3, the column group of each field.
        again: Those whose file an earlier batch of the segment reads, too, and reports.
        unread: In Storage V3, fields of column groups that are not read, and why not.
        rows: How many rows a file has by the metadata, and which; `None` where unknown.
    """

    index: int
    files: Mapping[int, LogFile]
    first: int = 0
    last: int = 0
    slices: Mapping[int, RowSlice] = field(default_factory=dict)
    groups: Mapping[int, int] = field(default_factory=dict)
    again: frozenset[int] = frozenset()
    unread: Mapping[int, str] = field(default_factory=dict)
    rows: tuple[int, LogFile] | None = None

    def describe_other_rows(self, count: int) -> Damage | None:
        """Return what to say of files with so many rows, if the metadata says another number; once for each file."""
        if self.rows is None or self.again or count == self.rows[0]:
            return None
        return describe_other_count(self.rows[1].file.path, "rows", self.rows[0], count)

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(map(self.count_bytes, self.files))

    def count_bytes(self, id: int) -> int:
        """Return the size of a file; about that of the batch's rows, where it has others, too."""
        size = self.files[id].file.size
        first, last, of = self.slices.get(id, (0, 1, 1))
        return size * (last - first) // max(1, of)


@dataclass(slots=True)
class Segment:
    """Segment of a collection: what is on disk, and what the metadata knows of it.

    Logs on disk that the metadata does not name are no part of it, as they are none to a server.

    Attributes:
        manifests: Its manifests, in Storage V3; `inserts` are the files of its column groups then.
        is_packed: Whether these were read.
        slices: The batches that they make.
        lacking: What is missing by them.
        lost_deltas: Delta logs that they name and that are not there.
        packed_counts: The numbers of deletes that they say delta logs have, by path.
        unnamed: Logs that neither metadata nor manifest names.
    """

    root: str
    collection: int
    partition: int
    id: int
    meta: SegmentMeta | None = None
    inserts: dict[int, list[LogFile]] = field(default_factory=dict)
    deltas: list[LogFile] = field(default_factory=list)
    stats: list[LogFile] = field(default_factory=list)
    manifests: list[LogFile] = field(default_factory=list)
    is_packed: bool = False
    slices: list[Batch] = field(default_factory=list)
    lacking: list[Missing] = field(default_factory=list)
    lost_deltas: list[Missing] = field(default_factory=list)
    packed_counts: dict[str, int] = field(default_factory=dict)
    unnamed: list[LogFile] = field(default_factory=list)

    @property
    def directory(self) -> str:
        """Directory of its insert logs."""
        sample = next((logs[0] for logs in self.inserts.values() if logs), None)
        if sample is not None:
            return sample.file.path.rsplit("/", 2)[0]
        path = f"{self.collection}/{self.partition}/{self.id}"
        return f"{self.root}/{layout.INSERT_LOG}/{path}" if self.root else f"{layout.INSERT_LOG}/{path}"

    @property
    def files(self) -> list[LogFile]:
        """Insert logs of the segment, or the files of its column groups."""
        return [log for logs in self.inserts.values() for log in logs]

    @property
    def size(self) -> int:
        """Bytes of these."""
        return sum(log.file.size for log in self.files)

    @property
    def is_l0(self) -> bool:
        """Whether it is an L0 segment; by its lack of insert logs where the metadata does not say."""
        if self.meta is not None:
            return self.meta.level == SegmentLevel.L0
        return not self.inserts and not self.manifests

    @property
    def sources(self) -> tuple[int, ...]:
        """The segments that it was compacted of, as far as metadata says."""
        return self.meta.sources if self.meta is not None else ()

    @property
    def is_v3(self) -> bool:
        """Whether it is kept in Storage V3."""
        return bool(self.manifests) or (self.meta is not None and self.meta.storage_version >= layout.STORAGE_V3)

    def list_batches(self) -> list[Batch]:
        """Return the binlog batches: files are paired by the order of their log ids, aligned at the end (section 4)."""
        if self.slices:
            return self.slices
        if not self.files and _is_expected(self):
            return [Batch(0, {})]
        count = max((len(logs) for logs in self.inserts.values()), default=0)
        gaps = []
        for index in range(count):
            files = {
                id: logs[index - count + len(logs)]
                for id, logs in sorted(self.inserts.items())
                if index >= count - len(logs)
            }
            first, last = self._find_times(index - count)
            counts = ((self._find_log(id, log).rows, log) for id, log in files.items())
            rows = next((pair for pair in counts if pair[0]), None)
            gaps.append(Batch(index, files, first, last, rows=rows))
        return gaps

    def _find_times(self, from_end: int) -> tuple[int, int]:
        """Return the range of timestamps of a batch, as the metadata has it for its timestamp field."""
        logs = self.meta.inserts.get(layout.TIMESTAMP_FIELD, ()) if self.meta is not None else ()
        if len(logs) < -from_end:
            return 0, 0
        log = sorted(logs, key=lambda stored_log: stored_log.id)[from_end]
        return (log.first, log.last) if log.last else (0, 0)

    def find_missing_logs(self) -> list[Missing]:
        """Return files that the metadata, or a manifest, names and that are not there."""
        if self.manifests:
            return self.lacking
        gaps = []
        if self.is_v3:
            detail = "the segment is kept in Storage V3, and its manifest is not there"
            gaps.append(Missing(f"{self.directory}/{layout.MANIFEST_DIRECTORY}", detail))
        for id, logs in self.meta.inserts.items() if self.meta is not None else ():
            present = {log.log for log in self.inserts.get(id, ())}
            for missing_id in (log.id for log in logs if log.id not in present):
                detail = f"the metadata names log {missing_id} of field {id}, which is not there"
                gaps.append(Missing(f"{self.directory}/{id}/{missing_id}", detail))
        return gaps

    def _find_log(self, id: int, log: LogFile) -> LogMeta:
        """Return an insert log as the metadata has it."""
        logs = self.meta.inserts.get(id, ()) if self.meta is not None else ()
        return next((stored_log for stored_log in logs if stored_log.id == log.log), LogMeta(log.log))

    def find_other_sizes(self) -> list[Missing]:
        """Insert logs that have another size than the metadata says: those of another state of the segment."""
        if self.meta is None or self.manifests or self.meta.storage_version:
            return []
        pairs = [(log, self._find_log(id, log).size) for id, logs in self.inserts.items() for log in logs]
        return [_describe_other_size(log, size) for log, size in pairs if size not in (0, log.file.size)]

    def count_deletes(self) -> dict[str, int]:
        """Return the number of deletes of delta logs by the metadata, by path.

        Nothing of those of which it does not say.
        """
        if self.manifests:
            return self.packed_counts
        named = (self.meta.deltas if self.meta is not None else None) or ()
        counts = {log.id: log.rows for log in named if log.rows}
        return {log.file.path: counts[log.log] for log in self.deltas if log.log in counts}

    def find_missing_deltas(self) -> list[Missing]:
        """Return the delta logs that the metadata, or a manifest, names and that are not there."""
        if self.manifests:
            return self.lost_deltas
        named = (self.meta.deltas if self.meta is not None else None) or ()
        present = {log.log for log in self.deltas}
        place = f"{self.root}/" if self.root else ""
        directory = f"{place}{layout.DELTA_LOG}/{self.collection}/{self.partition}/{self.id}"
        return [describe_lost_delta(f"{directory}/{log.id}", "metadata") for log in named if log.id not in present]


def describe_lost_delta(path: str, source: str) -> Missing:
    """Return the message on a delta log that is not there."""
    detail = f"the {source} names this delta log, which is not there: rows that it deletes are read; restore it"
    return Missing(path, f"{detail}, or read on without deletes (deletes='ignore')")


def _describe_other_size(log: LogFile, size: int) -> Missing:
    """Return the message on a log that has another size than the metadata says."""
    detail = f"expected {size:,} bytes, as the metadata says, found {log.file.size:,}"
    return Missing(log.file.path, f"{detail}: {layout.OTHER_STATE}", BinlogDamageKind.MISMATCHED_FILE.label)


@dataclass(slots=True)
class Collection:
    """The segments of one collection.

    Attributes:
        id: Collection id.
        meta: What the metadata knows of it.
        segments: By id, in the order of partitions and ids.
        is_promised: Whether metadata that is next to the files says that there are some.
    """

    id: int
    meta: CollectionMeta | None
    segments: dict[int, Segment]
    is_promised: bool = False

    @property
    def name(self) -> str:
        """Name of the collection, or its id where no metadata names it."""
        return self.meta.name if self.meta is not None and self.meta.name else str(self.id)

    @property
    def qualified_name(self) -> str:
        """Name of the collection after that of its database, and its id; only the id where no metadata names it."""
        return f"{self.meta.database}.{self.name} ({self.id})" if self.meta is not None else str(self.id)

    @property
    def has_files(self) -> bool:
        """Whether there is anything of it below the root."""
        if self.is_promised and any(
            _is_expected(segment) or segment.find_missing_deltas() for segment in self.segments.values()
        ):
            return True
        return any(segment.inserts or segment.deltas or segment.is_v3 for segment in self.segments.values())

    def has_name(self, name: str) -> bool:
        """Return whether a text names it."""
        return self.meta.has_name(name) if self.meta is not None else name == str(self.id)

    @property
    def has_states(self) -> bool:
        """Whether metadata says which segments are alive."""
        return self.meta is not None and self.meta.segments is not None

    @property
    def checkpoint(self) -> int | None:
        """The TSO up to which everything that was written is in logs; `None` where unknown."""
        return min(self.meta.checkpoints.values(), default=None) if self.meta is not None else None

    def find_partition_name(self, id: int) -> str:
        """Return the name of a partition, a dropped one's too, or its id."""
        if self.meta is None:
            return str(id)
        return self.meta.partitions.get(id, self.meta.dropped_partitions.get(id, str(id)))

    def list_living(self, as_of: int | None, partitions: Collection_[int] = ()) -> list[Segment]:
        """Return the segments that hold the collection's rows now, or at a TSO. Without metadata: all of them.

        A compacted segment lacks the rows that were deleted before it was made. For a time before that, the segments
        that it was made of take its place, as long as they are still on disk.

        Args:
            as_of: The time; `None` for now.
            partitions: Dropped partitions that count as if they were not.
        """
        segments = [segment for segment in self.segments.values() if segment.inserts or _is_expected(segment)]
        if not self.has_states:
            return segments
        compacted = {id for segment in self.segments.values() for id in segment.sources}
        visible = {segment.id for segment in segments if self._is_alive(segment, as_of, partitions, compacted)}
        for segment in segments:
            sources = segment.sources
            if segment.id in visible and sources and as_of is not None:
                source_segments = [self.segments.get(source) for source in sources]
                older = [
                    segment
                    for segment in source_segments
                    if segment is not None and segment.inserts and segment.meta is not None
                ]
                if len(older) == len(sources) and all(
                    segment.meta.dropped_at > as_of for segment in older if segment.meta
                ):
                    visible.discard(segment.id)
                else:
                    visible.difference_update(sources)
        return [segment for segment in segments if segment.id in visible]

    def list_origins(self) -> list[Segment]:
        """Return the segments that hold every version of every row, each version once.

        What a segment was compacted of takes its place as long as all of it is on disk: it holds the rows, too, that
        were deleted before. Without metadata: all segments.
        """
        segments = {
            segment.id: segment for segment in self.segments.values() if segment.inserts or _is_expected(segment)
        }
        if not self.has_states:
            return list(segments.values())
        visible = {
            id: every_segment
            for id, every_segment in segments.items()
            if every_segment.meta is not None and not every_segment.meta.is_hidden
        }
        known_segments = {id: every_segment for id, every_segment in visible.items() if not every_segment.is_l0}
        older = {
            id: [source for source in every_segment.sources if source < id]
            for id, every_segment in known_segments.items()
        }
        open = list(known_segments.keys() - {source for sources in older.values() for source in sources})
        visited: set[int] = set()
        selected: set[int] = set()
        while open:
            id = open.pop()
            if id in visited:
                continue
            visited.add(id)
            if older[id] and all(
                source in known_segments and not known_segments[source].find_missing_logs() for source in older[id]
            ):
                open += older[id]
            else:
                selected.add(id)
        return [segment for id, segment in segments.items() if id in selected]

    def find_compacted_to(self, segment: Segment) -> list[Segment]:
        """Return the segments that compaction made of a segment, and of those that it made of these."""
        ancestors: dict[int, Segment] = {}
        fresh = {segment.id}
        while fresh:
            fresh = {id for id, segment in self.segments.items() if fresh & set(segment.sources)} - ancestors.keys()
            ancestors |= {id: self.segments[id] for id in fresh}
        return [ancestor for id, ancestor in ancestors.items() if id != segment.id]

    def find_drop_time(self, partition: int) -> int | None:
        """Return when a partition was dropped, as a TSO; `None` for one that is there, or where unknown."""
        return (self.meta.partition_ends.get(partition) or None) if self.meta is not None else None

    def find_lost_segments(self, as_of: int) -> list[Segment]:
        """Return compacted segments that had to be taken although they were made after a TSO."""
        gaps = []
        for segment in self.list_living(as_of):
            for source in segment.sources:
                source_segment = self.segments.get(source)
                dropped = (
                    source_segment.meta.dropped_at
                    if source_segment is not None and source_segment.meta is not None
                    else None
                )
                if dropped is None or dropped > as_of:
                    gaps.append(segment)
                    break
        return gaps

    def group_l0_deltas(self) -> dict[int, tuple[File, ...]]:
        """Return, by partition, the delta logs of L0 segments that concern it: its own, and those of all."""
        logs = [(segment.partition, log.file) for segment in self.list_l0_segments() for log in segment.deltas]
        partitions = {segment.partition for segment in self.segments.values()}
        return {
            id: tuple(file for partition, file in logs if partition in (id, layout.ALL_PARTITIONS)) for id in partitions
        }

    def find_missing_l0_deltas(self, partition: int) -> list[Missing]:
        """Return the missing delta logs of L0 segments that concern a partition."""
        concerned = (partition, layout.ALL_PARTITIONS)
        return [
            log
            for segment in self.list_l0_segments()
            if segment.partition in concerned
            for log in segment.find_missing_deltas()
        ]

    def list_l0_segments(self) -> list[Segment]:
        """Return the segments that hold nothing but deletes, and are alive."""
        delete_segments = (segment for segment in self.segments.values() if segment.is_l0)
        nonempty = [segment for segment in delete_segments if segment.deltas or segment.find_missing_deltas()]
        return [
            segment
            for segment in nonempty
            if not self.has_states or (segment.meta is not None and segment.meta.is_live)
        ]

    def count_deletes(self) -> dict[str, int]:
        """Return the number of deletes per delta log of all segments by the metadata; see `Segment.count_deletes`."""
        return {path: count for segment in self.segments.values() for path, count in segment.count_deletes().items()}

    def _is_alive(self, segment: Segment, as_of: int | None, partitions: Collection_[int], compacted: set[int]) -> bool:
        meta = segment.meta
        if meta is None or meta.is_hidden or segment.is_l0:
            return False
        partition_names = self.meta.partitions if self.meta is not None else {}
        if segment.partition in partitions:  # its segments were dropped with it, but for those that were before
            return meta.is_live or (meta.state == SegmentState.DROPPED and segment.id not in compacted)
        if partition_names and segment.partition not in partition_names:
            return False
        return meta.is_live or (as_of is not None and meta.state == SegmentState.DROPPED and meta.dropped_at > as_of)


def find_missing_fields(directory: str, batch: Batch, fields: Iterable[Field]) -> list[Missing]:
    """Return files that a V1 batch lacks of fields that Milvus does not read without."""
    missing = []
    for stored in fields:
        if stored.id not in batch.files and not stored.is_optional:
            kind = {layout.ROW_ID_FIELD: "row ids", layout.TIMESTAMP_FIELD: "timestamps"}.get(stored.id, "values")
            detail = f"field {stored.id} ({stored.name}) has no file with the {kind} of binlog batch {batch.index}"
            missing.append(Missing(f"{directory}/{stored.id}", detail))
    return missing


def _is_expected(segment: Segment) -> bool:
    """Return whether a segment without insert logs on disk has rows by its metadata or by a manifest."""
    return segment.is_v3 or (segment.meta is not None and any(segment.meta.inserts.values()))


def gather(
    logs: Sequence[LogFile], metas: Mapping[int, CollectionMeta], root: str | None = None
) -> dict[int, Collection]:
    """Sort files into collections and segments. Where metadata lists the logs of a segment, others are left out.

    Args:
        logs: The files.
        metas: What the metadata says of collections.
        root: Where the files of all of them are, for metadata that is next to them; `None` for other metadata.
    """
    collections: dict[int, Collection] = {}
    for log in sorted(
        logs, key=lambda stored_log: (stored_log.partition, stored_log.segment, stored_log.field, stored_log.log)
    ):
        if log.kind not in (layout.INSERT_LOG, layout.DELTA_LOG, layout.STATS_LOG, layout.MANIFEST_DIRECTORY):
            continue
        if log.collection not in collections:
            collections[log.collection] = Collection(log.collection, metas.get(log.collection), {})
        collection = collections[log.collection]
        segment = collection.segments.get(log.segment)
        if segment is None:
            segment = Segment(log.root, log.collection, log.partition, log.segment)
            collection.segments[log.segment] = segment
        if log.kind == layout.INSERT_LOG:
            segment.inserts.setdefault(log.field, []).append(log)
        elif log.kind == layout.DELTA_LOG:
            segment.deltas.append(log)
        elif log.kind == layout.MANIFEST_DIRECTORY:
            segment.manifests.append(log)
        else:
            segment.stats.append(log)
    for id, meta in metas.items():
        collections.setdefault(id, Collection(id, meta, {}))
    for collection in collections.values():
        collection.is_promised = root is not None
        _apply_meta(collection, root or "")
    return collections


def _apply_meta(collection: Collection, default_root: str) -> None:
    if collection.meta is None or collection.meta.segments is None:
        return
    root = next((segment.root for segment in collection.segments.values()), default_root)
    for id, meta in collection.meta.segments.items():
        if id not in collection.segments:
            collection.segments[id] = Segment(root, collection.id, meta.partition, id)
        segment = collection.segments[id]
        segment.meta = meta
        if meta.inserts and not segment.manifests:
            segment_logs = [log for logs in segment.inserts.values() for log in logs]
            segment.inserts = {
                field: logs
                for field in segment.inserts
                if (logs := _select_listed(segment.inserts[field], meta.inserts.get(field, ())))
            }
            kept_paths = {log.file.path for logs in segment.inserts.values() for log in logs}
            segment.unnamed += [log for log in segment_logs if log.file.path not in kept_paths]
        if meta.deltas is not None and not segment.manifests and (meta.inserts or meta.deltas):
            named = _select_listed(segment.deltas, meta.deltas)
            segment.unnamed += [log for log in segment.deltas if log not in named]
            segment.deltas = named


def _select_listed(logs: list[LogFile], named: Sequence[LogMeta]) -> list[LogFile]:
    named_ids = {log.id for log in named}
    return [log for log in logs if log.log in named_ids]


def choose_collection(collections: Mapping[int, Collection], table: str | None, location: str) -> Collection:
    """Return the collection of that name or id; the only one that there is anything of, where none is named.

    Names are those of collections and aliases, by themselves or as `database.name`. As in Milvus, a name by itself
    means the database `default`, unless only another one has it.

    Raises:
        OptionError: When there is none, or more than one.
    """
    is_known = any(collection.meta is not None for collection in collections.values())
    present = {
        id: collection
        for id, collection in collections.items()
        if collection.has_files and (collection.meta is not None or not is_known)
    }
    if table is None and len(present) == 1:
        return next(iter(present.values()))
    listed = ", ".join(sorted(collection.qualified_name for collection in present.values()))
    if table is None:
        raise OptionError(f"{location}: name one of its collections with the option table: {listed or 'there is none'}")
    matches = [collection for collection in collections.values() if collection.has_name(table)]
    if len(matches) > 1:
        usual = [
            match for match in matches if match.meta is not None and match.meta.database == layout.DEFAULT_DATABASE
        ]
        matches = usual or matches
    if len(matches) == 1:
        return matches[0]
    raise OptionError(f"{location}: table={table!r}: there {'are several' if matches else 'is none'}; known: {listed}")

"""Reports on collections besides damage: the rows that are read, those left out, and those that may be missing."""

from __future__ import annotations

from collections.abc import Collection as Collection_
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Protocol

import pyarrow as pa

from sawlog.format.contract import Projection
from sawlog.format.damage import FileReport, Skipped
from sawlog.milvus import layout
from sawlog.milvus.collection.fragments import BatchFragment
from sawlog.milvus.collection.model import Collection, Missing, Segment
from sawlog.milvus.collection.selection import Selection
from sawlog.milvus.layout import BinlogDamageKind, SegmentState
from sawlog.milvus.metadata.load import Metadata
from sawlog.milvus.metadata.model import CollectionMeta
from sawlog.milvus.options import ReadOptions
from sawlog.storage import Storage


class CountedLog(Protocol):
    """A dataset of one collection."""

    def list_countable_batches(self) -> list[BatchFragment]:
        """Return the batches whose rows are read."""
        ...


def note_rows(datasets: Iterable[CountedLog], reports: Mapping[str, FileReport]) -> None:
    """Note the rows that are read of every batch, with its first file.

    Args:
        datasets: Those whose rows count.
        reports: What was found in each file. Rows of batches that are whole are counted by their keys only.
    """
    for dataset in datasets:
        for fragment in dataset.list_countable_batches():
            files = [log.file.path for log in fragment.batch.files.values()]
            if not files or files[0] not in reports:
                continue
            amiss = any(path in reports and reports[path].kinds for path in (*files, fragment.path))
            projection = fragment.projection if amiss else Projection(pa.schema([]), pa.schema([]))
            reports[files[0]].rows += replace(fragment, projection=projection).inspect().rows


def describe_metadata_gap(metadata: Metadata | None, roots: Collection_[str], storage: Storage) -> Missing | None:
    """Return the gap of metadata that is cut, or gone from a backup; `None` for metadata that is whole, or none."""
    advice = "all segments are read as they lie, under their ids; restore it, or name other metadata with metadata="
    if metadata is None:
        for root in sorted(root for root in roots if root.rsplit("/", 1)[-1] == layout.BACKUP_LOGS):
            directory = f"{root[: -len(layout.BACKUP_LOGS)]}{layout.BACKUP_META_DIRECTORY}"
            head, meta = (f"{directory}/{name}" for name in (layout.BACKUP_HEAD, layout.BACKUP_META))
            if storage.exists(head, fresh=False) and not storage.exists(meta, fresh=False):
                return Missing(meta, f"a backup without its metadata: {advice}")
        return None
    broken = metadata.broken
    if broken is None:
        return None
    if metadata.timeline is not None:
        advice = "what was written later is not known; restore it, or name other metadata with metadata="
    return Missing(broken.path, f"{broken.detail}: {advice}", BinlogDamageKind.CUT_METADATA.label, offset=broken.offset)


def find_left_out(
    collections: Mapping[int, Collection], metas: Mapping[int, CollectionMeta], options: ReadOptions, *, history: bool
) -> Iterator[Skipped]:
    """Yield what metadata says is gone, dropped collections and segments; and segments and logs that it does not name.

    Args:
        collections: All collections below the root.
        metas: What the metadata says of them; empty where there is none.
        options: The collection, the segments, and the time that are asked for.
        history: Whether every version of a row is asked for, those of segments that are compacted, too.
    """
    newest = max((id for meta in metas.values() for id in meta.segments or ()), default=0)
    for id, collection in collections.items():
        is_unknown = bool(metas) and id not in metas and not (options.table and collection.has_name(options.table))
        dropped = Selection(collection, options).dropped
        segments = collection.list_origins() if history else collection.list_living(options.until, dropped)
        read_ids = {segment.id for segment in segments}.union(options.segments)
        for segment in collection.segments.values():
            reason, missed = "its collection is none of the metadata's" if is_unknown else "", False
            if not is_unknown and segment.id not in read_ids:
                reason, missed = _explain_absence(collection, segment, newest, is_now=options.until is None)
            missed = missed and not options.segments
            logs = [*(log for insert in segment.inserts.values() for log in insert), *segment.deltas] if reason else []
            yield from (Skipped(log.file.path, reason, log.file.size, missed) for log in logs)
            for log in segment.unnamed:
                missed = log.kind == layout.DELTA_LOG
                yield Skipped(log.file.path, "the metadata does not name it", log.file.size, missed)


def _explain_absence(collection: Collection, segment: Segment, newest: int, *, is_now: bool) -> tuple[str, bool]:
    """Return why a segment is not read, as a phrase, empty where metadata does not say it; and whether rows may lack.

    Ids ascend: a segment that is newer than all that are known may have rows that no other has.
    """
    if segment.meta is None or collection.meta is None:
        has_states = collection.has_states
        return "the metadata does not name its segment" if has_states else "", is_now and segment.id > newest
    if segment.meta.state == SegmentState.DROPPED:
        return "its segment is dropped" if is_now else "", False
    if not segment.meta.is_live:
        return "its segment is not visible yet", False
    if segment.is_l0 or segment.partition in (collection.meta.partitions or (segment.partition,)):
        return "", False
    if segment.partition in collection.meta.dropped_partitions:
        return "its partition is dropped", False
    return "the metadata does not name its partition", is_now


def list_remarks(selection: Selection, view: str) -> Iterator[str]:
    """Yield remarks on what the rows of a collection are, or are not."""
    collection, options = selection.collection, selection.options
    states_known, until = collection.has_states, options.until
    if not states_known and not options.segments:
        count = sum(bool(segment.inserts) for segment in selection.all_segments)
        subject = "its segment is" if count == 1 else f"all {count} segments are"
        yield (
            f"{subject} read as found; without metadata, dropped and compacted ones look like those that are alive: "
            "give metadata= (an etcd's directory or dump, or a backup's meta) or segments="
        )
    ttl = collection.meta.ttl if collection.meta is not None else 0
    if ttl and view == "rows":
        moment = options.expiry
        applied = f"left out as of {layout.decode_tso(moment)}; ttl='ignore' shows them" if moment is not None else ""
        yield f"rows live {ttl} seconds: older ones are {applied or 'shown; ttl=' + repr('now') + ' hides them'}"
    for partition in selection.dropped[:1] if view != "history" else ():
        yield f"partition {collection.find_partition_name(partition)} is dropped, and read all the same"
    lost_segments = collection.find_lost_segments(until) if states_known and until is not None else []
    if lost_segments:
        yield (
            f"segment {lost_segments[0].id} was compacted after as_of, and what it was made of is no longer on disk: "
            "rows that were deleted in between are missing"
        )
    checkpoint = collection.checkpoint
    if checkpoint is not None and until is not None and until > checkpoint:
        yield (
            f"as_of is later than the checkpoint, {layout.decode_tso(checkpoint)}: what was written in between may be"
            " in the message queue only"
        )

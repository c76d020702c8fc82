"""Repairing a collection: of each binlog batch, every file keeps the rows that a read delivers, and no others."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa

from sawlog.errors import FINDING_ERRORS, FormatError
from sawlog.format.contract import probe
from sawlog.format.damage import Findings
from sawlog.guard import Undecodable, decode_json
from sawlog.milvus import layout
from sawlog.milvus.collection.dataset import CollectionContents
from sawlog.milvus.collection.fragments import BatchFragment
from sawlog.milvus.collection.model import find_missing_fields
from sawlog.milvus.deletes.log import read_deletes
from sawlog.milvus.encode import LogPlace, encode_empty_log
from sawlog.milvus.log import hold_log
from sawlog.milvus.repair import repair
from sawlog.storage.workers import map_all

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from sawlog.milvus.paths import LogFile
    from sawlog.milvus.types import Field
    from sawlog.storage import File, Storage


class _KeptRows(NamedTuple):
    """Rows of a file that are kept.

    Attributes:
        fields: The fields of its collection, by id.
        rows: 1 for each row that is kept, 0 for the others; `None` for all.
        empty: Where none is, the bytes of a log without rows, if any.
    """

    fields: Mapping[int, Field] = MappingProxyType({})
    rows: NDArray[np.uint8] | None = None
    empty: bytes | None = None


def repair_collections(dataset: CollectionContents, places: Sequence[tuple[File, str]], storage: Storage) -> None:
    """Write what is intact of collections; see `RepairsTogether.repair_files`.

    The files of a batch of which nothing can be read become logs without rows, so that the other batches, metadata and
    deletes stay what they are. Files that say nothing any more are left out. A backup's metadata gets the numbers of
    rows and deletes, and the sizes, that its logs have now.

    Raises:
        FormatError: For segments of Storage V3, whose manifests count the rows of their files.
    """
    if any(segment.is_v3 for collection in dataset.collections.values() for segment in collection.segments.values()):
        raise FormatError(
            f"{dataset.files[0].path}: segments of Storage V3 are not repaired file by file; write what is intact of"
            " them to a new collection: sawlog convert --on-damage skip"
        )
    limits = {path: limit for part in dataset.split_collections() for path, limit in _find_limits(part)}

    metas: list[tuple[File, str]] = []
    sizes: dict[str, int] = {}

    def repair_file(pair: tuple[File, str]) -> None:
        file, place = pair
        limit = limits.get(file.path, _KeptRows())
        if file.name == layout.BACKUP_META:
            metas.append((file, place))
        elif limit.rows is None or limit.rows.any():
            with suppress(FormatError):
                sizes[file.path] = repair(file, place, dataset.scan.options, storage, limit.rows, limit.fields)
        elif limit.empty is not None:
            _write(storage, place, limit.empty)
            sizes[file.path] = len(limit.empty)

    map_all(places, repair_file, dataset.scan.threads)
    for file, place in metas:
        _write(storage, place, _recount_rows(storage.read(file.path), dataset, limits, sizes))


def _recount_rows(
    data: bytes, dataset: CollectionContents, limits: Mapping[str, _KeptRows], sizes: Mapping[str, int]
) -> bytes:
    """Return the metadata of a backup, with what its logs have now; what is no whole JSON stays as it is."""
    document = decode_json(data)
    if isinstance(document, Undecodable):
        return data
    segments = [segment for collection in dataset.collections.values() for segment in collection.segments.values()]
    changed = {
        (log.segment, log.kind, log.log): log
        for changed_segment in segments
        for log in (*changed_segment.files, *changed_segment.deltas)
        if log.file.path in sizes
        and (sizes[log.file.path] != log.file.size or limits.get(log.file.path, _KeptRows()).rows is not None)
    }
    for segment in _iterate_objects(document, "segment_id") if changed else ():
        for name, kind in (("binlogs", layout.INSERT_LOG), ("deltalogs", layout.DELTA_LOG)):
            for entry in _iterate_objects(segment.get(name), "log_id"):
                log = changed.get((segment["segment_id"], kind, entry["log_id"]))
                if log is not None:
                    entry["log_size"] = sizes[log.file.path]
                    entry["entries_num"] = _count(log, entry.get("entries_num", 0), dataset, limits)
    return json.dumps(document, ensure_ascii=False).encode() if changed else data


def _count(log: LogFile, count: Any, dataset: CollectionContents, limits: Mapping[str, _KeptRows]) -> Any:
    """Return how many rows or deletes are kept of a log that has so many by the metadata."""
    rows = limits.get(log.file.path, _KeptRows()).rows
    if rows is not None:
        return int(rows.sum())
    if log.kind != layout.DELTA_LOG:
        return count
    with hold_log(log.file, dataset.scan.storage, dataset.scan.options.max_item_bytes) as log_file:
        return sum(len(deletes.keys) for deletes in read_deletes(log_file, Findings("skip", drained=True)))


def _iterate_objects(document: Any, key: str) -> Iterator[dict[str, Any]]:
    """Yield the objects within JSON that have a key."""
    waiting = [document]
    while waiting:
        node = waiting.pop()
        if isinstance(node, dict) and key in node:
            yield node
        elif isinstance(node, dict):
            waiting += node.values()
        elif isinstance(node, list):
            waiting += node


def _find_limits(dataset: CollectionContents) -> Iterator[tuple[str, _KeptRows]]:
    """Return which rows of the files of all batches are read, by path."""
    import numpy as np

    for fragment in dataset.list_batches():
        findings = Findings("skip")
        masks: list[NDArray[np.uint8]] = []
        try:
            for _ in fragment.as_stored().decode_traced(pa.schema([]), findings, masks):
                pass
        except FINDING_ERRORS as error:  # of a store that keeps checksums
            findings.add_damage(error.damage)
            masks.clear()
        rows = np.concatenate([np.empty(0, np.uint8), *masks]) if findings.kinds else None
        empty = {} if rows is None or rows.any() else _make_empty_logs(fragment)
        fields = {field.id: field for field in fragment.shared.fields.values()}
        for id, log in fragment.batch.files.items():
            yield log.file.path, _KeptRows(fields, rows, empty.get(id))


def _make_empty_logs(fragment: BatchFragment) -> dict[int, bytes]:
    """Return a log without rows for each field of a batch.

    None where it lacks a log, or where its files are column groups.

    Logs of all fields are put together from the last one on, so that a batch that lacks one can be left out whole.
    """
    storage, files = fragment.scan.storage, fragment.batch.files.values()
    heads = [probe(storage, log.file, len(layout.MAGIC)) for log in files]
    if not any(layout.sniff(head) == "v1" for head in heads):
        return {}
    if find_missing_fields(fragment.path, fragment.batch, fragment.shared.fields.values()):
        return {}
    place = LogPlace(*fragment.place)
    return {field.id: encode_empty_log(place, field) for field in fragment.shared.fields.values() if field.is_writable}


def _write(storage: Storage, place: str, data: bytes) -> None:
    staged = storage.stage(place)
    staged.write(data)
    storage.publish([staged.finish()])

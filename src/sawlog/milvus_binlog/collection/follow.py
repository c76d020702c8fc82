"""Collections as streams: binlog batches and delta logs as they appear. Files of Milvus never grow."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from sawlog.errors import OptionError
from sawlog.milvus_binlog import layout
from sawlog.milvus_binlog.collection.fragments import BatchFragment
from sawlog.milvus_binlog.collection.model import Batch, Segment
from sawlog.milvus_binlog.fragments import DeltaFragment
from sawlog.milvus_binlog.types import DYNAMIC_KEY, ID_KEY, NULLABLE_KEY

if TYPE_CHECKING:
    from sawlog.follow import Range
    from sawlog.format import Fragment
    from sawlog.milvus_binlog.collection.dataset import MilvusDataset
    from sawlog.storage import File

_PARQUET_END = b"PAR1"


def check_view(view: str) -> None:
    """Refuse views that are no streams.

    Raises:
        OptionError: Says which ones are.
    """
    if view not in layout.FOLLOWED:
        raise OptionError(
            f"view {view!r} of milvus_binlog cannot be followed as a stream: what is deleted later cannot be taken"
            " back; follow the views 'inserts' and 'deletes'"
        )


def frontier(dataset: MilvusDataset, file: File, position: int) -> int:
    """See `Dataset.frontier`: files count when they are whole, inserts when all of their batch are."""
    check_view(dataset.scan.view)
    if dataset.scan.view == "deletes":
        return file.size if _whole(dataset, file) else position
    for segment in dataset.collection.segments.values():
        for logs in segment.inserts.values():
            if any(log.file.path == file.path for log in logs):
                return file.size if _complete(dataset, segment, file) else position
    return position


def between(dataset: MilvusDataset, ranges: Sequence[Range]) -> Iterator[Fragment]:
    """See `Dataset.between`. A batch is read with the file of its first field, and once only."""
    check_view(dataset.scan.view)
    asked = {one.file.path for one in ranges}
    scan, projection = dataset.scan, dataset.projection
    shared = dataset._shared(scan.view) if scan.view == "inserts" else None
    for segment in dataset.collection.segments.values():
        place = (segment.collection, segment.partition, segment.id)
        if shared is None:
            for log in segment.deltas:
                if log.file.path in asked:
                    yield DeltaFragment(
                        scan, projection, log.file.path, log.file.size, log.file, place, segment.deletes_only
                    )
            continue
        for batch in segment.batches():
            first = batch.files[min(batch.files)] if batch.files else None
            if first is not None and first.file.path in asked:
                _check_even(dataset, segment)
                yield BatchFragment(scan, projection, segment.directory, batch.size, shared, batch, place)


def _complete(dataset: MilvusDataset, segment: Segment, file: File) -> bool:
    """Whether all files of the batch that a file belongs to are there. While one is missing, none can be paired."""
    return _even(dataset, segment) and all(_whole(dataset, log.file) for log in _batch_of(segment, file).files.values())


def _batch_of(segment: Segment, file: File) -> Batch:
    return next(one for one in segment.batches() if any(log.file.path == file.path for log in one.files.values()))


def _even(dataset: MilvusDataset, segment: Segment) -> bool:
    """Whether every field that no row lacks has as many files as the others."""
    required, optional = _expected(dataset)
    counts = {len(logs) for id, logs in segment.inserts.items() if id not in optional}
    some = next(iter(segment.inserts.values()))[0].file.path
    separate = dataset.scan.storage.read(some, 0, len(layout.MAGIC)) == layout.MAGIC
    return len(counts) == 1 and (not separate or required <= set(segment.inserts))


def _expected(dataset: MilvusDataset) -> tuple[set[int], set[int]]:
    """Ids of the fields that a stream began with: those that have a file in every batch, and the others."""
    required = set(layout.SYSTEM_FIELDS)
    optional: set[int] = set()
    for column in dataset.scan.schema or ():
        metadata = column.metadata or {}
        if ID_KEY in metadata:
            absent = NULLABLE_KEY in metadata or DYNAMIC_KEY in metadata
            (optional if absent else required).add(int(metadata[ID_KEY]))
    return required, optional


def _check_even(dataset: MilvusDataset, segment: Segment) -> None:
    """Files are paired from the last one on, which is wrong while a batch is being written, if some fields have fewer.

    Raises:
        OptionError: When that is so.
    """
    counts = {len(logs) for logs in segment.inserts.values()}
    if len(counts) > 1 and not _even(dataset, segment):
        raise OptionError(
            f"{segment.directory}: a binlog batch is being written; start the stream again to repeat this one"
        )


def _whole(dataset: MilvusDataset, file: File) -> bool:
    """Whether a file has its end: all that is followed ends with Parquet's mark."""
    length = len(_PARQUET_END)
    return file.size > length and dataset.scan.storage.read(file.path, file.size - length, length) == _PARQUET_END

"""Column groups: segments of Storage V3 by their manifests (section 4.2), and large batches cut at row groups."""

from __future__ import annotations

import posixpath
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import accumulate, pairwise

from sawlog.errors import FormatError
from sawlog.format.contract import space_offsets
from sawlog.milvus import layout
from sawlog.milvus.collection.model import Batch, Collection, Missing, RowSlice, Segment, describe_lost_delta
from sawlog.milvus.layout import PARQUET_MINIMUM, BinlogDamageKind
from sawlog.milvus.log import hold_log
from sawlog.milvus.metadata.manifest import ColumnGroup, Manifest, read_manifest
from sawlog.milvus.paths import LogFile
from sawlog.milvus.payloads.parquet import ParquetError, read_footer
from sawlog.storage import File, Storage, map_files, read_indexed


def unpack(collection: Collection, storage: Storage) -> None:
    """Read the manifests of a collection's segments: their batches, their delta logs, and what they lack."""
    named: list[tuple[Segment, LogFile]] = []
    for segment in collection.segments.values():
        if segment.is_packed or not segment.manifests:
            continue
        segment.is_packed = True
        version = segment.meta.manifest if segment.meta is not None else 0
        latest = max(segment.manifests, key=lambda log: log.log)
        log = next((log for log in segment.manifests if log.log == version), None) if version else latest
        if log is None:
            detail = f"the metadata names version {version} of the manifest, which is not there"
            segment.lacking.append(Missing(f"{segment.directory}/{layout.MANIFEST_DIRECTORY}", detail))
        else:
            named.append((segment, log))
    manifest_files = _ManifestFiles(storage)
    read = map_files(lambda file: read_indexed(storage, file, 0, file.size), [log.file for _, log in named])
    for (segment, log), data in zip(named, read, strict=True):
        try:
            manifest = read_manifest(data, log.file.path, segment.root)
            if manifest.unsupported:
                gap = Missing(log.file.path, manifest.unsupported, BinlogDamageKind.UNSUPPORTED.label, log.file.size)
                segment.lacking.append(gap)
            else:
                _add_logs(segment, manifest, manifest_files)
        except FormatError as error:
            detail = str(error).removeprefix(f"{log.file.path}: ")
            segment.lacking.append(Missing(log.file.path, detail, BinlogDamageKind.BAD_MANIFEST.label, log.file.size))


class _ManifestFiles:
    """Files by path, of directories that are listed once each."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._files_by_directory: dict[str, dict[str, File]] = {}

    def find_file(self, path: str) -> File | None:
        """Return the file of that path; `None` where there is none."""
        directory = posixpath.dirname(path)
        if directory not in self._files_by_directory:
            self._files_by_directory[directory] = {}
            with suppress(FileNotFoundError, NotADirectoryError):
                listing = self._storage.list_files(directory, fresh=False)
                self._files_by_directory[directory] = {file.path: file for file in listing}
        return self._files_by_directory[directory].get(path)


def _add_logs(segment: Segment, manifest: Manifest, manifest_files: _ManifestFiles) -> None:
    """Give a segment the insert logs, delta logs and statistics that its manifest names."""
    place = (segment.root, layout.INSERT_LOG, segment.collection, segment.partition, segment.id)
    files: dict[int, list[LogFile | None]] = {}
    unread: dict[int, str] = {}
    for id, group in enumerate(manifest.groups):
        if group.format != layout.PACKED_FORMAT:
            detail = f"columns {', '.join(group.columns[:3])} are kept as {group.format}, which is not supported"
            unread |= dict.fromkeys((int(name) for name in group.columns if layout.ID.match(name)), detail)
            continue
        files[id] = []
        for number, file_name in enumerate(group.files):
            file = manifest_files.find_file(file_name.path)
            if file is None:
                segment.lacking.append(Missing(file_name.path, "the manifest names it, and it is not there"))
            files[id].append(None if file is None else LogFile(file, *place, id, number))
    segment.inserts = {id: [log for log in logs if log is not None] for id, logs in files.items()}
    if not files:
        segment.lacking += [
            Missing(segment.directory, detail, BinlogDamageKind.UNSUPPORTED.label)
            for detail in dict.fromkeys(unread.values())
        ]
    if not segment.lacking:
        logs = {id: [log for log in present_logs if log is not None] for id, present_logs in files.items()}
        segment.slices = _make_batches({id: manifest.groups[id] for id in logs}, logs, unread)
    _add_deltas(segment, manifest, manifest_files)
    _add_statistics(segment, manifest, manifest_files)


def _add_deltas(segment: Segment, manifest: Manifest, manifest_files: _ManifestFiles) -> None:
    """Give a segment the delta logs that its manifest names, and no others."""
    present = {log.file.path: log for log in segment.deltas}
    place = (segment.root, layout.DELTA_LOG, segment.collection, segment.partition, segment.id, layout.DELTA_FIELD)
    named = []
    for number, path in enumerate(manifest.deltas):
        file = present[path].file if path in present else manifest_files.find_file(path)
        if file is None:
            segment.lost_deltas.append(describe_lost_delta(path, "manifest"))
        else:
            named.append(present.get(path) or LogFile(file, *place, number))
    segment.unnamed += [log for path, log in present.items() if path not in manifest.deltas]
    segment.deltas = named
    segment.packed_counts.update(manifest.delete_counts)


def _add_statistics(segment: Segment, manifest: Manifest, manifest_files: _ManifestFiles) -> None:
    """Give a segment the statistics that its manifest names and that are there; no read depends on them."""
    place = (segment.collection, segment.partition, segment.id)
    for key, paths in manifest.stats.items():
        name, _, field = key.partition(".")
        kind = layout.PACKED_STATISTICS.get(name)
        if kind is None or not layout.ID.match(field):
            continue
        present = [file for file in map(manifest_files.find_file, paths) if file is not None]
        segment.stats += [
            LogFile(file, segment.root, kind, *place, int(field), index) for index, file in enumerate(present)
        ]


def _make_batches(
    groups: Mapping[int, ColumnGroup], logs: Mapping[int, Sequence[LogFile]], unread: Mapping[int, str]
) -> list[Batch]:
    """Return the rows of all column groups, cut wherever a file of any group begins: one file of each is read then.

    Groups are cut at the same places where one flush wrote them; a compaction may roll their files apart.
    """
    ends = {id: list(accumulate(file.rows for file in group.files)) for id, group in groups.items()}
    columns = {int(name): id for id, group in groups.items() for name in group.columns if layout.ID.match(name)}
    cuts = sorted({0, *(end for row_ends in ends.values() for end in row_ends)})
    place = dict.fromkeys(groups, 0)
    batches = []
    for index, (start, stop) in enumerate(pairwise(cuts)):
        slices = {}
        again = {id for id in groups if start and start not in ends[id]}
        for id, group in groups.items():
            while ends[id][place[id]] <= start:
                place[id] += 1
            file = group.files[place[id]]
            first = file.first + start - (ends[id][place[id]] - file.rows)
            slices[id] = RowSlice(first, first + stop - start, file.first + file.rows)
        files = {id: logs[id][place[id]] for id in groups}
        batches.append(Batch(index, files, slices=slices, groups=columns, again=frozenset(again), unread=unread))
    return batches


def cut(batches: Sequence[Batch], task_bytes: int, storage: Storage, max_page_bytes: int | None) -> list[Batch]:
    """Return batches of a segment, those of bare files that are larger than `task_bytes` as several of about that size.

    They are cut where row groups of their largest file end. A batch whose footers cannot be read, or have different
    numbers of rows, stays as it is: its reader says so.
    """
    files = [log.file for batch in batches if batch.size > task_bytes for log in batch.files.values()]
    if not files:
        return list(batches)

    def read_row_ends(file: File) -> list[int]:
        with hold_log(file, storage, max_page_bytes, planning=True) as log, suppress(ParquetError):
            if log.is_bare_parquet and log.source.size >= PARQUET_MINIMUM:
                return list(accumulate(group.rows for group in read_footer(log.source, 0, log.source.size).groups))
        return []

    first = read_row_ends(files[0])
    if not first:
        return list(batches)
    ends = [first, *map_files(read_row_ends, files[1:])]
    by_path = {file.path: row_ends for file, row_ends in zip(files, ends, strict=True)}
    return [piece for batch in batches for piece in _split_batch(batch, task_bytes, by_path)]


def _split_batch(batch: Batch, task_bytes: int, row_ends: Mapping[str, list[int]]) -> list[Batch]:
    """Return a batch as several.

    `row_ends` has the rows after which row groups end, none for files that are not known.
    """
    ends = {id: row_ends.get(log.file.path, []) for id, log in batch.files.items()}
    if not ends or not all(ends.values()):
        return [batch]
    slices = batch.slices or {id: RowSlice(0, row_ends[-1], row_ends[-1]) for id, row_ends in ends.items()}
    counts = {last - first for first, last, _ in slices.values()}
    if len(counts) > 1 or any(last > ends[id][-1] for id, (_, last, _) in slices.items()):
        return [batch]
    (count,) = counts
    largest = max(batch.files, key=batch.count_bytes)
    first, last, _ = slices[largest]
    inside = (end - first for end in ends[largest] if first < end < last)
    cuts = space_offsets(inside, max(1, count * task_bytes // batch.size))
    return [
        replace(
            batch,
            slices={
                id: RowSlice(row_slice.first + start, row_slice.first + stop, ends[id][-1])
                for id, row_slice in slices.items()
            },
            again=frozenset(batch.files) if start else batch.again,
        )
        for start, stop in pairwise([0, *cuts, count])
    ]

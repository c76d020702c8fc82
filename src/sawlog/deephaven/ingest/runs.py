"""Sorted runs: what one task reads of a date, sorted, in a file that tasks that write locations take their part of."""

from __future__ import annotations

import bisect
import os
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from sawlog.arrow import make_array, make_fixed_array
from sawlog.deephaven.ingest.digest import hash_batch, hash_columns, make_digest
from sawlog.deephaven.ingest.history import read_parts
from sawlog.deephaven.ingest.order import compute_sort_order, sort_key
from sawlog.deephaven.table.types import PARTITION_KEY
from sawlog.format.contract import TASK_BYTES, Contents, Fragment
from sawlog.format.digest import Digest
from sawlog.format.planning import bind_scan, plan_tasks

BATCH_ROWS = 64 << 10
PIECE_BYTES = 64 << 20
"""Bytes of runs that are merged at a time."""
_SAMPLES_PER_RUN = 256
"""Rows of a run that say how rows are spread, where values do not."""

Boundary = tuple[tuple[Any, ...], int, int]
"""Where rows are cut: values of the sort columns, number of the run, row in it."""


@dataclass(frozen=True, slots=True)
class RetainedRows:
    """The rows of a merged location that are taken.

    Attributes:
        parts: The numbers that the parts to take have now, by those that they had when the location was made.
    """

    parts: Mapping[int, int]


@dataclass(frozen=True, slots=True)
class FragmentPiece:
    """A fragment to read.

    Attributes:
        fragment: The fragment.
        part: The part that its rows are of, or which of its rows are taken.
    """

    fragment: Fragment
    part: int | RetainedRows

    def read(self) -> Iterator[tuple[pa.RecordBatch, NDArray[np.int64]]]:
        """Yield the rows that are taken, and the part of each."""
        fragment: Any = self.fragment
        if not isinstance(self.part, RetainedRows):
            for batch in fragment.to_batches():
                yield _encode_partitions(batch), np.full(batch.num_rows, self.part)
            return
        parts, row = read_parts(fragment.path), fragment.start
        for batch in fragment.to_batches():
            rows = np.arange(row, row + batch.num_rows)
            row += batch.num_rows
            old = np.zeros(batch.num_rows, np.int64) if parts is None else parts.of(rows)
            numbers = [self.part.parts.get(part, -1) for part in range(int(old.max(initial=0)) + 1)]
            new = np.array([*numbers, -1])[old]
            yield _encode_partitions(batch).filter(make_array(new >= 0, pa.bool_())), new[new >= 0]


def _encode_partitions(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return a batch whose partition columns, the same value in every row, are dictionaries of that value."""
    for index, field in enumerate(batch.schema):
        if PARTITION_KEY in (field.metadata or {}) and batch.num_rows:
            places = make_fixed_array(pa.int32(), np.zeros(batch.num_rows, np.int32))
            value = pa.DictionaryArray.from_arrays(places, batch.column(index)[:1])
            batch = batch.set_column(index, field.with_type(value.type), value)
    return batch


def plan_pieces(contents: Contents, parts: Mapping[str, int | RetainedRows]) -> list[list[FragmentPiece]]:
    """Return the fragments by task; the paths of their locations say which parts they belong to."""
    return [
        [FragmentPiece(fragment, parts[fragment.path]) for fragment in task]
        for task in plan_tasks(contents, bind_scan(contents, contents.scan), TASK_BYTES)
    ]


def count_bytes(task: Sequence[FragmentPiece]) -> int:
    """Return the number of bytes to read."""
    return sum(piece.fragment.size for piece in task)


def measure(task: Sequence[FragmentPiece]) -> dict[int, Digest]:
    """Return the digests of the rows of a task, by part."""
    digests: dict[int, Digest] = {}
    for piece in task:
        for batch, parts in piece.read():
            hashes = hash_batch(batch)
            for part in (piece.part,) if isinstance(piece.part, int) else np.unique(parts).tolist():
                digests[part] = digests.get(part, Digest()) + make_digest(hashes[parts == part])
    return digests


def unite_schemas(schemas: Iterable[pa.Schema]) -> pa.Schema:
    """Return all columns by name; of several types the first counts."""
    fields: dict[str, pa.Field] = {}
    for schema in schemas:
        for field in schema:
            fields.setdefault(field.name, field)
    return pa.schema(list(fields.values()))


@dataclass(frozen=True, slots=True)
class SortedRun:
    """A file of sorted rows.

    Attributes:
        path: The file: Arrow's, in batches of `BATCH_ROWS`, the last column the part of each row.
        splits: For each location the first batch and the rows that it gets of the run.
        samples: Keys of rows as far from one another, and their places.
        bytes: Bytes of the file.
        pairs: For each grouping column but the first: hashes of the values of the columns before it, and its own.
    """

    path: str
    splits: tuple[tuple[int, int], ...]
    samples: tuple[tuple[tuple[Any, ...], int], ...]
    bytes: int
    pairs: tuple[NDArray[np.uint64], ...]


@dataclass(frozen=True, slots=True)
class Sorter:
    """Makes runs. Picklable.

    Attributes:
        directory: Where to.
        schema: The columns; locations that do not have one have nulls.
        groups: Grouping columns, by the first of which rows are spread.
        keys: Columns to sort by.
        locations: How many locations rows are spread over, by values; 1: by the order of rows, or not.
    """

    directory: str
    schema: pa.Schema
    groups: tuple[str, ...]
    keys: tuple[str, ...]
    locations: int

    def __call__(self, task: Sequence[FragmentPiece]) -> SortedRun | None:
        """Read the rows of a task, sort them and write them down; None when there is none."""
        table = self._read_table(task)
        if not table.num_rows:
            return None
        keys = [table.column(name) for name in self.keys]
        spread = np.zeros(table.num_rows, np.int64)
        if self.locations > 1:
            first = hash_columns([(self.groups[0], keys[0])])
            spread = (first % np.uint64(self.locations)).astype(np.int64)
        order = compute_sort_order([make_fixed_array(pa.int64(), spread), *keys], table.num_rows)
        ordered = table.take(make_fixed_array(pa.int64(), order))
        counts = np.bincount(spread, minlength=self.locations).tolist()
        path = os.path.join(self.directory, uuid.uuid4().hex)
        splits = []
        with pa.OSFile(path, "wb") as file, pa.ipc.new_file(file, ordered.schema) as writer:
            row = batches = 0
            for count in counts:
                splits.append((batches, count))
                for start in range(row, row + count, BATCH_ROWS):
                    writer.write_batch(ordered.slice(start, min(BATCH_ROWS, row + count - start)))
                    batches += 1
                row += count
        return SortedRun(
            path, tuple(splits), self._take_samples(ordered), os.path.getsize(path), self._hash_pairs(table)
        )

    def _read_table(self, task: Sequence[FragmentPiece]) -> pa.RecordBatch:
        """Return the rows, the part of each in the last column."""
        batches = []
        for piece in task:
            for batch, parts in piece.read():
                columns = [_cast_column(batch, field) for field in self.schema]
                columns.append(make_fixed_array(pa.int32(), parts.astype(np.int32)))
                batches.append(pa.RecordBatch.from_arrays(columns, names=[*self.schema.names, ""]))
        return _join_batches(batches) if batches else pa.record_batch({})

    def _take_samples(self, ordered: pa.RecordBatch) -> tuple[tuple[tuple[Any, ...], int], ...]:
        if self.groups:
            return ()
        keys = [ordered.column(name) for name in self.keys]
        rows = range(0, ordered.num_rows, max(1, ordered.num_rows // _SAMPLES_PER_RUN))
        return tuple((sort_key(keys, row), row) for row in rows)

    def _hash_pairs(self, table: pa.RecordBatch) -> tuple[NDArray[np.uint64], ...]:
        group_pairs = []
        for index, name in enumerate(self.groups[1:], 1):
            before = hash_columns([(group, table.column(group)) for group in self.groups[:index]])
            pairs = np.stack([hash_columns([(name, table.column(name))]), before], axis=1)
            group_pairs.append(np.unique(pairs, axis=0))
        return tuple(group_pairs)


def _cast_column(batch: pa.RecordBatch, field: pa.Field) -> pa.Array:
    if field.name not in batch.schema.names:
        return pa.nulls(batch.num_rows, field.type)
    array = batch.column(field.name)
    return array if array.type == field.type or PARTITION_KEY in (field.metadata or {}) else array.cast(field.type)


def _join_batches(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """Return batches as one. A dictionary that hardly repeats is none."""
    arrays = []
    for index in range(batches[0].num_columns):
        parts = [batch.column(index) for batch in batches]
        if len({part.type for part in parts}) > 1:
            parts = [part.dictionary_decode() if pa.types.is_dictionary(part.type) else part for part in parts]
        array = pa.chunked_array(parts).unify_dictionaries().combine_chunks()
        array = array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array
        if pa.types.is_dictionary(array.type) and 2 * len(array.dictionary) > len(array):
            array = array.dictionary_decode()
        arrays.append(array)
    return pa.RecordBatch.from_arrays(arrays, names=batches[0].schema.names)


class RunSlice:
    """The rows that a location gets of a run, from a file that is mapped."""

    def __init__(self, run: SortedRun, location: int, keys: Sequence[str]) -> None:
        first, self.rows = run.splits[location]
        file = pa.ipc.open_file(pa.memory_map(run.path))
        self._batches = [file.get_batch(first + i) for i in range(-(-self.rows // BATCH_ROWS))]
        self._keys = keys

    def make_key(self, row: int) -> tuple[Any, ...]:
        """Return a value that compares as rows are ordered."""
        batch = self._batches[row // BATCH_ROWS]
        return sort_key([batch.column(name) for name in self._keys], row % BATCH_ROWS)

    def cut(self, own_number: int, boundary: Boundary) -> int:
        """Return the number of rows before a boundary, when the run's number is `own_number`."""
        key, number, row = boundary
        if own_number == number:
            return row
        find = bisect.bisect_right if own_number < number else bisect.bisect_left
        return find(range(self.rows), key, key=self.make_key)

    def slice_batches(self, start: int, end: int) -> Iterator[pa.RecordBatch]:
        """Yield the rows from one to another."""
        while start < end:
            number, offset = divmod(start, BATCH_ROWS)
            count = min(BATCH_ROWS - offset, end - start)
            yield self._batches[number].slice(offset, count)
            start += count


def merge_runs(
    runs: Sequence[SortedRun], location: int, keys: Sequence[str], low: Boundary | None, high: Boundary | None
) -> Iterator[pa.RecordBatch]:
    """Yield the sorted rows from `low` on and before `high`, the part of each in the last column.

    Two pieces take memory.
    """
    splits = [RunSlice(run, location, keys) for run in runs]
    begins = [0 if low is None else split.cut(i, low) for i, split in enumerate(splits)]
    ends = [split.rows if high is None else split.cut(i, high) for i, split in enumerate(splits)]
    inner = _choose_boundaries(runs, splits, begins, ends)
    edges = [begins, *([split.cut(i, boundary) for i, split in enumerate(splits)] for boundary in inner), ends]
    for starts, stops in pairwise(edges):
        filled = [
            (split, start, stop) for split, start, stop in zip(splits, starts, stops, strict=True) if start < stop
        ]
        batches = [batch for split, start, stop in filled for batch in split.slice_batches(start, stop)]
        if not batches:
            continue
        piece = _join_batches(batches)
        if len(filled) > 1:
            order = compute_sort_order([piece.column(name) for name in keys], piece.num_rows)
            piece = piece.take(make_fixed_array(pa.int64(), order))
        yield piece


def _choose_boundaries(
    runs: Sequence[SortedRun], splits: Sequence[RunSlice], begins: Sequence[int], ends: Sequence[int]
) -> list[Boundary]:
    """Return boundaries between pieces of at most `PIECE_BYTES`, about."""
    rows = sum(ends) - sum(begins)
    width = sum(run.bytes for run in runs) / max(1, sum(count for run in runs for _, count in run.splits))
    max_rows = max(BATCH_ROWS, int(PIECE_BYTES / max(1.0, width)))
    if rows <= max_rows:
        return []
    step = max(1, max_rows // (2 * len(runs)))
    samples = [
        (split.make_key(row), i, row)
        for i, (split, begin, end) in enumerate(zip(splits, begins, ends, strict=True))
        for row in range(begin, end, step)
    ]
    return sorted(samples)[len(runs) :: len(runs)]

"""Splits of damaged logs: whatever is damaged and wherever a log is cut, the same rows come out."""

from __future__ import annotations

import os
import struct
import warnings
from dataclasses import replace
from itertools import pairwise
from typing import Any
from unittest.mock import patch

from hypothesis import example, given, settings
from hypothesis import strategies as st

import sawlog
from sawlog.deephaven.log import plan
from sawlog.deephaven.log.extent import measure_range
from sawlog.deephaven.log.fragments import make_log_range
from sawlog.format.damage import DamageWarning, Findings

from .reference import DELETE, Col, entry, header, row
from .support import put

COLS = [Col("N", "Int"), Col("S", "EnhancedString"), Col("B", "Blob")]
HEADER = header(COLS)
WAYS: list[dict[str, Any]] = [{"split": "scan"}, {"split": "resync", "deletes": "ignore"}]


def rows_of(path: str, task_bytes: int | None, **options: Any) -> list[int]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DamageWarning)
        dataset = sawlog.open(path, format="deephaven_log", on_damage="skip", columns=["N"], **options)
        return [n for f in dataset.fragments(task_bytes) for b in f.to_batches() for n in b.column("N").to_pylist()]


def build(entries: list[tuple[int, int]]) -> tuple[bytes, list[int]]:
    """A log of rows with these flags and sizes of values, and where they begin; some values hold logs themselves."""
    data = HEADER
    starts = []
    for index, (flags, size) in enumerate(entries):
        inner = b"".join(row(COLS, {"N": -1 - index, "S": "in"}) for _ in range(size % 5 if size % 3 == 0 else 0))
        starts.append(len(data))
        data += row(COLS, {"N": index, "S": "x" * size, "B": inner or None}, flags)
    return data, starts


FLAGS = st.sampled_from([0, 0, 1, 1, 2, 2, 3, 3, 3, 3])
ENTRIES = st.lists(st.tuples(FLAGS, st.integers(0, 40)), min_size=1, max_size=25)
CHANGES = st.lists(
    st.tuples(st.sampled_from(["flip", "size", "cut", "put", "zeros"]), st.floats(0, 1), st.integers(1, 255)),
    min_size=1,
    max_size=3,
)


def damage(data: bytes, starts: list[int], changes: list[tuple[str, float, int]]) -> bytes:
    for change, position, argument in changes:
        offset = len(HEADER) + int(position * max(len(data) - len(HEADER) - 1, 0))
        if change == "flip" and offset < len(data):
            data = data[:offset] + bytes([data[offset] ^ argument]) + data[offset + 1 :]
        elif change == "size":
            # An entry that claims to end where another one does.
            begin = starts[int(position * (len(starts) - 1))]
            end = starts[(starts.index(begin) + 1 + argument) % len(starts)]
            data = data[:begin] + struct.pack(">i", max(end - begin - 4, 5)) + data[begin + 4 :]
        elif change == "cut":
            data = data[:offset] + data[offset + argument :]
        elif change in ("put", "zeros"):
            data = (
                data[:offset]
                + (bytes(argument) if change == "zeros" else bytes([argument]) * (argument % 40))
                + data[offset:]
            )
    return data


@settings(max_examples=60)
@given(ENTRIES, CHANGES, st.lists(st.integers(1, 400), min_size=1, max_size=3))
@example([(3, 1), (3, 4), (3, 7), (3, 1), (3, 2)], [("size", 0.0, 2)], [30, 60])
@example([(3, 3), (3, 39), (3, 24)], [("flip", 0.0, 255)], [20])
def test_rows_of_a_damaged_log_do_not_depend_on_its_splits(entries, changes, sizes):
    data, starts = build(entries)
    path = put(damage(data, starts, changes))
    try:
        for options in WAYS:
            expected_rows = rows_of(path, None, **options)
            for size in sizes:
                assert rows_of(path, size, **options) == expected_rows
        assert rows_of(path, sizes[0], verify_checksums=False) == rows_of(path, None, verify_checksums=False)
    finally:
        os.unlink(path)


@settings(max_examples=60)
@given(ENTRIES, st.one_of(st.just([]), CHANGES), st.integers(1, 400), st.integers(2, 5))
@example([(3, 30)] * 25, [], 200, 3)
@example([(3, 30)] * 20 + [(1, 1), (0, 2), (2, 3)], [("flip", 0.9, 1)], 100, 2)
def test_rows_do_not_depend_on_how_many_threads_walk_the_log_for_cuts(entries, changes, size, threads):
    data, starts = build(entries)
    path = put(damage(data, starts, changes))
    try:
        with patch.object(plan, "PROOF_BYTES", 60), patch("sawlog.format.planning.PIECE_BYTES", 0):
            expected_rows = rows_of(path, None)
            assert rows_of(path, size, use_threads=threads) == expected_rows
            assert rows_of(path, None, use_threads=threads) == expected_rows
    finally:
        os.unlink(path)


def test_stretches_of_a_log_are_walked_side_by_side_and_tell_of_deletions():
    entries = [(3, 30)] * 30
    data, starts = build(entries)
    deletion = entry(4, DELETE)
    path = put(data[: starts[20]] + deletion + data[starts[20] :])
    results = []
    walked = plan.search_stretches

    def noted(*arguments: Any) -> Any:
        results.append(walked(*arguments))
        return results[-1]

    try:
        with (
            patch.object(plan, "PROOF_BYTES", 60),
            patch("sawlog.format.planning.PIECE_BYTES", 0),
            patch.object(plan, "search_stretches", noted),
        ):
            assert rows_of(path, 200, use_threads=3) == rows_of(path, None) == list(range(20, 30))
        assert [result.live_from for result in results] == [starts[20] + len(deletion)]
        assert len(results[0].cuts) > 3
        assert results[0].cuts == tuple(sorted(set(results[0].cuts)))
    finally:
        os.unlink(path)


def test_an_entry_that_claims_its_followers_loses_nothing_but_itself():
    data, starts = build([(3, 1), (3, 4), (3, 7), (3, 2), (3, 5)])
    path = put(data[: starts[1]] + struct.pack(">i", starts[3] - starts[1] - 4) + data[starts[1] + 4 :])
    try:
        assert rows_of(path, None) == [0, 2, 3, 4]
    finally:
        os.unlink(path)


def test_a_log_inside_a_damaged_value_is_not_mistaken_for_rows():
    data, starts = build([(3, 1), (3, 39), (3, 24), (3, 1)])
    assert data.count(struct.pack(">i", -2)) == 4
    path = put(data[: starts[1] + 15] + b"?" + data[starts[1] + 16 :])
    try:
        assert rows_of(path, None) == [0, 2, 3]
    finally:
        os.unlink(path)


@given(ENTRIES, st.one_of(st.just([]), CHANGES), st.sampled_from([1, 40, 200]))
@example([(1, 3), (0, 3), (2, 3), (3, 1), (1, 1), (3, 2), (0, 1)], [], 1)
@settings(max_examples=60)
def test_what_a_survey_cuts_is_the_whole(entries, changes, step):
    """Also where it stops early, and another one goes on from there."""
    data, starts = build(entries)
    path = put(damage(data, starts, changes))
    try:
        dataset = sawlog.open(path, format="deephaven_log", on_damage="skip", columns=["N"])
        (log,) = dataset.contents.logs
        whole_range = replace(next(iter(dataset.fragments())), end=log.file.size)
        bare = make_log_range(log.file, log.header, dataset.scan.options, dataset.scan.storage)
        range_measure = measure_range(bare, step, last=True)
        short_range = replace(whole_range, file=replace(whole_range.file, size=range_measure.end))

        def read(start: int, end: int) -> list[int]:
            batches = replace(short_range, start=start, end=end).to_batches(Findings("skip"))
            return [n for batch in batches for n in batch.column("N").to_pylist()]

        expected = read(whole_range.start, range_measure.end)
        bounds = [whole_range.start, *(cut for cut in range_measure.cuts if cut < range_measure.end), range_measure.end]
        assert [n for start, end in pairwise(bounds) for n in read(start, end)] == expected
        position, rows = whole_range.start, []
        while (part := measure_range(replace(bare, start=position), step, step, last=True)).stopped:
            assert part.end > position
            rows += read(position, part.end)
            position = part.end
        assert part.end == range_measure.end
        assert rows + read(position, part.end) == expected
    finally:
        os.unlink(path)

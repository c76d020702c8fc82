"""Vectors that are left, moved together where pyarrow has decoded them, against its filter of all."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sawlog.milvus.layout import BinlogDamageKind
from sawlog.milvus.payloads.payload import (
    BATCH_BYTES,
    DICTIONARY_BUDGET,
    ColumnStream,
    Extent,
    Payload,
    UnreadableError,
    compute_batch_rows,
)
from sawlog.storage import Storage

ROWS, WIDTH = 700, 8
RNG = np.random.default_rng(7)
DIFFERENT = pa.array([RNG.bytes(WIDTH) for _ in range(ROWS)], pa.binary(WIDTH))
ALIKE = pa.array([bytes([i % 5] * WIDTH) for i in range(ROWS)], pa.binary(WIDTH))
GAPS = pa.array([None if i % 7 == 0 else RNG.bytes(WIDTH) for i in range(ROWS)], pa.binary(WIDTH))
PLAIN = {"use_dictionary": False}

SHAPES: dict[str, tuple[pa.Array, dict[str, Any]]] = {
    "plain": (DIFFERENT, PLAIN),
    "optional": (DIFFERENT, PLAIN | {"optional": True}),
    "nulls": (GAPS, PLAIN | {"optional": True}),
    "nulls of some pages": (pa.concat_arrays([DIFFERENT, GAPS, DIFFERENT]), PLAIN | {"optional": True}),
    "dictionary": (ALIKE, {}),
    "dictionary, then plain": (DIFFERENT, {"dictionary_pagesize_limit": 600}),
    "row groups": (DIFFERENT, {"row_group_size": 90, "dictionary_pagesize_limit": 300}),
    "pages of version 2": (DIFFERENT, PLAIN | {"data_page_version": "2.0"}),
    "not compressed": (DIFFERENT, PLAIN | {"compression": "none"}),
    "another codec": (DIFFERENT, PLAIN | {"compression": "snappy"}),
    "nothing": (DIFFERENT.slice(0, 0), PLAIN),
}


def payload_of(place: Path, values: pa.Array, *, optional: bool = False, **options: Any) -> Payload:
    schema = pa.schema([pa.field("val", values.type, nullable=optional)])
    settings_ = {"compression": "zstd", "data_page_size": 512, "write_batch_size": 16, "store_schema": False} | options
    pq.write_table(pa.table([values], schema=schema), place, **settings_)
    return Payload(Storage().open(place), str(place), Extent(0, place.stat().st_size), 1 << 20)


@pytest.mark.parametrize("name", SHAPES)
@settings(max_examples=8, deadline=None)
@given(st.integers(0, 1 << 32), st.sampled_from([0.0, 0.1, 0.9, 1.0]))
def test_what_is_kept_is_what_a_filter_keeps(
    name: str, tmp_path_factory: pytest.TempPathFactory, seed: int, share: float
) -> None:
    values, options = SHAPES[name]
    payload = payload_of(tmp_path_factory.getbasetemp() / name.replace(" ", "-"), values, **options)
    stream = ColumnStream([payload, payload], 0, 100)
    doubled = pa.concat_arrays([values, values])
    rng = np.random.default_rng(seed)
    position = 0
    while position < len(doubled):
        count = int(rng.integers(1, min(300, len(doubled) - position) + 1))
        if rng.random() < 0.2:
            taken_values, expected = stream.take(count), doubled.slice(position, count)
        else:
            keep = (rng.random(count) >= share).astype(np.uint8)
            taken_values = stream.take_selected(keep, int(keep.sum()))
            expected = doubled.slice(position, count).filter(pa.array(keep == 1))
        assert taken_values is not None
        taken_values.validate(full=True)
        assert taken_values.equals(expected)
        position += count
    assert stream.take_selected(np.ones(1, np.uint8), 1) is None


@pytest.mark.parametrize("name", ["plain", "dictionary, then plain", "not compressed"])
def test_vectors_stay_in_their_memory(name: str, tmp_path: Path) -> None:
    """Those of a batch are moved, not copied; what follows them, and the file's bytes, are not touched."""
    values, options = SHAPES[name]
    payload = payload_of(tmp_path / "file", values, **options)
    stream = ColumnStream([payload], 0, ROWS)
    before = stream.take(1)
    assert before is not None
    keep = np.arange(ROWS - 2, dtype=np.uint8) % 2
    taken_values = stream.take_selected(keep, int(keep.sum()))
    assert taken_values is not None
    assert taken_values.buffers()[1].address == before.buffers()[1].address
    assert taken_values.equals(values.slice(1, ROWS - 2).filter(pa.array(keep == 1)))
    assert before.equals(values.slice(0, 1))
    assert stream.take(1).equals(values.slice(ROWS - 1))
    assert pa.chunked_array(list(payload.read_column_batches(0, ROWS))).combine_chunks().equals(values)


def test_broken_pages_are_damage(tmp_path: Path) -> None:
    values, options = SHAPES["plain"]
    place = tmp_path / "file"
    payload_of(place, values, **options)
    data = place.read_bytes()
    kinds = set()
    for offset in range(4, 400, 3):
        place.write_bytes(data[:offset] + bytes([data[offset] ^ 0xFF]) + data[offset + 1 :])
        payload = Payload(Storage().open(place), str(place), Extent(0, len(data)), 1 << 20)
        try:
            taken_values = ColumnStream([payload], 0, 100).take_selected(np.ones(ROWS, np.uint8), ROWS)
        except UnreadableError as error:
            kinds.add(error.damage.kind)
        else:
            assert taken_values is None or len(taken_values) == ROWS
    assert BinlogDamageKind.BAD_PAYLOAD.label in kinds
    small = Payload(Storage().open(place), str(place), Extent(0, len(data)), 100)
    with pytest.raises(UnreadableError, match="max_item_bytes is 100"):
        ColumnStream([small], 0, 100).take_selected(np.ones(ROWS, np.uint8), ROWS)


def test_a_dictionary_of_one_long_vector_makes_small_batches(tmp_path: Path) -> None:
    """A file of a few kilobytes does not become gigabytes."""
    width = 64 << 10
    column = pa.array([b"x" * width] * 500, pa.binary(width))
    payload = payload_of(tmp_path / "file", column)
    assert (tmp_path / "file").stat().st_size < width
    assert compute_batch_rows([(payload, 0)]) * width <= BATCH_BYTES
    assert payload.compute_row_limit(0) * width <= DICTIONARY_BUDGET


def test_a_long_list_of_one_value_is_damage(tmp_path: Path) -> None:
    """Lists are not cut, so that a few kilobytes could become gigabytes in a single row."""
    place = tmp_path / "file"
    many = 1 << 20
    for version in ("1.0", "2.0"):
        pq.write_table(pa.table({"val": [np.zeros(many, np.int64)]}), place, data_page_version=version)
        assert place.stat().st_size < 64 << 10
        payload = Payload(Storage().open(place), str(place), Extent(0, place.stat().st_size), 1 << 20)
        with pytest.raises(UnreadableError, match="lists of 1048576 elements") as caught:
            list(payload.read_column_batches(0, 100))
        assert caught.value.damage.kind == BinlogDamageKind.PAYLOAD_TOO_LARGE.label
        large = Payload(Storage().open(place), str(place), Extent(0, place.stat().st_size), 8 << 20)
        assert [len(array.flatten()) for array in large.read_column_batches(0, 100)] == [many]

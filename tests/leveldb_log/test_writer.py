from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import sawlog
from sawlog.errors import OptionError, SchemaError
from sawlog.format.recognition import get_format
from sawlog.leveldb.options import LogWriteOptions
from sawlog.storage import Storage, discard_staged

from .fragments import BLOCK, FIRST, fragment, scan, scan_file, write

RECORDS = [b"one", b"", b"three" * 10_000, b"four"]


def make_table(records: list, kind: pa.DataType | None = None) -> pa.Table:
    return pa.table({"record": pa.array(records, kind or pa.binary())})


def write_and_read(path: Path, records: list[bytes], **options: object) -> bytes:
    sawlog.write(make_table(records), path, format="leveldb_log", **options)
    return path.read_bytes()


record_lists = st.lists(
    st.one_of(st.binary(max_size=60), st.integers(32_700, 32_800).map(bytes), st.integers(0, 100_000).map(bytes)),
    max_size=12,
)


@given(record_lists, st.sampled_from([None, 7, 2**32 + 5]))
def test_any_records_are_written_as_the_reference_does(tmp_path_factory, records: list[bytes], log: int | None) -> None:
    path = tmp_path_factory.getbasetemp() / "4294967301.log"
    options = {} if log is None else {"dialect": "rocksdb", "log_number": log}
    data = write_and_read(path, records, **options)
    assert data == write(*records, log=None if log is None else log & 0xFFFFFFFF)
    assert data == write_and_read(path, records, **options), "not deterministic"
    assert scan(data, name="named-otherwise").records == records


@pytest.mark.parametrize(
    "kind",
    [pa.binary(), pa.large_binary(), pa.string(), pa.large_string(), pa.binary_view(), pa.string_view()],
    ids=str,
)
def test_every_type_that_holds_bytes(kind: pa.DataType, tmp_path: Path) -> None:
    values = ["a", "", "ccc" * 20_000, "é", "e"]
    if not any(test(kind) for test in (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)):
        values = [value.encode() for value in values]
    expected = [value if isinstance(value, bytes) else value.encode() for value in values]
    whole_table = make_table(values, kind)
    path = tmp_path / "1.log"
    for part, expected_values in [
        (whole_table, expected),
        (whole_table.slice(1, 3), expected[1:4]),
        (whole_table.slice(2, 0), []),
    ]:
        sawlog.write(part, path, format="leveldb_log")
        assert path.read_bytes() == write(*expected_values)


def test_fixed_size_binary(tmp_path: Path) -> None:
    sawlog.write(make_table([b"ab", b"cd"], pa.binary(2)).slice(1), tmp_path / "1.log", format="leveldb_log")
    assert (tmp_path / "1.log").read_bytes() == write(b"cd")


def test_many_batches_are_one_stream_of_records(tmp_path: Path) -> None:
    batches = [make_table([bytes([i]) * size]).to_batches()[0] for i, size in enumerate([5, 32_761, 0, 90_000] * 10)]
    sawlog.write(pa.Table.from_batches(batches), tmp_path / "1.log", format="leveldb_log")
    records = [bytes([i]) * size for i, size in enumerate([5, 32_761, 0, 90_000] * 10)]
    assert (tmp_path / "1.log").read_bytes() == write(*records)


def test_no_rows_make_an_empty_log(tmp_path: Path) -> None:
    assert write_and_read(tmp_path / "1.log", []) == b""
    assert scan(b"").records == []


def test_large_offsets_are_taken_relative_to_the_slice(tmp_path: Path) -> None:
    sparse = tmp_path / "sparse"
    with open(sparse, "wb") as file:
        file.truncate((3 << 30) + 8)
    data = np.memmap(sparse, np.uint8, "r")
    offsets = np.array([0, 1 << 30, 3 << 30, (3 << 30) + 3, (3 << 30) + 8], np.int64)
    column = pa.Array.from_buffers(pa.large_binary(), 4, [None, pa.py_buffer(offsets), pa.py_buffer(data)])
    sawlog.write(pa.table({"record": column.slice(2)}), tmp_path / "1.log", format="leveldb_log")
    assert (tmp_path / "1.log").read_bytes() == write(bytes(3), bytes(5))
    with pytest.raises(SchemaError, match="2 GiB"):
        sawlog.write(pa.table({"record": column.slice(1, 1)}), tmp_path / "2.log", format="leveldb_log")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["1.log", "sparse"]


@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary()])
@pytest.mark.parametrize("bad", [[0, 5, 3, 9], [0, 99, 3, 9], [0, -4, 8, 9]])
def test_arrays_that_lie_about_their_offsets(kind: pa.DataType, bad: list[int], tmp_path: Path) -> None:
    offsets = np.array(bad, np.int32 if kind == pa.binary() else np.int64)
    column = pa.Array.from_buffers(kind, 3, [None, pa.py_buffer(offsets), pa.py_buffer(b"123456789")])
    batch = pa.RecordBatch.from_arrays([column], names=["record"])
    writer = get_format("leveldb_log").writer(str(tmp_path / "1.log"), batch.schema, LogWriteOptions(), Storage())
    with pytest.raises(SchemaError, match="invalid"), writer:
        writer.write(batch)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (make_table([b"a", None, b"c"]), "column 'record', row 1: a log cannot hold null"),
        (pa.concat_tables([make_table([b"a", b"b"]), make_table([b"a", None])]), "column 'record', row 3"),
        (pa.table({"payload": [b"a"]}), "found: payload"),
        (pa.table({"record": [b"a"], "more": [1]}), "found: record, more"),
        (make_table([1, 2], pa.int64()), "column 'record' is int64"),
    ],
)
def test_what_a_log_cannot_hold_is_an_error(data: pa.Table, message: str, tmp_path: Path) -> None:
    with pytest.raises(SchemaError, match=message):
        sawlog.write(data, tmp_path / "1.log", format="leveldb_log")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "options", [{"dialect": "rocksdb"}, {"log_number": 3}, {"dialect": "rocksdb", "log_number": -1}]
)
def test_log_numbers_belong_to_recyclable_headers(options: dict, tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="log_number"):
        sawlog.write(make_table([]), tmp_path / "1.log", format="leveldb_log", **options)


def test_an_aborted_write_leaves_nothing(tmp_path: Path) -> None:
    batch = make_table([b"x" * 3_000_000]).to_batches()[0]
    writer = get_format("leveldb_log").writer(str(tmp_path / "1.log"), batch.schema, LogWriteOptions(), Storage())
    writer.write(batch)
    assert len(list(tmp_path.iterdir())) == 1
    writer.abort()
    assert list(tmp_path.iterdir()) == []


def test_append_continues_as_one_writer_would(tmp_path: Path) -> None:
    path = tmp_path / "1.log"
    write_and_read(path, [b"hello"], append=True)
    write_and_read(path, [b"world"], append=True)
    assert write_and_read(path, RECORDS, append=True) == write(b"hello", b"world", *RECORDS)


@pytest.mark.parametrize("log", [None, 7])
def test_append_after_every_truncation(log: int | None, tmp_path: Path) -> None:
    path = tmp_path / "000007.log"
    options = {} if log is None else {"dialect": "rocksdb", "log_number": log}
    old = [b"first", b"", b"second" * 5]
    whole_log = write(*old, log=log)
    ends = [len(write(*old[: i + 1], log=log)) for i in range(3)]
    for size in range(len(whole_log) + 1):
        path.write_bytes(whole_log[:size])
        write_and_read(path, [b"new", b"newer"], append=True, **options)
        reading = scan_file(path)
        old_records = old[: sum(1 for end in ends if end <= size)]
        assert reading.records == [*old_records, b"new", b"newer"]
        assert reading.damages == []
        assert path.read_bytes() == write(*old_records, b"new", b"newer", log=log)


@pytest.mark.parametrize(
    "tail",
    [
        fragment(FIRST, b"x" * (BLOCK - 20)),
        write(b"x" * 100_000, start=10)[:70_000],
        bytes(100),
        bytes(3 * BLOCK + 3),
        b"\1\2\3",
    ],
    ids=["open", "torn in pieces", "zeros", "blocks of zeros", "torn header"],
)
def test_append_cuts_unfinished_tails_off(tail: bytes, tmp_path: Path) -> None:
    path = tmp_path / "1.log"
    path.write_bytes(write(b"old") + tail)
    assert write_and_read(path, RECORDS, append=True) == write(b"old", *RECORDS)


def test_append_after_damage_keeps_the_damage_and_what_stands_after_it(tmp_path: Path) -> None:
    path = tmp_path / "1.log"
    data = bytearray(write(b"a", b"b" * 40_000, b"c"))
    data[2] ^= 1
    path.write_bytes(data)
    write_and_read(path, [b"new"], append=True)
    assert path.read_bytes()[: len(data)] == data
    assert scan_file(path).records == [b"c", b"new"]


def test_an_aborted_append_leaves_the_log_as_it_was_found_or_cut(tmp_path: Path) -> None:
    path = tmp_path / "1.log"
    path.write_bytes(write(b"old") + b"torn")
    batch = make_table([b"new" * 1_000_000]).to_batches()[0]
    for records in (0, 1):
        writer = get_format("leveldb_log").writer(str(path), batch.schema, LogWriteOptions(append=True), Storage())
        writer.write(batch.slice(0, records))
        writer.abort()
        assert path.read_bytes() == write(b"old") + (b"" if records else b"torn")


def test_discarding_an_append_never_deletes_the_log(tmp_path: Path) -> None:
    path = tmp_path / "1.log"
    path.write_bytes(write(b"old"))
    storage = Storage()
    schema = make_table([]).schema
    writer = get_format("leveldb_log").writer(str(path), schema, LogWriteOptions(append=True), storage)
    staged = writer.finish()
    discard_staged(storage, staged)
    assert path.read_bytes() == write(b"old")


@pytest.mark.parametrize(
    ("log", "options", "message"),
    [
        (write(b"x", log=7), {}, "log_number=7"),
        (write(b"x", log=7), {"dialect": "rocksdb", "log_number": 8}, "log_number=7"),
        (write(b"x"), {"dialect": "rocksdb", "log_number": 7}, "no recyclable headers"),
        (fragment(9, b"\7\0\0\0"), {}, "compressed"),
    ],
)
def test_append_refuses_what_it_cannot_continue(log: bytes, options: dict, message: str, tmp_path: Path) -> None:
    path = tmp_path / "000007.log"
    path.write_bytes(log)
    with pytest.raises(OptionError, match=message):
        write_and_read(path, [b"new"], append=True, **options)
    assert path.read_bytes() == log


def test_append_needs_a_local_file() -> None:
    sawlog.write(make_table([b"old"]), "memory://append.log", format="leveldb_log")
    with pytest.raises(OptionError, match="local"):
        sawlog.write(make_table([b"new"]), "memory://append.log", format="leveldb_log", append=True)


def test_published_files_are_durable_and_alone(tmp_path: Path) -> None:
    staged = sawlog.write(make_table(RECORDS), tmp_path / "deep" / "1.log", format="leveldb_log")
    assert os.listdir(tmp_path / "deep") == ["1.log"]
    assert [file.size for file in staged] == [len(write(*RECORDS))]

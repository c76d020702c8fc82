"""Logs to measure with: printable pseudo-random records of one length, so that Spark's text reader takes them too."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa

import sawlog
from sawlog.leveldb.log import layout

SEED = 7
CHUNK = 16 << 20
_ALPHABET = np.frombuffer(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_", np.uint8)

BATCH_HEADER = 12
PUT = 1
KEY_LENGTH = 16


def records(count: int, length: int) -> Iterator[pa.RecordBatch]:
    """Batches of printable records."""
    for rows in _chunks(count, length):
        yield _batch(_printable(rows, length))


def write_batches(count: int, length: int) -> Iterator[pa.RecordBatch]:
    """Batches of records that are write batches of LevelDB, `length` bytes each: one put of a fresh key."""
    for first, rows in _numbered_chunks(count, length):
        value = length - BATCH_HEADER - 2 - KEY_LENGTH - 1
        while BATCH_HEADER + 2 + KEY_LENGTH + len(_varint(value)) + value > length:
            value -= 1
        head = np.frombuffer(_varint(value), np.uint8)
        table = _printable(rows, length)
        numbers = np.arange(first, first + rows, dtype="<u8")
        table[:, :8] = (numbers + 1)[:, None].view(np.uint8).reshape(rows, 8)
        table[:, 8:12] = np.frombuffer(np.uint32(1).tobytes(), np.uint8)
        table[:, 12] = PUT
        table[:, 13] = KEY_LENGTH
        digits = numbers[:, None] // 10 ** np.arange(KEY_LENGTH - 1, -1, -1, dtype=np.uint64) % 10
        table[:, 14:30] = digits + ord("0")
        table[:, 30 : 30 + len(head)] = head
        yield _batch(table)


def write_log(path: Path, batches: Iterator[pa.RecordBatch]) -> Path:
    """Write a log; record batches are made as they are needed."""
    schema = pa.schema([pa.field("record", pa.binary(), nullable=False)])
    sawlog.write(pa.RecordBatchReader.from_batches(schema, batches), path, format="leveldb_log")
    return path


def count_for(size: int, length: int) -> int:
    """How many records of a length make a log of about `size` bytes."""
    return max(1, size // (length + layout.HEADER_SIZE))


def _chunks(count: int, length: int) -> Iterator[int]:
    for _, rows in _numbered_chunks(count, length):
        yield rows


def _numbered_chunks(count: int, length: int) -> Iterator[tuple[int, int]]:
    step = max(1, CHUNK // length)
    for first in range(0, count, step):
        yield first, min(step, count - first)


def _printable(rows: int, length: int) -> np.ndarray:
    noise = np.frombuffer(np.random.default_rng([SEED, rows, length]).bytes(rows * length), np.uint8)
    return _ALPHABET[noise & 63].reshape(rows, length)


def _batch(table: np.ndarray) -> pa.RecordBatch:
    rows, length = table.shape
    offsets = np.arange(0, (rows + 1) * length, length, dtype=np.int32)
    array = pa.BinaryArray.from_buffers(pa.binary(), rows, [None, pa.py_buffer(offsets), pa.py_buffer(table)])
    return pa.RecordBatch.from_arrays([array], schema=pa.schema([pa.field("record", pa.binary(), nullable=False)]))


def _varint(number: int) -> bytes:
    groups = bytearray()
    while number >= 0x80:
        groups.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*groups, number])

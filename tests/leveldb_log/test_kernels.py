"""Small inputs that reach every branch of the kernels: quick enough for plain Python and for checked builds."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import sawlog
from tests.support import write_records

from .fragments import BLOCK, FIRST, LAST, MIDDLE, fragment, read_in_agreement, scan, write

RECORDS = [b"", b"x", b"hello", b"y" * 130, b"", bytes(range(60))]
ACROSS = write(b"a" * (BLOCK - 60), b"b" * 90, b"", b"c")


@pytest.fixture(autouse=True)
def narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches, events and windows so small that they run out everywhere."""
    monkeypatch.setattr("sawlog.leveldb.log.walk.BATCH_BYTES", 50)
    monkeypatch.setattr("sawlog.leveldb.log.walk.BATCH_ROWS", 2)
    monkeypatch.setattr("sawlog.chain.walk.EVENT_ROOM", 3)
    monkeypatch.setattr("sawlog.chain.walk.WINDOW_BYTES", BLOCK)


@pytest.mark.parametrize("log", [None, 7])
def test_write_and_read(log: int | None, tmp_path: Path) -> None:
    path = tmp_path / "000007.log"
    records = [*RECORDS, b"z" * (BLOCK - 300), *RECORDS]
    options = {} if log is None else {"dialect": "rocksdb", "log_number": log}
    write_records(path, records, **options)
    data = path.read_bytes()
    assert data == write(*records, log=log)
    assert scan(data).records == records
    assert scan(data, verify_checksums=False).records == records
    assert scan(data, BLOCK, verify_checksums=False).records == records
    assert sawlog.open(path, verify_checksums=False).count_rows() == len(records)


def test_small_logs_cut_and_damaged_at_every_byte() -> None:
    data = write(*RECORDS)
    for offset in range(0, len(data), 3):
        read_in_agreement(data[:offset])
        read_in_agreement(data[:offset] + bytes([data[offset] ^ 0x41]) + data[offset + 1 :])
        read_in_agreement(data[:offset] + b"\xff\xff" + data[offset:])


@pytest.mark.parametrize("offset", [5, BLOCK - 49, BLOCK + 4])
def test_damage_around_a_block_boundary_is_judged_alike(offset: int) -> None:
    read_in_agreement(ACROSS[:offset] + bytes([ACROSS[offset] ^ 0x03]) + ACROSS[offset + 1 :])


def test_fragments_of_every_kind_in_every_order() -> None:
    rng = random.Random(1)
    for _ in range(60):
        pieces = [
            fragment(rng.choice([0, 1, 1, 2, 3, 4, 5, 77, 130]), rng.randbytes(rng.randrange(20))) for _ in range(8)
        ]
        read_in_agreement(b"".join(pieces))


def test_recycled_fragments_in_every_order() -> None:
    rng = random.Random(2)
    for _ in range(60):
        pieces = [write(b"first", log=7)]
        for _ in range(7):
            kind = rng.choice([0, 1, 5, 5, 6, 7, 8, 10, 11, 130, 131])
            log = rng.choice([7, 7, 7, 3]) if kind in {5, 6, 7, 8, 11, 131} else None
            pieces.append(fragment(kind, rng.randbytes(rng.randrange(20)), log))
        data = b"".join(pieces)
        for size in (len(data), len(data) - rng.randrange(30)):
            table = scan(data[:size], dialect="rocksdb")
            assert table.records[:1] == [b"first"]
            assert all(record in data for record in table.records)


def test_long_trailers_of_long_headers() -> None:
    for room in (0, 6, 7, 10, 11, 12):
        first = b"x" * (BLOCK - 11 - room)
        data = write(first, b"second", log=7)
        assert scan(data, verify_checksums=False).records == [first, b"second"]


def test_records_in_pieces_outgrow_every_buffer() -> None:
    log = fragment(FIRST, b"a" * 40) + b"".join(fragment(MIDDLE, bytes([i]) * 50) for i in range(10))
    table = scan(log + fragment(LAST, b"z" * 70) + write(b"next"))
    assert [len(record) for record in table.records] == [610, 4]
    table = scan(log + fragment(LAST, b"z" * 70) + write(b"next"), max_item_bytes=600)
    assert table.records == [b"next"]
    assert [damage.kind for damage in table.damages] == ["record_too_large"]


def test_frames_are_measured_within_their_bounds() -> None:
    from sawlog.leveldb.codecs import BROKEN, measure_frames

    rng = random.Random(4)
    for content in (b"", b"abc", b"abc" * 100, bytes(70_000)):
        frame = pa.Codec("zstd").compress(content, asbytes=True)
        for size in {*range(min(len(frame), 40)), len(frame)}:
            cut = bytearray(frame[:size])
            for damaged in range(3):
                sizes, bounds = np.empty(1, np.int64), np.empty(1, np.int64)
                measure_frames(np.frombuffer(bytes(cut), np.uint8), np.array([0, size], np.int32), sizes, bounds)
                if not damaged:
                    intact = size == len(frame)
                    assert sizes[0] == (len(content) if intact else BROKEN if size else 0)
                    assert bounds[0] >= sizes[0]
                if size:
                    cut[rng.randrange(size)] = rng.randrange(256)

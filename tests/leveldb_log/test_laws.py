"""LevelDB logs keep the laws."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa

from sawlog.leveldb.datastore.layout import ENTITY_DAMAGE
from sawlog.leveldb.records.layout import EDIT_DAMAGE, BatchDamageKind
from sawlog.testing import Exemption, Laws, Sample, Span
from tests.bytes import mask_crc

from .datastore import entity
from .fragments import BLOCK, HEADER, fragment, offsets, write
from .mutators import MUTATORS

RECORDS = [b"", b"x", b"hello", b"y" * 60, b"", bytes(range(40))]
FEW = [b"first", b"", b"z" * 40]

BROKEN = (
    "If damage breaks a record that began before it, `fail` raises the damage that was found first, not the"
    " broken record."
)


class TestLaws(Laws):
    page = Path(__file__).parents[2] / "docs/formats/leveldb-log.md"
    mutators = MUTATORS
    test_removal = None  # every file is a sample of its own
    exemptions = (
        Exemption("lying_numbers", BROKEN, ["blocks"], told="skip first .*broken_record"),
        Exemption("agreed", BROKEN, told="skip first .*broken_record", fuzzed=True),
    )

    @classmethod
    def samples(cls) -> Sequence[Sample]:
        return [
            _plain(),
            _blocks(),
            _recyclable(),
            _resync(),
            _stale(),
            _sync(),
            _compressed(),
            _writes("writes"),
            _writes("latest", latest=True),
            _edits("edits"),
            _edits("files"),
            _entities("json"),
            _entities("infer"),
        ]


def _plain() -> Sample:
    rows = _rows(RECORDS)
    headers = [Span(offset, HEADER) for offset in offsets(*RECORDS)]
    return Sample(
        "records",
        "leveldb_log",
        write(*RECORDS),
        "000007.log",
        headers=headers,
        checked=True,
        rows=rows,
        grows=True,
        written=rows,
        body=0,
    )


def _blocks() -> Sample:
    """Records that cross blocks, where logs are cut."""
    records = [b"a" * 32_600, b"b" * 300, b"", b"c" * 33_000, b"end"]
    return Sample("blocks", "leveldb_log", write(*records), "000007.log", checked=True, rows=_rows(records))


def _rows(records: Sequence[bytes]) -> pa.Table:
    return pa.table({"record": pa.array(records, pa.binary())})


def _recyclable() -> Sample:
    """RocksDB's headers with the number of the log. At the end, a torn log looks like a recycled one."""
    rows = _rows(FEW)
    return Sample(
        "recyclable",
        "leveldb_log",
        write(*FEW, log=7),
        "000007.log",
        options={"dialect": "rocksdb"},
        checked=True,
        rows=rows,
        grows=True,
        repaired="rows",
        written=rows,
        write_options={"dialect": "rocksdb", "log_number": 7},
    )


def _resync() -> Sample:
    """Rows after damage are marked, so they are not rows of the intact sample; see `test_forensics`."""
    data = write(*RECORDS)
    headers = [Span(offset, HEADER) for offset in offsets(*RECORDS)]
    options = {"salvage": "damaged"}
    return Sample("resync", "leveldb_log", data, "000007.log", options=options, headers=headers, repaired="no")


def _stale() -> Sample:
    """A log that was log 3 before. What is left of that is no damage wherever it cannot be read."""
    data = write(b"first", log=7) + bytes(40) + bytes(BLOCK - 16 - 40) + write(b"old", b"older", log=3)
    return Sample("stale", "leveldb_log", data, "000007.log", options={"salvage": "stale"}, repaired="no")


def _sync() -> Sample:
    """Pebble's headers, with the offset up to which the log is synced."""
    pieces = [(9, b"first"), (10, b"be"), (11, b"gu"), (12, b"n"), (9, b"")]
    return Sample(
        "sync",
        "leveldb_log",
        _pebble(pieces),
        "000007.log",
        options={"dialect": "pebble"},
        checked=True,
        rows=_rows([b"first", b"begun", b""]),
        grows=True,
        repaired="rows",
    )


def _pebble(pieces: Sequence[tuple[int, bytes]]) -> bytes:
    out = b""
    for kind, payload in pieces:
        checked = bytes([kind]) + struct.pack("<IQ", 7, 0) + payload
        out += struct.pack("<IH", mask_crc(checked), len(payload)) + checked
    return out


def _compressed() -> Sample:
    frames = [pa.Codec("zstd").compress(record, asbytes=True) for record in FEW]
    return Sample(
        "compressed",
        "leveldb_log",
        fragment(9, struct.pack("<I", 7)) + write(*frames, start=11),
        "000007.log",
        options={"dialect": "rocksdb"},
        checked=True,
        rows=_rows(FEW),
        grows=True,
        repaired="rows",
    )


def _writes(name: str, **options: object) -> Sample:
    def batch(sequence: int, *operations: bytes) -> bytes:
        return struct.pack("<QI", sequence, len(operations)) + b"".join(operations)

    records = [
        batch(1, b"\x01\x01a\x03one"),
        batch(2, b"\x00\x01a", b"\x05\x02\x01b\x03two"),
        batch(4, b"\x0f\x01a\x01c"),
    ]
    return Sample(
        name,
        "leveldb_log",
        write(*records),
        "000007.log",
        view="writes",
        options=options,
        checked=not options,
        blocks=True,
        folded=bool(options),
        kept=[kind.name.lower() for kind in BatchDamageKind],
        ordered=not options,
        grows=not options,
    )


def _edits(view: str) -> Sample:
    table = b"\x07\x00\x05\x7b" + 2 * (b"\x09k" + struct.pack("<Q", 5 << 8 | 1))
    records = [b"\x01\x1aleveldb.BytewiseComparator\x02\x03\x03\x04\x04\x00", table, b"\x06\x00\x05"]
    folded = view == "files"
    return Sample(
        view,
        "leveldb_log",
        write(*records),
        "MANIFEST-000002",
        view=view,
        checked=not folded,
        kept=[EDIT_DAMAGE],
        ordered=not folded,
        grows=not folded,
    )


def _entities(schema: str) -> Sample:
    # With an inferred schema, what is lost must not take a column with it: then there is nothing to compare.
    properties = ({"a": 1, "t": "x"}, {"t": "y", "a": 2}) if schema == "infer" else ({"a": 1}, {"f": 0.5, "l": [1, 2]})
    records = [entity(properties[0]), entity(properties[1], [("k", 7)])]
    data = write(*records)
    options = {"properties": schema}
    return Sample(
        f"entities_{schema}",
        "leveldb_log",
        data,
        "output-0",
        view="entities",
        options=options,
        checked=True,
        grows=True,
        kept=[ENTITY_DAMAGE],
    )

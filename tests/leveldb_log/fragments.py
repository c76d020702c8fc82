"""Logs for tests, built and read without any code of sawlog's: fragments by hand, a writer, and LevelDB's reader."""

from __future__ import annotations

import struct
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

import sawlog
from sawlog.format.damage import Account, Damage, Findings, Tail
from sawlog.testing.outcome import check_account
from tests.bytes import encode_varint, mask_crc

BLOCK = 32768
HEADER = 7
FULL, FIRST, MIDDLE, LAST = 1, 2, 3, 4
REFERENCE_REASONS = {
    "bad_length": "bad record length",
    "checksum_mismatch": "checksum mismatch",
    "unsupported": "unknown record type",
    "partial_record": "partial record without end",
    "missing_start": "missing start of fragmented record",
    "broken_record": "error in middle of record",
    "read_error": "read error",
}
"""How LevelDB's own reader begins the reason it reports for each kind."""


def fragment(kind: int, payload: bytes, log: int | None = None) -> bytes:
    """One fragment; with a recyclable header where `log` is given."""
    checked = bytes([kind]) + (b"" if log is None else struct.pack("<I", log)) + payload
    return struct.pack("<IH", mask_crc(checked), len(payload)) + checked


def write(*records: bytes, log: int | None = None, start: int = 0) -> bytes:
    """What LevelDB's writer appends to a log of `start` bytes; with recyclable headers where `log` is given."""
    header, shift = (HEADER, 0) if log is None else (11, 4)
    out = bytearray()
    for record in records:
        remainder, first = record, True
        while first or remainder:
            room = BLOCK - (start + len(out)) % BLOCK
            if room < header:
                out += bytes(room)
                room = BLOCK
            piece, remainder = remainder[: room - header], remainder[room - header :]
            kind = (FIRST if remainder else FULL) if first else (MIDDLE if remainder else LAST)
            out += fragment(kind + shift, piece, log)
            first = False
    return bytes(out)


def offsets(*records: bytes) -> list[int]:
    """Where the records of `write(*records)` start."""
    size, offset_list = 0, []
    for record in records:
        room = BLOCK - size % BLOCK
        offset_list.append(size + (room if room < HEADER else 0))
        size += len(write(record, start=size))
    return offset_list


@dataclass
class LogReading:
    """What a reader made of a log."""

    rows: list[tuple[int, bytes]] = field(default_factory=list)
    drops: list[tuple[int, str]] = field(default_factory=list)
    damages: list[Damage] = field(default_factory=list)
    account: Account = field(default_factory=Account)
    tail: Tail | None = None

    @property
    def records(self) -> list[bytes]:
        return [record for _, record in self.rows]

    @property
    def ranges(self) -> list[tuple[int, int, str]]:
        return [(damage.offset, damage.length, damage.kind) for damage in self.damages]


def reference(data: bytes) -> LogReading:
    """LevelDB's reader as section 3 of the format describes it, without the quirks of section 3.3."""
    reading = LogReading()
    record: tuple[int, bytes] | None = None

    def drop(size: int, reason: str) -> None:
        reading.drops.append((size, reason))

    for start in range(0, len(data), BLOCK):
        block = data[start : start + BLOCK]
        last = len(block) < BLOCK
        offset = 0
        while len(block) - offset >= HEADER:
            remaining = len(block) - offset
            stored, length, kind = struct.unpack_from("<IHB", block, offset)
            too_long = HEADER + length > remaining
            if too_long and last:
                return reading
            unused = kind == 0 and length == 0
            if too_long or unused or mask_crc(block[offset + 6 : offset + HEADER + length]) != stored:
                if not unused:
                    drop(remaining, "bad record length" if too_long else "checksum mismatch")
                if record is not None:
                    drop(len(record[1]), "error in middle of record")
                record = None
                break
            payload = block[offset + HEADER : offset + HEADER + length]
            if kind in (FULL, FIRST):
                if record is not None and record[1]:
                    drop(len(record[1]), "partial record without end")
                record = (start + offset, payload)
            elif kind in (MIDDLE, LAST):
                if record is None:
                    drop(len(payload), "missing start of fragmented record")
                else:
                    record = (record[0], record[1] + payload)
            else:
                drop(len(payload) + (len(record[1]) if record is not None else 0), "unknown record type")
                record = None
            if kind in (FULL, LAST) and record is not None:
                reading.rows.append(record)
                record = None
            offset += HEADER + length
    return reading


def scan_file(path: Path | str, task_bytes: int | None = None, **arguments: object) -> LogReading:
    """What sawlog makes of a log."""
    dataset = sawlog.open(
        path, format="leveldb_log", columns=["_offset", "record"], on_damage="skip", **{"dialect": "auto", **arguments}
    )
    reading = LogReading()
    for fragment in dataset.fragments(task_bytes):
        findings = Findings("skip")
        for batch in fragment.to_batches(findings):
            reading.rows += zip(*(column.to_pylist() for column in batch.columns), strict=True)
        reading.damages += findings.damages
        reading.account.add(findings.account)
        reading.tail = findings.tail or reading.tail
    reading.drops = [(d.dropped, REFERENCE_REASONS[d.kind]) for d in reading.damages if d.dropped is not None]
    return reading


def scan(data: bytes, task_bytes: int | None = None, name: str = "000007.log", **arguments: object) -> LogReading:
    """What sawlog makes of the bytes of a log in the directory of its database."""
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / name
        (path.parent / "CURRENT").write_bytes(b"MANIFEST-000001\n")
        path.write_bytes(data)
        reading = scan_file(path, task_bytes, **arguments)
    assert reading.account.total == len(data) or "filters" in arguments
    return reading


def read_in_agreement(data: bytes) -> LogReading:
    """Rows and drops are those of the model of LevelDB's reader; the accounts are exact."""
    reading, model = scan(data, dialect="leveldb"), reference(data)
    assert reading.rows == model.rows
    assert reading.drops == model.drops
    assert not list(
        check_account(sorted(reading.damages, key=lambda damage: damage.offset), reading.account, len(data))
    )
    return reading


def batch(sequence: int, *operations: tuple[bytes, bytes | None]) -> bytes:
    """A write batch of puts, and of deletes where the value is `None`."""
    body = b"".join(
        b"\0" + encode_varint(len(key)) + key
        if value is None
        else b"\1" + encode_varint(len(key)) + key + encode_varint(len(value)) + value
        for key, value in operations
    )
    return sequence.to_bytes(8, "little") + len(operations).to_bytes(4, "little") + body

"""A format that exists to be wrong: records of length (u8), CRC-32 of the rest (u32), data; and faults to choose."""

from __future__ import annotations

import os
import struct
import time
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import pyarrow as pa

from sawlog.errors import FormatError, SchemaError, StorageError
from sawlog.format.contract import BoundScan, Contents, Format, Fragment, Match, Range, Scan, View, Writer
from sawlog.format.damage import Damage, Findings, Tail, TailStatus
from sawlog.format.scan import Projection
from sawlog.storage import File, Staged, Storage

HEADER = 5
ROWS = pa.schema([pa.field("text", pa.binary(), nullable=False)])
FAULTS: set[str] = set()
"""What is wrong at the moment."""


@dataclass(frozen=True, slots=True)
class Options:
    pass


def record(data: bytes) -> bytes:
    return bytes([len(data)]) + struct.pack("<I", zlib.crc32(bytes([len(data)]) + data)) + data


@dataclass(frozen=True)
class ToyRange(Fragment):
    file: File
    start: int
    end: int

    @property
    def extent(self) -> tuple[int, int]:
        return self.start, self.end - self.start

    def decode(self, schema: pa.Schema, findings: Findings) -> Iterator[pa.RecordBatch]:
        source = self.scan.storage.open(self.path)
        try:
            data = bytes(source.read_window(0, self.file.size))
        except StorageError:
            if "takes failures for damage" not in FAULTS:
                raise
            findings.add_damage(Damage(self.path, *self.extent, "read_error", "the store does not answer"))
            return
        offset, rows = self.start, []
        if "aborts" in FAULTS and b"\x7f" in data:
            os.abort()
        if "sleeps" in FAULTS and b"\x80" in data:
            time.sleep(60)
        if "hungry" in FAULTS and b"\xff" in data and not schema.names and self.start == 0 and self.end == len(data):
            assert b"x" * (90 << 20)
        while offset < self.end and len(data) - offset >= HEADER + data[offset]:
            length = data[offset]
            if "rereads" in FAULTS:
                source.read_window(0, self.file.size)
            box = data[offset : offset + HEADER + length]
            if "leaks" in FAULTS and box[1:5] == b"\0\0\0\0":
                raise IndexError(offset)
            if box != record(box[HEADER:]) and "trusts" not in FAULTS:
                if "refuses" in FAULTS or ("refuses what is verified" in FAULTS and schema.names):
                    raise FormatError(f"{self.path}: such records are not supported")
                break
            rows.append((offset, box[HEADER:]))
            offset += len(box)
        if "loses a row at a cut" in FAULTS and self.start:
            rows = rows[1:]
        tail = len(data) - offset if self.end == len(data) else 0
        torn = tail and (tail < HEADER or tail < HEADER + data[offset])
        findings.account.record += offset - self.start
        values = {
            "_file": [self.path] * len(rows),
            "_offset": [start for start, _ in rows],
            "text": [x for _, x in rows],
        }
        if not (findings.on_damage == "fail" and "fails early" in FAULTS and tail and not torn):
            findings.rows += len(rows)
            yield pa.RecordBatch.from_arrays([pa.array(values[f.name], f.type) for f in schema], schema=schema)
        if torn:
            findings.account.tail += tail if "forgets the tail" not in FAULTS else 0
            findings.tail = Tail(TailStatus.TORN, offset, tail)
        elif tail and "verify is blind" in FAULTS and not schema.names:
            findings.account.record += tail
        elif tail and "silent" in FAULTS:
            findings.account.padding += tail
        elif offset < self.end:
            findings.add_damage(Damage(self.path, offset, self.end - offset, "bad_record", "expected another checksum"))


class Toys(Contents):
    def _ranges(self, request: BoundScan, task_bytes: int | None) -> Iterator[ToyRange]:
        for file in self.files:
            if "takes failures for damage" in FAULTS:  # of what it reads after it has planned
                request.scan.storage.read(file, file.size - 1, 1)
            start = 0
            for box_start in self._starts(request, file) if task_bytes else ():
                if box_start - start >= task_bytes:
                    yield self._range(request, file, start, box_start)
                    start = box_start
            yield self._range(request, file, start, file.size)

    views: ClassVar = {"rows": View(ROWS, _ranges)}

    def _starts(self, request: BoundScan, file: File) -> list[int]:
        rows = self._range(request, file, 0, file.size)
        offsets = pa.schema([pa.field("_offset", pa.int64())])
        return [n for batch in rows.decode(offsets, Findings("skip")) for n in batch.column(0).to_pylist()]

    def _range(self, request: BoundScan, file: File, start: int, end: int) -> ToyRange:
        return ToyRange(*request, file.path, end - start, file, start, end)

    def find_committed_end(self, request: BoundScan, file: File, position: int) -> int:
        findings = self._range(request, file, position, file.size).inspect(every=True)
        if findings.damages and "passes over damage" not in FAULTS:
            return findings.damages[0].offset  # it reaches up to the end, and what is added may belong to it
        torn = findings.tail is not None and "reads tails" not in FAULTS
        return findings.tail.offset if torn else file.size

    def list_fragments(self, request: BoundScan, ranges: Sequence[Range]) -> list[Fragment]:
        return [self._range(request, replace(file, size=end), start, end) for file, start, end in ranges]


class ToyWriter(Writer):
    def __init__(self, path: str, storage: Storage) -> None:
        self.storage, self.file = storage, storage.stage(path)

    def write(self, batch: pa.RecordBatch) -> None:
        for row, text in enumerate(batch.column("text").to_pylist()):
            if text is None or len(text) > 255:
                raise SchemaError(f"column 'text', row {row}")
            self.file.write(record(text[:30] if "shortens" in FAULTS else text))

    def finish(self) -> list[Staged]:
        return [self.file.finish()]

    def abort(self) -> None:
        self.file.discard(self.storage)


class Toy(Format):
    name = "toy"
    title = "toy"
    suffix = ".toy"
    views: ClassVar = {"rows": "", "damage": ""}
    read_options = Options
    write_options = Options

    def match(self, file: File, head: bytes) -> Match:
        return Match.CONTENT if "claims everything" in FAULTS else Match.NAME

    def select(self, files: Sequence[File], view: str) -> list[File]:
        return list(files)

    def open(self, files: Sequence[File], scan: Scan) -> Contents:
        return Toys(self, files, scan)

    def writer(self, path: str, schema: pa.Schema, options: Any, storage: Storage) -> Writer:
        if schema.names != ["text"]:
            raise SchemaError("one column: 'text'")
        return ToyWriter(path, storage)

    def repair(self, file: File, target: str, options: Any, storage: Storage) -> None:
        if "gives up on repair" in FAULTS:
            raise FormatError(f"{file.path}: no")
        scan = Scan(options=options, on_damage="skip", storage=storage)
        whole_range = ToyRange(scan, Projection.of(ROWS, scan), file.path, file.size, file, 0, file.size)
        with ToyWriter(target, storage) as writer:
            for batch in whole_range.to_batches(Findings("skip")):
                writer.write(batch)
            if "repairs by copying" in FAULTS:
                writer.file.write(storage.read(file.path)[-7:])

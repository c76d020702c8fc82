"""A format of a third-party package, as small as one can be: newline-terminated lines. Line `!` is damage."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import pyarrow as pa

from sawlog.format.contract import (
    FILE_COLUMN,
    OFFSET_COLUMN,
    BoundScan,
    Contents,
    Format,
    Fragment,
    Match,
    Scan,
    View,
    Writer,
)
from sawlog.format.damage import Damage, Findings, Tail, TailStatus
from sawlog.storage import File, Staged, Storage

MAGIC = b"#lines\n"


@dataclass(frozen=True, slots=True)
class Options:
    upper: bool = False


@dataclass(frozen=True)
class LinesFragment(Fragment):
    def decode(self, schema: pa.Schema, findings: Findings) -> Iterator[pa.RecordBatch]:
        data = self.scan.storage.read(self.path)
        findings.account.header += len(MAGIC)
        offset = len(MAGIC)
        rows: list[tuple[str, int]] = []
        for line in data[offset:].splitlines(keepends=True):
            if not line.endswith(b"\n"):
                findings.tail = Tail(TailStatus.TORN, offset, len(line), "no newline")
                findings.account.tail += len(line)
            elif line == b"!\n":
                findings.add_damage(Damage(self.path, offset, len(line), "shout", "expected anything but !"))
            else:
                text = line[:-1].decode()
                rows.append((text.upper() if self.scan.options.upper else text, offset))
                findings.account.record += len(line)
            offset += len(line)
        findings.rows += len(rows)
        values = {
            "line": [row[0] for row in rows],
            OFFSET_COLUMN: [row[1] for row in rows],
            FILE_COLUMN: [self.path] * len(rows),
        }
        yield pa.RecordBatch.from_arrays([pa.array(values[f.name], f.type) for f in schema], schema=schema)


class LinesContents(Contents):
    def _fragments(self, request: BoundScan, task_bytes: int | None) -> Iterator[Fragment]:
        for file in self.files:
            yield LinesFragment(*request, file.path, file.size)

    views: ClassVar = {"rows": View(pa.schema([pa.field("line", pa.string())]), _fragments)}


class LinesWriter(Writer):
    def __init__(self, path: str, storage: Storage) -> None:
        self.storage = storage
        self._file = storage.stage(path)
        self._file.write(MAGIC)

    def write(self, batch: pa.RecordBatch) -> None:
        for line in batch.column("line").to_pylist():
            self._file.write(f"{line}\n".encode())

    def finish(self) -> list[Staged]:
        return [self._file.finish()]

    def abort(self) -> None:
        self._file.discard(self.storage)


class Lines(Format):
    name = "lines"
    title = "lines of text"
    suffix = ".lines"
    views: ClassVar = {"rows": "one row per line", "damage": "one row per damaged range"}
    read_options = Options
    write_options = Options

    def match(self, file: File, head: bytes) -> Match:
        return Match.CONTENT if head.startswith(MAGIC) else Match.NO

    def select(self, files: Sequence[File], view: str) -> list[File]:
        return [file for file in files if file.explicit or file.name.endswith(self.suffix)]

    def open(self, files: Sequence[File], scan: Scan) -> Contents:
        return LinesContents(self, files, scan)

    def writer(self, path: str, schema: pa.Schema, options: Any, storage: Storage) -> Writer:
        return LinesWriter(path, storage)

    def repair(self, file: File, target: str, options: Any, storage: Storage) -> None:
        raise AssertionError("not part of the proof")


def shout(path: str) -> int:
    """Count the lines of a file that shout."""
    with open(path, "rb") as file:
        print(sum(line.startswith(b"!") for line in file))
    return 0


def whisper(text: str) -> str:
    """The text in a lower voice."""
    return text.lower()

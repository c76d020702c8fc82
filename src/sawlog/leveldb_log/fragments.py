"""Fragments: ranges of logs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import pyarrow as pa

from sawlog.damage import Damage, DamageWarning, Findings, Tail
from sawlog.errors import ChangedError, DiskError, warn
from sawlog.format import PROBE_BYTES, Projection, Scan
from sawlog.leveldb_log import layout
from sawlog.leveldb_log.columns import ROWS_SCHEMA
from sawlog.leveldb_log.head import LogHead, read_head
from sawlog.leveldb_log.layout import Dialect, Kind
from sawlog.leveldb_log.options import ReadOptions
from sawlog.ranges import FileRange, intact_end
from sawlog.storage import File, Storage


@dataclass(frozen=True)
class LogRange(FileRange):
    """Those records of one log whose first header lies in `[start, end)`.

    Attributes:
        file: The log; its size is where this scan takes the file to end.
        start: A block boundary, or, when `synced`, the end of a complete record.
        end: A block boundary, or the size of the file.
        synced: Whether a record may start right at `start`; otherwise what is left of an earlier one is passed over.
        dialect: As in the options, or as the directory tells.
    """

    synced: bool
    dialect: Dialect | Literal["auto"]

    def decode(self, schema: pa.Schema, findings: Findings) -> Iterator[pa.RecordBatch]:
        """See `Fragment.decode`. Section 5.2 of the format gives every record to exactly one range."""
        from sawlog.leveldb_log.walk import Walk

        with closing(self.scan.storage.open(self.file, self.end)) as source:
            if source.size < self.file.size:
                raise ChangedError.shorter(self.path, self.file.size, source.size)
            try:
                if self.start < PROBE_BYTES:
                    # What is read of a remote file anyway is not fetched twice.
                    vars(self)["head"] = read_head(
                        bytes(source.window(0, PROBE_BYTES)), self.file, self.dialect, self.scan.storage
                    )
                head = self.head
            except DiskError as error:
                kind, length = Kind.READ_ERROR.name.lower(), self.end - self.start
                findings.damage(Damage(self.path, self.start, length, kind, str(error), layout.BLOCK_SIZE))
                return
            if head.renamed and self.start == 0:
                findings.notes["renamed_logs"] += 1
                detail = "no fragment carries the number in the file's name; it is read as log"
                warn(f"{self.path}: {detail} {head.log_number}", DamageWarning)
            walk = Walk(self, source, head, schema, findings)
            yield from walk.batches()
            if "stale" in self.scan.options.salvage:
                from sawlog.leveldb_log.stale import former_lives

                yield from former_lives(self, walk, schema)

    @cached_property
    def head(self) -> LogHead:
        """What the beginning of the file says.

        Raises:
            OSError: When it cannot be read.
        """
        storage = self.scan.storage
        return read_head(storage.read(self.path, 0, PROBE_BYTES), self.file, self.dialect, storage)

    def find_tail(self) -> Tail | None:
        """How the log ends, if the range reaches there; records are walked, whatever the view, not decoded."""
        findings = Findings("skip")
        for _ in LogRange.decode(self, pa.schema([]), findings):
            pass
        return findings.tail

    def find_end(self) -> int:
        """Where the last complete record of the log ends, or the intact part, if damage reaches up to the end."""
        findings = Findings("skip", drained=True, columns=[])
        return intact_end(LogRange.decode(self, pa.schema([]), findings), findings, self.file.size)


def whole_log(file: File, options: ReadOptions, storage: Storage) -> LogRange:
    """One range over all of a log, delivering everything intact."""
    scan = Scan(options=options, on_damage="skip", storage=storage)
    projection = Projection.of(ROWS_SCHEMA, scan)
    return LogRange(scan, projection, file.path, file.size, file, 0, file.size, synced=True, dialect=options.dialect)

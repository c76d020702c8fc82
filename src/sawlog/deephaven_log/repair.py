"""Repair: everything intact of a log, byte for byte, in a new log."""

from __future__ import annotations

import zlib
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import pyarrow as pa

from sawlog.damage import MAX_LISTED, Damage, FileReport, Findings, TailStatus
from sawlog.deephaven_log import layout
from sawlog.deephaven_log.fragments import RowWalk, whole_log
from sawlog.deephaven_log.header import Header
from sawlog.deephaven_log.layout import Flag
from sawlog.deephaven_log.reader import ReadOptions, open_log
from sawlog.errors import FormatError

if TYPE_CHECKING:
    from sawlog.storage import File, Source, StagedFile, Storage

_COPY_BYTES = 8 << 20


def repair(file: File, target: str, options: ReadOptions, storage: Storage) -> FileReport:
    """Copy header and intact entries; leave damage and an unfinished tail behind. See `Format.repair`.

    Rows of sets that lack a member are left behind too, unless `incomplete="emit"` asks for them: then they become
    stand-alone rows. Commands are carried over, not carried out.
    """
    header = open_log(file, options, storage)
    if header.version == 0:
        raise FormatError(f"{file.path}: the original format has no digests to repair a file by")
    findings = Findings("skip", drained=True)
    listed: list[Damage] = []
    whole = whole_log(file, header, replace(options, deletes="ignore"), storage)
    with closing(storage.open(file.path)) as source:
        staged = storage.stage(target)
        try:
            staged.write(_sound(header))
            walk = whole.walk(source, findings)
            copy = _Copy(source, staged, header, header.size, walk.salvaged)
            for _ in RowWalk(whole, walk, pa.schema([]), findings).batches():
                listed += copy.around(findings.drain())[: MAX_LISTED - len(listed)]
            listed += copy.around(findings.drain())[: MAX_LISTED - len(listed)]
            tail = findings.tail
            copy.up_to(file.size if tail is None or tail.status is TailStatus.CLEAN else tail.offset)
            storage.publish([staged.finish()])
        except BaseException:
            staged.discard(storage)
            raise
    findings.damages = listed
    return FileReport.of(file.path, file.size, [findings])


def _sound(header: Header) -> bytes:
    """The header as it is, but for a digest that does not match."""
    if header.digest:
        return header.raw
    body = header.raw[: -layout.DIGEST_SIZE]
    return body + zlib.adler32(body).to_bytes(layout.DIGEST_SIZE, "big")


@dataclass(slots=True)
class _Copy:
    """Copies a log from front to back, leaving out what it is told.

    Attributes:
        source: The log.
        target: Its copy.
        header: Its header.
        position: First byte that is not dealt with yet.
        salvaged: Ranges of rows that lack a member of their set and are to stand alone.
    """

    source: Source
    target: StagedFile
    header: Header
    position: int
    salvaged: list[tuple[int, int]] = field(default_factory=list)

    def around(self, damages: list[Damage]) -> list[Damage]:
        """Copy what lies between damaged ranges."""
        for damage in damages:
            self.up_to(damage.offset)
            self.position = max(self.position, damage.offset + damage.length)
        return damages

    def up_to(self, end: int) -> None:
        """Copy everything before byte `end`."""
        while self.salvaged and self.salvaged[0][0] < end:
            first, last = self.salvaged.pop(0)
            self._plain(first)
            self._alone(last)
        self._plain(end)

    def _plain(self, end: int) -> None:
        while self.position < end:
            piece = self.source.window(self.position, min(end - self.position, _COPY_BYTES))
            self.target.write(piece)
            self.position += len(piece)

    def _alone(self, end: int) -> None:
        """Copy entries, making each row a set of its own."""
        trailer = layout.DIGEST_SIZE if self.header.trailing_digest else 0
        while self.position < end:
            size = int.from_bytes(self.source.window(self.position, layout.SIZE_SIZE).tobytes(), "big")
            total = layout.SIZE_SIZE + size + trailer
            entry = bytearray(self.source.window(self.position, total).tobytes())
            if not entry[layout.SIZE_SIZE] & Flag.RECORD:
                entry[layout.SIZE_SIZE] = layout.SINGLE
                digest = zlib.adler32(entry[: -layout.DIGEST_SIZE])
                entry[-layout.DIGEST_SIZE :] = digest.to_bytes(layout.DIGEST_SIZE, "big")
            self.target.write(entry)
            self.position += total

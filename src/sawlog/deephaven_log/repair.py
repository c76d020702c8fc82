"""Repair: everything intact of a log, byte for byte, in a new log."""

from __future__ import annotations

import zlib
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import pyarrow as pa

from sawlog.damage import MAX_LISTED, Damage, FileReport, Findings, TailStatus
from sawlog.deephaven_log import layout
from sawlog.deephaven_log.dataset import open_log
from sawlog.deephaven_log.fragments import RowWalk, whole_log
from sawlog.deephaven_log.header import Header
from sawlog.deephaven_log.layout import Flag
from sawlog.deephaven_log.options import ReadOptions

if TYPE_CHECKING:
    from sawlog.storage import File, Source, StagedFile, Storage

_COPY_BYTES = 8 << 20


def repair(file: File, target: str, options: ReadOptions, storage: Storage) -> FileReport:
    """Copy header and intact entries; leave damage and an unfinished tail behind. See `Format.repair`.

    Rows of aborted sets, which no reader delivers, are left behind too, and so are those of sets that lack a member,
    unless `incomplete="emit"` asks for them: then they become stand-alone rows. Commands are carried over, not out.
    """
    header = open_log(file, options, storage)
    findings = Findings("skip", drained=True)
    listed: list[Damage] = []
    whole = whole_log(file, header, replace(options, deletes="ignore"), storage)
    with closing(storage.open(file.path)) as source:
        staged = storage.stage(target)
        try:
            staged.write(_sound(header))
            walk = whole.walk(source, findings)
            walk.state[walk.kernels.NOTE_ABORTED] = 1
            copy = _Copy(source, staged, header, walk.kernels.SALVAGED, header.size, walk.remarkable)
            for _ in RowWalk(whole, walk, pa.schema([]), findings).batches():
                listed += copy.around(findings.drain())[: MAX_LISTED - len(listed)]
            listed += copy.around(findings.drain())[: MAX_LISTED - len(listed)]
            tail = findings.tail
            if tail is None or tail.status is TailStatus.CLEAN:
                copy.up_to(file.size)
            elif tail.status is TailStatus.OPEN:
                copy.up_to(tail.offset)
                copy.commands(file.size)
            else:
                copy.up_to(tail.offset)
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
        alone: The kind of remarkable ranges whose rows are to stand alone; of others, only commands are kept.
        position: First byte that is not dealt with yet.
        remarkable: Kind, start and end of ranges that are not copied as they are.
    """

    source: Source
    target: StagedFile
    header: Header
    alone: int
    position: int
    remarkable: list[tuple[int, int, int]] = field(default_factory=list)

    def around(self, damages: list[Damage]) -> list[Damage]:
        """Copy what lies between damaged ranges."""
        for damage in damages:
            self.up_to(damage.offset)
            self.position = max(self.position, damage.offset + damage.length)
        return damages

    def up_to(self, end: int) -> None:
        """Copy everything before byte `end`."""
        while self.remarkable and self.remarkable[0][1] < end:
            kind, first, last = self.remarkable.pop(0)
            self._plain(first)
            if kind == self.alone:
                self._alone(last)
            else:
                self.commands(last)
        self._plain(end)

    def commands(self, end: int) -> None:
        """Copy the complete entries that are no rows: all that is kept of sets that were aborted or have no end."""
        while end - self.position > layout.SIZE_SIZE:
            head = self.source.window(self.position, layout.SIZE_SIZE + layout.FLAGS_SIZE).tobytes()
            total = layout.SIZE_SIZE + int.from_bytes(head[: layout.SIZE_SIZE], "big")
            if total <= layout.SIZE_SIZE or total > end - self.position:
                return
            following = self.position + total
            if head[layout.SIZE_SIZE] & Flag.RECORD:
                self._plain(following)
            self.position = following

    def _plain(self, end: int) -> None:
        while self.position < end:
            piece = self.source.window(self.position, min(end - self.position, _COPY_BYTES))
            self.target.write(piece)
            self.position += len(piece)

    def _alone(self, end: int) -> None:
        """Copy entries, making each row a set of its own."""
        while self.position < end:
            size = int.from_bytes(self.source.window(self.position, layout.SIZE_SIZE).tobytes(), "big")
            total = layout.SIZE_SIZE + size
            entry = bytearray(self.source.window(self.position, total).tobytes())
            if not entry[layout.SIZE_SIZE] & Flag.RECORD:
                entry[layout.SIZE_SIZE] = layout.SINGLE
                digest = zlib.adler32(entry[: -layout.DIGEST_SIZE])
                entry[-layout.DIGEST_SIZE :] = digest.to_bytes(layout.DIGEST_SIZE, "big")
            self.target.write(entry)
            self.position += total

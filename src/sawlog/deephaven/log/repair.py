"""Repair: everything intact of a log, byte for byte, in a new log."""

from __future__ import annotations

import zlib
from contextlib import closing
from dataclasses import dataclass

import pyarrow as pa

from sawlog.deephaven.log import layout
from sawlog.deephaven.log.dataset import open_log
from sawlog.deephaven.log.fragments import make_log_range
from sawlog.deephaven.log.header import Header
from sawlog.deephaven.log.layout import BinaryLogDamageKind, Flag
from sawlog.deephaven.log.options import ReadOptions
from sawlog.deephaven.log.walk import Remarkable, locate_values
from sawlog.format.damage import Damage, Findings, TailStatus, take_listed_damage
from sawlog.storage import File, Source, StagedFile, Storage

_COPY_BYTES = 8 << 20
_BAD_VALUE = BinaryLogDamageKind.BAD_VALUE.label


def repair(file: File, target: str, options: ReadOptions, storage: Storage) -> None:
    """Copy header and intact entries; leave out damage and an unfinished tail. See `Format.repair`.

    Rows of aborted sets, which no reader delivers, are left behind too, and so are those of sets that lack a member,
    unless `salvage="incomplete"` asks for them: then they become stand-alone rows. Commands are carried over, not out.
    """
    header = open_log(file, options, storage)
    findings = Findings("skip", drained=True)
    log_range = make_log_range(file, header, options, storage)
    with closing(storage.open(file.path)) as source, closing(storage.open(file.path)) as original:
        staged = storage.stage(target)
        try:
            staged.write(_correct_digest(header))
            walk = log_range.walk(source, pa.schema([]), findings)
            copy = _Copy(original, staged, header, header.size, walk.remarkable, walk.bad_values)
            for _ in walk.read_batches():
                copy.copy_around(take_listed_damage(findings))
            copy.copy_around(take_listed_damage(findings))
            tail = findings.tail
            if tail is None or tail.status is TailStatus.CLEAN:
                copy.copy_up_to(file.size)
            elif tail.status is TailStatus.OPEN:
                copy.copy_up_to(tail.offset)
                copy.copy_commands(file.size)
            else:
                copy.copy_up_to(tail.offset)
            storage.publish([staged.finish()])
        except BaseException:
            staged.discard(storage)
            raise


def _correct_digest(header: Header) -> bytes:
    """Return the header as it is, but for a digest that does not match."""
    if header.digest:
        return header.raw
    body = header.raw[: -layout.DIGEST_SIZE]
    return body + zlib.adler32(body).to_bytes(layout.DIGEST_SIZE, "big")


@dataclass(slots=True)
class _Copy:
    """Copies a log from front to back, leaving out the ranges it is given.

    Attributes:
        source: The log.
        target: Its copy.
        header: Its header.
        position: First byte that is not dealt with yet.
        remarkable: Ranges that are not copied as they are: `SALVAGED` rows become sets of their own; of others, only
            commands are kept.
        bad_values: Offset of a row, and place of a column whose value in it is none: the copy has a null there.
    """

    source: Source
    target: StagedFile
    header: Header
    position: int
    remarkable: list[Remarkable]
    bad_values: list[tuple[int, int]]

    def copy_around(self, damages: list[Damage]) -> None:
        """Copy what is between damaged ranges; a value that is none is left out where its row is copied."""
        for damage in damages:
            if damage.kind != _BAD_VALUE:
                self.copy_up_to(damage.offset)
                self.position = max(self.position, damage.offset + damage.length)

    def copy_up_to(self, end: int) -> None:
        """Copy everything before byte `end`."""
        while self.remarkable and self.remarkable[0].start < end:
            remarkable = self.remarkable.pop(0)
            self._copy_plain(remarkable.start)
            if remarkable.salvaged:
                while self.position < remarkable.end:
                    self._copy_entry(standalone=True)
            else:
                self.copy_commands(remarkable.end)
        self._copy_plain(end)

    def copy_commands(self, end: int) -> None:
        """Copy the complete entries that are no rows: all that is kept of sets that were aborted or have no end."""
        while end - self.position > layout.SIZE_SIZE:
            head = self.source.read_window(self.position, layout.SIZE_SIZE + layout.FLAGS_SIZE).tobytes()
            total = layout.SIZE_SIZE + int.from_bytes(head[: layout.SIZE_SIZE], "big")
            if total <= layout.SIZE_SIZE or total > end - self.position:
                return
            following = self.position + total
            if head[layout.SIZE_SIZE] & Flag.RECORD:
                self._copy_plain(following)
            self.position = following

    def _copy_plain(self, end: int) -> None:
        while self.bad_values and self.bad_values[0][0] < end:
            self._copy_bytes(self.bad_values[0][0])
            self._copy_entry(standalone=False)
        self._copy_bytes(end)

    def _copy_bytes(self, end: int) -> None:
        while self.position < end:
            piece = self.source.read_window(self.position, min(end - self.position, _COPY_BYTES))
            self.target.write(piece)
            self.position += len(piece)

    def _copy_entry(self, *, standalone: bool) -> None:
        """Copy one entry, as a set of its own or in its role, without the values that are none."""
        size = int.from_bytes(self.source.read_window(self.position, layout.SIZE_SIZE).tobytes(), "big")
        total = layout.SIZE_SIZE + size
        entry = self.source.read_window(self.position, total).tobytes()
        places = []
        while self.bad_values and self.bad_values[0][0] == self.position:
            places.append(self.bad_values.pop(0)[1])
        if not entry[layout.SIZE_SIZE] & Flag.RECORD and (standalone or places):
            flags = layout.SINGLE if standalone else entry[layout.SIZE_SIZE]
            body = entry[layout.SIZE_SIZE + layout.FLAGS_SIZE : -layout.DIGEST_SIZE]
            presence, values, end = bytearray(body[: self.header.presence_bytes]), b"", self.header.presence_bytes
            for place, start, end in locate_values(self.header, body):
                if place in places:
                    byte, bit = divmod(place, layout.PRESENCE_BITS)
                    presence[byte] ^= 1 << bit
                else:
                    values += body[start:end]
            body = bytes(presence) + values + body[end:]
            size = layout.FLAGS_SIZE + len(body) + layout.DIGEST_SIZE
            entry = size.to_bytes(layout.SIZE_SIZE, "big") + bytes([flags]) + body
            entry += zlib.adler32(entry).to_bytes(layout.DIGEST_SIZE, "big")
        self.target.write(entry)
        self.position += total

"""Etcd's write-ahead log: frames, records and their rolling checksum, and the entries of the log that they hold."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from sawlog.errors import FormatError
from sawlog.milvus.etcd import layout
from sawlog.milvus.etcd.bolt import BrokenError
from sawlog.milvus.etcd.layout import RecordType
from sawlog.milvus.etcd.messages import HardState, LogEntry, Record
from sawlog.milvus.kernels import extend_crc32c
from sawlog.storage import File, Source, Storage

_U32 = 0xFFFFFFFF


@dataclass(slots=True)
class WriteAheadLog:
    """The entries of a write-ahead log that come after an index.

    Attributes:
        after: The index.
        entries: The entries, in order, without a gap.
        committed: The index of the last entry that the log says is agreed on.
        broken: Why what comes after the entries cannot be read; `None` where the log ends.
    """

    after: int
    entries: list[LogEntry] = field(default_factory=list)
    committed: int = 0
    broken: BrokenError | None = None

    def add(self, record: Record) -> None:
        """Add what a record says. An entry replaces those from its index on, which were not agreed on.

        Raises:
            FormatError: For an entry that does not follow on those before.
        """
        if record.type == RecordType.STATE:
            self.committed = max(self.committed, HardState(record.data).commit)
        if record.type != RecordType.ENTRY:
            return
        entry = LogEntry(record.data)
        place = entry.index - self.after - 1
        if place < 0:
            return
        if place > len(self.entries):
            first, last = self.after + len(self.entries) + 1, entry.index - 1
            raise FormatError(f"entry {entry.index}: the entries {first} to {last} before it are missing")
        del self.entries[place:]
        self.entries.append(entry)


def list_log_files(files: Sequence[File], after: int) -> list[File]:
    """Return the files of a write-ahead log that hold entries after an index, in order."""
    named = sorted((name[1], int(name[2], 16), file) for file in files if (name := layout.LOG_NAME.match(file.name)))
    before = [place for place, (_, first, _) in enumerate(named) if first <= after + 1]
    return [file for _, _, file in named[max(before, default=0) :]]


def read_log(files: Sequence[File], after: int, storage: Storage) -> WriteAheadLog:
    """Return the entries of a write-ahead log after an index, as far as it can be read."""
    log = WriteAheadLog(after)
    crc: int | None = None
    try:
        for file in files:
            with closing(storage.open(file)) as source:
                reader = _Reader(source, file.path, crc, is_last=file is files[-1])
                for offset, record in reader.read_records():
                    try:
                        log.add(record)
                    except FormatError as error:
                        raise BrokenError(file.path, offset, str(error)) from None
                crc = reader.crc
    except BrokenError as error:
        log.broken = error
    return log


class _Reader:
    """Reader of the records of one file.

    Args:
        source: The file.
        path: Its path, for messages.
        crc: The checksum of all records before; `None` where they are not read.
        is_last: Whether it is the last file, whose last record may not have been written whole.
    """

    def __init__(self, source: Source, path: str, crc: int | None, *, is_last: bool) -> None:
        self.crc = crc
        self._source = source
        self._path = path
        self._is_last = is_last

    def read_records(self) -> Iterator[tuple[int, Record]]:
        """Yield offsets and records, up to the zeros that a file is filled with beforehand.

        Raises:
            BrokenError: For a record that is cut, or whose checksum is wrong, but that the server never finished.
        """
        offset, size = 0, self._source.size
        while size - offset >= layout.FRAME.size:
            (field,) = layout.FRAME.unpack(self._source.read_window(offset, layout.FRAME.size).tobytes())
            if not field:
                return
            length = field & layout.LENGTH_MASK
            padding = field >> layout.PADDING_SHIFT & layout.PADDING_MASK if field & layout.PADDED else 0
            start = offset + layout.FRAME.size
            if length + padding > size - start:
                raise BrokenError(self._path, offset, f"a record of {length + padding} bytes; {size - start} are there")
            data = self._source.read_window(start, length + padding).tobytes()
            record = self._parse_record(data[:length])
            if isinstance(record, str):
                if self._is_last and _is_torn(data, start):
                    return
                raise BrokenError(self._path, offset, record)
            yield offset, record
            offset = start + length + padding

    def _parse_record(self, data: bytes) -> Record | str:
        """Return a record, or what is wrong with it. The checksum goes over all records, from file to file."""
        try:
            record = Record(data)
            kind, crc, content = record.type, record.crc & _U32, record.data
        except FormatError as error:
            return str(error)
        if kind == RecordType.CRC:
            if self.crc not in (None, crc):
                return f"the log goes on from checksum {crc:#010x}; expected {self.crc:#010x}"
            self.crc = crc
            return record
        if kind not in RecordType.__members__.values():
            return f"a record of type {kind}: expected 1 to 5"
        actual = int(extend_crc32c(np.uint64(self.crc or 0), np.frombuffer(content, np.uint8)))
        if actual != crc:
            return f"checksum {actual:#010x}; expected {crc:#010x}"
        self.crc = actual
        return record


def _is_torn(data: bytes, start: int) -> bool:
    """Return whether a sector of a record is all zeros: it was being written when the machine stopped."""
    ends = [*range(layout.SECTOR - start % layout.SECTOR, len(data), layout.SECTOR), len(data)]
    return any(not any(data[first:end]) for first, end in pairwise([0, *ends]))

"""Backups that RocksDB's BackupEngine makes: databases whose tables several of them share, and their checksums."""

from __future__ import annotations

import datetime as dt
import posixpath
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import NamedTuple

import pyarrow as pa

from sawlog.errors import FormatError, OptionError, SawlogError
from sawlog.format.contract import Fragment
from sawlog.format.damage import MISMATCHED_FILE, MISSING_FILE, Damage, Findings
from sawlog.leveldb.database.layout import (
    BACKUP_FILE,
    BACKUP_HOME,
    MANIFEST_NAME,
    META_BYTES,
    META_CHECKSUM,
    META_EXCLUDED,
    META_FOOTER,
    META_LAST_TIME,
    META_SIZE,
    META_VERSION,
    SHARED_NAME,
    DatabaseDamageKind,
)
from sawlog.leveldb.log.kernels import compute_masked_checksum
from sawlog.leveldb.log.layout import MASK_DELTA, MASK_ROTATION
from sawlog.leveldb.options import DatabaseReadOptions
from sawlog.storage import File, Storage

_WINDOW = 4 << 20
_FIRST_LINES_BYTES = 1 << 10
"""Bytes in which the time of a backup is said."""
_POLYNOMIAL = 0x82F63B78


class BackupFile(NamedTuple):
    """A file of a backup: its path below the directory of all backups, and its checksum and bytes, if they are said."""

    path: str
    checksum: int | None
    size: int | None


@dataclass(frozen=True)
class Backup:
    """A backup.

    Attributes:
        number: Its number.
        root: The directory of all backups.
        meta: The file that says what it is made of.
        files: The files that it is made of; none where that file is not there.
        present: Those of them that are there, by path.
        numbers: The numbers of all backups.
    """

    number: int
    root: str
    meta: str
    files: tuple[BackupFile, ...]
    present: dict[str, File]
    numbers: tuple[int, ...]

    @property
    def shared(self) -> list[File]:
        """Tables and blob files that it may share with others."""
        return [file for file in self.present.values() if SHARED_NAME.match(file.name)]


def read_backup(files: Sequence[File], options: DatabaseReadOptions, storage: Storage) -> Backup | None:
    """Return the backup that is asked for, the last one by default; `None` where the files are no backups.

    Raises:
        FormatError: When there are several databases.
        OptionError: When there is no such backup, or none of so early a time.
        SawlogError: When the file that says what it is made of is damaged.
    """
    homes = [BACKUP_HOME.match(file.directory) for file in files if MANIFEST_NAME.match(file.name)]
    places = {int(home[2]): home[1] or "" for home in homes if home}
    root = next(iter(places.values()), "")
    if not places or not storage.is_directory(posixpath.join(root, "meta")):
        if len(places) > 1:
            raise FormatError(f"{len(places)} databases in {posixpath.join(root, 'private')}; name one of them")
        if options.backup is not None or options.until is not None:
            name = "as_of" if options.backup is None else "backup"
            error = OptionError(f"{files[0].path}: the option {name} is for directories of RocksDB's BackupEngine")
            error.inapplicable = name
            raise error
        return None
    number = max(places) if options.backup is None else options.backup
    if options.until is not None:
        number = _find_last_backup(
            options.until, [posixpath.join(root, "meta", str(number)) for number in places], storage
        )
    if number not in places:
        raise OptionError(f"{files[0].path}: no backup {number}; there are: {', '.join(map(str, sorted(places)))}")
    meta = posixpath.join(root, "meta", str(number))
    named = tuple(_list_backup_files(meta, storage)) if storage.exists(meta) else ()
    directories = dict.fromkeys(posixpath.dirname(backup_file.path) for backup_file in named)
    paths = {posixpath.join(root, backup_file.path) for backup_file in named}
    present: dict[str, File] = {}
    for directory in directories:
        path = posixpath.join(root, directory)
        if storage.is_directory(path):
            present |= {file.path: file for file in storage.list_files(path) if file.path in paths}
    return Backup(number, root, meta, named, present, tuple(sorted(places)))


def _find_last_backup(until: dt.datetime, metas: Sequence[str], storage: Storage) -> int:
    """Return the number of the last backup that was begun up to a time.

    Raises:
        OptionError: When there is none.
        SawlogError: When what says the time of one is damaged.
    """
    present = [meta for meta in metas if storage.exists(meta)]
    start_times = sorted((_read_begin(meta, storage), int(posixpath.basename(meta))) for meta in present)
    earlier = [number for seconds, number in start_times if seconds <= until.timestamp()]
    if not earlier:
        times = [dt.datetime.fromtimestamp(seconds, dt.UTC).isoformat() for seconds, _ in start_times[:1]]
        first = f"the first is of {times[0]}" if times else "no file in meta says of what time any is"
        raise OptionError(f"{posixpath.dirname(metas[0])}: no backup up to {until.isoformat()}; {first}")
    return earlier[-1]


def _read_begin(meta: str, storage: Storage) -> int:
    """Return the second in which a backup was begun.

    Raises:
        SawlogError: When the file does not say it.
    """
    lines = storage.read(meta, 0, _FIRST_LINES_BYTES).split(b"\n")
    line = next((text for text in lines if not text.startswith(META_VERSION.encode())), b"")
    if not line.isdigit() or int(line) > META_LAST_TIME:
        raise SawlogError(f"{meta}: expected a time in seconds, found {line[:80]!r}; the file is damaged")
    return int(line)


def _list_backup_files(meta: str, storage: Storage) -> Iterator[BackupFile]:
    """Yield the files that a backup is made of.

    Raises:
        SawlogError: When the file is damaged, or of a version that is not known.
    """
    text = storage.read(meta, 0, META_BYTES).decode("utf-8", "replace")
    lines = text.split("\n")
    if lines[0].startswith(META_VERSION):
        version = lines[0].removeprefix(META_VERSION)
        if version.partition(".")[0] != "2":
            raise SawlogError(f"{meta}: schema version {version}; expected 2: a newer RocksDB has made the backup")
        del lines[0]
    count_line = next((place for place, line in enumerate(lines[2:], 2) if line.isdecimal()), None)
    if count_line is None or not all(line.isdecimal() for line in lines[:2]):
        raise SawlogError(f"{meta}: expected a time, a sequence number and a number of files; the file is damaged")
    count = 0
    for line in lines[count_line + 1 :]:
        if not line or line == META_FOOTER:
            break
        path, *words = line.split(" ")
        fields = dict(zip(words[::2], words[1::2], strict=False))
        numbers = [fields.get(name, "0") for name in (META_CHECKSUM, META_SIZE)]
        if not BACKUP_FILE.match(path) or len(words) % 2 or not all(number.isdecimal() for number in numbers):
            raise SawlogError(f"{meta}: expected a file and its checksum, found {line[:80]!r}; the file is damaged")
        if fields.get(META_EXCLUDED) == "true":
            continue
        count += 1
        checksum, size = (int(number) for number in numbers)
        yield BackupFile(path, checksum if META_CHECKSUM in fields else None, size if META_SIZE in fields else None)
    if count != int(lines[count_line]):
        raise SawlogError(f"{meta}: {lines[count_line]} files expected, found {count}; the file is damaged")


@dataclass(frozen=True)
class BackupCheck(Fragment):
    """A file of a backup, held to what the backup says of it."""

    meta: str
    file: BackupFile

    def decode(self, schema: pa.Schema, findings: Findings) -> Iterator[pa.RecordBatch]:
        del schema
        if (wrong := self._find_damage()) is not None:
            findings.add_damage(wrong)
        yield from ()

    def _find_damage(self) -> Damage | None:
        storage, path = self.scan.storage, self.path
        if not storage.exists(path):
            detail = f"{self.meta} names this file, and it is not there: copy it from where the backups were made"
            return Damage(path, 0, 0, MISSING_FILE, detail)
        with closing(storage.open(path)) as source:
            if self.file.size not in (None, source.size):
                detail = f"{self.meta} says {self.file.size} bytes; found {source.size}: the file is another one"
                return Damage(path, 0, 0, MISMATCHED_FILE, detail)
            if self.file.checksum is None:
                return None
            checksum, position = 0, 0
            while position < source.size:
                data = bytes(source.read_window(position, min(_WINDOW, source.size - position)))
                checksum = _advance(checksum, len(data)) ^ _unmask(compute_masked_checksum(data))
                position += len(data)
        if checksum == self.file.checksum:
            return None
        detail = f"{self.meta} says CRC-32C {self.file.checksum:#010x} of the file; found {checksum:#010x}"
        return Damage(path, 0, 0, DatabaseDamageKind.BAD_COPY.label, detail)


def _unmask(checksum: int) -> int:
    word = (checksum - MASK_DELTA) & 0xFFFFFFFF
    return (word >> (32 - MASK_ROTATION) | word << MASK_ROTATION) & 0xFFFFFFFF


def _advance(checksum: int, size: int) -> int:
    """Return what a checksum adds to that of so many bytes more."""
    step = [_POLYNOMIAL, *(1 << bit for bit in range(31))]
    for _ in range(3):  # from a bit to a byte
        step = [_multiply(step, column) for column in step]
    while size:
        if size & 1:
            checksum = _multiply(step, checksum)
        step = [_multiply(step, column) for column in step]
        size >>= 1
    return checksum


def _multiply(matrix: Sequence[int], vector: int) -> int:
    total = 0
    for bit, column in enumerate(matrix):
        if vector >> bit & 1:
            total ^= column
    return total

"""Version edits, the records of MANIFEST files: parsing them, and the views `edits` and `files` of them."""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import pyarrow as pa

from sawlog.arrow import batch_of_rows
from sawlog.damage import Damage, Findings
from sawlog.format import FILE_COLUMN, OFFSET_COLUMN, Contents, Format, Request, Scan, View
from sawlog.leveldb.log.dataset import LogContents
from sawlog.leveldb.log.head import live_manifest
from sawlog.leveldb.log.layout import RECORD_COLUMN
from sawlog.leveldb.log.walk import END_COLUMN, RECORDS_SCHEMA, LogRange
from sawlog.leveldb.records import layout
from sawlog.leveldb.records.layout import Custom, Tag
from sawlog.leveldb.records.writes import report_record
from sawlog.storage import File, Storage

_SECONDS = {b"sawlog.unit": b"seconds since 1970"}

_FILE_FIELDS = (
    pa.field("level", pa.int32(), nullable=False),
    pa.field("file", pa.int64(), nullable=False),
    pa.field("size", pa.int64(), nullable=False),
    pa.field("smallest_key", pa.binary(), nullable=False),
    pa.field("largest_key", pa.binary(), nullable=False),
    pa.field("smallest_key_sequence", pa.int64(), nullable=False),
    pa.field("largest_key_sequence", pa.int64(), nullable=False),
    pa.field("smallest_sequence", pa.int64()),
    pa.field("largest_sequence", pa.int64()),
    pa.field("path_id", pa.int64()),
    pa.field("oldest_blob_file", pa.int64()),
    pa.field("oldest_ancestor_time", pa.int64(), metadata=_SECONDS),
    pa.field("creation_time", pa.int64(), metadata=_SECONDS),
    pa.field("checksum", pa.binary()),
    pa.field("checksum_function", pa.string()),
    pa.field("temperature", pa.int32()),
    pa.field("epoch_number", pa.int64()),
    pa.field("backing_file", pa.int64()),
    pa.field("synthetic_prefix", pa.binary()),
    pa.field("synthetic_suffix", pa.binary()),
    pa.field(
        "blob_references",
        pa.list_(
            pa.field(
                "element",
                pa.struct([pa.field(name, pa.int64(), nullable=False) for name in ("file", "size")]),
                nullable=False,
            )
        ),
    ),
)
"""A table file. What follows the sequences of its keys is RocksDB's or, from `backing_file` on, Pebble's; it is null
where it was not written."""


def _entries(name: str, *fields: pa.Field) -> pa.Field:
    return pa.field(name, pa.list_(pa.field("element", pa.struct(fields), nullable=False)), nullable=False)


_BLOB_FIELDS = tuple(pa.field(name, pa.int64(), nullable=False) for name in ("file", "count", "size"))

EDITS_SCHEMA = pa.schema(
    [
        pa.field("comparator", pa.string()),
        pa.field("log_number", pa.int64()),
        pa.field("previous_log_number", pa.int64()),
        pa.field("next_file", pa.int64()),
        pa.field("last_sequence", pa.int64()),
        _entries("deleted_files", *_FILE_FIELDS[:2]),
        _entries("new_files", *_FILE_FIELDS),
        _entries(
            "compact_pointers",
            pa.field("level", pa.int32(), nullable=False),
            pa.field("key", pa.binary(), nullable=False),
            pa.field("sequence", pa.int64(), nullable=False),
        ),
        pa.field("column_family", pa.int64(), nullable=False),
        pa.field("column_family_added", pa.string()),
        pa.field("column_family_dropped", pa.bool_(), nullable=False),
        pa.field("max_column_family", pa.int64()),
        pa.field("min_log_to_keep", pa.int64()),
        pa.field("atomic_group_remaining", pa.int64()),
        pa.field("db_id", pa.string()),
        _entries(
            "new_blob_files",
            *_BLOB_FIELDS,
            pa.field("checksum_method", pa.string(), nullable=False),
            pa.field("checksum", pa.binary(), nullable=False),
        ),
        _entries("blob_garbage", *_BLOB_FIELDS),
        _entries("wals_added", pa.field("log", pa.int64(), nullable=False), pa.field("synced_size", pa.int64())),
        pa.field("wals_deleted_before", pa.int64()),
        _entries("new_backing_files", *(pa.field(name, pa.int64(), nullable=False) for name in ("file", "size"))),
        _entries("removed_backing_files", pa.field("file", pa.int64(), nullable=False)),
        _entries(
            "new_value_files",
            *(pa.field(name, pa.int64(), nullable=False) for name in ("blob", "file", "size", "value_bytes")),
            pa.field("creation_time", pa.int64(), nullable=False, metadata=_SECONDS),
        ),
        _entries("removed_value_files", *(pa.field(name, pa.int64(), nullable=False) for name in ("blob", "file"))),
    ]
)
"""One row per edit; null means that the edit does not say. From `column_family` on, all is RocksDB's, and from
`new_backing_files` on Pebble's."""

FILES_SCHEMA = pa.schema(
    [
        pa.field("column_family", pa.int64(), nullable=False),
        pa.field("column_family_name", pa.string()),
        *_FILE_FIELDS,
    ]
)
"""One row per live table file, ordered by column family, level and file number."""


_WORD = 1 << 64


class EditError(Exception):
    """Bytes that are no version edit."""


class Cursor:
    """Reads varints and strings from a record, and says where it stopped."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.position = 0

    @property
    def left(self) -> int:
        """How many bytes are left."""
        return len(self._data) - self.position

    def byte(self) -> int:
        """A byte."""
        if not self.more:
            raise EditError(f"a byte expected at byte {self.position}, where the edit ends")
        self.position += 1
        return self._data[self.position - 1]

    @property
    def more(self) -> bool:
        """Whether bytes are left."""
        return self.position < len(self._data)

    def varint(self, longest: int = layout.VARINT64_BYTES) -> int:
        """An unsigned varint of at most `longest` bytes."""
        value = 0
        for index in range(longest):
            if not self.more:
                break
            byte = self._data[self.position]
            self.position += 1
            value |= (byte & 127) << 7 * index
            if byte < 128:
                return value % _WORD
        raise EditError(f"a varint at byte {self.position} does not end")

    def number(self) -> int:
        """A varint64 as a signed number of 64 bits, which is what Arrow and Spark have."""
        value = self.varint()
        return value - _WORD if value >= _WORD // 2 else value

    def small(self) -> int:
        """A varint32."""
        return self.varint(layout.VARINT32_BYTES) & 0xFFFFFFFF

    def level(self) -> int:
        """The level of a file."""
        value = self.small()
        if value > layout.MAX_LEVEL:
            raise EditError(f"level {value} at byte {self.position}; expected at most {layout.MAX_LEVEL}")
        return value

    def string(self) -> bytes:
        """A length and that many bytes."""
        length = self.small()
        start = self.position
        if length > len(self._data) - start:
            raise EditError(f"{length} bytes expected at byte {start}, {len(self._data) - start} are left")
        self.position = start + length
        return self._data[start : self.position]

    def text(self) -> str:
        """A string as text; names that are no UTF-8 have their odd bytes escaped."""
        return self.string().decode("utf-8", "backslashreplace")

    def internal_key(self) -> tuple[bytes, int]:
        """A user key and the sequence number of the operation that wrote it."""
        key = self.string()
        if len(key) < layout.KEY_TRAILER:
            raise EditError(f"an internal key of {len(key)} bytes before byte {self.position}; it ends in 8")
        trailer = int.from_bytes(key[-layout.KEY_TRAILER :], "little")
        return key[: -layout.KEY_TRAILER], trailer >> layout.SEQUENCE_SHIFT


def parse_edit(record: bytes) -> dict[str, Any]:
    """One version edit as a row of `EDITS_SCHEMA`. Section 10.2 of the format.

    Raises:
        EditError: When the record is no version edit.
    """
    row: dict[str, Any] = {name: [] for name in _LISTS}
    row["column_family"] = 0
    row["column_family_dropped"] = False
    for name, _, _, value in edit_fields(record):
        if name in _LISTS:
            row[name].append(value)
        elif name:
            row[name] = value
    return row


def edit_fields(record: bytes) -> Iterator[tuple[str, int, int, Any]]:
    """The fields of a version edit: column of `EDITS_SCHEMA`, first byte, the byte after the last, and value.

    Fields that are skipped have no name.

    Raises:
        EditError: When the record is no version edit.
    """
    cursor = Cursor(record)
    while cursor.more:
        at = cursor.position
        name, value = _field(cursor, cursor.small(), at)
        yield name, at, cursor.position, value


def _field(cursor: Cursor, tag: int, at: int) -> tuple[str, Any]:
    if tag in _SCALARS:
        name, read = _SCALARS[tag]
        return name, read(cursor)
    if tag in _ENTRIES:
        name, parse = _ENTRIES[tag]
        return name, parse(cursor)
    if tag == Tag.DROP_COLUMN_FAMILY:
        return "column_family_dropped", True
    if tag == Tag.WAL_ADDITION:
        return "wals_added", _wal(Cursor(cursor.string()))
    if tag == Tag.WAL_DELETION:
        return "wals_deleted_before", Cursor(cursor.string()).number()
    if tag & layout.SKIPPABLE:
        return "", cursor.string()
    raise EditError(f"unknown tag {tag} at byte {at}")


def _compact_pointer(cursor: Cursor) -> dict[str, Any]:
    level = cursor.level()
    key, sequence = cursor.internal_key()
    return {"level": level, "key": key, "sequence": sequence}


def _deleted_file(cursor: Cursor) -> dict[str, Any]:
    return {"level": cursor.level(), "file": cursor.number()}


def _new_file(
    cursor: Cursor, *, path: bool = False, ranges: bool = False, sequences: bool = False, custom: bool = False
) -> dict[str, Any]:
    entry: dict[str, Any] = {"level": cursor.level(), "file": cursor.number()}
    if path:
        entry["path_id"] = cursor.small()
    entry["size"] = cursor.number()
    smallest, largest = _bounds(cursor) if ranges else (cursor.internal_key(), cursor.internal_key())
    entry["smallest_key"], entry["smallest_key_sequence"] = smallest
    entry["largest_key"], entry["largest_key_sequence"] = largest
    if sequences:
        entry["smallest_sequence"] = cursor.number()
        entry["largest_sequence"] = cursor.number()
    if custom:
        _custom_fields(cursor, entry)
    return entry


def _bounds(cursor: Cursor) -> tuple[tuple[bytes, int], tuple[bytes, int]]:
    """The bounds of a table that has range keys, of which one, or both, may be those of its point keys."""
    marker = cursor.byte()
    points = (cursor.internal_key(), cursor.internal_key()) if marker & layout.POINT_KEYS else None
    ranges = cursor.internal_key(), cursor.internal_key()
    if points is None and marker & (layout.SMALLEST_IS_POINT | layout.LARGEST_IS_POINT):
        raise EditError(f"bounds of point keys in a table that has none, before byte {cursor.position}")
    smallest = points if points is not None and marker & layout.SMALLEST_IS_POINT else ranges
    largest = points if points is not None and marker & layout.LARGEST_IS_POINT else ranges
    return smallest[0], largest[1]


def _custom_fields(cursor: Cursor, entry: dict[str, Any]) -> None:
    """The fields after a `Tag.NEW_FILE_4`."""
    while (tag := cursor.small()) != Custom.END:
        at = cursor.position
        if tag == Custom.VIRTUAL:
            entry["backing_file"] = cursor.number()
            continue
        if tag == Custom.BLOB_REFERENCES:
            cursor.varint()
            count = cursor.varint()
            entry["blob_references"] = []
            for _ in range(min(count, cursor.left)):
                entry["blob_references"].append({"file": cursor.number(), "size": cursor.number()})
            if count > len(entry["blob_references"]):
                raise EditError(f"{count} references to blob files at byte {at}, which do not end")
            continue
        value = cursor.string()
        if tag in _CUSTOM:
            name, read = _CUSTOM[tag]
            entry[name] = read(value)
        elif tag & layout.CUSTOM_MUST_KNOW:
            raise EditError(f"unknown field {tag} of a new file at byte {at}, which must not be skipped")


def _blob_file(cursor: Cursor) -> dict[str, Any]:
    entry = {"file": cursor.number(), "count": cursor.number(), "size": cursor.number()}
    checksum_method, checksum = cursor.text(), cursor.string()
    _skip_fields(cursor, layout.BLOB_END)
    return {**entry, "checksum_method": checksum_method, "checksum": checksum}


def _backing(cursor: Cursor) -> dict[str, Any]:
    return {"file": cursor.number(), "size": cursor.number()}


def _pebble_blob_file(cursor: Cursor) -> dict[str, Any]:
    blob, file, size, value_bytes, created = (cursor.number() for _ in range(5))
    return {"blob": blob, "file": file, "size": size, "value_bytes": value_bytes, "creation_time": created}


def _pebble_blob_removal(cursor: Cursor) -> dict[str, Any]:
    return {"blob": cursor.number(), "file": cursor.number()}


def _blob_garbage(cursor: Cursor) -> dict[str, Any]:
    entry = {"file": cursor.number(), "count": cursor.number(), "size": cursor.number()}
    _skip_fields(cursor, layout.BLOB_END)
    return entry


def _skip_fields(cursor: Cursor, end: int) -> None:
    while cursor.small() != end:
        cursor.string()


def _wal(cursor: Cursor) -> dict[str, Any]:
    entry: dict[str, Any] = {"log": cursor.number()}
    while (tag := cursor.small()) != layout.WAL_END:
        if tag != layout.WAL_SYNCED_SIZE:
            raise EditError(f"unknown field {tag} of a log")
        entry["synced_size"] = cursor.number()
    return entry


def _varint(value: bytes) -> int:
    return Cursor(value).number()


def _text(value: bytes) -> str:
    return value.decode("utf-8", "backslashreplace")


def _byte(value: bytes) -> int:
    if len(value) != 1:
        raise EditError(f"a field of one byte has {len(value)}")
    return value[0]


_SCALARS: dict[int, tuple[str, Callable[[Cursor], Any]]] = {
    Tag.COMPARATOR: ("comparator", Cursor.text),
    Tag.LOG_NUMBER: ("log_number", Cursor.number),
    Tag.PREVIOUS_LOG_NUMBER: ("previous_log_number", Cursor.number),
    Tag.NEXT_FILE: ("next_file", Cursor.number),
    Tag.LAST_SEQUENCE: ("last_sequence", Cursor.number),
    Tag.MIN_LOG_TO_KEEP: ("min_log_to_keep", Cursor.number),
    Tag.COLUMN_FAMILY: ("column_family", Cursor.small),
    Tag.ADD_COLUMN_FAMILY: ("column_family_added", Cursor.text),
    Tag.MAX_COLUMN_FAMILY: ("max_column_family", Cursor.small),
    Tag.ATOMIC_GROUP: ("atomic_group_remaining", Cursor.small),
    Tag.DB_ID: ("db_id", Cursor.text),
    Tag.WAL_DELETION_OLD: ("wals_deleted_before", Cursor.number),
}

_ENTRIES: dict[int, tuple[str, Callable[[Cursor], dict[str, Any]]]] = {
    Tag.NEW_FILE_5: ("new_files", lambda cursor: _new_file(cursor, ranges=True, sequences=True, custom=True)),
    Tag.BACKING_ADDITION: ("new_backing_files", _backing),
    Tag.BACKING_REMOVAL: ("removed_backing_files", lambda cursor: {"file": cursor.number()}),
    Tag.BLOB_FILE_ADDITION: ("new_value_files", _pebble_blob_file),
    Tag.BLOB_FILE_REMOVAL: ("removed_value_files", _pebble_blob_removal),
    Tag.COMPACT_POINTER: ("compact_pointers", _compact_pointer),
    Tag.DELETED_FILE: ("deleted_files", _deleted_file),
    Tag.NEW_FILE: ("new_files", _new_file),
    Tag.NEW_FILE_2: ("new_files", lambda cursor: _new_file(cursor, sequences=True)),
    Tag.NEW_FILE_3: ("new_files", lambda cursor: _new_file(cursor, path=True, sequences=True)),
    Tag.NEW_FILE_4: ("new_files", lambda cursor: _new_file(cursor, sequences=True, custom=True)),
    Tag.BLOB_ADDITION: ("new_blob_files", _blob_file),
    Tag.BLOB_ADDITION_OLD: ("new_blob_files", _blob_file),
    Tag.BLOB_GARBAGE: ("blob_garbage", _blob_garbage),
    Tag.BLOB_GARBAGE_OLD: ("blob_garbage", _blob_garbage),
    Tag.WAL_ADDITION_OLD: ("wals_added", _wal),
}

_CUSTOM: dict[int, tuple[str, Callable[[bytes], Any]]] = {
    Custom.OLDEST_BLOB_FILE: ("oldest_blob_file", _varint),
    Custom.OLDEST_ANCESTOR_TIME: ("oldest_ancestor_time", _varint),
    Custom.CREATION_TIME: ("creation_time", _varint),
    Custom.CHECKSUM: ("checksum", bytes),
    Custom.CHECKSUM_FUNCTION: ("checksum_function", _text),
    Custom.TEMPERATURE: ("temperature", _byte),
    Custom.EPOCH_NUMBER: ("epoch_number", _varint),
    Custom.PATH_ID: ("path_id", _byte),
    Custom.SYNTHETIC_PREFIX: ("synthetic_prefix", bytes),
    Custom.SYNTHETIC_SUFFIX: ("synthetic_suffix", bytes),
}

_LISTS = ("wals_added", *dict.fromkeys(name for name, _ in _ENTRIES.values() if name != "wals_added"))


@dataclass(frozen=True)
class EditRange(LogRange):
    """The version edits of a MANIFEST."""

    def decode(self, schema: pa.Schema, findings: Findings) -> Iterator[pa.RecordBatch]:
        """See `Fragment.decode`. A record that is no version edit is damage."""
        for edits, failed in self.edits(findings):
            rows = [{**edit, FILE_COLUMN: self.path, OFFSET_COLUMN: offset} for offset, edit in edits]
            findings.rows += len(rows)
            yield batch_of_rows(rows, schema) if schema.names else _empty()
            if failed is not None:
                report_record(findings, failed)

    def edits(self, findings: Findings) -> Iterator[tuple[list[tuple[int, dict[str, Any]]], Damage | None]]:
        """Edits with the offsets of their records, up to and with the next damage inside a record."""
        for records in LogRange.decode(self, RECORDS_SCHEMA, findings):
            findings.rows -= records.num_rows
            edits: list[tuple[int, dict[str, Any]]] = []
            columns = (records.column(name).to_pylist() for name in (RECORD_COLUMN, OFFSET_COLUMN, END_COLUMN))
            for record, offset, end in zip(*columns, strict=True):
                try:
                    edits.append((offset, parse_edit(record)))
                except EditError as error:
                    detail = f"expected a version edit: {error}"
                    yield edits, Damage(self.path, offset, end - offset, layout.EDIT_DAMAGE, detail)
                    edits = []
            yield edits, None


@dataclass(frozen=True)
class LiveFiles(EditRange):
    """The files that live after the last edit of a MANIFEST."""

    def decode(self, schema: pa.Schema, findings: Findings) -> Iterator[pa.RecordBatch]:
        """See `Fragment.decode`."""
        version = Version()
        for edits, failed in self.edits(findings):
            for offset, edit in edits:
                version.apply(offset, edit)
            if failed is not None:
                report_record(findings, failed)
        rows = [{**row, FILE_COLUMN: self.path} for row in version.rows()]
        findings.rows += len(rows)
        yield batch_of_rows(rows, schema) if schema.names else _empty()


@dataclass
class Version:
    """What edits add up to."""

    files: dict[tuple[int, int, int], dict[str, Any]] = field(default_factory=dict)
    families: dict[int, str] = field(default_factory=lambda: {0: "default"})
    group: list[tuple[int, dict[str, Any]]] = field(default_factory=list)

    def apply(self, offset: int, edit: dict[str, Any]) -> None:
        """Take in the next edit. Edits of an atomic group count when the last of them is there."""
        self.group.append((offset, edit))
        if not edit.get("atomic_group_remaining"):
            for place, one in self.group:
                self._apply(place, one)
            self.group.clear()

    def _apply(self, offset: int, edit: dict[str, Any]) -> None:
        family = edit["column_family"]
        if edit.get("column_family_added") is not None:
            self.families[family] = edit["column_family_added"]
        if edit["column_family_dropped"]:
            self.families.pop(family, None)
            for place in [place for place in self.files if place[0] == family]:
                del self.files[place]
        for entry in edit["deleted_files"]:
            self.files.pop((family, entry["level"], entry["file"]), None)
        for entry in edit["new_files"]:
            self.files[family, entry["level"], entry["file"]] = {**entry, OFFSET_COLUMN: offset}

    def rows(self) -> list[dict[str, Any]]:
        """The live files as rows of `FILES_SCHEMA`, with the offsets of the edits that added them."""
        return [
            {"column_family": place[0], "column_family_name": self.families.get(place[0]), **entry}
            for place, entry in sorted(self.files.items())
        ]


class EditsContents(LogContents):
    """MANIFEST files; of a database directory, the live one: see `live_manifest`."""

    range_type: ClassVar[type[LogRange]] = EditRange
    views: ClassVar = {"edits": View(EDITS_SCHEMA, LogContents._ranges)}

    def __init__(self, format: Format, files: Sequence[File], scan: Scan) -> None:
        super().__init__(format, _live(files, scan.storage), scan)


class FilesContents(EditsContents):
    """The live files of databases."""

    range_type: ClassVar[type[LogRange]] = LiveFiles
    views: ClassVar = {
        "files": View(
            FILES_SCHEMA,  # of whole files: only all edits together say which files live
            lambda self, request, _: (
                one for file in self.files for one in self._cut(request, file, 0, file.size, True, None)
            ),
        )
    }

    def committed_end(self, request: Request, file: File, position: int) -> int:
        """Refused: the files that live are no stream.

        Raises:
            OptionError: Always.
        """
        return Contents.committed_end(self, request, file, position)


def _live(files: Sequence[File], storage: Storage) -> list[File]:
    """Those MANIFEST files that are named, and of each directory the live one."""
    chosen = [file for file in files if file.explicit]
    directories: dict[str, list[File]] = {}
    for file in files:
        if not file.explicit:
            directories.setdefault(posixpath.dirname(file.path), []).append(file)
    for directory, manifests in directories.items():
        chosen.append(live_manifest(manifests, storage.files_in(directory or ".", anew=False), storage))
    return chosen


def _empty() -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([], schema=pa.schema([]))

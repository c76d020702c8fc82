"""Parsing version edits: the records of MANIFEST files, in the dialects of LevelDB and RocksDB."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from sawlog.leveldb.records import layout
from sawlog.leveldb.records.layout import Custom, Tag

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


def _numbers(*names: str) -> Callable[[Cursor], dict[str, Any]]:
    """What reads an entry of varints."""
    return lambda cursor: {name: cursor.number() for name in names}


def _compact_pointer(cursor: Cursor) -> dict[str, Any]:
    level = cursor.level()
    key, sequence = cursor.internal_key()
    return {"level": level, "key": key, "sequence": sequence}


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


_blob = _numbers("file", "count", "size")


def _blob_file(cursor: Cursor) -> dict[str, Any]:
    entry = _blob(cursor)
    checksum_method, checksum = cursor.text(), cursor.string()
    _skip_fields(cursor, layout.BLOB_END)
    return {**entry, "checksum_method": checksum_method, "checksum": checksum}


def _blob_garbage(cursor: Cursor) -> dict[str, Any]:
    entry = _blob(cursor)
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
    Tag.BACKING_ADDITION: ("new_backing_files", _numbers("file", "size")),
    Tag.BACKING_REMOVAL: ("removed_backing_files", _numbers("file")),
    Tag.BLOB_FILE_ADDITION: ("new_value_files", _numbers("blob", "file", "size", "value_bytes", "creation_time")),
    Tag.BLOB_FILE_REMOVAL: ("removed_value_files", _numbers("blob", "file")),
    Tag.COMPACT_POINTER: ("compact_pointers", _compact_pointer),
    Tag.DELETED_FILE: ("deleted_files", lambda cursor: {"level": cursor.level(), "file": cursor.number()}),
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

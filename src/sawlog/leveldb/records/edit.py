"""Version edits, the records of MANIFEST files: their columns, each declared once, and what reads them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Any, NamedTuple

import pyarrow as pa

from sawlog.kernels.varints import ByteCursor, encode_varint, read_varint
from sawlog.leveldb.log.layout import Dialect
from sawlog.leveldb.records import layout
from sawlog.leveldb.records.layout import KEY_TRAILER, SEQUENCE_SHIFT, Custom, PebbleTag, Tag

_WORD = 1 << 64


class EditError(Exception):
    """Bytes that are not a version edit."""


class UnknownFieldError(EditError):
    """A field of a version edit that must not be skipped, and that nobody knew when this version was written."""


class _Cursor(ByteCursor):
    """Reads varints and strings from a record, and says where it stopped."""

    def make_missing_error(self, label: str, length: int) -> EditError:
        if label == "byte":
            return EditError(f"a byte expected at byte {self.position}, where the edit ends")
        return EditError(f"{length} bytes expected at byte {self.position}, {self.remaining} are left")

    def take_varint(self, longest: int = layout.VARINT64_BYTES) -> int:
        """Return an unsigned varint of at most `longest` bytes."""
        number = read_varint(self.data, self.position, longest)
        if number is None:
            raise EditError(f"a varint at byte {self.position} does not end")
        value, self.position = number
        return value % _WORD

    def take_number(self) -> int:
        """Return a varint64 as a signed number of 64 bits, which is what Arrow and Spark have."""
        value = self.take_varint()
        return value - _WORD if value >= _WORD // 2 else value

    def take_small(self) -> int:
        return self.take_varint(layout.VARINT32_BYTES) & 0xFFFFFFFF

    def take_level(self) -> int:
        value = self.take_small()
        if value > layout.MAX_LEVEL:
            raise EditError(f"level {value} at byte {self.position}; expected at most {layout.MAX_LEVEL}")
        return value

    def take_string(self) -> bytes:
        """Return a length and that many bytes."""
        return self.take(self.take_small())

    def take_text(self) -> str:
        """Return a string as text; names that are not UTF-8 have their odd bytes escaped."""
        return _decode_text(self.take_string())

    def take_only_byte(self) -> int:
        if self.remaining != 1:
            raise EditError(f"a field of one byte has {self.remaining}")
        return self.take_byte()

    def take_internal_key(self) -> tuple[bytes, int]:
        """Return a user key and the sequence number of the operation that wrote it."""
        key = self.take_string()
        if len(key) < layout.KEY_TRAILER:
            raise EditError(f"an internal key of {len(key)} bytes before byte {self.position}; it ends in 8")
        trailer = int.from_bytes(key[-layout.KEY_TRAILER :], "little")
        return key[: -layout.KEY_TRAILER], trailer >> layout.SEQUENCE_SHIFT


def _decode_text(data: bytes) -> str:
    return data.decode("utf-8", "backslashreplace")


class _Value(NamedTuple):
    """A kind of value: its Arrow type, and what reads it."""

    type: pa.DataType
    read: Callable[[_Cursor], Any]
    metadata: dict[bytes, bytes] | None = None

    def make_field(self, name: str, *, nullable: bool = False) -> pa.Field:
        return pa.field(name, self.type, nullable, self.metadata)


_Values = Mapping[str, _Value]


def _make_fields(required: _Values, optional: _Values = MappingProxyType({})) -> list[pa.Field]:
    return [
        *(value.make_field(name) for name, value in required.items()),
        *(value.make_field(name, nullable=True) for name, value in optional.items()),
    ]


def _read(values: _Values, cursor: _Cursor) -> dict[str, Any]:
    return {name: value.read(cursor) for name, value in values.items()}


def _make_entry(**values: _Value) -> _Value:
    return _Value(pa.struct(_make_fields(values)), partial(_read, values))


def _make_list(entry: pa.DataType) -> pa.DataType:
    return pa.list_(pa.field("element", entry, nullable=False))


_NUMBER = _Value(pa.int64(), _Cursor.take_number)
_SMALL = _Value(pa.int64(), _Cursor.take_small)
_LEVEL = _Value(pa.int32(), _Cursor.take_level)
_SECONDS = _Value(pa.int64(), _Cursor.take_number, {b"sawlog.unit": b"seconds since 1970"})
_TEXT = _Value(pa.string(), _Cursor.take_text)
_BYTES = _Value(pa.binary(), _Cursor.take_string)


def _read_compact_pointer(cursor: _Cursor) -> dict[str, Any]:
    level = cursor.take_level()
    key, sequence = cursor.take_internal_key()
    return {"level": level, "key": key, "sequence": sequence}


_REFERENCE = _make_entry(file=_NUMBER, size=_NUMBER)


def _read_blob_references(cursor: _Cursor, *, sized: bool = False) -> list[dict[str, Any]]:
    field_start = cursor.position
    cursor.take_varint()
    count = cursor.take_varint()
    values = []
    for _ in range(min(count, cursor.remaining)):
        values.append(_REFERENCE.read(cursor))
        if sized:
            cursor.take_varint()
    if count > len(values):
        raise EditError(f"{count} references to blob files at byte {field_start}, which do not end")
    return values


_CUSTOM: dict[int, tuple[str, _Value]] = {
    Custom.PATH_ID: ("path_id", _Value(pa.int64(), _Cursor.take_only_byte)),
    Custom.OLDEST_BLOB_FILE: ("oldest_blob_file", _NUMBER),
    Custom.OLDEST_ANCESTOR_TIME: ("oldest_ancestor_time", _SECONDS),
    Custom.CREATION_TIME: ("creation_time", _SECONDS),
    Custom.CHECKSUM: ("checksum", _Value(pa.binary(), _Cursor.take_remainder)),
    Custom.CHECKSUM_FUNCTION: (
        "checksum_function",
        _Value(pa.string(), lambda cursor: _decode_text(cursor.take_remainder())),
    ),
    Custom.TEMPERATURE: ("temperature", _Value(pa.int32(), _Cursor.take_only_byte)),
    Custom.UNIQUE_ID: ("unique_id", _Value(pa.binary(), _Cursor.take_remainder)),
    Custom.EPOCH_NUMBER: ("epoch_number", _NUMBER),
    Custom.STAMPS_PERSISTED: ("timestamps_persisted", _Value(pa.bool_(), lambda cursor: bool(cursor.take_only_byte()))),
    Custom.VIRTUAL: ("backing_file", _NUMBER),
    Custom.SYNTHETIC_PREFIX: ("synthetic_prefix", _Value(pa.binary(), _Cursor.take_remainder)),
    Custom.SYNTHETIC_SUFFIX: ("synthetic_suffix", _Value(pa.binary(), _Cursor.take_remainder)),
    Custom.BLOB_REFERENCES: ("blob_references", _Value(_make_list(_REFERENCE.type), _read_blob_references)),
}
_CUSTOM_READERS: dict[int, tuple[str, Callable[[_Cursor], Any]]] = {
    **{tag: (name, value.read) for tag, (name, value) in _CUSTOM.items()},
    Custom.SIZED_BLOB_REFERENCES: ("blob_references", partial(_read_blob_references, sized=True)),
}
_BARE = (Custom.VIRTUAL, Custom.BLOB_REFERENCES, Custom.SIZED_BLOB_REFERENCES)
"""Fields that are in no string."""
_PLACE = {"level": _LEVEL, "file": _NUMBER}
_SEQUENCES = {"smallest_sequence": _NUMBER, "largest_sequence": _NUMBER}
_KEYS = {"smallest_key": _BYTES, "largest_key": _BYTES}
_KEY_SEQUENCES = {"smallest_key_sequence": _NUMBER, "largest_key_sequence": _NUMBER}
FILE_FIELDS = _make_fields(
    {**_PLACE, "size": _NUMBER, **_KEYS, **_KEY_SEQUENCES}, {**_SEQUENCES, **dict(_CUSTOM.values())}
)
"""A table file. What follows the sequences of its keys is RocksDB's or, from `backing_file` on, Pebble's; it is null
where it was not written."""


def _read_new_file(
    cursor: _Cursor, *, path: bool = False, ranges: bool = False, sequences: bool = False, custom: bool = False
) -> dict[str, Any]:
    entry = _read(_PLACE, cursor)
    if path:
        entry["path_id"] = cursor.take_small()
    entry["size"] = cursor.take_number()
    smallest, largest = _read_bounds(cursor) if ranges else (cursor.take_internal_key(), cursor.take_internal_key())
    entry["smallest_key"], entry["smallest_key_sequence"] = smallest
    entry["largest_key"], entry["largest_key_sequence"] = largest
    if sequences:
        entry |= _read(_SEQUENCES, cursor)
    if custom:
        _read_custom_fields(cursor, entry)
    return entry


def _read_bounds(cursor: _Cursor) -> tuple[tuple[bytes, int], tuple[bytes, int]]:
    """Return the bounds of a table that has range keys, of which one, or both, may be those of its point keys."""
    marker = cursor.take_byte()
    points = (cursor.take_internal_key(), cursor.take_internal_key()) if marker & layout.POINT_KEYS else None
    ranges = cursor.take_internal_key(), cursor.take_internal_key()
    if points is None and marker & (layout.SMALLEST_IS_POINT | layout.LARGEST_IS_POINT):
        raise EditError(f"bounds of point keys in a table that has none, before byte {cursor.position}")
    smallest = points if points is not None and marker & layout.SMALLEST_IS_POINT else ranges
    largest = points if points is not None and marker & layout.LARGEST_IS_POINT else ranges
    return smallest[0], largest[1]


def _read_custom_fields(cursor: _Cursor, entry: dict[str, Any]) -> None:
    """Read the fields after a `Tag.NEW_FILE_4`."""
    while (tag := cursor.take_small()) != Custom.END:
        field_start = cursor.position
        if tag & layout.CUSTOM_MUST_KNOW and tag not in _CUSTOM_READERS:
            raise UnknownFieldError(f"field {tag} of a new file at byte {field_start}, which must not be skipped")
        field_cursor = cursor if tag in _BARE else _Cursor(cursor.take_string())
        if tag == Custom.CHECKSUM and not field_cursor.remaining:
            continue  # Pebble's mark of a table without sets of range keys; RocksDB writes no empty checksum
        if tag in _CUSTOM_READERS:
            name, read = _CUSTOM_READERS[tag]
            entry[name] = read(field_cursor)


def _make_blob_file(**values: _Value) -> _Value:
    """Return an entry about a blob file, whose fields for later versions are skipped."""

    def read(cursor: _Cursor) -> dict[str, Any]:
        entry = _read(values, cursor)
        while (tag := cursor.take_small()) != layout.BLOB_END:
            if tag & layout.CUSTOM_MUST_KNOW:
                raise UnknownFieldError(f"field {tag} of a blob file, which must not be skipped")
            cursor.take_string()
        return entry

    return _Value(pa.struct(_make_fields(values)), read)


def _read_wal(cursor: _Cursor) -> dict[str, Any]:
    entry: dict[str, Any] = {"log": cursor.take_number()}
    while (tag := cursor.take_small()) != layout.WAL_END:
        if tag != layout.WAL_SYNCED_SIZE:
            raise UnknownFieldError(f"field {tag} of a log")
        entry["synced_size"] = cursor.take_number()
    return entry


class _Column(NamedTuple):
    """A column of edits: its values, the tags before them, and what it is without any; entries are in a list."""

    name: str
    value: _Value
    tags: tuple[Tag, ...]
    absent: Any = None

    @property
    def field(self) -> pa.Field:
        if self.absent == []:
            return pa.field(self.name, _make_list(self.value.type), nullable=False)
        return self.value.make_field(self.name, nullable=self.absent is None)


def _read_excise(cursor: _Cursor) -> dict[str, Any]:
    low, high, kind, sequence = cursor.take_string(), cursor.take_string(), cursor.take_varint(), cursor.take_number()
    if kind > layout.BOUND_INCLUDED:
        raise UnknownFieldError(f"kind {kind} of the end of an excise")
    return {"low": low, "high": high, "inclusive": kind == layout.BOUND_INCLUDED, "sequence": sequence}


_BLOB = {"file": _NUMBER, "count": _NUMBER, "size": _NUMBER}
_POINTER_FIELDS = _make_fields({"level": _LEVEL, "key": _BYTES, "sequence": _NUMBER})
_WAL_FIELDS = _make_fields({"log": _NUMBER}, {"synced_size": _NUMBER})
_BOOL = _Value(pa.bool_(), lambda cursor: bool(cursor.take_byte()))
_SIZED_BOOL = _Value(pa.bool_(), lambda cursor: bool(_Cursor(cursor.take_string()).take_only_byte()))
_EXCISE_FIELDS = _make_fields({"low": _BYTES, "high": _BYTES, "inclusive": _BOOL, "sequence": _NUMBER})
_VALUE_FILE = _make_entry(blob=_NUMBER, file=_NUMBER, size=_NUMBER, value_bytes=_NUMBER, creation_time=_SECONDS)
_COLUMNS = (
    _Column("comparator", _TEXT, (Tag.COMPARATOR,)),
    _Column("log_number", _NUMBER, (Tag.LOG_NUMBER,)),
    _Column("previous_log_number", _NUMBER, (Tag.PREVIOUS_LOG_NUMBER,)),
    _Column("next_file", _NUMBER, (Tag.NEXT_FILE,)),
    _Column("last_sequence", _NUMBER, (Tag.LAST_SEQUENCE,)),
    _Column("deleted_files", _make_entry(**_PLACE), (Tag.DELETED_FILE,), []),
    _Column("new_files", _Value(pa.struct(FILE_FIELDS), _read_new_file), (Tag.NEW_FILE,), []),
    _Column("compact_pointers", _Value(pa.struct(_POINTER_FIELDS), _read_compact_pointer), (Tag.COMPACT_POINTER,), []),
    _Column("column_family", _SMALL, (Tag.COLUMN_FAMILY,), 0),
    _Column("column_family_added", _TEXT, (Tag.ADD_COLUMN_FAMILY,)),
    _Column("column_family_dropped", _Value(pa.bool_(), lambda cursor: True), (Tag.DROP_COLUMN_FAMILY,), False),
    _Column("max_column_family", _SMALL, (Tag.MAX_COLUMN_FAMILY,)),
    _Column("min_log_to_keep", _NUMBER, (Tag.MIN_LOG_TO_KEEP,)),
    _Column("atomic_group_remaining", _SMALL, (Tag.ATOMIC_GROUP,)),
    _Column("db_id", _TEXT, (Tag.DB_ID,)),
    _Column(
        "new_blob_files",
        _make_blob_file(**_BLOB, checksum_method=_TEXT, checksum=_BYTES),
        (Tag.BLOB_ADDITION, Tag.BLOB_ADDITION_OLD),
        [],
    ),
    _Column("blob_garbage", _make_blob_file(**_BLOB), (Tag.BLOB_GARBAGE, Tag.BLOB_GARBAGE_OLD), []),
    _Column("wals_added", _Value(pa.struct(_WAL_FIELDS), _read_wal), (Tag.WAL_ADDITION_OLD,), []),
    _Column("wals_deleted_before", _NUMBER, (Tag.WAL_DELETION_OLD,)),
    _Column("timestamps_persisted", _SIZED_BOOL, (Tag.STAMPS_PERSISTED,)),
    _Column("new_backing_files", _REFERENCE, (Tag.BACKING_ADDITION,), []),
    _Column("removed_backing_files", _make_entry(file=_NUMBER), (Tag.BACKING_REMOVAL,), []),
    _Column("new_value_files", _VALUE_FILE, (Tag.BLOB_FILE_ADDITION,), []),
    _Column("removed_value_files", _make_entry(blob=_NUMBER, file=_NUMBER), (Tag.BLOB_FILE_REMOVAL,), []),
    _Column("excises", _Value(pa.struct(_EXCISE_FIELDS), _read_excise), (), []),
    _Column("marked_files", _make_entry(**_PLACE), (), []),
)
_READERS: dict[int, tuple[str, Callable[[_Cursor], Any]]] = {
    **{tag: (column.name, column.value.read) for column in _COLUMNS for tag in column.tags},
    Tag.NEW_FILE_2: ("new_files", partial(_read_new_file, sequences=True)),
    Tag.NEW_FILE_3: ("new_files", partial(_read_new_file, path=True, sequences=True)),
    Tag.NEW_FILE_4: ("new_files", partial(_read_new_file, sequences=True, custom=True)),
    Tag.NEW_FILE_5: ("new_files", partial(_read_new_file, ranges=True, sequences=True, custom=True)),
    Tag.WAL_ADDITION: ("wals_added", lambda cursor: _read_wal(_Cursor(cursor.take_string()))),
    Tag.WAL_DELETION: ("wals_deleted_before", lambda cursor: _Cursor(cursor.take_string()).take_number()),
}
_PEBBLE_READERS: dict[int, tuple[str, Callable[[_Cursor], Any]]] = {
    **_READERS,
    PebbleTag.EXCISE_BOUNDS: ("excises", _read_excise),
    PebbleTag.MARKED_FILE: ("marked_files", _make_entry(**_PLACE).read),
}
_ABSENT = {column.name: column.absent for column in _COLUMNS if column.absent is not None}
EDITS_SCHEMA = pa.schema([column.field for column in _COLUMNS])
"""One row per edit; null means that the edit does not say. From `column_family` on, all is RocksDB's, and from
`new_backing_files` on Pebble's."""


def parse_edit(record: bytes, dialect: Dialect = "leveldb") -> dict[str, Any]:
    """Return one version edit as a row of `EDITS_SCHEMA`. Section 10.2 of the format.

    Args:
        record: The edit.
        dialect: Whose it is. "leveldb" stands for nobody known: what RocksDB would not have written is Pebble's then.

    Raises:
        UnknownFieldError: For a field that must not be skipped.
        EditError: When the record is not a version edit.
    """
    try:
        return _parse_row(record, dialect)
    except EditError:
        if dialect != "leveldb":
            raise
        try:
            return _parse_row(record, "pebble")
        except EditError:
            pass
        raise


def _parse_row(record: bytes, dialect: Dialect) -> dict[str, Any]:
    row = {name: [] if absent == [] else absent for name, absent in _ABSENT.items()}
    for name, _, _, value in iterate_fields(record, dialect):
        if isinstance(row.get(name), list):
            row[name].append(value)
        elif name:
            row[name] = value
    return row


def iterate_fields(record: bytes, dialect: Dialect) -> Iterator[tuple[str, int, int, Any]]:
    """Yield the fields of a version edit: column of `EDITS_SCHEMA`, first byte, the byte after the last, and value.

    Fields that are skipped have no name.

    Raises:
        UnknownFieldError: For a field that must not be skipped.
        EditError: When the record is not a version edit.
    """
    readers = _PEBBLE_READERS if dialect == "pebble" else _READERS
    cursor = _Cursor(record)
    while cursor.remaining:
        field_start = cursor.position
        tag = cursor.take_small()
        if tag in readers:
            name, read = readers[tag]
            value = read(cursor)
        elif tag & layout.SKIPPABLE:
            name, value = "", cursor.take_string()
        else:
            raise UnknownFieldError(f"tag {tag} at byte {field_start}")
        yield name, field_start, cursor.position, value


@dataclass(frozen=True, slots=True)
class NewTable:
    """A table that a version edit adds.

    Attributes:
        number: Of the file.
        level: Its level.
        size: Bytes of the file.
        smallest: The first internal key.
        largest: The last one.
        sequences: The smallest and the largest sequence number; LevelDB's edits do not say them.
    """

    number: int
    level: int
    size: int
    smallest: bytes
    largest: bytes
    sequences: tuple[int, int]


def encode_internal_key(key: bytes, sequence: int, kind: int) -> bytes:
    """Return a user key with the sequence number and the type of an operation."""
    return key + (sequence << SEQUENCE_SHIFT | kind).to_bytes(KEY_TRAILER, "little")


def encode_edit(numbers: dict[Tag, int], texts: dict[Tag, str], tables: list[NewTable], *, is_leveldb: bool) -> bytes:
    """Return a version edit: fields that are numbers, fields that are texts, then tables."""
    parts = [encode_varint(tag) + encode_varint(number) for tag, number in numbers.items()]
    parts += [encode_varint(tag) + _prepend_size(text.encode()) for tag, text in texts.items()]
    for table in tables:
        parts += map(encode_varint, (Tag.NEW_FILE if is_leveldb else Tag.NEW_FILE_2, table.level, table.number))
        parts += [encode_varint(table.size), _prepend_size(table.smallest), _prepend_size(table.largest)]
        parts += [] if is_leveldb else map(encode_varint, table.sequences)
    return b"".join(parts)


def _prepend_size(data: bytes) -> bytes:
    return encode_varint(len(data)) + data

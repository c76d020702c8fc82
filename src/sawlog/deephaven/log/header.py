"""The header of a log: columns, constants, application version; read and built."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from sawlog.deephaven.log import layout
from sawlog.deephaven.log.layout import HeaderRecord
from sawlog.deephaven.text import DEFAULT_CHARSET, decode_string, encode_string, find_charset
from sawlog.deephaven.types import BY_LOG, LogType
from sawlog.errors import FormatError, SchemaError, UnsupportedError
from sawlog.format.damage import UNSUPPORTED, Damage
from sawlog.kernels.varints import ByteCursor
from sawlog.storage import Storage


class IncompleteHeaderError(FormatError):
    """The file ends inside its header: its writer has only just begun, or died at once."""


@dataclass(frozen=True)
class LogColumn:
    """Definition of one column.

    Attributes:
        name: Its name.
        type: Its type.
        charset: Stored name of the charset of an EnhancedString's values, or of an Enum's table; else empty.
        values: An Enum's table.
        constant: For a constant column, the value as stored in the header; None for one that is stored in the rows.
    """

    name: str
    type: LogType
    charset: str = ""
    values: tuple[str, ...] = ()
    constant: bytes | None = None

    @cached_property
    def width(self) -> int:
        """Bytes per value, 0 for a length and that many bytes."""
        return BY_LOG[self.type].width


@dataclass(frozen=True)
class Header:
    """Parsed header of one file.

    Attributes:
        version: Version of the file.
        columns: All columns in the order of definition, constant ones included.
        application_version: None when the record is absent.
        raw: The header as it is in the file.
        unknown: Header records of types that are not known: type and payload.
        places: Where each of these begins, and its bytes.
        digest: What the digest covers (a key of `HEADER_DIGEST_STARTS`), or empty when it does not match.
        notes: What a user should know.
    """

    version: int
    columns: tuple[LogColumn, ...]
    application_version: int | None
    raw: bytes
    unknown: tuple[tuple[int, bytes], ...] = ()
    places: tuple[tuple[int, int], ...] = ()
    digest: str = "file"
    notes: tuple[str, ...] = ()

    @cached_property
    def size(self) -> int:
        """Bytes of the header; the first entry begins here."""
        return len(self.raw)

    @cached_property
    def stored(self) -> tuple[LogColumn, ...]:
        """The columns that are stored in rows; their order is that of the presence bits."""
        return tuple(column for column in self.columns if column.constant is None)

    @cached_property
    def presence_bytes(self) -> int:
        """Length of a row's presence map."""
        return -(-len(self.stored) // layout.PRESENCE_BITS)


class _Cursor(ByteCursor):
    """Bounded reads of a header's bytes; a value that does not fit is a `FormatError` that says where."""

    def __init__(self, path: str, data: bytes, start: int, end: int) -> None:
        super().__init__(data, start, end)
        self.path = path

    def fail(self, expected: str, actual: object) -> FormatError:
        return FormatError(f"{self.path}: header at byte {self.position}: expected {expected}, found {actual}")

    def make_missing_error(self, label: str, length: int) -> FormatError:
        return self.fail(f"{label} of at most {self.remaining} bytes", f"a length of {length}")

    def read_integer(self, description: str) -> int:
        (value,) = struct.unpack(">i", self.take(layout.COUNT_SIZE, description))
        return int(value)

    def count(self, description: str, smallest: int) -> int:
        """Return a count of things that take at least `smallest` bytes each."""
        count = self.read_integer(description)
        if not 0 <= count <= self.remaining // smallest:
            raise self.fail(f"{description} that fits into {self.remaining} bytes", count)
        return count

    def read_string(self, description: str, charset: str = "UTF-8") -> str:
        return decode_string(self.take(self.read_integer(description), description), charset, "replace")

    def take_cursor(self, length: int, description: str) -> _Cursor:
        start = self.position
        self.take(length, description)
        return _Cursor(self.path, self.data, start, start + length)


def measure_header(head: bytes) -> int:
    """Return the size of the header that the first bytes of a file begin; of the preamble, where they begin none."""
    if len(head) < layout.PREAMBLE_SIZE:
        return len(head)
    magic, _, remaining = struct.unpack_from(">Iii", head)
    plausible = magic == layout.MAGIC and layout.DIGEST_SIZE <= remaining <= layout.MAX_HEADER_SIZE
    return layout.PREAMBLE_SIZE + (remaining if plausible else 0)


def read_header(path: str, size: int, storage: Storage, head: bytes, *, strict: bool, force: bool) -> Header:
    """Read a file's header.

    Args:
        path: The file.
        size: Its size.
        storage: Where it is.
        head: Its first bytes, as many as there are.
        strict: Refuse what the published text does not allow.
        force: Try unknown versions as the current one.

    Raises:
        IncompleteHeaderError: When the file ends inside the header.
        UnsupportedError: When it is a log of a version that is not known.
        FormatError: When it is no log, or its header is damaged.
    """
    if len(head) < layout.PREAMBLE_SIZE:
        raise IncompleteHeaderError(
            f"{path}: the file ends at byte {size}, inside the preamble of {layout.PREAMBLE_SIZE}"
        )
    magic, version, remaining = struct.unpack_from(">Iii", head)
    if 0 < magic <= layout.MAX_ORIGINAL_COLUMNS:
        raise FormatError(
            f"{path}: expected {layout.MAGIC:#010x} at byte 0, found {magic}: not a Deephaven log, or one from before"
            " version 2, which began with its number of columns; versions 2 and 3 are read"
        )
    if magic != layout.MAGIC:
        raise FormatError(f"{path}: expected {layout.MAGIC:#010x} at byte 0, found {magic:#010x}: not a Deephaven log")
    if version not in (layout.CURRENT_VERSION, layout.JAVA_METADATA_VERSION) and not force:
        tried = 'salvage="unknown_versions" tries it as version 3'
        detail = f"version {version} is not supported (2 and 3 are); {tried}"
        raise UnsupportedError(Damage(path, 0, size, UNSUPPORTED, detail))
    if not layout.DIGEST_SIZE <= remaining <= layout.MAX_HEADER_SIZE:
        raise FormatError(f"{path}: byte 8: a header of {remaining} bytes, expected 4 to {layout.MAX_HEADER_SIZE}")
    end = layout.PREAMBLE_SIZE + remaining
    if end > size:
        raise IncompleteHeaderError(f"{path}: the file ends at byte {size}, inside the header of {end} bytes")
    raw = head[:end] if len(head) >= end else storage.read(path, 0, end)
    return parse_header(path, raw, strict=strict)


def parse_header(path: str, raw: bytes, *, strict: bool) -> Header:
    """Return a whole header, preamble and digest included. Errors are those of `read_header`."""
    version = int.from_bytes(raw[layout.VERSION_OFFSET : layout.REMAINING_OFFSET], "big", signed=True)
    body_end = len(raw) - layout.DIGEST_SIZE
    notes: list[str] = []
    # The text leaves open which bytes the digest covers.
    digests = {name: zlib.adler32(raw[start:body_end]) for name, start in layout.HEADER_DIGEST_STARTS.items()}
    digest = next((name for name, value in digests.items() if value == int.from_bytes(raw[body_end:], "big")), "")
    if not digest:
        expected = zlib.adler32(raw[:body_end])
        note = f"byte {body_end}: digest of the header: expected {expected:#010x}, found {raw[body_end:].hex()}"
        if strict:
            raise FormatError(f"{path}: {note}")
        notes.append(note)
    records, unknown, places = _read_records(_Cursor(path, raw, layout.PREAMBLE_SIZE, body_end))
    if HeaderRecord.COLUMNS not in records:
        raise FormatError(f"{path}: the header has no column definitions (record type 1)")
    columns = _read_columns(records[HeaderRecord.COLUMNS], version, notes, strict=strict)
    if HeaderRecord.CONSTANTS in records:
        columns = _read_constants(records[HeaderRecord.CONSTANTS], columns, notes, strict=strict)
    application_version = None
    if HeaderRecord.APPLICATION_VERSION in records:
        application_version = records[HeaderRecord.APPLICATION_VERSION].read_integer("an application version")
    return Header(
        version, tuple(columns), application_version, raw, tuple(unknown), tuple(places), digest, tuple(notes)
    )


def _read_records(
    cursor: _Cursor,
) -> tuple[dict[HeaderRecord, _Cursor], list[tuple[int, bytes]], list[tuple[int, int]]]:
    records: dict[HeaderRecord, _Cursor] = {}
    unknown, places = [], []
    while cursor.remaining:
        start = cursor.position
        length = cursor.read_integer("the size of a header record")
        code = cursor.read_integer("the type of a header record")
        inner = cursor.take_cursor(length, "a header record")
        if code in list(HeaderRecord):
            if code in records:
                raise inner.fail("one header record of each type", f"a second one of type {code}")
            records[HeaderRecord(code)] = inner
        else:
            unknown.append((code, inner.take(inner.remaining, "a header record")))
            places.append((start, cursor.position - start))
    return records, unknown, places


def _read_columns(cursor: _Cursor, version: int, notes: list[str], *, strict: bool) -> list[LogColumn]:
    columns: list[LogColumn] = []
    names: set[str] = set()
    for _ in range(cursor.count("a number of columns", 3 * layout.COUNT_SIZE)):
        name = cursor.read_string("a column name")
        code = cursor.read_integer("a column type")
        meta = cursor.take_cursor(cursor.read_integer("the size of metadata"), f"metadata of column {name!r}")
        kind = LogType(code) if code in BY_LOG else None
        if code > max(BY_LOG):
            detail = f"column {name!r} of type {code}; known up to {max(BY_LOG)}"
            raise UnsupportedError(Damage(cursor.path, cursor.position, 0, UNSUPPORTED, detail))
        if kind is None:
            raise cursor.fail(f"a type code from 1 to 11 for column {name!r}", code)
        if name in names:
            raise cursor.fail("column names that differ", f"{name!r} twice")
        names.add(name)
        charset = ""
        values: tuple[str, ...] = ()
        if kind is LogType.ENHANCED_STRING:
            charset = _read_charset(meta, version, name, notes)
        elif kind is LogType.ENUM:
            charset, values = _read_enum(meta, version, name, notes)
        if strict and meta.remaining and kind not in (LogType.ENHANCED_STRING, LogType.ENUM):
            raise meta.fail(f"no metadata for column {name!r}", f"{meta.remaining} bytes")
        columns.append(LogColumn(name, kind, charset, values))
    return columns


def _read_charset(meta: _Cursor, version: int, name: str, notes: list[str]) -> str:
    if not meta.remaining:
        return DEFAULT_CHARSET
    if version == layout.JAVA_METADATA_VERSION:
        stored = _find_enum_name(meta.take(meta.remaining, "a charset"))
    else:
        stored = meta.read_string("a charset name")
    charset = find_charset(stored) if stored is not None else None
    if charset is None:
        notes.append(f"column {name!r}: unknown charset {stored!r}; read as {DEFAULT_CHARSET}")
    return charset or DEFAULT_CHARSET


def _read_enum(meta: _Cursor, version: int, name: str, notes: list[str]) -> tuple[str, tuple[str, ...]]:
    if version != layout.JAVA_METADATA_VERSION:
        return _read_enum_table(meta, name, notes, with_charset=True)
    # What the vendor says of version 2 contradicts itself: with or without a charset, whichever fits exactly.
    start = meta.position
    doubts: list[str] = []
    try:
        values = _read_enum_table(meta, name, doubts, with_charset=True)
    except FormatError:
        doubts.append("it does not fit")
    if not doubts and not meta.remaining:
        return values
    meta.position = start
    return _read_enum_table(meta, name, notes, with_charset=False)


def _read_enum_table(meta: _Cursor, name: str, notes: list[str], *, with_charset: bool) -> tuple[str, tuple[str, ...]]:
    count = meta.count(f"a number of values of enum {name!r}", layout.COUNT_SIZE)
    charset = DEFAULT_CHARSET
    if with_charset:
        stored = meta.read_string("a charset name")
        known_charset = find_charset(stored)
        if known_charset is None:
            notes.append(f"column {name!r}: unknown charset {stored!r}; read as {charset}")
        charset = known_charset or charset
    return charset, tuple(meta.read_string(f"a value of enum {name!r}", charset) for _ in range(count))


def _read_constants(cursor: _Cursor, columns: list[LogColumn], notes: list[str], *, strict: bool) -> list[LogColumn]:
    places = {column.name: place for place, column in enumerate(columns)}
    for _ in range(cursor.count("a number of constant columns", layout.COUNT_SIZE + 1)):
        name = cursor.read_string("the name of a constant column")
        if name not in places:
            raise cursor.fail("a constant of a defined column", repr(name))
        column = columns[places[name]]
        if column.constant is not None:
            raise cursor.fail("one value per constant column", f"a second one of {name!r}")
        value = _read_constant(cursor, column)
        columns[places[name]] = replace(column, constant=value)
        index = int.from_bytes(value, "big")
        if column.type is LogType.ENUM and index >= len(column.values) and value != layout.encode_null(column.type):
            if strict:
                raise cursor.fail(
                    f"a constant of {name!r} in its table", f"index {index} in a table of {len(column.values)}"
                )
            notes.append(f"column {name!r}: index {index} in a table of {len(column.values)}; read as null")
    return columns


def _read_constant(cursor: _Cursor, column: LogColumn) -> bytes:
    if column.width:
        return cursor.take(column.width, f"the value of constant column {column.name!r}")
    start = cursor.position
    length = cursor.read_integer("the length of a constant")
    if length != layout.NULL_LENGTH:
        cursor.take(length, f"the value of constant column {column.name!r}")
    return cursor.data[start : cursor.position]


def _find_enum_name(data: bytes) -> str | None:
    """Return the constant's name at the end of a serialized Java enum, which is never deserialized.

    None if there is none.
    """
    if layout.JAVA_STREAM_MAGIC not in (data[:4], data[4:8]):
        return None
    for start in range(len(data) - 3, 3, -1):
        length = int.from_bytes(data[start + 1 : start + 3], "big")
        if data[start] == layout.JAVA_STRING and start + 3 + length == len(data):
            return data[start + 3 :].decode("utf-8", "replace")
    return None


def build_header(
    columns: Sequence[LogColumn], application_version: int | None, further: Sequence[tuple[int, bytes]]
) -> bytes:
    """Return a header of the current version; `further` records, type and payload each, come last."""
    definitions = [struct.pack(">i", len(columns))]
    for column in columns:
        meta = encode_metadata(column)
        definitions += [_encode_text(column.name), struct.pack(">ii", column.type, len(meta)), meta]
    records = [_encode_record(HeaderRecord.COLUMNS, b"".join(definitions))]
    constants = [_encode_text(column.name) + column.constant for column in columns if column.constant is not None]
    if constants:
        records.append(_encode_record(HeaderRecord.CONSTANTS, struct.pack(">i", len(constants)) + b"".join(constants)))
    if application_version is not None:
        records.append(_encode_record(HeaderRecord.APPLICATION_VERSION, struct.pack(">i", application_version)))
    records += [_encode_record(kind, payload) for kind, payload in further]
    body = b"".join(records)
    remaining = len(body) + layout.DIGEST_SIZE
    head = struct.pack(">Iii", layout.MAGIC, layout.CURRENT_VERSION, remaining) + body
    return head + struct.pack(">I", zlib.adler32(head))


def encode_metadata(column: LogColumn) -> bytes:
    """Return a column's metadata besides its name and type: a character set, the names of an Enum."""
    if column.type is LogType.ENHANCED_STRING:
        return _encode_text(column.charset)
    if column.type is LogType.ENUM:
        try:
            values = b"".join(_encode_text(value, column.charset) for value in column.values)
        except UnicodeEncodeError as error:
            raise SchemaError(
                f'column {column.name!r}: {error.object!r} cannot be written in {column.charset}; charset="UTF-8" takes'
                " every text"
            ) from error
        return struct.pack(">i", len(column.values)) + _encode_text(column.charset) + values
    return b""


def _encode_record(kind: int, payload: bytes) -> bytes:
    return struct.pack(">ii", len(payload), kind) + payload


def _encode_text(text: str, charset: str = "UTF-8") -> bytes:
    return layout.VALUE.encode(encode_string(text, charset))

"""Version edits as bytes: those fields that LevelDB, RocksDB and Pebble all understand."""

from __future__ import annotations

from dataclasses import dataclass

from sawlog.leveldb.records.layout import KEY_TRAILER, SEQUENCE_SHIFT, Tag
from sawlog.varints import encode_varint


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


def internal_key(key: bytes, sequence: int, kind: int) -> bytes:
    """A user key with the sequence number and the type of an operation."""
    return key + (sequence << SEQUENCE_SHIFT | kind).to_bytes(KEY_TRAILER, "little")


def encode_edit(numbers: dict[Tag, int], texts: dict[Tag, str], tables: list[NewTable], *, is_leveldb: bool) -> bytes:
    """A version edit: fields that are numbers, fields that are texts, then tables."""
    parts = [encode_varint(tag) + encode_varint(number) for tag, number in numbers.items()]
    parts += [encode_varint(tag) + _string(text.encode()) for tag, text in texts.items()]
    for table in tables:
        parts += map(encode_varint, (Tag.NEW_FILE if is_leveldb else Tag.NEW_FILE_2, table.level, table.number))
        parts += [encode_varint(table.size), _string(table.smallest), _string(table.largest)]
        parts += [] if is_leveldb else map(encode_varint, table.sequences)
    return b"".join(parts)


def _string(data: bytes) -> bytes:
    return encode_varint(len(data)) + data

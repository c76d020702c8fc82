"""Values of RocksDB's that are not in their entries: their addresses, and those between the blocks of the table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from sawlog.kernels.varints import decode_varints, decode_varints_with_ends, encode_varint, read_varint
from sawlog.leveldb.records.layout import VARINT64_BYTES
from sawlog.leveldb.table import kernels as k
from sawlog.leveldb.table import layout
from sawlog.leveldb.table.blocks import BlockRules, Expanded, Flaw, join_values
from sawlog.leveldb.table.layout import (
    BLOB_IN_FILE,
    BLOB_INDEX,
    BLOB_INLINE,
    BLOB_WITH_EXPIRATION,
    ENTITY_LENGTHS,
    ENTITY_VERSION,
    PUT,
    PUT_ENTITY,
    TYPED_ENTITY_VERSION,
    TableDamageKind,
)
from sawlog.leveldb.table.pebble import BlockEntries, MalformedError, encode_plain, split_rows
from sawlog.storage import Source


class BlobIndex(NamedTuple):
    """The address of a value: the number of its file, its place there, its bytes as stored, and its compression."""

    file: int
    offset: int
    size: int
    compression: int


def _parse_blob_index(value: bytes) -> BlobIndex | None:
    """Return the address in an entry of the type `put_blob_index`; `None` where it is no place in a file."""
    if not value or value[0] not in (BLOB_IN_FILE, BLOB_WITH_EXPIRATION):
        return None
    skipped = 1 if value[0] == BLOB_WITH_EXPIRATION else 0
    numbers = list(decode_varints(value[1:-1]))[skipped:]
    if len(numbers) != 3:
        return None
    file, offset, size = numbers
    return BlobIndex(file, offset, size, value[-1])


def find_inline_value(value: bytes) -> bytes | None:
    """Return what an entry of the type `put_blob_index` holds itself; `None` where its value is in a file."""
    if not value or value[0] != BLOB_INLINE:
        return None
    _, end = read_varint(value, 1, 1 + VARINT64_BYTES) or (0, 0)
    return value[end:] if end else None


class _Column(NamedTuple):
    """A column of an entity: its name, its value or the address of it, and which of both it is."""

    name: bytes
    value: bytes
    type: int


def find_addresses(operation: int, value: bytes) -> list[BlobIndex]:
    """Return the addresses that an entry has in place of values: none, its own, or those of columns of an entity."""
    references = [value] if operation == BLOB_INDEX else []
    if operation == PUT_ENTITY:
        references = [column.value for column in _parse_columns(value) if column.type == BLOB_INDEX]
    places = [place for place in map(_parse_blob_index, references) if place is not None]
    return places if len(places) == len(references) else []


def insert_values(operation: int, value: bytes, contents: Sequence[bytes]) -> bytes:
    """Return the value of an entry, with the values at its addresses; an entity in the version without addresses."""
    if operation == BLOB_INDEX:
        return contents[0]
    columns = _parse_columns(value)
    remaining = iter(contents)
    values = [next(remaining) if column.type == BLOB_INDEX else column.value for column in columns]
    head = [encode_varint(ENTITY_VERSION), encode_varint(len(columns))]
    for column, content in zip(columns, values, strict=True):
        head += [encode_varint(len(column.name)), column.name, encode_varint(len(content))]
    return b"".join([*head, *values])


def _parse_columns(value: bytes) -> list[_Column]:
    """Return the columns of an entity of the version that may have addresses.

    None where it is of another one, or not whole, or has columns of types that only the database knows: then it is
    delivered as it is stored.
    """
    header = list(islice(decode_varints_with_ends(value), 2 + ENTITY_LENGTHS))
    if len(header) < 2 + ENTITY_LENGTHS or header[0][0] != TYPED_ENTITY_VERSION:
        return []
    (count, _), *lengths = header[1:]
    offset = lengths[-1][1]
    types = value[offset : offset + count]
    offset += len(types)
    parts = list(_cut(value, offset, [length for length, _ in lengths]))
    sizes = [list(decode_varints(part)) for part in parts[:2]]
    offset += sum(map(len, parts))
    contents = list(_cut(value, offset, sizes[1]))
    is_whole = len(types) == len(sizes[0]) == len(sizes[1]) == count and offset + sum(sizes[1]) == len(value)
    if not is_whole or sum(sizes[0]) != len(parts[2]) or set(types) - {PUT, BLOB_INDEX}:
        return []
    return list(map(_Column, _cut(parts[2], 0, sizes[0]), contents, types))


def _cut(data: bytes, offset: int, sizes: Sequence[int]) -> Iterator[bytes]:
    for size in sizes:
        yield data[offset : offset + size]
        offset += size


_TYPE = np.uint64(255)


class EmbeddedLayer:
    """Lays out the blocks of a table."""

    def __init__(self, rules: BlockRules, source: Source) -> None:
        self._rules = rules
        self._source = source

    def convert_block(self, content: pa.Buffer, *, deletions: bool) -> tuple[Expanded, int]:
        """Return a block of entries, each with its value, and how many are left out because their values are lost."""
        if deletions:
            return content, 0
        entries = self._split_block(content)
        if not isinstance(entries, BlockEntries):
            return entries, 0
        sources, _, trailers, values, _ = entries
        has_value = np.ones(len(trailers), np.bool_)
        source_start, size = sum(map(len, sources)), 0
        for row, operation, value, places in _iterate_addresses(entries):
            located = [self._read_value(place) for place in places]
            contents = [content for content in located if content is not None]
            has_value[row] = len(contents) == len(located)
            if not has_value[row]:
                continue
            content = insert_values(operation, value, contents)
            size += len(content)
            if size > self._rules.longest:
                return (TableDamageKind.BLOCK_TOO_LARGE, size, self._rules.longest), 0
            sources.append(np.frombuffer(content, np.uint8))
            values.starts[row], values.lengths[row] = source_start, len(content)
            source_start += len(content)
            if operation == layout.BLOB_INDEX:
                trailers[row] = trailers[row] & ~_TYPE | np.uint64(layout.PUT)
        return encode_plain(entries, has_value, self._rules.longest)

    def _split_block(self, content: pa.Buffer) -> BlockEntries | Flaw:
        if k.has_separate_values(np.frombuffer(content, np.uint8)):
            together = join_values(content)
            if isinstance(together, tuple):
                return together
            content = together
        try:
            return split_rows(content, self._rules.longest)
        except MalformedError as error:
            return error.make_flaw(content.size)

    def iterate_handles(self, offset: int, size: int) -> Iterator[tuple[int, int]]:
        """Yield the offset and size of each value that entries of a block lead to; none where the block is damaged."""
        content = self._rules.read(self._source, offset, size, of_entries=True)[0]
        entries = content if isinstance(content, tuple) else self._split_block(content)
        if isinstance(entries, BlockEntries):
            for _, _, _, places in _iterate_addresses(entries):
                yield from ((place.offset, place.size) for place in places)

    def _read_value(self, place: BlobIndex) -> bytes | None:
        content = self._rules.read(self._source, place.offset, place.size)[0]
        return None if isinstance(content, tuple) else content.to_pybytes()


def _iterate_addresses(entries: BlockEntries) -> Iterator[tuple[int, int, bytes, list[BlobIndex]]]:
    """Yield row, operation, stored bytes and addresses of the entries whose values are elsewhere in the file."""
    operations = (entries.trailers & _TYPE).astype(np.int64)
    for row in np.flatnonzero((operations == layout.BLOB_INDEX) | (operations == layout.PUT_ENTITY)).tolist():
        start = int(entries.values.starts[row])
        value = entries.sources[0][start : start + int(entries.values.lengths[row])].tobytes()
        places = find_addresses(int(operations[row]), value)
        if places and all(place.file == layout.SAME_FILE for place in places):
            yield row, int(operations[row]), value, places

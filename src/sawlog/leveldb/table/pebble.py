"""Pebble's blocks: columns of integers, byte strings or bits; and its entries laid out like those of other dialects."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from sawlog.kernels.columns import gather_slices
from sawlog.leveldb.records.layout import VARINT32_BYTES
from sawlog.leveldb.table import kernels as k
from sawlog.leveldb.table import layout
from sawlog.leveldb.table.blocks import BlockRules, Expanded, Flaw
from sawlog.leveldb.table.layout import TableDamageKind
from sawlog.storage import Source


class MalformedError(Exception):
    """A block, or a file of values, is not laid out as its format says; the caller makes damage of it."""

    def make_flaw(self, size: int) -> Flaw:
        """Return the fault of a block of so many bytes."""
        return TableDamageKind.BAD_BLOCK, size, 0


class UnknownLayoutError(MalformedError):
    """A number that says how something is laid out is none that is known; the caller reports it as unsupported."""

    def __init__(self, kind: TableDamageKind, number: int) -> None:
        super().__init__(kind.detail.format(number, 0))
        self._kind = kind
        self._number = number

    def make_flaw(self, size: int) -> Flaw:
        """Return the kind and the number that is unknown."""
        return self._kind, self._number, 0


class Slices(NamedTuple):
    """Byte strings in a block: string i is `data[starts[i] : starts[i] + lengths[i]]`. Both are int64."""

    starts: NDArray[np.int64]
    lengths: NDArray[np.int64]

    def of(self, rows: NDArray[np.int64]) -> Slices:
        """Return some of them."""
        return Slices(self.starts[rows], self.lengths[rows])


class BlockColumns:
    """The columns of a block.

    Every method raises `MalformedError` where the block does not hold what is asked for.

    Args:
        content: The block, expanded.
        header: Bytes before the block's own header.

    Attributes:
        data: The block.
        rows: How many rows it says that it has.
    """

    def __init__(self, content: pa.Buffer, header: int = 0) -> None:
        self.data: NDArray[np.uint8] = np.frombuffer(content, np.uint8)
        self._header = header
        version = self.read_number(header, 1)
        if version > layout.COLUMNAR_VERSION:
            raise UnknownLayoutError(TableDamageKind.UNKNOWN_LAYOUT, version)
        if not version:
            raise MalformedError("no columnar block")
        self._count = self.read_number(header + 1, 2)
        self.rows = self.read_number(header + 3, 4)

    def read_number(self, position: int, width: int) -> int:
        """Return the number of `width` bytes at a byte."""
        stored = self.data[position : position + width].tobytes()
        if len(stored) != width:
            raise MalformedError(f"a number at byte {position} of {len(self.data)}")
        return int.from_bytes(stored, "little")

    def _start(self, column: int, kind: layout.ColumnKind) -> int:
        position = self._header + layout.COLUMNAR_HEADER + layout.COLUMN_HEADER * column
        stored_kind = self.read_number(position, 1) if column < self._count else 0
        if stored_kind > max(layout.ColumnKind):
            raise UnknownLayoutError(TableDamageKind.UNKNOWN_COLUMN, stored_kind)
        if stored_kind != kind:
            raise MalformedError(f"column {column} is none of kind {kind}")
        return self.read_number(position + 1, 4)

    def read_integers(self, column: int, count: int) -> NDArray[np.uint64]:
        """Return a column of unsigned integers."""
        return self._read_integers(self._start(column, layout.ColumnKind.INTEGER), count)[0]

    def _read_integers(self, position: int, count: int) -> tuple[NDArray[np.uint64], int]:
        if not count:
            return np.zeros(0, np.uint64), position
        encoding = self.read_number(position, 1)
        width = encoding & ~layout.FROM_BASE
        base = self.read_number(position + 1, 8) if encoding & layout.FROM_BASE else 0
        position += 9 if encoding & layout.FROM_BASE else 1
        if not width:
            return np.full(count, base, np.uint64), position
        if width not in (1, 2, 4, 8):
            raise UnknownLayoutError(TableDamageKind.UNKNOWN_COLUMN, encoding)
        position += -position % width
        end = position + width * count
        if end > len(self.data):
            raise MalformedError(f"{count} integers at byte {position} of {len(self.data)}")
        return self.data[position:end].view(f"<u{width}").astype(np.uint64) + np.uint64(base), end

    def read_strings(self, column: int, count: int) -> Slices:
        """Return a column of byte strings."""
        return self._read_strings(self._start(column, layout.ColumnKind.STRING), count, first=True)

    def _read_strings(self, position: int, count: int, *, first: bool) -> Slices:
        """Byte strings of which the ends are written down, and where the first one begins, or else it does at 0."""
        if not count:
            return Slices(np.zeros(0, np.int64), np.zeros(0, np.int64))
        ends, data = self._read_integers(position, count + first)
        edges = ends.astype(np.int64) if first else np.concatenate([np.zeros(1, np.int64), ends.astype(np.int64)])
        lengths = np.diff(edges)
        if edges[0] < 0 or (lengths < 0).any() or edges[-1] > len(self.data) - data:
            raise MalformedError(f"{count} strings at byte {position} that do not follow each other")
        return Slices(edges[:-1] + data, lengths)

    def read_prefixed(self, column: int, count: int) -> list[Slices]:
        """Return a column of byte strings in order, of which each is three, one after the other.

        All strings share the first. The others come in bundles, which share the second; where the third is empty, it is
        that of the string before in its bundle.
        """
        position = self._start(column, layout.ColumnKind.PREFIXED)
        shift = min(self.read_number(position, 1), 32)
        bundles = (count + (1 << shift) - 1) >> shift
        strings = self._read_strings(position + 1, count + bundles + 1, first=False)
        rows = np.arange(count)
        bundle = rows >> shift
        firsts = 1 + bundle * ((1 << shift) + 1)
        suffixes = rows + bundle + 2
        filled = np.maximum.accumulate(np.where(strings.lengths[suffixes] > 0, suffixes, 0)) if count else suffixes
        return [
            strings.of(np.zeros(count, np.int64)),
            strings.of(firsts),
            strings.of(np.where(filled > firsts, filled, suffixes)),
        ]

    def read_bits(self, column: int, count: int) -> NDArray[np.bool_]:
        """Return a column of bits."""
        position = self._start(column, layout.ColumnKind.BITS)
        if self.read_number(position, 1) == layout.NO_BITS:
            return np.zeros(count, np.bool_)
        position += 1
        position += -position % 8
        packed = self.data[position : position + (count + 7) // 8]
        bits = np.unpackbits(packed, count=count, bitorder="little")
        if len(packed) * 8 < count:
            raise MalformedError(f"{count} bits at byte {position} of {len(self.data)}")
        return bits.view(np.bool_)


def read_pairs(content: pa.Buffer) -> list[tuple[bytes, bytes]]:
    """Return keys and values of a columnar block of both.

    Raises:
        MalformedError: When it is none.
    """
    columns = BlockColumns(content)
    if columns.rows > len(columns.data):
        raise MalformedError("more rows than the block can hold")
    keys, values = (columns.read_strings(number, columns.rows) for number in (0, 1))
    data = columns.data.tobytes()
    return [
        (data[key : key + size], data[value : value + length])
        for key, size, value, length in zip(*(part.tolist() for part in (*keys, *values)), strict=True)
    ]


_MAX_HELD_BYTES = 8 << 20
"""Blocks of values that are kept for the entries to come."""
_NUMBER = VARINT32_BYTES  # which may end in zeros
_HEADER = 1 + 2 * _NUMBER


class BlockEntries(NamedTuple):
    """Entries of a block.

    Attributes:
        sources: uint8, where the bytes are, one array after the other.
        keys: What user keys consist of, one piece after the other.
        trailers: uint64, what follows each user key.
        values: Values, or where they are.
        places: uint8, the byte before each value.
    """

    sources: list[NDArray[np.uint8]]
    keys: list[Slices]
    trailers: NDArray[np.uint64]
    values: Slices
    places: NDArray[np.uint8]


def encode_plain(entries: BlockEntries, has_value: NDArray[np.bool_], longest: int) -> tuple[Expanded, int]:
    """Return the header, key, trailer and value of each entry that is whole, and no restart points.

    And how many are not.
    """
    sources, keys, trailers, values, _ = entries
    lost_count = int((~has_value).sum())
    if lost_count:
        rows = np.flatnonzero(has_value)
        keys, values, trailers = [piece.of(rows) for piece in keys], values.of(rows), trailers[rows]
    count = len(trailers)
    sizes = np.full(count, layout.KEY_TRAILER, np.int64)
    for piece in keys:
        sizes += piece.lengths
    headers = np.zeros((count, _HEADER), np.uint8)
    headers[:, 1 : 1 + _NUMBER] = _encode_varints(sizes)
    headers[:, 1 + _NUMBER :] = _encode_varints(values.lengths)
    total = int(sizes.sum() + values.lengths.sum()) + _HEADER * count + layout.RESTART_SIZE
    if total > longest:
        return (TableDamageKind.BLOCK_TOO_LARGE, total, longest), 0
    header_start = sum(map(len, sources))
    fixed = Slices(header_start + _HEADER * np.arange(count), np.full(count, _HEADER))
    tails = Slices(
        header_start + headers.size + layout.KEY_TRAILER * np.arange(count), np.full(count, layout.KEY_TRAILER)
    )
    source = np.concatenate([*sources, headers.ravel(), trailers.astype("<u8").view(np.uint8)])
    pieces = [fixed, *keys, tails, values]
    starts, lengths = (np.stack(part, axis=1).ravel() for part in zip(*pieces, strict=True))
    out = np.zeros(total, np.uint8)
    gather_slices(source, starts, lengths, out[: -layout.RESTART_SIZE], np.zeros(4 * len(starts) + 4, np.uint8))
    return pa.py_buffer(out), lost_count


class BlockLayer:
    """Lays out the blocks of a table."""

    def __init__(
        self,
        version: int,
        properties: Mapping[bytes, bytes],
        rules: BlockRules,
        values: NDArray[np.void],
        source: Source,
    ) -> None:
        self._columnar = version >= layout.COLUMNAR
        self._schema = properties.get(layout.KEY_SCHEMA, b"")
        self._rules = rules
        self._values = values
        self._source = source
        self._blocks: dict[int, NDArray[np.uint8]] = {}

    def convert_block(self, content: pa.Buffer, *, deletions: bool) -> tuple[Expanded, int]:
        """Return a block of entries as RocksDB has it, and how many are left out because their values are lost."""
        if deletions and not self._columnar:
            return content, 0
        try:
            if deletions:
                entries = _decode_deletions(content, self._rules.longest)
            elif self._columnar:
                entries = _read_columnar_entries(content, self._schema, self._rules.longest)
            else:
                entries = split_rows(content, self._rules.longest)
                prefixed = entries.trailers & np.uint64(255 & ~layout.OBSOLETE) == layout.PREFIXED_KIND
                entries = entries._replace(places=_strip_places(entries.sources[0], entries.values, prefixed))
            return self._with_values(entries)
        except MalformedError as error:
            return error.make_flaw(content.size), 0

    def _with_values(self, entries: BlockEntries) -> tuple[Expanded, int]:
        """Return entries, each with its value; and how many are left out."""
        sources, keys, trailers, values, places = entries
        place = places & layout.VALUE_PLACE
        if (unknown := places[place == layout.VALUE_PLACE]).size:
            raise UnknownLayoutError(TableDamageKind.UNKNOWN_PLACE, int(unknown[0]))
        trailers = np.where(place == layout.IN_BLOB_FILE, trailers & ~np.uint64(255) | layout.BLOB_INDEX, trailers)
        in_blocks = np.flatnonzero(place == layout.IN_VALUE_BLOCK)
        has_value = self._fetch(sources, values, in_blocks) if len(in_blocks) else np.ones(len(trailers), np.bool_)
        return encode_plain(BlockEntries(sources, keys, trailers, values, places), has_value, self._rules.longest)

    def _fetch(self, sources: list[NDArray[np.uint8]], values: Slices, rows: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Put values in the places of what leads to them. Returns which entries have theirs."""
        lengths, blocks, offsets = _decode_handles(sources[0], values.of(rows))
        has_value = np.ones(len(values.lengths), np.bool_)
        source_start = sum(map(len, sources))
        for number in np.unique(blocks).tolist():
            block = self._read_block(number)
            is_of_block = blocks == number
            fits = is_of_block & (offsets + lengths <= len(block))
            values.starts[rows[fits]] = source_start + offsets[fits]
            values.lengths[rows[fits]] = lengths[fits]
            has_value[rows[is_of_block & ~fits]] = False
            sources.append(block)
            source_start += len(block)
        return has_value

    def _read_block(self, number: int) -> NDArray[np.uint8]:
        """Return a block of values; an empty one where it is damaged, or there is none."""
        if number not in self._blocks:
            content: Expanded = TableDamageKind.BAD_HANDLE, 0, 0
            if number < len(self._values):
                content = self._rules.read(self._source, *self._values[number].tolist())[0]
            block = np.zeros(0, np.uint8) if isinstance(content, tuple) else np.frombuffer(content, np.uint8)
            if sum(map(len, self._blocks.values())) + len(block) > _MAX_HELD_BYTES:
                self._blocks.clear()
            self._blocks[number] = block
        return self._blocks[number]


def split_rows(content: pa.Buffer, longest: int) -> BlockEntries:
    """Return entries of a block with shared prefixes, whose keys together have no more bytes than a block may have.

    Raises:
        MalformedError: When it is none.
    """
    data = np.frombuffer(content, np.uint8)
    end = int(k.locate_entries_end(data))
    if not end and not _is_empty(data):
        raise MalformedError("not a block of entries")
    max_bytes = min(layout.MOST_EXPANSION * len(data), longest)
    room = min(len(data), max_bytes)
    while True:
        fields = np.zeros(end // layout.SMALLEST_ENTRY + 1, k.FIELDS)
        keys = np.zeros(room, np.uint8)
        count = int(k.split_entries(data, np.uint64(end), fields, keys))
        if count >= 0:
            break
        if count == -1 or room == max_bytes:
            raise MalformedError("entries that do not end in their block, or whose keys are too long together")
        room = min(4 * room, max_bytes)
    fields = fields[:count]
    starts, sizes = fields["key"], fields["key_length"] - layout.KEY_TRAILER
    if (sizes < 0).any():
        raise MalformedError("a key without a trailer")
    tails = (starts + sizes)[:, None] + np.arange(layout.KEY_TRAILER)
    trailers = keys[tails].view("<u8").ravel().astype(np.uint64)
    values = Slices(fields["value"].copy(), fields["length"].copy())
    return BlockEntries([data, keys], [Slices(starts + len(data), sizes)], trailers, values, np.zeros(count, np.uint8))


def _is_empty(data: NDArray[np.uint8]) -> bool:
    """Return whether a block has restart points and no entries, as in Pebble 1's tables of range deletions or keys."""
    size = layout.RESTART_SIZE
    return len(data) >= size and int.from_bytes(data[-size:].tobytes(), "little") * size == len(data) - size


def _read_columnar_entries(content: pa.Buffer, schema: bytes, longest: int) -> BlockEntries:
    cockroach = schema == layout.COCKROACH_SCHEMA
    if not cockroach and not schema.startswith(layout.DEFAULT_SCHEMA):
        raise UnknownLayoutError(TableDamageKind.UNKNOWN_SCHEMA, 0)
    columns = _read_columns(content, 4 + cockroach, longest)
    rows, data = columns.rows, columns.data
    sources = [data]
    if cockroach:
        pieces, versions = _decode_versions(columns)
        sources.append(versions)
    else:
        pieces = [columns.read_strings(1, rows)]
    first = 4 if cockroach else 2
    values = columns.read_strings(first + 2, rows)
    places = _strip_places(data, values, columns.read_bits(first + 3, rows))
    return BlockEntries(
        sources, [*columns.read_prefixed(0, rows), *pieces], columns.read_integers(first, rows), values, places
    )


def _decode_versions(columns: BlockColumns) -> tuple[list[Slices], NDArray[np.uint8]]:
    """Return the versions after CockroachDB's keys: pieces, and the bytes that hold them, after the block.

    A version is a wall time and a logical one, big endian, or any bytes; a byte of zero precedes it, and its length,
    with that byte, follows it.
    """
    rows = columns.rows
    wall, logical = columns.read_integers(1, rows), columns.read_integers(2, rows)
    untyped_suffixes = columns.read_strings(3, rows)
    versions = np.zeros((rows, 15), np.uint8)
    versions[:, 1:9] = wall.astype(">u8").view(np.uint8).reshape(rows, 8)
    versions[:, 9:13] = logical.astype(">u4").view(np.uint8).reshape(rows, 4)
    short = logical == 0
    versions[short, 9] = 9
    versions[~short, 13] = 13
    untyped = untyped_suffixes.lengths > 0
    lengths = np.where(untyped | ((wall == 0) & short), 1, np.where(short, 10, 14))
    versions[:, 14] = untyped_suffixes.lengths + 1
    starts = len(columns.data) + 15 * np.arange(rows)
    return [Slices(starts, lengths), untyped_suffixes, Slices(starts + 14, untyped.astype(np.int64))], versions.ravel()


def _decode_deletions(content: pa.Buffer, longest: int) -> BlockEntries:
    """Return range deletions: each has the bounds that enclose it."""
    columns = _read_columns(content, 4, longest)
    bounds = columns.read_number(0, 4)
    if bounds > len(columns.data):
        raise MalformedError("bounds that the block does not hold")
    keys, firsts = columns.read_strings(0, bounds), columns.read_integers(1, bounds).astype(np.int64)
    counts = np.diff(firsts)
    if (counts < 0).any() or (counts > columns.rows).any() or counts.sum() != columns.rows:
        raise MalformedError("deletions without bounds")
    place = np.repeat(np.arange(len(counts)), counts)
    trailers = columns.read_integers(2, columns.rows)
    places = np.zeros(columns.rows, np.uint8)
    return BlockEntries([columns.data], [keys.of(place)], trailers, keys.of(place + 1), places)


def _read_columns(content: pa.Buffer, header: int, longest: int) -> BlockColumns:
    columns = BlockColumns(content, header)
    if columns.rows > longest // _HEADER:
        raise MalformedError("more rows than a block may have")
    return columns


def _strip_places(data: NDArray[np.uint8], values: Slices, prefixed: NDArray[np.bool_]) -> NDArray[np.uint8]:
    """Take away the byte before some values; it says where the value is."""
    if (values.lengths[prefixed] < 1).any():
        raise MalformedError("a value without its first byte")
    places = np.zeros(len(prefixed), np.uint8)
    places[prefixed] = data[values.starts[prefixed]]
    values.starts[prefixed] += 1
    values.lengths[prefixed] -= 1
    return places


def _decode_handles(data: NDArray[np.uint8], slices: Slices) -> Iterator[NDArray[np.int64]]:
    """Yield the length, block and offset of values, as three varints each."""
    positions, ends = slices.starts.copy(), slices.starts + slices.lengths
    for _ in range(3):
        value = np.zeros(len(positions), np.int64)
        continues = np.ones(len(positions), np.bool_)
        for shift in range(0, 7 * _NUMBER, 7):
            if (positions[continues] >= ends[continues]).any():
                raise MalformedError("a handle that does not end")
            byte = data[np.minimum(positions, len(data) - 1)].astype(np.int64)
            value |= np.where(continues, (byte & 127) << shift, 0)
            positions += continues
            continues &= byte >= 128
        if continues.any():
            raise MalformedError("a number of more than five bytes")
        yield value


def _encode_varints(numbers: NDArray[np.int64]) -> NDArray[np.uint8]:
    """Return numbers of less than 2^35 as varints of five bytes."""
    shifts = 7 * np.arange(_NUMBER)
    encoded = (numbers[:, None] >> shifts & 127).astype(np.uint8)
    encoded[:, :-1] |= 128
    return encoded

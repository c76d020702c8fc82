"""Blocks of Pebble's later tables, laid out like those of the other dialects, with each value in its place."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa

from sawlog.kernels.gather import gather_slices
from sawlog.leveldb.table import kernels as k
from sawlog.leveldb.table import layout
from sawlog.leveldb.table.blocks import Expanded
from sawlog.leveldb.table.columnar import Columns, MalformedError, Slices
from sawlog.leveldb.table.layout import Kind

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from sawlog.leveldb.table.blocks import BlockRules
    from sawlog.storage import Source

HELD_BYTES = 8 << 20
"""Blocks of values that are kept for the entries to come."""
_NUMBER = 5
"""Bytes of a varint32, which may end in zeros."""
_HEADER = 1 + 2 * _NUMBER
_KEY_TRAILER = layout.KEY_TRAILER


class Entries(NamedTuple):
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


def laid_out(entries: Entries, whole: NDArray[np.bool_], longest: int) -> tuple[Expanded, int]:
    """Header, key, trailer and value of each entry that is whole, and no restart points; and how many are not."""
    sources, keys, trailers, values, _ = entries
    lost = int((~whole).sum())
    if lost:
        rows = np.flatnonzero(whole)
        keys, values, trailers = [piece.of(rows) for piece in keys], values.of(rows), trailers[rows]
    count = len(trailers)
    sizes = np.full(count, _KEY_TRAILER, np.int64)
    for piece in keys:
        sizes += piece.lengths
    headers = np.zeros((count, _HEADER), np.uint8)
    headers[:, 1 : 1 + _NUMBER] = _varints(sizes)
    headers[:, 1 + _NUMBER :] = _varints(values.lengths)
    total = int(sizes.sum() + values.lengths.sum()) + _HEADER * count + layout.RESTART_SIZE
    if total > longest:
        return (Kind.BLOCK_TOO_LARGE, total, longest), 0
    at = sum(map(len, sources))
    fixed = Slices(at + _HEADER * np.arange(count), np.full(count, _HEADER))
    tails = Slices(at + headers.size + _KEY_TRAILER * np.arange(count), np.full(count, _KEY_TRAILER))
    source = np.concatenate([*sources, headers.ravel(), trailers.astype("<u8").view(np.uint8)])
    pieces = [fixed, *keys, tails, values]
    starts, lengths = (np.stack(part, axis=1).ravel() for part in zip(*pieces, strict=True))
    out = np.zeros(total, np.uint8)
    gather_slices(source, starts, lengths, out, np.zeros(len(starts) + 1, np.int32))
    return pa.py_buffer(out), lost


class BlockLayer:
    """Lays out the blocks of a table.

    Args:
        version: The format version of its footer.
        properties: What its properties block holds.
        rules: How its blocks are judged.
        values: Its blocks of values, by their numbers.
        source: Its bytes.
    """

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
        self._held: dict[int, NDArray[np.uint8]] = {}

    def plain(self, content: pa.Buffer, *, deletions: bool) -> tuple[Expanded, int]:
        """A block of entries as RocksDB would have it, and how many are left out because their values are lost."""
        if deletions and not self._columnar:
            return content, 0
        try:
            if deletions:
                entries = _deletions(content, self._rules.longest)
            elif self._columnar:
                entries = _of_columns(content, self._schema, self._rules.longest)
            else:
                entries = _of_rows(content, self._rules.longest)
            return self._with_values(entries)
        except MalformedError:
            return (Kind.BAD_BLOCK, content.size, 0), 0

    def _with_values(self, entries: Entries) -> tuple[Expanded, int]:
        """Entries, each with its value; and how many are left out."""
        sources, keys, trailers, values, places = entries
        place = places & layout.VALUE_PLACE
        trailers = np.where(place == layout.IN_BLOB_FILE, trailers & ~np.uint64(255) | layout.BLOB_INDEX, trailers)
        apart = np.flatnonzero(place == layout.IN_VALUE_BLOCK)
        whole = self._fetch(sources, values, apart) if len(apart) else np.ones(len(trailers), np.bool_)
        return laid_out(Entries(sources, keys, trailers, values, places), whole, self._rules.longest)

    def _fetch(self, sources: list[NDArray[np.uint8]], values: Slices, apart: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Put values in the places of what leads to them. Returns which entries have theirs."""
        lengths, blocks, offsets = _handles(sources[0], values.of(apart))
        whole = np.ones(len(values.lengths), np.bool_)
        at = sum(map(len, sources))
        for number in np.unique(blocks).tolist():
            found = self._block(number)
            here = blocks == number
            fits = here & (offsets + lengths <= len(found))
            values.starts[apart[fits]] = at + offsets[fits]
            values.lengths[apart[fits]] = lengths[fits]
            whole[apart[here & ~fits]] = False
            sources.append(found)
            at += len(found)
        return whole

    def _block(self, number: int) -> NDArray[np.uint8]:
        """A block of values; an empty one where it is damaged, or there is none."""
        if number not in self._held:
            content: Expanded = Kind.BAD_HANDLE, 0, 0
            if number < len(self._values):
                content = self._rules.read(self._source, *self._values[number].tolist())[0]
            found = np.zeros(0, np.uint8) if isinstance(content, tuple) else np.frombuffer(content, np.uint8)
            if sum(map(len, self._held.values())) + len(found) > HELD_BYTES:
                self._held.clear()
            self._held[number] = found
        return self._held[number]


def _of_rows(content: pa.Buffer, longest: int) -> Entries:
    """Entries of a block with shared prefixes, without the byte before each value that says where it is."""
    entries = split_rows(content, longest)
    prefixed = entries.trailers & np.uint64(255 & ~layout.OBSOLETE) == layout.PREFIXED_KIND
    return entries._replace(places=_places(entries.sources[0], entries.values, prefixed))


def split_rows(content: pa.Buffer, longest: int) -> Entries:
    """Entries of a block with shared prefixes, of which all keys together have no more bytes than a block may have.

    Raises:
        MalformedError: When it is none.
    """
    data = np.frombuffer(content, np.uint8)
    end = int(k.end_of_entries(data))
    if not end and not _empty(data):
        raise MalformedError("not a block of entries")
    most = min(layout.MOST_EXPANSION * len(data), longest)
    room = min(len(data), most)
    while True:
        fields = np.zeros(end // 3 + 1, k.FIELDS)
        keys = np.zeros(room, np.uint8)
        count = int(k.split_entries(data, np.uint64(end), fields, keys))
        if count >= 0:
            break
        if count == -1 or room == most:
            raise MalformedError("entries that do not end in their block, or whose keys are too long together")
        room = min(4 * room, most)
    fields = fields[:count]
    starts, sizes = fields["key"], fields["key_length"] - _KEY_TRAILER
    if (sizes < 0).any():
        raise MalformedError("a key without a trailer")
    tails = (starts + sizes)[:, None] + np.arange(_KEY_TRAILER)
    trailers = keys[tails].view("<u8").ravel().astype(np.uint64)
    values = Slices(fields["value"].copy(), fields["length"].copy())
    return Entries([data, keys], [Slices(starts + len(data), sizes)], trailers, values, np.zeros(count, np.uint8))


def _empty(data: NDArray[np.uint8]) -> bool:
    """Whether a block has restart points and no entries, as in Pebble 1's tables of range deletions or range keys."""
    size = layout.RESTART_SIZE
    return len(data) >= size and int.from_bytes(data[-size:].tobytes(), "little") * size == len(data) - size


def _of_columns(content: pa.Buffer, schema: bytes, longest: int) -> Entries:
    """Entries of a columnar block."""
    cockroach = schema == layout.COCKROACH_SCHEMA
    if not cockroach and not schema.startswith(layout.DEFAULT_SCHEMA):
        raise MalformedError(f"keys of the schema {schema!r}, which is the application's own")
    columns = _columns(content, 4 + cockroach, longest)
    rows, data = columns.rows, columns.data
    sources = [data]
    if cockroach:
        pieces, made = _versions(columns)
        sources.append(made)
    else:
        pieces = [columns.strings(1, rows)]
    first = 4 if cockroach else 2
    values = columns.strings(first + 2, rows)
    places = _places(data, values, columns.bits(first + 3, rows))
    return Entries(sources, [*columns.prefixed(0, rows), *pieces], columns.integers(first, rows), values, places)


def _versions(columns: Columns) -> tuple[list[Slices], NDArray[np.uint8]]:
    """The versions after CockroachDB's keys: pieces, and the bytes that hold them, after the block.

    A version is a wall time and a logical one, big endian, or any bytes; a byte of zero precedes it, and its length,
    with that byte, follows it.
    """
    rows = columns.rows
    wall, logical = columns.integers(1, rows), columns.integers(2, rows)
    other = columns.strings(3, rows)
    made = np.zeros((rows, 15), np.uint8)
    made[:, 1:9] = wall.astype(">u8").view(np.uint8).reshape(rows, 8)
    made[:, 9:13] = logical.astype(">u4").view(np.uint8).reshape(rows, 4)
    short = logical == 0
    made[short, 9] = 9
    made[~short, 13] = 13
    untyped = other.lengths > 0
    lengths = np.where(untyped | ((wall == 0) & short), 1, np.where(short, 10, 14))
    made[:, 14] = other.lengths + 1
    starts = len(columns.data) + 15 * np.arange(rows)
    return [Slices(starts, lengths), other, Slices(starts + 14, untyped.astype(np.int64))], made.ravel()


def _deletions(content: pa.Buffer, longest: int) -> Entries:
    """Range deletions: each has the bounds that enclose it."""
    columns = _columns(content, 4, longest)
    bounds = columns.number(0, 4)
    if bounds > len(columns.data):
        raise MalformedError("bounds that the block does not hold")
    keys, firsts = columns.strings(0, bounds), columns.integers(1, bounds).astype(np.int64)
    counts = np.diff(firsts)
    if (counts < 0).any() or (counts > columns.rows).any() or counts.sum() != columns.rows:
        raise MalformedError("deletions without bounds")
    place = np.repeat(np.arange(len(counts)), counts)
    trailers = columns.integers(2, columns.rows)
    places = np.zeros(columns.rows, np.uint8)
    return Entries([columns.data], [keys.of(place)], trailers, keys.of(place + 1), places)


def _columns(content: pa.Buffer, header: int, longest: int) -> Columns:
    columns = Columns(content, header)
    if columns.rows > longest // _HEADER:
        raise MalformedError("more rows than a block may have")
    return columns


def _places(data: NDArray[np.uint8], values: Slices, prefixed: NDArray[np.bool_]) -> NDArray[np.uint8]:
    """Take away the byte before some values; it says where the value is."""
    if (values.lengths[prefixed] < 1).any():
        raise MalformedError("a value without its first byte")
    places = np.zeros(len(prefixed), np.uint8)
    places[prefixed] = data[values.starts[prefixed]]
    values.starts[prefixed] += 1
    values.lengths[prefixed] -= 1
    return places


def _handles(data: NDArray[np.uint8], slices: Slices) -> Iterator[NDArray[np.int64]]:
    """Length, block and offset of values, as three varints each."""
    at, ends = slices.starts.copy(), slices.starts + slices.lengths
    for _ in range(3):
        value = np.zeros(len(at), np.int64)
        more = np.ones(len(at), np.bool_)
        for shift in range(0, 7 * _NUMBER, 7):
            if (at[more] >= ends[more]).any():
                raise MalformedError("a handle that does not end")
            byte = data[np.minimum(at, len(data) - 1)].astype(np.int64)
            value |= np.where(more, (byte & 127) << shift, 0)
            at += more
            more &= byte >= 128
        if more.any():
            raise MalformedError("a number of more than five bytes")
        yield value


def _varints(numbers: NDArray[np.int64]) -> NDArray[np.uint8]:
    """Numbers of less than 2^35 as varints of five bytes."""
    shifts = 7 * np.arange(_NUMBER)
    found = (numbers[:, None] >> shifts & 127).astype(np.uint8)
    found[:, :-1] |= 128
    return found

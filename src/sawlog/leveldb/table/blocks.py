"""Blocks, judged and expanded: only here it is decided whether a block is whole."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from typing import TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from sawlog.format.damage import Damage
from sawlog.guard import Undecodable
from sawlog.kernels.varints import encode_varint
from sawlog.leveldb import codecs
from sawlog.leveldb.log.layout import Compression
from sawlog.leveldb.table import kernels as k
from sawlog.leveldb.table import layout
from sawlog.leveldb.table.layout import Checksum, Dialect, TableDamageKind
from sawlog.storage import Source

_ENTRIES_AT_ONCE = 64
Flaw: TypeAlias = "tuple[TableDamageKind, int, int]"
"""The kind of damage of a block, and the two numbers that explain it."""
Expanded: TypeAlias = "pa.Buffer | Flaw"
"""The content of a block, or why there is none."""


def make_block_damage(path: str, offset: int, length: int, flaw: Flaw) -> Damage:
    """Return the damage of a block."""
    kind, first, two = flaw
    return Damage(path, offset, length, kind.label, kind.detail.format(first, two))


@dataclass(frozen=True, slots=True)
class Buckets:
    """The layout of a table's buckets.

    Attributes:
        key: Bytes of a key.
        user: Bytes of its user key; the rest is its trailer, which tables of the last level leave out.
        value: Bytes of a value, which follows the key.
        empty: The key of buckets that hold nothing.
        end: Where the buckets end.
    """

    key: int
    user: int
    value: int
    empty: bytes
    end: int


@cache
def _make_codec_rules(*, plain: bool, snappy: bool, lz4: bool) -> NDArray[np.uint8]:
    """Return, by compression code, how a kernel reads a block; see `kernels.Rule`."""
    codec_rules = np.full(256, k.OTHERWISE, np.uint8)
    if plain:
        codec_rules[Compression.NONE] = k.AS_IS
    if snappy:
        codec_rules[Compression.SNAPPY] = k.SNAPPY
        if lz4:
            codec_rules[list(codecs.LZ4)] = k.LZ4
    codec_rules.flags.writeable = False
    return codec_rules


@dataclass(frozen=True)
class BlockRules:
    """The rules of a table's footer for all of its blocks, and those that are believed of them.

    Attributes:
        dialect: Whose codes of compression are used: RocksDB's, too, in its first version, which has LevelDB's footer.
        version: RocksDB's format version; 0 for LevelDB.
        checksum: Type of the checksums.
        context: What makes checksums depend on their place, or 0.
        limit: Where blocks end and the footer begins, as file offset.
        verify: Whether checksums are verified.
        longest: Bytes that a block may expand to.
        dictionary: What codecs were given before each block of entries.
        has_foreign_codecs: Whether codes of compression are an application's own.
        has_embedded_values: Whether values may be between blocks, see `addresses.EmbeddedLayer`.
        buckets: How the buckets of a table without blocks are laid out; `None` for others.
    """

    dialect: Dialect
    version: int
    checksum: Checksum
    context: int
    limit: int
    verify: bool
    longest: int
    dictionary: bytes = b""
    has_foreign_codecs: bool = False
    has_embedded_values: bool = False
    buckets: Buckets | None = None

    @cached_property
    def rule(self) -> k.Rule:
        """The same for kernels."""
        snappy = not self.is_layered and not self.has_foreign_codecs
        codec_rules = _make_codec_rules(
            plain=not self.is_layered, snappy=snappy, lz4=self._sizes and not self.dictionary
        )
        numbers = np.int64(self.checksum), np.uint64(self.context), np.uint64(self.limit)
        return k.Rule(*numbers, self.verify, codec_rules, np.uint64(self.longest))

    @property
    def is_layered(self) -> bool:
        """Whether blocks of entries are to be laid out again, see `pebble.BlockLayer` and `addresses.EmbeddedLayer`."""
        return (
            self.buckets is not None
            or self.has_embedded_values
            or (self.dialect == "pebble" and self.version >= layout.PREFIXED_VALUES)
        )

    @property
    def _sizes(self) -> bool:
        """Whether compressed blocks begin with their size."""
        return self.dialect == "pebble" or (self.dialect == "rocksdb" and self.version >= layout.SIZED_VERSION)

    def read(
        self, source: Source, offset: int, size: int, *, of_entries: bool = False
    ) -> tuple[Expanded, Compression | None]:
        """Read, judge and expand the block of `size` bytes at a file offset; its compression is returned, too."""
        length = size + layout.TRAILER_SIZE
        if offset + length > self.limit:
            return (TableDamageKind.BAD_HANDLE, size, self.limit), None
        window = source.read_window(offset, length)
        if self.buckets is not None:
            return pa.py_buffer(bytes(window)), Compression.NONE
        kind, first, second, code = self._judge_block(window, offset, size)
        if kind:
            return (TableDamageKind(kind), first, second), None
        stored = pa.py_buffer(bytes(window[:size]))
        return self.expand(stored, code, of_entries=of_entries), codecs.find_compression(self.dialect, code, stored)

    def _judge_block(self, window: NDArray[np.uint8], offset: int, size: int) -> tuple[int, int, int, int]:
        """Judge a block as it was before RocksDB, up to 8.0, put a sequence number into it; see `judge_stored`."""
        verdict: tuple[int, int, int, int] = k.judge_stored(window, offset, size, self.rule)
        if verdict[0] == TableDamageKind.CHECKSUM_MISMATCH and self.dialect != "pebble":
            fixed = (
                (end - start, start)
                for key, start, end in _parse_entries(bytes(window[:size]))
                if key == layout.GLOBAL_SEQUENCE
            )
            width, place = next(fixed, (0, 0))
            if width == layout.GLOBAL_SEQUENCE_SIZE:
                before = window.copy()
                before[place : place + layout.GLOBAL_SEQUENCE_SIZE] = 0
                restored: tuple[int, int, int, int] = k.judge_stored(before, offset, size, self.rule)
                return verdict if restored[0] else restored
        return verdict

    def expand(self, stored: pa.Buffer, code: int, *, of_entries: bool = False) -> Expanded:
        """Expand a block.

        Args:
            stored: The block, without its trailer.
            code: How it is compressed.
            of_entries: Whether it is a block of entries: only these are compressed with the dictionary.

        Returns:
            See `Expanded`.
        """
        if self.buckets is not None:
            return stored
        if code == Compression.NONE:
            return self._check_size(stored)
        kind = codecs.find_compression(self.dialect, code, stored)
        if kind not in codecs.CODECS or self.has_foreign_codecs:
            return TableDamageKind.UNKNOWN_COMPRESSION, code, 0
        size, data = codecs.take_size(kind, stored, sized=self._sizes)
        if size is not None and size > self.longest:
            return TableDamageKind.BLOCK_TOO_LARGE, size, self.longest
        dictionary = self.dictionary if of_entries and codecs.CODECS[kind].takes_dictionary else b""
        content = codecs.expand(self.dialect, kind, data, size, self.longest, dictionary)
        if isinstance(content, Undecodable) or (size is not None and content.size != size):
            return TableDamageKind.BAD_COMPRESSION, code, 0
        return self._check_size(content)

    def _check_size(self, content: pa.Buffer) -> Expanded:
        return (
            content if content.size <= self.longest else (TableDamageKind.BLOCK_TOO_LARGE, content.size, self.longest)
        )


def join_values(content: pa.Buffer) -> Expanded:
    """Return a block of entries whose values are apart from their keys, with each value after its key."""
    data = np.frombuffer(content, np.uint8)
    out = np.zeros(len(data) + layout.RESTART_SIZE, np.uint8)
    length = int(k.join_values(data, out)) if k.has_separate_values(data) else 0
    return pa.py_buffer(out[:length]) if length else decode_flaw(data)


def decode_flaw(data: NDArray[np.uint8]) -> Flaw:
    """Return why an expanded block is malformed, by the number that ends it."""
    packed = int.from_bytes(data[-layout.RESTART_SIZE :].tobytes(), "little")
    if packed & layout.UNKNOWN_FLAG and packed & ~layout.BLOCK_FLAGS <= len(data) // layout.RESTART_SIZE:
        return TableDamageKind.UNKNOWN_FLAGS, packed & layout.BLOCK_FLAGS, 0
    return TableDamageKind.BAD_BLOCK, len(data), packed


def iterate_entries(content: pa.Buffer) -> Iterator[tuple[bytes, bytes]]:
    """Yield keys and values of a small block, up to the first entry that does not end in it."""
    data = content.to_pybytes()
    for key, start, end in _parse_entries(data):
        yield key, data[start:end]


def _parse_entries(data: bytes) -> Iterator[tuple[bytes, int, int]]:
    """Yield keys, and where values begin and end."""
    entries = np.empty(min(len(data) // layout.SMALLEST_ENTRY + 1, _ENTRIES_AT_ONCE), k.ENTRY)
    count, position, last = len(entries), 0, b""
    while count == len(entries):
        count = k.locate_entries(np.frombuffer(data, np.uint8), position, len(last), entries)
        for shared, start, value, position in entries[:count].tolist():  # the next call goes on there
            last = last[:shared] + data[start:value]
            yield last, value, position


class BlockBuilder:
    """A small block, entry by entry: of an index, or of metadata. Each entry is a restart point, with its whole key."""

    def __init__(self) -> None:
        self.entries = 0
        self._data = bytearray()
        self._restarts: list[int] = []

    def add(self, key: bytes, value: bytes) -> None:
        """Append an entry."""
        self._restarts.append(len(self._data))
        self._data += encode_varint(0) + encode_varint(len(key)) + encode_varint(len(value)) + key + value
        self.entries += 1

    def take(self) -> bytes:
        """Return the block."""
        restarts = self._restarts or [0]
        numbers = b"".join(restart.to_bytes(layout.RESTART_SIZE, "little") for restart in [*restarts, len(restarts)])
        return bytes(self._data) + numbers

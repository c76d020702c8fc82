"""Blocks, judged and expanded: the one place where it is decided whether a block is whole."""

from __future__ import annotations

import bz2
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pyarrow as pa

from sawlog.damage import Damage
from sawlog.guard import Undecodable, decode_by, optional
from sawlog.kernels.lz4 import expand_after
from sawlog.kernels.minlz import expand_minlz
from sawlog.kernels.snappy import SLACK
from sawlog.leveldb.records.layout import VARINT64_BYTES
from sawlog.leveldb.table import kernels as k
from sawlog.leveldb.table import layout
from sawlog.leveldb.table.layout import DETAIL, Checksum, Compression, Dialect, Kind
from sawlog.varints import varints_and_ends

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from sawlog.storage import Source

_ARROW = {
    Compression.SNAPPY: "snappy",
    Compression.LZ4: "lz4_raw",
    Compression.LZ4HC: "lz4_raw",
    Compression.ZSTD: "zstd",
}
_LZ4 = (Compression.LZ4, Compression.LZ4HC)
_WITH_DICTIONARY = (*_LZ4, Compression.ZLIB, Compression.ZSTD)
"""The other codecs ignore dictionaries."""

Flaw: TypeAlias = "tuple[Kind, int, int]"
"""The kind of damage of a block, and the two numbers that explain it."""
Expanded: TypeAlias = "pa.Buffer | Flaw"
"""The content of a block, or why there is none."""


def block_damage(path: str, offset: int, length: int, flaw: Flaw) -> Damage:
    """Damage of a block."""
    kind, one, two = flaw
    return Damage(path, offset, length, kind.label, DETAIL[kind].format(one, two))


@dataclass(frozen=True, slots=True)
class BlockRules:
    """What a table's footer says about all of its blocks, and what is believed of them.

    Attributes:
        dialect: Whose codes of compression are used: RocksDB's, too, in its first version, which has LevelDB's footer.
        version: RocksDB's format version; 0 for LevelDB.
        checksum: Type of the checksums.
        context: What makes checksums depend on their place, or 0.
        limit: Where blocks end and the footer begins, as file offset.
        verify: Whether checksums are verified.
        longest: Bytes that a block may expand to.
        dictionary: What codecs were given before each block of entries.
        foreign: Whether codes of compression are an application's own.
        embedded: Whether values may stand between blocks, see `embedded.EmbeddedLayer`.
    """

    dialect: Dialect
    version: int
    checksum: Checksum
    context: int
    limit: int
    verify: bool
    longest: int
    dictionary: bytes = b""
    foreign: bool = False
    embedded: bool = False

    def judge(self, window: NDArray[np.uint8], base: int, handles: NDArray[np.void]) -> NDArray[np.void]:
        """Judge stored blocks: one VERDICT for each HANDLE, see `kernels.judge_blocks`."""
        verdicts = np.zeros(len(handles), k.VERDICT)
        k.judge_blocks(window, np.uint64(base), handles, self.rule, verdicts)
        return verdicts

    @property
    def rule(self) -> k.Rule:
        """The same for kernels."""
        codecs = np.full(256, k.OTHERWISE, np.uint8)
        if not self.layered:
            codecs[Compression.NONE] = k.AS_IS
        if not self.layered and not self.foreign:
            codecs[Compression.SNAPPY] = k.SNAPPY
            if self._sizes and not self.dictionary:
                codecs[list(_LZ4)] = k.LZ4
        numbers = np.int64(self.checksum), np.uint64(self.context), np.uint64(self.limit)
        return k.Rule(*numbers, self.verify, codecs, np.uint64(self.longest))

    @property
    def layered(self) -> bool:
        """Whether blocks of entries are to be laid out again, see `pebble.BlockLayer` and `embedded.EmbeddedLayer`."""
        return self.embedded or (self.dialect == "pebble" and self.version >= layout.PREFIXED_VALUES)

    @property
    def _sizes(self) -> bool:
        """Whether compressed blocks begin with their size."""
        return self.dialect == "pebble" or (self.dialect == "rocksdb" and self.version >= layout.SIZED_VERSION)

    def read(self, source: Source, offset: int, size: int, *, of_entries: bool = False) -> tuple[Expanded, int]:
        """Read, judge and expand the block of `size` bytes at a file offset; its compression is returned, too."""
        length = size + layout.TRAILER_SIZE
        if offset + length > self.limit:
            return (Kind.BAD_HANDLE, size, self.limit), 0
        window = source.window(offset, length)
        verdict = self._verdict(window, offset, size)
        code = int(verdict["compression"])
        if verdict["kind"]:
            return (Kind(int(verdict["kind"])), int(verdict["one"]), int(verdict["two"])), code
        return self.expand(pa.py_buffer(bytes(window[:size])), code, of_entries=of_entries), code

    def _verdict(self, window: NDArray[np.uint8], offset: int, size: int) -> np.void:
        """The verdict on one block; as it was before RocksDB, up to 8.0, put a sequence number into it."""
        handles = np.array([(offset, size)], k.HANDLE)
        found: np.void = self.judge(window, offset, handles)[0]
        if found["kind"] == Kind.CHECKSUM_MISMATCH and self.dialect != "pebble":
            place = _global_sequence(bytes(window[:size]))
            if place is not None:
                before = window.copy()
                before[place : place + layout.GLOBAL_SEQUENCE_SIZE] = 0
                restored = self.judge(before, offset, handles)[0]
                return found if restored["kind"] else restored
        return found

    def expand(self, stored: pa.Buffer, code: int, *, of_entries: bool = False) -> Expanded:
        """Expand a block.

        Args:
            stored: The block, without its trailer.
            code: How it is compressed.
            of_entries: Whether it is a block of entries: only these are compressed with the dictionary.

        Returns:
            See `Expanded`.
        """
        kind = self._compression(code, stored)
        if kind is Compression.NONE:
            return stored if stored.size <= self.longest else (Kind.BLOCK_TOO_LARGE, stored.size, self.longest)
        if kind is None or kind is Compression.XPRESS or self.foreign:
            return Kind.UNKNOWN_COMPRESSION, code, 0
        size, data = self._sized(kind, stored)
        if size is not None and size > self.longest:
            return Kind.BLOCK_TOO_LARGE, size, self.longest
        dictionary = self.dictionary if of_entries and kind in _WITH_DICTIONARY else b""
        content = decode_by(self._expand, kind, data, size, dictionary)
        if isinstance(content, Undecodable) or (size is not None and content.size != size):
            return Kind.BAD_COMPRESSION, code, 0
        return content if content.size <= self.longest else (Kind.BLOCK_TOO_LARGE, content.size, self.longest)

    def _compression(self, code: int, stored: pa.Buffer) -> Compression | None:
        if self.dialect != "leveldb" or code <= Compression.SNAPPY:
            known = set(Compression) - (set() if self.dialect == "pebble" else {Compression.MINLZ})
            return Compression(code) if code in known else None
        if code == Compression.ZSTD:
            # Pebble's, which writes LevelDB's format with codes of RocksDB's.
            return Compression.ZSTD
        if code == layout.LEVELDB_ZSTD and _head(stored, len(layout.ZSTD_MAGIC)) == layout.ZSTD_MAGIC:
            return Compression.ZSTD
        return Compression.ZLIB if code in (layout.LEVELDB_ZSTD, layout.LEVELDB_DEFLATE) else None

    def _sized(self, kind: Compression, stored: pa.Buffer) -> tuple[int | None, pa.Buffer]:
        """How long the content says it is, and what is left behind that."""
        if kind is Compression.SNAPPY:
            return _varint(stored)[0], stored
        if kind is Compression.MINLZ:
            mark = len(layout.MINLZ_MARK)
            size, width = _varint(stored.slice(min(mark, stored.size)))
            # Without a size, all of it is one literal.
            return size or max(stored.size - mark - width, 0), stored
        framed = kind is Compression.ZSTD and _head(stored, len(layout.ZSTD_MAGIC)) == layout.ZSTD_MAGIC
        if self._sizes or (kind is Compression.ZSTD and not framed):
            size, width = _varint(stored)
            return size, stored.slice(width)
        if kind in _LZ4:
            size = int.from_bytes(_head(stored, layout.OLD_LZ4_SIZE), "little")
            return size, stored.slice(min(layout.OLD_LZ4_SIZE, stored.size))
        return None, stored

    def _expand(self, kind: Compression, data: pa.Buffer, size: int | None, dictionary: bytes) -> pa.Buffer:
        """Expand data by a library, to at most one byte more than it may have.

        Raises:
            ValueError: For data that is not whole; libraries raise what they like.
        """
        most = (self.longest if size is None else size) + 1
        if kind is Compression.BZIP2:
            return _drained(bz2.BZ2Decompressor(), data, most)
        if kind is Compression.ZLIB:
            # LevelDB's forks keep zlib's header, RocksDB does not.
            bare = self.dialect != "leveldb" or _head(data, 1) != b"\x78"
            return _drained(zlib.decompressobj(-zlib.MAX_WBITS if bare else zlib.MAX_WBITS, dictionary), data, most)
        if kind is Compression.ZSTD and dictionary:
            return _zstd(data, most, dictionary)
        if kind is Compression.ZSTD and size is None:
            with pa.CompressedInputStream(pa.BufferReader(data), "zstd") as stream:
                return stream.read_buffer(most)
        if size is None:
            raise ValueError("no size")
        if kind is Compression.MINLZ:
            return _minlz(data, size)
        if dictionary:
            return _lz4(data, size, dictionary)
        buffer: pa.Buffer = pa.Codec(_ARROW[kind]).decompress(data, decompressed_size=size)
        return buffer


def _drained(decoder: Any, data: pa.Buffer, most: int) -> pa.Buffer:
    """What a decoder of the standard library makes of data that ends where its content does."""
    content = decoder.decompress(data, most)
    if not decoder.eof:
        raise ValueError("the data does not end")
    return pa.py_buffer(content)


def _zstd(data: pa.Buffer, most: int, dictionary: bytes) -> pa.Buffer:
    """Content that refers to a dictionary, which Arrow's codec does not take."""
    zstandard = optional("zstandard", "rocksdb", "Zstandard blocks that were compressed with a dictionary")
    declared = zstandard.frame_content_size(data)
    if declared > most:
        raise ValueError(f"a frame of {declared} bytes")
    given = zstandard.ZstdCompressionDict(dictionary)
    return pa.py_buffer(zstandard.ZstdDecompressor(dict_data=given).decompress(data, max_output_size=most))


def _lz4(data: pa.Buffer, size: int, dictionary: bytes) -> pa.Buffer:
    """Content that refers to a dictionary as if it were before it."""
    before = np.frombuffer(dictionary, np.uint8)[-layout.LZ4_REACH :]
    out = np.zeros(len(before) + size + SLACK, np.uint8)
    out[: len(before)] = before
    begin, end = np.uint64(len(before)), np.uint64(len(before) + size)
    if not expand_after(np.frombuffer(data, np.uint8), out, begin, end):
        raise ValueError("not a block of LZ4")
    return pa.py_buffer(out[len(before) : len(before) + size])


def _minlz(data: pa.Buffer, size: int) -> pa.Buffer:
    mark = len(layout.MINLZ_MARK)
    if _head(data, mark) != layout.MINLZ_MARK:
        raise ValueError("not a block of MinLZ")
    written, width = _varint(data.slice(mark))
    if not written:
        return data.slice(mark + width)
    out = np.zeros(size + SLACK, np.uint8)
    begin, end = np.uint64(mark + width), np.uint64(data.size)
    if not expand_minlz(np.frombuffer(data, np.uint8), begin, end, out, np.uint64(size)):
        raise ValueError("not a block of MinLZ")
    return pa.py_buffer(out[:size])


def joined(content: pa.Buffer) -> Expanded:
    """A block of entries whose values are apart from their keys, with each value after its key."""
    data = np.frombuffer(content, np.uint8)
    out = np.zeros(len(data) + layout.RESTART_SIZE, np.uint8)
    length = int(k.join_values(data, out)) if k.values_apart(data) else 0
    return pa.py_buffer(out[:length]) if length else flaw_of(data)


def flaw_of(data: NDArray[np.uint8]) -> Flaw:
    """Why an expanded block is none: by the number that ends it."""
    packed = int.from_bytes(data[-layout.RESTART_SIZE :].tobytes(), "little")
    if packed & layout.UNKNOWN_FLAG and packed & ~layout.BLOCK_FLAGS <= len(data) // layout.RESTART_SIZE:
        return Kind.UNKNOWN_FLAGS, packed & layout.BLOCK_FLAGS, 0
    return Kind.BAD_BLOCK, len(data), packed


def _head(data: pa.Buffer, length: int) -> bytes:
    """The first bytes of a buffer, as many as there are."""
    return bytes(data.slice(0, min(length, data.size)).to_pybytes())


def _varint(data: pa.Buffer) -> tuple[int | None, int]:
    """The varint that data begins with, and its width; None where there is none."""
    return next(varints_and_ends(_head(data, VARINT64_BYTES)), (None, 0))


def entries(content: pa.Buffer) -> Iterator[tuple[bytes, bytes]]:
    """Keys and values of a small block, up to the first entry that does not end in it."""
    data = content.to_pybytes()
    for key, start, end in _entries(data):
        yield key, data[start:end]


def _global_sequence(data: bytes) -> int | None:
    """Where in a block of properties the value is that RocksDB may have changed when it took in the table."""
    for key, start, end in _entries(data):
        if key == layout.GLOBAL_SEQUENCE and end - start == layout.GLOBAL_SEQUENCE_SIZE:
            return start
    return None


def _entries(data: bytes) -> Iterator[tuple[bytes, int, int]]:
    """Keys, and where values begin and end."""
    end = int(k.end_of_entries(np.frombuffer(data, np.uint8)))
    at = 0
    last = b""
    while at < end:
        numbers = []
        for _ in range(3):
            value = shift = 0
            while at < end:
                byte = data[at]
                at += 1
                value |= (byte & 127) << shift
                shift += 7
                if byte < 128:
                    break
            numbers.append(value)
        shared, rest, length = numbers
        if shared > len(last) or at + rest + length > end:
            return
        last = last[:shared] + data[at : at + rest]
        at += rest + length
        yield last, at - length, at

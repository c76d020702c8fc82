"""Blocks, judged and expanded: the one place where it is decided whether a block is whole."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import pyarrow as pa

from sawlog.leveldb_table import kernels as k
from sawlog.leveldb_table import layout
from sawlog.leveldb_table.layout import Checksum, Compression, Dialect, Kind

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from sawlog.storage import Source

_CODECS = {
    Compression.SNAPPY: "snappy",
    Compression.LZ4: "lz4_raw",
    Compression.LZ4HC: "lz4_raw",
    Compression.ZSTD: "zstd",
}
_VARINT = 10


Expanded: TypeAlias = "pa.Buffer | tuple[Kind, int, int]"
"""The content of a block; or the kind of damage, and the two numbers that explain it."""


@dataclass(frozen=True, slots=True)
class BlockRules:
    """What a table's footer says about all of its blocks, and what is believed of them.

    Attributes:
        dialect: Whose codes of compression are used.
        version: RocksDB's format version; 0 for LevelDB.
        checksum: Type of the checksums.
        context: What makes checksums depend on their place, or 0.
        limit: Where blocks end and the footer begins, as file offset.
        verify: Whether checksums are verified.
        longest: Bytes that a block may expand to.
        dictionary: What ZSTD was given before each block.
    """

    dialect: Dialect
    version: int
    checksum: Checksum
    context: int
    limit: int
    verify: bool
    longest: int
    dictionary: bytes = b""

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
            codecs[[Compression.NONE, Compression.SNAPPY]] = k.AS_IS, k.SNAPPY
            if self._sizes:
                codecs[[Compression.LZ4, Compression.LZ4HC]] = k.LZ4
        numbers = np.int64(self.checksum), np.uint64(self.context), np.uint64(self.limit)
        return k.Rule(*numbers, self.verify, codecs, np.uint64(self.longest))

    @property
    def layered(self) -> bool:
        """Whether blocks of entries are to be laid out anew, see `pebble.BlockLayer`."""
        return self.dialect == "pebble" and self.version >= layout.PREFIXED_VALUES

    @property
    def _sizes(self) -> bool:
        """Whether compressed blocks begin with their size."""
        return self.dialect == "pebble" or (self.dialect == "rocksdb" and self.version >= layout.SIZED_VERSION)

    def read(self, source: Source, offset: int, size: int) -> tuple[Expanded, int]:
        """Read, judge and expand the block of `size` bytes at a file offset; its compression is told, too."""
        length = size + layout.TRAILER_SIZE
        if offset + length > self.limit:
            return (Kind.BAD_HANDLE, size, self.limit), 0
        window = source.window(offset, length)
        (verdict,) = self.judge(window, offset, np.array([(offset, size)], k.HANDLE))
        code = int(verdict["compression"])
        if verdict["kind"]:
            return (Kind(int(verdict["kind"])), int(verdict["one"]), int(verdict["two"])), code
        return self.expand(pa.py_buffer(bytes(window[:size])), code), code

    def expand(self, stored: pa.Buffer, code: int) -> Expanded:
        """Expand a block.

        Args:
            stored: The block, without its trailer.
            code: How it is compressed.

        Returns:
            See `Expanded`.
        """
        kind = self._compression(code, stored)
        if kind is Compression.NONE:
            return stored if stored.size <= self.longest else (Kind.BLOCK_TOO_LARGE, stored.size, self.longest)
        if kind not in _CODECS and kind is not Compression.ZLIB:
            return Kind.UNKNOWN_COMPRESSION, code, 0
        size, data = self._sized(kind, stored)
        if size is not None and size > self.longest:
            return Kind.BLOCK_TOO_LARGE, size, self.longest
        try:
            content = self._expand(kind, data, size)
        except (OSError, zlib.error, ValueError, pa.ArrowException):
            content = None
        if content is None or (size is not None and content.size != size):
            return Kind.BAD_COMPRESSION, code, 0
        return content if content.size <= self.longest else (Kind.BLOCK_TOO_LARGE, content.size, self.longest)

    def _compression(self, code: int, stored: pa.Buffer) -> Compression | None:
        if self.dialect != "leveldb" or code <= Compression.SNAPPY:
            try:
                return Compression(code)
            except ValueError:
                return None
        if code == layout.LEVELDB_ZSTD and _head(stored, len(layout.ZSTD_MAGIC)) == layout.ZSTD_MAGIC:
            return Compression.ZSTD
        return Compression.ZLIB if code in (layout.LEVELDB_ZSTD, layout.LEVELDB_DEFLATE) else None

    def _sized(self, kind: Compression, stored: pa.Buffer) -> tuple[int | None, pa.Buffer]:
        """How long the content says it is, and what is left behind that."""
        if kind is Compression.SNAPPY:
            return _varint(stored)[0], stored
        if self._sizes:
            size, width = _varint(stored)
            return size, stored.slice(width)
        if kind in (Compression.LZ4, Compression.LZ4HC):
            size = int.from_bytes(_head(stored, layout.OLD_LZ4_SIZE), "little")
            return size, stored.slice(min(layout.OLD_LZ4_SIZE, stored.size))
        return None, stored

    def _expand(self, kind: Compression, data: pa.Buffer, size: int | None) -> pa.Buffer | None:
        if kind is Compression.ZLIB:
            # LevelDB's forks keep zlib's header, RocksDB does not; one byte more than allowed shows what is too long.
            bare = self.dialect != "leveldb" or _head(data, 1) != b"\x78"
            decoder = zlib.decompressobj(-zlib.MAX_WBITS if bare else zlib.MAX_WBITS)
            content = decoder.decompress(data, (self.longest if size is None else size) + 1)
            return pa.py_buffer(content) if decoder.eof else None
        if kind is Compression.ZSTD and (self.dictionary or size is None):
            import zstandard

            given = zstandard.ZstdCompressionDict(self.dictionary) if self.dictionary else None
            decompressor = zstandard.ZstdDecompressor(dict_data=given)
            with decompressor.stream_reader(data) as reader:
                return pa.py_buffer(reader.read((self.longest if size is None else size) + 1))
        buffer: pa.Buffer = pa.Codec(_CODECS[kind]).decompress(data, decompressed_size=size)
        return buffer


def _head(data: pa.Buffer, length: int) -> bytes:
    """The first bytes of a buffer, as many as there are."""
    return bytes(data.slice(0, min(length, data.size)).to_pybytes())


def _varint(data: pa.Buffer) -> tuple[int | None, int]:
    """The varint that data begins with, and its width; None where there is none."""
    value = 0
    for index, byte in enumerate(_head(data, _VARINT)):
        value |= (byte & 127) << 7 * index
        if byte < 128:
            return value, index + 1
    return None, 0


def entries(content: pa.Buffer) -> Iterator[tuple[bytes, bytes]]:
    """Keys and values of a small block, up to the first entry that does not end in it."""
    data = content.to_pybytes()
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
        yield last, data[at - length : at]

"""Compression of records, blocks and values: the meaning of codes, and each codec, decoding next to encoding.

Blocks and values are expanded one by one. The records of a compressed log are one ZSTD frame each, across fragments; a
batch of them is expanded by one call of the decoder where every frame declares its size, as RocksDB's do. A kernel
walks the blocks of each frame first: it proves that the frame ends where the record ends, and bounds its content, so
that nothing is allocated just because a header says so. See section 8.1 of the format, and RFC 8878 for ZSTD's frames.
"""

from __future__ import annotations

import bz2
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from sawlog.arrow import compute_offsets
from sawlog.guard import Undecodable, call_decoder, import_optional
from sawlog.kernels.jit import kernel
from sawlog.kernels.lz4 import expand_after
from sawlog.kernels.memory import load_u16, load_u32, load_u64
from sawlog.kernels.minlz import expand_minlz
from sawlog.kernels.numbers import _ONE, _ZERO
from sawlog.kernels.signature import Bytes, Int32s, OutInt64s
from sawlog.kernels.snappy import SLACK
from sawlog.kernels.varints import encode_varint, read_varint
from sawlog.leveldb.log.layout import Compression
from sawlog.leveldb.records.layout import VARINT64_BYTES
from sawlog.leveldb.table import layout
from sawlog.leveldb.table.layout import Dialect


@dataclass(frozen=True, slots=True)
class Codec:
    """A compression that can be expanded.

    Attributes:
        arrow: Arrow's name of it; empty where Arrow does not have it.
        takes_dictionary: Whether it uses a dictionary; the others ignore one.
    """

    arrow: str = ""
    takes_dictionary: bool = False


CODECS = {
    Compression.SNAPPY: Codec("snappy"),
    Compression.ZLIB: Codec(takes_dictionary=True),
    Compression.BZIP2: Codec(),
    Compression.LZ4: Codec("lz4_raw", takes_dictionary=True),
    Compression.LZ4HC: Codec("lz4_raw", takes_dictionary=True),
    Compression.ZSTD: Codec("zstd", takes_dictionary=True),
    Compression.MINLZ: Codec(),
}
"""Blocks of other compressions are not read: XPRESS is in no library."""
LZ4 = (Compression.LZ4, Compression.LZ4HC)
_COMPRESSIONS = {int(kind): kind for kind in Compression}


def find_compression(dialect: Dialect, code: int, stored: pa.Buffer) -> Compression | None:
    """Return the compression that the code of a block means in a dialect; `None` for a code that is not known."""
    if dialect != "leveldb" or code <= Compression.SNAPPY:
        kind = _COMPRESSIONS.get(code)
        return None if dialect != "pebble" and kind is Compression.MINLZ else kind
    if code == Compression.ZSTD:
        # Pebble's, which writes LevelDB's format with codes of RocksDB's.
        return Compression.ZSTD
    if code == layout.LEVELDB_ZSTD and _is_frame(stored):
        return Compression.ZSTD
    return Compression.ZLIB if code in (layout.LEVELDB_ZSTD, layout.LEVELDB_DEFLATE) else None


def find_code(dialect: Dialect, kind: Compression) -> int:
    """Return the code of a compression in a dialect, for blocks that are written."""
    return layout.LEVELDB_ZSTD if dialect == "leveldb" and kind is Compression.ZSTD else kind


def take_size(kind: Compression, stored: pa.Buffer, *, sized: bool) -> tuple[int | None, pa.Buffer]:
    """Return the length of the content of a block, `None` where the block does not say, and the bytes after that.

    Args:
        kind: How it is compressed.
        stored: The block, without its trailer.
        sized: Whether compressed blocks begin with their size, except for Snappy's.
    """
    if kind is Compression.SNAPPY:
        return _read_varint(stored)[0], stored
    if kind is Compression.MINLZ:
        mark = len(layout.MINLZ_MARK)
        size, width = _read_varint(stored.slice(min(mark, stored.size)))
        # Without a size, all of it is one literal.
        return size or max(stored.size - mark - width, 0), stored
    if sized or (kind is Compression.ZSTD and not _is_frame(stored)):
        size, width = _read_varint(stored)
        return size, stored.slice(width)
    if kind in LZ4:
        size = int.from_bytes(_copy_head(stored, layout.OLD_LZ4_SIZE), "little")
        return size, stored.slice(min(layout.OLD_LZ4_SIZE, stored.size))
    return None, stored


def compress(kind: Compression, content: bytes, *, sized: bool) -> bytes:
    """Return a block as it is stored: what `take_size` and `expand` read."""
    if kind is Compression.ZLIB:
        encoder = zlib.compressobj(wbits=-zlib.MAX_WBITS)
        stored = encoder.compress(content) + encoder.flush()
    else:
        stored = pa.Codec(CODECS[kind].arrow).compress(content, asbytes=True)
    return encode_varint(len(content)) + stored if sized and kind is not Compression.SNAPPY else stored


def expand(
    dialect: Dialect, kind: Compression, data: pa.Buffer, size: int | None, longest: int, dictionary: bytes = b""
) -> pa.Buffer | Undecodable:
    """Expand what `take_size` leaves, to at most one byte more than it may have.

    Args:
        dialect: Whose it is.
        kind: How it is compressed.
        data: What is left after the size.
        size: How long the content is; `None` where only the codec knows.
        longest: How long it may be then.
        dictionary: What the codec was given before.
    """
    max_bytes = (longest if size is None else size) + 1
    if kind is Compression.ZLIB:
        # LevelDB's forks keep zlib's header, RocksDB does not.
        bare = dialect != "leveldb" or _copy_head(data, 1) != b"\x78"
        return call_decoder(_deflate, -zlib.MAX_WBITS if bare else zlib.MAX_WBITS, data, max_bytes, dictionary)
    return call_decoder(_expand, kind, data, size, max_bytes, dictionary)


def _expand(kind: Compression, data: pa.Buffer, size: int | None, max_bytes: int, dictionary: bytes) -> pa.Buffer:
    """Expand data by a library; ValueError, or what the library likes, for data that is not whole."""
    if kind is Compression.BZIP2:
        return _drain(bz2.BZ2Decompressor(), data, max_bytes)
    if kind is Compression.ZSTD and dictionary:
        return _expand_dictionary_zstd(data, max_bytes, dictionary)
    if kind is Compression.ZSTD and size is None:
        return _expand_unbounded_zstd(data, max_bytes)
    if size is None:
        raise ValueError("no size")
    if kind is Compression.MINLZ:
        return _expand_minlz(data, size)
    if dictionary and kind in LZ4:
        return _expand_dictionary_lz4(data, size, dictionary)
    buffer: pa.Buffer = pa.Codec(CODECS[kind].arrow).decompress(data, decompressed_size=size)
    return buffer


def _drain(decoder: Any, data: pa.Buffer, max_bytes: int) -> pa.Buffer:
    """Return the output of a decoder of the standard library for data that ends where its content does."""
    content = decoder.decompress(data, max_bytes)
    if not decoder.eof:
        raise ValueError("the data does not end")
    return pa.py_buffer(content)


def _deflate(window: int, data: pa.Buffer, max_bytes: int, dictionary: bytes) -> pa.Buffer:
    return _drain(zlib.decompressobj(window, dictionary), data, max_bytes)


def _expand_unbounded_zstd(data: pa.Buffer, max_bytes: int) -> pa.Buffer:
    """Return the content of a frame that does not say how long it is, `max_bytes` bytes of it."""
    with pa.CompressedInputStream(pa.BufferReader(data), "zstd") as stream:
        return stream.read_buffer(max_bytes)


def _expand_dictionary_zstd(data: pa.Buffer, max_bytes: int, dictionary: bytes) -> pa.Buffer:
    """Return the content of a block that refers to a dictionary, which Arrow's codec does not take."""
    zstandard = import_optional("zstandard", "rocksdb", "Zstandard blocks that were compressed with a dictionary")
    declared = zstandard.frame_content_size(data)
    if declared > max_bytes:
        raise ValueError(f"a frame of {declared} bytes")
    dictionary_data = zstandard.ZstdCompressionDict(dictionary)
    return pa.py_buffer(
        zstandard.ZstdDecompressor(dict_data=dictionary_data).decompress(data, max_output_size=max_bytes)
    )


def _expand_dictionary_lz4(data: pa.Buffer, size: int, dictionary: bytes) -> pa.Buffer:
    """Return the content of a block that refers to a dictionary as if it were before it."""
    before = np.frombuffer(dictionary, np.uint8)[-layout.LZ4_REACH :]
    out = np.zeros(len(before) + size + SLACK, np.uint8)
    out[: len(before)] = before
    begin, end = np.uint64(len(before)), np.uint64(len(before) + size)
    if not expand_after(np.frombuffer(data, np.uint8), out, begin, end):
        raise ValueError("not a block of LZ4")
    return pa.py_buffer(out[len(before) : len(before) + size])


def _expand_minlz(data: pa.Buffer, size: int) -> pa.Buffer:
    mark = len(layout.MINLZ_MARK)
    if _copy_head(data, mark) != layout.MINLZ_MARK:
        raise ValueError("not a block of MinLZ")
    written, width = _read_varint(data.slice(mark))
    if not written:
        return data.slice(mark + width)
    out = np.zeros(size + SLACK, np.uint8)
    begin, end = np.uint64(mark + width), np.uint64(data.size)
    if not expand_minlz(np.frombuffer(data, np.uint8), begin, end, out, np.uint64(size)):
        raise ValueError("not a block of MinLZ")
    return pa.py_buffer(out[:size])


def _copy_head(data: pa.Buffer, length: int) -> bytes:
    return bytes(data.slice(0, min(length, data.size)).to_pybytes())


def _read_varint(data: pa.Buffer) -> tuple[int | None, int]:
    """Return the varint that data begins with, and its width; None where there is none."""
    return read_varint(_copy_head(data, VARINT64_BYTES)) or (None, 0)


def _is_frame(data: pa.Buffer) -> bool:
    return _copy_head(data, len(layout.ZSTD_MAGIC)) == layout.ZSTD_MAGIC


EXPANDED_BYTES = 16 << 20
"""Content of records per batch, unless one record is larger."""

_MAGIC = np.uint64(int.from_bytes(layout.ZSTD_MAGIC, "little"))
_MAGIC_SIZE = np.uint64(4)
_BLOCK_HEADER = np.uint64(3)
_CHECKSUM = np.uint64(4)
_BLOCK_MAX = np.uint64(128 << 10)
"""No block has more content."""
_RUN = np.uint64(1)
"""Type of blocks that repeat one byte; type 0 is stored as it is."""
_RESERVED = np.uint64(3)

_UNDECLARED = -1
"""In `sizes`: the frame does not say how long its content is."""
BROKEN = -2
"""In `sizes`: the record is no ZSTD frame, or none that ends where the record ends."""


@kernel
def measure_frames(data: Bytes, ends: Int32s, sizes: OutInt64s, bounds: OutInt64s) -> None:
    """Measure the ZSTD frame of each record, without decoding it.

    Args:
        data: uint8, record i is `data[ends[i] : ends[i + 1]]`.
        ends: int32.
        sizes: int64, set to the size that each frame declares, UNDECLARED or BROKEN; 0 for an empty record.
        bounds: int64, set to the most bytes that the blocks of each frame can hold.
    """
    for row in range(len(sizes)):
        pos = np.uint64(ends[row])
        end = np.uint64(ends[row + 1])
        sizes[row] = 0
        bounds[row] = 0
        if pos == end:
            continue
        sizes[row] = BROKEN
        if end - pos < _MAGIC_SIZE + _ONE or load_u32(data, pos) != _MAGIC:
            continue
        descriptor = np.uint64(data[pos + _MAGIC_SIZE])
        pos += _MAGIC_SIZE + _ONE
        single = descriptor >> np.uint64(5) & _ONE
        code = descriptor >> np.uint64(6)
        dictionary = descriptor & np.uint64(3)
        width = single if code == _ZERO else _ONE << code
        # A window descriptor, unless one segment holds all; then the dictionary's number, which RocksDB never has.
        skipped = _ONE - single
        if descriptor & np.uint64(8) != _ZERO or dictionary != _ZERO or end - pos < skipped + width:
            continue
        pos += skipped
        declared = _ZERO
        if width == _ONE:
            declared = np.uint64(data[pos])
        elif width == np.uint64(2):
            declared = load_u16(data, pos) + np.uint64(256)
        elif width == np.uint64(4):
            declared = load_u32(data, pos)
        elif width == np.uint64(8):
            declared = load_u64(data, pos)
        pos += width

        bound = _ZERO
        complete = False
        while not complete and end - pos >= _BLOCK_HEADER:
            head = load_u16(data, pos) | np.uint64(data[pos + np.uint64(2)]) << np.uint64(16)
            pos += _BLOCK_HEADER
            kind = head >> _ONE & np.uint64(3)
            content = head >> _BLOCK_HEADER
            stored = _ONE if kind == _RUN else content
            if kind == _RESERVED or content > _BLOCK_MAX or end - pos < stored:
                break
            pos += stored
            bound += content if kind <= _RUN else _BLOCK_MAX
            complete = head & _ONE != _ZERO
        trailer = _CHECKSUM if descriptor & np.uint64(4) != _ZERO else _ZERO
        if complete and end - pos == trailer and (width == _ZERO or declared <= bound):
            sizes[row] = np.int64(declared) if width != _ZERO else _UNDECLARED
            bounds[row] = np.int64(bound)


@dataclass(frozen=True, slots=True)
class ExpandedRecords:
    """Some records of a batch, expanded.

    Attributes:
        rows: Their numbers in the batch, ascending; those that failed are missing.
        ends: int32, record `rows[i]` is `data[ends[i] : ends[i + 1]]`.
        data: Their content.
        failed: Rows that failed, ascending, with their sizes where they are merely too long, otherwise `None`.
    """

    rows: NDArray[np.int64]
    ends: NDArray[np.int32]
    data: pa.Buffer
    failed: dict[int, int | None]


def expand_records(data: NDArray[np.uint8], ends: NDArray[np.int32], longest: int) -> Iterator[ExpandedRecords]:
    """Expand a batch of records, in order, in groups of about `EXPANDED_BYTES`.

    Args:
        data: Compressed records back to back.
        ends: Record i is `data[ends[i] : ends[i + 1]]`.
        longest: Records with more content fail.
    """
    rows = len(ends) - 1
    sizes = np.empty(rows, np.int64)
    bounds = np.empty(rows, np.int64)
    measure_frames(data, ends, sizes, bounds)
    np.minimum(bounds, longest, out=bounds)
    claims = np.where(sizes == _UNDECLARED, bounds, np.where(sizes > longest, 0, sizes.clip(0)))
    reach = np.concatenate([[0], claims.cumsum()])
    group = _Expansion(pa.py_buffer(data), ends, sizes, bounds, longest)
    first = 0
    while first < rows:
        last = max(first + 1, int(np.searchsorted(reach, reach[first] + EXPANDED_BYTES, "right")) - 1)
        yield group.expand(first, last)
        first = last


class _Expansion:
    """Expands runs of neighbouring records."""

    def __init__(
        self,
        source: pa.Buffer,
        ends: NDArray[np.int32],
        sizes: NDArray[np.int64],
        bounds: NDArray[np.int64],
        longest: int,
    ) -> None:
        self._source = source
        self._ends = ends
        self._sizes = sizes
        self._bounds = bounds
        self._longest = longest
        self._codec = pa.Codec("zstd")

    def expand(self, first: int, last: int) -> ExpandedRecords:
        sizes = self._sizes[first:last]
        declared = (sizes >= 0) & (sizes <= self._longest)
        edges = np.flatnonzero(np.diff(declared, prepend=not declared[0], append=not declared[-1])) + first
        pieces: list[pa.Buffer] = []
        failed: dict[int, int | None] = {}
        for start, stop in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True):
            if declared[start - first]:
                self._expand_declared(start, stop, pieces, failed)
            else:
                for row in range(start, stop):
                    self._expand_undeclared(row, pieces, failed)
        rows = np.setdiff1d(np.arange(first, last), list(failed)) if failed else np.arange(first, last)
        ends = compute_offsets(self._sizes[rows], np.int32)
        data = pieces[0] if len(pieces) == 1 else pa.py_buffer(b"".join(pieces))
        return ExpandedRecords(rows, ends, data, failed)

    def _expand_declared(self, first: int, last: int, pieces: list[pa.Buffer], failed: dict[int, int | None]) -> None:
        """Expand frames back to back as one stream; if the decoder fails, have each answer for itself."""
        begin, end = int(self._ends[first]), int(self._ends[last])
        if begin == end:
            return
        total = int(self._sizes[first:last].sum())
        frames = self._source.slice(begin, end - begin)
        content = call_decoder(self._codec.decompress, frames, decompressed_size=total)
        if not isinstance(content, Undecodable):
            pieces.append(content)
        elif last - first == 1:
            failed[first] = None
        else:
            for row in range(first, last):
                self._expand_declared(row, row + 1, pieces, failed)

    def _expand_undeclared(self, row: int, pieces: list[pa.Buffer], failed: dict[int, int | None]) -> None:
        size = int(self._sizes[row])
        if size != _UNDECLARED:
            failed[row] = size if size != BROKEN else None
            return
        begin, end = int(self._ends[row]), int(self._ends[row + 1])
        piece = call_decoder(_expand_unbounded_zstd, self._source.slice(begin, end - begin), int(self._bounds[row]) + 1)
        if isinstance(piece, Undecodable):
            failed[row] = None
            return
        if piece.size > self._longest:
            failed[row] = piece.size
            return
        self._sizes[row] = piece.size
        pieces.append(piece)

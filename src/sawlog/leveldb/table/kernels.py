"""Judging blocks, and reading those that lead to others."""

from __future__ import annotations

from typing import Annotated, Any, NamedTuple

import numpy as np

from sawlog.chain.kernels import make_record_type
from sawlog.kernels.crc32c import crc32c, crc32c_extend
from sawlog.kernels.jit import inlined, kernel
from sawlog.kernels.memory import copy_bytes, load_u32
from sawlog.kernels.numbers import _EIGHT, _FOUR, _HALF, _LOW7, _ONE, _SEVEN, _SIXTEEN, _THREE, _U32, _ZERO
from sawlog.kernels.protobuf import read_varint
from sawlog.kernels.signature import Array, Bool, Bytes, Int64, Int64s, OutBytes, OutInt64s, UInt64
from sawlog.kernels.xxh32 import xxh32
from sawlog.kernels.xxh64 import xxh3, xxh64
from sawlog.leveldb.log.kernels import mask_crc
from sawlog.leveldb.log.layout import Compression
from sawlog.leveldb.table import layout
from sawlog.leveldb.table.layout import Checksum, Role, TableDamageKind

HANDLE = make_record_type(("offset", np.uint64), ("stored", np.uint64))
"""A block: where it begins in the file, and its bytes without the trailer."""

# How a block is read.
AS_IS = 0
SNAPPY = 1
LZ4 = 2
OTHERWISE = 3
"""By a library."""

SPAN = make_record_type("offset", "length", "role", "number")
"""File offset and bytes, trailers included; a `Role`; the number of the data block in the index, or -1."""


class Rule(NamedTuple):
    """The rule by which the blocks of a table are checked.

    Attributes:
        checksum: The `Checksum`.
        context: What makes checksums depend on the place of their block; 0 where they do not.
        limit: Where the blocks of the file end.
        verify: Whether checksums are verified.
        codecs: uint8[256], how the blocks of each compression are read: AS_IS, SNAPPY, LZ4 or OTHERWISE.
        longest: Bytes that a block may expand to.
    """

    checksum: Int64
    context: UInt64
    limit: UInt64
    verify: Bool
    codecs: Bytes
    longest: UInt64


_TRAILER = np.uint64(layout.TRAILER_SIZE)
_RESTART = np.uint64(layout.RESTART_SIZE)
_BUCKETS = np.uint64(layout.BUCKETS_SIZE)
_COUNT = np.uint64(~layout.BLOCK_FLAGS & 0xFFFFFFFF)
_HASH_INDEX = np.uint64(layout.HASH_INDEX)
_VALUES_APART = np.uint64(layout.VALUES_APART)
_NOT_PLAIN = np.uint64(layout.VALUES_APART | layout.UNKNOWN_FLAG)
_HASH_LARGEST = np.uint64(layout.HASH_INDEX_LARGEST)
_FACTOR = np.uint64(layout.LAST_BYTE_FACTOR)
NOWHERE = np.uint64((1 << 64) - 1)
"""Where entries end that do not fit into their block."""
_SHORT_LENGTHS = np.uint64(0x00808080)
_SHORT_KEY_LENGTHS = np.uint64(0x80808080)
_LONG_VALUE = np.uint64(0x00800000)
_TOP_BYTE = np.uint64(24)

_CRC = int(Checksum.CRC32C)
_XXH32 = int(Checksum.XXH32)
_XXH64 = int(Checksum.XXH64)
_XXH3 = int(Checksum.XXH3)
_MISMATCH = int(TableDamageKind.CHECKSUM_MISMATCH)
_BAD_HANDLE = int(TableDamageKind.BAD_HANDLE)
_DATA = int(Role.DATA)
_VALUES = int(Role.VALUES)
_HEADER = int(Role.HEADER)
_GAP = int(Role.GAP)
_OVERLAP = int(Role.OVERLAP)
_LAST_COMPRESSION = np.uint64(max(Compression))


@inlined
def _compute_checksum(window: Any, start: Any, length: Any, kind: Any) -> Any:
    """Return the stored checksum of `window[start : start + length]`, of which the last byte is a block's type."""
    if kind == _CRC:
        return mask_crc(crc32c(window, start, length))
    if kind == _XXH32:
        return xxh32(window, start, length, _ZERO)
    if kind == _XXH64:
        return xxh64(window, start, length) & _U32
    if kind == _XXH3:
        last = np.uint64(window[start + length - _ONE])
        return (xxh3(window, start, length - _ONE) ^ last * _FACTOR) & _U32
    return _ZERO


@inlined
def _compute_modifier(context: Any, offset: Any) -> Any:
    """Return the number that a checksum is combined with because of the file offset of its block."""
    return (context ^ (offset + (offset >> _HALF))) & _U32 if context != _ZERO else _ZERO


@inlined
def judge_block(window: Any, base: Any, offset: Any, size: Any, rule: Any) -> Any:
    """Judge a block by its place, length and checksum. See `judge_stored`."""
    if offset > rule.limit or rule.limit - offset < _TRAILER or size > rule.limit - offset - _TRAILER:
        return _BAD_HANDLE, size, rule.limit, 0
    start = offset - base
    compression = np.int64(window[start + size])
    if rule.verify and rule.checksum != 0:
        expected = _compute_checksum(window, start, size + _ONE, rule.checksum)
        expected = (expected + _compute_modifier(rule.context, offset)) & _U32
        stored = load_u32(window, start + size + _ONE)
        if stored != expected:
            return _MISMATCH, stored, expected, compression
    return 0, _ZERO, _ZERO, compression


@kernel
def judge_stored(window: Bytes, offset: UInt64, size: UInt64, rule: Rule) -> tuple[Int64, UInt64, UInt64, Int64]:
    """Judge a block by its place, length and checksum; what is inside of it is judged where it is read.

    Args:
        window: uint8, the file from the block on, up to its end if it ends in the file.
        offset: uint64, where the block begins in the file.
        size: uint64, its bytes without the trailer.
        rule: See `Rule`.

    Returns:
        What is wrong with it (a `TableDamageKind`, or 0), two numbers that explain it, and how it is compressed.
    """
    verdict: tuple[Any, Any, Any, Any] = judge_block(window, offset, offset, size, rule)
    return verdict


@inlined
def find_entries_end(data: Any, start: Any, end: Any) -> Any:
    """Return the end of the entries of an expanded block, and its restart points; `NOWHERE` if they do not fit.

    That is so, too, where their values are apart from them, or a flag is unknown: the number is that with its flags.
    """
    if end - start < _RESTART:
        return NOWHERE, _ZERO
    stop = end - _RESTART
    packed = load_u32(data, stop)
    if packed & _NOT_PLAIN != _ZERO or (packed & _HASH_INDEX != _ZERO and end - start > _HASH_LARGEST):
        return NOWHERE, packed
    count = packed & _COUNT
    stop = _without_buckets(data, start, stop, packed)
    if stop == NOWHERE or count > (stop - start) // _RESTART:
        return NOWHERE, packed
    return stop - count * _RESTART, count


@inlined
def _without_buckets(data: Any, start: Any, stop: Any, packed: Any) -> Any:
    """Return the offset of a hash index that ends at `stop`, if there is one; `NOWHERE` if it does not fit."""
    if packed & _HASH_INDEX == _ZERO:
        return stop
    if stop - start < _BUCKETS:
        return NOWHERE
    buckets = np.uint64(data[stop - _BUCKETS]) | np.uint64(data[stop - _ONE]) << _EIGHT
    if stop - start - _BUCKETS < buckets:
        return NOWHERE
    return stop - _BUCKETS - buckets


@kernel
def has_separate_values(data: Bytes) -> Bool:
    """Return whether the values of an expanded block are apart from its keys."""
    end = np.uint64(len(data))
    return end >= _RESTART and load_u32(data, end - _RESTART) & _NOT_PLAIN == _VALUES_APART


@kernel
def join_values(data: Bytes, out: OutBytes) -> UInt64:
    """Lay out a block whose values are apart from its keys as one where they are not, without restart points.

    Args:
        data: uint8, an expanded block.
        out: uint8, zeros, four bytes longer; set.

    Returns:
        The bytes of the new block; 0 where the old one is not whole.
    """
    end = np.uint64(len(data))
    if end < _RESTART + _RESTART:
        return _ZERO
    packed = load_u32(data, end - _RESTART)
    stop = _without_buckets(data, _ZERO, end - _RESTART - _RESTART, packed)
    count = packed & _COUNT
    values = load_u32(data, end - _RESTART - _RESTART)
    if stop == NOWHERE or count > stop // _RESTART or values > stop - count * _RESTART:
        return _ZERO
    restarts = stop - count * _RESTART
    pos, value, out_pos, restart = _ZERO, values, _ZERO, _ZERO
    while pos < values:
        begin = pos
        _, unshared, length, pos = read_entry_head(data, pos, values)
        if pos == _ZERO:
            return _ZERO
        head = pos - begin
        if restart < count and load_u32(data, restarts + restart * _RESTART) == begin:
            offset, pos = read_varint(data, pos, values)
            if pos == _ZERO or offset != value - values:
                return _ZERO
            restart += _ONE
        if unshared > values - pos or length > restarts - value:
            return _ZERO
        copy_bytes(out, out_pos, data, begin, head)
        copy_bytes(out, out_pos + head, data, pos, unshared)
        copy_bytes(out, out_pos + head + unshared, data, value, length)
        out_pos += head + unshared + length
        pos += unshared
        value += length
    return out_pos + _RESTART


@inlined
def read_entry_head(data: Any, pos: Any, end: Any) -> Any:
    """Return the three numbers that begin an entry, and the position after them, which is 0 where they are none."""
    if end - pos >= _FOUR:
        word = load_u32(data, pos)
        unshared = word >> _EIGHT & _LOW7
        length = word >> _SIXTEEN & _LOW7
        if word & _SHORT_LENGTHS == _ZERO:
            return word & _LOW7, unshared, length, pos + _THREE
        if word & _SHORT_KEY_LENGTHS == _LONG_VALUE:
            return word & _LOW7, unshared, length | (word >> _TOP_BYTE) << _SEVEN, pos + _FOUR
    shared, unshared, pos = _read_key_head(data, pos, end)
    if pos == _ZERO:
        return _ZERO, _ZERO, _ZERO, _ZERO
    length, pos = read_varint(data, pos, end)
    return shared, unshared, length, pos


@inlined
def _read_key_head(data: Any, pos: Any, end: Any) -> Any:
    """Return the first two of them."""
    shared, pos = read_varint(data, pos, end)
    if pos == _ZERO:
        return _ZERO, _ZERO, _ZERO
    unshared, pos = read_varint(data, pos, end)
    return shared, unshared, pos


SEPARATOR = make_record_type(("place", np.uint64), ("shared", np.uint64), ("length", np.uint64))
"""A key of an index: where what it does not share with the key before begins, how much it shares, and its bytes."""


@kernel
def read_index(
    data: Bytes,
    delta: Bool,
    first_key: Bool,
    handles: Annotated[Any, Array(HANDLE, writable=True)],
    separators: Annotated[Any, Array(SEPARATOR, writable=True)],
) -> Int64:
    """Read a block of an index: its keys, and the places of blocks that its values are.

    Args:
        data: uint8, an expanded block.
        delta: Whether values between restart points hold but the difference in size to the one before.
        first_key: Whether values go on with the first key of their block.
        handles: Of type HANDLE, a third as many as bytes; set.
        separators: Of type SEPARATOR, likewise.

    Returns:
        How many there are; -1 where the block is none.
    """
    end, _ = find_entries_end(data, _ZERO, np.uint64(len(data)))
    if end == NOWHERE:
        return -1
    pos = _ZERO
    count = 0
    last = _ZERO
    while pos < end:
        length = _ZERO
        if delta:
            shared, unshared, pos = _read_key_head(data, pos, end)
        else:
            shared, unshared, length, pos = read_entry_head(data, pos, end)
        if pos == _ZERO or shared > last or unshared > end - pos or length > end - pos - unshared:
            return -1
        last = shared + unshared
        separators[count].place = pos
        separators[count].shared = shared
        separators[count].length = last
        pos += unshared
        stop = end if delta else pos + length
        first, pos = read_varint(data, pos, stop)
        if pos == _ZERO:
            return -1
        if delta and shared != _ZERO:
            # A number with its sign in the lowest bit.
            change = first >> _ONE ^ (_ZERO - (first & _ONE))
            handles[count].offset = handles[count - 1].offset + handles[count - 1].stored + _TRAILER
            handles[count].stored = handles[count - 1].stored + change
        else:
            size, pos = read_varint(data, pos, stop)
            if pos == _ZERO:
                return -1
            handles[count].offset = first
            handles[count].stored = size
        if not delta:
            # A handle may be followed by the block's first key, or properties.
            pos = stop
        elif first_key:
            key_length, pos = read_varint(data, pos, end)
            if pos == _ZERO or key_length > end - pos:
                return -1
            pos += key_length
        count += 1
    return count


class Index(NamedTuple):
    """The separators of an index, as they are stored.

    Attributes:
        data: uint8, the blocks of the index.
        separators: Of type SEPARATOR.
        trailer: uint64, bytes that end separators of at least that length and are no part of the user key.
        stamp: uint64, bytes that end user keys and do not count.
    """

    data: Bytes
    separators: Annotated[Any, Array(SEPARATOR)]
    trailer: UInt64
    stamp: UInt64


@inlined
def _compute_user_length(length: Any, index: Any) -> Any:
    """Return the bytes of a separator of some length that count."""
    if length >= index.trailer:
        length -= index.trailer
    return length - min(length, index.stamp)


@kernel
def ascend(index: Index, last_key: OutBytes) -> Bool:
    """Return whether no separator is below the previous one.

    Args:
        index: See `Index`.
        last_key: uint8, room for the longest.
    """
    data = index.data
    before = _ZERO
    for i in range(len(index.separators)):
        separator = index.separators[i]
        length = _compute_user_length(separator.length, index)
        pos = separator.shared
        while pos < before and pos < length and last_key[pos] == data[separator.place + (pos - separator.shared)]:
            pos += _ONE
        if pos < before and (pos >= length or last_key[pos] > data[separator.place + (pos - separator.shared)]):
            return False
        copy_bytes(last_key, separator.shared, data, separator.place, separator.length - separator.shared)
        before = length
    return True


@kernel
def expand_separators(
    index: Index, begin: Int64, first: Int64, last_key: OutBytes, keys: OutBytes, ends: OutInt64s
) -> None:
    """Expand separators, one after the other.

    Args:
        index: See `Index`.
        begin: Which one to begin with; it shares nothing, or `last_key` has the one before.
        first: The first that is wanted.
        last_key: uint8, room for the longest; set to the last one.
        keys: uint8, set to those that are wanted, without what does not count, back to back.
        ends: int64, one more than are wanted; set to where they end.
    """
    used = _ZERO
    for i in range(begin, first + len(ends) - 1):
        separator = index.separators[i]
        copy_bytes(last_key, separator.shared, index.data, separator.place, separator.length - separator.shared)
        if i >= first:
            length = _compute_user_length(separator.length, index)
            copy_bytes(keys, used, last_key, _ZERO, length)
            used += length
            ends[i - first + 1] = np.int64(used)


@inlined
def _take_key(data: Any, pos: Any, end: Any, keys: Any, before: Any, used: Any) -> Any:
    """Read an entry up to its value, and copy its key to `used`, after the key before it, which is at `before`.

    Returns:
        Where the key ends, `NOWHERE` if `keys` is too small; how much of it is the one before; where the value begins,
        0 where the entry does not end in the block; and the value's bytes.
    """
    shared, unshared, length, pos = read_entry_head(data, pos, end)
    if pos == _ZERO or shared > used - before or unshared > end - pos or length > end - pos - unshared:
        return used, shared, _ZERO, length
    if shared + unshared > np.uint64(len(keys)) - used:
        return NOWHERE, shared, pos, length
    copy_bytes(keys, used, keys, before, shared)
    copy_bytes(keys, used + shared, data, pos, unshared)
    return used + shared + unshared, shared, pos + unshared, length


ENTRY = make_record_type("shared", "key", "value", "end")
"""An entry: how much of the key before it begins its own, where the rest begins, where its value does, and ends."""


@kernel
def locate_entries(
    data: Bytes, begin: UInt64, last: UInt64, entries: Annotated[Any, Array(ENTRY, writable=True)]
) -> Int64:
    """Locate the entries of an expanded block, from a byte on, up to the first that does not end in it.

    Args:
        data: uint8, the block; it has no entries where it is none.
        begin: uint64, where an entry begins.
        last: uint64, bytes of the key before it.
        entries: Of type ENTRY; set.

    Returns:
        How many there are: where it is all that there is room for, others may follow.
    """
    end, _ = find_entries_end(data, _ZERO, np.uint64(len(data)))
    pos, count = begin, 0
    while end != NOWHERE and pos < end and count < len(entries):
        shared, unshared, length, pos = read_entry_head(data, pos, end)
        if pos == _ZERO or shared > last or unshared > end - pos or length > end - pos - unshared:
            break
        last = shared + unshared
        entries[count].shared = np.int64(shared)
        entries[count].key = np.int64(pos)
        entries[count].value = np.int64(pos + unshared)
        pos += unshared + length
        entries[count].end = np.int64(pos)
        count += 1
    return count


FIELDS = make_record_type("key", "key_length", "value", "length")
"""An entry: its key among others, and its value in the block; where they begin, and their bytes."""


@kernel
def split_entries(
    data: Bytes, end: UInt64, fields: Annotated[Any, Array(FIELDS, writable=True)], keys: OutBytes
) -> Int64:
    """Take a block apart.

    Args:
        data: uint8, an expanded block.
        end: uint64, where its entries end.
        fields: Of type FIELDS, set.
        keys: uint8, set to the keys, back to back.

    Returns:
        How many entries there are; -1 where one does not end in the block, -2 where `keys` is too small.
    """
    pos = _ZERO
    count = 0
    used = _ZERO
    before = _ZERO
    while pos < end:
        key_end, _, pos, length = _take_key(data, pos, end, keys, before, used)
        if pos == _ZERO:
            return -1
        if key_end == NOWHERE:
            return -2
        fields[count].key = np.int64(used)
        fields[count].key_length = np.int64(key_end - used)
        fields[count].value = np.int64(pos)
        fields[count].length = np.int64(length)
        before = used
        used = key_end
        pos += length
        count += 1
    return count


@kernel
def find_block_end(data: Bytes, end: UInt64) -> UInt64:
    """Return the offset of the trailer of the block that `data` begins with, by its CRC-32C, taken byte by byte.

    Args:
        data: uint8.
        end: uint64, where to give up.

    Returns:
        uint64; `end` if there is no such place.
    """
    crc = _ZERO
    pos = _ZERO
    while pos < end and end - pos >= _TRAILER:
        crc = crc32c_extend(crc, data, pos, _ONE)
        # The byte taken last would be the compression.
        if data[pos] <= _LAST_COMPRESSION and load_u32(data, pos + _ONE) == mask_crc(crc):
            return pos
        pos += _ONE
    return end


@kernel
def compute_footer_checksum(data: Bytes, checksum: Int64, context: UInt64, place: UInt64) -> UInt64:
    """Return the stored form of the checksum of a footer that begins at file offset `place`."""
    return (_compute_checksum(data, _ZERO, np.uint64(len(data)), checksum) + _compute_modifier(context, place)) & _U32


@kernel
def locate_entries_end(data: Bytes) -> UInt64:
    """Return the end of the entries of an expanded block; 0 if it is none."""
    end, _ = find_entries_end(data, _ZERO, np.uint64(len(data)))
    return _ZERO if end == NOWHERE else end


@kernel
def lay_spans(
    blocks: Annotated[Any, Array(SPAN)],
    handles: Annotated[Any, Array(HANDLE)],
    order: Int64s,
    limit: Int64,
    footer: Int64,
    spans: Annotated[Any, Array(SPAN, writable=True)],
) -> Int64:
    """Lay out a table as spans without overlap: each without what is in those before; gaps and the footer with them.

    Args:
        blocks: Blocks that hold no data, of type SPAN; neither offsets nor lengths without trailers are beyond the
            limit.
        handles: Data blocks, of type HANDLE.
        order: int64, the numbers of all of them, `blocks` first, in the order of their offsets.
        limit: int64, where blocks end.
        footer: int64, bytes of the footer.
        spans: Of type SPAN, two more than twice as many; set.

    Returns:
        How many spans there are.
    """
    count = 0
    covered = np.int64(0)
    for i in range(len(order)):
        number = order[i] - len(blocks)
        if number < 0:
            block = blocks[order[i]]
            number, offset, length, role = np.int64(-1), block.offset, block.length, block.role
        else:
            # What reaches beyond the file is cut off here, and found out by its handle.
            handle = handles[number]
            offset, role = np.int64(min(handle.offset, np.uint64(limit))), np.int64(_DATA)
            length = np.int64(min(handle.stored, np.uint64(limit)) + _TRAILER)
        end = offset + min(length, limit - offset)
        if role <= _VALUES and (offset < covered or (role == _DATA and length > limit - offset)):
            role = np.int64(_OVERLAP)
        start = max(offset, covered)
        if start > covered:
            _put_span(spans, count, covered, start - covered, _GAP, -1)
            count += 1
        if start < end or role == _OVERLAP:
            _put_span(spans, count, start, max(end - start, 0), role, number)
            count += 1
        covered = max(covered, end)
    if covered < limit:
        _put_span(spans, count, covered, limit - covered, _GAP, -1)
        count += 1
    _put_span(spans, count, limit, footer, _HEADER, -1)
    return count + 1


@inlined
def _put_span(spans: Any, count: Any, offset: Any, length: Any, role: Any, number: Any) -> None:
    spans[count].offset = offset
    spans[count].length = length
    spans[count].role = role
    spans[count].number = number


@kernel
def find_runs(spans: Annotated[Any, Array(SPAN)], keys: Int64s, most: Int64, key_room: Int64, ends: OutInt64s) -> Int64:
    """Find the spans that are read together: data blocks, one after the other, and each of the others.

    Args:
        spans: Of type SPAN, in order.
        keys: int64, bytes of the separators up to each; empty if these are not needed.
        most: int64, bytes of a run, unless one span is larger.
        key_room: int64, bytes of the separators of a run, likewise.
        ends: int64, as many as spans; set: the number of the span after each run.

    Returns:
        How many runs there are.
    """
    count, first = 0, 0
    for i in range(1, len(spans) + 1):
        if i < len(spans):
            last, span, begin = spans[i - 1], spans[i], spans[first]
            joined = last.role == _DATA and span.role == _DATA and span.number == last.number + 1
            joined = joined and span.offset == last.offset + last.length
            joined = joined and span.offset + span.length - begin.offset <= most
            if joined and (len(keys) == 0 or keys[span.number] - keys[begin.number] <= key_room):
                continue
        ends[count] = i
        count += 1
        first = i
    return count

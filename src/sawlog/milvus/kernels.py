"""Array cells in protobuf, dictionary pages of Parquet, and the hash of Milvus' Bloom filters."""

from __future__ import annotations

from typing import Annotated, Any, NamedTuple

import numpy as np

from sawlog.kernels.crc32c import crc32c_extend
from sawlog.kernels.jit import inlined, kernel
from sawlog.kernels.memory import copy_bytes, high_product, load_u32, load_u64, rotate_u64, store_u32
from sawlog.kernels.numbers import _EIGHT, _FIVE, _FOUR, _ONE, _SEVEN, _SIXTEEN, _THREE, _ZERO
from sawlog.kernels.protobuf import measure_varint, of_group, put_varint, read_field, read_varint
from sawlog.kernels.signature import WRITABLE, Bool, Bytes, Int64, Int64s, OutInt64s, OutUInt64s, UInt64, UInt64s

# How the elements of an array cell are stored.
VARINT = 0
FIXED32 = 1
FIXED64 = 2
BYTES = 3


class Messages(NamedTuple):
    """Messages: int64 offsets, checked by the caller to ascend within the data, and uint8 data.

    Message i is `data[offsets[i] : offsets[i + 1]]`.
    """

    offsets: OutInt64s
    data: Bytes


class Elements(NamedTuple):
    """Elements of all cells, one after the other: those of numeric shapes, or strings.

    Attributes:
        numbers: uint64; bits of the numbers.
        ends: int64; where each string ends in `data`, after a first 0.
        data: uint8; the bytes of strings.
    """

    numbers: UInt64s
    ends: Int64s
    data: Bytes


OK = -1
"""No cell was wrong; otherwise kernels answer with the first row that is."""

_WIRE_LENGTH = np.uint64(2)
_WIRES = np.array([0, 5, 1, _WIRE_LENGTH], np.uint64)
"""How single elements are stored, by `VARINT` and the others."""


@inlined
def _read_element(data: Any, pos: Any, end: Any, shape: Any) -> Any:
    """Return one of several numbers that are packed, and the position after it, which is 0 for none."""
    if shape == VARINT:
        return read_varint(data, pos, end)
    width = _FOUR if shape == FIXED32 else _EIGHT
    if end - pos < width:
        return _ZERO, _ZERO
    return (load_u32(data, pos) if shape == FIXED32 else load_u64(data, pos)), pos + width


@inlined
def _read_elements(data: Any, pos: Any, end: Any, shape: Any, fill: Any, count: Any, size: Any, elements: Any) -> Any:
    """Return the repeated field 1 of the message `data[pos:end]`, packed or not.

    Returns:
        Elements and bytes of strings so far, and 1 when the message is broken.
    """
    while pos < end:
        key, value_pos, pos = read_field(data, pos, end)
        if pos == _ZERO or of_group(key):
            return count, size, 1
        if key >> _THREE != _ONE:
            continue
        wire = key & _SEVEN
        if wire not in (_WIRE_LENGTH, _WIRES[shape]):
            return count, size, 1
        if shape == BYTES:
            if fill:
                copy_bytes(elements.data, np.uint64(size), data, value_pos, pos - value_pos)
                elements.ends[count + 1] = size + np.int64(pos - value_pos)
            size += np.int64(pos - value_pos)
            count += 1
            continue
        more = wire != _WIRE_LENGTH or value_pos < pos
        while more:
            if wire == _ZERO:
                value, value_pos = value_pos, pos
            else:
                value, value_pos = _read_element(data, value_pos, pos, shape)
            if value_pos == _ZERO:
                return count, size, 1
            if fill:
                elements.numbers[count] = value
            count += 1
            more = value_pos < pos
    return count, size, 0


@kernel
def decode_cells(
    messages: Messages, tag: Int64, shape: Int64, fill: Bool, cells: OutInt64s, elements: Annotated[Elements, WRITABLE]
) -> tuple[Int64, Int64, Int64]:
    """Decode array cells, protobuf messages.

    Called twice, first with `fill` off to learn how much room is needed, then with it on.

    Args:
        messages: `Messages`, the cells.
        tag: Field of `ScalarField` that must hold the elements.
        shape: How elements are stored.
        fill: Whether elements are written down.
        cells: int64, one more than messages; receives how many elements lie before each cell, and in all.
        elements: `Elements`; receives them.

    Returns:
        Elements, bytes of strings, and the first broken row or `OK`.
    """
    data = messages.data
    count = 0
    size = 0
    for row in range(len(cells) - 1):
        cells[row] = count
        pos = np.uint64(messages.offsets[row])
        end = np.uint64(messages.offsets[row + 1])
        while pos < end:
            key, start, pos = read_field(data, pos, end)
            if key != np.uint64(tag) << _THREE | _WIRE_LENGTH:
                return count, size, row
            count, size, broken = _read_elements(data, start, pos, shape, fill, count, size, elements)
            if broken:
                return count, size, row
    cells[len(cells) - 1] = count
    return count, size, OK


_SHIFT = np.uint64(32)

_C1 = np.uint64(0x87C37B91114253D5)
_C2 = np.uint64(0x4CF5AD432745937F)
_F1 = np.uint64(0xFF51AFD7ED558CCD)
_F2 = np.uint64(0xC4CEB9FE1A85EC53)
_N1 = np.uint64(0x52DCE729)
_N2 = np.uint64(0x38495AB5)
_R33 = np.uint64(33)
_MOST = np.uint64(0xFFFFFFFFFFFFFFFF)


@inlined
def _finish(value: Any) -> Any:
    value = (value ^ value >> _R33) * _F1
    value = (value ^ value >> _R33) * _F2
    return value ^ value >> _R33


@inlined
def _load_few(data: Any, start: Any, count: Any) -> Any:
    """Return the number of up to seven bytes; some of them are loaded twice."""
    if count == _ZERO:
        return _ZERO
    if count >= _FOUR:
        last = count - _FOUR
        return load_u32(data, start) | load_u32(data, start + last) << _EIGHT * last
    middle = count >> _ONE
    last = count - _ONE
    ends = np.uint64(data[start]) | np.uint64(data[start + last]) << _EIGHT * last
    return ends | np.uint64(data[start + middle]) << _EIGHT * middle


@inlined
def _hash_murmur(data: Any, start: Any, length: Any, appended: Any) -> Any:
    """Compute 128 bits of MurmurHash3 (x64, seed 0) of a value, with a byte 1 after it if `appended`."""
    h1 = _ZERO
    two = _ZERO
    total = length + np.uint64(appended)
    blocks = total // _SIXTEEN
    for block in range(blocks + _ONE):
        k1 = _ZERO
        k2 = _ZERO
        base = np.uint64(block) * _SIXTEEN
        if base + _SIXTEEN <= length:
            k1 = load_u64(data, start + base)
            k2 = load_u64(data, start + base + _EIGHT)
        else:
            remaining = length - min(base, length)
            if remaining >= _EIGHT:
                k1 = load_u64(data, start + base)
                k2 = _load_few(data, start + base + _EIGHT, remaining - _EIGHT)
            else:
                k1 = _load_few(data, start + base, remaining)
            if base + remaining < total:
                if remaining < _EIGHT:
                    k1 |= _ONE << _EIGHT * remaining
                else:
                    k2 |= _ONE << _EIGHT * (remaining - _EIGHT)
        if block == blocks:
            two ^= rotate_u64(k2 * _C2, 33) * _C1
            h1 ^= rotate_u64(k1 * _C1, 31) * _C2
        else:
            h1 ^= rotate_u64(k1 * _C1, 31) * _C2
            h1 = (rotate_u64(h1, 27) + two) * _FIVE + _N1
            two ^= rotate_u64(k2 * _C2, 33) * _C1
            two = (rotate_u64(two, 31) + h1) * _FIVE + _N2
    h1 ^= total
    two ^= total
    h1 += two
    two += h1
    h1 = _finish(h1)
    two = _finish(two)
    h1 += two
    return h1, two + h1


@inlined
def compute_remainder(value: Any, divisor: Any, reciprocal: Any) -> Any:
    """Return `value % divisor` without a division; `reciprocal` is `(2**64 - 1) // divisor`."""
    remainder = value - high_product(value, reciprocal) * divisor  # the quotient is right, or too small by one
    return remainder - divisor if remainder >= divisor else remainder


@inlined
def _meet(words: Any, add: Any, place: Any) -> Any:
    """Add a bit to a filter, or look whether it is there."""
    bit = _ONE << (place & np.uint64(63))
    word = place >> np.uint64(6)
    if add:
        words[word] |= bit
    return np.int64(words[word] & bit != _ZERO)


@kernel
def apply_bloom(
    data: Bytes, offsets: Int64s, rows: Int64, bits: UInt64, hashes: UInt64, words: OutUInt64s, add: Bool
) -> Int64:
    """Add values to a filter of bits-and-blooms, or count those that it may hold.

    Args:
        data: The bytes of all values.
        offsets: int64; value i is `data[offsets[i] : offsets[i + 1]]`.
        rows: How many values.
        bits: uint64; size of the filter, not 0.
        hashes: uint64; bits per value.
        words: uint64; the filter, bit i in word `i // 64`.
        add: Whether to add.
    """
    hits = 0
    reciprocal = _MOST // bits
    for row in range(rows):
        start = np.uint64(offsets[row])
        length = np.uint64(offsets[row + 1]) - start
        h0, h1 = _hash_murmur(data, start, length, 0)
        h2, h3 = _hash_murmur(data, start, length, 1)
        hit = 1
        for i in range(0, hashes, 2):
            index = np.uint64(i)
            hit &= _meet(words, add, compute_remainder(h0 + index * h2, bits, reciprocal))
            index += _ONE
            if index < hashes:
                hit &= _meet(words, add, compute_remainder(h1 + index * h3, bits, reciprocal))
            h2, h3 = h3, h2
        hits += hit
    return hits


@kernel
def make_cells(
    cells: Int64s, tag: Int64, shape: Int64, elements: Elements, fill: Bool, messages: Annotated[Messages, WRITABLE]
) -> UInt64:
    """Encode array cells; the reverse of `decode_cells`, and like it called twice.

    Args:
        cells: int64; elements of row i are those from `cells[i]` to `cells[i + 1]`.
        tag: Field of `ScalarField` for the elements.
        shape: How elements are stored.
        elements: `Elements`.
        fill: Whether bytes are written.
        messages: `Messages`; receives them.

    Returns:
        Bytes of all cells.
    """
    numbers = elements.numbers
    starts = elements.ends
    data = elements.data
    offsets = messages.offsets
    out = messages.data
    rows = len(cells) - 1
    pos = _ZERO
    for row in range(rows):
        offsets[row] = pos
        body = _ZERO
        for i in range(cells[row], cells[row + 1]):
            if shape == VARINT:
                body += measure_varint(numbers[i])
            elif shape == FIXED32:
                body += _FOUR
            elif shape == FIXED64:
                body += _EIGHT
            else:
                length = np.uint64(starts[i + 1] - starts[i])
                body += _ONE + measure_varint(length) + length
        inner = body
        if shape != BYTES and body > _ZERO:
            inner = _ONE + measure_varint(body) + body
        if not fill:
            pos += _ONE + measure_varint(inner) + inner
            continue
        out[pos] = np.uint64(tag) << _THREE | _WIRE_LENGTH
        pos = put_varint(out, pos + _ONE, inner)
        if shape != BYTES and body > _ZERO:
            out[pos] = _ONE << _THREE | _WIRE_LENGTH
            pos = put_varint(out, pos + _ONE, body)
        for i in range(cells[row], cells[row + 1]):
            if shape == VARINT:
                pos = put_varint(out, pos, numbers[i])
            elif shape == FIXED32:
                store_u32(out, pos, numbers[i])
                pos += _FOUR
            elif shape == FIXED64:
                store_u32(out, pos, numbers[i] & np.uint64(0xFFFFFFFF))
                store_u32(out, pos + _FOUR, numbers[i] >> _SHIFT)
                pos += _EIGHT
            else:
                length = np.uint64(starts[i + 1] - starts[i])
                out[pos] = _ONE << _THREE | _WIRE_LENGTH
                pos = put_varint(out, pos + _ONE, length)
                copy_bytes(out, pos, data, np.uint64(starts[i]), length)
                pos += length
    offsets[rows] = pos
    return pos


@kernel
def find_longest_value(data: Bytes) -> Int64:
    """Return the length of the longest of the byte arrays in `data`, each after its length.

    -1 when they do not fit into it.
    """
    pos = _ZERO
    end = np.uint64(len(data))
    longest = _ZERO
    while pos < end:
        if end - pos < _FOUR:
            return np.int64(-1)
        length = load_u32(data, pos)
        pos += _FOUR
        if end - pos < length:
            return np.int64(-1)
        longest = max(longest, length)
        pos += length
    return np.int64(longest)


@kernel
def extend_crc32c(crc: UInt64, data: Bytes) -> UInt64:
    """Continue a CRC-32C, which is 0 at first, over the bytes of a record of etcd's write-ahead log."""
    return crc32c_extend(crc, data, _ZERO, np.uint64(len(data)))

"""Decoding the coins, blocks and transactions of Bitcoin Core that hold nothing out of the ordinary.

What else there is, and whatever is wrong, is left to `bitcoin`, which says so in words.
"""

from __future__ import annotations

from typing import Annotated, Any, NamedTuple

import numpy as np

from sawlog.kernels.jit import always_inlined, inlined, kernel
from sawlog.kernels.memory import copy_bytes, load_u32
from sawlog.kernels.numbers import _FOUR, _LOW7, _NINE, _ONE, _SEVEN, _TEN, _ZERO
from sawlog.kernels.signature import Array, Bytes, OutBytes, OutInt32s, OutUInt32s
from sawlog.kernels.text import make_text, put_reversed_hex
from sawlog.leveldb.applications import bitcoin_layout as layout
from sawlog.leveldb.applications.bitcoin_points import put_other_coordinate
from sawlog.leveldb.records.kernels import Strings

BLOCK_NUMBERS = (
    "height",
    "status",
    "transactions",
    "file",
    "offset",
    "undo_offset",
    "transaction_offset",
    "version",
    "time",
    "bits",
    "nonce",
)
"""Columns of numbers, in the order of the kernel's rows of them."""
_HEIGHT, _STATUS, _TRANSACTIONS, _FILE, _OFFSET, _UNDO_OFFSET, _PLACE, _VERSION, _TIME, _BITS, _NONCE = range(
    len(BLOCK_NUMBERS)
)
COIN_NUMBERS = ("output", "height", "coinbase", "amount", "script_type")
_OUTPUT, _COIN_HEIGHT, _COINBASE, _AMOUNT, _SCRIPT_TYPE = range(len(COIN_NUMBERS))

DOUBTFUL, OF_BLOCK, OF_TRANSACTION, OF_COIN = range(4)
"""Kinds of entries: `DOUBTFUL` are not decoded."""
MOST_VALUE = layout.MOST_SCRIPT + 4 * layout.MAX_VARINT_BYTES
"""Bytes of the longest value that is decoded."""
DIGITS = 2 * layout.HASH_SIZE
"""Hexadecimal digits of a hash."""

_MORE = np.uint64(128)
_FULL = np.uint64(layout.VARINT_BITS - 7)
"""A number with more bits has no room for seven more."""
_LAST = np.uint64(layout.VARINT_BITS)
_HASH = np.uint64(layout.HASH_SIZE)
_HEADER = np.uint64(layout.HEADER.size)
_DIGITS = np.uint64(DIGITS)
_BLOCK_KEY, _TRANSACTION_KEY, _COIN_KEY = layout.BLOCK[0], layout.TRANSACTION[0], layout.COIN[0]
_HAVE_DATA, _HAVE_UNDO = np.uint64(layout.HAVE_DATA), np.uint64(layout.HAVE_UNDO)
_SPECIAL = np.uint64(layout.SPECIAL)
_KEY_SIZE = np.uint64(layout.PUBLIC_KEY_SIZE)
_SCRIPT_HASH = np.uint64(layout.SCRIPT_HASH_SIZE)
_MOST_SCRIPT = np.uint64(layout.MOST_SCRIPT)
_LONGEST = np.uint64(MOST_VALUE)
_P2PKH, _P2SH, _P2PK, _OTHER = range(len(layout.SCRIPT_TYPES))
_FIXED_TRANSACTION = (1 << _FILE) | (1 << _OFFSET) | (1 << _PLACE)
_FIXED_BLOCK = (1 << _HEIGHT) | (1 << _STATUS) | (1 << _TRANSACTIONS) | (1 << _VERSION) | (1 << _TIME)
_FIXED_BLOCK |= (1 << _BITS) | (1 << _NONCE)
SCRIPT_ROOM = sum(map(len, layout.UNCOMPRESSED_PARTS)) + layout.PUBLIC_KEY_SIZE
"""Bytes that a script has more than what is stored of it, at most."""


_P2PKH_BEFORE, _P2PKH_AFTER = map(make_text, layout.P2PKH_PARTS)
_P2SH_BEFORE, _P2SH_AFTER = map(make_text, layout.P2SH_PARTS)
_P2PK_BEFORE, _P2PK_AFTER = map(make_text, layout.P2PK_PARTS)
_BETWEEN = make_text(b"")
_UNCOMPRESSED_BEFORE, _UNCOMPRESSED_AFTER = map(make_text, layout.UNCOMPRESSED_PARTS)


class Mask(NamedTuple):
    """Obfuscation of values.

    Attributes:
        mask: uint8, what they are XORed with, repeated to `MOST_VALUE` bytes.
        value: uint8, room for as many bytes of a value.
    """

    mask: Bytes
    value: OutBytes


class Texts(NamedTuple):
    """Hashes of each row as digits: text i is `text[ends[i] : ends[i + 1]]`, `ends[0]` is 0."""

    text: OutBytes
    ends: OutInt32s


class Blocks(NamedTuple):
    """Columns of blocks and transactions.

    Attributes:
        kinds: uint8, by row.
        numbers: int64, a row for each of `BLOCK_NUMBERS`.
        present: uint32, by row: bit i is set where number i is there.
        hashes: The hash of each.
        previous: Of blocks, the hash of the one before.
        roots: Of blocks, the root of transactions.
    """

    kinds: OutBytes
    numbers: Annotated[Any, Array(np.int64, 2, writable=True)]
    present: OutUInt32s
    hashes: Texts
    previous: Texts
    roots: Texts


class Coins(NamedTuple):
    """Columns of coins.

    Attributes:
        kinds: uint8, by row.
        numbers: int64, a row for each of `COIN_NUMBERS`.
        hashes: The hash of the transaction of each.
        scripts: Scripts, as `Texts`.
    """

    kinds: OutBytes
    numbers: Annotated[Any, Array(np.int64, 2, writable=True)]
    hashes: Texts
    scripts: Texts


@inlined
def _read_varint(data: Any, pos: Any, end: Any) -> Any:
    """Return a number at `pos` and the position after it, which is 0 where there is none of 63 bits."""
    value = _ZERO
    while pos < end and value >> _FULL == _ZERO:
        byte = np.uint64(data[pos])
        pos += _ONE
        value = value << _SEVEN | byte & _LOW7
        if byte < _MORE:
            return value, pos
        value += _ONE
    return _ZERO, _ZERO


@always_inlined
def _unmask(mask: Any, data: Any, start: Any, length: Any) -> None:
    """Lay a value out without its obfuscation."""
    for i in range(length):
        mask.value[i] = data[start + np.uint64(i)] ^ mask.mask[i]


@always_inlined
def _put_hash(texts: Any, row: Any, data: Any, start: Any, is_there: Any) -> None:
    """Write a hash of a row as people do, the last byte first; nothing where it is not there."""
    used = np.uint64(texts.ends[row])
    if is_there:
        used = put_reversed_hex(texts.text, used, data, start, start + _HASH)
    texts.ends[row + 1] = used


@always_inlined
def _read_block(value: Any, end: Any, blocks: Any, row: Any) -> Any:
    """Read a block. Returns where its hashes are, 0 for none, and which numbers it has."""
    numbers = blocks.numbers
    present = _FIXED_BLOCK
    _, pos = _read_varint(value, _ZERO, end)  # the version that wrote it
    number = status = _ZERO
    for column in range(_TRANSACTIONS + 1):
        if pos == _ZERO:
            return _ZERO, present
        number, pos = _read_varint(value, pos, end)
        numbers[column, row] = number
        if column == _STATUS:
            status = number
    has_data, has_undo = status & _HAVE_DATA != _ZERO, status & _HAVE_UNDO != _ZERO
    for column in range(_FILE, _UNDO_OFFSET + 1):
        is_there = has_data or has_undo
        if column != _FILE:
            is_there = has_data if column == _OFFSET else has_undo
        if pos != _ZERO and is_there:
            number, pos = _read_varint(value, pos, end)
            numbers[column, row] = number
            present |= 1 << column
    if pos == _ZERO or end - pos != _HEADER:
        return _ZERO, present
    numbers[_VERSION, row] = np.int32(load_u32(value, pos))
    hashes = pos + _FOUR
    pos = hashes + _HASH + _HASH
    for column in range(_TIME, _NONCE + 1):
        numbers[column, row] = load_u32(value, pos)
        pos += _FOUR
    return hashes, present


@always_inlined
def _read_transaction(value: Any, end: Any, blocks: Any, row: Any) -> Any:
    """Read where a transaction is. Returns whether that is all there is."""
    number, pos = _read_varint(value, _ZERO, end)
    blocks.numbers[_FILE, row] = number
    for column in (_OFFSET, _PLACE):
        if pos != _ZERO:
            number, pos = _read_varint(value, pos, end)
            blocks.numbers[column, row] = number
    return pos != _ZERO and pos == end


@kernel
def decode_blocks(keys: Strings, values: Strings, mask: Mask, blocks: Blocks) -> None:
    """Decode the blocks and transactions among entries.

    Args:
        keys: `Strings`.
        values: `Strings`.
        mask: `Mask`.
        blocks: `Blocks`, with room for all; they are `DOUBTFUL`, without numbers.
    """
    for row in range(len(blocks.kinds)):
        start, length = np.uint64(values.offsets[row]), np.uint64(values.offsets[row + 1] - values.offsets[row])
        key = np.uint64(keys.offsets[row])
        kind = DOUBTFUL
        hashes = _ZERO
        if np.uint64(keys.offsets[row + 1]) - key == _HASH + _ONE and length <= _LONGEST:
            if keys.data[key] == _BLOCK_KEY:
                _unmask(mask, values.data, start, length)
                hashes, present = _read_block(mask.value, length, blocks, row)
                if hashes != _ZERO:
                    kind = OF_BLOCK
                    blocks.present[row] = present
            elif keys.data[key] == _TRANSACTION_KEY:
                _unmask(mask, values.data, start, length)
                if _read_transaction(mask.value, length, blocks, row):
                    kind = OF_TRANSACTION
                    blocks.present[row] = _FIXED_TRANSACTION
        blocks.kinds[row] = kind
        _put_hash(blocks.hashes, row, keys.data, key + _ONE, kind != DOUBTFUL)
        _put_hash(blocks.previous, row, mask.value, hashes, kind == OF_BLOCK)
        _put_hash(blocks.roots, row, mask.value, hashes + _HASH, kind == OF_BLOCK)


@inlined
def _decompress_amount(code: Any) -> Any:
    """Return satoshis of a compressed amount, and whether they have 63 bits."""
    if code == _ZERO:
        return _ZERO, True
    code -= _ONE
    exponent = code % _TEN
    code //= _TEN
    if exponent < _NINE:
        code = code // _NINE * _TEN + code % _NINE
    satoshis = code + _ONE
    for _ in range(exponent):
        if satoshis >> np.uint64(59) != _ZERO:  # ten times that may have more
            return _ZERO, False
        satoshis *= _TEN
    return satoshis, satoshis >> _LAST == _ZERO


@always_inlined
def _put_bytes(out: Any, pos: Any, data: Any) -> Any:
    for i in range(len(data)):
        out[pos + np.uint64(i)] = data[i]
    return pos + np.uint64(len(data))


@always_inlined
def _put_part(out: Any, pos: Any, before: Any, value: Any, start: Any, length: Any, after: Any) -> Any:
    pos = _put_bytes(out, pos, before)
    copy_bytes(out, pos, value, start, length)
    return _put_bytes(out, pos + length, after)


@always_inlined
def _put_script(out: Any, pos: Any, value: Any, start: Any, end: Any) -> Any:
    """Write a compressed script that ends at `end`. Returns its type, -1 for a doubtful one, and where it ends."""
    size, start = _read_varint(value, start, end)
    if start == _ZERO:
        return -1, pos
    length = end - start
    if size == layout.P2PKH and length == _SCRIPT_HASH:
        return _P2PKH, _put_part(out, pos, _P2PKH_BEFORE, value, start, length, _P2PKH_AFTER)
    if size == layout.P2SH and length == _SCRIPT_HASH:
        return _P2SH, _put_part(out, pos, _P2SH_BEFORE, value, start, length, _P2SH_AFTER)
    if size in layout.P2PK and length == _KEY_SIZE:
        # The script has the size of one byte, too.
        return _P2PK, _put_part(out, pos, _P2PK_BEFORE, value, start - _ONE, length + _ONE, _P2PK_AFTER)
    if size in layout.UNCOMPRESSED and length == _KEY_SIZE:
        key_end = _put_part(out, pos, _UNCOMPRESSED_BEFORE, value, start, length, _BETWEEN)
        is_point = put_other_coordinate(out, key_end, value, start, size & _ONE)
        return _P2PK if is_point else -1, _put_bytes(out, key_end + length, _UNCOMPRESSED_AFTER)
    if size >= _SPECIAL and size - _SPECIAL <= _MOST_SCRIPT and size - _SPECIAL == length:
        copy_bytes(out, pos, value, start, length)
        return _OTHER, pos + length
    return -1, pos


@kernel
def decode_coins(keys: Strings, values: Strings, mask: Mask, coins: Coins) -> None:
    """Decode the coins among entries.

    Args:
        keys: `Strings`.
        values: `Strings`.
        mask: `Mask`.
        coins: `Coins`, with room for all; `SCRIPT_ROOM` more than the bytes of each value.
    """
    numbers = coins.numbers
    for row in range(len(coins.kinds)):
        start, length = np.uint64(values.offsets[row]), np.uint64(values.offsets[row + 1] - values.offsets[row])
        key, key_end = np.uint64(keys.offsets[row]), np.uint64(keys.offsets[row + 1])
        used = np.uint64(coins.scripts.ends[row])
        is_plain = False
        if key_end - key > _HASH + _ONE and keys.data[key] == _COIN_KEY and length <= _LONGEST:
            output, pos = _read_varint(keys.data, key + _ONE + _HASH, key_end)
            is_plain = pos == key_end
            _unmask(mask, values.data, start, length)
            code, pos = _read_varint(mask.value, _ZERO, length)
            compressed = _ZERO
            if pos != _ZERO:
                compressed, pos = _read_varint(mask.value, pos, length)
            satoshis, is_amount = _decompress_amount(compressed)
            script_type = -1
            script_end = used
            if is_plain and is_amount and pos != _ZERO:
                script_type, script_end = _put_script(coins.scripts.text, used, mask.value, pos, length)
            is_plain = script_type >= 0
            if is_plain:
                used = script_end
                numbers[_OUTPUT, row] = output
                numbers[_COIN_HEIGHT, row] = code >> _ONE
                numbers[_COINBASE, row] = code & _ONE
                numbers[_AMOUNT, row] = satoshis
                numbers[_SCRIPT_TYPE, row] = script_type
        coins.kinds[row] = OF_COIN if is_plain else DOUBTFUL
        coins.scripts.ends[row + 1] = used
        _put_hash(coins.hashes, row, keys.data, key + _ONE, is_plain)

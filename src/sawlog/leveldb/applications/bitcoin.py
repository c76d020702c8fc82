"""Databases of Bitcoin Core: the chainstate (unspent outputs), the index of blocks, and that of transactions.

See `txdb.cpp`, `coins.h`, `compressor.cpp`, `chain.h` and `dbwrapper.cpp` in its source.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from sawlog.arrow import make_array, make_fixed_array, view_binary
from sawlog.leveldb.applications import bitcoin_kernels as k
from sawlog.leveldb.applications import bitcoin_layout as layout
from sawlog.leveldb.applications import view
from sawlog.leveldb.columns import convert_codes
from sawlog.leveldb.records.kernels import Strings

_KINDS = ("", "block", "transaction", "coin")
"""By the kinds of the kernels."""


def read_varint(cursor: view.Cursor) -> int:
    """Return a number of Bitcoin's: seven bits per byte, high ones first.

    Every byte but the last adds one, so that there is one encoding only.
    """
    start, value = cursor.position, 0
    for length, byte in enumerate(cursor.data[start : start + layout.MAX_VARINT_BYTES], 1):
        value = value << 7 | byte & 127
        if value >> layout.VARINT_BITS:
            raise view.UnknownBytesError(f"varint of more than {layout.VARINT_BITS} bits at byte {start}")
        if byte < 128:
            cursor.position += length
            return value
        value += 1
    cursor.position = len(cursor.data)
    return cursor.take_byte()  # which is not there


def decompress_amount(code: int) -> int:
    """Return satoshis of a compressed amount."""
    if code == 0:
        return 0
    code, exponent = divmod(code - 1, 10)
    if exponent < 9:
        code, digit = divmod(code, 9)
        code = code * 10 + digit
    satoshis: int = (code + 1) * 10**exponent
    if satoshis >> layout.VARINT_BITS:
        raise view.UnknownBytesError(f"an amount of {satoshis} satoshis")
    return satoshis


def read_script(cursor: view.Cursor) -> tuple[str, bytes]:
    """Return the kind and the bytes of a compressed script."""
    size = read_varint(cursor)
    if size == layout.P2PKH:
        return "p2pkh", _wrap_parts(layout.P2PKH_PARTS, cursor.take(layout.SCRIPT_HASH_SIZE, "hash"))
    if size == layout.P2SH:
        return "p2sh", _wrap_parts(layout.P2SH_PARTS, cursor.take(layout.SCRIPT_HASH_SIZE, "hash"))
    if size in layout.P2PK:
        return "p2pk", _wrap_parts(layout.P2PK_PARTS, bytes([size]) + cursor.take(layout.PUBLIC_KEY_SIZE, "public key"))
    if size in layout.UNCOMPRESSED:
        x = cursor.take(layout.PUBLIC_KEY_SIZE, "public key")
        return "p2pk", _wrap_parts(layout.UNCOMPRESSED_PARTS, x + _compute_y(int.from_bytes(x, "big"), size & 1))
    if size - layout.SPECIAL > layout.MOST_SCRIPT:
        raise view.UnknownBytesError(
            f"a script of {size - layout.SPECIAL} bytes, of which {layout.MOST_SCRIPT} are allowed"
        )
    return "other", cursor.take(size - layout.SPECIAL, "script")


def _wrap_parts(parts: tuple[bytes, bytes], stored: bytes) -> bytes:
    before, after = parts
    return before + stored + after


def _compute_y(x: int, parity: int) -> bytes:
    """Return the other coordinate of a public key."""
    square = (pow(x, 3, layout.FIELD) + layout.CURVE) % layout.FIELD
    y = pow(square, (layout.FIELD + 1) // 4, layout.FIELD)
    if x >= layout.FIELD or y * y % layout.FIELD != square:
        raise view.UnknownBytesError("a public key that is not on the curve")
    return (y if y & 1 == parity else layout.FIELD - y).to_bytes(32, "big")


def _read_hash(cursor: view.Cursor) -> str:
    """Return a hash as people write it: the last byte first."""
    return cursor.take(layout.HASH_SIZE, "hash")[::-1].hex()


def _read_coin(cursor: view.Cursor) -> dict[str, Any]:
    code, compressed = read_varint(cursor), read_varint(cursor)
    row: dict[str, Any] = {"height": code >> 1, "coinbase": bool(code & 1)}
    try:
        row["amount"] = decompress_amount(compressed)
    except view.UnknownBytesError as unknown:
        cursor.reasons.append(str(unknown))
    start = cursor.position
    try:
        row["script_type"], row["script"] = read_script(cursor)
    except view.UnknownBytesError as unknown:
        cursor.reasons.append(f"{unknown}: the script is as it is stored")
        cursor.position = start
        row["script"] = cursor.take_remainder()
    return row


def _read_hashes(cursor: view.Cursor) -> dict[str, Any]:
    """Return blocks, such as those between which the chainstate is while it is written."""
    count = cursor.take_byte()
    if count * layout.HASH_SIZE > cursor.remaining:
        raise view.UnknownBytesError(f"{count} hashes in {cursor.remaining} bytes")
    return {"blocks": [_read_hash(cursor) for _ in range(count)]}


def _read_block(cursor: view.Cursor) -> dict[str, Any]:
    """Return the columns of a block: what is known of it, then its header."""
    read_varint(cursor)  # the version that wrote it
    row: dict[str, Any] = {
        "height": read_varint(cursor),
        "status": read_varint(cursor),
        "transactions": read_varint(cursor),
    }
    if row["status"] & (layout.HAVE_DATA | layout.HAVE_UNDO):
        row["file"] = read_varint(cursor)
    if row["status"] & layout.HAVE_DATA:
        row["offset"] = read_varint(cursor)
    if row["status"] & layout.HAVE_UNDO:
        row["undo_offset"] = read_varint(cursor)
    fields = layout.HEADER.unpack(cursor.take(layout.HEADER.size, "header"))
    row["version"], previous, merkle_root, row["time"], row["bits"], row["nonce"] = fields
    return row | {"previous": previous[::-1].hex(), "merkle_root": merkle_root[::-1].hex()}


def _make_varints_reader(*names: str) -> Callable[[view.Cursor], dict[str, Any]]:
    return lambda cursor: {name: read_varint(cursor) for name in names}


_FILE_FIELDS = _make_varints_reader(
    "blocks", "size", "undo_size", "first_height", "last_height", "first_time", "last_time"
)


def _read_setting(cursor: view.Cursor) -> dict[str, Any]:
    return {"value": cursor.take_remainder().decode("ascii", "backslashreplace")}


def _read_locator(cursor: view.Cursor) -> dict[str, Any]:
    """Return the hash of the block up to which an index has come, the first of a list of blocks."""
    cursor.take(4, "version")
    return {"hash": next(iter(_read_hashes(cursor)["blocks"]), None)}


class Bitcoin(view.ApplicationView):
    """Base of the views of both databases: values may be obfuscated."""

    names: ClassVar = (layout.OBFUSCATION, layout.OBFUSCATION + b"\0")
    kinds: ClassVar[
        Mapping[bytes, tuple[str, Callable[[view.Cursor], dict[str, Any]], Callable[[view.Cursor], dict[str, Any]]]]
    ]
    """By the first byte of keys: what they are of, and how the rest of the key and the value are read."""

    def make_context(self, entries: view.Entries, home: view.Home) -> bytes:
        """Return the bytes with which values are XORed."""
        del home
        newest = next((entry.value for entry in entries if entry.value), b"\0")
        return newest[1:] if newest[:1] == bytes([len(newest) - 1]) else b""

    def decode(self, entry: view.Entry, context: bytes) -> Mapping[str, Any]:
        """Return the key by its first byte; the value, after its obfuscation is undone."""
        if entry.key == layout.OBFUSCATION:
            return {"kind": "obfuscation"}
        if entry.key[:1] not in self.kinds:
            raise view.UnknownBytesError(f"a key that begins with {entry.key[:1]!r}")
        kind, key, value = self.kinds[entry.key[:1]]
        row = {"kind": kind} | _read_whole(entry.key[1:], key)

        def decode_value(data: bytes) -> dict[str, Any]:
            mask = (context * (len(data) // max(len(context), 1) + 1))[: len(data)]
            plain_data = int.from_bytes(data, "big") ^ int.from_bytes(mask, "big")
            return _read_whole(plain_data.to_bytes(len(data), "big"), value)

        return row | view.read_columns(entry.value, decode_value)


def _mask_of(context: bytes) -> k.Mask:
    """Return how kernels undo the obfuscation of values."""
    mask = np.resize(np.frombuffer(context or b"\0", np.uint8), k.MOST_VALUE)
    return k.Mask(mask, np.empty(k.MOST_VALUE, np.uint8))


def _read_whole(data: bytes, read: Callable[[view.Cursor], dict[str, Any]]) -> dict[str, Any]:
    """Return the columns that `read` makes of all of the bytes."""
    cursor = view.Cursor(data)
    return cursor.explain(read(cursor))


class Chainstate(Bitcoin):
    """View of the set of unspent outputs, a row each."""

    title = "Bitcoin's chainstate: txid, output, height, amount, script of unspent outputs"
    directory: ClassVar = "/chainstate"
    own_key: ClassVar = layout.COIN + b".{33,37}"
    columns: ClassVar = view.make_columns(
        "kind txid output:int height:int coinbase:bool amount:int script_type script:bytes blocks:texts"
    )

    def decode_plain_rows(self, keys: pa.Array, values: pa.Array, context: bytes) -> view.PlainRows:
        """Return coins."""
        rows = len(keys)
        stored, contents = Strings(*view_binary(keys)), Strings(*view_binary(values))
        room = int(contents.offsets[-1] - contents.offsets[0])
        hashes, scripts = view.TextColumn(rows, rows * k.DIGITS), view.TextColumn(rows, room + rows * k.SCRIPT_ROOM)
        kinds, numbers = np.empty(rows, np.uint8), np.zeros((len(k.COIN_NUMBERS), rows), np.int64)
        coins = k.Coins(kinds, numbers, k.Texts(*hashes.buffers), k.Texts(*scripts.buffers))
        k.decode_coins(stored, contents, _mask_of(context), coins)
        output, height, coinbase, amounts, script_types = numbers
        integers = {"output": output, "height": height, "amount": amounts}
        columns = {name: make_fixed_array(pa.int64(), values) for name, values in integers.items()} | {
            "kind": convert_codes(kinds, _KINDS),
            "txid": hashes.take(pa.string()),
            "coinbase": make_array(coinbase != 0, pa.bool_()),
            "script_type": convert_codes(script_types, layout.SCRIPT_TYPES),
            "script": scripts.take(pa.binary()),
        }
        return view.PlainRows(kinds != k.DOUBTFUL, columns)

    kinds: ClassVar = {
        layout.COIN: ("coin", lambda key: {"txid": _read_hash(key), "output": read_varint(key)}, _read_coin),
        layout.BEST_BLOCK: ("best_block", lambda key: {}, lambda value: {"blocks": [_read_hash(value)]}),
        layout.HEAD_BLOCKS: ("head_blocks", lambda key: {}, _read_hashes),
    }


class BlockIndex(Bitcoin):
    """View of the index of blocks: a row per block, file of blocks, or transaction."""

    title = "Bitcoin's index of blocks and transactions: hash, height, file, offset, header"
    directory: ClassVar = "/blocks/index|/indexes/txindex"
    own_key: ClassVar = b"[%b%b].{%d}" % (layout.BLOCK, layout.TRANSACTION, layout.HASH_SIZE)
    columns: ClassVar = view.make_columns(
        "kind hash height:int status:int transactions:int file:int offset:int undo_offset:int "
        "transaction_offset:int version:int previous merkle_root time:int bits:int nonce:int blocks:int "
        "size:int undo_size:int first_height:int last_height:int first_time:int last_time:int name value"
    )

    def decode_plain_rows(self, keys: pa.Array, values: pa.Array, context: bytes) -> view.PlainRows:
        """Return blocks and transactions."""
        rows = len(keys)
        hashes, previous, roots = (view.TextColumn(rows, rows * k.DIGITS) for _ in range(3))
        kinds, present = np.empty(rows, np.uint8), np.zeros(rows, np.uint32)
        numbers = np.zeros((len(k.BLOCK_NUMBERS), rows), np.int64)
        texts = [k.Texts(*column.buffers) for column in (hashes, previous, roots)]
        contents = Strings(*view_binary(keys)), Strings(*view_binary(values))
        k.decode_blocks(*contents, _mask_of(context), k.Blocks(kinds, numbers, present, *texts))
        columns = {
            name: make_array(numbers[place], pa.int64(), present >> place & 1 == 0)
            for place, name in enumerate(k.BLOCK_NUMBERS)
        }
        is_block = kinds == k.OF_BLOCK
        columns |= {
            "kind": convert_codes(kinds, _KINDS),
            "hash": hashes.take(pa.string()),
            "previous": previous.take(pa.string(), is_block),
            "merkle_root": roots.take(pa.string(), is_block),
        }
        return view.PlainRows(kinds != k.DOUBTFUL, columns)

    kinds: ClassVar = {
        layout.BLOCK: ("block", lambda key: {"hash": _read_hash(key)}, _read_block),
        layout.FILE: ("file", lambda key: {"file": key.take_unsigned(4)}, _FILE_FIELDS),
        layout.LAST_FILE: ("last_file", lambda key: {}, lambda value: {"file": value.take_unsigned(4)}),
        layout.TRANSACTION: (
            "transaction",
            lambda key: {"hash": _read_hash(key)},
            _make_varints_reader("file", "offset", "transaction_offset"),
        ),
        layout.FLAG: (
            "flag",
            lambda key: {"name": key.take(key.take_byte(), "name").decode("ascii", "backslashreplace")},
            _read_setting,
        ),
        layout.REINDEXING: ("reindexing", lambda key: {}, _read_setting),
        layout.BEST_BLOCK: ("best_block", lambda key: {}, _read_locator),
    }

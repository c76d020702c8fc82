"""Databases of Bitcoin Core: the chainstate (unspent outputs), the index of blocks, and that of transactions.

See `txdb.cpp`, `coins.h`, `compressor.cpp`, `chain.h` and `dbwrapper.cpp` in its source.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar

import pyarrow as pa

from sawlog.leveldb.applications.view import ApplicationView, Cursor, Entry, Home, UnknownBytesError, columns_of

OBFUSCATION = b"\x0e\0obfuscate_key"
"""The key of what all other values are XORed with."""
HASH_SIZE = 32
_P2PKH, _P2SH, _P2PK, UNCOMPRESSED = 0, 1, (2, 3), (4, 5)
"""How a script is compressed; from `_SPECIAL` on, by its size and that."""
_SPECIAL = 6
_FIELD = 2**256 - 2**32 - 977
"""The prime of secp256k1, whose points are y * y = x * x * x + 7."""
_MOST_SCRIPT = 10_000
"""Longer scripts cannot be spent: they are not in a chainstate."""
_HEADER = struct.Struct(f"<i{HASH_SIZE}s{HASH_SIZE}s3I")
_MAX_VARINT_BYTES = 10
_HAVE_DATA, _HAVE_UNDO = 8, 16
"""Bits of a block's status: it is in a file, and so is what undoes it."""


def varint(cursor: Cursor) -> int:
    """Seven bits per byte, high ones first; every byte but the last adds one, so that there is one encoding only."""
    start, value = cursor.at, 0
    for length, byte in enumerate(cursor.data[start : start + _MAX_VARINT_BYTES], 1):
        value = value << 7 | byte & 127
        if value >> 63:
            raise UnknownBytesError(f"varint of more than 63 bits at byte {start}")
        if byte < 128:
            cursor.at += length
            return value
        value += 1
    cursor.at = len(cursor.data)
    return cursor.byte()  # which is not there


def amount(code: int) -> int:
    """Satoshis of a compressed amount."""
    if code == 0:
        return 0
    code, exponent = divmod(code - 1, 10)
    if exponent < 9:
        code, digit = divmod(code, 9)
        code = code * 10 + digit
    satoshis: int = (code + 1) * 10**exponent
    if satoshis >> 63:
        raise UnknownBytesError(f"an amount of {satoshis} satoshis")
    return satoshis


def script(cursor: Cursor) -> tuple[str, bytes]:
    """The kind and the bytes of a compressed script."""
    size = varint(cursor)
    if size == _P2PKH:
        return "p2pkh", b"\x76\xa9\x14" + cursor.take(20, "hash") + b"\x88\xac"
    if size == _P2SH:
        return "p2sh", b"\xa9\x14" + cursor.take(20, "hash") + b"\x87"
    if size in _P2PK:
        return "p2pk", b"\x21" + bytes([size]) + cursor.take(32, "public key") + b"\xac"
    if size in UNCOMPRESSED:
        x = cursor.take(32, "public key")
        return "p2pk", b"\x41\x04" + x + _y(int.from_bytes(x, "big"), size & 1) + b"\xac"
    if size - _SPECIAL > _MOST_SCRIPT:
        raise UnknownBytesError(f"a script of {size - _SPECIAL} bytes, of which {_MOST_SCRIPT} are allowed")
    return "other", cursor.take(size - _SPECIAL, "script")


def _y(x: int, odd: int) -> bytes:
    """The other coordinate of a public key."""
    square = (pow(x, 3, _FIELD) + 7) % _FIELD
    y = pow(square, (_FIELD + 1) // 4, _FIELD)
    if x >= _FIELD or y * y % _FIELD != square:
        raise UnknownBytesError("a public key that is not on the curve")
    return (y if y & 1 == odd else _FIELD - y).to_bytes(32, "big")


def block_hash(cursor: Cursor) -> str:
    """A hash as people write it: the last byte first."""
    return cursor.take(HASH_SIZE, "hash")[::-1].hex()


def _coin(cursor: Cursor) -> dict[str, Any]:
    code, compressed = varint(cursor), varint(cursor)
    row: dict[str, Any] = {"height": code >> 1, "coinbase": bool(code & 1)}
    try:
        row["amount"] = amount(compressed)
    except UnknownBytesError as unknown:
        cursor.reasons.append(str(unknown))
    start = cursor.at
    try:
        row["script_type"], row["script"] = script(cursor)
    except UnknownBytesError as unknown:
        cursor.reasons.append(f"{unknown}: the script is as it is stored")
        cursor.at = start
        row["script"] = cursor.rest()
    return row


def _hashes(cursor: Cursor) -> dict[str, Any]:
    """Blocks, such as those between which the chainstate is while it is written."""
    count = cursor.byte()
    if count * HASH_SIZE > cursor.left:
        raise UnknownBytesError(f"{count} hashes in {cursor.left} bytes")
    return {"blocks": [block_hash(cursor) for _ in range(count)]}


def _block(cursor: Cursor) -> dict[str, Any]:
    """Return the columns of a block: what is known of it, then its header."""
    varint(cursor)  # the version that wrote it
    row: dict[str, Any] = {"height": varint(cursor), "status": varint(cursor), "transactions": varint(cursor)}
    if row["status"] & (_HAVE_DATA | _HAVE_UNDO):
        row["file"] = varint(cursor)
    if row["status"] & _HAVE_DATA:
        row["offset"] = varint(cursor)
    if row["status"] & _HAVE_UNDO:
        row["undo_offset"] = varint(cursor)
    fields = _HEADER.unpack(cursor.take(_HEADER.size, "header"))
    row["version"], previous, merkle_root, row["time"], row["bits"], row["nonce"] = fields
    return row | {"previous": previous[::-1].hex(), "merkle_root": merkle_root[::-1].hex()}


def _varints(*names: str) -> Callable[[Cursor], dict[str, Any]]:
    return lambda cursor: {name: varint(cursor) for name in names}


_FILE = _varints("blocks", "size", "undo_size", "first_height", "last_height", "first_time", "last_time")


def _locator(cursor: Cursor) -> dict[str, Any]:
    """Return the hash of the block up to which an index has come, the first of a list of blocks."""
    cursor.take(4, "version")
    return {"hash": next(iter(_hashes(cursor)["blocks"]), None)}


class Bitcoin(ApplicationView):
    """Base of the views of both databases: values may be obfuscated."""

    names: ClassVar = (OBFUSCATION, OBFUSCATION + b"\0")
    kinds: ClassVar[Mapping[bytes, tuple[str, Callable[[Cursor], dict[str, Any]], Callable[[Cursor], dict[str, Any]]]]]
    """By the first byte of keys: what they are of, and how the rest of the key and the value are read."""

    def context(self, entries: Iterable[Entry], home: Home) -> bytes:
        """Return the bytes with which values are XORed."""
        del home
        newest = next((entry.value for entry in entries if entry.value), b"\0")
        return newest[1:] if newest[:1] == bytes([len(newest) - 1]) else b""

    def decode(self, entry: Entry, context: bytes) -> Mapping[str, Any]:
        """The key by its first byte; the value, after its obfuscation is undone."""
        if entry.key == OBFUSCATION:
            return {"kind": "obfuscation"}
        if entry.key[:1] not in self.kinds:
            raise UnknownBytesError(f"a key that begins with {entry.key[:1]!r}")
        kind, key, value = self.kinds[entry.key[:1]]
        row = {"kind": kind} | _whole(entry.key[1:], key)

        def plain(data: bytes) -> dict[str, Any]:
            mask = (context * (len(data) // max(len(context), 1) + 1))[: len(data)]
            plain_data = int.from_bytes(data, "big") ^ int.from_bytes(mask, "big")
            return _whole(plain_data.to_bytes(len(data), "big"), value)

        return row | columns_of(entry.value, plain)


def _whole(data: bytes, read: Callable[[Cursor], dict[str, Any]]) -> dict[str, Any]:
    """Return the columns that `read` makes of all of the bytes."""
    cursor = Cursor(data)
    return cursor.explain(read(cursor))


class Chainstate(Bitcoin):
    """View of the set of unspent outputs, a row each."""

    title = "Bitcoin's chainstate: txid, output, height, amount, script of unspent outputs"
    columns: ClassVar = pa.schema(
        [
            ("kind", pa.string()),
            ("txid", pa.string()),
            ("output", pa.int64()),
            ("height", pa.int64()),
            ("coinbase", pa.bool_()),
            ("amount", pa.int64()),
            ("script_type", pa.string()),
            ("script", pa.binary()),
            ("blocks", pa.list_(pa.string())),
        ]
    )
    kinds: ClassVar = {
        b"C": ("coin", lambda key: {"txid": block_hash(key), "output": varint(key)}, _coin),
        b"B": ("best_block", lambda key: {}, lambda value: {"blocks": [block_hash(value)]}),
        b"H": ("head_blocks", lambda key: {}, _hashes),
    }

    def recognizes(self, path: str, comparator: str, keys: Sequence[bytes]) -> bool:
        """By its directory, or by its coins."""
        del comparator
        return path.endswith("/chainstate") or any(key[:1] == b"C" and 34 <= len(key) <= 38 for key in keys)


class BlockIndex(Bitcoin):
    """View of the index of blocks: a row per block, file of blocks, or transaction."""

    title = "Bitcoin's index of blocks and transactions: hash, height, file, offset, header"
    columns: ClassVar = pa.schema(
        [
            ("kind", pa.string()),
            ("hash", pa.string()),
            *((name, pa.int64()) for name in ("height", "status", "transactions", "file", "offset", "undo_offset")),
            ("transaction_offset", pa.int64()),
            ("version", pa.int64()),
            ("previous", pa.string()),
            ("merkle_root", pa.string()),
            *((name, pa.int64()) for name in ("time", "bits", "nonce", "blocks", "size", "undo_size")),
            *((name, pa.int64()) for name in ("first_height", "last_height", "first_time", "last_time")),
            ("name", pa.string()),
            ("value", pa.string()),
        ]
    )
    kinds: ClassVar = {
        b"b": ("block", lambda key: {"hash": block_hash(key)}, _block),
        b"f": ("file", lambda key: {"file": key.little(4)}, _FILE),
        b"l": ("last_file", lambda key: {}, lambda value: {"file": value.little(4)}),
        b"t": ("transaction", lambda key: {"hash": block_hash(key)}, _varints("file", "offset", "transaction_offset")),
        b"F": (
            "flag",
            lambda key: {"name": key.take(key.byte(), "name").decode("ascii", "backslashreplace")},
            lambda value: {"value": value.rest().decode("ascii", "backslashreplace")},
        ),
        b"R": ("reindexing", lambda key: {}, lambda value: {"value": value.rest().decode("ascii", "backslashreplace")}),
        b"B": ("best_block", lambda key: {}, _locator),
    }

    def recognizes(self, path: str, comparator: str, keys: Sequence[bytes]) -> bool:
        """By its directory, or by its keys of blocks, files or transactions."""
        del comparator
        named = path.endswith(("/blocks/index", "/indexes/txindex"))
        return named or any(key[:1] in (b"b", b"t") and len(key) == 1 + HASH_SIZE for key in keys)

"""View of go-ethereum's chain database: headers, bodies and receipts by number, and what it keeps besides.

Keys are those of `core/rawdb/schema.go`. Values in RLP are JSON as Ethereum's JSON-RPC shows them: quantities and data
are hexadecimal digits. Older blocks are in the freezer, which is no database.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar, TypeAlias

import pyarrow as pa

from sawlog.leveldb.applications.script_values import to_json
from sawlog.leveldb.applications.view import ApplicationView, Cursor, Entry, UnknownBytesError, columns_of, text

HASH_SIZE, NUMBER_SIZE = 32, 8
"""Bytes of a hash, and of a block's number in a key, big-endian."""
_MOST_NESTED = 16
"""Deeper lists are refused: a block has fewer."""
_SHORT, _LIST = 0x80, 0xC0
"""First bytes of RLP: from these on, strings and lists; bytes before are themselves."""
_INLINE = 55
"""Strings and lists up to this size have it in their first byte."""
_LATEST = 1 << 43
"""Seconds since 1970 that have a place in a column of times, at most."""

Item: TypeAlias = "bytes | list[Item]"


def read_rlp(data: bytes) -> Item:
    """Bytes, or a list of them and of lists, that RLP encodes.

    Raises:
        UnknownBytesError: When the bytes end too early or too late, or are nested too deep.
    """
    cursor = Cursor(data)
    item = _item(cursor, 0)
    cursor.end()
    return item


def _item(cursor: Cursor, depth: int) -> Item:
    """The next item."""
    first = cursor.byte()
    if first < _SHORT:
        return bytes([first])
    base = _LIST if first >= _LIST else _SHORT
    size = first - base
    if size > _INLINE:
        size = int.from_bytes(cursor.take(size - _INLINE, "length"), "big")
    if base == _SHORT:
        return cursor.take(size, "string")
    if depth == _MOST_NESTED:
        raise UnknownBytesError(f"lists in lists, deeper than {_MOST_NESTED}, before byte {cursor.position}")
    if size > cursor.left:
        raise UnknownBytesError(f"list of {size} bytes at byte {cursor.position}, where {cursor.left} are left")
    end = cursor.position + size
    items: list[Item] = []
    while cursor.position < end:
        items.append(_item(cursor, depth + 1))
    if cursor.position > end:
        raise UnknownBytesError(f"an item that ends after its list, before byte {cursor.position}")
    return items


Shape: TypeAlias = Callable[[Item], Any]
"""What makes JSON of an item of RLP."""


def data_text(item: Item) -> Any:
    """Bytes as Ethereum writes them."""
    return f"0x{item.hex()}" if isinstance(item, bytes) else [data_text(part) for part in item]


def quantity(item: Item) -> Any:
    """A number as Ethereum writes it."""
    return f"{int.from_bytes(item, 'big'):#x}" if isinstance(item, bytes) else data_text(item)


def _account(item: Item) -> Any:
    """An address; none, where a contract is made."""
    return data_text(item) if item else None


def _every(shape: Shape, item: Item) -> Any:
    return [shape(part) for part in item] if isinstance(item, list) else data_text(item)


def _fields(declared: str, item: Item) -> Any:
    """An object of items; names that end with `#` are of quantities, and fields without a name have their places."""
    if not isinstance(item, list):
        return data_text(item)
    document = {}
    names = declared.split()
    for place, part in enumerate(item):
        name = names[place] if place < len(names) else str(place)
        shape = quantity if name.endswith("#") else _SHAPES.get(name, data_text)
        document[name.removesuffix("#")] = shape(part)
    return document


_HEADER = (
    "parentHash sha3Uncles miner stateRoot transactionsRoot receiptsRoot logsBloom difficulty# number# gasLimit# "
    "gasUsed# timestamp# extraData mixHash nonce baseFeePerGas# withdrawalsRoot blobGasUsed# excessBlobGas# "
    "parentBeaconBlockRoot requestsHash"
)
_LEGACY = "nonce# gasPrice# gas# to value# input v# r# s#"
_FEES = "chainId# nonce# maxPriorityFeePerGas# maxFeePerGas# gas# to value# input accessList"
_SIGNATURE = "yParity# r# s#"
_TYPED = {
    1: f"chainId# nonce# gasPrice# gas# to value# input accessList {_SIGNATURE}",
    2: f"{_FEES} {_SIGNATURE}",
    3: f"{_FEES} maxFeePerBlobGas# blobVersionedHashes {_SIGNATURE}",
    4: f"{_FEES} authorizationList {_SIGNATURE}",
}
"""Fields of transactions by the byte before their list; older ones have none."""
_RECEIPTS = {
    6: "status cumulativeGasUsed# transactionHash contractAddress logs gasUsed#",
    7: "status cumulativeGasUsed# logsBloom transactionHash contractAddress logs gasUsed#",
}
"""Fields of receipts by their count, in database versions 4 and 3."""
_RECEIPT = "status cumulativeGasUsed# logs"


def _transaction(item: Item) -> Any:
    if isinstance(item, list):
        return {"type": "0x0", **_fields(_LEGACY, item)}
    if not item or item[0] not in _TYPED:
        raise UnknownBytesError(f"a transaction of type {item[:1].hex() or 'missing'}, expected 1 to {max(_TYPED)}")
    fields = _fields(_TYPED[item[0]], read_rlp(item[1:]))
    return {"type": f"{item[0]:#x}", **(fields if isinstance(fields, dict) else {"data": fields})}


def _receipt(item: Item) -> Any:
    return _fields(_RECEIPTS.get(len(item), _RECEIPT), item)


def _status(item: Item) -> Any:
    """Whether a transaction has succeeded, or the root of the state after it, before Byzantium."""
    return data_text(item) if len(item) == HASH_SIZE else quantity(item)


_HEADER_SHAPE = partial(_fields, _HEADER)
_SHAPES: Mapping[str, Shape] = {
    "to": _account,
    "status": _status,
    "transactions": partial(_every, _transaction),
    "uncles": partial(_every, _HEADER_SHAPE),
    "withdrawals": partial(_every, partial(_fields, "index# validatorIndex# address amount#")),
    "logs": partial(_every, partial(_fields, "address topics data")),
    "accessList": partial(_every, partial(_fields, "address storageKeys")),
    "authorizationList": partial(_every, partial(_fields, "chainId# address nonce# yParity# r# s#")),
}
"""Fields that are neither plain data nor quantities."""


def _rlp(shape: Shape, value: bytes) -> dict[str, Any]:
    """The column `value` of RLP."""
    return {"value": to_json(shape(read_rlp(value)))}


def _header(value: bytes) -> dict[str, Any]:
    item = read_rlp(value)
    header = _HEADER_SHAPE(item)
    stamp = header.get("timestamp") if isinstance(header, dict) else None
    time = int(stamp, 16) if isinstance(stamp, str) else _LATEST
    return {"value": to_json(header), "time": time * 1_000_000 if time < _LATEST else None}


def _hash(value: bytes) -> dict[str, Any]:
    return {"hash": data_text(value)}


def _big_endian(value: bytes) -> dict[str, Any]:
    """The number of a block."""
    if len(value) > NUMBER_SIZE or int.from_bytes(value, "big") >> 63:
        raise UnknownBytesError(f"{len(value)} bytes, expected a number of less than 64 bits")
    return {"number": int.from_bytes(value, "big")}


def _lookup(value: bytes) -> dict[str, Any]:
    """The block of a transaction: its number, its hash, or both and the transaction's place."""
    if len(value) == HASH_SIZE:
        return _hash(value)
    if len(value) > HASH_SIZE:
        return _rlp(partial(_fields, "blockHash number# transactionIndex#"), value)
    return _big_endian(value)


def _json(value: bytes) -> dict[str, Any]:
    plain, wrong = text(value, "utf-8")
    return {"value": plain, "reason": wrong}


def _stored(value: bytes) -> dict[str, Any]:
    """Nothing: the stored bytes are all that there is to say."""
    del value
    return {}


_BLOCKS: Mapping[bytes, tuple[str, Callable[[bytes], dict[str, Any]]]] = {
    b"h": ("header", _header),
    b"b": ("body", partial(_rlp, partial(_fields, "transactions uncles withdrawals"))),
    b"r": ("receipts", partial(_rlp, partial(_every, _receipt))),
    b"j": ("access_list", partial(_rlp, data_text)),
}
"""By the first byte of a key: what it has of a block, whose number and hash follow."""
_HASHES: Mapping[bytes, tuple[str, Callable[[bytes], dict[str, Any]]]] = {
    b"H": ("header_number", _big_endian),
    b"l": ("transaction", _lookup),
    b"a": ("account", partial(_rlp, partial(_fields, "nonce# balance# root codeHash"))),
    b"c": ("code", _stored),
    b"L": ("state_id", _big_endian),
    b"secure-key-": ("preimage", _stored),
    b"ethereum-config-": ("chain_config", _json),
    b"ethereum-genesis-": ("genesis", _json),
    b"clique-": ("clique_snapshot", _json),
}
"""How keys begin that end with a hash."""
_NAMES: Mapping[bytes, Callable[[bytes], dict[str, Any]]] = {
    **dict.fromkeys((b"LastHeader", b"LastBlock", b"LastFast", b"LastFinalized", b"SnapshotRoot"), _hash),
    **dict.fromkeys((b"DatabaseVersion", b"LastPivot"), partial(_rlp, quantity)),
    **dict.fromkeys((b"TransactionIndexTail", b"LastStateID", b"LastStateHistoryIndex"), _big_endian),
    **dict.fromkeys((b"unclean-shutdown", b"InvalidBlock", b"SnapshotGenerator"), partial(_rlp, data_text)),
    **dict.fromkeys((b"SkeletonSyncStatus", b"SnapshotSyncStatus", b"eth2-transition"), _json),
    **dict.fromkeys(
        (b"TrieSync", b"SnapshotDisabled", b"SnapshotJournal", b"SnapshotRecovery", b"TrieJournal", b"SnapSyncStatus"),
        _stored,
    ),
}
"""Keys that there is one of."""
_INDEXES = (b"iB", b"fm-", b"m", b"update-", b"fixedRoot-", b"committee-")
"""How keys of indexes begin, whose values are not decoded."""
_NIBBLE = 16
"""Bytes of a path in a trie are less."""


class Ethereum(ApplicationView):
    """View of the database of a chain: a row per header, body, list of receipts, transaction, account or node."""

    title = "go-ethereum's chaindata: kind, number, hash, path, name, time, value (JSON as in JSON-RPC)"
    columns: ClassVar = pa.schema(
        [
            ("kind", pa.string()),
            ("number", pa.int64()),
            *((name, pa.string()) for name in ("hash", "path", "name")),
            ("time", pa.timestamp("us", "UTC")),
            ("value", pa.string()),
        ]
    )

    def recognizes(self, path: str, comparator: str, keys: Sequence[bytes]) -> bool:
        """By its directory, or keys that only it has."""
        del comparator
        named = path.endswith("/chaindata") or not _NAMES.keys().isdisjoint(keys)
        return named or any(key.startswith((b"ethereum-config-", b"ethereum-genesis-")) for key in keys)

    def decode(self, entry: Entry, context: Any) -> Mapping[str, Any]:
        """A key by its beginning and length; a value in RLP, JSON, or as it is."""
        del context
        row, read = _place(entry.key)
        return {**columns_of(entry.value, read), **row}


def _place(key: bytes) -> tuple[dict[str, Any], Callable[[bytes], dict[str, Any]]]:
    """Columns of a key, and what reads its value."""
    if key in _NAMES:
        return {"kind": "setting", "name": key.decode("ascii")}, _NAMES[key]
    first, number = key[:1], {"number": int.from_bytes(key[1 : 1 + NUMBER_SIZE], "big")}
    if first in (*_BLOCKS, b"S") and number["number"] >> 63:
        return _state_place(key)
    block_size = 1 + NUMBER_SIZE + HASH_SIZE
    if len(key) == block_size and first in _BLOCKS:
        kind, read = _BLOCKS[first]
        return {"kind": kind, **number, "hash": data_text(key[1 + NUMBER_SIZE :])}, read
    if len(key) == block_size + 1 and first == b"h" and key.endswith(b"t"):
        difficulty = partial(_rlp, quantity)
        return {"kind": "total_difficulty", **number, "hash": data_text(key[1 + NUMBER_SIZE : -1])}, difficulty
    if len(key) == NUMBER_SIZE + 2 and first == b"h" and key.endswith(b"n"):
        return {"kind": "canonical_hash", **number}, _hash
    if len(key) == NUMBER_SIZE + 1 and first == b"S":
        return {"kind": "skeleton_header", **number}, _header
    prefix, suffix = key[:-HASH_SIZE], key[-HASH_SIZE:]
    if prefix in _HASHES:
        kind, read = _HASHES[prefix]
        return {"kind": kind, "hash": data_text(suffix)}, read
    return _state_place(key)


def _state_place(key: bytes) -> tuple[dict[str, Any], Callable[[bytes], dict[str, Any]]]:
    """Columns of a key of state or of an index, and what reads its value."""
    account, path = key[1 : 1 + HASH_SIZE], key[1 + HASH_SIZE :]
    if key[:1] == b"o" and len(path) == HASH_SIZE:
        return {"kind": "storage", "hash": data_text(account), "path": data_text(path)}, partial(_rlp, data_text)
    if key[:1] == b"O" and len(account) == HASH_SIZE and all(nibble < _NIBBLE for nibble in path):
        return {"kind": "storage_node", "hash": data_text(account), "path": _nibbles(path)}, _stored
    if key[:1] == b"A" and all(nibble < _NIBBLE for nibble in key[1:]):
        return {"kind": "account_node", "path": _nibbles(key[1:])}, _stored
    if len(key) == HASH_SIZE:
        return {"kind": "trie_node", "hash": data_text(key)}, _stored
    if key.startswith(_INDEXES):
        return {"kind": "index"}, _stored
    if key[:1] == b"B" and len(key) == 1 + 2 + NUMBER_SIZE + HASH_SIZE:
        return {"kind": "bloom_bits", "hash": data_text(key[-HASH_SIZE:])}, _stored
    raise UnknownBytesError("a key that is none of go-ethereum's chain database")


def _nibbles(path: bytes) -> str:
    """A path in a trie, a hexadecimal digit per step."""
    return "".join(f"{nibble:x}" for nibble in path)

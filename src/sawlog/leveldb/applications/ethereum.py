"""View of go-ethereum's chain database: headers, bodies and receipts by number, and what it keeps besides.

Keys are those of `core/rawdb/schema.go`. Values in RLP are JSON as Ethereum's JSON-RPC shows them: quantities and data
are hexadecimal digits. Older blocks are in the freezer, which is no database.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, ClassVar, TypeAlias

import numpy as np
import pyarrow as pa

from sawlog.arrow import Column, make_array, view_binary
from sawlog.leveldb.applications import ethereum_kernels as k
from sawlog.leveldb.applications import ethereum_layout as layout
from sawlog.leveldb.applications import view
from sawlog.leveldb.applications.script_values import to_json
from sawlog.leveldb.columns import convert_codes
from sawlog.leveldb.records.kernels import Strings

Item: TypeAlias = "bytes | list[Item]"


def read_rlp(data: bytes) -> Item:
    """Return bytes, or a list of them and of lists, that RLP encodes.

    Raises:
        UnknownBytesError: When the bytes end too early or too late, or are nested too deep.
    """
    cursor = view.Cursor(data)
    item = _read_item(cursor, 0)
    cursor.check_end()
    return item


def _read_item(cursor: view.Cursor, depth: int) -> Item:
    """Return the next item."""
    first = cursor.take_byte()
    if first < layout.STRING:
        return bytes([first])
    base = layout.LIST if first >= layout.LIST else layout.STRING
    size = first - base
    if size > layout.INLINE:
        size = int.from_bytes(cursor.take(size - layout.INLINE, "length"), "big")
    if base == layout.STRING:
        return cursor.take(size, "string")
    if depth == layout.MOST_NESTED:
        raise view.UnknownBytesError(f"lists in lists, deeper than {layout.MOST_NESTED}, before byte {cursor.position}")
    if size > cursor.remaining:
        raise cursor.make_missing_error("list", size)
    end = cursor.position + size
    items: list[Item] = []
    while cursor.position < end:
        items.append(_read_item(cursor, depth + 1))
    if cursor.position > end:
        raise view.UnknownBytesError(f"an item that ends after its list, before byte {cursor.position}")
    return items


Shape: TypeAlias = Callable[[Item], Any]
"""What makes JSON of an item of RLP."""


def render_data(item: Item) -> Any:
    """Return bytes as Ethereum writes them."""
    return f"0x{item.hex()}" if isinstance(item, bytes) else [render_data(part) for part in item]


def render_quantity(item: Item) -> Any:
    """Return a number as Ethereum writes it."""
    return f"{int.from_bytes(item, 'big'):#x}" if isinstance(item, bytes) else render_data(item)


def _render_items(shape: Shape, item: Item) -> Any:
    return [shape(part) for part in item] if isinstance(item, list) else render_data(item)


def _render_fields(declared: str, item: Item) -> Any:
    """Return an object of items.

    Names that end with `#` are of quantities, and fields without a name have their places.
    """
    if not isinstance(item, list):
        return render_data(item)
    document = {}
    names = declared.split()
    for place, part in enumerate(item):
        name = names[place] if place < len(names) else str(place)
        shape = render_quantity if name.endswith("#") else _SHAPES.get(name, render_data)
        document[name.removesuffix("#")] = shape(part)
    return document


def _render_transaction(item: Item) -> Any:
    if isinstance(item, list):
        return {"type": "0x0", **_render_fields(layout.LEGACY, item)}
    if not item or item[0] not in layout.TYPED:
        raise view.UnknownBytesError(
            f"a transaction of type {item[:1].hex() or 'missing'}, expected 1 to {max(layout.TYPED)}"
        )
    fields = _render_fields(layout.TYPED[item[0]], read_rlp(item[1:]))
    return {"type": f"{item[0]:#x}", **(fields if isinstance(fields, dict) else {"data": fields})}


def _render_receipt(item: Item) -> Any:
    return _render_fields(layout.OLD_RECEIPTS.get(len(item), layout.RECEIPT), item)


_SHAPES: Mapping[str, Shape] = {
    "to": lambda item: render_data(item) if item else None,
    "status": lambda item: render_data(item) if len(item) == layout.HASH_SIZE else render_quantity(item),
    "transactions": partial(_render_items, _render_transaction),
    **{name: partial(_render_items, partial(_render_fields, declared)) for name, declared in layout.LISTS.items()},
}
"""Fields that are neither plain data nor quantities."""


def _read_rlp_value(shape: Shape, value: bytes) -> dict[str, Any]:
    """Return the column `value` of RLP."""
    return {"value": to_json(shape(read_rlp(value)))}


def _read_header(value: bytes) -> dict[str, Any]:
    item = read_rlp(value)
    header = _render_fields(layout.HEADER_FIELDS, item)
    stamp = header.get("timestamp") if isinstance(header, dict) else None
    time = int(stamp, 16) if isinstance(stamp, str) else layout.LATEST
    return {"value": to_json(header), "time": time * 1_000_000 if time < layout.LATEST else None}


def _read_hash(value: bytes) -> dict[str, Any]:
    return {"hash": render_data(value)}


def _read_number(value: bytes) -> dict[str, Any]:
    """Return the number of a block."""
    if len(value) > layout.NUMBER_SIZE or int.from_bytes(value, "big") >> 63:
        raise view.UnknownBytesError(f"{len(value)} bytes, expected a number of less than 64 bits")
    return {"number": int.from_bytes(value, "big")}


def _read_lookup(value: bytes) -> dict[str, Any]:
    """Return the block of a transaction: its number, its hash, or both and the transaction's place."""
    if len(value) == layout.HASH_SIZE:
        return _read_hash(value)
    if len(value) > layout.HASH_SIZE:
        return _read_rlp_value(partial(_render_fields, layout.LOOKUP_FIELDS), value)
    return _read_number(value)


def _read_json(value: bytes) -> dict[str, Any]:
    plain, wrong = view.decode_text(value, "utf-8")
    return {"value": plain, "reason": wrong}


def _read_nothing(value: bytes) -> dict[str, Any]:
    """Return no columns: the stored bytes are all that there is to say."""
    del value
    return {}


_BLOCKS: Mapping[bytes, tuple[str, Callable[[bytes], dict[str, Any]]]] = {
    layout.HEADER: ("header", _read_header),
    layout.BODY: ("body", partial(_read_rlp_value, partial(_render_fields, layout.BODY_FIELDS))),
    layout.RECEIPTS: ("receipts", partial(_read_rlp_value, partial(_render_items, _render_receipt))),
    layout.ACCESS_LIST: ("access_list", partial(_read_rlp_value, render_data)),
}
"""By the first byte of a key: what it has of a block, whose number and hash follow."""
_HASHES: Mapping[bytes, tuple[str, Callable[[bytes], dict[str, Any]]]] = {
    layout.HEADER_NUMBER: ("header_number", _read_number),
    layout.TRANSACTION: ("transaction", _read_lookup),
    layout.ACCOUNT: ("account", partial(_read_rlp_value, partial(_render_fields, layout.ACCOUNT_FIELDS))),
    layout.CODE: ("code", _read_nothing),
    layout.STATE_ID: ("state_id", _read_number),
    layout.PREIMAGE: ("preimage", _read_nothing),
    b"ethereum-config-": ("chain_config", _read_json),
    b"ethereum-genesis-": ("genesis", _read_json),
    b"clique-": ("clique_snapshot", _read_json),
}
"""How keys begin that end with a hash."""
_NAMES: Mapping[bytes, Callable[[bytes], dict[str, Any]]] = {
    **dict.fromkeys((b"LastHeader", b"LastBlock", b"LastFast", b"LastFinalized", b"SnapshotRoot"), _read_hash),
    **dict.fromkeys((b"DatabaseVersion", b"LastPivot"), partial(_read_rlp_value, render_quantity)),
    **dict.fromkeys((b"TransactionIndexTail", b"LastStateID", b"LastStateHistoryIndex"), _read_number),
    **dict.fromkeys(
        (b"unclean-shutdown", b"InvalidBlock", b"SnapshotGenerator"), partial(_read_rlp_value, render_data)
    ),
    **dict.fromkeys((b"SkeletonSyncStatus", b"SnapshotSyncStatus", b"eth2-transition"), _read_json),
    **dict.fromkeys(
        (b"TrieSync", b"SnapshotDisabled", b"SnapshotJournal", b"SnapshotRecovery", b"TrieJournal", b"SnapSyncStatus"),
        _read_nothing,
    ),
}
"""Keys that there is one of."""


_ROOM, _ROW_ROOM = 3, 96
"""Bytes of JSON for each byte of values and for each row, at first."""
_MOST_TEXT = 64 << 20
"""Bytes of JSON that are made at a time; where there are more, entries are decoded one by one."""


class Ethereum(view.ApplicationView):
    """View of the database of a chain: a row per header, body, list of receipts, transaction, account or node."""

    title = "go-ethereum's chaindata: kind, number, hash, path, name, time, value (JSON as in JSON-RPC)"
    directory: ClassVar = "/chaindata"
    own_key: ClassVar = b"|".join([*map(re.escape, _NAMES), b"ethereum-(config|genesis)-.*"])
    columns: ClassVar = view.make_columns("kind number:int hash path name time:time value")

    def decode_plain_rows(self, keys: pa.Array, values: pa.Array, context: Any) -> view.PlainRows | None:
        """Return all but settings, and values that are JSON already."""
        del context
        rows = len(keys)
        entries, contents = Strings(*view_binary(keys)), Strings(*view_binary(values))
        key_bytes, size = (int(part.offsets[-1] - part.offsets[0]) for part in (entries, contents))
        hashes, paths = view.TextColumn(rows, rows * k.HASH_TEXT), view.TextColumn(rows, rows + key_bytes)
        kinds, present = np.empty(rows, np.uint8), np.empty(rows, np.uint8)
        numbers, times, ends = np.zeros(rows, np.int64), np.zeros(rows, np.int64), np.zeros(rows + 1, np.int32)
        stack = np.empty(layout.MOST_NESTED, k.LEVEL)
        room, done = _ROOM * size + _ROW_ROOM * (rows + 1), 0
        text = Column(np.uint8, room)
        while True:
            columns = kinds, present, numbers, times, *hashes.buffers, *paths.buffers, text.values, ends, stack
            done = k.render_chain(entries, contents, k.Rendered(*columns), done)
            if done == rows:
                break
            room *= 2
            if room > _MOST_TEXT:
                return None
            longer = Column(np.uint8, room)
            longer.values[: ends[done]] = text.values[: ends[done]]
            text = longer
        has_number, has_hash, has_path, has_time, has_value = (
            present & column != 0 for column in (k.NUMBER, k.HASH, k.PATH, k.TIME, k.VALUE)
        )
        return view.PlainRows(
            kinds != k.DOUBTFUL,
            {
                "kind": convert_codes(kinds, k.KINDS),
                "number": make_array(numbers, pa.int64(), ~has_number),
                "hash": hashes.take(pa.string(), has_hash),
                "path": paths.take(pa.string(), has_path),
                "time": make_array(times, pa.int64(), ~has_time).view(self.columns.field("time").type),
                "value": view.make_text_array(pa.string(), text, ends, has_value),
            },
        )

    def decode(self, entry: view.Entry, context: Any) -> Mapping[str, Any]:
        """Return a key by its beginning and length; a value in RLP, JSON, or as it is."""
        del context
        row, read = _parse_key(entry.key)
        return {**view.read_columns(entry.value, read), **row}


def _parse_key(key: bytes) -> tuple[dict[str, Any], Callable[[bytes], dict[str, Any]]]:
    """Return columns of a key, and what reads its value."""
    if key in _NAMES:
        return {"kind": "setting", "name": key.decode("ascii")}, _NAMES[key]
    first, number = key[:1], {"number": int.from_bytes(key[1 : 1 + layout.NUMBER_SIZE], "big")}
    if first in (*_BLOCKS, layout.SKELETON) and number["number"] >> 63:
        return _parse_state_key(key)
    if len(key) == layout.BLOCK_SIZE and first in _BLOCKS:
        kind, read = _BLOCKS[first]
        return {"kind": kind, **number, "hash": render_data(key[1 + layout.NUMBER_SIZE :])}, read
    if len(key) == layout.BLOCK_SIZE + 1 and first == layout.HEADER and key.endswith(layout.DIFFICULTY):
        difficulty = partial(_read_rlp_value, render_quantity)
        return {"kind": "total_difficulty", **number, "hash": render_data(key[1 + layout.NUMBER_SIZE : -1])}, difficulty
    if len(key) == layout.NUMBER_SIZE + 2 and first == layout.HEADER and key.endswith(layout.CANONICAL):
        return {"kind": "canonical_hash", **number}, _read_hash
    if len(key) == layout.NUMBER_SIZE + 1 and first == layout.SKELETON:
        return {"kind": "skeleton_header", **number}, _read_header
    prefix, suffix = key[: -layout.HASH_SIZE], key[-layout.HASH_SIZE :]
    if prefix in _HASHES:
        kind, read = _HASHES[prefix]
        return {"kind": kind, "hash": render_data(suffix)}, read
    return _parse_state_key(key)


def _parse_state_key(key: bytes) -> tuple[dict[str, Any], Callable[[bytes], dict[str, Any]]]:
    """Return columns of a key of state or of an index, and what reads its value."""
    account, path = key[1 : 1 + layout.HASH_SIZE], key[1 + layout.HASH_SIZE :]
    if key[:1] == layout.STORAGE and len(path) == layout.HASH_SIZE:
        return {"kind": "storage", "hash": render_data(account), "path": render_data(path)}, partial(
            _read_rlp_value, render_data
        )
    if (
        key[:1] == layout.STORAGE_NODE
        and len(account) == layout.HASH_SIZE
        and all(nibble < layout.NIBBLE for nibble in path)
    ):
        return {"kind": "storage_node", "hash": render_data(account), "path": _render_path(path)}, _read_nothing
    if key[:1] == layout.ACCOUNT_NODE and all(nibble < layout.NIBBLE for nibble in key[1:]):
        return {"kind": "account_node", "path": _render_path(key[1:])}, _read_nothing
    if len(key) == layout.HASH_SIZE:
        return {"kind": "trie_node", "hash": render_data(key)}, _read_nothing
    if key.startswith(layout.INDEXES):
        return {"kind": "index"}, _read_nothing
    if key[:1] == layout.BLOOM_BITS and len(key) == layout.BLOOM_SIZE:
        return {"kind": "bloom_bits", "hash": render_data(key[-layout.HASH_SIZE :])}, _read_nothing
    raise view.UnknownBytesError("a key that is none of go-ethereum's chain database")


def _render_path(path: bytes) -> str:
    """Return a path in a trie, a hexadecimal digit per step."""
    return "".join(f"{nibble:x}" for nibble in path)

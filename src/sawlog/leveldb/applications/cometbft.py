"""View of the blocks of CometBFT, which Cosmos chains run on, and of Tendermint before it: by height, as protobuf."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import partial
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from sawlog.arrow import call_function, make_array, view_binary
from sawlog.leveldb.applications import view
from sawlog.leveldb.applications.protobuf import Messages, find_integer, make_message_columns
from sawlog.leveldb.applications.protobuf_kernels import DECIMAL, PLAIN_TEXT, find_integers
from sawlog.leveldb.applications.protobuf_rows import INTEGER, KeyPart, KeyPattern, KeyPatterns, MessageRows
from sawlog.leveldb.records.kernels import Strings

_KEY = re.compile(rb"(H|P|C|SC|EC):(\d{1,18})(?::(\d{1,9}))?")
"""Keys of the layout `v1`: what the entry has of a block, its height, and the number of a part."""
_KINDS = {
    b"H": ("meta", "BlockMeta"),
    b"P": ("part", "Part"),
    b"C": ("commit", "Commit"),
    b"SC": ("seen_commit", "Commit"),
    b"EC": ("extended_commit", "ExtendedCommit"),
}
_HASH_PREFIX = b"BH:"
STORE = b"blockStore"
_LATEST = 1 << 43
"""Seconds since 1970 that have a place in a column of times, at most."""
MESSAGES = Messages("""
Store: 1 base int, 2 height int
BlockMeta: 1 block_id BlockID, 2 block_size int, 3 header Header, 4 num_txs int
BlockID: 1 hash bytes, 2 part_set_header PartSetHeader
PartSetHeader: 1 total uint, 2 hash bytes
Header: 1 version Consensus, 2 chain_id text, 3 height int, 4 time Timestamp, 5 last_block_id BlockID,
 6 last_commit_hash bytes, 7 data_hash bytes, 8 validators_hash bytes, 9 next_validators_hash bytes,
 10 consensus_hash bytes, 11 app_hash bytes, 12 last_results_hash bytes, 13 evidence_hash bytes,
 14 proposer_address bytes
Consensus: 1 block uint, 2 app uint
Timestamp: 1 seconds int, 2 nanos int
Part: 1 index uint, 2 bytes bytes, 3 proof Proof
WholePart: 1 index uint, 2 block Block, 3 proof Proof
Proof: 1 total int, 2 index int, 3 leaf_hash bytes, 4 aunts bytes*
Block: 1 header Header, 2 data Data, 3 evidence Evidence, 4 last_commit Commit
Data: 1 txs bytes*
Evidence: 1 evidence bytes*
Commit: 1 height int, 2 round int, 3 block_id BlockID, 4 signatures Signature*
ExtendedCommit: 1 height int, 2 round int, 3 block_id BlockID, 4 extended_signatures Signature*
Signature: 1 block_id_flag BLOCK_ID_FLAG_UNKNOWN|BLOCK_ID_FLAG_ABSENT|BLOCK_ID_FLAG_COMMIT|BLOCK_ID_FLAG_NIL,
 2 validator_address bytes, 3 timestamp Timestamp, 4 signature bytes, 5 extension bytes, 6 extension_signature bytes
""")
_TIME = {"seconds": ("header", "time", "seconds"), "nanos": ("header", "time", "nanos")}
_MESSAGE_ROWS = MessageRows(
    MESSAGES,
    {
        "Store": {},
        **{name: {} if name in ("Commit", "ExtendedCommit") else _TIME for _, name in _KINDS.values()},
        "WholePart": {name: ("block", *path) for name, path in _TIME.items()},
    },
    has_integers=True,
)
_MOST_PART = 10**9
"""Numbers of parts are below."""
_VERSION = b"version"
_KEYS = KeyPatterns(
    [
        KeyPattern(STORE, "store", (), "Store"),
        KeyPattern(_VERSION, "version", (), PLAIN_TEXT),
        KeyPattern(_HASH_PREFIX, "hash", (KeyPart("hash", "ascii"),), DECIMAL),
        *(
            KeyPattern(start + b":", kind, parts, message)
            for start, (kind, message) in _KINDS.items()
            for parts in [
                (KeyPart("height", "int", b":"), KeyPart("part", "int"))
                if kind == "part"
                else (KeyPart("height", "int"),)
            ]
        ),
    ],
    _MESSAGE_ROWS,
)
_TOTAL_TAGS = np.array([3 << 3 | 2, 1 << 3], np.int64)
"""Tags of a part's proof, and of the number of parts in it."""


class CometBFT(view.ApplicationView):
    """View of a block store: a row per block's metadata, part, commit, or hash."""

    title = "CometBFT's block store (Cosmos): kind, height, part, hash, time, value (JSON)"
    directory: ClassVar = "/blockstore.db"
    own_key: ClassVar = STORE
    columns: ClassVar = view.make_columns("kind height:int part:int hash time:time value")

    def decode_plain_rows(self, keys: pa.Array, values: pa.Array, context: Any) -> view.PlainRows:
        """Return entries whose fields ascend, as the application writes them."""
        del context
        stored = _KEYS.read(keys)
        roots, are_parts = stored.roots, stored.are_of("part")
        totals = np.empty(len(keys), np.int64)
        find_integers(Strings(*view_binary(values)), _TOTAL_TAGS, totals)
        roots[are_parts & (totals == 1)] = _MESSAGE_ROWS.nodes["WholePart"]
        rendered = _MESSAGE_ROWS.render(values, roots)
        part, height, seconds = (
            stored.select_numbers("part"),
            stored.select_numbers("height"),
            rendered.select_numbers("seconds"),
        )
        is_plain = rendered.is_plain & (part >= 0) & (part < _MOST_PART) & (height >= 0)
        has_time = rendered.are_there("seconds") & (seconds <= _LATEST) & (seconds >= -_LATEST)
        nanos = np.where(rendered.are_there("nanos"), rendered.select_numbers("nanos"), 0)
        times = np.where(has_time, seconds, 0) * 1_000_000 + nanos // 1_000
        columns = {
            "kind": stored.kinds,
            "height": call_function("coalesce", stored.make_integers("height"), rendered.make_integers(INTEGER)),
            "part": stored.make_integers("part"),
            "hash": stored.make_texts("hash"),
            "time": make_array(times, pa.int64(), ~has_time).view(self.columns.field("time").type),
            "value": rendered.make_values(~stored.are_of("hash")),
        }
        return view.PlainRows(is_plain, columns)

    def decode(self, entry: view.Entry, context: Any) -> Mapping[str, Any]:
        """Return a height in decimal digits; a message in protobuf."""
        del context
        if entry.key == STORE:
            return {"kind": "store"} | view.read_columns(entry.value, partial(MESSAGES.show, name="Store"))
        if entry.key == _VERSION:
            return {"kind": "version"} | view.read_columns(entry.value, partial(view.read_text, "value"))
        if entry.key.startswith(_HASH_PREFIX):
            name = entry.key[len(_HASH_PREFIX) :].decode("ascii", "backslashreplace")
            columns = view.read_columns(entry.value, partial(view.read_integer, "height"))
            return {"kind": "hash", "hash": name} | columns
        match = _KEY.fullmatch(entry.key)
        if match is None:
            raise view.UnknownBytesError("a key that is none of a block store with the layout v1")
        start, height, part = match.groups()
        kind, name = _KINDS[start]
        row = {"kind": kind, "height": int(height), "part": None if part is None else int(part)}
        return row | view.read_columns(entry.value, partial(_read_message, name))


def _read_message(name: str, value: bytes) -> dict[str, Any]:
    """Return a message, and the time of the block's header; the part that is a whole block is shown as one."""
    message, reason = MESSAGES.read(value, name)
    path: tuple[str, ...] = ("header",)
    if name == "Part" and find_integer(message, "proof", "total") == 1:
        path = ("block", "header")
        message, reason = MESSAGES.read(value, "WholePart")
    seconds, nanos = (find_integer(message, *path, "time", unit) for unit in ("seconds", "nanos"))
    time = None if seconds is None or abs(seconds) > _LATEST else seconds * 1_000_000 + (nanos or 0) // 1_000
    return make_message_columns(message, reason) | {"time": time}

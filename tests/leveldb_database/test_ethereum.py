"""Databases of go-ethereum, in LevelDB and Pebble, with what it shows of their blocks: `tests/interop/ethereum`."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

import sawlog
from sawlog.leveldb.applications.ethereum import Ethereum, read_rlp
from sawlog.leveldb.applications.view import Entry, UnknownBytesError

GOLDEN = Path(os.environ.get("SAWLOG_CHAINS", Path(__file__).parents[1] / "golden" / "leveldb_database"))
"""`tests/interop/test_chains.py` has go-ethereum make others."""
PLACES = {engine: GOLDEN / f"geth-1.17.10-{engine}" for engine in ("leveldb", "pebble")}
DERIVED = ("hash", "blockHash", "blockNumber", "transactionIndex", "transactionHash", "contractAddress", "logsBloom")
"""Fields that go-ethereum works out."""


def read_chain(engine: str) -> list[dict[str, Any]]:
    return sawlog.read(PLACES[engine] / "chaindata", view="ethereum").to_pylist()


def read_truth(engine: str) -> list[dict[str, Any]]:
    blocks: list[dict[str, Any]] = json.loads((PLACES[engine] / "truth.json").read_text())
    return blocks


def without_derived(value: Any) -> Any:
    if isinstance(value, list):
        return [without_derived(item) for item in value]
    if isinstance(value, dict):
        return {name: without_derived(item) for name, item in value.items() if name not in DERIVED}
    return value


@pytest.mark.parametrize("engine", PLACES)
def test_blocks_are_what_the_node_shows_of_them(engine: str) -> None:
    entries = read_chain(engine)
    assert not [row for row in entries if row["reason"]]
    rows_by_key = {(row["kind"], row["hash"]): row for row in entries if row["hash"]}
    for number, block in enumerate(read_truth(engine)):
        header, body, receipts = (rows_by_key[kind, block["hash"]] for kind in ("header", "body", "receipts"))
        assert header["number"] == body["number"] == receipts["number"] == number
        header_fields = {name: field for name, field in block["header"].items() if name != "hash" and field is not None}
        assert json.loads(header["value"]) == header_fields
        assert header["time"].timestamp() == int(header_fields["timestamp"], 16)
        transactions = json.loads(body["value"])["transactions"]
        for ours, theirs in zip(transactions, block["transactions"] or [], strict=True):
            assert ours == {name: theirs[name] for name in ours}
            assert {name for name in theirs.keys() - ours if theirs[name] is not None} <= {"hash", "chainId", "v"}
            assert (rows_by_key["transaction", theirs["hash"]]["number"]) == number
        logs = [receipt["logs"] for receipt in json.loads(receipts["value"])]
        assert logs == [
            [{name: log[name] for name in ("address", "topics", "data")} for log in receipt["logs"]]
            for receipt in block["receipts"] or []
        ]
        for ours, theirs in zip(json.loads(receipts["value"]), block["receipts"] or [], strict=True):
            assert (ours["status"], ours["cumulativeGasUsed"]) == (theirs["status"], theirs["cumulativeGasUsed"])
        assert rows_by_key["header_number", block["hash"]]["number"] == number
    canonical = {row["number"]: row["hash"] for row in entries if row["kind"] == "canonical_hash"}
    assert canonical == {number: block["hash"] for number, block in enumerate(read_truth(engine))}


@pytest.mark.parametrize("engine", PLACES)
def test_settings_and_state_are_decoded(engine: str) -> None:
    entries = read_chain(engine)
    settings = {row["name"]: row for row in entries if row["kind"] == "setting"}
    assert settings["LastBlock"]["hash"] == settings["LastHeader"]["hash"] == read_truth(engine)[-1]["hash"]
    assert settings["DatabaseVersion"]["value"] == '"0x9"'
    assert settings["TransactionIndexTail"]["number"] == 0
    (config,) = (json.loads(row["value"]) for row in entries if row["kind"] == "chain_config")
    assert config["chainId"] == 1
    (account,) = (json.loads(row["value"]) for row in entries if row["kind"] == "account")
    assert (account["nonce"], account["balance"]) == ("0x3", "0x5")
    (storage,) = (row for row in entries if row["kind"] == "storage")
    assert (storage["path"], storage["value"]) == ("0x01" + "00" * 31, '"0x0102"')
    (code,) = (row for row in entries if row["kind"] == "code")
    assert (code["value"], code["raw_value"]) == (None, bytes.fromhex("60016002"))


@pytest.mark.parametrize("engine", PLACES)
def test_the_view_is_named(engine: str) -> None:
    assert sawlog.open(PLACES[engine] / "chaindata").info()["decoded by"] == "--view ethereum"


@pytest.mark.parametrize(
    ("data", "item"),
    [
        ("83646f67", b"dog"),
        ("c88363617483646f67", [b"cat", b"dog"]),
        ("80", b""),
        ("c0", []),
        ("0f", b"\x0f"),
        ("820400", b"\x04\x00"),
        ("c7c0c1c0c3c0c1c0", [[], [[]], [[], [[]]]]),
        ("b838" + "61" * 56, b"a" * 56),
        ("f83a" + "b838" + "61" * 56, [b"a" * 56]),
    ],
)
def test_rlp_is_as_its_definition_has_it(data: str, item: Any) -> None:
    assert read_rlp(bytes.fromhex(data)) == item


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        ("", "byte of 1 bytes at byte 0"),
        ("8361", "string of 3 bytes at byte 1, where 1 are left"),
        ("bfffffffffffffffff", "string of 18446744073709551615 bytes"),
        ("ffffffffffffffffff", "list of 18446744073709551615 bytes"),
        ("b8", "length of 1 bytes at byte 1"),
        ("c18363", "an item that ends after its list|string of 3 bytes"),
        ("c283616263", "an item that ends after its list"),
        ("8080", "1 bytes after the end"),
        ("c1" * 40 + "c0", "deeper than 16|list of"),
    ],
)
def test_rlp_that_is_none_is_refused(data: str, reason: str) -> None:
    with pytest.raises(UnknownBytesError, match=reason):
        read_rlp(bytes.fromhex(data))


@pytest.mark.parametrize(
    ("key", "row"),
    [
        (b"h" + bytes(7) + b"\x05" + b"\x01" * 32 + b"t", {"kind": "total_difficulty", "number": 5}),
        (b"A" + bytes([1, 15]), {"kind": "account_node", "path": "1f"}),
        (b"O" + b"\x02" * 32 + bytes([3]), {"kind": "storage_node", "hash": "0x" + "02" * 32, "path": "3"}),
        (b"\xff" * 32, {"kind": "trie_node", "hash": "0x" + "ff" * 32}),
        (b"secure-key-" + b"\x03" * 32, {"kind": "preimage", "hash": "0x" + "03" * 32}),
        (b"fm-R", {"kind": "index"}),
    ],
)
def test_keys_are_told_apart_by_their_beginning_and_length(key: bytes, row: dict[str, Any]) -> None:
    decoded = dict(Ethereum().decode(Entry(key, None, 1), None))
    assert {name: decoded.get(name) for name in row} == row


def test_headers_whose_time_is_none_are_shown() -> None:
    key = b"h" + bytes(8) + b"\x01" * 32
    for stamp, time in (("c0", None), ("8400000001", 1_000_000), ("88ffffffffffffffff", None)):
        header = bytes.fromhex("80" * 11 + stamp)
        row = Ethereum().decode(Entry(key, bytes([0xC0 + len(header)]) + header, 1), None)
        assert (row["kind"], row["time"], row.get("reason")) == ("header", time, None)
    with pytest.raises(UnknownBytesError):
        Ethereum().decode(Entry(b"h" + b"\xff" * 8 + b"\x01" * 32, b"\xc0", 1), None)


def test_older_receipts_and_lookups_are_decoded() -> None:
    """Those of database version 3 have seven fields; a lookup was a hash, or a hash and two numbers."""
    receipt = bytes.fromhex("c8 c7 01 52 80 a0".replace("a0", "80") + "808001")
    key = b"r" + bytes(8) + b"\x01" * 32
    (receipt_row,) = json.loads(Ethereum().decode(Entry(key, receipt, 1), None)["value"])
    assert (receipt_row["status"], receipt_row["cumulativeGasUsed"], receipt_row["gasUsed"]) == ("0x1", "0x52", "0x1")
    lookup = Ethereum().decode(Entry(b"l" + b"\x02" * 32, b"\x01" * 32, 1), None)
    assert lookup["kind"] == "transaction"

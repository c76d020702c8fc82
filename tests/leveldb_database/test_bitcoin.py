"""Bitcoin Core's databases: its published vectors, and databases that LevelDB has written of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import sawlog
from sawlog.leveldb.applications.bitcoin import decompress_amount, read_script, read_varint
from sawlog.leveldb.applications.view import Cursor
from tests.leveldb_database.support import COINS, OBFUSCATION, TXID, make_bitcoin_database, obfuscate

from .support import GENESIS

GENESIS_HASH = "000000000019d6689c085ae165831e934ff763ae46a2a6c172b3f1b60a8ce26f"


def read_view(path: Path, view: str, **options: Any) -> list[dict[str, Any]]:
    return sawlog.read(path, view=view, **options).to_pylist()


def test_coins_are_those_of_the_published_vectors(tmp_path: Path) -> None:
    coins = {b"C" + TXID + bytes([index]): obfuscate(bytes.fromhex(value)) for index, value in enumerate(COINS)} | {
        b"B": obfuscate(TXID)
    }
    path = make_bitcoin_database(tmp_path / "chainstate", OBFUSCATION | coins)
    assert sawlog.open(path).info()["decoded by"] == "--view bitcoin_chainstate"
    rows = read_view(path, "bitcoin_chainstate")
    assert not [row for row in rows if row["reason"]]
    assert [
        (row["height"], row["coinbase"], row["amount"], row["script"].hex()) for row in rows if row["kind"] == "coin"
    ] == list(COINS.values())
    assert {(row["txid"], row["output"]) for row in rows if row["kind"] == "coin"} == {
        (TXID[::-1].hex(), 0),
        (TXID[::-1].hex(), 1),
    }
    assert [row["blocks"] for row in rows if row["kind"] == "best_block"] == [[TXID[::-1].hex()]]


def test_a_spent_coin_is_in_the_history(tmp_path: Path) -> None:
    key, value = b"C" + TXID + b"\0", obfuscate(bytes.fromhex(next(iter(COINS))))
    path = make_bitcoin_database(tmp_path / "chainstate", OBFUSCATION | {key: value})
    make_bitcoin_database(path, {key: None})
    rows = [row for row in read_view(path, "bitcoin_chainstate", history=True) if row["kind"] == "coin"]
    assert [(row["operation"], row["amount"], row["output"]) for row in rows] == [
        ("delete", None, 0),
        ("put", 60000000000, 0),
    ]


def test_a_script_that_cannot_be_expanded_costs_itself(tmp_path: Path) -> None:
    """No point of the curve has the coordinate 5: the other columns of the coin stay."""
    stored = bytes([4]) + (5).to_bytes(32, "big")
    path = make_bitcoin_database(
        tmp_path / "chainstate", OBFUSCATION | {b"C" + TXID + b"\0": obfuscate(b"\x07\x09" + stored)}
    )
    (row,) = [row for row in read_view(path, "bitcoin_chainstate") if row["kind"] == "coin"]
    assert (row["height"], row["coinbase"], row["amount"], row["script"]) == (3, True, 10**8, stored)
    assert row["reason"] == "value: a public key that is not on the curve: the script is as it is stored"


@pytest.mark.parametrize(
    ("code", "satoshis"),
    [(0, 0), (1, 1), (7, 10**6), (9, 10**8), (0x32, 50 * 10**8), (0x1406F40, 21_000_000 * 10**8)],
)
def test_amounts_are_those_of_compress_tests(code: int, satoshis: int) -> None:
    assert decompress_amount(code) == satoshis


@pytest.mark.parametrize(
    ("data", "value"),
    [
        ("00", 0),
        ("7f", 0x7F),
        ("8000", 0x80),
        ("a334", 0x1234),
        ("82fe7f", 0xFFFF),
        ("8efefeff00", 2**32),
    ],
)
def test_varints_are_those_of_serialize_tests(data: str, value: int) -> None:
    cursor = Cursor(bytes.fromhex(data))
    assert read_varint(cursor) == value
    cursor.check_end()


def test_public_keys_are_uncompressed() -> None:
    """The output of the genesis block."""
    key = (
        "678afdb0fe5548271967f1a67130b7105cd6a828e03909a67962e0ea1f61deb6"
        "49f6bc3f4cef38c4f35504e51ec112de5c384df7ba0b8d578a4c702b6bf11d5f"
    )
    script = read_script(Cursor(bytes.fromhex("05" + key[:64])))
    assert script == ("p2pk", bytes.fromhex("4104" + key + "ac"))


def test_blocks_files_and_transactions_are_decoded(tmp_path: Path) -> None:
    entries = {
        b"b" + bytes.fromhex(GENESIS_HASH)[::-1]: bytes.fromhex("8fee3c 00 0d 01 00 08") + GENESIS,
        b"f\0\0\0\0": bytes.fromhex("01 8000 00 00 00 83dfcfd429 83dfcfd429"),
        b"l": bytes(4),
        b"R": b"1",
        b"F\x07txindex": b"1",
        b"t" + TXID: bytes.fromhex("01 08 50"),
        b"x": b"?",
    }
    path = make_bitcoin_database(tmp_path / "index", entries)
    assert sawlog.open(path).info()["decoded by"] == "--view bitcoin_blocks"
    rows_by_kind = {row["kind"]: row for row in read_view(path, "bitcoin_blocks")}
    block = rows_by_kind["block"]
    assert (block["hash"], block["height"], block["file"], block["offset"]) == (GENESIS_HASH, 0, 0, 8)
    assert (block["time"], block["bits"], block["nonce"]) == (1231006505, 0x1D00FFFF, 2083236893)
    assert block["merkle_root"] == "4a5e1e4baab89f3a32518a88c31bc87f618f76673e2cc77ab2127b7afdeda33b"
    assert (rows_by_kind["file"]["blocks"], rows_by_kind["file"]["size"], rows_by_kind["file"]["file"]) == (1, 128, 0)
    assert (rows_by_kind["transaction"]["file"], rows_by_kind["transaction"]["offset"]) == (1, 8)
    assert (rows_by_kind["flag"]["name"], rows_by_kind["flag"]["value"], rows_by_kind["last_file"]["file"]) == (
        "txindex",
        "1",
        0,
    )
    assert rows_by_kind[None]["reason"] == "a key that begins with b'x'"


def test_the_history_of_an_index_has_files_of_blocks_and_those_of_the_database(tmp_path: Path) -> None:
    path = make_bitcoin_database(tmp_path / "index", {b"t" + TXID: bytes.fromhex("01 08 50")})
    make_bitcoin_database(path, {b"t" + TXID: None})
    rows = read_view(path, "bitcoin_blocks", history=True)
    assert [(row["operation"], row["file"]) for row in rows] == [("delete", None), ("put", 1)]
    assert all(row["raw_file"].endswith((".log", ".ldb")) for row in rows)


REAL = Path(__file__).parents[1] / "golden" / "leveldb_database" / "bitcoin-knots-29.4"
"""A chain of its own that a node has made, and what the node said of it over RPC: see the README there."""


@pytest.fixture(scope="module")
def truth() -> dict[str, Any]:
    document: dict[str, Any] = json.loads((REAL / "truth.json").read_text("utf-8"))
    return document


def decoded(database: str, view: str) -> list[dict[str, Any]]:
    assert sawlog.open(REAL / database).info()["decoded by"] == f"--view {view}"
    rows = read_view(REAL / database, view)
    assert not [row for row in rows if row["reason"]]
    return rows


def test_coins_are_those_of_the_node(truth: dict[str, Any]) -> None:
    rows = decoded("chainstate", "bitcoin_chainstate")
    names = ("txid", "output", "height", "coinbase", "amount")
    coins = {(*(row[name] for name in names), row["script"].hex()) for row in rows if row["kind"] == "coin"}
    assert coins == {(*place, script) for *place, _, script in truth["coins"]}
    assert len({kind for *_, kind, _ in truth["coins"]}) == 7
    assert len(coins) == truth["sums"]["txouts"]
    assert sum(amount for *_, amount, _ in coins) == round(truth["sums"]["total_amount"] * 100_000_000)
    assert [row["blocks"] for row in rows if row["kind"] == "best_block"] == [[truth["sums"]["bestblock"]]]
    history = read_view(REAL / "chainstate", "bitcoin_chainstate", history=True)
    assert {row["operation"] for row in history} == {"put", "delete"}
    assert not [row for row in history if row["reason"]]


def test_blocks_are_those_of_the_node(truth: dict[str, Any]) -> None:
    """With one that another took the place of, and one of which only the header is known."""
    blocks_by_hash = {row["hash"]: row for row in decoded("blocks/index", "bitcoin_blocks") if row["kind"] == "block"}
    names = ("height", "version", "merkle_root", "time", "nonce", "bits", "transactions")
    known_blocks = {name: [row[name] for name in names] for name, row in blocks_by_hash.items()}
    expected = {
        name: [height, version, merkle, time, nonce, int(bits, 16), transactions]
        for name, (height, version, merkle, time, nonce, bits, transactions) in truth["blocks"].items()
    }
    assert known_blocks == expected
    assert set(truth["tips"].values()) == {"active", "valid-fork", "headers-only"}
    assert {name: row["offset"] for name, row in blocks_by_hash.items() if row["offset"] is not None} == truth["places"]
    heights = {row["height"]: name for name, row in blocks_by_hash.items() if name not in truth["tips"]}
    assert all(row["previous"] == heights[row["height"] - 1] for row in blocks_by_hash.values() if row["height"])


def test_transactions_are_where_the_node_put_them(truth: dict[str, Any]) -> None:
    """All but the first, which nobody can spend; and that of a block that another took the place of."""
    rows = decoded("indexes/txindex", "bitcoin_blocks")
    places = {
        row["hash"]: (row["file"], row["offset"], row["transaction_offset"])
        for row in rows
        if row["kind"] == "transaction"
    }
    replaced = {name for name, state in truth["tips"].items() if state == "valid-fork"}
    stored = {truth["blocks"][name][0]: place for name, place in truth["places"].items() if name not in replaced}
    expected = {name: (0, stored[height], start) for name, (height, start) in truth["transactions"].items() if height}
    assert {name: place for name, place in places.items() if name in truth["transactions"]} == expected
    remaining_places = [place for name, place in places.items() if name not in truth["transactions"]]
    assert remaining_places == [(0, truth["places"][name], 1) for name in replaced]
    assert [row["hash"] for row in rows if row["kind"] == "best_block"] == [truth["sums"]["bestblock"]]

"""Block store of CometBFT, with what it shows of its blocks: `tests/interop/cometbft`."""

from __future__ import annotations

import base64
import json
import os
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

import sawlog
from sawlog.leveldb.applications.cometbft import CometBFT
from sawlog.leveldb.applications.view import Entry, UnknownBytesError

PLACE = (
    Path(os.environ.get("SAWLOG_CHAINS", Path(__file__).parents[1] / "golden" / "leveldb_database"))
    / "cometbft-0.38.17"
)
"""`tests/interop/test_chains.py` has CometBFT make another one."""
NUMBERS = ("block", "app", "height", "block_size", "num_txs", "total", "round")
TEXT = ("chain_id",)
FLAGS = ["BLOCK_ID_FLAG_UNKNOWN", "BLOCK_ID_FLAG_ABSENT", "BLOCK_ID_FLAG_COMMIT", "BLOCK_ID_FLAG_NIL"]


def stored(value: Any, name: str = "") -> Any:
    """What CometBFT shows, as protobuf has it: without what is zero or empty."""
    if isinstance(value, dict):
        fields = {inner: stored(field, inner) for inner, field in value.items()}
        return {("part_set_header" if inner == "parts" else inner): field for inner, field in fields.items() if field}
    if isinstance(value, list):
        return [stored(item, name) for item in value]
    if name in ("time", "timestamp"):
        seconds = datetime.fromisoformat(value[:19] + "+00:00").timestamp()
        nanos = int(value[20:-1] or 0)
        return {"seconds": int(seconds)} | ({"nanos": nanos} if nanos else {})
    if name in NUMBERS:
        return int(value)
    if name == "block_id_flag":
        return FLAGS[value]
    if not value or name in TEXT:
        return value
    data = base64.b64decode(value) if name in ("signature", "txs") else bytes.fromhex(value)
    return {"$bytes": base64.b64encode(data).decode()}


def without_empty(value: Any) -> Any:
    if isinstance(value, dict):
        fields = {name: without_empty(field) for name, field in value.items()}
        return {name: field for name, field in fields.items() if field not in ({}, [], 0, "", {"$bytes": ""})}
    return [without_empty(item) for item in value] if isinstance(value, list) else value


def read_blocks() -> dict[tuple[str, int, int | None], dict[str, Any]]:
    entries = sawlog.read(PLACE / "blockstore.db", view="cometbft_blocks").to_pylist()
    assert not [row for row in entries if row["reason"]]
    return {(row["kind"], row["height"], row["part"]): row for row in entries}


def test_blocks_are_what_the_node_shows_of_them() -> None:
    entries = read_blocks()
    truth = json.loads((PLACE / "truth.json").read_text())
    for height, table_row in enumerate(truth, 1):
        meta = entries["meta", height, None]
        assert without_empty(json.loads(meta["value"])) == stored(table_row["meta"])
        assert meta["time"].isoformat() == table_row["meta"]["header"]["time"][:26] + "+00:00"
        assert without_empty(json.loads(entries["seen_commit", height, None]["value"])) == stored(table_row["seen"])
        if "block" in table_row:
            block = json.loads(entries["part", height, 0]["value"])["block"]
            assert without_empty(block) == stored(table_row["block"])
        hashes = {row["hash"] for kind, _, _ in entries if kind == "hash" for row in [entries[kind, height, None]]}
        assert hashes == {table_row["meta"]["block_id"]["hash"].lower()}
    last = json.loads(entries["meta", len(truth), None]["value"])
    parts = [entries["part", len(truth), place] for place in range(last["block_id"]["part_set_header"]["total"])]
    data = b"".join(base64.b64decode(json.loads(part["value"])["bytes"]["$bytes"]) for part in parts)
    assert (len(data), len(parts)) == (last["block_size"], 2)
    assert json.loads(entries["store", None, None]["value"]) == {"base": 1, "height": len(truth)}  # type: ignore[index]


def test_the_view_is_named() -> None:
    assert sawlog.open(PLACE / "blockstore.db").info()["decoded by"] == "--view cometbft_blocks"


@pytest.mark.parametrize("key", [b"H:", b"H:x", b"P:1:2:3", b"C:" + b"9" * 19, b"\x80\x81"])
def test_keys_that_are_none_are_refused(key: bytes) -> None:
    with pytest.raises(UnknownBytesError, match="layout v1"):
        CometBFT().decode(Entry(key, b"", 1), None)


def test_a_height_that_is_none_is_a_reason() -> None:
    row = CometBFT().decode(Entry(b"BH:ab", b"x1", 1), None)
    assert (row["kind"], row["hash"], row["reason"]) == (
        "hash",
        "ab",
        "value: b'x1', expected an integer in decimal digits",
    )

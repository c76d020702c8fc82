"""Have a bitcoind make a small chain, and keep its databases with what it says of them over RPC.

`python tests/interop/bitcoin/make_chain.py TARGET BITCOIND...`: the program, and what is to be put before it, if
anything. It runs on a chain of its own (regtest) and talks to nobody. It is stopped once in between, so that coins are
spent in other files than those that they were made in.
"""

from __future__ import annotations

import base64
import hashlib
import json
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

PORT = 28443
MAGIC = bytes.fromhex("fabfb5da")
HEADER_SIZE = 80
PUBLIC_KEY = (
    "0479be667ef9dcbbac55a06295ce870b07029bfcdb2dce28d959f2815b16f81798"
    "483ada7726a3c4655da4fbfc0e1108a8fd17b448a68554199c47d08ffb10d4b8"
)
OTHER_KEY = "03c6047f9441ed7d6d3045406e95c07cd85c778e4b8cef3ca7abac09b95c709ee5"
SCRIPTS = (f"pk({PUBLIC_KEY})", f"pk({OTHER_KEY})", f"multi(1,{OTHER_KEY},{PUBLIC_KEY})", "raw(51)")
KINDS = ("legacy", "p2sh-segwit", "bech32", "bech32m")
MATURE = 101
"""Blocks until the first reward may be spent."""
DATABASES = ("chainstate", "blocks/index", "indexes/txindex")
PROGRAM = ("-regtest", "-server", "-txindex", "-listen=0", "-connect=0", "-dnsseed=0", "-fallbackfee=0.0001")


class Node:
    """What a running node answers."""

    def __init__(self, directory: Path) -> None:
        self._cookie = directory / "regtest" / ".cookie"

    def ask(self, method: str, *parameters: Any, seconds: float = 60) -> Any:
        token = base64.b64encode(self._cookie.read_bytes()).decode()
        body = json.dumps({"jsonrpc": "2.0", "id": 0, "method": method, "params": parameters}).encode()
        headers = {"Authorization": f"Basic {token}", "Content-Type": "application/json"}
        request = urllib.request.Request(f"http://127.0.0.1:{PORT}/", body, headers)
        with urllib.request.urlopen(request, timeout=seconds) as answer:
            document = json.load(answer)
        if "error" in document:
            raise ConnectionError(f"{method}: {document['error']}")
        return document["result"]


@contextmanager
def running(command: list[str], directory: Path) -> Iterator[Node]:
    arguments = [*command, *PROGRAM, f"-datadir={directory}", f"-rpcport={PORT}"]
    with subprocess.Popen(arguments, stdout=subprocess.DEVNULL) as process:
        node = Node(directory)
        for _ in range(600):
            try:
                node.ask("getblockcount", seconds=1)
                break
            except OSError:
                time.sleep(0.1)
        try:
            yield node
            node.ask("stop")
            process.wait(60)
        finally:
            process.kill()


def begin(node: Node) -> None:
    """Rewards of every kind of script, and a block whose place another one takes."""
    node.ask("createwallet", "w")
    for kind in KINDS:
        node.ask("generatetoaddress", 2, node.ask("getnewaddress", "", kind))
    for script in SCRIPTS:
        checked = node.ask("getdescriptorinfo", script)["descriptor"]
        node.ask("generatetodescriptor", 1, checked)
    node.ask("generatetoaddress", MATURE, node.ask("getnewaddress"))
    stale = node.ask("getbestblockhash")
    node.ask("invalidateblock", stale)
    node.ask("generatetoaddress", 2, node.ask("getnewaddress"))
    node.ask("reconsiderblock", stale)


def go_on(node: Node) -> None:
    """Spend some of them, and learn of a block by its header only."""
    if "w" not in node.ask("listwallets"):
        node.ask("loadwallet", "w")
    amounts = (0.00000547, 0.1, 1, 1.23456789, 10, 20.5)
    for number, kind in enumerate(KINDS):
        outputs = [{node.ask("getnewaddress", "", kind): amount} for amount in amounts]
        outputs.append({"data": f"{number:02x}" * 20})
        node.ask("send", outputs)
        node.ask("generatetoaddress", 1, node.ask("getnewaddress"))
    unseen = node.ask("generateblock", node.ask("getnewaddress"), [], False)
    node.ask("submitheader", unseen["hex"][:160])
    node.ask("generatetoaddress", 1, node.ask("getnewaddress"))


def truth(node: Node) -> dict[str, Any]:
    """Coins, blocks and transactions, and the sums that the node makes of its coins."""
    blocks: dict[str, Any] = {}
    coins, transactions = [], {}
    tips = node.ask("getchaintips")
    height = node.ask("getblockcount")
    for number in range(height + 1):
        block = node.ask("getblock", node.ask("getblockhash", number), 2)
        blocks[block["hash"]] = node.ask("getblockheader", block["hash"])
        raw = node.ask("getblock", block["hash"], 0)
        for transaction in block["tx"]:
            transactions[transaction["txid"]] = [number, raw.index(transaction["hex"]) // 2 - HEADER_SIZE]
            for output in transaction["vout"]:
                coin = node.ask("gettxout", transaction["txid"], output["n"], False)
                if coin is not None:
                    satoshis, script = round(coin["value"] * 100_000_000), coin["scriptPubKey"]
                    place = transaction["txid"], output["n"], height + 1 - coin["confirmations"], coin["coinbase"]
                    coins.append([*place, satoshis, script["type"], script["hex"]])
    for tip in tips:
        blocks.setdefault(tip["hash"], node.ask("getblockheader", tip["hash"]))
    fields = ("height", "version", "merkleroot", "time", "nonce", "bits", "nTx")
    return {
        "version": node.ask("getnetworkinfo")["subversion"],
        "coins": coins,
        "blocks": {name: [block[field] for field in fields] for name, block in blocks.items()},
        "transactions": transactions,
        "tips": {tip["hash"]: tip["status"] for tip in tips},
        "sums": node.ask("gettxoutsetinfo", "none"),
    }


def places(directory: Path) -> dict[str, int]:
    """Where the blocks are in their file, by hash."""
    stored, key = (directory / "blk00000.dat").read_bytes(), (directory / "xor.dat").read_bytes()
    data = bytes(byte ^ key[index % len(key)] for index, byte in enumerate(stored[: 1 << 20]))
    offsets, offset = {}, 0
    while data[offset : offset + len(MAGIC)] == MAGIC:
        size, offset = int.from_bytes(data[offset + 4 : offset + 8], "little"), offset + 8
        digest = hashlib.sha256(hashlib.sha256(data[offset : offset + HEADER_SIZE]).digest()).digest()
        offsets[digest[::-1].hex()] = offset
        offset += size
    return offsets


def main(target: Path, command: list[str]) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        with running(command, Path(scratch)) as node:
            begin(node)
        with running(command, Path(scratch)) as node:
            go_on(node)
            document = truth(node)
        for database in DATABASES:
            unwanted = shutil.ignore_patterns("LOCK", "LOG", "LOG.old")
            shutil.copytree(Path(scratch, "regtest", database), target / database, ignore=unwanted)
        document["places"] = places(Path(scratch, "regtest", "blocks"))
    (target / "truth.json").write_text(json.dumps(document) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])

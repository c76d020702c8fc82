"""Every number of Bitcoin Core's databases."""

from __future__ import annotations

import struct

OBFUSCATION = b"\x0e\0obfuscate_key"
"""The key of what all other values are XORed with."""
COIN, BLOCK, TRANSACTION = b"C", b"b", b"t"
"""First bytes of the keys of most entries."""
FILE, LAST_FILE, FLAG, REINDEXING = b"f", b"l", b"F", b"R"
"""First bytes of those of other entries of an index."""
BEST_BLOCK, HEAD_BLOCKS = b"B", b"H"
"""Keys of the block that a database has come to, and of those between which it is while it is written."""
HASH_SIZE = 32

P2PKH, P2SH, P2PK, UNCOMPRESSED = 0, 1, (2, 3), (4, 5)
"""How a script is compressed; from `SPECIAL` on, by its size and that."""
SPECIAL = 6
SCRIPT_HASH_SIZE = 20
PUBLIC_KEY_SIZE = 32
P2PKH_PARTS = b"\x76\xa9\x14", b"\x88\xac"
"""What is before and after the hash in the script."""
P2SH_PARTS = b"\xa9\x14", b"\x87"
P2PK_PARTS = b"\x21", b"\xac"
"""Before the size by which a public key is compressed, and after its coordinate."""
UNCOMPRESSED_PARTS = b"\x41\x04", b"\xac"
"""Before and after both coordinates of a public key."""
FIELD = 2**256 - 2**32 - 977
"""The prime of secp256k1, whose points are y * y = x * x * x + 7."""
CURVE = 7
SCRIPT_TYPES = ("p2pkh", "p2sh", "p2pk", "other")
MOST_SCRIPT = 10_000
"""Longer scripts cannot be spent: they are not in a chainstate."""

HEADER = struct.Struct(f"<i{HASH_SIZE}s{HASH_SIZE}s3I")
"""Version, hash of the block before, root of transactions; time, difficulty, nonce."""
MAX_VARINT_BYTES = 10
VARINT_BITS = 63
HAVE_DATA, HAVE_UNDO = 8, 16
"""Bits of a block's status: it is in a file, and so is what undoes it."""

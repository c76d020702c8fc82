"""Every number and name of go-ethereum's chain database: keys, RLP, fields of values."""

from __future__ import annotations

HASH_SIZE, NUMBER_SIZE = 32, 8
"""Bytes of a hash, and of a block's number in a key, big-endian."""
BLOCK_SIZE = 1 + NUMBER_SIZE + HASH_SIZE
"""Of keys of what blocks have."""
HEADER, BODY, RECEIPTS, ACCESS_LIST = b"h", b"b", b"r", b"j"
"""First bytes of keys of what a block has; its number and hash follow."""
DIFFICULTY, CANONICAL = b"t", b"n"
"""Last bytes of keys that begin like those of headers: after the hash, and instead of it."""
SKELETON = b"S"
"""Before the number of a header that is being fetched."""
HEADER_NUMBER, TRANSACTION, ACCOUNT, CODE, STATE_ID, PREIMAGE = b"H", b"l", b"a", b"c", b"L", b"secure-key-"
"""Before a hash, which ends the key."""
STORAGE, STORAGE_NODE, ACCOUNT_NODE, BLOOM_BITS = b"o", b"O", b"A", b"B"
BLOOM_SIZE = 1 + 2 + NUMBER_SIZE + HASH_SIZE
"""Of keys of bloom bits, which end with a hash."""
INDEXES = (b"iB", b"fm-", b"m", b"update-", b"fixedRoot-", b"committee-")
"""How keys of indexes begin, whose values are not decoded."""
NIBBLE = 16
"""Bytes of a path in a trie are less."""
LATEST = 1 << 43
"""Seconds since 1970 that have a place in a column of times are less."""

STRING, LIST = 0x80, 0xC0
"""First bytes of RLP: from these on, strings and lists; bytes before are themselves."""
INLINE = 55
"""Strings and lists up to this size have it in their first byte."""
MOST_NESTED = 16
"""Deeper lists are refused: a block has fewer."""

# Names of fields, in order; those that end with `#` are of quantities.
HEADER_FIELDS = (
    "parentHash sha3Uncles miner stateRoot transactionsRoot receiptsRoot logsBloom difficulty# number# gasLimit# "
    "gasUsed# timestamp# extraData mixHash nonce baseFeePerGas# withdrawalsRoot blobGasUsed# excessBlobGas# "
    "parentBeaconBlockRoot requestsHash"
)
BODY_FIELDS = "transactions uncles withdrawals"
ACCOUNT_FIELDS = "nonce# balance# root codeHash"
LOOKUP_FIELDS = "blockHash number# transactionIndex#"
LEGACY = "nonce# gasPrice# gas# to value# input v# r# s#"
_FEES = "chainId# nonce# maxPriorityFeePerGas# maxFeePerGas# gas# to value# input accessList"
_SIGNATURE = "yParity# r# s#"
TYPED = {
    1: f"chainId# nonce# gasPrice# gas# to value# input accessList {_SIGNATURE}",
    2: f"{_FEES} {_SIGNATURE}",
    3: f"{_FEES} maxFeePerBlobGas# blobVersionedHashes {_SIGNATURE}",
    4: f"{_FEES} authorizationList {_SIGNATURE}",
}
"""Fields of transactions by the byte before their list; older ones have none."""
OLD_RECEIPTS = {
    6: "status cumulativeGasUsed# transactionHash contractAddress logs gasUsed#",
    7: "status cumulativeGasUsed# logsBloom transactionHash contractAddress logs gasUsed#",
}
"""Fields of receipts by their count, in database versions 4 and 3."""
RECEIPT = "status cumulativeGasUsed# logs"
LISTS = {
    "uncles": HEADER_FIELDS,
    "withdrawals": "index# validatorIndex# address amount#",
    "logs": "address topics data",
    "accessList": "address storageKeys",
    "authorizationList": "chainId# address nonce# yParity# r# s#",
}
"""Fields that are lists, and the fields of their items."""

"""FiloDB's hashes: XXH32, partition hashes, label hashing and shards. Sections 3 and 10.1 of the format.

They are made of numbers and text as Java has them. All results are signed 32-bit numbers, as in FiloDB. This is plain
Python for single values; the bulk paths hash in kernels.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from decimal import Decimal

import xxhash

from sawlog.errors import OptionError
from sawlog.filodb.layout import HASH_FACTOR, HASH_INIT, HASH_SEED


def wrap_signed(value: int) -> int:
    """Return the low 32 bits of a number, as a signed one."""
    return (value & 0xFFFFFFFF ^ 0x80000000) - 0x80000000


def hash_java_string(text: str) -> int:
    """Return `String.hashCode` of Java."""
    units = text.encode("utf-16-le")
    total = 0
    for index in range(0, len(units), 2):
        total = 31 * total + int.from_bytes(units[index : index + 2], "little")
    return wrap_signed(total)


def make_java_key(text: str) -> bytes:
    """Return a sort key that orders strings as Java does: by UTF-16 code units."""
    return text.encode("utf-16-be")


def render_java_double(value: float) -> str:
    """Return a double as Java prints it: plain from 0.001 up to 10 million, else with an exponent."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    exact = Decimal(repr(value))
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        text = f"{exact:f}"
        return text if "." in text else f"{text}.0"
    sign, digits, _ = exact.normalize().as_tuple()
    text = "".join(map(str, digits))
    return f"{'-' * sign}{text[0]}.{text[1:] or '0'}E{exact.adjusted()}"


def hash_bytes(data: bytes | bytearray | memoryview) -> int:
    """Return XXH32 with FiloDB's seed."""
    return wrap_signed(xxhash.xxh32_intdigest(data, HASH_SEED))


def combine(total: int, value: int) -> int:
    """Combine two hashes into one."""
    return wrap_signed(HASH_FACTOR * total + value)


def sort_and_compute_hashes(labels: Mapping[str, str] | Iterable[tuple[str, str]]) -> list[tuple[str, str, int]]:
    """Return labels in Java's order of their keys, each with the hash of its key and value."""
    pairs = labels.items() if isinstance(labels, Mapping) else labels
    ordered = sorted(pairs, key=lambda pair: make_java_key(pair[0]))
    return [(key, value, combine(hash_bytes(key.encode()), hash_bytes(value.encode()))) for key, value in ordered]


def combine_hash_excluding(hashed: Iterable[tuple[str, str, int]], exclude: Collection[str] = ()) -> int:
    """Return the hashes of `sort_and_compute_hashes` as one, without those of some keys."""
    total = HASH_INIT
    for key, _, value in hashed:
        if key not in exclude:
            total = combine(total, value)
    return total


def compute_ingestion_shard(shard_hash: int, partition_hash: int, num_shards: int, spread: int) -> int:
    """Return the shard of a series: the low bits from its shard key, `spread` bits above them from its partition key.

    Raises:
        OptionError: When `num_shards` is no power of two, or `spread` does not fit it.
    """
    bits = num_shards.bit_length() - 1
    if num_shards < 1 or num_shards != 1 << bits:
        raise OptionError(f"num_shards={num_shards}: expected a power of two")
    if not 0 <= spread <= bits:
        raise OptionError(f"spread={spread}: expected 0 to {bits} for {num_shards} shards")
    mask = (1 << bits - spread) - 1
    return shard_hash & mask | partition_hash & (num_shards - 1) & ~mask

"""FiloDB's hashes: XXH32, partition hashes, label hashing and shards. Sections 3 and 10.1 of the format.

All results are signed 32-bit numbers, as in FiloDB. This is plain Python for single values; the bulk paths hash in
kernels.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from sawlog.errors import OptionError
from sawlog.filodb_record.layout import HASH_FACTOR, HASH_INIT, HASH_SEED

_U32 = 0xFFFFFFFF
_PRIMES = (0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D, 0x27D4EB2F, 0x165667B1)
_STRIPE = 16


def signed(value: int) -> int:
    """The low 32 bits of a number, as a signed one."""
    return (value & _U32 ^ 0x80000000) - 0x80000000


def h32(data: bytes | bytearray | memoryview) -> int:
    """XXH32 with FiloDB's seed."""
    return signed(xxh32(data, HASH_SEED))


def xxh32(data: bytes | bytearray | memoryview, seed: int) -> int:
    """XXH32, unsigned."""
    p1, p2, p3, p4, p5 = _PRIMES
    size = len(data)
    at = 0
    if size >= _STRIPE:
        lanes = [(seed + p1 + p2) & _U32, (seed + p2) & _U32, seed & _U32, (seed - p1) & _U32]
        while at <= size - _STRIPE:
            for lane in range(4):
                word = int.from_bytes(data[at : at + 4], "little")
                lanes[lane] = _rotate(lanes[lane] + word * p2, 13) * p1 & _U32
                at += 4
        value = sum(_rotate(lane, bits) for lane, bits in zip(lanes, (1, 7, 12, 18), strict=True))
    else:
        value = seed + p5
    value += size
    while at + 4 <= size:
        value = _rotate(value + int.from_bytes(data[at : at + 4], "little") * p3, 17) * p4
        at += 4
    for byte in data[at:]:
        value = _rotate(value + byte * p5, 11) * p1
    value &= _U32
    value = (value ^ value >> 15) * p2 & _U32
    value = (value ^ value >> 13) * p3 & _U32
    return value ^ value >> 16


def _rotate(value: int, bits: int) -> int:
    value &= _U32
    return (value << bits | value >> 32 - bits) & _U32


def combine(total: int, value: int) -> int:
    """One hash out of two."""
    return signed(HASH_FACTOR * total + value)


def java_string_hash(text: str) -> int:
    """`String.hashCode` of Java."""
    units = text.encode("utf-16-le")
    total = 0
    for at in range(0, len(units), 2):
        total = 31 * total + int.from_bytes(units[at : at + 2], "little")
    return signed(total)


def java_order(text: str) -> bytes:
    """A sort key that orders strings as Java does: by UTF-16 code units."""
    return text.encode("utf-16-be")


def sort_and_compute_hashes(labels: Mapping[str, str] | Iterable[tuple[str, str]]) -> list[tuple[str, str, int]]:
    """Labels in Java's order of their keys, each with the hash of its key and value."""
    pairs = labels.items() if isinstance(labels, Mapping) else labels
    ordered = sorted(pairs, key=lambda pair: java_order(pair[0]))
    return [(key, value, combine(h32(key.encode()), h32(value.encode()))) for key, value in ordered]


def combine_hash_excluding(hashed: Iterable[tuple[str, str, int]], exclude: Collection[str] = ()) -> int:
    """The hashes of `sort_and_compute_hashes` as one, without those of some keys."""
    total = HASH_INIT
    for key, _, value in hashed:
        if key not in exclude:
            total = combine(total, value)
    return total


def shard_key_hash(values: Sequence[str], metric: str | None) -> int:
    """Hash of the values of the shard key columns (sorted by column name), then of the metric where there is one."""
    total = HASH_INIT
    for value in (*values, *(() if metric is None else (metric,))):
        total = combine(total, h32(value.encode()))
    return total


def partition_key_hash(
    non_shard_labels: Mapping[str, str],
    shard_labels: Mapping[str, str],
    target_schema: Collection[str] = (),
    metric_key: str = "_metric_",
    metric: str | None = None,
) -> int:
    """Hash that spreads the series of one shard key over its shards.

    With a usable target schema the values of its labels are hashed in sorted order. Without one FiloDB hashes the
    values of `non_shard_labels` in the order of its map, which this function takes to be the order given.
    """
    labels = {**shard_labels, **non_shard_labels}
    if metric is not None:
        labels[metric_key] = metric
    wanted = {*(key for key in shard_labels if key != metric_key), *target_schema} - {metric_key}
    if target_schema and all(key in labels for key in wanted):
        values: Iterable[str] = (labels[key] for key in sorted(wanted, key=java_order))
    else:
        values = non_shard_labels.values()
    total = HASH_INIT
    for value in values:
        total = combine(total, h32(value.encode()))
    return total


def trim_shard_column(suffixes: Mapping[str, Sequence[str]], column: str, value: str) -> str:
    """A shard key value without the first of its column's suffixes that it ends with."""
    for suffix in suffixes.get(column, ()):
        if value.endswith(suffix):
            return value[: len(value) - len(suffix)]
    return value


def ingestion_shard(shard_hash: int, partition_hash: int, num_shards: int, spread: int) -> int:
    """The shard of a series: the low bits from its shard key, `spread` bits above them from its partition key.

    Raises:
        OptionError: When `num_shards` is no power of two, or `spread` does not fit it.
    """
    mask = _shard_mask(num_shards, spread)
    return shard_hash & mask | partition_hash & (num_shards - 1) & ~mask


def query_shards(shard_hash: int, num_shards: int, spread: int) -> list[int]:
    """All shards that hold series of one shard key.

    Raises:
        OptionError: As `ingestion_shard`.
    """
    mask = _shard_mask(num_shards, spread)
    return [(shard_hash & mask) + k * (mask + 1) for k in range(1 << spread)]


def _shard_mask(num_shards: int, spread: int) -> int:
    bits = num_shards.bit_length() - 1
    if num_shards < 1 or num_shards != 1 << bits:
        raise OptionError(f"num_shards={num_shards}: expected a power of two")
    if not 0 <= spread <= bits:
        raise OptionError(f"spread={spread}: expected 0 to {bits} for {num_shards} shards")
    return (1 << bits - spread) - 1

"""What is drawn for each engine and release."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from tests.interop.engines.workload import Profile

POINTS = {"put": 30, "delete": 5}
STEPS = {"flush": 6, "compact": 3, "snapshot": 2, "release": 1, "reopen": 2}
CRC, XXH64 = 1, 3
NEWEST = 1 << 20
"""A format major version that drivers take for the newest of their release."""
PEBBLE_FORMATS = {"1.0": (1, 14), "1.1": (1, 16), "2.0": (13, 19), "2.1": (13, 24), "newest": (24, NEWEST)}
"""The format major versions of releases."""


def pebble(release: str) -> Callable[[random.Random], Profile]:
    """Pebble: of each release every format major version, and every format of tables that it still takes."""
    oldest, newest = PEBBLE_FORMATS[release]
    codecs = ["NoCompression", "Snappy", "ZSTD"]
    codecs += ["MinLZ", "Fast", "Balanced", "Good", "Fastest"] if release in ("2.1", "newest") else []

    def level(dice: random.Random, number: int) -> str:
        return (
            f'[Level "{number}"]\n  block_restart_interval={dice.choice([1, 4, 16])}\n'
            f"  block_size={dice.choice([200, 1000, 4096])}\n  compression={dice.choice(codecs)}\n"
            f"  index_block_size={dice.choice([100, 4096])}\n  target_file_size={dice.choice([2000, 100000])}\n"
        )

    def profile(dice: random.Random) -> Profile:
        version = newest if newest == NEWEST or dice.random() < 0.3 else dice.randint(oldest, newest)
        text = (
            f"[Options]\n  mem_table_size={dice.choice([65536, 1 << 20])}\n"
            f"  l0_compaction_threshold={dice.choice([2, 8])}\n  lbase_max_bytes={dice.choice([3000, 1 << 20])}\n"
            f"  disable_ingest_as_flushable={dice.choice(['true', 'false'])}\n"
            f"  enable_columnar_blocks={dice.choice(['true', 'false'])}\n"
            f"  max_manifest_file_size={dice.choice([500, 100000])}\n"
        )
        if version >= 24 and dice.random() < 0.7:
            text += (
                f"[Value Separation]\n  enabled=true\n  minimum_size={dice.choice([30, 500])}\n"
                "  max_blob_reference_depth=10\n  rewrite_minimum_age=0s\n"
                "  target_garbage_ratio=0.3\n  garbage_ratio_high_priority=0.5\n  minimum_mvcc_garbage_size=20\n"
            )
        text += "".join(level(dice, number) for number in range(7))
        operations = {**POINTS, "merge": 5, "single_delete": 2, "delete_range": 1, "log_data": 1}
        split = dice.random() < 0.5
        # Pebble 1 has no range keys where keys have no suffixes.
        ranged = version >= 8 and (split or release >= "2")
        operations |= {"range_key_set": 1, "range_key_delete": 1} if ranged else {}
        operations |= {"delete_sized": 2} if version >= 15 else {}
        lowest = 4 if version >= 8 else 1 if version < 5 else 3
        return Profile(
            options={"format": version, "text": text, "split": split},
            operations=operations,
            steps={**STEPS, "ingest": 5, **({"excise": 2} if version >= 16 else {})},
            table=lambda dice: _table_of(dice.randint(lowest, 8), dice.choice([CRC, XXH64])),
            ingested=("put", "delete", "merge", "delete_range", *(("range_key_set",) if ranged else ())),
        )

    return profile


def _table_of(version: int, checksum: int) -> dict[str, int]:
    """A table of a version; the first one, LevelDB's, says nothing of its checksums."""
    return {"format": version, "checksum": CRC if version == 1 else checksum}


def leveldb(kind: str) -> Callable[[random.Random], Profile]:
    """LevelDB itself, by bindings whose options have other names; and goleveldb, which is another one."""

    def profile(dice: random.Random) -> Profile:
        buffer, block, restarts = dice.choice([4096, 1 << 16]), dice.choice([200, 1000, 4096]), dice.choice([1, 4, 16])
        snappy = dice.random() < 0.5
        steps = {"compact": 4, "snapshot": 2, "release": 1, "reopen": 3}
        if kind == "plyvel":
            compression = "snappy" if snappy else None
            options = {"block_size": block, "block_restart_interval": restarts, "compression": compression}
            options |= {"write_buffer_size": buffer, "max_file_size": dice.choice([2000, 1 << 21])}
            options |= {"bloom_filter_bits": dice.choice([0, 10])}
        elif kind == "classic-level":
            options = {"blockSize": block, "blockRestartInterval": restarts, "compression": snappy}
            options |= {"writeBufferSize": buffer, "maxFileSize": 1 << 20}
            steps = {"compact": 4, "reopen": 3}
        else:
            options = {"BlockSize": block, "BlockRestartInterval": restarts, "Compression": 2 if snappy else 1}
            options |= {"WriteBuffer": buffer, "CompactionTableSize": dice.choice([2000, 1 << 21])}
        return Profile(options=options, operations=POINTS, steps=steps)

    return profile


CODECS = {
    "none": "kNoCompression",
    "snappy": "kSnappyCompression",
    "zlib": "kZlibCompression",
    "bz2": "kBZip2Compression",
    "lz4": "kLZ4Compression",
    "lz4hc": "kLZ4HCCompression",
    "zstd": "kZSTD",
}
"""RocksDB's, as rocksdict and as options name them."""
BLOB_CODECS = ["none", "snappy", "lz4", "zstd"]
"""With the others RocksDB 11 fails where a value does not become smaller."""


def rocksdict(formats: range) -> Callable[[random.Random], Profile]:
    """RocksDB by rocksdict, for what few options it has."""

    def profile(dice: random.Random) -> Profile:
        options = {
            "codec": dice.choice(list(CODECS)),
            "buffer": dice.choice([1 << 16, 1 << 20]),
            "files": dice.choice([2, 4]),
            "target": dice.choice([2000, 1 << 20]),
            "block": dice.choice([200, 1000, 4096]),
            "format": dice.choice(formats),
            "checksum": dice.choice(["crc32c", "no_checksum", "xxhash", "xxhash64", "xxh3"]),
            "restarts": dice.choice([1, 4, 16]),
            "blobs": dice.choice([0, 0, 30, 500]),
            "blob_codec": dice.choice(BLOB_CODECS),
        }
        operations = {**POINTS, "delete_range": 1}
        return Profile(options=options, operations=operations, steps={**STEPS, "ingest": 5}, families=2)

    return profile


def rocksdb(release: int, formats: Sequence[int | None]) -> Callable[[random.Random], Profile]:
    """RocksDB by its own Java binding, whose options are strings; the format `None` is what it writes by default."""

    def table(dice: random.Random) -> str:
        checksums = [
            "kCRC32c",
            "kxxHash",
            "kNoChecksum",
            *(["kxxHash64"] if release >= 6 else []),
            *(["kXXH3"] if release >= 7 else []),
        ]
        indexes = ["kBinarySearch", "kTwoLevelIndexSearch", *(["kBinarySearchWithFirstKey"] if release >= 7 else [])]
        settings = {
            "format_version": dice.choice(formats),
            "checksum": dice.choice(checksums),
            "index_type": dice.choice(indexes),
            "block_size": dice.choice([200, 1000, 4096]),
            "block_restart_interval": dice.choice([1, 4, 16]),
            "index_block_restart_interval": dice.choice([1, 4]),
            "metadata_block_size": dice.choice([100, 4096]),
            "enable_index_compression": dice.choice(["true", "false"]),
        }
        two_levels = settings["index_type"] == "kTwoLevelIndexSearch"
        settings["partition_filters"] = dice.choice(["true", "false"]) if two_levels else "false"
        if release >= 11:
            settings["use_delta_encoding"] = dice.choice(["true", "false"])
            settings["separate_key_value_in_data_block"] = dice.choice(["true", "false"])
            settings["uniform_cv_threshold"] = dice.choice(["-1", "0.2", "1000"])
        if dice.random() < 0.5:
            ribbon = release >= 7 and dice.random() < 0.5
            settings["filter_policy"] = "ribbonfilter:10:0" if ribbon else "bloomfilter:10:false"
        if release >= 6:
            settings["data_block_index_type"] = dice.choice(["kDataBlockBinarySearch", "kDataBlockBinaryAndHash"])
        return "{" + "".join(f"{name}={value};" for name, value in settings.items() if value is not None) + "}"

    def profile(dice: random.Random) -> Profile:
        family = {
            "compression": dice.choice(list(CODECS.values())),
            "write_buffer_size": dice.choice(["65536", "1048576"]),
            "level0_file_num_compaction_trigger": dice.choice(["2", "4"]),
            "target_file_size_base": dice.choice(["2000", "1048576"]),
            "block_based_table_factory": table(dice),
        }
        if dice.random() < 0.3:
            family["compression_opts"] = f"-14:{dice.choice([1, 5])}:0:{dice.choice([200, 4096])}"
        if release >= 7 and dice.random() < 0.4:
            family |= {"enable_blob_files": "true", "min_blob_size": dice.choice(["30", "500"])}
            family["blob_compression_type"] = CODECS[dice.choice(BLOB_CODECS)]
        database = {"max_manifest_file_size": dice.choice(["500", "1000000"])}
        if release >= 7:
            database["wal_compression"] = dice.choice(["kNoCompression", "kZSTD"])
        if release >= 6:
            database["recycle_log_file_num"] = dice.choice(["0", "2"])
        return Profile(
            options={"family": family, "database": database},
            operations={**POINTS, "merge": 5, "single_delete": 2, "delete_range": 1, "log_data": 1},
            steps={**STEPS, "ingest": 5},
            table=lambda dice: {"written": release < 8 and dice.random() < 0.5},
            ingested=("put", "delete", "merge"),
            families=2,
        )

    return profile

"""Sorted tables keep the laws."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa
import rocksdict

import sawlog
from sawlog.testing import Exemption, Laws, Sample, Span

from .mutators import MUTATORS
from .support import GOLDEN, leveldb_tables, rocksdb_tables

DATA = {b"apple": b"1", b"apricot": b"22" * 9, b"banana": b"", b"cherry": b"red", b"date": b"x" * 40}
TRAILER = 5
CUCKOO = GOLDEN.parents[1] / "leveldb_database" / "rocksdb-11.8.1-cuckoo" / "db"
FEWER = ("version 2", "values", "stamped", "version 7", "embedded", "two names", "minlz")
"""Of these not every bit of headers is flipped: they are alike in others."""
FOOTERS = {"pebble 7": 61}
DATABASES = Path(__file__).parents[1] / "golden" / "leveldb_database"
PEBBLE = Path(__file__).parents[1] / "golden" / "leveldb_table" / "pebble"


@cache
def tables() -> dict[str, bytes]:
    """Small tables of each kind that the original systems write."""
    parts = {
        "set_index_type": rocksdict.BlockBasedIndexType.two_level_index_search(),
        "set_metadata_block_size": 1,
        "set_block_size": 1,
    }
    ranges = [(b"f", b"g")]
    with TemporaryDirectory() as directory:
        root = Path(directory)
        return {
            "leveldb": leveldb_tables(root / "l", DATA, block_size=1, compression=None)[0].read_bytes(),
            "snappy": leveldb_tables(root / "s", {**DATA, b"zz": b"ab" * 90}, compression="snappy")[0].read_bytes(),
            "rocksdb": rocksdb_tables(root / "5", DATA, deletes=[b"egg"], ranges=ranges)[0].read_bytes(),
            "version 6": rocksdb_tables(root / "6", DATA, version=6, checksum="xxh3", table=parts)[0].read_bytes(),
            "version 2": rocksdb_tables(root / "2", DATA, version=2, ranges=ranges, table=parts)[0].read_bytes(),
            "version 7": (GOLDEN / "11-small.sst").read_bytes(),
            "embedded": (GOLDEN / "11-embedded-small.sst").read_bytes(),
            "values": PEBBLE.joinpath("13-plain", "000007.sst").read_bytes(),
            "stamped": PEBBLE.parent.joinpath("timestamps", "000011.sst").read_bytes(),
            "pebble 4": PEBBLE.joinpath("small.sst").read_bytes(),
            "pebble 7": PEBBLE.joinpath("24-plain", "000008.sst").read_bytes(),
            "two names": DATABASES.joinpath("pebble-1.1.5-ranges-alone", "db", "000005.sst").read_bytes(),
            "minlz": DATABASES.joinpath("pebble-2.1.7-minlz", "db", "000005.sst").read_bytes(),
        }


def headers(name: str, data: bytes) -> list[Span]:
    """The footer, and the trailer of each block."""
    with TemporaryDirectory() as directory:
        path = Path(directory, "a.ldb")
        path.write_bytes(data)
        rows = sawlog.read(path, format="leveldb_table", view="frames").to_pylist()
    trailers = [Span(row["offset"] + row["length"] - TRAILER, TRAILER) for row in rows]
    footer = FOOTERS.get(name, 53)
    return [*trailers, Span(len(data) - footer, footer)]


WRITTEN = pa.table(
    {
        "sequence": pa.array([9, 7, 8], pa.int64()),
        "operation": ["put", "delete", "put"],
        "key": pa.array([b"", b"k", b"k\xff"], pa.binary()),
        "value": pa.array([b"v", b"", b"x" * 300], pa.binary()),
    }
)


class TestLaws(Laws):
    page = Path(__file__).parents[2] / "docs/formats/leveldb-table.md"
    mutators = MUTATORS
    test_removal = None  # every file is a sample of its own
    test_follow = test_follow_damaged = None  # tables appear whole
    exemptions = (
        Exemption(
            "cuts",
            "A table without its end is damaged even if every row can be read: nothing else says how many it had.",
            samples=("leveldb", "leveldb, ordered", "snappy", "rocksdb", "version 2"),
        ),
        Exemption(
            "repair",
            "Keys that are out of order although the checksums match are returned, but no table can hold them:"
            " `repair` refuses.",
            told="repair gives up.*not in ascending order",
            fuzzed=True,
        ),
        Exemption(
            "repair",
            "It also refuses operations that only RocksDB has in a table of LevelDB.",
            told="repair gives up.*leveldb's tables have",
            fuzzed=True,
        ),
    )

    @classmethod
    def samples(cls) -> Sequence[Sample]:
        samples = []
        for name, data in tables().items():
            samples.append(
                Sample(
                    name,
                    "leveldb_table",
                    data,
                    "000005.ldb" if name in ("leveldb", "snappy") else "000005.sst",
                    options={"keys": "stamped"} if name == "stamped" else {},
                    headers=() if name in FEWER else headers(name, data),
                    checked=True,
                    blocks=True,
                    repaired="rows",
                    body=0 if name == "leveldb" else None,
                    written=WRITTEN if name == "leveldb" else None,
                    effort=0.3 if name in FEWER else 1.0 if name in ("leveldb", "rocksdb") else 0.5,
                )
            )
        samples.append(
            replace(
                samples[0], name="leveldb, ordered", options={"comparator": "leveldb.BytewiseComparator"}, effort=0.5
            )
        )
        buckets = (CUCKOO / "000009.sst").read_bytes()
        samples.append(
            Sample(
                "cuckoo",
                "leveldb_table",
                buckets,
                "000009.sst",
                blocks=True,
                ordered=False,
                repaired="rows",
                effort=0.3,
            )
        )
        for view in ("frames", "properties"):
            data = tables()["rocksdb"]
            samples.append(Sample(view, "leveldb_table", data, "000005.sst", view=view, ordered=False, repaired="no"))
        return samples

"""Milvus collections: reading against the bare Parquet payloads of the same files, with deletes, and through Spark."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import sawlog
from benchmarks.harness import Case, Settings, Side
from benchmarks.spark import noop, session
from sawlog.format.damage import Findings
from sawlog.milvus.collection.dataset import SegmentsWarning
from sawlog.milvus.log import hold_log
from sawlog.storage import File, Storage

DIMENSIONS = 128
ROW_BYTES = DIMENSIONS * 4 + 8 + 20
TIMESTAMP = 470611425428242439
SEED = 20240501
_SYSTEM = ("0", "1")


def cases(settings: Settings) -> Iterator[Case]:
    """One million rows at the default size: int64 key, varchar, float vector of 128 dimensions."""
    warnings.simplefilter("ignore", SegmentsWarning)
    count = max(1000, settings.size // ROW_BYTES // 1000 * 1000)
    plain, deleted = settings.place / "plain", settings.place / "deleted"
    table = collection(count)
    for root in (plain, deleted):  # written, not copied: the page cache holds copies otherwise than what was written
        sawlog.write(table, root, format="milvus_binlog", timestamp=TIMESTAMP, segment_bytes=1 << 40)
    delete(deleted, count)
    size = sum(path.stat().st_size for path in (plain / "insert_log").rglob("*") if path.is_file())
    if settings.wanted("read"):
        yield Case(
            "read",
            f"{count:,} rows (int64 key, varchar, {DIMENSIONS}-dim float vector) into Arrow batches, one core",
            (
                Side("sawlog", partial(read, plain), size, count, prepare=release),
                Side("pyarrow", partial(payloads, plain), size, count, "the bare Parquet payloads: the limit", release),
                Side(
                    "sawlog, 10 % of the rows deleted", partial(read, deleted), size, count, "deletes applied", release
                ),
            ),
            per="rows",
        )
    if settings.wanted("spark"):
        parquet = settings.place / "parquet"
        parquet.mkdir()
        pq.write_table(table, parquet / "rows.parquet", row_group_size=count // 4)
        del table
        spark = session(settings.program)
        yield Case(
            "spark",
            f"{count:,} rows through Spark to its noop sink",
            (
                Side("sawlog", partial(spark_read, spark, plain), size, count),
                Side("Spark, Parquet", lambda: noop(spark.read.parquet(str(parquet))), size, count, "the same rows"),
                Side("sawlog, 10 % of the rows deleted", partial(spark_read, spark, deleted), size, count),
            ),
            per="rows",
            cores=0,
        )


def collection(count: int) -> pa.Table:
    rng = np.random.default_rng(SEED)
    vectors = pa.array(rng.standard_normal(count * DIMENSIONS, dtype="f4"))
    keys = rng.permutation(count).astype("i8")
    names = pa.array([f"item-{key:08d}-{key % 97}" for key in keys])
    return pa.table(
        {"pk": keys, "name": names, "vec": pa.FixedSizeListArray.from_arrays(vectors, DIMENSIONS)},
    )


def delete(root: Path, count: int) -> None:
    (segment,) = [int(path.name) for path in root.glob("insert_log/*/*/*")]
    keys = np.random.default_rng(SEED + 1).choice(count, count // 10, replace=False).astype("i8")
    constant = {"timestamp": TIMESTAMP + 1, "partition": 2, "segment": segment}
    columns = {"pk": keys, **{name: np.full(len(keys), value, np.int64) for name, value in constant.items()}}
    sawlog.write(pa.table(columns), root, format="milvus_binlog", content="deletes")


def read(root: Path) -> None:
    for _ in sawlog.open(root).to_batches():
        pass


def release() -> None:
    """No side pays for the memory that the one before it has left behind."""
    pa.default_memory_pool().release_unused()


def payloads(root: Path) -> None:
    """What pyarrow needs for the payloads of the user's fields, one file after the other."""
    for path in sorted((root / "insert_log").rglob("*")):
        if path.is_file() and path.parent.name not in _SYSTEM:
            with hold_log(File(str(path), path.stat().st_size), Storage(), None) as log:
                findings = Findings()
                for part in log.iterate_parts(log.load_descriptor(findings), findings):
                    payload = pa.py_buffer(log.source.read_window(part.extent.offset, part.extent.length))
                    pq.read_table(pa.BufferReader(payload))


def spark_read(spark: Any, root: Path) -> None:
    noop(spark.read.format("sawlog").option("format", "milvus_binlog").load(str(root)))

"""Questions that few rows answer, and a count, of one large log and of many small ones, beside Parquet, near and far.

Far is a server that speaks S3, 30 ms away. There Spark's Parquet needs Hadoop's module for S3, whose jars, separated by
commas, the variable `SAWLOG_HADOOP_AWS` names; without them pyarrow reads Parquet, and no Spark.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
from pyarrow.fs import S3FileSystem

import sawlog
from benchmarks.deephaven_log import ROW_BYTES, write_log
from benchmarks.harness import Case, Settings, Side
from benchmarks.spark import session_with_jar
from benchmarks.stores import KEY, SECRET, delayed, served

QUESTIONS: dict[str, Callable[[Any], object]] = {
    "take": lambda t: t.take(1),
    "empty": lambda t: t.isEmpty(),
    "limit": lambda t: t.limit(10).collect(),
    "count": lambda t: t.count(),
}
WITHOUT_SPARK: dict[str, Callable[[Any], object]] = {
    "take": lambda t: t.head(1),
    "empty": lambda t: t.head(1).num_rows == 0,
    "limit": lambda t: t.head(10),
    "count": lambda t: t.count_rows(),
}
"""The same of a dataset of pyarrow's."""
MANY = 3000
SMALL_BYTES = 100_000
"""Bytes of input, of that which is large, for each small log, of which there are `MANY` at most."""
HADOOP = "SAWLOG_HADOOP_AWS"
REGION = "us-east-1"


def cases(settings: Settings) -> Iterator[Case]:
    """Each question of each input, at each place."""
    if not settings.wanted("small_questions"):
        return
    bucket = settings.place / "served" / "bucket"
    bucket.mkdir(parents=True)
    with contextlib.ExitStack() as stack:
        jars = os.environ.get(HADOOP, "")
        spark = session_with_jar(settings.place, {"spark.jars": jars, "spark.hadoop.fs.s3a.path.style.access": "true"})
        inputs = write(spark, bucket, settings.size)
        for name, what, path, rows in inputs:
            size = sum(file.stat().st_size for file in ([path] if path.is_file() else path.iterdir()))
            for question, ask in QUESTIONS.items():
                sides = (
                    Side("sawlog with the jar", partial(asked, ask, spark, "sawlog", str(path)), size, rows),
                    Side("Spark's Parquet", partial(asked, ask, spark, "parquet", parquet(str(path))), size, rows),
                )
                title = f"{what}, {question}, local[2]"
                yield Case(f"small_questions_{name}_{question}", title, sides, per="rows", cores=0, headline=False)
        address = stack.enter_context(delayed(stack.enter_context(served(bucket.parent, settings.place))))
        options = {"key": KEY, "secret": SECRET, "endpoint_url": address, "region": REGION}
        stored = {f"storage.{name}": value for name, value in options.items()}
        s3a = {"access.key": KEY, "secret.key": SECRET, "endpoint": address, "endpoint.region": REGION}
        if jars:
            for name, value in s3a.items():
                spark.sparkContext._jsc.hadoopConfiguration().set(f"fs.s3a.{name}", value)
        for name, what, path, rows in inputs:
            size = sum(file.stat().st_size for file in ([path] if path.is_file() else path.iterdir()))
            for question, ask in QUESTIONS.items():
                place = f"bucket/{path.name}"
                peer = Side(
                    "pyarrow's Parquet, no Spark", partial(asked_of_arrow, question, place, address), size, rows
                )
                if jars:
                    beside = partial(asked, ask, spark, "parquet", parquet(f"s3a://{place}"))
                    peer = Side("Spark's Parquet", beside, size, rows)
                ours = partial(asked, ask, spark, "sawlog", f"s3://{place}", stored)
                title = f"{what} in S3, 30 ms away, {question}, local[2]"
                sides = (Side("sawlog with the jar", ours, size, rows), peer)
                yield Case(f"small_questions_s3_{name}_{question}", title, sides, per="rows", cores=0, headline=False)


def write(spark: Any, bucket: Path, size: int) -> list[tuple[str, str, Path, int]]:
    """Make the inputs, and Parquet of the same rows beside them: of each a name, words, the path and its rows."""
    count = max(1, size // ROW_BYTES)
    log = write_log(bucket / "trades.bin", count)
    many = bucket / "many"
    many.mkdir()
    logs = min(MANY, max(2, size // SMALL_BYTES))
    for number in range(logs):
        table = pa.table({"record": pa.array([b"%d" % number] * 10, pa.binary())})
        sawlog.write(table, many / f"{number + 3:06}.log", format="leveldb_log")
    for path, files in ((log, 1), (many, logs)):
        spark.read.format("sawlog").load(str(path)).repartition(files).write.parquet(parquet(str(path)))
    return [
        ("large", "one large log of Deephaven", log, count),
        ("many", f"{logs:,} small logs of LevelDB", many, 10 * logs),
    ]


def parquet(path: str) -> str:
    """Where the Parquet of the same rows is."""
    return f"{path}.parquet"


def asked(
    ask: Callable[[Any], object], spark: Any, format: str, path: str, options: dict[str, str] | None = None
) -> object:
    """The answer of a DataFrame that has listed its files anew."""
    return ask(spark.read.format(format).options(**options or {}).load(path))


def asked_of_arrow(question: str, place: str, address: str) -> object:
    """The answer of a dataset that has listed its files anew."""
    store = S3FileSystem(access_key=KEY, secret_key=SECRET, endpoint_override=address, region=REGION, scheme="http")
    return WITHOUT_SPARK[question](ds.dataset(parquet(place), filesystem=store, format="parquet"))

"""Questions that few rows answer, and a count, of one large log and of many small ones, beside Parquet, near and far.

Far is a server that speaks S3, 30 ms away. There Spark's Parquet needs Hadoop's module for S3, whose jars, separated by
commas, the variable `SAWLOG_HADOOP_AWS` names; without them pyarrow reads Parquet, and no Spark.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
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
S3A = {"spark.hadoop.fs.s3a.path.style.access": "true", "spark.hadoop.fs.s3a.connection.ssl.enabled": "false"}
INPUTS = ("large", "many")
NEAR, FAR = "small_questions_", "small_questions_s3_"


@dataclass(frozen=True)
class Input:
    """Files that are asked about."""

    name: str
    what: str
    path: Path
    rows: int

    def side(self, name: str, ask: Callable[[], object]) -> Side:
        size = sum(file.stat().st_size for file in ([self.path] if self.path.is_file() else self.path.iterdir()))
        return Side(name, ask, size, self.rows)

    def case(self, name: str, description: str, sides: tuple[Side, ...]) -> Case:
        return Case(name, f"{description}, local[2]", sides, per="rows", cores=0, headline=False)


def cases(settings: Settings) -> Iterator[Case]:
    """Each question of each input, at each place."""
    names = [f"{prefix}{name}_{question}" for prefix in (NEAR, FAR) for name in INPUTS for question in QUESTIONS]
    if not any(map(settings.wanted, names)):
        return
    bucket = settings.place / "served" / "bucket"
    bucket.mkdir(parents=True)
    jars = os.environ.get(HADOOP, "")
    spark = session_with_jar(settings.program, {"spark.jars": jars, **S3A})
    inputs = write(spark, bucket, settings.size)
    yield from filter(lambda case: settings.wanted(case.name), near(spark, inputs))
    if any(settings.wanted(name) for name in names if name.startswith(FAR)):
        with served(bucket.parent, settings.place) as address, delayed(address) as far_address:
            yield from filter(lambda case: settings.wanted(case.name), far(spark, inputs, far_address, bool(jars)))


def near(spark: Any, inputs: list[Input]) -> Iterator[Case]:
    for input_ in inputs:
        for question, ask in QUESTIONS.items():
            ours, peer = (
                partial(measure_question, ask, spark, format, path)
                for format, path in (("sawlog", str(input_.path)), ("parquet", parquet(str(input_.path))))
            )
            sides = input_.side("sawlog with the jar", ours), input_.side("Spark's Parquet", peer)
            yield input_.case(f"{NEAR}{input_.name}_{question}", f"{input_.what}, {question}", sides)


def far(spark: Any, inputs: list[Input], address: str, by_spark: bool) -> Iterator[Case]:
    options = {"key": KEY, "secret": SECRET, "endpoint_url": address, "region": REGION}
    stored = {f"storage.{name}": value for name, value in options.items()}
    s3a = {"access.key": KEY, "secret.key": SECRET, "endpoint": address, "endpoint.region": REGION}
    for name, value in s3a.items():
        spark.sparkContext._jsc.hadoopConfiguration().set(f"fs.s3a.{name}", value)
    for input_ in inputs:
        place = f"bucket/{input_.path.name}"
        for question, ask in QUESTIONS.items():
            ours = partial(measure_question, ask, spark, "sawlog", f"s3://{place}", stored)
            peer = input_.side("pyarrow's Parquet, no Spark", partial(asked_of_arrow, question, place, address))
            if by_spark:
                peer = input_.side(
                    "Spark's Parquet", partial(measure_question, ask, spark, "parquet", parquet(f"s3a://{place}"))
                )
            sides = input_.side("sawlog with the jar", ours), peer
            yield input_.case(f"{FAR}{input_.name}_{question}", f"{input_.what} in S3, 30 ms away, {question}", sides)


def write(spark: Any, bucket: Path, size: int) -> list[Input]:
    """Make the inputs, and Parquet of the same rows beside them."""
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
    words = "one large log of Deephaven", f"{logs:,} small logs of LevelDB"
    return [
        Input(name, word, path, rows)
        for name, word, path, rows in zip(INPUTS, words, (log, many), (count, 10 * logs), strict=True)
    ]


def parquet(path: str) -> str:
    """Where the Parquet of the same rows is."""
    return f"{path}.parquet"


def measure_question(
    ask: Callable[[Any], object], spark: Any, format: str, path: str, options: dict[str, str] | None = None
) -> object:
    """The answer of a DataFrame that has listed its files anew."""
    return ask(spark.read.format(format).options(**options or {}).load(path))


def asked_of_arrow(question: str, place: str, address: str) -> object:
    """The answer of a dataset that has listed its files anew."""
    store = S3FileSystem(access_key=KEY, secret_key=SECRET, endpoint_override=address, region=REGION, scheme="http")
    return WITHOUT_SPARK[question](ds.dataset(parquet(place), filesystem=store, format="parquet"))

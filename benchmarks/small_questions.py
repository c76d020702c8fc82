"""Questions that few rows answer, and a count, of one large log and of many small ones, beside Spark's Parquet."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa

import sawlog
from benchmarks.deephaven_log import ROW_BYTES, write_log
from benchmarks.harness import Case, Probe, Settings, Side
from benchmarks.spark import session_with_jar

QUESTIONS: dict[str, Callable[[Any], object]] = {
    "take": lambda t: t.take(1),
    "empty": lambda t: t.isEmpty(),
    "limit": lambda t: t.limit(10).collect(),
    "count": lambda t: t.count(),
}
MANY = 3000
SMALL_BYTES = 100_000
"""Bytes of input, of that which is large, for each small log, of which there are `MANY` at most."""


def cases(settings: Settings) -> Iterator[Case | Probe]:
    """Each question of each input."""
    if not settings.wanted("small_questions"):
        return
    spark = session_with_jar(settings.place)
    count = max(1, settings.size // ROW_BYTES)
    log = write_log(settings.place / "trades.bin", count)
    many = settings.place / "many"
    many.mkdir()
    logs = min(MANY, max(2, settings.size // SMALL_BYTES))
    for number in range(logs):
        table = pa.table({"record": pa.array([b"%d" % number] * 10, pa.binary())})
        sawlog.write(table, many / f"{number + 3:06}.log", format="leveldb_log")
    for name, what, path, rows in (
        ("large", "one large log of Deephaven", log, count),
        ("many", f"{logs:,} small logs of LevelDB", many, 10 * logs),
    ):
        frame = spark.read.format("sawlog").load(str(path))
        parquet = str(settings.place / f"{name}.parquet")
        frame.repartition(logs if name == "many" else 1).write.parquet(parquet)
        size = sum(file.stat().st_size for file in ([path] if path.is_file() else path.iterdir()))
        for question, ask in QUESTIONS.items():
            sides = (
                Side(
                    "sawlog with the jar", lambda ask=ask, path=path: ask(read(spark, "sawlog", str(path))), size, rows
                ),
                Side("Spark's Parquet", lambda ask=ask, path=parquet: ask(read(spark, "parquet", path)), size, rows),
            )
            title = f"{what}, {question}, local[2]"
            yield Case(f"small_questions_{name}_{question}", title, sides, per="rows", cores=0, headline=False)


def read(spark: Any, format: str, path: str) -> Any:
    """A DataFrame that has listed its files anew."""
    return spark.read.format(format).load(path)

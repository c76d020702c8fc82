"""Whether two data frames hold the same rows, in whatever order: counted and hashed by Spark."""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING

from sawlog.format.digest import MODULUS, Digest

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def compute_digest(rows: DataFrame) -> Digest:
    """Return the number of rows and a hash of them, whatever the order of rows and columns.

    A column that is null counts as one that is not there.
    """
    from pyspark.sql import functions as f

    row = _hash_rows(rows).agg(f.count("*").alias("rows"), f.sum("hash").alias("total")).first()
    assert row is not None
    return Digest(int(row["rows"]), int(row["total"] or 0) % MODULUS)


def _hash_rows(rows: DataFrame) -> DataFrame:
    """Return the hashes of rows.

    Spark's hash passes over nulls, so that every value is hashed with the name of its column; it takes no maps, so that
    these are hashed as their entries in order. Numbers of any width are the same number.
    """
    from pyspark.sql import functions as f
    from pyspark.sql.types import ByteType, FloatType, IntegerType, MapType, ShortType

    hashes = []
    for field in rows.schema.fields:
        name, kind = field.name, field.dataType
        value = hashable = f.col(quote_name(name))
        if isinstance(kind, MapType):
            hashable = f.array_sort(f.map_entries(value))
        elif isinstance(kind, ByteType | ShortType | IntegerType):
            hashable = value.cast("long")
        elif isinstance(kind, FloatType):
            hashable = value.cast("double")
        hashes.append(f.when(value.isNotNull(), f.xxhash64(f.lit(name), hashable)).otherwise(f.lit(0).cast("long")))
    together = reduce(lambda left_hash, right_hash: left_hash.bitwiseXOR(right_hash), hashes)
    return rows.select(f.xxhash64(together).cast("decimal(38,0)").alias("hash"))


def quote_name(name: str) -> str:
    """Return a name as Spark takes it for exactly that, dots and all."""
    return f"`{name.replace('`', '``')}`"

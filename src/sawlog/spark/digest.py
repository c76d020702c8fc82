"""Whether two data frames hold the same rows, in whatever order: counted and hashed by Spark."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_MODULUS = 1 << 64


@dataclass(frozen=True, slots=True)
class Digest:
    """What two data frames with the same rows have in common.

    Attributes:
        rows: How many rows there are.
        checksum: Sum of the 64-bit hashes of all rows over all columns, modulo 2**64.
    """

    rows: int = 0
    checksum: int = 0

    def __add__(self, other: Digest) -> Digest:
        """That of the rows of both."""
        return Digest(self.rows + other.rows, (self.checksum + other.checksum) % _MODULUS)

    def __str__(self) -> str:
        return f"{self.rows} rows with checksum {self.checksum:016x}"


def digest(rows: DataFrame, names: Mapping[str, str] | None = None) -> Digest:
    """Count and hash the rows. Their order does not matter, nor does that of the columns; their number does.

    A column that is null counts as one that is not there.

    Args:
        rows: The rows.
        names: Columns to hash and the names that they are hashed under; None: all of them, under their own.
    """
    from pyspark.sql import functions as f

    row = _hashed(rows, names).agg(f.count("*").alias("rows"), f.sum("hash").alias("total")).first()
    assert row is not None
    return _digest(row)


def digests(rows: DataFrame, by: str, names: Mapping[str, str]) -> dict[Any, Digest]:
    """The digests of the rows for each value of a column; see `digest`."""
    from pyspark.sql import functions as f

    grouped = _hashed(rows, names, by).groupBy(column(by))
    found = grouped.agg(f.count("*").alias("rows"), f.sum("hash").alias("total")).collect()
    return {row[by]: _digest(row) for row in found}


def _hashed(rows: DataFrame, names: Mapping[str, str] | None, *others: str) -> DataFrame:
    """The hashes of rows, and other columns as they are.

    Spark's hash passes over nulls, so that every value is hashed with the name of its column; it takes no maps, so that
    these are hashed as their entries in order. Numbers of any width are the same number.
    """
    from pyspark.sql import functions as f
    from pyspark.sql.types import ByteType, FloatType, IntegerType, MapType, ShortType

    kinds = {field.name: field.dataType for field in rows.schema.fields}
    chosen = names if names is not None else {name: name for name in kinds}
    hashes = []
    for name, label in chosen.items():
        value = hashable = column(name)
        if isinstance(kinds[name], MapType):
            hashable = f.array_sort(f.map_entries(value))
        elif isinstance(kinds[name], ByteType | ShortType | IntegerType):
            hashable = value.cast("long")
        elif isinstance(kinds[name], FloatType):
            hashable = value.cast("double")
        hashes.append(f.when(value.isNotNull(), f.xxhash64(f.lit(label), hashable)).otherwise(f.lit(0).cast("long")))
    together = reduce(lambda one, other: one.bitwiseXOR(other), hashes)
    return rows.select(*map(column, others), f.xxhash64(together).cast("decimal(38,0)").alias("hash"))


def _digest(row: Any) -> Digest:
    return Digest(int(row["rows"]), int(row["total"] or 0) % _MODULUS)


def column(name: str) -> Column:
    """The column of exactly that name, dots and all."""
    from pyspark.sql import functions as f

    return f.col(quoted(name))


def quoted(name: str) -> str:
    """A name as Spark takes it for exactly that, dots and all."""
    return f"`{name.replace('`', '``')}`"

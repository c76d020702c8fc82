"""Whether two data frames hold the same rows, in whatever order: counted and hashed by Spark."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


@dataclass(frozen=True, slots=True)
class Digest:
    """What two data frames with the same rows have in common.

    Attributes:
        rows: How many rows there are.
        checksum: Sum of the 64-bit hashes of all rows over all columns, modulo 2**64.
    """

    rows: int
    checksum: int

    def __str__(self) -> str:
        return f"{self.rows} rows with checksum {self.checksum:016x}"


def digest(rows: DataFrame) -> Digest:
    """Count and hash the rows. Their order does not matter, nor does that of the columns; their number does.

    Spark's hash passes over nulls, so that every row is hashed with the places of its nulls; it takes no maps, so that
    these are hashed as their entries in order.
    """
    from pyspark.sql import functions as f
    from pyspark.sql.types import MapType

    fields = sorted(rows.schema.fields, key=lambda one: str(one.name))
    columns = [
        f.array_sort(f.map_entries(column(one.name))) if isinstance(one.dataType, MapType) else column(one.name)
        for one in fields
    ]
    nulls = [column(one.name).isNull() for one in fields]
    hashed = rows.select(f.xxhash64(*columns, *nulls).cast("decimal(38,0)").alias("hash"))
    row = hashed.agg(f.count("*").alias("rows"), f.sum("hash").alias("total")).first()
    assert row is not None
    return Digest(int(row["rows"]), int(row["total"] or 0) % (1 << 64))


def column(name: str) -> Column:
    """The column of exactly that name, dots and all."""
    from pyspark.sql import functions as f

    return f.col(quoted(name))


def quoted(name: str) -> str:
    """A name as Spark takes it for exactly that, dots and all."""
    return f"`{name.replace('`', '``')}`"

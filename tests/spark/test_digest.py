"""The digest of data frames: the same for the same rows, and another one for others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from sawlog.milvus.spark import compute_digest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.nightly
def test_digests_tell_rows_apart(spark: SparkSession) -> None:
    def of(rows: list[tuple[Any, ...]], schema: str = "a int, b int") -> Any:
        return compute_digest(spark.createDataFrame(rows, schema))

    assert of([(1, 2), (3, 4)]) == of([(3, 4), (1, 2)])
    assert of([(1, 2)]) == of([(2, 1)], "b int, a int")
    for rows in ([(2, 1)], [(1, 2), (1, 2)], [(1, None)], []):
        assert of([(1, 2)]) != of(rows)
    assert of([(None, 1)]) != of([(1, None)])

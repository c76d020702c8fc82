"""What applications keep in LevelDB, decoded by Spark's workers: the rows that `sawlog.read` gives."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import sawlog
from tests.leveldb_database.support import (
    APPLICATION_OPTIONS,
    APPLICATION_PATHS,
    BEDROCK_ENTRIES,
    COINS,
    OBFUSCATION,
    TXID,
    bedrock_world,
    make_bitcoin_database,
    obfuscate,
    read_application_truth,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def assert_same(spark: SparkSession, path: Path, view: str, **options: str) -> None:
    """Whether Spark and `sawlog.read` give the same rows, in any order."""
    reader = spark.read.format("sawlog").option("view", view).options(**options)
    table = sawlog.read(path, view=view, **options)
    result_table = reader.load(str(path)).toArrow()
    assert result_table.column_names == table.column_names
    assert table.num_rows
    rows = result_table.cast(table.schema).to_pylist()
    assert sorted(rows, key=repr) == sorted(table.to_pylist(), key=repr)


@pytest.mark.parametrize("view", APPLICATION_PATHS)
@pytest.mark.parametrize("history", ["false", "true"])
@pytest.mark.nightly
def test_spark_reads_views_of_a_profile_alike(spark: SparkSession, view: str, history: str) -> None:
    assert_same(spark, APPLICATION_PATHS[view], view, history=history)


def test_the_storage_of_an_extension(spark: SparkSession) -> None:
    assert_same(spark, APPLICATION_OPTIONS["local"] / read_application_truth()["extension"]["id"], "chrome_storage")


def test_spark_reads_a_world_of_bedrock_alike(spark: SparkSession, tmp_path: Path) -> None:
    assert_same(spark, bedrock_world(tmp_path / "db", BEDROCK_ENTRIES, 4), "bedrock")


def test_coins_and_blocks_are_read_on_spark(spark: SparkSession, tmp_path: Path) -> None:
    coins = {b"C" + TXID + bytes([index]): obfuscate(bytes.fromhex(value)) for index, value in enumerate(COINS)}
    assert_same(spark, make_bitcoin_database(tmp_path / "chainstate", OBFUSCATION | coins), "bitcoin_chainstate")
    assert_same(
        spark,
        make_bitcoin_database(tmp_path / "index", {b"l": bytes(4), b"t" + TXID: bytes.fromhex("01 08 50")}),
        "bitcoin_blocks",
    )

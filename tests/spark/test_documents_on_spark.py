"""Pages of the documentation that use Spark, from start to end."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests import documents_world as worlds
from tests.documents import ROOT, read_page
from tests.spark.conftest import COLUMNS
from tests.test_documents import ON_SPARK

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def desk(spark: SparkSession, spark_place: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The directory of Spark's processes, with the examples; empty again in the end, as is the catalog."""
    monkeypatch.chdir(spark_place)
    (spark_place / "examples").symlink_to(ROOT / "examples")
    yield
    for query in spark.streams.active:
        query.stop()
    for table in spark.catalog.listTables():
        spark.sql(f"DROP {'VIEW' if table.isTemporary else 'TABLE'} `{table.name}`")
    for path in spark_place.iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()


@pytest.mark.usefixtures("desk")
@pytest.mark.filterwarnings("ignore")
@pytest.mark.spread(1)
@pytest.mark.parametrize("page", ON_SPARK)
@pytest.mark.spread(8)
def test_a_page_from_start_to_end(
    page: str, spark: SparkSession, pyspark_version: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    if pyspark_version < (4, 2):
        pytest.skip("pages show streams, which need PySpark 4.2")
    by_columns = {'format("sawlog")': f'format("{COLUMNS}")'}  # as if the session had been started with the jar
    with worlds.of(page, monkeypatch) as world:
        read_page(page, world.names | {"spark": spark}, world.places | by_columns)
    for query in spark.streams.active:
        query.processAllAvailable()

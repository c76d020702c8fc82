"""What pages tell readers to type on Spark does what they say."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests import documents_world as worlds
from tests.documents import ROOT, read_page
from tests.test_documents import ON_SPARK

pytestmark = pytest.mark.spark


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("page", ON_SPARK)
def test_a_page_from_start_to_end(
    page: str, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    monkeypatch.chdir(tmp_path)
    with worlds.of(page, monkeypatch) as world, warnings.catch_warnings():
        world.names["spark"] = spark
        names: dict[str, Any] = read_page(page, world.names, world.places)
    for query in spark.streams.active:
        query.processAllAvailable()
        query.stop()
    assert names

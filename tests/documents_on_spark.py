"""Runs whole pages of the documentation in one session of Spark, which has the jar: `python -m ... PAGE...`.

It is a process of its own because the JVM and its Python workers have to be started where relative paths of the pages
lead to the data: in an empty directory, which is emptied again after every page.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import traceback
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import sawlog.spark
from tests import documents_world as worlds
from tests.documents import ROOT, read_page

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SETTINGS = {
    "spark.master": "local[2]",
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.shuffle.partitions": "2",
    "spark.log.level": "OFF",
}


def read(page: str, spark: SparkSession) -> None:
    """One page, and every stream that it has started until nothing is left to read."""
    (Path.cwd() / "examples").symlink_to(ROOT / "examples")
    with pytest.MonkeyPatch.context() as patch, worlds.of(page, patch) as world:
        read_page(page, world.names | {"spark": spark}, world.places)
    for query in spark.streams.active:
        query.processAllAvailable()
        query.stop()


def clear(spark: SparkSession) -> None:
    """Leave nothing to the next page."""
    for table in spark.catalog.listTables():
        spark.sql(f"DROP {'VIEW' if table.isTemporary else 'TABLE'} `{table.name}`")
    for path in Path.cwd().iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()


def main(pages: list[str]) -> int:
    """How many pages do not do what they say."""
    warnings.simplefilter("ignore")
    os.environ["PYSPARK_PYTHON"] = sys.executable
    spark, failed = sawlog.spark.session("documentation", SETTINGS), []
    for page in pages:
        try:
            read(page, spark)
        except Exception:  # noqa: BLE001
            failed.append(page)
            print(f"{page}:\n{traceback.format_exc()}", flush=True)
        finally:
            clear(spark)
    with contextlib.suppress(Exception):
        spark.stop()
    print(f"{len(pages) - len(failed)} of {len(pages)} pages do what they say; not: {failed}")
    return len(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

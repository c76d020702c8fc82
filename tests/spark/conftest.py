"""One Spark session for all tests that need one, and the data they read."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import sawlog.spark
from sawlog import recognition

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WITH_JAR = os.environ.get("SAWLOG_TEST_JAR") == "1"
"""Whether Spark has the jar `sawlog-spark`: all tests pass with it and without; those of its own need it."""
collect_ignore = [] if WITH_JAR else ["test_columnar.py", "test_catalog.py"]

TESTS = Path(__file__).parent.parent
PLUGINS = [TESTS / "plugin", TESTS / "tfrecord_example" / "installed", TESTS.parent / "examples" / "tfrecord"]
"""What other packages add to sawlog."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests in this directory; PySpark warns of every pandas 3, and 4.0 leaves sockets open."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.spark)
            item.add_marker(pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas"))
            item.add_marker(pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"))


@pytest.fixture
def plugins(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The formats of other packages, in this process too."""
    for path in PLUGINS:
        monkeypatch.syspath_prepend(str(path))
    _forget_formats()
    yield
    _forget_formats()


def _forget_formats() -> None:
    for known in (recognition.formats, recognition.get_format):
        known.cache_clear()


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A local session. Its Python processes see the formats of other packages."""
    from pyspark.sql import SparkSession

    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        patch.setenv("PYSPARK_PYTHON", sys.executable)
        patch.setenv("PYTHONPATH", os.pathsep.join([*map(str, PLUGINS), os.environ.get("PYTHONPATH", "")]))
        session = (
            SparkSession.builder.master("local[2]")
            .appName("sawlog tests")
            .config("spark.ui.enabled", "false")
            .config("spark.driver.host", "127.0.0.1")
            .config("spark.driver.bindAddress", "127.0.0.1")
            .config("spark.sql.shuffle.partitions", "2")
            .config("spark.default.parallelism", "2")
            .config("spark.sql.session.timeZone", "America/New_York")
            .config("spark.sql.warehouse.dir", str(tmp_path_factory.mktemp("warehouse")))
            .config("spark.sql.catalogImplementation", "in-memory")
            .config("spark.python.unix.domain.socket.enabled", "true")
            .config("spark.sql.execution.pyspark.udf.faulthandler.enabled", "true")
            .config("spark.log.level", "OFF")
            .config("spark.jars", sawlog.spark.spark_jar() if WITH_JAR else "")
            .getOrCreate()
        )
    # Spark has its environment now. What tests start next to it must not find these formats.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield session
        session.stop()


@pytest.fixture(scope="session")
def pyspark_version() -> tuple[int, int]:
    """Major and minor version of PySpark."""
    import pyspark

    major, minor = pyspark.__version__.split(".")[:2]
    return int(major), int(minor)


@pytest.fixture(scope="session")
def with_jar() -> bool:
    """Whether Spark has the jar."""
    return WITH_JAR


@pytest.fixture(scope="session")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The log of a database that LevelDB itself has written, 000003.log, and its MANIFEST, as logs are shipped."""
    path = tmp_path_factory.mktemp("leveldb") / "db"
    plyvel = pytest.importorskip("plyvel", reason="plyvel has no wheels for Python 3.13 and later")
    db = plyvel.DB(str(path), create_if_missing=True)
    for number in range(3000):
        db.put(b"key%06d" % number, bytes([number % 251]) * (number % 400))
    db.close()
    (path / "CURRENT").unlink()  # with it, the directory would be read as a database
    return path


@pytest.fixture
def damaged(database: Path, tmp_path: Path) -> Path:
    """The database's log with one byte changed in its third block."""
    data = bytearray((database / "000003.log").read_bytes())
    data[2 * 32768 + 5000] ^= 0xFF
    path = tmp_path / "000003.log"
    path.write_bytes(data)
    return path

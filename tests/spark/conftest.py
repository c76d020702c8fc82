"""One Spark session for all tests that need one, and the data they read."""

from __future__ import annotations

import os
import sys
import warnings
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import sawlog.spark
from sawlog.format import lazy, recognition
from sawlog.spark.jvm import CLASS_PATH, launch_settings
from tests.support import find_free_port

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WITH_JAR = os.environ.get("SAWLOG_TEST_JAR") == "1"
"""Whether `sawlog` is the source of the jar `sawlog-spark`, which reads columns: all tests pass either way."""
COLUMNS = "org.apache.spark.sql.execution.python.sawlog.SawlogSource"
"""Spark's other name for that source, which is there in any case."""

TESTS = Path(__file__).parent.parent
PLUGINS = [TESTS / "plugin", TESTS / "tfrecord_example" / "installed", TESTS.parent / "examples" / "tfrecord"]
"""What other packages add to sawlog."""

PRELOADED = TESTS / "spark" / "preloaded"
"""Here Spark's daemons import what the processes of its planner need."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests in this directory; PySpark warns of every pandas 3, and 4.0 leaves sockets open."""
    for item in items:
        if item.nodeid.startswith("tests/spark/"):
            item.add_marker(pytest.mark.spark)
            item.add_marker(pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas"))
            item.add_marker(pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"))


@pytest.fixture
def plugins(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The formats of other packages, in this process too."""
    for path in PLUGINS:
        monkeypatch.syspath_prepend(str(path))
    forget_formats()
    yield
    forget_formats()


def forget_formats() -> None:
    """What this process knows of the packages that are installed."""
    for cached in (lazy.list_entry_points, lazy.find_entry_points, recognition.load_formats, recognition.get_format):
        cached.cache_clear()


def nameless(folder: Path) -> Path:
    """The jar without its short name: `sawlog` is still the source that reads rows."""
    path = folder / "nameless.jar"
    with zipfile.ZipFile(sawlog.spark.spark_jar()) as ours, zipfile.ZipFile(path, "w") as archive:
        for name in ours.namelist():
            if not name.startswith("META-INF/services/"):
                archive.writestr(name, ours.read(name))
    return path


@pytest.fixture(scope="module")
def registered(spark: SparkSession) -> SparkSession:
    sawlog.spark.register(spark)
    return spark


@pytest.fixture(scope="session")
def connect_port() -> int:
    """Where the session is a server of Spark Connect, too."""
    return find_free_port()


@pytest.fixture(scope="session")
def spark_place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where Spark's processes are: to them, relative paths begin there."""
    return tmp_path_factory.mktemp("place")


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory, spark_place: Path, connect_port: int) -> Iterator[SparkSession]:
    """A local session. Its Python processes see the formats of other packages."""
    from pyspark.sql import SparkSession

    directory = tmp_path_factory.mktemp("session")
    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        patch.chdir(spark_place)
        patch.setenv("PYSPARK_PYTHON", sys.executable)
        paths = [str(PRELOADED), *map(str, PLUGINS), str(TESTS.parent), os.environ.get("PYTHONPATH", "")]
        patch.setenv("PYTHONPATH", os.pathsep.join(paths))
        variables, first = launch_settings(None)
        for name, value in variables.items():
            patch.setenv(name, value)
        session = (
            SparkSession.builder.master("local[2]")
            .appName("sawlog tests")
            .config("spark.ui.enabled", "false")
            .config("spark.ui.showConsoleProgress", "false")
            .config("spark.driver.host", "127.0.0.1")
            .config("spark.driver.bindAddress", "127.0.0.1")
            .config("spark.sql.shuffle.partitions", "2")
            .config("spark.default.parallelism", "2")
            .config("spark.sql.session.timeZone", "America/New_York")
            .config("spark.sql.warehouse.dir", str(directory / "warehouse"))
            .config("spark.sql.catalogImplementation", "in-memory")
            .config("spark.python.unix.domain.socket.enabled", "true")
            .config("spark.python.daemon.module", "sawlog.spark.daemon")
            .config("spark.sql.execution.pyspark.udf.faulthandler.enabled", "true")
            .config("spark.log.level", "OFF")
            .config(CLASS_PATH, first)
            .config("spark.jars", sawlog.spark.spark_jar() if WITH_JAR else str(nameless(directory)))
            .config("spark.plugins", "org.apache.spark.sql.connect.SparkConnectPlugin")
            .config("spark.connect.grpc.binding.address", "127.0.0.1")
            .config("spark.connect.grpc.binding.port", str(connect_port))
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
    """The log of a database that LevelDB itself has written, 000003.log, as logs are shipped."""
    path = tmp_path_factory.mktemp("leveldb") / "db"
    plyvel = pytest.importorskip("plyvel", reason="plyvel has no wheels for Python 3.13 and later")
    db = plyvel.DB(str(path), create_if_missing=True)
    for number in range(3000):
        db.put(b"key%06d" % number, bytes([number % 251]) * (number % 400))
    db.close()
    for file in (path / "CURRENT", *path.glob("MANIFEST-*")):
        file.unlink()  # with either, the directory would be read as a database
    return path


@pytest.fixture
def damaged(database: Path, tmp_path: Path) -> Path:
    """The database's log with one byte changed in its third block."""
    data = bytearray((database / "000003.log").read_bytes())
    data[2 * 32768 + 5000] ^= 0xFF
    path = tmp_path / "000003.log"
    path.write_bytes(data)
    return path

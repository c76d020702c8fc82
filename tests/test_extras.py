"""The wheel with one extra in a clean environment: all that the documentation promises for it works."""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent

PLAIN = """
import json, pyarrow as pa, sawlog, subprocess, sys
table = pa.table({"record": pa.array([b"one", b"two"], pa.binary())})
sawlog.write(table, "a.log", format="leveldb_log")
assert sawlog.read("a.log").cast(table.schema).equals(table)
def verb(*arguments, code=0):
    done = subprocess.run([sys.executable, "-m", "sawlog", *arguments], capture_output=True, text=True)
    assert done.returncode == code, (arguments, done.stdout, done.stderr)
    assert "Traceback" not in done.stderr, done.stderr
    return done.stdout + done.stderr
for arguments in (["info"], ["cat", "--json"], ["verify"]):
    verb(arguments[0], "a.log", *arguments[1:])
verb("repair", "a.log", "b.log")
verb("convert", "a.log", "rows.parquet")
verb("formats", "--json")
verb("init")
"""
WITHOUT_SPARK = """
needing = ["run pipeline.toml", "import . db", "merge db N T d", "compact a b", "spark-jar"]
for arguments in map(str.split, needing):
    assert "pip install" in verb(*arguments, code=2), arguments
"""
SQL = """
assert json.loads(verb("sql", "SELECT count(*) AS n FROM 'a.log'", "--json")) == {"n": 2}
"""
SPARK = """
import datetime as dt, os, warnings
from sawlog.deephaven_log import Logger
import sawlog.spark
conf = ["--conf", "spark.master=local[1]"]
schema = pa.schema([("n", pa.int64())])
with Logger("logs", schema, namespace="N", table="T", internal_partition="w") as logger:
    logger.write(pa.record_batch([pa.array(range(10))], schema=schema))
day = next(name for name in os.listdir("logs")).split(".bin.")[0].rsplit(".", 1)[1]
verb("import", "logs", "db", *conf)
verb("merge", "db", "N", "T", day, *conf)
spark = sawlog.spark.session("extras", {"spark.master": "local[1]", "spark.ui.enabled": "false"})
assert spark.read.format("sawlog").load("a.log").count() == 2
frame = spark.read.format("sawlog").option("format", "deephaven_table").load("db/Systems/N")
assert frame.count() == 10
spark.createDataFrame([(None,)], "value binary").select(sawlog.spark.from_filodb_record("value", "gauge")).collect()
rows = spark.createDataFrame([("m", {"_ws_": "a", "_ns_": "b"})], "metric string, tags map<string, string>")
shard = sawlog.spark.filodb_shard("metric", "tags", 8)
rows.select(shard, sawlog.spark.filodb_partition_hash("metric", "tags")).collect()
spark.stop()
"""
PROMISED = {
    "": PLAIN + WITHOUT_SPARK,
    "azure": PLAIN + "import fsspec\nfsspec.get_filesystem_class('az')\n" + WITHOUT_SPARK,
    "datastore": PLAIN + "import google.protobuf, orjson\n" + WITHOUT_SPARK,
    "filodb": PLAIN + "import pyhocon\n" + WITHOUT_SPARK,
    "gcs": PLAIN + "import fsspec\nfsspec.get_filesystem_class('gs')\n" + WITHOUT_SPARK,
    "metrics": PLAIN + "import prometheus_client\n" + WITHOUT_SPARK,
    "milvus": PLAIN + "import fastavro\n" + WITHOUT_SPARK,
    "remote": PLAIN + "sawlog.write(table, 'memory://a/b.log', format='leveldb_log')\nimport s3fs\n" + WITHOUT_SPARK,
    "rocksdb": PLAIN + "import zstandard\n" + WITHOUT_SPARK,
    "spark": PLAIN + SPARK,
    "sql": PLAIN + SQL + WITHOUT_SPARK,
    "all": PLAIN + SQL + SPARK,
}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "-w", str(place), str(ROOT)]
    subprocess.run(command, check=True)
    (made,) = place.glob("*.whl")
    return made


@pytest.mark.heavy
@pytest.mark.parametrize("extra", PROMISED)
def test_an_extra_alone(tmp_path: Path, wheel: Path, extra: str) -> None:
    venv.create(tmp_path / "venv", with_pip=True)
    python = str(tmp_path / "venv" / "bin" / "python")
    asked = f"{wheel}[{extra}]" if extra else str(wheel)
    constraints = str(ROOT / "constraints" / "dev.txt")
    subprocess.run([python, "-m", "pip", "install", "--quiet", "-c", constraints, asked], check=True)
    others = ("PYTHON", "PYSPARK", "SPARK")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(others)}
    place = tmp_path / "work"
    place.mkdir()
    done = subprocess.run(
        [python, "-W", "error::ImportWarning", "-c", PROMISED[extra]],
        capture_output=True,
        text=True,
        cwd=place,
        env=environment,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-6000:]


def test_no_module_of_tests_needs_what_only_some_pythons_have() -> None:
    tests = Path(__file__).parent
    drivers = tests / "interop" / "engines"  # run by environments of their own
    known = [path for path in tests.rglob("*.py") if drivers not in path.parents]
    needing = [path for path in known if "\nimport plyvel" in path.read_text("utf-8")]
    assert not needing, "plyvel has no wheels for Python 3.13: pytest.importorskip"

"""The jar: compiled once, and what its tests say, which need a Spark of their own."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import sawlog.spark
from sawlog.errors import OptionError, SawlogError
from sawlog.spark import jar


def test_the_jar_is_compiled_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jar, "CARRIED", tmp_path)
    path = Path(sawlog.spark.spark_jar())
    assert sawlog.spark.spark_jar() == str(path)
    with zipfile.ZipFile(path) as archive:
        assert archive.read("META-INF/services/org.apache.spark.sql.sources.DataSourceRegister").endswith(
            b".SawlogSource\n"
        )
    monkeypatch.setattr(jar.subprocess, "run", lambda *_, **__: pytest.fail("compiled again"))
    assert sawlog.spark.spark_jar() == str(path)
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    with pytest.raises(OptionError, match="no jars of Spark with the Scala compiler"):
        sawlog.spark.spark_jar()


@pytest.mark.nightly
def test_the_same_sources_make_the_same_jar(tmp_path: Path) -> None:
    jar_path, again = jar.make(tmp_path), jar.make(tmp_path / "again")
    assert jar_path.read_bytes() == again.read_bytes()
    assert jar_path.with_suffix(".json").read_bytes() == again.with_suffix(".json").read_bytes()


def test_the_jar_that_fits_is_carried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is used if nobody has changed it, or the sources that it was made from."""
    compiled = sawlog.spark.spark_jar()
    monkeypatch.setattr(jar, "compile_jar", lambda sources, version, jars, path: shutil.copy(compiled, path))
    monkeypatch.setattr(jar, "CARRIED", tmp_path / "carried")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    jar_path = jar.make(jar.CARRIED)
    description = jar_path.with_suffix(".json")
    assert sawlog.spark.spark_jar() == str(jar_path)

    monkeypatch.setattr(jar, "compile_jar", lambda sources, version, jars, path: None)
    text = description.read_text()
    description.write_text(json.dumps({**json.loads(text), "sources": "0"}))
    assert Path(sawlog.spark.spark_jar()).parent == tmp_path / "sawlog", "of other sources"
    description.write_text(text)
    assert sawlog.spark.spark_jar() == str(jar_path)
    jar_path.write_bytes(jar_path.read_bytes() + b"\0")
    with pytest.raises(SawlogError, match=r"expected a jar with SHA-256 .*, found .*; install again"):
        sawlog.spark.spark_jar()


def test_the_jar_is_that_of_the_spark_that_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not that of PySpark, where `SPARK_HOME` is another's."""
    (tmp_path / "jars").mkdir()
    for name in ("spark-core_2.13-4.0.1.jar", "scala-compiler-2.13.16.jar"):
        (tmp_path / "jars" / name).touch()
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(jar, "CARRIED", tmp_path)
    monkeypatch.setattr(jar, "compile_jar", lambda sources, version, jars, path: None)
    assert Path(sawlog.spark.spark_jar()).name.startswith("sawlog-spark_4.0.1_")


TWO_QUERIES = """
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
frame = spark.read.format("sawlog").load({!r})
assert frame.count() == frame.limit(10_000).count()
"""

CATALOG = """
spark.conf.set("spark.sql.catalog.c", "org.apache.spark.sql.execution.python.sawlog.SawlogCatalog")
try:
    spark.sql("SHOW NAMESPACES IN c").collect()
except Exception as error:
    print(error)
"""


@pytest.mark.nightly
def test_one_line_says_what_the_jar_would_bring(database: Path) -> None:
    """Among the lines of Spark's log, once per application."""
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable}
    command = [sys.executable, "-c", TWO_QUERIES.format(str(database))]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    lines = [line for line in done.stderr.splitlines() if "sawlog spark-jar" in line]
    assert len(lines) == 1
    assert re.fullmatch(r"\d\d/\d\d/\d\d \d\d:\d\d:\d\d INFO sawlog: Spark reads rows: with --jars .*", lines[0])


@pytest.mark.nightly
def test_a_jar_of_another_spark_is_not_used(database: Path, tmp_path: Path) -> None:
    """As after an upgrade of Spark where `spark-defaults.conf` names a jar: rows are read, as without it."""
    other_path = tmp_path / "other.jar"
    with zipfile.ZipFile(sawlog.spark.spark_jar()) as ours, zipfile.ZipFile(other_path, "w") as archive:
        for name in ours.namelist():
            content = ours.read(name)
            archive.writestr(
                name,
                re.sub(rb"(?<=Implementation-Version: )[\d.]+", b"3.5.1", content) if name == jar.MANIFEST else content,
            )
    code = TWO_QUERIES.format(str(database)) + CATALOG
    outcomes = []
    for path in (other_path, sawlog.spark.spark_jar()):
        environment = {
            **os.environ,
            "PYSPARK_PYTHON": sys.executable,
            "PYSPARK_SUBMIT_ARGS": f"--jars {path} pyspark-shell",
        }
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=False
        )
        assert done.returncode == 0, done.stderr[-2000:]
        matches = re.findall(
            r"WARN sawlog: the jar sawlog-spark is not used: it was made for Spark 3.5.1, .*", done.stderr
        )
        outcomes.append(
            (len(matches), "INFO sawlog: Spark reads rows" in done.stderr, "made for Spark 3.5.1" in done.stdout)
        )
    assert outcomes == [(1, True, True), (0, False, False)]


def test_a_failed_compilation_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(jar, "CARRIED", tmp_path)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    (tmp_path / "bin").mkdir()
    java = tmp_path / "bin" / "java"
    java.write_text("#!/bin/sh\necho 'error: broken' >&2; exit 1\n")
    java.chmod(0o755)
    with pytest.raises(SawlogError, match=r"could not be compiled: error: broken"):
        sawlog.spark.spark_jar()
    assert list((tmp_path / "sawlog").iterdir()) == []

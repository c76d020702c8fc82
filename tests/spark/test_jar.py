"""The jar: compiled once, and what its tests say, which need a Spark of their own."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import sawlog.spark
from sawlog.errors import OptionError, SawlogError
from sawlog.spark import jar

HERE = Path(__file__).parent


def test_with_the_jar(pyspark_version: tuple[int, int]) -> None:
    environment = {**os.environ, "SAWLOG_TEST_JAR": "1"}
    environment.pop("PYTEST_XDIST_WORKER", None)
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-p", "no:xdist"]
    done = subprocess.run(
        [*command, str(HERE / "test_columnar.py"), str(HERE / "test_catalog.py")],
        capture_output=True,
        text=True,
        env=environment,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]
    assert ("skipped" in done.stdout.splitlines()[-1]) == (pyspark_version < (4, 2)), "only streams are newer"


def test_the_jar_is_compiled_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = Path(sawlog.spark.spark_jar())
    assert sawlog.spark.spark_jar() == str(path)
    with zipfile.ZipFile(path) as made:
        assert made.read("META-INF/services/org.apache.spark.sql.sources.DataSourceRegister").endswith(
            b".SawlogSource\n"
        )
    monkeypatch.setattr(jar.subprocess, "run", lambda *_, **__: pytest.fail("compiled again"))
    assert sawlog.spark.spark_jar() == str(path)
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    with pytest.raises(OptionError, match="no jars of Spark with the Scala compiler"):
        sawlog.spark.spark_jar()


def test_a_failed_compilation_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    (tmp_path / "bin").mkdir()
    java = tmp_path / "bin" / "java"
    java.write_text("#!/bin/sh\necho 'error: broken' >&2; exit 1\n")
    java.chmod(0o755)
    with pytest.raises(SawlogError, match=r"could not be compiled: error: broken"):
        sawlog.spark.spark_jar()
    assert list((tmp_path / "sawlog").iterdir()) == []

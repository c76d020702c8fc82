"""The daemon that Python workers are forked from: PySpark as it is installed, if that is the same."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from sawlog.spark.daemon import silence_worker, strip_zips


def zipped(path: Path, version: str, name: str = "pyspark") -> str:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(f"{name}/version.py", version)
    return str(path)


def test_zips_of_what_is_installed_are_left_out(tmp_path: Path) -> None:
    installed = tmp_path / "site"
    for name, version in (("pyspark", "4.2.0"), ("py4j", "0.10")):
        (installed / name).mkdir(parents=True)
        (installed / name / "version.py").write_text(version)
    spark_zip, py4j = zipped(tmp_path / "a.zip", "4.2.0"), zipped(tmp_path / "b.zip", "0.10", "py4j")
    newer_zip, foreign = zipped(tmp_path / "c.zip", "4.3.0"), zipped(tmp_path / "d.zip", "", "users")
    remaining_paths = ["", str(tmp_path / "gone.zip"), newer_zip, foreign, str(installed)]
    assert strip_zips([spark_zip, py4j, *remaining_paths]) == remaining_paths
    assert strip_zips([spark_zip, py4j]) == [spark_zip, py4j], "nothing else has them"


@pytest.mark.parametrize("error", [BrokenPipeError, ConnectionResetError, EOFError])
def test_a_worker_whose_session_has_ended_says_nothing(error: type[Exception]) -> None:
    def raise_lookup(*_: object) -> int:
        raise error

    assert silence_worker(raise_lookup)("socket", True) == 1
    assert silence_worker(lambda *_: 0)("socket", True) == 0


def test_what_workers_need_is_loaded_before_they_are_forked() -> None:
    """And without a thread, of which a fork would lose the other end."""
    code = (
        "import os, sys; from sawlog.spark.daemon import preload; preload(['pyspark.worker', 'no.such.module'])\n"
        "print('sawlog.spark.reader' in sys.modules, 'pyspark.worker' in sys.modules)\n"
        "print(len(os.listdir('/proc/self/task')))"
    )
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}  # as Spark sets it
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    assert done.stdout.split() == ["True", "True", "1"]

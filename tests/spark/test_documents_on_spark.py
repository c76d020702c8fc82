"""Pages of the documentation that use Spark, from start to end."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.documents import ROOT
from tests.test_documents import ON_SPARK


def test_pages_from_start_to_end(tmp_path: Path, pyspark_version: tuple[int, int]) -> None:
    if pyspark_version < (4, 2):
        pytest.skip("pages show streams, which need PySpark 4.2")
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-m", "tests.documents_on_spark", *ON_SPARK],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-4000:]

"""Executors of a cluster that are killed in the middle of their tasks: every row arrives once."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import sawlog

from .processes import ROOT
from .run_on_executors import KILLS

FILES, ROWS = 16, 200_000


@pytest.mark.heavy
@pytest.mark.spark
@pytest.mark.parametrize("jar", ["1", ""], ids=["with the jar", "without it"])
def test_executors_are_killed(tmp_path: Path, jar: str) -> None:
    numbers = np.arange(FILES * ROWS)
    for file, part in enumerate(np.split(numbers, FILES)):
        sawlog.write(pa.table({"n": part}), tmp_path / "logs" / f"{file:02}.bin", format="deephaven_log")
    command = [sys.executable, "-m", "tests.exactly_once.run_on_executors", str(tmp_path)]
    environment = {**os.environ, "SAWLOG_TEST_JAR": jar}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stderr[-5000:]
    assert json.loads(done.stdout.splitlines()[-1]) == {"batch": KILLS, "stream": KILLS}
    for sink in ("batch", "stream"):
        row_numbers = np.sort(sawlog.read(tmp_path / sink, format="deephaven_log")["n"].to_numpy())
        assert np.array_equal(row_numbers, numbers), f"{sink}: {len(row_numbers):,} rows of {len(numbers):,}"
        assert not [path for path in (tmp_path / sink).rglob(".*") if path.is_file()], "left over by killed tasks"

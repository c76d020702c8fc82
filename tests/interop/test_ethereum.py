"""Databases that go-ethereum writes now, with what it shows of their blocks."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).parent / "ethereum"

pytestmark = pytest.mark.interop


def test_blocks_of_a_new_database_are_what_the_node_shows(tmp_path: Path) -> None:
    if shutil.which("go") is None:
        pytest.skip("there is no Go")
    program = tmp_path / "chain"
    subprocess.run(["go", "build", "-o", str(program), "."], cwd=PROGRAM, check=True)
    for engine in ("leveldb", "pebble"):
        place = tmp_path / f"geth-1.17.10-{engine}"
        place.mkdir()
        subprocess.run([str(program), engine, str(place)], check=True)
    tests = str(PROGRAM.parents[1] / "leveldb_database" / "test_ethereum.py")
    environment = {**os.environ, "SAWLOG_CHAINS": str(tmp_path)}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", tests]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout

"""Databases that nodes of chains write now, with what they show of their blocks."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent
PLACES = {
    "ethereum": {"geth-1.17.10-leveldb": ["leveldb"], "geth-1.17.10-pebble": ["pebble"]},
    "cometbft": {"cometbft-0.38.17": []},
}
"""Databases by program, and what the program is given before the place."""

pytestmark = pytest.mark.interop


@pytest.mark.parametrize("chain", PLACES)
def test_blocks_of_a_new_database_are_what_the_node_shows(chain: str, tmp_path: Path) -> None:
    if shutil.which("go") is None:
        pytest.skip("there is no Go")
    program = tmp_path / "chain"
    subprocess.run(["go", "build", "-o", str(program), "."], cwd=FOLDER / chain, check=True)
    for name, words in PLACES[chain].items():
        (tmp_path / name).mkdir()
        subprocess.run([str(program), *words, str(tmp_path / name)], check=True)
    tests = str(FOLDER.parent / "leveldb_database" / f"test_{chain}.py")
    environment = {**os.environ, "SAWLOG_CHAINS": str(tmp_path)}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", tests]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout

"""Databases of Pebble's in CockroachDB's order of keys, drawn from a seed and asked by Pebble itself."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

import sawlog
from sawlog.leveldb.database.layout import COCKROACH_NAME
from sawlog.leveldb.database.order import ORDERS
from tests.leveldb_database.support import read_cockroach_live

pytestmark = pytest.mark.interop
PROGRAM = Path(__file__).parent / "pebble"


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Pebble, with a program that draws from a seed."""
    program = tmp_path_factory.mktemp("pebble") / "cockroach"
    subprocess.run(["go", "build", "-o", str(program), "./cockroach"], cwd=PROGRAM, check=True, timeout=900)
    return program


@pytest.mark.parametrize("seed", range(16))
@pytest.mark.parametrize("case", ["ranges", "cuts", "external"])
def test_what_pebble_answers(program: Path, case: str, seed: int, tmp_path: Path) -> None:
    """Of keys that are equal to Pebble the bytes may differ: tables have them without what does not count."""
    command = [str(program), str(tmp_path), case, str(seed)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300)
    rows = [tuple(bytes.fromhex(text) for text in line.split("\t")) for line in done.stdout.splitlines()]
    place = ORDERS[COCKROACH_NAME].compute_place
    assert rows
    assert [(place(key), value) for key, value in read_cockroach_live(tmp_path / "db")] == [
        (place(key), value) for key, value in rows
    ]
    report = sawlog.verify(tmp_path / "db", format="leveldb_database")
    assert not report.damaged
    assert not report.incomplete


def test_pebble_opens_what_is_repaired(tmp_path: Path) -> None:
    command = ["go", "run", "./tables", str(tmp_path / "db"), "24", "cockroach", "2000", "snappy"]
    written = subprocess.run(command, cwd=PROGRAM, capture_output=True, text=True, check=True, timeout=900)
    sawlog.repair(tmp_path / "db", tmp_path / "repaired")
    command = ["go", "run", "./opened", str(tmp_path / "repaired"), "cockroach"]
    opened = subprocess.run(command, cwd=PROGRAM, capture_output=True, text=True, check=True, timeout=900)
    assert [json.loads(line) for line in opened.stdout.splitlines()] == [
        json.loads(line) for line in written.stdout.splitlines()
    ]

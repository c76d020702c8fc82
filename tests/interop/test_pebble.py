"""Logs that Pebble writes now, by the Go program that has written the golden ones."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

import sawlog
from tests.leveldb_database.support import read_pebble_answers, read_pebble_live
from tests.leveldb_log.support import read_operations, read_pebble_truth

pytestmark = pytest.mark.interop
PROGRAM = Path(__file__).parent / "pebble"


@pytest.mark.parametrize("version", ["new", "old"])
def test_pebble_and_sawlog_agree(tmp_path: Path, version: str) -> None:
    go = shutil.which("go")
    assert go is not None, "Go is needed to build the program that writes Pebble's logs: no go on PATH"
    database = tmp_path / "database"
    written = subprocess.run(
        [go, "run", ".", str(database), version], cwd=PROGRAM, capture_output=True, text=True, check=False, timeout=900
    )
    assert written.returncode == 0, written.stderr
    lines = tmp_path / "truth.jsonl"
    lines.write_text(written.stdout)
    assert read_operations(database / "000002.log") == read_pebble_truth(lines)
    for report in sawlog.verify(database, view="writes").files:
        assert not report.damaged
    assert not any(report.damaged for report in sawlog.verify(database / "MANIFEST-000001", view="edits").files)


CASES = ("13 plain", "15 at", "19 at", "22 plain", "24 plain", "24 cockroach")


@pytest.mark.parametrize("compression", ["snappy", "zstd"])
@pytest.mark.parametrize("case", CASES)
def test_what_pebble_answers(case: str, compression: str, tmp_path: Path) -> None:
    version, comparer = case.split()
    rows = "5000"
    go = shutil.which("go")
    assert go is not None, "Go is needed to build the program that writes Pebble's tables: no go on PATH"
    command = [go, "run", "./tables", str(tmp_path / "db"), version, comparer, rows, compression]
    written = subprocess.run(command, cwd=PROGRAM, capture_output=True, text=True, check=False, timeout=900)
    assert written.returncode == 0, written.stderr
    lines = tmp_path / "answers.jsonl"
    lines.write_text(written.stdout)
    expected = read_pebble_answers(lines)
    assert len(expected) > int(rows) // 2
    assert read_pebble_live(tmp_path / "db") == expected


@pytest.mark.parametrize("case", ["13 plain", "22 plain", "24 plain"])
def test_pebble_opens_what_is_repaired(case: str, tmp_path: Path) -> None:
    version, comparer = case.split()
    go = shutil.which("go")
    assert go is not None, "Go is needed to build the program that opens Pebble's databases: no go on PATH"
    source, target = tmp_path / "db", tmp_path / "repaired"
    command = [go, "run", "./tables", str(source), version, comparer, "2000", "snappy"]
    written = subprocess.run(command, cwd=PROGRAM, capture_output=True, text=True, check=False, timeout=900)
    assert written.returncode == 0, written.stderr
    sawlog.repair(source, target)
    command = [go, "run", "./opened", str(target)]
    opened = subprocess.run(command, cwd=PROGRAM, capture_output=True, text=True, check=False, timeout=900)
    assert opened.returncode == 0, opened.stderr
    assert opened.stdout == written.stdout

"""Logs that Pebble writes now, by the Go program that has written the golden ones."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

import sawlog
from tests.leveldb_log.test_pebble import operations, truth

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
    assert operations(database / "000002.log") == truth(lines)
    for report in sawlog.verify(database, view="writes").files:
        assert not report.damaged
    assert not any(report.damaged for report in sawlog.verify(database / "MANIFEST-000001", view="edits").files)

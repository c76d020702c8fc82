"""A full disk below a sink, and two drivers on one checkpoint: every row arrives once."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from .processes import ROOT
from .trouble import RIVAL, TIMES, Trouble

OWN_DISKS = ["unshare", "--user", "--map-root-user", "--mount"]


@pytest.mark.heavy
@pytest.mark.spark
def test_the_disk_of_a_sink_is_full(tmp_path: Path) -> None:
    if subprocess.run([*OWN_DISKS, "true"], capture_output=True, check=False).returncode:
        pytest.skip("no mounts without being root here")
    command = [*OWN_DISKS, sys.executable, "-m", "tests.exactly_once.trouble", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
    assert f"{TIMES} x full disk" in done.stdout


@pytest.mark.heavy
@pytest.mark.spark
def test_two_drivers_on_one_checkpoint(tmp_path: Path) -> None:
    tally = Trouble(tmp_path, ["deephaven_log", "parquet"]).rivals()
    assert RIVAL in (tmp_path / "run_queries.log").read_text(errors="replace")
    assert tally.exact, str(tally)

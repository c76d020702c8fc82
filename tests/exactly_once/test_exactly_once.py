"""The short run, into one sink: each kind of process is killed, with SIGKILL. `make exactly-once` is the long one."""

from __future__ import annotations

from pathlib import Path

import pytest

from .harness import Harness
from .trees import Trees


@pytest.mark.spark
def test_every_row_arrives_once(tmp_path: Path) -> None:
    tally = Harness(tmp_path, ["deephaven_log"]).run(3, 1.0)
    assert tally.kills.total() >= 4
    assert len(tally.kills) == 3
    assert tally.logged > 100
    assert tally.exact, str(tally)


def test_every_row_is_imported_once(tmp_path: Path) -> None:
    """Followed and merged, without Spark: importer and writer are killed, the machine reboots, the disk is full."""
    counts = Trees(tmp_path, spark=0).run(5, 0.3)
    assert len(counts.kills) == 4
    assert counts.logged > 100
    assert counts.exact, str(counts)

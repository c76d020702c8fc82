"""The short run, into one sink: processes are killed, with SIGKILL. `make exactly-once` is the long one.

With Spark it is nightly; that a driver is killed costs another start of Spark, and is heavy. In every run the importer
without Spark is killed.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from .harness import VICTIMS, Harness
from .trees import Trees


@pytest.mark.spark
@pytest.mark.parametrize(
    "victims",
    [
        pytest.param(("worker", "writer"), marks=pytest.mark.nightly, id="workers"),
        pytest.param(("daemon", "committer", "writer"), marks=pytest.mark.nightly, id="daemons"),
        pytest.param(tuple(VICTIMS), marks=pytest.mark.heavy, id="drivers"),
    ],
)
def test_every_row_arrives_once(tmp_path: Path, victims: tuple[str, ...]) -> None:
    tally = Harness(tmp_path, ["deephaven_log"], victims=victims).run(len(victims), 1.0)
    assert tally.kills.total() >= len(victims) + 1
    assert set(tally.kills) == set(victims)
    assert tally.logged > 100
    assert tally.exact, str(tally)


def test_every_row_is_imported_once(tmp_path: Path) -> None:
    """Followed and merged, without Spark: importer and writer are killed, the machine reboots, the disk is full."""
    counts = Trees(tmp_path, spark=0).run(5, 0.3)
    assert len(counts.kills) == 4
    assert counts.logged > 100
    assert counts.exact, str(counts)

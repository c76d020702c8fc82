"""What a compaction says of its source, without Spark; what it does is tried with Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from sawlog.milvus.collection.dataset import SegmentsWarning
from tests.milvus_binlog.support import write_collection


def test_it_says_once_which_segments_it_takes_for_alive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pyspark")
    from sawlog.milvus import spark

    def planned_again(session: None, dataset: Any, *arguments: object) -> int:
        return len(dataset.list_batches())

    monkeypatch.setattr(spark, "rewrite_collection", planned_again)
    write_collection(tmp_path / "in", pa.table({"100": pa.array([1, 2, 3], pa.int64())}))
    with pytest.warns(SegmentsWarning, match="read as found") as warning_records:
        assert spark.compact(None, str(tmp_path / "in"), str(tmp_path / "out")) == 1  # type: ignore[arg-type, comparison-overlap]
    assert len(warning_records) == 1

"""Files that other projects keep as samples; they lie where the environment says, never in this repository."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

import sawlog

pytestmark = pytest.mark.interop


@pytest.fixture(scope="module")
def samples() -> Path:
    """The directory above `spark-milvus-samples` and `storage-v2-samples`."""
    place = os.environ.get("SAWLOG_MILVUS_SAMPLES")
    if not place:
        pytest.skip("set SAWLOG_MILVUS_SAMPLES to the directory of the samples of other projects")
    return Path(place)


def test_backup_of_another_project(samples: Path) -> None:
    root = samples / "spark-milvus-samples" / "data" / "backup_demo"
    rows = {}
    for name in ("hello_milvus", "hello_milvus2"):
        dataset = sawlog.open(root, table=name)
        assert dataset.schema.names == ["pk", "random", "var", "embeddings"]
        rows[name] = dataset.to_table()
        latest: dict[int, int] = {}
        for row in sawlog.read(root, table=name, view="deletes").to_pylist():
            latest[row["pk"]] = max(row["timestamp"], latest.get(row["pk"], 0))
        inserts = sawlog.read(root, table=name, view="inserts", columns=["pk", "Timestamp"]).to_pylist()
        alive = [row["pk"] for row in inserts if row["Timestamp"] >= latest.get(row["pk"], 0)]
        assert rows[name]["pk"].to_pylist() == alive
    assert rows["hello_milvus2"].num_rows == 6000
    assert not sawlog.verify(root).damaged


def test_vector_binlog_holds_its_extracted_parquet(samples: Path) -> None:
    directory = samples / "spark-milvus-samples" / "data" / "read_binlog_demo"
    vectors = sawlog.read(directory / "vector_binlog").column(0).combine_chunks()
    stored = pq.read_table(directory / "vector_binlog.parquet").column(0).to_pylist()
    expected = np.frombuffer(b"".join(stored), "<f4")
    assert np.array_equal(vectors.flatten().to_numpy(), expected)


def test_l0_delta_log(samples: Path) -> None:
    path = samples / "spark-milvus-samples" / "src" / "main" / "resources" / "l0_delta_log_for_testing"
    table = sawlog.read(path)
    assert table.num_rows > 0
    assert table["pk"].null_count == 0
    events = sawlog.read(path, view="frames").to_pylist()
    assert events[1]["next_position"] == -1
    assert not sawlog.verify(path).damaged


def test_column_groups_are_read(samples: Path) -> None:
    tables = [sawlog.read(samples / "storage-v2-samples" / f"cg{i}.parquet", format="milvus_binlog") for i in range(3)]
    assert [table.schema.names for table in tables] == [["id", "value"], ["name"], ["vector"]]
    assert {table.num_rows for table in tables} == {100}
    assert tables[1]["name"][2].as_py() == "name_2"
    assert tables[2]["vector"][1].as_py() == pytest.approx([0.1, 1.1, 2.1, 3.1])

"""`merge` on Spark; what else is true of it is shown without Spark, by tests/deephaven_import."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import sawlog
from sawlog.deephaven_import.spark import import_logs, merge
from sawlog.errors import SawlogError
from tests.deephaven_import.support import DATE, Logs, batch

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

job = sys.modules["sawlog.deephaven_import.spark.merge"]


@pytest.fixture
def logs(tmp_path: Path) -> Logs:
    return Logs(tmp_path / "logs")


@pytest.fixture
def db(tmp_path: Path) -> Path:
    return tmp_path / "db"


@pytest.fixture
def imported(spark: SparkSession, logs: Logs, db: Path) -> Path:
    """Rows 0 to 1999 in several locations of two internal partitions, and another date."""
    logs.write(0, 1000)
    logs.write(1000, 2000, internal="vm2")
    logs.write(0, 10, column="2024-01-02")
    import_logs(spark, logs.directory, db, location_bytes=12_000)
    return db


def intraday(db: Path) -> list[int]:
    path = db / "Intraday" / "Ns" / "T"
    return sawlog.read(path, format="deephaven_table").column("N").to_pylist()


def history(db: Path, **options: Any) -> pa.Table:
    return sawlog.read(db / "Systems" / "Ns" / "Partitions", format="deephaven_table", **options)


def internals(db: Path) -> list[str]:
    return sorted(path.name for path in (db / "Systems" / "Ns" / "Partitions").iterdir())


def test_sorted_grouped_and_spread(spark: SparkSession, imported: Path) -> None:
    done = merge(spark, imported, "Ns", "T", DATE, group=["Sym"], internal_partitions=3)
    assert (done.rows, done.grouped, done.written, done.deleted) == (2000, ["Sym"], True, False)
    assert len(done.merged) > 4
    seen: dict[str | None, str] = {}
    for internal in internals(imported):
        table = sawlog.read(imported / "Systems/Ns/Partitions" / internal, format="deephaven_table")
        keys, numbers = table.column("Sym").to_pylist(), table.column("N").to_pylist()
        assert list(zip([key or "" for key in keys], numbers, strict=True)) == sorted(
            zip([key or "" for key in keys], numbers, strict=True)
        )
        for key in set(keys):
            assert seen.setdefault(key, internal) == internal
    assert len(internals(imported)) > 1
    groups = history(imported, view="groups")
    assert sum(groups.column("rows").to_pylist()) == 2000
    assert len(intraday(imported)) == 2010
    assert set(history(imported).column("Date").to_pylist()) == {DATE}


def test_without_groups_rows_stay_in_order(spark: SparkSession, imported: Path) -> None:
    done = merge(spark, imported, "Ns", "T", DATE, internal_partitions=2)
    assert history(imported).column("N").to_pylist() == list(range(2000))
    assert len(done.locations) == 2
    again = merge(spark, imported, "Ns", "T", DATE)
    assert (again.written, again.rows, again.checksum) == (False, done.rows, done.checksum)


def test_every_type_to_the_nanosecond(spark: SparkSession, db: Path) -> None:
    time = pa.scalar(1_700_000_000_123_456_789, pa.timestamp("ns", "UTC"))
    table = pa.table(
        {
            "Ts": pa.array([time, None], pa.timestamp("ns", "UTC")),
            "C": pa.array([65, None], pa.uint16()),
            "B": [True, None],
            "F": pa.array([float("nan"), None], pa.float32()),
            "Blob": [b"x", None],
            "At": pa.array([86_399_999_999_999, None], pa.time64("ns")),
            "Day": pa.array([19_000, None], pa.date32()),
            "Fee": pa.array(["1.50", None]).cast(pa.decimal128(10, 2)),
            "Ls": [[1.5, 2.5], None],
            "M": pa.array([[("a", 1)], None], pa.map_(pa.string(), pa.int64())),
            "S": ["", None],
        }
    )
    sawlog.write(table, db / "Intraday/Ns/T/vm1" / DATE / "T", format="deephaven_table")
    merge(spark, db, "Ns", "T", DATE)
    before = sawlog.read(db / "Intraday", format="deephaven_table")
    assert before.column("Ts")[0].value == time.value
    found = history(db)
    for name in table.column_names:
        assert str(found.column(name).to_pylist()) == str(before.column(name).to_pylist()), name
        assert found.column(name)[0].as_py() is not None, name


def test_a_failed_proof_takes_everything_back(
    spark: SparkSession, imported: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    proof = job._MergeJob._proof

    def forged(self: Any) -> Any:
        found = proof(self)
        return type(found)(found.rows, found.checksum ^ 1)

    monkeypatch.setattr(job._MergeJob, "_proof", forged)
    with pytest.raises(SawlogError, match="what was written was taken back"):
        merge(spark, imported, "Ns", "T", DATE, delete_intraday=True)
    assert not list(imported.glob("Systems/**/*.dat"))
    assert len(intraday(imported)) == 2010
    monkeypatch.undo()
    assert merge(spark, imported, "Ns", "T", DATE).written


@pytest.mark.parametrize("deleted", [True, False])
def test_deletions_carry_over(spark: SparkSession, imported: Path, logs: Logs, deleted: bool) -> None:
    """vm1 is deleted after it was merged; vm2, whose rows are in the same locations, stays."""
    merge(spark, imported, "Ns", "T", DATE, group=["Sym"], internal_partitions=2, delete_intraday=deleted)
    with logs.begin() as logger:
        logger.delete_partition()
        logger.write(batch(3000, 3010))
    import_logs(spark, logs.directory, imported)
    done = merge(spark, imported, "Ns", "T", DATE, delete_intraday=True)
    assert (done.rows, done.removed, done.added) == (1010, 1000, 10)
    assert "1000 rows went" in done.remarks[0]
    assert sorted(history(imported).column("N").to_pylist()) == [*range(1000, 2000), *range(3000, 3010)]
    assert intraday(imported) == list(range(10))
    with logs.begin() as logger:
        logger.delete_partition()
    import_logs(spark, logs.directory, imported)
    done = merge(spark, imported, "Ns", "T", DATE)
    assert (done.rows, done.removed, done.added) == (1000, 10, 0)
    assert sorted(history(imported).column("N").to_pylist()) == list(range(1000, 2000))

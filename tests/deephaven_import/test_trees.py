"""`merge`, in threads: sorted, grouped, spread, proven; taken back or ended if it was killed; deleted on request."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import sawlog
from sawlog.deephaven.ingest.history import HistoricalTable
from sawlog.deephaven.ingest.journal import Journal
from sawlog.deephaven.ingest.spark import import_logs, merge
from sawlog.deephaven.ingest.tree import IntradayTable
from sawlog.errors import FormatError, OptionError, SawlogError, SchemaError
from tests.deephaven_import.support import DATE, Logs, batch, db, history, intraday, logs, numbers
from tests.support import make_dead_links

__all__ = ["db", "logs"]

job = sys.modules["sawlog.deephaven.ingest.spark.merge"]


@pytest.fixture
def spark() -> None:
    """Threads of this process work; tests/spark has the same on Spark."""


@pytest.fixture
def imported(spark: None, logs: Logs, db: Path) -> Path:
    """Rows 0 to 1999 in several locations of two internal partitions, and another date."""
    logs.write(0, 1000)
    logs.write(1000, 2000, internal="vm2")
    logs.write(0, 10, column="2024-01-02")
    import_logs(spark, logs.directory, db, location_bytes=12_000)
    return db


def internals(db: Path) -> list[str]:
    return sorted(path.name for path in (db / "Systems" / "Ns" / "Partitions").iterdir())


def test_sorted_grouped_and_spread(spark: None, imported: Path) -> None:
    done = merge(spark, imported, "Ns", "T", DATE, group=["Sym"], internal_partitions=3)
    assert (done.rows, done.grouped, done.written, done.deleted) == (2000, ["Sym"], True, False)
    assert len(done.merged) > 4
    partitions: dict[str | None, str] = {}
    for internal in internals(imported):
        table = sawlog.read(imported / "Systems/Ns/Partitions" / internal, format="deephaven_table")
        keys, numbers = table.column("Sym").to_pylist(), table.column("N").to_pylist()
        assert list(zip([key or "" for key in keys], numbers, strict=True)) == sorted(
            zip([key or "" for key in keys], numbers, strict=True)
        )
        for key in set(keys):
            assert partitions.setdefault(key, internal) == internal
    assert len(internals(imported)) > 1
    groups = history(imported, view="groups")
    assert sum(groups.column("rows").to_pylist()) == 2000
    assert len(intraday(imported)) == 2010
    assert set(history(imported).column("Date").to_pylist()) == {DATE}


def test_without_groups_rows_stay_in_order(spark: None, imported: Path) -> None:
    done = merge(spark, imported, "Ns", "T", DATE, internal_partitions=2)
    assert history(imported).column("N").to_pylist() == list(range(2000))
    assert len(done.locations) == 2
    again = merge(spark, imported, "Ns", "T", DATE)
    assert (again.written, again.rows, again.checksum) == (False, done.rows, done.checksum)


def test_rows_are_sorted_further_and_in_several_groups(spark: None, db: Path) -> None:
    # Every Desk is in one City, and Px in several.
    table = pa.table(
        {
            "City": ["a", "b", "a", "b"] * 25,
            "Desk": [f"{'abab'[n % 4]}{n % 8}" for n in range(100)],
            "Px": [n % 3 for n in range(100)],
            "N": list(range(100, 0, -1)),
        }
    )
    sawlog.write(table, db / "Intraday/Ns/T/vm1" / DATE / "T", format="deephaven_table")
    done = merge(spark, db, "Ns", "T", DATE, group=["City", "Desk", "Px"], sort=["N"], internal_partitions=1)
    assert done.grouped == ["City", "Desk"]
    assert "'Px' got no groups" in done.remarks[0]
    sorted_table = table.sort_by([(name, "ascending") for name in table.column_names])
    assert history(db).select(table.column_names).to_pylist() == sorted_table.to_pylist()


def test_every_type_to_the_nanosecond(spark: None, db: Path) -> None:
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
    merged_table = history(db)
    for name in table.column_names:
        assert str(merged_table.column(name).to_pylist()) == str(before.column(name).to_pylist()), name
        assert merged_table.column(name)[0].as_py() is not None, name


def test_intraday_rows_are_deleted_on_request(spark: None, imported: Path, logs: Logs) -> None:
    done = merge(spark, imported, "Ns", "T", DATE, group=["Sym"])
    assert not done.deleted
    done = merge(spark, imported, "Ns", "T", DATE, delete_intraday=True)
    assert (done.written, done.deleted) == (False, True)
    assert numbers(intraday(imported)) == list(range(10))
    assert not any(Path(path).exists() for path in done.merged)
    assert import_logs(spark, logs.directory, imported).rows == 0
    with pytest.raises(FormatError, match="no rows"):
        merge(spark, imported, "Ns", "T", DATE)
    logs.write(2000, 2100)
    assert import_logs(spark, logs.directory, imported).rows == 100
    late = merge(spark, imported, "Ns", "T", DATE, delete_intraday=True)
    assert (late.rows, late.added, late.written) == (2100, 100, True)
    assert sorted(history(imported).column("N").to_pylist()) == list(range(2100))
    assert numbers(intraday(imported)) == list(range(10))


def test_a_failed_proof_takes_everything_back(spark: None, imported: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    proof = job.MergeJob.read_proof

    def forged(self: Any) -> Any:
        original_proof = proof(self)
        return type(original_proof)(original_proof.rows, original_proof.checksum ^ 1)

    monkeypatch.setattr(job.MergeJob, "read_proof", forged)
    with pytest.raises(SawlogError, match="what was written was taken back"):
        merge(spark, imported, "Ns", "T", DATE, delete_intraday=True)
    assert not list(imported.glob("Systems/**/*.dat"))
    assert len(intraday(imported)) == 2010
    monkeypatch.undo()
    assert merge(spark, imported, "Ns", "T", DATE).written


class KillSignal(BaseException):
    """What no handler of a job is given the chance to handle when its process is killed."""


def kill(monkeypatch: pytest.MonkeyPatch, module: Any, name: str, calls: int) -> None:
    """Have the process die at a call: no clean-up that would follow is done."""
    real = getattr(module, name)
    count = [0]

    def dies(*args: Any, **kwargs: Any) -> Any:
        count[0] += 1
        if count[0] < calls:
            return real(*args, **kwargs)
        for cleanup in ("take_back", "delete_merged"):
            monkeypatch.setattr(job, cleanup, lambda *_: None)
        monkeypatch.setattr(Journal, "delete", staticmethod(lambda _: None))
        monkeypatch.setattr(HistoricalTable, "tidy", lambda *_: None)
        raise KillSignal

    monkeypatch.setattr(module, name, dies)


@pytest.mark.parametrize(("name", "calls"), [("read_proof", 1), ("delete_merged", 1)])
@pytest.mark.parametrize("then", ["merge", "import"])
def test_a_merge_that_is_killed_can_be_repeated(
    spark: None, imported: Path, logs: Logs, monkeypatch: pytest.MonkeyPatch, name: str, calls: int, then: str
) -> None:
    with monkeypatch.context() as patch:
        kill(patch, job.MergeJob if name == "read_proof" else job, name, calls)
        with pytest.raises(KillSignal):
            merge(spark, imported, "Ns", "T", DATE, internal_partitions=2, delete_intraday=True)
    assert history(imported).num_rows == 2000
    (imported / "Intraday/Ns/T/.sawlog-board-0123").mkdir()
    assert len(intraday(imported)) == 2010
    proven = name == "delete_merged"
    if then == "import":
        logs.write(5000, 5001, column="2024-01-02")
        assert import_logs(spark, logs.directory, imported).rows == 1
        expected_numbers = [*range(10), 5000]
        assert sorted(numbers(intraday(imported))) == (
            expected_numbers if proven else sorted([*range(2000), *expected_numbers])
        )
        assert (imported / "Systems/Ns/Partitions/0").exists() == proven
    elif proven:
        with pytest.raises(FormatError, match="no rows"):
            merge(spark, imported, "Ns", "T", DATE)
        assert numbers(intraday(imported)) == list(range(10))
    else:
        assert merge(spark, imported, "Ns", "T", DATE).written
    assert Journal.read(IntradayTable(str(imported), "Ns", "T")) is None
    assert not list(imported.glob("Intraday/**/.sawlog-board*"))
    if proven or then == "merge":
        assert sorted(history(imported).column("N").to_pylist()) == list(range(2000))


def test_a_merge_that_is_refused_writes_nothing(spark: None, imported: Path) -> None:
    with pytest.raises(OptionError, match="no column 'Nope'"):
        merge(spark, imported, "Ns", "T", DATE, group=["Nope"])
    with pytest.raises(FormatError, match="no rows of 2024-02-01"):
        merge(spark, imported, "Ns", "T", "2024-02-01")
    with pytest.raises(OptionError, match="cannot be a directory"):
        merge(spark, imported, "..", "T", DATE)
    with pytest.raises(OptionError, match="internal_partitions"):
        merge(spark, imported, "Ns", "T", DATE, internal_partitions=0)
    assert not (imported / "Systems").exists()
    journal = imported / "Intraday/Ns/T/.sawlog-merge.json"
    for text in ("", "[]", '{"version": 1}', '{"version": 9}'):
        journal.write_text(text)
        with pytest.raises(FormatError, match=r"\.sawlog-merge\.json"):
            merge(spark, imported, "Ns", "T", DATE)
    journal.unlink()
    shutil.rmtree(imported / "Intraday/Ns/T/vm2" / DATE)
    assert merge(spark, imported, "Ns", "T", DATE, namespace_set="User").written
    assert (imported / "Users/Ns/Partitions/0" / DATE / "T/table.size").exists()


def test_rows_that_come_late_are_added_once(spark: None, imported: Path, logs: Logs) -> None:
    merge(spark, imported, "Ns", "T", DATE, group=["Sym"])
    logs.write(2000, 2100)
    logs.write(2100, 2110, internal="vm3")
    import_logs(spark, logs.directory, imported)
    done = merge(spark, imported, "Ns", "T", DATE, group=["Sym"])
    assert (done.rows, done.added, done.removed, done.written) == (2110, 110, 0, True)
    again = merge(spark, imported, "Ns", "T", DATE, append=True, delete_intraday=True)
    assert (again.rows, again.checksum, again.added, again.written) == (2110, done.checksum, 0, False)
    assert sorted(history(imported).column("N").to_pylist()) == list(range(2110))
    assert numbers(intraday(imported)) == list(range(10))
    logs.write(2110, 2120, internal="vm3")
    import_logs(spark, logs.directory, imported)
    done = merge(spark, imported, "Ns", "T", DATE, replace=True, group=["Sym"], internal_partitions=2)
    assert (done.rows, done.added) == (2120, 10)
    merged_table = history(imported)
    assert sorted(merged_table.column("N").to_pylist()) == list(range(2120))
    assert len(internals(imported)) <= 2
    assert sum(history(imported, view="groups").column("rows").to_pylist()) == 2120
    assert not list(imported.glob("Systems/**/.*"))


@pytest.mark.spread(2)
@pytest.mark.parametrize("deleted", [True, False])
def test_deletions_carry_over(spark: None, imported: Path, logs: Logs, deleted: bool) -> None:
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
    assert numbers(intraday(imported)) == list(range(10))
    with logs.begin() as logger:
        logger.delete_partition()
    import_logs(spark, logs.directory, imported)
    done = merge(spark, imported, "Ns", "T", DATE)
    assert (done.rows, done.removed, done.added) == (1000, 10, 0)
    assert sorted(history(imported).column("N").to_pylist()) == list(range(1000, 2000))


def test_what_a_replacing_merge_moved_aside_comes_back(
    spark: None, imported: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    merge(spark, imported, "Ns", "T", DATE)
    with monkeypatch.context() as patch:
        kill(patch, job.MergeJob, "read_proof", 1)
        with pytest.raises(KillSignal):
            merge(spark, imported, "Ns", "T", DATE, replace=True, group=["Sym"])
    assert merge(spark, imported, "Ns", "T", DATE).written is False
    assert sorted(history(imported).column("N").to_pylist()) == list(range(2000))
    assert len(intraday(imported)) == 2010


def test_history_that_says_nothing_of_itself(spark: None, imported: Path) -> None:
    old = imported / "Systems/Ns/Partitions/7" / DATE / "T"
    sawlog.write(pa.table({"N": [-1], "Sym": ["x"], "Px": [0.5]}), old, format="deephaven_table")
    with pytest.raises(SawlogError, match=r"history has 1 rows .* intraday are 2000 rows .* replace .* append"):
        merge(spark, imported, "Ns", "T", DATE)
    assert merge(spark, imported, "Ns", "T", DATE, append=True).rows == 2001
    assert merge(spark, imported, "Ns", "T", DATE, append=True).written is False
    assert sorted(history(imported).column("N").to_pylist()) == list(range(-1, 2000))
    assert merge(spark, imported, "Ns", "T", DATE, replace=True).rows == 2000
    assert sorted(history(imported).column("N").to_pylist()) == list(range(2000))


def test_links_that_lead_out_of_the_database_are_refused(spark: None, imported: Path, tmp_path: Path) -> None:
    partitions = imported / "Systems/Ns/Partitions"
    outside, inside = tmp_path / "disk", partitions / "spare"
    for directory in (outside, inside, partitions):
        directory.mkdir(parents=True, exist_ok=True)
    (partitions / "0").symlink_to(outside)
    with pytest.raises(SawlogError, match=r"Partitions/0: a link leads to .*disk, outside of .*db"):
        merge(spark, imported, "Ns", "T", DATE, delete_intraday=True)
    assert not list(outside.iterdir())
    assert len(intraday(imported)) == 2010
    (partitions / "0").unlink()
    (partitions / "0").symlink_to(inside)
    merge(spark, imported, "Ns", "T", DATE, delete_intraday=True)
    assert sorted(history(imported).column("N").to_pylist()) == list(range(2000))


def test_links_that_lead_nowhere_are_left_out(spark: None, imported: Path) -> None:
    for directory in (imported / "Intraday/Ns/T", imported / "Intraday/Ns/T/vm1", imported / "Systems/Ns/Partitions"):
        directory.mkdir(parents=True, exist_ok=True)
        make_dead_links(directory)
    merge(spark, imported, "Ns", "T", DATE, delete_intraday=True)
    assert sorted(history(imported).column("N").to_pylist()) == list(range(2000))


@pytest.mark.parametrize("date", ["../../../victim", "", ".hidden", "a/b", ".."])
def test_names_are_checked_before_any_path_is_made(spark: None, imported: Path, date: str) -> None:
    victim = imported.parent / "victim"
    staged = victim / ".T.0123456789ab.sawlog-staged"
    staged.mkdir(parents=True)
    with pytest.raises(OptionError, match="cannot be a directory"):
        merge(spark, imported, "Ns", "T", date)
    assert staged.exists()


def test_columns_that_differ_in_case_and_both_zeros_are_kept_apart(spark: None, db: Path) -> None:
    table = pa.table({"px": [0.0, -0.0, 1.0, 0.0, -0.0], "Px": [1, 2, 3, 4, 5], "PX": ["a", "b", None, "d", "e"]})
    sawlog.write(table, db / "Intraday/Ns/T/vm1" / DATE / "T", format="deephaven_table")
    done = merge(spark, db, "Ns", "T", DATE, group=["px"], sort=["Px"], delete_intraday=True)
    assert done.grouped == ["px"]
    result_table = history(db).select(["px", "Px", "PX"])
    assert str(result_table.to_pylist()) == str([table.to_pylist()[row] for row in (1, 4, 0, 3, 2)])
    assert history(db, filters=[("px", "in", [0.0])]).num_rows == 4


def test_guessed_types_are_not_merged(spark: None, db: Path) -> None:
    leaf = db / "Intraday/Ns/T/vm1" / DATE / "T"
    sawlog.write(pa.table({"d": [1.5]}), leaf, format="deephaven_table")
    (leaf / "table.schema").unlink()
    with pytest.warns(UserWarning, match="inferred"), pytest.raises(SchemaError, match="'d': its type is unknown"):
        merge(spark, db, "Ns", "T", DATE, delete_intraday=True)
    assert leaf.exists()
    merge(spark, db, "Ns", "T", DATE, types={"d": "double"}, delete_intraday=True)
    assert history(db).column("d").to_pylist() == [1.5]

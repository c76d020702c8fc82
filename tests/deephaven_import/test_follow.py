"""Following logs into a tree, without Spark."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import Any

import pytest

import sawlog
from sawlog.deephaven.ingest import tree
from sawlog.deephaven.ingest.spark import follow_logs, import_logs
from sawlog.deephaven.ingest.tree import IntradayTable
from sawlog.errors import OptionError, SawlogError

from .support import DATE, Logs, batch, db, logs

__all__ = ["db", "logs"]


@pytest.fixture
def slept(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    seconds: list[float] = []
    monkeypatch.setattr("sawlog.deephaven.ingest.spark.follow.sleep", seconds.append)
    return seconds


def read_intraday(db: Path, table: str = "T") -> list[int]:
    return sawlog.read(db / "Intraday" / "Ns" / table).column("N").to_pylist()


def test_each_byte_is_walked_once_and_decoded_once(logs: Logs, db: Path, touched: list[int]) -> None:
    size = logs.write(0, 20_000).stat().st_size
    assert import_logs(None, logs.directory, db).rows == 20_000
    assert 2 * size * 0.99 < sum(touched) < 2 * size * 1.01


def test_following_takes_turns(logs: Logs, db: Path, slept: list[float]) -> None:
    """Two partitions and another table, of which no look takes more than a part."""
    logs.write(0, 20_000)
    logs.write(20_000, 21_000)
    logs.write(0, 5000, internal="vm2")
    logs.write(0, 5000, table="U")
    looks = []
    for look in follow_logs(None, logs.directory, db, seconds=100, max_bytes=100_000):
        looks.append(look)
        assert not look.errors
        assert look.done.bytes <= 105_000 * look.done.partitions
        if not look.done.limited:
            break
    assert [look.done.partitions for look in looks[:2]] == [3, 3]
    lags = [look.done.lag.get(f"Ns.T vm1/{DATE}", 0) for look in looks]
    assert lags == sorted(lags, reverse=True)
    assert lags[-1] == 0 < lags[-2]
    assert not slept, "there was always more"
    assert sum(look.done.rows for look in looks) == 31_000
    total_bytes = sum(path.stat().st_size for path in logs.directory.iterdir())
    assert total_bytes * 0.99 < sum(look.done.bytes for look in looks) < total_bytes
    assert read_intraday(db) == [*range(21_000), *range(5000)]
    assert read_intraday(db, "U") == list(range(5000))


def test_rows_come_with_the_next_look(logs: Logs, db: Path, slept: list[float]) -> None:
    """From nothing at all."""
    logs.directory.mkdir()
    looks = follow_logs(None, logs.directory, db, seconds=100)
    assert "no binary log" in next(looks).errors[0]
    with logs.begin() as logger:
        for start in range(0, 300, 100):
            logger.write(batch(start, start + 100))
            look = next(looks)
            assert (look.done.rows, look.done.lag, look.done.limited, look.errors) == (100, {}, False, [])
            assert read_intraday(db) == list(range(start + 100))
        logger.command(1)
    assert [look.done.rows for look in islice(looks, 2)] == [0, 0]
    assert len(slept) == 5
    assert all(99 < seconds <= 100 for seconds in slept)


def test_a_table_that_is_locked_keeps_no_other(logs: Logs, db: Path) -> None:
    logs.write(0, 10)
    logs.write(0, 20, table="U")
    with IntradayTable(str(db), "Ns", "T").lock(), pytest.raises(SawlogError, match="another import"):
        import_logs(None, logs.directory, db)
    assert read_intraday(db, "U") == list(range(20))
    assert import_logs(None, logs.directory, db).rows == 10


def test_what_goes_wrong_is_told_and_tried_again(
    logs: Logs, db: Path, slept: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full disk: nothing of the location is left, and the next look has room again."""
    logs.write(0, 10)
    looks = follow_logs(None, logs.directory, db)
    with monkeypatch.context() as patch:

        def full(*args: Any) -> None:
            raise OSError(28, "No space left on device")

        patch.setattr("sawlog.deephaven.table.writer.LocationWriter.finish", full)
        look = next(looks)
        assert look.done.rows == 0
        assert "No space left" in look.errors[0]
    assert not list(db.rglob("table.size"))
    assert next(looks).done.rows == 10
    assert not [path for path in db.rglob(".*") if path.name != ".sawlog.lock"]


def test_a_look_costs_no_more_the_more_there_were(
    logs: Logs, db: Path, slept: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Records of locations are read once, and nothing is swept where nothing went wrong."""
    read: list[str] = []
    plain = tree.read_small
    monkeypatch.setattr(tree, "read_small", lambda path: read.append(path) or plain(path))
    monkeypatch.setattr("sawlog.deephaven.ingest.history.read_small", lambda path: None)
    looks = follow_logs(None, logs.directory, db)
    with logs.begin() as logger:
        for number in range(12):
            logger.write(batch(10 * number, 10 * number + 10))
            assert next(looks).done.rows == 10
            if number == 1:
                monkeypatch.setattr(tree, "sweep", lambda *args: pytest.fail("swept"))
    assert len(read) == len(set(read)) == 11
    assert read_intraday(db) == list(range(120))


@pytest.mark.parametrize("options", [{"max_bytes": 0}, {"on_unstorable": "drop"}, {"max_byte": 1}])
def test_options_that_cannot_be(logs: Logs, db: Path, options: dict[str, Any]) -> None:
    with pytest.raises(OptionError):
        next(follow_logs(None, logs.directory, db, **options))


@pytest.mark.parametrize("length", [None, 0, 100])
def test_the_record_of_a_later_location_is_gone_or_cut(logs: Logs, db: Path, length: int | None) -> None:
    """Nothing is imported again: it is said which record is not whole."""
    for start in (0, 10):
        logs.write(start, start + 10)
        import_logs(None, logs.directory, db)
    (record,) = db.glob("Intraday/Ns/T/vm1~000001/*/T/_sawlog.json")
    data = record.read_bytes()
    record.unlink()
    if length is not None:
        record.write_bytes(data[:length])
    logs.write(20, 30)
    with pytest.raises(SawlogError, match="vm1~000001"):
        import_logs(None, logs.directory, db)
    record.write_bytes(data)
    assert import_logs(None, logs.directory, db).rows == 10

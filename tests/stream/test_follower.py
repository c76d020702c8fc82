"""Following growing files, without Spark: every row once, limits, finished files, files that are not what they were."""

from __future__ import annotations

import os
import re
import time
from pathlib import Path

import pyarrow as pa
import pytest

import sawlog
from sawlog.deephaven.log import Logger
from sawlog.errors import DamageError, OptionError, SawlogError, SchemaError
from sawlog.stream.follower import Follower
from sawlog.stream.limits import Bytes, Duration, StreamOptions
from sawlog.stream.offset import Offset
from tests.stream.support import SCHEMA, Source, Stream, make_batch
from tests.support import write_records


def test_rows_arrive_once_and_in_order_through_rolled_files(tmp_path: Path) -> None:
    source = Source(tmp_path)
    source.log(1)
    stream = Stream(tmp_path)
    for batches in (1, 30, 0, 2, 70):
        source.log(batches)
        stream.drain()
        stream.step()
    assert stream.numbers == list(range(source.written))
    assert len(os.listdir(tmp_path)) > 10


@pytest.mark.parametrize(
    ("options", "limit"),
    [({"maxrowspertrigger": 50}, 50), ({"maxbytespertrigger": 2000}, 70), ({"maxfilespertrigger": 1}, 140)],
)
def test_steps_are_no_larger_than_their_limits(tmp_path: Path, options: dict[str, int], limit: int) -> None:
    source = Source(tmp_path)
    source.log(40)
    stream = Stream(tmp_path, **options)
    steps = stream.drain()
    assert stream.numbers == list(range(800))
    assert max(steps) <= limit
    assert min(steps[:-1]) >= limit // 4
    source.log(40)
    assert Stream(tmp_path, **options).step(limited=False) == 1600


def test_a_transaction_larger_than_the_limits_is_read_whole(tmp_path: Path) -> None:
    source = Source(tmp_path, roll_bytes=1 << 20)
    source.log(1, 5)
    source.logger.transaction(make_batch(5, 305))
    source.logger.write(make_batch(305, 310))
    stream = Stream(tmp_path, maxrowspertrigger=10)
    assert stream.drain()[0] == 5
    stream = Stream(tmp_path, maxbytespertrigger=300)
    assert 300 <= max(stream.drain()) <= 305
    assert stream.numbers == list(range(310))


def test_writers_take_turns(tmp_path: Path) -> None:
    first, two = Source(tmp_path, "one"), Source(tmp_path, "two")
    first.log(20)
    two.log(20)
    stream = Stream(tmp_path, maxrowspertrigger=40)
    stream.step()
    stream.step()
    assert stream.numbers == 2 * list(range(40))


def test_open_transactions_and_torn_tails_wait(tmp_path: Path) -> None:
    source = Source(tmp_path)
    source.log(2)
    (path,) = tmp_path.iterdir()
    data = path.read_bytes()
    stream = Stream(tmp_path)
    for size in range(len(data) - 300, len(data), 7):
        path.write_bytes(data[:size])
        stream.step()
    path.write_bytes(data)
    stream.step()
    assert stream.numbers == list(range(40))


def test_finished_files_leave_the_offset(tmp_path: Path) -> None:
    source = Source(tmp_path)
    source.log(60)
    stream = Stream(tmp_path, maxfilespertrigger=3)
    stream.drain()
    source.log(1)
    stream.step()
    files = len(os.listdir(tmp_path))
    assert len(stream.offset.files) <= 2
    assert len(stream.offset.finished) + len(stream.offset.files) == files
    again = Stream(tmp_path, stream.offset)
    assert again.step() == 0
    source.log(1)
    assert again.step() == 20


def test_a_restart_reads_on_where_it_was(tmp_path: Path) -> None:
    source = Source(tmp_path)
    numbers: list[int] = []
    offset = None
    for _ in range(8):
        source.log(7)
        stream = Stream(tmp_path, offset, maxrowspertrigger=30)
        stream.step()
        stream.step()
        numbers += stream.numbers
        offset = stream.offset
    stream = Stream(tmp_path, offset)
    stream.drain()
    assert numbers + stream.numbers == list(range(source.written))


def test_files_that_were_quiet_before_they_were_read_are_read_to_their_end(tmp_path: Path) -> None:
    for name in ("one", "two"):
        Source(tmp_path, name).log(20)
    for path in tmp_path.iterdir():
        os.utime(path, (time.time() - 700,) * 2)
    stream = Stream(tmp_path, maxbytespertrigger=2000)
    assert len(stream.drain()) > 4
    assert sorted(stream.numbers) == sorted(2 * list(range(400)))


def test_old_logs_may_be_removed_once_they_were_read(tmp_path: Path) -> None:
    source = Source(tmp_path)
    source.log(40)
    stream = Stream(tmp_path)
    stream.drain()
    for path in sorted(tmp_path.iterdir())[:3]:
        path.unlink()
    source.log(20)
    stream.drain()
    for path in sorted(tmp_path.iterdir())[:2]:
        path.unlink()
    again = Stream(tmp_path, stream.offset)
    source.log(5)
    again.drain()
    assert stream.numbers + again.numbers == list(range(source.written))


def test_removing_what_was_not_read_is_an_error(tmp_path: Path) -> None:
    source = Source(tmp_path, roll_bytes=1 << 20)
    source.log(3)
    stream = Stream(tmp_path, maxrowspertrigger=20)
    stream.step()
    stream.step()
    (path,) = tmp_path.iterdir()
    stream.follower.set_committed_end(path.name, stream.follower.listing.files[path.name], path.stat().st_size)
    path.unlink()
    with pytest.raises(SawlogError, match=f"{re.escape(path.name)}: the file was removed; .* failOnDataLoss"):
        stream.step()
    assert stream.step() == 0


def test_a_file_that_shrank_is_an_error(tmp_path: Path) -> None:
    source = Source(tmp_path)
    source.log(3)
    stream = Stream(tmp_path)
    stream.step()
    (path,) = tmp_path.iterdir()
    size = path.stat().st_size
    os.truncate(path, size - 500)
    with pytest.raises(
        SawlogError, match=f"{re.escape(path.name)}: the file shrank to {size - 500} bytes; {size} bytes of it were"
    ):
        stream.step()
    with pytest.raises(SawlogError, match="the file shrank"):
        Stream(tmp_path, stream.offset).step()


@pytest.mark.parametrize("place", [100, -30])
def test_a_file_that_was_rewritten(tmp_path: Path, place: int) -> None:
    source = Source(tmp_path, roll_bytes=1 << 20)
    source.log(3)
    stream = Stream(tmp_path)
    stream.step()
    (path,) = tmp_path.iterdir()
    data = bytearray(path.read_bytes())
    data[place] ^= 1
    source.log(1)
    rest_bytes = path.read_bytes()[len(data) :]
    path.write_bytes(bytes(data) + rest_bytes)
    expected = f"{re.escape(path.name)}: the file was replaced or rewritten: bytes .* had the digest"
    with pytest.raises(SawlogError, match=expected):
        stream.step()
    with pytest.raises(SawlogError, match=expected):
        Stream(tmp_path, stream.offset).step()


def test_a_batch_that_has_to_be_repeated_needs_the_same_bytes(tmp_path: Path) -> None:
    source = Source(tmp_path)
    source.log(2)
    stream = Stream(tmp_path)
    start = stream.offset
    stream.step()
    (path,) = tmp_path.iterdir()
    again = Stream(tmp_path)
    assert again.follower.list_fragments(start, stream.offset)
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    with pytest.raises(SawlogError, match="replaced or rewritten"):
        Stream(tmp_path).follower.list_fragments(start, stream.offset)
    other_source = Source(tmp_path, "other")
    again = Stream(tmp_path)
    path.unlink()
    other_source.log(1)
    with pytest.raises(
        SawlogError, match="the file was removed; a micro-batch that has to be repeated needs its bytes"
    ):
        again.follower.list_fragments(start, stream.offset)


def test_a_file_that_comes_late_is_read(tmp_path: Path) -> None:
    source = Source(tmp_path)
    source.log(40)
    stream = Stream(tmp_path)
    for _ in range(3):
        source.log(1)
        stream.drain()
    early = Source(tmp_path, "a")
    early.log(1)
    assert stream.drain() == [20]
    again = Stream(tmp_path, stream.offset)
    assert again.step() == 0


def test_quiet_files_are_finished_too(tmp_path: Path) -> None:
    for name in "abc":
        with Logger(tmp_path / f"{name}.bin", SCHEMA) as logger:
            logger.write(make_batch(0, 5))
        os.utime(tmp_path / f"{name}.bin", (time.time() - 700,) * 2)
    stream = Stream(tmp_path)
    stream.drain()
    with Logger(tmp_path / "d.bin", SCHEMA) as logger:
        logger.write(make_batch(0, 5))
    stream.drain()
    assert list(stream.offset.files) == ["d.bin"]
    assert len(stream.offset.finished) == 3


def test_what_is_there_when_a_run_begins_is_all_it_reads(tmp_path: Path) -> None:
    source = Source(tmp_path)
    source.log(10)
    stream = Stream(tmp_path, maxrowspertrigger=60)
    stream.follower.freeze()
    source.log(30)
    stream.drain()
    assert stream.numbers == list(range(200))
    later = Stream(tmp_path, stream.offset)
    later.drain()
    assert stream.numbers + later.numbers == list(range(800))


def test_columns_that_later_files_lack_or_add(tmp_path: Path) -> None:
    Source(tmp_path).log(1)
    stream = Stream(tmp_path)
    stream.step()
    other_schema = pa.schema([("n", pa.int32()), ("new", pa.string())])
    with Logger(tmp_path, other_schema, namespace="Market", table="Trades", internal_partition="other") as logger:
        logger.write(pa.record_batch([pa.array([7], pa.int32()), pa.array(["x"])], schema=other_schema))
    assert stream.step() == 1
    assert stream.numbers[-1] == 7
    text = pa.schema([("n", pa.string())])
    with Logger(tmp_path, text, namespace="Market", table="Trades", internal_partition="third") as logger:
        logger.write(pa.record_batch([pa.array(["x"])], schema=text))
    with pytest.raises(SchemaError, match=r"third.*: column 'n' is string; the stream began with int64"):
        stream.step()


def test_damage_is_an_error_in_the_batch_that_has_it(tmp_path: Path) -> None:
    source = Source(tmp_path)
    source.log(3)
    (path,) = tmp_path.iterdir()
    data = bytearray(path.read_bytes())
    data[300] ^= 1
    path.write_bytes(data)
    with pytest.raises(DamageError):
        Stream(tmp_path).step()


def test_rocksdb_moves_logs_into_its_archive(tmp_path: Path) -> None:
    for number in (4, 5):
        write_records(tmp_path / f"00000{number}.log", [b"%d" % number])
    (tmp_path / "IDENTITY").write_text("x")
    format = sawlog.formats()["leveldb_log"]
    assert format.stream_rules.stream_name("db/archive/000004.log") == "db/000004.log"
    dataset = sawlog.open(tmp_path, format="leveldb_log")
    follower = Follower.of(dataset.contents, [str(tmp_path)], dataset.scan, StreamOptions())
    end = follower.find_latest(Offset())
    assert sorted(end.files) == ["000004.log", "000005.log"]
    (tmp_path / "archive").mkdir()
    (tmp_path / "000004.log").rename(tmp_path / "archive" / "000004.log")
    assert follower.find_latest(end) is end


def test_looking_costs_little_when_nothing_happens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in "abc":
        (tmp_path / f"{name}.bin").write_bytes(b"")
    Source(tmp_path).log(30)
    stream = Stream(tmp_path)
    for _ in range(3):
        stream.drain()
    past = time.time() - 60
    os.utime(tmp_path, (past, past))
    stream.step()
    calls = []
    monkeypatch.setattr(os, "scandir", lambda *_: calls.append("scandir"))
    assert stream.follower.find_latest(stream.offset) is stream.offset
    assert calls == []


def test_options_of_streams_are_parsed() -> None:
    assert [Bytes.from_text(text) for text in ("10", "2k", "64MB", "1 g")] == [10, 2048, 64 << 20, 1 << 30]
    assert [Duration.from_text(text) for text in ("10", "10 minutes", "1h", "2 days")] == [10, 600, 3600, 172_800]
    with pytest.raises(OptionError, match="'many': expected a number of bytes such as 64m"):
        Bytes.from_text("many")
    with pytest.raises(OptionError, match="maxrowspertrigger=0: expected a positive number"):
        StreamOptions(maxrowspertrigger=0)
    with pytest.raises(SawlogError, match="found an offset of version None; this sawlog knows version 2"):
        Offset.from_json({"logOffset": 3})

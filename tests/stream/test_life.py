"""What happens to logs in ordinary life: reboots, quiet nights, moves, copies, late and foreign files, wrong clocks."""

from __future__ import annotations

import gzip
import json
import os
import random
import shutil
import tracemalloc
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from fsspec.implementations.memory import MemoryFileSystem

import sawlog
from sawlog.deephaven.log import Logger
from sawlog.errors import OptionError, SawlogError
from sawlog.stream import records as module
from sawlog.stream.offset import Finished, FinishedFile, Offset, ReadPosition, hash_name
from tests.stream.support import SCHEMA, Source, Stream, make_batch, only_rows, quiet, restarted
from tests.support import make_dead_links, write_records

FINISHED_BYTES = 30
"""What a finished file adds to an offset, at most: 100,000 of them make it 3 MB large."""


def test_a_file_that_waited_and_was_removed_is_missed(tmp_path: Path, later) -> None:
    for name in "abcde":
        Source(tmp_path, name).log(1, 10)
    stream = Stream(tmp_path, maxfilespertrigger=2)
    stream.step()
    waiting = max(tmp_path.iterdir())
    waiting.unlink()
    stream = later(stream, maxfilespertrigger=2)
    with pytest.raises(SawlogError, match=r"removed before (it was|they were) read.*failOnDataLoss=false"):
        stream.step()
    tolerant = restarted(stream, maxfilespertrigger=2, failondataloss=False)
    tolerant.drain()
    assert len(tolerant.numbers) == 40


def test_links_that_lead_nowhere_are_no_files_of_a_stream(tmp_path: Path, later) -> None:
    source = Source(tmp_path)
    source.log(1, 10)
    stream = Stream(tmp_path)
    (tmp_path / "inner").mkdir()
    make_dead_links(tmp_path / "inner")
    stream.drain()
    make_dead_links(tmp_path)
    source.log(1, 10)
    stream = later(stream)
    stream.drain()
    assert stream.numbers == list(range(20))


def test_a_directory_that_goes_away_while_it_is_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Source(tmp_path).log(1, 10)
    stream = Stream(tmp_path)
    stream.drain()
    folder = tmp_path / "folder"
    folder.mkdir()
    scandir = os.scandir

    def scan(path: str) -> Any:
        if str(path) == str(folder) and folder.exists():
            folder.rmdir()
        return scandir(path)

    monkeypatch.setattr(os, "scandir", scan)
    stream.drain()
    assert not folder.exists()
    assert stream.numbers == list(range(10))


def test_logs_of_other_tables_are_left_alone(tmp_path: Path, later) -> None:
    source = Source(tmp_path)
    source.log(1)
    stream = Stream(tmp_path)
    stream.drain()
    assert stream.offset.table == "Market.Trades"
    other_schema = pa.schema([("price", pa.float64())])
    with Logger(tmp_path, other_schema, namespace="Market", table="Quotes", internal_partition="w") as logger:
        logger.write(pa.record_batch([pa.array([1.5])], schema=other_schema))
    quotes = [path for path in tmp_path.iterdir() if "Quotes" in path.name]
    if later is restarted:  # the table is given by the options then, or the columns by the user
        quotes[0].rename(tmp_path.parent / quotes[0].name)
        stream = later(stream)
        (tmp_path.parent / quotes[0].name).rename(quotes[0])
    source.log(1)
    stream.drain()
    assert stream.numbers == list(range(40))


def test_a_stream_is_of_the_table_it_was_opened_with(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    source = Source(tmp_path)
    source.log(1)
    stream = Stream(tmp_path)
    for number in range(2):
        with Logger(tmp_path, SCHEMA, namespace="Market", table="Quotes", internal_partition=f"w{number}") as logger:
            logger.write(make_batch(0, 1))
        source.log(1)
        stream.drain()
    assert stream.numbers == list(range(60))
    assert caplog.text.count("a log of the table Market.Quotes: the stream is of Market.Trades") == 1
    with pytest.raises(OptionError, match=r"logs of several tables.*Market.Quotes, Market.Trades"):
        Stream(tmp_path)


def test_a_reboot_gives_names_that_sort_first(tmp_path: Path, later) -> None:
    old = Source(tmp_path, "pid_9000", roll_bytes=1000)
    old.log(20)
    stream = Stream(tmp_path)
    stream.drain()
    old.log(1)
    stream.drain()
    assert len(stream.offset.finished)
    new = Source(tmp_path, "pid_17", roll_bytes=1000)
    new.written = old.written
    new.log(20)
    stream = later(stream)
    stream.drain()
    assert sorted(stream.numbers) == list(range(new.written))


@pytest.mark.parametrize("skew", [0, -3600, 3600])
def test_a_quiet_file_wakes(tmp_path: Path, later, skew: float) -> None:
    sleeper, busy = Source(tmp_path, "sleeper", roll_bytes=1 << 20), Source(tmp_path, "busy", roll_bytes=1000)
    sleeper.log(3)
    stream = Stream(tmp_path)
    stream.drain()
    bed = next(path for path in tmp_path.iterdir() if "sleeper" in path.name)
    for _ in range(4):
        quiet(bed, 720 - skew)
        busy.log(3)
        stream.drain()
    assert (bed.name in stream.offset.files) == (skew > 0)
    sleeper.log(2)
    stream = later(stream)
    stream.drain()
    busy.log(1)
    stream = later(stream)
    stream.drain()
    assert sorted(stream.numbers) == sorted([*range(sleeper.written), *range(busy.written)])


def test_two_databases_in_one_tree_are_followed_apart(tmp_path: Path, later) -> None:
    def write(path: Path, numbers: range) -> None:
        table = pa.table({"record": pa.array([b"%d" % n for n in numbers], pa.binary())})
        path.parent.mkdir(exist_ok=True)
        sawlog.write(table, path, format="leveldb_log", **({"append": True} if path.exists() else {}))

    for name in "ab":
        write(tmp_path / name / "000003.log", range(5))
    stream = Stream(tmp_path)
    stream.ints = lambda batch: [int(value) for value in batch.column("record").to_pylist()]
    stream.drain()
    quiet(tmp_path / "a" / "000003.log")
    for number in range(4, 8):
        write(tmp_path / "b" / f"{number:06}.log", range(number * 10, number * 10 + 5))
        stream.drain()
    write(tmp_path / "a" / "000003.log", range(5, 9))
    stream = later(stream)
    stream.ints = lambda batch: [int(value) for value in batch.column("record").to_pylist()]
    stream.drain()
    expected = [*range(9), *range(5), *(n for number in range(4, 8) for n in range(number * 10, number * 10 + 5))]
    assert sorted(stream.numbers) == sorted(expected)


@pytest.mark.parametrize("way", ["archive", "rename", "copy"])
@pytest.mark.parametrize("finished", [False, True])
def test_what_was_read_is_known_again(tmp_path: Path, later, way: str, finished: bool) -> None:
    source = Source(tmp_path, roll_bytes=1500)
    source.log(30)
    stream = Stream(tmp_path)
    stream.drain()
    if finished:
        source.log(1)
        stream.drain()
        assert len(stream.offset.finished) > 3
    names = sorted(path for path in tmp_path.iterdir())
    (tmp_path / "archive").mkdir()
    for path in names[:3]:
        target = path.with_name(f"{path.name}.1") if way == "rename" else tmp_path / "archive" / path.name
        if way == "copy":
            shutil.copy(path, target)
            path.unlink()
        else:
            path.rename(target)
    stream = later(stream)
    stream.drain()
    source.log(1)
    stream = later(stream)
    stream.drain()
    assert stream.numbers == list(range(source.written))


@pytest.mark.parametrize("place", ["archive", "old", "away/db"])
def test_logs_of_a_database_are_known_wherever_they_move(tmp_path: Path, later, place: str) -> None:
    def ints(batch: pa.RecordBatch) -> list[int]:
        return [int(value) for value in batch.column("record").to_pylist()]

    def log(number: int) -> Path:
        path = tmp_path / f"{number:06}.log"
        write_records(path, [b"%d" % n for n in (2 * number, 2 * number + 1)])
        return path

    logs = [log(number) for number in range(5)]
    stream = Stream(tmp_path)
    stream.ints = ints
    stream.drain()
    (tmp_path / place).mkdir(parents=True)
    for count, path in enumerate(logs[:4]):
        path.rename(tmp_path / place / path.name)
        if count % 2:
            stream = later(stream)
            stream.ints = ints
            stream.drain()
    log(5)
    stream.drain()
    assert stream.numbers == list(range(12))


def test_a_file_that_is_moved_with_a_part_unread(tmp_path: Path, later) -> None:
    source = Source(tmp_path, roll_bytes=1 << 20)
    source.log(3)
    stream = Stream(tmp_path, maxrowspertrigger=20)
    stream.step()
    path = only_rows(tmp_path)
    path.rename(path.with_name(f"{path.name}.1"))
    stream = later(stream, maxrowspertrigger=20)
    stream.drain()
    assert stream.numbers == list(range(60))


def test_copy_and_truncate(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, later) -> None:
    source = Source(tmp_path, roll_bytes=1 << 20)
    source.log(3)
    stream = Stream(tmp_path)
    stream.drain()
    path = only_rows(tmp_path)
    data = path.read_bytes()
    shutil.copy(path, path.with_name(f"{path.name}.1"))
    path.write_bytes(b"")
    stream = later(stream)
    assert stream.step() == 0
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    again = Source(elsewhere, roll_bytes=1 << 20)
    again.written = 60
    again.log(1)
    path.write_bytes(only_rows(elsewhere).read_bytes())
    assert len(path.read_bytes()) < len(data)
    stream.drain()
    assert stream.numbers == list(range(80))


def list_numbers(batch: pa.RecordBatch) -> list[int]:
    return [int(value) for value in batch.column("record").to_pylist()]


def test_rocksdb_uses_a_log_again(tmp_path: Path, later) -> None:
    def log(number: int, *records: bytes, name: str = "") -> Path:
        path = tmp_path / (name or f"{number:06}.log")
        table = pa.table({"record": list(records)})
        sawlog.write(table, path, format="leveldb_log", dialect="rocksdb", log_number=number)
        return path

    for name in ("CURRENT", "IDENTITY", "MANIFEST-000001"):
        (tmp_path / name).write_text("x")
    first = log(4, b"1", b"2")
    log(5, b"3")
    stream = Stream(tmp_path, format="leveldb_log")
    stream.ints = list_numbers
    stream.drain()
    again = first.rename(tmp_path / "000006.log")  # begins as the old one did, and is a later one all the same
    stream = later(stream)
    stream.ints = list_numbers
    assert stream.step() == 0
    with again.open("r+b") as file:
        file.write(log(6, b"4", name=".aside").read_bytes())
    stream = later(stream)
    stream.ints = list_numbers
    stream.drain()
    assert stream.numbers == [1, 2, 3, 4]


def test_a_log_of_leveldb_that_gets_another_number_was_read(tmp_path: Path, later) -> None:
    """Its fragments carry no number: such logs are never written over."""
    first = tmp_path / "000004.log"
    write_records(first, [b"1", b"2"])
    stream = Stream(tmp_path)
    stream.ints = list_numbers
    stream.drain()
    again = first.rename(tmp_path / "000006.log")
    stream = later(stream)
    stream.ints = list_numbers
    assert stream.step() == 0
    write_records(again, [b"3"], append=True)
    stream.drain()
    assert stream.numbers == [1, 2, 3]


def test_foreign_files_end_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture, later) -> None:
    source = Source(tmp_path)
    source.log(1)
    stream = Stream(tmp_path)
    stream.drain()
    path = only_rows(tmp_path)
    data = path.read_bytes()
    (tmp_path / f"{path.name}.gz").write_bytes(gzip.compress(data))
    (tmp_path / "x.bin.tmp").write_bytes(b"half a file")
    (tmp_path / f".{path.name}.AbC123").write_bytes(data[:100])
    source.log(1)
    stream.drain()
    assert stream.numbers == list(range(40))
    assert ".gz: left out of the stream until it changes" in caplog.text
    with Logger(tmp_path / "x.bin.tmp.new", SCHEMA) as logger:
        logger.write(make_batch(40, 45))
    (tmp_path / "x.bin.tmp.new").replace(tmp_path / "x.bin.tmp")
    stream.drain()
    (tmp_path / "x.bin.tmp").rename(tmp_path / "x.bin")
    stream.drain()
    assert stream.numbers == list(range(45))


def test_a_damaged_header_of_a_log_of_ours_is_an_error(tmp_path: Path) -> None:
    source = Source(tmp_path)
    source.log(1)
    stream = Stream(tmp_path)
    stream.drain()
    other_source = Source(tmp_path, "other")
    other_source.log(1)
    (path,) = (path for path in tmp_path.iterdir() if "other" in path.name)
    data = bytearray(path.read_bytes())
    data[:8] = bytes(8)
    path.write_bytes(data)
    with pytest.raises(SawlogError, match=r"other"):
        stream.step()


def test_a_directory_that_goes_and_comes_back(tmp_path: Path, later) -> None:
    place = tmp_path / "logs"
    source = Source(place)
    source.log(3)
    stream = Stream(place)
    stream.drain()
    place.rename(tmp_path / "unmounted")
    assert stream.step() == 0
    (tmp_path / "unmounted").rename(place)
    source.log(1)
    stream = later(stream)
    stream.drain()
    assert stream.numbers == list(range(80))


def test_an_object_that_is_overwritten_with_the_same_size() -> None:
    store = MemoryFileSystem()
    store.store.clear()
    table = pa.table({"record": pa.array([b"one", b"two"], pa.binary())})
    sawlog.write(table, "memory://db/000003.log", format="leveldb_log")
    stream = Stream("memory://db")  # type: ignore[arg-type]
    stream.ints = lambda batch: batch.column("record").to_pylist()
    stream.drain()
    other_table = pa.table({"record": pa.array([b"six", b"ten"], pa.binary())})
    sawlog.write(other_table, "memory://other/000003.log", format="leveldb_log")
    store.copy("/other/000003.log", "/db/000003.log")
    store.store["/db/000003.log"].modified = store.store["/db/000003.log"].modified.replace(year=2030)
    with pytest.raises(SawlogError, match="replaced or rewritten"):
        stream.step()
    store.store.clear()


def test_offsets_of_other_versions_are_refused() -> None:
    for version in (1, 3):
        with pytest.raises(SawlogError, match=f"an offset of version {version}; this sawlog knows version 2"):
            Offset.from_json({"version": version})


def test_an_offset_stays_small() -> None:
    names = [f"Market.Trades.System.host_{n % 7}.2026-11-22.bin.2026-11-22.{n:06}.000+0000" for n in range(20_000)]
    added = {hash_name(name): FinishedFile(n, bytes(4), bytes(3), bytes(3)) for n, name in enumerate(names)}
    assert len(added) == len(names)
    finished = Finished().with_changes(added, set())
    offset = Offset({"a": ReadPosition(5, "00 11")}, finished)
    data = offset.to_json()
    assert len(json.dumps(data)) < FINISHED_BYTES * len(names)
    assert Offset.from_json(data) == offset
    longer = finished.with_changes(
        {hash_name("one more"): FinishedFile(1, bytes(4), bytes(3), bytes(3))}, {hash_name(names[0])}
    )
    assert (len(longer), len(finished)) == (20_000, 20_000)
    tracemalloc.start()
    once_more = finished.with_changes({hash_name("one more"): FinishedFile(1, bytes(4), bytes(3), bytes(3))}, set())
    memory_taken = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert len(once_more) == 20_001
    assert memory_taken < FINISHED_BYTES * len(names) / 20, "an offset is made again only where it has changed"


def test_of_files_that_have_gone_only_some_are_remembered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_REMEMBERED_FILES", 5)
    source = Source(tmp_path, roll_bytes=1000)
    stream = None
    sizes = []
    for _ in range(10):
        source.log(10)
        stream = stream or Stream(tmp_path)
        stream.drain()
        sizes.append(len(json.dumps(stream.offset.to_json())))
        for path in sorted(tmp_path.iterdir())[:-2]:
            path.unlink()
    assert max(sizes[5:]) <= max(sizes[:5]) + FINISHED_BYTES, "offsets of a long life are no larger than early ones"
    source.log(1)
    stream.drain()
    assert len(stream.offset.finished) <= 5 + len(os.listdir(tmp_path))
    assert stream.numbers == list(range(source.written))


def alive(sources: list[Source]) -> set[str]:
    """Names of the files that are being written."""
    return {os.path.basename(source.logger.files[-1]) for source in sources}


@pytest.mark.spread(4)
@pytest.mark.parametrize("seed", range(4))
def test_whatever_happens_every_row_arrives_once(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    place = tmp_path / "logs"
    sources = [Source(place, name, roll_bytes=1500) for name in ("b", "c")]
    sources[0].log(1)
    stream = Stream(place, maxrowspertrigger=90)
    (place / "archive").mkdir()
    late_sources: list[Source] = []
    events = ["log", "log", "log", "quiet", "restart", "archive", "reboot", "foreign", "copytruncate", "late", "clock"]
    for turn in range(55):
        event = chance.choice(events)
        chance.choice(sources[:2]).log(chance.randint(1, 4))
        stream.step()
        files = [path for path in sorted(place.iterdir()) if path.is_file() and "000+0000" in path.name]
        if event == "quiet":
            quiet(chance.choice(files))
        elif event == "restart":
            stream = restarted(stream, maxrowspertrigger=90)
        elif event == "archive":
            stream.drain()
            path = chance.choice(files)
            if path.name not in alive(sources):
                path.rename(place / "archive" / path.name)
        elif event == "reboot":
            new = Source(place, f"a{99 - turn}", roll_bytes=1500)
            sources.insert(0, new)
            new.log(2)
        elif event == "copytruncate":
            path = chance.choice(files)
            if path.stat().st_size and path.name not in alive(sources):
                shutil.copy(path, path.with_name(f"{path.name}.1"))
                os.truncate(path, 0)
        elif event == "late":
            late_sources.append(new := Source(tmp_path / f"late{turn}", f"late{turn}", roll_bytes=1500))
            new.now -= 3600 * chance.randint(1, 5)
            new.log(2)
            new.logger.close()
            for path in (tmp_path / f"late{turn}").iterdir():
                path.rename(place / path.name)
        elif event == "clock":
            chance.choice(sources).now += chance.choice([-3600, 3600])
        elif event == "foreign":
            (place / f"x{turn}.bin.gz").write_bytes(b"\x1f\x8b nothing")
    stream = restarted(stream)
    stream.drain()
    assert sorted(stream.numbers) == sorted(n for source in sources + late_sources for n in range(source.written))

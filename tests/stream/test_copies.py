"""Copies next to their originals: rotation by `copytruncate`, moves by copying and deleting, mere copies."""

from __future__ import annotations

import logging
import os
import shutil
from pathlib import Path

import pyarrow as pa
import pytest

import sawlog
from sawlog.errors import SawlogError
from sawlog.stream.offset import Offset
from tests.stream.support import Source, Stream, only_rows, quiet, restarted


@pytest.fixture
def log_and_source(tmp_path: Path) -> tuple[Path, Source]:
    """A directory with one log of 60 rows, and its writer."""
    directory = tmp_path / "logs"
    source = Source(directory, roll_bytes=1 << 20)
    source.log(3)
    return directory, source


def rotated(path: Path) -> Path:
    return path.with_name(f"{path.name}.1")


def look(stream: Stream) -> None:
    """See what is there, and read nothing of it."""
    stream.follower.find_latest(stream.offset)


def make_other_log(tmp_path: Path, first: int, batches: int = 1) -> bytes:
    """The bytes of a new log whose rows begin at a number."""
    source = Source(tmp_path / f"aside-{first}", roll_bytes=1 << 20)
    source.now += 1000
    source.written = first
    source.log(batches)
    return only_rows(tmp_path / f"aside-{first}").read_bytes()


@pytest.mark.parametrize("finished", [False, True])
@pytest.mark.parametrize("batches", [1, 9], ids=["shorter", "longer"])
def test_a_look_between_copying_and_emptying(
    tmp_path: Path, log_and_source, later, finished: bool, batches: int
) -> None:
    directory, _ = log_and_source
    path = only_rows(directory)
    stream = Stream(directory)
    stream.drain()
    if finished:
        quiet(path)
        Source(directory, "other").log(1)
        stream.drain()
        assert len(stream.offset.finished) == 1
        del stream.numbers[60:]
    shutil.copy(path, rotated(path))
    assert stream.step() == 0
    stream = later(stream)
    assert stream.step() == 0
    path.write_bytes(make_other_log(tmp_path, 60, batches))
    stream = later(stream)
    stream.drain()
    assert stream.numbers == list(range(60 + 20 * batches))
    assert stream.offset.copies == {}


def test_a_copy_is_seen_while_it_is_made(tmp_path: Path, log_and_source, later) -> None:
    directory, _ = log_and_source
    path = only_rows(directory)
    stream = Stream(directory)
    stream.drain()
    data = path.read_bytes()
    for size in (10, 500, len(data) - 7, len(data)):
        rotated(path).write_bytes(data[:size])
        assert stream.step() == 0
        stream = later(stream)
    os.truncate(path, 0)
    assert stream.step() == 0
    path.write_bytes(make_other_log(tmp_path, 60))
    stream = later(stream)
    stream.drain()
    assert stream.numbers == list(range(80))


def copied(directory: Path) -> tuple[Path, Stream]:
    """The one log of a directory, which was copied, and a stream that had read it before."""
    path = only_rows(directory)
    stream = Stream(directory)
    stream.drain()
    shutil.copy(path, rotated(path))
    assert stream.step() == 0
    return path, stream


def test_the_original_is_read_on_and_emptied(tmp_path: Path, log_and_source, later) -> None:
    directory, source = log_and_source
    path, stream = copied(directory)
    source.log(2)
    assert stream.step() == 40
    assert len(stream.offset.copies) == 1
    stream = later(stream)
    path.write_bytes(make_other_log(tmp_path, 100))
    stream.drain()
    assert stream.numbers == list(range(120))
    stream = later(stream)
    assert stream.step() == 0


@pytest.mark.parametrize("tolerant", [False, True])
def test_rows_that_only_the_emptied_log_had_are_missed(log_and_source, tolerant: bool) -> None:
    directory, source = log_and_source
    path = only_rows(directory)
    stream = Stream(directory, maxrowspertrigger=20, failondataloss=not tolerant)
    assert stream.step() == 20
    shutil.copy(path, rotated(path))
    source.log(4)
    assert stream.step() == 20
    os.truncate(path, 0)
    if tolerant:
        stream.drain()
        assert stream.numbers == list(range(60))
    else:
        with pytest.raises(SawlogError, match=r"copied and emptied.*failOnDataLoss=false"):
            stream.step()


def test_the_rest_is_read_in_the_copy(tmp_path: Path, log_and_source, later) -> None:
    directory, _ = log_and_source
    path = only_rows(directory)
    stream = Stream(directory, maxrowspertrigger=20)
    assert stream.step() == 20
    shutil.copy(path, rotated(path))
    assert stream.step() == 20
    stream = later(stream, maxrowspertrigger=20)
    os.truncate(path, 0)
    stream.drain()
    assert stream.numbers == list(range(60))


def test_a_micro_batch_is_repeated_after_the_log_was_emptied(log_and_source) -> None:
    directory, _ = log_and_source
    path = only_rows(directory)
    stream = Stream(directory)
    start = stream.offset
    stream.drain()
    shutil.copy(path, rotated(path))
    os.truncate(path, 0)
    again = restarted(stream)
    (fragment,) = again.follower.list_fragments(start, Offset.from_json(stream.offset.to_json()))
    assert sum(batch.num_rows for batch in fragment.to_batches()) == 60


def test_the_original_is_removed(log_and_source, later) -> None:
    directory, _ = log_and_source
    path, stream = copied(directory)
    stream = later(stream)
    path.unlink()
    assert stream.step() == 0
    stream = later(stream)
    assert stream.step() == 0
    assert stream.numbers == list(range(60))


def test_a_mere_copy_is_told_once(log_and_source, later, caplog: pytest.LogCaptureFixture) -> None:
    directory, source = log_and_source
    path = only_rows(directory)
    stream = Stream(directory)
    stream.drain()
    for number in range(2):
        shutil.copy(path, path.with_name(f"{path.name}.{number}"))
    for copy in directory.glob("*.[01]"):
        quiet(copy)
    with caplog.at_level(logging.WARNING, "sawlog"):
        assert stream.step() == 0
        source.log(1)
        stream.drain()
        stream.step()
    assert sum("taken for a copy" in record.message for record in caplog.records) == 2
    stream = later(stream)
    source.log(1)
    stream.drain()
    assert stream.numbers == list(range(100))
    assert stream.follower.measure_lag(stream.offset) == (0, 0)


def test_logs_that_begin_with_the_same_records(tmp_path: Path, later) -> None:
    def write(name: str, *numbers: int) -> None:
        path = tmp_path / name / "000003.log"
        path.parent.mkdir(exist_ok=True)
        records = pa.table({"record": [b"%d" % number for number in numbers]})
        sawlog.write(records, path, format="leveldb_log", **({"append": True} if path.exists() else {}))

    def ints(batch: pa.RecordBatch) -> list[int]:
        return [int(value) for value in batch.column("record").to_pylist()]

    write("a", 1, 2, 3)
    stream = Stream(tmp_path)
    stream.ints = ints
    stream.drain()
    write("b", 1, 2)
    assert stream.step() == 0
    stream = later(stream)
    stream.ints = ints
    write("b", 7)
    stream.drain()
    assert stream.numbers == [1, 2, 3, 1, 2, 7]


def test_names_tell_logs_apart(tmp_path: Path, later) -> None:
    for name in "abc":
        Source(tmp_path, name).log(2)
        if name == "a":
            stream = Stream(tmp_path)
        stream.drain()
        stream = later(stream)
    first_path, *other_paths = sorted(tmp_path.iterdir())
    assert all(path.read_bytes() == first_path.read_bytes() for path in other_paths)
    assert stream.numbers == [*range(40)] * 3


@pytest.mark.parametrize("way", ["emptied", "written again", "removed", "read first"])
def test_the_original_was_not_begun(tmp_path: Path, log_and_source, later, way: str) -> None:
    directory, _ = log_and_source
    Source(directory, "a").log(3)
    stream = Stream(directory, maxfilespertrigger=1)
    path = max(directory.iterdir())
    assert stream.step() == 60
    if later is restarted:
        stream = later(stream, maxfilespertrigger=1)
    shutil.copy(path, rotated(path))
    if way == "read first":
        assert stream.step() == 60
        stream = later(stream, maxfilespertrigger=1)
        assert stream.step() == 0
    else:
        look(stream)
    if way == "removed":
        path.unlink()
    else:
        path.write_bytes(make_other_log(tmp_path, 60) if way == "written again" else b"")
    stream.drain()
    stream = later(stream, maxfilespertrigger=1)
    assert stream.step() == 0
    assert sorted(stream.numbers) == sorted([*range(60), *range(80 if way == "written again" else 60)])


def test_original_and_copy_are_found_together(log_and_source, later) -> None:
    directory, source = log_and_source
    path = only_rows(directory)
    shutil.copy(path, rotated(path))
    stream = Stream(directory)
    stream.drain()
    stream = later(stream)
    source.log(1)
    stream.drain()
    assert stream.numbers == list(range(80))
    os.truncate(path, 0)
    stream = later(stream)
    assert stream.step() == 0


def test_an_original_that_was_not_begun_had_more_than_its_copy(log_and_source) -> None:
    directory, source = log_and_source
    path = only_rows(directory)
    Source(directory, "a").log(3)
    stream = Stream(directory, maxfilespertrigger=1)
    assert stream.step() == 60
    shutil.copy(path, rotated(path))
    source.log(1)
    look(stream)
    os.truncate(path, 0)
    with pytest.raises(SawlogError, match=r"failOnDataLoss=false"):
        stream.drain()


@pytest.mark.parametrize("is_begun", [False, True])
@pytest.mark.parametrize("is_removed", [False, True], ids=["emptied", "removed"])
@pytest.mark.parametrize("longer", [1, 2], ids=["first is longer", "second is longer"])
def test_two_copies_of_a_log_are_read_once(
    tmp_path: Path, log_and_source, later, is_begun: bool, is_removed: bool, longer: int
) -> None:
    directory, source = log_and_source
    path = only_rows(directory)
    stream = Stream(directory)
    if is_begun:
        stream.drain()
    else:
        stream = Stream(directory, maxfilespertrigger=1)
        Source(directory, "a").log(1)
        assert stream.step() == 20
        del stream.numbers[:]
    shutil.copy(path, path.with_name(f"{path.name}.{3 - longer}"))
    look(stream)
    source.log(1)
    shutil.copy(path, path.with_name(f"{path.name}.{longer}"))
    look(stream)
    if is_removed:
        path.unlink()
    else:
        path.write_bytes(make_other_log(tmp_path, 80))
    stream.drain()
    stream = later(stream)
    assert stream.step() == 0
    assert stream.numbers == list(range(80 if is_removed else 100))


@pytest.mark.parametrize("moment", ["both at once", "one after the other", "one read first"])
@pytest.mark.parametrize("suffix_after", [".2", "-old"])
def test_two_copies_of_an_original_that_was_never_seen(
    tmp_path: Path, log_and_source, later, moment: str, suffix_after: str
) -> None:
    """The stream stood still, or was not there yet, when the log was copied twice and emptied."""
    directory, _ = log_and_source
    path = only_rows(directory)
    aside = tmp_path / "aside"
    path.rename(aside)
    Source(directory, "a").log(1)
    stream = Stream(directory, maxfilespertrigger=1)
    if moment != "one read first":
        assert stream.step() == 20
    path.touch()
    for suffix in (".1", suffix_after):
        shutil.copy(aside, path.with_name(f"{path.name}{suffix}"))
        if moment == "one after the other":
            look(stream)
        if moment == "one read first":
            stream.drain()
    stream = later(stream)
    stream.drain()
    path.write_bytes(make_other_log(tmp_path, 60))
    stream.drain()
    stream = later(stream)
    assert stream.step() == 0
    assert sorted(stream.numbers) == sorted([*range(20), *range(80)])


@pytest.mark.parametrize("anew", [0, 1, 9], ids=["emptied", "shorter", "longer"])
@pytest.mark.parametrize("read", ["begun", "whole", "finished"])
def test_two_copies_that_are_found_together(tmp_path: Path, log_and_source, later, read: str, anew: int) -> None:
    """The stream stood still while a log that it knew was copied twice, emptied, and written again."""
    directory, _ = log_and_source
    path = only_rows(directory)
    stream = Stream(directory, maxrowspertrigger=20 if read == "begun" else None)
    stream.step()
    if read == "finished":
        quiet(path)
        Source(directory, "other").log(1)
        stream.drain()
        assert len(stream.offset.finished) == 1
        del stream.numbers[60:]
    for number in (1, 2):
        shutil.copy(path, path.with_name(f"{path.name}.{number}"))
    path.write_bytes(make_other_log(tmp_path, 60, anew) if anew else b"")
    stream = later(stream)
    stream.drain()
    stream = later(stream)
    assert stream.step() == 0
    assert sorted(stream.numbers) == list(range(60 + 20 * anew))


def test_rotated_logs_with_other_rows_are_read(tmp_path: Path, log_and_source) -> None:
    directory, _ = log_and_source
    path = only_rows(directory)
    for number in (1, 2):
        path.with_name(f"{path.name}.{number}").write_bytes(make_other_log(tmp_path, 60 * number, 3))
    os.truncate(path, 0)
    stream = Stream(directory)
    stream.drain()
    assert sorted(stream.numbers) == list(range(60, 180))


def test_logs_are_rotated_by_number(tmp_path: Path, log_and_source, later) -> None:
    """What logrotate does with `copytruncate`, a look after each step."""
    directory, _ = log_and_source
    path = only_rows(directory)
    stream = Stream(directory)
    numbers = 60
    for turn in range(4):
        for number in range(turn, 0, -1):
            path.with_name(f"{path.name}.{number}").rename(path.with_name(f"{path.name}.{number + 1}"))
            stream.step()
        shutil.copy(path, rotated(path))
        stream.step()
        stream = later(stream)
        os.truncate(path, 0)
        stream.step()
        path.write_bytes(make_other_log(tmp_path, numbers, turn + 1))
        numbers += 20 * (turn + 1)
        stream.drain()
        stream = later(stream)
    assert stream.numbers == list(range(numbers))

"""Files of a path that a read leaves out: logged once where Spark plans, as Python warns of them."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.types import StructType

import sawlog
from sawlog.errors import IncompleteError
from sawlog.spark import planner
from sawlog.spark.reader import make_reader, read_schema
from sawlog.spark.stream_reader import make_stream_reader
from tests.spark.conftest import COLUMNS, nameless
from tests.spark.stream_logs import write_log
from tests.support import write_records

ROWS = 12


def write_numbered_log(path: Path, count: int) -> None:
    records = [b"record %d" % number for number in range(count)]
    write_records(path, records)


@pytest.fixture
def mixed(tmp_path: Path) -> Path:
    """A folder with a database and a log that is none of its own."""
    plyvel = pytest.importorskip("plyvel", reason="plyvel has no wheels for Python 3.13 and later")
    folder = tmp_path / "mixed"
    folder.mkdir()
    database = plyvel.DB(str(folder / "db"), create_if_missing=True)
    for number in range(ROWS):
        database.put(b"key%d" % number, b"value")
    database.close()
    write_numbered_log(folder / "000007.log", 9)
    return folder


def warned_of(path: Path) -> list[str]:
    """The warnings of a read in Python."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert sawlog.read(path).num_rows == ROWS
    return [str(record.message) for record in caught]


def read_rows(path: Path, **options: str) -> int:
    options = {"path": str(path), **options}
    reader = make_reader(options, None, read_schema(options, None))
    return sum(batch.num_rows for partition in reader.partitions() for batch in reader.read(partition))


def count_rows(path: Path, **options: str) -> int:
    """The same by what the jar asks."""
    conversation = planner.Conversation()
    options = {"path": str(path), **options}
    full = json.loads(conversation.answer("describe", {"options": options})[0])["schema"]
    side = {"wanted": StructType().json(), "filters": []}
    question = {"options": options, "full": full, "sides": [side, side], "parallelism": 2}
    conversation.answer("plan", question)
    return ROWS


@pytest.mark.parametrize("read", [read_rows, count_rows], ids=["rows", "jar"])
@pytest.mark.parametrize("mode", ["FAILFAST", "DROPMALFORMED", "PERMISSIVE"])
def test_left_out_files_are_logged_once(
    mixed: Path, caplog: pytest.LogCaptureFixture, read: Callable[..., int], mode: str
) -> None:
    (expected,) = warned_of(mixed)
    assert "000007.log was not read" in expected
    with caplog.at_level(logging.WARNING, logger="sawlog"):
        assert read(mixed, mode=mode, task_bytes="1") == ROWS
    assert [record.getMessage() for record in caplog.records] == [expected]
    caplog.clear()
    assert read(mixed / "db", mode=mode) == ROWS
    assert caplog.text == "", "nothing is left out"


def test_what_python_refuses(mixed: Path) -> None:
    (mixed / "000007.log").unlink()
    (mixed / "db" / "CURRENT").write_bytes(b"MANIFEST-000099\n")
    with pytest.raises(IncompleteError) as refused:
        sawlog.read(mixed)
    with pytest.raises(IncompleteError) as refused_by_spark:
        read_rows(mixed)
    words = str(refused.value).replace('on_damage="skip"', '.option("mode", "DROPMALFORMED")')
    assert str(refused_by_spark.value) == words


QUERIES = """
import sys
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
for source in sys.argv[2:]:
    assert not spark.read.format(source).load(sys.argv[1]).isEmpty()
"""


@pytest.mark.nightly
def test_sparks_own_log(mixed: Path, tmp_path: Path) -> None:
    """What the process that plans writes to stderr comes out where Spark's own log does."""
    environment = {
        **os.environ,
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_SUBMIT_ARGS": f"--jars {nameless(tmp_path)} pyspark-shell",
    }
    command = [sys.executable, "-c", QUERIES, str(mixed), "sawlog", COLUMNS]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stderr.count("000007.log was not read") == 2


class Follow:
    """The looks of a watch, or of a stream of Spark's."""

    def __init__(self, path: Path, by: str) -> None:
        if by == "watch":
            watch = sawlog.open(path).watch()
            self.look: Callable[[], Any] = lambda: sum(batch.num_rows for batch in watch.look())
            return
        reader = make_stream_reader({"path": str(path)}, None, StructType().add("n", "long"))
        offsets = [reader.initialOffset()]

        def look() -> int:
            offsets.append(reader.find_latest(offsets[-1], limited=False))
            parts = reader.partitions(*offsets[-2:])
            return sum(batch.num_rows for part in parts for batch in reader.read(part))

        self.look = look


@pytest.mark.filterwarnings("always")
@pytest.mark.parametrize("by", ["watch", "stream"])
def test_streams_say_it_too(
    tmp_path: Path, by: str, caplog: pytest.LogCaptureFixture, recwarn: pytest.WarningsRecorder
) -> None:
    write_log(tmp_path / "logs", 0, 5, "a")
    write_numbered_log(tmp_path / "000007.log", 9)
    follow = Follow(tmp_path, by)
    assert follow.look() == 5
    messages = [*(record.getMessage() for record in caplog.records), *(str(record.message) for record in recwarn.list)]
    assert (
        len([message for message in messages if "000007.log was not read (135 bytes): read as LevelDB" in message]) == 1
    )
    caplog.clear()
    write_numbered_log(tmp_path / "000007.log", 10)
    for number in (1, 2):
        write_numbered_log(tmp_path / "later" / f"00000{number}.log", 3)
        write_log(tmp_path / "logs", number, number + 1, f"b{number}")
        assert follow.look() == 1
    assert caplog.text.count("was not read") == 1
    assert "later/000001.log was not read" in caplog.text

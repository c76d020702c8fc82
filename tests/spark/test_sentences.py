"""Errors of known kinds arrive in Spark as their sentence, without frames of Python's."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from sawlog.errors import DamageError, InternalError, OptionError, SchemaError, StorageError
from sawlog.spark.errors import as_sentence, explain, is_damage, is_transient, list_spark_errors, translate_errors
from tests.spark.conftest import COLUMNS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Ask = Callable[[Any, Path], Any]


def test_python_says_it_in_sparks_words() -> None:
    messages = {
        "read them apart; widen=True would do": 'read them apart; .option("widen", "true") would do',
        "choose one with namespace= and table=": 'choose one with .option("namespace", ...) and .option("table", ...)',
        "option columns='a,b': no": "option columns='a,b': no",
        "names such as day=3/x are kept": "names such as day=3/x are kept",
    }
    for message, expected in messages.items():
        with pytest.raises(OptionError) as raised, translate_errors():
            raise OptionError(message)
        assert str(raised.value) == expected


@pytest.mark.parametrize(
    ("error", "hidden"),
    [(SchemaError("x"), True), (StorageError("x"), True), (InternalError("x"), False), (KeyError("x"), False)],
)
def test_only_frames_of_known_errors_are_left_out(
    error: Exception, hidden: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a process of Spark's, which PySpark ends after it has reported one."""
    for is_worker in (False, True):
        monkeypatch.setenv("SPARK_HIDE_TRACEBACK", "")
        if is_worker:
            monkeypatch.setenv("PYTHON_WORKER_FACTORY_PORT", "1")
        with pytest.raises(type(error)), as_sentence():
            raise error
        assert bool(os.environ["SPARK_HIDE_TRACEBACK"]) == (hidden and is_worker)


QUESTIONS: dict[str, tuple[Ask, str]] = {
    "schema": (lambda reader, damaged: reader.load(str(damaged) + "x"), "no such file, directory or glob match"),
    "option": (lambda reader, damaged: reader.option("colums", "a").load(str(damaged)), "did you mean 'columns'"),
    "plan": (lambda reader, damaged: reader.schema("x binary").load(str(damaged)).count(), "no column 'x'"),
    "task": (lambda reader, damaged: reader.load(str(damaged)).collect(), r'\.option\("mode", "DROPMALFORMED"\)'),
}


@pytest.mark.parametrize("source", ["sawlog", COLUMNS])
@pytest.mark.parametrize("place", QUESTIONS)
def test_errors_arrive_from_spark_as_one_sentence(spark: SparkSession, damaged: Path, source: str, place: str) -> None:
    ask, sentence = QUESTIONS[place]
    with pytest.raises(list_spark_errors(), match=sentence) as raised:
        ask(spark.read.format(source), damaged)
    text = str(raised.value).partition("\n\nJVM stacktrace")[0].strip()
    assert "Traceback" not in text
    assert len([line for line in text.splitlines() if line.strip()]) <= 3
    assert "\n" not in explain(raised.value)
    assert is_damage(raised.value) == (place == "task")
    assert not is_transient(raised.value)


@pytest.mark.parametrize("source", ["sawlog", COLUMNS])
def test_what_arrives_of_a_stream(
    spark: SparkSession, pyspark_version: tuple[int, int], damaged: Path, tmp_path: Path, source: str
) -> None:
    if pyspark_version < (4, 2) and source == "sawlog":
        pytest.skip("streams need PySpark 4.2")
    writer = spark.readStream.format(source).load(str(damaged)).writeStream.format("noop")
    query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start()
    with pytest.raises(list_spark_errors(), match=DamageError.__name__) as raised:
        query.awaitTermination()
    assert "Traceback" not in str(raised.value).partition("\n\nJVM stacktrace")[0]


def test_what_arrives_of_a_sink(spark: SparkSession, tmp_path: Path) -> None:
    writer = spark.range(1).write.format("sawlog").option("format", "leveldb_log").mode("append")
    with pytest.raises(list_spark_errors(), match="a leveldb_log holds one column, 'record'; found: id") as raised:
        writer.save(str(tmp_path / "out"))
    assert "Traceback" not in str(raised.value).partition("\n\nJVM stacktrace")[0]


@pytest.mark.parametrize("source", ["sawlog", COLUMNS])
def test_an_endpoint_where_nobody_listens_is_named(spark: SparkSession, source: str) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    options = {"endpoint_url": f"http://127.0.0.1:{port}", "key": "k", "secret": "hunter2"}
    reader = spark.read.format(source).options(**{f"storage.{name}": value for name, value in options.items()})
    start = time.monotonic()
    with pytest.raises(list_spark_errors(), match=r"s3://bucket/x\.log") as raised:
        reader.load("s3://bucket/x.log")
    assert time.monotonic() - start < 20
    text = str(raised.value).partition("\n\nJVM stacktrace")[0]
    assert "Traceback" not in text
    assert "hunter2" not in text


CONNECT = """
import sys
from pyspark.sql import SparkSession
spark = SparkSession.builder.remote(sys.argv[1]).getOrCreate()
try:
    spark.read.format("sawlog").load(sys.argv[2]).collect()
except Exception as error:
    print(str(error).partition("JVM stacktrace")[0])
"""


@pytest.mark.nightly
def test_what_arrives_by_connect(spark: SparkSession, damaged: Path, connect_port: int) -> None:
    del spark  # which is the server
    command = [sys.executable, "-c", CONNECT, f"sc://127.0.0.1:{connect_port}", str(damaged)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert 'read on past it with .option("mode", "DROPMALFORMED")' in done.stdout, done.stderr[-2000:]
    assert "Traceback" not in done.stdout

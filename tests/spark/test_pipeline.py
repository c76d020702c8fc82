"""Pipelines in batches: what the command line runs on a real Spark."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.dataset as ds
import pytest

import sawlog
import sawlog.spark
from sawlog.cli import main

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).resolve().parents[2]
PIPELINE = """\
[pipeline]
name = "writes"

[sources.log]
path = "{path}"
on_damage = "{on_damage}"

[steps.long]
sql = "SELECT record, length(record) AS size FROM log WHERE length(record) > 100"

[steps.records]
sql = "SELECT record FROM long"

[sinks.sizes]
from = "long"
format = "parquet"
mode = "overwrite"
path = "sizes"

[sinks.copy]
from = "records"
format = "leveldb_log"
mode = "overwrite"
path = "copy"

[quarantine]
format = "parquet"
path = "quarantine"
mode = "overwrite"
"""
Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(spark: SparkSession, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run a command line in this process and session: exit code, stdout, stderr."""

    def call(*args: object) -> tuple[int, str, str]:
        code = main([str(arg) for arg in args])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call


def write_pipeline(directory: Path, text: str, **values: object) -> Path:
    path = directory / "p.toml"
    path.write_text(text.format(**values) if values else text)
    return path


def read_parquet(path: Path) -> pa.Table:
    return ds.dataset(path, format="parquet", exclude_invalid_files=True).to_table()


def events(out: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in out.splitlines() if line.startswith("{")]


def test_sources_steps_and_sinks_are_run(run: Run, database: Path, tmp_path: Path) -> None:
    path = write_pipeline(tmp_path, PIPELINE, path=database, on_damage="fail")
    code, out, err = run("run", path, "--json")
    assert code == 0, err
    first, second, end = events(out)
    records = sawlog.read(database)["record"]
    long = [record for record in records.to_pylist() if len(record) > 100]
    rows_read = read_parquet(tmp_path / "sizes")
    assert sorted(rows_read["record"].to_pylist()) == sorted(long)
    assert rows_read["size"].to_pylist() == [len(record) for record in rows_read["record"].to_pylist()]
    assert sorted(sawlog.read(tmp_path / "copy")["record"].to_pylist()) == sorted(long)
    assert [(e["event"], e["pipeline"], e["sink"], e["rows"], e["damage"]) for e in (first, second)] == [
        ("batch", "writes", "sizes", len(long), 0),
        ("batch", "writes", "copy", len(long), 0),
    ]
    assert end["rows"] == {"sizes": len(long), "copy": len(long)}
    assert not (tmp_path / "quarantine").exists()


def test_damage_stops_or_is_counted_or_written_down(run: Run, damaged: Path, tmp_path: Path) -> None:
    code, out, err = run("run", write_pipeline(tmp_path, PIPELINE, path=damaged, on_damage="fail"))
    assert (code, out) == (1, "")
    assert f"p.toml:14: sinks.sizes: {damaged}: " in err
    assert "expected masked CRC-32C" in err
    assert "Traceback" not in err

    code, out, err = run("run", write_pipeline(tmp_path, PIPELINE, path=damaged, on_damage="skip"), "--json")
    assert code == 3, err
    assert [event["damage"] for event in events(out)] == [2, 2, 2]
    assert not (tmp_path / "quarantine").exists()

    code, out, err = run("run", write_pipeline(tmp_path, PIPELINE, path=damaged, on_damage="quarantine"), "--json")
    assert code == 0, err
    *_, end = events(out)
    assert (end["damage"], end["skipped"]) == (2, 0)
    damage = sawlog.read(damaged, view="damage").to_pylist()
    data = damaged.read_bytes()
    spans = [data[row["offset"] : row["offset"] + row["length"]] for row in damage]
    expected = [
        {"source": "log", **damage_entry, "bytes": span} for damage_entry, span in zip(damage, spans, strict=True)
    ]
    assert read_parquet(tmp_path / "quarantine").to_pylist() == expected
    with pytest.warns(sawlog.DamageWarning):
        intact = sawlog.read(damaged, on_damage="skip")["record"].to_pylist()
    long = [record for record in intact if len(record) > 100]
    assert sorted(read_parquet(tmp_path / "sizes")["record"].to_pylist()) == sorted(long)


def test_people_are_told_in_lines(run: Run, database: Path, tmp_path: Path) -> None:
    code, out, _ = run("run", write_pipeline(tmp_path, PIPELINE, path=database, on_damage="fail"))
    assert code == 0
    first, *_, last = out.splitlines()
    assert first.startswith("event=batch time=20")
    assert " pipeline=writes sink=sizes batch=0 rows=" in first
    assert last.startswith("event=end rows.sizes=")


def test_a_dry_run_shows_the_plan_and_writes_nothing(run: Run, database: Path, tmp_path: Path) -> None:
    path = write_pipeline(tmp_path, PIPELINE, path=database, on_damage="quarantine")
    code, out, err = run("run", path, "--dry-run")
    assert code == 0, err
    assert "source log\n  format     recognised\n" in out
    assert "step long\n  sql  SELECT record, length(record) AS size FROM log" in out
    assert "sink copy\n  from    records\n  format  leveldb_log\n" in out
    assert "quarantine\n" in out
    code, out, err = run("run", path, "--dry-run", "--json")
    parts = {(part["kind"], part["name"]): part for part in json.loads(out)["parts"]}
    assert parts["step", "long"]["schema"] == {"record": "binary not null", "size": "int not null"}
    assert parts["quarantine", ""]["schema"]["source"] == "string not null"
    assert [path.name for path in tmp_path.iterdir()] == ["p.toml"]


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ("FROM long", "FROM lang", r"p.toml:12: steps.records.sql: [TABLE_OR_VIEW_NOT_FOUND]"),
        ("SELECT record FROM", "SELCT record FROM", r"p.toml:12: steps.records.sql: [PARSE_SYNTAX_ERROR]"),
        ("SELECT record FROM", "SELECT size FROM", r"p.toml:20: sinks.copy: "),
        ('path = "{path}"', 'path = "nowhere"', "p.toml:5: sources.log.path: "),
        ('path = "{path}"', 'path = "{path}"\nview = "pages"', "has no view 'pages'"),
        ('path = "{path}"', 'path = "{path}"\noptions = {{ colour = "red" }}', "unknown option 'colour'"),
        (
            'format = "parquet"',
            'format = "parqet"',
            "p.toml:16: sinks.sizes.format: neither sawlog nor Spark has a for",
        ),
        ('format = "parquet"', 'format = "kafka"', "p.toml:16: sinks.sizes.format: neither sawlog nor Spark has a for"),
        ('path = "sizes"', 'path = "sizes"\npartition_by = ["day"]', "sinks.sizes: no column 'day' to partition by"),
    ],
)
def test_what_spark_finds_is_named_too(
    run: Run, database: Path, tmp_path: Path, before: str, after: str, message: str
) -> None:
    assert before in PIPELINE
    path = write_pipeline(tmp_path, PIPELINE.replace(before, after), path=database, on_damage="fail")
    code, out, err = run("run", path, "--dry-run")
    assert (code, out) == (2, "")
    assert message in err
    assert err.count("\n") == 1
    assert "Traceback" not in err


def test_secrets_are_never_printed(run: Run, database: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STORE_SECRET", "hunter2")
    monkeypatch.setenv("STORE_PLACE", str(database))
    storage = '\n[sources.log.storage]\nsecret = "${env:STORE_SECRET}"\n'
    text = PIPELINE.replace("{path}", "${env:STORE_PLACE}").replace("{on_damage}", "fail") + storage
    for arguments in (("--dry-run",), ("--dry-run", "--json"), ()):
        code, out, err = run("run", write_pipeline(tmp_path, text), *arguments)
        assert code == 0, err
        assert "hunter2" not in out + err
        assert str(database) not in out + err
    missing = text.replace("${env:STORE_PLACE}", "/nowhere/${env:STORE_SECRET}")
    code, out, err = run("run", write_pipeline(tmp_path, missing))
    assert code == 2
    assert "${env:STORE_SECRET}" in err
    assert "hunter2" not in out + err


def test_init_writes_an_example_once(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    code, out, _ = run("init")
    assert code == 0
    assert "sawlog run pipeline.toml --dry-run" in out
    code, _, err = run("init")
    assert (code, err) == (2, "sawlog: pipeline.toml: is there already; name another file\n")


def command(*args: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable}
    for name in ("PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET"):
        environment.pop(name, None)
    return subprocess.run(args, env=environment, capture_output=True, text=True, check=False, timeout=900)


def spark_home() -> Path:
    import pyspark

    return Path(pyspark.__file__).parent


@pytest.mark.nightly
def test_spark_submit_runs_it_unchanged(database: Path, tmp_path: Path) -> None:
    path = write_pipeline(tmp_path, PIPELINE, path=database, on_damage="fail")
    submit = [str(spark_home() / "bin" / "spark-submit"), "--master", "local[1]", "--conf", "spark.ui.enabled=false"]
    done = command(*submit, str(ROOT / "examples" / "run.py"), "run", str(path), "--json")
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
    *_, end = events(done.stdout)
    assert end["rows"]["copy"] == read_parquet(tmp_path / "sizes").num_rows > 0


@contextmanager
def connect_server(place: Path, jar: str) -> Iterator[str]:
    """A Spark Connect server on loopback, with a jar; its URL."""
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    settings = {
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": port,
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.jars": jar,
    }
    texts = [text for name, value in settings.items() for text in ("--conf", f"{name}={value}")]
    service = "org.apache.spark.sql.connect.service.SparkConnectServer"
    submit = [str(spark_home() / "bin" / "spark-submit"), "--master", "local[2]", *texts, "--class", service]
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable}
    with (place / "server.log").open("w") as log:
        server = subprocess.Popen(
            [*submit, "spark-internal"], env=environment, cwd=place, stdout=log, stderr=log, start_new_session=True
        )
        try:
            deadline = time.monotonic() + 120
            while time.monotonic() < deadline and server.poll() is None:
                with socket.socket() as probe:
                    if probe.connect_ex(("127.0.0.1", port)) == 0:
                        break
                time.sleep(0.2)
            yield f"sc://127.0.0.1:{port}"
        finally:
            server.terminate()
            server.wait(60)


STREAM = """
[pipeline]
mode = "stream"
checkpoint = "state"
trigger = "available-now"
[sources.log]
path = "{path}"
[sinks.streamed]
from = "log"
format = "parquet"
path = "streamed"
"""


RUNS = """
import json, sys
from sawlog.cli import main
for arguments in json.loads(sys.argv[1]):
    print(json.dumps({"code": main(arguments)}), flush=True)
"""
"""Several runs of the command line, as a process that has imported the client of Spark Connect once."""


@pytest.mark.nightly
def test_spark_connect_runs_it_unchanged(
    spark: SparkSession,
    connect_port: int,
    database: Path,
    damaged: Path,
    tmp_path: Path,
    pyspark_version: tuple[int, int],
) -> None:
    path = write_pipeline(tmp_path, PIPELINE, path=damaged, on_damage="quarantine")
    stream, wrong = tmp_path / "stream.toml", tmp_path / "wrong.toml"
    stream.write_text(STREAM.format(path=database))
    wrong.write_text(path.read_text().replace("FROM long", "FROM lang"))
    runs = [["run", str(path)], ["run", str(wrong), "--dry-run"]]
    runs += [["run", str(stream)]] if pyspark_version >= (4, 2) else []
    commands = [[*run, "--json", "--conf", f"spark.remote=sc://127.0.0.1:{connect_port}"] for run in runs]
    done = command(sys.executable, "-c", RUNS, json.dumps(commands))
    event_list = events(done.stdout)
    assert [row["code"] for row in event_list if "code" in row] == [0, 2, 0][: len(runs)], (
        done.stdout + done.stderr[-3000:]
    )
    end, *streamed = [event for event in event_list if event.get("event") == "end"]
    assert end["rows"]["copy"] == read_parquet(tmp_path / "sizes").num_rows > 0
    assert end["damage"] == read_parquet(tmp_path / "quarantine").num_rows == 2
    assert "wrong.toml:12: steps.records.sql: [TABLE_OR_VIEW_NOT_FOUND]" in done.stderr
    if pyspark_version >= (4, 2):
        records = sawlog.read(database)["record"].to_pylist()
        assert [row["rows"] for row in streamed] == [{"streamed": len(records)}]
        assert sorted(read_parquet(tmp_path / "streamed")["record"].to_pylist()) == sorted(records)


CLIENT = """
import sys
from pyspark.sql import SparkSession
url, path, copy, streams = sys.argv[1:]
spark = SparkSession.builder.remote(url).getOrCreate()
frame = spark.read.format("sawlog").option("provenance", "true").load(path)
chosen = frame.where("_offset >= 40000").selectExpr("sum(length(record))")
chosen.explain()
print("sum", chosen.collect()[0][0], "of", frame.count(), "rows")
if streams == "yes":
    query = spark.readStream.format("sawlog").load(path).writeStream.format("parquet").trigger(availableNow=True)
    query.option("checkpointLocation", copy + ".state").start(copy).awaitTermination()
"""


@pytest.mark.heavy
def test_a_spark_connect_server_with_the_jar_reads_columns(
    database: Path, tmp_path: Path, pyspark_version: tuple[int, int]
) -> None:
    table = sawlog.read(database, provenance=True)
    records, offsets = (table[name].to_pylist() for name in ("record", "_offset"))
    sizes = [len(record) for record, offset in zip(records, offsets, strict=True) if offset >= 40000]
    streams = pyspark_version >= (4, 2)
    with connect_server(tmp_path, sawlog.spark.spark_jar()) as url:
        copy = tmp_path / "copy"
        done = command(sys.executable, "-c", CLIENT, url, str(database), str(copy), "yes" if streams else "no")
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
    assert re.search(r"PushedFilters: \[GreaterThanOrEqual\(_offset,40000\)\]", done.stdout), done.stdout
    assert f"sum {sum(sizes)} of {table.num_rows} rows" in done.stdout
    if streams:
        assert sorted(read_parquet(copy)["record"].to_pylist()) == sorted(records)

"""`import_logs` and `merge`: trees that hold every committed row once, whatever is killed."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import sawlog
from sawlog.deephaven.ingest import publication
from sawlog.deephaven.ingest.spark import import_logs, merge
from sawlog.deephaven.log.logger import Logger
from sawlog.errors import DamageError, FormatError, OptionError, SawlogError, SchemaError
from tests.deephaven_import.support import DATE, SCHEMA, Logs, batch, db, history, intraday, logs, numbers

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["db", "logs"]

load = sys.modules["sawlog.deephaven.ingest.spark.load"]
ROOT = Path(__file__).resolve().parents[2]
XML = """<Table namespace="Ns" name="T" storageType="NestedPartitionedOnDisk">
  <Column name="Day" dataType="String" columnType="Partitioning"/>
  <Column name="Sym" dataType="String" columnType="Grouping" encoding="UTF_8"/>
  <Column name="Gone" dataType="double"/>
  <Column name="N" dataType="int"/>
  {more}
</Table>"""


def record(path: str) -> dict[str, Any]:
    return json.loads((Path(path) / "_sawlog.json").read_text())


def test_rows_types_and_partitions_are_imported(spark: SparkSession, logs: Logs, db: Path) -> None:
    logs.write(0, 100)
    logs.write(100, 200)
    logs.write(0, 10, internal="vm2")
    logs.write(0, 5, column="2024-01-02")
    logs.write(0, 7, table="U")
    done = import_logs(spark, logs.directory, db)
    assert (done.rows, done.partitions) == (222, 4)
    assert {str(Path(path).relative_to(db / "Intraday" / "Ns")) for path in done.locations} == {
        "T/vm1/2024-01-01/T",
        "T/vm2/2024-01-01/T",
        "T/vm1/2024-01-02/T",
        "U/vm1/2024-01-01/U",
    }
    first = sawlog.read(db / "Intraday/Ns/T/vm1/2024-01-01/T", format="deephaven_table")
    expected = pa.Table.from_batches([batch(0, 200)])
    for name in SCHEMA.names:
        assert first.column(name).to_pylist() == expected.column(name).to_pylist(), name
    assert set(first.column("Date").to_pylist()) == {"2024-01-01"}


def test_a_rerun_appends_only_what_is_new(spark: SparkSession, logs: Logs, db: Path) -> None:
    path = logs.write(0, 100)
    data = path.read_bytes()
    path.write_bytes(data[:-5])
    first = import_logs(spark, logs.directory, db)
    assert first.rows == 99
    assert "wait for their end" in first.remarks[0]
    assert import_logs(spark, logs.directory, db).locations == []
    path.write_bytes(data)
    logs.write(100, 3000)
    # Sets that are not ended are not committed.
    with logs.begin() as logger:
        logger.transaction(batch(3000, 3010))
    open_set = Path(logger.files[0])
    ended = open_set.read_bytes()
    open_set.write_bytes(ended[: len(ended) // 2])
    second = import_logs(spark, logs.directory, db, location_bytes=20_000)
    assert second.rows == 2901
    assert len(second.locations) > 3
    open_set.write_bytes(ended)
    assert import_logs(spark, logs.directory, db).rows == 10
    assert numbers(intraday(db)) == list(range(3010))
    ranges = [record(path)["logs"] for path in (*first.locations, *second.locations)]
    assert all(log["start"] < log["end"] for logs in ranges for log in logs.values())


def test_partitions_are_deleted(spark: SparkSession, logs: Logs, db: Path) -> None:
    logs.write(0, 100)
    logs.write(0, 100, internal="vm2")
    old = import_logs(spark, logs.directory, db)
    with logs.begin() as logger:
        logger.write(batch(100, 200))
        logger.delete_partition()
        logger.write(batch(200, 300))
    done = import_logs(spark, logs.directory, db)
    assert (done.rows, done.removed) == (100, [path for path in old.locations if "vm1" in path])
    assert sorted(numbers(intraday(db))) == sorted([*range(100), *range(200, 300)])
    assert import_logs(spark, logs.directory, db).locations == []
    with logs.begin() as logger:
        logger.delete_partition()
    assert import_logs(spark, logs.directory, db).rows == 0
    assert numbers(intraday(db)) == list(range(100))
    assert import_logs(spark, logs.directory, db).locations == []
    ignoring = import_logs(spark, logs.directory, db.with_name("kept"), deletes="ignore")
    assert ignoring.rows == 400


def test_damage_stops_a_partition_in_front_of_it(spark: SparkSession, logs: Logs, db: Path) -> None:
    path = logs.write(0, 3000)
    logs.write(0, 100, internal="vm2")
    logs.write(3000, 3010)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0xFF
    path.write_bytes(data)
    with pytest.raises(DamageError, match=re.escape(str(path))):
        import_logs(spark, logs.directory, db, location_bytes=20_000)
    numbers_read = numbers(intraday(db))
    assert numbers_read[-100:] == list(range(100))
    assert 0 < len(numbers_read) - 100 < 1500
    assert numbers_read[:-100] == list(range(len(numbers_read) - 100))
    done = import_logs(spark, logs.directory, db, location_bytes=20_000, on_damage="skip")
    assert "damaged bytes" in done.skipped[0]
    assert len(numbers(intraday(db))) == 3010 + 100 - 1
    assert import_logs(spark, logs.directory, db, on_damage="skip").rows == 0


def test_a_schema_file_decides(spark: SparkSession, logs: Logs, db: Path, tmp_path: Path) -> None:
    logs.write(0, 100)
    xml = tmp_path / "T.schema"
    xml.write_text(XML.format(more=""))
    done = import_logs(spark, logs.directory, db, schema=str(xml))
    assert any("Px, which are logged" in remark for remark in done.remarks)
    table = intraday(db)
    assert {field.name: str(field.type) for field in table.schema} == {
        "Day": "string",
        "Sym": "dictionary<values=string, indices=int32, ordered=0>",
        "Gone": "double",
        "N": "int32",
    }
    assert table.column("Gone").null_count == 100
    done = merge(spark, db, "Ns", "T", DATE)
    assert done.grouped == ["Sym"]
    assert sorted(numbers(history(db))) == list(range(100))
    logs.write(1 << 31, (1 << 31) + 1)
    with pytest.raises(SchemaError, match="'N'"):
        import_logs(spark, logs.directory, db, schema=str(xml))
    xml.write_text(XML.format(more='<Column name="Px" dataType="String"/>'))
    with pytest.raises(SchemaError, match="'Px' is String; it is logged as double"):
        import_logs(spark, logs.directory, db, schema=str(xml))


def test_imports_that_cannot_be_made_are_refused(spark: SparkSession, logs: Logs, db: Path) -> None:
    path = logs.write(0, 10)
    with pytest.raises(OptionError, match="object stores"):
        import_logs(spark, logs.directory, "s3://bucket/db")
    with pytest.raises(OptionError, match="location_bytes"):
        import_logs(spark, logs.directory, db, location_bytes=0)
    with pytest.raises(OptionError, match="unknown option"):
        import_logs(spark, logs.directory, db, nonsense=1)
    with pytest.raises(FormatError, match="no binary log"):
        import_logs(spark, logs.directory, db, table="Other")
    for name in ("Ns.T.System.vm1~000001.2024-01-01.bin.x", "Ns.T.System._vm.2024-01-01.bin.x"):
        other_path = path.rename(path.with_name(name))
        with pytest.raises(OptionError, match="internal partition"):
            import_logs(spark, logs.directory, db)
        path = other_path
    path = path.rename(path.with_name("some.bin"))
    with pytest.raises(FormatError, match="does not say namespace, table"):
        import_logs(spark, logs.directory, db)
    named = {"namespace": "Ns", "table": "T", "internal_partition": "vm1", "column_partition": DATE}
    assert import_logs(spark, path, db, **named).rows == 10
    path.write_bytes(path.read_bytes()[:5])
    with pytest.raises(SawlogError, match="inside the preamble"):
        import_logs(spark, path, db, **named)
    assert import_logs(spark, path, db.with_name("new"), **named).rows == 0


def test_two_imports_at_a_time_are_refused(spark: SparkSession, logs: Logs, db: Path) -> None:
    from sawlog.deephaven.ingest.tree import IntradayTable

    logs.write(0, 10)
    with (
        IntradayTable(str(db), "Ns", "T").lock(),
        pytest.raises(SawlogError, match="another import or merge of this table is at work"),
    ):
        import_logs(spark, logs.directory, db)
    assert import_logs(spark, logs.directory, db).rows == 10


def test_locations_of_others_are_left_alone(spark: SparkSession, logs: Logs, db: Path) -> None:
    logs.write(0, 10)
    path = db / "Intraday/Ns/T/vm1" / DATE / "T"
    sawlog.write(pa.table({"N": [1]}), path, format="deephaven_table")
    with pytest.raises(SawlogError, match="that no import of sawlog made"):
        import_logs(spark, logs.directory, db)
    assert numbers(intraday(db)) == [1]


JOB = """
import os, sys
from pyspark.sql import SparkSession
from sawlog.deephaven.ingest.spark import import_logs
spark = (SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    .config("spark.driver.host", "127.0.0.1").config("spark.driver.bindAddress", "127.0.0.1")
    .config("spark.log.level", "OFF").config("spark.sql.shuffle.partitions", "2").getOrCreate())
for line in sys.stdin:
    try:
        print(import_logs(spark, sys.argv[1], sys.argv[2], location_bytes=30_000).rows, flush=True)
    except Exception:
        print("failed", flush=True)
"""


def start(logs: Logs, db: Path) -> subprocess.Popen[str]:
    """A driver of its own, which imports whenever it is told to."""
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable, "PYTHONPATH": str(ROOT)}
    return subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", JOB, str(logs.directory), str(db)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=environment,
    )


def processes() -> dict[int, tuple[int, str]]:
    """Parent and command of every process that lives."""
    command = ["ps", "-eo", "pid=,ppid=,stat=,args="]
    listing = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    lines = [line.split(None, 3) for line in listing.splitlines()]
    return {int(pid): (int(parent), " ".join(fields)) for pid, parent, state, *fields in lines if state[0] != "Z"}


def descendants(pid: int) -> dict[int, str]:
    """Processes below one, and their commands: Java, and the Python workers that it has started."""
    all_processes = processes()
    commands_found: dict[int, str] = {}
    below = {pid}
    while below:
        below = {pid for pid, (parent, _) in all_processes.items() if parent in below}
        commands_found |= {pid: all_processes[pid][1] for pid in below}
    return commands_found


def workers(pid: int) -> list[int]:
    """The Python workers of a driver: those that are no parents themselves."""
    parents = {parent for parent, _ in processes().values()}
    return [pid for pid, command in descendants(pid).items() if "pyspark" in command and pid not in parents]


def walk(db: Path) -> list[str]:
    """Everything below; what comes and goes meanwhile is no error, as it is to `Path.rglob`."""
    return [os.path.join(parent, name) for parent, inner, names in os.walk(db) for name in (*inner, *names)]


def staged(db: Path) -> list[str]:
    return [path for path in walk(db) if path.endswith(".sawlog-staged")]


def published(db: Path) -> list[str]:
    return [path for path in walk(db) if path.endswith("table.size") and ".sawlog-staged" not in path]


def has_more(db: Path, before: int) -> bool:
    return len(published(db)) > before


def wait(process: subprocess.Popen[str], done: Callable[[], object]) -> None:
    """Wait until something can be seen, or the job is over."""
    end = time.monotonic() + 300
    while time.monotonic() < end and process.poll() is None and not done():
        time.sleep(0.002)


@pytest.mark.nightly
def test_killed_drivers_and_workers_neither_lose_nor_repeat_rows(spark: SparkSession, logs: Logs, db: Path) -> None:
    """Workers are killed while they write; drivers while workers write, and between one publication and the next."""
    total = 20_000
    logs.write(0, total)
    process = start(logs, db)
    orphans: set[int] = set()
    for target in ("workers", "writing", "publishing"):
        if process.poll() is not None:
            process = start(logs, db)
        assert process.stdin is not None
        assert process.stdout is not None
        has_progress = partial(has_more, db, len(published(db)))
        process.stdin.write("go\n")
        process.stdin.flush()
        if target == "publishing":
            wait(process, has_progress)
        else:
            wait(process, partial(staged, db))
        if target == "workers":
            worker_pids = workers(process.pid)
            assert worker_pids
            for pid in worker_pids:
                os.kill(pid, signal.SIGKILL)
            assert process.stdout.readline() in ("failed\n", f"{total}\n")
        else:
            orphans |= set(descendants(process.pid))
            process.kill()
            process.wait(60)
            process.stdin.close()
            process.stdout.close()
        rows = numbers(intraday(db)) if published(db) else []
        assert rows == list(range(len(rows)))
        logs.write(total, total + 5000)
        total += 5000
    # Java ends when its driver is gone; until then workers may go on staging.
    end = time.monotonic() + 300
    while orphans & set(processes()) and time.monotonic() < end:
        time.sleep(0.1)
    import_logs(spark, logs.directory, db, location_bytes=30_000)
    assert numbers(intraday(db)) == list(range(total))
    assert not staged(db)


@contextmanager
def logged(logs: Logs, schema: pa.Schema, internal: str) -> Iterator[Logger]:
    """A log of other columns."""
    logs.seconds += 1
    named = {"namespace": "Ns", "table": "T", "internal_partition": internal, "column_partition": DATE}
    with Logger(logs.directory, schema, clock=lambda: logs.seconds, **named) as logger:
        yield logger


@pytest.mark.nightly
def test_locations_appear_as_they_are_done(
    spark: SparkSession, logs: Logs, db: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second of many is killed while the first is there already; a restart goes on from there."""
    logs.write(0, 20_000)
    location_counts: list[int] = []
    arrived = publication.Publication.take_outcome

    def dies(self: Any, index: int, outcome: Any) -> None:
        arrived(self, index, outcome)
        location_counts.append(len(published(db)))
        if len(location_counts) == 3:
            raise RuntimeError("killed")

    with monkeypatch.context() as patch:
        patch.setattr(publication.Publication, "take_outcome", dies)
        with pytest.raises(RuntimeError, match="killed"):
            import_logs(spark, logs.directory, db, location_bytes=30_000)
    assert location_counts[0] <= location_counts[1] <= location_counts[2]
    location_count = len(published(db))
    assert location_count >= 1
    rows = numbers(intraday(db))
    assert rows == list(range(len(rows)))
    assert 0 < len(rows) < 20_000
    again = import_logs(spark, logs.directory, db, location_bytes=30_000)
    assert again.rows == 20_000 - len(rows)
    assert numbers(intraday(db)) == list(range(20_000))
    assert not [name for name in os.listdir(db / "Intraday/Ns/T") if name.startswith(".sawlog-board")]


def test_logs_that_do_not_agree_on_a_type(spark: SparkSession, logs: Logs, db: Path) -> None:
    """A host that logs a narrower number, and a text as an Enum; and one that logs a text as a number."""
    logs.write(0, 10)
    other_schema = pa.schema([("N", pa.int32()), ("Sym", pa.dictionary(pa.int32(), pa.string())), ("Px", pa.float32())])
    with logged(logs, other_schema, "vm2") as logger:
        logger.write(
            pa.record_batch({"N": [10], "Sym": pa.array(["a"]).dictionary_encode(), "Px": [0.5]}, other_schema)
        )
    done = import_logs(spark, logs.directory, db)
    assert done.rows == 11
    assert numbers(intraday(db)) == list(range(11))
    assert intraday(db).column("Sym").to_pylist()[-1] == "a"
    wrong = pa.schema([("N", pa.int64()), ("Sym", pa.int64()), ("Px", pa.string())])
    with logged(logs, wrong, "vm3") as logger:
        logger.write(pa.record_batch({"N": [1], "Sym": [2], "Px": ["x"]}, wrong))
    logs.write(11, 20)
    with pytest.raises(SchemaError, match="'Px'"):
        import_logs(spark, logs.directory, db)
    assert sorted(numbers(intraday(db))) == list(range(20))


@pytest.mark.parametrize("policy", ["null", "replace"])
def test_values_that_cannot_be_stored(spark: SparkSession, logs: Logs, db: Path, policy: str) -> None:
    schema = pa.schema([("N", pa.int64()), ("Sym", pa.string()), ("Raw", pa.binary())])
    with logged(logs, schema, "vm1") as logger:
        values = {"N": [0, 1, 2, 3], "Sym": ["ok", "a€b", "\0", None], "Raw": [b"x", b"", b"y", None]}
        logger.write(pa.record_batch(values, schema))
    plain = {"charset": "ISO-8859-1"}
    xml = db.with_name("T.schema")
    xml.write_text(
        '<Table><Column name="N" dataType="long"/><Column name="Sym" dataType="String"/>'
        '<Column name="Raw" dataType="java.lang.Object"/></Table>'
    )
    options = {"schema": str(xml), "write_options": plain}
    with pytest.raises(SchemaError, match=r"row [12]"):
        import_logs(spark, logs.directory, db, **options)
    done = import_logs(spark, logs.directory, db, on_unstorable=policy, **options)
    assert (done.rows, done.unstorable) == (4, 3)
    columns = intraday(db).to_pydict()
    assert columns["Sym"] == ["ok", "a?b" if policy == "replace" else None, "" if policy == "replace" else None, None]
    assert columns["Raw"] == [b"x", None, b"y", None]
    lines = [
        json.loads(line) for line in (Path(done.locations[0]) / "_sawlog.unstorable.jsonl").read_text().splitlines()
    ]
    assert [(line["column"], line["value"], line["stored"]) for line in lines] == [
        ("Sym", "'a€b'", columns["Sym"][1]),
        ("Sym", "'\\x00'", columns["Sym"][2]),
        ("Raw", "b''", None),
    ]
    entries = sawlog.read(logs.directory, provenance=True)
    assert [line["offset"] for line in lines[:2]] == entries.column("_offset").to_pylist()[1:3]
    assert {line["file"] for line in lines} == set(entries.column("_file").to_pylist())
    assert any("3 values that column files cannot hold" in remark for remark in done.remarks)
    with pytest.raises(OptionError, match="on_unstorable"):
        import_logs(spark, logs.directory, db, on_unstorable="drop")

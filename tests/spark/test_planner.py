"""What the planner answers to the jar, without a JVM: columns, tasks for every core, and functions that read them."""

from __future__ import annotations

import io
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import fsspec
import pyarrow as pa
import pytest
from pyspark.serializers import CPickleSerializer
from pyspark.sql.types import StructType

import sawlog
from sawlog.format.planning import FRAGMENTS_PER_TASK
from sawlog.spark import planner
from sawlog.spark.options import SparkRequest
from tests.filodb_record import golden
from tests.milvus_binlog.support import write_collection
from tests.support import write_records


def ask(verb: str, **question: object) -> list[bytes]:
    return planner.Conversation().answer(verb, json.loads(json.dumps(question)))


@pytest.mark.parametrize(("column_names", "filters"), [(["record"], []), ([], []), ([], [("_offset", "<", "70000")])])
def test_a_question_and_its_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, column_names: list[str], filters: list[tuple[str, str, str]]
) -> None:
    records = [b"%0100d" % number for number in range(2000)]
    path = tmp_path / "000003.log"
    write_records(path, records)
    monkeypatch.setattr(planner, "MIN_TASK_BYTES", 50_000)
    options = {"path": str(path), "provenance": "true"}
    described = json.loads(ask("describe", options=options)[0])
    assert described["bytes"] == path.stat().st_size
    full = json.loads(described["schema"])
    needed_schema = {**full, "fields": [field for field in full["fields"] if field["name"] in column_names]}
    pushed = [
        {"name": "LessThan", "negated": False, "column": column, "values": [{"int": value}]}
        for column, _, value in filters
    ]
    head, pickled, *partitions = ask(
        "plan",
        options=options,
        full=json.dumps(full),
        sides=[{"wanted": json.dumps(needed_schema), "filters": pushed}],
        parallelism=3,
    )
    (sizes,) = json.loads(head)["sizes"]
    assert len(sizes) == len(partitions)
    assert filters or sum(sizes) == path.stat().st_size
    function, _ = CPickleSerializer().loads(pickled)
    assert len(partitions) == (1 if filters else 3)
    stop = [str(tmp_path / "stop")]
    batches = [
        batch
        for partition in partitions
        for batch in function(iter([pa.record_batch({"partition": [partition], "stop": stop})]))
    ]
    if column_names:
        assert [value for batch in batches for value in batch.column(0).to_pylist()] == records
    else:
        expected = sawlog.read(path, filters=[(column, op, int(value)) for column, op, value in filters])
        assert sum(value for batch in batches for value in batch.column(0).to_pylist()) == expected.num_rows


@pytest.mark.parametrize("column_names", [["record"], []])
def test_a_few_rows_are_one_task_that_ends_with_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, column_names: list[str]
) -> None:
    """However many logs there are, the first is read as far as its first batch."""
    for number in range(3, 13):
        table = pa.table({"record": pa.array([b"%0200d" % row for row in range(40_000)], pa.binary())})
        sawlog.write(table, tmp_path / f"{number:06}.log", format="leveldb_log")
    monkeypatch.setattr(planner, "MIN_TASK_BYTES", 50_000)
    options = {"path": str(tmp_path)}
    full = json.loads(json.loads(ask("describe", options=options)[0])["schema"])
    needed_schema = {**full, "fields": [field for field in full["fields"] if field["name"] in column_names]}
    side = {"wanted": json.dumps(needed_schema), "filters": [], "limit": 5}
    head, pickled, *partitions = ask("plan", options=options, full=json.dumps(full), sides=[side], parallelism=3)
    assert json.loads(head)["sizes"] == [[0]]
    function, _ = CPickleSerializer().loads(pickled)
    (batch,) = function(iter([pa.record_batch({"partition": partitions, "stop": [str(tmp_path / "stop")]})]))
    if column_names:
        assert batch.num_rows == 5
    else:
        assert 5 <= batch.column(0)[0].as_py() <= 40_000


@pytest.mark.parametrize("column_names", [["key", "value"], []])
def test_small_files_of_a_task_are_one_batch(tmp_path: Path, column_names: list[str]) -> None:
    """Each batch costs Spark more than the rows of a small file."""
    rows = [(b"%04d" % number, b"v%d" % number) for number in range(FRAGMENTS_PER_TASK + 44)]
    for number, (key, value) in enumerate(rows):
        table = pa.table({"key": pa.array([key], pa.binary()), "value": pa.array([value], pa.binary())})
        sawlog.write(table, tmp_path / f"{number + 1:06}.ldb", format="leveldb_table")
    options = {"path": str(tmp_path)}
    full = json.loads(json.loads(ask("describe", options=options)[0])["schema"])
    needed_schema = {**full, "fields": [field for field in full["fields"] if field["name"] in column_names]}
    side = {"wanted": json.dumps(needed_schema), "filters": []}
    _, pickled, *partitions = ask("plan", options=options, full=json.dumps(full), sides=[side], parallelism=2)
    function, _ = CPickleSerializer().loads(pickled)
    stop = [str(tmp_path / "stop")]
    batches = [
        batch
        for partition in partitions
        for batch in function(iter([pa.record_batch({"partition": [partition], "stop": stop})]))
    ]
    assert len(batches) == len(partitions) == 2
    if column_names:
        assert [(row["key"], row["value"]) for batch in batches for row in batch.to_pylist()] == rows
    else:
        assert sum(batch.column(0)[0].as_py() for batch in batches) == len(rows)


COUNTED = """
import json, sys
import pyarrow as pa
import pyspark.worker
from pyspark.serializers import CPickleSerializer
from sawlog.arrow import make_array
from sawlog.spark.planner import Conversation

planning, options = Conversation(), {"path": sys.argv[1]}
full = json.loads(planning.answer("describe", {"options": options})[0])["schema"]
side = {"wanted": json.dumps({**json.loads(full), "fields": []}), "filters": []}
asked = {"options": options, "full": full, "sides": [side], "parallelism": 2}
_, pickled, *parts = planning.answer("plan", asked)
function, _ = CPickleSerializer().loads(pickled)
stop = make_array([sys.argv[2]], pa.string())
given = [pa.record_batch({"part": make_array([one], pa.binary()), "stop": stop}) for one in parts]
rows = sum(value for one in given for batch in function(iter([one])) for value in batch.column(0).to_pylist())
print(json.dumps([rows, sorted({"pandas", "pyarrow.compute", "numba"} & sys.modules.keys())]))
"""


def test_what_a_first_count_loads(tmp_path: Path) -> None:
    """Every session waits for it, twice: where it is planned, and where it is read."""
    path = tmp_path / "000003.log"
    write_records(path, [b"one", b"two"])
    done = subprocess.run(
        [sys.executable, "-c", COUNTED, str(path), str(tmp_path / "stop")], capture_output=True, text=True, check=True
    )
    assert json.loads(done.stdout) == [2, []]


def test_a_stream_is_planned_by_one_conversation(tmp_path: Path) -> None:
    records = [b"%0100d" % number for number in range(2000)]
    path = tmp_path / "000003.log"
    write_records(path, records)
    conversation = planner.Conversation()
    schema = StructType().add("record", "binary")
    options = {"path": str(tmp_path), "format": "leveldb_log", "maxrowspertrigger": "1500"}
    (pickled,) = conversation.answer("stream", {"options": options, "schema": schema.json()})
    function, returned = CPickleSerializer().loads(pickled)
    assert returned == schema

    def ask(verb: str, **question: object) -> object:
        return json.loads(conversation.answer(verb, question)[0])

    start, plans = ask("initial"), []
    assert ask("available_now") is None
    for limited in (True, False):
        end = ask("latest", start=start, limited=limited)
        partitions = conversation.answer("partitions", {"start": start, "end": end})
        batches = [
            batch
            for partition in partitions
            for batch in function(iter([pa.record_batch({"partition": [partition], "stop": [str(tmp_path / "stop")]})]))
        ]
        plans.append([value for batch in batches for value in batch.column(0).to_pylist()])
        start = end
    assert plans == [records[:1500], records[1500:]]
    assert ask("latest", start=start, limited=True) == start
    assert ask("behind") == {"behind": {"bytes": 0, "files": 0}}


def test_a_connection_that_is_closed_ends_the_process_without_a_word() -> None:
    output = io.BytesIO()
    with pytest.raises(SystemExit) as ended:
        planner.main(io.BufferedReader(io.BytesIO()), output)
    assert ended.value.code, "PySpark's daemon would call again"
    assert not output.getvalue()


@pytest.mark.parametrize("change", [None, "grow", "add", "replace", "delete"])
def test_a_plan_reads_no_header_again_that_describing_has_read(
    tmp_path: Path, change: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A plan is of the files that there are when it is made."""
    table = pa.table({"number": pa.array([1, 2], pa.int64())})
    paths = [tmp_path / f"N.T.bin.{number:06}" for number in range(8)]
    for path in paths:
        sawlog.write(table, path, format="deephaven_log")
    later = time.time() + 30
    monkeypatch.setattr(time, "time", lambda: later)  # as though nobody had written there for a while
    opened: list[str] = []
    open_file = os.open

    def note(path: Any, *arguments: Any, **settings: Any) -> int:
        opened.append(str(path))
        return open_file(path, *arguments, **settings)

    options = {"path": str(tmp_path)}
    full = StructType.fromJson(json.loads(planner.describe(options)["schema"]))
    neighbour = tmp_path / "N.T.bin.000009"
    if change == "grow":
        sawlog.write(pa.table({"number": pa.array([1, 2, 3], pa.int64())}), neighbour, format="deephaven_log")
        paths[0].write_bytes(neighbour.read_bytes())
        neighbour.unlink()
    elif change == "add":
        sawlog.write(table, neighbour, format="deephaven_log")
    elif change == "replace":
        shutil.copy(paths[0], neighbour)
        neighbour.rename(paths[0])
    elif change == "delete":
        paths[0].unlink()
    monkeypatch.setattr(os, "open", note)
    rows = []
    for _ in range(2):
        opened.clear()
        (side,) = planner.plan(options, full, [planner.ScanRequest(StructType([]), [])])
        headers = sum(name.startswith(f"{tmp_path}/") for name in opened)
        assert (headers == 0) == (change is None and not rows)
        batches = (pa.record_batch({"task": [task], "stop": [f"{tmp_path}.stop"]}) for task in side.partitions)
        rows.append(
            sum(sum(counts.column(0).to_pylist()) for batch in batches for counts in side.function(iter([batch])))
        )
    assert rows == [{"grow": 17, "add": 18, "delete": 14}.get(change or "", 16)] * 2


FILODB_SCHEMAS = """
[partition-schema]
columns = ["ps:string", "pl:long"]
predefined-keys = ["job", "instance"]
[schemas.str-long]
columns = ["timestamp:ts", "s:string", "h:hist:counter=false", "n:long"]
"""
MILVUS_SCHEMA = '{"fields": [{"name": "key", "type": 5, "is_primary": true}], "description": "shop"}'
TABLE_XML = '<Table name="T" namespace="N" storageType="SplayedOnDisk"><Column name="number" dataType="long"/></Table>'


BACKUP = "{tmp}/source/meta/full_meta.json"


@pytest.mark.spread(1)
@pytest.mark.parametrize(
    ("format", "option", "place", "content", "change"),
    [
        ("deephaven_log", "schema", "{tmp}/T.schema", TABLE_XML, "N"),
        ("deephaven_log", "schema", "{memory}/T.schema", TABLE_XML, "N"),
        ("deephaven_table", "schema", "{tmp}/T.schema", TABLE_XML, "N"),
        ("filodb_record", "schema", "{tmp}/schemas.toml", FILODB_SCHEMAS, "job"),
        ("milvus_binlog", "schema", "{tmp}/schema.json", MILVUS_SCHEMA, "shop"),
        ("milvus_binlog", "metadata", BACKUP, "", "products"),
        ("milvus_binlog", "", BACKUP, "", "products"),
    ],
)
def test_a_plan_reads_again_what_is_not_among_its_files(
    tmp_path: Path,
    root: str,
    format: str,
    option: str,
    place: str,
    content: str,
    change: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Options name files of schemas and metadata; no option names metadata next to the path."""
    path, extra = tmp_path / "source", place.format(tmp=tmp_path, memory=root)
    table = pa.table({"number": pa.array([1, 2], pa.int64())})
    if format == "filodb_record":
        path.mkdir()
        shutil.copy(golden.path("str_long_12"), path / "a.container")
    elif format == "milvus_binlog":
        write_collection(path, table, tree="backup", collection_name="products")
        path /= "binlogs"
    else:
        sawlog.write(table, path if format == "deephaven_table" else path / "N.T.bin.000001", format=format)
    filesystem, name = fsspec.url_to_fs(extra)
    text = content or filesystem.cat(name).decode()
    filesystem.pipe(name, text.encode())
    later = time.time() + 30
    monkeypatch.setattr(time, "time", lambda: later)  # as though nobody had written there for a while
    options = {"path": str(path), "format": format, **({option: extra} if option else {})}
    opened: list[SparkRequest] = []
    open_stored = SparkRequest.open_stored
    monkeypatch.setattr(SparkRequest, "open_stored", lambda request: opened.append(request) or open_stored(request))
    full = StructType.fromJson(json.loads(planner.describe(options)["schema"]))
    filesystem.pipe(name, text.replace(change, f"{change}s").encode())
    planner.plan(options, full, [planner.ScanRequest(StructType([]), [])])
    assert len(opened) == 2

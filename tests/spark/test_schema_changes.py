"""Columns that change while a stream runs, or between two runs: one rule for every format that can change."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
import pytest
from pyspark.sql.types import StructType

import sawlog
from sawlog.deephaven.log import Logger
from sawlog.errors import OptionError, SchemaError
from sawlog.spark.reader import read_schema
from sawlog.spark.stream_reader import make_stream_reader
from tests.spark.conftest import COLUMNS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Rows = list[dict[str, Any]]


@pytest.fixture(autouse=True)
def _restless(monkeypatch: pytest.MonkeyPatch) -> None:
    """No look is followed by a rest."""
    monkeypatch.setattr("sawlog.spark.stream_reader.CHEAP_SECONDS", math.inf)


class Query:
    """What Spark asks of a stream source, in a process of its own, without a session.

    Args:
        path: The files.
        offset: Of the checkpoint; none at the first start.
        schema: Of `.schema(...)`: names and types; found by Spark if not given.
        options: Of the source.
    """

    def __init__(self, path: Path, offset: Any = None, schema: dict[str, str] | None = None, **options: str) -> None:
        options = {"path": str(path), **options}
        struct = StructType()
        for name, kind in (schema or {}).items():
            struct = struct.add(name, kind)
        self.schema = struct if schema else read_schema(options, None)
        self._reader = make_stream_reader(options, None, self.schema)
        self.offset = offset or self._reader.initialOffset()

    def look(self) -> Rows:
        start, self.offset = self.offset, self.latest(self.offset)
        return self.between(start, self.offset)

    def latest(self, start: Any) -> Any:
        return json.loads(json.dumps(self._reader.find_latest(start, limited=False)))

    def between(self, start: Any, end: Any) -> Rows:
        parts = self._reader.partitions(start, end)
        return [row for part in parts for batch in self._reader.read(part) for row in batch.to_pylist()]


def write_deephaven(path: Path, number: int, row: dict[str, pa.Scalar], table: str = "Trades") -> None:
    schema = pa.schema([(name, value.type) for name, value in row.items()])
    batch = pa.record_batch([pa.array([value.as_py()], value.type) for value in row.values()], schema=schema)
    with Logger(path, schema, namespace="Market", table=table, internal_partition=f"w{number}") as logger:
        logger.write(batch)


def write_milvus(path: Path, number: int, row: dict[str, pa.Scalar]) -> None:
    """Fields that are added to a collection can be null in Milvus."""
    schema = pa.schema(
        [
            pa.field(name, value.type, metadata={b"sawlog.milvus.nullable": b"true"} if name != "100" else None)
            for name, value in row.items()
        ]
    )
    table = pa.Table.from_arrays([pa.array([value.as_py()], value.type) for value in row.values()], schema=schema)
    sawlog.write(table, path, format="milvus_binlog", primary_key="100", timestamp=100, first_id=(number + 1) * 1000)


def write_filodb(path: Path, number: int, row: dict[str, pa.Scalar]) -> None:
    """A series of another schema has another column."""
    path.mkdir(exist_ok=True)
    columns = {name: pa.array([value.as_py()], value.type) for name, value in row.items()}
    tags = pa.array([[("k", "x")]], pa.map_(pa.string(), pa.string()))
    table = pa.table({"timestamp": [number], **columns, "_metric_": ["m"], "tags": tags})
    schema = "gauge" if "value" in row else "prom-counter"
    sawlog.write(table, path / f"{number}.container", format="filodb_record", table=schema)


class ChangingFormat(NamedTuple):
    """A format whose files can have other columns than those before.

    Attributes:
        write: Writes a file with one row.
        options: Of the source.
        before: The row that there is first.
        later: A row with a column more, which may lack one of the first.
        added: That column.
        lacking: The one that it lacks, if any: Spark believes that it holds no nulls.
    """

    write: Callable[..., None]
    options: dict[str, str]
    before: dict[str, pa.Scalar]
    later: dict[str, pa.Scalar]
    added: str
    lacking: str | None = None

    def numbered(self, row: dict[str, pa.Scalar], number: int) -> dict[str, pa.Scalar]:
        """The row with a number of its own, where it has a key."""
        key = next(iter(row))
        return {**row, key: pa.scalar(number, row[key].type)}

    @property
    def all_columns(self) -> dict[str, str]:
        """What `.schema(...)` is given to have every column."""
        types = {pa.int64(): "long", pa.string(): "string", pa.float64(): "double"}
        return {name: types[value.type] for name, value in {**self.before, **self.later}.items()}

    @property
    def first_columns(self) -> dict[str, str]:
        """The columns before one was added."""
        return {name: kind for name, kind in self.all_columns.items() if name in self.before}


FORMATS = {
    "deephaven_log": ChangingFormat(
        write_deephaven, {}, {"n": pa.scalar(1)}, {"n": pa.scalar(1), "b": pa.scalar("x")}, added="b"
    ),
    "milvus_binlog": ChangingFormat(
        write_milvus, {"view": "inserts"}, {"100": pa.scalar(1)}, {"100": pa.scalar(1), "101": pa.scalar("x")}, "101"
    ),
    "filodb_record": ChangingFormat(
        write_filodb, {}, {"value": pa.scalar(1.0)}, {"count": pa.scalar(1.0)}, added="count", lacking="value"
    ),
}


@pytest.fixture(params=FORMATS)
def changing(request: pytest.FixtureRequest) -> ChangingFormat:
    return FORMATS[request.param]


def picked(rows: Rows, names: dict[str, str]) -> Rows:
    return [{name: row[name] for name in names} for row in rows]


def as_row(changing: ChangingFormat, row: dict[str, pa.Scalar], names: dict[str, str]) -> dict[str, Any]:
    return {name: row[name].as_py() if name in row else None for name in names}


def test_a_column_that_is_added(changing: ChangingFormat, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The query goes on without it; the next one has it, from the same checkpoint, with every row once."""
    before, later = changing.numbered(changing.before, 1), changing.numbered(changing.later, 2)
    changing.write(tmp_path, 0, before)
    query = Query(tmp_path, None, changing.first_columns, **changing.options)
    assert query.look() == [as_row(changing, before, changing.first_columns)]
    for number in (1, 2):
        changing.write(tmp_path, number, later := changing.numbered(changing.later, number + 1))
        assert query.look() == [as_row(changing, later, changing.first_columns)]
    assert caplog.text.count(repr(changing.added)) == 1
    assert "left out: column" in caplog.text
    changing.write(tmp_path, 3, last := changing.numbered(changing.later, 4))
    offset = query.offset
    names = changing.all_columns
    for schema in (None, names):
        caplog.clear()
        restarted = Query(tmp_path, offset, schema, **changing.options)
        assert changing.added in restarted.schema.names
        assert picked(restarted.look(), names) == [as_row(changing, last, names)]
        assert restarted.look() == []
        assert caplog.text.count("started again with more columns") == 1
    caplog.clear()
    again = Query(tmp_path, restarted.offset, changing.first_columns, **changing.options)
    changing.write(tmp_path, 4, last)
    assert again.look() == [as_row(changing, last, changing.first_columns)]
    assert "started again" not in caplog.text


def test_a_micro_batch_that_is_repeated_after_the_change(changing: ChangingFormat, tmp_path: Path) -> None:
    changing.write(tmp_path, 0, changing.before)
    query = Query(tmp_path, None, changing.first_columns, **changing.options)
    start = query.latest(query.offset)
    changing.write(tmp_path, 1, changing.later)
    end = query.latest(start)
    restarted = Query(tmp_path, start, changing.all_columns, **changing.options)
    for first in (start, restarted.offset):
        rows_between = restarted.between(first, end)
        assert rows_between == [as_row(changing, changing.later, changing.all_columns)]
    assert restarted.latest(end) == end


def test_a_column_that_is_removed(changing: ChangingFormat, tmp_path: Path) -> None:
    """It is null, also when no file has it any more, as long as it is asked for."""
    names = changing.all_columns
    changing.write(tmp_path, 0, changing.later)
    changing.write(tmp_path, 1, changing.numbered(changing.before, 2))
    query = Query(tmp_path, None, names, **changing.options)
    assert len(query.look()) == 2
    changing.write(tmp_path, 2, row := changing.numbered(changing.before, 3))
    assert query.look() == [as_row(changing, row, names)]
    for path in tmp_path.rglob("*"):
        if path.is_file() and (".w0." in path.name or path.name == "0.container" or "/1000/" in str(path)):
            path.unlink()
    changing.write(tmp_path, 3, row := changing.numbered(changing.before, 4))
    assert Query(tmp_path, query.offset, names, **changing.options).look() == [as_row(changing, row, names)]
    changed_query = Query(tmp_path, query.offset, **changing.options)
    assert changing.added not in changed_query.schema.names
    assert picked(changed_query.look(), changing.first_columns) == [as_row(changing, row, changing.first_columns)]


def test_a_column_that_was_never_null(tmp_path: Path) -> None:
    """Spark believes that it holds no nulls, which cannot be taken back while a query runs."""
    changing = FORMATS["filodb_record"]
    changing.write(tmp_path, 0, changing.before)
    query = Query(tmp_path)
    offset = query.latest(query.offset)
    changing.write(tmp_path, 1, changing.later)
    query.offset = offset
    with pytest.raises(SchemaError, match=r"column 'value' holds nulls; .*: without a schema start again"):
        query.look()
    batches = Query(tmp_path, offset).look()
    assert picked(batches, changing.all_columns) == [as_row(changing, changing.later, changing.all_columns)]


WIDE, NARROW = pa.scalar(1 << 40), pa.scalar(7, pa.int32())


def test_a_column_that_becomes_wider(tmp_path: Path) -> None:
    """The message says what to write, and it is true."""
    write_deephaven(tmp_path, 0, {"n": NARROW})
    query = Query(tmp_path)
    assert [row["n"] for row in query.look()] == [7]
    offset = query.offset
    write_deephaven(tmp_path, 1, {"n": WIDE})
    message = r"column 'n' is int64; the stream began with int32: start it .*, with \.option\(\"widen\", \"true\"\)"
    with pytest.raises(SchemaError, match=message):
        query.look()
    with pytest.raises(SchemaError, match=r"column 'n' is Int in .* and Long in .*\.option\(\"widen\", \"true\"\)"):
        Query(tmp_path, offset)
    with pytest.raises(SchemaError, match=message):
        Query(tmp_path, offset, {"n": "integer"}).look()
    for schema, options in ((None, {"widen": "true"}), ({"n": "long"}, {"widen": "true"}), ({"n": "long"}, {})):
        restarted = Query(tmp_path, offset, schema, **options)
        assert [row["n"] for row in restarted.look()] == [1 << 40]
    write_deephaven(tmp_path, 2, {"n": NARROW})
    write_deephaven(tmp_path, 3, {"n": WIDE})
    assert sorted(row["n"] for row in restarted.look()) == [7, 1 << 40]


def test_a_column_that_becomes_narrower(tmp_path: Path) -> None:
    """Whether the files are seen together or apart."""
    write_deephaven(tmp_path, 0, {"n": WIDE})
    query = Query(tmp_path, None, {"n": "long"})
    query.look()
    write_deephaven(tmp_path, 1, {"n": NARROW})
    write_deephaven(tmp_path, 2, {"n": WIDE})
    assert sorted(row["n"] for row in query.look()) == [7, 1 << 40]
    write_deephaven(tmp_path, 3, {"n": NARROW})
    assert Query(tmp_path, query.offset, {"n": "long"}).look() == [{"n": 7}]
    assert [row["n"] for row in Query(tmp_path, query.offset, widen="true").look()] == [7]


def test_a_column_that_becomes_another(tmp_path: Path) -> None:
    write_deephaven(tmp_path, 0, {"n": WIDE})
    query = Query(tmp_path, None, {"n": "long"})
    query.look()
    write_deephaven(tmp_path, 1, {"n": pa.scalar("x")})
    with pytest.raises(SchemaError, match=r"column 'n' is string; the stream began with int64: files of another type"):
        query.look()
    with pytest.raises(SchemaError, match=r"column 'n' is Long in .* and EnhancedString in .*: read them apart$"):
        Query(tmp_path, query.offset, {"n": "long"}).look()


def test_a_column_that_is_renamed(tmp_path: Path) -> None:
    """One is removed, and one is added."""
    write_deephaven(tmp_path, 0, {"n": pa.scalar(1)})
    query = Query(tmp_path, None, {"n": "long"})
    query.look()
    write_deephaven(tmp_path, 1, {"m": pa.scalar(2)})
    assert query.look() == [{"n": None}]
    write_deephaven(tmp_path, 2, {"m": pa.scalar(3)})
    assert Query(tmp_path, query.offset, {"n": "long", "m": "long"}).look() == [{"n": None, "m": 3}]
    assert [(row["n"], row["m"]) for row in Query(tmp_path, query.offset).look()] == [(None, 3)]


def test_a_table_that_appears(tmp_path: Path) -> None:
    write_deephaven(tmp_path, 0, {"n": pa.scalar(1)})
    query = Query(tmp_path)
    query.look()
    write_deephaven(tmp_path, 1, {"m": pa.scalar("x")}, table="Other")
    assert query.look() == []
    write_deephaven(tmp_path, 2, {"n": pa.scalar(2)})
    with pytest.raises(OptionError, match=r"logs of several tables.*\.option\(\"table\", "):
        Query(tmp_path, query.offset)
    assert [row["n"] for row in Query(tmp_path, query.offset, table="Trades").look()] == [2]
    assert Query(tmp_path, query.offset, {"n": "long"}).look() == [{"n": 2}]


@pytest.mark.parametrize("source", ["sawlog", COLUMNS])
def test_a_pipeline_on_spark_bears_new_columns(
    spark: SparkSession, pyspark_version: tuple[int, int], tmp_path: Path, source: str
) -> None:
    """A pipeline that runs now and then, into Parquet."""
    if pyspark_version < (4, 2) and source == "sawlog":
        pytest.skip("streams need PySpark 4.2")

    def run(**schema: str) -> None:
        reader = spark.readStream.format(source)
        if schema:
            reader = reader.schema(", ".join(f"{name} {kind}" for name, kind in schema.items()))
        writer = reader.load(str(tmp_path / "logs")).writeStream.trigger(availableNow=True).format("parquet")
        writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
        writer.start(str(tmp_path / "out")).awaitTermination()

    def read_rows() -> list[tuple[Any, ...]]:
        frame = spark.read.schema("n bigint, b string").parquet(str(tmp_path / "out"))
        return sorted(tuple(row) for row in frame.collect())

    write_deephaven(tmp_path / "logs", 0, {"n": pa.scalar(1)})
    run()
    write_deephaven(tmp_path / "logs", 1, {"n": pa.scalar(2), "b": pa.scalar("x")})
    run()
    assert read_rows() == [(1, None), (2, "x")]
    write_deephaven(tmp_path / "logs", 2, {"n": pa.scalar(3), "b": pa.scalar("y")})
    run(n="bigint")
    write_deephaven(tmp_path / "logs", 3, {"n": pa.scalar(4), "b": pa.scalar("z")})
    run(n="bigint", b="string")
    assert read_rows() == [(1, None), (2, "x"), (3, None), (4, "z")]


@pytest.mark.nightly
def test_formats_on_spark(spark: SparkSession, changing: ChangingFormat, tmp_path: Path) -> None:
    """Started again without a schema: Spark has asked for columns before it reads the checkpoint. All rows, once."""

    def run(*columns: str) -> StructType:
        reader = spark.readStream.format(COLUMNS).options(**changing.options)
        if columns:
            reader = reader.schema(", ".join(f"`{name}` {changing.all_columns[name]}" for name in columns))
        frame = reader.load(str(tmp_path / "logs"))
        frame_schema = frame.schema  # there is no checkpoint yet, as far as Spark has said
        writer = frame.writeStream.trigger(availableNow=True).option("checkpointLocation", str(tmp_path / "checkpoint"))
        writer.format("parquet").start(str(tmp_path / "out")).awaitTermination()
        return frame_schema

    names = changing.all_columns
    rows = [changing.before, changing.later, changing.later, changing.later]
    expected = []
    for number, columns in enumerate(((), (), changing.first_columns, changing.all_columns)):
        row = changing.numbered(rows[number], number + 1)
        changing.write(tmp_path / "logs", number, row)
        result = run(*columns)
        assert (changing.added in result.names) == (number > 0 and columns != changing.first_columns)
        expected.append(
            as_row(changing, row, names) | ({} if changing.added in result.names else {changing.added: None})
        )
    schema = ", ".join(f"`{name}` {kind}" for name, kind in names.items())
    rows_read = [row.asDict() for row in spark.read.schema(schema).parquet(str(tmp_path / "out")).collect()]
    assert sorted(rows_read, key=repr) == sorted(expected, key=repr)


@pytest.mark.nightly
def test_a_query_whose_state_has_the_columns(spark: SparkSession, tmp_path: Path) -> None:
    """Spark compares them with those of the checkpoint, and ends; a schema is what goes on."""

    def run(**schema: str) -> None:
        reader = spark.readStream.format(COLUMNS)
        if schema:
            reader = reader.schema(", ".join(f"{name} {kind}" for name, kind in schema.items()))
        frame = reader.load(str(tmp_path / "logs")).dropDuplicates()
        writer = frame.writeStream.trigger(availableNow=True).option("checkpointLocation", str(tmp_path / "checkpoint"))
        writer.format("parquet").start(str(tmp_path / "out")).awaitTermination()

    write_deephaven(tmp_path / "logs", 0, {"n": pa.scalar(1), "p": pa.scalar("x")})
    run()
    write_deephaven(tmp_path / "logs", 1, {"n": pa.scalar(2), "p": pa.scalar("x"), "b": pa.scalar("x")})
    with pytest.raises(Exception, match="STATE_STORE_KEY_SCHEMA_NOT_COMPATIBLE"):
        run()
    run(n="bigint", p="string", Date="string")
    rows = spark.read.parquet(str(tmp_path / "out")).select("n").collect()
    assert sorted(row.n for row in rows) == [1, 2]
